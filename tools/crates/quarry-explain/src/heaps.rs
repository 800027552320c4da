// SPDX-License-Identifier: MIT
//! The heaps of a process, and what is inside of them: as far as they say, or as it can be read from outside.

use std::time::Duration;

use quarry_measure::units;
use quarry_proc::classify::Kind;
use quarry_stats::breakdown::heap_breakdown;
use quarry_stats::{Found, Page, Use};

use crate::chain::{Cause, Part};
use crate::glibc::{self, Candidate, Glibc};
use crate::look::Area;
use crate::peek::{Extent, Reader, Target};
use crate::tcmalloc::{self, Tcmalloc};

/// A process that works is read so often until what it says makes sense, ...
const TRIES: usize = 3;
/// ... but for such a part of it.
const UNREAD_PART: u64 = 200;

/// Which allocator a heap belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allocator {
    /// Ours.
    Quarry,
    /// The C library's.
    Glibc,
    /// gperftools'.
    Tcmalloc,
    /// Another one, known by its library only.
    Other(&'static str),
}

impl Allocator {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Allocator::Quarry => "Quarry",
            Allocator::Glibc => "glibc",
            Allocator::Tcmalloc => TCMALLOC,
            Allocator::Other(name) => name,
        }
    }
}

/// A heap.
pub struct Heap {
    /// Whose heap it is.
    pub allocator: Allocator,
    /// Its part of the chain.
    pub part: Part,
    /// What malloc_trim would give back; glibc.
    pub trimmable: Option<u64>,
    /// Of that, whole pages between live blocks; glibc.
    pub free_pages: Option<u64>,
    /// Arenas; glibc.
    pub arenas: usize,
    /// Live bytes that are not resident: never touched, or in swap. Quarry.
    pub untouched: u64,
    /// Seconds since the numbers were written; Quarry.
    pub age: Option<f64>,
    /// Bytes that were read again, since they had changed while they were read, or a page was in swap; glibc.
    pub again: u64,
    /// Bytes that changed each time they were read, or of which a page is in swap; glibc.
    pub unread: u64,
}

impl Heap {
    fn new(allocator: Allocator, part: Part) -> Self {
        Self {
            allocator,
            part,
            trimmable: None,
            free_pages: None,
            arenas: 0,
            untouched: 0,
            age: None,
            again: 0,
            unread: 0,
        }
    }

    /// Nobody knows which of the free ones are lazily freed, so they are no part.
    fn with_lazy(mut self, lazy: u64) -> Self {
        if lazy > 0 {
            self.part.name += &format!(", {} of it lazily freed", units::bytes(lazy as f64));
        }
        self
    }
}

/// So often a heap that makes no sense is read, and so long after each other.
const READINGS: u32 = 4;
const BETWEEN_READINGS: Duration = Duration::from_millis(20);
const TCMALLOC: &str = "tcmalloc";
/// Libraries by which others are known.
const OTHERS: [(&str, &str); 9] = [
    ("libjemalloc", "jemalloc"),
    ("libmimalloc", "mimalloc"),
    ("libtcmalloc", TCMALLOC),
    ("libtbbmalloc", "tbbmalloc"),
    ("librpmalloc", "rpmalloc"),
    ("libsnmalloc", "snmalloc"),
    ("libscudo", "scudo"),
    ("libhardened_malloc", "hardened_malloc"),
    ("libjvm", "the Java virtual machine"),
];

/// Find them, and note in the areas what they explain; `still`: nothing changes meanwhile.
pub fn find(areas: &mut [Area], found: Option<&Found>, target: &dyn Target, still: bool) -> Vec<Heap> {
    let mut heaps = Vec::new();
    if let Some(found) = found {
        heaps.extend(quarry(areas, found, target));
    }
    let other = other(areas);
    if other == Some(TCMALLOC) {
        heaps.extend(of_tcmalloc(areas, target, if still { 1 } else { READINGS }));
    }
    heaps.extend(of_glibc(areas, target));
    // What is left belongs to the other allocator, if there is one.
    let is_explained = heaps.iter().any(|heap| heap.allocator.name() == other.unwrap_or_default());
    if let Some(name) = other.filter(|_| !is_explained) {
        heaps.extend(opaque(
            areas,
            name,
            &format!("heap: {name}, and other memory without a name"),
            is_candidate,
        ));
    }
    // Where memory may not be read, the kernel still tells which is [heap].
    let by_brk = |area: &Area| area.class.kind == Kind::Heap;
    heaps.extend(opaque(areas, "of an unknown malloc", "heap: [heap], of an unknown malloc", by_brk));
    heaps.sort_by_key(|heap| std::cmp::Reverse(heap.part.bytes));
    heaps
}

