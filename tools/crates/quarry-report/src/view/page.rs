// SPDX-License-Identifier: MIT
//! A frame of a view as lines of text, for scripts and where there is no terminal.

use super::heading::{Heading, fitting, line_of};
use crate::style::Style;

/// A page without a terminal is as wide as its longest line.
const WIDE: usize = 200;

/// The lines of one frame. None is wider than the page.
#[derive(Debug)]
pub struct Page {
    lines: Vec<String>,
    style: Style,
    /// Letters in a line.
    pub width: usize,
}

impl Page {
    /// Begin frame `number`; the first is 1, and a line is left free before each other one. `title` is whole in any case.
    pub fn new(style: Style, number: u64, title: String) -> Self {
        let mut lines = Vec::new();
        if number > 1 {
            lines.push(String::new());
        }
        lines.push(title);
        Self { lines, style, width: style.width.map_or(WIDE, usize::from) }
    }

    /// A line that is whole in any case.
    pub fn line(&mut self, text: String) {
        self.lines.push(text);
    }

    /// A head.
    pub fn head(&mut self, text: &str) {
        self.lines.push(self.style.bold(text));
    }

    /// Rows, and how many there are besides.
    pub fn rows(&mut self, rows: impl Iterator<Item = String>, more: usize) {
        self.lines.extend(rows.map(|row| row.chars().take(self.width).collect()));
        if more > 0 {
            self.lines.push(format!("and {more} more"));
        }
    }

    /// A table of `rows`, as many columns as fit.
    pub fn table<C: Heading, R>(&mut self, sort: C, rows: &[R], cell: impl Fn(C, &R) -> String, more: usize) {
        let columns = fitting(self.width, sort);
        self.head(&line_of(&columns, |column| column.name().to_owned()));
        self.rows(rows.iter().map(|row| line_of(&columns, |column| cell(column, row))), more);
    }

    /// All of it.
    pub fn text(self) -> String {
        self.lines.join("\n") + "\n"
    }
}
