// SPDX-License-Identifier: MIT
//! What has changed since an earlier result, beyond noise.
//!
//! A machine is not as fast today as it was yesterday, so times are compared relative to the *controls*: the mallocs
//! that are the same library in both results, at the same point in the same round. Memory is compared as it is.
//!
//! Two things make a change. Within both sessions: no rank test says that the runs now and then are alike, not even if
//! they were allowed to differ by the floor. Between sessions: it is far beyond what the controls of the row differ from
//! what they were, though nothing about them has changed. The first alone is not enough, since a session may favour one
//! malloc in all of its rounds: by where its pages lie, or by what the kernel has learned of them.

use std::collections::{BTreeMap, HashMap};

use quarry_measure::stats::{self, Ratio};
use serde::{Deserialize, Serialize};

use crate::judge::{self, Measure, is_measurable};
use crate::results::{About, Cell, Contender, Point, Results, Role, Run, STOPPED, Status};

/// How sure the interval must be that lies beyond the floor.
const SURE: f64 = 0.95;

/// A change is so many times what the controls vary by from one session to the other.
const BEYOND: f64 = 3.0;

/// What fewer other controls in a row vary by says nothing.
const FEW_CONTROLS: usize = 4;

/// The mean of fewer figures says nothing of a malloc as a whole.
const FEW_FIGURES: usize = 10;

/// What became of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Larger beyond noise.
    Worse,
    /// Smaller beyond noise.
    Better,
    /// Neither.
    Same,
    /// Too few runs to tell.
    Unknown,
}

/// A figure of a cell, then and now.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    /// The scenario.
    pub scenario: String,
    /// The values of its axes.
    pub point: Point,
    /// The phase.
    pub phase: String,
    /// Whose figure.
    pub contender: String,
    /// "time" or "peak RSS".
    pub measure: &'static str,
    /// The median then, of time in nanoseconds of an operation, of memory in KiB.
    pub before: f64,
    /// The median now.
    pub now: f64,
    /// Now to then, of time relative to the controls.
    pub ratio: Ratio,
    /// How many controls there were.
    pub controls: usize,
    /// Is it a control itself? Then nothing can have changed but the machine.
    pub control: bool,
    /// How far from 1 the ratios of controls are here: their deviation, as a part of one.
    pub scatter: f64,
    /// Beyond noise?
    pub verdict: Verdict,
}

impl Change {
    /// Is it of a control, and has the pace of the machine been taken out of it?
    fn shows_scatter(&self) -> bool {
        self.control && (self.controls > 0 || self.measure != Measure::Time.name())
    }
}

/// A cell that fails now and did not then, or the other way round.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Turn {
    /// The scenario.
    pub scenario: String,
    /// The values of its axes.
    pub point: Point,
    /// Who.
    pub contender: String,
    /// What happens, or happened.
    pub what: String,
}

/// All figures of a contender together. What is too little to show in one of them shows here.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Mean {
    /// Whose.
    pub contender: String,
    /// "time" or "peak RSS".
    pub measure: &'static str,
    /// The geometric mean of all its ratios of now to then.
    pub ratio: f64,
    /// Of how many.
    pub figures: usize,
    /// Is it a control?
    pub control: bool,
    /// Is it farther from one than the means of the controls are?
    pub verdict: Verdict,
}

/// Two results, compared.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Changes up to this part of one count for nothing.
    pub floor: f64,
    /// All figures that are in both.
    pub changes: Vec<Change>,
    /// What fails now.
    pub broken: Vec<Turn>,
    /// What failed then.
    pub mended: Vec<Turn>,
    /// For each contender and measure.
    pub means: Vec<Mean>,
    /// How much longer the controls took than then: the median over rows.
    pub drift: Option<f64>,
    /// What makes the comparison doubtful.
    pub notes: Vec<String>,
}

impl Comparison {
    /// Changes of this kind, the largest first.
    pub fn of(&self, verdict: Verdict) -> Vec<&Change> {
        let mut found: Vec<&Change> =
            self.changes.iter().filter(|change| change.verdict == verdict).collect();
        let size = |change: &Change| change.ratio.ratio.max(1e-9).ln().abs();
        found.sort_by(|a, b| size(b).total_cmp(&size(a)));
        found
    }

