// SPDX-License-Identifier: MIT
//! What a trace says, summed up event by event in memory bounded by live blocks, threads and call stacks.

mod histogram;
mod pools;
mod sites;
mod zeroed;

use crate::event::{AllocApi, Event, FreeApi, StackId, ThreadId, What};
use crate::hash::NumberMap;
use crate::live::{Change, Curve, Follower, Impossibles, Object, Step, Tracker};
use crate::module::Module;
use crate::sample::{Estimate, Sampling, Weight};
use crate::trace::Trace;

pub use histogram::{Bar, Histogram};
pub use pools::{Ended, Pool, Pools};
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
pub const KINDS: [&str; 33] = [
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
    "child ended",
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
        What::ChildEnded { .. } => 32,
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
#[derive(Debug, Clone, Default, PartialEq)]
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
    pub allocs: Estimate,
    /// Bytes requested by them.
    pub bytes: Estimate,
    /// Frees.
    pub frees: Estimate,
    /// Reallocs.
    pub reallocs: Estimate,
    /// Frees of blocks that another thread allocated.
    pub foreign_frees: Estimate,
    /// The time of its first event, in ticks.
    pub first: u64,
    /// The time of its last event, in ticks.
    pub last: u64,
}

/// What reallocs did.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Reallocs {
    /// All.
    pub count: Estimate,
    /// The block stayed where it was.
    pub in_place: Estimate,
    /// The block became larger. A sample does not know the size of a block that was not drawn, so this and the next
    /// three are sums of a whole trace only.
    pub grew: u64,
    /// The block became smaller.
    pub shrank: u64,
    /// The size stayed.
    pub same: u64,
    /// Bytes that moves had to copy: the smaller of both sizes.
    pub copied: u64,
    /// Ticks they took.
    pub ticks: Estimate,
    /// The block got another address.
    pub moved: Estimate,
}

impl Reallocs {
    /// What became of the size.
    fn sizes(&mut self, before: u64, after: u64, in_place: bool) {
        let change = match after.cmp(&before) {
            std::cmp::Ordering::Greater => &mut self.grew,
            std::cmp::Ordering::Less => &mut self.shrank,
            std::cmp::Ordering::Equal => &mut self.same,
        };
        *change += 1;
        if !in_place {
            self.copied = self.copied.wrapping_add(after.min(before));
        }
    }
}

/// How blocks ended.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Frees {
    /// Blocks that were freed.
    pub count: Estimate,
    /// Their bytes.
    pub bytes: Estimate,
    /// By another thread than the one that allocated them or changed their size last.
    pub foreign: Estimate,
    /// Their bytes.
    pub foreign_bytes: Estimate,
    /// By their own thread, as its very next event. A sample leaves events out, so it has none of these.
    pub temporary: Estimate,
    /// Their bytes.
    pub temporary_bytes: Estimate,
    /// Blocks of which it was recorded how much was resident.
    pub looked_at: Estimate,
    /// Bytes that they had.
    pub looked_at_bytes: Estimate,
    /// Bytes of them that were resident.
    pub touched_bytes: Estimate,
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

/// What is live at a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Live {
    blocks: Estimate,
    bytes: Estimate,
}

/// The highest number of live bytes, and what else was then.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Peak {
    /// Bytes requested by live blocks.
    pub bytes: Estimate,
    /// Live blocks at that moment.
    pub objects: Estimate,
    /// When.
    pub time: u64,
    /// Births before that moment.
    pub births: Estimate,
}

