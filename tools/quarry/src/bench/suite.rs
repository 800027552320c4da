// SPDX-License-Identifier: MIT
//! quarry bench suite: the field's usual suite and real programs, under each malloc in turns.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use quarry_bench::suite::launch::Launcher;
use quarry_bench::suite::runs::{self, Place, Run, Set, is_like};
use quarry_bench::suite::samples::{Record, SCHEMA, Visits};
use quarry_bench::suite::session::{Amount, Audience, Next, Session};
use quarry_bench::suite::sums::is_peer;
use quarry_bench::suite::targets::{self, Expected};
use quarry_measure::signals::{self, Forwarding};
use quarry_measure::{locate, machine};
use quarry_report::suite::{self as report, Shown};

use super::{RESULT, VARIABLES, kept, say_what_is_kept};
use crate::format::{Format, Makes, Report, Reports};
use crate::output::{Output, Place as To};
use crate::{failure, inputs};

mod mallocs;

/// Compare the mallocs at the field's usual suite of programs, or at real programs
///
/// Each run is a process of its own under each malloc, by preloading. A round takes the runs in random order, and each run
/// under all mallocs in random order, one right after the other. Time and memory are compared with the best peer of each run.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct SuiteOptions {
    /// The suite's folder, built as its own instructions say (out/bench/, bench/, extern/). It is needed without --real and
    /// --targets. Then the runs, as patterns of the shell [default: all]
    #[arg(value_name = "DIR|RUN")]
    words: Vec<String>,
    /// Real programs as they are installed, none of them of the suite.
    ///
    /// This needs Python, and the folder bench/ of the sources.
    #[arg(long)]
    real: bool,
    /// What the heap is to reach: Quarry's own programs, six of the real ones, and the suite's if DIR is given or --add
    /// has them
    #[arg(long, conflicts_with = "real")]
    targets: bool,
    /// List the runs and what is missing for them, and run nothing
    #[arg(long)]
    list: bool,
    /// Runs of each program under each malloc. With 0 the report is of --add alone
    #[arg(short = 'n', long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    rounds: u32,
    /// Begin no run after M minutes. With --add, the next call begins with what was left out
    #[arg(long, value_name = "M", value_parser = positive)]
    minutes: Option<f64>,
    /// These mallocs only: sys, quarry, those that are installed, of `make peers`, of --with
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    only: Vec<String>,
    /// One more library to preload, with variables of its environment. A NAME that begins with quarry is no peer
    #[arg(long, value_name = "NAME=PATH[,VARIABLE=VALUE]...")]
    with: Vec<String>,
    /// What a library of --with is: samples of the same version add up, wherever it was built
    #[arg(long, value_name = "NAME=VERSION")]
    version_of: Vec<String>,
    /// Where `make peers` has put its libraries [default: beside those of quarry]
    #[arg(long, value_name = "DIR")]
    peers: Option<PathBuf>,
    /// What the suite calls N [default: the processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    /// Each thread stays on one processor, in turns: where the kernel puts threads is left out of the comparison
    #[arg(long)]
    pin: bool,
    /// How long the runs last that stop by the clock
    #[arg(long, value_name = "S", default_value_t = 3.0, value_parser = positive)]
    seconds: f64,
    /// A run that takes longer than this has failed
    #[arg(long, value_name = "S", default_value_t = 120.0, value_parser = positive)]
    limit: f64,
    /// The seed of the order of runs
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write a page, its pictures, the tables, and every sample as JSON into this directory.
    ///
    /// They are index.html, each picture as an SVG file, tables.txt, and result.json, which is written anew after each run.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    #[command(flatten)]
    reports: Reports<Self>,
    /// Samples of an earlier result.json, of the same libraries, count as well; packed ones end in .zst
    #[arg(long, value_name = "FILE")]
    add: Vec<PathBuf>,
    /// The libquarry-malloc.so to use
    #[arg(long, value_name = "PATH")]
    lib: Option<PathBuf>,
    /// Runs of this file instead of our own
    #[arg(long, value_name = "FILE", hide = true)]
    catalog: Option<PathBuf>,
}

