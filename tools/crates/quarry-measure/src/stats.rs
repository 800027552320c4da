// SPDX-License-Identifier: MIT
//! Few numbers, much noise: medians, deviations that an outlier cannot move, resampled intervals.

use serde::{Deserialize, Serialize};

use crate::rng::Rng;

/// The middle of `values`, `None` without any.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// The median absolute deviation, scaled to equal the standard deviation of normal noise.
pub fn deviation(values: &[f64]) -> Option<f64> {
    const NORMAL: f64 = 1.4826;
    let middle = median(values)?;
    let distances: Vec<f64> = values.iter().map(|v| (v - middle).abs()).collect();
    median(&distances).map(|mad| mad * NORMAL)
}

/// Half of the distance of the quartiles, as a part of the median. It is 0 for fewer than three values.
pub fn spread(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    // Between two values the quartile is interpolated.
    let quartile = |part: f64| {
        let place = part * last as f64;
        let (below, above) = (sorted[place as usize], sorted[(place as usize + 1).min(last)]);
        below + (above - below) * place.fract()
    };
    match median(values) {
        Some(middle) if values.len() > 2 && middle != 0.0 => (quartile(0.75) - quartile(0.25)) / 2.0 / middle,
        _ => 0.0,
    }
}

/// How likely a sum so large is, if each of these differences could as well have had the other sign. All signs are tried
/// for up to twelve differences, and 4096 random ones for more.
pub fn sign_flips(differences: &[f64]) -> f64 {
    const DRAWS: usize = 4096;
    let seen = differences.iter().sum::<f64>() - 1e-12;
    let as_large = |flipped: &mut dyn FnMut(usize) -> bool| {
        let signed = differences.iter().enumerate().map(|(at, d)| if flipped(at) { -d } else { *d });
        signed.sum::<f64>() >= seen
    };
    if differences.len() <= 12 {
        let all = 1u32 << differences.len();
        let found = (0..all).filter(|bits| as_large(&mut |at| bits >> at & 1 == 1)).count();
        return found as f64 / f64::from(all);
    }
    let mut rng = Rng::new(1);
    let found = (0..DRAWS).filter(|_| as_large(&mut |_| rng.below(2) == 1)).count();
    // What was seen is one of all cases.
    (found + 1) as f64 / (DRAWS + 1) as f64
}

/// A sample, condensed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The middle value.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// The robust deviation, see [`deviation`].
    pub deviation: f64,
}

impl Summary {
    /// Condense `values`; `None` without any.
    pub fn of(values: &[f64]) -> Option<Self> {
        Some(Self {
            median: median(values)?,
            min: values.iter().copied().min_by(f64::total_cmp)?,
            max: values.iter().copied().max_by(f64::total_cmp)?,
            deviation: deviation(values)?,
        })
    }

    /// The deviation as a part of the median: how noisy it was.
    pub fn relative_deviation(&self) -> f64 {
        if self.median > 0.0 { self.deviation / self.median } else { 0.0 }
    }
}

/// How a sample compares with a base.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Median of the sample by median of the base.
    pub ratio: f64,
    /// The bounds of the 95 % bootstrap interval; `None` from fewer than three pairs. Of three, four and five they are
    /// the extremes, and cover 75, 88 and 94 %.
    pub interval: Option<(f64, f64)>,
}

/// Compare pairs (sample, base) that were measured one shortly after the other. Whole pairs are
/// resampled, so that what disturbed both counts for neither. `None` without a pair or on a base of 0.
pub fn ratio(pairs: &[(f64, f64)], seed: u64) -> Option<Ratio> {
    const RESAMPLES: usize = 2000;
    let point = ratio_of_medians(pairs.iter().copied())?;
    if pairs.len() < 3 {
        return Some(Ratio { ratio: point, interval: None });
    }
    let mut rng = Rng::new(seed);
    let mut resampled: Vec<f64> = (0..RESAMPLES)
        .filter_map(|_| ratio_of_medians((0..pairs.len()).map(|_| pairs[rng.below(pairs.len())])))
        .collect();
    Some(Ratio { ratio: point, interval: middle_95(&mut resampled) })
}

