// SPDX-License-Identifier: MIT
//! Two kinds of charts, small enough for a phone: bars with names, and lines over an axis.

use crate::svg::{Anchor, Svg};
use crate::units;

/// All charts are so wide.
pub const WIDTH: f64 = 480.0;

/// What numbers are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Seconds.
    Seconds,
    /// Nanoseconds.
    Nanoseconds,
    /// Bytes.
    Bytes,
    /// KiB.
    Kib,
    /// A number of things.
    Count,
    /// Things a second.
    Rate,
    /// So many times something else.
    Times,
    /// Of a hundred.
    Percent,
    /// A part of all that is told by what is beyond it, in steps of ten: 1 is 90 %, 2 is 99 %.
    Nines,
}

impl Unit {
    /// What the name of a column or value says of its unit: what is behind its last underscore, or all of it.
    pub fn of(name: &str) -> Self {
        match name.rsplit('_').next().unwrap_or(name) {
            "s" | "seconds" => Unit::Seconds,
            "ns" | "nanoseconds" => Unit::Nanoseconds,
            "bytes" | "size" => Unit::Bytes,
            "kib" => Unit::Kib,
            "percent" => Unit::Percent,
            "rate" => Unit::Rate,
            "ratio" | "times" | "speedup" | "payload" => Unit::Times,
            _ => Unit::Count,
        }
    }

    /// A number with it.
    pub fn show(self, value: f64) -> String {
        match self {
            _ if !value.is_finite() => String::from("–"),
            Unit::Seconds if value == 0.0 => String::from("0"),
            Unit::Nanoseconds if value == 0.0 => String::from("0"),
            Unit::Seconds => units::seconds(value),
            Unit::Nanoseconds => units::nanoseconds(value),
            Unit::Bytes => units::bytes(value),
            Unit::Kib => units::bytes(value * 1024.0),
            Unit::Count => number(value),
            Unit::Rate => format!("{}/s", number(value)),
            Unit::Times => format!("{} ×", plain(value)),
            Unit::Percent => format!("{} %", plain(value)),
            Unit::Nines if value <= 0.0 => String::from("0 %"),
            Unit::Nines => {
                let digits = (value.round() as usize).saturating_sub(2);
                format!("{:.digits$} %", 100.0 - 100.0 * 10f64.powf(-value))
            }
        }
    }

    /// The step of marks is a round number of these.
    fn factor(self, most: f64) -> f64 {
        match self {
            Unit::Bytes | Unit::Kib => {
                let mut unit = 1.0;
                while most >= 1024.0 * unit {
                    unit *= 1024.0;
                }
                unit
            }
            _ => 1.0,
        }
    }
}

