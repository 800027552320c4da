// SPDX-License-Identifier: MIT
//! Writes files as valgrind's massif leaves them: snapshots of what was live, and for some of these the call stacks.
//! ms_print and massif-visualizer read them.
//!
//! Massif takes snapshots while the program runs, and its peak is one of them. Here the trace has every event, so that the peak is the
//! true one. The extra bytes are what the size classes of the malloc add. Names of functions are those in the trace, or are looked up at the end.

use std::collections::HashMap;
use std::io::Write;

use quarry_symbols::{Folding, Frame};
use quarry_trace::analysis::{Analysis, Site};
use quarry_trace::sample::Means;
use quarry_trace::{Event, Head, StackId};

use super::Losses;
use super::gathered::{Late, LateSink, Whole};

/// Most snapshots, without the peak and the end. Massif takes as many.
const MOST: usize = 100;
/// Every tenth has its call stacks, as with massif.
const DETAILED: usize = 10;
/// What has less than this part of a snapshot is joined with its neighbours.
const THRESHOLD: f64 = 0.001;
/// Shorter traces have bytes for their time.
const SHORT_NS: u64 = 100_000_000;
/// More frames the recorder does not keep.
const DEEPEST: usize = 256;
/// Blocks of which no stack was recorded.
const UNKNOWN: &str = "0x0: ??? (no stack recorded)";

/// What was live at a moment.
#[derive(Debug, Clone, Default)]
struct Snapshot {
    ns: u64,
    /// Bytes that were allocated and freed before.
    moved: u64,
    live: u64,
    /// What size classes add to that.
    extra: u64,
    /// Bytes by stack.
    stacks: Option<Vec<(StackId, u64)>>,
}

/// Snapshots over the whole time, of which the number is bounded.
#[derive(Debug, Default)]
struct Course {
    snapshots: Vec<Snapshot>,
    /// From one to the next, and when that is.
    step: u64,
    next: u64,
}

impl Course {
    /// Is one due now, in nanoseconds or in bytes?
    fn is_due(&self, now: u64) -> bool {
        now >= self.next
    }

    /// Is the next one to have its call stacks?
    fn is_detailed(&self) -> bool {
        let since = self.snapshots.iter().rev().take_while(|snapshot| snapshot.stacks.is_none());
        since.count() + 1 >= DETAILED
    }

    fn add(&mut self, now: u64, snapshot: Snapshot) {
        self.snapshots.push(snapshot);
        if self.snapshots.len() >= MOST {
            let mut index = 0;
            // Every second stays.
            self.snapshots.retain(|_| {
                index += 1;
                index % 2 == 0
            });
            self.step = (now / (MOST as u64 / 2)).max(self.step * 2);
        }
        self.next = now.saturating_add(self.step.max(1));
    }
}

/// A file of massif.
pub struct Massif<W> {
    output: W,
    folding: Folding,
    command: String,
    /// Is there no time but bytes?
    by_bytes: bool,
    /// Which one is written is known at the end.
    in_time: Course,
    in_bytes: Course,
    now: Snapshot,
    peak: Snapshot,
}

/// Writes a file of massif.
pub type MassifSink<W> = LateSink<Massif<W>>;

impl<W: Write> MassifSink<W> {
    /// Of a trace with this head. What `folding` folds is left out at the inner end of each stack, as massif does with
    /// malloc.
    pub fn new(output: W, head: &Head, folding: Folding) -> Self {
        let format = Massif {
            output,
            folding,
            command: head.command_line(),
            by_bytes: head.clock == "synthetic",
            in_time: Course::default(),
            in_bytes: Course::default(),
            now: Snapshot::default(),
            peak: Snapshot::default(),
        };
        Self::of(head, format)
    }
}

