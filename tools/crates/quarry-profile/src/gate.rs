// SPDX-License-Identifier: MIT
//! Limits for a pull request's test: what a run may have at most, and how much more than a base.

use quarry_trace::sample::Estimate;
use regex_lite::Regex;
use serde_json::{Value, json};

use crate::diff::Pair;
use crate::estimate::{bytes, change, count};
use crate::model::Profile;

/// A limit of the whole program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Bytes that are live when most are.
    Peak(u64),
    /// Allocations and reallocs.
    Allocations(u64),
    /// Bytes that are live at the end.
    LiveAtEnd(u64),
}

/// How much more than the base.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum More {
    /// Of the base.
    Percent(f64),
    /// Bytes.
    Bytes(u64),
}

/// A limit of some sites: their bytes at the peak, compared with those of a base.
#[derive(Debug, Clone)]
pub struct Growth {
    /// As it was typed.
    pub text: String,
    pattern: Regex,
    more: More,
}

impl Growth {
    /// `site:REGEX +10%`, `site:REGEX +4MiB`. The error says what is wrong.
    pub fn parse(text: &str, size: impl Fn(&str) -> Option<u64>) -> Result<Self, String> {
        let wanted = "not 'site:REGEX +N%' or 'site:REGEX +SIZE'";
        let (site, more) = text.trim().rsplit_once(" +").ok_or(wanted)?;
        let pattern = site.trim().strip_prefix("site:").ok_or(wanted)?;
        let pattern = Regex::new(pattern).map_err(|error| format!("'{pattern}': {error}"))?;
        let more = match more.strip_suffix('%') {
            Some(percent) => {
                let percent = percent.trim().parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0);
                More::Percent(percent.ok_or(wanted)?)
            }
            None => More::Bytes(size(more).ok_or(wanted)?),
        };
        Ok(Self { text: text.to_owned(), pattern, more })
    }
}

/// What became of a limit.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The option that set it.
    pub name: String,
    /// The highest value that is allowed.
    pub limit: u64,
    /// The value.
    pub value: u64,
    /// Is it kept?
    pub kept: bool,
    /// A line for people.
    pub text: String,
}

impl Outcome {
    /// For machines.
    pub fn json(&self) -> Value {
        json!({ "gate": self.name, "limit": self.limit, "value": self.value, "kept": self.kept, "text": self.text })
    }
}

/// A limit of a sample is passed where the lower bound of the interval is: else the excess may be one of the draw.
fn outcome(name: &str, limit: u64, sum: &Estimate, label: impl Fn(u64) -> String) -> Outcome {
    let (low, high) = sum.interval();
    let (kept, value) = (low <= limit, sum.value());
    let mut text = format!("{name} {}: {}", label(limit), label(value));
    if low != high {
        text += &format!(" ({} … {})", label(low), label(high));
    }
    if kept && value > limit {
        text += ", above it by no more than the sample may be off";
    }
    text += if kept { ", kept" } else { ", exceeded" };
    Outcome { name: name.to_owned(), limit, value, kept, text }
}

/// Hold a profile against limits.
pub fn of_program(profile: &Profile, limits: &[Limit]) -> Vec<Outcome> {
    let of = |limit: &Limit| match *limit {
        Limit::Peak(limit) => outcome("max-peak", limit, &profile.peak.live.bytes, bytes),
        Limit::LiveAtEnd(limit) => outcome("max-live-at-end", limit, &profile.end.bytes, bytes),
        Limit::Allocations(limit) => {
            let mut allocs = Estimate::default();
            profile.rows.iter().for_each(|row| allocs += row.sums().allocs);
            outcome("max-allocs", limit, &allocs, count)
        }
    };
    limits.iter().map(of).collect()
}

/// Hold the change of some sites against a limit: what is live at that moment. Change within the noise is none.
pub fn of_sites(pairs: &[Pair], growth: &Growth, moment: &str) -> Outcome {
    let fitting = || pairs.iter().filter(|pair| growth.pattern.is_match(&pair.name));
    let mut sum = Pair::default();
    fitting().for_each(|pair| sum.add(pair));
    let base = sum.before.max(0.0) as u64;
    let more = match growth.more {
        More::Percent(percent) => (base as f64 * percent / 100.0) as u64,
        More::Bytes(bytes) => bytes,
    };
    let (limit, value) = (base.saturating_add(more), sum.after.max(0.0) as u64);
    let over = sum.after - limit as f64;
    let kept = over <= 0.0 || over <= sum.noise();
    let mut text = format!(
        "fail-if '{}': {} with {} {moment}, before {} ({})",
        growth.text,
        quarry_report::units::of(fitting().count() as u64, "site"),
        bytes(value),
        bytes(base),
        change((sum.after - sum.before) as i64)
    );
    if kept && over > 0.0 {
        text += ", within noise";
    }
    text += if kept { ", kept" } else { ", exceeded" };
    Outcome { name: format!("fail-if {}", growth.text), limit, value, kept, text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Growth, String> {
        Growth::parse(text, |size| size.parse().ok())
    }

    #[test]
    fn growth_is_read() {
        assert_eq!(parsed("site:^parse_ +10%").unwrap().more, More::Percent(10.0));
        assert_eq!(parsed("site:a +b +4096").unwrap().more, More::Bytes(4096));
        for wrong in
            ["", "site:a", "a +10%", "site:a +x%", "site:a +-5%", "site:( +1%", "site:a +nan%", "site:a + "]
        {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn change_within_noise_passes() {
        let pair = |name: &str, before: f64, after: f64, variance: f64| Pair {
            name: name.into(),
            before,
            after,
            variance_before: variance,
            variance_after: variance,
        };
        let pairs = [pair("f at a.c:1", 1000.0, 1200.0, 0.0), pair("g at a.c:2", 1000.0, 1000.0, 0.0)];
        let kept = |text: &str, pairs: &[Pair]| of_sites(pairs, &parsed(text).unwrap(), "at the peak").kept;
        assert!(!kept("site:^f +10%", &pairs) && kept("site:^f +20%", &pairs) && kept("site:. +10%", &pairs));
        assert!(
            !kept("site:^f +100", &pairs) && kept("site:^f +200", &pairs) && kept("site:none +0%", &pairs)
        );
        let noisy = [pair("f at a.c:1", 1000.0, 1200.0, 100.0 * 100.0)];
        let outcome = of_sites(&noisy, &parsed("site:^f +10%").unwrap(), "at the end");
        assert!(outcome.kept && outcome.text.contains("within noise"), "{}", outcome.text);
    }
}
