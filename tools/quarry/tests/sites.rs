// SPDX-License-Identifier: MIT
//! Where blocks come from, of programs that compilers of this machine make: containers are folded, all stacks are there,
//! and a sample says of each site what is true. Needs the recorder, as record_real.rs does.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::common::{Bench, Ended, libraries, text};

struct Recorder {
    bench: Bench,
    libraries: PathBuf,
}

impl Recorder {
    /// `None`, and a word about it, where something is missing.
    fn new(compiler: &str) -> Option<Self> {
        let bench = Bench::new()?;
        let libraries = libraries(&["libquarry-record.so"])?;
        if Command::new(compiler).arg("--version").output().is_err() {
            eprintln!("skipped: needs {compiler}");
            return None;
        }
        Some(Self { bench, libraries })
    }

    /// Compile it; the program.
    fn compile(&self, compiler: &str, options: &[&str], ending: &str, source: &str) -> String {
        let (file, program) = (self.bench.path(&format!("source.{ending}")), self.bench.path("program"));
        fs::write(&file, source).unwrap();
        let done = Command::new(compiler).args(options).arg(&file).arg("-o").arg(&program).output().unwrap();
        assert!(done.status.success(), "{compiler} {options:?}: {}", String::from_utf8_lossy(&done.stderr));
        text(&program).to_owned()
    }

    fn quarry(&self, args: &[&str]) -> Ended {
        let mut command = self.bench.quarry(args);
        command.env("QUARRY_LIB_DIR", &self.libraries);
        Ended::from(command.output().unwrap())
    }

    /// Record it; the trace.
    fn record(&self, options: &[&str], program: &str) -> String {
        let trace = text(&self.bench.path("t.qtr")).to_owned();
        self.quarry(&[&["record", "-q", "-g", "-o", &trace], options, &["--", program]].concat()).expect(0);
        trace
    }

    fn info(&self, trace: &str, options: &[&str]) -> Value {
        self.quarry(&[&["info", "--json", trace], options].concat()).expect(0).json()
    }
}

/// Bytes of the sites whose function has this name.
fn bytes_of(info: &Value, name: &str) -> u64 {
    let sites = info["call_sites"].as_array().unwrap().iter();
    let is_one = |site: &&Value| site["frames"][0].as_str().unwrap().contains(name);
    sites.filter(is_one).map(|site| site["bytes"].as_u64().unwrap()).sum()
}

fn has(info: &Value, name: &str, bytes: u64) {
    let found = bytes_of(info, name);
    assert!(
        (bytes..bytes + bytes / 2).contains(&found),
        "{found} bytes of {name}, {bytes} are right: {}",
        info["call_sites"]
    );
}

const RUST: &str = r##"
use std::collections::{BTreeMap, HashMap};
// A function that ends with a call may jump there, and is on no stack then.
#[inline(always)] fn keep<T>(it: T) -> T { std::hint::black_box(&it); it }
#[inline(never)] fn first(n: usize) -> Vec<u8> { keep(vec![1; n]) }
#[inline(never)] fn second(n: usize) -> String { keep("x".repeat(n)) }
#[inline(never)] fn third(n: usize) -> Vec<u64> { keep(Vec::with_capacity(n)) }
#[inline(never)] fn mapped(n: usize) -> HashMap<usize, [u64; 7]> { let mut m = HashMap::with_capacity(n); m.insert(1, [n as u64; 7]); keep(m) }
#[inline(never)] fn ordered(n: usize) -> BTreeMap<usize, [u8; 90]> { keep((0..n).map(|i| (i, [1; 90])).collect()) }
#[inline(never)] fn boxed(n: usize) -> Box<[u32]> { keep((0..n as u32).filter(|x| x % 2 == 0).collect::<Vec<_>>().into_boxed_slice()) }
#[inline(never)] fn joined(n: usize) -> String { keep(vec!["abcdefgh".to_owned(); n].join("-") + &format!("{:>1$}", n, n * 5)) }
fn main() {
    let (a, b, c) = (first(100_000), second(200_000), third(40_000));
    let (d, e, f, g) = (mapped(4000), ordered(2000), boxed(100_000), joined(10_000));
    println!("{}", a.len() + b.len() + c.capacity() + d.len() + e.len() + f.len() + g.len());
}
"##;

const OWN: &str = r"
pub struct Own;
#[inline(never)] fn take(layout: std::alloc::Layout) -> *mut u8 { unsafe { std::alloc::GlobalAlloc::alloc(&std::alloc::System, layout) } }
unsafe impl std::alloc::GlobalAlloc for Own {
    #[inline(never)] unsafe fn alloc(&self, layout: std::alloc::Layout) -> *mut u8 { take(layout) }
    unsafe fn dealloc(&self, block: *mut u8, layout: std::alloc::Layout) { unsafe { std::alloc::GlobalAlloc::dealloc(&std::alloc::System, block, layout) } }
}
#[global_allocator] static OWN: Own = Own;
";

