// SPDX-License-Identifier: MIT
//! Sums over the blocks of a trace, which may be a sample.
//!
//! The recorder draws bytes, one in `rate` on average, and records the blocks that they lie in. So a block of n bytes is
//! in the trace with the probability p = 1 - exp(-n / rate), whatever happens to other blocks. One that was seen
//! stands for 1/p blocks: itself, and q = (1 - p) / p = 1 / (exp(n / rate) - 1) that were not seen. A sum of the
//! weighed blocks is right on average (Horvitz and Thompson), and q (1 + q) is an unbiased estimate of its variance.

mod gamma;

use std::ops::AddAssign;

use crate::event::ThreadId;
use crate::hash::NumberMap;
use crate::head::Head;
use crate::live::Object;

/// The part that an interval leaves out on each side: it holds the truth in 95 of 100 samples.
const TAIL: f64 = 0.025;

/// Below this part of a block the upper bound says that none is missing, which is then so in 99 of 100 samples.
const NONE: f64 = 0.05;

/// How the blocks of a trace were chosen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sampling {
    rate: u64,
}

impl Sampling {
    /// A trace of all blocks.
    pub const ALL: Self = Self { rate: 0 };

    /// What the head of a trace says.
    pub fn of(head: &Head) -> Self {
        Self { rate: head.sample }
    }

    /// One byte in `rate` was drawn; 0: all blocks are there.
    pub fn one_in(rate: u64) -> Self {
        Self { rate }
    }

    /// Mean bytes from one drawn byte to the next; 0: all blocks are there.
    pub fn rate(self) -> u64 {
        self.rate
    }

    /// Are blocks left out?
    pub fn is_sample(self) -> bool {
        self.rate != 0
    }

    /// What a block of a sample stands for: at the rate that it was drawn at.
    #[inline]
    pub fn weight_of(self, object: &Object) -> Weight {
        self.weight_at(object.rate, object.size)
    }

    /// What a block of so many bytes stands for that was drawn at this rate.
    #[inline]
    pub fn weight_at(self, rate: Rate, size: u64) -> Weight {
        if rate.0 == 0 || self.rate == 0 {
            self.weight(size)
        } else {
            Self { rate: rate.mean() }.weight(size)
        }
    }

    /// What a block of so many bytes stands for. A block of no bytes holds no byte that could be drawn: a sample has none,
    /// and where one is, it stands for itself.
    #[inline]
    pub fn weight(self, size: u64) -> Weight {
        if self.rate == 0 || size == 0 { Weight::ONE } else { self.drawn(size) }
    }

    fn drawn(self, size: u64) -> Weight {
        let rate = self.rate as f64;
        Weight { unseen: 1.0 / (size as f64 / rate).exp_m1(), rate }
    }
}

/// At which rate a block was drawn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(u8);

impl Rate {
    /// Bits of [`Rate::code`].
    pub(crate) const BITS: u32 = 6;

    /// One byte in so many; the power of two is taken that is not more. 0: as the head says.
    pub fn one_in(mean: u64) -> Self {
        Self(mean.checked_ilog2().map_or(0, |log| (log + 1).min((1 << Self::BITS) - 1) as u8))
    }

    /// Mean bytes between two samples; 0: as the head says.
    pub fn mean(self) -> u64 {
        if self.0 == 0 { 0 } else { 1 << (self.0 - 1) }
    }

    pub(crate) fn code(self) -> u8 {
        self.0
    }

    pub(crate) fn of_code(code: u8) -> Self {
        Self(code)
    }
}

/// The rates of threads, where they are others than the head says.
#[derive(Debug, Clone, Default)]
pub struct Rates(NumberMap<u8>);

impl Rates {
    /// This thread is sampled at another rate from here on.
    pub fn set(&mut self, thread: ThreadId, mean: u64) {
        *self.0.get_or(thread.into(), || 0) = Rate::one_in(mean).0;
    }

