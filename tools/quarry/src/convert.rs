// SPDX-License-Identifier: MIT
//! quarry convert: from one format of traces to another.

mod collapsed;
mod of_profile;

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use quarry_report::units;
use quarry_synth::convert::csv::CsvTable;
use quarry_synth::convert::heaptrack::HeaptrackSink;
use quarry_synth::convert::jeprof_write::{JeprofSink, Live};
use quarry_synth::convert::json_lines::JsonSink;
use quarry_synth::convert::massif_write::MassifSink;
use quarry_synth::convert::mtrace::MtraceSink;
use quarry_synth::convert::output::{Output as Packed, Packing};
use quarry_synth::convert::qtr::QtrSink;
use quarry_synth::convert::rows::{RowSink, Rows};
use quarry_synth::convert::simulation::MsSink;
use quarry_synth::convert::{self, Copied, Format, Sink, Source};
use quarry_synth::ms;
use quarry_trace::sample::Means;
use quarry_trace::{Head, WriteOptions};
use serde_json::{Value, json};

use crate::format::{Format as Wish, Makes, Product};
use crate::opened::{Opened, packing_of};
use crate::output::{Output, Place};
use crate::trace_file::{self, Target};
use crate::{failure, info};
use collapsed::By;

/// The exit code when a part of the input could not be read.
const DAMAGED: i32 = 1;

/// From this length on it takes long enough for a progress bar.
const LONG: u64 = 16 << 20;

/// Convert a trace from one format to another
///
/// Reads Quarry's traces (qtr), simulation files (ms), lines of JSON (jsonl), heaptrack's data files and what glibc's
/// mtrace writes. Writes these, tables (csv, parquet), call stacks for a flame graph (collapsed), and the profiles of
/// massif and gperftools (massif, jeprof). It also reads these profiles. They have no events, so they become tables and
/// stacks. Any file may be packed: gzip, zstd, xz and lz4 are read, gzip and zstd are written, by the name of FILE. A
/// format is told by its content first, and by its name second. What the new format cannot hold is left out, and named.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ConvertOptions {
    /// The trace; - is standard input
    #[arg(value_name = "IN")]
    pub input: PathBuf,
    #[command(flatten)]
    pub product: Product<Self>,
    /// The format of IN
    #[arg(long, value_name = "FORMAT")]
    pub from: Option<From>,
    /// What a row of a table is: an event, or a block from its birth to its death [default: objects]
    #[arg(long, value_name = "WHAT")]
    pub rows: Option<RowsOption>,
    /// What the number behind a collapsed stack is [default: bytes]; or what is live in a jeprof profile, at the peak
    /// or at the end [default: live]
    #[arg(long, value_name = "WHAT")]
    pub by: Option<By>,
    /// Put the names of functions into a jeprof profile. It is read without the program then: jeprof --text FILE
    #[arg(long)]
    pub names: bool,
    /// Leave out frames that REGEX matches, as those of allocators: the function that calls them stands for them. May
    /// be repeated
    #[arg(long, value_name = "REGEX")]
    pub hide: Vec<String>,
    /// Write a qtr without compression
    #[arg(long)]
    pub unpacked: bool,
    /// Allow slots above 4095 in simulation files
    #[arg(long)]
    pub wide: bool,
    /// The summary as JSON (schema quarry-convert/1)
    #[arg(long)]
    pub json: bool,
}

const EXAMPLES: &str = "Examples:
  quarry convert prog.qtr -o prog.parquet           a row for each block, for DuckDB, Polars, Spark
  quarry convert prog.qtr -o events.csv --rows events
  quarry convert test.ms -o test.qtr                a simulation file as a trace
  quarry convert prog.qtr -o prog.folded            call stacks with names, for a flame graph
  quarry convert heaptrack.prog.1234.zst -o prog.qtr
  quarry convert prog.qtr -o prog.massif            for ms_print
  quarry convert prog.qtr -o prog.heap --by peak    for jeprof and pprof: jeprof --text ./prog prog.heap
  quarry convert massif.out.1234 -o peak.folded     the stacks of the peak
  quarry convert prog.qtr -o - --format jsonl | grep '\"op\":\"failed\"'

Exit code: 0; 1 when a part of IN could not be read (the rest is converted); 125 when nothing was converted.";

