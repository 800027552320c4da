// SPDX-License-Identifier: MIT
//! Traces that end anywhere, or hold anything.

mod common;

use common::{Block, History, PACKED, Random, SEALED, head, read_all, recorder_head};
use quarry_trace::{AllocApi, Damage, Event, FreeApi, Trace, TraceError, What, Why};

/// A trace of some KiB that has all there is.
fn small(packed: bool) -> (History, Vec<u8>) {
    let history = History::random(&mut Random::of(7), 3, 200);
    let bytes = history.write(packed);
    assert!((3_000..10_000).contains(&bytes.len()), "{}", bytes.len());
    (history, bytes)
}

fn open(bytes: &[u8]) -> Result<Trace, TraceError> {
    Trace::of_bytes(bytes.to_vec())
}

fn events(bytes: Vec<u8>) -> (Vec<Event>, Damage) {
    read_all(&Trace::of_bytes(bytes).unwrap())
}

/// Of each thread there is a beginning.
fn assert_beginnings(read: &[Event], history: &History) {
    for thread in 1..=3 {
        let read: Vec<&Event> = read.iter().filter(|event| event.thread == thread).collect();
        let wanted = history.of(thread);
        assert!(
            read.len() <= wanted.len() && read.iter().zip(&wanted).all(|(a, b)| *a == b),
            "thread {thread}"
        );
    }
}

#[test]
fn cut_off_at_every_byte() {
    for packed in [false, true] {
        let (history, bytes) = small(packed);
        let mut last = 0;
        for length in 0..bytes.len() {
            match open(&bytes[..length]) {
                Err(TraceError::Empty) => assert_eq!(length, 0),
                Err(error) => panic!("{length}: {error}"),
                Ok(trace) => {
                    let (read, damage) = read_all(&trace);
                    assert_beginnings(&read, &history);
                    assert!(read.len() >= last, "{length}: {} after {last}", read.len());
                    last = read.len();
                    // A cut between two blocks is seen by the missing end.
                    let whole = trace.end().is_some() && read.len() == history.events.len();
                    assert!(!damage.is_empty() || trace.end().is_none() || whole, "{length}");
                    assert!(!whole || damage.bytes < 8, "only padding is missing: {damage}");
                }
            }
        }
        assert_eq!(last, history.events.len());
    }
}

/// All events but those of the last, cut record are there.
#[test]
fn a_cut_block_is_read_up_to_its_last_record() {
    let payload: Vec<u8> = (0..100).flat_map(|_| [14, 1, 3, b'a', b'b', b'c']).collect();
    let mut bytes = head();
    let begin = bytes.len() + 64;
    bytes.extend(Block::events(1, 0, &payload).bytes());
    for cut in 0..600 {
        let (read, damage) = events(bytes[..begin + cut].to_vec());
        assert_eq!(read.len(), cut / 6);
        assert_eq!((damage.count, damage.bytes, &damage.places[0].why), (1, 600 - cut as u64, &Why::Cut));
    }
}

#[test]
fn every_bit_flipped() {
    for packed in [false, true] {
        let (history, bytes) = small(packed);
        let mut payload = vec![false; bytes.len()];
        let mut at = 0;
        while at < bytes.len() {
            let word =
                |offset: usize| u32::from_le_bytes(bytes[at + offset..][..4].try_into().unwrap()) as usize;
            payload[at + 64..at + 64 + word(12)].fill(bytes[at + 4] == 2);
            at += word(8);
        }
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            match open(&flipped) {
                Err(TraceError::Foreign | TraceError::Version(_)) => assert!(bit < 64, "bit {bit}"),
                Err(error) => panic!("bit {bit}: {error}"),
                Ok(trace) => {
                    let (read, damage) = read_all(&trace);
                    if payload[bit / 8] {
                        assert!(damage.places[0].why == Why::Sum, "bit {bit}: {damage}");
                        assert_beginnings(&read, &history);
                    }
                }
            }
        }
    }
}

