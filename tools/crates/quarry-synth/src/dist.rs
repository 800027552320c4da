// SPDX-License-Identifier: MIT
//! Distributions of whole numbers, as they are written and as they are drawn from.

use std::fmt;
use std::str::FromStr;

use quarry_measure::quantity::bytes;
use quarry_measure::rng::Rng;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The largest number that is ever drawn: no block is larger, and nothing lives longer.
pub const MOST: u64 = 1 << 46;

/// A distribution. In text and in models: `constant:64`, `uniform:16..4096`, `lognormal:48,1.5` (median, standard
/// deviation of the natural logarithm), `never` (only for lifetimes). In models also
/// `{"histogram": [[from, to, weight], ...]}`, both ends included.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(into = "Written", try_from = "Written")]
pub enum Dist {
    /// Always the same.
    Constant(u64),
    /// All from the first to the second alike.
    Uniform(u64, u64),
    /// The logarithm is normally distributed.
    LogNormal {
        /// half are below
        median: f64,
        /// of the logarithm's normal distribution
        sigma: f64,
    },
    /// Ranges with weights; within a range all alike.
    Histogram(Vec<Bin>),
    /// No number: it lives for ever.
    Never,
}

/// A range of numbers, both ends included, and its weight.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(into = "(u64, u64, f64)", from = "(u64, u64, f64)")]
pub struct Bin {
    /// least
    pub from: u64,
    /// most
    pub to: u64,
    /// how often, in any unit
    pub weight: f64,
}

impl From<Bin> for (u64, u64, f64) {
    fn from(bin: Bin) -> Self {
        (bin.from, bin.to, bin.weight)
    }
}

impl From<(u64, u64, f64)> for Bin {
    fn from((from, to, weight): (u64, u64, f64)) -> Self {
        Self { from, to, weight }
    }
}

/// The two forms a model may have.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Text(String),
    Ranges { histogram: Vec<Bin> },
}

/// Why a distribution makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DistError {
    /// An unknown word or a bad number.
    #[error(
        "'{0}' is no distribution: say constant:N, uniform:A..B, lognormal:MEDIAN,SIGMA, or histogram:FILE"
    )]
    Form(String),
    /// Numbers that cannot be.
    #[error("'{0}': {1}")]
    Range(String, &'static str),
    /// Ranges that cannot be.
    #[error("a histogram {0}")]
    Histogram(&'static str),
}

impl From<Dist> for Written {
    fn from(dist: Dist) -> Self {
        match dist {
            Dist::Histogram(histogram) => Written::Ranges { histogram },
            other => Written::Text(other.to_string()),
        }
    }
}

impl TryFrom<Written> for Dist {
    type Error = DistError;

    fn try_from(written: Written) -> Result<Self, DistError> {
        match written {
            Written::Text(text) => text.parse(),
            Written::Ranges { histogram } => Self::histogram(histogram),
        }
    }
}

impl fmt::Display for Dist {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dist::Constant(n) => write!(f, "constant:{n}"),
            Dist::Uniform(a, b) => write!(f, "uniform:{a}..{b}"),
            Dist::LogNormal { median, sigma } => write!(f, "lognormal:{median},{sigma}"),
            Dist::Histogram(bins) => write!(f, "histogram of {} ranges", bins.len()),
            Dist::Never => f.write_str("never"),
        }
    }
}

impl FromStr for Dist {
    type Err = DistError;

    fn from_str(text: &str) -> Result<Self, DistError> {
        let form = || DistError::Form(text.to_owned());
        let range = |why| DistError::Range(text.to_owned(), why);
        if text == "never" {
            return Ok(Dist::Never);
        }
        let (family, rest) = text.split_once(':').ok_or_else(form)?;
        match family {
            "constant" => Ok(Dist::Constant(bytes(rest).ok_or_else(form)?)),
            "uniform" => {
                let (a, b) = rest.split_once("..").ok_or_else(form)?;
                let (a, b) = bytes(a).zip(bytes(b)).ok_or_else(form)?;
                if a > b { Err(range("the first number is the larger one")) } else { Ok(Dist::Uniform(a, b)) }
            }
            "lognormal" => {
                let (median, sigma) = rest.split_once(',').ok_or_else(form)?;
                let median = match bytes(median) {
                    Some(n) => n as f64,
                    None => median.trim().parse().map_err(|_| form())?,
                };
                let sigma: f64 = sigma.trim().parse().map_err(|_| form())?;
                if !(median > 0.0 && median <= MOST as f64) {
                    return Err(range("the median must be above 0 and at most 64 TiB"));
                }
                if !(0.0..=20.0).contains(&sigma) {
                    return Err(range("sigma must be from 0 to 20"));
                }
                Ok(Dist::LogNormal { median, sigma })
            }
            _ => Err(form()),
        }
    }
}

impl Dist {
    /// Ranges with weights.
    pub fn histogram(bins: Vec<Bin>) -> Result<Self, DistError> {
        if bins.iter().any(|bin| bin.from > bin.to || bin.to > MOST) {
            return Err(DistError::Histogram(
                "has a range whose first number is the larger one, or above 2^46",
            ));
        }
        if bins.iter().any(|bin| !bin.weight.is_finite() || bin.weight < 0.0) {
            return Err(DistError::Histogram("has a weight that is no number, or below 0"));
        }
        if bins.iter().map(|bin| bin.weight).sum::<f64>() <= 0.0 {
            return Err(DistError::Histogram("is empty"));
        }
        if bins.len() > 1 << 24 {
            return Err(DistError::Histogram("has more than 16 million ranges"));
        }
        Ok(Dist::Histogram(bins))
    }

