// SPDX-License-Identifier: MIT
//! The page of a result: one file that needs nothing beside itself, for screens of all sizes, light and dark.

use std::fmt::Write;

use quarry_bench::baseline::{Comparison, Verdict};
use quarry_bench::judge::{self, Heat, HeatMap, Measure};
use quarry_bench::results::{About, Cell, Results, Role};

use super::figures;
use super::{
    change_figures, change_place, contender_text, deviation, heat_text, known, method, point_text, remark,
    show_ratio,
};
use crate::chart::heat_color;
use crate::page::Page;
use crate::svg::{self, escape};
use crate::units;

/// The whole page.
pub fn page(results: &Results, comparison: Option<&Comparison>) -> String {
    let warnings: String = results
        .warnings()
        .iter()
        .map(|warning| {
            format!("<p class=\"warn\">Noisy: {}. Do not trust small differences.</p>\n", escape(warning))
        })
        .collect();
    let contents: String = results
        .scenarios
        .iter()
        .map(|about| format!("<a href=\"#{}\">{}</a> ", escape(&about.name), escape(&about.name)))
        .collect();
    let maps: String = [Measure::Time, Measure::Rss]
        .into_iter()
        .map(|measure| heat(results, &judge::heat_map(results, measure)))
        .collect();
    let body = format!(
        include_str!("page.html"),
        method = method(results).iter().map(|line| escape(line)).collect::<Vec<_>>().join("<br>"),
        warnings = warnings,
        contents = contents,
        baseline = comparison.map_or_else(String::new, |comparison| baseline(results, comparison)),
        heat = maps,
        scenarios = results.scenarios.iter().map(|about| scenario(results, about)).collect::<String>(),
        contenders = contenders(results),
    );
    let style = format!("{}{}\n", include_str!("page.css"), svg::style());
    Page { title: &title(results), style: &style, body: &body }.html()
}

fn title(results: &Results) -> String {
    let mallocs = results.contenders.iter().filter(|contender| contender.role == Role::Malloc).count();
    let (scenarios, mallocs) = (results.scenarios.len() as u64, mallocs as u64);
    format!("Quarry bench: {}, {}", units::of(scenarios, "scenario"), units::of(mallocs, "malloc"))
}

/// A table and bars.
fn heat(results: &Results, map: &HeatMap) -> String {
    if map.mallocs.len() < 2 || map.rows.is_empty() {
        return String::new();
    }
    let field = |heat: &Heat| match heat {
        Heat::Ratio(ratio) => {
            let (color, ink) = heat_color(*ratio);
            let star = if *ratio <= 1.0 + 1e-9 { "★ " } else { "" };
            let class = if ink { "ink" } else { "pale" };
            format!("<td class=\"{class}\" style=\"background:{color}\">{star}{}</td>", heat_text(heat))
        }
        _ => format!("<td class=\"none\">{}</td>", escape(&heat_text(heat))),
    };
    let mut html = format!(
        "<h3>{}</h3>\n<div class=\"scroll\"><table class=\"heat\"><thead><tr><th></th>",
        capital(map.measure.name())
    );
    for name in &map.mallocs {
        let _ = write!(html, "<th scope=\"col\">{}</th>", escape(name));
    }
    html += "</tr></thead><tbody>\n";
    for row in &map.rows {
        let name = escape(&row.scenario);
        let _ = write!(html, "<tr><th scope=\"row\"><a href=\"#{name}\">{name}</a></th>");
        row.ratios.iter().for_each(|heat| html += &field(heat));
        html += "</tr>\n";
    }
    html += "<tr><th scope=\"row\"><b>geometric mean</b></th>";
    for mean in &map.means {
        html += &match mean {
            // Nobody's mean is the best by definition, so it has no star.
            Some((mean, of)) => {
                let (color, ink) = heat_color(*mean);
                let of =
                    if *of < map.rows.len() { format!(" <small>of {of}</small>") } else { String::new() };
                format!(
                    "<td class=\"{}\" style=\"background:{color}\"><b>{mean:.3}</b>{of}</td>",
                    if ink { "ink" } else { "pale" }
                )
            }
            None => String::from("<td class=\"none\">-</td>"),
        };
    }
    html += "</tr>\n<tr><th scope=\"row\">best or within 2 %</th>";
    map.wins.iter().for_each(|wins| html += &format!("<td>{wins}</td>"));
    html += "</tr></tbody></table></div>\n";
    if let Some(figure) = figures::means(results, map) {
        let _ = writeln!(html, "<div class=\"wide\">{}</div>", figure.svg.inline());
    }
    html
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().collect::<String>() + letters.as_str())
}

