// SPDX-License-Identifier: MIT
//! A plan, played under one allocator after the other, round by round.
//!
//! Each run is a process of its own. In each round every allocator has a run that takes the totals, with
//! nothing timed but the whole, and one that times each call; the order is drawn anew. Round 0 is a warm-up, which
//! compares contents if that is asked for. Who fails in it, or later, has no further runs; the others go on.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use quarry_measure::locate;
use quarry_measure::preload::Conf;
use quarry_measure::rng::Rng;
use quarry_measure::scratch::Scratch;
use quarry_measure::spawn::{self, End};
use serde::Serialize;
use tempfile::TempDir;

use crate::result::Report;

/// What is written into blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Touch {
    /// A word in each cache line.
    All,
    /// The same, of large blocks only as far as the program wrote.
    Recorded,
    /// The first byte in each page.
    First,
    /// Nothing.
    None,
}

impl Touch {
    /// As the replayer wants to hear it.
    pub fn name(self) -> &'static str {
        match self {
            Touch::All => "all",
            Touch::Recorded => "recorded",
            Touch::First => "first",
            Touch::None => "none",
        }
    }
}

/// How to play.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Settings {
    /// Performances at once.
    pub instances: u32,
    /// Repeats of each.
    pub repeats: u32,
    /// What is written.
    pub touch: Touch,
    /// Not before the recorded times.
    pub real_time: bool,
    /// Compare contents in the warm-up.
    pub verify: bool,
    /// Seconds to idle at the end.
    pub idle_s: f64,
    /// Time each call in runs of their own.
    pub latency: bool,
    /// Note live bytes at every so many operations.
    pub curve: Option<u64>,
    /// Allocate before libraries are ready, as the program did.
    pub early: bool,
    /// Have no huge pages, as the program had none.
    pub no_huge_pages: bool,
}

/// A run takes one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pass {
    /// Nothing that counts.
    WarmUp,
    /// Time, memory, faults.
    Totals,
    /// The time of each call.
    Latency,
    /// Memory where the recorder looked at the program.
    Memory,
    /// What the recorder costs: the malloc that was recorded, under the recorder.
    Recorder,
}

/// What it takes to predict what the recorded program would do.
#[derive(Debug)]
pub struct Prediction {
    /// The allocator that the program was recorded on.
    pub base: usize,
    /// What it takes to record the base again, to see what the recorder costs.
    pub recorder: Option<Recorder>,
    /// Look at memory at the recorded times, which go on so long: what allocators do as time goes by is part of it.
    pub real_time: Option<Duration>,
}

/// The recorder, and where its traces go.
#[derive(Debug)]
pub struct Recorder {
    /// LD_PRELOAD with the recorder before the base.
    pub preload: OsString,
    /// A folder of its own.
    pub folder: TempDir,
}

impl Recorder {
    fn trace(&self) -> PathBuf {
        self.folder.path().join("replay.qtr")
    }

    fn record(&self, command: &mut Command) {
        let mut variable = OsString::from("file:");
        variable.push(self.trace().to_string_lossy().replace('%', "%%").replace(',', "%c"));
        variable.push(",stacks:none,follow:off");
        command.env("QUARRY_RECORD", variable).env("LD_PRELOAD", &self.preload).arg("--no-samples");
    }
}

/// An allocator with what it takes to run under it.
#[derive(Debug, Clone)]
pub struct Contestant {
    /// What people call it.
    pub name: String,
    /// The library, `None` for the system's malloc.
    pub library: Option<PathBuf>,
    /// LD_PRELOAD.
    pub preload: Option<OsString>,
    /// QUARRY_CONF.
    pub conf: Conf,
}

/// One run.
#[derive(Debug, Clone)]
pub struct Run {
    /// 0: the warm-up.
    pub round: usize,
    /// What it took.
    pub pass: Pass,
    /// Index of the allocator.
    pub contestant: usize,
    /// How it ended.
    pub end: End,
    /// What it measured; none if it did not come to that.
    pub report: Option<Report>,
    /// The end of its standard error, or what is wrong with its report.
    pub said: String,
}

