// SPDX-License-Identifier: MIT
//! Code that was made at run time, as the maker tells: `/tmp/perf-PID.map`, lines of "START SIZE NAME", and jitdump files
//! (the kernel's tools/perf/Documentation/jitdump-specification.txt).
//!
//! Neither says for how long: code is thrown away, and other code comes to its address. Where two pieces of different names
//! lie at an address, none of them is given.

use std::env;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use quarry_trace::{StackNode, Trace};

use crate::Frame;

/// Most pieces of code, and most bytes of a file, that are taken up.
const MOST: usize = 1 << 22;
const LONGEST: u64 = 1 << 30;
const SECOND: u64 = 1_000_000_000;
/// Clocks of files are coarse, and a process may write its last line when the recording is over.
const SLACK: u64 = 5 * SECOND;

/// A line of the source: from this address on.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    from: u64,
    file: String,
    line: u32,
}

/// A piece of code.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Piece {
    begin: u64,
    end: u64,
    name: String,
    lines: Vec<Line>,
}

/// All pieces of a process.
#[derive(Debug, Default)]
pub struct Code {
    /// By where they begin.
    pieces: Vec<Piece>,
    /// For each, the highest end up to it.
    ends: Vec<u64>,
}

impl Code {
    /// What the process of a trace has told. Only from files that were written while it was recorded: its number may be
    /// another process's by now.
    pub fn of_trace(trace: &Trace) -> Self {
        let head = trace.head();
        let times = trace.threads().iter().filter_map(|thread| thread.times);
        let last = times.map(|(_, last)| last).max().unwrap_or(0);
        let begin = head.start_unix_ns.saturating_sub(SLACK);
        let end = head.start_unix_ns.saturating_add(trace.ticks_to_ns(last)).saturating_add(SLACK);
        let mut pieces = Vec::new();
        if let Some(bytes) = read(&PathBuf::from(format!("/tmp/perf-{}.map", head.process)), begin, end) {
            of_map(&bytes, &mut pieces);
        }
        for file in dumps(head.process) {
            if let Some(bytes) = read(&file, begin, end) {
                of_dump(&bytes, head.process, &mut pieces);
            }
        }
        Self::new(pieces)
    }

    fn new(mut pieces: Vec<Piece>) -> Self {
        pieces.sort_by_key(|piece| piece.begin);
        let ends = pieces.iter().scan(0, |most, piece| {
            *most = piece.end.max(*most);
            Some(*most)
        });
        Self { ends: ends.collect(), pieces }
    }

    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// What runs at a node that lies in no file, with what `bare` says of its place.
    pub fn frame(&self, node: &StackNode, bare: &Frame) -> Option<Frame> {
        // The call stands before the address it returns to.
        let pc = node.pc.wrapping_sub(u64::from(node.is_return));
        let behind = self.pieces.partition_point(|piece| piece.begin <= pc);
        let near = (0..behind).rev().take_while(|&index| self.ends[index] > pc);
        let mut found = near.map(|index| &self.pieces[index]).filter(|piece| piece.end > pc);
        let piece = found.next()?;
        if found.any(|other| other.name != piece.name) {
            return None;
        }
        let line = piece.lines.iter().rev().find(|line| line.from <= pc);
        Some(Frame {
            function: Some(piece.name.clone()),
            file: line.map(|line| line.file.clone()),
            line: line.map(|line| line.line),
            ..bare.clone()
        })
    }
}

/// A file that was written in this time, by this user or by root: others may write to /tmp, too.
fn read(path: &Path, begin: u64, end: u64) -> Option<Vec<u8>> {
    let about = fs::symlink_metadata(path).ok().filter(|about| about.is_file() && about.len() <= LONGEST)?;
    let mine = fs::metadata("/proc/self").map_or(0, |own| own.uid());
    let seconds = u64::try_from(about.mtime()).ok()?;
    let written = seconds.checked_mul(SECOND)?.checked_add(u64::try_from(about.mtime_nsec()).ok()?)?;
    let is_its = (about.uid() == mine || about.uid() == 0) && (begin..=end).contains(&written);
    is_its.then(|| fs::read(path).ok()).flatten()
}

/// Where makers put their jitdump files.
fn dumps(process: u32) -> Vec<PathBuf> {
    let name = format!("jit-{process}.dump");
    let variable = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let mut files = vec![PathBuf::from(&name), Path::new("/tmp").join(&name)];
    for folder in [variable("JITDUMPDIR"), variable("HOME")].into_iter().flatten() {
        files.push(folder.join(&name));
        let sessions = fs::read_dir(folder.join(".debug/jit")).into_iter().flatten().flatten();
        files.extend(sessions.map(|session| session.path().join(&name)));
    }
    files.retain(|file| file.is_file());
    files.dedup_by_key(|file| file.canonicalize().ok());
    files
}

