// SPDX-License-Identifier: MIT
//! A hash for addresses: one multiplication, with a secret, because a trace may come from anybody.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Makes hashers that all have the same secret.
#[derive(Clone, Copy)]
pub struct Addresses(u64);

impl Default for Addresses {
    fn default() -> Self {
        Self(RandomState::new().hash_one(0u64))
    }
}

impl BuildHasher for Addresses {
    type Hasher = Folded;

    fn build_hasher(&self) -> Folded {
        Folded(self.0)
    }
}

/// The upper half of the product folded into the lower.
pub struct Folded(u64);

impl Hasher for Folded {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
        let product = u128::from(value ^ self.0) * u128::from(MULTIPLIER ^ self.0.rotate_left(32) | 1);
        self.0 = (product as u64) ^ (product >> 64) as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A map from addresses.
pub type AddressMap<T> = hashbrown::HashMap<u64, T, Addresses>;

/// A set of addresses.
pub type AddressSet = hashbrown::HashSet<u64, Addresses>;
