// SPDX-License-Identifier: MIT
//! What the recorded program itself would hold and use under each allocator, beside what it did when that was tried.

use std::collections::BTreeMap;

use quarry_measure::spawn::End;
use quarry_measure::stats::Summary;
use quarry_measure::witness::Witnessed;
use quarry_replay::handed::Handed;
use quarry_replay::predict::{self, Cause, Figure, Heap, Memory, Unsure};
use quarry_replay::session::Pass;
use quarry_trace::Usage;
use serde::Serialize;
use serde_json::{Value, json};

use super::Replay;
use crate::style::Style;
use crate::table::{self, Align, Text};
use crate::units;

/// Answers that differ by less are the same.
const LEAST_ANSWER: f64 = 0.0005;

/// Sides of an interval that differ by less are told as one.
const SAME: f64 = 0.05;

/// What is known of the program beside its heap, and what it did when it was run.
#[derive(Debug, Clone, Default)]
pub struct Prediction {
    /// The allocator that it was recorded on: its number among those that take part.
    pub base: usize,
    /// What the recorder saw at its looks.
    pub usage: Vec<Usage>,
    /// Was the end of the process one of them?
    pub ended: bool,
    /// Were the destructors called? `_exit` does not.
    pub destructed: bool,
    /// Files of the program, by their canonical path.
    pub modules: Vec<String>,
    /// What threads hand to each other.
    pub handed: Handed,
    /// Why nothing can be predicted, if so.
    pub memory_unknown: Option<String>,
    /// Why no processor time can be.
    pub cpu_unknown: Option<String>,
    /// The command that was run for comparison.
    pub command: Vec<String>,
    /// Its runs under each allocator.
    pub runs: Vec<Vec<Witnessed>>,
    /// How the recorded process ended, if that is known.
    pub recorded_end: Option<End>,
    /// How the program ended when it was run first, on the system's malloc. Runs that end so count.
    pub end: Option<End>,
    /// Runs that ended in another way than the first one under the base, with counts, and failures to start.
    pub failures: Vec<BTreeMap<String, usize>>,
}

impl Prediction {
    /// Why there is none.
    pub fn unknown(reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self { memory_unknown: Some(reason.clone()), cpu_unknown: Some(reason), ..Self::default() }
    }

    /// Does the program ask malloc how large its blocks are?
    fn asks(&self) -> bool {
        self.usage.last().is_some_and(|usage| usage.has(Usage::ASKS))
    }

    /// What to know of the ends of the program, if not all is well: a program that does something else is not what was predicted.
    fn remark(&self) -> String {
        let Some(end) = self.end else { return String::new() };
        match self.recorded_end {
            Some(recorded) if recorded != end => format!(
                "The program ended with {end} here, and with {recorded} when it was recorded: the runs are not of what is predicted\n"
            ),
            _ if end == End::Exit(0) => String::new(),
            Some(_) => format!("The runs ended with {end}, as the recorded program did\n"),
            None => format!("The runs ended with {end}\n"),
        }
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "recorded_on": self.base,
            "looks": self.usage.len(),
            "ended": self.ended,
            "memory_unknown": self.memory_unknown,
            "cpu_unknown": self.cpu_unknown,
            "handed": self.memory_unknown.is_none().then_some(self.handed),
            "recorded_end": self.recorded_end.map(|end| end.to_string()),
            "command": self.command,
            "command_end": self.end.map(|end| end.to_string()),
        })
    }
}

/// What is predicted for one allocator.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Predicted {
    /// Its memory.
    pub memory: Option<Memory>,
    /// Processor seconds.
    pub cpu_s: Option<Figure>,
    /// Why they are not told for this allocator, if the replays have them.
    pub cpu_unsure: Option<Unsure>,
    /// If the program asks malloc how large its blocks are: how much larger they are than on the malloc of the recording.
    pub answers: Option<f64>,
}

/// What the program did under one allocator.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measured {
    /// Runs that ended as they should.
    pub runs: usize,
    /// How others ended.
    pub failures: BTreeMap<String, usize>,
    /// Most resident bytes.
    pub peak_rss_bytes: Option<Summary>,
    /// Resident bytes when it ended.
    pub end_rss_bytes: Option<Summary>,
    /// Processor seconds.
    pub cpu_s: Option<Summary>,
}

