// SPDX-License-Identifier: MIT
//! The report of `quarry bench`: tables, and who wins what. Pictures and the page are in [`figures`] and [`page`].

use quarry_bench::baseline::{Change, Comparison, Turn, Verdict};
use quarry_bench::judge::{self, Heat, HeatMap, Measure};
use quarry_bench::results::{About, Cell, Contender, Point, Results, Role};
use quarry_measure::stats::{Ratio, Summary};

use crate::chart::number;
use crate::style::Style;
use crate::table::{self, Align, Text};
use crate::units;

pub mod figures;
pub mod page;

/// "threads 4, arenas 2"; of a scenario without axes, nothing.
pub fn point_text(about: &About, point: &Point) -> String {
    let axis = |name: &str| about.axes.iter().find(|axis| axis.name == name);
    let words: Vec<String> = point
        .iter()
        .map(|(name, value)| {
            let label = axis(name).map_or(name.as_str(), |axis| axis.label());
            let bytes = axis(name).is_some_and(|axis| axis.unit == "bytes");
            match value.number().filter(|_| bytes) {
                Some(bytes) => format!("{label} {}", units::bytes(bytes)),
                None => format!("{label} {value}"),
            }
        })
        .collect();
    words.join(", ")
}

/// What a contender is called: pools are told from mallocs.
pub fn contender_text(results: &Results, name: &str) -> String {
    match results.role(name) {
        Role::Malloc | Role::Variant => name.to_owned(),
        Role::Pool => format!("{name} (pool)"),
        Role::Other if name == "malloc" => String::from("the system's malloc"),
        Role::Other => name.to_owned(),
        Role::Nothing => String::from("no allocator"),
    }
}

/// Everything as text.
pub fn text(results: &Results, comparison: Option<&Comparison>, style: Style) -> String {
    let mut text = String::new();
    for about in &results.scenarios {
        text += &scenario(results, about, style);
    }
    text += &contenders(results, style);
    for measure in [Measure::Time, Measure::Rss] {
        text += &heat(&judge::heat_map(results, measure), style);
    }
    if let Some(comparison) = comparison {
        text += &changes(comparison, results, style);
    }
    text + &explanation(results, style)
}

/// The table of a scenario.
fn scenario(results: &Results, about: &About, style: Style) -> String {
    let mut text = format!("{}: {}\n", style.bold(&about.name), about.title);
    if let Some(why) = &about.missing {
        return text + &format!("{} {why}\n\n", style.warning("not run:"));
    }
    use Align::{Left, Right};
    let align = [Left, Right, Right, Right, Right, Right, Right, Right, Right, Left];
    let header = ["", "time/op", "±", "x best", "user", "sys", "peak RSS", "x payload", "faults", ""];
    let points = results.points(&about.name);
    for point in &points {
        for phase in phases_at(results, about, point) {
            let cells: Vec<&Cell> =
                results.of(&about.name).filter(|cell| cell.point == **point && cell.phase == phase).collect();
            let place = [point_text(about, point), phase.to_owned()];
            let place: Vec<&str> = place.iter().map(String::as_str).filter(|word| !word.is_empty()).collect();
            if !place.is_empty() {
                text += &format!("  {}\n", style.bold(&place.join(", ")));
            }
            let nothing = alone(results, &cells);
            let rows = cells.iter().map(|cell| row(results, cell, &cells, nothing)).collect();
            text += &table::render(style, &align, &header, rows);
        }
    }
    text + "\n"
}

/// The phases of a point; those that failed at once have none, and stand with the first.
fn phases_at<'a>(results: &'a Results, about: &'a About, point: &Point) -> Vec<&'a str> {
    let mut phases: Vec<&str> = Vec::new();
    for cell in results.of(&about.name).filter(|cell| cell.point == *point) {
        if !phases.contains(&cell.phase.as_str()) {
            phases.push(&cell.phase);
        }
    }
    phases
}

/// What the work takes without an allocator, where that was measured.
fn alone(results: &Results, cells: &[&Cell]) -> Option<f64> {
    let cell = cells.iter().find(|cell| results.role(&cell.contender) == Role::Nothing && cell.counts())?;
    Some(cell.summary?.ns_per_operation.median)
}

