// SPDX-License-Identifier: MIT
//! Hashing of addresses and numbers: one multiplication, and a seed so that no trace can be made to collide.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;

/// Hashes numbers, with a seed of its own.
#[derive(Debug, Clone, Copy)]
pub struct Hash(u64);

impl Default for Hash {
    fn default() -> Self {
        Self(RandomState::new().hash_one(0u64))
    }
}

impl Hash {
    /// The hash of a number.
    #[inline]
    pub fn of(self, number: u64) -> u64 {
        let product = u128::from(number ^ self.0) * 0x9E37_79B9_7F4A_7C15;
        (product >> 64) as u64 ^ product as u64
    }
}

/// A set of addresses.
#[derive(Debug, Clone, Default)]
pub(crate) struct AddressSet {
    table: HashTable<u64>,
    hash: Hash,
}

impl AddressSet {
    #[inline]
    pub(crate) fn contains(&self, address: u64) -> bool {
        self.table.find(self.hash.of(address), |&known| known == address).is_some()
    }

    #[inline]
    pub(crate) fn insert(&mut self, address: u64) {
        let hash = self.hash;
        let entry = self.table.entry(hash.of(address), |&known| known == address, |&known| hash.of(known));
        entry.or_insert(address);
    }

    #[inline]
    pub(crate) fn remove(&mut self, address: u64) {
        if let Ok(entry) = self.table.find_entry(self.hash.of(address), |&known| known == address) {
            entry.remove();
        }
    }
}

/// A map from numbers.
#[derive(Debug, Clone)]
pub(crate) struct NumberMap<V> {
    table: HashTable<(u64, V)>,
    hash: Hash,
}

impl<V> Default for NumberMap<V> {
    fn default() -> Self {
        Self { table: HashTable::new(), hash: Hash::default() }
    }
}

impl<V> NumberMap<V> {
    #[inline]
    pub(crate) fn get(&self, key: u64) -> Option<&V> {
        self.table.find(self.hash.of(key), |entry| entry.0 == key).map(|entry| &entry.1)
    }

    #[inline]
    pub(crate) fn get_or(&mut self, key: u64, value: impl FnOnce() -> V) -> &mut V {
        let hash = self.hash;
        let entry = self.table.entry(hash.of(key), |entry| entry.0 == key, |entry| hash.of(entry.0));
        &mut entry.or_insert_with(|| (key, value())).into_mut().1
    }

    pub(crate) fn insert(&mut self, key: u64, value: V) {
        self.remove(key);
        self.get_or(key, || value);
    }

    pub(crate) fn remove(&mut self, key: u64) -> Option<V> {
        let found = self.table.find_entry(self.hash.of(key), |entry| entry.0 == key).ok()?;
        Some(found.remove().0.1)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &V)> {
        self.table.iter().map(|entry| (entry.0, &entry.1))
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }
}
