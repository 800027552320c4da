// SPDX-License-Identifier: MIT
//! Names of what the C compiler of this machine makes.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::{Object, ObjectSegment, ObjectSymbol};

use super::*;

const SOURCE: &str = r#"
__attribute__((noinline)) int outer_one(int x);
static inline __attribute__((always_inline)) int inlined(int x) {
    return x * x + 7;
}
int outer_one(int x) {
    return inlined(x) + 1;
}
namespace space { struct Thing { void method(int); }; void Thing::method(int) {} }
extern "C" int Pc(int x) { return x; }
int main() { return outer_one(3); }
"#;

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

/// What a recorder tells of a file.
fn module(path: &Path) -> Module {
    let about = fs::metadata(path).unwrap();
    let bytes = fs::read(path).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let flags = |segment: &object::Segment<'_, '_>| match segment.flags() {
        object::SegmentFlags::Elf { p_flags, .. } => p_flags.0 & 7,
        _ => 0,
    };
    Module {
        base: 0,
        path: path.display().to_string(),
        build_id: About::read(path).unwrap().build_id().to_owned(),
        segments: file.segments().map(|s| quarry_trace::Segment(s.address(), s.size(), flags(&s))).collect(),
        bytes: about.len(),
        modified_ns: (about.mtime() * 1_000_000_000 + about.mtime_nsec()) as u64,
        path_hex: String::new(),
        first_node: 0,
        last_node: u32::MAX,
        function: None,
        loaded: 0,
        unloaded: None,
    }
}

fn open(module: &Module, places: &Places) -> Result<SymbolFile, String> {
    SymbolFile::find(module, places, 0)
}

fn here() -> Places {
    Places::of_this_machine()
}

/// The first name at an address.
fn name(file: &SymbolFile, at: u64) -> Option<String> {
    file.frames(at, &Frame::default()).into_iter().next().and_then(|frame| frame.function)
}

#[test]
fn lines_and_what_was_inlined() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = program(dir.path(), &["-g", "-O1", "-Wl,--build-id"]) else { return };
    let file = open(&module(&path), &here()).unwrap();
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
    // Nor has a function of C, which is none of type "char*".
    assert_eq!(name(&file, address(&path, "Pc")).as_deref(), Some("Pc"));
    assert_eq!(file.frames(u64::MAX - 5, &Frame::default()), []);
}

#[test]
fn symbols_only_and_none_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = program(dir.path(), &["-O1"]) else { return };
    let (outer, method) = (address(&path, "outer_one"), address(&path, "method"));
    let file = open(&module(&path), &here()).unwrap();
    assert_eq!(name(&file, outer).as_deref(), Some("outer_one(int)"));
    assert_eq!(name(&file, method).as_deref(), Some("space::Thing::method(int)"));
    assert_eq!(name(&file, address(&path, "Pc")).as_deref(), Some("Pc"));
    if program(dir.path(), &["-O1", "-s"]).is_some() {
        let file = open(&module(&path), &here()).unwrap();
        assert_eq!(name(&file, method), None);
    }
}

#[test]
fn files_that_are_not_what_was_mapped() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = program(dir.path(), &["-Wl,--build-id"]) else { return };
    let mapped = module(&path);
    assert!(open(&mapped, &here()).is_ok());
    let why = |module: Module| open(&module, &here()).err().unwrap();
    let other = "0".repeat(mapped.build_id.len());
    assert!(why(Module { build_id: other, ..mapped.clone() }).starts_with("other file: build id"));
    let at = |path: &str| Module { path: path.into(), ..mapped.clone() };
    assert_eq!(why(at("/no/such/file")), "not found");
    assert_eq!(why(at("linux-vdso.so.1")), "not found");
    assert_eq!(why(at(dir.path().to_str().unwrap())), "not a regular file");
    // Cut off: an error or no names, and nothing worse.
    let bytes = fs::read(&path).unwrap();
    let cut = dir.path().join("cut");
    for length in (0..bytes.len()).step_by(197) {
        fs::write(&cut, &bytes[..length]).unwrap();
        if let Ok(file) = open(&at(cut.to_str().unwrap()), &here()) {
            file.frames(0x1139, &Frame::default());
        }
    }
}

fn run(command: &str, args: &[&std::ffi::OsStr]) {
    let status = Command::new(command).args(args).status().unwrap();
    assert!(status.success(), "{command} {args:?}");
}

/// The debug information of a program in a file of its own, and the program without it.
fn split(path: &Path, debug: &Path) {
    fs::create_dir_all(debug.parent().unwrap()).unwrap();
    run("objcopy", &["--only-keep-debug".as_ref(), path.as_ref(), debug.as_ref()]);
    run("objcopy", &["--strip-all".as_ref(), path.as_ref()]);
}

