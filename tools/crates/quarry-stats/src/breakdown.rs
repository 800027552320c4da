// SPDX-License-Identifier: MIT
//! What the resident memory of a heap consists of.
//!
//! The page knows what each byte of the heap is for, the kernel which bytes are resident. What was given out counts as resident, since
//! the heap cannot know what the program touched; the difference to the kernel's sum shows how much of that is wrong, and is a part of
//! its own, so the parts add up to the kernel's figure exactly.

use crate::page::{Page, Sums};

/// Resident bytes of Quarry's mappings, by what they are for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Breakdown {
    /// The sum of the parts below: what the kernel counts as resident, or an estimate if it was not asked.
    pub resident_bytes: u64,
    /// Held by the program, and touched.
    pub live_bytes: u64,
    /// Free blocks in the caches of threads.
    pub cached_bytes: u64,
    /// Free blocks in slabs that have live ones: fragmentation.
    pub slab_free_bytes: u64,
    /// Free pages, kept for a while to be used again: they go back when they stay unused.
    pub pages_free_bytes: u64,
    /// The heap's own records and tables.
    pub metadata_bytes: u64,
    /// Held by pools, each by name in the page.
    pub pools_bytes: u64,
    /// Resident, and none of these: touched ends of blocks and slabs, or memory that came since the page was written.
    pub unexplained_bytes: u64,
    /// Beside the sum: held by the program (or of its pools), but not resident: never touched, or swapped out.
    pub untouched_bytes: u64,
    /// Beside the sum: mapped, and given back to the kernel or never touched.
    pub returned_bytes: u64,
}

impl Breakdown {
    /// Keys, bytes and what they mean; the first is the sum of those that follow.
    pub fn parts(&self) -> [(&'static str, u64, &'static str); 8] {
        [
            ("resident", self.resident_bytes, "in memory, of the mappings of the heap and pools"),
            ("live", self.live_bytes, "held by the program"),
            ("thread_caches", self.cached_bytes, "free, in the caches of threads"),
            ("free_in_slabs", self.slab_free_bytes, "free, between live blocks of their size"),
            ("free_pages", self.pages_free_bytes, "free, and going back when they stay unused"),
            ("metadata", self.metadata_bytes, "the heap's own records"),
            ("pools", self.pools_bytes, "held by pools"),
            (
                "unexplained",
                self.unexplained_bytes,
                "touched ends of blocks, or changed since the page was written",
            ),
        ]
    }
}

/// Take `lack` away from the parts, from the first on as far as each goes.
fn take_away(lack: u64, parts: &mut [&mut u64]) {
    let mut lack = lack;
    for part in parts {
        let taken = lack.min(**part);
        **part -= taken;
        lack -= taken;
    }
}

/// More than any address space. Each part is cut to it, so that a page that is nonsense cannot make their sum overflow.
const MOST: u64 = 1 << 56;

fn add(one: u64, other: u64) -> u64 {
    one.saturating_add(other).min(MOST)
}

/// What the pages of a process say of its memory. `resident`: the resident bytes of Quarry's mappings, as the kernel has them; with
/// `None` they are estimated by the sum of the parts.
pub fn heap_breakdown(pages: &[Page], resident: Option<u64>) -> Breakdown {
    let mut b = Breakdown::default();
    for page in pages {
        if let Some(sums) = page.heap.as_ref().and_then(|heap| heap.sums) {
            add_heap(&mut b, &sums);
        }
        if let Some(pools) = &page.pools {
            let held =
                pools.pools.iter().fold(pools.others_held_bytes, |sum, pool| add(sum, pool.held_bytes));
            b.pools_bytes = add(b.pools_bytes, held);
        }
    }
    let known = [
        b.live_bytes,
        b.cached_bytes,
        b.slab_free_bytes,
        b.pages_free_bytes,
        b.metadata_bytes,
        b.pools_bytes,
    ];
    let known = known.into_iter().sum();
    b.resident_bytes = resident.unwrap_or(known);
    b.unexplained_bytes = b.resident_bytes.saturating_sub(known);
    // A free block of which a part was given back counts as given back; its other part is on a page that has live blocks.
    let halves = b.unexplained_bytes.min(purged_bytes(pages));
    b.unexplained_bytes -= halves;
    b.slab_free_bytes += halves;
    // Less is resident than is known. What is not touched is most likely in large objects of the program; else free memory went
    // back since the page was written. Small blocks are touched.
    let lack = known.saturating_sub(b.resident_bytes);
    let before = add(b.live_bytes, b.pools_bytes);
    let mut large = large_bytes(pages).min(b.live_bytes);
    let mut small = b.live_bytes - large;
    take_away(
        lack,
        &mut [
            &mut large,
            &mut b.pools_bytes,
            &mut b.pages_free_bytes,
            &mut b.slab_free_bytes,
            &mut small,
            &mut b.cached_bytes,
            &mut b.metadata_bytes,
        ],
    );
    b.live_bytes = large + small;
    b.untouched_bytes = before - add(b.live_bytes, b.pools_bytes);
    b
}

