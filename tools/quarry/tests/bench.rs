// SPDX-License-Identifier: MIT
//! quarry bench: on programs and allocators made for the occasion, each allocator with one vice.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::common::{Bench, Ended, PATIENCE, kill, nothing_ignored, schema, text};
use serde_json::{Value, json};

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

/// Gives every block of 48 bytes the same address.
const OVERLAPS: &str = "
#include <stddef.h>
void *__libc_malloc(size_t);
void __libc_free(void *);
static _Alignas(16) char one[48];
void *malloc(size_t n) { return n == 48 ? one : __libc_malloc(n); }
void free(void *p) { if (p != one) __libc_free(p); }
";

const CRASHES: &str = "
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>
void *__libc_malloc(size_t);
void *malloc(size_t n) {
    if (n == 48 && write(2, \"heap: broken block\\n\", 19)) abort();
    return __libc_malloc(n);
}";

const HANGS: &str = "
#include <stddef.h>
#include <unistd.h>
void *__libc_malloc(size_t);
void *malloc(size_t n) {
    while (n == 48) pause();
    return __libc_malloc(n);
}";

/// Two phases; an option for each axis; values, a curve, counters.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
int main(int argc, char **argv) {
    const char *with = "malloc";
    int count = 1000, threads = 1;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--with")) with = argv[i + 1];
        if (!strcmp(argv[i], "--count")) count = atoi(argv[i + 1]);
        if (!strcmp(argv[i], "--threads")) threads = atoi(argv[i + 1]);
    }
    if (argc > 1 && !strcmp(argv[1], "--help")) return 0;
    if (threads == 3) return fprintf(stderr, "three is too many\n"), 77;
    if (getenv("TINY_FAIL")) return fprintf(stderr, "told to fail\n"), 1;
    double start = now();
    long **blocks = malloc((size_t)count * sizeof *blocks), sum = 0;
    for (int i = 0; i < count; i++) {
        blocks[i] = malloc(48);
        blocks[i][0] = i;
    }
    double middle = now();
    for (int i = 0; i < count; i++) {
        sum += blocks[i][0] * (i % 7);
        free(blocks[i]);
    }
    double end = now();
    for (int phase = 0; phase < 2; phase++)
        printf("{\"scenario\":\"tiny\",\"phase\":\"%s\",\"allocator\":\"%s\",\"seconds\":%.9f,\"operations\":%d,\"payload_bytes\":%d,\"check\":\"%ld\","
               "\"values\":{\"knob\":%s},\"series\":{\"columns\":[\"x\",\"y_bytes\"],\"rows\":[[1,2],[2,3]]},\"counters\":{\"page_faults\":3,\"cycles\":null}}\n",
            phase ? "free" : "alloc", with, phase ? end - middle : middle - start, count, 48 * count, sum, getenv("TINY_KNOB") ? getenv("TINY_KNOB") : "0");
    free(blocks);
    return 0;
}
"#;

const CATALOG: &str = r#"
[[scenario]]
name = "tiny"
title = "A tiny scenario"
program = "tiny"
shows = "Blocks that are made and freed, under all mallocs."
not_shown = "Anything else."
with = ["mallocs", "pool-a", "nothing"]
quick = { count = 20000 }
full = { count = 40000 }
smoke = { count = 10 }
x = "threads"
charts = ["bars", "time", "speedup", "rss", "value:knob", "series"]
[[scenario.axes]]
name = "threads"
quick = [1, 2]
full = [1, 2]
smoke = [1]
[[scenario.variants]]
name = "quarry knob"
of = "quarry"
env = { TINY_KNOB = "{threads}" }

[[scenario]]
name = "script"
title = "A program that knows nothing of us"
program = "hello.sh"
kind = "output"
shows = "The time of a whole program."
not_shown = "Its phases."
with = ["mallocs"]
charts = ["bars"]

[[scenario]]
name = "absent"
title = "Not built"
program = "absent"
shows = "Nothing."
not_shown = "Nothing."
with = ["mallocs"]
charts = ["bars"]
"#;

pub struct Tried {
    pub bench: Bench,
    catalog: PathBuf,
}

impl Tried {
    pub fn new() -> Option<Self> {
        let bench = Bench::new()?;
        fs::create_dir_all(bench.path("quarry/bench")).unwrap();
        bench.compile("quarry/bench/tiny", PROGRAM, &["-O1", "-fno-builtin-malloc"]).unwrap();
        bench.library("libquarry-malloc", FORWARDS);
        bench.script("quarry/bench/hello.sh", "#!/bin/sh\necho hello\n");
        let catalog = bench.path("catalog.toml");
        fs::write(&catalog, CATALOG).unwrap();
        Some(Self { bench, catalog })
    }

    fn args<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        [&["bench", "--catalog", text(&self.catalog)], more].concat()
    }

    pub fn run(&self, more: &[&str]) -> Ended {
        self.bench.run(&self.args(more))
    }

    fn library(&self, name: &str, source: &str) -> String {
        format!("{name}={}", self.bench.library(&format!("lib{name}"), source).display())
    }
}

