// SPDX-License-Identifier: MIT
//! quarry gen: traces from models, and models from traces.

mod histogram;
mod options;

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use quarry_report::units;
use quarry_synth::convert::output::{Output as Packed, Packing};
use quarry_synth::convert::qtr::QtrSource;
use quarry_synth::convert::{self, Item, Source};
use quarry_synth::ms::{SLOTS, WIDE_SLOTS, Writer};
use quarry_synth::random_ms;
use quarry_synth::synth::engine::{Remarks, TICKS_PER_SECOND};
use quarry_synth::synth::profile::Summary;
use quarry_synth::synth::{Distance, Engine, Fit, Model, Profile};
use quarry_trace::sample::Sampling;
use quarry_trace::{End, Event, Head, TraceWriter, WriteOptions};
use serde_json::json;

pub use options::GenOptions;

use crate::opened::{Opened, Whole, packing_of};
use crate::output::{Output, Place};
use crate::trace_file::{self, Target};
use crate::{failure, inputs};

/// From this number of allocations on, generating takes long enough for a progress bar.
const LONG: u64 = 5_000_000;

/// Generate.
pub fn main(options: &GenOptions, output: &Output) -> anyhow::Result<i32> {
    options.check()?;
    inputs::spare(
        options.model.iter().chain(&options.fit),
        options.product.file().into_iter().chain(options.save_model.as_deref()),
    )?;
    if options.simulation.ms {
        return simulation(options, output);
    }
    let fit = options.fit.as_deref().map(|path| imitate(path, options, output)).transpose()?;
    let (mut fit, damaged) = fit.map_or((None, false), |(fit, damaged)| (Some(fit), damaged));
    let model = match &mut fit {
        Some(fit) => {
            fit.model.free_all |= options.free_all;
            fit.model.clone()
        }
        None => options.model()?,
    };
    if let Some(path) = &options.save_model {
        save(&model, path)?;
    }
    let mut profile = fit.as_ref().map(|_| Profile::default());
    let done = match (options.product.file(), &fit) {
        (None, Some(_)) => generate(&model, options, None, &mut profile, output)?,
        (path, _) => {
            let mut target = Target::open(path, false)?;
            let done = generate(&model, options, Some(&mut target), &mut profile, output);
            match done {
                Err(error) if target.is_stdout() && trace_file::is_broken_pipe(&error) => return Ok(0),
                other => {
                    let done = other.with_context(|| format!("cannot write {}", target.name()))?;
                    target.keep()?;
                    done
                }
            }
        }
    };
    let compared = fit.zip(profile).map(|(fit, mut imitation)| {
        imitation.finish();
        Compared {
            distance: Distance::between(&fit.profile, &imitation),
            real: fit.profile.summary(),
            imitation: imitation.summary(),
            bins: 1 << fit.bits,
        }
    });
    report(&model, &done, compared.as_ref(), options, output)?;
    Ok(i32::from(damaged))
}

/// What was generated.
struct Done {
    events: u64,
    bytes: u64,
    remarks: Remarks,
}

/// How good an imitation is.
struct Compared {
    real: Summary,
    imitation: Summary,
    distance: Distance,
    /// For each doubling of sizes and lifetimes.
    bins: u32,
}

fn generate(
    model: &Model,
    options: &GenOptions,
    target: Option<&mut Target>,
    profile: &mut Option<Profile>,
    output: &Output,
) -> anyhow::Result<Done> {
    let head = Head {
        clock: "synthetic".into(),
        ticks_per_second: TICKS_PER_SECOND,
        program: "synthetic".into(),
        stacks: "none".into(),
        pointer: 8,
        writer: format!("quarry gen {} --seed {}", env!("CARGO_PKG_VERSION"), options.seed),
        ..Head::default()
    };
    let packing = options.product.file().map_or(Ok(Packing::Plain), packing_of)?;
    let mut writer = target
        .map(|target| {
            TraceWriter::create(
                Packed::new(target, packing)?,
                &head,
                WriteOptions { packed: !options.unpacked },
            )
        })
        .transpose()?;
    let bar = progress(model.allocations(), output);
    let mut engine = Engine::new(model, options.seed);
    let mut events = 0_u64;
    while let Some(event) = engine.next() {
        events += 1;
        if let Some(profile) = profile {
            profile.see(&event);
        }
        if let Some(writer) = &mut writer {
            writer.event(&event)?;
        }
        if events.is_multiple_of(1 << 16) {
            bar.set_position(engine.allocations());
        }
    }
    bar.finish_and_clear();
    let mut bytes = 0;
    if let Some(writer) = writer {
        let end = End { reason: "exit".into(), end_ticks: engine.end_time(), events, ..End::default() };
        bytes = writer.finish(&end)?.finish()?.1;
    }
    Ok(Done { events, bytes, remarks: engine.remarks() })
}

