// SPDX-License-Identifier: MIT
//! From one format of traces to another. A [`Source`] gives items in the order of time, a [`Sink`] takes them; what a
//! format cannot hold is counted in [`Losses`].

pub mod csv;
pub mod detect;
mod files;
pub mod gathered;
pub mod heaptrack;
mod heaptrack_write;
pub mod input;
mod jeprof_read;
pub mod jeprof_write;
pub mod json_lines;
mod massif_read;
pub mod massif_write;
pub mod mtrace;
mod mtrace_files;
mod mtrace_write;
pub mod output;
#[cfg(feature = "parquet")]
pub mod parquet;
pub mod profile;
pub mod qtr;
pub mod rows;
pub mod simulation;
pub mod text;

use std::collections::BTreeMap;
use std::io;

use quarry_symbols::Names;
use quarry_trace::sample::{Means, Sampling};
use quarry_trace::{End, Event, Head, StackNode, ThreadId, TraceError, What};
use thiserror::Error;

use crate::ms::MsError;

pub use detect::Format;

/// One thing of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// An event, and its time in nanoseconds since the beginning.
    Event(Event, u64),
    /// A node of the tree of stacks; it comes before the events that use it, and behind its parent.
    Stack(ThreadId, StackNode),
}

/// Where a trace comes from.
pub trait Source {
    /// What is known of it.
    fn head(&self) -> &Head;
    /// The next item; after `None` and after an error there is none.
    fn next_item(&mut self) -> Option<Result<Item, Error>>;
    /// How it ends; known behind the last item.
    fn end(&self) -> End;
    /// How much of [`Source::length`] is done.
    fn done(&self) -> u64;
    /// How long it is, in units of its own; 0: not known.
    fn length(&self) -> u64;
    /// What was left out, or is odd, so far.
    fn remarks(&self) -> Vec<String>;
    /// What tools have put into it: JSON, see the format of Quarry's traces.
    fn texts(&self) -> Vec<Vec<u8>> {
        Vec::new()
    }
    /// Names of stacks that are known already. A source that is read once knows its own behind the last item.
    fn names(&self) -> Names {
        Names::of_texts(self.texts())
    }
    /// Is a part of it missing?
    fn damaged(&self) -> bool {
        false
    }
}

/// Where a trace goes.
pub trait Sink {
    /// Take an item.
    fn item(&mut self, item: &Item) -> Result<(), Error>;
    /// Take what a tool has put into the trace, if there is a place for it.
    fn text(&mut self, _text: &[u8]) -> Result<(), Error> {
        Ok(())
    }
    /// That was all. Everything is written then.
    fn finish(&mut self, end: &End) -> Result<(), Error>;
    /// What could not be written.
    fn losses(&self) -> &Losses;
}

/// What a format cannot hold: so many of each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Losses(BTreeMap<&'static str, u64>);

impl Losses {
    /// One more.
    pub fn add(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    /// An event that a format of blocks alone cannot hold. Where threads begin and end, nothing is lost.
    fn left_out(&mut self, what: &What) {
        match what {
            What::ThreadBegin { .. } | What::ThreadEnd | What::ThreadGone => {}
            What::Failed { .. } => self.add("calls that failed"),
            What::Pool { .. } => self.add("events of pools"),
            _ => self.add("other events"),
        }
    }

    /// A stack has more frames than are written of it.
    pub fn cut(&mut self) {
        self.add("the outermost frames of deep stacks");
    }

    /// An event of this thread goes to a format that knows one. `first` is whose was the first event.
    fn thread(&mut self, first: &mut Option<ThreadId>, thread: ThreadId) {
        if *first.get_or_insert(thread) != thread {
            self.add("events of other threads, which are in one file with those of the first");
        }
    }

    /// What and how many.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.0.iter().map(|(&what, &count)| (what, count))
    }

    /// How many of one.
    pub fn count(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or(0)
    }
}

/// Why a trace cannot be converted.
#[derive(Debug, Error)]
pub enum Error {
    /// The input cannot be read.
    #[error("cannot be read: {0}")]
    Read(#[source] io::Error),
    /// The output cannot be written.
    #[error("cannot be written: {0}")]
    Write(#[source] io::Error),
    /// A line of text that makes no sense.
    #[error("line {line}: {what}")]
    Line {
        /// from 1
        line: u64,
        /// what is wrong with it
        what: String,
    },
    /// A simulation file that makes no sense.
    #[error(transparent)]
    Ms(#[from] MsError),
    /// A trace that cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// More blocks at a time than a plain simulation file has slots.
    #[error("more than {0} blocks live at a time, and a .ms file has no more slots; say --wide to use more")]
    Slots(u32),
    /// It is not of any format that is known.
    #[error("{0}")]
    Unknown(String),
}

impl Error {
    fn line(line: u64, what: impl Into<String>) -> Self {
        Error::Line { line, what: what.into() }
    }
}

/// A head for a trace that comes from elsewhere: its clock is not real.
fn synthetic(writer: &str) -> Head {
    Head {
        clock: "synthetic".into(),
        ticks_per_second: crate::synth::engine::TICKS_PER_SECOND,
        stacks: "none".into(),
        pointer: 8,
        writer: writer.into(),
        ..Head::default()
    }
}

/// Nanoseconds since the beginning, by the head's clock alone.
fn nanoseconds(head: &Head, ticks: u64) -> u64 {
    let since = u128::from(ticks.saturating_sub(head.start_ticks));
    let per_second = if head.ticks_per_second == 0 { 1_000_000_000 } else { head.ticks_per_second };
    u64::try_from(since * 1_000_000_000 / u128::from(per_second)).unwrap_or(u64::MAX)
}

/// What was copied.
#[derive(Debug, Clone, Copy)]
pub struct Copied {
    /// How many events.
    pub events: u64,
    /// The rates at which blocks were drawn, of a sample.
    pub means: Means,
}

/// Hands all items of a source to a sink. `each` is called now and then with what is done.
pub fn copy(
    source: &mut dyn Source,
    sink: &mut dyn Sink,
    mut each: impl FnMut(u64),
) -> Result<Copied, Error> {
    const OFTEN: u64 = 1 << 14;
    let mut copied = Copied { events: 0, means: Means::of(Sampling::of(source.head())) };
    while let Some(item) = source.next_item() {
        let item = item?;
        if let Item::Event(event, _) = &item {
            copied.events += 1;
            if copied.events.is_multiple_of(OFTEN) {
                each(source.done());
            }
            if let What::Sampled { mean } = event.what
                && copied.means.most > 0
            {
                copied.means.add(mean);
            }
        }
        sink.item(&item)?;
    }
    for text in source.texts() {
        sink.text(&text)?;
    }
    sink.finish(&source.end())?;
    Ok(copied)
}

#[cfg(test)]
mod tests;
