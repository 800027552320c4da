// SPDX-License-Identifier: MIT
//! Writes a large trace, reads it, or takes the time of its parts.
//!
//!     cargo run --release --example big -- write FILE EVENTS [THREADS [LIVE]] [--plain]
//!     cargo run --release --example big -- merge|merge-with|analyse FILE

use std::error::Error;
use std::fs::File;
use std::io::BufWriter;
use std::time::Instant;

use quarry_trace::analysis::Analysis;
use quarry_trace::live::Tracker;
use quarry_trace::{AllocApi, End, Event, FreeApi, Head, StackNode, Trace, TraceWriter, What, WriteOptions};

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Stacks that blocks come from.
const STACKS: u32 = 20_000;

/// Sizes of which small ones are frequent, addresses that are handed out again, frees of which one in ten comes from
/// another thread, and on average so many live blocks.
fn write(path: &str, events: u64, threads: u64, live: u64, packed: bool) -> Result<(), Box<dyn Error>> {
    let head = Head { process: 1, program: "big".into(), clock: "synthetic".into(), ..Head::default() };
    let head = Head { ticks_per_second: 1_000_000_000, stacks: "cfi".into(), ..head };
    let mut writer =
        TraceWriter::create(BufWriter::new(File::create(path)?), &head, WriteOptions { packed })?;
    let mut state = 1;
    for id in 1..=STACKS {
        let parent = if id == 1 { 0 } else { random(&mut state) as u32 % (id - 1) + 1 };
        let pc = 0x5555_5555_0000 + random(&mut state) % 0x100_0000;
        writer.stack(1, &StackNode { id, parent, pc, is_return: true })?;
    }
    let mut blocks: Vec<(u64, u32)> = Vec::with_capacity(live as usize);
    let mut unused: Vec<Vec<u64>> = vec![Vec::new(); 64];
    let mut fresh = 0x7f00_0000_0000u64;
    for number in 0..events {
        let r = random(&mut state);
        let time = number * 40 + r % 40;
        let full = blocks.len() as u64 >= live + live / 8;
        if blocks.is_empty() || !full && r >> 32 & 1 == 0 || (blocks.len() as u64) < live / 2 {
            let class = ((r >> 40) % 8 * ((r >> 44) % 8)) as usize;
            let (size, thread) = (class as u64 * 16 + (r >> 20) % 16 + 1, (r >> 8) % threads);
            let address = unused[class].pop().unwrap_or_else(|| {
                fresh += (class as u64 + 1) * 16;
                fresh - (class as u64 + 1) * 16
            });
            let stack = ((r >> 12) as u32 % STACKS).min((r >> 30) as u32 % STACKS) + 1;
            let (api, thread) = (AllocApi::Malloc, thread as u32 + 1);
            writer.event(&Event {
                time,
                thread,
                what: What::Alloc { api, size, address, align: 0, stack },
            })?;
            blocks.push((address << 8 | class as u64, thread));
        } else {
            // Most blocks die young.
            let length = blocks.len() as u64;
            let index = if r >> 50 & 3 == 0 { r % length } else { length - 1 - r % length.min(50) };
            let (block, owner) = blocks.swap_remove(index as usize);
            let (address, class) = (block >> 8, (block & 0xff) as usize);
            let thread =
                if (r >> 16).is_multiple_of(10) { (r >> 8) as u32 % threads as u32 + 1 } else { owner };
            writer.event(&Event {
                time,
                thread,
                what: What::Free { api: FreeApi::Free, address, touched: None },
            })?;
            unused[class].push(address);
        }
    }
    writer.finish(&End { reason: "exit".into(), end_ticks: events * 40, events, ..End::default() })?;
    Ok(())
}

/// The highest resident size of this process.
fn resident() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM"));
    line.map_or_else(String::new, |line| line.trim_start_matches("VmHWM:").trim().to_owned())
}

fn read(verb: &str, path: &str) -> Result<u64, Box<dyn Error>> {
    let trace = Trace::open(path.as_ref())?;
    let mut events = trace.events();
    let mut n = 0;
    match verb {
        "merge" => {
            for event in events {
                event?;
                n += 1;
            }
        }
        "merge-with" => {
            let mut tracker = Tracker::new();
            while let Some(event) = events.next_with(|address| tracker.is_live(address)) {
                tracker.feed(&event?);
                n += 1;
            }
            println!("live {}, impossible {:?}", tracker.live_objects(), tracker.impossible());
        }
        "analyse" => {
            let mut analysis = Analysis::new();
            while let Some(event) = events.next_with(|address| analysis.tracker().is_live(address)) {
                analysis.add(&event?);
                n += 1;
            }
            let summary = analysis.finish(10);
            println!("peak {:?}, impossible {}", summary.peak, summary.impossible.total());
        }
        _ => return Err(format!("{verb}: not a verb").into()),
    }
    Ok(n)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let plain = words.iter().position(|word| word == "--plain").map(|at| words.remove(at)).is_some();
    let number = |at: usize, default: u64| words.get(at).map_or(Ok(default), |word| word.parse());
    let start = Instant::now();
    let events = match words.first().map(String::as_str) {
        Some("write") if words.len() >= 3 => {
            let events = number(2, 0)?;
            write(&words[1], events, number(3, 4)?.max(1), number(4, 1_000_000)?, !plain)?;
            events
        }
        Some(verb) if words.len() == 2 => read(verb, &words[1])?,
        _ => {
            return Err(
                "big write FILE EVENTS [THREADS [LIVE]] [--plain] | merge|merge-with|analyse FILE".into()
            );
        }
    };
    let seconds = start.elapsed().as_secs_f64();
    let (rate, resident) = (events as f64 / seconds / 1e6, resident());
    println!("{events} events in {seconds:.2} s, {rate:.1} M/s, at most {resident} resident");
    Ok(())
}
