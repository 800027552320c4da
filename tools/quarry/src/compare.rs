// SPDX-License-Identifier: MIT
//! quarry compare: a command under all allocators.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use quarry_measure::live::{self, DryRun};
use quarry_measure::machine::Machine;
use quarry_measure::peers::{Installed, PEERS};
use quarry_measure::preload::Conf;
use quarry_measure::program::Program;
use quarry_measure::rng::Rng;
use quarry_measure::signals::{self, Forwarding};
use quarry_measure::spawn::{self, Measured};
use quarry_measure::wish::{self, Candidate, OURS};
use quarry_measure::{elf, locate, packages};
use quarry_report::compare::{Allocator, BASE, Comparison, Order, Run};
use tempfile::TempPath;

use crate::format::{Format, Makes, Reports};
use crate::output::{Output, Place};
use crate::quantity::timeout;
use crate::under::{self, Heap};
use crate::{failure, inputs};

/// Compare the time and memory of a command under all allocators
///
/// Runs the command in several rounds under the system's malloc, under quarry and under each of jemalloc, mimalloc,
/// tcmalloc and tbbmalloc that is installed. Each round runs all of them in random order, so that a disturbance of the
/// machine hits all alike. The command's input is empty, and its output is not shown.
#[derive(Args)]
#[command(after_help = COMPARE_EXAMPLES)]
pub struct CompareOptions {
    #[command(flatten)]
    pub heap: Heap,
    /// Compare with these instead of all installed: names, paths of libraries, or LABEL=PATH.
    ///
    /// The system's malloc and quarry always take part.
    #[arg(long, value_name = "NAME|PATH,...", value_delimiter = ',')]
    pub with: Vec<String>,
    /// Number of rounds [default: what fits into half a minute, but 5 to 20]
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub rounds: Option<u32>,
    /// Unmeasured runs of each allocator before the first round
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub warmup: u32,
    /// Use this seed for the order of runs, to repeat that of an earlier comparison
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Give this file to each run as its input.
    ///
    /// It is opened anew for each. What can be read but once, as a pipe or -, is copied first.
    #[arg(long, value_name = "FILE")]
    pub input: Option<PathBuf>,
    /// The exit code that means success
    #[arg(long, value_name = "CODE", default_value_t = 0, value_parser = clap::value_parser!(i32).range(0..=255))]
    pub expect_exit: i32,
    /// Kill a run after this time, and count it as failed
    #[arg(long, value_name = "SECONDS", value_parser = timeout)]
    pub timeout: Option<Duration>,
    /// Show what the command writes, on standard error
    #[arg(long)]
    pub show_output: bool,
    /// The order of the rows
    #[arg(long, value_name = "BY", default_value = "wall")]
    pub sort: Sort,
    #[command(flatten)]
    pub reports: Reports<Self>,
    /// The command and its arguments
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true)]
    pub command: Vec<OsString>,
}

impl Makes for CompareOptions {
    const VERB: &'static str = "compare";
    const FORMATS: &'static [Format] = &[Format::Text, Format::Json];
    const SCHEMA: &'static str = "quarry-compare/1";
}

const COMPARE_EXAMPLES: &str = "Examples:
  quarry compare -- ./prog input
  quarry compare -n 30 --with jemalloc,mimalloc -- ./prog
  quarry compare --with old=../old/libquarry-malloc.so -- ./prog
  quarry compare -o result.json -- ./prog
  quarry compare -- sh -c './prog | sort'

Exit code: 0; 1 when the command failed under some allocator but not under the system's malloc; the
command's own when it failed there too; 124 when it took longer than --timeout there; 128+N when signal N stopped the comparison; else as for quarry.";

/// The order of the rows.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    /// Fastest first
    Wall,
    /// Least memory first
    Rss,
    /// System, quarry, then as named
    Given,
}

impl From<Sort> for Order {
    fn from(sort: Sort) -> Self {
        match sort {
            Sort::Wall => Order::Wall,
            Sort::Rss => Order::Rss,
            Sort::Given => Order::Given,
        }
    }
}

/// What the rounds may take when the user does not say how many, and how many at least and at most.
const BUDGET: Duration = Duration::from_secs(30);
const ROUNDS: (usize, usize) = (5, 20);

