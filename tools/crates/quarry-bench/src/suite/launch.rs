// SPDX-License-Identifier: MIT
//! One run under one malloc: a fresh process in a fresh folder, and what it cost.
//!
//! A small program of our own starts it (bench/suite/launch.c). What the kernel calls the peak of a process begins with the
//! memory of the one that started it, and this tool is larger than many of the programs.

use std::fs::{self, File};
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use indexmap::IndexMap;
use quarry_measure::signals::Stops;
use quarry_measure::spawn::{self, Background, End, Measured, Usage};
use quarry_measure::{locate, machine};
use regex_lite::Regex;
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use thiserror::Error;

use super::runs::{Here, Missing, Place, Run};
use super::samples::Sample;

/// A server must answer within this time.
const ANSWER: Duration = Duration::from_secs(10);
/// How often it is asked.
const ASK: Duration = Duration::from_millis(20);
/// By this the starter says that it has failed itself, unless it has written what the run cost.
const STARTER_FAILED: End = End::Exit(125);

/// What a run is under.
#[derive(Debug, Clone, Default)]
pub struct Malloc {
    /// The library; none for the system's malloc.
    pub path: Option<PathBuf>,
    /// Variables of its environment.
    pub variables: IndexMap<String, String>,
}

/// A run that went wrong, or that measured something else.
#[derive(Debug, Error)]
pub enum Fault {
    /// What went wrong under this malloc. All else says nothing of it.
    #[error("{0}")]
    Run(String),
    /// A part of it is gone.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// Nothing could be run.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// We were stopped meanwhile (Ctrl-Z), so it is to be done again.
    #[error("the tool was stopped")]
    Stopped,
}

/// Starts runs, and keeps the copies that some of them work in.
#[derive(Debug)]
pub struct Launcher {
    place: Place,
    limit: Duration,
    starter: PathBuf,
    also: Option<PathBuf>,
    processors: Vec<usize>,
    copies: TempDir,
}

impl Launcher {
    /// A run that takes longer than `limit` has failed. `starter` is the program that starts each; `also` is preloaded after
    /// the malloc.
    pub fn new(place: Place, limit: Duration, starter: PathBuf, also: Option<PathBuf>) -> io::Result<Self> {
        let copies = tempfile::Builder::new().prefix("quarry-suite-").tempdir()?;
        Ok(Self { place, limit, starter, also, processors: machine::processors(), copies })
    }

    /// One run. Its programs go on while we are stopped, and when they ended, or had no time left, nobody saw.
    pub fn measure(&self, run: &Run, malloc: &Malloc) -> Result<Sample, Fault> {
        let mut stops = Stops::noticed_afterwards();
        let sample = self.measure_once(run, malloc);
        if stops.continued() { Err(Fault::Stopped) } else { sample }
    }

    fn measure_once(&self, run: &Run, malloc: &Malloc) -> Result<Sample, Fault> {
        for library in malloc.path.iter().chain(&self.also) {
            locate::still_there(library)?;
        }
        let fresh = tempfile::Builder::new().prefix("quarry-suite-").tempdir()?;
        let port = if run.server.is_empty() { 0 } else { free_port()? };
        let here = Here { folder: fresh.path().to_owned(), port };
        let folder = match (&run.copy, &run.folder) {
            (Some(name), _) => self.copy(name)?,
            (None, Some(folder)) => folder.clone(),
            (None, None) => here.folder.clone(),
        };
        if !run.before.is_empty() {
            let mut before = quiet(&self.place.words(&run.before, &here)?);
            let ended = spawn::measure_silent(before.current_dir(&folder), self.limit)?;
            // It runs under no malloc.
            ended_well(run, &ended, self.limit).map_err(|fault| {
                io::Error::other(format!("'{}' before it: {fault}", run.before.join(" ")))
            })?;
        }
        let cost = here.folder.join("cost");
        let (usage, elapsed, output) = match run.server.is_empty() {
            true => self.measure_program(run, malloc, &folder, &here, &cost)?,
            false => self.measure_server(run, malloc, &here, &cost)?,
        };
        sample(run, elapsed, &usage, &fs::read_to_string(cost)?, &output)
    }

