// SPDX-License-Identifier: MIT
//! Formats, and how they are told: by what a file holds first, by its name second.

use std::ffi::OsStr;
use std::path::Path;

/// A format of traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Quarry's own.
    Qtr,
    /// The allocation simulator's.
    Ms,
    /// JSON, an object on each line.
    JsonLines,
    /// heaptrack's data files, interpreted or raw.
    Heaptrack,
    /// What glibc's mtrace writes.
    Mtrace,
    /// A table as text.
    Csv,
    /// A table for query engines.
    Parquet,
    /// Call stacks with names, a line for each. They are written only.
    Collapsed,
    /// Snapshots of valgrind's massif. No trace can be made of them.
    Massif,
    /// A heap profile of gperftools or jemalloc. No trace can be made of it.
    Jeprof,
}

impl Format {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Format::Qtr => "qtr",
            Format::Ms => "ms",
            Format::JsonLines => "jsonl",
            Format::Heaptrack => "heaptrack",
            Format::Mtrace => "mtrace",
            Format::Csv => "csv",
            Format::Parquet => "parquet",
            Format::Collapsed => "collapsed",
            Format::Massif => "massif",
            Format::Jeprof => "jeprof",
        }
    }

    /// Does it say what was live, and not how that came?
    pub fn is_profile(self) -> bool {
        matches!(self, Format::Massif | Format::Jeprof)
    }

    /// The format that a file begins with. `begin` is unpacked, if it was packed.
    pub fn of_content(begin: &[u8]) -> Option<Self> {
        if begin.starts_with(b"QTRB") {
            return Some(Format::Qtr);
        }
        if begin.starts_with(b"PAR1") {
            return Some(Format::Parquet);
        }
        // Lines that end with a carriage return alone their reader refuses, and says why.
        let mut lines = begin.split(|byte| b"\n\r".contains(byte));
        let line = lines.find(|line| !line.trim_ascii().is_empty())?.trim_ascii();
        if line.starts_with(b"desc:") || line.starts_with(b"cmd:") {
            return Some(Format::Massif);
        }
        if is_jeprof(begin, line) {
            return Some(Format::Jeprof);
        }
        if line.starts_with(b"{") {
            return Some(Format::JsonLines);
        }
        if super::csv::FIRST.iter().any(|first| line.starts_with(first.as_bytes())) {
            return Some(Format::Csv);
        }
        if is_mtrace(line) {
            return Some(Format::Mtrace);
        }
        if is_heaptrack(line) {
            return Some(Format::Heaptrack);
        }
        if is_simulation(begin) { Some(Format::Ms) } else { None }
    }

    /// The format that a name stands for, without the ending of what packed it.
    pub fn of_name(path: &Path) -> Option<Self> {
        let stem;
        let path = match ending(path).as_deref() {
            Some("gz" | "zst" | "xz" | "lz4") => {
                stem = path.with_extension("");
                &stem
            }
            _ => path,
        };
        let heaptrack =
            path.file_name().and_then(OsStr::to_str).is_some_and(|name| name.starts_with("heaptrack."));
        Some(match ending(path).as_deref() {
            Some("qtr") => Format::Qtr,
            Some("ms") => Format::Ms,
            Some("jsonl" | "ndjson" | "json") => Format::JsonLines,
            Some("mtrace") => Format::Mtrace,
            Some("csv") => Format::Csv,
            Some("parquet" | "pq") => Format::Parquet,
            Some("heaptrack") => Format::Heaptrack,
            Some("massif") => Format::Massif,
            Some("heap" | "jeprof") => Format::Jeprof,
            _ if is_massif(path) => Format::Massif,
            _ if heaptrack => Format::Heaptrack,
            _ => return None,
        })
    }
}

/// "massif.out.1234", as valgrind calls them.
fn is_massif(path: &Path) -> bool {
    path.file_name().and_then(OsStr::to_str).is_some_and(|name| name.starts_with("massif.out"))
}

/// "heap profile: ...", "heap_v2/524288", or a table of names with one of these behind it. Comments may come first.
fn is_jeprof(begin: &[u8], line: &[u8]) -> bool {
    let is_head = |line: &[u8]| line.starts_with(b"heap profile:") || line.starts_with(b"heap_v2/");
    let lines = || begin.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
    is_head(line)
        || line.starts_with(b"--- symbol") && !lines().any(|line| line.starts_with(b"--- profile"))
        || line.starts_with(b"--- heap")
        || line.starts_with(b"%")
            && lines().find(|line| !line.starts_with(b"%") && !line.is_empty()).is_some_and(is_head)
}

fn ending(path: &Path) -> Option<String> {
    Some(path.extension()?.to_str()?.to_ascii_lowercase())
}

