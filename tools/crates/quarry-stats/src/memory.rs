// SPDX-License-Identifier: MIT
//! The memory of another process, and the places in it where a page may be.
//!
//! It is read through one open file, /proc/PID/mem. That stays with one address space: when the process executes another program or
//! its number is given away, reading ends. (process_vm_readv asks for the same right, and goes by the number each time.)

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{self, BufReader};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use quarry_proc::mapping::Mapping;
use quarry_proc::{page_size, smaps};

/// Memory that somebody else may be writing to.
pub trait Memory {
    /// How many words there are.
    fn words(&self) -> usize;
    /// One of them. Those that are loaded after `renew` are not older than that.
    fn load(&self, index: usize) -> u64;
    /// Forget what was read before.
    fn renew(&self) {}
}

impl Memory for [u64] {
    fn words(&self) -> usize {
        self.len()
    }

    fn load(&self, index: usize) -> u64 {
        self[index]
    }
}

/// Bytes at offsets: a file of /proc, or what a test makes up.
pub trait Source {
    /// All of these, or an error.
    fn read_exact_at(&self, into: &mut [u8], at: u64) -> io::Result<()>;
}

impl Source for File {
    fn read_exact_at(&self, into: &mut [u8], at: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, into, at)
    }
}

/// Where pages begin: QUARRY_STATS_PAGE_ALIGN.
const ALIGN: u64 = 4096;
/// A page is longer in no version; entries are counted in the head.
const LONGEST: usize = 1 << 20;
/// Words that are read together.
const BLOCK: usize = 512;
/// Entries of pagemap: the page is in memory, or in swap.
const THERE: u64 = 3 << 62;
/// Entries read at a time.
const ENTRIES: u64 = 64 << 10;
/// Zeroed data of all modules of which more is not looked through.
const MOST_ZEROED: u64 = 1 << 36;
/// The same where it is not known which pages are there.
const MOST_UNKNOWN: u64 = 16 << 20;
/// Segments of a file of a program.
const MOST_SEGMENTS: u64 = 64;
/// Places where a page may begin. A process has one for each copy of the library in it.
const MOST_FOUND: usize = 64;

/// A process, opened for reading.
pub struct Target<S = File> {
    memory: S,
    pagemap: Option<S>,
    /// By address, none over another.
    mappings: Vec<Mapping>,
}

impl Target {
    /// The process with this folder in /proc.
    pub fn open(folder: &Path, mappings: Vec<Mapping>) -> io::Result<Self> {
        let memory = File::open(folder.join("mem"))?;
        Ok(Self::new(memory, File::open(folder.join("pagemap")).ok(), mappings))
    }
}

impl<S: Source> Target<S> {
    /// A process with this memory, and this table of its pages if that may be read.
    pub fn new(memory: S, pagemap: Option<S>, mut mappings: Vec<Mapping>) -> Self {
        mappings.sort_by_key(|mapping| mapping.start);
        Self { memory, pagemap, mappings }
    }

    /// All of it.
    pub fn memory(&self) -> &S {
        &self.memory
    }

    /// Are these bytes mapped for this process alone, which may write to them?
    pub fn is_own_data(&self, at: u64, bytes: u64) -> bool {
        let own = |mapping: &&Mapping| mapping.perms.write && !mapping.perms.shared && mapping.contains(at);
        self.mappings.iter().find(own).is_some_and(|mapping| mapping.end - at >= bytes)
    }

    fn words<const N: usize>(&self, at: u64) -> Option<[u64; N]> {
        let mut bytes = [0; 64];
        let bytes = bytes.get_mut(..N * 8)?;
        self.memory.read_exact_at(bytes, at).ok()?;
        let mut words = [0; N];
        words.iter_mut().zip(bytes.chunks_exact(8)).for_each(|(word, bytes)| *word = word_of(bytes));
        Some(words)
    }

    /// Where `magic` stands at the beginning of a page of ours, by address.
    pub fn find(&self, magic: u64) -> Vec<u64> {
        let modules = self.mappings.iter().filter(|mapping| mapping.has_file() && mapping.offset == 0);
        let zeroed = united(modules.flat_map(|module| self.zeroed(module)).collect());
        let mut left = MOST_ZEROED / ALIGN;
        let mut found = Vec::new();
        for part in self.writable(&zeroed) {
            for there in self.there(part, &mut left) {
                let starts = there.step_by(ALIGN as usize).filter(|&at| self.words::<1>(at) == Some([magic]));
                found.extend(starts.take(MOST_FOUND - found.len()));
            }
            if left == 0 || found.len() == MOST_FOUND {
                break;
            }
        }
        found
    }

    /// The zero-initialised data of the program or library that begins with this mapping. Its own head in memory says where that
    /// is; names of sections and symbols may be stripped. The head may say anything.
    fn zeroed(&self, module: &Mapping) -> Vec<Range<u64>> {
        const ELF64: u64 = u64::from_ne_bytes([0x7F, b'E', b'L', b'F', 2, 0, 0, 0]);
        let head = self.words::<8>(module.start).filter(|head| head[0] & 0xFF_FFFF_FFFF == ELF64);
        let Some(head) = head else { return Vec::new() };
        let (table, bytes, count) = (head[4], head[6] >> 48, head[7] & 0xFFFF);
        let segment = |i: u64| self.words::<7>(module.start.checked_add(table)?.checked_add(i * bytes)?);
        let segments: Vec<[u64; 7]> = (0..count.min(MOST_SEGMENTS)).map_while(segment).collect();
        // type and flags, offset, virtual address, physical address, bytes in the file, bytes in memory, alignment
        let loaded = || segments.iter().filter(|segment| segment[0] as u32 == 1);
        let Some(first) = loaded().find(|segment| segment[1] == 0) else { return Vec::new() };
        let moved = module.start.wrapping_sub(first[2]);
        let zeroed = loaded().filter(|segment| segment[5] > segment[4]).map(|segment| {
            let start = moved.wrapping_add(segment[2]).wrapping_add(segment[4]);
            start..start.saturating_add(segment[5] - segment[4])
        });
        zeroed.collect()
    }

