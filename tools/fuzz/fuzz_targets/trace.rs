// SPDX-License-Identifier: MIT
//! A file that is a trace, or was one, or never was: reading it neither panics nor takes more than it may.
//!
//! Sums are put right before reading, for no mutation finds one that fits; the first byte says whether, and how much is
//! read at once is left to the reader. What can be read is written again and must be read as the same.

#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};
use quarry_trace::analysis::Analysis;
use quarry_trace::sample::Sampling;
use quarry_trace::{End, Event, Head, Trace, TraceWriter, What, WriteOptions};

/// More is not read of one input: packed blocks can hold millions of events.
const MOST: usize = 20_000;

fn word(bytes: &[u8], at: usize) -> usize {
    bytes.get(at..at + 4).map_or(0, |word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]) as usize)
}

/// Put the sum of each block right, as far as one follows the other.
fn seal(bytes: &mut [u8]) {
    let mut at = 0;
    while at + 64 <= bytes.len() && bytes[at..].starts_with(b"QTRB") {
        let (span, used) = (word(bytes, at + 8), word(bytes, at + 12));
        let Some(payload) = bytes.get(at + 64..(at + 64).saturating_add(used)) else { break };
        let mut sum = 0xcbf2_9ce4_8422_2325u64;
        for chunk in payload.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            sum = (sum ^ u64::from_le_bytes(word)).wrapping_mul(0x100_0000_01b3);
            sum ^= sum >> 32;
        }
        bytes[at + 48..at + 56].copy_from_slice(&sum.to_le_bytes());
        at = at.saturating_add(span.max(64));
    }
}

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let size = fuzzer_mutate(data, size, max_size);
    // One in eight keeps what the mutation made of the sums.
    if !seed.is_multiple_of(8) {
        seal(&mut data[..size]);
    }
    size
});

/// Events that can be read can be written, and are read again as what they were.
fn again(head: &Head, events: &[Event]) {
    let mut writer =
        match TraceWriter::create(Vec::new(), head, WriteOptions { packed: events.len() % 2 == 0 }) {
            Ok(writer) => writer,
            Err(error) => panic!("{error}"),
        };
    let mut written = Vec::new();
    for event in events {
        if writer.event(event).is_ok() {
            written.push(event);
        } else {
            // Only addresses that are far away from all others, and texts of a MiB, cannot be written.
            assert!(!matches!(event.what, What::ThreadEnd | What::Clock { .. } | What::Memory { .. }));
        }
    }
    let bytes = writer.finish(&End::default()).unwrap();
    let trace = Trace::of_bytes(bytes).unwrap();
    let mut of_thread = std::collections::BTreeMap::<u32, Vec<&Event>>::new();
    for event in written {
        of_thread.entry(event.thread).or_default().push(event);
    }
    for (thread, wanted) in of_thread {
        let mut read = trace.thread_events(thread);
        assert!(read.by_ref().map(Result::unwrap).eq(wanted.into_iter().cloned()), "thread {thread}");
        assert!(read.damage().is_empty());
    }
}

fuzz_target!(|data: &[u8]| {
    let Ok(trace) = Trace::of_bytes(data.to_vec()) else { return };
    let mut analysis = Analysis::of(Sampling::of(trace.head()));
    let mut merged = trace.events().keep_stacks();
    let mut events = Vec::new();
    while let Some(event) = merged.next_with(|address| analysis.tracker().is_live(address)) {
        let event = event.unwrap();
        analysis.add(&event);
        events.push(event);
        if events.len() >= MOST {
            break;
        }
    }
    let stacks = merged.take_stacks();
    // Who has to find out what is live finds the same order.
    let order = trace.events().take(MOST).map(Result::unwrap);
    assert!(order.eq(events.iter().cloned()), "two orders");
    let whole = events.len() < MOST;
    if whole {
        let alone: usize = trace.threads().iter().map(|info| trace.thread_events(info.thread).count()).sum();
        assert_eq!(alone, events.len());
    }
    let summary = analysis.finish(3);
    assert_eq!(summary.events, events.len() as u64);
    for site in &summary.sites {
        stacks.frames(site.stack).for_each(drop);
        let (low, high) = site.bytes.interval();
        assert!(low <= high, "{site:?}");
    }
    let _ = (trace.damage().to_string(), trace.duration_ns(summary.last), trace.modules());
    trace.texts().for_each(drop);
    again(trace.head(), &events);
});
