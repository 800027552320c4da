// SPDX-License-Identifier: MIT
//! One run of a program, seen at its end: what it holds then, and the most it ever held, as its own memory and not that of the
//! process that started it.
//!
//! The program is stopped for a moment when it ends (ptrace), its output goes nowhere.

use std::fs;
use std::io;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::spawn::{End, Usage};
use crate::sys::{self, Stop};

/// What was seen.
#[derive(Debug, Clone, PartialEq)]
pub struct Witnessed {
    /// How it ended.
    pub end: End,
    /// The most resident memory since its last exec. Where it could not be stopped it is the kernel's figure for the process, which
    /// begins with what the starting process had.
    pub peak_rss_bytes: u64,
    /// Resident memory at the end.
    pub end_rss_bytes: Option<u64>,
    /// Processor time of its threads, in seconds; not of its children, and not of its end.
    pub cpu_s: f64,
}

/// Run it with empty input. It is killed when it takes longer than `timeout`.
pub fn run(command: &mut Command, timeout: Duration) -> io::Result<Witnessed> {
    use std::os::unix::process::CommandExt;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.process_group(0);
    sys::die_with_us(command);
    sys::stop_at_end(command);
    let start = Instant::now();
    let pid = sys::spawn_forked(command)?.id() as i32;
    sys::set_signal_target(-pid);
    let (done, wait) = mpsc::channel::<()>();
    let killer = std::thread::spawn(move || {
        let late = wait.recv_timeout(timeout) == Err(mpsc::RecvTimeoutError::Timeout);
        if late {
            sys::kill(-pid, libc::SIGKILL);
        }
        late
    });
    let seen = follow(pid);
    // The process is there until it is reaped, so the number is its own.
    drop(done);
    let late = killer.join().unwrap_or(false);
    if seen.is_err() {
        sys::kill(-pid, libc::SIGKILL);
        sys::wait_ended(pid)?;
    }
    sys::set_signal_target(0);
    let (status, raw) = sys::reap(pid)?;
    let usage = Usage::new(start.elapsed(), &raw);
    let last = seen?;
    Ok(Witnessed {
        end: if late { End::Timeout } else { End::from_status(status) },
        peak_rss_bytes: last.map_or(usage.peak_rss_bytes, |last| last.peak),
        end_rss_bytes: last.map(|last| last.now),
        cpu_s: last.map_or(usage.user_s + usage.system_s, |last| last.cpu_s),
    })
}

/// What it had when it ended.
#[derive(Debug, Clone, Copy)]
struct Last {
    peak: u64,
    now: u64,
    cpu_s: f64,
}

/// Until it has ended. None: it did not stop for us.
fn follow(pid: i32) -> io::Result<Option<Last>> {
    let mut last = None;
    loop {
        match sys::next_stop(pid)? {
            Stop::Ended => return Ok(last),
            Stop::AtEnd => {
                last = look(pid);
                sys::go_on(pid, 0);
            }
            Stop::Signal(signal) => sys::go_on(pid, signal),
            Stop::Other => sys::go_on(pid, 0),
        }
    }
}

fn look(pid: i32) -> Option<Last> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let bytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
    };
    Some(Last { peak: bytes("VmHWM:")?, now: bytes("VmRSS:")?, cpu_s: sys::cpu_time(pid)?.as_secs_f64() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(100);

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn the_end_is_seen_and_ours_is_not_in_it() {
        let ballast = vec![1u8; 64 << 20];
        let seen = run(&mut shell("exit 7"), LONG).unwrap();
        assert!(ballast[ballast.len() / 2] == 1);
        assert_eq!(seen.end, End::Exit(7));
        let end = seen.end_rss_bytes.expect("tests may trace");
        assert!(end <= seen.peak_rss_bytes && seen.peak_rss_bytes < 16 << 20, "{seen:?}");
        let held = run(&mut shell("x=$(head -c 40000000 /dev/zero | tr '\\0' a); exit 0"), LONG).unwrap();
        assert!(held.end_rss_bytes.unwrap() > 38 << 20, "{held:?}");
        assert!(held.cpu_s > 0.0);
    }

    #[test]
    fn signals_arrive_and_execs_are_followed() {
        assert_eq!(run(&mut shell("kill -TERM $$"), LONG).unwrap().end, End::Signal(libc::SIGTERM));
        assert_eq!(
            run(&mut shell("trap 'exit 9' USR1; kill -USR1 $$; exit 1"), LONG).unwrap().end,
            End::Exit(9)
        );
        let seen = run(&mut shell("exec /bin/sh -c 'exit 4'"), LONG).unwrap();
        assert_eq!(seen.end, End::Exit(4));
        assert!(seen.end_rss_bytes.is_some());
    }

    #[test]
    fn who_takes_too_long_is_killed() {
        let seen = run(&mut shell("exec sleep 600"), Duration::from_millis(50)).unwrap();
        assert_eq!(seen.end, End::Timeout);
    }

    #[test]
    fn what_cannot_be_started_is_an_error() {
        let error = run(&mut Command::new("/nonexistent/program"), LONG).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
