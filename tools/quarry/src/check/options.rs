// SPDX-License-Identifier: MIT
//! What can be asked of a check.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, Args, ValueEnum};
use quarry_check::suppress::Syntax;
use quarry_measure::preload::Conf;

use crate::format::{Format, Makes, Reports};
use crate::places::Where;
use crate::quantity::{bytes_within, seconds};

/// Find memory errors in a program as it is
///
/// Runs CMD with a library that checks every block of the heap. Each error is shown at once, with the line that did it
/// and the places where the block was allocated and freed. The program is not rebuilt and goes on after an error.
///
/// Reads of memory that was never written, and errors on the stack and in global variables, are not seen. Nor are plain
/// loads and stores outside guarded blocks that leave no trace. --pinpoint finds the instruction for writes that left one.
#[derive(Args)]
#[command(after_help = EXAMPLES, mut_args(meant))]
pub struct CheckOptions {
    /// Which leaks are looked for when the program ends
    #[arg(long, value_name = "WHICH", num_args = 0..=1, default_value = "definite", default_missing_value = "definite")]
    pub leaks: Leaks,
    /// Kinds of leaks that count as errors: definite, possible, growing, reachable, or none
    #[arg(long, value_name = "KINDS", value_delimiter = ',', default_value = "definite")]
    pub leak_errors: Vec<LeakError>,
    /// Look for leaks also every T while the program runs, and say which places hold ever more
    #[arg(long, value_name = "T", value_parser = seconds(1.0..=86400.0), help_heading = RUNNING)]
    pub every: Option<Duration>,
    /// Exit code when there were errors; 0 stands for the program's own
    #[arg(long, value_name = "N", default_value_t = ERROR, value_parser = clap::value_parser!(u8))]
    pub error_exitcode: u8,
    /// End the program at its first error, by SIGABRT
    #[arg(long, help_heading = RUNNING)]
    pub abort_on_error: bool,
    /// Which blocks have a page without access behind or before them: none, as many as a budget of time allows, or all
    #[arg(long, value_name = "WHICH", help_heading = RUNNING)]
    pub guards: Option<Guards>,
    /// Side of a guarded block that the page without access lies on: behind the first block of a place and before the
    /// second one in turns, or always the same
    #[arg(long, value_name = "SIDE", help_heading = RUNNING)]
    pub guard_side: Option<Side>,
    /// Put guarded blocks directly against their guard, also where this gives up their alignment
    #[arg(long, help_heading = RUNNING)]
    pub exact: bool,
    /// Bytes of freed blocks that wait before their memory is used again [default: 8 MiB and a quarter of what is live,
    /// 256 MiB at most]
    #[arg(long, value_name = "BYTES", value_parser = bytes_within(1..=1 << 40), help_heading = RUNNING)]
    pub quarantine: Option<u64>,
    /// Also report errors of the processes that the command starts.
    ///
    /// Copies of its own process are reported in any case.
    #[arg(long, help_heading = RUNNING)]
    pub children: bool,
    /// Blocks of new that free frees, and the reverse, are errors also where two libraries do it
    #[arg(long, help_heading = RUNNING)]
    pub strict: bool,
    /// Run the command twice: the second time only blocks of the places where the first run found one overwritten are
    /// guarded, so that the instruction is found. Where nothing was found, each block has its guard on the other side
    #[arg(long, help_heading = RUNNING, conflicts_with = "gdb")]
    pub pinpoint: bool,
    /// Leave out what FILE says, in the syntax of valgrind or LeakSanitizer. May be repeated
    #[arg(long, value_name = "FILE")]
    pub suppressions: Vec<PathBuf>,
    /// Print behind each finding the entry that would leave it out
    #[arg(long, value_name = "SYNTAX", num_args = 0..=1, require_equals = true, default_missing_value = "valgrind")]
    pub gen_suppressions: Option<Made>,
    /// Look for leaks in this process now, which quarry check has started
    #[arg(short, long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..), conflicts_with_all = ["files", "command"])]
    pub pid: Option<i32>,
    /// Run the command in gdb, which stops at the first error
    #[arg(long, help_heading = RUNNING)]
    pub gdb: bool,
    /// Keep the raw reports in this folder: quarry check reads them again, also on another machine
    #[arg(long, value_name = "DIR", help_heading = RUNNING)]
    pub keep: Option<PathBuf>,
    #[command(flatten)]
    pub places: Where,
    #[command(flatten)]
    pub reports: Reports<Self>,
    /// The libquarry-check.so to use
    #[arg(long, value_name = "PATH", help_heading = RUNNING)]
    pub lib: Option<PathBuf>,
    /// Raw reports of --keep: files, or their folder
    #[arg(value_name = "FILE", required_unless_present_any = ["command", "pid"], conflicts_with = "command")]
    pub files: Vec<PathBuf>,
    /// The command and its arguments
    #[arg(value_name = "CMD", last = true)]
    pub command: Vec<OsString>,
}

/// The exit code when there were errors.
const ERROR: u8 = 23;

const RUNNING: &str = "Options for CMD";