/// The model that imitates a trace, and whether a part of that could not be read.
fn imitate(path: &Path, options: &GenOptions, output: &Output) -> anyhow::Result<(Fit, bool)> {
    // It is read twice.
    let opened = Opened::open(path, None, true)?;
    let Whole { trace, name, mut remarks, mut damaged } = opened.into_trace()?;
    let bar = progress(trace.bytes().saturating_mul(2), output);
    let mut sources = [QtrSource::new(&trace), QtrSource::new(&trace)];
    let sampling = Sampling::of(trace.head());
    let mut first = true;
    if sampling.is_sample() {
        remarks.push(String::from(
            "is a sample: each of its blocks is imitated as often as it stands for others",
        ));
    }
    let fit = {
        let mut passes = sources.iter_mut();
        quarry_synth::synth::fit(
            || {
                let source = passes.next().map(|source| source as &mut dyn Source);
                let done = if std::mem::take(&mut first) { 0 } else { bar.length().unwrap_or(0) / 2 };
                Ok::<_, convert::Error>(Events { source, bar: &bar, done, count: 0 })
            },
            options.phases,
            // The times of items are nanoseconds.
            TICKS_PER_SECOND,
            sampling,
        )
    };
    bar.finish_and_clear();
    if let Some(source) = sources.last() {
        remarks.extend(source.remarks());
        damaged |= source.damaged();
    }
    for remark in remarks {
        output.warn(format_args!("{name}: {remark}"));
    }
    let mut fit = fit.map_err(|error| anyhow::anyhow!("{name}: {error}"))?;
    if fit.profile.allocations() == 0 {
        return Err(anyhow::anyhow!("{name}: has no allocations to imitate"));
    }
    if fit.folded {
        output.warn(format_args!("{name}: threads above 65536 are imitated by lower ones"));
    }
    fit.model.about = format!("like {}", path.file_name().unwrap_or(path.as_os_str()).display());
    Ok((fit, damaged))
}

/// The events of a source, in nanoseconds.
struct Events<'a, 's> {
    source: Option<&'a mut (dyn Source + 's)>,
    bar: &'a ProgressBar,
    /// What was done before this pass.
    done: u64,
    count: u64,
}

