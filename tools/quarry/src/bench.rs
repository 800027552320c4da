// SPDX-License-Identifier: MIT
//! quarry bench: the scenarios of the catalogue under all allocators.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use quarry_bench::baseline::{self, Comparison};
use quarry_bench::catalog::{self, Catalog, Kind, Scenario, Size};
use quarry_bench::judge;
use quarry_bench::plan::{Plan, Start};
use quarry_bench::results::{Others, Results, SCHEMA};
use quarry_bench::session::{Next, Session};
use quarry_bench::simulation;
use quarry_measure::locate;
use quarry_measure::machine::{self, Busy, Machine};
use quarry_measure::scratch::Scratch;
use quarry_measure::signals::{self, Forwarding};
use quarry_report::bench as report;
use quarry_report::units;
use serde_json::json;

use crate::format::{Format, Makes, Report, Reports};
use crate::output::{Output, Place};
use crate::quantity::timeout;
use crate::{failure, inputs, opened, trace_file};

mod entrants;
mod suite;

/// Redo the experiments of the documentation under all allocators
///
/// Runs small programs, each of which stresses one thing. They run under the system's malloc, quarry, all allocators
/// that are installed and those that `make peers` has built, and on the pools that do the same work. Every run is a
/// process of its own. Each round takes them in random order. The report has time, processor time, memory and page
/// faults.
#[derive(Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub struct BenchOptions {
    #[command(subcommand)]
    kind: Option<Kinds>,
    /// The mallocs beside the system's and the pools: names, paths of libraries, LABEL=PATH, or NAME:KEY:VALUE with
    /// options of QUARRY_CONF [default: all at hand].
    ///
    /// With it, quarry takes part only if it is named.
    #[arg(long, value_name = "NAME|PATH,...", value_delimiter = ',')]
    with: Vec<String>,
    /// Rounds [default with --quick: 4 to 9 that fit into a quarter of an hour, fewer for scenarios that need fewer;
    /// with --full: 5]
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: Option<u32>,
    /// Small sizes: all scenarios in a quarter of an hour (this is the default)
    #[arg(long, conflicts_with_all = ["full", "smoke"])]
    quick: bool,
    /// The sizes of the documentation. The time this takes is shown first
    #[arg(long, conflicts_with = "smoke")]
    full: bool,
    /// Each run once and tiny: a test that everything works, not a measurement
    #[arg(long)]
    smoke: bool,
    /// Write a page, the pictures, and the result as JSON into this directory.
    ///
    /// They are index.html, each picture as an SVG file, tables.txt, and result.json, which is written anew after each round.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// List the scenarios, and run nothing.
    ///
    /// In JSON it also says what they show.
    #[arg(long, conflicts_with = "dir")]
    list: bool,
    #[command(flatten)]
    pub reports: Reports<Self>,
    /// Show what has changed beyond noise since this earlier result
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Ignore changes of up to PERCENT
    #[arg(long, value_name = "PERCENT", default_value_t = 3.0, value_parser = parse_percent, requires = "baseline")]
    floor: f64,
    /// Report on this earlier result instead of measuring
    #[arg(long, value_name = "FILE", conflicts_with_all = ["with", "rounds", "quick", "full", "smoke", "seed", "timeout", "lib", "scenarios"])]
    from: Option<PathBuf>,
    /// Also show what the processor counts, per operation, if the machine permits it
    #[arg(long)]
    counters: bool,
    /// Use this seed for the order of runs, to repeat that of an earlier result
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Kill a run after this time, and count it as failed [default: 20 times what the system's malloc takes, but 20 seconds
    /// at least].
    ///
    /// The default is at most 2 minutes, and with --full 3 hours.
    #[arg(long, value_name = "SECONDS", value_parser = timeout)]
    timeout: Option<Duration>,
    /// The libquarry-malloc.so to use
    #[arg(long, value_name = "PATH")]
    lib: Option<PathBuf>,
    /// Scenarios of this file instead of our own
    #[arg(long, value_name = "FILE", hide = true)]
    catalog: Option<PathBuf>,
    /// The scenarios; a * at the end stands for any ending [default: all]
    #[arg(value_name = "SCENARIO")]
    scenarios: Vec<String>,
}

