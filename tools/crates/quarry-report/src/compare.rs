// SPDX-License-Identifier: MIT
//! The report of `quarry compare`: every run, what follows from them, a table and a schema.

use std::collections::BTreeMap;

use quarry_measure::machine::Machine;
use quarry_measure::spawn::{End, Usage};
use quarry_measure::stats::{self, Ratio, Summary};
use serde::Serialize;
use serde_json::{Value, json};

use crate::contest::{self, Cells, Verdict, median};
use crate::run::{exit_code, signal};
use crate::style::Style;
use crate::table::{self, Described};
use crate::units;

/// The label of the allocator that all others are compared with.
pub const BASE: &str = "system";

/// Above this relative deviation the base itself is called noisy.
const NOISE: f64 = 0.05;

/// The columns of the table.
pub const COLUMNS: [Described; 11] = [
    Described::left("allocator", "the system's malloc, and each that is installed"),
    Described::left("version", "of the package the library came in, or else the end of the file's name"),
    Described::right("wall", "median elapsed time of the measured runs that succeeded"),
    Described::right("min … max", "the fastest and the slowest"),
    Described::right(
        "x system",
        "ratio of wall to the system's malloc, with the bounds of its 95 % bootstrap interval; whole rounds are resampled",
    ),
    Described::right("user", "median processor time in the program"),
    Described::right("sys", "median processor time in the kernel"),
    Described::right("peak RSS", "median of the highest resident size of the largest process"),
    Described::right("x system", "ratio of peak RSS to the system's malloc"),
    Described::right("faults", "median number of page faults, minor and major"),
    Described::left("", "remarks: failed, not loaded, output differs"),
];

/// An allocator that took part.
#[derive(Debug, Clone, Serialize)]
pub struct Allocator {
    /// Its label.
    pub name: String,
    /// The library preloaded, null for the system's own malloc.
    pub library: Option<String>,
    /// Its version, where known.
    pub version: Option<String>,
    /// Was it in the program? Null: could not be told.
    pub loaded: Option<bool>,
    /// Why not, or what else to know.
    pub notes: Vec<String>,
}

/// One run.
#[derive(Debug, Clone)]
pub struct Run {
    /// From 1; 0 is a warm-up, which counts for nothing but failures and output.
    pub round: usize,
    /// Place within its round, from 1.
    pub position: usize,
    /// Index of the allocator.
    pub allocator: usize,
    /// How it ended.
    pub end: End,
    /// What it cost.
    pub usage: Usage,
    /// Length of its standard output.
    pub stdout_bytes: u64,
    /// Digest of it.
    pub stdout_hash: String,
    /// The end of its standard error.
    pub stderr: String,
}

/// Everything that was measured, and how.
#[derive(Debug)]
pub struct Comparison {
    /// The command with its arguments.
    pub command: Vec<String>,
    /// Where.
    pub machine: Machine,
    /// When it began, in seconds since 1970.
    pub started: u64,
    /// What the order of runs was drawn from.
    pub seed: u64,
    /// Complete rounds.
    pub rounds: usize,
    /// Warm-up runs of each allocator.
    pub warmup: usize,
    /// Was it stopped, by a signal or an error?
    pub interrupted: bool,
    /// The exit code that counts as success.
    pub expected_exit: i32,
    /// Who took part; the first is [`BASE`].
    pub allocators: Vec<Allocator>,
    /// All runs in the order they were made.
    pub runs: Vec<Run>,
}

/// How the output of an allocator's runs compares with the base's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Output {
    /// Always the same as the base's.
    Same,
    /// Not the same, though the base's never changes.
    Differs,
    /// The base's own output changes from run to run, so nothing can be said.
    Varies,
    /// No successful run to compare.
    Unknown,
}

/// What the successful runs of one allocator amount to.
#[derive(Debug, Clone, Serialize)]
pub struct Result {
    /// Measured runs that succeeded.
    pub succeeded: usize,
    /// Runs that did not, warm-ups included.
    pub failed: usize,
    /// How they ended, with counts.
    pub failures: BTreeMap<String, usize>,
    /// See [`Output`].
    pub output: Output,
    /// Elapsed seconds.
    pub wall_s: Option<Summary>,
    /// Seconds in the program.
    pub user_s: Option<Summary>,
    /// Seconds in the kernel.
    pub system_s: Option<Summary>,
    /// Peak resident bytes.
    pub peak_rss_bytes: Option<Summary>,
    /// Minor faults.
    pub minor_faults: Option<Summary>,
    /// Major faults.
    pub major_faults: Option<Summary>,
    /// Wall time against the base's.
    pub wall_ratio: Option<Ratio>,
    /// Peak resident size against the base's.
    pub peak_rss_ratio: Option<Ratio>,
}

/// The order of the table's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Fastest first.
    Wall,
    /// Smallest first.
    Rss,
    /// As they took part.
    Given,
}

