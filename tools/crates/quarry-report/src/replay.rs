// SPDX-License-Identifier: MIT
//! The report of `quarry replay`: what the runs of each allocator amount to, tables, a schema, a page.

use std::collections::BTreeMap;

use quarry_measure::machine::Machine;
use quarry_measure::stats::{self, Ratio, Summary};
use quarry_replay::compile::Counts;
use quarry_replay::plan::Head;
use quarry_replay::result::{Report, Verify};
use quarry_replay::session::{Pass, Session};
use serde::Serialize;
use serde_json::{Value, json};

use self::prediction::Prediction;
use self::sample::Sampled;
use crate::compare::Allocator;
use crate::contest::{self, Cells, Verdict, median};
use crate::run::{exit_code, signal};
use crate::style::Style;
use crate::table::{self, Described, Text};
use crate::units;

mod plot;
pub mod prediction;
pub mod sample;
#[cfg(test)]
mod tests;

/// Names of what is counted, by its number in a plan.
const KINDS: [&str; 8] = ["all", "malloc", "calloc", "memalign", "realloc", "free", "free_null", "stats"];
/// The column that is there with `--idle` alone.
const IDLE: &str = "idle";

/// The columns of the first table.
pub const COLUMNS: [Described; 15] = [
    Described::left("allocator", "the system's malloc, and each that is installed"),
    Described::left("version", "of the package the library came in, or else the end of the file's name"),
    Described::right("time", "median elapsed time"),
    Described::right("", "±: how much the time varies (median absolute deviation, scaled); -: one round"),
    Described::right(
        "x system",
        "ratio of times to the system's malloc, with the bounds of its 95 % bootstrap interval",
    ),
    Described::right("CPU", "processor time of the process and of the kernel for it"),
    Described::right("in calls", "time within calls, in the runs that time each"),
    Described::right("peak RSS", "the most anonymous memory"),
    Described::right("x system", "ratio of peak RSS to the system's malloc"),
    Described::right("RSS/live", "mean resident to mean live bytes, over time"),
    Described::right("RSS end", "anonymous memory when the plan has ended"),
    Described::right(IDLE, "anonymous memory after `--idle`"),
    Described::right("freed", "anonymous memory when all is freed"),
    Described::right("faults", "page faults"),
    Described::left("", "remarks: failed, not loaded"),
];

/// The columns of the last table: medians over the rounds.
pub const CALLS: [Described; 8] = [
    Described::left("call", "the kind of call"),
    Described::right("times", "calls in a round"),
    Described::left("allocator", "as above"),
    Described::right("mean", "mean time of a call"),
    Described::right("p50", "half of the calls took no longer"),
    Described::right("p99", "99 of 100"),
    Described::right("p99.9", "999 of 1000"),
    Described::right("max", "the longest"),
];

/// Everything there is to say about a replay.
pub struct Replay<'a> {
    /// The file.
    pub file: String,
    /// What the trace says of itself: the program, for people.
    pub about: String,
    /// The plan's head.
    pub head: Head,
    /// What became of the events; none for a `.ms` file.
    pub counts: Option<Counts>,
    /// The sample, if the trace is one.
    pub sample: Option<Sampled>,
    /// What of the trace could not be read.
    pub damage: Option<String>,
    /// The recorded order was kept exactly.
    pub strict: bool,
    /// Where.
    pub machine: Machine,
    /// When it began, in seconds since 1970.
    pub started: u64,
    /// What the order of runs was drawn from.
    pub seed: u64,
    /// Complete rounds.
    pub rounds: usize,
    /// Was it stopped, by a signal or an error?
    pub interrupted: bool,
    /// Who took part, in the order of the session's contestants.
    pub allocators: Vec<Allocator>,
    /// What the program itself would hold and use; none for a `.ms` file.
    pub prediction: Option<Prediction>,
    /// Settings and runs.
    pub session: &'a Session,
}

