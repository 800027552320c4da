// SPDX-License-Identifier: MIT
//! The catalogue: what there is to measure, with which sizes, on which allocators, and what to draw of it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The catalogue that the tool comes with.
pub const OURS: &str = include_str!("../catalog.toml");

/// The option that is a time: milliseconds for which a program sleeps.
const IDLE: &str = "idle";

/// The word that stands for all mallocs at hand.
pub const MALLOCS: &str = "mallocs";
/// The contender that does the work without an allocator.
pub const NOTHING: &str = "nothing";

/// Words of `with` that are no pools of libquarry.
pub const OTHERS: [&str; 6] = ["malloc", "mmap", "greedy", "old", "full", "log"];

/// How much to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Size {
    /// A quarter of an hour for all scenarios.
    Quick,
    /// The sizes of the articles in docs/benchmarks.md.
    Full,
    /// As little as shows that it works.
    Smoke,
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Size::Quick => "quick",
            Size::Full => "full",
            Size::Smoke => "smoke",
        })
    }
}

/// All scenarios.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Catalog {
    /// In the order of the report.
    #[serde(rename = "scenario")]
    pub scenarios: Vec<Scenario>,
}

/// What a program is to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// One of ours, which prints lines of JSON.
    #[default]
    Json,
    /// Any program: the whole run is timed, its output compared.
    Output,
    /// A simulation that the replayer plays.
    Replay,
}

/// The value of an option.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Scalar {
    /// `true` is the option alone, `false` leaves it out.
    Switch(bool),
    /// A whole number.
    Number(i64),
    /// A number with a fraction.
    Fraction(f64),
    /// Anything else.
    Text(String),
}

impl Scalar {
    /// As a number, for an axis of a chart.
    pub fn number(&self) -> Option<f64> {
        match self {
            Scalar::Number(n) => Some(*n as f64),
            Scalar::Fraction(n) => Some(*n),
            Scalar::Text(text) => text.parse().ok(),
            Scalar::Switch(_) => None,
        }
    }

    /// As a number that may be bytes with a suffix, as our programs take them: "16M".
    pub fn amount(&self) -> Option<f64> {
        let Scalar::Text(text) = self else { return self.number() };
        quarry_measure::quantity::bytes(text).map(|bytes| bytes as f64).or_else(|| text.parse().ok())
    }
}

impl std::fmt::Display for Scalar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Scalar::Switch(on) => write!(f, "{on}"),
            Scalar::Number(n) => write!(f, "{n}"),
            Scalar::Fraction(n) => write!(f, "{n}"),
            Scalar::Text(text) => f.write_str(text),
        }
    }
}

/// Options by name, without the dashes.
pub type Options = BTreeMap<String, Scalar>;

/// An option that takes several values, one after the other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// The option.
    pub name: String,
    /// What it is called in charts, if not by its name.
    #[serde(default)]
    pub label: String,
    /// "bytes", "count" or nothing.
    #[serde(default)]
    pub unit: String,
    /// Is it drawn in steps of a factor?
    #[serde(default)]
    pub log: bool,
    /// Values above so many times the processors are left out.
    #[serde(default)]
    pub per_processor: Option<f64>,
    /// Is it an option of the program? Else only the environment of variants speaks of it.
    #[serde(default = "yes")]
    pub pass: bool,
    /// Its values in the quick set,
    pub quick: Vec<Scalar>,
    /// in the full one,
    pub full: Vec<Scalar>,
    /// and in the smallest.
    pub smoke: Vec<Scalar>,
}

impl Axis {
    /// What charts call it.
    pub fn label(&self) -> &str {
        if self.label.is_empty() { &self.name } else { &self.label }
    }

    /// The values of this size on a machine of so many processors; one at least.
    pub fn values(&self, size: Size, processors: usize) -> Vec<Scalar> {
        let all = match size {
            Size::Quick => &self.quick,
            Size::Full => &self.full,
            Size::Smoke => &self.smoke,
        };
        let most = self.per_processor.map(|times| times * processors as f64);
        let fits = |value: &&Scalar| {
            most.is_none_or(|most| value.number().is_none_or(|number| number <= most + 1e-9))
        };
        let fitting: Vec<Scalar> = all.iter().filter(fits).cloned().collect();
        if fitting.is_empty() { all[..1].to_vec() } else { fitting }
    }
}

/// A malloc with variables of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// Its name in the report.
    pub name: String,
    /// The malloc.
    pub of: String,
    /// Variables; `{axis}` is replaced by the value of that axis.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}

