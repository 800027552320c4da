// SPDX-License-Identifier: MIT
//! The report of a replay whose runs are made up.

use std::path::PathBuf;

use quarry_measure::preload::Conf;
use quarry_measure::spawn::End;
use quarry_replay::session::{Contestant, Run, Settings, Touch};

use super::*;

const MIB: u64 = 1 << 20;

/// What a replayer that takes so long, at so many MiB, would write.
fn report(ms: u64, mib: u64, timed: bool) -> Report {
    let operation = |count: u64| match timed {
        true => json!({
            "count": count, "failed": 0, "timed": count, "sum_ns": ms as f64 * 1e5, "p50_ns": 20.0, "p90_ns": 30.0,
            "p99_ns": 100.0 * ms as f64, "p999_ns": 5000.0, "max_ns": 1e6, "buckets": [[16.0, count - 1], [900_000.0, 1]],
        }),
        false => json!({ "count": count, "failed": 0 }),
    };
    let rows: Vec<Value> = (0..10u64)
        .map(|i| json!([i * 1_000_000, (i * mib / 10 + 1) * MIB, i * mib * MIB / 20, i * 100]))
        .collect();
    let text = json!({
        "format": "quarry-replayer/1", "threads": 2, "alive": 2, "slots": 64, "strict": false, "played": 1000,
        "wall_ns": ms * 1_000_000, "busy_ns": ms * 2_000_000, "waited_ns": 5, "late_ns": 0, "user_ns": ms * 1_500_000,
        "system_ns": 1, "minor_faults": 10 * mib, "major_faults": 0, "voluntary_switches": 0,
        "involuntary_switches": 0, "repeats_ns": [ms * 1_000_000],
        "timer": { "clock": "tsc", "ns_per_tick": 0.5, "cost_ns": 20.0 },
        "operations": { "malloc": operation(500), "free": operation(500) },
        "left": { "blocks": 0, "bytes": 0, "free_ns": 0 },
        "rss": { "own": MIB, "start": MIB, "peak": (mib + 1) * MIB, "peak_from": "kernel", "end": 3 * MIB,
                 "end_idle": null, "freed": 2 * MIB, "freed_idle": null },
        "curve": null,
        "samples": { "interval_ns": 1_000_000, "peak_anonymous": (mib + 1) * MIB, "peak_live": mib * MIB / 2,
                     "columns": ["ns", "anonymous", "live", "operations"], "rows": rows },
        "verify": null,
    });
    Report::parse(&text.to_string()).unwrap()
}

fn session() -> Session {
    let settings = Settings {
        instances: 1,
        repeats: 1,
        touch: Touch::All,
        real_time: false,
        verify: false,
        idle_s: 0.0,
        latency: true,
        curve: None,
        early: false,
        no_huge_pages: false,
    };
    let contestants = ["system", "quick", "broken"].map(|name| Contestant {
        name: name.to_owned(),
        library: None,
        preload: None,
        conf: Conf::parse(if name == "quick" { "a:1" } else { "" }).unwrap(),
    });
    let mut session =
        Session::new(PathBuf::from("replayer"), PathBuf::from("plan"), settings, contestants.into(), 1)
            .unwrap();
    let mut run = |round, pass, contestant, end, report: Option<Report>| {
        let said = if report.is_none() { "first line\nit broke\n" } else { "" };
        session.runs.push(Run { round, pass, contestant, end, report, said: said.to_owned() });
    };
    run(0, Pass::WarmUp, 2, End::Signal(11), None);
    for round in 1..=5 {
        let noise = round as u64;
        run(round, Pass::Totals, 0, End::Exit(0), Some(report(100 + noise, 40, false)));
        run(round, Pass::Totals, 1, End::Exit(0), Some(report(50 + noise, 20, false)));
        run(round, Pass::Latency, 0, End::Exit(0), Some(report(200, 40, true)));
        run(round, Pass::Latency, 1, End::Exit(0), Some(report(150, 20, true)));
    }
    session
}

fn replay(session: &Session) -> Replay<'_> {
    let allocators = ["system", "quick", "broken"].map(|name| Allocator {
        name: name.to_owned(),
        library: None,
        version: None,
        loaded: Some(true),
        notes: Vec::new(),
    });
    let head = Head { operations: [1000, 500, 0, 0, 0, 500, 0, 0], threads: 2, alive: 2, ..Head::default() };
    Replay {
        file: String::from("a<b.qtr"),
        about: String::from("./prog"),
        head,
        counts: Some(Counts { lost: 3, ..Counts::default() }),
        sample: None,
        damage: None,
        strict: false,
        machine: Machine::read(),
        started: 1,
        seed: 1,
        rounds: 5,
        interrupted: false,
        allocators: allocators.into(),
        prediction: None,
        session,
    }
}

