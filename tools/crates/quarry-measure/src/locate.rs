// SPDX-License-Identifier: MIT
//! Where libquarry-malloc.so is, and what is installed beside it.

use std::env;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::elf;
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
    /// It is there, and is something else.
    #[error("{path}, which {origin} names, is no shared library")]
    NoLibrary {
        /// The file.
        path: String,
        /// Who named it.
        origin: &'static str,
    },
    /// It is in none of the usual places.
    #[error("{NAME} was not found; looked in: {}\nbuild it with `make`, or say where it is with --lib PATH or {DIR_VARIABLE}=DIR", .0.join(", "))]
    Nowhere(Vec<String>),
    /// The same of a file that is installed with the library.
    #[error("{name} was not found; looked in: {}\nbuild it with `make`, or name the directory of the libraries with {DIR_VARIABLE}=DIR", .looked.join(", "))]
    Companion {
        /// The file.
        name: String,
        /// The directories.
        looked: Vec<String>,
    },
}

/// An error that names the file if it is gone: without a library that it is to load, a program is run all the same, on the
/// system's malloc.
pub fn still_there(file: &Path) -> io::Result<()> {
    match file.metadata() {
        Ok(_) => Ok(()),
        Err(error) => Err(io::Error::new(error.kind(), format!("{}: {error}", file.display()))),
    }
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

/// Another library of ours: beside the one that `option` names, or where the library itself is looked for.
pub fn companion(name: &str, option: Option<&Path>) -> Result<Library, Error> {
    let beside_option = option.and_then(Path::parent).map(Path::to_owned);
    let found = nearby(beside_option, "", name);
    found
        .or_else(|error| {
            let stem = name.split(".so").next().unwrap_or(name);
            Installed::scan().newest(stem).ok_or(error).map(|library| library.path)
        })
        .map(Library::at)
}

/// The program that plays traces: in libexec/quarry of the prefix, or quarry/ in the directory of the libraries.
pub fn replayer() -> Result<PathBuf, Error> {
    let name = "quarry-replayer";
    let exe = env::current_exe().unwrap_or_default();
    let installed = exe.parent().and_then(Path::parent).map(|prefix| prefix.join("libexec/quarry"));
    let explicit = env::var_os(DIR_VARIABLE).is_some_and(|d| !d.is_empty());
    match installed.map(|dir| dir.join(name)).filter(|file| !explicit && file.is_file()) {
        Some(file) => Ok(file),
        None => nearby(None, "quarry", name),
    }
}

/// A program of the benchmarks: in quarry/bench of the directory of the libraries.
pub fn bench_program(name: &str) -> Result<PathBuf, Error> {
    nearby(None, "quarry/bench", name)
}

/// What `quarry bench suite` starts runs with: in quarry/suite of the directory of the libraries.
pub fn suite_part(name: &str) -> Result<PathBuf, Error> {
    nearby(None, "quarry/suite", name)
}

/// A script or data file of the benchmarks: beside the programs, or in bench/ of the checkout around this executable.
pub fn bench_file(name: &str) -> Result<PathBuf, Error> {
    nearby(None, "quarry/bench", name).or_else(|error| {
        let exe = env::current_exe().unwrap_or_default();
        let mut roots = exe.ancestors().filter(|dir| dir.join("tools/Cargo.toml").is_file());
        let found = roots.next().map(|root| root.join("bench").join(name));
        found.filter(|file| file.is_file()).ok_or(error)
    })
}

/// The folder of the tour's chapters: quarry/tour in the directory of the libraries.
pub fn tour_folder() -> Result<PathBuf, Error> {
    // The header is there whatever the chapters are.
    let header = nearby(None, "quarry/tour", "tour.h")?;
    Ok(header.parent().map(Path::to_owned).unwrap_or_default())
}

/// The list of the mallocs that `make peers` has built, where there is one.
pub fn peers_list() -> Option<PathBuf> {
    nearby(None, "../peers", "peers.json").or_else(|_| nearby(None, "quarry/peers", "peers.json")).ok()
}

/// The file `name` in the folder `sub` of one of the library's directories.
fn nearby(first: Option<PathBuf>, sub: &str, name: &str) -> Result<PathBuf, Error> {
    let directory = env::var_os(DIR_VARIABLE).filter(|d| !d.is_empty()).map(PathBuf::from);
    let exe = env::current_exe().unwrap_or_default();
    // An explicit place is the only one.
    let directories: Vec<PathBuf> = match directory {
        Some(directory) => first.into_iter().chain([directory]).collect(),
        None => first.into_iter().chain(beside(&exe)).collect(),
    };
    let looked = || directories.iter().map(|dir| dir.join(sub));
    let found = looked().map(|dir| dir.join(name)).find(|file| file.is_file());
    found.map(|file| std::path::absolute(&file).unwrap_or(file)).ok_or_else(|| Error::Companion {
        name: name.to_owned(),
        looked: looked().map(|dir| dir.display().to_string()).collect(),
    })
}

fn named(path: PathBuf, origin: &'static str) -> Result<Library, Error> {
    // The dynamic linker runs in whatever directory the program is in.
    match path.canonicalize() {
        Ok(_) if !elf::is_library(&path) => {
            Err(Error::NoLibrary { path: path.display().to_string(), origin })
        }
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
        fs::write(&file, "no library").unwrap();
        let error = library(Some(&file)).unwrap_err();
        assert!(matches!(error, Error::NoLibrary { origin: "--lib", .. }), "{error}");
        fs::copy("/proc/self/exe", &file).unwrap();
        assert_eq!(library(Some(&file)).unwrap().path, file);
    }

    #[test]
    fn companions_are_found_beside_the_library_that_was_named() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("libx-y.so"), "").unwrap();
        let named = dir.path().join(NAME);
        assert_eq!(companion("libx-y.so", Some(&named)).unwrap().path, dir.path().join("libx-y.so"));
        let error = companion("libx-z.so", Some(&named)).unwrap_err();
        assert!(matches!(&error, Error::Companion { looked, .. } if !looked.is_empty()), "{error}");
    }

    #[test]
    fn programs_that_are_not_there_are_told_with_the_places() {
        let error = bench_program("no-such-program").unwrap_err();
        assert!(error.to_string().contains("quarry/bench"), "{error}");
        assert!(bench_file("no-such-file").is_err());
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
