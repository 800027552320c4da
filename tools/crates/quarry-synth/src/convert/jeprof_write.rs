// SPDX-License-Identifier: MIT
//! Writes heap profiles as gperftools leaves them, which jeprof and pprof read: for each call stack what is live and what was
//! allocated. Numbers of a sample are weighed here, so that readers are told to leave them as they are.
//!
//! A plain profile has addresses and the list of mapped files. Its reader looks names up in the program. A profile with names has a
//! table of these before it. It needs no program.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, Write};

use quarry_symbols::{Frame, Mapped, Symbols};
use quarry_trace::analysis::Site;
use quarry_trace::sample::Estimate;
use quarry_trace::{Head, Module, Segment, StackNode, StackTree};

use super::Losses;
use super::gathered::{Late, LateSink, Whole};

/// Pages of all processors begin at multiples of this.
const PAGE: u64 = 4096;
/// Where files are put of which the address was another file's before or later. No process has such addresses.
const APART: u64 = 1 << 60;
/// What is in no file that can be known.
const NOWHERE: u64 = 1 << 61;
/// So far from each other.
const ROOM: u64 = 1 << 44;

/// What counts as live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Live {
    /// What is there at the end, as when a program writes its own profile at its end.
    AtTheEnd,
    /// What was there when most was.
    AtThePeak,
}

impl Live {
    fn of(self, site: &Site) -> (Estimate, Estimate) {
        match self {
            Live::AtTheEnd => (site.live, site.live_bytes),
            Live::AtThePeak => (site.peak, site.peak_bytes),
        }
    }
}

/// A heap profile.
pub struct Jeprof<W> {
    output: W,
    program: String,
    live: Live,
    /// Is there a table of names before it?
    named: bool,
}

/// Writes a heap profile.
pub type JeprofSink<W> = LateSink<Jeprof<W>>;

impl<W: Write> JeprofSink<W> {
    /// Of a trace with this head.
    pub fn new(output: W, head: &Head, live: Live, named: bool) -> Self {
        Self::of(head, Jeprof { output, program: head.program.clone(), live, named })
    }
}

impl<W: Write> Late for Jeprof<W> {
    fn write(&mut self, whole: &mut Whole, losses: &mut Losses) -> io::Result<()> {
        let mut sites: Vec<&Site> = whole.summary.sites.iter().collect();
        sites.sort_by_key(|site| (std::cmp::Reverse(site.bytes.value()), site.stack));
        let sums = |site: &Site| {
            let (live, live_bytes) = self.live.of(site);
            [live.value(), live_bytes.value(), site.count.value(), site.bytes.value()]
        };
        let mut total = [0_u64; 4];
        let mut lines = Vec::new();
        let mut places = Places::of(whole.symbols.modules());
        for site in sites {
            let sums = sums(site);
            total.iter_mut().zip(sums).for_each(|(total, sum)| *total = total.saturating_add(sum));
            if whole.stacks.is_deeper(site.stack, StackTree::DEEPEST) {
                losses.cut();
            }
            let mut stack = String::new();
            for (depth, node) in whole.stacks.frames(site.stack).enumerate() {
                let mut pc = places.address(&whole.symbols, &node);
                if self.named {
                    pc = places.name(pc, name(&whole.symbols.frames(&node)));
                }
                // Readers take one from all addresses but the innermost, as from return addresses.
                let told = pc.wrapping_add(u64::from(depth > 0));
                stack += &format!(" {told:#x}");
            }
            // One without a stack has an address that is nowhere, or its line would not be read.
            lines.push((sums, if stack.is_empty() { " 0x0".to_owned() } else { stack }));
        }
        let to = &mut self.output;
        if self.named {
            writeln!(to, "--- symbol\nbinary={}", one_line(&self.program))?;
            for (pc, name) in &places.names {
                writeln!(to, "{pc:#018x} {name}")?;
            }
            writeln!(to, "---\n--- heap")?;
        }
        writeln!(to, "heap profile: {} @ heapprofile", numbers(total))?;
        for (sums, stack) in lines {
            writeln!(to, "{} @{stack}", numbers(sums))?;
        }
        writeln!(to, "\nMAPPED_LIBRARIES:")?;
        let mut told = HashSet::new();
        for (module, &(_, base)) in whole.symbols.modules().iter().zip(&places.bases) {
            // A file that came again is one line.
            if told.insert((base, &module.path)) {
                write_module(to, module, base)?;
            }
        }
        to.flush()
    }
}

fn numbers([live, live_bytes, all, all_bytes]: [u64; 4]) -> String {
    format!("{live:6}: {live_bytes:8} [{all:6}: {all_bytes:8}]")
}

fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// What was inlined into each other, the outermost first, as such tables have it.
fn name(frames: &[Frame]) -> String {
    let name = |frame: &Frame| {
        let text = frame.function.clone().unwrap_or_else(|| frame.text());
        // Two dashes part names.
        let mut line = one_line(&text);
        while line.contains("--") {
            line = line.replace("--", "- -");
        }
        line
    };
    frames.iter().rev().map(name).collect::<Vec<_>>().join("--")
}

/// Addresses that files took up, as parts from one to another that do not meet.
#[derive(Default)]
struct TakenUp(BTreeMap<u64, u64>);

