// SPDX-License-Identifier: MIT
//! Lists of free blocks that look like live ones: in the caches of threads, and the fast lists of arenas.

use std::collections::HashSet;

use super::walk::GROWTH;
use super::{FLAGS, Glibc, HEAD, HEAP_ALIGN, Heap, SMALLEST, TRIES};
use crate::peek::Reader;

/// Of lists that say nothing of their length. What ends them at the latest is that each block is counted once.
const UNKNOWN: usize = usize::MAX;
/// Blocks of lists that are remembered: their number is up to the process. The caches of 10,000 threads have fewer.
const MOST: usize = 1 << 22;
/// Lists of a cache that its thread changes while they are read.
const CHANGING: usize = 2;
/// Pointers of an arena to its free lists, and fast lists before them.
const BINS: u64 = 127;
const FAST_LISTS: u64 = 10;

/// How the cache of a thread looks, in the versions there are.
#[derive(Debug, Clone, Copy)]
struct CacheShape {
    /// The block that holds it.
    block: u64,
    lists: u64,
    /// Bytes of one list's count.
    count: u64,
    /// Does a count say how many blocks there are? In later versions how many there may still be.
    counts_blocks: bool,
}

const CACHES: [CacheShape; 3] = [
    CacheShape { block: 0x250, lists: 64, count: 1, counts_blocks: true },
    CacheShape { block: 0x290, lists: 64, count: 2, counts_blocks: true },
    CacheShape { block: 0x300, lists: 76, count: 2, counts_blocks: false },
];

/// Are blocks of this size perhaps caches of threads?
pub(super) fn may_be_cache(size: u64) -> bool {
    CACHES.iter().any(|shape| shape.block == size)
}

/// A list of free blocks: where the first is, by the address of its words for the program; the size of all.
struct List {
    first: u64,
    size: u64,
    most: usize,
    /// In a cache of a thread, rather than of an arena.
    cached: bool,
}

/// Caches of threads that lie in this heap.
pub(super) fn caches(reader: &mut Reader, heap: &Heap, free: &mut Free, found: &mut Glibc) {
    for &at in &heap.walked.suspects {
        let Some(size) = reader.word(at + 8).map(|head| head & !FLAGS) else { continue };
        let Some(shape) = CACHES.iter().find(|shape| shape.block == size) else { continue };
        let known = free.seen.len();
        for list in cache(reader, at + 16, *shape).into_iter().flatten() {
            free.count(reader, &list, found);
        }
        found.caches += usize::from(free.seen.len() > known);
    }
}

fn cache(reader: &mut Reader, at: u64, shape: CacheShape) -> Option<Vec<List>> {
    let (mut lists, mut changing) = (Vec::new(), 0);
    let heads = at + (shape.lists * shape.count).next_multiple_of(8);
    for list in 0..shape.lists {
        let first = reader.word(heads + 8 * list)?;
        let counts = reader.word(at + list * shape.count / 8 * 8)?;
        let count = counts >> (list * shape.count % 8 * 8) & if shape.count == 1 { 0xff } else { 0xffff };
        if first == 0 && (count == 0 || !shape.counts_blocks) {
            continue;
        }
        let size = size_of(reader, first).filter(|_| count != 0 || !shape.counts_blocks);
        // Lists of small blocks are of one size.
        let Some(size) = size.filter(|&size| list >= 64 || size == SMALLEST + 16 * list) else {
            // Its thread may be just changing one.
            changing += 1;
            if changing > CHANGING {
                return None;
            }
            continue;
        };
        let most = if shape.counts_blocks { count as usize } else { UNKNOWN };
        lists.push(List { first, size, most, cached: true });
    }
    (lists.len() > 3 * changing).then_some(lists)
}

/// The size of a block by the address of its words for the program, if there may be one.
fn size_of(reader: &mut Reader, at: u64) -> Option<u64> {
    if !at.is_multiple_of(16) {
        return None;
    }
    let size = reader.word(at.checked_sub(8)?)? & !FLAGS;
    (SMALLEST..HEAP_ALIGN).contains(&size).then_some(size)
}

/// The fast lists of the arena of this heap. They stand before the pointer to its free end in the arena's record.
pub(super) fn fast_lists(
    reader: &mut Reader,
    heap: &Heap,
    data: &[(u64, u64)],
    free: &mut Free,
    found: &mut Glibc,
) {
    let record = match heap.record {
        None if !heap.is_main => None,
        Some(record) => (record..record + 0x100).step_by(8).find(|&at| is_top(reader, at, heap)),
        None => data.iter().find_map(|&(start, end)| {
            if !reader.add(start, end) {
                return None;
            }
            let page = reader.target().page();
            (start..end).step_by(page as usize).find_map(|first| {
                if !reader.extent(first)?.is_resident(first) {
                    return None;
                }
                (first..first + page).step_by(8).find(|&at| is_top(reader, at, heap))
            })
        }),
    };
    let Some(top) = record else { return };
    let mut lists = Vec::new();
    for list in 0..FAST_LISTS {
        let Some(block) = reader.word(top - 8 * (FAST_LISTS - list)) else { return };
        if block == 0 {
            continue;
        }
        let first = block.wrapping_add(16);
        // Versions without fast lists have something else there.
        match size_of(reader, first) {
            Some(size) if size == SMALLEST + 16 * list => {
                lists.push(List { first, size, most: UNKNOWN, cached: false });
            }
            _ => return,
        }
    }
    lists.iter().for_each(|list| free.count(reader, list, found));
}

