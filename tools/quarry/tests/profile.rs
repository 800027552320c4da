// SPDX-License-Identifier: MIT
//! quarry profile: of programs whose memory is known, and of traces that are made here.

use std::path::PathBuf;

use serde_json::Value;

use crate::common::{Bench, Ended, libraries, schema, text};

/// Functions that hold, churn and leak. The work of each is known to the byte.
const PROGRAM: &str = r#"
#include <stdlib.h>
#include <string.h>
#define KEEP __attribute__((noinline, noclone))
static void *volatile kept[4096];
static void *volatile sink;
KEEP void held(void) { kept[0] = malloc(1000000); sink = 0; }
KEEP void freed(void) { void *block = malloc(3000000); sink = block; free(block); sink = 0; }
KEEP void leaking(int i) { kept[i + 1] = malloc(2000); sink = 0; }
KEEP void churning(void) { for (int i = 0; i < 500; i++) { sink = malloc(100); free(sink); } sink = 0; }
int main(int argc, char **argv) {
    held();
    freed();
    for (int i = 0; i < 400; i++) { leaking(i); }
    churning();
    return argc > 1 ? atoi(argv[1]) : 0;
}
"#;

pub struct Recorder {
    pub bench: Bench,
    pub libraries: PathBuf,
    pub program: String,
}

impl Recorder {
    pub fn new() -> Option<Self> {
        let bench = Bench::new()?;
        let libraries = libraries(&["libquarry-record.so"])?;
        let program = bench.compile("program", PROGRAM, &["-g", "-O1"]).expect("a program");
        let program = text(&program).to_owned();
        Some(Self { bench, libraries, program })
    }

    pub fn quarry(&self, args: &[&str]) -> Ended {
        let mut command = self.bench.quarry(args);
        command.env("QUARRY_LIB_DIR", &self.libraries);
        Ended::from(command.output().unwrap())
    }

    pub fn trace(&self, name: &str) -> String {
        let trace = text(&self.bench.path(name)).to_owned();
        self.quarry(&["record", "-q", "-g", "--symbolize", "-o", &trace, "--", &self.program]).expect(0);
        trace
    }

    pub fn json(&self, args: &[&str]) -> Value {
        let json = self.quarry(&[&["profile", "--json", "-q"], args].concat()).expect(0).json();
        check(&json);
        json
    }
}

/// What the schema document says.
pub fn check(json: &Value) {
    let schema: Value = serde_json::from_str(include_str!("../../../docs/profile.schema.json")).unwrap();
    let part = if json.get("diff").is_some() { "comparison" } else { "profile" };
    let mut rule = schema["$defs"][part].clone();
    rule["$defs"] = schema["$defs"].clone();
    let faults = schema::faults(&rule, json);
    assert!(faults.is_empty(), "{faults:#?}");
}

/// The group of a function.
fn group<'j>(json: &'j Value, name: &str) -> &'j Value {
    let groups = json["groups"].as_array().unwrap();
    let found = groups.iter().find(|group| group["name"].as_str().unwrap().starts_with(name));
    found.unwrap_or_else(|| panic!("no {name} in {groups:#?}"))
}