impl Run {
    /// Did it play the plan, and find nothing wrong?
    pub fn succeeded(&self) -> bool {
        self.end == End::Exit(0) && self.report.is_some()
    }
}

/// What the replayer ends with when contents were wrong.
pub const WRONG: i32 = 5;

/// Everything that is needed to run, and all runs so far.
pub struct Session {
    replayer: PathBuf,
    plan: PathBuf,
    report: Scratch,
    /// How to play.
    pub settings: Settings,
    /// Who plays; the first is the base.
    pub contestants: Vec<Contestant>,
    /// A run that takes longer is killed.
    pub timeout: Option<Duration>,
    /// What is to be predicted, if anything.
    pub prediction: Option<Prediction>,
    /// All runs, in their order.
    pub runs: Vec<Run>,
    /// Which allocators were seen in the process; `None`: it was too short to look.
    pub seen: Vec<Option<bool>>,
    /// The recorder has left no trace of a run that it was to record, and so has cost nothing.
    pub unrecorded: bool,
    rng: Rng,
}

/// Without a timeout of the user's, a run may take so many times as long as the first of all, but never less than this.
const PATIENCE: (u32, Duration) = (50, Duration::from_secs(60));

impl Session {
    /// Prepare for runs.
    pub fn new(
        replayer: PathBuf,
        plan: PathBuf,
        settings: Settings,
        contestants: Vec<Contestant>,
        seed: u64,
    ) -> io::Result<Self> {
        Ok(Self {
            replayer,
            plan,
            report: Scratch::new()?,
            settings,
            seen: vec![None; contestants.len()],
            unrecorded: false,
            contestants,
            timeout: None,
            prediction: None,
            runs: Vec::new(),
            rng: Rng::new(seed),
        })
    }

    /// The replayer with what all runs have in common.
    pub fn command(&self, contestant: &Contestant) -> Command {
        let mut command = Command::new(&self.replayer);
        let settings = &self.settings;
        command.arg("--instances").arg(settings.instances.to_string());
        command.arg("--repeats").arg(settings.repeats.to_string());
        command.arg("--touch").arg(settings.touch.name());
        if settings.real_time {
            command.arg("--real");
        }
        if settings.early {
            command.arg("--early");
        }
        if settings.no_huge_pages {
            command.arg("--no-huge-pages");
        }
        if let Some(preload) = &contestant.preload {
            command.env("LD_PRELOAD", preload);
        }
        if !contestant.conf.is_empty() {
            command.env("QUARRY_CONF", contestant.conf.to_string());
        }
        command.stdin(Stdio::null());
        command
    }

    /// Is it of use to run this one any more?
    pub fn is_in(&self, contestant: usize) -> bool {
        !self.runs.iter().any(|run| run.contestant == contestant && !run.succeeded())
    }

    /// Runs that the next round has.
    pub fn round_length(&self, round: usize) -> usize {
        self.passes(round)
            .iter()
            .map(|&pass| (0..self.contestants.len()).filter(|&who| self.takes_part(who, pass)).count())
            .sum()
    }

    /// Without a warm-up, the first round looks at memory. What compares contents writes all, and shows no memory.
    fn passes(&self, round: usize) -> Vec<Pass> {
        let looks = self.prediction.is_some() && !self.runs.iter().any(|run| run.pass == Pass::Memory);
        let mut passes = Vec::new();
        if round == 0 && (self.settings.verify || self.prediction.is_none()) {
            passes.push(Pass::WarmUp);
        }
        if looks {
            passes.push(Pass::Memory);
        }
        if round > 0 {
            passes.push(Pass::Totals);
            passes.extend(self.settings.latency.then_some(Pass::Latency));
            passes.extend(self.recorder().map(|_| Pass::Recorder));
        }
        passes
    }

