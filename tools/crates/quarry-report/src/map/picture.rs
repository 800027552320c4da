// SPDX-License-Identifier: MIT
//! The picture of the address space: in characters, and as SVG.

use std::fmt::Write;

use crate::style::Style;
use crate::units;
use quarry_proc::classify::Quadrant;

use super::regions::{Region, regions};
use super::view::View;
use crate::fit::fitted;

/// Terminal colours of the quadrants.
const TERMINAL: [u8; 4] = [34, 35, 32, 33];
/// The same on white and on black.
pub const COLORS: [(&str, &str); 4] =
    [("#0072b2", "#4aa8e8"), ("#a04590", "#d88bd0"), ("#008a63", "#2ecc9b"), ("#c77700", "#ffb347")];
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

/// Text as it may stand in SVG and HTML.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
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
    let height = 70.0 + ROW * (regions.len() + gaps) as f64;
    let title = escape(&format!("Address space of {}", view.title()));
    let measure = measure(view);
    let mut out = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" \
         viewBox=\"0 0 {WIDTH} {height:.0}\" width=\"{WIDTH}\" height=\"{height:.0}\">\n<title>{title}</title>\n<desc>{} \
         mappings in {} regions by address; bars are as long as the logarithm of the size, and filled as far as they are \
         {measure}.</desc>\n<style>{}</style>\n<rect class=\"bg\" width=\"{WIDTH}\" height=\"{height:.0}\"/>\n",
        view.chosen.count,
        regions.len(),
        style()
    );
    let _ = writeln!(out, "<text x=\"12\" y=\"24\" class=\"t\">{title}, {}</text>", view.origin());
    for (at, quadrant) in Quadrant::ALL.into_iter().enumerate() {
        let x = 12.0 + 170.0 * at as f64;
        let _ = writeln!(
            out,
            "<rect x=\"{x:.0}\" y=\"36\" width=\"12\" height=\"12\" class=\"f{at}\"/><text x=\"{:.0}\" y=\"46\">{}</text>",
            x + 18.0,
            quadrant.name()
        );
    }
    let mut y = 62.0;
    for region in &regions {
        if region.gap > 0 {
            let _ = writeln!(
                out,
                "<path class=\"gap\" d=\"M{0:.0} {1:.0}v14\"/><text x=\"{2:.0}\" y=\"{3:.0}\" class=\"n\">{4} unmapped</text>",
                BAR.0 + 2.0,
                y + 2.0,
                BAR.0 + 10.0,
                y + 14.0,
                size(region.gap)
            );
            y += ROW;
        }
        let length = (region.length(view.space.page, largest) * BAR.1).max(2.0);
        let share = if region.resident.unwrap_or(0) > 0 { (region.share() * length).max(1.0) } else { 0.0 };
        let resident =
            region.resident.map_or_else(String::new, |bytes| format!(", {} {measure}", size(bytes)));
        let _ = writeln!(
            out,
            "<g><title>{}</title><text x=\"12\" y=\"{:.0}\" class=\"m\">{:012x}</text><rect x=\"{}\" y=\"{:.0}\" width=\"{length:.1}\" \
             height=\"14\" class=\"e f{q}\"/><rect x=\"{}\" y=\"{:.0}\" width=\"{share:.1}\" height=\"14\" class=\"f{q}\"/><text \
             x=\"{:.0}\" y=\"{:.0}\">{} <tspan class=\"n\">{}{resident}</tspan></text></g>",
            escape(&tip(region, measure)),
            y + 14.0,
            region.start,
            BAR.0,
            y + 3.0,
            BAR.0,
            y + 3.0,
            BAR.0 + BAR.1 + 10.0,
            y + 14.0,
            escape(&fitted(&region.label, Some(34))),
            size(region.size),
            q = region.quadrant as usize
        );
        y += ROW;
    }
    out + "</svg>\n"
}

fn style() -> String {
    let mut light = String::from(
        ".bg{fill:#fff}text{fill:#1b1b1b;font:12px system-ui,sans-serif}.t{font-size:14px;font-weight:600}.m{font-family:\
         ui-monospace,monospace;fill:#5a5a5a}.n{fill:#5a5a5a}.e{opacity:.25}.gap{stroke:#8a8a8a;stroke-dasharray:2 3}",
    );
    let mut dark = String::from(".bg{fill:#16191d}text{fill:#e4e6e8}.m,.n{fill:#a4a9ae}.gap{stroke:#767c82}");
    for (at, (on_white, on_black)) in COLORS.iter().enumerate() {
        let _ = write!(light, ".f{at}{{fill:{on_white}}}");
        let _ = write!(dark, ".f{at}{{fill:{on_black}}}");
    }
    format!("{light}@media (prefers-color-scheme:dark){{{dark}}}")
}
