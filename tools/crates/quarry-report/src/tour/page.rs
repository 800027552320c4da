// SPDX-License-Identifier: MIT
//! All chapters as a page: one file that needs nothing beside itself, for screens of all sizes, light and dark.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::chart::{Phone, Row};
use crate::page::Page;
use crate::svg::{self, Svg, escape};
use crate::units;

use super::chapter::Chapter;
use super::figure::{self, Figure};
use super::run::{Claim, Event, Run, Step};

/// The whole page.
pub fn page(chapters: &[&Chapter], runs: &[Run]) -> String {
    let contents: String = chapters
        .iter()
        .map(|chapter| format!("<a href=\"#{0}\">{1}. {0}</a> ", escape(&chapter.name), chapter.number))
        .collect();
    let sections: String = chapters.iter().zip(runs).map(|(chapter, run)| section(chapter, run)).collect();
    let body = format!(
        include_str!("page.html"),
        machine = escape(&machine(runs)),
        contents = contents,
        sections = sections,
    );
    let style = format!("{}{}\n", include_str!("page.css"), svg::style());
    Page { title: "Quarry tour: what memory is", style: &style, body: &body }.html()
}

/// Where it was run.
fn machine(runs: &[Run]) -> String {
    let here = runs.iter().find(|run| run.recorded.is_none() && !run.kernel.is_empty());
    here.map_or_else(String::new, |run| {
        format!(
            "Linux {} on {}, pages of {} KiB, {} of memory; Quarry {}.",
            run.kernel,
            run.machine,
            run.page_kib,
            units::bytes(run.memory_kib as f64 * 1024.0),
            env!("CARGO_PKG_VERSION")
        )
    })
}

fn section(chapter: &Chapter, run: &Run) -> String {
    let name = escape(&chapter.name);
    let mut html = format!(
        "<section>\n<h2 id=\"{name}\">{}. {}</h2>\n<p>{}</p>\n<div class=\"scroll\"><pre>{}</pre></div>\n",
        chapter.number,
        escape(&chapter.title),
        escape(&chapter.idea),
        escape(&chapter.code)
    );
    if let Some(why) = &run.recorded {
        let (why, kernel) = (escape(why), escape(&run.kernel));
        let _ = writeln!(
            html,
            "<p class=\"warn\">Not run here: {why}. What follows was recorded on Linux {kernel}.</p>"
        );
    } else if let Some(why) = &run.skipped {
        let _ = writeln!(html, "<p class=\"warn\">Not run here: {}.</p>", escape(why));
    }
    if let Some(why) = &run.failed {
        let _ = writeln!(html, "<p class=\"warn\">It failed: {}.</p>", escape(why));
    }
    if run.steps().next().is_some() {
        let figures = figure::figures(run);
        let pictures = figures.iter().enumerate().map(|(index, figure)| picture(figure, index).inline());
        let _ = writeln!(html, "<div class=\"figures\">\n{}</div>", pictures.collect::<String>());
    }
    let maps: Vec<String> = run
        .events
        .iter()
        .filter_map(
            |event| if let Event::Maps(lines) = event { Some(escape(&lines.join("\n"))) } else { None },
        )
        .collect();
    if !maps.is_empty() {
        let _ = writeln!(html, "<div class=\"scroll\"><pre class=\"maps\">{}</pre></div>", maps.join("\n\n"));
    }
    html += &seen(run);
    if !chapter.now.is_empty() {
        let _ = writeln!(html, "<h3>Then and now</h3>\n<p>{}</p>", escape(&chapter.now));
    }
    html += &everything(run);
    let _ = writeln!(html, "<p class=\"soft\"><code>quarry tour {name}</code></p>");
    html + "</section>\n"
}