/// A format that can be read.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum From {
    /// Quarry's trace
    Qtr,
    /// The allocation simulator's file
    Ms,
    /// Lines of JSON
    Jsonl,
    /// heaptrack's data file
    Heaptrack,
    /// What glibc's mtrace writes
    Mtrace,
    /// Snapshots of valgrind's massif
    Massif,
    /// A heap profile of gperftools or jemalloc
    Jeprof,
}

impl From {
    fn format(self) -> Format {
        match self {
            From::Qtr => Format::Qtr,
            From::Ms => Format::Ms,
            From::Jsonl => Format::JsonLines,
            From::Heaptrack => Format::Heaptrack,
            From::Mtrace => Format::Mtrace,
            From::Massif => Format::Massif,
            From::Jeprof => Format::Jeprof,
        }
    }
}

impl Makes for ConvertOptions {
    const VERB: &'static str = "convert";
    const FORMATS: &'static [Wish] = &[
        Wish::Qtr,
        Wish::Ms,
        Wish::Jsonl,
        Wish::Heaptrack,
        Wish::Mtrace,
        Wish::Csv,
        Wish::Parquet,
        Wish::Collapsed,
        Wish::Massif,
        Wish::Jeprof,
    ];
    const PACKS: bool = true;
}

impl ConvertOptions {
    /// Where to, and as what.
    fn target(&self) -> anyhow::Result<(&Path, Format)> {
        let Some(path) = self.product.file() else {
            return Err(failure::usage("say where to write: -o FILE; - is standard output"));
        };
        let format = match self.product.format()? {
            Some(Wish::Qtr) => Some(Format::Qtr),
            Some(Wish::Ms) => Some(Format::Ms),
            Some(Wish::Jsonl) => Some(Format::JsonLines),
            Some(Wish::Heaptrack) => Some(Format::Heaptrack),
            Some(Wish::Mtrace) => Some(Format::Mtrace),
            Some(Wish::Csv) => Some(Format::Csv),
            Some(Wish::Parquet) => Some(Format::Parquet),
            Some(Wish::Collapsed) => Some(Format::Collapsed),
            Some(Wish::Massif) => Some(Format::Massif),
            Some(Wish::Jeprof) => Some(Format::Jeprof),
            // heaptrack's own names end in the number of a process.
            _ => Format::of_name(path),
        };
        let name = path.display();
        let format = format.ok_or_else(|| {
            failure::usage(format!("{name}: its name says no format; say --format (quarry convert --help)"))
        })?;
        Ok((path, format))
    }
}

impl ConvertOptions {
    /// An error if an option says nothing of what is written.
    fn check(&self, to: Format) -> anyhow::Result<()> {
        let is_stacks = matches!(to, Format::Collapsed | Format::Massif);
        let is_summed = matches!(to, Format::Collapsed | Format::Jeprof);
        for (given, right, option, format) in [
            (self.rows.is_some(), is_table(to), "--rows", "tables (csv, parquet)"),
            (self.unpacked, to == Format::Qtr, "--unpacked", "qtr"),
            (self.by.is_some(), is_summed, "--by", "collapsed stacks and jeprof"),
            (!self.hide.is_empty(), is_stacks, "--hide", "collapsed stacks and massif"),
            (self.names, to == Format::Jeprof, "--names", "jeprof"),
        ] {
            if given && !right {
                let to = to.name();
                return Err(failure::usage(format!(
                    "{option} is about {format} and says nothing of {to}; leave it out"
                )));
            }
        }
        if to == Format::Jeprof && !matches!(self.by, None | Some(By::Live | By::Peak)) {
            return Err(failure::usage(
                "a jeprof profile has all that was allocated anyway; --by live or --by peak says what is live in it",
            ));
        }
        Ok(())
    }

    /// What a row of a table stands for.
    fn rows(&self) -> Rows {
        self.rows.map_or(Rows::Objects, Rows::from)
    }

    /// What is live in a heap profile.
    fn live(&self) -> Live {
        if self.by == Some(By::Peak) { Live::AtThePeak } else { Live::AtTheEnd }
    }
}

/// What a row of a table stands for.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RowsOption {
    /// An event
    Events,
    /// A block, from its birth to its death
    Objects,
}

impl std::convert::From<RowsOption> for Rows {
    fn from(rows: RowsOption) -> Self {
        match rows {
            RowsOption::Events => Rows::Events,
            RowsOption::Objects => Rows::Objects,
        }
    }
}

/// Nothing for a terminal.
fn is_binary(format: Format) -> bool {
    matches!(format, Format::Qtr | Format::Parquet)
}

