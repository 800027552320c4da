// SPDX-License-Identifier: MIT
//! A whole trace, summed up by call stack: what the formats have that are written at the end.

use quarry_symbols::{Names, Symbols};
use quarry_trace::analysis::{Analysis, Summary};
use quarry_trace::sample::Sampling;
use quarry_trace::{Head, StackTree};

use super::Item;

/// Takes the items of a trace.
pub struct Gathered {
    analysis: Analysis,
    stacks: StackTree,
    names: Names,
    recorded_ns: u64,
}

/// What a trace said.
pub struct Whole {
    /// Its sums.
    pub summary: Summary,
    /// Its call stacks.
    pub stacks: StackTree,
    /// What names these.
    pub symbols: Symbols,
}

impl Gathered {
    /// Of a trace with this head.
    pub fn new(head: &Head) -> Self {
        Self {
            analysis: Analysis::of(Sampling::of(head)),
            stacks: StackTree::new(),
            names: Names::default(),
            recorded_ns: head.start_unix_ns,
        }
    }

    /// Take an item.
    pub fn item(&mut self, item: &Item) {
        match item {
            Item::Stack(_, node) => self.stacks.add(node),
            Item::Event(event, _) => self.analysis.add(event),
        }
    }

    /// Take what a tool has put into the trace.
    pub fn text(&mut self, text: &[u8]) {
        self.names.add_text(text);
    }

    /// The sums so far.
    pub fn analysis(&self) -> &Analysis {
        &self.analysis
    }

    /// That was all.
    pub fn finish(self) -> Whole {
        let summary = self.analysis.finish(0);
        let symbols =
            Symbols::named(self.names).recorded_at(self.recorded_ns).with_modules(summary.modules.clone());
        Whole { summary, stacks: self.stacks, symbols }
    }
}
