// SPDX-License-Identifier: MIT
//! The page: one file that needs nothing beside itself, for screens of all sizes, light and dark.

use std::fmt::Write;

use crate::page::{self, Page};
use crate::svg::{self, escape};
use crate::units;
use quarry_proc::classify::{Kind, Quadrant};
use quarry_proc::shown;

use super::picture::{COLORS, tip};
use super::regions::regions;
use super::remarks;
use super::text::{Numbers, columns};
use super::view::{Column, View, mapping_name};

/// More regions are folded, and more mappings are not in the page: it must open on a phone.
const REGIONS: usize = 160;
const MAPPINGS: usize = 2000;

/// The whole page.
pub fn page(view: &View, numbers: Numbers) -> String {
    let mut remarks: String = String::new();
    for remark in remarks::remarks(view).iter().chain(&remarks::gaps(view.space, view)) {
        let _ = writeln!(remarks, "<li>{}</li>", escape(remark));
    }
    let body = format!(
        include_str!("page.html"),
        about = about(view, numbers),
        pages = pages(view),
        quadrants = quadrants(view, numbers),
        regions = picture(view),
        rows = rows(view, numbers),
        mappings = mappings(view, numbers),
        remarks = remarks,
        checks = checks(view),
        sort = page::SORT,
    );
    let names = ["q0", "q1", "q2", "q3"];
    let named: Vec<_> = names.into_iter().zip(COLORS.map(|color| svg::COLORS[color])).collect();
    let style = page::colors(&named) + include_str!("page.css");
    Page { title: &format!("Memory of {}", view.title()), style: &style, body: &body }.html()
}

fn about(view: &View, numbers: Numbers) -> String {
    let command = shown(&view.space.command.join(" "));
    let known =
        Column::ALL.into_iter().filter(|column| column.of(&view.total).is_some_and(|bytes| bytes > 0));
    let figures = known.take(6).map(|column| {
        let name = if column == Column::Size { "VIRT" } else { column.name() };
        format!("<div><b>{}</b><span>{name}</span></div>", numbers.size(column.of(&view.total)))
    });
    format!(
        "<p class=\"soft\">{}, {}</p><p class=\"cmd\">{}</p><div class=\"figures\">{}</div>",
        units::of(view.total.count, "mapping"),
        view.origin(),
        escape(&command),
        figures.collect::<String>()
    )
}

/// One bar for all resident pages.
fn pages(view: &View) -> String {
    let all: u64 = view.chosen.pages.iter().fold(0, |sum, pages| sum.saturating_add(*pages));
    if all == 0 {
        return String::new();
    }
    let part = |quadrant: Quadrant| {
        let pages = view.chosen.pages[quadrant as usize];
        let share = pages as f64 / all as f64;
        let text = format!("{}: {} ({})", quadrant.name(), units::bytes(pages as f64), units::percent(share));
        format!(
            "<i style=\"width:{:.3}%;background:var(--q{})\" title=\"{text}\"></i>",
            share * 100.0,
            quadrant as usize
        )
    };
    format!(
        "<h2>Resident pages</h2><div class=\"stack\" role=\"img\" aria-label=\"resident pages by quadrant\">{}</div>",
        Quadrant::ALL.map(part).concat()
    )
}

fn head(names: &[&str]) -> String {
    let cells = names.iter().map(|name| format!("<th scope=\"col\">{name}</th>"));
    format!("<thead><tr>{}</tr></thead>", cells.collect::<String>())
}

fn number_cell(numbers: Numbers, value: Option<u64>) -> String {
    let sort = value.map_or(-1, |value| i64::try_from(value).unwrap_or(i64::MAX));
    format!("<td data-v=\"{sort}\">{}</td>", numbers.size(value))
}

fn quadrants(view: &View, numbers: Numbers) -> String {
    let (columns, _) = columns(&view.chosen);
    let mut names = vec!["kind of memory"];
    names.extend(columns.iter().map(|column| column.name()));
    names.extend(["pages", "mappings"]);
    let mut html = format!("<div class=\"scroll\"><table>{}<tbody>", head(&names));
    for quadrant in Quadrant::ALL {
        let sum = &view.quadrants[quadrant as usize];
        let _ = write!(
            html,
            "<tr><th scope=\"row\"><i class=\"dot\" style=\"background:var(--q{})\"></i>{} {}</th>",
            quadrant as usize,
            quadrant.number(),
            quadrant.name()
        );
        let value = |column: &Column| if sum.count == 0 { Some(0) } else { column.of(sum) };
        columns.iter().for_each(|column| html += &number_cell(numbers, value(column)));
        html += &number_cell(numbers, Some(view.chosen.pages[quadrant as usize]));
        let _ = write!(html, "<td>{}</td></tr>", sum.count);
    }
    html + "</tbody></table></div>"
}

