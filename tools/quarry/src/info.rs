// SPDX-License-Identifier: MIT
//! quarry info: what is in a trace of allocations.

mod now;
mod profile;
mod sites;

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use quarry_report::info::{self, Info};
use quarry_symbols::{Folding, Symbols};
use quarry_trace::analysis::{Analysis, Summary};
use quarry_trace::sample::Sampling;
use quarry_trace::{Damage, StackTree, Trace};

use crate::format::{Format, Makes, Reports};
use crate::opened::{Opened, Whole};
use crate::output::{Output, Place};
use crate::places::Where;
use crate::{failure, inputs, later};

pub use now::Processes;

/// From this length on a trace takes long enough for a progress bar.
const LONG: u64 = 32 << 20;
/// Events between two moves of the bar.
const PERIOD: u64 = 1 << 18;
/// The exit code when a trace is damaged and that matters.
const DAMAGED: i32 = 1;

/// Say what is in a trace of allocations
///
/// Shows sizes, lifetimes, live memory, call sites, threads and pools. The trace may be from quarry record or gen, or
/// of any other format that quarry convert reads (ms, jsonl, heaptrack, mtrace), packed or not. For the profiles of
/// massif, gperftools and jemalloc it shows snapshots and call stacks. The memory that this takes grows with the live
/// blocks of the trace, not with its length.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct InfoOptions {
    /// Exit with 1 if the trace was cut off or is damaged, instead of a warning alone
    #[arg(long)]
    pub strict: bool,
    /// Rows of each table
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub top: u32,
    /// Show every call stack of a site, with all of its frames
    #[arg(long)]
    pub stacks: bool,
    /// Count functions that REGEX matches as allocators: the site of a block is then their caller. May be repeated.
    ///
    /// REGEX is looked for in the name, and in the text of the frame: f at a.c:3, or libx.so+0x12.
    #[arg(long, value_name = "REGEX")]
    pub hide: Vec<String>,
    /// Show addresses of code instead of the names of functions
    #[arg(long)]
    pub no_symbols: bool,
    #[command(flatten)]
    pub files: Where,
    #[command(flatten)]
    pub reports: Reports<Self>,
    /// The trace; - is standard input
    #[arg(value_name = "FILE")]
    pub trace: PathBuf,
}

impl Makes for InfoOptions {
    const VERB: &'static str = "info";
    const FORMATS: &'static [Format] = &[Format::Text, Format::Json];
    const SCHEMA: &'static str = "quarry-info/1";
}

const EXAMPLES: &str = "Examples:
  quarry info prog.qtr
  quarry info -n 30 prog.qtr                more rows in each table
  quarry info --stacks prog.qtr             every call stack of each site
  quarry info --hide '^arena_' prog.qtr     blocks of arena_take count for its callers
  quarry info --json prog.qtr | jq .live    the same as JSON
  quarry info --strict prog.qtr             fail if it was cut off or damaged
  quarry info heaptrack.prog.1234.zst       a file of another tool

Exit code: 0; 1 when FILE cannot be read, or with --strict not all of it.";

