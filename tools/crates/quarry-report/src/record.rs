// SPDX-License-Identifier: MIT
//! The report of `quarry record`.

use quarry_measure::spawn::{End, Usage};
use quarry_measure::stats::{Ratio, Summary};
use quarry_proc::shown;
use serde_json::{Value, json};

use crate::run::{exit_code, signal};
use crate::style::Style;
use crate::table::{self, Align, Text};
use crate::units;

/// The schema of [`Report::json`].
pub const SCHEMA: &str = "quarry-record/1";

/// Rows of the table of processes.
const ROWS: usize = 12;

/// What one process left.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Recorded {
    /// The trace.
    pub file: String,
    /// The process.
    pub process: u32,
    /// Its parent when it began.
    pub parent: u32,
    /// The file it ran.
    pub program: String,
    /// The library whose malloc it called.
    pub malloc: String,
    /// Bytes of the trace.
    pub bytes: u64,
    /// Events in it. Of a trace that was not counted: records, which those that define call stacks are part of.
    pub events: u64,
    /// Was it read to the end for this?
    pub counted: bool,
    /// Events by which memory was asked for. Not known if it was not counted.
    pub allocations: Option<u64>,
    /// Events that are not in it.
    pub lost: u64,
    /// Threads that have events.
    pub threads: u64,
    /// From the beginning to the end of the recording, in seconds.
    pub seconds: f64,
    /// How it ended; `None`: it did not, it was cut off or still goes on.
    pub end: Option<String>,
    /// Was its end put in by the tool? Then it ends with room that was not used.
    pub cut_off: bool,
    /// Does the process still run?
    pub running: bool,
    /// Places that cannot be read, and bytes left out there.
    pub damage: (u64, u64),
}

/// What ends a process. All else ends the recording alone.
pub const ENDS: [&str; 6] = ["exit", "_exit", "quick_exit", "exec", "crash", "killed"];

impl Recorded {
    /// Did anything ask for memory?
    pub fn is_empty(&self) -> bool {
        self.allocations == Some(0)
    }

    /// Did the recording stop while the program went on? What it did then is not known, and not counted as lost.
    pub fn was_stopped(&self) -> bool {
        self.end.as_ref().is_some_and(|reason| !ENDS.contains(&reason.as_str()))
    }

    fn bytes_per_event(&self) -> Option<f64> {
        (self.events > 0).then(|| self.bytes as f64 / self.events as f64)
    }

    fn json(&self) -> Value {
        json!({
            "file": self.file,
            "process": self.process,
            "parent": self.parent,
            "program": self.program,
            "malloc": self.malloc,
            "bytes": self.bytes,
            "events": self.events,
            "counted": self.counted,
            "allocations": self.allocations,
            "lost": self.lost,
            "threads": self.threads,
            "duration_s": self.seconds,
            "bytes_per_event": self.bytes_per_event(),
            "end": self.end,
            "stopped": self.was_stopped(),
            "running": self.running,
            "damaged_places": self.damage.0,
            "damaged_bytes": self.damage.1,
        })
    }
}

/// What recording costs: runs with and without it in turns.
#[derive(Debug, Clone)]
pub struct Slowdown {
    /// Rounds, each with one run of both.
    pub rounds: usize,
    /// Elapsed seconds without the recorder, and with it, of each round.
    pub wall_s: Vec<(f64, f64)>,
    /// Processor seconds, likewise.
    pub cpu_s: Vec<(f64, f64)>,
    /// Elapsed time with the recorder by that without it.
    pub wall: Option<Ratio>,
    /// The same of processor time.
    pub cpu: Option<Ratio>,
}

impl Slowdown {
    fn json(&self) -> Value {
        let summary = |values: &[(f64, f64)], second: bool| {
            let values: Vec<f64> = values.iter().map(|v| if second { v.1 } else { v.0 }).collect();
            Summary::of(&values).map(|s| json!(s))
        };
        json!({
            "rounds": self.rounds,
            "wall_s": { "plain": summary(&self.wall_s, false), "recorded": summary(&self.wall_s, true) },
            "cpu_s": { "plain": summary(&self.cpu_s, false), "recorded": summary(&self.cpu_s, true) },
            "wall_ratio": self.wall,
            "cpu_ratio": self.cpu,
        })
    }