fn sum_over(pages: &[Page], value: impl Fn(&Sums) -> u64) -> u64 {
    let sums = pages.iter().filter_map(|page| page.heap.as_ref()?.sums.as_ref());
    sums.fold(0, |sum, sums| add(sum, value(sums)))
}

/// Large live objects.
fn large_bytes(pages: &[Page]) -> u64 {
    sum_over(pages, |sums| add(sums.run_live_bytes, sums.huge_live_bytes))
}

/// Free blocks that touch a page that was given back, whole.
fn purged_bytes(pages: &[Page]) -> u64 {
    sum_over(pages, |sums| sums.slab_purged_bytes)
}

fn add_heap(b: &mut Breakdown, sums: &Sums) {
    let free = sums.slab_free_bytes.saturating_sub(sums.slab_purged_bytes);
    // A count of caches that is older than the rest may be larger than what is out.
    let cached = sums.cached_bytes.min(sums.slab_out_bytes());
    b.live_bytes = add(b.live_bytes, sums.live_bytes());
    b.cached_bytes = add(b.cached_bytes, cached);
    b.slab_free_bytes = add(b.slab_free_bytes, add(free, sums.slab_mailed_bytes));
    b.pages_free_bytes = add(b.pages_free_bytes, add(sums.pages_dirty_bytes, sums.huge_cached_bytes));
    b.metadata_bytes = add(b.metadata_bytes, sums.metadata_bytes);
    let returned =
        [sums.slab_purged_bytes, sums.slab_fresh_bytes, sums.run_slack_bytes, sums.pages_clean_bytes];
    b.returned_bytes = returned.into_iter().fold(b.returned_bytes, add);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::Heap;

    fn page(sums: Sums) -> Page {
        let heap = Heap { sums: Some(sums), ..Heap::default() };
        Page {
            pid: 1,
            version: String::new(),
            born_ns: 0,
            sampler_at: 0,
            sampler_bytes: 0,
            heap: Some(heap),
            pools: None,
        }
    }

    fn example() -> Page {
        page(Sums {
            slabs_bytes: 1000,
            slab_free_bytes: 300,
            slab_purged_bytes: 100,
            slab_mailed_bytes: 20,
            slab_fresh_bytes: 80,
            cached_bytes: 50,
            run_live_bytes: 400,
            pages_dirty_bytes: 70,
            huge_cached_bytes: 30,
            pages_clean_bytes: 500,
            metadata_bytes: 60,
            ..Sums::default()
        })
    }

    fn sum(b: &Breakdown) -> u64 {
        b.parts()[1..].iter().map(|part| part.1).sum()
    }

    #[test]
    fn parts_are_what_they_are() {
        let b = heap_breakdown(&[example()], None);
        assert_eq!(b.live_bytes, 1000 - 300 - 20 - 80 - 50 + 400);
        assert_eq!(
            (b.cached_bytes, b.slab_free_bytes, b.pages_free_bytes, b.metadata_bytes),
            (50, 220, 100, 60)
        );
        assert_eq!(b.returned_bytes, 100 + 80 + 500);
        assert_eq!((b.unexplained_bytes, b.untouched_bytes), (0, 0));
        assert_eq!(sum(&b), b.resident_bytes);
    }

    #[test]
    fn the_sum_is_the_kernels() {
        let known = heap_breakdown(&[example()], None).resident_bytes;
        for resident in 0..known + 500 {
            let b = heap_breakdown(&[example()], Some(resident));
            assert_eq!((b.resident_bytes, sum(&b)), (resident, resident));
        }
        let b = heap_breakdown(&[example()], Some(known - 100));
        assert_eq!((b.untouched_bytes, b.unexplained_bytes), (100, 0));
        // Up to what was given back it may be parts of blocks that were not.
        let b = heap_breakdown(&[example(), example()], Some(2 * known + 205));
        assert_eq!((b.untouched_bytes, b.unexplained_bytes, b.slab_free_bytes), (0, 5, 2 * 220 + 200));
    }

    #[test]
    fn large_objects_may_be_untouched_and_small_ones_are_not() {
        let whole = heap_breakdown(&[example()], None);
        // All large objects, all free pages, and a part of the free blocks.
        let b = heap_breakdown(&[example()], Some(whole.resident_bytes - 400 - 100 - 20));
        assert_eq!(b.live_bytes, whole.live_bytes - 400);
        assert_eq!((b.pages_free_bytes, b.slab_free_bytes, b.untouched_bytes), (0, 200, 400));
    }

    #[test]
    fn numbers_that_contradict_each_other_are_no_end() {
        let most = page(Sums {
            slab_free_bytes: u64::MAX,
            cached_bytes: u64::MAX,
            metadata_bytes: u64::MAX,
            ..Sums::default()
        });
        let b = heap_breakdown(&[most.clone(), most], Some(10));
        assert_eq!(sum(&b), 10);
    }
}
