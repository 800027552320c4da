// SPDX-License-Identifier: MIT
//! docs/check.md shows what quarry check, memcheck and AddressSanitizer say of the programs in examples/check. Each line there
//! must be in what they say now, in this order.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Bench, libraries};

const LONG: &str = "a_name_that_is_too_long_for_it";
const PROGRAMS: [(&str, &[&str]); 5] =
    [("overflow", &[LONG]), ("after_free", &[]), ("twice", &[]), ("lost", &[]), ("unset", &[])];

/// Without what differs from run to run: addresses, process numbers, folders, amounts of white space.
fn tidy(text: &str) -> String {
    let mut all = String::new();
    for word in text.split_whitespace() {
        let number = word.trim_matches(|c: char| "(),:=[]".contains(c));
        let is_address = number.starts_with("0x");
        let is_pid = word.starts_with("==")
            || number == "PID"
            || number.len() > 3 && number.chars().all(|c| c.is_ascii_digit());
        // The how-manyeth finding it is.
        let is_count = word.strip_prefix('#').is_some_and(|count| count.chars().all(|c| c.is_ascii_digit()));
        match word.rsplit_once('/') {
            _ if is_count => all.push('#'),
            _ if is_address => all += "0x...",
            _ if is_pid => all += "PID",
            // Whatever punctuation is before a path stays away with its folder.
            Some((_, name)) => all += name,
            None => all += word,
        }
        all.push(' ');
    }
    all.trim_end().to_owned()
}

/// The lines of the page between the mark and the end of the code.
fn shown(page: &str, program: &str, tool: &str) -> Vec<String> {
    let mark = format!("<!-- transcript: {program} {tool} -->\n```\n");
    let (_, rest) =
        page.split_once(&mark).unwrap_or_else(|| panic!("no transcript of {program} under {tool}"));
    let (lines, _) = rest.split_once("```\n").unwrap();
    lines.lines().filter(|line| !["", "..."].contains(&line.trim())).map(tidy).collect()
}

#[track_caller]
fn has_in_order(said: &str, lines: &[String], what: &str) {
    let mut fresh = said.lines().map(tidy);
    for line in lines {
        assert!(fresh.any(|other| other == *line), "docs/check.md, {what}: no line '{line}' in\n{said}");
    }
}

#[test]
fn the_guide_shows_what_the_tools_say() {
    let Some(libraries) = libraries(&["libquarry-check.so"]) else { return };
    let Some(bench) = Bench::new() else { return };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/check.md")).unwrap();
    let said = |command: &mut Command| {
        let output = command.current_dir(bench.path(".")).output().ok()?;
        Some(String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for (name, args) in PROGRAMS {
        let source = fs::read_to_string(root.join(format!("examples/check/{name}.c"))).unwrap();
        let compile = |out: &str, options: &[&str]| -> Option<PathBuf> {
            fs::write(bench.path(&format!("{name}.c")), &source).unwrap();
            let options = [&["-g", "-O0", "-w"], options].concat();
            let source = format!("{name}.c");
            let mut command = Command::new("cc");
            command.current_dir(bench.path(".")).args(options).args(["-o", out, &source]);
            command.output().unwrap().status.success().then(|| bench.path(out))
        };
        let program = compile(name, &[]).unwrap();
        let run = format!("./{name}");
        let words = [&["check", "--", &run], args].concat();
        let checked =
            said(bench.quarry(words).env("QUARRY_LIB_DIR", &libraries).env("QUARRY_CHECK", GUARDS)).unwrap();
        has_in_order(&checked, &shown(&page, name, "quarry"), &format!("{name} under quarry check"));
        let memcheck = said(Command::new("valgrind").arg("--leak-check=full").arg(&program).args(args));
        match memcheck {
            Some(memcheck) => {
                has_in_order(&memcheck, &shown(&page, name, "memcheck"), &format!("{name} under memcheck"));
            }
            None => eprintln!("skipped: needs valgrind"),
        }
        match compile(&format!("{name}.asan"), &["-fsanitize=address"]) {
            Some(program) => {
                let mut command = Command::new(&program);
                let asan = said(command.args(args).env("ASAN_OPTIONS", "color=never")).unwrap();
                // Tracers may keep LeakSanitizer from its work.
                if !asan.contains("LeakSanitizer has encountered a fatal error") {
                    has_in_order(
                        &asan,
                        &shown(&page, name, "asan"),
                        &format!("{name} under AddressSanitizer"),
                    );
                }
            }
            None => eprintln!("skipped: needs AddressSanitizer"),
        }
    }
}

/// The page shows what canaries and quarantine find.
const GUARDS: &str = "guards:off";
