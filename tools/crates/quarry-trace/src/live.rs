// SPDX-License-Identifier: MIT
//! Which blocks are alive: births, deaths, and what is possible.

mod curve;
mod follow;

use hashbrown::HashTable;

use crate::event::{Event, FreeApi, StackId, ThreadId, What};
use crate::hash::Hash;
use crate::sample::{Rate, Rates};

pub use curve::{Curve, Point};
pub use follow::{Change, Follower};

/// A block that is or was alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Object {
    /// Births before its own, of which 2^42 are counted. A realloc is no birth.
    pub id: u64,
    /// Where it is.
    pub address: u64,
    /// Bytes requested; sizes from 2^48 - 1 on, which no process can have, are kept as that.
    pub size: u64,
    /// When it was born, in ticks.
    pub time: u64,
    /// Who allocated it, or changed its size last.
    pub thread: ThreadId,
    /// From where; 0: not recorded.
    pub stack: StackId,
    /// Of a sample: the rate that it was drawn at.
    pub rate: Rate,
}

/// What cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Impossible {
    /// A free of a block that is not live: it was allocated before the recording, or the record is lost.
    FreeOfUnknown,
    /// A realloc of such a block; its new block is born.
    ReallocOfUnknown,
    /// An allocation of a live block: the free is lost.
    AllocOfLive,
    /// The same by a realloc.
    ReallocToLive,
    /// More live blocks than 2^32.
    Full,
}

/// How often what cannot be was seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Impossibles {
    /// See [`Impossible::FreeOfUnknown`].
    pub free_of_unknown: u64,
    /// See [`Impossible::ReallocOfUnknown`].
    pub realloc_of_unknown: u64,
    /// See [`Impossible::AllocOfLive`].
    pub alloc_of_live: u64,
    /// See [`Impossible::ReallocToLive`].
    pub realloc_to_live: u64,
    /// See [`Impossible::Full`].
    pub full: u64,
}

impl Impossibles {
    /// All of them.
    pub fn total(&self) -> u64 {
        let Self { free_of_unknown, realloc_of_unknown, alloc_of_live, realloc_to_live, full } = self;
        free_of_unknown + realloc_of_unknown + alloc_of_live + realloc_to_live + full
    }
}

/// What an event changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Step {
    /// This block ended, or was this before a realloc changed it.
    pub ended: Option<Object>,
    /// This block is live now, or is this after a realloc.
    pub born: Option<Object>,
    /// A block that must have ended unseen, as its address was handed out again.
    pub displaced: Option<Object>,
    /// `ended` and `born` are the same block: its id and its time of birth stay.
    pub resized: bool,
    /// What of this cannot be.
    pub impossible: Option<Impossible>,
}

/// The highest number of live bytes, and what else was then.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Peak {
    /// Bytes requested by live blocks.
    pub bytes: u64,
    /// Live blocks at that moment.
    pub objects: u64,
    /// When.
    pub time: u64,
    /// Births before that moment.
    pub births: u64,
}

/// Follows events in their order, in memory bounded by the blocks that are live: when there are many, less than
/// 48 bytes for each.
#[derive(Debug, Clone, Default)]
pub struct Tracker {
    slab: Slab,
    table: HashTable<u32>,
    hash: Hash,
    births: u64,
    bytes: u64,
    peak: Peak,
    peak_objects: u64,
    impossible: Impossibles,
    rates: Rates,
}

impl Tracker {
    /// Nothing is live.
    pub fn new() -> Self {
        Self::default()
    }

    /// Take an event into account, and say what it changed.
    #[inline]
    pub fn feed(&mut self, event: &Event) -> Step {
        match event.what {
            What::Alloc { size, address, stack, .. } => {
                let object = self.new_object(event, address, size, stack);
                self.births += 1;
                self.birth(object, Impossible::AllocOfLive)
            }
            What::Free { api: FreeApi::Null, .. } => Step::default(),
            What::Free { address, .. } => match self.remove(address) {
                Some(object) => Step { ended: Some(object), ..Step::default() },
                None => self.cannot(Impossible::FreeOfUnknown),
            },
            What::Realloc { old, size, new, stack, .. } => self.realloc(event, (old, new), size, stack),
            What::Sampled { mean } => {
                self.rates.set(event.thread, mean);
                Step::default()
            }
            _ => Step::default(),
        }
    }

