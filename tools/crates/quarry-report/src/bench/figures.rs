// SPDX-License-Identifier: MIT
//! The pictures of a result.

use std::collections::BTreeMap;

use quarry_bench::catalog::{Chart, Scalar};
use quarry_bench::judge::{self, Heat, HeatMap, Measure};
use quarry_bench::results::{About, Cell, Point, Results};
use quarry_bench::sample::Series;

use super::{contender_text, heat_text, point_text};
use crate::chart::{Axis, Bar, Bars, Line, Lines, Shape, Tile, Tiles, Unit, nines};
use crate::svg::Svg;

/// At most so many pictures of the curves of one scenario.
const MOST_SERIES: usize = 16;

/// A picture with the name of its file, without ".svg".
pub struct Figure {
    /// Of the file.
    pub name: String,
    /// The picture.
    pub svg: Svg,
}

/// A name as it may stand in a file name.
fn file_part(text: &str) -> String {
    let plain: String = text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    plain.trim_matches('-').to_ascii_lowercase()
}

/// The pictures of a scenario, as its catalogue wants them.
pub fn of_scenario(results: &Results, about: &About) -> Vec<Figure> {
    let painter = Painter { results, about };
    about
        .charts
        .iter()
        .flat_map(|chart| match chart {
            Chart::Bars => {
                painter.bars("rate", "operations a second: longer is faster", Unit::Rate, &rate_or_at_once)
            }
            Chart::Time => painter.lines("time", "time", Unit::Seconds, &seconds),
            Chart::Cpu => painter.lines("cpu", "processor time of an operation", Unit::Nanoseconds, &cpu),
            Chart::Rate => painter.lines("rate", "operations a second", Unit::Rate, &rate),
            Chart::Speedup => painter.speedup(),
            Chart::Rss => {
                painter.either("rss", "peak RSS", Unit::Kib, &|cell| Some(cell.summary?.peak_rss_kib.median))
            }
            Chart::Value(name) => {
                painter.either(name, &name.replace('_', " "), Unit::of(name), &|cell| cell.value(name))
            }
            Chart::Series => painter.series(None),
            Chart::SeriesOf(column) => painter.series(Some(column)),
        })
        .collect()
}

fn rate(cell: &Cell) -> Option<f64> {
    let summary = cell.summary?;
    Some(1e9 / summary.ns_per_operation.median)
}

/// A phase that takes no time has no rate: what ends with its frame ends at once.
fn rate_or_at_once(cell: &Cell) -> Option<f64> {
    if judge::is_measurable(cell, Measure::Time) { rate(cell) } else { Some(f64::INFINITY) }
}

fn seconds(cell: &Cell) -> Option<f64> {
    Some(cell.summary?.seconds.median)
}

/// Processor time of an operation, in nanoseconds; none where a run does not tell, or had none.
fn cpu(cell: &Cell) -> Option<f64> {
    if cell.runs.iter().any(|run| run.cpu_seconds.is_none() || run.operations < 1.0) {
        return None;
    }
    cell.median(|run| run.cpu_seconds.unwrap_or_default() * 1e9 / run.operations)
}

struct Painter<'a> {
    results: &'a Results,
    about: &'a About,
}

type Figured<'f> = &'f dyn Fn(&Cell) -> Option<f64>;

