// SPDX-License-Identifier: MIT
use super::*;

fn usage(wall_s: f64, mib: u64) -> Usage {
    Usage {
        wall_s,
        user_s: wall_s / 2.0,
        system_s: wall_s / 4.0,
        peak_rss_bytes: mib << 20,
        minor_faults: 100 * mib,
        major_faults: 0,
        voluntary_switches: 1,
        involuntary_switches: 2,
    }
}

fn run(round: usize, allocator: usize, wall_s: f64) -> Run {
    Run {
        round,
        position: allocator + 1,
        allocator,
        end: End::Exit(0),
        usage: usage(wall_s, 10 - allocator as u64),
        stdout_bytes: 3,
        stdout_hash: String::from("abc"),
        stderr: String::new(),
    }
}

fn comparison() -> Comparison {
    of_rounds(3)
}

/// So many rounds after a warm-up: `fast` takes half the system's time, always.
fn of_rounds(count: usize) -> Comparison {
    let allocator = |name: &str| Allocator {
        name: name.to_owned(),
        library: None,
        version: Some(String::from("1.2")),
        loaded: Some(true),
        notes: Vec::new(),
    };
    let rounds = (0..=count).flat_map(|round| {
        let base = 1.0 + 0.01 * round as f64;
        [run(round, 0, base), run(round, 1, base / 2.0)]
    });
    Comparison {
        command: vec![String::from("prog"), String::from("-x")],
        machine: Machine::read(),
        started: 1,
        seed: 42,
        rounds: count,
        warmup: 1,
        interrupted: false,
        expected_exit: 0,
        allocators: vec![allocator(BASE), allocator("fast")],
        runs: rounds.collect(),
    }
}

#[test]
fn warm_ups_do_not_count() {
    let result = comparison().result(1);
    assert_eq!(result.succeeded, 3);
    assert!((result.wall_s.unwrap().median - 0.51).abs() < 1e-9);
    let ratio = result.wall_ratio.unwrap();
    assert!((ratio.ratio - 0.5).abs() < 1e-9);
    assert!(ratio.interval.is_some());
    assert_eq!(comparison().result(0).wall_ratio, None);
}

#[test]
fn rows_are_sorted_as_asked() {
    let c = comparison();
    let first = |order| c.text(Style::default(), order).lines().nth(3).unwrap().trim().to_owned();
    assert!(first(Order::Wall).starts_with("fast"), "{}", first(Order::Wall));
    assert!(first(Order::Given).starts_with("system"), "{}", first(Order::Given));
    assert!(first(Order::Rss).starts_with("fast"), "{}", first(Order::Rss));
}

#[test]
fn only_colour_makes_the_best_bold() {
    let c = comparison();
    assert!(!c.text(Style::default(), Order::Wall).contains('\x1b'));
    let coloured = c.text(Style { color: true, width: None }, Order::Wall);
    let best = coloured.lines().find(|line| line.contains("fast")).unwrap();
    let base = coloured.lines().find(|line| line.contains("system ")).unwrap();
    assert!(best.contains("\x1b[1m"), "{best:?}");
    assert!(!base.contains("\x1b[1m"), "{base:?}");
}

#[test]
fn a_failure_under_one_allocator_is_ours_to_tell() {
    let mut c = comparison();
    assert_eq!(c.exit_code(), 0);
    c.runs[5].end = End::Signal(6);
    c.runs[5].stderr = String::from("first\nquarry: double free\n");
    assert_eq!(c.exit_code(), 1);
    let result = c.result(1);
    assert_eq!((result.succeeded, result.failed), (2, 1));
    let text = c.text(Style::default(), Order::Given);
    assert!(text.contains("failed: 1 x SIGABRT"), "{text}");
    assert!(
        text.contains("failed first in round 2 with SIGABRT; its last line on stderr: quarry: double free"),
        "{text}"
    );
    assert_eq!(c.json()["runs"][5]["signal"], 6);
    assert_eq!(c.json()["runs"][5]["stderr"], "first\nquarry: double free\n");
    assert_eq!(c.json()["runs"][4]["stderr"], Value::Null);
}

#[test]
fn a_failure_of_the_program_itself_is_passed_on() {
    let mut c = comparison();
    c.runs[0].end = End::Exit(9);
    assert_eq!(c.exit_code(), 9);
    c.runs[0].end = End::Signal(11);
    assert_eq!(c.exit_code(), 139);
    c.runs[0].end = End::Exit(0);
    c.expected_exit = 4;
    assert_eq!(c.exit_code(), 1);
    c.runs.iter_mut().for_each(|run| run.end = End::Exit(4));
    assert_eq!(c.exit_code(), 0);
}

