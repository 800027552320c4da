// SPDX-License-Identifier: MIT
//! Signals belong to the program: the tool hands them on and lives to report.

use std::io;
use std::path::Path;

use crate::sys;

/// All by which a program is ended from outside, but for SIGKILL and those that the C library keeps for itself. Not those that
/// tell of a fault of the program's own (SIGSEGV and the like), and not SIGPIPE, which the standard library has ignored.
fn endings() -> impl Iterator<Item = i32> {
    NAMED.into_iter().chain(libc::SIGRTMIN()..=libc::SIGRTMAX())
}

const NAMED: [i32; 15] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGABRT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGTERM,
    libc::SIGSTKFLT,
    libc::SIGXCPU,
    libc::SIGXFSZ,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGIO,
    libc::SIGPWR,
];

/// What ends a program that writes to a pipe of which the reader has gone.
pub const BROKEN_PIPE: i32 = libc::SIGPIPE;

/// While it lives, the given signals are handed to the program that [`crate::spawn`] runs.
pub struct Forwarding {
    before: Vec<(i32, libc::sigaction)>,
}

impl Forwarding {
    /// For a program in the foreground: all that a user or a supervisor sends.
    pub fn all() -> Self {
        Self::of([libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGUSR1, libc::SIGUSR2])
    }

    /// For measured programs: what means "stop".
    pub fn stopping() -> Self {
        Self::of([libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM])
    }

    /// For programs that have something to put in order before they end, whatever ends them.
    pub fn ending() -> Self {
        Self::of(endings())
    }

    fn of(signals: impl IntoIterator<Item = i32>) -> Self {
        let before = signals.into_iter().filter_map(|s| Some((s, sys::handle_signal(s)?))).collect();
        Self { before }
    }

    /// From now on they go to this process, which something else than [`crate::spawn`] started.
    pub fn hand_to(&self, pid: i32) {
        sys::set_signal_target(pid);
    }

    /// The last signal that came, if one did.
    pub fn seen(&self) -> Option<i32> {
        Some(sys::signal_seen()).filter(|&s| s != 0)
    }
}

impl Drop for Forwarding {
    fn drop(&mut self) {
        for (signal, old) in &self.before {
            sys::restore_signal(*signal, old);
        }
        sys::set_signal_target(0);
        // They were for the program that has run, and for no later one.
        sys::forget_signals();
    }
}

/// For programs that have changed the terminal: while it lives, SIGTSTP waits until they have given it back, and SIGCONT is
/// noticed. One at a time waits, and several may notice.
pub struct Stops {
    /// How often we went on, when somebody asked last.
    known: u32,
    before: Vec<(i32, libc::sigaction)>,
}

impl Stops {
    /// From now on.
    pub fn noticed() -> Self {
        Self::of(&[libc::SIGTSTP, libc::SIGCONT])
    }

    /// The same for who may be stopped at once, and only wants to know of it afterwards.
    pub fn noticed_afterwards() -> Self {
        Self::of(&[libc::SIGCONT])
    }

    fn of(signals: &[i32]) -> Self {
        let known = sys::times_continued();
        let before = signals.iter().filter_map(|&s| Some((s, sys::notice_job_signal(s)?))).collect();
        Self { known, before }
    }

    /// Are we to stop?
    pub fn asked(&self) -> bool {
        sys::take_stop_asked()
    }

    /// Were we stopped, by whomever, and go on, since this was made or asked?
    pub fn continued(&mut self) -> bool {
        let now = sys::times_continued();
        std::mem::replace(&mut self.known, now) != now
    }

    /// Stop as the system does, and return when we go on; `group`: with all processes of the job, as the terminal's key stops
    /// them. Where nobody could let it go on (an orphaned group), the kernel does not stop it, and this returns at once, as it
    /// does where SIGTSTP was ignored from the beginning.
    pub fn stop(&self, group: bool) {
        let Some((_, old)) = self.before.iter().find(|(signal, _)| *signal == libc::SIGTSTP) else { return };
        sys::restore_signal(libc::SIGTSTP, old);
        // Sent by the first thread, it is delivered to that before the call returns.
        sys::kill(if group { 0 } else { std::process::id() as i32 }, libc::SIGTSTP);
        sys::notice_job_signal(libc::SIGTSTP);
    }
}

