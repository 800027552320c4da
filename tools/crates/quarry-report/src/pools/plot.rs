// SPDX-License-Identifier: MIT
//! Held against used, one panel for each pool: black is what is allocated from the pool, purple what its
//! chunks have room for. Below the zero line stand the slow events.

use std::io;
use std::ops;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use quarry_poollog::series::{Group, Range};
use quarry_poollog::summary::Pool;

use super::{Filter, Log, text};
use crate::page::Page;
use crate::style::Style;
use crate::svg::escape;
use crate::units;

/// What the horizontal axis counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Axis {
    /// Entries of the pool.
    Dump,
    /// Time since the pool's first record.
    Time,
}

/// What to draw.
#[derive(Debug, Clone)]
pub struct Plot<'a> {
    /// The logs.
    pub logs: &'a [Log],
    /// Which pools.
    pub filter: &'a Filter,
    /// At most so many, those that held most.
    pub top: usize,
    /// The horizontal axis (of HTML: at first).
    pub axis: Axis,
}

const WIDTH: u32 = 960;
/// Where panels end: there is room for half of the last label.
const RIGHT: i32 = 925;
const HEAD: u32 = 46;
const PANEL: u32 = 250;

/// Columns that slow events are shown in: about one for each dot.
const SLOTS: usize = 800;

const USED: RGBColor = BLACK;
const HELD: RGBColor = RGBColor(140, 30, 170);
const GET: RGBColor = RGBColor(140, 30, 170);
const PUT: RGBColor = RGBColor(230, 120, 0);
const RESET: RGBColor = RGBColor(0, 130, 120);

/// Colour and meaning, for the legend. The first two are lines, the others marks.
const LEGEND: [(RGBColor, &str); 5] = [
    (USED, "used: allocated from the pool"),
    (HELD, "held: available in its chunks"),
    (GET, "chunk taken"),
    (PUT, "chunk given back"),
    (RESET, "page cleaned"),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Plotting into memory fails only if this code is wrong; yet that is no reason to panic.
fn failed<E: std::error::Error + Send + Sync>(error: DrawingAreaErrorKind<E>) -> io::Error {
    io::Error::other(error.to_string())
}

impl Plot<'_> {
    /// The pools to draw, those that held most first, and how many are left out.
    fn panels(&self) -> (Vec<(&Log, &Pool)>, usize) {
        let mut panels: Vec<(&Log, &Pool)> = Vec::new();
        for log in self.logs {
            let chosen = log.chosen(self.filter).into_iter().map(|index| &log.summary.pools[index]);
            panels.extend(chosen.map(|pool| (log, pool)));
        }
        let all = panels.len();
        // A single entry is no line: a pool that the child of a fork inherited and left alone.
        panels.retain(|(_, pool)| pool.entries() > 1);
        panels.sort_by_key(|(_, pool)| std::cmp::Reverse(pool.peak_held.held.max(pool.peak_used.used)));
        panels.truncate(self.top);
        let left_out = all - panels.len();
        (panels, left_out)
    }

    /// One picture.
    pub fn svg(&self) -> io::Result<String> {
        let (panels, left_out) = self.panels();
        let height = HEAD + PANEL * panels.len() as u32;
        draw(height, |root| {
            let (head, mut rest) = root.split_vertically(HEAD);
            legend(&head, left_out)?;
            for (log, pool) in panels {
                let (area, below) = rest.split_vertically(PANEL);
                panel(&area, &title(log, pool), pool, self.axis)?;
                rest = below;
            }
            Ok(())
        })
    }

    /// One page, which needs nothing beside itself: the table, and each picture over both axes.
    pub fn html(&self) -> io::Result<String> {
        let (panels, left_out) = self.panels();
        let mut figures = String::new();
        for (log, pool) in panels {
            let one = |axis| draw(PANEL, |root| panel(root, &title(log, pool), pool, axis));
            figures += &format!(
                "<figure><div class=\"dump\">{}</div><div class=\"time\">{}</div></figure>\n",
                one(Axis::Dump)?,
                one(Axis::Time)?
            );
        }
        let files: Vec<&str> = self.logs.iter().map(|log| &*log.file).collect();
        let checked = |axis| if self.axis == axis { " checked" } else { "" };
        let legend: Vec<String> = LEGEND
            .iter()
            .map(|(RGBColor(r, g, b), word)| {
                format!("<span style=\"color:rgb({r},{g},{b})\">\u{25A0}</span> {}", escape(word))
            })
            .collect();
        let body = format!(
            include_str!("page.html"),
            table = escape(&text(self.logs, self.filter, Style::default())),
            dump = checked(Axis::Dump),
            time = checked(Axis::Time),
            legend = legend.join(" &nbsp; "),
            left_out = escape(&left_out_text(left_out)),
            figures = figures,
        );
        let title = format!("Pools: {}", files.join(", "));
        Ok(Page { title: &title, style: include_str!("page.css"), body: &body }.html())
    }
}

