// SPDX-License-Identifier: MIT
//! What the figures amount to: summaries of cells, who wins what, and means over all scenarios.

use std::collections::{BTreeMap, HashMap};

use quarry_measure::stats::{self, Ratio, Summary};

use crate::results::{Cell, Results, Role, Run, Summaries};

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Time of an operation.
    Time,
    /// Peak resident memory.
    Rss,
}

impl Measure {
    /// Of a run.
    pub fn of(self, run: &Run) -> f64 {
        match self {
            Measure::Time => run.ns_per_operation(),
            Measure::Rss => run.peak_rss_kib,
        }
    }

    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            Measure::Time => "time",
            Measure::Rss => "peak RSS",
        }
    }
}

/// A phase that takes less is not measured, and not compared: frames end at once.
const SHORTEST_S: f64 = 20e-6;

/// Is there enough of this to compare?
pub fn is_measurable(cell: &Cell, measure: Measure) -> bool {
    let long_enough = || cell.median(|run| run.seconds).is_some_and(|seconds| seconds >= SHORTEST_S);
    cell.counts() && (measure == Measure::Rss || long_enough())
}

/// Pairs of two cells' figures, by rounds.
fn pairs(sample: &Cell, base: &Cell, measure: Measure) -> Vec<(f64, f64)> {
    let of_round = |round: usize| base.runs.iter().find(|run| run.round == round);
    let runs = sample.runs.iter();
    runs.filter_map(|run| Some((measure.of(run), measure.of(of_round(run.round)?)))).collect()
}

/// Summarise all cells.
pub fn summarise(results: &mut Results) {
    let rows = rows(results);
    let best: Vec<[Option<usize>; 2]> =
        rows.iter().map(|row| [Measure::Time, Measure::Rss].map(|m| best(results, row, m))).collect();
    let mut summaries: Vec<Option<Summaries>> = vec![None; results.cells.len()];
    for (row, best) in rows.iter().zip(best) {
        for &index in row {
            summaries[index] = summary(results, &results.cells[index], best);
        }
    }
    for (cell, summary) in results.cells.iter_mut().zip(summaries) {
        cell.summary = summary;
    }
}

/// `best`: the cells that time and memory are compared with.
fn summary(results: &Results, cell: &Cell, best: [Option<usize>; 2]) -> Option<Summaries> {
    let of = |value: fn(&Run) -> f64| Summary::of(&cell.each(value));
    let known = |value: fn(&Run) -> Option<f64>| {
        Summary::of(&cell.runs.iter().filter_map(value).collect::<Vec<f64>>())
    };
    let ratio = |best: Option<usize>, measure| -> Option<Ratio> {
        stats::ratio(&pairs(cell, &results.cells[best?], measure), results.seed)
    };
    Some(Summaries {
        ns_per_operation: of(Run::ns_per_operation)?,
        seconds: of(|run| run.seconds)?,
        user_seconds: known(|run| run.user_seconds),
        system_seconds: known(|run| run.system_seconds),
        peak_rss_kib: of(|run| run.peak_rss_kib)?,
        faults: known(|run| run.faults),
        time_ratio: ratio(best[0], Measure::Time),
        rss_ratio: ratio(best[1], Measure::Rss),
    })
}

/// The cells, by indices, of each point and phase.
pub(crate) fn rows(results: &Results) -> Vec<Vec<usize>> {
    let mut rows: Vec<Vec<usize>> = Vec::new();
    let mut known: HashMap<(&str, String, &str), usize> = HashMap::new();
    for (index, cell) in results.cells.iter().enumerate() {
        let key = (cell.scenario.as_str(), format!("{:?}", cell.point), cell.phase.as_str());
        let row = *known.entry(key).or_insert(rows.len());
        if row == rows.len() {
            rows.push(Vec::new());
        }
        rows[row].push(index);
    }
    rows
}

/// The malloc (where there is none: whoever) that has the least of this in a row.
fn best(results: &Results, row: &[usize], measure: Measure) -> Option<usize> {
    let cells =
        || row.iter().map(|&index| (index, &results.cells[index])).filter(|(_, c)| is_measurable(c, measure));
    let allowed =
        [&[Role::Malloc][..], &[Role::Malloc, Role::Variant], &[Role::Malloc, Role::Variant, Role::Pool]];
    let of = |roles: &[Role]| {
        cells()
            .filter(|(_, cell)| roles.contains(&results.role(&cell.contender)))
            .filter_map(|(index, cell)| Some((index, cell.median(|run| measure.of(run))?)))
            .min_by(|a, b| a.1.total_cmp(&b.1))
            .map(|(index, _)| index)
    };
    allowed.into_iter().find_map(of)
}

/// A row of the table of who wins what: a malloc's ratio to the best one, the geometric mean over points and phases.
#[derive(Debug, Clone, PartialEq)]
pub struct HeatRow {
    /// The scenario.
    pub scenario: String,
    /// For each malloc of the table: the ratio; what went wrong instead; or nothing, where it did not take part.
    pub ratios: Vec<Heat>,
}