/// The lines of a map. What makes no sense is passed over.
fn of_map(bytes: &[u8], pieces: &mut Vec<Piece>) {
    let number = |field: &str| u64::from_str_radix(field.strip_prefix("0x").unwrap_or(field), 16).ok();
    for line in bytes.split(|&byte| byte == b'\n') {
        let line = String::from_utf8_lossy(line);
        let mut fields = line.trim_end_matches('\r').splitn(3, ' ');
        let (begin, size) = (fields.next().and_then(number), fields.next().and_then(number));
        let (Some(begin), Some(size), Some(name)) = (begin, size, fields.next()) else { continue };
        if let Some(end) =
            begin.checked_add(size).filter(|_| size > 0 && !name.is_empty() && pieces.len() < MOST)
        {
            pieces.push(Piece { begin, end, name: name.to_owned(), lines: Vec::new() });
        }
    }
}

/// The numbers of a jitdump file, in its own order of bytes.
struct Fields<'a> {
    bytes: &'a [u8],
    swapped: bool,
}

impl<'a> Fields<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(n)?;
        self.bytes = rest;
        Some(taken)
    }

    fn u32(&mut self) -> Option<u32> {
        let number = u32::from_le_bytes(self.take(4)?.try_into().ok()?);
        Some(if self.swapped { number.swap_bytes() } else { number })
    }

    fn u64(&mut self) -> Option<u64> {
        let number = u64::from_le_bytes(self.take(8)?.try_into().ok()?);
        Some(if self.swapped { number.swap_bytes() } else { number })
    }

    fn text(&mut self) -> Option<String> {
        let length = self.bytes.iter().position(|&byte| byte == 0)?;
        let text = String::from_utf8_lossy(self.take(length)?).into_owned();
        self.take(1)?;
        Some(text)
    }
}

const MAGIC: [u8; 4] = *b"DTiJ";
const LOAD: u32 = 0;
const MOVE: u32 = 1;
const LINES: u32 = 2;

/// A jitdump file, as far as it can be read.
fn of_dump(bytes: &[u8], process: u32, pieces: &mut Vec<Piece>) {
    let mut reader = Dump { process, lines: Vec::new(), pieces };
    let _ = reader.all(bytes);
}

struct Dump<'a> {
    process: u32,
    /// Of the code that is told next, with its address.
    lines: Vec<(u64, Vec<Line>)>,
    pieces: &'a mut Vec<Piece>,
}

