// SPDX-License-Identifier: MIT
//! The lines of a report's file, as `libquarry-check.so` writes them. A damaged program writes them, so nothing in them is
//! believed: what is too long is cut.

use serde::{Deserialize, Deserializer};

/// Frames of a stack that are kept.
const DEEPEST: usize = 256;
/// Bytes of a text that are kept.
const LONGEST: usize = 4096;
/// Words of a command line that are kept.
const WORDS: usize = 1024;
/// The version of the format.
const VERSION: u32 = 1;

/// One line.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// A process, or a program in it, has begun.
    Begin(Begin),
    /// A file that is mapped; it stands before the first frame that lies in it.
    Module(Module),
    /// An error.
    Error(Box<Error>),
    /// Blocks of one call stack that are lost.
    Leak(Leak),
    /// A scan for leaks.
    Scan(Scan),
    /// Something that could not be done.
    Note(Note),
    /// The process has ended, or runs another program.
    End(End),
}

/// See [`Line::Begin`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Begin {
    /// Of the format.
    pub version: u32,
    /// The process.
    pub pid: u32,
    /// Its parent.
    #[serde(default)]
    pub ppid: u32,
    /// The program's file.
    #[serde(default, deserialize_with = "or_default")]
    pub exe: String,
    /// Its command line.
    #[serde(default)]
    pub command: Vec<String>,
    /// The process that it is a copy of.
    #[serde(default)]
    pub forked_from: Option<u32>,
    /// The first in its chain of copies, which is none itself.
    #[serde(default)]
    pub origin: Option<u32>,
}

/// See [`Line::Module`].
#[derive(Debug, Clone, Deserialize)]
pub struct Module {
    /// Frames name it so.
    pub id: u32,
    /// The file, as it is shown.
    pub path: String,
    /// Its bytes in hex, where `path` has not all of them; else empty.
    #[serde(default, deserialize_with = "or_default")]
    pub path_hex: String,
    /// In hex; empty or null: it has none.
    #[serde(default)]
    pub build_id: Option<String>,
    /// Its first address.
    #[serde(deserialize_with = "hex")]
    pub begin: u64,
    /// Its end.
    #[serde(deserialize_with = "hex")]
    pub end: u64,
    /// What is added to the addresses in the file.
    #[serde(deserialize_with = "hex")]
    pub bias: u64,
}

/// An instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
pub struct Pc {
    /// Where it is.
    #[serde(deserialize_with = "hex")]
    pub pc: u64,
    /// Is it the instruction itself? Else it is the one behind a call.
    #[serde(default)]
    pub exact: bool,
    /// The file that is mapped there.
    #[serde(default)]
    pub module: Option<u32>,
}

/// See [`Line::Error`].
#[derive(Debug, Deserialize)]
pub struct Error {
    /// A word of [`crate::kinds`].
    pub kind: String,
    /// The function that found it.
    #[serde(default)]
    pub function: Option<String>,
    /// What was used.
    #[serde(deserialize_with = "hex")]
    pub address: u64,
    /// Was it written?
    #[serde(default)]
    pub write: bool,
    /// How much.
    #[serde(default)]
    pub bytes: u64,
    /// Was it found later, so that nobody knows the instruction?
    #[serde(default)]
    pub evidence: bool,
    /// From the block's begin.
    #[serde(default)]
    pub offset: i64,
    /// More about it.
    #[serde(default)]
    pub detail: Option<String>,
    /// Where it was found.
    #[serde(default, deserialize_with = "or_default")]
    pub thread: Thread,
    /// The innermost frame comes first.
    #[serde(default, deserialize_with = "or_default")]
    pub stack: Vec<Pc>,
    /// The block that it is about.
    #[serde(default)]
    pub block: Option<Block>,
}

/// A thread.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Thread {
    /// The kernel's number.
    #[serde(default)]
    pub tid: u32,
    /// Its name.
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
}

/// A block of memory.
#[derive(Debug, Deserialize)]
pub struct Block {
    /// Where it begins.
    #[serde(deserialize_with = "hex")]
    pub address: u64,
    /// As asked for.
    pub size: u64,
    /// The function that made it, in a word.
    #[serde(default, deserialize_with = "or_default")]
    pub family: String,
    /// The pool that it is of.
    #[serde(default)]
    pub pool: Option<String>,
    /// Of which kind that is.
    #[serde(default)]
    pub pool_kind: Option<String>,
    /// live or freed.
    #[serde(default)]
    pub state: String,
    /// The how-manyeth of its call stack.
    #[serde(default)]
    pub ordinal: u64,
    /// Where it was made.
    #[serde(default)]
    pub alloc: Option<At>,
    /// Where it was freed.
    #[serde(default)]
    pub free: Option<At>,
}

