// SPDX-License-Identifier: MIT
//! The mallocs that take part in a suite, and what each is.

use std::fs;
use std::path::Path;

use anyhow::Context;
use indexmap::IndexMap;
use quarry_bench::suite::launch::{self, Malloc};
use quarry_bench::suite::runs::Place;
use quarry_bench::suite::samples::{Library, Record, SCHEMA, Visits};
use quarry_bench::suite::sums::{OURS, SYSTEM, is_peer};
use quarry_measure::built::{self, Built};
use quarry_measure::machine::{self, Machine};
use quarry_measure::peers::{Installed, PEERS};
use quarry_measure::{live, locate, packages, preload};

use super::SuiteOptions;
use crate::failure;
use crate::output::Output;

/// The mallocs at hand by name, ours first. Each must serve malloc.
pub fn find(options: &SuiteOptions, output: &Output) -> anyhow::Result<IndexMap<String, Malloc>> {
    let mut found = at_hand(options)?;
    if !options.only.is_empty() {
        if let Some(name) = options.only.iter().find(|name| !found.contains_key(*name)) {
            let all: Vec<&str> = found.keys().map(String::as_str).collect();
            return Err(failure::usage(format!("not found: {name}; found: {}", all.join(", "))));
        }
        found.retain(|name, _| options.only.contains(name));
    }
    found.sort_by_cached_key(|name, _| is_peer(name));
    for (name, malloc) in &found {
        let Some(path) = &malloc.path else { continue };
        output.detail(format_args!("{name}: LD_PRELOAD={}", path.display()));
        must_serve(path).with_context(|| name.clone())?;
    }
    Ok(found)
}

fn at_hand(options: &SuiteOptions) -> anyhow::Result<IndexMap<String, Malloc>> {
    let mut found = IndexMap::from([(SYSTEM.to_owned(), Malloc::default())]);
    let mut enter = |name: &str, path: &Path, variables| -> anyhow::Result<()> {
        let path = path.canonicalize().with_context(|| path.display().to_string())?;
        // LD_PRELOAD cannot hold every path.
        preload::ld_preload(&path, None).map_err(failure::failed)?;
        found.insert(name.to_owned(), Malloc { path: Some(path), variables });
        Ok(())
    };
    match locate::library(options.lib.as_deref()) {
        Ok(library) => enter(OURS, &library.path, IndexMap::new())?,
        // A comparison of others does not need ours.
        Err(_) if !options.only.is_empty() && !options.only.iter().any(|name| name == OURS) => {}
        Err(error) => return Err(failure::failed(error)),
    }
    let installed = Installed::scan();
    for peer in PEERS {
        if let Some(library) = installed.find(&peer) {
            enter(peer.name, &library.path, IndexMap::new())?;
        }
    }
    for built in built_peers(options)? {
        enter(&built.name, &built.path, IndexMap::new())?;
    }
    for wish in &options.with {
        let (name, path, variables) = parts(wish)
            .ok_or_else(|| failure::usage(format!("--with {wish}: not NAME=PATH[,VARIABLE=VALUE]...")))?;
        if !Path::new(path).is_file() {
            return Err(failure::failed(format!("--with {wish}: {path} is not a file")));
        }
        enter(name, Path::new(path), variables)?;
    }
    Ok(found)
}

/// The name, the library and the variables of a wish.
fn parts(wish: &str) -> Option<(&str, &str, IndexMap<String, String>)> {
    let (name, rest) = wish.split_once('=')?;
    let mut words = rest.split(',');
    let path = words.next()?;
    let setting = |word: &str| word.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    Some((name, path, words.map(setting).collect::<Option<_>>()?))
}

fn built_peers(options: &SuiteOptions) -> anyhow::Result<Vec<Built>> {
    Ok(match &options.peers {
        Some(dir) => built::read(&dir.join("peers.json"))?,
        None => built::scan()?,
    })
}

