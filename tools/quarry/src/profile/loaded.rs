// SPDX-License-Identifier: MIT
//! A trace that was read, with names.

use std::io::{self, IsTerminal};
use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};
use quarry_profile::calls::Calls;
use quarry_profile::model::{Division, Profile};
use quarry_profile::read::{self, Read};
use quarry_report::record::ENDS;
use quarry_symbols::{Folding, Symbols};
use quarry_trace::{End, Trace};

use super::options::ProfileOptions;
use crate::opened::{Opened, Whole};
use crate::output::Output;
use crate::{failure, later};

/// From this length on a trace takes long enough for a progress bar.
const LONG: u64 = 32 << 20;

/// A trace, what it says, and the names in it.
pub struct Loaded {
    pub name: String,
    pub trace: Trace,
    pub profile: Profile,
    pub calls: Calls,
    /// Files without names, and why.
    pub missing: Vec<String>,
}

/// Open it. What is to be said of how it came is said.
pub fn open(path: &Path, output: &Output) -> anyhow::Result<(Trace, String)> {
    let opened = Opened::open(path, None, true).and_then(Opened::into_trace);
    let Whole { trace, name, remarks, .. } =
        opened.map_err(|error| failure::failed(failure::words(&error)))?;
    let early = early(path, &trace, &remarks);
    for remark in remarks.into_iter().chain(early) {
        output.warn(format_args!("{name}: {remark}"));
    }
    if let Some(remark) = later::remark(path, &trace) {
        output.note(format_args!("{name}: {remark}"));
    }
    Ok((trace, name))
}

/// What to expect where the end of the trace is not that of the program. `said` is what its conversion said already.
fn early(path: &Path, trace: &Trace, said: &[String]) -> Option<String> {
    let why = match trace.end() {
        None if crate::info::runs(path, trace) => String::from("it has no end: the program is still running"),
        None => String::from("it has no end: the program was killed, or is still running elsewhere"),
        Some(End { reason, .. }) if reason == "cut off" && !said.is_empty() => return None,
        Some(End { reason, .. }) if is_stop(reason) => {
            format!("recording stopped before the program did: {}", quarry_proc::shown(reason))
        }
        Some(_) => return None,
    };
    Some(format!("{why}; what is live at its last event may have been freed later"))
}

/// Does a recording with this end lack the rest of the program? A conversion may know of no reason, and `-p` lets the process go on.
fn is_stop(reason: &str) -> bool {
    !ENDS.contains(&reason) && !["", "detached"].contains(&reason)
}

/// Read it, and name what is in it.
pub fn load(
    (trace, name): (Trace, String),
    options: &ProfileOptions,
    (division, moments): (Division, &[u64]),
    output: &Output,
) -> anyhow::Result<Loaded> {
    let folding = crate::info::hiding(&options.hide)?;
    let Read { profile, stacks, damage } = read(&trace, &name, division, moments, output)?;
    for place in &damage.places {
        output.warn(format_args!("{name}: {place}"));
    }
    let mut symbols = Symbols::of_trace(&trace, profile.modules.clone(), options.places.places());
    if options.no_symbols {
        symbols.without_names();
    }
    if super::options::inputs(options).len() > 1 {
        symbols.across_runs();
    }
    let calls = named(&profile, &stacks, &mut symbols, &folding);
    let missing = symbols.missing().to_vec();
    for missing in &missing {
        output.detail(format_args!("no symbols: {missing}"));
    }
    // Of a sample in which nothing was drawn there is nothing to say.
    if stacks.is_empty() && !profile.rows.is_empty() {
        output.note(format_args!("{name}: there are no call stacks in it; record with -g"));
    }
    Ok(Loaded { name, trace, profile, calls, missing })
}

fn named(
    profile: &Profile,
    stacks: &quarry_trace::StackTree,
    symbols: &mut Symbols,
    folding: &Folding,
) -> Calls {
    Calls::of(profile, stacks, symbols, folding)
}

fn read(
    trace: &Trace,
    name: &str,
    division: Division,
    moments: &[u64],
    output: &Output,
) -> anyhow::Result<Read> {
    let shown = trace.bytes() >= LONG && !output.is_quiet() && io::stderr().is_terminal();
    let progress = if shown { bar(trace.bytes()) } else { ProgressBar::hidden() };
    let read = read::read(trace, division, moments, |events, bytes| {
        progress.set_position(bytes);
        progress.set_message(format!("{:.1} M events", events as f64 / 1e6));
    });
    progress.finish_and_clear();
    read.map_err(|error| failure::failed(format_args!("{name}: {error}")))
}

fn bar(bytes: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {bytes} of {total_bytes}, {msg}, {eta} left");
    ProgressBar::new(bytes).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
