// SPDX-License-Identifier: MIT
//! What numbers in charts are, and how they are written.

use crate::units;

/// What numbers are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Unit {
    /// Seconds.
    Seconds,
    /// Nanoseconds.
    Nanoseconds,
    /// Bytes.
    Bytes,
    /// KiB.
    Kib,
    /// A number of things.
    #[default]
    Count,
    /// Things a second.
    Rate,
    /// A factor of something else.
    Times,
    /// Of a hundred.
    Percent,
    /// A part of all that is told by what is beyond it, in steps of ten: 1 is 90 %, 2 is 99 %.
    Nines,
}

impl Unit {
    /// What the name of a column or value says of its unit: what is behind its last underscore, or all of it.
    pub fn of(name: &str) -> Self {
        match name.rsplit('_').next().unwrap_or(name) {
            "s" | "seconds" => Unit::Seconds,
            "ns" | "nanoseconds" => Unit::Nanoseconds,
            "bytes" | "size" => Unit::Bytes,
            "kib" => Unit::Kib,
            "percent" => Unit::Percent,
            "rate" => Unit::Rate,
            "ratio" | "times" | "speedup" | "payload" => Unit::Times,
            _ => Unit::Count,
        }
    }

    /// A number with it.
    pub fn show(self, value: f64) -> String {
        match self {
            _ if !value.is_finite() => String::from("–"),
            Unit::Seconds if value == 0.0 => String::from("0"),
            Unit::Nanoseconds if value == 0.0 => String::from("0"),
            Unit::Seconds => units::seconds(value),
            Unit::Nanoseconds => units::nanoseconds(value),
            Unit::Bytes => units::bytes(value),
            Unit::Kib => units::bytes(value * 1024.0),
            Unit::Count => number(value),
            Unit::Rate => format!("{}/s", number(value)),
            Unit::Times => format!("{} ×", plain(value)),
            Unit::Percent => format!("{} %", plain(value)),
            Unit::Nines if value <= 0.0 => String::from("0 %"),
            Unit::Nines => {
                let digits = (value.round() as usize).saturating_sub(2);
                format!("{:.digits$} %", 100.0 - 100.0 * 10f64.powf(-value))
            }
        }
    }

    /// The step of marks is a round number of these.
    pub(super) fn factor(self, most: f64) -> f64 {
        match self {
            Unit::Bytes | Unit::Kib => {
                let mut unit = 1.0;
                while most >= 1024.0 * unit {
                    unit *= 1024.0;
                }
                unit
            }
            _ => 1.0,
        }
    }

    /// Marks over this much are not closer than that: things are whole.
    pub(super) fn finest(self, span: f64) -> f64 {
        if self == Unit::Count && span >= 2.0 { 1.0 } else { 0.0 }
    }
}

/// 1234567 as "1.23 M".
pub fn number(value: f64) -> String {
    for (factor, letter) in [(1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")] {
        if value.abs() >= 0.9995 * factor {
            return format!("{}{letter}", plain(value / factor));
        }
    }
    plain(value)
}

/// Three digits, without zeros at the end.
fn plain(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        v if v >= 0.0995 || v == 0.0 => 2,
        _ => 4,
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_show_numbers() {
        assert_eq!(Unit::Rate.show(66_000_000.0), "66 M/s");
        assert_eq!(Unit::Times.show(2.5), "2.5 ×");
        assert_eq!(Unit::Kib.show(1536.0), "1.50 MiB");
        assert_eq!(Unit::Count.show(0.0), "0");
        assert_eq!(Unit::Count.show(999_900.0), "1 M");
        assert_eq!(Unit::Seconds.show(f64::INFINITY), "–");
        assert_eq!([0.0, 1.0, 2.0, 4.0].map(|n| Unit::Nines.show(n)), ["0 %", "90 %", "99 %", "99.99 %"]);
        assert_eq!(
            (Unit::of("p99_ns"), Unit::of("rss_kib"), Unit::of("dump")),
            (Unit::Nanoseconds, Unit::Kib, Unit::Count)
        );
    }
}
