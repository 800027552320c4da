// SPDX-License-Identifier: MIT
//! What the text formats have in common that know one thread and no clock: each event takes a tick, and around them stand
//! the birth and the end of the thread. A [`Text`] says what its lines mean; [`TextSource`] is the source it makes.

use std::collections::VecDeque;

use quarry_symbols::Names;
use quarry_trace::{End, Event, Head, StackNode, What};

use super::{Error, Item, Source};

/// What was read and not yet asked for.
#[derive(Debug, Default)]
pub struct Queue {
    items: VecDeque<Item>,
    time: u64,
    /// The next event is not before.
    least: u64,
    events: u64,
}

impl Queue {
    /// An event, a tick behind the last one.
    pub(super) fn event(&mut self, what: What) {
        self.time = self.time.saturating_add(1).max(self.least);
        self.events += 1;
        self.items.push_back(Item::Event(Event { time: self.time, thread: 1, what }, self.time));
    }

    /// A node of the tree of stacks.
    pub(super) fn stack(&mut self, node: StackNode) {
        self.items.push_back(Item::Stack(1, node));
    }

    /// What follows happens at this time at the earliest.
    pub(super) fn not_before(&mut self, time: u64) {
        self.least = self.least.max(time);
    }

    /// Events so far.
    pub(super) fn events(&self) -> u64 {
        self.events
    }
}

/// A format: what its lines, or words, mean.
pub trait Text {
    /// Read on, by a line or some; what they say goes to the queue. False: there is nothing more.
    fn advance(&mut self, queue: &mut Queue) -> Result<bool, Error>;
    /// Bytes that are read.
    fn done(&self) -> u64;
    /// Bytes there are; 0: not known.
    fn length(&self) -> u64;
    /// What was left out, or is odd.
    fn remarks(&self, queue: &Queue) -> Vec<String>;
    /// Does it end in the middle?
    fn is_cut(&self) -> bool;
    /// The names of stacks that stand in it, so far.
    fn names(&self) -> Names {
        Names::default()
    }
}

/// Reads a text.
pub struct TextSource<T> {
    head: Head,
    text: T,
    queue: Queue,
    ended: bool,
}

impl<T: Text> TextSource<T> {
    /// Begin, behind what the head was made of.
    pub(super) fn begin(head: Head, text: T) -> Self {
        let mut queue = Queue::default();
        queue.event(What::ThreadBegin { tid: 1, creator: 0 });
        Self { head, text, queue, ended: false }
    }

    /// The format.
    pub(super) fn text(&self) -> &T {
        &self.text
    }
}

impl<T: Text> Source for TextSource<T> {
    fn head(&self) -> &Head {
        &self.head
    }

    fn next_item(&mut self) -> Option<Result<Item, Error>> {
        loop {
            if let Some(item) = self.queue.items.pop_front() {
                return Some(Ok(item));
            }
            if self.ended {
                return None;
            }
            match self.text.advance(&mut self.queue) {
                Ok(true) => {}
                Ok(false) => {
                    self.ended = true;
                    self.queue.event(What::ThreadEnd);
                }
                Err(error) => {
                    self.ended = true;
                    self.queue.items.clear();
                    return Some(Err(error));
                }
            }
        }
    }

    fn end(&self) -> End {
        let reason = if self.text.is_cut() { "cut off" } else { "exit" };
        let Queue { time, events, .. } = self.queue;
        End { reason: reason.into(), end_ticks: time, events, ..End::default() }
    }

    fn done(&self) -> u64 {
        self.text.done()
    }

    fn length(&self) -> u64 {
        self.text.length()
    }

    fn remarks(&self) -> Vec<String> {
        self.text.remarks(&self.queue)
    }

    fn texts(&self) -> Vec<Vec<u8>> {
        self.text.names().texts()
    }

    fn names(&self) -> Names {
        self.text.names()
    }

    fn damaged(&self) -> bool {
        self.text.is_cut()
    }
}