impl Makes for SuiteOptions {
    const VERB: &'static str = "bench suite";
    const FORMATS: &'static [Format] = &[Format::Text, Format::Json, Format::Html];
    const SCHEMA: &'static str = SCHEMA;
}

const EXAMPLES: &str = "Examples:
  quarry bench suite DIR                             five rounds, all runs
  quarry bench suite DIR -n 1 cfrac 'larson*'
  quarry bench suite DIR --minutes 18 -o a.json      as much as fits; again with --add a.json for more
  quarry bench suite DIR -n 0 --add a.json           only the tables; with several --add also of each alone: do they agree?
  quarry bench suite DIR -n 0 --add a.json -o a.html a page with pictures of it
  quarry bench suite --real                          real programs that are installed: no suite needed
  quarry bench suite --targets DIR                   what the heap is to reach, as one table

Exit code: 0; 1 when a run failed under a malloc or nothing could be run; 128+N when signal N stopped it; 125 when quarry itself
failed; 2 the command line makes no sense.";

fn positive(text: &str) -> Result<f64, String> {
    text.parse::<f64>()
        .ok()
        .filter(|number| number.is_finite() && *number > 0.0)
        .ok_or_else(|| String::from("not a number above 0"))
}

/// A run that cannot be made, and what it lacks.
type Lacking = (String, String);

/// All runs of the tool, and which of them are wanted.
struct Table<'a> {
    options: &'a SuiteOptions,
    known: Vec<Run>,
    held_out: Vec<String>,
    suite: Option<PathBuf>,
    patterns: Vec<String>,
}

/// Measure or read, and report.
pub fn main(options: &SuiteOptions, output: &Output) -> anyhow::Result<i32> {
    let text = match &options.catalog {
        Some(path) => fs::read_to_string(path).with_context(|| path.display().to_string())?,
        None => runs::OURS.to_owned(),
    };
    let known = runs::parse(&text).context("the table of runs")?;
    let held_out = runs::held_out(&text).context("the table of runs")?;
    let (suite, patterns) = split(options)?;
    let table = Table { options, known, held_out, suite, patterns };
    let reports = options.reports.all(To::Stdout)?;
    let result = options.dir.as_ref().map(|dir| dir.join(RESULT));
    inputs::spare(&options.add, options.reports.files().iter().chain(&result))?;
    output.expect_all(&reports)?;
    if let Some(dir) = &options.dir {
        fs::create_dir_all(dir).with_context(|| format!("cannot make the directory {}", dir.display()))?;
        output.expect(&To::File(&dir.join(RESULT)))?;
    }
    match options.rounds {
        0 if options.add.is_empty() && !options.list => {
            Err(failure::usage("without rounds (-n 0) something must be added (--add)"))
        }
        0 if !options.list => table.show_earlier(&reports, output),
        _ => table.measure(&reports, output),
    }
}

/// The folder and the patterns. With --real all words are runs, and with --targets the first is if it is no folder.
fn split(options: &SuiteOptions) -> anyhow::Result<(Option<PathBuf>, Vec<String>)> {
    let first = options.words.first().map(PathBuf::from).filter(|_| !options.real);
    match first {
        Some(folder) if folder.is_dir() => {
            let suite = folder.canonicalize().with_context(|| folder.display().to_string())?;
            Ok((Some(suite), options.words[1..].to_vec()))
        }
        _ if options.real || options.targets => Ok((None, options.words.clone())),
        Some(word) => Err(failure::usage(format!("{}: no folder of the suite", word.display()))),
        None => Err(failure::usage("say where the suite was built (or --real, or --targets)")),
    }
}

