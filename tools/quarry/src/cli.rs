// SPDX-License-Identifier: MIT
//! What can be typed. The help texts, the manual pages and the completions all come from here.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use quarry_measure::preload::Conf;
use quarry_report::compare::Order;
use quarry_report::pools::plot;

use crate::output::{Output, Place};

/// See what memory allocation does to a program, and change it.
#[derive(Parser)]
#[command(name = "quarry", version, propagate_version = true, after_help = EXAMPLES)]
pub struct Cli {
    #[command(flatten)]
    pub common: Common,
    #[command(subcommand)]
    pub verb: Verb,
}

const EXAMPLES: &str = "Examples:
  quarry compare -- ./prog input      time and memory of ./prog under every allocator installed
  quarry run -- ./prog input          ./prog on the quarry heap
  quarry run --stats -- ./prog        the same, and where its memory went
  quarry pools log -o log.html        what each pool held and used, from a log that ./prog wrote

Environment:
  QUARRY_CONF     options of the heap, key:value,key:value
  QUARRY_LIB_DIR  the directory of libquarry-malloc.so
  NO_COLOR        if set, no colour unless --color always

Exit code: that of the command, 128+N when signal N ended it; 125 quarry itself failed, 126 the
command cannot be executed, 127 it was not found; 2 the command line makes no sense.";

const EVERYWHERE: &str = "Options of every verb";

/// Options of every verb.
#[derive(Args)]
pub struct Common {
    /// Say only what was asked for: no warnings, no progress
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = EVERYWHERE)]
    pub quiet: bool,
    /// Say what is being done
    #[arg(short, long, global = true, help_heading = EVERYWHERE)]
    pub verbose: bool,
    /// When to use colour
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", help_heading = EVERYWHERE)]
    pub color: Color,
}

/// When to use colour.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    Always,
    Never,
}

#[derive(Subcommand)]
pub enum Verb {
    Run(RunOptions),
    Record(Box<crate::record::RecordOptions>),
    Compare(CompareOptions),
    Pools(PoolsOptions),
    Replay(Box<crate::replay::ReplayOptions>),
    Bench(Box<crate::bench::BenchOptions>),
    Gen(Box<crate::generate::GenOptions>),
    Convert(crate::convert::ConvertOptions),
    Info(crate::info::InfoOptions),
    Stats(crate::stats::StatsOptions),
    Tour(crate::tour::TourOptions),
    Map(Box<crate::map::MapOptions>),
    Top(Box<crate::top::TopOptions>),
    Explain(crate::explain::ExplainOptions),
    /// Print a completion script
    Completions {
        /// For this shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write one for each verb
    Man {
        /// Write quarry.1, quarry-run.1, ... into this directory
        #[arg(value_name = "DIR")]
        directory: Option<PathBuf>,
    },
}

/// Options of verbs that run a command on the heap.
#[derive(Args)]
pub struct Heap {
    /// Options of the heap; they win over those in QUARRY_CONF, key by key
    #[arg(long, value_name = "KEY:VALUE,...", value_parser = parse_conf)]
    pub conf: Vec<Conf>,
    /// The libquarry-malloc.so to use
    #[arg(long, value_name = "PATH")]
    pub lib: Option<PathBuf>,
}

impl Heap {
    /// All --conf options together.
    pub fn conf(&self) -> Conf {
        self.conf.iter().fold(Conf::default(), Conf::merge)
    }
}

fn parse_conf(text: &str) -> Result<Conf, String> {
    Conf::parse(text).map_err(|error| error.to_string())
}

/// Run a command on the quarry heap
///
/// The library is preloaded, before what LD_PRELOAD has already. Signals are the command's to
/// handle, and its exit code is passed on.
#[derive(Args)]
#[command(after_help = RUN_EXAMPLES)]
pub struct RunOptions {
    #[command(flatten)]
    pub heap: Heap,
    /// When it ends, say what it cost and where its heap's memory was
    #[arg(long)]
    pub stats: bool,
    /// The same as JSON (schema quarry-run/1)
    #[arg(long)]
    pub json: bool,
    /// Write the report there instead of to standard error; - is standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// The command and its arguments
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true)]
    pub command: Vec<OsString>,
}

impl RunOptions {
    /// Is a report wanted?
    pub fn reports(&self) -> bool {
        self.stats || self.json || self.output.is_some()
    }
}

const RUN_EXAMPLES: &str = "Examples:
  quarry run -- ./server --port 80
  quarry run --conf purge_delay:100,arenas:4 -- ./server
  quarry run --stats -- make -j4
  quarry run --json -o stats.json -- ./prog";

/// Compare the time and memory of a command under all allocators
///
/// Runs the command some rounds under the system's malloc, under quarry and under each of jemalloc,
/// mimalloc, tcmalloc and tbbmalloc that is installed; in each round all of them in random order, so
/// that what disturbs the machine disturbs all alike. Its input is empty and its output is not shown.
#[derive(Args)]
#[command(after_help = COMPARE_EXAMPLES)]
pub struct CompareOptions {
    #[command(flatten)]
    pub heap: Heap,
    /// Compare with these instead of all installed: names, paths of libraries, or LABEL=PATH
    #[arg(long, value_name = "NAME|PATH,...", value_delimiter = ',')]
    pub with: Vec<String>,
    /// Number of rounds [default: what fits into half a minute, but 5 to 20]
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub rounds: Option<u32>,
    /// Unmeasured runs of each allocator before the first round
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub warmup: u32,
    /// Repeat the order of runs of an earlier comparison
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Give this file to each run as its input
    #[arg(long, value_name = "FILE")]
    pub input: Option<PathBuf>,
    /// The exit code that means success
    #[arg(long, value_name = "CODE", default_value_t = 0, value_parser = clap::value_parser!(i32).range(0..=255))]
    pub expect_exit: i32,
    /// Kill a run after this time, and count it as failed
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub timeout: Option<Duration>,
    /// Show what the command writes, on standard error
    #[arg(long)]
    pub show_output: bool,
    /// The order of the rows
    #[arg(long, value_name = "BY", default_value = "wall")]
    pub sort: Sort,
    /// Every run and all results as JSON (schema quarry-compare/1) instead of the table
    #[arg(long)]
    pub json: bool,
    /// Write the report there instead of to standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// The command and its arguments
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true)]
    pub command: Vec<OsString>,
}

