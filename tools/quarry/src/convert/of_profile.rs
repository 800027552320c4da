// SPDX-License-Identifier: MIT
//! What can be made of a profile of another tool, which has no events: a table, and call stacks.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use quarry_report::units;
use quarry_synth::convert::output::{Output as Packed, Packing};
use quarry_synth::convert::profile::{Profile, Sum};
use quarry_synth::convert::{self, Format};
use quarry_trace::sample::Means;

use super::collapsed::{By, part};
use super::{ConvertOptions, DAMAGED, Done, Summary};
use crate::failure;
use crate::opened::Opened;
use crate::output::{Output, Place};
use crate::trace_file::{self, Target};

/// Write it; the exit code says whether all could be read.
pub fn write(
    opened: &Opened,
    profile: &Profile,
    path: &Path,
    to: Format,
    options: &ConvertOptions,
    output: &Output,
) -> anyhow::Result<i32> {
    let (name, from) = (&opened.name, opened.format);
    check(profile, from, to, options)?;
    let mut target = Target::open(Some(path), true)?;
    let place = if target.is_stdout() { Place::Stderr } else { Place::Stdout };
    let mut packed = Packed::new(&mut target, Packing::of_name(path)).map_err(convert::Error::Write)?;
    let written = match to {
        Format::Collapsed => collapsed(&mut packed, profile, options.by),
        _ => table(&mut packed, profile),
    };
    let done = written.and_then(|()| packed.finish()).map(|(_, bytes)| bytes).map_err(anyhow::Error::from);
    let bytes = match done {
        Err(error) if target.is_stdout() && trace_file::is_broken_pipe(&error) => return Ok(0),
        other => other.map_err(|error| anyhow::anyhow!("{}: {}", target.name(), failure::words(&error)))?,
    };
    let to_name = target.name().to_owned();
    target.keep()?;
    for remark in &profile.remarks {
        output.warn(format_args!("{name}: {remark}"));
    }
    let done = Done { events: 0, means: Means::default(), bytes, lost: Vec::new() };
    let summary = Summary { input: name, from, output: &to_name, to, done: &done, remarks: &profile.remarks };
    if options.json {
        output.report(&place, &format!("{:#}\n", summary.json()))?;
    } else if !output.is_quiet() {
        let text = format!(
            "{} and {} from {name} ({}) to {to_name} ({})\n",
            units::of(profile.snapshots.len() as u64, "snapshot"),
            units::of(profile.stacks.len() as u64, "call stack"),
            from.name(),
            to.name()
        );
        output.report(&place, &text)?;
    }
    Ok(if profile.damaged { DAMAGED } else { 0 })
}

/// An error where the profile does not have what is asked for.
fn check(profile: &Profile, from: Format, to: Format, options: &ConvertOptions) -> anyhow::Result<()> {
    let (from, holds) = (from.name(), Profile::holds(from));
    if !matches!(to, Format::Csv | Format::Collapsed) {
        let to = to.name();
        return Err(anyhow::anyhow!(
            "{}: line 1: is a profile ({from}): it has {holds}, and no allocation or free, which {to} is made of; csv and \
             collapsed can be made of it",
            options.input.display()
        ));
    }
    if options.rows.is_some() || !options.hide.is_empty() {
        return Err(failure::usage(format!(
            "--rows and --hide are about traces; a profile ({from}) has {holds}, and all rows of it are written"
        )));
    }
    let has = match options.by {
        None | Some(By::Live) => profile.of.is_none() || !profile.of_peak,
        Some(By::Peak) => profile.of_peak,
        Some(By::Bytes | By::Allocations) => profile.allocated().is_some(),
    };
    if options.by.is_some() && !has {
        let what = match (profile.of, profile.of_peak) {
            (Some(_), true) => "what was live at the peak: say --by peak",
            (Some(_), false) => "what was live in its last detailed snapshot: say --by live",
            (None, _) if profile.allocated().is_none() => "what was live when it was written: say --by live",
            (None, _) => {
                "what was live when it was written, and what was allocated: say --by live, bytes or allocations"
            }
        };
        return Err(failure::usage(format!("the stacks of this profile ({from}) say {what}")));
    }
    Ok(())
}

/// The outermost function first.
fn collapsed(to: &mut impl Write, profile: &Profile, by: Option<By>) -> std::io::Result<()> {
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for stack in &profile.stacks {
        let of = match by {
            Some(By::Bytes | By::Allocations) => stack.allocated.unwrap_or_default(),
            _ => stack.live,
        };
        let value = if by == Some(By::Allocations) { of.blocks.unwrap_or(0) } else { of.bytes };
        let names: Vec<String> = stack.frames.iter().rev().map(|frame| part(function(frame))).collect();
        let line = if names.is_empty() { String::from("(no stack recorded)") } else { names.join(";") };
        let sum = lines.entry(line).or_default();
        *sum = sum.saturating_add(value);
    }
    lines.iter().filter(|(_, sum)| **sum > 0).try_for_each(|(line, sum)| writeln!(to, "{line} {sum}"))
}

/// A frame without its place in the source, as the stacks of a trace have it.
fn function(frame: &str) -> &str {
    frame.rsplit_once(" at ").or_else(|| frame.rsplit_once(" in ")).map_or(frame, |(function, _)| function)
}

/// Snapshots, or call stacks where there are none.
fn table(to: &mut impl Write, profile: &Profile) -> std::io::Result<()> {
    if !profile.unit.is_empty() {
        let unit = match profile.unit.as_str() {
            "i" => "instructions",
            "B" => "bytes",
            other => other,
        };
        writeln!(to, "snapshot,time_{unit},heap_bytes,extra_bytes,stack_bytes,detailed")?;
        for (number, snapshot) in profile.snapshots.iter().enumerate() {
            let (time, detailed) = (snapshot.time, u8::from(snapshot.is_detailed));
            let (heap, extra, stacks) = (snapshot.heap, snapshot.extra, snapshot.stacks);
            writeln!(to, "{number},{time},{heap},{extra},{stacks},{detailed}")?;
        }
        return Ok(());
    }
    writeln!(to, "live,live_bytes,allocated,allocated_bytes,stack")?;
    let pair = |sum: Sum| format!("{},{}", sum.blocks.map_or_else(String::new, |n| n.to_string()), sum.bytes);
    for stack in &profile.stacks {
        let allocated = stack.allocated.map_or_else(|| String::from(","), pair);
        let names = stack.frames.join(" < ").replace('"', "\"\"");
        writeln!(to, "{},{allocated},\"{names}\"", pair(stack.live))?;
    }
    Ok(())
}
