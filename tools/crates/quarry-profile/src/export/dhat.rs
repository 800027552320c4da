// SPDX-License-Identifier: MIT
//! DHAT's JSON, version 2: what `dh_view.html` of valgrind reads. It has totals, what was live at the peak (t-gmax) and at the end, and
//! lifetimes. Reads and writes are not known, and it says so.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::report::Report;

/// The file.
pub fn dhat(report: &Report) -> Value {
    let (profile, calls) = (report.profile, report.calls);
    let mut frames: Vec<String> = vec![String::from("[root]")];
    let mut known: HashMap<u32, usize> = HashMap::new();
    let mut lifetimes: HashMap<u32, u64> = HashMap::new();
    for (number, row) in profile.rows.iter().enumerate() {
        // The sum of lives, each taken for the middle of its bar.
        let sum: f64 =
            row.lives.bars().iter().map(|&(bar, ended, survived)| (ended + survived) * middle(bar)).sum();
        let sum = report.trace.duration_ns(sum as u64) / 1000;
        *lifetimes.entry(calls.leaf(number)).or_default() += sum;
    }
    let points: Vec<Value> = super::stacks(report)
        .iter()
        .filter(|stack| stack.allocations > 0)
        .map(|stack| {
            let path: Vec<usize> = calls
                .up(stack.leaf)
                .map(|call| {
                    let label = calls.calls()[call as usize].label;
                    *known.entry(label).or_insert_with(|| {
                        // A hexadecimal address stands first, which the viewer needs and this tree does not have.
                        frames.push(format!("{:#x}: {}", label, calls.label_of(label).text));
                        frames.len() - 1
                    })
                })
                .collect();
            json!({
                "tb": stack.bytes, "tbk": stack.allocations,
                "tl": lifetimes.get(&stack.leaf).copied().unwrap_or(0),
                // The most that this stack alone had is not kept: what it had when the program had most.
                "mb": stack.peak_bytes, "mbk": stack.peak,
                "gb": stack.peak_bytes, "gbk": stack.peak,
                "eb": stack.end_bytes, "ebk": stack.end,
                "fs": path,
            })
        })
        .collect();
    let us = |ticks: u64| report.after(ticks) / 1000;
    json!({
        "dhatFileVersion": 2,
        "mode": "heap",
        "verb": "Allocated",
        "bklt": true,
        "bkacc": false,
        "tu": "µs", "Mtu": "s", "tuth": 10,
        "cmd": report.trace.head().command.join(" "),
        "pid": report.trace.head().process,
        "tg": us(profile.peak.time),
        "te": us(profile.last),
        "pps": points,
        "ftbl": frames,
    })
}

/// Of the times in a bar.
fn middle(bar: u8) -> f64 {
    match bar {
        0 => 0.0,
        bar => 0.75 * (f64::from(bar)).exp2(),
    }
}
