// SPDX-License-Identifier: MIT
//! quarry pools: from a program with pools to the table, the plot, and the exit code.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::common::{Bench, Ended, text};
use serde_json::Value;

/// What a program with pools wrote into its log, and what it said: name and number of operations.
pub struct Logged {
    /// The log of the program and its child.
    log: Vec<u8>,
    /// The logs of another run, in which each of them had its own.
    own: Vec<Vec<u8>>,
    said: Vec<(String, u64)>,
}

/// A bench with the log of a program that is compiled together with the pools of this tree. `None` where there
/// is no C compiler.
pub fn logged() -> Option<(Bench, PathBuf, &'static Logged)> {
    static LOGGED: OnceLock<Option<Logged>> = OnceLock::new();
    let logged = LOGGED.get_or_init(run_program).as_ref()?;
    let bench = Bench::new()?;
    let log = bench.path("log");
    fs::write(&log, &logged.log).unwrap();
    Some((bench, log, logged))
}

fn run_program() -> Option<Logged> {
    let bench = Bench::new()?;
    let program = compile(&bench);
    let run = |log: PathBuf| {
        let conf = format!("pool_log:{}", text(&log));
        let ended = Command::new(&program).arg("20000").env("QUARRY_CONF", conf).output().unwrap();
        Ended::from(ended).expect(0).stdout
    };
    let said = run(bench.path("log"));
    let said = said.lines().map(|line| {
        let (name, count) = line.split_once(' ').unwrap();
        (name.to_owned(), count.parse().unwrap())
    });
    let logs = bench.path("logs");
    fs::create_dir(&logs).unwrap();
    run(logs.join("%p"));
    let files = fs::read_dir(&logs).unwrap().map(|file| file.unwrap());
    let own = files.map(|file| {
        assert!(file.file_name().to_str().unwrap().parse::<u32>().is_ok(), "{file:?}");
        fs::read(file.path()).unwrap()
    });
    Some(Logged { log: fs::read(bench.path("log")).unwrap(), own: own.collect(), said: said.collect() })
}

/// The program and the pools, without the heap, which they do not need.
fn compile(bench: &Bench) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (source, program) = (bench.path("pools.c"), bench.path("pools"));
    fs::write(&source, include_str!("common/pools.c")).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu17", "-pthread", "-D_GNU_SOURCE", "-DQY_VERSION=\"0\""]);
    cc.args(["-DQY_CFG_CHECK=1", "-DQY_CFG_FAKE=0"]);
    cc.arg("-I").arg(root.join("include")).arg("-I").arg(root.join("src"));
    let mut folders: Vec<PathBuf> =
        ["base", "os", "rt", "stacks", "pool"].iter().map(|name| root.join("src").join(name)).collect();
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension() == Some("c".as_ref()) {
                cc.arg(path);
            }
        }
    }
    let done = cc.arg(&source).arg("-o").arg(&program).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    program
}

/// The pool of this name in the process of this index.
fn pool<'a>(json: &'a Value, process: u64, name: &str) -> &'a Value {
    let pools = json["logs"][0]["pools"].as_array().unwrap();
    let found = pools.iter().find(|pool| pool["process_index"] == process && pool["name"] == name);
    found.unwrap_or_else(|| panic!("no {name} in process {process}: {json:#}"))
}

#[test]
fn a_log_is_read_as_it_was_written() {
    let Some((bench, log, logged)) = logged() else { return };
    let json = bench.run(&["pools", "--json", text(&log)]).expect(0).json();
    assert_eq!(json["schema"], "quarry-pool-log/1");
    assert_eq!(json["logs"][0]["lost"]["bytes"], 0);
    let processes = json["logs"][0]["processes"].as_array().unwrap();
    assert_eq!(processes.len(), 2, "the program and its child");
    assert_ne!(processes[0]["process"], processes[1]["process"]);
    for process in processes {
        assert_eq!((&process["program"], &process["every"]), (&"pools".into(), &300.into()));
    }
    for (name, count) in &logged.said {
        let (process, name) = if name == "child" { (1, "replies") } else { (0, name.as_str()) };
        let found = pool(&json, process, name);
        assert_eq!(found["operations"], *count, "{name} in {process}");
        // Each period has its entry.
        assert_eq!(found["events"]["period"], count / 300, "{name} in {process}");
    }
    let (queries, below) = (pool(&json, 0, "queries"), pool(&json, 0, "below"));
    assert_eq!(queries["parent"], below["pool"]);
    assert_eq!((&queries["kind"], &below["kind"]), (&"fifo".into(), &"tlsf".into()));
    // A thousand blocks of 500 bytes live.
    let held = queries["peak_held"]["held_bytes"].as_u64().unwrap();
    let used = queries["peak_used"]["used_bytes"].as_u64().unwrap();
    assert!((500_000..700_000).contains(&used) && used <= held && held < 1 << 20, "{held} {used}");
    assert!((1..100).contains(&queries["chunk_gets"].as_u64().unwrap()), "{queries}");
    assert_eq!(queries["destroyed"], true);
    assert_eq!(pool(&json, 0, "requests")["destroyed"], false);
    // What the child inherited and left alone is not counted as its work.
    assert_eq!(pool(&json, 1, "queries")["operations"], 0);
}

