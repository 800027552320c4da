// SPDX-License-Identifier: MIT
//! Leaks of a running process: it is asked by a signal, and answers in its file.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use quarry_measure::signals;
use quarry_proc::Root;

use super::folder::Growing;
use super::running::VARIABLE;
use super::show::Show;
use crate::failure;

/// What the library listens to: src/os/stop.h.
const SIGNAL: u32 = 63;
/// The library gives up a search after a minute, and writes then.
const PATIENCE: Duration = Duration::from_secs(120);
const OFTEN: Duration = Duration::from_millis(20);

/// Ask it, and show what is lost now.
pub fn ask(pid: i32, show: &mut Show) -> anyhow::Result<()> {
    let file = file(pid)?;
    let failed = |error: std::io::Error| failure::failed(format_args!("{}: {error}", file.display()));
    let mut growing = Growing::open(&file).map_err(failed)?;
    let mut before = 0;
    read(&mut growing, show).map_err(failed)??;
    before += show.scans();
    signals::send(pid, SIGNAL as i32);
    let start = Instant::now();
    while show.scans() == before {
        if !listens(pid) {
            return Err(failure::failed(format_args!("process {pid} ended before it answered")));
        }
        if start.elapsed() > PATIENCE {
            return Err(failure::failed(format_args!(
                "process {pid} did not answer for {} seconds: it stands still, or its threads block signals",
                PATIENCE.as_secs()
            )));
        }
        std::thread::sleep(OFTEN);
        read(&mut growing, show).map_err(failed)??;
    }
    show.latest_scan();
    Ok(())
}

fn read(growing: &mut Growing, show: &mut Show) -> std::io::Result<anyhow::Result<()>> {
    let mut result = Ok(());
    growing.read(|source, line| {
        if result.is_ok() {
            result = show.take(source, line);
        }
    })?;
    Ok(result)
}

/// Does it catch the signal? Else the signal would end it.
fn listens(pid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 << (SIGNAL - 1) != 0)
}

/// The number that it has for itself, which is another one than ours if it lives in a PID namespace of its own.
fn own_number(status: &str) -> Option<i32> {
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_whitespace().last()?.parse().ok()
}

/// The file that it writes to: the last of this process.
fn file(pid: i32) -> anyhow::Result<PathBuf> {
    let refused = |why: &str| failure::failed(format_args!("process {pid} {why}"));
    let process = Root::live().process(u32::try_from(pid).unwrap_or_default()).map_err(failure::failed)?;
    let environment = process.read("environ").map_err(failure::failed)?;
    let unchecked = || refused("is not checked; start it by quarry check -- CMD");
    let prefix = format!("{VARIABLE}=");
    let options =
        environment.split(|&byte| byte == 0).find_map(|entry| entry.strip_prefix(prefix.as_bytes()));
    let options = options.and_then(|options| std::str::from_utf8(options).ok()).ok_or_else(unchecked)?;
    let folder = options.split(',').find_map(|option| option.strip_prefix("out:")).ok_or_else(unchecked)?;
    if !listens(pid) {
        return Err(refused("does not look for leaks: it was started with --leaks no, or ends now"));
    }
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let own = own_number(&status).unwrap_or(pid);
    let seen = process.file_seen(folder);
    let named = (1..=1000).map(|n| seen.join(format!("{own}.{n}.check")));
    let last = named.take_while(|path| path.exists()).last();
    last.ok_or_else(|| refused(&format!("has no file in {folder}; has the folder gone?")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_number_is_its_own() {
        assert_eq!(own_number("Pid:\t4711\nNSpid:\t4711\t12\t1\nNSsid:\t0\n"), Some(1));
        assert_eq!(own_number("Pid:\t4711\nNSpid:\t4711\n"), Some(4711));
        // A kernel without namespaces of processes.
        assert_eq!(own_number("Pid:\t4711\n"), None);
    }
}
