// SPDX-License-Identifier: MIT
//! What a trace is like: sizes, lifetimes, live bytes; and how far two traces are apart in that.

use std::collections::BTreeSet;

use quarry_trace::Event;
use quarry_trace::sample::Sampling;
use serde::Serialize;

use super::objects::{Change, Object, Objects};

/// The range of numbers that share a bin: numbers below 2^bits are alone, above there are 2^bits bins for each
/// doubling.
pub fn bin(value: u64, bits: u32) -> (u64, u64) {
    if value >> bits == 0 {
        return (value, value);
    }
    let shift = value.ilog2() - bits;
    let from = value >> shift << shift;
    (from, from + ((1 << shift) - 1))
}

/// The number of that bin.
fn index(value: u64, bits: u32) -> usize {
    if value >> bits == 0 {
        return value as usize;
    }
    let shift = value.ilog2() - bits;
    ((shift as usize) << bits) + (value >> shift) as usize
}

/// 128 bins for each doubling.
const BITS: u32 = 7;

/// Counts of numbers.
#[derive(Debug, Clone, Default)]
pub struct Histogram {
    counts: Vec<u64>,
    /// Of what has no number.
    never: u64,
    total: u64,
    sum: f64,
}

impl Histogram {
    /// Count a number; `None`: what never comes.
    pub fn add(&mut self, value: Option<u64>) {
        self.add_many(value, 1);
    }

    /// Count a number so often.
    pub fn add_many(&mut self, value: Option<u64>, times: u64) {
        self.total += times;
        let Some(value) = value else {
            self.never += times;
            return;
        };
        self.sum += value as f64 * times as f64;
        let index = index(value, BITS);
        if self.counts.len() <= index {
            self.counts.resize(index + 1, 0);
        }
        self.counts[index] += times;
    }

    /// How many were counted.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// How many have no number.
    pub fn never(&self) -> u64 {
        self.never
    }

    /// The mean of those that have one.
    pub fn mean(&self) -> f64 {
        self.sum / (self.total - self.never).max(1) as f64
    }

    /// The number that this part of all is not above, to within a bin; `None`: never.
    pub fn quantile(&self, part: f64) -> Option<u64> {
        let wanted = (part * self.total as f64).ceil().max(1.0) as u64;
        let mut sum = 0;
        for (index, &count) in self.counts.iter().enumerate() {
            sum += count;
            if sum >= wanted {
                return Some(from_index(index));
            }
        }
        None
    }

    /// The distance of Kolmogorov and Smirnov: the largest difference between the parts of both that are not above
    /// some number. From 0, alike, to 1. What never comes is above every number.
    pub fn distance(&self, other: &Self) -> f64 {
        if self.total == 0 || other.total == 0 {
            return if self.total == other.total { 0.0 } else { 1.0 };
        }
        let (mut a, mut b, mut most) = (0, 0, 0.0_f64);
        for index in 0..self.counts.len().max(other.counts.len()) {
            a += self.counts.get(index).unwrap_or(&0);
            b += other.counts.get(index).unwrap_or(&0);
            most = most.max((a as f64 / self.total as f64 - b as f64 / other.total as f64).abs());
        }
        most
    }
}

/// The least number of a bin.
fn from_index(index: usize) -> u64 {
    if index >> BITS == 0 {
        return index as u64;
    }
    let shift = (index >> BITS) as u32 - 1;
    ((index as u64) - (u64::from(shift) << BITS)) << shift
}

const POINTS: usize = 4096;

/// A quantity over the count of allocations: at equal distances, at most 4096 values.
#[derive(Debug, Clone)]
pub struct Curve {
    values: Vec<u64>,
    every: u64,
    seen: u64,
}

impl Default for Curve {
    fn default() -> Self {
        Self { values: Vec::new(), every: 1, seen: 0 }
    }
}

impl Curve {
    fn add(&mut self, value: u64) {
        if self.seen.is_multiple_of(self.every) {
            if self.values.len() == POINTS {
                let mut index = 0;
                self.values.retain(|_| {
                    index += 1;
                    index % 2 == 1
                });
                self.every *= 2;
            }
            if self.seen.is_multiple_of(self.every) {
                self.values.push(value);
            }
        }
        self.seen += 1;
    }