    /// That of a thread.
    #[inline]
    pub fn of(&self, thread: ThreadId) -> Rate {
        if self.0.is_empty() {
            Rate::default()
        } else {
            Rate(self.0.get(thread.into()).copied().unwrap_or(0))
        }
    }
}

/// Mean bytes from one drawn byte to the next, where they were fewest and where they were most: the rate may adapt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Means {
    /// The finest.
    pub least: u64,
    /// The coarsest.
    pub most: u64,
}

impl Means {
    /// As the head says.
    pub fn of(sampling: Sampling) -> Self {
        Self { least: sampling.rate(), most: sampling.rate() }
    }

    /// A thread is sampled at this rate from here on.
    pub fn add(&mut self, mean: u64) {
        let mean = Rate::one_in(mean).mean();
        if mean > 0 {
            (self.least, self.most) = (self.least.min(mean), self.most.max(mean));
        }
    }

    /// In words: "512 KiB", or "512 KiB to 8 MiB".
    pub fn words(self, bytes: impl Fn(u64) -> String) -> String {
        if self.least == self.most {
            bytes(self.most)
        } else {
            format!("{} to {}", bytes(self.least), bytes(self.most))
        }
    }
}

/// How many blocks one block stands for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Weight {
    unseen: f64,
    /// That of the sampling; 0: all blocks are there.
    rate: f64,
}

impl Weight {
    /// Itself.
    pub const ONE: Self = Self { unseen: 0.0, rate: 0.0 };

    /// All of them, itself too: 1/p.
    pub fn blocks(self) -> f64 {
        1.0 + self.unseen
    }

    /// Those that were not seen.
    pub fn unseen(self) -> f64 {
        self.unseen
    }
}

/// A sum over blocks: exact in a whole trace, and else what the sample says of the whole.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Estimate {
    /// Over the blocks that are in the trace.
    seen: u64,
    /// Over those they stand for beside themselves.
    unseen: f64,
    variance: f64,
    /// The variance, each block's multiplied by the probability that it is not drawn.
    missed: f64,
    /// Of a sum of bytes, the rate: no block that was not drawn leaves more than that unseen, on average.
    rate: f64,
}

impl Estimate {
    /// A sum that is known.
    pub fn exact(sum: u64) -> Self {
        Self { seen: sum, ..Self::default() }
    }

    /// The sum over `n` blocks of equal weight, of which each adds `amount`.
    pub fn of(n: u64, amount: u64, weight: Weight) -> Self {
        let mut sum = Self::exact(n.saturating_mul(amount));
        let unseen = amount as f64 * weight.unseen;
        sum.unseen = n as f64 * unseen;
        sum.variance = n as f64 * unseen * (amount as f64 + unseen);
        sum.missed = n as f64 * unseen * unseen;
        sum
    }

    /// One more block, with so many of its bytes.
    #[inline]
    pub fn add(&mut self, bytes: u64, weight: Weight) {
        self.seen = self.seen.wrapping_add(bytes);
        if weight.rate != 0.0 {
            self.rate = self.rate.max(weight.rate);
            self.add_unseen(bytes as f64, weight.unseen);
        }
    }

    /// One more request, which may be of any number of bytes: no sum of them is above the highest number.
    pub fn add_request(&mut self, bytes: u64, weight: Weight) {
        let seen = self.seen.saturating_add(bytes);
        self.add(bytes, weight);
        self.seen = seen;
    }

    /// One more block.
    #[inline]
    pub fn count(&mut self, weight: Weight) {
        self.seen = self.seen.wrapping_add(1);
        if weight.rate != 0.0 {
            self.add_unseen(1.0, weight.unseen);
        }
    }

    fn add_unseen(&mut self, amount: f64, unseen: f64) {
        let unseen = amount * unseen;
        self.unseen += unseen;
        self.variance += unseen * (amount + unseen);
        self.missed += unseen * unseen;
    }

