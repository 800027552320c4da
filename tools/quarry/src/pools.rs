// SPDX-License-Identifier: MIT
//! quarry pools: what a log of pools says.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use quarry_input::Input;
use quarry_poollog::reader::{Item, Reader};
use quarry_poollog::record::{Entry, MAGIC, Record};
use quarry_report::pools::{
    self, Damage, Filter, Log, SeriesWriter,
    plot::{self, Plot},
};

use crate::format::{Format, Makes, Report, Reports};
use crate::kind::{self, Kind};
use crate::output::{Output, Place};
use crate::{failure, inputs};

/// Show what the pools of a program held and used
///
/// Reads logs that programs linked with libquarry write when QUARRY_CONF has pool_log:FILE. A damaged log is read as
/// far as it goes, and the report names what was left out.
#[derive(Args)]
#[command(after_help = POOLS_EXAMPLES)]
pub struct PoolsOptions {
    /// The logs; - is standard input
    #[arg(value_name = "LOG", required = true)]
    pub logs: Vec<PathBuf>,
    /// Only pools of this name or number
    #[arg(long, value_name = "NAME|ID")]
    pub pool: Option<String>,
    /// In JSON: every entry too
    #[arg(long)]
    pub series: bool,
    #[command(flatten)]
    pub reports: Reports<Self>,
    /// The horizontal axis of the plot
    #[arg(long, value_name = "AXIS", default_value = "dump")]
    pub x: PlotAxis,
    /// Most pools in a plot: those that held most.
    ///
    /// Pools with a single entry are left out.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub top: u32,
}

impl Makes for PoolsOptions {
    const VERB: &'static str = "pools";
    const FORMATS: &'static [Format] = &[Format::Text, Format::Json, Format::Svg, Format::Html];
    const SCHEMA: &'static str = "quarry-pool-log/1";
}

const POOLS_EXAMPLES: &str = "Examples:
  QUARRY_CONF=pool_log:log ./prog      the program writes a log
  quarry pools log                     a table
  quarry pools log -o log.html         the table and plots of held against used as a page
  quarry pools log --pool replies --x time -o replies.svg
  quarry pools --json --series log     every entry

Exit code: 0; 1 when a log or a part of it could not be read (the rest is reported); else as for quarry.";

/// The horizontal axis of a plot.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PlotAxis {
    /// Entries of the pool, as they were written
    Dump,
    /// Time since the pool was made
    Time,
}

impl From<PlotAxis> for plot::Axis {
    fn from(axis: PlotAxis) -> Self {
        match axis {
            PlotAxis::Dump => plot::Axis::Dump,
            PlotAxis::Time => plot::Axis::Time,
        }
    }
}

/// From this length on a log takes long enough for a progress bar.
const LONG: u64 = 64 << 20;

/// The exit code when a part of a log could not be read.
const DAMAGED: i32 = 1;

/// Read and report; the exit code says whether all could be read.
pub fn main(options: &PoolsOptions, output: &Output) -> anyhow::Result<i32> {
    if options.logs.iter().filter(|log| *log == Path::new("-")).count() > 1 {
        return Err(failure::usage(
            "- stands among the logs twice, and standard input can be read only once",
        ));
    }
    inputs::spare(&options.logs, options.reports.files())?;
    let reports = options.reports.all(Place::Stdout)?;
    let series = match &reports[..] {
        _ if !options.series => None,
        [Report { place, format: Format::Json }] => Some(place),
        _ => return Err(failure::usage("--series is for one report in JSON; say --json or -o FILE.json")),
    };
    let filter = options.pool.clone().map_or(Filter::All, Filter::Named);
    // All are opened before anything is written, so that a wrong name does not cost an old report.
    let sources: Vec<Source> =
        options.logs.iter().map(|path| Source::open(path, output)).collect::<Result<_, _>>()?;
    let mut logs = Vec::new();
    let mut complaints = Vec::new();
    let mut beside = None;
    match series {
        Some(place) => {
            let series = |to: &mut dyn Write| {
                let mut writer = SeriesWriter::new(to)?;
                for (number, source) in sources.into_iter().enumerate() {
                    let (log, error) = source.read(&filter, |pool, entry| writer.add(number, pool, entry))?;
                    complaints.extend(error);
                    logs.push(log);
                }
                writer.finish(&logs, &filter)
            };
            match place {
                // Whether the pool is there is known when all is written.
                Place::File(path) => beside = Some(output.write_beside(path, series)?),
                _ => output.write(place, series)?,
            }
        }
        None => {
            for source in sources {
                let (log, error) = source.read(&filter, |_, _| Ok(()))?;
                complaints.extend(error);
                logs.push(log);
            }
        }
    }
    if logs.iter().all(|log| log.chosen(&filter).is_empty())
        && let Filter::Named(wish) = &filter
    {
        return Err(failure::usage(format!("no pool has the name or number {wish}{}", names(&logs))));
    }
    match beside {
        Some(target) => target.keep()?,
        None if series.is_some() => {}
        None => output.reports(&reports, |wish| {
            let plot =
                || Plot { logs: &logs, filter: &filter, top: options.top as usize, axis: options.x.into() };
            Ok(match wish.format {
                Format::Json => format!("{:#}\n", pools::json(&logs, &filter)),
                Format::Svg => plot().svg(),
                Format::Html => plot().html(),
                _ => pools::text(&logs, &filter, output.style(&wish.place)),
            })
        })?,
    }
    let mut all: Vec<String> = logs.iter().flat_map(Log::complaints).collect();
    all.extend(complaints);
    for complaint in &all {
        output.warn(complaint);
    }
    Ok(if all.is_empty() { 0 } else { DAMAGED })
}

