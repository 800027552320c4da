// SPDX-License-Identifier: MIT
//! A table in colours: the darker, the worse.

use crate::svg::{Anchor, Svg};

/// A field.
#[derive(Debug, Clone)]
pub enum Tile {
    /// In the colour of this ratio.
    Ratio(f64, String),
    /// No ratio, and why.
    Remark(String),
}

/// A table in colours.
#[derive(Debug, Clone)]
pub struct Tiles {
    /// Above the picture.
    pub title: String,
    /// What is to be seen, for those who do not see it.
    pub description: String,
    /// Heads of the columns.
    pub columns: Vec<String>,
    /// Names of the rows, and their fields.
    pub rows: Vec<(String, Vec<Tile>)>,
}

/// The colour of a ratio, light at 1 and dark from 4 on, and whether dark text can be read on it.
pub fn heat_color(ratio: f64) -> (String, bool) {
    // One hue, from light to dark: lightness alone tells it, to everybody.
    const STEPS: [(f64, f64, f64); 5] = [
        (255.0, 252.0, 235.0),
        (254.0, 217.0, 142.0),
        (254.0, 153.0, 41.0),
        (190.0, 80.0, 10.0),
        (102.0, 37.0, 6.0),
    ];
    let place = (ratio.max(1.0).ln() / 4f64.ln()).clamp(0.0, 1.0) * (STEPS.len() - 1) as f64;
    let index = (place as usize).min(STEPS.len() - 2);
    let part = place - index as f64;
    let mix = |a: f64, b: f64| (a + (b - a) * part).round() as u8;
    let (a, b) = (STEPS[index], STEPS[index + 1]);
    let color = format!("#{:02x}{:02x}{:02x}", mix(a.0, b.0), mix(a.1, b.1), mix(a.2, b.2));
    (color, place < 2.4)
}

impl Tiles {
    /// Draw.
    pub fn draw(&self) -> Svg {
        const CELL: (f64, f64) = (64.0, 22.0);
        const LEFT: f64 = 150.0;
        const TOP: f64 = 110.0;
        let width = LEFT + CELL.0 * self.columns.len() as f64 + 40.0;
        let height = TOP + CELL.1 * self.rows.len() as f64 + 16.0;
        let mut svg = Svg::new(width, height, &self.title, &self.description);
        svg.text((8.0, 18.0), Anchor::Start, "t", &self.title);
        for (column, name) in self.columns.iter().enumerate() {
            svg.text_slanted((LEFT + CELL.0 * (column as f64 + 0.45), TOP - 8.0), name);
        }
        for (row, (name, tiles)) in self.rows.iter().enumerate() {
            let y = TOP + CELL.1 * row as f64;
            svg.text((LEFT - 8.0, y + 15.0), Anchor::End, "", name);
            for (column, tile) in tiles.iter().enumerate() {
                let x = LEFT + CELL.0 * column as f64;
                let center = (x + CELL.0 / 2.0 - 1.0, y + 15.0);
                match tile {
                    Tile::Ratio(ratio, text) => {
                        let (color, ink) = heat_color(*ratio);
                        svg.tile((x, y), (CELL.0 - 2.0, CELL.1 - 2.0), &color);
                        svg.text(center, Anchor::Middle, if ink { "ink" } else { "pale" }, text);
                    }
                    Tile::Remark(text) => svg.text(center, Anchor::Middle, "n", text),
                }
            }
        }
        svg
    }
}
