// SPDX-License-Identifier: MIT
//! What is summed up: a row for each call stack, or for each call stack and thread or size.

use std::collections::HashMap;
use std::ops::AddAssign;

use quarry_trace::StackId;
use quarry_trace::sample::{Estimate, Weight};

use super::lifetimes::Lifetimes;
use super::series::{self, Entry, Series, Spans};

/// Call stacks with numbers below this are found without hashing.
const NEAR: usize = 1 << 20;
/// No row.
const NONE: u32 = u32::MAX;
/// Entries over time that each row may have in any case.
const EACH: usize = 4;
/// Most rows. Those that come later are one row, whose sums are exact.
const MOST: usize = 1 << 21;

/// Which blocks are of one row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Where they come from; 0: not recorded.
    pub stack: StackId,
    /// The pool that handed them out; 0: malloc.
    pub pool: u32,
    /// The thread, or the bar of the size, where rows are divided by these.
    pub part: u32,
}

/// The row of all that come too late.
pub const OTHERS: Key = Key { stack: StackId::MAX, pool: u32::MAX, part: 0 };

/// Where a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The pool that handed it out; 0: malloc.
    pub pool: u32,
    /// Its address.
    pub address: u64,
    /// Its bytes.
    pub size: u64,
}

/// Sums from the beginning to a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sums {
    /// Allocations and reallocs.
    pub allocs: Estimate,
    /// Bytes requested by them.
    pub bytes: Estimate,
    /// Blocks that are live at the moment.
    pub live: Estimate,
    /// Their bytes.
    pub live_bytes: Estimate,
    /// Blocks whose free was their thread's next event; a sample has none.
    pub temporary: u64,
    /// Their bytes.
    pub temporary_bytes: u64,
}

impl AddAssign for Sums {
    fn add_assign(&mut self, other: Self) {
        self.allocs += other.allocs;
        self.bytes += other.bytes;
        self.live += other.live;
        self.live_bytes += other.live_bytes;
        self.temporary += other.temporary;
        self.temporary_bytes += other.temporary_bytes;
    }
}

/// What is live at a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Live {
    /// Blocks.
    pub blocks: Estimate,
    /// Their bytes.
    pub bytes: Estimate,
}

impl AddAssign for Live {
    fn add_assign(&mut self, other: Self) {
        self.blocks += other.blocks;
        self.bytes += other.bytes;
    }
}

/// What one key has.
#[derive(Debug, Clone, Default)]
pub struct Row {
    /// Its key.
    pub key: Key,
    /// Up to the last event.
    pub sums: Sums,
    /// When the whole program had most bytes live.
    pub peak: Live,
    /// At the moments that were asked for.
    pub marks: Vec<Sums>,
    /// Over time.
    pub series: Series,
    /// How long its blocks lived.
    pub lives: Lifetimes,
    /// The peak that `peak` is about.
    epoch: u64,
}

/// All rows.
#[derive(Debug)]
pub struct Rows {
    rows: Vec<Row>,
    near: Vec<u32>,
    far: HashMap<Key, u32>,
    /// Peaks so far.
    epoch: u64,
    /// Moments so far.
    marks: usize,
    pub spans: Spans,
    entries: usize,
}

impl Rows {
    pub fn new(spans: Spans) -> Self {
        Self {
            rows: Vec::new(),
            near: Vec::new(),
            far: HashMap::new(),
            epoch: 0,
            marks: 0,
            spans,
            entries: 0,
        }
    }

    /// The row of a key.
    #[inline]
    pub fn find(&mut self, key: Key) -> u32 {
        if key.pool == 0 && key.part == 0 && (key.stack as usize) < self.near.len() {
            let row = self.near[key.stack as usize];
            if row != NONE {
                return row;
            }
        }
        self.find_far(key)
    }

