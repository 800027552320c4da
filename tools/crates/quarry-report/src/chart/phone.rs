// SPDX-License-Identifier: MIT
//! Bars whose names stand above them, so that both have room on a telephone.

use crate::fit::wrapped;
use crate::svg::{Anchor, Svg};

/// The width of a picture: that of a small telephone, so that its text can be read there. And how many letters of its text
/// have room side by side.
pub const WIDTH: f64 = 380.0;
const LETTERS: usize = 54;

/// One bar.
#[derive(Debug, Clone)]
pub struct Row<'a> {
    /// What it is of.
    pub name: &'a str,
    /// Its value, and its part of the longest bar; `None`: there is none.
    pub value: Option<(&'a str, f64)>,
    /// What changed since the row before; empty if nothing did.
    pub change: &'a str,
}

/// Bars of one thing.
#[derive(Debug, Clone)]
pub struct Phone<'a> {
    /// Above the picture.
    pub title: &'a str,
    /// What it means.
    pub meaning: &'a str,
    /// Whose colour.
    pub who: usize,
    /// The bars.
    pub rows: Vec<Row<'a>>,
}

impl Phone<'_> {
    /// Draw.
    pub fn draw(&self) -> Svg {
        const ROW: f64 = 30.0;
        const LINE: f64 = 16.0;
        let said = |row: &Row| format!("{}: {}", row.name, row.value.map_or("not there", |value| value.0));
        let words: Vec<String> = self.rows.iter().map(said).collect();
        let meaning = wrapped(self.meaning, LETTERS, "", "");
        let head = 26.0 + LINE * meaning.lines().count() as f64;
        let height = head + ROW * self.rows.len() as f64 + 6.0;
        let description = format!("{}. {}", self.meaning, words.join("; "));
        let mut svg = Svg::new(WIDTH, height, self.title, &description);
        svg.text((8.0, 18.0), Anchor::Start, "t", self.title);
        for (index, line) in meaning.lines().enumerate() {
            svg.text((8.0, 34.0 + LINE * index as f64), Anchor::Start, "n", line);
        }
        for (index, row) in self.rows.iter().enumerate() {
            let y = head + ROW * index as f64;
            svg.text((8.0, y + 13.0), Anchor::Start, "", row.name);
            svg.text((WIDTH - 8.0, y + 13.0), Anchor::End, "", row.value.map_or("-", |value| value.0));
            if !row.change.is_empty() {
                svg.text((WIDTH - 84.0, y + 13.0), Anchor::End, "n", row.change);
            }
            if let Some((text, part)) = row.value {
                let tip = format!("{}: {text}", row.name);
                svg.bar((8.0, y + 18.0), ((WIDTH - 16.0) * part, 8.0), self.who, &tip);
            }
        }
        svg
    }
}
