// SPDX-License-Identifier: MIT
//! The sampler of a process on Quarry: switched on and off, and read while the process runs.
//!
//! `quarry_stats_page_sampler_t` in `include/quarry/stats_page.h` is the layout. Nothing is trusted: the process may have written
//! anything there, and writes while it is read. Two words of it are written from here, `control` and `lease`, and only in data of the process's
//! own.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::find::{self, NoPage};
use crate::maker::{self, shared};
use crate::memory::{Source, Target};
use crate::page::{Heap, Page};
use crate::sys;

/// In the control word: it is on.
const ON: u64 = 64;
/// In the control word: the process itself changes the rate.
const ADAPTS: u64 = 128;
/// In the control word: it is on for blocks that the process guards, and tells no events. To readers it is off.
const GUARDS: u64 = 1 << 63;
/// A sampler whose lease is not renewed for so long switches itself off.
pub const LEASE_TIME: Duration = Duration::from_secs(10);
/// The rarest there is: one sample in 2^40 bytes.
pub const RATE_MOST: u32 = 40;
const WORDS: usize = 12;
/// The word behind these, in processes that have it.
const LEASE: u64 = WORDS as u64 * 8;
/// In the control word: who switched it on writes another number from here on each time.
const SERIAL: u32 = 8;
const EVENT_BYTES: u64 = 48;
const SAMPLE_BYTES: u64 = 40;
const NODE_BYTES: u64 = 16;
const BIRTH: u32 = 1;
const DEATH: u32 = 2;
/// No version has longer rows, ...
const ROW_MOST: u64 = 4096;
/// ... or more of them.
const ROWS_MOST: u64 = 1 << 22;
/// Bytes of a table.
const TABLE_MOST: u64 = 1 << 28;
/// Frames of a stack; the library keeps no more.
const DEPTH: usize = 256;
/// Nodes that are read together: a page of them.
const TOGETHER: u64 = 256;
/// Addresses that a program can have.
const ADDRESSES: u64 = 1 << 56;
/// In a node's address: it is one that runs, not one that is returned to.
const EXACT: u64 = 1 << 63;
const GONE: u64 = u64::MAX;
const PARENT: u32 = u32::MAX >> 1;

/// Why the sampler cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum NoSampler {
    /// Nor can the statistics.
    #[error(transparent)]
    Page(#[from] NoPage),
    /// The library is another.
    #[error("the Quarry library in process {0} has no sampler: it is older, or has no heap")]
    None(i32),
    /// A filter of system calls could end the process for what the sampler needs.
    #[error(
        "process {0} has a filter of system calls (seccomp), which may end it for a call that the sampler makes; start it with \
         sample:BYTES in QUARRY_CONF if its filter allows process_vm_readv and mmap"
    )]
    Filtered(i32),
    /// It could not be written to.
    #[error("the sampler of process {0} cannot be switched: {1}")]
    Refused(i32, io::Error),
}

/// What the process says: numbers and places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Words([u64; WORDS]);

/// Rows of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Table {
    at: u64,
    rows: u64,
    bytes: u64,
}

impl Words {
    fn table(&self, first: usize, least: u64) -> Option<Table> {
        let [at, rows, bytes] = [self.0[first], self.0[first + 1], self.0[first + 2]];
        let fits = at != 0 && at < ADDRESSES && (at | bytes).is_multiple_of(8);
        let sizes = (least..=ROW_MOST).contains(&bytes) && (1..=ROWS_MOST).contains(&rows);
        (fits && sizes && rows * bytes <= TABLE_MOST).then_some(Table { at, rows, bytes })
    }
}

/// What happened to a sampled block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// It was allocated.
    Birth,
    /// It was freed.
    Death,
}

/// A sampled block was allocated or freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Which.
    pub what: What,
    /// In nanoseconds of the monotonic clock.
    pub time_ns: u64,
    /// Of the block.
    pub address: u64,
    /// Bytes asked for.
    pub bytes: u64,
    /// The kernel's number of the thread that did it.
    pub thread: u32,
    /// Where it was allocated: see [`Reader::frames`]; 0: not known.
    pub stack: u32,
    /// Binary logarithm of the bytes between two samples.
    pub rate: u32,
}

