// SPDX-License-Identifier: MIT
//! quarry run: a command on the heap.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use quarry_measure::signals::{self, Forwarding};
use quarry_measure::spawn::{self, End, Ran};
use quarry_measure::{elf::Obstacle, locate, preload::Conf};
use quarry_report::heap::Heaps;
use quarry_report::run::Report;

use crate::format::{Format, Makes, Reports};
use crate::output::{Output, Place};
use crate::under::Heap;
use crate::{failure, under};

/// Run a command on the quarry heap
///
/// The library is preloaded before anything that LD_PRELOAD already names. Signals go to the command, and its exit code
/// is passed on.
#[derive(Args)]
#[command(after_help = RUN_EXAMPLES)]
pub struct RunOptions {
    #[command(flatten)]
    pub heap: Heap,
    /// When the command ends, show its time and memory, and where its heap's memory was.
    ///
    /// The report goes to standard error, as standard output is the command's, unless -o says otherwise. -o, --format and
    /// --json imply this option.
    #[arg(long)]
    pub stats: bool,
    #[command(flatten)]
    pub reports: Reports<Self>,
    /// The command and its arguments
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true)]
    pub command: Vec<OsString>,
}

impl RunOptions {
    /// Is a report wanted?
    pub fn reports(&self) -> bool {
        self.stats || self.reports.wanted()
    }
}

impl Makes for RunOptions {
    const VERB: &'static str = "run";
    const FORMATS: &'static [Format] = &[Format::Text, Format::Json];
    const SCHEMA: &'static str = "quarry-run/1";
}

const RUN_EXAMPLES: &str = "Examples:
  quarry run -- ./server --port 80
  quarry run --conf purge_delay:100,arenas:4 -- ./server
  quarry run --stats -- make -j4
  quarry run -o stats.json -- ./prog";

/// The heap option that names the file for statistics.
const STATS_FILE: &str = "stats_file";

/// Run the command; the exit code is its own.
pub fn main(options: &RunOptions, output: &Output) -> anyhow::Result<i32> {
    let name = &options.command[0];
    let program = under::resolve(&options.command).map_err(|error| failure::not_started(name, &error))?;
    let library = locate::library(options.heap.lib.as_deref())?;
    let preload = under::preload_value(&library.path)?;
    let mut conf = under::merged_conf(&options.heap.conf());
    let reports = options.reports.all(Place::Stderr)?;
    let stats = if options.reports() { Some(StatsFile::prepare(&mut conf)?) } else { None };
    if stats.is_some() {
        output.expect_all(&reports)?;
    }

    let obstacles = under::obstacles(&program, &library.path);
    for (_, sentence) in &obstacles {
        output.warn(sentence);
    }
    output.detail(format_args!("LD_PRELOAD={}", Path::new(&preload).display()));
    output.detail(format_args!("QUARRY_CONF={conf}"));

    let mut command = under::command(&options.command);
    command.env("LD_PRELOAD", &preload);
    under::set_conf(&mut command, &conf);
    let forwarding = Forwarding::all();
    let ran = spawn::run(&mut command).map_err(|error| failure::not_started(name, &error))?;
    drop(forwarding);

    if let Some(stats) = stats {
        let report = report(options, &library.path, &ran, &obstacles, stats.read(ran.pid));
        let written = output.reports(&reports, |wish| {
            Ok(match wish.format {
                Format::Json => format!("{:#}\n", report.json()),
                _ => report.text(output.style(&wish.place)),
            })
        });
        // The command has run and its exit code counts, report or no report.
        if let Err(error) = written {
            output.error(&error);
        }
    }
    Ok(ran.end.code())
}

fn report(
    options: &RunOptions,
    library: &Path,
    ran: &Ran,
    obstacles: &[(Obstacle, String)],
    heaps: io::Result<Heaps>,
) -> Report {
    let mut notes: Vec<String> = obstacles.iter().map(|(_, sentence)| sentence.clone()).collect();
    let heaps = heaps.unwrap_or_else(|error| {
        notes.push(format!("the heap's statistics cannot be read: {error}"));
        Heaps::default()
    });
    if heaps.top.is_none() && !obstacles.iter().any(|(obstacle, _)| obstacle.is_total()) {
        notes.push(match ran.end {
            End::Signal(signal) => {
                let name = signals::name(signal);
                format!("{name} ended the program, so its heap could not write statistics")
            }
            _ => String::from(
                "the program's heap left no statistics: it ended by _exit or exec, changed its user or its \
                 environment, or did not load the library",
            ),
        });
    }
    if heaps.unreadable > 0 {
        notes.push(format!(
            "{} of statistics left out: damaged",
            quarry_report::units::of(heaps.unreadable as u64, "line")
        ));
    }
    Report {
        command: under::words(&options.command),
        library: library.display().to_string(),
        end: ran.end,
        usage: ran.usage,
        heaps,
        notes,
    }
}

/// A path as the value of an option, if it can be one.
fn as_value(path: &Path) -> Option<&str> {
    path.to_str().filter(|text| !text.contains(','))
}

/// The file that heaps append their statistics to.
struct StatsFile {
    path: PathBuf,
    /// Where this run's lines begin.
    from: u64,
    /// Removes the file at the end; `None` when the user named it.
    temporary: Option<tempfile::TempPath>,
}

impl StatsFile {
    /// The file the user's options name, or else a temporary one, which is added to them.
    fn prepare(conf: &mut Conf) -> anyhow::Result<Self> {
        if let Some(path) = conf.get(STATS_FILE) {
            let mut path = PathBuf::from(path);
            // The program may change its directory. Where that cannot stand among the options, it stays as the user has it.
            if let Ok(absolute) = std::path::absolute(&path)
                && let Some(text) = as_value(&absolute)
            {
                conf.set(STATS_FILE, text);
                path = absolute;
            }
            let from = path.metadata().map_or(0, |metadata| metadata.len());
            return Ok(Self { path, from, temporary: None });
        }
        let temporary = tempfile::Builder::new().prefix("quarry-stats-").tempfile();
        let dir = std::env::temp_dir();
        let temporary = temporary
            .with_context(|| {
                format!(
                    "cannot make a temporary file in {}; set TMPDIR to a directory that is writable",
                    dir.display()
                )
            })?
            .into_temp_path();
        let path = temporary.to_path_buf();
        match as_value(&path) {
            Some(text) => conf.set(STATS_FILE, text),
            None => anyhow::bail!(
                "{}: {} cannot stand in QUARRY_CONF; set TMPDIR to another directory",
                path.display(),
                under::unfit(&path)
            ),
        }
        Ok(Self { path, from: 0, temporary: Some(temporary) })
    }

    fn read(self, pid: i32) -> io::Result<Heaps> {
        let mut text = Vec::new();
        match File::open(&self.path) {
            Ok(mut file) => {
                file.seek(SeekFrom::Start(self.from))?;
                file.read_to_end(&mut text)?;
            }
            // The user's file, which no heap has made.
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.temporary.is_none() => {}
            Err(error) => return Err(error),
        }
        Ok(Heaps::parse(&String::from_utf8_lossy(&text), pid))
    }
}
