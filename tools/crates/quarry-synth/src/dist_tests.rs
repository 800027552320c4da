// SPDX-License-Identifier: MIT
//! Tests of distributions. Seeds are fixed, so the statistics are always the same.

use super::*;

fn dist(text: &str) -> Dist {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

/// A hundred thousand numbers, sorted.
fn drawn(dist: &Dist, seed: u64) -> Vec<u64> {
    let (mut rng, mut sampler) = (Rng::new(seed), dist.sampler());
    let mut numbers: Vec<u64> = (0..100_000).map(|_| sampler.draw(&mut rng).unwrap()).collect();
    numbers.sort_unstable();
    numbers
}

fn mean(numbers: &[u64]) -> f64 {
    numbers.iter().map(|&n| n as f64).sum::<f64>() / numbers.len() as f64
}

/// Within so many parts of a hundred.
fn near(a: f64, b: f64, percent: f64) -> bool {
    (a - b).abs() <= b.abs() * percent / 100.0
}

#[test]
fn what_is_written_is_read() {
    for text in ["constant:64", "uniform:16..4096", "lognormal:48.5,1.5", "never"] {
        assert_eq!(dist(text).to_string(), text);
        let json = serde_json::to_string(&dist(text)).unwrap();
        assert_eq!(json, format!("\"{text}\""));
        assert_eq!(serde_json::from_str::<Dist>(&json).unwrap(), dist(text));
    }
    assert_eq!(dist("uniform:1k..16mb"), Dist::Uniform(1024, 16 << 20));
    assert_eq!(dist("lognormal:4KiB,0"), Dist::LogNormal { median: 4096.0, sigma: 0.0 });
    let json = r#"{"histogram":[[16,31,3.0],[64,64,1.0]]}"#;
    let histogram: Dist = serde_json::from_str(json).unwrap();
    assert_eq!(serde_json::to_string(&histogram).unwrap(), json);
}

#[test]
fn what_makes_no_sense_is_refused() {
    for text in
        ["", "64", "constant:", "constant:-1", "constant:1x", "uniform:5", "uniform:9..5", "gauss:1,2"]
    {
        assert!(text.parse::<Dist>().is_err(), "{text}");
    }
    for text in ["lognormal:0,1", "lognormal:nan,1", "lognormal:5,-1", "lognormal:5,nan", "lognormal:inf,1"] {
        assert!(text.parse::<Dist>().is_err(), "{text}");
    }
    for bins in ["[]", "[[5,4,1.0]]", "[[1,2,0.0]]", "[[1,2,-1.0],[3,4,2.0]]", "[[1,99999999999999999,1.0]]"]
    {
        let json = format!("{{\"histogram\":{bins}}}");
        assert!(serde_json::from_str::<Dist>(&json).is_err(), "{bins}");
    }
}

#[test]
fn constant_and_uniform() {
    assert!(drawn(&dist("constant:7"), 1).iter().all(|&n| n == 7));
    let numbers = drawn(&dist("uniform:100..299"), 2);
    assert_eq!((numbers[0], numbers[99_999]), (100, 299));
    assert!(near(mean(&numbers), 199.5, 0.5) && near(dist("uniform:100..299").mean(), 199.5, 0.0));
    // Quarters of the range have a quarter each.
    for quarter in 1..4 {
        assert!(near(numbers[quarter * 25_000] as f64, 100.0 + 50.0 * quarter as f64, 1.0));
    }
}

#[test]
fn lognormal() {
    let numbers = drawn(&dist("lognormal:1000,0.8"), 3);
    assert!(near(numbers[50_000] as f64, 1000.0, 1.5), "median {}", numbers[50_000]);
    // exp(0.8 * 1.2816) and exp(0.8 * 2.3263).
    assert!(near(numbers[90_000] as f64, 2788.0, 2.0), "90 % {}", numbers[90_000]);
    assert!(near(numbers[10_000] as f64, 358.7, 2.0), "10 % {}", numbers[10_000]);
    assert!(near(numbers[99_000] as f64, 6429.0, 4.0), "99 % {}", numbers[99_000]);
    let expected = dist("lognormal:1000,0.8").mean();
    assert!(near(expected, 1377.1, 0.01) && near(mean(&numbers), expected, 1.0), "{}", mean(&numbers));
    let huge = drawn(&dist("lognormal:1g,20"), 4);
    assert_eq!((huge[0], huge[99_999]), (0, MOST));
}

#[test]
fn histogram() {
    let bins =
        [(10, 19, 1.0), (100, 100, 2.0), (1000, 1999, 5.0), (5000, 6000, 0.0), (1 << 40, 1 << 41, 2.0)];
    let histogram = Dist::histogram(bins.map(Bin::from).to_vec()).unwrap();
    let numbers = drawn(&histogram, 5);
    for (from, to, weight) in bins {
        let count = numbers.iter().filter(|&&n| from <= n && n <= to).count() as f64;
        assert!(near(count, weight * 10_000.0, 2.5), "{from}: {count}");
    }
    assert!(near(mean(&numbers), histogram.mean(), 2.0));
    let inside: Vec<u64> = numbers.iter().copied().filter(|n| (1000..2000).contains(n)).collect();
    assert!(near(mean(&inside), 1499.5, 0.5));
}

#[test]
fn alias_tables_keep_the_weights() {
    let mut rng = Rng::new(6);
    for round in 0..50 {
        let weights: Vec<f64> = (0..1 + rng.below(30))
            .map(|_| if rng.below(4) == 0 { 0.0 } else { fraction(&mut rng) })
            .collect();
        let total: f64 = weights.iter().sum();
        if total == 0.0 {
            continue;
        }
        let alias = Alias::new(&weights);
        // The table itself says how often each index comes.
        let mut share = vec![0.0; weights.len()];
        for (column, &(own, other)) in alias.columns.iter().enumerate() {
            share[column] += own / weights.len() as f64;
            share[other as usize] += (1.0 - own) / weights.len() as f64;
        }
        for (share, weight) in share.iter().zip(&weights) {
            assert!((share - weight / total).abs() < 1e-12, "round {round}: {share} {weight} of {total}");
        }
    }
}

#[test]
fn a_seed_repeats_its_numbers_on_every_machine() {
    let mut rng = Rng::new(7);
    let mut sampler = dist("lognormal:1000,2").sampler();
    let numbers: Vec<u64> = (0..6).map(|_| sampler.draw(&mut rng).unwrap()).collect();
    let again: Vec<u64> = {
        let (mut rng, mut sampler) = (Rng::new(7), dist("lognormal:1000,2").sampler());
        (0..6).map(|_| sampler.draw(&mut rng).unwrap()).collect()
    };
    assert_eq!(numbers, again);
    assert_eq!(numbers, EXPECTED);
}

/// What seed 7 gave when this was written: files of old seeds must stay what they are.
const EXPECTED: [u64; 6] = [920, 693, 5772, 1437, 542, 40];

#[test]
fn all_numbers_can_be_drawn_from() {
    let mut rng = Rng::new(1);
    let drawn: Vec<u64> = (0..100).map(|_| between(&mut rng, 0, u64::MAX)).collect();
    assert!(drawn.iter().any(|&n| n > u64::MAX / 2) && drawn.iter().any(|&n| n < u64::MAX / 2));
    assert!((0..100).all(|_| between(&mut rng, 1, u64::MAX) > 0));
    assert_eq!((between(&mut rng, 5, 5), between(&mut rng, 5, 4)), (5, 5));
}
