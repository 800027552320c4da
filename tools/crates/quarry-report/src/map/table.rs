// SPDX-License-Identifier: MIT
//! Columns of numbers with text behind them, on screens of any width.

use crate::fit::fitted;
use crate::style::Style;

/// The last column is never narrower: one must know what it says.
const LEAST: usize = 20;

/// A table. Rows may be many, so nothing but widths is looked at twice.
pub struct Table {
    rows: Vec<Vec<String>>,
    left: usize,
    /// Columns that a narrow screen does without, in this order.
    optional: Vec<usize>,
}

impl Table {
    pub fn new(header: Vec<String>) -> Self {
        let left = header.len().saturating_sub(1);
        Self { rows: vec![header], left, optional: Vec::new() }
    }

    /// Text begins with this column.
    pub fn left_from(&mut self, column: usize) {
        self.left = column;
    }

    /// These columns are left out where the screen is too narrow, the first one first.
    pub fn may_leave_out(&mut self, names: &[&str]) {
        let place = |name: &&str| self.rows[0].iter().position(|head| head == name);
        self.optional = names.iter().filter_map(place).collect();
    }

    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The columns that are left out on this screen.
    pub fn left_out(&self, style: Style) -> Vec<&str> {
        self.narrowed(style).1.into_iter().map(|column| self.rows[0][column].as_str()).collect()
    }

    /// The widths of columns, and those that are left out.
    fn narrowed(&self, style: Style) -> (Vec<usize>, Vec<usize>) {
        let count = self.rows[0].len();
        let width =
            |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..count).map(width).collect();
        let mut left_out = Vec::new();
        let Some(screen) = style.width.map(usize::from) else { return (widths, left_out) };
        let mut needed: usize = widths[..count - 1].iter().map(|width| width + 2).sum();
        needed += widths[count - 1].min(LEAST);
        for &column in &self.optional {
            if needed <= screen {
                break;
            }
            needed -= widths[column] + 2;
            left_out.push(column);
        }
        (widths, left_out)
    }

    /// The table as text; the last column is cut to the screen.
    pub fn render(&self, style: Style) -> String {
        let (widths, left_out) = self.narrowed(style);
        let last = widths.len() - 1;
        let kept: Vec<usize> = (0..last).filter(|column| !left_out.contains(column)).collect();
        let before: usize = kept.iter().map(|&column| widths[column] + 2).sum();
        let room = style.width.map(|width| usize::from(width).saturating_sub(before).max(LEAST));
        let mut text = String::new();
        for (number, row) in self.rows.iter().enumerate() {
            let mut line = String::new();
            for &column in &kept {
                let cell = &row[column];
                let pad = " ".repeat(widths[column] - cell.chars().count());
                line +=
                    &if column >= self.left { format!("{cell}{pad}  ") } else { format!("{pad}{cell}  ") };
            }
            line += &fitted(&row[last], room);
            let line = line.trim_end();
            text += &if number == 0 { style.bold(line) } else { line.to_owned() };
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(["size", "rare", "what"].map(String::from).to_vec());
        table.may_leave_out(&["rare", "unheard of"]);
        table.row(["12 KiB", "1", "/usr/lib/a/library/with/a/long/path.so"].map(String::from).to_vec());
        table
    }

    #[test]
    fn all_is_shown_where_there_is_room() {
        let text = table().render(Style::default());
        assert_eq!(text, "  size  rare  what\n12 KiB     1  /usr/lib/a/library/with/a/long/path.so\n");
        assert!(table().left_out(Style::default()).is_empty());
    }

    #[test]
    fn a_narrow_screen_has_what_matters() {
        let narrow = Style { color: false, width: Some(30) };
        assert_eq!(table().left_out(narrow), ["rare"]);
        let cut = &"/usr/lib/a/library/with/a/long/path.so"[38 - 19..];
        assert_eq!(table().render(narrow), format!("  size  what\n12 KiB  ...{cut}\n"));
    }
}
