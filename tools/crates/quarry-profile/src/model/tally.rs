// SPDX-License-Identifier: MIT
//! The sums of a row. Those of a whole trace are numbers, and take a fifth of the room that estimates do: there may be a million rows.

use quarry_trace::sample::{Estimate, Sampling, Weight};

/// Sums that belong together.
#[derive(Debug, Clone)]
pub enum Tally<const N: usize> {
    /// Of a whole trace.
    Exact([u64; N]),
    /// Of a sample.
    Estimated(Box<[Estimate; N]>),
}

impl<const N: usize> Tally<N> {
    /// Nothing was added.
    pub fn new(sampling: Sampling) -> Self {
        match sampling.is_sample() {
            false => Tally::Exact([0; N]),
            true => Tally::Estimated(Box::new([Estimate::default(); N])),
        }
    }

    /// Bytes of a block.
    #[inline]
    pub fn add(&mut self, at: usize, bytes: u64, weight: Weight) {
        match self {
            Tally::Exact(sums) => sums[at] = sums[at].wrapping_add(bytes),
            Tally::Estimated(sums) => sums[at].add(bytes, weight),
        }
    }

    /// One more block.
    #[inline]
    pub fn count(&mut self, at: usize, weight: Weight) {
        match self {
            Tally::Exact(sums) => sums[at] = sums[at].wrapping_add(1),
            Tally::Estimated(sums) => sums[at].count(weight),
        }
    }

    /// Something that was added is no longer there.
    #[inline]
    pub fn take(&mut self, at: usize, amount: u64, weight: Weight) {
        match self {
            Tally::Exact(sums) => sums[at] = sums[at].wrapping_sub(amount),
            Tally::Estimated(sums) => sums[at].take(amount, weight),
        }
    }

    /// The sum.
    pub fn get(&self, at: usize) -> Estimate {
        match self {
            Tally::Exact(sums) => Estimate::exact(sums[at]),
            Tally::Estimated(sums) => sums[at],
        }
    }

    /// These sums are those of another tally, of the same trace.
    #[inline]
    pub fn copy<const M: usize>(&mut self, of: &Tally<M>, from: [usize; N]) {
        match (self, of) {
            (Tally::Exact(sums), Tally::Exact(of)) => *sums = from.map(|at| of[at]),
            (Tally::Estimated(sums), Tally::Estimated(of)) => **sums = from.map(|at| of[at]),
            (this, of) => *this = Tally::Estimated(Box::new(from.map(|at| of.get(at)))),
        }
    }
}
