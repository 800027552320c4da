// SPDX-License-Identifier: MIT
//! heaptrack's data files: a letter and numbers of base 16 on each line.
//!
//! Both kinds are read. An *interpreted* file, what heaptrack leaves by default, has neither addresses nor threads:
//! a free only says the size and the stack of a block, so of all blocks of this size and stack the youngest is
//! freed, and addresses are made up. A *raw* file (heaptrack --raw) has addresses. Neither has threads, or times finer
//! than 10 ms; a reallocation is a free and an allocation there, and alignments and what was called are not told. The
//! names of functions and source files of an interpreted file become names of the trace's stacks.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use quarry_symbols::{Name, Names, demangled};
use quarry_trace::{AllocApi, FreeApi, Head, StackNode, What};
use serde_json::json;

use super::files;
use super::input::{Input, Lines, Taken, shown};
use super::text::{Queue, Text, TextSource};
use super::{Error, synthetic};
use crate::space::Space;

pub use super::heaptrack_write::HeaptrackSink;

/// The newest version of the files that is known.
pub const VERSION: u64 = 3;

/// Numbers and texts of a line.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn word(&mut self) -> Option<&'a [u8]> {
        let rest = self.0.trim_ascii_start();
        let end = rest.iter().position(|&byte| byte == b' ').unwrap_or(rest.len());
        let (word, rest) = rest.split_at(end);
        self.0 = rest;
        (!word.is_empty()).then_some(word)
    }

    fn number(&mut self) -> Option<u64> {
        let word = str::from_utf8(self.word()?).ok()?;
        u64::from_str_radix(word, 16).ok().filter(|_| !word.starts_with('+'))
    }

    fn index(&mut self) -> Option<u32> {
        self.number()?.try_into().ok()
    }

    /// A text: in newer files its length stands before it.
    fn text(&mut self, sized: bool) -> Option<String> {
        let bytes = if sized {
            let length = usize::try_from(self.number()?).ok()?;
            let rest = self.0.strip_prefix(b" ")?;
            let (text, rest) = (rest.get(..length)?, &rest[length..]);
            self.0 = rest;
            text
        } else {
            self.word()?
        };
        Some(String::from_utf8_lossy(bytes).into_owned())
    }
}

/// "I 1000 5f1d9e": how large pages are, and how many there are.
fn is_system(line: &[u8]) -> bool {
    let Some(rest) = line.strip_prefix(b"I ") else { return false };
    let mut fields = Fields(rest);
    fields.number().is_some() && fields.number().is_some() && fields.word().is_none()
}

/// An instruction as a line has it: its address, and what is known of it.
struct Instruction {
    pc: u64,
    names: Arc<[Name]>,
    module: Option<Arc<str>>,
}

/// Reads a data file of heaptrack.
pub type HeaptrackSource = TextSource<Heaptrack>;

/// What is known of the lines before.
pub struct Heaptrack {
    lines: Lines,
    version: u64,
    raw: bool,
    page: u64,
    program: String,
    command: Vec<String>,
    /// The first line behind the head waits in `lines`.
    held: bool,
    /// When the file was written last.
    written: Option<SystemTime>,
    /// Names of functions, source files and modules, by index from 1.
    strings: Vec<Arc<str>>,
    /// By index from 1.
    instructions: Vec<Instruction>,
    stacks: u32,
    names: Names,
    /// Size and stack, by index from 0, and the blocks of this kind that live.
    kinds: Vec<(u64, u32, Vec<u64>)>,
    space: Space,
    modules: Vec<u64>,
    /// Files that are not believed, in words.
    refused: Vec<String>,
    unknown_frees: u64,
}

impl HeaptrackSource {
    /// Read the head.
    pub fn new(input: Input) -> Result<Self, Error> {
        let mut text = Heaptrack::new(input);
        text.read_head()?;
        let head = Head {
            stacks: "heaptrack".into(),
            program: text.program.clone(),
            command: text.command.clone(),
            page: text.page,
            ..synthetic("quarry convert, from heaptrack")
        };
        Ok(Self::begin(head, text))
    }

