// SPDX-License-Identifier: MIT
//! Raw reports, as the library writes them, and what quarry check makes of them.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;

use crate::common::{Bench, Ended, text};

/// A process without errors.
pub const QUIET: &str = "\
{\"begin\":{\"version\":1,\"pid\":7,\"ppid\":1,\"exe\":\"/bin/prog\",\"command\":[\"prog\",\"a b\"],\"forked_from\":null}}
{\"scan\":{\"number\":1,\"at\":\"exit\",\"pause_ns\":1000,\"total_ns\":2000,\"roots_bytes\":1,\"heap_bytes\":1,\"reachable\":{\"bytes\":72,\"blocks\":2},\"incomplete\":null}}
{\"end\":{\"how\":\"exit\",\"status\":0,\"errors\":0,\"suppressed_repeats\":0,\"guards\":{},\"quarantine\":{}}}
";

/// Every kind of line: two errors, one of them twice, two leaks, a note. Names are markup to see that it is escaped.
pub fn noisy() -> String {
    let mut lines: Vec<String> = QUIET.lines().map(str::to_owned).collect();
    let end = lines.pop().unwrap();
    let frame = |pc: u32| format!("{{\"pc\":\"{pc:#x}\",\"exact\":false,\"module\":1}}");
    let stack = |pcs: &[u32]| pcs.iter().map(|pc| frame(*pc)).collect::<Vec<_>>().join(",");
    let block = |state: &str, free: &str| {
        format!(
            "{{\"address\":\"0x7f0010\",\"size\":24,\"family\":\"malloc\",\"pool\":null,\"state\":\"{state}\",\"ordinal\":3,\
             \"alloc\":{{\"tid\":7,\"stack\":[{}]}},\"free\":{free}}}",
            stack(&[0x1100, 0x1200])
        )
    };
    let error = |kind: &str, function: &str, rest: &str, pcs: &[u32], block: &str| {
        format!(
            "{{\"error\":{{\"kind\":\"{kind}\",\"function\":{function},\"address\":\"0x7f0028\",{rest},\"detail\":null,\
             \"thread\":{{\"tid\":8,\"name\":\"<worker> & co\"}},\"stack\":[{}],\"block\":{block}}}}}",
            stack(pcs)
        )
    };
    lines.push(
        "{\"module\":{\"id\":1,\"path\":\"/no/such/<prog> & co\",\"build_id\":\"c0ffee\",\"begin\":\"0x1000\",\
         \"end\":\"0x9000\",\"bias\":\"0x1000\",\"gone\":false}}"
            .into(),
    );
    let write = "\"write\":true,\"bytes\":4,\"evidence\":false,\"offset\":24";
    let freed = format!("{{\"tid\":8,\"stack\":[{}]}}", stack(&[0x1300]));
    let overflow = error("overflow-write", "\"strcpy\"", write, &[0x1400, 0x1500], &block("live", "null"));
    lines.push(overflow.clone());
    lines.push(overflow);
    let call = "\"write\":false,\"bytes\":0,\"evidence\":false,\"offset\":0";
    lines.push(error("double-free", "\"free\"", call, &[0x1600], &block("freed", &freed)));
    for (kind, bytes, pc) in [("leak-definite", 32, 0x1700), ("leak-possible", 64, 0x1800)] {
        lines.push(format!(
            "{{\"leak\":{{\"kind\":\"{kind}\",\"bytes\":{bytes},\"blocks\":1,\"indirect_bytes\":16,\"indirect_blocks\":1,\
             \"scan\":1,\"example\":\"0x7f0040\",\"family\":\"malloc\",\"stack\":[{}]}}}}",
            stack(&[pc, 0x1900])
        ));
    }
    lines.push("{\"note\":{\"text\":\"no guards: the kernel has none\"}}".into());
    lines.push(end);
    lines.join("\n") + "\n"
}

/// A raw report in a folder of its own.
pub fn raw(content: &str) -> Option<(Bench, PathBuf)> {
    let bench = Bench::new()?;
    let file = bench.path("7.1.check");
    fs::write(&file, content).unwrap();
    Some((bench, file))
}

fn check(bench: &Bench, args: &[&str]) -> Ended {
    bench.run(&[&["check"], args].concat())
}

#[test]
fn raw_reports_are_shown_again() {
    let Some((bench, file)) = raw(&noisy()) else { return };
    let said = check(&bench, &[text(&file)]).expect(23).stdout;
    for part in [
        "#1 overflow-write: strcpy: write of 4 bytes at 0x7f0028, directly behind a block of 24 bytes\n",
        "  done in process 7, thread 8 (<worker> & co):\n    0x000000001400 <prog> & co+0x400\n",
        "  block of 24 bytes at 0x7f0010 (malloc)\n  allocated by thread 7:\n",
        "#2 double-free: free: a block is freed that was freed before",
        "  freed by thread 8:\n    0x000000001300",
        "leak-definite: 32 bytes in 1 block are lost, and 16 bytes in 1 block with them\n",
        "  errors: 2, found 3 times\n",
        "  leaks of process 7: scan 1 (exit)",
        "note of process 7: no guards: the kernel has none",
        "no names: /no/such/<prog> & co: not found",
    ] {
        assert!(said.contains(part), "no {part:?} in {said}");
    }
    assert!(!said.contains("leak-possible"), "{said}");
    let all = check(&bench, &["--leaks", "all", text(&bench.path("."))]).expect(23).stdout;
    assert!(all.contains("leak-possible"), "{all}");
}

#[test]
fn the_exit_code_is_that_of_what_counts() {
    let Some((bench, file)) = raw(&noisy()) else { return };
    let file = text(&file);
    check(&bench, &["--error-exitcode", "9", file]).expect(9);
    check(&bench, &["--error-exitcode", "0", file]).expect(0);
    let known = bench.path("known");
    let frees = "{\n frees\n Memcheck:Free\n fun:free\n}\noverflow-write:*\n";
    fs::write(&known, frees).unwrap();
    let hidden = ["--suppressions", text(&known)];
    // The last line that names errors does not leave the reader alone with this exit code.
    let said = check(&bench, &[&hidden[..], &[file]].concat()).expect(23).stdout;
    let line = "  errors: none; 1 leak counts as an error (--leak-errors none: it does not)\n";
    assert!(said.contains(line), "{said}");
    let none = [&hidden[..], &["--leak-errors", "none", file]].concat();
    let said = check(&bench, &none).expect(0).stdout;
    assert!(said.contains("errors: none\n") && said.contains("     1 frees\n"), "{said}");
    let all = frees.to_owned() + "leak:prog\n";
    fs::write(&known, &all).unwrap();
    check(&bench, &[&hidden[..], &[file]].concat()).expect(0);
    // As an editor of Windows saves it, and from a pipe.
    fs::write(&known, format!("\u{feff}{}", all.replace('\n', "\r\n"))).unwrap();
    check(&bench, &[&hidden[..], &[file]].concat()).expect(0);
    let mut piped = bench.quarry(["check", "--suppressions", "-", file]);
    let mut piped = piped.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    piped.stdin.take().unwrap().write_all(all.as_bytes()).unwrap();
    assert_eq!(piped.wait().unwrap().code(), Some(0));
}

#[test]
fn what_is_made_leaves_out_what_it_was_made_of() {
    let Some((bench, file)) = raw(&noisy()) else { return };
    for syntax in ["--gen-suppressions", "--gen-suppressions=lsan"] {
        let said = check(&bench, &[syntax, "--leaks", "all", text(&file)]).expect(23).stdout;
        let mut known = String::new();
        let mut inside = false;
        for line in said.lines() {
            inside |= line == "{";
            if inside
                || ["leak:", "overflow-write:", "double-free:"].iter().any(|kind| line.starts_with(kind))
            {
                known += &format!("{line}\n");
            }
            inside &= line != "}";
        }
        let path = bench.path("known");
        fs::write(&path, &known).unwrap();
        let said =
            check(&bench, &["--suppressions", text(&path), "--leaks", "all", text(&file)]).expect(0).stdout;
        assert!(said.contains("suppressed: 4"), "{known}\n{said}");
    }
}

/// The last scan did not find it again.
#[test]
fn what_is_no_leak_any_more_uses_no_suppression() {
    let content = noisy().replace("{\"number\":1,", "{\"number\":2,");
    let Some((bench, file)) = raw(&content) else { return };
    let known = bench.path("known");
    fs::write(&known, "leak:prog\n").unwrap();
    let said = check(&bench, &["--suppressions", text(&known), text(&file)]).expect(23).stdout;
    assert!(said.contains("scan 2") && !said.contains("suppressed"), "{said}");
}

#[test]
fn a_kind_that_cannot_be_found_does_not_count() {
    let Some(bench) = Bench::new() else { return };
    let ended = bench.run(&["check", "--leak-errors", "reachable", "--", "true"]).expect(2);
    ended.says("--leak-errors reachable counts nothing without --leaks reachable; add that");
    let growing = ["check", "--leak-errors", "growing", "--", "true"];
    bench.run(&growing).expect(2).says("without --every T");
}

#[test]
fn what_is_no_report_is_refused() {
    let Some((bench, file)) = raw("hello\n") else { return };
    check(&bench, &[text(&file)]).expect(1).says("is no raw report").says("behind --");
    check(&bench, &[text(&bench.path("nothing"))]).expect(1).says("No such file");
    // A folder passes only if something was checked.
    let folder = bench.path("folder");
    fs::create_dir(&folder).unwrap();
    check(&bench, &[text(&folder)]).expect(1).says("has no raw report of quarry check").says("--keep");
    fs::write(folder.join("1.1.check.zst"), QUIET).unwrap();
    check(&bench, &[text(&folder)]).expect(1).says("has no raw report");
    fs::write(folder.join("1.1.check"), "garbage\n").unwrap();
    check(&bench, &[text(&folder)]).expect(1).says("1.1.check is no raw report");
    fs::write(folder.join("1.1.check"), QUIET).unwrap();
    check(&bench, &[text(&folder)]).expect(0);
    let pipe = folder.join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    check(&bench, &[text(&pipe)]).expect(1).says("is no regular file");
    let known = bench.path("known");
    fs::write(&known, "what\n").unwrap();
    fs::write(&file, QUIET).unwrap();
    check(&bench, &["--suppressions", text(&known), text(&file)]).expect(2).says("line 1: 'what' is neither");
}

#[test]
fn damage_is_counted_and_the_rest_is_shown() {
    let content = noisy().replace("{\"note\"", "{\"note").replace("\"exit\",\"status\"", "\"exit\",");
    let Some((bench, file)) = raw(&(content + "{\"err")) else { return };
    let said = check(&bench, &[text(&file)]).expect(23).stdout;
    assert!(said.contains("lines that could not be read: 2") && said.contains("double-free"), "{said}");
    assert!(said.contains("the last line has no end"), "{said}");
}