impl Makes for BenchOptions {
    const VERB: &'static str = "bench";
    const FORMATS: &'static [Format] = &[Format::Text, Format::Json, Format::Html];
    const SCHEMA: &'static str = "quarry-bench/3";
}

#[derive(Subcommand)]
enum Kinds {
    Suite(Box<suite::SuiteOptions>),
}

const EXAMPLES: &str = "Examples:
  quarry bench                                 everything, in a quarter of an hour
  quarry bench --dir report                    the same, and report/index.html with pictures
  quarry bench list 'ring*' --with jemalloc    two families of scenarios, two mallocs and the pools
  quarry bench --list                          what there is
  quarry bench -o before.json; ...; quarry bench --baseline before.json
  quarry bench --from new.json --baseline old.json -o changes.html
  quarry bench --full --dir report             the sizes of the documentation
  quarry bench suite DIR                       the field's usual suite, built in DIR

Exit code: 0; 1 when an allocator crashed, took too long or got a wrong result, or when none of the programs is there, with --baseline
only when something is worse beyond noise or fails that did not; 128+N when signal N stopped it;
125 when quarry itself failed; 2 the command line makes no sense.";

fn parse_percent(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(percent) if (0.0..=1000.0).contains(&percent) => Ok(percent),
        _ => Err(String::from("not a percentage from 0 to 1000")),
    }
}

/// What the quick set may take when the user does not say how many rounds, and how many at least and at most. From fewer
/// than four no rank test says that anything has changed.
const BUDGET: Duration = Duration::from_secs(14 * 60);
const QUICK_ROUNDS: (usize, usize) = (4, 9);
const FULL_ROUNDS: usize = 5;

/// The result, in the directory of --dir.
const RESULT: &str = "result.json";

/// Variables that change what allocators do: with one of them set, a result is not comparable with others.
const VARIABLES: [&str; 7] = [
    "QUARRY_CONF",
    "MALLOC_CONF",
    "MALLOC_ARENA_MAX",
    "GLIBC_TUNABLES",
    "MIMALLOC_ARENA_EAGER_COMMIT",
    "MIMALLOC_PURGE_DELAY",
    "TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES",
];

/// Measure or read, and report.
pub fn main(options: &BenchOptions, output: &Output) -> anyhow::Result<i32> {
    if let Some(Kinds::Suite(options)) = &options.kind {
        return suite::main(options, output);
    }
    let text = match &options.catalog {
        Some(path) => fs::read_to_string(path).with_context(|| path.display().to_string())?,
        None => catalog::OURS.to_owned(),
    };
    let catalog = Catalog::parse(&text).context("the catalogue of scenarios")?;
    let scenarios = catalog.select(&options.scenarios).map_err(failure::usage)?;
    if options.list {
        return list(&scenarios, options, output);
    }
    let reports = options.reports.all(Place::Stdout)?;
    let result = options.dir.as_ref().map(|dir| dir.join(RESULT));
    let inputs = options.from.iter().chain(&options.baseline);
    inputs::spare(inputs, options.reports.files().iter().chain(&result))?;
    output.expect_all(&reports)?;
    let before = options.baseline.as_deref().map(read).transpose()?;
    if let Some(dir) = &options.dir {
        fs::create_dir_all(dir).with_context(|| format!("cannot make the directory {}", dir.display()))?;
        output.expect(&Place::File(&dir.join(RESULT)))?;
    }
    let Ended { results, signal, failure } = match &options.from {
        Some(path) => Ended { results: read(path)?, signal: None, failure: Ok(()) },
        None => measure(options, &reports, output, &scenarios)?,
    };
    let comparison = before.map(|before| baseline::compare(&results, &before, options.floor / 100.0));
    let printed = output.reports_or_print(&reports, |wish| {
        Ok(match wish.format {
            Format::Json => format!("{:#}\n", json(&results, comparison.as_ref())?),
            Format::Html => report::page::page(&results, comparison.as_ref()),
            _ => {
                let style = output.style(&wish.place);
                let counters =
                    if options.counters { report::counters(&results, style) } else { String::new() };
                report::text(&results, comparison.as_ref(), style) + &counters
            }
        })
    });
    let written = options.dir.as_ref().map(|dir| write_all(dir, &results, comparison.as_ref(), output));
    output.all([failure, printed].into_iter().chain(written))?;
    if let Some(signal) = signal {
        let name = signals::name(signal);
        output.warn(format_args!("{name} stopped the measurement after {} complete rounds", results.rounds));
        return Ok(128 + signal);
    }
    Ok(match comparison {
        Some(comparison) => i32::from(comparison.is_worse()),
        None => i32::from(results.cells.iter().any(|cell| cell.status.is_failure())),
    })
}

