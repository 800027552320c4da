// SPDX-License-Identifier: MIT
//! Rounds: all runs in random order, and each run under all mallocs in random order, one right after the other.

use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};

use indexmap::IndexMap;
use quarry_measure::rng::Rng;

use super::launch::{Fault, Launcher, Malloc};
use super::runs::Run;
use super::samples::{Record, Round};
use super::sums::{SYSTEM, is_peer};

/// Who is next.
#[derive(Debug, Clone, Copy)]
pub struct Next<'a> {
    /// The round, from 1,
    pub round: usize,
    /// the number of the run in it, from 1, of so many,
    pub run: (usize, usize),
    /// its name,
    pub name: &'a str,
    /// and the malloc.
    pub malloc: &'a str,
}

/// How much to measure.
#[derive(Debug, Clone, Copy)]
pub struct Amount {
    /// The number of rounds.
    pub rounds: usize,
    /// Nothing is begun after this time.
    pub time: Option<Duration>,
}

/// Hears of what goes on.
pub trait Audience {
    /// Before each run. False stops the session.
    fn next(&mut self, next: Next) -> bool;
    /// After a run under one malloc. False stops the session, and what came of this run is forgotten.
    fn goes_on(&mut self) -> bool;
    /// After a run under all of them.
    fn visited(&mut self, record: &Record);
}

/// Mallocs and samples.
pub struct Session<'a> {
    /// The samples so far.
    pub record: Record,
    mallocs: &'a IndexMap<String, Malloc>,
    launcher: Launcher,
    /// What each run is to print.
    printed: HashMap<String, Option<String>>,
    rng: Rng,
}

impl<'a> Session<'a> {
    /// Go on with these samples.
    pub fn new(record: Record, mallocs: &'a IndexMap<String, Malloc>, launcher: Launcher) -> Self {
        // The program may have become another one since the first.
        let last = |rounds: &Vec<Round>| Some(rounds.last()?.values().next()?.output.clone());
        let printed = record.runs.iter().filter_map(|(run, rounds)| Some((run.clone(), last(rounds)?)));
        Self { printed: printed.collect(), mallocs, launcher, rng: Rng::new(record.seed), record }
    }

    /// Rounds, until there are enough or the time is over. Runs with the fewest visits so far come first. False: it was
    /// stopped. An error is no malloc's: nothing could be run.
    pub fn measure(&mut self, runs: &[Run], amount: Amount, audience: &mut dyn Audience) -> io::Result<bool> {
        let start = Instant::now();
        for round in 1..=amount.rounds {
            let mut order: Vec<&Run> = runs.iter().collect();
            self.rng.shuffle(&mut order);
            order.sort_by_key(|run| self.record.runs.get(&run.name).map_or(0, Vec::len));
            for (at, run) in order.iter().enumerate() {
                if amount.time.is_some_and(|time| start.elapsed() > time) {
                    return Ok(true);
                }
                if !self.visit(run, (round, at + 1, order.len()), audience)? {
                    return Ok(false);
                }
                audience.visited(&self.record);
            }
        }
        Ok(true)
    }

    /// The run under each malloc once. A fault ends that malloc's part in this run. Of a visit that is stopped, or
    /// ends in an error, nothing is kept: its few samples do not say what most mallocs would have printed.
    fn visit(
        &mut self,
        run: &Run,
        (round, at, of): (usize, usize, usize),
        audience: &mut dyn Audience,
    ) -> io::Result<bool> {
        let mut order: Vec<&str> = self.mallocs.keys().map(String::as_str).collect();
        self.rng.shuffle(&mut order);
        let (mut samples, mut faults) = (Round::new(), Vec::new());
        for name in order {
            if self.record.fault(&run.name, name).is_some() {
                continue;
            }
            let sample = loop {
                if !audience.next(Next { round, run: (at, of), name: &run.name, malloc: name }) {
                    return Ok(false);
                }
                let sample = self.launcher.measure(run, &self.mallocs[name]);
                // A signal may have been what ended the run.
                if !audience.goes_on() {
                    return Ok(false);
                }
                if !matches!(sample, Err(Fault::Stopped)) {
                    break sample;
                }
            };
            match sample {
                Ok(sample) => drop(samples.insert(name.to_owned(), sample)),
                Err(Fault::Run(why)) => faults.push((name, why)),
                // A full disk, or a file that has gone, says nothing of the malloc.
                Err(other) => return Err(io::Error::other(format!("{} under {name}: {other}", run.name))),
            }
        }
        faults.into_iter().for_each(|(malloc, why)| self.fault(run, malloc, why));
        self.compare_output(run, &mut samples);
        if !samples.is_empty() {
            self.record.runs.entry(run.name.clone()).or_default().push(samples);
        }
        Ok(true)
    }

    fn fault(&mut self, run: &Run, malloc: &str, why: String) {
        self.record.faults.push((run.name.clone(), malloc.to_owned(), why));
    }

    /// Who printed something else than most, the first time, or than before is out. What none of several prints any
    /// more is no malloc's fault: the program is another one than that of the samples that were added.
    fn compare_output(&mut self, run: &Run, samples: &mut Round) {
        let Some(most) = printed_by_most(samples) else { return };
        let wanted = self.printed.entry(run.name.clone()).or_insert_with(|| most.clone());
        // Builds of our heap may all have the same fault.
        let is_sure = samples.len() > 1 && samples.keys().any(|name| is_peer(name));
        if is_sure && samples.values().all(|sample| sample.output != *wanted) {
            wanted.clone_from(most);
        }
        let wanted = wanted.clone();
        let others = samples.iter().filter(|(_, sample)| sample.output != wanted);
        for name in others.map(|(name, _)| name.clone()).collect::<Vec<String>>() {
            samples.shift_remove(&name);
            let why = format!("{}: printed something else than under others", run.name);
            self.fault(run, &name, why);
        }
    }
}

/// What most of them printed. Of as many on two sides the system's malloc is right: the programs were made on it.
fn printed_by_most(samples: &Round) -> Option<&Option<String>> {
    let mut votes: IndexMap<&Option<String>, usize> = IndexMap::new();
    samples.values().for_each(|sample| *votes.entry(&sample.output).or_default() += 1);
    let most = votes.values().copied().max()?;
    votes.retain(|_, count| *count == most);
    let system = samples.get(SYSTEM).map(|sample| &sample.output).filter(|output| votes.contains_key(output));
    system.or_else(|| votes.into_keys().next())
}

#[cfg(test)]
mod tests {
    use super::super::samples::Sample;
    use super::*;

    #[test]
    fn the_systems_malloc_is_right_in_a_draw() {
        let most = |printed: &[(&str, &str)]| {
            let sample = |output: &str| Sample { output: Some(output.to_owned()), ..Sample::default() };
            let samples: Round =
                printed.iter().map(|(name, output)| (String::from(*name), sample(output))).collect();
            printed_by_most(&samples).cloned().flatten().unwrap_or_default()
        };
        for order in [[("sys", "a"), ("je", "b")], [("je", "b"), ("sys", "a")]] {
            assert_eq!(most(&order), "a");
        }
        assert_eq!(most(&[("sys", "a"), ("je", "b"), ("mi", "b")]), "b");
        assert_eq!(most(&[("sys", "a"), ("je", "b"), ("mi", "b"), ("tc", "c"), ("tbb", "c")]), "b");
        assert_eq!(printed_by_most(&Round::new()), None);
    }
}
