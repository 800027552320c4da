// SPDX-License-Identifier: MIT
//! quarry profile: where a program's memory is and was.

mod live;
mod loaded;
mod modules;
mod options;
mod running;

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use quarry_measure::quantity;
use quarry_profile::diff::{self, Diff, Named, Run};
use quarry_profile::export::{self, Lazy};
use quarry_profile::gate::{self, Growth, Limit, Outcome};
use quarry_profile::query::{self, At, By, Query, Sort};
use quarry_profile::read::Moment;
use quarry_profile::report::Report;
use quarry_profile::{page, waste};
use quarry_synth::convert::heaptrack::HeaptrackSink;
use quarry_synth::convert::massif_write::MassifSink;
use quarry_synth::convert::qtr::QtrSource;
use quarry_synth::convert::{self, Sink, Source};
use quarry_trace::Trace;
use serde_json::{Value, json};

use crate::format::{Format, Report as Wish};
use crate::output::{Output, Place};
use crate::record::{self, Wanted};
use crate::{failure, inputs};
use loaded::Loaded;
use options::When;

pub use options::ProfileOptions;

/// The exit code when a limit is exceeded.
const EXCEEDED: i32 = 1;

/// Record if need be, read, and report.
pub fn main(options: &ProfileOptions, output: &Output) -> anyhow::Result<i32> {
    let read = options::inputs(options);
    let written = options.reports.files().iter().chain(&options.trace);
    inputs::spare(&read, written)?;
    let reports = if options.live { Vec::new() } else { options.reports.all(Place::Stdout)? };
    let rules = rules(options)?;
    // clap asks for no option that conflicts with what is there.
    if options.span.is_some() && options.pid.is_none() {
        return Err(failure::usage("--for is how long a process is sampled; name one with -p PID"));
    }
    crate::info::hiding(&options.hide)?;
    options::check_live(options)?;
    if options.live {
        return live::main(options, output);
    }
    if options.command.is_empty() && options.pid.is_none() {
        return report(options, &rules, &options.files, output);
    }
    output.expect_all(&reports)?;
    let folder =
        tempfile::tempdir().context("cannot make a temporary folder; set TMPDIR to one that is writable")?;
    let trace = options.trace.clone().unwrap_or_else(|| folder.path().join("trace.qtr"));
    if let Some(pid) = options.pid {
        running::sample(
            &running::Wanted { pid, mean: options.sample, span: options.span.unwrap_or(running::SPAN) },
            &trace,
            output,
        )?;
        return report(options, &rules, &[trace], output);
    }
    let left = record::record(
        &Wanted {
            heap: &options.heap,
            stacks: options.stacks,
            sample: options.sample,
            with: options.with.as_deref(),
            trace: &trace,
            command: &options.command,
        },
        output,
    )?;
    let Some(trace) = left.trace else {
        output.warn("nothing was recorded, so there is no profile");
        return Ok(if left.code == 0 { failure::OURS } else { left.code });
    };
    // The command has run, and its exit code counts.
    let code = report(options, &rules, &[trace], output).unwrap_or_else(|error| {
        output.error(&error);
        failure::code_of(&error)
    });
    Ok(if left.code == 0 { code } else { left.code })
}

/// What `--fail-if` says. An option that says nothing of a comparison is refused beside one.
fn rules(options: &ProfileOptions) -> anyhow::Result<Vec<Growth>> {
    let compared = options.base.is_some() || options.diff.is_some() || options.files.len() == 2;
    for (given, option) in [
        (options.window.is_some(), "--window"),
        (options.sort.is_some(), "--sort"),
        (options.tree.is_some(), "--tree"),
        (options.waste, "--waste"),
    ] {
        if given && compared {
            return Err(failure::usage(format_args!("{option} says nothing of a comparison; leave it out")));
        }
    }
    if !options.fail_if.is_empty() && !compared {
        return Err(failure::usage("--fail-if compares with a base: name it with --base FILE, or two FILEs"));
    }
    let parse = |text: &String| Growth::parse(text, quantity::bytes);
    let rules = options.fail_if.iter().map(parse).collect::<Result<_, _>>();
    rules.map_err(|error| failure::usage(format_args!("--fail-if {error}")))
}

/// Two sides, or one trace.
fn report(
    options: &ProfileOptions,
    rules: &[Growth],
    files: &[PathBuf],
    output: &Output,
) -> anyhow::Result<i32> {
    let (before, after): (Vec<PathBuf>, Vec<PathBuf>) = match (&options.diff, &options.base, files) {
        (Some(sides), ..) => (options::side(&sides[0]), options::side(&sides[1])),
        (_, Some(base), files) => (vec![base.clone()], files.to_vec()),
        (_, _, [first, second]) => (vec![first.clone()], vec![second.clone()]),
        (_, _, files) => return single(options, &files[0], &options.reports.all(Place::Stdout)?, output),
    };
    if before.is_empty() || after.is_empty() {
        return Err(failure::usage("--diff: each side needs a file"));
    }
    if options.base.is_some() && after.len() > 1 {
        return Err(failure::usage("--base is one of two sides; name one FILE"));
    }
    compare(options, rules, &before, &after, output)
}