    /// Is it a raw file?
    pub fn is_raw(&self) -> bool {
        self.text().raw
    }
}

impl Heaptrack {
    fn new(input: Input) -> Self {
        let written = input.modified();
        Self {
            lines: Lines::new(input),
            version: 0,
            raw: false,
            page: 4096,
            program: String::new(),
            command: Vec::new(),
            held: false,
            written,
            strings: Vec::new(),
            instructions: Vec::new(),
            stacks: 0,
            names: Names::default(),
            kinds: Vec::new(),
            space: Space::new(),
            modules: Vec::new(),
            refused: Vec::new(),
            unknown_frees: 0,
        }
    }

    fn read_head(&mut self) -> Result<(), Error> {
        // None of these lines is an event.
        let mut nothing = Queue::default();
        while self.lines.advance()? {
            if !matches!(
                self.lines.line().first(),
                None | Some(b'v' | b'x' | b'X' | b'I' | b'S' | b'A' | b'#')
            ) {
                self.held = true;
                break;
            }
            let is_command = self.command.is_empty() && self.lines.line().first() == Some(&b'X');
            self.read_line(&mut nothing)?;
            if is_command {
                self.read_rest_of_command(&mut nothing)?;
            }
        }
        if self.version == 0 || self.version > VERSION {
            let what = format!(
                "version {} of heaptrack's files is not known (1 to {VERSION} are); read it with heaptrack itself",
                self.version
            );
            return Err(Error::line(1, what));
        }
        Ok(())
    }

    /// A command may have newlines in it. What stands before the next line that heaptrack writes belongs to it. Where no such line
    /// follows, as in files of other tools, the lines are what they seem.
    fn read_rest_of_command(&mut self, nothing: &mut Queue) -> Result<(), Error> {
        /// The kernel takes no longer ones by default.
        const MOST: usize = 2 << 20;
        let (mut lines, mut bytes): (Vec<Taken>, usize) = (Vec::new(), 0);
        while bytes < MOST && self.lines.advance()? {
            if is_system(self.lines.line()) {
                for (line, _) in lines {
                    self.command_goes_on(&line);
                }
                return self.read_line(nothing);
            }
            let line = self.lines.take();
            bytes += line.0.len() + 1;
            lines.push(line);
        }
        self.lines.again(lines);
        Ok(())
    }

    /// Its words are parted by blanks, and the newline is within one.
    fn command_goes_on(&mut self, line: &[u8]) {
        let line = String::from_utf8_lossy(line);
        let mut words = line.split(' ');
        if let Some((last, first)) = self.command.last_mut().zip(words.next()) {
            *last += &format!("\n{first}");
        }
        self.command.extend(words.map(str::to_owned));
    }

    fn read_line(&mut self, queue: &mut Queue) -> Result<(), Error> {
        // Of its last number digits may be missing.
        if !self.lines.line().is_empty() && self.lines.is_part() {
            return Ok(());
        }
        let line = std::mem::take(self.lines.line_mut());
        let understood = self.understand(&line, queue);
        *self.lines.line_mut() = line;
        understood.or_else(|what| self.lines.refuse(what))
    }