#[test]
fn outputs_are_compared_only_with_a_steady_base() {
    let mut c = comparison();
    assert_eq!((c.result(0).output, c.result(1).output), (Output::Same, Output::Same));
    c.runs[5].stdout_hash = String::from("xyz");
    assert_eq!(c.result(1).output, Output::Differs);
    // Who reads the table alone does not know what differs.
    let text = c.text(Style::default(), Order::Wall);
    assert!(
        text.contains("\noutput differs: the standard output is another one than under system."),
        "{text}"
    );
    c.runs[4].stdout_hash = String::from("other");
    assert_eq!(c.result(1).output, Output::Varies);
    let text = c.text(Style::default(), Order::Wall);
    assert!(!text.contains("output differs") && text.contains("changes from run to run"), "{text}");
    c.runs.iter_mut().for_each(|run| run.end = End::Exit(1));
    assert_eq!(c.result(1).output, Output::Unknown);
}

#[test]
fn a_noisy_base_is_called_noisy() {
    let mut c = comparison();
    assert!(
        c.text(Style::default(), Order::Wall).contains("noise: the system's own wall time varies by 1.5 %\n")
    );
    for (index, wall) in [1.0, 1.5, 2.0].into_iter().enumerate() {
        c.runs[2 + 2 * index].usage.wall_s = wall;
    }
    assert!(c.text(Style::default(), Order::Wall).contains("do not trust small differences"));
    // One round says nothing of it.
    c.runs.iter_mut().filter(|run| run.round > 1).for_each(|run| run.end = End::Exit(1));
    assert!(!c.text(Style::default(), Order::Wall).contains("noise:"));
}

#[test]
fn what_was_not_loaded_is_never_best() {
    let mut c = comparison();
    c.allocators[1].loaded = Some(false);
    c.allocators[1].notes.push(String::from("is statically linked"));
    let text = c.text(Style { color: true, width: None }, Order::Wall);
    let row = text.lines().find(|line| line.contains("fast")).unwrap();
    assert!(row.contains("not loaded") && !row.contains("\x1b[1m"), "{row:?}");
    assert!(text.contains("fast: is statically linked"), "{text}");
}

#[test]
fn the_last_lines_say_who_is_fastest_and_leanest() {
    let mut c = of_rounds(5);
    let ends = |c: &Comparison, end: &str| {
        let text = c.text(Style::default(), Order::Wall);
        assert!(text.ends_with(end), "{end} in\n{text}");
    };
    ends(&c, "fastest: fast, 515 ms\nleanest: fast, 9.00 MiB\n");
    let verdict = &c.json()["verdict"];
    assert_eq!((&verdict["fastest"]["allocator"], &verdict["reason"]), (&"fast".into(), &Value::Null));
    assert_eq!(verdict["leanest"]["median"], 9.0 * f64::from(1 << 20));
    assert_eq!(verdict["fastest"]["no_difference_shown"].as_array().unwrap().len(), 0);
    // It is the faster one in some rounds, and the slower one in others; it always needs as much memory.
    for (run, wall_s) in [(3, 1.2), (5, 0.9), (7, 1.0), (9, 1.2), (11, 0.9)] {
        c.runs[run].usage = usage(wall_s, 10);
    }
    ends(
        &c,
        "fastest: fast, 1.00 s; no difference shown: system\nleanest: system, 10.0 MiB; no difference shown: fast\n",
    );
    let text = c.text(Style::default(), Order::Wall);
    assert!(
        text.contains("\nno difference shown: each round is compared with the same round of the others"),
        "{text}"
    );
    assert_eq!(c.json()["verdict"]["fastest"]["no_difference_shown"][0], "system");
    // Who was not in the program, or failed, is not named.
    c.allocators[1].loaded = Some(false);
    assert!(c.json()["verdict"].is_null());
    c.allocators[1].loaded = Some(true);
    c.runs[3].end = End::Exit(1);
    assert!(c.json()["verdict"].is_null());
}

/// In all of them one may be the faster one by chance.
#[test]
fn few_rounds_show_no_difference() {
    for rounds in [2, 4] {
        let c = of_rounds(rounds);
        let text = c.text(Style::default(), Order::Wall);
        let end = format!(
            "fastest, leanest: not shown: {rounds} rounds are not enough to tell allocators apart; -n 5 is the least\n"
        );
        assert!(text.ends_with(&end), "{text}");
        let verdict = &c.json()["verdict"];
        assert!(verdict["fastest"].is_null());
        assert!(verdict["reason"].as_str().unwrap().starts_with(&format!("{rounds} rounds")));
    }
}