fn other(areas: &[Area]) -> Option<&'static str> {
    let has = |stem: &str| {
        areas.iter().any(|area| {
            let file = area.mapping.name.rsplit('/').next().unwrap_or_default();
            file.strip_prefix(stem).is_some_and(|rest| rest.starts_with(['.', '-', '_']))
        })
    };
    OTHERS.into_iter().find(|(stem, _)| has(stem)).map(|(_, name)| name)
}

/// Private anonymous memory that may be of a heap.
pub fn is_candidate(area: &Area) -> bool {
    matches!(area.class.kind, Kind::Heap | Kind::Anonymous | Kind::Named | Kind::Quarry)
        && area.mapping.perms.write
        && area.left > 0
}

fn candidates(areas: &[Area]) -> Vec<Candidate> {
    let candidate = |area: &Area| Candidate {
        start: area.mapping.start,
        end: area.mapping.end,
        is_heap: area.class.kind == Kind::Heap,
    };
    areas.iter().filter(|area| is_candidate(area)).map(candidate).collect()
}

/// Take what lies between two addresses out of what is not explained: resident bytes, and those lazily freed.
pub fn claim(areas: &mut [Area], from: u64, to: u64, target: &dyn Target) -> (u64, u64) {
    let (mut resident, mut lazy) = (0, 0);
    let first = areas.partition_point(|area| area.mapping.end <= from);
    for area in &mut areas[first..] {
        if area.mapping.start >= to {
            break;
        }
        let (start, end) = (from.max(area.mapping.start), to.min(area.mapping.end));
        if area.mapping.perms.shared || area.left == 0 || start >= end {
            continue;
        }
        let whole = start == area.mapping.start && end == area.mapping.end;
        let share = (end - start) as f64 / area.mapping.size() as f64;
        let part = |all: u64| if whole { all } else { (all as f64 * share) as u64 };
        // Where only a part is ours, its pages are asked for; else it is guessed by the addresses.
        let pages = if whole { None } else { Extent::of(target, start, end) };
        let taken = pages.map_or_else(|| part(area.left), |pages| pages.resident(start, end).min(area.left));
        let taken_lazy = part(area.lazy).min(taken);
        area.left -= taken;
        area.lazy -= taken_lazy;
        resident += taken;
        lazy += taken_lazy;
    }
    (resident, lazy)
}

// ---- Quarry ---------------------------------------------------------------------------------------------

fn quarry(areas: &mut [Area], found: &Found, target: &dyn Target) -> Option<Heap> {
    let (mut blocks, mut metadata, mut lazy) = (0, 0, 0);
    let mut missing = 0u64;
    for heap in found.pages.iter().filter_map(|page| page.heap.as_ref()) {
        missing = missing.saturating_add(heap.ranges_missing_bytes);
    }
    for (from, to, used) in apart(&found.pages) {
        let (resident, freed) = claim(areas, from, to, target);
        lazy += freed;
        match used {
            Use::Metadata => metadata += resident,
            Use::Blocks | Use::Huge | Use::Other => blocks += resident,
        }
    }
    // Where the kernel shows names, these say what has been mapped since the ranges were written, and what pools have.
    let mut pools = 0;
    for area in areas.iter_mut().filter(|area| area.class.kind == Kind::Quarry) {
        match &*area.class.object {
            "quarry heap" | "quarry huge" => blocks += std::mem::take(&mut area.left),
            "quarry metadata" => metadata += std::mem::take(&mut area.left),
            _ => pools += std::mem::take(&mut area.left),
        }
    }
    // Large objects for which the page had no room, and pools without names, are somewhere in what has no name.
    blocks += unnamed(areas, missing);
    let held = pools_held(&found.pages);
    pools += unnamed(areas, held.saturating_sub(pools));
    let resident = blocks + metadata + pools;
    if resident == 0 {
        return None;
    }
    let mut pages = found.pages.clone();
    pages.iter_mut().for_each(|page| page.pools = None);
    let estimate = heap_breakdown(&pages, None).metadata_bytes;
    let b = heap_breakdown(&pages, Some((blocks - lazy.min(blocks)).saturating_add(estimate)));
    let leaf = |key: &str, name: &str, bytes, cause| Part::leaf(key, name, bytes, cause, "statistics page");
    let parts = vec![
        leaf("live", "live: held by the program", b.live_bytes, Cause::Live),
        leaf(
            "unexplained",
            "ends of blocks, and what came since the page was written",
            b.unexplained_bytes,
            Cause::Untold,
        ),
        leaf(
            "free_pages",
            "free pages, going back when they stay unused",
            b.pages_free_bytes,
            Cause::FreePages,
        ),
        leaf(
            "fragmentation",
            "free between live blocks: fragmentation",
            b.slab_free_bytes,
            Cause::Fragmentation,
        ),
        leaf("thread_caches", "in caches of threads", b.cached_bytes, Cause::Caches),
        leaf("pools", "pools", pools, Cause::Pools),
        Part::leaf("lazily_freed", "lazily freed", lazy, Cause::Lazy, "smaps, LazyFree"),
        Part::leaf("metadata", "records of the heap", metadata, Cause::Metadata, "smaps"),
    ];
    let heap =
        Part::leaf("heap_quarry", "heap: Quarry", resident, Cause::Untold, "smaps, over the page's ranges");
    let at = found.pages.iter().filter_map(|page| Some(page.heap.as_ref()?.sums?.at_ns)).min();
    Some(Heap {
        untouched: b.untouched_bytes,
        age: at.map(|at| found.read_ns.saturating_sub(at) as f64 / 1e9),
        ..Heap::new(Allocator::Quarry, heap.with(parts, "live, or not known yet"))
    })
}

