// SPDX-License-Identifier: MIT
//! What happened to the process.

use crate::event::{Event, What};

/// Most notes of each kind that are kept.
const MOST: usize = 256;
/// Most characters that are kept of a note.
const TEXT: usize = 256;

/// What happened to the process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Notes {
    /// Children that were forked.
    pub forks: Vec<u32>,
    /// Programs that it called exec for: all but the last call have failed, and perhaps that one.
    pub execs: Vec<String>,
    /// Its status, if it ended.
    pub exit: Option<u32>,
    /// The first notes of the program, with their ticks.
    pub marks: Vec<(u64, String)>,
}

/// As much of a text as is kept.
pub(super) fn short(text: &str) -> String {
    text.chars().take(TEXT).collect()
}

impl Notes {
    pub(super) fn add(&mut self, event: &Event) {
        match &event.what {
            What::Fork { child } if self.forks.len() < MOST => self.forks.push(*child),
            What::Exec(program) => {
                // The last one has to be known.
                self.execs.truncate(MOST - 1);
                self.execs.push(short(program));
            }
            What::Exit { status } => self.exit = Some(*status),
            What::Mark(note) if self.marks.len() < MOST => self.marks.push((event.time, short(note))),
            _ => {}
        }
    }
}