    /// What of these addresses is mapped privately and writable. They come by address and united, so no mapping is looked at for
    /// ranges that end before it: a process may have 65,530 mappings, and heads of modules that name all of them.
    fn writable<'a>(&'a self, wanted: &'a [Range<u64>]) -> impl Iterator<Item = Range<u64>> + 'a {
        let data = |mapping: &&Mapping| mapping.perms.read && mapping.perms.write && !mapping.perms.shared;
        self.mappings.iter().filter(data).flat_map(move |mapping| {
            let first = wanted.partition_point(|range| range.end <= mapping.start);
            let inside = wanted[first..].iter().take_while(|range| range.start < mapping.end);
            inside.map(|range| range.start.max(mapping.start)..range.end.min(mapping.end))
        })
    }

    /// Where in these addresses there are pages, in multiples of `ALIGN`. Others are not touched: the kernel would bring them in.
    /// `left`: of how many pages this may still be asked.
    fn there(&self, zeroed: Range<u64>, left: &mut u64) -> Vec<Range<u64>> {
        let Some(start) = zeroed.start.checked_next_multiple_of(ALIGN) else { return Vec::new() };
        let Some(pagemap) = &self.pagemap else {
            let most = MOST_UNKNOWN.min(*left * ALIGN);
            let end = zeroed.end.min(start.saturating_add(most));
            *left -= end.saturating_sub(start) / ALIGN;
            return std::iter::once(start..end).collect();
        };
        let page = page_size();
        let mut there: Vec<Range<u64>> = Vec::new();
        let mut at = start / page;
        let end = zeroed.end.div_ceil(page).min(at.saturating_add(*left));
        *left -= end.saturating_sub(at);
        while at < end {
            let count = (end - at).min(ENTRIES);
            let mut bytes = vec![0; count as usize * 8];
            if pagemap.read_exact_at(&mut bytes, at * 8).is_err() {
                break;
            }
            let is_there = |&(_, bytes): &(u64, &[u8])| word_of(bytes) & THERE != 0;
            let pages = (at..).zip(bytes.chunks_exact(8)).filter(is_there);
            for (i, _) in pages {
                let next = start.max(i * page)..zeroed.end.min((i + 1) * page);
                match there.last_mut() {
                    Some(last) if last.end == next.start => last.end = next.end,
                    _ => there.push(next),
                }
            }
            at += count;
        }
        there
    }
}

/// The same addresses by address, without those that are named twice.
fn united(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut united: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match united.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => united.push(range),
        }
    }
    united
}

fn word_of(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_ne_bytes)
}

/// The mappings of a process, without what the kernel counts of them.
pub fn mappings(folder: &Path) -> io::Result<Vec<Mapping>> {
    Ok(smaps::read_all(BufReader::new(File::open(folder.join("maps"))?))?.0)
}

/// A page in the memory of a process.
pub struct Live<'a, S = File> {
    target: &'a Target<S>,
    at: u64,
    words: usize,
    blocks: RefCell<Vec<Option<Box<[u64]>>>>,
    gone: Cell<bool>,
}

impl<'a, S: Source> Live<'a, S> {
    /// What begins there, as far as it is mapped as one piece.
    pub fn new(target: &'a Target<S>, at: u64) -> Self {
        let around = target.mappings.iter().find(|mapping| mapping.contains(at));
        // The zeroed data of a module may begin on the last page of its file, so this may be two mappings.
        let end = around.map_or(at, |first| {
            let next =
                target.mappings.iter().find(|mapping| mapping.start == first.end && mapping.perms.write);
            next.map_or(first.end, |next| next.end)
        });
        let words = usize::try_from((end - at) / 8).unwrap_or(LONGEST).min(LONGEST / 8);
        let blocks = RefCell::new(vec![None; words.div_ceil(BLOCK)]);
        Self { target, at, words, blocks, gone: Cell::new(false) }
    }

    /// Could not all be read? Then the process has ended, or executes another program.
    pub fn is_gone(&self) -> bool {
        self.gone.get()
    }

    fn block(&self, index: usize) -> Box<[u64]> {
        let first = index * BLOCK;
        let count = BLOCK.min(self.words - first);
        let mut bytes = vec![0; count * 8];
        if self.target.memory.read_exact_at(&mut bytes, self.at + first as u64 * 8).is_err() {
            self.gone.set(true);
        }
        bytes.chunks_exact(8).map(word_of).collect()
    }
}

impl<S: Source> Memory for Live<'_, S> {
    fn words(&self) -> usize {
        self.words
    }

    fn load(&self, index: usize) -> u64 {
        assert!(index < self.words, "a word outside of the page");
        let mut blocks = self.blocks.borrow_mut();
        let block = blocks[index / BLOCK].get_or_insert_with(|| self.block(index / BLOCK));
        block[index % BLOCK]
    }

    fn renew(&self) {
        self.blocks.borrow_mut().fill(None);
    }
}

#[cfg(test)]
#[path = "memory_tests.rs"]
mod tests;
