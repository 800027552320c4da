// SPDX-License-Identifier: MIT
//! The page of `quarry bench suite`: one file that needs nothing beside itself, and its pictures.

use quarry_bench::judge::{Heat, HeatMap, HeatRow, Measure as Judged};
use quarry_bench::suite::sums::View;

use super::{Measure, PEAK, Shown, TIME, Table};
use crate::bench::figures::{self, Figure};
use crate::chart::{Bar, Bars, Unit};
use crate::page::Page;
use crate::svg::{self, escape};

/// The whole page.
pub fn page(shown: &Shown) -> String {
    let versions = shown.record.mallocs.iter();
    let versions: String = versions
        .map(|(name, library)| format!("<li>{}: {}</li>", escape(name), escape(library.text())))
        .collect();
    let figures: String = pictures(shown).iter().map(|figure| figure.svg.inline() + "\n").collect();
    let remarks: String = shown
        .remarks()
        .iter()
        .map(|line| match line.starts_with("FAILED") {
            true => format!("<p class=\"bad\">{}</p>\n", escape(line)),
            false => format!("<p>{}</p>\n", escape(line)),
        })
        .collect();
    let measures = [TIME, PEAK, super::CPU, super::FAULTS];
    let body = format!(
        include_str!("page.html"),
        method = escape(&shown.method()),
        versions = versions,
        heading = if shown.targets.is_some() { "What the heap is to reach" } else { "Winners" },
        figures = figures,
        summary = summary(shown),
        remarks = remarks,
        tables = measures.map(|measure| html(&shown.runs_table(&measure))).concat(),
    );
    let style = format!("{}{}\n", include_str!("page.css"), svg::style());
    Page { title: &title(shown), style: &style, body: &body }.html()
}

fn title(shown: &Shown) -> String {
    let runs = shown.record.runs.values().filter(|rounds| !rounds.is_empty()).count();
    let mallocs = shown.record.mallocs.len() as u64;
    format!(
        "Quarry bench suite: {}, {}",
        crate::units::of(runs as u64, "run"),
        crate::units::of(mallocs, "malloc")
    )
}

fn summary(shown: &Shown) -> String {
    if let Some((suite, expected)) = shown.targets {
        return html(&shown.targets_table(suite, expected));
    }
    let mut text = html(&shown.means_table());
    text.extend(shown.against_table().map(|table| html(&table)));
    text.extend(shown.ahead_table().map(|(table, sum)| html(&table) + &format!("<p>{}</p>\n", escape(&sum))));
    text
}

/// What is bold in Markdown is so here.
fn html(table: &Table) -> String {
    let cell = |text: &String| match text.split("**").collect::<Vec<_>>()[..] {
        [before, bold, after] => format!("{}<b>{}</b>{}", escape(before), escape(bold), escape(after)),
        _ => escape(text),
    };
    let head: String =
        table.head.iter().map(|text| format!("<th scope=\"col\">{}</th>", cell(text))).collect();
    let row = |cells: &Vec<String>| {
        let rest: String = cells[1..].iter().map(|text| format!("<td>{}</td>", cell(text))).collect();
        format!("<tr><th scope=\"row\">{}</th>{rest}</tr>\n", cell(&cells[0]))
    };
    let rows: String = table.rows.iter().map(row).collect();
    format!(
        "<div class=\"scroll\"><table><thead><tr>{head}</tr></thead><tbody>\n{rows}</tbody></table></div>\n"
    )
}

/// The means as bars, and each run's ratios as tiles, by time and by memory.
pub fn pictures(shown: &Shown) -> Vec<Figure> {
    let both = [(TIME, Judged::Time), (PEAK, Judged::Rss)];
    both.iter()
        .flat_map(|(measure, judged)| [bars(shown, measure), tiles(shown, measure, *judged)])
        .flatten()
        .collect()
}

fn bars(shown: &Shown, measure: &Measure) -> Option<Figure> {
    let figures = shown.figures(measure);
    let view = figures.view();
    let intervals = view.intervals(View::mean_row);
    let bar = |(who, (name, value)): (usize, (&String, Option<f64>))| Bar {
        name: name.clone(),
        who,
        value,
        range: intervals[who],
        remark: String::from("no run"),
    };
    let bars = Bars {
        title: format!("Mean {} of all runs", measure.short),
        label: String::from("times the best peer of each run: shorter is better"),
        unit: Unit::Times,
        bars: view.mallocs.iter().zip(view.mean_row()).enumerate().map(bar).collect(),
        ..Bars::default()
    };
    Some(Figure { name: format!("mean-{}", measure.name.replace('_', "-")), svg: bars.draw()? })
}

fn tiles(shown: &Shown, measure: &Measure, judged: Judged) -> Option<Figure> {
    let figures = shown.figures(measure);
    let view = figures.view();
    let heat = |(run, place, ratio): (&str, usize, Option<f64>)| {
        let failed =
            || shown.record.fault(run, &view.mallocs[place]).map(|_| Heat::Failed(String::from("failed")));
        ratio.map(Heat::Ratio).or_else(failed).unwrap_or(Heat::Absent)
    };
    let rows: Vec<HeatRow> = view
        .ratios()
        .into_iter()
        .map(|(run, row)| HeatRow {
            scenario: run.to_owned(),
            ratios: row.into_iter().enumerate().map(|(place, ratio)| heat((run, place, ratio))).collect(),
        })
        .collect();
    let map = HeatMap {
        measure: judged,
        mallocs: view.mallocs.to_vec(),
        means: view.means(),
        wins: Vec::new(),
        rows,
    };
    figures::heat(&map)
}