/// Compare; the exit code says what was found.
pub fn main(options: &CompareOptions, output: &Output) -> anyhow::Result<i32> {
    let name = &options.command[0];
    let program = under::resolve(&options.command).map_err(|error| failure::not_started(name, &error))?;
    inputs::spare(&options.input, options.reports.files())?;
    output.expect_all(&options.reports.all(Place::Stdout)?)?;
    let input = options.input.as_deref().map(Stdin::of).transpose()?;
    if under::existing_preload().is_some() {
        output.warn("LD_PRELOAD is set and kept, so what it loads takes part in every run");
    }
    let candidates = candidates(options, output)?;
    let mut session = Session::new(options, output, &program, candidates)?;
    session.input = input;
    let ended = session.warm_up().and_then(|()| session.measure());
    session.finish(ended)
}

/// What every run reads all of: a file, or a copy of what can be read once.
struct Stdin {
    path: PathBuf,
    /// Removes it at the end.
    _copy: Option<TempPath>,
}

impl Stdin {
    fn of(path: &Path) -> anyhow::Result<Self> {
        let shown = quarry_input::name(path);
        let cannot = || format!("cannot open the input {shown}");
        if path != Path::new("-") {
            let about = std::fs::metadata(path).with_context(cannot)?.file_type();
            if !about.is_fifo() && !about.is_socket() {
                return Ok(Self { path: path.to_owned(), _copy: None });
            }
        }
        let mut copy =
            tempfile::NamedTempFile::new().context("cannot make a temporary file for the input")?;
        let mut raw = quarry_input::raw(path).with_context(cannot)?;
        io::copy(&mut raw, &mut copy).with_context(cannot)?;
        let copy = copy.into_temp_path();
        Ok(Self { path: copy.to_path_buf(), _copy: Some(copy) })
    }
}

/// The mallocs that take part: system and quarry, then those asked for, or all that are installed.
fn candidates(options: &CompareOptions, output: &Output) -> anyhow::Result<Vec<Candidate>> {
    let ours = locate::library(options.heap.lib.as_deref())?;
    let ours = Candidate { name: OURS.to_owned(), library: Some(ours), conf: Conf::default() };
    let mut found = vec![Candidate::system(), ours];
    found.extend(asked_for(&options.with, options.heap.lib.as_deref(), output)?);
    distinct(found)
}

/// Those asked for, without system and quarry; all peers that are installed if nobody was asked for.
pub fn asked_for(wishes: &[String], lib: Option<&Path>, output: &Output) -> anyhow::Result<Vec<Candidate>> {
    let installed = Installed::scan();
    let mut found = Vec::new();
    if wishes.is_empty() {
        for peer in &PEERS {
            match wish::grant(peer.name, &installed, lib) {
                Ok(candidate) => found.push(candidate),
                Err(_) => output.detail(format_args!("{} is not installed", peer.name)),
            }
        }
    }
    let others = |wish: &&str| !wish.is_empty() && !matches!(*wish, BASE | "glibc" | OURS);
    for wish in wishes.iter().map(|wish| wish.trim()).filter(others) {
        found.push(wish::grant(wish, &installed, lib).map_err(|error| match error.is_usage() {
            true => failure::usage(error),
            false => error.into(),
        })?);
    }
    Ok(found)
}

/// Find their versions, and see that no two have the same name.
pub fn distinct(mut found: Vec<Candidate>) -> anyhow::Result<Vec<Candidate>> {
    let files: Vec<PathBuf> = found.iter().filter_map(|c| Some(c.library.as_ref()?.path.clone())).collect();
    let versions = packages::versions(&files);
    for library in found.iter_mut().filter_map(|candidate| candidate.library.as_mut()) {
        library.version = versions.get(&library.path).cloned().or(library.version.take());
    }
    let mut names = BTreeSet::new();
    for candidate in &found {
        if !names.insert(&candidate.name) {
            let name = &candidate.name;
            return Err(failure::usage(format!(
                "two allocators are called {name}; say --with LABEL=PATH to tell them apart"
            )));
        }
    }
    Ok(found)
}

/// An allocator with what it takes to run under it.
struct Contestant {
    library: Option<PathBuf>,
    preload: Option<OsString>,
    conf: Conf,
}

struct Session<'a> {
    options: &'a CompareOptions,
    output: &'a Output,
    contestants: Vec<Contestant>,
    signals: Forwarding,
    rng: Rng,
    bar: ProgressBar,
    result: Comparison,
    input: Option<Stdin>,
}

