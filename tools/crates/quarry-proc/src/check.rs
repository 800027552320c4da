// SPDX-License-Identifier: MIT
//! Our sums beside the kernel's own accounts, which it keeps apart from the mappings.

use crate::classify::{Class, Kind};
use crate::counters::Field;
use crate::mapping::Mapping;
use crate::space::Space;
use crate::sum::Sum;

/// One comparison. Bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// What is compared, as tools call it.
    pub what: &'static str,
    /// How we get it.
    pub ours: u64,
    /// Where the kernel says it.
    pub source: &'static str,
    /// What it says.
    pub kernel: u64,
    /// By how much ours may be less, as the kernel rounds each mapping down.
    pub slack: u64,
}

impl Line {
    /// Do both agree?
    pub fn agrees(&self) -> bool {
        (self.ours..=self.ours.saturating_add(self.slack)).contains(&self.kernel)
    }
}

/// Compare all that the kernel tells twice.
pub fn check(space: &Space, classes: &[Class], total: &Sum) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut add = |what, ours, source, kernel: Option<u64>, slack| {
        if let Some(kernel) = kernel {
            lines.push(Line { what, ours, source, kernel, slack });
        }
    };
    let status = space.status.as_ref();
    let statm = |pages: u64| pages.saturating_mul(space.page);
    let shared = total.file().saturating_add(total.shmem);
    let data = with(space, classes, |mapping| mapping.perms.write && !mapping.perms.shared);
    let code = with(space, classes, |mapping| mapping.perms.exec && !mapping.perms.write);
    add("VIRT", total.size, "statm size", space.statm.map(|m| statm(m.size)), 0);
    add("VIRT", total.size, "status VmSize", status.and_then(|s| s.vm_size), 0);
    add("DATA", data, "statm data", space.statm.map(|m| statm(m.data)), 0);
    add("code", code, "status VmExe + VmLib", status.and_then(|s| s.vm_exe?.checked_add(s.vm_lib?)), 0);
    if let Some(resident) = total.resident() {
        add("RES", resident, "statm resident", space.statm.map(|m| statm(m.resident)), 0);
        add("RES", resident, "status VmRSS", status.and_then(|s| s.vm_rss), 0);
        add("SHR", shared, "statm shared", space.statm.map(|m| statm(m.shared)), 0);
        add("anonymous", total.anonymous(), "status RssAnon", status.and_then(|s| s.rss_anon), 0);
        add("files", total.file(), "status RssFile", status.and_then(|s| s.rss_file), 0);
        add("shared memory", total.shmem, "status RssShmem", status.and_then(|s| s.rss_shmem), 0);
    }
    if let Some(rollup) = &space.rollup {
        for field in Field::ALL.into_iter().filter(|field| field.is_sum()) {
            let slack = if field.is_rounded() { total.count.saturating_mul(1024) } else { 0 };
            if let Some(ours) = total.counters.get(field) {
                add(field.name(), ours, "smaps_rollup", rollup.get(field), slack);
            }
        }
    }
    lines
}

/// Address space of the process's own mappings for which something holds.
fn with(space: &Space, classes: &[Class], holds: impl Fn(&Mapping) -> bool) -> u64 {
    let own = space.mappings.iter().zip(classes).filter(|(_, class)| class.kind != Kind::Vsyscall);
    own.filter(|(mapping, _)| holds(mapping))
        .fold(0u64, |sum, (mapping, _)| sum.saturating_add(mapping.size()))
}