    fn text(&self) -> String {
        let ratio = |ratio: &Option<Ratio>| match ratio {
            None => String::from("not measurable"),
            Some(Ratio { ratio, interval: None }) => format!("{ratio:.2}x"),
            Some(Ratio { ratio, interval: Some((low, high)) }) => {
                format!("{ratio:.2}x ({low:.2} … {high:.2})")
            }
        };
        let rounds = if self.rounds == 1 { "round" } else { "rounds" };
        format!(
            "slow-down {}, in processor time {}; {} {rounds}",
            ratio(&self.wall),
            ratio(&self.cpu),
            self.rounds
        )
    }
}

/// What was recorded.
#[derive(Debug)]
pub struct Report {
    /// The command with its arguments.
    pub command: Vec<String>,
    /// The library that records.
    pub recorder: String,
    /// How the command ended.
    pub end: End,
    /// What it cost.
    pub usage: Usage,
    /// How call stacks were taken: "none", "fp", "cfi".
    pub stacks: String,
    /// Mean bytes between two sampled allocations; 0: all are recorded.
    pub sample: u64,
    /// Were children recorded, too?
    pub follow: bool,
    /// What each process left: that of the command first, then those with most events.
    pub traces: Vec<Recorded>,
    /// What recording costs, if that was asked for.
    pub slowdown: Option<Slowdown>,
    /// What is missing, why, and what to do about it.
    pub notes: Vec<String>,
}

impl Report {
    fn sum(&self, of: impl Fn(&Recorded) -> u64) -> u64 {
        self.traces.iter().fold(0, |sum, trace| sum.saturating_add(of(trace)))
    }

    /// The largest trace. Events alone would choose a shell that starts the program: it has many, and all of them are short.
    fn main(&self) -> Option<&Recorded> {
        // The first of equals.
        self.traces.iter().rev().max_by_key(|trace| (!trace.is_empty(), trace.bytes))
    }

    /// As JSON, schema quarry-record/1.
    pub fn json(&self) -> Value {
        let (events, bytes) = (self.sum(|t| t.events), self.sum(|t| t.bytes));
        json!({
            "schema": SCHEMA,
            "command": self.command,
            "recorder": self.recorder,
            "exit_code": exit_code(self.end),
            "signal": signal(self.end),
            "usage": self.usage,
            "stacks": self.stacks,
            "sample": self.sample,
            "follow": self.follow,
            "events": events,
            "lost": self.sum(|t| t.lost),
            "bytes": bytes,
            "bytes_per_event": (events > 0).then(|| bytes as f64 / events as f64),
            "threads": self.sum(|t| t.threads),
            "traces": self.traces.iter().map(Recorded::json).collect::<Vec<_>>(),
            "slowdown": self.slowdown.as_ref().map(Slowdown::json),
            "notes": self.notes,
        })
    }

    /// As a few lines of text.
    pub fn text(&self, style: Style) -> String {
        let mut text = String::new();
        if let Some(main) = self.main() {
            text += &style.bold(&format!("recorded {}", self.counts()));
            text += "\n";
            match self.traces.len() {
                1 => text += &format!("  {}\n", shown(&main.file)),
                _ => text += &self.table(style),
            }
        }
        if let Some(slowdown) = &self.slowdown {
            text += &format!("  {}\n", slowdown.text());
        }
        for note in &self.notes {
            text += &format!("{} {}\n", style.warning("note:"), shown(note));
        }
        if let Some(main) = self.main().filter(|trace| !trace.is_empty()) {
            let file = quoted(&main.file);
            text += &format!("next: quarry info {file}\n      quarry replay {file}\n");
        }
        text
    }

