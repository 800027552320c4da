// SPDX-License-Identifier: MIT
//! Births and deaths against a model.

use std::collections::HashMap;

use super::*;
use crate::event::AllocApi;

fn event(time: u64, thread: u32, what: What) -> Event {
    Event { time, thread, what }
}

fn alloc(address: u64, size: u64) -> What {
    What::Alloc { api: AllocApi::Malloc, size, address, align: 0, stack: 7 }
}

fn free(address: u64) -> What {
    What::Free { api: FreeApi::Free, address, touched: None }
}

fn realloc(old: u64, new: u64, size: u64, stack: u32) -> What {
    What::Realloc { took: 0, old, size, new, stack }
}

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

#[test]
fn objects_fit_into_48_bytes() {
    let mut tracker = Tracker::new();
    let mut worst = 0.0f64;
    for n in 1..=600_000u64 {
        tracker.feed(&event(n, 1, alloc(n * 48, 40)));
        if n > 400_000 {
            worst = worst.max(tracker.memory() as f64 / n as f64);
        }
    }
    assert!(worst <= 48.0, "{worst}");
}

#[test]
fn entries_keep_all_they_are_given() {
    let mut slab = Slab::default();
    let most = Object {
        id: MOST_ID,
        address: u64::MAX,
        size: MOST_SIZE - 1,
        time: u64::MAX - 1,
        thread: u32::MAX - 2,
        stack: u32::MAX - 3,
        rate: Rate::one_in(u64::MAX),
    };
    let one = Object { id: 1, address: 2, size: 3, time: 4, thread: 5, stack: 6, rate: Rate::default() };
    let (a, b) = (slab.add(&most).unwrap(), slab.add(&one).unwrap());
    assert_eq!((slab.get(a), slab.get(b)), (most, one));
    slab.remove(a);
    assert_eq!(slab.add(&one), Some(a));
}

/// All that can happen, with addresses so few that the impossible happens too.
#[test]
fn like_a_model() {
    for seed in 0..20 {
        let mut state = seed;
        let mut tracker = Tracker::new();
        let mut model: HashMap<u64, Object> = HashMap::new();
        let (mut births, mut peak, mut impossible) = (0, 0, Impossibles::default());
        for time in 0..20_000 {
            let address = random(&mut state) % 200 * 16;
            let size = random(&mut state) % 1000;
            let thread = random(&mut state) as u32 % 3;
            match random(&mut state) % 3 {
                0 => {
                    let step = tracker.feed(&event(time, thread, alloc(address, size)));
                    let object =
                        Object { id: births, address, size, time, thread, stack: 7, rate: Rate::default() };
                    births += 1;
                    let displaced = model.insert(address, object);
                    impossible.alloc_of_live += u64::from(displaced.is_some());
                    let what = displaced.map(|_| Impossible::AllocOfLive);
                    let wanted = Step { born: Some(object), displaced, impossible: what, ..Step::default() };
                    assert_eq!(step, wanted);
                }
                1 => {
                    let step = tracker.feed(&event(time, thread, free(address)));
                    let ended = model.remove(&address);
                    impossible.free_of_unknown += u64::from(ended.is_none());
                    assert_eq!(
                        (step.ended, step.born, step.impossible.is_some()),
                        (ended, None, ended.is_none())
                    );
                }
                _ => {
                    let new = if size.is_multiple_of(3) { address } else { random(&mut state) % 200 * 16 };
                    let stack = size as u32 % 2;
                    let step = tracker.feed(&event(time, thread, realloc(address, new, size, stack)));
                    let ended = model.remove(&address);
                    let old = ended.unwrap_or(Object {
                        id: births,
                        address,
                        size,
                        time,
                        thread,
                        stack,
                        rate: Rate::default(),
                    });
                    births += u64::from(ended.is_none());
                    let stack = if stack == 0 { old.stack } else { stack };
                    let object = Object { address: new, size, thread, stack, ..old };
                    let displaced = model.insert(new, object);
                    impossible.realloc_of_unknown += u64::from(ended.is_none());
                    impossible.realloc_to_live += u64::from(displaced.is_some());
                    assert_eq!((step.ended, step.born, step.displaced), (ended, Some(object), displaced));
                    assert_eq!(step.resized, ended.is_some());
                }
            }
            let bytes: u64 = model.values().map(|object| object.size).sum();
            peak = peak.max(bytes);
            assert_eq!((tracker.live_bytes(), tracker.peak().bytes), (bytes, peak));
            assert_eq!((tracker.live_objects(), tracker.births()), (model.len() as u64, births));
        }
        assert_eq!(*tracker.impossible(), impossible);
        assert!(impossible.total() > 0);
        let mut live: Vec<Object> = tracker.objects().collect();
        live.sort_by_key(|object| object.address);
        let mut wanted: Vec<Object> = model.into_values().collect();
        wanted.sort_by_key(|object| object.address);
        assert_eq!(live, wanted);
        assert!(wanted.iter().all(|object| tracker.get(object.address) == Some(*object)));
    }
}

