// SPDX-License-Identifier: MIT
//! What a trace says, summed up event by event in memory bounded by live blocks, threads and call stacks.

mod histogram;
mod pools;
mod sites;
mod zeroed;

use crate::event::{AllocApi, Event, FreeApi, StackId, ThreadId, What};
use crate::hash::NumberMap;
use crate::live::{Curve, Impossibles, Object, Peak, Step, Tracker};
use crate::module::Module;
use crate::trace::Trace;

pub use histogram::{Bar, Histogram};
pub use pools::Pool;
pub use sites::Site;
pub use zeroed::Zeroed;

/// Points of a curve.
const POINTS: usize = 1024;
/// Most notes of each kind that are kept.
const NOTES: usize = 256;
/// Most threads that are kept one by one.
const MOST_THREADS: usize = 1 << 20;
/// Most characters that are kept of a note.
const TEXT: usize = 256;

/// The kinds of events, as they are counted.
pub const KINDS: [&str; 32] = [
    "malloc",
    "calloc",
    "memalign",
    "new",
    "aligned new",
    "realloc(NULL)",
    "pool alloc",
    "other alloc",
    "free",
    "delete",
    "sized free",
    "free(NULL)",
    "other end",
    "realloc",
    "failed",
    "thread begin",
    "thread end",
    "thread name",
    "fork",
    "exec",
    "exit",
    "memory",
    "clock",
    "module loaded",
    "module unloaded",
    "event of a Quarry pool",
    "lost",
    "mark",
    "thread gone",
    "look at calloc",
    "usage",
    "resident",
];

fn kind(what: &What) -> usize {
    match what {
        What::Alloc { api, .. } => *api as usize,
        What::Free { api, .. } => 8 + *api as usize,
        What::Realloc { .. } => 13,
        What::Failed { .. } => 14,
        What::ThreadBegin { .. } => 15,
        What::ThreadEnd => 16,
        What::ThreadName(_) => 17,
        What::Fork { .. } => 18,
        What::Exec(_) => 19,
        What::Exit { .. } => 20,
        What::Memory { .. } => 21,
        What::Clock { .. } => 22,
        What::ModuleLoaded { .. } => 23,
        What::ModuleUnloaded { .. } => 24,
        What::Pool { .. } => 25,
        What::Lost { .. } => 26,
        What::Mark(_) => 27,
        What::ThreadGone => 28,
        What::Zeroed { .. } => 29,
        What::Usage(_) => 30,
        What::Resident { .. } => 31,
    }
}

/// How a thread ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ThreadEnd {
    /// The trace says nothing of it: it lived at the end.
    #[default]
    Lives,
    /// In order.
    Ended,
    /// Without a word: by a system call, or killed by a filter of these.
    Gone,
}

/// What a thread did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ThreadSum {
    /// Its number.
    pub thread: ThreadId,
    /// The kernel's number for it, 0 if not recorded.
    pub tid: u32,
    /// Its name, empty if not recorded.
    pub name: String,
    /// How it ended.
    pub end: ThreadEnd,
    /// Allocations.
    pub allocs: u64,
    /// Bytes requested by them.
    pub bytes: u64,
    /// Frees.
    pub frees: u64,
    /// Reallocs.
    pub reallocs: u64,
    /// Frees of blocks that another thread allocated.
    pub foreign_frees: u64,
    /// The time of its first event, in ticks.
    pub first: u64,
    /// The time of its last event, in ticks.
    pub last: u64,
    /// The block that its last event allocated.
    fresh: Option<u64>,
}

/// What reallocs did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reallocs {
    /// All.
    pub count: u64,
    /// The block stayed where it was.
    pub in_place: u64,
    /// The block became larger.
    pub grew: u64,
    /// The block became smaller.
    pub shrank: u64,
    /// The size stayed.
    pub same: u64,
    /// Bytes that moves had to copy: the smaller of both sizes.
    pub copied: u64,
    /// Ticks they took.
    pub ticks: u64,
    /// The block got another address.
    pub moved: u64,
}

