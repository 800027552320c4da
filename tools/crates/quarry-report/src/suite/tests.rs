// SPDX-License-Identifier: MIT
//! The tables and the page, of samples whose sums are known.

use quarry_bench::suite::samples::{Library, Round, SCHEMA, Sample};

use super::*;

/// A run, and its rounds: who took how much of everything.
type Taken<'a> = (&'a str, &'a [&'a [(&'a str, f64)]]);

fn visits(runs: &[Taken]) -> Visits {
    let sample = |figure: f64| Sample {
        output: None,
        figures: ["seconds", "peak_kib", "cpu", "faults"].map(|m| (m.to_owned(), figure)).into(),
    };
    let round = |round: &&[(&str, f64)]| -> Round {
        round.iter().map(|(name, figure)| ((*name).to_owned(), sample(*figure))).collect()
    };
    runs.iter().map(|(run, rounds)| ((*run).to_owned(), rounds.iter().map(round).collect())).collect()
}

fn record(mallocs: &[&str], runs: Visits) -> Record {
    let library = |version: &str| Library { version: Some(version.to_owned()), ..Library::default() };
    Record {
        schema: SCHEMA.to_owned(),
        threads: 2,
        seconds: 3.0,
        seed: 1,
        load_before: 0.25,
        processors: vec![0, 1],
        kernel: String::from("6"),
        mallocs: mallocs.iter().map(|name| ((*name).to_owned(), library("1.0"))).collect(),
        pin: false,
        faults: vec![(String::from("c"), String::from("quarry"), String::from("c: status 3"))],
        runs,
    }
}

fn three() -> Record {
    let runs = visits(&[
        ("a", &[&[("quarry", 2.0), ("x", 1.0), ("y", 4.0)][..]; 3]),
        ("b", &[&[("quarry", 1.0), ("x", 8.0), ("y", 2.0)][..]; 3]),
        ("c", &[&[("x", 5.0)][..]; 3]),
    ]);
    record(&["quarry", "x", "y"], runs)
}

fn has(text: &str, line: &str) {
    assert!(text.contains(line), "no {line} in\n{text}");
}

#[test]
fn runs_and_means_have_tables() {
    let record = three();
    let written = ["a", "b"].map(str::to_owned);
    let held_out = ["c", "d"].map(str::to_owned);
    let shown = Shown { record: &record, written: &written, held_out: &held_out, targets: None };
    let text = shown.text();
    has(
        &text,
        "3 rounds, medians ± half the distance of the quartiles; N = 2; load average 0.2 before; 2 processors\n",
    );
    has(&text, "- x: 1.0\n");
    has(&text, "| Time, seconds | quarry ÷ best peer | quarry | x | y |\n|---|---:|---:|---:|---:|\n");
    has(&text, "| a | 2.00 ! | 2.000 ±0% | **1.000** ±0% | 4.000 ±0% |");
    has(&text, "| c | – | – | **5.000** ±0% | – |");
    has(&text, "| time, all (3) | **1.000** (2) | 1.587 | 2.000 (2) |");
    has(&text, "| time, written to load a malloc (2) | **1.000** |");
    has(&text, "| peak RSS, programs (1) | – | **1.000** | – |");
    has(&text, "| peak RSS, programs held out (1) | – | **1.000** | – |");
    has(&text, &format!("| time, all, {NAMED} |"));
    has(&text, "| quarry ÷ this peer | x | y |\n|---|---:|---:|\n| time | 0.500 (0.500–0.500) | 0.500 (");
    has(&text, "Time: a 2.00 times x\n");
    has(&text, "FAILED under quarry: c: status 3\n");
    assert!(!text.contains("beyond noise"), "three rounds are too few");
    let empty = Record { runs: visits(&[("a", &[])]), ..three() };
    assert_eq!(Shown { record: &empty, written: &[], held_out: &[], targets: None }.text(), "no samples\n");
}

#[test]
fn who_is_ahead_beyond_noise_is_said() {
    let runs = visits(&[
        ("a", &[&[("quarry", 1.01), ("x", 1.0)][..]; 8]),
        ("b", &[&[("quarry", 1.0), ("x", 1.0)][..]; 8]),
    ]);
    let record = record(&["quarry", "x"], runs);
    let text = Shown { record: &record, written: &[], held_out: &[], targets: None }.text();
    has(&text, "| a | x 1.010 | x 1.010 |\n| b | nobody | nobody |\n| nobody at | 1 of 2 | 1 of 2 |\n");
    has(&text, "first or within noise of the first in both: 1 of 2\n");
    assert!(!text.contains("held out"), "{text}");
}

/// A run that ours or all peers failed has no say, and does not take it from the others.
#[test]
fn a_run_without_figures_is_left_out_of_who_is_ahead() {
    let runs = visits(&[
        ("a", &[&[("quarry", 1.01), ("x", 1.0)][..]; 8]),
        ("b", &[&[("x", 1.0)][..]; 8]),
        ("c", &[&[("quarry", 1.0)][..]; 8]),
        ("d", &[&[("quarry", 1.0), ("x", 1.0)][..]; 3]),
    ]);
    let record = record(&["quarry", "x"], runs);
    let text = Shown { record: &record, written: &[], held_out: &[], targets: None }.text();
    has(&text, "| a | x 1.010 | x 1.010 |\n| nobody at | 0 of 1 | 0 of 1 |\n");
    has(&text, "in both: 0 of 1; left out, with too few rounds or figures: b, c, d\n");
}

#[test]
fn files_agree_or_do_not() {
    let of = |count: u32, figure: f64| {
        let rounds: Vec<[(&str, f64); 2]> =
            (0..count).map(|i| [("quarry", figure + f64::from(i) / 100.0), ("x", 1.0)]).collect();
        let rounds: Vec<&[(&str, f64)]> = rounds.iter().map(|round| &round[..]).collect();
        visits(&[("a", &rounds)])
    };
    let mallocs = ["quarry", "x", "y"].map(str::to_owned);
    let files =
        [("one", 1.0), ("two", 1.01), ("three", 2.0)].map(|(name, figure)| (name.to_owned(), of(3, figure)));
    let two = apart(&files[..2], &mallocs);
    has(&two, "| time, one: 3 rounds | 1.010 (1.000–1.020) | 1.000 (1.000–1.000) | – |");
    has(&two, &format!("| time, one, {NAMED} | 1.010 (1.000–1.020) | 1.000 (1.000–1.000) | – |"));
    has(&two, "the files agree: all");
    has(&two, &format!("the files agree, {NAMED}: all"));
    let all = apart(&files, &mallocs);
    assert_eq!(all.matches("the files differ: quarry: ").count(), 4, "{all}");
    has(&all, "the files differ: quarry: time: 1.000–1.020, ");
    assert!(!all.contains("differ: x"), "{all}");
    // Of one or two rounds no mean has an interval, and one interval alone is compared with nothing.
    for (counts, told) in [([1, 1], false), ([3, 2], false), ([3, 3], true)] {
        let files = [("one", counts[0], 1.0), ("two", counts[1], 1.5)];
        let text = apart(&files.map(|(name, count, figure)| (name.to_owned(), of(count, figure))), &mallocs);
        assert_eq!(text.contains("too few rounds to tell whether the files agree\n"), !told, "{text}");
        assert_eq!(text.contains("the files differ: "), told, "{text}");
        assert!(!text.contains("have a common part"), "{text}");
    }
}

#[test]
fn targets_have_a_table() {
    let record = three();
    let suite = [String::from("a"), String::from("b")];
    let expected = Expected::default();
    let shown = Shown { record: &record, written: &[], held_out: &[], targets: Some((&suite, &expected)) };
    let table = shown.targets_table(&suite, &expected);
    assert_eq!(table.rows.len(), targets::all().len());
    assert!(table.rows.iter().all(|row| row.len() == table.head.len()));
    has(
        &table.text(),
        "| the suite, mean of all runs: time | ÷ best peer of each run ≤ 1.03 | **1.000** | met | 2.000 | 2.000 |",
    );
    has(&table.text(), "| latency, one thread: the longest call | ÷ best peer ≤ 1 | – | not measured | – |");
    has(&shown.text(), "| target | limit | quarry |");
}

#[test]
fn the_page_has_all_of_it() {
    let record = three();
    let shown = Shown { record: &record, written: &[], held_out: &[], targets: None };
    let page = page::page(&shown);
    for part in [
        "<title>Quarry bench suite: 3 runs, 3 mallocs</title>",
        "<td><b>1.000</b> ±0%</td>",
        "<p class=\"bad\">FAILED under quarry: c: status 3</p>",
        "Mean peak RSS of all runs",
        "<svg",
    ] {
        has(&page, part);
    }
    assert_eq!(page::pictures(&shown).iter().map(|figure| figure.name.as_str()).collect::<Vec<_>>().len(), 4);
}

/// Of two sessions nobody knows what the machine had to do with it.
#[test]
fn who_never_ran_beside_ours_is_named() {
    let runs = visits(&[("a", &[&[("quarry", 2.0), ("y", 1.0)][..], &[("x", 1.0), ("y", 1.0)][..]])]);
    let record = record(&["quarry", "x", "y"], runs);
    let text = Shown { record: &record, written: &[], held_out: &[], targets: None }.text();
    has(&text, "Never in one round with quarry: x. ");
    let together = three();
    let text = Shown { record: &together, written: &[], held_out: &[], targets: None }.text();
    assert!(!text.contains("Never in one round"), "{text}");
}
