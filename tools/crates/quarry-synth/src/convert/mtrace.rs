// SPDX-License-Identifier: MIT
//! What glibc's mtrace(3) writes: `@ CALLER + 0xADDRESS 0xSIZE` and so on, a call on each line.
//!
//! Read, each call takes a tick, all happens on one thread, and the caller's address becomes a stack of one frame;
//! a reallocation is two lines, `<` and `>`. Written, threads, times, functions, alignments, and the callers of
//! callers are lost.

use std::io::Write;

use quarry_trace::{AllocApi, End, FreeApi, Head, StackNode, What};

use super::input::{Input, Lines, shown};
use super::text::{Queue, Text, TextSource};
use super::{Error, Item, Losses, Sink, synthetic};
use crate::hash::Map;

/// A call, as its line has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Alloc {
        address: u64,
        size: u64,
    },
    Free {
        address: u64,
    },
    /// The first line of a reallocation.
    Old {
        address: u64,
    },
    /// The second.
    New {
        address: u64,
        size: u64,
    },
    /// A reallocation failed.
    Failed {
        size: u64,
    },
}

/// "0x1f", "(nil)", and "0".
fn address(word: &str) -> Option<u64> {
    match word {
        "(nil)" | "0" => Some(0),
        _ => u64::from_str_radix(word.strip_prefix("0x").filter(|digits| !digits.starts_with('+'))?, 16).ok(),
    }
}

/// The call of a line, and the caller's address.
fn parse(line: &str) -> Option<(Call, Option<u64>)> {
    // From the end: what names the caller may have spaces in it.
    let mut words = line.rsplitn(4, ' ');
    let (last, second) = (words.next()?, words.next()?);
    let (call, caller) = match second {
        "-" => (Call::Free { address: address(last)? }, rest(line, 2)),
        "<" => (Call::Old { address: address(last)? }, rest(line, 2)),
        _ => {
            let (at, size) = (address(second)?, address(last)?);
            let call = match words.next()? {
                "+" => Call::Alloc { address: at, size },
                ">" => Call::New { address: at, size },
                "!" => Call::Failed { size },
                _ => return None,
            };
            (call, rest(line, 3))
        }
    };
    let caller = caller.trim_end();
    if caller.is_empty() {
        return Some((call, None));
    }
    let caller = caller.strip_prefix('@')?;
    // "prog:(func+0x12)[0x401136]"
    let pc = caller.rsplit_once('[').and_then(|(_, rest)| address(rest.strip_suffix(']')?));
    Some((call, pc))
}

/// What stands before the last so many words.
fn rest(line: &str, words: usize) -> &str {
    line.rsplitn(words + 1, ' ').nth(words).unwrap_or("")
}

/// Reads what mtrace wrote.
pub type MtraceSource = TextSource<Mtrace>;

/// What is known of the lines before.
pub struct Mtrace {
    lines: Lines,
    stacks: Map<u64, u32>,
    old: Option<u64>,
    odd: u64,
}

impl MtraceSource {
    /// Begin to read.
    pub fn new(input: Input) -> Self {
        let head = Head { stacks: "caller".into(), ..synthetic("quarry convert, from mtrace") };
        let text = Mtrace { lines: Lines::new(input), stacks: Map::default(), old: None, odd: 0 };
        Self::begin(head, text)
    }
}

impl Mtrace {
    /// The event of a call; a new stack comes before it.
    fn call(&mut self, call: Call, pc: Option<u64>, queue: &mut Queue) {
        let known = self.stacks.len() as u32;
        let stack = match pc {
            None => 0,
            Some(pc) => *self.stacks.entry(pc).or_insert_with(|| {
                queue.stack(StackNode { id: known + 1, parent: 0, pc, is_return: true });
                known + 1
            }),
        };
        let old = self.old.take();
        if old.is_some() && !matches!(call, Call::New { .. }) {
            self.odd += 1;
        }
        queue.event(match call {
            Call::Alloc { address: 0, size } => What::Failed { api: AllocApi::Malloc, size },
            Call::Alloc { address, size } => {
                What::Alloc { api: AllocApi::Malloc, size, address, align: 0, stack }
            }
            Call::Free { address: 0 } => What::Free { api: FreeApi::Null, address: 0, touched: None },
            Call::Free { address } => What::Free { api: FreeApi::Free, address, touched: None },
            Call::Failed { size } => What::Failed { api: AllocApi::Realloc, size },
            Call::New { address, size } => match old {
                Some(old) => What::realloc(0, old, size, address, stack),
                None => {
                    self.odd += 1;
                    What::Alloc { api: AllocApi::Realloc, size, address, align: 0, stack }
                }
            },
            Call::Old { address } => {
                self.old = Some(address);
                // Its caller is that of the second line; the stack is defined all the same.
                return;
            }
        });
    }
}