/// The cells of a scenario under a contender.
fn cells<'a>(json: &'a Value, scenario: &str, contender: &str) -> Vec<&'a Value> {
    let all = json["cells"].as_array().unwrap().iter();
    all.filter(|cell| cell["scenario"] == scenario && cell["contender"] == contender).collect()
}

#[test]
fn every_run_is_in_the_json_and_fits_the_schema() {
    let Some(tried) = Tried::new() else { return };
    let ended = tried.run(&["--json", "-n", "3", "--with", "quarry"]).expect(0);
    ended.says("absent is left out").says("quarry/bench");
    let json = ended.json();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/bench-result.schema.json");
    let rules: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    assert_eq!(schema::faults(&rules, &json), Vec::<String>::new());
    // And the schema notices what is wrong.
    let mut wrong = json.clone();
    wrong["cells"][0]["status"] = json!("fine");
    wrong["machine"]["more"] = json!(1);
    assert_eq!(schema::faults(&rules, &wrong).len(), 2);

    assert_eq!((&json["size"], &json["rounds"], &json["warmup"]), (&json!("quick"), &json!(3), &json!(1)));
    for contender in ["system", "quarry", "quarry knob", "pool-a", "nothing"] {
        let cells = cells(&json, "tiny", contender);
        assert_eq!(cells.len(), 4, "two points, two phases: {contender}");
        for cell in cells {
            assert_eq!((&cell["status"], &cell["operations"]), (&json!("ok"), &Value::Null));
            let runs = cell["runs"].as_array().unwrap();
            assert_eq!(runs.iter().map(|run| run["round"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2, 3]);
            assert!(
                runs.iter().all(|run| run["operations"] == 20000.0 && run["seconds"].as_f64() > Some(0.0)),
                "{cell:#}"
            );
            assert!(
                runs.iter().all(|run| run["peak_rss_kib"].as_f64() > Some(500.0) && run["faults"] == 3.0)
            );
            assert_eq!(cell["payload_bytes"], 960_000.0);
            assert_eq!(cell["series"]["rows"], json!([[1.0, 2.0], [2.0, 3.0]]));
            let knob = if contender == "quarry knob" { cell["point"]["threads"].as_f64() } else { Some(0.0) };
            assert_eq!(runs[0]["values"]["knob"].as_f64(), knob);
        }
    }
    let script = cells(&json, "script", "quarry");
    assert_eq!((script.len(), &script[0]["status"]), (1, &json!("ok")));
    assert!(script[0]["check"].as_str().unwrap().starts_with("6 "), "{script:?}");
    let best = cells(&json, "tiny", "system").into_iter().chain(cells(&json, "tiny", "quarry"));
    assert!(best.filter(|cell| cell["summary"]["time_ratio"]["ratio"] == 1.0).count() >= 4);
    assert!(json["scenarios"][2]["missing"].as_str().unwrap().contains("absent was not found"), "{json:#}");
}

#[test]
fn tables_name_all_and_explain_themselves() {
    let Some(tried) = Tried::new() else { return };
    let ended = tried.run(&["-n", "3", "--with", "quarry", "tiny"]).expect(0);
    assert_eq!(ended.stderr, "", "no progress bar in a pipe");
    for word in [
        "tiny: A tiny scenario",
        "threads 2, free",
        "pool-a (pool)",
        "no allocator",
        "Who took part",
        "geometric mean",
        "median",
        "seed",
        "faults",
    ] {
        assert!(ended.stdout.contains(word), "no '{word}' in {}", ended.stdout);
    }
    assert!(!ended.stdout.contains('\x1b') && !ended.stdout.contains("script"));
}

#[test]
fn a_seed_repeats_the_order_and_smoke_is_one_run() {
    let Some(tried) = Tried::new() else { return };
    let json = tried.run(&["--smoke", "--json", "--with", "system", "--seed", "5"]).expect(0).json();
    assert_eq!((&json["seed"], &json["rounds"], &json["warmup"]), (&json!(5), &json!(1), &json!(0)));
    assert_eq!(cells(&json, "tiny", "system")[0]["runs"].as_array().unwrap().len(), 1);
    assert!(cells(&json, "tiny", "quarry").is_empty(), "it was not asked for");
}

#[test]
fn the_full_set_says_how_long_it_takes() {
    let Some(tried) = Tried::new() else { return };
    let ended = tried.run(&["--full", "-n", "1", "--with", "system", "tiny"]).expect(0);
    ended.says("12 runs, 1 round and a warm-up: about");
    let ended = tried.run(&["--full", "-q", "-n", "1", "--with", "system", "tiny"]).expect(0);
    assert_eq!(ended.stderr, "");
}

#[test]
fn bad_allocators_are_shown_and_stop_nobody() {
    let Some(tried) = Tried::new() else { return };
    let wishes = [
        tried.library("wrong", OVERLAPS),
        tried.library("crash", CRASHES),
        tried.library("hang", HANGS),
        tried.library("idle", "int idle;"),
    ];
    let start = Instant::now();
    let wishes = wishes.join(",");
    let args = ["--json", "-n", "2", "--timeout", "5", "--with", &wishes, "tiny"];
    let ended = tried.run(&args).expect(1);
    assert!(start.elapsed() < PATIENCE);
    ended.says("idle is not run: the dynamic linker takes malloc from another library");
    let json = ended.json();
    for (name, status, reason) in [
        ("wrong", "wrong", "under system it is"),
        ("crash", "failed", "SIGABRT: heap: broken block"),
        ("hang", "timed_out", "killed after 5 s"),
        ("idle", "not_run", "takes malloc from another library"),
    ] {
        let cells = cells(&json, "tiny", name);
        assert!(!cells.is_empty(), "{name}");
        for cell in cells {
            assert_eq!(cell["status"], status, "{cell:#}");
            assert!(cell["reason"].as_str().unwrap().contains(reason), "{cell:#}");
            assert!(cell["runs"].as_array().unwrap().is_empty(), "the warm-up found it: {cell:#}");
        }
    }
    assert!(cells(&json, "tiny", "system").iter().all(|cell| cell["status"] == "ok"));
    let wrong = tried.library("wrong", OVERLAPS);
    let ended = tried.run(&["-n", "2", "--with", &format!("quarry,{wrong}"), "tiny"]).expect(1);
    assert!(ended.stdout.contains("wrong result: the result of alloc is"), "{}", ended.stdout);
}

#[test]
fn what_has_no_meaning_is_no_failure() {
    let Some(tried) = Tried::new() else { return };
    fs::write(&tried.catalog, CATALOG.replace("quick = [1, 2]", "quick = [1, 3]")).unwrap();
    let json = tried.run(&["--json", "-n", "1", "--with", "system", "tiny"]).expect(0).json();
    let three: Vec<&Value> =
        cells(&json, "tiny", "system").into_iter().filter(|cell| cell["point"]["threads"] == 3).collect();
    assert_eq!((three.len(), &three[0]["status"]), (1, &json!("not_applicable")));
    assert_eq!(three[0]["reason"], "three is too many");
}

#[test]
fn pages_and_pictures_are_written() {
    let Some(tried) = Tried::new() else { return };
    let dir = tried.bench.path("report");
    tried.run(&["-n", "3", "--with", "quarry", "--dir", text(&dir)]).expect(0);
    let page = fs::read_to_string(dir.join("index.html")).unwrap();
    for word in [
        "<!DOCTYPE html>",
        "viewport",
        "prefers-color-scheme",
        "Winners",
        "A tiny scenario",
        "Not shown: Anything else.",
        "Not run: absent",
        "<desc>",
    ] {
        assert!(page.contains(word), "no {word}");
    }
    // Nothing from elsewhere.
    for word in ["http://", "https://", "<script", "src="] {
        let own = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!own.contains(word), "{word}");
    }
    for picture in [
        "heat-time",
        "heat-peak-rss",
        "mean-time",
        "tiny-rate-threads-1--alloc",
        "tiny-time-free",
        "tiny-speedup-alloc",
        "tiny-rss",
        "tiny-knob-alloc",
        "tiny-series-threads-2--free",
        "script-rate",
    ] {
        let file = dir.join(format!("{picture}.svg"));
        let svg = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{picture}: {error}"));
        assert!(svg.starts_with("<?xml") && svg.contains("</svg>"), "{picture}");
    }
    assert!(fs::read_to_string(dir.join("tables.txt")).unwrap().contains("Who took part"));
    // The same again, from what was written.
    let again = tried.bench.path("again");
    let result = dir.join("result.json");
    tried.bench.run(&["bench", "--from", text(&result), "--dir", text(&again)]).expect(0);
    assert_eq!(fs::read_to_string(again.join("index.html")).unwrap(), page);
}

