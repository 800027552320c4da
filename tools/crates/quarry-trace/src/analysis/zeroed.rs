// SPDX-License-Identifier: MIT
//! Large blocks of calloc: how much of them came fresh from the kernel, how much had to be cleared, and how much the
//! program touched later.

use std::collections::HashMap;

use crate::event::StackId;
use crate::sample::{Estimate, Sampling};

/// Sums over large blocks of calloc.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Zeroed {
    /// Blocks.
    pub count: Estimate,
    /// Bytes asked for.
    pub bytes: Estimate,
    /// Bytes that were resident when calloc returned: cleared by it, or by whoever had them before.
    pub cleared: Estimate,
    /// Bytes of those blocks whose end was seen.
    pub ended_bytes: Estimate,
    /// Bytes of them that became resident between calloc and their end.
    pub touched: Estimate,
}

impl Zeroed {
    /// Bytes that were not resident when calloc returned: fresh from the kernel, which has not been asked for a page yet.
    pub fn fresh(&self) -> u64 {
        self.bytes.value().saturating_sub(self.cleared.value())
    }

    /// Add others.
    pub fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.bytes += other.bytes;
        self.cleared += other.cleared;
        self.ended_bytes += other.ended_bytes;
        self.touched += other.touched;
    }
}

/// Those that are live: few, as only large blocks are looked at.
#[derive(Debug, Default)]
pub(crate) struct Births {
    live: HashMap<u64, (StackId, u64, u64)>,
    sampling: Sampling,
}

impl Births {
    /// Of a trace that may be a sample.
    pub(crate) fn of(sampling: Sampling) -> Self {
        Self { live: HashMap::new(), sampling }
    }

    /// A block that calloc has handed out.
    pub(crate) fn born(&mut self, address: u64, stack: StackId, size: u64, resident: u64) -> Zeroed {
        let cleared = resident.min(size);
        self.live.insert(address, (stack, size, cleared));
        let (mut sums, weight) = (Zeroed::default(), self.sampling.weight(size));
        sums.count.count(weight);
        sums.bytes.add(size, weight);
        sums.cleared.add(cleared, weight);
        sums
    }

    /// A block ends, of which so many bytes are resident if somebody looked.
    #[inline]
    pub(crate) fn ended(&mut self, address: u64, resident: Option<u64>) -> Option<(StackId, Zeroed)> {
        if self.live.is_empty() {
            return None;
        }
        let (stack, size, cleared) = self.live.remove(&address)?;
        let touched = resident?.min(size).saturating_sub(cleared);
        let (mut sums, weight) = (Zeroed::default(), self.sampling.weight(size));
        sums.ended_bytes.add(size, weight);
        sums.touched.add(touched, weight);
        Some((stack, sums))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fresh_cleared_and_touched_later() {
        let mut births = Births::default();
        let mut sums = Zeroed::default();
        // One is fresh and half of it is touched, one is cleared, one has a page for its head and lives on.
        sums.add(&births.born(0x1000, 7, 1 << 20, 0));
        sums.add(&births.born(0x20_0000, 8, 1 << 20, 1 << 20));
        sums.add(&births.born(0x40_0000, 9, 1 << 20, 4096));
        let (stack, ended) = births.ended(0x1000, Some(1 << 19)).unwrap();
        assert_eq!((stack, ended.ended_bytes.value(), ended.touched.value()), (7, 1 << 20, 1 << 19));
        sums.add(&ended);
        // Residency is measured in pages, which may be more than was asked for.
        let (stack, ended) = births.ended(0x20_0000, Some(2 << 20)).unwrap();
        assert_eq!((stack, ended.touched.value()), (8, 0));
        sums.add(&ended);
        assert_eq!(
            (sums.count.value(), sums.bytes.value(), sums.cleared.value()),
            (3, 3 << 20, (1 << 20) + 4096)
        );
        assert_eq!(
            (sums.fresh(), sums.ended_bytes.value(), sums.touched.value()),
            ((2 << 20) - 4096, 2 << 20, 1 << 19)
        );
        // Nobody looked at its end, and then it is gone.
        assert_eq!(births.ended(0x40_0000, None), None);
        assert_eq!(births.ended(0x40_0000, Some(4096)), None);
    }
}
