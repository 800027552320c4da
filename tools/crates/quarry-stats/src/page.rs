// SPDX-License-Identifier: MIT
//! The page as values. Nothing in it is trusted: its owner may have written anything, and may write while it is read.

use std::cell::Cell;

use crate::memory::Memory;

/// "QRYSTATS".
pub const MAGIC: u64 = 0x5354_4154_5359_5251;
/// The version of the layout that is known here.
pub const VERSION: u32 = 2;
const PART_HEAP: u32 = 1;
const PART_POOLS: u32 = 2;
const UNKNOWN: u64 = u64::MAX;

const HEAD_BYTES: usize = 88;
/// The size of a sampler whose head does not say it.
const FIRST_SAMPLER: u64 = 96;
const SUMS_BYTES: usize = 256;
const CLASS_BYTES: usize = 56;
/// From this size on a row of a class says what is cached.
const CACHED_CLASS: usize = 64;
const POOL_BYTES: usize = 152;
const RANGE_BYTES: usize = 24;
const HEAP_FIXED: usize = 56;
const RANGES_FIXED: usize = 32;
const POOLS_FIXED: usize = 16;

/// More entries than these no version will have; a page that says so would only cost time.
const CLASSES_MOST: usize = 4096;
const POOLS_MOST: usize = 65_536;
const RANGES_MOST: usize = 65_536;

/// Each reading is tried so often when the page changes under it: a writer needs microseconds, and its next turn is far off.
const TRIES: usize = 1000;
/// Words that all tries in vain of a page may cost together. A long page whose owner never rests takes no longer than a short one.
const VAIN: usize = 4 << 20;
/// What a try costs beside the words that it loads: a page of the other process is read anew.
const VAIN_TRY: usize = 512;

/// Why memory is no page.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PageError {
    /// Something else.
    #[error("it is no statistics page")]
    NotOne,
    /// Made by another version.
    #[error("its layout has version {0}, and this quarry knows version {VERSION}")]
    Version(u32),
    /// It contradicts itself.
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
}

macro_rules! sums {
    ($($(#[$help:meta])* $name:ident,)+) => {
        /// Sums over the heap: bytes unless the name says otherwise, in the order of the layout.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        #[allow(missing_docs, reason = "include/quarry/stats_page.h explains each")]
        pub struct Sums { $(pub $name: u64,)+ }

        impl Sums {
            /// Names and values, in the order of the layout.
            pub fn fields(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)+]
            }

            fn read(mut next: impl FnMut() -> u64) -> Self {
                Self { $($name: next(),)+ }
            }
        }
    };
}

sums! {
    at_ns, mapped_bytes, slabs_bytes, slab_free_bytes, slab_purged_bytes, slab_mailed_bytes, slab_fresh_bytes, fresh_at_ns,
    cached_bytes, cached_blocks, run_live_bytes, run_slack_bytes, huge_live_bytes, huge_cached_bytes, pages_dirty_bytes,
    pages_clean_bytes, metadata_bytes, heaps, heaps_idle, slabs, runs, huges, refills, flushes, remote_publishes,
    remote_adoptions, heap_adoptions, slab_steals, purges, purged_bytes, regret_bytes,
}

impl Sums {
    /// Bytes of slabs that were given out: live, or in a thread's cache.
    pub fn slab_out_bytes(&self) -> u64 {
        let free =
            self.slab_free_bytes.saturating_add(self.slab_mailed_bytes).saturating_add(self.slab_fresh_bytes);
        self.slabs_bytes.saturating_sub(free)
    }

    /// Bytes that the program holds.
    pub fn live_bytes(&self) -> u64 {
        let slabs = self.slab_out_bytes().saturating_sub(self.cached_bytes);
        slabs.saturating_add(self.run_live_bytes).saturating_add(self.huge_live_bytes)
    }
}

/// Slabs of one size of block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Class {
    /// Of a block.
    pub block_bytes: u32,
    /// How many slabs.
    pub slabs: u64,
    /// Their bytes.
    pub slabs_bytes: u64,
    /// Blocks that are live or in a thread's cache.
    pub out_blocks: u64,
    /// Free blocks, ...
    pub free_blocks: u64,
    /// ... of which touch a page that was given back.
    pub purged_blocks: u64,
    /// Bytes never given out yet.
    pub fresh_bytes: u64,
    /// Of those that are out, blocks in threads' caches. `None`: the library does not count them by class.
    pub cached_blocks: Option<u64>,
}

