// SPDX-License-Identifier: MIT
//! The folder that checked processes write to, each into a file of its own, while we read.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use quarry_check::finding::Source;
use quarry_check::lines::Lines;

use super::show::is_raw;

/// Bytes that are read at once.
const PIECE: usize = 64 << 10;
/// Most files.
const MOST: usize = 10_000;
/// The ending of the files.
const ENDING: &str = "check";

/// A file that grows.
pub struct Growing {
    file: File,
    pub lines: Lines,
    pub source: Source,
}

impl Growing {
    /// A link or a pipe is none of ours: a checked program may have put it there.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .custom_flags((rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::CLOEXEC).bits() as i32)
            .open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("is no regular file"));
        }
        Ok(Self { file, lines: Lines::default(), source: Source::default() })
    }

    /// Read what is new. `each` gets the lines.
    pub fn read(&mut self, mut each: impl FnMut(&mut Source, &[u8])) -> io::Result<()> {
        let mut piece = vec![0; PIECE];
        loop {
            let length = match self.file.read(&mut piece) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                length => length?,
            };
            if length == 0 {
                return Ok(());
            }
            let source = &mut self.source;
            self.lines.take(&piece[..length], |line| each(source, line));
        }
    }
}

/// All files of a folder.
pub struct Folder {
    path: PathBuf,
    files: BTreeMap<PathBuf, io::Result<Growing>>,
}

impl Folder {
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), files: BTreeMap::new() }
    }

    /// Read what is new in all files. `each` gets the lines, and those of one file in their order.
    pub fn read(&mut self, mut each: impl FnMut(&mut Source, &[u8])) -> io::Result<()> {
        for entry in fs::read_dir(&self.path)?.flatten() {
            let path = entry.path();
            let is_new = !self.files.contains_key(&path) && self.files.len() < MOST;
            let is_file = || entry.file_type().is_ok_and(|kind| kind.is_file());
            if is_new && path.extension().is_some_and(|ending| ending == ENDING) && is_file() {
                let file = Growing::open(&path);
                self.files.insert(path, file);
            }
        }
        for file in self.files.values_mut().flatten() {
            file.read(&mut each)?;
        }
        Ok(())
    }

    /// An error for a file that cannot be opened or is no report, and where there is none at all.
    pub fn whole(&self) -> Result<(), String> {
        if self.files.is_empty() {
            return Err(format!(
                "has no raw report of quarry check (*.{ENDING}); --keep makes them, and packed ones must be unpacked"
            ));
        }
        for (path, file) in &self.files {
            let name = path.display();
            // A process that was killed at once has an empty one.
            let about = file.as_ref().map_err(|error| format!("{name}: {error}"))?.file.metadata();
            if about.is_ok_and(|about| about.len() > 0) && !is_raw(path) {
                return Err(format!("{name} is no raw report"));
            }
        }
        Ok(())
    }

    /// Bytes of lines whose end is missing, and lines that were too long.
    pub fn left(&self) -> (usize, u64) {
        let all = || self.files.values().flatten();
        (all().map(|file| file.lines.unfinished()).sum(), all().map(|file| file.lines.too_long()).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn files_are_read_as_they_grow() {
        let dir = tempfile::tempdir().unwrap();
        let (mut folder, mut all) = (Folder::new(dir.path()), Vec::new());
        let mut read = |folder: &mut Folder| {
            all.clear();
            folder.read(|_, line| all.push(String::from_utf8_lossy(line).into_owned())).unwrap();
            all.clone()
        };
        assert!(read(&mut folder).is_empty());
        let mut file = File::create(dir.path().join("1.1.check")).unwrap();
        fs::write(dir.path().join("other.txt"), "no\n").unwrap();
        std::os::unix::fs::symlink("/dev/zero", dir.path().join("2.1.check")).unwrap();
        file.write_all(b"one\ntw").unwrap();
        assert_eq!(read(&mut folder), ["one"]);
        file.write_all(b"o\n").unwrap();
        fs::write(dir.path().join("3.1.check"), "three\nrest").unwrap();
        assert_eq!(read(&mut folder), ["two", "three"]);
        assert_eq!(folder.left(), (4, 0));
    }
}