fn read(path: &Path) -> anyhow::Result<Results> {
    let text = opened::text(path)?;
    let mut results = Results::parse(&text).with_context(|| path.display().to_string())?;
    judge::summarise(&mut results);
    Ok(results)
}

/// What was measured, and the comparison beside it.
fn json(results: &Results, comparison: Option<&Comparison>) -> anyhow::Result<serde_json::Value> {
    let mut value = serde_json::to_value(results)?;
    if let Some(comparison) = comparison {
        value["comparison"] = serde_json::to_value(comparison)?;
    }
    Ok(value)
}

/// The files of JSON that are there while it is measured, too. What a write does not replace would get one result
/// behind the other.
fn kept(reports: &[Report], dir: Option<&Path>) -> Vec<PathBuf> {
    let json = reports.iter().filter(|report| report.format == Format::Json);
    let files = json.filter_map(|report| match report.place {
        Place::File(path) => Some(path.to_owned()).filter(|path| trace_file::is_replaced(path)),
        _ => None,
    });
    files.chain(dir.map(|dir| dir.join(RESULT))).collect()
}

/// The result, the page, the tables, and each picture as a file of its own; what can be written is.
fn write_all(
    dir: &Path,
    results: &Results,
    comparison: Option<&Comparison>,
    output: &Output,
) -> anyhow::Result<()> {
    let write = |name: &str, text: &str| output.report(&Place::File(&dir.join(name)), text);
    let written = [
        json(results, comparison).and_then(|json| write(RESULT, &format!("{json:#}\n"))),
        write("index.html", &report::page::page(results, comparison)),
        write("tables.txt", &report::text(results, comparison, output.style(&Place::File(dir)))),
    ];
    let figures = report::figures::all(results);
    let drawn = figures.iter().map(|figure| write(&format!("{}.svg", figure.name), &figure.svg.file()));
    output.all(written.into_iter().chain(drawn))?;
    output.detail(format_args!("the page is {}", dir.join("index.html").display()));
    Ok(())
}

fn list(scenarios: &[&Scenario], options: &BenchOptions, output: &Output) -> anyhow::Result<i32> {
    let json = || {
        let all: Vec<_> = scenarios
            .iter()
            .map(|s| {
                json!({
                    "name": s.name, "title": s.title, "program": s.program, "shows": s.shows.trim(),
                    "not_shown": s.not_shown.trim(), "with": s.with,
                })
            })
            .collect();
        format!("{:#}\n", json!(all))
    };
    let text = || -> String {
        let width = scenarios.iter().map(|s| s.name.len()).max().unwrap_or(0);
        let line = |s: &&Scenario| {
            let variants = s.variants.iter().map(|variant| variant.name.as_str());
            let with: Vec<&str> = s.with.iter().map(String::as_str).chain(variants).collect();
            format!("{:width$}  {} ({})\n", s.name, s.title, with.join(", "))
        };
        scenarios.iter().map(line).collect()
    };
    output.reports(&options.reports.all(Place::Stdout)?, |wish| match wish.format {
        Format::Json => Ok(json()),
        Format::Html => Err(failure::usage("--list is text or JSON; leave it out for the page")),
        _ => Ok(text()),
    })?;
    Ok(0)
}

/// How a scenario is started; the plans of simulations live as long as `plans`.
fn start(scenario: &Scenario, size: Size, plans: &mut Vec<Scratch>) -> Result<Start, String> {
    let program = match scenario.kind {
        Kind::Json => locate::bench_program(&scenario.program),
        Kind::Output => locate::bench_file(&scenario.program),
        Kind::Replay => locate::replayer(),
    };
    let program = program.map_err(|error| error.to_string())?;
    let plan = match scenario.ms {
        Some(ms) => Some(simulation::plan(ms, size).map_err(|error| error.to_string())?),
        None => None,
    };
    let path = plan.as_ref().map(|plan| plan.path().to_owned());
    plans.extend(plan);
    Ok(Start { program, kind: scenario.kind, plan: path })
}

