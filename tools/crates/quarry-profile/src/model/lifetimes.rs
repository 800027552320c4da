// SPDX-License-Identifier: MIT
//! How long blocks lived, in powers of two of ticks. A block that is live at the end of the trace is a survivor: its life is at least
//! as long as was seen, and nobody knows more (it is censored).

use std::ops::AddAssign;

/// Blocks by their lives. Counts are estimates in a sample.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Lifetimes {
    /// By bar, and then those that ended before those that survived: twice the bar, one more for survivors, and how many. Bar 0 is 0
    /// ticks, bar i is 2^(i-1) up to 2^i - 1.
    counts: Vec<(u8, f64)>,
}

/// The time by which half of the blocks have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Median {
    /// There is no block.
    None,
    /// Within so many ticks, as well as powers of two tell.
    Within(u64),
    /// More than half of them live longer than the trace shows.
    Beyond,
}

impl Lifetimes {
    #[inline]
    fn add(&mut self, bar: u8, survived: bool, blocks: f64) {
        let key = 2 * bar + u8::from(survived);
        let at = match self.counts.iter().position(|known| known.0 >= key) {
            Some(at) if self.counts[at].0 == key => at,
            at => {
                let at = at.unwrap_or(self.counts.len());
                super::series::room_for_one(&mut self.counts);
                self.counts.insert(at, (key, 0.0));
                at
            }
        };
        self.counts[at].1 += blocks;
    }

    /// Blocks that ended after so many ticks.
    #[inline]
    pub fn ended(&mut self, ticks: u64, blocks: f64) {
        self.add(Self::bar(ticks), false, blocks);
    }

    /// Blocks that were so old at the end.
    pub fn survived(&mut self, ticks: u64, blocks: f64) {
        self.add(Self::bar(ticks), true, blocks);
    }

    #[inline]
    fn bar(ticks: u64) -> u8 {
        (64 - ticks.leading_zeros()) as u8
    }

    /// Bar, blocks that ended, blocks that survived; by bar.
    pub fn bars(&self) -> Vec<(u8, f64, f64)> {
        let bars = self.counts.chunk_by(|a, b| a.0 / 2 == b.0 / 2);
        let bar = |counts: &[(u8, f64)]| {
            // A sum of nothing is -0.0.
            let of = |kind: u8| {
                counts.iter().filter(|count| count.0 % 2 == kind).fold(0.0, |sum, count| sum + count.1)
            };
            (counts[0].0 / 2, of(0), of(1))
        };
        bars.map(bar).collect()
    }

    /// The last number of ticks of a bar.
    pub fn most(bar: u8) -> u64 {
        if bar == 0 { 0 } else { u64::MAX >> (64 - u32::from(bar)) }
    }

    /// The estimate of Kaplan and Meier: of the blocks that are known to have lived up to a bar, the part that ended in it is the
    /// chance to end there. A survivor counts among those up to the bar in which it was last seen.
    pub fn median(&self) -> Median {
        let mut left: f64 = self.counts.iter().map(|count| count.1).sum();
        if left <= 0.0 {
            return Median::None;
        }
        let mut alive = 1.0;
        for (bar, ended, survived) in self.bars() {
            if left > 0.0 {
                alive *= 1.0 - (ended / left).min(1.0);
            }
            if alive <= 0.5 {
                return Median::Within(Self::most(bar));
            }
            left -= ended + survived;
        }
        Median::Beyond
    }
}

impl AddAssign<&Self> for Lifetimes {
    fn add_assign(&mut self, other: &Self) {
        for &(key, blocks) in &other.counts {
            self.add(key / 2, key % 2 == 1, blocks);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survivors_are_not_taken_for_ended() {
        let mut lives = Lifetimes::default();
        assert_eq!(lives.median(), Median::None);
        lives.ended(3, 4.0);
        assert_eq!(lives.median(), Median::Within(3));
        // Ten more are there since the beginning: the few that ended early are no half.
        lives.survived(1000, 10.0);
        assert_eq!(lives.median(), Median::Beyond);
        // Survivors that are young say nothing of old age: of three that could grow old, two ended.
        let mut lives = Lifetimes::default();
        lives.survived(1, 100.0);
        lives.ended(500, 2.0);
        lives.survived(1000, 1.0);
        assert_eq!(lives.median(), Median::Within(511));
        let mut both = lives.clone();
        both += &lives;
        assert_eq!(both.bars(), [(1, 0.0, 200.0), (9, 4.0, 0.0), (10, 0.0, 2.0)]);
        assert!(both.bars().iter().all(|bar| bar.1.is_sign_positive() && bar.2.is_sign_positive()));
        assert_eq!(both.median(), Median::Within(511));
    }
}
