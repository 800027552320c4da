// SPDX-License-Identifier: MIT
//! What a file is that was given to a verb that does not read it, and which verb does.

use quarry_poollog::record::MAGIC;
use quarry_proc::smaps;
use quarry_synth::convert::Format;

/// What a file is, and what to do with it.
pub struct Kind {
    pub what: String,
    pub advice: &'static str,
}

/// Told by the first bytes, unpacked; `None`: nothing that any verb reads.
pub fn of(begin: &[u8]) -> Option<Kind> {
    let kind = |what: &str, advice| Some(Kind { what: what.to_owned(), advice });
    if begin.starts_with(&MAGIC[..]) {
        return kind("a log of pools", "quarry pools shows it");
    }
    if begin.starts_with(b"\x7fELF") {
        /// Where the type stands, and that of a core.
        const TYPE: usize = 16;
        const CORE: &[u8] = &[4, 0];
        return match begin.get(TYPE..TYPE + 2) {
            Some(CORE) => kind("a core file", "quarry map shows it"),
            _ => kind("a program or library", "quarry record -- PROGRAM makes a trace of a program"),
        };
    }
    if smaps::is_one(begin) {
        return kind("a copy of /proc/PID/smaps or maps", "quarry map shows it");
    }
    if smaps::is_rollup(begin) {
        return kind("a copy of /proc/PID/smaps_rollup, which has only sums", "copy /proc/PID/smaps, too");
    }
    if let Some(kind) = report(begin) {
        return Some(kind);
    }
    if let Some(kind) = utf16(begin) {
        return Some(kind);
    }
    if is_valgrind(begin) {
        return kind(
            "a log of valgrind",
            "quarry info shows what valgrind --tool=massif writes, and quarry check looks for such errors",
        );
    }
    let format = Format::of_content(begin)?;
    let name = format.name();
    Some(match format {
        Format::Csv | Format::Parquet => Kind {
            what: format!("a table ({name})"),
            advice: "tables are written, and not read; use what the table was made from",
        },
        _ if format.is_profile() => {
            Kind { what: format!("a profile ({name})"), advice: "quarry info shows it" }
        }
        // Others know of no pools.
        Format::Qtr | Format::JsonLines => Kind {
            what: format!("a trace ({name})"),
            advice: "quarry info shows what is in it, also its pools",
        },
        _ => Kind { what: format!("a trace ({name})"), advice: "quarry info shows what is in it" },
    })
}

/// JSON of one object over several lines, or of a schema of quarry's, which may stand farther behind. Lines of JSON have an object on each.
pub fn report(begin: &[u8]) -> Option<Kind> {
    let text = String::from_utf8_lossy(begin);
    let text = text.trim_start();
    let is_lines = text.lines().next().is_none_or(|line| line.trim_end() != "{");
    let schema = || {
        let (_, rest) = text.starts_with('{').then(|| text.split_once("\"schema\""))??;
        rest.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?.split('"').next()
    };
    let schema = schema().filter(|schema| schema.starts_with("quarry-"));
    if text.starts_with('{') && text.contains("\"dhatFileVersion\"") {
        let advice = "dh_view.html of valgrind shows it; quarry reads what it was made from";
        return Some(Kind { what: "a profile (DHAT)".into(), advice });
    }
    if is_lines && schema.is_none_or(|schema| schema.starts_with("quarry-trace-lines/")) {
        return None;
    }
    Some(Kind {
        what: format!("a report ({})", schema.unwrap_or("JSON")),
        advice: match schema.and_then(|schema| schema.split('/').next()) {
            Some("quarry-bench") => "quarry bench --from FILE shows it",
            Some("quarry-model") => "quarry gen --model FILE makes a trace of it",
            _ => "it is for other programs to read; use what it was made from",
        },
    })
}

/// Text of two bytes for a letter, without the mark that says so.
pub fn utf16(begin: &[u8]) -> Option<Kind> {
    /// Eight letters in a row are no chance.
    const LETTERS: usize = 8;
    let pairs = || begin.chunks_exact(2).take(LETTERS);
    let is_text = |letter: usize| {
        pairs().count() == LETTERS
            && pairs().all(|pair| (1..0x80).contains(&pair[letter]) && pair[1 - letter] == 0)
    };
    let (what, advice) = if is_text(0) {
        ("text in UTF-16LE without a mark", "iconv -f UTF-16LE -t UTF-8 makes what is read")
    } else if is_text(1) {
        ("text in UTF-16BE without a mark", "iconv -f UTF-16BE -t UTF-8 makes what is read")
    } else {
        return None;
    };
    Some(Kind { what: what.to_owned(), advice })
}

/// "==1234== Memcheck, a memory error detector".
fn is_valgrind(begin: &[u8]) -> bool {
    let Some(rest) = begin.strip_prefix(b"==") else { return false };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    digits > 0 && rest[digits..].starts_with(b"== ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_is_and_who_reads_it() {
        let core: &[u8] = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x04\0";
        for (begin, what, advice) in [
            (&MAGIC[..], "a log of pools", "quarry pools"),
            (core, "a core file", "quarry map"),
            (b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0", "a program or library", "quarry record"),
            (b"7ffc0000-7ffc2000 rw-p 00000000 00:00 0   [stack]\n", "a copy of /proc", "quarry map"),
            (b"{\n  \"schema\": \"quarry-bench/3\",\n", "a report (quarry-bench/3)", "bench --from"),
            (b"{\"a\":1, \"schema\":\"quarry-info/1\"}", "a report (quarry-info/1)", "made from"),
            (b"{\r\n  \"allocations\": {\r\n", "a report (JSON)", "made from"),
            (b"{\"dhatFileVersion\":2,\"mode\":\"heap\",\n", "a profile (DHAT)", "dh_view"),
            (
                b"00400000-7fff00000000 ---p 00000000 00:00 0  [rollup]\nRss: 4 kB\n",
                "a copy of /proc/PID/smaps_rollup",
                "smaps",
            ),
            (b"{\"op\":\"mark\",\"text\":\"schema\"}\n", "a trace (jsonl)", "quarry info"),
            (b"{\"schema\":\"quarry-trace-lines/1\",\"head\":{}}\n", "a trace (jsonl)", "also its pools"),
            (b"= Start\n", "a trace (mtrace)", "quarry info"),
            (b"=\0 \0S\0t\0a\0r\0t\0\n\0@\0", "text in UTF-16LE without a mark", "iconv -f UTF-16LE"),
            (b"\0=\0 \0S\0t\0a\0r\0t\0\n\0@", "text in UTF-16BE without a mark", "iconv -f UTF-16BE"),
            (b"==24103== Memcheck, a memory error detector\n", "a log of valgrind", "massif"),
            (b"heap_v2/1\n", "a profile (jeprof)", "quarry info"),
            (b"time_ns,thread,op,api\n", "a table (csv)", "not read"),
        ] {
            let kind = of(begin).unwrap_or_else(|| panic!("{what}"));
            assert!(
                kind.what.starts_with(what) && kind.advice.contains(advice),
                "{}: {}",
                kind.what,
                kind.advice
            );
        }
        assert!(of(b"").is_none() && of(b"#!/bin/sh\n").is_none() && of(b"=====\n").is_none());
    }
}