impl Dump<'_> {
    fn all(&mut self, bytes: &[u8]) -> Option<()> {
        let swapped = bytes.first_chunk::<4>()? != &MAGIC;
        let mut head = Fields { bytes, swapped };
        if swapped && bytes.first_chunk::<4>()? != b"JiTD" {
            return None;
        }
        let (_magic, _version, total) = (head.u32()?, head.u32()?, head.u32()?);
        let (_machine, _pad, process) = (head.u32()?, head.u32()?, head.u32()?);
        if process != self.process {
            return None;
        }
        let mut rest = bytes.get(total as usize..)?;
        while rest.len() >= 16 && self.pieces.len() < MOST {
            let mut fields = Fields { bytes: rest, swapped };
            let (id, total, _time) = (fields.u32()?, fields.u32()? as usize, fields.u64()?);
            let body = rest.get(16..total)?;
            rest = &rest[total..];
            // What makes no sense is passed over.
            let _ = self.record(id, Fields { bytes: body, swapped });
        }
        Some(())
    }

    fn record(&mut self, id: u32, mut fields: Fields) -> Option<()> {
        match id {
            LOAD => {
                let (_pid, _tid, _vma) = (fields.u32()?, fields.u32()?, fields.u64()?);
                let (begin, size, _index) = (fields.u64()?, fields.u64()?, fields.u64()?);
                let name = fields.text()?;
                let place = self.lines.iter().position(|(of, _)| *of == begin);
                let lines = place.map(|place| self.lines.swap_remove(place).1).unwrap_or_default();
                self.pieces.push(Piece { begin, end: begin.checked_add(size)?, name, lines });
            }
            MOVE => {
                let (_pid, _tid, _vma) = (fields.u32()?, fields.u32()?, fields.u64()?);
                let (old, begin, size) = (fields.u64()?, fields.u64()?, fields.u64()?);
                let moved = self.pieces.iter().rev().find(|piece| piece.begin == old)?.clone();
                let line = |line: &Line| Line {
                    from: line.from.wrapping_sub(old).wrapping_add(begin),
                    ..line.clone()
                };
                let lines = moved.lines.iter().map(line).collect();
                self.pieces.push(Piece { begin, end: begin.checked_add(size)?, lines, ..moved });
            }
            LINES => {
                let (begin, count) = (fields.u64()?, fields.u64()?);
                let mut lines: Vec<Line> = Vec::new();
                for _ in 0..count {
                    let (from, line, _column) = (fields.u64()?, fields.u32()?, fields.u32()?);
                    // A name of one byte 255 is the one before.
                    let same = fields.bytes.starts_with(&[0xff, 0]);
                    let text = fields.text()?;
                    let file = if same { lines.last()?.file.clone() } else { text };
                    lines.push(Line { from, file, line });
                }
                lines.sort_by_key(|line| line.from);
                self.lines.push((begin, lines));
            }
            _ => {}
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(code: &Code, pc: u64, is_return: bool) -> Option<Frame> {
        code.frame(&StackNode { id: 1, parent: 0, pc, is_return }, &Frame::default())
    }

    fn function(code: &Code, pc: u64) -> Option<String> {
        name(code, pc, false).and_then(|frame| frame.function)
    }

    #[test]
    fn a_map_of_perf() {
        let map = b"7f00 10 LazyCompile:~f /a b.js:1\r\n0x7f10 0x8 g\nnonsense\n7f18 zz h\n7f20 8\n\
            8000 100 outer\n8010 10 inner\n8010 10 inner\n9000 10 same\n9008 10 same\nffffffffffffffff 5 far\n";
        let mut pieces = Vec::new();
        of_map(map, &mut pieces);
        let code = Code::new(pieces);
        assert_eq!(function(&code, 0x7f00).as_deref(), Some("LazyCompile:~f /a b.js:1"));
        assert_eq!(function(&code, 0x7f10).as_deref(), Some("g"));
        // A call may be the last instruction.
        assert_eq!(name(&code, 0x7f10, true).unwrap().function.as_deref(), Some("LazyCompile:~f /a b.js:1"));
        assert_eq!(
            [function(&code, 0x7f18), function(&code, 0x7eff), function(&code, u64::MAX)],
            [None, None, None]
        );
        // What came later to an address, or was there before: it cannot be told.
        assert_eq!(function(&code, 0x8015), None);
        assert_eq!(
            [function(&code, 0x8005), function(&code, 0x80ff)].map(Option::unwrap),
            ["outer", "outer"]
        );
        assert_eq!(function(&code, 0x900c).as_deref(), Some("same"));
    }

    fn dump(swapped: bool, process: u32) -> Vec<u8> {
        let n4 = |n: u32| if swapped { n.to_be_bytes() } else { n.to_le_bytes() };
        let n8 = |n: u64| if swapped { n.to_be_bytes() } else { n.to_le_bytes() };
        let record = |id: u32, body: Vec<u8>| {
            [n4(id).to_vec(), n4(16 + body.len() as u32).to_vec(), n8(5).to_vec(), body].concat()
        };
        let head = [0x4A69_5444, 1, 40, 62, 0, process].map(n4).concat();
        let entry = |at: u64, line: u32, file: &[u8]| [&n8(at)[..], &n4(line), &n4(0), file, b"\0"].concat();
        let lines =
            [n8(0x1000).to_vec(), n8(2).to_vec(), entry(0x1000, 7, b"/a.js"), entry(0x1008, 9, b"\xff")]
                .concat();
        let load =
            [&[n4(process), n4(3)].concat()[..], &[0, 0x1000, 0x10, 1].map(n8).concat(), b"f\0", &[0xcc; 16]]
                .concat();
        let moved = [[n4(process), n4(3)].concat(), [0, 0x1000, 0x2000, 0x10, 1].map(n8).concat()].concat();
        let rest =
            [record(LINES, lines), record(4, vec![1; 24]), record(LOAD, load), record(MOVE, moved)].concat();
        [head, n8(1).to_vec(), n8(0).to_vec(), rest].concat()
    }

    #[test]
    fn a_jitdump_file() {
        for swapped in [false, true] {
            let mut pieces = Vec::new();
            of_dump(&dump(swapped, 42), 42, &mut pieces);
            let code = Code::new(pieces);
            let at = |pc| {
                name(&code, pc, false)
                    .map(|frame| (frame.function.unwrap(), frame.file.unwrap(), frame.line.unwrap()))
            };
            assert_eq!(at(0x1003), Some(("f".into(), "/a.js".into(), 7)));
            assert_eq!(at(0x100f), Some(("f".into(), "/a.js".into(), 9)));
            assert_eq!(at(0x2008), Some(("f".into(), "/a.js".into(), 9)));
            assert_eq!(at(0x1010), None);
        }
    }

    #[test]
    fn what_is_no_dump_or_cut_off() {
        let whole = dump(false, 42);
        let pieces = |bytes: &[u8], process| {
            let mut pieces = Vec::new();
            of_dump(bytes, process, &mut pieces);
            pieces.len()
        };
        assert_eq!((pieces(&whole, 42), pieces(&whole, 43)), (2, 0));
        for length in 0..whole.len() {
            assert!(pieces(&whole[..length], 42) <= 1, "{length}");
        }
        let mut changed = whole.clone();
        for at in 0..whole.len() {
            changed[at] ^= 0xff;
            pieces(&changed, 42);
            changed[at] = whole[at];
        }
    }
}
