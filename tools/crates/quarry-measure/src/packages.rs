// SPDX-License-Identifier: MIT
//! Versions as the package manager knows them: a library's name often says no more than "so.2".

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The versions of the packages that these files came in, without a distribution's own part. Files
/// of no package are left out. One call for all, since each question makes dpkg read its whole list.
pub fn versions(files: &[PathBuf]) -> HashMap<PathBuf, String> {
    if files.is_empty() {
        return HashMap::new();
    }
    let real: Vec<PathBuf> =
        files.iter().map(|f| fs::canonicalize(f).unwrap_or_else(|_| f.clone())).collect();
    let known = debian(&real).unwrap_or_else(|| rpm(&real));
    files
        .iter()
        .zip(&real)
        .filter_map(|(file, real)| Some((file.clone(), known.get(real)?.clone())))
        .collect()
}

/// What a program prints; `None` when there is no such program.
fn ask<A: AsRef<OsStr>>(tool: &str, args: &[&str], more: impl IntoIterator<Item = A>) -> Option<String> {
    let mut command = Command::new(tool);
    command.args(args).args(more).env("LC_ALL", "C").stdin(Stdio::null()).stderr(Stdio::null());
    Some(String::from_utf8_lossy(&command.output().ok()?.stdout).into_owned())
}

fn debian(files: &[PathBuf]) -> Option<HashMap<PathBuf, String>> {
    let owners = owners(&ask("dpkg-query", &["-S"], files)?);
    if owners.is_empty() {
        return Some(HashMap::new());
    }
    let versions = ask("dpkg-query", &["-W", "-f", "${binary:Package} ${Version}\n"], owners.values())?;
    let versions: HashMap<&str, &str> = versions.lines().filter_map(|line| line.split_once(' ')).collect();
    let version = |package: &String| Some(upstream(versions.get(package.as_str())?).to_owned());
    Some(owners.iter().filter_map(|(file, package)| Some((file.clone(), version(package)?))).collect())
}

/// Lines "PACKAGE: FILE"; of several packages "A, B: FILE" the first.
fn owners(text: &str) -> HashMap<PathBuf, String> {
    let owner = |line: &str| {
        let (packages, file) = line.split_once(": ")?;
        Some((Path::new(file).to_owned(), packages.split(", ").next()?.to_owned()))
    };
    text.lines().filter_map(owner).collect()
}

fn rpm(files: &[PathBuf]) -> HashMap<PathBuf, String> {
    let text = ask("rpm", &["-qf", "--qf", "%{VERSION}\n"], files).unwrap_or_default();
    // One line for each file; a file of no package gets a sentence.
    let lines = files.iter().zip(text.lines()).filter(|(_, line)| !line.contains(' '));
    lines.map(|(file, version)| (file.clone(), version.to_owned())).collect()
}

/// A Debian version without its epoch, its revision, and the mark of repacked sources.
fn upstream(version: &str) -> &str {
    let version = version.split_once(':').map_or(version, |(_, rest)| rest);
    let version = version.rsplit_once('-').map_or(version, |(upstream, _)| upstream);
    version.split(['+', '~']).next().unwrap_or(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_upstreams() {
        assert_eq!(upstream("5.3.0-1+b2"), "5.3.0");
        assert_eq!(upstream("1:2.0-rc1-3"), "2.0-rc1");
        assert_eq!(upstream("2.0.9+ds-2"), "2.0.9");
        assert_eq!(upstream("4"), "4");
    }

    #[test]
    fn owners_are_read_line_by_line() {
        let found = owners("liba2:amd64: /usr/lib/liba.so.2\nb, c: /usr/lib/x y.so\nnonsense\n");
        assert_eq!(found.len(), 2);
        assert_eq!(found[Path::new("/usr/lib/liba.so.2")], "liba2:amd64");
        assert_eq!(found[Path::new("/usr/lib/x y.so")], "b");
    }

    #[test]
    fn a_file_of_no_package_has_no_version() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x");
        fs::write(&file, "").unwrap();
        assert_eq!(versions(&[file]), HashMap::new());
        assert_eq!(versions(&[]), HashMap::new());
    }
}