#[test]
fn a_program_is_recorded_and_reported() {
    let Some(recorder) = Recorder::new() else { return };
    let trace = text(&recorder.bench.path("kept.qtr")).to_owned();
    let json = recorder.json(&["--trace", &trace, "-n", "50", "--", &recorder.program]);
    let bytes = |name: &str, of: &str| group(&json, name)[of]["bytes"].as_u64().unwrap();
    assert_eq!((bytes("held", "peak"), bytes("freed", "peak")), (1_000_000, 3_000_000));
    assert_eq!(group(&json, "held")["end_bytes"], 1_000_000);
    assert_eq!(group(&json, "leaking")["end_bytes"], 800_000);
    assert_eq!(group(&json, "churning")["temporary"], 500);
    assert_eq!(group(&json, "churning")["allocated_bytes"], 50_000);
    let frames = group(&json, "leaking")["frames"].as_array().unwrap();
    assert!(frames[1].as_str().unwrap().starts_with("main at"), "{frames:?}");
    // The same from the trace that was kept, and sums that add up.
    let again = recorder.json(&["-n", "10000", &trace]);
    assert_eq!(again["groups"].as_array().unwrap().len(), again["group_count"].as_u64().unwrap() as usize);
    let sum = |of: &dyn Fn(&Value) -> u64| again["groups"].as_array().unwrap().iter().map(of).sum::<u64>();
    assert_eq!(sum(&|group| group["end_bytes"].as_u64().unwrap()), again["end"]["bytes"].as_u64().unwrap());
    assert_eq!(
        sum(&|group| group["at"]["bytes"].as_u64().unwrap()),
        again["peak"]["live"]["bytes"].as_u64().unwrap()
    );
    // info reads the same trace by itself.
    let info = recorder.quarry(&["info", "--json", &trace]).expect(0).json();
    assert_eq!(info["live"]["peak_bytes"], again["peak"]["live"]["bytes"]);
    assert_eq!(info["live"]["end_bytes"], again["end"]["bytes"]);
    let text = recorder.quarry(&["profile", &trace]).expect(0).stdout;
    for part in ["peak", "held at program.c:", "#", "ever rising", "half-life"] {
        assert!(text.contains(part), "no '{part}' in {text}");
    }
}

#[test]
fn views_agree() {
    let Some(recorder) = Recorder::new() else { return };
    let trace = recorder.trace("t.qtr");
    let tree = recorder.quarry(&["profile", "--tree", "--at", "end", &trace]).expect(0).stdout;
    let (from_main, below) = tree.split_once(" main at ").unwrap_or_else(|| panic!("no main in {tree}"));
    assert!(from_main.contains("100 %") && below.contains("held at program.c:"), "{tree}");
    let up = recorder.quarry(&["profile", "--tree=bottom-up", "--at", "end", &trace]).expect(0).stdout;
    let (_, below) = up.split_once("held at program.c:").unwrap();
    assert!(below.contains("main at program.c:"), "{up}");
    let functions = recorder.json(&["--by", "function", "--filter", "^leaking", &trace]);
    assert_eq!(
        (functions["group_count"].as_u64(), functions["groups"][0]["name"].as_str()),
        (Some(1), Some("leaking"))
    );
    // All numbers are then of what fits.
    let args = ["profile", "--filter", "^leaking", "--at", "end", "--waste", &trace];
    let filtered = recorder.quarry(&args).expect(0).stdout;
    let mut lines = filtered.lines().map(str::trim_start);
    let mut line = |begin: &str| lines.find(|line| line.starts_with(begin)).unwrap_or_default();
    assert!(line("peak").contains("of all") && line("at the end").contains("781 KiB"), "{filtered}");
    assert!(filtered.contains("leaking at") && !filtered.contains("held at"), "{filtered}");
    let sizes = recorder.json(&["--by", "size", "-n", "50", &trace]);
    assert_eq!(group(&sizes, "1.00 KiB …")["end_bytes"], 800_000);
    let threads = recorder.json(&["--by", "thread", &trace]);
    assert_eq!(threads["group_count"], 1);
    let modules = recorder.json(&["--by", "module", "-n", "50", &trace]);
    assert!(group(&modules, &recorder.program)["end_bytes"].as_u64().unwrap() >= 1_800_000);
    let hidden = recorder.json(&["--by", "function", "--hide", "^leaking$", "-n", "50", &trace]);
    assert!(group(&hidden, "main")["end_bytes"].as_u64().unwrap() >= 800_000);
    let window = recorder.json(&["--window", "0%..100%", "-n", "50", &trace]);
    assert_eq!(group(&window, "leaking")["window"]["growth_bytes"], 800_000);
    // In the table stands what grew, and what "lasting" is.
    let table = recorder.quarry(&["profile", "--window", "0%..100%", "-n", "50", &trace]).expect(0).stdout;
    assert!(table.contains("leaking at program.c:") && table.contains("\nlasting: growth from"), "{table}");
    assert!(!table.lines().any(|line| line.matches(" +0 B").count() == 2), "{table}");
    assert!(table.contains(" more without lasting growth\n"), "{table}");
    // After the end nothing is known.
    let late = recorder.json(&["--at", "1h", "--window", "1h..", &trace]);
    let end = late["duration_ns"].as_u64().unwrap();
    assert_eq!((&late["query"]["at_ns"], &late["query"]["window_ns"]), (&end.into(), &vec![end, end].into()));
    let waste = &recorder.json(&["--waste", "-n", "50", "--at", "end", &trace])["page_waste"];
    let sites = waste["sites"].as_array().unwrap();
    let sum: u64 = sites.iter().map(|site| site["waste_bytes"].as_u64().unwrap()).sum();
    assert_eq!(
        sum + waste["other_waste_bytes"].as_u64().unwrap(),
        waste["now"]["waste_bytes"].as_u64().unwrap()
    );
    assert!(sum > 0 && waste["course"].as_array().unwrap().len() > 10);
}

