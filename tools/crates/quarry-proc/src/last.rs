// SPDX-License-Identifier: MIT
//! The last moment of a command: it is run, and stopped when its memory is still there but it will use it no more.
//!
//! The kernel stops a traced thread at its end before it takes its memory away (PTRACE_O_TRACEEXIT), also when a signal
//! ends it. Threads are followed so that their stacks are known; other processes that the command starts are not.
//!
//! A fresh child is traced in two steps. It asks to be traced, and so stops as soon as it is the command; then it is
//! taken over in the newer way (PTRACE_SEIZE), which leaves stopping and continuing by signals as they are.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::error::ProcError;
use crate::process;
use crate::root::Root;
use crate::space::Space;
use crate::sys;
use crate::task::{self, Task};

/// How many ended threads are remembered, the last ones.
const REMEMBERED: usize = 4096;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// By itself, with this code.
    Exit(i32),
    /// By this signal.
    Signal(i32),
}

/// A command that has ended.
#[derive(Debug)]
pub struct Last {
    /// The process it was.
    pub pid: i32,
    /// How it ended.
    pub end: End,
    /// What it had then; `None` where the kernel killed it without letting us look.
    pub space: Option<Result<Space, ProcError>>,
}

/// Why a command could not be run like that.
#[derive(Debug, thiserror::Error)]
pub enum LastError {
    /// It could not be started.
    #[error("cannot be started: {0}")]
    Start(io::Error),
    /// The system forbids it.
    #[error(
        "the system does not let us trace our own child ({0}); kernel.yama.ptrace_scope 3 or a container's seccomp profile \
         does that. Start it without us, and look at it with -p"
    )]
    Trace(io::Error),
}

/// Run a command to its end. `started` hears the number of its process as soon as that is known.
pub fn run(command: &mut Command, started: impl FnOnce(i32)) -> Result<Last, LastError> {
    sys::trace_me(command);
    let child = command.spawn().map_err(|error| match error.raw_os_error() {
        // Whoever may not execute a file gets EACCES.
        Some(libc::EPERM) => LastError::Trace(error),
        _ => LastError::Start(error),
    })?;
    let pid = i32::try_from(child.id()).map_err(|_| LastError::Start(io::ErrorKind::InvalidData.into()))?;
    started(pid);
    take_over(pid).map_err(|error| {
        let _ = sys::kill(pid, libc::SIGKILL);
        let _ = sys::wait(pid);
        LastError::Trace(error)
    })?;
    follow(pid).map_err(LastError::Trace)
}

/// From traced by its own wish to traced in the newer way.
fn take_over(pid: i32) -> io::Result<()> {
    let mut held = Vec::new();
    loop {
        let (_, status) = waited(pid)?;
        if !libc::WIFSTOPPED(status) {
            return Err(io::Error::other("it did not stop"));
        }
        let signal = libc::WSTOPSIG(status);
        if ![libc::SIGTRAP, libc::SIGCONT].contains(&signal) {
            held.push(signal);
        }
        // A SIGCONT that came while it was stopped would keep it from stopping when it is let go, and it could end before it is
        // taken over. So the signal is taken first: that stops it again at once.
        if !comes(pid, libc::SIGCONT) {
            break;
        }
        sys::go_on(pid, 0);
    }
    sys::detach_stopped(pid)?;
    sys::seize(pid)?;
    for signal in held {
        sys::kill(pid, signal)?;
    }
    sys::kill(pid, libc::SIGCONT)
}

/// Does a signal wait for this process, which does not block it?
fn comes(pid: i32, signal: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let set = |key: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default().trim();
        u64::from_str_radix(value, 16).unwrap_or(0)
    };
    (set("SigPnd:") | set("ShdPnd:")) & !set("SigBlk:") & 1 << (signal - 1) != 0
}

