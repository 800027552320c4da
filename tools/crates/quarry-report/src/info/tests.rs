// SPDX-License-Identifier: MIT
//! The report of a small trace, in both forms.

use quarry_trace::analysis::Analysis;
use quarry_trace::{AllocApi, End, Event, FreeApi, Head, PoolWhat, Trace, TraceWriter, What, WriteOptions};

use super::*;

fn alloc(address: u64, size: u64, stack: u32) -> What {
    What::Alloc { api: AllocApi::Malloc, size, address, align: 0, stack }
}

fn free(address: u64) -> What {
    What::Free { api: FreeApi::Free, address, touched: None }
}

/// Two threads, of which the second frees a block of the first.
fn trace(end: bool) -> Trace {
    let head = Head {
        process: 42,
        command: vec!["prog".into(), "a\x1b[31m".into()],
        clock: "monotonic".into(),
        start_unix_ns: 1_795_284_005_000_000_000,
        ..Head::default()
    };
    let created = PoolWhat::Created { parent: 0, kind: "fifo".into(), name: "queue".into() };
    let events = [
        (1000, 1, alloc(0x1000, 100, 1)),
        (2000, 1, alloc(0x2000, 50, 2)),
        (3000, 1, free(0x2000)),
        (4000, 1, alloc(0x3000, 1000, 1)),
        (5000, 2, free(0x1000)),
        (6000, 1, What::Realloc { took: 10, old: 0x3000, size: 2000, new: 0x4000, stack: 1 }),
        (7000, 1, What::Memory { anonymous: 8192, file: 4096 }),
        (7500, 1, What::Pool { pool: 1, what: created }),
        (
            7600,
            1,
            What::Pool { pool: 1, what: PoolWhat::Alloc { size: 4096, address: 0x80, align: 3, stack: 0 } },
        ),
        (7700, 2, What::Pool { pool: 1, what: PoolWhat::Free { address: 0x80 } }),
        (7800, 2, What::Pool { pool: 1, what: PoolWhat::Free { address: 0x90 } }),
        (8000, 1, What::Mark("phase\n2".into())),
        (9000, 1, free(0x9000)),
    ];
    let mut writer = TraceWriter::create(Vec::new(), &head, WriteOptions::default()).unwrap();
    for (time, thread, what) in events {
        writer.event(&Event { time, thread, what }).unwrap();
    }
    let mut bytes = writer.finish(&End { reason: "exit".into(), lost: 3, ..End::default() }).unwrap();
    if !end {
        let end = bytes.windows(5).rposition(|window| window == b"QTRB\x03").unwrap();
        bytes.truncate(end);
    }
    Trace::of_bytes(bytes).unwrap()
}

fn with_info<T>(trace: &Trace, then: impl FnOnce(&Info) -> T) -> T {
    let mut analysis = Analysis::new();
    trace.events().for_each(|event| analysis.add(&event.unwrap()));
    let summary = analysis.finish(5);
    let frames = vec!["make at a.c:3".into(), "main at a.c:9".into()];
    let sites =
        [CallSite { frames, stacks: 1, count: 3, bytes: 3100, peak_bytes: 2000, ..CallSite::default() }];
    let damage = trace.damage().clone();
    let file = String::from("prog.qtr");
    let info = Info {
        file,
        trace,
        summary: &summary,
        damage: &damage,
        sites: &sites,
        missing: &[],
        top: 5,
        now: None,
    };
    then(&info)
}

