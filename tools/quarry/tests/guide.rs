// SPDX-License-Identifier: MIT
//! The commands of README.md, docs/quickstart.md, docs/guides and the five complaints of docs/profile.md: they are run as they stand
//! there, in a shell, and print the lines that stand there.
//!
//! Numbers differ from machine to machine, so lines are compared without them. What the text says of the numbers is held to the JSON.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use serde_json::Value;

use crate::common::{Bench, Ended, libraries, text};
use crate::foreign::is_missing;

const PROFILE: &str = include_str!("../../../docs/profile.md");
const README: &str = include_str!("../../../README.md");
const QUICKSTART: &str = include_str!("../../../docs/quickstart.md");
/// The trace that the first commands make.
const TRACE: &str = "server.qtr";

/// Rows of tables that have one for each allocator.
const ALLOCATORS: &[&str] = &["quarry", "system", "tcmalloc", "jemalloc", "mimalloc", "tbbmalloc"];

/// A command, and what it is shown to print.
struct Step {
    command: String,
    shown: Vec<String>,
}

/// Each command of a page, from the blocks that show a console.
fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let blocks = page.split("```console\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    for line in blocks.flat_map(str::lines) {
        match line.strip_prefix("$ ") {
            Some(command) => steps.push(Step { command: command.to_owned(), shown: Vec::new() }),
            None => steps.last_mut().unwrap().shown.push(line.to_owned()),
        }
    }
    steps
}

/// A line without its numbers, their units, signs and bars.
fn words(line: &str) -> String {
    let is_number = |word: &str| {
        let word = word.trim_start_matches(['(', '+', '-', '±', '[']).trim_end_matches([')', ',', ']']);
        word.starts_with(|first: char| first.is_ascii_digit() || ('▀'..='▟').contains(&first))
            || ["B", "KiB", "MiB", "ns", "µs", "ms", "s", "%", "≤", "…", "", "longer"].contains(&word)
    };
    line.split_whitespace().filter(|word| !is_number(word)).collect::<Vec<_>>().join(" ")
}

/// Each line that is shown was printed, in this order. Between two that stand together there is no other.
fn compare(step: &Step, printed: &str) {
    let lines: Vec<String> = printed.lines().map(words).collect();
    let mut at = 0;
    let mut may_skip = false;
    for line in &step.shown {
        // Which allocators are installed, and their order, differ.
        if ALLOCATORS.iter().any(|name| line.starts_with(&format!(" {name} "))) {
            may_skip = true;
            continue;
        }
        if line == "…" {
            may_skip = true;
            continue;
        }
        let wanted = words(line);
        let place = lines[at..].iter().position(|line| *line == wanted);
        let place = place.unwrap_or_else(|| panic!("{}: no '{wanted}' in {printed}", step.command));
        assert!(place == 0 || may_skip, "{}: something before '{wanted}' in {printed}", step.command);
        (at, may_skip) = (at + place + 1, false);
    }
    let is_cut = step.shown.last().is_none_or(|line| line == "…");
    assert!(is_cut || at == lines.len(), "{}: more than is shown: {printed}", step.command);
}

#[test]
fn lines_are_compared_without_their_numbers() {
    assert_eq!(
        words(" 9.36 MiB   96 %  19.5 KiB  2 500  cache_put at server.c:24"),
        "cache_put at server.c:24"
    );
    assert_eq!(words("  ≤ 2.79 MiB (558 KiB … 5.83 MiB) ≤ 1.07 s  a (b)"), "a (b)");
    let step = |shown: &[&str]| Step {
        command: "c".into(),
        shown: shown.iter().map(|line| (*line).to_owned()).collect(),
    };
    compare(&step(&["…", "b 1", "c"]), "a\nb 7\nc\n");
    for wrong in [&["b 1"][..], &["a", "c", "…"], &["…", "c", "b"], &["a", "b"]] {
        assert!(std::panic::catch_unwind(|| compare(&step(wrong), "a\nb 7\nc\n")).is_err(), "{wrong:?}");
    }
}

/// The lines of a shell that does what the page says. Between two commands stands a mark; a person who types the next one is slower
/// than a program that was just started: the server sleeps now and then, once it serves.
fn script(steps: &[Step]) -> String {
    let mut script = String::from("set -u\nexec 2>&1\ntrap 'kill $(jobs -p) 2>/dev/null' EXIT\n");
    script += "serves() { until grep -q '^State:.S' /proc/$1/status; do sleep 0.05; done; }\n";
    for step in steps {
        script += &format!("echo '@@'\n{}\n", step.command);
        script += match step.command.ends_with('&') {
            true if step.command.starts_with("quarry") => {
                "until pgrep -P $! server >/dev/null; do sleep 0.05; done\nserves $(pgrep -P $!)\nsleep 1\n"
            }
            true => "serves $!\n",
            false => "code=$?; [ $code -eq 0 ] || { echo \"exit code $code\"; exit 1; }\n",
        };
    }
    script + "kill $! 2>/dev/null\nwait\nexit 0\n"
}

/// A folder where `quarry` is the tool that is tested and `examples` those of the tree, and a shell there.
struct Project {
    bench: Bench,
    path: String,
}

