// SPDX-License-Identifier: MIT
//! A whole trace, summed up by call stack: what the formats have that are written at the end.

use std::io;

use quarry_symbols::{Names, Symbols};
use quarry_trace::analysis::{Analysis, Summary};
use quarry_trace::classes::Classes;
use quarry_trace::sample::Sampling;
use quarry_trace::{End, Event, Head, StackTree, What};

use super::{Error, Item, Losses, Sink};

/// A format that is written when all of a trace is known.
pub trait Late {
    /// Take note of an event, `ns` nanoseconds after the beginning; `analysis` has it already.
    fn note(&mut self, _event: &Event, _ns: u64, _analysis: &Analysis) {}

    /// Write it. Frames that are left out are counted.
    fn write(&mut self, whole: &mut Whole, losses: &mut Losses) -> io::Result<()>;
}

/// Sums up a trace, and then writes it.
pub struct LateSink<F> {
    pub(super) format: F,
    /// `None` behind the end.
    gathered: Option<Gathered>,
    losses: Losses,
}

impl<F: Late> LateSink<F> {
    /// Of a trace with this head.
    pub fn of(head: &Head, format: F) -> Self {
        Self { format, gathered: Some(Gathered::new(head)), losses: Losses::default() }
    }
}

impl<F: Late> Sink for LateSink<F> {
    fn item(&mut self, item: &Item) -> Result<(), Error> {
        let Some(gathered) = &mut self.gathered else { return Ok(()) };
        gathered.item(item);
        if let Item::Event(event, ns) = item {
            self.format.note(event, *ns, &gathered.analysis);
            if matches!(event.what, What::Pool { .. }) {
                self.losses.add("events of pools");
            }
        }
        Ok(())
    }

    fn text(&mut self, text: &[u8]) -> Result<(), Error> {
        self.gathered.iter_mut().for_each(|gathered| gathered.text(text));
        Ok(())
    }

    fn finish(&mut self, _: &End) -> Result<(), Error> {
        let Some(gathered) = self.gathered.take() else { return Ok(()) };
        self.format.write(&mut gathered.finish(), &mut self.losses).map_err(Error::Write)
    }

    fn losses(&self) -> &Losses {
        &self.losses
    }
}

/// Takes the items of a trace.
struct Gathered {
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
    fn new(head: &Head) -> Self {
        Self {
            analysis: Analysis::of(Sampling::of(head)).with_classes(Classes::of(&head.malloc)),
            stacks: StackTree::new(),
            names: Names::default(),
            recorded_ns: head.start_unix_ns,
        }
    }

    fn item(&mut self, item: &Item) {
        match item {
            Item::Stack(_, node) => self.stacks.add(node),
            Item::Event(event, _) => self.analysis.add(event),
        }
    }

    fn text(&mut self, text: &[u8]) {
        self.names.add_text(text);
    }

    fn finish(self) -> Whole {
        let summary = self.analysis.finish(0);
        let symbols =
            Symbols::named(self.names).recorded_at(self.recorded_ns).with_modules(summary.modules.clone());
        Whole { summary, stacks: self.stacks, symbols }
    }
}