impl Class {
    /// Blocks that the program holds.
    pub fn live_blocks(&self) -> Option<u64> {
        // A count of caches that is older than the rest may be larger than what is out.
        Some(self.out_blocks.saturating_sub(self.cached_blocks?))
    }
}

/// What addresses of the heap are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Slabs and runs.
    Blocks,
    /// A large object.
    Huge,
    /// Records and tables.
    Metadata,
    /// Something that later versions have.
    Other,
}

/// Addresses of the heap; not all of them need be mapped or resident.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The first.
    pub base: u64,
    /// How many.
    pub bytes: u64,
    /// What for.
    pub used: Use,
}

/// The heap's part of a page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Heap {
    /// `None`: nothing was written yet, or it changes faster than it can be read.
    pub sums: Option<Sums>,
    /// By size of block.
    pub classes: Vec<Class>,
    /// Where it is, ...
    pub ranges: Vec<Range>,
    /// ... but for so many bytes of large objects.
    pub ranges_missing_bytes: u64,
    /// When classes and ranges were written, in the time of the page; 0: not yet.
    pub classes_at_ns: u64,
    /// Times the heap was to be counted and was too busy.
    pub skipped: u64,
}

/// A pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// "stack", "fifo", ...
    pub kind: String,
    /// As the program named it.
    pub name: String,
    /// When the numbers were written.
    pub at_ns: u64,
    /// Memory it has, ...
    pub held_bytes: u64,
    /// ... and the most it ever had.
    pub peak_held_bytes: u64,
    /// The most it may have; 0: no limit.
    pub limit_bytes: u64,
    /// In use. `None`: its kind cannot say without stopping the program.
    pub used_bytes: Option<u64>,
    /// Asked for in all.
    pub requested_bytes: Option<u64>,
    /// Allocations, frees and resizes.
    pub calls: Option<[u64; 3]>,
    /// Calls off the fast path.
    pub slow_calls: u64,
    /// Times it got memory.
    pub chunk_gets: u64,
    /// Times it gave memory back.
    pub chunk_puts: u64,
    /// Nanoseconds spent in either.
    pub slow_ns: u64,
}

/// The pools' part of a page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pools {
    /// Those with an entry.
    pub pools: Vec<Pool>,
    /// How many had no entry left.
    pub others: u64,
    /// What those hold.
    pub others_held_bytes: u64,
    /// Entries that changed faster than they could be read.
    pub busy: usize,
}

/// What one copy of the library says of its process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The process, as it sees itself in its own pid namespace.
    pub pid: i32,
    /// Version of the library.
    pub version: String,
    /// When the page was made.
    pub born_ns: u64,
    /// Where the process says that its sampler is; 0: it has none.
    pub sampler_at: u64,
    /// Its size.
    pub sampler_bytes: u64,
    /// The heap, if it is one of the writers.
    pub heap: Option<Heap>,
    /// The pools, likewise.
    pub pools: Option<Pools>,
}

impl Page {
    /// Which library it is, by what it has.
    pub fn library(&self) -> &'static str {
        match (&self.heap, &self.pools) {
            (Some(_), None) => "libquarry-malloc",
            (None, Some(_)) => "libquarry-pow2",
            _ => "libquarry",
        }
    }

    /// Read it.
    pub fn read<M: Memory + ?Sized>(memory: &M) -> Result<Self, PageError> {
        let bytes = memory.words().saturating_mul(8);
        let view = View { memory, bytes, loads: Cell::new(0), vain: Cell::new(VAIN) };
        if view.bytes < HEAD_BYTES || view.word(0) != MAGIC {
            return Err(PageError::NotOne);
        }
        let version = view.half(8);
        if version != VERSION {
            return Err(PageError::Version(version));
        }
        let head = Head::read(&view)?;
        let heap = head.parts & PART_HEAP != 0;
        let pools = head.parts & PART_POOLS != 0;
        Ok(Self {
            pid: head.pid,
            version: text(&view, 32, 16),
            born_ns: view.word(24),
            // At the end of a longer head.
            sampler_at: if head.heap_at >= HEAD_BYTES + 8 { view.word(HEAD_BYTES) } else { 0 },
            sampler_bytes: if head.heap_at >= HEAD_BYTES + 16 {
                view.word(HEAD_BYTES + 8)
            } else {
                FIRST_SAMPLER
            },
            heap: heap.then(|| head.heap(&view)),
            pools: pools.then(|| head.pools(&view)),
        })
    }
}

