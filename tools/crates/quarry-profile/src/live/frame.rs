// SPDX-License-Identifier: MIT
//! A frame as text and as a line of JSON, for scripts and where there is no terminal.

use std::time::Duration;

use quarry_report::style::Style;
use quarry_report::view::{Heading, fitting, line_of};
use serde_json::{Value, json};

use super::column::Column;
use super::ongoing::Seen;
use super::site::{Change, Site};
use crate::estimate;
use crate::json::put;
use crate::model::Median;
use crate::query::By;

/// The schema.
pub const SCHEMA: &str = "quarry-profile-live/1";
/// A page without a terminal is as wide as its longest line.
const WIDE: usize = 200;

/// All that is known at one moment, as far as it is written.
pub struct Frame<'a> {
    /// The first is 1.
    pub number: u64,
    /// Of which process.
    pub process: i32,
    /// Its program.
    pub program: &'a str,
    /// Mean bytes from one sample to the next.
    pub mean: u64,
    /// Sampled allocations.
    pub samples: u64,
    /// Samples and ends of them that are missing.
    pub lost: u64,
    /// How long it is sampled.
    pub time: Duration,
    /// What looking took.
    pub cost: Duration,
    /// What one row is.
    pub by: By,
    /// What they are sorted by.
    pub sort: Column,
    /// What there is.
    pub seen: &'a Seen,
    /// Those that are written, in order.
    pub sites: &'a [Site],
    /// Why nothing more comes.
    pub ended: Option<&'a str>,
}

impl Frame<'_> {
    /// As text.
    pub fn text(&self, style: Style) -> String {
        let width = style.width.map_or(WIDE, usize::from);
        let mut lines = Vec::new();
        if self.number > 1 {
            lines.push(String::new());
        }
        let lost = if self.lost > 0 { format!(", {} missing", self.lost) } else { String::new() };
        lines.push(format!(
            "process {} {}: live {} of what was allocated in {:.1} s, {} samples{lost}, one in {}",
            self.process,
            self.program,
            estimate::live(&self.seen.all.live),
            self.time.as_secs_f64(),
            estimate::count(self.samples),
            estimate::bytes(self.mean),
        ));
        let columns = fitting(width, self.sort);
        lines.push(style.bold(&line_of(&columns, |column| column.name().to_owned())));
        for site in self.sites {
            let line = line_of(&columns, |column| column.cell(site));
            lines.push(line.chars().take(width).collect());
        }
        let more = self.seen.sites.len() - self.sites.len();
        if more > 0 {
            lines.push(format!("and {more} more"));
        }
        lines.join("\n") + "\n"
    }

    /// As JSON. What is not known is null.
    pub fn json(&self) -> Value {
        json!({
            "schema": SCHEMA,
            "frame": self.number,
            "seconds": self.time.as_secs_f64(),
            "cost_seconds": self.cost.as_secs_f64(),
            "process": self.process,
            "program": self.program,
            "sample": { "mean_bytes": self.mean },
            "samples": self.samples,
            "lost": self.lost,
            "ended": self.ended,
            "last_seconds": self.seen.last.as_secs_f64(),
            "by": self.by.name(),
            "sort": self.sort.key(),
            "totals": self.site(&self.seen.all),
            "groups": self.sites.iter().map(|site| self.group(site)).collect::<Vec<_>>(),
            "group_count": self.seen.sites.len(),
        })
    }

    fn group(&self, site: &Site) -> Value {
        let mut object = self.site(site);
        object["name"] = json!(site.name);
        object["frames"] = self.seen.frames(site).collect();
        object
    }

    fn site(&self, site: &Site) -> Value {
        let change = |of: &Change| json!({ "bytes": of.bytes.round(), "error_bytes": of.error().round(), "sure": of.is_sure() });
        let half = match site.half {
            Median::Within(ns) => json!(ns),
            Median::None | Median::Beyond => Value::Null,
        };
        let mut object = json!({
            "growth": change(&site.grown),
            "last_growth": change(&site.last),
            "allocated_bytes_per_s": site.bytes_rate.round(),
            "allocations_per_s": site.calls_rate,
            "half_life_ns": half,
        });
        put(&mut object, "live_bytes", &site.live.bytes);
        put(&mut object, "live_blocks", &site.live.blocks);
        object
    }
}
