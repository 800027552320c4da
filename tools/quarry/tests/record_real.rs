// SPDX-License-Identifier: MIT
//! quarry record with the real recorder: what is in the trace is what the program did, however it ended. Needs the libraries,
//! in build/lib of the checkout or where QUARRY_TEST_LIB_DIR says; without them it is skipped.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::common::{Bench, Ended, libraries, text};
use serde_json::Value;

/// The program that knows how many calls of which kind it makes.
const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/trace/program.c");
const TRUTH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/trace/test_record.py");
/// It looks at the recorder's own headers.
const HEADERS: &str = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/../../src");
const CONFIGURED: [&str; 2] = ["-DQY_CFG_CHECK=0", "-DQY_CFG_FAKE=1"];

struct Real {
    bench: Bench,
    libraries: PathBuf,
    program: PathBuf,
}

impl Real {
    /// `None`, and a word about it, where something is missing.
    fn new() -> Option<Self> {
        let bench = Bench::new()?;
        let libraries = libraries(&["libquarry-record.so"])?;
        let program = bench.path("program");
        let compiled = Command::new("cc")
            .args(["-std=gnu17", "-D_GNU_SOURCE", "-O1", "-fno-builtin", "-pthread", HEADERS])
            .args(CONFIGURED)
            .args([PROGRAM, "-ldl", "-o"])
            .arg(&program)
            .status();
        assert!(compiled.unwrap().success());
        fs::create_dir(bench.path("t")).unwrap();
        Some(Self { bench, libraries, program })
    }

    fn quarry(&self, args: &[&str]) -> Command {
        let mut command = self.bench.quarry(args);
        command.env("QUARRY_LIB_DIR", &self.libraries).current_dir(self.bench.path("t"));
        command
    }

    fn run(&self, args: &[&str]) -> Ended {
        Ended::from(self.quarry(args).output().unwrap())
    }

    /// Record into `file`; the summary.
    fn record(&self, file: &str, options: &[&str], program: &[&str], code: i32) -> Value {
        let line = [
            &["record", "-o", file, "--json", "--summary", "summary"],
            options,
            &["--", text(&self.program)],
            program,
        ];
        self.run(&line.concat()).expect(code);
        serde_json::from_str(&fs::read_to_string(self.bench.path("t/summary")).unwrap()).unwrap()
    }

    /// What quarry info says about a trace.
    fn info(&self, file: &str) -> Value {
        self.run(&["info", "--json", file]).expect(0).json()
    }

    /// Events of each kind; nothing may be lost, damaged or impossible.
    fn kinds(&self, file: &str) -> BTreeMap<String, i64> {
        let info = self.info(file);
        assert_eq!((&info["lost"]["events"], &info["damage"]["places"]), (&0.into(), &0.into()), "{info}");
        for (what, count) in info["impossible"].as_object().unwrap() {
            assert_eq!(count, 0, "{what}");
        }
        let kinds = info["events_by_kind"].as_object().unwrap();
        kinds.iter().map(|(name, n)| (name.clone(), n.as_i64().unwrap())).collect()
    }
}

fn seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().subsec_nanos();
    let seed = std::env::var("QUARRY_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(u64::from(now));
    eprintln!("QUARRY_SEED={seed}");
    seed
}

/// Calls of one round of every_call() in program.c by kind, as the recorder's own test has them.
fn truth() -> BTreeMap<String, i64> {
    let text = fs::read_to_string(TRUTH).unwrap();
    let (_, rest) = text.split_once("\nFAMILY = {").unwrap();
    let (list, _) = rest.split_once('}').unwrap();
    let mut calls = BTreeMap::new();
    for entry in list.split('(').skip(1) {
        let (names, count) = entry.split_once("):").unwrap();
        let count: i64 = count.split([',', '\n']).next().unwrap().trim().parse().unwrap();
        let names: Vec<&str> = names.split(',').map(|name| name.trim().trim_matches('"')).collect();
        let kind = match names[..] {
            ["alloc", "realloc"] => "realloc(NULL)",
            ["free", "sized"] => "sized free",
            ["free", "null"] => "free(NULL)",
            ["free", "other"] => "other end",
            ["failed", _] => "failed",
            ["touched", _] => continue,
            ["alloc" | "free" | "realloc", name] => name,
            _ => panic!("{names:?}"),
        };
        *calls.entry(kind.to_owned()).or_insert(0) += count;
    }
    assert!(calls.len() >= 9 && calls["malloc"] >= 4, "{calls:?}");
    calls
}

