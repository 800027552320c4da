// SPDX-License-Identifier: MIT
//! The report as a page: one file with a flame graph, a timeline on which a window of time is chosen, and a table of sites.
//!
//! The page has the tree of calls with what each has, and draws all views of it. So that it stays small, calls whose part is below a
//! threshold in every respect are joined to "others" of their caller, and sums stay as they are.

use quarry_report::chart::{Axis, Line, Lines, Look, Shape, Unit};
use quarry_report::page::{self, Page};
use quarry_report::style::Style;
use quarry_report::svg;
use serde_json::{Value, json};

use crate::calls::ROOT;
use crate::diff::{Diff, Pair};
use crate::estimate::{bytes, change, count, time};
use crate::model::{Entry, Profile};
use crate::query::live_at;
use crate::report::Report;

/// Calls below this part of everything are joined.
const LEAST: f64 = 0.0005;
/// Bytes of data in a page. With more, the threshold is doubled.
const MOST: usize = 3 << 20;
/// Entries over time in a page. With more, spans are joined.
const ENTRIES: usize = 100_000;

/// The graph on a telephone.
const PHONE: Shape = Shape { width: 400.0, plot: 150.0 };

/// Colours of boxes, on white and on black. Text is dark on the one and light on the other.
const COLORS: [(&str, (&str, &str)); 11] = [
    ("c0", ("#ffd6a0", "#7a4a10")),
    ("c1", ("#ffe39a", "#6b5510")),
    ("c2", ("#f7c6b4", "#7a3b26")),
    ("c3", ("#f2d8c0", "#5f4430")),
    ("c4", ("#fbe9b8", "#5a4a20")),
    ("c5", ("#f6cfa6", "#6e4420")),
    ("up1", ("#f6c4b8", "#7c3526")),
    ("up2", ("#ee8f78", "#a8402a")),
    ("down1", ("#bcd8ee", "#27527a")),
    ("down2", ("#7fb5de", "#2f6ea8")),
    ("same", ("#e4e6e8", "#3a4046")),
];

/// What one call of the page has of its own.
#[derive(Debug, Clone, Default)]
struct Own {
    /// At the moment, at the peak, at the end, allocated, allocations, temporary; of a diff: before, after.
    values: Vec<f64>,
    series: Vec<Entry>,
}

impl Own {
    fn add(&mut self, other: &Self) {
        self.values.resize(self.values.len().max(other.values.len()), 0.0);
        self.values.iter_mut().zip(&other.values).for_each(|(value, more)| *value += more);
        if self.series.is_empty() {
            self.series.clone_from(&other.series);
        } else {
            self.series.extend_from_slice(&other.series);
            self.series.sort_by_key(|entry| entry.span);
            self.series.dedup_by(|next, first| {
                let same = next.span == first.span;
                if same {
                    first.bytes += next.bytes;
                    first.born += next.born;
                }
                same
            });
        }
    }
}

/// A tree of calls for a page.
#[derive(Debug, Default)]
struct Tree {
    labels: Vec<String>,
    /// Caller and label; a call comes after its caller.
    calls: Vec<(u32, u32)>,
    own: Vec<Own>,
}

impl Tree {
    /// Without the calls whose part of the whole is below `least` in every respect.
    fn pruned(&self, least: f64) -> Self {
        let width = self.own.iter().map(|own| own.values.len()).max().unwrap_or(0);
        let mut sums = vec![vec![0.0; width]; self.calls.len()];
        for (call, own) in self.own.iter().enumerate() {
            own.values.iter().enumerate().for_each(|(at, value)| sums[call][at] += value.max(0.0));
        }
        for call in (1..self.calls.len()).rev() {
            let up = self.calls[call].0 as usize;
            let below = std::mem::take(&mut sums[call]);
            below.iter().enumerate().for_each(|(at, value)| sums[up][at] += value);
            sums[call] = below;
        }
        let whole = sums[0].clone();
        let is_kept =
            |call: usize| (0..width).any(|at| whole[at] > 0.0 && sums[call][at] >= whole[at] * least);
        let mut tree = Self { labels: self.labels.clone(), ..Self::default() };
        let others = tree.labels.len() as u32;
        tree.labels.push(String::from("(others)"));
        let mut place = vec![ROOT; self.calls.len()];
        let mut joined: std::collections::HashMap<u32, u32> = std::collections::HashMap::new();
        tree.calls.push(self.calls[0]);
        tree.own.push(self.own[0].clone());
        let mut is_joined = vec![false; self.calls.len()];
        for call in 1..self.calls.len() {
            let (up, label) = self.calls[call];
            let parent = place[up as usize];
            is_joined[call] = is_joined[up as usize] || !is_kept(call);
            place[call] = if is_joined[up as usize] {
                parent
            } else if is_joined[call] {
                *joined.entry(parent).or_insert_with(|| tree.push(parent, others))
            } else {
                tree.push(parent, label)
            };
            tree.own[place[call] as usize].add(&self.own[call]);
        }
        tree.named()
    }