fn row(results: &Results, cell: &Cell, row: &[&Cell], nothing: Option<f64>) -> Vec<Text> {
    let name = contender_text(results, &cell.contender);
    let Some(s) = cell.summary.filter(|_| !cell.runs.is_empty()) else {
        let mut cells: Vec<Text> = vec![name.into()];
        cells.extend((0..8).map(|_| Text::from(String::from("-"))));
        cells.push(remark(cell).into());
        return cells;
    };
    let least = |value: fn(&Cell) -> Option<f64>| {
        let others =
            row.iter().filter(|other| other.counts() && results.role(&other.contender) == Role::Malloc);
        others.filter_map(|other| value(other)).min_by(f64::total_cmp)
    };
    let strong = |value: fn(&Cell) -> Option<f64>| {
        cell.counts() && value(cell).is_some() && value(cell) == least(value)
    };
    let time = |cell: &Cell| Some(cell.summary?.ns_per_operation.median);
    let rss = |cell: &Cell| Some(cell.summary?.peak_rss_kib.median);
    let payload = cell.payload_bytes.map(|bytes| s.peak_rss_kib.median * 1024.0 / bytes);
    let mut remark = remark(cell);
    // What the allocator itself costs, without the work around it.
    let best = least(time);
    if let (Some(alone), Some(best), Role::Pool) = (nothing, best, results.role(&cell.contender))
        && alone > 0.0
        && alone < s.ns_per_operation.median
        && best > alone
    {
        let times = (best - alone) / (s.ns_per_operation.median - alone);
        remark = format!("without the work: {} x the best malloc's speed", number(times));
    }
    vec![
        name.into(),
        Text(units::nanoseconds(s.ns_per_operation.median), strong(time)),
        deviation(cell, &s.ns_per_operation).into(),
        show_ratio(s.time_ratio).into(),
        known(s.user_seconds, units::seconds).into(),
        known(s.system_seconds, units::seconds).into(),
        Text(units::bytes(s.peak_rss_kib.median * 1024.0), strong(rss)),
        payload.map_or_else(String::new, |times| format!("{times:.2}")).into(),
        known(s.faults, units::count).into(),
        remark.into(),
    ]
}

/// The median; "-" where nothing was measured.
fn known(summary: Option<Summary>, show: impl Fn(f64) -> String) -> String {
    summary.map_or_else(|| String::from("-"), |summary| show(summary.median))
}

/// A single run has no deviation.
fn deviation(cell: &Cell, times: &Summary) -> String {
    if cell.runs.len() > 1 { units::percent(times.relative_deviation()) } else { String::from("-") }
}

fn show_ratio(ratio: Option<Ratio>) -> String {
    match ratio {
        None => String::new(),
        Some(Ratio { ratio, interval: None }) => format!("{ratio:.2}"),
        Some(Ratio { ratio, interval: Some((low, high)) }) => format!("{ratio:.2} [{low:.2} {high:.2}]"),
    }
}

/// What is wrong with a cell.
pub fn remark(cell: &Cell) -> String {
    match (&cell.reason, cell.status.word()) {
        (None, "ok") => String::new(),
        (None, word) => word.to_owned(),
        (Some(reason), word) => format!("{word}: {reason}"),
    }
}

/// Who took part, with versions.
fn contenders(results: &Results, style: Style) -> String {
    let mut text = format!("{}\n", style.bold("Who took part"));
    use Align::Left;
    let named = |contender: &&Contender| matches!(contender.role, Role::Malloc | Role::Variant);
    let rows = results.contenders.iter().filter(named).map(|contender| {
        let env: Vec<String> = contender.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let what = match (&contender.of, &contender.library) {
            (Some(of), _) => format!("{of} with {}", env.join(" ")),
            (None, Some(library)) => [library.clone()].into_iter().chain(env).collect::<Vec<_>>().join(" "),
            (None, None) => String::from("the system's own"),
        };
        vec![
            contender.name.clone().into(),
            contender.version.clone().unwrap_or_default().into(),
            what.into(),
            shortened(contender.flags.as_deref().unwrap_or_default()).into(),
            contender.notes.join("; ").into(),
        ]
    });
    text += &table::render(style, &[Left; 5], &[], rows.collect());
    text + "\n"
}

/// What fits into a table; the page and the JSON have all of it.
fn shortened(text: &str) -> String {
    const MOST: usize = 48;
    if text.chars().count() <= MOST {
        text.to_owned()
    } else {
        text.chars().take(MOST).collect::<String>() + "…"
    }
}

