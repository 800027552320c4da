// SPDX-License-Identifier: MIT
//! The sums of a sampled trace against those of the whole one.

use std::collections::HashMap;

use quarry_trace::analysis::{Analysis, Summary};
use quarry_trace::sample::{Estimate, Sampling};
use quarry_trace::{AllocApi, Event, FreeApi, What};

struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11
    }

    fn below(&mut self, n: u64) -> u64 {
        self.bits() % n
    }

    fn part(&mut self) -> f64 {
        self.bits() as f64 / (1u64 << 53) as f64
    }
}

/// A program of two threads: small blocks, some large ones, reallocs, frees by the other thread, what is never freed.
fn program(blocks: u64) -> Vec<Event> {
    let mut random = Random(77);
    let mut events = Vec::new();
    let mut live: Vec<(u64, u32)> = Vec::new();
    let mut time = 1000;
    for n in 0..blocks {
        time += 10;
        let thread = 1 + (n % 2) as u32;
        let event = |time, thread, what| Event { time, thread, what };
        let (size, stack) = match n % 100 {
            0 => (40_000 + random.below(100_000), 3),
            1..=50 => (16 + random.below(100), 1),
            _ => (500 + random.below(1500), 2),
        };
        let address = (n + 1) << 20;
        let api = if n % 7 == 0 { AllocApi::Calloc } else { AllocApi::Malloc };
        events.push(event(time, thread, What::Alloc { api, size, address, align: 0, stack }));
        let mut now = address;
        for step in 0..n % 3 {
            let (new, size) = (address + step * 16 + 16, size * (step + 2) / 2);
            events.push(event(
                time + 1 + step,
                thread,
                What::Realloc { took: 1, old: now, size, new, stack },
            ));
            now = new;
        }
        if stack != 2 || n % 4 > 0 {
            live.push((now, thread));
        }
        if live.len() > 200 {
            let (address, of) = live.swap_remove(random.below(200) as usize);
            let thread = if n % 5 == 0 { 3 - of } else { of };
            events.push(event(time + 5, thread, What::Free { api: FreeApi::Free, address, touched: None }));
        }
    }
    events.sort_by_key(|event| event.time);
    events
}

/// What the recorder writes when it draws one byte in `rate`.
fn sampled(events: &[Event], rate: u64, seed: u64) -> Vec<Event> {
    drawn(events, |_| rate, rate, seed)
}

/// What a sampler tells whose rate changes with time.
fn drawn(events: &[Event], rate_at: impl Fn(u64) -> u64, rate: u64, seed: u64) -> Vec<Event> {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mut drawn: HashMap<u64, ()> = HashMap::new();
    // How far the next draw is, in parts of the rate: those have the same distribution for each.
    let mut skips: HashMap<u32, f64> = HashMap::new();
    let mut told: HashMap<u32, u64> = HashMap::new();
    let mut kept = Vec::new();
    let mut draw = |thread: u32, size: u64, rate: u64| {
        let mut next = || -(1.0 - random.part()).ln();
        let skip = skips.entry(thread).or_insert_with(&mut next);
        let passed = size as f64 / rate as f64;
        if passed < *skip {
            *skip -= passed;
            return false;
        }
        *skip = next();
        true
    };
    for event in events {
        let mean = rate_at(event.time);
        let draw = &mut |thread: u32, size: u64| draw(thread, size, mean);
        let keep = match event.what {
            What::Alloc { size, address, .. } if draw(event.thread, size) => {
                drawn.insert(address, ());
                Some(event.what.clone())
            }
            What::Free { address, .. } => drawn.remove(&address).map(|()| event.what.clone()),
            What::Realloc { old, size, new, .. } => {
                let (before, after) = (drawn.remove(&old).is_some(), draw(event.thread, size));
                if after {
                    drawn.insert(new, ());
                }
                let gone = What::Free { api: FreeApi::Other, address: old, touched: None };
                if after { Some(event.what.clone()) } else { before.then_some(gone) }
            }
            _ => None,
        };
        if keep.is_some() && *told.entry(event.thread).or_insert(rate) != mean {
            told.insert(event.thread, mean);
            kept.push(Event { what: What::Sampled { mean }, ..event.clone() });
        }
        kept.extend(keep.map(|what| Event { what, ..event.clone() }));
    }
    kept
}