    /// Has anything become worse that may have changed?
    pub fn is_worse(&self) -> bool {
        let worse = |change: &Change| change.verdict == Verdict::Worse && !change.control;
        let on_the_whole = |mean: &&Mean| mean.verdict == Verdict::Worse;
        !self.broken.is_empty()
            || self.changes.iter().any(worse)
            || self.as_a_whole().any(|mean| on_the_whole(&mean))
    }

    /// Contenders that may have changed, and have, taken as a whole.
    pub fn as_a_whole(&self) -> impl Iterator<Item = &Mean> {
        self.means
            .iter()
            .filter(|mean| !mean.control && matches!(mean.verdict, Verdict::Worse | Verdict::Better))
    }

    /// How many figures of controls count as changed, and of how many: what is flagged by chance.
    pub fn by_chance(&self) -> (usize, usize) {
        let controls = || self.changes.iter().filter(|change| change.control);
        let flagged = |change: &&Change| matches!(change.verdict, Verdict::Worse | Verdict::Better);
        (controls().filter(flagged).count(), controls().count())
    }

    /// One line: what has changed.
    pub fn summary(&self) -> String {
        let count = |verdict| self.changes.iter().filter(|change| change.verdict == verdict).count();
        let mut line = format!(
            "{} figures compared: {} worse, {} better, {} the same within noise and {:.0} %",
            self.changes.len(),
            count(Verdict::Worse),
            count(Verdict::Better),
            count(Verdict::Same),
            self.floor * 100.0,
        );
        let more = [
            (count(Verdict::Unknown), "unknown (too few runs)"),
            (self.broken.len(), "newly failing"),
            (self.mended.len(), "failing no more"),
        ];
        for (number, what) in more.into_iter().filter(|(number, _)| *number > 0) {
            line += &format!(", {number} {what}");
        }
        let (flagged, of) = self.by_chance();
        if of > 0 {
            line +=
                &format!("; by chance: {flagged} of the {of} figures of mallocs that are the same as then");
        }
        for mean in self.as_a_whole() {
            let how = if mean.verdict == Verdict::Worse { "worse" } else { "better" };
            line += &format!("; {} as a whole: {} {:.2}, {how}", mean.contender, mean.measure, mean.ratio);
        }
        line
    }
}

/// Compare; `floor` is a part of one, say 0.03.
pub fn compare(now: &Results, before: &Results, floor: f64) -> Comparison {
    let controls: Vec<&str> = now
        .contenders
        .iter()
        .filter(|contender| before.contender(&contender.name).is_some_and(|old| is_control(contender, old)))
        .map(|contender| contender.name.as_str())
        .collect();
    let others = others(now, before);
    let mut comparison = Comparison {
        floor,
        changes: Vec::new(),
        broken: Vec::new(),
        mended: Vec::new(),
        means: Vec::new(),
        drift: None,
        notes: notes(now, before, &controls, &others),
    };
    let old: HashMap<_, &Cell> = before.cells.iter().map(|cell| (key(cell), cell)).collect();
    let mut drifts = Vec::new();
    for row in judge::rows(now) {
        let cells = row.into_iter().map(|index| &now.cells[index]);
        let cells = cells.filter(|cell| !others.contains(&cell.scenario.as_str()));
        let pairs = cells.filter_map(|cell| {
            let control = controls.contains(&cell.contender.as_str());
            Some(Pair { now: cell, then: old.get(&key(cell))?, control })
        });
        let pairs: Vec<Pair> = pairs.collect();
        drifts.extend(pairs.iter().filter(|pair| pair.is_clock()).filter_map(Pair::drift));
        for measure in [Measure::Time, Measure::Rss] {
            comparison.changes.extend(row_changes(&pairs, measure));
        }
    }
    judge_all(&mut comparison);
    comparison.drift = stats::median(&drifts);
    turns(now, before, &mut comparison);
    means(&mut comparison);
    comparison
}

/// What a cell is called in both results.
fn key(cell: &Cell) -> (&str, String, &str, &str) {
    (&cell.scenario, format!("{:?}", cell.point), &cell.phase, &cell.contender)
}