#[test]
fn blocks_have_the_rate_of_their_thread() {
    let mut tracker = Tracker::new();
    let born = |tracker: &mut Tracker, thread, address| {
        tracker.feed(&event(1, thread, alloc(address, 8))).born.unwrap().rate
    };
    assert_eq!(born(&mut tracker, 1, 16).mean(), 0);
    tracker.feed(&event(1, 1, What::Sampled { mean: 1 << 17 }));
    assert_eq!((born(&mut tracker, 1, 32).mean(), born(&mut tracker, 2, 48).mean()), (1 << 17, 0));
    tracker.feed(&event(1, 1, What::Sampled { mean: (1 << 20) + 1 }));
    assert_eq!((born(&mut tracker, 1, 64).mean(), tracker.get(32).unwrap().rate.mean()), (1 << 20, 1 << 17));
    // As the head says again; and one that cannot be.
    tracker.feed(&event(1, 1, What::Sampled { mean: 0 }));
    assert_eq!(born(&mut tracker, 1, 80), Rate::default());
    tracker.feed(&event(1, 1, What::Sampled { mean: u64::MAX }));
    assert!(born(&mut tracker, 1, 96).mean() >= 1 << 40);
    // A block that is resized is drawn anew.
    assert_eq!(tracker.feed(&event(1, 2, realloc(96, 96, 9, 0))).born.unwrap().rate, Rate::default());
}

#[test]
fn free_of_null_is_nothing() {
    let mut tracker = Tracker::new();
    let what = What::Free { api: FreeApi::Null, address: 0, touched: None };
    assert_eq!(tracker.feed(&event(1, 1, what)), Step::default());
    assert_eq!(tracker.feed(&event(1, 1, What::ThreadEnd)), Step::default());
    assert_eq!(tracker.impossible().total(), 0);
}

#[test]
fn the_peak_is_when_it_was() {
    let mut tracker = Tracker::new();
    for (time, what) in
        [(1, alloc(16, 10)), (2, alloc(32, 10)), (3, free(16)), (9, realloc(32, 64, 50, 0)), (10, free(64))]
    {
        tracker.feed(&event(time, 1, what));
    }
    assert_eq!(tracker.peak(), Peak { bytes: 50, objects: 1, time: 9, births: 2 });
    assert_eq!((tracker.peak_objects(), tracker.live_bytes()), (2, 0));
}

/// Sizes that no process has neither overflow nor unbalance the sum.
#[test]
fn absurd_sizes() {
    let mut tracker = Tracker::new();
    for address in 1..100 {
        tracker.feed(&event(1, 1, alloc(address * 16, u64::MAX)));
    }
    for address in 1..100 {
        tracker.feed(&event(1, 1, free(address * 16)));
    }
    assert_eq!((tracker.live_bytes(), tracker.live_objects()), (0, 0));
}