impl Table<'_> {
    fn names(&self, set: Set) -> Vec<String> {
        self.known.iter().filter(|run| run.set == set).map(|run| run.name.clone()).collect()
    }

    fn is_wanted(&self, name: &str) -> bool {
        self.patterns.is_empty() || self.patterns.iter().any(|pattern| is_like(name, pattern))
    }

    /// A file may have several sets. Without --targets and a folder it is not said which: all but what is for the targets
    /// alone.
    fn is_of_the_set(&self, name: &str) -> bool {
        match (self.options.targets, &self.suite) {
            (true, _) => true,
            (false, Some(_)) => self.names(Set::Suite).iter().any(|known| known == name),
            (false, None) => !self.names(Set::Targets).iter().any(|known| known == name),
        }
    }

    /// The tables of --add alone: nothing is measured, and the libraries need not be there any more.
    fn show_earlier(&self, reports: &[Report], output: &Output) -> anyhow::Result<i32> {
        let read = |path: &PathBuf| Record::read(path).map_err(failure::failed);
        let records = self.options.add.iter().map(read).collect::<anyhow::Result<Vec<_>>>()?;
        let files: Vec<(&PathBuf, Record)> = self.options.add.iter().zip(records).collect();
        let mut together = files[0].1.emptied();
        for (name, library) in files.iter().flat_map(|(_, record)| &record.mallocs) {
            together.mallocs.entry(name.clone()).or_insert_with(|| library.clone());
        }
        together.mallocs.sort_by_cached_key(|name, _| is_peer(name));
        if !self.options.only.is_empty() {
            let all: Vec<&str> = together.mallocs.keys().map(String::as_str).collect();
            if let Some(name) = self.options.only.iter().find(|name| !all.contains(&name.as_str())) {
                let all = all.join(", ");
                return Err(failure::usage(format!("no file of --add has {name}; there are {all}")));
            }
            together.mallocs.retain(|name, _| self.options.only.contains(name));
        }
        let runs = files.iter().flat_map(|(_, record)| record.runs.keys());
        let there = runs.filter(|run| self.is_wanted(run) && self.is_of_the_set(run));
        together.runs = there.map(|run| (run.clone(), Vec::new())).collect();
        let mut apart: Vec<(String, Visits)> = Vec::new();
        for (path, record) in &files {
            let name = path.display().to_string();
            let mut alone = together.emptied();
            alone.add(record.clone(), &name).map_err(failure::failed)?;
            alone.runs.retain(|_, rounds| !rounds.is_empty());
            apart.push((short_name(path), alone.runs));
        }
        for (path, record) in files {
            together.add(record, &path.display().to_string()).map_err(failure::failed)?;
        }
        let more = match apart.len() > 1 && !self.options.targets {
            true => {
                let mallocs: Vec<String> = together.mallocs.keys().cloned().collect();
                format!("\n{}", report::apart(&apart, &mallocs))
            }
            false => String::new(),
        };
        self.report(&together, &more, reports, output).map(|()| 0)
    }

    fn measure(&self, reports: &[Report], output: &Output) -> anyhow::Result<i32> {
        let options = self.options;
        let made = tempfile::Builder::new().prefix("quarry-real-").tempdir()?;
        let folder = made.path().canonicalize()?;
        let place = Place {
            suite: self.suite.clone().unwrap_or_else(|| folder.clone()),
            loads: locate::bench_program("startup")
                .ok()
                .and_then(|path| Some(path.parent()?.to_owned()))
                .unwrap_or_default(),
            threads: options.threads.map_or_else(|| machine::processors().len(), |n| n as usize),
            seconds: options.seconds,
        };
        let (runs, lacking) = self.there(&place, &folder)?;
        if options.list {
            let missing = lacking.iter().map(|(name, why)| format!("{name}: {why}"));
            let lines: Vec<String> = runs.iter().map(|run| run.name.clone()).chain(missing).collect();
            output.reports(reports, |wish| match wish.format {
                Format::Text => Ok(lines.join("\n") + "\n"),
                _ => Err(failure::usage("--list is text")),
            })?;
            return Ok(0);
        }
        // The caller's LD_PRELOAD is kept from the runs.
        say_what_is_kept(&VARIABLES, output);
        let found = mallocs::find(options, output)?;
        let mut record = mallocs::record(options, &place, &found)?;
        // Of --add, for the table of targets.
        let more = if options.targets { self.names(Set::Suite) } else { Vec::new() };
        let names = runs.iter().map(|run| run.name.clone()).chain(more);
        record.runs = names.map(|name| (name, Vec::new())).collect();
        for path in &options.add {
            let earlier = Record::read(path).map_err(failure::failed)?;
            record.add(earlier, &path.display().to_string()).map_err(failure::failed)?;
        }
        for (name, why) in &lacking {
            output.warn(format_args!("left out: {name}: {why}"));
        }
        if runs.is_empty() {
            return Err(failure::failed("nothing can be run"));
        }
        let launcher = launcher(options, place)?;
        let mut session = Session::new(record, &found, launcher);
        let mut told = Told::new(options, reports, output)?;
        let amount = Amount {
            rounds: options.rounds as usize,
            time: options.minutes.map(|minutes| Duration::from_secs_f64(60.0 * minutes)),
        };
        let complete = session.measure(&runs, amount, &mut told);
        told.bar.finish_and_clear();
        let (complete, failure) = match complete {
            Ok(complete) => (complete, Ok(())),
            Err(error) => (false, Err(anyhow::Error::from(error))),
        };
        let reported = self.report(&session.record, "", reports, output);
        output.all([failure, reported])?;
        if let Some(signal) = told.signals.seen().filter(|_| !complete) {
            output.warn(format_args!(
                "{} stopped the measurement: this is what there is",
                signals::name(signal)
            ));
            return Ok(128 + signal);
        }
        Ok(i32::from(!session.record.faults.is_empty()))
    }

    /// The runs that can be made, and what others lack.
    fn there(&self, place: &Place, folder: &Path) -> anyhow::Result<(Vec<Run>, Vec<Lacking>)> {
        let mut all: Vec<Run> = Vec::new();
        if self.options.targets {
            all.extend(self.known.iter().filter(|run| run.set == Set::Targets).cloned());
        }
        if self.options.real || self.options.targets {
            let real = real_programs(folder)?.into_iter();
            all.extend(real.filter(|run| self.options.real || targets::SMALL.contains(&run.name.as_str())));
        }
        if self.suite.is_some() {
            all.extend(self.known.iter().filter(|run| run.set == Set::Suite).cloned());
        }
        let names: Vec<&str> = all.iter().map(|run| run.name.as_str()).collect();
        if !names.iter().any(|name| self.is_wanted(name)) {
            return Err(failure::usage(format!("no such run; there are: {}", names.join(", "))));
        }
        let (mut runs, mut lacking) = (Vec::new(), Vec::new());
        for run in all.into_iter().filter(|run| self.is_wanted(&run.name)) {
            match place.check(&run) {
                Ok(()) => runs.push(run),
                Err(missing) => lacking.push((run.name, missing.to_string())),
            }
        }
        Ok((runs, lacking))
    }

    /// What was asked for, and all of it to the directory of --dir. `more` follows the tables.
    fn report(&self, record: &Record, more: &str, reports: &[Report], output: &Output) -> anyhow::Result<()> {
        let suite = self.names(Set::Suite);
        let written: Vec<String> =
            self.known.iter().filter(|run| !run.program).map(|run| run.name.clone()).collect();
        let expected = if self.options.targets { expected()? } else { Expected::default() };
        let targets = self.options.targets.then_some((&suite[..], &expected));
        let shown = Shown { record, written: &written, held_out: &self.held_out, targets };
        let make = |format| match format {
            Format::Json => Ok(record.text()?),
            Format::Html => Ok(report::page::page(&shown)),
            _ => Ok(shown.text() + more),
        };
        let printed = output.reports_or_print(reports, |wish| make(wish.format));
        let Some(dir) = &self.options.dir else { return printed };
        let write = |name: &str, text: &str| output.report(&To::File(&dir.join(name)), text);
        let files = [(RESULT, Format::Json), ("index.html", Format::Html), ("tables.txt", Format::Text)];
        let made = files.map(|(name, format)| make(format).and_then(|text| write(name, &text)));
        let figures = report::page::pictures(&shown);
        let drawn = figures.iter().map(|figure| write(&format!("{}.svg", figure.name), &figure.svg.file()));
        output.all([printed].into_iter().chain(made).chain(drawn))
    }
}