    /// Take note of a line; what is wrong with it.
    fn understand(&mut self, line: &[u8], queue: &mut Queue) -> Result<(), String> {
        let Some((&mode, rest)) = line.split_first() else { return Ok(()) };
        let mut fields = Fields(rest);
        let fields = &mut fields;
        let done = match mode {
            b'v' if self.version > 0 => {
                self.lines.end_before_another();
                Some(())
            }
            b'v' => self.read_version(fields),
            b'x' => {
                self.raw = true;
                self.program = fields.text(self.version >= 3).unwrap_or_default();
                Some(())
            }
            b'X' => {
                let command = String::from_utf8_lossy(rest.trim_ascii()).into_owned();
                let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
                if self.program.is_empty() {
                    self.program = words[0].clone();
                }
                self.command = words;
                Some(())
            }
            b'I' => {
                fields.number().filter(|&page| (1..=1 << 30).contains(&page)).map(|page| self.page = page)
            }
            b'a' => self.read_kind(fields),
            b'+' if self.raw => self.read_raw_alloc(fields, queue),
            b'-' if self.raw => self.read_raw_free(fields, queue),
            b'+' => self.read_alloc(fields, queue),
            b'-' => self.read_free(fields, queue),
            b't' => self.read_stack(fields, queue)?,
            b'i' => self.read_instruction(fields),
            b'm' => self.read_module(fields, queue),
            b'c' => fields.number().map(|ms| queue.not_before(ms.saturating_mul(1_000_000))),
            b'R' => fields.number().map(|pages| {
                let anonymous = pages.saturating_mul(self.page);
                queue.event(What::Memory { anonymous, file: 0 });
            }),
            b's' => fields.text(self.version >= 3).map(|text| self.strings.push(text.into())),
            b'S' | b'A' | b'#' => Some(()),
            _ => return Err(format!("'{}' is no line of heaptrack", shown(line))),
        };
        done.ok_or_else(|| format!("'{}' lacks a number, or has one that cannot be", shown(line)))
    }

    fn read_version(&mut self, fields: &mut Fields) -> Option<()> {
        let program = fields.number()?;
        // Before there was a version of its own, the program's stood for it.
        self.version = fields.number().unwrap_or(u64::from(program == 0x10200));
        Some(())
    }

    fn string(&self, index: u64) -> Option<Arc<str>> {
        self.strings
            .get(usize::try_from(index).ok()?.checked_sub(1)?)
            .filter(|text| !text.is_empty())
            .cloned()
    }

    /// Its address, its module, then function, source file and line: of itself, and of what it was inlined into. Of the
    /// last one the file may be missing.
    fn read_instruction(&mut self, fields: &mut Fields) -> Option<()> {
        let pc = fields.number()?;
        let module = fields.number().and_then(|index| self.string(index));
        let mut names = Vec::new();
        while let Some(function) = fields.number() {
            let (file, line) = (fields.number().unwrap_or(0), fields.number().unwrap_or(0));
            let function = self.string(function).map(|name| demangled(&name).into());
            let line = u32::try_from(line).ok().filter(|line| *line > 0);
            names.extend(function.is_some().then(|| Name { function, file: self.string(file), line }));
        }
        self.instructions.push(Instruction { pc, names: names.into(), module });
        Some(())
    }

    fn read_kind(&mut self, fields: &mut Fields) -> Option<()> {
        let (size, stack) = (fields.number()?, fields.index()?);
        (stack <= self.stacks).then(|| self.kinds.push((size, stack, Vec::new())))
    }

    fn read_alloc(&mut self, fields: &mut Fields, queue: &mut Queue) -> Option<()> {
        let (size, stack, live) = self.kinds.get_mut(fields.number()? as usize)?;
        let (size, stack) = (*size, *stack);
        let what = match self.space.take(size, 0) {
            Some(address) => {
                live.push(address);
                What::Alloc { api: AllocApi::Malloc, size, address, align: 0, stack }
            }
            None => What::Failed { api: AllocApi::Malloc, size },
        };
        queue.event(what);
        Some(())
    }

    fn read_free(&mut self, fields: &mut Fields, queue: &mut Queue) -> Option<()> {
        let (size, _, live) = self.kinds.get_mut(fields.number()? as usize)?;
        match live.pop() {
            Some(address) => {
                self.space.give(address, *size, 0);
                queue.event(What::Free { api: FreeApi::Free, address, touched: None });
            }
            None => self.unknown_frees += 1,
        }
        Some(())
    }