/// What was measured until it ended, and the signal or the error that ended it, if one did.
struct Ended {
    results: Results,
    signal: Option<i32>,
    failure: anyhow::Result<()>,
}

/// Run everything. An error comes before a round is complete.
fn measure(
    options: &BenchOptions,
    reports: &[Report],
    output: &Output,
    scenarios: &[&Scenario],
) -> anyhow::Result<Ended> {
    let size = match (options.full, options.smoke) {
        (true, _) => Size::Full,
        (_, true) => Size::Smoke,
        _ => Size::Quick,
    };
    say_what_is_kept(&[&["LD_PRELOAD"][..], &VARIABLES].concat(), output);
    let (mallocs, extras) = entrants::find(&options.with, options.lib.as_deref(), output)?;
    let machine = Machine::read();
    let mut plans = Vec::new();
    let processors = machine.processors.clone();
    let mut plan =
        Plan::new(scenarios, size, mallocs, &extras, processors.len(), |s| start(s, size, &mut plans));
    for about in &plan.abouts {
        if let Some(why) = &about.missing {
            output.warn(format_args!("{} is left out: {why}", about.name));
        }
    }
    if plan.groups.is_empty() {
        return Err(failure::failed("nothing can be run: no program of these scenarios was found"));
    }
    vet(&mut plan, output);
    if options.counters {
        let jobs = plan.groups.iter_mut().flat_map(|group| &mut group.jobs);
        jobs.for_each(|job| drop(job.env.insert(String::from("QUARRY_BENCH_COUNTERS"), String::from("1"))));
    }
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seed = options.seed.unwrap_or(started.as_nanos() as u64 % 1_000_000);
    let session = Session::new(plan, seed, processors, options.timeout)
        .context("cannot make a temporary file for reports; is there room in TMPDIR?")?;
    let conductor = Conductor {
        options,
        output,
        session,
        signals: Forwarding::stopping(),
        bar: Bar::new(output)?,
        results: Results {
            schema: SCHEMA.to_owned(),
            quarry_version: env!("CARGO_PKG_VERSION").to_owned(),
            size,
            started: started.as_secs(),
            seconds: 0.0,
            seed,
            rounds: 0,
            warmup: usize::from(size != Size::Smoke),
            interrupted: false,
            machine,
            load_after: None,
            others: None,
            contenders: Vec::new(),
            scenarios: Vec::new(),
            cells: Vec::new(),
        },
        kept: kept(reports, options.dir.as_deref()),
        keeping: Duration::ZERO,
    };
    conductor.play()
}

/// Name those of these variables that the caller has set.
fn say_what_is_kept(variables: &[&str], output: &Output) {
    for variable in variables.iter().filter(|name| std::env::var_os(name).is_some_and(|v| !v.is_empty())) {
        output.warn(format_args!("{variable} is set and kept, so it takes part in every run"));
    }
}

/// An entrant that does not serve malloc is not run.
fn vet(plan: &mut Plan, output: &Output) {
    let program = plan.groups.iter().find(|group| group.start.kind != Kind::Output);
    let Some(program) = program.map(|group| group.start.program.clone()) else { return };
    for entrant in &mut plan.entrants {
        entrants::vet(entrant, &program);
        if let Some(preload) = &entrant.preload {
            output.detail(format_args!(
                "{}: LD_PRELOAD={}",
                entrant.about.name,
                Path::new(preload).display()
            ));
        }
        if !entrant.usable {
            output.warn(format_args!(
                "{} is not run: {}",
                entrant.about.name,
                entrant.about.notes.join("; ")
            ));
        }
    }
}

struct Conductor<'a> {
    options: &'a BenchOptions,
    output: &'a Output,
    session: Session,
    signals: Forwarding,
    bar: Bar,
    results: Results,
    /// The files that get the result between rounds, as far as they can be written,
    kept: Vec<PathBuf>,
    /// and what that has taken so far.
    keeping: Duration,
}

