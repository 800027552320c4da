// SPDX-License-Identifier: MIT
//! What is written is read, whatever it is.

mod common;

use common::{History, Random, read_all};
use quarry_trace::{
    AllocApi, Counted, End, Event, FreeApi, Head, StackTree, Trace, TraceWriter, What, WriteOptions,
};

#[test]
fn random_events_come_back() {
    let mut random = Random::new();
    for round in 0..40 {
        let threads = 1 + random.below(8) as u32;
        let events = if round % 8 == 0 { 40_000 } else { random.below(2000) as usize };
        let history = History::random(&mut random, threads, events);
        for packed in [false, true] {
            let bytes = history.write(packed);
            let trace = Trace::of_bytes(bytes).unwrap();
            let (merged, damage) = read_all(&trace);
            assert!(damage.is_empty(), "{damage}");
            assert_eq!(merged.len(), history.events.len());
            assert_eq!(trace.end().unwrap().events, history.events.len() as u64);
            for thread in 1..=threads {
                let wanted = history.of(thread);
                let read: Vec<Event> = trace.thread_events(thread).map(Result::unwrap).collect();
                assert!(read == wanted, "thread {thread} alone");
                let read: Vec<Event> =
                    merged.iter().filter(|event| event.thread == thread).cloned().collect();
                assert!(read == wanted, "thread {thread} merged");
                let info = trace.threads().iter().find(|info| info.thread == thread);
                let ends = info.and_then(|info| info.times);
                assert_eq!(ends, wanted.first().map(|first| (first.time, wanted.last().unwrap().time)));
            }
            let mut wanted = StackTree::new();
            history.stacks.iter().for_each(|(_, node)| wanted.add(node));
            let read = trace.stacks().unwrap().0;
            assert_eq!(read.len(), wanted.len());
            for (_, node) in &history.stacks {
                assert_eq!(read.get(node.id), wanted.get(node.id));
            }
        }
    }
}

#[test]
fn packing_saves_much() {
    let history = History::random(&mut Random::of(1), 2, 1);
    let mut events = Vec::new();
    for index in 0..50_000u64 {
        let address = 0x7f00_0000_1000 + index % 64 * 48;
        let what = What::Alloc { api: AllocApi::Malloc, size: 40, address, align: 0, stack: 3 };
        events.push(Event { time: index * 100, thread: 1, what });
        let what = What::Free { api: FreeApi::Free, address, touched: None };
        events.push(Event { time: index * 100 + 50, thread: 1, what });
    }
    let history = History { events, ..history };
    let (plain, packed) = (history.write(false).len(), history.write(true).len());
    // alloc: tag, dt, size, address, stack; free: tag, dt, address.
    assert!(plain < 100_000 * 9 / 2, "{plain}");
    assert!(packed < plain / 10, "{packed} of {plain}");
}

fn writer() -> TraceWriter<Vec<u8>> {
    TraceWriter::create(Vec::new(), &Head::default(), WriteOptions::default()).unwrap()
}

fn mark(thread: u32, time: u64, note: &str) -> Event {
    Event { time, thread, what: What::Mark(note.into()) }
}

/// A writer whose bytes can be looked at before it is done.
#[derive(Clone, Default)]
struct Shared(std::rc::Rc<std::cell::RefCell<Vec<u8>>>);

impl std::io::Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A copy that is made at any time is a whole trace, and what is written goes on as if there had been none.
#[test]
fn what_was_written_so_far_is_a_trace() {
    let history = History::random(&mut Random::new(), 5, 20_000);
    for packed in [false, true] {
        let shared = Shared::default();
        let mut writer =
            TraceWriter::create(shared.clone(), &Head::default(), WriteOptions { packed }).unwrap();
        let ends = |events: usize| End { events: events as u64, ..End::default() };
        for (number, event) in history.events.iter().enumerate() {
            if number % 7000 == 0 {
                let end = writer.so_far(&ends(number)).unwrap();
                let copy = [&shared.0.borrow()[..], &end].concat();
                let trace = Trace::of_bytes(copy).unwrap();
                let (read, damage) = read_all(&trace);
                assert!(damage.is_empty(), "{damage}");
                assert_eq!((read.len(), trace.end().unwrap().events), (number, number as u64));
            }
            writer.event(event).unwrap();
        }
        let count = history.events.len();
        writer.finish(&ends(count)).unwrap();
        let trace = Trace::of_bytes(shared.0.borrow().clone()).unwrap();
        let (read, damage) = read_all(&trace);
        assert!(damage.is_empty() && read.len() == count, "{damage}");
        for thread in 1..=5 {
            let read: Vec<Event> = trace.thread_events(thread).map(Result::unwrap).collect();
            assert!(read == history.of(thread), "thread {thread}");
        }
    }
}

/// What cannot be written is refused, and what comes before and after it is not harmed.
#[test]
fn what_has_no_record_is_refused() {
    let alloc = |api, align, address| What::Alloc { api, size: 8, address, align, stack: 0 };
    let refused = [
        mark(1, 99, "before the last one"),
        Event { time: 100, thread: 1, what: alloc(AllocApi::Malloc, 4, 16) },
        Event { time: 100, thread: 1, what: alloc(AllocApi::Memalign, 64, 16) },
        Event { time: 100, thread: 1, what: alloc(AllocApi::Malloc, 0, u64::MAX / 2) },
        Event { time: 100, thread: 1, what: What::Free { api: FreeApi::Null, address: 1, touched: None } },
        mark(1, 100, &"x".repeat(2 << 20)),
    ];
    for event in refused {
        let mut writer = writer();
        let good = [mark(1, 100, "a"), Event { time: 100, thread: 1, what: alloc(AllocApi::New, 0, 0x5000) }];
        good.iter().for_each(|event| writer.event(event).unwrap());
        let error = writer.event(&event).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{error}");
        let after =
            [mark(1, 100, "b"), Event { time: 101, thread: 1, what: alloc(AllocApi::New, 0, 0x5010) }];
        after.iter().for_each(|event| writer.event(event).unwrap());
        let trace = Trace::of_bytes(writer.finish(&End::default()).unwrap()).unwrap();
        let read: Vec<Event> = trace.events().map(Result::unwrap).collect();
        assert_eq!(read, [good, after].concat());
    }
}

