// SPDX-License-Identifier: MIT
//! A command under an allocator.

use std::env;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use quarry_measure::elf::{self, Obstacle};
use quarry_measure::preload::{self, Conf};
use quarry_measure::program::Program;

/// Options of verbs that run a command on the heap.
#[derive(Args, Clone)]
pub struct Heap {
    /// Options of the heap. Each overrides the same key in QUARRY_CONF.
    ///
    /// May be repeated.
    #[arg(long, value_name = "KEY:VALUE,...", value_parser = parse_conf)]
    pub conf: Vec<Conf>,
    /// The libquarry-malloc.so to use
    #[arg(long, value_name = "PATH")]
    pub lib: Option<PathBuf>,
}

impl Heap {
    /// All --conf options together.
    pub fn conf(&self) -> Conf {
        self.conf.iter().fold(Conf::default(), Conf::merge)
    }
}

fn parse_conf(text: &str) -> Result<Conf, String> {
    Conf::parse(text).map_err(|error| error.to_string())
}

/// What is preloaded already, for whatever reason.
pub fn existing_preload() -> Option<OsString> {
    env::var_os("LD_PRELOAD").filter(|value| !value.is_empty())
}

/// The command line, not yet under anything.
pub fn command(line: &[OsString]) -> Command {
    let mut command = Command::new(&line[0]);
    command.args(&line[1..]);
    command
}

/// LD_PRELOAD with `library` before what is there.
pub fn preload_value(library: &Path) -> anyhow::Result<OsString> {
    Ok(preload::ld_preload(library, existing_preload().as_deref())?)
}

/// QUARRY_CONF of the environment, overridden by `option`.
pub fn merged_conf(option: &Conf) -> Conf {
    let environment = env::var_os("QUARRY_CONF").unwrap_or_default();
    Conf::from_environment(&environment.to_string_lossy()).merge(option)
}

/// Hand the heap its options; none leaves the environment alone.
pub fn set_conf(command: &mut Command, conf: &Conf) {
    if !conf.is_empty() {
        command.env("QUARRY_CONF", conf.to_string());
    }
}

/// Why this path cannot stand among the options of a library.
pub fn unfit(path: &Path) -> &'static str {
    match path.to_str() {
        None => "a path that is not UTF-8",
        Some(text) if text.contains(',') => "a path with a comma",
        Some(_) => "a path with a line break",
    }
}

/// The command's words, for people.
pub fn words(line: &[OsString]) -> Vec<String> {
    line.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}

/// The program behind the command.
pub fn resolve(line: &[OsString]) -> io::Result<Program> {
    Program::resolve_line(line)
}

/// What stands between the program and the library, as sentences.
pub fn obstacles(program: &Program, library: &Path) -> Vec<(Obstacle, String)> {
    // Unreadable, yet perhaps executable: then nothing is known.
    let found = elf::obstacles(&program.binary, Some(library)).unwrap_or_default();
    let name = program.binary.display();
    found.into_iter().map(|obstacle| (obstacle, format!("{name} {obstacle}"))).collect()
}