/// A field of this table.
#[derive(Debug, Clone, PartialEq)]
pub enum Heat {
    /// Times the best.
    Ratio(f64),
    /// It failed at a point at least.
    Failed(String),
    /// It did not take part.
    Absent,
}

/// Who wins what.
#[derive(Debug, Clone, PartialEq)]
pub struct HeatMap {
    /// What is compared.
    pub measure: Measure,
    /// The columns.
    pub mallocs: Vec<String>,
    /// The rows.
    pub rows: Vec<HeatRow>,
    /// The geometric mean of each column's ratios, and of how many rows it is.
    pub means: Vec<Option<(f64, usize)>>,
    /// In how many rows each is within two percent of the best.
    pub wins: Vec<usize>,
}

/// Compare the mallocs over all scenarios that count for this.
pub fn heat_map(results: &Results, measure: Measure) -> HeatMap {
    let scenarios: Vec<&str> =
        results.scenarios.iter().filter(|about| about.heat).map(|about| about.name.as_str()).collect();
    let takes_part = |malloc: &str, scenario: &str| results.of(scenario).any(|cell| cell.contender == malloc);
    // One that only a scenario or two names has no column.
    let mallocs: Vec<String> = results
        .contenders
        .iter()
        .filter(|contender| contender.role == Role::Malloc)
        .map(|contender| contender.name.clone())
        .filter(|name| {
            2 * scenarios.iter().filter(|scenario| takes_part(name, scenario)).count() > scenarios.len()
        })
        .collect();
    let rows: Vec<HeatRow> = scenarios
        .iter()
        .filter(|scenario| mallocs.iter().any(|malloc| takes_part(malloc, scenario)))
        .map(|scenario| HeatRow {
            scenario: (*scenario).to_owned(),
            ratios: ratios(results, scenario, &mallocs, measure),
        })
        .filter(|row| row.ratios.iter().any(|heat| matches!(heat, Heat::Ratio(_))))
        .collect();
    let column = |at: usize| {
        rows.iter()
            .filter_map(move |row| if let Heat::Ratio(ratio) = row.ratios[at] { Some(ratio) } else { None })
    };
    let means = (0..mallocs.len())
        .map(|at| {
            let all: Vec<f64> = column(at).collect();
            stats::geometric_mean(&all).map(|mean| (mean, all.len()))
        })
        .collect();
    let wins = (0..mallocs.len()).map(|at| column(at).filter(|ratio| *ratio <= 1.02).count()).collect();
    HeatMap { measure, mallocs, rows, means, wins }
}