/// A sampled block that lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// The block.
    pub address: u64,
    /// Bytes asked for.
    pub bytes: u64,
    /// When it was allocated, in nanoseconds of the monotonic clock.
    pub born_ns: u64,
    /// The kernel's number of the thread that did it.
    pub thread: u32,
    /// Where: see [`Reader::frames`]; 0: not known.
    pub stack: u32,
    /// Binary logarithm of the bytes between two samples.
    pub rate: u32,
}

/// A frame of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// Names it, and all frames outside of it, for as long as the process lives.
    pub node: u32,
    /// The address; 0: in a file that was unloaded.
    pub pc: u64,
    /// Is it one that is returned to?
    pub is_return: bool,
}

/// What was read at once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Read {
    /// In the order in which they happened.
    pub events: Vec<Event>,
    /// Events that were overwritten before they could be read, or make no sense.
    pub missed: u64,
}

/// Reads a sampler. It knows which events it has read.
pub struct Reader<'a, S> {
    memory: &'a S,
    at: u64,
    next: u64,
    nodes: RefCell<HashMap<u64, Vec<u8>>>,
}

impl<'a, S: Source> Reader<'a, S> {
    /// Of the one at this address. What happened before now is not read.
    pub fn new(memory: &'a S, at: u64) -> io::Result<Self> {
        let mut reader = Self { memory, at, next: 0, nodes: RefCell::default() };
        reader.next = reader.words()?.0[1];
        Ok(reader)
    }

    fn words(&self) -> io::Result<Words> {
        let mut bytes = [0; WORDS * 8];
        self.memory.read_exact_at(&mut bytes, self.at)?;
        let mut words = [0; WORDS];
        words.iter_mut().enumerate().for_each(|(i, word)| *word = word_at(&bytes, i * 8));
        Ok(Words(words))
    }

    /// Samples that the process could not take since it was started.
    pub fn lost(&self) -> io::Result<u64> {
        Ok(self.words()?.0[2])
    }

    /// The rate that it is on at; `None`: it is off.
    pub fn rate(&self) -> io::Result<Option<u32>> {
        let control = self.words()?.0[0];
        Ok(is_told(control).then_some(((control % ON) as u32).min(RATE_MOST)))
    }

    /// Does the process itself change the rate?
    pub fn adapts(&self) -> io::Result<bool> {
        let control = self.words()?.0[0];
        Ok(is_told(control) && control & ADAPTS != 0)
    }

    /// Has it been on since the process began?
    pub fn is_whole(&self) -> io::Result<bool> {
        let control = self.words()?.0[0];
        Ok(is_told(control) && control >> SERIAL == 0)
    }

    /// Sampled blocks that live, the oldest first. The process goes on meanwhile: what changes is in the events that are read next.
    pub fn live(&self) -> io::Result<Vec<Sample>> {
        let Some(table) = self.words()?.table(6, SAMPLE_BYTES) else { return Ok(Vec::new()) };
        let mut rows = vec![0; (table.rows * table.bytes) as usize];
        self.memory.read_exact_at(&mut rows, table.at)?;
        let mut live: Vec<Sample> = rows.chunks_exact(table.bytes as usize).filter_map(sample).collect();
        live.sort_unstable_by_key(|sample| (sample.born_ns, sample.address));
        Ok(live)
    }

    /// What has happened since the last time.
    pub fn read(&mut self) -> io::Result<Read> {
        let mut read = Read::default();
        let words = self.words()?;
        let total = words.0[1];
        let Some(table) = words.table(3, EVENT_BYTES) else { return Ok(read) };
        if total < self.next {
            self.next = total; // not the sampler that it was
        }
        let first = self.next.max(total.saturating_sub(table.rows));
        read.missed = first - self.next;
        self.next = total;
        let mut rows = vec![0; ((total - first) * table.bytes) as usize];
        // In one piece, or to the end of the ring and from its beginning.
        let tail = table.rows - first % table.rows;
        let (low, high) = rows.split_at_mut(((total - first).min(tail) * table.bytes) as usize);
        self.memory.read_exact_at(low, table.at + first % table.rows * table.bytes)?;
        self.memory.read_exact_at(high, table.at)?;
        // The row of an event is written to again when so many others have come.
        let now = self.words()?.0[1];
        for (number, row) in (first..total).zip(rows.chunks_exact(table.bytes as usize)) {
            let whole = now < number.saturating_add(table.rows) && word_at(row, 0) == number.wrapping_add(1);
            match whole.then(|| event(row)).flatten() {
                Some(event) => read.events.push(event),
                None => read.missed += 1,
            }
        }
        Ok(read)
    }