/// Is it the same library as then? Ours is what changes, so it never is. Nor is one of unknown version: it may have been
/// built anew.
fn is_control(now: &Contender, old: &Contender) -> bool {
    let ours =
        now.name.contains("quarry") || now.library.as_ref().is_some_and(|path| path.contains("libquarry"));
    now.role == Role::Malloc
        && old.role == Role::Malloc
        && !ours
        && now.version.is_some()
        && now.version == old.version
        && now.env == old.env
}

/// The scenarios that are in both, but of another program or with other options. Their figures are of other work.
fn others<'a>(now: &'a Results, before: &Results) -> Vec<&'a str> {
    let differs = |about: &&About| {
        let of_name = before.scenarios.iter().find(|old| old.name == about.name);
        of_name.is_some_and(|old| (&old.program, &old.options) != (&about.program, &about.options))
    };
    now.scenarios.iter().filter(differs).map(|about| about.name.as_str()).collect()
}

fn notes(now: &Results, before: &Results, controls: &[&str], others: &[&str]) -> Vec<String> {
    let mut notes = Vec::new();
    let (a, b) = (&now.machine, &before.machine);
    let mut differs = |what: &str, now: &str, then: &str| {
        if now != then {
            notes.push(format!("{what} was {then} then and is {now} now"));
        }
    };
    differs("the processor", &a.cpu, &b.cpu);
    differs("the kernel", &a.kernel, &b.kernel);
    differs("the C library", &a.libc, &b.libc);
    differs("the setting of huge pages", &a.transparent_huge_pages, &b.transparent_huge_pages);
    differs("the set", &now.size.to_string(), &before.size.to_string());
    differs("the number of processors", &a.cores.to_string(), &b.cores.to_string());
    if controls.is_empty() {
        notes.push(String::from(
            "no malloc is the same in both, so the speed of the machine cannot be told from that of the heap",
        ));
    }
    for (from, to, when) in [(before, now, "then and not now"), (now, before, "now and not then")] {
        let is_alone = |one: &&Contender| one.role == Role::Malloc && to.contender(&one.name).is_none();
        let names: Vec<&str> = from.contenders.iter().filter(is_alone).map(|one| one.name.as_str()).collect();
        if !names.is_empty() {
            notes.push(format!("took part {when}: {}", names.join(", ")));
        }
    }
    if !others.is_empty() {
        notes.push(format!("not compared, since they did other work then: {}", others.join(", ")));
    }
    notes
}

/// A cell, now and then.
#[derive(Clone, Copy)]
struct Pair<'a> {
    now: &'a Cell,
    then: &'a Cell,
    control: bool,
}

impl Pair<'_> {
    /// May others' times be taken relative to this one's?
    fn is_clock(&self) -> bool {
        self.control && [self.now, self.then].into_iter().all(|cell| is_measurable(cell, Measure::Time))
    }

    /// How much longer it takes than then.
    fn drift(&self) -> Option<f64> {
        let median = |cell: &Cell| cell.median(Run::ns_per_operation).filter(|ns| *ns > 0.0);
        Some(median(self.now)? / median(self.then)?)
    }
}

/// How slow the machine was in each round of these cells, relative to the usual of then: the median of the clocks.
fn pace<'a>(clocks: &[Pair<'a>], of: impl Fn(&Pair<'a>) -> &'a Cell) -> BTreeMap<usize, f64> {
    let mut by_round: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for pair in clocks {
        let Some(usual) = pair.then.median(Run::ns_per_operation).filter(|ns| *ns > 0.0) else { continue };
        for run in &of(pair).runs {
            by_round.entry(run.round).or_default().push(run.ns_per_operation() / usual);
        }
    }
    by_round.into_iter().filter_map(|(round, paces)| Some((round, stats::median(&paces)?))).collect()
}

