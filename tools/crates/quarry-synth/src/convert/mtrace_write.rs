// SPDX-License-Identifier: MIT
//! Writes lines as glibc's mtrace(3) does, so that mtrace(1) finds the callers in their files: `@ FILE:[0xADDRESS] + ...`, with
//! `(FUNCTION+OFFSET)` before the address where the file exports the function. Addresses are the file's own.

use std::collections::HashMap;
use std::io::Write;
use std::rc::Rc;

use quarry_symbols::Mapped;
use quarry_trace::{AllocApi, End, Event, FreeApi, Head, Module, StackNode, Trace, What};

use super::{Error, Item, Losses, Sink};
use crate::hash::Map;

/// Writes lines as mtrace does.
pub struct MtraceSink<W: Write> {
    output: W,
    modules: Vec<Module>,
    /// Files, as far as they are those that were mapped.
    files: HashMap<String, Option<Mapped>>,
    /// What each address is called, until modules come or go.
    known: Map<u64, Rc<str>>,
    /// The caller of each stack.
    stacks: Map<u32, Caller>,
    first: Option<u32>,
    losses: Losses,
}

/// The innermost frame of a stack.
enum Caller {
    Named(Rc<str>),
    /// No file has it so far: the trace may name the file later.
    Unknown(StackNode),
}

impl<W: Write> MtraceSink<W> {
    /// Begin to write.
    pub fn new(mut output: W, _: &Head) -> Result<Self, Error> {
        output.write_all(b"= Start\n").map_err(Error::Write)?;
        Ok(Self {
            output,
            modules: Vec::new(),
            files: HashMap::new(),
            known: Map::default(),
            stacks: Map::default(),
            first: None,
            losses: Losses::default(),
        })
    }

    fn line(&mut self, stack: u32, rest: std::fmt::Arguments) -> Result<(), Error> {
        if let Some(Caller::Unknown(node)) = self.stacks.get(&stack) {
            let node = *node;
            if let Some(name) = self.caller(&node) {
                self.stacks.insert(stack, Caller::Named(name));
            }
        }
        let done = match self.stacks.get(&stack) {
            Some(Caller::Named(name)) => writeln!(self.output, "@ {name} {rest}"),
            Some(Caller::Unknown(node)) => writeln!(self.output, "@ [{:#x}] {rest}", node.pc),
            None => writeln!(self.output, "{rest}"),
        };
        done.map_err(Error::Write)
    }

    /// "FILE:(FUNCTION+OFFSET)[0xADDRESS]"; `None`: no file has this address.
    fn caller(&mut self, node: &StackNode) -> Option<Rc<str>> {
        if let Some(name) = self.known.get(&node.pc) {
            return Some(name.clone());
        }
        let module = self.modules.iter().rev();
        let module = module.filter(|module| module.unloaded.is_none()).find(|module| module.holds(node))?;
        let address = node.pc.wrapping_sub(module.base);
        let function = match &module.function {
            Some(function) => {
                let mark = if function.marked { "0x" } else { "" };
                let (sign, distance) = match address.checked_sub(function.start) {
                    Some(distance) => ('+', distance),
                    None => ('-', function.start - address),
                };
                format!("({}{sign}{mark}{distance:x})", function.name)
            }
            None => {
                let open = || {
                    let mapped = Mapped::of(&module.file())?;
                    Some(mapped)
                        .filter(|mapped| !mapped.build_id.is_empty() && mapped.build_id == module.build_id)
                };
                let mapped = self.files.entry(module.path.clone()).or_insert_with(open);
                let found = mapped.as_ref().and_then(|mapped| mapped.exported(address));
                found.map_or_else(String::new, |(name, start)| format!("({name}+{:x})", address - start))
            }
        };
        // Who reads such files splits lines at blanks.
        let path = module.path.replace(|c: char| c.is_whitespace() || c.is_control(), "_");
        let name: Rc<str> = format!("{path}:{function}[{address:#x}]").into();
        self.known.insert(node.pc, name.clone());
        Some(name)
    }

    fn event(&mut self, event: &Event) -> Result<(), Error> {
        match &event.what {
            What::ModuleLoaded { .. } | What::ModuleUnloaded { .. } => {
                Trace::note_module(&mut self.modules, event);
                self.known.clear();
                Ok(())
            }
            What::Alloc { api, size, address, align, stack } => {
                if !matches!(api, AllocApi::Malloc | AllocApi::Realloc) {
                    self.losses.add("functions other than malloc, realloc and free");
                }
                if *align > 0 {
                    self.losses.add("alignments");
                }
                self.line(*stack, format_args!("+ {address:#x} {size:#x}"))
            }
            What::Free { api: FreeApi::Null, .. } => self.line(0, format_args!("- (nil)")),
            What::Free { address, .. } => self.line(0, format_args!("- {address:#x}")),
            What::Realloc { old, size, new, stack, .. } => {
                self.line(*stack, format_args!("< {old:#x}"))?;
                self.line(*stack, format_args!("> {new:#x} {size:#x}"))
            }
            What::Failed { api: AllocApi::Realloc, .. } => {
                self.losses.add("reallocations that failed");
                Ok(())
            }
            What::Failed { size, .. } => self.line(0, format_args!("+ (nil) {size:#x}")),
            what => {
                self.losses.left_out(what);
                Ok(())
            }
        }
    }
}

impl<W: Write> Sink for MtraceSink<W> {
    fn item(&mut self, item: &Item) -> Result<(), Error> {
        match item {
            Item::Event(event, _) => {
                self.losses.thread(&mut self.first, event.thread);
                self.event(event)
            }
            Item::Stack(_, node) => {
                if node.parent != 0 {
                    self.losses.add("frames above the caller");
                }
                let caller = self.caller(node).map_or(Caller::Unknown(*node), Caller::Named);
                self.stacks.insert(node.id, caller);
                Ok(())
            }
        }
    }

    fn finish(&mut self, _: &End) -> Result<(), Error> {
        self.output.write_all(b"= End\n").and_then(|()| self.output.flush()).map_err(Error::Write)
    }

    fn losses(&self) -> &Losses {
        &self.losses
    }
}
