// SPDX-License-Identifier: MIT
//! Held against used, one panel for each pool: black is what is allocated from the pool, purple what its
//! chunks have room for. Below the zero line stand the slow events.

use quarry_poollog::series::{Group, Range};
use quarry_poollog::summary::Pool;

use super::{Filter, Log, text};
use crate::chart::{self, Entry, Lane, Line, Lines, Look, Shape, Sign, Unit, legend, stacked};
use crate::page::Page;
use crate::style::Style;
use crate::svg::{self, Svg, escape};
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

/// Columns that slow events are shown in: about one for each dot.
const SLOTS: usize = 800;

/// Name and colour of the lines and of the lanes.
const HELD: (&str, usize) = ("held: available in its chunks", 5);
const USED: (&str, usize) = ("used: allocated from the pool", 0);
const LANES: [(&str, usize); 3] = [("chunk taken", 5), ("chunk given back", 3), ("page cleaned", 4)];

/// The legend of all panels.
fn head(left_out: usize) -> Svg {
    let entry = |(name, who): (&str, usize), sign| Entry { name: name.to_owned(), who, sign };
    let mut entries = vec![entry(USED, Sign::Line(Look::Thin)), entry(HELD, Sign::Line(Look::Plain))];
    entries.extend(LANES.map(|lane| entry(lane, Sign::Box)));
    legend(Shape::FLAT.width, &entries, &left_out_text(left_out))
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
    pub fn svg(&self) -> String {
        let (panels, left_out) = self.panels();
        let drawn = panels.iter().filter_map(|(log, pool)| panel(&title(log, pool), pool, self.axis));
        let pictures: Vec<Svg> = std::iter::once(head(left_out)).chain(drawn).collect();
        let files: Vec<&str> = self.logs.iter().map(|log| &*log.file).collect();
        stacked(&format!("Pools: {}", files.join(", ")), &pictures).file()
    }

    /// One page, which needs nothing beside itself: the table, and each picture over both axes.
    pub fn html(&self) -> String {
        let (panels, left_out) = self.panels();
        let mut figures = String::new();
        for (log, pool) in panels {
            let one = |axis| {
                panel(&title(log, pool), pool, axis).map_or_else(String::new, |picture| picture.inline())
            };
            figures += &format!(
                "<figure class=\"broad\"><div class=\"dump\">{}</div><div class=\"time\">{}</div></figure>\n",
                one(Axis::Dump),
                one(Axis::Time)
            );
        }
        let files: Vec<&str> = self.logs.iter().map(|log| &*log.file).collect();
        let checked = |axis| if self.axis == axis { " checked" } else { "" };
        let body = format!(
            include_str!("page.html"),
            table = escape(&text(self.logs, self.filter, Style::default())),
            dump = checked(Axis::Dump),
            time = checked(Axis::Time),
            legend = head(left_out).inline(),
            figures = figures,
        );
        let title = format!("Pools: {}", files.join(", "));
        let style = format!("{}{}\n", include_str!("page.css"), svg::style());
        Page { title: &title, style: &style, body: &body }.html()
    }
}

fn left_out_text(left_out: usize) -> String {
    match left_out {
        0 => String::new(),
        1 => String::from("1 pool that held less or did nothing is not shown"),
        n => format!("{n} pools that held less or did nothing are not shown"),
    }
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
        "held up to {}, used up to {}; {}",
        bytes(pool.peak_held.held),
        bytes(pool.peak_used.used),
        units::of(pool.entries(), "entry")
    );
    if pool.series.width() > 1 {
        remark += &format!(", {} to a point", pool.series.width());
    }
    remark
}

/// A pool; `None`: it has no entry.
fn panel(title: &str, pool: &Pool, axis: Axis) -> Option<Svg> {
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
    let (label, unit) = match axis {
        Axis::Dump => ("dump number", Unit::Count),
        Axis::Time => ("time since the pool was made", Unit::Seconds),
    };
    let drawn = |(name, who): (&str, usize), look, value: fn(&Group) -> Range| Line {
        name: name.to_owned(),
        who,
        look,
        points: line(groups, ends, value, axis),
    };
    let counts: [fn(&Group) -> u32; 3] = [|group| group.gets, |group| group.puts, |group| group.resets];
    let lanes = LANES.into_iter().zip(counts).map(|((name, who), count)| {
        let spans = groups.iter().filter(|group| count(group) > 0).map(ends);
        Lane { name: name.to_owned(), who, spans: marks(left, right, spans) }
    });
    let chart = Lines {
        title: title.to_owned(),
        remark: remark(pool),
        shape: Shape::FLAT,
        x: chart::Axis { label: label.to_owned(), unit, ends: Some((left, right)), ..Default::default() },
        y: chart::Axis { unit: Unit::Bytes, ..Default::default() },
        lines: vec![
            drawn(HELD, Look::Plain, |group| group.held),
            drawn(USED, Look::Thin, |group| group.used),
        ],
        lanes: lanes.collect(),
        bare: true,
        ..Lines::default()
    };
    chart.draw()
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

#[cfg(test)]
mod tests;