/// The changes of a row, without verdicts.
fn row_changes(pairs: &[Pair], measure: Measure) -> Vec<Change> {
    let one = |(index, pair): (usize, &Pair)| {
        if ![pair.now, pair.then].into_iter().all(|cell| is_measurable(cell, measure)) {
            return None;
        }
        // The work alone and the pools depend on the machine too, so controls are controls for all but themselves.
        let others = pairs.iter().enumerate().filter(|(other, clock)| *other != index && clock.is_clock());
        let clocks: Vec<Pair> = others.map(|(_, pair)| *pair).filter(|_| measure == Measure::Time).collect();
        let figures = |cell: &Cell, pace: &BTreeMap<usize, f64>| -> Vec<f64> {
            let relative = |round| pace.get(&round).copied().filter(|pace| *pace > 0.0).unwrap_or(1.0);
            cell.runs.iter().map(|run| measure.of(run) / relative(run.round)).collect()
        };
        let now = figures(pair.now, &pace(&clocks, |pair| pair.now));
        let then = figures(pair.then, &pace(&clocks, |pair| pair.then));
        let ratio = stats::ratio_apart(&now, &then, SURE)?;
        Some(Change {
            scenario: pair.now.scenario.clone(),
            point: pair.now.point.clone(),
            phase: pair.now.phase.clone(),
            contender: pair.now.contender.clone(),
            measure: measure.name(),
            before: pair.then.median(|run| measure.of(run))?,
            now: pair.now.median(|run| measure.of(run))?,
            ratio: Ratio { interval: ratio.interval.filter(|_| can_tell(now.len(), then.len())), ..ratio },
            controls: clocks.len(),
            control: pair.control,
            scatter: 0.0,
            verdict: Verdict::Unknown,
        })
    };
    let mut changes: Vec<Change> = pairs.iter().enumerate().filter_map(one).collect();
    let scatters: Vec<f64> = (0..changes.len()).map(|index| scatter_beside(&changes, index)).collect();
    for (change, scatter) in changes.iter_mut().zip(scatters) {
        change.scatter = scatter;
    }
    changes
}

/// Is there an order of so many runs then and now that comes by chance less often than we want to be sure? There are as
/// many orders as ways to choose which of all runs are the new ones, and two of them are the extremes.
fn can_tell(n: usize, m: usize) -> bool {
    let orders: f64 = (1..=n).map(|i| (m + i) as f64 / i as f64).product();
    2.0 / orders <= 1.0 - SURE
}

/// How far ratios are from 1: the median distance, scaled to a standard deviation.
fn scatter(ratios: impl Iterator<Item = f64>) -> Option<f64> {
    const NORMAL: f64 = 1.4826;
    let distances: Vec<f64> = ratios.filter(|ratio| *ratio > 0.0).map(|ratio| ratio.ln().abs()).collect();
    stats::median(&distances).map(|median| median * NORMAL)
}

/// Of the controls of a row without this one; 0 where there are too few.
fn scatter_beside(changes: &[Change], index: usize) -> f64 {
    let others =
        changes.iter().enumerate().filter(|(other, change)| *other != index && change.shows_scatter());
    let ratios: Vec<f64> = others.map(|(_, change)| change.ratio.ratio).collect();
    if ratios.len() < FEW_CONTROLS { 0.0 } else { scatter(ratios.into_iter()).unwrap_or(0.0) }
}

/// The verdicts.
fn judge_all(comparison: &mut Comparison) {
    for measure in [Measure::Time, Measure::Rss] {
        let of_this = |change: &&Change| change.measure == measure.name() && change.shows_scatter();
        let ratios = comparison.changes.iter().filter(of_this).map(|change| change.ratio.ratio);
        let usual = scatter(ratios).unwrap_or(0.0);
        let floor = comparison.floor;
        for change in comparison.changes.iter_mut().filter(|change| change.measure == measure.name()) {
            // A few controls may lie close together by chance.
            change.scatter = change.scatter.max(usual);
            change.verdict = verdict(&change.ratio, change.scatter, floor);
        }
    }
}

fn verdict(ratio: &Ratio, scatter: f64, floor: f64) -> Verdict {
    let far = ratio.ratio.max(1e-9).ln().abs() > BEYOND * scatter;
    match ratio.interval {
        None => Verdict::Unknown,
        Some((low, _)) if low > 1.0 + floor && far => Verdict::Worse,
        Some((_, high)) if high < 1.0 - floor && far => Verdict::Better,
        Some(_) => Verdict::Same,
    }
}

