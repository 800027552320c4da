// SPDX-License-Identifier: MIT
//! quarry symbolize: the names of functions go into the trace, to be read where the program is not.

use std::path::{Path, PathBuf};

use clap::Args;
use quarry_symbols::{Names, Places, Symbols, jit};
use quarry_trace::{StackTree, Trace};

use crate::failure;
use crate::format::{Format, Makes, Product};
use crate::output::Output;
use crate::places::Where;
use crate::trace_file::Target;

/// Put the names of functions into a trace
///
/// Looks up all call stacks of a trace where the files of the program are, and puts functions, files and lines into
/// the trace. It then shows the same names anywhere. Only files that are provably those of the recording are used.
/// What could not be named keeps its offsets, and a later symbolize may name it.
#[derive(Args)]
#[command(after_help = EXAMPLES, mut_arg("output", |output| output.help("The trace with names; - is standard output [default: FILE itself]")))]
pub struct SymbolizeOptions {
    #[command(flatten)]
    files: Where,
    #[command(flatten)]
    pub product: Product<Self>,
    /// The trace
    #[arg(value_name = "FILE")]
    trace: PathBuf,
}

impl Makes for SymbolizeOptions {
    const VERB: &'static str = "symbolize";
    const FORMATS: &'static [Format] = &[Format::Qtr];
}

const EXAMPLES: &str = "Examples:
  quarry symbolize prog.qtr                    in place; copy it to where you like
  quarry symbolize --symfs image prog.qtr      with the files of another machine
  quarry symbolize -o named.qtr prog.qtr       into another file";

/// Find the names and write the trace.
pub fn main(options: &SymbolizeOptions, output: &Output) -> anyhow::Result<i32> {
    let name = options.trace.display();
    let failed = |error: quarry_trace::TraceError| failure::failed(format_args!("{name}: {error}"));
    let trace = Trace::open(&options.trace).map_err(failed)?;
    if crate::info::runs(&options.trace, &trace) {
        return Err(failure::failed(format_args!("{name}: its process is still running, and writes to it")));
    }
    let stacks = trace.stacks().map_err(failed)?;
    if stacks.is_empty() {
        output.warn(format_args!("{name}: there are no call stacks in it; record with -g"));
    }
    let named = look_up(&trace, &stacks, options.files.places());
    write(&trace, &named.names, options.product.file().unwrap_or(&options.trace))?;
    for missing in &named.missing {
        output.warn(format_args!("no names: {missing}"));
    }
    for file in &named.used {
        output.detail(format_args!("names from {}", file.display()));
    }
    let all = stacks.len();
    output.note(format_args!("{name}: {} of {all} frames have names", named.names.len()));
    Ok(0)
}

/// What was found.
pub struct Named {
    pub names: Names,
    pub missing: Vec<String>,
    used: Vec<PathBuf>,
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
    for node in trace.stacks()?.nodes() {
        let frames = symbols.frames(&node);
        if let Some(frame) = frames.first().filter(|frame| frame.module.is_empty()) {
            names.insert_all(node.id, code.frame(&node, frame).as_ref());
        }
    }
    Ok(names)
}

/// Write a copy of the trace with these names, whose name may be the trace's own.
pub fn write(trace: &Trace, names: &Names, to: &Path) -> anyhow::Result<()> {
    let mut texts: Vec<Vec<u8>> = trace.texts().filter(|text| !Names::is_text(text)).collect();
    texts.extend(names.texts());
    let mut target = Target::open(Some(to), false)?;
    trace.copy_with_texts(&mut target, &texts)?;
    target.keep()
}