/// A file's name; of a result.json that of its folder, too.
fn short_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let folder = path.parent().and_then(Path::file_name).filter(|_| name == RESULT);
    folder.map_or_else(|| name.clone().into_owned(), |folder| folder.to_string_lossy().into_owned())
}

/// The instructions that are expected of each call.
fn expected() -> anyhow::Result<Expected> {
    let path = locate::bench_file("fastpath/expected.json").map_err(failure::failed)?;
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    serde_json::from_str(&text).with_context(|| path.display().to_string())
}

/// Real programs as they are installed: a script makes what they work on in `folder`, and the table of their runs.
fn real_programs(folder: &Path) -> anyhow::Result<Vec<Run>> {
    let script = locate::bench_file("suite/real.py").map_err(failure::failed)?;
    let mut command = Command::new(&script);
    command.arg(folder).env_remove("LD_PRELOAD").stdin(Stdio::null()).stderr(Stdio::inherit());
    let made = command.output().with_context(|| script.display().to_string())?;
    if !made.status.success() {
        return Err(failure::failed(format!("{} failed: {}", script.display(), made.status)));
    }
    runs::parse_json(&String::from_utf8_lossy(&made.stdout)).with_context(|| script.display().to_string())
}

fn launcher(options: &SuiteOptions, place: Place) -> anyhow::Result<Launcher> {
    let part = |name| locate::suite_part(name).map_err(failure::failed);
    let also = if options.pin { Some(part("pin.so")?) } else { None };
    Launcher::new(place, Duration::from_secs_f64(options.limit), part("launch")?, also)
        .context("cannot make a temporary folder; is there room in TMPDIR?")
}

