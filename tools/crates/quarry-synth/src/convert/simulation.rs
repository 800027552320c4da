// SPDX-License-Identifier: MIT
//! Simulation files as traces, and traces as simulation files.
//!
//! Read, a slot's block gets an address as a simple allocator would give it, each command takes a tick, and all
//! happens on one thread. Written, each block gets the lowest slot that is empty; threads, times, functions,
//! alignments and stacks are lost.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::Write;

use quarry_trace::{AllocApi, End, Event, FreeApi, What};

use super::input::{Input, cut_off};
use super::text::{Queue, Text, TextSource};
use super::{Error, Item, Losses, Sink, synthetic};
use crate::hash::Map;
use crate::ms::{Command, Options, Reader, SLOTS, WIDE_SLOTS, Writer};
use crate::space::Space;

/// Reads a simulation file.
pub type MsSource = TextSource<Simulation>;

/// What is known of the commands before.
pub struct Simulation {
    input: Reader<Input>,
    length: u64,
    /// Address and size of what is in a slot.
    slots: Map<u32, (u64, u64)>,
    space: Space,
    /// The line at which packed data ended early.
    cut: Option<u64>,
}

impl MsSource {
    /// Begin to read.
    pub fn new(input: Input, options: Options) -> Self {
        let length = if input.packed().is_empty() { input.length() } else { 0 };
        let input = Reader::new(input, options);
        let text = Simulation { input, length, slots: Map::default(), space: Space::new(), cut: None };
        Self::begin(synthetic("quarry convert, from a simulation file"), text)
    }
}

impl Simulation {
    fn alloc(&mut self, slot: u32, size: u64) -> What {
        match self.slots.get(&slot).copied() {
            None => match self.space.take(size, 0) {
                Some(address) => {
                    self.slots.insert(slot, (address, size));
                    What::Alloc { api: AllocApi::Malloc, size, address, align: 0, stack: 0 }
                }
                None => What::Failed { api: AllocApi::Malloc, size },
            },
            Some((old, before)) => match self.space.resize(old, before, size, 0) {
                Some(new) => {
                    self.slots.insert(slot, (new, size));
                    What::Realloc { took: 0, old, size, new, stack: 0 }
                }
                None => What::Failed { api: AllocApi::Realloc, size },
            },
        }
    }

    fn free(&mut self, slot: u32) -> What {
        match self.slots.remove(&slot) {
            Some((address, size)) => {
                self.space.give(address, size, 0);
                What::Free { api: FreeApi::Free, address, touched: None }
            }
            None => What::Free { api: FreeApi::Null, address: 0, touched: None },
        }
    }
}

impl Text for Simulation {
    fn advance(&mut self, queue: &mut Queue) -> Result<bool, Error> {
        let command = self.input.next_command();
        if self.input.at_end() && self.input.input().is_cut() {
            // Of its last word nobody knows how it goes on.
            self.cut = Some(self.input.line());
            return Ok(false);
        }
        let what = match command? {
            Some(Command::Alloc { slot, size }) => self.alloc(slot, size),
            Some(Command::Free { slot }) => self.free(slot),
            Some(Command::Stats) => What::Mark("stats".into()),
            Some(Command::End) | None => return Ok(false),
        };
        queue.event(what);
        Ok(true)
    }

    fn done(&self) -> u64 {
        self.input.offset()
    }

    fn length(&self) -> u64 {
        self.length
    }

    fn remarks(&self, _: &Queue) -> Vec<String> {
        self.cut.map(cut_off).into_iter().collect()
    }

    fn is_cut(&self) -> bool {
        // Of a plain file nobody knows: a number that is cut is a number.
        self.cut.is_some()
    }
}

/// Writes a simulation file.
pub struct MsSink<W: Write> {
    /// `None` after the end.
    output: Option<Writer<W>>,
    slots: u32,
    /// The slot of a block.
    live: Map<u64, u32>,
    /// Empty slots below `used`.
    empty: BinaryHeap<Reverse<u32>>,
    used: u32,
    first: Option<u32>,
    losses: Losses,
}

impl<W: Write> MsSink<W> {
    /// Begin to write.
    pub fn new(output: W, options: Options) -> Self {
        Self {
            output: Some(Writer::new(output)),
            slots: if options.wide { WIDE_SLOTS } else { SLOTS },
            live: Map::default(),
            empty: BinaryHeap::new(),
            used: 0,
            first: None,
            losses: Losses::default(),
        }
    }

    fn put(&mut self, command: Command) -> Result<(), Error> {
        self.output.as_mut().map_or(Ok(()), |output| output.command(command)).map_err(Error::Write)
    }

    fn new_slot(&mut self) -> Result<u32, Error> {
        if let Some(Reverse(slot)) = self.empty.pop() {
            return Ok(slot);
        }
        if self.used == self.slots {
            return Err(Error::Slots(self.slots));
        }
        self.used += 1;
        Ok(self.used - 1)
    }

    fn alloc(&mut self, address: u64, size: u64) -> Result<(), Error> {
        if self.live.contains_key(&address) {
            self.losses.add("frees that are missing from the trace");
            self.free(address)?;
        }
        let slot = self.new_slot()?;
        self.live.insert(address, slot);
        self.put(Command::Alloc { slot, size })
    }

    fn free(&mut self, address: u64) -> Result<(), Error> {
        match self.live.remove(&address) {
            Some(slot) => {
                self.empty.push(Reverse(slot));
                self.put(Command::Free { slot })
            }
            None => {
                self.losses.add("frees of unknown blocks");
                Ok(())
            }
        }
    }

    fn event(&mut self, event: &Event) -> Result<(), Error> {
        match &event.what {
            What::Alloc { api, size, address, align, stack } => {
                if *api != AllocApi::Malloc {
                    self.losses.add("functions other than malloc, realloc and free");
                }
                if *align > 0 {
                    self.losses.add("alignments");
                }
                if *stack != 0 {
                    self.losses.add("stacks");
                }
                self.alloc(*address, *size)
            }
            What::Free { api: FreeApi::Null, .. } => {
                // The free of an empty slot; there is always one, but for a file that is full.
                let slot = self.empty.peek().map_or(self.used, |Reverse(slot)| *slot);
                if slot == self.slots {
                    self.losses.add("free(NULL)");
                    return Ok(());
                }
                self.put(Command::Free { slot })
            }
            What::Free { address, .. } => self.free(*address),
            What::Realloc { old, size, new, .. } => {
                let Some(slot) = self.live.remove(old) else {
                    self.losses.add("reallocations of unknown blocks, which become allocations");
                    return self.alloc(*new, *size);
                };
                if let Some(lost) = self.live.insert(*new, slot) {
                    self.losses.add("frees that are missing from the trace");
                    self.empty.push(Reverse(lost));
                    self.put(Command::Free { slot: lost })?;
                }
                self.put(Command::Alloc { slot, size: *size })
            }
            What::Mark(text) if text == "stats" => self.put(Command::Stats),
            what => {
                self.losses.left_out(what);
                Ok(())
            }
        }
    }
}

impl<W: Write> Sink for MsSink<W> {
    fn item(&mut self, item: &Item) -> Result<(), Error> {
        let Item::Event(event, _) = item else { return Ok(()) };
        self.losses.thread(&mut self.first, event.thread);
        self.event(event)
    }

    fn finish(&mut self, _: &End) -> Result<(), Error> {
        match self.output.take() {
            Some(output) => output.finish().map(drop).map_err(Error::Write),
            None => Ok(()),
        }
    }

    fn losses(&self) -> &Losses {
        &self.losses
    }
}