impl Comparison {
    /// Did this run end as it should?
    pub fn succeeded(&self, run: &Run) -> bool {
        run.end == End::Exit(self.expected_exit)
    }

    fn of(&self, allocator: usize) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(move |run| run.allocator == allocator)
    }

    /// The measured, successful runs of an allocator.
    fn good(&self, allocator: usize) -> impl Iterator<Item = &Run> {
        self.of(allocator).filter(|run| run.round > 0 && self.succeeded(run))
    }

    /// The first run of an allocator that failed.
    pub fn first_failure(&self, allocator: usize) -> Option<&Run> {
        self.of(allocator).find(|run| !self.succeeded(run))
    }

    /// The exit code that says what was found: what the base failed with, 1 if only others failed.
    pub fn exit_code(&self) -> i32 {
        match self.first_failure(0) {
            Some(run) => match run.end.code() {
                // It "failed" by succeeding, where another code was expected.
                0 => 1,
                code => code,
            },
            None => i32::from(self.runs.iter().any(|run| !self.succeeded(run))),
        }
    }

    /// Condense an allocator's runs.
    pub fn result(&self, allocator: usize) -> Result {
        let summary = |value: fn(&Usage) -> f64| {
            Summary::of(&self.good(allocator).map(|run| value(&run.usage)).collect::<Vec<_>>())
        };
        let ratio = |value: fn(&Usage) -> f64| {
            let pairs: Vec<(f64, f64)> = self
                .good(allocator)
                .filter_map(|run| {
                    let base = self.good(0).find(|base| base.round == run.round)?;
                    Some((value(&run.usage), value(&base.usage)))
                })
                .collect();
            stats::ratio(&pairs, self.seed).filter(|_| allocator != 0)
        };
        let mut failures = BTreeMap::new();
        for run in self.of(allocator).filter(|run| !self.succeeded(run)) {
            *failures.entry(run.end.to_string()).or_default() += 1;
        }
        Result {
            succeeded: self.good(allocator).count(),
            failed: failures.values().sum(),
            failures,
            output: self.output(allocator),
            wall_s: summary(|u| u.wall_s),
            user_s: summary(|u| u.user_s),
            system_s: summary(|u| u.system_s),
            peak_rss_bytes: summary(|u| u.peak_rss_bytes as f64),
            minor_faults: summary(|u| u.minor_faults as f64),
            major_faults: summary(|u| u.major_faults as f64),
            wall_ratio: ratio(|u| u.wall_s),
            peak_rss_ratio: ratio(|u| u.peak_rss_bytes as f64),
        }
    }

    /// Which allocator was fastest and which leanest, of those that had no failure.
    fn verdict(&self) -> Option<Verdict> {
        let values = |who: usize, value: fn(&Usage) -> f64| {
            self.good(who).map(|run| (run.round, value(&run.usage))).collect::<Vec<_>>()
        };
        let who: Vec<usize> =
            (0..self.allocators.len()).filter(|&who| self.first_failure(who).is_none()).collect();
        let (time, memory) = (
            |who: usize| values(who, |usage| usage.wall_s),
            |who: usize| values(who, |usage| usage.peak_rss_bytes as f64),
        );
        Verdict::of(&self.allocators, &who, self.rounds, self.seed, &time, &memory)
    }

    fn output(&self, allocator: usize) -> Output {
        let hashes = |allocator| {
            self.of(allocator)
                .filter(|run| self.succeeded(run))
                .map(|run| (run.stdout_bytes, &run.stdout_hash))
        };
        let Some(base) = hashes(0).next() else { return Output::Unknown };
        if hashes(0).any(|hash| hash != base) {
            Output::Varies
        } else if hashes(allocator).next().is_none() {
            Output::Unknown
        } else if hashes(allocator).all(|hash| hash == base) {
            Output::Same
        } else {
            Output::Differs
        }
    }

    /// As JSON, schema quarry-compare/1.
    pub fn json(&self) -> Value {
        let allocators = self.allocators.iter().enumerate().map(|(index, allocator)| {
            let mut object = json!(allocator);
            object["result"] = json!(self.result(index));
            object
        });
        let runs = self.runs.iter().map(|run| {
            json!({
                "round": run.round,
                "position": run.position,
                "allocator": self.allocators[run.allocator].name,
                "succeeded": self.succeeded(run),
                "exit_code": exit_code(run.end),
                "signal": signal(run.end),
                "timed_out": run.end == End::Timeout,
                "usage": run.usage,
                "stdout_bytes": run.stdout_bytes,
                "stdout_hash": run.stdout_hash,
                "stderr": if self.succeeded(run) { None } else { Some(&run.stderr) },
            })
        });
        json!({
            "schema": "quarry-compare/1",
            "quarry_version": env!("CARGO_PKG_VERSION"),
            "command": self.command,
            "machine": self.machine,
            "started": self.started,
            "seed": self.seed,
            "rounds": self.rounds,
            "warmup": self.warmup,
            "interrupted": self.interrupted,
            "expected_exit": self.expected_exit,
            "verdict": self.verdict(),
            "allocators": allocators.collect::<Vec<_>>(),
            "runs": runs.collect::<Vec<_>>(),
        })
    }

    /// As a table with what is needed to read it.
    pub fn text(&self, style: Style, order: Order) -> String {
        let results: Vec<Result> = (0..self.allocators.len()).map(|index| self.result(index)).collect();
        let mut rows: Vec<usize> = (0..results.len()).collect();
        let key = |index: usize| match order {
            Order::Wall => median(&results[index].wall_s),
            Order::Rss => median(&results[index].peak_rss_bytes),
            Order::Given => Some(0.0),
        };
        rows.sort_by(|&a, &b| key(a).unwrap_or(f64::INFINITY).total_cmp(&key(b).unwrap_or(f64::INFINITY)));

        let mut text = style.bold(&self.command.join(" ")) + "\n\n";
        text += &self.table(style, &results, &rows);
        text += "\n";
        text += &self.failures(style, &rows);
        text += &self.explanation(style, &results[0]);
        if results.iter().any(|result| result.output == Output::Differs) {
            text += "output differs: the standard output is another one than under system. The program may not be repeatable,\n\
                     or the allocator changes what it does; compare with care\n";
        }
        let verdict = self.verdict();
        if verdict.as_ref().is_some_and(Verdict::is_close) {
            text += "no difference shown: each round is compared with the same round of the others, so a slower one may be named\n\
                     and a faster one not; few rounds show little\n";
        }
        text += &verdict.map_or_else(String::new, |verdict| verdict.text(style));
        text
    }

    fn table(&self, style: Style, results: &[Result], rows: &[usize]) -> String {
        let cells = Cells::new(&self.allocators, results);
        let rows = rows.iter().map(|&index| {
            let (allocator, result) = (&self.allocators[index], &results[index]);
            let range = result
                .wall_s
                .as_ref()
                .map(|s| format!("{} … {}", units::seconds(s.min), units::seconds(s.max)));
            let differs = result.output == Output::Differs;
            vec![
                allocator.name.clone().into(),
                allocator.version.clone().unwrap_or_default().into(),
                cells.cell(|r| median(&r.wall_s), units::seconds, result),
                range.unwrap_or_default().into(),
                contest::ratio(result.wall_ratio, index == 0).into(),
                cells.cell(|r| median(&r.user_s), units::seconds, result),
                cells.cell(|r| median(&r.system_s), units::seconds, result),
                cells.cell(|r| median(&r.peak_rss_bytes), units::bytes, result),
                contest::plain_ratio(result.peak_rss_ratio, index == 0).into(),
                cells.cell(
                    |r| Some(median(&r.minor_faults)? + median(&r.major_faults)?),
                    units::count,
                    result,
                ),
                contest::remarks(allocator, &result.failures, differs.then_some("output differs")).into(),
            ]
        });
        table::of(style, &COLUMNS, rows.collect())
    }

    /// What the failing ones said, and what else there is to know about each.
    fn failures(&self, style: Style, rows: &[usize]) -> String {
        let mut text = String::new();
        for &index in rows {
            text += &contest::notes(style, &self.allocators[index]);
            if let Some(run) = self.first_failure(index) {
                text += &format!(
                    "{} {} failed first in {} with {}{}\n",
                    style.error("failed:"),
                    self.allocators[index].name,
                    contest::round(run.round),
                    run.end,
                    contest::last_words(&run.stderr)
                );
            }
        }
        if !text.is_empty() {
            text.push('\n');
        }
        text
    }

    fn explanation(&self, style: Style, base: &Result) -> String {
        let mut text = format!(
            "{}{}, each in random order (seed {}), after {} of each allocator; input is /dev/null or --input\n",
            if self.interrupted { "interrupted: " } else { "" },
            units::of(self.rounds as u64, "round"),
            self.seed,
            units::of(self.warmup as u64, "warm-up run"),
        );
        text += &contest::machine(&self.machine);
        text += "\
wall, user, sys, peak RSS (of the largest process) and faults are medians; x system: against the system's
malloc in the same rounds, with the 95 % bootstrap interval: if it holds 1.00, no difference was shown\n";
        // Of one round nothing is known.
        if let Some(wall) = base.wall_s.filter(|_| base.succeeded > 1) {
            let noise = wall.relative_deviation();
            let amount = units::percent(noise);
            if noise > NOISE {
                let say = "the system's own wall time varies by";
                text += &format!(
                    "{} {say} {amount}: do not trust small differences; quiet the machine or raise -n\n",
                    style.warning("noise:")
                );
            } else {
                text += &format!("noise: the system's own wall time varies by {amount}\n");
            }
        }
        if base.output == Output::Varies {
            text += "the program's output changes from run to run on the system's malloc, so outputs are not compared\n";
        }
        text
    }
}

#[cfg(test)]
mod tests;
