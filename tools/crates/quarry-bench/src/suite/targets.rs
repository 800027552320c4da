// SPDX-License-Identifier: MIT
//! What the heap is to reach: each target with our figure, and whether it is missed by more than noise.
//!
//! A target is a limit for one figure, which is made of the samples of one run or several. So it can be worked out again from
//! any of the rounds. A figure beyond the limit that is not beyond it in all of what resampling gives is within noise.

use std::collections::BTreeMap;

use quarry_measure::stats::geometric_mean;
use serde::Deserialize;

use super::samples::Visits;
use super::sums::{self, Figures, OURS, Row, SYSTEM, View};

const MIB: f64 = 1_048_576.0;

/// Of the real programs: interpreters and a compiler that have one thread.
pub const SMALL: [&str; 6] = ["python", "perl", "gawk", "lua5.4", "tcl", "compiler"];

/// What bench/fastpath/expected.json holds.
#[derive(Debug, Default, Deserialize)]
pub struct Expected {
    /// The instructions of each call.
    pub instructions: BTreeMap<String, Vec<f64>>,
}

/// What a figure is made of.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Made {
    /// A run's figure ÷ that of the best peer.
    Best(&'static str),
    /// A run's figure ÷ a unit.
    Amount(&'static str, f64),
    /// A run's figure less that of the system's malloc.
    AboveSystem(&'static str),
    /// A malloc's figure in one run ÷ its own in another.
    Quotient(&'static str, &'static str),
    /// The mean over small programs of what a malloc is of the system's.
    ToSystem,
    /// The mean of all runs of the suite.
    SuiteMean,
    /// The worst of these.
    SuiteWorst,
    /// What we are of each peer; for us, what is closest to us or ahead.
    SuiteAgainst,
    /// What is counted, not measured: of ours alone, and the same each time.
    Instructions(&'static str),
}

/// A figure is to be no more than a limit, or no less.
#[derive(Debug, Clone)]
pub struct Target {
    /// What it is.
    pub text: String,
    /// The limit.
    pub limit: f64,
    made: Made,
    measure: &'static str,
    /// Of the limit and all figures.
    pub unit: &'static str,
    /// Digits behind the point.
    pub digits: usize,
    /// The figure is to be no less.
    pub at_least: bool,
}

/// What is said of a target.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// The figure of each malloc.
    pub figures: Row,
    /// Is it met?
    pub said: String,
}

/// All targets.
pub fn all() -> Vec<Target> {
    let best = "÷ best peer";
    let at_best = |text: &str, run: &'static str, measures: [&'static str; 2]| {
        measures.map(|measure| {
            let name = match measure {
                "seconds" => "time",
                "peak_kib" => "peak RSS",
                "p9999" => "99.99 % of the calls",
                _ => "the longest call",
            };
            target(&format!("{text}: {name}"), 1.0, Made::Best(run), measure, best, 2)
        })
    };
    let cost = ["seconds", "peak_kib"];
    let calls = ["p9999", "longest"];
    let suite = |text: &str, limit: f64, made: Made, measure: &'static str, unit: &'static str, digits| {
        target(&format!("the suite, {text}"), limit, made, measure, unit, digits)
    };
    let instructions =
        |text: &str, limit, call| target(text, limit, Made::Instructions(call), "seconds", "instructions", 0);
    let each = "÷ best peer of each run";
    let peer = "quarry ÷ this peer";
    let mut targets = vec![
        suite("mean of all runs: time", 1.03, Made::SuiteMean, "seconds", each, 3),
        suite("mean of all runs: peak RSS", 1.08, Made::SuiteMean, "peak_kib", each, 3),
        suite("ahead of every single peer: time", 1.0, Made::SuiteAgainst, "seconds", peer, 3),
        suite("ahead of every single peer: peak RSS", 1.0, Made::SuiteAgainst, "peak_kib", peer, 3),
        suite("the worst run: time", 1.15, Made::SuiteWorst, "seconds", best, 2),
        suite("the worst run: peak RSS", 1.30, Made::SuiteWorst, "peak_kib", best, 2),
        instructions("malloc of a small size", 12.0, "malloc 32"),
        instructions("free of one's own small block", 16.0, "free 32"),
        instructions("malloc up to 64 KiB", 25.0, "malloc 40000"),
    ];
    targets.extend(at_best("producer and consumer", "producer-consumer", cost));
    targets.extend(at_best("live sets handed over", "handover", cost));
    targets.extend(at_best("20 threads, some blocks passed on", "churn-20-threads", cost));
    targets.extend(at_best("20 threads, a tenth exchanged", "exchange-20-threads", cost));
    targets.extend(of_our_programs(best));
    targets.extend(at_best("latency, one thread", "latency", calls));
    targets.extend(at_best("latency, all processors", "latency-threads", calls));
    targets
}

fn of_our_programs(best: &'static str) -> Vec<Target> {
    let live = Made::Quotient("live-by-40-threads", "live-by-2-threads");
    let vector = Made::Quotient("vector-copied", "vector");
    let nothing = "a program that does nothing: peak RSS";
    let small = "five interpreters and a compiler: peak RSS";
    vec![
        target("the same live blocks by 40 threads: peak RSS", 1.25, live, "peak_kib", "÷ by 2 threads", 2),
        target(
            "1 GiB of 16 to 4096 bytes, 90 % freed, idle",
            400.0,
            Made::Amount("idle", MIB),
            "most",
            "MiB",
            0,
        ),
        target("then all freed, idle", 32.0, Made::Amount("idle", MIB), "all", "MiB", 0),
        target(nothing, 100.0, Made::AboveSystem("base"), "started", "KiB above the system's", 0),
        target(small, 1.0, Made::ToSystem, "peak_kib", "÷ the system's", 3),
        Target {
            at_least: true,
            ..target(
                "a vector that grows to 32 MiB",
                10.0,
                vector,
                "seconds",
                "time if copied ÷ by realloc",
                1,
            )
        },
        target("alternating large sizes: time", 1.15, Made::Best("large"), "seconds", best, 2),
        target("alternating large sizes: peak RSS", 1.30, Made::Best("large"), "peak_kib", best, 2),
    ]
}

fn target(
    text: &str,
    limit: f64,
    made: Made,
    measure: &'static str,
    unit: &'static str,
    digits: usize,
) -> Target {
    Target { text: text.to_owned(), limit, made, measure, unit, digits, at_least: false }
}

impl Target {
    /// Is this good enough?
    pub fn is_met(&self, figure: f64) -> bool {
        if self.at_least { figure >= self.limit } else { figure <= self.limit }
    }

    /// What is said of these samples. `suite` has the names of the suite's runs.
    pub fn verdict(
        &self,
        visits: &Visits,
        mallocs: &[String],
        suite: &[String],
        expected: &Expected,
    ) -> Verdict {
        let all = Figures::of(visits, mallocs, self.measure);
        let view = all.only(|run| self.made.is_of(run, suite));
        let figures = self.made.figure(&view, expected);
        let ours = view.place(OURS);
        let said = match ours.and_then(|ours| figures[ours]) {
            None => String::from("not measured"),
            Some(figure) if self.is_met(figure) => String::from("met"),
            Some(_) => match self.between(&view, expected) {
                Some((low, high)) if self.is_met(low) || self.is_met(high) => {
                    format!("within noise ({low:.digits$}–{high:.digits$})", digits = self.digits)
                }
                _ => String::from("missed"),
            },
        };
        Verdict { figures, said }
    }

    /// The 95 % of our figure, if the rounds had come in other numbers.
    fn between<'a>(&self, view: &View<'a>, expected: &Expected) -> Option<(f64, f64)> {
        let ours = view.place(OURS)?;
        // Only rounds in which we have a sample: from others our figure could not be worked out.
        let with_us = |rounds: &Vec<&'a sums::Round>| -> Vec<&'a sums::Round> {
            rounds.iter().copied().filter(|round| round[ours].is_some()).collect()
        };
        let runs = view.runs.iter().map(|(run, rounds)| (*run, with_us(rounds))).collect();
        View { mallocs: view.mallocs, runs }.intervals(|again| self.made.figure(again, expected))[ours]
    }
}

