// SPDX-License-Identifier: MIT
//! Pages that are right, damaged, and written while they are read.

use std::cell::Cell;

use super::*;

const HEAP_AT: usize = 88;
const CLASSES: usize = 4;
const RANGES: usize = 5;
const RANGES_AT: usize = HEAP_AT + HEAP_FIXED + 2 * SUMS_BYTES + 2 * CLASSES * CLASS_BYTES;
const POOLS_AT: usize = RANGES_AT + RANGES_FIXED + 2 * RANGES * RANGE_BYTES;
const POOLS: usize = 3;
const BYTES: usize = POOLS_AT + POOLS_FIXED + POOLS * POOL_BYTES;

fn half(words: &mut [u64], at: usize, value: u32) {
    let mut bytes = words[at / 8].to_ne_bytes();
    bytes[at % 8..at % 8 + 4].copy_from_slice(&value.to_ne_bytes());
    words[at / 8] = u64::from_ne_bytes(bytes);
}

/// A page with two classes and a pool.
fn example() -> Vec<u64> {
    let mut w = vec![0; BYTES / 8];
    w[0] = MAGIC;
    for (at, value) in [
        (8, VERSION),
        (12, BYTES as u32),
        (16, 4711),
        (20, PART_HEAP | PART_POOLS),
        (52, HEAP_AT as u32),
        (56, SUMS_BYTES as u32),
        (60, CLASSES as u32),
        (64, CLASS_BYTES as u32),
        (68, POOLS_AT as u32),
        (72, POOLS as u32),
        (76, POOL_BYTES as u32),
        (80, RANGES as u32),
        (84, RANGE_BYTES as u32),
    ] {
        half(&mut w, at, value);
    }
    w[32 / 8] = u64::from_ne_bytes(*b"0.1.0\0\0\0");
    w[HEAP_AT / 8] = 3; // so the second copy
    let sums = (HEAP_AT + 16 + SUMS_BYTES) / 8;
    for i in 0..SUMS_BYTES / 8 {
        w[sums + i] = 1000 + i as u64;
    }
    let list = (HEAP_AT + 16 + 2 * SUMS_BYTES) / 8;
    w[list] = 2; // the first copy
    w[list + 1] = 2;
    w[list + 3] = 77;
    for (row, block) in [(0, 64), (1, 32)] {
        let at = list * 8 + 40 + 2 * row * CLASS_BYTES;
        half(&mut w, at + 4, block);
        for i in 0..6 {
            w[at / 8 + 1 + i] = (10 * row + i) as u64;
        }
    }
    w[RANGES_AT / 8] = 2;
    w[RANGES_AT / 8 + 2] = 99;
    let range = RANGES_AT / 8 + 4;
    w[range..range + 3].copy_from_slice(&[0x1000, 0x2000, 3]);
    w[range + 6..range + 9].copy_from_slice(&[0x7000, 0x1000, 1]);
    let pool = (POOLS_AT + POOLS_FIXED + POOL_BYTES) / 8;
    w[pool] = 4 | 2;
    w[pool + 2] = u64::from_ne_bytes(*b"stack\0\0\0");
    w[pool + 3] = u64::from_ne_bytes(*b"a\x01name\0\0");
    w[pool + 7] = 65536;
    w[pool + 10] = UNKNOWN;
    w
}

#[test]
fn values_are_where_they_belong() {
    let page = Page::read(example().as_slice()).unwrap();
    assert_eq!((page.pid, page.version.as_str(), page.library()), (4711, "0.1.0", "libquarry"));
    let heap = page.heap.unwrap();
    let fields = heap.sums.unwrap().fields();
    assert_eq!(fields.len(), 31);
    for (i, (name, value)) in fields.into_iter().enumerate() {
        assert_eq!(value, 1000 + i as u64, "{name}");
    }
    assert_eq!(heap.classes_at_ns, 77);
    let sizes: Vec<u32> = heap.classes.iter().map(|class| class.block_bytes).collect();
    assert_eq!(sizes, [32, 64]);
    let ranges: Vec<(u64, u64, Use)> =
        heap.ranges.iter().map(|range| (range.base, range.bytes, range.used)).collect();
    assert_eq!(ranges, [(0x1000, 0x2000, Use::Metadata), (0x7000, 0x1000, Use::Blocks)]);
    assert_eq!(heap.ranges_missing_bytes, 99);
    assert_eq!((heap.classes[0].slabs, heap.classes[0].fresh_bytes), (10, 15));
    let pools = page.pools.unwrap();
    assert_eq!((pools.pools.len(), pools.busy), (1, 0));
    let pool = &pools.pools[0];
    assert_eq!((pool.kind.as_str(), pool.name.as_str()), ("stack", "a?name"));
    assert_eq!((pool.held_bytes, pool.used_bytes, pool.calls), (65536, None, Some([0; 3])));
}

