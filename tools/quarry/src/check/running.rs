// SPDX-License-Identifier: MIT
//! A command under libquarry-check.so, and its reports while it runs.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use quarry_measure::preload::{self, Conf};
use quarry_measure::program::Program;
use quarry_measure::signals::Forwarding;
use quarry_measure::spawn::{self, Ran};
use quarry_measure::{elf, live, locate};
use tempfile::TempDir;

use super::folder::Folder;
use super::gdb;
use super::living;
use super::options::CheckOptions;
use super::show::Show;
use crate::output::Output;
use crate::{failure, under};

/// The library that checks.
pub const CHECKER: &str = "libquarry-check.so";
/// The variable that it reads.
pub const VARIABLE: &str = "QUARRY_CHECK";
/// How often reports are looked for while the command runs.
const OFTEN: Duration = Duration::from_millis(20);
/// At least so often, where a look takes long.
const SELDOM: Duration = Duration::from_secs(1);

/// Where reports go.
pub enum Reports {
    Kept(PathBuf),
    Temporary(TempDir),
}

impl Reports {
    /// The folder that the user names, which has no reports yet, or one that is removed at the end.
    pub fn new(options: &CheckOptions) -> anyhow::Result<Self> {
        match &options.keep {
            Some(path) => {
                let name = path.display();
                std::fs::create_dir_all(path).with_context(|| format!("cannot make the folder {name}"))?;
                let mut entries = std::fs::read_dir(path).with_context(|| format!("cannot read {name}"))?;
                if entries.any(|entry| entry.is_ok_and(|entry| super::show::is_raw(&entry.path()))) {
                    return Err(failure::usage(format_args!(
                        "{name} has reports already; name an empty folder"
                    )));
                }
                Ok(Self::Kept(std::path::absolute(path)?))
            }
            None => {
                let dir = tempfile::Builder::new().prefix("quarry-check-").tempdir();
                let place = env::temp_dir();
                let place = place.display();
                dir.map(Self::Temporary).with_context(|| {
                    format!("cannot make a folder in {place}; set TMPDIR to a directory that is writable")
                })
            }
        }
    }

    /// Processes still write there: it is not removed.
    pub fn stay(&mut self) {
        if let Self::Temporary(dir) = self {
            dir.disable_cleanup(true);
        }
    }

    pub fn path(&self) -> &Path {
        match self {
            Self::Kept(path) => path,
            Self::Temporary(dir) => dir.path(),
        }
    }
}

/// Everything that a run needs.
pub struct Plan<'a> {
    options: &'a CheckOptions,
    library: PathBuf,
    preload: OsString,
}

impl<'a> Plan<'a> {
    /// An error if the command cannot be checked.
    pub fn new(options: &'a CheckOptions, output: &Output) -> anyhow::Result<Self> {
        let command = &options.command[0];
        let program =
            under::resolve(&options.command).map_err(|error| failure::not_started(command, &error))?;
        let library = match &options.lib {
            Some(path) => std::path::absolute(path)?,
            None => locate::companion(CHECKER, None)?.path,
        };
        locate::still_there(&library).with_context(|| format!("{CHECKER} is not there"))?;
        let preload = preload::ld_preload(&library, under::existing_preload().as_deref())?;
        let plan = Self { options, library, preload };
        plan.foresee(&program, output)?;
        Ok(plan)
    }

    /// What keeps the library away is told before the command runs. Of children nothing is known yet.
    fn foresee(&self, program: &Program, output: &Output) -> anyhow::Result<()> {
        let library = &self.library;
        let binary = program.binary.display();
        let refuse = |reason: String| -> anyhow::Result<()> {
            if self.options.children {
                output.warn(format_args!("{reason}; only its children can be checked"));
                return Ok(());
            }
            anyhow::bail!("{reason}\nNothing of it could be checked, so it was not run")
        };
        let found = elf::obstacles(&program.binary, Some(library)).unwrap_or_default();
        if let Some(obstacle) = found.iter().find(|obstacle| obstacle.is_total()) {
            return refuse(format!("{binary} {}", explained(*obstacle)));
        }
        for obstacle in &found {
            output.warn(format_args!("{binary} {obstacle}"));
        }
        let Ok(Some(elf::Facts { interpreter: Some(linker), .. })) = elf::read(&program.binary) else {
            return Ok(());
        };
        match live::dry_run(&linker, &program.binary, &self.preload, library) {
            Ok(live::DryRun::Refuses(reason)) => {
                refuse(format!("{binary} will not load {CHECKER}: {reason}"))
            }
            _ => Ok(()),
        }
    }