    /// The rate at which a thread's blocks are drawn now.
    #[inline]
    pub fn rate(&self, thread: ThreadId) -> Rate {
        self.rates.of(thread)
    }

    fn new_object(&self, event: &Event, address: u64, size: u64, stack: StackId) -> Object {
        let (id, size, thread) = (self.births.min(MOST_ID), size.min(MOST_SIZE), event.thread);
        Object { id, address, size, time: event.time, thread, stack, rate: self.rate(thread) }
    }

    fn birth(&mut self, object: Object, if_live: Impossible) -> Step {
        let mut step = Step { born: Some(object), ..Step::default() };
        let (hash, slab) = (self.hash, &mut self.slab);
        let entry = self.table.entry(
            hash.of(object.address),
            |&index| slab.address(index) == object.address,
            |&index| hash.of(slab.address(index)),
        );
        match entry {
            hashbrown::hash_table::Entry::Occupied(place) => {
                let old = self.slab.get(*place.get());
                self.slab.set(*place.get(), &object);
                self.bytes = self.bytes.wrapping_sub(old.size);
                step.displaced = Some(old);
                self.count(if_live);
                step.impossible = Some(if_live);
            }
            hashbrown::hash_table::Entry::Vacant(place) => match self.slab.add(&object) {
                Some(index) => {
                    place.insert(index);
                }
                None => return self.cannot(Impossible::Full),
            },
        }
        self.bytes = self.bytes.wrapping_add(object.size);
        let objects = self.table.len() as u64;
        self.peak_objects = self.peak_objects.max(objects);
        if self.bytes > self.peak.bytes {
            let time = object.time;
            self.peak = Peak { bytes: self.bytes, objects, time, births: self.births };
        }
        step
    }

    fn realloc(&mut self, event: &Event, (old, new): (u64, u64), size: u64, stack: StackId) -> Step {
        let before = self.remove(old);
        let mut object = self.new_object(event, new, size, stack);
        match before {
            Some(before) => {
                (object.id, object.time) = (before.id, before.time);
                if stack == 0 {
                    object.stack = before.stack;
                }
            }
            None => self.births += 1,
        }
        let peak = self.peak.bytes;
        let mut step = self.birth(object, Impossible::ReallocToLive);
        // The peak is now, not at the birth of the block.
        if self.peak.bytes > peak {
            self.peak.time = event.time;
        }
        if before.is_some() {
            step.resized = step.born.is_some();
            step.ended = before;
        } else {
            self.count(Impossible::ReallocOfUnknown);
            step.impossible = Some(Impossible::ReallocOfUnknown);
        }
        step
    }

    fn remove(&mut self, address: u64) -> Option<Object> {
        let slab = &self.slab;
        let found =
            self.table.find_entry(self.hash.of(address), |&index| slab.address(index) == address).ok()?;
        let (index, _) = found.remove();
        let object = self.slab.get(index);
        self.slab.remove(index);
        self.bytes = self.bytes.wrapping_sub(object.size);
        Some(object)
    }

    #[cold]
    fn cannot(&mut self, why: Impossible) -> Step {
        self.count(why);
        Step { impossible: Some(why), ..Step::default() }
    }

    fn count(&mut self, why: Impossible) {
        let counter = match why {
            Impossible::FreeOfUnknown => &mut self.impossible.free_of_unknown,
            Impossible::ReallocOfUnknown => &mut self.impossible.realloc_of_unknown,
            Impossible::AllocOfLive => &mut self.impossible.alloc_of_live,
            Impossible::ReallocToLive => &mut self.impossible.realloc_to_live,
            Impossible::Full => &mut self.impossible.full,
        };
        *counter += 1;
    }

    /// Is there a live block at this address? What [`Merged::next_with`](crate::Merged::next_with) asks for.
    #[inline]
    pub fn is_live(&self, address: u64) -> bool {
        let slab = &self.slab;
        self.table.find(self.hash.of(address), |&index| slab.address(index) == address).is_some()
    }

    /// The live block at this address.
    pub fn get(&self, address: u64) -> Option<Object> {
        let slab = &self.slab;
        let found = self.table.find(self.hash.of(address), |&index| slab.address(index) == address);
        found.map(|&index| self.slab.get(index))
    }

