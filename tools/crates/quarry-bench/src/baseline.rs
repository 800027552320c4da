// SPDX-License-Identifier: MIT
//! What has changed since an earlier result, beyond noise.
//!
//! A machine is not as fast today as it was yesterday, so times are compared relative to the *controls*: the mallocs
//! that are the same library in both results, at the same point in the same round. Memory is compared as it is.

use std::collections::BTreeMap;

use quarry_measure::stats::{self, Ratio};
use serde::{Deserialize, Serialize};

use crate::judge::{Measure, is_measurable};
use crate::results::{Cell, Contender, Point, Results, Role};

/// How sure the interval must be that lies beyond the floor.
const SURE: f64 = 0.95;

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
    /// Beyond noise?
    pub verdict: Verdict,
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
    /// For each contender and measure the geometric mean of all its ratios, and of how many.
    pub means: Vec<(String, &'static str, f64, usize)>,
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

    /// Has anything become worse?
    pub fn is_worse(&self) -> bool {
        !self.broken.is_empty() || self.changes.iter().any(|change| change.verdict == Verdict::Worse)
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
            (count(Verdict::Unknown), "unknown (fewer than three runs)"),
            (self.broken.len(), "newly failing"),
            (self.mended.len(), "failing no more"),
        ];
        for (number, what) in more.into_iter().filter(|(number, _)| *number > 0) {
            line += &format!(", {number} {what}");
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
    let mut comparison = Comparison {
        floor,
        changes: Vec::new(),
        broken: Vec::new(),
        mended: Vec::new(),
        means: Vec::new(),
        drift: None,
        notes: notes(now, before, &controls),
    };
    let mut drifts = Vec::new();
    for cell in &now.cells {
        let same = |old: &&Cell| {
            old.is_at(&cell.scenario, &cell.point)
                && old.phase == cell.phase
                && old.contender == cell.contender
        };
        let Some(old) = before.cells.iter().find(same) else { continue };
        let row = Row::new(now, before, cell, &controls);
        if controls.contains(&cell.contender.as_str()) && is_measurable(cell, Measure::Time) {
            let median = |cell: &Cell| cell.median(|run| run.ns_per_operation());
            drifts.extend(
                median(cell).zip(median(old)).filter(|(_, old)| *old > 0.0).map(|(new, old)| new / old),
            );
        }
        for measure in [Measure::Time, Measure::Rss] {
            comparison.changes.extend(change(cell, old, &row, measure, floor));
        }
    }
    comparison.drift = stats::median(&drifts);
    turns(now, before, &mut comparison);
    means(&mut comparison);
    comparison
}

/// Is it the same library as then? Ours is what changes, so it never is.
fn is_control(now: &Contender, old: &Contender) -> bool {
    let ours =
        now.name.contains("quarry") || now.library.as_ref().is_some_and(|path| path.contains("libquarry"));
    now.role == Role::Malloc
        && old.role == Role::Malloc
        && !ours
        && now.version == old.version
        && now.env == old.env
}

fn notes(now: &Results, before: &Results, controls: &[&str]) -> Vec<String> {
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
    notes
}

/// The controls beside a cell.
struct Row<'a> {
    /// Each one's cell now and then.
    controls: Vec<(&'a Cell, &'a Cell)>,
}

impl<'a> Row<'a> {
    fn new(now: &'a Results, before: &'a Results, cell: &Cell, controls: &[&str]) -> Self {
        let find = |results: &'a Results, name: &str| {
            results.cells.iter().find(|other| {
                other.is_at(&cell.scenario, &cell.point)
                    && other.phase == cell.phase
                    && other.contender == name
                    && is_measurable(other, Measure::Time)
            })
        };
        // The work alone and the pools depend on the machine too, so controls are controls for all.
        let others = controls.iter().filter(|name| **name != cell.contender);
        let controls = others.filter_map(|name| Some((find(now, name)?, find(before, name)?))).collect();
        Self { controls }
    }

    /// How slow the machine was in each round, relative to the earlier result.
    fn pace(&self, rounds: impl Fn(&(&'a Cell, &'a Cell)) -> &'a Cell) -> BTreeMap<usize, f64> {
        let mut by_round: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
        for pair in &self.controls {
            let Some(usual) = pair.1.median(|run| run.ns_per_operation()).filter(|ns| *ns > 0.0) else {
                continue;
            };
            for run in &rounds(pair).runs {
                by_round.entry(run.round).or_default().push(run.ns_per_operation() / usual);
            }
        }
        by_round.into_iter().filter_map(|(round, paces)| Some((round, stats::median(&paces)?))).collect()
    }
}

