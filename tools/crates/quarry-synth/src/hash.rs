// SPDX-License-Identifier: MIT
//! Hashing of addresses and small keys: a multiplication for each number, and a seed, so that no input can be made
//! to collide.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};

/// A map that hashes fast. Its order is never the same: sort before it shows.
pub type Map<K, V> = HashMap<K, V, Seed>;

/// Builds hashers.
#[derive(Debug, Clone, Copy)]
pub struct Seed(u64);

impl Default for Seed {
    fn default() -> Self {
        Self(RandomState::new().hash_one(0_u64))
    }
}

impl BuildHasher for Seed {
    type Hasher = Fold;

    fn build_hasher(&self) -> Fold {
        Fold(self.0)
    }
}

/// Folds numbers into one.
#[derive(Debug, Clone, Copy)]
pub struct Fold(u64);

impl Hasher for Fold {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, n: u64) {
        let product = u128::from(self.0 ^ n) * 0x9E37_79B9_7F4A_7C15;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(n.into());
    }

    fn write_u8(&mut self, n: u8) {
        self.write_u64(n.into());
    }

    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }

    fn write_isize(&mut self, n: isize) {
        self.write_u64(n as u64);
    }
}