    fn counts(&self) -> String {
        let count = |n: u64| units::count(n as f64);
        let (events, bytes) = (self.sum(|t| t.events), self.sum(|t| t.bytes));
        let about = if self.traces.iter().all(|t| t.counted) { "" } else { "about " };
        let mut text = format!("{about}{}", units::of(events, "event"));
        text += &format!(" of {}", units::of(self.sum(|t| t.threads), "thread"));
        if self.traces.len() > 1 {
            text += &format!(" in {} traces", self.traces.len());
        }
        text += &format!(", {} lost", count(self.sum(|t| t.lost)));
        if self.traces.iter().any(Recorded::was_stopped) {
            text += " and all after the recording stopped";
        }
        text += &format!("; {}", units::bytes(bytes as f64));
        // A trace that was cut off ends with room that was not used.
        if events > 0 && self.traces.iter().all(|t| t.end.is_some() && !t.cut_off) {
            text += &format!(", {:.1} bytes each", bytes as f64 / events as f64);
        }
        text + &format!("; {}", units::seconds(self.usage.wall_s))
    }

    fn table(&self, style: Style) -> String {
        let count = |n: u64| units::count(n as f64);
        let row = |t: &Recorded| {
            let cells = [
                t.process.to_string(),
                // Programs say what they are called, and files are called after them.
                shown(t.program.rsplit('/').next().unwrap_or_default()),
                count(t.events),
                count(t.lost),
                units::bytes(t.bytes as f64),
                units::seconds(t.seconds),
                shown(t.end.as_deref().unwrap_or(if t.running { "runs" } else { "cut off" })),
                shown(&t.file),
            ];
            cells.map(Text::from).to_vec()
        };
        let header = ["process", "program", "events", "lost", "bytes", "time", "end", "file"];
        let align = [
            Align::Right,
            Align::Left,
            Align::Right,
            Align::Right,
            Align::Right,
            Align::Right,
            Align::Left,
            Align::Left,
        ];
        let mut text =
            table::render(style, &align, &header, self.traces.iter().take(ROWS).map(row).collect());
        if self.traces.len() > ROWS {
            let rest = &self.traces[ROWS..];
            let events = rest.iter().fold(0u64, |sum, t| sum.saturating_add(t.events));
            text += &format!("  and {} more with {}\n", rest.len(), units::of(events, "event"));
        }
        text
    }
}

