// SPDX-License-Identifier: MIT
//! Numbers in narrow columns.

/// Bytes that may not be known, as `size` writes them.
pub fn known(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| String::from("-"), size)
}

/// Bytes in at most five characters: "0", "812K", "9.9M", "1023G".
pub fn size(bytes: u64) -> String {
    let mut scaled = bytes as f64 / 1024.0;
    let mut units = "KMGTPE".chars();
    let mut unit = units.next().unwrap_or('K');
    while scaled >= 1023.5 {
        let Some(next) = units.next() else { break };
        scaled /= 1024.0;
        unit = next;
    }
    match () {
        () if bytes == 0 => String::from("0"),
        () if unit == 'K' || scaled >= 9.95 => format!("{scaled:.0}{unit}"),
        () => format!("{scaled:.1}{unit}"),
    }
}

/// The same with a sign.
pub fn change(bytes: f64) -> String {
    let size = size(bytes.abs().round() as u64);
    match () {
        () if size == "0" || size == "0K" => String::from("0"),
        () if bytes < 0.0 => format!("-{size}"),
        () => format!("+{size}"),
    }
}

/// Events per second in at most five characters.
pub fn rate(value: f64) -> String {
    match value {
        v if v < 0.05 => String::from("0"),
        v if v < 9.95 => format!("{v:.1}"),
        v if v < 99_999.5 => format!("{v:.0}"),
        v if v < 9_999_500.0 => format!("{:.0}k", v / 1e3),
        v => format!("{:.0}M", v / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_fit_into_their_columns() {
        let mut bytes = 1u64;
        loop {
            for value in [bytes - 1, bytes, bytes.saturating_add(bytes / 2), bytes.saturating_mul(2) - 1] {
                assert!(size(value).len() <= 5, "{value}: {}", size(value));
                assert!(change(-(value as f64)).len() <= 6, "{value}");
                assert!(rate((value as f64).min(1e9)).len() <= 5, "{value}: {}", rate(value as f64));
            }
            let Some(next) = bytes.checked_mul(2) else { break };
            bytes = next;
        }
        assert_eq!([size(0), size(4096), size(1 << 20), size(10 << 20)], ["0", "4K", "1.0M", "10M"]);
        assert_eq!(size((1023.6 * 1024.0) as u64), "1.0M");
        assert_eq!([change(-4096.0), change(4096.0), change(0.0), change(3.0)], ["-4K", "+4K", "0", "0"]);
        assert_eq!([rate(0.0), rate(0.5), rate(12_345.0), rate(2e6)], ["0", "0.5", "12345", "2000k"]);
    }
}
