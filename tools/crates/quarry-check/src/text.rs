// SPDX-License-Identifier: MIT
//! Findings for people.

use std::fmt::Write;

use quarry_report::style::Style;
use quarry_report::units;

use crate::finding::{At, Finding, Findings, Stack, shorn};
use crate::says;
use crate::source::Sources;
use crate::suppress::{Suppressions, Syntax, suppression};

/// Frames of a stack that are shown.
const FRAMES: usize = 32;

/// Writes findings.
pub struct Text {
    style: Style,
    sources: Sources,
    made: Option<Syntax>,
    hint: bool,
}

/// What is said at the end, beside the findings.
#[derive(Debug, Default)]
pub struct Ending {
    /// How the program ended, in words; empty: nothing ran.
    pub end: String,
    /// Its process.
    pub pid: u32,
    /// Processes that still run.
    pub living: Vec<u32>,
    /// Findings that count as errors for the exit code.
    pub counted: usize,
    /// Files without names, and why.
    pub missing: Vec<String>,
    /// Further remarks.
    pub notes: Vec<String>,
    /// Was nothing checked, or not what the command became? A note says why.
    pub failed: bool,
}

impl Text {
    /// In this style, with lines of source. `made`: behind each finding the suppression that would hide it. `hint`: what
    /// was found later is worth a second run.
    pub fn new(style: Style, sources: Sources, made: Option<Syntax>, hint: bool) -> Self {
        Self { style, sources, made, hint }
    }

    /// A finding of the first run, of which the second knows more.
    pub fn answer(&mut self, finding: &Finding) -> String {
        let number = finding.number;
        // An instruction that changes memory may fault by its load, and after that the guard is open.
        let what = if finding.fault().is_some_and(|fault| fault.write) {
            format!("The second run found #{number} at its instruction:")
        } else {
            format!(
                "The second run found a read of the block of #{number}, before the write or by the same instruction:"
            )
        };
        format!("{what}\n{}", self.finding(finding))
    }

    /// One finding.
    pub fn finding(&mut self, finding: &Finding) -> String {
        let mut text = String::new();
        let word = self.style.error(&finding.word);
        let _ = writeln!(text, "#{} {word}: {}", finding.number, says::sentence(finding));
        match (finding.fault(), finding.leak()) {
            (Some(fault), _) => {
                let how = if fault.evidence { "found" } else { "done" };
                let thread = Self::thread(fault.thread.tid, &fault.thread.name);
                let _ = writeln!(text, "  {how} in process {}{thread}:", finding.pid);
                self.stack(&mut text, &finding.stack, true);
                if let Some(block) = &fault.block {
                    let _ = writeln!(text, "  {}", says::block(block));
                    self.at(&mut text, "freed", block.free.as_ref());
                    self.at(&mut text, "allocated", block.alloc.as_ref());
                }
            }
            (_, Some(leak)) => {
                let maker = says::maker(&leak.family, leak.pool.as_deref(), leak.pool_kind.as_deref());
                let from = if leak.pool.is_some() { "from the" } else { "by" };
                let example = format!("one of them is {:#x}", leak.example);
                let _ = writeln!(text, "  allocated {from} {maker} in process {}, {example}:", finding.pid);
                self.stack(&mut text, &finding.stack, true);
            }
            _ => {}
        }
        let _ = writeln!(text, "  {}", says::advice(finding, self.hint));
        if let Some(syntax) = self.made {
            text += &suppression(finding, syntax);
        }
        text.push('\n');
        text
    }

    fn thread(tid: u32, name: &str) -> String {
        match (tid, name) {
            (0, _) => String::new(),
            (tid, "") => format!(", thread {tid}"),
            (tid, name) => format!(", thread {tid} ({name})"),
        }
    }

    fn at(&mut self, text: &mut String, what: &str, at: Option<&At>) {
        let Some(at) = at else { return };
        let _ = writeln!(text, "  {what}{}:", Self::thread(at.tid, "").replacen(',', " by", 1));
        self.stack(text, &at.stack, false);
    }

    /// The first place whose source is there is shown with the lines around it (`wide`), or its own.
    fn stack(&mut self, text: &mut String, stack: &Stack, wide: bool) {
        if stack.is_empty() {
            let _ = writeln!(text, "    (no call stack)");
        }
        let mut shown = false;
        for (place, frame) in shorn(stack).take(FRAMES) {
            let _ = writeln!(text, "    {:#014x} {}", place.pc, frame.text());
            if shown {
                continue;
            }
            let line = frame.line.unwrap_or(0);
            let lines = self.sources.around(frame);
            shown = !lines.is_empty();
            for (number, source) in lines.into_iter().filter(|(number, _)| wide || *number == line) {
                let mark = if number == line { '>' } else { ' ' };
                let _ = writeln!(text, "{}", format!("      {mark} {number:>5} | {source}").trim_end());
            }
        }
        if shorn(stack).nth(FRAMES).is_some() {
            let _ = writeln!(text, "    ... and {} more", shorn(stack).count() - FRAMES);
        }
    }

