// SPDX-License-Identifier: MIT
//! What a program says of a run: a line of JSON for each phase (bench/README.md has the members).

use std::collections::BTreeMap;

use quarry_measure::spawn::Measured;
use quarry_replay::result::Report;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A curve within a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// What the numbers of a row are; the first is x.
    pub columns: Vec<String>,
    /// The rows; what could not be measured is null.
    pub rows: Vec<Vec<Option<f64>>>,
}

impl Series {
    /// Has it an x, a y, and in each row as many numbers as columns?
    pub fn check(&self) -> Result<(), String> {
        let width = self.columns.len();
        if width < 2 || self.rows.iter().any(|row| row.len() != width) {
            return Err(format!("its series has {width} columns, and rows of another length or no y"));
        }
        Ok(())
    }
}

/// One phase of one run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Phase {
    /// Its name; empty for the only one.
    pub name: String,
    /// Elapsed time.
    pub seconds: f64,
    /// Processor time of all threads, of the phase.
    pub cpu_seconds: Option<f64>,
    /// Of this in the program,
    pub user_seconds: Option<f64>,
    /// and in the kernel.
    pub system_seconds: Option<f64>,
    /// What was done.
    pub operations: f64,
    /// Most resident memory of the process by then, KiB.
    pub peak_rss_kib: Option<f64>,
    /// Bytes asked for at the highest moment.
    pub payload_bytes: Option<f64>,
    /// The result of the work.
    pub check: Option<String>,
    /// Other numbers.
    pub values: BTreeMap<String, f64>,
    /// What processor and kernel counted.
    pub counters: BTreeMap<String, f64>,
    /// Why the processor's counters are missing, if they are.
    pub counters_note: Option<String>,
    /// A curve.
    pub series: Option<Series>,
}

/// The lines of a program.
pub fn parse(text: &str) -> Result<Vec<Phase>, String> {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let phases: Vec<Phase> = lines
        .map(|line| {
            let value: Value = serde_json::from_str(line)
                .map_err(|error| format!("a line of its output is no JSON ({error}): {}", begin(line)))?;
            phase(&value).map_err(|why| format!("{why}: {}", begin(line)))
        })
        .collect::<Result<_, _>>()?;
    if phases.is_empty() {
        return Err(String::from("it printed nothing"));
    }
    let twice = |at: usize| phases[..at].iter().any(|other| other.name == phases[at].name);
    if let Some(at) = (1..phases.len()).find(|&at| twice(at)) {
        return Err(format!("there are two lines for the phase '{}'", phases[at].name));
    }
    Ok(phases)
}

fn begin(line: &str) -> String {
    let short: String = line.chars().take(120).collect();
    if short.len() < line.len() { short + "…" } else { short }
}

/// The programs of bench/quick have other words for the same things.
fn phase(line: &Value) -> Result<Phase, String> {
    let number = |names: &[&str]| names.iter().find_map(|name| line[*name].as_f64());
    let seconds = number(&["seconds"]).ok_or("a line has no seconds")?;
    if seconds < 0.0 {
        return Err(String::from("its seconds are negative"));
    }
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    let series: Option<Series> = match &line["series"] {
        Value::Null => None,
        value => Some(serde_json::from_value(value.clone()).map_err(|error| format!("its series: {error}"))?),
    };
    series.as_ref().map_or(Ok(()), Series::check)?;
    Ok(Phase {
        name: line["phase"].as_str().unwrap_or_default().to_owned(),
        seconds,
        cpu_seconds: number(&["cpu_seconds"]),
        user_seconds: number(&["user_seconds"]),
        system_seconds: number(&["system_seconds"]),
        operations: number(&["operations", "ops"]).unwrap_or(0.0),
        peak_rss_kib: number(&["rss_peak_kib", "peak_kib"]).filter(|kib| *kib > 0.0),
        payload_bytes: number(&["payload_bytes"]).filter(|bytes| *bytes > 0.0),
        check: text(&line["check"]),
        values: numbers(&line["values"]),
        counters: numbers(&line["counters"]),
        counters_note: line["counters"]["hardware"].as_str().map(str::to_owned),
        series,
    })
}

