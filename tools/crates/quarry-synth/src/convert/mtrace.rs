// SPDX-License-Identifier: MIT
//! What glibc's mtrace(3) writes: `@ CALLER + 0xADDRESS 0xSIZE` and so on, a call on each line.
//!
//! Read, each call takes a tick, all happens on one thread, and the caller becomes a stack of one frame, in the file and
//! the function that the line names; a reallocation is two lines, `<` and `>`. Written ([`MtraceSink`]), threads, times,
//! functions, alignments, and the callers of callers are lost.

use std::collections::HashMap;

use quarry_trace::{AllocApi, FreeApi, Head, StackNode, What};

use super::input::{Input, Lines, shown};
use super::mtrace_files::Files;
use super::text::{Queue, Text, TextSource};
use super::{Error, synthetic};

pub use super::mtrace_write::MtraceSink;

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

/// The call of a line, and the caller as it names it.
fn parse(line: &str) -> Option<(Call, Option<&str>)> {
    // Two lines that became one would be a call with a long caller.
    if line.contains('\r') {
        return None;
    }
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
    Some((call, Some(caller.strip_prefix('@')?.trim_start()).filter(|caller| !caller.is_empty())))
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
    /// The stack of each caller, as lines name it.
    stacks: HashMap<String, u32>,
    files: Files,
    old: Option<u64>,
    odd: u64,
    /// Was there anything yet?
    began: bool,
}

impl MtraceSource {
    /// Begin to read.
    pub fn new(input: Input) -> Self {
        let head = Head { stacks: "caller".into(), ..synthetic("quarry convert, from mtrace") };
        let files = Files::new(input.modified());
        let text = Mtrace {
            lines: Lines::new(input),
            stacks: HashMap::new(),
            files,
            old: None,
            odd: 0,
            began: false,
        };
        Self::begin(head, text)
    }
}

impl Mtrace {
    /// The stack of a caller, which comes before the first event that names it; 0: it is not known.
    fn stack(&mut self, caller: &str, queue: &mut Queue) -> u32 {
        if let Some(&known) = self.stacks.get(caller) {
            return known;
        }
        let stack = match self.files.place(caller, queue) {
            Some(pc) => {
                let id = self.stacks.len() as u32 + 1;
                queue.stack(StackNode { id, parent: 0, pc, is_return: true });
                id
            }
            None => 0,
        };
        self.stacks.insert(caller.to_owned(), stack);
        stack
    }

    /// The event of a call; a new stack comes before it.
    fn call(&mut self, call: Call, caller: Option<&str>, queue: &mut Queue) {
        let stack = caller.map_or(0, |caller| self.stack(caller, queue));
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
        if line.is_empty() {
            return Ok(true);
        }
        let is_start = line == "= Start";
        if is_start && self.began {
            // mtrace() begins a new file each time. A process that forks copies what it has not yet written, so its child writes it again.
            self.lines.end_before_another();
            return Ok(true);
        }
        self.began = true;
        if is_start || line == "= End" {
            return Ok(true);
        }
        match parse(line) {
            // Of its last number digits may be missing.
            Some(_) if self.lines.is_part() => {}
            Some((call, caller)) => self.call(call, caller, queue),
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
        remarks.extend(self.files.remarks());
        remarks
    }

    fn is_cut(&self) -> bool {
        self.lines.is_cut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_as_glibc_writes_them() {
        for (line, call, caller) in [
            (
                "@ ./a:(main+0x1a)[0x401136] + 0x4052a0 0x64",
                Call::Alloc { address: 0x4052a0, size: 100 },
                "./a:(main+0x1a)[0x401136]",
            ),
            ("@ ./a:[0x401136] - 0x4052a0", Call::Free { address: 0x4052a0 }, "./a:[0x401136]"),
            ("@ /a b/c d:[0x1] < 0x10", Call::Old { address: 16 }, "/a b/c d:[0x1]"),
            ("@ [0x2] > 0x20 0x30", Call::New { address: 32, size: 48 }, "[0x2]"),
            ("@ [0x2] ! 0x20 0xffff", Call::Failed { size: 65535 }, "[0x2]"),
            ("+ (nil) 0x10", Call::Alloc { address: 0, size: 16 }, ""),
            ("- 0x30", Call::Free { address: 0x30 }, ""),
            ("+ 0x30 0", Call::Alloc { address: 0x30, size: 0 }, ""),
        ] {
            assert_eq!(parse(line), Some((call, Some(caller).filter(|caller| !caller.is_empty()))), "{line}");
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
            "@ [0x1] - 0x10\r@ [0x1] - 0x20",
        ] {
            assert_eq!(parse(line), None, "{line}");
        }
    }
}
