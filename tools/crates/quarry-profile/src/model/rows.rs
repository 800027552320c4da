// SPDX-License-Identifier: MIT
//! What is summed up: a row for each call stack, or for each call stack and thread or size.

use std::ops::AddAssign;

use hashbrown::HashTable;
use quarry_trace::StackId;
use quarry_trace::hash::Hash;
use quarry_trace::sample::{Estimate, Sampling, Weight};

use super::lifetimes::Lifetimes;
use super::series::{self, Entry, Series, Spans};
use super::tally::Tally;

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
#[derive(Debug, Clone)]
pub struct Row {
    /// Its key.
    pub key: Key,
    /// Over time.
    pub series: Series,
    /// How long its blocks lived.
    pub lives: Lifetimes,
    sums: Tally<6>,
    /// Blocks and bytes when the whole program had most.
    peak: Tally<2>,
    /// Sums at the moments that were asked for.
    marks: Vec<Tally<6>>,
    /// The peak that `peak` is about.
    epoch: u64,
}

/// What a row adds up, by the place in its tally.
const ALLOCS: usize = 0;
const BYTES: usize = 1;
const LIVE: usize = 2;
const LIVE_BYTES: usize = 3;
const TEMPORARY: usize = 4;
const TEMPORARY_BYTES: usize = 5;

fn sums(tally: &Tally<6>) -> Sums {
    Sums {
        allocs: tally.get(ALLOCS),
        bytes: tally.get(BYTES),
        live: tally.get(LIVE),
        live_bytes: tally.get(LIVE_BYTES),
        temporary: tally.get(TEMPORARY).seen(),
        temporary_bytes: tally.get(TEMPORARY_BYTES).seen(),
    }
}

impl Row {
    fn new(key: Key, sampling: Sampling, epoch: u64) -> Self {
        Self {
            key,
            series: Series::default(),
            lives: Lifetimes::default(),
            sums: Tally::new(sampling),
            peak: Tally::new(sampling),
            marks: Vec::new(),
            epoch,
        }
    }

    /// Up to the last event.
    pub fn sums(&self) -> Sums {
        sums(&self.sums)
    }

    /// When the whole program had most bytes live.
    pub fn peak(&self) -> Live {
        Live { blocks: self.peak.get(0), bytes: self.peak.get(1) }
    }

    /// Up to the moment of this number among those that were asked for.
    pub fn mark(&self, number: usize) -> Option<Sums> {
        self.marks.get(number).map(sums)
    }
}

/// All rows.
#[derive(Debug, Clone)]
pub struct Rows {
    sampling: Sampling,
    rows: Vec<Row>,
    near: Vec<u32>,
    far: HashTable<u32>,
    hash: Hash,
    /// Peaks so far.
    epoch: u64,
    /// Moments so far.
    marks: usize,
    pub spans: Spans,
    entries: usize,
}

fn hash_of(hash: Hash, key: Key) -> u64 {
    let inner = hash.of(u64::from(key.pool) << 32 | u64::from(key.part));
    hash.of(inner ^ u64::from(key.stack))
}

impl Rows {
    pub fn new(spans: Spans, sampling: Sampling) -> Self {
        Self {
            sampling,
            rows: Vec::new(),
            near: Vec::new(),
            far: HashTable::new(),
            hash: Hash::default(),
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
            let rows = &self.rows;
            let known = self.far.find(hash_of(self.hash, key), |&row| rows[row as usize].key == key);
            if let Some(&row) = known {
                return row;
            }
            if self.rows.len() >= MOST && key != OTHERS {
                return self.find_far(OTHERS);
            }
        }
        let row = self.rows.len() as u32;
        self.rows.push(Row::new(key, self.sampling, self.epoch));
        if near {
            let at = key.stack as usize;
            if at >= self.near.len() {
                self.near.resize(at + 1, NONE);
            }
            self.near[at] = row;
        } else {
            let (hash, rows) = (self.hash, &self.rows);
            self.far.insert_unique(hash_of(hash, key), row, |&row| hash_of(hash, rows[row as usize].key));
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
            row.peak.copy(&row.sums, [LIVE, LIVE_BYTES]);
        }
        if row.marks.len() != marks {
            row.marks.resize(marks, row.sums.clone());
        }
        row
    }

    /// Blocks are there, or are others after a realloc.
    #[inline]
    pub fn born(&mut self, row: u32, bytes: u64, weight: Weight, time: u64) {
        let span = self.spans.of(time);
        let row = self.at(row);
        row.sums.count(ALLOCS, weight);
        row.sums.add(BYTES, bytes, weight);
        row.sums.count(LIVE, weight);
        row.sums.add(LIVE_BYTES, bytes, weight);
        let all = bytes as f64 * weight.blocks();
        self.entries += usize::from(row.series.add(Entry { span, bytes: all, born: all as f32 }));
    }

    /// A block is not there any more.
    #[inline]
    pub fn gone(&mut self, row: u32, bytes: u64, weight: Weight, time: u64) {
        let span = self.spans.of(time);
        let row = self.at(row);
        row.sums.take(LIVE, 1, weight);
        row.sums.take(LIVE_BYTES, bytes, weight);
        let all = bytes as f64 * weight.blocks();
        self.entries += usize::from(row.series.add(Entry { span, bytes: -all, born: 0.0 }));
    }

    /// Bytes of a chunk went to a pool's block.
    pub fn lend(&mut self, row: u32, bytes: u64, time: u64) {
        let span = self.spans.of(time);
        let row = self.at(row);
        row.sums.take(LIVE_BYTES, bytes, Weight::ONE);
        let change = Entry { span, bytes: -(bytes as f64), ..Entry::default() };
        self.entries += usize::from(row.series.add(change));
    }

    /// They are back.
    pub fn take_back(&mut self, row: u32, bytes: u64, time: u64) {
        let span = self.spans.of(time);
        let row = self.at(row);
        row.sums.add(LIVE_BYTES, bytes, Weight::ONE);
        let change = Entry { span, bytes: bytes as f64, ..Entry::default() };
        self.entries += usize::from(row.series.add(change));
    }

    /// A block was its thread's last event before its free.
    #[inline]
    pub fn temporary(&mut self, row: u32, bytes: u64) {
        let row = self.at(row);
        row.sums.count(TEMPORARY, Weight::ONE);
        row.sums.add(TEMPORARY_BYTES, bytes, Weight::ONE);
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