/// A thread and its call stack.
#[derive(Debug, Default, Deserialize)]
pub struct At {
    /// The thread.
    #[serde(default)]
    pub tid: u32,
    /// The innermost frame comes first.
    #[serde(default, deserialize_with = "or_default")]
    pub stack: Vec<Pc>,
}

/// See [`Line::Leak`].
#[derive(Debug, Deserialize)]
pub struct Leak {
    /// A word of [`crate::kinds`].
    pub kind: String,
    /// Of all blocks.
    pub bytes: u64,
    /// How many.
    pub blocks: u64,
    /// What only these blocks lead to.
    #[serde(default)]
    pub indirect_bytes: u64,
    /// How many.
    #[serde(default)]
    pub indirect_blocks: u64,
    /// The scan that found it.
    #[serde(default)]
    pub scan: u32,
    /// One of the blocks.
    #[serde(default, deserialize_with = "hex")]
    pub example: u64,
    /// The function that made them, in a word.
    #[serde(default, deserialize_with = "or_default")]
    pub family: String,
    /// The pool that the example is of.
    #[serde(default)]
    pub pool: Option<String>,
    /// Of which kind that is.
    #[serde(default)]
    pub pool_kind: Option<String>,
    /// Where they were made.
    #[serde(default, deserialize_with = "or_default")]
    pub stack: Vec<Pc>,
}

/// Bytes and blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub struct Amount {
    /// Bytes.
    #[serde(default)]
    pub bytes: u64,
    /// Blocks.
    #[serde(default)]
    pub blocks: u64,
}

/// See [`Line::Scan`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Scan {
    /// From 1.
    pub number: u32,
    /// exit, demand or interval.
    #[serde(default)]
    pub at: String,
    /// For how long the program stood still.
    #[serde(default)]
    pub pause_ns: u64,
    /// How long it took.
    #[serde(default)]
    pub total_ns: u64,
    /// What pointers were looked for in.
    #[serde(default)]
    pub roots_bytes: u64,
    /// What blocks have.
    #[serde(default)]
    pub heap_bytes: u64,
    /// What something still points to.
    #[serde(default)]
    pub reachable: Amount,
    /// Why not all of it could be looked at.
    #[serde(default)]
    pub incomplete: Option<String>,
}

/// See [`Line::Note`].
#[derive(Debug, Deserialize)]
pub struct Note {
    /// For people.
    pub text: String,
}

/// See [`Line::End`].
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct End {
    /// exit, signal or exec.
    pub how: String,
    /// The exit status, or the signal.
    #[serde(default)]
    pub status: i32,
    /// Errors that were found.
    #[serde(default)]
    pub errors: u64,
    /// Errors that were not written, since they were repeats.
    #[serde(default)]
    pub suppressed_repeats: u64,
    /// What guards did.
    #[serde(default)]
    pub guards: serde_json::Value,
    /// What the quarantine did.
    #[serde(default)]
    pub quarantine: serde_json::Value,
}

fn hex<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let text = String::deserialize(from)?;
    let digits = text.strip_prefix("0x").filter(|digits| !digits.starts_with('+'));
    digits
        .and_then(|digits| u64::from_str_radix(digits, 16).ok())
        .ok_or_else(|| serde::de::Error::custom("no address"))
}

/// What is not known is null.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Option::<T>::deserialize(from).map(Option::unwrap_or_default)
}

/// Control characters could move a terminal's cursor.
fn clean(text: &mut String) {
    if text.len() > LONGEST {
        let end = (0..=LONGEST).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        text.truncate(end);
    }
    if text.contains(|c: char| c.is_control()) {
        *text = text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    }
}

