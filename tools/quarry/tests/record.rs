// SPDX-License-Identifier: MIT
//! quarry record: what goes in, what comes out, and with which code. The recorder is a stand-in that does nothing, or what
//! a test has it do; `record_real.rs` has the real one.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::common::{Bench, Ended, kill, nothing_ignored, text};

/// A bench with a recorder that records nothing.
fn bench() -> Option<Bench> {
    let bench = Bench::new()?;
    bench.library("libquarry-record", "int getpid(void); int recorder(void) { return getpid(); }");
    fs::create_dir(bench.path("t")).unwrap();
    Some(bench)
}

/// The tool, leaving traces in a directory of their own.
fn record(bench: &Bench, args: &[&str]) -> Command {
    let mut command = bench.quarry(["record"].iter().chain(args));
    command.current_dir(bench.path("t")).env_remove("QUARRY_RECORD");
    command
}

fn run(bench: &Bench, args: &[&str]) -> Ended {
    Ended::from(record(bench, args).output().unwrap())
}

#[test]
fn the_exit_code_is_the_commands() {
    let Some(bench) = bench() else { return };
    for code in [0, 1, 7, 255] {
        let ended = run(&bench, &["-q", "--", "sh", "-c", &format!("exit {code}")]).expect(code);
        assert_eq!((ended.stdout, ended.stderr), (String::new(), String::new()));
    }
    run(&bench, &["--", "sh", "-c", "kill -SEGV $$"]).expect(139).says("SIGSEGV");
    run(&bench, &["--", "sh", "-c", "kill -KILL $$"]).expect(137).says("no trace was written");
}

#[test]
fn what_cannot_be_run_has_its_own_codes() {
    let Some(bench) = bench() else { return };
    run(&bench, &["--", "no-such-command-here"]).expect(127).says("no-such-command-here");
    run(&bench, &["--", "/no/such/file"]).expect(127).says("no such file");
    run(&bench, &["--", "/"]).expect(126).says("is a directory");
    let script = bench.path("script");
    fs::write(&script, "#!/bin/sh\n").unwrap();
    run(&bench, &["--", text(&script)]).expect(126).says("chmod");
    let script = bench.script("script", "#!/no/such/interpreter\n");
    run(&bench, &["--", text(&script)]).expect(127).says("/no/such/interpreter");
}

#[test]
fn a_slip_of_the_fingers_ends_with_2() {
    let Some(bench) = bench() else { return };
    for args in [
        &[][..],
        &["--no-such-option", "--", "true"],
        &["-g", "true"],
        &["-g", "dwarf", "--", "true"],
        &["--sample", "much", "--", "true"],
        &["--sample", "0", "--", "true"],
        &["--measure=0", "--", "true"],
        &["--with", "no-such-allocator", "--", "true"],
        &["-o", "-", "--", "true"],
        &["-o", ".", "--", "true"],
        &["-o", "/dev/null", "--", "true"],
        &["-o", "%x", "--", "true"],
        &["--follow", "-o", "x.qtr", "--", "true"],
    ] {
        let ended = run(&bench, args).expect(2);
        assert!(!ended.stderr.is_empty(), "{args:?}");
    }
    run(&bench, &["--follow", "-o", "x.qtr", "--", "true"]).says("%p");
    run(&bench, &["-o", "/dev/null", "--", "true"]).says("-o /dev/null: is no regular file; ");
}

#[test]
fn places_that_cannot_be_written_are_refused_before_anything_runs() {
    let Some(bench) = bench() else { return };
    let letter = bench.path("t/letter");
    fs::write(&letter, "dear all").unwrap();
    for file in ["no/such/dir/x", "letter/x", "letter", "/proc/x"] {
        let ended = run(&bench, &["-o", file, "--", "sh", "-c", "echo ran"]).expect(125);
        assert_eq!(ended.stdout, "", "{file}");
        ended.says("-o FILE");
    }
    assert_eq!(fs::read_to_string(&letter).unwrap(), "dear all");
    let none = bench.path("none");
    let ended = record(&bench, &["--", "true"]).env("QUARRY_LIB_DIR", &none).output().unwrap();
    Ended::from(ended).expect(125).says("libquarry-record.so").says(text(&none));
}