/// A random simulation, see [`quarry_synth::random_ms`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ms {
    /// Commands.
    pub count: u64,
    /// Commands in the quick and the smoke set, if not as many.
    #[serde(default)]
    pub quick_count: Option<u64>,
    /// Slots.
    pub slots: u32,
    /// Least size.
    pub min: u64,
    /// Largest.
    pub max: u64,
    /// Repeats the file.
    pub seed: u64,
}

impl Ms {
    /// Commands in this set.
    pub fn commands(&self, size: Size) -> u64 {
        if size == Size::Full { self.count } else { self.quick_count.unwrap_or(self.count) }
    }
}

/// A picture.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Chart {
    /// Operations a second, a bar for each contender, for each phase.
    Bars,
    /// Time over x.
    Time,
    /// Operations a second over x.
    Rate,
    /// The rate against that of the first x.
    Speedup,
    /// Processor time of an operation, over x.
    Cpu,
    /// Peak resident memory.
    Rss,
    /// A member of `values`.
    Value(String),
    /// The curves of one run.
    Series,
    /// One of these curves, of all contenders.
    SeriesOf(String),
}

impl TryFrom<String> for Chart {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            "bars" => Ok(Chart::Bars),
            "time" => Ok(Chart::Time),
            "cpu" => Ok(Chart::Cpu),
            "rate" => Ok(Chart::Rate),
            "speedup" => Ok(Chart::Speedup),
            "rss" => Ok(Chart::Rss),
            "series" => Ok(Chart::Series),
            other => match other.split_once(':').filter(|(_, name)| !name.is_empty()) {
                Some(("value", name)) => Ok(Chart::Value(name.to_owned())),
                Some(("series", name)) => Ok(Chart::SeriesOf(name.to_owned())),
                _ => Err(format!(
                    "'{other}' is no chart: bars, time, cpu, rate, speedup, rss, value:NAME, series, series:COLUMN"
                )),
            },
        }
    }
}

impl From<Chart> for String {
    fn from(chart: Chart) -> Self {
        match chart {
            Chart::Bars => String::from("bars"),
            Chart::Time => String::from("time"),
            Chart::Cpu => String::from("cpu"),
            Chart::Rate => String::from("rate"),
            Chart::Speedup => String::from("speedup"),
            Chart::Rss => String::from("rss"),
            Chart::Value(name) => format!("value:{name}"),
            Chart::Series => String::from("series"),
            Chart::SeriesOf(name) => format!("series:{name}"),
        }
    }
}

fn yes() -> bool {
    true
}

/// One experiment. The fields are explained at the head of the catalogue.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the head of catalog.toml has them")]
pub struct Scenario {
    pub name: String,
    pub title: String,
    pub program: String,
    #[serde(default)]
    pub kind: Kind,
    pub shows: String,
    pub not_shown: String,
    #[serde(default)]
    pub with: Vec<String>,
    #[serde(default = "yes")]
    pub takes_with: bool,
    pub processors: Option<usize>,
    #[serde(default)]
    pub options: Options,
    #[serde(default)]
    pub quick: Options,
    #[serde(default)]
    pub full: Options,
    #[serde(default)]
    pub smoke: Options,
    #[serde(default)]
    pub axes: Vec<Axis>,
    pub x: Option<String>,
    pub lines: Option<String>,
    pub charts: Vec<Chart>,
    #[serde(default)]
    pub series_units: Vec<String>,
    #[serde(default = "yes")]
    pub heat: bool,
    #[serde(default)]
    pub variants: Vec<Variant>,
    pub ms: Option<Ms>,
    pub quick_rounds: Option<usize>,
    pub growth: Option<f64>,
    #[serde(default)]
    pub sleeps: u32,
}

/// What the time of a run with one size says of that with another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Forecast {
    /// The factor of the work.
    pub growth: f64,
    /// Seconds of the one that are sleep,
    pub slept_s: f64,
    /// and of the other.
    pub sleeps_s: f64,
}

impl Forecast {
    /// How long the other one will take.
    pub fn seconds(&self, measured_s: f64) -> f64 {
        (measured_s - self.slept_s).max(0.0) * self.growth + self.sleeps_s
    }
}