#[test]
fn later_versions_count_caches_by_class() {
    let old = Page::read(example().as_slice()).unwrap().heap.unwrap();
    assert_eq!((old.classes[0].cached_blocks, old.classes[0].live_blocks()), (None, None));
    // Rows of 64 bytes instead: one is read for both.
    let mut w = example();
    half(&mut w, 64, 64);
    half(&mut w, 60, 1);
    half(&mut w, 80, 0);
    let list = (HEAP_AT + 16 + 2 * SUMS_BYTES) / 8;
    (w[list + 5 + 3], w[list + 5 + 7]) = (10, 4);
    let class = Page::read(w.as_slice()).unwrap().heap.unwrap().classes[0];
    assert_eq!((class.out_blocks, class.cached_blocks, class.live_blocks()), (10, Some(4), Some(6)));
    w[list + 5 + 7] = 40;
    assert_eq!(Page::read(w.as_slice()).unwrap().heap.unwrap().classes[0].live_blocks(), Some(0));
}

#[test]
fn what_is_no_page_is_told() {
    let mut w = example();
    assert_eq!(Page::read(&w[..10]), Err(PageError::NotOne));
    half(&mut w, 8, 3);
    assert_eq!(Page::read(w.as_slice()), Err(PageError::Version(3)));
    let w = example();
    assert!(matches!(Page::read(&w[..w.len() - 1]), Err(PageError::Damaged(_))));
    for at in [52, 56, 60, 64, 68, 72, 76, 80, 84] {
        for value in [u32::MAX, u32::MAX - 7, 1 << 20] {
            let mut w = example();
            half(&mut w, at, value);
            assert!(matches!(Page::read(w.as_slice()), Err(PageError::Damaged(_))), "{value} at {at}");
        }
    }
}

/// xorshift64*.
fn random(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_F491_4F6C_DD1D)
}

/// The seed of random tests: that of the environment, or the time; a failure names it.
fn seed() -> u64 {
    let now = || {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |d| d.as_nanos() as u64)
    };
    let seed = std::env::var("QUARRY_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(now);
    println!("seed {seed}");
    seed | 1
}

#[test]
fn damaged_pages_are_read_to_their_end() {
    let mut state = seed();
    for _ in 0..20_000 {
        let mut w = example();
        for _ in 0..1 + random(&mut state) % 6 {
            // Most damage goes where the shape is described.
            let near = if random(&mut state).is_multiple_of(4) { w.len() } else { HEAD_BYTES / 8 };
            let at = random(&mut state) as usize % near;
            w[at] = match random(&mut state) % 5 {
                0 => 0,
                1 => u64::MAX,
                2 => w[at] ^ 1 << (random(&mut state) % 64),
                3 => w[at].wrapping_add(8),
                _ => random(&mut state),
            };
        }
        w.truncate(w.len() - random(&mut state) as usize % 3 * 8);
        if let Ok(page) = Page::read(w.as_slice()) {
            crate::breakdown::heap_breakdown(std::slice::from_ref(&page), Some(random(&mut state)));
            let found = crate::Found { pid: 1, program: String::new(), pages: vec![page], read_ns: 0 };
            crate::openmetrics::render(&[found], crate::openmetrics::Format::OpenMetrics);
        }
    }
}

/// A page whose owner makes a step of its work with each word that is read.
struct Written {
    words: Vec<Cell<u64>>,
    step: Cell<u64>,
    every: u64,
}

impl Written {
    /// Writes sums in the order of the heap: all words of the copy that is not the newest, then the turn.
    fn work(&self) {
        let step = self.step.get();
        self.step.set(step + 1);
        if !step.is_multiple_of(self.every) {
            return;
        }
        let words = SUMS_BYTES / 8;
        let turn = &self.words[HEAP_AT / 8];
        let at = (step / self.every) as usize % (words + 1);
        if at == words {
            turn.set(turn.get() + 1);
        } else {
            let next = turn.get() + 1;
            self.words[(HEAP_AT + 16 + (next & 1) as usize * SUMS_BYTES) / 8 + at].set(next);
        }
    }
}

impl Memory for Written {
    fn words(&self) -> usize {
        self.words.len()
    }

    fn load(&self, index: usize) -> u64 {
        self.work();
        self.words[index].get()
    }
}