/// Words and halves at offsets that were checked.
struct View<'a, M: ?Sized> {
    memory: &'a M,
    bytes: usize,
    /// Words that were loaded.
    loads: Cell<usize>,
    /// Words that tries in vain may still cost.
    vain: Cell<usize>,
}

impl<M: Memory + ?Sized> View<'_, M> {
    fn word(&self, at: usize) -> u64 {
        self.loads.set(self.loads.get() + 1);
        self.memory.load(at / 8)
    }

    fn half(&self, at: usize) -> u32 {
        let bytes = self.word(at).to_ne_bytes();
        let from = at % 8;
        u32::from_ne_bytes([bytes[from], bytes[from + 1], bytes[from + 2], bytes[from + 3]])
    }

    fn words(&self, at: usize) -> impl FnMut() -> u64 {
        let mut next = at;
        move || {
            next += 8;
            self.word(next - 8)
        }
    }

    /// What `read` says, unless the word at `turn` changes meanwhile. `None`: it always does, or `wanted` says no to it.
    fn stable<T>(&self, turn: usize, wanted: impl Fn(u64) -> Wanted, read: impl Fn(u64) -> T) -> Option<T> {
        for _ in 0..TRIES {
            let loads = self.loads.get();
            self.memory.renew();
            let before = self.word(turn);
            match wanted(before) {
                Wanted::Yes => {
                    self.memory.renew();
                    let value = read(before);
                    self.memory.renew();
                    if self.word(turn) == before {
                        return Some(value);
                    }
                }
                Wanted::Later => std::hint::spin_loop(),
                Wanted::No => return None,
            }
            let cost = self.loads.get() - loads + VAIN_TRY;
            self.vain.set(self.vain.get().checked_sub(cost)?);
        }
        None
    }
}

enum Wanted {
    Yes,
    Later,
    No,
}

/// Text from the program: what is not printable becomes a question mark.
fn text<M: Memory + ?Sized>(view: &View<'_, M>, at: usize, length: usize) -> String {
    let bytes: Vec<u8> = (0..length / 8).flat_map(|i| view.word(at + i * 8).to_ne_bytes()).collect();
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(length);
    String::from_utf8_lossy(&bytes[..end])
        .chars()
        .map(|c| if c.is_control() || c == char::REPLACEMENT_CHARACTER { '?' } else { c })
        .collect()
}

struct Head {
    pid: i32,
    parts: u32,
    heap_at: usize,
    sums_bytes: usize,
    class_count: usize,
    class_bytes: usize,
    pools_at: usize,
    pool_count: usize,
    pool_bytes: usize,
    range_count: usize,
    range_bytes: usize,
}

impl Head {
    fn read<M: Memory + ?Sized>(view: &View<'_, M>) -> Result<Self, PageError> {
        let size = |at| view.half(at) as usize;
        let head = Self {
            pid: i32::from_ne_bytes(view.half(16).to_ne_bytes()),
            parts: view.half(20),
            heap_at: size(52),
            sums_bytes: size(56),
            class_count: size(60),
            class_bytes: size(64),
            pools_at: size(68),
            pool_count: size(72),
            pool_bytes: size(76),
            range_count: size(80),
            range_bytes: size(84),
        };
        let all = [
            head.heap_at,
            head.sums_bytes,
            head.class_bytes,
            head.pools_at,
            head.pool_bytes,
            head.range_bytes,
        ];
        if all.iter().any(|number| number % 8 != 0) {
            return Err(PageError::Damaged("something in it is not at a multiple of 8"));
        }
        if head.sums_bytes < SUMS_BYTES
            || head.class_bytes < CLASS_BYTES
            || head.pool_bytes < POOL_BYTES
            || head.range_bytes < RANGE_BYTES
        {
            return Err(PageError::Damaged("its entries are too short"));
        }
        if head.class_count > CLASSES_MOST || head.pool_count > POOLS_MOST || head.range_count > RANGES_MOST {
            return Err(PageError::Damaged("it has too many entries"));
        }
        // All numbers are of 32 bits, so nothing here can overflow in 64.
        let whole = view.bytes.min(size(12)) as u64;
        let rows = head.class_count as u64 * head.class_bytes as u64
            + head.range_count as u64 * head.range_bytes as u64;
        let heap = (HEAP_FIXED + RANGES_FIXED + 2 * head.sums_bytes) as u64 + 2 * rows;
        let pools = POOLS_FIXED as u64 + head.pool_count as u64 * head.pool_bytes as u64;
        if head.heap_at as u64 + heap > whole || head.pools_at as u64 + pools > whole {
            return Err(PageError::Damaged("it is longer than its memory"));
        }
        Ok(head)
    }