/// The ranges of all heaps. Those of a sound page do not overlap; of those that do, the later one is what is left of it, so that no
/// address is asked about twice.
fn apart(pages: &[Page]) -> Vec<(u64, u64, Use)> {
    let heaps = pages.iter().filter_map(|page| page.heap.as_ref());
    let mut ranges: Vec<_> = heaps
        .flat_map(|heap| &heap.ranges)
        .filter_map(|range| Some((range.base, range.base.checked_add(range.bytes)?, range.used)))
        .collect();
    ranges.sort_unstable_by_key(|&(from, to, _)| (from, to));
    let mut known = 0;
    for (from, to, _) in &mut ranges {
        *from = known.max(*from);
        known = known.max(*to);
    }
    ranges.retain(|(from, to, _)| from < to);
    ranges
}

fn pools_held(pages: &[Page]) -> u64 {
    let pools = pages.iter().filter_map(|page| page.pools.as_ref());
    pools.fold(0u64, |sum, pools| {
        let held =
            pools.pools.iter().fold(pools.others_held_bytes, |sum, pool| sum.saturating_add(pool.held_bytes));
        sum.saturating_add(held)
    })
}

/// Take so much out of anonymous memory without a name, as far as there is some.
fn unnamed(areas: &mut [Area], bytes: u64) -> u64 {
    let mut lack = bytes;
    for area in
        areas.iter_mut().filter(|area| area.class.kind == Kind::Anonymous && !area.mapping.perms.shared)
    {
        let taken = lack.min(area.left);
        area.left -= taken;
        lack -= taken;
    }
    bytes - lack
}

// ---- glibc ----------------------------------------------------------------------------------------------

fn of_glibc(areas: &mut [Area], target: &dyn Target) -> Option<Heap> {
    let candidates = candidates(areas);
    let data = variables(areas);
    let mut best: Option<Glibc> = None;
    for _ in 0..TRIES {
        let read = glibc::read(&mut Reader::new(target), &candidates, &data);
        let unread = read.as_ref().map_or(u64::MAX, |read| read.unread);
        if best.as_ref().is_none_or(|best| unread < best.unread) {
            best = read;
        }
        if best.as_ref().is_some_and(|best| best.unread <= best.resident() / UNREAD_PART) {
            break;
        }
    }
    let read = best?;
    let (mut resident, mut lazy) = (0, 0);
    for &(from, to) in &read.spans {
        let (taken, freed) = claim(areas, from, to, target);
        resident += taken;
        lazy += freed;
    }
    Some(of_glibc_parts(&read, resident, lazy))
}

/// What threads keep for themselves.
fn cached(caches: u64, blocks: u64) -> String {
    format!("in {} of threads: {}", units::of(caches, "cache"), units::of(blocks, "block"))
}