#[test]
fn a_baseline_shows_what_has_changed() {
    let Some(tried) = Tried::new() else { return };
    // Of a real result, so that it has the form; but with figures that are the same for all but for a little noise, so
    // that only what is changed below has changed, however busy the machine is.
    let mut json = tried.run(&["--smoke", "--json", "--with", "quarry", "tiny"]).expect(0).json();
    let shape =
        |cell: &Value| [&cell["contender"], &cell["phase"], &cell["status"]].map(Value::to_string).join(" ");
    let shapes: Vec<String> = json["cells"].as_array().unwrap().iter().map(shape).collect();
    assert!(shapes.len() == 10 && shapes.iter().all(|shape| shape.ends_with("\"ok\"")), "{shapes:#?}");
    let steady = |json: &mut Value, factor: f64| {
        for cell in json["cells"].as_array_mut().unwrap() {
            let slow = if cell["contender"] == "quarry" { factor } else { 1.0 };
            let run = cell["runs"][0].clone();
            let runs = (0..5).map(|index| {
                let mut run = run.clone();
                run["round"] = json!(index + 1);
                run["seconds"] = json!(0.2 * slow * (1.0 + 0.004 * f64::from(index)));
                run["peak_rss_kib"] = json!(2000.0);
                run
            });
            cell["runs"] = runs.collect();
        }
    };
    let mut save = |name: &str, factor: f64| {
        steady(&mut json, factor);
        let path = tried.bench.path(name);
        fs::write(&path, json.to_string()).unwrap();
        path
    };
    let (old, same, slow) = (save("old.json", 1.0), save("same.json", 1.0), save("slow.json", 1.1));
    let compare = |now: &PathBuf, then: &PathBuf, more: &[&str]| {
        tried.bench.run(&[&["bench", "--from", text(now), "--baseline", text(then)], more].concat())
    };
    let ended = compare(&same, &old, &[]).expect(0);
    assert!(ended.stdout.contains(": 0 worse, 0 better, 20 the same"), "{}", ended.stdout);
    let ended = compare(&slow, &old, &[]).expect(1);
    assert!(ended.stdout.contains(": 2 worse, 0 better, 18 the same"), "{}", ended.stdout);
    assert!(ended.stdout.contains("quarry time 1.100 (2)"), "{}", ended.stdout);
    assert!(compare(&old, &slow, &[]).expect(0).stdout.contains(": 0 worse, 2 better"));
    compare(&slow, &old, &["--floor", "15"]).expect(0);
    let json = compare(&slow, &old, &["--json"]).expect(1).json();
    let worse: Vec<&Value> = json["comparison"]["changes"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|change| change["verdict"] == "worse")
        .collect();
    assert!(
        worse.len() == 2
            && worse.iter().all(|change| change["contender"] == "quarry" && change["controls"] == 1)
    );
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/bench-result.schema.json");
    let rules: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    assert_eq!(schema::faults(&rules, &json), Vec::<String>::new());
    let page = tried.bench.path("page");
    compare(&slow, &old, &["--dir", text(&page)]).expect(1);
    assert!(fs::read_to_string(page.join("index.html")).unwrap().contains("Since the baseline"));
}