#[test]
fn every_call_is_in_the_trace() {
    let Some(real) = Real::new() else { return };
    let one_round = truth();
    let count = |kinds: &BTreeMap<String, i64>, kind: &str| kinds.get(kind).copied().unwrap_or(0);
    // What the C library allocates for itself is in both, and cancels out.
    for threads in [0, 3] {
        let (rounds, threads_text) = (250, threads.to_string());
        real.record("none.qtr", &[], &["family", "0", &threads_text], 0);
        let summary = real.record("all.qtr", &[], &["family", &rounds.to_string(), &threads_text], 0);
        let (none, all) = (real.kinds("none.qtr"), real.kinds("all.qtr"));
        let n = rounds * (threads + 1);
        for (kind, calls) in &one_round {
            assert_eq!(count(&all, kind) - count(&none, kind), calls * n, "{kind} with {threads} threads");
        }
        assert_eq!((count(&all, "new"), count(&all, "lost")), (0, 0));
        assert_eq!(summary["lost"], 0);
        assert_eq!(summary["traces"][0]["threads"], threads + 1);
        assert_eq!(summary["traces"][0]["events"], real.info("all.qtr")["events"]);
        assert_eq!(summary["traces"][0]["end"], "exit");
    }
}

/// Is the head there? It is the first that is written; a file without it must be empty or zero.
fn has_begun(file: &Path) -> bool {
    let bytes = fs::read(file).unwrap_or_default();
    let begun = bytes.starts_with(b"QTRB");
    assert!(begun || bytes.iter().all(|&byte| byte == 0));
    if !begun {
        let _ = fs::remove_file(file);
    }
    begun
}

#[test]
fn a_killed_program_leaves_a_trace_that_can_be_read() {
    let Some(real) = Real::new() else { return };
    let seed = seed();
    let mut rng = quarry_measure::rng::Rng::new(seed);
    let kills = std::env::var("QUARRY_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(50);
    let mut events = 0;
    for kill in 0..kills {
        let churn: &[&str] = if kill % 2 == 0 { &["churn", "0"] } else { &["churn_threads", "0", "3"] };
        let variable = format!("file:{}/k.qtr", text(&real.bench.path("t")));
        let mut child = Command::new(&real.program)
            .args(churn)
            .env("LD_PRELOAD", real.libraries.join("libquarry-record.so"))
            .env("QUARRY_RECORD", variable)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_micros(rng.below(60_000) as u64));
        child.kill().unwrap();
        child.wait().unwrap();
        let file = real.bench.path("t/k.qtr");
        if !has_begun(&file) {
            continue;
        }
        let info = real.info("k.qtr");
        assert_eq!(info["damage"]["places"], 0, "kill {kill}: {}", info["damage"]);
        assert_eq!(
            (&info["trace"]["end"], &info["lost"]["events"]),
            (&Value::Null, &0.into()),
            "kill {kill}"
        );
        let impossible = info["impossible"].as_object().unwrap();
        assert!(impossible.values().all(|n| n == 0), "kill {kill}: {impossible:?}");
        events += info["events"].as_u64().unwrap();
        fs::remove_file(&file).unwrap();
    }
    assert!(events > 1000 * kills, "{events}");
}

/// Without a word of the recorder's.
#[test]
fn an_exec_by_a_system_call_has_an_end_of_its_own() {
    let Some(real) = Real::new() else { return };
    let source = r#"
        #define _GNU_SOURCE
        #include <stdlib.h>
        #include <sys/syscall.h>
        #include <unistd.h>
        int main(int argc, char **argv) {
            void *volatile p = malloc(1000);
            execl("/nowhere/at/all", "all", NULL);
            return syscall(SYS_execve, argv[1], argv + 1, environ);
        }
    "#;
    let becomes = real.bench.compile("becomes", source, &[]).unwrap();
    for (how, code, end) in [("_exit", 3, "_exit"), ("exit", 3, "exit"), ("kill", 137, "killed")] {
        let words = ["record", "-o", "b.qtr", "--", text(&becomes), text(&real.program), "end", "10", how];
        real.run(&words).expect(code);
        let (first, second) = (real.info("b.qtr"), real.info("b.qtr.2"));
        assert_eq!(first["trace"]["end"]["reason"], "exec", "{how}: {first}");
        let process = &first["process"];
        assert_eq!(process["tried"][0], "/nowhere/at/all", "{process}");
        assert!(process["became"].is_null() && process["exit_status"].is_null(), "{process}");
        assert_eq!(second["trace"]["end"]["reason"], end, "{second}");
    }
}

