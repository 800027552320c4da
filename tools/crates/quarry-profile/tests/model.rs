// SPDX-License-Identifier: MIT
//! The model against one that keeps everything, and its sums against each other.

mod common;

use std::collections::BTreeMap;

use common::{Random, alloc, free, named, profile, realloc};
use quarry_profile::model::{Division, Live, Median, Profile};
use quarry_profile::query::{self, At, By, Query, Sort, live_at, live_over_time};
use quarry_trace::sample::Sampling;
use quarry_trace::{Event, Head, PoolWhat, What};

/// A program by chance: events at times that grow, some of which cannot be.
fn program(seed: u64, events: usize) -> Vec<Event> {
    let mut random = Random(seed);
    let (mut live, mut time, mut all): (Vec<u64>, u64, Vec<Event>) = (Vec::new(), 1000, Vec::new());
    let mut fresh = 0x10000;
    while all.len() < events {
        time += random.below(50);
        let thread = random.below(3) as u32 + 1;
        let stack = random.below(12) as u32;
        let size = if random.below(30) == 0 { random.below(1 << 20) } else { random.below(500) };
        match random.below(10) {
            0..=4 => {
                fresh += 1 << 21;
                live.push(fresh);
                all.push(alloc(time, thread, fresh, size, stack));
            }
            5..=7 if !live.is_empty() => {
                let address = live.swap_remove(random.below(live.len() as u64) as usize);
                all.push(free(time, thread, address));
            }
            8 if !live.is_empty() => {
                let at = random.below(live.len() as u64) as usize;
                let new = if random.below(2) == 0 { live[at] } else { live[at] + 16 };
                all.push(realloc(time, thread, live[at], size, new, stack));
                live[at] = new;
            }
            // Of a block that nobody knows, or one where a block is.
            9 if random.below(20) == 0 => all.push(free(time, thread, 0x77)),
            9 if random.below(20) == 0 && !live.is_empty() => {
                all.push(alloc(time, thread, live[0], size, stack))
            }
            _ => {}
        }
    }
    all
}

/// What is live by stack, from the events alone.
fn live_by_stack(events: &[Event]) -> BTreeMap<u32, (u64, u64)> {
    let mut blocks: BTreeMap<u64, (u64, u32)> = BTreeMap::new();
    for event in events {
        match event.what {
            What::Alloc { address, size, stack, .. } => _ = blocks.insert(address, (size, stack)),
            What::Free { address, .. } => _ = blocks.remove(&address),
            What::Realloc { old, new, size, stack, .. } => {
                let before = blocks.remove(&old);
                let stack = if stack == 0 { before.map_or(0, |block| block.1) } else { stack };
                blocks.insert(new, (size, stack));
            }
            _ => {}
        }
    }
    let mut sums: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for (size, stack) in blocks.into_values() {
        let sum = sums.entry(stack).or_default();
        *sum = (sum.0 + size, sum.1 + 1);
    }
    sums
}

/// What a profile says is live by stack.
fn said(profile: &Profile, at: At) -> BTreeMap<u32, (u64, u64)> {
    let mut sums: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for row in &profile.rows {
        let live = live_at(row, at);
        let sum = sums.entry(row.key.stack).or_default();
        *sum = (sum.0 + live.bytes.value(), sum.1 + live.blocks.value());
    }
    sums.retain(|_, sum| *sum != (0, 0));
    sums
}

#[test]
fn each_moment_is_what_the_events_before_it_leave() {
    for seed in 0..40 {
        let events = program(seed, 3000);
        let (first, last) = (events[0].time, events[events.len() - 1].time);
        let moments = [first + (last - first) / 3, first + (last - first) / 2];
        for division in [Division::Stack, Division::Thread, Division::Size] {
            let profile = profile(&events, Sampling::ALL, division, &moments);
            assert_eq!(said(&profile, At::End), live_by_stack(&events), "seed {seed}");
            let at_peak = &events[..profile.peak.events as usize];
            assert_eq!(said(&profile, At::Peak), live_by_stack(at_peak), "seed {seed}");
            for (number, moment) in moments.iter().enumerate() {
                let before: Vec<Event> =
                    events.iter().filter(|event| event.time <= *moment).cloned().collect();
                assert_eq!(said(&profile, At::Moment(number)), live_by_stack(&before), "seed {seed}");
            }
        }
    }
}

