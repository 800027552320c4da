// SPDX-License-Identifier: MIT
//! What a recording gets when its process is over: an end, where the process could not write one, and names.

use std::fs::File;
use std::path::Path;

use quarry_measure::signals;
use quarry_measure::spawn::{End as Ended, Ran};
use quarry_symbols::{Names, Places};
use quarry_trace::{End, Trace, end_cut_off};

use super::count::Counted;
use crate::symbolize;

/// Put an end into the trace of the command, if it has none: how it ended is known here.
pub fn end(ran: &Ran, counted: &mut [Counted]) {
    for Counted { recorded, .. } in counted {
        let is_its = i64::from(recorded.process) == i64::from(ran.pid);
        if !is_its || recorded.end.is_some() || recorded.running {
            continue;
        }
        let how = how(ran.end);
        let end = End { events: recorded.events, lost: recorded.lost, ..how };
        let file = File::options().read(true).write(true).open(&recorded.file);
        // A trace without an end is all right, too.
        if file.and_then(|file| end_cut_off(&file, &end)).is_ok_and(|written| written) {
            recorded.end = Some(end.reason);
            recorded.cut_off = true;
        }
    }
}

fn how(ended: Ended) -> End {
    let signal = match ended {
        // Without a word of the recorder's: by the system call itself.
        Ended::Exit(status) => {
            let status = u32::try_from(status).ok();
            return End { reason: String::from("_exit"), status, ..End::default() };
        }
        Ended::Signal(signal) => signal,
        Ended::Timeout => signals::KILL,
    };
    let reason = if signals::is_fault(signal) { "crash" } else { "killed" };
    End { reason: reason.to_owned(), signal: u32::try_from(signal).ok(), ..End::default() }
}

/// Put names into traces that have call stacks: all of them if `all`, else those of code that was made at run time, which
/// nobody can look up later. What went wrong, in words.
pub fn names(all: bool, counted: &[Counted]) -> Vec<String> {
    let traces = counted.iter().map(|counted| &counted.recorded).filter(|recorded| !recorded.running);
    let failed = |file: &str, error: anyhow::Error| format!("{file}: names were not put into it: {error:#}");
    traces
        .filter_map(|recorded| of_trace(all, &recorded.file).err().map(|e| failed(&recorded.file, e)))
        .collect()
}

fn of_trace(all: bool, file: &str) -> anyhow::Result<()> {
    let path = Path::new(file);
    let trace = Trace::open(path)?;
    if matches!(trace.head().stacks.as_str(), "" | "none") {
        return Ok(());
    }
    let names: Names = match all {
        true => symbolize::look_up(&trace, &trace.stacks()?, Places::of_this_machine()).names,
        false => symbolize::look_up_made(&trace)?,
    };
    if names.is_empty() { Ok(()) } else { symbolize::write(&trace, &names, path) }
}
