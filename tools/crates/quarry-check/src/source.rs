// SPDX-License-Identifier: MIT
//! The lines of source around a place, where the files are there.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use quarry_symbols::Frame;

/// A larger file is none that a person wrote.
const LARGEST: u64 = 4 << 20;
/// Files that are kept.
const FILES: usize = 64;
/// Characters of a line that are shown.
const WIDEST: usize = 160;
/// Lines before and behind the one.
const AROUND: (u32, u32) = (3, 2);

/// Reads source files, each once.
#[derive(Debug, Default)]
pub struct Sources {
    /// Folders that stand for the root of another machine.
    roots: Vec<PathBuf>,
    files: HashMap<String, Option<Vec<String>>>,
}

/// A line and its number.
pub type Numbered<'a> = (u32, &'a str);

impl Sources {
    /// Below these folders first.
    pub fn in_roots(roots: &[PathBuf]) -> Self {
        Self { roots: roots.to_vec(), files: HashMap::new() }
    }

    /// The line of a frame and five around it.
    pub fn around(&mut self, frame: &Frame) -> Vec<Numbered<'_>> {
        let (Some(file), Some(line)) = (&frame.file, frame.line) else { return Vec::new() };
        let Some(lines) = self.lines(file) else { return Vec::new() };
        let index = line as usize;
        if index == 0 || index > lines.len() {
            return Vec::new();
        }
        let first = line.saturating_sub(AROUND.0).max(1);
        let last = line.saturating_add(AROUND.1).min(lines.len() as u32);
        (first..=last).map(|number| (number, lines[number as usize - 1].as_str())).collect()
    }

    /// The line of a frame.
    pub fn line(&mut self, frame: &Frame) -> Option<&str> {
        let line = frame.line?;
        self.around(frame).into_iter().find(|(number, _)| *number == line).map(|(_, text)| text)
    }

    fn lines(&mut self, name: &str) -> Option<&[String]> {
        if self.files.len() >= FILES && !self.files.contains_key(name) {
            self.files.clear();
        }
        let roots = &self.roots;
        let read = || {
            let below = |root: &PathBuf| root.join(name.trim_start_matches('/'));
            let paths = roots.iter().map(below).chain([PathBuf::from(name)]);
            paths.into_iter().find_map(|path| read(&path))
        };
        self.files.entry(name.to_owned()).or_insert_with(read).as_deref()
    }
}

fn read(path: &Path) -> Option<Vec<String>> {
    let about = path.metadata().ok()?;
    // A pipe would be waited for.
    if !about.is_file() || about.len() > LARGEST {
        return None;
    }
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(LARGEST).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let clean = |line: &str| -> String {
        let line = line.replace('\t', "    ");
        line.chars().take(WIDEST).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
    };
    Some(text.lines().map(clean).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_lines_around_one() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.c");
        std::fs::write(&file, "1\n2\n\t3\n4\n5\n6\x1b\n7\n8\n").unwrap();
        let mut sources = Sources::default();
        let frame =
            |line| Frame { file: Some(file.to_str().unwrap().into()), line: Some(line), ..Frame::default() };
        let numbers = |lines: Vec<Numbered>| lines.iter().map(|(number, _)| *number).collect::<Vec<_>>();
        assert_eq!(numbers(sources.around(&frame(4))), [1, 2, 3, 4, 5, 6]);
        assert_eq!(numbers(sources.around(&frame(1))), [1, 2, 3]);
        assert_eq!(numbers(sources.around(&frame(8))), [5, 6, 7, 8]);
        assert_eq!(sources.line(&frame(3)), Some("    3"));
        assert_eq!(sources.line(&frame(6)), Some("6\u{fffd}"));
        assert!(sources.around(&frame(9)).is_empty() && sources.around(&frame(0)).is_empty());
        assert!(sources.around(&Frame::default()).is_empty());
        let mut below = Sources::in_roots(&[dir.path().to_owned()]);
        let moved = Frame { file: Some("/a.c".into()), line: Some(2), ..Frame::default() };
        assert_eq!(below.line(&moved), Some("2"));
    }
}