/// Whoever wrote it down as a realloc.
#[test]
fn a_realloc_that_answered_null_is_read_as_a_free() {
    let event = |time, what| Event { time, thread: 1, what };
    let alloc = What::Alloc { api: AllocApi::Malloc, size: 10, address: 0x5000, align: 0, stack: 0 };
    let mut writer = writer();
    writer.event(&event(1, alloc.clone())).unwrap();
    writer.event(&event(2, What::Realloc { took: 3, old: 0x5000, size: 0, new: 0, stack: 7 })).unwrap();
    writer.event(&event(3, alloc.clone())).unwrap();
    let trace = Trace::of_bytes(writer.finish(&End::default()).unwrap()).unwrap();
    let (read, _) = read_all(&trace);
    let free = What::Free { api: FreeApi::Other, address: 0x5000, touched: None };
    assert_eq!(read, [event(1, alloc.clone()), event(2, free), event(3, alloc)]);
    assert_eq!(
        What::realloc(3, 16, 5, 32, 7),
        What::Realloc { took: 3, old: 16, size: 5, new: 32, stack: 7 }
    );
}

/// A thread's number may be used again after its end, and the file still has one row of blocks for it.
#[test]
fn threads_end_and_come_back() {
    let mut writer = writer();
    let mut wanted = Vec::new();
    for round in 0..1000 {
        let end = Event { time: 2 * round + 1, thread: 5, what: What::ThreadEnd };
        for event in [mark(5, 2 * round, "here"), end] {
            writer.event(&event).unwrap();
            wanted.push(event);
        }
    }
    let trace = Trace::of_bytes(writer.finish(&End::default()).unwrap()).unwrap();
    assert_eq!(trace.threads()[0].blocks, 1000);
    let (events, damage) = read_all(&trace);
    assert!(damage.is_empty(), "{damage}");
    assert!(events == wanted);
}

#[test]
fn heads_come_back() {
    let head = Head {
        process: 12,
        parent: 3,
        program: "/bin/ß".into(),
        command: vec!["a b".into(), "\"".into()],
        clock: "tsc".into(),
        ticks_per_second: 2_000_000_000,
        start_ticks: 1000,
        start_monotonic_ns: 500,
        ..Head::default()
    };
    let end = End {
        reason: "exit".into(),
        end_ticks: 4_001_000,
        end_monotonic_ns: 1_000_500,
        events: 0,
        lost: 7,
        signal: Some(11),
        status: Some(3),
        live: Some(Counted {
            at_ns: 5,
            live_bytes: 1000,
            whole: true,
            large_blocks: 1,
            large_bytes: 904,
            classes: vec![(48, 2), (64, 0)],
        }),
        bytes: 0,
    };
    let writer = TraceWriter::create(Vec::new(), &head, WriteOptions::default()).unwrap();
    let trace = Trace::of_bytes(writer.finish(&end).unwrap()).unwrap();
    assert_eq!((trace.head(), trace.end()), (&head, Some(&end)));
    assert_eq!(trace.events().count(), 0);
    // The clocks of head and end say 4 ticks in a nanosecond, which is more to be believed than the head's rate.
    assert_eq!((trace.ticks_to_ns(1000), trace.ticks_to_ns(5000), trace.ticks_to_ns(3)), (0, 1000, 0));
}

/// How long a tick is, from what there is to tell.
#[test]
fn rates() {
    let of = |head: Head, clock: &[(u64, u64)]| {
        let mut writer = TraceWriter::create(Vec::new(), &head, WriteOptions::default()).unwrap();
        for &(time, ns) in clock {
            writer.event(&Event { time, thread: 1, what: What::Clock { ns } }).unwrap();
        }
        // No end: it was killed.
        let mut bytes = writer.finish(&End::default()).unwrap();
        let end = bytes.windows(6).rposition(|window| window == b"QTRB\x03\x01").unwrap();
        bytes.truncate(end);
        let trace = Trace::of_bytes(bytes).unwrap();
        assert_eq!(trace.end(), None);
        trace.duration_ns(1000)
    };
    let head = Head { ticks_per_second: 500_000_000, start_monotonic_ns: 10, ..Head::default() };
    assert_eq!(of(head.clone(), &[]), 2000);
    assert_eq!(of(head.clone(), &[(100, 310), (200, 1010)]), 5000);
    // The recorder's ticks last 4 ns where it has no other clock than this.
    let monotonic = Head { clock: "monotonic".into(), ticks_per_second: 250_000_000, ..head };
    assert_eq!(of(monotonic.clone(), &[]), 4000);
    assert_eq!(of(monotonic.clone(), &[(100, 410), (200, 810)]), 4000);
    assert_eq!(of(Head { ticks_per_second: 0, ..monotonic }, &[]), 1000);
    assert_eq!(of(Head::default(), &[]), 1000);
    assert_eq!(of(Head { ticks_per_second: 1, ..Head::default() }, &[]), 1_000_000_000_000);
}
