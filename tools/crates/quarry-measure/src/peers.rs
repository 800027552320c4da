// SPDX-License-Identifier: MIT
//! The allocators installed on this system.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::elf;

/// A well-known allocator and the library that replaces malloc by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// The name users say.
    pub name: &'static str,
    /// Library names up to ".so", the best first.
    stems: &'static [&'static str],
}

/// Those we look for.
pub const PEERS: [Peer; 4] = [
    Peer { name: "jemalloc", stems: &["libjemalloc"] },
    Peer { name: "mimalloc", stems: &["libmimalloc"] },
    Peer { name: "tcmalloc", stems: &["libtcmalloc_minimal", "libtcmalloc"] },
    Peer { name: "tbbmalloc", stems: &["libtbbmalloc_proxy"] },
];

/// A library found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Library {
    /// What to preload.
    pub path: PathBuf,
    /// Its version as far as the file's name tells.
    pub version: Option<String>,
}

impl Library {
    /// The library in this file, its version taken from the name of the file behind all links.
    pub fn at(path: PathBuf) -> Self {
        let real = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
        let version = [&real, &path].into_iter().find_map(|p| version_of(p));
        Self { path, version }
    }
}

/// What stands after ".so." in a library's name.
fn version_of(path: &Path) -> Option<String> {
    let (_, version) = path.file_name()?.to_str()?.split_once(".so.")?;
    (!version.is_empty()).then(|| version.to_owned())
}

/// The directories where the dynamic linker looks, as far as there is a rule.
pub fn library_dirs() -> Vec<PathBuf> {
    let multiarch = format!("{}-linux-gnu", std::env::consts::ARCH);
    let mut dirs = Vec::new();
    for prefix in ["/usr/local", "/usr", "/"] {
        for sub in ["lib", "lib64"] {
            dirs.push(Path::new(prefix).join(sub).join(&multiarch));
            dirs.push(Path::new(prefix).join(sub));
        }
    }
    dirs
}

/// The libraries of this system: the cache of the dynamic linker, then the usual directories.
pub struct Installed {
    files: Vec<PathBuf>,
}

impl Installed {
    /// Look.
    pub fn scan() -> Self {
        let mut files = ldconfig_cache();
        for dir in library_dirs() {
            files.extend(fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()));
        }
        Self { files }
    }

    /// The newest library of this peer that fits our own processor and word size.
    pub fn find(&self, peer: &Peer) -> Option<Library> {
        peer.stems.iter().find_map(|stem| self.newest(stem))
    }

    /// The newest library whose name is `stem`, ".so" and perhaps a version.
    pub fn newest(&self, stem: &str) -> Option<Library> {
        let ours = elf::read(Path::new("/proc/self/exe")).ok().flatten()?.kind;
        let named = self.files.iter().filter(|file| is_named(file, stem));
        let mut seen = BTreeSet::new();
        named
            .filter(|file| fs::canonicalize(file).is_ok_and(|real| seen.insert(real)))
            .filter(|file| elf::read(file).ok().flatten().is_some_and(|facts| facts.kind == ours))
            .map(|file| Library::at(file.clone()))
            // The first of equals, so that the linker's own choice wins.
            .rev_max_by(|a, b| numbers(a.version.as_deref()).cmp(&numbers(b.version.as_deref())))
    }
}

trait RevMaxBy: Iterator + Sized {
    /// Like `max_by`, but the first of equals.
    fn rev_max_by(
        self,
        compare: impl Fn(&Self::Item, &Self::Item) -> std::cmp::Ordering,
    ) -> Option<Self::Item> {
        self.reduce(|best, next| if compare(&next, &best).is_gt() { next } else { best })
    }
}
impl<I: Iterator> RevMaxBy for I {}

fn is_named(file: &Path, stem: &str) -> bool {
    let name = file.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    name.strip_prefix(stem).and_then(|rest| rest.strip_prefix(".so")).is_some_and(|rest| {
        rest.is_empty() || rest.strip_prefix('.').is_some_and(|v| v.starts_with(|c: char| c.is_ascii_digit()))
    })
}

fn numbers(version: Option<&str>) -> Vec<u64> {
    version.unwrap_or("").split('.').map(|part| part.parse().unwrap_or(0)).collect()
}

/// The paths in the dynamic linker's cache; none where there is no ldconfig.
fn ldconfig_cache() -> Vec<PathBuf> {
    for ldconfig in ["/sbin/ldconfig", "/usr/sbin/ldconfig", "ldconfig"] {
        if let Ok(output) =
            Command::new(ldconfig).arg("-p").stdin(Stdio::null()).stderr(Stdio::null()).output()
        {
            return parse_cache(&String::from_utf8_lossy(&output.stdout));
        }
    }
    Vec::new()
}

/// Lines are "NAME (KIND) => PATH".
fn parse_cache(text: &str) -> Vec<PathBuf> {
    text.lines().filter_map(|line| line.split_once(" => ")).map(|(_, path)| path.trim().into()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_lines() {
        let text = "2 libs found in cache `/etc/ld.so.cache'\n\tliba.so.1 (libc6,x86-64) => /lib/liba.so.1\n\tlibb.so (libc6) => /opt/b c/libb.so\n";
        assert_eq!(parse_cache(text), [Path::new("/lib/liba.so.1"), Path::new("/opt/b c/libb.so")]);
    }

    #[test]
    fn names_are_matched_whole() {
        let named = |name: &str| is_named(Path::new(name), "libmimalloc");
        assert!(named("/lib/libmimalloc.so"));
        assert!(named("/lib/libmimalloc.so.2.0"));
        assert!(!named("/lib/libmimalloc-secure.so.2"));
        assert!(!named("/lib/libmimalloc.so.old"));
        assert!(!named("/lib/libmimalloc.solution"));
    }

    #[test]
    fn versions_compare_as_numbers() {
        assert!(numbers(Some("10.1")) > numbers(Some("9.9")));
        assert!(numbers(Some("2.0")) > numbers(Some("2")));
        assert!(numbers(Some("2")) > numbers(None));
        assert_eq!(version_of(Path::new("/x/libtcmalloc_minimal.so.4.5.9")).as_deref(), Some("4.5.9"));
        assert_eq!(version_of(Path::new("/x/libtcmalloc_minimal.so")), None);
    }

    #[test]
    fn the_newest_of_several_directories_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let files: Vec<PathBuf> = ["a/libx.so.2", "b/libx.so.10.1", "c/libx.so.9", "d/libx.so.99"]
            .iter()
            .map(|name| {
                let path = dir.path().join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                // Any ELF file of our kind will do; the last is none and must not be chosen.
                let content =
                    if name.ends_with("99") { b"text".to_vec() } else { fs::read("/bin/sh").unwrap() };
                fs::write(&path, content).unwrap();
                path
            })
            .collect();
        let found = Installed { files: files.clone() }.newest("libx").unwrap();
        assert_eq!(found, Library { path: files[1].clone(), version: Some("10.1".into()) });
        assert_eq!(Installed { files }.newest("liby"), None);
    }
}