/// Sums over a trace, while it is read.
#[derive(Debug)]
pub struct Analysis {
    sampling: Sampling,
    follower: Follower,
    kinds: [Estimate; KINDS.len()],
    events: u64,
    first: Option<u64>,
    last: u64,
    sizes: Histogram,
    exact: histogram::Sizes,
    by_allocs: Histogram,
    by_ticks: Histogram,
    allocations: Estimate,
    requested: Estimate,
    zeroed: Estimate,
    births: zeroed::Births,
    calloc: Zeroed,
    aligned: Estimate,
    failed_bytes: Estimate,
    frees: Frees,
    reallocs: Reallocs,
    threads: Vec<ThreadSum>,
    thread_index: NumberMap<u32>,
    thread_last: (ThreadId, usize),
    sites: sites::Sites,
    pools: Pools,
    curve: Curve,
    objects: Curve,
    resident: Curve,
    resident_peak: Resident,
    resident_last: Option<Resident>,
    resident_before_peak: Option<Resident>,
    live: Live,
    peak: Peak,
    most_blocks: Estimate,
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
    /// Whether blocks were left out: then sums are estimates.
    pub sampling: Sampling,
    /// Events by kind: a name of [`KINDS`], and how many.
    pub kinds: Vec<(&'static str, Estimate)>,
    /// All events of the file.
    pub events: u64,
    /// Time of the first event, in ticks.
    pub first: u64,
    /// Time of the last event, in ticks.
    pub last: u64,
    /// Allocations by size.
    pub sizes: Histogram,
    /// How many different sizes were requested, by the blocks of the file.
    pub distinct_sizes: u64,
    /// The sizes that were requested most often, with their counts.
    pub top_sizes: Vec<(u64, Estimate)>,
    /// The sizes that had most bytes, with their counts.
    pub top_sizes_by_bytes: Vec<(u64, Estimate)>,
    /// Requests that the exact sizes leave out, because there are too many.
    pub uncounted_sizes: u64,
    /// Blocks that ended, by allocations made between their birth and their end. In a sample, those that were not
    /// resized.
    pub lifetimes_allocs: Histogram,
    /// Blocks that ended, by ticks from their birth to their end.
    pub lifetimes_ticks: Histogram,
    /// Allocations.
    pub births: Estimate,
    /// Bytes requested, by reallocs too.
    pub requested: Estimate,
    /// Allocations that were to be zero.
    pub zeroed: Estimate,
    /// Large blocks of calloc that were looked at.
    pub calloc: Zeroed,
    /// Allocations with an alignment.
    pub aligned: Estimate,
    /// Bytes of requests that failed.
    pub failed_bytes: Estimate,
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
    pub peak_objects: Estimate,
    /// Blocks that are live at the end.
    pub live: Estimate,
    /// Their bytes.
    pub live_bytes: Estimate,
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
    /// Nothing has happened yet, in a trace of all blocks.
    pub fn new() -> Self {
        Self::of(Sampling::ALL)
    }

    /// Nothing has happened yet. Sums are weighed if blocks are left out.
    pub fn of(sampling: Sampling) -> Self {
        Self {
            sampling,
            follower: Follower::of(sampling),
            kinds: [Estimate::default(); KINDS.len()],
            events: 0,
            first: None,
            last: 0,
            sizes: Histogram::default(),
            exact: histogram::Sizes::default(),
            by_allocs: Histogram::default(),
            by_ticks: Histogram::default(),
            allocations: Estimate::default(),
            requested: Estimate::default(),
            zeroed: Estimate::default(),
            births: zeroed::Births::of(sampling),
            calloc: Zeroed::default(),
            aligned: Estimate::default(),
            failed_bytes: Estimate::default(),
            frees: Frees::default(),
            reallocs: Reallocs::default(),
            threads: Vec::new(),
            thread_index: NumberMap::default(),
            thread_last: (0, usize::MAX),
            sites: sites::Sites::default(),
            pools: Pools::default(),
            curve: Curve::new(POINTS),
            objects: Curve::new(POINTS),
            resident: Curve::new(POINTS),
            resident_peak: Resident::default(),
            resident_last: None,
            resident_before_peak: None,
            live: Live::default(),
            peak: Peak::default(),
            most_blocks: Estimate::default(),
            lost: [0; 5],
            notes: Notes::default(),
            modules: Vec::new(),
        }
    }

    /// Which blocks are live after the events so far.
    #[inline]
    pub fn tracker(&self) -> &Tracker {
        self.follower.tracker()
    }

    /// Events so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Take an event into account. They come in the order of [`Trace::events`].
    #[inline]
    pub fn add(&mut self, event: &Event) {
        self.events += 1;
        if self.first.is_none() {
            self.first = Some(event.time);
        }
        self.last = self.last.max(event.time);
        let thread = self.thread(event);
        if let What::Free { touched, address, .. } = event.what
            && let Some((stack, sums)) = self.births.ended(address, touched)
        {
            self.zeroed_at(stack, &sums);
        }
        let change = self.follower.feed(event);
        match event.what {
            What::Alloc { api, size, align, .. } => {
                self.kinds[kind(&event.what)].count(self.sampling.weight(size));
                self.alloc(thread, api, size, align, event.time, &change.step);
            }
            What::Free { api, touched, .. } => {
                // A realloc is no end.
                if !change.became_unseen {
                    let weight =
                        change.step.ended.map_or(Weight::ONE, |object| self.sampling.weight(object.size));
                    self.kinds[kind(&event.what)].count(weight);
                }
                self.free(thread, api, event.time, touched, &change);
            }
            What::Realloc { old, new, size, took, .. } => {
                self.births.ended(old, None);
                self.kinds[kind(&event.what)].count(self.sampling.weight(size));
                self.realloc(thread, old == new, size, (event.time, took), &change.step);
            }
            _ => return self.other(thread, event),
        }
        self.curve.add(event.time, self.live.bytes.value());
        self.objects.add(event.time, self.live.blocks.value());
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
    fn alloc(&mut self, thread: usize, api: AllocApi, size: u64, align: u8, time: u64, step: &Step) {
        let weight = self.sampling.weight(size);
        self.allocations.count(weight);
        self.requested.add(size, weight);
        if api == AllocApi::Calloc {
            self.zeroed.count(weight);
        }
        if align > 0 {
            self.aligned.count(weight);
        }
        self.sizes.add(size, size, weight);
        self.exact.add(size);
        self.displaced(step);
        let sum = &mut self.threads[thread];
        sum.allocs.count(weight);
        sum.bytes.add(size, weight);
        self.born(step, time);
    }

    /// A block is there, or is another one after a realloc.
    #[inline]
    fn born(&mut self, step: &Step, time: u64) {
        let Some(object) = step.born else { return };
        let weight = self.sampling.weight(object.size);
        self.live.blocks.count(weight);
        self.live.bytes.add(object.size, weight);
        self.sites.born(object.stack, object.size, weight);
        let blocks = self.live.blocks;
        if blocks.value() > self.most_blocks.value() {
            self.most_blocks = blocks;
        }
        if self.live.bytes.value() > self.peak.bytes.value() {
            self.peak = Peak { bytes: self.live.bytes, objects: blocks, time, births: self.allocations };
            self.sites.peak();
            self.resident_before_peak = self.resident_last;
        }
    }

    /// A block is not there any more.
    #[inline]
    fn gone(&mut self, object: &Object, temporary: bool) {
        let weight = self.sampling.weight(object.size);
        self.live.blocks.take(1, weight);
        self.live.bytes.take(object.size, weight);
        self.sites.ended(object.stack, object.size, weight, temporary);
    }

    /// A block that must have ended before this is no longer anybody's.
    #[inline]
    fn displaced(&mut self, step: &Step) {
        if let Some(object) = step.displaced {
            self.gone(&object, false);
        }
    }

    #[inline]
    fn free(&mut self, thread: usize, api: FreeApi, time: u64, touched: Option<u64>, change: &Change) {
        if api == FreeApi::Null {
            return;
        }
        let sum = &mut self.threads[thread];
        let weight = change.step.ended.map_or(Weight::ONE, |object| self.sampling.weight(object.size));
        if !change.became_unseen {
            sum.frees.count(weight);
        }
        let Some(object) = change.step.ended else { return };
        let foreign = sum.thread != object.thread;
        if foreign && !change.became_unseen {
            sum.foreign_frees.count(weight);
        }
        self.gone(&object, change.temporary);
        if !change.became_unseen {
            self.ended(&object, time, foreign, change);
        }
        if let Some(bytes) = touched {
            self.frees.looked_at.count(weight);
            self.frees.looked_at_bytes.add(object.size, weight);
            self.frees.touched_bytes.add(bytes, weight);
        }
    }

    #[inline]
    fn ended(&mut self, object: &Object, time: u64, foreign: bool, change: &Change) {
        let (size, weight) = (object.size, self.sampling.weight(object.size));
        let frees = &mut self.frees;
        frees.count.count(weight);
        frees.bytes.add(size, weight);
        if foreign {
            frees.foreign.count(weight);
            frees.foreign_bytes.add(size, weight);
        }
        if change.temporary {
            frees.temporary.count(weight);
            frees.temporary_bytes.add(size, weight);
        }
        if change.whole_life {
            let births = self.follower.tracker().births();
            self.by_allocs.add(births.saturating_sub(object.id + 1), size, weight);
            self.by_ticks.add(time.saturating_sub(object.time), size, weight);
        }
    }

    fn realloc(&mut self, thread: usize, in_place: bool, size: u64, (time, took): (u64, u64), step: &Step) {
        let weight = self.sampling.weight(size);
        let sum = &mut self.threads[thread];
        sum.reallocs.count(weight);
        self.requested.add(size, weight);
        let sums = &mut self.reallocs;
        sums.count.count(weight);
        (if in_place { &mut sums.in_place } else { &mut sums.moved }).count(weight);
        sums.ticks.add(took, weight);
        if let Some(old) = step.ended {
            if !self.sampling.is_sample() {
                sums.sizes(old.size, size, in_place);
            }
            self.gone(&old, false);
        }
        self.displaced(step);
        self.born(step, time);
    }

    #[cold]
    fn other(&mut self, thread: usize, event: &Event) {
        let failed = match event.what {
            What::Failed { size, .. } => self.sampling.weight(size),
            _ => Weight::ONE,
        };
        self.kinds[kind(&event.what)].count(failed);
        let sum = &mut self.threads[thread];
        let short = |text: &str| text.chars().take(TEXT).collect::<String>();
        match &event.what {
            What::Failed { size, .. } => self.failed_bytes.add(*size, failed),
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
                if let Some(object) =
                    self.follower.tracker().get(address).filter(|object| object.size == size)
                {
                    let sums = self.births.born(address, object.stack, size, resident);
                    self.zeroed_at(object.stack, &sums);
                }
            }
            What::Pool { pool, what } => _ = self.pools.add(*pool, what, (), &mut |_| {}),
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
        let kinds = KINDS.into_iter().zip(self.kinds).filter(|(_, count)| count.value() > 0);
        let sampling = self.sampling;
        let weighed = |sizes: Vec<(u64, u64)>| -> Vec<(u64, Estimate)> {
            let of = |(size, n)| (size, Estimate::of(n, 1, sampling.weight(size)));
            sizes.into_iter().map(of).collect()
        };
        let blocks = |size, n: u64| match sampling.is_sample() {
            true => (n as f64 * sampling.weight(size).blocks()) as u128,
            false => n.into(),
        };
        let by_blocks = self.exact.top(top_sizes, blocks);
        let by_bytes = self.exact.top(top_sizes, |size, n| u128::from(size).saturating_mul(blocks(size, n)));
        let mut impossible = *self.follower.tracker().impossible();
        if sampling.is_sample() {
            // The block before was not drawn.
            impossible.realloc_of_unknown = 0;
        }
        Summary {
            sampling,
            kinds: kinds.collect(),
            events: self.events,
            first: self.first.unwrap_or(0),
            last: self.last,
            sizes: self.sizes,
            distinct_sizes: self.exact.distinct(),
            top_sizes: weighed(by_blocks),
            top_sizes_by_bytes: weighed(by_bytes),
            uncounted_sizes: self.exact.uncounted,
            lifetimes_allocs: self.by_allocs,
            lifetimes_ticks: self.by_ticks,
            births: self.allocations,
            requested: self.requested,
            zeroed: self.zeroed,
            calloc: self.calloc,
            aligned: self.aligned,
            failed_bytes: self.failed_bytes,
            frees: self.frees,
            reallocs: self.reallocs,
            threads,
            sites: self.sites.finish(),
            pool_events: self.pools.events(),
            pools: self.pools.finish(),
            peak: self.peak,
            peak_objects: self.most_blocks,
            live: self.live.blocks,
            live_bytes: self.live.bytes,
            curve: self.curve,
            objects: self.objects,
            resident: self.resident,
            resident_peak: self.resident_last.map(|_| self.resident_peak),
            resident_at_peak: self.resident_before_peak,
            lost: self.lost,
            notes: self.notes,
            modules: self.modules,
            impossible,
            tracker_bytes: self.follower.tracker().memory(),
        }
    }
}