#[test]
fn blocks_of_rust_come_from_who_uses_a_container() {
    let Some(recorder) = Recorder::new("rustc") else { return };
    let own = [OWN, RUST].concat();
    for (options, source) in [
        (&["-C", "opt-level=0"][..], RUST),
        (&["-C", "opt-level=0", "-g"], RUST),
        (&["-C", "opt-level=3", "-g", "-C", "symbol-mangling-version=v0"], RUST),
        (&["-C", "opt-level=2", "-C", "lto=fat", "-g"], RUST),
        (&["-C", "opt-level=1"], &own),
    ] {
        let program = recorder.compile("rustc", &[&["--edition=2021"], options].concat(), "rs", source);
        let info = recorder.info(&recorder.record(&[], &program), &["-n", "100"]);
        for (name, bytes) in [
            ("::first", 100_000),
            ("::second", 200_000),
            ("::third", 320_000),
            ("::mapped", 256_000),
            ("::ordered", 180_000),
            ("::boxed", 200_000),
            ("::joined", 400_000),
        ] {
            let found = bytes_of(&info, name);
            assert!(found >= bytes, "{options:?}: {found} bytes of {name}: {}", info["call_sites"]);
        }
    }
}

const CXX: &str = r#"
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>
#define N __attribute__((noinline))
struct Thing { char bytes[1000]; };
N std::vector<int> vectors() { std::vector<int> v; for (int i = 0; i < 20000; i++) v.push_back(i); return v; }
N std::map<int, Thing> trees() { std::map<int, Thing> m; for (int i = 0; i < 100; i++) m[i] = Thing(); return m; }
N std::unordered_map<int, Thing> tables() { std::unordered_map<int, Thing> m; for (int i = 0; i < 100; i++) m.emplace(i, Thing()); return m; }
N std::shared_ptr<Thing> shared() { std::shared_ptr<Thing> p; for (int i = 0; i < 100; i++) p = std::make_shared<Thing>(); return p; }
N std::string text() { std::string s; for (int i = 0; i < 100; i++) s += std::string(1000, 'x'); return s; }
N std::function<int()> bound() { Thing thing = {}; return [thing] { return (int)thing.bytes[1]; }; }
int main() {
    auto f = bound();
    return vectors().size() + trees().size() + tables().size() + shared()->bytes[0] + text().size() + f() == 0;
}
"#;

#[test]
fn blocks_of_cxx_come_from_who_uses_a_container() {
    let replaced = r"
#include <cstdlib>
#include <new>
__attribute__((noinline)) static void *pool_take(unsigned long n) { return malloc(n); }
void *operator new(unsigned long n) { return pool_take(n); }
void operator delete(void *p) noexcept { free(p); }
void operator delete(void *p, unsigned long) noexcept { free(p); }
";
    for compiler in ["c++", "clang++"] {
        let Some(recorder) = Recorder::new(compiler) else { return };
        for (options, source) in [
            (&["-O0"][..], CXX.to_owned()),
            (&["-O0", "-g"], CXX.to_owned()),
            (&["-O1", "-g"], CXX.to_owned()),
            (&["-O0"], [replaced, CXX].concat()),
        ] {
            let program = recorder.compile(compiler, options, "cc", &source);
            let info = recorder.info(&recorder.record(&[], &program), &["-n", "100"]);
            for (name, bytes) in [
                ("vectors", 100_000),
                ("trees", 100_000),
                ("tables", 100_000),
                ("shared", 100_000),
                ("text", 100_000),
                ("bound", 1000),
            ] {
                let found = bytes_of(&info, name);
                assert!(
                    found >= bytes,
                    "{compiler} {options:?}: {found} bytes of {name}: {}",
                    info["call_sites"]
                );
            }
        }
    }
}

const PATHS: &str = r#"
#include <stdlib.h>
#define N __attribute__((noinline))
N void *arena_take(size_t n) { void *p = malloc(n); __asm__(""); return p; }
N void *leaf(size_t n) { void *p = arena_take(n); __asm__(""); return p; }
N void *path_one(void) { void *p = leaf(1000); __asm__(""); return p; }
N void *path_two(void) { void *p = leaf(900); __asm__(""); return p; }
int main(void) { for (int i = 0; i < 100; i++) { path_one(); path_two(); } return 0; }
"#;

