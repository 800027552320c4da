// SPDX-License-Identifier: MIT
//! What gperftools' tcmalloc does with its memory, from outside, without symbols.
//!
//! It has a record for each run of pages (a span) and one for each thread's cache, somewhere in memory it took for itself. Both are
//! known by what must be true of them: spans begin and end where others end and begin, and a cache is a row of lists for blocks
//! of growing sizes, each empty if its length is 0. If spans do not cover what is resident, nothing of this is believed.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::glibc::Candidate;
use crate::peek::{ADDRESSES, Extent, Reader};

/// Its pages, unless it was built for larger ones.
const PAGE_SHIFT: u32 = 13;
/// Words of a span's record: first page, pages, next, previous, free blocks, and bits.
const SPAN_WORDS: usize = 6;
/// A list in a thread's cache: the first block, length, least length, most, overruns, size.
const LIST: u64 = 32;
/// Sizes there are at most, and in a cache at least.
const CLASSES: u64 = 128;
const CLASSES_LEAST: usize = 40;
/// Memory is searched in pieces.
const PIECE: u64 = 1 << 20;
/// Where in a row of caches' lists the first sizes stand: classes 0 to 3.
const FIRST_SIZES: [u64; 4] = [0, 8, 16, 32];
/// The last of these and its word in the row: it is what a row is recognized by at first.
const LAST_SIZE: u64 = FIRST_SIZES[3];
const LAST_AT: usize = 3 * 4 + 3;
/// Records that are remembered: their number is up to the process. A heap with more of them is not understood.
const SPANS_MOST: usize = 1 << 22;
const CACHES_MOST: usize = 1 << 14;
/// Spans must cover so much of what is resident.
const COVERED: f64 = 0.8;

/// Resident bytes, by what they are for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tcmalloc {
    /// Small blocks that are live, or in the central cache.
    pub live: u64,
    /// Live runs of pages.
    pub runs: u64,
    /// How many.
    pub runs_count: u64,
    /// Blocks in caches of threads.
    pub cached: u64,
    /// How many.
    pub cached_blocks: u64,
    /// How many caches.
    pub caches: usize,
    /// Free blocks in spans with live ones.
    pub free: u64,
    /// Free spans.
    pub free_pages: u64,
    /// Where the spans are.
    pub spans: Vec<(u64, u64)>,
}

/// A run of pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    pages: u64,
    out: u64,
    class: usize,
    /// In use, free, or free and given back.
    place: u64,
}

/// Read it. `resident`: of all candidates. `None`: it is something else.
pub fn read(reader: &mut Reader, candidates: &[Candidate], resident: u64) -> Option<Tcmalloc> {
    if candidates.iter().any(|candidate| candidate.start >= candidate.end || candidate.end > ADDRESSES) {
        return None;
    }
    let page = |at: u64| at >> PAGE_SHIFT;
    let pages = page(candidates.first()?.start)..page(candidates.last()?.end);
    let mut search = Search { within: candidates, pages, spans: BTreeMap::new(), caches: BTreeSet::new() };
    for candidate in candidates {
        if reader.add(candidate.start, candidate.end) {
            search.mapping(reader, candidate);
        }
    }
    let caches: Vec<Vec<(u64, u64)>> = search.caches.iter().filter_map(|&at| cache(reader, at)).collect();
    let sizes: Vec<u64> = caches.first()?.iter().map(|list| list.0).collect();
    let mut found = Tcmalloc { caches: caches.len(), ..Tcmalloc::default() };
    let mut end = 0;
    let mut covered = 0;
    for (&first, &span) in &search.spans {
        let (from, to) = (first << PAGE_SHIFT, (first + span.pages) << PAGE_SHIFT);
        // What overlaps is no span, or was one.
        if from < end {
            continue;
        }
        end = to;
        covered += count(reader, from, to, span, &sizes, &mut found);
        found.spans.push((from, to));
    }
    if (covered as f64) < COVERED * resident as f64 {
        return None;
    }
    for (size, length) in caches.iter().flatten() {
        found.cached_blocks += length;
        found.cached = found.cached.saturating_add(size.saturating_mul(*length));
    }
    found.cached = found.cached.min(found.live);
    found.live -= found.cached;
    Some(found)
}

