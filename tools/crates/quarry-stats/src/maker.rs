// SPDX-License-Identifier: MIT
//! Whether a page may be a process's own. A segment outlives its maker where somebody else keeps it attached, and the maker's
//! number is given to another process some day.

use std::fs;
use std::path::{Path, PathBuf};

use quarry_proc::{Root, ticks_per_second};

use crate::page::Page;
use crate::segment;

/// A file of a process.
pub fn proc(pid: i32, file: &str) -> PathBuf {
    Path::new("/proc").join(pid.to_string()).join(file)
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
    /// Users whose segments it may have made.
    users: Option<Vec<u32>>,
    /// Its pages are not older, in the time of pages.
    started_ns: Option<u64>,
}

impl Maker {
    /// The process with this number now.
    pub fn of(pid: i32) -> Self {
        let status = fs::read_to_string(proc(pid, "status")).unwrap_or_default();
        let words =
            |key: &str| Some(status.lines().find_map(|line| line.strip_prefix(key))?.split_whitespace());
        let inner = words("NSpid:").and_then(|mut words| words.next_back()?.parse().ok());
        let users = words("Uid:").map(|words| {
            // One that has given up root's rights, or those of its container's root, may have made its page before.
            let own = words.filter_map(|word| word.parse().ok());
            own.chain([0]).chain(root_of_container(pid)).collect()
        });
        Self { inner, users, started_ns: started_ns(pid) }
    }

    /// May it have made a segment of this user?
    pub fn may_be(&self, user: u32) -> bool {
        self.users.as_ref().is_none_or(|users| users.contains(&user))
    }

    /// May this page be its own?
    pub fn may_have_made(&self, page: &Page) -> bool {
        self.inner.is_none_or(|inner| page.pid == inner)
            && self.started_ns.is_none_or(|started| page.born_ns >= started)
    }
}

/// The user, as seen from here, that is root where the process is.
fn root_of_container(pid: i32) -> Option<u32> {
    let map = fs::read_to_string(proc(pid, "uid_map")).ok()?;
    let mut root = map
        .lines()
        .map(str::split_whitespace)
        .find_map(|mut words| (words.next() == Some("0")).then_some(words))?;
    root.next()?.parse().ok()
}

/// Not later than when the process was started, in the time of pages; unknown where its clock is not ours.
fn started_ns(pid: i32) -> Option<u64> {
    let ours = fs::read_link("/proc/self/ns/time").ok()?;
    if fs::read_link(proc(pid, "ns/time")).ok()? != ours {
        return None;
    }
    let started = started(pid)?.saturating_mul(1_000_000_000) / ticks_per_second();
    // The time of pages stands still while the machine sleeps.
    Some(started.saturating_sub(segment::asleep_ns()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_another_user_or_from_before_its_time_is_not_a_process_s_own() {
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let maker = Maker::of(pid);
        assert!(maker.may_be(segment::user()) && maker.may_be(0) && !maker.may_be(u32::MAX - 1));
        let page = |pid, born_ns| Page { pid, version: String::new(), born_ns, heap: None, pools: None };
        let inner = maker.inner.unwrap();
        assert!(maker.may_have_made(&page(inner, segment::now_ns())));
        assert!(!maker.may_have_made(&page(inner + 1, segment::now_ns())));
        // Where the kernel has clocks of its own for containers.
        if maker.started_ns.is_some() {
            assert!(!maker.may_have_made(&page(inner, segment::now_ns() - 60_000_000_000)));
        }
        assert!(started(pid).is_some() && started(i32::MAX).is_none());
        drop(child.stdin.take());
        child.wait().unwrap();
        // Of one that is not there nothing is known.
        assert!(Maker::of(i32::MAX).may_have_made(&page(1, 0)));
    }
}
