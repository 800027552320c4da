// SPDX-License-Identifier: MIT
//! Where text goes: reports to a file, standard output or standard error; remarks to standard error.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

use anyhow::Context;
use quarry_proc::shown;
use quarry_report::style::Style;

use crate::cli::{Color, Common};
use crate::format::Report;
use crate::trace_file::Target;

/// A place for a report.
pub enum Place<'a> {
    Stdout,
    Stderr,
    File(&'a Path),
}

impl<'a> Place<'a> {
    /// What `-o` says; `-` is standard output.
    pub fn of(option: Option<&'a Path>, default: Place<'a>) -> Self {
        match option {
            None => default,
            Some(path) if path == Path::new("-") => Place::Stdout,
            Some(path) => Place::File(path),
        }
    }
}

/// Reports one after the other, in a place that is opened once.
pub struct Series {
    to: Box<dyn Write>,
    name: String,
}

impl Series {
    /// A file is made anew.
    pub fn open(place: &Place) -> anyhow::Result<Self> {
        let (to, name): (Box<dyn Write>, _) = match place {
            Place::Stdout => {
                (Box::new(io::BufWriter::new(io::stdout().lock())), String::from("standard output"))
            }
            Place::Stderr => (Box::new(io::stderr().lock()), String::from("standard error")),
            Place::File(path) => {
                let name = path.display().to_string();
                let file =
                    File::create(path).with_context(|| format!("cannot write the report to {name}"))?;
                (Box::new(io::BufWriter::new(file)), name)
            }
        };
        Ok(Self { to, name })
    }

    /// Write one piece by piece, to its end. False: the reader went away, which is no error: it has seen what it wanted.
    pub fn write(&mut self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> anyhow::Result<bool> {
        written(write_to_end(&mut self.to, write), &self.name)
    }

    /// Write one as it is.
    pub fn report(&mut self, text: &str) -> anyhow::Result<bool> {
        self.write(|to| to.write_all(text.as_bytes()))
    }
}

/// How talkative to be, and in colour or not.
pub struct Output {
    color: Color,
    quiet: bool,
    verbose: bool,
}

impl Output {
    pub fn new(common: &Common) -> Self {
        Self { color: common.color, quiet: common.quiet, verbose: common.verbose }
    }