impl<'a> Session<'a> {
    fn new(
        options: &'a CompareOptions,
        output: &'a Output,
        program: &Program,
        candidates: Vec<Candidate>,
    ) -> anyhow::Result<Self> {
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let seed = options.seed.unwrap_or(started.as_nanos() as u64 % 1_000_000);
        let mut contestants = Vec::new();
        let mut allocators = Vec::new();
        for Candidate { name, library, conf } in candidates {
            let path = library.as_ref().map(|l| l.path.clone());
            let preload = path.as_deref().map(under::preload_value).transpose()?;
            let mut allocator = Allocator {
                library: path.as_ref().map(|p| p.display().to_string()),
                version: library.and_then(|l| l.version),
                loaded: path.is_none().then_some(true),
                notes: Vec::new(),
                name,
            };
            if let (Some(path), Some(preload)) = (&path, &preload) {
                foresee(&mut allocator, program, path, preload);
                output.detail(format_args!(
                    "{}: LD_PRELOAD={}",
                    allocator.name,
                    Path::new(preload).display()
                ));
            }
            contestants.push(Contestant { library: path, preload, conf });
            allocators.push(allocator);
        }
        let machine = Machine::read();
        if let Some(base) = allocators.first_mut() {
            base.version = Some(machine.libc.clone());
        }
        let hidden = output.is_quiet() || options.show_output;
        let target = if hidden { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(None, target);
        bar.set_style(ProgressStyle::with_template("{wide_bar} {pos}/{len} {msg} ({eta} left)")?);
        Ok(Self {
            options,
            output,
            contestants,
            signals: Forwarding::stopping(),
            rng: Rng::new(seed),
            bar,
            result: Comparison {
                command: under::words(&options.command),
                machine,
                started: started.as_secs(),
                seed,
                rounds: 0,
                warmup: options.warmup as usize,
                interrupted: false,
                expected_exit: options.expect_exit,
                allocators,
                runs: Vec::new(),
            },
            input: None,
        })
    }

    /// Unmeasured runs, in the order of the table, so that the system's malloc comes first.
    fn warm_up(&mut self) -> anyhow::Result<()> {
        self.bar.set_length(u64::from(self.options.warmup) * self.contestants.len() as u64);
        for _ in 0..self.options.warmup {
            let order: Vec<usize> = (0..self.contestants.len()).collect();
            if !self.round(0, &order)? {
                break;
            }
        }
        Ok(())
    }

    fn measure(&mut self) -> anyhow::Result<()> {
        let mut rounds = self.options.rounds.map(|n| n as usize);
        let start = Instant::now();
        let mut order: Vec<usize> = (0..self.contestants.len()).collect();
        let before = self.result.runs.len();
        let mut round = 1;
        while rounds.is_none_or(|rounds| round <= rounds) && !self.over() {
            self.bar.set_length((before + rounds.unwrap_or(ROUNDS.0) * order.len()) as u64);
            self.rng.shuffle(&mut order);
            if !self.round(round, &order)? {
                break;
            }
            self.result.rounds = round;
            // The first round tells how long one takes.
            rounds = rounds.or_else(|| Some(rounds_for(start.elapsed())));
            round += 1;
        }
        Ok(())
    }

    /// One run of each, unless there is no point in going on: then false. What a signal or an error has interrupted is
    /// forgotten.
    fn round(&mut self, round: usize, order: &[usize]) -> anyhow::Result<bool> {
        let before = self.result.runs.len();
        let complete = self.run_each(round, order);
        if complete.is_err() || matches!(complete, Ok(false)) && self.signals.seen().is_some() {
            self.result.runs.truncate(before);
        }
        complete
    }

    fn run_each(&mut self, round: usize, order: &[usize]) -> anyhow::Result<bool> {
        for (index, &allocator) in order.iter().enumerate() {
            if self.over() {
                return Ok(false);
            }
            self.bar.set_message(self.result.allocators[allocator].name.clone());
            let measured = loop {
                let measured = self.once(allocator)?;
                if self.signals.seen().is_some() {
                    // It may have been the signal that ended the program.
                    return Ok(false);
                }
                if !measured.paused {
                    break measured;
                }
            };
            if let Some(seen) = measured.library_seen {
                // What the running program shows counts more than what was foreseen.
                self.result.allocators[allocator].loaded = Some(seen);
                if !seen {
                    let note = String::from("the running program does not have the library in its memory");
                    let notes = &mut self.result.allocators[allocator].notes;
                    if !notes.contains(&note) {
                        notes.push(note);
                    }
                }
            }
            self.result.runs.push(Run {
                round,
                position: index + 1,
                allocator,
                end: measured.end,
                usage: measured.usage,
                stdout_bytes: measured.stdout.bytes(),
                stdout_hash: measured.stdout.hex(),
                stderr: measured.stderr,
            });
            self.bar.inc(1);
        }
        Ok(true)
    }

    /// Is there no point in going on? After a signal, or when the very first run, which is the
    /// system's, failed.
    fn over(&self) -> bool {
        self.signals.seen().is_some() || self.result.warmup > 0 && self.base_fails_at_once()
    }

    fn base_fails_at_once(&self) -> bool {
        self.result.runs.first().is_some_and(|run| run.allocator == 0 && !self.result.succeeded(run))
    }

    fn once(&self, allocator: usize) -> anyhow::Result<Measured> {
        let contestant = &self.contestants[allocator];
        if let Some(library) = &contestant.library {
            locate::still_there(library)?;
        }
        let mut command = under::command(&self.options.command);
        if let Some(preload) = &contestant.preload {
            command.env("LD_PRELOAD", preload);
        }
        // Options meant for this tool's heap reach any copy of it; other allocators ignore them.
        let conf = under::merged_conf(&self.options.heap.conf()).merge(&contestant.conf);
        under::set_conf(&mut command, &conf);
        command.stdin(match &self.input {
            Some(Stdin { path, .. }) => {
                File::open(path).with_context(|| format!("cannot open the input {}", path.display()))?.into()
            }
            None => Stdio::null(),
        });
        let first = !self.result.runs.iter().any(|run| run.allocator == allocator);
        let options = spawn::Options {
            timeout: self.options.timeout,
            echo: self.options.show_output,
            library: contestant.library.as_deref().filter(|_| first),
        };
        spawn::measure(&mut command, &options)
            .map_err(|error| failure::not_started(&self.options.command[0], &error))
    }

    /// Report on the complete rounds, and say what put an end to them.
    fn finish(mut self, ended: anyhow::Result<()>) -> anyhow::Result<i32> {
        self.bar.finish_and_clear();
        let rounds = self.result.rounds;
        let ended = match ended {
            Err(error) if rounds == 0 => return Err(error),
            ended => ended.map_err(|error| failure::after(error, "comparison", rounds)),
        };
        self.result.interrupted = ended.is_err() || self.signals.seen().is_some();
        let reports = self.options.reports.all(Place::Stdout)?;
        let result = &self.result;
        if self.base_fails_at_once() {
            let run = &result.runs[0];
            let said = run
                .stderr
                .lines()
                .last()
                .map_or_else(String::new, |line| format!("; its last line on stderr: {line}"));
            let first = "the command fails on the system's malloc already";
            self.output.warn(format_args!("{first} ({}){said}", run.end));
        }
        // Nothing is left to stop but the report, for which its reader may have us wait as long as it likes.
        let signal = self.signals.seen();
        drop(self.signals);
        if result.rounds > 0 || reports.iter().any(|wish| wish.format == Format::Json) {
            let written = self.output.reports_or_print(&reports, |wish| {
                Ok(match wish.format {
                    Format::Json => format!("{:#}\n", result.json()),
                    _ => result.text(self.output.style(&wish.place), self.options.sort.into()),
                })
            });
            self.output.all([ended, written])?;
        }
        if let Some(signal) = signal {
            let name = signals::name(signal);
            self.output
                .warn(format_args!("{name} stopped the comparison after {} complete rounds", result.rounds));
            return Ok(128 + signal);
        }
        Ok(result.exit_code())
    }
}

/// How many rounds fit into the budget when one takes `time`.
fn rounds_for(time: Duration) -> usize {
    let fit = BUDGET.as_secs_f64() / time.as_secs_f64().max(1e-6);
    (fit as usize).clamp(ROUNDS.0, ROUNDS.1)
}

/// Find out before the first run whether the library will be loaded.
fn foresee(allocator: &mut Allocator, program: &Program, library: &Path, preload: &OsString) {
    let obstacles = under::obstacles(program, library);
    let kept_away = obstacles.iter().any(|(obstacle, _)| obstacle.is_total());
    allocator.notes.extend(obstacles.into_iter().map(|(_, sentence)| sentence));
    if kept_away {
        allocator.loaded = Some(false);
        return;
    }
    let Ok(Some(elf::Facts { interpreter: Some(interpreter), .. })) = elf::read(&program.binary) else {
        return;
    };
    match live::dry_run(&interpreter, &program.binary, preload, library) {
        Ok(DryRun::Loads) => allocator.loaded = Some(true),
        Ok(DryRun::Refuses(reason)) => {
            allocator.loaded = Some(false);
            allocator.notes.push(reason);
        }
        Err(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_fit_the_budget_within_bounds() {
        assert_eq!(rounds_for(Duration::ZERO), 20);
        assert_eq!(rounds_for(Duration::from_secs(3)), 10);
        assert_eq!(rounds_for(Duration::from_secs(60)), 5);
    }
}
