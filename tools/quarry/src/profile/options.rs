// SPDX-License-Identifier: MIT
//! What can be asked of a profile.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Arg, Args};
use quarry_measure::quantity;
use quarry_profile::query::{By, Choice, Sort};
use quarry_profile::read::Moment;
use quarry_profile::tree::Direction;
use regex_lite::Regex;

use crate::failure;
use crate::format::{Format, Makes, Reports};
use crate::places::Where;
use crate::quantity::{bytes, bytes_within, seconds};
use crate::record::{SAMPLE_MOST, Stacks};
use crate::under::Heap;
use crate::view::{FASTEST, SLOWEST};

/// Say where a program's memory is and was
///
/// Reads a trace in one pass, or records CMD first. With -p it samples a running process on Quarry. For each call site
/// the report has the bytes that were live at a moment, grew, were allocated, were temporary, or are live at the end,
/// and how long blocks lived. Numbers from a sample have an interval. With two traces the report has what changed.
#[derive(Args)]
#[command(after_help = EXAMPLES, mut_args(meant))]
pub struct ProfileOptions {
    /// The moment whose live bytes come first: peak, end, a time after the first event (1.5s, 300ms), or a part of the
    /// time (40%).
    ///
    /// A time may be in minutes (2m), and a bare number is seconds.
    #[arg(long, value_name = "T", default_value = "peak", value_parser = when)]
    pub at: When,
    /// Also show what changed between two moments, as 10s..20s, 25%..75% or 1m..end. Lasting growth then comes first.
    ///
    /// Either may be left out.
    #[arg(long, value_name = "A..B", value_parser = window)]
    pub window: Option<(Moment, Moment)>,
    /// What one row is
    #[arg(long, value_name = "WHAT", default_value = "site", value_parser = one_of(&By::ALL))]
    pub by: By,
    /// What comes first [default: live; with --window growth]
    #[arg(long, value_name = "WHAT", value_parser = one_of(&Sort::ALL))]
    pub sort: Option<Sort>,
    /// Rows of each table
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub top: u32,
    /// The calls as a tree instead of a table: from callers to sites, or from sites to callers
    #[arg(long, value_name = "WAY", num_args = 0..=1, require_equals = true, default_missing_value = "top-down", value_parser = one_of(&Direction::ALL))]
    pub tree: Option<Direction>,
    /// Only call stacks with a function or line that REGEX matches
    #[arg(long, value_name = "REGEX", value_parser = pattern)]
    pub filter: Option<Regex>,
    /// Count functions that REGEX matches as allocators: a block then comes from their callers. May be repeated
    #[arg(long, value_name = "REGEX")]
    pub hide: Vec<String>,
    /// Also show which sites keep pages that are partly unused, what size classes add, and how all adds up to what is resident. The
    /// trace is read twice
    #[arg(long)]
    pub waste: bool,
    /// Compare sets of runs, whose files are separated by commas
    #[arg(long, num_args = 2, value_names = ["A,A2,...", "B,B2,..."], conflicts_with_all = ["files", "command", "base"])]
    pub diff: Option<Vec<OsString>>,
    /// Compare with this trace. It comes first
    #[arg(long, value_name = "FILE")]
    pub base: Option<PathBuf>,
    /// Exit code 1 if more was live at the peak
    #[arg(long, value_name = "BYTES", value_parser = bytes, help_heading = LIMITS)]
    pub max_peak: Option<u64>,
    /// Exit code 1 after more allocations
    #[arg(long, value_name = "N", value_parser = bytes, help_heading = LIMITS)]
    pub max_allocs: Option<u64>,
    /// Exit code 1 if more is live at the end
    #[arg(long, value_name = "BYTES", value_parser = bytes, help_heading = LIMITS)]
    pub max_live_at_end: Option<u64>,
    /// Exit code 1 if sites have more live than in the base: 'site:REGEX +10%' or 'site:REGEX +4MiB'. May be repeated.
    ///
    /// What is live is compared at the moment of --at.
    #[arg(long, value_name = "RULE", help_heading = LIMITS)]
    pub fail_if: Vec<String>,
    /// Show addresses of code instead of the names of functions
    #[arg(long)]
    pub no_symbols: bool,
    #[command(flatten)]
    pub places: Where,
    #[command(flatten)]
    pub reports: Reports<Self>,
    /// How call stacks of CMD are recorded: of any code (cfi), only of code with frame pointers (fp), or not
    #[arg(short = 'g', long, value_name = "HOW", num_args = 0..=1, default_value = "cfi", default_missing_value = "cfi", help_heading = RECORDING)]
    pub stacks: Stacks,
    /// Sample this process, which must run on Quarry. It needs no other preparation, and is not stopped.
    ///
    /// This takes the right to trace it. The sampler in its library is switched on, and off again at the end or by a signal.
    /// A sampler that is on already (sample:BYTES in QUARRY_CONF) stays as it is.
    #[arg(short, long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..), help_heading = RECORDING,
          conflicts_with_all = ["files", "command", "diff", "with", "stacks"])]
    pub pid: Option<i32>,
    /// How long to sample PID [default: 30; with --live until you leave the view]
    #[arg(long = "for", value_name = "SECONDS", value_parser = seconds(0.01..=86_400.0), help_heading = RECORDING)]
    pub span: Option<Duration>,
    /// Show what PID has as a table, drawn anew each second. The key h explains the columns. The files of -o and
    /// --trace are written at the end, and when you press w.
    ///
    /// --by, --sort and -n say how it begins.
    #[arg(long, help_heading = LIVE)]
    pub live: bool,
    /// With --live: seconds from one frame to the next [default: 1]
    #[arg(short, long, value_name = "SECONDS", value_parser = seconds(FASTEST.as_secs_f64()..=SLOWEST.as_secs_f64()), help_heading = LIVE)]
    pub delay: Option<Duration>,
    /// With --live: print one frame as text. This needs no terminal. With --json a frame is a line, and without --once
    /// there is a line for each frame
    #[arg(long, help_heading = LIVE)]
    pub once: bool,
    /// With --live: end after N frames
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = LIVE)]
    pub frames: Option<u64>,
    /// Record only a sample: of CMD one allocation for every BYTES on average, of PID one for a power of two up to
    /// BYTES [default of PID: 512k at first, then as samples come]
    #[arg(long, value_name = "BYTES", value_parser = bytes_within(1..=SAMPLE_MOST), help_heading = RECORDING)]
    pub sample: Option<u64>,
    /// Keep the trace in this file.
    ///
    /// Without it the trace is removed.
    #[arg(long, value_name = "FILE", help_heading = RECORDING)]
    pub trace: Option<PathBuf>,
    /// Run CMD under this allocator: the name of one, a library, or as for quarry replay
    #[arg(long, value_name = "NAME|PATH", help_heading = RECORDING)]
    pub with: Option<String>,
    #[command(flatten)]
    pub heap: Heap,
    /// A trace in any format that quarry convert reads; - is standard input. With two, what changed from the first to the second
    #[arg(value_name = "FILE", num_args = 0..=2, required_unless_present_any = ["command", "diff", "pid", "live"], conflicts_with = "command")]
    pub files: Vec<PathBuf>,
    /// A command to record and report on
    #[arg(value_name = "CMD", last = true)]
    pub command: Vec<OsString>,
}

