// SPDX-License-Identifier: MIT
//! Sizes and times as users write them. Every option and every file of the toolkit is read by these two functions.

use std::time::Duration;

/// A number with one of the suffixes k, m, g, t, each also as kb and KiB: units of 1024.
///
/// Case does not matter. `None`: the text is no such number, or the number does not fit.
pub fn bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let shift = match text[digits..].trim_start().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return None,
    };
    text[..digits].parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// A time with one of the units ns, us, ms, s, m or min, and h, with or without a fraction. A bare number is seconds.
///
/// `None`: the text is no such time, or it is negative, infinite or too large for a time.
pub fn seconds(text: &str) -> Option<Duration> {
    const UNITS: [(&str, f64); 8] = [
        ("ns", 1e-9),
        ("us", 1e-6),
        ("µs", 1e-6),
        ("ms", 1e-3),
        ("min", 60.0),
        ("m", 60.0),
        ("h", 3600.0),
        ("s", 1.0),
    ];
    let text = text.trim();
    let unit = UNITS.into_iter().find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, seconds)));
    let (number, seconds) = unit.unwrap_or((text, 1.0));
    Duration::try_from_secs_f64(number.trim_end().parse::<f64>().ok()? * seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_of_1024() {
        for (text, expected) in [
            ("4096", Some(4096)),
            ("512k", Some(512 << 10)),
            ("512KiB", Some(512 << 10)),
            ("16 mb", Some(16 << 20)),
            ("2M", Some(2 << 20)),
            ("1GB", Some(1 << 30)),
            ("3t", Some(3 << 40)),
            ("0", Some(0)),
            ("", None),
            ("k", None),
            ("-1", None),
            ("1.5M", None),
            ("1kk", None),
            ("99999999999999G", None),
        ] {
            assert_eq!(bytes(text), expected, "{text}");
        }
    }

    #[test]
    fn times_are_seconds() {
        assert_eq!(seconds("0.5"), Some(Duration::from_millis(500)));
        assert_eq!(seconds("0"), Some(Duration::ZERO));
        for (text, ms) in [
            ("2s", 2000),
            ("1.5 s", 1500),
            ("300ms", 300),
            ("2m", 120_000),
            ("1min", 60_000),
            ("1h", 3_600_000),
        ] {
            assert_eq!(seconds(text), Some(Duration::from_millis(ms)), "{text}");
        }
        assert_eq!(
            (seconds("7us"), seconds("9ns")),
            (Some(Duration::from_nanos(7000)), Some(Duration::from_nanos(9)))
        );
        for text in ["", "-1", "x", "nan", "inf", "1e300", "s", "2x", "-1s", "1.5ks"] {
            assert_eq!(seconds(text), None, "{text}");
        }
    }
}