/// How blocks ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Frees {
    /// Blocks that were freed.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// By another thread than the one that allocated them or changed their size last.
    pub foreign: u64,
    /// Their bytes.
    pub foreign_bytes: u64,
    /// By their own thread, as its very next event.
    pub temporary: u64,
    /// Their bytes.
    pub temporary_bytes: u64,
    /// Blocks of which it was recorded how much was resident.
    pub looked_at: u64,
    /// Bytes that they had.
    pub looked_at_bytes: u64,
    /// Bytes of them that were resident.
    pub touched_bytes: u64,
}

/// Resident bytes, as the kernel counted them now and then.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Resident {
    /// When, in ticks.
    pub time: u64,
    /// Bytes of anonymous memory.
    pub anonymous: u64,
    /// Bytes of files and shared memory.
    pub file: u64,
}

/// Sums over a trace, while it is read.
#[derive(Debug)]
pub struct Analysis {
    tracker: Tracker,
    kinds: [u64; KINDS.len()],
    events: u64,
    first: Option<u64>,
    last: u64,
    sizes: Histogram,
    exact: histogram::Sizes,
    by_allocs: Histogram,
    by_ticks: Histogram,
    requested: u64,
    zeroed: u64,
    births: zeroed::Births,
    calloc: Zeroed,
    aligned: u64,
    failed_bytes: u64,
    frees: Frees,
    reallocs: Reallocs,
    threads: Vec<ThreadSum>,
    thread_index: NumberMap<u32>,
    thread_last: (ThreadId, usize),
    sites: sites::Sites,
    pools: pools::Pools,
    curve: Curve,
    objects: Curve,
    resident: Curve,
    resident_peak: Resident,
    resident_last: Option<Resident>,
    resident_before_peak: Option<Resident>,
    peak_bytes: u64,
    lost: [u64; 5],
    notes: Notes,
    modules: Vec<Module>,
}

/// What happened to the process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Notes {
    /// Children that were forked.
    pub forks: Vec<u32>,
    /// Programs it became.
    pub execs: Vec<String>,
    /// Its status, if it ended.
    pub exit: Option<u32>,
    /// The first notes of the program, with their ticks.
    pub marks: Vec<(u64, String)>,
}

/// What a trace says.
#[derive(Debug, Clone)]
pub struct Summary {
    /// Events by kind: a name of [`KINDS`], and how many.
    pub kinds: Vec<(&'static str, u64)>,
    /// All events.
    pub events: u64,
    /// Time of the first event, in ticks.
    pub first: u64,
    /// Time of the last event, in ticks.
    pub last: u64,
    /// Allocations by size.
    pub sizes: Histogram,
    /// How many different sizes were requested.
    pub distinct_sizes: u64,
    /// The sizes that were requested most often, with their counts.
    pub top_sizes: Vec<(u64, u64)>,
    /// The sizes that had most bytes, with their counts.
    pub top_sizes_by_bytes: Vec<(u64, u64)>,
    /// Requests that the exact sizes leave out, because there are too many.
    pub uncounted_sizes: u64,
    /// Blocks that ended, by allocations made between their birth and their end.
    pub lifetimes_allocs: Histogram,
    /// Blocks that ended, by ticks from their birth to their end.
    pub lifetimes_ticks: Histogram,
    /// Allocations.
    pub births: u64,
    /// Bytes requested, by reallocs too.
    pub requested: u64,
    /// Allocations that were to be zero.
    pub zeroed: u64,
    /// Large blocks of calloc that were looked at.
    pub calloc: Zeroed,
    /// Allocations with an alignment.
    pub aligned: u64,
    /// Bytes of requests that failed.
    pub failed_bytes: u64,
    /// How blocks ended.
    pub frees: Frees,
    /// What reallocs did.
    pub reallocs: Reallocs,
    /// The threads, by number.
    pub threads: Vec<ThreadSum>,
    /// Call stacks that allocated, in no order.
    pub sites: Vec<Site>,
    /// Quarry's pools, by number.
    pub pools: Vec<Pool>,
    /// Events of pools.
    pub pool_events: u64,
    /// When most bytes were live.
    pub peak: Peak,
    /// Most blocks that were live at once.
    pub peak_objects: u64,
    /// Blocks that are live at the end.
    pub live: u64,
    /// Their bytes.
    pub live_bytes: u64,
    /// Live bytes over time.
    pub curve: Curve,
    /// Live blocks over time.
    pub objects: Curve,
    /// Resident bytes over time.
    pub resident: Curve,
    /// When most bytes were resident, as far as was looked.
    pub resident_peak: Option<Resident>,
    /// The last look before most bytes were live.
    pub resident_at_peak: Option<Resident>,
    /// Events that were lost, by reason: other, no room, re-entered, disk full, table full.
    pub lost: [u64; 5],
    /// What happened to the process.
    pub notes: Notes,
    /// Files that were mapped.
    pub modules: Vec<Module>,
    /// What cannot be.
    pub impossible: Impossibles,
    /// Memory that was in use for live blocks, at the end.
    pub tracker_bytes: usize,
}

impl Default for Analysis {
    fn default() -> Self {
        Self::new()
    }
}

impl Analysis {
    /// Nothing has happened yet.
    pub fn new() -> Self {
        Self {
            tracker: Tracker::new(),
            kinds: [0; KINDS.len()],
            events: 0,
            first: None,
            last: 0,
            sizes: Histogram::default(),
            exact: histogram::Sizes::default(),
            by_allocs: Histogram::default(),
            by_ticks: Histogram::default(),
            requested: 0,
            zeroed: 0,
            births: zeroed::Births::default(),
            calloc: Zeroed::default(),
            aligned: 0,
            failed_bytes: 0,
            frees: Frees::default(),
            reallocs: Reallocs::default(),
            threads: Vec::new(),
            thread_index: NumberMap::default(),
            thread_last: (0, usize::MAX),
            sites: sites::Sites::default(),
            pools: pools::Pools::default(),
            curve: Curve::new(POINTS),
            objects: Curve::new(POINTS),
            resident: Curve::new(POINTS),
            resident_peak: Resident::default(),
            resident_last: None,
            resident_before_peak: None,
            peak_bytes: 0,
            lost: [0; 5],
            notes: Notes::default(),
            modules: Vec::new(),
        }
    }