    /// The value stays the same for so many.
    fn add_many(&mut self, value: u64, times: u64) {
        let mut left = times;
        while left > 0 {
            let to_next = (self.every - self.seen % self.every) % self.every;
            let skipped = to_next.min(left);
            (self.seen, left) = (self.seen + skipped, left - skipped);
            if left > 0 {
                self.add(value);
                left -= 1;
            }
        }
    }

    /// The values, and how many allocations lie between two.
    pub fn values(&self) -> (&[u64], u64) {
        (&self.values, self.every)
    }

    /// The mean of the absolute differences, as a part of this one's mean. Both run from their beginning to their
    /// end, whatever their lengths.
    fn distance(&self, other: &Self) -> f64 {
        const STEPS: usize = 1000;
        if self.values.is_empty() || other.values.is_empty() {
            return if self.values.len() == other.values.len() { 0.0 } else { 1.0 };
        }
        let at = |values: &[u64], step: usize| values[step * (values.len() - 1) / (STEPS - 1)] as f64;
        let (mut difference, mut sum) = (0.0, 0.0);
        for step in 0..STEPS {
            let (a, b) = (at(&self.values, step), at(&other.values, step));
            difference += (a - b).abs();
            sum += a;
        }
        if difference == 0.0 { 0.0 } else { difference / sum }
    }
}

/// What a trace is like.
#[derive(Debug, Default)]
pub struct Profile {
    objects: Objects,
    /// Bytes of all requests, those of reallocations too.
    pub sizes: Histogram,
    /// How many further allocations each object outlived; complete after [`Profile::finish`].
    pub lifetimes: Histogram,
    /// Bytes that live, after each allocation.
    pub live: Curve,
    /// The most of them.
    pub peak: u64,
    /// Reallocations.
    pub reallocations: u64,
    /// Frees.
    pub frees: u64,
    /// Frees by another thread than the one that allocated.
    pub handed_over: u64,
    threads: BTreeSet<u32>,
}

impl Profile {
    /// Of a trace that may be a sample.
    pub fn of(sampling: Sampling) -> Self {
        Self { objects: Objects::of(sampling), ..Self::default() }
    }

    /// Take note of an event, in the order of time.
    pub fn see(&mut self, event: &Event) -> Option<Change> {
        let change = self.objects.see(event);
        match &change {
            Some(Change::Birth(size, times)) => {
                self.sizes.add_many(Some(*size), *times);
                self.live.add_many(self.objects.bytes(), *times);
                self.threads.insert(event.thread);
            }
            Some(Change::Resize(size)) => {
                self.sizes.add(Some(*size));
                self.reallocations += 1;
            }
            Some(Change::Death(object, by)) => {
                let times = object.stands;
                self.lifetimes.add_many(Some(self.objects.allocations - (object.born + times)), times);
                self.frees += times;
                self.handed_over += if *by == object.thread { 0 } else { times };
            }
            None => {}
        }
        self.peak = self.peak.max(self.objects.bytes());
        change
    }

    /// What still lives lives for ever.
    pub fn finish(&mut self) {
        for object in self.objects.survivors() {
            self.lifetimes.add_many(None, object.stands);
        }
    }

    /// Allocations so far.
    pub fn allocations(&self) -> u64 {
        self.objects.allocations
    }

    /// Objects that live.
    pub fn survivors(&self) -> impl Iterator<Item = &Object> {
        self.objects.survivors()
    }

    /// In numbers.
    pub fn summary(&self) -> Summary {
        Summary {
            allocations: self.allocations(),
            reallocations: self.reallocations,
            frees: self.frees,
            handed_over: self.handed_over,
            survivors: self.lifetimes.never(),
            threads: self.threads.len() as u64,
            impossible: self.objects.impossible,
            size_mean: self.sizes.mean(),
            size_median: self.sizes.quantile(0.5).unwrap_or(0),
            lifetime_mean: self.lifetimes.mean(),
            lifetime_median: self.lifetimes.quantile(0.5),
            peak_live_bytes: self.peak,
        }
    }
}

/// A profile in numbers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// how many
    pub allocations: u64,
    /// how many
    pub reallocations: u64,
    /// how many
    pub frees: u64,
    /// of them by another thread than the one that allocated
    pub handed_over: u64,
    /// objects that live in the end
    pub survivors: u64,
    /// that allocate
    pub threads: u64,
    /// events that cannot be
    pub impossible: u64,
    /// bytes of a request
    pub size_mean: f64,
    /// bytes of a request
    pub size_median: u64,
    /// in allocations, of objects that were freed
    pub lifetime_mean: f64,
    /// in allocations, of all; null: never freed
    pub lifetime_median: Option<u64>,
    /// the most bytes that lived at a time
    pub peak_live_bytes: u64,
}