/// 1234567 as "1.23 M".
pub fn number(value: f64) -> String {
    for (factor, letter) in [(1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")] {
        if value.abs() >= 0.9995 * factor {
            return format!("{}{letter}", plain(value / factor));
        }
    }
    plain(value)
}

/// Three digits, without zeros at the end.
fn plain(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        v if v >= 0.0995 || v == 0.0 => 2,
        _ => 4,
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// One axis.
#[derive(Debug, Clone)]
pub struct Axis {
    /// What is along it.
    pub label: String,
    /// Of the numbers.
    pub unit: Unit,
    /// In steps of a factor.
    pub log: bool,
    /// Marks at these values, where given.
    pub at: Vec<f64>,
}

/// One line.
#[derive(Debug, Clone)]
pub struct Line {
    /// For the legend.
    pub name: String,
    /// Whose colour.
    pub who: usize,
    /// From left to right.
    pub points: Vec<(f64, f64)>,
}

/// Lines over an axis.
#[derive(Debug, Clone)]
pub struct Lines {
    /// Above the picture.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical one; it begins at 0, unless it has steps of a factor.
    pub y: Axis,
    /// The lines.
    pub lines: Vec<Line>,
    /// What would be ideal.
    pub ideal: Vec<(f64, f64)>,
}

/// From values to places.
struct Scale {
    low: f64,
    high: f64,
    log: bool,
    ticks: Vec<f64>,
}

impl Scale {
    fn new(axis: &Axis, values: impl Iterator<Item = f64>, zero: bool) -> Self {
        let values: Vec<f64> = values.filter(|v| v.is_finite() && (!axis.log || *v > 0.0)).collect();
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in &values {
            (low, high) = (low.min(*value), high.max(*value));
        }
        if values.is_empty() {
            (low, high) = (1.0, 2.0);
        }
        if axis.log {
            return Self::log(axis, low, high);
        }
        if zero {
            low = low.min(0.0);
            high += (high - low) * 0.05;
        }
        if high <= low {
            high = low + 1.0;
        }
        let ticks = if axis.at.is_empty() {
            linear_ticks(low, high, axis.unit.factor(high))
        } else {
            axis.at.clone()
        };
        Self { low, high, log: false, ticks }
    }

    fn log(axis: &Axis, low: f64, high: f64) -> Self {
        let high = if high > low { high } else { low * 2.0 };
        if !axis.at.is_empty() {
            return Self { low, high, log: true, ticks: axis.at.clone() };
        }
        let base: f64 = if matches!(axis.unit, Unit::Bytes | Unit::Kib) { 4.0 } else { 10.0 };
        let (first, last) = (low.log(base).floor() as i32, high.log(base).ceil() as i32);
        let step = ((last - first) as usize / 8 + 1).max(1);
        let mut ticks: Vec<f64> = (first..=last).step_by(step).map(|power| base.powi(power)).collect();
        let (low, high) = (base.powi(first), base.powi(last.max(first + 1)));
        if ticks.len() < 4 && base > 5.0 {
            let more: Vec<f64> = ticks.iter().flat_map(|tick| [*tick, tick * 2.0, tick * 5.0]).collect();
            ticks = more.into_iter().filter(|tick| *tick <= high).collect();
        }
        Self { low, high, log: true, ticks }
    }

    /// From 0 to 1.
    fn place(&self, value: f64) -> f64 {
        if self.log {
            (value.max(self.low * 1e-3) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        }
    }
}

/// Some six round numbers; of bytes, powers of two times `factor`.
fn linear_ticks(low: f64, high: f64, factor: f64) -> Vec<f64> {
    let rough = (high - low) / factor / 6.0;
    let step = if factor > 1.0 {
        factor * rough.log2().ceil().exp2()
    } else {
        let power = 10f64.powf(rough.log10().floor());
        [1.0, 2.0, 5.0, 10.0].into_iter().map(|n| n * power).find(|step| *step >= rough).unwrap_or(rough)
    };
    let first = (low / step).ceil();
    (0..20).map(|n| (first + f64::from(n)) * step).take_while(|tick| *tick <= high * (1.0 + 1e-9)).collect()
}

impl Lines {
    /// What is to be seen, for those who do not see it.
    fn description(&self) -> String {
        let line = |line: &Line| {
            let ends = line.points.first().zip(line.points.last());
            ends.map(|((x0, y0), (x1, y1))| {
                let (x, y) = (self.x.unit, self.y.unit);
                format!(
                    "{}: {} at {}, {} at {}",
                    line.name,
                    y.show(*y0),
                    x.show(*x0),
                    y.show(*y1),
                    x.show(*x1)
                )
            })
        };
        let lines: Vec<String> = self.lines.iter().filter_map(line).collect();
        format!("{} over {}. {}.", self.y.label, self.x.label, lines.join("; "))
    }

    /// Draw; nothing, where there is no line.
    pub fn draw(&self) -> Option<Svg> {
        const LEFT: f64 = 76.0;
        const RIGHT: f64 = 16.0;
        const TOP: f64 = 30.0;
        const PLOT: f64 = 216.0;
        let lines: Vec<&Line> = self.lines.iter().filter(|line| !line.points.is_empty()).collect();
        if lines.is_empty() {
            return None;
        }
        let all = || lines.iter().flat_map(|line| &line.points);
        let x = Scale::new(&self.x, all().map(|point| point.0), false);
        let y = Scale::new(&self.y, all().map(|point| point.1), true);
        let across = |value: f64| LEFT + x.place(value) * (WIDTH - LEFT - RIGHT);
        let up = |value: f64| TOP + PLOT - y.place(value).clamp(-0.02, 1.02) * PLOT;
        let legend = legend_rows(&lines);
        let height = TOP + PLOT + 48.0 + 18.0 * legend.len() as f64;
        let mut svg = Svg::new(WIDTH, height, &self.title, &self.description());
        svg.text((8.0, 17.0), Anchor::Start, "t", &self.title);
        for &tick in y.ticks.iter().filter(|tick| (-0.001..=1.001).contains(&y.place(**tick))) {
            svg.rule((LEFT, up(tick)), (WIDTH - RIGHT, up(tick)), "g");
            svg.text((LEFT - 6.0, up(tick) + 4.0), Anchor::End, "n", &self.y.unit.show(tick));
        }
        let mut free = f64::NEG_INFINITY;
        for &tick in x.ticks.iter().filter(|tick| (-0.001..=1.001).contains(&x.place(**tick))) {
            let (place, text) = (across(tick), self.x.unit.show(tick));
            let half = text.chars().count() as f64 * 3.7;
            svg.rule((place, TOP + PLOT), (place, TOP + PLOT + 4.0), "x");
            // A label that would run into the one before it is left out.
            let center = place.min(WIDTH - half - 2.0);
            if center - half > free {
                svg.text((center, TOP + PLOT + 18.0), Anchor::Middle, "n", &text);
                free = center + half + 4.0;
            }
        }
        svg.rule((LEFT, TOP + PLOT), (WIDTH - RIGHT, TOP + PLOT), "x");
        svg.text(((LEFT + WIDTH - RIGHT) / 2.0, TOP + PLOT + 36.0), Anchor::Middle, "n", &self.x.label);
        svg.text_up((14.0, TOP + PLOT / 2.0), "n", &self.y.label);
        let ideal: Vec<(f64, f64)> =
            self.ideal.iter().filter(|p| y.place(p.1) <= 1.02).map(|p| (across(p.0), up(p.1))).collect();
        if ideal.len() > 1 {
            svg.guide(&ideal);
        }
        for line in &lines {
            let points: Vec<(f64, f64)> = line.points.iter().map(|&(a, b)| (across(a), up(b))).collect();
            svg.line(&points, line.who, points.len() <= 24);
        }
        for (row, entries) in legend.iter().enumerate() {
            let below = TOP + PLOT + 52.0 + 18.0 * row as f64;
            for &(left, index) in entries {
                svg.line(&[(left, below), (left + 20.0, below)], lines[index].who, false);
                svg.mark((left + 10.0, below), lines[index].who);
                svg.text((left + 26.0, below + 4.0), Anchor::Start, "", &lines[index].name);
            }
        }
        Some(svg)
    }
}

/// Where the entries of a legend go: rows of (left end, index).
fn legend_rows(lines: &[&Line]) -> Vec<Vec<(f64, usize)>> {
    let mut rows: Vec<Vec<(f64, usize)>> = vec![Vec::new()];
    let mut left = 12.0;
    for (index, line) in lines.iter().enumerate() {
        let width = 40.0 + line.name.chars().count() as f64 * 6.8;
        if left + width > WIDTH && left > 12.0 {
            rows.push(Vec::new());
            left = 12.0;
        }
        if let Some(row) = rows.last_mut() {
            row.push((left, index));
        }
        left += width;
    }
    rows
}

/// One bar.
#[derive(Debug, Clone)]
pub struct Bar {
    /// Beside it.
    pub name: String,
    /// Whose colour.
    pub who: usize,
    /// Its length; none: it has failed, or there is nothing to show.
    pub value: Option<f64>,
    /// From the least to the most that was seen.
    pub range: Option<(f64, f64)>,
    /// What is said in the place of a bar that is not there.
    pub remark: String,
}

/// Bars, one below the other.
#[derive(Debug, Clone)]
pub struct Bars {
    /// Above the picture.
    pub title: String,
    /// What longer means.
    pub label: String,
    /// Of the lengths.
    pub unit: Unit,
    /// The bars.
    pub bars: Vec<Bar>,
}

impl Bars {
    /// The length of the longest bar that is drawn whole. One that is far beyond the rest is cut off, or nothing else
    /// could be seen: what is freed at once is freed at no cost at all.
    fn longest(&self) -> f64 {
        let mut values: Vec<f64> =
            self.bars.iter().filter_map(|bar| bar.value).filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let most = values.last().copied().unwrap_or(0.0);
        let usual = values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(0.0);
        if usual > 0.0 && most > 12.0 * usual { 6.0 * usual } else { most }
    }

    /// Draw; nothing, where there is no bar.
    pub fn draw(&self) -> Option<Svg> {
        const ROW: f64 = 23.0;
        const TOP: f64 = 44.0;
        let most = self.longest();
        if most <= 0.0 {
            return None;
        }
        let longest_name = self.bars.iter().map(|bar| bar.name.chars().count()).max().unwrap_or(0);
        let left = (16.0 + longest_name as f64 * 6.6).clamp(70.0, 190.0);
        let room = WIDTH - left - 92.0;
        let said: Vec<String> = self
            .bars
            .iter()
            .map(|bar| {
                format!("{}: {}", bar.name, bar.value.map_or(bar.remark.clone(), |v| self.unit.show(v)))
            })
            .collect();
        let description = format!("{}. {}.", self.label, said.join("; "));
        let mut svg = Svg::new(WIDTH, TOP + ROW * self.bars.len() as f64 + 6.0, &self.title, &description);
        svg.text((8.0, 17.0), Anchor::Start, "t", &self.title);
        svg.text((8.0, 34.0), Anchor::Start, "n", &self.label);
        let length = |value: f64| value.min(most * 1.06).max(0.0) / (most * 1.06) * room;
        for (row, bar) in self.bars.iter().enumerate() {
            let top = TOP + ROW * row as f64;
            svg.text((left - 6.0, top + 13.0), Anchor::End, "", &bar.name);
            let Some(value) = bar.value else {
                svg.text((left + 2.0, top + 13.0), Anchor::Start, "n", &bar.remark);
                continue;
            };
            let cut = value > most * 1.06;
            let text = if value.is_finite() { self.unit.show(value) } else { String::from("at once") };
            svg.bar((left, top), (length(value), 17.0), bar.who, &format!("{}: {text}", bar.name));
            let mut end = left + length(value);
            if let Some((low, high)) = bar.range.filter(|_| !cut) {
                svg.rule((left + length(low), top + 8.5), (left + length(high), top + 8.5), "w");
                end = end.max(left + length(high));
            }
            let text = if cut { format!("» {text}") } else { text };
            svg.text((end + 5.0, top + 13.0), Anchor::Start, "", &text);
        }
        Some(svg)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_show_numbers() {
        assert_eq!(Unit::Rate.show(66_000_000.0), "66 M/s");
        assert_eq!(Unit::Times.show(2.5), "2.5 ×");
        assert_eq!(Unit::Kib.show(1536.0), "1.50 MiB");
        assert_eq!(Unit::Count.show(0.0), "0");
        assert_eq!(Unit::Count.show(999_900.0), "1 M");
        assert_eq!(Unit::Seconds.show(f64::INFINITY), "–");
        assert_eq!([0.0, 1.0, 2.0, 4.0].map(|n| Unit::Nines.show(n)), ["0 %", "90 %", "99 %", "99.99 %"]);
        assert_eq!(
            (Unit::of("p99_ns"), Unit::of("rss_kib"), Unit::of("dump")),
            (Unit::Nanoseconds, Unit::Kib, Unit::Count)
        );
    }

    #[test]
    fn marks_are_at_round_numbers() {
        assert_eq!(linear_ticks(0.0, 10.0, 1.0), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(linear_ticks(0.0, 96.0 * 1048576.0, 1048576.0)[1], 16.0 * 1048576.0);
        let axis = Axis { label: String::new(), unit: Unit::Nanoseconds, log: true, at: Vec::new() };
        let scale = Scale::new(&axis, [3.0, 45_000.0].into_iter(), true);
        assert_eq!((scale.low, scale.high), (1.0, 100_000.0));
        assert!((scale.place(1000.0) - 0.6).abs() < 1e-9);
        let flat = Scale::new(&Axis { log: false, ..axis }, [5.0, 5.0].into_iter(), true);
        assert!(flat.low == 0.0 && flat.high > 5.0 && flat.ticks.len() > 3);
    }

    fn bar(name: &str, value: Option<f64>) -> Bar {
        Bar {
            name: name.to_owned(),
            who: 0,
            value,
            range: value.map(|v| (0.9 * v, 1.1 * v)),
            remark: String::from("failed"),
        }
    }

    #[test]
    fn bars_far_beyond_the_rest_are_cut() {
        let bars = |values: &[f64]| Bars {
            title: String::from("t"),
            label: String::from("l"),
            unit: Unit::Rate,
            bars: values.iter().map(|value| bar("x", Some(*value))).chain([bar("y", None)]).collect(),
        };
        assert_eq!(bars(&[1.0, 2.0, 3.0]).longest(), 3.0);
        assert_eq!(bars(&[1.0, 2.0, 1e9]).longest(), 12.0);
        let picture = bars(&[1.0, 2.0, f64::INFINITY]).draw().unwrap().inline();
        assert!(picture.contains("» at once") && picture.contains("failed"), "{picture}");
        assert!(bars(&[]).draw().is_none());
    }

    #[test]
    fn lines_have_a_legend_and_a_description() {
        let axis = |label: &str, unit| Axis { label: label.to_owned(), unit, log: false, at: Vec::new() };
        let line =
            |name: &str, who| Line { name: name.to_owned(), who, points: vec![(1.0, 2.0), (2.0, 1.0)] };
        let chart = Lines {
            title: String::from("Time"),
            x: axis("threads", Unit::Count),
            y: axis("seconds", Unit::Seconds),
            lines: (0..12).map(|who| line(&format!("malloc number {who}"), who)).collect(),
            ideal: Vec::new(),
        };
        let picture = chart.draw().unwrap().inline();
        assert!(picture.contains("malloc number 11: 2.00 s at 1, 1.00 s at 2"), "{picture}");
        assert_eq!(picture.matches(">malloc number 3<").count(), 1);
        assert!(Lines { lines: Vec::new(), ..chart }.draw().is_none());
    }
}