    /// Which blocks are live after the events so far.
    #[inline]
    pub fn tracker(&self) -> &Tracker {
        &self.tracker
    }

    /// Events so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Take an event into account. They come in the order of [`Trace::events`].
    #[inline]
    pub fn add(&mut self, event: &Event) {
        self.events += 1;
        self.kinds[kind(&event.what)] += 1;
        if self.first.is_none() {
            self.first = Some(event.time);
        }
        self.last = self.last.max(event.time);
        let thread = self.thread(event);
        match event.what {
            What::Alloc { api, size, align, .. } => {
                let step = self.tracker.feed(event);
                self.alloc(thread, api, size, align, &step);
            }
            What::Free { api, touched, address } => {
                if let Some((stack, sums)) = self.births.ended(address, touched) {
                    self.zeroed_at(stack, &sums);
                }
                let step = self.tracker.feed(event);
                self.free(thread, api, event.time, touched, &step);
            }
            What::Realloc { old, new, size, took, .. } => {
                self.births.ended(old, None);
                let step = self.tracker.feed(event);
                self.realloc(thread, old == new, size, took, &step);
            }
            _ => return self.other(thread, event),
        }
        let live = self.tracker.live_bytes();
        self.curve.add(event.time, live);
        self.objects.add(event.time, self.tracker.live_objects());
    }

    #[inline]
    fn thread(&mut self, event: &Event) -> usize {
        let index = if self.thread_last.0 == event.thread && self.thread_last.1 != usize::MAX {
            self.thread_last.1
        } else {
            self.find_thread(event)
        };
        self.threads[index].last = event.time;
        index
    }

    fn find_thread(&mut self, event: &Event) -> usize {
        let threads = &mut self.threads;
        // Too many, which no real trace has, share the last place.
        let index = if threads.len() >= MOST_THREADS && self.thread_index.get(event.thread.into()).is_none() {
            MOST_THREADS - 1
        } else {
            *self.thread_index.get_or(event.thread.into(), || {
                let (thread, first) = (event.thread, event.time);
                threads.push(ThreadSum { thread, first, ..ThreadSum::default() });
                threads.len() as u32 - 1
            }) as usize
        };
        self.thread_last = (event.thread, index);
        index
    }