    fn measure_program(
        &self,
        run: &Run,
        malloc: &Malloc,
        folder: &Path,
        here: &Here,
        cost: &Path,
    ) -> Result<(Usage, f64, String), Fault> {
        let out = here.folder.join("out");
        let mut command = self.command(run, &self.place.words(&run.command, here)?, malloc, cost)?;
        write_to(&mut command, &out)?.current_dir(folder);
        let ended = spawn::measure_silent(&mut command, self.limit)?;
        started_well(&ended, cost)?;
        ended_well(run, &ended, self.limit)?;
        Ok((ended.usage, ended.usage.wall_s, text_of(&fs::read(out)?)))
    }

    /// The server is measured, and the clock is that of the client.
    fn measure_server(
        &self,
        run: &Run,
        malloc: &Malloc,
        here: &Here,
        cost: &Path,
    ) -> Result<(Usage, f64, String), Fault> {
        let words = |command| self.place.words(command, here);
        let mut command = self.command(run, &words(&run.server)?, malloc, cost)?;
        write_to(&mut command, &here.folder.join("out"))?.current_dir(&here.folder);
        let server = Background::start(&mut command)?;
        let asked = Instant::now();
        while self.client(&words(&run.ready)?)?.end != End::Exit(0) {
            let has_ended = server.has_ended();
            if has_ended || asked.elapsed() > ANSWER {
                if has_ended {
                    // Or was it the starter that failed?
                    started_well(&server.ends_within(self.limit)?, cost)?;
                }
                return Err(Fault::Run(format!("{}: the server does not answer", run.name)));
            }
            std::thread::sleep(ASK);
        }
        let out = here.folder.join("said");
        let mut client = quiet(&words(&run.command)?);
        client.stdout(File::create(&out)?);
        let ended = spawn::measure_silent(&mut client, self.limit)?;
        ended_well(run, &ended, self.limit)?;
        self.client(&words(&run.stop)?)?;
        let of_server = server.ends_within(self.limit)?;
        started_well(&of_server, cost)?;
        ended_well(run, &of_server, self.limit)?;
        Ok((of_server.usage, ended.usage.wall_s, text_of(&fs::read(out)?)))
    }

    fn client(&self, words: &[String]) -> io::Result<Measured> {
        spawn::measure_silent(&mut quiet(words), self.limit)
    }

    /// The program by way of the starter. With one thread it gets one processor, the last.
    fn command(&self, run: &Run, words: &[String], malloc: &Malloc, cost: &Path) -> Result<Command, Fault> {
        let mut command = Command::new(&self.starter);
        command.arg(cost).env_remove("LD_PRELOAD");
        let settings = run.env.iter().chain(&malloc.variables);
        command.args(settings.map(|(name, value)| format!("{name}={value}")));
        let preload: Vec<String> =
            malloc.path.iter().chain(&self.also).map(|path| path.display().to_string()).collect();
        if !preload.is_empty() {
            command.arg(format!("LD_PRELOAD={}", preload.join(":")));
        }
        command.arg("--").args(words);
        match &run.stdin {
            Some(name) => command.stdin(File::open(self.place.file(name)?)?),
            None => command.stdin(Stdio::null()),
        };
        if !run.threads {
            spawn::pin(&mut command, &self.processors[self.processors.len().saturating_sub(1)..]);
        }
        Ok(command)
    }

    /// The suite's folder stays as it is: the run works on a copy.
    fn copy(&self, name: &str) -> Result<PathBuf, Fault> {
        let copy = self.copies.path().join(name.replace('/', "_"));
        if !copy.exists() {
            // Of a link to a folder a link would be made: to nothing, or to the folder that is to stay as it is.
            let from = self.place.file(name)?.canonicalize()?;
            let made = Command::new("cp").arg("-a").arg("--").arg(&from).arg(&copy).output()?;
            if !made.status.success() {
                let why = String::from_utf8_lossy(&made.stderr).trim().to_owned();
                return Err(io::Error::other(format!("{}: cannot be copied: {why}", from.display())).into());
            }
        }
        Ok(copy)
    }
}

