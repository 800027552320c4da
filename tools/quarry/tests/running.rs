// SPDX-License-Identifier: MIT
//! quarry profile -p: of a process whose allocations are known, and of those that cannot be sampled.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use quarry_measure::units;
use quarry_stats::sampler::Sampler;
use serde_json::Value;

use crate::common::{Bench, Ended, kill, libraries, quarry_library, table_of, text, wait_until};

/// It works in turns that are alike, until its parent ends.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/prctl.h>
#define KEEP __attribute__((noinline, noclone))
#define TURNS 100
static void *volatile sink;
static void *kept[TURNS][500];
KEEP void held(void **to) { for (int i = 0; i < 500; i++) { to[i] = malloc(700); } sink = 0; }
KEEP void churning(void) { for (int i = 0; i < 5000; i++) { sink = malloc(100); free(sink); } sink = 0; }
KEEP void large(void) { sink = malloc(300000); free(sink); sink = 0; }
int main(void) {
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    for (int turn = 0; getppid() != 1; turn++) {
        for (int i = 0; i < 500; i++) { free(kept[turn % TURNS][i]); }
        held(kept[turn % TURNS]);
        churning();
        large();
        if (turn == 10) { puts("ready"); fflush(stdout); }
        if (turn >= 10) { usleep(1000); }
    }
    return 0;
}
"#;

/// A process of it.
pub struct Running(Child);

impl Running {
    pub fn start(command: &mut Command) -> Self {
        let (running, line) = Self::saying(command);
        assert_eq!(line, "ready\n");
        running
    }

