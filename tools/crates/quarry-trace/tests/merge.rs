// SPDX-License-Identifier: MIT
//! The order of events over threads.

mod common;

use std::collections::{HashMap, HashSet, VecDeque};

use common::{Block, History, Random, head, read_all};
use quarry_trace::live::Tracker;
use quarry_trace::{
    AllocApi, End, Event, FreeApi, Head, PoolWhat, ThreadId, Trace, TraceError, TraceWriter, What,
    WriteOptions,
};

fn alloc(address: u64) -> What {
    What::Alloc { api: AllocApi::Malloc, size: 16, address, align: 0, stack: 0 }
}

fn free(address: u64) -> What {
    What::Free { api: FreeApi::Free, address, touched: None }
}

fn realloc(old: u64, new: u64, took: u64) -> What {
    What::Realloc { took, old, size: 16, new, stack: 0 }
}

/// Events by time and thread, as a trace.
fn trace(events: &[(u64, ThreadId, What)]) -> Trace {
    let mut events = events.to_vec();
    events.sort_by_key(|event| event.0);
    let mut writer = TraceWriter::create(Vec::new(), &Head::default(), WriteOptions::default()).unwrap();
    for (time, thread, what) in events {
        writer.event(&Event { time, thread, what }).unwrap();
    }
    Trace::of_bytes(writer.finish(&End::default()).unwrap()).unwrap()
}

fn merged(trace: &Trace) -> Vec<Event> {
    trace.events().map(Result::unwrap).collect()
}

/// The order, as (time, thread).
fn order(events: &[(u64, ThreadId, What)]) -> Vec<(u64, ThreadId)> {
    merged(&trace(events)).iter().map(|event| (event.time, event.thread)).collect()
}

const A: u64 = 0x1000;
const B: u64 = 0x2000;

#[test]
fn by_time_then_by_thread() {
    let events = [(5, 2, alloc(A)), (3, 9, alloc(B)), (5, 1, alloc(0x30)), (4, 2, What::Mark("x".into()))];
    assert_eq!(order(&events), [(3, 9), (4, 2), (5, 1), (5, 2)]);
}

/// Of two at the same time the possible one is first, whoever it is.
#[test]
fn the_state_decides_ties() {
    assert_eq!(order(&[(1, 1, alloc(A)), (5, 1, alloc(B)), (5, 2, free(A))]), [(1, 1), (5, 1), (5, 2)]);
    assert_eq!(order(&[(1, 2, alloc(A)), (5, 1, alloc(A)), (5, 2, free(A))]), [(1, 2), (5, 2), (5, 1)]);
    assert_eq!(order(&[(5, 1, free(A)), (5, 2, alloc(A))]), [(5, 2), (5, 1)]);
    assert_eq!(order(&[(5, 1, free(A)), (5, 2, free(B))]), [(5, 1), (5, 2)], "neither is possible");
    // Three threads hand a block around within one tick.
    let around =
        [(1, 3, alloc(A)), (7, 1, alloc(A)), (7, 2, free(A)), (7, 3, free(A)), (7, 3, What::ThreadEnd)];
    assert_eq!(order(&around), [(1, 3), (7, 2), (7, 1), (7, 3), (7, 3)]);
}

/// A thread ends with a realloc that is handed out early. Who comes in its place has none of its times.
#[test]
fn a_place_is_not_left_to_the_next_thread() {
    let mark = || What::Mark("x".into());
    let events = [
        (1, 1, alloc(A)),
        (10, 1, realloc(A, B, 100)),
        (20, 2, alloc(A)),
        (5, 3, mark()),
        (40, 3, mark()),
        (30, 4, mark()),
        (500, 4, mark()),
        (200, 2, mark()),
    ];
    let wanted = [(1, 1), (5, 3), (10, 1), (20, 2), (30, 4), (40, 3), (200, 2), (500, 4)];
    assert_eq!(order(&events), wanted);
}