impl Made {
    /// Is this run one that the figure is made of?
    fn is_of(self, run: &str, suite: &[String]) -> bool {
        match self {
            Made::Best(name) | Made::Amount(name, _) | Made::AboveSystem(name) => run == name,
            Made::Quotient(above, below) => run == above || run == below,
            Made::ToSystem => SMALL.contains(&run),
            Made::SuiteMean | Made::SuiteWorst | Made::SuiteAgainst => suite.iter().any(|name| name == run),
            Made::Instructions(_) => false,
        }
    }

    /// The runs that it needs by name.
    #[cfg(test)]
    pub fn runs(self) -> Vec<&'static str> {
        match self {
            Made::Best(name) | Made::Amount(name, _) | Made::AboveSystem(name) => vec![name],
            Made::Quotient(above, below) => vec![above, below],
            _ => Vec::new(),
        }
    }

    fn figure(self, view: &View, expected: &Expected) -> Row {
        let none = || vec![None; view.mallocs.len()];
        let of_run = |table: Vec<(&str, Row)>, name: &str| {
            table.into_iter().find(|(run, _)| *run == name).map(|(_, row)| row).unwrap_or_else(none)
        };
        let medians = |name: &str| of_run(view.medians(), name);
        match self {
            Made::Best(run) => of_run(view.ratios(), run),
            Made::Amount(run, unit) => medians(run).iter().map(|figure| figure.map(|f| f / unit)).collect(),
            Made::AboveSystem(run) => {
                let row = medians(run);
                let system = view.place(SYSTEM).and_then(|place| row[place]);
                row.iter().map(|figure| Some((*figure)? - system?)).collect()
            }
            Made::Quotient(above, below) => {
                medians(above).iter().zip(medians(below)).map(|(a, b)| Some((*a)? / b?)).collect()
            }
            Made::ToSystem => to_system(view),
            Made::SuiteMean => view.mean_row(),
            Made::SuiteWorst => {
                let ratios = view.ratios();
                let worst =
                    |place: usize| ratios.iter().filter_map(|(_, row)| row[place]).max_by(f64::total_cmp);
                (0..view.mallocs.len()).map(worst).collect()
            }
            Made::SuiteAgainst => {
                let mut row = view.against();
                let most = row.iter().flatten().copied().max_by(f64::total_cmp);
                if let Some(ours) = view.place(OURS) {
                    row[ours] = most;
                }
                row
            }
            Made::Instructions(call) => {
                let counted = expected.instructions.get(call).and_then(|counts| counts.first()).copied();
                view.mallocs.iter().map(|name| counted.filter(|_| name == OURS)).collect()
            }
        }
    }
}

