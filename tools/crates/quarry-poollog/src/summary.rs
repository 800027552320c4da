// SPDX-License-Identifier: MIT
//! What a log says about each pool. Memory: a bounded amount for each pool and process, whatever the length
//! of the log.

use std::collections::HashMap;

use crate::record::{Entry, Event, Head, Name, Record};
use crate::series::Series;

const MINUTE_NS: u64 = 60_000_000_000;

/// A process that wrote. A program that replaced itself by exec counts anew.
#[derive(Debug, Clone)]
pub struct Process {
    /// Its number.
    pub process: u32,
    /// What it said first; `None` when that is lost.
    pub head: Option<Head>,
}

/// A value at some moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Peak {
    /// Bytes held.
    pub held: u64,
    /// Bytes used.
    pub used: u64,
    /// When.
    pub time_ns: u64,
}

/// Counters at some moment; what they are the difference of.
#[derive(Debug, Clone, Copy, Default)]
struct Counters {
    operations: u64,
    requested: u64,
    slow_ns: u64,
}

impl Counters {
    fn of(entry: &Entry) -> Self {
        Self { operations: entry.operations, requested: entry.requested, slow_ns: entry.slow_ns }
    }

    /// The most of each. In a pool that threads share, an entry may have been gathered a moment before the one that precedes
    /// it: then counters go back a little, and what comes next must not count twice.
    fn most(self, other: Self) -> Self {
        Self {
            operations: self.operations.max(other.operations),
            requested: self.requested.max(other.requested),
            slow_ns: self.slow_ns.max(other.slow_ns),
        }
    }
}

/// A pool, from its first record to its last.
#[derive(Debug, Clone, Default)]
pub struct Pool {
    /// Index of its process.
    pub process: usize,
    /// Its number there.
    pub id: u32,
    /// Its kind, name and parent; `None` when that record is lost.
    pub named: Option<Name>,
    /// Time of the first record.
    pub first_ns: u64,
    /// Time of the last one.
    pub last_ns: u64,
    /// Was it destroyed?
    pub died: bool,
    /// Entries by event, in the order of [`crate::record::EVENTS`].
    pub events: [u64; 6],
    /// Its state when it held most.
    pub peak_held: Peak,
    /// Its state when it used most, as far as entries show.
    pub peak_used: Peak,
    /// Chunks taken from its parent.
    pub chunk_gets: u64,
    /// Most operations within one minute, counted from its first record.
    pub busiest_minute: u64,
    /// Entries that are older than those before them: a sign of damage.
    pub out_of_order: u64,
    /// Its course.
    pub series: Series,
    from: Counters,
    /// The most that was seen.
    to: Counters,
    /// What the last entry said; before the first one: nothing held, nothing used.
    last: Option<Entry>,
    gets_seen: u32,
    held_ns: f64,
    used_ns: f64,
    minute: u64,
    minute_operations: u64,
}

impl Pool {
    /// Operations while it was logged here.
    pub fn operations(&self) -> u64 {
        self.to.operations.saturating_sub(self.from.operations)
    }

    /// Bytes asked for while it was logged here.
    pub fn requested(&self) -> u64 {
        self.to.requested.saturating_sub(self.from.requested)
    }

    /// Time spent on chunks while it was logged here.
    pub fn slow_ns(&self) -> u64 {
        self.to.slow_ns.saturating_sub(self.from.slow_ns)
    }

    /// From its first record to its last.
    pub fn life_ns(&self) -> u64 {
        self.last_ns - self.first_ns
    }

    /// How many entries it has.
    pub fn entries(&self) -> u64 {
        self.series.entries()
    }

    /// Pages cleaned for reuse.
    pub fn resets(&self) -> u64 {
        self.events[Event::Reset as usize]
    }

    /// Operations per second; `None` when its life is too short to tell.
    pub fn rate(&self) -> Option<f64> {
        (self.life_ns() > 0).then(|| self.operations() as f64 * 1e9 / self.life_ns() as f64)
    }

    /// Bytes held and used on average over time; `None` when its life is too short to tell.
    pub fn mean(&self) -> Option<(f64, f64)> {
        let life = self.life_ns() as f64;
        (life > 0.0).then(|| (self.held_ns / life, self.used_ns / life))
    }

    /// Which part of what was held at the peak was used.
    pub fn used_at_peak(&self) -> Option<f64> {
        ratio(self.peak_held.used as f64, self.peak_held.held as f64)
    }

    /// Which part of what was held was used, over time.
    pub fn used_on_average(&self) -> Option<f64> {
        ratio(self.used_ns, self.held_ns)
    }