/// The same among the blocks of one pool. One with frames ends blocks of which no event says so: the thread's number decides.
#[test]
fn the_state_of_a_pool_decides_ties() {
    let of = |pool, what| What::Pool { pool, what };
    let alloc = |pool, address| of(pool, PoolWhat::Alloc { size: 16, address, align: 0, stack: 0 });
    let free = |pool, address| of(pool, PoolWhat::Free { address });
    let resized = |pool, old, new| of(pool, PoolWhat::Resized { old, size: 16, new, stack: 0 });
    let handed = [(1, 2, alloc(7, A)), (5, 1, alloc(7, A)), (5, 2, free(7, A))];
    assert_eq!(order(&handed), [(1, 2), (5, 2), (5, 1)]);
    assert_eq!(order(&[(5, 1, free(7, A)), (5, 2, alloc(7, A))]), [(5, 2), (5, 1)]);
    assert_eq!(
        order(&[(1, 2, alloc(7, A)), (5, 1, alloc(8, A)), (5, 2, free(7, A))]),
        [(1, 2), (5, 1), (5, 2)]
    );
    let moved = [(1, 2, alloc(7, A)), (5, 1, alloc(7, A)), (5, 2, resized(7, A, B)), (5, 3, free(7, B))];
    assert_eq!(order(&moved), [(1, 2), (5, 2), (5, 1), (5, 3)]);
    for ends in [PoolWhat::Emptied, PoolWhat::Destroyed] {
        let gone = [(1, 2, alloc(7, A)), (2, 2, of(7, ends)), (5, 1, free(7, A)), (5, 2, alloc(7, A))];
        assert_eq!(order(&gone), [(1, 2), (2, 2), (5, 2), (5, 1)]);
    }
    let frames =
        [(1, 2, of(7, PoolWhat::Pushed)), (2, 2, alloc(7, A)), (5, 1, alloc(7, A)), (5, 2, free(7, A))];
    assert_eq!(order(&frames), [(1, 2), (2, 2), (5, 1), (5, 2)]);
    // What the heap has at an address is not the pool's.
    assert_eq!(
        order(&[(1, 2, self::alloc(A)), (5, 1, alloc(7, A)), (5, 2, self::free(A))]),
        [(1, 2), (5, 1), (5, 2)]
    );
}

/// A realloc stands at its end, unless its old block is handed out before.
#[test]
fn a_realloc_has_two_halves() {
    // Its new block is freed by another thread while it runs.
    let events = [(1, 1, alloc(A)), (2, 2, alloc(B)), (10, 1, realloc(A, B, 10)), (15, 2, free(B))];
    assert_eq!(order(&events), [(1, 1), (2, 2), (15, 2), (10, 1)]);
    // Its old block is handed out while it runs.
    let events = [(1, 1, alloc(A)), (10, 1, realloc(A, B, 10)), (15, 2, alloc(A)), (16, 2, What::ThreadEnd)];
    assert_eq!(order(&events), [(1, 1), (10, 1), (15, 2), (16, 2)]);
    // The same at its very end, and by a realloc of a third thread.
    let events = [(1, 1, alloc(A)), (10, 3, realloc(A, B, 10)), (20, 2, alloc(A)), (3, 4, What::ThreadEnd)];
    assert_eq!(order(&events), [(1, 1), (3, 4), (10, 3), (20, 2)]);
    let events = [
        (1, 1, alloc(A)),
        (2, 2, alloc(B)),
        (10, 1, realloc(A, 0x3000, 100)),
        (11, 2, realloc(B, A, 4)),
        (12, 3, alloc(B)),
    ];
    assert_eq!(order(&events), [(1, 1), (2, 2), (10, 1), (11, 2), (12, 3)]);
    // One that stays needs no time.
    let events = [(1, 1, alloc(A)), (10, 1, realloc(A, A, 10)), (15, 2, alloc(B))];
    assert_eq!(order(&events), [(1, 1), (10, 1), (15, 2)]);
    // One that never ends keeps its thread back, and nobody else.
    let events = [(1, 1, alloc(A)), (2, 1, realloc(A, B, u64::MAX)), (3, 1, free(B)), (9, 2, alloc(0x30))];
    assert_eq!(order(&events), [(1, 1), (9, 2), (2, 1), (3, 1)]);
}

