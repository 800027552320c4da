// SPDX-License-Identifier: MIT
//! What recording costs: the command without and with it, in turns.

use std::ffi::OsString;
use std::process::Stdio;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use quarry_measure::rng::Rng;
use quarry_measure::signals::{self, Forwarding};
use quarry_measure::spawn::{self, End, Measured};
use quarry_measure::stats;
use quarry_report::record::Slowdown;

use super::Plan;
use super::name::Name;
use crate::failure;
use crate::output::Output;

/// Run `line` in `rounds` rounds, each once without and once with the recorder, in random order. Their traces go to where
/// the real one went, and are removed.
pub fn measure(
    rounds: u32,
    line: &[OsString],
    plan: &Plan,
    name: &Name,
    follow: bool,
    expected: End,
    output: &Output,
) -> anyhow::Result<Slowdown> {
    let bar = bar(rounds, output)?;
    let signals = Forwarding::stopping();
    // A fixed seed: the order is to be mixed, not secret.
    let mut rng = Rng::new(1);
    let (mut wall_s, mut cpu_s) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let mut ways = [false, true];
        rng.shuffle(&mut ways);
        let mut times = [(0.0, 0.0); 2];
        for recorded in ways {
            let measured = loop {
                let measured = once(recorded, line, plan, name, follow)?;
                if let Some(signal) = signals.seen() {
                    anyhow::bail!("{} stopped it in round {}", signals::name(signal), round + 1);
                }
                if !measured.paused {
                    break measured;
                }
            };
            if measured.end != expected {
                let how = if recorded { "with" } else { "without" };
                anyhow::bail!(
                    "the command ended with {} before, and {how} the recorder with {}",
                    expected,
                    measured.end
                );
            }
            times[usize::from(recorded)] =
                (measured.usage.wall_s, measured.usage.user_s + measured.usage.system_s);
            bar.inc(1);
        }
        wall_s.push((times[0].0, times[1].0));
        cpu_s.push((times[0].1, times[1].1));
    }
    bar.finish_and_clear();
    let ratio = |pairs: &[(f64, f64)]| {
        let swapped: Vec<(f64, f64)> = pairs.iter().map(|&(plain, recorded)| (recorded, plain)).collect();
        stats::ratio(&swapped, 1)
    };
    Ok(Slowdown { rounds: wall_s.len(), wall: ratio(&wall_s), cpu: ratio(&cpu_s), wall_s, cpu_s })
}

fn once(
    recorded: bool,
    line: &[OsString],
    plan: &Plan,
    name: &Name,
    follow: bool,
) -> anyhow::Result<Measured> {
    let scratch = tempfile::Builder::new().prefix(".quarry-").tempdir_in(name.directory());
    let scratch = scratch.context("no room for another trace")?;
    let mut command = match recorded {
        false => plan.plain(line),
        true => {
            let name = Name::new(Some(&scratch.path().join("%p")), follow)?;
            plan.recorded(line, &plan.variable(&name))
        }
    };
    command.stdin(Stdio::null());
    spawn::measure(&mut command, &spawn::Options::default())
        .map_err(|error| failure::not_started(&line[0], &error))
}

fn bar(rounds: u32, output: &Output) -> anyhow::Result<ProgressBar> {
    let target = if output.is_quiet() { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let bar = ProgressBar::with_draw_target(Some(2 * u64::from(rounds)), target);
    bar.set_style(ProgressStyle::with_template("measuring {wide_bar} {pos}/{len} ({eta} left)")?);
    Ok(bar)
}