const LIMITS: &str = "Limits, for a test";
/// From one frame to the next, unless somebody says otherwise.
pub const DELAY: Duration = Duration::from_secs(1);

const RECORDING: &str = "Options for CMD and PID";
const LIVE: &str = "A view of PID on a terminal";

const EXAMPLES: &str = "Examples:
  quarry profile prog.qtr                          what was live at the peak, by call site
  quarry profile -- ./prog input                   record it, and then report
  quarry profile --sample 512k --trace run.qtr -- ./server
  quarry profile -p 4711 --for 30                  a running process on Quarry, sampled
  quarry profile -p 4711 --live                    the same as a table that changes
  quarry profile -p 4711 --live --json --for 60    a line of JSON each second
  quarry profile --window 10s..60s prog.qtr        what grew, and stayed
  quarry profile --tree=bottom-up --at end prog.qtr
  quarry profile --by thread --sort allocated prog.qtr
  quarry profile --waste prog.qtr                  which sites keep half-empty pages
  quarry profile -o prog.html prog.qtr             a page with a flame graph and a timeline
  quarry profile -o prog.pb.gz prog.qtr            for go tool pprof; also dhat, firefox, chrome, speedscope, massif, heaptrack, folded
  quarry profile before.qtr after.qtr              what changed
  quarry profile --diff a1.qtr,a2.qtr b1.qtr,b2.qtr
  quarry profile --base main.qtr --fail-if 'site:^parse_ +10%' --max-peak 200M -- ./test

