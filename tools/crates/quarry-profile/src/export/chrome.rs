// SPDX-License-Identifier: MIT
//! Chrome's trace events, which Perfetto reads too: live bytes over time as counters, of the program and of its first groups.

use quarry_trace::live::Point;
use serde_json::{Value, json};

use crate::query::live_over_time;
use crate::report::Report;

/// What ui.perfetto.dev and chrome://tracing read.
pub fn chrome(report: &Report) -> Value {
    let (profile, process) = (report.profile, report.trace.head().process);
    let us = |ticks: u64| report.after(ticks) as f64 / 1000.0;
    let counter = |name: &str, ticks: u64, bytes: u64| json!({ "ph": "C", "name": name, "pid": process, "ts": us(ticks), "args": { "bytes": bytes } });
    let mut events = vec![
        json!({ "ph": "M", "name": "process_name", "pid": process, "args": { "name": super::program(report) } }),
    ];
    for Point { time, most, last } in profile.curve.points() {
        // The highest value of a span, and the one at its end.
        events.push(counter("live bytes", time, most));
        if last != most {
            events.push(counter("live bytes", time, last));
        }
    }
    for group in &report.answer.groups {
        let mut before = f64::NAN;
        for (span, bytes) in live_over_time(profile, &group.rows).into_iter().enumerate() {
            if bytes.to_bits() != before.to_bits() {
                let end = profile.spans.begin(span + 1).min(profile.last);
                events.push(counter(&group.name, end, bytes.max(0.0) as u64));
                before = bytes;
            }
        }
    }
    json!({ "displayTimeUnit": "ms", "traceEvents": events })
}
