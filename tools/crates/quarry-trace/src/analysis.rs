// SPDX-License-Identifier: MIT
//! What a trace says, summed up event by event in memory bounded by live blocks, threads and call stacks.

mod ends;
mod extent;
mod histogram;
mod kinds;
mod notes;
mod pools;
mod resident;
mod sites;
mod summary;
mod threads;
mod zeroed;

use crate::classes::Classes;
use crate::event::{AllocApi, Event, FreeApi, StackId, What};
use crate::live::{Change, Curve, Follower, Object, Step, Tracker};
use crate::module::Module;
use crate::sample::{Estimate, Means, Sampling, Weight};
use crate::trace::Trace;

pub use ends::{Frees, Reallocs};
pub use extent::Extent;
pub use histogram::{Bar, Histogram};
pub use kinds::KINDS;
use kinds::kind;
pub use notes::Notes;
pub use pools::{Ended, Pool, Pools};
pub use resident::Resident;
pub use sites::Site;
pub use summary::Summary;
pub use threads::{ThreadEnd, ThreadSum};
pub use zeroed::Zeroed;

/// Points of a curve.
const POINTS: usize = 1024;

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
    means: Means,
    follower: Follower,
    kinds: [Estimate; KINDS.len()],
    extent: Extent,
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
    threads: threads::Threads,
    sites: sites::Sites,
    pools: Pools,
    curve: Curve,
    objects: Curve,
    looks: resident::Looks,
    live: Live,
    classes: Classes,
    rounding: Estimate,
    peak: Peak,
    most_blocks: Estimate,
    lost: [u64; 5],
    notes: Notes,
    modules: Vec<Module>,
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
            means: Means::of(sampling),
            follower: Follower::of(sampling),
            kinds: [Estimate::default(); KINDS.len()],
            extent: Extent::default(),
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
            threads: threads::Threads::default(),
            sites: sites::Sites::default(),
            pools: Pools::default(),
            curve: Curve::new(POINTS),
            objects: Curve::new(POINTS),
            looks: resident::Looks::default(),
            live: Live::default(),
            classes: Classes::of(""),
            rounding: Estimate::default(),
            peak: Peak::default(),
            most_blocks: Estimate::default(),
            lost: [0; 5],
            notes: Notes::default(),
            modules: Vec::new(),
        }
    }

    /// With the size classes of a malloc.
    pub fn with_classes(mut self, classes: Classes) -> Self {
        self.classes = classes;
        self
    }

    /// What the size classes of the malloc that was called add to all live blocks; 0 where they are not known.
    pub fn live_rounding(&self) -> u64 {
        if self.classes.is_own() { self.rounding.value() } else { 0 }
    }

    /// Which blocks are live after the events so far.
    #[inline]
    pub fn tracker(&self) -> &Tracker {
        self.follower.tracker()
    }

    /// Events so far.
    pub fn events(&self) -> u64 {
        self.extent.events()
    }

    /// Take an event into account. They come in the order of [`Trace::events`].
    #[inline]
    pub fn add(&mut self, event: &Event) {
        self.extent.add(event.time);
        let thread = self.threads.of(event);
        if let What::Free { touched, address, .. } = event.what
            && let Some((stack, sums)) = self.births.ended(address, touched)
        {
            self.zeroed_at(stack, &sums);
        }
        let change = self.follower.feed(event);
        match event.what {
            What::Alloc { api, size, align, .. } => {
                let weight = self.follower.weight(event.thread, size);
                self.kinds[kind(&event.what)].count(weight);
                self.exact.add(size, self.follower.tracker().rate(event.thread));
                self.alloc(thread, (api, size, align), weight, event.time, &change.step);
            }
            What::Free { api, touched, .. } => {
                // A realloc is no end.
                if !change.became_unseen {
                    let weight =
                        change.step.ended.map_or(Weight::ONE, |object| self.sampling.weight_of(&object));
                    self.kinds[kind(&event.what)].count(weight);
                }
                self.free(thread, api, event.time, touched, &change);
            }
            What::Realloc { old, new, size, took, .. } => {
                self.births.ended(old, None);
                let weight = self.follower.weight(event.thread, size);
                self.kinds[kind(&event.what)].count(weight);
                self.realloc(thread, old == new, (size, weight), (event.time, took), &change.step);
            }
            _ => return self.other(thread, event),
        }
        self.curve.add(event.time, self.live.bytes.value());
        self.objects.add(event.time, self.live.blocks.value());
    }

    #[inline]
    fn alloc(
        &mut self,
        thread: usize,
        (api, size, align): (AllocApi, u64, u8),
        weight: Weight,
        time: u64,
        step: &Step,
    ) {
        self.allocations.count(weight);
        self.requested.add(size, weight);
        if api == AllocApi::Calloc {
            self.zeroed.count(weight);
        }
        if align > 0 {
            self.aligned.count(weight);
        }
        self.sizes.add(size, size, weight);
        self.displaced(step);
        let sum = self.threads.at(thread);
        sum.allocs.count(weight);
        sum.bytes.add(size, weight);
        self.born(step, time);
    }

    /// A block is there, or is another one after a realloc.
    #[inline]
    fn born(&mut self, step: &Step, time: u64) {
        let Some(object) = step.born else { return };
        let weight = self.sampling.weight_of(&object);
        self.live.blocks.count(weight);
        self.live.bytes.add(object.size, weight);
        self.rounding.add(self.classes.rounding(object.size), weight);
        self.sites.born(object.stack, object.size, weight);
        let blocks = self.live.blocks;
        if blocks.value() > self.most_blocks.value() {
            self.most_blocks = blocks;
        }
        if self.live.bytes.value() > self.peak.bytes.value() {
            self.peak = Peak { bytes: self.live.bytes, objects: blocks, time, births: self.allocations };
            self.sites.peak();
            self.looks.peak();
        }
    }

    /// A block is not there any more.
    #[inline]
    fn gone(&mut self, object: &Object, temporary: bool) {
        let weight = self.sampling.weight_of(object);
        self.live.blocks.take(1, weight);
        self.live.bytes.take(object.size, weight);
        self.rounding.take(self.classes.rounding(object.size), weight);
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
        let sum = self.threads.at(thread);
        let weight = change.step.ended.map_or(Weight::ONE, |object| self.sampling.weight_of(&object));
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
        let (size, weight) = (object.size, self.sampling.weight_of(object));
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

    fn realloc(
        &mut self,
        thread: usize,
        in_place: bool,
        (size, weight): (u64, Weight),
        (time, took): (u64, u64),
        step: &Step,
    ) {
        let sum = self.threads.at(thread);
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
            What::Failed { size, .. } => self.follower.weight(event.thread, size),
            _ => Weight::ONE,
        };
        self.kinds[kind(&event.what)].count(failed);
        let sum = self.threads.at(thread);
        self.notes.add(event);
        match &event.what {
            What::Failed { size, .. } => self.failed_bytes.add_request(*size, failed),
            What::ThreadBegin { tid, .. } => sum.tid = *tid,
            What::ThreadName(name) => sum.name = notes::short(name),
            What::ThreadEnd => sum.end = ThreadEnd::Ended,
            What::ThreadGone => sum.end = ThreadEnd::Gone,
            &What::Memory { anonymous, file } => {
                self.looks.add(Resident { time: event.time, anonymous, file });
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
            What::ModuleLoaded { .. } | What::ModuleUnloaded { .. } => {
                Trace::note_module(&mut self.modules, event);
            }
            What::Sampled { mean } if self.sampling.is_sample() => self.means.add(*mean),
            _ => {}
        }
    }

    #[cold]
    fn zeroed_at(&mut self, stack: StackId, sums: &Zeroed) {
        self.calloc.add(sums);
        self.sites.zeroed(stack, sums);
    }
}