    /// The frames of a stack, the innermost first.
    pub fn frames(&self, stack: u32) -> Vec<Frame> {
        let mut frames = Vec::new();
        let Some(table) = self.words().ok().and_then(|words| words.table(9, NODE_BYTES)) else {
            return frames;
        };
        let mut id = u64::from(stack);
        while id != 0 && id < table.rows && frames.len() < DEPTH {
            let Some((pc, parent)) = self.node(table, id) else { break };
            let node = id as u32;
            frames.push(match pc {
                GONE => Frame { node, pc: 0, is_return: false },
                _ => Frame { node, pc: pc & !EXACT, is_return: pc & EXACT == 0 },
            });
            id = u64::from(parent & PARENT);
        }
        frames
    }

    fn node(&self, table: Table, id: u64) -> Option<(u64, u32)> {
        let mut pages = self.nodes.borrow_mut();
        let (page, place) = (id / TOGETHER, (id % TOGETHER * table.bytes) as usize);
        let row = |pages: &mut HashMap<u64, Vec<u8>>| {
            let bytes = match pages.get(&page) {
                Some(bytes) => bytes,
                None => {
                    let rows = TOGETHER.min(table.rows - page * TOGETHER);
                    let mut bytes = vec![0; (rows * table.bytes) as usize];
                    let at = table.at + page * TOGETHER * table.bytes;
                    self.memory.read_exact_at(&mut bytes, at).ok()?;
                    pages.entry(page).or_insert(bytes)
                }
            };
            let row = bytes.get(place..place + NODE_BYTES as usize)?;
            Some((word_at(row, 0), half_at(row, 8)))
        };
        let node = row(&mut pages)?;
        // It may have been read before it was there.
        if node.0 == 0 {
            pages.remove(&page);
            return row(&mut pages).filter(|node| node.0 != 0);
        }
        Some(node)
    }
}

/// Is it on for whoever reads?
fn is_told(control: u64) -> bool {
    control & (ON | GUARDS) == ON
}

fn word_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_ne_bytes)
}

fn half_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

fn event(row: &[u8]) -> Option<Event> {
    let what = match half_at(row, 32) {
        BIRTH => What::Birth,
        DEATH => What::Death,
        _ => return None,
    };
    let event = Event {
        what,
        time_ns: word_at(row, 8),
        address: word_at(row, 16),
        bytes: word_at(row, 24),
        thread: half_at(row, 36),
        stack: half_at(row, 40),
        rate: half_at(row, 44),
    };
    let sane = event.address != 0 && event.address < ADDRESSES && event.bytes < ADDRESSES;
    (sane && event.rate <= RATE_MOST).then_some(event)
}

fn sample(row: &[u8]) -> Option<Sample> {
    let sample = Sample {
        address: word_at(row, 0),
        bytes: word_at(row, 8),
        born_ns: word_at(row, 16),
        stack: half_at(row, 24),
        rate: half_at(row, 28),
        thread: half_at(row, 32),
    };
    let sane = sample.address != 0 && sample.address < ADDRESSES && sample.bytes < ADDRESSES;
    (sane && sample.rate <= RATE_MOST).then_some(sample)
}

/// The sampler of a process.
pub struct Sampler {
    pid: i32,
    /// With its number this names it for ever.
    started: Option<u64>,
    target: Target,
    /// The same memory, to be written to. It stays with one address space: a program that the process executes later
    /// has other things at these addresses.
    control: File,
    at: u64,
    /// It switches itself off when nobody renews its lease.
    lets: bool,
    /// What the control word was before it was switched on from here, if the process guards blocks; else 0.
    before: AtomicU64,
}

