// SPDX-License-Identifier: MIT
//! Reports on figures made for the occasion.

use quarry_bench::baseline;
use quarry_bench::judge::{self, Measure};
use quarry_bench::results::Results;
use serde_json::{Value, json};

use super::{figures, page, text};
use crate::style::Style;

/// Nanoseconds of an operation by contender and threads; none for who crashes.
fn results(times: &[(&str, i64, Option<f64>)]) -> Results {
    let role = |name: &str| match name {
        "nothing" => "nothing",
        "ring" => "pool",
        "mmap" | "malloc" => "other",
        _ => "malloc",
    };
    let mut names: Vec<&str> = times.iter().map(|time| time.0).collect();
    names.dedup();
    let contenders: Vec<Value> = names
        .iter()
        .map(|name| json!({"name": name, "role": role(name), "library": null, "version": "1.<2>", "env": {}, "notes": []}))
        .collect();
    let cells: Vec<Value> = times
        .iter()
        .map(|(name, threads, ns)| {
            let run = |round: usize, ns: f64| {
                let seconds = ns * 1e-9 * 1e6 * (1.0 + 0.01 * round as f64);
                json!({"round": round, "seconds": seconds, "operations": 1e6, "cpu_seconds": seconds, "user_seconds": seconds,
                       "system_seconds": 0.0, "peak_rss_kib": 2048.0, "faults": 12.0})
            };
            json!({
                "scenario": "s", "point": {"threads": threads}, "phase": "", "contender": name,
                "status": if ns.is_some() { "ok" } else { "failed" },
                "reason": ns.is_none().then_some("SIGSEGV"),
                "payload_bytes": 1048576.0,
                "runs": ns.map_or_else(Vec::new, |ns| (1..=5).map(|round| run(round, ns)).collect()),
                "series": {"columns": ["t_s", "held_bytes", "used_bytes"], "rows": [[0.0, 5.0, 4.0], [1.0, 9.0, null]]},
            })
        })
        .collect();
    let value = json!({
        "schema": "quarry-bench/3", "quarry_version": "0", "size": "quick", "started": 0, "seconds": 61.0, "seed": 3, "rounds": 5,
        "warmup": 1, "interrupted": false, "load_after": 0.5, "others": {"processors": 0.4, "stolen": 0.0},
        "machine": {"cpu": "a <fast> one", "cores": 2, "memory_bytes": null, "kernel": "6.1", "page_size": 4096,
                    "transparent_huge_pages": "madvise", "libc": "glibc 2", "load": 0.1},
        "contenders": contenders,
        "scenarios": [{
            "name": "s", "title": "Title & more", "program": "p", "options": "--count 5", "shows": "It shows < this.", "not_shown": "That.",
            "x": "threads", "charts": ["time", "cpu", "speedup", "bars", "rss", "series"], "heat": true, "processors": 1,
            "axes": [{"name": "threads", "quick": [1, 2], "full": [1], "smoke": [1]}],
        }],
        "cells": cells,
    });
    let mut results = Results::parse(&value.to_string()).unwrap();
    judge::summarise(&mut results);
    results
}

fn sample() -> Results {
    results(&[
        ("system", 1, Some(20.0)),
        ("system", 2, Some(10.0)),
        ("quarry", 1, Some(10.0)),
        ("quarry", 2, Some(5.0)),
        ("broken", 1, Some(30.0)),
        ("broken", 2, None),
        ("ring", 1, Some(4.0)),
        ("nothing", 1, Some(2.0)),
    ])
}

#[test]
fn tables_have_all_and_mark_the_best() {
    let text = text(&sample(), None, Style { color: true, width: None });
    let line = |begin: &str| {
        let found = text.lines().find(|line| line.trim_start().starts_with(begin));
        found.unwrap_or_else(|| panic!("no {begin} in {text}")).to_owned()
    };
    assert!(line("quarry").contains("\x1b[1m 10.3 ns"), "{text}");
    assert!(line("system").contains("2.00 [2.00 2.00]") && line("system").contains("2.00 MiB"), "{text}");
    assert!(text.contains("failed: SIGSEGV"));
    assert!(
        line("ring (pool)").contains("without the work: 4"),
        "(10 - 2) / (4 - 2): {}",
        line("ring (pool)")
    );
    assert!(text.contains("Winners: time") && line("geometric mean").contains("1.000"));
    assert!(text.contains("other programs kept a processor busy for 40 % of the time"));
}