    fn add(&mut self, entry: &Entry) {
        self.events[entry.event as usize] += 1;
        self.died |= entry.event == Event::Death;
        if entry.event == Event::Birth {
            // The child of a fork: what its parent counted is not its own.
            self.from = Counters::of(entry);
        }
        if entry.time_ns < self.last_ns {
            self.out_of_order += 1;
        }
        self.add_time(entry);
        self.add_counts(entry);
        let now = Peak { held: entry.held, used: entry.used, time_ns: entry.time_ns };
        if now.held > self.peak_held.held || self.last.is_none() {
            self.peak_held = now;
        }
        if now.used > self.peak_used.used || self.last.is_none() {
            self.peak_used = now;
        }
        self.series.push(entry);
        self.last = Some(*entry);
    }

    /// What was so at the last entry stays so until this one.
    fn add_time(&mut self, entry: &Entry) {
        let passed = entry.time_ns.saturating_sub(self.last_ns) as f64;
        if let Some(last) = &self.last {
            self.held_ns += passed * last.held as f64;
            self.used_ns += passed * last.used as f64;
        }
        self.last_ns = self.last_ns.max(entry.time_ns);
    }

    fn add_counts(&mut self, entry: &Entry) {
        if entry.event == Event::Birth {
            self.gets_seen = entry.chunk_gets;
        }
        // The log has the lower half of the counter; when it goes back a little, it is not counted.
        let gets = entry.chunk_gets.wrapping_sub(self.gets_seen);
        if gets <= u32::MAX / 2 {
            self.chunk_gets += u64::from(gets);
            self.gets_seen = entry.chunk_gets;
        }
        let before = self.to.operations.max(self.from.operations);
        let minute = (self.last_ns - self.first_ns) / MINUTE_NS;
        if minute != self.minute {
            self.minute = minute;
            self.minute_operations = 0;
        }
        self.minute_operations =
            self.minute_operations.saturating_add(entry.operations.saturating_sub(before));
        self.busiest_minute = self.busiest_minute.max(self.minute_operations);
        self.to = self.to.most(Counters::of(entry));
    }
}

fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

/// A log, condensed.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// In the order of their first records.
    pub processes: Vec<Process>,
    /// In the order of their first records.
    pub pools: Vec<Pool>,
    /// The process that a number stands for now; numbers come again.
    current: HashMap<u32, usize>,
    /// The pool that a process and a number stand for now.
    index: HashMap<(usize, u32), usize>,
    /// The last answer, which is mostly the next one.
    recent: Option<(u32, u32, usize)>,
}

impl Summary {
    /// Add a record; the index of the pool it is about, if it is about one.
    pub fn add(&mut self, record: Record) -> Option<usize> {
        match record {
            Record::Head(head) => {
                self.recent = None;
                self.current.insert(head.process, self.processes.len());
                self.processes.push(Process { process: head.process, head: Some(head) });
                None
            }
            Record::Name(name) => Some(self.add_name(name)),
            Record::Entry(entry) => {
                let pool = self.pool_of(&entry);
                self.pools[pool].add(&entry);
                Some(pool)
            }
        }
    }

    /// Operations of all pools.
    pub fn operations(&self) -> u64 {
        self.pools.iter().fold(0, |sum, pool| sum.saturating_add(pool.operations()))
    }

    /// Entries of all pools.
    pub fn entries(&self) -> u64 {
        self.pools.iter().map(Pool::entries).sum()
    }

    fn process_of(&mut self, process: u32) -> usize {
        *self.current.entry(process).or_insert_with(|| {
            self.processes.push(Process { process, head: None });
            self.processes.len() - 1
        })
    }

    fn add_name(&mut self, name: Name) -> usize {
        self.recent = None;
        let process = self.process_of(name.process);
        let pool = Pool {
            process,
            id: name.pool,
            first_ns: name.time_ns,
            last_ns: name.time_ns,
            named: Some(name),
            ..Pool::default()
        };
        self.insert(pool)
    }

    fn pool_of(&mut self, entry: &Entry) -> usize {
        if let Some((process, pool, index)) = self.recent
            && (process, pool) == (entry.process, entry.pool)
        {
            return index;
        }
        let process = self.process_of(entry.process);
        let index = match self.index.get(&(process, entry.pool)) {
            Some(&index) => index,
            None => self.insert(Pool {
                process,
                id: entry.pool,
                first_ns: entry.time_ns,
                last_ns: entry.time_ns,
                // What it did before is not in the log; neither is it this log's.
                from: Counters::of(entry),
                to: Counters::of(entry),
                gets_seen: entry.chunk_gets,
                ..Pool::default()
            }),
        };
        self.recent = Some((entry.process, entry.pool, index));
        index
    }

    fn insert(&mut self, pool: Pool) -> usize {
        let index = self.pools.len();
        self.index.insert((pool.process, pool.id), index);
        self.pools.push(pool);
        index
    }
}

#[cfg(test)]
#[path = "summary_tests.rs"]
mod tests;
