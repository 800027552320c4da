// SPDX-License-Identifier: MIT
//! The tables of `quarry bench suite`, as Markdown. The page is in [`page`].

use quarry_bench::suite::samples::{Record, Visits};
use quarry_bench::suite::sums::{self, Figures, Intervals, OURS, Row, View, column};
use quarry_bench::suite::targets::{self, Expected};
use quarry_measure::stats;

pub mod page;

/// How the fair means are called: the peer that each round is compared with is named by the others.
const NAMED: &str = "the other rounds naming the best peer";

/// What is measured of each run.
pub(crate) struct Measure {
    /// Of the samples.
    pub name: &'static str,
    /// Of its table.
    pub title: &'static str,
    /// Of a row.
    pub short: &'static str,
    divisor: f64,
    digits: usize,
    /// How much more than the best peer's a figure may be.
    limit: Option<f64>,
}

pub(crate) const TIME: Measure = Measure {
    name: "seconds",
    title: "Time, seconds",
    short: "time",
    divisor: 1.0,
    digits: 3,
    limit: Some(1.15),
};
pub(crate) const PEAK: Measure = Measure {
    name: "peak_kib",
    title: "Peak RSS, MiB",
    short: "peak RSS",
    divisor: 1024.0,
    digits: 1,
    limit: Some(1.30),
};
const CPU: Measure = Measure {
    name: "cpu",
    title: "User + system seconds",
    short: "user + system",
    divisor: 1.0,
    digits: 3,
    limit: None,
};
const FAULTS: Measure = Measure {
    name: "faults",
    title: "Page faults, thousands",
    short: "page faults",
    divisor: 1000.0,
    digits: 1,
    limit: None,
};

/// Cells below a head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// The head.
    pub head: Vec<String>,
    /// The rows.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    fn new(first: &[&str], mallocs: &[String]) -> Self {
        let head = first.iter().map(|text| (*text).to_owned()).chain(mallocs.iter().cloned()).collect();
        Self { head, rows: Vec::new() }
    }

    /// As Markdown.
    pub fn text(&self) -> String {
        let row = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let rule = format!("|---|{}\n", "---:|".repeat(self.head.len() - 1));
        let rows: String = self.rows.iter().map(|cells| row(cells)).collect();
        row(&self.head) + &rule + &rows
    }
}

/// What is shown of the samples.
pub struct Shown<'a> {
    /// The samples.
    pub record: &'a Record,
    /// The runs that were written to load a malloc. All others are real programs.
    pub written: &'a [String],
    /// The real programs that nothing is tuned by.
    pub held_out: &'a [String],
    /// With what the heap is to reach: the names of the suite's runs, and the instructions that are expected.
    pub targets: Option<(&'a [String], &'a Expected)>,
}

