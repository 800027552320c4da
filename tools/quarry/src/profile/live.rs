// SPDX-License-Identifier: MIT
//! quarry profile --live: the sites of a running process as they change.
//!
//! `app` samples and shows, `series` is for who has no terminal, and `snapshot` writes what -o and --trace name. What is shown is
//! [`quarry_profile::live`]; the terminal is [`crate::view`]'s.

mod app;
mod series;
mod snapshot;

use std::time::Duration;

use quarry_measure::signals::Forwarding;
use quarry_stats::sampler::Sampler;

use super::options::ProfileOptions;
use super::running::{On, Wanted};
use crate::format::Format;
use crate::output::{Output, Place};
use crate::{failure, view};
use app::App;
use snapshot::Snapshot;

/// What is written instead of a screen.
enum Written {
    Text,
    Lines,
}

/// Watch, or write frames; then write the files that are named.
pub fn main(options: &ProfileOptions, output: &Output) -> anyhow::Result<i32> {
    let written = written(options)?;
    let snapshot = Snapshot::new(options, output)?;
    if written.is_none() {
        view::needs_terminal("quarry profile --live")?;
    }
    let pid = options.pid.ok_or_else(|| failure::usage("--live is of a process; name one with -p PID"))?;
    let wanted = Wanted { pid, mean: options.sample, span: options.span.unwrap_or(Duration::MAX) };
    let sampler = Sampler::of(pid).map_err(failure::failed)?;
    let mut reader = sampler.reader().map_err(failure::failed)?;
    // Whatever ends this, the sampler is switched off before.
    let signals = Forwarding::ending();
    let on = On::switch(&sampler, &reader, &wanted, output)?;
    let mut app = App::new(options, &wanted, &sampler, on, &mut reader, snapshot)?;
    let signal = match written {
        Some(written) => series::write(&mut app, options, &written, &signals, output)?,
        None => view::watch(&mut app, options.frames, output.style(&Place::Stdout).color)?,
    };
    app.finish(output)?;
    Ok(signal.map_or(0, |signal| 128 + signal))
}

/// What is wanted on standard output. Files that -o names are reports, whose formats their endings say.
fn written(options: &ProfileOptions) -> anyhow::Result<Option<Written>> {
    match options.reports.asked() {
        Some(Format::Json) => Ok(Some(Written::Lines)),
        Some(Format::Text) => Ok(Some(Written::Text)),
        Some(other) => Err(failure::usage(format_args!(
            "--live writes lines of JSON or text, and not {}; say -o FILE for a report at the end, whose ending says the format",
            other.name()
        ))),
        None => Ok(options.once.then_some(Written::Text)),
    }
}