#[test]
fn runs_amount_to_medians_and_ratios() {
    let session = session();
    let replay = replay(&session);
    let quick = replay.outcome(1);
    assert_eq!(quick.succeeded, 5);
    assert!((quick.time_s.unwrap().median - 0.053).abs() < 1e-9);
    assert!((quick.time_ratio.unwrap().ratio - 53.0 / 103.0).abs() < 1e-9);
    assert_eq!(quick.peak_rss_bytes.unwrap().median, 20.0 * MIB as f64);
    assert_eq!(quick.end_rss_bytes.unwrap().median, 2.0 * MIB as f64);
    assert!((quick.rss_per_live.unwrap().median - 2.0).abs() < 0.3, "{:?}", quick.rss_per_live);
    assert_eq!(quick.latency["malloc"].p99_ns.unwrap().median, 15_000.0);
    assert!((quick.in_calls_s.unwrap().median - 0.03).abs() < 1e-9);
    assert!(!quick.latency.contains_key("realloc"));
    let broken = replay.outcome(2);
    assert_eq!((broken.succeeded, broken.failed), (0, 1));
    assert!(broken.time_s.is_none());
    assert_eq!(replay.exit_code(), 1);
}

#[test]
fn the_table_has_the_fastest_first_and_says_who_failed() {
    let session = session();
    let text = replay(&session).text(Style::default(), true);
    let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what} in\n{text}"));
    assert!(at("\n quick") < at("\n system") && at("\n system") < at("\n broken"), "{text}");
    at("failed: broken failed in warm-up with SIGSEGV; its last line on stderr: it broke");
    at("3 events lost when it was recorded");
    at("p99.9");
    at("5 rounds in random order (seed 1)");
}

#[test]
fn without_details_there_is_what_decides() {
    let mut session = session();
    let text = replay(&session).text(Style::default(), false);
    assert!(text.contains("peak RSS") && text.ends_with("leanest: quick, 20.0 MiB\n"), "{text}");
    assert!(text.contains("failed: broken failed in warm-up"), "{text}");
    assert!(!text.contains("p99.9") && !text.contains("seed 1"), "{text}");
    assert!(
        text.contains("5 rounds in random order. --details has the times of single calls, how"),
        "{text}"
    );
    assert!(text.lines().count() < 16, "{text}");
    session.settings.latency = false;
    let text = replay(&session).text(Style::default(), false);
    assert!(text.contains("--details has how they were made"), "{text}");
}

#[test]
fn json_has_what_the_documents_say() {
    let session = session();
    let json = replay(&session).json();
    assert_eq!(json["schema"], "quarry-replay/1");
    assert_eq!(json["plan"]["operations"]["malloc"], 500);
    assert_eq!(json["allocators"][1]["conf"], "a:1");
    assert_eq!(json["allocators"][1]["result"]["succeeded"], 5);
    assert_eq!(json["allocators"][0]["samples"]["rows"].as_array().unwrap().len(), 10);
    assert_eq!(json["allocators"][0]["timed"]["malloc"]["buckets"][1][1], 1);
    assert_eq!(json["runs"].as_array().unwrap().len(), 21);
    assert_eq!(json["runs"][0]["signal"], 11);
    assert_eq!(json["runs"][0]["said"], "first line\nit broke\n");
    assert_eq!(json["runs"][1]["report"]["samples"]["rows"].as_array().unwrap().len(), 0);
    assert_eq!(json["events"]["lost"], 3);
}

#[test]
fn the_page_needs_nothing_beside_itself() {
    let session = session();
    let page = replay(&session).html();
    // Bars, memory, and two kinds of calls.
    assert_eq!(page.matches("<svg").count(), 4);
    assert!(page.contains("a&lt;b.qtr") && !page.contains("a<b.qtr"));
    for outside in ["<script", "<link", "<img", "src=", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(!page.replace("http://www.w3.org/2000/svg", "").contains("://"));
}

#[test]
fn the_last_lines_say_who_is_fastest_and_leanest() {
    let mut session = session();
    let text = replay(&session).text(Style::default(), true);
    assert!(text.ends_with("fastest: quick, 53.0 ms\nleanest: quick, 20.0 MiB\n"), "{text}");
    assert_eq!(replay(&session).json()["verdict"]["leanest"]["allocator"], "quick");
    let page = replay(&session).html();
    assert!(page.contains("fastest: quick, 53.0 ms\nleanest: quick, 20.0 MiB\n"), "{page}");
    // As much memory as the other one, and more time in three of five rounds.
    for run in session.runs.iter_mut().filter(|run| run.contestant == 1 && run.pass == Pass::Totals) {
        let ms = if run.round % 2 == 1 { 140 } else { 90 };
        run.report = Some(report(ms, 40, false));
    }
    let text = replay(&session).text(Style::default(), true);
    assert!(text.contains("\nfastest: system, 10"), "{text}");
    assert_eq!(text.matches("no difference shown: quick\n").count(), 2, "{text}");
    assert!(text.ends_with("leanest: system, 40.0 MiB; no difference shown: quick\n"), "{text}");
}

#[test]
fn one_round_has_no_spread_and_shows_nothing() {
    let mut session = session();
    assert!(replay(&session).text(Style::default(), true).contains("±"));
    session.runs.retain(|run| run.round <= 1);
    let one = Replay { rounds: 1, ..replay(&session) };
    let text = one.text(Style::default(), true);
    assert!(!text.contains('±') && text.contains("51.0 ms  -"), "{text}");
    assert!(
        text.ends_with("not shown: 1 round is not enough to tell allocators apart; -n 5 is the least\n"),
        "{text}"
    );
}
