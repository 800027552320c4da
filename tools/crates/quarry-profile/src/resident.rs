// SPDX-License-Identifier: MIT
//! What the kernel counts as resident, divided until it adds up: live blocks, what rounding adds, what else lies on their pages, and all
//! that is no block.
//!
//! The recorder asks the kernel now and then, so what is divided is the answer that is nearest to the moment that leads. Which
//! pages of live blocks were never touched is known at the end of a process alone, and of large blocks.

use std::collections::HashMap;

use quarry_report::style::Style;
use quarry_report::table::{self, Align, Text};
use quarry_trace::live::Tracker;
use quarry_trace::{Event, Usage, What};
use serde_json::{Value, json};

use crate::estimate::{bytes, part, time};
use crate::report::Report;
use crate::waste::Pages;

/// A file may say anything.
const MOST: u64 = 1 << 56;
const WIDEST: i128 = i64::MAX as i128;

/// What is read of a trace for that.
pub(crate) struct Looks {
    page: u64,
    is_end: bool,
    /// The last one before the moment, and the first one after it.
    before: Option<(u64, Usage)>,
    after: Option<(u64, Usage)>,
    /// Resident bytes of large blocks that are live at the end.
    touched: HashMap<u64, u64>,
}

impl Looks {
    pub(crate) fn new(page: u64, is_end: bool) -> Self {
        Self { page, is_end, before: None, after: None, touched: HashMap::new() }
    }

    pub(crate) fn add(&mut self, event: &Event, is_past: bool, tracker: &Tracker) {
        match &event.what {
            What::Usage(usage) if !is_past || self.after.is_none() => {
                let look = if is_past { &mut self.after } else { &mut self.before };
                *look = Some((event.time, **usage));
            }
            What::Resident { address, bytes } if tracker.is_live(*address) => {
                self.touched.insert(*address, *bytes);
            }
            _ => {}
        }
    }

    /// Pages of large live blocks that were not touched, in bytes.
    fn untouched(&self, tracker: &Tracker) -> Option<u64> {
        let of = |(&address, &resident): (&u64, &u64)| {
            let block = tracker.get(address)?;
            let end = address.saturating_add(block.size.max(1));
            let pages = (end - 1) / self.page - address / self.page + 1;
            Some((pages * self.page).saturating_sub(resident))
        };
        self.is_end.then(|| self.touched.iter().filter_map(of).fold(0, u64::saturating_add).min(MOST))
    }

    /// Divide what was resident, with these pages of live blocks.
    pub(crate) fn at(&self, pages: &Pages, rounding: u64, tracker: &Tracker) -> Option<Resident> {
        let apart = |look: &(u64, Usage)| look.0.abs_diff(pages.time);
        let (time, usage) = self.before.into_iter().chain(self.after).min_by_key(apart)?;
        let sum = |parts: &[u64]| parts.iter().fold(0u64, |sum, part| sum.saturating_add(*part)).min(MOST);
        let recorder = sum(&[usage.own_anonymous, usage.own_file]);
        let total = sum(&[usage.anonymous, usage.file, usage.shared]);
        let files = sum(&[usage.file, usage.shared]).saturating_sub(usage.own_file);
        let untouched = self.untouched(tracker);
        let rounding = rounding.min(pages.waste);
        let mut resident = Resident {
            time,
            total,
            live: pages.live,
            rounding,
            between: pages.waste - rounding,
            untouched,
            other: 0,
            files,
            recorder,
        };
        resident.other = (i128::from(total) - resident.known()).clamp(-WIDEST, WIDEST) as i64;
        Some(resident)
    }
}