fn scenario(results: &Results, about: &About) -> String {
    let name = escape(&about.name);
    let mut html = format!("<section>\n<h2 id=\"{name}\">{}</h2>\n", escape(&about.title));
    let _ = writeln!(
        html,
        "<p>{}</p>\n<p class=\"soft\">Not shown: {}</p>",
        escape(about.shows.trim()),
        escape(about.not_shown.trim())
    );
    let processors = match about.processors {
        Some(1) => String::from("on one processor"),
        Some(n) => format!("on {n} processors"),
        None => String::from("on all processors"),
    };
    let _ = writeln!(
        html,
        "<p class=\"soft\"><b>{name}</b>: <code>{} {}</code>, {processors}</p>",
        escape(&about.program),
        escape(&about.options)
    );
    if let Some(why) = &about.missing {
        return html + &format!("<p class=\"warn\">Not run: {}</p>\n</section>\n", escape(why));
    }
    let failures = failures(results, about);
    if !failures.is_empty() {
        let _ = writeln!(html, "<ul>{failures}</ul>");
    }
    html += "<div class=\"figures\">\n";
    for figure in figures::of_scenario(results, about) {
        html += &figure.svg.inline();
    }
    html += "</div>\n<details><summary>All figures</summary>\n<div class=\"scroll\">";
    html += &table(results, about);
    html + "</div></details>\n</section>\n"
}