    fn read_raw_alloc(&mut self, fields: &mut Fields, queue: &mut Queue) -> Option<()> {
        let (size, stack, address) = (fields.number()?, fields.index()?, fields.number()?);
        if stack > self.stacks {
            return None;
        }
        queue.event(What::Alloc { api: AllocApi::Malloc, size, address, align: 0, stack });
        Some(())
    }

    fn read_raw_free(&mut self, fields: &mut Fields, queue: &mut Queue) -> Option<()> {
        let address = fields.number()?;
        queue.event(What::Free { api: FreeApi::Free, address, touched: None });
        Some(())
    }

    fn read_stack(&mut self, fields: &mut Fields, queue: &mut Queue) -> Result<Option<()>, String> {
        let (Some(at), Some(parent)) = (fields.number(), fields.index()) else { return Ok(None) };
        let index = usize::try_from(at).ok().and_then(|index| index.checked_sub(1));
        let instruction = index.and_then(|index| self.instructions.get(index));
        let pc = match instruction {
            _ if self.raw => at,
            Some(instruction) => instruction.pc,
            None => return Err("names an instruction that is not defined before".into()),
        };
        if parent > self.stacks {
            return Err(format!(
                "names the stack {parent:x}, and there are only {:x} before it",
                self.stacks
            ));
        }
        self.stacks = self.stacks.checked_add(1).ok_or("is one stack too many")?;
        if let Some(instruction) = instruction.filter(|_| !self.raw) {
            self.names.insert_placed(self.stacks, &instruction.names, instruction.module.as_deref());
        }
        // heaptrack takes one from return addresses.
        queue.stack(StackNode { id: self.stacks, parent, pc, is_return: false });
        Ok(Some(()))
    }

    /// Raw files only: the file, where it is loaded, and its segments. `-` means that all that follow are given anew.
    fn read_module(&mut self, fields: &mut Fields, queue: &mut Queue) -> Option<()> {
        let name = fields.text(self.version >= 3)?;
        if name == "-" {
            for base in std::mem::take(&mut self.modules) {
                let about = format!(r#"{{"nodes":{}}}"#, self.stacks);
                queue.event(What::ModuleUnloaded { base, about });
            }
            return Some(());
        }
        let path = if name == "x" { self.program.clone() } else { name };
        let base = fields.number()?;
        let mut segments = Vec::new();
        while let Some(address) = fields.number() {
            segments.push((address, fields.number()?, 0));
        }
        self.modules.push(base);
        let mut about = json!({"path": path, "segments": segments, "nodes": self.stacks});
        let proof = files::Proof::of(Path::new(&path), self.written);
        proof.tell(&mut about);
        if let Some(remark) = proof.remark().filter(|remark| !self.refused.contains(remark)) {
            self.refused.push(remark);
        }
        queue.event(What::ModuleLoaded { base, about: about.to_string() });
        Some(())
    }
}

impl Text for Heaptrack {
    fn advance(&mut self, queue: &mut Queue) -> Result<bool, Error> {
        if !std::mem::take(&mut self.held) && !self.lines.advance()? {
            return Ok(false);
        }
        self.read_line(queue)?;
        Ok(true)
    }

    fn done(&self) -> u64 {
        self.lines.input().done()
    }

    fn length(&self) -> u64 {
        self.lines.input().length()
    }

    fn remarks(&self, queue: &Queue) -> Vec<String> {
        let mut remarks = self.lines.remarks();
        if self.unknown_frees > 0 {
            remarks.push(format!(
                "{} frees of blocks that were not allocated were left out",
                self.unknown_frees
            ));
        }
        remarks.extend(self.refused.iter().cloned());
        if !self.raw && queue.events() > 2 {
            remarks.push(String::from(
                "addresses are made up: an interpreted file has none (heaptrack --raw has)",
            ));
        }
        remarks
    }

    fn is_cut(&self) -> bool {
        self.lines.is_cut()
    }

    fn names(&self) -> Names {
        self.names.clone()
    }
}