/// Count a span, and say how much of it is resident.
fn count(reader: &mut Reader, from: u64, to: u64, span: Span, sizes: &[u64], found: &mut Tcmalloc) -> u64 {
    let mut resident = 0;
    // A span may reach over mappings that the kernel keeps apart.
    let mut at = from;
    while at < to {
        let Some(extent) = reader.extent(at) else { break };
        resident += extent.resident(at, to);
        at = extent.end;
    }
    match (span.place, span.class) {
        (0, 0) => {
            found.runs += resident;
            found.runs_count += 1;
        }
        (0, class) => {
            let out = span.out.saturating_mul(sizes.get(class).copied().unwrap_or(0)).min(resident);
            found.live += out;
            found.free += resident - out;
        }
        _ => found.free_pages += resident,
    }
    resident
}

struct Search<'a> {
    within: &'a [Candidate],
    /// From the first candidate's first page on to the last one's last: most words are no number of one of these.
    pages: Range<u64>,
    spans: BTreeMap<u64, Span>,
    /// Where caches may be.
    caches: BTreeSet<u64>,
}

impl Search<'_> {
    /// Look at all resident words of a mapping.
    fn mapping(&mut self, reader: &mut Reader, at: &Candidate) {
        let target = reader.target();
        let mut bytes = vec![0; (PIECE + 128) as usize];
        for start in (at.start..at.end).step_by(PIECE as usize) {
            let Some(extent) = reader.extent(start) else { return };
            if extent.resident(start, start + PIECE) == 0 {
                continue;
            }
            // Records do not lie across the end of what was read at once but in the next piece's beginning.
            let end = (start + PIECE + 128).min(at.end);
            let length = (end - start) as usize;
            bytes.fill(0);
            if !pieces(extent, start, end, &mut |from, to| {
                target.read(from, &mut bytes[(from - start) as usize..(to - start) as usize])
            }) {
                continue;
            }
            let words: Vec<u64> = bytes[..length]
                .chunks_exact(8)
                .map(|word| word.try_into().map_or(0, u64::from_ne_bytes))
                .collect();
            for (index, &word) in words.iter().enumerate() {
                if self.pages.contains(&word) {
                    self.span(&words[index..]);
                } else if word & 0xffff_ffff == LAST_SIZE && index >= LAST_AT {
                    self.row(start + 8 * (index - LAST_AT) as u64, &words[index - LAST_AT..]);
                }
            }
        }
    }

    /// There may be a span's record here.
    fn span(&mut self, words: &[u64]) {
        if let Some((first, span)) = span(words)
            && self.spans.len() < SPANS_MOST
            && self.holds(first, span.pages)
        {
            self.spans.insert(first, span);
        }
    }

    /// There may be a cache here.
    fn row(&mut self, at: u64, words: &[u64]) {
        let size = |class: usize| words.get(class * 4 + 3).map(|word| word & 0xffff_ffff);
        if self.caches.len() < CACHES_MOST
            && FIRST_SIZES.iter().enumerate().all(|(class, &first)| size(class) == Some(first))
        {
            self.caches.insert(at);
        }
    }

    /// Do these pages lie in one of the mappings?
    fn holds(&self, first: u64, pages: u64) -> bool {
        let (Some(from), Some(to)) =
            (first.checked_mul(1 << PAGE_SHIFT), (first + pages).checked_mul(1 << PAGE_SHIFT))
        else {
            return false;
        };
        let holding = |at: u64| {
            let place = self.within.partition_point(|mapping| mapping.end <= at);
            self.within.get(place).is_some_and(|mapping| mapping.start <= at)
        };
        holding(from) && holding(to - 1)
    }
}

/// Call `read` for each run of resident pages. False: there is none, or one could not be read.
fn pieces(extent: &Extent, start: u64, end: u64, read: &mut dyn FnMut(u64, u64) -> bool) -> bool {
    let step = extent.page();
    let mut any = false;
    let mut at = start;
    while at < end {
        let mut to = at;
        while to < end && extent.is_resident(to) {
            to = (to / step + 1) * step;
        }
        let to = to.min(end);
        if to > at {
            if !read(at, to) {
                return false;
            }
            any = true;
        }
        at = (to / step + 1) * step;
    }
    any
}

