// SPDX-License-Identifier: MIT
//! What the reports of contests between allocators have in common: cells of which the best stands out, ratios to the
//! system's malloc, what went wrong.

use std::collections::BTreeMap;

use quarry_measure::machine::Machine;
use quarry_measure::stats::{self, Ratio, Summary};
use serde::Serialize;

use crate::compare::Allocator;
use crate::style::Style;
use crate::table::Text;
use crate::units;

/// Of measured values, the one in the middle.
pub(crate) fn median(summary: &Option<Summary>) -> Option<f64> {
    summary.map(|s| s.median)
}

/// A ratio with its interval; of the base it is 1.
pub(crate) fn ratio(ratio: Option<Ratio>, base: bool) -> String {
    match ratio {
        _ if base => String::from("1"),
        None => String::new(),
        Some(Ratio { ratio, interval: None }) => format!("{ratio:.2}"),
        Some(Ratio { ratio, interval: Some((low, high)) }) => format!("{ratio:.2} [{low:.2} {high:.2}]"),
    }
}

/// The same without the interval, for columns of less weight.
pub(crate) fn plain_ratio(value: Option<Ratio>, base: bool) -> String {
    ratio(value.map(|r| Ratio { interval: None, ..r }), base)
}

/// Makes the cells of a column of numbers, of which the least is best.
pub(crate) struct Cells<'a, T> {
    contestants: Vec<&'a T>,
}

impl<'a, T> Cells<'a, T> {
    /// Only those that really ran under their allocator can be best.
    pub(crate) fn new(allocators: &[Allocator], results: &'a [T]) -> Self {
        let ran = results.iter().zip(allocators).filter(|(_, allocator)| allocator.loaded != Some(false));
        Self { contestants: ran.map(|(result, _)| result).collect() }
    }

    /// The cell of one of them; a value that is not there is a dash.
    pub(crate) fn cell(&self, value: fn(&T) -> Option<f64>, show: fn(f64) -> String, of: &T) -> Text {
        let own = value(of);
        let best = self.contestants.iter().filter_map(|result| value(result)).min_by(f64::total_cmp);
        let strong = self.contestants.len() > 1 && best.is_some() && own == best;
        Text(own.map_or_else(|| String::from("-"), show), strong)
    }
}

/// The last column: why a row may not mean what it seems to.
pub(crate) fn remarks(
    allocator: &Allocator,
    failures: &BTreeMap<String, usize>,
    more: Option<&str>,
) -> String {
    let mut remarks = Vec::new();
    if allocator.loaded == Some(false) {
        remarks.push(String::from("not loaded"));
    }
    if !failures.is_empty() {
        let ends: Vec<String> = failures.iter().map(|(end, n)| format!("{n} x {end}")).collect();
        remarks.push(format!("failed: {}", ends.join(", ")));
    }
    remarks.extend(more.map(str::to_owned));
    remarks.join("; ")
}

/// What there is to know about an allocator, a line each.
pub(crate) fn notes(style: Style, allocator: &Allocator) -> String {
    let line = |note: &String| format!("{} {}: {note}\n", style.warning("note:"), allocator.name);
    allocator.notes.iter().map(line).collect()
}

/// The round of a run.
pub(crate) fn round(number: usize) -> String {
    if number == 0 { String::from("warm-up") } else { format!("round {number}") }
}

/// The last thing that a failed run said, to be put behind how it failed.
pub(crate) fn last_words(stderr: &str) -> String {
    let said = stderr.lines().rev().find(|line| !line.trim().is_empty());
    said.map_or_else(String::new, |line| format!("; its last line on stderr: {line}"))
}

/// Where it was measured.
pub(crate) fn machine(m: &Machine) -> String {
    format!(
        "{}, {}, Linux {}, {}, {} pages, transparent huge pages: {}\n",
        m.cpu,
        units::of(m.cores as u64, "core"),
        m.kernel,
        m.libc,
        units::bytes(m.page_size as f64),
        m.transparent_huge_pages
    )
}

/// Which allocator has the least of a figure, and which were not shown to have more.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Best {
    /// The least median's.
    pub allocator: String,
    /// This median: seconds, or bytes.
    pub median: f64,
    /// Those that have a 95 % interval of the ratio to it which holds 1.00, the least first.
    pub no_difference_shown: Vec<String>,
}

