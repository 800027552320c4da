// SPDX-License-Identifier: MIT
//! Does live memory ever rise?
//!
//! Time is divided into ten parts. What is live in each at least is its floor: what comes and goes is above it. The first part is the
//! program's beginning and the last one its end, so neither counts. Live memory is ever rising if each floor from the second to the ninth
//! is above the one before it, and the ninth is above the second by a quarter of it.

use crate::estimate::{bytes, change};

/// What rises for less than this time may be what a program builds at its start.
const LONG: u64 = 5_000_000_000;
/// Parts of the time.
const PARTS: usize = 10;
/// The last floor is at least so many times the first one.
const RISE: f64 = 1.25;

/// What the course of live memory says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Course {
    /// There are too few spans of time.
    Short,
    /// The floor of the second part, and that of the ninth.
    Rising(Floor, Floor),
    /// The same where it does not ever rise.
    Level(Floor, Floor),
}

/// The least that is live in a part of the time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Floor {
    /// The span of time in which that is so.
    pub span: usize,
    /// How much it is.
    pub bytes: f64,
}

impl Course {
    /// Of live bytes at the ends of spans of time.
    pub fn of(live: &[f64]) -> Self {
        if live.len() < PARTS {
            return Course::Short;
        }
        let floor = |part: usize| {
            let range = part * live.len() / PARTS..(part + 1) * live.len() / PARTS;
            let spans = range.map(|span| Floor { span, bytes: live[span] });
            spans.fold(Floor { span: 0, bytes: f64::INFINITY }, |least, span| {
                if span.bytes < least.bytes { span } else { least }
            })
        };
        let floors: Vec<Floor> = (1..PARTS - 1).map(floor).collect();
        let (first, last) = (floors[0], floors[floors.len() - 1]);
        let rises = floors.windows(2).all(|pair| pair[1].bytes > pair[0].bytes);
        if rises && last.bytes >= first.bytes * RISE {
            Course::Rising(first, last)
        } else {
            Course::Level(first, last)
        }
    }

    /// Does it?
    pub fn is_rising(self) -> bool {
        matches!(self, Course::Rising(..))
    }

    /// By how much the second floor is above the first.
    pub fn climb(self) -> f64 {
        match self {
            Course::Short => 0.0,
            Course::Rising(first, last) | Course::Level(first, last) => last.bytes - first.bytes,
        }
    }

    /// By how much something rose between the two floors, of its live bytes at the ends of the same spans.
    pub fn rise(self, live: &[f64]) -> f64 {
        let at = |floor: Floor| live.get(floor.span).copied().unwrap_or(0.0);
        match self {
            Course::Short => 0.0,
            Course::Rising(first, last) | Course::Level(first, last) => at(last) - at(first),
        }
    }

    /// A line for people. `most` is the site that rises most, and by how much between the two floors. `cause`: what may
    /// be behind it.
    pub fn text(self, most: Option<(&str, i64)>, cause: &str) -> String {
        let at = |floor: Floor| bytes(floor.bytes.max(0.0) as u64);
        match self {
            Course::Short => String::from("too short to tell whether live memory rises"),
            Course::Rising(first, last) => {
                let rule = format!(
                    "ever rising: {cause}. The least that is live rises in each tenth of the time, from {} in the 2nd \
                     tenth to {} in the 9th",
                    at(first),
                    at(last)
                );
                match most.filter(|most| most.1 > 0) {
                    Some((site, by)) => {
                        let all = bytes((last.bytes - first.bytes).max(0.0) as u64);
                        format!("{rule}. Most of these {all}: {} {site}", change(by))
                    }
                    None => rule,
                }
            }
            Course::Level(first, last) => format!(
                "not ever rising as a whole: the least that is live is {} in the 2nd tenth of the time, and {} in the 9th",
                at(first),
                at(last)
            ),
        }
    }

    /// A line on a site that ever rises, where all together does not. `between`: nanoseconds between the two floors.
    pub fn text_of_site(self, site: &str, cause: &str, between: u64) -> Option<String> {
        let Course::Rising(first, last) = self else { return None };
        let pace = (last.bytes - first.bytes) / (between.max(1) as f64 / 1e9);
        Some(format!(
            "{site} is ever rising: {cause}. It holds {} in the 2nd tenth and {} in the 9th, {} in each second",
            bytes(first.bytes.max(0.0) as u64),
            bytes(last.bytes.max(0.0) as u64),
            change(pace.round() as i64)
        ))
    }
}

