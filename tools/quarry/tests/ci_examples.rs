// SPDX-License-Identifier: MIT
//! The examples for continuous integration in docs/profile.md, run as they are written there.
//!
//! A workflow's steps run in order, in a shell as the service starts one. What the service does itself is done here: a checkout, a
//! cache that outlives the run, and the condition of a step.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::common::{Bench, Ended, libraries, text};

const PAGE: &str = include_str!("../../../docs/profile.md");

/// The block of code that begins with this line.
fn block(language: &str, first: &str) -> String {
    let opening = format!("```{language}\n");
    let mut blocks = PAGE.split(&opening).skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks
        .find(|block| block.starts_with(first))
        .unwrap_or_else(|| panic!("no {first} in the page"))
        .to_owned()
}

/// A step of a workflow: its keys with their values.
type Step = Vec<(String, String)>;

fn value<'s>(step: &'s Step, key: &str) -> Option<&'s str> {
    step.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
}

/// The steps below `steps:`. A line is a key and a value, and a step begins with a dash.
fn steps(yaml: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in yaml.lines().skip_while(|line| line.trim() != "steps:").skip(1) {
        let line = line.trim();
        if line.starts_with("- ") {
            steps.push(Step::new());
        }
        let (key, value) = line.trim_start_matches("- ").split_once(": ").unwrap_or_else(|| panic!("{line}"));
        steps.last_mut().unwrap().push((key.to_owned(), value.to_owned()));
    }
    steps
}

/// The lines of a list below a key.
fn list(yaml: &str, key: &str) -> Vec<String> {
    let below = yaml.lines().skip_while(|line| line.trim() != key).skip(1);
    below.map_while(|line| line.trim().strip_prefix("- ")).map(str::to_owned).collect()
}

/// A program whose `kept` functions hold so many blocks, with some lines above them.
fn source(blocks: u32, lines: usize) -> String {
    format!(
        "#include <stdlib.h>\n{}static void *volatile all[1000];\n\
         __attribute__((noinline, noclone)) void kept(int i) {{ all[i] = malloc(4000); __asm__ volatile(\"\"); }}\n\
         int main(void) {{ for (int i = 0; i < {blocks}; i++) {{ kept(i); }} return 0; }}\n",
        "\n".repeat(lines)
    )
}

/// A machine of a service: a project, the tool on the path, and a cache.
struct Machine {
    bench: Bench,
    path: String,
    project: PathBuf,
    /// What is cached, by its key; the newest is last.
    cache: Vec<(String, PathBuf)>,
}

/// What became of the steps of a run: each `run` line with its exit code.
struct Run {
    ran: Vec<(String, i32)>,
    output: String,
}

impl Run {
    fn code(&self) -> i32 {
        self.ran.iter().map(|(_, code)| *code).find(|code| *code != 0).unwrap_or(0)
    }
}

impl Machine {
    fn new() -> Option<Self> {
        let bench = Bench::new()?;
        let libraries = libraries(&["libquarry-record.so"])?;
        if crate::foreign::is_missing("make") {
            return None;
        }
        let (tool, lib) = (env!("CARGO_BIN_EXE_quarry"), libraries.canonicalize().unwrap());
        fs::create_dir(bench.path("bin")).unwrap();
        let wrapper = format!("#!/bin/sh\nQUARRY_LIB_DIR='{}' exec '{tool}' \"$@\"\n", lib.display());
        bench.script("bin/quarry", &wrapper);
        let path = format!("{}:{}", text(&bench.path("bin")), std::env::var("PATH").unwrap());
        let project = bench.path("project");
        Some(Self { bench, path, project, cache: Vec::new() })
    }

    /// A fresh checkout of a version of the project.
    fn checkout(&self, source: &str) {
        let _ = fs::remove_dir_all(&self.project);
        fs::create_dir(&self.project).unwrap();
        fs::write(self.project.join("test.c"), source).unwrap();
        let makefile = "test: test.c\n\t$(CC) -g -O1 -Wl,--build-id -o $@ $<\n";
        fs::write(self.project.join("Makefile"), makefile).unwrap();
    }