impl Painter<'_> {
    /// Each contender has its colour in all pictures.
    fn color(&self, contender: &str) -> usize {
        self.results.contenders.iter().position(|other| other.name == contender).unwrap_or(0)
    }

    fn figure(&self, kind: &str, place: &str, svg: Option<Svg>) -> Option<Figure> {
        let parts = [file_part(&self.about.name), file_part(kind), file_part(place)];
        let parts: Vec<&str> = parts.iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
        Some(Figure { name: parts.join("-"), svg: svg? })
    }

    /// Is there an x axis, of numbers? What has names gets a picture for each.
    fn has_numbers(&self) -> bool {
        let Some(x) = &self.about.x else { return false };
        self.results
            .of(&self.about.name)
            .all(|cell| cell.point.get(x).is_some_and(|value| value.number().is_some()))
    }

    fn either(&self, kind: &str, label: &str, unit: Unit, value: Figured) -> Vec<Figure> {
        match self.has_numbers() {
            true => self.lines(kind, label, unit, value),
            false => self.bars(kind, label, unit, value),
        }
    }

    /// A picture for each point and phase, a bar for each contender. Of what belongs to the process and not to the
    /// phase (memory), the last phase will do.
    fn bars(&self, kind: &str, label: &str, unit: Unit, value: Figured) -> Vec<Figure> {
        let mut phases = self.results.phases(&self.about.name);
        if kind == "rss" {
            phases = phases.pop().into_iter().collect();
        }
        let mut figures = Vec::new();
        for point in self.results.points(&self.about.name) {
            for phase in &phases {
                let bars = self.results.of(&self.about.name).filter(|cell| cell.point == *point);
                // Who failed has no phase.
                let bars = bars.filter(|cell| cell.phase == **phase || cell.runs.is_empty());
                let bars = bars.map(|cell| {
                    let runs =
                        cell.runs.iter().filter(|_| kind == "rate").map(|run| 1e9 / run.ns_per_operation());
                    let (low, high) =
                        runs.fold((f64::INFINITY, 0.0), |(a, b): (f64, f64), r| (a.min(r), b.max(r)));
                    let good = cell.counts();
                    Bar {
                        name: contender_text(self.results, &cell.contender),
                        who: self.color(&cell.contender),
                        value: value(cell).filter(|_| good),
                        range: (low < high && good).then_some((low, high)),
                        remark: if good {
                            String::from("not measured")
                        } else {
                            cell.status.word().to_owned()
                        },
                    }
                });
                let place = point_text(self.about, point);
                let shown = if kind == "rss" { "" } else { phase };
                let title = join(&[&self.about.name, &place, shown]);
                let bars =
                    Bars { title, label: label.to_owned(), unit, bars: bars.collect(), ..Bars::default() };
                figures.extend(self.figure(kind, &join(&[&place, shown]), bars.draw()));
            }
        }
        figures
    }

    /// Lines over the x axis: a picture for each phase, and for each combination of the other axes (or for each
    /// contender, where one of these axes has the lines).
    fn lines(&self, kind: &str, label: &str, unit: Unit, value: Figured) -> Vec<Figure> {
        let mut figures = Vec::new();
        for (title, place, lines) in self.panels(kind, value) {
            figures.extend(self.over_x(kind, label, unit, title, &place, lines, false));
        }
        figures
    }

    fn speedup(&self) -> Vec<Figure> {
        let mut figures = Vec::new();
        for (title, place, mut lines) in self.panels("speedup", &rate) {
            for line in &mut lines {
                let Some(first) = line.points.first().map(|point| point.1) else { continue };
                line.points.iter_mut().for_each(|point| point.1 /= first);
            }
            figures.extend(self.over_x("speedup", "speed-up", Unit::Times, title, &place, lines, true));
        }
        figures
    }

    #[allow(clippy::too_many_arguments)]
    fn over_x(
        &self,
        kind: &str,
        label: &str,
        unit: Unit,
        title: String,
        place: &str,
        lines: Vec<Line>,
        ideal: bool,
    ) -> Option<Figure> {
        let axis = self.about.x_axis()?;
        let mut at: Vec<f64> =
            lines.iter().flat_map(|line| line.points.iter().map(|point| point.0)).collect();
        at.sort_by(f64::total_cmp);
        at.dedup();
        let first = at.first().copied().unwrap_or(1.0);
        let ideal = if ideal { at.iter().map(|x| (*x, x / first)).collect() } else { Vec::new() };
        let (low, high) = lines
            .iter()
            .flat_map(|line| &line.points)
            .fold((f64::INFINITY, 0.0), |(a, b): (f64, f64), point| (a.min(point.1), b.max(point.1)));
        let x_unit = if axis.unit == "bytes" { Unit::Bytes } else { Unit::Count };
        let chart = Lines {
            title,
            x: Axis { label: axis.label().to_owned(), unit: x_unit, log: axis.log, at, ends: None },
            // Very different figures want steps of a factor.
            y: Axis { label: label.to_owned(), unit, log: low > 0.0 && high > 60.0 * low, ..Axis::default() },
            lines,
            ideal,
            ..Lines::default()
        };
        self.figure(kind, place, chart.draw())
    }

    /// Title, place and lines of each picture over x.
    fn panels(&self, kind: &str, value: Figured) -> Vec<(String, String, Vec<Line>)> {
        let Some(x) = self.about.x.as_deref() else { return Vec::new() };
        let mut phases = self.results.phases(&self.about.name);
        if kind == "rss" {
            phases = phases.pop().into_iter().collect();
        }
        let within = self.about.lines.as_deref();
        // By picture, then by line; both in the order of the cells.
        let mut panels: Vec<(String, Vec<Line>)> = Vec::new();
        for phase in phases {
            for cell in self.results.of(&self.about.name).filter(|cell| cell.phase == *phase && cell.counts())
            {
                let Some((at, y)) = cell.point.get(x).and_then(Scalar::number).zip(value(cell)) else {
                    continue;
                };
                let rest: Point = cell
                    .point
                    .iter()
                    .filter(|(name, _)| *name != x && Some(name.as_str()) != within)
                    .map(|(name, value)| (name.clone(), value.clone()))
                    .collect();
                let rest = point_text(self.about, &rest);
                let name = contender_text(self.results, &cell.contender);
                let shown = if kind == "rss" { "" } else { phase };
                let (panel, line, who) = match within.and_then(|axis| cell.point.get(axis)) {
                    Some(value) => {
                        let only = BTreeMap::from([(within.unwrap_or_default().to_owned(), value.clone())]);
                        (join(&[&name, &rest, shown]), point_text(self.about, &only), None)
                    }
                    None => (join(&[&rest, shown]), name, Some(self.color(&cell.contender))),
                };
                let panel = entry(&mut panels, panel, |(name, _)| name, |name| (name, Vec::new()));
                let next = panel.1.len();
                let new = |name| Line { name, who: who.unwrap_or(next), ..Line::default() };
                entry(&mut panel.1, line, |line| &line.name, new).points.push((at, y));
            }
        }
        panels
            .into_iter()
            .map(|(place, mut lines)| {
                lines.iter_mut().for_each(|line| line.points.sort_by(|a, b| a.0.total_cmp(&b.0)));
                (join(&[&self.about.name, &place]), place, lines)
            })
            .collect()
    }

    /// Curves within a run: all contenders in one picture where there is one curve, or one that is wanted; else a
    /// picture each.
    fn series(&self, wanted: Option<&str>) -> Vec<Figure> {
        let mut figures = Vec::new();
        for point in self.results.points(&self.about.name) {
            for phase in self.results.phases(&self.about.name) {
                let cells: Vec<&Cell> = self
                    .results
                    .of(&self.about.name)
                    .filter(|cell| cell.point == *point && cell.phase == phase && cell.counts())
                    .filter(|cell| cell.series.as_ref().is_some_and(|series| !series.rows.is_empty()))
                    .collect();
                let place = join(&[&point_text(self.about, point), phase]);
                let Some(first) = cells.first().and_then(|cell| cell.series.as_ref()) else { continue };
                let column = match wanted {
                    Some(name) => first.columns.iter().position(|column| column == name),
                    None => (first.columns.len() == 2).then_some(1),
                };
                match (column, wanted) {
                    (Some(column), _) if self.is_histogram(first) => {
                        figures.extend(self.percentiles(&place, &cells, column));
                    }
                    (Some(column), _) => figures.extend(self.curves(&place, &cells, Some(column))),
                    (None, Some(_)) => {}
                    (None, None) => {
                        for cell in &cells {
                            let place = join(&[&contender_text(self.results, &cell.contender), &place]);
                            figures.extend(self.curves(&place, &[cell], None));
                        }
                    }
                }
            }
        }
        figures.truncate(MOST_SERIES);
        figures
    }

    fn series_unit(&self, series: &Series, column: usize) -> Unit {
        Unit::of(self.about.series_units.get(column).unwrap_or(&series.columns[column]))
    }

    /// Calls by duration?
    fn is_histogram(&self, series: &Series) -> bool {
        series.columns.len() == 2
            && self.series_unit(series, 0) == Unit::Nanoseconds
            && self.series_unit(series, 1) == Unit::Count
    }

    /// Duration by the part of the calls that took less.
    fn percentiles(&self, place: &str, cells: &[&Cell], column: usize) -> Option<Figure> {
        let line = |cell: &&Cell| {
            let series = cell.series.as_ref()?;
            let rows = series.rows.iter().filter_map(|row| (*row.first()?).zip(*row.get(column)?));
            let points = nines(rows);
            let name = contender_text(self.results, &cell.contender);
            (!points.is_empty()).then(|| Line {
                name,
                who: self.color(&cell.contender),
                points,
                ..Line::default()
            })
        };
        let lines = cells.iter().filter_map(line).collect();
        let chart = Lines::percentiles(join(&[&self.about.name, place]), Shape::SMALL, lines);
        self.figure("percentiles", place, chart.draw())
    }

    /// One column of all cells; or all columns, of the unit of the first one, of one cell.
    fn curves(&self, place: &str, cells: &[&Cell], only: Option<usize>) -> Option<Figure> {
        let first = cells.first()?.series.as_ref()?;
        let y_unit = self.series_unit(first, only.unwrap_or(1));
        let mut lines = Vec::new();
        for cell in cells {
            let Some(series) = &cell.series else { continue };
            let wanted = |column: &usize| match only {
                Some(only) => *column == only,
                None => self.series_unit(series, *column) == y_unit,
            };
            for column in (1..series.columns.len()).filter(wanted) {
                let points =
                    series.rows.iter().filter_map(|row| (*row.first()?).zip(*row.get(column)?)).collect();
                let (name, who) = match only {
                    Some(_) => (contender_text(self.results, &cell.contender), self.color(&cell.contender)),
                    None => (series.columns[column].replace('_', " "), column - 1),
                };
                lines.push(Line { name, who, points, ..Line::default() });
            }
        }
        let spans = |index: fn(&(f64, f64)) -> f64| {
            let all = || lines.iter().flat_map(|line: &Line| line.points.iter().map(index));
            let least = all().filter(|v| *v > 0.0).fold(f64::INFINITY, f64::min);
            all().all(|v| v >= 0.0) && all().fold(0.0, f64::max) > 60.0 * least
        };
        // Working sets and latencies want steps of a factor; time and counts begin at 0.
        let x_unit = self.series_unit(first, 0);
        let x_log = matches!(x_unit, Unit::Bytes | Unit::Kib) && spans(|point| point.0);
        let y_log = y_unit == Unit::Nanoseconds && spans(|point| point.1);
        let y_label = only.map_or_else(String::new, |column| first.columns[column].replace('_', " "));
        let kind = only
            .filter(|_| first.columns.len() > 2)
            .map(|column| format!("series {}", first.columns[column]));
        let chart = Lines {
            title: join(&[&self.about.name, place]),
            x: Axis {
                label: first.columns[0].replace('_', " "),
                unit: x_unit,
                log: x_log,
                ..Axis::default()
            },
            y: Axis { label: y_label, unit: y_unit, log: y_log, ..Axis::default() },
            lines,
            ..Lines::default()
        };
        self.figure(kind.as_deref().unwrap_or("series"), place, chart.draw())
    }
}