    fn heap<M: Memory + ?Sized>(&self, view: &View<'_, M>) -> Heap {
        let wanted = |turn| if turn == 0 { Wanted::No } else { Wanted::Yes };
        let copy = |turn: u64| (turn & 1) as usize;
        let sums = view.stable(self.heap_at, wanted, |turn| {
            Sums::read(view.words(self.heap_at + 16 + copy(turn) * self.sums_bytes))
        });
        let list = self.heap_at + 16 + 2 * self.sums_bytes;
        let classes = view.stable(list, wanted, |turn| {
            let copy = copy(turn);
            let rows =
                usize::try_from(view.word(list + 8 + copy * 8)).unwrap_or(usize::MAX).min(self.class_count);
            let row = |i: usize| class(view, list + 40 + (2 * i + copy) * self.class_bytes, self.class_bytes);
            let mut classes: Vec<Class> = (0..rows).map(row).collect();
            classes.sort_by_key(|class| class.block_bytes);
            let ranges = list + 40 + 2 * self.class_count * self.class_bytes;
            let missing = view.word(ranges + 16 + copy * 8);
            let rows =
                usize::try_from(view.word(ranges + copy * 8)).unwrap_or(usize::MAX).min(self.range_count);
            let row = |i: usize| range(view, ranges + 32 + (2 * i + copy) * self.range_bytes);
            (view.word(list + 24 + copy * 8), classes, (0..rows).map(row).collect::<Vec<Range>>(), missing)
        });
        let (classes_at_ns, classes, ranges, ranges_missing_bytes) = classes.unwrap_or_default();
        Heap {
            sums,
            classes,
            ranges,
            ranges_missing_bytes,
            classes_at_ns,
            skipped: view.word(self.heap_at + 8),
        }
    }

    fn pools<M: Memory + ?Sized>(&self, view: &View<'_, M>) -> Pools {
        let mut pools = Pools {
            others: view.word(self.pools_at),
            others_held_bytes: view.word(self.pools_at + 8),
            ..Pools::default()
        };
        for i in 0..self.pool_count {
            let at = self.pools_at + POOLS_FIXED + i * self.pool_bytes;
            let wanted = |turn| match turn & 3 {
                2 => Wanted::Yes,
                // Free, or not taken yet by who is writing it.
                0 | 1 => Wanted::No,
                _ => Wanted::Later,
            };
            match view.stable(at, wanted, |_| pool(view, at)) {
                Some(pool) => pools.pools.push(pool),
                None if view.word(at) & 2 != 0 => pools.busy += 1,
                None => {}
            }
        }
        pools
    }
}

fn range<M: Memory + ?Sized>(view: &View<'_, M>, at: usize) -> Range {
    let used = match view.word(at + 16) {
        1 => Use::Blocks,
        2 => Use::Huge,
        3 => Use::Metadata,
        _ => Use::Other,
    };
    Range { base: view.word(at), bytes: view.word(at + 8), used }
}

fn class<M: Memory + ?Sized>(view: &View<'_, M>, at: usize, bytes: usize) -> Class {
    let mut next = view.words(at + 8);
    Class {
        block_bytes: view.half(at + 4),
        slabs: next(),
        slabs_bytes: next(),
        out_blocks: next(),
        free_blocks: next(),
        purged_blocks: next(),
        fresh_bytes: next(),
        cached_blocks: (bytes >= CACHED_CLASS).then(next),
    }
}

fn pool<M: Memory + ?Sized>(view: &View<'_, M>, at: usize) -> Pool {
    let known = |value| if value == UNKNOWN { None } else { Some(value) };
    let mut next = view.words(at + 56);
    Pool {
        at_ns: view.word(at + 8),
        kind: text(view, at + 16, 8),
        name: text(view, at + 24, 32),
        held_bytes: next(),
        peak_held_bytes: next(),
        limit_bytes: next(),
        used_bytes: known(next()),
        requested_bytes: known(next()),
        calls: {
            let calls = [next(), next(), next()];
            if calls.contains(&UNKNOWN) { None } else { Some(calls) }
        },
        slow_calls: next(),
        chunk_gets: next(),
        chunk_puts: next(),
        slow_ns: next(),
    }
}

#[cfg(test)]
#[path = "page_tests.rs"]
mod tests;
