// SPDX-License-Identifier: MIT
//! What size classes add: the rules of `quarry_trace::classes` against the libraries themselves, and the sums of the report.

use std::process::Command;

use quarry_measure::units;
use quarry_trace::classes::{Classes, LARGEST};
use serde_json::Value;

use crate::common::{Bench, Ended, quarry_library, table_of, text};
use crate::profile::{Recorder, check};

/// Prints each size at which the block gets larger, and the usable bytes. Each block is freed at once, so that a heap stays as it began.
const SIZES: &str = r#"
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
int main(void) {
    size_t last = (size_t)-1;
    for (size_t n = 0; n <= 65536; n++) {
        void *volatile p = malloc(n);
        size_t usable = malloc_usable_size(p);
        free(p);
        if (usable != last) { printf("%zu %zu\n", n, usable); }
        last = usable;
    }
    return 0;
}
"#;

#[test]
fn the_rules_are_those_of_the_libraries() {
    let Some(bench) = Bench::new() else { return };
    let program = bench.compile("sizes", SIZES, &["-O1"]).unwrap();
    let system = |name: &str| std::path::PathBuf::from(format!("/usr/lib/x86_64-linux-gnu/{name}"));
    let libraries = [
        Some(system("libc.so.6")),
        quarry_library(),
        Some(system("libjemalloc.so.2")),
        Some(system("libmimalloc.so.2")),
    ];
    for library in libraries.into_iter().flatten() {
        if !library.exists() {
            eprintln!("skipped: needs {}", library.display());
            continue;
        }
        let classes = Classes::of(text(&library));
        assert!(classes.is_own());
        // A chunk of glibc has its head before it.
        let head = if classes.name() == "glibc" { 8 } else { 0 };
        let mut command = Command::new(&program);
        if head == 0 {
            command.env("LD_PRELOAD", &library);
        }
        let said = Ended::from(command.output().unwrap()).expect(0).stdout;
        let steps: Vec<(u64, u64)> = said
            .lines()
            .map(|line| line.split_once(' ').unwrap())
            .map(|(size, usable)| (size.parse().unwrap(), usable.parse().unwrap()))
            .collect();
        let mut expected: Vec<(u64, u64)> = Vec::new();
        for size in 0..=LARGEST {
            let usable = classes.block(size) - head;
            if expected.last().is_none_or(|last| last.1 != usable) {
                expected.push((size, usable));
            }
        }
        assert_eq!(steps, expected, "{}", library.display());
    }
}

/// A site whose sizes are just above a class, one whose sizes fill theirs, and one that has no class.
const PROGRAM: &str = r#"
#include <stdlib.h>
#define KEEP __attribute__((noinline, noclone))
static void *volatile all[3000];
KEEP void above(int i) { all[i] = malloc(65); all[i + 1] = 0; }
KEEP void full(int i) { all[i] = malloc(56); all[i + 1] = 0; }
KEEP void large(int i) { all[i] = malloc(200001); all[i + 1] = 0; }
int main(void) {
    for (int i = 0; i < 1000; i++) { above(i); }
    for (int i = 1000; i < 2000; i++) { full(i); }
    for (int i = 2000; i < 2010; i++) { large(i); }
    for (int i = 0; i < 500; i++) { free(all[i]); }
    return 0;
}
"#;

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

#[test]
fn sites_add_up_to_what_classes_add() {
    let Some(mut recorder) = Recorder::new() else { return };
    recorder.program = text(&recorder.bench.compile("rounded", PROGRAM, &["-g", "-O1"]).unwrap()).to_owned();
    let quarry = quarry_library();
    let mallocs = std::iter::once((None, "glibc", 80 - 65, 64 - 56))
        .chain(quarry.as_deref().map(|library| (Some(text(library)), "Quarry", 80 - 65, 64 - 56)));
    for (with, name, above, full) in mallocs {
        let trace = text(&recorder.bench.path(name)).to_owned();
        let with = with.map_or(Vec::new(), |library| vec!["--with", library]);
        let record =
            [&["record", "-q", "-g", "--symbolize", "-o", &trace], &with[..], &["--", &recorder.program]];
        recorder.quarry(&record.concat()).expect(0);
        for (at, left) in [("peak", 1000), ("end", 500)] {
            let json = recorder.json(&["--waste", "--at", at, "-n", "50", &trace]);
            check(&json);
            let waste = &json["page_waste"];
            assert_eq!((&waste["size_classes"], &waste["size_classes_known"]), (&name.into(), &true.into()));
            let sites = waste["sites"].as_array().unwrap();
            let of = |function: &str| {
                let site =
                    sites.iter().find(|site| site["name"].as_str().unwrap().starts_with(function)).unwrap();
                number(&site["rounding_bytes"])
            };
            assert_eq!((of("above"), of("full"), of("large")), (left * above, 1000 * full, 0), "{sites:#?}");
            let sum: u64 = sites.iter().map(|site| number(&site["rounding_bytes"])).sum();
            assert_eq!(sum + number(&waste["other_rounding_bytes"]), number(&waste["rounding_bytes"]));
            // With fewer rows the rest is in the sum of the others.
            let short = &recorder.json(&["--waste", "--at", at, "-n", "1", &trace])["page_waste"];
            let first = number(&short["sites"][0]["rounding_bytes"]);
            assert_eq!(first + number(&short["other_rounding_bytes"]), number(&short["rounding_bytes"]));
            assert_eq!(short["rounding_bytes"], waste["rounding_bytes"]);
            adds_up(&waste["resident"], at == "end");
            the_page_has_it_too(&recorder, &trace, at, waste);
        }
        extra_is_the_rounding(&recorder, &trace);
    }
}

