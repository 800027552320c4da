// SPDX-License-Identifier: MIT
//! Quarry's own traces, as a source and as a sink.

use std::io::Write;

use quarry_trace::{
    End, Event, Head, Merged, PoolWhat, StackId, StackNode, ThreadId, Trace, TraceWriter, What, WriteOptions,
};

use super::{Error, Item, Losses, Sink, Source};
use crate::hash::Map;

/// The stack that an event names, if it can name one.
pub(super) fn stack_of(what: &mut What) -> Option<&mut StackId> {
    match what {
        What::Alloc { stack, .. } | What::Realloc { stack, .. } => Some(stack),
        What::Pool { what: PoolWhat::Alloc { stack, .. } | PoolWhat::Resized { stack, .. }, .. } => {
            Some(stack)
        }
        _ => None,
    }
}

/// Reads a trace.
pub struct QtrSource<'t> {
    trace: &'t Trace,
    events: Merged<'t>,
    /// Stacks that were given, and how many events were seen by then.
    given: Map<StackId, u64>,
    /// Nodes to be given, the next one last, and the event behind them.
    waiting: Vec<StackNode>,
    event: Option<(Event, u64)>,
    /// Events whose stack is not in the file.
    orphans: u64,
    last: u64,
    seen: u64,
}

impl<'t> QtrSource<'t> {
    /// Begin to read.
    pub fn new(trace: &'t Trace) -> Self {
        Self {
            trace,
            events: trace.events().keep_stacks(),
            given: Map::default(),
            waiting: Vec::new(),
            event: None,
            orphans: 0,
            last: trace.head().start_ticks,
            seen: 0,
        }
    }

    /// Note the nodes of a stack that were not given yet, however many there are.
    fn wait(&mut self, mut id: StackId) {
        let Some(tree) = self.events.stacks() else { return };
        while let Some(node) = tree.get(id) {
            if let Some(before) = self.given.insert(id, self.seen) {
                self.given.insert(id, before);
                if before < self.seen {
                    return;
                }
                // A ring, which only a damaged trace has.
                break;
            }
            self.waiting.push(node);
            id = node.parent;
        }
        // Its caller is not in the file, or comes behind it.
        if let Some(outermost) = self.waiting.last_mut() {
            outermost.parent = 0;
        }
    }

    fn thread(&self) -> ThreadId {
        self.event.as_ref().map_or(1, |(event, _)| event.thread)
    }
}

impl Source for QtrSource<'_> {
    fn head(&self) -> &Head {
        self.trace.head()
    }

    fn next_item(&mut self) -> Option<Result<Item, Error>> {
        if let Some(node) = self.waiting.pop() {
            return Some(Ok(Item::Stack(self.thread(), node)));
        }
        if let Some((event, ns)) = self.event.take() {
            return Some(Ok(Item::Event(event, ns)));
        }
        let mut event = match self.events.next()? {
            Ok(event) => event,
            Err(error) => return Some(Err(error.into())),
        };
        self.last = self.last.max(event.time);
        self.seen += 1;
        let ns = self.trace.ticks_to_ns(event.time);
        if let Some(stack) = stack_of(&mut event.what)
            && *stack != 0
            && !self.given.contains_key(stack)
        {
            let id = *stack;
            if self.events.stacks().is_some_and(|tree| tree.get(id).is_some()) {
                self.event = Some((event, ns));
                self.wait(id);
                return self.next_item();
            }
            *stack = 0;
            self.orphans += 1;
        }
        Some(Ok(Item::Event(event, ns)))
    }

    fn end(&self) -> End {
        let unknown =
            || End { reason: "cut off".into(), end_ticks: self.last, events: self.seen, ..End::default() };
        self.trace.end().cloned().unwrap_or_else(unknown)
    }

    fn done(&self) -> u64 {
        self.events.bytes_read()
    }

    fn length(&self) -> u64 {
        self.trace.bytes()
    }

    fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        for damage in [self.trace.damage(), self.events.damage()] {
            if !damage.is_empty() {
                remarks.push(damage.to_string());
            }
        }
        if self.trace.end().is_none() {
            remarks.push(String::from("the trace has no end: the program was killed, or is still running"));
        }
        if self.orphans > 0 {
            remarks.push(format!(
                "{} without the stack that is named: it is not in the file",
                quarry_measure::units::of(self.orphans, "event")
            ));
        }
        remarks
    }

    fn texts(&self) -> Vec<Vec<u8>> {
        self.trace.texts().collect()
    }

    fn damaged(&self) -> bool {
        !self.trace.damage().is_empty() || !self.events.damage().is_empty()
    }
}

/// Writes a trace.
pub struct QtrSink<W: Write> {
    /// `None` after the end.
    writer: Option<TraceWriter<W>>,
    events: u64,
    losses: Losses,
}

impl<W: Write> QtrSink<W> {
    /// Begin to write.
    pub fn new(output: W, head: &Head, options: WriteOptions) -> Result<Self, Error> {
        let writer = TraceWriter::create(output, head, options).map_err(Error::Write)?;
        Ok(Self { writer: Some(writer), events: 0, losses: Losses::default() })
    }
}

impl<W: Write> Sink for QtrSink<W> {
    fn item(&mut self, item: &Item) -> Result<(), Error> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        match item {
            Item::Event(event, _) => {
                self.events += 1;
                writer.event(event)
            }
            Item::Stack(thread, node) => writer.stack(*thread, node),
        }
        .map_err(Error::Write)
    }

    fn text(&mut self, text: &[u8]) -> Result<(), Error> {
        self.writer.as_mut().map_or(Ok(()), |writer| writer.text(text)).map_err(Error::Write)
    }

    fn finish(&mut self, end: &End) -> Result<(), Error> {
        let end = End { events: self.events, ..end.clone() };
        self.writer.take().map_or(Ok(()), |writer| writer.finish(&end).map(drop)).map_err(Error::Write)
    }

    fn losses(&self) -> &Losses {
        &self.losses
    }
}
