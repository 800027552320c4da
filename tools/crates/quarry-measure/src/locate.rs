// SPDX-License-Identifier: MIT
//! Where libquarry-malloc.so is.

use std::env;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::peers::{self, Installed, Library};

/// The library's file name.
pub const NAME: &str = "libquarry-malloc.so";

/// The environment variable that names its directory.
pub const DIR_VARIABLE: &str = "QUARRY_LIB_DIR";

/// It is nowhere.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum Error {
    /// An explicit place was given, and it is not there: no other one is tried.
    #[error(
        "{path} does not exist, though {origin} names it; correct {origin} or build the library with `make`"
    )]
    Named {
        /// The file.
        path: String,
        /// Who named it.
        origin: &'static str,
    },
    /// It is in none of the usual places.
    #[error("{NAME} was not found; looked in: {}\nbuild it with `make`, or say where it is with --lib PATH or {DIR_VARIABLE}=DIR", .0.join(", "))]
    Nowhere(Vec<String>),
}

/// Find the library: the option, the environment, beside this executable, the build tree around it,
/// the system.
pub fn library(option: Option<&Path>) -> Result<Library, Error> {
    let directory = env::var_os(DIR_VARIABLE).filter(|d| !d.is_empty());
    if let Some(path) = option {
        return named(path.to_owned(), "--lib");
    }
    if let Some(directory) = directory {
        return named(Path::new(&directory).join(NAME), DIR_VARIABLE);
    }
    let exe = env::current_exe().unwrap_or_default();
    let near = beside(&exe);
    if let Some(found) = near.iter().map(|dir| dir.join(NAME)).find(|file| file.is_file()) {
        return Ok(Library::at(found));
    }
    Installed::scan().newest("libquarry-malloc").ok_or_else(|| {
        let system = peers::library_dirs().into_iter().filter(|dir| dir.is_dir());
        Error::Nowhere(near.into_iter().chain(system).map(|dir| dir.display().to_string()).collect())
    })
}

fn named(path: PathBuf, origin: &'static str) -> Result<Library, Error> {
    // The dynamic linker runs in whatever directory the program is in.
    match path.canonicalize() {
        Ok(_) => Ok(Library::at(std::path::absolute(&path).unwrap_or(path))),
        Err(_) => Err(Error::Named { path: path.display().to_string(), origin }),
    }
}

/// PREFIX/bin/quarry finds PREFIX/lib; an executable somewhere in a checkout finds its build/lib.
fn beside(exe: &Path) -> Vec<PathBuf> {
    let prefix = exe.parent().and_then(Path::parent);
    let multiarch = format!("lib/{}-linux-gnu", env::consts::ARCH);
    let installed = ["lib", "lib64", &multiarch];
    let installed = prefix.into_iter().flat_map(|p| installed.into_iter().map(|sub| p.join(sub)));
    let checkout = exe.ancestors().skip(3).take(4).filter(|dir| dir.join("tools/Cargo.toml").is_file());
    let built = checkout.map(|dir| dir.join("build/lib"));
    installed.chain(built).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn an_explicit_place_is_the_only_one() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(NAME);
        let error = library(Some(&file)).unwrap_err();
        assert!(matches!(error, Error::Named { origin: "--lib", .. }), "{error}");
        fs::write(&file, "").unwrap();
        assert_eq!(library(Some(&file)).unwrap().path, file);
    }

    #[test]
    fn the_prefix_and_the_checkout_are_searched() {
        let dir = tempfile::tempdir().unwrap();
        let exe = dir.path().join("build/cargo/release/quarry");
        assert!(beside(Path::new("/usr/bin/quarry")).contains(&PathBuf::from("/usr/lib")));
        assert!(!beside(&exe).contains(&dir.path().join("build/lib")));
        fs::create_dir_all(dir.path().join("tools")).unwrap();
        fs::write(dir.path().join("tools/Cargo.toml"), "").unwrap();
        assert!(beside(&exe).contains(&dir.path().join("build/lib")));
        assert!(beside(&dir.path().join("build/bin/quarry")).contains(&dir.path().join("build/lib")));
    }
}
