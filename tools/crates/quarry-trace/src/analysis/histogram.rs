// SPDX-License-Identifier: MIT
//! Counts by powers of two, and counts of exact sizes.

use std::collections::BTreeMap;

use crate::hash::NumberMap;
use crate::sample::{Estimate, Rate, Sampling, Weight};

/// One bar of a histogram.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Bar {
    /// Blocks.
    pub count: Estimate,
    /// Bytes requested for them.
    pub bytes: Estimate,
}

/// Blocks by a number, in powers of two.
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram {
    /// The first bar is for 0, the others for 2^(i-1) up to 2^i - 1.
    pub bars: [Bar; 65],
    /// Blocks in all.
    pub count: Estimate,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { bars: [Bar::default(); 65], count: Estimate::default() }
    }
}

impl Histogram {
    /// Count a block of so many bytes.
    #[inline]
    pub fn add(&mut self, number: u64, bytes: u64, weight: Weight) {
        let bar = &mut self.bars[(64 - number.leading_zeros()) as usize];
        bar.count.count(weight);
        bar.bytes.add(bytes, weight);
        self.count.count(weight);
    }

    /// The least and the highest number of a bar.
    pub fn range(index: usize) -> (u64, u64) {
        match index {
            0 => (0, 0),
            _ => (1 << (index - 1), u64::MAX >> (64 - index)),
        }
    }

    /// The bars from the first to the last one that is not empty.
    pub fn filled(&self) -> std::ops::Range<usize> {
        let filled = |bar: &Bar| bar.count.value() > 0;
        let first = self.bars.iter().position(filled).unwrap_or(0);
        first..self.bars.iter().rposition(filled).map_or(first, |last| last + 1)
    }

    /// The number that this part of all blocks keeps within, as well as powers of two tell.
    pub fn quantile(&self, part: f64) -> u64 {
        let wanted = (part * self.count.value() as f64).ceil() as u64;
        let mut seen = 0;
        for (index, bar) in self.bars.iter().enumerate() {
            seen += bar.count.value();
            if seen >= wanted.max(1) {
                return Self::range(index).1;
            }
        }
        0
    }
}

/// Sizes below this have a counter each.
const SMALL: usize = 1 << 16;
/// Larger sizes that are counted one by one.
const LARGE: usize = 1 << 16;

/// How often each size was requested.
#[derive(Debug)]
pub(crate) struct Sizes {
    small: Box<[u64]>,
    large: NumberMap<u64>,
    /// Of samples at other rates than the head's.
    others: BTreeMap<(u64, Rate), u64>,
    /// Requests of large sizes for which there was no counter.
    pub uncounted: u64,
}

impl Default for Sizes {
    fn default() -> Self {
        Self {
            small: vec![0; SMALL].into(),
            large: NumberMap::default(),
            others: BTreeMap::new(),
            uncounted: 0,
        }
    }
}

impl Sizes {
    #[inline]
    pub(crate) fn add(&mut self, size: u64, rate: Rate) {
        if rate != Rate::default() {
            return self.other_rate(size, rate);
        }
        match self.small.get_mut(size as usize) {
            Some(count) if size < SMALL as u64 => *count += 1,
            _ if self.large.len() < LARGE || self.large.get(size).is_some() => {
                *self.large.get_or(size, || 0) += 1;
            }
            _ => self.uncounted += 1,
        }
    }

    #[cold]
    fn other_rate(&mut self, size: u64, rate: Rate) {
        if self.others.len() < LARGE || self.others.contains_key(&(size, rate)) {
            *self.others.entry((size, rate)).or_default() += 1;
        } else {
            self.uncounted += 1;
        }
    }

    /// How many different sizes there are.
    pub(crate) fn distinct(&self) -> u64 {
        let mut more: Vec<u64> = self.others.keys().map(|&(size, _)| size).collect();
        more.dedup();
        more.retain(|&size| self.count(size) == 0);
        let small = self.small.iter().filter(|&&count| count > 0).count() as u64;
        small + self.large.len() as u64 + more.len() as u64
    }

