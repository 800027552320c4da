// SPDX-License-Identifier: MIT
//! quarry map: what the memory of a process is.

mod options;

use std::ffi::OsString;
use std::path::Path;

use quarry_input::Input;
use quarry_measure::signals::{self, Forwarding};
use quarry_proc::last::{self, End, Last, LastError};
use quarry_proc::{Known, Origin, ProcError, Root, Space};
use quarry_report::map::{self as report_of, Numbers, View};
use quarry_stats::find;
use quarry_stats::page::{Range, Use};

pub use options::MapOptions;

use crate::format::{Format, Report};
use crate::kind::{self, Kind};
use crate::output::{Output, Place};
use crate::{failure, inputs, under};

/// The exit code when a copy is damaged.
const DAMAGED: i32 = 1;
/// Regions of a picture in characters, and of one in a file.
const LINES: usize = 48;
const BARS: usize = 120;

/// Read, start or open what was asked for, and report.
pub fn main(options: &MapOptions, output: &Output) -> anyhow::Result<i32> {
    let default = if options.command.is_empty() { Place::Stdout } else { Place::Stderr };
    let reports = options.reports.all(default)?;
    if let Some(option) = options.text().filter(|_| reports.iter().any(|wish| wish.format != Format::Text)) {
        return Err(failure::usage(format!("{option} is text; leave it out for another format")));
    }
    if let Some(command) = options.command.split_first() {
        return at_the_end(command, options, &reports, output);
    }
    inputs::spare(&options.file, options.reports.files())?;
    let space = match (options.pid, &options.file) {
        (Some(pid), _) => process(pid, options.proc.as_deref()).map_err(failure::failed),
        (None, Some(file)) => Space::of_file(file).map_err(|error| refused(&error, file)),
        (None, None) => {
            return Err(failure::usage("say which process: -p PID, a saved FILE, or -- CMD"));
        }
    };
    let mut space = space?;
    // To ask is to read its memory, which may bring in a page of it: nobody else is asked.
    let on_quarry = || space.mappings.iter().any(|mapping| mapping.name.contains("/libquarry"));
    if let (Some(pid), None) = (options.pid, &options.proc)
        && on_quarry()
    {
        space.known = of_quarry(pid);
    }
    report(&space, options, &reports, output)?;
    Ok(if space.damage.sentence().is_some() { DAMAGED } else { 0 })
}

fn process(pid: u32, proc: Option<&Path>) -> Result<Space, ProcError> {
    let root = proc.map_or_else(Root::live, Root::copy);
    Space::of_process(&root.process(pid)?)
}

/// What its statistics page says of the addresses of Quarry's heap, if it runs on Quarry and may be asked.
fn of_quarry(pid: u32) -> Vec<Known> {
    let found = i32::try_from(pid).ok().and_then(|pid| find::of_process(pid).ok());
    let heaps = found.iter().flat_map(|found| &found.pages).filter_map(|page| page.heap.as_ref());
    let known = |range: &Range| {
        let name = match range.used {
            Use::Blocks => "quarry heap",
            Use::Huge => "quarry huge",
            Use::Metadata => "quarry metadata",
            Use::Other => return None,
        };
        Some(Known { from: range.base, to: range.base.checked_add(range.bytes)?, name })
    };
    heaps.flat_map(|heap| &heap.ranges).filter_map(known).collect()
}

/// A file that is no copy of a process, with the verb that reads it.
fn refused(error: &ProcError, file: &Path) -> anyhow::Error {
    // What stood on standard input is read already.
    let begun = if file == Path::new("-") { None } else { Input::open(file).ok() };
    match begun.and_then(|input| kind::of(input.begin())) {
        Some(Kind { what, advice })
            if matches!(error, ProcError::Damaged { .. }) && !advice.contains("quarry map") =>
        {
            failure::failed(format_args!("{error}; it is {what}: {advice}"))
        }
        _ => failure::failed(error),
    }
}

/// Run a command and look at it when it ends. Its exit code counts, report or no report.
fn at_the_end(
    (name, arguments): (&OsString, &[OsString]),
    options: &MapOptions,
    reports: &[Report],
    output: &Output,
) -> anyhow::Result<i32> {
    let line: Vec<OsString> = [name.clone()].into_iter().chain(arguments.iter().cloned()).collect();
    under::resolve(&line).map_err(|error| failure::not_started(name, &error))?;
    let forwarding = Forwarding::all();
    let ran = last::run(&mut under::command(&line), |pid| forwarding.hand_to(pid));
    drop(forwarding);
    let Last { pid, end, space } = ran.map_err(|error| match error {
        LastError::Start(error) => failure::not_started(name, &error),
        other => other.into(),
    })?;
    let name = Path::new(name).display();
    let reported = match space {
        Some(Ok(space)) => report(&space, options, reports, output),
        Some(Err(error)) => Err(anyhow::Error::new(error).context(format!("{name} (process {pid})"))),
        None => Err(anyhow::anyhow!("{name} was killed before it could be looked at; there is no map of it")),
    };
    if let Err(error) = reported {
        output.error(&error);
    }
    Ok(match end {
        End::Exit(code) => code,
        End::Signal(signal) => {
            output.note(format_args!("{name} was ended by {}", signals::name(signal)));
            128 + signal
        }
    })
}

/// Write all that was asked for.
fn report(space: &Space, options: &MapOptions, reports: &[Report], output: &Output) -> anyhow::Result<()> {
    let overcommit = if space.origin == Origin::Live { Root::live().overcommit() } else { None };
    let view = View::new(space, &options.wanted(), overcommit);
    if view.is_empty() {
        output.warn(
            "no mapping is what was asked for; look at all of them without --filter, --kind and --quadrant",
        );
    }
    let numbers = Numbers { bytes: options.bytes };
    let write = |Report { place, format }: &Report| {
        let style = output.style(place);
        match format {
            Format::Json => output.write(place, |to| report_of::json(&view, to)),
            Format::Svg => output.report(place, &report_of::svg(&view, BARS)),
            Format::Html => output.report(place, &report_of::page(&view, numbers)),
            _ if options.extended => output.write(place, |to| report_of::extended(&view, to)),
            _ if options.all_fields => output.write(place, |to| report_of::all_fields(&view, to)),
            _ if options.picture => {
                let most = if options.top == 0 { 0 } else { LINES };
                output.report(place, &report_of::picture(&view, most, style))
            }
            _ => output.report(place, &report_of::text(&view, options.top, options.check, numbers, style)),
        }
    };
    output.all(reports.iter().map(write).collect::<Vec<_>>())?;
    if let Some(damage) = space.damage.sentence() {
        output.warn(format_args!("what was read is damaged: {damage}"));
    }
    for gap in report_of::gaps(space, &view) {
        output.note(gap);
    }
    Ok(())
}