/// What the page says, in the simplest way.
fn reference(threads: &[Vec<Event>]) -> Vec<Event> {
    let mut queues: Vec<VecDeque<Event>> =
        threads.iter().map(|events| events.iter().cloned().collect()).collect();
    let mut live = HashSet::new();
    let mut merged = Vec::new();
    let over = |event: &Event| match event.what {
        What::Realloc { took, old, new, .. } if old != new => event.time.saturating_add(took),
        _ => event.time,
    };
    // A thread's event is never over before the one before it.
    let mut floor = vec![0; queues.len()];
    loop {
        let keys: Vec<Option<u64>> = queues
            .iter()
            .zip(&floor)
            .map(|(queue, floor)| queue.front().map(|event| over(event).max(*floor)))
            .collect();
        let Some(now) = keys.iter().flatten().min().copied() else { return merged };
        let possible = |event: &Event| match event.what {
            What::Alloc { address, .. } => !live.contains(&address),
            What::Free { address, .. } => live.contains(&address),
            What::Realloc { old, new, .. } => live.contains(&old) && (old == new || !live.contains(&new)),
            _ => true,
        };
        let tied: Vec<usize> = (0..keys.len()).filter(|&index| keys[index] == Some(now)).collect();
        let mut chosen = *tied.iter().find(|&&index| possible(&queues[index][0])).unwrap_or(&tied[0]);
        // Of a coarse clock reallocs may seem to wait for each other in a ring.
        for _ in 0..64 {
            let event = &queues[chosen][0];
            let gets = match event.what {
                What::Alloc { address, .. } => Some(address),
                What::Realloc { old, new, .. } if old != new => Some(new),
                _ => None,
            };
            // Of several the one that begins first.
            let giver = (0..queues.len()).filter(|&other| {
                other != chosen
                    && queues[other].front().is_some_and(|head| {
                        head.time <= now
                            && matches!(head.what, What::Realloc { old, new, .. } if old != new && Some(old) == gets)
                    })
            });
            match giver.min_by_key(|&giver| queues[giver][0].time) {
                Some(giver) => chosen = giver,
                None => break,
            }
        }
        let event = queues[chosen].pop_front().unwrap();
        floor[chosen] = floor[chosen].max(over(&event).min(now));
        match event.what {
            What::Alloc { address, .. } => {
                live.insert(address);
            }
            What::Free { address, .. } => {
                live.remove(&address);
            }
            What::Realloc { old, new, .. } => {
                live.remove(&old);
                live.insert(new);
            }
            _ => {}
        }
        merged.push(event);
    }
}

/// What a thread of the imitated process is about to do.
enum Doing {
    Nothing,
    /// In free, from this time on.
    Freeing(u64),
    /// In realloc: its event so far, and whether it has the new block yet.
    Moving(Event, bool),
}

/// A process whose allocator hands out addresses again as soon as it can. Each step takes a moment, and threads
/// take steps in random order; a free gives its block away later than it is recorded, an allocation is recorded
/// later than it has its block. `tick` moments make a tick.
fn process(random: &mut Random, threads: usize, steps: u64, tick: u64) -> Vec<Vec<Event>> {
    let mut recorded = vec![Vec::new(); threads];
    let mut doing: Vec<Doing> = (0..threads).map(|_| Doing::Nothing).collect();
    let mut unused: Vec<u64> = (1..40).map(|block| block * 16).collect();
    let mut live: Vec<u64> = Vec::new();
    let mut now = 0;
    for _ in 0..steps {
        let thread = random.below(threads as u64) as usize;
        // Two looks at the clock in each step, and a moment between them.
        let (before, after) = (now / tick, (now + 2) / tick);
        now += 3;
        let id = thread as ThreadId + 1;
        let event = |time, what| Event { time, thread: id, what };
        match std::mem::replace(&mut doing[thread], Doing::Nothing) {
            Doing::Freeing(address) => unused.push(address),
            Doing::Moving(mut moving, false) => {
                let What::Realloc { new, .. } = &mut moving.what else { unreachable!() };
                match unused.pop() {
                    Some(address) => {
                        *new = address;
                        doing[thread] = Doing::Moving(moving, true);
                    }
                    None => doing[thread] = Doing::Moving(moving, false),
                }
            }
            Doing::Moving(mut moving, true) => {
                let What::Realloc { took, old, new, .. } = &mut moving.what else { unreachable!() };
                *took = after - moving.time;
                unused.push(*old);
                live.push(*new);
                recorded[thread].push(moving);
            }
            Doing::Nothing => match random.below(3) {
                0 if !unused.is_empty() => {
                    let address = unused.pop().unwrap();
                    live.push(address);
                    recorded[thread].push(event(after, alloc(address)));
                }
                1 if !live.is_empty() => {
                    let address = live.swap_remove(random.below(live.len() as u64) as usize);
                    recorded[thread].push(event(before, free(address)));
                    doing[thread] = Doing::Freeing(address);
                }
                2 if !live.is_empty() => {
                    let address = live.swap_remove(random.below(live.len() as u64) as usize);
                    doing[thread] = Doing::Moving(event(before, realloc(address, 0, 0)), false);
                }
                _ => {}
            },
        }
    }
    recorded
}

