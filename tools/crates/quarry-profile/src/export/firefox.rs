// SPDX-License-Identifier: MIT
//! The format of the Firefox profiler, version 48 of a processed profile: call stacks, and a table of allocations. What was live at the
//! moment is there as allocations, and the course of live memory as a counter.

use std::collections::HashMap;
use std::rc::Rc;

use quarry_trace::live::Point;
use serde_json::{Value, json};

use super::{Lazy, Stack};
use crate::calls::ROOT;
use crate::report::Report;

/// The texts of a profile, each once.
#[derive(Default)]
struct Strings<'a> {
    all: Vec<&'a str>,
    known: HashMap<&'a str, u32>,
}

impl<'a> Strings<'a> {
    fn number(&mut self, text: &'a str) -> u32 {
        let all = &mut self.all;
        *self.known.entry(text).or_insert_with(|| {
            all.push(text);
            all.len() as u32 - 1
        })
    }
}

/// A column that has the same everywhere.
fn same<'a>(n: usize, value: impl Into<Value>) -> Lazy<'a> {
    let value = value.into();
    Lazy::array(n, move |_| value.clone())
}

/// What was live at a moment, as samples and as allocations.
fn weights<'a>(stacks: &Rc<[Stack]>, moment: f64) -> Lazy<'a> {
    let (n, leaves, live) = (stacks.len(), stacks.clone(), stacks.clone());
    Lazy::table(
        n,
        vec![
            ("stack", Lazy::array(n, move |at| leaves[at].leaf - 1)),
            ("time", same(n, moment)),
            ("weight", Lazy::array(n, move |at| live[at].live_bytes)),
            ("weightType", "bytes".into()),
        ],
    )
}

/// Live bytes over time.
fn counter<'a>(report: &Report) -> Lazy<'a> {
    let points = report.profile.curve.points();
    let mut before = 0i64;
    let change = |point: &Point| {
        let change = point.last as i64 - before;
        before = point.last as i64;
        change
    };
    let counts: Vec<i64> = points.iter().map(change).collect();
    let times: Vec<f64> = points.iter().map(|point| report.after(point.time) as f64 / 1e6).collect();
    json!([{
        "name": "malloc", "category": "Memory", "description": "live bytes",
        "pid": report.trace.head().process.to_string(), "mainThreadIndex": 0,
        "samples": { "time": times, "count": counts, "length": points.len() },
    }])
    .into()
}

/// Call stacks. Functions are labels, frames too, and stacks are calls: a stack's number is that of its call, less the root.
fn tables<'a>(report: &'a Report) -> Vec<(&'static str, Lazy<'a>)> {
    let calls = report.calls;
    let mut strings = Strings::default();
    let names: Vec<u32> = calls.labels().map(|label| strings.number(label.function)).collect();
    let file = |file: &'a str| (!file.is_empty()).then(|| strings.number(file));
    let files: Vec<Option<u32>> = calls.labels().map(|label| label.file).map(file).collect();
    let line = |at: usize| match calls.label_of(at as u32).line {
        0 => Value::Null,
        line => line.into(),
    };
    let call = |at: usize| &calls.calls()[at + 1];
    let prefix = move |at: usize| match call(at).parent {
        ROOT => Value::Null,
        parent => (parent - 1).into(),
    };
    let (n, stacks, texts) = (names.len(), calls.calls().len() - 1, strings.all.len());
    let nulls = || same(n, Value::Null);
    vec![
        (
            "stackTable",
            Lazy::table(
                stacks,
                vec![
                    ("frame", Lazy::array(stacks, move |at| call(at).label)),
                    ("prefix", Lazy::array(stacks, prefix)),
                    ("category", same(stacks, 0)),
                    ("subcategory", same(stacks, 0)),
                ],
            ),
        ),
        (
            "frameTable",
            Lazy::table(
                n,
                vec![
                    ("address", same(n, -1)),
                    ("inlineDepth", same(n, 0)),
                    ("category", nulls()),
                    ("subcategory", nulls()),
                    ("func", Lazy::array(n, |at| at)),
                    ("nativeSymbol", nulls()),
                    ("innerWindowID", nulls()),
                    ("implementation", nulls()),
                    ("line", Lazy::array(n, line)),
                    ("column", nulls()),
                ],
            ),
        ),
        (
            "funcTable",
            Lazy::table(
                n,
                vec![
                    ("isJS", same(n, false)),
                    ("relevantForJS", same(n, false)),
                    ("name", Lazy::array(n, move |at| names[at])),
                    ("resource", same(n, -1)),
                    ("fileName", Lazy::array(n, move |at| files[at])),
                    ("lineNumber", nulls()),
                    ("columnNumber", nulls()),
                ],
            ),
        ),
        ("stringArray", Lazy::array(texts, move |at| strings.all[at])),
    ]
}

/// What profiler.firefox.com reads.
pub fn firefox<'a>(report: &'a Report) -> Lazy<'a> {
    let ms = |ticks: u64| report.after(ticks) as f64 / 1e6;
    let (process, end) = (report.trace.head().process, ms(report.profile.last));
    let mut stacks = super::stacks(report);
    stacks.retain(|stack| stack.live_bytes > 0);
    let (stacks, moment) = (stacks.into(), ms(report.moment()));
    let mut thread = vec![
        ("processType", "default".into()),
        ("processName", super::program(report).into()),
        ("processStartupTime", 0.0.into()),
        ("processShutdownTime", end.into()),
        ("registerTime", 0.0.into()),
        ("unregisterTime", end.into()),
        ("pausedRanges", json!([]).into()),
        ("name", format!("live {}", report.moment_text()).into()),
        ("isMainThread", true.into()),
        ("pid", process.to_string().into()),
        ("tid", process.into()),
        ("samples", weights(&stacks, moment)),
        ("nativeAllocations", weights(&stacks, moment)),
        (
            "markers",
            json!({ "data": [], "name": [], "startTime": [], "endTime": [], "phase": [], "category": [], "length": 0 })
                .into(),
        ),
        ("resourceTable", json!({ "lib": [], "name": [], "host": [], "type": [], "length": 0 }).into()),
        (
            "nativeSymbols",
            json!({ "libIndex": [], "address": [], "name": [], "functionSize": [], "length": 0 }).into(),
        ),
    ];
    thread.extend(tables(report));
    let meta = json!({
        "interval": 1, "startTime": report.trace.head().start_unix_ns / 1_000_000, "processType": 0,
        "product": super::program(report), "stackwalk": 1, "version": 29, "preprocessedProfileVersion": 48,
        "categories": [{ "name": "Other", "color": "grey", "subcategories": ["Other"] }],
        "markerSchema": [], "symbolicated": true, "debug": false,
        "importedFrom": "quarry", "profilingEndTime": end,
        "sampleUnits": { "time": "ms", "eventDelay": "ms", "threadCPUDelta": "ns" },
    });
    Lazy::Object(vec![
        ("meta", meta.into()),
        ("libs", json!([]).into()),
        ("pages", json!([]).into()),
        ("counters", counter(report)),
        ("threads", Lazy::List(vec![Lazy::Object(thread)])),
    ])
}