    /// All live blocks, in no order.
    pub fn objects(&self) -> impl Iterator<Item = Object> + '_ {
        self.table.iter().map(|&index| self.slab.get(index))
    }

    /// How many blocks are live.
    pub fn live_objects(&self) -> u64 {
        self.table.len() as u64
    }

    /// Bytes requested by live blocks.
    pub fn live_bytes(&self) -> u64 {
        self.bytes
    }

    /// `births` blocks were born that no event tells of.
    pub fn pass(&mut self, births: u64) {
        self.births = self.births.saturating_add(births).min(MOST_SIZE);
    }

    /// Births so far.
    pub fn births(&self) -> u64 {
        self.births
    }

    /// When most bytes were live.
    pub fn peak(&self) -> Peak {
        self.peak
    }

    /// Most blocks that were live at once.
    pub fn peak_objects(&self) -> u64 {
        self.peak_objects
    }

    /// What cannot be, and how often it was.
    pub fn impossible(&self) -> &Impossibles {
        &self.impossible
    }

    /// Bytes of memory in use for live blocks.
    pub fn memory(&self) -> usize {
        self.table.allocation_size() + self.slab.chunks.len() * CHUNK * size_of::<Entry>()
    }
}

/// The size that stands for all that are larger.
const MOST_SIZE: u64 = (1 << 48) - 1;
/// The number of all births from there on.
const MOST_ID: u64 = (1 << 42) - 1;
const ID_HIGH: u32 = 0x3ff;

/// Entries of a chunk.
const CHUNK: usize = 1 << 12;

/// An object in 36 bytes: address, time, size (48 bits), id (42 bits), rate (6 bits), thread, stack.
#[derive(Debug, Clone, Copy, Default)]
struct Entry([u32; 9]);

const NONE: u32 = u32::MAX;

/// Entries that never move, so that growing costs no copy.
#[derive(Debug, Clone)]
struct Slab {
    chunks: Vec<Box<[Entry]>>,
    /// The first unused entry; each names the next one.
    unused: u32,
    used: u32,
}

impl Default for Slab {
    fn default() -> Self {
        Self { chunks: Vec::new(), unused: NONE, used: 0 }
    }
}

fn low(value: u64) -> u32 {
    value as u32
}

fn high(value: u64) -> u32 {
    (value >> 32) as u32
}

fn join(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

impl Slab {
    #[inline]
    fn entry(&self, index: u32) -> &Entry {
        &self.chunks[index as usize / CHUNK][index as usize % CHUNK]
    }

    #[inline]
    fn entry_mut(&mut self, index: u32) -> &mut Entry {
        &mut self.chunks[index as usize / CHUNK][index as usize % CHUNK]
    }

    #[inline]
    fn address(&self, index: u32) -> u64 {
        let Entry(words) = self.entry(index);
        join(words[0], words[1])
    }

    #[inline]
    fn get(&self, index: u32) -> Object {
        let Entry([a0, a1, t0, t1, s0, i0, all, thread, stack]) = *self.entry(index);
        Object {
            id: join(i0, all >> 16 & ID_HIGH),
            address: join(a0, a1),
            size: join(s0, all & 0xffff),
            time: join(t0, t1),
            thread,
            stack,
            rate: Rate::of_code((all >> (u32::BITS - Rate::BITS)) as u8),
        }
    }

    #[inline]
    fn set(&mut self, index: u32, object: &Object) {
        let Object { id, address, size, time, thread, stack, rate } = *object;
        let rate = u32::from(rate.code()) << (u32::BITS - Rate::BITS);
        let all = high(size) & 0xffff | (high(id) & ID_HIGH) << 16 | rate;
        let words =
            [low(address), high(address), low(time), high(time), low(size), low(id), all, thread, stack];
        *self.entry_mut(index) = Entry(words);
    }

    #[inline]
    fn add(&mut self, object: &Object) -> Option<u32> {
        let index = if self.unused != NONE {
            let index = self.unused;
            self.unused = self.entry(index).0[0];
            index
        } else {
            let index = self.used;
            if index == NONE {
                return None;
            }
            if index as usize / CHUNK == self.chunks.len() {
                self.chunks.push(vec![Entry::default(); CHUNK].into_boxed_slice());
            }
            self.used += 1;
            index
        };
        self.set(index, object);
        Some(index)
    }

    #[inline]
    fn remove(&mut self, index: u32) {
        self.entry_mut(index).0[0] = self.unused;
        self.unused = index;
    }
}

#[cfg(test)]
#[path = "live_tests.rs"]
mod tests;
