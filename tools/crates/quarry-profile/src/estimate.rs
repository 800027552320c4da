// SPDX-License-Identifier: MIT
//! Sums as people read them. A sum of a sample has its interval; where few blocks of it were drawn, the bound says all there is.

use quarry_report::units;
use quarry_trace::sample::Estimate;

use crate::model::Live;

/// With fewer blocks in the sample a sum is given as an upper bound.
pub const FEW: u64 = 5;

/// Bytes as text.
pub fn bytes(n: u64) -> String {
    units::bytes(n as f64)
}

/// A count as text.
pub fn count(n: u64) -> String {
    units::count(n as f64)
}

/// A part of a whole.
pub fn part(n: u64, of: u64) -> String {
    if of == 0 { String::from("-") } else { units::percent(n as f64 / of as f64) }
}

/// Nanoseconds as text.
pub fn time(ns: u64) -> String {
    if ns < 1000 { format!("{ns} ns") } else { units::seconds(ns as f64 / 1e9) }
}

/// Bytes with a sign.
pub fn change(n: i64) -> String {
    format!("{}{}", if n < 0 { "-" } else { "+" }, bytes(n.unsigned_abs()))
}

/// A sum of which so many blocks are in the trace: "12.4 MiB", "12.4 MiB (11.5 MiB … 13.3 MiB)" of a sample, and "≤ 3.0 MiB" where
/// few blocks were drawn.
pub fn estimated(sum: &Estimate, drawn: u64, label: impl Fn(u64) -> String) -> String {
    let (low, high) = sum.interval();
    let (value, from, to) = (label(sum.value()), label(low), label(high));
    if from == to {
        value
    } else if drawn < FEW {
        format!("≤ {to}")
    } else {
        format!("{value} ({from} … {to})")
    }
}

/// Live bytes, as [`estimated`].
pub fn live(live: &Live) -> String {
    estimated(&live.bytes, live.blocks.seen(), bytes)
}

#[cfg(test)]
mod tests {
    use quarry_trace::sample::Sampling;

    use super::*;

    #[test]
    fn few_draws_are_a_bound() {
        let sampling = Sampling::one_in(1 << 20);
        let drawn = |n: u64| {
            let mut sum = Live::default();
            for _ in 0..n {
                sum.blocks.count(sampling.weight(1000));
                sum.bytes.add(1000, sampling.weight(1000));
            }
            live(&sum)
        };
        assert!(drawn(4).starts_with("≤ "), "{}", drawn(4));
        assert!(drawn(50).starts_with("50.0 MiB (") && drawn(50).contains(" … "), "{}", drawn(50));
        assert_eq!(estimated(&Estimate::exact(3 << 20), 1, bytes), "3.00 MiB");
        assert_eq!((change(-1024), change(0)), (String::from("-1.00 KiB"), String::from("+0 B")));
    }
}
