// SPDX-License-Identifier: MIT
//! Tables of a page that are the same as in the report: what the process counts, pages that are kept for little, and what is resident.

use quarry_report::svg;

use crate::estimate::{bytes, count};
use crate::query::Group;
use crate::report::Report;
use crate::waste::Waste;

/// A heading, a text above the rows, and one below them.
#[derive(Default)]
struct Table<'a> {
    id: &'a str,
    title: &'a str,
    about: &'a str,
    note: &'a str,
    /// The first is that of the rows' names.
    heads: &'a [&'a str],
    is_sortable: bool,
    rows: Vec<Row>,
}

/// The name of a row, and its cells: a number to sort by, and a text.
type Row = (String, Vec<(Option<u64>, String)>);

impl Table<'_> {
    fn html(&self) -> String {
        let paragraph = |class: &str, text: &str| match text {
            "" => String::new(),
            text => format!("<p{class}>{}</p>\n", svg::escape(text)),
        };
        let heads: String = self.heads.iter().map(|name| format!("<th scope=\"col\">{name}</th>")).collect();
        let mut rows = String::new();
        for (name, cells) in &self.rows {
            rows += &format!("<tr><th scope=\"row\">{}</th>", svg::escape(name));
            for (value, text) in cells {
                let value = value.map_or_else(String::new, |value| format!(" data-v=\"{value}\""));
                rows += &format!("<td{value}>{}</td>", svg::escape(text));
            }
            rows += "</tr>\n";
        }
        format!(
            "<h2>{title}</h2>\n{about}<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{title}\"><table \
             id=\"{id}\"{class}><thead><tr>{heads}</tr></thead><tbody>\n{rows}</tbody></table></div>\n{note}",
            id = self.id,
            title = svg::escape(self.title),
            class = if self.is_sortable { " class=\"sortable\"" } else { "" },
            about = paragraph("", self.about),
            note = paragraph(" class=\"soft\"", self.note),
        )
    }
}

/// A table of parts of a sum, whose last row is the sum.
fn parts(rows: Vec<[String; 3]>) -> Vec<Row> {
    rows.into_iter().map(|[sum, part, name]| (name, vec![(None, sum), (None, part)])).collect()
}

/// All that there are.
pub(super) fn all(report: &Report) -> String {
    let mut text = report.profile.closing.as_ref().map_or_else(String::new, |closing| {
        let (title, note) = crate::closing::WORDS;
        let heads = &[report.query.by.name(), "live", "part"];
        let rows = parts(crate::closing::rows(report, closing));
        Table { id: "counted", title, note, heads, rows, ..Table::default() }.html()
    });
    text += &lives_table(report);
    let Some(waste) = report.waste else { return text };
    text += &waste_table(report, waste);
    if let Some(resident) = &waste.resident {
        let (title, note) = resident.words(report);
        let about = "What the kernel counts as this process's memory, divided until it adds up.";
        let heads = &["what", "bytes", "part"];
        let rows = parts(resident.rows());
        text += &Table { id: "resident", title: &title, about, note: &note, heads, rows, ..Table::default() }
            .html();
    }
    text
}

/// How long the blocks of sites live. Of a sample little is known of that.
fn lives_table(report: &Report) -> String {
    if report.profile.sampling.is_sample() || report.answer.groups.is_empty() {
        return String::new();
    }
    let cells = |group: &Group| {
        let sums = &group.sums;
        let (allocs, end) = (sums.allocs.value(), sums.live.value());
        let mean = sums.bytes.value().checked_div(allocs).unwrap_or(0);
        let median = report.median(&group.lives);
        let cells = vec![
            (Some(allocs), count(allocs)),
            (Some(mean), bytes(mean)),
            (None, median),
            (Some(sums.temporary), count(sums.temporary)),
            (Some(end), count(end)),
        ];
        (group.name.clone(), cells)
    };
    Table {
        id: "lives",
        title: "How long blocks live",
        about: "Half of a site's blocks lived no longer than its half-life. \"Longer\": more than half were live at the end. A temporary block is \
                freed by its thread as the very next thing that it does with memory: a buffer that is kept, or one on the stack, may do instead.",
        heads: &[report.query.by.name(), "allocations", "mean size", "half-life", "temporary", "blocks never freed"],
        rows: report.answer.groups.iter().map(cells).collect(),
        ..Table::default()
    }
    .html()
}

fn waste_table(report: &Report, waste: &Waste) -> String {
    let pages = &waste.now;
    let about = format!(
        "The kernel hands out memory in pages of {}. A page stays as long as one live block touches it. What is not live on it is its waste: {} \
         in {} {}. A page's waste is shared equally by the blocks that touch it, so that the sites' waste adds up to all of it. Rounding \
         is what size classes add to blocks, {} in all: most of it is a part of the waste. On a sole page all blocks are of one site: it would \
         be free if they lay elsewhere.",
        bytes(waste.page),
        bytes(pages.waste),
        quarry_report::units::of(pages.pages, "page"),
        report.moment_text(),
        bytes(waste.rounding),
    );
    let cells = |(name, charge): &(String, crate::waste::Charge)| {
        let bytes = |value: u64| (Some(value), bytes(value));
        let count = |value: u64| (Some(value), count(value));
        let cells = vec![
            bytes(charge.waste),
            bytes(charge.rounding),
            bytes(charge.live),
            count(charge.blocks),
            count(charge.sole_pages),
            bytes(charge.sole_waste),
        ];
        (name.clone(), cells)
    };
    let sites = crate::waste::by_site(report, waste);
    Table {
        id: "waste",
        title: "Pages that are kept for little",
        about: &about,
        heads: &["site", "waste", "rounding", "live", "blocks", "sole pages", "waste there"],
        is_sortable: true,
        rows: sites.iter().take(report.query.top).map(cells).collect(),
        ..Table::default()
    }
    .html()
}
