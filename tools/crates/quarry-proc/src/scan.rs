// SPDX-License-Identifier: MIT
//! All processes of a /proc at once, at the least cost: two short files of each, and no more.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use crate::error::ProcError;
use crate::root::Root;
use crate::stat::{Stat, Statm};

/// Neither file is longer: 52 and 7 numbers of at most 20 digits, and a name of 15 bytes.
const LONGEST: usize = 4096;

/// What is known of a process without asking for more than anybody may know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Brief {
    /// The process.
    pub pid: u32,
    /// What its files say.
    pub facts: Result<(Stat, Statm), Unread>,
}

/// Why a process that is there cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unread {
    /// The kernel does not show it to us (hidepid).
    Denied,
    /// It is not what the kernel writes, or half of it is missing.
    Damaged,
}

/// Reads all processes again and again. Each costs six system calls: two files are opened, read once and closed.
#[derive(Debug)]
pub struct Scanner {
    root: Root,
    path: PathBuf,
    buffer: Box<[u8; LONGEST]>,
}

impl Scanner {
    /// Of this /proc.
    pub fn new(root: Root) -> Self {
        Self { path: root.path().to_owned(), root, buffer: Box::new([0; LONGEST]) }
    }

    /// The /proc.
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// Every process that is there now, by number; `wanted` may leave some out before they cost anything. Those that end
    /// meanwhile are left out.
    pub fn scan(&mut self, wanted: impl Fn(u32) -> bool) -> Result<Vec<Brief>, ProcError> {
        let mut pids = self.root.pids()?;
        // A folder that is not the kernel's may show a name twice while it changes.
        pids.dedup();
        Ok(pids.into_iter().filter(|&pid| wanted(pid)).filter_map(|pid| self.one(pid)).collect())
    }

    /// One process; `None` if it is gone.
    pub fn one(&mut self, pid: u32) -> Option<Brief> {
        self.path.push(pid.to_string());
        let stat = self.file("stat", Stat::parse);
        let statm = self.file("statm", Statm::parse);
        self.path.pop();
        let facts = match (stat, statm) {
            (Found::Gone, _) | (_, Found::Gone) => return None,
            (Found::There(stat), Found::There(statm)) if stat.pid == pid => {
                // Its first thread may have ended before the others.
                let lives = stat.state == 'Z' && stat.threads > 1;
                let of_others = || self.root.process(pid).and_then(|process| process.statm()).ok();
                let others = if lives { of_others() } else { None };
                Ok((stat, others.unwrap_or(statm)))
            }
            (Found::Denied, _) | (_, Found::Denied) => Err(Unread::Denied),
            _ => Err(Unread::Damaged),
        };
        Some(Brief { pid, facts })
    }

    fn file<T>(&mut self, name: &str, parse: impl Fn(&[u8]) -> Option<T>) -> Found<T> {
        self.path.push(name);
        // In a copy it may be anything; a pipe must not make us wait.
        let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&self.path);
        self.path.pop();
        let read = opened.and_then(|mut file| file.read(&mut self.buffer[..]));
        match read {
            Ok(length) => parse(&self.buffer[..length]).map_or(Found::Damaged, Found::There),
            Err(error) => Found::of(&error),
        }
    }
}

enum Found<T> {
    There(T),
    Gone,
    Denied,
    Damaged,
}

impl<T> Found<T> {
    fn of(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::ESRCH | libc::ENOTDIR) => Self::Gone,
            Some(libc::EACCES | libc::EPERM) => Self::Denied,
            _ => Self::Damaged,
        }
    }
}

#[cfg(test)]
#[path = "scan_tests.rs"]
mod tests;