    /// Run a line as GitHub does (bash -e) or GitLab (bash, each line for itself, with the exit code of the first that fails).
    fn shell(&self, line: &str) -> Ended {
        let mut bash = Command::new("bash");
        bash.args(["--noprofile", "--norc", "-eo", "pipefail", "-c", line]).current_dir(&self.project);
        bash.env("PATH", &self.path).env("GITHUB_STEP_SUMMARY", self.bench.path("summary"));
        for variable in ["QUARRY_CONF", "LD_PRELOAD", "QUARRY_LIB_DIR"] {
            bash.env_remove(variable);
        }
        Ended::from(bash.output().unwrap())
    }

    /// Does this step run? `main`: for a push to the main branch, else for a pull request.
    fn wants(step: &Step, main: bool, failed: bool) -> bool {
        let Some(condition) = value(step, "if") else { return !failed };
        let (always, condition) = match condition.strip_prefix("always() && ") {
            Some(rest) => (true, rest),
            None => (false, condition),
        };
        let holds = match condition {
            "github.ref == 'refs/heads/main'" => main,
            "github.event_name == 'pull_request'" => !main,
            other => panic!("what is {other}?"),
        };
        holds && (always || !failed)
    }

    /// What an action of GitHub's does. False: it failed.
    fn uses(&mut self, step: &Step, action: &str, sha: &str, source: &str) -> bool {
        let file = self.project.join("main.qtr");
        let with = value(step, "with").unwrap_or_default().replace("${{ github.sha }}", sha);
        assert!(action == "actions/checkout@v4" || with.contains("path: main.qtr,"), "{step:?}");
        match action {
            "actions/checkout@v4" => self.checkout(source),
            "actions/cache/save@v4" => {
                assert!(with.contains(&format!("key: \"memory-{sha}\"")), "{with}");
                let kept = self.bench.path(&format!("cache-{sha}"));
                fs::copy(file, &kept).unwrap();
                self.cache.push((format!("memory-{sha}"), kept));
            }
            "actions/cache/restore@v4" => {
                let (_, prefix) = with.split_once("restore-keys: ").unwrap();
                let prefix = prefix.split(',').next().unwrap();
                let found = self.cache.iter().rev().find(|(key, _)| key.starts_with(prefix));
                match found {
                    Some((_, kept)) => drop(fs::copy(kept, file).unwrap()),
                    None => return !with.contains("fail-on-cache-miss: true"),
                }
            }
            other => panic!("what does {other} do?"),
        }
        true
    }

    fn workflow(&mut self, main: bool, sha: &str, source: &str) -> Run {
        let mut run = Run { ran: Vec::new(), output: String::new() };
        for step in steps(&block("yaml", "name: memory")) {
            if !Self::wants(&step, main, run.code() != 0) {
                continue;
            }
            if let Some(action) = value(&step, "uses") {
                let done = self.uses(&step, action, sha, source);
                run.ran.push((action.to_owned(), i32::from(!done)));
                continue;
            }
            let line = value(&step, "run").unwrap();
            let ended = self.shell(line);
            run.output += &format!("{line}\n{}{}", ended.stdout, ended.stderr);
            run.ran.push((line.to_owned(), ended.code.unwrap()));
        }
        run
    }
}

#[test]
fn the_workflow_of_github() {
    let Some(mut machine) = Machine::new() else { return };
    // There is nothing to compare with, and the step that looks for it says so.
    let first = machine.workflow(false, "c0", &source(100, 0));
    assert_eq!(first.ran.last().unwrap().0, "cat memory.txt >> \"$GITHUB_STEP_SUMMARY\"");
    assert_eq!((first.ran[2].0.as_str(), first.ran[2].1), ("actions/cache/restore@v4", 1), "{:?}", first.ran);
    let kept = machine.workflow(true, "c1", &source(100, 0));
    assert_eq!((kept.code(), machine.cache.len()), (0, 1), "{}", kept.output);
    // Other lines and other addresses, the same memory.
    let moved = machine.workflow(false, "c2", &source(100, 7));
    assert_eq!(moved.code(), 0, "{}", moved.output);
    let less = machine.workflow(false, "c3", &source(50, 0));
    assert_eq!(less.code(), 0, "{}", less.output);
    let more = machine.workflow(false, "c4", &source(120, 0));
    let (line, code) = more.ran.iter().find(|(line, _)| line.starts_with("quarry profile")).unwrap();
    assert_eq!(*code, 1, "{line}: {}", more.output);
    // What was found is in the summary of the run, also of one that failed.
    let summary = fs::read_to_string(machine.bench.path("summary")).unwrap();
    assert!(summary.contains("kept"), "{summary}");
    assert_eq!(more.ran.last().unwrap(), &("cat memory.txt >> \"$GITHUB_STEP_SUMMARY\"".to_owned(), 0));
}