impl Conductor<'_> {
    fn play(mut self) -> anyhow::Result<Ended> {
        let (start, busy) = (Instant::now(), Busy::now());
        let complete = self.play_rounds(start, busy);
        self.bar.bar.finish_and_clear();
        let (complete, failure) = match complete {
            Ok(complete) => (complete, Ok(())),
            Err(error) if self.results.rounds == 0 => return Err(error),
            Err(error) => (false, Err(failure::after(error, "measurement", self.results.rounds))),
        };
        self.collect(start, busy);
        judge::summarise(&mut self.results);
        self.results.interrupted = !complete;
        Ok(Ended { results: self.results, signal: self.signals.seen(), failure })
    }

    /// False: a signal came before all rounds were complete.
    fn play_rounds(&mut self, start: Instant, busy: Option<Busy>) -> anyhow::Result<bool> {
        let mut wanted = self.options.rounds.map(|n| n as usize);
        if self.results.size == Size::Full {
            let rounds = wanted.unwrap_or(FULL_ROUNDS);
            wanted = Some(rounds);
            self.say_how_long(rounds)?;
        }
        if self.results.size == Size::Smoke {
            wanted = wanted.or(Some(1));
        }
        let mut going = self.signals.seen().is_none();
        if going && self.results.warmup > 0 {
            going = self.round(0, wanted.unwrap_or(QUICK_ROUNDS.0))?;
        }
        while going && self.results.rounds < wanted.unwrap_or_else(|| self.fitting(start)) {
            let next = self.results.rounds + 1;
            going = self.round(next, wanted.unwrap_or_else(|| self.fitting(start)))?;
            if going {
                self.results.rounds = next;
                self.keep(start, busy);
            }
        }
        Ok(going)
    }

    /// How many rounds fit into the budget, with those that are done, and as runs have gone so far.
    fn fitting(&self, start: Instant) -> usize {
        let elapsed = start.elapsed().as_secs_f64();
        let around = (elapsed / self.session.wall_s.max(1e-3)).max(1.0);
        let expected = |round| self.session.round_seconds(round, true) * around;
        rounds_for(self.results.rounds, BUDGET.as_secs_f64() - elapsed, expected)
    }

    /// Before a long measurement.
    fn say_how_long(&mut self, rounds: usize) -> anyhow::Result<()> {
        let runs = self.session.plan.jobs() * (rounds + 1);
        let (signals, bar) = (&self.signals, &mut self.bar);
        bar.begin(self.session.round_seconds(0, false), "probing");
        let estimate = self.session.probe(rounds, &mut |next| {
            bar.step(&next);
            signals.seen().is_none()
        })?;
        if let Some(seconds) = estimate {
            let about = units::seconds(seconds.max(1.0));
            self.output.note(format_args!(
                "{}, {} and a warm-up: about {} (from a probe with small sizes)",
                units::of(runs as u64, "run"),
                units::of(rounds as u64, "round"),
                hours(seconds).unwrap_or(about)
            ));
        }
        Ok(())
    }

    /// A round, of so many that are meant to be.
    fn round(&mut self, round: usize, of: usize) -> anyhow::Result<bool> {
        // Only who leaves the number to us lets us spare.
        let sparing = self.options.rounds.is_none();
        let left: f64 = (round..=of).map(|round| self.session.round_seconds(round, sparing)).sum();
        let what = match round {
            0 => String::from("warm-up"),
            _ => format!("round {round} of {of}"),
        };
        self.bar.begin(left, &what);
        let (signals, bar) = (&self.signals, &mut self.bar);
        let complete = self.session.round(round, sparing, &mut |next| {
            bar.step(&next);
            signals.seen().is_none()
        });
        Ok(complete?)
    }

    /// Take over what there is so far.
    fn collect(&mut self, start: Instant, busy: Option<Busy>) {
        let elapsed = start.elapsed().as_secs_f64();
        let results = &mut self.results;
        results.seconds = elapsed;
        results.load_after = machine::load();
        // Our own processor time is little beside that of the programs.
        results.others = busy.zip(Busy::now()).filter(|_| elapsed > 1.0).map(|(before, after)| Others {
            processors: ((after.used_s - before.used_s - self.session.cpu_s) / elapsed).max(0.0),
            stolen: (after.stolen_s - before.stolen_s) / elapsed,
        });
        results.contenders = self.session.plan.entrants.iter().map(|entrant| entrant.about.clone()).collect();
        results.scenarios.clone_from(&self.session.plan.abouts);
        results.cells = self.session.cells();
    }

    /// After a round: what takes hours must not be lost. Not after each one where that would cost more than a fiftieth of the
    /// time. What the runs amount to is left out: a reader of the file works it out anyway.
    fn keep(&mut self, start: Instant, busy: Option<Busy>) {
        if self.kept.is_empty() || self.keeping * 50 > start.elapsed() {
            return;
        }
        let begun = Instant::now();
        self.collect(start, busy);
        self.results.interrupted = true; // as far as this file can know
        // Whoever is killed in the middle of this leaves the file of the round before.
        let (output, results) = (self.output, &self.results);
        self.kept.retain(|path| {
            let text = json(results, None).map(|json| format!("{json:#}\n"));
            let kept = text.and_then(|text| output.report(&Place::File(path), &text));
            if let Err(error) = &kept {
                output.warn(format_args!("it is tried again at the end only: {}", failure::words(error)));
            }
            kept.is_ok()
        });
        self.keeping += begun.elapsed();
    }
}