/// A name need not be text.
#[test]
fn a_trace_has_any_name() {
    use std::os::unix::ffi::OsStrExt;
    let Some(real) = Real::new() else { return };
    let named = |bytes: &'static [u8]| std::ffi::OsStr::from_bytes(bytes);
    let record = |options: &[&str], file: &std::ffi::OsStr, how: &str| {
        let mut command = real.quarry(&["record"]);
        command.args(options).arg("-o").arg(file).arg("--").arg(&real.program).args(["end", "10", how]);
        Ended::from(command.output().unwrap())
    };
    let info = |file: &std::ffi::OsStr| {
        let mut command = real.quarry(&["info", "--json"]);
        Ended::from(command.arg(file).output().unwrap()).expect(0).json()
    };
    for file in [named(b"v\xff.qtr"), named(b"v\n.qtr")] {
        let ended = record(&["-g", "--symbolize"], file, "kill").expect(137);
        assert!(!ended.stderr.contains("names were not put"), "{}", ended.stderr);
        assert_eq!(info(file)["trace"]["end"]["reason"], "killed");
    }
    let packed = named(b"p\xff.qtr.zst");
    let ended = record(&[], packed, "exit").expect(3);
    assert!(!ended.stderr.contains("is not packed"), "{}", ended.stderr);
    assert!(fs::read(real.bench.path("t").join(packed)).unwrap().starts_with(&[0x28, 0xb5, 0x2f, 0xfd]));
}

#[test]
fn the_summary_says_how_it_ended() {
    let Some(real) = Real::new() else { return };
    let program = text(&real.program);
    let killed = real.run(&["record", "-o", "k.qtr", "--", program, "end", "3000", "kill"]).expect(137);
    killed.says("SIGKILL").says("all that it did before is in the trace").says("next: quarry info k.qtr");
    assert!(real.info("k.qtr")["events"].as_u64().unwrap() > 6000);
    let filtered =
        real.run(&["record", "-o", "s.qtr", "--", "/bin/sh", "-c", "kill -SYS $$"]).expect(128 + 31);
    filtered.says("SIGSYS ended the command").says("record it without its sandbox");
    real.run(&["info", "--strict", "k.qtr"]).expect(1).says("SIGKILL ended the program");
    // The program becomes another one; the first is in FILE, the next in FILE.2.
    let summary = real.record("e.qtr", &[], &["end", "100", "exec"], 0);
    let files: Vec<&str> =
        summary["traces"].as_array().unwrap().iter().map(|t| t["file"].as_str().unwrap()).collect();
    assert_eq!(files, ["e.qtr", "e.qtr.2"]);
    assert_eq!(summary["traces"][1]["end"], "exit");
    let process = real.info("e.qtr")["process"].clone();
    assert_eq!(process["became"], program, "{process}");
    assert_eq!(process["tried"].as_array().unwrap().len(), 5, "{process}");
    let cleared = ["record", "-o", "i.qtr", "--", "env", "-i", program, "end", "10", "exit"];
    real.run(&cleared).expect(3).says("i.qtr: the process became another program by exec, of which nothing");
    let stopped = "ulimit -f 64; exec \"$0\" churn 200000";
    let ended = real.run(&["record", "-o", "f.qtr", "--", "sh", "-c", stopped, program]).expect(0);
    ended
        .says("recording stopped before the program did: limit on file size")
        .says("all after the recording stopped");
    // A script that becomes the program is not what is meant.
    let script = ["record", "-o", "g.qtr", "--", "sh", "-c", "exec \"$0\" churn 20000", program];
    real.run(&script).expect(0).says("next: quarry info g.qtr.2");
    for verb in ["info", "profile"] {
        let words =
            "g.qtr: this is the first of 2 programs that the process ran; the largest trace is g.qtr.2";
        real.run(&[verb, "g.qtr"]).expect(0).says(words);
        assert!(!real.run(&[verb, "g.qtr.2"]).expect(0).stderr.contains("programs that the process ran"));
    }
    // Nor is a trace named that is gone.
    let profile = real.run(&["profile", "--", program, "churn", "2000"]).expect(0);
    assert!(profile.stdout.contains("not kept (--trace FILE keeps it), "), "{}", profile.stdout);
    let nothing = real.run(&["record", "-o", "n.qtr", "--", "/bin/true"]).expect(0);
    nothing.says("no allocation was recorded");
    assert!(!nothing.stderr.contains("next:"));
}

#[test]
fn a_full_disk_stops_the_recording_and_not_the_program() {
    let Some(real) = Real::new() else { return };
    let disk = real.bench.path("disk");
    fs::create_dir(&disk).unwrap();
    let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=600k", "tmpfs"]).arg(&disk).output();
    if !mount.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: needs the right to mount a small file system");
        return;
    }
    let file = disk.join("d.qtr");
    let ended = real.run(&["record", "-o", text(&file), "--", text(&real.program), "churn", "500000"]);
    let info = real.info(text(&file));
    assert!(Command::new("umount").arg(&disk).status().unwrap().success());
    let ended = ended.expect(0);
    assert_eq!(ended.stdout, "done\n");
    ended.says("recording stopped before the program did: disk full").says("all after the recording stopped");
    assert_eq!(info["trace"]["end"]["reason"], "disk full");
    assert!(info["events"].as_u64().unwrap() > 10_000 && info["damage"]["places"] == 0, "{info}");
}