/// Resident bytes and their parts, which add up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resident {
    /// When the kernel was asked, in ticks.
    pub time: u64,
    /// What it said.
    pub total: u64,
    /// Bytes asked for, of live blocks.
    pub live: u64,
    /// What size classes add to them.
    pub rounding: u64,
    /// What else is not live on their pages.
    pub between: u64,
    /// What of all these is not resident; known at the end alone.
    pub untouched: Option<u64>,
    /// The rest of what belongs to no file: free pages and records of the allocator, stacks, variables. Less what is not resident of live
    /// blocks, where that is not known: so it may be negative.
    pub other: i64,
    /// Files and shared memory.
    pub files: u64,
    /// What is the recorder's.
    pub recorder: u64,
}

impl Resident {
    /// All but the rest.
    fn known(&self) -> i128 {
        let parts = [self.live, self.rounding, self.between, self.files, self.recorder];
        parts.iter().map(|&part| i128::from(part)).sum::<i128>() - i128::from(self.untouched.unwrap_or(0))
    }

    /// The parts with their names, and the sum last.
    fn parts(&self) -> Vec<(i64, &'static str)> {
        let mut rows = vec![
            (self.live as i64, "live blocks, as asked for"),
            (self.rounding as i64, "rounding to size classes"),
            (self.between as i64, "not live on their pages, beside that"),
        ];
        match self.untouched {
            Some(bytes) if bytes > 0 => {
                rows.push((-(bytes as i64), "pages of blocks from 128 KiB on that were never touched"))
            }
            _ => {}
        }
        rows.push(match self.untouched {
            Some(_) => (
                self.other,
                "other private memory: free pages and records of the allocator, stacks, variables",
            ),
            None => (self.other, "other private memory, less pages of live blocks that were never touched"),
        });
        rows.push((self.files as i64, "files and shared memory"));
        rows.push((self.recorder as i64, "the recorder"));
        rows.push((self.total as i64, "all: resident, as the kernel counts"));
        rows
    }

    /// The rows of the table: bytes, the part of the sum, and what it is.
    pub(crate) fn rows(&self) -> Vec<[String; 3]> {
        let signed =
            |value: i64| format!("{}{}", if value < 0 { "-" } else { "" }, bytes(value.unsigned_abs()));
        let cells = |(value, name): (i64, &str)| {
            let sign = if value < 0 { "-" } else { "" };
            [signed(value), format!("{sign}{}", part(value.unsigned_abs(), self.total)), name.to_owned()]
        };
        self.parts().into_iter().map(cells).collect()
    }

    /// Title and note of the table.
    pub(crate) fn words(&self, report: &Report) -> (String, String) {
        (
            format!("Resident memory, {}", report.moment_text()),
            format!("the kernel was asked after {}", time(report.after(self.time))),
        )
    }

    pub(crate) fn text(&self, report: &Report, style: Style) -> String {
        let align = [Align::Right, Align::Right, Align::Left];
        let rows = self.rows().into_iter().map(|row| row.map(Text::from).to_vec()).collect();
        let (title, note) = self.words(report);
        let table = table::render(style, &align, &["bytes", "", "what"], rows);
        format!("\n{}\n{table}{note}\n", style.bold(&title))
    }

    pub(crate) fn json(&self, report: &Report) -> Value {
        json!({
            "after_ns": report.after(self.time),
            "resident_bytes": self.total,
            "live_bytes": self.live,
            "rounding_bytes": self.rounding,
            "between_bytes": self.between,
            "untouched_bytes": self.untouched,
            "other_private_bytes": self.other,
            "file_bytes": self.files,
            "recorder_bytes": self.recorder,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_the_sign_of_their_bytes() {
        let (live, total) = (3 << 20, 2 << 20);
        let resident = Resident {
            time: 0,
            total,
            live,
            rounding: 0,
            between: 0,
            untouched: None,
            other: total as i64 - live as i64,
            files: 0,
            recorder: 0,
        };
        let rows = resident.rows();
        let other = rows.iter().find(|row| row[2].starts_with("other")).unwrap();
        assert_eq!((other[0].as_str(), other[1].as_str()), ("-1.00 MiB", "-50 %"));
        assert_eq!(rows[0][1], "150 %");
    }
}
