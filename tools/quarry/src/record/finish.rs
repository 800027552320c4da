// SPDX-License-Identifier: MIT
//! What a recording gets when its process is over: an end, where the process could not write one, and names.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use quarry_measure::signals;
use quarry_measure::spawn::{End as Ended, Ran};
use quarry_symbols::{Names, Places};
use quarry_synth::convert::output::Packing;
use quarry_trace::{End, HiddenChild, Trace, end_cut_off};

use super::count::Counted;
use crate::{failure, symbolize};

/// Put ends into the traces that have none, of processes whose end is known: that of the command is known here, and those of
/// children to the recorded processes that waited for them.
pub fn end(ran: &Ran, counted: &mut [Counted]) {
    let mut ends: HashMap<i64, Vec<Ended>> = HashMap::new();
    for (child, status) in counted.iter().flat_map(|counted| &counted.children) {
        ends.entry(i64::from(*child)).or_default().push(Ended::from_status(*status as i32));
    }
    for (process, status) in hidden(counted) {
        ends.entry(process).or_insert_with(|| vec![Ended::from_status(status as i32)]);
    }
    ends.insert(ran.pid.into(), vec![ran.end]);
    for (process, how_ended) in ends {
        // A number may have been that of several processes, and nobody can tell which ended how.
        let [ended] = how_ended[..] else { continue };
        let of_process = |counted: &&mut Counted| i64::from(counted.recorded.process) == process;
        let mut programs: Vec<&mut Counted> = counted.iter_mut().filter(of_process).collect();
        programs.sort_by_key(|counted| counted.start_monotonic_ns);
        // The last one ended so. Each before it became another program, by a system call if the recorder did not see that.
        if let Some(last) = programs.pop() {
            put(how(ended), last);
        }
        for earlier in programs {
            put(End { reason: String::from("exec"), ..End::default() }, earlier);
        }
    }
}

/// The children of calls such as system(): each is the one process that its parent began during the call, if there is just one.
fn hidden(counted: &[Counted]) -> Vec<(i64, u32)> {
    // A process that becomes another program has a trace for each. It began with the first.
    let mut began: HashMap<(u32, u32), u64> = HashMap::new();
    for Counted { recorded, start_monotonic_ns, .. } in counted {
        let first = began.entry((recorded.parent, recorded.process)).or_insert(u64::MAX);
        *first = (*first).min(*start_monotonic_ns);
    }
    let child_of = |parent: &Counted, call: &HiddenChild| {
        let during = call.began_ns..=call.ended_ns;
        let mut children = began
            .iter()
            .filter(|((of, _), start)| *of == parent.recorded.process && during.contains(start))
            .map(|((_, process), _)| i64::from(*process));
        children.next().filter(|_| children.next().is_none())
    };
    let calls = counted.iter().flat_map(|parent| parent.hidden.iter().map(move |call| (parent, call)));
    calls.filter_map(|(parent, call)| Some((child_of(parent, call)?, call.status))).collect()
}

fn put(end: End, Counted { recorded, path, .. }: &mut Counted) {
    if recorded.end.is_some() || recorded.running {
        return;
    }
    let end = End { events: recorded.events, lost: recorded.lost, ..end };
    let file = File::options().read(true).write(true).open(path);
    // A trace without an end is all right, too.
    if file.and_then(|file| end_cut_off(&file, &end)).is_ok_and(|written| written) {
        recorded.end = Some(end.reason);
        recorded.cut_off = true;
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
    let failed = |file: &str, error: &anyhow::Error| {
        format!("{file}: names were not put into it: {}", failure::words(error))
    };
    let traces = counted.iter().filter(|counted| !counted.recorded.running);
    traces
        .filter_map(|Counted { recorded, path, .. }| {
            of_trace(all, path).err().map(|error| failed(&recorded.file, &error))
        })
        .collect()
}

fn of_trace(all: bool, path: &Path) -> anyhow::Result<()> {
    let trace = Trace::open(path)?;
    if matches!(trace.head().stacks.as_str(), "" | "none") {
        return Ok(());
    }
    let names: Names = match all {
        true => symbolize::look_up(&trace, &trace.stacks()?.0, Places::of_this_machine()).names,
        false => symbolize::look_up_made(&trace)?,
    };
    if names.is_empty() { Ok(()) } else { symbolize::write(&trace, &names, path, Packing::Plain) }
}
