// SPDX-License-Identifier: MIT
//! Few numbers, much noise: medians, deviations that an outlier cannot move, resampled intervals.

use serde::Serialize;

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

/// A sample, condensed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
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
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Ratio {
    /// Median of the sample by median of the base.
    pub ratio: f64,
    /// The bounds of the 95 % bootstrap interval; `None` from fewer than three pairs.
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
    resampled.sort_by(f64::total_cmp);
    let at = |part: f64| resampled.get(((resampled.len() - 1) as f64 * part).round() as usize).copied();
    Some(Ratio { ratio: point, interval: at(0.025).zip(at(0.975)) })
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
    fn too_little_gives_no_interval() {
        assert_eq!(ratio(&[], 1), None);
        assert_eq!(ratio(&[(1.0, 0.0)], 1), None);
        assert_eq!(ratio(&[(1.0, 2.0), (1.0, 2.0)], 1), Some(Ratio { ratio: 0.5, interval: None }));
    }
}