    /// What there is to say at the end. `findings` may be of several processes.
    pub fn summary(&self, findings: &Findings, suppressions: &Suppressions, ending: &Ending) -> String {
        let mut text = String::new();
        let _ = writeln!(text, "{}", self.style.bold("quarry check"));
        for process in findings.processes.iter().take(FRAMES) {
            let begin = &process.begin;
            let from = begin.forked_from.map(|pid| format!(", a copy of {pid}")).unwrap_or_default();
            let end = match &process.end {
                None => without_end(findings, begin.pid, ending),
                Some(end) => match end.how.as_str() {
                    "exit" => format!("exit {}", end.status),
                    "signal" => format!("signal {}", end.status),
                    how => how.to_owned(),
                },
            };
            let run = if process.second { ", second run" } else { "" };
            let _ = writeln!(text, "  process {}{from}{run}: {}: {end}", begin.pid, begin.command.join(" "));
        }
        if let Some(rest) = findings.processes.len().checked_sub(FRAMES).filter(|&rest| rest > 0) {
            let _ = writeln!(text, "  ... and {rest} more {}", units::noun(rest as u64, "process"));
        }
        if !ending.end.is_empty() {
            let _ = writeln!(text, "  the command: {}", ending.end);
        }
        errors(&mut text, findings, ending.counted);
        leaks(&mut text, findings);
        let hidden: u64 = suppressions.all.iter().map(|entry| entry.used).sum();
        if hidden > 0 {
            let _ = writeln!(text, "  suppressed: {hidden}");
            for entry in suppressions.all.iter().filter(|entry| entry.used > 0) {
                let _ = writeln!(text, "    {:>6} {}", entry.used, entry.name);
            }
        }
        if findings.dropped > 0 {
            let _ = writeln!(text, "  not kept, since there are too many: {}", findings.dropped);
        }
        if findings.damaged > 0 {
            let _ = writeln!(text, "  lines that could not be read: {}", findings.damaged);
        }
        for (pid, note) in &findings.notes {
            let _ = writeln!(text, "  note of process {pid}: {note}");
        }
        for note in &ending.notes {
            let _ = writeln!(text, "  note: {note}");
        }
        for missing in &ending.missing {
            let _ = writeln!(text, "  no names: {missing}");
        }
        text
    }
}

/// Of a process that has told no end. That of the command is known, unless it was that of a program before its last one.
fn without_end(findings: &Findings, pid: u32, ending: &Ending) -> String {
    let programs = findings.processes.iter().filter(|process| process.begin.pid == pid && !process.second);
    let how = match ending.living.contains(&pid) {
        true => "it still runs",
        false if pid == ending.pid && programs.count() == 1 => &ending.end,
        false => "it was killed, or still runs",
    };
    format!("{how}; errors that are found at the end are not there")
}

/// `counted`: errors, and the leaks that count as such.
fn errors(text: &mut String, findings: &Findings, counted: usize) {
    let mut kinds: Vec<(&str, u64, u64)> = Vec::new();
    for finding in findings.errors() {
        match kinds.iter_mut().find(|(word, ..)| *word == finding.word) {
            Some((_, places, times)) => {
                (*places, *times) = (*places + 1, times.saturating_add(finding.count))
            }
            None => kinds.push((&finding.word, 1, finding.count)),
        }
    }
    let places: u64 = kinds.iter().map(|(_, places, _)| places).sum();
    let times = kinds.iter().fold(0u64, |sum, (.., times)| sum.saturating_add(*times));
    match places {
        0 => {
            let _ = writeln!(text, "  errors: none{}", counting_leaks(counted as u64));
        }
        _ => {
            let _ = writeln!(text, "  errors: {places}{}", often(places, times));
        }
    }
    for (word, places, times) in kinds {
        let _ = writeln!(text, "    {places:>6} {word}{}", often(places, times));
    }
}

/// Why the exit code tells of errors where there are none.
fn counting_leaks(count: u64) -> String {
    let leaks = units::of(count, "leak");
    match count {
        0 => String::new(),
        1 => format!("; {leaks} counts as an error (--leak-errors none: it does not)"),
        _ => format!("; {leaks} count as errors (--leak-errors none: they do not)"),
    }
}

/// Where a place had its error several times.
fn often(places: u64, times: u64) -> String {
    if times > places { format!(", found {times} times") } else { String::new() }
}

fn leaks(text: &mut String, findings: &Findings) {
    for kind in ["leak-definite", "leak-possible", "leak-growing", "leak-reachable"] {
        let of_kind = || findings.leaks().filter(|finding| finding.word == kind).filter_map(Finding::leak);
        let sum = |of: fn(&crate::finding::Leaked) -> u64| {
            of_kind().fold(0u64, |sum, leak| sum.saturating_add(of(leak)))
        };
        let (bytes, blocks) = (sum(|leak| leak.bytes), sum(|leak| leak.blocks));
        if blocks > 0 {
            let indirect = match sum(|leak| leak.indirect_bytes) {
                0 => String::new(),
                more => format!(", and {} with them", units::bytes(more as f64)),
            };
            let _ = writeln!(
                text,
                "  {kind}: {} in {}{indirect}",
                units::bytes(bytes as f64),
                says::blocks(blocks)
            );
        }
    }
    for process in &findings.processes {
        let Some(scan) = &process.scan else { continue };
        let (bytes, blocks) =
            (units::bytes(scan.reachable.bytes as f64), says::blocks(scan.reachable.blocks));
        let pause = units::nanoseconds(scan.pause_ns as f64);
        let _ = writeln!(
            text,
            "  leaks of process {}: scan {} ({}), pause {pause}; in use {bytes} in {blocks}",
            process.begin.pid, scan.number, scan.at
        );
        if let Some(reason) = &scan.incomplete {
            let _ = writeln!(text, "    the scan is not complete: {reason}");
        }
    }
    for process in &findings.processes {
        let refused = process.refused();
        if refused > 0 {
            let _ = writeln!(
                text,
                "  process {}: {refused} more {} would have had a guard, but memory, mappings or the limit were used up",
                process.begin.pid,
                units::noun(refused, "block")
            );
        }
    }
}