/// The dynamic linker must find malloc in the library, or in one that it brings along.
fn must_serve(path: &Path) -> anyhow::Result<()> {
    match live::serves(Path::new("/bin/sh"), path.as_os_str(), path)? {
        Some(true) => Ok(()),
        Some(false) => Err(failure::failed(format!("{} does not serve malloc", path.display()))),
        None => Err(failure::failed(format!("{} is not loaded", path.display()))),
    }
}

/// A record without samples: how they will be taken, and of whom.
pub fn record(
    options: &SuiteOptions,
    place: &Place,
    mallocs: &IndexMap<String, Malloc>,
) -> anyhow::Result<Record> {
    let machine = Machine::read();
    let said = versions_said(&options.version_of, mallocs)?;
    let built = built_peers(options)?;
    let files: Vec<_> = mallocs.values().filter_map(|malloc| malloc.path.clone()).collect();
    let packaged = packages::versions(&files);
    let describe = |(name, malloc): (&String, &Malloc)| -> anyhow::Result<(String, Library)> {
        let Some(path) = &malloc.path else {
            let version = Some(machine.libc.clone());
            return Ok((name.clone(), Library { version, ..Library::default() }));
        };
        let bytes = fs::read(path).with_context(|| path.display().to_string())?;
        // By its file: a library of --with may have the name of one in the list.
        let of_list = || built.iter().find(|built| built.path == *path).map(|built| built.version.clone());
        let version = said.get(name).cloned().or_else(of_list).or_else(|| packaged.get(path).cloned());
        let file = path.file_name().map(|file| file.to_string_lossy().into_owned());
        let sha256 = Some(launch::sha256(&bytes));
        Ok((name.clone(), Library { file, sha256, version, variables: malloc.variables.clone() }))
    };
    Ok(Record {
        schema: SCHEMA.to_owned(),
        threads: place.threads,
        seconds: options.seconds,
        seed: options.seed,
        load_before: machine.load.unwrap_or(0.0),
        processors: machine::processors(),
        kernel: machine.kernel.clone(),
        mallocs: mallocs.iter().map(describe).collect::<anyhow::Result<_>>()?,
        pin: options.pin,
        faults: Vec::new(),
        runs: Visits::new(),
    })
}

/// The versions of --version-of. Ours have none: of a version there are many builds, and what differs is what is measured.
fn versions_said(
    entries: &[String],
    mallocs: &IndexMap<String, Malloc>,
) -> anyhow::Result<IndexMap<String, String>> {
    let read = |entry: &String| {
        let (name, version) = entry.split_once('=').unwrap_or((entry, ""));
        if version.is_empty() || !is_peer(name) || !mallocs.contains_key(name) {
            let peers: Vec<&str> = mallocs.keys().map(String::as_str).filter(|name| is_peer(name)).collect();
            return Err(failure::usage(format!(
                "--version-of {entry}: not NAME=VERSION of a peer that is here: {}",
                peers.join(", ")
            )));
        }
        Ok((name.to_owned(), version.to_owned()))
    };
    entries.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_of_peers() {
        let mallocs = IndexMap::from(["quarry", "x"].map(|name| (name.to_owned(), Malloc::default())));
        let said = |entry: &str| versions_said(&[entry.to_owned()], &mallocs);
        assert_eq!(said("x=1.2=a").unwrap()["x"], "1.2=a");
        for wrong in ["y=1", "x=", "x", "quarry=1"] {
            assert_eq!(failure::code_of(&said(wrong).unwrap_err()), 2, "{wrong}");
        }
    }

    #[test]
    fn wishes_have_variables() {
        let (name, path, variables) = parts("tcg=/lib/x.so,A=b=c,D=").unwrap();
        assert_eq!(
            (name, path, variables["A"].as_str(), variables["D"].as_str()),
            ("tcg", "/lib/x.so", "b=c", "")
        );
        assert!(parts("x").is_none() && parts("x=/lib/x.so,nonsense").is_none());
    }
}