/// Who fails now, who failed then. A cell that failed has perhaps no phases, so phases do not count here. A malloc that
/// does not serve has failed, too. What a session did not come to before it was stopped has not.
fn turns(now: &Results, before: &Results, comparison: &mut Comparison) {
    let of = |from: &Results, to: &Results| {
        let mut turns: Vec<Turn> = Vec::new();
        let was_met = |cell: &Cell| cell.reason.as_deref() != Some(STOPPED);
        let failed =
            |cell: &&Cell| cell.status.is_failure() || cell.status == Status::NotRun && was_met(cell);
        for cell in from.cells.iter().filter(failed) {
            let same =
                |other: &&Cell| other.is_at(&cell.scenario, &cell.point) && other.contender == cell.contender;
            let worked = to.cells.iter().filter(same).any(Cell::counts);
            let turn = Turn {
                scenario: cell.scenario.clone(),
                point: cell.point.clone(),
                contender: cell.contender.clone(),
                what: format!("{}: {}", cell.status.word(), cell.reason.as_deref().unwrap_or("?")),
            };
            if worked && !turns.contains(&turn) {
                turns.push(turn);
            }
        }
        turns
    };
    comparison.broken = of(now, before);
    comparison.mended = of(before, now);
}

fn means(comparison: &mut Comparison) {
    let mut all: Vec<(&Change, Vec<f64>)> = Vec::new();
    for change in comparison.changes.iter().filter(|change| change.ratio.ratio > 0.0) {
        let same = |(first, _): &&mut (&Change, Vec<f64>)| {
            first.contender == change.contender && first.measure == change.measure
        };
        match all.iter_mut().find(same) {
            Some((_, ratios)) => ratios.push(change.ratio.ratio),
            None => all.push((change, vec![change.ratio.ratio])),
        }
    }
    let mean = |(change, ratios): (&Change, Vec<f64>)| {
        Some(Mean {
            contender: change.contender.clone(),
            measure: change.measure,
            ratio: stats::geometric_mean(&ratios)?,
            figures: ratios.len(),
            control: change.control,
            verdict: Verdict::Unknown,
        })
    };
    let mut means: Vec<Mean> = all.into_iter().filter_map(mean).collect();
    let verdicts: Vec<Verdict> =
        (0..means.len()).map(|index| verdict_of_mean(&means, index, comparison.floor)).collect();
    for (mean, verdict) in means.iter_mut().zip(verdicts) {
        mean.verdict = verdict;
    }
    comparison.means = means;
}