#[test]
fn every_stack_of_a_site_can_be_seen() {
    let Some(recorder) = Recorder::new("cc") else { return };
    let program = recorder.compile("cc", &["-O1", "-g", "-fno-builtin"], "c", PATHS);
    let trace = recorder.record(&[], &program);
    let plain = recorder.info(&trace, &[]);
    has(&plain, "arena_take", 190_000);
    let hidden = recorder.info(&trace, &["--hide", "^arena_", "--hide", "^leaf$"]);
    has(&hidden, "path_one", 100_000);
    has(&hidden, "path_two", 90_000);
    assert_eq!(bytes_of(&hidden, "arena_take"), 0);
    recorder.quarry(&["info", "--hide", "a(", &trace]).expect(2).says("--hide 'a('");

    let few = recorder.quarry(&["info", "--hide", "arena", &trace]).expect(0).stdout.clone();
    assert!(few.contains("path_one") && few.contains("path_two") && few.contains("53 % <"), "{few}");
    let all = recorder.info(&trace, &["--stacks"]);
    let site = &all["call_sites"][0];
    let stacks = site["all_stacks"].as_array().unwrap();
    assert_eq!((stacks.len(), &site["stacks"]), (2, &2.into()));
    let sums: Vec<u64> = stacks.iter().map(|stack| stack["bytes"].as_u64().unwrap()).collect();
    assert_eq!(sums, [100_000, 90_000]);
    assert!(stacks[1]["frames"][2].as_str().unwrap().contains("path_two"), "{site}");

    let lines =
        recorder.quarry(&["convert", "-q", &trace, "-o", "-", "--to", "collapsed"]).expect(0).stdout.clone();
    for wanted in ["main;path_one;leaf;arena_take 100000", "main;path_two;leaf;arena_take 90000"] {
        assert!(lines.lines().any(|line| line.ends_with(wanted)), "no {wanted} in:\n{lines}");
    }
    let folded = recorder.bench.path("t.folded");
    let options = ["--by", "allocations", "--hide", "^(arena_take|leaf)$"];
    recorder.quarry(&[&["convert", "-q", &trace, "-o", text(&folded)][..], &options].concat()).expect(0);
    let lines = fs::read_to_string(&folded).unwrap();
    assert!(lines.lines().any(|line| line.ends_with("main;path_two 100")), "{lines}");
    recorder
        .quarry(&["convert", &trace, "-o", "x.csv", "--by", "live"])
        .expect(2)
        .says("--by is about collapsed");
}

const LEAKS: &str = r"
#include <stdlib.h>
__attribute__((noinline)) void *small_leak(void) { char *p = malloc(1000); *p = 1; return p; }
__attribute__((noinline)) void *big_leak(void) { char *p = malloc(1 << 20); *p = 1; return p; }
__attribute__((noinline)) void *grown(void) { char *p = malloc(500); p = realloc(p, 3000); *p = 1; return p; }
int main(void) {
    for (int i = 0; i < 300000; i++) small_leak();
    for (int i = 0; i < 60; i++) big_leak();
    for (int i = 0; i < 20000; i++) grown();
    return 0;
}
";

#[test]
fn a_sample_says_what_is_true_of_the_program() {
    let Some(recorder) = Recorder::new("cc") else { return };
    let program = recorder.compile("cc", &["-O1", "-g", "-fno-builtin"], "c", LEAKS);
    let trace = recorder.record(&["--sample", "512k"], &program);
    let info = recorder.info(&trace, &[]);
    assert_eq!(info["sample"]["mean_bytes"], 512 << 10);
    let near = |value: u64, right: u64, part: f64, what: &str| {
        let ratio = value as f64 / right as f64;
        assert!((1.0 - part..1.0 + part).contains(&ratio), "{what}: {value}, {right} is right");
    };
    // About 570 of the small blocks are drawn, 52 of the large ones, 115 of those that grow.
    near(bytes_of(&info, "small_leak"), 300_000_000, 0.25, "small_leak");
    near(bytes_of(&info, "big_leak"), 60 << 20, 0.35, "big_leak");
    near(bytes_of(&info, "grown"), 70_000_000, 0.6, "grown");
    near(info["live"]["peak_bytes"].as_u64().unwrap(), 300_000_000 + (60 << 20) + 60_000_000, 0.25, "peak");
    near(info["events_by_kind"]["realloc"].as_u64().unwrap(), 20_000, 0.6, "reallocs");
    assert_eq!(info["impossible"]["realloc_of_unknown"], 0);
    assert!(
        info["call_sites"][0]["frames"][0].as_str().unwrap().contains("small_leak"),
        "{}",
        info["call_sites"]
    );
    let says = recorder.quarry(&["info", &trace]).expect(0).stdout.clone();
    assert!(says.contains("one byte in 512 KiB") && says.contains("95 % interval"), "{says}");

    // What is made of it says what it is, or is weighed.
    for format in ["heaptrack", "mtrace", "jsonl", "csv"] {
        let made = text(&recorder.bench.path("made")).to_owned();
        recorder
            .quarry(&["convert", &trace, "-o", &made, "--to", format])
            .expect(0)
            .says("is a sample, of one byte in 512 KiB");
    }
    let lines = recorder
        .quarry(&["convert", &trace, "-o", "-", "--to", "collapsed", "--by", "live"])
        .expect(0)
        .stdout
        .clone();
    let small = lines.lines().find(|line| line.contains("main;small_leak ")).unwrap();
    near(small.rsplit(' ').next().unwrap().parse().unwrap(), 300_000_000, 0.25, "small_leak, collapsed");

    // An imitation has the size of the program.
    let imitation = text(&recorder.bench.path("like.qtr")).to_owned();
    recorder.quarry(&["gen", "--fit", &trace, "-o", &imitation]).expect(0).says("is a sample");
    let info = recorder.info(&imitation, &[]);
    near(
        info["live"]["end_bytes"].as_u64().unwrap(),
        300_000_000 + (60 << 20) + 60_000_000,
        0.25,
        "imitation",
    );
    near(info["allocations"]["count"].as_u64().unwrap(), 340_000, 0.3, "blocks of the imitation");
}
