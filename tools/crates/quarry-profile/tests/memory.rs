// SPDX-License-Identifier: MIT
//! How much memory a profile takes: for live blocks, for call stacks, for time. All is counted in one place, and so there is one test.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use common::{Random, alloc, free};
use quarry_profile::calls::Calls;
use quarry_profile::export;
use quarry_profile::model::{Builder, Division, Spans};
use quarry_profile::query::{self, At, By, Query, Sort};
use quarry_profile::read::read;
use quarry_profile::report::Report;
use quarry_profile::tree::Direction;
use quarry_report::style::Style;
use quarry_symbols::{Folding, Frame, Names, Places, Symbols};
use quarry_trace::sample::Sampling;
use quarry_trace::{End, Head, StackNode, Trace, TraceWriter, WriteOptions};

struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is done by the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        MOST.fetch_max(NOW.fetch_add(layout.size(), Relaxed) + layout.size(), Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Large blocks are moved by the kernel and not copied, so that there are never two of them.
        MOST.fetch_max(NOW.fetch_add(size, Relaxed) + size - layout.size(), Relaxed);
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.realloc(block, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most bytes in use while so many events with so many live blocks of so many stacks are read.
fn most(events: u64, live: u64, stacks: u64) -> usize {
    let before = NOW.load(Relaxed);
    MOST.store(before, Relaxed);
    let mut random = Random(3);
    let mut builder = Builder::new(Sampling::ALL, Division::Stack, Spans::new(0, events), &[]);
    let mut ring = 0;
    for time in 0..events {
        let address = 0x10_0000 + ring % (2 * live) * 64;
        if ring >= live && time.is_multiple_of(2) {
            builder.add(&free(time, 1, 0x10_0000 + (ring - live) % (2 * live) * 64));
        } else {
            builder.add(&alloc(time, 1, address, 48, random.below(stacks) as u32 + 1));
            ring += 1;
        }
    }
    let profile = builder.finish();
    assert!(profile.rows.len() as u64 <= stacks && profile.events == events);
    MOST.load(Relaxed) - before
}

/// A trace of so many call sites, each with a function and a line of its own. Names are in the trace.
fn wide(sites: u32) -> Vec<u8> {
    const CALLERS: u32 = 500;
    let mut names = Names::default();
    let mut writer =
        TraceWriter::create(Vec::new(), &Head::default(), WriteOptions { packed: true }).unwrap();
    for id in 1..=CALLERS + sites {
        // Callers call each other; each site is called by one of them.
        let parent = if id <= CALLERS { id / 3 } else { id % CALLERS + 1 };
        writer
            .stack(1, &StackNode { id, parent, pc: 0x40_0000 + u64::from(id) * 16, is_return: true })
            .unwrap();
        let frame = Frame {
            function: Some(format!("module_{}::function_{id}", id % 97)),
            file: Some(format!("/src/module_{}.c", id % 97)),
            line: Some(id),
            ..Frame::default()
        };
        names.insert(id, &[frame]);
    }
    for n in 0..3 * sites {
        let (time, stack) = (u64::from(n) * 100, CALLERS + 1 + n % sites);
        let address = 0x10_0000 + u64::from(n) * 64;
        writer.event(&alloc(time, 1, address, u64::from(16 + n % 32), stack)).unwrap();
        if n % 3 > 0 {
            writer.event(&free(time + 50, 1, address)).unwrap();
        }
    }
    names.texts().iter().for_each(|text| writer.text(text).unwrap());
    writer.finish(&End::default()).unwrap()
}

/// How long a file is that nobody keeps.
#[derive(Default)]
struct Length(u64);

impl std::io::Write for Length {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The most bytes in use while a trace is read and reported, and then while it is written for other tools, beside the trace itself.
fn most_of_report(bytes: Vec<u8>, sites: u32) -> [usize; 2] {
    let trace = Trace::of_bytes(bytes).unwrap();
    let before = NOW.load(Relaxed);
    MOST.store(before, Relaxed);
    let read = read(&trace, Division::Stack, &[], |_, _| {}).unwrap();
    let (profile, folding) = (&read.profile, Folding::default());
    let mut symbols = Symbols::of_trace(&trace, profile.modules.clone(), Places::default());
    let calls = &Calls::of(profile, &read.stacks, &mut symbols, &folding);
    let query = &Query { at: At::Peak, window: None, by: By::Site, sort: Sort::Live, filter: None, top: 10 };
    let answer = &query::answer(profile, calls, query);
    assert_eq!(answer.count, sites as usize);
    assert_eq!(answer.all.sums.live_bytes.value(), profile.end.bytes.value());
    let report = Report {
        kept: true,
        file: "f",
        trace: &trace,
        profile,
        calls,
        query,
        answer,
        gates: &[],
        waste: None,
        missing: &[],
    };
    let style = Style::default();
    let texts = [Direction::Up, Direction::Down].map(|way| report.tree_text(style, way));
    assert!(texts.iter().all(|text| text.contains(" places, each below 1")), "{texts:?}");
    assert!(report.text(style).contains("function_") && report.json().to_string().contains("function_"));
    let most = MOST.swap(NOW.load(Relaxed), Relaxed) - before;
    for make in [export::dhat, export::firefox, export::speedscope] {
        let mut length = Length::default();
        serde_json::to_writer(&mut length, &make(&report)).unwrap();
        assert!(length.0 > 100 * u64::from(sites), "{} bytes", length.0);
    }
    [most, MOST.load(Relaxed) - before]
}

#[test]
fn memory_is_bounded() {
    const MIB: usize = 1 << 20;
    let blocks = most(2_500_000, 1_000_000, 2000);
    assert!(blocks <= 64 * 1_000_000 + 32 * MIB, "{blocks} bytes for a million live blocks");
    // The number of events does not count.
    let long = most(3_000_000, 1000, 2000);
    assert!(long <= 32 * MIB, "{long} bytes for a thousand live blocks");
    // Call stacks have about 300 bytes each.
    let stacks = most(1_000_000, 1000, 200_000);
    assert!(stacks <= 200_000 * 350 + 32 * MIB, "{stacks} bytes for 200,000 call stacks");
    // So do they with their names, in a whole report.
    const SITES: u32 = 200_000;
    let [report, files] = most_of_report(wide(SITES), SITES);
    assert!(report <= SITES as usize * 600 + 32 * MIB, "{report} bytes to report 200,000 call sites");
    // Files of other tools are written as they are made.
    assert!(files <= SITES as usize * 700 + 32 * MIB, "{files} bytes to write 200,000 call sites");
    println!("200,000 call sites: {report} bytes for the report, {files} for files");
}