/// Anything behind a sane head.
#[test]
fn random_payloads() {
    let mut random = Random::new();
    for round in 0..20_000 {
        let length = random.below(200) as usize;
        let mut payload: Vec<u8> = (0..length).map(|_| random.any() as u8).collect();
        // Tags that exist, mostly.
        payload.iter_mut().for_each(|byte| {
            if *byte > 0x1f && round % 2 == 0 {
                *byte &= 0x8f;
            }
        });
        let flags = random.below(4) as u8;
        let mut bytes = head();
        bytes.extend(Block { flags, time: random.any(), ..Block::events(1, 0, &payload) }.bytes());
        bytes.extend(Block::events(2, 0, &[14, 0, 0]).bytes());
        let (read, _) = events(bytes);
        assert_eq!(read.iter().filter(|event| event.thread == 2).count(), 1);
    }
}

/// Counting passes over records where 72 bytes follow, but for the first. The last has another address for that, and is a
/// realloc all the same.
#[test]
fn a_realloc_counts_wherever_it_leads() {
    let alloc = [1, 0, 100, 16];
    let realloc = [3, 0, 0, 0, 100, 0];
    let payload = [&[2, 0, 0], &alloc[..], &[2, 0, 0].repeat(30), &realloc].concat();
    let (read, _) = events([head(), Block::events(1, 0, &payload).bytes()].concat());
    assert!(matches!(read.last().unwrap().what, What::Realloc { new: 64, .. }), "{read:?}");
}

#[test]
fn what_is_no_trace() {
    let error = |bytes: &[u8]| open(bytes).unwrap_err().to_string();
    assert!(error(b"").contains("is empty"));
    assert!(error(b"x").contains("is not a trace"));
    assert!(error(&[0; 100_000]).contains("is not a trace"));
    assert!(error(&vec![b'Q'; 3 << 20]).contains("is not a trace"));
    let later = Block { version: 2, ..Block::json(1, "{}") };
    assert!(error(&later.bytes()).contains("version 2"));
    let directory = Trace::open(std::path::Path::new("/tmp")).unwrap_err().to_string();
    assert!(directory.contains("is a directory"), "{directory}");
    let device = Trace::open(std::path::Path::new("/dev/null")).unwrap_err().to_string();
    assert!(device.contains("is a device"), "{device}");
    let missing = Trace::open(std::path::Path::new("/no/such/file")).unwrap_err().to_string();
    assert!(missing.contains("No such file"), "{missing}");
}

/// A pipe is refused without waiting for a writer.
#[test]
fn a_pipe_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let error = Trace::open(&pipe).unwrap_err().to_string();
    assert!(error.contains("is a pipe"), "{error}");
}

const MARK: [u8; 4] = [14, 1, 1, b'x'];

#[test]
fn damaged_heads_are_skipped() {
    // At any multiple of 8, and by grains in a recorder's file.
    for recorder in [false, true] {
        let mut bytes = if recorder { recorder_head() } else { head() };
        let span = recorder.then_some(8192);
        for sequence in 0..5 {
            bytes.extend(Block { span, ..Block::events(1, sequence, &MARK) }.bytes());
        }
        let size = if recorder { 8192 } else { 72 };
        let third = bytes.len() - 3 * size;
        bytes[third] = b'X';
        let (read, damage) = events(bytes);
        assert_eq!(read.len(), 4);
        let whys: Vec<&Why> = damage.places.iter().map(|place| &place.why).collect();
        assert_eq!(whys, [&Why::NotABlock, &Why::Missing { thread: 1, blocks: 1 }]);
        // The second grain of the block is zero, like one that was never used.
        assert_eq!((damage.bytes, damage.missing), (if recorder { 4096 } else { 72 }, 1));
        assert_eq!(damage.places[0].offset, third as u64);
    }
}

