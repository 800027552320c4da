// SPDX-License-Identifier: MIT
//! The process of a command that `quarry run` waits for. Its own number is what a shell has in `$!`, and nobody asks for the memory
//! of the tool.

use std::time::{Duration, Instant};

use quarry_proc::{Process, Root};

use crate::cli::Verb;
use crate::output::Output;

/// How long a tool has to start its command.
const PATIENCE: Duration = Duration::from_millis(500);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(10);
/// Verbs that start one command and wait for it.
const WAITING: [&str; 3] = ["run", "record", "check"];

/// Let what was typed be about commands, and not about tools that wait for them.
pub fn follow(verb: &mut Verb, output: &Output) {
    let unsigned = |pid: &mut u32| *pid = of(*pid, output);
    let signed = |pid: &mut i32| {
        if let Some(found) = u32::try_from(*pid).ok().and_then(|pid| i32::try_from(of(pid, output)).ok()) {
            *pid = found;
        }
    };
    match verb {
        Verb::Explain(options) => unsigned(&mut options.pid),
        Verb::Map(options) if options.proc.is_none() => options.pid.iter_mut().for_each(unsigned),
        Verb::Top(options) if options.proc.is_none() => options.pid.iter_mut().for_each(unsigned),
        Verb::Doctor(options) => options.pid.iter_mut().for_each(unsigned),
        Verb::Profile(options) => options.pid.iter_mut().for_each(signed),
        Verb::Check(options) => options.pid.iter_mut().for_each(signed),
        Verb::Stats(options) => options.pids.iter_mut().for_each(signed),
        _ => {}
    }
}

/// The command's process, if this one only waits for it.
fn of(pid: u32, output: &Output) -> u32 {
    let root = Root::live();
    let began = Instant::now();
    let mut found = pid;
    // A command may itself be a tool with a command. One that has only begun still looks like its parent.
    while let Some(verb) = root.process(found).ok().and_then(|process| waits(&process)) {
        match only_child(&root, found) {
            Some(child) => {
                output.note(format_args!("process {found} is quarry {verb}; its command is process {child}"));
                found = child;
            }
            None if began.elapsed() < PATIENCE => std::thread::sleep(PAUSE),
            None => break,
        }
    }
    found
}

/// The verb of a tool that waits for a command.
fn waits(process: &Process) -> Option<&'static str> {
    let exe = std::fs::read_link(process.folder().join("exe")).ok()?;
    // The kernel appends " (deleted)" to the name of a file that was replaced.
    let name = exe.file_name()?.to_string_lossy().into_owned();
    if name.trim_end_matches(" (deleted)") != "quarry" {
        return None;
    }
    let words = process.cmdline().ok()?;
    let typed = words.iter().skip(1).find(|word| !word.starts_with('-'))?;
    WAITING.into_iter().find(|verb| verb == typed)
}

/// The child of a process that has no other.
fn only_child(root: &Root, parent: u32) -> Option<u32> {
    let is_child = |pid: &u32| {
        let stat = root.process(*pid).ok().and_then(|process| process.stat().ok());
        stat.is_some_and(|stat| stat.parent == parent)
    };
    let mut children = root.pids().ok()?.into_iter().filter(is_child);
    children.next().filter(|_| children.next().is_none())
}
