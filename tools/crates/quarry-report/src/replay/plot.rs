// SPDX-License-Identifier: MIT
//! The page of a replay: the tables, and four kinds of pictures. Each allocator has one colour in all of them.

use quarry_replay::result::Operation;
use quarry_replay::session::Pass;

use super::{Outcome, Replay};
use crate::chart::{Axis, Bar, Bars, Line, Lines, Look, Shape, Unit, nines};
use crate::page::Page;
use crate::style::Style;
use crate::svg::{self, Svg, escape};

/// The whole page.
pub fn page(replay: &Replay) -> String {
    let outcomes: Vec<Outcome> = (0..replay.allocators.len()).map(|who| replay.outcome(who)).collect();
    let mut figures = String::new();
    let mut figure = |svg: Option<Svg>, caption: &str| {
        if let Some(svg) = svg {
            let svg = svg.inline();
            figures += &format!("<figure class=\"broad\">{svg}<figcaption>{caption}</figcaption></figure>\n");
        }
    };
    figure(
        bars(replay, &outcomes),
        "Time of the plan: the median of all rounds, and from the fastest to the slowest.",
    );
    figure(
        memory(replay),
        "Resident anonymous memory of one run each (that of the median time), and the live bytes in it, by the \
         part of the operations that was done: allocators of different speed can be compared that way.",
    );
    for kind in ["malloc", "free", "realloc", "calloc"] {
        let caption = format!(
            "How long calls of {kind} took: to the right are the slowest ones, one of a hundred from 99 % on, one \
             of a thousand from 99.9 % on. The time it takes to read the clock is taken off."
        );
        figure(latency(replay, kind), &caption);
    }
    let body = format!(
        include_str!("page.html"),
        table = escape(&replay.text(Style::default(), true)),
        figures = figures,
    );
    Page { title: &format!("Replay: {}", replay.file), style: &svg::style(), body: &body }.html()
}

/// A bar for each allocator.
fn bars(replay: &Replay, outcomes: &[Outcome]) -> Option<Svg> {
    let bar = |(who, outcome): (usize, &Outcome)| {
        let time = outcome.time_s?;
        Some(Bar {
            name: replay.allocators[who].name.clone(),
            who,
            value: Some(time.median),
            range: Some((time.min, time.max)),
            ..Bar::default()
        })
    };
    let bars = Bars {
        title: String::from("Time"),
        label: String::from("shorter is faster"),
        shape: Shape::WIDE,
        unit: Unit::Seconds,
        bars: outcomes.iter().enumerate().filter_map(bar).collect(),
    };
    bars.draw()
}

/// Resident and live bytes.
fn memory(replay: &Replay) -> Option<Svg> {
    let runs: Vec<_> = (0..replay.allocators.len())
        .filter_map(|who| Some((who, replay.typical(who, Pass::Totals)?)))
        .filter(|(_, report)| report.samples.rows.len() > 1)
        .collect();
    let line = |name: &str, who, report: &quarry_replay::result::Report, live: bool| {
        let part = |done: u64| 100.0 * done as f64 / report.played.max(1) as f64;
        let value = |row: &(u64, u64, i64, u64)| if live { row.2.max(0) as f64 } else { row.1 as f64 };
        let points = report.samples.rows.iter().map(|row| (part(row.3), value(row))).collect();
        Line { name: name.to_owned(), who, look: Look::Plain, points }
    };
    let mut lines: Vec<Line> =
        runs.iter().map(|&(who, report)| line(&replay.allocators[who].name, who, report, false)).collect();
    // The best known: the run with most samples.
    let best = runs.iter().max_by_key(|(_, report)| report.samples.rows.len());
    lines.extend(best.map(|(_, report)| line("live bytes", replay.allocators.len(), report, true)));
    if lines.iter().flat_map(|line| &line.points).all(|point| point.1 <= 0.0) {
        return None;
    }
    let done = String::from("operations done");
    let chart = Lines {
        title: String::from("Resident memory"),
        shape: Shape::WIDE,
        x: Axis { label: done, unit: Unit::Percent, ends: Some((0.0, 100.0)), ..Axis::default() },
        y: Axis { unit: Unit::Bytes, ..Axis::default() },
        lines,
        ..Lines::default()
    };
    chart.draw()
}

/// Duration by percentile.
fn latency(replay: &Replay, kind: &str) -> Option<Svg> {
    let runs: Vec<(usize, &Operation)> = (0..replay.allocators.len())
        .filter_map(|who| Some((who, replay.typical(who, Pass::Latency)?.operations.get(kind)?)))
        .filter(|(_, operation)| !operation.buckets.is_empty())
        .collect();
    // A handful of calls has no distribution.
    if runs.iter().all(|(_, operation)| operation.count < 100) {
        return None;
    }
    let line = |&(who, operation): &(usize, &Operation)| Line {
        name: replay.allocators[who].name.clone(),
        who,
        look: Look::Plain,
        points: nines(operation.buckets.iter().map(|&(ns, calls)| (ns.max(1.0), calls as f64))),
    };
    Lines::percentiles(kind.to_owned(), Shape::WIDE, runs.iter().map(line).collect()).draw()
}