#[test]
fn what_was_not_measured_is_no_figure() {
    let mut results = results(&[
        ("system", 1, Some(20.0)),
        ("malloc", 1, Some(10.0)),
        ("mmap", 1, Some(9.0)),
        ("ring", 1, Some(8.0)),
    ]);
    for cell in &mut results.cells[..2] {
        cell.runs.truncate(1);
        for run in &mut cell.runs {
            (run.cpu_seconds, run.user_seconds, run.system_seconds, run.faults) = (None, None, None, None);
        }
    }
    judge::summarise(&mut results);
    let table = text(&results, None, Style { color: false, width: None });
    let line = |begin: &str| -> Vec<String> {
        let found = table.lines().find(|line| line.trim_start().starts_with(begin));
        let found = found.unwrap_or_else(|| panic!("no {begin} in {table}"));
        found.split("  ").map(|word| word.trim().to_owned()).filter(|word| !word.is_empty()).collect()
    };
    // Deviation, user and system time, faults.
    let unknown = |begin: &str| line(begin).iter().filter(|word| *word == "-").count();
    assert_eq!((unknown("system "), unknown("the system's malloc ")), (4, 4), "{table}");
    assert_eq!((unknown("mmap "), unknown("ring (pool) ")), (0, 0), "{table}");
    assert!(!table.contains("malloc (pool)") && !table.contains("mmap (pool)"), "{table}");
    let page = page::page(&results, None);
    assert_eq!(page.matches("<td>-</td>").count(), 8, "{page}");
}

#[test]
fn heat_maps_leave_out_pools() {
    let map = judge::heat_map(&sample(), Measure::Time);
    assert_eq!(map.mallocs, ["system", "quarry", "broken"]);
    let picture = figures::heat(&map).unwrap().svg.file();
    assert!(
        picture.contains("★ 1.00") && picture.contains(">failed<") && picture.contains("quarry 1.00"),
        "{picture}"
    );
}

#[test]
fn all_charts_are_drawn() {
    let names: Vec<String> = figures::all(&sample()).into_iter().map(|figure| figure.name).collect();
    for name in [
        "heat-time",
        "mean-time",
        "s-time",
        "s-cpu",
        "s-speedup",
        "s-rate-threads-1",
        "s-rate-threads-2",
        "s-rss",
        "s-series-ring--pool---threads-1",
    ] {
        assert!(names.iter().any(|other| other == name), "no {name} in {names:?}");
    }
    let unique: std::collections::BTreeSet<&String> = names.iter().collect();
    assert_eq!(unique.len(), names.len(), "{names:?}");
}

#[test]
fn colours_get_darker_with_the_ratio() {
    let brightness = |ratio: f64| {
        let (color, _) = crate::chart::heat_color(ratio);
        (1..7).step_by(2).map(|at| u32::from_str_radix(&color[at..at + 2], 16).unwrap()).sum::<u32>()
    };
    let steps = [1.0, 1.1, 1.3, 1.7, 2.2, 3.0, 4.0];
    assert!(steps.windows(2).all(|pair| brightness(pair[0]) > brightness(pair[1])));
    assert_eq!(
        (crate::chart::heat_color(9.0).0, crate::chart::heat_color(0.5).0),
        (crate::chart::heat_color(4.0).0, crate::chart::heat_color(1.0).0)
    );
    assert!(crate::chart::heat_color(1.0).1 && !crate::chart::heat_color(4.0).1);
}

#[test]
fn the_page_is_whole_and_escaped() {
    let (now, then) =
        (sample(), results(&[("system", 1, Some(20.0)), ("quarry", 1, Some(5.0)), ("broken", 2, Some(5.0))]));
    let comparison = baseline::compare(&now, &then, 0.03);
    let page = page::page(&now, Some(&comparison));
    for word in [
        "Title &amp; more",
        "It shows &lt; this.",
        "a &lt;fast&gt; one",
        "1.&lt;2&gt;",
        "fails now",
        "class=\"l bad\">worse",
        "Noisy:",
        "on one processor",
    ] {
        assert!(page.contains(word), "no {word} in {page}");
    }
    assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
    assert!(!page.contains("{{") && !page.contains("}}</style>"));
    let lone = page::page(&now, None);
    assert!(!lone.contains("Since the baseline"));
}

#[test]
fn damaged_curves_are_refused() {
    let whole = serde_json::to_value(results(&[("a", 1, Some(10.0))])).unwrap();
    for columns in [json!([]), json!(["x"]), json!(["x", "y"])] {
        let mut value = whole.clone();
        value["cells"][0]["series"] = json!({"columns": columns, "rows": [[1.0]]});
        let said = Results::parse(&value.to_string()).expect_err("damaged").to_string();
        assert!(said.contains("is damaged: s of a: its series has"), "{said}");
    }
}
