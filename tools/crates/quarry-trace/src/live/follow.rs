// SPDX-License-Identifier: MIT
//! What an event means for blocks: the rules that all sums over a trace share.

use crate::event::{Event, FreeApi, ThreadId, What};
use crate::hash::{AddressSet, NumberMap};
use crate::live::{Step, Tracker};
use crate::sample::{Sampling, Weight};

/// No block.
const NONE: u64 = u64::MAX;

/// What an event changed, and what that was.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Change {
    /// The blocks that ended and those that are new.
    pub step: Step,
    /// The block that ended was the last thing that its thread did. A sample leaves events out, so it has none of these.
    pub temporary: bool,
    /// Only of a sample: the block that ended became another one by a realloc, and that one was not drawn.
    pub became_unseen: bool,
    /// The block that ended has one size from its birth to its end, or all of its sizes are in the trace.
    pub whole_life: bool,
}

/// Follows events in their order.
#[derive(Debug, Clone, Default)]
pub struct Follower {
    sampling: Sampling,
    tracker: Tracker,
    /// Of a sample: the numbers of live blocks that were resized.
    resized: AddressSet,
    /// A part of a birth that was not seen, and was not yet told to the tracker.
    part: f64,
    /// The last thread, and the block that its last event allocated.
    last: (ThreadId, u64),
    /// The same of the other threads.
    fresh: NumberMap<u64>,
}

impl Follower {
    /// Nothing has happened yet.
    pub fn of(sampling: Sampling) -> Self {
        Self { sampling, last: (0, NONE), ..Self::default() }
    }

    /// Which blocks are live after the events so far.
    #[inline]
    pub fn tracker(&self) -> &Tracker {
        &self.tracker
    }

    /// Is a live block known by a part of its life only? That is so in a sample, where a block was resized.
    pub fn is_partly_known(&self, id: u64) -> bool {
        self.sampling.is_sample() && self.resized.contains(id)
    }

    /// What a block of so many bytes stands for that a thread allocates now.
    #[inline]
    pub fn weight(&self, thread: ThreadId, size: u64) -> Weight {
        self.sampling.weight_at(self.tracker.rate(thread), size)
    }

    /// Take an event into account, and say what it changed.
    #[inline]
    pub fn feed(&mut self, event: &Event) -> Change {
        match event.what {
            What::Alloc { size, .. } => {
                self.not_seen(self.weight(event.thread, size));
                let step = self.tracker.feed(event);
                *self.fresh(event.thread) = step.born.map_or(NONE, |object| object.id);
                self.displaced(&step);
                Change { step, ..Change::default() }
            }
            What::Free { api, .. } => self.free(event, api),
            What::Realloc { .. } => {
                let step = self.tracker.feed(event);
                *self.fresh(event.thread) = NONE;
                if let (Some(object), true) = (step.born, self.sampling.is_sample()) {
                    self.resized.insert(object.id);
                }
                self.displaced(&step);
                Change { step, ..Change::default() }
            }
            // The recorder's own records come in between anywhere.
            What::Memory { .. }
            | What::Usage(_)
            | What::Clock { .. }
            | What::ModuleLoaded { .. }
            | What::Resident { .. }
            | What::Written { .. }
            | What::Zeroed { .. } => Change::default(),
            What::Sampled { .. } => Change { step: self.tracker.feed(event), ..Change::default() },
            _ => {
                *self.fresh(event.thread) = NONE;
                Change::default()
            }
        }
    }

    #[inline]
    fn free(&mut self, event: &Event, api: FreeApi) -> Change {
        let fresh = std::mem::replace(self.fresh(event.thread), NONE);
        let step = self.tracker.feed(event);
        let sample = self.sampling.is_sample();
        let became_unseen = sample && api == FreeApi::Other;
        let Some(object) = step.ended else { return Change { step, became_unseen, ..Change::default() } };
        // In a sample, a block that was resized was hardly ever drawn from its first size to its last.
        let partly = self.is_partly_known(object.id);
        if partly {
            self.resized.remove(object.id);
        }
        let whole_life = !partly && !became_unseen;
        Change { step, temporary: fresh == object.id && !sample, became_unseen, whole_life }
    }

