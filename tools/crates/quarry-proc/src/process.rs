// SPDX-License-Identifier: MIT
//! One process: what its files say, at the moment they are read.

use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use crate::cgroup::{self, Cgroup};
use crate::counters::Counters;
use crate::error::{self, ProcError};
use crate::limits::Limits;
use crate::mapping::Mapping;
use crate::mounts::{self, Mount};
use crate::root::Root;
use crate::smaps::{self, Damage};
use crate::stat::{Stat, Statm};
use crate::status::Status;
use crate::task::{self, Task, Tasks};
use crate::text;

/// Files of one process that are read as a whole are shorter.
const LONGEST: u64 = 16 << 20;
/// How often a thread that is running is looked at.
const LOOKS: usize = 3;

/// A process of a /proc, or a saved copy of its folder.
#[derive(Debug, Clone)]
pub struct Process {
    /// What its threads share is in here: it is of another thread once the first one has ended.
    folder: PathBuf,
    /// Its own, which is the first thread's.
    own: PathBuf,
    pid: Option<u32>,
    root: Root,
}

/// Read a regular file of at most so many bytes; what is longer is cut. Anything else might never end.
pub(crate) fn read_file(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    regular(path)?.take(most).read_to_end(&mut text)?;
    Ok(text)
}

fn regular(path: &Path) -> io::Result<File> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    File::open(path)
}

impl Process {
    pub(crate) fn new(own: PathBuf, pid: Option<u32>, root: Root) -> Self {
        let living = if root.live { living(&own) } else { None };
        Self { folder: living.unwrap_or_else(|| own.clone()), own, pid, root }
    }

    /// A saved folder, such as `cp -r /proc/PID` makes. What is not in it is unknown.
    pub fn saved(folder: &Path) -> Self {
        let mut process = Self::new(folder.to_owned(), None, Root::copy(folder));
        let stat = process.read("stat").ok().and_then(|text| Stat::parse(&text));
        process.pid = stat.map(|stat| stat.pid);
        process
    }

    /// Its number, if it is known.
    pub fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// Its folder. Once its first thread has ended: that of another one, where its memory still is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Is it a process of this machine, rather than a copy?
    pub fn is_live(&self) -> bool {
        self.root.live
    }

    /// stat.
    pub fn stat(&self) -> Result<Stat, ProcError> {
        self.parsed("stat", Stat::parse)
    }

    /// statm.
    pub fn statm(&self) -> Result<Statm, ProcError> {
        self.parsed("statm", Statm::parse)
    }

    /// status.
    pub fn status(&self) -> Result<Status, ProcError> {
        self.parsed("status", Status::parse)
    }

    /// Refuse one without memory, which needs no right.
    pub fn expect_memory(&self) -> Result<(), ProcError> {
        if self.statm()?.size == 0 { Err(self.without_memory("statm")) } else { Ok(()) }
    }

    /// limits.
    pub fn limits(&self) -> Result<Limits, ProcError> {
        Ok(Limits::parse(&self.read("limits")?))
    }

    /// Its short name.
    pub fn comm(&self) -> Result<String, ProcError> {
        Ok(name_of(&self.read("comm")?))
    }

    /// The words it was started with; none for a kernel thread.
    pub fn cmdline(&self) -> Result<Vec<String>, ProcError> {
        let text = self.read("cmdline")?;
        let text = text.strip_suffix(b"\0").unwrap_or(&text);
        Ok(if text.is_empty() {
            Vec::new()
        } else {
            text.split(|&byte| byte == 0).map(text::lossy).collect()
        })
    }

    /// smaps_rollup: the sums of all its mappings, counted by the kernel.
    pub fn rollup(&self) -> Result<Counters, ProcError> {
        let text = self.read("smaps_rollup")?;
        if text.is_empty() {
            return Err(self.without_memory("smaps_rollup"));
        }
        smaps::rollup(&text).ok_or_else(|| self.damaged("smaps_rollup"))
    }

    /// Each mapping of smaps, or of maps in a copy that has no smaps, and what could not be read of it.
    pub fn mappings(&self) -> Result<(Vec<Mapping>, Damage), ProcError> {
        match self.mappings_of("smaps") {
            Err(ProcError::Missing(_)) => self.mappings_of("maps"),
            other => other,
        }
    }

    fn mappings_of(&self, name: &'static str) -> Result<(Vec<Mapping>, Damage), ProcError> {
        let file = regular(&self.folder.join(name)).map_err(|error| self.error(name, error))?;
        let file = BufReader::with_capacity(256 << 10, file);
        let read = if self.is_live() { smaps::read_all(file) } else { smaps::read_saved(file) };
        let (mappings, damage) = read.map_err(|error| self.error(name, error))?;
        if mappings.is_empty() {
            return Err(self.without_memory(name));
        }
        Ok((mappings, damage))
    }

