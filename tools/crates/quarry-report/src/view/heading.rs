// SPDX-License-Identifier: MIT
//! Columns of a table: which there are, and which fit on a screen.

/// The columns of a view.
pub trait Heading: Copy + PartialEq + std::fmt::Debug + 'static {
    /// In the order they are shown.
    const ALL: &'static [Self];
    /// What a narrow screen does without, the first of them first.
    const OPTIONAL: &'static [Self];
    /// The last one, which is text of any width.
    const TEXT: Self;
    /// It is never narrower than that, if the screen is not.
    const LEAST: usize;

    /// Its head.
    fn name(self) -> &'static str;
    /// The word behind --sort.
    fn key(self) -> &'static str;
    /// Where the number is from, and what it is.
    fn help(self) -> (&'static str, &'static str);
    /// Columns of the screen; what there is of the last one.
    fn width(self) -> usize;

    /// The one with this word.
    fn with_key(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|column| column.key().eq_ignore_ascii_case(word))
    }
}

/// The columns that fit, and those that one asked for.
pub fn fitting<C: Heading>(width: usize, sort: C) -> Vec<C> {
    let mut columns: Vec<C> = C::ALL.to_vec();
    let taken = |columns: &[C]| {
        let cells = columns.iter().filter(|column| **column != C::TEXT);
        cells.map(|column| column.width() + 1).sum::<usize>() + C::LEAST
    };
    for optional in C::OPTIONAL {
        if taken(&columns) <= width {
            break;
        }
        columns.retain(|column| column != optional || *column == sort);
    }
    columns
}

/// A line of cells; the last one is text.
pub fn line_of<C: Heading>(columns: &[C], cell: impl Fn(C) -> String) -> String {
    let mut line = String::new();
    for (index, column) in columns.iter().enumerate() {
        if index > 0 {
            line.push(' ');
        }
        let (text, width) = (cell(*column), column.width());
        if *column == C::TEXT {
            line += &text;
        } else {
            line += &format!("{text:>width$}");
        }
    }
    line
}
