// SPDX-License-Identifier: MIT
//! quarry compare: on allocators made for the occasion, each with one vice.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Bench, Ended, PATIENCE, dies, kill, nothing_ignored, text, wait_until};
use serde_json::Value;

const HARMLESS: &str = "int harmless;";
const ABORTS: &str = "#include <stdio.h>\n#include <stdlib.h>\n\
    __attribute__((constructor)) static void die(void) { fputs(\"heap: broken block\\n\", stderr); abort(); }";
const TALKS: &str = "#include <unistd.h>\n\
    __attribute__((constructor)) static void talk(void) { if (write(1, \"x\", 1) != 1) _exit(1); }";
const HANGS: &str =
    "#include <unistd.h>\n__attribute__((constructor)) static void hang(void) { for (;;) pause(); }";

/// The entry of an allocator.
#[track_caller]
fn allocator<'a>(json: &'a Value, name: &str) -> &'a Value {
    let all = json["allocators"].as_array().unwrap();
    all.iter().find(|a| a["name"] == name).unwrap_or_else(|| panic!("no {name} in {json:#}"))
}

#[test]
fn every_run_is_in_the_json() {
    let Some(bench) = Bench::new() else { return };
    let other = bench.library("libother", HARMLESS);
    let ended =
        bench.run(&["compare", "--json", "-n", "4", "--with", text(&other), "--", "/bin/true"]).expect(0);
    assert_eq!(ended.stderr, "");
    let json = ended.json();
    assert_eq!(json["schema"], "quarry-compare/1");
    assert_eq!(json["command"], serde_json::json!(["/bin/true"]));
    assert_eq!((json["rounds"].as_u64(), json["warmup"].as_u64()), (Some(4), Some(1)));
    for key in ["cpu", "cores", "kernel", "page_size", "transparent_huge_pages", "libc"] {
        assert!(!json["machine"][key].is_null(), "{key}");
    }
    let mut runs = BTreeMap::new();
    for run in json["runs"].as_array().unwrap() {
        *runs.entry(run["allocator"].as_str().unwrap()).or_insert(0) += 1;
        assert!(run["usage"]["wall_s"].as_f64().is_some_and(|s| s > 0.0), "{run:#}");
        // Not our own memory, of which a forked child has a copy until exec.
        let peak = run["usage"]["peak_rss_bytes"].as_u64().unwrap();
        assert!((100 << 10..4 << 20).contains(&peak), "{run:#}");
        assert_eq!((&run["exit_code"], &run["succeeded"]), (&0.into(), &true.into()));
    }
    assert_eq!(runs, BTreeMap::from([("system", 5), ("quarry", 5), ("libother", 5)]));
    for name in ["system", "quarry", "libother"] {
        let result = &allocator(&json, name)["result"];
        assert_eq!(result["succeeded"], 4);
        assert_eq!(result["output"], "same");
        assert!(result["wall_s"]["median"].as_f64() >= result["wall_s"]["min"].as_f64());
        assert_eq!(allocator(&json, name)["loaded"], true, "{name}");
        assert_eq!(result["wall_ratio"].is_null(), name == "system");
    }
}

#[test]
fn the_table_names_all_and_explains_itself() {
    let Some(bench) = Bench::new() else { return };
    let ended = bench.run(&["compare", "-n", "3", "--sort", "given", "--", "/bin/true"]).expect(0);
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert_eq!(lines[0], "/bin/true");
    assert!(lines[2].contains("wall") && lines[2].contains("peak RSS"), "{}", ended.stdout);
    assert!(
        lines[3].trim().starts_with("system") && lines[4].trim().starts_with("quarry"),
        "{}",
        ended.stdout
    );
    assert!(ended.stdout.contains("3 rounds") && ended.stdout.contains("medians"), "{}", ended.stdout);
    assert!(!ended.stdout.contains('\x1b'));
    assert_eq!(ended.stderr, "", "no progress bar in a pipe");
}