/// Compare two samples that were taken at different times. The ratio is the median of all ratios of one value here to one
/// there (Hodges and Lehmann); the interval is that of all factors which a rank test (Mann and Whitney) at this level, say
/// 0.99, would not reject, and so is right whatever the noise is like, if only it is the same in both. From so few values
/// that no interval is that sure, it has all ratios. `None` without a value above 0 in one of them.
pub fn ratio_apart(sample: &[f64], base: &[f64], sure: f64) -> Option<Ratio> {
    let positive = |values: &[f64]| values.iter().copied().filter(|v| *v > 0.0).collect::<Vec<f64>>();
    let (sample, base) = (positive(sample), positive(base));
    let mut ratios: Vec<f64> = sample.iter().flat_map(|a| base.iter().map(move |b| a / b)).collect();
    ratios.sort_by(f64::total_cmp);
    let ratio = median(&ratios)?;
    if sample.len() < 3 || base.len() < 3 {
        return Some(Ratio { ratio, interval: None });
    }
    let out = left_out(sample.len(), base.len(), (1.0 - sure) / 2.0);
    Some(Ratio { ratio, interval: Some((ratios[out], ratios[ratios.len() - 1 - out])) })
}

/// How many of all pairs may be left out at each end: the largest number u for which at most this part of all orders of
/// n and m values has u or fewer pairs the wrong way round, less one; 0, if there is none.
fn left_out(n: usize, m: usize, part: f64) -> usize {
    // The parts of all orders that have 0, 1, 2, ... pairs the wrong way round, up to the middle. Their numbers are the
    // coefficients of the Gaussian binomial, which is the product of (1 - x^(m + i)) / (1 - x^i) for i from 1 to n.
    let mut orders = vec![0.0; n * m / 2 + 1];
    orders[0] = 1.0;
    for i in 1..=n {
        for u in (m + i..orders.len()).rev() {
            orders[u] -= orders[u - m - i];
        }
        for u in i..orders.len() {
            orders[u] += orders[u - i];
        }
        // Of all orders there are so many times more now. Their number alone would be too large for 514 values of each.
        let more = (m + i) as f64 / i as f64;
        orders.iter_mut().for_each(|count| *count /= more);
    }
    let mut seen = 0.0;
    let within = orders.iter().take_while(|count| {
        seen += **count;
        seen <= part
    });
    within.count().saturating_sub(1).min((n * m - 1) / 2)
}

/// The bounds of what is left without the lowest and the highest 2.5 %; `None` without values.
pub fn middle_95(values: &mut [f64]) -> Option<(f64, f64)> {
    values.sort_by(f64::total_cmp);
    let at = |part: f64| values.get((values.len().saturating_sub(1) as f64 * part).round() as usize).copied();
    at(0.025).zip(at(0.975))
}

/// The geometric mean, `None` without values or with one that is not above 0.
pub fn geometric_mean(values: &[f64]) -> Option<f64> {
    if values.is_empty() || values.iter().any(|&value| value <= 0.0) {
        return None;
    }
    Some((values.iter().map(|value| value.ln()).sum::<f64>() / values.len() as f64).exp())
}

