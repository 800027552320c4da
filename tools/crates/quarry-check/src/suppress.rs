// SPDX-License-Identifier: MIT
//! What is not to be reported. Files have the syntax of valgrind (blocks in braces) or of LeakSanitizer (`leak:pattern`), also
//! both in one file: an entry that begins with a brace is valgrind's.

mod glob;
mod made;

use quarry_symbols::{Frame, demangled};

use crate::finding::{Finding, frames};
use crate::kinds::{self, About};

pub use made::{Syntax, suppression};

/// Most entries of all files.
const MOST: usize = 10_000;
/// Most lines of one entry.
const LINES: usize = 256;
/// Frames of a stack that are compared.
const FRAMES: usize = 1024;
/// Most bytes of a line.
const LONGEST: usize = 4096;

/// A frame that must be there.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Matcher {
    /// Any number of frames.
    Any,
    Function(String),
    Object(String),
    /// FILE or FILE:LINE.
    Source(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Rule {
    /// Of valgrind: kinds of memcheck's or our own, the kinds of leaks (empty: all), and the innermost frames.
    Frames { kinds: Vec<String>, leaks: Vec<String>, frames: Vec<Matcher> },
    /// Of LeakSanitizer: any frame has it in its function, its object or its file.
    Anywhere { kind: String, pattern: String },
}

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suppression {
    /// Its name, for the summary.
    pub name: String,
    rule: Rule,
    /// Findings that it hid.
    pub used: u64,
}

/// All of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Suppressions {
    /// In the order of the files.
    pub all: Vec<Suppression>,
}

/// What is wrong, and in which line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// From 1.
    pub line: usize,
    /// What is wrong with it.
    pub what: String,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

fn fault<T>(line: usize, what: impl Into<String>) -> Result<T, Fault> {
    Err(Fault { line: line + 1, what: what.into() })
}

/// What LeakSanitizer and AddressSanitizer have beside `leak`, and nothing here is.
const OTHERS: [&str; 5] = [
    "interceptor_name",
    "interceptor_via_fun",
    "interceptor_via_lib",
    "odr_violation",
    "alloc_dealloc_mismatch",
];

impl Suppressions {
    /// Add what a file says.
    pub fn add(&mut self, text: &str) -> Result<(), Fault> {
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let mut at = 0;
        while at < lines.len() {
            let line = lines[at];
            if self.all.len() >= MOST {
                return fault(at, format!("more than {MOST} entries"));
            }
            if line.len() > LONGEST {
                return fault(at, format!("longer than {LONGEST} bytes"));
            }
            match line {
                "" => at += 1,
                _ if line.starts_with('#') => at += 1,
                "{" => {
                    let end = lines[at..].iter().take(LINES).position(|&line| line == "}");
                    let Some(length) = end else { return fault(at, "this brace has no end") };
                    self.all.push(braces(&lines[at + 1..at + length], at + 1)?);
                    at += length + 1;
                }
                _ => {
                    self.all.extend(colon(line, at)?);
                    at += 1;
                }
            }
        }
        Ok(())
    }

    /// The entry that hides it: its index.
    pub fn hides(&self, finding: &Finding) -> Option<usize> {
        self.all.iter().position(|entry| entry.rule.hides(finding))
    }

    /// Count what each entry hides. At the end: a leak that was found may be none by then.
    pub fn count(&mut self, findings: &[Finding]) {
        for index in findings.iter().filter_map(|finding| finding.suppressed) {
            self.all[index].used += 1;
        }
    }
}

fn colon(line: &str, at: usize) -> Result<Option<Suppression>, Fault> {
    let Some((kind, pattern)) = line.split_once(':') else {
        return fault(at, format!("'{line}' is neither KIND:PATTERN nor the begin of an entry in braces"));
    };
    if OTHERS.contains(&kind) {
        return Ok(None);
    }
    let is_kind = kinds::ALL.iter().any(|known| known.word == kind);
    if kind != "leak" && !is_kind {
        return fault(at, format!("'{kind}' is no kind; say leak, or a kind that docs/check.md lists"));
    }
    let rule = Rule::Anywhere { kind: kind.to_owned(), pattern: pattern.to_owned() };
    Ok(Some(Suppression { name: line.to_owned(), rule, used: 0 }))
}

fn braces(lines: &[&str], at: usize) -> Result<Suppression, Fault> {
    let mut lines = lines
        .iter()
        .enumerate()
        .map(|(index, &line)| (at + index, line))
        .filter(|(_, line)| !line.is_empty());
    let Some((_, name)) = lines.next() else { return fault(at, "the entry has no name") };
    let Some((at, kinds)) = lines.next() else { return fault(at, "the entry has no kind") };
    let Some((tools, kind)) = kinds.split_once(':') else {
        return fault(at, format!("'{kinds}' is not of the form TOOL:KIND"));
    };
    let ours = tools.split(',').any(|tool| ["Memcheck", "Quarry", "*"].contains(&tool.trim()));
    let kinds = if ours { vec![kind.trim().to_owned()] } else { Vec::new() };
    let (mut leaks, mut frames) = (Vec::new(), Vec::new());
    for (at, line) in lines {
        let matcher = match line.split_once(':') {
            _ if line == "..." => Matcher::Any,
            // As it is, or of a mangled name.
            Some(("fun", name)) if name.starts_with("_Z") && !name.contains(['*', '?']) => {
                Matcher::Function(demangled(name))
            }
            Some(("fun", name)) => Matcher::Function(name.to_owned()),
            Some(("obj", name)) => Matcher::Object(name.to_owned()),
            Some(("src", name)) => Matcher::Source(name.to_owned()),
            Some(("match-leak-kinds", list)) => {
                leaks = list.split(',').map(|kind| kind.trim().to_owned()).collect();
                continue;
            }
            // What is behind the kind Param names a parameter of a system call.
            _ if kind == "Param" && frames.is_empty() => continue,
            _ => return fault(at, format!("'{line}' is none of fun:, obj:, src: and ...")),
        };
        if frames.last() != Some(&Matcher::Any) || matcher != Matcher::Any {
            frames.push(matcher);
        }
    }
    if frames.is_empty() {
        return fault(at, "the entry has no frames; say ... for any");
    }
    Ok(Suppression { name: name.to_owned(), rule: Rule::Frames { kinds, leaks, frames }, used: 0 })
}

