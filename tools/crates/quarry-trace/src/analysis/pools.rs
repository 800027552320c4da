// SPDX-License-Identifier: MIT
//! What pool events say about each pool: which of its blocks are live, and how they ended.
//!
//! A block is in the innermost frame that is open when it is made, or in none; it ends when it is freed, with its frame, or
//! with the pool. In memory are live blocks, and the addresses of those in frames.

use crate::event::PoolWhat;
use crate::hash::NumberMap;

/// Most pools that are kept one by one.
const MOST: usize = 1 << 16;
/// Most characters that are kept of a name.
const NAME: usize = 128;
/// A frame with fewer addresses is not looked through for those of ended blocks.
const FEW: usize = 64;

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
    /// Blocks that ended with their frame.
    pub ended: u64,
    /// Blocks that ended with the pool, or when it was emptied.
    pub dropped: u64,
    /// The most bytes that were live at once.
    pub peak_bytes: u64,
    /// The most blocks that were live at once.
    pub peak_blocks: u64,
    /// Blocks that are live at the end.
    pub live: u64,
    /// Their bytes.
    pub live_bytes: u64,
    /// Frees, resizes and ends of frames of what is not known: it was there before the recording.
    pub unknown: u64,
    /// Allocations where a block is live, which cannot be.
    pub doubled: u64,
    /// The most it is known to have held.
    pub held: u64,
    /// The most it is known to have used.
    pub used: u64,
    /// Is it gone?
    pub destroyed: bool,
}

/// A block that is live.
#[derive(Debug, Clone, Copy)]
struct Block {
    size: u64,
    /// The frame it is in, 0: none.
    frame: u64,
}

/// A frame that has not ended.
#[derive(Debug, Default)]
struct Frame {
    number: u64,
    /// Where it has or had blocks.
    addresses: Vec<u64>,
}

/// A pool, and what is live in it.
#[derive(Debug, Default)]
struct State {
    pool: Pool,
    blocks: NumberMap<Block>,
    frames: u64,
    open: Vec<Frame>,
    sealed: NumberMap<Frame>,
}

impl State {
    fn birth(&mut self, address: u64, size: u64) {
        let frame = self.open.last_mut().map_or(0, |frame| {
            let addresses = &mut frame.addresses;
            if addresses.len() >= FEW && addresses.len() == addresses.capacity() {
                addresses.sort_unstable();
                addresses.dedup();
                addresses.retain(|&at| self.blocks.get(at).is_some_and(|block| block.frame == frame.number));
            }
            addresses.push(address);
            frame.number
        });
        if self.death(address).is_some() {
            self.pool.doubled += 1;
        }
        self.blocks.insert(address, Block { size, frame });
        let pool = &mut self.pool;
        pool.live_bytes = pool.live_bytes.wrapping_add(size);
        pool.peak_bytes = pool.peak_bytes.max(pool.live_bytes);
        pool.peak_blocks = pool.peak_blocks.max(self.blocks.len() as u64);
    }

    fn death(&mut self, address: u64) -> Option<Block> {
        let block = self.blocks.remove(address)?;
        self.pool.live_bytes = self.pool.live_bytes.wrapping_sub(block.size);
        Some(block)
    }

    fn resized(&mut self, old: u64, size: u64, new: u64) {
        match self.blocks.get(old).copied() {
            // In its place it stays in its frame, whatever has been opened since.
            Some(block) if old == new => {
                self.death(old);
                self.blocks.insert(new, Block { size, ..block });
                self.pool.live_bytes = self.pool.live_bytes.wrapping_add(size);
                self.pool.peak_bytes = self.pool.peak_bytes.max(self.pool.live_bytes);
            }
            Some(_) => {
                self.death(old);
                self.birth(new, size);
            }
            None => {
                self.pool.unknown += 1;
                self.birth(new, size);
            }
        }
    }

    fn end(&mut self, frame: Option<Frame>) {
        let Some(frame) = frame else {
            self.pool.unknown += 1;
            return;
        };
        for address in frame.addresses {
            if self.blocks.get(address).is_some_and(|block| block.frame == frame.number) {
                self.death(address);
                self.pool.ended += 1;
            }
        }
    }

    fn drop_all(&mut self) {
        self.pool.dropped += self.blocks.len() as u64;
        self.pool.live_bytes = 0;
        self.blocks = NumberMap::default();
        for frame in &mut self.open {
            frame.addresses = Vec::new();
        }
    }

    fn add(&mut self, what: &PoolWhat) {
        let pool = &mut self.pool;
        match *what {
            PoolWhat::Created { parent, ref kind, ref name } => {
                (pool.parent, pool.kind, pool.name) = (parent, short(kind), short(name));
            }
            PoolWhat::Destroyed => {
                pool.destroyed = true;
                self.drop_all();
                self.open = Vec::new();
                self.sealed = NumberMap::default();
            }
            PoolWhat::Pushed => {
                pool.pushed += 1;
                self.frames += 1;
                self.open.push(Frame { number: self.frames, addresses: Vec::new() });
            }
            PoolWhat::Popped => {
                pool.popped += 1;
                let frame = self.open.pop();
                self.end(frame);
            }
            PoolWhat::Sealed { cookie } => {
                pool.sealed += 1;
                match self.open.pop() {
                    Some(frame) => self.sealed.insert(cookie, frame),
                    None => pool.unknown += 1,
                }
            }
            PoolWhat::Released { cookie } => {
                pool.released += 1;
                let frame = self.sealed.remove(cookie);
                self.end(frame);
            }
            PoolWhat::Alloc { size, address, .. } => {
                pool.allocs += 1;
                pool.bytes = pool.bytes.wrapping_add(size);
                self.birth(address, size);
            }
            PoolWhat::Free { address } => {
                pool.frees += 1;
                if self.death(address).is_none() {
                    self.pool.unknown += 1;
                }
            }
            PoolWhat::Resized { old, size, new, .. } => {
                pool.resizes += 1;
                pool.bytes = pool.bytes.wrapping_add(size);
                self.resized(old, size, new);
            }
            PoolWhat::Emptied => {
                pool.emptied += 1;
                self.drop_all();
            }
            PoolWhat::Held { held, used } => {
                pool.held = pool.held.max(held);
                pool.used = pool.used.max(used);
            }
        }
    }
}

/// All pools.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    pools: Vec<State>,
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
            pools.push(State { pool: Pool { number, ..Pool::default() }, ..State::default() });
            pools.len() as u32 - 1
        });
        pools[index as usize].add(what);
    }

    pub(crate) fn finish(self) -> Vec<Pool> {
        let of = |state: State| Pool { live: state.blocks.len() as u64, ..state.pool };
        let mut pools: Vec<Pool> = self.pools.into_iter().map(of).collect();
        pools.sort_unstable_by_key(|pool| pool.number);
        pools
    }
}

#[cfg(test)]
#[path = "pools_tests.rs"]
mod tests;
