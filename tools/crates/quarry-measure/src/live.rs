// SPDX-License-Identifier: MIT
//! Is the preloaded library really in the program? Two witnesses: the running program's map, and,
//! for programs too short to look at, a dry run of their dynamic linker.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::spawn;

/// Looks at a running program now and then. The last look counts: a shell may become the program.
pub struct Watch {
    maps: PathBuf,
    library: PathBuf,
    next: Duration,
    seen: Option<bool>,
}

impl Watch {
    // The first look comes when any dynamic linker is done, so that "not there" means something.
    const FIRST: Duration = Duration::from_millis(50);
    const LAST: Duration = Duration::from_secs(2);

    /// Watch process `pid` for `library`.
    pub fn new(pid: i32, library: &Path) -> Self {
        let library = fs::canonicalize(library).unwrap_or_else(|_| library.to_owned());
        Self { maps: format!("/proc/{pid}/maps").into(), library, next: Self::FIRST, seen: None }
    }

    /// Time until the next look, `None` after the last.
    pub fn next_look(&self, elapsed: Duration) -> Option<Duration> {
        (self.next <= Self::LAST).then(|| self.next.saturating_sub(elapsed))
    }

    /// Look, if it is time.
    pub fn look(&mut self, elapsed: Duration) {
        if self.next_look(elapsed) != Some(Duration::ZERO) {
            return;
        }
        self.next = elapsed * 2;
        // Unreadable, or empty because it ended: no witness.
        if let Some(maps) = fs::read(&self.maps).ok().filter(|m| !m.is_empty()) {
            self.seen = Some(mentions(&maps, &self.library));
        }
    }

    /// What the last look showed.
    pub fn seen(&self) -> Option<bool> {
        self.seen
    }
}

/// Does a line of this memory map end with the path?
fn mentions(maps: &[u8], library: &Path) -> bool {
    maps.split(|&b| b == b'\n').any(|line| {
        let path = line.iter().position(|&b| b == b'/').map(|at| &line[at..]);
        path == Some(library.as_os_str().as_bytes())
    })
}

/// What the dynamic linker would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DryRun {
    /// Load it.
    Loads,
    /// Not load it, for this reason.
    Refuses(String),
}

/// Ask `interpreter`, the dynamic linker of `program`, what it would load with this `preload`.
/// Nothing of the program runs.
pub fn dry_run(interpreter: &Path, program: &Path, preload: &OsStr, library: &Path) -> io::Result<DryRun> {
    let output = Command::new(interpreter)
        .arg("--list")
        .arg(program)
        .env("LD_PRELOAD", preload)
        .stdin(Stdio::null())
        .output()?;
    let complaint = String::from_utf8_lossy(&output.stderr).trim().lines().next().unwrap_or("").to_owned();
    let listed = output.stdout.split(|&b| b == b'\n').any(|line| {
        let text = line.trim_ascii();
        let path = library.as_os_str().as_bytes();
        text.starts_with(path) && text.get(path.len()).is_none_or(|&b| b == b' ')
    });
    Ok(match (output.status.success() && listed, complaint.is_empty()) {
        (true, _) => DryRun::Loads,
        (false, false) => DryRun::Refuses(complaint),
        (false, true) => DryRun::Refuses(String::from("its dynamic linker does not load it")),
    })
}

/// Does the dynamic linker bind `program`'s malloc to `library`, or to one that it brings along? `None`: it does not
/// say, as for a program without it. The program runs with --help.
pub fn serves(program: &Path, preload: &OsStr, library: &Path) -> io::Result<Option<bool>> {
    // Of a name that nobody can foresee: all that is in it is believed.
    let dir = tempfile::tempdir()?;
    let mut command = Command::new(program);
    command.arg("--help").env("LD_PRELOAD", preload).env("LD_BIND_NOW", "1").stdin(Stdio::null());
    command.env("LD_DEBUG", "bindings").env("LD_DEBUG_OUTPUT", dir.path().join("log"));
    // A library may hang before the program begins.
    let options = spawn::Options { timeout: Some(Duration::from_secs(10)), ..spawn::Options::default() };
    let ended = spawn::measure(&mut command, &options);
    let mut log = Vec::new();
    for entry in fs::read_dir(dir.path())?.flatten() {
        log.extend(fs::read(entry.path())?);
    }
    dir.close()?;
    ended?;
    Ok(bound(&String::from_utf8_lossy(&log), library))
}

/// The lines are "binding file A [0] to B [0]: normal symbol `malloc' [VERSION]".
fn bound(log: &str, library: &Path) -> Option<bool> {
    let target = |line: &str| {
        let (_, rest) = line.split_once(" to ")?;
        let (file, rest) = rest.split_once(" [0]: ")?;
        rest.starts_with("normal symbol `malloc'").then(|| file.to_owned())
    };
    let targets: Vec<String> = log.lines().filter_map(target).collect();
    (!targets.is_empty()).then(|| targets.iter().any(|file| Path::new(file) == library))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bindings_are_read_by_whole_paths() {
        let line = |file: &str, symbol: &str| {
            format!("  71:\tbinding file ./prog [0] to {file} [0]: normal symbol `{symbol}' [GLIBC_2.2.5]\n")
        };
        let library = Path::new("/lib/libx.so");
        let both = line("/lib/libx.so", "malloc") + &line("/lib/libc.so.6", "free");
        assert_eq!(bound(&both, library), Some(true));
        assert_eq!(bound(&line("/lib/libx.so", "mallocx"), library), None);
        assert_eq!(bound(&line("/lib/libc.so.6", "malloc"), library), Some(false));
        assert_eq!(bound("", library), None);
    }

    #[test]
    fn a_map_is_read_by_whole_paths() {
        let maps = b"7f00-7f01 r-xp 00000000 fe:00 12   /lib/liba.so\n7f01-7f02 rw-p 0 00:00 0\n";
        assert!(mentions(maps, Path::new("/lib/liba.so")));
        assert!(!mentions(maps, Path::new("/lib/liba.so.2")));
        assert!(!mentions(maps, Path::new("liba.so")));
    }

    #[test]
    fn looks_get_rarer_and_stop() {
        let mut watch = Watch::new(std::process::id() as i32, Path::new("/nowhere/libx.so"));
        assert_eq!(watch.next_look(Duration::ZERO), Some(Watch::FIRST));
        watch.look(Duration::from_millis(10));
        assert_eq!(watch.seen(), None);
        watch.look(Duration::from_millis(60));
        assert_eq!(watch.seen(), Some(false));
        assert_eq!(watch.next_look(Duration::from_millis(60)), Some(Duration::from_millis(60)));
        watch.look(Duration::from_millis(1900));
        assert_eq!(watch.next_look(Duration::from_millis(1900)), None);
    }

    #[test]
    fn our_own_libc_is_seen() {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let Some(libc) = maps.lines().filter_map(|l| l.split_once('/')).find(|(_, p)| p.contains("libc.so"))
        else {
            return; // a static C library
        };
        let mut watch = Watch::new(std::process::id() as i32, Path::new(&format!("/{}", libc.1)));
        watch.look(Watch::FIRST);
        assert_eq!(watch.seen(), Some(true));
    }
}
