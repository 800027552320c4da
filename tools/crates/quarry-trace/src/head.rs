// SPDX-License-Identifier: MIT
//! The JSON of a trace's first and last block.

use serde::{Deserialize, Serialize};

/// The format's name.
pub(crate) const FORMAT: &str = "quarry-trace/1";

/// What the first block says. All but `format` may be missing, and is then zero or empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Head {
    /// "quarry-trace/1"
    pub format: String,
    /// The process's number.
    pub process: u32,
    /// Its parent's.
    pub parent: u32,
    /// The file it runs.
    pub program: String,
    /// What was typed.
    pub command: Vec<String>,
    /// Was it longer than the room for it?
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub command_cut: bool,
    /// Blocks begin at multiples of this many bytes; 0: anywhere.
    pub grain: u64,
    /// Bytes of a page.
    pub page: u64,
    /// What ticks are of: "tsc", "monotonic", "counter", "synthetic".
    pub clock: String,
    /// Ticks of a second, whatever the clock; 0 if not known.
    pub ticks_per_second: u64,
    /// Ticks at the beginning.
    pub start_ticks: u64,
    /// The monotonic clock at the beginning.
    pub start_monotonic_ns: u64,
    /// The wall clock at the beginning, since 1970.
    pub start_unix_ns: u64,
    /// The library whose malloc is called.
    pub malloc: String,
    /// How stacks were taken: "none", "fp", "cfi".
    pub stacks: String,
    /// Mean bytes between two sampled allocations; 0: all are recorded.
    pub sample: u64,
    /// Bytes of a pointer.
    pub pointer: u32,
    /// Who wrote the trace.
    pub writer: String,
    /// The processor, as uname has it.
    pub machine: String,
}

impl Default for Head {
    fn default() -> Self {
        Self {
            format: FORMAT.into(),
            process: 0,
            parent: 0,
            program: String::new(),
            command: Vec::new(),
            command_cut: false,
            grain: 0,
            page: 0,
            clock: String::new(),
            ticks_per_second: 0,
            start_ticks: 0,
            start_monotonic_ns: 0,
            start_unix_ns: 0,
            malloc: String::new(),
            stacks: String::new(),
            sample: 0,
            pointer: 0,
            writer: String::new(),
            machine: String::new(),
        }
    }
}

impl Head {
    /// What was typed, or the program where that is not known. `…` stands for what was cut off.
    pub fn command_line(&self) -> String {
        let mut line = if self.command.is_empty() { self.program.clone() } else { self.command.join(" ") };
        if self.command_cut {
            line += " …";
        }
        line
    }
}

/// What the last block says. A trace without one was cut off.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct End {
    /// "exit", "_exit", "exec", "crash", "killed", "disk full", ...
    pub reason: String,
    /// The signal that ended the process, where its parent has told that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<u32>,
    /// The status that it left with, where no event tells that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u32>,
    /// Ticks at the end.
    pub end_ticks: u64,
    /// The monotonic clock at the end.
    pub end_monotonic_ns: u64,
    /// Events that were written.
    pub events: u64,
    /// Events that were not.
    pub lost: u64,
    /// What the process itself says of its live blocks at the end. A sample leaves most of them out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live: Option<Counted>,
    /// Bytes of the file, if it was known; not written again, as that is of this file only.
    #[serde(skip_serializing)]
    pub bytes: u64,
}

/// What a heap counted of its live blocks: all of them, sampled or not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counted {
    /// When its classes were counted, by the monotonic clock.
    pub at_ns: u64,
    /// Bytes of all live blocks, as large as they are in the heap.
    pub live_bytes: u64,
    /// Were blocks sampled from the start of the process on? If not, older ones live that were not drawn.
    pub whole: bool,
    /// Blocks that are of no class, and ...
    pub large_blocks: u64,
    /// ... their bytes.
    pub large_bytes: u64,
    /// Sizes of blocks, and how many live.
    pub classes: Vec<(u32, u64)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_was_cut_stays_so() {
        let cut =
            r#"{"format":"quarry-trace/1","program":"/bin/prog","command":["prog","a"],"command_cut":true}"#;
        let head: Head = serde_json::from_str(cut).unwrap();
        assert_eq!(head.command_line(), "prog a …");
        let again: Head = serde_json::from_str(&serde_json::to_string(&head).unwrap()).unwrap();
        assert_eq!(again, head);
        assert_eq!(Head { command: Vec::new(), ..head }.command_line(), "/bin/prog …");
        assert!(!serde_json::to_string(&Head::default()).unwrap().contains("command_cut"));
    }

    #[test]
    fn what_is_missing_is_zero_and_what_is_unknown_ignored() {
        let head: Head =
            serde_json::from_str(r#"{"format":"quarry-trace/1","process":7,"later":{"a":[1]}}"#).unwrap();
        assert_eq!(head, Head { process: 7, ..Head::default() });
        let end: End = serde_json::from_str(r#"{"reason":"exit"}"#).unwrap();
        assert_eq!(end, End { reason: "exit".into(), ..End::default() });
    }
}