#[test]
fn limits_end_with_1_and_say_so() {
    let Some(recorder) = Recorder::new() else { return };
    let trace = recorder.trace("t.qtr");
    let run = |args: &[&str]| recorder.quarry(&[&["profile", &trace], args].concat());
    run(&["--max-peak", "5m", "--max-allocs", "2000", "--max-live-at-end", "2m"]).expect(0);
    let out = run(&["--max-peak", "3m"]).expect(1).stdout;
    assert!(
        out.lines().last().unwrap().starts_with("max-peak 3.00 MiB: ") && out.ends_with(", exceeded\n"),
        "{out}"
    );
    run(&["--max-allocs", "100"]).expect(1);
    run(&["--max-live-at-end", "1m"]).expect(1);
    let json = run(&["--max-live-at-end", "1m", "--json"]).expect(1).json();
    check(&json);
    assert_eq!(
        (&json["gates"][0]["gate"], &json["gates"][0]["kept"]),
        (&"max-live-at-end".into(), &false.into())
    );
    // The command's code comes first.
    recorder.quarry(&["profile", "-q", "--max-peak", "1", "--", &recorder.program, "7"]).expect(7);
    recorder.quarry(&["profile", "-q", "--max-peak", "1", "--", &recorder.program]).expect(1);
}