/// The entry of this name, which is made where it is not there.
fn entry<T>(
    list: &mut Vec<T>,
    name: String,
    key: impl Fn(&T) -> &String,
    make: impl FnOnce(String) -> T,
) -> &mut T {
    let at = list.iter().position(|item| *key(item) == name).unwrap_or(list.len());
    if at == list.len() {
        list.push(make(name));
    }
    &mut list[at]
}

fn join(words: &[&str]) -> String {
    words.iter().filter(|word| !word.is_empty()).copied().collect::<Vec<_>>().join(", ")
}

/// The table of who wins what as a picture.
pub fn heat(map: &HeatMap) -> Option<Figure> {
    if map.mallocs.len() < 2 || map.rows.is_empty() {
        return None;
    }
    let means: Vec<String> = map
        .mallocs
        .iter()
        .zip(&map.means)
        .filter_map(|(name, mean)| Some(format!("{name} {:.2}", (*mean)?.0)))
        .collect();
    let tile = |heat: &Heat| match heat {
        Heat::Ratio(ratio) => {
            let best = if *ratio <= 1.0 + 1e-9 { "★ " } else { "" };
            Tile::Ratio(*ratio, format!("{best}{}", heat_text(heat)))
        }
        _ => Tile::Remark(heat_text(heat)),
    };
    // Nobody's mean is the best by definition, so it has no star.
    let mean = |mean: &Option<(f64, usize)>| {
        mean.map_or(Heat::Absent, |(mean, _)| Heat::Ratio(mean.max(1.0 + 1e-6)))
    };
    let rows = map.rows.iter().map(|row| (row.scenario.clone(), row.ratios.iter().map(tile).collect()));
    let last = map.means.iter().map(|value| tile(&mean(value))).collect();
    let tiles = Tiles {
        title: format!("{}, as ratio to the best malloc", map.measure.name()),
        description: format!("Geometric means over all scenarios: {}.", means.join(", ")),
        columns: map.mallocs.clone(),
        rows: rows.chain([(String::from("geometric mean"), last)]).collect(),
    };
    Some(Figure { name: format!("heat-{}", file_part(map.measure.name())), svg: tiles.draw() })
}

