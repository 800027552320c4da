// SPDX-License-Identifier: MIT
//! Bars with names, one below the other.

use crate::svg::{Anchor, Svg};

use super::{Shape, Unit};

/// One bar.
#[derive(Debug, Clone, Default)]
pub struct Bar {
    /// Beside it.
    pub name: String,
    /// Whose colour.
    pub who: usize,
    /// Its length; none: it has failed, or there is nothing to show.
    pub value: Option<f64>,
    /// From the least to the most that was seen.
    pub range: Option<(f64, f64)>,
    /// What is said in the place of a bar that is not there.
    pub remark: String,
}

/// Bars, one below the other.
#[derive(Debug, Clone, Default)]
pub struct Bars {
    /// Above the picture.
    pub title: String,
    /// What longer means.
    pub label: String,
    /// How wide it is.
    pub shape: Shape,
    /// Of the lengths.
    pub unit: Unit,
    /// The bars.
    pub bars: Vec<Bar>,
}

impl Bars {
    /// The length of the longest bar that is drawn whole. One that is far beyond the rest is cut off, or nothing else
    /// could be seen: what is freed at once is freed at no cost at all.
    fn longest(&self) -> f64 {
        let mut values: Vec<f64> =
            self.bars.iter().filter_map(|bar| bar.value).filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let most = values.last().copied().unwrap_or(0.0);
        let usual = values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(0.0);
        if usual > 0.0 && most > 12.0 * usual {
            return 6.0 * usual;
        }
        // What one slow run reached is shown too, as long as it leaves room for the bars.
        let ranges = self.bars.iter().filter_map(|bar| bar.range).map(|range| range.1);
        ranges.filter(|high| high.is_finite()).fold(most, f64::max).min(4.0 * most)
    }

    /// Draw; nothing, where there is no bar.
    pub fn draw(&self) -> Option<Svg> {
        const ROW: f64 = 23.0;
        const TOP: f64 = 44.0;
        let most = self.longest();
        if most <= 0.0 {
            return None;
        }
        let longest_name = self.bars.iter().map(|bar| bar.name.chars().count()).max().unwrap_or(0);
        let width = self.shape.width;
        let left = (16.0 + longest_name as f64 * 6.6).clamp(70.0, 0.4 * width);
        let room = width - left - 92.0;
        let said: Vec<String> = self
            .bars
            .iter()
            .map(|bar| {
                format!("{}: {}", bar.name, bar.value.map_or(bar.remark.clone(), |v| self.unit.show(v)))
            })
            .collect();
        let description = format!("{}. {}.", self.label, said.join("; "));
        let mut svg = Svg::new(width, TOP + ROW * self.bars.len() as f64 + 6.0, &self.title, &description);
        svg.text((8.0, 17.0), Anchor::Start, "t", &self.title);
        svg.text((8.0, 34.0), Anchor::Start, "n", &self.label);
        let length = |value: f64| value.min(most * 1.06).max(0.0) / (most * 1.06) * room;
        for (row, bar) in self.bars.iter().enumerate() {
            let top = TOP + ROW * row as f64;
            svg.text((left - 6.0, top + 13.0), Anchor::End, "", &bar.name);
            let Some(value) = bar.value else {
                svg.text((left + 2.0, top + 13.0), Anchor::Start, "n", &bar.remark);
                continue;
            };
            let cut = value > most * 1.06;
            let text = if value.is_finite() { self.unit.show(value) } else { String::from("at once") };
            svg.bar((left, top), (length(value), 17.0), bar.who, &format!("{}: {text}", bar.name));
            let mut end = left + length(value);
            if let Some((low, high)) = bar.range.filter(|_| !cut) {
                svg.rule((left + length(low), top + 8.5), (left + length(high), top + 8.5), "w");
                end = end.max(left + length(high));
            }
            let text = if cut { format!("» {text}") } else { text };
            svg.text((end + 5.0, top + 13.0), Anchor::Start, "", &text);
        }
        Some(svg)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(name: &str, value: Option<f64>) -> Bar {
        let range = value.map(|v| (0.9 * v, 1.1 * v));
        Bar { name: name.to_owned(), value, range, remark: String::from("failed"), ..Bar::default() }
    }

    #[test]
    fn bars_far_beyond_the_rest_are_cut() {
        let bars = |values: &[f64]| Bars {
            title: String::from("t"),
            label: String::from("l"),
            unit: Unit::Rate,
            bars: values.iter().map(|value| bar("x", Some(*value))).chain([bar("y", None)]).collect(),
            ..Bars::default()
        };
        assert!((bars(&[1.0, 2.0, 3.0]).longest() - 3.3).abs() < 1e-9, "with what the slowest run reached");
        assert_eq!(bars(&[1.0, 2.0, 1e9]).longest(), 12.0);
        let mut slow = bars(&[1.0, 2.0]);
        slow.bars[0].range = Some((1.0, 100.0));
        assert_eq!(slow.longest(), 8.0);
        let picture = bars(&[1.0, 2.0, f64::INFINITY]).draw().unwrap().inline();
        assert!(picture.contains("» at once") && picture.contains("failed"), "{picture}");
        assert!(bars(&[]).draw().is_none());
    }
}
