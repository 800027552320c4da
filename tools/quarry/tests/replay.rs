// SPDX-License-Identifier: MIT
//! quarry replay: from a trace to the tables, the page and the exit code, with the replayer compiled here.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::common::{Bench, Ended, PATIENCE, dies, kill, nothing_ignored, text};
use serde_json::Value;
use tempfile::TempDir;

const ABORTS: &str = "#include <stdio.h>\n#include <stdlib.h>\n\
    __attribute__((constructor)) static void die(void) { fputs(\"heap: broken block\\n\", stderr); abort(); }";
/// malloc has nothing to give from the hundredth call on.
const EMPTY: &str = "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <stddef.h>\n\
    void *malloc(size_t n) { static void *(*real)(size_t); static _Atomic int calls;\n\
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, \"malloc\"); return ++calls > 100 && n == 77 ? NULL : real(n); }";

/// malloc of 70003 bytes has nothing to give, realloc to 70001 changes the first byte.
const CHANGES: &str = "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <stddef.h>\n\
    void *malloc(size_t n) { static void *(*real)(size_t);\n\
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, \"malloc\"); return n == 70003 ? NULL : real(n); }\n\
    void *realloc(void *p, size_t n) { static void *(*real)(void *, size_t);\n\
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, \"realloc\"); char *q = real(p, n);\n\
    if (q && n == 70001) q[0] ^= 1; return q; }";

/// The replayer, compiled once.
fn replayer() -> &'static Path {
    static BUILT: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = BUILT.get_or_init(|| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("quarry-replayer");
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../replay");
        let files = fs::read_dir(sources).unwrap().map(|entry| entry.unwrap().path());
        let compiled = Command::new("cc")
            .args(["-std=gnu17", "-O1", "-pthread", "-D_GNU_SOURCE", "-fno-builtin", "-o"])
            .arg(&path)
            .args(files.filter(|file| file.extension().is_some_and(|e| e == "c")))
            .status();
        assert!(compiled.unwrap().success());
        (directory, path)
    });
    path
}

/// A bench with the replayer, and a temporary directory of its own in which nothing may be left.
pub struct Stage {
    pub bench: Bench,
}

impl Stage {
    pub fn new() -> Option<Self> {
        let bench = Bench::new()?;
        fs::create_dir(bench.path("quarry")).unwrap();
        fs::create_dir(bench.path("tmp")).unwrap();
        // Not a copy: a file that was just written may still be open in the child of another thread, and cannot be run then.
        symlink(replayer(), bench.path("quarry/quarry-replayer")).unwrap();
        Some(Self { bench })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.bench.path(name)
    }

    fn quarry(&self, args: &[&str]) -> Command {
        let mut command = self.bench.quarry(args);
        command.env("TMPDIR", self.path("tmp"));
        command
    }

    fn run(&self, args: &[&str]) -> Ended {
        let ended = Ended::from(self.quarry(args).output().unwrap());
        self.is_clean();
        ended
    }

    #[track_caller]
    fn is_clean(&self) {
        let left: Vec<_> = fs::read_dir(self.path("tmp")).unwrap().map(|e| e.unwrap().path()).collect();
        assert!(left.is_empty(), "{left:?}");
    }

    /// A generated trace.
    pub fn trace(&self, name: &str, options: &[&str]) -> PathBuf {
        let file = self.path(name);
        self.run(&[&["gen", "-o", text(&file)], options].concat()).expect(0);
        file
    }

    /// Play three rounds under the system's malloc and quarry; at this start of the replayer, `gone` is removed.
    fn removing_at(&self, start: u32, gone: &Path, more: &[&str]) -> Ended {
        let (trace, starts) = (self.trace("a.qtr", &["--allocations", "300"]), self.path("starts"));
        fs::write(&starts, "").unwrap();
        let count = format!("echo >> {0}; [ $(wc -l < {0}) != {start} ]", starts.display());
        let (gone, real) = (gone.display(), replayer().display());
        let script = format!("#!/bin/sh\n{count} || rm -r {gone}\nexec {real} \"$@\"\n");
        self.bench.script("quarry/quarry-replayer", &script);
        self.run(&[&["replay", text(&trace), "--with", "quarry", "-n", "3", "--no-latency"], more].concat())
    }
}

fn names(json: &Value) -> Vec<&str> {
    json["allocators"].as_array().unwrap().iter().map(|a| a["name"].as_str().unwrap()).collect()
}

