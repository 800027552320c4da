// SPDX-License-Identifier: MIT
//! From lines to what is shown: text at once, and the other formats at the end.

use std::collections::HashSet;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use quarry_check::finding::{Finding, Findings, News, Source};
use quarry_check::names::Namer;
use quarry_check::source::Sources;
use quarry_check::suppress::Suppressions;
use quarry_check::text::{Ending, Text};
use quarry_check::{json, sarif, says, xml};
use quarry_input::Input;

use super::options::CheckOptions;
use crate::failure;
use crate::format::{Format, Report};
use crate::output::{Output, Place, Series};

/// A larger file of suppressions is none that a person wrote.
const LARGEST: u64 = 16 << 20;

/// Everything that is known, and where it goes.
pub struct Show<'a> {
    pub findings: Findings,
    namer: Namer,
    suppressions: Suppressions,
    options: &'a CheckOptions,
    reports: Vec<Report<'a>>,
    /// Text is written as it comes.
    texts: Vec<(Text, Series)>,
    /// The process that is shown, as are its copies; `None`: all are.
    only: Option<u32>,
    /// By the index of a process: is it left out?
    left: HashSet<usize>,
    left_out: u64,
    /// Is text written at the end, too?
    later: bool,
}

impl<'a> Show<'a> {
    /// `begun_ns`: when the program began, if it runs here. `default`: where text goes if nothing else is said.
    pub fn new(
        options: &'a CheckOptions,
        default: Place<'a>,
        begun_ns: u64,
        output: &Output,
    ) -> anyhow::Result<Self> {
        let suppressions = suppressions(options)?;
        let reports = options.reports.all(default)?;
        output.expect_all(&reports)?;
        let places = options.places.places();
        // A second run is not advised to somebody who has it.
        let hint = !options.pinpoint;
        let mut texts = Vec::new();
        for report in reports.iter().filter(|report| report.format == Format::Text) {
            let text = Text::new(
                output.style(&report.place),
                Sources::in_roots(&places.roots),
                options.made(),
                hint,
            );
            texts.push((text, Series::open(&report.place)?));
        }
        let namer = Namer::new(places, begun_ns);
        let findings = Findings::default();
        Ok(Self {
            findings,
            namer,
            suppressions,
            options,
            reports,
            texts,
            only: None,
            left: HashSet::new(),
            left_out: 0,
            later: false,
        })
    }

    /// Show this process and its copies only, and no program that another process runs.
    pub fn only(&mut self, pid: u32) {
        self.only = Some(pid);
    }

    /// Show findings at the end only.
    pub fn at_the_end(&mut self) {
        self.later = true;
    }

    /// Scans that are told so far.
    pub fn scans(&self) -> u32 {
        let scans = self.findings.processes.iter().filter_map(|process| process.scan.as_ref());
        scans.map(|scan| scan.number).max().unwrap_or(0)
    }

    /// Errors, and what scans before the last one found, are not shown.
    pub fn latest_scan(&mut self) {
        let last = self.scans();
        for finding in &mut self.findings.all {
            finding.hidden |= finding.leak().is_none_or(|leak| leak.scan != last);
        }
    }

    /// Take a line of a file.
    pub fn take(&mut self, source: &mut Source, line: &[u8]) -> anyhow::Result<()> {
        if source.process().is_some_and(|index| self.left.contains(&index)) {
            self.left_out += u64::from(line.starts_with(b"{\"error\"") || line.starts_with(b"{\"leak\""));
            return Ok(());
        }
        let news = self.findings.take(source, line, &mut self.namer);
        let is_answer = matches!(news, News::Answer(_));
        let index = match news {
            News::Finding(index) | News::Answer(index) => index,
            News::Process(index) => {
                self.process(index);
                return Ok(());
            }
            News::None | News::Note(_) => return Ok(()),
        };
        let finding = &self.findings.all[index];
        if finding.leak().is_some() && !self.options.leaks.kinds().contains(&finding.word.as_str()) {
            self.findings.hide_last();
            return Ok(());
        }
        let suppressed = self.suppressions.hides(finding);
        self.findings.all[index].suppressed = suppressed;
        let finding = &self.findings.all[index];
        if suppressed.is_none() && !self.later {
            for (text, series) in &mut self.texts {
                let said = if is_answer { text.answer(finding) } else { text.finding(finding) };
                series.report(&said)?;
            }
        }
        Ok(())
    }