#[test]
fn errors_say_what_to_do() {
    let Some(tried) = Tried::new() else { return };
    tried.run(&["tinny"]).expect(2).says("did you mean tiny?").says("--list");
    tried.run(&["absent"]).expect(1).says("nothing can be run");
    tried.run(&["--with", "fooalloc"]).expect(2).says("fooalloc");
    tried.run(&["--quick", "--full"]).expect(2);
    tried.bench.run(&["bench", "--from", "/no/such/file"]).expect(125).says("/no/such/file");
    let junk = tried.bench.path("junk.json");
    fs::write(&junk, "{\"schema\":\"quarry-bench/9\"}").unwrap();
    tried
        .bench
        .run(&["bench", "--from", text(&junk)])
        .expect(125)
        .says("quarry-bench/9")
        .says("quarry-bench/3");
    fs::write(&junk, "{}").unwrap();
    tried.run(&["--baseline", text(&junk), "tiny"]).expect(125).says("is no result of quarry bench");
    fs::write(&tried.catalog, "[[scenario]]\nname = 1\n").unwrap();
    tried.run(&["--list"]).expect(125).says("the catalogue of scenarios");
}

#[test]
fn our_own_catalogue_is_listed() {
    let Some(bench) = Bench::new() else { return };
    let text = bench.run(&["bench", "--list"]).expect(0).stdout;
    assert!(text.lines().any(|line| line.starts_with("small-churn ")), "{text}");
    let all = bench.run(&["bench", "--list", "--json", "tree"]).expect(0).json();
    assert_eq!((all.as_array().unwrap().len(), &all[0]["name"]), (1, &json!("tree")));
    assert!(all[0]["shows"].as_str().unwrap().len() > 40);
}

