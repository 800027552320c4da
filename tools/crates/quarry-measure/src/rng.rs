// SPDX-License-Identifier: MIT
//! Random numbers that a seed repeats: for the order of runs and for resampling, not for secrets.

/// SplitMix64: one 64-bit word of state, every seed as good as another.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// The sequence of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is not 0. The bias of the multiplication is below n / 2^64.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.bits()) * n as u128) >> 64) as usize
    }

    /// Put the items into random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_sequence() {
        // Published values for seed 1234567.
        let mut rng = Rng::new(1_234_567);
        assert_eq!([rng.bits(), rng.bits()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
    }

    #[test]
    fn below_reaches_all_and_stays_below() {
        let mut rng = Rng::new(1);
        let mut seen = [0; 5];
        (0..5000).for_each(|_| seen[rng.below(5)] += 1);
        assert!(seen.iter().all(|&n| (850..1150).contains(&n)), "{seen:?}");
    }

    #[test]
    fn shuffle_makes_every_order() {
        let mut rng = Rng::new(2);
        let orders: std::collections::HashSet<[u8; 3]> = (0..100)
            .map(|_| {
                let mut items = [1, 2, 3];
                rng.shuffle(&mut items);
                items
            })
            .collect();
        assert_eq!(orders.len(), 6);
    }
}