/// Times of one kind of call, in nanoseconds.
#[derive(Debug, Clone, Serialize)]
pub struct Latency {
    /// Calls of a run.
    pub calls: u64,
    /// All calls of a run together.
    pub sum_ns: Option<Summary>,
    /// Half take less.
    pub p50_ns: Option<Summary>,
    /// 99 of 100.
    pub p99_ns: Option<Summary>,
    /// 999 of 1000.
    pub p999_ns: Option<Summary>,
    /// The slowest call.
    pub max_ns: Option<Summary>,
}

/// What the runs of one allocator amount to.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// Runs that counted.
    pub succeeded: usize,
    /// Runs that did not succeed, the warm-up included.
    pub failed: usize,
    /// How they ended, with counts.
    pub failures: BTreeMap<String, usize>,
    /// Elapsed seconds of the plan.
    pub time_s: Option<Summary>,
    /// Against the base.
    pub time_ratio: Option<Ratio>,
    /// Processor seconds, of the program and of the kernel for it.
    pub cpu_s: Option<Summary>,
    /// Seconds within calls of the allocator, where calls were timed.
    pub in_calls_s: Option<Summary>,
    /// Seconds that threads waited for each other, summed.
    pub waited_s: Option<Summary>,
    /// Page faults.
    pub faults: Option<Summary>,
    /// Most anonymous memory.
    pub peak_rss_bytes: Option<Summary>,
    /// Against the base.
    pub peak_rss_ratio: Option<Ratio>,
    /// Anonymous memory to live bytes, both as means over time.
    pub rss_per_live: Option<Summary>,
    /// Anonymous memory at the end of the plan.
    pub end_rss_bytes: Option<Summary>,
    /// After idling.
    pub idle_rss_bytes: Option<Summary>,
    /// When all is freed, after idling if there was any.
    pub freed_rss_bytes: Option<Summary>,
    /// Calls that returned NULL, in a run.
    pub null_returned: u64,
    /// By kind of call.
    pub latency: BTreeMap<&'static str, Latency>,
    /// What comparing contents found.
    pub verify: Option<Verify>,
}

/// Mean resident to mean live bytes, over time.
fn rss_per_live(report: &Report) -> Option<f64> {
    let rows = &report.samples.rows;
    let rss: f64 = rows.iter().map(|row| row.1 as f64).sum();
    let live: f64 = rows.iter().map(|row| row.2.max(0) as f64).sum();
    // Where nothing but the end was seen, the ratio says nothing.
    (rows.len() >= 3 && live > 0.0).then(|| rss / live)
}

