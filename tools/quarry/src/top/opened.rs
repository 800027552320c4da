// SPDX-License-Identifier: MIT
//! One process, opened: what the columns of top are of it today, and its mappings by quadrant and kind.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use quarry_proc::classify::{self, Files};
use quarry_proc::counters::Field;
use quarry_proc::sum::{self, By, Sum};
use quarry_proc::{ProcError, Root, Space};

use super::column::{known, size};
use quarry_report::map::what;

/// A process that changes while it is read is read again, within this time.
const AGAIN: Duration = Duration::from_millis(30);

/// A column of top, its value, and what that is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    pub name: &'static str,
    pub bytes: Option<u64>,
    pub what: String,
}

/// Mappings of one quadrant, of one kind, or of one object.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// 1 to 4.
    pub quadrant: usize,
    pub kind: Option<&'static str>,
    pub what: String,
    pub sum: Sum,
    /// Change of RSS per second.
    pub growth: Option<f64>,
}

/// One process as it was at one moment.
#[derive(Debug, Clone)]
pub struct Opened {
    pub pid: u32,
    pub name: String,
    pub command: String,
    pub threads: usize,
    pub facts: Vec<Fact>,
    pub parts: Vec<Part>,
    pub total: Sum,
    /// What cannot be trusted, in words.
    pub remark: Option<String>,
}

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

/// What RES is made of.
pub fn res_of(anon: Option<u64>, file: Option<u64>, shm: Option<u64>) -> String {
    format!("anonymous {} + files {} + shared memory {}", known(anon), known(file), known(shm))
}

/// What SHR is made of.
pub fn shr_of(file: Option<u64>, shm: Option<u64>) -> String {
    format!("files {} + shared memory {}; all of it resident", known(file), known(shm))
}

/// The columns of top, and what they are made of.
fn facts(space: &Space, total: &Sum, quadrant_1: u64) -> Vec<Fact> {
    let pages = |pages: u64| pages.saturating_mul(space.page);
    let (statm, status) = (space.statm, space.status.clone().unwrap_or_default());
    let (anon, file, shm) = (status.rss_anon, status.rss_file, status.rss_shmem);
    let swap_all = total.counters.get(Field::Swap);
    let pss = space.rollup.as_ref().and_then(|all| all.get(Field::Pss));
    let fact = |name, bytes, what| Fact { name, bytes, what };
    vec![
        fact(
            "VIRT",
            statm.map(|m| pages(m.size)),
            format!("address space of {} mappings; costs nothing until touched", total.count),
        ),
        fact("RES", statm.map(|m| pages(m.resident)), res_of(anon, file, shm)),
        fact("SHR", statm.map(|m| pages(m.shared)), shr_of(file, shm)),
        fact(
            "DATA",
            statm.map(|m| pages(m.data)),
            format!(
                "mapped: private writable {} + stack {}; quadrant 1 has {}",
                known(status.vm_data),
                known(status.vm_stk),
                size(quadrant_1)
            ),
        ),
        fact(
            "CODE",
            statm.map(|m| pages(m.text)),
            format!("the program's own; its libraries have {}", known(status.vm_lib)),
        ),
        fact(
            "SWAP",
            status.vm_swap,
            format!("anonymous memory in swap; with shared memory {}", known(swap_all)),
        ),
        fact("PSS", pss, String::from("each page divided by those who map it; may be added up")),
        fact("USS", total.counters.uss(), String::from("nobody else's: free if this process ended")),
    ]
}