impl Sampler {
    /// That of the first library with a heap in the process.
    pub fn of(pid: i32) -> Result<Self, NoSampler> {
        let started = maker::started(pid);
        // Before the look: what that finds is in this memory, or cannot be written to.
        let control = OpenOptions::new().write(true).open(shared(pid).join("mem"));
        let (target, pages) = find::look(pid)?;
        // Where it says it is, there must be data of the process's own: a file that others have, too, is not written to.
        let place = |at: u64, bytes: u64| at != 0 && at.is_multiple_of(8) && target.is_own_data(at, bytes);
        let sampler = |page: &Page| {
            let lets = page.sampler_bytes >= LEASE + 8;
            let bytes = if lets { LEASE + 8 } else { LEASE };
            place(page.sampler_at, bytes).then_some((page.sampler_at, lets))
        };
        let (at, lets) = pages.iter().find_map(|(_, page)| sampler(page)).ok_or(NoSampler::None(pid))?;
        let control = control.map_err(|error| NoSampler::Refused(pid, error))?;
        Ok(Self { pid, started, target, control, at, lets, before: AtomicU64::new(0) })
    }

    /// Begin to read.
    pub fn reader(&self) -> Result<Reader<'_, File>, NoSampler> {
        Reader::new(self.target.memory(), self.at).map_err(|error| NoSampler::Refused(self.pid, error))
    }

    /// What the heap of the same library says of itself now. `None`: it has said nothing yet, or the process has gone.
    pub fn heap(&self) -> Option<Heap> {
        if maker::started(self.pid) != self.started {
            return None;
        }
        let (_, pages) = find::look(self.pid).ok()?;
        pages.into_iter().find(|(_, page)| page.sampler_at == self.at).and_then(|(_, page)| page.heap)
    }

    /// One sample in 2^rate bytes from now on. `adapts`: more of them later if there are few, and fewer if there are many.
    pub fn switch_on(&self, rate: u32, adapts: bool) -> Result<(), NoSampler> {
        let status = std::fs::read_to_string(shared(self.pid).join("status")).unwrap_or_default();
        let filter = status.lines().find_map(|line| line.strip_prefix("Seccomp:")).map(str::trim);
        if filter.is_some_and(|mode| mode != "0") {
            return Err(NoSampler::Filtered(self.pid));
        }
        let mut word = [0; 8];
        let read = FileExt::read_exact_at(self.target.memory(), &mut word, self.at);
        read.map_err(|error| NoSampler::Refused(self.pid, error))?;
        let found = u64::from_ne_bytes(word);
        if found & GUARDS != 0 && found & ON != 0 {
            self.before.store(found, Relaxed);
        }
        // Before, so that it is never on without one.
        self.renew()?;
        // Another number each time, so that the process knows that it was off meanwhile.
        let serial = sys::now_ns() | 1;
        let adapts = if adapts { ADAPTS } else { 0 };
        self.put(0, (serial << SERIAL | adapts | ON | u64::from(rate.min(RATE_MOST))) & !GUARDS)
    }

    /// Does it switch itself off when nobody reads it? One that is on without a lease stays on for ever: the process was started
    /// so, or has a library that knows no lease.
    pub fn is_let(&self) -> io::Result<bool> {
        if !self.lets {
            return Ok(false);
        }
        let mut word = [0; 8];
        FileExt::read_exact_at(self.target.memory(), &mut word, self.at + LEASE)?;
        Ok(word != [0; 8])
    }

    /// Somebody reads it. It is to be said again within [`LEASE_TIME`].
    pub fn renew(&self) -> Result<(), NoSampler> {
        if self.lets { self.put(LEASE, sys::now_ns() | 1) } else { Ok(()) }
    }

    /// No more samples are told. What was sampled is told when it is freed. A process that guards blocks goes on with that, as it would if it
    /// found 0 here, only sooner.
    pub fn switch_off(&self) -> Result<(), NoSampler> {
        self.put(0, self.before.load(Relaxed))?;
        if self.lets { self.put(LEASE, 0) } else { Ok(()) }
    }

    fn put(&self, word: u64, value: u64) -> Result<(), NoSampler> {
        // The memory of a process that has gone takes nothing either, but says less.
        if maker::started(self.pid) != self.started {
            return Err(NoPage::NoProcess(self.pid).into());
        }
        let written = self.control.write_all_at(&value.to_ne_bytes(), self.at + word);
        written.map_err(|error| NoSampler::Refused(self.pid, error))
    }
}

#[cfg(test)]
#[path = "sampler_tests.rs"]
mod tests;
