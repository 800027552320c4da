// SPDX-License-Identifier: MIT
//! Everything that was measured, and how: what is written as JSON (schema quarry-bench/3) and read again.

use std::collections::BTreeMap;

use quarry_measure::machine::Machine;
use quarry_measure::stats::{Ratio, Summary};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::catalog::{Axis, Chart, Scalar, Scenario, Size};
use crate::sample::Series;

/// The name and version of the form.
pub const SCHEMA: &str = "quarry-bench/3";
/// The reason of what a session did not come to.
pub const STOPPED: &str = "stopped before";

/// Files of versions 1 and 2 are read as well. The first has one more member, which nothing needs. Both have a number
/// where version 3 has null: 0, or the figure of the whole process.
const EARLIER: [&str; 2] = ["quarry-bench/1", "quarry-bench/2"];

/// Values of the axes.
pub type Point = BTreeMap<String, Scalar>;

/// All of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`SCHEMA`]
    pub schema: String,
    /// Of the tool.
    pub quarry_version: String,
    /// Which set.
    pub size: Size,
    /// When it began, in seconds since 1970.
    pub started: u64,
    /// How long it took.
    pub seconds: f64,
    /// What the order of runs was drawn from.
    pub seed: u64,
    /// Complete rounds, without the warm-up.
    pub rounds: usize,
    /// Rounds before the first that counts.
    pub warmup: usize,
    /// Was it stopped, by a signal or an error?
    pub interrupted: bool,
    /// Where, and its load before.
    pub machine: Machine,
    /// Load average over the last minute, after.
    pub load_after: Option<f64>,
    /// Who else used the processors.
    pub others: Option<Others>,
    /// Who took part.
    pub contenders: Vec<Contender>,
    /// In what.
    pub scenarios: Vec<About>,
    /// What came of it.
    pub cells: Vec<Cell>,
}

/// What others used of the machine meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Others {
    /// How many processors were busy for others, on average.
    pub processors: f64,
    /// How many a hypervisor gave to other machines.
    pub stolen: f64,
}

/// What kind of contender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Preloaded, or the system's own.
    Malloc,
    /// A malloc with variables of its own, in one scenario.
    Variant,
    /// A pool of libquarry, which the program itself is told to use.
    Pool,
    /// What else the program is told to use: plain malloc, mmap, a way of its own.
    Other,
    /// The work alone.
    Nothing,
}

/// Who took part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Contender {
    /// Its name in all tables.
    pub name: String,
    /// What it is.
    pub role: Role,
    /// Of a variant: the malloc that it is.
    #[serde(default)]
    pub of: Option<String>,
    /// What is preloaded; null: nothing.
    pub library: Option<String>,
    /// Where known.
    pub version: Option<String>,
    /// What it was compiled with, where known.
    #[serde(default)]
    pub flags: Option<String>,
    /// Variables of its runs.
    pub env: BTreeMap<String, String>,
    /// What else to know.
    pub notes: Vec<String>,
}

impl Contender {
    /// One of which nothing else is known.
    pub fn new(name: &str, role: Role) -> Self {
        Self {
            name: name.to_owned(),
            role,
            of: None,
            library: None,
            version: None,
            flags: None,
            env: BTreeMap::new(),
            notes: Vec::new(),
        }
    }
}

/// A scenario as it was run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct About {
    /// Its name.
    pub name: String,
    /// One line.
    pub title: String,
    /// What was run.
    pub program: String,
    /// Its options that are not an axis.
    pub options: String,
    /// A paragraph: what the figures say.
    pub shows: String,
    /// A paragraph: what they do not.
    pub not_shown: String,
    /// Axes.
    pub axes: Vec<Axis>,
    /// The horizontal one.
    pub x: Option<String>,
    /// The one whose values are the lines of charts.
    #[serde(default)]
    pub lines: Option<String>,
    /// What to draw.
    pub charts: Vec<Chart>,
    /// Units of the columns of series.
    #[serde(default)]
    pub series_units: Vec<String>,
    /// Does it count for who wins?
    pub heat: bool,
    /// The processors that it ran on; none: all.
    pub processors: Option<usize>,
    /// Why it was not run.
    #[serde(default)]
    pub missing: Option<String>,
}

