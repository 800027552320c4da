// SPDX-License-Identifier: MIT
//! The page of a replay: the tables, and four kinds of pictures. Each allocator has one colour in all of them.

use std::io;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use quarry_replay::result::Operation;
use quarry_replay::session::Pass;

use super::{Outcome, Replay};
use crate::page::Page;
use crate::style::Style;
use crate::svg::escape;
use crate::units;

const WIDTH: u32 = 1100;
const HEIGHT: u32 = 360;

/// Colours that can be told apart, also by those who see few.
const COLORS: [RGBColor; 8] = [
    RGBColor(0, 0, 0),
    RGBColor(140, 30, 170),
    RGBColor(230, 120, 0),
    RGBColor(0, 130, 120),
    RGBColor(0, 90, 200),
    RGBColor(190, 20, 50),
    RGBColor(120, 120, 0),
    RGBColor(110, 110, 110),
];
const LIVE: RGBColor = RGBColor(60, 160, 60);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Plotting into memory fails only if this code is wrong; yet that is no reason to panic.
fn failed<E: std::error::Error + Send + Sync>(error: DrawingAreaErrorKind<E>) -> io::Error {
    io::Error::other(error.to_string())
}

fn color(who: usize) -> RGBColor {
    COLORS[who % COLORS.len()]
}

fn font(size: f64) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&BLACK)
}

fn draw(height: u32, paint: impl FnOnce(&Area) -> io::Result<()>) -> io::Result<String> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height.max(1))).into_drawing_area();
        root.fill(&WHITE).map_err(failed)?;
        paint(&root)?;
        root.present().map_err(failed)?;
    }
    Ok(svg)
}

/// The whole page.
pub fn page(replay: &Replay) -> io::Result<String> {
    let outcomes: Vec<Outcome> = (0..replay.allocators.len()).map(|who| replay.outcome(who)).collect();
    let mut figures = String::new();
    let mut figure = |svg: Option<String>, caption: &str| {
        if let Some(svg) = svg {
            figures += &format!("<figure>{svg}<figcaption>{caption}</figcaption></figure>\n");
        }
    };
    figure(
        bars(replay, &outcomes)?,
        "Time of the plan: the median of all rounds, and from the fastest to the slowest.",
    );
    figure(
        memory(replay)?,
        "Resident anonymous memory of one run each (that of the median time), and the live bytes in it, by the \
         part of the operations that was done: allocators of different speed can be compared that way.",
    );
    for kind in ["malloc", "free", "realloc", "calloc"] {
        let caption = format!(
            "How long calls of {kind} took: to the right are the slowest ones, one of a hundred from 99 % on, one \
             of a thousand from 99.9 % on. The time it takes to read the clock is taken off."
        );
        figure(latency(replay, kind)?, &caption);
    }
    let legend: Vec<String> = replay
        .allocators
        .iter()
        .enumerate()
        .map(|(who, allocator)| (color(who), allocator.name.as_str()))
        .chain([(LIVE, "live bytes")])
        .map(|(RGBColor(r, g, b), name)| {
            format!("<span style=\"color:rgb({r},{g},{b})\">\u{25A0}</span> {}", escape(name))
        })
        .collect();
    let body = format!(
        include_str!("page.html"),
        table = escape(&replay.text(Style::default())),
        legend = legend.join(" &nbsp; "),
        figures = figures,
    );
    Ok(Page { title: &format!("Replay: {}", replay.file), style: "", body: &body }.html())
}

/// A bar for each allocator.
fn bars(replay: &Replay, outcomes: &[Outcome]) -> io::Result<Option<String>> {
    const ROW: i32 = 26;
    const LEFT: i32 = 210;
    let timed: Vec<(usize, f64, f64, f64)> = outcomes
        .iter()
        .enumerate()
        .filter_map(|(who, o)| o.time_s.map(|time| (who, time.median, time.min, time.max)))
        .collect();
    let most = timed.iter().map(|bar| bar.3).fold(0.0, f64::max);
    if most <= 0.0 {
        return Ok(None);
    }
    let x = |seconds: f64| LEFT + (seconds / most * f64::from(WIDTH as i32 - LEFT - 110)) as i32;
    let svg = draw(30 + ROW as u32 * timed.len() as u32, |root| {
        for (row, &(who, middle, least, largest)) in timed.iter().enumerate() {
            let top = 10 + ROW * row as i32;
            let name = font(13.0).pos(Pos::new(HPos::Right, VPos::Top));
            root.draw(&Text::new(replay.allocators[who].name.clone(), (LEFT - 8, top + 2), name))
                .map_err(failed)?;
            let bar = Rectangle::new([(LEFT, top), (x(middle), top + 16)], color(who).mix(0.75).filled());
            root.draw(&bar).map_err(failed)?;
            let whisker = PathElement::new(vec![(x(least), top + 8), (x(largest), top + 8)], BLACK.mix(0.6));
            root.draw(&whisker).map_err(failed)?;
            let text = Text::new(units::seconds(middle), (x(largest) + 6, top + 2), font(12.0));
            root.draw(&text).map_err(failed)?;
        }
        Ok(())
    })?;
    Ok(Some(svg))
}