/// How far two traces are apart.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Distance {
    /// Of sizes, after Kolmogorov and Smirnov.
    pub sizes_ks: f64,
    /// Of lifetimes.
    pub lifetimes_ks: f64,
    /// Mean absolute difference of live bytes, as a part of their mean.
    pub live_mean: f64,
    /// How much higher the peak of live bytes is, as a part of the real one.
    pub live_peak: f64,
}

impl Distance {
    /// Of an imitation from the real one. Both are finished.
    pub fn between(real: &Profile, imitation: &Profile) -> Self {
        let peaks = [real.peak as f64, imitation.peak as f64];
        Self {
            sizes_ks: real.sizes.distance(&imitation.sizes),
            lifetimes_ks: real.lifetimes.distance(&imitation.lifetimes),
            live_mean: real.live.distance(&imitation.live),
            live_peak: if peaks[0] > 0.0 { peaks[1] / peaks[0] - 1.0 } else { f64::from(peaks[1] > 0.0) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quarry_measure::rng::Rng;

    #[test]
    fn bins_are_ranges_without_gaps() {
        for bits in [0, 1, 3, BITS] {
            let mut value = 0_u64;
            let mut expected = 0;
            while value < 1 << 50 {
                let (from, to) = bin(value, bits);
                assert_eq!((from, index(from, bits), index(to, bits)), (value, expected, expected), "{bits}");
                assert!(to - from <= from >> bits);
                if bits == BITS {
                    assert_eq!(from_index(expected), from);
                }
                (value, expected) = (to + 1, expected + 1);
            }
        }
        assert_eq!(bin(u64::MAX, 3).1, u64::MAX);
        assert!(index(u64::MAX, BITS) < 8000);
    }

    #[test]
    fn many_are_as_many_times_one() {
        let (mut one_by_one, mut at_once) = (Curve::default(), Curve::default());
        for n in 0..500_u64 {
            let times = n * n % 97;
            (0..times).for_each(|_| one_by_one.add(n));
            at_once.add_many(n, times);
        }
        assert_eq!(one_by_one.values(), at_once.values());
        assert_eq!(one_by_one.seen, at_once.seen);
        at_once.add_many(7, 1 << 50);
        assert!(at_once.values.len() <= POINTS);
    }

    #[test]
    fn distances_of_histograms() {
        let of = |values: &[u64]| {
            let mut histogram = Histogram::default();
            values.iter().for_each(|&value| histogram.add(Some(value)));
            histogram
        };
        let a = of(&[1, 2, 3, 4]);
        assert_eq!(a.distance(&a), 0.0);
        assert_eq!(a.distance(&of(&[1, 1, 2, 2, 3, 3, 4, 4])), 0.0, "the number of values does not matter");
        assert_eq!(a.distance(&of(&[5, 6])), 1.0);
        assert_eq!(a.distance(&of(&[1, 2, 3, 1_000_000])), 0.25);
        assert_eq!(a.distance(&of(&[1, 2, 4, 4])), 0.25);
        let mut never = of(&[1, 2]);
        never.add(None);
        never.add(None);
        assert_eq!((a.distance(&never), never.distance(&a)), (0.5, 0.5));
        assert_eq!((never.quantile(0.5), never.quantile(0.51), never.mean()), (Some(2), None, 1.5));
        let empty = Histogram::default();
        assert_eq!((empty.distance(&empty), empty.distance(&a)), (0.0, 1.0));
    }

    #[test]
    fn curves_keep_their_shape() {
        let mut rng = Rng::new(1);
        let mut short = Curve::default();
        (0..1000).for_each(|n| short.add(n * 10));
        for length in [10_000_u64, 100_003, 1_000_000] {
            let mut long = Curve::default();
            (0..length).for_each(|n| long.add(n * 10_000 / length));
            assert!(long.values.len() <= POINTS && long.values.len() >= POINTS / 2 - 1);
            assert!(short.distance(&long) < 0.002, "{}", short.distance(&long));
            let mut noisy = Curve::default();
            (0..length).for_each(|n| noisy.add(n * 10_000 / length + rng.below(1000) as u64));
            assert!((0.08..0.12).contains(&short.distance(&noisy)), "{}", short.distance(&noisy));
        }
    }
}