fn write(threads: &[Vec<Event>]) -> Trace {
    let mut writer = TraceWriter::create(Vec::new(), &Head::default(), WriteOptions::default()).unwrap();
    threads.iter().flatten().for_each(|event| writer.event(event).unwrap());
    Trace::of_bytes(writer.finish(&End::default()).unwrap()).unwrap()
}

/// With a clock that tells all moments apart, what really happened is possible in the order that is found. With a
/// coarse one, the order is the one that the page defines.
#[test]
fn what_happened_is_possible() {
    let mut random = Random::new();
    for round in 0..200 {
        let tick = if round % 2 == 0 { 1 } else { 1 + random.below(300) };
        let threads = process(&mut random, 1 + round % 7, 3000, tick);
        let trace = write(&threads);
        let events = merged(&trace);
        let mut tracker = Tracker::new();
        events.iter().for_each(|event| {
            tracker.feed(event);
        });
        if tick == 1 {
            assert_eq!(tracker.impossible().total(), 0, "{:?}", tracker.impossible());
        }
        let wanted = reference(&threads);
        if let Some(at) = (0..wanted.len()).find(|&at| events.get(at) != Some(&wanted[at])) {
            let near = |events: &[Event]| -> Vec<String> {
                let near = events.iter().skip(at.saturating_sub(5)).take(10);
                near.map(|event| format!("{} {} {:?}", event.time, event.thread, event.what)).collect()
            };
            panic!("tick {tick}, event {at}: {:#?}\nwanted {:#?}", near(&events), near(&wanted));
        }
        assert_eq!(events.len(), wanted.len());
        // Who knows what is live need not have it found out.
        let (mut merged, mut tracker, mut at) = (trace.events(), Tracker::new(), 0);
        while let Some(event) = merged.next_with(|address| tracker.is_live(address)) {
            let event = event.unwrap();
            tracker.feed(&event);
            assert_eq!(event, wanted[at]);
            at += 1;
        }
        assert_eq!(at, wanted.len());
    }
}

/// Threads that come and go: those that are over are forgotten.
#[test]
fn many_threads_one_after_the_other() {
    let mut events = Vec::new();
    for thread in 0..50_000u32 {
        events.push((u64::from(thread) * 10, thread + 1, alloc(A + u64::from(thread) * 16)));
        events.push((u64::from(thread) * 10 + 15, thread + 1, free(A + u64::from(thread) * 16)));
    }
    let trace = trace(&events);
    let times: Vec<u64> = merged(&trace).iter().map(|event| event.time).collect();
    assert_eq!(times.len(), 100_000);
    assert!(times.is_sorted());
    assert_eq!(trace.threads().len(), 50_000);
}

/// More threads at once than a reader has room for are an error, after which there is nothing.
#[test]
fn too_many_threads_at_once() {
    let mut bytes = head();
    for thread in 1..=40_000 {
        bytes.extend(Block::events(thread, 0, &[7 | 1 << 4, 5, 7 | 1 << 4, 5]).bytes());
    }
    let trace = Trace::of_bytes(bytes).unwrap();
    let mut events = trace.events();
    let error = events.find_map(Result::err).unwrap();
    assert!(matches!(error, TraceError::Threads(_)), "{error}");
    assert!(events.next().is_none());
}

/// Blocks of one thread that lie apart in time are read when their time comes; all else keeps its order.
#[test]
fn order_does_not_depend_on_the_file() {
    let mut random = Random::new();
    let history = History::random(&mut random, 5, 3000);
    let trace = Trace::of_bytes(history.write(true)).unwrap();
    let (events, _) = read_all(&trace);
    let mut of_thread: HashMap<ThreadId, VecDeque<Event>> = HashMap::new();
    for event in &history.events {
        of_thread.entry(event.thread).or_default().push_back(event.clone());
    }
    for event in &events {
        assert_eq!(of_thread.get_mut(&event.thread).unwrap().pop_front().as_ref(), Some(event));
    }
}