impl TakenUp {
    fn meets(&self, begin: u64, end: u64) -> bool {
        self.0.range(..end).next_back().is_some_and(|(_, &to)| to > begin)
    }

    fn add(&mut self, mut begin: u64, mut end: u64) {
        while let Some((&from, &to)) = self.0.range(..end).next_back().filter(|(_, to)| **to > begin) {
            (begin, end) = (begin.min(from), end.max(to));
            self.0.remove(&from);
        }
        if begin < end {
            self.0.insert(begin, end);
        }
    }
}

/// Where files are told to be, and what is called how there.
struct Places {
    /// By module: its base as it was, and as it is told.
    bases: Vec<(u64, u64)>,
    taken_up: TakenUp,
    names: BTreeMap<u64, String>,
}

impl Places {
    /// Two files that were at one address, one after the other, would be taken for each other. So the second is told apart.
    fn of(modules: &[Module]) -> Self {
        let mut bases: Vec<(u64, u64)> = Vec::new();
        let mut taken_up = TakenUp::default();
        let mut by_base: HashMap<u64, Vec<usize>> = HashMap::new();
        for (index, module) in modules.iter().enumerate() {
            let before = by_base.entry(module.base).or_default();
            let told = match before.iter().find(|&&other| modules[other].is_same(module)) {
                Some(&first) => bases[first].1,
                None if parts(module).any(|(begin, end)| taken_up.meets(begin, end)) => {
                    APART + ROOM * index as u64
                }
                None => module.base,
            };
            before.push(index);
            bases.push((module.base, told));
            parts(module).for_each(|(begin, end)| taken_up.add(begin, end));
        }
        Self { bases, taken_up, names: BTreeMap::new() }
    }

    /// The instruction of a node: within the call, not behind it.
    fn address(&self, symbols: &Symbols, node: &StackNode) -> u64 {
        let pc = node.pc.wrapping_sub(u64::from(node.is_return));
        match symbols.module(node).map(|index| self.bases[index]) {
            Some((base, told)) => pc.wrapping_sub(base).wrapping_add(told),
            // Nobody can tell which file was there, and so the reader is not to find one.
            None if self.taken_up.meets(pc, pc.saturating_add(1)) => pc | NOWHERE,
            None => pc,
        }
    }

    /// Note what is called so. At one address there may be several, of files that came and went: then the place of it is
    /// another one.
    fn name(&mut self, mut pc: u64, name: String) -> u64 {
        while self.names.get(&pc).is_some_and(|other| *other != name) {
            pc = pc.wrapping_add(ROOM);
        }
        self.names.insert(pc, name);
        pc
    }
}

/// The addresses that a file takes up.
fn parts(module: &Module) -> impl Iterator<Item = (u64, u64)> + '_ {
    module.segments.iter().map(|&Segment(at, bytes, _)| {
        let begin = module.base.wrapping_add(at);
        (begin, begin.saturating_add(bytes))
    })
}

/// A line for each part, as in /proc/PID/maps.
fn write_module(to: &mut impl Write, module: &Module, base: u64) -> io::Result<()> {
    // Where in the file a part begins only the file says. Most files have it where its address is.
    let mapped = Mapped::of(&module.file())
        .filter(|mapped| mapped.build_id == module.build_id && mapped.segments.starts_with(&module.segments));
    for (index, &Segment(at, bytes, flags)) in module.segments.iter().enumerate() {
        let offset = mapped.as_ref().map_or(at, |mapped| mapped.offsets[index]);
        let (begin, end) = (base.wrapping_add(at), base.wrapping_add(at).wrapping_add(bytes));
        let flag = |bit: u32, letter: char| if flags & bit != 0 { letter } else { '-' };
        writeln!(
            to,
            "{:08x}-{:08x} {}{}{}p {:08x} 00:00 0 {}",
            begin / PAGE * PAGE,
            end.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX),
            flag(4, 'r'),
            flag(2, 'w'),
            flag(1, 'x'),
            offset / PAGE * PAGE,
            one_line(&module.path)
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_no_two_dashes() {
        let frame = |function: Option<&str>, module: &str| Frame {
            function: function.map(Into::into),
            file: None,
            line: None,
            module: module.into(),
            offset: 0x10,
            unplaced: false,
            within_page: false,
        };
        let frames = [frame(Some("a---b"), "/x"), frame(None, "/opt/lib--c.so")];
        assert_eq!(name(&frames), "lib- -c.so+0x10--a- - -b");
    }

    #[test]
    fn addresses_that_files_took_up() {
        let mut taken_up = TakenUp::default();
        for (begin, end) in [(10, 20), (30, 40), (50, 60), (5, 5), (15, 35)] {
            taken_up.add(begin, end);
        }
        assert_eq!(taken_up.0, BTreeMap::from([(10, 40), (50, 60)]));
        for (begin, end, meets) in
            [(0, 10, false), (0, 11, true), (39, 50, true), (40, 50, false), (60, 99, false)]
        {
            assert_eq!(taken_up.meets(begin, end), meets, "{begin} to {end}");
        }
        taken_up.add(0, 100);
        assert_eq!(taken_up.0, BTreeMap::from([(0, 100)]));
    }
}
