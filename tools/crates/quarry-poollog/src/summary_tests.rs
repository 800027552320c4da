// SPDX-License-Identifier: MIT
//! What is concluded from records.

use super::*;

const SECOND: u64 = 1_000_000_000;

fn head(process: u32) -> Record {
    Record::Head(Head { process, every: 300, start_ns: 0, program: format!("p{process}") })
}

fn name(process: u32, pool: u32, time_ns: u64) -> Record {
    Record::Name(Name { time_ns, process, pool, parent: 0, kind: "fifo".into(), name: format!("n{pool}") })
}

fn entry(
    process: u32,
    pool: u32,
    event: Event,
    time_ns: u64,
    held: u64,
    used: u64,
    operations: u64,
) -> Record {
    let (requested, slow_ns) = (operations * 10, operations * 2);
    Record::Entry(Entry {
        time_ns,
        process,
        pool,
        event,
        chunk_gets: (operations / 100) as u32,
        held,
        used,
        requested,
        operations,
        slow_ns,
    })
}

fn summary(records: Vec<Record>) -> Summary {
    let mut summary = Summary::default();
    for record in records {
        summary.add(record);
    }
    summary
}

#[test]
fn a_pool_in_numbers() {
    let s = summary(vec![
        head(1),
        name(1, 1, SECOND),
        entry(1, 1, Event::ChunkGet, SECOND, 1000, 0, 0),
        entry(1, 1, Event::Period, 2 * SECOND, 1000, 800, 300),
        entry(1, 1, Event::ChunkGet, 4 * SECOND, 2000, 900, 400),
        entry(1, 1, Event::Death, 5 * SECOND, 0, 0, 500),
    ]);
    let pool = &s.pools[0];
    assert_eq!((pool.operations(), pool.requested(), pool.slow_ns()), (500, 5000, 1000));
    assert_eq!((pool.life_ns(), pool.entries(), pool.died), (4 * SECOND, 4, true));
    assert_eq!(pool.rate(), Some(125.0));
    assert_eq!((pool.peak_held.held, pool.peak_held.used, pool.peak_used.used), (2000, 900, 900));
    assert_eq!(pool.used_at_peak(), Some(0.45));
    // Held 1000 for 3 s and 2000 for 1 s; used 0, 800 twice, 900.
    assert_eq!(pool.mean(), Some((1250.0, 625.0)));
    assert_eq!(pool.used_on_average(), Some(0.5));
    assert_eq!((pool.chunk_gets, pool.busiest_minute), (5, 500));
    assert_eq!(pool.events, [0, 1, 1, 2, 0, 0]);
}

#[test]
fn the_child_of_a_fork_counts_from_its_birth() {
    let s = summary(vec![
        head(1),
        name(1, 1, 0),
        entry(1, 1, Event::Period, SECOND, 10, 5, 1000),
        head(2),
        name(2, 1, 2 * SECOND),
        entry(2, 1, Event::Birth, 2 * SECOND, 10, 5, 1100),
        entry(1, 1, Event::Period, 3 * SECOND, 10, 5, 2000),
        entry(2, 1, Event::Period, 3 * SECOND, 20, 5, 1400),
    ]);
    let counts: Vec<_> = s.pools.iter().map(|pool| (pool.operations(), pool.chunk_gets)).collect();
    assert_eq!(counts, [(2000, 20), (300, 3)]);
    assert_eq!(s.pools[1].busiest_minute, 300);
    assert_eq!(s.operations(), 2300);
}

#[test]
fn numbers_that_come_again_are_others() {
    let s = summary(vec![
        head(1),
        name(1, 1, 0),
        entry(1, 1, Event::Period, 5, 1, 1, 300),
        head(1),
        name(1, 1, 9),
        entry(1, 1, Event::Period, 10, 2, 2, 600),
    ]);
    assert_eq!((s.processes.len(), s.pools.len()), (2, 2));
    assert_eq!([s.pools[0].operations(), s.pools[1].operations()], [300, 600]);
    assert_eq!([s.pools[0].process, s.pools[1].process], [0, 1]);
}

#[test]
fn pools_without_their_first_records_are_still_pools() {
    let s = summary(vec![
        entry(7, 3, Event::Period, 100, 1, 1, 900),
        entry(7, 3, Event::Period, 200, 1, 1, 1200),
    ]);
    assert!(s.processes[0].head.is_none() && s.pools[0].named.is_none());
    let pool = &s.pools[0];
    assert_eq!((pool.operations(), pool.chunk_gets, pool.life_ns()), (300, 3, 100));
}

#[test]
fn counters_wrap_and_times_go_back_without_harm() {
    let entry = |event, time_ns, chunk_gets| {
        Record::Entry(Entry {
            time_ns,
            process: 1,
            pool: 1,
            event,
            chunk_gets,
            held: u64::MAX,
            used: u64::MAX,
            requested: u64::MAX,
            operations: u64::MAX,
            slow_ns: u64::MAX,
        })
    };
    let get = |time_ns, chunk_gets| entry(Event::ChunkGet, time_ns, chunk_gets);
    let s = summary(vec![name(1, 1, 50), get(60, 5), get(55, 4), get(70, 6), get(u64::MAX, (1 << 31) + 7)]);
    let pool = &s.pools[0];
    assert_eq!(pool.out_of_order, 1);
    assert_eq!(pool.last_ns, u64::MAX);
    // One is a moment older than the one before it; the last one is damaged.
    assert_eq!(pool.chunk_gets, 6);
    assert!(pool.mean().is_some() && pool.used_on_average().is_some());
    let wrapped = summary(vec![name(1, 1, 0), entry(Event::Birth, 1, u32::MAX), get(2, 4)]);
    assert_eq!(wrapped.pools[0].chunk_gets, 5);
}

#[test]
fn the_busiest_minute_is_found() {
    let at = |seconds: u64, operations| entry(1, 1, Event::Period, seconds * SECOND, 1, 1, operations);
    let s = summary(vec![name(1, 1, 0), at(10, 100), at(50, 200), at(61, 1200), at(70, 1300), at(130, 1310)]);
    assert_eq!(s.pools[0].busiest_minute, 1100);
    assert_eq!(s.pools[0].operations(), 1310);
}

#[test]
fn an_entry_that_is_late_counts_nothing_twice() {
    let at = |ms: u64, operations| entry(1, 1, Event::Period, ms * 1_000_000, 1, 1, operations);
    // Two threads; the last entry is late, too.
    let s = summary(vec![name(1, 1, 0), at(1, 600), at(2, 300), at(3, 900), at(4, 1300), at(5, 1200)]);
    let pool = &s.pools[0];
    assert_eq!((pool.operations(), pool.busiest_minute), (1300, 1300));
    assert_eq!((pool.requested(), pool.slow_ns()), (13_000, 2600));
}