const EXAMPLES: &str = "Examples:
  quarry check -- ./prog input                   errors as they come, leaks at the end
  quarry check --leaks all --children -- make test
  quarry check -o report.json -o report.sarif -- ./prog
  quarry check --pinpoint -- ./prog              a second run for the instruction that wrote too far
  quarry check --gdb -- ./prog                   stop there
  quarry check -p 4711 --leaks all               what a process that is checked has lost until now
  quarry check --suppressions known.supp -- ./prog
  quarry check --keep raw -- ./prog; quarry check --symfs image raw

Exit code: 23, or N of --error-exitcode, when there were errors; else that of CMD, 0 without one; 1 when a FILE cannot be
read, or is no raw report; 125 when nothing could be checked; else as for quarry.";

impl Makes for CheckOptions {
    const VERB: &'static str = "check";
    const FORMATS: &'static [Format] = &[Format::Text, Format::Json, Format::Xml, Format::Sarif];
    const SCHEMA: &'static str = quarry_check::json::SCHEMA;
}

/// Which leaks.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Leaks {
    /// None: the heap is not scanned
    No,
    /// Blocks that nothing points to
    Definite,
    /// Also blocks that only these lead to, and blocks with pointers into them only
    All,
    /// Also blocks that something points to
    Reachable,
}

impl Leaks {
    /// The kinds that are shown.
    pub fn kinds(self) -> &'static [&'static str] {
        const ALL: [&str; 5] =
            ["leak-growing", "leak-definite", "leak-indirect", "leak-possible", "leak-reachable"];
        &ALL[..match self {
            Self::No => 0,
            Self::Definite => 2,
            Self::All => 4,
            Self::Reachable => 5,
        }]
    }
}

/// A kind of leak that counts.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LeakError {
    None,
    Definite,
    Possible,
    Growing,
    Reachable,
}

/// Which blocks have guards.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Guards {
    /// None
    Off,
    /// The first of each place, and then fewer
    Budget,
    /// All, as long as the live ones have no more than 64 MiB (QUARRY_CHECK=guard_mb:N: N MiB)
    All,
}

/// The side of a guard.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Side {
    /// Behind the first block of a place, before the second
    Turns,
    /// Finds what uses memory behind a block
    Behind,
    /// Finds what uses memory before a block
    Before,
}

/// Whose syntax.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Made {
    /// Also for memcheck
    Valgrind,
    /// Also for LeakSanitizer
    Lsan,
}

/// How to run a command says nothing where none is run.
fn meant(arg: Arg) -> Arg {
    let is_for_command = arg.get_help_heading() == Some(RUNNING);
    if is_for_command { arg.conflicts_with_all(["files", "pid"]) } else { arg }
}

impl CheckOptions {
    /// What is made behind each finding.
    pub fn made(&self) -> Option<Syntax> {
        self.gen_suppressions.map(|made| match made {
            Made::Valgrind => Syntax::Valgrind,
            Made::Lsan => Syntax::Lsan,
        })
    }

    /// Does a leak of this kind count as an error?
    pub fn counts(&self, leak: &str) -> bool {
        self.leak_errors.iter().any(|kind| match kind {
            LeakError::None => false,
            LeakError::Definite => leak == "leak-definite",
            LeakError::Possible => leak == "leak-possible",
            LeakError::Growing => leak == "leak-growing",
            LeakError::Reachable => leak == "leak-reachable",
        })
    }

    /// Why a kind that is to count as an error cannot be found.
    pub fn counts_nothing(&self) -> Option<String> {
        let runs_once = !self.command.is_empty() && self.every.is_none();
        let missing = |kind: &LeakError| {
            let (word, shown) = match kind {
                LeakError::None | LeakError::Definite => return None,
                LeakError::Possible => ("possible", "all"),
                LeakError::Growing => ("growing", "definite"),
                LeakError::Reachable => ("reachable", "reachable"),
            };
            let is_shown = self.leaks.kinds().iter().any(|leak| leak.strip_prefix("leak-") == Some(word));
            let add = match is_shown {
                false => format!("--leaks {shown}"),
                true if *kind == LeakError::Growing && runs_once => "--every T".into(),
                true => return None,
            };
            Some(format!("--leak-errors {word} counts nothing without {add}; add that"))
        };
        self.leak_errors.iter().find_map(missing)
    }

