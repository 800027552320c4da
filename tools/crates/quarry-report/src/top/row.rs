// SPDX-License-Identifier: MIT
//! What is known of a process at one moment.

use quarry_proc::shown;

/// What status says of a process; nothing until it was read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OfStatus {
    /// VmSwap.
    pub swap: Option<u64>,
    /// RssAnon.
    pub anon: Option<u64>,
    /// RssFile.
    pub file: Option<u64>,
    /// RssShmem.
    pub shm: Option<u64>,
}

/// What smaps_rollup says of a process; nothing until it was read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OfRollup {
    /// Pss.
    pub pss: Option<u64>,
    /// What nobody else has.
    pub uss: Option<u64>,
}

/// A process. What is not known is `None`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Row {
    /// Its number.
    pub pid: u32,
    /// Its short name.
    pub name: String,
    /// The letter of its state.
    pub state: char,
    /// When it was started, in ticks since boot.
    pub started: u64,
    /// Address space, in bytes.
    pub virt: Option<u64>,
    /// Resident bytes.
    pub res: Option<u64>,
    /// Resident bytes of files and shared memory.
    pub shr: Option<u64>,
    /// Bytes of the program's own code.
    pub code: Option<u64>,
    /// Bytes of private writable mappings.
    pub data: Option<u64>,
    /// Page faults per second since the frame before.
    pub faults: Option<f64>,
    /// Of them, those that waited for a disk.
    pub major: Option<f64>,
    /// Change of the resident bytes.
    pub growth: Option<f64>,
    /// Since it was seen first.
    pub grown: Option<f64>,
    /// What status says.
    pub status: OfStatus,
    /// What smaps_rollup says.
    pub rollup: OfRollup,
    /// status was asked for in this frame, and is not asked for again.
    pub has_status: bool,
    /// The same of smaps_rollup.
    pub has_rollup: bool,
    /// All cells are of one moment.
    pub is_settled: bool,
    /// What is missing, and which right it needs.
    pub missing: Option<&'static str>,
}

impl Row {
    /// Its name as it may be printed, and what is missing.
    pub fn label(&self) -> String {
        match self.missing {
            Some(what) if self.name.is_empty() => format!("({what})"),
            Some(what) => format!("{} ({what})", shown(&self.name)),
            None => shown(&self.name),
        }
    }

    /// Does it have this in its name, or is this its number?
    pub fn matches(&self, filter: &str) -> bool {
        filter.is_empty() || self.name.contains(filter) || self.pid.to_string() == filter
    }

    /// How much of the machine's memory it has, in percent.
    pub fn percent(&self, total: Option<u64>) -> Option<f64> {
        let total = total.filter(|&total| total > 0)?;
        Some(self.res? as f64 * 100.0 / total as f64)
    }

    /// Has it no memory at all, as threads of the kernel and processes that have ended? Their files have no such lines.
    pub fn is_empty(&self) -> bool {
        self.virt == Some(0)
    }
}