fn ratio_of_medians(pairs: impl Iterator<Item = (f64, f64)>) -> Option<f64> {
    let (sample, base): (Vec<f64>, Vec<f64>) = pairs.unzip();
    let (sample, base) = (median(&sample)?, median(&base)?);
    (base > 0.0).then(|| sample / base)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 100.0]), Some(3.0));
    }

    #[test]
    fn one_outlier_does_not_move_the_deviation() {
        let calm = [10.0, 11.0, 9.0, 10.0, 11.0];
        let wild = [10.0, 11.0, 9.0, 10.0, 1e6];
        assert!((deviation(&calm).unwrap() - 1.4826).abs() < 1e-9);
        assert!(deviation(&wild).unwrap() <= deviation(&calm).unwrap());
        assert_eq!(deviation(&[5.0, 5.0]), Some(0.0));
        assert_eq!(deviation(&[]), None);
    }

    #[test]
    fn a_summary_has_the_extremes() {
        let s = Summary::of(&[2.0, 8.0, 4.0]).unwrap();
        assert_eq!((s.median, s.min, s.max), (4.0, 2.0, 8.0));
        assert!((s.relative_deviation() - 2.0 * 1.4826 / 4.0).abs() < 1e-9);
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[0.0]).unwrap().relative_deviation(), 0.0);
    }

    #[test]
    fn pairing_cancels_what_disturbs_both() {
        // The machine gets five times slower on the way; the sample stays at 1.1 of the base.
        let pairs: Vec<(f64, f64)> =
            (0..20).map(|i| 1.0 + f64::from(i) * 0.2).map(|base| (base * 1.1, base)).collect();
        let r = ratio(&pairs, 1).unwrap();
        let (low, high) = r.interval.unwrap();
        assert!((r.ratio - 1.1).abs() < 1e-9);
        assert!((low - 1.1).abs() < 1e-9 && (high - 1.1).abs() < 1e-9, "{low} {high}");
    }

    #[test]
    fn the_interval_covers_the_truth_about_as_often_as_it_says() {
        let mut rng = Rng::new(7);
        let mut noise = || 1.0 + 0.1 * (rng.bits() as f64 / u64::MAX as f64);
        let covered = (0..200)
            .filter(|&seed| {
                let pairs: Vec<(f64, f64)> = (0..15).map(|_| (2.0 * noise(), noise())).collect();
                let (low, high) = ratio(&pairs, seed).unwrap().interval.unwrap();
                assert!(low <= high);
                (low..=high).contains(&2.0)
            })
            .count();
        assert!((176..=200).contains(&covered), "{covered} of 200");
    }

    #[test]
    fn the_interval_of_few_pairs_has_the_extremes() {
        let mut rng = Rng::new(3);
        let mut even = move || 1.0 + (rng.bits() >> 11) as f64 / (1u64 << 53) as f64;
        // How often it leaves out 1 where there is no difference, of 200 times.
        let mut wrong = |rounds: usize| {
            let mut is_wrong = |seed| {
                let pairs: Vec<(f64, f64)> = (0..rounds).map(|_| (even(), even())).collect();
                let (low, high) = ratio(&pairs, seed).unwrap().interval.unwrap();
                low > 1.0 || high < 1.0
            };
            (0..200).filter(|&seed| is_wrong(seed)).count()
        };
        let (of_three, of_five) = (wrong(3), wrong(5));
        assert!(of_three > 30 && of_five < 30, "{of_three} and {of_five} of 200");
    }

    #[test]
    fn samples_of_different_times_are_compared() {
        let base: Vec<f64> = (0..9).map(|i| 10.0 + 0.01 * f64::from(i)).collect();
        let slower: Vec<f64> = base.iter().map(|v| v * 1.1).collect();
        let Ratio { ratio, interval } = ratio_apart(&slower, &base, 0.99).unwrap();
        let (low, high) = interval.unwrap();
        assert!((ratio - 1.1).abs() < 1e-9, "{ratio}");
        assert!(low > 1.09 && low <= ratio && ratio <= high && high < 1.11, "{low} {high}");
        let (low, high) = ratio_apart(&base, &base, 0.99).unwrap().interval.unwrap();
        assert!(low < 1.0 && high > 1.0, "{low} {high}");
        // A single wild value moves nothing.
        let wild: Vec<f64> = base[..8].iter().copied().chain([1e9]).collect();
        let shift = ratio_apart(&wild, &base, 0.99).unwrap();
        assert!((shift.ratio - 1.0).abs() < 0.002 && shift.interval.unwrap().1 < 1.02, "{shift:?}");
        assert_eq!(ratio_apart(&[1.0, 2.0], &base, 0.99).unwrap().interval, None);
        assert_eq!(ratio_apart(&[], &base, 0.99), None);
        assert_eq!(ratio_apart(&base, &[0.0, 0.0, 0.0], 0.99), None);
    }

    #[test]
    fn rank_tests_have_their_tables() {
        // Critical values of U, two-sided, less one, as printed in tables: 5 and 5 at 5 %: 2; 7 and 7 at 1 %: 4;
        // 10 and 10 at 5 %: 23; 5 and 5 at 1 %: 0.
        assert_eq!(left_out(5, 5, 0.025), 2);
        assert_eq!(left_out(7, 7, 0.005), 4);
        assert_eq!(left_out(10, 10, 0.025), 23);
        assert_eq!(left_out(5, 5, 0.005), 0);
        // Nothing is sure from three.
        assert_eq!(left_out(3, 3, 0.005), 0);
    }

    #[test]
    fn rank_tests_of_many_values_have_their_normal_limit() {
        // n m / 2 - z sqrt(n m (n + m + 1) / 12), with z = 1.96. There are more orders than a number can say.
        for (n, limit) in [(100, 4198.0), (520, 125_707.0)] {
            let out = left_out(n, n, 0.025) as f64;
            assert!((out / limit - 1.0).abs() < 0.002, "{out} of {n}");
        }
    }

    #[test]
    fn shifts_are_covered_as_often_as_is_said() {
        let mut rng = Rng::new(11);
        let mut draw = |factor: f64| -> Vec<f64> {
            let mut one = || (rng.bits() >> 11) as f64 / (1u64 << 53) as f64;
            (0..7)
                .map(|_| factor * (1.0 + 0.1 * (one() + one()) + if one() < 0.1 { one() } else { 0.0 }))
                .collect()
        };
        let covered = (0..2000).filter(|_| {
            let (low, high) = ratio_apart(&draw(1.5), &draw(1.0), 0.95).unwrap().interval.unwrap();
            (low..=high).contains(&1.5)
        });
        let covered = covered.count();
        assert!((1880..1970).contains(&covered), "{covered} of 2000");
    }

    #[test]
    fn a_spread_is_half_of_what_lies_between_the_quartiles() {
        assert!((spread(&[1.0, 2.0, 3.0, 4.0, 5.0]) - 1.0 / 3.0).abs() < 1e-12);
        assert!((spread(&[1.0, 2.0, 3.0, 4.0]) - 0.3).abs() < 1e-12);
        assert_eq!((spread(&[]), spread(&[4.0, 9.0]), spread(&[0.0, 0.0, 0.0])), (0.0, 0.0, 0.0));
    }

    #[test]
    fn signs_are_flipped() {
        let near = |value: f64, wanted: f64| assert!((value - wanted).abs() < 1e-12, "{value}");
        near(sign_flips(&[1.0; 8]), 1.0 / 256.0);
        near(sign_flips(&[1.0, -1.0]), 0.75);
        near(sign_flips(&[-1.0; 8]), 1.0);
        near(sign_flips(&[]), 1.0);
        assert!(sign_flips(&[1.0; 20]) < 0.01);
        assert!(sign_flips(&[1.0, -1.0].repeat(10)) > 0.2);
    }

    #[test]
    fn geometric_means() {
        assert_eq!(geometric_mean(&[]), None);
        assert_eq!(geometric_mean(&[1.0, 0.0]), None);
        assert!((geometric_mean(&[0.5, 2.0, 8.0]).unwrap() - 2.0).abs() < 1e-12);
    }

    #[test]
    fn too_little_gives_no_interval() {
        assert_eq!(ratio(&[], 1), None);
        assert_eq!(ratio(&[(1.0, 0.0)], 1), None);
        assert_eq!(ratio(&[(1.0, 2.0), (1.0, 2.0)], 1), Some(Ratio { ratio: 0.5, interval: None }));
    }
}
