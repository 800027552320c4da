// SPDX-License-Identifier: MIT
//! The folder that checked processes write to, each into a file of its own, while we read.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use quarry_check::finding::{PROCESSES, Source};
use quarry_check::lines::Lines;

use super::show::is_raw;

/// Bytes that are read at once.
const PIECE: usize = 64 << 10;
/// The ending of the files.
const ENDING: &str = "check";

/// A file that grows. It is open only while it is read: more processes may be checked than files may be open.
pub struct Growing {
    path: PathBuf,
    /// Bytes that were read.
    at: u64,
    pub lines: Lines,
    pub source: Source,
}

/// A link or a pipe is none of ours: a checked program may have put it there.
fn regular(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags((rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::CLOEXEC).bits() as i32)
        .open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("is no regular file")) }
}

impl Growing {
    fn new(path: PathBuf) -> Self {
        Self { path, at: 0, lines: Lines::default(), source: Source::default() }
    }

    /// One that is there.
    pub fn open(path: &Path) -> io::Result<Self> {
        regular(path).map(|_| Self::new(path.to_owned()))
    }

    /// Read what is new. `each` gets the lines.
    pub fn read(&mut self, mut each: impl FnMut(&mut Source, &[u8])) -> io::Result<()> {
        let length = match self.path.metadata() {
            // It was removed, and so has nothing new.
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            about => about?.len(),
        };
        if length <= self.at {
            return Ok(());
        }
        let mut file = regular(&self.path)?;
        file.seek(SeekFrom::Start(self.at))?;
        let mut piece = vec![0; PIECE];
        loop {
            let length = match file.read(&mut piece) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                length => length?,
            };
            if length == 0 {
                return Ok(());
            }
            self.at += length as u64;
            let source = &mut self.source;
            self.lines.take(&piece[..length], |line| each(source, line));
        }
    }
}

/// All files of a folder.
pub struct Folder {
    path: PathBuf,
    files: BTreeMap<PathBuf, Growing>,
    /// Files that are not read, since there are too many.
    beyond: u64,
}

impl Folder {
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), files: BTreeMap::new(), beyond: 0 }
    }

    /// Read what is new in all files. `each` gets the lines, and those of one file in their order. An error is that of
    /// one file; the others are read.
    pub fn read(&mut self, mut each: impl FnMut(&mut Source, &[u8])) -> io::Result<()> {
        self.beyond = 0;
        for entry in fs::read_dir(&self.path)?.flatten() {
            let path = entry.path();
            let is_new = !self.files.contains_key(&path);
            let is_file = || entry.file_type().is_ok_and(|kind| kind.is_file());
            if is_new && path.extension().is_some_and(|ending| ending == ENDING) && is_file() {
                if self.files.len() < PROCESSES {
                    self.files.insert(path.clone(), Growing::new(path));
                } else {
                    self.beyond += 1;
                }
            }
        }
        let mut result = Ok(());
        for (path, file) in &mut self.files {
            let read = file.read(&mut each);
            result = result.and(read.map_err(|error| named(path, &error)));
        }
        result
    }

    /// Files that were not read, since there are too many.
    pub fn beyond(&self) -> u64 {
        self.beyond
    }

    /// An error for a file that is no report, and where there is none at all.
    pub fn whole(&self) -> Result<(), String> {
        if self.files.is_empty() {
            return Err(format!(
                "has no raw report of quarry check (*.{ENDING}); --keep makes them, and packed ones must be unpacked"
            ));
        }
        // A process that was killed at once has an empty one.
        match self.files.values().find(|file| file.at > 0 && !is_raw(&file.path)) {
            Some(file) => Err(format!("{} is no raw report", file.path.display())),
            None => Ok(()),
        }
    }

    /// Bytes of lines whose end is missing, and lines that were too long.
    pub fn left(&self) -> (usize, u64) {
        let all = || self.files.values();
        (all().map(|file| file.lines.unfinished()).sum(), all().map(|file| file.lines.too_long()).sum())
    }
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    let name = Path::new(path.file_name().unwrap_or_default());
    io::Error::new(error.kind(), format!("{}: {error}", name.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn no_file_stays_open() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..50 {
            fs::write(dir.path().join(format!("{number}.1.check")), "one\n").unwrap();
        }
        let (mut folder, mut lines) = (Folder::new(dir.path()), 0);
        folder.read(|_, _| lines += 1).unwrap();
        let files = fs::read_dir("/proc/self/fd").unwrap().flatten();
        let open =
            files.filter_map(|file| fs::read_link(file.path()).ok()).filter(|to| to.starts_with(dir.path()));
        assert_eq!((lines, open.count()), (50, 0));
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named_and_the_others_are_read() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["1.1.check", "2.1.check", "3.1.check"] {
            fs::write(dir.path().join(name), "one\n").unwrap();
        }
        let (mut folder, mut lines) = (Folder::new(dir.path()), 0);
        folder.read(|_, _| lines += 1).unwrap();
        let second = dir.path().join("2.1.check");
        fs::remove_file(&second).unwrap();
        std::os::unix::fs::symlink("2.1.check", &second).unwrap();
        fs::write(dir.path().join("3.1.check"), "one\ntwo\n").unwrap();
        let error = folder.read(|_, _| lines += 1).unwrap_err().to_string();
        assert!(error.starts_with("2.1.check: "), "{error}");
        assert_eq!(lines, 4);
    }

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