/// Read and report; the exit code says whether all could be read, for those who want to know.
pub fn main(options: &InfoOptions, output: &Output) -> anyhow::Result<i32> {
    inputs::spare([&options.trace], options.reports.files())?;
    let folding = hiding(&options.hide)?;
    let failed = |error: anyhow::Error| failure::failed(failure::words(&error));
    let mut opened = Opened::open_any(&options.trace, None, true).map_err(failed)?;
    if opened.format.is_profile() {
        return of_profile(&mut opened, options, output);
    }
    let Whole { trace, name, remarks, damaged } = opened.into_trace().map_err(failed)?;
    if let Some(remark) = later::remark(&options.trace, &trace) {
        output.note(format_args!("{name}: {remark}"));
    }
    let Read { summary, damage, stacks } = read(&name, &trace, options.top as usize, output)?;
    let mut named = sites::Named::default();
    if !stacks.is_empty() {
        output.detail(format_args!("looking up the names of {} call stacks", summary.sites.len()));
        let mut symbols = Symbols::of_trace(&trace, summary.modules.clone(), options.files.places());
        if options.no_symbols {
            symbols.without_names();
        }
        let how = sites::How { all: options.stacks, folding };
        named = sites::name(&summary, &stacks, symbols, &how);
        for missing in &named.missing {
            output.detail(format_args!("no symbols: {missing}"));
        }
    }
    let info = Info {
        file: &name,
        trace: &trace,
        summary: &summary,
        damage: &damage,
        source_damaged: damaged,
        sites: &named.sites,
        missing: &named.missing,
        top: options.top as usize,
        now: trace.end().is_none().then(|| now::find(&options.trace, trace.head())).flatten(),
        all_stacks: options.stacks,
    };
    output.reports(&options.reports.all(Place::Stdout)?, |wish| {
        Ok(match wish.format {
            Format::Json => format!("{:#}\n", info::json(&info)),
            _ => info::text(&info, output.style(&wish.place)),
        })
    })?;
    let complaints = info.complaints();
    for complaint in &complaints {
        output.warn(complaint);
    }
    for remark in remarks {
        output.warn(format_args!("{}: {remark}", info.file));
    }
    Ok(if options.strict && (damaged || !complaints.is_empty()) { DAMAGED } else { 0 })
}

/// The same of a profile of another tool.
fn of_profile(opened: &mut Opened, options: &InfoOptions, output: &Output) -> anyhow::Result<i32> {
    if !options.hide.is_empty() {
        return Err(failure::usage("--hide is about traces; the stacks of a profile are shown as they are"));
    }
    let named = |symbols: Symbols| {
        let mut symbols = symbols.in_places(options.files.places());
        if options.no_symbols {
            symbols.without_names();
        }
        symbols
    };
    let read = opened.profile(named).map_err(|error| failure::failed(failure::words(&error)))?;
    let Some(profile) = read else { return Ok(0) };
    let (file, format) = (&opened.name, opened.format);
    let about =
        profile::About { file, format, profile: &profile, top: options.top as usize, all: options.stacks };
    output.reports(&options.reports.all(Place::Stdout)?, |wish| {
        Ok(match wish.format {
            Format::Json => format!("{:#}\n", about.json()),
            _ => about.text(output.style(&wish.place)),
        })
    })?;
    for remark in &profile.remarks {
        output.warn(format_args!("{file}: {remark}"));
    }
    Ok(if options.strict && profile.damaged { DAMAGED } else { 0 })
}

/// Does the process go on that writes this trace?
pub fn runs(path: &Path, trace: &Trace) -> bool {
    trace.end().is_none() && now::find(path, trace.head()).is_some()
}

/// What `--hide` folds, beside what is folded anyway.
pub fn hiding(patterns: &[String]) -> anyhow::Result<Folding> {
    Folding::hiding(patterns).map_err(|error| failure::usage(format_args!("--hide {error}")))
}

/// What was read.
struct Read {
    summary: Summary,
    damage: Damage,
    stacks: StackTree,
}

fn read(name: &str, trace: &Trace, top: usize, output: &Output) -> anyhow::Result<Read> {
    let shown = trace.bytes() >= LONG && !output.is_quiet() && io::stderr().is_terminal();
    let progress = if shown { bar(trace.bytes()) } else { ProgressBar::hidden() };
    let mut analysis = Analysis::of(Sampling::of(trace.head()));
    let mut events = trace.events().keep_stacks();
    while let Some(event) = events.next_with(|address| analysis.tracker().is_live(address)) {
        let event = event.map_err(|error| failure::failed(format_args!("{name}: {error}")))?;
        analysis.add(&event);
        if analysis.events().is_multiple_of(PERIOD) && shown {
            progress.set_position(events.bytes_read());
            let millions = analysis.events() as f64 / 1e6;
            let rate = millions / progress.elapsed().as_secs_f64().max(1e-3);
            progress.set_message(format!("{millions:.1} M events, {rate:.1} M in a second"));
        }
    }
    progress.finish_and_clear();
    let stacks = events.take_stacks();
    let mut damage = trace.damage().clone();
    damage.merge(events.damage());
    Ok(Read { summary: analysis.finish(top), damage, stacks })
}

fn bar(bytes: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {bytes} of {total_bytes}, {msg}, {eta} left");
    ProgressBar::new(bytes).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
