// SPDX-License-Identifier: MIT
//! What each thread did.

use crate::event::{Event, ThreadId};
use crate::hash::NumberMap;
use crate::sample::Estimate;

/// Most threads that are kept one by one.
const MOST: usize = 1 << 20;

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

/// All threads.
#[derive(Debug)]
pub(super) struct Threads {
    sums: Vec<ThreadSum>,
    index: NumberMap<u32>,
    last: (ThreadId, usize),
}

impl Default for Threads {
    fn default() -> Self {
        Self { sums: Vec::new(), index: NumberMap::default(), last: (0, usize::MAX) }
    }
}

impl Threads {
    /// The place of an event's thread. The event is its last one so far.
    #[inline]
    pub(super) fn of(&mut self, event: &Event) -> usize {
        let index = if self.last.0 == event.thread && self.last.1 != usize::MAX {
            self.last.1
        } else {
            self.find(event)
        };
        self.sums[index].last = event.time;
        index
    }

    /// The sums of a thread.
    #[inline]
    pub(super) fn at(&mut self, thread: usize) -> &mut ThreadSum {
        &mut self.sums[thread]
    }

    fn find(&mut self, event: &Event) -> usize {
        let sums = &mut self.sums;
        // Too many, which no real trace has, share the last place.
        let index = if sums.len() >= MOST && self.index.get(event.thread.into()).is_none() {
            MOST - 1
        } else {
            *self.index.get_or(event.thread.into(), || {
                let (thread, first) = (event.thread, event.time);
                sums.push(ThreadSum { thread, first, ..ThreadSum::default() });
                sums.len() as u32 - 1
            }) as usize
        };
        self.last = (event.thread, index);
        index
    }

    /// All of them, by number.
    pub(super) fn finish(mut self) -> Vec<ThreadSum> {
        self.sums.sort_unstable_by_key(|sum| sum.thread);
        self.sums
    }
}