/// What the program holds, of one kind or of several.
fn live(mut kinds: Vec<Part>) -> Part {
    kinds.retain(|kind| kind.bytes > 0);
    let bytes = kinds.iter().map(|kind| kind.bytes).sum();
    let [kind] = &*kinds else {
        let whole = Part::leaf("live", "live: held by the program", bytes, Cause::Live, "its parts");
        return whole.with(kinds, "live");
    };
    Part { key: String::from("live"), name: format!("live: {}", kind.name), ..kind.clone() }
}

fn of_glibc_parts(read: &Glibc, resident: u64, lazy: u64) -> Heap {
    let leaf =
        |key: &str, name: String, bytes, cause| Part::leaf(key, name, bytes, cause, "its blocks, one by one");
    let own = if read.mapped_blocks == 1 { "a mapping of its own" } else { "mappings of their own" };
    let live = live(vec![
        leaf("blocks", units::of(read.live_blocks, "block"), read.live, Cause::Live),
        leaf(
            "mapped",
            format!("{} with {own}", units::of(read.mapped_blocks, "large block")),
            read.mapped,
            Cause::Live,
        ),
    ]);
    let cached = cached(read.caches as u64, read.cached_blocks);
    let parts = vec![
        live,
        leaf(
            "unread",
            String::from("could not be read: it changed meanwhile, or is in swap in part"),
            read.unread,
            Cause::OpaqueHeap,
        ),
        leaf(
            "fragmentation",
            String::from("free between live blocks: fragmentation"),
            read.free,
            Cause::Fragmentation,
        ),
        leaf("free_pages", String::from("free at the ends of arenas"), read.top, Cause::FreePages),
        leaf("thread_caches", cached, read.cached, Cause::Caches),
        leaf("metadata", String::from("heads of blocks, records"), read.metadata, Cause::Metadata),
    ];
    let arenas = if read.arenas == 1 { String::from("1 arena") } else { format!("{} arenas", read.arenas) };
    let whole = Part::leaf("heap_glibc", format!("heap: glibc, {arenas}"), resident, Cause::Untold, "smaps");
    let heap = Heap::new(Allocator::Glibc, whole.with(parts, "live, or not known")).with_lazy(lazy);
    Heap {
        trimmable: Some(read.free_pages + read.main_top),
        free_pages: Some(read.free_pages),
        arenas: read.arenas,
        again: read.again,
        unread: read.unread,
        ..heap
    }
}

/// Variables of the C library; of the program itself where it has none.
fn variables(areas: &[Area]) -> Vec<(u64, u64)> {
    let is_data =
        |area: &&Area| area.mapping.perms.write && matches!(area.class.kind, Kind::Data | Kind::Bss);
    let of = |wanted: &dyn Fn(&str) -> bool| -> Vec<(u64, u64)> {
        let file = |area: &&Area| wanted(area.class.object.rsplit('/').next().unwrap_or_default());
        areas.iter().filter(is_data).filter(file).map(|area| (area.mapping.start, area.mapping.end)).collect()
    };
    let library = of(&|file| file.starts_with("libc.so") || file.starts_with("libc-2"));
    if library.is_empty() { of(&|_| true) } else { library }
}

// ---- tcmalloc -------------------------------------------------------------------------------------------

/// What changes while it is read makes no sense now and then, and does a moment later.
fn settled<T>(readings: u32, mut read: impl FnMut() -> Option<T>) -> Option<T> {
    for _ in 1..readings {
        let read = read();
        if read.is_some() {
            return read;
        }
        std::thread::sleep(BETWEEN_READINGS);
    }
    read()
}

fn of_tcmalloc(areas: &mut [Area], target: &dyn Target, readings: u32) -> Option<Heap> {
    let candidates = candidates(areas);
    let resident = areas.iter().filter(|area| is_candidate(area)).map(|area| area.left).sum();
    let read = settled(readings, || tcmalloc::read(&mut Reader::new(target), &candidates, resident))?;
    let (mut resident, mut lazy) = (0, 0);
    for &(from, to) in &read.spans {
        let (taken, freed) = claim(areas, from, to, target);
        resident += taken;
        lazy += freed;
    }
    // All of [heap] is its own: records lie there.
    let in_heap = areas.iter_mut().filter(|area| area.class.kind == Kind::Heap);
    let records = in_heap.map(|area| std::mem::take(&mut area.left)).sum();
    Some(of_tcmalloc_parts(&read, resident + records, records, lazy))
}

