// SPDX-License-Identifier: MIT
//! The estimator against samples that are drawn as the recorder draws them.

use super::*;

#[test]
fn what_was_added_since() {
    let sampling = Sampling::one_in(1000);
    let mut sum = Estimate::default();
    (0..10).for_each(|_| sum.add(300, sampling.weight(300)));
    let earlier = sum;
    let mut added = Estimate::default();
    for size in [100, 2000] {
        sum.add(size, sampling.weight(size));
        added.add(size, sampling.weight(size));
    }
    let since = sum.since(&earlier);
    assert_eq!((since.seen(), since.value()), (added.seen(), added.value()));
    assert!((since.variance() - added.variance()).abs() < 1e-6 * added.variance());
    assert_eq!(sum.since(&sum).interval().0, 0);
}

/// Where blocks were drawn at several rates, the coarsest bounds what was not drawn, in whatever order they came.
/// An overflow of calloc is a request of all bytes that there are.
#[test]
fn requests_of_any_size_do_not_wrap() {
    let mut sum = Estimate::default();
    [u64::MAX, 100].iter().for_each(|&bytes| sum.add_request(bytes, Weight::ONE));
    assert_eq!((sum.value(), sum.interval()), (u64::MAX, (u64::MAX, u64::MAX)));
}

#[test]
fn the_coarsest_rate_bounds_what_was_not_drawn() {
    let sum = |rates: [u64; 2]| {
        let mut sum = Estimate::default();
        rates.iter().for_each(|&rate| sum.add(1 << 20, Sampling::one_in(rate).weight(1 << 20)));
        sum.interval()
    };
    assert_eq!(sum([1 << 16, 1 << 23]), sum([1 << 23, 1 << 16]));
}

fn random(state: &mut u64) -> f64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    (state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1u64 << 53) as f64
}

/// The blocks of these sizes that a sample has.
fn draw(sizes: &[u64], rate: u64, seed: u64) -> Vec<u64> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || (-(1.0 - random(&mut state)).ln() * rate as f64) as u64 + 1;
    let mut skip = next();
    let mut drawn = Vec::new();
    for &size in sizes {
        if size < skip {
            skip -= size;
        } else {
            drawn.push(size);
            skip = next();
        }
    }
    drawn
}

/// Counts and bytes of a sample.
fn sums(drawn: &[u64], rate: u64) -> (Estimate, Estimate) {
    let (sampling, mut count, mut bytes) = (Sampling::one_in(rate), Estimate::default(), Estimate::default());
    for &size in drawn {
        count.count(sampling.weight(size));
        bytes.add(size, sampling.weight(size));
    }
    (count, bytes)
}

/// Blocks of many kinds: all small, all large, both, one, and more than a page of equal ones.
fn programs() -> Vec<(&'static str, Vec<u64>)> {
    let many = |n: usize, size: u64| std::iter::repeat_n(size, n);
    vec![
        ("300000 small", many(30_000, 1000).collect()),
        ("60 large", many(60, 1 << 17).collect()),
        ("small and large", many(20_000, 700).chain(many(40, 1 << 20)).collect()),
        ("a few small", many(40, 3000).collect()),
        ("powers of two", (0..20_000).map(|n| 1 << (n % 18)).collect()),
        ("one that is larger than the rate", many(1, 300_000).collect()),
        ("of one byte", many(400_000, 1).collect()),
    ]
}

#[test]
fn weights() {
    let sampling = Sampling::one_in(524_288);
    assert!((sampling.weight(1000).blocks() - 524.79).abs() < 0.01);
    assert!((sampling.weight(1 << 20).blocks() - 1.1565).abs() < 1e-4);
    assert_eq!(sampling.weight(1 << 40).blocks(), 1.0);
    assert_eq!(sampling.weight(0), Weight::ONE);
    assert_eq!(Sampling::ALL.weight(1), Weight::ONE);
    assert!((Sampling::one_in(1).weight(1).blocks() - 1.582).abs() < 1e-3);
    assert!(Sampling::one_in(u64::MAX).weight(1).blocks().is_finite());
}

#[test]
fn what_is_whole_is_exact() {
    let mut sum = Estimate::default();
    for amount in [5, 7, 11] {
        sum.add(amount, Sampling::ALL.weight(amount));
    }
    sum.take(7, Weight::ONE);
    assert_eq!((sum.value(), sum.seen(), sum.interval()), (16, 16, (16, 16)));
    assert_eq!(sum, Estimate::exact(16));
}

#[test]
fn nothing_is_left_of_what_is_taken_off_again() {
    let sampling = Sampling::one_in(524_288);
    let mut sum = Estimate::default();
    for size in 1..5000 {
        sum.add(size, sampling.weight(size));
    }
    for size in (1..5000).rev() {
        sum.take(size, sampling.weight(size));
    }
    // A block may be there that nobody saw: 3.7 times the rate is what a single one hardly exceeds.
    assert_eq!((sum.value(), sum.interval()), (0, (0, 1_934_036)));
    let mut together = Estimate::of(3, 100, sampling.weight(100));
    let mut one_by_one = Estimate::default();
    (0..3).for_each(|_| one_by_one.add(100, sampling.weight(100)));
    assert_eq!(together.value(), one_by_one.value());
    assert_eq!(together.interval(), one_by_one.interval());
    together += one_by_one;
    assert_eq!(together.interval(), Estimate::of(6, 100, sampling.weight(100)).interval());
}

