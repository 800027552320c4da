// SPDX-License-Identifier: MIT
//! The screen.

use quarry_report::units;
use quarry_report::view::{self, Binding, Heading, Line, Look, Pen, fitting, line_of};
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::Style;

use super::column::{self, Column};
use super::ongoing::Seen;
use super::sampled::Sampled;
use super::site::Site;
use crate::estimate;

const KEYS: &str =
    "h help  Enter stack  < > sort  g fold  / filter  b begin anew  w write  space pause  q quit";
const KEYS_INSIDE: &str = "h help  Esc back  arrows scroll  w write  space pause  q quit";
const HELP: &str = "What the columns are, and in [ ] what they are made of";
/// The keys that it has besides those of every view.
pub const OWN: &[Binding] = &[
    Binding {
        keys: &["Enter", "Esc"],
        does: "the site's numbers, and what is live through each of its callers; back",
    },
    Binding { keys: &["g"], does: "fold to function, to module, and back to site" },
    Binding { keys: &["b"], does: "GROWN counts from now on: press it, use the program, and see what stays" },
    Binding { keys: &["w"], does: "write the files of -o and --trace, with all samples up to this moment" },
    Binding { keys: &["q", "Ctrl-C"], does: "switch the sampler off and leave" },
];
const SAMPLE: &str = "Numbers are estimates from a sample of blocks that were allocated since the sampler was switched on; blocks from before are not in \
                      them. A site of which nothing was drawn is not shown: it may have some multiples of the mean distance between samples.";
const HIDDEN: &str = "A column that is hidden on a narrow screen is shown when it is sorted by.";
/// Wider than that the trend of a site says no more.
const TREND: usize = 48;

/// What is drawn, besides what the user wants to see.
pub struct Picture<'a> {
    /// What is sampled.
    pub sampled: Sampled<'a>,
    /// What there is; none: nothing was looked at yet.
    pub seen: Option<&'a Seen>,
    /// Those that the filter lets through, in order.
    pub sites: &'a [Site],
    /// Use the one colour.
    pub color: bool,
}

/// Draw all of it. Of what can be scrolled, the last screen begins at the line that is returned.
pub fn draw(buffer: &mut Buffer, area: Rect, look: &Look<Column>, picture: &Picture) -> usize {
    let mut pen = Pen { buffer, area, color: picture.color };
    if view::is_too_small(&mut pen, area) {
        return 0;
    }
    if let Some(first) = look.help {
        return view::help::<Column>(&mut pen, first, HELP, OWN, &[SAMPLE, HIDDEN]);
    }
    summary(&mut pen, look, picture);
    let site = look.opened.and_then(|id| picture.seen?.sites.iter().find(|site| site.id == id));
    let furthest = match (look.opened, site, picture.seen) {
        (Some(_), Some(site), Some(seen)) => inside(&mut pen, look, site, seen),
        (Some(_), ..) => {
            pen.line(2, "nothing is known of it any more; Esc goes back", Style::new());
            0
        }
        (None, ..) => {
            sites(&mut pen, look, picture);
            0
        }
    };
    view::last_line(&mut pen, look, if look.opened.is_some() { KEYS_INSIDE } else { KEYS });
    furthest
}

/// The first two lines: which process, for how long, and what it has in all.
fn summary(pen: &mut Pen, look: &Look<Column>, picture: &Picture) {
    let sampled = &picture.sampled;
    let on = match sampled.ended {
        Some(why) => format!("  ENDED: {why}"),
        None => format!("  one sample in {}", units::bytes(sampled.mean as f64)),
    };
    let what = format!("  {} {}{on}", sampled.process, sampled.program);
    let before = view::title(pen, look, "quarry profile", &what);
    if sampled.ended.is_some() {
        let warning = pen.warning();
        pen.mark(0, before + what.len() - on.len() + 2, "ENDED".len(), warning);
    }
    pen.line(1, &totals(picture), Style::new());
}

