// SPDX-License-Identifier: MIT
//! Findings in the XML of valgrind's memcheck, protocol 4, which development environments and CI servers read.

use std::fmt::Write;

use quarry_symbols::Frame;

use crate::finding::{Finding, Findings, Process, Stack, What, frames};
use crate::kinds::About;
use crate::says;
use crate::suppress::{Suppressions, Syntax, suppression};

/// How long it took, in milliseconds, and whether suppressions are made.
#[derive(Debug, Clone, Copy, Default)]
pub struct Times {
    /// From the start to the end.
    pub end_ms: u64,
    /// Write the suppression that would hide each.
    pub made: bool,
}

/// The whole document. `findings.processes` has the command first.
pub fn report(findings: &Findings, suppressions: &Suppressions, times: Times) -> String {
    let mut text = String::from("<?xml version=\"1.0\"?>\n\n<valgrindoutput>\n\n");
    text += "<protocolversion>4</protocolversion>\n<protocoltool>memcheck</protocoltool>\n\n";
    text += "<preamble>\n  <line>quarry check, in the format of memcheck</line>\n</preamble>\n\n";
    let empty = Process::default();
    let first = findings.processes.first().unwrap_or(&empty);
    let begin = &first.begin;
    let _ = write!(text, "<pid>{}</pid>\n<ppid>{}</ppid>\n<tool>memcheck</tool>\n\n", begin.pid, begin.ppid);
    text += "<args>\n  <vargv>\n    <exe>quarry</exe>\n    <arg>check</arg>\n  </vargv>\n  <argv>\n";
    let _ = writeln!(text, "    <exe>{}</exe>", escaped(begin.command.first().unwrap_or(&begin.exe)));
    for word in begin.command.iter().skip(1) {
        let _ = writeln!(text, "    <arg>{}</arg>", escaped(word));
    }
    text += "  </argv>\n</args>\n\n";
    status(&mut text, "RUNNING", 0);
    for finding in findings.shown() {
        error(&mut text, finding, times.made);
    }
    status(&mut text, "FINISHED", times.end_ms);
    text += "<errorcounts>\n";
    for finding in findings.shown() {
        let _ = writeln!(
            text,
            "  <pair>\n    <count>{}</count>\n    <unique>{:#x}</unique>\n  </pair>",
            finding.count, finding.number
        );
    }
    text += "</errorcounts>\n\n<suppcounts>\n";
    for entry in suppressions.all.iter().filter(|entry| entry.used > 0) {
        let _ = writeln!(
            text,
            "  <pair>\n    <count>{}</count>\n    <name>{}</name>\n  </pair>",
            entry.used,
            escaped(&entry.name)
        );
    }
    text + "</suppcounts>\n\n</valgrindoutput>\n"
}

/// Text between tags. Characters that no XML has become U+FFFD.
fn escaped(text: &str) -> String {
    let mut all = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => all += "&lt;",
            '>' => all += "&gt;",
            '&' => all += "&amp;",
            '\t' | '\n' => all.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => all.push('\u{fffd}'),
            c => all.push(c),
        }
    }
    all
}

fn status(text: &mut String, state: &str, ms: u64) {
    let (days, hours) = (ms / 86_400_000, ms / 3_600_000 % 24);
    let (minutes, seconds, rest) = (ms / 60_000 % 60, ms / 1000 % 60, ms % 1000);
    let _ = write!(
        text,
        "<status>\n  <state>{state}</state>\n  <time>{days:02}:{hours:02}:{minutes:02}:{seconds:02}.{rest:03} </time>\n</status>\n\n"
    );
}

/// What memcheck calls it.
fn kind(finding: &Finding) -> &'static str {
    let write = finding.fault().is_some_and(|fault| fault.write || fault.evidence);
    match (finding.kind.about, finding.kind.memcheck) {
        (About::Access, _) if write => "InvalidWrite",
        (About::Access, _) => "InvalidRead",
        (_, kind) => kind,
    }
}

