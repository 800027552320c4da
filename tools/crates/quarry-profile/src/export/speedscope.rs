// SPDX-License-Identifier: MIT
//! speedscope's JSON: a sampled profile, whose samples are call stacks and whose weights are bytes.

use serde_json::{Value, json};

use crate::report::Report;

/// What speedscope.app reads: live bytes at the moment, and bytes allocated.
pub fn speedscope(report: &Report) -> Value {
    let calls = report.calls;
    let frame = |label: crate::calls::Label| {
        let mut frame = json!({ "name": label.function });
        if !label.file.is_empty() {
            frame["file"] = label.file.into();
        }
        if label.line > 0 {
            frame["line"] = label.line.into();
        }
        frame
    };
    let stacks = super::stacks(report);
    let profile = |name: String, of: &dyn Fn(&super::Stack) -> u64| {
        let chosen: Vec<(&super::Stack, u64)> =
            stacks.iter().map(|stack| (stack, of(stack))).filter(|(_, bytes)| *bytes > 0).collect();
        let path = |leaf: u32| {
            let mut path: Vec<u32> = calls.up(leaf).map(|call| calls.calls()[call as usize].label).collect();
            path.reverse();
            path
        };
        json!({
            "type": "sampled",
            "name": name,
            "unit": "bytes",
            "startValue": 0,
            "endValue": chosen.iter().map(|(_, bytes)| bytes).sum::<u64>(),
            "samples": chosen.iter().map(|(stack, _)| path(stack.leaf)).collect::<Vec<_>>(),
            "weights": chosen.iter().map(|(_, bytes)| *bytes).collect::<Vec<_>>(),
        })
    };
    json!({
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "name": super::program(report),
        "exporter": concat!("quarry ", env!("CARGO_PKG_VERSION")),
        "activeProfileIndex": 0,
        "shared": { "frames": calls.labels().map(frame).collect::<Vec<_>>() },
        "profiles": [
            profile(format!("live {}", report.moment_text()), &|stack| stack.live_bytes),
            profile(String::from("allocated"), &|stack| stack.bytes),
        ],
    })
}
