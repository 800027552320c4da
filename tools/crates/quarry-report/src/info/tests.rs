// SPDX-License-Identifier: MIT
//! The report of a small trace, in both forms.

use quarry_trace::analysis::Analysis;
use quarry_trace::sample::Sampling;
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
        command_cut: true,
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

fn site(frames: Vec<std::rc::Rc<str>>, count: u64, bytes: u64, peak_bytes: u64) -> CallSite {
    let [count, bytes, peak_bytes] = [count, bytes, peak_bytes].map(Estimate::exact);
    let sums = Sums { count, bytes, peak_bytes, ..Sums::default() };
    CallSite { stacks: vec![Stack { frames, sums }], sums, ..CallSite::default() }
}

fn with_info<T>(trace: &Trace, then: impl FnOnce(&Info) -> T) -> T {
    let mut analysis = Analysis::of(Sampling::of(trace.head()));
    trace.events().for_each(|event| analysis.add(&event.unwrap()));
    let summary = analysis.finish(5);
    let frames = vec!["make at a.c:3".into(), "main at a.c:9".into()];
    let sites = [site(frames, 3, 3100, 2000)];
    let damage = trace.damage().clone();
    let file = String::from("prog.qtr");
    let info = Info {
        file: &file,
        trace,
        summary: &summary,
        damage: &damage,
        source_damaged: false,
        sites: &sites,
        missing: &[],
        top: 5,
        now: None,
        all_stacks: false,
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
        "program prog a?[31m … (process 42)",
        "time 8 µs, from 2026-11-21 18:00:05 UTC",
        "end exit",
        "3 allocations of 383 B on average, of 3 different sizes; 375 000 in a second",
        "blocks freed 2, 150 B",
        "by another thread 1 (50 % of all frees), 100 B",
        "temporary 1 (50 % of all frees), 50 B",
        "moved 1 (100 %), 1000 B to copy",
        "peak 1.95 KiB (2 000 bytes) in 1 block, after 5 µs and 3 allocations",
        "at the end 1.95 KiB in 1 block still live",
        "resident at most 12.0 KiB (8.00 KiB anonymous, 4.00 KiB of files), after 6 µs",
        "1.95 KiB 3.03 KiB 3 0.0 % 0 B make at a.c:3",
        "< main at a.c:9",
        "Notes",
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

/// 2000 ticks of a clock of 3 GHz are 667 ns, and those below 2048 are within 682.
#[test]
fn lifetimes_are_within_what_the_text_says() {
    let head = Head { ticks_per_second: 3_000_000_000, ..Head::default() };
    let mut writer = TraceWriter::create(Vec::new(), &head, WriteOptions::default()).unwrap();
    for (time, what) in [(1000, alloc(0x1000, 100, 0)), (3000, free(0x1000))] {
        writer.event(&Event { time, thread: 1, what }).unwrap();
    }
    let trace = Trace::of_bytes(writer.finish(&End::default()).unwrap()).unwrap();
    let text = with_info(&trace, |info| text(info, Style::default()));
    assert!(text.contains("within 682 ns, nine tenths within 682 ns"), "{text}");
    assert!(text.contains("341 ns … 682 ns"), "{text}");
}

/// 400 blocks of 1000 bytes of which one in 500 is drawn, and two of a MiB.
fn sampled(rate: u64) -> Trace {
    let head = Head { process: 42, command: vec!["prog".into()], sample: rate, ..Head::default() };
    let mut writer = TraceWriter::create(Vec::new(), &head, WriteOptions::default()).unwrap();
    let mut event = |time, what| writer.event(&Event { time, thread: 1, what }).unwrap();
    (0..400).for_each(|n| event(1000 + n, alloc((n + 1) << 12, 1000, 1)));
    (0..2).for_each(|n| event(2000 + n, alloc((n + 1) << 24, 1 << 20, 2)));
    event(3000, What::Memory { anonymous: 400 << 20, file: 0 });
    event(3001, alloc(1 << 30, 1000, 1));
    event(3002, free(1 << 30));
    event(3003, What::Realloc { took: 1, old: 0x7777_0000, size: 1000, new: 1 << 31, stack: 1 });
    Trace::of_bytes(writer.finish(&End { reason: "exit".into(), ..End::default() }).unwrap()).unwrap()
}

#[test]
fn a_sample_says_that_it_is_one_and_what_that_means() {
    let trace = sampled(512 << 10);
    let text = with_info(&trace, |info| text(info, Style::default()));
    for wanted in [
        "one byte in 512 KiB was drawn",
        "estimates of the whole",
        "95 % interval",
        "at least 2 different sizes",
    ] {
        assert!(text.contains(wanted), "no '{wanted}' in:\n{text}");
    }
    // 402 of 1000 bytes stand for 524.8 each.
    assert!(text.contains("allocations of 10"), "{text}");
    assert!(text.contains("201 MiB (183 MiB … 221 MiB)") || text.contains(" … "), "{text}");
    // Nothing of the next event, of the sizes before, and of blocks that were not drawn.
    for none in ["temporary  ", "to copy", "grew", "Impossible"] {
        assert!(!text.contains(none), "'{none}' in:\n{text}");
    }
}

#[test]
fn json_of_a_sample_has_intervals_and_null() {
    let trace = sampled(512 << 10);
    let json = with_info(&trace, json);
    assert_eq!(json["sample"]["mean_bytes"], 512 << 10);
    assert_eq!(json["sample"]["estimated"], true);
    let near = |value: &serde_json::Value, right: f64| {
        let value = value.as_f64().unwrap();
        assert!((0.99..1.01).contains(&(value / right)), "{value} for {right}");
    };
    let weight = 524.788;
    near(&json["live"]["peak_bytes"], 401.0 * weight * 1000.0 + 2.0 * 1.1565 * 1048576.0);
    near(&json["allocations"]["count"], 401.0 * weight);
    near(&json["allocations"]["requested_bytes"], 402.0 * weight * 1000.0 + 2.0 * 1.1565 * 1048576.0);
    near(&json["events_by_kind"]["malloc"], 401.0 * weight + 2.3);
    near(&json["events_by_kind"]["realloc"], weight);
    near(&json["threads"][0]["bytes"], 401.0 * weight * 1000.0 + 2.0 * 1.1565 * 1048576.0);
    near(&json["lifetimes"]["blocks"], weight);
    let interval = &json["live"]["peak_bytes_interval"];
    let (low, peak, high) = (&interval[0], &json["live"]["peak_bytes"], &interval[1]);
    assert!(low.as_u64() < peak.as_u64() && peak.as_u64() < high.as_u64(), "{interval}");
    assert_eq!(json["frees"]["temporary"], serde_json::Value::Null);
    assert_eq!(json["reallocs"]["copied_bytes"], serde_json::Value::Null);
    assert_eq!(json["impossible"]["realloc_of_unknown"], 0);
    assert_eq!(json["events"], 406, "of the file");
}

/// The rate may adapt.
#[test]
fn a_sample_of_several_rates_names_them() {
    let head = Head { process: 42, sample: 512 << 10, ..Head::default() };
    let mut writer = TraceWriter::create(Vec::new(), &head, WriteOptions::default()).unwrap();
    let mut event = |time, what| writer.event(&Event { time, thread: 1, what }).unwrap();
    event(1000, alloc(4096, 1000, 1));
    event(1001, What::Sampled { mean: 8 << 20 });
    event(1002, alloc(8192, 1000, 1));
    let trace = Trace::of_bytes(writer.finish(&End::default()).unwrap()).unwrap();
    let (text, json) = with_info(&trace, |info| (text(info, Style::default()), json(info)));
    assert!(text.contains("one byte in 512 KiB to 8.00 MiB was drawn"), "{text}");
    assert_eq!(json["sample"]["mean_bytes_from_to"], serde_json::json!([512 << 10, 8 << 20]));
}

/// A whole trace has neither intervals nor a word of estimates.
#[test]
fn a_whole_trace_is_exact() {
    let trace = sampled(0);
    let (text, json) = with_info(&trace, |info| (text(info, Style::default()), json(info)));
    assert!(!text.contains("estimate") && !text.contains("95 %"), "{text}");
    assert_eq!(json["sample"], serde_json::Value::Null);
    assert!(!json.to_string().contains("_interval"), "{json}");
    assert_eq!(json["live"]["peak_bytes"], 401_000 + (2 << 20));
}

/// What is larger than the rate stands for hardly more than itself, at any rate.
#[test]
fn rates_of_one_byte_and_of_everything() {
    for rate in [1, u64::MAX] {
        let json = with_info(&sampled(rate), json);
        let peak = json["live"]["peak_bytes"].as_u64().unwrap();
        if rate == 1 {
            assert_eq!(peak, 401_000 + (2 << 20));
            assert_eq!(json["live"]["peak_bytes_interval"], serde_json::json!([peak, peak + 4]));
        } else {
            assert!(peak > 1 << 60, "{peak}");
        }
    }
}

#[test]
fn each_way_to_a_site_is_shown() {
    let trace = trace(true);
    let stack = |frames: &[&str], bytes: u64| Stack {
        frames: frames.iter().map(|&frame| frame.into()).collect(),
        sums: Sums { bytes: Estimate::exact(bytes), ..Sums::default() },
    };
    let stacks = vec![
        stack(&["leaf", "path_one", "main"], 1000),
        stack(&["leaf", "path_two", "main"], 900),
        stack(&["leaf", "three", "main"], 40),
        stack(&["leaf", "four", "main"], 30),
        stack(&["leaf", "four", "main", "elsewhere"], 30),
    ];
    let sums = Sums { bytes: Estimate::exact(2000), ..Sums::default() };
    let sites = [CallSite { stacks, sums, ..CallSite::default() }];
    with_info(&trace, |info| {
        let few = text(&Info { sites: &sites, ..*info }, Style::default());
        for wanted in [
            "50 % < path_one < main",
            "45 % < path_two < main",
            "3.0 % < four < main",
            "and 1 more; --stacks",
        ] {
            assert!(few.contains(wanted), "no '{wanted}' in:\n{few}");
        }
        assert!(!few.contains("three"));
        let all_stacks = Info { sites: &sites, all_stacks: true, ..*info };
        let all = text(&all_stacks, Style::default());
        assert!(
            all.contains("three") && all.contains("elsewhere") && all.matches("of it").count() == 5,
            "{all}"
        );
        let json = json(&all_stacks);
        let stacks = json["call_sites"][0]["all_stacks"].as_array().unwrap();
        assert_eq!(stacks.len(), 5);
        assert_eq!(stacks[4]["frames"], serde_json::json!(["leaf", "four", "main", "elsewhere"]));
        assert_eq!(stacks[1]["bytes"], 900);
    });
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
