// SPDX-License-Identifier: MIT
//! A process that is held for a moment, with all its threads.
//!
//! They are traced (PTRACE_SEIZE, PTRACE_INTERRUPT). When whoever holds them ends, however that happens, the kernel lets them go on. A
//! stop signal would stay.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::{ProcError, TRACE};
use crate::sys;

/// A thread that does not stop by then, since it waits for a disk, is left as it is.
const PATIENCE: Duration = Duration::from_secs(2);
/// Threads may make others until all are held.
const ROUNDS: usize = 100;

/// A process that is held until this is dropped.
#[derive(Debug)]
pub struct Held {
    /// Threads, and the signal that each was about to get.
    threads: Vec<(i32, i32)>,
    since: Instant,
}

impl Held {
    /// Hold it. Only the thread that calls this may let it go. After an error a thread may still be about to stop, and goes on
    /// when we end.
    pub fn new(pid: u32) -> Result<Self, ProcError> {
        let folder = PathBuf::from(format!("/proc/{pid}/task"));
        Self::all(&folder).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => ProcError::Gone(pid),
            io::ErrorKind::PermissionDenied => ProcError::Denied { file: folder, needs: TRACE },
            _ => ProcError::Io { file: folder, source },
        })
    }

    fn all(folder: &Path) -> io::Result<Self> {
        let mut held = Self { threads: Vec::new(), since: Instant::now() };
        for _ in 0..ROUNDS {
            let tasks = fs::read_dir(folder)?.flatten();
            let tids = tasks.filter_map(|task| task.file_name().to_str()?.parse::<i32>().ok());
            let new: Vec<i32> =
                tids.filter(|tid| held.threads.iter().all(|thread| thread.0 != *tid)).collect();
            if new.is_empty() {
                return Ok(held);
            }
            let known = held.threads.len();
            for tid in new {
                match sys::interrupt(tid) {
                    Ok(()) => held.threads.push((tid, 0)),
                    // It has ended meanwhile.
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                    Err(error) => return Err(error),
                }
            }
            held.wait(known)?;
        }
        Err(io::Error::other("it makes threads faster than they can be held"))
    }

    /// Until those from this one on have stopped.
    fn wait(&mut self, from: usize) -> io::Result<()> {
        for (tid, signal) in &mut self.threads[from..] {
            loop {
                match sys::look(*tid) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Ok(None) if self.since.elapsed() > PATIENCE => {
                        return Err(io::Error::other(format!("its thread {tid} does not stop")));
                    }
                    Ok(None) => std::thread::sleep(Duration::from_micros(50)),
                    // A signal that it was about to get, which it gets when it goes on.
                    Ok(Some(status)) if libc::WIFSTOPPED(status) && status >> 16 == 0 => {
                        *signal = libc::WSTOPSIG(status);
                        break;
                    }
                    Ok(Some(_)) | Err(_) => break,
                }
            }
        }
        Ok(())
    }

    /// How long it has been held.
    pub fn time(&self) -> Duration {
        self.since.elapsed()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.threads.iter().for_each(|&(tid, signal)| sys::let_go_with(tid, signal));
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn states(pid: u32) -> Vec<char> {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
        let state = |stat: String| stat.rsplit(") ").next().unwrap().chars().next().unwrap();
        tasks.map(|task| state(fs::read_to_string(task.path().join("stat")).unwrap())).collect()
    }

    #[test]
    fn it_stands_still_and_goes_on() {
        // It works on without an end, and gets a signal while it is held.
        let script = "trap 'echo got' USR1; echo ready; while :; do :; done";
        let mut child = Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = io::BufRead::lines(io::BufReader::new(child.stdout.take().unwrap()));
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
        let pid = child.id();
        match Held::new(pid) {
            Err(error @ ProcError::Denied { .. }) => eprintln!("skipped: {error}"),
            held => {
                let held = held.unwrap();
                assert_eq!(states(pid), ['t']);
                sys::kill(pid as i32, libc::SIGUSR1).unwrap();
                assert!(held.time() < Duration::from_secs(3600));
                drop(held);
                assert_eq!(lines.next().unwrap().unwrap(), "got");
                assert_ne!(states(pid), ['t']);
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn who_is_not_there_is_not_held() {
        assert!(Held::new(i32::MAX as u32).is_err_and(|error| error.is_gone()));
    }
}