#[test]
fn the_text_says_what_happened() {
    let trace = trace(true);
    let text = with_info(&trace, |info| {
        assert_eq!(info.complaints(), [""; 0]);
        text(info, Style::default())
    });
    let lines: Vec<String> =
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for wanted in [
        "program prog a?[31m (process 42)",
        "time 8 µs, from 2026-11-21 18:00:05 UTC",
        "end exit",
        "3 allocations of 383 B on average, of 3 different sizes; 375 000 in a second",
        "blocks freed 2, 150 B",
        "by another thread 1 (50 % of all frees), 100 B",
        "temporary 1 (50 % of all frees), 50 B",
        "moved 1 (100 %), 1000 B to copy",
        "peak 1.95 KiB (2 000 bytes) in 1 blocks, after 5 µs and 3 allocations",
        "at the end 1.95 KiB in 1 blocks still live",
        "resident at most 12.0 KiB (8.00 KiB anonymous, 4.00 KiB of files), after 6 µs",
        "1.95 KiB 3.03 KiB 3 0.0 % 0 B make at a.c:3",
        "< main at a.c:9",
        "7 µs phase?2",
        "frees of blocks that are not live 1",
    ] {
        assert!(lines.iter().any(|line| line == wanted), "no '{wanted}' in:\n{text}");
    }
    assert!(!text.contains('\x1b') && !text.to_lowercase().contains("leak"), "{text}");
    assert!(text.contains("3 lost") && text.contains("queue") && text.contains('█'));
}

#[test]
fn json_says_the_same() {
    let trace = trace(true);
    let json = with_info(&trace, json);
    assert_eq!(json["schema"], SCHEMA);
    assert_eq!((&json["events"], &json["lost"]["events"]), (&13.into(), &3.into()));
    assert_eq!(json["events_by_kind"]["malloc"], 3);
    assert_eq!(json["duration_ns"], 8000);
    assert_eq!((&json["frees"]["by_other_thread"], &json["frees"]["temporary"]), (&1.into(), &1.into()));
    assert_eq!((&json["live"]["peak_bytes"], &json["live"]["peak_after_ns"]), (&2000.into(), &5000.into()));
    assert_eq!(json["live"]["end_blocks"], 1);
    assert_eq!(json["reallocs"]["ns"], 10);
    assert_eq!(json["impossible"]["free_of_unknown"], 1);
    assert_eq!(json["call_sites"].as_array().unwrap().len(), 1);
    assert_eq!(json["pools"][0]["name"], "queue");
    let pool = &json["pools"][0];
    assert_eq!(
        (&pool["peak_bytes"], &pool["live_bytes"], &pool["unknown"]),
        (&4096.into(), &0.into(), &1.into())
    );
    assert_eq!(json["threads"][1]["frees_of_others"], 1);
    assert_eq!(json["trace"]["complete"], true);
    let count = |key: &str| {
        let bars = json["lifetimes"][key].as_array().unwrap();
        bars.iter().map(|bar| bar["count"].as_u64().unwrap()).sum::<u64>()
    };
    assert_eq!((count("allocations"), count("ns")), (2, 2));
    let curve = json["live"]["bytes_curve"].as_array().unwrap();
    assert_eq!(curve.iter().map(|point| point[1].as_u64().unwrap()).max(), Some(2000));
}

#[test]
fn a_trace_that_was_cut_off() {
    let trace = trace(false);
    with_info(&trace, |info| {
        let complaints = info.complaints();
        assert_eq!(complaints.len(), 1);
        assert!(
            complaints[0].starts_with("prog.qtr: truncated after 13 events (9 µs of recording)"),
            "{complaints:?}"
        );
        assert_eq!(json(info)["trace"]["complete"], false);
        assert_eq!(json(info)["trace"]["end"], serde_json::Value::Null);
    });
}

#[test]
fn an_empty_trace() {
    let writer = TraceWriter::create(Vec::new(), &Head::default(), WriteOptions::default()).unwrap();
    let trace = Trace::of_bytes(writer.finish(&End::default()).unwrap()).unwrap();
    with_info(&trace, |info| {
        assert!(text(info, Style::default()).contains("0 events"));
        assert_eq!(json(info)["trace"]["bytes_per_event"], serde_json::Value::Null);
    });
}

#[test]
fn dates() {
    assert_eq!(date(0), "1970-01-01 00:00:00 UTC");
    assert_eq!(date(951_782_400_000_000_000), "2000-02-29 00:00:00 UTC");
    assert_eq!(date(1_735_689_599_999_999_999), "2024-12-31 23:59:59 UTC");
    assert!(date(u64::MAX).starts_with("2554-07-21"));
}