Exit code: that of CMD; 0 without one; 1 when a limit is exceeded (and CMD ended with 0), or a FILE cannot be read; 128+N when signal N ended --live; else as for quarry.";

impl Makes for ProfileOptions {
    const VERB: &'static str = "profile";
    const FORMATS: &'static [Format] = &[
        Format::Text,
        Format::Json,
        Format::Html,
        Format::Collapsed,
        Format::Pprof,
        Format::Dhat,
        Format::Firefox,
        Format::Chrome,
        Format::Speedscope,
        Format::Massif,
        Format::Heaptrack,
    ];
    const ELSEWHERE: Option<(Format, &'static str)> =
        Some((Format::Qtr, "--trace FILE keeps the trace of PID or CMD"));
    const SCHEMA: &'static str = quarry_profile::SCHEMA;
}

/// A moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum When {
    Peak,
    End,
    At(Moment),
}

/// One of these.
fn one_of<T: Copy + Send + Sync + 'static>(all: &'static [Choice<T>]) -> impl TypedValueParser<Value = T> {
    let names = all.iter().map(|(_, name, help)| PossibleValue::new(*name).help(*help));
    // Other names are refused before.
    let find = move |name: String| all.iter().find(|choice| choice.1 == name).unwrap_or(&all[0]).0;
    PossibleValuesParser::new(names).map(find)
}

fn pattern(text: &str) -> Result<Regex, String> {
    Regex::new(text).map_err(|error| error.to_string())
}

/// "1.5s", "300ms", "2m", "40%"; a bare number is seconds.
fn moment(text: &str) -> Result<Moment, String> {
    let text = text.trim();
    let wrong =
        || format!("'{text}' is neither a time, as 1.5s, 300ms or 2m, nor a part of the time, as 40%");
    if let Some(percent) = text.strip_suffix('%') {
        let part = percent.trim().parse::<f64>().ok().filter(|part| (0.0..=100.0).contains(part));
        return part.map(|part| Moment::Part(part / 100.0)).ok_or_else(wrong);
    }
    let time = quantity::seconds(text).ok_or_else(wrong)?;
    Ok(Moment::After(time.as_nanos() as u64))
}

fn when(text: &str) -> Result<When, String> {
    match text {
        "peak" => Ok(When::Peak),
        "end" => Ok(When::End),
        text => moment(text).map(When::At).map_err(|error| format!("{error}, nor peak or end")),
    }
}

fn window(text: &str) -> Result<(Moment, Moment), String> {
    let (from, to) = text.split_once("..").ok_or_else(|| format!("'{text}' is not A..B, as 10s..20s"))?;
    let from = if from.trim().is_empty() { Moment::Part(0.0) } else { moment(from)? };
    let to = if matches!(to.trim(), "" | "end") { Moment::Part(1.0) } else { moment(to)? };
    Ok((from, to))
}

/// How to record says nothing of a trace that is there, and options of a heap nothing of one that is in use.
fn meant(arg: Arg) -> Arg {
    match arg.get_id().as_str() {
        "stacks" | "sample" | "trace" | "with" => arg.conflicts_with_all(["files", "diff"]),
        "conf" | "lib" => arg.conflicts_with_all(["files", "diff", "pid"]),
        _ => arg,
    }
}

/// The files of a side, separated by commas.
pub fn side(text: &OsString) -> Vec<PathBuf> {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let parts = text.as_bytes().split(|&byte| byte == b',').filter(|part| !part.is_empty());
    parts.map(|part| PathBuf::from(OsString::from_vec(part.to_vec()))).collect()
}

