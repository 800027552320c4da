// SPDX-License-Identifier: MIT
//! How many events a trace has, and from when to when.

/// Counts events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Extent {
    events: u64,
    first: Option<u64>,
    last: u64,
}

impl Extent {
    /// There is an event at this time, in ticks.
    #[inline]
    pub fn add(&mut self, time: u64) {
        self.events += 1;
        if self.first.is_none() {
            self.first = Some(time);
        }
        self.last = self.last.max(time);
    }

    /// Events so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The time of the first one; 0 if there is none.
    pub fn first(&self) -> u64 {
        self.first.unwrap_or(0)
    }

    /// The highest time.
    pub fn last(&self) -> u64 {
        self.last
    }
}