#[test]
fn the_job_of_gitlab() {
    let Some(machine) = Machine::new() else { return };
    let yaml = block("yaml", "memory:");
    let lines = list(&yaml, "script:");
    assert_eq!((lines.len(), lines[0].as_str()), (2, "make"));
    assert!(yaml.contains("paths: [memory.json]"));
    let large = source(100, 0).replace("malloc(4000)", "malloc(4000000)");
    for (source, expected) in [(source(100, 0), 0), (large, 1)] {
        machine.checkout(&source);
        let ended: Vec<Ended> = lines.iter().map(|line| machine.shell(line)).collect();
        assert_eq!(ended[0].code, Some(0), "{}{}", ended[0].stdout, ended[0].stderr);
        assert_eq!(ended[1].code, Some(expected), "{}{}", ended[1].stdout, ended[1].stderr);
        assert!(ended[1].stdout.contains("kept at test.c:"), "{}", ended[1].stdout);
        let json = fs::read_to_string(machine.project.join("memory.json")).unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        let kept: Vec<bool> =
            json["gates"].as_array().unwrap().iter().map(|gate| gate["kept"].as_bool().unwrap()).collect();
        assert_eq!(kept, [expected == 0, true]);
    }
}

#[test]
fn the_test_of_python() {
    let Some(machine) = Machine::new() else { return };
    let pytest = Command::new("python3").args(["-m", "pytest", "--version"]).output();
    if !pytest.is_ok_and(|ended| ended.status.success()) {
        return eprintln!("skipped: needs pytest for python3");
    }
    fs::create_dir(&machine.project).unwrap();
    fs::write(machine.project.join("test_memory.py"), block("python", "import subprocess")).unwrap();
    // What is live at the peak, and what stays: within both limits, then beyond each.
    for (work, passes) in [
        ("def work():\n    bytearray(50_000_000)\n", true),
        ("def work():\n    bytearray(300_000_000)\n", false),
        (
            "kept = []\ndef work():\n    import ctypes\n    libc = ctypes.CDLL(None)\n    libc.malloc.restype = ctypes.c_void_p\n    kept.append(libc.malloc(50_000_000))\n",
            false,
        ),
    ] {
        fs::write(machine.project.join("mymodule.py"), work).unwrap();
        let ended = machine.shell("python3 -m pytest -q -p no:cacheprovider test_memory.py");
        let said = format!("{work}: {}{}", ended.stdout, ended.stderr);
        assert_eq!(ended.code, Some(i32::from(!passes)), "{said}");
        assert!(ended.stdout.contains(if passes { "1 passed" } else { "1 failed" }), "{said}");
    }
}

/// Another reader of YAML finds the same lines in the examples.
#[test]
fn the_examples_are_yaml() {
    let github = block("yaml", "name: memory");
    let script = "import json, sys, yaml; print(json.dumps(yaml.safe_load(sys.argv[1])))";
    let read = |yaml: &str| Command::new("python3").args(["-c", script, yaml]).output();
    let Ok(Some(known)) = read(&github).map(|ended| ended.status.success().then_some(ended.stdout)) else {
        return eprintln!("skipped: needs python3 with yaml");
    };
    let known: serde_json::Value = serde_json::from_slice(&known).unwrap();
    let known = known["jobs"]["memory"]["steps"].as_array().unwrap().clone();
    let found = steps(&github);
    assert_eq!(found.len(), known.len());
    for (found, known) in found.iter().zip(&known) {
        for key in ["run", "uses", "if"] {
            assert_eq!(value(found, key), known[key].as_str());
        }
    }
    let gitlab = block("yaml", "memory:");
    let known: serde_json::Value = serde_json::from_slice(&read(&gitlab).unwrap().stdout).unwrap();
    let script: Vec<&str> =
        known["memory"]["script"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
    assert_eq!(list(&gitlab, "script:"), script);
}