#[test]
fn a_trace_is_played_in_rounds() {
    let Some(stage) = Stage::new() else { return };
    let file = stage.trace("a.qtr", &["--allocations", "3000", "--threads", "2"]);
    let ended =
        stage.run(&["replay", text(&file), "--with", "quarry", "-n", "2", "-r", "3", "--json"]).expect(0);
    assert_eq!(ended.stderr, "");
    let json = ended.json();
    assert_eq!(json["schema"], "quarry-replay/1");
    assert_eq!(names(&json), ["system", "quarry"]);
    assert_eq!((json["rounds"].as_u64(), json["interrupted"].as_bool()), (Some(2), Some(false)));
    assert_eq!((&json["settings"]["repeats"], &json["settings"]["touch"]), (&3.into(), &"recorded".into()));
    let plan = &json["plan"];
    assert_eq!((&plan["threads"], &plan["order"]), (&2.into(), &"deps".into()));
    let allocations = ["malloc", "calloc", "memalign"].map(|kind| plan["operations"][kind].as_u64().unwrap());
    assert_eq!(allocations.iter().sum::<u64>(), 3000, "{plan:#}");
    for allocator in json["allocators"].as_array().unwrap() {
        let result = &allocator["result"];
        assert_eq!((&result["succeeded"], &result["failed"]), (&2.into(), &0.into()), "{allocator:#}");
        assert_eq!(allocator["loaded"], true, "{allocator:#}");
        assert!(result["time_s"]["median"].as_f64().unwrap() > 0.0);
        assert_eq!(result["time_ratio"].is_null(), allocator["name"] == "system");
        assert_eq!(result["latency"]["malloc"]["calls"], 3 * plan["operations"]["malloc"].as_u64().unwrap());
    }
    // A warm-up, then totals and latencies in each round.
    let runs = json["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2 * (1 + 2 * 2), "{runs:#?}");
    assert!(runs.iter().all(|run| run["succeeded"] == true && run["report"].is_object()), "{runs:#?}");
    let said = stage
        .run(&["replay", text(&file), "--with", "quarry", "-n", "1", "--no-latency", "--no-warmup", "--json"])
        .expect(0)
        .json();
    assert_eq!(said["runs"].as_array().unwrap().len(), 2);
    assert_eq!(said["allocators"][1]["result"]["latency"], serde_json::json!({}));
}

#[test]
fn a_curve_leaves_the_times_of_calls_as_they_are() {
    let Some(stage) = Stage::new() else { return };
    let one = stage.trace("one.qtr", &["--allocations", "3000"]);
    let two = stage.trace("two.qtr", &["--allocations", "3000", "--threads", "2"]);
    let curve = |file: &Path, more: &[&str]| {
        let args = ["replay", text(file), "--with", "quarry", "-n", "1", "--curve", "1000", "--json"];
        stage.run(&[&args, more].concat()).expect(0)
    };
    let runs = |ended: &Ended, pass: &str| -> Vec<Value> {
        let json = ended.json();
        let runs = json["runs"].as_array().unwrap().iter();
        runs.filter(|run| run["pass"] == pass).map(|run| run["report"].clone()).collect()
    };
    for (file, more) in [(&one, &["-r", "2"][..]), (&two, &["--order", "strict"])] {
        let ended = curve(file, more);
        assert_eq!(ended.stderr, "");
        for report in runs(&ended, "totals") {
            assert!(report["curve"]["live"].as_array().unwrap().len() >= 3, "{report:#}");
        }
        for allocator in ended.json()["allocators"].as_array().unwrap() {
            let malloc = &allocator["timed"]["malloc"];
            assert!(malloc["max_ns"].as_f64().unwrap_or_default() > 0.0, "{malloc:#}");
            let timed =
                malloc["buckets"].as_array().unwrap().iter().map(|bucket| bucket[1].as_u64().unwrap());
            assert_eq!(malloc["count"], timed.sum::<u64>());
        }
    }
    let ended = curve(&two, &[]);
    ended.says("no --curve").says("--order strict");
    stage.run(&["replay", text(&two), "--curve", "5", "--with", "quarry"]).expect(2).says("add --json");
    assert!(runs(&ended, "totals").iter().all(|report| report["curve"].is_null()));
}

#[test]
fn the_tables_say_what_was_measured_and_the_page_stands_alone() {
    let Some(stage) = Stage::new() else { return };
    let file = stage.trace("a.qtr", &["--allocations", "2000"]);
    let page = stage.path("page.html");
    let ended = stage
        .run(&[
            "replay",
            text(&file),
            "--with",
            "quarry",
            "-n",
            "1",
            "--details",
            "--seed",
            "7",
            "-o",
            text(&page),
            "-o",
            "-",
        ])
        .expect(0);
    assert_eq!(ended.stderr, "");
    for part in [
        "operations of one thread",
        "allocator",
        "x system",
        "RSS/live",
        "p99.9",
        "\n system ",
        "\n quarry ",
        "1 round in random order (seed 7) after a warm-up",
    ] {
        assert!(ended.stdout.contains(part), "no {part:?} in {}", ended.stdout);
    }
    let page = fs::read_to_string(&page).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.trim_end().ends_with("</html>"), "{page:.200}");
    assert!(page.contains("<svg") && page.contains("quarry"));
    for outside in ["src=", "@import", "url(http", "<link"] {
        assert!(!page.contains(outside), "{outside}");
    }
    let report = stage.path("report.txt");
    let ended =
        stage.run(&["replay", text(&file), "--with", "quarry", "-n", "1", "-o", text(&report)]).expect(0);
    assert_eq!(ended.stdout, "");
    assert!(fs::read_to_string(&report).unwrap().contains("RSS/live"));
}

#[test]
fn simulation_files_are_played_as_by_the_simulator_or_measured() {
    let Some(stage) = Stage::new() else { return };
    let file = stage.path("a.ms");
    fs::write(&file, "0=100 1=200 0=300\n1 2=50 s 0 2\n").unwrap();
    let plain = stage.run(&["replay", text(&file), "-t", "2", "-r", "3"]).expect(0);
    assert!(!plain.stdout.is_empty() && !plain.stdout.contains("x system"), "{}", plain.stdout);
    let silent = stage.run(&["replay", text(&file), "-t", "2", "-r", "3", "-s"]).expect(0);
    assert!(silent.stdout.len() < plain.stdout.len(), "{}", silent.stdout);
    let talk = stage.run(&["replay", text(&file), "-d"]).expect(0);
    assert!(talk.stdout.contains("0=300 realloc 0x") && !plain.stdout.contains("0=300"), "{}", talk.stdout);
    let json = stage.run(&["replay", text(&file), "--with", "quarry", "-n", "1", "--json"]).expect(0).json();
    assert_eq!((names(&json), json["events"].is_null()), (vec!["system", "quarry"], true));
    stage.run(&["replay", text(&file), "-d", "--json"]).expect(2).says("--debug is for a .ms file without");
    let meaningless = [
        &["-n", "3"][..],
        &["--timing", "real"],
        &["--no-warmup"],
        &["--idle", "1"],
        &["--no-latency"],
        &["--curve", "2"],
        &["--seed", "4"],
        &["--timeout", "5"],
        &["--lib", "/no/such.so"],
    ];
    for more in meaningless {
        let ended = stage.run(&[&["replay", text(&file)], more].concat()).expect(2);
        ended.says(if more[0] == "-n" { "--rounds" } else { more[0] }).says("add --with");
    }
    fs::write(&file, "0=1\n9999=5\n").unwrap();
    stage.run(&["replay", text(&file)]).expect(125).says("a.ms").says("line 2, column 1").says("--wide");
    stage.run(&["replay", text(&file), "--wide"]).expect(0);
}

#[test]
fn a_reader_that_goes_away_ends_a_simulation_in_order() {
    let Some(stage) = Stage::new() else { return };
    let file = stage.path("a.ms");
    fs::write(&file, "0=100 0\n".repeat(50_000)).unwrap();
    for option in ["-d", "-t1"] {
        let shell = format!("(\"$0\" replay {option} -r 20 \"$1\"; echo \"ended $?\" >&2) | head -1");
        let mut command = Command::new("sh");
        command.args(["-c", &shell, env!("CARGO_BIN_EXE_quarry")]).arg(&file);
        let ended =
            command.env("QUARRY_LIB_DIR", stage.path("")).env("TMPDIR", stage.path("tmp")).output().unwrap();
        Ended::from(ended).expect(0).says("ended 0");
    }
}

#[test]
fn wrong_contents_are_found_in_a_simulation_too() {
    let Some(stage) = Stage::new() else { return };
    let changes = stage.bench.library("libchanges", CHANGES);
    let (good, bad, empty) = (stage.path("good.ms"), stage.path("bad.ms"), stage.path("empty.ms"));
    fs::write(&good, "0=100 0=300 0\n").unwrap();
    fs::write(&bad, "0=100 1=100 0=70001 1=70001 0 1\n").unwrap();
    fs::write(&empty, "0=70003 0\n").unwrap();
    let on_it = |args: &[&str]| {
        let mut command = stage.quarry(args);
        Ended::from(command.env("LD_PRELOAD", &changes).output().unwrap())
    };
    let ended = on_it(&["replay", "--verify", text(&good)]).expect(0);
    assert!(ended.stdout.contains("compared 2 times and never wrong"), "{}", ended.stdout);
    for more in [&[][..], &["-s"]] {
        let ended = on_it(&[&["replay", "--verify", text(&bad)], more].concat()).expect(1);
        ended.says("wrong contents in 2 blocks, the first in slot 0 at byte 0 of 100");
        assert!(!ended.stdout.contains("never wrong"), "{}", ended.stdout);
    }
    on_it(&["replay", text(&empty)]).expect(0).says("1 calls returned NULL");
    assert_eq!(on_it(&["replay", text(&bad)]).expect(0).stderr, "");
}

#[test]
fn what_cannot_be_played_is_said() {
    let Some(stage) = Stage::new() else { return };
    let file = stage.trace("a.qtr", &["--allocations", "500"]);
    let with = |more: &[&str]| stage.run(&[&["replay", text(&file), "-n", "1"], more].concat());
    stage.run(&["replay", "/no/such.qtr"]).expect(125).says("/no/such.qtr: No such file");
    stage.run(&["replay", text(&stage.path(""))]).expect(125).says("directory");
    stage.run(&["replay"]).expect(2);
    with(&["-r", "0"]).expect(2);
    with(&["--touch", "some"]).expect(2);
    with(&["--with", "nomalloc"]).expect(2).says("nomalloc");
    with(&["--with", "/no/such/lib.so"]).expect(125).says("/no/such/lib.so");
    with(&["--with", "a=/lib/x.so,a=/lib/y.so"]).expect(125).says("/lib/x.so");
    with(&["--with", "quarry", "-o", "/no/such/page.html"]).expect(125).says("/no/such/page.html");
    // A trace that is none, an empty one, and one that ends early.
    let bad = stage.path("bad.qtr");
    for (contents, words) in [(&b"nonsense"[..], "not a trace"), (b"", "is empty")] {
        fs::write(&bad, contents).unwrap();
        stage.run(&["replay", text(&bad)]).expect(125).says("bad.qtr: ").says(words);
    }
    stage.run(&["replay", "/dev/zero"]).expect(125).says("is a device");
    // What is no simulation, or an empty one.
    let none = stage.path("none.ms");
    fs::write(&none, "").unwrap();
    stage.run(&["replay", text(&none)]).expect(125).says("none.ms: is empty");
    for contents in ["e", "some text", "s s"] {
        fs::write(&none, contents).unwrap();
        for more in [&[][..], &["--with", "quarry", "-n", "1"]] {
            stage
                .run(&[&["replay", text(&none)], more].concat())
                .expect(125)
                .says("none.ms: there is nothing to play");
        }
    }
    let whole = fs::read(&file).unwrap();
    fs::write(&bad, &whole[..whole.len() - 600]).unwrap();
    stage.run(&["replay", text(&bad)]).expect(125).says("nothing to play").says("ends within a block");
    let whole = fs::read(stage.trace("long.qtr", &["--allocations", "50000"])).unwrap();
    fs::write(&bad, &whole[..whole.len() - 600]).unwrap();
    let json = stage.run(&["replay", text(&bad), "--with", "quarry", "-n", "1", "--json"]).expect(0).json();
    assert!(json["damage"].as_str().is_some_and(|damage| damage.contains("ends within a block")), "{json:#}");
    let said = stage.run(&["replay", text(&bad), "--with", "quarry", "-n", "1"]).expect(0).stdout;
    assert!(said.contains("ends within a block"), "{said}");
    // Without the replayer nothing is played.
    fs::remove_file(stage.path("quarry/quarry-replayer")).unwrap();
    with(&["--with", "quarry"]).expect(125).says("quarry-replayer was not found").says("make");
}

#[test]
fn an_allocator_that_fails_is_told_from_one_that_does_not() {
    let Some(stage) = Stage::new() else { return };
    let file = stage.path("a.ms");
    fs::write(&file, "0=77 1=77 0 1\n".repeat(200)).unwrap();
    let aborts = stage.bench.library("libaborts", ABORTS);
    let empty = stage.bench.library("libempty", EMPTY);
    let with = format!("quarry,{},{}", text(&aborts), text(&empty));
    let ended = stage.run(&["replay", text(&file), "--with", &with, "-n", "1"]).expect(1);
    for part in ["libaborts failed in warm-up with SIGABRT", "heap: broken block", "libempty: "] {
        assert!(ended.stdout.contains(part), "no {part:?} in {}", ended.stdout);
    }
    let json = stage.run(&["replay", text(&file), "--with", &with, "-n", "1", "--json"]).expect(1).json();
    let result = |name: &str| {
        let all = json["allocators"].as_array().unwrap();
        all.iter().find(|a| a["name"] == name).unwrap()["result"].clone()
    };
    assert_eq!(result("libaborts")["failures"]["SIGABRT"], 1, "{json:#}");
    assert!(result("libempty")["null_returned"].as_u64().unwrap() > 200, "{}", result("libempty"));
    assert_eq!((&result("quarry")["failed"], &result("quarry")["null_returned"]), (&0.into(), &0.into()));
}

#[test]
fn a_signal_ends_it_in_order() {
    let Some(stage) = Stage::new() else { return };
    let file = stage.trace("a.qtr", &["--allocations", "20000"]);
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let args = ["replay", text(&file), "--with", "quarry", "-n", "100000", "--json"];
        let mut command = nothing_ignored(&stage.quarry(&args));
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // It has a child: it plays.
        let children = format!("/proc/{0}/task/{0}/children", child.id());
        let start = Instant::now();
        while fs::read_to_string(&children).unwrap().is_empty() {
            assert!(start.elapsed() < PATIENCE, "it does not play");
            std::thread::sleep(Duration::from_millis(10));
        }
        std::thread::sleep(Duration::from_millis(200));
        kill(signal, child.id());
        let ended = Ended::from(child.wait_with_output().unwrap()).expect(code);
        ended.says(&format!("SIG{signal} stopped the replay"));
        assert_eq!(ended.json()["interrupted"], true);
        stage.is_clean();
    }
}

