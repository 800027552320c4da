// SPDX-License-Identifier: MIT
//! quarry profile --live: in a terminal, as lines, and what it leaves in the process that it looked at.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use quarry_stats::sampler::Sampler;
use serde_json::Value;

use crate::common::pty::Session;
use crate::common::{Bench, Ended, kill, nothing_ignored, text, wait_until};
use crate::running::{Running, preloaded, program};

const QUARRY: &str = env!("CARGO_BIN_EXE_quarry");
const SMALL: (u16, u16) = (80, 24);

/// Is the sampler of this process on? Who asks renews no lease.
fn is_on(pid: &str) -> bool {
    let sampler = Sampler::of(pid.parse().unwrap()).unwrap();
    sampler.reader().unwrap().rate().unwrap().is_some()
}

fn process() -> Option<(Bench, Running)> {
    let bench = Bench::new()?;
    let (program, library) = program(&bench)?;
    let process = preloaded(&program, &library);
    Some((bench, process))
}

/// The bytes of live blocks, as the process's page of statistics has them.
fn heap_live(bench: &Bench, pid: &str) -> f64 {
    let report: Value =
        serde_json::from_str(&bench.run(&["stats", "-p", pid, "--json"]).expect(0).stdout).unwrap();
    let live = report["processes"][0]["estimate"]["live_bytes"].as_f64();
    live.unwrap_or_else(|| panic!("no live in {report:#}"))
}

fn view(pid: &str, args: &[&str], size: (u16, u16)) -> Session {
    let begin = ["--default-signal", QUARRY, "profile", "-p", pid, "--live", "--sample", "16k"];
    Session::new(OsStr::new("env"), [&begin[..], args].concat(), &[], size)
}

fn lines(bench: &Bench, pid: &str, args: &[&str]) -> Command {
    bench.quarry(["profile", "-p", pid, "--live", "--sample", "16k"].iter().chain(args))
}

fn group<'a>(frame: &'a Value, name: &str) -> &'a Value {
    let groups = frame["groups"].as_array().unwrap();
    let found = groups.iter().find(|group| group["name"].as_str().unwrap().starts_with(name));
    found.unwrap_or_else(|| panic!("no {name} in {frame:#}"))
}

#[test]
fn a_whole_session() {
    let Some((bench, process)) = process() else { return };
    let (page, trace) = (bench.path("page.html"), bench.path("kept.qtr"));
    let pid = process.pid();
    let args = ["-d", "0.2", "-o", text(&page), "--trace", text(&trace)];
    let mut view = view(&pid, &args, (120, 30));
    view.shows("held at running.c:");
    view.shows("churning at running.c:");
    assert!(view.parser.screen().alternate_screen() && view.parser.screen().hide_cursor());
    let heads = view.line(2);
    for head in ["LIVE", "95 %", "GROWN", "LAST", "TREND", "ALLOC/s", "HALF", "SITE"] {
        assert!(heads.contains(head), "{heads}");
    }
    assert!(is_on(&pid));
    // What is held for ever is first by live bytes, what comes and goes by bytes per second.
    let first = |name: &'static str| {
        move |screen: &str| screen.lines().nth(3).is_some_and(|line| line.contains(name))
    };
    view.until("has it first", first("held at"));
    view.press(">>>>>");
    view.until("sorts by ALLOC/s", first("churning at"));
    view.press("<<<<<");
    view.until("sorts by LIVE", first("held at"));
    // Folded.
    view.press("g");
    view.shows("function: ");
    assert!(!view.text().contains("running.c:"));
    view.press("g");
    view.shows("module: ");
    view.shows("/running");
    view.press("g");
    view.shows("site: ");
    // A filter, and into what it leaves.
    view.press("/large\r");
    view.until("shows only it", |screen| {
        screen.contains("large at") && !screen.contains("held at") && screen.contains("filter: large")
    });
    view.press("\x1b");
    view.until("has it first again", first("held at"));
    view.press("\r");
    view.shows("LIVE THROUGH ITS CALLERS");
    view.shows("main at running.c:");
    view.press("\x1b");
    // What follows an Esc at once is a key with Alt.
    view.until("is left", |screen| !screen.contains("LIVE THROUGH"));
    view.press("h");
    view.shows("What the columns are");
    view.press("x");
    view.shows("TREND");
    view.press("b");
    view.shows("GROWN counts from now on");
    // Written now, and not again at the end.
    view.press("w");
    view.shows("written: ");
    let written = fs::read(&trace).unwrap();
    assert!(fs::read_to_string(&page).unwrap().contains("held"));
    // A narrow screen, a tiny one, and one as before.
    view.resize(44, 20);
    view.until("is narrow", |screen| screen.contains("SITE") && !screen.contains("TREND"));
    view.resize(10, 3);
    view.shows("too small");
    view.resize(120, 30);
    view.shows("TREND");
    // In a pause it is sampled on.
    view.press(" ");
    view.shows("PAUSED");
    view.settle();
    assert!(is_on(&pid));
    view.press("q");
    assert_eq!(view.ends().code(), Some(0));
    assert!(!is_on(&pid));
    assert!(fs::read(&trace).unwrap() == written);
    let info = bench.run(&["info", text(&trace)]).expect(0);
    assert!(info.stdout.contains("held at running.c:") && info.stderr.is_empty(), "{}", info.stderr);
}

