// SPDX-License-Identifier: MIT
//! Lines over an axis, and below them lanes in which events are marked.

use crate::svg::{Anchor, Svg};

use super::legend::Legend;
use super::scale::Scale;
use super::{Axis, Entry, Shape, Sign, Unit};

/// How a line is drawn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Look {
    /// With marks, where there are few points.
    #[default]
    Marked,
    /// Without.
    Plain,
    /// Half as wide, without.
    Thin,
}

/// One line.
#[derive(Debug, Clone, Default)]
pub struct Line {
    /// For the legend.
    pub name: String,
    /// Whose colour.
    pub who: usize,
    /// How it is drawn.
    pub look: Look,
    /// From left to right.
    pub points: Vec<(f64, f64)>,
}

/// Where something happened.
#[derive(Debug, Clone, Default)]
pub struct Lane {
    /// For the legend.
    pub name: String,
    /// Whose colour.
    pub who: usize,
    /// From and to, from left to right.
    pub spans: Vec<(f64, f64)>,
}

/// Lines over an axis.
#[derive(Debug, Clone, Default)]
pub struct Lines {
    /// Above the picture.
    pub title: String,
    /// At the right of the title.
    pub remark: String,
    /// How large it is.
    pub shape: Shape,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical one; it begins at 0, unless it has steps of a factor.
    pub y: Axis,
    /// The lines; a later one is over those before it.
    pub lines: Vec<Line>,
    /// Below the vertical axis.
    pub lanes: Vec<Lane>,
    /// What would be ideal.
    pub ideal: Vec<(f64, f64)>,
    /// The legend stands elsewhere.
    pub bare: bool,
}

const LEFT: f64 = 76.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 30.0;
/// The height of a lane.
const LANE: f64 = 11.0;

/// Where values are.
struct Frame {
    x: Scale,
    y: Scale,
    shape: Shape,
    /// The lower end of the vertical axis, and that of the lanes below it.
    zero: f64,
    floor: f64,
}

impl Frame {
    fn new(chart: &Lines) -> Self {
        let all = || chart.lines.iter().flat_map(|line| &line.points);
        let lanes = chart.lanes.len() as f64 * LANE;
        let zero = TOP + chart.shape.plot;
        Self {
            x: Scale::new(&chart.x, all().map(|point| point.0), false),
            y: Scale::new(&chart.y, all().map(|point| point.1), true),
            shape: chart.shape,
            zero,
            floor: zero + if lanes > 0.0 { lanes + 5.0 } else { 0.0 },
        }
    }

    fn right(&self) -> f64 {
        self.shape.width - RIGHT
    }

    fn across(&self, value: f64) -> f64 {
        LEFT + self.x.place(value) * (self.right() - LEFT)
    }

    fn up(&self, value: f64) -> f64 {
        self.zero - self.y.place(value).clamp(-0.02, 1.02) * self.shape.plot
    }

    fn at(&self, point: &(f64, f64)) -> (f64, f64) {
        (self.across(point.0), self.up(point.1))
    }

    fn vertical_axis(&self, svg: &mut Svg, axis: &Axis) {
        for tick in self.y.marks() {
            let y = self.up(tick);
            svg.rule((LEFT, y), (self.right(), y), "g");
            svg.text((LEFT - 6.0, y + 4.0), Anchor::End, "n", &axis.unit.show(tick));
        }
        if !axis.label.is_empty() {
            svg.text_up((14.0, TOP + self.shape.plot / 2.0), "n", &axis.label);
        }
    }

    fn horizontal_axis(&self, svg: &mut Svg, axis: &Axis) {
        let mut free = f64::NEG_INFINITY;
        for tick in self.x.marks() {
            let (place, text) = (self.across(tick), axis.unit.show(tick));
            let half = text.chars().count() as f64 * 3.7;
            if self.shape.is_wide() {
                svg.rule((place, TOP), (place, self.floor), "g");
            }
            svg.rule((place, self.floor), (place, self.floor + 4.0), "x");
            // A label that would run into the one before it is left out.
            let center = place.min(self.shape.width - half - 2.0);
            if center - half > free {
                svg.text((center, self.floor + 18.0), Anchor::Middle, "n", &text);
                free = center + half + 4.0;
            }
        }
        svg.rule((LEFT, self.floor), (self.right(), self.floor), "x");
        svg.text(((LEFT + self.right()) / 2.0, self.floor + 36.0), Anchor::Middle, "n", &axis.label);
    }