/// The members that are numbers.
fn numbers(object: &Value) -> BTreeMap<String, f64> {
    let members = object.as_object().into_iter().flatten();
    members.filter_map(|(name, value)| Some((name.clone(), value.as_f64()?))).collect()
}

/// A program that says nothing of itself: the whole run, and its output in the place of a result.
pub fn whole(measured: &Measured) -> Vec<Phase> {
    vec![Phase {
        seconds: measured.usage.wall_s,
        operations: 1.0,
        check: Some(format!("{} {}", measured.stdout.bytes(), measured.stdout.hex())),
        ..Phase::default()
    }]
}

/// What the replayer has written.
pub fn replayed(text: &str) -> Result<Vec<Phase>, String> {
    let report = Report::parse(text)?;
    let seconds = |ns: u64| ns as f64 / 1e9;
    // A request that was refused is work that was not done.
    let check = format!("{} operations, {} refused", report.played, report.failed());
    Ok(vec![Phase {
        seconds: seconds(report.wall_ns),
        cpu_seconds: Some(seconds(report.user_ns + report.system_ns)),
        user_seconds: Some(seconds(report.user_ns)),
        system_seconds: Some(seconds(report.system_ns)),
        operations: report.played as f64,
        peak_rss_kib: Some(report.rss.peak as f64 / 1024.0),
        payload_bytes: Some(report.samples.peak_live.max(0) as f64).filter(|bytes| *bytes > 0.0),
        check: Some(check),
        ..Phase::default()
    }])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_both_kinds() {
        let phases = parse(
            "{\"scenario\":\"list\",\"phase\":\"alloc\",\"seconds\":0.5,\"cpu_seconds\":0.4,\"operations\":10,\"rss_peak_kib\":9,\
             \"payload_bytes\":80,\"check\":\"ab\",\"values\":{\"best_ns\":3.5,\"bad\":null},\
             \"series\":{\"columns\":[\"x\",\"y\"],\"rows\":[[1,2],[2,null]]},\"counters\":{\"cycles\":null,\"page_faults\":3,\"hardware\":\"no\"}}\n\
             \n{\"phase\":\"free\",\"seconds\":0,\"operations\":10}\n",
        )
        .unwrap();
        assert_eq!(phases.len(), 2);
        let first = &phases[0];
        assert_eq!((first.name.as_str(), first.seconds, first.operations), ("alloc", 0.5, 10.0));
        assert_eq!(first.values, BTreeMap::from([(String::from("best_ns"), 3.5)]));
        assert_eq!(first.counters, BTreeMap::from([(String::from("page_faults"), 3.0)]));
        assert_eq!(first.counters_note.as_deref(), Some("no"));
        assert_eq!(first.series.as_ref().unwrap().rows[1], [Some(2.0), None]);
        assert_eq!((phases[1].check.as_ref(), phases[1].peak_rss_kib), (None, None));
        let quick = parse(
            "{\"name\":\"tree\",\"ops\":7,\"seconds\":1.5,\"peak_kib\":5,\"check\":\"0a\",\"counters\":{}}",
        )
        .unwrap();
        assert_eq!(
            (quick[0].operations, quick[0].peak_rss_kib, quick[0].name.as_str()),
            (7.0, Some(5.0), "")
        );
    }

    #[test]
    fn nonsense_is_named() {
        let fault = |text: &str| parse(text).unwrap_err();
        assert!(fault("").contains("printed nothing"));
        assert!(fault("hello").contains("no JSON") && fault("hello").contains("hello"));
        assert!(fault("{\"operations\":1}").contains("no seconds"));
        assert!(fault("{\"seconds\":-1}").contains("negative"));
        assert!(fault("{\"seconds\":1}\n{\"seconds\":1}").contains("two lines"));
        assert!(fault("{\"seconds\":1,\"series\":{\"columns\":[\"x\"],\"rows\":[]}}").contains("columns"));
        assert!(
            fault("{\"seconds\":1,\"series\":{\"columns\":[\"x\",\"y\"],\"rows\":[[1]]}}")
                .contains("columns")
        );
        assert!(fault(&"x".repeat(500)).len() < 300);
    }
}
