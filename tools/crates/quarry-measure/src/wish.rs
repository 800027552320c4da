// SPDX-License-Identifier: MIT
//! What users say when they name an allocator: `[LABEL=]NAME|PATH[:KEY:VALUE]...`.

use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::locate;
use crate::peers::{Installed, Library, PEERS};
use crate::preload::Conf;

/// The label of the system's own malloc.
pub const SYSTEM: &str = "system";
/// Another name for it.
const SYSTEM_TOO: &str = "glibc";
/// The label of our own heap.
pub const OURS: &str = "quarry";
/// malloc on a pow2 pool, which stands beside our heap.
const POW2: &str = "quarry-pow2";

/// An allocator that takes part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// How it is called in reports.
    pub name: String,
    /// The library to preload, `None` for the system's own malloc.
    pub library: Option<Library>,
    /// Options for QUARRY_CONF.
    pub conf: Conf,
}

impl Candidate {
    /// The system's own malloc.
    pub fn system() -> Self {
        Self { name: SYSTEM.to_owned(), library: None, conf: Conf::default() }
    }
}

/// Why a wish cannot be granted.
#[derive(Debug, Error)]
pub enum Error {
    /// It makes no sense.
    #[error("--with {wish}: {why}")]
    Senseless {
        /// What was said.
        wish: String,
        /// What is wrong with it.
        why: String,
    },
    /// A well-known allocator that is not there.
    #[error("{0} was asked for but is not installed; install it, or say --with {0}=PATH")]
    NotInstalled(String),
    /// A path where nothing is.
    #[error("--with {wish}: {path} is not a file")]
    NoFile {
        /// What was said.
        wish: String,
        /// The path in it.
        path: String,
    },
    /// Our own library is not there.
    #[error(transparent)]
    Ours(#[from] locate::Error),
}

impl Error {
    /// Was it the command line that was wrong, not the system?
    pub fn is_usage(&self) -> bool {
        matches!(self, Error::Senseless { .. })
    }
}

/// Find what `wish` names. `ours` is where our own heap was said to be, if it was.
pub fn grant(wish: &str, installed: &Installed, ours: Option<&Path>) -> Result<Candidate, Error> {
    let senseless = |why: String| Error::Senseless { wish: wish.to_owned(), why };
    let (label, rest) = match wish.split_once('=') {
        Some((label, rest)) if !label.is_empty() && !label.contains(['/', ':']) => (Some(label), rest),
        _ => (None, wish),
    };
    let (what, options) = rest.split_once(':').unwrap_or((rest, ""));
    let conf = conf_of(options).map_err(senseless)?;
    let (stem, library) = match what {
        SYSTEM | SYSTEM_TOO => (what.to_owned(), None),
        OURS => (what.to_owned(), Some(locate::library(ours)?)),
        POW2 => (what.to_owned(), Some(locate::companion("libquarry-pow2.so", ours)?)),
        _ => match PEERS.iter().find(|peer| peer.name == what) {
            Some(peer) => {
                let library = installed.find(peer).ok_or_else(|| Error::NotInstalled(what.to_owned()))?;
                (what.to_owned(), Some(library))
            }
            None if !what.contains('/') && !what.contains(".so") && label.is_none() => {
                let names = PEERS.map(|peer| peer.name).join(", ");
                return Err(senseless(format!(
                    "not the name of an allocator ({SYSTEM}, {OURS}, {POW2}, {names}) nor a path"
                )));
            }
            None => from_path(wish, Path::new(what))?,
        },
    };
    // Options belong to the name, or two of them could not be told apart.
    let name = match (label, options) {
        (Some(label), _) => label.to_owned(),
        (None, "") => stem,
        (None, options) => format!("{stem}:{options}"),
    };
    Ok(Candidate { name, library, conf })
}

/// KEY:VALUE:KEY:VALUE
fn conf_of(options: &str) -> Result<Conf, String> {
    let words: Vec<&str> = options.split(':').collect();
    let mut conf = Conf::default();
    if options.is_empty() {
        return Ok(conf);
    }
    for pair in words.chunks(2) {
        match pair {
            [key, value] if !key.is_empty() => conf.set(key, value),
            _ => return Err(format!("'{options}' is not of the form KEY:VALUE or KEY:VALUE:KEY:VALUE")),
        }
    }
    Ok(conf)
}

fn from_path(wish: &str, path: &Path) -> Result<(String, Option<Library>), Error> {
    if !path.is_file() {
        return Err(Error::NoFile { wish: wish.to_owned(), path: path.display().to_string() });
    }
    // The dynamic linker looks up a bare name elsewhere, and from where the program is.
    let path: PathBuf = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let stem = file.split(".so").next().unwrap_or(&file).to_owned();
    Ok((stem, Some(Library::at(path))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn granted(wish: &str) -> Result<Candidate, Error> {
        grant(wish, &Installed::scan(), None)
    }

    fn library() -> (tempfile::TempDir, String) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("libfoo.so.1.2");
        std::fs::write(&path, "").unwrap();
        let path = path.to_str().unwrap().to_owned();
        (dir, path)
    }

    #[test]
    fn libraries_are_labelled_by_stem_or_wish() {
        let (_dir, path) = library();
        let plain = granted(&path).unwrap();
        assert_eq!(plain.name, "libfoo");
        assert_eq!(plain.library.unwrap().version.as_deref(), Some("1.2"));
        assert_eq!(granted(&format!("old={path}")).unwrap().name, "old");
    }

    #[test]
    fn options_stand_behind_the_name() {
        let (_dir, path) = library();
        let one = granted(&format!("{path}:a:1")).unwrap();
        assert_eq!((one.name.as_str(), one.conf.to_string().as_str()), ("libfoo:a:1", "a:1"));
        let two = granted(&format!("x={path}:a:1:b:2")).unwrap();
        assert_eq!((two.name.as_str(), two.conf.to_string().as_str()), ("x", "a:1,b:2"));
        assert_eq!(two.library.unwrap().path, Path::new(&path));
        assert!(granted(&format!("{path}:a")).unwrap_err().is_usage());
        assert!(granted(&format!("{path}::1")).unwrap_err().is_usage());
    }

    #[test]
    fn the_systems_malloc_has_two_names() {
        assert_eq!(granted("system").unwrap(), Candidate::system());
        assert_eq!(granted("glibc").unwrap().library, None);
        assert_eq!(granted("tuned=system:a:1").unwrap().name, "tuned");
    }

    #[test]
    fn nonsense_is_told_from_absence() {
        assert!(granted("fooalloc").unwrap_err().is_usage());
        assert!(granted("").unwrap_err().is_usage());
        assert!(!granted("/no/such/lib.so").unwrap_err().is_usage());
        assert!(!granted("a=nothing").unwrap_err().is_usage());
    }
}
