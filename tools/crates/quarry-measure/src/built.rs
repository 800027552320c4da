// SPDX-License-Identifier: MIT
//! The mallocs that `make peers` has built from their newest sources, as its list tells.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use thiserror::Error;

use crate::locate;

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Built {
    /// What users call it.
    pub name: String,
    /// Of its sources.
    pub version: String,
    /// What the compiler was told.
    #[serde(default, deserialize_with = "words")]
    pub flags: String,
    /// The library; relative to the list.
    pub path: PathBuf,
}

/// The list cannot be used.
#[derive(Debug, Error)]
#[error("{path}: {why}; make it anew with `make peers`, or remove it")]
pub struct Error {
    /// The list.
    path: String,
    /// What is wrong.
    why: String,
}

/// Flags are a text, or a list of texts.
fn words<'de, D: serde::Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Words {
        One(String),
        Many(Vec<String>),
    }
    Ok(match Words::deserialize(from)? {
        Words::One(text) => text,
        Words::Many(words) => words.join(" "),
    })
}

#[derive(Deserialize)]
#[serde(untagged)]
enum List {
    Named { peers: Vec<Built> },
    Plain(Vec<Built>),
}

/// Those that have been built and are still there; none without a list.
pub fn scan() -> Result<Vec<Built>, Error> {
    locate::peers_list().map_or_else(|| Ok(Vec::new()), |path| read(&path))
}

/// Those that this list names, as far as they are there.
pub fn read(path: &Path) -> Result<Vec<Built>, Error> {
    let error = |why: String| Error { path: path.display().to_string(), why };
    let text = fs::read_to_string(path).map_err(|e| error(e.to_string()))?;
    let list: List = serde_json::from_str(&text).map_err(|e| error(e.to_string()))?;
    let (List::Named { peers } | List::Plain(peers)) = list;
    let folder = path.parent().unwrap_or(Path::new("."));
    let absolute = |built: Built| {
        let path = folder.join(&built.path);
        Built { path: fs::canonicalize(&path).unwrap_or(path), ..built }
    };
    Ok(peers.into_iter().map(absolute).filter(|built| built.path.is_file()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_in_both_forms() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        file("liba.so", "");
        let one = r#"{"name": "a", "version": "1.2", "flags": ["-O3", "-DX"], "path": "liba.so", "more": 1}"#;
        let gone = r#"{"name": "b", "version": "2", "path": "libb.so"}"#;
        for text in [format!("[{one}, {gone}]"), format!(r#"{{"peers": [{one}]}}"#)] {
            let found = read(&file("peers.json", &text)).unwrap();
            assert_eq!(found.len(), 1);
            assert_eq!((found[0].name.as_str(), found[0].flags.as_str()), ("a", "-O3 -DX"));
            assert!(found[0].path.is_absolute() && found[0].path.ends_with("liba.so"));
        }
        let error = read(&file("peers.json", "{}")).unwrap_err().to_string();
        assert!(error.contains("make peers"), "{error}");
    }
}
