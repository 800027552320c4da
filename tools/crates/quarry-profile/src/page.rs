// SPDX-License-Identifier: MIT
//! The report as a page: one file with a graph of live memory on which a window of time is chosen, a flame graph, and a table of sites.
//!
//! The page has two trees, from callers to sites and from sites to callers, with what each call has, and draws all views of them. So that
//! it stays small, calls whose part is below a threshold in every respect are joined to "(others)", and sums stay as they are. A site's
//! sum is whole in the tree from the sites, however many small calls it has.

mod tables;
mod tree;

use quarry_report::chart::{Axis, Line, Lines, Look, Shape, Unit};
use quarry_report::page::{self, Page};
use quarry_report::style::Style;
use quarry_report::svg;
use serde_json::{Value, json};

use crate::calls::ROOT;
use crate::diff::{Diff, Pair};
use crate::estimate::{bytes, change, time};
use crate::model::{Live, Profile};
use crate::query::{At, live_at};
use crate::report::Report;
use tree::{Drawn, Names, OTHERS, Own, Tree};

/// Calls below this part of everything are joined in any case. The threshold is doubled until the page is small enough.
const LEAST: f64 = 0.00005;
/// Bytes of data in a page.
const MOST: usize = 3 << 20;
/// Sites of a comparison in a page.
const SITES: usize = 1000;

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
    ("down2", ("#7fb5de", "#2a6398")),
    ("same", ("#e4e6e8", "#3a4046")),
];

/// A tree of calls, and the texts of its labels.
struct Named {
    labels: Vec<String>,
    tree: Tree,
}

impl Named {
    fn new() -> Self {
        Self { labels: vec![String::from("(others)")], tree: Tree::default() }
    }

    /// What the page has of it: the labels, and both trees; the threshold, and how many spans of time are one.
    fn small(&self) -> (Value, f64, u32) {
        let inverted = self.tree.inverted(LEAST);
        let mut least = LEAST;
        loop {
            let (mut down, mut up) = (self.tree.pruned(least), inverted.pruned(least));
            let joined = up.thin(1, 1);
            let joined = up.thin(joined, down.thin(1, joined));
            let mut names = Names::of(&self.labels);
            let (down, up) = (down.json(&mut names), up.json(&mut names));
            let data = json!({ "labels": names.texts, "down": down, "up": up });
            if embedded(&data).len() <= MOST || least > 0.5 {
                return (data, least, joined);
            }
            least *= 2.0;
        }
    }
}

/// JSON within a script: nothing in it ends the script.
fn embedded(data: &Value) -> String {
    data.to_string().replace('<', "\\u003c")
}

/// The script of a page.
const SCRIPT: &str = concat!(
    include_str!("page/data.js"),
    include_str!("page/numbers.js"),
    include_str!("page/trees.js"),
    include_str!("page/flame.js"),
    include_str!("page/sites.js"),
    include_str!("page/window.js"),
    include_str!("page/page.js"),
);

/// What the page of one profile and that of a comparison differ in.
#[derive(Default)]
struct Parts<'a> {
    title: String,
    command: String,
    summary: String,
    verdict: String,
    chart: String,
    /// What the flame graph shows, as HTML.
    flame: &'a str,
    table_title: &'a str,
    table_about: &'a str,
    /// Without a script.
    table: String,
    /// What the script does not draw, as HTML.
    tables: String,
    least: f64,
    /// What else there is to ask for, from a space on.
    more: &'a str,
}

fn page(parts: &Parts, data: &Value) -> String {
    let body = format!(
        include_str!("page/page.html"),
        command = svg::escape(&parts.command),
        summary = svg::escape(&parts.summary),
        verdict = svg::escape(&parts.verdict),
        course_hidden = if parts.chart.is_empty() { "hidden" } else { "" },
        chart = parts.chart,
        flame = parts.flame,
        table_title = parts.table_title,
        table_about = parts.table_about,
        table = format_args!("<pre>{}</pre>", svg::escape(&parts.table)),
        tables = parts.tables,
        note = svg::escape(&format!(
            "1 KiB is 1024 bytes, 1 MiB is 1024 KiB. Calls with less than {} % of everything are joined to \"(others)\". No sum is lost by that.{}",
            parts.least * 100.0,
            parts.more
        )),
        data = embedded(data),
        script = format_args!("{}{SCRIPT}", page::SORT),
    );
    let style = page::colors(&COLORS) + &svg::style() + "\n" + include_str!("page/page.css");
    Page { title: &parts.title, style: &style, body: &body }.html()
}