impl<W: Write> Massif<W> {
    /// All snapshots, in the order of time, and which is the peak.
    fn snapshots(&mut self, whole: &Whole, in_bytes: bool) -> (Vec<Snapshot>, usize) {
        let sites = &whole.summary.sites;
        self.peak.stacks = Some(sites.iter().map(|site| (site.stack, site.peak_bytes.value())).collect());
        self.now.stacks = Some(sites.iter().map(|site| (site.stack, site.live_bytes.value())).collect());
        let before = |snapshot: &Snapshot| (snapshot.ns, snapshot.moved) <= (self.peak.ns, self.peak.moved);
        let course = if in_bytes { &mut self.in_bytes } else { &mut self.in_time };
        let mut all = std::mem::take(&mut course.snapshots);
        let place = all.iter().take_while(|snapshot| before(snapshot)).count();
        all.insert(place, std::mem::take(&mut self.peak));
        all.push(self.now.clone());
        (all, place)
    }
}

impl<W: Write> Late for Massif<W> {
    fn note(&mut self, _: &Event, ns: u64, analysis: &Analysis) {
        let live = analysis.live_bytes();
        self.now.ns = self.now.ns.max(ns);
        self.now.moved = self.now.moved.saturating_add(live.abs_diff(self.now.live));
        self.now.live = live;
        self.now.extra = analysis.live_rounding();
        if live > self.peak.live {
            self.peak = self.now.clone();
        }
        for (course, now) in [(&mut self.in_time, self.now.ns), (&mut self.in_bytes, self.now.moved)] {
            if course.is_due(now) {
                let stacks = course.is_detailed().then(|| analysis.live_by_stack().collect());
                course.add(now, Snapshot { stacks, ..self.now.clone() });
            }
        }
    }

    fn write(&mut self, whole: &mut Whole, losses: &mut Losses) -> std::io::Result<()> {
        let is_cut = |site: &&Site| whole.stacks.is_deeper(site.stack, DEEPEST);
        whole.summary.sites.iter().filter(is_cut).for_each(|_| losses.cut());
        let in_bytes = self.by_bytes || self.now.ns < SHORT_NS;
        let (snapshots, peak) = self.snapshots(whole, in_bytes);
        let to = &mut self.output;
        writeln!(to, "desc: quarry convert{}", of_sample(whole.summary.means))?;
        writeln!(to, "cmd: {}", plain(&self.command))?;
        writeln!(to, "time_unit: {}", if in_bytes { "B" } else { "ms" })?;
        let mut trees = Trees { whole, folding: &self.folding, labels: Labels::default() };
        for (number, snapshot) in snapshots.iter().enumerate() {
            let time = if in_bytes { snapshot.moved } else { snapshot.ns / 1_000_000 };
            writeln!(to, "#-----------\nsnapshot={number}\n#-----------\ntime={time}")?;
            writeln!(
                to,
                "mem_heap_B={}\nmem_heap_extra_B={}\nmem_stacks_B=0",
                snapshot.live, snapshot.extra
            )?;
            match &snapshot.stacks {
                Some(stacks) if snapshot.live > 0 => {
                    writeln!(to, "heap_tree={}", if number == peak { "peak" } else { "detailed" })?;
                    trees.write(to, stacks)?;
                }
                _ => writeln!(to, "heap_tree=empty")?,
            }
        }
        to.flush()
    }
}

fn of_sample(means: Means) -> String {
    if means.most == 0 {
        return String::new();
    }
    format!(", estimates from a sample of one byte in {}", means.words(|mean| mean.to_string()))
}

/// ms_print takes what follows a # for a comment, and lines end at a newline.
fn plain(text: &str) -> String {
    let plain = |c: char| match c {
        '#' => '.',
        c if c.is_control() => '?',
        c => c,
    };
    text.chars().map(plain).collect()
}

/// What frames are called, each once.
#[derive(Default)]
struct Labels {
    numbers: HashMap<String, u32>,
    texts: Vec<String>,
}

impl Labels {
    fn number(&mut self, text: String) -> u32 {
        if let Some(&number) = self.numbers.get(&text) {
            return number;
        }
        let number = self.texts.len() as u32;
        self.texts.push(text.clone());
        self.numbers.insert(text, number);
        number
    }
}