    fn lane(&self, svg: &mut Svg, index: usize, lane: &Lane) {
        let top = self.zero + 5.0 + LANE * index as f64;
        // What happened is to be seen, however short it was.
        let boxed = |&(from, to): &(f64, f64)| {
            let left = self.across(from);
            (left, top, (self.across(to) - left).max(1.0), LANE - 4.0)
        };
        let boxes: Vec<_> = lane.spans.iter().map(boxed).collect();
        if !boxes.is_empty() {
            svg.boxes(&boxes, lane.who);
        }
    }
}

impl Lines {
    /// Left and right of what lies between the axes.
    pub const MARGINS: (f64, f64) = (LEFT, RIGHT);

    /// What is to be seen, for those who do not see it.
    fn description(&self) -> String {
        let (x, y) = (self.x.unit, self.y.unit);
        let mut parts: Vec<String> = Vec::new();
        for line in &self.lines {
            if let Some(((x0, y0), (x1, y1))) = line.points.first().zip(line.points.last()) {
                let (from, to) = (y.show(*y0), y.show(*y1));
                parts.push(format!("{}: {from} at {}, {to} at {}", line.name, x.show(*x0), x.show(*x1)));
            }
        }
        let over = [self.y.label.as_str(), self.x.label.as_str()].map(str::trim);
        let over = if over[0].is_empty() { over[1].to_owned() } else { over.join(" over ") };
        let remark = if self.remark.is_empty() { String::new() } else { format!(" {}.", self.remark) };
        format!("{over}. {}.{remark}", parts.join("; "))
    }

    fn entries(&self) -> Vec<Entry> {
        if self.bare {
            return Vec::new();
        }
        let drawn = self.lines.iter().filter(|line| !line.points.is_empty());
        let lines =
            drawn.map(|line| Entry { name: line.name.clone(), who: line.who, sign: Sign::Line(line.look) });
        let lanes =
            self.lanes.iter().map(|lane| Entry { name: lane.name.clone(), who: lane.who, sign: Sign::Box });
        lines.chain(lanes).collect()
    }

    /// Draw; nothing, where there is no line.
    pub fn draw(&self) -> Option<Svg> {
        if self.lines.iter().all(|line| line.points.is_empty()) {
            return None;
        }
        let frame = Frame::new(self);
        let entries = self.entries();
        let legend = Legend::new(&entries, self.shape.width);
        let mut svg = Svg::new(
            self.shape.width,
            frame.floor + 48.0 + legend.height(),
            &self.title,
            &self.description(),
        );
        svg.text((8.0, 17.0), Anchor::Start, "t", &self.title);
        if !self.remark.is_empty() {
            svg.text((frame.right(), 17.0), Anchor::End, "n", &self.remark);
        }
        frame.vertical_axis(&mut svg, &self.y);
        frame.horizontal_axis(&mut svg, &self.x);
        let ideal = self.ideal.iter().filter(|point| frame.y.place(point.1) <= 1.02);
        let ideal: Vec<(f64, f64)> = ideal.map(|point| frame.at(point)).collect();
        if ideal.len() > 1 {
            svg.guide(&ideal);
        }
        for (index, lane) in self.lanes.iter().enumerate() {
            frame.lane(&mut svg, index, lane);
        }
        for line in self.lines.iter().filter(|line| !line.points.is_empty()) {
            let points: Vec<(f64, f64)> = line.points.iter().map(|point| frame.at(point)).collect();
            svg.line(&points, line.who, line.look == Look::Thin);
            if line.look == Look::Marked && points.len() <= 24 {
                points.iter().for_each(|&point| svg.mark(point, line.who));
            }
        }
        legend.draw(&mut svg, frame.floor + 52.0);
        Some(svg)
    }

