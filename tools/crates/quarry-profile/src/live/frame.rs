// SPDX-License-Identifier: MIT
//! A frame as text and as a line of JSON, for scripts and where there is no terminal.

use quarry_report::style::Style;
use quarry_report::units;
use quarry_report::view::{Heading, Page};
use serde_json::{Value, json};

use super::column::Column;
use super::ongoing::Seen;
use super::sampled::Sampled;
use super::site::{Change, Site};
use crate::estimate;
use crate::json::put;
use crate::model::Median;

/// The schema.
pub const SCHEMA: &str = "quarry-profile-live/1";

/// All that is known at one moment, as far as it is written.
pub struct Frame<'a> {
    /// The first is 1.
    pub number: u64,
    /// What is sampled.
    pub sampled: Sampled<'a>,
    /// What they are sorted by.
    pub sort: Column,
    /// What there is.
    pub seen: &'a Seen,
    /// Those that are written, in order.
    pub sites: &'a [Site],
}

impl Frame<'_> {
    /// As text.
    pub fn text(&self, style: Style) -> String {
        let sampled = &self.sampled;
        let title = format!(
            "process {} {}: live {} of what was allocated in {:.1} s{}, {}{}, one in {}",
            sampled.process,
            sampled.program,
            estimate::live(&self.seen.all.live),
            sampled.time.as_secs_f64(),
            sampled.of_all(),
            units::of(sampled.samples, "sample"),
            sampled.missing(),
            estimate::bytes(sampled.mean),
        );
        let mut page = Page::new(style, self.number, title);
        let more = self.seen.sites.len() - self.sites.len();
        page.table(self.sort, self.sites, |column, site| column.cell(site), more);
        page.text()
    }

    /// As JSON. What is not known is null.
    pub fn json(&self) -> Value {
        let sampled = &self.sampled;
        json!({
            "schema": SCHEMA,
            "frame": self.number,
            "seconds": sampled.time.as_secs_f64(),
            "cost_seconds": sampled.cost.as_secs_f64(),
            "process": sampled.process,
            "program": sampled.program,
            "sample": { "mean_bytes": sampled.mean },
            "samples": sampled.samples,
            "lost": sampled.lost,
            "heap_live_bytes": sampled.heap,
            "ended": sampled.ended,
            "last_seconds": self.seen.last.as_secs_f64(),
            "by": sampled.by.name(),
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