fn change(cell: &Cell, old: &Cell, row: &Row, measure: Measure, floor: f64) -> Option<Change> {
    if !is_measurable(cell, measure) || !is_measurable(old, measure) {
        return None;
    }
    let figures = |cell: &Cell, pace: &BTreeMap<usize, f64>| -> Vec<f64> {
        let relative = |round| pace.get(&round).copied().filter(|pace| *pace > 0.0).unwrap_or(1.0);
        cell.runs.iter().map(|run| measure.of(run) / relative(run.round)).collect()
    };
    let (pace_now, pace_then) = match measure {
        Measure::Time => (row.pace(|pair| pair.0), row.pace(|pair| pair.1)),
        Measure::Rss => (BTreeMap::new(), BTreeMap::new()),
    };
    let ratio = stats::ratio_apart(&figures(cell, &pace_now), &figures(old, &pace_then), SURE)?;
    let verdict = match ratio.interval {
        None => Verdict::Unknown,
        Some((low, _)) if low > 1.0 + floor => Verdict::Worse,
        Some((_, high)) if high < 1.0 - floor => Verdict::Better,
        Some(_) => Verdict::Same,
    };
    Some(Change {
        scenario: cell.scenario.clone(),
        point: cell.point.clone(),
        phase: cell.phase.clone(),
        contender: cell.contender.clone(),
        measure: measure.name(),
        before: old.median(|run| measure.of(run))?,
        now: cell.median(|run| measure.of(run))?,
        ratio,
        controls: if measure == Measure::Time { row.controls.len() } else { 0 },
        verdict,
    })
}