impl Replay<'_> {
    /// Condense an allocator's runs.
    pub fn outcome(&self, who: usize) -> Outcome {
        let totals = |who| self.session.good(who, Pass::Totals);
        let summary = |value: fn(&Report) -> Option<f64>| {
            Summary::of(&totals(who).filter_map(|(_, report)| value(report)).collect::<Vec<_>>())
        };
        let ratio = |value: fn(&Report) -> f64| {
            let pairs: Vec<(f64, f64)> = totals(who)
                .filter_map(|(round, report)| {
                    let (_, base) = totals(0).find(|(of, _)| *of == round)?;
                    Some((value(report), value(base)))
                })
                .collect();
            stats::ratio(&pairs, self.seed).filter(|_| who != 0)
        };
        let seconds = |ns: u64| Some(ns as f64 * 1e-9);
        let mut failures = BTreeMap::new();
        for run in self.session.runs.iter().filter(|run| run.contestant == who && !run.succeeded()) {
            *failures.entry(self.how_it_failed(run)).or_default() += 1;
        }
        let in_calls: Vec<f64> = self
            .session
            .good(who, Pass::Latency)
            .filter_map(|(_, report)| Some(report.in_calls_ns()? * 1e-9))
            .collect();
        let verify = self.session.runs.iter().filter(|run| run.contestant == who);
        Outcome {
            succeeded: totals(who).count(),
            failed: failures.values().sum(),
            failures,
            time_s: summary(|r| Some(r.wall_ns as f64 * 1e-9)),
            time_ratio: ratio(|r| r.wall_ns as f64),
            cpu_s: summary(|r| Some((r.user_ns + r.system_ns) as f64 * 1e-9)),
            in_calls_s: Summary::of(&in_calls),
            waited_s: Summary::of(&totals(who).filter_map(|(_, r)| seconds(r.waited_ns)).collect::<Vec<_>>()),
            faults: summary(|r| Some((r.minor_faults + r.major_faults) as f64)),
            peak_rss_bytes: summary(|r| Some(r.rss.peak as f64)),
            peak_rss_ratio: ratio(|r| r.rss.peak as f64),
            rss_per_live: summary(rss_per_live),
            end_rss_bytes: summary(|r| Some(r.rss.end as f64)),
            idle_rss_bytes: summary(|r| Some(r.rss.end_idle? as f64)),
            freed_rss_bytes: summary(|r| Some(r.rss.freed_idle.unwrap_or(r.rss.freed) as f64)),
            null_returned: totals(who).map(|(_, report)| report.failed()).max().unwrap_or(0),
            latency: self.latency(who),
            verify: verify.filter_map(|run| run.report.as_ref()?.verify.clone()).next(),
        }
    }

    fn latency(&self, who: usize) -> BTreeMap<&'static str, Latency> {
        let mut kinds = BTreeMap::new();
        for kind in &KINDS[1..] {
            let timed: Vec<_> = self
                .session
                .good(who, Pass::Latency)
                .filter_map(|(_, report)| report.operations.get(*kind))
                .filter(|operation| operation.sum_ns.is_some())
                .collect();
            let Some(first) = timed.first() else { continue };
            let summary = |value: fn(&quarry_replay::result::Operation) -> Option<f64>| {
                Summary::of(&timed.iter().filter_map(|o| value(o)).collect::<Vec<_>>())
            };
            kinds.insert(
                *kind,
                Latency {
                    calls: first.count,
                    sum_ns: summary(|o| o.sum_ns),
                    p50_ns: summary(|o| o.p50_ns),
                    p99_ns: summary(|o| o.p99_ns),
                    p999_ns: summary(|o| o.p999_ns),
                    max_ns: summary(|o| o.max_ns),
                },
            );
        }
        kinds
    }

    fn how_it_failed(&self, run: &quarry_replay::session::Run) -> String {
        match run.report.as_ref().and_then(|report| report.verify.as_ref()) {
            Some(verify) if verify.wrong > 0 => {
                format!("wrong contents in {}", units::of(verify.wrong, "block"))
            }
            Some(verify) if verify.misaligned > 0 => {
                format!("{} misaligned", units::of(verify.misaligned, "block"))
            }
            _ => run.end.to_string(),
        }
    }

    /// Which allocator was fastest and which leanest, of those that had no failure.
    fn verdict(&self) -> Option<Verdict> {
        let values = |who: usize, value: fn(&Report) -> f64| {
            let runs = self.session.good(who, Pass::Totals);
            runs.map(|(round, report)| (round, value(report))).collect::<Vec<_>>()
        };
        let who: Vec<usize> = (0..self.allocators.len()).filter(|&who| self.session.is_in(who)).collect();
        let (time, memory) = (
            |who: usize| values(who, |report| report.wall_ns as f64 * 1e-9),
            |who: usize| values(who, |report| report.rss.peak as f64),
        );
        Verdict::of(&self.allocators, &who, self.rounds, self.seed, &time, &memory)
    }

    /// 1 if an allocator other than the base failed, 125 if the base did.
    pub fn exit_code(&self) -> i32 {
        match self.session.runs.iter().filter(|run| !run.succeeded()).map(|run| run.contestant).min() {
            None => 0,
            Some(0) => 125,
            Some(_) => 1,
        }
    }

    /// The run that stands for all of an allocator: that of the median time.
    fn typical(&self, who: usize, pass: Pass) -> Option<&Report> {
        let mut runs: Vec<&Report> = self.session.good(who, pass).map(|(_, report)| report).collect();
        runs.sort_by_key(|report| report.wall_ns);
        (!runs.is_empty()).then(|| runs[(runs.len() - 1) / 2])
    }

    /// As JSON, schema quarry-replay/1.
    pub fn json(&self) -> Value {
        let allocators = self.allocators.iter().enumerate().map(|(index, allocator)| {
            let mut object = json!(allocator);
            object["conf"] = json!(self.session.contestants[index].conf.to_string());
            object["result"] = json!(self.outcome(index));
            object["prediction"] = json!(self.predicted(index));
            object["program"] = json!(self.measured(index));
            // Of one run each: those of all would be most of the report.
            object["samples"] = json!(self.typical(index, Pass::Totals).map(|report| &report.samples));
            object["timed"] = json!(self.typical(index, Pass::Latency).map(|report| &report.operations));
            object
        });
        let runs = self.session.runs.iter().map(|run| {
            let report = run.report.clone().map(|mut report| {
                report.samples.rows.clear();
                report.operations.values_mut().for_each(|operation| operation.buckets.clear());
                report
            });
            json!({
                "round": run.round,
                "pass": run.pass,
                "allocator": self.allocators[run.contestant].name,
                "succeeded": run.succeeded(),
                "exit_code": exit_code(run.end),
                "signal": signal(run.end),
                "timed_out": run.end == quarry_measure::spawn::End::Timeout,
                "said": if run.succeeded() { None } else { Some(&run.said) },
                "report": report,
            })
        });
        let head = &self.head;
        let operations: BTreeMap<&str, u64> = KINDS.into_iter().zip(head.operations).collect();
        json!({
            "schema": "quarry-replay/1",
            "quarry_version": env!("CARGO_PKG_VERSION"),
            "file": self.file,
            "about": self.about,
            "plan": {
                "order": if self.strict { "strict" } else { "deps" },
                "threads": head.threads,
                "threads_at_once": head.alive,
                "slots": head.slots,
                "bytes": head.bytes,
                "operations": operations,
                "peak_live_bytes": head.peak_live,
                "peak_live_blocks": head.peak_blocks,
                "end_live_bytes": head.end_live,
                "duration_s": head.duration_ns as f64 * 1e-9,
            },
            "events": self.counts,
            "damage": self.damage,
            "prediction": self.prediction.as_ref().map(Prediction::json),
            "sample": self.sample.as_ref().map(Sampled::json),
            "settings": self.session.settings,
            "machine": self.machine,
            "started": self.started,
            "seed": self.seed,
            "rounds": self.rounds,
            "interrupted": self.interrupted,
            "verdict": self.verdict(),
            "allocators": allocators.collect::<Vec<_>>(),
            "runs": runs.collect::<Vec<_>>(),
        })
    }

    /// As tables. With details there are the times of single calls, how the replay was done, and what is needed to read the tables.
    pub fn text(&self, style: Style, details: bool) -> String {
        let outcomes: Vec<Outcome> = (0..self.allocators.len()).map(|who| self.outcome(who)).collect();
        let mut rows: Vec<usize> = (0..outcomes.len()).collect();
        let key = |who: usize| median(&outcomes[who].time_s).unwrap_or(f64::INFINITY);
        rows.sort_by(|&a, &b| key(a).total_cmp(&key(b)));
        let mut text = style.bold(&self.file) + "\n" + &self.what_is_played() + "\n";
        text += &self.totals(style, &outcomes, &rows);
        text += &self.prediction_text(style, &rows);
        let calls = if details { self.calls(style, &outcomes, &rows) } else { String::new() };
        if !calls.is_empty() {
            text += &format!("\n{calls}");
        }
        text += &format!("\n{}", self.remarks(style, &outcomes, &rows));
        text += &if details { self.explanation() } else { self.what_details_have() };
        text + &self.verdict().map_or_else(String::new, |verdict| verdict.text(style))
    }

    /// One page, which needs nothing beside itself.
    pub fn html(&self) -> String {
        plot::page(self)
    }

    fn what_is_played(&self) -> String {
        let head = &self.head;
        let count = |n: u64| units::count(n as f64);
        let mut text = String::new();
        if !self.about.is_empty() {
            text += &format!("{}\n", self.about);
        }
        text += &format!(
            "{} of {}, live at most {} in {}, {} at the end\n",
            units::of(head.operations[0], "operation"),
            match head.threads {
                1 => String::from("one thread"),
                n => format!("{} threads ({} at once)", count(u64::from(n)), count(u64::from(head.alive))),
            },
            units::bytes(head.peak_live as f64),
            units::of(head.peak_blocks, "block"),
            units::bytes(head.end_live as f64),
        );
        if let Some(sample) = &self.sample {
            text += &sample.text(head.peak_live);
        }
        let Some(c) = &self.counts else { return text };
        let parts = [
            (c.failed, "call", "not made: had failed"),
            (c.unknown_frees, "free", "left out: of unknown blocks"),
            (c.unknown_reallocs, "realloc", "made of NULL: of unknown blocks"),
            (c.implied_frees, "free", "put in: had been missing"),
            (c.pool_blocks, "block", "left out: of pools"),
            (c.pool_events, "event", "left out: of pools"),
            (c.lost, "event", "lost when it was recorded"),
            (c.news, "call", "of operator new made by malloc"),
        ];
        for (number, one, what) in parts.into_iter().filter(|(number, ..)| *number > 0) {
            text += &format!("{} {what}\n", units::of(number, one));
        }
        if let Some(damage) = &self.damage {
            text += &format!("{damage}\n");
        }
        text
    }

    fn totals(&self, style: Style, outcomes: &[Outcome], rows: &[usize]) -> String {
        let cells = Cells::new(&self.allocators, outcomes);
        // One run has no spread.
        let spread = |o: &Outcome| match o.time_s {
            Some(s) if o.succeeded > 1 => format!("±{}", units::percent(s.relative_deviation())),
            Some(_) => String::from("-"),
            None => String::new(),
        };
        let idle = self.session.settings.idle_s > 0.0;
        let rows = rows.iter().map(|&who| {
            let (allocator, o) = (&self.allocators[who], &outcomes[who]);
            let mut row = vec![
                allocator.name.clone().into(),
                allocator.version.clone().unwrap_or_default().into(),
                cells.cell(|o| median(&o.time_s), units::seconds, o),
                spread(o).into(),
                contest::ratio(o.time_ratio, who == 0).into(),
                cells.cell(|o| median(&o.cpu_s), units::seconds, o),
                cells.cell(|o| median(&o.in_calls_s), units::seconds, o),
                cells.cell(|o| median(&o.peak_rss_bytes), units::bytes, o),
                contest::plain_ratio(o.peak_rss_ratio, who == 0).into(),
                cells.cell(|o| median(&o.rss_per_live), |v| format!("{v:.2}"), o),
                cells.cell(|o| median(&o.end_rss_bytes), units::bytes, o),
            ];
            if idle {
                row.push(cells.cell(|o| median(&o.idle_rss_bytes), units::bytes, o));
            }
            row.push(cells.cell(|o| median(&o.freed_rss_bytes), units::bytes, o));
            row.push(cells.cell(|o| median(&o.faults), units::count, o));
            row.push(contest::remarks(allocator, &o.failures, None).into());
            row
        });
        let heads: Vec<Described> = COLUMNS.into_iter().filter(|head| idle || head.name != IDLE).collect();
        table::of(style, &heads, rows.collect())
    }

    /// Percentiles of single calls; empty if none were timed.
    fn calls(&self, style: Style, outcomes: &[Outcome], rows: &[usize]) -> String {
        let mut lines: Vec<Vec<Text>> = Vec::new();
        for kind in &KINDS[1..] {
            let of_kind = |who: usize| outcomes[who].latency.get(kind);
            let values: [fn(&Latency) -> Option<f64>; 4] =
                [|l| median(&l.p50_ns), |l| median(&l.p99_ns), |l| median(&l.p999_ns), |l| median(&l.max_ns)];
            for &who in rows {
                let Some(latency) = of_kind(who) else { continue };
                let mut line: Vec<Text> = vec![
                    (*kind).to_owned().into(),
                    units::count(latency.calls as f64).into(),
                    self.allocators[who].name.clone().into(),
                ];
                let mean = median(&latency.sum_ns).map(|sum| sum / (latency.calls.max(1) as f64));
                line.push(mean.map_or_else(String::new, units::nanoseconds).into());
                for value in values {
                    let best = rows.iter().filter_map(|&w| of_kind(w).and_then(value)).min_by(f64::total_cmp);
                    let own = value(latency);
                    let text = own.map_or_else(String::new, units::nanoseconds);
                    line.push(Text(text, own == best && rows.len() > 1));
                }
                lines.push(line);
            }
        }
        if lines.is_empty() {
            return String::new();
        }
        table::of(style, &CALLS, lines)
    }

    /// What the failing ones said, and what else there is to know about each.
    fn remarks(&self, style: Style, outcomes: &[Outcome], rows: &[usize]) -> String {
        let mut text = String::new();
        for &who in rows {
            let name = &self.allocators[who].name;
            text += &contest::notes(style, &self.allocators[who]);
            if outcomes[who].null_returned > 0 {
                let calls = units::of(outcomes[who].null_returned, "call");
                text += &format!("{} {name}: {calls} returned NULL\n", style.warning("note:"));
            }
            if let Some(first) = outcomes[who].verify.as_ref().and_then(|verify| verify.first.as_ref()) {
                text += &format!(
                    "{} {name}: a block of {} had {} at byte {}, where {} was written\n",
                    style.error("wrong:"),
                    units::of(first.size, "byte"),
                    first.seen,
                    first.offset,
                    first.expected
                );
            }
            let failed = |run: &&quarry_replay::session::Run| run.contestant == who && !run.succeeded();
            if let Some(run) = self.session.runs.iter().find(failed) {
                text += &format!(
                    "{} {name} failed in {} with {}{}; it had no further runs\n",
                    style.error("failed:"),
                    contest::round(run.round),
                    self.how_it_failed(run),
                    contest::last_words(&run.said)
                );
            }
        }
        if !text.is_empty() {
            text.push('\n');
        }
        text
    }

    fn what_details_have(&self) -> String {
        format!(
            "{}{} in random order. --details has {}how they were made, and what the columns are\n",
            if self.interrupted { "interrupted: " } else { "" },
            units::of(self.rounds as u64, "round"),
            if self.session.settings.latency { "the times of single calls, " } else { "" },
        )
    }

    fn explanation(&self) -> String {
        let settings = &self.session.settings;
        let mut text = format!(
            "{}{} in random order (seed {}){}; {}, {}, order: {}, {}, written: {}{}\n",
            if self.interrupted { "interrupted: " } else { "" },
            units::of(self.rounds as u64, "round"),
            self.seed,
            if self.session.runs.iter().any(|run| run.round == 0) { " after a warm-up" } else { "" },
            units::of(u64::from(settings.instances), "performance")
                + if settings.instances > 1 { " at once" } else { "" },
            units::of(u64::from(settings.repeats), "repeat"),
            if self.strict { "strict" } else { "deps" },
            if settings.real_time { "recorded times" } else { "as fast as possible" },
            settings.touch.name(),
            if settings.verify { "; contents were compared in the warm-up" } else { "" },
        );
        text += &contest::machine(&self.machine);
        text += "\
time, CPU, peak RSS, faults are medians of runs in which no call was timed; in calls, p50 ... max are of other runs,
in which each was. RSS is anonymous memory without what libc and the stack have; RSS/live: its mean over time to that
of live bytes; RSS end: when the plan has ended, freed: when what is live then is freed. x system has the 95 %
bootstrap interval: if it holds 1.00, no difference was shown. docs/replay.md says what a replay cannot show\n";
        text
    }
}
