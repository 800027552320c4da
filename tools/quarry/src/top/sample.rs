// SPDX-License-Identifier: MIT
//! The processes at one moment, and what changed since the moment before.

use std::collections::HashMap;
use std::time::Duration;

use quarry_proc::counters::{Counters, Field};
use quarry_proc::scan::{Brief, Scanner, Unread};
use quarry_proc::stat::{Stat, Statm};
use quarry_proc::status::Status;
use quarry_proc::{MemInfo, ProcError, Root, page_size};

use quarry_report::top::{OfRollup, OfStatus, Row};

// The help says more.
const HIDDEN: &str = "hidden";
const BROKEN: &str = "unreadable";
const NOT_OURS: &str = "not yours";

/// What stat and statm say.
fn row_of(pid: u32, stat: Stat, statm: Statm, page: u64) -> Row {
    let mut row = Row { pid, name: stat.name, state: stat.state, started: stat.started, ..Row::default() };
    take(&mut row, statm, page);
    row
}

/// The cells that statm has. True: they have changed.
fn take(row: &mut Row, statm: Statm, page: u64) -> bool {
    let bytes = |pages: u64| Some(pages.saturating_mul(page));
    let of = |row: &Row| [row.virt, row.res, row.shr, row.code, row.data];
    let before = of(row);
    row.virt = bytes(statm.size);
    row.res = bytes(statm.resident);
    row.shr = bytes(statm.shared);
    row.code = bytes(statm.text);
    row.data = bytes(statm.data);
    before != of(row)
}

/// What is remembered of a process from one frame to the next.
struct Past {
    at: Duration,
    started: u64,
    minor: u64,
    major: u64,
    res: u64,
    first_res: u64,
}

/// Looks at the processes again and again.
pub struct Watch {
    scanner: Scanner,
    page: u64,
    past: HashMap<u32, Past>,
    memory: MemInfo,
    /// Files of the dear kind that were read since the last frame began.
    asked: u64,
}

impl Watch {
    pub fn new(root: Root) -> Self {
        Self {
            scanner: Scanner::new(root),
            page: page_size(),
            past: HashMap::new(),
            memory: MemInfo::default(),
            asked: 0,
        }
    }

    pub fn root(&self) -> &Root {
        self.scanner.root()
    }

    /// The machine's memory, as of the last frame.
    pub fn memory(&self) -> MemInfo {
        self.memory
    }

    /// Swap that is in use; more of it no process can have.
    pub fn swap_used(&self) -> Option<u64> {
        Some(self.memory.swap_total?.saturating_sub(self.memory.swap_free?))
    }

    /// How many files of the dear kind this frame has cost.
    pub fn asked(&self) -> u64 {
        self.asked
    }

    /// All processes for which `wanted` holds; of others nothing is forgotten. `now` is the time since some beginning.
    pub fn frame(&mut self, now: Duration, wanted: impl Fn(u32) -> bool) -> Result<Vec<Row>, ProcError> {
        let briefs = self.scanner.scan(&wanted)?;
        self.memory = self.scanner.root().memory().unwrap_or_default();
        self.asked = 0;
        let (mut past, kept) = std::mem::take(&mut self.past).into_iter().partition(|(pid, _)| wanted(*pid));
        self.past = kept;
        Ok(briefs.into_iter().map(|brief| self.row(brief, now, &mut past)).collect())
    }

    fn row(&mut self, brief: Brief, now: Duration, past: &mut HashMap<u32, Past>) -> Row {
        let (stat, statm) = match brief.facts {
            Ok(facts) => facts,
            Err(why) => {
                let missing = Some(if why == Unread::Denied { HIDDEN } else { BROKEN });
                return Row { pid: brief.pid, state: '?', missing, ..Row::default() };
            }
        };
        let (minor, major) = (stat.minor_faults, stat.major_faults);
        let mut row = row_of(brief.pid, stat, statm, self.page);
        let res = row.res.unwrap_or_default();
        // A number may have been given to another process.
        let before = past.remove(&row.pid).filter(|past| past.started == row.started);
        let elapsed = |past: &Past| now.saturating_sub(past.at).as_secs_f64();
        if let Some(before) = &before
            && elapsed(before) > 0.0
        {
            let seconds = elapsed(before);
            let (minor, major) = (minor.saturating_sub(before.minor), major.saturating_sub(before.major));
            row.faults = Some((minor as f64 + major as f64) / seconds);
            row.major = Some(major as f64 / seconds);
            row.growth = Some((res as f64 - before.res as f64) / seconds);
        }
        let first_res = before.map(|past| past.first_res);
        row.grown = first_res.map(|first| res as f64 - first as f64);
        let first_res = first_res.unwrap_or(res);
        self.past.insert(row.pid, Past { at: now, started: row.started, minor, major, res, first_res });
        row
    }

    /// Read all there is to know of a process.
    ///
    /// What it has may have changed since the frame began: then all is read once more, so that no row shows two moments.
    pub fn read_all(&mut self, row: &mut Row) {
        /// Of a process that never rests the last reading is shown.
        const TRIES: usize = 3;
        self.read_status(row);
        self.read_rollup(row);
        if std::mem::replace(&mut row.is_settled, true) || row.res.is_none() || row.is_empty() {
            return;
        }
        for _ in 0..TRIES {
            let now = self.root().process(row.pid).and_then(|process| process.statm());
            let Ok(now) = now else { return };
            if !take(row, now, self.page) {
                return;
            }
            (row.has_status, row.has_rollup) = (false, false);
            self.read_status(row);
            self.read_rollup(row);
        }
    }

    /// Read status of a process, if that was not done in this frame.
    pub fn read_status(&mut self, row: &mut Row) {
        if std::mem::replace(&mut row.has_status, true) || row.res.is_none() {
            return;
        }
        if row.is_empty() {
            row.status = OfStatus { swap: Some(0), anon: Some(0), file: Some(0), shm: Some(0) };
            return;
        }
        self.asked += 1;
        if let Ok(status) = self.root().process(row.pid).and_then(|process| process.status()) {
            row.status = status_of(&status);
        }
    }

    /// Read smaps_rollup of a process, if that was not done in this frame.
    pub fn read_rollup(&mut self, row: &mut Row) {
        if std::mem::replace(&mut row.has_rollup, true) || row.res.is_none() {
            return;
        }
        if row.is_empty() {
            row.rollup = OfRollup { pss: Some(0), uss: Some(0) };
            return;
        }
        self.asked += 1;
        match self.root().process(row.pid).and_then(|process| process.rollup()) {
            Ok(counters) => row.rollup = rollup_of(&counters),
            Err(error) if error.is_denied() => row.missing = Some(NOT_OURS),
            Err(_) => {}
        }
    }
}

fn status_of(status: &Status) -> OfStatus {
    OfStatus { swap: status.vm_swap, anon: status.rss_anon, file: status.rss_file, shm: status.rss_shmem }
}

fn rollup_of(counters: &Counters) -> OfRollup {
    OfRollup { pss: counters.get(Field::Pss), uss: counters.uss() }
}

#[cfg(test)]
#[path = "sample_tests.rs"]
mod tests;