fn link(path: &Path, debug: &Path) {
    let mut option = std::ffi::OsString::from("--add-gnu-debuglink=");
    option.push(debug);
    run("objcopy", &[option.as_ref(), path.as_ref()]);
}

fn has_line(file: &SymbolFile, at: u64) -> bool {
    let frames = file.frames(at, &Frame::default());
    frames
        .first()
        .is_some_and(|frame| frame.line.is_some() && frame.function.as_deref() == Some("outer_one(int)"))
}

#[test]
fn debug_information_by_build_id() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = program(dir.path(), &["-g", "-O0", "-Wl,--build-id"]) else { return };
    let (at, id) = (address(&path, "outer_one"), module(&path).build_id);
    let debug = dir.path().join("elsewhere");
    let kept = debug.join(".build-id").join(&id[..2]).join(format!("{}.debug", &id[2..]));
    split(&path, &kept);
    let mapped = module(&path);
    assert_eq!(name(&open(&mapped, &here()).unwrap(), at), None);
    let with = Places { debug: vec![debug.clone()], ..here() };
    assert!(has_line(&open(&mapped, &with).unwrap(), at));
    // A file of another build under that name is none of it.
    let wrong = Module {
        build_id: id.replace(&id[2..4], if &id[2..4] == "00" { "01" } else { "00" }),
        ..mapped.clone()
    };
    let wrong_name = kept.with_file_name(format!("{}.debug", &wrong.build_id[2..]));
    if wrong.build_id[..2] == id[..2] {
        fs::copy(&kept, wrong_name).unwrap();
        assert!(open(&wrong, &with).is_err());
    }
    // The program itself is gone, or another one: its debug information alone will do.
    fs::remove_file(&path).unwrap();
    assert!(has_line(&open(&mapped, &with).unwrap(), at));
    fs::write(&path, "new").unwrap();
    assert!(has_line(&open(&mapped, &with).unwrap(), at));
    // In what debuginfod has fetched, and in the folder of another machine.
    let root = dir.path().join("root");
    let far = root.join("usr/lib/debug/.build-id").join(&id[..2]);
    fs::create_dir_all(&far).unwrap();
    fs::rename(&kept, far.join(kept.file_name().unwrap())).unwrap();
    assert!(open(&mapped, &with).is_err());
    assert!(has_line(&open(&mapped, &Places { roots: vec![root], ..here() }).unwrap(), at));
}

#[test]
fn debug_information_by_links() {
    let dir = tempfile::tempdir().unwrap();
    for (number, build_id) in ["-Wl,--build-id", "-Wl,--build-id=none"].into_iter().enumerate() {
        let folder = dir.path().join(number.to_string());
        fs::create_dir(&folder).unwrap();
        let Some(path) = program(&folder, &["-g", "-O0", build_id]) else { return };
        let at = address(&path, "outer_one");
        let beside = folder.join("prog.debug");
        split(&path, &beside);
        link(&path, &beside);
        let (mapped, global) = (module(&path), dir.path().join("global"));
        let below = global.join(folder.canonicalize().unwrap().strip_prefix("/").unwrap());
        fs::create_dir_all(&below).unwrap();
        fs::create_dir(folder.join(".debug")).unwrap();
        let places = Places { debug: vec![global.clone()], ..here() };
        let found = || has_line(&open(&mapped, &places).unwrap(), at);
        assert!(found(), "beside");
        fs::rename(&beside, folder.join(".debug/prog.debug")).unwrap();
        assert!(found(), "below");
        fs::rename(folder.join(".debug/prog.debug"), below.join("prog.debug")).unwrap();
        assert!(found(), "in the folder for all");
        // Another file of that name.
        fs::copy(below.join("prog.debug"), &beside).unwrap();
        fs::remove_file(below.join("prog.debug")).unwrap();
        let mut bytes = fs::read(&beside).unwrap();
        assert!(found());
        if number == 1 {
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
            fs::write(&beside, bytes).unwrap();
            assert!(!found(), "its sum is another one");
        }
    }
}

#[test]
fn packed_sections() {
    let dir = tempfile::tempdir().unwrap();
    for how in ["-gz=zlib", "-gz=zstd", "-gz=none"] {
        let probe = Command::new("c++").args([how, "-x", "c++", "-E", "/dev/null"]).output();
        if !probe.is_ok_and(|probe| probe.status.success()) {
            continue; // an older compiler
        }
        let Some(path) = program(dir.path(), &["-g", "-O0", how]) else { return };
        assert!(has_line(&open(&module(&path), &here()).unwrap(), address(&path, "outer_one")), "{how}");
    }
}