impl Project {
    /// None: a library or a program is missing.
    fn new() -> Option<Self> {
        let bench = Bench::new()?;
        let libraries = libraries(&["libquarry-record.so", "libquarry-malloc.so", "libquarry-check.so"])?;
        if is_missing("pgrep") || is_missing("bash") {
            return None;
        }
        let tool = format!(
            "#!/bin/sh\nQUARRY_LIB_DIR='{}' exec '{}' \"$@\"\n",
            libraries.canonicalize().unwrap().display(),
            env!("CARGO_BIN_EXE_quarry")
        );
        fs::create_dir(bench.path("bin")).unwrap();
        bench.script("bin/quarry", &tool);
        let project = bench.path("project");
        fs::create_dir(&project).unwrap();
        symlink(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples"), project.join("examples")).unwrap();
        let path = format!("{}:{}", text(&bench.path("bin")), std::env::var("PATH").unwrap());
        Some(Self { bench, path })
    }

    fn shell(&self, lines: &str) -> Ended {
        let mut bash = Command::new("bash");
        bash.args(["-c", lines]).current_dir(self.bench.path("project")).env("PATH", &self.path);
        for variable in ["QUARRY_CONF", "LD_PRELOAD", "NO_COLOR", "QUARRY_LIB_DIR"] {
            bash.env_remove(variable);
        }
        Ended::from(bash.output().unwrap())
    }

    /// Run all commands of a page, and compare what they print.
    fn follow(&self, steps: &[Step]) {
        let ended = self.shell(&script(steps)).expect(0);
        let printed: Vec<&str> = ended.stdout.split("@@\n").skip(1).collect();
        assert_eq!(printed.len(), steps.len(), "{}", ended.stdout);
        for (step, printed) in steps.iter().zip(printed) {
            compare(step, printed);
        }
    }
}

/// How many commands begin with these words.
fn count(steps: &[Step], words: &str) -> usize {
    steps.iter().filter(|step| step.command.starts_with(words)).count()
}

#[test]
fn five_complaints_have_their_commands() {
    let Some(project) = Project::new() else { return };
    let steps = steps(PROFILE);
    project.follow(&steps);
    // One for each complaint, beside those that make the trace and start the server.
    assert_eq!(count(&steps, "quarry profile"), 5);
    let json = |args: &str| {
        project.shell(&format!("quarry profile -q --json -n 50 {args} {TRACE}")).expect(0).json()
    };
    facts(&json);
}

#[test]
fn the_quickstart_and_the_readme_can_be_followed() {
    let Some(project) = Project::new() else { return };
    let quickstart = steps(QUICKSTART);
    project.follow(&quickstart);
    assert!(project.bench.path("project/load.html").is_file());
    // Three journeys. What the quickstart compiled is there already.
    let readme = steps(README);
    project.follow(&readme);
    for verb in ["explain", "profile", "compare", "record", "replay", "check"] {
        let words = format!("quarry {verb}");
        assert!(count(&readme, &words) > 0 && count(&quickstart, &words) > 0, "{verb}");
    }
}

/// docs/explain-*.svg are of words that the tool prints today.
#[test]
fn the_picture_of_explain_is_what_it_prints() {
    let Some(project) = Project::new() else { return };
    if is_missing("cc") || is_missing("python3") {
        return;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/terminal_picture.py");
    project
        .shell(&format!("python3 {script} --self-test && python3 {script} --check \"$(command -v quarry)\""))
        .expect(0);
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or_else(|| panic!("{value}"))
}

fn named<'j>(list: &'j Value, name: &str) -> &'j Value {
    let mut all = list.as_array().unwrap().iter();
    all.find(|of| of["name"].as_str().unwrap().starts_with(name))
        .unwrap_or_else(|| panic!("no {name} in {list}"))
}

/// What the page says of the numbers.
fn facts(json: &dyn Fn(&str) -> Value) {
    let waste = &json("--waste --at end")["page_waste"];
    let cache = named(&waste["sites"], "cache_put");
    assert_eq!(number(&cache["live_bytes"]), 2500 * 72);
    assert!(number(&cache["waste_bytes"]) > 20 * number(&cache["live_bytes"]), "{cache}");
    assert!(number(&cache["sole_pages"]) > 1500, "{cache}");
    assert_eq!(waste["sites"][0]["name"], cache["name"]);

    let resident = &waste["resident"];
    let of = |part: &str| number(&resident[part]);
    let parts = of("live_bytes") + of("rounding_bytes") + of("between_bytes") - of("untouched_bytes")
        + of("other_private_bytes")
        + of("file_bytes")
        + of("recorder_bytes");
    assert_eq!(parts, of("resident_bytes"));
    assert!((7 << 20) - of("untouched_bytes") < 64 << 10, "{resident}");
    assert!(of("other_private_bytes") > 10 << 20, "{resident}");

    let temporary = json("--sort temporary");
    let first = &temporary["groups"][0];
    assert_eq!(named(&temporary["groups"], "parse_request"), first);
    assert_eq!((number(&first["temporary"]), number(&first["allocations"])), (300_000, 320_000));
    assert_eq!(number(&first["end_bytes"]), 0);

    let window = json("--window 0%..100% --by function");
    let growth = |name: &str| number(&named(&window["groups"], name)["window"]["growth_bytes"]);
    assert_eq!(
        (growth("log_line"), growth("cache_put"), growth("session_open")),
        (20_000 * 60, 2500 * 72, 0)
    );
}
