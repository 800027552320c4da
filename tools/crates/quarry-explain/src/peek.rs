// SPDX-License-Identifier: MIT
//! The memory of another process: which pages are resident, and what is in them.
//!
//! Only resident pages are read: the kernel would bring in others, which would change what is looked at.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// A page is in memory, in an entry of pagemap.
const RESIDENT: u64 = 1 << 63;
/// Entries read at a time.
const ENTRIES: usize = 64 << 10;
/// Of larger mappings nobody wants to know each page.
pub(crate) const LARGEST: u64 = 1 << 38;
/// No process has addresses from here on. Below, sums of an address and a size cannot overflow.
pub(crate) const ADDRESSES: u64 = 1 << 57;
/// Pages that are asked about in one look: some seconds' work, and more than 1 TiB of addresses where pages have 4 KiB.
const MOST_PAGES: u64 = 1 << 28;
/// Words are read in blocks of this size, of which so many are kept.
const BLOCK: u64 = 16 << 10;
const BLOCKS: usize = 1024;
/// Whoever goes on from address to address has so much copied at once, so that it changes little meanwhile.
const PIECE: u64 = 1 << 20;

/// What a process's pages are: asked for by address.
pub trait Target {
    /// Which of the pages in `from..to` (multiples of the page size) are resident, 64 a word; `None`: not known.
    fn resident(&self, from: u64, to: u64) -> Option<Vec<u64>>;
    /// Copy memory.
    fn read(&self, at: u64, into: &mut [u8]) -> bool;
    /// The page size.
    fn page(&self) -> u64;
}

/// A process of this machine.
pub struct Process {
    pagemap: io::Result<File>,
    memory: io::Result<File>,
    page: u64,
    /// Pages that may still be asked about: whoever maps much and touches little shall not keep us busy.
    left: Cell<u64>,
}

impl Process {
    /// The process with this folder in /proc.
    pub fn open(folder: &Path, page: u64) -> Self {
        let open = |name| File::open(folder.join(name));
        Self { pagemap: open("pagemap"), memory: open("mem"), page, left: Cell::new(MOST_PAGES) }
    }

    /// Why its memory cannot be read, if it cannot.
    pub fn memory_refusal(&self) -> Option<String> {
        let error = self.memory.as_ref().err()?;
        Some(format!(
            "its memory cannot be read ({error}), so nothing is known of the inside of its heap; it takes the right to trace it: \
             your own user with kernel.yama.ptrace_scope 0 and a process that may be dumped, or root (CAP_SYS_PTRACE)"
        ))
    }

    /// Why it cannot be told which of its pages are resident, or not of all.
    pub fn pagemap_refusal(&self) -> Option<String> {
        match &self.pagemap {
            Err(error) => Some(format!(
                "which of its pages are resident cannot be read ({error}); it takes a process of your own user that may be dumped, \
                 or root (CAP_SYS_PTRACE)"
            )),
            Ok(_) if self.left.get() == 0 => Some(String::from(
                "it has more addresses than are looked at page by page, so the inside of its heap is known in part only",
            )),
            Ok(_) => None,
        }
    }
}

impl Target for Process {
    fn resident(&self, from: u64, to: u64) -> Option<Vec<u64>> {
        let file = self.pagemap.as_ref().ok()?;
        let (mut entry, end) = (from / self.page, to / self.page);
        let Some(left) = self.left.get().checked_sub(end.checked_sub(entry)?) else {
            // What is smaller is not asked about either: it is said that not all is known.
            self.left.set(0);
            return None;
        };
        self.left.set(left);
        let mut words = Vec::with_capacity(usize::try_from((end - entry).div_ceil(64)).ok()?);
        let mut buffer = vec![0; (end - entry).min(ENTRIES as u64) as usize * 8];
        while entry < end {
            let count = (end - entry).min(ENTRIES as u64) as usize;
            file.read_exact_at(&mut buffer[..count * 8], entry.checked_mul(8)?).ok()?;
            let is_resident = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes) & RESIDENT != 0;
            // A multiple of 64 is read at a time, so a word's pages are all in one piece.
            words.extend(buffer[..count * 8].chunks(64 * 8).map(|pages| {
                let bits = pages.chunks_exact(8).enumerate();
                bits.fold(0, |word, (bit, bytes)| word | u64::from(is_resident(bytes)) << bit)
            }));
            entry += count as u64;
        }
        Some(words)
    }

    fn read(&self, at: u64, into: &mut [u8]) -> bool {
        self.memory.as_ref().is_ok_and(|file| file.read_exact_at(into, at).is_ok())
    }

    fn page(&self) -> u64 {
        self.page
    }
}