    /// Copies of the process that is shown are shown, too, and copies of those. Other programs are those of children,
    /// but for what that process itself runs, one after the other.
    fn process(&mut self, index: usize) {
        let begin = &self.findings.processes[index].begin;
        let origin = begin.origin.unwrap_or(begin.pid);
        if self.only.is_some_and(|pid| pid != origin) {
            self.left.insert(index);
        }
    }

    /// Findings that count as errors.
    pub fn counted(&self) -> usize {
        let counts = |finding: &&Finding| finding.fault().is_some() || self.options.counts(&finding.word);
        self.findings.shown().filter(counts).count()
    }

    /// Write what is written at the end. `status`: the exit code; `ran`: for how long the command ran.
    pub fn end(
        mut self,
        mut ending: Ending,
        status: i32,
        ran: Duration,
        output: &Output,
    ) -> anyhow::Result<()> {
        ending.counted = self.counted();
        ending.missing = self.namer.missing().to_vec();
        let mut index = 0;
        self.findings.processes.retain(|_| {
            index += 1;
            !self.left.contains(&(index - 1))
        });
        if self.left_out > 0 {
            let count = self.left_out;
            ending
                .notes
                .push(format!("{count} findings of other processes are left out; --children shows them"));
        }
        self.findings.all.retain(|finding| !finding.hidden);
        self.suppressions.count(&self.findings.all);
        if self.later {
            for (index, finding) in self.findings.all.iter_mut().enumerate() {
                finding.number = index + 1;
            }
        }
        let (findings, suppressions) = (&self.findings, &self.suppressions);
        for (text, series) in &mut self.texts {
            for finding in self.findings.shown().filter(|_| self.later) {
                series.report(&text.finding(finding))?;
            }
            series.report(&text.summary(findings, suppressions, &ending))?;
        }
        let mut sources = Sources::in_roots(&self.options.places.places().roots);
        let folder = std::env::current_dir().unwrap_or_default();
        let hint = !self.options.pinpoint;
        let rest: Vec<Report> =
            self.reports.into_iter().filter(|report| report.format != Format::Text).collect();
        output.reports(&rest, |report| {
            Ok(match report.format {
                Format::Xml => {
                    let times = xml::Times {
                        end_ms: u64::try_from(ran.as_millis()).unwrap_or(u64::MAX),
                        made: self.options.made().is_some(),
                    };
                    xml::report(findings, suppressions, times)
                }
                Format::Sarif => {
                    format!("{:#}\n", sarif::report(findings, suppressions, &ending, &folder, status, hint))
                }
                _ => format!(
                    "{:#}\n",
                    json::report(findings, suppressions, &ending, status, &mut sources, hint)
                ),
            })
        })?;
        if self.texts.is_empty() && ending.counted > 0 {
            let errors = findings.errors().count();
            output.note(format_args!("{} in the report", says::counted(errors, ending.counted - errors)));
        }
        Ok(())
    }
}

fn suppressions(options: &CheckOptions) -> anyhow::Result<Suppressions> {
    let mut all = Suppressions::default();
    for path in &options.suppressions {
        let name = quarry_input::name(path);
        let mut bytes = Vec::new();
        Input::open(path)
            .and_then(|input| input.take(LARGEST + 1).read_to_end(&mut bytes))
            .with_context(|| format!("cannot read the suppressions in {name}"))?;
        if bytes.len() as u64 > LARGEST {
            return Err(failure::usage(format_args!("{name}: too large for a file of suppressions")));
        }
        all.add(&String::from_utf8_lossy(&bytes))
            .map_err(|fault| failure::usage(format_args!("{name}: {fault}")))?;
    }
    Ok(all)
}

/// Is it a raw report, or a folder of some? Nothing else is opened: that may wait for ever.
pub fn is_raw(path: &Path) -> bool {
    let begins = || {
        let mut begin = [0; 9];
        let read =
            std::fs::File::open(path).and_then(|mut file| std::io::Read::read_exact(&mut file, &mut begin));
        read.is_ok() && &begin == b"{\"begin\":"
    };
    path.metadata().is_ok_and(|about| about.is_dir() || about.is_file() && begins())
}
