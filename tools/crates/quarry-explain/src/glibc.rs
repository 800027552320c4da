// SPDX-License-Identifier: MIT
//! What glibc's malloc does with its memory, from outside: no symbols, no debug information.
//!
//! Its blocks lie one behind the other, each with its size before it, so whoever knows where the first is finds all. The main
//! heap is [heap]; other arenas lie at multiples of 64 MiB and begin with a record that says so; large blocks have mappings of
//! their own, with their size at the beginning. Whether a block is free stands in the next one, but for those in the caches
//! of threads and in the fast lists of arenas, which look like live ones: they are found by following these lists.
//!
//! Nothing is believed: sizes must lead exactly to the end of a heap, or to where it went on growing while it was read; lists must
//! consist of blocks of their size. The process goes on meanwhile, and [`walk`] is there for that.

mod lists;
mod walk;

use walk::{Budget, Ends, Walked, first_walk};

use crate::peek::{ADDRESSES, LARGEST, Reader};

/// Heaps of arenas begin at multiples of this.
const HEAP_ALIGN: u64 = 64 << 20;
const FLAGS: u64 = 7;
const PREVIOUS_IN_USE: u64 = 1;
const MAPPED: u64 = 2;
/// The smallest block, with its head.
const SMALLEST: u64 = 0x20;
/// Live blocks cost a word each.
const HEAD: u64 = 8;

/// A mapping that may belong to it.
#[derive(Debug, Clone, Copy)]
pub struct Candidate {
    /// Its first address.
    pub start: u64,
    /// The address behind it.
    pub end: u64,
    /// [heap].
    pub is_heap: bool,
}

/// Resident bytes, by what they are for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Glibc {
    /// Arenas, the main one included.
    pub arenas: usize,
    /// Live blocks in heaps, with what may not be known to be free.
    pub live: u64,
    /// How many of these.
    pub live_blocks: u64,
    /// Live blocks with a mapping of their own.
    pub mapped: u64,
    /// How many.
    pub mapped_blocks: u64,
    /// Blocks in caches of threads.
    pub cached: u64,
    /// How many.
    pub cached_blocks: u64,
    /// How many caches with blocks in them.
    pub caches: usize,
    /// Free blocks between live ones, ...
    pub free: u64,
    /// ... and those of their pages that malloc_trim would give back.
    pub free_pages: u64,
    /// Free memory at the ends of arenas.
    pub top: u64,
    /// Whole pages of that of the main arena: malloc_trim gives back no other end.
    pub main_top: u64,
    /// Heads of blocks, and records.
    pub metadata: u64,
    /// What could not be understood, changed each time that it was read, or has its heads in swap.
    pub unread: u64,
    /// Bytes that were read again, since they had changed meanwhile, or a page was in swap.
    pub again: u64,
    /// All of these lie here.
    pub spans: Vec<(u64, u64)>,
}

impl Glibc {
    /// The sum of all parts.
    pub fn resident(&self) -> u64 {
        self.live + self.mapped + self.cached + self.free + self.top + self.metadata + self.unread
    }
}

/// Read it. `data`: variables of the C library, where the main arena's record is. `None`: this is no malloc of glibc.
pub fn read(reader: &mut Reader, candidates: &[Candidate], data: &[(u64, u64)]) -> Option<Glibc> {
    let mut found = Glibc::default();
    let (mut heaps, mut budget) = (Vec::new(), Budget::default());
    let mut probe = Reader::new(reader.target());
    let whole = |candidate: &&Candidate| candidate.start < candidate.end && candidate.end <= ADDRESSES;
    for candidate in candidates.iter().filter(whole) {
        if candidate.is_heap {
            main_heap(reader, candidate, &mut found, &mut heaps, &mut budget);
        } else if may_be_ours(&mut probe, candidate) && reader.add(candidate.start, candidate.end) {
            let known = found.spans.len();
            arenas(reader, candidate, &mut found, &mut heaps, &mut budget);
            if found.spans[known..].first().is_none_or(|span| span.0 > candidate.start) {
                mapped(reader, candidate, &mut found);
            }
        }
    }
    if found.spans.is_empty() {
        return None;
    }
    // Lists are read as they are now.
    reader.forget_words();
    let mut free = lists::Free::of(&found);
    for heap in &heaps {
        lists::caches(reader, heap, &mut free, &mut found);
        lists::fast_lists(reader, heap, data, &mut free, &mut found);
    }
    Some(found)
}