/// Bars that fold to the width of the screen.
fn picture(view: &View) -> String {
    let regions = regions(view, REGIONS);
    let largest = regions.iter().map(|region| region.size).max().unwrap_or(0);
    let measure = if view.total.resident().is_some() { "resident" } else { "saved" };
    let mut html = String::new();
    for region in &regions {
        if region.gap > 0 {
            let _ = writeln!(html, "<p class=\"gap\">{} unmapped</p>", units::bytes(region.gap as f64));
        }
        let resident = region
            .resident
            .map_or_else(String::new, |bytes| format!(", {} {measure}", units::bytes(bytes as f64)));
        let _ = writeln!(
            html,
            "<div class=\"region\" title=\"{}\"><code>{:012x}</code><span class=\"bar\"><span style=\"width:{:.2}%;--c:var(--q{})\"><b \
             style=\"width:{:.2}%\"></b></span></span><span class=\"label\">{} <small>{}{resident}</small></span></div>",
            escape(&tip(region, measure)),
            region.start,
            region.length(view.space.page, largest) * 100.0,
            region.quadrant as usize,
            region.share() * 100.0,
            escape(&region.label),
            units::bytes(region.size as f64)
        );
    }
    html
}

fn rows(view: &View, numbers: Numbers) -> String {
    let (columns, _) = columns(&view.chosen);
    let mut names = vec!["what", "kind", "mode", "mappings"];
    names.extend(columns.iter().map(|column| column.name()));
    let mut html = format!("<div class=\"scroll\"><table class=\"sortable\">{}<tbody>", head(&names));
    for row in view.rows.iter().take(MAPPINGS) {
        let dot = row.quadrant.map_or_else(String::new, |quadrant| {
            format!("<i class=\"dot\" style=\"background:var(--q{})\"></i>", quadrant as usize)
        });
        let _ = write!(
            html,
            "<tr><th scope=\"row\">{dot}{}</th><td>{}</td><td><code>{}</code></td><td data-v=\"{3}\">{3}</td>",
            escape(&row.what),
            row.kind.map_or("", Kind::name),
            row.modes,
            row.sum.count,
        );
        columns.iter().for_each(|column| html += &number_cell(numbers, column.of(&row.sum)));
        html += "</tr>\n";
    }
    html + "</tbody></table></div>"
}

/// Every mapping, with its sections.
fn mappings(view: &View, numbers: Numbers) -> String {
    let names = ["address", "size", "RSS", "dirty", "mode", "kind", "what"];
    let mut html = format!("<div class=\"scroll\"><table class=\"sortable\">{}<tbody>", head(&names));
    let wanted = (0..view.space.mappings.len()).filter(|&index| view.wanted[index]);
    for index in wanted.take(MAPPINGS) {
        let (mapping, class) = (&view.space.mappings[index], &view.classes[index]);
        let _ = write!(html, "<tr><td data-v=\"{index}\"><code>{:012x}</code></td>", mapping.start);
        let counters = &mapping.counters;
        let resident = counters.get(quarry_proc::counters::Field::Rss);
        for value in [Some(mapping.size()), resident, counters.dirty()] {
            html += &number_cell(numbers, value);
        }
        let _ = writeln!(
            html,
            "<td><code>{}</code></td><td>{}</td><th scope=\"row\"><i class=\"dot\" style=\"background:var(--q{})\"></i>{}</th></tr>",
            mapping.mode(),
            class.kind.name(),
            class.quadrant as usize,
            escape(&mapping_name(view.space, mapping, class))
        );
    }
    html += "</tbody></table></div>";
    let count = view.chosen.count as usize;
    if count > MAPPINGS {
        let _ =
            write!(html, "<p class=\"soft\">and {} more; quarry map --json has all</p>", count - MAPPINGS);
    }
    html
}

fn checks(view: &View) -> String {
    if view.checks.is_empty() {
        return String::new();
    }
    let mut html = format!(
        "<h2>Sums beside the kernel's own</h2><p>{} of {} equal.</p><div class=\"scroll\"><table>{}<tbody>",
        view.checks.iter().filter(|line| line.agrees()).count(),
        view.checks.len(),
        head(&["what", "sum of mappings", "the kernel", "where", ""])
    );
    for line in &view.checks {
        let verdict = if line.agrees() { "✓" } else { "differs" };
        let _ = writeln!(
            html,
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td><td>{verdict}</td></tr>",
            line.what, line.ours, line.kernel, line.source
        );
    }
    html + "</tbody></table></div>"
}
