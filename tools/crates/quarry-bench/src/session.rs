// SPDX-License-Identifier: MIT
//! Runs a plan, round by round.
//!
//! Each run is a process of its own. In a round the groups come in random order, and within a group its jobs do, one
//! right after the other: what is compared ran at the same time, and what disturbs the machine for minutes disturbs
//! single rounds. Round 0, the warm-up, counts for nothing but failures and results; in it the first job of each group
//! comes first, since its time says how long to wait for the others. Who fails has no further runs; the others go on.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::time::Duration;

use quarry_measure::locate;
use quarry_measure::rng::Rng;
use quarry_measure::scratch::Scratch;
use quarry_measure::spawn::{self, End, Measured, Usage};

use crate::catalog::{Kind, Size};
use crate::plan::{Group, Job, Plan};
use crate::results::{Cell, Role, Run, STOPPED, Status};
use crate::sample::{self, Phase};

/// So much of what a program prints is read.
const OUTPUT_LIMIT: usize = 16 << 20;

/// The status by which a program says that there is no such combination.
const NOT_APPLICABLE: i32 = 77;

/// Others may take so many times as long as the first of their group, but this long in any case.
const PATIENCE: (f64, Duration) = (20.0, Duration::from_secs(20));

/// A run that is longer has been looked at several times.
const LOOKED_S: f64 = 1.0;

/// Expected of a run of which nothing is known.
const UNKNOWN_S: f64 = 0.3;

/// What a run was.
#[derive(Debug)]
struct Ran {
    round: usize,
    usage: Usage,
    phases: Vec<Phase>,
}

impl Ran {
    fn phase(&self, name: &str) -> Option<&Phase> {
        self.phases.iter().find(|phase| phase.name == name)
    }
}

/// A job, and what came of it so far.
#[derive(Debug, Default)]
struct State {
    runs: Vec<Ran>,
    /// Elapsed in the warm-up, or the first round: what the next run will take.
    wall_s: Option<f64>,
    failure: Option<(Status, String)>,
    seen: Option<bool>,
}

/// Who is next, and how long it will take.
#[derive(Debug, Clone, Copy)]
pub struct Next<'a> {
    /// The scenario.
    pub scenario: &'a str,
    /// The contender.
    pub contender: &'a str,
    /// Expected seconds.
    pub seconds: f64,
    /// It has been run.
    pub done: bool,
}

/// Told of each run before it and after it; false stops the session.
pub type Before<'a> = &'a mut dyn FnMut(Next) -> bool;

/// A plan with everything that was run of it.
pub struct Session {
    /// The plan.
    pub plan: Plan,
    states: Vec<Vec<State>>,
    report: Scratch,
    rng: Rng,
    processors: Vec<usize>,
    timeout: Option<Duration>,
    /// Processor seconds of all runs, also of those that do not count,
    pub cpu_s: f64,
    /// and elapsed ones.
    pub wall_s: f64,
}

impl Session {
    /// Prepare. A run that takes longer than `timeout` is killed; without, there is a bound that grows with the scenario.
    pub fn new(plan: Plan, seed: u64, processors: Vec<usize>, timeout: Option<Duration>) -> io::Result<Self> {
        let states = plan.groups.iter().map(|group| group.jobs.iter().map(|_| State::default()).collect());
        Ok(Self {
            states: states.collect(),
            report: Scratch::new()?,
            rng: Rng::new(seed),
            plan,
            processors,
            timeout,
            cpu_s: 0.0,
            wall_s: 0.0,
        })
    }

    /// How long all rounds and the warm-up will take, in seconds: every job is run with quick sizes. `None` when it was
    /// stopped.
    pub fn probe(&mut self, rounds: usize, before: Before) -> io::Result<Option<f64>> {
        let mut total = 0.0;
        for index in 0..self.plan.groups.len() {
            for job in 0..self.plan.groups[index].jobs.len() {
                let expected = self.next(index, job, true).seconds;
                if !before(self.next(index, job, false)) {
                    return Ok(None);
                }
                total += self.probe_one(index, job)?;
                if !before(Next { seconds: expected, ..self.next(index, job, true) }) {
                    return Ok(None);
                }
            }
        }
        Ok(Some(total * (rounds + 1) as f64))
    }