fn of_tcmalloc_parts(read: &Tcmalloc, resident: u64, records: u64, lazy: u64) -> Heap {
    let leaf =
        |key: &str, name: String, bytes, cause| Part::leaf(key, name, bytes, cause, "its spans, one by one");
    let cached = cached(read.caches as u64, read.cached_blocks);
    let live = live(vec![
        leaf("blocks", String::from("small blocks, or in the central cache"), read.live, Cause::Live),
        leaf("runs", units::of(read.runs_count, "large block"), read.runs, Cause::Live),
    ]);
    let parts = vec![
        live,
        leaf(
            "fragmentation",
            String::from("free between live blocks: fragmentation"),
            read.free,
            Cause::Fragmentation,
        ),
        leaf("free_pages", String::from("free pages"), read.free_pages, Cause::FreePages),
        leaf("thread_caches", cached, read.cached, Cause::Caches),
        Part::leaf("metadata", "records: what else is in [heap]", records, Cause::Metadata, "smaps"),
    ];
    let part = Part::leaf("heap_tcmalloc", "heap: tcmalloc", resident, Cause::Untold, "smaps");
    let part = part.with(parts, "live, or not known");
    Heap::new(Allocator::Tcmalloc, part).with_lazy(lazy)
}

// ---- others ---------------------------------------------------------------------------------------------

/// A heap of which only its size can be seen.
fn opaque(
    areas: &mut [Area],
    name: &'static str,
    label: &str,
    belongs: impl Fn(&Area) -> bool,
) -> Option<Heap> {
    let (mut resident, mut lazy) = (0, 0);
    for area in areas.iter_mut().filter(|area| belongs(area) && !area.mapping.perms.shared) {
        lazy += std::mem::take(&mut area.lazy);
        resident += std::mem::take(&mut area.left);
    }
    if resident == 0 {
        return None;
    }
    let lazy = Part::leaf("lazily_freed", "lazily freed", lazy, Cause::Lazy, "smaps, LazyFree");
    let rest = "unknown from outside: live, cached or free";
    let part = Part::leaf("heap", label, resident, Cause::OpaqueHeap, "smaps").with(vec![lazy], rest);
    Some(Heap::new(Allocator::Other(name), part))
}

#[cfg(test)]
mod tests {
    use quarry_stats::Range;

    use super::*;

    #[test]
    fn what_makes_no_sense_is_read_again() {
        let mut left = READINGS;
        let mut after = |wrong: u32| {
            left = READINGS;
            settled(READINGS, || {
                left -= 1;
                (READINGS - left > wrong).then_some(left)
            })
        };
        assert_eq!(after(0), Some(READINGS - 1));
        assert_eq!(after(READINGS - 1), Some(0));
        assert_eq!((after(READINGS), left), (None, 0));
        let mut once = 0;
        let still = settled(1, || {
            once += 1;
            None::<u32>
        });
        assert_eq!((still, once), (None, 1));
    }

    #[test]
    fn the_ends_of_other_arenas_are_not_trimmed() {
        let read = Glibc {
            free: 5 << 20,
            free_pages: 4 << 20,
            top: 50 << 20,
            main_top: 1 << 20,
            ..Glibc::default()
        };
        let heap = of_glibc_parts(&read, read.resident(), 0);
        assert_eq!((heap.trimmable, heap.free_pages), (Some(5 << 20), Some(4 << 20)));
        assert_eq!(heap.part.of(Cause::FreePages), 50 << 20);
    }

    #[test]
    fn ranges_of_a_page_that_lies_are_taken_apart() {
        let range = |base, bytes, used| Range { base, bytes, used };
        let page = |ranges: &[Range]| Page {
            pid: 1,
            version: "0".into(),
            born_ns: 0,
            sampler_at: 0,
            sampler_bytes: 0,
            heap: Some(quarry_stats::Heap { ranges: ranges.to_vec(), ..Default::default() }),
            pools: None,
        };
        let pages = [
            page(&[range(0x9000, 0x1000, Use::Huge), range(0x1000, 0x3000, Use::Blocks)]),
            page(&[
                range(0x2000, 0x1000, Use::Metadata),
                range(0x3000, 0x2000, Use::Metadata),
                range(0x1000, 0x3000, Use::Blocks),
                range(u64::MAX, 2, Use::Other),
            ]),
        ];
        assert_eq!(
            apart(&pages),
            [(0x1000, 0x4000, Use::Blocks), (0x4000, 0x5000, Use::Metadata), (0x9000, 0xa000, Use::Huge)]
        );
    }
}