// ---- heaps ----------------------------------------------------------------------------------------------

/// So often a heap is begun to be read that changes from its first blocks on.
const TRIES: usize = 4;

fn main_heap(
    reader: &mut Reader,
    at: &Candidate,
    found: &mut Glibc,
    heaps: &mut Vec<Heap>,
    budget: &mut Budget,
) {
    // It may have grown since the mappings were read; what is not there is not resident.
    if !reader.add(at.start, at.end + walk::GROWTH) {
        return;
    }
    let mut walked = first_walk(reader, at.start, Ends::WhereItEnds(at.end), budget);
    if walked.is_none() && begins_with_a_cache(reader, at.start) {
        walked = walk_again(reader, at.start, at.start, Ends::WhereItEnds(at.end), budget);
        if walked.is_none() {
            return unread(reader, at.start, at.end, found);
        }
    }
    if let Some(walked) = walked {
        found.arenas += 1;
        let top = take(reader, at.start, &walked, found);
        found.main_top += top - top % reader.target().page();
        heaps.push(Heap { is_main: true, record: None, start: at.start, walked });
    }
}

/// Follow blocks of what surely is a heap once more, with new copies.
fn walk_again(reader: &mut Reader, start: u64, from: u64, ends: Ends, budget: &mut Budget) -> Option<Walked> {
    (1..TRIES).find_map(|_| {
        let end = reader.extent(start)?.end;
        reader.renew(start, end.min(start + walk::GROWTH));
        first_walk(reader, from, ends, budget)
    })
}

/// The first block of the main heap is the table of the first thread's cache.
fn begins_with_a_cache(reader: &mut Reader, at: u64) -> bool {
    let head = reader.word(at + 8);
    head.is_some_and(|head| head & FLAGS == PREVIOUS_IN_USE && lists::may_be_cache(head & !FLAGS))
}

/// Surely a heap, and changing too fast.
fn unread(reader: &mut Reader, from: u64, to: u64, found: &mut Glibc) {
    found.unread += reader.extent(from).map_or(0, |extent| extent.resident(from, to));
    found.spans.push((from, to));
}

/// What is needed of a heap to find lists of free blocks.
struct Heap {
    is_main: bool,
    /// The record of its arena, if this heap begins with one.
    record: Option<u64>,
    start: u64,
    walked: Walked,
}

/// Heaps of other arenas in a mapping. Neighbours may be one mapping for the kernel.
fn arenas(
    reader: &mut Reader,
    within: &Candidate,
    found: &mut Glibc,
    heaps: &mut Vec<Heap>,
    budget: &mut Budget,
) {
    let mut at = within.start.next_multiple_of(HEAP_ALIGN);
    while at < within.end {
        arena(reader, at, found, heaps, budget);
        let Some(next) = at.checked_add(HEAP_ALIGN) else { return };
        at = next;
    }
}

/// What the beginning of a heap of an arena says.
struct HeapInfo {
    owner: u64,
    is_first: bool,
    size: u64,
}