#[test]
fn files_of_another_machine() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = program(dir.path(), &["-g", "-O0", "-Wl,--build-id=none"]) else { return };
    let at = address(&path, "outer_one");
    let mapped = Module { path: "/opt/there/bin/prog".into(), ..module(&path) };
    let root = dir.path().join("root");
    let places = Places { roots: vec![root.clone()], ..here() };
    assert_eq!(open(&mapped, &places).err().unwrap(), "not found");
    let deep = root.join("opt/there/bin/prog");
    fs::create_dir_all(deep.parent().unwrap()).unwrap();
    // A copy keeps its time, or it is another file.
    run("cp", &["-p".as_ref(), path.as_ref(), deep.as_ref()]);
    assert!(has_line(&open(&mapped, &places).unwrap(), at));
    fs::rename(&deep, root.join("prog")).unwrap();
    assert!(has_line(&open(&mapped, &places).unwrap(), at));
    run("touch", &[root.join("prog").as_ref()]);
    assert!(open(&mapped, &places).err().unwrap().starts_with("other file: "));
}

fn is_there(tool: &str) -> bool {
    let there = Command::new(tool).arg("--version").output().is_ok();
    if !there {
        eprintln!("skipped: needs {tool} (scripts/setup.sh test)");
    }
    there
}

/// As Fedora's packages are made: the symbols of functions that are not exported, packed, in the stripped program.
fn with_mini_debug_info(path: &Path, folder: &Path) {
    let script = r#"
        nm -D "$0" --format=posix --defined-only | awk '{ print $1 }' | sort > dynamic
        nm "$0" --format=posix --defined-only | awk '{ if ($2 == "T" || $2 == "t" || $2 == "D") print $1 }' | sort > all
        comm -13 dynamic all > keep
        objcopy --only-keep-debug "$0" full &&
        objcopy -S --remove-section .gdb_index --remove-section .comment --keep-symbols=keep full mini &&
        objcopy --strip-all -R .comment "$0" && xz -f mini && objcopy --add-section .gnu_debugdata=mini.xz "$0""#;
    let status = Command::new("sh").args(["-c", script]).arg(path).current_dir(folder).status().unwrap();
    assert!(status.success());
}

#[test]
fn symbols_that_a_stripped_program_keeps() {
    let dir = tempfile::tempdir().unwrap();
    if !is_there("xz") {
        return;
    }
    for options in [&["-O0", "-g", "-Wl,--build-id"][..], &["-O0", "-rdynamic"], &["-O0", "-no-pie"]] {
        let Some(path) = program(dir.path(), options) else { return };
        let (outer, method) = (address(&path, "outer_one"), address(&path, "method"));
        with_mini_debug_info(&path, dir.path());
        let file = open(&module(&path), &here()).unwrap();
        let names = [outer, outer + 3, method].map(|at| name(&file, at));
        let expected = ["outer_one(int)", "outer_one(int)", "space::Thing::method(int)"];
        assert_eq!(names, expected.map(|name| Some(name.to_owned())), "{options:?}");
        assert_eq!(name(&file, 1), None);
        // What is damaged there gives no names, and no more.
        let mut bytes = fs::read(&path).unwrap();
        let at = bytes.windows(6).position(|window| window == b"\xfd7zXZ\0").unwrap();
        for byte in &mut bytes[at + 20..at + 60] {
            *byte ^= 0x55;
        }
        // Another file in its place: of one that is open it would change what is mapped.
        fs::remove_file(&path).unwrap();
        fs::write(&path, bytes).unwrap();
        let file = open(&module(&path), &here()).unwrap();
        assert!(name(&file, method).is_none() || options.contains(&"-rdynamic"));
    }
}

