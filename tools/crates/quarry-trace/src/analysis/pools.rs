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
struct Block<T> {
    size: u64,
    /// The frame it is in, 0: none.
    frame: u64,
    /// What the caller keeps of it.
    tag: T,
}

/// A block of a pool that is no longer there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended<T> {
    /// Where it was.
    pub address: u64,
    /// Its bytes.
    pub size: u64,
    /// What the caller kept of it.
    pub tag: T,
    /// It goes on as the block that this event makes.
    pub resized: bool,
}

/// A frame that has not ended.
#[derive(Debug, Clone, Default)]
struct Frame {
    number: u64,
    /// Where it has or had blocks.
    addresses: Vec<u64>,
}

/// A pool, and what is live in it.
#[derive(Debug, Clone)]
struct State<T> {
    pool: Pool,
    blocks: NumberMap<Block<T>>,
    frames: u64,
    open: Vec<Frame>,
    sealed: NumberMap<Frame>,
}

impl<T: Copy> State<T> {
    fn of(number: u32) -> Self {
        let pool = Pool { number, ..Pool::default() };
        Self { pool, blocks: NumberMap::default(), frames: 0, open: Vec::new(), sealed: NumberMap::default() }
    }

    fn birth(&mut self, address: u64, size: u64, tag: T, ended: &mut impl FnMut(Ended<T>)) {
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
        if let Some(block) = self.death(address) {
            self.pool.doubled += 1;
            ended(Ended { address, size: block.size, tag: block.tag, resized: false });
        }
        self.blocks.insert(address, Block { size, frame, tag });
        let pool = &mut self.pool;
        pool.live_bytes = pool.live_bytes.wrapping_add(size);
        pool.peak_bytes = pool.peak_bytes.max(pool.live_bytes);
        pool.peak_blocks = pool.peak_blocks.max(self.blocks.len() as u64);
    }

    fn death(&mut self, address: u64) -> Option<Block<T>> {
        let block = self.blocks.remove(address)?;
        self.pool.live_bytes = self.pool.live_bytes.wrapping_sub(block.size);
        Some(block)
    }

    fn resized(&mut self, (old, new): (u64, u64), size: u64, tag: T, ended: &mut impl FnMut(Ended<T>)) {
        let Some(block) = self.death(old) else {
            self.pool.unknown += 1;
            return self.birth(new, size, tag, ended);
        };
        ended(Ended { address: old, size: block.size, tag: block.tag, resized: true });
        if old != new {
            return self.birth(new, size, tag, ended);
        }
        // In its place it stays in its frame, whatever has been opened since.
        self.blocks.insert(new, Block { size, tag, ..block });
        self.pool.live_bytes = self.pool.live_bytes.wrapping_add(size);
        self.pool.peak_bytes = self.pool.peak_bytes.max(self.pool.live_bytes);
    }

    fn end(&mut self, frame: Option<Frame>, ended: &mut impl FnMut(Ended<T>)) {
        let Some(frame) = frame else {
            self.pool.unknown += 1;
            return;
        };
        for address in frame.addresses {
            if self.blocks.get(address).is_some_and(|block| block.frame == frame.number)
                && let Some(block) = self.death(address)
            {
                self.pool.ended += 1;
                ended(Ended { address, size: block.size, tag: block.tag, resized: false });
            }
        }
    }

    fn drop_all(&mut self, ended: &mut impl FnMut(Ended<T>)) {
        for (address, block) in self.blocks.iter() {
            ended(Ended { address, size: block.size, tag: block.tag, resized: false });
        }
        self.pool.dropped += self.blocks.len() as u64;
        self.pool.live_bytes = 0;
        self.blocks = NumberMap::default();
        for frame in &mut self.open {
            frame.addresses = Vec::new();
        }
    }

    fn add(&mut self, what: &PoolWhat, tag: T, ended: &mut impl FnMut(Ended<T>)) {
        let pool = &mut self.pool;
        match *what {
            PoolWhat::Created { parent, ref kind, ref name } => {
                (pool.parent, pool.kind, pool.name) = (parent, short(kind), short(name));
            }
            PoolWhat::Destroyed => {
                pool.destroyed = true;
                self.drop_all(ended);
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
                self.end(frame, ended);
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
                self.end(frame, ended);
            }
            PoolWhat::Alloc { size, address, .. } => {
                pool.allocs += 1;
                pool.bytes = pool.bytes.wrapping_add(size);
                self.birth(address, size, tag, ended);
            }
            PoolWhat::Free { address } => {
                pool.frees += 1;
                match self.death(address) {
                    Some(block) => {
                        ended(Ended { address, size: block.size, tag: block.tag, resized: false });
                    }
                    None => self.pool.unknown += 1,
                }
            }
            PoolWhat::Resized { old, size, new, .. } => {
                pool.resizes += 1;
                pool.bytes = pool.bytes.wrapping_add(size);
                self.resized((old, new), size, tag, ended);
            }
            PoolWhat::Emptied => {
                pool.emptied += 1;
                self.drop_all(ended);
            }
            PoolWhat::Held { held, used } => {
                pool.held = pool.held.max(held);
                pool.used = pool.used.max(used);
            }
        }
    }
}

/// All pools. Who follows their blocks keeps a tag with each.
#[derive(Debug, Clone)]
pub struct Pools<T = ()> {
    pools: Vec<State<T>>,
    index: NumberMap<u32>,
    events: u64,
}

impl<T> Default for Pools<T> {
    fn default() -> Self {
        Self { pools: Vec::new(), index: NumberMap::default(), events: 0 }
    }
}

fn short(text: &str) -> String {
    text.chars().take(NAME).collect()
}

impl<T: Copy> Pools<T> {
    /// Something happened in a pool. A block that this makes has the tag; those that it ends are told. False: there are too many
    /// pools, and this one is not followed.
    pub fn add(&mut self, number: u32, what: &PoolWhat, tag: T, ended: &mut impl FnMut(Ended<T>)) -> bool {
        self.events += 1;
        let pools = &mut self.pools;
        if pools.len() >= MOST && self.index.get(number.into()).is_none() {
            return false;
        }
        let index = *self.index.get_or(number.into(), || {
            pools.push(State::of(number));
            pools.len() as u32 - 1
        });
        pools[index as usize].add(what, tag, ended);
        true
    }

    /// The tags of all live blocks.
    pub fn live(&self) -> impl Iterator<Item = T> + '_ {
        self.pools.iter().flat_map(|state| state.blocks.iter().map(|(_, block)| block.tag))
    }

    /// Events so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// What is known of each pool, by number.
    pub fn finish(self) -> Vec<Pool> {
        let of = |state: State<T>| Pool { live: state.blocks.len() as u64, ..state.pool };
        let mut pools: Vec<Pool> = self.pools.into_iter().map(of).collect();
        pools.sort_unstable_by_key(|pool| pool.number);
        pools
    }
}

#[cfg(test)]
#[path = "pools_tests.rs"]
mod tests;
