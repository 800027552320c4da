// SPDX-License-Identifier: MIT
//! What can be typed. The help texts, the manual pages and the completions all come from here.

use std::path::{Path, PathBuf};

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};

use crate::format::{Format, Makes, Product};
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
  quarry check -- ./prog input        memory errors, with the line that did it
  quarry pools log -o log.html        what each pool held and used, from a log that ./prog wrote

Environment:
  QUARRY_CONF     options of the heap, key:value,key:value
  QUARRY_LIB_DIR  the directory of libquarry-malloc.so
  NO_COLOR        if set, no colour unless --color always

Exit code: that of the command, 128+N when signal N ended it; 125 when quarry itself failed, 126 when
the command cannot be executed, 127 when it was not found; 2 when the command line makes no sense.";

const EVERYWHERE: &str = "Options of every verb";

/// Options of every verb.
#[derive(Args)]
pub struct Common {
    /// Say only what was asked for: no warnings, no progress
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = EVERYWHERE)]
    pub quiet: bool,
    /// Say what is being done.
    ///
    /// That is, among other things, the library used and the environment given to the command.
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
    Run(crate::run::RunOptions),
    Record(Box<crate::record::RecordOptions>),
    Check(Box<crate::check::CheckOptions>),
    Compare(crate::compare::CompareOptions),
    Pools(crate::pools::PoolsOptions),
    Replay(Box<crate::replay::ReplayOptions>),
    Bench(Box<crate::bench::BenchOptions>),
    Gen(Box<crate::generate::GenOptions>),
    Convert(crate::convert::ConvertOptions),
    Info(crate::info::InfoOptions),
    Profile(Box<crate::profile::ProfileOptions>),
    Symbolize(crate::symbolize::SymbolizeOptions),
    Stats(crate::stats::StatsOptions),
    Tour(crate::tour::TourOptions),
    Map(Box<crate::map::MapOptions>),
    Top(Box<crate::top::TopOptions>),
    Explain(crate::explain::ExplainOptions),
    Doctor(crate::doctor::DoctorOptions),
    /// Print a completion script
    Completions {
        /// For this shell
        shell: clap_complete::Shell,
        #[command(flatten)]
        product: Product<Completions>,
    },
    /// Print the manual page, or write one for each verb
    ///
    /// --format json prints the definition of all verbs and options, of which the pages are made.
    Man {
        /// Write quarry.1, quarry-run.1, ... into this directory
        #[arg(value_name = "DIR", conflicts_with_all = ["output", "format"])]
        directory: Option<PathBuf>,
        #[command(flatten)]
        product: Product<Man>,
    },
}

impl Verb {
    /// An error if a file that is to be written cannot have the format that its ending says.
    pub fn check(&self) -> anyhow::Result<()> {
        match self {
            Self::Run(options) => options.reports.check(),
            Self::Record(options) => options.check(),
            Self::Check(options) => options.reports.check(),
            Self::Compare(options) => options.reports.check(),
            Self::Pools(options) => options.reports.check(),
            Self::Replay(options) => options.reports.check(),
            Self::Bench(options) => options.reports.check(),
            Self::Gen(options) => options.product.check(),
            Self::Convert(options) => options.product.check(),
            Self::Info(options) => options.reports.check(),
            Self::Profile(options) => options.reports.check(),
            Self::Symbolize(options) => options.product.check(),
            Self::Stats(options) => options.reports.check(),
            Self::Tour(options) => options.reports.check(),
            Self::Map(options) => options.reports.check(),
            Self::Top(options) => options.reports.check(),
            Self::Explain(options) => options.reports.check(),
            Self::Doctor(options) => options.reports.check(),
            Self::Completions { product, .. } => product.check(),
            Self::Man { product, .. } => product.check(),
        }
    }
}

/// The verb completions.
pub struct Completions;

impl Makes for Completions {
    const VERB: &'static str = "completions";
    const FORMATS: &'static [Format] = &[Format::Text];
}

/// The verb man.
pub struct Man;

impl Makes for Man {
    const VERB: &'static str = "man";
    const FORMATS: &'static [Format] = &[Format::Text, Format::Json];
}

/// Write a completion script.
pub fn completions(shell: clap_complete::Shell, file: Option<&Path>, output: &Output) -> anyhow::Result<i32> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "quarry", &mut script);
    output.report(&Place::of(file, Place::Stdout), &String::from_utf8(script)?)?;
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
}