impl Drop for Stops {
    fn drop(&mut self) {
        for (signal, old) in &self.before {
            sys::restore_signal(*signal, old);
        }
    }
}

/// While it lives, signals that end the tool, and a lack of memory, remove this file first. For one file at a time; of more,
/// the first is removed.
pub struct Removing {
    ours: bool,
    before: Vec<(i32, libc::sigaction)>,
}

impl Removing {
    /// The file that `make` makes at this path, where there is none: it is doomed before it is there, so that no signal comes in
    /// between.
    pub fn making<T>(file: &Path, make: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<(T, Self)> {
        let removing = Self::new(file);
        Ok((make(file)?, removing))
    }

    fn new(file: &Path) -> Self {
        let ours = sys::doom(file);
        let handled = |signal| Some((signal, sys::remove_at_signal(signal)?));
        Self { ours, before: endings().filter(|_| ours).filter_map(handled).collect() }
    }
}

impl Drop for Removing {
    fn drop(&mut self) {
        if self.ours {
            sys::pardon();
        }
        for (signal, old) in &self.before {
            sys::restore_signal(*signal, old);
        }
    }
}

/// The signal that no process can put off.
pub const KILL: i32 = libc::SIGKILL;

/// Send a signal to a process.
pub fn send(pid: i32, signal: i32) {
    sys::kill(pid, signal);
}

/// Is this what a process does to itself by a mistake?
pub fn is_fault(signal: i32) -> bool {
    const FAULTS: [i32; 7] =
        [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGABRT, libc::SIGTRAP, libc::SIGSYS];
    FAULTS.contains(&signal)
}

/// The name of a signal, such as `SIGSEGV`.
pub fn name(signal: i32) -> String {
    let name = match signal {
        libc::SIGHUP => "SIGHUP",
        libc::SIGINT => "SIGINT",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGILL => "SIGILL",
        libc::SIGTRAP => "SIGTRAP",
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGKILL => "SIGKILL",
        libc::SIGUSR1 => "SIGUSR1",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGUSR2 => "SIGUSR2",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGALRM => "SIGALRM",
        libc::SIGTERM => "SIGTERM",
        libc::SIGSTKFLT => "SIGSTKFLT",
        libc::SIGXCPU => "SIGXCPU",
        libc::SIGXFSZ => "SIGXFSZ",
        libc::SIGVTALRM => "SIGVTALRM",
        libc::SIGPROF => "SIGPROF",
        libc::SIGIO => "SIGIO",
        libc::SIGPWR => "SIGPWR",
        libc::SIGSYS => "SIGSYS",
        _ => return format!("signal {signal}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use super::*;

    const FILE: &str = "QUARRY_TEST_DOOMED";

    /// Not a test of its own: what the next one starts.
    #[test]
    #[ignore = "ends its process"]
    fn ends_while_it_makes_a_file() {
        let Some(path) = std::env::var_os(FILE) else { return };
        let made = Removing::making(Path::new(&path), |path| {
            let file = File::create_new(path)?;
            sys::kill(std::process::id() as i32, libc::SIGTERM);
            // Another thread may be the one that gets it.
            std::thread::sleep(Duration::from_secs(1000));
            Ok(file)
        });
        panic!("still here, {}", made.is_ok());
    }

    #[test]
    fn a_signal_while_a_file_is_made_removes_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "--ignored", "signals::tests::ends_while_it_makes_a_file"]).env(FILE, &path);
        let status = child.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
        assert_eq!(status.signal(), Some(libc::SIGTERM), "{status}");
        assert!(!path.exists());
    }
}