/// The times, in ticks, at which sums are kept: that of `--at`, and those of `--window`.
fn moments(options: &ProfileOptions, trace: &Trace) -> Vec<u64> {
    let at = match options.at {
        When::At(moment) => Some(moment),
        When::Peak | When::End => None,
    };
    let window = options.window.into_iter().flat_map(|(from, to)| [from, to]);
    let mut ticks: Vec<u64> = at.into_iter().chain(window).map(|moment| moment.ticks(trace)).collect();
    ticks.sort_unstable();
    ticks.dedup();
    ticks
}

/// What is asked of a trace with these moments.
fn query(options: &ProfileOptions, trace: &Trace, moments: &[u64]) -> anyhow::Result<Query> {
    let number = |moment: Moment| moments.binary_search(&moment.ticks(trace)).unwrap_or_default();
    let window = options.window.map(|(from, to)| (number(from), number(to)));
    if window.is_some_and(|(from, to)| from > to) {
        return Err(failure::usage("--window A..B: B is before A"));
    }
    let leads = if window.is_some() { Sort::Growth } else { Sort::Live };
    Ok(Query {
        at: at(options, trace, moments),
        window,
        by: options.by,
        sort: options.sort.unwrap_or(leads),
        filter: options.filter.clone(),
        top: options.top as usize,
    })
}

fn at(options: &ProfileOptions, trace: &Trace, moments: &[u64]) -> At {
    match options.at {
        When::Peak => At::Peak,
        When::End => At::End,
        When::At(moment) => At::Moment(moments.binary_search(&moment.ticks(trace)).unwrap_or_default()),
    }
}

fn limits(options: &ProfileOptions) -> Vec<Limit> {
    let peak = options.max_peak.map(Limit::Peak);
    let allocs = options.max_allocs.map(Limit::Allocations);
    peak.into_iter().chain(allocs).chain(options.max_live_at_end.map(Limit::LiveAtEnd)).collect()
}

fn code(gates: &[Outcome]) -> i32 {
    if gates.iter().all(|gate| gate.kept) { 0 } else { EXCEEDED }
}

fn single(options: &ProfileOptions, file: &Path, reports: &[Wish], output: &Output) -> anyhow::Result<i32> {
    let (trace, name) = loaded::open(file, output)?;
    let moments = moments(options, &trace);
    let query = query(options, &trace, &moments)?;
    let division = query.by.division();
    let Loaded { name, trace, profile, calls, missing } =
        loaded::load((trace, name), options, (division, &moments), output)?;
    let answer = query::answer(&profile, &calls, &query);
    let gates = gate::of_program(&profile, &limits(options));
    let waste = match options.waste {
        true => waste::find(&trace, &profile, &calls, query.at)
            .map_err(|error| failure::failed(format_args!("{name}: {error}")))?,
        false => None,
    };
    if options.waste && waste.is_none() {
        output.warn("--waste needs a trace of all blocks, and rows that are neither threads nor sizes; it is left out");
    }
    let is_file = options.command.is_empty() && options.pid.is_none();
    let report = Report {
        file: &name,
        kept: is_file || options.trace.is_some(),
        trace: &trace,
        profile: &profile,
        calls: &calls,
        query: &query,
        answer: &answer,
        gates: &gates,
        waste: waste.as_ref(),
        missing: &missing,
    };
    write(reports, output, |wish| made(options, &report, wish, output))?;
    Ok(code(&gates))
}

/// What a report is.
enum Made<'a> {
    Bytes(Vec<u8>),
    /// It is large, and written as it is made.
    Json(Lazy<'a>),
}

/// Write reports, of which some are no text.
fn write<'a>(
    reports: &[Wish],
    output: &Output,
    make: impl Fn(&Wish) -> anyhow::Result<Made<'a>>,
) -> anyhow::Result<()> {
    let one = |wish: &Wish| match make(wish)? {
        Made::Bytes(bytes) => output.write(&wish.place, |to| to.write_all(&bytes)),
        Made::Json(json) => output.write(&wish.place, |to| {
            let mut to = BufWriter::new(to);
            serde_json::to_writer(&mut to, &json)?;
            to.flush()
        }),
    };
    output.all(reports.iter().map(one).collect::<Vec<_>>())
}

/// The trace as massif or heaptrack would have told of the program: it is read once more.
fn converted(options: &ProfileOptions, report: &Report, format: Format) -> anyhow::Result<Vec<u8>> {
    let (mut source, mut bytes) = (QtrSource::new(report.trace), Vec::new());
    let head = report.trace.head();
    let failed = |error: convert::Error| failure::failed(format_args!("{}: {error}", report.file));
    let mut sink: Box<dyn Sink + '_> = match format {
        Format::Heaptrack => {
            let names = source.names();
            Box::new(HeaptrackSink::new(&mut bytes, head, names).map_err(failed)?)
        }
        _ => Box::new(MassifSink::new(&mut bytes, head, crate::info::hiding(&options.hide)?)),
    };
    convert::copy(&mut source, &mut *sink, |_| {}).map_err(failed)?;
    drop(sink);
    Ok(bytes)
}

