// SPDX-License-Identifier: MIT
//! How long blocks lived, in powers of two of ticks. A block that is live at the end of the trace is a survivor: its life is at least
//! as long as was seen, and nobody knows more (it is censored).

use std::ops::AddAssign;

/// Blocks by their lives. Counts are estimates in a sample.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Lifetimes {
    /// Bar, blocks that ended, blocks that survived; by bar. Bar 0 is 0 ticks, bar i is 2^(i-1) up to 2^i - 1.
    bars: Vec<(u8, f64, f64)>,
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
    fn bar(&mut self, ticks: u64) -> &mut (u8, f64, f64) {
        let bar = (64 - ticks.leading_zeros()) as u8;
        let at = match self.bars.iter().position(|known| known.0 >= bar) {
            Some(at) if self.bars[at].0 == bar => at,
            at => {
                let at = at.unwrap_or(self.bars.len());
                self.bars.insert(at, (bar, 0.0, 0.0));
                at
            }
        };
        &mut self.bars[at]
    }

    /// Blocks that ended after so many ticks.
    #[inline]
    pub fn ended(&mut self, ticks: u64, blocks: f64) {
        self.bar(ticks).1 += blocks;
    }

    /// Blocks that were so old at the end.
    pub fn survived(&mut self, ticks: u64, blocks: f64) {
        self.bar(ticks).2 += blocks;
    }

    /// Bar, blocks that ended, blocks that survived.
    pub fn bars(&self) -> &[(u8, f64, f64)] {
        &self.bars
    }

    /// The last number of ticks of a bar.
    pub fn most(bar: u8) -> u64 {
        if bar == 0 { 0 } else { u64::MAX >> (64 - u32::from(bar)) }
    }

    /// The estimate of Kaplan and Meier: of the blocks that are known to have lived up to a bar, the part that ended in it is the
    /// chance to end there. A survivor counts among those up to the bar in which it was last seen.
    pub fn median(&self) -> Median {
        let mut left: f64 = self.bars.iter().map(|bar| bar.1 + bar.2).sum();
        if left <= 0.0 {
            return Median::None;
        }
        let mut alive = 1.0;
        for &(bar, ended, survived) in &self.bars {
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
        for &(bar, ended, survived) in &other.bars {
            let own = self.bar(Self::most(bar));
            own.1 += ended;
            own.2 += survived;
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
        assert_eq!(both.median(), Median::Within(511));
    }
}