/// Addresses whose resident pages are known.
pub struct Extent {
    /// The first.
    pub start: u64,
    /// The one behind the last.
    pub end: u64,
    page: u64,
    /// Which pages are resident, 64 a word.
    words: Vec<u64>,
    /// How many are before each word.
    before: Vec<u32>,
}

impl Extent {
    /// Ask for them. Both ends must be multiples of the page size.
    pub fn of(target: &dyn Target, start: u64, end: u64) -> Option<Self> {
        let page = target.page();
        if start >= end
            || end > ADDRESSES
            || end - start > LARGEST
            || !start.is_multiple_of(page)
            || !end.is_multiple_of(page)
        {
            return None;
        }
        let words = target.resident(start, end)?;
        // Every page has its bit, whatever the target says.
        if words.len() as u64 != ((end - start) / page).div_ceil(64) {
            return None;
        }
        let before = sums(&words);
        Some(Self { start, end, page, words, before })
    }

    /// Ask for some of them again.
    fn renew(&mut self, target: &dyn Target, from: u64, to: u64) {
        // Whole words: the first page of each is 64 pages behind that of the one before.
        let word = 64 * self.page;
        let first = (from.max(self.start) - self.start) / word;
        let (from, to) = (self.start + first * word, to.min(self.end) / self.page * self.page);
        let to = self.start + (to.max(from) - self.start).next_multiple_of(word);
        let to = to.min(self.end);
        let Some(words) = (from < to).then(|| target.resident(from, to)).flatten() else { return };
        let place = first as usize..first as usize + words.len();
        if words.len() as u64 == ((to - from) / self.page).div_ceil(64)
            && self.words.get(place.clone()).is_some_and(|known| known != words.as_slice())
        {
            self.words[place].copy_from_slice(&words);
            self.before = sums(&self.words);
        }
    }

    /// How many pages up to the one with this address are resident, and whether it is.
    fn up_to(&self, at: u64) -> (u64, bool) {
        let index = (at - self.start) / self.page;
        let (word, bit) = ((index / 64) as usize, index % 64);
        let seen = self.words[word] & (u64::MAX >> (63 - bit));
        (u64::from(self.before[word] + seen.count_ones()), seen >> bit == 1)
    }

    /// The page size.
    pub fn page(&self) -> u64 {
        self.page
    }

    /// Resident bytes of a part.
    pub fn resident(&self, from: u64, to: u64) -> u64 {
        let (from, to) = (from.max(self.start), to.min(self.end));
        if from >= to {
            return 0;
        }
        let ((before, is_first), (count, is_last)) = (self.up_to(from), self.up_to(to - 1));
        let count = count + u64::from(is_first) - before;
        // Of the pages at both ends only a part counts.
        let head = if is_first { (from - self.start) % self.page } else { 0 };
        let tail = (self.page - (to - self.start) % self.page) % self.page;
        let tail = if is_last { tail } else { 0 };
        count * self.page - head - tail
    }

    /// Resident bytes of those pages that lie in a part as a whole.
    pub fn whole_pages(&self, from: u64, to: u64) -> u64 {
        self.resident(from.next_multiple_of(self.page), to / self.page * self.page)
    }

    /// Is the page of this address resident?
    pub fn is_resident(&self, at: u64) -> bool {
        (self.start..self.end).contains(&at) && self.up_to(at).1
    }
}

