// SPDX-License-Identifier: MIT
//! quarry record: a command, and what it does with memory on file.

mod aside;
mod count;
mod name;
mod remarks;
mod slowdown;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, ValueEnum};
use quarry_measure::peers::Installed;
use quarry_measure::preload::Conf;
use quarry_measure::signals::Forwarding;
use quarry_measure::wish::{self, Candidate};
use quarry_measure::{elf, live, locate, preload, spawn};
use quarry_report::record::Report;

use crate::cli::Heap;
use crate::output::{Output, Place};
use crate::{failure, under};
use name::Name;
use remarks::Obstacles;

/// The library that records.
const RECORDER: &str = "libquarry-record.so";
/// The variable it reads.
const VARIABLE: &str = "QUARRY_RECORD";

/// Record what a command does with memory
///
/// Every allocation and free of the command goes to a file, with threads, times and, if wanted, call stacks, whatever
/// malloc it uses; quarry info and quarry replay read it. The command has the terminal, its signals are its own, and
/// its exit code is passed on. The file can be read even if the command is killed.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct RecordOptions {
    #[command(flatten)]
    heap: Heap,
    /// Record call stacks: of any code (cfi), or only of code that keeps frame pointers (fp), which costs less. Alone
    /// it means cfi; if it comes last, -- must follow
    #[arg(short = 'g', long, value_name = "HOW", num_args = 0..=1, default_value = "none", default_missing_value = "cfi")]
    stacks: Stacks,
    /// The trace; %p is the process id, %e the program, %t the time [default: quarry.%e.%p.qtr]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Record only a sample: an allocation for every BYTES on average, and what becomes of it
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    sample: Option<u64>,
    /// Record the processes that the command starts, too, each in a trace of its own
    #[arg(long, overrides_with = "no_follow")]
    follow: bool,
    /// Record the command alone (the default)
    #[arg(long, overrides_with = "follow")]
    no_follow: bool,
    /// Run the command under this allocator: the name of one, a library, or as for quarry replay
    #[arg(long, value_name = "NAME|PATH")]
    with: Option<String>,
    /// Afterwards run the command N times without and N times with the recorder, in turns, with its output taken
    /// away, and say what recording costs [default N: 5]
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "5",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    measure: Option<u32>,
    /// Run the command even if nothing of it can be recorded
    #[arg(long)]
    anyway: bool,
    /// The summary as JSON (schema quarry-record/1)
    #[arg(long)]
    json: bool,
    /// Write the summary there instead of to standard error; - is standard output
    #[arg(long, value_name = "FILE")]
    summary: Option<PathBuf>,
    /// The command and its arguments
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true)]
    command: Vec<OsString>,
}

impl RecordOptions {
    /// Is the summary wanted in any case?
    fn asks(&self) -> bool {
        self.json || self.summary.is_some()
    }
}

const EXAMPLES: &str = "Examples:
  quarry record -- ./prog input                  to quarry.prog.PID.qtr
  quarry record -g -o prog.qtr -- ./prog         with call stacks
  quarry record --follow -o t/%e.%p.qtr -- make  all that make starts
  quarry record --with jemalloc -- ./prog        on another allocator
  quarry record --sample 512k -- ./server        little cost, for long runs
  quarry record --measure -- ./prog input        and what recording costs

Exit code: that of the command, 128+N when signal N ended it; 125 quarry itself failed,
or nothing could have been recorded; else as for quarry.";

/// How call stacks are taken.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Stacks {
    /// Not at all
    None,
    /// By frame pointers
    Fp,
    /// By the tables for exceptions, which all code has
    Cfi,
}

impl Stacks {
    fn name(self) -> &'static str {
        match self {
            Stacks::None => "none",
            Stacks::Fp => "fp",
            Stacks::Cfi => "cfi",
        }
    }
}