impl Replay<'_> {
    fn heap(&self, prediction: &Prediction, who: usize) -> Option<Heap> {
        let (_, report) = self.session.good(who, Pass::Memory).next()?;
        let passes = [Pass::Memory, Pass::Totals];
        let runs: Vec<(f64, f64)> = passes
            .iter()
            .flat_map(|&pass| self.session.good(who, pass))
            .map(|(_, report)| (report.rss.peak as f64, report.rss.end as f64))
            .collect();
        let is_programs = |path: &str| prediction.modules.iter().any(|module| module == path);
        let heap = Heap::new(report.looks.as_ref()?, &is_programs, &runs);
        Some(if prediction.destructed { heap } else { heap.without_destructors() })
    }

    fn cpu_of(&self, who: usize, pass: Pass) -> Vec<f64> {
        self.session.good(who, pass).map(|(_, report)| predict::cpu_of(report)).collect()
    }

    /// What the program would do under this allocator.
    pub fn predicted(&self, who: usize) -> Option<Predicted> {
        let p = self.prediction.as_ref()?;
        let memory = || {
            let (base, heap) = (self.heap(p, p.base)?, self.heap(p, who)?);
            predict::memory(&p.usage, p.ended, &base, &heap, (&p.handed, self.head.peak_live))
        };
        let cpu = || {
            let recorded = p.usage.last()?.cpu_ns as f64 * 1e-9;
            predict::cpu(
                recorded,
                &self.cpu_of(p.base, Pass::Recorder),
                &self.cpu_of(p.base, Pass::Totals),
                &self.cpu_of(who, Pass::Totals),
            )
        };
        let answers = || self.heap(p, who)?.answers(&self.heap(p, p.base)?);
        let cpu = if p.cpu_unknown.is_none() { cpu() } else { None };
        let predicted = Predicted {
            answers: if p.asks() { answers() } else { None },
            memory: if p.memory_unknown.is_none() { memory() } else { None },
            cpu_s: cpu.and_then(Result::ok),
            cpu_unsure: cpu.and_then(Result::err),
        };
        (predicted.memory.is_some() || cpu.is_some()).then_some(predicted)
    }

    /// What it did.
    pub fn measured(&self, who: usize) -> Option<Measured> {
        let p = self.prediction.as_ref()?;
        let (runs, failures) = (p.runs.get(who)?, p.failures.get(who)?);
        let summary = |value: fn(&Witnessed) -> Option<f64>| {
            Summary::of(&runs.iter().filter_map(value).collect::<Vec<_>>())
        };
        Some(Measured {
            runs: runs.len(),
            failures: failures.clone(),
            peak_rss_bytes: summary(|run| Some(run.peak_rss_bytes as f64)),
            end_rss_bytes: summary(|run| Some(run.end_rss_bytes? as f64)),
            cpu_s: summary(|run| Some(run.cpu_s)),
        })
    }

    /// The table of both, and what it is not based on; empty for a `.ms` file.
    pub(super) fn prediction_text(&self, style: Style, rows: &[usize]) -> String {
        let Some(p) = &self.prediction else { return String::new() };
        let mut text = String::from("\n");
        let predicted: Vec<_> =
            rows.iter().map(|&who| (who, self.predicted(who), self.measured(who))).collect();
        if predicted.iter().any(|(_, predicted, measured)| predicted.is_some() || measured.is_some()) {
            let validated = !p.runs.is_empty();
            let is_predicted = predicted.iter().any(|(_, predicted, _)| predicted.is_some());
            text += &style.bold(match (is_predicted, validated) {
                (true, true) => "the program itself, predicted and run",
                (true, false) => "the program itself, predicted",
                (false, _) => "the program itself, run",
            });
            text += "\n";
            text += &self.prediction_table(style, &predicted, validated);
        }
        let reasons = [(&p.memory_unknown, "memory is"), (&p.cpu_unknown, "processor time is")];
        match reasons {
            [(Some(one), _), (Some(other), _)] if one == other => {
                text += &format!("The program's memory and processor time are not predicted: {one}\n");
            }
            _ => {
                for (reason, what) in reasons {
                    if let Some(reason) = reason {
                        text += &format!("The program's {what} not predicted: {reason}\n");
                    }
                }
            }
        }
        if p.memory_unknown.is_none() && !p.ended {
            text += "The recording does not have the end of the process: the peak is that of the part before its last look\n";
        }
        text += &self.handed(&predicted);
        text += &self.unsure(&predicted);
        text += &self.answers(&predicted);
        text + &p.remark()
    }

    /// Why memory is less sure than of other programs, where that is so.
    fn handed(&self, rows: &[(usize, Option<Predicted>, Option<Measured>)]) -> String {
        let is_wide = |(_, predicted, _): &(usize, Option<Predicted>, _)| {
            predicted.and_then(|p| p.memory).is_some_and(|m| m.is_of_one_schedule())
        };
        let Some(handed) = self.prediction.as_ref().map(|p| p.handed).filter(|_| rows.iter().any(is_wide))
        else {
            return String::new();
        };
        format!(
            "Up to {} of the peak are blocks that one thread hands to another, and up to {} waited at once. \
             How many wait depends on the schedule, so the intervals are wide\n",
            units::bytes(handed.at_peak_bytes as f64),
            units::bytes(handed.most_bytes as f64)
        )
    }

    /// Allocators of which no processor time is told, by the reason.
    fn unsure(&self, rows: &[(usize, Option<Predicted>, Option<Measured>)]) -> String {
        let events = self.counts.map_or(0, |counts| counts.events);
        let line = |cause: Cause| {
            let these = rows.iter().filter_map(|(who, predicted, _)| {
                let unsure = predicted.as_ref()?.cpu_unsure.filter(|unsure| unsure.cause == cause)?;
                Some((self.allocators[*who].name.as_str(), unsure.off_s))
            });
            let (names, offs): (Vec<&str>, Vec<f64>) = these.unzip();
            let most = offs.into_iter().max_by(f64::total_cmp)?;
            let why = match cause {
                Cause::Recorder => {
                    format!(
                        "what the recorder takes in a program for {} is not known",
                        units::of(events, "event")
                    )
                }
                Cause::Replays => String::from(
                    "the replays are far apart, or take more than the recorded program; raise -n",
                ),
                Cause::Recording => String::from("the recording is one run"),
            };
            Some(format!(
                "The program's processor time is not predicted for {}: it would be off by up to {}, more than half of itself, as {why}\n",
                names.join(", "),
                units::seconds(most)
            ))
        };
        [Cause::Recorder, Cause::Replays, Cause::Recording].into_iter().filter_map(line).collect()
    }

    /// What a program that asks for the sizes of its blocks hears.
    fn answers(&self, rows: &[(usize, Option<Predicted>, Option<Measured>)]) -> String {
        let differ = |(who, predicted, _): &(usize, Option<Predicted>, Option<Measured>)| {
            let answers = predicted.as_ref()?.answers.filter(|answers| answers.abs() >= LEAST_ANSWER)?;
            Some(format!("{} {:+.1} %", self.allocators[*who].name, answers * 100.0))
        };
        let differing: Vec<String> = rows.iter().filter_map(differ).collect();
        match differing.is_empty() {
            true => String::new(),
            false => format!(
                "The program asks malloc how large its blocks are, and may do something else where they are larger or smaller than \
                 those of the recording: {}\n",
                differing.join(", ")
            ),
        }
    }

    fn prediction_table(
        &self,
        style: Style,
        rows: &[(usize, Option<Predicted>, Option<Measured>)],
        validated: bool,
    ) -> String {
        use Align::{Left, Right};
        let mut header = vec!["allocator"];
        let mut align = vec![Left];
        for what in ["peak RSS", "RSS end", "CPU"] {
            header.extend([what, ""]);
            align.extend([Right, Left]);
            if validated {
                header.extend(["run", "off"]);
                align.extend([Right, Right]);
            }
        }
        header.push("");
        align.push(Left);
        let lines = rows.iter().map(|(who, predicted, measured)| {
            let mut line: Vec<Text> = vec![self.allocators[*who].name.clone().into()];
            let memory = predicted.and_then(|p| p.memory);
            let run = |value: fn(&Measured) -> Option<Summary>| Some(value(measured.as_ref()?)?.median);
            let bytes: fn(f64) -> String = units::bytes;
            let cells = [
                (memory.map(|m| m.peak_rss_bytes), run(|m| m.peak_rss_bytes), bytes),
                (memory.and_then(|m| m.end_rss_bytes), run(|m| m.end_rss_bytes), bytes),
                (predicted.and_then(|p| p.cpu_s), run(|m| m.cpu_s), units::seconds),
            ];
            for (figure, run, show) in cells {
                line.push(figure.map_or_else(|| String::from("-"), |f| show(f.value)).into());
                line.push(figure.map_or_else(String::new, |f| interval(f, show)).into());
                if validated {
                    line.push(run.map_or_else(|| String::from("-"), show).into());
                    line.push(off(figure, run));
                }
            }
            line.push(measured.as_ref().map_or_else(String::new, |m| failures(&m.failures)).into());
            line
        });
        table::render(style, &align, &header, lines.collect())
    }
}

/// To either side the same, or from where to where.
fn interval(figure: Figure, show: fn(f64) -> String) -> String {
    let (less, more) = (figure.value - figure.low, figure.high - figure.value);
    match (less - more).abs() < SAME * more.max(less) || figure.low <= 0.0 {
        true => format!("±{}", show(more)),
        false => format!("{} to {}", show(figure.low), show(figure.high)),
    }
}

/// How far the prediction is from the run, in parts of the run; what is beyond the interval stands out.
fn off(figure: Option<Figure>, run: Option<f64>) -> Text {
    let (Some(figure), Some(run)) = (figure, run.filter(|&run| run > 0.0)) else {
        return String::new().into();
    };
    Text(format!("{:+.1} %", (figure.value / run - 1.0) * 100.0), !figure.holds(run))
}

fn failures(failures: &BTreeMap<String, usize>) -> String {
    let all = failures.iter().map(|(how, &times)| format!("{}: {how}", units::of(times as u64, "run")));
    all.collect::<Vec<_>>().join(", ")
}
