// SPDX-License-Identifier: MIT
//! Tables without lines: columns apart, numbers to the right.

use comfy_table::presets::NOTHING;
use comfy_table::{Attribute, Cell, CellAlignment, ContentArrangement, Table};

use crate::style::Style;

/// How a column is aligned.
#[derive(Debug, Clone, Copy)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// A cell: its text, and whether it stands out.
#[derive(Debug, Clone)]
pub struct Text(pub String, pub bool);

impl From<String> for Text {
    fn from(text: String) -> Self {
        Text(text, false)
    }
}

/// A column of a report: its head, where its cells stand, and what they mean. The documents are made of these.
#[derive(Debug, Clone, Copy)]
pub struct Described {
    /// Its head; none: it stands beside the one before.
    pub name: &'static str,
    /// Where its cells stand.
    pub align: Align,
    /// What they mean.
    pub help: &'static str,
}

impl Described {
    /// A column whose cells stand at the left.
    pub const fn left(name: &'static str, help: &'static str) -> Self {
        Self { name, align: Align::Left, help }
    }

    /// A column whose cells stand at the right.
    pub const fn right(name: &'static str, help: &'static str) -> Self {
        Self { name, align: Align::Right, help }
    }
}

/// The table with these columns.
pub fn of(style: Style, heads: &[Described], rows: Vec<Vec<Text>>) -> String {
    let (names, align): (Vec<&str>, Vec<Align>) = heads.iter().map(|head| (head.name, head.align)).unzip();
    render(style, &align, &names, rows)
}

/// Lay out rows below a header (none when empty).
pub fn render(style: Style, align: &[Align], header: &[&str], rows: Vec<Vec<Text>>) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING);
    match style.width {
        Some(width) => {
            table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
        }
        None => {
            table.set_content_arrangement(ContentArrangement::Disabled);
        }
    }
    if style.color {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    let cell = |Text(text, strong): Text, align: Align| {
        let alignment = match align {
            Align::Left => CellAlignment::Left,
            Align::Right => CellAlignment::Right,
        };
        let cell = Cell::new(text).set_alignment(alignment);
        if strong { cell.add_attribute(Attribute::Bold) } else { cell }
    };
    if !header.is_empty() {
        let cells = header.iter().zip(align).map(|(name, &align)| cell((*name).to_owned().into(), align));
        table.set_header(cells);
    }
    for row in rows {
        table.add_row(row.into_iter().zip(align).map(|(text, &align)| cell(text, align)));
    }
    // The last column is padded too, which only makes lines wrap.
    table.trim_fmt() + "\n"
}
