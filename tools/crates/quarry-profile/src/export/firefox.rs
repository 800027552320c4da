// SPDX-License-Identifier: MIT
//! The format of the Firefox profiler, version 48 of a processed profile: call stacks, and a table of allocations. What was live at the
//! moment is there as allocations, and the course of live memory as a counter.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::calls::{Label, ROOT};
use crate::report::Report;

/// Tables whose columns have one entry for each call, function or resource.
#[derive(Default)]
struct Tables {
    strings: Vec<String>,
    known: HashMap<String, usize>,
}

impl Tables {
    fn string(&mut self, text: &str) -> usize {
        if let Some(&known) = self.known.get(text) {
            return known;
        }
        self.strings.push(text.to_owned());
        self.known.insert(text.to_owned(), self.strings.len() - 1);
        self.strings.len() - 1
    }
}

/// What profiler.firefox.com reads.
pub fn firefox(report: &Report) -> Value {
    let (profile, calls) = (report.profile, report.calls);
    let ms = |ticks: u64| report.after(ticks) as f64 / 1e6;
    let mut tables = Tables::default();
    let nulls = |n: usize| vec![Value::Null; n];
    // Functions are labels, frames too, and stacks are calls: a stack's number is that of its call, less the root.
    let labels: Vec<Label> = calls.labels().collect();
    let names: Vec<usize> = labels.iter().map(|label| tables.string(label.function)).collect();
    let files: Vec<Value> = labels
        .iter()
        .map(|label| if label.file.is_empty() { Value::Null } else { tables.string(label.file).into() })
        .collect();
    let lines: Vec<Value> =
        labels.iter().map(|label| if label.line == 0 { Value::Null } else { label.line.into() }).collect();
    let n = labels.len();
    let prefix = calls.calls().iter().skip(1).map(|call| match call.parent {
        ROOT => Value::Null,
        parent => (parent - 1).into(),
    });
    let prefix: Vec<Value> = prefix.collect();
    let frames: Vec<u32> = calls.calls().iter().skip(1).map(|call| call.label).collect();
    let stacks: Vec<super::Stack> =
        super::stacks(report).into_iter().filter(|stack| stack.live_bytes > 0).collect();
    let moment = ms(report.moment());
    let points = profile.curve.points();
    let mut before = 0i64;
    let counts: Vec<i64> = points
        .iter()
        .map(|point| {
            let change = point.last as i64 - before;
            before = point.last as i64;
            change
        })
        .collect();
    let process = report.trace.head().process;
    let categories = json!([{ "name": "Other", "color": "grey", "subcategories": ["Other"] }]);
    let end = ms(profile.last);
    json!({
        "meta": {
            "interval": 1, "startTime": report.trace.head().start_unix_ns / 1_000_000, "processType": 0,
            "product": super::program(report), "stackwalk": 1, "version": 29, "preprocessedProfileVersion": 48,
            "categories": categories, "markerSchema": [], "symbolicated": true, "debug": false,
            "importedFrom": "quarry", "profilingEndTime": end,
            "sampleUnits": { "time": "ms", "eventDelay": "ms", "threadCPUDelta": "ns" },
        },
        "libs": [], "pages": [],
        "counters": [{
            "name": "malloc", "category": "Memory", "description": "live bytes", "pid": process.to_string(), "mainThreadIndex": 0,
            "samples": {
                "time": points.iter().map(|point| ms(point.time)).collect::<Vec<_>>(),
                "count": counts, "length": points.len(),
            },
        }],
        "threads": [{
            "processType": "default", "processName": super::program(report), "processStartupTime": 0.0, "processShutdownTime": end,
            "registerTime": 0.0, "unregisterTime": end, "pausedRanges": [],
            "name": format!("live {}", report.moment_text()), "isMainThread": true, "pid": process.to_string(), "tid": process,
            "samples": {
                "stack": stacks.iter().map(|stack| stack.leaf - 1).collect::<Vec<_>>(),
                "time": vec![moment; stacks.len()],
                "weight": stacks.iter().map(|stack| stack.live_bytes).collect::<Vec<_>>(),
                "weightType": "bytes", "length": stacks.len(),
            },
            "nativeAllocations": {
                "stack": stacks.iter().map(|stack| stack.leaf - 1).collect::<Vec<_>>(),
                "time": vec![moment; stacks.len()],
                "weight": stacks.iter().map(|stack| stack.live_bytes).collect::<Vec<_>>(),
                "weightType": "bytes", "length": stacks.len(),
            },
            "markers": { "data": [], "name": [], "startTime": [], "endTime": [], "phase": [], "category": [], "length": 0 },
            "stackTable": { "frame": frames, "prefix": prefix, "category": vec![0; frames.len()], "subcategory": vec![0; frames.len()], "length": frames.len() },
            "frameTable": {
                "address": vec![-1; n], "inlineDepth": vec![0; n], "category": nulls(n), "subcategory": nulls(n),
                "func": (0..n).collect::<Vec<_>>(), "nativeSymbol": nulls(n), "innerWindowID": nulls(n),
                "implementation": nulls(n), "line": lines, "column": nulls(n), "length": n,
            },
            "funcTable": {
                "isJS": vec![false; n], "relevantForJS": vec![false; n], "name": names, "resource": vec![-1; n],
                "fileName": files, "lineNumber": nulls(n), "columnNumber": nulls(n), "length": n,
            },
            "resourceTable": { "lib": [], "name": [], "host": [], "type": [], "length": 0 },
            "nativeSymbols": { "libIndex": [], "address": [], "name": [], "functionSize": [], "length": 0 },
            "stringArray": tables.strings,
        }],
    })
}