/// The program without its blocks that are resized.
fn without_resized(events: &[Event]) -> Vec<Event> {
    let block = |address: u64| address >> 20;
    let resized: std::collections::HashSet<u64> = events
        .iter()
        .filter_map(|event| match event.what {
            What::Realloc { old, .. } => Some(block(old)),
            _ => None,
        })
        .collect();
    let keeps = |event: &&Event| match event.what {
        What::Alloc { address, .. } | What::Free { address, .. } => !resized.contains(&block(address)),
        _ => false,
    };
    events.iter().filter(keeps).cloned().collect()
}

fn summary(events: &[Event], sampling: Sampling) -> Summary {
    let mut analysis = Analysis::of(sampling);
    events.iter().for_each(|event| analysis.add(event));
    analysis.finish(5)
}

/// All sums, with their names.
fn sums(summary: &Summary) -> Vec<(String, Estimate)> {
    let named = |name: &str, sum: Estimate| (name.to_owned(), sum);
    let mut all = vec![
        named("births", summary.births),
        named("requested", summary.requested),
        named("zeroed", summary.zeroed),
        named("peak", summary.peak.bytes),
        named("live", summary.live),
        named("live bytes", summary.live_bytes),
        named("frees", summary.frees.count),
        named("freed bytes", summary.frees.bytes),
        named("foreign frees", summary.frees.foreign),
        named("reallocs", summary.reallocs.count),
        named("moved", summary.reallocs.moved),
        named("lifetimes", summary.lifetimes_allocs.count),
    ];
    for site in &summary.sites {
        all.push((format!("bytes of {}", site.stack), site.bytes));
        all.push((format!("blocks of {}", site.stack), site.count));
        all.push((format!("live of {}", site.stack), site.live_bytes));
    }
    for thread in &summary.threads {
        all.push((format!("bytes by {}", thread.thread), thread.bytes));
        all.push((format!("frees by {}", thread.thread), thread.frees));
    }
    for (name, sum) in &summary.kinds {
        all.push((format!("calls of {name}"), *sum));
    }
    all
}

#[test]
fn all_sums_of_a_sample_are_those_of_the_whole_trace_on_average() {
    sums_are_right(|_| RATE);
}

/// As many, twice and four times as many samples as the head says, in turn.
#[test]
fn the_same_where_the_rate_changes() {
    sums_are_right(|time| RATE >> (time / 3000 % 3));
}

const RATE: u64 = 4096;