#[test]
fn the_peak_is_the_exact_moment() {
    for seed in 40..60 {
        let events = program(seed, 1000);
        let profile = profile(&events, Sampling::ALL, Division::Stack, &[]);
        let bytes = |n: usize| live_by_stack(&events[..n]).values().map(|sum| sum.0).sum::<u64>();
        let most = (0..=events.len()).map(bytes).max().unwrap();
        assert_eq!(profile.peak.live.bytes.value(), most);
        assert_eq!(bytes(profile.peak.events as usize), most);
        assert_eq!(profile.peak.time, events[profile.peak.events as usize - 1].time);
    }
}

#[test]
fn rows_add_up_to_the_whole_and_series_to_rows() {
    for seed in 60..80 {
        let events = program(seed, 4000);
        for division in [Division::Stack, Division::Thread, Division::Size] {
            let profile = profile(&events, Sampling::ALL, division, &[]);
            let all: Vec<u32> = (0..profile.rows.len() as u32).collect();
            let sum =
                |of: &dyn Fn(&quarry_profile::model::Row) -> u64| profile.rows.iter().map(of).sum::<u64>();
            assert_eq!(sum(&|row| row.sums().live_bytes.value()), profile.end.bytes.value());
            assert_eq!(sum(&|row| row.peak().bytes.value()), profile.peak.live.bytes.value());
            let live = live_over_time(&profile, &all);
            assert_eq!(*live.last().unwrap() as u64, profile.end.bytes.value());
            for (number, row) in profile.rows.iter().enumerate() {
                let own = live_over_time(&profile, &[number as u32]);
                assert_eq!(*own.last().unwrap() as u64, row.sums().live_bytes.value());
                let born: f64 = row.series.entries().iter().map(|entry| f64::from(entry.born)).sum();
                let bytes = row.sums().bytes.value() as f64;
                assert!((born - bytes).abs() <= bytes * 1e-5, "{born} of {bytes}");
                let lives: f64 = row.lives.bars().iter().map(|bar| bar.2).sum();
                // A realloc that changes the thread or the size moves a block to another row; it survives in the last one.
                assert_eq!(lives as u64, row.sums().live.value());
            }
        }
    }
}

fn all(by: By) -> Query {
    Query { at: At::Peak, window: None, by, sort: Sort::Live, filter: None, top: 1000 }
}

/// A sum of parts that are no whole numbers depends on their order.
#[test]
fn a_sample_has_one_sum_of_all() {
    let sampling = Sampling::of(&Head { sample: 700, ..Head::default() });
    for seed in 0..40 {
        let profile = profile(&program(seed, 3000), sampling, Division::Stack, &[]);
        let calls = named(&profile, 12);
        let of = |at| query::answer(&profile, &calls, &Query { at, ..all(By::Site) }).all;
        let bounds = |live: &Live| (live.blocks.interval(), live.bytes.interval());
        let sums = of(At::End).sums;
        let sums = Live { blocks: sums.live, bytes: sums.live_bytes };
        assert_eq!([bounds(&sums), bounds(&of(At::End).at)], [bounds(&profile.end); 2], "seed {seed}");
        assert_eq!(bounds(&of(At::Peak).at), bounds(&profile.peak.live), "seed {seed}");
    }
}

#[test]
fn sizes_have_ranges() {
    assert_eq!([1, 2, 3, 65].map(Division::sizes), [(0, 0), (1, 1), (2, 3), (1 << 63, u64::MAX)]);
}

#[test]
fn groups_hide_nothing() {
    let events = program(99, 4000);
    for by in [By::Site, By::Function, By::Module, By::File, By::Thread, By::Size] {
        let profile = profile(&events, Sampling::ALL, by.division(), &[]);
        let calls = named(&profile, 12);
        let answer = query::answer(&profile, &calls, &all(by));
        let sum: u64 = answer.groups.iter().map(|group| group.at.bytes.value()).sum();
        assert_eq!(sum, profile.peak.live.bytes.value());
        assert_eq!(answer.count, answer.groups.len());
    }
}

#[test]
fn temporary_blocks_and_lives() {
    let mut events = Vec::new();
    for n in 0..100 {
        events.push(alloc(n * 10, 1, 0x1000, 8, 1));
        events.push(free(n * 10 + 3, 1, 0x1000));
        events.push(alloc(n * 10 + 5, 1, 0x10000 + n * 16, 8, 2));
    }
    let profile = profile(&events, Sampling::ALL, Division::Stack, &[]);
    let of = |stack: u32| profile.rows.iter().find(|row| row.key.stack == stack).unwrap();
    assert_eq!((of(1).sums().temporary, of(2).sums().temporary), (100, 0));
    assert_eq!(of(1).lives.median(), Median::Within(3));
    assert_eq!(of(2).lives.median(), Median::Beyond);
}