    /// Duration by the part of the calls that took less; both axes in steps of ten. Lines come from [`nines`].
    pub fn percentiles(title: String, shape: Shape, lines: Vec<Line>) -> Self {
        let marks = (0..=MOST_NINES as usize).map(|n| n as f64).collect();
        let below = String::from("part of the calls that took less");
        let duration = String::from("time of a call");
        Self {
            title,
            shape,
            x: Axis { label: below, unit: Unit::Nines, at: marks, ..Axis::default() },
            y: Axis { label: duration, unit: Unit::Nanoseconds, log: true, ..Axis::default() },
            lines,
            ..Self::default()
        }
    }
}

/// Where percentiles end: each next step has a tenth of the calls beyond it.
const MOST_NINES: f64 = 6.0;

/// The line of calls by duration: nanoseconds, ascending, and how many took that.
pub fn nines(rows: impl Iterator<Item = (f64, f64)> + Clone) -> Vec<(f64, f64)> {
    let all: f64 = rows.clone().map(|row| row.1).sum();
    let place = |below: f64| (-(1.0 - below / all).max(1e-12).log10()).clamp(0.0, MOST_NINES);
    let mut below = 0.0;
    let mut points = Vec::new();
    for (ns, calls) in rows.filter(|row| row.1 > 0.0) {
        points.push((place(below), ns.max(0.1)));
        below += calls;
        points.push((place(below), ns.max(0.1)));
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str, who: usize) -> Line {
        Line { name: name.to_owned(), who, points: vec![(1.0, 2.0), (2.0, 1.0)], ..Line::default() }
    }

    #[test]
    fn lines_have_a_legend_and_a_description() {
        let axis = |label: &str, unit| Axis { label: label.to_owned(), unit, ..Axis::default() };
        let chart = Lines {
            title: String::from("Time"),
            x: axis("threads", Unit::Count),
            y: axis("seconds", Unit::Seconds),
            lines: (0..12).map(|who| line(&format!("malloc number {who}"), who)).collect(),
            ..Lines::default()
        };
        let picture = chart.draw().unwrap().inline();
        assert!(picture.contains("malloc number 11: 2.00 s at 1, 1.00 s at 2"), "{picture}");
        assert_eq!(picture.matches(">malloc number 3<").count(), 1);
        let bare = Lines { bare: true, ..chart.clone() }.draw().unwrap();
        assert!(!bare.inline().contains(">malloc number 3<"));
        assert!(Lines { lines: Vec::new(), ..chart }.draw().is_none());
    }

    #[test]
    fn lanes_lie_below_zero_and_above_the_axis() {
        let lane =
            |who, spans: &[(f64, f64)]| Lane { name: format!("lane {who}"), who, spans: spans.to_vec() };
        let chart = Lines {
            remark: String::from("a remark"),
            shape: Shape::FLAT,
            lines: vec![line("a", 0)],
            lanes: vec![lane(5, &[(1.0, 1.0), (1.5, 2.0)]), lane(3, &[])],
            ..Lines::default()
        };
        let picture = chart.draw().unwrap().inline();
        let (left, middle, top) = (LEFT, (LEFT + 960.0 - RIGHT) / 2.0, TOP + 150.0 + 5.0);
        let boxes = format!("M{left:.1} {top:.1}h1.0v7.0h-1.0zM{middle:.1} {top:.1}h434.0v7.0h-434.0z");
        assert!(picture.contains(&format!("d=\"{boxes}\" class=\"f5\"")), "{picture}");
        assert!(picture.contains("a remark") && picture.contains(">lane 3<"));
    }

    #[test]
    fn calls_by_duration_are_steps_in_nines() {
        let rows = [(10.0, 90.0), (100.0, 9.0), (500.0, 0.0), (1000.0, 1.0)];
        let points = nines(rows.into_iter());
        let rounded: Vec<(f64, f64)> = points.iter().map(|(x, y)| ((x * 1e6).round() / 1e6, *y)).collect();
        assert_eq!(
            rounded,
            [(0.0, 10.0), (1.0, 10.0), (1.0, 100.0), (2.0, 100.0), (2.0, 1000.0), (6.0, 1000.0)]
        );
        assert!(nines(std::iter::empty()).is_empty());
    }
}