/// What the process has in all.
fn totals(picture: &Picture) -> String {
    let live = picture.seen.map_or_else(|| String::from("-"), |seen| estimate::live(&seen.all.live));
    let sampled = &picture.sampled;
    format!(
        "live {live} of what was allocated in {}{}, {}{}, frame {} ms",
        units::seconds(sampled.time.as_secs_f64()),
        sampled.of_all(),
        units::of(sampled.samples, "sample"),
        sampled.missing(),
        sampled.cost.as_millis()
    )
}

/// The table.
fn sites(pen: &mut Pen, look: &Look<Column>, picture: &Picture) {
    let columns = fitting(pen.width(), look.order.sort);
    let row = |index: usize| {
        let site = &picture.sites[index];
        let text = line_of(&columns, |column| column.cell(site));
        let mark = text.find(['\u{2191}', '\u{2193}']).filter(|_| site.last.is_sure());
        Line { mark: mark.map(|at| (text[..at].chars().count(), 1)), text }
    };
    view::table(pen, look, &columns, picture.sites.len(), row);
    if picture.sites.is_empty() {
        let filtered = picture.seen.is_some_and(|seen| !seen.sites.is_empty());
        let why = match filtered {
            true => "no site has this in its name; Esc shows all",
            false => "no block was drawn yet",
        };
        pen.line(3, why, Style::new());
    }
    let what = format!(
        " {}: {} of {} ",
        picture.sampled.by.name(),
        picture.sites.len(),
        picture.seen.map_or(0, |seen| seen.sites.len())
    );
    let room = pen.width().saturating_sub(what.len());
    let taken = line_of(&columns, |column| column.name().to_owned()).chars().count();
    if room > taken {
        pen.put(2, room, &what);
    }
}

/// One site: its numbers, and who calls it.
fn inside(pen: &mut Pen, look: &Look<Column>, site: &Site, seen: &Seen) -> usize {
    pen.line(2, &site.name, Pen::bold());
    let lines = facts(site, seen, pen.width());
    for (index, line) in lines.iter().enumerate() {
        pen.line(3 + index, line, Style::new());
        pen.mark(3 + index, 0, 8, Pen::bold());
    }
    let line = 3 + lines.len();
    let head =
        if site.live.blocks.seen() == 0 { "ITS LARGEST CALL STACK" } else { "LIVE THROUGH ITS CALLERS" };
    pen.bar(line, head);
    let callers = seen.callers(site);
    let room = pen.height().saturating_sub(line + 2);
    let furthest = callers.len().saturating_sub(room);
    for (index, text) in callers.iter().skip(look.part.min(furthest)).take(room).enumerate() {
        pen.line(line + 1 + index, text, Style::new());
    }
    furthest
}

/// The numbers of a site, in lines that begin with the name of the column.
pub fn facts(site: &Site, seen: &Seen, width: usize) -> Vec<String> {
    let seconds = units::seconds(seen.last.as_secs_f64());
    let change =
        |of: &super::Change| format!("{} \u{b1} {}", column::arrow(of), view::size(of.error() as u64));
    let fact = |column: Column, text: String| format!("{:<8}{text}", column.name());
    vec![
        fact(Column::Live, estimate::live(&site.live)),
        fact(
            Column::Blocks,
            estimate::estimated(&site.live.blocks, site.live.blocks.seen(), estimate::count),
        ),
        fact(Column::Grown, change(&site.grown)),
        fact(Column::Last, format!("{} in {seconds}", change(&site.last))),
        fact(
            Column::Bytes,
            format!(
                "{}/s, {} allocations/s in {seconds}",
                units::bytes(site.bytes_rate),
                view::rate(site.calls_rate)
            ),
        ),
        fact(Column::Half, column::half(site.half)),
        fact(Column::Trend, column::trend(site, width.saturating_sub(8).min(TREND))),
    ]
}

#[cfg(test)]
#[path = "draw_tests.rs"]
mod tests;