#[test]
fn the_environment_is_the_recorders() {
    let Some(bench) = bench() else { return };
    let other = bench.library("libother", "int other;");
    let recorder = bench.path("libquarry-record.so");
    let show = ["sh", "-c", "echo $LD_PRELOAD; echo $QUARRY_RECORD; echo $QUARRY_CONF"];
    let shown = |args: &[&str], preload: Option<&str>| {
        let mut command = record(&bench, &[args, &["-q", "--"], &show].concat());
        if let Some(preload) = preload {
            command.env("LD_PRELOAD", preload);
        }
        let ended = Ended::from(command.output().unwrap()).expect(0);
        ended.stdout.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let t = bench.path("t");
    let (recorder, other, t) = (text(&recorder), text(&other), text(&t));
    assert_eq!(
        shown(&[], Some(other)),
        [
            format!("{recorder}:{other}"),
            format!("file:{t}/quarry.%e.%p.qtr,stacks:none,follow:off"),
            String::new()
        ]
    );
    assert_eq!(
        shown(&["-g", "-o", "a,b.qtr", "--sample", "512k"], None)[1],
        format!("file:{t}/a%cb.qtr,stacks:cfi,follow:off,sample:524288")
    );
    assert_eq!(
        shown(&["-gfp", "--follow", "-o", "/tmp/%%%p"], None)[1],
        "file:/tmp/%%%p,stacks:fp,follow:on"
    );
    let heap = bench.path("libquarry-malloc.so");
    let under = shown(&["--with", "quarry:tcache:off", "--conf", "arenas:2"], Some(other));
    assert_eq!(
        (&under[0], under[2].as_str()),
        (&format!("{recorder}:{}:{other}", text(&heap)), "arenas:2,tcache:off")
    );
}

#[test]
fn an_older_trace_is_replaced() {
    let Some(bench) = bench() else { return };
    let file = bench.path("t/a.qtr");
    fs::write(&file, "QTRB and so on").unwrap();
    run(&bench, &["-o", "a.qtr", "--", "true"]).expect(0).says("no trace was written");
    assert!(!file.exists());
}

#[test]
fn an_older_trace_stays_until_the_program_is_started() {
    let Some(bench) = bench() else { return };
    let source = "int main(void) { return 0; }";
    let musl = bench.compile("musl", source, &["-Wl,--dynamic-linker=/no/such/ld-musl-x86_64.so.1"]).unwrap();
    let traces = ["a.qtr", "a.qtr.2"].map(|name| bench.path("t").join(name));
    for trace in &traces {
        fs::write(trace, "QTRB and so on").unwrap();
    }
    let refused = run(&bench, &["-o", "a.qtr", "--", text(&musl)]).expect(125);
    refused.says("Nothing would be recorded");
    run(&bench, &["-o", "a.qtr", "--anyway", "--", text(&musl)]).expect(127);
    assert!(traces.iter().all(|trace| fs::read_to_string(trace).unwrap() == "QTRB and so on"));
    assert_eq!(fs::read_dir(bench.path("t")).unwrap().count(), 2);
    run(&bench, &["-o", "a.qtr", "--", "true"]).expect(0);
    assert_eq!(fs::read_dir(bench.path("t")).unwrap().count(), 0);
}

#[test]
fn hopeless_programs_are_not_run() {
    let Some(bench) = bench() else { return };
    let source = "#include <stdio.h>\nint main(void) { puts(\"ran\"); return 3; }";
    let own = format!("#include <stddef.h>\nvoid *malloc(size_t n) {{ (void)n; return NULL; }}\n{source}");
    let mut programs =
        vec![("malloc of its own", bench.compile("own", &own, &["-rdynamic", "-fno-builtin"]).unwrap())];
    let musl = ["-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1"];
    programs.push(("another C library", bench.compile("musl", source, &musl).unwrap()));
    programs.extend(bench.compile("fixed", source, &["-static"]).map(|file| ("statically linked", file)));
    for (why, file) in &programs {
        let ended = run(&bench, &["--", text(file)]).expect(125);
        assert_eq!(ended.stdout, "");
        ended.says(why).says("Nothing would be recorded").says("--anyway");
        if *why == "statically linked" {
            // What it starts may be recorded, or the user knows better.
            for option in ["--anyway", "--follow"] {
                let ended = run(&bench, &[option, "--", text(file)]).expect(3);
                assert_eq!(ended.stdout, "ran\n");
                ended.says("warning").says("no trace was written").says(why);
            }
        }
    }
    let inner = "void *tc_malloc(void) { return 0; } int main(void) { return tc_malloc() != 0; }";
    let inner = bench.compile("inner", inner, &[]).unwrap();
    run(&bench, &["--", text(&inner)]).expect(0).says("has tcmalloc linked in");
}

#[test]
fn a_recorder_that_is_not_loaded_is_noticed() {
    let Some(bench) = bench() else { return };
    fs::write(bench.path("libquarry-record.so"), "no library").unwrap();
    let ended = run(&bench, &["--", "sh", "-c", "exit 4"]).expect(4);
    ended.says("will not load the recorder").says("no trace was written").says("LD_DEBUG");
}

#[test]
fn the_summary_has_its_schema_and_its_place() {
    let Some(bench) = bench() else { return };
    let ended = run(&bench, &["--json", "--summary", "-", "-g", "--", "sh", "-c", "exit 3"]).expect(3);
    let json = ended.json();
    assert_eq!(json["schema"], "quarry-record/1");
    assert_eq!((&json["exit_code"], &json["stacks"]), (&3.into(), &"cfi".into()));
    assert_eq!((&json["events"], &json["traces"]), (&0.into(), &serde_json::json!([])));
    assert_eq!(json["notes"].as_array().unwrap().len(), 1);
    let file = bench.path("summary");
    let ended = run(&bench, &["-q", "--summary", text(&file), "--", "echo", "hello"]).expect(0);
    assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("hello\n", ""));
    assert!(fs::read_to_string(&file).unwrap().contains("no trace was written"));
    // The command has run, so its code stands.
    run(&bench, &["--summary", "/dev/full", "--", "sh", "-c", "exit 4"]).expect(4).says("/dev/full");
}

