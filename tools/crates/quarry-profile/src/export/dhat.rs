// SPDX-License-Identifier: MIT
//! DHAT's JSON, version 2: what `dh_view.html` of valgrind reads. It has totals, what was live at the peak (t-gmax) and at the end, and
//! lifetimes. Reads and writes are not known, and it says so.

use serde_json::json;

use super::Lazy;
use crate::report::Report;

/// The file.
pub fn dhat<'a>(report: &'a Report) -> Lazy<'a> {
    let (profile, calls) = (report.profile, report.calls);
    let mut lifetimes = vec![0u64; calls.calls().len()];
    for (number, row) in profile.rows.iter().enumerate() {
        // The sum of lives, each taken for the middle of its bar.
        let sum: f64 =
            row.lives.bars().iter().map(|&(bar, ended, survived)| (ended + survived) * middle(bar)).sum();
        lifetimes[calls.leaf(number) as usize] += report.trace.duration_ns(sum as u64) / 1000;
    }
    let mut stacks = super::stacks(report);
    stacks.retain(|stack| stack.allocations > 0);
    let points = stacks.len();
    // Frames are labels, behind one for the root.
    let point = move |at: usize| {
        let stack = &stacks[at];
        let path: Vec<u32> =
            calls.up(stack.leaf).map(|call| calls.calls()[call as usize].label + 1).collect();
        json!({
            "tb": stack.bytes, "tbk": stack.allocations,
            "tl": lifetimes[stack.leaf as usize],
            // The most that this stack alone had is not kept: what it had when the program had most.
            "mb": stack.peak_bytes, "mbk": stack.peak,
            "gb": stack.peak_bytes, "gbk": stack.peak,
            "eb": stack.end_bytes, "ebk": stack.end,
            "fs": path,
        })
    };
    let frame = |at: usize| match at.checked_sub(1) {
        None => String::from("[root]"),
        // A hexadecimal address stands first, which the viewer needs and this tree does not have.
        Some(label) => format!("{:#x}: {}", label, calls.label_of(label as u32).text),
    };
    let us = |ticks: u64| report.after(ticks) / 1000;
    let head = report.trace.head();
    Lazy::Object(vec![
        ("dhatFileVersion", 2.into()),
        ("mode", "heap".into()),
        ("verb", "Allocated".into()),
        ("bklt", true.into()),
        ("bkacc", false.into()),
        ("tu", "µs".into()),
        ("Mtu", "s".into()),
        ("tuth", 10.into()),
        ("cmd", head.command_line().into()),
        ("pid", head.process.into()),
        ("tg", us(profile.peak.time).into()),
        ("te", us(profile.last).into()),
        ("pps", Lazy::array(points, point)),
        ("ftbl", Lazy::array(calls.labels().len() + 1, frame)),
    ])
}

/// Of the times in a bar.
fn middle(bar: u8) -> f64 {
    match bar {
        0 => 0.0,
        bar => 0.75 * (f64::from(bar)).exp2(),
    }
}
