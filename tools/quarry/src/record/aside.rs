// SPDX-License-Identifier: MIT
//! Older traces whose names are wanted: out of the way, and back if nothing comes of it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use tempfile::TempDir;

/// Files in a directory of their own, beside where they belong. Dropped, it puts them back.
pub struct Aside {
    /// `None` when there is nothing in it.
    folder: Option<TempDir>,
    /// Where each belongs, and where it is.
    moved: Vec<(PathBuf, PathBuf)>,
}

impl Aside {
    /// Move these files of `directory` out of the way; all of them or none.
    pub fn of(directory: &Path, files: Vec<PathBuf>) -> anyhow::Result<Self> {
        let mut aside = Self { folder: None, moved: Vec::new() };
        let Some(first) = files.first() else { return Ok(aside) };
        let folder = tempfile::Builder::new().prefix(".quarry-").tempdir_in(directory);
        let folder = folder.with_context(|| format!("cannot replace {}", first.display()))?;
        let within = aside.folder.insert(folder).path().to_owned();
        for file in files {
            let there = within.join(aside.moved.len().to_string());
            fs::rename(&file, &there).with_context(|| format!("cannot replace {}", file.display()))?;
            aside.moved.push((file, there));
        }
        Ok(aside)
    }

    /// They are replaced.
    pub fn remove(mut self) {
        // With the directory.
        self.moved.clear();
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        let mut stuck = false;
        for (place, there) in &self.moved {
            stuck |= fs::rename(there, place).is_err();
        }
        if let Some(folder) = self.folder.take_if(|_| stuck) {
            // Better there than nowhere.
            let _ = folder.keep();
        }
    }
}