/// A command of which nobody hears.
fn quiet(words: &[String]) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).env_remove("LD_PRELOAD");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// What is said to both outputs goes to one file, in the order in which it is said.
fn write_to<'a>(command: &'a mut Command, out: &Path) -> io::Result<&'a mut Command> {
    let file = File::options().append(true).create_new(true).open(out)?;
    Ok(command.stdout(file.try_clone()?).stderr(file))
}

/// Did the starter do its part?
fn started_well(ended: &Measured, cost: &Path) -> io::Result<()> {
    let accounted = || fs::read_to_string(cost).is_ok_and(|cost| cost.ends_with('\n'));
    match ended.end == STARTER_FAILED && !accounted() {
        true => Err(io::Error::other("its starter failed; is there room for a process, and in TMPDIR?")),
        false => Ok(()),
    }
}

fn ended_well(run: &Run, ended: &Measured, limit: Duration) -> Result<(), Fault> {
    match ended.end {
        End::Exit(0) => Ok(()),
        End::Timeout => Err(Fault::Run(format!("{}: not done after {} s", run.name, limit.as_secs_f64()))),
        end => Err(Fault::Run(format!("{}: status {}", run.name, end.code()))),
    }
}

/// As samples of before have it: every end of a line is the same.
fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace("\r\n", "\n").replace('\r', "\n")
}

fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// The first sixteen digits of SHA-256.
pub fn digest(bytes: &[u8]) -> String {
    sha256(bytes)[..16].to_owned()
}

/// SHA-256 in hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What the run cost and printed, as a sample. `cost` has the peak in KiB and the page faults, with a disk and without.
fn sample(run: &Run, elapsed: f64, usage: &Usage, cost: &str, output: &str) -> Result<Sample, Fault> {
    let none = |pattern: &str| {
        let tail: String = output.chars().rev().take(200).collect::<Vec<_>>().into_iter().rev().collect();
        Fault::Run(format!("{}: no '{pattern}' in what it printed: {tail:?}", run.name))
    };
    let compiled = |pattern: &str| Regex::new(pattern).map_err(|_| none(pattern));
    for pattern in run.result.iter().chain(&run.says) {
        compiled(pattern)?.find(output).ok_or_else(|| none(pattern))?;
    }
    let numbers = |pattern: &str| -> Result<Vec<f64>, Fault> {
        let all = compiled(pattern)?;
        let found = all.captures_iter(output).filter_map(|found| found.get(1)?.as_str().parse().ok());
        Ok(found.collect())
    };
    let positive =
        |number: Option<f64>, pattern: &str| number.filter(|n| *n > 0.0).ok_or_else(|| none(pattern));
    let seconds = match &run.figure {
        None => elapsed,
        Some(pattern) => {
            let number = positive(numbers(pattern)?.first().copied(), pattern)?;
            run.work.map_or(number, |work| work / number)
        }
    };
    let counted: Vec<f64> =
        cost.lines().last().unwrap_or_default().split(' ').filter_map(|n| n.parse().ok()).collect();
    let [peak, major, minor] = counted[..] else {
        return Err(Fault::Run(format!("{}: the kernel's account is missing", run.name)));
    };
    let cpu = usage.user_s + usage.system_s;
    let mut sample = Sample::default();
    let figures = [
        ("seconds", seconds),
        ("elapsed", elapsed),
        ("cpu", cpu),
        ("system", usage.system_s),
        ("peak_kib", peak),
        ("faults", major + minor),
    ];
    sample.figures.extend(figures.map(|(name, figure)| (name.to_owned(), figure)));
    for (measure, pattern) in &run.also {
        let largest = numbers(pattern)?.into_iter().max_by(f64::total_cmp);
        sample.figures.insert(measure.clone(), positive(largest, pattern)?);
    }
    sample.output = match &run.result {
        _ if run.same_output => Some(digest(output.as_bytes())),
        Some(pattern) => {
            let all = compiled(pattern)?;
            let found = all.captures_iter(output).map(|found| found.get(1).map_or("", |part| part.as_str()));
            Some(digest(found.collect::<Vec<_>>().join(" ").as_bytes()))
        }
        None => None,
    };
    Ok(sample)
}