/// Wait, whatever signals come to us.
fn waited(pid: i32) -> io::Result<(i32, i32)> {
    loop {
        match sys::wait(pid) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

fn follow(pid: i32) -> io::Result<Last> {
    let mut ended = VecDeque::new();
    let mut space = None;
    let mut lives_on = true;
    loop {
        let (tid, status) = waited(-1)?;
        if !libc::WIFSTOPPED(status) {
            if tid == pid {
                let end = match libc::WIFSIGNALED(status) {
                    true => End::Signal(libc::WTERMSIG(status)),
                    false => End::Exit(libc::WEXITSTATUS(status)),
                };
                return Ok(Last { pid, end, space });
            }
            continue;
        }
        let signal = libc::WSTOPSIG(status);
        match status >> 16 {
            sys::EVENT_EXIT => {
                // The first thread may end alone, and the process with any of the others.
                let may_be_last = lives_on && (tid == pid || space.is_some());
                let outlived = may_be_last && outlived(pid, tid);
                if may_be_last && (tid == pid || !outlived) {
                    lives_on = outlived;
                    space = Some(look(pid, tid, &ended));
                } else if lives_on {
                    remember(&mut ended, pid, tid);
                }
                sys::go_on(tid, 0);
            }
            sys::EVENT_CLONE => {
                sys::event_message(tid).into_iter().for_each(|made| let_go_if_foreign(pid, made));
                sys::go_on(tid, 0);
            }
            sys::EVENT_STOP if !is_thread(pid, tid) => sys::let_go(tid),
            sys::EVENT_STOP if is_stop(signal) => sys::stay(tid),
            0 => sys::go_on(tid, signal),
            _ => sys::go_on(tid, 0),
        }
    }
}

/// Is it a thread of this process?
fn is_thread(pid: i32, tid: i32) -> bool {
    Path::new(&format!("/proc/{pid}/task/{tid}")).exists()
}

/// The kernel has us trace also processes that were made like threads (clone with another signal than SIGCHLD). It is done before
/// whoever made it goes on: we could end with that one, and what we still trace then is killed.
fn let_go_if_foreign(pid: i32, made: i32) {
    // One that has stopped before is not ours to wait for any more.
    if !is_thread(pid, made) && waited(made).is_ok_and(|(_, status)| libc::WIFSTOPPED(status)) {
        sys::let_go(made);
    }
}

/// Does the process go on when this thread has ended? When the whole process ends, the kernel kills its other threads;
/// that takes a moment, and their stack pointers are known only when they have stopped.
fn outlived(pid: i32, tid: i32) -> bool {
    const PATIENCE: u32 = 100;
    for _ in 0..PATIENCE {
        let others = others(pid, tid);
        if others.contains(&Dying::Asleep) {
            return true;
        }
        if others.iter().all(|other| *other == Dying::Stopped) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    others(pid, tid).contains(&Dying::Unknown)
}

/// How far a thread is on its way out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Dying {
    /// It waits for something else than its end.
    Asleep,
    /// It runs, perhaps to its end.
    Unknown,
    /// It was told to end.
    Killed,
    /// It waits for us, or is gone.
    Stopped,
}

fn others(pid: i32, tid: i32) -> Vec<Dying> {
    let own = tid.to_string();
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let others = tasks.filter(|task| task.file_name().to_str() != Some(own.as_str()));
    let dying = |status: String| {
        let value =
            |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default().trim();
        let pending = u64::from_str_radix(value("SigPnd:"), 16).unwrap_or(0);
        match value("State:").chars().next() {
            // Gone while it was read.
            None | Some('t' | 'Z' | 'X') => Dying::Stopped,
            _ if pending & 1 << (libc::SIGKILL - 1) != 0 => Dying::Killed,
            Some('S') => Dying::Asleep,
            _ => Dying::Unknown,
        }
    };
    others.map(|task| dying(fs::read_to_string(task.path().join("status")).unwrap_or_default())).collect()
}

/// Does this signal stop processes?
fn is_stop(signal: i32) -> bool {
    matches!(signal, libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU)
}

/// Read all that the process has, and add the threads that ended, the last first. Once the first thread has ended,
/// what it shared with the others is found with them only.
fn look(pid: i32, tid: i32, ended: &VecDeque<Task>) -> Result<Space, ProcError> {
    let root = Root::live();
    let of = |number: i32| root.process(u32::try_from(number).unwrap_or_default());
    let mut space = Space::of_process(&of(tid)?)?;
    if tid != pid {
        space.pid = u32::try_from(pid).ok();
        space.name = of(pid).and_then(|process| process.comm()).ok();
    }
    let there: Vec<u32> = space.tasks.list.iter().map(|task| task.tid).collect();
    let gone = ended.iter().rev().filter(|task| !there.contains(&task.tid));
    space.tasks.list.extend(gone.cloned());
    Ok(space)
}

/// Where the stack of a thread is that ends now.
fn remember(ended: &mut VecDeque<Task>, pid: i32, tid: i32) {
    let folder = format!("/proc/{pid}/task/{tid}");
    let read = |name: &str| fs::read(format!("{folder}/{name}")).unwrap_or_default();
    let stack_pointer = task::stack_pointer(&read("syscall"));
    if stack_pointer.is_none() {
        return;
    }
    let name = process::name_of(&read("comm"));
    if ended.len() == REMEMBERED {
        ended.pop_front();
    }
    ended.push_back(Task { tid: u32::try_from(tid).unwrap_or_default(), name, stack_pointer, ended: true });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A shell sends it to what it started, a script to its children.
    #[test]
    fn a_signal_to_go_on_at_the_start_loses_nothing() {
        for _ in 0..20 {
            let last = run(&mut Command::new("true"), |pid| {
                sys::kill(pid, libc::SIGCONT).unwrap();
            })
            .unwrap();
            assert_eq!(last.end, End::Exit(0));
            assert!(last.space.unwrap().is_ok());
        }
    }

    #[test]
    fn a_signal_that_comes_with_it_is_not_lost() {
        for _ in 0..20 {
            let last = run(&mut Command::new("true"), |pid| {
                sys::kill(pid, libc::SIGTERM).unwrap();
                sys::kill(pid, libc::SIGCONT).unwrap();
            })
            .unwrap();
            assert_eq!(last.end, End::Signal(libc::SIGTERM));
            assert!(last.space.unwrap().is_ok());
        }
    }
}