/// "= Start", "@ CALLER + 0x1 0x2", or a call without a caller.
fn is_mtrace(line: &[u8]) -> bool {
    let calls = [&b"+ 0x"[..], b"- 0x", b"< 0x", b"> 0x"];
    line.starts_with(b"= Start") || line.starts_with(b"@ ") || calls.iter().any(|call| line.starts_with(call))
}

/// "v 10400 3": two numbers in base 16. Old files have one.
fn is_heaptrack(line: &[u8]) -> bool {
    let mut words = line.split(|&byte| byte == b' ');
    let hex = |word: &[u8]| !word.is_empty() && word.iter().all(u8::is_ascii_hexdigit);
    words.next() == Some(b"v") && words.next().is_some_and(hex) && words.all(hex)
}

/// It begins with commands, one of which is an allocation. What is wrong further on its reader says best. Other texts have a `=` at their
/// begin, too, as in `==7== Memcheck` and `=====`, but not between two numbers.
fn is_simulation(begin: &[u8]) -> bool {
    let known =
        |byte: &u8| byte.is_ascii_digit() || byte.is_ascii_whitespace() || matches!(byte, b'=' | b's' | 0);
    let end = begin.iter().position(|byte| !known(byte)).unwrap_or(begin.len());
    let commands = &begin[..end];
    (1..commands.len()).any(|at| {
        let size = commands[at + 1..].trim_ascii_start();
        commands[at] == b'='
            && commands[at - 1].is_ascii_digit()
            && size.first().is_some_and(u8::is_ascii_digit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_tells_the_format() {
        for (begin, format) in [
            (&b"QTRB\x01\0"[..], Some(Format::Qtr)),
            (b"PAR1....", Some(Format::Parquet)),
            (b"{\"head\":{}}\n", Some(Format::JsonLines)),
            (b"\n {\"t\":1}\n", Some(Format::JsonLines)),
            (b"= Start\n", Some(Format::Mtrace)),
            (b"@ ./a:[0x40] + 0x10 0x20\n", Some(Format::Mtrace)),
            (b"v 10400 3\nX ./a\n", Some(Format::Heaptrack)),
            (b"v 10200\n", Some(Format::Heaptrack)),
            (b"v 10400 3\rX ./a\r", Some(Format::Heaptrack)),
            (b"0=123 0 1=31 1 s\n1", Some(Format::Ms)),
            (b"s\r\n 5=7 e this may be anything", Some(Format::Ms)),
            (b"time_ns,thread,op,api\n", Some(Format::Csv)),
            (b"object,part,size,align\n", Some(Format::Csv)),
            (b"", None),
            (b"12 34\n", None),
            (b"1= 2\n", Some(Format::Ms)),
            (b"==7== Memcheck, a memory error detector\n==7== 1=2", None),
            (b"=====\nReport of the day\n", None),
            (b"== Section one ==\n", None),
            (b"1 = one\n", None),
            (b"=\tStart\n@\t./a:[0x1182]\t+\t0x5000\t0x10\n", None),
            (b"0=5 x", Some(Format::Ms)),
            (b"#!/bin/sh\n", None),
            (b"desc: (none)\ncmd: ./a\n", Some(Format::Massif)),
            (b"heap profile:  1: 2 [ 3: 4] @ heapprofile\n", Some(Format::Jeprof)),
            (b"heap_v2/524288\n", Some(Format::Jeprof)),
            (b"%warn of this\r\nheap_v2/1\n", Some(Format::Jeprof)),
            (b"--- symbol\nbinary=a\n0x1 f\n---\n--- heap\nheap profile: 1", Some(Format::Jeprof)),
            (b"%PDF-1.5\n", None),
            (b"very\n", None),
            (b"\x7fELF\0", None),
        ] {
            assert_eq!(Format::of_content(begin), format, "{}", String::from_utf8_lossy(begin));
        }
    }

    #[test]
    fn names_tell_the_format() {
        for (name, format) in [
            ("a.qtr", Some(Format::Qtr)),
            ("a.MS", Some(Format::Ms)),
            ("a.jsonl.zst", Some(Format::JsonLines)),
            ("a.mtrace.gz", Some(Format::Mtrace)),
            ("b/heaptrack.prog.123.zst", Some(Format::Heaptrack)),
            ("heaptrack.prog.123", Some(Format::Heaptrack)),
            ("b/massif.out.123", Some(Format::Massif)),
            ("jeprof.1.0.f.heap", Some(Format::Jeprof)),
            ("a.parquet", Some(Format::Parquet)),
            ("a.gz", None),
            ("a", None),
            ("-", None),
        ] {
            assert_eq!(Format::of_name(Path::new(name)), format, "{name}");
        }
    }
}