/// How many bits of words are set before each.
fn sums(words: &[u64]) -> Vec<u32> {
    let mut count = 0;
    let sum = |word: &u64| {
        let before = count;
        count += word.count_ones();
        before
    };
    words.iter().map(sum).collect()
}

/// Words of several extents.
pub struct Reader<'a> {
    target: &'a dyn Target,
    extents: Vec<Extent>,
    blocks: Vec<Option<(u64, Vec<u8>)>>,
    /// What was copied last at once, from which address on. It goes before the blocks.
    piece: (u64, Vec<u8>),
    last: usize,
}

impl<'a> Reader<'a> {
    /// Of none yet.
    pub fn new(target: &'a dyn Target) -> Self {
        let mut blocks = Vec::new();
        blocks.resize_with(BLOCKS, || None);
        Self { target, extents: Vec::new(), blocks, piece: (0, Vec::new()), last: 0 }
    }

    /// Whose memory it is.
    pub fn target(&self) -> &'a dyn Target {
        self.target
    }

    /// Forget all extents, and what was read of them.
    pub fn forget(&mut self) {
        self.extents.clear();
        self.forget_words();
        self.last = 0;
    }

    /// Add addresses; those that are there already are not added again. False: their resident pages are not known.
    pub fn add(&mut self, start: u64, end: u64) -> bool {
        if self.extent(start).is_some_and(|extent| extent.end >= end) {
            return true;
        }
        let Some(extent) = Extent::of(self.target, start, end) else { return false };
        // Of two that begin at the same address the later one is the longer one, and found first.
        let place = self.extents.partition_point(|other| other.start <= start);
        self.extents.insert(place, extent);
        self.last = place;
        true
    }

    /// The extent of an address.
    pub fn extent(&mut self, at: u64) -> Option<&Extent> {
        let holds = |extent: &Extent| (extent.start..extent.end).contains(&at);
        if !self.extents.get(self.last).is_some_and(holds) {
            self.last = self.extents.partition_point(|extent| extent.start <= at).checked_sub(1)?;
        }
        self.extents.get(self.last).filter(|extent| holds(extent))
    }

    /// Forget what was read, not where.
    pub fn forget_words(&mut self) {
        self.blocks.fill(None);
        self.piece.1.clear();
    }

    /// Forget all that was read, and ask again which pages of these addresses are resident.
    pub fn renew(&mut self, from: u64, to: u64) {
        self.forget_words();
        let target = self.target;
        if self.extent(from).is_some() {
            self.extents[self.last].renew(target, from, to);
        }
    }

    /// Copy what comes from this address on, up to its page where that has been copied already.
    pub fn copy_from(&mut self, at: u64) {
        let page = self.target.page();
        let from = at / page * page;
        let Some(to) = self.extent(from).map(|extent| extent.end.min(from + PIECE)) else { return };
        let mut bytes = std::mem::take(&mut self.piece.1);
        bytes.clear();
        bytes.resize((to - from) as usize, 0);
        let target = self.target;
        let mut start = from;
        while start < to {
            // As many resident pages as there are in a row.
            let Some(extent) = self.extent(start) else { break };
            let mut end = start;
            while end < to && extent.is_resident(end) {
                end += page;
            }
            let place = (start - from) as usize..(end.min(to) - from) as usize;
            if !place.is_empty() && !target.read(start, &mut bytes[place]) {
                // What comes from here on is read in blocks, or not at all.
                bytes.truncate((start - from) as usize);
                break;
            }
            start = end.max(start + page);
        }
        self.piece = (from, bytes);
    }

    /// Is this address in what was copied last?
    pub fn has_copied(&self, at: u64) -> bool {
        at >= self.piece.0 && at - self.piece.0 < self.piece.1.len() as u64
    }

    /// The word at this address, a multiple of 8; `None`: not in an extent, not resident, or not for us.
    pub fn word(&mut self, at: u64) -> Option<u64> {
        let extent = self.extent(at)?;
        if !at.is_multiple_of(8) || !extent.is_resident(at) {
            return None;
        }
        if self.has_copied(at) {
            let from = (at - self.piece.0) as usize;
            return Some(u64::from_ne_bytes(self.piece.1.get(from..from + 8)?.try_into().ok()?));
        }
        let base = at / BLOCK * BLOCK;
        let place = (base / BLOCK) as usize % BLOCKS;
        if self.blocks[place].as_ref().is_none_or(|block| block.0 != base) {
            let bytes = self.load(base)?;
            self.blocks[place] = Some((base, bytes));
        }
        let (_, bytes) = self.blocks[place].as_ref()?;
        let from = (at - base) as usize;
        Some(u64::from_ne_bytes(bytes.get(from..from + 8)?.try_into().ok()?))
    }

    /// The resident pages of a block; the rest is zeros, and nobody looks at it.
    fn load(&mut self, base: u64) -> Option<Vec<u8>> {
        let page = self.target.page();
        let mut bytes = vec![0; BLOCK as usize];
        let target = self.target;
        let whole = self.extent(base).is_some_and(|extent| extent.resident(base, base + BLOCK) == BLOCK);
        if whole {
            return target.read(base, &mut bytes).then_some(bytes);
        }
        let step = page.min(BLOCK);
        for at in (base..base + BLOCK).step_by(step as usize) {
            let resident = self.extent(at).is_some_and(|extent| extent.is_resident(at));
            let from = (at - base) as usize;
            if resident && !target.read(at, &mut bytes[from..from + step as usize]) {
                return None;
            }
        }
        Some(bytes)
    }
}

