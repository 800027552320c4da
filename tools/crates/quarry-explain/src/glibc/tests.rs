// SPDX-License-Identifier: MIT
//! Heaps that are made up, as they should be and damaged.

use std::cell::Cell;

use super::walk::FIRST_WITHIN;
use super::*;
use crate::peek::Target;
use crate::peek::fake::Fake;

const START: u64 = 0x5555_0000_0000;
const PAGES: usize = 8;
const END: u64 = START + PAGES as u64 * 4096;

/// A heap under construction: where the next block comes.
struct Maker {
    fake: Fake,
    at: u64,
}

impl Maker {
    fn block(&mut self, size: u64, previous_in_use: bool) -> u64 {
        let at = self.at;
        self.fake.put(at + 8, size | u64::from(previous_in_use));
        self.at += size;
        at
    }
}

/// A cache of a thread with two blocks, a live one, a free one, a live one, and the free end. Pointers are hidden as since 2.32.
fn main_arena() -> Fake {
    let mut maker = Maker { fake: Fake::new(START, PAGES), at: START };
    let table = maker.block(0x290, true) + 16;
    let one = maker.block(0x30, true) + 16;
    let two = maker.block(0x30, true) + 16;
    maker.block(0x500, true);
    maker.block(0x2000, true);
    maker.block(0x40, false);
    let room = END - maker.at;
    maker.block(room, true);
    let mut fake = maker.fake;
    // The second list: 0x30.
    fake.put(table, 2 << 16);
    fake.put(table + 128 + 8, two);
    fake.put(two, one ^ two >> 12);
    fake.put(one, one >> 12);
    fake
}

fn heap() -> Candidate {
    Candidate { start: START, end: END, is_heap: true }
}

fn read_main(fake: &Fake) -> Option<Glibc> {
    read(&mut Reader::new(fake), &[heap()], &[])
}

#[test]
fn blocks_are_what_they_are() {
    let found = read_main(&main_arena()).unwrap();
    assert_eq!((found.arenas, found.caches, found.cached_blocks), (1, 1, 2));
    assert_eq!(found.cached, 2 * 0x30);
    // The table itself, and two others.
    assert_eq!((found.live_blocks, found.live), (3, 0x290 + 0x500 + 0x40 - 3 * 8));
    assert_eq!((found.free, found.free_pages), (0x2000, 0x1000));
    assert_eq!((found.top, found.main_top), (0x57d0, 0x5000));
    assert_eq!(found.metadata, 3 * 8);
    assert_eq!(found.resident(), END - START);
    assert_eq!(found.spans, [(START, END)]);
}

#[test]
fn only_resident_pages_count() {
    let mut fake = main_arena();
    fake.resident[1] = false;
    fake.resident[5..].fill(false);
    let found = read_main(&fake).unwrap();
    assert_eq!((found.free, found.free_pages), (0x1000, 0));
    assert_eq!(found.resident(), 4 * 4096);
}

#[test]
fn older_lists_are_not_hidden() {
    let mut fake = main_arena();
    let (one, two) = (START + 0x2a0, START + 0x2d0);
    fake.put(two, one);
    fake.put(one, 0);
    assert_eq!(read_main(&fake).unwrap().cached, 2 * 0x30);
}

/// Newer caches do not say how many blocks a list has, and these lead in a circle; that there are two makes no difference.
#[test]
fn a_list_that_leads_back_into_itself_is_counted_once() {
    let mut maker = Maker { fake: Fake::new(START, PAGES), at: START };
    let tables = [maker.block(0x300, true) + 16, maker.block(0x300, true) + 16];
    let one = maker.block(0x30, true) + 16;
    let two = maker.block(0x30, true) + 16;
    maker.block(0x500, true);
    let room = END - maker.at;
    maker.block(room, true);
    let mut fake = maker.fake;
    for table in tables {
        // The second list: 0x30.
        fake.put(table + 152 + 8, two);
    }
    fake.put(two, one);
    fake.put(one, two);
    let found = read_main(&fake).unwrap();
    assert_eq!((found.caches, found.cached_blocks, found.cached), (1, 2, 2 * 0x30));
    assert_eq!(found.live_blocks, 3);
    assert_eq!(found.resident(), END - START);
}