impl Scenario {
    /// The options of this size that are not an axis.
    pub fn fixed(&self, size: Size) -> Options {
        let more = match size {
            Size::Quick => &self.quick,
            Size::Full => &self.full,
            Size::Smoke => &self.smoke,
        };
        let mut options = self.options.clone();
        options.extend(more.iter().map(|(name, value)| (name.clone(), value.clone())));
        options
    }

    /// Do mallocs take part?
    pub fn has_mallocs(&self) -> bool {
        self.with.iter().any(|with| with == MALLOCS)
    }

    /// What it is the program itself that is told to use.
    pub fn pools(&self) -> impl Iterator<Item = &str> {
        self.with.iter().map(String::as_str).filter(|with| *with != MALLOCS)
    }

    /// What a run of the quick size says of one of another size. Work grows with every option that is an amount, unless
    /// the catalogue has measured it.
    pub fn forecast(&self, to: Size) -> Forecast {
        let (from, more) = (self.fixed(Size::Quick), self.fixed(to));
        let amount = |options: &Options, name: &str| options.get(name)?.amount().filter(|n| *n > 0.0);
        let ratio = |name: &String| Some(amount(&more, name)? / amount(&from, name)?);
        let counted = || from.keys().filter(|name| *name != IDLE).filter_map(ratio).product();
        let growth = self.growth.filter(|_| to == Size::Full).unwrap_or_else(counted);
        let asleep = |options| amount(options, IDLE).unwrap_or(0.0) / 1e3 * f64::from(self.sleeps);
        Forecast { growth, slept_s: asleep(&from), sleeps_s: asleep(&more) }
    }

    fn check(&self) -> Result<(), String> {
        let unique: BTreeSet<&str> = self.axes.iter().map(|axis| axis.name.as_str()).collect();
        if unique.len() < self.axes.len() {
            return Err(String::from("two axes have the same name"));
        }
        for axis in &self.axes {
            for (size, values) in [("quick", &axis.quick), ("full", &axis.full), ("smoke", &axis.smoke)] {
                if values.is_empty() {
                    return Err(format!("the axis {} has no value in {size}", axis.name));
                }
            }
        }
        for (what, axis) in [("x", &self.x), ("lines", &self.lines)] {
            if let Some(axis) = axis.as_deref().filter(|axis| !unique.contains(axis)) {
                return Err(format!("{what} = \"{axis}\" is no axis"));
            }
        }
        let needs_x = [Chart::Time, Chart::Cpu, Chart::Rate, Chart::Speedup];
        if self.x.is_none() && self.charts.iter().any(|chart| needs_x.contains(chart)) {
            return Err(String::from("time, cpu, rate and speedup are charts over x, and there is no x"));
        }
        if (self.kind == Kind::Replay) != self.ms.is_some() {
            return Err(String::from("a table ms belongs to the kind replay, and to no other"));
        }
        if self.with.is_empty() && self.variants.is_empty() {
            return Err(String::from("nobody takes part: neither with nor variants"));
        }
        let names: BTreeSet<&String> =
            [&self.quick, &self.full].into_iter().flat_map(|options| options.keys()).collect();
        for name in names.into_iter().filter(|_| self.growth.is_none()) {
            let known = |size| self.fixed(size).get(name).is_some_and(|value| value.amount() > Some(0.0));
            if !known(Size::Quick) || !known(Size::Full) {
                return Err(format!(
                    "{name} is not an amount in both quick and full, so growth must say how much more work full is"
                ));
            }
        }
        if self.quick_rounds == Some(0) || self.growth.is_some_and(|growth| growth <= 0.0) {
            return Err(String::from("quick_rounds and growth must be above 0"));
        }
        if (self.sleeps > 0) != self.fixed(Size::Quick).contains_key(IDLE) {
            return Err(String::from("sleeps and the option idle belong together"));
        }
        for variant in &self.variants {
            if variant.name == variant.of {
                return Err(format!("the variant {} needs a name of its own", variant.name));
            }
            for value in variant.env.values() {
                for name in placeholders(value) {
                    if !unique.contains(name) {
                        return Err(format!("variant {}: {{{name}}} is no axis", variant.name));
                    }
                }
            }
        }
        for text in [&self.title, &self.shows, &self.not_shown] {
            if text.trim().is_empty() {
                return Err(String::from("title, shows and not_shown must say something"));
            }
        }
        Ok(())
    }
}

/// The words in braces.
fn placeholders(text: &str) -> impl Iterator<Item = &str> {
    text.split('{').skip(1).filter_map(|rest| rest.split_once('}')).map(|(name, _)| name)
}