#[test]
fn signals_switch_it_off_and_files_are_written() {
    let Some((bench, process)) = process() else { return };
    let pid = process.pid();
    for (signal, number) in [("TERM", 15), ("INT", 2), ("HUP", 1), ("QUIT", 3), ("ALRM", 14)] {
        let trace = bench.path(signal);
        let mut view = view(&pid, &["-d", "0.2", "--trace", text(&trace)], SMALL);
        view.shows("held at");
        kill(signal, view.child.id());
        assert_eq!(view.ends().code(), Some(128 + number), "{signal}");
        assert!(!is_on(&pid), "{signal}");
        bench.run(&["info", text(&trace)]).expect(0);
    }
    let mut view = view(&pid, &["-d", "0.2"], SMALL);
    view.shows("held at");
    // Nothing is named, so nothing is written, and that is said.
    view.press("w");
    view.shows("nothing to write to");
    view.press("\x03");
    assert_eq!(view.ends().code(), Some(0));
    assert!(!is_on(&pid));
}

#[test]
fn what_is_killed_leaves_a_lease_that_ends() {
    let Some((bench, process)) = process() else { return };
    let pid = process.pid();
    let mut killed = lines(&bench, &pid, &["--json", "-d", "0.1"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(killed.stdout.take().unwrap()).read_line(&mut line).unwrap();
    killed.kill().unwrap();
    killed.wait().unwrap();
    wait_until("the lease ends", || !is_on(&pid));
    // The next one has it as ever, and the one that finds what another left switches it off.
    let args = ["--json", "-d", "0.1"];
    let mut killed = lines(&bench, &pid, &args).stdout(Stdio::piped()).spawn().unwrap();
    BufReader::new(killed.stdout.take().unwrap()).read_line(&mut line).unwrap();
    killed.kill().unwrap();
    killed.wait().unwrap();
    bench.run(&["profile", "-p", &pid, "--for", "0.2", "--sample", "16k"]).expect(0);
    assert!(!is_on(&pid));
}

#[test]
fn two_may_look() {
    let Some((bench, process)) = process() else { return };
    let pid = process.pid();
    let mut first = view(&pid, &["-d", "0.2"], SMALL);
    first.shows("held at");
    let mut second = view(&pid, &["-d", "0.2"], SMALL);
    second.shows("held at");
    first.press("q");
    assert_eq!(first.ends().code(), Some(0));
    // The second one switches it on again.
    second.shows("it is on again");
    assert!(is_on(&pid));
    second.press("q");
    assert_eq!(second.ends().code(), Some(0));
    assert!(!is_on(&pid));
    // One that was on from the start stays on, whoever looks.
    let (program, library) = program(&bench).unwrap();
    let mut command = Command::new(&program);
    let process = Running::start(command.env("LD_PRELOAD", &library).env("QUARRY_CONF", "sample:16k"));
    lines(&bench, &process.pid(), &["--once", "-d", "0.2"]).output().map(Ended::from).unwrap().expect(0);
    assert!(is_on(&process.pid()));
}

#[test]
fn the_process_may_end() {
    let Some((bench, process)) = process() else { return };
    let pid = process.pid();
    let trace = bench.path("ended.qtr");
    let mut view = view(&pid, &["-d", "0.2", "--trace", text(&trace)], SMALL);
    view.shows("held at");
    let args = ["--json", "-d", "0.2"];
    let mut writing =
        lines(&bench, &pid, &args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(writing.stdout.take().unwrap()).lines();
    said.next().unwrap().unwrap();
    drop(process);
    view.shows("ENDED: the process has ended");
    // What there was can still be looked at.
    view.press("\r");
    view.shows("LIVE THROUGH ITS CALLERS");
    view.press("q");
    assert_eq!(view.ends().code(), Some(0));
    bench.run(&["info", text(&trace)]).expect(0);
    let last: Value = serde_json::from_str(&said.map(Result::unwrap).last().unwrap()).unwrap();
    assert_eq!(last["ended"], "the process has ended");
    assert!(writing.wait().unwrap().success());
    let ended = Ended::from(lines(&bench, &pid, &["--json"]).output().unwrap()).expect(1);
    ended.says("there is no process");
}

#[test]
fn lines_say_what_the_process_does() {
    let Some((bench, process)) = process() else { return };
    let pid = process.pid();
    let page = bench.path("page.json");
    let heap_before = heap_live(&bench, &pid);
    let args = ["--json", "--frames", "8", "-d", "0.25", "--by", "function", "-o", text(&page)];
    let ended = Ended::from(lines(&bench, &pid, &args).output().unwrap()).expect(0);
    assert_eq!(ended.stdout.lines().count(), 8);
    let mut before = 0.0;
    for (line, number) in ended.stdout.lines().zip(1..) {
        let frame: Value = serde_json::from_str(line).unwrap();
        assert_eq!(frame["schema"], "quarry-profile-live/1");
        assert_eq!((frame["frame"].as_u64(), frame["by"].as_str()), (Some(number), Some("function")));
        assert_eq!(frame["sample"]["mean_bytes"], 16384);
        let seconds = frame["seconds"].as_f64().unwrap();
        assert!(seconds > before);
        before = seconds;
    }
    let last: Value = serde_json::from_str(ended.stdout.lines().last().unwrap()).unwrap();
    let rate = |name: &str| group(&last, name)["allocated_bytes_per_s"].as_f64().unwrap();
    // 350,000 bytes are held for each 500,000 that come and go and each 300,000 of a large object, in one turn.
    for (part, of) in
        [(rate("churning") / rate("held"), 500.0 / 350.0), (rate("large") / rate("held"), 300.0 / 350.0)]
    {
        assert!((part / of - 1.0).abs() < 0.25, "{last:#}");
    }
    let (held, churned) = (group(&last, "held"), group(&last, "churning"));
    let bounds: Vec<u64> =
        held["live_bytes_interval"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect();
    let live = held["live_bytes"].as_u64().unwrap();
    assert!(bounds[0] < live && live < bounds[1], "{held:#}");
    assert_eq!(held["growth"]["sure"], true);
    // All blocks of the process, also those from before. Its page of statistics may be older than the sample, and
    // what comes and goes may have gone.
    let heap = last["heap_live_bytes"].as_f64();
    assert!(heap.is_some_and(|heap| heap > 0.8 * heap_before), "{heap_before} {last:#}");
    assert!(
        churned["live_bytes"].as_u64().unwrap() < live && churned["half_life_ns"].is_u64(),
        "{churned:#}"
    );
    let report: Value = serde_json::from_str(&fs::read_to_string(&page).unwrap()).unwrap();
    assert_eq!(report["schema"], "quarry-profile/1");
    // One frame, as text.
    let once = Ended::from(lines(&bench, &pid, &["--once", "-d", "0.3", "-n", "2"]).output().unwrap());
    let once = once.expect(0).stdout;
    assert!(
        once.contains("held at") && once.contains("\nand ") && once.contains("one in 16.0 KiB"),
        "{once}"
    );
    // So long, and no longer.
    let timed = Ended::from(lines(&bench, &pid, &["--json", "--for", "0.5", "-d", "0.1"]).output().unwrap());
    let last: Value = serde_json::from_str(timed.expect(0).stdout.lines().last().unwrap()).unwrap();
    assert_eq!(last["ended"], "the time is up");
    assert!(!is_on(&pid));
}

#[test]
fn a_reader_that_does_not_read_keeps_nothing_on() {
    let Some((bench, process)) = process() else { return };
    let pid = process.pid();
    let (reader, mut writer) = std::io::pipe().unwrap();
    // A pipe that is full, so that the first frame waits.
    writer.write_all(&[0; 64 << 10]).unwrap();
    let tool = lines(&bench, &pid, &["--json", "-d", "0.1"]);
    let mut child = nothing_ignored(&tool).stdout(writer).spawn().unwrap();
    wait_until("it is on", || is_on(&pid));
    kill("TERM", child.id());
    assert_eq!(child.wait().unwrap().code(), Some(128 + 15));
    assert!(!is_on(&pid));
    drop(reader);
    // One that goes away has seen enough.
    let mut child = lines(&bench, &pid, &["--json", "-d", "0.1"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(!is_on(&pid));
}

#[test]
fn letters_are_enough() {
    let Some((_bench, process)) = process() else { return };
    let args = [QUARRY, "profile", "-p", &process.pid(), "--live", "--sample", "16k"];
    let mut view = Session::new(OsStr::new("env"), args, &[("NO_COLOR", "1")], SMALL);
    view.shows("held at");
    let screen = view.parser.screen();
    let colored = |row: u16, column: u16| {
        let cell = screen.cell(row, column).unwrap();
        cell.fgcolor() != vt100::Color::Default || cell.bgcolor() != vt100::Color::Default
    };
    assert!((0..24).all(|row| (0..80).all(|column| !colored(row, column))));
    assert!(screen.cell(2, 0).unwrap().inverse(), "the heads are not reversed");
    view.press("q");
    assert_eq!(view.ends().code(), Some(0));
}

#[test]
fn what_cannot_be_shown_is_said_before_the_terminal_is_taken() {
    let Some((bench, process)) = process() else { return };
    let (pid, own) = (process.pid(), std::process::id().to_string());
    let refused = |args: &[&str], code, why: &str| {
        bench.run(&[&["profile"], args].concat()).expect(code).says(why);
    };
    refused(&["-p", &pid, "--live"], 2, "--once");
    refused(&["--live"], 2, "-p PID");
    refused(&["-p", &pid, "--once"], 2, "--once is for --live");
    refused(&["-p", &pid, "-d", "2"], 2, "--delay is for --live");
    refused(&["-p", &pid, "--live", "--json", "--max-peak", "1M"], 2, "no limits");
    refused(&["-p", &pid, "--live", "--json", "--sort", "temporary"], 2, "not known from a sample");
    refused(&["-p", &pid, "--live", "--once", "-o", "-"], 2, "name a FILE");
    refused(&["-p", &pid, "--live", "--format", "html"], 2, "whose ending says");
    refused(&["-p", &pid, "--live", "--once", "-o", "/proc/no/page.html"], 125, "/proc/no/page.html");
    refused(&["-p", &own, "--live", "--once"], 1, "does not run on Quarry");
    assert!(!is_on(&pid));
    let mut dumb =
        Session::new(OsStr::new(QUARRY), ["profile", "-p", &pid, "--live"], &[("TERM", "dumb")], SMALL);
    dumb.shows("--once");
    assert_eq!(dumb.ends().code(), Some(2));
    let mut other = view(&own, &[], SMALL);
    other.shows("does not run on Quarry");
    assert_eq!(other.ends().code(), Some(1));
    without_the_right(&bench, &pid);
}

/// As somebody else, who may not look.
fn without_the_right(bench: &Bench, pid: &str) {
    if Command::new("id").arg("-u").output().unwrap().stdout != b"0\n" {
        return;
    }
    let program = bench.path("quarry");
    // Not by ourselves: what is still open for writing in a program that another thread starts cannot be executed.
    assert!(Command::new("cp").arg(QUARRY).arg(&program).status().unwrap().success());
    for path in [program.parent().unwrap(), &program] as [&Path; 2] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--clear-groups"]).arg(&program);
    command.args(["profile", "-p", pid, "--live", "--once"]);
    Ended::from(command.output().unwrap()).expect(1).says("may not be looked at");
}