#[test]
fn each_process_may_have_a_log_of_its_own() {
    let Some((bench, _, logged)) = logged() else { return };
    assert_eq!(logged.own.len(), 2);
    let files: Vec<PathBuf> = (0..2).map(|n| bench.path(&format!("own{n}"))).collect();
    for (file, bytes) in files.iter().zip(&logged.own) {
        fs::write(file, bytes).unwrap();
    }
    let json = bench.run(&["pools", "--json", text(&files[0]), text(&files[1])]).expect(0).json();
    let logs = json["logs"].as_array().unwrap();
    assert_eq!(logs.len(), 2);
    let mut operations: Vec<u64> = logs.iter().map(|log| log["operations"].as_u64().unwrap()).collect();
    operations.sort_unstable();
    let of_child = logged.said.iter().find(|(name, _)| name == "child").unwrap().1;
    assert_eq!(operations[0], of_child);
    for log in logs {
        assert_eq!(log["processes"].as_array().unwrap().len(), 1);
    }
    let table = bench.run(&["pools", text(&files[0]), text(&files[1])]).expect(0).stdout;
    assert!(files.iter().all(|file| table.lines().any(|line| line == text(file))), "{table}");
}

#[test]
fn the_series_has_every_entry() {
    let Some((bench, log, _)) = logged() else { return };
    let json = bench.run(&["pools", "--json", "--series", text(&log)]).expect(0).json();
    let series = json["series"].as_array().unwrap();
    assert_eq!(json["logs"][0]["entries"], series.len());
    let replies = pool(&json, 0, "replies");
    let of_replies: Vec<&Value> = series.iter().filter(|row| row[1] == replies["index"]).collect();
    assert_eq!(replies["entries"], of_replies.len());
    assert!(of_replies.windows(2).all(|pair| pair[0][2].as_u64() <= pair[1][2].as_u64()), "in order of time");
    assert_eq!(of_replies.last().unwrap()[3], "death");
    let one = ["pools", "--json", "--series", "--pool", "below", text(&log)];
    let one = bench.run(&one).expect(0).json();
    let index = &one["logs"][0]["pools"][0]["index"];
    let rows = one["series"].as_array().unwrap();
    assert!(!rows.is_empty() && rows[0][1] == *index);
}

#[test]
fn plots_go_where_they_are_sent() {
    let Some((bench, log, _)) = logged() else { return };
    let log = text(&log);
    let (svg, page) = (bench.path("plot.svg"), bench.path("plot.html"));
    for (file, begin) in [(&svg, "<?xml "), (&page, "<!DOCTYPE html>")] {
        let table = bench.run(&["pools", log, "-o", text(file), "-o", "-"]).expect(0).stdout;
        assert!(table.contains("replies") && table.contains("per million operations"), "{table}");
        assert_eq!(bench.run(&["pools", log, "-o", text(file)]).expect(0).stdout, "");
        let plot = fs::read_to_string(file).unwrap();
        assert!(plot.starts_with(begin) && plot.contains("replies: fifo 1 of pools"), "{plot}");
    }
    let plot =
        bench.run(&["pools", log, "--format", "svg", "--x", "time", "--pool", "requests"]).expect(0).stdout;
    assert!(plot.starts_with("<?xml ") && plot.contains("requests") && !plot.contains("replies"), "{plot}");
    assert!(plot.contains("time since the pool was made"), "{plot}");
    let top = bench.run(&["pools", log, "--format", "svg", "--top", "1"]).expect(0).stdout;
    assert_eq!(top.matches(">dump number<").count(), 1);
    bench.run(&["pools", log, "--format", "svg", "--json"]).expect(2).says("cannot be used with");
    bench.run(&["pools", log, "--series", "-o", text(&svg)]).expect(2).says("one report in JSON");
    bench.run(&["pools", log, "--series"]).expect(2).says("--json");
    let report = bench.path("report.txt");
    bench.run(&["pools", log, "-o", text(&report)]).expect(0);
    assert!(fs::read_to_string(report).unwrap().contains("replies"));
}

