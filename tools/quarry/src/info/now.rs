// SPDX-License-Identifier: MIT
//! Does the process go on whose trace has no end?

use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use quarry_proc::{Process, Root};
use quarry_report::info::Now;
use quarry_trace::Head;

/// What the process does that writes this trace, if it is there.
pub fn find(trace: &Path, head: &Head) -> Option<Now> {
    Processes::now().writer(trace, head)
}

/// The processes that are there, by the number that each knows itself by. In a PID namespace that is another number than here, and
/// a trace has that one.
pub struct Processes(HashMap<u32, Vec<Process>>);

impl Processes {
    /// Those of this moment.
    pub fn now() -> Self {
        let root = Root::live();
        let mut all: HashMap<u32, Vec<Process>> = HashMap::new();
        for pid in root.pids().unwrap_or_default() {
            let Ok(process) = root.process(pid) else { continue };
            let inner = process.status().ok().and_then(|status| u32::try_from(status.inner?).ok());
            all.entry(inner.unwrap_or(pid)).or_default().push(process);
        }
        Self(all)
    }

    /// What the process does that has the trace mapped. A number alone may be another process's by now.
    fn writer(&self, trace: &Path, head: &Head) -> Option<Now> {
        let inode = fs::metadata(trace).ok()?.ino();
        let process = self.of(head).find(|process| maps(process, inode) == Some(true))?;
        Some(match process.stat().ok()?.state {
            'T' | 't' => Now::Stopped,
            _ => Now::Runs,
        })
    }

    /// May there be one? A process of that number that may not be looked at is taken for it while it has memory.
    pub fn may_write(&self, trace: &Path, head: &Head) -> bool {
        let Ok(about) = fs::metadata(trace) else { return false };
        let may =
            |process: &Process| maps(process, about.ino()).unwrap_or_else(|| process.expect_memory().is_ok());
        self.of(head).any(may)
    }

    fn of(&self, head: &Head) -> impl Iterator<Item = &Process> {
        self.0.get(&head.process).into_iter().flatten()
    }
}

/// Has it this file mapped to write to? `None`: it may not be looked at. A recorder's file gets its name when it is mapped already, and is
/// shown without. Some file systems have one device for files and another for what is mapped.
fn maps(process: &Process, inode: u64) -> Option<bool> {
    let maps = match fs::read(process.folder().join("maps")) {
        Ok(maps) => maps,
        Err(error) => return (error.kind() != ErrorKind::PermissionDenied).then_some(false),
    };
    let inode = inode.to_string();
    let is_it = |line: &[u8]| {
        let mut fields = line.split(|&byte| byte == b' ').filter(|field| !field.is_empty());
        let (mode, of) = (fields.nth(1), fields.nth(2));
        mode.is_some_and(|mode| mode.ends_with(b"s")) && of == Some(inode.as_bytes())
    };
    Some(maps.split(|&byte| byte == b'\n').any(is_it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_alone_makes_no_writer() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let head = Head { process: std::process::id(), ..Head::default() };
        let processes = Processes::now();
        assert!(processes.of(&head).count() > 0);
        assert!(!processes.may_write(file.path(), &head) && processes.writer(file.path(), &head).is_none());
    }
}
