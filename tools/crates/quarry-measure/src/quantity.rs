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

/// A time in seconds, with or without a fraction.
///
/// `None`: the text is no number, or the number is negative, infinite or too large for a time.
pub fn seconds(text: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(text.trim().parse().ok()?).ok()
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
        for text in ["", "-1", "x", "nan", "inf", "1e300", "2s"] {
            assert_eq!(seconds(text), None, "{text}");
        }
    }
}