    fn find_far(&mut self, key: Key) -> u32 {
        let near = key.pool == 0 && key.part == 0 && (key.stack as usize) < NEAR;
        if !near {
            if let Some(&row) = self.far.get(&key) {
                return row;
            }
            if self.rows.len() >= MOST && key != OTHERS {
                return self.find_far(OTHERS);
            }
        }
        let row = self.rows.len() as u32;
        self.rows.push(Row { key, epoch: self.epoch, ..Row::default() });
        if near {
            let at = key.stack as usize;
            if at >= self.near.len() {
                self.near.resize(at + 1, NONE);
            }
            self.near[at] = row;
        } else {
            self.far.insert(key, row);
        }
        row
    }

    /// A row whose earlier moments are kept, to be changed.
    #[inline]
    fn at(&mut self, row: u32) -> &mut Row {
        let (epoch, marks) = (self.epoch, self.marks);
        let row = &mut self.rows[row as usize];
        // What happened since the last change here: what is live now was live then.
        if row.epoch != epoch {
            row.epoch = epoch;
            row.peak = Live { blocks: row.sums.live, bytes: row.sums.live_bytes };
        }
        if row.marks.len() != marks {
            row.marks.resize(marks, row.sums);
        }
        row
    }

    /// Blocks are there, or are others after a realloc.
    #[inline]
    pub fn born(&mut self, row: u32, bytes: u64, weight: Weight, time: u64) {
        let span = self.spans.of(time);
        let row = self.at(row);
        row.sums.allocs.count(weight);
        row.sums.bytes.add(bytes, weight);
        row.sums.live.count(weight);
        row.sums.live_bytes.add(bytes, weight);
        let all = bytes as f64 * weight.blocks();
        self.entries += usize::from(row.series.add(Entry { span, bytes: all, born: all as f32 }));
    }

    /// A block is not there any more.
    #[inline]
    pub fn gone(&mut self, row: u32, bytes: u64, weight: Weight, time: u64) {
        let span = self.spans.of(time);
        let row = self.at(row);
        row.sums.live.take(1, weight);
        row.sums.live_bytes.take(bytes, weight);
        let all = bytes as f64 * weight.blocks();
        self.entries += usize::from(row.series.add(Entry { span, bytes: -all, born: 0.0 }));
    }

    /// Bytes of a chunk went to a pool's block.
    pub fn lend(&mut self, row: u32, bytes: u64, time: u64) {
        let span = self.spans.of(time);
        let row = self.at(row);
        row.sums.live_bytes.take(bytes, Weight::ONE);
        let change = Entry { span, bytes: -(bytes as f64), ..Entry::default() };
        self.entries += usize::from(row.series.add(change));
    }

    /// They are back.
    pub fn take_back(&mut self, row: u32, bytes: u64, time: u64) {
        let span = self.spans.of(time);
        let row = self.at(row);
        row.sums.live_bytes.add(bytes, Weight::ONE);
        let change = Entry { span, bytes: bytes as f64, ..Entry::default() };
        self.entries += usize::from(row.series.add(change));
    }

    /// A block was its thread's last event before its free.
    #[inline]
    pub fn temporary(&mut self, row: u32, bytes: u64) {
        let row = self.at(row);
        row.sums.temporary += 1;
        row.sums.temporary_bytes += bytes;
    }

    /// How long blocks of a row lived.
    #[inline]
    pub fn lives(&mut self, row: u32) -> &mut Lifetimes {
        &mut self.rows[row as usize].lives
    }

    /// More is live now than ever before.
    #[inline]
    pub fn peak(&mut self) {
        self.epoch += 1;
    }

    /// A moment that was asked for is over.
    pub fn mark(&mut self) {
        self.marks += 1;
    }

    /// Keep the entries of all rows within bounds.
    #[inline]
    pub fn bound(&mut self) {
        if self.entries > series::MOST + EACH * self.rows.len() && self.spans.count() > 1 {
            self.entries = self.spans.join(self.rows.iter_mut().map(|row| &mut row.series));
        }
    }

    /// All rows, by key.
    pub fn finish(mut self) -> Vec<Row> {
        for row in 0..self.rows.len() as u32 {
            self.at(row);
        }
        self.rows.sort_unstable_by_key(|row| row.key);
        self.rows
    }
}