    /// And the first line that it says.
    fn saying(command: &mut Command) -> (Self, String) {
        let mut running = Self(command.stdout(Stdio::piped()).spawn().unwrap());
        let mut line = String::new();
        BufReader::new(running.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        (running, line)
    }

    pub fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn program(bench: &Bench) -> Option<(PathBuf, PathBuf)> {
    let library = libraries(&["libquarry-malloc.so"])?.join("libquarry-malloc.so");
    let program = bench.compile("running", PROGRAM, &["-g", "-O1", "-fno-builtin"]).expect("a program");
    Some((program, library))
}

pub fn preloaded(program: &PathBuf, library: &PathBuf) -> Running {
    Running::start(Command::new(program).env("LD_PRELOAD", library))
}

/// Bytes that a function is estimated to have asked for.
fn allocated(json: &Value, function: &str) -> f64 {
    let groups = json["groups"].as_array().unwrap();
    let found = groups.iter().find(|group| group["name"].as_str().unwrap().starts_with(function));
    let found = found.unwrap_or_else(|| panic!("no {function} in {groups:#?}"));
    found["allocated_bytes"].as_f64().unwrap_or_else(|| panic!("{found:#}"))
}

#[test]
fn each_site_has_what_it_asked_for() {
    let Some(bench) = Bench::new() else { return };
    let Some((program, library)) = program(&bench) else { return };
    let process = preloaded(&program, &library);
    let trace = bench.path("running.qtr");
    let args = ["profile", "-p", &process.pid(), "--for", "3", "--sample", "16k", "--json", "-q", "--trace"];
    let mut command = bench.quarry(args.iter().copied().chain([text(&trace)]));
    let json = Ended::from(command.output().unwrap()).expect(0).json();
    // 350,000 bytes are held for each 500,000 that come and go and each 300,000 of a large object, in one turn.
    let [held, churned, large] = ["held", "churning", "large"].map(|function| allocated(&json, function));
    for (part, of) in [(churned / held, 500.0 / 350.0), (large / held, 300.0 / 350.0)] {
        // By some hundred samples each, and as many turns.
        assert!((part / of - 1.0).abs() < 0.25, "{held} {churned} {large}");
    }
    // The trace is one as any other.
    let info = bench.run(&["info", text(&trace)]).expect(0).stdout;
    assert!(info.contains("held at running.c:"), "{info}");
    // It is off again.
    let again = bench.run(&["profile", "-p", &process.pid(), "--for", "0.2", "--sample", "64k"]).expect(0);
    assert!(!again.stderr.contains("is on already"), "{}", again.stderr);
}

#[test]
fn a_signal_leaves_it_off() {
    let Some(bench) = Bench::new() else { return };
    let Some((program, library)) = program(&bench) else { return };
    let process = preloaded(&program, &library);
    let trace = bench.path("stopped.qtr");
    let pid = process.pid();
    let mut sampling = bench
        .quarry(["profile", "-p", &pid, "--for", "600", "--sample", "16k", "--trace", text(&trace)])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(sampling.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert!(line.contains("samples"), "{line}");
    kill("TERM", sampling.id());
    assert!(sampling.wait().unwrap().success());
    let info = bench.run(&["info", text(&trace)]).expect(0).stdout;
    assert!(info.contains("churning at running.c:"), "{info}");
    let again = bench.run(&["profile", "-p", &pid, "--for", "0.2", "--sample", "64k"]).expect(0);
    assert!(!again.stderr.contains("is on already"), "{}", again.stderr);
}

#[test]
fn what_is_on_from_the_start_stays_on() {
    let Some(bench) = Bench::new() else { return };
    let Some((program, library)) = program(&bench) else { return };
    let mut command = Command::new(&program);
    let process = Running::start(
        command.env("LD_PRELOAD", &library).env("QUARRY_CONF", "sample:32k,sample_adapts:off"),
    );
    for _ in 0..2 {
        let args = ["profile", "-p", &process.pid(), "--for", "0.5", "--sample", "64k"];
        bench.run(&args).expect(0).says("is on already, at one sample in 32768 bytes: it stays so");
    }
}

#[test]
fn what_keeps_its_own_pace_goes_on_so() {
    let Some(bench) = Bench::new() else { return };
    let Some((program, library)) = program(&bench) else { return };
    let mut command = Command::new(&program);
    let process = Running::start(command.env("LD_PRELOAD", &library).env("QUARRY_CONF", "sample:256"));
    let args = ["profile", "-p", &process.pid(), "--for", "0.5"];
    let said = bench.run(&[&args[..], &["--sample", "64"]].concat()).expect(0);
    said.says("is on already, at one sample in ").says("now: it goes on at its own pace");
    // Nothing to say to somebody who did not ask for a distance.
    assert!(!bench.run(&args).expect(0).stderr.contains("is on already"));
}

/// 20 samples a second at most, if it is one in 512 KiB.
const QUIET: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/prctl.h>
#define KEEP __attribute__((noinline, noclone))
static void *volatile sink;
KEEP void twice(void) { for (int i = 0; i < 600; i++) { sink = malloc(1000); free(sink); } sink = 0; }
KEEP void once(void) { for (int i = 0; i < 300; i++) { sink = malloc(1000); free(sink); } sink = 0; }
int main(void) {
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    for (int i = 0; i < 1000; i++) { sink = malloc(10000); }
    puts("ready");
    fflush(stdout);
    while (getppid() != 1) { twice(); once(); usleep(100000); }
    return 0;
}
"#;

#[test]
fn few_samples_become_more() {
    let Some(bench) = Bench::new() else { return };
    let Some(library) = libraries(&["libquarry-malloc.so"]) else { return };
    let program = bench.compile("quiet", QUIET, &["-g", "-O1", "-fno-builtin"]).expect("a program");
    let process = preloaded(&program, &library.join("libquarry-malloc.so"));
    let pid = process.pid();
    let (trace, lines) = (bench.path("quiet.qtr"), bench.path("quiet.jsonl"));
    let told = |args: &[&str]| {
        let all = [&["profile", "-p", &pid, "--for", "6", "-q", "--trace", text(&trace)], args].concat();
        bench.run(&all).expect(0);
        bench.run(&["convert", text(&trace), "-o", text(&lines)]).expect(0);
        let all = std::fs::read_to_string(&lines).unwrap();
        all.lines().filter(|line| line.contains("\"sampled\"")).map(str::to_owned).collect::<Vec<_>>()
    };
    let rates = told(&[]);
    assert!(rates.first().is_some_and(|line| line.contains("262144")), "{rates:?}");
    // Who asks for a distance has that.
    assert_eq!(told(&["--sample", "512k"]), [""; 0]);
}

/// It allocates, says so, and rests.
const RESTING: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/prctl.h>
#define KEEP __attribute__((noinline, noclone))
static void *volatile sink;
static void *kept[200000];
static int n;
KEEP void most(void) { for (int i = 0; i < 60000; i++) { kept[n++] = malloc(100); } sink = 0; }
KEEP void fewer(void) { for (int i = 0; i < 20000; i++) { kept[n++] = malloc(100); } sink = 0; }
KEEP void mixed(void) { for (int i = 0; i < 20000; i++) { kept[n++] = malloc(16 + i % 3000); } sink = 0; }
KEEP void large(void) { for (int i = 0; i < 20; i++) { kept[n++] = malloc(300000 + 1000 * i); } sink = 0; }
KEEP void churning(void) { for (int i = 0; i < 200000; i++) { sink = malloc(i % 5000); free(sink); } sink = 0; }
int main(void) {
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    most(); fewer(); mixed(); large(); churning();
    puts("ready");
    fflush(stdout);
    while (getppid() != 1) { usleep(100000); }
    return 0;
}
"#;

/// What is counted of a resting process, and live bytes as explain has them.
fn counted(bench: &Bench, conf: &str) -> Option<(Value, u64)> {
    let library = libraries(&["libquarry-malloc.so"])?.join("libquarry-malloc.so");
    let program = bench.compile("resting", RESTING, &["-g", "-O1", "-fno-builtin"]).expect("a program");
    let mut command = Command::new(&program);
    let process = Running::start(command.env("LD_PRELOAD", &library).env("QUARRY_CONF", conf));
    let args = ["profile", "-p", &process.pid(), "--for", "0.3", "--json", "-q"];
    let json = bench.run(&args).expect(0).json();
    // It was looked at for so long, though nothing happened in it.
    assert!(json["duration_ns"].as_u64().is_some_and(|ns| ns >= 250_000_000), "{json:#}");
    let Ended { stdout: text, stderr: notes, .. } =
        bench.run(&["profile", "-p", &process.pid(), "--for", "0.3"]).expect(0);
    assert!(conf.is_empty() || text.contains("the sum is exact, its parts are estimates"), "{text}");
    the_page_has_the_count(bench, &process.pid(), &json["counted"]);
    // It rests: nothing is drawn, and nobody has to record anything with call stacks.
    assert_eq!(conf.is_empty(), text.contains("nothing was sampled"), "{text}");
    assert!(!notes.contains("call stacks"), "{notes}");
    let explained = bench.run(&["explain", "-p", &process.pid(), "--json"]).expect(0).json();
    let of = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{explained:#}"));
    let live = of(&explained["causes"]["live"]) + of(&explained["heaps"][0]["not_resident_bytes"]);
    Some((json["counted"].clone(), live))
}

/// The page has the same table, and in its last row the exact sum. The process rests, so that it is the same at any time.
fn the_page_has_the_count(bench: &Bench, pid: &str, counted: &Value) {
    let page = bench.path("counted.html");
    let file = page.to_str().unwrap();
    bench.run(&["profile", "-q", "-p", pid, "--for", "0.3", "-o", file]).expect(0);
    let rows = table_of(&page, "counted");
    let last = rows.last().unwrap_or_else(|| panic!("no table in {file}"));
    let total = units::bytes(counted["total_bytes"].as_f64().unwrap());
    assert_eq!((last[0].as_str(), &last[1]), ("all: counted by the process", &total), "{rows:?}");
    let named = counted["groups"].as_array().unwrap().iter().filter_map(|group| group["name"].as_str());
    for name in named {
        assert!(rows.iter().any(|row| row[0] == name), "{name}: {rows:?}");
    }
}

/// The sum of the parts.
fn parts(counted: &Value) -> i64 {
    let one = |value: &Value| value.as_i64().unwrap();
    let sum = |list: &Value| list.as_array().unwrap().iter().map(|part| one(&part["bytes"])).sum::<i64>();
    let single = [&counted["other_bytes"], &counted["before"]["bytes"], &counted["changed_bytes"]];
    sum(&counted["groups"]) + sum(&counted["not_sampled"]) + single.map(one).iter().sum::<i64>()
}

#[test]
fn sums_are_those_of_explain_to_the_byte() {
    let Some(bench) = Bench::new() else { return };
    let Some((counted, live)) = counted(&bench, "sample:8k,sample_adapts:off") else { return };
    all_is_counted(&counted, live);
    let of = |name: &str| {
        let groups = counted["groups"].as_array().unwrap();
        let group = groups.iter().find(|group| group["name"].as_str().unwrap().starts_with(name));
        group.unwrap_or_else(|| panic!("no {name} in {counted:#}"))["bytes"].as_f64().unwrap()
    };
    // Some 700 samples of the one, and 250 of the other.
    let ratio = of("most") / of("fewer");
    assert!((2.0..4.5).contains(&ratio), "{ratio} instead of 3: {counted:#}");
    assert!((of("large") / 6.19e6 - 1.0).abs() < 0.05, "{counted:#}");
}

fn all_is_counted(counted: &Value, live: u64) {
    assert_eq!(counted["total_bytes"], live);
    assert_eq!(parts(counted), live as i64, "{counted:#}");
    assert_eq!(counted["before"]["bytes"], 0);
}

/// The first samples stand for 8 KiB each, and the last ones for more.
#[test]
fn sums_are_those_of_explain_where_the_distance_grows() {
    let Some(bench) = Bench::new() else { return };
    let Some((counted, live)) = counted(&bench, "sample:8k") else { return };
    all_is_counted(&counted, live);
}

/// A server: its child has what the parent allocated, allocates as much on its own, and rests.
const FORKING: &str = r#"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/prctl.h>
#define KEEP __attribute__((noinline, noclone))
static void *volatile sink;
static void *kept[80000];
static int n;
KEEP void before(void) { for (int i = 0; i < 40000; i++) { kept[n++] = malloc(100); } sink = 0; }
KEEP void after(void) { for (int i = 0; i < 40000; i++) { kept[n++] = malloc(100); } sink = 0; }
int main(void) {
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    before();
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
        after();
        printf("%d\n", getpid());
        fflush(stdout);
    }
    while (getppid() == parent || child > 0) { usleep(100000); }
    return 0;
}
"#;

#[test]
fn a_child_of_what_is_on_from_the_start_is_sampled_since_the_fork() {
    let Some(bench) = Bench::new() else { return };
    let Some(libraries) = libraries(&["libquarry-malloc.so"]) else { return };
    let program = bench.compile("forking", FORKING, &["-g", "-O1", "-fno-builtin"]).expect("a program");
    let mut command = Command::new(&program);
    command
        .env("LD_PRELOAD", libraries.join("libquarry-malloc.so"))
        .env("QUARRY_CONF", "sample:8k,sample_adapts:off");
    let (_process, child) = Running::saying(&mut command);
    let json = bench.run(&["profile", "-p", child.trim(), "--for", "0.3", "--json", "-q"]).expect(0).json();
    // Some 490 samples of 4 million bytes. What its parent had is no site of the child's.
    let end = json["end"]["bytes"].as_f64().unwrap();
    assert!((end / 4e6 - 1.0).abs() < 0.3, "{json:#}");
    let names: Vec<&str> =
        json["groups"].as_array().unwrap().iter().map(|group| group["name"].as_str().unwrap()).collect();
    assert!(names.iter().any(|name| name.starts_with("after at")), "{names:?}");
    assert!(!names.iter().any(|name| name.starts_with("before at")), "{names:?}");
    let counted = &json["counted"];
    let total = counted["total_bytes"].as_u64().unwrap();
    assert_eq!(parts(counted), total as i64, "{counted:#}");
    let before = counted["before"]["bytes"].as_f64().unwrap();
    assert!((before / total as f64 - 0.5).abs() < 0.2, "{counted:#}");
}

#[test]
fn what_was_there_before_has_a_line() {
    let Some(bench) = Bench::new() else { return };
    let Some((counted, live)) = counted(&bench, "") else { return };
    assert_eq!((parts(&counted), counted["total_bytes"].as_u64()), (live as i64, Some(live)), "{counted:#}");
    let before = counted["before"]["bytes"].as_u64().unwrap();
    assert!(before as f64 > 0.9 * live as f64, "{counted:#}");
}

#[test]
fn who_cannot_be_sampled_is_told_why() {
    let Some(bench) = Bench::new() else { return };
    if quarry_library().is_none() {
        return;
    }
    let own = std::process::id().to_string();
    bench.run(&["profile", "-p", &own]).expect(1).says("does not run on Quarry");
    bench.run(&["profile", "-p", "2147483647"]).expect(1).says("there is no process");
    bench.run(&["profile", "--for", "3", "x.qtr"]).expect(2);
    bench.run(&["profile", "-p", &own, "x.qtr"]).expect(2);
}

const SIGSEGV: i32 = 11;

/// It allocates little, so that no draw is too many for a second. Its blocks are guarded, and at a line on its input it uses one that it freed.
const GUARDED: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/prctl.h>
#define KEEP __attribute__((noinline, noclone))
static void *volatile sink;
KEEP void churning(void) { for (int i = 0; i < 50; i++) { sink = malloc(5000); free(sink); } }
KEEP char *rare(void) { char *p = malloc(100); *(volatile char *)p = 1; return p; }
int main(void) {
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    for (int i = 0; i < 100; i++) { sink = malloc(300000); free(sink); }
    puts("ready");
    fflush(stdout);
    char line[16];
    while (read(0, line, 1) == 1) {
        if (line[0] == 'w') { churning(); write(1, "worked\n", 7); continue; }
        for (int i = 0; i < 100; i++) { char *p = rare(); free(p); ((volatile char *)p)[50] = 2; }
        write(1, "nothing\n", 8);
    }
    return 0;
}
"#;

#[test]
fn guards_stay_when_the_reader_has_gone() {
    let Some(bench) = Bench::new() else { return };
    let Some(library) = libraries(&["libquarry-malloc.so"]) else { return };
    let program = bench.compile("guarded", GUARDED, &["-g", "-O1", "-fno-builtin"]).expect("a program");
    let mut child = Command::new(program)
        .env("LD_PRELOAD", library.join("libquarry-malloc.so"))
        .env("QUARRY_CONF", "guard:256")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap());
    let mut says = move || {
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        line
    };
    assert_eq!(says(), "ready\n");
    let pid = child.id().to_string();
    let rate = || {
        let sampler = Sampler::of(pid.parse().unwrap()).unwrap();
        sampler.reader().unwrap().rate().unwrap()
    };
    // To readers it is off, and it can be had: its samples are then told.
    assert_eq!(rate(), None);
    let ended = {
        let mut profile =
            bench.quarry(["profile", "-p", &pid, "--for", "600", "--sample", "1k", "--json", "-q"]);
        let reading = profile.stdout(Stdio::piped()).spawn().unwrap();
        wait_until("the sampler is on", || rate().is_some());
        child.stdin.as_mut().unwrap().write_all(b"w").unwrap();
        assert_eq!(says(), "worked\n");
        kill("TERM", reading.id());
        reading.wait_with_output().unwrap()
    };
    assert!(ended.status.success());
    let profile: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert!(allocated(&profile, "churning") > 0.0, "{profile:#}");
    assert_eq!(rate(), None);
    // And it guards as before: the first block of a site that is new.
    child.stdin.as_mut().unwrap().write_all(b"wx").unwrap();
    assert_eq!(says(), "worked\n");
    assert_eq!(says(), "");
    let output = child.wait_with_output().unwrap();
    let report = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(report.contains("quarry: use-after-free-write: 0x"), "{report}");
    assert!(report.contains(", 50 bytes into a freed block of 100 bytes at 0x"), "{report}");
    assert_eq!(output.status.signal(), Some(SIGSEGV));
}

/// It executes itself when it is told to.
const EXECS: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/prctl.h>
static void *volatile sink;
int main(int argc, char **argv) {
    char byte;
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    for (int i = 0; i < 100; i++) { sink = malloc(300000); free(sink); }
    if (argc == 1) {
        puts("ready");
        fflush(stdout);
        if (read(0, &byte, 1) == 1) { execl("/proc/self/exe", argv[0], "again", (char *)0); }
    }
    while (read(0, &byte, 1) == 1) { }
    return 0;
}
"#;

#[test]
fn a_process_that_executes_another_program_has_not_ended() {
    let Some(bench) = Bench::new() else { return };
    let Some(library) = libraries(&["libquarry-malloc.so"]) else { return };
    let program = bench.compile("execs", EXECS, &["-g", "-O1", "-fno-builtin"]).expect("a program");
    let mut command = Command::new(&program);
    command.env("LD_PRELOAD", library.join("libquarry-malloc.so"));
    let (mut running, line) = Running::saying(command.stdin(Stdio::piped()));
    assert_eq!(line, "ready\n");
    let pid = running.pid();
    let mut profile = bench.quarry(["profile", "-p", &pid, "--for", "600"]);
    let profile = profile.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let sampler = Sampler::of(pid.parse().unwrap()).unwrap();
    wait_until("the sampler is on", || sampler.reader().unwrap().rate().unwrap().is_some());
    running.0.stdin.as_mut().unwrap().write_all(b"x").unwrap();
    let ended = Ended::from(profile.wait_with_output().unwrap()).expect(0);
    ended.says("the process became another program before the time was up");
}

/// The next program may have anything at the address. Here it has a sampler of its own there.
#[test]
fn what_a_process_executes_is_not_written_to() {
    let Some(bench) = Bench::new() else { return };
    let Some(library) = libraries(&["libquarry-malloc.so"]) else { return };
    let program = bench.compile("execs", EXECS, &["-g", "-O1", "-fno-builtin"]).expect("a program");
    let mut command = Command::new("setarch");
    command.arg("-R").arg(&program).env("LD_PRELOAD", library.join("libquarry-malloc.so"));
    let (mut running, line) = Running::saying(command.stdin(Stdio::piped()));
    if line.is_empty() {
        eprintln!("skipped: needs setarch -R");
        return;
    }
    let pid = running.0.id() as i32;
    let sampler = Sampler::of(pid).unwrap();
    sampler.renew().unwrap();
    running.0.stdin.as_mut().unwrap().write_all(b"x").unwrap();
    let words = || std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    wait_until("it is another program", || words().ends_with(b"again\0") && Sampler::of(pid).is_ok());
    assert!(sampler.renew().is_err() && sampler.switch_off().is_err());
}