/// The recorder fills blocks in place: `used` counts, and there is no sum yet. Grains that were not used are zero.
#[test]
fn a_killed_recorder() {
    let mut bytes = recorder_head();
    let mut payload: Vec<u8> = (0..10).flat_map(|_| MARK).collect();
    let used = Some(payload.len() as u32);
    payload.extend([14, 1, 200, b'h', b'a', b'l', b'f']);
    let block = Block { flags: 0, used, span: Some(8192), ..Block::events(1, 0, &payload) };
    bytes.extend(block.bytes());
    bytes.resize(bytes.len() + 3 * 4096, 0);
    bytes.extend(Block { span: Some(4096), flags: 0, ..Block::events(2, 0, &MARK) }.bytes());
    bytes.resize(bytes.len() + 4096, 0);
    // Blocks whose head was being written: these fields, in this order, and then the magic number.
    let begun =
        Block { span: Some(4096), address: 1 << 20, time: 1 << 40, ..Block::events(2, 1, &[]) }.bytes();
    let fields = [20..24, 24..28, 32..40, 40..48, 4..5, 6..8, 8..12, 56..60];
    for stored in 1..=fields.len() {
        let at = bytes.len();
        bytes.resize(at + 4096, 0);
        for field in &fields[..stored] {
            bytes[at..][field.clone()].copy_from_slice(&begun[field.clone()]);
        }
    }
    // An end that was.
    bytes.extend(Block { span: Some(4096), flags: 0, ..Block::json(3, "") }.bytes());
    let trace = open(&bytes).unwrap();
    let (read, damage) = read_all(&trace);
    assert_eq!(read.len(), 11);
    assert!(damage.is_empty(), "{damage}");
    assert!(trace.end().is_none());
    assert_eq!(trace.threads().iter().map(|thread| thread.events).collect::<Vec<_>>(), [10, 1]);
}

#[test]
fn numbers_of_blocks() {
    let mut bytes = head();
    for sequence in [0, 1, 5, 3, 4] {
        bytes.extend(Block::events(8, sequence, &MARK).bytes());
    }
    let (read, damage) = events(bytes);
    assert_eq!(read.len(), 5);
    let whys: Vec<Why> = damage.places.into_iter().map(|place| place.why).collect();
    assert_eq!(whys, [Why::Missing { thread: 8, blocks: 3 }, Why::Order { thread: 8 }]);
}

#[test]
fn records_that_do_not_exist() {
    let bad: [&[u8]; 16] = [
        &[0x10],                                                             // no operation
        &[2 | 5 << 4, 0, 0],                                                 // a free of an unknown kind
        &[3 | 2 << 4, 0, 0, 0, 0, 0, 0],                                     // a realloc of an unknown kind
        &[4 | 8 << 4, 0, 0],                                                 // a failure of an unknown kind
        &[5 | 2 << 4, 0, 0, 0],                                              // a stack of an unknown kind
        &[5, 1, 0, 0],                                                       // stack 0
        &[7 | 3 << 4, 0],                                                    // an unknown event of a thread
        &[8 | 3 << 4, 0],                                                    // ... of a process
        &[11 | 11 << 4, 0, 1],                                               // ... of a pool
        &[12 | 2 << 4, 0],                                                   // an unknown kind of touched
        &[1 | 2 << 4, 0, 8, 0, 64],                                          // an alignment of 2^64
        &[1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0], // 2^64 ticks
        &[13, 0, 0, 0x80, 2],                                                // lost for reason 256
        &[14, 0, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1],   // 2^63 bytes of text
        &[15, 0, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1],   // 2^63 bytes of extension
        &[14, 0, 3, b'x'],                                                   // the payload ends in it
    ];
    for record in bad {
        let mut bytes = head();
        bytes.extend(Block { time: 5, ..Block::events(1, 0, &[&MARK[..], record].concat()) }.bytes());
        bytes.extend(Block::events(1, 1, &[14, 9, 1, b'y']).bytes());
        let (read, damage) = events(bytes);
        assert_eq!(read.len(), 2, "{record:?}");
        assert_eq!((damage.count, damage.bytes), (1, record.len() as u64), "{record:?}: {damage}");
        assert!(matches!(damage.places[0].why, Why::Record(_)), "{damage}");
    }
}