    /// A block that was added is no longer there.
    #[inline]
    pub fn take(&mut self, amount: u64, weight: Weight) {
        self.seen = self.seen.wrapping_sub(amount);
        if weight.rate != 0.0 {
            let unseen = amount as f64 * weight.unseen;
            // What is left of rounding is no block.
            let less = |sum: f64, by: f64| if sum - by > sum * 1e-12 { sum - by } else { 0.0 };
            self.unseen = less(self.unseen, unseen);
            self.variance = less(self.variance, unseen * (amount as f64 + unseen));
            self.missed = less(self.missed, unseen * unseen);
        }
    }

    /// The sum. A sample is right on average.
    #[inline]
    pub fn value(&self) -> u64 {
        if self.unseen == 0.0 { self.seen } else { self.seen.saturating_add(self.unseen.round() as u64) }
    }

    /// An unbiased estimate of the variance of the sum; 0 of one that is known.
    pub fn variance(&self) -> f64 {
        self.variance
    }

    /// What was added to a sum since it was `earlier`, of which nothing was taken in between.
    pub fn since(&self, earlier: &Self) -> Self {
        let less = |now: f64, then: f64| (now - then).max(0.0);
        Self {
            seen: self.seen.wrapping_sub(earlier.seen),
            unseen: less(self.unseen, earlier.unseen),
            variance: less(self.variance, earlier.variance),
            missed: less(self.missed, earlier.missed),
            rate: self.rate,
        }
    }

    /// Over the blocks that are in the trace.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// In 95 of 100 samples the true sum lies between these, both included.
    ///
    /// What was seen is certain. What was not is taken for a gamma distribution of the estimated mean and variance,
    /// which is exact for blocks of equal weight that are seldom drawn (Fay and Feuer, 1997). A sum is shown because a
    /// block of it was drawn, so the lower bound does without one; for the upper one another was just missed. Of bytes
    /// that may be a small block, also where only large ones were seen. How many small blocks were missed beside large
    /// ones nobody can tell: the interval of a count is for blocks like those that were drawn.
    pub fn interval(&self) -> (u64, u64) {
        let with_small = self.with_small_block();
        if self.variance <= 0.0 || self.unseen <= 0.0 {
            return (self.value(), self.value().saturating_add(with_small.ceil() as u64));
        }
        let (scale, shape) = (self.variance / self.unseen, self.unseen * self.unseen / self.variance);
        let one = (self.missed / self.variance).min(1.0);
        let low = gamma::quantile(shape - one, TAIL) * scale;
        let high = gamma::quantile(shape + one, 1.0 - TAIL) * scale;
        // What was not seen are whole blocks. It matters where nearly all are drawn, and none or one is missing.
        let block = (scale * (1.0 - one)).max(f64::MIN_POSITIVE);
        let low = if one < 1.0 { (low / block).floor() * block } else { low };
        let high = if one < 1.0 && high >= block * NONE { (high / block).ceil() * block } else { high };
        let sum = |unseen: f64| self.seen.saturating_add(unseen as u64);
        (sum(low.min(self.unseen).floor()), sum(high.max(self.unseen).max(with_small).ceil()))
    }

    /// The upper bound of what was not seen, if a block that is small for the rate was just missed.
    fn with_small_block(&self) -> f64 {
        if self.rate == 0.0 {
            return 0.0;
        }
        let (unseen, variance) = (self.unseen + self.rate, self.variance + self.rate * self.rate);
        gamma::quantile(unseen * unseen / variance, 1.0 - TAIL) * variance / unseen
    }
}

impl AddAssign for Estimate {
    fn add_assign(&mut self, other: Self) {
        self.seen = self.seen.wrapping_add(other.seen);
        self.unseen += other.unseen;
        self.variance += other.variance;
        self.missed += other.missed;
        self.rate = self.rate.max(other.rate);
    }
}

#[cfg(test)]
#[path = "sample_tests.rs"]
mod tests;