#[test]
fn what_debuginfod_has_fetched() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = program(dir.path(), &["-g", "-O0", "-Wl,--build-id"]) else { return };
    let (at, whole) = (address(&path, "outer_one"), dir.path().join("whole"));
    fs::copy(&path, &whole).unwrap();
    let cache = dir.path().join("cache");
    let id = module(&path).build_id;
    let fetched = cache.join(&id);
    split(&path, &fetched.join("debuginfo"));
    let mapped = module(&path);
    let places = Places { caches: vec![dir.path().join("none"), cache.clone()], ..here() };
    assert!(has_line(&open(&mapped, &places).unwrap(), at));
    // The program itself is there only.
    fs::rename(&path, fetched.join("executable")).unwrap();
    assert!(has_line(&open(&mapped, &places).unwrap(), at));
    fs::remove_file(fetched.join("debuginfo")).unwrap();
    assert_eq!(name(&open(&mapped, &places).unwrap(), at), None);
    fs::copy(&whole, fetched.join("executable")).unwrap();
    assert!(has_line(&open(&mapped, &places).unwrap(), at));
    // What it could not find is an empty file there, and one that is of another build is none.
    for content in [&b""[..], b"no such file"] {
        fs::write(fetched.join("debuginfo"), content).unwrap();
        fs::write(fetched.join("executable"), content).unwrap();
        assert!(open(&mapped, &places).is_err());
    }
    let Some(other) = program(dir.path(), &["-g", "-O1", "-Wl,--build-id"]) else { return };
    fs::copy(&other, fetched.join("debuginfo")).unwrap();
    fs::rename(&other, fetched.join("executable")).unwrap();
    assert!(open(&mapped, &places).err().unwrap().starts_with("other file: build id"));
}

#[test]
fn what_files_of_debug_information_share() {
    let dir = tempfile::tempdir().unwrap();
    if !is_there("dwz") {
        return;
    }
    let folder = dir.path().canonicalize().unwrap();
    let debug = folder.join("debug");
    // Two programs that have much in common.
    let mut both = Vec::new();
    for name in ["one", "two"] {
        let own = folder.join(name);
        fs::create_dir(&own).unwrap();
        let Some(path) = program(&own, &["-g", "-O0", "-gdwarf-4", "-Wl,--build-id"]) else { return };
        let (at, id) = (address(&path, "outer_one"), module(&path).build_id);
        both.push((path, at, id));
    }
    let kept = |id: &str| debug.join(".build-id").join(&id[..2]).join(format!("{}.debug", &id[2..]));
    let files: Vec<PathBuf> = both
        .iter()
        .map(|(path, _, id)| {
            split(path, &kept(id));
            kept(id)
        })
        .collect();
    let shared = debug.join(".dwz/shared.debug");
    fs::create_dir(debug.join(".dwz")).unwrap();
    let done =
        Command::new("dwz").arg("-m").arg(&shared).arg("-M").arg(&shared).args(&files).output().unwrap();
    if !done.status.success() || !shared.exists() {
        return eprintln!(
            "skipped: needs a dwz that shares so little: {}",
            String::from_utf8_lossy(&done.stderr)
        );
    }
    let places = Places { debug: vec![debug.clone()], ..here() };
    let all = |places: &Places| {
        both.iter().all(|(path, at, _)| has_line(&open(&module(path), places).unwrap(), *at))
    };
    assert!(all(&places), "by its path");
    // Moved together with what names it, as below the folder of another machine.
    let root = folder.join("root");
    let moved = root.join("usr/lib/debug");
    fs::create_dir_all(moved.parent().unwrap()).unwrap();
    fs::rename(&debug, &moved).unwrap();
    let below = Places { roots: vec![root.clone()], ..here() };
    assert!(all(&below), "below a root");
    // By its build id alone, as Debian has it elsewhere.
    let id = About::read(&moved.join(".dwz/shared.debug")).unwrap().build_id().to_owned();
    let of_id = moved.join(".build-id").join(&id[..2]).join(format!("{}.debug", &id[2..]));
    fs::create_dir_all(of_id.parent().unwrap()).unwrap();
    fs::rename(moved.join(".dwz/shared.debug"), &of_id).unwrap();
    assert!(all(&below), "by its build id");
    // Without it there are symbols still, if no lines.
    fs::remove_file(of_id).unwrap();
    let (path, at, _) = &both[0];
    let file = open(&module(path), &below);
    assert!(file.is_ok_and(|file| name(&file, *at).is_none_or(|name| name == "outer_one(int)")));
}

/// The demangler knows codes of types as well, and C has functions of such names.
#[test]
fn a_name_of_c_stays() {
    for name in ["f", "i", "v", "St", "Pc", "main", "std", "ZN1a1bEv", "Rc", "_Zone", "_Rare", ""] {
        assert_eq!(demangled(name), name);
    }
    for (mangled, name) in [
        ("_ZN1a1bEv", "a::b()"),
        ("__ZN1a1bEv", "a::b()"),
        ("_ZN4core3fmt5write17h0123456789abcdefE", "core::fmt::write"),
        ("_RNvC7mycrate3foo", "mycrate::foo"),
        ("_ZN1a1bEv@@V_2", "a::b()"),
        ("f@V_1", "f"),
    ] {
        assert_eq!(demangled(mangled), name);
    }
}
