// SPDX-License-Identifier: MIT
//! quarry symbolize: the names of functions go into the trace, to be read where the program is not.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use quarry_symbols::{Names, Places, Symbols, jit};
use quarry_synth::convert::Format as TraceFormat;
use quarry_synth::convert::output::{Output as Packed, Packing};
use quarry_trace::{StackTree, Trace};
use serde_json::{Value, json};

use crate::failure;
use crate::format::{Format, Makes, Product};
use crate::opened::{Opened, Whole, packing_of};
use crate::output::{Output, Place};
use crate::places::Where;
use crate::trace_file::Target;

/// Put the names of functions into a trace
///
/// Looks up all call stacks of a trace in the files of the program, and puts functions, files and lines into the trace.
/// The trace then shows the same names on any machine. Only files that are provably those of the recording are used. A
/// stack without a name keeps its offsets, and a later symbolize may name it. With -o, a file of another tool becomes a
/// trace with names. A packed one stays packed.
#[derive(Args)]
#[command(after_help = EXAMPLES, mut_arg("output", |output| output.help(NAMED).long_help(format!("{NAMED}{WHOLE}"))))]
pub struct SymbolizeOptions {
    #[command(flatten)]
    files: Where,
    #[command(flatten)]
    pub product: Product<Self>,
    /// The trace, of any format that quarry convert reads; - is standard input
    #[arg(value_name = "FILE")]
    trace: PathBuf,
    /// What was found as JSON, on standard output (schema quarry-symbolize/1)
    #[arg(long)]
    json: bool,
}

impl Makes for SymbolizeOptions {
    const VERB: &'static str = "symbolize";
    const FORMATS: &'static [Format] = &[Format::Qtr];
    const PACKS: bool = true;
}

const NAMED: &str = "The trace with names; - is standard output [default: FILE itself]";
const WHOLE: &str = ".

FILE is replaced when the new trace is complete. An ending .gz or .zst packs it.";

/// The exit code when a part of the trace could not be read.
const DAMAGED: i32 = 1;

const EXAMPLES: &str = "Examples:
  quarry symbolize prog.qtr                    in place; copy it to where you like
  quarry symbolize --symfs image prog.qtr      with the files of another machine
  quarry symbolize -o named.qtr prog.qtr       into another file
  quarry symbolize -o prog.qtr heaptrack.prog.1234.zst

Exit code: 0; 1 when FILE cannot be read, or not all of it; else as for quarry.";

/// Find the names and write the trace.
pub fn main(options: &SymbolizeOptions, output: &Output) -> anyhow::Result<i32> {
    let name = options.trace.display();
    let failed = |error: anyhow::Error| failure::failed(format_args!("{error:#}"));
    let opened = Opened::open(&options.trace, None, true).map_err(failed)?;
    let to = options.product.file().unwrap_or(&options.trace);
    let packing = packing(&opened, options)?;
    let Whole { trace, mut remarks, mut damaged, .. } = opened.into_trace().map_err(failed)?;
    if crate::info::runs(&options.trace, &trace) {
        return Err(failure::failed(format_args!("{name}: its process is still running, and writes to it")));
    }
    let (stacks, within) =
        trace.stacks().map_err(|error| failure::failed(format_args!("{name}: {error}")))?;
    let mut damage = trace.damage().clone();
    damage.merge(&within);
    if !damage.is_empty() {
        remarks.push(damage.to_string());
        damaged = true;
    }
    if stacks.is_empty() {
        let why = match trace.end() {
            Some(_) => "there are no call stacks in it; record with -g",
            None => {
                "there are no call stacks in it, and it has no end: it was cut off, or recorded without -g"
            }
        };
        output.warn(format_args!("{name}: {why}"));
    }
    let named = look_up(&trace, &stacks, options.files.places());
    write(&trace, &named.names, to, packing)?;
    for remark in remarks {
        output.warn(format_args!("{name}: {remark}"));
    }
    for missing in &named.missing {
        output.warn(format_args!("no names: {missing}"));
    }
    for file in &named.used {
        output.detail(format_args!("names from {}", file.display()));
    }
    let all = stacks.len();
    let frames = quarry_report::units::noun(all as u64, "frame");
    output.note(format_args!("{name}: names of {} of {all} {frames}", named.names.len()));
    if options.json {
        let place = if to == Path::new("-") { Place::Stderr } else { Place::Stdout };
        output.report(&place, &format!("{:#}\n", named.json(&options.trace, to, all)))?;
    }
    Ok(if damaged { DAMAGED } else { 0 })
}