    fn takes_part(&self, contestant: usize, pass: Pass) -> bool {
        let is_base = self.prediction.as_ref().is_some_and(|prediction| prediction.base == contestant);
        self.is_in(contestant) && (pass != Pass::Recorder || is_base)
    }

    /// One round. `before` is told who is next, and says false to stop: then the answer is false. Of a round that was
    /// stopped, or has ended in an error, the runs are forgotten.
    pub fn round(&mut self, round: usize, before: &mut dyn FnMut(&str, Pass) -> bool) -> io::Result<bool> {
        let kept = self.runs.len();
        let complete = self.run_each(round, before);
        if !matches!(complete, Ok(true)) {
            self.runs.truncate(kept);
        }
        complete
    }

    fn run_each(&mut self, round: usize, before: &mut dyn FnMut(&str, Pass) -> bool) -> io::Result<bool> {
        let mut order: Vec<usize> = (0..self.contestants.len()).collect();
        // The base comes first in the warm-up: its time tells how long to wait for the others.
        if round > 0 {
            self.rng.shuffle(&mut order);
        }
        for pass in self.passes(round) {
            for &contestant in &order {
                if !self.takes_part(contestant, pass) {
                    continue;
                }
                let run = loop {
                    if !before(&self.contestants[contestant].name, pass) {
                        return Ok(false);
                    }
                    let run = self.once(round, contestant, pass)?;
                    // A signal may have been what ended the run.
                    if !before("", pass) {
                        return Ok(false);
                    }
                    if let Some(run) = run {
                        break run;
                    }
                };
                self.runs.push(run);
            }
        }
        Ok(true)
    }

    /// None: it is to be done again.
    fn once(&mut self, round: usize, contestant: usize, pass: Pass) -> io::Result<Option<Run>> {
        let who = &self.contestants[contestant];
        for file in [&self.replayer].into_iter().chain(&who.library) {
            locate::still_there(file)?;
        }
        let mut command = self.command(who);
        match pass {
            Pass::Latency => drop(command.args(["--timed", "--no-samples"])),
            Pass::WarmUp if self.settings.verify => drop(command.arg("--verify")),
            Pass::Memory => {
                command.args(["--looks", "--no-samples"]);
                if self.recorded_time().is_some() {
                    command.arg("--real");
                }
            }
            Pass::Recorder => self.recorder().into_iter().for_each(|recorder| recorder.record(&mut command)),
            _ => {}
        }
        if pass == Pass::Totals {
            command.arg("--idle").arg(self.settings.idle_s.to_string());
        }
        // Calls are timed or live bytes noted, not both.
        if let Some(step) = self.settings.curve.filter(|_| matches!(pass, Pass::WarmUp | Pass::Totals)) {
            command.arg("--curve").arg(step.to_string());
        }
        // What an earlier run has left must not be taken for this one's.
        fs::write(self.report.path(), "")?;
        command.arg("--report").arg(self.report.path()).arg(&self.plan);
        let library = who.library.clone().filter(|_| self.seen[contestant].is_none());
        let timeout = self.patience(pass);
        let options = spawn::Options { timeout, echo: false, library: library.as_deref() };
        let measured = spawn::measure(&mut command, &options)?;
        if measured.paused {
            return Ok(None);
        }
        self.seen[contestant] = measured.library_seen.or(self.seen[contestant]);
        if let Some(trace) = self.recorder().filter(|_| pass == Pass::Recorder).map(Recorder::trace) {
            // The next run must find none.
            self.unrecorded |= fs::remove_file(trace).is_err() && measured.end == End::Exit(0);
        }
        let mut said = measured.stderr;
        let report = match measured.end {
            End::Exit(0 | WRONG) => match Report::parse(&fs::read_to_string(self.report.path())?) {
                Ok(report) => Some(report),
                Err(error) => {
                    said = format!("the replayer's report cannot be read: {error}");
                    None
                }
            },
            _ => None,
        };
        Ok(Some(Run { round, pass, contestant, end: measured.end, report, said }))
    }