#[test]
fn a_damaged_log_is_read_as_far_as_it_goes() {
    let Some((bench, log, _)) = logged() else { return };
    let whole = fs::read(&log).unwrap();
    let cut = bench.path("cut");
    fs::write(&cut, &whole[..whole.len() - 10]).unwrap();
    let at = whole.len() - 64;
    let ended = bench.run(&["pools", text(&cut)]).expect(1);
    ended.says(&format!("{}: byte {at}: 54 bytes left out", text(&cut)));
    assert!(ended.stdout.contains("replies"));
    // Two programs one after the other, the first of which was cut short; and through a pipe.
    fs::write(&cut, [&whole[..whole.len() - 10], &whole].concat()).unwrap();
    let shell = format!("cat {} | {} pools --json -", text(&cut), env!("CARGO_BIN_EXE_quarry"));
    let ended = Ended::from(Command::new("sh").args(["-c", &shell]).output().unwrap()).expect(1);
    ended.says(&format!("standard input: byte {at}: 54 bytes left out: a record was cut short"));
    let json = ended.json();
    assert_eq!(json["logs"][0]["processes"].as_array().unwrap().len(), 4);
    assert_eq!(json["logs"][0]["lost"]["bytes"], 54);
    let mut newer = whole.clone();
    newer.extend(&whole[..64]);
    newer[whole.len() + 18] = 2;
    fs::write(&cut, newer).unwrap();
    let ended = bench.run(&["pools", text(&cut)]).expect(1);
    ended.says(&format!("byte {}: a log of version 2", whole.len()));
    assert!(ended.stdout.contains("replies"));
}

#[test]
fn what_is_no_log_is_refused() {
    let Some(bench) = Bench::new() else { return };
    let file = bench.path("file");
    let old = bench.path("old.txt");
    fs::write(&old, "old report").unwrap();
    for (contents, words) in [(&b""[..], "is empty"), (b"#!/bin/sh\n", "is not a log of pools")] {
        fs::write(&file, contents).unwrap();
        bench.run(&["pools", text(&file), "-o", text(&old)]).expect(1).says(words);
        bench.run(&["pools", "--json", "--series", text(&file), "-o", text(&old)]).expect(1).says(words);
    }
    assert_eq!(fs::read_to_string(old).unwrap(), "old report");
    bench.run(&["pools", "/no/such/log"]).expect(1).says("/no/such/log: No such file");
    bench.run(&["pools", "/"]).expect(1).says("directory");
    bench.run(&["pools"]).expect(2);
    bench.run(&["pools", "-", "-"]).expect(2).says("only once");
}

#[test]
fn a_pool_that_is_not_there_is_a_slip() {
    let Some((bench, log, _)) = logged() else { return };
    let log = text(&log);
    bench.run(&["pools", log, "--pool", "repiles"]).expect(2).says("replies, requests");
    // It does not cost an old report.
    let old = bench.path("old.json");
    fs::write(&old, "old report").unwrap();
    let options = [&[][..], &["--json"], &["--json", "--series"], &["--format", "svg"]];
    for options in options {
        let args = [&["pools", log, "--pool", "repiles", "-o", text(&old)], options].concat();
        bench.run(&args).expect(2);
        assert_eq!(fs::read_to_string(&old).unwrap(), "old report", "{options:?}");
    }
    bench.run(&["pools", log, "--pool", "replies", "--json", "--series", "-o", text(&old)]).expect(0);
    let json: Value = serde_json::from_str(&fs::read_to_string(&old).unwrap()).unwrap();
    assert!(!json["series"].as_array().unwrap().is_empty());
}
