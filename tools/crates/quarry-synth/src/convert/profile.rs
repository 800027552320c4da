// SPDX-License-Identifier: MIT
//! Files of other tools that say what was live, and not how it came: snapshots, and sums by call stack. No trace can be made of
//! them, since the calls are not in them.

use quarry_symbols::Symbols;

use super::input::Input;
use super::{Error, Format, jeprof_read, massif_read};

/// What was live at a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// In the unit of the profile.
    pub time: u64,
    /// Bytes that the program had asked for.
    pub heap: u64,
    /// Bytes that the heap took beside these.
    pub extra: u64,
    /// Bytes of stacks of threads.
    pub stacks: u64,
    /// Has it call stacks?
    pub is_detailed: bool,
}

impl Snapshot {
    /// All bytes.
    pub fn total(&self) -> u64 {
        self.heap.saturating_add(self.extra).saturating_add(self.stacks)
    }
}

/// Blocks and bytes; the number of blocks may be unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sum {
    /// Blocks.
    pub blocks: Option<u64>,
    /// Bytes.
    pub bytes: u64,
}

/// A call stack.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stack {
    /// The innermost first.
    pub frames: Vec<String>,
    /// What was live of it.
    pub live: Sum,
    /// What was allocated by it, if that is known.
    pub allocated: Option<Sum>,
}

/// What such a file says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Profile {
    /// The command, if it is known.
    pub command: String,
    /// The unit of times: "i" instructions, "ms", "B" bytes that were allocated and freed. Empty: there are none.
    pub unit: String,
    /// In the order of time.
    pub snapshots: Vec<Snapshot>,
    /// The snapshot that the stacks are of, where there are snapshots.
    pub of: Option<usize>,
    /// Is that the one with most bytes?
    pub of_peak: bool,
    /// Those that had most first.
    pub stacks: Vec<Stack>,
    /// Does it know how many blocks there were? Massif does not.
    pub counts_blocks: bool,
    /// One byte in so many was drawn, and sums are estimates; 0: all were.
    pub sample: u64,
    /// What was left out, or is odd.
    pub remarks: Vec<String>,
    /// Is a part of it missing?
    pub damaged: bool,
}

impl Profile {
    /// Read a file of such a format. `symbols` makes what names addresses.
    pub fn read(
        format: Format,
        input: Input,
        symbols: impl FnOnce(Symbols) -> Symbols,
    ) -> Result<Self, Error> {
        let mut profile = match format {
            Format::Massif => massif_read::read(input)?,
            _ => jeprof_read::read(input, symbols)?,
        };
        profile.counts_blocks = format != Format::Massif;
        profile.stacks.sort_by(|one, other| {
            let key = |stack: &Stack| (stack.live.bytes, stack.allocated.map_or(0, |sum| sum.bytes));
            key(other).cmp(&key(one)).then_with(|| one.frames.cmp(&other.frames))
        });
        Ok(profile)
    }

    /// All that was live, by the stacks.
    pub fn live(&self) -> Sum {
        let all = sum(self.stacks.iter().map(|stack| stack.live));
        Sum { blocks: all.blocks.filter(|_| self.counts_blocks), ..all }
    }

    /// All that was allocated, by the stacks.
    pub fn allocated(&self) -> Option<Sum> {
        let all: Option<Vec<Sum>> = self.stacks.iter().map(|stack| stack.allocated).collect();
        all.filter(|all| !all.is_empty()).map(|all| sum(all.into_iter()))
    }

    /// What there is instead of events, in words.
    pub fn holds(format: Format) -> &'static str {
        match format {
            Format::Massif => "snapshots of what was live",
            _ => "sums by call stack",
        }
    }
}

fn sum(sums: impl Iterator<Item = Sum>) -> Sum {
    sums.fold(Sum { blocks: Some(0), bytes: 0 }, |all, one| Sum {
        blocks: all.blocks.zip(one.blocks).map(|(all, one)| all.saturating_add(one)),
        bytes: all.bytes.saturating_add(one.bytes),
    })
}