/// A span's record, as far as its own words tell.
fn span(words: &[u64]) -> Option<(u64, Span)> {
    let &[first, pages, next, previous, _, bits] = words.get(..SPAN_WORDS)? else { return None };
    let bits = bits & 0xffff_ffff;
    let span = Span { pages, out: bits & 0xffff, class: (bits >> 16 & 0xff) as usize, place: bits >> 24 & 3 };
    let linked = (next == 0) == (previous == 0) && next.is_multiple_of(8) && previous.is_multiple_of(8);
    let sound = (0x100..1 << 48).contains(&first)
        && pages > 0
        && pages < 1 << 32
        && linked
        && bits >> 28 == 0
        && span.place < 3;
    let sound = sound && (span.class as u64) < CLASSES && (span.place == 0 || span.out == 0);
    sound.then_some((first, span))
}

/// Sizes and lengths of the lists of a cache, by class; `None` if it is something else.
fn cache(reader: &mut Reader, at: u64) -> Option<Vec<(u64, u64)>> {
    let mut lists = vec![(0, 0)];
    for class in 1..CLASSES {
        let list = at + class * LIST;
        let (first, lengths, size) = (reader.word(list)?, reader.word(list + 8)?, reader.word(list + 24)?);
        let (length, size) = (lengths & 0xffff_ffff, size & 0xffff_ffff);
        if size <= lists[lists.len() - 1].0 {
            break;
        }
        if (first == 0) != (length == 0) || size > 1 << 20 {
            return None;
        }
        lists.push((size, length));
    }
    (lists.len() > CLASSES_LEAST).then_some(lists)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peek::fake::Fake;

    const START: u64 = 0x1000_0000;

    /// 64 pages of 4 KiB: records in the first two, then spans.
    fn example() -> Fake {
        let mut fake = Fake::new(START, 64);
        let mut record = START + 0x100;
        let mut span = |first: u64, pages: u64, bits: u64| {
            let first = (START >> PAGE_SHIFT) + first;
            for (index, word) in [first, pages, 0, 0, 0, bits].into_iter().enumerate() {
                fake.put(record + 8 * index as u64, word);
            }
            record += 48;
        };
        span(4, 2, 10 | 3 << 16); // 10 blocks of 32 bytes are out
        span(6, 10, 1); // a run
        span(16, 8, 1 << 24); // free
        span(24, 8, 2 << 24); // free and given back
        let lists = START + 0x1000;
        for class in 0..60u64 {
            let size = if class < 4 { FIRST_SIZES[class as usize] } else { 32 + (class - 3) * 16 };
            fake.put(lists + class * LIST + 24, size);
        }
        fake.put(lists + 3 * LIST, START + 0x8000);
        fake.put(lists + 3 * LIST + 8, 4);
        fake.resident[48..].fill(false);
        fake
    }

    #[test]
    fn spans_and_caches_are_found_by_their_looks() {
        let fake = example();
        let candidates = [Candidate { start: START, end: START + 64 * 4096, is_heap: true }];
        let mut reader = Reader::new(&fake);
        let found = read(&mut reader, &candidates, 44 * 4096).unwrap();
        assert_eq!((found.live, found.cached, found.free), (6 * 32, 4 * 32, 2 * 8192 - 320));
        assert_eq!((found.runs, found.free_pages), (10 * 8192, 8 * 8192));
        assert_eq!((found.caches, found.cached_blocks, found.runs_count), (1, 4, 1));
        assert_eq!(found.spans.len(), 4);
        // Of twice as much, too little is known.
        assert_eq!(read(&mut reader, &candidates, 88 * 4096), None);
    }

    #[test]
    fn damage_is_no_heap_and_no_panic() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..100 {
            let mut fake = example();
            for _ in 0..20 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let at = (state >> 33) as usize % 1024;
                fake.words[at] = if state & 1 == 0 { state } else { u64::MAX };
            }
            let candidates = [Candidate { start: START, end: START + 64 * 4096, is_heap: true }];
            let _ = read(&mut Reader::new(&fake), &candidates, 44 * 4096);
        }
    }
}