/// A long measurement, of which two rounds are done, is stopped by this signal. Its result is in a folder or a file.
fn stopped(tried: &Tried, place: &Path, signal: &str) -> std::process::Output {
    let option = if place.extension().is_some() { "-o" } else { "--dir" };
    let args = tried.args(&["-n", "5000", "--with", "system", "tiny", option, text(place)]);
    let mut command = nothing_ignored(&tried.bench.quarry(args));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    let rounds = || result(place)?["rounds"].as_u64();
    while rounds().is_none_or(|rounds| rounds < 2) {
        assert!(start.elapsed() < PATIENCE && child.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(20));
    }
    kill(signal, child.id());
    child.wait_with_output().unwrap()
}

fn file_of(place: &Path) -> PathBuf {
    if place.is_dir() { place.join("result.json") } else { place.to_owned() }
}

fn result(place: &Path) -> Option<Value> {
    serde_json::from_str(&fs::read_to_string(file_of(place)).ok()?).ok()
}

#[test]
fn a_signal_leaves_what_was_measured() {
    let Some(tried) = Tried::new() else { return };
    let dir = tried.bench.path("report");
    let ended = Ended::from(stopped(&tried, &dir, "INT")).expect(130);
    ended.says("SIGINT stopped the measurement after");
    let json = result(&dir).unwrap();
    assert_eq!(json["interrupted"], true);
    let runs = cells(&json, "tiny", "system")[0]["runs"].as_array().unwrap().len() as u64;
    assert_eq!(json["rounds"].as_u64(), Some(runs));
}

