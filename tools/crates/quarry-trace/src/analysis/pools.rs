// SPDX-License-Identifier: MIT
//! What pool events say about each pool.

use crate::event::PoolWhat;
use crate::hash::NumberMap;

/// Most pools that are kept one by one.
const MOST: usize = 1 << 16;
/// Most characters that are kept of a name.
const NAME: usize = 128;

/// What happened in a pool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pool {
    /// Its number in the process.
    pub number: u32,
    /// The number of the pool it takes memory from, or 0.
    pub parent: u32,
    /// fifo, ring, ...
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Allocations.
    pub allocs: u64,
    /// Bytes requested by them, and by resizes.
    pub bytes: u64,
    /// Frees.
    pub frees: u64,
    /// Resizes.
    pub resizes: u64,
    /// Frames that began.
    pub pushed: u64,
    /// Frames that ended.
    pub popped: u64,
    /// Frames that were sealed.
    pub sealed: u64,
    /// Sealed frames that were released.
    pub released: u64,
    /// How often all blocks went at once.
    pub emptied: u64,
    /// The most it is known to have held.
    pub held: u64,
    /// The most it is known to have used.
    pub used: u64,
    /// Is it gone?
    pub destroyed: bool,
}

/// All pools.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    pools: Vec<Pool>,
    index: NumberMap<u32>,
    pub events: u64,
}

fn short(text: &str) -> String {
    text.chars().take(NAME).collect()
}

impl Pools {
    pub(crate) fn add(&mut self, number: u32, what: &PoolWhat) {
        self.events += 1;
        let pools = &mut self.pools;
        if pools.len() >= MOST && self.index.get(number.into()).is_none() {
            return;
        }
        let index = *self.index.get_or(number.into(), || {
            pools.push(Pool { number, ..Pool::default() });
            pools.len() as u32 - 1
        });
        let pool = &mut pools[index as usize];
        match what {
            PoolWhat::Created { parent, kind, name } => {
                (pool.parent, pool.kind, pool.name) = (*parent, short(kind), short(name));
            }
            PoolWhat::Destroyed => pool.destroyed = true,
            PoolWhat::Pushed => pool.pushed += 1,
            PoolWhat::Popped => pool.popped += 1,
            PoolWhat::Sealed { .. } => pool.sealed += 1,
            PoolWhat::Released { .. } => pool.released += 1,
            PoolWhat::Alloc { size, .. } => {
                pool.allocs += 1;
                pool.bytes = pool.bytes.wrapping_add(*size);
            }
            PoolWhat::Free { .. } => pool.frees += 1,
            PoolWhat::Resized { size, .. } => {
                pool.resizes += 1;
                pool.bytes = pool.bytes.wrapping_add(*size);
            }
            PoolWhat::Emptied => pool.emptied += 1,
            PoolWhat::Held { held, used } => {
                pool.held = pool.held.max(*held);
                pool.used = pool.used.max(*used);
            }
        }
    }

    pub(crate) fn finish(self) -> Vec<Pool> {
        let mut pools = self.pools;
        pools.sort_unstable_by_key(|pool| pool.number);
        pools
    }
}