    /// Its threads. One that ends meanwhile is left out.
    pub fn tasks(&self) -> Result<Tasks, ProcError> {
        let folder = self.own.join("task");
        let entries = fs::read_dir(&folder).map_err(|error| self.error("task", error))?;
        let number = |entry: fs::DirEntry| text::decimal(entry.file_name().as_encoded_bytes());
        let mut tids: Vec<u32> =
            entries.flatten().filter_map(number).filter_map(|tid| u32::try_from(tid).ok()).collect();
        tids.sort_unstable();
        let mut tasks = Tasks::default();
        for tid in tids {
            let folder = folder.join(tid.to_string());
            let Ok(name) = read_file(&folder.join("comm"), LONGEST) else { continue };
            let name = if self.is_live() { name } else { text::without_returns(name) };
            let stack_pointer = self.stack_pointer(&folder, &mut tasks.denied);
            let name = name_of(&name);
            let ended = stack_pointer.is_none() && has_ended(&folder);
            tasks.list.push(Task { tid, name, stack_pointer, ended });
        }
        Ok(tasks)
    }

    fn stack_pointer(&self, task: &Path, denied: &mut bool) -> Option<u64> {
        for _ in 0..if self.root.live { LOOKS } else { 1 } {
            match read_file(&task.join("syscall"), 4096) {
                Ok(text) => {
                    if let Some(pointer) = task::stack_pointer(&text) {
                        return Some(pointer);
                    }
                }
                Err(error) => {
                    *denied |= is_denial(&error);
                    break;
                }
            }
        }
        let stat = Stat::parse(&read_file(&task.join("stat"), LONGEST).ok()?)?;
        Some(stat.stack_pointer).filter(|pointer| *pointer != 0)
    }

    /// The file systems it sees.
    pub fn mounts(&self) -> Result<Vec<Mount>, ProcError> {
        Ok(mounts::parse(&self.read("mountinfo")?))
    }

    /// Its control group for memory; `None` where there are none.
    pub fn cgroup(&self) -> Result<Option<Cgroup>, ProcError> {
        let Some((version, path)) = cgroup::membership(&self.read("cgroup")?) else { return Ok(None) };
        Ok(Some(cgroup::read(&self.root.cgroups, version, &path)))
    }

    /// A file that the process sees under this path, which is another one for us if it lives in a container.
    pub fn file_seen(&self, path: &str) -> PathBuf {
        let inside = self.folder.join("root").join(path.trim_start_matches('/'));
        if self.root.live && fs::metadata(&inside).is_ok() { inside } else { PathBuf::from(path) }
    }

    /// The file `name` of the folder, as bytes.
    pub fn read(&self, name: &'static str) -> Result<Vec<u8>, ProcError> {
        // Of a thread these say other things than of the process.
        let folder = if matches!(name, "stat" | "comm") { &self.own } else { &self.folder };
        let text = read_file(&folder.join(name), LONGEST).map_err(|error| self.error(name, error))?;
        // The words of a command are no lines.
        Ok(if self.is_live() || name == "cmdline" { text } else { text::without_returns(text) })
    }

    fn parsed<T>(&self, name: &'static str, parse: impl Fn(&[u8]) -> Option<T>) -> Result<T, ProcError> {
        let text = self.read(name)?;
        parse(&text).ok_or_else(|| self.damaged(name))
    }

    fn damaged(&self, name: &str) -> ProcError {
        let what = String::from("cannot be read: it is not what the kernel writes");
        ProcError::Damaged { file: self.folder.join(name), what }
    }

    /// The file is empty: the process has no memory, or none any more.
    fn without_memory(&self, name: &str) -> ProcError {
        match self.pid {
            Some(pid) if self.is_live() && !self.own.exists() => ProcError::Gone(pid),
            Some(pid) if self.is_live() => ProcError::NoMemory(pid),
            _ => ProcError::Damaged { file: self.folder.join(name), what: "no mappings in it".into() },
        }
    }

    /// What an error of the system means here.
    fn error(&self, name: &'static str, source: io::Error) -> ProcError {
        let file = self.folder.join(name);
        if is_denial(&source) {
            let needs = if name == "syscall" { error::TRACE } else { error::READ };
            return ProcError::Denied { file, needs };
        }
        let absent = source.kind() == io::ErrorKind::NotFound || source.raw_os_error() == Some(libc::ESRCH);
        match self.pid {
            Some(pid) if absent && self.is_live() && !self.own.exists() => ProcError::Gone(pid),
            Some(pid) if source.raw_os_error() == Some(libc::ESRCH) => ProcError::NoMemory(pid),
            _ if absent => ProcError::Missing(file),
            _ => ProcError::Io { file, source },
        }
    }
}

/// The folder of a thread that lives, where the first one has ended and the process has not.
pub(crate) fn living(process: &Path) -> Option<PathBuf> {
    let has_memory =
        |folder: &Path| read_file(&folder.join("statm"), 4096).is_ok_and(|text| !text.starts_with(b"0 "));
    if has_memory(process) {
        return None;
    }
    let threads = fs::read_dir(process.join("task")).ok()?;
    threads.flatten().map(|thread| thread.path()).find(|folder| has_memory(folder))
}

fn has_ended(thread: &Path) -> bool {
    let stat = read_file(&thread.join("stat"), LONGEST).ok().and_then(|text| Stat::parse(&text));
    stat.is_some_and(|stat| matches!(stat.state, 'Z' | 'X'))
}

/// What comm has: the name and a newline. All else is a part of the name, which may have blanks and newlines in it.
pub(crate) fn name_of(comm: &[u8]) -> String {
    text::lossy(comm.strip_suffix(b"\n").unwrap_or(comm))
}

fn is_denial(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM))
}

#[cfg(test)]
#[path = "process_tests.rs"]
mod tests;
