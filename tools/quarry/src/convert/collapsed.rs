// SPDX-License-Identifier: MIT
//! All call stacks with their names, a line for each: what flame graphs are drawn from.

use std::collections::BTreeMap;
use std::io::{self, Write};

use clap::ValueEnum;
use quarry_symbols::{Folding, Frame};
use quarry_synth::convert::Losses;
use quarry_synth::convert::gathered::{Late, LateSink, Whole};
use quarry_trace::Head;
use quarry_trace::analysis::Site;
use quarry_trace::sample::Estimate;

/// More frames the recorder does not keep.
const DEEPEST: usize = 256;

/// What the number behind a stack is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// Bytes allocated
    Bytes,
    /// Allocations and reallocs
    Allocations,
    /// Bytes that were live when most were
    Peak,
    /// Bytes that are live at the end
    Live,
}

impl By {
    fn of(self, site: &Site) -> Estimate {
        match self {
            By::Bytes => site.bytes,
            By::Allocations => site.count,
            By::Peak => site.peak_bytes,
            By::Live => site.live_bytes,
        }
    }
}

/// Call stacks with their names.
pub struct Collapsed<W> {
    output: W,
    by: By,
    folding: Folding,
}

/// Reads a whole trace, and writes its stacks at the end.
pub fn sink<W: Write>(output: W, head: &Head, by: By, folding: Folding) -> LateSink<Collapsed<W>> {
    LateSink::of(head, Collapsed { output, by, folding })
}

/// A name within a line: semicolons part names.
fn name(frame: &Frame) -> String {
    part(&frame.function.clone().unwrap_or_else(|| frame.text()))
}

/// The same of a name of another tool.
pub(super) fn part(name: &str) -> String {
    name.chars()
        .map(|c| {
            if c == ';' {
                ':'
            } else if c.is_control() {
                '?'
            } else {
                c
            }
        })
        .collect()
}

/// The outermost function first, the one that allocated last.
fn line(folding: &Folding, frames: &[Frame]) -> String {
    let names: Vec<String> = frames[folding.site(frames)..].iter().rev().map(name).collect();
    if names.is_empty() { String::from("(no stack recorded)") } else { names.join(";") }
}

impl<W: Write> Late for Collapsed<W> {
    fn write(&mut self, whole: &mut Whole, losses: &mut Losses) -> io::Result<()> {
        let mut lines: BTreeMap<String, Estimate> = BTreeMap::new();
        for site in &whole.summary.sites {
            let mut frames = whole.symbols.stack(&whole.stacks, site.stack, DEEPEST + 1);
            if frames.len() > DEEPEST {
                frames.truncate(DEEPEST);
                losses.cut();
            }
            *lines.entry(line(&self.folding, &frames)).or_default() += self.by.of(site);
        }
        for (line, sum) in lines.iter().filter(|(_, sum)| sum.value() > 0) {
            writeln!(self.output, "{line} {}", sum.value())?;
        }
        self.output.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quarry_synth::convert::{Item, Sink};
    use quarry_trace::{AllocApi, End, Event, FreeApi, StackNode, What};

    fn alloc(address: u64, size: u64, stack: u32) -> Item {
        let what = What::Alloc { api: AllocApi::Malloc, size, address, align: 0, stack };
        Item::Event(Event { time: address, thread: 1, what }, 0)
    }

    fn written(head: &Head, by: By) -> String {
        let mut bytes = Vec::new();
        let mut sink = super::sink(&mut bytes, head, by, Folding::default());
        let node = |id, parent, pc| Item::Stack(1, StackNode { id, parent, pc, is_return: false });
        let free = What::Free { api: FreeApi::Free, address: 0x1000, touched: None };
        for item in [
            node(1, 0, 0x10),
            node(2, 1, 0x20),
            node(3, 1, 0x30),
            alloc(0x1000, 100, 2),
            alloc(0x2000, 50, 3),
            alloc(0x3000, 7, 0),
            Item::Event(Event { time: 0x4000, thread: 1, what: free }, 0),
            alloc(0x5000, 1, 2),
        ] {
            sink.item(&item).unwrap();
        }
        sink.finish(&End::default()).unwrap();
        drop(sink);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_line_for_each_stack() {
        let whole = Head::default();
        let none = "(no stack recorded)";
        assert_eq!(written(&whole, By::Bytes), format!("{none} 7\n0x10;0x20 101\n0x10;0x30 50\n"));
        assert_eq!(written(&whole, By::Allocations), format!("{none} 1\n0x10;0x20 2\n0x10;0x30 1\n"));
        assert_eq!(written(&whole, By::Peak), format!("{none} 7\n0x10;0x20 100\n0x10;0x30 50\n"));
        assert_eq!(written(&whole, By::Live), format!("{none} 7\n0x10;0x20 1\n0x10;0x30 50\n"));
    }

    #[test]
    fn a_sample_is_weighed() {
        let sample = Head { sample: 1000, ..Head::default() };
        // 100 and 1 byte stand for about 1000 each, as do 50 and 7.
        assert_eq!(written(&sample, By::Bytes), "(no stack recorded) 1004\n0x10;0x20 2051\n0x10;0x30 1025\n");
    }

    #[test]
    fn names_do_not_break_lines() {
        let frame = |name: &str| Frame { function: Some(name.into()), ..Frame::default() };
        let frames = [frame("malloc"), frame("a;b\nc"), frame("main")];
        assert_eq!(line(&Folding::default(), &frames), "main;a:b?c");
    }
}