/// Who did what it must not, once for each thing.
fn failures(results: &Results, about: &About) -> String {
    let mut lines: Vec<String> = Vec::new();
    for cell in results.of(&about.name).filter(|cell| cell.status.is_failure()) {
        let place = point_text(about, &cell.point);
        let place = if place.is_empty() { place } else { format!(" ({place})") };
        let line = format!(
            "<li><span class=\"bad\">{}</span>{}: {}</li>",
            escape(&contender_text(results, &cell.contender)),
            escape(&place),
            escape(&remark(cell))
        );
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines.concat()
}

fn table(results: &Results, about: &About) -> String {
    let mut html = String::from(
        "<table class=\"data\"><thead><tr><th scope=\"col\">contender</th><th class=\"l\" scope=\"col\">where</th><th scope=\"col\">time/op</th><th scope=\"col\">±</th>\
         <th scope=\"col\">operations/s</th><th scope=\"col\">x best</th><th scope=\"col\">user</th><th scope=\"col\">system</th><th scope=\"col\">peak RSS</th>\
         <th scope=\"col\">x payload</th><th scope=\"col\">faults</th><th class=\"l\" scope=\"col\"></th></tr></thead><tbody>\n",
    );
    for cell in results.of(&about.name) {
        let place = [point_text(about, &cell.point), cell.phase.clone()];
        let place: Vec<&str> = place.iter().map(String::as_str).filter(|word| !word.is_empty()).collect();
        let _ = write!(
            html,
            "<tr><th scope=\"row\">{}</th><td class=\"l\">{}</td>",
            escape(&contender_text(results, &cell.contender)),
            escape(&place.join(", "))
        );
        html += &figures_of(cell);
        let _ = writeln!(html, "<td class=\"l\">{}</td></tr>", escape(&remark(cell)));
    }
    html + "</tbody></table>"
}

fn figures_of(cell: &Cell) -> String {
    let Some(s) = cell.summary.filter(|_| !cell.runs.is_empty()) else { return "<td>-</td>".repeat(9) };
    let payload = cell.payload_bytes.map(|bytes| s.peak_rss_kib.median * 1024.0 / bytes);
    let fields = [
        units::nanoseconds(s.ns_per_operation.median),
        deviation(cell, &s.ns_per_operation),
        crate::chart::number(1e9 / s.ns_per_operation.median.max(1e-9)),
        show_ratio(s.time_ratio),
        known(s.user_seconds, units::seconds),
        known(s.system_seconds, units::seconds),
        units::bytes(s.peak_rss_kib.median * 1024.0),
        payload.map_or_else(String::new, |times| format!("{times:.2}")),
        known(s.faults, units::count),
    ];
    fields.iter().map(|field| format!("<td>{}</td>", escape(field))).collect()
}

fn baseline(results: &Results, comparison: &Comparison) -> String {
    let mut html = format!(
        "<h2 id=\"baseline\">Since the baseline</h2>\n<p><b>{}</b></p>\n",
        escape(&comparison.summary())
    );
    if let Some(drift) = comparison.drift {
        let _ = writeln!(
            html,
            "<p class=\"soft\">Unchanged mallocs take {drift:.2} times as long as in the baseline. Times are compared relative to them.</p>"
        );
    }
    for note in &comparison.notes {
        let _ = writeln!(html, "<p class=\"warn\">{}</p>", escape(note));
    }
    html += "<div class=\"scroll\"><table class=\"data\"><tbody>\n";
    for turn in &comparison.broken {
        let place = change_place(results, &turn.scenario, &turn.point, "", &turn.contender);
        let _ = writeln!(
            html,
            "<tr><td class=\"l bad\">fails now</td><td class=\"l\">{}</td><td class=\"l\" colspan=\"4\">{}</td></tr>",
            escape(&place),
            escape(&turn.what)
        );
    }
    for (verdict, word, class) in [(Verdict::Worse, "worse", "bad"), (Verdict::Better, "better", "good")] {
        for change in comparison.of(verdict) {
            let (before, now) = change_figures(change);
            let place =
                change_place(results, &change.scenario, &change.point, &change.phase, &change.contender);
            let (word, class) = if change.control { ("by chance", "soft") } else { (word, class) };
            let _ = writeln!(
                html,
                "<tr><td class=\"l {class}\">{word}</td><td class=\"l\">{}</td><td class=\"l\">{}</td><td>{before}</td><td>{now}</td><td>{}</td></tr>",
                escape(&place),
                change.measure,
                show_ratio(Some(change.ratio))
            );
        }
    }
    html + "</tbody></table></div>\n"
}

fn contenders(results: &Results) -> String {
    let mut html = String::from(
        "<table class=\"data\"><thead><tr><th scope=\"col\">who</th><th class=\"l\" scope=\"col\">version</th><th class=\"l\" scope=\"col\">what</th><th class=\"l\" scope=\"col\">built with</th>\
         <th class=\"l\" scope=\"col\"></th></tr></thead><tbody>\n",
    );
    for contender in &results.contenders {
        let env: Vec<String> = contender.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let what = match (contender.role, &contender.of, &contender.library) {
            (Role::Nothing, ..) => String::from("the work without an allocator"),
            (Role::Pool, ..) => String::from("a pool of libquarry"),
            (Role::Other, ..) if contender.name != "malloc" => {
                String::from("another way of the program’s own")
            }
            (_, Some(of), _) => of.clone(),
            (_, None, Some(library)) => library.clone(),
            (_, None, None) => String::from("the system’s own"),
        };
        let _ = writeln!(
            html,
            "<tr><th scope=\"row\">{}</th><td class=\"l\">{}</td><td class=\"l\">{} {}</td><td class=\"l\">{}</td><td class=\"l\">{}</td></tr>",
            escape(&contender.name),
            escape(contender.version.as_deref().unwrap_or("")),
            escape(&what),
            escape(&env.join(" ")),
            escape(contender.flags.as_deref().unwrap_or("")),
            escape(&contender.notes.join("; "))
        );
    }
    html + "</tbody></table>"
}
