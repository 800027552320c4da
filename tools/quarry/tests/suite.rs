// SPDX-License-Identifier: MIT
//! quarry bench suite: on a suite of scripts, each with one vice, under mallocs that are glibc's.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::common::{Bench, Ended, kill, state, text, wait_until};
use serde_json::Value;

/// A malloc that is glibc's under another name, so that the dynamic linker binds to it.
const FORWARDS: &str = "
#include <stddef.h>
void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
void __libc_free(void *);
void *malloc(size_t n) { return __libc_malloc(n); }
void *calloc(size_t m, size_t n) { return __libc_calloc(m, n); }
void *realloc(void *p, size_t n) { return __libc_realloc(p, n); }
void free(void *p) { __libc_free(p); }
";

/// Runs that do what they should: name, script, and what the table says of them.
const GOOD: [(&str, &str, &str); 10] = [
    ("plain", "echo $1 > file; pwd", ""),
    ("rate", "echo \"$1 iterations\"", "figure = '([0-9]+) iter'\nwork = 10.0"),
    ("figure", "echo 'time: 0.25s'", "figure = 'time: ([0-9.]+)'"),
    ("input", "read a; echo $a", "stdin = 'word'\nsays = 'hello'\nthreads = false"),
    ("same", "echo $X", "same_output = true"),
    (
        "more",
        "echo \"p: 2 p: 0.5 sum: $$\"; echo check: 7",
        "also = { p = 'p: ([0-9.]+)' }\nresult = 'check: ([0-9]+)'",
    ),
    ("there", "cat word; echo $Y", "folder = '@'\nenv = { Y = 'variable' }\nsays = 'hello\\nvariable'"),
    ("both", "echo one; echo two >&2; echo three", "says = 'one\\ntwo\\nthree'"),
    (
        "copied",
        "cat made; echo mine >> made",
        "copy = 'tree'\nbefore = ['cp', 'first', 'made']\nsame_output = true",
    ),
    (
        "served",
        "echo \"$2\"",
        "server = ['{bin}/server', '{port}']\nready = ['{bin}/ready', '{port}']\nstop = ['{bin}/stop', '{port}']\nfigure = ': ([0-9.]+)'",
    ),
];

/// Runs that do not, and what is said of them.
const BAD: [(&str, &str, &str, &str); 10] = [
    ("crash", "kill -9 $$", "", "status 137"),
    ("exit", "exit 3", "", "status 3"),
    ("slow", "sleep 600", "", "not done"),
    ("mute", "echo no", "figure = '([0-9]+) iter'", "printed"),
    ("zero", "echo 0 iter", "figure = '([0-9]+) iter'", "printed"),
    ("wrong", "echo no", "says = 'yes'", "printed"),
    ("no-more", "echo p: x", "also = { p = 'p: ([0-9.]+)' }", "printed"),
    ("no-result", "echo no", "result = 'check: ([0-9]+)'", "printed"),
    ("other-result", "echo check: $$", "result = 'check: ([0-9]+)'", "something else"),
    ("differs", "echo $$", "same_output = true", "something else"),
];

struct Suite {
    bench: Bench,
    catalog: PathBuf,
}