/// A field of the table of who wins what.
pub fn heat_text(heat: &Heat) -> String {
    match heat {
        Heat::Ratio(ratio) => format!("{ratio:.2}"),
        Heat::Failed(word) => word.clone(),
        Heat::Absent => String::from("-"),
    }
}

fn heat(map: &HeatMap, style: Style) -> String {
    if map.mallocs.len() < 2 || map.rows.is_empty() {
        return String::new();
    }
    let mut header = vec![""];
    header.extend(map.mallocs.iter().map(String::as_str));
    let align: Vec<Align> =
        std::iter::once(Align::Left).chain(map.mallocs.iter().map(|_| Align::Right)).collect();
    let mut rows: Vec<Vec<Text>> = Vec::new();
    for row in &map.rows {
        let field =
            |heat: &Heat| Text(heat_text(heat), matches!(heat, Heat::Ratio(ratio) if *ratio <= 1.0 + 1e-9));
        rows.push(std::iter::once(row.scenario.clone().into()).chain(row.ratios.iter().map(field)).collect());
    }
    let mean = |mean: &Option<(f64, usize)>| match mean {
        Some((mean, of)) if *of == map.rows.len() => Text(format!("{mean:.3}"), false),
        Some((mean, of)) => Text(format!("{mean:.3} of {of}"), false),
        None => Text(String::from("-"), false),
    };
    rows.push(
        std::iter::once(String::from("geometric mean").into()).chain(map.means.iter().map(mean)).collect(),
    );
    let wins = map.wins.iter().map(|wins| Text(wins.to_string(), false));
    rows.push(std::iter::once(String::from("best or within 2 %").into()).chain(wins).collect());
    let title = format!("Winners: {} as a ratio to the best malloc", map.measure.name());
    format!("{}\n{}\n", style.bold(&title), table::render(style, &align, &header, rows))
}

/// "list, threads 4, free, quarry".
pub fn change_place(
    results: &Results,
    scenario: &str,
    point: &Point,
    phase: &str,
    contender: &str,
) -> String {
    let about = results.scenarios.iter().find(|about| about.name == scenario);
    let point = about.map_or_else(String::new, |about| point_text(about, point));
    let words = [scenario, &point, phase, contender];
    words.iter().filter(|word| !word.is_empty()).copied().collect::<Vec<_>>().join(", ")
}

/// A figure then and now.
pub fn change_figures(change: &Change) -> (String, String) {
    let show = |value: f64| match change.measure {
        "time" => units::nanoseconds(value),
        _ => units::bytes(value * 1024.0),
    };
    (show(change.before), show(change.now))
}

fn changes(comparison: &Comparison, results: &Results, style: Style) -> String {
    let mut text = format!("{}\n", style.bold("Since the baseline"));
    use Align::{Left, Right};
    for (verdict, word) in [(Verdict::Worse, "worse"), (Verdict::Better, "better")] {
        let rows: Vec<Vec<Text>> = comparison
            .of(verdict)
            .into_iter()
            .map(|change| {
                let (before, now) = change_figures(change);
                let place =
                    change_place(results, &change.scenario, &change.point, &change.phase, &change.contender);
                let chance = if change.control { "by chance" } else { word };
                vec![
                    Text(chance.to_owned(), verdict == Verdict::Worse && !change.control),
                    place.into(),
                    change.measure.to_owned().into(),
                    before.into(),
                    String::from("→").into(),
                    now.into(),
                    show_ratio(Some(change.ratio)).into(),
                ]
            })
            .collect();
        if !rows.is_empty() {
            text += &table::render(style, &[Left, Left, Left, Right, Left, Right, Left], &[], rows);
        }
    }
    let turn = |turn: &Turn| {
        change_place(results, &turn.scenario, &turn.point, "", &turn.contender) + ": " + &turn.what
    };
    for broken in &comparison.broken {
        text += &format!("{} {}\n", style.error("fails now:"), turn(broken));
    }
    for mended in &comparison.mended {
        text += &format!("fails no more: {}\n", turn(mended));
    }
    let means: Vec<String> = comparison
        .means
        .iter()
        .map(|mean| format!("{} {} {:.3} ({})", mean.contender, mean.measure, mean.ratio, mean.figures))
        .collect();
    if !means.is_empty() {
        text += &format!("geometric means of this run to the baseline: {}\n", means.join(", "));
    }
    if let Some(drift) = comparison.drift {
        text += &format!(
            "unchanged mallocs take {drift:.2} times as long as in the baseline; times are compared relative to them\n"
        );
    }
    for note in &comparison.notes {
        text += &format!("{} {note}\n", style.warning("note:"));
    }
    text + &style.bold(&comparison.summary()) + "\n\n"
}

