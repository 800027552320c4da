// SPDX-License-Identifier: MIT
//! quarry record: a command, and what it does with memory on file.

mod aside;
mod count;
mod finish;
mod name;
mod pack;
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
use quarry_report::record::Report as Recording;

use crate::failure;
use crate::format::{Format, Makes, Product, Report};
use crate::output::{Output, Place};
use crate::quantity::bytes_within;
use crate::under::{self, Heap};
use name::Name;
use remarks::Obstacles;

/// The library that records.
pub const RECORDER: &str = "libquarry-record.so";
/// The longest distance of samples, which is the recorder's own bound.
pub const SAMPLE_MOST: u64 = i64::MAX as u64 / 64;
/// The variable it reads.
pub const VARIABLE: &str = "QUARRY_RECORD";

/// Record what a command does with memory
///
/// Writes every allocation and free of the command to a file, with threads, times and, if wanted, call stacks, whatever
/// malloc the command uses. quarry info, profile and replay read the file, even if the command is killed. The command
/// has the terminal, its signals go to it, and its exit code is passed on.
#[derive(Args)]
#[command(after_help = EXAMPLES, mut_arg("output", |output| output.help(TRACE).long_help(format!("{TRACE}{OF_TRACES}"))))]
pub struct RecordOptions {
    #[command(flatten)]
    heap: Heap,
    /// Record call stacks: of any code (cfi), or only of code that keeps frame pointers (fp), which costs less. Without
    /// a value it means cfi. If it is the last option, -- must follow
    #[arg(short = 'g', long, value_name = "HOW", num_args = 0..=1, default_value = "none", default_missing_value = "cfi")]
    stacks: Stacks,
    #[command(flatten)]
    product: Product<Self>,
    /// Record only a sample: one allocation for every BYTES on average, with its free
    #[arg(long, value_name = "BYTES", value_parser = bytes_within(1..=SAMPLE_MOST))]
    sample: Option<u64>,
    /// Also record the processes that the command starts, each in a trace of its own.
    ///
    /// The name of the trace must have %p in it.
    #[arg(long, overrides_with = "no_follow")]
    follow: bool,
    /// Record the command alone (the default)
    #[arg(long, overrides_with = "follow")]
    no_follow: bool,
    /// Run the command under this allocator: the name of one, a library, or as for quarry replay
    #[arg(long, value_name = "NAME|PATH")]
    with: Option<String>,
    /// Then run the command N times without and N times with the recorder, in turns and with its output discarded, and
    /// show what recording costs [default N: 5]
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "5",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    measure: Option<u32>,
    /// With -g: put the names of functions into the trace at the end, so that any machine can show them
    #[arg(long)]
    symbolize: bool,
    /// Run the command even if nothing of it can be recorded
    #[arg(long)]
    anyway: bool,
    /// Write the summary as JSON (schema quarry-record/1), whatever the file of --summary ends in
    #[arg(long)]
    json: bool,
    /// Write the summary there instead of to standard error; - is standard output. The ending says the format
    #[arg(long, value_name = "FILE")]
    summary: Option<PathBuf>,
    /// Another verb wants the traces: it says what is to be said.
    #[arg(skip)]
    for_verb: bool,
    /// The command and its arguments
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true)]
    command: Vec<OsString>,
}

const TRACE: &str =
    "The trace; %p is the process id, %e the program, %t the time [default: quarry.%e.%p.qtr]";
const OF_TRACES: &str = ".

The time is in seconds since 1970, and %% is a percent sign. Once the command has been started, the trace replaces an older \
one of that name, with those of the later programs of its process (FILE.2, ...). It does not replace any other file.";

/// What another verb asks for.
pub struct Wanted<'a> {
    pub heap: &'a Heap,
    pub stacks: Stacks,
    pub sample: Option<u64>,
    pub with: Option<&'a str>,
    pub trace: &'a Path,
    pub command: &'a [OsString],
}

/// What a recording left.
pub struct Left {
    /// The exit code of the command.
    pub code: i32,
    /// The largest trace, if there is one.
    pub trace: Option<PathBuf>,
}

impl RecordOptions {
    fn of(wanted: &Wanted) -> Self {
        Self {
            heap: wanted.heap.clone(),
            stacks: wanted.stacks,
            product: Product::of(wanted.trace),
            sample: wanted.sample,
            follow: false,
            no_follow: false,
            with: wanted.with.map(str::to_owned),
            measure: None,
            symbolize: false,
            anyway: false,
            json: false,
            summary: None,
            for_verb: true,
            command: wanted.command.to_vec(),
        }
    }

