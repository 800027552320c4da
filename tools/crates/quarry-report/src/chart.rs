// SPDX-License-Identifier: MIT
//! All charts of all reports: lines over an axis, bars with names, bars for a telephone, and a table in colours.
//!
//! A report says what is to be seen. Places, marks at round numbers, legends and the description in words are made here; a chart is
//! drawn with [`crate::svg`], whose classes get their colours from one style sheet.

mod bars;
mod legend;
mod lines;
mod phone;
mod scale;
mod tiles;
mod unit;

pub use bars::{Bar, Bars};
pub use legend::{Entry, Sign, legend};
pub use lines::{Lane, Line, Lines, Look, nines};
pub use phone::{Phone, Row};
pub use scale::Axis;
pub use tiles::{Tile, Tiles, heat_color};
pub use unit::{Unit, number};

use crate::svg::Svg;

/// Pictures below each other, as one.
pub fn stacked(title: &str, pictures: &[Svg]) -> Svg {
    let width = pictures.iter().map(Svg::width).fold(0.0, f64::max);
    let mut svg = Svg::new(width, pictures.iter().map(Svg::height).sum(), title, "");
    let mut y = 0.0;
    for picture in pictures {
        svg.place((0.0, y), picture);
        y += picture.height();
    }
    svg
}

/// How much room a chart has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shape {
    /// The whole width.
    pub width: f64,
    /// The height between the axes.
    pub plot: f64,
}

impl Default for Shape {
    fn default() -> Self {
        Shape::SMALL
    }
}

impl Shape {
    /// One of several side by side, small enough for a telephone.
    pub const SMALL: Shape = Shape { width: 480.0, plot: 216.0 };
    /// One that has the page for itself.
    pub const WIDE: Shape = Shape { width: 960.0, plot: 260.0 };
    /// One of several below each other.
    pub const FLAT: Shape = Shape { width: 960.0, plot: 150.0 };

    /// Is there room for lines across both axes?
    fn is_wide(self) -> bool {
        self.width > Shape::SMALL.width
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    /// Whoever else draws has no chart: the map of an address space.
    #[test]
    fn charts_are_drawn_here_alone() {
        fn sources(folder: &Path, seen: &mut Vec<String>) {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    sources(&path, seen);
                } else if path.extension().is_some_and(|ending| ending == "rs") {
                    let code = fs::read_to_string(&path).unwrap();
                    if code.contains(concat!("Svg::", "new(")) || code.contains(concat!("\"<svg", " ")) {
                        seen.push(path.file_name().unwrap().to_string_lossy().into_owned());
                    }
                }
            }
        }
        let mut seen = Vec::new();
        let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        sources(&tools.join("crates"), &mut seen);
        sources(&tools.join("quarry/src"), &mut seen);
        seen.sort();
        let here =
            ["bars.rs", "chart.rs", "legend.rs", "lines.rs", "phone.rs", "picture.rs", "svg.rs", "tiles.rs"];
        assert_eq!(seen, here);
    }
}
