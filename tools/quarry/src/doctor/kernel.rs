// SPDX-License-Identifier: MIT
//! Settings of the kernel, and limits of the process, that a heap or a verb depends on.

use std::fs;

use quarry_measure::machine::Machine;
use quarry_measure::units;
use quarry_proc::cgroup::{Cgroup, Memory};
use quarry_proc::{Overcommit, Process, Root};

use super::finding::Finding;

/// Bits of CapEff.
const CAP_SYS_PTRACE: u32 = 19;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;

/// What the kernel allows when nobody changes it.
const USUAL_MAPPINGS: u64 = 65_530;

/// What was read. `None`: the kernel does not say.
#[derive(Default)]
pub struct Seen {
    /// When the kernel uses transparent huge pages.
    huge_pages: String,
    overcommit: Option<Overcommit>,
    /// vm.max_map_count, and how many mappings the process has.
    most_mappings: Option<u64>,
    mappings: Option<u64>,
    /// kernel.yama.ptrace_scope; 0 where the kernel has no such thing.
    ptrace_scope: u32,
    perf_event_paranoid: Option<i32>,
    /// Capabilities of this tool.
    capabilities: u64,
    /// What the control group says of memory; `None`: it does not count memory, or cannot be seen.
    cgroup: Option<Memory>,
    /// Is there a control group that cannot be seen, or is not known whether there is one?
    cgroup_hidden: bool,
    /// The limit of address space in bytes; `None`: unlimited.
    address_space: Option<u64>,
}

impl Seen {
    /// Of the machine, and of one process on it.
    pub fn new(root: &Root, process: &Process) -> Self {
        let setting = |name: &str| {
            let text = fs::read_to_string(root.path().join("sys").join(name)).ok()?;
            text.trim().parse::<i64>().ok()
        };
        let own = fs::read_to_string(root.path().join("self/status")).unwrap_or_default();
        let effective = own.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let limits = process.limits().unwrap_or_default();
        let cgroup = process.cgroup();
        let is_seen = |group: &Option<Cgroup>| group.as_ref().is_none_or(|group| group.memory.is_some());
        let cgroup_hidden = !cgroup.as_ref().is_ok_and(is_seen);
        Self {
            huge_pages: Machine::read().transparent_huge_pages,
            overcommit: root.overcommit(),
            most_mappings: setting("vm/max_map_count").and_then(|count| u64::try_from(count).ok()),
            mappings: process
                .read("maps")
                .ok()
                .map(|maps| maps.iter().filter(|&&byte| byte == b'\n').count() as u64),
            ptrace_scope: setting("kernel/yama/ptrace_scope")
                .and_then(|scope| u32::try_from(scope).ok())
                .unwrap_or(0),
            perf_event_paranoid: setting("kernel/perf_event_paranoid")
                .and_then(|level| i32::try_from(level).ok()),
            capabilities: effective.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0),
            cgroup: cgroup.ok().flatten().and_then(|cgroup| cgroup.memory),
            cgroup_hidden,
            address_space: limits.get("Max address space").and_then(|limit| limit.soft),
        }
    }

    fn can(&self, capability: u32) -> bool {
        self.capabilities >> capability & 1 == 1
    }

    /// All of them.
    pub fn findings(&self) -> Vec<Finding> {
        let mut all =
            vec![self.huge(), self.promised(), self.mapped(), self.traced(), self.counted(), self.limited()];
        all.extend(self.address_space.map(|bytes| {
            Finding::note(
                "address space",
                format!("limited to {}", units::bytes(bytes as f64)),
                "Quarry reserves address space ahead and takes less where it gets less. If malloc fails, raise it: ulimit -v unlimited.",
            )
        }));
        all
    }

    fn huge(&self) -> Finding {
        let name = "transparent huge pages";
        if self.huge_pages == "always" {
            let next = "Peak RSS is some 14 % higher than with madvise. To change it: \
                        echo madvise >/sys/kernel/mm/transparent_hugepage/enabled, as root.";
            Finding::note(name, "always", next)
        } else {
            Finding::ok(name, &*self.huge_pages)
        }
    }

    fn promised(&self) -> Finding {
        let name = "vm.overcommit_memory";
        match self.overcommit {
            Some(mode @ Overcommit::Never) => Finding::note(
                name,
                mode.describe(),
                "About 1.4 times the peak is charged. If malloc fails early, raise vm.overcommit_ratio, or set vm.overcommit_memory to 0.",
            ),
            Some(mode) => Finding::ok(name, mode.describe()),
            None => Finding::ok(name, "unknown"),
        }
    }

    /// Guarded blocks, pools with fences and large programs need mappings. Near the limit the kernel refuses more of them.
    fn mapped(&self) -> Finding {
        let name = "vm.max_map_count";
        let (Some(most), used) = (self.most_mappings, self.mappings.unwrap_or(0)) else {
            return Finding::ok(name, "unknown");
        };
        let value = format!("{most}, {used} in use");
        let next = "The kernel refuses mappings beyond it, and malloc returns NULL. Raise it: sysctl vm.max_map_count=262144, as root.";
        if used >= most / 10 * 9 {
            Finding::problem(name, value, next)
        } else if most < USUAL_MAPPINGS || used >= most / 2 {
            Finding::note(name, value, next)
        } else {
            Finding::ok(name, value)
        }
    }

    fn traced(&self) -> Finding {
        let name = "kernel.yama.ptrace_scope";
        let value = self.ptrace_scope.to_string();
        match self.ptrace_scope {
            0 => Finding::ok(name, value),
            1 | 2 if self.can(CAP_SYS_PTRACE) => {
                Finding::ok(name, format!("{value}, and this user may trace all"))
            }
            1 | 2 => Finding::note(
                name,
                value,
                "stats, profile -p and the inside of heaps in explain need the right to trace. Run them as root, or set it to 0: \
                 sysctl kernel.yama.ptrace_scope=0. Verbs that start the program need no right.",
            ),
            _ => Finding::note(
                name,
                value,
                "Nobody may read another process until the machine is started anew. Use verbs that start the program: run --stats, record, check.",
            ),
        }
    }

    fn counted(&self) -> Finding {
        let name = "kernel.perf_event_paranoid";
        let Some(level) = self.perf_event_paranoid else {
            return Finding::note(
                name,
                "unknown",
                "bench --counters shows no instructions and cache misses on this kernel.",
            );
        };
        if level <= 2 || self.can(CAP_PERFMON) || self.can(CAP_SYS_ADMIN) {
            return Finding::ok(name, level.to_string());
        }
        let next = "bench --counters shows no instructions and cache misses. Set it to 2: sysctl kernel.perf_event_paranoid=2, as root.";
        Finding::note(name, level.to_string(), next)
    }

    fn limited(&self) -> Finding {
        let name = "control group";
        if self.cgroup_hidden {
            return Finding::ok(name, "its limit of memory is not known: its files cannot be seen from here");
        }
        let memory = self.cgroup.as_ref();
        let Some(limit) = memory.and_then(|memory| memory.tightest.as_ref()) else {
            return Finding::ok(name, "no limit of memory");
        };
        let size = |bytes: u64| units::bytes(bytes as f64);
        let Some(room) = memory.and_then(|memory| memory.room) else {
            return Finding::ok(name, format!("at most {}, what is left is not known", size(limit.bytes)));
        };
        let value = format!("at most {}, {} left", size(limit.bytes), size(room));
        if room < limit.bytes / 16 {
            let next = "At the limit the kernel ends a process of the group. See what fills it: quarry explain -p PID. Or raise memory.max.";
            Finding::note(name, value, next)
        } else {
            Finding::ok(name, value)
        }
    }
}