/// Against the means of the controls, without itself.
fn verdict_of_mean(means: &[Mean], index: usize, floor: f64) -> Verdict {
    let mean = &means[index];
    let others: Vec<f64> = (means.iter().enumerate())
        .filter(|(other, control)| *other != index && control.control && control.measure == mean.measure)
        .filter(|(_, control)| control.figures >= FEW_FIGURES)
        .map(|(_, control)| control.ratio)
        .collect();
    if mean.figures < FEW_FIGURES || others.len() < FEW_CONTROLS {
        return Verdict::Unknown;
    }
    let limit = (BEYOND * scatter(others.into_iter()).unwrap_or(0.0)).max((1.0 + floor).ln());
    match mean.ratio.ln() {
        far if far > limit => Verdict::Worse,
        far if far < -limit => Verdict::Better,
        _ => Verdict::Same,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::tests::figures;
    use quarry_measure::rng::Rng;

    const MALLOCS: [&str; 8] =
        ["system", "quarry", "jemalloc", "mimalloc", "tcmalloc", "tbbmalloc", "snmalloc", "rpmalloc"];

    /// A session: `slow` times longer under quarry, on a machine whose pace wanders between rounds and is `machine` in all;
    /// each run has noise of its own, now and then a lot, and each malloc at each point a luck, up to `luck` either way,
    /// that is the same in all rounds.
    fn lucky_session(seed: u64, slow: f64, machine: f64, luck: f64) -> Results {
        let mut rng = Rng::new(seed);
        let mut even = move || (rng.bits() >> 11) as f64 / (1u64 << 53) as f64;
        let mut cells: Vec<(String, i64, &str, Vec<f64>, f64)> = Vec::new();
        for scenario in 0..10 {
            for x in 0..2 {
                let mut times: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
                let lucks = MALLOCS.map(|_| 1.0 + luck * (2.0 * even() - 1.0));
                for _ in 0..7 {
                    let pace = machine * (1.0 + 0.1 * even());
                    for (number, malloc) in MALLOCS.into_iter().enumerate() {
                        let noise = 1.0 + 0.03 * even() + if even() < 0.05 { 0.3 * even() } else { 0.0 };
                        let own = if malloc == "quarry" { slow } else { 1.0 };
                        times
                            .entry(malloc)
                            .or_default()
                            .push((1.0 + number as f64 * 0.2) * pace * noise * own * lucks[number]);
                    }
                }
                for malloc in MALLOCS {
                    cells.push((format!("s{scenario}"), x, malloc, times[malloc].clone(), 1000.0));
                }
            }
        }
        let cells: Vec<_> = cells.iter().map(|c| (c.0.as_str(), c.1, c.2, c.3.as_slice(), c.4)).collect();
        figures(&cells)
    }

    fn session(seed: u64, slow: f64, machine: f64) -> Results {
        lucky_session(seed, slow, machine, 0.0)
    }

    fn count(comparison: &Comparison, verdict: Verdict, contender: &str) -> usize {
        let of = |change: &&Change| {
            change.verdict == verdict && change.contender == contender && change.measure == "time"
        };
        comparison.changes.iter().filter(of).count()
    }

    #[test]
    fn nothing_is_flagged_when_nothing_has_changed() {
        let (mut flagged, mut all) = (0, 0);
        for seed in 0..6 {
            // The machine is 15 % slower the second time.
            let comparison = compare(&session(2 * seed + 1, 1.0, 1.15), &session(2 * seed, 1.0, 1.0), 0.03);
            flagged += comparison.changes.iter().filter(|change| change.verdict != Verdict::Same).count();
            all += comparison.changes.len();
            assert!((comparison.drift.unwrap() - 1.15).abs() < 0.04, "{:?}", comparison.drift);
        }
        assert_eq!(all, 6 * 2 * 20 * MALLOCS.len());
        assert!(flagged * 100 <= all, "{flagged} of {all}");
    }

    #[test]
    fn luck_of_a_session_is_no_change() {
        let (mut flagged, mut by_ranks, mut all, mut found) = (0, 0, 0, 0);
        for seed in 0..6 {
            let before = lucky_session(2 * seed, 1.0, 1.0, 0.05);
            let comparison = compare(&lucky_session(2 * seed + 1, 1.0, 1.1, 0.05), &before, 0.03);
            let times = || comparison.changes.iter().filter(|change| change.measure == "time");
            flagged += times().filter(|change| change.verdict != Verdict::Same).count();
            let alone = |change: &&Change| verdict(&change.ratio, 0.0, 0.03) != Verdict::Same;
            by_ranks += times().filter(alone).count();
            all += times().count();
            found += count(
                &compare(&lucky_session(2 * seed + 1, 1.3, 1.1, 0.05), &before, 0.03),
                Verdict::Worse,
                "quarry",
            );
        }
        assert!(by_ranks * 10 > all, "ranks alone would flag {by_ranks} of {all}");
        assert!(flagged * 50 <= all, "{flagged} of {all}");
        assert!(found >= 96, "{found} of 120");
    }

    #[test]
    fn too_few_rounds_tell_nothing() {
        assert!(!can_tell(3, 3) && can_tell(3, 5) && can_tell(4, 4) && can_tell(9, 9));
        let one = |slow: f64, rounds: usize| {
            let (ours, theirs) = (vec![slow; rounds], vec![1.0; rounds]);
            figures(&[("s", 1, "quarry", &ours, 100.0), ("s", 1, "system", &theirs, 100.0)])
        };
        let verdicts = |rounds| {
            let comparison = compare(&one(2.0, rounds), &one(1.0, rounds), 0.03);
            [count(&comparison, Verdict::Worse, "quarry"), count(&comparison, Verdict::Unknown, "quarry")]
        };
        assert_eq!((verdicts(3), verdicts(4)), ([0, 1], [1, 0]));
    }

    #[test]
    fn one_control_is_a_clock_and_no_scatter() {
        let of = |quarry: f64, system: f64| {
            let (ours, theirs) = (vec![quarry; 5], vec![system; 5]);
            figures(&[("s", 1, "quarry", &ours, 100.0), ("s", 1, "system", &theirs, 100.0)])
        };
        let comparison = compare(&of(3.3, 3.0), &of(1.0, 1.0), 0.03);
        assert_eq!(count(&comparison, Verdict::Worse, "quarry"), 1, "{comparison:?}");
        let comparison = compare(&of(3.0, 3.0), &of(1.0, 1.0), 0.03);
        assert_eq!(count(&comparison, Verdict::Same, "quarry"), 1, "{comparison:?}");
    }

    #[test]
    fn what_is_the_same_library_is_worse_by_chance() {
        let of = |kib| {
            let cell = |malloc, kib| ("s", 1, malloc, &[1.0; 5][..], kib);
            figures(&[
                cell("quarry", 100.0),
                cell("system", kib),
                cell("jemalloc", 100.0),
                cell("mimalloc", 100.0),
            ])
        };
        let comparison = compare(&of(200.0), &of(100.0), 0.03);
        assert_eq!((comparison.of(Verdict::Worse).len(), comparison.by_chance()), (1, (1, 6)));
        assert!(!comparison.is_worse());
        assert!(
            comparison
                .summary()
                .ends_with("by chance: 1 of the 6 figures of mallocs that are the same as then")
        );
    }

    #[test]
    fn a_library_of_unknown_version_is_no_control() {
        let unknown = |mut results: Results| {
            let own = results.contenders.iter_mut().filter(|one| one.name == "rpmalloc");
            own.for_each(|one| one.version = None);
            results
        };
        let mut slow = unknown(session(1, 1.0, 1.0));
        let own = slow.cells.iter_mut().filter(|cell| cell.contender == "rpmalloc");
        own.flat_map(|cell| &mut cell.runs).for_each(|run| run.seconds *= 2.0);
        let comparison = compare(&slow, &unknown(session(0, 1.0, 1.0)), 0.03);
        assert!(comparison.is_worse(), "{}", comparison.summary());
        let of = |change: &&Change| change.contender == "rpmalloc";
        assert!(comparison.changes.iter().filter(of).all(|change| !change.control));
        assert_eq!(count(&comparison, Verdict::Worse, "rpmalloc"), 20);
    }

    #[test]
    fn a_slow_down_of_ten_percent_is_found() {
        let mut found = 0;
        for seed in 0..6 {
            let comparison = compare(&session(2 * seed + 1, 1.1, 0.9), &session(2 * seed, 1.0, 1.0), 0.03);
            found += count(&comparison, Verdict::Worse, "quarry");
            assert_eq!(count(&comparison, Verdict::Better, "quarry"), 0);
            assert!(comparison.is_worse());
            let mean = mean_of(&comparison);
            assert!((mean.ratio - 1.1).abs() < 0.02 && mean.figures == 20, "{mean:?}");
            assert_eq!(mean.verdict, Verdict::Worse);
            assert!(comparison.summary().contains("quarry as a whole: time 1.1"), "{}", comparison.summary());
        }
        assert!(found >= 108, "{found} of 120");
    }

    fn mean_of(comparison: &Comparison) -> &Mean {
        let of_time = |mean: &&Mean| mean.contender == "quarry" && mean.measure == "time";
        comparison.means.iter().find(of_time).unwrap()
    }

    // Where sessions have their luck, ten percent show in no single figure, but in all together.
    #[test]
    fn a_slow_down_that_no_figure_shows_is_found_in_their_mean() {
        let (mut single, mut whole, mut unchanged) = (0, 0, 0);
        for seed in 0..10 {
            let before = lucky_session(2 * seed, 1.0, 1.0, 0.05);
            let slow = compare(&lucky_session(2 * seed + 1, 1.1, 1.1, 0.05), &before, 0.03);
            let same = compare(&lucky_session(2 * seed + 1, 1.0, 1.1, 0.05), &before, 0.03);
            single += count(&slow, Verdict::Worse, "quarry");
            whole += usize::from(mean_of(&slow).verdict == Verdict::Worse && slow.is_worse());
            unchanged += usize::from(mean_of(&same).verdict == Verdict::Same);
        }
        assert!(single < 60, "{single} of 200");
        assert_eq!((whole, unchanged), (10, 10));
    }

    #[test]
    fn few_figures_are_no_mean() {
        let controls = |few: usize, ratio: f64| {
            let one = |name: &str, figures, control, ratio| Mean {
                contender: String::from(name),
                measure: "time",
                ratio,
                figures,
                control,
                verdict: Verdict::Unknown,
            };
            let mut means = vec![one("quarry", few, false, ratio)];
            means.extend(["a", "b", "c", "d"].map(|name| one(name, 20, true, 1.0)));
            verdict_of_mean(&means, 0, 0.03)
        };
        assert_eq!(controls(FEW_FIGURES - 1, 2.0), Verdict::Unknown);
        assert_eq!(
            [1.02, 1.04, 0.98, 0.9].map(|ratio| controls(FEW_FIGURES, ratio)),
            [Verdict::Same, Verdict::Worse, Verdict::Same, Verdict::Better]
        );
    }

    #[test]
    fn a_gain_is_a_gain() {
        let comparison = compare(&session(1, 0.8, 1.0), &session(2, 1.0, 1.0), 0.03);
        assert!(count(&comparison, Verdict::Better, "quarry") >= 18);
        assert!(!comparison.is_worse(), "{}", comparison.summary());
    }

    #[test]
    fn memory_is_compared_as_it_is() {
        let one = |kib| figures(&[("s", 1, "quarry", &[1.0; 4], kib), ("s", 1, "system", &[1.0; 4], 500.0)]);
        let comparison = compare(&one(1100.0), &one(1000.0), 0.03);
        let worse = comparison.of(Verdict::Worse);
        assert_eq!((worse.len(), worse[0].measure, worse[0].contender.as_str()), (1, "peak RSS", "quarry"));
        assert!(comparison.summary().starts_with("4 figures compared: 1 worse"), "{}", comparison.summary());
    }

    #[test]
    fn other_work_is_not_compared() {
        let of = |kib, options: &str| {
            let cell = |malloc, kib| ("s", 1, malloc, &[1.0; 5][..], kib);
            let mut results = figures(&[cell("quarry", kib), cell("system", 500.0)]);
            results.scenarios[0].options = options.to_owned();
            results
        };
        let comparison = compare(&of(2000.0, "-n 2"), &of(1000.0, "-n 1"), 0.03);
        assert!(comparison.changes.is_empty() && !comparison.is_worse(), "{comparison:?}");
        assert_eq!(comparison.notes, ["not compared, since they did other work then: s"]);
        assert!(compare(&of(2000.0, "-n 1"), &of(1000.0, "-n 1"), 0.03).is_worse());
    }

    #[test]
    fn who_fails_now_is_told() {
        let good = [("s", 1, "quarry", &[1.0; 3][..], 10.0), ("s", 1, "system", &[1.0; 3][..], 10.0)];
        let bad = [("s", 1, "quarry", &[][..], 10.0), ("s", 1, "system", &[1.0; 3][..], 10.0)];
        let comparison = compare(&figures(&bad), &figures(&good), 0.03);
        assert_eq!((comparison.broken.len(), comparison.mended.len()), (1, 0));
        assert!(comparison.is_worse() && comparison.broken[0].what.contains("SIGSEGV"));
        let comparison = compare(&figures(&good), &figures(&bad), 0.03);
        assert!(!comparison.is_worse() && comparison.mended.len() == 1);
        // A malloc that is not loaded any more, and one that a session did not come to.
        let mut absent = figures(&bad);
        (absent.cells[0].status, absent.cells[0].reason) = (Status::NotRun, Some(String::from("not loaded")));
        let comparison = compare(&absent, &figures(&good), 0.03);
        assert!(comparison.is_worse() && comparison.broken[0].what == "not run: not loaded");
        absent.interrupted = true;
        assert!(compare(&absent, &figures(&good), 0.03).is_worse());
        absent.cells[0].reason = Some(String::from(STOPPED));
        assert!(!compare(&absent, &figures(&good), 0.03).is_worse());
        let few = [("s", 1, "quarry", &[1.0; 2][..], 10.0)];
        let comparison = compare(&figures(&few), &figures(&good), 0.03);
        assert_eq!(comparison.of(Verdict::Unknown).len(), 2);
        for told in ["no malloc is the same", "took part then and not now: system"] {
            assert!(comparison.notes.iter().any(|note| note.contains(told)), "{:?}", comparison.notes);
        }
    }
}