fn error(text: &mut String, finding: &Finding, made: bool) {
    let tid = finding.fault().map_or(1, |fault| fault.thread.tid.max(1));
    let _ = write!(text, "<error>\n  <unique>{:#x}</unique>\n  <tid>{tid}</tid>\n", finding.number);
    if let Some(fault) = finding.fault().filter(|fault| !fault.thread.name.is_empty()) {
        let _ = writeln!(text, "  <threadname>{}</threadname>", escaped(&fault.thread.name));
    }
    let _ = writeln!(text, "  <kind>{}</kind>", kind(finding));
    let what = escaped(&format!("{}: {}", finding.word, says::sentence(finding)));
    match &finding.what {
        What::Fault(_) => {
            let _ = writeln!(text, "  <what>{what}</what>");
        }
        What::Leak(leak) => {
            let bytes = leak.bytes.saturating_add(leak.indirect_bytes);
            let _ = write!(
                text,
                "  <xwhat>\n    <text>{what}</text>\n    <leakedbytes>{bytes}</leakedbytes>\n    \
                 <leakedblocks>{}</leakedblocks>\n  </xwhat>\n",
                leak.blocks
            );
        }
    }
    stack(text, &finding.stack);
    if let Some(block) = finding.fault().and_then(|fault| fault.block.as_ref()) {
        let about = says::block(block);
        for (word, at) in [("was freed", &block.free), ("was allocated", &block.alloc)] {
            if let Some(at) = at {
                let _ = writeln!(text, "  <auxwhat>The {} {word} at</auxwhat>", escaped(&about));
                stack(text, &at.stack);
            }
        }
    }
    if made {
        entry(text, finding);
    }
    text.push_str("</error>\n\n");
}

fn stack(text: &mut String, stack: &Stack) {
    text.push_str("  <stack>\n");
    // A stack has a frame at least.
    if stack.is_empty() {
        text.push_str("    <frame>\n      <ip>0x0</ip>\n    </frame>\n");
    }
    for (place, frame) in frames(stack) {
        let _ = writeln!(text, "    <frame>\n      <ip>{:#x}</ip>", place.pc);
        lines(text, frame);
        text.push_str("    </frame>\n");
    }
    text.push_str("  </stack>\n");
}

fn lines(text: &mut String, frame: &Frame) {
    if !frame.module.is_empty() {
        let _ = writeln!(text, "      <obj>{}</obj>", escaped(&frame.module));
    }
    if let Some(function) = &frame.function {
        let _ = writeln!(text, "      <fn>{}</fn>", escaped(function));
    }
    let Some(path) = &frame.file else { return };
    let (dir, file) = path.rsplit_once('/').unwrap_or(("", path));
    if !dir.is_empty() {
        let _ = writeln!(text, "      <dir>{}</dir>", escaped(dir));
    }
    let _ = writeln!(text, "      <file>{}</file>", escaped(file));
    if let Some(line) = frame.line {
        let _ = writeln!(text, "      <line>{line}</line>");
    }
}

fn entry(text: &mut String, finding: &Finding) {
    let raw = suppression(finding, Syntax::Valgrind);
    let words: Vec<&str> =
        raw.lines().map(str::trim).filter(|line| !matches!(*line, "{" | "}" | "")).collect();
    let [name, kind, rest @ ..] = words.as_slice() else { return };
    let _ = writeln!(
        text,
        "  <suppression>\n    <sname>{}</sname>\n    <skind>{}</skind>",
        escaped(name),
        escaped(kind)
    );
    for line in rest {
        let frame = match line.split_once(':') {
            Some(("fun", name)) => format!("<fun>{}</fun>", escaped(name)),
            Some(("obj", name)) => format!("<obj>{}</obj>", escaped(name)),
            Some((key, value)) => {
                let _ = writeln!(text, "    <skaux>{}: {}</skaux>", escaped(key), escaped(value.trim()));
                continue;
            }
            None => String::from("<obj>*</obj>"),
        };
        let _ = writeln!(text, "    <sframe> {frame} </sframe>");
    }
    // The end of a section of CDATA cannot stand in it.
    let _ = writeln!(
        text,
        "    <rawtext>\n<![CDATA[\n{}]]>\n    </rawtext>\n  </suppression>",
        raw.replace("]]>", "]]&gt;")
    );
}
