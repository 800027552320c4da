// SPDX-License-Identifier: MIT
//! The report of `quarry run`.

use quarry_measure::spawn::{End, Usage};
use serde_json::{Value, json};

use crate::heap::Heaps;
use crate::style::Style;
use crate::table::{self, Align};
use crate::units;

/// What a run was and did.
#[derive(Debug)]
pub struct Report {
    /// The command with its arguments.
    pub command: Vec<String>,
    /// The library that was preloaded.
    pub library: String,
    /// How it ended.
    pub end: End,
    /// What it cost.
    pub usage: Usage,
    /// What its heap left.
    pub heaps: Heaps,
    /// Why something is missing, or not what it seems.
    pub notes: Vec<String>,
}

impl Report {
    /// As JSON, schema quarry-run/1.
    pub fn json(&self) -> Value {
        json!({
            "schema": "quarry-run/1",
            "command": self.command,
            "library": self.library,
            "exit_code": exit_code(self.end),
            "signal": signal(self.end),
            "usage": self.usage,
            "heap": self.heaps.json(),
            "notes": self.notes,
        })
    }

    /// As one screen of text.
    pub fn text(&self, style: Style) -> String {
        let usage = &self.usage;
        let row = |label: &str, value: String, meaning: &str| {
            vec![label.to_owned().into(), value.into(), meaning.to_owned().into()]
        };
        let seconds = units::seconds;
        let count = |n: u64| units::count(n as f64);
        let rows = vec![
            row("wall", seconds(usage.wall_s), "from start to end"),
            row("user", seconds(usage.user_s), "processor time in the program and its finished children"),
            row("system", seconds(usage.system_s), "and in the kernel for them"),
            row(
                "peak RSS",
                units::bytes(usage.peak_rss_bytes as f64),
                "most memory the largest of them had at once",
            ),
            row("minor faults", count(usage.minor_faults), "pages that the kernel gave or mapped"),
            row("major faults", count(usage.major_faults), "pages that came from disk"),
            row("waits", count(usage.voluntary_switches), "times one of them waited for something"),
            row("preemptions", count(usage.involuntary_switches), "times one had to let others run"),
        ];
        let mut text = style.bold(&format!("{}: {}", self.command.join(" "), self.end)) + "\n";
        text += &table::render(style, &[Align::Left, Align::Right, Align::Left], &[], rows);
        let heap = self.heaps.text(style);
        if !heap.is_empty() {
            text += "\n";
            text += &heap;
        }
        for note in &self.notes {
            text += &format!("{} {note}\n", style.warning("note:"));
        }
        text
    }
}

/// The exit code, if that is how it ended.
pub(crate) fn exit_code(end: End) -> Option<i32> {
    if let End::Exit(code) = end { Some(code) } else { None }
}

/// The signal, if that is how it ended.
pub(crate) fn signal(end: End) -> Option<i32> {
    if let End::Signal(signal) = end { Some(signal) } else { None }
}
