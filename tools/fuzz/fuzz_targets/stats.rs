// SPDX-License-Identifier: MIT
//! A statistics page that says anything, and changes while it is read; and a process in whose memory one is looked for. Reading
//! neither panics nor takes long, and what is made of the numbers adds up.

#![no_main]

use std::cell::Cell;
use std::io;

use libfuzzer_sys::fuzz_target;
use quarry_proc::smaps;
use quarry_stats::breakdown::heap_breakdown;
use quarry_stats::memory::{Live, Memory, Source, Target};
use quarry_stats::openmetrics::{self, Format};
use quarry_stats::page::MAGIC;
use quarry_stats::sampler::Reader;
use quarry_stats::{Found, Page};

/// A page whose writer is never done.
struct Restless<'a> {
    words: &'a [u64],
    looks: Cell<u64>,
    /// Of so many looks, one sees another word.
    period: u64,
}

impl Memory for Restless<'_> {
    fn words(&self) -> usize {
        self.words.len()
    }

    fn load(&self, index: usize) -> u64 {
        let looks = self.looks.get().wrapping_add(1);
        self.looks.set(looks);
        let word = self.words[index];
        if looks % self.period == 0 { word ^ looks } else { word }
    }
}

/// Everything that is done with a page.
fn used(page: Page) {
    for resident in [None, Some(0), Some(1 << 30), Some(u64::MAX)] {
        let parts = heap_breakdown(std::slice::from_ref(&page), resident).parts();
        let sum: u64 = parts[1..].iter().fold(0, |sum, part| sum.saturating_add(part.1));
        assert_eq!(sum, parts[0].1, "{parts:?}");
    }
    let found = [Found { pid: 1, program: String::from("fuzz"), pages: vec![page], read_ns: 1 }];
    for format in [Format::OpenMetrics, Format::Prometheus] {
        let text = openmetrics::render(&found, format);
        assert!(text.lines().all(|line| !line.is_empty() && !line.contains('\r')), "{text}");
    }
}

/// A file of /proc.
struct Bytes<'a> {
    start: u64,
    bytes: &'a [u8],
}

impl Source for Bytes<'_> {
    fn read_exact_at(&self, into: &mut [u8], at: u64) -> io::Result<()> {
        let end = io::ErrorKind::UnexpectedEof;
        let from = at.checked_sub(self.start).and_then(|from| usize::try_from(from).ok()).ok_or(end)?;
        let to = from.checked_add(into.len()).ok_or(end)?;
        into.copy_from_slice(self.bytes.get(from..to).ok_or(end)?);
        Ok(())
    }
}

/// A program whose head and data are these bytes.
fn process(data: &[u8]) {
    const START: u64 = 0x5555_0000_0000;
    let mut bytes = data.to_vec();
    bytes.resize(bytes.len().next_multiple_of(4096), 0);
    let (middle, end) = (START + 4096, START + bytes.len() as u64);
    let text = format!(
        "{START:x}-{middle:x} r--p 0 00:00 1 /prog\n{middle:x}-{:x} rw-p 0 00:00 0\n",
        end.max(middle + 4096)
    );
    let Ok((mappings, _)) = smaps::read_all(text.as_bytes()) else { panic!("{text}") };
    let target = Target::new(Bytes { start: START, bytes: &bytes }, None, mappings);
    for at in target.find(MAGIC) {
        let live = Live::new(&target, at);
        if let Ok(page) = Page::read(&live) {
            used(page);
        }
    }
}

/// A sampler in the memory of a process, which says anything of where its tables are.
fn sampler(data: &[u8]) {
    let memory = Bytes { start: 0, bytes: data };
    let Ok(mut reader) = Reader::new(&memory, 0) else { return };
    if let Ok(read) = reader.read() {
        for event in &read.events {
            assert!(reader.frames(event.stack).len() <= 256);
        }
    }
    let _ = (reader.frames(1), reader.rate(), reader.lost(), reader.read());
}

fuzz_target!(|data: &[u8]| {
    // The first byte says what the rest is.
    let Some((&what, data)) = data.split_first() else { return };
    if what % 4 == 3 {
        return if what & 64 == 0 { process(data) } else { sampler(data) };
    }
    let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap());
    let words: Vec<u64> = data.chunks_exact(8).map(word).collect();
    let page = match what % 4 {
        0 => Page::read(&words[..]),
        _ => Page::read(&Restless { words: &words, looks: Cell::new(0), period: u64::from(what / 4) + 1 }),
    };
    if let Ok(page) = page {
        used(page);
    }
});