#[test]
fn children_are_recorded_when_that_is_wanted() {
    let Some(real) = Real::new() else { return };
    let alone = real.run(&["record", "-o", "a.qtr", "--", text(&real.program), "children", "50"]).expect(0);
    alone.says("--follow");
    assert_eq!(real.info("a.qtr")["process"]["forks"].as_array().unwrap().len(), 1);
    let traces = fs::read_dir(real.bench.path("t")).unwrap().count();
    assert_eq!(traces, 1, "children are silent");
    let summary = real.record("c.%p.qtr", &["--follow"], &["children", "50"], 0);
    let traces = summary["traces"].as_array().unwrap();
    // Itself, a fork and the fork's fork, one by clone, one by vfork and one by posix_spawn.
    assert_eq!(traces.len(), 6, "{summary}");
    assert!(traces.iter().all(|t| t["allocations"].as_u64().unwrap() >= 50 && t["lost"] == 0), "{summary}");
}

#[test]
fn stacks_lead_to_the_code() {
    let Some(real) = Real::new() else { return };
    real.record("g.qtr", &["-g"], &["churn", "2000"], 0);
    let info = real.info("g.qtr");
    assert_eq!(info["trace"]["head"]["stacks"], "cfi");
    let sites = info["call_sites"].as_array().unwrap();
    let names = || sites.iter().flat_map(|site| site["frames"].as_array().unwrap()).filter_map(Value::as_str);
    assert!(
        names().any(|name| name.contains("churn")) && names().any(|name| name.contains("main")),
        "{sites:?}"
    );
}

#[test]
fn what_was_recorded_can_be_replayed() {
    let Some(real) = Real::new() else { return };
    let replayer = |dir: &Path| dir.join("quarry/quarry-replayer").is_file();
    if !replayer(&real.libraries) {
        eprintln!("skipped: needs quarry/quarry-replayer in {}", real.libraries.display());
        return;
    }
    for program in [&["family", "200", "2"][..], &["churn_threads", "3000", "3"], &["exchange", "4000", "3"]]
    {
        real.record("r.qtr", &[], program, 0);
        let info = real.info("r.qtr");
        let args =
            ["replay", "--with", "system", "--order", "strict", "-n", "1", "--verify", "--json", "r.qtr"];
        let replayed = real.run(&args).expect(0).json();
        // Live bytes in the exact order, computed by the two of them each for itself.
        assert_eq!(replayed["plan"]["peak_live_bytes"], info["live"]["peak_bytes"], "{program:?}");
        assert_eq!(replayed["plan"]["end_live_bytes"], info["live"]["end_bytes"], "{program:?}");
        assert_eq!(replayed["allocators"][0]["result"]["failed"], 0);
    }
}

#[test]
fn children_that_nobody_waits_for_are_said() {
    let Some(real) = Real::new() else { return };
    real.run(&["record", "-o", "w.qtr", "--", "sh", "-c", ": & exit 0"])
        .expect(0)
        .says("waited for none")
        .says("--follow");
    let ended = real.run(&["record", "-o", "w.qtr", "--", "sh", "-c", "exit 0"]).expect(0);
    assert!(!ended.stderr.contains("--follow"), "{}", ended.stderr);
}

#[test]
fn a_trace_is_packed_when_its_name_says_so() {
    let Some(real) = Real::new() else { return };
    for (name, mark) in [("p.qtr.zst", &[0x28, 0xb5, 0x2f, 0xfd][..]), ("p.qtr.gz", &[0x1f, 0x8b])] {
        // The second takes the place of the first.
        for rounds in ["1000", "2000"] {
            let summary = real.record(name, &[], &["churn", rounds], 0);
            let bytes = fs::read(real.bench.path("t").join(name)).unwrap();
            assert!(bytes.starts_with(mark), "{name}");
            assert_eq!(summary["traces"][0]["bytes"], bytes.len(), "{summary}");
            assert_eq!(real.info(name)["events"], summary["traces"][0]["events"], "{name}");
        }
        let quiet =
            real.run(&["record", "-q", "-o", name, "--", text(&real.program), "churn", "10"]).expect(0);
        assert!(
            quiet.stderr.is_empty() && fs::read(real.bench.path("t").join(name)).unwrap().starts_with(mark)
        );
    }
}