impl Shown<'_> {
    fn mallocs(&self) -> Vec<String> {
        self.record.mallocs.keys().cloned().collect()
    }

    fn figures(&self, measure: &Measure) -> Figures {
        Figures::of(&self.record.runs, &self.mallocs(), measure.name)
    }

    fn is_program(&self, run: &str) -> bool {
        !self.written.iter().any(|name| name == run)
    }

    /// One sentence: how it was measured.
    pub fn method(&self) -> String {
        let counts = self.record.runs.values().map(Vec::len).filter(|count| *count > 0);
        let (least, most) = (counts.clone().min().unwrap_or(0), counts.max().unwrap_or(0));
        let rounds = if least == most { least.to_string() } else { format!("{least}–{most}") };
        let pinned = if self.record.pin { ", threads pinned" } else { "" };
        format!(
            "{rounds} {}, medians ± half the distance of the quartiles; N = {}; load average {:.1} before; {}{pinned}",
            crate::units::noun(most as u64, "round"),
            self.record.threads,
            self.record.load_before,
            crate::units::of(self.record.processors.len() as u64, "processor")
        )
    }

    /// All tables.
    pub fn text(&self) -> String {
        if self.record.runs.values().all(Vec::is_empty) {
            return String::from("no samples\n");
        }
        let mut parts = vec![self.method() + "\n"];
        let versions =
            self.record.mallocs.iter().map(|(name, library)| format!("- {name}: {}\n", library.text()));
        parts.push(versions.collect());
        match self.targets {
            Some((suite, expected)) => parts.push(self.targets_table(suite, expected).text()),
            None => {
                parts.push(self.means_table().text());
                parts.extend(self.against_table().map(|table| table.text()));
                parts.extend(self.ahead_text());
            }
        }
        parts.extend([TIME, PEAK, CPU, FAULTS].map(|measure| self.runs_table(&measure).text()));
        let remarks = self.remarks();
        if !remarks.is_empty() {
            parts.push(remarks.iter().map(|line| format!("{line}\n")).collect());
        }
        parts.join("\n")
    }

    /// Whom we never ran beside, the runs at which we are far behind, and who failed.
    pub fn remarks(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let strangers = self.strangers();
        if !strangers.is_empty() {
            lines.push(format!(
                "Never in one round with {OURS}: {}. Their ratios have in them what differs between the sessions.",
                strangers.join(", ")
            ));
        }
        for measure in [TIME, PEAK] {
            let figures = self.figures(&measure);
            for (run, ratio, best) in figures.view().beyond(measure.limit.unwrap_or(f64::INFINITY)) {
                lines.push(format!("{}: {run} {ratio:.2} times {best}", capital(measure.short)));
            }
        }
        let faults = self.record.faults.iter();
        lines.extend(faults.map(|(_, malloc, why)| format!("FAILED under {malloc}: {why}")));
        lines
    }

    /// Peers that were measured, and never side by side with ours.
    fn strangers(&self) -> Vec<&str> {
        let rounds = || self.record.runs.values().flatten();
        let has = |name: &str| rounds().any(|round| round.contains_key(name));
        let met = |peer: &str| rounds().any(|round| round.contains_key(OURS) && round.contains_key(peer));
        let peers = self.record.mallocs.keys().map(String::as_str).filter(|name| sums::is_peer(name));
        peers.filter(|peer| has(OURS) && has(peer) && !met(peer)).collect()
    }

    /// Each set of runs by time and by memory.
    pub fn means_table(&self) -> Table {
        let mut table = Table::new(&["÷ best peer"], &self.mallocs());
        for measure in [TIME, PEAK] {
            let figures = self.figures(&measure);
            let title = measure.short;
            let (all, real) = (figures.view(), figures.only(|run| self.is_program(run)));
            let written = figures.only(|run| !self.is_program(run));
            let held_out = figures.only(|run| self.held_out.iter().any(|name| name == run));
            let sets = [
                ("all", &all),
                ("written to load a malloc", &written),
                ("programs", &real),
                ("programs held out", &held_out),
            ];
            for (name, view) in sets {
                if !view.runs.is_empty() {
                    table.rows.push(means_row(&format!("{title}, {name}"), view));
                }
            }
            let intervals = all.intervals(View::mean_row);
            if intervals.iter().any(Option::is_some) {
                let cells = intervals.iter().map(|ends| ends.map_or_else(none, range));
                table.rows.push(std::iter::once(format!("{title}, all: 95 %")).chain(cells).collect());
            }
            let fair = all.without_luck().view().means_of_medians();
            if fair.iter().any(Option::is_some) {
                let cells = fair.iter().map(|mean| mean.map_or_else(none, |mean| format!("{mean:.3}")));
                table.rows.push(std::iter::once(format!("{title}, all, {NAMED}")).chain(cells).collect());
            }
        }
        table
    }

    /// We against each peer alone.
    pub fn against_table(&self) -> Option<Table> {
        let peers: Vec<String> = self.mallocs().into_iter().filter(|name| sums::is_peer(name)).collect();
        let mut table = Table::new(&[&format!("{OURS} ÷ this peer")], &peers);
        for measure in [TIME, CPU, PEAK] {
            let figures = self.figures(&measure);
            let view = figures.view();
            let means = view.against();
            if means.iter().all(Option::is_none) {
                return None;
            }
            let cells = cells_of(&means, &view.intervals(View::against));
            let of_peers = cells.into_iter().zip(view.mallocs).filter(|(_, name)| sums::is_peer(name));
            let row = std::iter::once(measure.short.to_owned()).chain(of_peers.map(|(cell, _)| cell));
            table.rows.push(row.collect());
        }
        Some(table)
    }

    /// Of each run who is ahead of us beyond noise, and at how many nobody is. A run is left out if it has too few
    /// rounds, or no figure of ours or of any peer. Nothing where that is all of them.
    pub fn ahead_table(&self) -> Option<(Table, String)> {
        let head = [&format!("ahead of {OURS} beyond noise"), TIME.short, PEAK.short].map(str::to_owned);
        let mut table = Table { head: head.to_vec(), rows: Vec::new() };
        let figures = [self.figures(&TIME), self.figures(&PEAK)];
        let views = figures.each_ref().map(Figures::view);
        let (mut first, mut both, mut left_out) = ([0; 2], 0, Vec::new());
        for (run, (name, _)) in views[0].runs.iter().enumerate() {
            let [Some(time), Some(peak)] = views.each_ref().map(|view| view.ahead(run)) else {
                left_out.push(*name);
                continue;
            };
            let mut row = vec![(*name).to_owned()];
            for (count, found) in first.iter_mut().zip([&time, &peak]) {
                *count += usize::from(found.is_empty());
                let named: Vec<String> =
                    found.iter().map(|(name, ratio)| format!("{name} {ratio:.3}")).collect();
                row.push(if named.is_empty() { String::from("nobody") } else { named.join(", ") });
            }
            both += usize::from(time.is_empty() && peak.is_empty());
            table.rows.push(row);
        }
        let told = table.rows.len();
        if told == 0 {
            return None;
        }
        let counts = first.map(|count| format!("{count} of {told}"));
        table.rows.push(std::iter::once(String::from("nobody at")).chain(counts).collect());
        let mut sum = format!("first or within noise of the first in both: {both} of {told}");
        if !left_out.is_empty() {
            sum += &format!("; left out, with too few rounds or figures: {}", left_out.join(", "));
        }
        Some((table, sum))
    }

    fn ahead_text(&self) -> Option<String> {
        self.ahead_table().map(|(table, sum)| format!("{}\n{sum}\n", table.text()))
    }

    /// What the heap is to reach.
    pub fn targets_table(&self, suite: &[String], expected: &Expected) -> Table {
        let mallocs = self.mallocs();
        let peers: Vec<String> = mallocs.iter().filter(|name| *name != OURS).cloned().collect();
        let mut table = Table::new(&["target", "limit", OURS, ""], &peers);
        for target in targets::all() {
            let verdict = target.verdict(&self.record.runs, &mallocs, suite, expected);
            let sign = if target.at_least { "≥" } else { "≤" };
            let show = |figure: &Option<f64>| figure.map_or_else(none, |f| format!("{f:.*}", target.digits));
            let ours = mallocs.iter().position(|name| name == OURS).and_then(|at| verdict.figures[at]);
            let mut row = vec![
                target.text.clone(),
                format!("{} {sign} {}", target.unit, target.limit),
                ours.map_or_else(none, |figure| format!("**{figure:.*}**", target.digits)),
                verdict.said,
            ];
            let peers = verdict.figures.iter().zip(&mallocs).filter(|(_, name)| *name != OURS);
            row.extend(peers.map(|(figure, _)| show(figure)));
            table.rows.push(row);
        }
        table
    }

    /// The medians of each run.
    pub(crate) fn runs_table(&self, measure: &Measure) -> Table {
        let mut table = Table::new(&[measure.title, &format!("{OURS} ÷ best peer")], &self.mallocs());
        let figures = self.figures(measure);
        let view = figures.view();
        let ours = view.place(OURS);
        for ((run, row), (_, rounds)) in view.medians().into_iter().zip(&view.runs) {
            let best = view.best(&row).map(|(_, figure)| figure);
            let ratio = ours.and_then(|ours| Some(row[ours]? / best.filter(|best| *best > 0.0)?));
            let mark = |ratio: f64| if measure.limit.is_some_and(|limit| ratio > limit) { " !" } else { "" };
            let mut cells =
                vec![run.to_owned(), ratio.map_or_else(none, |ratio| format!("{ratio:.2}{}", mark(ratio)))];
            for (place, figure) in row.iter().enumerate() {
                let Some(figure) = figure else {
                    cells.push(none());
                    continue;
                };
                let text = format!("{:.*}", measure.digits, figure / measure.divisor);
                let text = if Some(*figure) == best { format!("**{text}**") } else { text };
                let noise = stats::spread(&column(rounds, place)) * 100.0;
                cells.push(if measure.name == TIME.name { format!("{text} ±{noise:.0}%") } else { text });
            }
            table.rows.push(cells);
        }
        table
    }
}