    /// What the last event of a thread allocated.
    #[inline]
    fn fresh(&mut self, thread: ThreadId) -> &mut u64 {
        if self.last.0 != thread {
            self.change_thread(thread);
        }
        &mut self.last.1
    }

    fn change_thread(&mut self, thread: ThreadId) {
        let (before, fresh) = self.last;
        if fresh != NONE {
            self.fresh.insert(before.into(), fresh);
        }
        self.last = (thread, self.fresh.remove(thread.into()).unwrap_or(NONE));
    }

    /// Blocks that were born before one of this weight, and are not in the trace. The tracker counts births, and so
    /// do lifetimes.
    #[inline]
    fn not_seen(&mut self, weight: Weight) {
        if weight != Weight::ONE {
            self.part += weight.unseen();
            let whole = self.part.floor();
            self.part -= whole;
            self.tracker.pass(whole as u64);
        }
    }

    #[inline]
    fn displaced(&mut self, step: &Step) {
        if let (Some(object), true) = (step.displaced, self.sampling.is_sample()) {
            self.resized.remove(object.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::AllocApi;

    fn event(thread: u32, what: What) -> Event {
        Event { time: 1, thread, what }
    }

    fn alloc(thread: u32, address: u64) -> Event {
        event(thread, What::Alloc { api: AllocApi::Malloc, size: 8, address, align: 0, stack: 0 })
    }

    fn free(thread: u32, address: u64) -> Event {
        event(thread, What::Free { api: FreeApi::Free, address, touched: None })
    }

    fn temporary(sampling: Sampling, events: &[Event]) -> Vec<bool> {
        let mut follower = Follower::of(sampling);
        let changes: Vec<Change> = events.iter().map(|event| follower.feed(event)).collect();
        changes.iter().filter(|change| change.step.ended.is_some()).map(|change| change.temporary).collect()
    }

    #[test]
    fn temporary_is_the_next_event_of_the_thread() {
        let clock = || event(1, What::Clock { ns: 5 });
        let other = || event(1, What::Mark(String::new()));
        let all = Sampling::ALL;
        assert_eq!(temporary(all, &[alloc(1, 8), alloc(2, 16), free(1, 8), free(2, 16)]), [true, true]);
        assert_eq!(temporary(all, &[alloc(1, 8), clock(), free(1, 8)]), [true]);
        // How much was written into a block is told directly before it is freed.
        let written = || event(1, What::Written { address: 8, bytes: 5 });
        assert_eq!(temporary(all, &[alloc(1, 8), written(), free(1, 8)]), [true]);
        assert_eq!(temporary(all, &[alloc(1, 8), other(), free(1, 8)]), [false]);
        assert_eq!(temporary(all, &[alloc(1, 8), free(2, 8)]), [false]);
        assert_eq!(temporary(all, &[alloc(1, 8), alloc(1, 16), free(1, 8)]), [false]);
        assert_eq!(temporary(Sampling::one_in(4), &[alloc(1, 8), free(1, 8)]), [false]);
    }

    #[test]
    fn a_resized_block_of_a_sample_is_partly_known() {
        let mut follower = Follower::of(Sampling::one_in(4));
        follower.feed(&alloc(1, 8));
        let realloc = What::Realloc { took: 0, old: 8, size: 16, new: 24, stack: 0 };
        let id = follower.feed(&event(1, realloc)).step.born.unwrap().id;
        assert!(follower.is_partly_known(id));
        assert!(!follower.feed(&free(1, 24)).whole_life && !follower.is_partly_known(id));
        follower.feed(&alloc(1, 8));
        let gone = What::Free { api: FreeApi::Other, address: 8, touched: None };
        let change = follower.feed(&event(1, gone));
        assert!(change.became_unseen && !change.whole_life);
    }
}