#[cfg(test)]
pub(crate) mod fake {
    //! Memory that a test makes up.

    use super::Target;

    /// Words from an address on; pages that are resident.
    pub struct Fake {
        pub start: u64,
        pub words: Vec<u64>,
        pub resident: Vec<bool>,
    }

    impl Fake {
        /// `pages` pages, all resident and zero.
        pub fn new(start: u64, pages: usize) -> Self {
            Self { start, words: vec![0; pages * 512], resident: vec![true; pages] }
        }

        pub fn put(&mut self, at: u64, word: u64) {
            self.words[((at - self.start) / 8) as usize] = word;
        }
    }

    impl Target for Fake {
        fn resident(&self, from: u64, to: u64) -> Option<Vec<u64>> {
            // As in a process: where nothing is mapped nothing is resident.
            let index = |at: u64| Some((at.checked_sub(self.start)? / 4096) as usize);
            let is = |page: usize| self.resident.get(page).copied().unwrap_or(false);
            let pages: Vec<usize> = (index(from)?..index(to)?).collect();
            let word = |pages: &[usize]| {
                pages.iter().enumerate().fold(0, |word, (bit, &page)| word | u64::from(is(page)) << bit)
            };
            Some(pages.chunks(64).map(word).collect())
        }

        fn read(&self, at: u64, into: &mut [u8]) -> bool {
            for (index, byte) in into.iter_mut().enumerate() {
                let offset = (at - self.start) as usize + index;
                let Some(word) = self.words.get(offset / 8) else { return false };
                *byte = word.to_ne_bytes()[offset % 8];
            }
            true
        }

