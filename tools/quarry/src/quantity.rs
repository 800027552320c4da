// SPDX-License-Identifier: MIT
//! Values of options that are times or sizes, and the range that each option takes.

use std::ops::RangeInclusive;
use std::time::Duration;

use quarry_measure::quantity;

/// A time, in seconds or with its unit, within a range. For `value_parser`.
pub fn seconds(
    range: RangeInclusive<f64>,
) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync + 'static {
    move |text| {
        let time = quantity::seconds(text).filter(|time| range.contains(&time.as_secs_f64()));
        time.ok_or_else(|| {
            format!("not a time from {} to {} seconds, as 30, 1.5s or 2m", range.start(), range.end())
        })
    }
}

/// After which time a run is killed. For `value_parser`.
pub fn timeout(text: &str) -> Result<Duration, String> {
    seconds(0.001..=1e9)(text)
}

/// A size or another large number. For `value_parser`.
pub fn bytes(text: &str) -> Result<u64, String> {
    quantity::bytes(text).ok_or_else(|| String::from("not a number, as 4096, 512k, 16mb or 1GiB"))
}

/// The same within a range. For `value_parser`.
pub fn bytes_within(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = bytes(text)?;
        let (least, most) = (range.start(), range.end());
        range.contains(&number).then_some(number).ok_or_else(|| format!("not from {least} to {most}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_out_of_range_is_refused_with_the_range() {
        assert_eq!(seconds(0.1..=10.0)("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(seconds(0.1..=10.0)("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(
            seconds(0.1..=10.0)("11").unwrap_err(),
            "not a time from 0.1 to 10 seconds, as 30, 1.5s or 2m"
        );
        assert!(timeout("0").is_err() && timeout("nan").is_err() && timeout("0.5").is_ok());
        assert_eq!(bytes("512k"), Ok(512 << 10));
        assert!(bytes("x").unwrap_err().contains("512k"));
        assert_eq!(bytes_within(1..=4096)("4k"), Ok(4096));
        assert_eq!(bytes_within(1..=4096)("8k").unwrap_err(), "not from 1 to 4096");
    }
}