/// How it was measured, in a few lines.
pub fn method(results: &Results) -> Vec<String> {
    let m = &results.machine;
    let mut lines = vec![
        format!(
            "{}the {} set: {} in random order (seed {}), {} before them; {} in all",
            if results.interrupted { "interrupted: " } else { "" },
            results.size,
            units::of(results.rounds as u64, "round"),
            results.seed,
            if results.warmup > 0 { "a warm-up" } else { "no warm-up" },
            units::seconds(results.seconds),
        ),
        format!(
            "{}, {}, Linux {}, {}, {} pages, transparent huge pages: {}; frequency governor: {}",
            m.cpu,
            units::of(m.cores as u64, "processor"),
            m.kernel,
            m.libc,
            units::bytes(m.page_size as f64),
            m.transparent_huge_pages,
            m.governor.as_deref().unwrap_or("unknown")
        ),
    ];
    let load = |load: Option<f64>| load.map_or_else(|| String::from("unknown"), |load| format!("{load:.2}"));
    let mut line = format!("load average {} before, {} after", load(m.load), load(results.load_after));
    if let Some(others) = results.others {
        line += &format!(
            "; meanwhile other programs used {:.2} processors, other machines {:.2}",
            others.processors, others.stolen
        );
    }
    lines.push(line);
    if let Some(noise) = results.noise() {
        lines.push(format!("noise: half of all times vary by more than {}", units::percent(noise)));
    }
    lines
}

fn explanation(results: &Results, style: Style) -> String {
    let mut text = method(results).join("\n") + "\n";
    text += "\
time/op: elapsed time of an operation, the median of all rounds; ±: the median deviation of it; x best: against the best
malloc in the same rounds, with the 95 % bootstrap interval: if it holds 1.00, no difference was shown. user, sys: processor
seconds; peak RSS: the most the process held, x payload: to the bytes asked for at the highest moment, below 1 where not
all of them were touched; -: not measured, as of phases that run beside each other
";
    for warning in results.warnings() {
        text += &format!("{} {warning}: do not trust small differences\n", style.warning("noisy:"));
    }
    text
}

/// What processor and kernel counted, of an operation; nothing where the processor's counters were not asked for.
pub fn counters(results: &Results, style: Style) -> String {
    const NAMES: [&str; 6] =
        ["cycles", "instructions", "cache_misses", "branch_misses", "page_faults", "context_switches"];
    use Align::{Left, Right};
    let per_operation = |cell: &Cell, name: &str| {
        let of = |run: &quarry_bench::results::Run| {
            Some(run.counters.get(name)? / if run.operations > 0.0 { run.operations } else { 1.0 })
        };
        quarry_measure::stats::median(&cell.runs.iter().filter_map(of).collect::<Vec<_>>())
    };
    let mut rows = Vec::new();
    for about in &results.scenarios {
        for cell in results.of(&about.name).filter(|cell| cell.counts()) {
            let place = change_place(results, &about.name, &cell.point, &cell.phase, &cell.contender);
            let mut row: Vec<Text> = vec![place.into()];
            row.extend(NAMES.map(|name| {
                let shown = |value: f64| {
                    if value != 0.0 && value < 0.01 { format!("{value:.1e}") } else { number(value) }
                };
                Text::from(per_operation(cell, name).map_or_else(|| String::from("-"), shown))
            }));
            rows.push(row);
        }
    }
    let header = [
        "of an operation",
        "cycles",
        "instructions",
        "cache misses",
        "branch misses",
        "page faults",
        "switches",
    ];
    let align = [Left, Right, Right, Right, Right, Right, Right];
    let mut text = table::render(style, &align, &header, rows) + "\n";
    let mut notes: Vec<&str> =
        results.cells.iter().filter_map(|cell| cell.counters_note.as_deref()).collect();
    notes.sort_unstable();
    notes.dedup();
    for note in notes {
        text += &format!("{} {note}\n", style.warning("note:"));
    }
    text
}

#[cfg(test)]
mod tests;