    /// The value of the library's `guard_side` that puts each guard on the other side.
    pub fn other_side(&self) -> &'static str {
        match self.guard_side {
            None | Some(Side::Turns) => "turns-before",
            Some(Side::Behind) => "before",
            Some(Side::Before) => "behind",
        }
    }

    /// What the library is told beside the folder.
    pub fn conf(&self) -> Conf {
        let mut conf = Conf::default();
        match (self.leaks, self.every) {
            (Leaks::No, None) => conf.set("leaks", "off"),
            (_, every) => {
                conf.set("leaks", "exit");
                if let Some(every) = every {
                    conf.set("every", &(every.as_secs_f64().ceil() as u64).to_string());
                }
            }
        }
        if self.leaks == Leaks::Reachable {
            conf.set("show_reachable", "on");
        }
        if let Some(guards) = self.guards {
            conf.set(
                "guards",
                match guards {
                    Guards::Off => "off",
                    Guards::Budget => "budget",
                    Guards::All => "all",
                },
            );
        }
        if let Some(side) = self.guard_side {
            conf.set(
                "guard_side",
                match side {
                    Side::Turns => "turns",
                    Side::Behind => "behind",
                    Side::Before => "before",
                },
            );
        }
        let flags = [("exact", self.exact), ("abort", self.abort_on_error), ("strict", self.strict)];
        flags.iter().filter(|(_, on)| *on).for_each(|(key, _)| conf.set(key, "on"));
        if let Some(bytes) = self.quarantine {
            conf.set("quarantine", &bytes.to_string());
        }
        conf
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        options: CheckOptions,
    }

    fn parse(words: &[&str]) -> CheckOptions {
        Cli::try_parse_from(std::iter::once(&"check").chain(words)).map(|cli| cli.options).unwrap()
    }

    #[test]
    fn options_become_those_of_the_library() {
        let conf = |words: &[&str]| parse(words).conf().to_string();
        assert_eq!(conf(&["--", "p"]), "leaks:exit");
        assert_eq!(conf(&["--leaks", "no", "--abort-on-error", "--", "p"]), "leaks:off,abort:on");
        assert_eq!(
            conf(&["--leaks", "reachable", "--every", "2m", "--", "p"]),
            "leaks:exit,every:120,show_reachable:on"
        );
        let all = ["--guards", "all", "--exact", "--strict", "--quarantine", "1m", "--", "p"];
        assert_eq!(conf(&all), "leaks:exit,guards:all,exact:on,strict:on,quarantine:1048576");
        assert_eq!(conf(&["--guard-side", "before", "--", "p"]), "leaks:exit,guard_side:before");
    }

    #[test]
    fn a_side_has_another() {
        let other = |words: &[&str]| parse(words).other_side();
        assert_eq!(other(&["--", "p"]), "turns-before");
        assert_eq!(other(&["--guard-side", "turns", "--", "p"]), "turns-before");
        assert_eq!(other(&["--guard-side", "behind", "--", "p"]), "before");
        assert_eq!(other(&["--guard-side", "before", "--", "p"]), "behind");
    }

    #[test]
    fn kinds_of_leaks_count_as_they_are_named() {
        let options = parse(&["--leak-errors", "definite,growing", "--", "p"]);
        assert!(
            options.counts("leak-definite")
                && options.counts("leak-growing")
                && !options.counts("leak-possible")
        );
        assert!(!parse(&["--leak-errors", "none", "--", "p"]).counts("leak-definite"));
        assert_eq!(Leaks::Definite.kinds(), ["leak-growing", "leak-definite"]);
    }

    #[test]
    fn what_counts_can_be_found() {
        let why =
            |words: &[&str]| parse(&[words, &["--", "p"]].concat()).counts_nothing().unwrap_or_default();
        for words in [
            &["--leak-errors", "reachable", "--leaks", "reachable"][..],
            &["--leak-errors", "possible,definite", "--leaks", "all"],
            &["--leak-errors", "growing", "--every", "5s"],
            &["--leak-errors", "none", "--leaks", "no"],
            &["--leaks", "no"],
        ] {
            assert_eq!(why(words), "", "{words:?}");
        }
        assert!(why(&["--leak-errors", "reachable"]).contains("without --leaks reachable"));
        assert!(why(&["--leak-errors", "definite,possible"]).contains("without --leaks all"));
        assert!(why(&["--leak-errors", "growing"]).contains("without --every T"));
        assert!(why(&["--leak-errors", "growing", "--leaks", "no"]).contains("without --leaks definite"));
        assert!(parse(&["--leak-errors", "growing", "x.check"]).counts_nothing().is_none());
    }

    #[test]
    fn words_are_files_and_behind_dashes_a_command() {
        let options = parse(&["--leaks", "all", "a.check", "b.check"]);
        assert_eq!((options.files.len(), options.command.len()), (2, 0));
        assert_eq!(parse(&["--gen-suppressions", "--", "p", "-q"]).command, ["p", "-q"]);
        assert!(Cli::try_parse_from(["check"]).is_err());
        assert!(Cli::try_parse_from(["check", "a", "--", "p"]).is_err());
    }

    #[test]
    fn how_to_run_says_nothing_of_reports_or_a_process() {
        let parses = |words: &[&str]| Cli::try_parse_from(std::iter::once(&"check").chain(words)).is_ok();
        for option in [
            "--every=2s",
            "--abort-on-error",
            "--guards=all",
            "--guard-side=before",
            "--exact",
            "--quarantine=1m",
            "--children",
            "--strict",
            "--pinpoint",
            "--gdb",
            "--keep=d",
            "--lib=l",
        ] {
            assert!(!parses(&[option, "raw"]) && !parses(&[option, "-p", "7"]), "{option}");
            assert!(parses(&[option, "--", "p"]), "{option}");
        }
    }
}
