// SPDX-License-Identifier: MIT
//! The picture of the address space: in characters, and as SVG.

use std::fmt::Write;

use crate::style::Style;
use crate::svg::{Anchor, Svg};
use crate::units;
use quarry_proc::classify::Quadrant;

use super::regions::{Region, regions};
use super::view::View;
use crate::fit::fitted;

/// Terminal colours of the quadrants.
const TERMINAL: [u8; 4] = [34, 35, 32, 33];
/// Their colours in pictures, of [`crate::svg::COLORS`].
pub const COLORS: [usize; 4] = [2, 5, 4, 3];
/// Parts of a character cell.
const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];

fn size(bytes: u64) -> String {
    units::bytes(bytes as f64)
}

/// What the filled part of a bar is.
fn measure(view: &View) -> &'static str {
    if view.total.resident().is_some() { "resident" } else { "saved" }
}

/// The picture in characters, at most so many regions. Without colours the number of the quadrant tells them apart.
pub fn text(view: &View, most: usize, style: Style) -> String {
    let regions = regions(view, most);
    let width = usize::from(style.width.unwrap_or(100));
    let largest = regions.iter().map(|region| region.size).max().unwrap_or(0);
    // Address, two sizes, the quadrant, and a label of some length beside the bar.
    let bar = width.saturating_sub(64).clamp(8, 48);
    let label = style.width.map(|_| width.saturating_sub(bar + 40).max(8));
    let mut out = format!("{}, {}\n", style.bold(&view.title()), view.origin());
    let _ = writeln!(
        out,
        "bars: the logarithm of the size; filled: the part that is {}\nquadrants:{}",
        measure(view),
        Quadrant::ALL.map(|quadrant| format!(" {}", painted(style, quadrant, &legend(quadrant)))).concat()
    );
    for region in &regions {
        if region.gap > 0 {
            let _ = writeln!(out, "{:>12}  ┊ {} unmapped", "", size(region.gap));
        }
        let drawn = draw(region, view.space.page, largest, bar, style);
        let resident = region.resident.map_or_else(|| String::from("-"), size);
        let _ = writeln!(
            out,
            "{:012x}  {drawn}  {:>9} {resident:>9} {} {}",
            region.start,
            size(region.size),
            region.quadrant.number(),
            fitted(&region.label, label)
        );
    }
    out
}

fn legend(quadrant: Quadrant) -> String {
    format!("{} {}", quadrant.number(), quadrant.name())
}

fn painted(style: Style, quadrant: Quadrant, text: &str) -> String {
    if style.color { format!("\x1b[{}m{text}\x1b[0m", TERMINAL[quadrant as usize]) } else { text.to_owned() }
}

/// The bar, padded to its column.
fn draw(region: &Region, page: u64, largest: u64, cells: usize, style: Style) -> String {
    let length = ((region.length(page, largest) * cells as f64).round() as usize).clamp(1, cells);
    let eighths = (region.share() * (length * 8) as f64).round() as usize;
    // Something is never nothing.
    let eighths = if region.resident.unwrap_or(0) > 0 { eighths.max(1) } else { 0 };
    let mut bar = "█".repeat(eighths / 8);
    if !eighths.is_multiple_of(8) {
        bar.push(EIGHTHS[eighths % 8]);
    }
    let filled = eighths.div_ceil(8);
    bar += &"░".repeat(length - filled);
    format!("{}{}", painted(style, region.quadrant, &bar), " ".repeat(cells - length))
}

/// A region in words, for those who point at it or do not see it.
pub fn tip(region: &Region, measure: &str) -> String {
    let resident = region.resident.map_or_else(String::new, |bytes| format!(", {} {measure}", size(bytes)));
    let swap = if region.swap > 0 { format!(", {} in swap", size(region.swap)) } else { String::new() };
    format!(
        "{:x}-{:x}: {}, {}{resident}{swap}, {}",
        region.start,
        region.end,
        region.label,
        size(region.size),
        region.quadrant.name()
    )
}

/// The picture as a file of its own, for light and dark screens.
pub fn svg(view: &View, most: usize) -> String {
    const WIDTH: f64 = 900.0;
    const ROW: f64 = 20.0;
    const BAR: (f64, f64) = (120.0, 380.0);
    let regions = regions(view, most);
    let largest = regions.iter().map(|region| region.size).max().unwrap_or(0);
    let gaps = regions.iter().filter(|region| region.gap > 0).count();
    let measure = measure(view);
    let title = format!("Address space of {}", view.title());
    let description = format!(
        "{} in {} by address; bars are as long as the logarithm of the size, and filled as far as they are {measure}.",
        units::of(view.chosen.count, "mapping"),
        units::of(regions.len() as u64, "region")
    );
    let mut svg = Svg::new(WIDTH, 70.0 + ROW * (regions.len() + gaps) as f64, &title, &description);
    svg.text((12.0, 24.0), Anchor::Start, "t", &format!("{title}, {}", view.origin()));
    for (at, quadrant) in Quadrant::ALL.into_iter().enumerate() {
        let x = 12.0 + 170.0 * at as f64;
        svg.block((x, 36.0), (12.0, 12.0), COLORS[at], false);
        svg.text((x + 18.0, 46.0), Anchor::Start, "", quadrant.name());
    }
    let mut y = 62.0;
    for region in &regions {
        if region.gap > 0 {
            svg.guide(&[(BAR.0 + 2.0, y + 2.0), (BAR.0 + 2.0, y + 16.0)]);
            let gap = format!("{} unmapped", size(region.gap));
            svg.text((BAR.0 + 10.0, y + 14.0), Anchor::Start, "n", &gap);
            y += ROW;
        }
        let length = (region.length(view.space.page, largest) * BAR.1).max(2.0);
        let share = if region.resident.unwrap_or(0) > 0 { (region.share() * length).max(1.0) } else { 0.0 };
        let resident =
            region.resident.map_or_else(String::new, |bytes| format!(", {} {measure}", size(bytes)));
        let color = COLORS[region.quadrant as usize];
        svg.group(&tip(region, measure), |svg| {
            svg.text((12.0, y + 14.0), Anchor::Start, "m", &format!("{:012x}", region.start));
            svg.block((BAR.0, y + 3.0), (length, 14.0), color, true);
            svg.block((BAR.0, y + 3.0), (share, 14.0), color, false);
            let label = fitted(&region.label, Some(34));
            let note = format!("{}{resident}", size(region.size));
            svg.text_and_note((BAR.0 + BAR.1 + 10.0, y + 14.0), &label, &note);
        });
        y += ROW;
    }
    svg.file()
}