#[test]
fn what_changed_is_said_and_held_against_a_base() {
    let Some(mut recorder) = Recorder::new() else { return };
    let before = recorder.trace("before.qtr");
    let more = PROGRAM.replace("malloc(2000)", "malloc(2400)");
    recorder.program = text(&recorder.bench.compile("program", &more, &["-g", "-O1"]).unwrap()).to_owned();
    let after = recorder.trace("after.qtr");
    let json = recorder.json(&["--at", "end", &before, &after]);
    let sites = json["diff"]["sites"].as_array().unwrap();
    assert!(sites[0]["name"].as_str().unwrap().starts_with("leaking"), "{sites:#?}");
    assert_eq!((&sites[0]["change_bytes"], &sites[0]["significant"]), (&160_000.0.into(), &Value::Null));
    let json = recorder.json(&["--at", "end", "--by", "function", &before, &after]);
    assert_eq!(json["diff"]["sites"][0]["name"], "leaking");
    for silent in [&["--window", "0%..50%"][..], &["--sort", "live"], &["--tree"], &["--waste"]] {
        recorder.quarry(&[&["profile"], silent, &[&before, &after]].concat()).expect(2).says(silent[0]);
    }
    let json = recorder.json(&["--at", "1h", &before]);
    assert_eq!(json["query"]["at_ns"], json["duration_ns"], "nothing is known of later");
    let several = format!("{before},{before}");
    let json = recorder.json(&["--at", "end", "--diff", &several, &format!("{after},{after}")]);
    assert_eq!(json["diff"]["sites"][0]["significant"], true);
    let fail = |rule: &str| recorder.quarry(&["profile", "--at", "end", "--fail-if", rule, &before, &after]);
    let failed = fail("site:^leaking +10%").expect(1).stdout;
    assert!(failed.contains(" at the end, before "), "{failed}");
    fail("site:^leaking +25%").expect(0);
    fail("site:^held +0%").expect(0);
    let base = ["profile", "-q", "--at", "end", "--base", &before, "--fail-if", "site:^leaking +10%", "--"];
    recorder.quarry(&[&base[..], &[&recorder.program]].concat()).expect(1);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let Some(bench) = Bench::new() else { return };
    bench.run(&["profile"]).expect(2);
    for wanted in [&["-p", "1"][..], &["--", "true"], &["a.qtr"]] {
        bench
            .run(&[&["profile", "-o", "kept.qtr"], wanted].concat())
            .expect(2)
            .says("--trace FILE keeps the trace");
    }
    for silent in [&["--trace", "kept.qtr"][..], &["--sample", "1k"], &["--with", "jemalloc"]] {
        bench.run(&[&["profile", "a.qtr"], silent].concat()).expect(2).says(silent[0]);
    }
    bench.run(&["profile", "-o", "kept.svg", "a.qtr"]).expect(2);
    bench.run(&["profile", "no-such-file"]).expect(1).says("no-such-file");
    bench.run(&["profile", "--fail-if", "site:x +1%", "a"]).expect(2).says("--base");
    bench.run(&["profile", "--fail-if", "x", "a", "b"]).expect(2).says("site:REGEX");
    bench.run(&["profile", "--at", "yesterday", "a"]).expect(2);
    bench.run(&["profile", "--hide", "(", "a"]).expect(2);
    let trace = text(&bench.path("t.qtr")).to_owned();
    bench.run(&["gen", "-q", "--allocations", "2000", "-o", &trace]).expect(0);
    bench.run(&["profile", "--window", "50%..10%", &trace]).expect(2).says("B is before A");
    bench.run(&["profile", "--format", "text", "-o", &trace, &trace]).expect(2).says("would be written over");
    let text = bench.run(&["profile", &trace]).expect(0);
    assert!(text.stdout.contains("(no stack recorded)"), "{}", text.stdout);
    text.says("record with -g");
}

#[test]
fn events_that_only_the_end_knows_of_are_lost() {
    let Some(bench) = Bench::new() else { return };
    let trace = bench.path("lost.jsonl");
    let lines = "{\"op\":\"alloc\",\"size\":5,\"address\":16}\n{\"end\":{\"reason\":\"exit\",\"lost\":3}}\n";
    std::fs::write(&trace, lines).unwrap();
    let json = bench.run(&["profile", "-q", "--json", text(&trace)]).expect(0).json();
    assert_eq!(json["trace"]["lost"], 3);
    let said = bench.run(&["profile", "-q", text(&trace)]).expect(0).stdout;
    assert!(said.contains("3 events, which are in no sum"), "{said}");
}

#[test]
fn a_call_stack_in_two_threads_is_one() {
    let Some(bench) = Bench::new() else { return };
    let (lines, page) = (bench.path("threads.jsonl"), bench.path("threads.html"));
    let alloc = |thread: u32| {
        format!(
            "{{\"op\":\"alloc\",\"size\":5,\"address\":{},\"thread\":{thread},\"stack\":1}}\n",
            16 * thread
        )
    };
    let stack = String::from("{\"op\":\"stack\",\"id\":1,\"pc\":4096}\n");
    std::fs::write(&lines, stack + &alloc(1) + &alloc(2)).unwrap();
    for by in ["site", "thread"] {
        bench.run(&["profile", "-q", "--by", by, "-o", text(&page), text(&lines)]).expect(0);
        let html = std::fs::read_to_string(&page).unwrap();
        assert!(html.contains("10 B were allocated, from 1 call stack."), "{by}: {html}");
    }
}