/// "; there are: a, b, c".
fn names(logs: &[Log]) -> String {
    const SHOWN: usize = 10;
    let pools = logs.iter().flat_map(|log| &log.summary.pools);
    let mut names: Vec<&str> = pools.filter_map(|pool| Some(pool.named.as_ref()?.name.as_str())).collect();
    names.sort_unstable();
    names.dedup();
    let more = if names.len() > SHOWN { ", ..." } else { "" };
    names.truncate(SHOWN);
    if names.is_empty() {
        String::from("; there are none")
    } else {
        format!("; there are: {}{more}", names.join(", "))
    }
}

/// A log that was opened and is one.
struct Source {
    name: String,
    reader: Reader<Input>,
    progress: ProgressBar,
}

impl Source {
    fn open(path: &Path, output: &Output) -> anyhow::Result<Self> {
        let name = quarry_input::name(path);
        let input = Input::open(path).map_err(|error| failure::failed(format_args!("{name}: {error}")))?;
        if !input.begin().starts_with(&MAGIC)
            && let Some(Kind { what, advice }) = kind::of(input.begin())
        {
            return Err(failure::failed(format_args!("{name}: is {what}, and no log of pools; {advice}")));
        }
        let bytes = if input.packed().is_empty() { input.length() } else { 0 };
        let reader = Reader::new(input).map_err(|error| failure::failed(format_args!("{name}: {error}")))?;
        let shown = bytes >= LONG && !output.is_quiet() && io::stderr().is_terminal();
        Ok(Self { name, reader, progress: if shown { bar(bytes) } else { ProgressBar::hidden() } })
    }

    /// Read it to its end, or as far as that is possible, and say what ended it. Each entry of a pool that
    /// is wanted is handed on, with the index of its pool.
    fn read(
        mut self,
        filter: &Filter,
        mut each: impl FnMut(usize, &Entry) -> io::Result<()>,
    ) -> io::Result<(Log, Option<String>)> {
        let mut log =
            Log { file: self.name, bytes: 0, summary: Default::default(), damage: Damage::default() };
        let mut shown = 0;
        let error = loop {
            match self.reader.next_item() {
                Ok(Some(Item::Record(record))) => {
                    let entry = if let Record::Entry(entry) = &record { Some(*entry) } else { None };
                    if let Some((entry, pool)) = entry.zip(log.summary.add(record))
                        && filter.wants(&log.summary.pools[pool])
                    {
                        each(pool, &entry)?;
                    }
                }
                Ok(Some(Item::Lost(lost))) => log.damage.add(lost),
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
            if self.reader.offset() >= shown {
                self.progress.set_position(shown);
                shown += 1 << 20;
            }
        };
        self.progress.finish_and_clear();
        log.bytes = self.reader.offset();
        let complaint = match error {
            Some(error) => Some(format!("{}: {error}; not read any further", log.file)),
            None if self.reader.input().is_cut() => {
                Some(format!("{}: the packed file was cut off; what stands before was used", log.file))
            }
            None => None,
        };
        Ok((log, complaint))
    }
}

fn bar(bytes: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {bytes} of {total_bytes}, {eta} left");
    ProgressBar::new(bytes).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
