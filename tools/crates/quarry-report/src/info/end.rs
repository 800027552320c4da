// SPDX-License-Identifier: MIT
//! How a process and its threads ended.

use quarry_measure::signals;
use quarry_trace::End;
use quarry_trace::analysis::{ThreadEnd, ThreadSum};

use super::{Info, harmless, time};
use crate::record::ENDS;

/// What a process does whose trace has no end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Now {
    /// It goes on.
    Runs,
    /// It was stopped by a signal, or by a debugger, and may go on.
    Stopped,
}

impl Now {
    /// In JSON.
    pub fn word(self) -> &'static str {
        match self {
            Now::Runs => "running",
            Now::Stopped => "stopped",
        }
    }
}

/// "SIGSEGV", where a signal ended it.
fn signal(info: &Info) -> Option<String> {
    let signal = info.trace.end()?.signal?;
    Some(i32::try_from(signal).map_or_else(|_| signal.to_string(), signals::name))
}

/// "exit, status 3", "crash: SIGSEGV", "cut off".
pub(super) fn text(info: &Info) -> String {
    let mut text = match (info.trace.end(), info.now) {
        (None, Some(Now::Runs)) => String::from("none: the program is still running"),
        (None, Some(Now::Stopped)) => String::from("none: the program is stopped by a signal"),
        (None, None) => String::from("cut off"),
        (Some(end), _) if end.reason.is_empty() => String::from("in order"),
        (Some(end), _) => harmless(&end.reason),
    };
    if let Some(signal) = signal(info) {
        text += &format!(": {signal}");
    }
    let status = info.summary.notes.exit.or(info.trace.end().and_then(|end| end.status));
    if let Some(status) = status {
        text += &format!(", status {status}");
    }
    text
}

/// The program that the process became, and those that exec was called for and did not run. Where `quarry record` put the end in,
/// the exec was a system call that no event tells of.
pub(super) fn execs<'a>(info: &'a Info) -> (Option<&'a str>, &'a [String]) {
    let execs = &info.summary.notes.execs[..];
    let end = info.trace.end().filter(|end| end.reason == "exec" && end.end_ticks > 0);
    match execs.split_last().filter(|_| end.is_some()) {
        Some((last, tried)) => (Some(last), tried),
        None => (None, execs),
    }
}

/// What is not as it should be about the end.
pub(super) fn complaint(info: &Info) -> Option<String> {
    let (file, events) = (&info.file, crate::units::of(info.summary.events, "event"));
    let at = time(info.trace.ticks_to_ns(info.summary.last));
    if let Some(signal) = signal(info) {
        return Some(format!(
            "{file}: {signal} ended the program after {events} ({at} of recording); all that it did before is there"
        ));
    }
    let why = match (info.trace.end(), info.now) {
        (Some(_), _) => return None,
        (None, Some(Now::Runs)) => "the program is still running",
        (None, Some(Now::Stopped)) => "the program is stopped by a signal, and may go on",
        (None, None) => "the program was killed, or is still running elsewhere",
    };
    Some(format!("{file}: truncated after {events} ({at} of recording): it has no end; {why}"))
}

/// Is nothing known of what threads did at last? The recording stopped before, or the trace does not tell of threads.
/// Thread 0 is none. Where the process itself wrote no end, nobody looked which threads were there.
fn is_unknown(info: &Info, thread: &ThreadSum) -> bool {
    let is_known = |end: &End| end.end_ticks > 0 && ENDS.contains(&end.reason.as_str());
    thread.tid == 0 || !info.trace.end().is_some_and(is_known)
}

/// What became of a thread, as far as that is known.
pub(super) fn of_thread(info: &Info, thread: &ThreadSum) -> Option<&'static str> {
    match thread.end {
        ThreadEnd::Ended => Some("ended"),
        ThreadEnd::Gone => Some("gone"),
        ThreadEnd::Lives if is_unknown(info, thread) => None,
        ThreadEnd::Lives => Some("lives"),
    }
}

/// The same in words.
pub(super) fn of_thread_in_words(info: &Info, thread: &ThreadSum) -> &'static str {
    match of_thread(info, thread) {
        Some("lives") => "lived at the end",
        Some("gone") => "gone without a word",
        other => other.unwrap_or_default(),
    }
}
