// SPDX-License-Identifier: MIT
//! Blocks that pools take their own blocks from: chunks. What a pool hands out of a chunk is charged to the site that asked the pool,
//! and the chunk's own site keeps the rest. So no byte is counted twice.

use std::collections::BTreeMap;

use super::rows::Place;

/// Smaller blocks are followed only where a pool is known to use them.
const LEAST: u64 = 4096;
/// Chunks lie in chunks, but not deeper than this.
const DEEPEST: usize = 64;

/// A block that a pool can take from.
#[derive(Debug, Clone, Copy)]
struct Host {
    size: u64,
    /// Its row.
    row: u32,
    /// Bytes of it that pools have handed out.
    used: u64,
}

/// Where a block begins, and the complement of its size; so of those that begin together the largest comes first. Of equal ones that
/// of the pool with the lower number, which is 0 for malloc.
type Key = (u64, u64, u32);

/// Blocks that pools can take from, by address.
#[derive(Debug, Clone, Default)]
pub struct Hosts {
    blocks: BTreeMap<Key, Host>,
    /// Those below `LEAST`.
    small: usize,
}

fn key(at: &Place) -> Key {
    (at.address, !at.size, at.pool)
}

impl Hosts {
    /// A block is there.
    #[inline]
    pub fn born(&mut self, at: &Place, row: u32) {
        if at.size >= LEAST {
            self.blocks.insert(key(at), Host { size: at.size, row, used: 0 });
        }
    }

    /// A block that is there is where a pool's block begins.
    pub fn adopt(&mut self, at: &Place, row: u32) {
        self.blocks.entry(key(at)).or_insert_with(|| {
            self.small += usize::from(at.size < LEAST);
            Host { size: at.size, row, used: 0 }
        });
    }

    /// A block is gone; bytes of it that pools had handed out.
    #[inline]
    pub fn gone(&mut self, at: &Place) -> u64 {
        if at.size < LEAST && self.small == 0 {
            return 0;
        }
        let Some(host) = self.blocks.remove(&key(at)) else { return 0 };
        self.small -= usize::from(at.size < LEAST);
        host.used
    }

    /// The innermost block around one of a pool, other than itself.
    fn around(&mut self, at: &Place) -> Option<&mut Host> {
        let below = self.blocks.range_mut(..key(at)).rev().take(DEEPEST);
        let holds = |begin: u64, host: &Host| {
            at.address - begin < host.size && at.size <= host.size - (at.address - begin)
        };
        below.map(|(key, host)| (key.0, host)).find(|(begin, host)| holds(*begin, host)).map(|found| found.1)
    }

    /// A pool has handed out this block; the row that it is taken from.
    pub fn take(&mut self, at: &Place) -> Option<u32> {
        let host = self.around(at)?;
        if at.size > host.size - host.used {
            return None;
        }
        host.used += at.size;
        Some(host.row)
    }

    /// It has the block back; the row that it goes to.
    pub fn give(&mut self, at: &Place) -> Option<u32> {
        let host = self.around(at)?;
        host.used = host.used.checked_sub(at.size)?;
        Some(host.row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(pool: u32, address: u64, size: u64) -> Place {
        Place { pool, address, size }
    }

    #[test]
    fn the_innermost_block_gives() {
        let mut hosts = Hosts::default();
        hosts.born(&at(0, 0x10000, 0x10000), 1);
        hosts.born(&at(1, 0x12000, 0x2000), 2);
        hosts.born(&at(2, 0x12000, 0x1000), 3);
        hosts.born(&at(0, 0x40000, 100), 4);
        assert_eq!(hosts.take(&at(3, 0x12100, 16)), Some(3));
        assert_eq!(hosts.take(&at(3, 0x13000, 16)), Some(2));
        assert_eq!(hosts.take(&at(3, 0x10000, 16)), Some(1));
        assert_eq!(hosts.take(&at(3, 0x1ffff, 16)), None);
        assert_eq!(hosts.take(&at(3, 0x40000, 16)), None);
        assert_eq!(hosts.take(&at(2, 0x12000, 0x1000)), Some(2), "no block is its own chunk");
        assert_eq!(hosts.give(&at(3, 0x12100, 16)), Some(3));
        assert_eq!(hosts.gone(&at(2, 0x12000, 0x1000)), 0);
        assert_eq!(hosts.gone(&at(0, 0x10000, 0x10000)), 16);
        assert_eq!(hosts.give(&at(3, 0x10000, 16)), None);
    }

    #[test]
    fn a_small_block_that_a_pool_passes_on_is_its_chunk() {
        let mut hosts = Hosts::default();
        hosts.adopt(&at(0, 64, 32), 7);
        assert_eq!(hosts.take(&at(1, 64, 32)), Some(7));
        assert_eq!(hosts.take(&at(1, 64, 32)), None, "it has no more bytes");
        assert_eq!(hosts.give(&at(1, 64, 32)), Some(7));
        assert_eq!((hosts.gone(&at(0, 64, 32)), hosts.small), (0, 0));
    }
}