    #[inline]
    fn alloc(&mut self, thread: usize, api: AllocApi, size: u64, align: u8, step: &Step) {
        self.requested = self.requested.wrapping_add(size);
        self.zeroed += u64::from(api == AllocApi::Calloc);
        self.aligned += u64::from(align > 0);
        self.sizes.add(size, size);
        self.exact.add(size);
        self.displaced(step);
        let sum = &mut self.threads[thread];
        sum.allocs += 1;
        sum.bytes = sum.bytes.wrapping_add(size);
        sum.fresh = step.born.map(|object| object.id);
        if let Some(object) = step.born {
            self.sites.born(object.stack, object.size);
            self.peak();
        }
    }

    #[inline]
    fn peak(&mut self) {
        let peak = self.tracker.peak().bytes;
        if peak > self.peak_bytes {
            self.peak_bytes = peak;
            self.sites.peak();
            self.resident_before_peak = self.resident_last;
        }
    }

    /// A block that must have ended before this is no longer anybody's.
    #[inline]
    fn displaced(&mut self, step: &Step) {
        if let Some(object) = step.displaced {
            self.sites.ended(object.stack, object.size, false);
        }
    }

    #[inline]
    fn free(&mut self, thread: usize, api: FreeApi, time: u64, touched: Option<u64>, step: &Step) {
        let sum = &mut self.threads[thread];
        let fresh = sum.fresh.take();
        if api == FreeApi::Null {
            return;
        }
        sum.frees += 1;
        let Some(object) = step.ended else { return };
        let temporary = fresh == Some(object.id);
        let foreign = sum.thread != object.thread;
        sum.foreign_frees += u64::from(foreign);
        self.ended(&object, time, temporary, foreign);
        if let Some(bytes) = touched {
            self.frees.looked_at += 1;
            self.frees.looked_at_bytes = self.frees.looked_at_bytes.wrapping_add(object.size);
            self.frees.touched_bytes = self.frees.touched_bytes.wrapping_add(bytes);
        }
    }

    #[inline]
    fn ended(&mut self, object: &Object, time: u64, temporary: bool, foreign: bool) {
        let size = object.size;
        let frees = &mut self.frees;
        frees.count += 1;
        frees.bytes = frees.bytes.wrapping_add(size);
        if foreign {
            frees.foreign += 1;
            frees.foreign_bytes = frees.foreign_bytes.wrapping_add(size);
        }
        if temporary {
            frees.temporary += 1;
            frees.temporary_bytes = frees.temporary_bytes.wrapping_add(size);
        }
        self.by_allocs.add(self.tracker.births().saturating_sub(object.id + 1), size);
        self.by_ticks.add(time.saturating_sub(object.time), size);
        self.sites.ended(object.stack, size, temporary);
    }

    fn realloc(&mut self, thread: usize, in_place: bool, size: u64, took: u64, step: &Step) {
        let sum = &mut self.threads[thread];
        sum.reallocs += 1;
        sum.fresh = None;
        self.requested = self.requested.wrapping_add(size);
        let sums = &mut self.reallocs;
        sums.count += 1;
        sums.in_place += u64::from(in_place);
        sums.moved += u64::from(!in_place);
        sums.ticks = sums.ticks.saturating_add(took);
        if let Some(old) = step.ended {
            match size.cmp(&old.size) {
                std::cmp::Ordering::Greater => sums.grew += 1,
                std::cmp::Ordering::Less => sums.shrank += 1,
                std::cmp::Ordering::Equal => sums.same += 1,
            }
            if !in_place {
                sums.copied = sums.copied.wrapping_add(size.min(old.size));
            }
            self.sites.ended(old.stack, old.size, false);
        }
        self.displaced(step);
        if let Some(object) = step.born {
            self.sites.born(object.stack, object.size);
            self.peak();
        }
    }

