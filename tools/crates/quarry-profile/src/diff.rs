// SPDX-License-Identifier: MIT
//! Two profiles, or two sets of runs, side by side: by names, so that another build of the program can be compared.
//!
//! A difference is told from noise by its variance: that of the samples, or that between the runs of both sides. Of n
//! runs the mean is taken; its variance is that of the samples over n², or that between the runs over n, whichever is
//! more. A difference above twice the standard error is more than noise. What few runs differ by tells little of that
//! error, so it counts for more: by Student's t. Without samples and repeated runs nothing is known of noise, and that
//! is said.

use std::collections::BTreeMap;

use regex_lite::Regex;
use serde_json::{Value, json};

use crate::calls::Calls;
use crate::estimate::{bytes, change, part};
use crate::model::Profile;
use crate::query::{self, At, By, live_at};
use quarry_report::style::Style;
use quarry_report::table::{self, Align, Text};

/// Student's t of 95 %, by degrees of freedom from 1 on; 2 of more.
const STUDENT: [f64; 10] = [12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23];

/// What a site had on both sides.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Pair {
    /// What it is called.
    pub name: String,
    /// Bytes, the mean of the runs of the first side.
    pub before: f64,
    /// Bytes, the mean of the runs of the second side.
    pub after: f64,
    /// The variance of `before`: more, where it is of few runs.
    pub variance_before: f64,
    /// The variance of `after`, likewise.
    pub variance_after: f64,
}

impl Pair {
    /// What changed.
    pub fn change(&self) -> f64 {
        self.after - self.before
    }

    /// Differences up to this are noise.
    pub fn noise(&self) -> f64 {
        2.0 * (self.variance_before + self.variance_after).sqrt()
    }

    /// Is the difference more than noise?
    pub fn is_significant(&self) -> bool {
        self.change() != 0.0 && self.change().abs() > self.noise()
    }

    /// Take in another site.
    pub fn add(&mut self, other: &Self) {
        self.before += other.before;
        self.after += other.after;
        self.variance_before += other.variance_before;
        self.variance_after += other.variance_after;
    }
}

/// One run: what each name has, and the variance of that.
pub type Run = BTreeMap<String, (f64, f64)>;

/// What has a name in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named {
    /// What one row of a table is.
    By(By),
    /// A whole call stack, outermost function first.
    Stacks,
}

/// Bytes of a run by name.
pub fn run(profile: &Profile, calls: &Calls, at: At, filter: Option<&Regex>, named: Named) -> Run {
    let mut run = Run::new();
    let fits = filter.map(|pattern| calls.fits(pattern));
    for (number, row) in profile.rows.iter().enumerate() {
        let leaf = calls.leaf(number);
        if fits.as_ref().is_some_and(|fits| !fits[leaf as usize]) {
            continue;
        }
        let name = match named {
            Named::By(by) => query::name_of(profile, calls, by, number),
            Named::Stacks => folded(calls, leaf),
        };
        let live = live_at(row, at).bytes;
        let entry = run.entry(name).or_default();
        entry.0 += live.value() as f64;
        entry.1 += live.variance();
    }
    run
}

/// The functions of a stack, the outermost one first, with semicolons between them.
pub fn folded(calls: &Calls, leaf: u32) -> String {
    let mut names: Vec<String> =
        calls.up(leaf).map(|call| calls.label(call).function.replace(';', ":")).collect();
    names.reverse();
    names.join(";")
}

/// A name over the runs of a side.
struct Side {
    mean: f64,
    /// The variance of the mean that comes from samples.
    samples: f64,
    /// What runs differ from the mean by, squared and added.
    squares: f64,
    runs: f64,
}

fn side(runs: &[Run], name: &str) -> Side {
    let n = runs.len().max(1) as f64;
    let values: Vec<(f64, f64)> = runs.iter().map(|run| run.get(name).copied().unwrap_or_default()).collect();
    let mean = values.iter().map(|value| value.0).sum::<f64>() / n;
    let samples = values.iter().map(|value| value.1).sum::<f64>() / (n * n);
    let squares = values.iter().map(|value| (value.0 - mean).powi(2)).sum();
    Side { mean, samples, squares, runs: n }
}

