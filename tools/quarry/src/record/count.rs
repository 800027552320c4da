// SPDX-License-Identifier: MIT
//! What a recording left, counted.

use std::cell::OnceCell;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressStyle};
use quarry_report::record::Recorded;
use quarry_trace::{Counts, HiddenChild, Trace, TraceError};

use super::name::Name;
use crate::info::Processes;
use crate::output::Output;

/// Longer traces are not read to their end: their blocks say about how much is in them.
const LONGEST: u64 = 1 << 30;
/// From this length on counting takes long enough for a progress bar.
const LONG: u64 = 32 << 20;

/// A trace and what is known of it.
#[derive(Default)]
pub struct Counted {
    /// Its file.
    pub path: PathBuf,
    /// For the report.
    pub recorded: Recorded,
    /// Places that cannot be read, in words.
    pub damage: Vec<String>,
    /// Children that the process had.
    pub forks: u64,
    /// Those that it waited for: their process ids, and how they ended, as wait(2) gives it.
    pub children: Vec<(u32, u32)>,
    /// When it began, by the monotonic clock.
    pub start_monotonic_ns: u64,
    /// Children that it waited for without knowing their process ids.
    pub hidden: Vec<HiddenChild>,
}

/// Count the traces of this name; what is no trace is left out, with a reason. That of process `first` comes first, and its earlier
/// programs before its later ones.
pub fn count(name: &Name, first: i32, output: &Output) -> (Vec<Counted>, Vec<String>) {
    let (mut counted, mut refused) = (Vec::new(), Vec::new());
    let files = name.found();
    // Each has been mapped by its process before it got its name, so one look finds all that still write.
    let processes = OnceCell::new();
    for file in files {
        match of_file(&file, &processes, output) {
            Ok(trace) => counted.push((name.number(&file, i64::from(trace.recorded.process)), trace)),
            Err(error) => refused.push(format!("{}: {error}", shown(&file))),
        }
    }
    refused.extend(earlier(&counted));
    let foreign = |c: &Counted| i64::from(c.recorded.process) != i64::from(first);
    counted.sort_by_key(|(number, c)| match foreign(c) {
        false => (false, 0, *number),
        true => (true, u64::MAX - c.recorded.events, 0),
    });
    (counted.into_iter().map(|(_, trace)| trace).collect(), refused)
}

/// Files without a number that are of an earlier recording: a process of this one had the same number, so its trace has a number
/// behind the name.
fn earlier(counted: &[(u64, Counted)]) -> Vec<String> {
    let later = |(number, trace): &&(u64, Counted)| {
        let process = trace.recorded.process;
        *number > 1 && !counted.iter().any(|(first, other)| *first == 1 && other.recorded.process == process)
    };
    let mut notes: Vec<String> = Vec::new();
    for (_, Counted { recorded: Recorded { file, .. }, .. }) in counted.iter().filter(later) {
        let first = file.rsplit_once('.').map_or(file.as_str(), |(first, _)| first);
        notes.push(format!(
            "{first} is of an earlier recording; what this one recorded of that process is in {file}"
        ));
    }
    notes
}

/// A path as the user would type it here.
pub fn shown(path: &Path) -> String {
    let here = std::env::current_dir().ok();
    let near = here.as_ref().and_then(|here| path.strip_prefix(here).ok());
    near.unwrap_or(path).display().to_string()
}

fn of_file(file: &Path, processes: &OnceCell<Processes>, output: &Output) -> Result<Counted, TraceError> {
    let trace = Trace::open(file)?;
    let head = trace.head();
    let mut recorded = Recorded {
        file: shown(file),
        process: head.process,
        parent: head.parent,
        program: head.program.clone(),
        malloc: head.malloc.clone(),
        bytes: trace.bytes(),
        // Thread 0 is the process.
        threads: trace.threads().iter().filter(|info| info.thread > 0).count() as u64,
        ..Recorded::default()
    };
    let mut damage = trace.damage().clone();
    let (mut forks, mut children, mut hidden) = (0, Vec::new(), Vec::new());
    let times = trace.threads().iter().filter_map(|info| info.times);
    let mut last = times.map(|(_, last)| last).max().unwrap_or(0);
    if trace.bytes() <= LONGEST {
        let sums = sums(&trace, output, &mut damage)?;
        (recorded.events, recorded.lost, recorded.counted) = (sums.events, sums.lost, true);
        recorded.allocations = Some(sums.allocations);
        (forks, children, hidden) = (sums.forks, sums.children, sums.hidden);
    } else {
        recorded.events = trace.threads().iter().fold(0, |sum, info| info.events.saturating_add(sum));
    }
    if let Some(end) = trace.end() {
        last = last.max(end.end_ticks);
        recorded.lost = recorded.lost.max(end.lost);
        recorded.end = Some(end.reason.clone());
    } else {
        recorded.running = processes.get_or_init(Processes::now).may_write(file, head);
    }
    recorded.seconds = trace.ticks_to_ns(last) as f64 / 1e9;
    recorded.damage = (damage.count, damage.bytes);
    let damage = damage.places.iter().map(|place| format!("{}: {place}", recorded.file)).collect();
    let start_monotonic_ns = head.start_monotonic_ns;
    let path = file.to_owned();
    Ok(Counted { path, recorded, damage, start_monotonic_ns, forks, children, hidden })
}

/// Thread by thread: the order of events is of no interest here.
fn sums(trace: &Trace, output: &Output, damage: &mut quarry_trace::Damage) -> Result<Counts, TraceError> {
    let wanted = trace.bytes() >= LONG && !output.is_quiet() && io::stderr().is_terminal();
    let progress = if wanted { bar(trace.records()) } else { ProgressBar::hidden() };
    let mut sums = Counts::default();
    for info in trace.threads() {
        let mut events = trace.thread_events(info.thread);
        while events.count_on(&mut sums)? {
            progress.set_position(sums.events);
        }
        damage.merge(events.damage());
    }
    progress.finish_and_clear();
    Ok(sums)
}

fn bar(records: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("counting {bar:30} {percent} %, {eta} left");
    ProgressBar::new(records).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_older_than_the_recording_is_told() {
        let trace = |number, process, file: &str| {
            let recorded = Recorded { process, file: file.into(), ..Recorded::default() };
            (number, Counted { recorded, ..Counted::default() })
        };
        let both = [trace(1, 7, "a.qtr"), trace(2, 7, "a.qtr.2")];
        assert!(earlier(&both).is_empty() && earlier(&both[..1]).is_empty());
        let notes = earlier(&[trace(1, 8, "p.8.qtr"), trace(2, 7, "p.7.qtr.2")]);
        assert!(notes.len() == 1 && notes[0].starts_with("p.7.qtr is of an earlier recording"), "{notes:?}");
    }
}