    /// The same, but it says nothing on standard error: a screen is drawn there.
    pub fn silent(&self) -> Self {
        Self { color: self.color, quiet: true, verbose: false }
    }

    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// How text for this place may look.
    pub fn style(&self, place: &Place) -> Style {
        let terminal = match place {
            Place::Stdout => io::stdout().is_terminal(),
            Place::Stderr => io::stderr().is_terminal(),
            Place::File(_) => false,
        };
        let forbidden = || {
            std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty())
                || std::env::var_os("TERM").is_some_and(|v| v == "dumb")
        };
        let color = match self.color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => terminal && !forbidden(),
        };
        Style { color, width: columns(place) }
    }

    /// Can a report be written there, as far as can be told? For who works long before there is one.
    pub fn expect(&self, place: &Place) -> anyhow::Result<()> {
        let Place::File(path) = place else { return Ok(()) };
        let asked = match path.metadata() {
            // Opening anything else may wait, or do something.
            Ok(about) if about.is_file() || about.is_dir() => {
                File::options().append(true).open(path).map(drop)
            }
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
                tempfile::tempfile_in(folder.unwrap_or(Path::new("."))).map(drop)
            }
            Err(error) => Err(error),
        };
        asked.with_context(|| format!("the report could not be written to {}", path.display()))
    }

    /// Write a report. A reader that went away is no error: it has seen what it wanted.
    pub fn report(&self, place: &Place, text: &str) -> anyhow::Result<()> {
        self.write(place, |to| to.write_all(text.as_bytes()))
    }

    /// Can all of these be written?
    pub fn expect_all(&self, reports: &[Report]) -> anyhow::Result<()> {
        reports.iter().try_for_each(|report| self.expect(&report.place))
    }

    /// Write reports that are made for their place and format. One that fails does not keep the others away.
    pub fn reports(
        &self,
        reports: &[Report],
        mut make: impl FnMut(&Report) -> anyhow::Result<String>,
    ) -> anyhow::Result<()> {
        self.all(reports.iter().map(|report| self.report(&report.place, &make(report)?)).collect::<Vec<_>>())
    }

    /// The same for a report that is written piece by piece. A file has the new one or the one before, never a part.
    pub fn write(
        &self,
        place: &Place,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        match place {
            Place::File(path) => fill(Target::of_report(path)?, write)?.keep(),
            _ => Series::open(place)?.write(write).map(drop),
        }
    }

    /// The same for reports on what took long: where one cannot be written to its file, it is printed.
    pub fn reports_or_print(
        &self,
        reports: &[Report],
        mut make: impl FnMut(&Report) -> anyhow::Result<String>,
    ) -> anyhow::Result<()> {
        let one = |report: &Report| {
            let text = make(report)?;
            let written = self.report(&report.place, &text);
            match (&report.place, &written) {
                (Place::File(_), Err(_)) if self.report(&Place::Stdout, &text).is_ok() => {
                    written.context("the report is on standard output instead")
                }
                _ => written,
            }
        };
        self.all(reports.iter().map(one).collect::<Vec<_>>())
    }

    /// The same for a file that is to be complete or not at all: it has its name when it is kept.
    pub fn write_beside(
        &self,
        path: &Path,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> anyhow::Result<Target> {
        fill(Target::open(Some(path), true)?, write)
    }

    /// Say that something may not be what it seems.
    pub fn warn(&self, message: impl std::fmt::Display) {
        if !self.quiet {
            let style = self.style(&Place::Stderr);
            self.remark(&style.warning("warning:"), message);
        }
    }

    /// Say what is good to know.
    pub fn note(&self, message: impl std::fmt::Display) {
        if !self.quiet {
            self.remark("", message);
        }
    }

    /// Say what is going on, to those who asked.
    pub fn detail(&self, message: impl std::fmt::Display) {
        if self.verbose {
            self.remark("", message);
        }
    }

    /// Say why there is nothing else to say.
    pub fn error(&self, error: &anyhow::Error) {
        let style = self.style(&Place::Stderr);
        self.remark(&style.error("error:"), crate::failure::words(error));
    }

    /// The first error; those behind it are said at once.
    pub fn all(&self, results: impl IntoIterator<Item = anyhow::Result<()>>) -> anyhow::Result<()> {
        let mut errors = results.into_iter().filter_map(Result::err);
        let first = errors.next();
        errors.for_each(|error| self.error(&error));
        first.map_or(Ok(()), Err)
    }

    fn remark(&self, kind: &str, message: impl std::fmt::Display) {
        let gap = if kind.is_empty() { "" } else { " " };
        // What a file holds may stand in a message, and must not move the cursor.
        let message: Vec<String> = message.to_string().split('\n').map(shown).collect();
        let message = message.join("\n");
        // Nobody listening is no reason to stop.
        let _ = writeln!(io::stderr(), "quarry: {kind}{gap}{message}");
    }
}

fn write_to_end(to: &mut dyn Write, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    write(to).and_then(|()| to.flush())
}

fn fill(mut target: Target, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> anyhow::Result<Target> {
    let result = write_to_end(&mut io::BufWriter::new(&mut target), write);
    written(result, target.name())?;
    Ok(target)
}

/// False: the reader went away.
fn written(result: io::Result<()>, name: &str) -> anyhow::Result<bool> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        other => other.map(|()| true).with_context(|| format!("cannot write the report to {name}")),
    }
}

/// Columns of the terminal behind this place.
fn columns(place: &Place) -> Option<u16> {
    let size = match place {
        Place::Stdout => terminal_size::terminal_size_of(io::stdout()),
        Place::Stderr => terminal_size::terminal_size_of(io::stderr()),
        Place::File(_) => None,
    };
    size.map(|(width, _)| width.0)
}