/// What is live where the recording ends is no leak, and limits say nothing of the rest.
#[test]
fn a_recording_that_stopped_early_is_told() {
    let Some(bench) = Bench::new() else { return };
    let trace = bench.path("whole.qtr");
    bench.run(&["gen", "-q", "--allocations", "2000", "-o", text(&trace)]).expect(0);
    const EARLY: &str = "what is live at its last event may have been freed later";
    let whole = bench.run(&["profile", text(&trace)]).expect(0);
    assert!(!whole.stderr.contains(EARLY), "{}", whole.stderr);
    let bytes = std::fs::read(&trace).unwrap();
    let end = bytes.windows(5).rposition(|window| window == b"QTRB\x03").unwrap();
    std::fs::write(&trace, &bytes[..end]).unwrap();
    bench.run(&["profile", text(&trace)]).expect(0).says("it has no end: the program was killed").says(EARLY);
    let ended = |reason: &str| {
        let lines = bench.path("ended.jsonl");
        let end = format!("{{\"end\":{{\"reason\":\"{reason}\"}}}}\n");
        std::fs::write(&lines, String::from("{\"op\":\"alloc\",\"size\":5,\"address\":16}\n") + &end)
            .unwrap();
        bench.run(&["profile", text(&lines)]).expect(0)
    };
    ended("disk full").says("recording stopped before the program did: disk full").says(EARLY);
    for reason in ["", "exit", "crash", "killed", "detached"] {
        let said = ended(reason).stderr;
        assert!(!said.contains(EARLY), "{reason}: {said}");
    }
}

/// What takes the place of older blocks rises as a leak does, and a sample of a running process has no older ones.
#[test]
fn a_sample_of_a_running_process_proves_no_leak() {
    let Some(bench) = Bench::new() else { return };
    let lines = bench.path("late.jsonl");
    let said = |reason: &str| {
        let mut all = String::from("{\"head\":{\"ticks_per_second\":1000000000}}\n");
        for n in 1..=100u64 {
            let (time, address) = (n * 100_000_000, n * 4096);
            all += &format!("{{\"t\":{time},\"op\":\"alloc\",\"size\":1000,\"address\":{address}}}\n");
        }
        all += &format!("{{\"end\":{{\"reason\":\"{reason}\"}}}}\n");
        std::fs::write(&lines, all).unwrap();
        bench.run(&["profile", "-q", text(&lines)]).expect(0).stdout
    };
    assert!(said("exit").contains("ever rising: probably a leak."));
    let late = said("detached");
    assert!(late.contains("ever rising: a leak, or blocks that replace older ones"), "{late}");
}

