// SPDX-License-Identifier: MIT
//! What is in a profile of another tool: snapshots, and what its call stacks had.

use std::fmt::Write;

use quarry_proc::shown;
use quarry_report::style::Style;
use quarry_report::table::{self, Align, Text};
use quarry_report::units;
use quarry_synth::convert::Format;
use quarry_synth::convert::profile::{Profile, Sum};
use serde_json::{Value, json};

/// Callers that are shown below a function.
const CALLERS: usize = 3;

/// A profile, and what is said of it.
pub struct About<'a> {
    pub file: &'a str,
    pub format: Format,
    pub profile: &'a Profile,
    /// Rows of each table.
    pub top: usize,
    /// Show whole stacks.
    pub all: bool,
}

fn bytes(n: u64) -> String {
    units::bytes(n as f64)
}

fn sum(sum: Sum) -> String {
    match sum.blocks {
        Some(blocks) => format!("{} in {}", bytes(sum.bytes), units::count(blocks as f64)),
        None => bytes(sum.bytes),
    }
}

impl About<'_> {
    fn time(&self, time: u64) -> String {
        match self.profile.unit.as_str() {
            "B" => format!("after {} moved", bytes(time)),
            "i" => format!("after {} instructions", units::count(time as f64)),
            unit => format!("at {time} {unit}"),
        }
    }

    /// As text.
    pub fn text(&self, style: Style) -> String {
        let profile = self.profile;
        let mut text = format!(
            "{}\n  a profile ({}): {}, and no allocation or free\n",
            style.bold(self.file),
            self.format.name(),
            Profile::holds(self.format)
        );
        if !profile.command.is_empty() {
            let _ = writeln!(text, "  command    {}", shown(&profile.command));
        }
        if profile.sample > 0 {
            let every = bytes(profile.sample);
            let _ =
                writeln!(text, "  a sample of one byte in {every}: all sums are estimates, by mean sizes");
        }
        if let Some(most) = profile.snapshots.iter().max_by_key(|snapshot| snapshot.total()) {
            let _ = writeln!(text, "  snapshots  {}", profile.snapshots.len());
            let _ = writeln!(text, "  most       {} {}", bytes(most.total()), self.time(most.time));
        } else {
            let _ = writeln!(text, "  live       {}", sum(profile.live()));
            if let Some(allocated) = profile.allocated() {
                let _ = writeln!(text, "  allocated  {}", sum(allocated));
            }
        }
        if !profile.snapshots.is_empty() {
            text += "\n";
            text += &self.snapshots(style);
        }
        let of = match profile.of.map(|of| (of, profile.of_peak)) {
            Some((of, true)) => format!("at the peak (snapshot {of})"),
            Some((of, false)) => format!("in snapshot {of}, the last one with call stacks"),
            None => String::from("when it was written"),
        };
        if !profile.stacks.is_empty() {
            let _ = writeln!(text, "\nCall stacks by what was live {of}");
            text += &self.stacks(style);
        }
        text
    }

    /// Those that have call stacks, the first, the last, and the highest.
    fn snapshots(&self, style: Style) -> String {
        let all = &self.profile.snapshots;
        let step = all.len().div_ceil(self.top.max(2)).max(1);
        let most = (0..all.len()).rev().max_by_key(|&number| all[number].total());
        let shown = all.iter().enumerate().filter(|(number, _)| {
            let is_wanted = Some(*number) == most || Some(*number) == self.profile.of;
            number % step == 0 || number + 1 == all.len() || is_wanted
        });
        let rows = shown.map(|(number, snapshot)| {
            let cells = [
                number.to_string(),
                self.time(snapshot.time),
                bytes(snapshot.heap),
                bytes(snapshot.extra),
                bytes(snapshot.stacks),
            ];
            cells.map(Text::from).to_vec()
        });
        let align = [Align::Right, Align::Left, Align::Right, Align::Right, Align::Right];
        table::render(style, &align, &["snapshot", "time", "heap", "extra", "stacks"], rows.collect())
    }

    fn stacks(&self, style: Style) -> String {
        let rows = self.profile.stacks.iter().take(self.top).map(|stack| {
            let most = if self.all { stack.frames.len() } else { 1 + CALLERS };
            let names: Vec<String> = stack.frames.iter().take(most).map(|frame| shown(frame)).collect();
            let names =
                if names.is_empty() { String::from("(no stack recorded)") } else { names.join("\n  < ") };
            let allocated = stack.allocated.map_or_else(|| String::from("-"), sum);
            [sum(stack.live), allocated, names].map(Text::from).to_vec()
        });
        table::render(
            style,
            &[Align::Right, Align::Right, Align::Left],
            &["live", "allocated", "where"],
            rows.collect(),
        )
    }

    /// As JSON.
    pub fn json(&self) -> Value {
        let profile = self.profile;
        let sum = |sum: Sum| json!({"blocks": sum.blocks, "bytes": sum.bytes});
        let snapshots = profile.snapshots.iter().map(|snapshot| {
            json!({
                "time": snapshot.time,
                "heap_bytes": snapshot.heap,
                "extra_bytes": snapshot.extra,
                "stack_bytes": snapshot.stacks,
                "detailed": snapshot.is_detailed,
            })
        });
        let stacks = profile.stacks.iter().map(|stack| {
            json!({"live": sum(stack.live), "allocated": stack.allocated.map(sum), "frames": stack.frames})
        });
        json!({
            "schema": "quarry-profile-of/1",
            "file": self.file,
            "format": self.format.name(),
            "command": profile.command,
            "sample_bytes": profile.sample,
            "time_unit": profile.unit,
            "snapshots": snapshots.collect::<Vec<_>>(),
            "stacks_of_snapshot": profile.of,
            "stacks_of_peak": profile.of_peak,
            "live": sum(profile.live()),
            "allocated": profile.allocated().map(sum),
            "stacks": stacks.collect::<Vec<_>>(),
            "remarks": profile.remarks,
        })
    }
}