/// How many rounds there will be if `done` are complete and `left_s` seconds are left; `expected`: seconds of a round.
fn rounds_for(done: usize, mut left_s: f64, expected: impl Fn(usize) -> f64) -> usize {
    let mut rounds = done;
    while rounds < QUICK_ROUNDS.1 {
        left_s -= expected(rounds + 1);
        if left_s < 0.0 && rounds >= QUICK_ROUNDS.0 {
            break;
        }
        rounds += 1;
    }
    rounds
}

/// "2 h 40 min", from an hour on.
fn hours(seconds: f64) -> Option<String> {
    let minutes = (seconds / 60.0).round() as u64;
    (minutes >= 60).then(|| format!("{} h {:02} min", minutes / 60, minutes % 60))
}

/// A bar over expected seconds, with what remains of them as it really goes.
struct Bar {
    bar: ProgressBar,
    what: String,
    begun: Instant,
    done_s: f64,
    all_s: f64,
}

impl Bar {
    fn new(output: &Output) -> anyhow::Result<Self> {
        let target =
            if output.is_quiet() { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(None, target);
        bar.set_style(ProgressStyle::with_template("{wide_bar} {msg}")?);
        Ok(Self { bar, what: String::new(), begun: Instant::now(), done_s: 0.0, all_s: 0.0 })
    }

    fn begin(&mut self, seconds: f64, what: &str) {
        *self = Self {
            bar: self.bar.clone(),
            what: what.to_owned(),
            begun: Instant::now(),
            done_s: 0.0,
            all_s: seconds.max(1e-3),
        };
        self.bar.set_length((self.all_s * 1e3) as u64);
        self.bar.set_position(0);
    }

    fn step(&mut self, next: &Next) {
        if next.done {
            self.done_s += next.seconds;
            self.bar.set_position((self.done_s * 1e3) as u64);
            return;
        }
        // How it goes beside how it was expected to.
        let pace = if self.done_s > 0.5 { self.begun.elapsed().as_secs_f64() / self.done_s } else { 1.0 };
        let left = units::seconds(((self.all_s - self.done_s) * pace).max(0.0).round());
        let (what, scenario, contender) = (&self.what, next.scenario, next.contender);
        self.bar.set_message(format!("{what}: {scenario}, {contender} ({left} left)"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_fit_the_budget_within_bounds() {
        assert_eq!(rounds_for(0, 13.0 * 60.0, |_| 60.0), 9);
        assert_eq!(rounds_for(0, 12.0 * 60.0, |_| 120.0), 6);
        assert_eq!(rounds_for(0, -60.0, |_| 600.0), 4);
        // Three dear rounds, then cheap ones; and what is done is done.
        let dear = |round| if round <= 3 { 200.0 } else { 50.0 };
        assert_eq!(rounds_for(0, 710.0, dear), 5);
        assert_eq!(rounds_for(5, -1.0, dear), 5);
        assert_eq!(rounds_for(7, 1e9, dear), 9);
    }

    #[test]
    fn long_times_are_hours() {
        assert_eq!(hours(3599.0 - 60.0), None);
        assert_eq!(hours(9600.0).as_deref(), Some("2 h 40 min"));
        assert!(parse_percent("5").is_ok() && parse_percent("-1").is_err() && parse_percent("x").is_err());
    }
}
