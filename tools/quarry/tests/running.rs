// SPDX-License-Identifier: MIT
//! quarry profile -p: of a process whose allocations are known, and of those that cannot be sampled.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::common::{Bench, Ended, kill, libraries, quarry_library, text};

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
        let mut running = Self(command.stdout(Stdio::piped()).spawn().unwrap());
        let mut line = String::new();
        BufReader::new(running.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        running
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
    let process = Running::start(command.env("LD_PRELOAD", &library).env("QUARRY_CONF", "sample:32k"));
    for _ in 0..2 {
        let args = ["profile", "-p", &process.pid(), "--for", "0.5", "--sample", "64k"];
        bench.run(&args).expect(0).says("is on already, at one sample in 32768 bytes");
    }
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