fn is_table(format: Format) -> bool {
    matches!(format, Format::Csv | Format::Parquet)
}

/// Convert; the exit code says whether all could be read.
pub fn main(options: &ConvertOptions, output: &Output) -> anyhow::Result<i32> {
    let (path, to) = options.target()?;
    let packing = packing_of(path)?;
    if to == Format::Parquet && packing != Packing::Plain {
        let name = path.display();
        return Err(failure::usage(format!(
            "{name}: parquet is packed inside, and its readers take no other; leave out the ending .gz or .zst"
        )));
    }
    options.check(to)?;
    let mut opened = Opened::open_any(&options.input, options.from.map(From::format), options.wide)?;
    let format = opened.format;
    if options.wide && format != Format::Ms && to != Format::Ms {
        let (from, to) = (format.name(), to.name());
        return Err(failure::usage(format!(
            "--wide is about simulations (ms) and says nothing of {from} and {to}; leave it out"
        )));
    }
    if let Some(profile) = opened.profile(|symbols| symbols)? {
        return of_profile::write(&opened, &profile, path, to, options, output);
    }
    let (name, cut) = (opened.name.clone(), opened.remark());
    let (mut remarks, mut damaged) = (Vec::new(), cut.is_some());
    // It is written with names, and they stand at the end of what is read.
    if to == Format::Heaptrack && matches!(format, Format::JsonLines | Format::Heaptrack) {
        (remarks, damaged) = opened.keep()?;
    }
    let mut source = opened.source()?;
    let mut target = Target::open(Some(path), !is_binary(to))?;
    let place = if target.is_stdout() { Place::Stderr } else { Place::Stdout };
    let bar = progress(source.length(), output);
    let done = write(&mut *source, &mut target, to, options, |done| bar.set_position(done));
    bar.finish_and_clear();
    let done = match done {
        Err(error) if target.is_stdout() && trace_file::is_broken_pipe(&error) => return Ok(0),
        other => other.map_err(|error| blame(error, &name, target.name()))?,
    };
    let to_name = target.name().to_owned();
    target.keep()?;
    damaged |= source.damaged();
    remarks.extend(source.remarks().into_iter().chain(cut));
    remarks.extend(of_sample(done.means, to, options.rows()).filter(|_| !is_weighed(to)));
    for remark in &remarks {
        output.warn(format_args!("{name}: {remark}"));
    }
    let summary =
        Summary { input: &name, from: format, output: &to_name, to, done: &done, remarks: &remarks };
    if options.json {
        output.report(&place, &format!("{:#}\n", summary.json()))?;
    } else if !output.is_quiet() {
        output.report(&place, &summary.text())?;
    }
    Ok(if damaged { DAMAGED } else { 0 })
}

/// Are the sums of a sample weighed in what is written?
fn is_weighed(format: Format) -> bool {
    matches!(format, Format::Collapsed | Format::Massif | Format::Jeprof)
}

/// Formats have no place for weights, so what is written is the sample itself.
fn of_sample(means: Means, to: Format, rows: Rows) -> Option<String> {
    let must = |mean: &str| format!("a sum of it must count each block as 1/(1-exp(-size/{mean})) blocks");
    let sums = match to {
        Format::Csv | Format::Parquet if rows == Rows::Objects => must("sample_mean"),
        _ if means.least == means.most => must(&means.most.to_string()),
        Format::Qtr | Format::JsonLines | Format::Csv | Format::Parquet => {
            must("mean") + ", with the mean of the last \"sampled\" of its thread"
        }
        _ => {
            format!("no sum of it is right, since {} does not say at which rate a block was drawn", to.name())
        }
    };
    let drawn = means.words(|mean| units::bytes(mean as f64));
    (means.most > 0).then(|| {
        format!("is a sample, of one byte in {drawn}, and so is what was written: {sums}; quarry info does")
    })
}

/// What was written.
struct Done {
    events: u64,
    /// The rates at which blocks were drawn, of a sample.
    means: Means,
    bytes: u64,
    lost: Vec<(&'static str, u64)>,
}

struct Summary<'a> {
    input: &'a str,
    from: Format,
    output: &'a str,
    to: Format,
    done: &'a Done,
    remarks: &'a [String],
}