#[test]
fn sums_of_a_sample_have_bounds() {
    let Some(recorder) = Recorder::new() else { return };
    let args = ["--sample", "4k", "-n", "50", "--", &recorder.program];
    let json = recorder.json(&args);
    assert_eq!(json["sample"]["mean_bytes"], 4096);
    assert_eq!(json["totals"]["temporary"], Value::Null);
    let leaking = group(&json, "leaking");
    let bounds = leaking["end_bytes_interval"].as_array().unwrap();
    let [low, high] = [0, 1].map(|at| bounds[at].as_u64().unwrap());
    let value = leaking["end_bytes"].as_u64().unwrap();
    // Far beyond the interval, so that it fails once in many million runs.
    assert!(low < value && value < high && (400_000..1_400_000).contains(&value), "{leaking}");
    let text = recorder.quarry(&[&["profile", "-q"], &args[..]].concat()).expect(0).stdout;
    assert!(text.contains(" … ") && text.contains("one byte in 4.00 KiB"), "{text}");
    // Each number of the tree has its bounds, or is one.
    let tree =
        recorder.quarry(&[&["profile", "-q", "--tree", "--at", "end"], &args[..]].concat()).expect(0).stdout;
    let lines: Vec<&str> =
        tree.lines().filter(|line| line.contains(" % ") && line.contains("program.c:")).collect();
    assert!(
        !lines.is_empty() && lines.iter().all(|line| line.contains(" … ") || line.contains('≤')),
        "{tree}"
    );
    // So has what was live at the peak, on a page of another moment.
    for (at, sums) in [("peak", 4), ("end", 5)] {
        let page = recorder.bench.path("page.html");
        let asked = [&["profile", "-q", "--at", at, "-o", page.to_str().unwrap()], &args[..]].concat();
        recorder.quarry(&asked).expect(0);
        let html = std::fs::read_to_string(&page).unwrap();
        let (_, data) = html.split_once("id=\"data\">").unwrap();
        let data: Value = serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap();
        assert_eq!(data["down"]["bounds"][0].as_array().unwrap().len(), 3 * sums, "{at}");
    }
    let window = recorder.json(&[&["--window", ".."], &args[..]].concat());
    let parts = window["groups"].as_array().unwrap().iter().map(|group| &group["window"]);
    assert!(parts.clone().any(|part| part.get("allocated_bytes_interval").is_some()), "{window:#}");
}

const POOLS: &str = r#"
#include <quarry/fifo.h>
#include <quarry/short.h>
#define KEEP __attribute__((noinline, noclone))
typedef struct { char bytes[500]; } request;
static void *volatile sink;
static request *all[1000];
KEEP void scoped(int n) { t_scope; for (int i = 0; i < n; i++) { sink = t_new(char, 100); } sink = 0; }
KEEP void queue_up(quarry_pool_t *queue) { for (int i = 0; i < 1000; i++) { all[i] = p_new(queue, request, 1); } sink = 0; }
KEEP void take_out(quarry_pool_t *queue) { for (int i = 0; i < 400; i++) { p_delete(queue, &all[i]); } sink = 0; }
int main(void) {
    quarry_pool_t *queue = quarry_fifo_create(NULL);
    scoped(300);
    queue_up(queue);
    take_out(queue);
    return 0;
}
"#;

#[test]
fn blocks_of_pools_come_from_the_site_that_asked() {
    let Some(recorder) = Recorder::new() else { return };
    if libraries(&["libquarry.so"]).is_none() {
        return;
    }
    let include = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/../../include");
    let folder = recorder.libraries.display();
    let (search, run) = (format!("-L{folder}"), format!("-Wl,-rpath,{folder}"));
    let program = recorder.bench.compile("pools", POOLS, &["-g", "-O1", include, &search, "-lquarry", &run]);
    let json = recorder.json(&["-n", "50", "--", text(&program.expect("a program with pools"))]);
    let queued = group(&json, "queue_up at pools.c");
    assert!(queued["name"].as_str().unwrap().ends_with("(pool fifo)"), "{queued}");
    assert_eq!((&queued["peak"]["bytes"], &queued["end_bytes"]), (&500_000.into(), &300_000.into()));
    let scoped = group(&json, "scoped at pools.c");
    assert_eq!((&scoped["allocated_bytes"], &scoped["end_bytes"]), (&30_000.into(), &0.into()));
    // What is live at the end is what was asked of pools, and what malloc gave beside them: no chunk is counted beside its blocks.
    let groups = json["groups"].as_array().unwrap().iter();
    let sum: u64 = groups.map(|group| group["end_bytes"].as_u64().unwrap()).sum();
    assert_eq!(sum, json["end"]["bytes"].as_u64().unwrap());
}