#[cfg(test)]
mod tests {
    use quarry_proc::cgroup::Limit;

    use super::super::finding::Level::{self, Note, Ok, Problem};
    use super::*;

    fn level(seen: &Seen, name: &str) -> Level {
        let findings = seen.findings();
        let finding = findings.iter().find(|finding| finding.name == name).unwrap();
        assert_eq!(finding.next.is_empty(), finding.level == Ok, "{finding:?}");
        finding.level
    }

    #[test]
    fn huge_pages_and_overcommit() {
        for (mode, expected) in [("always", Note), ("madvise", Ok), ("never", Ok)] {
            assert_eq!(
                level(&Seen { huge_pages: mode.into(), ..Seen::default() }, "transparent huge pages"),
                expected
            );
        }
        for (mode, expected) in
            [(Overcommit::Heuristic, Ok), (Overcommit::Always, Ok), (Overcommit::Never, Note)]
        {
            assert_eq!(
                level(&Seen { overcommit: Some(mode), ..Seen::default() }, "vm.overcommit_memory"),
                expected
            );
        }
    }

    #[test]
    fn mappings_that_come_to_an_end() {
        for (most, used, expected) in
            [(65_530, 100, Ok), (1000, 100, Note), (65_530, 40_000, Note), (65_530, 65_000, Problem)]
        {
            let seen = Seen { most_mappings: Some(most), mappings: Some(used), ..Seen::default() };
            assert_eq!(level(&seen, "vm.max_map_count"), expected, "{used} of {most}");
        }
    }

    #[test]
    fn rights_go_before_settings() {
        for (scope, capabilities, expected) in
            [(0, 0, Ok), (1, 0, Note), (1, 1 << CAP_SYS_PTRACE, Ok), (3, !0, Note)]
        {
            let seen = Seen { ptrace_scope: scope, capabilities, ..Seen::default() };
            assert_eq!(level(&seen, "kernel.yama.ptrace_scope"), expected, "{scope} {capabilities}");
        }
        for (paranoid, capabilities, expected) in [(2, 0, Ok), (3, 0, Note), (3, 1 << CAP_PERFMON, Ok)] {
            let seen = Seen { perf_event_paranoid: Some(paranoid), capabilities, ..Seen::default() };
            assert_eq!(level(&seen, "kernel.perf_event_paranoid"), expected, "{paranoid} {capabilities}");
        }
    }

    #[test]
    fn limits_of_the_group_and_of_the_process() {
        for (room, expected) in [(50, Ok), (5, Note)] {
            let tightest = Some(Limit { bytes: 100, used: None, folder: "/g".into() });
            let cgroup = Some(Memory { tightest, room: Some(room), ..Memory::default() });
            assert_eq!(level(&Seen { cgroup, ..Seen::default() }, "control group"), expected);
        }
        assert_eq!(level(&Seen::default(), "control group"), Ok);
        let value = |seen: Seen| seen.limited().value;
        assert_eq!(value(Seen::default()), "no limit of memory");
        let hidden = value(Seen { cgroup_hidden: true, ..Seen::default() });
        assert!(hidden.contains("not known"), "{hidden}");
        let tightest = Some(Limit { bytes: 100, used: None, folder: "/g".into() });
        let unused =
            value(Seen { cgroup: Some(Memory { tightest, ..Memory::default() }), ..Seen::default() });
        assert!(unused.starts_with("at most 100 B, "), "{unused}");
        assert_eq!(level(&Seen { address_space: Some(1 << 30), ..Seen::default() }, "address space"), Note);
    }
}