/// The geometric mean over the runs of what each malloc is of the system's.
fn to_system(view: &View) -> Row {
    let medians = view.medians();
    let system = view.place(SYSTEM);
    let of = |place: usize| {
        let ratio = |(_, row): &(&str, Row)| Some(row[place]? / row[system?]?);
        geometric_mean(&medians.iter().filter_map(ratio).collect::<Vec<f64>>())
    };
    (0..view.mallocs.len()).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::super::runs;
    use super::super::sums_tests::{names, visits};
    use super::*;

    fn verdict(limit: f64, made: Made, of: &Visits, at_least: bool) -> (Option<f64>, Option<f64>, String) {
        let target = Target { at_least, ..target("x", limit, made, "seconds", "", 2) };
        let suite = [String::from("cfrac"), String::from("espresso")];
        let Verdict { figures, said } =
            target.verdict(of, &names(&["quarry", "sys", "x"]), &suite, &Expected::default());
        (figures[0], figures[1], said)
    }

    fn samples() -> Visits {
        visits(&[
            (
                "a",
                &[
                    &[("quarry", 0.9), ("sys", 4.0), ("x", 1.0)],
                    &[("quarry", 1.1), ("sys", 4.0), ("x", 1.0)],
                    &[("quarry", 1.1), ("sys", 4.0), ("x", 1.0)],
                ],
            ),
            ("b", &[&[("quarry", 8.0), ("sys", 2.0)][..]; 3]),
            ("c", &[&[("sys", 1.0)][..]; 3]),
            ("cfrac", &[&[("quarry", 2.0), ("sys", 4.0), ("x", 1.0)][..]; 3]),
            ("espresso", &[&[("quarry", 1.0), ("sys", 2.0), ("x", 8.0)][..]; 3]),
        ])
    }

    #[test]
    fn targets_are_met_missed_or_within_noise() {
        let all = samples();
        let best = |limit, visits: &Visits| verdict(limit, Made::Best("a"), visits, false).2;
        assert_eq!(best(1.0, &all), "within noise (0.90–1.10)");
        assert_eq!((best(1.1, &all), best(0.8, &all)), ("met".into(), "missed".into()));
        // The median of two rounds is 1.0, and so few rounds have no noise.
        let mut two = all.clone();
        two["a"].truncate(2);
        assert_eq!((best(1.0, &two), best(0.9, &two)), ("met".into(), "missed".into()));
        for run in ["c", "not there"] {
            assert_eq!(verdict(1.0, Made::Best(run), &all, false).2, "not measured");
        }
        let quotient = Made::Quotient("b", "a");
        assert!((verdict(1.0, quotient, &all, false).0.unwrap() - 8.0 / 1.1).abs() < 1e-9);
        assert_eq!(verdict(7.0, quotient, &all, true).2, "met");
        assert_eq!(verdict(9.0, quotient, &all, true).2, "missed");
        let above = verdict(6.0, Made::AboveSystem("b"), &all, false);
        assert_eq!(above, (Some(6.0), Some(0.0), String::from("met")));
        assert_eq!(verdict(4.0, Made::Amount("b", 2.0), &all, false).0, Some(4.0));
    }

    #[test]
    fn the_suite_is_seen_as_a_whole() {
        let all = samples();
        let ours = |made| verdict(1.0, made, &all, false).0.unwrap();
        assert!((ours(Made::SuiteMean) - 1.0).abs() < 1e-9);
        assert!((ours(Made::SuiteWorst) - 2.0).abs() < 1e-9);
        // Half of sys in both; 2 and 1/8 of x.
        assert!((ours(Made::SuiteAgainst) - 0.5).abs() < 1e-9);
        let small = visits(&[
            ("python", &[&[("quarry", 1.0), ("sys", 4.0)]]),
            ("tcl", &[&[("quarry", 4.0), ("sys", 4.0)]]),
        ]);
        assert!((verdict(1.0, Made::ToSystem, &small, false).0.unwrap() - 0.5).abs() < 1e-9);
    }

    #[test]
    fn what_a_target_looks_for_is_what_some_run_has() {
        let known = runs::parse(runs::OURS).unwrap();
        for target in all() {
            for name in target.made.runs() {
                let run = known.iter().find(|run| run.name == name);
                let run = run.unwrap_or_else(|| panic!("{}: no run {name}", target.text));
                let usual = ["seconds", "peak_kib"].contains(&target.measure);
                assert!(
                    usual || run.also.contains_key(target.measure),
                    "{}: {}",
                    target.text,
                    target.measure
                );
            }
        }
        let expected: Expected =
            serde_json::from_str(include_str!("../../../../../bench/fastpath/expected.json")).unwrap();
        let counted = all().into_iter().filter(|target| matches!(target.made, Made::Instructions(_)));
        for target in counted {
            let verdict = target.verdict(&Visits::new(), &names(&["quarry", "x"]), &[], &expected);
            assert!(verdict.figures[0].is_some() && verdict.figures[1].is_none(), "{}", target.text);
        }
    }
}