fn left_out_text(left_out: usize) -> String {
    match left_out {
        0 => String::new(),
        1 => String::from("1 pool that held less or did nothing is not shown"),
        n => format!("{n} pools that held less or did nothing are not shown"),
    }
}

/// A picture of this height, drawn by `paint`.
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

fn font(size: f64) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&BLACK)
}

fn legend(area: &Area, left_out: usize) -> io::Result<()> {
    let mut x = 70;
    for (index, (color, word)) in LEGEND.into_iter().enumerate() {
        let (top, bottom) = if index < 2 { (15, 18) } else { (11, 21) };
        let right = if index < 2 { x + 18 } else { x + 4 };
        area.draw(&Rectangle::new([(x, top), (right, bottom)], color.filled())).map_err(failed)?;
        area.draw(&Text::new(word, (right + 6, 10), font(12.0))).map_err(failed)?;
        x = right + 20 + word.len() as i32 * 6;
    }
    let end = font(12.0).pos(Pos::new(HPos::Right, VPos::Top));
    area.draw(&Text::new(left_out_text(left_out), (RIGHT, 28), end)).map_err(failed)
}

/// "replies: fifo 3 of prog (4711)".
fn title(log: &Log, pool: &Pool) -> String {
    let process = &log.summary.processes[pool.process];
    let program = process.head.as_ref().map_or("process", |head| &head.program);
    let (name, kind) = pool.named.as_ref().map_or(("?", "pool"), |named| (&named.name, &named.kind));
    format!("{name}: {kind} {} of {program} ({})", pool.id, process.process)
}

/// "held up to 1.00 MiB, used up to 512 KiB; 90 000 entries, 128 to a point".
fn remark(pool: &Pool) -> String {
    let bytes = |n: u64| units::bytes(n as f64);
    let mut remark = format!(
        "held up to {}, used up to {}; {} entries",
        bytes(pool.peak_held.held),
        bytes(pool.peak_used.used),
        units::count(pool.entries() as f64)
    );
    if pool.series.width() > 1 {
        remark += &format!(", {} to a point", pool.series.width());
    }
    remark
}

fn panel(area: &Area, title: &str, pool: &Pool, axis: Axis) -> io::Result<()> {
    let groups = pool.series.groups();
    let x_of = |number: u64, time_ns: u64| match axis {
        Axis::Dump => number as f64,
        Axis::Time => time_ns.saturating_sub(pool.first_ns) as f64 / 1e9,
    };
    let ends = |group: &Group| {
        (x_of(group.first, group.start_ns), x_of(group.first + group.entries - 1, group.end_ns))
    };
    let left = groups.first().map_or(0.0, |group| ends(group).0).min(x_of(0, pool.first_ns));
    let right = groups.iter().map(|group| ends(group).1).fold(left, f64::max);
    // A single moment is given some room.
    let right = if right > left { right } else { left + 1.0 };
    let most = groups.iter().map(|group| group.held.max.max(group.used.max)).max().unwrap_or(0);
    let top = (most as f64 * 1.05).max(1.0);
    let bottom = -0.16 * top;

    area.draw(&Text::new(title.to_owned(), (70, 6), font(14.0))).map_err(failed)?;
    let at_right = font(11.0).pos(Pos::new(HPos::Right, VPos::Top));
    area.draw(&Text::new(remark(pool), (RIGHT, 8), at_right)).map_err(failed)?;
    let finest = if axis == Axis::Dump { 1.0 } else { 0.0 };
    let x_axis = Ticked { from: left, to: right, ticks: decimal_ticks(left, right, finest) };
    let y_axis = Ticked { from: bottom, to: top, ticks: byte_ticks(most) };
    let mut chart = ChartBuilder::on(area)
        .margin_top(26)
        .margin_right(WIDTH as i32 - RIGHT)
        .x_label_area_size(34)
        .y_label_area_size(70)
        .build_cartesian_2d(x_axis, y_axis)
        .map_err(failed)?;
    let x_label = |x: &f64| match axis {
        Axis::Dump => units::count(*x),
        Axis::Time if *x == 0.0 => String::from("0"),
        Axis::Time => units::seconds(*x),
    };
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.12))
        .axis_style(BLACK.mix(0.5))
        .x_label_formatter(&x_label)
        .y_label_formatter(&|y: &f64| units::bytes(*y))
        .x_desc(if axis == Axis::Dump { "dump number" } else { "time since the pool was made" })
        .label_style(font(11.0))
        .axis_desc_style(font(11.0))
        .draw()
        .map_err(failed)?;
    for (lane, color) in [GET, PUT, RESET].into_iter().enumerate() {
        let count = |group: &Group| [group.gets, group.puts, group.resets][lane];
        let spans = groups.iter().filter(|group| count(group) > 0).map(ends);
        let (above, below) = (bottom * (0.12 + 0.3 * lane as f64), bottom * (0.36 + 0.3 * lane as f64));
        let boxes = marks(left, right, spans).into_iter();
        chart
            .draw_series(boxes.map(|(a, b)| Rectangle::new([(a, above), (b, below)], color.filled())))
            .map_err(failed)?;
    }
    let held = line(groups, ends, |group| group.held, axis);
    chart.draw_series([PathElement::new(held, HELD.stroke_width(2))]).map_err(failed)?;
    let used = line(groups, ends, |group| group.used, axis);
    chart.draw_series([PathElement::new(used, USED.stroke_width(1))]).map_err(failed)?;
    Ok(())
}

