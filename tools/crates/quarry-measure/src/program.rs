// SPDX-License-Identifier: MIT
//! From the command a user typed to the file that the kernel will run.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::{elf, sys};

/// A command, found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The file the command names.
    pub command: PathBuf,
    /// The file that runs: the same, or the interpreter of a script.
    pub binary: PathBuf,
}

/// Find the file that `command` names, as exec would: by itself when it has a slash, else in PATH.
pub fn find(command: &OsStr) -> Option<PathBuf> {
    if command.as_bytes().contains(&b'/') {
        return Path::new(command).exists().then(|| command.into());
    }
    // The C library's choice when there is no PATH.
    let path = env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let files = || env::split_paths(&path).map(|dir| dir.join(command)).filter(|file| file.is_file());
    files().find(|file| sys::is_executable(file)).or_else(|| files().next())
}

/// May we execute this file?
pub fn is_executable(file: &Path) -> bool {
    file.is_file() && sys::is_executable(file)
}

impl Program {
    /// Find the command, and what runs it when it is a script.
    pub fn resolve(command: &OsStr) -> io::Result<Self> {
        let command = find(command).ok_or(io::ErrorKind::NotFound)?;
        let mut binary = command.clone();
        // The kernel follows so many scripts that interpret scripts, then gives up.
        for _ in 0..5 {
            let Some(interpreter) = interpreter(&first_line(&binary)?) else { break };
            binary = find(&interpreter).ok_or_else(|| missing(&binary, &interpreter))?;
        }
        Ok(Self { command, binary })
    }
}

impl Program {
    /// The same for a command with its arguments: where a dynamic linker is run, what runs is the program that it is given.
    pub fn resolve_line(line: &[OsString]) -> io::Result<Self> {
        let (command, arguments) = line.split_first().ok_or(io::ErrorKind::NotFound)?;
        let program = Self::resolve(command)?;
        let is_linker = program.binary == program.command
            && elf::read(&program.binary).is_ok_and(|facts| facts.is_some_and(|facts| facts.is_linker()));
        match given_to_linker(arguments).filter(|given| is_linker && given.is_file()) {
            Some(binary) => Ok(Self { binary, ..program }),
            None => Ok(program),
        }
    }
}

/// The program among the arguments of a dynamic linker. It is opened as it stands there, in no PATH.
fn given_to_linker(arguments: &[OsString]) -> Option<PathBuf> {
    /// Options of glibc's and musl's that have an argument of their own.
    const WITH_ARGUMENT: [&str; 7] = [
        "--library-path",
        "--glibc-hwcaps-prepend",
        "--glibc-hwcaps-mask",
        "--inhibit-rpath",
        "--audit",
        "--preload",
        "--argv0",
    ];
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.to_str() {
            Some("--") => return arguments.next().map(PathBuf::from),
            Some(option) if WITH_ARGUMENT.contains(&option) => drop(arguments.next()),
            Some(option) if option.starts_with('-') => {}
            _ => return Some(PathBuf::from(argument)),
        }
    }
    None
}

fn missing(script: &Path, interpreter: &OsStr) -> io::Error {
    let message =
        format!("{}: its interpreter {} does not exist", script.display(), Path::new(interpreter).display());
    io::Error::new(io::ErrorKind::NotFound, message)
}

/// The first 256 bytes, up to a newline: what the kernel looks at.
fn first_line(file: &Path) -> io::Result<Vec<u8>> {
    if !fs::metadata(file)?.is_file() {
        return Ok(Vec::new());
    }
    let mut line = Vec::new();
    File::open(file)?.take(256).read_to_end(&mut line)?;
    line.truncate(line.iter().position(|&b| b == b'\n').unwrap_or(line.len()));
    Ok(line)
}

/// The interpreter a script's first line names; the program behind `env`, since env only looks it up.
fn interpreter(line: &[u8]) -> Option<OsString> {
    let words = line.strip_prefix(b"#!")?;
    let mut words = words.split(|b| b.is_ascii_whitespace()).filter(|w| !w.is_empty());
    let first = words.next()?;
    let mut behind_env = || words.find(|w| !w.starts_with(b"-") && !w.contains(&b'='));
    let name = if first.ends_with(b"/env") { behind_env().unwrap_or(first) } else { first };
    Some(OsString::from_vec(name.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn named(line: &str) -> Option<String> {
        interpreter(line.as_bytes()).map(|name| name.into_string().unwrap())
    }

    #[test]
    fn interpreter_lines() {
        assert_eq!(named("#!/bin/sh -e").as_deref(), Some("/bin/sh"));
        assert_eq!(named("#! /usr/bin/perl").as_deref(), Some("/usr/bin/perl"));
        assert_eq!(named("#!/usr/bin/env python3").as_deref(), Some("python3"));
        assert_eq!(named("#!/usr/bin/env -S A=1 node --x").as_deref(), Some("node"));
        assert_eq!(named("#!/usr/bin/env").as_deref(), Some("/usr/bin/env"));
        assert_eq!(named("#!"), None);
        assert_eq!(named("\x7fELF"), None);
    }

    #[test]
    fn follows_scripts_of_scripts() {
        let dir = tempfile::tempdir().unwrap();
        let script = |name: &str, text: String| {
            let path = dir.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            path
        };
        let inner = script("inner", String::from("#!/bin/sh\n"));
        let outer = script("outer", format!("#!{} -x\necho\n", inner.display()));
        let program = Program::resolve(outer.as_os_str()).unwrap();
        assert_eq!(program, Program { command: outer, binary: "/bin/sh".into() });

        let broken = script("broken", String::from("#!/no/such/shell\n"));
        let error = Program::resolve(broken.as_os_str()).unwrap_err();
        assert!(error.to_string().contains("/no/such/shell"), "{error}");
    }

    #[test]
    fn what_a_dynamic_linker_runs() {
        let given = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            given_to_linker(&words)
        };
        assert_eq!(given("./p -x"), Some("./p".into()));
        assert_eq!(given("--library-path /l --inhibit-cache --argv0 x ./p a"), Some("./p".into()));
        assert_eq!(given("--preload a.so -- -p"), Some("-p".into()));
        assert_eq!(given("--library-path=/l ./p"), Some("./p".into()));
        assert_eq!([given("--list"), given("--library-path")], [None, None]);
        let line = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        let linker = elf::read(Path::new("/bin/sh")).unwrap().unwrap().interpreter.unwrap();
        let program = Program::resolve_line(&line(&[linker.to_str().unwrap(), "/bin/sh", "x"])).unwrap();
        assert_eq!(program, Program { command: linker.clone(), binary: "/bin/sh".into() });
        let program = Program::resolve_line(&line(&[linker.to_str().unwrap(), "/no/such"])).unwrap();
        assert_eq!(program.binary, linker);
        assert_eq!(
            Program::resolve_line(&line(&["/bin/sh", "/bin/ls"])).unwrap().binary,
            Path::new("/bin/sh")
        );
    }

    #[test]
    fn path_is_searched() {
        assert!(find(OsStr::new("sh")).unwrap().is_absolute());
        assert_eq!(find(OsStr::new("no-such-program-here")), None);
        assert_eq!(find(OsStr::new("/no/such")), None);
    }
}