fn none() -> String {
    String::from("–")
}

fn range((low, high): (f64, f64)) -> String {
    format!("{low:.3}–{high:.3}")
}

fn capital(text: &str) -> String {
    text[..1].to_uppercase() + &text[1..]
}

/// Each mean with its interval, as far as there is one.
fn cells_of(means: &Row, intervals: &Intervals) -> Vec<String> {
    let cell = |(mean, ends): (&Option<f64>, &Option<(f64, f64)>)| match (mean, ends) {
        (None, _) => none(),
        (Some(mean), None) => format!("{mean:.3}"),
        (Some(mean), Some(ends)) => format!("{mean:.3} ({})", range(*ends)),
    };
    means.iter().zip(intervals).map(cell).collect()
}

/// The best mean is in bold. One that is of fewer runs than another says of how many.
fn means_row(title: &str, view: &View) -> Vec<String> {
    let means = view.means();
    let most = means.iter().flatten().map(|(_, count)| *count).max().unwrap_or(0);
    let best = means.iter().flatten().map(|(mean, _)| *mean).min_by(f64::total_cmp);
    let cell = |mean: &Option<(f64, usize)>| {
        let Some((mean, count)) = mean else { return none() };
        let text = if Some(*mean) == best { format!("**{mean:.3}**") } else { format!("{mean:.3}") };
        if *count < most { format!("{text} ({count})") } else { text }
    };
    std::iter::once(format!("{title} ({most})")).chain(means.iter().map(cell)).collect()
}