    fn push(&mut self, parent: u32, label: u32) -> u32 {
        self.calls.push((parent, label));
        self.own.push(Own::default());
        self.calls.len() as u32 - 1
    }

    /// Without the labels that no call has.
    fn named(mut self) -> Self {
        let mut numbers = vec![u32::MAX; self.labels.len()];
        let mut labels = Vec::new();
        for call in &mut self.calls {
            let number = &mut numbers[call.1 as usize];
            if *number == u32::MAX {
                *number = labels.len() as u32;
                labels.push(std::mem::take(&mut self.labels[call.1 as usize]));
            }
            call.1 = *number;
        }
        self.labels = labels;
        self
    }

    /// With spans joined, so that there are few enough entries; how many spans are one.
    fn thin(&mut self) -> u32 {
        let mut joined = 1;
        while self.own.iter().map(|own| own.series.len()).sum::<usize>() > ENTRIES && joined < 512 {
            joined *= 2;
            for own in &mut self.own {
                own.series.iter_mut().for_each(|entry| entry.span /= 2);
                let all = Own { series: std::mem::take(&mut own.series), ..Own::default() };
                own.series.push(Entry::default());
                own.add(&all);
                own.series.retain(|entry| entry.bytes != 0.0 || entry.born != 0.0);
            }
        }
        joined
    }

    fn json(&self) -> (Value, Value, Value) {
        let rows =
            self.own.iter().enumerate().filter(|(_, own)| own.values.iter().any(|value| *value != 0.0));
        let rows = rows.map(|(call, own)| {
            let mut row = vec![json!(call)];
            row.extend(own.values.iter().map(|value| json!(value.round() as i64)));
            if own.values.len() > 2 {
                let flat = |entry: &Entry| {
                    [json!(entry.span), json!(entry.bytes.round() as i64), json!(entry.born.round() as i64)]
                };
                row.push(own.series.iter().flat_map(flat).collect());
            }
            Value::from(row)
        });
        let calls = self.calls.iter().map(|(up, label)| json!([up, label])).collect();
        (json!(self.labels), calls, rows.collect())
    }
}

/// The threshold that makes the data small enough, and the tree.
fn small(tree: &Tree) -> (f64, Tree, u32) {
    let mut least = LEAST;
    loop {
        let mut small = tree.pruned(least);
        let joined = small.thin();
        let (labels, calls, rows) = small.json();
        let length = [labels, calls, rows].iter().map(|part| part.to_string().len()).sum::<usize>();
        if length <= MOST || least > 0.5 {
            return (least, small, joined);
        }
        least *= 2.0;
    }
}

/// JSON within a script: nothing in it ends the script.
fn embedded(data: &Value) -> String {
    data.to_string().replace('<', "\\u003c")
}

/// What the page of one profile and that of a comparison differ in.
#[derive(Default)]
struct Parts<'a> {
    title: String,
    command: String,
    summary: String,
    verdict: String,
    chart: String,
    table_title: &'a str,
    table: String,
    note: String,
}

fn page(parts: &Parts, data: &Value) -> String {
    let hidden = if parts.chart.is_empty() { "hidden" } else { "" };
    let body = format!(
        include_str!("page/page.html"),
        command = svg::escape(&parts.command),
        summary = svg::escape(&parts.summary),
        verdict = svg::escape(&parts.verdict),
        course_hidden = hidden,
        chart = parts.chart,
        table_title = parts.table_title,
        table = parts.table,
        note = svg::escape(&parts.note),
        data = embedded(data),
        script = include_str!("page/page.js"),
    );
    let style = page::colors(&COLORS) + &svg::style() + "\n" + include_str!("page/page.css");
    Page { title: &parts.title, style: &style, body: &body }.html()
}