#[test]
fn a_hidden_leak_is_first_in_its_window() {
    for seed in 0..30 {
        let mut random = Random(1_000_000 + seed);
        // Twenty sites that come and go at random sizes; site 21 has a little, and one per cent more each second.
        let mut events = Vec::new();
        let (mut fresh, mut leaked) = (0x1000_0000u64, 50_000.0 + random.part() * 50_000.0);
        let mut leak: f64 = 0.0;
        let sizes: Vec<u64> = (0..20).map(|_| 1 << (4 + random.below(10))).collect();
        let mut live: Vec<Vec<u64>> = vec![Vec::new(); 20];
        for step in 0..60_000u64 {
            let time = step * 1_000_000;
            let site = random.below(20) as usize;
            let wanted = 50 + random.below(30) as usize;
            if live[site].len() < wanted {
                fresh += 1 << 16;
                live[site].push(fresh);
                events.push(alloc(time, 1, fresh, sizes[site], site as u32 + 1));
            } else {
                let at = random.below(live[site].len() as u64) as usize;
                events.push(free(time, 1, live[site].swap_remove(at)));
            }
            // A step is a millisecond.
            leaked *= 1.01f64.powf(0.001);
            if leaked - leak >= 512.0 || step == 0 {
                let size = if step == 0 { leaked as u64 } else { 512 };
                fresh += 1 << 20;
                events.push(alloc(time, 1, fresh, size, 21));
                leak += size as f64;
            }
        }
        let moments = [20_000_000_000, 50_000_000_000];
        let profile = profile(&events, Sampling::ALL, Division::Stack, &moments);
        let calls = named(&profile, 21);
        let asked = Query { window: Some((0, 1)), sort: Sort::Growth, top: 3, ..all(By::Site) };
        let answer = query::answer(&profile, &calls, &asked);
        assert_eq!(answer.groups[0].name, "0x15", "seed {seed}: {:?}", answer.groups[0].change);
    }
}

/// A load that goes again in the middle hides a leak: all together falls, and one site does not.
#[test]
fn a_site_that_rises_below_a_load_is_named() {
    let mut events = Vec::new();
    for step in 0..1000u64 {
        let address = 0x1000_0000 + step * 0x1000;
        events.push(alloc(step * 8_000_000, 1, address, 100, 1));
        if step == 400 {
            events.push(alloc(step * 8_000_000, 1, 0x10_0000, 10 << 20, 2));
        }
        if step == 550 {
            events.push(free(step * 8_000_000, 1, 0x10_0000));
        }
    }
    let profile = profile(&events, Sampling::ALL, Division::Stack, &[]);
    let answer = query::answer(&profile, &named(&profile, 2), &all(By::Site));
    let everything = query::live_over_time(&profile, &answer.all.rows);
    assert!(!quarry_profile::Course::of(&everything).is_rising());
    let (site, course) = answer.riser.unwrap();
    assert!(site == "0x1" && course.is_rising(), "{site}: {course:?}");
}

#[test]
fn samples_hold_the_truth() {
    const RATE: u64 = 4096;
    let (mut held, mut asked, mut off) = (0, 0, 0.0);
    for seed in 0..1000 {
        let mut random = Random(seed * 77 + 5);
        let (mut events, mut truth) = (Vec::new(), [0u64; 21]);
        let mut kept: Vec<u64> = Vec::new();
        for n in 0..1500u64 {
            let stack = random.below(20) as u32 + 1;
            let (size, address) = (16 + random.below(u64::from(stack) * 100), 0x1000 + n * 65_536);
            let stays = random.below(3) > 0;
            truth[stack as usize] += if stays { size } else { 0 };
            if random.part() < 1.0 - (-(size as f64) / RATE as f64).exp() {
                events.push(alloc(n, 1, address, size, stack));
                if !stays {
                    kept.push(address);
                }
            }
        }
        events.extend(kept.iter().map(|&address| free(1500, 1, address)));
        let profile = profile(&events, Sampling::one_in(RATE), Division::Stack, &[]);
        for row in profile.rows.iter().filter(|row| row.sums().live.seen() >= 5) {
            let (low, high) = row.sums().live_bytes.interval();
            let truth = truth[row.key.stack as usize];
            asked += 1;
            held += u32::from((low..=high).contains(&truth));
        }
        let all: u64 = truth.iter().sum();
        off += profile.end.bytes.value() as f64 / all as f64 - 1.0;
    }
    let part = f64::from(held) / f64::from(asked);
    assert!(asked > 5000 && (0.93..=0.985).contains(&part), "{held} of {asked}: {part}");
    assert!((off / 1000.0).abs() < 0.01, "sums are off by {} on average", off / 1000.0);
}