/// What may be behind memory that ever rises, within `ns`. A program that has just begun builds up what it needs. A
/// sample that began later than its process has no older blocks. What replaces those rises up to what was live all the
/// time.
pub fn cause(ns: u64, is_late: bool) -> &'static str {
    match (is_late, ns < LONG) {
        (true, _) => "a leak, or blocks that replace older ones, which this sample does not have",
        (false, true) => "a leak, or a structure that is still being built",
        (false, false) => "probably a leak",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn course(of: impl Fn(usize) -> f64) -> Course {
        Course::of(&(0..400).map(of).collect::<Vec<_>>())
    }

    #[test]
    fn a_leak_rises_through_what_comes_and_goes() {
        assert!(course(|t| t as f64).is_rising());
        assert!(course(|t| 100.0 + t as f64 + (t % 7) as f64 * 500.0).is_rising());
        assert!(course(|t| if t > 380 { 0.0 } else { 100.0 + t as f64 }).is_rising(), "freed at the end");
        assert!(course(|t| 10.0 * 1.01f64.powi(t as i32)).is_rising());
    }

    #[test]
    fn a_cache_that_fills_and_a_saw_do_not() {
        assert!(!course(|t| (t as f64).min(150.0)).is_rising());
        assert!(!course(|t| (t % 50) as f64).is_rising());
        assert!(!course(|_| 5.0).is_rising());
        assert!(!course(|t| 1e6 + t as f64).is_rising(), "a thousandth is nothing");
        assert_eq!(Course::of(&[1.0; 9]), Course::Short);
    }

    #[test]
    fn a_site_that_rises_is_told_where_all_does_not() {
        let floor = |span, bytes| Floor { span, bytes };
        let rising = Course::Rising(floor(40, 1024.0), floor(340, 3072.0));
        let text = rising.text_of_site("f at a.c:3", cause(LONG, false), 4_000_000_000).unwrap();
        let wanted = "f at a.c:3 is ever rising: probably a leak. It holds 1.00 KiB in the 2nd tenth and 3.00 KiB in the 9th, +512 B in each second";
        assert_eq!(text, wanted);
        assert_eq!(course(|_| 5.0).text_of_site("f", "", 1), None);
    }

    #[test]
    fn the_line_names_the_rule_and_the_site() {
        let floor = |span, bytes| Floor { span, bytes };
        let rising = Course::Rising(floor(1, 1024.0), floor(8, 4096.0));
        let text = |ns| rising.text(Some(("f at a.c:3", 3000)), cause(ns, false));
        let begun = text(LONG - 1);
        assert!(begun.contains("a leak, or a structure that is still being built."), "{begun}");
        let text = text(LONG);
        assert!(text.starts_with("ever rising: probably a leak."), "{text}");
        let wanted =
            "1.00 KiB in the 2nd tenth to 4.00 KiB in the 9th. Most of these 3.00 KiB: +2.93 KiB f at a.c:3";
        assert!(text.contains(wanted), "{text}");
    }

    /// It begins with nothing, and has all when the older blocks have been replaced.
    #[test]
    fn a_sample_that_began_late_proves_no_leak() {
        let steady = course(|t| 1000.0 * (1.0 - (-1.5 * t as f64 / 400.0).exp()));
        assert!(steady.is_rising());
        let text = steady.text(None, cause(6 * LONG, true));
        assert!(text.starts_with("ever rising: a leak, or blocks that replace older ones, which"), "{text}");
    }

    /// What sites grew by adds up to what all did.
    #[test]
    fn the_rise_of_sites_is_that_between_the_floors_of_all() {
        let all: Vec<f64> = (0..400).map(|t| f64::from(t) + f64::from(t % 7) * 500.0).collect();
        let (leak, other): (Vec<f64>, Vec<f64>) =
            (0..400).map(|t| (f64::from(t), f64::from(t % 7) * 500.0)).unzip();
        let course = Course::of(&all);
        let Course::Rising(first, last) = course else { panic!("{course:?}") };
        assert_eq!(course.rise(&leak) + course.rise(&other), last.bytes - first.bytes);
        assert_eq!(course.rise(&all), last.bytes - first.bytes);
        assert!(course.rise(&leak) > 270.0, "{course:?}");
    }
}