/// Options that mean something only with --live, and those that mean nothing with it.
pub fn check_live(options: &ProfileOptions) -> anyhow::Result<()> {
    if !options.live {
        let named = [
            (options.once, "--once"),
            (options.frames.is_some(), "--frames"),
            (options.delay.is_some(), "--delay"),
        ];
        return match named.iter().find(|(is_there, _)| *is_there) {
            Some((_, name)) => Err(failure::usage(format_args!("{name} is for --live"))),
            None => Ok(()),
        };
    }
    if options.pid.is_none() {
        return Err(failure::usage("--live is of a running process; name one with -p PID"));
    }
    let limits = [options.max_peak, options.max_allocs, options.max_live_at_end];
    if limits.iter().any(Option::is_some) || !options.fail_if.is_empty() || options.base.is_some() {
        return Err(failure::usage(
            "a view has no limits and no base; keep the trace with --trace, and ask that",
        ));
    }
    Ok(())
}

/// What is read and what is written, to be held against each other.
pub fn inputs(options: &ProfileOptions) -> Vec<PathBuf> {
    let sides = options.diff.iter().flatten().flat_map(side);
    options.files.iter().cloned().chain(options.base.clone()).chain(sides).collect()
}

/// The name for messages.
pub fn shown(path: &Path) -> String {
    quarry_input::name(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        options: ProfileOptions,
    }

    fn parse(words: &[&str]) -> Result<ProfileOptions, clap::Error> {
        Cli::try_parse_from(std::iter::once(&"profile").chain(words)).map(|cli| cli.options)
    }

    #[test]
    fn moments_are_read() {
        let ns = |text: &str| match moment(text) {
            Ok(Moment::After(ns)) => Some(ns),
            _ => None,
        };
        assert_eq!(
            (ns("1.5"), ns("1.5s"), ns("300ms"), ns("2m")),
            (Some(1_500_000_000), Some(1_500_000_000), Some(300_000_000), Some(120_000_000_000))
        );
        assert_eq!((ns("7us"), ns("9ns"), ns("1h")), (Some(7000), Some(9), Some(3_600_000_000_000)));
        assert_eq!(moment("25%"), Ok(Moment::Part(0.25)));
        for wrong in ["", "x", "-1s", "101%", "nan", "1.5x", "%"] {
            assert!(moment(wrong).is_err(), "{wrong}");
        }
        assert_eq!(window("..").unwrap(), (Moment::Part(0.0), Moment::Part(1.0)));
        assert!(window("1s").is_err() && window("1s..x").is_err() && when("peak") == Ok(When::Peak));
    }

    #[test]
    fn a_file_or_a_command_or_two_sides() {
        assert!(parse(&[]).is_err());
        assert_eq!(parse(&["a", "b"]).unwrap().files.len(), 2);
        assert!(parse(&["a", "b", "c"]).is_err() && parse(&["a", "--", "prog"]).is_err());
        let options = parse(&["-gfp", "--sample", "1k", "--", "prog", "--at"]).unwrap();
        assert!(options.command == ["prog", "--at"] && options.stacks == Stacks::Fp);
        let options = parse(&["--diff", "a,b", "c"]).unwrap();
        assert_eq!(inputs(&options), ["a", "b", "c"].map(PathBuf::from));
        assert!(parse(&["--diff", "a", "b", "c"]).is_err());
        assert!(parse(&["--tree", "a"]).unwrap().tree == Some(Direction::Down));
        assert!(parse(&["--tree=bottom-up", "a"]).unwrap().tree == Some(Direction::Up));
    }

    #[test]
    fn how_to_record_says_nothing_of_a_trace() {
        for option in ["--trace=t", "--sample=1k", "--with=jemalloc", "-gfp", "--conf=guard:256", "--lib=l"] {
            let is_refused = |words: &[&str]| parse(&[&[option], words].concat()).is_err();
            assert!(is_refused(&["a"]) && is_refused(&["--diff", "a", "b"]) && is_refused(&[]), "{option}");
            assert!(!is_refused(&["--base", "a", "--", "prog"]), "{option}");
        }
        assert!(parse(&["--lib=l", "-p", "7"]).is_err() && parse(&["--conf=guard:256", "-p", "7"]).is_err());
        assert!(parse(&["--trace=t", "--sample=1k", "-p", "7"]).is_ok());
    }
}