/// Over many seeds the mean of a sum is the truth, to four deviations of such a mean.
#[test]
fn sums_are_right_on_average() {
    const SEEDS: u64 = 200;
    for (name, sizes) in programs() {
        for rate in [4096, 65_536] {
            let truth = sizes.iter().sum::<u64>() as f64;
            let (mut bytes, mut squares, mut count) = (0.0, 0.0, 0.0);
            for seed in 1..=SEEDS {
                let (blocks, sum) = sums(&draw(&sizes, rate, seed), rate);
                bytes += sum.value() as f64;
                squares += (sum.value() as f64 - truth).powi(2);
                count += blocks.value() as f64;
            }
            let (mean, deviation) = (bytes / SEEDS as f64, (squares / SEEDS as f64 / SEEDS as f64).sqrt());
            assert!((mean - truth).abs() <= 4.0 * deviation + 1.0, "{name}, {rate}: {mean} for {truth}");
            // Counts of mixed sizes vary much more than bytes do.
            if !name.contains("powers") {
                let mean = count / SEEDS as f64 / sizes.len() as f64;
                assert!((0.8..1.25).contains(&mean), "{name}, {rate}: {mean} of the blocks");
            }
        }
    }
}

/// The truth is within the interval in at least 95 of 100 samples that have the sum at all, less chance.
#[test]
fn intervals_hold_the_truth() {
    const SEEDS: u64 = 400;
    for (name, sizes) in programs() {
        for rate in [4096, 65_536, 1 << 20] {
            let truth = (sizes.len() as u64, sizes.iter().sum::<u64>());
            let (mut shown, mut counts, mut bytes) = (0, 0, 0);
            for seed in 1..=SEEDS {
                let drawn = draw(&sizes, rate, seed);
                if drawn.is_empty() {
                    continue;
                }
                shown += 1;
                let sums = sums(&drawn, rate);
                let holds = |sum: Estimate, truth: u64| {
                    let (low, high) = sum.interval();
                    assert!(low <= sum.value() && sum.value() <= high, "{name}, {rate}: {sum:?}");
                    u64::from((low..=high).contains(&truth))
                };
                counts += holds(sums.0, truth.0);
                bytes += holds(sums.1, truth.1);
            }
            // Where few samples have the sum, three may be outside.
            let least = (shown as f64 * 0.93).floor().min(shown as f64 - 3.0) as u64;
            assert!(bytes >= least, "{name}, {rate}: bytes in {bytes} of {shown}");
            if !name.contains("powers") {
                assert!(counts >= least, "{name}, {rate}: blocks in {counts} of {shown}");
            }
        }
    }
}

/// The same of a few blocks that are drawn with any probability: here it matters that blocks are whole.
#[test]
fn intervals_of_few_blocks_hold_the_truth() {
    const SEEDS: u64 = 1000;
    for n in [1, 2, 3, 4, 5, 8, 20] {
        for size in [100, 1000, 3000, 6000, 10_000, 16_000, 20_000, 40_000] {
            let (mut shown, mut right) = (0, 0);
            for seed in 1..=SEEDS {
                let drawn = draw(&vec![size; n], 4096, seed);
                if !drawn.is_empty() {
                    shown += 1;
                    let (low, high) = sums(&drawn, 4096).1.interval();
                    right += u64::from((low..=high).contains(&(n as u64 * size)));
                }
            }
            assert!(right as f64 >= shown as f64 * 0.93 - 2.0, "{n} of {size}: {right} of {shown}");
        }
    }
}

/// A rate that no program has: nothing is drawn but by a miracle, and still the bounds are numbers in their order.
#[test]
fn rates_without_measure() {
    for rate in [1, 1 << 40, 1 << 57, u64::MAX] {
        let sum = Estimate::of(3, 16, Sampling::one_in(rate).weight(16));
        let (low, high) = sum.interval();
        assert!(
            48 <= low && low < sum.value().max(49) && sum.value() <= high,
            "{rate}: {low} {sum:?} {high}"
        );
    }
}

/// Large blocks are drawn for sure, and small ones of the same sum hardly ever.
#[test]
fn small_blocks_beside_large_ones() {
    const SEEDS: u64 = 1000;
    for sizes in [vec![200_000, 500, 500, 500, 570], [vec![8193; 3], vec![32; 4]].concat(), vec![100_000; 2]]
    {
        let truth: u64 = sizes.iter().sum();
        let right = (1..=SEEDS).filter(|&seed| {
            let (low, high) = sums(&draw(&sizes, 2048, seed), 2048).1.interval();
            (low..=high).contains(&truth)
        });
        let right = right.count();
        assert!(right >= 930, "{sizes:?}: {right} of {SEEDS}");
    }
}

/// An interval says something: with a thousand drawn blocks it is a few per cent wide.
#[test]
fn intervals_are_narrow_where_much_was_drawn() {
    let sum = Estimate::of(1000, 1000, Sampling::one_in(524_288).weight(1000));
    let (low, high) = sum.interval();
    let width = (high - low) as f64 / sum.value() as f64;
    assert!((0.12..0.13).contains(&width), "{width}");
    // Of blocks that are nearly all drawn next to nothing is missing.
    let sum = Estimate::of(10, 100 << 20, Sampling::one_in(524_288).weight(100 << 20));
    let (low, high) = sum.interval();
    assert!(low == 1000 << 20 && high <= low + 1, "{low} {high}");
}