    #[cold]
    fn other(&mut self, thread: usize, event: &Event) {
        let sum = &mut self.threads[thread];
        // The recorder's own records come in between anywhere.
        if !matches!(
            event.what,
            What::Memory { .. }
                | What::Usage(_)
                | What::Clock { .. }
                | What::ModuleLoaded { .. }
                | What::Zeroed { .. }
        ) {
            sum.fresh = None;
        }
        let short = |text: &str| text.chars().take(TEXT).collect::<String>();
        match &event.what {
            What::Failed { size, .. } => self.failed_bytes = self.failed_bytes.saturating_add(*size),
            What::ThreadBegin { tid, .. } => sum.tid = *tid,
            What::ThreadName(name) => sum.name = short(name),
            What::ThreadEnd => sum.end = ThreadEnd::Ended,
            What::ThreadGone => sum.end = ThreadEnd::Gone,
            What::Fork { child } if self.notes.forks.len() < NOTES => self.notes.forks.push(*child),
            What::Exec(program) if self.notes.execs.len() < NOTES => self.notes.execs.push(short(program)),
            What::Exit { status } => self.notes.exit = Some(*status),
            &What::Memory { anonymous, file } => {
                let now = Resident { time: event.time, anonymous, file };
                let sum = anonymous.saturating_add(file);
                self.resident.add(event.time, sum);
                self.resident_last = Some(now);
                if sum > self.resident_peak.anonymous.saturating_add(self.resident_peak.file) {
                    self.resident_peak = now;
                }
            }
            &What::Zeroed { address, size, resident } => {
                // Of a block that is not in the trace nobody knows the end.
                if let Some(object) = self.tracker.get(address).filter(|object| object.size == size) {
                    let sums = self.births.born(address, object.stack, size, resident);
                    self.zeroed_at(object.stack, &sums);
                }
            }
            What::Pool { pool, what } => self.pools.add(*pool, what),
            What::Lost { count, reason } => {
                let reason = if *reason > 4 { 0 } else { usize::from(*reason) };
                self.lost[reason] = self.lost[reason].saturating_add(*count);
            }
            What::Mark(note) if self.notes.marks.len() < NOTES => {
                self.notes.marks.push((event.time, short(note)));
            }
            What::ModuleLoaded { .. } | What::ModuleUnloaded { .. } => {
                Trace::note_module(&mut self.modules, event);
            }
            _ => {}
        }
    }

    #[cold]
    fn zeroed_at(&mut self, stack: StackId, sums: &Zeroed) {
        self.calloc.add(sums);
        self.sites.zeroed(stack, sums);
    }

    /// The sums, with this many of the top sizes.
    pub fn finish(self, top_sizes: usize) -> Summary {
        let mut threads = self.threads;
        threads.sort_unstable_by_key(|sum| sum.thread);
        let kinds = KINDS.into_iter().zip(self.kinds).filter(|&(_, count)| count > 0);
        Summary {
            kinds: kinds.collect(),
            events: self.events,
            first: self.first.unwrap_or(0),
            last: self.last,
            sizes: self.sizes,
            distinct_sizes: self.exact.distinct(),
            top_sizes: self.exact.top(top_sizes, |_, count| count.into()),
            top_sizes_by_bytes: self.exact.top(top_sizes, |size, count| u128::from(size) * u128::from(count)),
            uncounted_sizes: self.exact.uncounted,
            lifetimes_allocs: self.by_allocs,
            lifetimes_ticks: self.by_ticks,
            births: self.tracker.births(),
            requested: self.requested,
            zeroed: self.zeroed,
            calloc: self.calloc,
            aligned: self.aligned,
            failed_bytes: self.failed_bytes,
            frees: self.frees,
            reallocs: self.reallocs,
            threads,
            sites: self.sites.finish(),
            pool_events: self.pools.events,
            pools: self.pools.finish(),
            peak: self.tracker.peak(),
            peak_objects: self.tracker.peak_objects(),
            live: self.tracker.live_objects(),
            live_bytes: self.tracker.live_bytes(),
            curve: self.curve,
            objects: self.objects,
            resident: self.resident,
            resident_peak: self.resident_last.map(|_| self.resident_peak),
            resident_at_peak: self.resident_before_peak,
            lost: self.lost,
            notes: self.notes,
            modules: self.modules,
            impossible: *self.tracker.impossible(),
            tracker_bytes: self.tracker.memory(),
        }
    }
}
