// SPDX-License-Identifier: MIT
//! Names of what the C compiler of this machine makes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::{Object, ObjectSymbol};

use super::*;

const SOURCE: &str = r"
__attribute__((noinline)) int outer_one(int x);
static inline __attribute__((always_inline)) int inlined(int x) {
    return x * x + 7;
}
int outer_one(int x) {
    return inlined(x) + 1;
}
namespace space { struct Thing { void method(int); }; void Thing::method(int) {} }
int main() { return outer_one(3); }
";

/// A program; `None`, and a word about it, where there is no compiler.
fn program(dir: &Path, options: &[&str]) -> Option<PathBuf> {
    let (source, out) = (dir.join("prog.cc"), dir.join("prog"));
    fs::write(&source, SOURCE).unwrap();
    let done = Command::new("c++").arg(&source).args(options).arg("-o").arg(&out).status();
    match done {
        Ok(status) => {
            assert!(status.success());
            Some(out)
        }
        Err(_) => {
            eprintln!("skipped: needs a C++ compiler (c++)");
            None
        }
    }
}

fn address(path: &Path, part: &str) -> u64 {
    let bytes = fs::read(path).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let symbol = file.symbols().find(|symbol| symbol.name().is_ok_and(|name| name.contains(part)));
    symbol.unwrap().address()
}

fn build_id(path: &Path) -> String {
    own_build_id(path).unwrap()
}

#[test]
fn lines_and_what_was_inlined() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = program(dir.path(), &["-g", "-O1", "-Wl,--build-id"]) else { return };
    let file = SymbolFile::open(&path, &build_id(&path)).unwrap();
    let at = address(&path, "outer_one");
    let names: Vec<Vec<String>> = (at..at + 12)
        .map(|at| {
            file.frames(at, &Frame::default()).into_iter().map(|frame| frame.function.unwrap()).collect()
        })
        .collect();
    // What has internal linkage has no mangled name, and so no parameters.
    assert!(names.contains(&vec!["inlined".into(), "outer_one(int)".into()]), "{names:?}");
    let frames = file.frames(at, &Frame::default());
    assert!(frames[0].file.as_ref().unwrap().ends_with("prog.cc"));
    assert!((4..=7).contains(&frames[0].line.unwrap()), "{frames:?}");
    let method = file.frames(address(&path, "method"), &Frame::default());
    assert_eq!(method[0].function.as_deref(), Some("space::Thing::method(int)"));
    assert_eq!(file.frames(u64::MAX - 5, &Frame::default()), []);
}

#[test]
fn symbols_only_and_none_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = program(dir.path(), &["-O1"]) else { return };
    let (outer, method) = (address(&path, "outer_one"), address(&path, "method"));
    let file = SymbolFile::open(&path, "").unwrap();
    let name =
        |file: &SymbolFile, at| file.frames(at, &Frame::default()).pop().and_then(|frame| frame.function);
    assert_eq!(name(&file, outer).as_deref(), Some("outer_one(int)"));
    assert_eq!(name(&file, method).as_deref(), Some("space::Thing::method(int)"));
    if program(dir.path(), &["-O1", "-s"]).is_some() {
        let file = SymbolFile::open(&path, "").unwrap();
        assert_eq!(name(&file, method), None);
    }
}

#[test]
fn files_that_are_not_what_was_mapped() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = program(dir.path(), &["-Wl,--build-id"]) else { return };
    let id = build_id(&path);
    assert!(SymbolFile::open(&path, &id).is_ok());
    assert!(SymbolFile::open(&path, &"0".repeat(id.len())).err().unwrap().contains("was replaced"));
    assert!(SymbolFile::open(Path::new("[vdso]"), "").is_err());
    assert!(SymbolFile::open(dir.path(), "").is_err());
    // Cut off, or overwritten: an error or no names, and nothing worse.
    let bytes = fs::read(&path).unwrap();
    for length in (0..bytes.len()).step_by(197) {
        let cut = dir.path().join("cut");
        fs::write(&cut, &bytes[..length]).unwrap();
        if let Ok(file) = SymbolFile::open(&cut, "") {
            file.frames(0x1139, &Frame::default());
        }
    }
}