#[test]
fn sums_are_never_a_mixture() {
    let mut seen = 0;
    for every in 1..60 {
        for start in 0..80 {
            let words = example();
            let written =
                Written { words: words.into_iter().map(Cell::new).collect(), step: Cell::new(0), every };
            // The reader comes at any moment of the writer's work.
            (0..start * every).for_each(|_| written.work());
            let page = Page::read(&written).unwrap();
            let Some(sums) = page.heap.unwrap().sums else { continue };
            let fields = sums.fields();
            let first = fields[0].1;
            // What was there at first counts up; what the owner writes is all the same.
            let whole = fields
                .iter()
                .enumerate()
                .all(|(i, &(_, v))| v == if first == 1000 { 1000 + i as u64 } else { first });
            assert!(whole, "step {start}, every {every}: {fields:?}");
            seen += 1;
        }
    }
    assert!(seen > 1000, "{seen} could be read");
}

#[test]
fn a_page_that_always_changes_is_busy_and_no_hang() {
    let mut w = example();
    let pool = (POOLS_AT + POOLS_FIXED + POOL_BYTES) / 8;
    w[pool] |= 1;
    let pools = Page::read(w.as_slice()).unwrap().pools.unwrap();
    assert_eq!((pools.pools.len(), pools.busy), (0, 1));
    // One that nobody has taken yet is none.
    w[pool] &= !2;
    assert_eq!(Page::read(w.as_slice()).unwrap().pools.unwrap().busy, 0);
    w[HEAP_AT / 8] = 0;
    assert_eq!(Page::read(w.as_slice()).unwrap().heap.unwrap().sums, None);
}

/// A page of which one word changes with each look at it, or none.
struct Counted {
    words: Vec<u64>,
    restless: Option<usize>,
    loads: Cell<usize>,
    renewals: Cell<usize>,
}

impl Counted {
    fn new(words: Vec<u64>, restless: Option<usize>) -> Self {
        Self { words, restless, loads: Cell::new(0), renewals: Cell::new(0) }
    }
}

impl Memory for Counted {
    fn words(&self) -> usize {
        self.words.len()
    }

    fn load(&self, index: usize) -> u64 {
        self.loads.set(self.loads.get() + 1);
        // Bit 0 says which copy is the newest, and stays.
        let change = if self.restless == Some(index) { 2 * self.loads.get() as u64 } else { 0 };
        self.words[index].wrapping_add(change)
    }

    fn renew(&self) {
        self.renewals.set(self.renewals.get() + 1);
    }
}

#[test]
fn entries_that_never_rest_share_their_tries() {
    const MANY: usize = 200;
    let mut words = example();
    words.resize((POOLS_AT + POOLS_FIXED + MANY * POOL_BYTES) / 8, 0);
    let bytes = words.len() as u32 * 8;
    half(&mut words, 12, bytes);
    half(&mut words, 72, MANY as u32);
    for pool in 0..MANY {
        words[(POOLS_AT + POOLS_FIXED + pool * POOL_BYTES) / 8] = 3;
    }
    let memory = Counted::new(words, None);
    let page = Page::read(&memory).unwrap();
    assert_eq!(page.pools.unwrap().busy, MANY);
    assert!(memory.renewals.get() < 20_000, "{}", memory.renewals.get());
}

/// The longest lists that a page may have, in a head that says so: each reading of them loads 130,000 words.
#[test]
fn a_long_page_that_never_rests_costs_as_much_as_a_short_one() {
    for (classes, ranges) in [(CLASSES_MOST, 10), (1, 40_000), (CLASSES_MOST, 20_000)] {
        let list = HEAP_AT + 16 + 2 * SUMS_BYTES;
        let ranges_at = list + 40 + 2 * classes * CLASS_BYTES;
        let mut words = example();
        words.resize((ranges_at + RANGES_FIXED + 2 * ranges * RANGE_BYTES) / 8 + 64, 0);
        let end = words.len() as u32 * 8;
        for (at, value) in
            [(12, end), (60, classes as u32), (68, POOLS_AT as u32), (72, 0), (80, ranges as u32)]
        {
            half(&mut words, at, value);
        }
        words[list / 8] = 2;
        for at in [list + 8, list + 16, ranges_at, ranges_at + 8] {
            words[at / 8] = u64::MAX;
        }
        let still = Counted::new(words.clone(), None);
        assert_eq!(Page::read(&still).unwrap().heap.unwrap().ranges.len(), ranges);
        let memory = Counted::new(words, Some(list / 8));
        let heap = Page::read(&memory).unwrap().heap.unwrap();
        assert!(heap.ranges.is_empty() && heap.sums.is_some());
        // Without a limit, the thousand tries of the lists load 57 million words and more.
        assert!(memory.loads.get() < 5 << 20, "{} loads", memory.loads.get());
    }
}
