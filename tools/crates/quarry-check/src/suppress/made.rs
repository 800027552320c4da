// SPDX-License-Identifier: MIT
//! The entry that would hide a finding.

use super::called;
use crate::finding::{Finding, frames};
use crate::kinds::About;

/// Frames of an entry at most.
const MOST: usize = 8;

/// Whose syntax.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syntax {
    /// Memcheck reads it, too.
    Valgrind,
    /// LeakSanitizer reads those of leaks, too.
    Lsan,
}

/// In valgrind's syntax, which memcheck reads, too, where it has a word for the kind.
pub fn suppression(finding: &Finding, syntax: Syntax) -> String {
    match syntax {
        Syntax::Valgrind => braces(finding),
        Syntax::Lsan => colon(finding),
    }
}

fn colon(finding: &Finding) -> String {
    let kind = if finding.kind.about == About::Leak { "leak" } else { finding.kind.word };
    let frame = frames(&finding.stack).map(|(_, frame)| frame).find(|frame| frame.function.is_some());
    let module = || finding.stack.first().map_or("*", |place| place.frames[0].module_name());
    match frame.and_then(|frame| frame.function.as_deref()) {
        Some(function) => format!("{kind}:^{function}$\n"),
        None => format!("{kind}:{}\n", module()),
    }
}

fn braces(finding: &Finding) -> String {
    let memcheck = match finding.kind.suppression {
        "Addr" => {
            let bytes = finding.fault().map_or(1, |fault| fault.bytes);
            let size = [16, 8, 4, 2].into_iter().find(|size| bytes >= *size).unwrap_or(1);
            Some(format!("Memcheck:Addr{size}"))
        }
        "" => None,
        word => Some(format!("Memcheck:{word}")),
    };
    let kind = memcheck.unwrap_or_else(|| format!("Quarry:{}", finding.word));
    let mut text = format!("{{\n   {}-{}\n   {kind}\n", finding.word, finding.number);
    if let Some(leak) = finding.word.strip_prefix("leak-").filter(|_| finding.leak().is_some()) {
        // Growth is none of memcheck's kinds; such blocks are reachable.
        let leak = if leak == "growing" { "growing,reachable" } else { leak };
        text += &format!("   match-leak-kinds: {leak}\n");
    }
    if let Some(name) = called(finding).first() {
        text += &format!("   fun:{name}\n");
    }
    let mut any = false;
    for (_, frame) in frames(&finding.stack).take(MOST) {
        text += &match &frame.function {
            Some(function) => format!("   fun:{}\n", function.split('(').next().unwrap_or(function)),
            None if frame.module.is_empty() => String::from("   obj:*\n"),
            None => format!("   obj:{}\n", frame.module),
        };
        any = true;
    }
    if !any && called(finding).is_empty() {
        text += "   ...\n";
    }
    text + "}\n"
}