    /// The mean of what is drawn; infinite for `never`.
    pub fn mean(&self) -> f64 {
        match self {
            Dist::Constant(n) => *n as f64,
            Dist::Uniform(a, b) => (*a as f64 + *b as f64) / 2.0,
            Dist::LogNormal { median, sigma } => median * libm::exp(sigma * sigma / 2.0),
            Dist::Histogram(bins) => {
                let total: f64 = bins.iter().map(|bin| bin.weight).sum();
                bins.iter().map(|bin| (bin.from as f64 + bin.to as f64) / 2.0 * bin.weight / total).sum()
            }
            Dist::Never => f64::INFINITY,
        }
    }

    /// Prepare to draw from it.
    pub fn sampler(&self) -> Sampler {
        match self {
            Dist::Constant(n) => Sampler::Constant((*n).min(MOST)),
            Dist::Uniform(a, b) => Sampler::Uniform((*a).min(MOST), (*b).min(MOST)),
            Dist::LogNormal { median, sigma } => Sampler::LogNormal(*median, *sigma, None),
            Dist::Histogram(bins) => {
                let weights: Vec<f64> = bins.iter().map(|bin| bin.weight).collect();
                Sampler::Histogram(Alias::new(&weights), bins.iter().map(|bin| (bin.from, bin.to)).collect())
            }
            Dist::Never => Sampler::Never,
        }
    }
}

/// Draws from a distribution. All arithmetic is the same on every machine.
#[derive(Debug, Clone)]
pub enum Sampler {
    /// One number.
    Constant(u64),
    /// From, to.
    Uniform(u64, u64),
    /// Median, sigma, and the second of two normal numbers that are made together.
    LogNormal(f64, f64, Option<f64>),
    /// Which range, and the ranges.
    Histogram(Alias, Vec<(u64, u64)>),
    /// No number.
    Never,
}

impl Sampler {
    /// The next number; `None`: for ever.
    pub fn draw(&mut self, rng: &mut Rng) -> Option<u64> {
        Some(match self {
            Sampler::Constant(n) => *n,
            Sampler::Uniform(a, b) => between(rng, *a, *b),
            Sampler::LogNormal(median, sigma, spare) => {
                let normal = spare.take().unwrap_or_else(|| {
                    let (first, second) = two_normal(rng);
                    *spare = Some(second);
                    first
                });
                // Saturates: `as` does.
                (*median * libm::exp(*sigma * normal)).round().min(MOST as f64) as u64
            }
            Sampler::Histogram(which, ranges) => {
                let (from, to) = ranges[which.draw(rng)];
                between(rng, from, to)
            }
            Sampler::Never => return None,
        })
    }
}

/// A number from `a` to `b`, both included.
pub fn between(rng: &mut Rng, a: u64, b: u64) -> u64 {
    match b.checked_sub(a).map(|span| span.checked_add(1)) {
        None => a,
        Some(Some(count)) => a + rng.below(count as usize) as u64,
        // All numbers there are.
        Some(None) => rng.bits(),
    }
}

/// A number from 0 to below 1, with 53 bits.
pub fn fraction(rng: &mut Rng) -> f64 {
    (rng.bits() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
}

/// Two independent numbers of the standard normal distribution, by Marsaglia's polar method.
fn two_normal(rng: &mut Rng) -> (f64, f64) {
    loop {
        let (x, y) = (2.0 * fraction(rng) - 1.0, 2.0 * fraction(rng) - 1.0);
        let square = x * x + y * y;
        if square < 1.0 && square > 0.0 {
            let scale = (-2.0 * libm::log(square) / square).sqrt();
            return (x * scale, y * scale);
        }
    }
}

/// Draws an index by weight in constant time (Walker's alias method, built as Vose does).
#[derive(Debug, Clone)]
pub struct Alias {
    /// The part of each column that is its own, and the index of the rest.
    columns: Vec<(f64, u32)>,
}

impl Alias {
    /// Weights are not negative, their sum is above 0, and there are fewer than 2^32.
    pub fn new(weights: &[f64]) -> Self {
        let total: f64 = weights.iter().sum();
        let mut own: Vec<f64> = weights.iter().map(|w| w / total * weights.len() as f64).collect();
        let mut columns: Vec<(f64, u32)> = (0..own.len()).map(|index| (1.0, index as u32)).collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) =
            (0..own.len()).partition(|&index| own[index] < 1.0);
        while let (Some(&low), Some(&high)) = (small.last(), large.last()) {
            small.pop();
            columns[low] = (own[low], high as u32);
            own[high] -= 1.0 - own[low];
            if own[high] < 1.0 {
                large.pop();
                small.push(high);
            }
        }
        // What is left over is 1 but for rounding; a weight of 0 must not become 1 by it.
        let heaviest = (0..weights.len()).max_by(|&a, &b| weights[a].total_cmp(&weights[b])).unwrap_or(0);
        for index in small.into_iter().filter(|&index| weights[index] == 0.0) {
            columns[index] = (0.0, heaviest as u32);
        }
        Self { columns }
    }

    /// An index.
    pub fn draw(&self, rng: &mut Rng) -> usize {
        let column = rng.below(self.columns.len());
        let (own, other) = self.columns[column];
        if fraction(rng) < own { column } else { other as usize }
    }
}

#[cfg(test)]
#[path = "dist_tests.rs"]
mod tests;