    /// The expected seconds of a run, 0 for who will have none.
    fn probe_one(&mut self, index: usize, job: usize) -> io::Result<f64> {
        let group = &self.plan.groups[index];
        if !self.plan.entrants[group.jobs[job].entrant].usable {
            return Ok(0.0);
        }
        let (measured, _) = self.start(group, &group.jobs[job], &group.jobs[job].probe, None)?;
        let expected = match measured.end {
            End::Exit(0) => group.forecast.seconds(measured.usage.wall_s),
            _ => 0.0, // the warm-up will say what is wrong
        };
        self.spent(&measured);
        self.states[index][job].wall_s = Some(expected);
        Ok(expected)
    }

    fn spent(&mut self, measured: &Measured) {
        self.cpu_s += measured.usage.user_s + measured.usage.system_s;
        self.wall_s += measured.usage.wall_s;
    }

    fn next(&self, group: usize, job: usize, done: bool) -> Next<'_> {
        let entrant = self.plan.groups[group].jobs[job].entrant;
        Next {
            scenario: &self.plan.abouts[self.plan.groups[group].scenario].name,
            contender: &self.plan.entrants[entrant].about.name,
            seconds: self.states[group][job].wall_s.unwrap_or(UNKNOWN_S),
            done,
        }
    }

    /// Seconds that the programs of this round will take, as far as is known.
    pub fn round_seconds(&self, round: usize, sparing: bool) -> f64 {
        let seconds = |state: &State| match state.failure {
            Some(_) => 0.0,
            None => state.wall_s.unwrap_or(UNKNOWN_S),
        };
        self.taking_part(round, sparing).flat_map(|index| &self.states[index]).map(seconds).sum()
    }

    /// The groups that have a run in this round: `sparing`, not those that have had enough.
    fn taking_part(&self, round: usize, sparing: bool) -> impl Iterator<Item = usize> {
        let groups = self.plan.groups.iter().enumerate();
        groups
            .filter(move |(_, group)| !sparing || group.rounds.is_none_or(|most| round <= most))
            .map(|(i, _)| i)
    }

    /// One round. False when it was stopped. What came of a round that was, or that ended in an error, is forgotten.
    pub fn round(&mut self, round: usize, sparing: bool, before: Before) -> io::Result<bool> {
        let failed: Vec<bool> = self.states.iter().flatten().map(|state| state.failure.is_some()).collect();
        let complete = self.run_each(round, sparing, before);
        if !matches!(complete, Ok(true)) {
            for (state, failed) in self.states.iter_mut().flatten().zip(failed) {
                state.runs.retain(|run| run.round != round);
                state.failure.take_if(|_| !failed);
            }
        }
        complete
    }

    fn run_each(&mut self, round: usize, sparing: bool, before: Before) -> io::Result<bool> {
        let mut groups: Vec<usize> = self.taking_part(round, sparing).collect();
        if round > 0 {
            self.rng.shuffle(&mut groups);
        }
        for index in groups {
            let mut jobs: Vec<usize> = (0..self.plan.groups[index].jobs.len()).collect();
            if round > 0 {
                self.rng.shuffle(&mut jobs);
            }
            for job in jobs {
                if self.states[index][job].failure.is_some() {
                    continue;
                }
                let mut done = false;
                while !done {
                    if !before(self.next(index, job, false)) {
                        return Ok(false);
                    }
                    let expected = self.next(index, job, true).seconds;
                    done = self.once(round, index, job)?;
                    // A signal may have been what ended the run.
                    if !before(Next { seconds: expected, ..self.next(index, job, true) }) {
                        return Ok(false);
                    }
                }
            }
            self.compare(index);
        }
        Ok(true)
    }

    /// False: it is to be done again.
    fn once(&mut self, round: usize, index: usize, job: usize) -> io::Result<bool> {
        let group = &self.plan.groups[index];
        let entrant = &self.plan.entrants[group.jobs[job].entrant];
        if !entrant.usable {
            let why = entrant.about.notes.first().cloned().unwrap_or_default();
            self.states[index][job].failure = Some((Status::NotRun, why));
            return Ok(true);
        }
        // Our own programs were asked beforehand; another one may start what does not have the library.
        let unknown = group.start.kind == Kind::Output && self.states[index][job].seen.is_none();
        let library = entrant.library.as_deref().filter(|_| unknown);
        let timeout = self.patience(index, job);
        let options = spawn::Options { timeout: Some(timeout), echo: false, library };
        let (measured, output) = self.start(group, &group.jobs[job], &group.jobs[job].args, Some(options))?;
        if measured.paused {
            return Ok(false);
        }
        let outcome = self.read(group.start.kind, &measured, &output, timeout);
        self.spent(&measured);
        let state = &mut self.states[index][job];
        state.wall_s = Some(measured.usage.wall_s);
        // A look at a program that has just begun, on a busy machine, may come before its dynamic linker is done.
        state.seen =
            state.seen.or(measured.library_seen.filter(|seen| *seen || measured.usage.wall_s > LOOKED_S));
        match outcome {
            Ok(_) if state.seen == Some(false) => {
                let why = String::from("the running program does not have the library in its memory");
                state.failure = Some((Status::NotRun, why));
            }
            Ok(phases) => state.runs.push(Ran { round, usage: measured.usage, phases }),
            Err(failure) => state.failure = Some(failure),
        }
        Ok(true)
    }

    fn start(
        &self,
        group: &Group,
        job: &Job,
        args: &[String],
        options: Option<spawn::Options>,
    ) -> io::Result<(Measured, Vec<u8>)> {
        let (entrant, start) = (&self.plan.entrants[job.entrant], &group.start);
        for file in [&start.program].into_iter().chain(&entrant.library) {
            locate::still_there(file)?;
        }
        let mut command = group.command(job, entrant, args, self.report.path());
        if let Some(count) = group.processors {
            let first = self.processors.len().saturating_sub(count.max(1));
            spawn::pin(&mut command, &self.processors[first..]);
        }
        // What an earlier run has left must not be taken for this one's.
        fs::write(self.report.path(), "")?;
        let most = Duration::from_secs(600);
        let options = options
            .unwrap_or(spawn::Options { timeout: Some(self.timeout.unwrap_or(most)), ..Default::default() });
        let name = group.start.program.display();
        spawn::measure_keeping(&mut command, &options, OUTPUT_LIMIT)
            .map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))
    }

    fn read(
        &self,
        kind: Kind,
        measured: &Measured,
        output: &[u8],
        timeout: Duration,
    ) -> Result<Vec<Phase>, (Status, String)> {
        let said = measured.stderr.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        let with = |what: String| if said.is_empty() { what } else { format!("{what}: {said}") };
        match measured.end {
            End::Exit(0) => {}
            End::Exit(NOT_APPLICABLE) if kind == Kind::Json => {
                return Err((Status::NotApplicable, said.to_owned()));
            }
            // A script that starts what is not installed.
            End::Exit(126 | 127) if kind == Kind::Output => {
                return Err((Status::NotApplicable, with(String::from("cannot be started"))));
            }
            End::Timeout => {
                let why = format!("killed after {:.0} s", timeout.as_secs_f64());
                return Err((Status::TimedOut, why));
            }
            end => return Err((Status::Failed, with(end.to_string()))),
        }
        let phases = match kind {
            Kind::Json => sample::parse(&String::from_utf8_lossy(output)),
            Kind::Output => Ok(sample::whole(measured)),
            Kind::Replay => match fs::read_to_string(self.report.path()) {
                Ok(text) => sample::replayed(&text),
                Err(error) => Err(error.to_string()),
            },
        };
        phases.map_err(|why| (Status::Failed, why))
    }

    /// How long this job may take.
    fn patience(&self, index: usize, job: usize) -> Duration {
        let most = match self.plan.size {
            Size::Full => Duration::from_secs(3 * 3600),
            Size::Quick | Size::Smoke => Duration::from_secs(120),
        };
        let fitting = |seconds: f64| Duration::from_secs_f64(seconds * PATIENCE.0).max(PATIENCE.1);
        let base = self.states[index][0].runs.first().map(|run| run.usage.wall_s).filter(|_| job > 0);
        self.timeout.unwrap_or_else(|| base.map_or(most, |seconds| fitting(seconds).min(most)))
    }

    /// Whose result is not that of most? A tie is the first one's.
    fn compare(&mut self, index: usize) {
        let group = &self.plan.groups[index];
        let works = |job: usize| self.plan.entrants[group.jobs[job].entrant].about.role != Role::Nothing;
        // Votes by phase and result, with who came first.
        let mut votes: BTreeMap<(&str, &str), (usize, usize)> = BTreeMap::new();
        for (job, state) in self.states[index].iter().enumerate().filter(|(job, _)| works(*job)) {
            for phase in state.runs.first().into_iter().flat_map(|run| &run.phases) {
                if let Some(check) = &phase.check {
                    votes.entry((&phase.name, check)).or_insert((0, job)).0 += 1;
                }
            }
        }
        let mut expected: BTreeMap<String, (String, usize)> = BTreeMap::new();
        let mut counted: Vec<_> = votes.into_iter().collect();
        counted.sort_by_key(|(_, (count, first))| (std::cmp::Reverse(*count), *first));
        for ((phase, check), (_, first)) in counted {
            expected.entry(phase.to_owned()).or_insert((check.to_owned(), first));
        }
        let names: Vec<String> =
            group.jobs.iter().map(|job| self.plan.entrants[job.entrant].about.name.clone()).collect();
        let worker: BTreeSet<usize> = (0..group.jobs.len()).filter(|&job| works(job)).collect();
        for (_, state) in self.states[index].iter_mut().enumerate().filter(|(job, _)| worker.contains(job)) {
            let wrong = state.runs.iter().flat_map(|run| &run.phases).find_map(|phase| {
                let (check, first) = expected.get(&phase.name)?;
                let own = phase.check.as_ref().filter(|own| *own != check)?;
                let of = if phase.name.is_empty() { String::new() } else { format!(" of {}", phase.name) };
                Some(format!("the result{of} is {own}, under {} it is {check}", names[*first]))
            });
            if let Some(why) = wrong.filter(|_| state.failure.is_none()) {
                state.failure = Some((Status::Wrong, why));
            }
        }
    }

    /// What came of it, cell by cell.
    pub fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for (group, states) in self.plan.groups.iter().zip(&self.states) {
            for (job, state) in group.jobs.iter().zip(states) {
                self.cells_of(group, job, state, &mut cells);
            }
        }
        cells
    }

    fn cells_of(&self, group: &Group, job: &Job, state: &State, cells: &mut Vec<Cell>) {
        let counting = || state.runs.iter().filter(|run| run.round > 0);
        let (status, reason) = match &state.failure {
            Some((status, why)) => (*status, Some(why.clone())),
            None if counting().next().is_none() => (Status::NotRun, Some(String::from(STOPPED))),
            None => (Status::Ok, None),
        };
        let blank = Cell {
            scenario: self.plan.abouts[group.scenario].name.clone(),
            point: group.point.clone(),
            phase: String::new(),
            contender: self.plan.entrants[job.entrant].about.name.clone(),
            status,
            reason,
            payload_bytes: None,
            check: None,
            runs: Vec::new(),
            summary: None,
            series: None,
            counters_note: None,
        };
        let Some(last) = counting().next_back() else {
            cells.push(blank);
            return;
        };
        for phase in &last.phases {
            let pairs: Vec<(&Ran, &Phase)> =
                counting().filter_map(|run| Some((run, run.phase(&phase.name)?))).collect();
            cells.push(Cell {
                phase: phase.name.clone(),
                payload_bytes: phase.payload_bytes,
                check: phase.check.clone(),
                counters_note: phase.counters_note.clone(),
                series: typical(&pairs).and_then(|phase| phase.series.clone()),
                runs: pairs.iter().map(|(run, phase)| condense(run, phase)).collect(),
                ..blank.clone()
            });
        }
    }
}