impl Text for Mtrace {
    fn advance(&mut self, queue: &mut Queue) -> Result<bool, Error> {
        if !self.lines.advance()? {
            return Ok(false);
        }
        let line = String::from_utf8_lossy(self.lines.line()).into_owned();
        let line = line.trim();
        // "= Start" and "= End".
        if line.is_empty() || line.starts_with('=') {
            return Ok(true);
        }
        match parse(line) {
            Some((call, pc)) => self.call(call, pc, queue),
            None => self.lines.refuse(format!("'{}' is no line of mtrace", shown(line.as_bytes())))?,
        }
        Ok(true)
    }

    fn done(&self) -> u64 {
        self.lines.input().done()
    }

    fn length(&self) -> u64 {
        self.lines.input().length()
    }

    fn remarks(&self, _: &Queue) -> Vec<String> {
        let mut remarks = self.lines.remarks();
        if self.odd > 0 {
            remarks.push(format!("{} reallocations have only one of their two lines", self.odd));
        }
        remarks
    }

    fn is_cut(&self) -> bool {
        self.lines.is_cut()
    }
}

/// Writes lines as mtrace does.
pub struct MtraceSink<W: Write> {
    output: W,
    program: String,
    /// The address of each stack's innermost frame.
    stacks: Map<u32, u64>,
    first: Option<u32>,
    losses: Losses,
}

impl<W: Write> MtraceSink<W> {
    /// Begin to write.
    pub fn new(mut output: W, head: &Head) -> Result<Self, Error> {
        output.write_all(b"= Start\n").map_err(Error::Write)?;
        // The reader of such files splits at spaces.
        let program = if head.program.is_empty() { "?" } else { &head.program };
        let program = program.replace(|c: char| c.is_whitespace() || c.is_control(), "_");
        Ok(Self { output, program, stacks: Map::default(), first: None, losses: Losses::default() })
    }

    fn line(&mut self, stack: u32, rest: std::fmt::Arguments) -> Result<(), Error> {
        let done = match self.stacks.get(&stack) {
            Some(pc) => writeln!(self.output, "@ {}:[{pc:#x}] {rest}", self.program),
            None => writeln!(self.output, "{rest}"),
        };
        done.map_err(Error::Write)
    }

    fn event(&mut self, what: &What) -> Result<(), Error> {
        match what {
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
            What::ThreadBegin { .. } | What::ThreadEnd | What::ThreadGone => Ok(()),
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
}

impl<W: Write> Sink for MtraceSink<W> {
    fn item(&mut self, item: &Item) -> Result<(), Error> {
        match item {
            Item::Event(event, _) => {
                self.losses.thread(&mut self.first, event.thread);
                self.event(&event.what)
            }
            Item::Stack(_, node) => {
                if node.parent != 0 {
                    self.losses.add("frames above the caller");
                }
                self.stacks.insert(node.id, node.pc);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_as_glibc_writes_them() {
        for (line, call, pc) in [
            (
                "@ ./a:(main+0x1a)[0x401136] + 0x4052a0 0x64",
                Call::Alloc { address: 0x4052a0, size: 100 },
                0x401136,
            ),
            ("@ ./a:[0x401136] - 0x4052a0", Call::Free { address: 0x4052a0 }, 0x401136),
            ("@ /a b/c d:[0x1] < 0x10", Call::Old { address: 16 }, 1),
            ("@ [0x2] > 0x20 0x30", Call::New { address: 32, size: 48 }, 2),
            ("@ [0x2] ! 0x20 0xffff", Call::Failed { size: 65535 }, 2),
            ("+ (nil) 0x10", Call::Alloc { address: 0, size: 16 }, 0),
            ("- 0x30", Call::Free { address: 0x30 }, 0),
            ("+ 0x30 0", Call::Alloc { address: 0x30, size: 0 }, 0),
        ] {
            assert_eq!(parse(line), Some((call, Some(pc).filter(|&pc| pc > 0))), "{line}");
        }
        for line in [
            "",
            "+",
            "+ 0x10",
            "@ + 10 20",
            "x 0x10 0x20",
            "@ a * 0x1 0x2",
            "hello world",
            "a - 0x10",
            "+ 0x+1 0x2",
        ] {
            assert_eq!(parse(line), None, "{line}");
        }
    }
}