/// What two sides have.
#[derive(Debug, Clone)]
pub struct Diff {
    /// The sites, the largest change first.
    pub pairs: Vec<Pair>,
    /// All of them.
    pub all: Pair,
    /// Runs of each side.
    pub runs: (usize, usize),
    /// Can noise be told: are there samples, or several runs of both sides?
    pub knows_noise: bool,
}

impl Diff {
    /// Of runs of the first and of the second side.
    pub fn new(before: &[Run], after: &[Run]) -> Self {
        let mut names: Vec<&String> = before.iter().chain(after).flat_map(Run::keys).collect();
        names.sort_unstable();
        names.dedup();
        let total = |runs: &[Run]| -> Vec<Run> {
            let sum = |run: &Run| run.values().fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
            runs.iter().map(|run| Run::from([(String::from("all"), sum(run))])).collect()
        };
        let mut pairs: Vec<Pair> = names.into_iter().map(|name| pair(before, after, name)).collect();
        pairs.retain(|pair| pair.before != 0.0 || pair.after != 0.0);
        pairs.sort_by(|a, b| b.change().abs().total_cmp(&a.change().abs()).then_with(|| a.name.cmp(&b.name)));
        let all = pair(&total(before), &total(after), "all");
        let sampled = before.iter().chain(after).flat_map(Run::values).any(|value| value.1 > 0.0);
        let repeated = before.len() > 1 && after.len() > 1;
        Self { pairs, all, runs: (before.len(), after.len()), knows_noise: sampled || repeated }
    }

    /// What a change is worth.
    fn word(&self, pair: &Pair) -> &'static str {
        match (pair.change() == 0.0, self.knows_noise, pair.is_significant()) {
            (true, ..) => "",
            (_, false, _) => "one run of each: noise is not known",
            (_, _, true) => "more than noise",
            (_, _, false) => "within noise",
        }
    }

    /// A table for people.
    pub fn text(&self, style: Style, top: usize, what: &str) -> String {
        let row = |pair: &Pair| {
            let relative = match pair.before as u64 {
                0 => String::from("new"),
                _ if pair.after as u64 == 0 => String::from("gone"),
                before => {
                    let sign = if pair.change() < 0.0 { "-" } else { "+" };
                    format!("{sign}{}", part(pair.change().abs() as u64, before))
                }
            };
            let cells = [
                bytes(pair.before.max(0.0) as u64),
                bytes(pair.after.max(0.0) as u64),
                change(pair.change() as i64),
                if pair.change() == 0.0 { String::new() } else { relative },
                if self.knows_noise { format!("±{}", bytes(pair.noise() as u64)) } else { String::new() },
                self.word(pair).to_owned(),
                pair.name.clone(),
            ];
            cells.map(Text::from).to_vec()
        };
        let mut align = [Align::Right; 7];
        (align[5], align[6]) = (Align::Left, Align::Left);
        let changed: Vec<&Pair> = self.pairs.iter().filter(|pair| pair.change() != 0.0).collect();
        let rows: Vec<Vec<Text>> =
            [&self.all].into_iter().chain(changed.iter().take(top).copied()).map(row).collect();
        let (before, after) = self.runs;
        let head =
            format!("{what}: {before} run{} before, {after} after\n\n", if before == 1 { "" } else { "s" });
        let names = ["before", "after", "change", "", "noise", "", "where"];
        let mut text = head + &table::render(style, &align, &names, rows);
        let more = changed.len().saturating_sub(top);
        if more > 0 {
            text += &format!("and {more} more\n");
        }
        if changed.is_empty() {
            text += "nothing has changed\n";
        }
        text
    }

    /// A line for each name, with both sides: what difffolded.pl makes and flamegraph.pl draws.
    pub fn folded(&self) -> String {
        let mut lines: Vec<String> = self
            .pairs
            .iter()
            .map(|pair| format!("{} {:.0} {:.0}\n", pair.name, pair.before.max(0.0), pair.after.max(0.0)))
            .collect();
        lines.sort_unstable();
        lines.concat()
    }

    /// For machines.
    pub fn json(&self, top: usize) -> Value {
        let one = |pair: &Pair| {
            json!({
                "name": pair.name,
                "before_bytes": pair.before.round(),
                "after_bytes": pair.after.round(),
                "change_bytes": pair.change().round(),
                "noise_bytes": self.knows_noise.then(|| pair.noise().round()),
                "significant": self.knows_noise.then(|| pair.is_significant()),
            })
        };
        json!({
            "runs": [self.runs.0, self.runs.1],
            "all": one(&self.all),
            "sites": self.pairs.iter().filter(|pair| pair.change() != 0.0).take(top).map(one).collect::<Vec<_>>(),
        })
    }
}