    /// The command and its arguments.
    pub fn command(&self) -> &Vec<OsString> {
        &self.command
    }

    /// Is the summary wanted in any case?
    fn asks(&self) -> bool {
        self.json || self.summary.is_some()
    }

    /// Where the summary goes, and as what.
    fn report(&self) -> anyhow::Result<Report<'_>> {
        let file = self.summary.as_deref();
        let format = match file {
            _ if self.json => Some(Format::Json),
            Some(path) => Summary::format_of(path)?,
            None => None,
        };
        Ok(Report { place: Place::of(file, Place::Stderr), format: format.unwrap_or(Format::Text) })
    }

    /// An error if a file cannot have the format that its ending says.
    pub fn check(&self) -> anyhow::Result<()> {
        self.product.check()?;
        self.report().map(drop)
    }
}

/// What is said of a recording.
struct Summary;

impl Makes for Summary {
    const VERB: &'static str = "record --summary";
    const FORMATS: &'static [Format] = &[Format::Text, Format::Json];
}

impl Makes for RecordOptions {
    const VERB: &'static str = "record";
    const FORMATS: &'static [Format] = &[Format::Qtr];
    const PACKS: bool = true;
}

const EXAMPLES: &str = "Examples:
  quarry record -- ./prog input                  to quarry.prog.PID.qtr
  quarry record -g -o prog.qtr -- ./prog         with call stacks
  quarry record --follow -o t/%e.%p.qtr -- make  all that make starts
  quarry record --with jemalloc -- ./prog        on another allocator
  quarry record -g --symbolize -- ./prog         with names in the trace, for another machine
  quarry record --sample 512k -- ./server        little cost, for long runs
  quarry record --measure -- ./prog input        and what recording costs

Exit code: that of the command, 128+N when signal N ended it; 125 when quarry itself failed,
or nothing could have been recorded; else as for quarry.";

/// How call stacks are taken.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Stacks {
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
    run(options, output).map(|left| left.code)
}

/// Record for another verb.
pub fn record(wanted: &Wanted, output: &Output) -> anyhow::Result<Left> {
    run(&RecordOptions::of(wanted), output)
}

fn run(options: &RecordOptions, output: &Output) -> anyhow::Result<Left> {
    let command = &options.command[0];
    let program = under::resolve(&options.command).map_err(|error| failure::not_started(command, &error))?;
    output.expect(&options.report()?.place)?;
    let plan = Plan::new(options)?;
    let mut name = Name::new(options.product.file(), options.follow)?;
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

    let (mut counted, refused) = count::count(&name, ran.pid, output);
    finish::end(&ran, &mut counted);
    let unnamed = finish::names(options.symbolize, &counted);
    let unpacked = pack::pack(&name, &mut counted);
    let most = counted.iter().max_by_key(|counted| (!counted.recorded.is_empty(), counted.recorded.bytes));
    let left = Left { code: ran.end.code(), trace: most.map(|counted| counted.path.clone()) };
    if output.is_quiet() && !options.asks() {
        return Ok(left);
    }
    let mut notes = remarks::after(options.follow, &program, &ran, &counted, &obstacles);
    notes.extend(refused);
    notes.extend(unnamed);
    notes.extend(unpacked);
    if options.for_verb {
        notes.iter().for_each(|note| output.warn(note));
        return Ok(left);
    }
    let slowdown = options.measure.and_then(|rounds| {
        let measured =
            slowdown::measure(rounds, &options.command, &plan, &name, options.follow, ran.end, output);
        measured
            .map_err(|error| {
                notes.push(format!("the slow-down was not measured: {}", failure::words(&error)))
            })
            .ok()
    });
    let recording = Recording {
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
    if let Err(error) = summarize(options, output, &recording) {
        output.error(&error);
    }
    Ok(left)
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
fn summarize(options: &RecordOptions, output: &Output, recording: &Recording) -> anyhow::Result<()> {
    if output.is_quiet() && !options.asks() {
        return Ok(());
    }
    let Report { place, format } = options.report()?;
    let text = match format {
        Format::Json => format!("{:#}\n", recording.json()),
        _ => recording.text(output.style(&place)),
    };
    output.report(&place, &text)
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
}