impl Summary<'_> {
    fn text(&self) -> String {
        let count = |n: u64| units::count(n as f64);
        let mut text = format!(
            "{} from {} ({}) to {} ({}), {}\n",
            units::of(self.done.events, "event"),
            self.input,
            self.from.name(),
            self.output,
            self.to.name(),
            units::bytes(self.done.bytes as f64)
        );
        for (what, n) in &self.done.lost {
            text += &format!("not in {}: {what}: {}\n", self.to.name(), count(*n));
        }
        text
    }

    fn json(&self) -> Value {
        let lost: serde_json::Map<String, Value> =
            self.done.lost.iter().map(|(what, n)| ((*what).to_owned(), json!(n))).collect();
        json!({
            "schema": "quarry-convert/1",
            "input": self.input,
            "from": self.from.name(),
            "output": self.output,
            "to": self.to.name(),
            "events": self.done.events,
            "bytes": self.done.bytes,
            "lost": lost,
            "remarks": self.remarks,
        })
    }
}

/// Name the file that an error is about.
fn blame(error: anyhow::Error, input: &str, output: &str) -> anyhow::Error {
    use convert::Error;
    match error.downcast_ref::<Error>() {
        // What they say has the reason in it.
        Some(error @ (Error::Write(_) | Error::Slots(_))) => anyhow::anyhow!("{output}: {error}"),
        Some(error) => anyhow::anyhow!("{input}: {error}"),
        None => anyhow::anyhow!("{output}: {}", failure::words(&error)),
    }
}

fn write(
    source: &mut dyn Source,
    target: &mut Target,
    to: Format,
    options: &ConvertOptions,
    each: impl FnMut(u64),
) -> anyhow::Result<Done> {
    let packing = options.product.file().map_or(Packing::Plain, Packing::of_name);
    let mut packed = Packed::new(target, packing).map_err(convert::Error::Write)?;
    let head = source.head().clone();
    let mut sink = sink(&mut packed, to, source, &head, options)?;
    let Copied { events, means } = convert::copy(source, &mut *sink, each)?;
    let lost = sink.losses().iter().collect();
    drop(sink);
    let (_, bytes) = packed.finish().map_err(convert::Error::Write)?;
    Ok(Done { events, means, bytes, lost })
}

fn sink<'a, W: Write + Send + 'a>(
    to: W,
    format: Format,
    source: &dyn Source,
    head: &Head,
    options: &ConvertOptions,
) -> anyhow::Result<Box<dyn Sink + 'a>> {
    let rows = options.rows();
    Ok(match format {
        Format::Qtr => Box::new(QtrSink::new(to, head, WriteOptions { packed: !options.unpacked })?),
        Format::Ms => Box::new(MsSink::new(to, ms::Options { wide: options.wide })),
        Format::JsonLines => Box::new(JsonSink::new(to, head)?),
        Format::Heaptrack => Box::new(HeaptrackSink::new(to, head, source.names())?),
        Format::Mtrace => Box::new(MtraceSink::new(to, head)?),
        Format::Csv => Box::new(RowSink::new(CsvTable::new(to, rows)?, rows, head)),
        Format::Parquet => return parquet(to, rows, head),
        Format::Massif => Box::new(MassifSink::new(to, head, info::hiding(&options.hide)?)),
        Format::Jeprof => Box::new(JeprofSink::new(to, head, options.live(), options.names)),
        Format::Collapsed => {
            let folding = info::hiding(&options.hide)?;
            Box::new(collapsed::sink(to, head, options.by.unwrap_or(By::Bytes), folding))
        }
    })
}

#[cfg(feature = "parquet")]
fn parquet<'a>(to: impl Write + Send + 'a, rows: Rows, head: &Head) -> anyhow::Result<Box<dyn Sink + 'a>> {
    let table = quarry_synth::convert::parquet::ParquetTable::new(to, rows)?;
    Ok(Box::new(RowSink::new(table, rows, head)))
}

#[cfg(not(feature = "parquet"))]
fn parquet<'a>(_: impl Write + Send + 'a, _: Rows, _: &Head) -> anyhow::Result<Box<dyn Sink + 'a>> {
    Err(failure::usage(
        "this quarry was built without Parquet (cargo build --features parquet); say --format csv",
    ))
}

/// A bar, where there is a terminal and something to wait for.
fn progress(length: u64, output: &Output) -> ProgressBar {
    if length < LONG || output.is_quiet() || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {bytes} of {total_bytes}, {eta} left");
    ProgressBar::new(length).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
