// SPDX-License-Identifier: MIT
//! What the reports of contests between allocators have in common: cells of which the best stands out, ratios to the
//! system's malloc, what went wrong.

use std::collections::BTreeMap;

use quarry_measure::machine::Machine;
use quarry_measure::stats::{Ratio, Summary};

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
