// SPDX-License-Identifier: MIT
//! The programs that a process runs one after the other: each has a trace of its own, FILE, FILE.2, FILE.3, ...

use std::path::{Path, PathBuf};

use quarry_trace::Trace;

/// More than a script runs.
const MOST: usize = 1000;

/// The traces of the later programs of this process, with their bytes.
fn later(path: &Path, process: u32) -> Vec<(PathBuf, u64)> {
    let name = |number: usize| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    };
    let of_process = |path: PathBuf| {
        let trace = Trace::open(&path).ok().filter(|trace| trace.head().process == process)?;
        Some((path, trace.bytes()))
    };
    (2..MOST).map_while(|number| of_process(name(number))).collect()
}

/// Where the first trace is that of a shell or another starter: which one is probably meant.
pub fn remark(path: &Path, trace: &Trace) -> Option<String> {
    let later = later(path, trace.head().process);
    // The first of equals.
    let largest =
        later.iter().rev().max_by_key(|(_, bytes)| *bytes).filter(|(_, bytes)| *bytes > trace.bytes())?;
    Some(format!(
        "this is the first of {} programs that the process ran; the largest trace is {}",
        later.len() + 1,
        largest.0.display()
    ))
}
