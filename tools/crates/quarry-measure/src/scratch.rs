// SPDX-License-Identifier: MIT
//! A temporary file that other programs are given by a path, and that is in no folder.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// Nothing is left of it, whatever ends us, SIGKILL too: it is there as long as we have it open.
#[derive(Debug)]
pub struct Scratch {
    file: File,
    path: PathBuf,
}

impl Scratch {
    /// An empty one, on the disk of TMPDIR.
    pub fn new() -> io::Result<Self> {
        let file = tempfile::tempfile()?;
        // Of our process, not of who asks: what we start does not have it open, and need not.
        let path = PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()));
        Ok(Self { file, path })
    }

    /// Where programs of this user find it. To open it gives a description with a position of its own.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// As we have it open.
    pub fn file(&self) -> &File {
        &self.file
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;

    #[test]
    fn programs_read_and_write_it() {
        let scratch = Scratch::new().unwrap();
        fs::write(scratch.path(), "something longer").unwrap();
        let status = Command::new("sh").args(["-c", "echo hello > \"$0\""]).arg(scratch.path()).status();
        assert!(status.unwrap().success());
        assert_eq!(fs::read_to_string(scratch.path()).unwrap(), "hello\n");
        let again = Command::new("cat").arg(scratch.path()).output().unwrap();
        assert_eq!(again.stdout, b"hello\n");
        let path = scratch.path().to_owned();
        drop(scratch);
        assert!(fs::read_to_string(path).is_err());
    }
}
