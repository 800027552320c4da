// SPDX-License-Identifier: MIT
//! A profile in the formats of other tools. Each takes what is shown: the rows that the query chose, at its moment.

mod chrome;
mod dhat;
mod firefox;
mod folded;
mod lazy;
mod pprof;
mod speedscope;

use crate::query::live_at;
use crate::report::Report;

pub use chrome::chrome;
pub use dhat::dhat;
pub use firefox::firefox;
pub use folded::folded;
pub use lazy::Lazy;
pub use pprof::pprof;
pub use speedscope::speedscope;

/// What one call stack has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Stack {
    /// Where its blocks come from, in the tree of calls.
    leaf: u32,
    /// Allocations and reallocs, and bytes requested by them.
    allocations: u64,
    bytes: u64,
    /// Live at the moment.
    live: u64,
    live_bytes: u64,
    /// Live when most was.
    peak: u64,
    peak_bytes: u64,
    /// Live at the end.
    end: u64,
    end_bytes: u64,
}

/// The chosen call stacks that have anything, in the order of their names' tree.
fn stacks(report: &Report) -> Vec<Stack> {
    let rows = report.profile.rows.iter().enumerate().filter(|(number, _)| report.answer.chosen[*number]);
    let mut stacks: Vec<Stack> = rows
        .map(|(number, row)| {
            let (live, sums, peak) = (live_at(row, report.query.at), row.sums(), row.peak());
            Stack {
                leaf: report.calls.leaf(number),
                allocations: sums.allocs.value(),
                bytes: sums.bytes.value(),
                live: live.blocks.value(),
                live_bytes: live.bytes.value(),
                peak: peak.blocks.value(),
                peak_bytes: peak.bytes.value(),
                end: sums.live.value(),
                end_bytes: sums.live_bytes.value(),
            }
        })
        .collect();
    stacks.sort_by_key(|stack| stack.leaf);
    stacks.dedup_by(|next, first| {
        let same = next.leaf == first.leaf;
        if same {
            first.allocations += next.allocations;
            first.bytes += next.bytes;
            first.live += next.live;
            first.live_bytes += next.live_bytes;
            first.peak += next.peak;
            first.peak_bytes += next.peak_bytes;
            first.end += next.end;
            first.end_bytes += next.end_bytes;
        }
        same
    });
    stacks
}

/// What the program is called.
pub(crate) fn program(report: &Report) -> String {
    let program = &report.trace.head().program;
    let name = program.rsplit('/').next().unwrap_or_default();
    if name.is_empty() { report.file.to_owned() } else { name.to_owned() }
}