fn sums_are_right(rate_at: impl Fn(u64) -> u64) {
    const SEEDS: u64 = 60;
    let events = program(6000);
    let whole = summary(&events, Sampling::ALL);
    let mut truth = sums(&whole);
    truth.retain(|(name, _)| name != "calls of other rate of samples");
    let resized = |event: &&Event| matches!(event.what, What::Realloc { .. });
    assert!(events.iter().filter(resized).count() > 3000);
    // Lifetimes are those of blocks that were not resized: a program without reallocs has the truth of them.
    let plain: Vec<Event> = without_resized(&events);
    let lifetimes = summary(&plain, Sampling::ALL).lifetimes_allocs.count;
    truth.iter_mut().filter(|(name, _)| name == "lifetimes").for_each(|(_, sum)| *sum = lifetimes);
    let mut all: HashMap<String, Vec<(f64, bool)>> = HashMap::new();
    for seed in 1..=SEEDS {
        let sample = summary(&drawn(&events, &rate_at, RATE, seed), Sampling::one_in(RATE));
        assert_eq!(sample.impossible.total(), 0, "{:?}", sample.impossible);
        assert_eq!(sample.frees.temporary.value(), 0, "a sample knows no next event");
        assert_eq!(sample.reallocs.grew, 0, "nor the sizes of blocks that were not drawn");
        let found: HashMap<String, Estimate> = sums(&sample).into_iter().collect();
        for (name, right) in &truth {
            let sum = found.get(name).copied().unwrap_or_default();
            let (low, high) = sum.interval();
            let holds = (low..=high).contains(&right.value());
            all.entry(name.clone()).or_default().push((sum.value() as f64, holds));
        }
    }
    for (name, right) in &truth {
        let (right, tries) = (right.value() as f64, &all[name]);
        let mean = tries.iter().map(|(sum, _)| sum).sum::<f64>() / SEEDS as f64;
        let variance = tries.iter().map(|(sum, _)| (sum - right).powi(2)).sum::<f64>() / SEEDS as f64;
        let noise = 4.0 * (variance / SEEDS as f64).sqrt();
        // The highest of values that vary is above the highest of the true ones.
        // What is nearly always drawn was in so few seeds not that none may have been.
        let noise = noise + if name == "peak" { 0.1 } else { 1e-4 } * right + 1.0;
        assert!((mean - right).abs() <= noise, "{name}: {mean} on average, {right} is right, noise {noise}");
        let holds = tries.iter().filter(|(_, holds)| *holds).count();
        // Of frees no more is drawn than of their blocks, which are as mixed as counts are.
        let least = if name == "peak" { 40 } else { 51 };
        assert!(holds >= least, "{name}: in the interval {holds} times of {SEEDS}");
    }
}

#[test]
fn the_larger_leak_is_first() {
    let mut events = Vec::new();
    let alloc = |n: u64, size, stack| {
        let (api, address, align) = (AllocApi::Malloc, (n + 1) << 21, 0);
        Event { time: n, thread: 1, what: What::Alloc { api, size, address, align, stack } }
    };
    (0..300_000).for_each(|n| events.push(alloc(n, 1000, 1)));
    (300_000..300_060).for_each(|n| events.push(alloc(n, 1 << 20, 2)));
    for seed in 1..=10 {
        let sample = summary(&sampled(&events, 512 << 10, seed), Sampling::one_in(512 << 10));
        let of = |stack| sample.sites.iter().find(|site| site.stack == stack).unwrap().live_bytes;
        assert!(of(1).value() > 3 * of(2).value(), "{seed}: {:?} {:?}", of(1), of(2));
        assert!((250e6..350e6).contains(&(of(1).value() as f64)), "{seed}: {:?}", of(1));
        let top = sample.top_sizes_by_bytes[0];
        assert_eq!(top.0, 1000);
        assert!((250_000..350_000).contains(&top.1.value()), "{seed}: {top:?}");
        let curve = sample.curve.most();
        assert_eq!(curve, sample.peak.bytes.value());
    }
}

/// A lifetime counts the allocations that were not seen, too.
#[test]
fn lifetimes_count_what_was_not_seen() {
    let mut events = Vec::new();
    for n in 0..400_000u64 {
        let (api, address, align, stack) = (AllocApi::Malloc, ((n % 1000) + 1) << 10, 0, 0);
        if n >= 1000 {
            let what = What::Free { api: FreeApi::Free, address, touched: None };
            events.push(Event { time: 2 * n, thread: 1, what });
        }
        events.push(Event {
            time: 2 * n + 1,
            thread: 1,
            what: What::Alloc { api, size: 64, address, align, stack },
        });
    }
    let whole = summary(&events, Sampling::ALL);
    let sample = summary(&sampled(&events, 6400, 5), Sampling::one_in(6400));
    // 999 allocations between birth and end, in the bar of 512 to 1023; what a sample says is blurred.
    assert_eq!(whole.lifetimes_allocs.quantile(0.5), 1023);
    let (half, most) = (sample.lifetimes_allocs.quantile(0.5), sample.lifetimes_allocs.quantile(0.9));
    assert!((1023..=2047).contains(&half) && most <= 2047, "{half} {most}");
}