/// A time beyond 64 bits, in steps.
#[test]
fn time_does_not_overflow() {
    let step = [14, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0];
    let mut bytes = head();
    bytes.extend(Block::events(1, 0, &[step, step].concat()).bytes());
    let (read, damage) = events(bytes);
    assert_eq!((read.len(), read[0].time, damage.count), (1, u64::MAX, 1));
}

#[test]
fn later_versions_have_extensions() {
    let mut bytes = head();
    bytes.extend(Block::events(1, 0, &[&[15, 77, 3, 1, 2, 3][..], &MARK].concat()).bytes());
    let (read, damage) = events(bytes);
    assert_eq!((read.len(), damage.count), (1, 0));
}

/// A thread of which nothing can be read did not begin with the machine.
#[test]
fn a_thread_that_cannot_be_read_has_no_times() {
    let mut bytes = head();
    bytes.extend(Block { time: 1000, ..Block::events(1, 0, &MARK) }.bytes());
    let payload = bytes.len() + 64;
    bytes.extend(Block { time: 1000, ..Block::events(2, 0, &MARK) }.bytes());
    bytes[payload] ^= 1;
    let trace = open(&bytes).unwrap();
    let times: Vec<_> = trace.threads().iter().map(|thread| (thread.thread, thread.times)).collect();
    assert_eq!(times, [(1, Some((1001, 1001))), (2, None)]);
}

/// A zero ends the payload; `touched` is said of the free that follows, and of nothing else.
#[test]
fn small_rules() {
    let mut bytes = head();
    let free = [2, 0, 2];
    let payload = [&[12, 9][..], &free, &free, &[12, 8], &MARK, &free, &[0], &free].concat();
    bytes.extend(Block::events(1, 0, &payload).bytes());
    let (read, damage) = events(bytes);
    let touched: Vec<Option<u64>> = read
        .iter()
        .filter_map(|event| match event.what {
            What::Free { touched, .. } => Some(touched),
            _ => None,
        })
        .collect();
    assert_eq!((touched, read.len(), damage.count), (vec![Some(9), None, None], 4, 0));
}

/// Times of a thread that go back from block to block.
#[test]
fn times_are_held() {
    let mut bytes = head();
    for (sequence, time) in [(0, 100), (1, 50), (2, 70), (3, 200)] {
        bytes.extend(Block { time, ..Block::events(1, sequence, &MARK) }.bytes());
    }
    let (read, damage) = events(bytes);
    assert_eq!(read.iter().map(|event| event.time).collect::<Vec<_>>(), [101, 101, 101, 201]);
    assert_eq!((damage.count, &damage.places[0].why), (1, &Why::Backwards { thread: 1 }));
}

#[test]
fn one_trace_after_the_other() {
    let (history, first) = small(false);
    let (read, damage) = events([first.clone(), first.clone()].concat());
    assert_eq!(read.len(), history.events.len());
    assert_eq!((damage.bytes, &damage.places[0].why), (first.len() as u64, &Why::Another));
}

#[test]
fn heads_that_make_no_sense() {
    for text in ["", "{", "7", r#"{"process":-1}"#, r#"{"process":"x"}"#, &"[".repeat(100_000)] {
        let mut bytes = Block::json(1, text).bytes();
        bytes.extend(Block::events(1, 0, &MARK).bytes());
        let (read, damage) = events(bytes);
        assert_eq!((read.len(), damage.count), (1, 1), "{text:.20}");
        assert!(matches!(damage.places[0].why, Why::Json(_)));
    }
}

/// A packed block must be exactly what its head says.
#[test]
fn packed_blocks_are_not_believed() {
    let payload: Vec<u8> = (0..1000).flat_map(|_| MARK).collect();
    let frame = zstd::bulk::compress(&payload, 3).unwrap();
    let with = |flags: u8, raw: u32, frame: &[u8]| {
        let mut bytes = head();
        bytes.extend(Block { flags, raw: Some(raw), ..Block::events(1, 0, frame) }.bytes());
        let (read, damage) = events(bytes);
        (read.len(), damage.places.first().map(|place| place.why.clone()))
    };
    let good = SEALED | PACKED;
    assert_eq!(with(good, 4000, &frame), (1000, None));
    assert_eq!(with(PACKED, 4000, &frame), (1000, None), "without a sum");
    assert_eq!(with(good, 3999, &frame), (0, Some(Why::Unpack)));
    assert_eq!(with(good, 4001, &frame), (0, Some(Why::Unpack)));
    assert_eq!(with(good, 0, &frame), (0, Some(Why::Unpack)));
    assert_eq!(with(good, 4000, b"not a frame"), (0, Some(Why::Unpack)));
    assert_eq!(with(good, 4000, &frame[..frame.len() - 1]), (0, Some(Why::Unpack)));
}