fn tree_of(report: &Report) -> Tree {
    let (profile, calls) = (report.profile, report.calls);
    let mut tree = Tree {
        labels: calls.labels().map(|label| label.text.to_string()).collect(),
        calls: calls.calls().iter().map(|call| (call.parent, call.label)).collect(),
        own: vec![Own::default(); calls.calls().len()],
    };
    for (number, row) in profile.rows.iter().enumerate().filter(|(number, _)| report.answer.chosen[*number]) {
        let (sums, peak) = (row.sums(), row.peak());
        let own = Own {
            values: [
                live_at(row, report.query.at).bytes.value(),
                peak.bytes.value(),
                sums.live_bytes.value(),
                sums.bytes.value(),
                sums.allocs.value(),
                sums.temporary,
            ]
            .map(|value| value as f64)
            .to_vec(),
            series: row.series.entries().to_vec(),
        };
        tree.own[calls.leaf(number) as usize].add(&own);
    }
    tree
}

/// Live bytes over time.
fn chart(report: &Report, shape: Shape) -> String {
    let profile = report.profile;
    let seconds = |ticks: u64| report.after(ticks) as f64 / 1e9;
    let mut points = Vec::new();
    let mut last = 0.0;
    for point in profile.curve.points() {
        let at = seconds(point.time);
        points.extend([(at, last), (at, point.most as f64)]);
        last = point.last as f64;
        points.push((at, last));
    }
    points.push((seconds(profile.last), last));
    let line = Line { name: String::from("live bytes"), who: 2, look: Look::Plain, points };
    let ends = (0.0, seconds(profile.last).max(1e-9));
    let lines = Lines {
        title: String::from("Live memory"),
        remark: format!(
            "peak {} after {}",
            bytes(profile.peak.live.bytes.value()),
            time(report.after(profile.peak.time))
        ),
        shape,
        x: Axis { label: String::from("time"), unit: Unit::Seconds, ends: Some(ends), ..Axis::default() },
        y: Axis { label: String::from("live"), unit: Unit::Bytes, ..Axis::default() },
        lines: vec![line],
        bare: true,
        ..Lines::default()
    };
    lines.draw().map_or_else(String::new, |svg| svg.inline())
}

/// When each span of time begins, after `joined` of them became one, and when the last one ends.
fn ends(report: &Report, profile: &Profile, joined: u32) -> Vec<u64> {
    let n = profile.spans.count().div_ceil(joined as usize);
    let begins = (0..n).map(|span| report.after(profile.spans.begin(span * joined as usize)));
    begins.chain([report.after(profile.last).max(1)]).collect()
}

/// The page of one profile.
pub fn html(report: &Report) -> String {
    let profile = report.profile;
    let (least, tree, joined) = small(&tree_of(report));
    let (labels, calls, rows) = tree.json();
    let ends = ends(report, profile, joined);
    let (left, right) = Lines::MARGINS;
    let plot = |shape: Shape| json!([left / shape.width, (shape.width - right) / shape.width]);
    let data = json!({
        "labels": labels, "calls": calls, "rows": rows, "spans": ends.len() - 1, "ends": ends, "diff": false,
        "duration": report.after(profile.last).max(1),
        "at": format!("live {}", report.moment_text()),
        "plot": plot(Shape::FLAT),
        "plot_phone": plot(PHONE),
    });
    let head = report.trace.head();
    let sample = match profile.sampling.is_sample() {
        true => format!(
            " All numbers are estimates from a sample of one byte in {}; quarry profile --json has their intervals.",
            bytes(profile.sampling.rate())
        ),
        false => String::new(),
    };
    let plain = report.table(Style::default());
    page(
        &Parts {
            title: format!("Memory of {}", crate::export::program(report)),
            command: head.command.join(" "),
            summary: format!(
                "{} live at the peak, after {} of {}; {} at the end; {} allocated by {} call stacks.{sample}",
                bytes(profile.peak.live.bytes.value()),
                time(report.after(profile.peak.time)),
                time(report.after(profile.last)),
                bytes(profile.end.bytes.value()),
                bytes(report.answer.all.sums.bytes.value()),
                count(profile.rows.len() as u64),
            ),
            verdict: report.verdict(),
            chart: match chart(report, Shape::FLAT) {
                chart if chart.is_empty() => chart,
                chart => format!(
                    "<div class=\"large\">{chart}</div><div class=\"small\">{}</div>",
                    self::chart(report, PHONE)
                ),
            },
            table_title: "Sites",
            table: format!("<pre>{}</pre>", svg::escape(&plain)),
            note: format!(
                "Calls with less than {} % of everything are joined to \"(others)\" of their caller; sums are exact.",
                least * 100.0
            ),
        },
        &data,
    )
}

