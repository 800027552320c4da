// SPDX-License-Identifier: MIT
//! How much memory a profile takes: for live blocks, for call stacks, for time. All is counted in one place, and so there is one test.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use common::{Random, alloc, free};
use quarry_profile::model::{Builder, Division, Spans};
use quarry_trace::sample::Sampling;

struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is done by the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        MOST.fetch_max(NOW.fetch_add(layout.size(), Relaxed) + layout.size(), Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most bytes in use while so many events with so many live blocks of so many stacks are read.
fn most(events: u64, live: u64, stacks: u64) -> usize {
    let before = NOW.load(Relaxed);
    MOST.store(before, Relaxed);
    let mut random = Random(3);
    let mut builder = Builder::new(Sampling::ALL, Division::Stack, Spans::new(0, events), &[]);
    let mut ring = 0;
    for time in 0..events {
        let address = 0x10_0000 + ring % (2 * live) * 64;
        if ring >= live && time.is_multiple_of(2) {
            builder.add(&free(time, 1, 0x10_0000 + (ring - live) % (2 * live) * 64));
        } else {
            builder.add(&alloc(time, 1, address, 48, random.below(stacks) as u32 + 1));
            ring += 1;
        }
    }
    let profile = builder.finish();
    assert!(profile.rows.len() as u64 <= stacks && profile.events == events);
    MOST.load(Relaxed) - before
}

#[test]
fn memory_is_bounded() {
    const MIB: usize = 1 << 20;
    let blocks = most(2_500_000, 1_000_000, 2000);
    assert!(blocks <= 64 * 1_000_000 + 32 * MIB, "{blocks} bytes for a million live blocks");
    // The number of events does not count.
    let long = most(3_000_000, 1000, 2000);
    assert!(long <= 32 * MIB, "{long} bytes for a thousand live blocks");
    // Call stacks have about half a KiB each.
    let wide = most(1_000_000, 1000, 200_000);
    assert!(wide <= 200_000 * 700 + 32 * MIB, "{wide} bytes for 200,000 call stacks");
}