impl Iterator for Events<'_, '_> {
    type Item = Result<Event, convert::Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let source = self.source.as_mut()?;
        loop {
            match source.next_item()? {
                Ok(Item::Event(event, ns)) => {
                    self.count += 1;
                    if self.count.is_multiple_of(1 << 16) {
                        self.bar.set_position(self.done + source.done());
                    }
                    return Some(Ok(Event { time: ns, ..event }));
                }
                Ok(Item::Stack(..)) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

fn save(model: &Model, path: &Path) -> anyhow::Result<()> {
    let mut target = Target::open(Some(path), true)?;
    let written = target.write_all(model.to_json().as_bytes()).and_then(|()| target.flush());
    written.with_context(|| format!("cannot write {}", target.name()))?;
    target.keep()
}

/// A simulation file.
fn simulation(options: &GenOptions, output: &Output) -> anyhow::Result<i32> {
    let wish = &options.simulation;
    let most = if wish.wide { WIDE_SLOTS } else { SLOTS };
    if wish.min > wish.max {
        return Err(failure::usage(format!(
            "the least size, {}, is above the largest, {}",
            wish.min, wish.max
        )));
    }
    if wish.pointers == 0 || wish.pointers > u64::from(most) {
        let advice = if wish.wide { "" } else { "; say --wide for more" };
        return Err(failure::usage(format!("slots must be from 1 to {most}{advice}")));
    }
    let commands = random_ms::commands(random_ms::Options {
        min: wish.min,
        max: wish.max,
        count: wish.commands,
        slots: wish.pointers as u32,
        seed: options.seed,
    });
    let packing = options.product.file().map_or(Ok(Packing::Plain), packing_of)?;
    let mut target = Target::open(options.product.file(), true)?;
    let bar = progress(wish.commands, output);
    let mut count = 0_u64;
    let write = || -> io::Result<u64> {
        let mut writer = Writer::new(Packed::new(&mut target, packing)?);
        for command in commands {
            writer.command(command)?;
            count += 1;
            if count.is_multiple_of(1 << 16) {
                bar.set_position(count);
            }
        }
        Ok(writer.finish()?.finish()?.1)
    };
    let bytes = match write() {
        Err(error) if target.is_stdout() && error.kind() == io::ErrorKind::BrokenPipe => return Ok(0),
        other => other.with_context(|| format!("cannot write {}", target.name()))?,
    };
    bar.finish_and_clear();
    let (name, place) = (target.name().to_owned(), summary_place(target.is_stdout()));
    target.keep()?;
    if options.json {
        let json = json!({
            "schema": "quarry-gen/1",
            "output": name,
            "seed": options.seed,
            "commands": count,
            "bytes": bytes,
        });
        output.report(&place, &format!("{json:#}\n"))?;
    } else if !output.is_quiet() {
        output.report(
            &place,
            &format!("{} to {name}, {}\n", units::of(count, "command"), units::bytes(bytes as f64)),
        )?;
    }
    Ok(0)
}

/// Where the summary goes: not where the trace goes.
fn summary_place(to_stdout: bool) -> Place<'static> {
    if to_stdout { Place::Stderr } else { Place::Stdout }
}

fn report(
    model: &Model,
    done: &Done,
    compared: Option<&Compared>,
    options: &GenOptions,
    output: &Output,
) -> anyhow::Result<()> {
    let name = match options.product.file() {
        Some(path) if path != Path::new("-") => Some(path.display().to_string()),
        None if compared.is_some() => None,
        _ => Some(String::from("standard output")),
    };
    let place = summary_place(name.as_deref() == Some("standard output"));
    let Remarks { died_early, cut, failed } = done.remarks;
    if options.json {
        let fit = compared.map(|compared| {
            json!({
                "trace": options.fit.as_ref().map(|path| path.display().to_string()),
                "phases": model.phases.len(),
                "cells": cells(model),
                "bins_per_doubling": compared.bins,
                "real": compared.real,
                "imitation": compared.imitation,
                "distance": compared.distance,
            })
        });
        let json = json!({
            "schema": "quarry-gen/1",
            "output": name,
            "seed": options.seed,
            "allocations": model.allocations(),
            "events": done.events,
            "bytes": done.bytes,
            "died_early": died_early,
            "cut": cut,
            "failed": failed,
            "fit": fit,
        });
        return output.report(&place, &format!("{json:#}\n"));
    }
    if output.is_quiet() {
        return Ok(());
    }
    let count = |n: u64| units::count(n as f64);
    let mut text = String::new();
    if let Some(name) = name {
        text +=
            &format!("{} to {name}, {}\n", units::of(done.events, "event"), units::bytes(done.bytes as f64));
    }
    for (n, what) in [
        (died_early, "blocks died early to keep to the bound of live bytes"),
        (cut, "blocks are smaller than drawn to keep to the bound of live bytes"),
        (failed, "requests are larger than any address space and failed"),
    ] {
        if n > 0 {
            text += &format!("{} {what}\n", count(n));
        }
    }
    if let Some(compared) = compared {
        text += &comparison(compared, model);
    }
    output.report(&place, &text)
}

fn cells(model: &Model) -> usize {
    model.phases.iter().filter_map(|phase| phase.counted.as_ref()).map(|counted| counted.cells.len()).sum()
}

fn comparison(compared: &Compared, model: &Model) -> String {
    let Compared { real, imitation, distance, .. } = compared;
    let number = |n: u64| units::count(n as f64);
    let bytes = |n: f64| units::bytes(n);
    let life = |n: Option<u64>| n.map_or(String::from("never freed"), number);
    let mut text = format!("{:<24}{:>16}{:>16}\n", "", "real", "imitation");
    for (name, real, imitation) in [
        ("allocations", number(real.allocations), number(imitation.allocations)),
        ("reallocations", number(real.reallocations), number(imitation.reallocations)),
        ("frees", number(real.frees), number(imitation.frees)),
        ("by another thread", number(real.handed_over), number(imitation.handed_over)),
        ("never freed", number(real.survivors), number(imitation.survivors)),
        ("threads", number(real.threads), number(imitation.threads)),
        ("size, mean", bytes(real.size_mean), bytes(imitation.size_mean)),
        ("size, median", bytes(real.size_median as f64), bytes(imitation.size_median as f64)),
        ("lifetime, mean", number(real.lifetime_mean as u64), number(imitation.lifetime_mean as u64)),
        ("lifetime, median", life(real.lifetime_median), life(imitation.lifetime_median)),
        ("peak of live bytes", bytes(real.peak_live_bytes as f64), bytes(imitation.peak_live_bytes as f64)),
    ] {
        text += &format!("{name:<24}{real:>16}{imitation:>16}\n");
    }
    text += &format!(
        "distance: sizes {:.4}, lifetimes {:.4} (Kolmogorov-Smirnov: 0 alike, 1 apart)\n",
        distance.sizes_ks, distance.lifetimes_ks
    );
    text += &format!(
        "live bytes: mean difference {}, peak {:+.2} %\n",
        units::percent(distance.live_mean),
        distance.live_peak * 100.0
    );
    let of = |count: usize, one: &str| units::of(count as u64, one);
    text += &format!("model: {}, {}\n", of(model.phases.len(), "phase"), of(cells(model), "cell"));
    text
}

/// A bar, where there is a terminal and something to wait for.
fn progress(length: u64, output: &Output) -> ProgressBar {
    if length < LONG || output.is_quiet() || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {percent} %, {eta} left");
    ProgressBar::new(length).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
