// SPDX-License-Identifier: MIT
//! Processes that outlive the command: a copy of it that became a daemon has often nothing to say by then, and no file.

use std::collections::{BTreeSet, HashMap};
use std::fs;

use quarry_check::finding::Findings;
use quarry_proc::Root;
use rustix::process::{Pid, WaitOptions};

use super::running::CHECKER;

/// From here on processes whose parents have ended become our children, so that they are found.
pub fn adopt() {
    // Where that is refused, only those with a file are found.
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}

/// Have those that have ended go. Not the command: somebody else waits for it.
pub fn reap(command: i32) {
    let pid = std::process::id();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let others = children.split_ascii_whitespace().filter_map(|word| word.parse().ok());
    for child in others.filter(|&child| child != command).filter_map(Pid::from_raw) {
        let _ = rustix::process::waitpid(Some(child), WaitOptions::NOHANG);
    }
}

/// Those that are checked and live: copies of what is shown, or all of them.
pub fn find(findings: &Findings, all: bool) -> BTreeSet<u32> {
    let mut living = descendants();
    living.retain(|pid| match all {
        true => is_checked(*pid),
        false => runs(*pid, findings),
    });
    // One with a file need not be our descendant: another program may have adopted it.
    let without_end = findings.processes.iter().filter(|process| process.end.is_none());
    living.extend(without_end.map(|process| process.begin.pid).filter(|&pid| is_checked(pid)));
    living
}

fn descendants() -> BTreeSet<u32> {
    let root = Root::live();
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for pid in root.pids().unwrap_or_default() {
        let stat = root.process(pid).and_then(|process| process.stat());
        if let Some(stat) = stat.ok().filter(|stat| !['Z', 'X'].contains(&stat.state)) {
            children.entry(stat.parent).or_default().push(pid);
        }
    }
    let (mut found, mut next) = (BTreeSet::new(), vec![std::process::id()]);
    while let Some(parent) = next.pop() {
        for child in children.remove(&parent).unwrap_or_default() {
            found.insert(child);
            next.push(child);
        }
    }
    found
}

/// Is the library loaded there?
fn is_checked(pid: u32) -> bool {
    fs::read(format!("/proc/{pid}/maps")).is_ok_and(|maps| String::from_utf8_lossy(&maps).contains(CHECKER))
}

/// Does it run a program that a process ran which is shown?
fn runs(pid: u32, findings: &Findings) -> bool {
    let Ok(exe) = fs::read_link(format!("/proc/{pid}/exe")) else { return false };
    let exe = exe.to_string_lossy();
    is_checked(pid) && findings.processes.iter().any(|process| process.begin.exe == exe)
}
