// SPDX-License-Identifier: MIT
//! Whether a page may be a process's own. A child has a copy of its parent's memory, and with it the parent's page.

use std::fs;
use std::path::{Path, PathBuf};

use quarry_proc::{Root, ticks_per_second};

use crate::page::Page;
use crate::sys;

/// A file of a process.
pub fn proc(pid: i32, file: &str) -> PathBuf {
    Path::new("/proc").join(pid.to_string()).join(file)
}

/// Where what its threads share is: another folder than its own once its first thread has ended.
pub fn shared(pid: i32) -> PathBuf {
    let process = u32::try_from(pid).ok().and_then(|pid| Root::live().process(pid).ok());
    process.map_or_else(|| proc(pid, ""), |process| process.folder().to_owned())
}

/// When a process was started, in ticks since boot: with its number this names it for ever.
pub fn started(pid: i32) -> Option<u64> {
    let process = Root::live().process(u32::try_from(pid).ok()?).ok()?;
    Some(process.stat().ok()?.started)
}

/// What the kernel says of a process. What it does not say is nothing against a page.
pub struct Maker {
    /// The process id that it knows itself by.
    inner: Option<i32>,
    /// Its pages are not older, in the time of pages.
    started_ns: Option<u64>,
}

impl Maker {
    /// The process with this number now.
    pub fn of(pid: i32) -> Self {
        let status = fs::read_to_string(proc(pid, "status")).unwrap_or_default();
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        let inner = numbers.and_then(|numbers| numbers.split_whitespace().next_back()?.parse().ok());
        Self { inner, started_ns: started_ns(pid) }
    }

    /// May this page be its own?
    pub fn may_have_made(&self, page: &Page) -> bool {
        self.inner.is_none_or(|inner| page.pid == inner)
            && self.started_ns.is_none_or(|started| page.born_ns >= started)
    }
}

/// By how many nanoseconds the time of a process's pages is ahead of ours: it may have a time namespace of its own.
pub fn ahead_ns(pid: i32) -> i64 {
    told_ahead_ns(pid).unwrap_or(0)
}

fn told_ahead_ns(pid: i32) -> Option<i64> {
    let (own, other) = (PathBuf::from("/proc/self"), shared(pid));
    let clock = |folder: &Path| fs::read_link(folder.join("ns/time")).ok();
    if clock(&own)? == clock(&other)? {
        return Some(0);
    }
    let offset = |folder: &Path| {
        // What is told is that of its children.
        let is_its = fs::read_link(folder.join("ns/time_for_children")).ok()? == clock(folder)?;
        offset_of(&fs::read_to_string(folder.join("timens_offsets")).ok()?).filter(|_| is_its)
    };
    offset(&other)?.checked_sub(offset(&own)?)
}

/// By how many nanoseconds a monotonic clock is ahead of the machine's, in the words of the kernel.
fn offset_of(text: &str) -> Option<i64> {
    let words = text.lines().find_map(|line| line.strip_prefix("monotonic"))?;
    let (seconds, rest) = words.trim().split_once(' ')?;
    let seconds: i64 = seconds.parse().ok()?;
    seconds.checked_mul(1_000_000_000)?.checked_add(rest.trim().parse().ok()?)
}

/// Not later than when the process was started, in the time of pages; unknown where its clock is not ours.
fn started_ns(pid: i32) -> Option<u64> {
    let ours = fs::read_link("/proc/self/ns/time").ok()?;
    if fs::read_link(shared(pid).join("ns/time")).ok()? != ours {
        return None;
    }
    let started = started(pid)?.saturating_mul(1_000_000_000) / ticks_per_second();
    // The time of pages stands still while the machine sleeps.
    Some(started.saturating_sub(sys::asleep_ns()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_may_be_ahead() {
        let text = "monotonic           864000         5\nboottime           1728000         0\n";
        assert_eq!(offset_of(text), Some(864_000_000_000_005));
        assert_eq!(offset_of("monotonic -1 999999999\n"), Some(-1));
        assert_eq!((offset_of(""), offset_of("monotonic x y")), (None, None));
        assert_eq!(ahead_ns(i32::try_from(std::process::id()).unwrap()), 0);
    }

    #[test]
    fn a_page_of_another_process_or_from_before_its_time_is_not_a_process_s_own() {
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let maker = Maker::of(pid);
        let page = |pid, born_ns| Page {
            pid,
            version: String::new(),
            born_ns,
            sampler_at: 0,
            sampler_bytes: 0,
            heap: None,
            pools: None,
        };
        let inner = maker.inner.unwrap();
        assert!(maker.may_have_made(&page(inner, sys::now_ns())));
        assert!(!maker.may_have_made(&page(inner + 1, sys::now_ns())));
        // Where the kernel has clocks of its own for containers.
        if maker.started_ns.is_some() {
            assert!(!maker.may_have_made(&page(inner, sys::now_ns() - 60_000_000_000)));
        }
        assert!(started(pid).is_some() && started(i32::MAX).is_none());
        drop(child.stdin.take());
        child.wait().unwrap();
        // Of one that is not there nothing is known.
        assert!(Maker::of(i32::MAX).may_have_made(&page(1, 0)));
    }
}