fn made<'a>(
    options: &ProfileOptions,
    report: &'a Report,
    wish: &Wish,
    output: &Output,
) -> anyhow::Result<Made<'a>> {
    let style = output.style(&wish.place);
    let text = match wish.format {
        Format::Pprof => return Ok(Made::Bytes(export::pprof(report))),
        Format::Massif | Format::Heaptrack => {
            return converted(options, report, wish.format).map(Made::Bytes);
        }
        Format::Dhat => return Ok(Made::Json(export::dhat(report))),
        Format::Firefox => return Ok(Made::Json(export::firefox(report))),
        Format::Speedscope => return Ok(Made::Json(export::speedscope(report))),
        Format::Json => format!("{:#}\n", report.json()),
        Format::Html => page::html(report),
        Format::Collapsed => export::folded(report),
        Format::Chrome => export::chrome(report).to_string(),
        _ => match options.tree {
            Some(way) => report.tree_text(style, way),
            None => report.text(style),
        },
    };
    Ok(Made::Bytes(text.into_bytes()))
}

/// What a run of one side has: by what a row is, by site, and by whole call stack; and its limits.
struct Side {
    rows: Run,
    sites: Run,
    stacks: Run,
    gates: Vec<Outcome>,
}

/// A run of one side; with whole call stacks where they are shown.
fn run(options: &ProfileOptions, file: &Path, whole: bool, output: &Output) -> anyhow::Result<Side> {
    let (trace, name) = loaded::open(file, output)?;
    let moments = moments(options, &trace);
    let at = at(options, &trace, &moments);
    let loaded = loaded::load((trace, name), options, (options.by.division(), &moments), output)?;
    let (profile, calls) = (&loaded.profile, &loaded.calls);
    let run = |named: Named| diff::run(profile, calls, at, options.filter.as_ref(), named);
    Ok(Side {
        rows: run(Named::By(options.by)),
        sites: if options.fail_if.is_empty() { Run::new() } else { run(Named::By(By::Site)) },
        stacks: if whole { run(Named::Stacks) } else { Run::new() },
        gates: gate::of_program(profile, &limits(options)),
    })
}

fn compare(
    options: &ProfileOptions,
    rules: &[Growth],
    before: &[PathBuf],
    after: &[PathBuf],
    output: &Output,
) -> anyhow::Result<i32> {
    let reports = options.reports.all(Place::Stdout)?;
    let whole = reports.iter().any(|wish| matches!(wish.format, Format::Html | Format::Collapsed));
    let side = |files: &[PathBuf]| {
        files.iter().map(|file| run(options, file, whole, output)).collect::<anyhow::Result<Vec<_>>>()
    };
    let (first, second): (Vec<Side>, Vec<Side>) = (side(before)?, side(after)?);
    // Limits are those of the second side: the first is what was.
    let mut gates: Vec<Outcome> = second.iter().flat_map(|side| side.gates.clone()).collect();
    let compared = |of: fn(&Side) -> &Run| {
        let runs = |side: &[Side]| side.iter().map(|side| of(side).clone()).collect::<Vec<Run>>();
        Diff::new(&runs(&first), &runs(&second))
    };
    let (diff, stacks) = (compared(|side| &side.rows), compared(|side| &side.stacks));
    let sites = compared(|side| &side.sites);
    let moment = match options.at {
        When::Peak => "at the peak",
        When::End => "at the end",
        When::At(_) => "at the moment",
    };
    gates.extend(rules.iter().map(|rule| gate::of_sites(&sites.pairs, rule, moment)));
    let what = format!("Live {moment}");
    let top = options.top as usize;
    let make = |wish: &Wish| {
        let text = match wish.format {
            Format::Json => format!("{:#}\n", json(&diff, &gates, top, (before, after))),
            Format::Html => page::of_diff(&stacks, &diff, &what, top),
            Format::Collapsed => stacks.folded(),
            Format::Text => {
                let lines: String = gates.iter().map(|gate| gate.text.clone() + "\n").collect();
                diff.text(output.style(&wish.place), top, &what) + &lines
            }
            other => {
                let made = "a comparison is written as text, json, html or collapsed";
                return Err(failure::usage(format!("{made}, and not as {}", other.name())));
            }
        };
        Ok(Made::Bytes(text.into_bytes()))
    };
    write(&reports, output, make)?;
    Ok(code(&gates))
}

fn json(diff: &Diff, gates: &[Outcome], top: usize, (before, after): (&[PathBuf], &[PathBuf])) -> Value {
    let names = |files: &[PathBuf]| files.iter().map(|file| options::shown(file)).collect::<Vec<_>>();
    json!({
        "schema": quarry_profile::SCHEMA,
        "files": [names(before), names(after)],
        "diff": diff.json(top),
        "gates": gates.iter().map(Outcome::json).collect::<Vec<_>>(),
    })
}
