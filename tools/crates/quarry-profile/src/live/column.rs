// SPDX-License-Identifier: MIT
//! The columns of the view.

use quarry_report::bars;
use quarry_report::view::{Heading, change, rate, size};

use super::site::{Change, Site};
use crate::estimate::FEW;
use crate::model::Median;

/// A column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    /// Live bytes.
    Live,
    /// Between which they are.
    Interval,
    /// Change since the beginning.
    Grown,
    /// Change in the last seconds.
    Last,
    /// The last frames.
    Trend,
    /// Bytes per second.
    Bytes,
    /// Allocations per second.
    Calls,
    /// How long half of the blocks live.
    Half,
    /// Live blocks.
    Blocks,
    /// What it is called.
    Site,
}

use Column::*;

impl Heading for Column {
    const ALL: &'static [Self] = &[Live, Interval, Grown, Last, Trend, Bytes, Calls, Half, Blocks, Site];
    const OPTIONAL: &'static [Self] = &[Blocks, Calls, Trend, Interval, Half, Grown, Bytes];
    const TEXT: Self = Site;
    const LEAST: usize = 24;

    fn name(self) -> &'static str {
        match self {
            Live => "LIVE",
            Interval => "95 %",
            Grown => "GROWN",
            Last => "LAST",
            Trend => "TREND",
            Bytes => "ALLOC/s",
            Calls => "CALLS/s",
            Half => "HALF",
            Blocks => "BLOCKS",
            Site => "SITE",
        }
    }

    fn key(self) -> &'static str {
        match self {
            Live => "live",
            Interval => "interval",
            Grown => "growth",
            Last => "last",
            Trend => "trend",
            Bytes => "allocated",
            Calls => "allocations",
            Half => "half-life",
            Blocks => "blocks",
            Site => "site",
        }
    }

    fn help(self) -> (&'static str, &'static str) {
        match self {
            Live => (
                "sum of weights",
                "bytes that are live, of blocks that were allocated since sampling began; \u{2264}: fewer than five of its blocks were drawn, and it has at most that",
            ),
            Interval => {
                ("Horvitz and Thompson", "the bounds between which live bytes are, in 95 of 100 samples")
            }
            Grown => ("LIVE", "change since sampling began, or since the key b was pressed"),
            Last => (
                "LIVE",
                "change in the last ten seconds; an arrow: it is more than twice its standard error, so it is hardly noise",
            ),
            Trend => (
                "LIVE",
                "live bytes in the last frames, the newest at the right; each row has its own height",
            ),
            Bytes => ("births", "bytes allocated per second, in the last ten seconds"),
            Calls => ("births", "allocations per second, likewise"),
            Half => (
                "Kaplan and Meier",
                "the time by which half of the blocks have ended, to a power of two; longer: more than half outlive what was seen",
            ),
            Blocks => ("sum of weights", "blocks that are live"),
            Site => ("call stacks", "where the blocks come from; g folds sites to functions and to modules"),
        }
    }

    fn width(self) -> usize {
        match self {
            Interval => 11,
            Trend => 8,
            Last | Bytes | Calls => 7,
            _ => 6,
        }
    }
}

/// Nanoseconds in at most five characters.
fn short_time(ns: u64) -> String {
    match ns as f64 / 1e9 {
        s if s < 1e-6 => format!("{ns}ns"),
        s if s < 1e-3 => format!("{:.0}us", s * 1e6),
        s if s < 1.0 => format!("{:.0}ms", s * 1e3),
        s if s < 9.95 => format!("{s:.1}s"),
        s if s < 100.0 => format!("{s:.0}s"),
        s if s < 6000.0 => format!("{:.0}m", s / 60.0),
        s if s < 360_000.0 => format!("{:.0}h", s / 3600.0),
        s => format!("{:.0}d", s / 86_400.0),
    }
}

/// A change, with an arrow where it is more than noise.
pub fn arrow(of: &Change) -> String {
    let arrow = match of {
        of if !of.is_sure() => "",
        of if of.bytes > 0.0 => "\u{2191}",
        _ => "\u{2193}",
    };
    format!("{arrow}{}", change(of.bytes))
}

/// A half-life.
pub fn half(median: Median) -> String {
    match median {
        Median::None => String::from("-"),
        Median::Within(ns) => short_time(ns),
        Median::Beyond => String::from("longer"),
    }
}

/// Live bytes in the last frames.
pub fn trend(site: &Site, width: usize) -> String {
    let from = site.trend.len().saturating_sub(width);
    let values: Vec<u64> = site.trend[from..].iter().map(|&bytes| bytes as u64).collect();
    bars::spark(&values, values.iter().copied().max().unwrap_or(0))
}

impl Column {
    /// Were so few of a site's live blocks drawn that only a bound is known?
    fn is_bound(site: &Site) -> bool {
        let (low, high) = site.live.bytes.interval();
        low != high && site.live.blocks.seen() < FEW
    }

    /// What rows are sorted by.
    pub fn sort_key(self, site: &Site) -> f64 {
        match self {
            Live | Site => site.live.bytes.value() as f64,
            Interval => site.live.bytes.interval().1 as f64,
            Grown => site.grown.bytes,
            Last | Trend => site.last.bytes,
            Bytes => site.bytes_rate,
            Calls => site.calls_rate,
            Half => match site.half {
                Median::None => -1.0,
                Median::Within(ns) => ns as f64,
                Median::Beyond => f64::MAX,
            },
            Blocks => site.live.blocks.value() as f64,
        }
    }

    /// The cell of a row, at most as wide as the column; the name may be of any width.
    pub fn cell(self, site: &Site) -> String {
        let (low, high) = site.live.bytes.interval();
        match self {
            Live if site.live.blocks.seen() == 0 => String::from("0"),
            Live if Self::is_bound(site) => format!("\u{2264}{}", size(high)),
            Live => size(site.live.bytes.value()),
            Interval if Self::is_bound(site) || low == high => String::from("-"),
            Interval => format!("{}-{}", size(low), size(high)),
            Grown => change(site.grown.bytes),
            Last => arrow(&site.last),
            Trend => trend(site, Trend.width()),
            Bytes => size(site.bytes_rate as u64),
            Calls => rate(site.calls_rate),
            Half => half(site.half),
            Blocks => rate(site.live.blocks.value() as f64),
            Site => site.name.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_fit_into_their_column() {
        // A year is more than anybody watches.
        for power in 9..64 {
            let text = short_time(u64::MAX >> power);
            assert!(text.len() <= 5, "{text}");
        }
        assert_eq!(
            [short_time(999), short_time(70_000), short_time(134_217_727), short_time(8_589_934_591)],
            ["999ns", "70us", "134ms", "8.6s"]
        );
        assert_eq!([short_time(68_719_476_735), short_time(1 << 42)], ["69s", "73m"]);
    }

    #[test]
    fn every_column_explains_itself() {
        for &column in Column::ALL {
            let (source, what) = column.help();
            assert!(!source.is_empty() && what.len() > 10);
            assert!(column == Site || column.width() >= column.name().len(), "{column:?}");
            assert_eq!(Column::with_key(column.key()), Some(column));
        }
    }
}