/// Each malloc's mean ratio in a scenario, against the best mean of all.
fn ratios(results: &Results, scenario: &str, mallocs: &[String], measure: Measure) -> Vec<Heat> {
    // The figures of each row of cells, by malloc.
    let mut table: BTreeMap<(String, &str), BTreeMap<&str, f64>> = BTreeMap::new();
    for cell in results.of(scenario).filter(|cell| is_measurable(cell, measure)) {
        if let Some(figure) = cell.median(|run| measure.of(run)).filter(|figure| *figure > 0.0) {
            let point = format!("{:?}", cell.point);
            table.entry((point, &cell.phase)).or_default().insert(&cell.contender, figure);
        }
    }
    let failed = |malloc: &str| {
        let bad =
            |cell: &&Cell| cell.contender == malloc && (cell.status.is_failure() || cell.runs.is_empty());
        results.of(scenario).find(bad).map(|cell| cell.status.word().to_owned())
    };
    let running: Vec<&String> = mallocs
        .iter()
        .filter(|malloc| {
            failed(malloc).is_none() && results.of(scenario).any(|cell| cell.contender == **malloc)
        })
        .collect();
    // Only rows that all have: else a mean would be of other things.
    let common: Vec<&BTreeMap<&str, f64>> =
        table.values().filter(|row| running.iter().all(|malloc| row.contains_key(malloc.as_str()))).collect();
    let mean = |malloc: &str| {
        let figures: Vec<f64> = common.iter().filter_map(|row| row.get(malloc).copied()).collect();
        stats::geometric_mean(&figures)
    };
    let means: BTreeMap<&str, f64> =
        running.iter().filter_map(|malloc| Some((malloc.as_str(), mean(malloc)?))).collect();
    let best = means.values().copied().min_by(f64::total_cmp).unwrap_or(1.0);
    let field = |malloc: &String| match (means.get(malloc.as_str()), failed(malloc)) {
        (Some(mean), _) => Heat::Ratio(mean / best),
        (None, Some(word)) => Heat::Failed(word),
        (None, None) => Heat::Absent,
    };
    mallocs.iter().map(field).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::catalog::{Chart, Scalar, Size};
    use crate::results::{About, Contender, SCHEMA, Status};
    use quarry_measure::machine::Machine;

    /// Results with these cells: scenario, x, contender, seconds of each round, KiB.
    fn results(cells: &[(&str, i64, &str, &[f64], f64)]) -> Results {
        let mut results = figures(cells);
        summarise(&mut results);
        results
    }

    /// The same without what they amount to.
    pub(crate) fn figures(cells: &[(&str, i64, &str, &[f64], f64)]) -> Results {
        let mut results = Results {
            schema: SCHEMA.to_owned(),
            quarry_version: String::from("0"),
            size: Size::Quick,
            started: 0,
            seconds: 1.0,
            seed: 7,
            rounds: cells.iter().map(|cell| cell.3.len()).max().unwrap_or(0),
            warmup: 1,
            interrupted: false,
            machine: Machine::read(),
            load_after: None,
            others: None,
            contenders: Vec::new(),
            scenarios: Vec::new(),
            cells: Vec::new(),
        };
        for &(scenario, x, contender, seconds, kib) in cells {
            if results.contender(contender).is_none() {
                let role = match contender {
                    "nothing" => Role::Nothing,
                    name if name.starts_with("pool") => Role::Pool,
                    _ => Role::Malloc,
                };
                let version = Some(String::from("1"));
                results.contenders.push(Contender { version, ..Contender::new(contender, role) });
            }
            if !results.scenarios.iter().any(|about| about.name == scenario) {
                results.scenarios.push(About {
                    name: scenario.to_owned(),
                    title: scenario.to_uppercase(),
                    program: scenario.to_owned(),
                    options: String::new(),
                    shows: String::from("something"),
                    not_shown: String::from("other things"),
                    axes: Vec::new(),
                    x: None,
                    lines: None,
                    charts: vec![Chart::Bars],
                    series_units: Vec::new(),
                    heat: true,
                    processors: None,
                    missing: None,
                });
            }
            let run = |(index, seconds): (usize, &f64)| Run {
                round: index + 1,
                seconds: *seconds,
                operations: 1000.0,
                cpu_seconds: Some(*seconds),
                user_seconds: Some(*seconds),
                system_seconds: Some(0.0),
                peak_rss_kib: kib,
                faults: Some(3.0),
                values: BTreeMap::new(),
                counters: BTreeMap::new(),
            };
            results.cells.push(Cell {
                scenario: scenario.to_owned(),
                point: BTreeMap::from([(String::from("x"), Scalar::Number(x))]),
                phase: String::new(),
                contender: contender.to_owned(),
                status: if seconds.is_empty() { Status::Failed } else { Status::Ok },
                reason: seconds.is_empty().then(|| String::from("SIGSEGV")),
                payload_bytes: None,
                check: None,
                runs: seconds.iter().enumerate().map(run).collect(),
                summary: None,
                series: None,
                counters_note: None,
            });
        }
        results
    }

    #[test]
    fn ratios_are_to_the_best_malloc_of_the_row() {
        let results = results(&[
            ("s", 1, "a", &[2.0, 2.0, 2.0], 100.0),
            ("s", 1, "b", &[1.0, 1.0, 1.0], 400.0),
            ("s", 1, "pool1", &[0.5, 0.5, 0.5], 50.0),
            ("s", 2, "a", &[3.0, 3.0, 3.0], 100.0),
        ]);
        let of = |at: usize| {
            let summary = results.cells[at].summary.unwrap();
            (summary.time_ratio.unwrap().ratio, summary.rss_ratio.unwrap().ratio)
        };
        assert_eq!((of(0), of(1), of(2), of(3)), ((2.0, 1.0), (1.0, 4.0), (0.5, 0.5), (1.0, 1.0)));
        assert_eq!(results.cells[0].summary.unwrap().ns_per_operation.median, 2e6);
    }

    #[test]
    fn a_heat_map_has_means_and_failures() {
        let results = results(&[
            ("s", 1, "a", &[1.0], 100.0),
            ("s", 1, "b", &[2.0], 100.0),
            ("s", 2, "a", &[8.0], 100.0),
            ("s", 2, "b", &[1.0], 100.0),
            ("t", 1, "a", &[1.0], 100.0),
            ("t", 1, "b", &[], 0.0),
            ("s", 1, "pool1", &[0.1], 100.0),
        ]);
        let map = heat_map(&results, Measure::Time);
        assert_eq!(map.mallocs, ["a", "b"]);
        // Means of the first: sqrt(1 * 8) and sqrt(2 * 1).
        assert_eq!(map.rows[0].ratios[1], Heat::Ratio(1.0));
        assert!(matches!(map.rows[0].ratios[0], Heat::Ratio(r) if (r - 2.0).abs() < 1e-9), "{map:?}");
        assert_eq!(map.rows[1].ratios, [Heat::Ratio(1.0), Heat::Failed(String::from("failed"))]);
        let means: Vec<(f64, usize)> = map.means.iter().map(|mean| mean.unwrap()).collect();
        assert!((means[0].0 - 2f64.sqrt()).abs() < 1e-9 && means[0].1 == 2);
        assert_eq!((means[1], &map.wins[..]), ((1.0, 1), &[1, 1][..]));
    }

    #[test]
    fn what_takes_no_time_is_not_compared() {
        let results = results(&[("s", 1, "a", &[1e-6], 100.0), ("s", 1, "b", &[1.0], 100.0)]);
        assert_eq!(results.cells[1].summary.unwrap().time_ratio.unwrap().ratio, 1.0);
    }
}