/// What a contest has shown.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// By time. None: see `reason`.
    pub fastest: Option<Best>,
    /// By the peak of resident memory.
    pub leanest: Option<Best>,
    /// Why nothing was shown.
    pub reason: Option<String>,
}

/// So many rounds it takes to name who is slower. Up to five, the interval has the extremes of all rounds. By chance
/// all are on the same side of 1 in a quarter of all cases of three rounds, an eighth of four, a sixteenth of five.
const LEAST_ROUNDS: usize = 5;

/// Does the interval hold 1, as it is printed?
fn holds_one(ratio: Ratio) -> bool {
    let printed = |bound: f64| (bound * 100.0).round() / 100.0;
    ratio.interval.is_none_or(|(low, high)| printed(low) <= 1.0 && 1.0 <= printed(high))
}

/// The best of `who`, by their values in each round.
fn best_of(
    allocators: &[Allocator],
    who: &[usize],
    values: &dyn Fn(usize) -> Vec<(usize, f64)>,
    seed: u64,
) -> Option<Best> {
    let middle = |who: usize| {
        stats::median(&values(who).iter().map(|(_, value)| *value).collect::<Vec<_>>())
            .unwrap_or(f64::INFINITY)
    };
    let mut order = who.to_vec();
    order.sort_by(|&a, &b| middle(a).total_cmp(&middle(b)));
    let (&best, others) = order.split_first()?;
    let base = values(best);
    let is_like = |other: usize| {
        let own = values(other);
        let in_round = |round: usize| Some(base.iter().find(|(of, _)| *of == round)?.1);
        let pairs: Vec<_> =
            own.iter().filter_map(|&(round, value)| Some((value, in_round(round)?))).collect();
        stats::ratio(&pairs, seed).is_none_or(holds_one)
    };
    Some(Best {
        allocator: allocators[best].name.clone(),
        median: middle(best),
        no_difference_shown: others
            .iter()
            .filter(|&&other| is_like(other))
            .map(|&other| allocators[other].name.clone())
            .collect(),
    })
}

impl Verdict {
    /// What the values of each round say; `who` ran as they should. None: there is nothing to compare.
    pub(crate) fn of(
        allocators: &[Allocator],
        who: &[usize],
        rounds: usize,
        seed: u64,
        time: &dyn Fn(usize) -> Vec<(usize, f64)>,
        memory: &dyn Fn(usize) -> Vec<(usize, f64)>,
    ) -> Option<Self> {
        let who: Vec<usize> =
            who.iter().copied().filter(|&who| allocators[who].loaded != Some(false)).collect();
        if who.len() < 2 || rounds == 0 {
            return None;
        }
        if rounds < LEAST_ROUNDS {
            let reason = format!(
                "{} not enough to tell allocators apart; -n {LEAST_ROUNDS} is the least",
                match rounds {
                    1 => String::from("1 round is"),
                    n => format!("{n} rounds are"),
                }
            );
            return Some(Self { fastest: None, leanest: None, reason: Some(reason) });
        }
        Some(Self {
            fastest: best_of(allocators, &who, time, seed),
            leanest: best_of(allocators, &who, memory, seed),
            reason: None,
        })
    }

    /// Is there one that was not told from the best?
    pub(crate) fn is_close(&self) -> bool {
        let best = self.fastest.iter().chain(&self.leanest);
        best.into_iter().any(|best| !best.no_difference_shown.is_empty())
    }

    /// Two lines, or the reason why not.
    pub(crate) fn text(&self, style: Style) -> String {
        let line = |what: &str, best: &Option<Best>, show: fn(f64) -> String| {
            let Some(best) = best else { return String::new() };
            let (name, value) = (&best.allocator, show(best.median));
            format!("{} {name}, {value}{}\n", style.bold(what), no_difference(best))
        };
        if let Some(reason) = &self.reason {
            return format!("{} not shown: {reason}\n", style.bold("fastest, leanest:"));
        }
        line("fastest:", &self.fastest, units::seconds) + &line("leanest:", &self.leanest, units::bytes)
    }
}

fn no_difference(best: &Best) -> String {
    match best.no_difference_shown.as_slice() {
        [] => String::new(),
        names => format!("; no difference shown: {}", names.join(", ")),
    }
}
