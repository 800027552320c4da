// SPDX-License-Identifier: MIT
//! A line for each call stack: names from the outermost function to the site, and live bytes.

use std::collections::BTreeMap;

use crate::diff;
use crate::report::Report;

/// What flamegraph.pl and its kin read.
pub fn folded(report: &Report) -> String {
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for stack in super::stacks(report) {
        *lines.entry(diff::folded(report.calls, stack.leaf)).or_default() += stack.live_bytes;
    }
    lines.iter().filter(|line| *line.1 > 0).map(|(names, bytes)| format!("{names} {bytes}\n")).collect()
}
