// SPDX-License-Identifier: MIT
//! quarry convert: from one format of traces to another.

mod collapsed;

use std::fs::File;
use std::io::{self, IsTerminal, Read, Seek, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use quarry_report::units;
use quarry_synth::convert::csv::CsvTable;
use quarry_synth::convert::heaptrack::{HeaptrackSink, HeaptrackSource};
use quarry_synth::convert::input::Input;
use quarry_synth::convert::json_lines::{JsonSink, JsonSource};
use quarry_synth::convert::mtrace::{MtraceSink, MtraceSource};
use quarry_synth::convert::output::{Output as Packed, Packing};
use quarry_synth::convert::qtr::{QtrSink, QtrSource};
use quarry_synth::convert::rows::{RowSink, Rows};
use quarry_synth::convert::simulation::{MsSink, MsSource};
use quarry_synth::convert::{self, Format, Sink, Source};
use quarry_synth::ms;
use quarry_trace::{Head, Trace, WriteOptions};
use serde_json::{Value, json};

use crate::format::{Format as Wish, Makes, Product};
use crate::output::{Output, Place};
use crate::trace_file::{self, Target};
use crate::{failure, info};
use collapsed::{By, CollapsedSink};

/// The exit code when a part of the input could not be read.
const DAMAGED: i32 = 1;

/// From this length on it takes long enough for a progress bar.
const LONG: u64 = 16 << 20;

/// Convert a trace from one format to another
///
/// Reads Quarry's traces (qtr), simulation files (ms), lines of JSON (jsonl), heaptrack's data files and what
/// glibc's mtrace writes; writes these, tables (csv, parquet), and call stacks for a flame graph (collapsed). Text may be packed with gzip or zstd. Formats are
/// told by content first, by name second. What a format cannot hold is left out and said.
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
    /// What the number behind a collapsed stack is [default: bytes]
    #[arg(long, value_name = "WHAT")]
    pub by: Option<By>,
    /// Fold frames that this fits into the function that calls them, as those of allocators are. May be repeated
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
  quarry convert prog.qtr -o - --format jsonl | grep '\"op\":\"failed\"'

Exit code: 0; 1 when a part of IN could not be read (what could be is converted); else as for quarry.";

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
}