impl Suite {
    fn new() -> Option<Self> {
        let bench = Bench::new()?;
        for folder in ["quarry/suite", "suite/out/bench", "suite/tree-1"] {
            fs::create_dir_all(bench.path(folder)).unwrap();
        }
        bench.library("libquarry-malloc", FORWARDS);
        let source = |name: &str| {
            let file = format!("{}/../../bench/suite/{name}.c", env!("CARGO_MANIFEST_DIR"));
            fs::read_to_string(file).unwrap()
        };
        bench.compile("quarry/suite/launch", &source("launch"), &["-O1", "-D_GNU_SOURCE"]).unwrap();
        let pin = ["-shared", "-fPIC", "-D_GNU_SOURCE", "-pthread"];
        bench.compile("quarry/suite/pin.so", &source("pin"), &pin).unwrap();
        fs::write(bench.path("suite/word"), "hello\n").unwrap();
        fs::write(bench.path("suite/tree-1/first"), "first\n").unwrap();
        std::os::unix::fs::symlink("tree-1", bench.path("suite/tree")).unwrap();
        // A server that is up once there is a file of its port, and down once there is none.
        let up = bench.path("up");
        let up = text(&up);
        for (name, script) in [
            ("server", format!("touch {up}.$1; while [ -e {up}.$1 ]; do sleep 0.01; done")),
            ("ready", format!("[ -e {up}.$1 ]")),
            ("stop", format!("rm {up}.$1")),
        ] {
            bench.script(&format!("suite/out/bench/{name}"), &format!("#!/bin/sh\n{script}\n"));
        }
        let mut table = String::new();
        let good = GOOD.map(|(name, script, more)| (name, script, more));
        for (name, script, more) in
            good.into_iter().chain(BAD.map(|(name, script, more, _)| (name, script, more)))
        {
            bench.script(&format!("suite/out/bench/{name}"), &format!("#!/bin/sh\n{script}\n"));
            let more = more.replace('@', text(&bench.path("suite")));
            table +=
                &format!("[[run]]\nname = '{name}'\ncommand = ['{{bin}}/{name}', '{{n}}', 'a: 5']\n{more}\n");
        }
        table += "[[run]]\nname = 'absent'\ncommand = ['{bin}/absent']\n";
        let catalog = bench.path("suite.toml");
        fs::write(&catalog, table).unwrap();
        Some(Self { bench, catalog })
    }

    fn command(&self, more: &[&str]) -> Command {
        let suite = self.bench.path("suite");
        let args = ["bench", "suite", "--catalog", text(&self.catalog), text(&suite), "--threads", "4"];
        self.bench.quarry([&args[..], more].concat())
    }

    fn run(&self, more: &[&str]) -> Ended {
        Ended::from(self.command(more).output().unwrap())
    }

    /// The same, while the test does something.
    fn start(&self, more: &[&str]) -> Child {
        self.command(more).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }
}

/// What a malloc's sample of a run has.
fn sample<'a>(json: &'a Value, run: &str, round: usize, malloc: &str) -> &'a Value {
    &json["runs"][run][round][malloc]
}

#[test]
fn runs_are_measured_and_faults_are_found() {
    let Some(suite) = Suite::new() else { return };
    let mut names: Vec<&str> = GOOD.iter().map(|(name, ..)| *name).collect();
    names.push("absent");
    let common = ["-n", "2", "--json", "--only", "sys,quarry"];
    let ended = suite.run(&[&common[..], &names].concat()).expect(0);
    ended.says("left out: absent: no program");
    let json = ended.json();
    for (name, ..) in GOOD {
        let rounds = json["runs"][name].as_array().unwrap();
        assert_eq!(rounds.len(), 2, "{name}: {}", json["faults"]);
        assert!(rounds.iter().all(|round| round["sys"].is_object() && round["quarry"].is_object()), "{name}");
    }
    let plain = sample(&json, "plain", 0, "sys");
    let figure = |name: &str| plain[name].as_f64().unwrap();
    assert!(figure("elapsed") > 0.0 && figure("seconds") == figure("elapsed") && figure("faults") > 10.0);
    // A shell has a megabyte or two: more would be the tool's own memory.
    assert!((100.0..8192.0).contains(&figure("peak_kib")), "{plain}");
    assert_eq!(sample(&json, "rate", 0, "sys")["seconds"], 2.5);
    assert_eq!(sample(&json, "figure", 1, "quarry")["seconds"], 0.25);
    assert_eq!(sample(&json, "served", 1, "quarry")["seconds"], 5.0);
    assert_eq!(sample(&json, "more", 0, "sys")["p"], 2.0);
    // The first digits of the SHA-256 of "7", and nothing of what may be anything.
    assert_eq!(sample(&json, "more", 0, "sys")["output"], "7902699be42c8a8e");
    assert!(plain.get("output").is_none());
    assert!(!suite.bench.path("suite/tree/made").exists());
    assert_eq!((&json["schema"], &json["threads"]), (&"quarry-suite/1".into(), &4.into()));
    assert!(json["mallocs"]["sys"].get("file").is_none());
    assert_eq!(json["mallocs"]["quarry"]["file"], "libquarry-malloc.so");

    let bad: Vec<&str> = BAD.iter().map(|(name, ..)| *name).filter(|name| *name != "slow").collect();
    let json = suite.run(&[&common[..], &bad].concat()).expect(1).json();
    let slow = suite.run(&[&common[..], &["--limit", "0.2", "slow"]].concat()).expect(1).json();
    for (name, _, _, why) in BAD {
        let json = if name == "slow" { &slow } else { &json };
        let faults: Vec<&Value> =
            json["faults"].as_array().unwrap().iter().filter(|f| f[0] == name).collect();
        assert!(!faults.is_empty(), "{name}: {json:#}");
        assert!(faults.iter().all(|fault| fault[2].as_str().unwrap().contains(why)), "{name}: {faults:?}");
    }
}

