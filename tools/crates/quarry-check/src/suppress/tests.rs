// SPDX-License-Identifier: MIT

use std::rc::Rc;

use super::*;
use crate::finding::{Fault as Error, Leaked, What};
use crate::kinds;
use crate::names::Place;
use crate::raw::Thread;

fn place(function: &str, file: &str, line: u32, module: &str) -> Place {
    let frame = Frame {
        function: Some(function.into()).filter(|_| !function.is_empty()),
        file: Some(file.into()),
        line: Some(line),
        module: module.into(),
        ..Frame::default()
    };
    Place { pc: 1, key: (None, 1), frames: Rc::new([frame]) }
}

fn finding(word: &str, what: What) -> Finding {
    let stack = vec![
        place("build(int)", "/src/a.c", 12, "/bin/prog"),
        place("", "/src/x.c", 7, "/lib/libx.so.1"),
        place("main", "/src/a.c", 40, "/bin/prog"),
    ];
    Finding {
        number: 1,
        kind: kinds::of(word),
        word: word.into(),
        pid: 1,
        count: 1,
        stack,
        what,
        hidden: false,
        suppressed: None,
    }
}

fn fault(word: &str, function: Option<&str>) -> Finding {
    let fault = Error {
        function: function.map(Into::into),
        address: 16,
        write: true,
        bytes: 8,
        evidence: false,
        offset: 0,
        detail: None,
        thread: Thread::default(),
        block: None,
    };
    finding(word, What::Fault(Box::new(fault)))
}

fn leak(word: &str) -> Finding {
    let leaked = Leaked {
        bytes: 1,
        blocks: 1,
        indirect_bytes: 0,
        indirect_blocks: 0,
        scan: 1,
        process: None,
        example: 0,
        family: "malloc".into(),
        pool: None,
        pool_kind: None,
    };
    finding(word, What::Leak(leaked))
}

#[track_caller]
fn hides(text: &str, finding: &Finding) -> bool {
    let mut all = Suppressions::default();
    all.add(text).unwrap();
    all.hides(finding).is_some()
}

fn entry(kind: &str, frames: &str) -> String {
    format!("{{\n name\n {kind}\n {}\n}}\n", frames.replace(' ', "\n"))
}

#[test]
fn frames_are_a_prefix_with_wildcards() {
    let free = fault("double-free", Some("free"));
    for (kind, frames, is) in [
        ("Memcheck:Free", "fun:free fun:build obj:*/libx.so* fun:main", true),
        ("Memcheck:Free", "fun:free", true),
        ("Memcheck:Free", "fun:build", true),
        ("Memcheck:Free", "fun:main", false),
        ("Memcheck:Free", "... fun:main", true),
        ("Memcheck:Free", "... fun:nain", false),
        ("Memcheck:Free", "fun:free ... src:a.c:40", true),
        ("Memcheck:Free", "fun:free fun:b?ild* src:/src/x.c:7", true),
        ("Memcheck:Free", "fun:free src:a.c:13", false),
        ("Memcheck:Leak", "...", false),
        ("Memcheck:Addr8", "...", false),
        ("Helgrind:Free", "...", false),
        ("Helgrind,Memcheck:Free", "...", true),
        ("Quarry:double-free", "...", true),
        ("Quarry:*-free", "...", true),
        ("Quarry:overlap", "...", false),
    ] {
        assert_eq!(hides(&entry(kind, frames), &free), is, "{kind} {frames}");
    }
    assert!(hides(&entry("Memcheck:Addr4", "fun:strcpy"), &fault("overflow-write", Some("strcpy"))));
    assert!(hides(&entry("Memcheck:Addr16", "fun:build"), &fault("use-after-free-read", None)));
}

#[test]
fn leaks_may_be_of_some_kinds_only() {
    let text = |kinds: &str| {
        format!("{{\n n\n Memcheck:Leak\n match-leak-kinds: {kinds}\n fun:malloc\n fun:build\n}}")
    };
    assert!(hides(&text("definite"), &leak("leak-definite")));
    assert!(!hides(&text("reachable, possible"), &leak("leak-definite")));
    assert!(hides(&text("all"), &leak("leak-possible")));
    assert!(hides(&entry("Memcheck:Leak", "..."), &leak("leak-reachable")));
}

#[test]
fn sanitizers_lines_look_everywhere() {
    let lost = leak("leak-definite");
    assert!(hides("# of LeakSanitizer\nleak:libx\n", &lost) && hides("leak:^build*$\n", &lost));
    assert!(hides("leak:a.c\n", &lost) && !hides("leak:^libx\n", &lost));
    assert!(
        !hides("leak:main\n", &fault("double-free", None))
            && hides("double-free:main\n", &fault("double-free", None))
    );
    assert!(!hides("interceptor_via_lib:libx\nodr_violation:x\n", &lost));
}

#[test]
fn both_may_be_in_one_file() {
    let text = format!("leak:nothing\n\n{}# and\nleak:main", entry("Memcheck:Free", "fun:free"));
    let mut all = Suppressions::default();
    all.add(&text).unwrap();
    assert_eq!(all.all.len(), 3);
    let (mut freed, mut lost) = (fault("double-free", Some("free")), leak("leak-definite"));
    (freed.suppressed, lost.suppressed) = (all.hides(&freed), all.hides(&lost));
    assert_eq!((freed.suppressed, lost.suppressed), (Some(1), Some(2)));
    all.count(&[freed, lost]);
    assert_eq!(all.all.iter().map(|entry| entry.used).collect::<Vec<_>>(), [0, 1, 1]);
}

#[test]
fn mistakes_are_told_with_their_line() {
    for (text, line, word) in [
        ("{\n name\n", 1, "no end"),
        ("\nwhat\n", 2, "KIND:PATTERN"),
        ("laek:x", 1, "no kind"),
        ("{\n}\n", 2, "no name"),
        ("{\n a\n}\n", 2, "no kind"),
        ("{\n a\n Memcheck\n}", 3, "TOOL:KIND"),
        ("{\n a\n Memcheck:Free\n}", 3, "no frames"),
        ("{\n a\n Memcheck:Free\n func:x\n}", 4, "none of fun:"),
    ] {
        let fault = Suppressions::default().add(text).unwrap_err();
        assert!(fault.line == line && fault.what.contains(word), "{text}: {fault}");
    }
}

#[test]
fn what_is_made_hides_what_it_was_made_of() {
    let all = [
        fault("double-free", Some("free")),
        fault("overflow-write", None),
        fault("bad-argument", Some("malloc")),
        fault("pool-overflow", None),
        fault("use-after-pop", Some("memcpy")),
        fault("pool-wrong-frame", None),
        fault("pool-double-release", None),
        fault("pool-destroyed", None),
        leak("leak-definite"),
        leak("leak-growing"),
    ];
    for finding in &all {
        for syntax in [Syntax::Valgrind, Syntax::Lsan] {
            let text = suppression(finding, syntax);
            assert!(hides(&text, finding), "{text}");
        }
    }
    let text = suppression(&all[0], Syntax::Valgrind);
    assert!(
        text.contains("Memcheck:Free\n   fun:free\n   fun:build\n   obj:/lib/libx.so.1\n   fun:main\n"),
        "{text}"
    );
}