/// Why a catalogue is none.
#[derive(Debug, Error)]
pub enum Error {
    /// Not of its form.
    #[error("{0}")]
    Form(#[from] toml::de::Error),
    /// A scenario makes no sense.
    #[error("scenario {name}: {why}")]
    Scenario {
        /// Which.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// Users named one that is not there.
    #[error("there is no scenario {name}{}; --list shows all", hint(.near))]
    Unknown {
        /// What they said.
        name: String,
        /// What they may have meant.
        near: Option<String>,
    },
}

fn hint(near: &Option<String>) -> String {
    near.as_ref().map_or_else(String::new, |near| format!(" (did you mean {near}?)"))
}

impl Catalog {
    /// Read and check one.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let catalog: Catalog = toml::from_str(text)?;
        let mut names = BTreeSet::new();
        let mut variants: BTreeMap<&str, &Variant> = BTreeMap::new();
        for scenario in &catalog.scenarios {
            let wrong = |why| Error::Scenario { name: scenario.name.clone(), why };
            for variant in &scenario.variants {
                let known = variants.entry(&variant.name).or_insert(variant);
                if *known != variant {
                    return Err(wrong(format!(
                        "another scenario has a variant {} that differs",
                        variant.name
                    )));
                }
            }
            if !names.insert(&scenario.name) {
                return Err(wrong(String::from("there are two of this name")));
            }
            scenario.check().map_err(wrong)?;
        }
        Ok(catalog)
    }

    /// The scenarios that users named, in the order of the catalogue; all of them if they named none. A name that
    /// ends in `*` stands for all that begin so.
    pub fn select(&self, names: &[String]) -> Result<Vec<&Scenario>, Error> {
        let fits = |scenario: &Scenario, name: &str| match name.strip_suffix('*') {
            Some(begin) => scenario.name.starts_with(begin),
            None => scenario.name == name,
        };
        for name in names {
            if !self.scenarios.iter().any(|scenario| fits(scenario, name)) {
                return Err(Error::Unknown { name: name.clone(), near: self.near(name) });
            }
        }
        let wanted = |scenario: &&Scenario| names.is_empty() || names.iter().any(|name| fits(scenario, name));
        Ok(self.scenarios.iter().filter(wanted).collect())
    }

    /// The name that has most letters in common, in pairs, if that is many.
    fn near(&self, name: &str) -> Option<String> {
        let pairs = |text: &str| -> BTreeSet<(char, char)> {
            let letters: Vec<char> = text.to_lowercase().chars().filter(|c| c.is_alphanumeric()).collect();
            letters.windows(2).map(|pair| (pair[0], pair[1])).collect()
        };
        let ours = pairs(name);
        let score = |other: &str| {
            let other = pairs(other);
            let all = ours.union(&other).count().max(1);
            ours.intersection(&other).count() as f64 / all as f64
        };
        let best =
            self.scenarios.iter().map(|s| (score(&s.name), &s.name)).max_by(|a, b| a.0.total_cmp(&b.0))?;
        (best.0 >= 0.4).then(|| best.1.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TINY: &str = r#"
[[scenario]]
name = "one"
title = "One"
program = "one"
shows = "this"
not_shown = "that"
with = ["mallocs", "fifo"]
options = { size = 8, fast = true }
quick = { count = 10, rounds = 2 }
full = { count = 1000, rounds = 4 }
x = "threads"
charts = ["time", "value:p99"]
[[scenario.axes]]
name = "threads"
quick = [1, 2, 4]
full = [1, 8]
smoke = [1]
per_processor = 1
"#;

    #[test]
    fn ours_is_sound() {
        let catalog = Catalog::parse(OURS).unwrap();
        assert!(!catalog.scenarios.is_empty());
        for scenario in &catalog.scenarios {
            let growth = scenario.forecast(Size::Full).growth;
            assert!(growth.is_finite() && growth >= 1.0, "{}: {growth}", scenario.name);
            assert!(scenario.shows.len() > 40 && scenario.not_shown.len() > 10, "{}", scenario.name);
        }
    }

    #[test]
    fn sizes_and_axes() {
        let catalog = Catalog::parse(TINY).unwrap();
        let one = &catalog.scenarios[0];
        let options: Vec<String> =
            one.fixed(Size::Quick).iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(options, ["count=10", "fast=true", "rounds=2", "size=8"]);
        assert!((one.forecast(Size::Full).seconds(0.5) - 100.0).abs() < 1e-9);
        let values = |size, processors| {
            one.axes[0].values(size, processors).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(values(Size::Quick, 2), ["1", "2"]);
        assert_eq!(values(Size::Quick, 64), ["1", "2", "4"]);
        assert_eq!(values(Size::Full, 4), ["1"]);
        assert_eq!(one.pools().collect::<Vec<_>>(), ["fifo"]);
        assert!(one.has_mallocs());
        assert_eq!(one.charts[1], Chart::Value(String::from("p99")));
    }

    #[test]
    fn forecasts_know_bytes_sleep_and_what_was_measured() {
        let with = |from: &str, to: &str| {
            assert!(TINY.contains(from), "{from}");
            let catalog = Catalog::parse(&TINY.replace(from, to)).unwrap();
            catalog.scenarios[0].forecast(Size::Full)
        };
        let bytes = with(
            "quick = { count = 10, rounds = 2 }\nfull = { count = 1000, rounds = 4 }",
            "quick = { memory = \"16M\" }\nfull = { memory = \"1G\" }",
        );
        assert_eq!((bytes.growth, bytes.seconds(0.5)), (64.0, 32.0));
        let sleep = with(
            "quick = { count = 10, rounds = 2 }\nfull = { count = 1000, rounds = 4 }",
            "sleeps = 2\nquick = { count = 10, idle = 500 }\nfull = { count = 20, idle = 3000 }",
        );
        assert_eq!((sleep.growth, sleep.seconds(1.5)), (2.0, 7.0));
        assert_eq!(sleep.seconds(0.9), 6.0, "less than it sleeps");
        assert_eq!(with("x = ", "growth = 7.5\nx = ").growth, 7.5);
        let amounts = ["16M", "3k", "2G", "12", "half"];
        let amounts = amounts.map(|text| Scalar::Text(text.to_owned()).amount());
        assert_eq!(amounts, [Some(16777216.0), Some(3072.0), Some(2147483648.0), Some(12.0), None]);
    }

    #[test]
    fn faults_are_named() {
        let fault = |from: &str, to: &str| {
            assert!(TINY.contains(from), "{from}");
            Catalog::parse(&TINY.replace(from, to)).unwrap_err().to_string()
        };
        assert!(fault("x = \"threads\"", "x = \"sizes\"").contains("is no axis"));
        assert!(fault("quick = [1, 2, 4]", "quick = []").contains("no value in quick"));
        assert!(fault("\"time\"", "\"tyme\"").contains("'tyme' is no chart"));
        assert!(fault("title = \"One\"", "titel = \"One\"").contains("titel"));
        assert!(fault("shows = \"this\"", "shows = \" \"").contains("must say something"));
        assert!(fault("with = [\"mallocs\", \"fifo\"]", "").contains("nobody takes part"));
        assert!(fault("x = \"threads\"", "").contains("there is no x"));
        assert!(fault("rounds = 2 }", "more = 2 }").contains("growth must say"));
        assert!(fault("x = ", "quick_rounds = 0\nx = ").contains("above 0"));
        assert!(fault("x = ", "sleeps = 2\nx = ").contains("belong together"));
        let twice = format!("{TINY}{TINY}");
        assert!(Catalog::parse(&twice).unwrap_err().to_string().contains("two of this name"));
        let variant = format!(
            "{TINY}[[scenario.variants]]\nname = \"a\"\nof = \"quarry\"\nenv = {{ A = \"{{arenas}}\" }}\n"
        );
        assert!(Catalog::parse(&variant).unwrap_err().to_string().contains("{arenas} is no axis"));
    }

    #[test]
    fn scenarios_are_found_by_name() {
        let catalog = Catalog::parse(OURS).unwrap();
        let names = |wanted: &[&str]| {
            let wanted: Vec<String> = wanted.iter().map(ToString::to_string).collect();
            catalog.select(&wanted).map(|found| found.iter().map(|s| s.name.clone()).collect::<Vec<_>>())
        };
        assert_eq!(names(&[]).unwrap().len(), catalog.scenarios.len());
        assert_eq!(names(&["tree", "lists"]).unwrap(), ["lists", "tree"]);
        assert_eq!(names(&["pow2*"]).unwrap(), ["pow2", "pow2-large"]);
        let error = names(&["smallchurn"]).unwrap_err().to_string();
        assert!(error.contains("did you mean small-churn?"), "{error}");
        assert!(!names(&["zzz"]).unwrap_err().to_string().contains("did you mean"));
    }
}