/// Who fails now, who failed then. A cell that failed has perhaps no phases, so phases do not count here.
fn turns(now: &Results, before: &Results, comparison: &mut Comparison) {
    let of = |from: &Results, to: &Results| {
        let mut turns: Vec<Turn> = Vec::new();
        for cell in from.cells.iter().filter(|cell| cell.status.is_failure()) {
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
    let mut all: Vec<(String, &'static str, Vec<f64>)> = Vec::new();
    for change in comparison.changes.iter().filter(|change| change.ratio.ratio > 0.0) {
        let same = |(name, measure, _): &&mut (String, &'static str, Vec<f64>)| {
            *name == change.contender && *measure == change.measure
        };
        match all.iter_mut().find(same) {
            Some((_, _, ratios)) => ratios.push(change.ratio.ratio),
            None => all.push((change.contender.clone(), change.measure, vec![change.ratio.ratio])),
        }
    }
    comparison.means = all
        .into_iter()
        .filter_map(|(name, measure, ratios)| {
            Some((name, measure, stats::geometric_mean(&ratios)?, ratios.len()))
        })
        .collect();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::tests::results;
    use quarry_measure::rng::Rng;

    const MALLOCS: [&str; 5] = ["system", "quarry", "jemalloc", "mimalloc", "tcmalloc"];

    /// A session: `slow` times longer under quarry, on a machine whose pace wanders by `wander` between rounds and is
    /// `machine` in all; each run has noise of its own, now and then a lot.
    fn session(seed: u64, slow: f64, machine: f64) -> Results {
        let mut rng = Rng::new(seed);
        let mut even = move || (rng.bits() >> 11) as f64 / (1u64 << 53) as f64;
        let mut cells: Vec<(String, i64, &str, Vec<f64>, f64)> = Vec::new();
        for scenario in 0..10 {
            for x in 0..2 {
                let mut times: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
                for _ in 0..7 {
                    let pace = machine * (1.0 + 0.1 * even());
                    for (number, malloc) in MALLOCS.into_iter().enumerate() {
                        let noise = 1.0 + 0.03 * even() + if even() < 0.05 { 0.3 * even() } else { 0.0 };
                        let own = if malloc == "quarry" { slow } else { 1.0 };
                        times
                            .entry(malloc)
                            .or_default()
                            .push((1.0 + number as f64 * 0.2) * pace * noise * own);
                    }
                }
                for malloc in MALLOCS {
                    cells.push((format!("s{scenario}"), x, malloc, times[malloc].clone(), 1000.0));
                }
            }
        }
        let cells: Vec<_> = cells.iter().map(|c| (c.0.as_str(), c.1, c.2, c.3.as_slice(), c.4)).collect();
        results(&cells)
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
        assert_eq!(all, 6 * 200);
        assert!(flagged * 100 <= all, "{flagged} of {all}");
    }

    #[test]
    fn a_slow_down_of_ten_percent_is_found() {
        let mut found = 0;
        for seed in 0..6 {
            let comparison = compare(&session(2 * seed + 1, 1.1, 0.9), &session(2 * seed, 1.0, 1.0), 0.03);
            found += count(&comparison, Verdict::Worse, "quarry");
            assert_eq!(count(&comparison, Verdict::Better, "quarry"), 0);
            assert!(comparison.is_worse());
            let mean = comparison.means.iter().find(|mean| mean.0 == "quarry" && mean.1 == "time").unwrap();
            assert!((mean.2 - 1.1).abs() < 0.02 && mean.3 == 20, "{mean:?}");
        }
        assert!(found >= 108, "{found} of 120");
    }

    #[test]
    fn a_gain_is_a_gain() {
        let comparison = compare(&session(1, 0.8, 1.0), &session(2, 1.0, 1.0), 0.03);
        assert!(count(&comparison, Verdict::Better, "quarry") >= 18);
        assert!(!comparison.is_worse(), "{}", comparison.summary());
    }

    #[test]
    fn memory_is_compared_as_it_is() {
        let one = |kib| {
            results(&[("s", 1, "quarry", &[1.0, 1.0, 1.0], kib), ("s", 1, "system", &[1.0, 1.0, 1.0], 500.0)])
        };
        let comparison = compare(&one(1100.0), &one(1000.0), 0.03);
        let worse = comparison.of(Verdict::Worse);
        assert_eq!((worse.len(), worse[0].measure, worse[0].contender.as_str()), (1, "peak RSS", "quarry"));
        assert!(comparison.summary().starts_with("4 figures compared: 1 worse"), "{}", comparison.summary());
    }

    #[test]
    fn who_fails_now_is_told() {
        let good = [("s", 1, "quarry", &[1.0; 3][..], 10.0), ("s", 1, "system", &[1.0; 3][..], 10.0)];
        let bad = [("s", 1, "quarry", &[][..], 10.0), ("s", 1, "system", &[1.0; 3][..], 10.0)];
        let comparison = compare(&results(&bad), &results(&good), 0.03);
        assert_eq!((comparison.broken.len(), comparison.mended.len()), (1, 0));
        assert!(comparison.is_worse() && comparison.broken[0].what.contains("SIGSEGV"));
        let comparison = compare(&results(&good), &results(&bad), 0.03);
        assert!(!comparison.is_worse() && comparison.mended.len() == 1);
        let few = [("s", 1, "quarry", &[1.0; 2][..], 10.0)];
        let comparison = compare(&results(&few), &results(&good), 0.03);
        assert_eq!(comparison.of(Verdict::Unknown).len(), 2);
        assert!(
            comparison.notes.iter().any(|note| note.contains("no malloc is the same")),
            "{:?}",
            comparison.notes
        );
    }
}
