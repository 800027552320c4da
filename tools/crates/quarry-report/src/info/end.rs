// SPDX-License-Identifier: MIT
//! How a process and its threads ended.

use quarry_measure::signals;
use quarry_trace::analysis::{ThreadEnd, ThreadSum};

use super::{Info, count, harmless, time};

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

/// What is not as it should be about the end.
pub(super) fn complaint(info: &Info) -> Option<String> {
    let (file, events) = (&info.file, count(info.summary.events));
    let at = time(info.trace.ticks_to_ns(info.summary.last));
    if let Some(signal) = signal(info) {
        return Some(format!(
            "{file}: {signal} ended the program after {events} events ({at} of recording); all that it did before is there"
        ));
    }
    let why = match (info.trace.end(), info.now) {
        (Some(_), _) => return None,
        (None, Some(Now::Runs)) => "the program is still running",
        (None, Some(Now::Stopped)) => "the program is stopped by a signal, and may go on",
        (None, None) => "the program was killed, or is still running elsewhere",
    };
    Some(format!("{file}: truncated after {events} events ({at} of recording): it has no end; {why}"))
}

/// What became of a thread, as far as that is worth a word.
pub(super) fn of_thread(thread: &ThreadSum) -> &'static str {
    match thread.end {
        ThreadEnd::Ended => "ended",
        ThreadEnd::Gone => "gone without a word",
        // Thread 0 is none, and not every trace tells of threads.
        ThreadEnd::Lives if thread.tid != 0 => "lived at the end",
        ThreadEnd::Lives => "",
    }
}