/// The first signal stops the rounds, after which a report is due; the next ends the wait for somebody to read it.
#[test]
fn a_reader_that_does_not_read_is_no_reason_to_stay() {
    let Some(stage) = Stage::new() else { return };
    let file = stage.trace("a.qtr", &["--allocations", "300"]);
    let (reader, mut writer) = std::io::pipe().unwrap();
    // A pipe that is full.
    writer.write_all(&[0; 64 << 10]).unwrap();
    let args = ["replay", text(&file), "--with", "quarry", "-n", "100000"];
    let mut command = nothing_ignored(&stage.quarry(&args));
    let mut child = command.stdout(writer).stderr(Stdio::null()).spawn().unwrap();
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() && start.elapsed() < PATIENCE {
        kill("TERM", child.id());
        std::thread::sleep(Duration::from_millis(500));
    }
    let ended = child.try_wait().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(ended.is_some(), "it waits for somebody to read");
    drop(reader);
}

#[test]
fn an_error_in_a_later_round_leaves_the_rounds_before() {
    let Some(stage) = Stage::new() else { return };
    let replayer = stage.path("quarry/quarry-replayer");
    // Two runs are a round, and the first two the warm-up.
    let ended = stage.removing_at(5, &replayer, &["--json"]).expect(125);
    ended.says("the replay ended after 1 complete rounds").says("until the replay has ended");
    let json = ended.says(text(&replayer)).json();
    assert_eq!((&json["rounds"], &json["interrupted"]), (&1.into(), &true.into()));
    assert_eq!(json["runs"].as_array().unwrap().len(), 4);
    let ended = stage.removing_at(3, &replayer, &["--json"]).expect(125);
    assert_eq!(ended.says(text(&replayer)).stdout, "");
}

#[test]
fn a_report_that_cannot_be_written_is_printed() {
    let Some(stage) = Stage::new() else { return };
    let folder = stage.path("folder");
    for name in ["page.html", "report"] {
        fs::create_dir(&folder).unwrap();
        let out = folder.join(name);
        let ended = stage.removing_at(5, &folder, &["-o", text(&out)]).expect(125);
        assert!(ended.says(text(&out)).stdout.contains("3 rounds"), "{}", ended.stdout);
    }
}

#[test]
fn a_kill_leaves_nothing_behind() {
    let Some(stage) = Stage::new() else { return };
    let file = stage.trace("a.qtr", &["--allocations", "300"]);
    let mark = stage.path("pid");
    let script = format!("#!/bin/sh\necho $$ > {0}.new; mv {0}.new {0}\nexec sleep 1000\n", mark.display());
    stage.bench.script("quarry/quarry-replayer", &script);
    let mut child = stage.quarry(&["replay", text(&file), "--with", "quarry"]).spawn().unwrap();
    let start = Instant::now();
    while !mark.exists() {
        assert!(start.elapsed() < PATIENCE, "it does not play");
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    dies(fs::read_to_string(&mark).unwrap().trim().parse().unwrap());
    stage.is_clean();
}