/// How to pack what is written. In place it is packed as it was, and only a trace of ours is written over.
fn packing(opened: &Opened, options: &SymbolizeOptions) -> anyhow::Result<Packing> {
    if let Some(to) = options.product.file() {
        return packing_of(to);
    }
    let refused = |what: &str| {
        let name = options.trace.display();
        Err(failure::usage(format_args!("{name}: {what}; say where the trace with names goes: -o FILE.qtr")))
    };
    match (opened.format, opened.packed()) {
        _ if opened.remark().is_some() => refused("was cut off, and what is left of it is not written over"),
        _ if options.trace == Path::new("-") => refused("is standard input, and is not written over"),
        (TraceFormat::Qtr, "") => Ok(Packing::Plain),
        (TraceFormat::Qtr, "gzip") => Ok(Packing::Gzip),
        (TraceFormat::Qtr, "zstd") => Ok(Packing::Zstd),
        (TraceFormat::Qtr, other) => {
            refused(&format!("is packed with {other}, which is read and not written"))
        }
        (format, _) => {
            refused(&format!("is a file of another format ({}), and is not written over", format.name()))
        }
    }
}

/// What was found.
pub struct Named {
    pub names: Names,
    pub missing: Vec<String>,
    used: Vec<PathBuf>,
}

impl Named {
    fn json(&self, input: &Path, output: &Path, frames: usize) -> Value {
        json!({
            "schema": "quarry-symbolize/1",
            "input": input.display().to_string(),
            "output": output.display().to_string(),
            "frames": frames,
            "named": self.names.len(),
            "used": self.used.iter().map(|file| file.display().to_string()).collect::<Vec<_>>(),
            "missing": self.missing,
        })
    }
}

/// All names that can be had for the stacks of a trace.
pub fn look_up(trace: &Trace, stacks: &StackTree, places: Places) -> Named {
    let mut names = Names::of_trace(trace);
    let code = jit::Code::of_trace(trace);
    let mut symbols = Symbols::of_trace(trace, trace.modules(), places);
    for node in stacks.nodes() {
        let frames = symbols.frames(&node);
        if frames.iter().any(|frame| frame.function.is_some()) {
            names.insert(node.id, &frames);
        } else if let Some(frame) = frames.first().filter(|frame| frame.module.is_empty()) {
            names.insert_all(node.id, code.frame(&node, frame).as_ref());
        }
    }
    Named { names, missing: symbols.missing().to_vec(), used: symbols.used() }
}

/// The names of code that was made at run time. Without such code the trace is not read.
pub fn look_up_made(trace: &Trace) -> anyhow::Result<Names> {
    let mut names = Names::default();
    let code = jit::Code::of_trace(trace);
    if code.is_empty() {
        return Ok(names);
    }
    let mut symbols = Symbols::new(trace.modules());
    symbols.without_names();
    for node in trace.stacks()?.0.nodes() {
        let frames = symbols.frames(&node);
        if let Some(frame) = frames.first().filter(|frame| frame.module.is_empty()) {
            names.insert_all(node.id, code.frame(&node, frame).as_ref());
        }
    }
    Ok(names)
}

/// Write a copy of the trace with these names, whose name may be the trace's own.
pub fn write(trace: &Trace, names: &Names, to: &Path, packing: Packing) -> anyhow::Result<()> {
    let mut texts: Vec<Vec<u8>> = trace.texts().filter(|text| !Names::is_text(text)).collect();
    texts.extend(names.texts());
    let mut target = Target::open(Some(to), false)?;
    let named = || to.display().to_string();
    let mut packed = Packed::new(&mut target, packing).with_context(named)?;
    trace.copy_with_texts(&mut packed, &texts).with_context(named)?;
    packed.finish().with_context(named)?;
    target.keep()
}