#[test]
fn another_arena_and_a_large_block() {
    let start = 0x7f00_0000_0000_u64;
    let mut fake = Fake::new(start, 64);
    let (record, size) = (start + 0x30, 32 * 4096);
    for (offset, word) in [(0, record), (16, size), (24, size)] {
        fake.put(start + offset, word);
    }
    let first = record + 0x8a0;
    fake.put(first + 8, 0x100 | 5);
    fake.put(first + 0x100 + 8, 0x80 | 5);
    let top = first + 0x180;
    fake.put(top + 8, (start + size - top) | 1);
    // A fast list of blocks of 0x80 has the second one; empty lists behind the free end lead to themselves.
    let end = record + 0x60;
    fake.put(end - 8 * 4, first + 0x100);
    fake.put(first + 0x110, (first + 0x110) >> 12);
    fake.put(end, top);
    for bin in 0..127 {
        fake.put(end + 16 * bin + 16, end + 16 * bin);
        fake.put(end + 16 * bin + 24, end + 16 * bin);
    }
    let large = start + 48 * 4096;
    fake.put(large + 8, 0x4000 | MAPPED);
    let candidates = [
        Candidate { start, end: start + size, is_heap: false },
        Candidate { start: large, end: start + 64 * 4096, is_heap: false },
    ];
    let found = read(&mut Reader::new(&fake), &candidates, &[]).unwrap();
    assert_eq!((found.arenas, found.live_blocks, found.free), (1, 1, 0x80));
    assert!(found.top > 0 && found.main_top == 0, "{found:?}");
    assert_eq!((found.mapped_blocks, found.mapped), (1, 0x4000 - 16));
    assert_eq!(found.resident(), size + 0x4000);
}

#[test]
fn what_leads_nowhere_is_not_believed() {
    let mut fake = main_arena();
    // The last block before the free end: where one begins to follow makes no difference.
    fake.put(START + 0x27f0 + 8, 0x48);
    // By its first block it is a heap, though.
    let found = read_main(&fake).unwrap();
    assert_eq!((found.unread, found.resident(), found.live_blocks), (END - START, END - START, 0));
    fake.put(START + 8, 0);
    assert_eq!(read_main(&fake), None);
    assert_eq!(read_main(&Fake::new(START, PAGES)), None);
}

/// Memory that counts how often it is read.
struct Counted {
    fake: Fake,
    reads: Cell<usize>,
}

impl Target for Counted {
    fn resident(&self, from: u64, to: u64) -> Option<Vec<u64>> {
        self.fake.resident(from, to)
    }

    fn read(&self, at: u64, into: &mut [u8]) -> bool {
        self.reads.set(self.reads.get() + 1);
        self.fake.read(at, into)
    }

    fn page(&self) -> u64 {
        self.fake.page()
    }
}

/// Each of a thousand first blocks leads to the same free ones, and these lead nowhere.
#[test]
fn what_leads_far_is_followed_once() {
    const PAGES: usize = 6 << 10;
    let mut fake = Fake::new(START, PAGES);
    let (free, end) = (START + FIRST_WITHIN, START + PAGES as u64 * 4096);
    for at in (START..free).step_by(16) {
        fake.put(at + 8, (free - at) | PREVIOUS_IN_USE);
    }
    for at in (free..end).step_by(32) {
        fake.put(at + 8, 0x20);
    }
    fake.put(end - 32 + 8, 0x48);
    let counted = Counted { fake, reads: Cell::new(0) };
    let heap = Candidate { start: START, end, is_heap: true };
    assert_eq!(read(&mut Reader::new(&counted), &[heap], &[]), None);
    assert!(counted.reads.get() < PAGES, "read {} times", counted.reads.get());
}

#[test]
fn a_heap_that_grew_or_shrank_since_its_mapping_was_read() {
    let fake = main_arena();
    let at_end = read_main(&fake).unwrap();
    for pages in [PAGES as u64 - 2, PAGES as u64 + 2] {
        let seen = Candidate { start: START, end: START + pages * 4096, is_heap: true };
        assert_eq!(read(&mut Reader::new(&fake), &[seen], &[]).as_ref(), Some(&at_end), "{pages}");
    }
}

#[test]
fn a_heap_that_grew_into_pages_touched_since_they_were_asked_for() {
    let mut maker = Maker { fake: Fake::new(START, PAGES), at: START };
    for _ in 0..20 {
        maker.block(0x410, true);
    }
    // The last blocks are in pages that were not resident then.
    let mut fake = maker.fake;
    fake.resident[4..].fill(false);
    let found = read_main(&fake).unwrap();
    assert_eq!((found.live_blocks, found.top, found.unread), (16, 0, 0));
    // But for a word that belongs to no block.
    assert_eq!(found.resident(), 4 * 4096 - 8);
}

#[test]
fn damage_is_no_panic() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..300 {
        let mut fake = main_arena();
        for _ in 0..4 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = (state >> 33) as usize % 1400;
            fake.words[at] = match state % 4 {
                0 => u64::MAX,
                1 => state,
                2 => START + (state >> 40) % 0x8000,
                _ => (state >> 40) % 0x4000,
            };
        }
        if let Some(found) = read_main(&fake) {
            assert!(found.resident() <= END - START + 8, "{found:?}");
        }
    }
}

/// A process that has mapped more than anybody looks at, and has touched nothing of it.
struct Vast {
    asked: Cell<u64>,
}

