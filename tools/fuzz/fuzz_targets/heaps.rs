// SPDX-License-Identifier: MIT
//! A process whose memory says anything, with heaps in it that are glibc's, tcmalloc's or nobody's: reading them neither panics
//! nor takes long, and the parts of a heap add up.
//!
//! An input is a head of four bytes and then words of memory, each with its place, since heaps are mostly empty.

#![no_main]

use std::cell::Cell;
use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use quarry_explain::chain::{Cause, Part};
use quarry_explain::heaps;
use quarry_explain::look::Area;
use quarry_explain::peek::Target;
use quarry_proc::classify::{Files, classify};
use quarry_proc::counters::Field;
use quarry_proc::{Space, smaps};

const PAGE: u64 = 4096;
/// [heap], an arena, and variables of a library: where they begin.
const PLACES: [u64; 3] = [0x5555_0000_0000, 0x7f00_0000_0000, 0x7f10_0000_0000];
/// Bytes of a word with its place: a byte of flags, two of the place, eight of the word.
const RECORD: usize = 11;

/// The memory of the process.
struct Memory {
    words: BTreeMap<u64, u64>,
    /// First addresses and numbers of pages.
    regions: [(u64, u64); 3],
    /// Of eight pages each, those that are resident.
    resident: u8,
    /// Words that were read. They may change when that many were.
    reads: Cell<u64>,
    changes: bool,
}

impl Memory {
    fn is_resident(&self, at: u64) -> bool {
        let holds = |&(start, pages): &(u64, u64)| (start..start + pages * PAGE).contains(&at);
        self.regions.iter().any(holds) && self.resident >> (at / PAGE % 8) & 1 == 1
    }
}

impl Target for Memory {
    fn resident(&self, from: u64, to: u64) -> Option<Vec<u64>> {
        let pages = (to - from) / PAGE;
        let mut words = vec![0; usize::try_from(pages.div_ceil(64)).ok()?];
        for &(start, count) in &self.regions {
            let (first, last) = (start.max(from), (start + count * PAGE).min(to));
            for at in (first..last).step_by(PAGE as usize).filter(|&at| self.is_resident(at)) {
                let page = (at - from) / PAGE;
                words[(page / 64) as usize] |= 1 << (page % 64);
            }
        }
        Some(words)
    }

    fn read(&self, at: u64, into: &mut [u8]) -> bool {
        into.fill(0);
        let end = at + into.len() as u64;
        for (&place, &word) in self.words.range(at..end) {
            let from = (place - at) as usize;
            let bytes = word.to_ne_bytes();
            let length = bytes.len().min(into.len() - from);
            into[from..from + length].copy_from_slice(&bytes[..length]);
        }
        let reads = self.reads.get() + 1;
        self.reads.set(reads);
        if self.changes && reads % 3 == 0 && !into.is_empty() {
            let place = reads as usize * 31 % into.len();
            into[place] ^= reads as u8;
        }
        true
    }

    fn page(&self) -> u64 {
        PAGE
    }
}

/// Each whole is the sum of its parts.
fn assert_adds_up(part: &Part) {
    if part.parts.is_empty() {
        return;
    }
    let sum: u64 = part.parts.iter().map(|part| part.bytes).sum();
    assert_eq!(sum, part.bytes, "{}", part.key);
    part.parts.iter().for_each(assert_adds_up);
}

fuzz_target!(|data: &[u8]| {
    let Some((&[how, heap, arena, resident], data)) = data.split_first_chunk() else { return };
    let regions = [
        (PLACES[0], u64::from(heap % 64) + 1),
        // An arena's addresses are 64 MiB, of which little is there.
        (PLACES[1], u64::from(arena % 64) + 1),
        (PLACES[2], 2),
    ];
    let mut words = BTreeMap::new();
    for record in data.chunks_exact(RECORD) {
        let region = PLACES[usize::from(record[0] & 3) % 3];
        let place = u64::from(u16::from_le_bytes([record[1], record[2]])) * 8;
        let mut word = u64::from_le_bytes(record[3..].try_into().unwrap());
        // Pointers into what is there.
        if let base @ 1..=3 = record[0] >> 2 & 3 {
            word = word.wrapping_add(PLACES[usize::from(base) - 1]);
        }
        words.insert(region + place, word);
    }
    let mut text = String::new();
    let names = ["[heap]", "", if how & 1 == 0 { "/lib/libc.so.6" } else { "/lib/libtcmalloc.so.4" }];
    for (&(start, pages), name) in regions.iter().zip(names) {
        let (end, inode) = (start + pages * PAGE, usize::from(name.starts_with('/')));
        let resident = (0..pages).filter(|page| resident >> ((start / PAGE + page) % 8) & 1 == 1).count() * 4;
        text += &format!("{start:x}-{end:x} rw-p 00000000 00:00 {inode} {name}\nSize: {} kB\n", pages * 4);
        text += &format!("Rss: {resident} kB\nAnonymous: {resident} kB\nPrivate_Dirty: {resident} kB\n");
    }
    let Ok((mappings, damage)) = smaps::read_all(text.as_bytes()) else { panic!("{text}") };
    let space = Space::of_mappings(mappings, damage);
    let classes = classify(&space, &mut Files::default());
    let mut areas: Vec<Area> = space
        .mappings
        .iter()
        .zip(&classes)
        .map(|(mapping, class)| {
            let left = mapping.counters.value(Field::Anonymous);
            Area { mapping, class, left, lazy: 0 }
        })
        .collect();
    let all: u64 = areas.iter().map(|area| area.left).sum();
    let memory = Memory { words, regions, resident, reads: Cell::new(0), changes: how & 2 != 0 };
    let found = heaps::find(&mut areas, None, &memory, true);
    let left: u64 = areas.iter().map(|area| area.left).sum();
    let explained: u64 = found.iter().map(|heap| heap.part.bytes).sum();
    assert_eq!(explained + left, all, "what is explained is not what was taken");
    for heap in &found {
        assert_adds_up(&heap.part);
        let by_cause: u64 = Cause::ALL.iter().map(|cause| heap.part.of(*cause)).sum();
        assert_eq!(by_cause, heap.part.bytes);
    }
});