/// Bytes by function, then by caller, and so on.
#[derive(Default)]
struct Node {
    bytes: u64,
    /// By label.
    callers: HashMap<u32, Node>,
}

/// Writes trees.
struct Trees<'w> {
    whole: &'w mut Whole,
    folding: &'w Folding,
    labels: Labels,
}

impl Trees<'_> {
    /// The labels of a stack, the innermost first; never none.
    fn path(&mut self, stack: StackId) -> Vec<u32> {
        let (mut frames, mut at) = (Vec::new(), Vec::new());
        for node in self.whole.stacks.frames(stack).take(DEEPEST) {
            let found = self.whole.symbols.frames(&node);
            // Within the call, not behind it.
            at.extend(std::iter::repeat_n(node.pc.wrapping_sub(u64::from(node.is_return)), found.len()));
            frames.extend_from_slice(&found);
        }
        let first = self.folding.site(&frames);
        // What calls main is the same in every program, and massif leaves it out.
        let main = frames.iter().rposition(|frame| frame.function.as_deref() == Some("main"));
        let end = main.map_or(frames.len(), |main| main + 1).max(first);
        let path: Vec<u32> = frames[first..end]
            .iter()
            .zip(&at[first..end])
            .map(|(frame, pc)| self.labels.number(label(*pc, frame)))
            .collect();
        if path.is_empty() { vec![self.labels.number(UNKNOWN.into())] } else { path }
    }

    fn write(&mut self, to: &mut impl Write, stacks: &[(StackId, u64)]) -> std::io::Result<()> {
        let mut root = Node::default();
        for &(stack, bytes) in stacks.iter().filter(|(_, bytes)| *bytes > 0) {
            root.bytes += bytes;
            let mut node = &mut root;
            for label in self.path(stack) {
                node = node.callers.entry(label).or_default();
                node.bytes += bytes;
            }
        }
        let least = (root.bytes as f64 * THRESHOLD).ceil() as u64;
        write_node(to, &self.labels, &root, None, 0, least)
    }
}

fn write_node(
    to: &mut impl Write,
    labels: &Labels,
    node: &Node,
    label: Option<u32>,
    depth: usize,
    least: u64,
) -> std::io::Result<()> {
    const ROOT: &str = "(heap allocation functions) malloc/new/new[], --alloc-fns, etc.";
    let text = |label: u32| labels.texts[label as usize].as_str();
    let (mut shown, small): (Vec<_>, Vec<_>) = node.callers.iter().partition(|(_, node)| node.bytes >= least);
    shown.sort_by_key(|(label, node)| (std::cmp::Reverse(node.bytes), text(**label)));
    let count = shown.len() + usize::from(!small.is_empty());
    let name = label.map_or(ROOT, text);
    writeln!(to, "{:depth$}n{count}: {} {name}", "", node.bytes)?;
    for (&label, node) in shown {
        write_node(to, labels, node, Some(label), depth + 1, least)?;
    }
    if small.is_empty() {
        return Ok(());
    }
    let (bytes, places) = (small.iter().map(|(_, node)| node.bytes).sum::<u64>(), small.len());
    let (depth, s) = (depth + 1, if places == 1 { "" } else { "s" });
    let percent = THRESHOLD * 100.0;
    writeln!(
        to,
        "{:depth$}n0: {bytes} in {places} place{s}, all below massif's threshold ({percent:.2}%)",
        ""
    )
}

/// "0x109149: leaks (a.c:2)", "0x4C2AB80: f (in /lib/libf.so)", "0x4C2AB80: ???".
fn label(pc: u64, frame: &Frame) -> String {
    let function = frame.function.as_deref().unwrap_or("???");
    let source = frame.file.as_deref().map(|file| file.rsplit('/').next().unwrap_or(file));
    let place = match (source, frame.line) {
        (Some(file), Some(line)) => format!(" ({file}:{line})"),
        (Some(file), None) => format!(" ({file})"),
        (None, _) if !frame.module.is_empty() => format!(" (in {})", frame.module),
        (None, _) => String::new(),
    };
    plain(&format!("{pc:#X}: {function}{place}"))
}
