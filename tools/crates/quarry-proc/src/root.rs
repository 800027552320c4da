// SPDX-License-Identifier: MIT
//! A /proc: the machine's, or a copy of one.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::ProcError;
use crate::process::{Process, read_file};
use crate::{cgroup, mounts, sys, text};

/// A /proc and the control groups beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    pub(crate) path: PathBuf,
    pub(crate) cgroups: PathBuf,
    /// The machine's own, so that the kernel can be asked.
    pub(crate) live: bool,
}

/// The machine's memory, in bytes. What the kernel does not tell is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemInfo {
    /// All of it.
    pub total: Option<u64>,
    /// What programs could have without swapping.
    pub available: Option<u64>,
    /// Swap space.
    pub swap_total: Option<u64>,
    /// What of that is free.
    pub swap_free: Option<u64>,
    /// What may be promised at most (CommitLimit).
    pub commit_limit: Option<u64>,
    /// What is promised (Committed_AS).
    pub committed: Option<u64>,
}

/// How much more memory than there is the kernel promises: /proc/sys/vm/overcommit_memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overcommit {
    /// 0: refuses what obviously cannot be had.
    Heuristic,
    /// 1: refuses nothing.
    Always,
    /// 2: promises what it has, CommitLimit at most.
    Never,
}

impl Overcommit {
    /// As the kernel numbers it, and what that means.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Heuristic => "0, refuses what obviously cannot be had",
            Self::Always => "1, refuses nothing",
            Self::Never => "2, promises no more than CommitLimit",
        }
    }
}

impl Root {
    /// /proc.
    pub fn live() -> Self {
        Self { path: "/proc".into(), cgroups: "/sys/fs/cgroup".into(), live: true }
    }

    /// A copy of one: a folder with folders that are named by the numbers of processes. Control groups are looked for in
    /// a folder `cgroup` in it.
    pub fn copy(path: &Path) -> Self {
        Self { path: path.to_owned(), cgroups: path.join("cgroup"), live: false }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The processes, by number. Those that are hidden are not among them.
    pub fn pids(&self) -> Result<Vec<u32>, ProcError> {
        let entries =
            fs::read_dir(&self.path).map_err(|source| ProcError::Io { file: self.path.clone(), source })?;
        let number = |entry: fs::DirEntry| text::decimal(entry.file_name().as_encoded_bytes());
        let mut pids: Vec<u32> =
            entries.flatten().filter_map(number).filter_map(|pid| u32::try_from(pid).ok()).collect();
        pids.sort_unstable();
        Ok(pids)
    }

    /// A process that is there now.
    pub fn process(&self, pid: u32) -> Result<Process, ProcError> {
        let folder = self.path.join(pid.to_string());
        if fs::metadata(&folder).is_ok_and(|about| about.is_dir()) {
            return Ok(Process::new(folder, Some(pid), self.clone()));
        }
        // A process that can be sent signals, or could be with more rights, is there and not shown.
        let hidden = self.live && sys::exists(pid) && self.hides();
        Err(if hidden { ProcError::Hidden(pid) } else { ProcError::Gone(pid) })
    }

    /// Does it hide the processes of others?
    pub fn hides(&self) -> bool {
        let Ok(text) = read_file(&self.path.join("self/mountinfo"), 16 << 20) else { return false };
        let point = self.path.to_string_lossy();
        let hides =
            |option: &str| option.strip_prefix("hidepid=").is_some_and(|value| !matches!(value, "0" | "off"));
        mounts::parse(&text)
            .iter()
            .any(|mount| mount.kind == "proc" && mount.point == point && mount.options.split(',').any(hides))
    }

    /// The machine's memory.
    pub fn memory(&self) -> Result<MemInfo, ProcError> {
        let file = self.path.join("meminfo");
        let text = read_file(&file, 1 << 20).map_err(|source| ProcError::Io { file, source })?;
        let mut info = MemInfo::default();
        for line in text::lines(&text) {
            let Some(colon) = line.iter().position(|&byte| byte == b':') else { continue };
            let value = text::kilobytes(&line[colon + 1..]);
            match &line[..colon] {
                b"MemTotal" => info.total = value,
                b"MemAvailable" => info.available = value,
                b"SwapTotal" => info.swap_total = value,
                b"SwapFree" => info.swap_free = value,
                b"CommitLimit" => info.commit_limit = value,
                b"Committed_AS" => info.committed = value,
                _ => {}
            }
        }
        Ok(info)
    }

    /// How much more memory than there is the kernel promises.
    pub fn overcommit(&self) -> Option<Overcommit> {
        let text = read_file(&self.path.join("sys/vm/overcommit_memory"), 64).ok()?;
        match text.trim_ascii() {
            b"0" => Some(Overcommit::Heuristic),
            b"1" => Some(Overcommit::Always),
            b"2" => Some(Overcommit::Never),
            _ => None,
        }
    }

    /// Whether tasks of the machine wait for memory.
    pub fn pressure(&self) -> Option<cgroup::Pressure> {
        cgroup::pressure(&read_file(&self.path.join("pressure/memory"), 4096).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine() {
        let root = Root::live();
        assert!(root.pids().unwrap().contains(&std::process::id()));
        let memory = root.memory().unwrap();
        assert!(memory.total > memory.available && memory.committed.is_some());
        assert!(root.overcommit().is_some());
        assert!(root.process(0).unwrap_err().is_gone());
    }

    #[test]
    fn a_copy() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["12", "7", "x", "99999999999999"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        fs::create_dir(folder.path().join("self")).unwrap();
        let mountinfo =
            format!("1 2 0:21 / {} rw - proc proc rw,hidepid=invisible\n", folder.path().display());
        fs::write(folder.path().join("self/mountinfo"), mountinfo).unwrap();
        fs::write(folder.path().join("meminfo"), "MemTotal:  100 kB\nodd\n").unwrap();
        let root = Root::copy(folder.path());
        assert_eq!(root.pids().unwrap(), [7, 12]);
        assert!(root.hides());
        assert_eq!(root.memory().unwrap().total, Some(100 << 10));
        // Its processes cannot be asked for, whatever the machine has under that number.
        assert!(root.process(std::process::id()).unwrap_err().is_gone());
        assert_eq!(root.overcommit(), None);
    }
}