        fn page(&self) -> u64 {
            4096
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fake::Fake;
    use super::*;

    #[test]
    fn parts_of_pages_count_as_parts() {
        let mut fake = Fake::new(0x10000, 4);
        fake.resident[1] = false;
        let extent = Extent::of(&fake, 0x10000, 0x14000).unwrap();
        assert_eq!(extent.resident(0, u64::MAX), 3 * 4096);
        assert_eq!(extent.resident(0x10ff0, 0x12010), 0x20);
        assert_eq!(extent.resident(0x11010, 0x11020), 0);
        assert_eq!(extent.resident(0x12010, 0x12020), 0x10);
        assert_eq!(extent.whole_pages(0x10010, 0x13010), 4096);
        // Any part is the sum of its parts.
        for middle in (0x10000..0x14000).step_by(0x230) {
            assert_eq!(
                extent.resident(0x10000, middle) + extent.resident(middle, 0x14000),
                extent.resident(0x10000, 0x14000)
            );
        }
        assert_eq!(Extent::of(&fake, 0x10000, 0x15000).unwrap().resident(0, u64::MAX), 3 * 4096);
        assert!(
            Extent::of(&fake, 0xf000, 0x11000).is_none() && Extent::of(&fake, 0x10010, 0x11000).is_none()
        );
    }

    #[test]
    fn many_pages_count_as_each_of_them() {
        let mut fake = Fake::new(0x10000, 200);
        fake.resident.iter_mut().enumerate().for_each(|(page, is)| *is = page % 3 == 0 || page > 150);
        let extent = Extent::of(&fake, 0x10000, 0x10000 + 200 * 4096).unwrap();
        let at = |page: usize| 0x10000 + page as u64 * 4096;
        for from in 0..200 {
            assert_eq!(extent.is_resident(at(from) + 1), fake.resident[from]);
            for to in from..=200 {
                let count = fake.resident[from..to].iter().filter(|&&is| is).count();
                assert_eq!(extent.resident(at(from), at(to)), count as u64 * 4096);
            }
        }
    }

    #[test]
    fn addresses_without_end_are_not_looked_at() {
        let process = Process::open(Path::new("/proc/self"), quarry_proc::page_size());
        if process.memory_refusal().or(process.pagemap_refusal()).is_some() {
            eprintln!("skipped: needs the right to look at others (ptrace)");
            return;
        }
        let page = process.page();
        process.left.set(100);
        assert!(process.resident(0, 90 * page).is_some() && process.resident(0, 11 * page).is_none());
        assert!(process.resident(0, page).is_none());
        assert!(process.pagemap_refusal().unwrap().contains("in part only"));
    }

    #[test]
    fn only_resident_words_are_read() {
        let mut fake = Fake::new(0x10000, 8);
        fake.put(0x10008, 42);
        fake.put(0x13000, 43);
        fake.resident[3] = false;
        let mut reader = Reader::new(&fake);
        assert_eq!(reader.word(0x10008), None);
        assert!(reader.add(0x10000, 0x18000));
        assert_eq!(
            (reader.word(0x10008), reader.word(0x13000), reader.word(0x18000)),
            (Some(42), None, None)
        );
        assert_eq!(reader.word(0x10009), None);
    }

    #[test]
    fn of_two_extents_the_longer_one_is_used() {
        let fake = Fake::new(0x10000, 8);
        let mut reader = Reader::new(&fake);
        assert!(reader.add(0x10000, 0x14000) && reader.word(0x10000).is_some());
        assert!(reader.add(0x10000, 0x18000));
        assert_eq!(reader.extent(0x10000).unwrap().end, 0x18000);
    }

    #[test]
    fn what_may_not_be_read_is_told_with_the_right_it_takes() {
        let process = Process::open(Path::new("/nowhere"), 4096);
        assert!(process.memory_refusal().unwrap().contains("kernel.yama.ptrace_scope 0"));
        assert!(process.pagemap_refusal().unwrap().contains("root (CAP_SYS_PTRACE)"));
        assert!(process.resident(0, 4096).is_none() && !process.read(0, &mut [0]));
        assert!(!Reader::new(&process).add(0, 4096));
    }

    #[test]
    fn ourselves() {
        let process = Process::open(Path::new("/proc/self"), quarry_proc::page_size());
        let value = Box::new(0x1234_5678_9abc_def0_u64);
        let at = std::ptr::from_ref(&*value) as u64;
        let page = process.page();
        let start = at / page * page;
        if let Some(refusal) = process.memory_refusal().or(process.pagemap_refusal()) {
            eprintln!("skipped: needs another right: {refusal}");
            return;
        }
        let mut reader = Reader::new(&process);
        assert!(reader.add(start, start + page));
        assert_eq!(reader.word(at), Some(*value));
    }
}
