// SPDX-License-Identifier: MIT
//! Writes data files as heaptrack leaves them: interpreted, version 3. heaptrack_print and heaptrack_gui read them.
//!
//! Interpreted means that functions, source files and lines stand in it. They are those that are in the trace. What has none there
//! is looked up here, in the files that the trace names, as far as these are those that were mapped.

use std::io::Write;
use std::rc::Rc;

use quarry_symbols::{Frame, Names, Symbols};
use quarry_trace::{End, Event, FreeApi, Head, StackNode, What};

use super::{Error, Item, Losses, Sink};
use crate::hash::Map;

/// The version of heaptrack whose files these are: 1.3, in base 16.
const HEAPTRACK: u64 = 0x10300;

/// What an instruction was told to be, and its number.
type Known = (Rc<[Frame]>, u32);

/// Writes a data file of heaptrack.
pub struct HeaptrackSink<W: Write> {
    output: W,
    page: u64,
    names: Map<String, u32>,
    symbols: Symbols,
    /// Numbers of instructions, until modules come or go. At one address there may be several, of files that came and went.
    pcs: Map<(u64, bool), Vec<Known>>,
    pc_count: u32,
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
    /// Write the head. `names`: those that are in the trace.
    pub fn new(output: W, head: &Head, names: Names) -> Result<Self, Error> {
        let page = if head.page == 0 { 4096 } else { head.page };
        let mut sink = Self {
            output,
            page,
            names: Map::default(),
            symbols: Symbols::named(names).recorded_at(head.start_unix_ns),
            pcs: Map::default(),
            pc_count: 0,
            stacks: Map::default(),
            kinds: Map::default(),
            live: Map::default(),
            stamp: 0,
            first: None,
            losses: Losses::default(),
        };
        let command = head.command_line().replace(|c: char| c.is_control(), " ");
        let version = super::heaptrack::VERSION;
        sink.line(format_args!("v {HEAPTRACK:x} {version:x}"))?;
        sink.line(format_args!("X {}", if command.is_empty() { "?" } else { &command }))?;
        sink.line(format_args!("I {page:x} 0"))?;
        Ok(sink)
    }

    fn line(&mut self, text: std::fmt::Arguments) -> Result<(), Error> {
        writeln!(self.output, "{text}").map_err(Error::Write)
    }

    /// The number of a name, from 1; 0: none.
    fn name(&mut self, name: &str) -> Result<u32, Error> {
        if name.is_empty() {
            return Ok(0);
        }
        if let Some(&number) = self.names.get(name) {
            return Ok(number);
        }
        let number = self.names.len() as u32 + 1;
        self.names.insert(name.to_owned(), number);
        let name = name.replace('\n', " ");
        self.line(format_args!("s {:x} {name}", name.len()))?;
        Ok(number)
    }

    /// The number of the instruction of a frame: its address, its file, then the function with source file and line, and those
    /// that it was inlined into.
    fn pc(&mut self, node: &StackNode) -> Result<u32, Error> {
        let key = (node.pc, node.is_return);
        let frames = self.symbols.frames(node);
        let known = self.pcs.get(&key).and_then(|known| known.iter().find(|(of, _)| *of == frames));
        if let Some(&(_, number)) = known {
            return Ok(number);
        }
        let module = self.name(&frames.first().map_or_else(String::new, |frame| frame.module.clone()))?;
        let mut behind = String::new();
        for Frame { function, file, line, .. } in frames.iter() {
            let Some(function) = function else { break };
            let function = self.name(function)?;
            behind += &format!(" {function:x}");
            match file {
                Some(file) => behind += &format!(" {:x} {:x}", self.name(file)?, line.unwrap_or(0)),
                // Only of the outermost one, behind which nothing follows, may the file be missing.
                None => break,
            }
        }
        // As heaptrack has it: within the call, not behind it.
        let pc = node.pc.wrapping_sub(u64::from(node.is_return));
        self.pc_count += 1;
        self.pcs.entry(key).or_default().push((frames, self.pc_count));
        self.line(format_args!("i {pc:x} {module:x}{behind}"))?;
        Ok(self.pc_count)
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
            What::ModuleLoaded { .. } | What::ModuleUnloaded { .. } => {
                self.symbols.note(event);
                self.pcs.clear();
                Ok(())
            }
            What::Clock { .. } => Ok(()),
            what => {
                self.losses.left_out(what);
                Ok(())
            }
        }
    }
}

impl<W: Write> Sink for HeaptrackSink<W> {
    fn item(&mut self, item: &Item) -> Result<(), Error> {
        match item {
            Item::Stack(_, node) => {
                let pc = self.pc(node)?;
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