fn pool(time: u64, pool: u32, what: PoolWhat) -> Event {
    Event { time, thread: 1, what: What::Pool { pool, what } }
}

fn made(address: u64, size: u64, stack: u32) -> PoolWhat {
    PoolWhat::Alloc { size, address, align: 4, stack }
}

#[test]
fn a_chunk_is_not_counted_twice() {
    let created = PoolWhat::Created { parent: 0, kind: "fifo".into(), name: "queue".into() };
    let events = [
        pool(1, 1, created),
        alloc(2, 1, 0x10000, 0x10000, 1),
        pool(3, 1, made(0x10100, 1000, 2)),
        pool(4, 1, made(0x10600, 500, 3)),
        // From the kernel: no block of malloc's is around it.
        pool(5, 1, made(0x90000, 200, 2)),
        pool(6, 1, PoolWhat::Free { address: 0x10600 }),
        pool(7, 1, PoolWhat::Resized { old: 0x10100, size: 1500, new: 0x10100, stack: 2 }),
    ];
    let profile = profile(&events, Sampling::ALL, Division::Stack, &[4]);
    let at = |stack: u32, pool: u32, at: At| {
        let row = profile.rows.iter().find(|row| row.key.stack == stack && row.key.pool == pool).unwrap();
        live_at(row, at).bytes.value()
    };
    assert_eq!(
        (at(1, 0, At::Moment(0)), at(2, 1, At::Moment(0)), at(3, 1, At::Moment(0))),
        (0x10000 - 1500, 1000, 500)
    );
    assert_eq!((at(1, 0, At::End), at(2, 1, At::End), at(3, 1, At::End)), (0x10000 - 1500, 1700, 0));
    assert_eq!(profile.end.bytes.value(), 0x10000 + 200);
    assert_eq!(profile.peak.live.bytes.value(), 0x10000 + 200);
    let calls = named(&profile, 3);
    let names: Vec<String> =
        query::answer(&profile, &calls, &all(By::Site)).groups.into_iter().map(|group| group.name).collect();
    assert!(names.contains(&String::from("0x2 (pool queue)")), "{names:?}");
}

#[test]
fn pools_close_whatever_happens() {
    for seed in 0..60 {
        let mut random = Random(seed + 500);
        let (mut events, mut blocks): (Vec<Event>, Vec<(u32, u64)>) = (Vec::new(), Vec::new());
        let mut chunks: Vec<(u64, u64)> = Vec::new();
        for time in 0..800 {
            let number = random.below(3) as u32 + 1;
            match random.below(12) {
                0 => {
                    let at = 0x100000 * (1 + random.below(6));
                    let size = 4096 << random.below(4);
                    chunks.push((at, size));
                    events.push(alloc(time, 1, at, size, number));
                }
                1 if !chunks.is_empty() => {
                    let at = random.below(chunks.len() as u64) as usize;
                    events.push(free(time, 1, chunks.swap_remove(at).0));
                }
                2..=7 if !chunks.is_empty() => {
                    let (at, size) = chunks[random.below(chunks.len() as u64) as usize];
                    let address = at + random.below(size) / 16 * 16;
                    blocks.push((number, address));
                    let size = if random.below(9) == 0 { 4096 } else { random.below(300) };
                    events.push(pool(time, number, made(address, size, 5 + number)));
                }
                8 if !blocks.is_empty() => {
                    let (number, address) = blocks.swap_remove(random.below(blocks.len() as u64) as usize);
                    events.push(pool(time, number, PoolWhat::Free { address }));
                }
                9 => events.push(pool(time, number, PoolWhat::Pushed)),
                10 => events.push(pool(time, number, PoolWhat::Popped)),
                11 if random.below(5) == 0 => events.push(pool(time, number, PoolWhat::Destroyed)),
                _ => {}
            }
        }
        let profile = profile(&events, Sampling::ALL, Division::Stack, &[400]);
        let sum = |at: At| profile.rows.iter().map(|row| live_at(row, at).bytes.value()).sum::<u64>();
        assert_eq!(sum(At::End), profile.end.bytes.value(), "seed {seed}");
        assert_eq!(sum(At::Peak), profile.peak.live.bytes.value(), "seed {seed}");
        assert_eq!(sum(At::Moment(0)), profile.moments[0].1.bytes.value(), "seed {seed}");
        assert!(profile.peak.live.bytes.value() < 1 << 30);
    }
}