/// 4096, 512k, 1M, 1MiB.
fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.strip_suffix("iB").or(unit.strip_suffix('B')).unwrap_or(unit);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        _ => return Err(String::from("not a number of bytes, as 4096, 512k or 1M")),
    };
    let bytes = number.parse::<u64>().ok().and_then(|n| n.checked_mul(1 << shift));
    // The recorder's own bound.
    bytes
        .filter(|&n| n > 0 && n <= i64::MAX as u64 / 64)
        .ok_or_else(|| String::from("must be from 1 byte to 2^57"))
}

/// Everything that a recorded run needs.
struct Plan {
    recorder: PathBuf,
    preload: OsString,
    /// The environment without the recorder: the allocator, if there is one.
    plain_preload: Option<OsString>,
    conf: Conf,
    /// QUARRY_RECORD behind the file.
    how: String,
}

impl Plan {
    fn new(options: &RecordOptions) -> anyhow::Result<Self> {
        let lib = options.heap.lib.as_deref();
        let recorder = locate::companion(RECORDER, lib)?.path;
        let mut conf = under::merged_conf(&options.heap.conf());
        let existing = under::existing_preload();
        let mut plain_preload = None;
        if let Some(wish) = &options.with {
            let granted = wish::grant(wish, &Installed::scan(), lib);
            let Candidate { library, conf: own, .. } = granted.map_err(|error| match error.is_usage() {
                true => failure::usage(error),
                false => error.into(),
            })?;
            conf = conf.merge(&own);
            plain_preload = library.map(|library| under::preload_value(&library.path)).transpose()?;
        }
        // The recorder is asked first, and asks whoever comes next.
        let behind = plain_preload.clone().or(existing);
        let preload = preload::ld_preload(&recorder, behind.as_deref())?;
        let mut how =
            format!(",stacks:{},follow:{}", options.stacks.name(), if options.follow { "on" } else { "off" });
        if let Some(sample) = options.sample {
            how += &format!(",sample:{sample}");
        }
        Ok(Self { recorder, preload, plain_preload, conf, how })
    }

    /// QUARRY_RECORD for traces of this name.
    fn variable(&self, name: &Name) -> OsString {
        let mut value = OsString::from("file:");
        value.push(name.for_recorder());
        value.push(&self.how);
        value
    }

    /// The command under the recorder.
    fn recorded(&self, line: &[OsString], variable: &OsString) -> Command {
        let mut command = under::command(line);
        command.env("LD_PRELOAD", &self.preload).env(VARIABLE, variable);
        under::set_conf(&mut command, &self.conf);
        command
    }

    /// The same command on the same allocator without it.
    fn plain(&self, line: &[OsString]) -> Command {
        let mut command = under::command(line);
        command.env_remove(VARIABLE);
        if let Some(preload) = &self.plain_preload {
            command.env("LD_PRELOAD", preload);
        }
        under::set_conf(&mut command, &self.conf);
        command
    }
}

/// Run the command; the exit code is its own.
pub fn main(options: &RecordOptions, output: &Output) -> anyhow::Result<i32> {
    let command = &options.command[0];
    let program = under::resolve(command).map_err(|error| failure::not_started(command, &error))?;
    output.expect(&Place::of(options.summary.as_deref(), Place::Stderr))?;
    let plan = Plan::new(options)?;
    let mut name = Name::new(options.output.as_deref(), options.follow)?;
    let obstacles = Obstacles::find(&program, &plan.recorder);
    if let Some(reason) = obstacles.total().filter(|_| !options.follow && !options.anyway) {
        anyhow::bail!("{reason}\nNothing would be recorded, so it was not run; --anyway runs it");
    }
    for sentence in obstacles.sentences() {
        output.warn(sentence);
    }
    foresee(&program.binary, &plan, output);
    let variable = plan.variable(&name);
    output.detail(format_args!("LD_PRELOAD={}", Path::new(&plan.preload).display()));
    output.detail(format_args!("{VARIABLE}={}", Path::new(&variable).display()));

    let forwarding = Forwarding::all();
    let mut recorded = plan.recorded(&options.command, &variable);
    let aside = name.make_room()?;
    let started = spawn::start(&mut recorded).map_err(|error| failure::not_started(command, &error))?;
    aside.remove();
    let ran = started.wait()?;
    drop(forwarding);

    if output.is_quiet() && !options.asks() {
        return Ok(ran.end.code());
    }
    let (counted, refused) = count::count(&name, ran.pid, output);
    let mut notes = remarks::after(options.follow, &program, &ran, &counted, &obstacles);
    notes.extend(refused);
    let slowdown = options.measure.and_then(|rounds| {
        let measured =
            slowdown::measure(rounds, &options.command, &plan, &name, options.follow, ran.end, output);
        measured.map_err(|error| notes.push(format!("the slow-down was not measured: {error:#}"))).ok()
    });
    let report = Report {
        command: under::words(&options.command),
        recorder: plan.recorder.display().to_string(),
        end: ran.end,
        usage: ran.usage,
        stacks: options.stacks.name().to_owned(),
        sample: options.sample.unwrap_or(0),
        follow: options.follow,
        traces: counted.into_iter().map(|counted| counted.recorded).collect(),
        slowdown,
        notes,
    };
    summarize(options, output, &report);
    Ok(ran.end.code())
}