/// Sizes and addresses at their limits.
#[test]
fn numbers_at_their_limits() {
    let most = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
    let mut payload = vec![1, 0];
    payload.extend(most);
    payload.extend(most);
    payload.extend([2, 0]);
    payload.extend(most);
    let mut bytes = head();
    bytes.extend(Block { address: u64::MAX - 15, ..Block::events(u32::MAX, u32::MAX, &payload) }.bytes());
    let (read, damage) = events(bytes);
    assert_eq!(read.len(), 2);
    assert!(matches!(read[0].what, What::Alloc { api: AllocApi::Malloc, size: u64::MAX, .. }), "{read:?}");
    assert!(matches!(read[1].what, What::Free { api: FreeApi::Free, .. }));
    assert_eq!(damage.missing, u64::from(u32::MAX));
}

#[test]
fn an_end_that_is_there_before_the_rest() {
    // In a recorder's file the end has a place of its own, before blocks that were begun later: it is there although they are not.
    let whole = |bytes: usize| {
        let end = Block::json(3, &format!(r#"{{"reason":"exit","bytes":{bytes}}}"#));
        let mut all = recorder_head();
        all.extend(Block { span: Some(4096), ..end }.bytes());
        all.extend(Block { span: Some(4096), ..Block::events(1, 0, &[]) }.bytes());
        all
    };
    let all = whole(3 * 4096);
    let trace = Trace::of_bytes(all.clone()).unwrap();
    assert!(trace.end().is_some() && trace.damage().is_empty());
    let cut = Trace::of_bytes(all[..2 * 4096].to_vec()).unwrap();
    assert!(cut.end().is_some());
    assert_eq!((cut.damage().count, cut.damage().places[0].offset), (1, 8192));
    assert_eq!(cut.damage().places[0].why, Why::Short(3 * 4096));
    // Who does not know says nothing, and more is no damage.
    for bytes in [0, 4096] {
        assert!(Trace::of_bytes(whole(bytes)).unwrap().damage().is_empty());
    }
}

/// Threads in turns, each with a payload that is too large to be kept for all of them: reading it again and again has an end.
#[test]
fn what_is_unpacked_too_often_is_left_out() {
    const THREADS: u32 = 64;
    let raw = 16 << 20;
    let marks: Vec<u8> = (0..raw).map(|at| [14, 1, 125].get(at % 128).copied().unwrap_or(b'x')).collect();
    let frame = zstd::bulk::compress(&marks, 3).unwrap();
    let read = |threads: u32| {
        let mut bytes = head();
        for thread in 1..=threads {
            let raw = Some(raw as u32);
            let block = Block { flags: SEALED | PACKED, raw, ..Block::events(thread, 0, &frame) };
            bytes.extend(block.bytes());
        }
        let trace = Trace::of_bytes(bytes).unwrap();
        let mut merged = trace.events();
        let mut events = 0;
        while let Some(event) = merged.next_with(|_| true) {
            event.unwrap();
            events += 1;
        }
        (events, merged.damage().clone())
    };
    let each = raw / 128;
    let (events, damage) = read(4);
    assert!(events == 4 * each && damage.is_empty(), "{events}: {damage}");
    let (events, damage) = read(THREADS);
    assert!(damage.places.iter().all(|place| place.why == Why::Again) && !damage.is_empty(), "{damage}");
    assert!(events > 2 * each && events < THREADS as usize * each, "{events}");
}