/// A file name as a shell takes it.
fn quoted(name: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-+:@%,=".contains(c);
    if !name.is_empty() && name.chars().all(plain) {
        return name.to_owned();
    }
    if !name.contains(char::is_control) {
        return format!("'{}'", name.replace('\'', "'\\''"));
    }
    // What would move the cursor has words in $'...'.
    let word = |c: char| match c {
        '\'' | '\\' => format!("\\{c}"),
        c if c.is_control() => c.to_string().bytes().map(|byte| format!("\\x{byte:02x}")).collect(),
        c => c.to_string(),
    };
    format!("$'{}'", name.chars().map(word).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage() -> Usage {
        Usage {
            wall_s: 2.5,
            user_s: 2.0,
            system_s: 0.1,
            peak_rss_bytes: 1 << 20,
            minor_faults: 1,
            major_faults: 0,
            voluntary_switches: 1,
            involuntary_switches: 1,
        }
    }

    fn recorded(file: &str, process: u32, events: u64) -> Recorded {
        Recorded {
            file: file.into(),
            process,
            program: "/usr/bin/prog".into(),
            bytes: 5 * events,
            events,
            counted: true,
            allocations: Some(events / 2),
            threads: 1,
            seconds: 1.5,
            end: Some("exit".into()),
            ..Recorded::default()
        }
    }

    fn report(traces: Vec<Recorded>) -> Report {
        Report {
            command: vec!["prog".into()],
            recorder: "/lib/r.so".into(),
            end: End::Exit(3),
            usage: usage(),
            stacks: "none".into(),
            sample: 0,
            follow: false,
            traces,
            slowdown: None,
            notes: Vec::new(),
        }
    }

    #[test]
    fn one_trace_takes_three_lines() {
        let text = report(vec![recorded("my prog.qtr", 7, 2_000_000)]).text(Style::default());
        assert_eq!(
            text,
            "recorded 2 000 000 events of 1 thread, 0 lost; 9.54 MiB, 5.0 bytes each; 2.50 s\n  my prog.qtr\n\
             next: quarry info 'my prog.qtr'\n      quarry replay 'my prog.qtr'\n"
        );
    }

    #[test]
    fn several_have_a_table_and_the_largest_is_next() {
        let mut cut = recorded("b.qtr", 8, 500);
        cut.end = None;
        cut.counted = false;
        let mut report = report(vec![recorded("a.qtr", 7, 10), cut]);
        report.notes.push("something".into());
        let text = report.text(Style::default());
        for part in ["about 510 events of 2 threads in 2 traces", "cut off", "note: something", "info b.qtr"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        // A shell has more events, and its trace is short.
        let mut shell = recorded("shell.qtr", 7, 900);
        shell.bytes = 10;
        let text = self::report(vec![shell, recorded("program.qtr", 7, 300)]).text(Style::default());
        assert!(text.contains("next: quarry info program.qtr"), "{text}");
        let many = (0..40).map(|n| recorded(&format!("{n}.qtr"), n, 2)).collect();
        assert!(self::report(many).text(Style::default()).contains("and 28 more with 56 events"));
    }

    #[test]
    fn names_do_not_move_the_cursor() {
        let mut odd = recorded("\u{1b}[2Jit's.8.qtr", 8, 5000);
        (odd.program, odd.end) = ("/tmp/\u{1b}]0;x\u{7}".into(), Some("\u{1b}[1A".into()));
        let mut report = report(vec![recorded("a.qtr", 7, 1000), odd]);
        report.notes.push("\u{1b}[2J: 1 event lost".into());
        let text = report.text(Style::default());
        assert!(!text.contains(['\u{1b}', '\u{7}']), "{text:?}");
        for part in [
            "\\u{1b}[2Jit's.8.qtr\n",
            "note: \\u{1b}[2J: 1 event lost\n",
            "next: quarry info $'\\x1b[2Jit\\'s.8.qtr'\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn a_recording_that_stopped_is_no_whole_one() {
        let mut stopped = recorded("a.qtr", 7, 10);
        assert!(!stopped.was_stopped());
        stopped.end = Some("disk full".into());
        assert!(stopped.was_stopped());
        assert!(
            report(vec![stopped])
                .text(Style::default())
                .contains("0 lost and all after the recording stopped;")
        );
    }

    #[test]
    fn nothing_recorded_suggests_nothing() {
        let mut nothing = recorded("a.qtr", 7, 1);
        nothing.allocations = Some(0);
        assert!(!report(vec![nothing]).text(Style::default()).contains("next:"));
        let mut none = report(Vec::new());
        none.notes.push("no trace".into());
        assert_eq!(none.text(Style::default()), "note: no trace\n");
        assert_eq!(none.json()["bytes_per_event"], Value::Null);
    }

    #[test]
    fn the_json_has_all_of_it() {
        let mut report = report(vec![recorded("a.qtr", 7, 10), recorded("b.qtr", 8, 30)]);
        let pairs = vec![(1.0, 1.5), (1.0, 1.4), (2.0, 3.0)];
        report.slowdown = Some(Slowdown {
            rounds: 3,
            wall: quarry_measure::stats::ratio(&[(1.5, 1.0), (1.4, 1.0), (3.0, 2.0)], 1),
            cpu: None,
            wall_s: pairs.clone(),
            cpu_s: pairs,
        });
        let json = report.json();
        assert_eq!(json["schema"], "quarry-record/1");
        assert_eq!((&json["events"], &json["bytes"]), (&json!(40), &json!(200)));
        assert_eq!(json["bytes_per_event"], 5.0);
        assert_eq!((&json["exit_code"], &json["signal"]), (&json!(3), &Value::Null));
        assert_eq!(json["traces"][1]["process"], 8);
        assert_eq!(json["slowdown"]["wall_ratio"]["ratio"], 1.5);
        assert_eq!(json["slowdown"]["wall_s"]["recorded"]["median"], 1.5);
        assert!(report.text(Style::default()).contains("slow-down 1.50x (1.40 … 1.50)"));
    }
}
