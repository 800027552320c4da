// SPDX-License-Identifier: MIT
//! Looks into one process again and again.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use quarry_proc::classify::{self, Files};
use quarry_proc::sum::{self, By};
use quarry_proc::{ProcError, Root, Space};

use quarry_report::map::what;
use quarry_report::top::{Opened, Part, facts};

/// A process that changes while it is read is read again, within this time.
const AGAIN: Duration = Duration::from_millis(30);

/// What a part is told by from one frame to the next.
type PartKey = (usize, Option<&'static str>, String);

/// Looks at one process again and again.
pub struct Opener {
    root: Root,
    pid: u32,
    files: Files,
    started: Option<u64>,
    past: HashMap<PartKey, u64>,
    at: Option<(Duration, By)>,
}

impl Opener {
    pub fn new(root: Root, pid: u32) -> Self {
        Self { root, pid, files: Files::default(), started: None, past: HashMap::new(), at: None }
    }

    /// What it has now, put together by `by`; the largest first.
    pub fn look(&mut self, now: Duration, by: By) -> Result<Opened, ProcError> {
        let space = Space::of_process_within(&self.root.process(self.pid)?, AGAIN)?;
        let started = space.stat.as_ref().map(|stat| stat.started);
        // The number may be another process's by now.
        if self.started.zip(started).is_some_and(|(before, now)| before != now) {
            return Err(ProcError::Gone(self.pid));
        }
        self.started = started;
        let classes = classify::classify(&space, &mut self.files);
        let total = sum::total(&space.mappings, &classes);
        let mut quadrant_1 = 0u64;
        for (mapping, class) in space.mappings.iter().zip(&classes) {
            if class.quadrant.number() == 1 {
                quadrant_1 = quadrant_1.saturating_add(mapping.size());
            }
        }
        let groups = sum::groups(&space.mappings, &classes, by, |_| true);
        let part = |group: sum::Group| Part {
            quadrant: group.quadrant.map_or(0, |quadrant| quadrant.number()),
            kind: group.kind.map(|kind| kind.name()),
            what: what(&group, &space.mappings),
            sum: group.sum,
            growth: None,
        };
        let mut parts: Vec<Part> = groups.into_iter().map(part).collect();
        self.grow(&mut parts, now, by);
        parts.sort_by_key(|part| Reverse((part.sum.resident(), part.sum.size)));
        let remark = match space.damage.sentence() {
            Some(damage) => Some(format!("what was read is damaged: {damage}")),
            None if space.steady == Some(false) => {
                Some(String::from("it changed while it was read: sums may differ a little"))
            }
            None => None,
        };
        Ok(Opened {
            pid: self.pid,
            name: space.name.clone().unwrap_or_default(),
            command: space.command.join(" "),
            threads: space.tasks.list.len(),
            facts: facts(&space, &total, quadrant_1),
            parts,
            total,
            remark,
        })
    }

    /// How much each part has grown since the last look, if that put them together in the same way.
    fn grow(&mut self, parts: &mut [Part], now: Duration, by: By) {
        let before =
            self.at.filter(|(_, before)| *before == by).map(|(at, _)| now.saturating_sub(at).as_secs_f64());
        let mut next = HashMap::new();
        for part in parts {
            let rss = part.sum.resident().unwrap_or_default();
            let key = (part.quadrant, part.kind, part.what.clone());
            if let Some(seconds) = before.filter(|seconds| *seconds > 0.0) {
                let old = self.past.get(&key).copied().unwrap_or_default();
                part.growth = Some((rss as f64 - old as f64) / seconds);
            }
            next.insert(key, rss);
        }
        self.past = next;
        self.at = Some((now, by));
    }
}
