// SPDX-License-Identifier: MIT
//! Writes data files as heaptrack leaves them: interpreted, version 3. heaptrack_print and heaptrack_gui read them.

use std::io::Write;

use quarry_trace::{End, Event, FreeApi, Head, What};
use serde::Deserialize;

use super::{Error, Item, Losses, Sink};
use crate::hash::Map;

/// The version of heaptrack whose files these are: 1.3, in base 16.
const HEAPTRACK: u64 = 0x10300;

/// A file that is mapped.
struct Module {
    base: u64,
    /// First and last address.
    ranges: Vec<(u64, u64)>,
    name: u32,
}

/// What the format says of a module.
#[derive(Deserialize)]
struct About {
    #[serde(default)]
    path: String,
    #[serde(default)]
    segments: Vec<(u64, u64, u64)>,
}

/// Writes a data file of heaptrack.
pub struct HeaptrackSink<W: Write> {
    output: W,
    page: u64,
    names: Map<String, u32>,
    modules: Vec<Module>,
    pcs: Map<u64, u32>,
    /// heaptrack's number of each of our stacks.
    stacks: Map<u32, u32>,
    kinds: Map<(u64, u32), u32>,
    live: Map<u64, u32>,
    /// Milliseconds of the last time stamp.
    stamp: u64,
    first: Option<u32>,
    losses: Losses,
}

impl<W: Write> HeaptrackSink<W> {
    /// Write the head.
    pub fn new(output: W, head: &Head) -> Result<Self, Error> {
        let page = if head.page == 0 { 4096 } else { head.page };
        let mut sink = Self {
            output,
            page,
            names: Map::default(),
            modules: Vec::new(),
            pcs: Map::default(),
            stacks: Map::default(),
            kinds: Map::default(),
            live: Map::default(),
            stamp: 0,
            first: None,
            losses: Losses::default(),
        };
        let command = if head.command.is_empty() { head.program.clone() } else { head.command.join(" ") };
        let command = command.replace(|c: char| c.is_control(), " ");
        let version = super::heaptrack::VERSION;
        sink.line(format_args!("v {HEAPTRACK:x} {version:x}"))?;
        sink.line(format_args!("X {}", if command.is_empty() { "?" } else { &command }))?;
        sink.line(format_args!("I {page:x} 0"))?;
        Ok(sink)
    }

    fn line(&mut self, text: std::fmt::Arguments) -> Result<(), Error> {
        writeln!(self.output, "{text}").map_err(Error::Write)
    }

    /// The number of a name, from 1.
    fn name(&mut self, name: &str) -> Result<u32, Error> {
        if let Some(&number) = self.names.get(name) {
            return Ok(number);
        }
        let number = self.names.len() as u32 + 1;
        self.names.insert(name.to_owned(), number);
        let name = name.replace('\n', " ");
        self.line(format_args!("s {:x} {name}", name.len()))?;
        Ok(number)
    }

    fn pc(&mut self, pc: u64) -> Result<u32, Error> {
        if let Some(&number) = self.pcs.get(&pc) {
            return Ok(number);
        }
        let holds =
            |module: &&Module| module.ranges.iter().any(|&(first, last)| (first..=last).contains(&pc));
        let module = self.modules.iter().rev().find(holds).map_or(0, |module| module.name);
        let number = self.pcs.len() as u32 + 1;
        self.pcs.insert(pc, number);
        self.line(format_args!("i {pc:x} {module:x}"))?;
        Ok(number)
    }

    fn alloc(&mut self, address: u64, size: u64, stack: u32) -> Result<(), Error> {
        let stack = self.stacks.get(&stack).copied().unwrap_or(0);
        let next = self.kinds.len() as u32;
        let kind = match self.kinds.get(&(size, stack)) {
            Some(&kind) => kind,
            None => {
                self.kinds.insert((size, stack), next);
                self.line(format_args!("a {size:x} {stack:x}"))?;
                next
            }
        };
        if let Some(lost) = self.live.insert(address, kind) {
            self.losses.add("frees that are missing from the trace");
            self.line(format_args!("- {lost:x}"))?;
        }
        self.line(format_args!("+ {kind:x}"))
    }

    fn free(&mut self, address: u64) -> Result<(), Error> {
        match self.live.remove(&address) {
            Some(kind) => self.line(format_args!("- {kind:x}")),
            None => {
                self.losses.add("frees of unknown blocks");
                Ok(())
            }
        }
    }

    fn event(&mut self, event: &Event) -> Result<(), Error> {
        match &event.what {
            What::Alloc { size, address, align, stack, .. } => {
                if *align > 0 {
                    self.losses.add("alignments");
                }
                self.alloc(*address, *size, *stack)
            }
            What::Free { api: FreeApi::Null, .. } => {
                self.losses.add("free(NULL)");
                Ok(())
            }
            What::Free { address, .. } => self.free(*address),
            What::Realloc { old, size, new, stack, .. } => {
                self.free(*old)?;
                self.alloc(*new, *size, *stack)
            }
            What::Memory { anonymous, file } => {
                let pages = anonymous.saturating_add(*file) / self.page;
                self.line(format_args!("R {pages:x}"))
            }
            What::ModuleLoaded { base, about } => self.module(*base, about),
            What::ModuleUnloaded { base, .. } => {
                self.modules.retain(|module| module.base != *base);
                Ok(())
            }
            What::ThreadBegin { .. } | What::ThreadEnd | What::ThreadGone | What::Clock { .. } => Ok(()),
            What::Failed { .. } => {
                self.losses.add("calls that failed");
                Ok(())
            }
            What::Pool { .. } => {
                self.losses.add("events of pools");
                Ok(())
            }
            _ => {
                self.losses.add("other events");
                Ok(())
            }
        }
    }

    fn module(&mut self, base: u64, about: &str) -> Result<(), Error> {
        let Ok(about) = serde_json::from_str::<About>(about) else {
            self.losses.add("modules that are not described as the format has it");
            return Ok(());
        };
        let name = self.name(&about.path)?;
        let range = |&(address, size, _): &(u64, u64, u64)| {
            let first = base.wrapping_add(address);
            (first, first.saturating_add(size.saturating_sub(1)))
        };
        let ranges = about.segments.iter().map(range).collect();
        self.modules.push(Module { base, ranges, name });
        Ok(())
    }
}

impl<W: Write> Sink for HeaptrackSink<W> {
    fn item(&mut self, item: &Item) -> Result<(), Error> {
        match item {
            Item::Stack(_, node) => {
                // As heaptrack has it: within the call, not behind it.
                let pc = self.pc(if node.is_return { node.pc.wrapping_sub(1) } else { node.pc })?;
                let parent = self.stacks.get(&node.parent).copied().unwrap_or(0);
                let number = self.stacks.len() as u32 + 1;
                self.stacks.insert(node.id, number);
                self.line(format_args!("t {pc:x} {parent:x}"))
            }
            Item::Event(event, ns) => {
                self.losses.thread(&mut self.first, event.thread);
                let ms = ns / 1_000_000;
                if ms > self.stamp {
                    self.stamp = ms;
                    self.line(format_args!("c {ms:x}"))?;
                }
                self.event(event)
            }
        }
    }

    fn finish(&mut self, _: &End) -> Result<(), Error> {
        self.output.flush().map_err(Error::Write)
    }

    fn losses(&self) -> &Losses {
        &self.losses
    }
}