/// A linear axis with marks where we want them: bytes at powers of two.
struct Ticked {
    from: f64,
    to: f64,
    ticks: Vec<f64>,
}

impl Ranged for Ticked {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (low, high): (i32, i32)) -> i32 {
        let part = (value - self.from) / (self.to - self.from);
        low + (part * f64::from(high - low)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> ops::Range<f64> {
        self.from..self.to
    }
}

/// The points of a line that shows the least and the most of each group. Over time a value stays until the
/// next one is known.
fn line(
    groups: &[Group],
    ends: impl Fn(&Group) -> (f64, f64),
    value: impl Fn(&Group) -> Range,
    axis: Axis,
) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = Vec::with_capacity(3 * groups.len());
    for group in groups {
        let (start, end) = ends(group);
        let Range { min, max } = value(group);
        let before = points.last().map_or(min as f64, |point| point.1);
        let rising = (before - min as f64).abs() <= (before - max as f64).abs();
        let (first, second) = if rising { (min, max) } else { (max, min) };
        if axis == Axis::Time && !points.is_empty() {
            points.push((start, before));
        }
        points.push((start, first as f64));
        if group.entries > 1 {
            points.push((end, second as f64));
        }
    }
    points
}

/// Spans as boxes that are wide enough to be seen, neighbours in one.
fn marks(left: f64, right: f64, spans: impl Iterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let mut slots = [false; SLOTS];
    let slot = |x: f64| (((x - left) / (right - left) * SLOTS as f64) as usize).min(SLOTS - 1);
    for (start, end) in spans {
        slots[slot(start)..=slot(end).max(slot(start))].fill(true);
    }
    let x_of = |slot: usize| left + (right - left) * slot as f64 / SLOTS as f64;
    let mut boxes = Vec::new();
    let mut at = 0;
    while at < SLOTS {
        let run = slots[at..].iter().take_while(|&&marked| marked).count();
        if run > 0 {
            boxes.push((x_of(at), x_of(at + run)));
        }
        at += run + 1;
    }
    boxes
}

/// About seven round numbers, not closer than `finest`.
fn decimal_ticks(from: f64, to: f64, finest: f64) -> Vec<f64> {
    let rough = (to - from) / 7.0;
    let power = 10f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|n| n * power);
    let step = steps.into_iter().find(|&step| step >= rough).unwrap_or(rough).max(finest);
    ticks((from / step).ceil() as u64, step, to)
}

/// Up to five multiples of a power of two.
fn byte_ticks(most: u64) -> Vec<f64> {
    let step = (most / 4).max(1).checked_next_power_of_two().unwrap_or(1 << 63);
    ticks(0, step as f64, most as f64 * 1.05)
}

fn ticks(first: u64, step: f64, last: f64) -> Vec<f64> {
    (0..12).map(|n| (first + n) as f64 * step).take_while(|&x| x <= last).collect()
}

#[cfg(test)]
mod tests;
