// SPDX-License-Identifier: MIT
//! Live memory over time, drawn with characters, as massif has it: `:` for a moment, `@` for one in ten, whose sites the JSON has, `#` for
//! the moment at which most was live.

use quarry_report::bars;
use quarry_trace::live::Curve;

use crate::estimate::bytes;

/// How large it is.
const WIDTH: usize = 72;
const HEIGHT: usize = 16;
/// Every so many columns there is a detailed moment.
pub const DETAILED: usize = 10;
/// The room for numbers at the left.
const LEFT: usize = 10;

/// Of a curve between two times, whose peak is at `peak`; `duration` is what stands below the right end.
pub fn graph(
    curve: &Curve,
    (first, last): (u64, u64),
    peak: u64,
    duration: &str,
    width: Option<u16>,
) -> String {
    let points = curve.points();
    let most = curve.most();
    if points.is_empty() || most == 0 {
        return String::new();
    }
    let width = width.map_or(WIDTH, |width| usize::from(width).saturating_sub(LEFT + 2).clamp(20, WIDTH));
    let mut columns = bars::columns(&points, first, last, width);
    let span = u128::from(last.saturating_sub(first)) + 1;
    let at_peak = (u128::from(peak.saturating_sub(first)) * width as u128 / span) as usize;
    let at_peak = at_peak.min(width - 1);
    // A point of the curve may stand for time that begins in the column before.
    columns[at_peak] = most;
    let mut text = String::new();
    for row in (0..HEIGHT).rev() {
        let label = match row {
            row if row == HEIGHT - 1 => bytes(most),
            row if row == HEIGHT / 2 => bytes(most / 2),
            _ => String::new(),
        };
        text += &format!("{label:>LEFT$} |");
        let line: String = columns
            .iter()
            .enumerate()
            .map(|(at, &value)| {
                // What is there at all is to be seen.
                let height = (u128::from(value) * HEIGHT as u128).div_ceil(u128::from(most)) as usize;
                match height > row {
                    false => ' ',
                    true if at == at_peak => '#',
                    true if at % DETAILED == DETAILED - 1 => '@',
                    true => ':',
                }
            })
            .collect();
        text += line.trim_end();
        text.push('\n');
    }
    text += &format!("{:>LEFT$} +{}\n", "0", "-".repeat(width));
    let gap = width.saturating_sub(duration.chars().count() + 1);
    text + &format!("{:LEFT$}  0{:gap$}{duration}\n", "", "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_marks() {
        let mut curve = Curve::new(512);
        for time in 0..1000u64 {
            curve.add(time, if time == 503 { 5000 } else { time });
        }
        let text = graph(&curve, (0, 999), 503, "1.00 s", None);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), HEIGHT + 2);
        assert_eq!(
            lines[0].trim_end(),
            format!("{:>LEFT$} |{}#", "4.88 KiB", " ".repeat(503 * WIDTH / 1000))
        );
        assert_eq!(lines[HEIGHT - 1].matches('@').count(), WIDTH / DETAILED);
        assert_eq!(lines[HEIGHT - 1].matches('#').count(), 1);
        assert_eq!(lines[HEIGHT - 1].matches(':').count(), WIDTH - WIDTH / DETAILED - 1);
        assert!(
            lines[HEIGHT + 1].ends_with("1.00 s")
                && lines.iter().all(|line| line.chars().count() <= LEFT + 2 + WIDTH)
        );
        assert_eq!(graph(&Curve::new(8), (0, 0), 0, "", None), "");
    }
}
