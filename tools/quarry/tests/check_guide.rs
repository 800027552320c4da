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
    let mut before = "";
    for word in text.split_whitespace() {
        let number = word.trim_matches(|c: char| "(),:=[]".contains(c));
        let is_address = number.starts_with("0x");
        let is_pid = word.starts_with("==")
            || number == "PID"
            || ["process", "thread"].contains(&before) && number.parse::<u32>().is_ok()
            || number.len() > 3 && number.chars().all(|c| c.is_ascii_digit());
        // The how-manyeth finding it is.
        let is_count = word.strip_prefix('#').is_some_and(|count| count.chars().all(|c| c.is_ascii_digit()));
        match word.rsplit_once('/') {
            _ if is_count => all.push('#'),
            _ if is_address => all += "0x...",
            _ if is_pid => all += "PID",
            // A frame: the file, and the place in it.
            _ if word.contains("+0x") => all += &format!("{}+0x...", word.split("+0x").next().unwrap()),
            // Whatever punctuation is before a path stays away with its folder.
            Some((_, name)) => all += name,
            None => all += word,
        }
        all.push(' ');
        before = word;
    }
    all.trim_end().to_owned()
}

/// The lines of the page between the mark and the end of the code.
fn shown(page: &str, program: &str, tool: &str) -> Vec<String> {
    shown_plain(page, program, tool)
        .iter()
        .filter(|line| line.trim() != "...")
        .map(|line| tidy(line))
        .collect()
}

fn shown_plain(page: &str, program: &str, tool: &str) -> Vec<String> {
    let mark = format!("<!-- transcript: {program} {tool} -->\n```\n");
    let (_, rest) =
        page.split_once(&mark).unwrap_or_else(|| panic!("no transcript of {program} under {tool}"));
    let (lines, _) = rest.split_once("```\n").unwrap();
    lines.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect()
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

#[test]
fn the_guide_shows_what_a_guard_says() {
    let Some(libraries) = libraries(&["libquarry-malloc.so"]) else { return };
    let Some(bench) = Bench::new() else { return };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/check.md")).unwrap();
    fs::copy(root.join("examples/check/after_free.c"), bench.path("after_free.c")).unwrap();
    let run = |command: &mut Command| command.current_dir(bench.path(".")).output().unwrap();
    let compiled = run(Command::new("cc").args(["-g", "-O0", "-w", "-o", "after_free", "after_free.c"]));
    assert!(compiled.status.success(), "{compiled:?}");
    let guarded = || {
        let output = run(Command::new("./after_free")
            .env("LD_PRELOAD", libraries.join("libquarry-malloc.so"))
            .env("QUARRY_CONF", "guard:1"));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    // A request of 8 bytes is not drawn in one of 3,000.
    let said = (0..9).map(|_| guarded()).find(|said| !said.is_empty()).expect("a report");
    let mut fresh = said.lines().map(tidy);
    for line in &shown_plain(&page, "after_free", "guard")[1..] {
        let wanted = tidy(line.trim_end_matches(" ..."));
        assert!(fresh.any(|other| other.starts_with(&wanted)), "docs/check.md: no line '{line}' in\n{said}");
    }
    let addresses = said.split_whitespace().filter_map(|word| word.strip_prefix("after_free+"));
    let mut own: Vec<&str> = addresses.collect();
    // The last frame of each stack is of the program's start.
    own.retain(|address| !said.contains(&format!("after_free+{address}\n")));
    let named = run(Command::new("addr2line").args(["-fse", "after_free"]).args(&own));
    let named = String::from_utf8_lossy(&named.stdout);
    // A line may have a number of a part of it behind it.
    let named: Vec<&str> = named.lines().map(|line| line.split(" (").next().unwrap()).collect();
    assert_eq!(named, shown_plain(&page, "after_free", "lines")[1..], "{said}");
}

/// The page shows what canaries and quarantine find.
const GUARDS: &str = "guards:off";
