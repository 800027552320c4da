// SPDX-License-Identifier: MIT
//! The report as JSON, schema quarry-profile/1: docs/profile.schema.json.

use quarry_trace::sample::Estimate;
use serde_json::{Value, json};

use crate::graph::DETAILED;
use crate::model::{Lifetimes, Live, Median, Sums};
use crate::query::{At, Group, live_over_time};
use crate::report::Report;

/// The schema.
pub const SCHEMA: &str = "quarry-profile/1";
/// Moments of the timeline that are told.
const MOMENTS: usize = 100;
/// Sites of a detailed moment.
const DETAILS: usize = 10;

/// An object with a sum, and the bounds of its interval where it is an estimate.
pub(crate) fn put(object: &mut Value, name: &str, sum: &Estimate) {
    object[name] = sum.value().into();
    let (low, high) = sum.interval();
    if low != high {
        object[format!("{name}_interval")] = json!([low, high]);
    }
}

fn live(live: &Live) -> Value {
    let mut object = json!({});
    put(&mut object, "bytes", &live.bytes);
    put(&mut object, "blocks", &live.blocks);
    object
}

impl Report<'_> {
    fn sums(&self, object: &mut Value, sums: &Sums) {
        put(object, "allocated_bytes", &sums.bytes);
        put(object, "allocations", &sums.allocs);
        put(object, "end_bytes", &sums.live_bytes);
        put(object, "end_blocks", &sums.live);
        let sample = self.profile.sampling.is_sample();
        object["temporary"] = if sample { Value::Null } else { sums.temporary.into() };
        object["temporary_bytes"] = if sample { Value::Null } else { sums.temporary_bytes.into() };
    }

    fn lives(&self, lives: &Lifetimes) -> Value {
        let bar = |&(bar, ended, survived): &(u8, f64, f64)| json!({ "to_ns": self.trace.duration_ns(Lifetimes::most(bar)), "ended": ended.round(), "survived": survived.round() });
        let median = match lives.median() {
            Median::Within(ticks) => json!(self.trace.duration_ns(ticks)),
            Median::None | Median::Beyond => Value::Null,
        };
        json!({ "median_ns": median, "bars": lives.bars().iter().map(bar).collect::<Vec<_>>() })
    }

    fn group(&self, group: &Group) -> Value {
        let frames: Vec<&str> =
            self.calls.up(group.heaviest).map(|call| self.calls.label(call).text).collect();
        let mut object = json!({
            "name": group.name,
            "at": live(&group.at),
            "peak": live(&group.peak),
            "lifetimes": self.lives(&group.lives),
            "frames": frames,
            "rows": group.rows.len(),
        });
        self.sums(&mut object, &group.sums);
        if self.query.window.is_some() {
            let change = &group.change;
            object["window"] = json!({
                "from": live(&change.from),
                "to": live(&change.to),
                "growth_bytes": change.growth(),
                "growth_error_bytes": change.error().round(),
                "lasting_growth_bytes": change.sure,
            });
            put(&mut object["window"], "allocations", &change.allocs);
            put(&mut object["window"], "allocated_bytes", &change.bytes);
        }
        object
    }

    /// Live bytes at some moments; one in ten with its sites, and the peak.
    fn moments(&self) -> Value {
        let profile = self.profile;
        let live = live_over_time(profile, &self.answer.all.rows);
        let step = live.len().div_ceil(MOMENTS).max(1);
        let courses: Vec<(&str, Vec<f64>)> = self
            .answer
            .groups
            .iter()
            .take(DETAILS)
            .map(|group| (group.name.as_str(), live_over_time(profile, &group.rows)))
            .collect();
        let moment = |(number, span): (usize, usize)| {
            let end = profile.spans.begin(span + 1).min(profile.last);
            let detailed = number % DETAILED == DETAILED - 1;
            let mut object =
                json!({ "after_ns": self.after(end), "bytes": live[span].round(), "detailed": detailed });
            if detailed {
                let sites = courses.iter().filter(|(_, course)| course[span] >= 1.0);
                object["groups"] = sites
                    .map(|(name, course)| json!({ "name": name, "bytes": course[span].round() }))
                    .collect();
            }
            object
        };
        (0..live.len()).skip(step - 1).step_by(step).enumerate().map(moment).collect()
    }

    /// All of it.
    pub fn json(&self) -> Value {
        let (profile, query, head) = (self.profile, self.query, self.trace.head());
        let at = match query.at {
            At::Peak => "peak",
            At::End => "end",
            At::Moment(_) => "moment",
        };
        let curve = profile.curve.points();
        let mut all = json!({});
        self.sums(&mut all, &self.answer.all.sums);
        json!({
            "schema": SCHEMA,
            "trace": {
                "file": self.file,
                "program": head.program,
                "command": head.command,
                "process": head.process,
                "malloc": head.malloc,
                "stacks": head.stacks,
                "events": profile.events,
                "lost": profile.lost,
            },
            "duration_ns": self.after(profile.last),
            "sample": profile.sampling.is_sample().then(|| json!({ "mean_bytes": profile.sampling.rate(), "mean_bytes_from_to": [profile.means.least, profile.means.most] })),
            "query": {
                "at": at,
                "at_ns": self.after(self.moment()),
                "window_ns": self.window().map(|(from, to)| json!([from, to])),
                "by": query.by.name(),
                "filter": query.filter.as_ref().map(regex_lite::Regex::as_str),
            },
            "totals": all,
            "peak": { "after_ns": self.after(profile.peak.time), "live": live(&profile.peak.live), "after_events": profile.peak.events },
            "end": live(&profile.end),
            "counted": profile.closing.as_ref().map(|closing| crate::closing::json(self, closing)),
            "most_blocks": profile.most_blocks,
            "curve": curve.iter().map(|point| json!([self.after(point.time), point.most, point.last])).collect::<Vec<_>>(),
            "moments": self.moments(),
            "verdict": { "rising": self.course().is_rising(), "text": self.verdict() },
            "groups": self.answer.groups.iter().map(|group| self.group(group)).collect::<Vec<_>>(),
            "group_count": self.answer.count,
            "lifetimes": self.lives(&self.answer.all.lives),
            "page_waste": self.waste.map(|waste| crate::waste::json(self, waste)),
            "gates": self.gates.iter().map(crate::gate::Outcome::json).collect::<Vec<_>>(),
            "without_symbols": self.missing,
        })
    }
}