impl From {
    fn format(self) -> Format {
        match self {
            From::Qtr => Format::Qtr,
            From::Ms => Format::Ms,
            From::Jsonl => Format::JsonLines,
            From::Heaptrack => Format::Heaptrack,
            From::Mtrace => Format::Mtrace,
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

/// No text, which would be packed as a whole.
fn is_binary(format: Format) -> bool {
    matches!(format, Format::Qtr | Format::Parquet)
}

fn is_table(format: Format) -> bool {
    matches!(format, Format::Csv | Format::Parquet)
}

/// Convert; the exit code says whether all could be read.
pub fn main(options: &ConvertOptions, output: &Output) -> anyhow::Result<i32> {
    let (path, to) = options.target()?;
    if is_binary(to) && Packing::of_name(path) != Packing::Plain {
        let (name, to) = (path.display(), to.name());
        return Err(failure::usage(format!(
            "{name}: {to} is packed inside; leave out the ending .gz or .zst"
        )));
    }
    for (given, right, option, format) in [
        (options.rows.is_some(), is_table(to), "--rows", "tables (csv, parquet)"),
        (options.unpacked, to == Format::Qtr, "--unpacked", "qtr"),
        (options.by.is_some(), to == Format::Collapsed, "--by", "collapsed stacks"),
        (!options.hide.is_empty(), to == Format::Collapsed, "--hide", "collapsed stacks"),
    ] {
        if given && !right {
            let to = to.name();
            return Err(failure::usage(format!(
                "{option} is about {format} and says nothing of {to}; leave it out"
            )));
        }
    }
    let mut opened = Opened::open(&options.input, options.from.map(From::format), options.wide)?;
    let format = opened.format;
    if options.wide && format != Format::Ms && to != Format::Ms {
        let (from, to) = (format.name(), to.name());
        return Err(failure::usage(format!(
            "--wide is about simulations (ms) and says nothing of {from} and {to}; leave it out"
        )));
    }
    let name = opened.name.clone();
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
    let mut remarks = source.remarks();
    remarks.extend(of_sample(source.head().sample));
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
    Ok(if source.damaged() { DAMAGED } else { 0 })
}

/// Formats have no place for weights, so what is written is the sample itself.
fn of_sample(rate: u64) -> Option<String> {
    (rate > 0).then(|| {
        format!(
            "is a sample, of one byte in {}, and so is what was written: a sum of it must count each block as \
             1/(1-exp(-size/{rate})) blocks; quarry info does",
            units::bytes(rate as f64)
        )
    })
}

/// What was written.
struct Done {
    events: u64,
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
            "{} events from {} ({}) to {} ({}), {}\n",
            count(self.done.events),
            self.input,
            self.from.name(),
            self.output,
            self.to.name(),
            units::bytes(self.done.bytes as f64)
        );
        for (what, n) in &self.done.lost {
            text += &format!("not in {}: {} {what}\n", self.to.name(), count(*n));
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
        None => anyhow::anyhow!("{output}: {error:#}"),
    }
}

/// A trace that was opened, in any format that can be read.
pub struct Opened {
    format: Format,
    name: String,
    what: What,
    wide: bool,
}

enum What {
    Trace(Box<Trace>),
    /// `None` once it is read.
    Text(Option<Input>),
}

impl Opened {
    /// Open it, and find out what it is.
    pub fn open(path: &Path, format: Option<Format>, wide: bool) -> anyhow::Result<Self> {
        let (name, mut file, length) = if path == Path::new("-") {
            (String::from("standard input"), Readable::Stdin(io::stdin()), 0)
        } else {
            let name = path.display().to_string();
            let file = File::open(path).map_err(|error| anyhow::anyhow!("{name}: {error}"))?;
            let about = file.metadata().map_err(|error| anyhow::anyhow!("{name}: {error}"))?;
            if about.is_dir() {
                return Err(anyhow::anyhow!("{name}: is a directory; name a trace in it"));
            }
            let length = if about.is_file() { about.len() } else { 0 };
            (name, Readable::File(file), length)
        };
        let mut mark = Vec::new();
        (&mut file).take(8).read_to_end(&mut mark).with_context(|| format!("{name}: cannot be read"))?;
        if mark.is_empty() {
            return Err(anyhow::anyhow!("{name}: is empty"));
        }
        let qtr = format.map_or(mark.starts_with(b"QTRB"), |format| format == Format::Qtr);
        if qtr {
            let trace =
                Self::trace(file, mark, length).map_err(|error| anyhow::anyhow!("{name}: {error:#}"))?;
            return Ok(Self { format: Format::Qtr, name, what: What::Trace(Box::new(trace)), wide });
        }
        let input = Input::new(io::Cursor::new(mark).chain(file), length)
            .map_err(|error| anyhow::anyhow!("{name}: {error}"))?;
        let format = match format {
            Some(format) => format,
            None => Format::of_content(input.begin()).or_else(|| Format::of_name(path)).ok_or_else(|| {
                anyhow::anyhow!("{name}: is no trace of a known format; if it is one, say --from FORMAT")
            })?,
        };
        match format {
            Format::Csv | Format::Parquet => {
                let advice = "tables are written, and not read; convert what the table was made from";
                Err(anyhow::anyhow!("{name}: is a table ({}); {advice}", format.name()))
            }
            Format::Qtr => {
                Err(anyhow::anyhow!("{name}: a trace (qtr) is not packed as a whole; unpack it first"))
            }
            _ => Ok(Self { format, name, what: What::Text(Some(input)), wide }),
        }
    }

    /// Traces are read here and there, so what cannot be is copied first.
    fn trace(file: Readable, mark: Vec<u8>, length: u64) -> anyhow::Result<Trace> {
        Ok(match file {
            Readable::File(file) if length > 0 => Trace::of_file(file)?,
            mut other => {
                let mut copy = tempfile::tempfile().context("cannot be copied to a temporary file")?;
                copy.write_all(&mark).and_then(|()| io::copy(&mut other, &mut copy).map(drop))?;
                copy.rewind()?;
                Trace::of_file(copy)?
            }
        })
    }

    /// How long it is, as far as that is known, in the units that its source counts.
    pub fn length(&self) -> u64 {
        match &self.what {
            What::Trace(trace) => trace.bytes(),
            What::Text(input) => input.as_ref().map_or(0, Input::length),
        }
    }

    /// Begin to read. A text can be read once.
    pub fn source(&mut self) -> anyhow::Result<Box<dyn Source + '_>> {
        let named = |error: convert::Error| anyhow::anyhow!("{}: {error}", self.name);
        let input = match &mut self.what {
            What::Trace(trace) => return Ok(Box::new(QtrSource::new(trace))),
            What::Text(input) => {
                input.take().ok_or_else(|| anyhow::anyhow!("{}: can be read only once", self.name))?
            }
        };
        Ok(match self.format {
            Format::Ms => Box::new(MsSource::new(input, ms::Options { wide: self.wide })),
            Format::JsonLines => Box::new(JsonSource::new(input).map_err(named)?),
            Format::Heaptrack => Box::new(HeaptrackSource::new(input).map_err(named)?),
            _ => Box::new(MtraceSource::new(input)),
        })
    }
}

/// Standard input or a file.
enum Readable {
    Stdin(io::Stdin),
    File(File),
}

impl Read for Readable {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Readable::Stdin(stdin) => stdin.read(buffer),
            Readable::File(file) => file.read(buffer),
        }
    }
}