fn heap_info(reader: &mut Reader, at: u64) -> Option<HeapInfo> {
    let [owner, previous, size, writable] = [0, 8, 16, 24].map(|offset| reader.word(at + offset));
    let (owner, previous, size, writable) = (owner?, previous?, size?, writable?);
    if size == 0 || size > writable || writable > HEAP_ALIGN || !size.is_multiple_of(4096) {
        return None;
    }
    // The first heap of an arena holds its record, others lead back to it.
    let is_first = previous == 0 && (at + 0x20..=at + 0x80).contains(&owner);
    let is_next =
        previous != 0 && previous.is_multiple_of(HEAP_ALIGN) && owner % HEAP_ALIGN <= 0x80 && owner != 0;
    (is_first || is_next).then_some(HeapInfo { owner, is_first, size })
}

fn arena(
    reader: &mut Reader,
    at: u64,
    found: &mut Glibc,
    heaps: &mut Vec<Heap>,
    budget: &mut Budget,
) -> Option<()> {
    // A mapping that grows while the list of mappings is read may be in it twice.
    if found.spans.iter().any(|&(start, _)| start == at) {
        return None;
    }
    let HeapInfo { owner, is_first, size } = heap_info(reader, at)?;
    // All of these addresses are its own, so it may have grown since the mappings were read.
    if !reader.add(at, at.checked_add(HEAP_ALIGN)?) {
        return None;
    }
    let from = if is_first { owner + 0x100 } else { at + 0x20 };
    found.arenas += usize::from(is_first);
    let ends = Ends::AsItSays(at);
    let walked = first_walk(reader, from, ends, budget);
    if let Some(walked) = walked.or_else(|| walk_again(reader, at, from, ends, budget)) {
        take(reader, at, &walked, found);
        let record = is_first.then_some(owner);
        heaps.push(Heap { is_main: false, record, start: at, walked });
    } else {
        unread(reader, at, at + size, found);
    }
    Some(())
}

/// Add what a heap has that begins at `start`. Returns what is free at its end.
fn take(reader: &mut Reader, start: u64, walked: &Walked, found: &mut Glibc) -> u64 {
    let Some(extent) = reader.extent(start) else { return 0 };
    let top = extent.resident(walked.top, walked.end);
    let records = extent.resident(start, walked.first);
    let sums = &walked.sums;
    found.live += sums.live;
    found.live_blocks += sums.live_blocks;
    found.metadata += sums.heads + records;
    found.free += sums.free;
    found.free_pages += sums.free_pages;
    found.unread += sums.unread;
    found.again += walked.again;
    found.top += top;
    found.spans.push((start, walked.end));
    top
}

// ---- blocks with a mapping of their own -----------------------------------------------------------------

fn mapped(reader: &mut Reader, within: &Candidate, found: &mut Glibc) {
    let mut at = within.start;
    while at < within.end {
        let (Some(before), Some(head)) = (reader.word(at), reader.word(at + 8)) else { return };
        let size = head & !FLAGS;
        let sound = head & FLAGS == MAPPED && before == 0 && size.is_multiple_of(4096) && size > 0;
        if !sound || size > within.end - at {
            return;
        }
        let Some(extent) = reader.extent(at) else { return };
        let resident = extent.resident(at, at + size);
        found.mapped += resident.saturating_sub(16);
        found.metadata += resident.min(16);
        found.mapped_blocks += 1;
        found.spans.push((at, at + size));
        at += size;
    }
}

/// Is there anything of it in this mapping? Only a few pages are looked at, by a reader of their own.
fn may_be_ours(probe: &mut Reader, within: &Candidate) -> bool {
    let page = probe.target().page();
    // A process that maps all addresses shall not have us remember a page of each 64 MiB.
    probe.forget();
    if within.end - within.start > LARGEST {
        return false;
    }
    let is_block = |head: u64| head & FLAGS == MAPPED && head > FLAGS;
    if probe.add(within.start, within.start + page) && probe.word(within.start + 8).is_some_and(is_block) {
        return true;
    }
    let first = within.start.next_multiple_of(HEAP_ALIGN);
    (first..within.end)
        .step_by(HEAP_ALIGN as usize)
        .any(|at| probe.add(at, at + page) && heap_info(probe, at).is_some())
}

#[cfg(test)]
mod tests;