#[test]
fn what_recording_costs_is_measured_in_turns() {
    let Some(bench) = bench() else { return };
    // Four runs behind the first one, half of them with the recorder; they must not find the terminal's input.
    let log = bench.path("log");
    let script = format!("read x; echo \"${{QUARRY_RECORD+with}} $x\" >>{}; exit 3", text(&log));
    let ended =
        run(&bench, &["--json", "--summary", "-", "--measure=2", "--", "sh", "-c", &script]).expect(3);
    let slowdown = &ended.json()["slowdown"];
    assert_eq!(slowdown["rounds"], 2);
    assert!(slowdown["wall_ratio"]["ratio"].as_f64().is_some_and(|ratio| ratio > 0.0), "{slowdown}");
    let mut runs: Vec<String> =
        fs::read_to_string(&log).unwrap().lines().map(|l| l.trim().to_owned()).collect();
    runs.sort();
    assert_eq!(runs, ["", "", "with", "with", "with"]);
    assert_eq!(fs::read_dir(bench.path("t")).unwrap().count(), 0);
    // A command that ends differently the next time cannot be measured.
    let counter = bench.path("counter");
    let script = format!("echo >>{0}; exit $(wc -l <{0})", text(&counter));
    run(&bench, &["--measure=2", "--", "sh", "-c", &script]).expect(1).says("slow-down was not measured");
}

#[test]
fn a_signal_for_the_recorded_command_stops_no_measurement() {
    let Some(bench) = bench() else { return };
    let once = bench.path("once");
    let script = format!(
        "[ -e {0} ] && exit 3; touch {0}; trap got=1 USR1; kill -USR1 $PPID; while [ -z \"$got\" ]; do sleep 0.05; done; exit 3",
        text(&once)
    );
    let ended =
        run(&bench, &["--json", "--summary", "-", "--measure=2", "--", "sh", "-c", &script]).expect(3);
    assert_eq!(ended.json()["slowdown"]["rounds"], 2, "{}", ended.stdout);
}

#[test]
fn signals_are_the_commands_to_handle() {
    let Some(bench) = bench() else { return };
    for signal in ["TERM", "INT", "HUP", "USR1"] {
        let script = format!("trap 'exit 9' {signal}; echo ready; while :; do sleep 0.05; done");
        let mut command = nothing_ignored(&record(&bench, &["--", "sh", "-c", &script]));
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        kill(signal, child.id());
        // The tool lives on to report.
        Ended::from(child.wait_with_output().unwrap()).expect(9).says("no trace was written");
    }
}