fn write(
    source: &mut dyn Source,
    target: &mut Target,
    to: Format,
    options: &ConvertOptions,
    each: impl FnMut(u64),
) -> anyhow::Result<Done> {
    let packing = match options.product.file() {
        Some(path) if !is_binary(to) => Packing::of_name(path),
        _ => Packing::Plain,
    };
    let mut packed = Packed::new(target, packing).map_err(convert::Error::Write)?;
    let head = source.head().clone();
    let mut sink = sink(&mut packed, to, &head, options)?;
    let events = convert::copy(source, &mut *sink, each)?;
    let lost = sink.losses().iter().collect();
    drop(sink);
    let (_, bytes) = packed.finish().map_err(convert::Error::Write)?;
    Ok(Done { events, bytes, lost })
}

fn sink<'a, W: Write + Send + 'a>(
    to: W,
    format: Format,
    head: &Head,
    options: &ConvertOptions,
) -> anyhow::Result<Box<dyn Sink + 'a>> {
    let rows = options.rows.map_or(Rows::Objects, Rows::from);
    Ok(match format {
        Format::Qtr => Box::new(QtrSink::new(to, head, WriteOptions { packed: !options.unpacked })?),
        Format::Ms => Box::new(MsSink::new(to, ms::Options { wide: options.wide })),
        Format::JsonLines => Box::new(JsonSink::new(to, head)?),
        Format::Heaptrack => Box::new(HeaptrackSink::new(to, head)?),
        Format::Mtrace => Box::new(MtraceSink::new(to, head)?),
        Format::Csv => Box::new(RowSink::new(CsvTable::new(to, rows)?, rows, head)),
        Format::Parquet => return parquet(to, rows, head),
        Format::Collapsed => {
            let folding = info::hiding(&options.hide)?;
            Box::new(CollapsedSink::new(to, head, options.by.unwrap_or(By::Bytes), folding))
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
