// SPDX-License-Identifier: MIT
//! The events of one thread, in its own order.

mod skim;

use crate::block::HEAD;
use crate::damage::Why;
use crate::decode::{Record, State, record};
use crate::error::TraceError;
use crate::event::{Event, ThreadId, What};
use crate::reading::{Opened, Reading};
use crate::scan::BlockRef;
use crate::wire::{Bytes, Stop};

pub use skim::Counts;

/// Reads the blocks of a thread one after the other.
#[derive(Debug)]
pub(crate) struct Cursor<'a> {
    thread: ThreadId,
    blocks: std::slice::Iter<'a, BlockRef>,
    /// The one that is being read.
    block: Option<(BlockRef, Opened)>,
    state: State,
    /// A piece of its payload, and how far that is decoded.
    bytes: Vec<u8>,
    at: usize,
    /// Of the payload, the end of the piece.
    end: usize,
    touched: Option<u64>,
    /// Of the last event's record.
    tag: u8,
    /// The highest time so far.
    last: u64,
    backwards: bool,
    /// Records decoded so far.
    pub records: u64,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(thread: ThreadId, blocks: &'a [BlockRef]) -> Self {
        Self {
            thread,
            blocks: blocks.iter(),
            block: None,
            state: State::new(thread, 0, 0),
            bytes: Vec::new(),
            at: 0,
            end: 0,
            touched: None,
            tag: 0,
            last: 0,
            backwards: false,
            records: 0,
        }
    }

    /// The next event; `None` at the end of the thread.
    #[inline]
    pub(crate) fn next_event(&mut self, reading: &mut Reading<'a>) -> Result<Option<Event>, TraceError> {
        loop {
            let mut from = Bytes::new(&self.bytes, self.at);
            let record = record(&mut from, &mut self.state);
            if let Ok(Record::Event(mut event)) = record {
                self.tag = self.bytes.get(self.at).copied().unwrap_or(0);
                self.at = from.at;
                self.records += 1;
                if self.touched.is_some() {
                    self.touch(&mut event);
                }
                if event.time < self.last {
                    self.backwards(&mut event, reading);
                }
                self.last = event.time;
                return Ok(Some(event));
            }
            let at = from.at;
            if !self.other(record, at, reading)? {
                return Ok(None);
            }
        }
    }

    /// Anything but an event; is there more to read?
    #[inline(never)]
    fn other(
        &mut self,
        record: Result<Record, Stop>,
        at: usize,
        reading: &mut Reading<'a>,
    ) -> Result<bool, TraceError> {
        match record {
            Ok(Record::End) => return self.next_block(reading),
            Ok(Record::Stack(node)) => {
                if let Some(stacks) = &mut reading.stacks {
                    stacks.add(&node);
                }
            }
            Ok(Record::Touched(bytes)) => self.touched = Some(bytes),
            Ok(Record::Extension | Record::Event(_)) => {}
            Err(Stop::Short) => return self.short(reading),
            Err(Stop::Bad(why)) => {
                self.damaged(Why::Record(why), reading);
                return self.next_block(reading);
            }
        }
        self.at = at;
        self.records += 1;
        Ok(true)
    }

    /// The piece ends here or within a record.
    fn short(&mut self, reading: &mut Reading<'a>) -> Result<bool, TraceError> {
        if let Some((block, opened)) = &self.block
            && self.end < opened.total
        {
            // A record that is longer than a piece is read into a longer one.
            let rest = self.bytes.len() - self.at;
            let from = self.end - rest;
            let before = self.bytes.capacity();
            let all = reading.more(block, opened, from, 2 * rest, &mut self.bytes)?;
            reading.resized(before, self.bytes.capacity());
            self.at = 0;
            self.end = from + self.bytes.len();
            if self.bytes.len() > rest {
                return Ok(true);
            }
            let shorter = Why::Record("the payload is gone"); // the file has become so
            self.damaged(all.err().unwrap_or(shorter), reading);
        } else if let Some((block, _)) = &self.block
            && self.at < self.bytes.len()
            && block.whole
        {
            self.damaged(Why::Record("the payload ends within it"), reading);
        }
        self.next_block(reading)
    }

    fn damaged(&self, why: Why, reading: &mut Reading<'a>) {
        if let Some((block, opened)) = &self.block {
            let done = self.end - (self.bytes.len() - self.at);
            let left_out = opened.total - done.min(opened.total);
            // Within a packed payload places have no offset in the file.
            let (offset, left_out) = match opened.head.is_packed() {
                true => (block.offset, left_out.min(block.used as usize)),
                false => (block.offset + (HEAD + done) as u64, left_out),
            };
            reading.damage.add(offset, left_out as u64, why);
        }
    }

    fn next_block(&mut self, reading: &mut Reading<'a>) -> Result<bool, TraceError> {
        for &block in self.blocks.by_ref() {
            // What this cursor holds counts as free for itself.
            reading.resized(self.bytes.capacity(), 0);
            let opened = reading.open(&block, self.thread, &mut self.bytes)?;
            if self.bytes.capacity() > 4 * self.bytes.len() + 256 {
                // Small payloads are not to keep the room of a large one.
                self.bytes.shrink_to_fit();
            }
            reading.resized(0, self.bytes.capacity());
            if let Some(opened) = opened {
                self.at = opened.start;
                self.end = self.bytes.len() - opened.start;
                self.state = State::new(self.thread, opened.head.time, opened.head.address);
                self.block = Some((block, opened));
                return Ok(true);
            }
        }
        self.block = None;
        reading.resized(self.bytes.capacity(), 0);
        self.bytes = Vec::new();
        (self.at, self.end) = (0, 0);
        Ok(false)
    }

    #[cold]
    fn touch(&mut self, event: &mut Event) {
        let bytes = self.touched.take();
        if let What::Free { touched, .. } = &mut event.what {
            *touched = bytes;
        }
    }

    /// Times of a thread never go back; what was damaged is held at its highest.
    #[cold]
    fn backwards(&mut self, event: &mut Event, reading: &mut Reading<'a>) {
        if !self.backwards {
            self.backwards = true;
            let offset = self.block.as_ref().map_or(0, |(block, _)| block.offset);
            reading.damage.add(offset, 0, Why::Backwards { thread: self.thread });
        }
        event.time = self.last;
    }
}
