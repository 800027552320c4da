// SPDX-License-Identifier: MIT
//! A process whose first thread has ended, which lives on in the others, and one that has ended altogether.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::common::{Bench, libraries, quarry_library, wait_until};

/// It ends its first thread, or has a child that has ended. It goes on until its input ends.
const PROGRAM: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/prctl.h>
static void *volatile sink;
__attribute__((noinline, noclone)) void working(void) { for (int i = 0; i < 5000; i++) { sink = malloc(100); free(sink); } }
static void *work(void *unused) {
    (void)unused;
    memset(sink = malloc(20 << 20), 1, 20 << 20);
    puts("ready");
    fflush(stdout);
    while (getppid() != 1) { working(); usleep(1000); }
    _exit(0);
}
int main(int argc, char **argv) {
    pthread_t thread;
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    pid_t child = argc > 1 ? fork() : 1;
    if (!child) { _exit(0); }
    if (argc > 1) { printf("%d\n", child); fflush(stdout); for (;;) { pause(); } }
    pthread_create(&thread, NULL, work, NULL);
    pthread_exit(NULL);
}
"#;

struct Started(Child, String);

impl Started {
    fn new(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self(child, line.trim_end().to_owned())
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn program(bench: &Bench) -> std::path::PathBuf {
    bench.compile("parts", PROGRAM, &["-g", "-O1", "-fno-builtin", "-pthread"]).expect("a program")
}

fn state(pid: &str) -> String {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid).join("stat")).unwrap();
    stat.rsplit(") ").next().unwrap().chars().take(1).collect()
}

#[test]
fn a_process_without_its_first_thread_is_looked_at() {
    let Some(bench) = Bench::new() else { return };
    let Some(folder) = libraries(&["libquarry-malloc.so"]) else { return };
    let mut command = Command::new(program(&bench));
    let process = Started::new(command.env("LD_PRELOAD", folder.join("libquarry-malloc.so")));
    let pid = process.0.id().to_string();
    wait_until("the first thread has ended", || state(&pid) == "Z");
    let json = |args: &[&str]| bench.run(&[args, &["-p", &pid, "--json"]].concat()).expect(0).json();
    let map = json(&["map"]);
    let res = |report: &serde_json::Value| report.as_u64().unwrap_or_else(|| panic!("{report:#}"));
    assert!(res(&map["total"]["rss"]) > 20 << 20);
    // The other thread may run whenever it is looked at. The ended one is none whose stack is not known.
    assert!(!map["gaps"].to_string().contains("of 2 threads"), "{}", map["gaps"]);
    assert!(json(&["explain", "--for", "0"]).to_string().contains("parts"));
    let doctor = json(&["doctor"]).to_string();
    assert!(doctor.contains("Quarry") && !doctor.contains("CAP_SYS_PTRACE"), "{doctor}");
    json(&["stats"]);
    let profile = json(&["profile", "--for", "0.5", "--sample", "16k", "-q"]);
    assert!(profile.to_string().contains("working at parts.c:"), "{profile:#}");
    let top = bench.run(&["top", "--once", "--json", "-p", &pid]).expect(0).stdout;
    let rss = top.split("\"res\":").nth(1).and_then(|rest| rest.split([',', '}']).next()).map(str::trim);
    assert!(rss.is_some_and(|rss| rss.parse::<u64>().unwrap() > 20 << 20), "{top}");
}

#[test]
fn a_process_that_has_ended_is_refused_by_all() {
    let Some(bench) = Bench::new() else { return };
    if quarry_library().is_none() {
        return;
    }
    let parent = Started::new(Command::new(program(&bench)).arg("child"));
    wait_until("the child has ended", || state(&parent.1) == "Z");
    for verb in ["map", "explain", "stats", "profile", "doctor"] {
        bench.run(&[verb, "-p", &parent.1]).expect(1).says("it has ended (a zombie)");
    }
}
