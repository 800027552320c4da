// SPDX-License-Identifier: MIT
//! Events made up by chance, and what is needed to make them.
#![allow(dead_code, reason = "each test uses some of it")]

use quarry_profile::calls::Calls;
use quarry_profile::model::{Builder, Division, Profile, Spans};
use quarry_symbols::{Folding, Symbols};
use quarry_trace::sample::Sampling;
use quarry_trace::{AllocApi, Event, FreeApi, StackNode, StackTree, What};

/// Numbers by chance, the same for each seed.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    /// From 0 to 1, without 1.
    pub fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

pub fn alloc(time: u64, thread: u32, address: u64, size: u64, stack: u32) -> Event {
    Event { time, thread, what: What::Alloc { api: AllocApi::Malloc, size, address, align: 0, stack } }
}

pub fn free(time: u64, thread: u32, address: u64) -> Event {
    Event { time, thread, what: What::Free { api: FreeApi::Free, address, touched: None } }
}

pub fn realloc(time: u64, thread: u32, old: u64, size: u64, new: u64, stack: u32) -> Event {
    Event { time, thread, what: What::Realloc { took: 0, old, size, new, stack } }
}

/// Sum up events.
pub fn profile(events: &[Event], sampling: Sampling, division: Division, moments: &[u64]) -> Profile {
    let first = events.iter().map(|event| event.time).min().unwrap_or(0);
    let last = events.iter().map(|event| event.time).max().unwrap_or(0);
    let mut builder = Builder::new(sampling, division, Spans::new(first, last), moments);
    events.iter().for_each(|event| builder.add(event));
    builder.finish()
}

/// Stacks of one frame, whose address is the number of the stack.
pub fn named(profile: &Profile, stacks: u32) -> Calls {
    let mut tree = StackTree::new();
    for id in 1..=stacks {
        tree.add(&StackNode { id, parent: 0, pc: u64::from(id), is_return: false });
    }
    Calls::of(profile, &tree, &mut Symbols::new(Vec::new()), &Folding::default())
}
