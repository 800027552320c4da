// SPDX-License-Identifier: MIT
//! A trace that was opened, in any format that can be read: what quarry convert, info, replay and gen --fit begin with.
//!
//! Quarry's own traces are read at any place, and all else once. [`Opened::into_trace`] makes one of the other.

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek};
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::Context;
use quarry_input::Input;
use quarry_symbols::Symbols;
use quarry_synth::convert::heaptrack::HeaptrackSource;
use quarry_synth::convert::json_lines::JsonSource;
use quarry_synth::convert::mtrace::MtraceSource;
use quarry_synth::convert::output::Packing;
use quarry_synth::convert::profile::Profile;
use quarry_synth::convert::qtr::{QtrSink, QtrSource};
use quarry_synth::convert::simulation::MsSource;
use quarry_synth::convert::{self, Format, Source};
use quarry_synth::ms;
use quarry_trace::{Trace, TraceError, WriteOptions};

use crate::{failure, kind};

/// A trace, and its name and format.
pub struct Opened {
    pub format: Format,
    pub name: String,
    what: What,
    wide: bool,
    packed: &'static str,
}

enum What {
    /// True: its packed data ended early.
    Trace(Box<Trace>, bool),
    /// `None` once it is read.
    Text(Option<Input>),
    /// What no trace can be made of.
    Profile(Input),
}

/// One of Quarry's own traces, whatever it was before.
pub struct Whole {
    pub trace: Trace,
    pub name: String,
    /// What is to be said of what it was before.
    pub remarks: Vec<String>,
    /// Could a part of that not be read?
    pub damaged: bool,
}

/// A simulation file.
pub struct Simulation {
    pub file: File,
    pub length: u64,
    /// What is to be said where it was packed and ended early.
    pub cut: Option<String>,
}

/// What is to be said of what was packed and ended early.
const CUT: &str = "the packed file was cut off; what stands before was used";

impl Opened {
    /// Open it, and find out what it is. `wide` allows slots above 4095 in simulation files.
    pub fn open(path: &Path, format: Option<Format>, wide: bool) -> anyhow::Result<Self> {
        let opened = Self::open_any(path, format, wide)?;
        if let What::Profile(_) = opened.what {
            let (what, name) = (opened.format.name(), &opened.name);
            let holds = Profile::holds(opened.format);
            anyhow::bail!(
                "{name}: line 1: is a profile ({what}): it has {holds}, and no allocation or free, so no trace can be made \
                 of it; quarry info shows it, and quarry convert writes it as csv or collapsed"
            );
        }
        Ok(opened)
    }

    /// The same, also where it is a profile.
    pub fn open_any(path: &Path, format: Option<Format>, wide: bool) -> anyhow::Result<Self> {
        let name = quarry_input::name(path);
        let input = Input::open(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                anyhow::anyhow!("{name}: {error}; make a trace with quarry record -o FILE -- CMD")
            }
            _ => anyhow::anyhow!("{name}: {error}"),
        })?;
        if input.begin().is_empty() {
            anyhow::bail!("{name}: is empty; make a trace with quarry record -o FILE -- CMD");
        }
        if let Some(kind) = kind::utf16(input.begin()).filter(|_| format.is_none()) {
            anyhow::bail!("{name}: is {}; {}", kind.what, kind.advice);
        }
        let told = || Format::of_content(input.begin()).or_else(|| Format::of_name(path));
        let format = format.or_else(told).ok_or_else(|| {
            let advice = "those are qtr, ms (0=100 1=200 0), jsonl, heaptrack, mtrace, massif and jeprof; make one with quarry record \
                -o FILE -- CMD; if it is one, quarry convert --from FORMAT reads it";
            match kind::of(input.begin()) {
                Some(kind) => anyhow::anyhow!("{name}: is {}, and no trace; {}", kind.what, kind.advice),
                None => anyhow::anyhow!("{name}: is no trace of a known format; {advice}"),
            }
        })?;
        let packed = input.packed();
        let what = match format {
            // Reports are JSON, and no lines of it.
            Format::JsonLines if let Some(kind) = kind::report(input.begin()) => {
                anyhow::bail!("{name}: is {}, and no trace; {}", kind.what, kind.advice)
            }
            Format::Massif | Format::Jeprof => What::Profile(input),
            Format::Csv | Format::Parquet => {
                let advice = "tables are written, and not read; use what the table was made from";
                anyhow::bail!("{name}: is a table ({}); {advice}", format.name())
            }
            Format::Qtr => {
                let (trace, cut) = trace(input).with_context(|| name.clone())?;
                What::Trace(Box::new(trace), cut)
            }
            _ => What::Text(Some(input)),
        };
        Ok(Self { format, name, what, wide, packed })
    }

    /// Begin to read. A text can be read once.
    pub fn source(&mut self) -> anyhow::Result<Box<dyn Source + '_>> {
        let named = |error: convert::Error| anyhow::anyhow!("{}: {error}", self.name);
        let input = match &mut self.what {
            What::Trace(trace, _) => return Ok(Box::new(QtrSource::new(trace))),
            What::Profile(_) => anyhow::bail!("{}: is no trace", self.name),
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

    /// What is to be said of how it came, beside what its source says.
    pub fn remark(&self) -> Option<String> {
        let cut = matches!(self.what, What::Trace(_, true));
        cut.then(|| CUT.into())
    }

    /// What a profile says; `None`: it is none.
    pub fn profile(&mut self, symbols: impl FnOnce(Symbols) -> Symbols) -> anyhow::Result<Option<Profile>> {
        let What::Profile(_) = self.what else { return Ok(None) };
        let What::Profile(input) = std::mem::replace(&mut self.what, What::Text(None)) else {
            return Ok(None);
        };
        let read = Profile::read(self.format, input, symbols);
        read.map(Some).map_err(|error| anyhow::anyhow!("{}: {error}", self.name))
    }

    /// How it was packed, in a word; empty: it was not.
    pub fn packed(&self) -> &'static str {
        self.packed
    }

    /// Make a trace of it that can be read again and again, in a file without a name. What is to be said of what it was, and
    /// whether a part of that could not be read.
    pub fn keep(&mut self) -> anyhow::Result<(Vec<String>, bool)> {
        if let What::Trace(..) = self.what {
            return Ok((Vec::new(), false));
        }
        let name = self.name.clone();
        let mut source = self.source()?;
        let trace = converted(&mut *source).with_context(|| name)?;
        let said = (source.remarks(), source.damaged());
        drop(source);
        self.what = What::Trace(Box::new(trace), false);
        Ok(said)
    }

    /// A trace that can be read again and again. One of another format is converted to a file without a name.
    pub fn into_trace(mut self) -> anyhow::Result<Whole> {
        let cut = self.remark();
        let (said, is_damaged) = self.keep()?;
        let damaged = is_damaged || cut.is_some();
        let remarks = cut.into_iter().chain(said).collect();
        match self.what {
            What::Trace(trace, _) => Ok(Whole { trace: *trace, name: self.name, remarks, damaged }),
            _ => anyhow::bail!("{}: is no trace", self.name),
        }
    }

    /// A regular file of a simulation, unpacked.
    pub fn into_simulation(self) -> anyhow::Result<Simulation> {
        let What::Text(Some(input)) = self.what else { anyhow::bail!("{}: is no simulation", self.name) };
        let read = || {
            let (file, cut) = input.into_file()?;
            let length = if cut { without_last_word(&file)? } else { file.metadata()?.len() };
            Ok(Simulation { file, length, cut: cut.then(|| CUT.into()) })
        };
        read().map_err(|error: io::Error| anyhow::anyhow!("{}: {error}", self.name))
    }
}