#[test]
fn a_seed_repeats_the_order() {
    let Some(bench) = Bench::new() else { return };
    let a = format!("a={}", bench.library("liba", HARMLESS).display());
    let order = |seed: &str| {
        let args =
            ["compare", "--json", "-n", "8", "--warmup", "0", "--seed", seed, "--with", &a, "--", "true"];
        let json = bench.run(&args).expect(0).json();
        assert_eq!(json["seed"].to_string(), seed);
        let runs = json["runs"].as_array().unwrap().clone();
        runs.iter().map(|run| run["allocator"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let first = order("5");
    assert_eq!(first, order("5"));
    assert_ne!(first, order("6"));
    // Whole rounds, not all of the same order.
    let rounds: Vec<&[String]> = first.chunks(3).collect();
    assert!(rounds.iter().all(|round| round.iter().collect::<std::collections::BTreeSet<_>>().len() == 3));
    assert!(rounds.iter().any(|round| round != &rounds[0]));
}

#[test]
fn a_crash_under_one_allocator_is_found() {
    let Some(bench) = Bench::new() else { return };
    let bad = format!("bad={}", bench.library("libbad", ABORTS).display());
    let args = ["compare", "-n", "2", "--with", &bad, "--", "/bin/true"];
    let ended = bench.run(&args).expect(1);
    let row = ended.stdout.lines().find(|line| line.trim().starts_with("bad")).unwrap();
    assert!(row.contains("failed: 3 x SIGABRT"), "{row}");
    assert!(ended.stdout.contains("heap: broken block"), "{}", ended.stdout);
    let json =
        bench.run(&["compare", "--json", "-n", "2", "--with", &bad, "--", "/bin/true"]).expect(1).json();
    let result = &allocator(&json, "bad")["result"];
    assert_eq!(result["failures"], serde_json::json!({ "SIGABRT": 3 }));
    assert_eq!((&result["wall_s"], &result["wall_ratio"]), (&Value::Null, &Value::Null));
    assert_eq!(allocator(&json, "quarry")["result"]["succeeded"], 2);
}

#[test]
fn a_program_that_always_fails_is_its_own_fault() {
    let Some(bench) = Bench::new() else { return };
    let command = ["--", "sh", "-c", "echo no such table >&2; exit 5"];
    let ended = bench.run(&[&["compare"], &command[..]].concat()).expect(5);
    ended.says("fails on the system's malloc already").says("exit 5").says("no such table");
    assert_eq!(ended.stdout, "");
    bench.run(&[&["compare", "-n", "2", "--expect-exit", "5"], &command[..]].concat()).expect(0);
    bench.run(&["compare", "--", "sh", "-c", "kill -SEGV $$"]).expect(139);
    bench.run(&["compare", "--expect-exit", "5", "--", "true"]).expect(1);
    bench.run(&["compare", "--", "no-such-command-here"]).expect(127);
    bench.run(&["compare", "--", "/"]).expect(126);
}

#[test]
fn different_output_is_remarked() {
    let Some(bench) = Bench::new() else { return };
    let bad = format!("bad={}", bench.library("libbad", TALKS).display());
    let compare = |script: &str| {
        let args = ["compare", "--json", "-n", "3", "--with", &bad, "--", "sh", "-c", script];
        bench.run(&args).expect(0).json()
    };
    let json = compare("echo hello");
    assert_eq!(allocator(&json, "bad")["result"]["output"], "differs");
    assert_eq!(allocator(&json, "quarry")["result"]["output"], "same");
    // The program's own output changes: nothing can be said.
    let json = compare("echo $$");
    assert_eq!(allocator(&json, "system")["result"]["output"], "varies");
    assert_eq!(allocator(&json, "bad")["result"]["output"], "varies");
    let ended = bench.run(&["compare", "-n", "2", "--with", &bad, "--", "echo", "hello"]).expect(0);
    assert!(ended.stdout.contains("output differs"), "{}", ended.stdout);
}

#[test]
fn what_was_not_loaded_is_marked() {
    let Some(bench) = Bench::new() else { return };
    let junk = bench.path("junk.so");
    fs::write(&junk, "not a library").unwrap();
    let with = format!("junk={}", junk.display());
    let json =
        bench.run(&["compare", "--json", "-n", "1", "--with", &with, "--", "/bin/true"]).expect(0).json();
    assert_eq!(allocator(&json, "junk")["loaded"], false);
    assert!(allocator(&json, "junk")["notes"][0].as_str().is_some(), "{json:#}");
    assert_eq!(allocator(&json, "quarry")["loaded"], true);
    let Some(fixed) = bench.compile("fixed", "int main(void) { return 0; }", &["-static"]) else { return };
    let args = ["compare", "-n", "1", "--with", "system", "--", text(&fixed)];
    let ended = bench.run(&args).expect(0);
    let row = ended.stdout.lines().find(|line| line.trim().starts_with("quarry")).unwrap();
    assert!(row.contains("not loaded"), "{row}");
    assert!(ended.stdout.contains("statically linked"), "{}", ended.stdout);
}

#[test]
fn a_running_program_is_looked_at() {
    // The dynamic linker would load the library into sh, but sh replaces itself by a program
    // without it; only the map of the running program can tell.
    let Some(bench) = Bench::new() else { return };
    let args = [
        "compare",
        "--json",
        "-n",
        "1",
        "--with",
        "system",
        "--",
        "sh",
        "-c",
        "unset LD_PRELOAD; exec sleep 1",
    ];
    let json = bench.run(&args).expect(0).json();
    assert_eq!(allocator(&json, "quarry")["loaded"], false, "{json:#}");
    let args = ["compare", "--json", "-n", "1", "--with", "system", "--", "sleep", "1"];
    let json = bench.run(&args).expect(0).json();
    assert_eq!(allocator(&json, "quarry")["loaded"], true, "{json:#}");
}

#[test]
fn a_hang_under_one_allocator_ends() {
    let Some(bench) = Bench::new() else { return };
    let bad = format!("bad={}", bench.library("libbad", HANGS).display());
    let args = ["compare", "--json", "-n", "1", "--timeout", "5", "--with", &bad, "--", "/bin/true"];
    let json = bench.run(&args).expect(1).json();
    assert_eq!(allocator(&json, "bad")["result"]["failures"], serde_json::json!({ "timeout": 2 }));
    assert_eq!(allocator(&json, "quarry")["result"]["failed"], 0);
}

#[test]
fn input_is_empty_or_the_same_for_all() {
    let Some(bench) = Bench::new() else { return };
    let json = bench.run(&["compare", "--json", "-n", "1", "--with", "system", "--", "cat"]).expect(0).json();
    assert!(json["runs"].as_array().unwrap().iter().all(|run| run["stdout_bytes"] == 0));
    let input = bench.path("input");
    fs::write(&input, "hello\n").unwrap();
    let args = ["compare", "--json", "-n", "2", "--with", "system", "--input", text(&input), "--", "cat"];
    let json = bench.run(&args).expect(0).json();
    assert!(json["runs"].as_array().unwrap().iter().all(|run| run["stdout_bytes"] == 6), "{json:#}");
    bench.run(&["compare", "--input", "/no/such", "--", "cat"]).expect(125).says("/no/such");
    // A pipe can be read but once, and every run has all of it.
    let args = ["compare", "--json", "-n", "2", "--with", "system", "--input", "-", "--", "cat"];
    let mut child = bench.quarry(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"hello\n").unwrap();
    let json = Ended::from(child.wait_with_output().unwrap()).expect(0).json();
    assert!(json["runs"].as_array().unwrap().iter().all(|run| run["stdout_bytes"] == 6), "{json:#}");
}

#[test]
fn output_is_shown_on_request() {
    let Some(bench) = Bench::new() else { return };
    let base = ["compare", "-n", "1", "--warmup", "0", "--with", "system"];
    let ended =
        bench.run(&[&base[..], &["--", "sh", "-c", "echo hello; echo trouble >&2"]].concat()).expect(0);
    assert!(!ended.stderr.contains("hello") && !ended.stderr.contains("trouble"), "{}", ended.stderr);
    let args = [&base[..], &["--show-output", "--", "sh", "-c", "echo hello; echo trouble >&2"]].concat();
    let ended = bench.run(&args).expect(0);
    assert_eq!(ended.stderr.matches("hello").count(), 2, "{}", ended.stderr);
    ended.says("trouble");
}

#[test]
fn wishes_that_cannot_be_met() {
    let Some(bench) = Bench::new() else { return };
    bench.run(&["compare", "--with", "nosuchalloc", "--", "true"]).expect(2).says("jemalloc");
    bench.run(&["compare", "--with", "/no/such.so", "--", "true"]).expect(125).says("/no/such.so");
    let other = bench.library("libother", HARMLESS);
    let twice = format!("{0},{0}", other.display());
    bench.run(&["compare", "--with", &twice, "--", "true"]).expect(2).says("LABEL=PATH");
    for args in [
        &["compare"][..],
        &["compare", "-n", "0", "--", "true"],
        &["compare", "--timeout", "0", "--", "true"],
    ] {
        bench.run(args).expect(2);
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let Some(bench) = Bench::new() else { return };
    let args = ["compare", "--json", "-n", "1", "--with", "system", "--", "true"];
    let mut child = bench.quarry(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let ended = Ended::from(child.wait_with_output().unwrap()).expect(0);
    assert_eq!(ended.stderr, "");
    for verb in [&["completions", "bash"][..], &["man"], &["--help"]] {
        let mut child = bench.quarry(verb).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        Ended::from(child.wait_with_output().unwrap()).expect(0);
    }
}

/// A comparison whose program runs for long, and the number of that process.
fn running(bench: &Bench) -> (Child, u32) {
    let mark = bench.path("pid");
    let script = format!("ulimit -c 0; echo $$ > {0}.new; mv {0}.new {0}; exec sleep 1000", mark.display());
    let command = bench.quarry(["compare", "-n", "3", "--with", "system", "--", "sh", "-c", &script]);
    let mut command = nothing_ignored(&command);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for(&mark);
    let pid = fs::read_to_string(&mark).unwrap().trim().parse().unwrap();
    fs::remove_file(mark).unwrap();
    (child, pid)
}

fn wait_for(file: &Path) {
    wait_until(&format!("there is {}", file.display()), || file.exists());
}

#[test]
fn a_stopped_comparison_stops_the_program_too() {
    let Some(bench) = Bench::new() else { return };
    for (signal, code) in [("TERM", 143), ("QUIT", 131)] {
        let start = Instant::now();
        let (child, pid) = running(&bench);
        kill(signal, child.id());
        let ended = Ended::from(child.wait_with_output().unwrap()).expect(code);
        ended.says(&format!("SIG{signal} stopped the comparison after 0 complete rounds"));
        assert!(start.elapsed() < PATIENCE);
        assert!(!Path::new("/proc").join(pid.to_string()).exists());
    }
}

#[test]
fn an_error_in_a_later_round_leaves_the_rounds_before() {
    let Some(bench) = Bench::new() else { return };
    let (starts, input) = (bench.path("starts"), bench.path("input"));
    // Three runs are a round, and the first three the warm-up.
    let remove_at = |start: u32, file: &Path| {
        fs::write(&input, "").unwrap();
        fs::write(&starts, "").unwrap();
        let library = format!("other={}", bench.library("libother", HARMLESS).display());
        let (starts, file) = (starts.display(), file.display());
        let script =
            format!("#!/bin/sh\necho >> {starts}\n[ $(wc -l < {starts}) != {start} ] || rm {file}\n");
        let program = bench.script("program", &script);
        let base = ["compare", "--json", "-n", "9", "--with", &library, "--input", text(&input)];
        bench.run(&[&base[..], &["--", text(&program)]].concat())
    };
    for (file, code) in [("input", 125), ("libother.so", 125), ("program", 127)] {
        let file = bench.path(file);
        let ended = remove_at(7, &file).expect(code);
        ended.says(text(&file)).says("the comparison ended after ").says("until the comparison has ended");
        let json = ended.json();
        let rounds = json["rounds"].as_u64().unwrap();
        assert!((1..=2).contains(&rounds), "{json:#}");
        assert_eq!(json["interrupted"], true);
        assert_eq!(json["runs"].as_array().unwrap().len() as u64, 3 + 3 * rounds);
        // Without a round there is nothing to report.
        assert_eq!(remove_at(3, &file).expect(code).says(text(&file)).stdout, "");
    }
}

#[test]
fn a_report_replaces_the_one_before() {
    let Some(bench) = Bench::new() else { return };
    let (link, file) = (bench.path("link"), bench.path("report"));
    fs::write(&file, "before").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    symlink("report", &link).unwrap();
    let mut before = fs::File::open(&file).unwrap();
    let compare = ["compare", "--json", "-n", "1", "--with", "system", "-o"];
    let ended = bench.run(&[&compare[..], &[text(&link), "--", "true"]].concat()).expect(0);
    assert_eq!(ended.stdout, "");
    let json: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(json["rounds"], 1);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    // Who reads that one reads it to the end.
    let mut left = String::new();
    before.read_to_string(&mut left).unwrap();
    assert_eq!(left, "before");
    // What another one has open stays the same file.
    let mut shell = bench.quarry([&compare[..], &["/dev/stdout", "--", "true"]].concat());
    let open = fs::File::options().append(true).open(&file).unwrap();
    Ended::from(shell.stdout(open.try_clone().unwrap()).output().unwrap()).expect(0);
    assert_eq!(open.metadata().unwrap().len(), fs::metadata(&file).unwrap().len());
    assert!(fs::read_to_string(&file).unwrap().matches("quarry-compare/1").count() == 2);
}

#[test]
fn a_report_that_cannot_be_written_is_printed() {
    let Some(bench) = Bench::new() else { return };
    let folder = bench.path("gone");
    fs::create_dir(&folder).unwrap();
    let report = folder.join("report");
    let base = ["compare", "--json", "-n", "1", "--with", "system", "-o", text(&report)];
    let ended = bench.run(&[&base[..], &["--", "rm", "-rf", text(&folder)]].concat()).expect(125);
    ended.says(text(&report)).says("the report is on standard output instead");
    assert_eq!(ended.json()["rounds"], 1);
}

#[test]
fn a_killed_comparison_takes_the_program_along() {
    let Some(bench) = Bench::new() else { return };
    let (mut child, pid) = running(&bench);
    child.kill().unwrap();
    child.wait().unwrap();
    dies(pid);
}

#[test]
fn a_run_in_which_the_tool_was_stopped_is_done_again() {
    let Some(bench) = Bench::new() else { return };
    let starts = bench.path("starts");
    let script = format!("echo >> {0}; sleep 0.5", starts.display());
    let base = ["compare", "--json", "-n", "1", "--warmup", "0", "--with", "system", "--", "sh", "-c"];
    let mut command = bench.quarry([&base[..], &[&script]].concat());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for(&starts);
    kill("STOP", child.id());
    std::thread::sleep(Duration::from_secs(3));
    kill("CONT", child.id());
    let json = Ended::from(child.wait_with_output().unwrap()).expect(0).json();
    let runs = json["runs"].as_array().unwrap();
    assert_eq!((runs.len(), fs::read_to_string(&starts).unwrap().lines().count()), (2, 3));
    assert!(runs.iter().all(|run| run["usage"]["wall_s"].as_f64() < Some(3.0)), "{json:#}");
}