/// Is this where an arena's record has its free end? Empty lists, which point to themselves, follow. The end may have moved since
/// the blocks were followed, even to another heap of the arena.
fn is_top(reader: &mut Reader, at: u64, heap: &Heap) -> bool {
    let Some(top) = reader.word(at).filter(|&top| may_be_top(top, heap)) else { return false };
    let mut is_empty = |bin: u64| {
        let own = at + 16 * bin;
        reader.word(own + 16) == Some(own) && reader.word(own + 24) == Some(own)
    };
    // Of the largest sizes there is seldom a free block.
    (BINS - 8..BINS).any(&mut is_empty)
        && (0..BINS).filter(|&bin| is_empty(bin)).count() > 16
        && (top == heap.walked.top || ends_at_a_page(reader, top, heap))
}

fn may_be_top(top: u64, heap: &Heap) -> bool {
    let grown = heap.walked.first..heap.walked.end.saturating_add(GROWTH);
    top.is_multiple_of(16) && top != 0 && (heap.record.is_some() || grown.contains(&top))
}

/// Is it a block that ends a heap of this arena, or did so a moment ago?
fn ends_at_a_page(reader: &mut Reader, top: u64, heap: &Heap) -> bool {
    let (page, base) = (reader.target().page(), top / HEAP_ALIGN * HEAP_ALIGN);
    let is_ours = |reader: &mut Reader, record| base == heap.start || reader.word(base) == Some(record);
    // What moves meanwhile is looked at again.
    heap.record.is_none_or(|record| is_ours(reader, record))
        && (0..TRIES).any(|_| {
            let size = reader.word(top + 8).map_or(0, |head| head & !FLAGS);
            let ends = size >= SMALLEST && top.checked_add(size).is_some_and(|end| end.is_multiple_of(page));
            if !ends {
                reader.forget_words();
            }
            ends
        })
}

/// Blocks of lists, each counted once. In a sound process no block is in two lists, and no list leads back into itself; in one
/// that changes meanwhile, or that means us harm, both happen.
pub(super) struct Free {
    seen: HashSet<u64>,
    /// How many blocks are looked for: there are no more live ones, or no more are remembered.
    most: usize,
}

impl Free {
    /// Of all that look live.
    pub(super) fn of(found: &Glibc) -> Self {
        Self { seen: HashSet::new(), most: usize::try_from(found.live_blocks).unwrap_or(MOST).min(MOST) }
    }

    /// Follow a list, and move its blocks from the live ones to where they belong.
    fn count(&mut self, reader: &mut Reader, list: &List, found: &mut Glibc) {
        let mut next = Some(list.first);
        let (mut blocks, mut bytes) = (0, 0);
        while let Some(at) = next.filter(|_| blocks < list.most && self.seen.len() < self.most) {
            if size_of(reader, at) != Some(list.size) {
                break;
            }
            let Some(extent) = reader.extent(at - 8) else { break };
            if !self.seen.insert(at) {
                break;
            }
            bytes += extent.resident(at - 8, at - 8 + list.size);
            blocks += 1;
            next = next_of(reader, at, list);
        }
        let heads = (HEAD * blocks as u64).min(found.metadata).min(bytes);
        let live = (bytes - heads).min(found.live);
        found.live -= live;
        found.metadata -= heads;
        found.live_blocks = found.live_blocks.saturating_sub(blocks as u64);
        if list.cached {
            found.cached += live + heads;
            found.cached_blocks += blocks as u64;
        } else {
            found.free += live + heads;
        }
    }
}

/// The next of a list. Since version 2.32 it is hidden by where it stands.
fn next_of(reader: &mut Reader, at: u64, list: &List) -> Option<u64> {
    let stored = reader.word(at)?;
    let shown = stored ^ at >> 12;
    if shown == 0 || stored == 0 {
        return None;
    }
    // Fast lists lead to heads, caches to what they give the program.
    let ahead = if list.cached { 0 } else { 16 };
    [shown, stored]
        .into_iter()
        .map(|next| next.wrapping_add(ahead))
        .find(|&next| size_of(reader, next) == Some(list.size))
}
