// SPDX-License-Identifier: MIT
//! The entry that would hide a finding.

use super::{UNNAMED, bare, called};
use crate::finding::{Finding, frames, shorn};
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

/// A pattern for the name. memcheck compares mangled names and we plain ones. Both have the words of the name in the same order.
fn pattern(function: &str) -> String {
    // Mangled, an unnamed namespace has other words.
    let name = bare(function).replace(UNNAMED, "");
    if !name.is_empty() && name.chars().all(|it| it.is_alphanumeric() || "_.$@".contains(it)) {
        return name;
    }
    let (mut words, mut depth) = (vec![String::new()], 0usize);
    for it in name.chars() {
        match it {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            _ if depth > 0 => {}
            // "new" and "delete" have letters of their own in a mangled name.
            _ if words.last().is_some_and(|word| word == "operator") => break,
            // What stands before is the type of a template's result.
            ' ' => words = vec![String::new()],
            _ if it.is_alphanumeric() || it == '_' => words.last_mut().expect("there is one").push(it),
            _ => words.push(String::new()),
        }
    }
    let words: Vec<String> =
        words.into_iter().filter(|word| !word.is_empty() && word != "operator").collect();
    if words.is_empty() { "*".into() } else { format!("*{}*", words.join("*")) }
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
        text += &format!("   fun:{}\n", pattern(name));
    }
    let mut any = false;
    // memcheck's stacks end at main.
    for (_, frame) in shorn(&finding.stack).take(MOST) {
        text += &match &frame.function {
            Some(function) => format!("   fun:{}\n", pattern(function)),
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

#[cfg(test)]
mod tests {
    use super::super::glob::matches;
    use super::{bare, pattern};

    #[test]
    fn a_pattern_fits_the_plain_and_the_mangled_name() {
        for (plain, mangled, made) in [
            ("main", "main", "main"),
            ("off_by_one", "off_by_one", "off_by_one"),
            ("a::S::method(int) const", "_ZNK1a1S6methodEi", "*a*S*method*"),
            ("void tf<char, int>(char*)", "_Z2tfIciEvPT_", "*tf*"),
            ("operator delete(void*, unsigned long)", "_ZdlPvm", "*"),
            ("a::S::operator[](int)", "_ZN1a1SixEi", "*a*S*"),
            ("(anonymous namespace)::fetch(int)", "_ZN12_GLOBAL__N_15fetchEi", "*fetch*"),
            ("a::(anonymous namespace)::fetch(int)", "_ZN1a12_GLOBAL__N_15fetchEi", "*a*fetch*"),
            ("int (anonymous namespace)::fetch<int>(int)", "_ZN12_GLOBAL__N_15fetchIiEEiT_", "*fetch*"),
            ("decltype(auto) fetch<int>(int)", "_Z5fetchIiEDcT_", "*fetch*"),
            ("decltype ((a)+(b)) fetch<int>(int)", "_Z5fetchIiEDTplfp_fp_ET_", "*fetch*"),
        ] {
            let name = bare(plain);
            assert_eq!(pattern(plain), made);
            assert!(matches(made, name) && matches(made, mangled), "{made}: {name}, {mangled}");
        }
    }

    #[test]
    fn arguments_are_no_part_of_a_name() {
        for (name, arguments) in [
            ("(anonymous namespace)::f", "(int)"),
            ("a::(anonymous namespace)::f", "(void (*)(int))"),
            ("decltype((a)+(b)) f<int>", "(int)"),
            ("main", ""),
            ("decltype(x", ""),
        ] {
            assert_eq!(bare(&format!("{name}{arguments}")), name);
        }
        assert_eq!(pattern("(int)"), "*");
    }

    /// The entry of one function hides no errors of its neighbours.
    #[test]
    fn functions_of_unnamed_namespaces_are_told_apart() {
        let made = pattern("(anonymous namespace)::fetch(int)");
        assert!(!matches(&made, bare("(anonymous namespace)::other(int)")) && !matches(&made, "main"));
    }
}