/// Cuts the copy of a simulation that ended early: of its last word nobody knows how it goes on. Returns its length.
fn without_last_word(file: &File) -> io::Result<u64> {
    const WORD: u64 = 4096;
    let length = file.metadata()?.len();
    let mut end = vec![0; length.min(WORD) as usize];
    file.read_exact_at(&mut end, length - length.min(WORD))?;
    let from_end =
        |is: fn(u8) -> bool, end: &[u8]| end.iter().rposition(|&byte| !is(byte)).map_or(0, |at| at + 1);
    let is_space = |byte: u8| byte.is_ascii_whitespace() || byte == 0;
    loop {
        end.truncate(from_end(|byte| !byte.is_ascii_whitespace() && byte != 0, &end));
        let words = from_end(is_space, &end);
        // A slot without a size goes, too.
        if words == 0 || end[words - 1] != b'=' {
            break;
        }
        end.truncate(words);
    }
    let length = length - length.min(WORD) + end.len() as u64;
    file.set_len(length)?;
    Ok(length)
}

/// Traces are read here and there, so what cannot be is copied first.
fn trace(input: Input) -> anyhow::Result<(Trace, bool)> {
    let (file, cut) = input.into_file()?;
    let trace = Trace::of_file(file).map_err(|error| anyhow::anyhow!("{error}{}", advice(&error)))?;
    Ok((trace, cut))
}

/// What to do about it.
fn advice(error: &TraceError) -> &'static str {
    match error {
        TraceError::Empty => "; record again, and look at the messages of the recorder",
        TraceError::Foreign => "; make one with quarry record -o FILE -- CMD",
        _ => "",
    }
}

fn converted(source: &mut dyn Source) -> anyhow::Result<Trace> {
    let file = tempfile::tempfile().context("cannot make a temporary file; is there room in TMPDIR?")?;
    let head = source.head().clone();
    let to = BufWriter::with_capacity(1 << 18, file.try_clone()?);
    let mut sink = QtrSink::new(to, &head, WriteOptions { packed: true })?;
    convert::copy(source, &mut sink, |_| {})?;
    drop(sink);
    let mut file = file;
    file.rewind()?;
    Ok(Trace::of_file(file)?)
}

/// Text of a file that is read as a whole, as results and models are; `-` is standard input.
pub fn text(path: &Path) -> anyhow::Result<String> {
    /// Nobody's results are longer.
    const MOST: u64 = 1 << 30;
    let name = quarry_input::name(path);
    let read = || {
        let mut bytes = Vec::new();
        Input::open(path)?.take(MOST).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().map_err(|error: std::io::Error| anyhow::anyhow!("{name}: {error}"))?;
    String::from_utf8(bytes).map_err(|error| match kind::of(error.as_bytes()) {
        Some(kind) => anyhow::anyhow!("{name}: is {}; {}", kind.what, kind.advice),
        None => anyhow::anyhow!("{name}: is no text"),
    })
}

/// How to pack what is written to a path, as its name says. An ending that is only read is no name for it.
pub fn packing_of(path: &Path) -> anyhow::Result<Packing> {
    if let Some(ending) = Packing::unwritten(path) {
        let name = path.display();
        let message =
            format!("{name}: what is packed so (.{ending}) is read and not written; use .zst or .gz");
        return Err(failure::usage(message));
    }
    Ok(Packing::of_name(path))
}