#[test]
fn results_are_kept_and_added() {
    let Some(suite) = Suite::new() else { return };
    let (first, second) = (suite.bench.path("first"), suite.bench.path("second"));
    let few = ["-n", "1", "--only", "sys,quarry", "plain", "exit", "--dir"];
    let ended = suite.run(&[&few[..], &[text(&first)]].concat()).expect(1);
    assert!(ended.stdout.contains("| plain |") && ended.stdout.contains("FAILED under sys: exit: status 3"));
    let page = fs::read_to_string(first.join("index.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("exit: status 3"));
    assert_eq!(fs::read_to_string(first.join("tables.txt")).unwrap(), ended.stdout);
    for picture in ["mean-seconds.svg", "mean-peak-kib.svg"] {
        assert!(fs::read_to_string(first.join(picture)).unwrap().contains("<svg"), "{picture}");
    }
    let result = first.join("result.json");
    let add = ["--add", text(&result)];
    suite.run(&[&few[..], &[text(&second)], &add[..]].concat()).expect(1);
    let both: Value = serde_json::from_str(&fs::read_to_string(second.join("result.json")).unwrap()).unwrap();
    assert_eq!(both["runs"]["plain"].as_array().unwrap().len(), 2);
    // What -o FILE ends in says what it is, and the samples are there after each run.
    let (samples, page) = (suite.bench.path("a.json"), suite.bench.path("a.html"));
    suite.run(&["-n", "1", "--only", "sys", "plain", "-o", text(&samples), "-o", text(&page)]).expect(0);
    assert!(fs::read_to_string(&page).unwrap().starts_with("<!DOCTYPE html>"));
    let json: Value = serde_json::from_str(&fs::read_to_string(&samples).unwrap()).unwrap();
    assert_eq!(json["schema"], "quarry-suite/1");
    suite.run(&["-n", "1", "plain", "-o", "a.svg"]).expect(2).says("quarry bench suite makes no svg");
    // Without rounds nothing is run, and the libraries need not be there.
    fs::remove_file(suite.bench.path("libquarry-malloc.so")).unwrap();
    let other = second.join("result.json");
    let shown = suite.run(&[&["-n", "0", "--add", text(&other)], &add[..]].concat()).expect(0).stdout;
    for words in ["| plain |", "first: 1 round |", "too few rounds to tell whether the files agree\n"] {
        assert!(shown.contains(words), "no '{words}' in {shown}");
    }
    let only = suite.run(&[&["-n", "0", "--only", "sys"], &add[..]].concat()).expect(0).stdout;
    assert!(!only.contains("quarry: "), "{only}");
    suite.run(&[&["-n", "0", "--only", "nobody"], &add[..]].concat()).expect(2).says("there are quarry, sys");
    // The mallocs are those of all files, whichever comes first.
    let all = suite.run(&["-n", "0", "--json", "--add", text(&samples), add[0], add[1]]).expect(0).json();
    assert!(all["mallocs"]["quarry"].is_object(), "{all:#}");
    assert_eq!(all["runs"]["plain"].as_array().unwrap().len(), 2);
    suite.run(&["-n", "0"]).expect(2).says("--add");
    suite
        .run(&[&["-n", "1", "--only", "sys", "--seconds", "9", "plain"], &add[..]].concat())
        .expect(1)
        .says("--seconds");
}

/// On another machine a program may be of another version, and print something else under all mallocs.
#[test]
fn what_a_program_prints_may_change_for_all() {
    let Some(suite) = Suite::new() else { return };
    let earlier = suite.bench.path("earlier.json");
    let both = ["-n", "1", "--only", "sys,quarry", "same"];
    suite.run(&[&both[..], &["-o", text(&earlier)]].concat()).expect(0);
    suite.bench.script("suite/out/bench/same", "#!/bin/sh\necho another version\n");
    let add = ["--json", "--add", text(&earlier)];
    let json = suite.run(&[&both[..], &add].concat()).expect(0).json();
    assert_eq!(json["runs"]["same"].as_array().unwrap().len(), 2, "{json:#}");
    // One alone can be compared with nothing but what was added.
    let json = suite.run(&[&["-n", "1", "--only", "quarry", "same"], &add[..]].concat()).expect(1).json();
    assert!(json["faults"][0][2].as_str().unwrap().contains("something else"), "{json:#}");
    // It is to print what it printed last.
    let later = suite.bench.path("later.json");
    suite.run(&[&both[..], &["--add", text(&earlier), "-o", text(&later)]].concat()).expect(0);
    suite.run(&["-n", "1", "--only", "quarry", "same", "--json", "--add", text(&later)]).expect(0);
    // Two builds of ours may both be wrong.
    let second = suite.bench.library("libsecond", FORWARDS);
    let with = format!("quarry2={}", second.display());
    let ours = ["-n", "1", "--with", &with, "--only", "quarry,quarry2", "same"];
    let json = suite.run(&[&ours[..], &add[..]].concat()).expect(1).json();
    assert_eq!(json["faults"].as_array().unwrap().len(), 2, "{json:#}");
}

/// Of a run that not all mallocs have had nothing is kept.
#[test]
fn what_a_signal_interrupts_is_forgotten() {
    let Some(suite) = Suite::new() else { return };
    let (first, second) = (suite.bench.path("first"), suite.bench.path("second"));
    let (one, two) = (text(&first), text(&second));
    let script = format!("#!/bin/sh\nif [ -e {one} ]; then touch {two}; sleep 600; fi; touch {one}\n");
    suite.bench.script("suite/out/bench/slow", &script);
    let child = suite.start(&["-n", "1", "--only", "sys,quarry", "--json", "slow"]);
    wait_until("the second malloc has its run", || second.exists());
    kill("TERM", child.id());
    let json = Ended::from(child.wait_with_output().unwrap()).expect(143).json();
    assert_eq!(json["runs"]["slow"].as_array().unwrap().len(), 0, "{json:#}");
    assert_eq!(json["faults"].as_array().unwrap().len(), 0, "{json:#}");
}

/// The program runs on while the tool is stopped, and nobody sees when it ends. So does the client of a server.
#[test]
fn a_run_in_which_the_tool_was_stopped_is_done_again() {
    let Some(suite) = Suite::new() else { return };
    for name in ["slow", "served"] {
        let file = |ending: &str| suite.bench.path(&format!("{name}.{ending}"));
        let (starts, go) = (file("starts"), file("go"));
        let wait = format!("while [ ! -e {} ]; do sleep 0.01; done", go.display());
        let script = format!("#!/bin/sh\necho >> {}; {wait}; echo \"$2\"\n", starts.display());
        suite.bench.script(&format!("suite/out/bench/{name}"), &script);
        let child = suite.start(&["-n", "1", "--only", "sys", "--json", name]);
        wait_until("it has begun", || starts.exists());
        kill("STOP", child.id());
        wait_until("the tool is stopped", || state(child.id()) == Some('T'));
        fs::write(&go, "").unwrap();
        kill("CONT", child.id());
        let json = Ended::from(child.wait_with_output().unwrap()).expect(0).json();
        let rounds = json["runs"][name].as_array().unwrap().len();
        assert_eq!((rounds, fs::read_to_string(&starts).unwrap().lines().count()), (1, 2), "{name}");
    }
}

/// What the machine lacks is no fault of a malloc, and is not kept as one.
#[test]
fn errors_of_the_machine_accuse_no_malloc() {
    let Some(suite) = Suite::new() else { return };
    let (gone, library) = (suite.bench.path("gone"), suite.bench.library("libother", FORWARDS));
    fs::create_dir(&gone).unwrap();
    let mut table = String::new();
    let mut enter = |name: &str, script: &str, more: &str| {
        suite.bench.script(&format!("suite/out/bench/{name}"), &format!("#!/bin/sh\n{script}\n"));
        table += &format!("[[run]]\nname = '{name}'\ncommand = ['{{bin}}/{name}']\n{more}\n");
    };
    let folder = format!("folder = '{}'", gone.display());
    enter("folder", &format!("cd /; rmdir {}", gone.display()), &folder);
    // The file that is to get what the run cost is a folder.
    enter("cost", "mkdir cost", "");
    enter("before", ":", "copy = 'tree'\nbefore = ['cat', 'nothing']");
    enter("library", &format!("rm {}", library.display()), "");
    enter("absent", ":", "folder = '/no/such'");
    suite.bench.script("suite/out/bench/fails", "#!/bin/sh\nmkdir cost\n");
    enter("starter", ":", "server = ['{bin}/fails']\nready = ['false']\nstop = ['true']");
    fs::write(&suite.catalog, table).unwrap();
    let with = format!("other={}", library.display());
    for (name, rounds, why) in [
        ("folder", 1, "folder under other: No such file"),
        ("cost", 0, "cost under other: its starter failed"),
        ("before", 0, "'cat nothing' before it: before: status 1"),
        ("starter", 0, "starter under other: its starter failed"),
        ("library", 1, "libother.so: No such file"),
    ] {
        let ended = suite.run(&["-n", "2", "--with", &with, "--only", "other", "--json", name]).expect(125);
        let json = ended.says(why).json();
        assert_eq!(json["runs"][name].as_array().unwrap().len(), rounds, "{json:#}");
        assert_eq!(json["faults"].as_array().unwrap().len(), 0, "{json:#}");
    }
    let ended = suite.run(&["-n", "1", "--only", "sys", "absent"]).expect(1);
    ended.says("left out: absent: no /no/such");
}

#[test]
fn mallocs_have_variables_and_versions() {
    let Some(suite) = Suite::new() else { return };
    let library = suite.bench.library("libother", FORWARDS);
    let with = format!("other={},X=else", library.display());
    let common = ["-n", "1", "--json", "--with", &with, "--only", "sys,other", "same"];
    let json = suite.run(&[&common[..], &["--version-of", "other=7"]].concat()).expect(1).json();
    assert_eq!(
        (&json["mallocs"]["other"]["version"], &json["mallocs"]["other"]["variables"]["X"]),
        (&"7".into(), &"else".into())
    );
    // The variable reached the program: it printed something else.
    assert!(json["faults"][0][2].as_str().unwrap().contains("something else"), "{json:#}");
    suite.run(&[&common[..], &["--version-of", "sys"]].concat()).expect(2).says("--version-of");
    // Another file than that of `make peers` with the same name.
    let peers = suite.bench.path("peers");
    fs::create_dir(&peers).unwrap();
    fs::copy(&library, peers.join("libpeer.so")).unwrap();
    let list = r#"[{ "name": "other", "version": "9", "path": "libpeer.so" }]"#;
    fs::write(peers.join("peers.json"), list).unwrap();
    let listed = ["-n", "1", "--json", "--peers", text(&peers), "--only", "other", "plain"];
    assert_eq!(suite.run(&listed).expect(0).json()["mallocs"]["other"]["version"], "9");
    let with = format!("other={}", library.display());
    let json = suite.run(&[&listed[..], &["--with", &with]].concat()).expect(0).json();
    assert!(json["mallocs"]["other"]["version"].is_null(), "{json:#}");
    suite.run(&["-n", "1", "--with", "other"]).expect(2).says("--with other");
    let nothing = suite.bench.library("libnothing", "int nothing;");
    let with = format!("nothing={}", nothing.display());
    suite
        .run(&["-n", "1", "--with", &with, "--only", "nothing", "same"])
        .expect(1)
        .says("does not serve malloc");
}

#[test]
fn what_cannot_be_replaced_is_written_once() {
    let Some(suite) = Suite::new() else { return };
    let more = ["-n", "2", "--only", "sys", "plain", "rate", "--format", "json", "-o", "/dev/stdout"];
    assert_eq!(suite.run(&more).expect(0).json()["runs"]["plain"].as_array().unwrap().len(), 2);
}

#[test]
fn variables_of_the_caller_that_take_part_are_named() {
    let Some(suite) = Suite::new() else { return };
    let mut command = suite.command(&["-n", "1", "--only", "sys", "plain"]);
    let ended = Ended::from(command.env("MALLOC_ARENA_MAX", "2").output().unwrap()).expect(0);
    ended.says("MALLOC_ARENA_MAX is set and kept");
}

#[test]
fn threads_stay_on_one_processor_with_pin() {
    let Some(suite) = Suite::new() else { return };
    let program = r#"
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
static int count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *body(void *arg) {
    cpu_set_t set;
    sched_getaffinity(0, sizeof set, &set);
    pthread_mutex_lock(&lock);
    count += CPU_COUNT(&set);
    pthread_mutex_unlock(&lock);
    return arg;
}
int main(void) {
    pthread_t threads[6];
    for (int i = 0; i < 6; i++) pthread_create(&threads[i], 0, body, 0);
    for (int i = 0; i < 6; i++) pthread_join(threads[i], 0);
    return printf("processors: %d\n", count) < 0;
}"#;
    suite.bench.compile("suite/out/bench/threads", program, &["-D_GNU_SOURCE", "-pthread"]).unwrap();
    let table = "[[run]]\nname = 'threads'\ncommand = ['{bin}/threads']\nfigure = 'processors: ([0-9]+)'\n";
    fs::write(&suite.catalog, table).unwrap();
    let common = ["-n", "1", "--json", "--only", "sys"];
    let of = |more: &[&str]| {
        let json = suite.run(&[&common[..], more].concat()).expect(0).json();
        sample(&json, "threads", 0, "sys")["seconds"].as_f64().unwrap()
    };
    let processors = std::thread::available_parallelism().unwrap().get() as f64;
    assert_eq!(of(&["--pin"]), 6.0);
    assert_eq!(of(&[]), 6.0 * processors);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let Some(suite) = Suite::new() else { return };
    suite.bench.run(&["bench", "suite"]).expect(2).says("say where the suite was built");
    suite.bench.run(&["bench", "suite", "/no/such/folder"]).expect(2).says("no folder of the suite");
    suite.run(&["no-such-run"]).expect(2).says("there are: plain, rate");
    suite.run(&["--only", "nobody", "plain"]).expect(2).says("not found: nobody; found: ");
    suite.run(&["--real", "--targets"]).expect(2);
    let listed = suite.run(&["--list", "p*", "absent"]).expect(0).stdout;
    assert!(listed.starts_with("plain\nabsent: no program "), "{listed}");
}