/// Of several files: the means of all runs in each alone, so that it is seen whether they agree. `mallocs` are the columns.
pub fn apart(files: &[(String, Visits)], mallocs: &[String]) -> String {
    let mut table = Table::new(&["÷ best peer"], mallocs);
    let mut lines = Vec::new();
    // Both means of each measure in each file.
    let mut said: [Vec<(&str, Vec<Intervals>)>; 2] = [Vec::new(), Vec::new()];
    for measure in [TIME, PEAK] {
        let all: Vec<Figures> =
            files.iter().map(|(_, visits)| Figures::of(visits, mallocs, measure.name)).collect();
        let fair: Vec<Figures> = all.iter().map(|figures| figures.view().without_luck()).collect();
        let plain: Vec<(Row, Intervals)> =
            all.iter().map(|f| (f.view().mean_row(), f.view().intervals(View::mean_row))).collect();
        let named: Vec<(Row, Intervals)> = fair
            .iter()
            .map(|f| (f.view().means_of_medians(), f.view().intervals(View::means_of_medians)))
            .collect();
        for (at, (name, visits)) in files.iter().enumerate() {
            let rounds = visits.values().map(Vec::len).filter(|count| *count > 0).min().unwrap_or(0);
            let title = format!("{}, {name}: {}", measure.short, crate::units::of(rounds as u64, "round"));
            table.rows.push(std::iter::once(title).chain(cells_of(&plain[at].0, &plain[at].1)).collect());
        }
        for (at, (name, _)) in files.iter().enumerate() {
            let title = format!("{}, {name}, {NAMED}", measure.short);
            table.rows.push(std::iter::once(title).chain(cells_of(&named[at].0, &named[at].1)).collect());
        }
        said[0].push((measure.short, plain.into_iter().map(|(_, intervals)| intervals).collect()));
        said[1].push((measure.short, named.into_iter().map(|(_, intervals)| intervals).collect()));
    }
    for (said, how) in said.iter().zip([String::new(), format!(", {NAMED}")]) {
        let found: Vec<String> = said
            .iter()
            .flat_map(|(short, intervals)| disagreeing(intervals, mallocs, &format!("{short}{how}")))
            .collect();
        // A mean that has an interval in one file alone is compared with nothing.
        let compared = said.iter().any(|(_, files)| {
            let known = |place: usize| files.iter().filter(|intervals| intervals[place].is_some()).count();
            (0..mallocs.len()).any(|place| known(place) > 1)
        });
        match (found.is_empty(), compared) {
            (true, true) => {
                lines.push(format!("the files agree{how}: all intervals of a mean have a common part"));
            }
            (true, false) => lines.push(format!("too few rounds to tell whether the files agree{how}")),
            (false, _) => lines.extend(found),
        }
    }
    let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
    format!("{}\n{lines}", table.text())
}

/// Whose mean in one file lies outside of what another file says.
fn disagreeing(files: &[Intervals], mallocs: &[String], title: &str) -> Vec<String> {
    let of = |(place, malloc): (usize, &String)| {
        let found: Vec<(f64, f64)> = files.iter().filter_map(|intervals| intervals[place]).collect();
        let highest_low = found.iter().map(|ends| ends.0).max_by(f64::total_cmp)?;
        let lowest_high = found.iter().map(|ends| ends.1).min_by(f64::total_cmp)?;
        let all: Vec<String> = found.iter().map(|ends| range(*ends)).collect();
        (highest_low > lowest_high)
            .then(|| format!("the files differ: {malloc}: {title}: {}", all.join(", ")))
    };
    mallocs.iter().enumerate().filter_map(of).collect()
}

#[cfg(test)]
mod tests;
