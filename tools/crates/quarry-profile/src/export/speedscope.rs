// SPDX-License-Identifier: MIT
//! speedscope's JSON: a sampled profile, whose samples are call stacks and whose weights are bytes.

use serde_json::json;

use super::{Lazy, Stack};
use crate::report::Report;

/// What speedscope.app reads: live bytes at the moment, and bytes allocated.
pub fn speedscope<'a>(report: &'a Report) -> Lazy<'a> {
    let calls = report.calls;
    let frame = |at: usize| {
        let label = calls.label_of(at as u32);
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
    let profile = |name: String, of: fn(&Stack) -> u64| {
        let chosen: Vec<(u32, u64)> =
            stacks.iter().map(|stack| (stack.leaf, of(stack))).filter(|(_, bytes)| *bytes > 0).collect();
        let (n, all) = (chosen.len(), chosen.iter().map(|(_, bytes)| bytes).sum::<u64>());
        let (leaves, weights): (Vec<u32>, Vec<u64>) = chosen.into_iter().unzip();
        let path = move |at: usize| {
            let mut path: Vec<u32> =
                calls.up(leaves[at]).map(|call| calls.calls()[call as usize].label).collect();
            path.reverse();
            path
        };
        Lazy::Object(vec![
            ("type", "sampled".into()),
            ("name", name.into()),
            ("unit", "bytes".into()),
            ("startValue", 0.into()),
            ("endValue", all.into()),
            ("samples", Lazy::array(n, path)),
            ("weights", Lazy::array(n, move |at| weights[at])),
        ])
    };
    Lazy::Object(vec![
        ("$schema", "https://www.speedscope.app/file-format-schema.json".into()),
        ("name", super::program(report).into()),
        ("exporter", concat!("quarry ", env!("CARGO_PKG_VERSION")).into()),
        ("activeProfileIndex", 0.into()),
        ("shared", Lazy::Object(vec![("frames", Lazy::array(calls.labels().len(), frame))])),
        (
            "profiles",
            Lazy::List(vec![
                profile(format!("live {}", report.moment_text()), |stack| stack.live_bytes),
                profile(String::from("allocated"), |stack| stack.bytes),
            ]),
        ),
    ])
}