/// The progress on a terminal, and the samples in their file after each run.
struct Told<'a> {
    options: &'a SuiteOptions,
    output: &'a Output,
    signals: Forwarding,
    bar: ProgressBar,
    /// The files that get all samples after each run.
    kept: Vec<PathBuf>,
}

impl<'a> Told<'a> {
    fn new(options: &'a SuiteOptions, reports: &[Report], output: &'a Output) -> anyhow::Result<Self> {
        let hidden = output.is_quiet();
        let target = if hidden { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(None, target);
        bar.set_style(ProgressStyle::with_template("{msg}")?);
        let kept = kept(reports, options.dir.as_deref());
        Ok(Self { options, output, signals: Forwarding::stopping(), bar, kept })
    }
}

impl Audience for Told<'_> {
    fn next(&mut self, next: Next) -> bool {
        let (at, of) = next.run;
        self.bar.set_message(format!(
            "round {} of {}, {at} of {of}: {} {}",
            next.round, self.options.rounds, next.name, next.malloc
        ));
        self.bar.tick();
        self.goes_on()
    }

    fn goes_on(&mut self) -> bool {
        self.signals.seen().is_none()
    }

    fn visited(&mut self, record: &Record) {
        let output = self.output;
        self.kept.retain(|path| {
            let text = record.text().map_err(Into::into);
            let kept = text.and_then(|text| output.report(&To::File(path), &text));
            if let Err(error) = &kept {
                output.warn(format_args!("it is tried again at the end only: {}", failure::words(error)));
            }
            kept.is_ok()
        });
    }
}