impl About {
    /// Of a scenario of the catalogue.
    pub fn of(scenario: &Scenario, size: Size) -> Self {
        let options = scenario.fixed(size);
        let options: Vec<String> = crate::plan::words(&options);
        Self {
            name: scenario.name.clone(),
            title: scenario.title.clone(),
            program: scenario.program.clone(),
            options: options.join(" "),
            shows: scenario.shows.clone(),
            not_shown: scenario.not_shown.clone(),
            axes: scenario.axes.clone(),
            x: scenario.x.clone(),
            lines: scenario.lines.clone(),
            charts: scenario.charts.clone(),
            series_units: scenario.series_units.clone(),
            heat: scenario.heat,
            processors: scenario.processors,
            missing: None,
        }
    }

    /// The horizontal axis.
    pub fn x_axis(&self) -> Option<&Axis> {
        let x = self.x.as_ref()?;
        self.axes.iter().find(|axis| axis.name == *x)
    }
}

/// What became of a contender at one point of a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It ran as it should.
    Ok,
    /// It ended with an error or by a signal.
    Failed,
    /// It took too long and was killed.
    TimedOut,
    /// Its result is not that of the others.
    Wrong,
    /// There is no such combination.
    NotApplicable,
    /// It was not run: another malloc than that served the program, or the session was stopped before.
    NotRun,
}

impl Status {
    /// In a word.
    pub fn word(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::Failed => "failed",
            Status::TimedOut => "timed out",
            Status::Wrong => "wrong result",
            Status::NotApplicable => "not applicable",
            Status::NotRun => "not run",
        }
    }

    /// Did the contender do something that it must not?
    pub fn is_failure(self) -> bool {
        matches!(self, Status::Failed | Status::TimedOut | Status::Wrong)
    }
}

/// One run of a cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// From 1.
    pub round: usize,
    /// Elapsed, of the phase.
    pub seconds: f64,
    /// Operations of the phase.
    pub operations: f64,
    /// Processor time of the phase; of the process where the program has one phase and does not tell. Null: it is not
    /// known, since phases run beside each other.
    pub cpu_seconds: Option<f64>,
    /// Of this in the program,
    pub user_seconds: Option<f64>,
    /// and in the kernel.
    pub system_seconds: Option<f64>,
    /// Most resident memory of the process, by the end of the phase.
    pub peak_rss_kib: f64,
    /// Page faults, as processor time.
    pub faults: Option<f64>,
    /// Other numbers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, f64>,
    /// What processor and kernel counted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counters: BTreeMap<String, f64>,
}

impl Run {
    /// Nanoseconds of an operation; of all, where nothing is counted.
    pub fn ns_per_operation(&self) -> f64 {
        self.seconds * 1e9 / if self.operations > 0.0 { self.operations } else { 1.0 }
    }
}

/// A phase of a scenario at one point under one contender.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The scenario.
    pub scenario: String,
    /// The values of its axes.
    pub point: Point,
    /// The phase; of a cell that has no run, empty.
    pub phase: String,
    /// The contender.
    pub contender: String,
    /// What became of it.
    pub status: Status,
    /// Why, where it is not ok.
    #[serde(default)]
    pub reason: Option<String>,
    /// Bytes asked for at the highest moment.
    #[serde(default)]
    pub payload_bytes: Option<f64>,
    /// The result of the work.
    #[serde(default)]
    pub check: Option<String>,
    /// The runs that count.
    pub runs: Vec<Run>,
    /// What they amount to.
    #[serde(default)]
    pub summary: Option<Summaries>,
    /// The curve of the run of the median time.
    #[serde(default)]
    pub series: Option<Series>,
    /// Why the processor's counters are missing.
    #[serde(default)]
    pub counters_note: Option<String>,
}

/// What the runs of a cell amount to.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Summaries {
    /// Nanoseconds of an operation.
    pub ns_per_operation: Summary,
    /// Elapsed seconds.
    pub seconds: Summary,
    /// Processor seconds in the program,
    pub user_seconds: Option<Summary>,
    /// and in the kernel.
    pub system_seconds: Option<Summary>,
    /// Peak resident memory, KiB.
    pub peak_rss_kib: Summary,
    /// Page faults.
    pub faults: Option<Summary>,
    /// Time against the best malloc of the same point and phase, by rounds.
    pub time_ratio: Option<Ratio>,
    /// Memory against the least of the mallocs.
    pub rss_ratio: Option<Ratio>,
}

impl Cell {
    /// A number of each run.
    pub fn each(&self, value: impl Fn(&Run) -> f64) -> Vec<f64> {
        self.runs.iter().map(value).collect()
    }

    /// The median of a number.
    pub fn median(&self, value: impl Fn(&Run) -> f64) -> Option<f64> {
        quarry_measure::stats::median(&self.each(value))
    }

    /// The median of a member of `values`.
    pub fn value(&self, name: &str) -> Option<f64> {
        let values: Vec<f64> = self.runs.iter().filter_map(|run| run.values.get(name).copied()).collect();
        quarry_measure::stats::median(&values)
    }

