// SPDX-License-Identifier: MIT
//! How much memory reading takes, for good traces and for hostile ones. All tests of this file count in one
//! place, and so there is only one.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use common::{Block, PACKED, SEALED, head};
use quarry_trace::{AllocApi, End, Event, Head, Trace, TraceWriter, What, WriteOptions};

struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

fn count(bytes: usize) {
    MOST.fetch_max(NOW.fetch_add(bytes, Relaxed) + bytes, Relaxed);
}

// SAFETY: everything is done by the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
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

/// Bytes that reading takes at most, without the file itself, and how many events there were.
fn reading(bytes: Vec<u8>) -> (usize, u64) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace");
    std::fs::write(&file, &bytes).unwrap();
    let length = bytes.len();
    drop(bytes);
    let before = NOW.load(Relaxed);
    MOST.store(before, Relaxed);
    let mut events = 0;
    if let Ok(trace) = Trace::open(&file) {
        trace.threads();
        let mut merged = trace.events().keep_stacks();
        // The order by state is for those who keep track of it.
        while let Some(event) = merged.next_with(|_| true) {
            events += u64::from(event.is_ok());
        }
    }
    let most = MOST.load(Relaxed) - before;
    let limit = (64 << 20) + 2 * length;
    assert!(most <= limit, "{most} bytes for a file of {length}");
    (most, events)
}

/// A payload of `raw` bytes in a few.
fn bomb(raw: usize, payload: impl Fn(usize) -> u8) -> Vec<u8> {
    zstd::bulk::compress(&(0..raw).map(payload).collect::<Vec<u8>>(), 19).unwrap()
}

#[test]
fn memory_is_bounded() {
    // Blocks of 16 MiB in a few hundred bytes, in many threads at once. Each mark has 128 bytes.
    let raw = 16 << 20;
    let frame = bomb(raw, |at| [14, 0, 125].get(at % 128).copied().unwrap_or(b'x'));
    let block = Block { flags: SEALED | PACKED, raw: Some(raw as u32), ..Block::events(0, 0, &frame) };
    let mut bytes = head();
    for thread in 1..=12 {
        bytes.extend(Block { thread, ..block.clone() }.bytes());
    }
    assert!(bytes.len() < 40_000, "{}", bytes.len());
    let (most, events) = reading(bytes);
    println!("bombs of all times equal: {most} bytes, {events} events");
    assert!(events == 12 << 17);

    // One that unpacks to nothing but a text.
    let raw = raw - 64;
    let frame = bomb(raw, |at| [14, 0, 0xb0, 0xff, 0xff, 7].get(at).copied().unwrap_or(b'x'));
    let mut bytes = head();
    let (flags, raw) = (SEALED | PACKED, Some(raw as u32));
    bytes.extend(Block { flags, raw, ..Block::events(1, 0, &frame) }.bytes());
    assert_eq!(reading(bytes).1, 1);

    // As many threads at once as a reader has room for, with the smallest blocks there are.
    let mut bytes = head();
    for thread in 1..=32_000 {
        bytes.extend(Block::events(thread, 0, &[14, 0, 0, 14, 1, 0]).bytes());
    }
    let (most, events) = reading(bytes);
    println!("32000 threads: {most} bytes");
    assert_eq!(events, 64_000);

    // As many blocks as fit.
    let mut bytes = head();
    for sequence in 0..300_000 {
        bytes.extend(Block::events(1, sequence, &[14, 0, 0]).bytes());
    }
    let (most, events) = reading(bytes);
    println!("300000 blocks: {most} bytes");
    assert_eq!(events, 300_000);

    // A stack of every number, and each far from the last one.
    let mut bytes = head();
    let mut payload = Vec::new();
    for _ in 0..10_000 {
        payload.extend([5, 0x80, 0xb4, 0x18, 0, 0]);
    }
    for sequence in 0..40 {
        bytes.extend(Block::events(1, sequence, &payload).bytes());
    }
    let (most, _) = reading(bytes);
    println!("stacks far apart: {most} bytes");

    let (most, events) = reading(reallocs_for_ever(10_000));
    println!("reallocs for ever: {most} bytes");
    assert_eq!(events, 30_000);
    assert!(most < 8 << 20, "{most}");
}

/// Two threads whose reallocs wait for each other's block and are over in the far future, and one that gets the block again and again: each
/// of its events hands out many of theirs before their time.
fn reallocs_for_ever(rounds: u64) -> Vec<u8> {
    const A: u64 = 0x1000;
    const B: u64 = 0x2000;
    let mut writer = TraceWriter::create(Vec::new(), &Head::default(), WriteOptions::default()).unwrap();
    let took = 1 << 60;
    for time in 1..=rounds {
        for (thread, what) in [
            (1, What::Realloc { took, old: A, size: 16, new: B, stack: 0 }),
            (2, What::Realloc { took, old: B, size: 16, new: A, stack: 0 }),
            (3, What::Alloc { api: AllocApi::Malloc, size: 16, address: A, align: 0, stack: 0 }),
        ] {
            let time = if thread == 3 { time } else { 1 };
            writer.event(&Event { time, thread, what }).unwrap();
        }
    }
    writer.finish(&End::default()).unwrap()
}