/// What each call has, in this order; the last two only where the waste was asked for.
const COLUMNS: [&str; 8] =
    ["at", "peak", "end", "allocated", "allocations", "temporary", "waste", "sole_pages"];
/// Columns without those of the waste.
const PLAIN: usize = 6;
/// The place of the waste.
const WASTE: usize = 6;

fn tree_of(report: &Report) -> Named {
    let (profile, calls) = (report.profile, report.calls);
    let mut named = Named::new();
    // Labels with equal texts are one.
    let mut known = std::collections::HashMap::new();
    let mut numbers = Vec::with_capacity(calls.labels().len());
    for label in calls.labels() {
        numbers.push(*known.entry(label.text).or_insert_with(|| {
            named.labels.push(label.text.to_owned());
            named.labels.len() as u32 - 1
        }));
    }
    let call = |call: &crate::calls::Call| (call.parent, numbers[call.label as usize]);
    named.tree.calls = calls.calls().iter().map(call).collect();
    named.tree.own = vec![Own::default(); calls.calls().len()];
    let sample = profile.sampling.is_sample();
    for (number, row) in profile.rows.iter().enumerate().filter(|(number, _)| report.answer.chosen[*number]) {
        let (at, sums, peak) = (live_at(row, report.query.at), row.sums(), row.peak());
        let live = |live: &Live| Drawn { sum: live.bytes, blocks: live.blocks.seen() };
        let drawn = || {
            let end = Drawn { sum: sums.live_bytes, blocks: sums.live.seen() };
            let [allocated, allocations] =
                [sums.bytes, sums.allocs].map(|sum| Drawn { sum, blocks: sums.allocs.seen() });
            // Where the peak leads, it is the first of these.
            let peak = (report.query.at != At::Peak).then(|| live(&peak));
            [live(&at), end, allocated, allocations].into_iter().chain(peak).collect()
        };
        let values = [
            at.bytes.value(),
            peak.bytes.value(),
            sums.live_bytes.value(),
            sums.bytes.value(),
            sums.allocs.value(),
            sums.temporary,
        ];
        let own = Own {
            values: values.map(|value| value as f64).to_vec(),
            series: row.series.entries().to_vec(),
            drawn: if sample { drawn() } else { Vec::new() },
            variance: 0.0,
        };
        named.tree.own[calls.leaf(number) as usize].add(&own);
    }
    if let Some(waste) = report.waste {
        let fits = crate::waste::fitting(report);
        for (call, charge) in waste.charges.iter().filter(|(call, _)| fits(*call)) {
            let values = &mut named.tree.own[*call as usize].values;
            values.resize(COLUMNS.len(), 0.0);
            values[WASTE] += charge.waste as f64;
            values[WASTE + 1] += charge.sole_pages as f64;
        }
    }
    named
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

/// Behind the title of the page.
fn summary(report: &Report) -> String {
    let profile = report.profile;
    // Rows are in the order of call stacks, of which each may have several: by thread, size or pool.
    let rows = report.answer.all.rows.iter().map(|&row| profile.rows[row as usize].key.stack);
    let mut stacks: Vec<_> = rows.collect();
    stacks.dedup();
    let sample = match profile.sampling.is_sample() {
        true => format!(
            " All numbers are estimates: of all bytes, one in {} was drawn, and with it the block that it lies in. In parentheses stand the \
             bounds of the 95 % interval: of 100 such samples, 95 have the true value between their bounds. Where fewer than {} blocks were \
             drawn, the upper bound alone is shown, behind \u{2264}. In a window of time the bounds are wider than they need be.",
            profile.means_text(),
            crate::estimate::FEW
        ),
        false => String::from(
            " Each allocation was recorded, so the numbers are exact. Bytes are those that the program asked malloc for.",
        ),
    };
    let (peak, end) = report.live_of_all();
    let most = match report.query.filter {
        Some(_) => "Of the call stacks that fit --filter, {} were live at the peak of all",
        None => "At most {} were live at once",
    };
    format!(
        "{}, after {} of {}; {} were never freed. In all {} were allocated, from {}.{sample}",
        most.replace("{}", &crate::estimate::live(&peak)),
        time(report.after(profile.peak.time)),
        time(report.after(profile.last)),
        crate::estimate::live(&end),
        crate::estimate::estimated(
            &report.answer.all.sums.bytes,
            report.answer.all.sums.allocs.seen(),
            bytes
        ),
        quarry_report::units::of(stacks.len() as u64, "call stack"),
    )
}

/// Which moment leads, in a sentence.
fn at_about(report: &Report) -> String {
    match report.query.at {
        At::Peak => format!(
            "The peak is the moment at which most bytes were live, after {}.",
            time(report.after(report.moment()))
        ),
        At::End => String::from("The end is the last event of the trace."),
        At::Moment(_) => String::from("The moment was asked for with --at."),
    }
}

/// What the flame graph shows.
const FLAME: &str = "A box is a function. It is as wide as its part of what is shown: what it allocated itself, and what the functions that it called did. The \
                     colours only tell boxes apart.";
const FLAME_OF_DIFF: &str = "A box is a function, as wide as the larger of both sides. <span class=\"key up2\">+ grew by a third of it or more</span> \
                             <span class=\"key up1\">+ grew</span> <span class=\"key same\">changed by less than 1 %, or within noise</span> \
                             <span class=\"key down1\">- shrank</span> <span class=\"key down2\">- shrank by a third of it or more</span>";

/// The page of one profile.
pub fn html(report: &Report) -> String {
    let profile = report.profile;
    let (mut data, least, joined) = tree_of(report).small();
    let ends = ends(report, profile, joined);
    let (left, right) = Lines::MARGINS;
    let plot = |shape: Shape| json!([left / shape.width, (shape.width - right) / shape.width]);
    let about = json!({
        "diff": false,
        "columns": &COLUMNS[..if report.waste.is_some() { COLUMNS.len() } else { PLAIN }],
        "rate": profile.means.most,
        "spans": ends.len() - 1,
        "ends": ends,
        "duration": report.after(profile.last).max(1),
        "at": format!("live {}", report.moment_text()),
        "peak": "live at the peak",
        "atAbout": at_about(report),
        "wasteAbout": "A page stays as long as a live block touches it. What is not live on it is shared by the blocks that touch it.",
        "plot": plot(Shape::FLAT),
        "plotPhone": plot(PHONE),
    });
    data.as_object_mut()
        .into_iter()
        .for_each(|data| data.extend(about.as_object().cloned().unwrap_or_default()));
    page(
        &Parts {
            title: format!("Memory of {}", crate::export::program(report)),
            command: report.trace.head().command_line(),
            summary: summary(report),
            verdict: report.verdict(),
            chart: match chart(report, Shape::FLAT) {
                chart if chart.is_empty() => chart,
                chart => format!(
                    "<div class=\"large\">{chart}</div><div class=\"small\">{}</div>",
                    self::chart(report, PHONE)
                ),
            },
            flame: FLAME,
            table_title: "Sites",
            table_about: "A site is a line of code that allocates, or an address where lines are not known. Wrappers of malloc are left out: \
                          their callers are the sites. A site has its own numbers only: what the functions that it calls allocate stands in \
                          their rows. A click on a heading sorts.",
            table: report.table(Style::default()),
            tables: tables::all(report),
            least,
            more: match report.waste {
                Some(_) => "",
                None => {
                    " --waste adds the pages that are kept for little. With --by thread, \"How long blocks live\" is of threads."
                }
            },
        },
        &data,
    )
}

/// The tree of call stacks that are named by their functions with semicolons in between.
fn tree_of_pairs(pairs: &[Pair]) -> Named {
    let mut named = Named::new();
    named.labels.push(String::from("all"));
    named.tree = Tree::of_root(OTHERS + 1);
    let mut labels: std::collections::HashMap<&str, u32> = std::collections::HashMap::new();
    let mut known: std::collections::HashMap<(u32, u32), u32> = std::collections::HashMap::new();
    for pair in pairs {
        let mut call = ROOT;
        for name in pair.name.split(';') {
            let texts = &mut named.labels;
            let label = *labels.entry(name).or_insert_with(|| {
                texts.push(name.to_owned());
                texts.len() as u32 - 1
            });
            let tree = &mut named.tree;
            call = *known.entry((call, label)).or_insert_with(|| tree.push(call, label));
        }
        named.tree.own[call as usize].add(&Own {
            values: vec![pair.before, pair.after],
            variance: pair.variance_before + pair.variance_after,
            ..Own::default()
        });
    }
    named
}

/// The page of a comparison: `stacks` has whole call stacks, `sites` is the table.
pub fn of_diff(stacks: &Diff, sites: &Diff, what: &str, top: usize) -> String {
    let (mut data, least, _) = tree_of_pairs(&stacks.pairs).small();
    data["diff"] = json!(true);
    data["columns"] = json!(["before", "after"]);
    data["spans"] = json!(0);
    data["noise"] = json!(sites.knows_noise);
    let site = |pair: &Pair| {
        let noise = sites.knows_noise.then(|| pair.noise().round());
        json!([pair.name, pair.before.round(), pair.after.round(), noise, pair.is_significant()])
    };
    data["sites"] = sites.pairs.iter().take(SITES).map(site).collect();
    let all = &sites.all;
    let (before, after) = sites.runs;
    let runs = |n: usize| if n == 1 { String::from("one run") } else { format!("the mean of {n} runs") };
    let noise = match sites.knows_noise {
        true => {
            "A change is more than noise if it is above twice its standard error, or above more than that where runs are \
             few. The error comes from the samples and from what runs of one side differ by."
        }
        false => {
            "With one complete run of each side nothing is known of noise: a change may be chance. Several runs of each side tell."
        }
    };
    page(
        &Parts {
            title: String::from("What changed in memory"),
            summary: format!(
                "{what}: {} before, {} after, {}. Before is {}, after is {}. Live bytes are allocated and not yet freed. {noise}",
                bytes(all.before.max(0.0) as u64),
                bytes(all.after.max(0.0) as u64),
                change(all.change() as i64),
                runs(before),
                runs(after)
            ),
            flame: FLAME_OF_DIFF,
            table_title: "Sites",
            table_about: "A site is a line of code that allocates. Sites of both sides are matched by their names. A click on a heading sorts.",
            table: sites.text(Style::default(), top, what),
            least,
            ..Parts::default()
        },
        &data,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_stays_small() {
        // Nothing is larger than another, so nothing is joined but by the bytes of the page.
        let pair = |at: u32| Pair {
            name: (0..30).map(|depth| format!("function_{}_{depth};", at / (30 - depth))).collect::<String>(),
            before: 1.0,
            after: 2.0,
            ..Pair::default()
        };
        let named = tree_of_pairs(&(0..20_000).map(pair).collect::<Vec<_>>());
        let (data, least, _) = named.small();
        assert!(data.to_string().len() <= MOST && least >= LEAST);
        for way in ["down", "up"] {
            let sum: u64 =
                data[way]["rows"].as_array().unwrap().iter().map(|row| row[1][1].as_u64().unwrap()).sum();
            assert_eq!(sum, 40_000, "{way}");
        }
    }

    /// What is counted is what is written: each "<" takes six bytes there.
    #[test]
    fn names_of_templates_keep_a_page_small() {
        let pair = |at: u32| Pair {
            name: format!("{}{at}", "map<".repeat(50)),
            before: 1.0,
            after: 2.0,
            ..Pair::default()
        };
        let named = tree_of_pairs(&(0..10_000).map(pair).collect::<Vec<_>>());
        assert!(embedded(&named.small().0).len() <= MOST);
    }

    #[test]
    fn nothing_ends_the_script() {
        let text = embedded(&json!({ "a": "</script><!--" }));
        assert!(!text.contains('<'));
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["a"], "</script><!--");
    }

    /// The part of light that a colour gives back, as WCAG 2 has it.
    fn luminance(color: &str) -> f64 {
        let channel = |at: usize| {
            let value = f64::from(u8::from_str_radix(&color[at..at + 2], 16).unwrap()) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
    }

    #[test]
    fn text_stands_out_from_boxes() {
        let contrast = |a: &str, b: &str| {
            let (a, b) = (luminance(a), luminance(b));
            (a.max(b) + 0.05) / (a.min(b) + 0.05)
        };
        for (name, (light, dark)) in COLORS {
            let (light, dark) = (contrast(light, "#1b1b1b"), contrast(dark, "#e4e6e8"));
            assert!(light >= 4.5 && dark >= 4.5, "{name}: {light:.2} {dark:.2}");
        }
    }
}