/// The unit that sizes up to this one are told in.
fn unit_of(most: f64) -> (f64, &'static str) {
    let units = [(1024f64.powi(3), "GiB"), (1024f64.powi(2), "MiB"), (1024.0, "KiB")];
    units.into_iter().find(|(unit, _)| most >= 2.0 * unit).unwrap_or((1.0, "B"))
}

/// Resident and live bytes.
fn memory(replay: &Replay) -> io::Result<Option<String>> {
    let runs: Vec<_> = (0..replay.allocators.len())
        .filter_map(|who| Some((who, replay.typical(who, Pass::Totals)?)))
        .filter(|(_, report)| report.samples.rows.len() > 1)
        .collect();
    let rows = || runs.iter().flat_map(|(_, report)| &report.samples.rows);
    let most = rows().map(|row| row.1.max(row.2.max(0) as u64)).max().unwrap_or(0) as f64;
    if most <= 0.0 {
        return Ok(None);
    }
    // In whole units, so that the marks are at round numbers of them.
    let (unit, name) = unit_of(most);
    let part =
        |report: &quarry_replay::result::Report, done: u64| 100.0 * done as f64 / report.played.max(1) as f64;
    let svg = draw(HEIGHT, |root| {
        let mut chart = ChartBuilder::on(root)
            .margin(12)
            .margin_right(30)
            .x_label_area_size(34)
            .y_label_area_size(80)
            .build_cartesian_2d(0.0..100.0, 0.0..most / unit * 1.05)
            .map_err(failed)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(BLACK.mix(0.12))
            .x_label_formatter(&|x: &f64| format!("{x:.0} %"))
            .y_label_formatter(&|y: &f64| format!("{y} {name}"))
            .x_desc("operations done")
            .label_style(font(11.0))
            .axis_desc_style(font(11.0))
            .draw()
            .map_err(failed)?;
        for (who, report) in &runs {
            let points = report.samples.rows.iter().map(|row| (part(report, row.3), row.1 as f64 / unit));
            let line = PathElement::new(points.collect::<Vec<_>>(), color(*who).stroke_width(2));
            chart.draw_series([line]).map_err(failed)?;
        }
        // The best known: the run with most samples.
        if let Some((_, report)) = runs.iter().max_by_key(|(_, report)| report.samples.rows.len()) {
            let points =
                report.samples.rows.iter().map(|row| (part(report, row.3), row.2.max(0) as f64 / unit));
            let line = PathElement::new(points.collect::<Vec<_>>(), LIVE.stroke_width(2));
            chart.draw_series([line]).map_err(failed)?;
        }
        Ok(())
    })?;
    Ok(Some(svg))
}

/// The percentiles that get the same room: each next one has a tenth of the calls beyond it.
const DECADES: f64 = 6.0;

/// Where this part of the calls stands: 0 at none, 1 at 90 %, 2 at 99 %, ...
fn decades(beyond: f64) -> f64 {
    (-beyond.max(1e-12).log10()).min(DECADES)
}

/// Duration by percentile, both in steps of ten.
fn latency(replay: &Replay, kind: &str) -> io::Result<Option<String>> {
    let runs: Vec<(usize, &Operation)> = (0..replay.allocators.len())
        .filter_map(|who| Some((who, replay.typical(who, Pass::Latency)?.operations.get(kind)?)))
        .filter(|(_, operation)| !operation.buckets.is_empty())
        .collect();
    let slowest = runs.iter().filter_map(|(_, operation)| operation.max_ns).fold(0.0, f64::max);
    // A handful of calls has no distribution.
    if slowest <= 0.0 || runs.iter().all(|(_, operation)| operation.count < 100) {
        return Ok(None);
    }
    let top = slowest.log10().max(2.0) + 0.1;
    let svg = draw(HEIGHT, |root| {
        root.draw(&Text::new(kind.to_owned(), (90, 4), font(14.0))).map_err(failed)?;
        let mut chart = ChartBuilder::on(root)
            .margin(12)
            .margin_top(24)
            .margin_right(40)
            .x_label_area_size(34)
            .y_label_area_size(80)
            .build_cartesian_2d(0.0..DECADES, 0.5..top)
            .map_err(failed)?;
        let percent = |x: &f64| match x.round() {
            x if x <= 0.0 => String::from("0 %"),
            1.0 => String::from("90 %"),
            x => format!("{:.*} %", (x as usize).saturating_sub(2), 100.0 - 100.0 * 10f64.powf(-x)),
        };
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(BLACK.mix(0.12))
            .x_labels(DECADES as usize + 1)
            .x_label_formatter(&percent)
            .y_label_formatter(&|y: &f64| units::nanoseconds(10f64.powf(*y)))
            .x_desc("part of the calls that took less")
            .label_style(font(11.0))
            .axis_desc_style(font(11.0))
            .draw()
            .map_err(failed)?;
        for (who, operation) in &runs {
            let all: u64 = operation.buckets.iter().map(|bucket| bucket.1).sum();
            let mut below = 0;
            let mut points = Vec::with_capacity(2 * operation.buckets.len());
            for &(ns, calls) in &operation.buckets {
                let y = ns.max(1.0).log10();
                points.push((decades(1.0 - below as f64 / all as f64), y));
                below += calls;
                points.push((decades(1.0 - below as f64 / all as f64), y));
            }
            chart.draw_series([PathElement::new(points, color(*who).stroke_width(2))]).map_err(failed)?;
        }
        Ok(())
    })?;
    Ok(Some(svg))
}
