// SPDX-License-Identifier: MIT
//! Numbers for people: three significant digits, IEC units.

/// Bytes: "0 B", "1.50 KiB", "12.3 MiB", "640 MiB".
pub fn bytes(value: f64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut scaled = value;
    let mut unit = 0;
    // Bytes are exact, and 1023.5 would print as 1024. Of larger units, 999.5 would have four digits.
    while scaled >= if unit == 0 { 1023.5 } else { 999.5 } && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    match (unit, scaled) {
        (0, _) => format!("{scaled:.0} B"),
        (_, s) if s < 0.9995 => format!("{s:.3} {}", UNITS[unit]),
        _ => format!("{} {}", three_digits(scaled), UNITS[unit]),
    }
}

/// A duration in seconds: "812 µs", "12.3 ms", "1.23 s", "2 min 05 s".
pub fn seconds(value: f64) -> String {
    match value {
        v if v < 0.000_999_5 => format!("{:.0} µs", v * 1e6),
        v if v < 0.999_5 => format!("{} ms", three_digits(v * 1e3)),
        v if v < 99.95 => format!("{} s", three_digits(v)),
        v => {
            let whole = v.round() as u64;
            format!("{} min {:02} s", whole / 60, whole % 60)
        }
    }
}

/// A short duration in nanoseconds: "17.2 ns", "1.23 µs", "12.3 ms".
pub fn nanoseconds(value: f64) -> String {
    match value {
        v if v < 999.5 => format!("{} ns", three_digits(v)),
        v if v < 999_500.0 => format!("{} µs", three_digits(v * 1e-3)),
        v => seconds(v * 1e-9),
    }
}

/// A count, in groups of three: "1 234 567".
pub fn count(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut grouped = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(' ');
        }
        grouped.push(digit);
    }
    grouped
}

/// What so many of one are called: "block", "blocks"; "process", "processes"; "entry", "entries".
pub fn noun(number: u64, one: &str) -> String {
    match one {
        _ if number == 1 => one.to_owned(),
        _ if one.ends_with('s') => format!("{one}es"),
        _ if one.ends_with("ry") => format!("{}ies", one.trim_end_matches('y')),
        _ => format!("{one}s"),
    }
}

/// So many of them: "1 block", "22 501 blocks".
pub fn of(number: u64, one: &str) -> String {
    format!("{} {}", count(number as f64), noun(number, one))
}

/// A part of one: "3.4 %".
pub fn percent(value: f64) -> String {
    let value = value * 100.0;
    if value < 9.95 { format!("{value:.1} %") } else { format!("{value:.0} %") }
}

fn three_digits(value: f64) -> String {
    match value {
        v if v < 9.995 => format!("{v:.2}"),
        v if v < 99.95 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_change_where_the_digits_do() {
        assert_eq!(bytes(0.0), "0 B");
        assert_eq!(bytes(1023.0), "1023 B");
        assert_eq!(bytes(1024.0), "1.00 KiB");
        assert_eq!(bytes(1536.0 * 1024.0), "1.50 MiB");
        assert_eq!(bytes(1023.9 * 1024.0), "1.00 MiB");
        assert_eq!(bytes(1023.0 * 1024.0), "0.999 MiB");
        assert_eq!(bytes(1000.0 * 1024.0), "0.977 MiB");
        assert_eq!(bytes(999.0 * 1024.0), "999 KiB");
        assert_eq!(bytes(640.0 * 1024.0 * 1024.0), "640 MiB");
        assert_eq!(bytes(2f64.powi(70)), "1024 EiB");
        assert_eq!(seconds(0.0), "0 µs");
        assert_eq!(seconds(0.000_812), "812 µs");
        assert_eq!(seconds(0.000_999_7), "1.00 ms");
        assert_eq!(seconds(0.0123), "12.3 ms");
        assert_eq!(seconds(0.999_7), "1.00 s");
        assert_eq!(seconds(1.234), "1.23 s");
        assert_eq!(seconds(99.97), "1 min 40 s");
        assert_eq!(seconds(125.2), "2 min 05 s");
    }

    #[test]
    fn short_times_have_short_units() {
        assert_eq!(nanoseconds(0.0), "0.00 ns");
        assert_eq!(nanoseconds(17.25), "17.2 ns");
        assert_eq!(nanoseconds(999.7), "1.00 µs");
        assert_eq!(nanoseconds(12_340.0), "12.3 µs");
        assert_eq!(nanoseconds(1_500_000.0), "1.50 ms");
    }

    #[test]
    fn counts_are_grouped() {
        assert_eq!(count(0.0), "0");
        assert_eq!(count(999.0), "999");
        assert_eq!(count(1000.0), "1 000");
        assert_eq!(count(1_234_567.0), "1 234 567");
        assert_eq!(percent(0.034), "3.4 %");
        assert_eq!(percent(0.5), "50 %");
    }

    #[test]
    fn one_is_no_plural() {
        let said: Vec<String> = [0, 1, 2, 22_501].map(|number| of(number, "block")).into();
        assert_eq!(said, ["0 blocks", "1 block", "2 blocks", "22 501 blocks"]);
        assert_eq!(of(2, "process") + &of(1, "process"), "2 processes1 process");
        assert_eq!((noun(3, "entry"), noun(1, "entry")), ("entries".into(), "entry".into()));
    }
}