    fn recorder(&self) -> Option<&Recorder> {
        self.prediction.as_ref()?.recorder.as_ref()
    }

    fn recorded_time(&self) -> Option<Duration> {
        self.prediction.as_ref()?.real_time
    }

    fn patience(&self, pass: Pass) -> Option<Duration> {
        let base = || self.runs.iter().find(|run| run.contestant == 0)?.report.as_ref();
        // However fast the first run was.
        let waits = self.recorded_time().filter(|_| pass == Pass::Memory).unwrap_or_default()
            + Duration::from_secs_f64(2.0 * self.settings.idle_s);
        let fitting = |report: &Report| {
            PATIENCE.1.max(Duration::from_nanos(report.wall_ns).saturating_mul(PATIENCE.0)) + waits
        };
        self.timeout.or_else(|| base().map(fitting))
    }

    /// Runs that count, of this allocator and pass.
    pub fn good(&self, contestant: usize, pass: Pass) -> impl Iterator<Item = (usize, &Report)> {
        self.runs
            .iter()
            .filter(move |run| run.contestant == contestant && run.pass == pass && run.succeeded())
            .filter_map(|run| Some((run.round, run.report.as_ref()?)))
    }

    /// The program that plays.
    pub fn replayer(&self) -> &Path {
        &self.replayer
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The first run compared contents as fast as possible, in a millisecond. Memory is looked at for a minute.
    fn session() -> Session {
        let settings = Settings {
            instances: 1,
            repeats: 1,
            touch: Touch::Recorded,
            real_time: false,
            verify: true,
            idle_s: 1.0,
            latency: false,
            curve: None,
            early: false,
            no_huge_pages: false,
        };
        let system =
            Contestant { name: String::from("system"), library: None, preload: None, conf: Conf::default() };
        let mut session = Session::new("replayer".into(), "plan".into(), settings, vec![system], 1).unwrap();
        let report = json!({
            "format": "quarry-replayer/1", "threads": 1, "alive": 1, "slots": 1, "strict": false, "played": 1,
            "wall_ns": 1_000_000, "busy_ns": 1, "waited_ns": 0, "late_ns": 0, "user_ns": 1, "system_ns": 1,
            "minor_faults": 1, "major_faults": 0, "voluntary_switches": 0, "involuntary_switches": 0, "repeats_ns": [1],
            "timer": { "clock": "tsc", "ns_per_tick": 0.5, "cost_ns": 20.0 }, "operations": {},
            "left": { "blocks": 0, "bytes": 0, "free_ns": 0 },
            "rss": { "own": 1, "start": 1, "peak": 2, "peak_from": "kernel", "end": 2, "end_idle": null,
                     "freed": 2, "freed_idle": null },
            "curve": null,
            "samples": { "interval_ns": 1, "peak_anonymous": 1, "peak_live": 1, "columns": [], "rows": [] },
            "verify": null,
        });
        session.runs.push(Run {
            round: 0,
            pass: Pass::WarmUp,
            contestant: 0,
            end: End::Exit(0),
            report: Some(Report::parse(&report.to_string()).unwrap()),
            said: String::new(),
        });
        session.prediction =
            Some(Prediction { base: 0, recorder: None, real_time: Some(Duration::from_secs(60)) });
        session
    }

    #[test]
    fn a_run_in_recorded_time_has_that_time_beside_the_others() {
        let mut session = session();
        let seconds = |session: &Session, pass| session.patience(pass).map(|time| time.as_secs());
        assert_eq!(seconds(&session, Pass::Totals), Some(62));
        assert_eq!(seconds(&session, Pass::Memory), Some(122));
        session.timeout = Some(Duration::from_secs(5));
        assert_eq!(seconds(&session, Pass::Memory), Some(5));
        (session.timeout, session.runs) = (None, Vec::new());
        assert_eq!(seconds(&session, Pass::Memory), None);
    }
}