/// What is to be seen in the figures.
fn seen(run: &Run) -> String {
    let mut items = String::new();
    for event in &run.events {
        let _ = match event {
            Event::Claim(Claim { text, holds: true, .. }) => {
                writeln!(items, "<li class=\"yes\">{}</li>", escape(text))
            }
            Event::Claim(Claim { text, numbers, .. }) => {
                let numbers = numbers.map_or_else(String::new, |(measured, expected, slack)| {
                    format!(" (measured {measured}, expected {expected}, give or take {slack})")
                });
                writeln!(items, "<li class=\"no\"><b>Not so here:</b> {}{numbers}</li>", escape(text))
            }
            Event::Note(text) => writeln!(items, "<li>{}</li>", escape(text)),
            _ => Ok(()),
        };
    }
    if items.is_empty() {
        String::new()
    } else {
        format!("<h3>What is to be seen</h3>\n<ul class=\"seen\">\n{items}</ul>\n")
    }
}

/// A figure over all steps.
fn picture(figure: &Figure, color: usize) -> Svg {
    let rows = figure.rows.iter().map(|row| Row {
        name: row.step,
        value: row.value.as_ref().map(|value| (value.text.as_str(), value.part)),
        change: row.value.as_ref().map_or("", |value| &value.change),
    });
    Phone { title: figure.name, meaning: figure.meaning, who: 1 + color % 7, rows: rows.collect() }.draw()
}

/// All figures of all steps.
fn everything(run: &Run) -> String {
    let steps: Vec<&Step> = run.steps().collect();
    if steps.is_empty() {
        return String::new();
    }
    let mut html = String::from(
        "<details><summary>All figures</summary>\n<div class=\"scroll\"><table><thead><tr><th></th>",
    );
    for step in &steps {
        let _ = write!(html, "<th scope=\"col\">{}</th>", escape(&step.name));
    }
    html += "</tr></thead><tbody>\n";
    let names: BTreeSet<&String> = steps.iter().flat_map(|step| step.figures.keys()).collect();
    for name in names {
        let _ = write!(html, "<tr><th scope=\"row\">{}</th>", escape(name));
        for step in &steps {
            let value = step.figures.get(name).map(|&value| figure::written(name, value));
            let _ = write!(html, "<td>{}</td>", value.unwrap_or_default());
        }
        html += "</tr>\n";
    }
    html + "</tbody></table></div></details>\n"
}

#[cfg(test)]
mod tests {
    use super::super::figure::tests::example;
    use super::*;

    #[test]
    fn the_page_has_everything_and_escapes_it() {
        let chapter = Chapter {
            number: 1,
            name: String::from("x"),
            title: String::from("a < b"),
            code: String::from("if (a < b && c > d)"),
            ..Chapter::default()
        };
        let html = page(
            &[&chapter, &chapter],
            &[example(), Run { recorded: Some(String::from("no <swap>")), ..example() }],
        );
        for part in [
            "<h2 id=\"x\">1. a &lt; b</h2>",
            "if (a &lt; b &amp;&amp; c &gt; d)",
            "rw-p &lt;heap&gt;",
            "<li class=\"yes\">It grew.</li>",
            "<b>Not so here:</b> It fell. (measured 6144, expected -6144, give or take 4)",
            "<li>By the way.</li>",
            "<tr><th scope=\"row\">map.Rss</th><td></td><td>512 KiB</td><td>1.00 MiB</td></tr>",
            "Not run here: no &lt;swap&gt;. What follows was recorded on Linux 6.1.0.",
            "Linux 6.1.0 on",
            "prefers-color-scheme:dark",
        ] {
            assert!(html.contains(part), "{part} is not in the page");
        }
        assert_eq!(html.matches("<svg").count(), 6);
        assert!(
            !html.contains("http://")
                || html.matches("http://").count() == html.matches("xmlns=\"http://").count()
        );
        let bar = |width: f64| format!("width=\"{width:.1}\" height=\"8.0\"");
        assert!(html.contains(&bar(364.0)) && html.contains(&bar(91.0)));
    }
}