/// The geometric means as bars.
pub fn means(results: &Results, map: &HeatMap) -> Option<Figure> {
    let bar = |(name, mean): (&String, &Option<(f64, usize)>)| Bar {
        name: name.clone(),
        who: results.contenders.iter().position(|contender| contender.name == *name).unwrap_or(0),
        value: mean.map(|(mean, _)| mean),
        range: None,
        remark: String::from("failed everywhere"),
    };
    let bars = Bars {
        title: format!("Geometric mean of {} over all scenarios", map.measure.name()),
        label: String::from("times the best malloc of each: shorter is better, 1 is best everywhere"),
        unit: Unit::Times,
        bars: map.mallocs.iter().zip(&map.means).map(bar).collect(),
        ..Bars::default()
    };
    Some(Figure { name: format!("mean-{}", file_part(map.measure.name())), svg: bars.draw()? })
}

/// All pictures, those of all scenarios first.
pub fn all(results: &Results) -> Vec<Figure> {
    let mut figures = Vec::new();
    for measure in [Measure::Time, Measure::Rss] {
        let map = judge::heat_map(results, measure);
        figures.extend(heat(&map));
        if map.mallocs.len() > 1 {
            figures.extend(means(results, &map));
        }
    }
    for about in &results.scenarios {
        figures.extend(of_scenario(results, about));
    }
    figures
}