/// What the kernel counted is divided without a rest.
fn adds_up(resident: &Value, is_end: bool) {
    let part = |name: &str| resident[name].as_i64().unwrap_or_else(|| panic!("{name}: {resident}"));
    let names = [
        "live_bytes",
        "rounding_bytes",
        "between_bytes",
        "other_private_bytes",
        "file_bytes",
        "recorder_bytes",
    ];
    let sum: i64 = names.iter().map(|name| part(name)).sum();
    assert_eq!(resident["untouched_bytes"].is_null(), !is_end, "{resident}");
    let untouched = if is_end { part("untouched_bytes") } else { 0 };
    assert_eq!(sum - untouched, part("resident_bytes"), "{resident}");
    // Large blocks that nobody wrote to have a page for their head.
    assert!(!is_end || (part("other_private_bytes") > 0 && untouched > 1_900_000), "{resident}");
}

/// The tables of the page are those of the report.
fn the_page_has_it_too(recorder: &Recorder, trace: &str, at: &str, waste: &Value) {
    let page = recorder.bench.path("waste.html");
    recorder
        .quarry(&["profile", "-q", "--waste", "--at", at, "-n", "50", "-o", text(&page), trace])
        .expect(0);
    let shown = table_of(&page, "waste");
    let sites = waste["sites"].as_array().unwrap();
    assert_eq!(shown.len(), sites.len());
    for (row, site) in shown.iter().zip(sites) {
        let bytes = |name: &str| units::bytes(number(&site[name]) as f64);
        assert_eq!((&row[0], &row[1]), (&site["name"].as_str().unwrap().to_owned(), &bytes("waste_bytes")));
        assert_eq!((&row[2], &row[3]), (&bytes("rounding_bytes"), &bytes("live_bytes")));
    }
    let resident = &waste["resident"];
    let of =
        |name: &str| units::bytes(resident[name].as_f64().unwrap_or_else(|| panic!("{name}: {resident}")));
    let shown = table_of(&page, "resident");
    let has = |row: usize, name: &str, value: &str| {
        assert!(shown[row][0].starts_with(name) && shown[row][1] == value, "{name} {value}: {shown:?}");
    };
    has(0, "live blocks", &of("live_bytes"));
    has(1, "rounding", &of("rounding_bytes"));
    has(2, "not live on their pages", &of("between_bytes"));
    has(shown.len() - 3, "files", &of("file_bytes"));
    has(shown.len() - 1, "all", &of("resident_bytes"));
    if at == "end" {
        has(3, "pages of blocks", &format!("-{}", of("untouched_bytes")));
    }
}

/// The extra bytes of massif's file are those of the report, at its peak and at its end.
fn extra_is_the_rounding(recorder: &Recorder, trace: &str) {
    let file = text(&recorder.bench.path("extra.massif")).to_owned();
    recorder.quarry(&["profile", "-q", "-o", &file, trace]).expect(0);
    let written = std::fs::read_to_string(&file).unwrap();
    let snapshots: Vec<&str> = written.split("snapshot=").skip(1).collect();
    let extra = |snapshot: &str| -> u64 {
        snapshot.lines().find_map(|line| line.strip_prefix("mem_heap_extra_B=")).unwrap().parse().unwrap()
    };
    let peak = snapshots.iter().find(|snapshot| snapshot.contains("heap_tree=peak")).unwrap();
    for (at, snapshot) in [("peak", peak), ("end", snapshots.last().unwrap())] {
        let waste = &recorder.json(&["--waste", "--at", at, trace])["page_waste"];
        assert_eq!(extra(snapshot), number(&waste["rounding_bytes"]), "{at}");
    }
}

#[test]
fn classes_of_an_unknown_malloc_are_said_to_be_ours() {
    let Some(bench) = Bench::new() else { return };
    let trace = text(&bench.path("t.qtr")).to_owned();
    bench.run(&["gen", "-q", "--allocations", "2000", "-o", &trace]).expect(0);
    let said = bench.run(&["profile", "-q", "--waste", &trace]).expect(0).stdout;
    assert!(said.contains("if they were those of Quarry"), "{said}");
    // Nobody asked the kernel.
    assert!(!said.contains("Resident memory"), "{said}");
    let json = bench.run(&["profile", "-q", "--waste", "--json", &trace]).expect(0).json();
    check(&json);
    let waste = &json["page_waste"];
    assert_eq!((&waste["size_classes_known"], &waste["resident"]), (&false.into(), &Value::Null));
}