    fn count(&self, size: u64) -> u64 {
        match self.small.get(size as usize) {
            Some(&count) if size < SMALL as u64 => count,
            _ => self.large.get(size).copied().unwrap_or(0),
        }
    }

    /// All sizes of a sample, and how many blocks they stand for. Each size has those of all of its rates.
    pub(crate) fn estimates(&self, sampling: Sampling) -> Vec<(u64, Estimate)> {
        let mut all: BTreeMap<u64, Estimate> = BTreeMap::new();
        for (size, n) in self.top(usize::MAX, |_, n| n.into()) {
            all.insert(size, Estimate::of(n, 1, sampling.weight(size)));
        }
        for (&(size, rate), &n) in &self.others {
            *all.entry(size).or_default() += Estimate::of(n, 1, sampling.weight_at(rate, size));
        }
        all.into_iter().collect()
    }

    /// The sizes with the highest key, and their counts.
    pub(crate) fn top(&self, n: usize, key: impl Fn(u64, u64) -> u128) -> Vec<(u64, u64)> {
        let small = self.small.iter().enumerate().map(|(size, &count)| (size as u64, count));
        let all = small.chain(self.large.iter().map(|(size, &count)| (size, count)));
        let mut all: Vec<(u64, u64)> = all.filter(|&(_, count)| count > 0).collect();
        all.sort_unstable_by_key(|&(size, count)| (std::cmp::Reverse(key(size, count)), size));
        all.truncate(n);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_of_powers_of_two() {
        let mut histogram = Histogram::default();
        for number in [0, 1, 2, 3, 4, 7, 8, u64::MAX] {
            histogram.add(number, 10, Weight::ONE);
        }
        let counts: Vec<u64> = histogram.bars[..5].iter().map(|bar| bar.count.value()).collect();
        assert_eq!(counts, [1, 1, 2, 2, 1]);
        assert_eq!((histogram.bars[64].count.value(), histogram.bars[64].bytes.value()), (1, 10));
        assert_eq!([0, 1, 3, 64].map(Histogram::range), [(0, 0), (1, 1), (4, 7), (1 << 63, u64::MAX)]);
        assert_eq!(histogram.filled(), 0..65);
        assert_eq!(Histogram::default().filled(), 0..0);
        assert_eq!((histogram.quantile(0.5), histogram.quantile(0.51)), (3, 7));
        assert_eq!(Histogram::default().quantile(0.5), 0);
    }

    #[test]
    fn a_size_has_the_blocks_of_all_its_rates() {
        let (mut sizes, sampling) = (Sizes::default(), Sampling::one_in(1 << 20));
        let (head, other) = (Rate::default(), Rate::one_in(1 << 10));
        for (size, rate) in
            [(100, head), (100, other), (100, other), (7, other), (1 << 18, other), (1 << 18, head)]
        {
            sizes.add(size, rate);
        }
        let of = |n, rate, size| Estimate::of(n, 1, sampling.weight_at(rate, size));
        let mut hundred = of(1, head, 100);
        hundred += of(2, other, 100);
        let mut large = of(1, head, 1 << 18);
        large += of(1, other, 1 << 18);
        assert_eq!(sizes.estimates(sampling), [(7, of(1, other, 7)), (100, hundred), (1 << 18, large)]);
        assert_eq!(sizes.distinct(), 3);
        (0..2 * LARGE as u64).for_each(|size| sizes.add(size, other));
        assert!(sizes.uncounted > 0 && sizes.others.len() == LARGE);
    }

    #[test]
    fn exact_sizes_are_bounded() {
        let mut sizes = Sizes::default();
        for size in 0..200_000u64 {
            sizes.add(size, Rate::default());
        }
        [24, SMALL as u64, 1 << 60].iter().for_each(|&size| sizes.add(size, Rate::default()));
        assert_eq!(sizes.top(2, |_, count| count.into()), [(24, 2), (SMALL as u64, 2)]);
        assert_eq!(sizes.distinct(), (SMALL + LARGE) as u64);
        assert_eq!(sizes.uncounted, 200_000 - (SMALL + LARGE) as u64 + 1);
        assert_eq!(sizes.top(1, |size, count| u128::from(size) * u128::from(count)), [(SMALL as u64, 2)]);
    }
}