/// Does memcheck's word, or ours, name this kind?
fn is_kind(word: &str, finding: &Finding) -> bool {
    let own = finding.kind.suppression;
    let sizes = ["Addr1", "Addr2", "Addr4", "Addr8", "Addr16", "Addr32", "Value1", "Jump"];
    match word {
        // Memcheck's functions read a byte at a time where ours tell the whole access.
        _ if own == "Addr" && word.starts_with("Addr") => sizes.contains(&word),
        _ => word == own || glob::matches(word, &finding.word),
    }
}

/// The function that a program called, as memcheck's stacks begin with it.
fn called(finding: &Finding) -> Vec<&str> {
    let family = match (finding.fault(), finding.leak()) {
        (Some(fault), _) => return fault.function.as_deref().into_iter().collect(),
        (_, Some(leak)) => leak.family.as_str(),
        _ => "",
    };
    match family {
        "new" => vec!["_Znwm", "operator new(unsigned long)"],
        "new-array" | "new_array" | "new[]" => vec!["_Znam", "operator new[](unsigned long)"],
        "memalign" => vec!["posix_memalign", "aligned_alloc", "memalign"],
        "" => Vec::new(),
        other => vec![other],
    }
}

impl Rule {
    fn hides(&self, finding: &Finding) -> bool {
        let is_leak = finding.kind.about == About::Leak;
        match self {
            Self::Anywhere { kind, pattern } => {
                (kind == &finding.word || kind == "leak" && is_leak)
                    && frames(&finding.stack).any(|(_, frame)| {
                        let texts = [frame.function.as_deref(), frame.file.as_deref(), Some(&frame.module)];
                        texts.into_iter().flatten().any(|text| glob::contains(pattern, text))
                    })
            }
            Self::Frames { kinds, leaks, frames: wanted } => {
                let leak = finding.word.strip_prefix("leak-").filter(|_| is_leak && !leaks.is_empty());
                kinds.iter().any(|word| is_kind(word, finding))
                    && leak.is_none_or(|leak| leaks.iter().any(|kind| kind == leak || kind == "all"))
                    && fits(wanted, finding)
            }
        }
    }
}

/// A frame to be compared.
enum Candidate<'a> {
    Called(&'a [&'a str]),
    Frame(&'a Frame),
}

fn fits(wanted: &[Matcher], finding: &Finding) -> bool {
    let names = called(finding);
    let mut stack: Vec<Candidate> = Vec::new();
    if !names.is_empty() {
        stack.push(Candidate::Called(&names));
    }
    stack.extend(frames(&finding.stack).take(FRAMES).map(|(_, frame)| Candidate::Frame(frame)));
    let from =
        |stack: &[Candidate]| glob::prefix(wanted, stack, |matcher| *matcher == Matcher::Any, is_frame);
    from(&stack) || !names.is_empty() && from(&stack[1..])
}

fn is_frame(matcher: &Matcher, frame: &Candidate) -> bool {
    match (matcher, frame) {
        (Matcher::Any, _) => true,
        (Matcher::Function(pattern), Candidate::Called(names)) => {
            names.iter().any(|name| glob::matches(pattern, name))
        }
        // The object is memcheck's own there, or that of quarry check.
        (Matcher::Object(pattern), Candidate::Called(_)) => {
            pattern.contains("vgpreload") || glob::matches(pattern, "libquarry-check.so")
        }
        (Matcher::Source(_), Candidate::Called(_)) => false,
        (Matcher::Function(pattern), Candidate::Frame(frame)) => frame
            .function
            .as_deref()
            .is_some_and(|name| glob::matches(pattern, name) || glob::matches(pattern, bare(name))),
        (Matcher::Object(pattern), Candidate::Frame(frame)) => glob::matches(pattern, &frame.module),
        (Matcher::Source(pattern), Candidate::Frame(frame)) => frame.file.as_deref().is_some_and(|file| {
            let name = file.rsplit('/').next().unwrap_or(file);
            let lines = frame.line.map(|line| [format!("{file}:{line}"), format!("{name}:{line}")]);
            [file, name].iter().any(|file| glob::matches(pattern, file))
                || lines.is_some_and(|lines| lines.iter().any(|line| glob::matches(pattern, line)))
        }),
    }
}

/// What a namespace without a name is called.
const UNNAMED: &str = "(anonymous namespace)";

/// A function's name without its arguments. An unnamed namespace and a `decltype` before the name have brackets, too.
fn bare(function: &str) -> &str {
    let mut at = 0;
    while let Some(open) = function[at..].find('(') {
        let (before, rest) = function.split_at(at + open);
        if !rest.starts_with(UNNAMED) && !before.trim_end().ends_with("decltype") {
            return before;
        }
        at = before.len() + bracket(rest);
    }
    function
}

/// The length of the bracket that a text begins with.
fn bracket(text: &str) -> usize {
    let mut depth = 0;
    for (at, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    text.len()
}

#[cfg(test)]
#[path = "suppress/tests.rs"]
mod tests;