impl Target for Vast {
    fn resident(&self, from: u64, to: u64) -> Option<Vec<u64>> {
        self.asked.set(self.asked.get() + 1);
        Some(vec![0; ((to - from) / 4096).div_ceil(64) as usize])
    }

    fn read(&self, _: u64, _: &mut [u8]) -> bool {
        false
    }

    fn page(&self) -> u64 {
        4096
    }
}

#[test]
fn mappings_without_end_are_not_looked_at() {
    let vast = Vast { asked: Cell::new(0) };
    let mapping = |start, end| Candidate { start, end, is_heap: false };
    let candidates = [
        mapping(1 << 40, (1 << 40) + LARGEST),
        mapping(1 << 46, 1 << 47),
        mapping(1 << 56, u64::MAX - 4095),
        mapping(END, START),
    ];
    assert_eq!(read(&mut Reader::new(&vast), &candidates, &[]), None);
    // A page of each 64 MiB of the first, and none of the others.
    assert_eq!(vast.asked.get(), LARGEST / HEAP_ALIGN);
}

/// A heap of many blocks of 0x410, each tenth of them free, and its free end. The head of one of them is not what it should be when it
/// is read for the first times, and pages are not there when they are asked for first.
struct Working {
    fake: Fake,
    torn: u64,
    times: Cell<usize>,
    resident: usize,
    asked: Cell<usize>,
}

const MANY: usize = 2048;
const BLOCKS: u64 = 8000;
const SIZE: u64 = 0x410;

impl Working {
    fn new(torn: u64, times: usize) -> Self {
        let mut maker = Maker { fake: Fake::new(START, MANY), at: START };
        for block in 0..BLOCKS {
            if block % 10 == 5 {
                maker.fake.put(maker.at, SIZE);
            }
            maker.block(SIZE, block % 10 != 5);
        }
        let room = START + MANY as u64 * 4096 - maker.at;
        maker.block(room, true);
        let (times, asked) = (Cell::new(times), Cell::new(0));
        Self { fake: maker.fake, torn, times, resident: MANY, asked }
    }

    fn read(&self) -> Glibc {
        let heap = Candidate { start: START, end: START + MANY as u64 * 4096, is_heap: true };
        read(&mut Reader::new(self), &[heap], &[]).unwrap()
    }
}

impl Target for Working {
    fn resident(&self, from: u64, to: u64) -> Option<Vec<u64>> {
        let mut words = self.fake.resident(from, to)?;
        let first = ((from - START) / 4096) as usize;
        let there = if self.asked.replace(self.asked.get() + 1) == 0 { self.resident } else { MANY };
        for page in there.saturating_sub(first)..words.len() * 64 {
            words[page / 64] &= !(1 << (page % 64));
        }
        Some(words)
    }

    fn read(&self, at: u64, into: &mut [u8]) -> bool {
        let good = self.fake.read(at, into);
        let head = self.torn + 8;
        if (at..at + into.len() as u64).contains(&head) && self.times.get() > 0 {
            self.times.set(self.times.get() - 1);
            into[(head - at) as usize..][..8].fill(b'x');
        }
        good
    }

    fn page(&self) -> u64 {
        4096
    }
}

#[test]
fn what_changed_while_it_was_read_is_read_again() {
    let torn = START + 5003 * SIZE;
    let still = Working::new(torn, 0).read();
    assert_eq!((still.live_blocks, still.again, still.unread), (BLOCKS - BLOCKS / 10, 0, 0));
    for times in 1..4 {
        let found = Working::new(torn, times).read();
        assert!(found.again > 0 && found.again < 32 << 20, "{found:?}");
        assert_eq!(Glibc { again: 0, ..found }, still, "{times}");
    }
}

#[test]
fn what_never_makes_sense_is_left_out_alone() {
    for block in [5003, 7990] {
        let found = Working::new(START + block * SIZE, usize::MAX).read();
        // The block before it ends nobody knows where.
        assert_eq!(found.unread, 2 * SIZE, "{found:?}");
        assert_eq!(found.live_blocks, BLOCKS - BLOCKS / 10 - 2);
        assert_eq!(found.resident(), MANY as u64 * 4096);
    }
}

/// The process stands still, and asking again changes nothing.
#[test]
fn what_is_in_swap_looks_like_what_changes() {
    let mut working = Working::new(START, 0);
    working.fake.resident[1000] = false;
    let found = working.read();
    assert!(found.again > 0 && found.unread > 0, "{found:?}");
    assert_eq!(found.resident(), (MANY as u64 - 1) * 4096);
}

#[test]
fn pages_that_were_touched_meanwhile_are_read() {
    let still = Working::new(START, 0).read();
    let working = Working { resident: MANY / 2, ..Working::new(START, 0) };
    let found = working.read();
    assert!(found.again > 0);
    assert_eq!(Glibc { again: 0, ..found }, still);
}
