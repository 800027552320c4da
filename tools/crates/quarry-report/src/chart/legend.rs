// SPDX-License-Identifier: MIT
//! What the colours of a chart are.

use crate::svg::{Anchor, Svg};

use super::Look;

/// The height of a row.
const ROW: f64 = 18.0;
const LEFT: f64 = 12.0;

/// What stands before a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    /// A piece of a line.
    Line(Look),
    /// A box, as in a lane.
    Box,
}

/// One name.
#[derive(Debug, Clone)]
pub struct Entry {
    /// What it is.
    pub name: String,
    /// Whose colour.
    pub who: usize,
    /// What it is drawn as.
    pub sign: Sign,
}

/// Entries side by side, in as many rows as they need.
pub struct Legend<'a> {
    rows: Vec<Vec<(f64, &'a Entry)>>,
}

impl<'a> Legend<'a> {
    pub fn new(entries: &'a [Entry], width: f64) -> Self {
        let mut rows: Vec<Vec<(f64, &Entry)>> = Vec::new();
        let mut left = f64::INFINITY;
        for entry in entries {
            let room = 40.0 + entry.name.chars().count() as f64 * 6.8;
            if left + room > width {
                rows.push(Vec::new());
                left = LEFT;
            }
            if let Some(row) = rows.last_mut() {
                row.push((left, entry));
            }
            left += room;
        }
        Self { rows }
    }

    pub fn height(&self) -> f64 {
        ROW * self.rows.len() as f64
    }

    /// Draw it; the first row's middle is at `y`.
    pub fn draw(&self, svg: &mut Svg, y: f64) {
        for (row, entries) in self.rows.iter().enumerate() {
            let y = y + ROW * row as f64;
            for &(left, Entry { name, who, sign }) in entries {
                match *sign {
                    Sign::Box => svg.boxes(&[(left + 13.0, y - 4.0, 7.0, 8.0)], *who),
                    Sign::Line(look) => {
                        svg.line(&[(left, y), (left + 20.0, y)], *who, look == Look::Thin);
                        if look == Look::Marked {
                            svg.mark((left + 10.0, y), *who);
                        }
                    }
                }
                svg.text((left + 26.0, y + 4.0), Anchor::Start, "", name);
            }
        }
    }
}

/// A legend of its own, for several charts below it, and a remark at its right end.
pub fn legend(width: f64, entries: &[Entry], remark: &str) -> Svg {
    let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
    let legend = Legend::new(entries, width);
    let below = if remark.is_empty() { 0.0 } else { ROW };
    let description = format!("{}. {remark}", names.join("; "));
    let mut svg = Svg::new(width, legend.height() + below + 12.0, "Legend", &description);
    legend.draw(&mut svg, 14.0);
    if !remark.is_empty() {
        svg.text((width - 16.0, legend.height() + ROW), Anchor::End, "n", remark);
    }
    svg
}