    /// Is there something to compare?
    pub fn counts(&self) -> bool {
        self.status == Status::Ok && !self.runs.is_empty()
    }

    /// The same point of the same scenario.
    pub fn is_at(&self, scenario: &str, point: &Point) -> bool {
        self.scenario == scenario && self.point == *point
    }
}

/// A file is not what it should be.
#[derive(Debug, Error)]
pub enum Error {
    /// No JSON, or of another form.
    #[error("is no result of quarry bench: {0}")]
    Form(#[from] serde_json::Error),
    /// Of another version.
    #[error("has the schema {0}, and this tool knows {SCHEMA}")]
    Schema(String),
    /// Scenario, contender, and what is wrong there.
    #[error("is damaged: {0} of {1}: {2}")]
    Cell(String, String, String),
}

impl Results {
    /// Read them again.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let value: serde_json::Value = serde_json::from_str(text)?;
        match value["schema"].as_str() {
            None => {}
            Some(known) if known == SCHEMA || EARLIER.contains(&known) => {}
            Some(other) => return Err(Error::Schema(other.to_owned())),
        }
        let results: Self = serde_json::from_value(value)?;
        for cell in &results.cells {
            let wrong = |why| Error::Cell(cell.scenario.clone(), cell.contender.clone(), why);
            cell.series.as_ref().map_or(Ok(()), Series::check).map_err(wrong)?;
        }
        Ok(results)
    }

    /// The contender of this name.
    pub fn contender(&self, name: &str) -> Option<&Contender> {
        self.contenders.iter().find(|contender| contender.name == name)
    }

    /// Its role; a pool, if it is not known.
    pub fn role(&self, name: &str) -> Role {
        self.contender(name).map_or(Role::Pool, |contender| contender.role)
    }

    /// The cells of a scenario, in the order of points, phases and contenders.
    pub fn of<'a>(&'a self, scenario: &'a str) -> impl Iterator<Item = &'a Cell> {
        self.cells.iter().filter(move |cell| cell.scenario == scenario)
    }

    /// The points of a scenario, in their order.
    pub fn points<'a>(&'a self, scenario: &'a str) -> Vec<&'a Point> {
        let mut points: Vec<&Point> = Vec::new();
        for cell in self.of(scenario) {
            if !points.contains(&&cell.point) {
                points.push(&cell.point);
            }
        }
        points
    }

    /// The phases of a scenario that were seen, in their order.
    pub fn phases<'a>(&'a self, scenario: &'a str) -> Vec<&'a str> {
        let mut phases: Vec<&str> = Vec::new();
        for cell in self.of(scenario).filter(|cell| !cell.runs.is_empty()) {
            if !phases.contains(&cell.phase.as_str()) {
                phases.push(&cell.phase);
            }
        }
        phases
    }

    /// How noisy the machine was: the median over cells of the relative deviation of time.
    pub fn noise(&self) -> Option<f64> {
        let all: Vec<f64> = self
            .cells
            .iter()
            .filter(|cell| cell.counts() && cell.runs.len() > 2)
            .filter_map(|cell| Some(cell.summary?.ns_per_operation.relative_deviation()))
            .collect();
        quarry_measure::stats::median(&all)
    }

    /// Why these figures should not be trusted too much.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let percent = |part: f64| format!("{:.0} %", part * 100.0);
        if let Some(others) = self.others {
            if others.processors > 0.1 {
                let busy = percent(others.processors);
                warnings.push(format!("other programs kept a processor busy for {busy} of the time"));
            }
            if others.stolen > 0.02 {
                let stolen = percent(others.stolen);
                warnings.push(format!("the hypervisor gave {stolen} of a processor to other machines"));
            }
        }
        if let Some(load) = self.machine.load.filter(|load| *load > 0.5) {
            warnings.push(format!("the load average was {load:.1} before the first run"));
        }
        if let Some(noise) = self.noise().filter(|noise| *noise > 0.04) {
            warnings.push(format!("half of all times vary by more than {}", percent(noise)));
        }
        if let Some(governor) = self.machine.governor.as_deref().filter(|name| *name != "performance") {
            warnings.push(format!("the frequency of the processors is governed by '{governor}'"));
        }
        warnings
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn figures_are_read_as_they_were_written() {
        // A page that is made again from result.json shows the same digits only if reading is exact to the last bit.
        assert_eq!(serde_json::from_str::<f64>("51.248178375505404").unwrap(), 51.248_178_375_505_404_f64);
    }
}