fn pair(before: &[Run], after: &[Run], name: &str) -> Pair {
    let freedom = (before.len() + after.len()).saturating_sub(2);
    let wider = freedom.checked_sub(1).and_then(|at| STUDENT.get(at)).map_or(1.0, |t| t / 2.0);
    let (before, after) = (side(before, name), side(after, name));
    // Runs of both sides are taken to vary alike: two of them alone would hardly tell.
    let of_one = (before.squares + after.squares) / freedom.max(1) as f64 * wider * wider;
    // What differs between runs has the draw of the samples in it already.
    let variance = |side: &Side| side.samples.max(of_one / side.runs);
    Pair {
        name: name.to_owned(),
        before: before.mean,
        after: after.mean,
        variance_before: variance(&before),
        variance_after: variance(&after),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(values: &[(&str, f64, f64)]) -> Run {
        values.iter().map(|&(name, value, variance)| (name.to_owned(), (value, variance))).collect()
    }

    #[test]
    fn noise_comes_from_samples_and_from_runs() {
        let before =
            [one(&[("f", 100.0, 0.0), ("g", 50.0, 0.0)]), one(&[("f", 140.0, 0.0), ("g", 50.0, 0.0)])];
        let after =
            [one(&[("f", 120.0, 0.0), ("g", 60.0, 0.0)]), one(&[("f", 150.0, 0.0), ("g", 60.0, 0.0)])];
        let diff = Diff::new(&before, &after);
        let find = |name: &str| diff.pairs.iter().find(|pair| pair.name == name).unwrap();
        assert_eq!((find("f").before, find("f").after), (120.0, 135.0));
        assert!(!find("f").is_significant() && find("g").is_significant() && diff.knows_noise);
        assert_eq!((diff.all.before, diff.all.after), (170.0, 195.0));

        let sampled = Diff::new(&[one(&[("f", 100.0, 2500.0)])], &[one(&[("f", 180.0, 2500.0)])]);
        assert!(sampled.knows_noise && !sampled.pairs[0].is_significant());
        assert!(sampled.text(Style::default(), 5, "x").contains("within noise"));

        // As much is more than noise of three runs a side, and not of two.
        let runs = |values: &[f64]| values.iter().map(|&value| one(&[("f", value, 0.0)])).collect::<Vec<_>>();
        let two = Diff::new(&runs(&[100.0, 110.0]), &runs(&[130.0, 140.0]));
        let three = Diff::new(&runs(&[100.0, 105.0, 110.0]), &runs(&[130.0, 135.0, 140.0]));
        assert_eq!((two.all.change(), three.all.change()), (30.0, 30.0));
        assert!(!two.pairs[0].is_significant() && three.pairs[0].is_significant());

        let single = Diff::new(&[one(&[("f", 100.0, 0.0)])], &[one(&[("h", 70.0, 0.0)])]);
        assert!(!single.knows_noise && single.pairs.len() == 2);
        let text = single.text(Style::default(), 5, "x");
        assert!(
            text.contains("noise is not known") && text.contains("gone") && text.contains("new"),
            "{text}"
        );
    }

    /// Two runs beside twenty: the two decide how much is noise.
    #[test]
    fn few_runs_beside_many_are_seldom_more_than_noise() {
        let mut state = 1u64;
        let mut even = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        // The sum of twelve is as good as normal.
        let mut runs = |count: usize| -> Vec<Run> {
            let run = |_| one(&[("f", 1000.0 + (0..12).map(|_| even()).sum::<f64>(), 0.0)]);
            (0..count).map(run).collect()
        };
        let mut is_flagged = |_: &u32| {
            let (before, after) = (runs(2), runs(20));
            Diff::new(&before, &after).pairs[0].is_significant()
        };
        let flagged = (0..500).filter(|number| is_flagged(number)).count();
        assert!(flagged < 50, "{flagged} of 500");
    }
}