const COMPARE_EXAMPLES: &str = "Examples:
  quarry compare -- ./prog input
  quarry compare -n 30 --with jemalloc,mimalloc -- ./prog
  quarry compare --with old=../old/libquarry-malloc.so -- ./prog
  quarry compare --json -o result.json -- ./prog
  quarry compare -- sh -c './prog | sort'

Exit code: 0; 1 when the command failed under some allocator but not under the system's malloc; the
command's own when it failed there too; 128+N when signal N stopped the comparison; else as for quarry.";

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

/// Show what the pools of a program held and used
///
/// Reads logs that programs linked with libquarry write when QUARRY_CONF has pool_log:FILE. A damaged log
/// is read as far as it goes, and what is left out is said.
#[derive(Args)]
#[command(after_help = POOLS_EXAMPLES)]
pub struct PoolsOptions {
    /// The logs; - is standard input
    #[arg(value_name = "LOG", required = true)]
    pub logs: Vec<PathBuf>,
    /// Only pools of this name or number
    #[arg(long, value_name = "NAME|ID")]
    pub pool: Option<String>,
    /// JSON (schema quarry-pool-log/1) instead of the table
    #[arg(long)]
    pub json: bool,
    /// With --json: every entry too
    #[arg(long, requires = "json")]
    pub series: bool,
    /// Write the report there instead of to standard output. A FILE that ends in .svg or .html gets the plot,
    /// and the report goes to standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Plot, whatever FILE is called; without -o to standard output, and then there is no report
    #[arg(long, value_name = "FORMAT")]
    pub plot: Option<PlotFormat>,
    /// The horizontal axis of the plot
    #[arg(long, value_name = "AXIS", default_value = "dump")]
    pub x: PlotAxis,
    /// Most pools in a plot: those that held most
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub top: u32,
}

const POOLS_EXAMPLES: &str = "Examples:
  QUARRY_CONF=pool_log:log ./prog      have a program write a log
  quarry pools log                     a table
  quarry pools log -o log.html         and a plot of held against used
  quarry pools log --pool replies --x time -o replies.svg
  quarry pools --json --series log     every entry

Exit code: 0; 1 when a part of a log could not be read (what could be is reported); else as for quarry.";

/// The form of a plot.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PlotFormat {
    /// One picture
    Svg,
    /// A page with the table and the pictures over both axes, which needs no network
    Html,
}

/// The horizontal axis of a plot.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PlotAxis {
    /// Entries of the pool, as they were written
    Dump,
    /// Time since the pool was made
    Time,
}

impl From<PlotAxis> for plot::Axis {
    fn from(axis: PlotAxis) -> Self {
        match axis {
            PlotAxis::Dump => plot::Axis::Dump,
            PlotAxis::Time => plot::Axis::Time,
        }
    }
}

pub fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| String::from("not a number of seconds"))?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err(String::from("must be more than 0")),
    }
}

/// Print a completion script.
pub fn completions(shell: clap_complete::Shell, output: &Output) -> anyhow::Result<i32> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "quarry", &mut script);
    output.report(&Place::Stdout, &String::from_utf8(script)?)?;
    Ok(0)
}

/// Print the manual page, or write all of them.
pub fn man(directory: Option<&Path>, output: &Output) -> anyhow::Result<i32> {
    let command = Cli::command();
    match directory {
        Some(directory) => {
            let written = clap_mangen::generate_to(command, directory);
            written.with_context(|| format!("cannot write manual pages to {}", directory.display()))?;
        }
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(command).render(&mut page).map_err(io::Error::other)?;
            output.report(&Place::Stdout, &String::from_utf8(page)?)?;
        }
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_command_keeps_its_own_options() {
        let cli = Cli::parse_from(["quarry", "run", "--stats", "--", "prog", "--stats", "-q", "--", "x"]);
        let Verb::Run(options) = cli.verb else { panic!() };
        assert_eq!(options.command, ["prog", "--stats", "-q", "--", "x"]);
        assert!(options.stats && !cli.common.quiet);
    }

    #[test]
    fn dashes_before_the_command_may_be_left_out() {
        let cli = Cli::parse_from(["quarry", "run", "--stats", "prog", "--stats", "-q"]);
        let Verb::Run(options) = cli.verb else { panic!() };
        assert_eq!(options.command, ["prog", "--stats", "-q"]);
        assert!(Cli::try_parse_from(["quarry", "run", "--statz", "prog"]).is_err());
    }

    #[test]
    fn conf_options_add_up() {
        let cli = Cli::parse_from(["quarry", "run", "--conf", "a:1,b:2", "--conf", "a:3", "--", "prog"]);
        let Verb::Run(options) = cli.verb else { panic!() };
        assert_eq!(options.heap.conf().to_string(), "b:2,a:3");
    }

    #[test]
    fn times() {
        assert_eq!(parse_seconds("0.5"), Ok(Duration::from_millis(500)));
        for text in ["0", "-1", "x", "nan", "inf"] {
            assert!(parse_seconds(text).is_err(), "{text}");
        }
    }
}
