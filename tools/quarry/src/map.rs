// SPDX-License-Identifier: MIT
//! quarry map: what the memory of a process is.

mod json;
mod options;
mod page;
mod picture;
mod pmap;
mod regions;
mod remarks;
mod table;
mod text;
mod view;

use std::ffi::OsString;
use std::path::Path;

use anyhow::Context;
use quarry_measure::signals::{self, Forwarding};
use quarry_proc::last::{self, End, Last, LastError};
use quarry_proc::{Origin, ProcError, Root, Space};

pub use options::MapOptions;
pub use table::fitted;
use text::Numbers;
use view::View;
pub use view::{Column, shown, what};

use crate::output::{Output, Place};
use crate::{failure, inputs, under};

/// The exit code when a copy is damaged.
const DAMAGED: i32 = 1;
/// Regions of a picture in characters, and of one in a file.
const LINES: usize = 48;
const BARS: usize = 120;

/// Read, start or open what was asked for, and report.
pub fn main(options: &MapOptions, output: &Output) -> anyhow::Result<i32> {
    if let Some(command) = options.command.split_first() {
        return at_the_end(command, options, output);
    }
    inputs::spare(&options.file, options.output.iter().chain(&options.svg).chain(&options.html))?;
    let space = match (options.pid, &options.file) {
        (Some(pid), _) => process(pid, options.proc.as_deref()),
        (None, Some(file)) => Space::of_file(file),
        (None, None) => {
            return Err(failure::usage("say which process: -p PID, a saved FILE, or -- CMD"));
        }
    };
    let space = space.map_err(refused)?;
    report(&space, options, &Place::of(options.output.as_deref(), Place::Stdout), output)?;
    Ok(if space.damage.sentence().is_some() { DAMAGED } else { 0 })
}

fn process(pid: u32, proc: Option<&Path>) -> Result<Space, ProcError> {
    let root = proc.map_or_else(Root::live, Root::copy);
    Space::of_process(&root.process(pid)?)
}

/// It is not there, or not for us.
fn refused(error: ProcError) -> anyhow::Error {
    failure::failed(error)
}

/// Run a command and look at it when it ends. Its exit code counts, report or no report.
fn at_the_end(
    (name, arguments): (&OsString, &[OsString]),
    options: &MapOptions,
    output: &Output,
) -> anyhow::Result<i32> {
    under::resolve(name).map_err(|error| failure::not_started(name, &error))?;
    let line: Vec<OsString> = [name.clone()].into_iter().chain(arguments.iter().cloned()).collect();
    let forwarding = Forwarding::all();
    let ran = last::run(&mut under::command(&line), |pid| forwarding.hand_to(pid));
    drop(forwarding);
    let Last { pid, end, space } = ran.map_err(|error| match error {
        LastError::Start(error) => failure::not_started(name, &error),
        other => other.into(),
    })?;
    let name = Path::new(name).display();
    let place = Place::of(options.output.as_deref(), Place::Stderr);
    let reported = match space {
        Some(Ok(space)) => report(&space, options, &place, output),
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
fn report(space: &Space, options: &MapOptions, place: &Place, output: &Output) -> anyhow::Result<()> {
    let overcommit = if space.origin == Origin::Live { Root::live().overcommit() } else { None };
    let view = View::new(space, options, overcommit);
    if view.rows.is_empty() {
        output.warn(
            "no mapping is what was asked for; look at all of them without --filter, --kind and --quadrant",
        );
    }
    let numbers = Numbers { bytes: options.bytes };
    let file = |path: &Path, text: &str| {
        let written = std::fs::write(path, text);
        written.with_context(|| format!("cannot write the picture to {}", path.display()))
    };
    if let Some(path) = &options.svg {
        file(path, &picture::svg(&view, BARS))?;
    }
    if let Some(path) = &options.html {
        file(path, &page::page(&view, numbers))?;
    }
    let style = output.style(place);
    match () {
        () if options.json => output.write(place, |to| json::write(&view, to))?,
        () if options.extended => output.write(place, |to| pmap::extended(&view, to))?,
        () if options.all_fields => output.write(place, |to| pmap::all_fields(&view, to))?,
        () if options.picture => {
            let most = if options.top == 0 { 0 } else { LINES };
            output.report(place, &picture::text(&view, most, style))?;
        }
        () => output.report(place, &text::report(&view, options.top, options.check, numbers, style))?,
    }
    if let Some(damage) = space.damage.sentence() {
        output.warn(format_args!("what was read is damaged: {damage}"));
    }
    for gap in remarks::gaps(space, &view) {
        output.note(gap);
    }
    Ok(())
}