/// The phase of the run of the median time, the lower one of two.
fn typical<'a>(pairs: &[(&'a Ran, &'a Phase)]) -> Option<&'a Phase> {
    let mut sorted: Vec<&Phase> = pairs.iter().map(|(_, phase)| *phase).collect();
    sorted.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    sorted.get(sorted.len().saturating_sub(1) / 2).copied()
}

fn condense(ran: &Ran, phase: &Phase) -> Run {
    let usage = &ran.usage;
    // What the whole process used is not what one of several phases did.
    let of_all = |value: f64| Some(value).filter(|_| ran.phases.len() == 1);
    Run {
        round: ran.round,
        seconds: phase.seconds,
        operations: phase.operations,
        cpu_seconds: phase.cpu_seconds.or_else(|| of_all(usage.user_s + usage.system_s)),
        user_seconds: phase.user_seconds.or_else(|| of_all(usage.user_s)),
        system_seconds: phase.system_seconds.or_else(|| of_all(usage.system_s)),
        peak_rss_kib: phase.peak_rss_kib.unwrap_or(usage.peak_rss_bytes as f64 / 1024.0),
        faults: phase
            .counters
            .get("page_faults")
            .copied()
            .or_else(|| of_all((usage.minor_faults + usage.major_faults) as f64)),
        values: phase.values.clone(),
        counters: phase.counters.clone(),
    }
}