/// What the program's own dynamic linker says about the recorder. It is asked, since its reasons are many: a C library that is
/// too old, a library that is missing.
fn foresee(binary: &Path, plan: &Plan, output: &Output) {
    let Ok(Some(elf::Facts { interpreter: Some(linker), .. })) = elf::read(binary) else { return };
    if let Ok(live::DryRun::Refuses(reason)) = live::dry_run(&linker, binary, &plan.preload, &plan.recorder) {
        output.warn(format_args!("{} will not load the recorder: {reason}", binary.display()));
    }
}

/// The command has run and its exit code counts, whatever becomes of the summary.
fn summarize(options: &RecordOptions, output: &Output, report: &Report) {
    let place = Place::of(options.summary.as_deref(), Place::Stderr);
    if output.is_quiet() && !options.asks() {
        return;
    }
    let text = match options.json {
        true => format!("{:#}\n", report.json()),
        false => report.text(output.style(&place)),
    };
    if let Err(error) = output.report(&place, &text) {
        output.error(&error);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        options: RecordOptions,
    }

    fn parse(words: &[&str]) -> Result<RecordOptions, clap::Error> {
        Cli::try_parse_from(std::iter::once(&"record").chain(words)).map(|cli| cli.options)
    }

    #[test]
    fn stacks_have_a_default() {
        let how = |words: &[&str]| parse(words).map(|options| options.stacks.name()).ok();
        assert_eq!(how(&["--", "prog"]), Some("none"));
        assert_eq!(how(&["-g", "--", "prog"]), Some("cfi"));
        assert_eq!(how(&["-g", "fp", "prog"]), Some("fp"));
        assert_eq!(how(&["-gfp", "prog", "-g"]), Some("fp"));
        assert_eq!(how(&["-gcfi", "-o", "x", "prog"]), Some("cfi"));
        assert_eq!(how(&["-g", "-o", "x", "prog"]), Some("cfi"));
        assert_eq!(how(&["--stacks", "none", "prog"]), Some("none"));
        assert_eq!(how(&["-g", "prog"]), None);
    }

    #[test]
    fn the_last_word_about_children_counts() {
        assert!(!parse(&["prog"]).unwrap().follow);
        assert!(parse(&["--no-follow", "--follow", "prog"]).unwrap().follow);
        assert!(!parse(&["--follow", "--no-follow", "prog"]).unwrap().follow);
        assert_eq!(parse(&["--measure", "prog"]).unwrap().measure, Some(5));
        assert_eq!(parse(&["--measure=9", "prog"]).unwrap().measure, Some(9));
    }

    #[test]
    fn sizes() {
        assert_eq!(parse_bytes("4096"), Ok(4096));
        assert_eq!(parse_bytes("512k"), Ok(512 << 10));
        assert_eq!(parse_bytes("512KiB"), Ok(512 << 10));
        assert_eq!(parse_bytes("2M"), Ok(2 << 20));
        assert_eq!(parse_bytes("1GB"), Ok(1 << 30));
        for text in ["", "0", "-1", "k", "1.5M", "1kk", "99999999999999G"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }
}