    fn variable(&self, folder: &Path, more: &Conf) -> anyhow::Result<String> {
        let text = folder.to_str().filter(|text| !text.contains([',', '\n']));
        let Some(text) = text else {
            anyhow::bail!(
                "{}: {} cannot stand in {VARIABLE}; set TMPDIR or --keep to another folder",
                folder.display(),
                under::unfit(folder)
            );
        };
        let environment = env::var_os(VARIABLE).unwrap_or_default();
        let mut conf =
            Conf::from_environment(&environment.to_string_lossy()).merge(&self.options.conf()).merge(more);
        conf.set("out", text);
        Ok(conf.to_string())
    }

    fn command(&self, variable: &str, output: &Output) -> anyhow::Result<(Command, Option<gdb::Script>)> {
        output.detail(format_args!("LD_PRELOAD={}", Path::new(&self.preload).display()));
        output.detail(format_args!("{VARIABLE}={variable}"));
        if self.options.gdb {
            let script = gdb::Script::new(&self.library, &self.preload, variable)?;
            return Ok((script.command(&self.options.command), Some(script)));
        }
        let mut command = under::command(&self.options.command);
        command.env("LD_PRELOAD", &self.preload).env(VARIABLE, variable);
        Ok((command, None))
    }

    /// Run the command to its end, and show what comes.
    pub fn run(&self, folder: &Path, more: &Conf, show: &mut Show, output: &Output) -> anyhow::Result<Ran> {
        let variable = self.variable(folder, more)?;
        let (mut command, _script) = self.command(&variable, output)?;
        let name = &self.options.command[0];
        let forwarding = Forwarding::all();
        let started = spawn::start(&mut command).map_err(|error| failure::not_started(name, &error))?;
        let pid = started.pid();
        if !self.options.children && !self.options.gdb {
            show.only(pid as u32);
        }
        let (send, receive) = mpsc::channel();
        let waiting = std::thread::spawn(move || {
            // Nobody listens only where we have failed.
            let _ = send.send(started.wait());
        });
        let mut folder = Folder::new(folder);
        let mut failed = None;
        let mut read = |show: &mut Show| {
            let mut result = Ok(());
            let read = folder.read(|source, line| {
                if result.is_ok() {
                    result = show.take(source, line);
                }
            });
            let read = read.context("cannot read the reports");
            // The command is not to suffer from it.
            failed = failed.take().or(read.and(result).err());
        };
        let mut pause = OFTEN;
        let ran = loop {
            match receive.recv_timeout(pause) {
                Ok(ran) => break ran?,
                Err(RecvTimeoutError::Timeout) => {
                    let start = Instant::now();
                    living::reap(pid);
                    read(show);
                    // A look at very many files takes long. The command's processes are to have the processor.
                    pause = (start.elapsed() * 9).clamp(OFTEN, SELDOM);
                }
                Err(RecvTimeoutError::Disconnected) => {
                    anyhow::bail!("cannot wait for {}", Path::new(name).display())
                }
            }
        };
        read(show);
        drop(forwarding);
        let _ = waiting.join();
        let (_, too_long) = folder.left();
        show.findings.damaged += too_long;
        show.findings.dropped += folder.beyond();
        if let Some(error) = failed {
            output.error(&error);
        }
        Ok(ran)
    }
}

/// The rest of a sentence that begins with the program.
fn explained(obstacle: elf::Obstacle) -> String {
    use elf::Obstacle::{Capabilities, OwnMalloc, SetId, Static};
    match obstacle {
        Static => "is statically linked, so that no library can be loaded into it; link it dynamically for the check".into(),
        SetId => "runs as another user or group (set-ID), so that the dynamic linker ignores LD_PRELOAD; check a copy \
                  without the bit, as that user"
            .into(),
        Capabilities => "has file capabilities, so that the dynamic linker ignores LD_PRELOAD; check a copy, which has none"
            .into(),
        OwnMalloc => "has a malloc of its own, which is called before that of the library; build it without".into(),
        other => other.to_string(),
    }
}

/// Now, in nanoseconds since 1970.
pub fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
