// SPDX-License-Identifier: MIT
//! Processes that are made up to be long to look through.

use std::cell::Cell;
use std::io;

use quarry_proc::smaps;

use super::*;

const MAGIC: u64 = 0x1234_5678_9ABC_DEF0;
const BASE: u64 = 0x10_0000_0000;

/// Each module has this head, and `MAGIC` stands at the beginning of the page behind it.
struct Everywhere {
    head: Vec<u8>,
    reads: Cell<u64>,
}

impl Source for Everywhere {
    fn read_exact_at(&self, into: &mut [u8], at: u64) -> io::Result<()> {
        self.reads.set(self.reads.get() + 1);
        let inside = (at - BASE) % 8192;
        let page = if inside < 4096 { &self.head[..] } else { &MAGIC.to_ne_bytes()[..] };
        let from = usize::try_from(inside % 4096).unwrap();
        into.copy_from_slice(page.get(from..from + into.len()).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// `modules` times a page of a file, and a page of data behind it.
fn target(modules: u64, segments: Vec<[u64; 7]>) -> Target<Everywhere> {
    let mut maps = String::new();
    for module in 0..modules {
        let start = BASE + module * 8192;
        let (middle, end) = (start + 4096, start + 8192);
        maps += &format!("{start:x}-{middle:x} r--p 0 00:00 1 /lib\n{middle:x}-{end:x} rw-p 0 00:00 0\n");
    }
    let (mappings, _) = smaps::read_all(maps.as_bytes()).unwrap();
    assert_eq!(mappings.len() as u64, 2 * modules);
    let mut head = vec![u64::from_ne_bytes([0x7F, b'E', b'L', b'F', 2, 0, 0, 0]), 0, 0, 0, 64, 0];
    head.extend([56 << 48, segments.len() as u64]);
    head.extend(segments.iter().flatten());
    let head = head.into_iter().flat_map(u64::to_ne_bytes).collect();
    Target::new(Everywhere { head, reads: Cell::new(0) }, None, mappings)
}

/// type, offset, address, -, bytes in the file, bytes in memory, alignment
fn segment(from: u64, bytes: u64) -> [u64; 7] {
    [1, 0, from, 0, 0, bytes, 0]
}

#[test]
fn a_page_of_each_module_is_found_once() {
    for segments in [
        vec![segment(0, 8192)],
        // The same twice, in parts, and backwards.
        vec![segment(0, 8192), segment(0, 8192), segment(0, 100)],
        vec![segment(0, 4096), segment(4096, 4096), segment(2000, 5000)],
    ] {
        let target = target(3, segments);
        assert_eq!(target.find(MAGIC), [1, 3, 5].map(|page| BASE + page * 4096));
    }
    assert!(target(3, vec![segment(0, 4096)]).find(MAGIC).is_empty(), "before its data");
}

/// Each of 8,000 heads names the addresses of all. What is there is looked at once, and no more pages are found than a process has.
#[test]
fn heads_that_all_name_everything() {
    let modules = 8_000;
    let all = segment(0, u64::MAX >> 8);
    let looked_through = target(modules, vec![all; 64]);
    // Nothing begins so: every page is looked at.
    assert!(looked_through.find(!MAGIC).is_empty());
    let reads = looked_through.memory.reads.get();
    let heads = modules * (1 + 64);
    assert!(reads > heads && reads <= heads + modules, "{reads} reads, {heads} of heads");
    assert_eq!(target(modules, vec![all; 64]).find(MAGIC).len(), MOST_FOUND);
}

#[test]
fn ranges_are_united() {
    assert_eq!(united(vec![5..7, 1..3, 3..4, 6..9, 2..3]), [1..4, 5..9]);
    assert!(united(Vec::new()).is_empty());
}