#[test]
fn a_kill_leaves_the_last_rounds_that_were_written() {
    let Some(tried) = Tried::new() else { return };
    for place in ["report", "a.json"].map(|name| tried.bench.path(name)) {
        stopped(&tried, &place, "KILL");
        let json = result(&place).unwrap();
        let cell = cells(&json, "tiny", "system")[0];
        assert_eq!((&json["interrupted"], &cell["summary"]), (&json!(true), &Value::Null));
        let again = tried.bench.run(&["bench", "--json", "--from", text(&file_of(&place))]).expect(0).json();
        assert!(cells(&again, "tiny", "system")[0]["summary"]["seconds"]["median"].as_f64() > Some(0.0));
    }
}

#[test]
fn options_that_would_do_nothing_are_refused() {
    let Some(bench) = Bench::new() else { return };
    bench.run(&["bench", "--floor", "9"]).expect(2).says("--baseline");
    bench.run(&["bench", "--from", "result.json", "--lib", "/lib/x.so"]).expect(2).says("--lib");
}

#[test]
fn an_error_in_a_later_round_leaves_the_rounds_before() {
    let Some(tried) = Tried::new() else { return };
    let (starts, dir) = (tried.bench.path("starts"), tried.bench.path("report"));
    // Two runs are a round, and the first two the warm-up.
    let removed_at = |start: u32| {
        fs::write(&starts, "").unwrap();
        let count = format!("echo >> {0}; [ $(wc -l < {0}) != {start} ]", starts.display());
        let program =
            tried.bench.script("quarry/bench/hello.sh", &format!("#!/bin/sh\n{count} || rm \"$0\"\n"));
        let ended =
            tried.run(&["-n", "9", "--with", "quarry", "--json", "script", "--dir", text(&dir)]).expect(125);
        ended.says(text(&program));
        ended
    };
    assert_eq!(removed_at(3).stdout, "");
    assert_eq!(result(&dir), None);
    let ended = removed_at(5);
    ended.says("the measurement ended after 1 complete rounds").says("until the measurement has ended");
    for json in [ended.json(), result(&dir).unwrap()] {
        assert_eq!((&json["rounds"], &json["interrupted"]), (&json!(1), &json!(true)));
        for who in ["system", "quarry"] {
            let cell = cells(&json, "script", who)[0];
            assert_eq!((&cell["status"], cell["runs"].as_array().unwrap().len()), (&json!("ok"), 1));
        }
    }
}

#[test]
fn a_file_that_cannot_be_written_costs_no_other() {
    let Some(tried) = Tried::new() else { return };
    let dir = tried.bench.path("report");
    let page = dir.join("index.html");
    fs::create_dir_all(&page).unwrap();
    let ended =
        tried.run(&["-n", "1", "--with", "quarry", "--json", "script", "--dir", text(&dir)]).expect(125);
    ended.says(text(&page));
    assert_eq!(ended.json()["rounds"], 1);
    assert_eq!(result(&dir).unwrap()["interrupted"], false);
    assert!(dir.join("tables.txt").exists() && dir.join("script-rate.svg").exists());
}