/// The tree of call stacks that are named by their functions with semicolons in between.
fn tree_of_pairs(pairs: &[Pair]) -> Tree {
    let mut tree =
        Tree { labels: vec![String::from("all")], calls: vec![(ROOT, 0)], own: vec![Own::default()] };
    let mut labels: std::collections::HashMap<&str, u32> = std::collections::HashMap::new();
    let mut known: std::collections::HashMap<(u32, u32), u32> = std::collections::HashMap::new();
    for pair in pairs {
        let mut call = ROOT;
        for name in pair.name.split(';') {
            let texts = &mut tree.labels;
            let label = *labels.entry(name).or_insert_with(|| {
                texts.push(name.to_owned());
                texts.len() as u32 - 1
            });
            call = match known.get(&(call, label)) {
                Some(&known) => known,
                None => {
                    let new = tree.push(call, label);
                    known.insert((call, label), new);
                    new
                }
            };
        }
        tree.own[call as usize].add(&Own { values: vec![pair.before, pair.after], series: Vec::new() });
    }
    tree
}

/// The page of a comparison: `stacks` has whole call stacks, `sites` is the table.
pub fn of_diff(stacks: &Diff, sites: &Diff, what: &str, top: usize) -> String {
    let (least, tree, _) = small(&tree_of_pairs(&stacks.pairs));
    let (labels, calls, rows) = tree.json();
    let data = json!({ "labels": labels, "calls": calls, "rows": rows, "spans": 0, "diff": true });
    let all = &sites.all;
    page(
        &Parts {
            title: String::from("What changed in memory"),
            command: String::new(),
            summary: format!(
                "{what}: {} before, {} after, {}.",
                bytes(all.before.max(0.0) as u64),
                bytes(all.after.max(0.0) as u64),
                change(all.change() as i64)
            ),
            verdict: String::from(
                "A box is as wide as the larger of both. Red has grown, blue has shrunk: the box with all that it calls.",
            ),
            chart: String::new(),
            table_title: "Sites",
            table: format!("<pre>{}</pre>", svg::escape(&sites.text(Style::default(), top, what))),
            note: format!(
                "Calls with less than {} % of everything are joined to \"(others)\" of their caller; sums are exact.",
                least * 100.0
            ),
        },
        &data,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaves(n: u32) -> Tree {
        let pairs: Vec<Pair> = (0..n)
            .map(|at| Pair {
                name: format!("main;f{};g{at}", at % 100),
                before: 1.0 + f64::from(at % 7),
                after: if at < 3 { 1e6 } else { 1.0 },
                ..Pair::default()
            })
            .collect();
        tree_of_pairs(&pairs)
    }

    fn sums(tree: &Tree) -> Vec<f64> {
        let mut all = Own::default();
        tree.own.iter().for_each(|own| all.add(own));
        all.values
    }

    #[test]
    fn what_is_joined_keeps_its_sum() {
        let tree = leaves(100_000);
        let (least, small, _) = small(&tree);
        assert_eq!(sums(&small), sums(&tree));
        assert!(small.calls.len() < 1000 && least >= LEAST, "{} calls", small.calls.len());
        assert!(
            small.labels.iter().any(|label| label == "g0")
                && !small.labels.iter().any(|label| label == "g99")
        );
        let labels = small.calls.iter().filter(|call| small.labels[call.1 as usize] == "(others)").count();
        assert!((1..=102).contains(&labels), "{labels}");
        assert!(small.calls.iter().enumerate().skip(1).all(|(at, call)| (call.0 as usize) < at));
    }

    #[test]
    fn nothing_ends_the_script() {
        let text = embedded(&json!({ "a": "</script><!--" }));
        assert!(!text.contains('<'));
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["a"], "</script><!--");
    }

    #[test]
    fn spans_are_joined_until_they_fit() {
        let mut tree = leaves(1000);
        for own in tree.own.iter_mut().skip(1) {
            own.series = (0..512).map(|span| Entry { span, bytes: 1.0, born: 2.0 }).collect();
        }
        let all =
            |tree: &Tree| tree.own.iter().flat_map(|own| &own.series).map(|entry| entry.born).sum::<f32>();
        let before = all(&tree);
        let joined = tree.thin();
        assert!(joined >= 8 && all(&tree) == before);
        assert!(tree.own.iter().map(|own| own.series.len()).sum::<usize>() <= ENTRIES);
    }
}
