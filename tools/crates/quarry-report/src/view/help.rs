// SPDX-License-Identifier: MIT
//! The screen that says what the columns are.

use ratatui_core::style::Style;

use super::heading::Heading;
use super::keys::{Binding, sentence};
use super::pen::Pen;
use crate::fit;

/// Text in lines of at most so many characters.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    fit::wrapped(text, width, "", "").lines().map(str::to_owned).collect()
}

/// Each line of the help: the keys, the columns, and what else is to be said.
pub(crate) fn help_lines<C: Heading>(own: &[Binding], more: &[&str], width: usize) -> Vec<String> {
    let mut lines = wrapped(&sentence(own), width);
    lines.push(String::new());
    for column in C::ALL {
        let (source, what) = column.help();
        let text = wrapped(&format!("{what} [{source}]"), width.saturating_sub(8));
        for (index, line) in text.into_iter().enumerate() {
            let name = if index == 0 { column.name() } else { "" };
            lines.push(format!("{name:<8}{line}"));
        }
    }
    lines.push(String::new());
    more.iter().for_each(|text| lines.extend(wrapped(text, width)));
    lines
}

/// The help from this line on; where its last screen begins.
pub fn help<C: Heading>(pen: &mut Pen, first: usize, title: &str, own: &[Binding], more: &[&str]) -> usize {
    let lines = help_lines::<C>(own, more, pen.width());
    let rows = pen.height() - 2;
    let furthest = lines.len().saturating_sub(rows);
    let first = first.min(furthest);
    pen.bar(0, title);
    for (index, line) in lines.iter().skip(first).take(rows).enumerate() {
        pen.line(1 + index, line, Style::new());
        let name = line.get(..8).unwrap_or(line).trim_end();
        if C::ALL.iter().any(|column| column.name() == name) {
            pen.mark(1 + index, 0, name.len(), Pen::bold());
        }
    }
    let end = (first + rows).min(lines.len());
    let text =
        format!("lines {} to {end} of {}  arrows scroll, any other key goes back", first + 1, lines.len());
    pen.line(rows + 1, &text, Pen::bold());
    furthest
}
