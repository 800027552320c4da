// SPDX-License-Identifier: MIT
//! The files that -o and --trace name: what was sampled until now, as the plain mode writes it.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use quarry_trace::{End, Head, TraceWriter, WriteOptions};
use tempfile::TempDir;

use super::super::options::{self, ProfileOptions};
use crate::failure;
use crate::output::{Output, Place};
use crate::trace_file::Target;

/// What is written, and when.
pub struct Snapshot<'a> {
    options: &'a ProfileOptions,
    output: Output,
    folder: TempDir,
    written: bool,
}

/// The trace that all of it comes from.
pub type Writer = TraceWriter<BufWriter<File>>;

impl<'a> Snapshot<'a> {
    /// None is written yet. It is an error if one could not be.
    pub fn new(options: &'a ProfileOptions, output: &Output) -> anyhow::Result<Self> {
        if options.reports.files().iter().any(|path| path == Path::new("-")) {
            return Err(failure::usage("with --live, standard output has the view; name a FILE behind -o"));
        }
        output.expect_all(&options.reports.by_ending()?)?;
        let trace = options.trace.as_deref();
        trace.map_or(Ok(()), |path| output.expect(&Place::File(path)))?;
        let folder = tempfile::tempdir()
            .context("cannot make a temporary folder; set TMPDIR to one that is writable")?;
        Ok(Self { options, output: output.silent(), folder, written: false })
    }

    fn own(&self) -> PathBuf {
        self.folder.path().join("trace.qtr")
    }

    /// Begin the trace.
    pub fn begin(&self, head: &Head) -> anyhow::Result<Writer> {
        let file = File::create(self.own()).context("cannot write the trace")?;
        Ok(TraceWriter::create(BufWriter::new(file), head, WriteOptions { packed: true })?)
    }

    /// Are there files to write?
    pub fn is_wanted(&self) -> bool {
        self.options.trace.is_some() || !self.options.reports.files().is_empty()
    }

    /// Has nobody asked for them so far?
    pub fn is_due(&self) -> bool {
        self.is_wanted() && !self.written
    }

    /// Write all files. Which ones they are, in words.
    pub fn write(&mut self, writer: &mut Writer, end: &End) -> anyhow::Result<String> {
        self.written = true;
        let end = writer.so_far(end)?;
        let trace = self.folder.path().join("snapshot.qtr");
        let copy = |to: &mut dyn Write| {
            io::copy(&mut File::open(self.own())?, to)?;
            to.write_all(&end)
        };
        copy(&mut File::create(&trace).context("cannot write the trace")?)?;
        let mut names: Vec<String> = Vec::new();
        if let Some(kept) = &self.options.trace {
            let mut target = Target::open(Some(kept), false)?;
            io::copy(&mut File::open(&trace)?, &mut target)
                .with_context(|| format!("cannot write {}", options::shown(kept)))?;
            target.keep()?;
            names.push(options::shown(kept));
        }
        let reports = self.options.reports.by_ending()?;
        if !reports.is_empty() {
            super::super::single(self.options, &trace, &reports, &self.output)?;
        }
        names.extend(self.options.reports.files().iter().map(|path| options::shown(path)));
        let _ = fs::remove_file(trace);
        Ok(names.join(", "))
    }
}