impl Line {
    /// Read one; `None`: it is none of this format.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(bytes);
        let mut line: Self = serde_json::from_str(&text).ok()?;
        line.bound();
        match &line {
            Self::Begin(begin) if begin.version != VERSION => None,
            _ => Some(line),
        }
    }

    fn bound(&mut self) {
        match self {
            Self::Begin(begin) => {
                begin.command.truncate(WORDS);
                begin.command.iter_mut().chain([&mut begin.exe]).for_each(clean);
            }
            Self::Module(module) => {
                // It is shown without control characters, and opened with them.
                if module.path_hex.is_empty() && module.path.contains(|c: char| c.is_control()) {
                    module.path_hex = module.path.bytes().map(|byte| format!("{byte:02x}")).collect();
                }
                clean(&mut module.path);
                if module.path_hex.len() > 2 * LONGEST {
                    module.path_hex.clear();
                }
                module.build_id.iter_mut().for_each(clean);
            }
            Self::Error(error) => {
                let Error { kind, function, detail, thread, stack, block, .. } = &mut **error;
                [kind, &mut thread.name].into_iter().chain(function).chain(detail).for_each(clean);
                stack.truncate(DEEPEST);
                if let Some(block) = block {
                    let Block { family, state, pool, pool_kind, .. } = block;
                    [family, state].into_iter().chain(pool).chain(pool_kind).for_each(clean);
                    block.alloc.iter_mut().chain(&mut block.free).for_each(|at| at.stack.truncate(DEEPEST));
                }
            }
            Self::Leak(leak) => {
                let Leak { kind, family, pool, pool_kind, .. } = leak;
                [kind, family].into_iter().chain(pool).chain(pool_kind).for_each(clean);
                leak.stack.truncate(DEEPEST);
            }
            Self::Scan(scan) => [&mut scan.at].into_iter().chain(&mut scan.incomplete).for_each(clean),
            Self::Note(note) => clean(&mut note.text),
            Self::End(end) => {
                clean(&mut end.how);
                for about in [&mut end.guards, &mut end.quarantine] {
                    if about.to_string().len() > LONGEST {
                        *about = serde_json::Value::Null;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_what_the_library_writes() {
        let line = br#"{"error":{"kind":"double-free","function":"free","address":"0x7f10","write":true,"bytes":4,
            "evidence":false,"offset":-3,"detail":null,"thread":{"tid":1,"name":"x"},"stack":[{"pc":"0x10","exact":false,"module":3}],
            "block":{"address":"0x7f10","size":24,"family":"malloc","pool":null,"state":"freed","ordinal":17,
            "alloc":{"tid":1,"stack":[]},"free":{"tid":2,"stack":[]}}}}"#;
        let Some(Line::Error(error)) = Line::parse(line) else { panic!() };
        assert_eq!((error.offset, error.address, error.stack[0].module), (-3, 0x7f10, Some(3)));
        assert_eq!(error.block.unwrap().free.unwrap().tid, 2);
        assert!(matches!(Line::parse(br#"{"note":{"text":"a"}}"#), Some(Line::Note(_))));
        assert!(matches!(Line::parse(br#"{"end":{"how":"exit","status":0}}"#), Some(Line::End(_))));
    }

    #[test]
    fn a_path_is_shown_without_what_moves_a_cursor_and_opened_with_it() {
        let path_hex = |path: &str, more: &str| {
            let line = format!(
                r#"{{"module":{{"id":1,"path":"{path}",{more}"begin":"0x1","end":"0x2","bias":"0x0"}}}}"#
            );
            let Some(Line::Module(module)) = Line::parse(line.as_bytes()) else { panic!("{line}") };
            assert!(!module.path.contains('\n'), "{}", module.path);
            module.path_hex
        };
        assert_eq!(path_hex("/a/b", ""), "");
        assert_eq!(path_hex("/a\\nb", ""), "2f610a62");
        assert_eq!(path_hex("/a\u{fffd}", r#""path_hex":"2f61ff","#), "2f61ff");
    }

    #[test]
    fn what_is_no_line_is_refused_and_what_is_too_long_is_cut() {
        for text in
            ["", "{}", "{\"note\":{}}", "{\"begin\":{\"version\":2,\"pid\":1}}", "[[[[", "{\"what\":{}}"]
        {
            assert!(Line::parse(text.as_bytes()).is_none(), "{text}");
        }
        let long = format!("{{\"note\":{{\"text\":\"{}\\u001b[2J\"}}}}", "é".repeat(5000));
        let Some(Line::Note(note)) = Line::parse(long.as_bytes()) else { panic!() };
        assert!(note.text.len() <= LONGEST);
        let Some(Line::Note(note)) = Line::parse(b"{\"note\":{\"text\":\"a\\u001b[2J\xff\"}}") else {
            panic!()
        };
        assert_eq!(note.text, "a\u{fffd}[2J\u{fffd}");
    }
}
