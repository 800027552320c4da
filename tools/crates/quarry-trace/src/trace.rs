// SPDX-License-Identifier: MIT
//! A trace that was opened.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::OnceLock;

use crate::cursor::Cursor;
use crate::damage::Damage;
use crate::error::TraceError;
use crate::event::{Event, ThreadId, What};
use crate::head::{End, Head};
use crate::merge::{Merged, ThreadEvents};
use crate::module::{self, Module};
use crate::reading::Reading;
use crate::scan::{self, BlockRef, Index, Stream};
use crate::source::Source;
use crate::stacks::StackTree;
use crate::texts;

/// What is known about a thread without reading all of its events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadInfo {
    /// Its number.
    pub thread: ThreadId,
    /// Blocks it has in the file.
    pub blocks: u64,
    /// Records in them, those that define stacks among them.
    pub events: u64,
    /// Times of its first and of its last event, in ticks; none where no event can be read.
    pub times: Option<(u64, u64)>,
}

/// A trace. Its index is in memory, 24 bytes for each block; all else is read when it is asked for.
#[derive(Debug)]
pub struct Trace {
    source: Source,
    index: Index,
    ends: OnceLock<Ends>,
}

/// What takes a look at the first and the last block of each thread.
#[derive(Debug, Default)]
struct Ends {
    threads: Vec<ThreadInfo>,
    /// The latest reading of the monotonic clock, with its ticks.
    clock: Option<(u64, u64)>,
}

impl Trace {
    /// Open a file. Damage is no error; that it is no trace is one, and that it cannot be read.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        // Opening a pipe would wait for its writer.
        let about = fs::metadata(path).map_err(TraceError::Open)?;
        if !about.is_file() {
            return Err(Source::refuse(about.file_type()));
        }
        Self::of_file(File::open(path).map_err(TraceError::Open)?)
    }

    /// The same with a file that is open already.
    pub fn of_file(file: File) -> Result<Self, TraceError> {
        Self::of(Source::of_file(file)?)
    }

    /// A trace that is in memory.
    pub fn of_bytes(bytes: Vec<u8>) -> Result<Self, TraceError> {
        Self::of(Source::Memory(bytes))
    }

    fn of(source: Source) -> Result<Self, TraceError> {
        let index = scan::scan(&source)?;
        Ok(Self { source, index, ends: OnceLock::new() })
    }

    /// What the first block says.
    pub fn head(&self) -> &Head {
        &self.index.head
    }

    /// What the last block says; none if the trace was cut off.
    pub fn end(&self) -> Option<&End> {
        self.index.end.as_ref()
    }

    /// Events that are not in the trace: as many as its events say, or its end, which knows of more.
    pub fn lost(&self, noted: u64) -> u64 {
        self.end().map_or(noted, |end| end.lost.max(noted))
    }

    /// Bytes of the file.
    pub fn bytes(&self) -> u64 {
        self.source.len()
    }

    /// What is damaged as far as the heads of blocks show. What is wrong in their payloads shows when they are
    /// read: see [`Merged::damage`].
    pub fn damage(&self) -> &Damage {
        &self.index.damage
    }

    /// How many threads have events.
    pub fn thread_count(&self) -> usize {
        self.index.streams.len()
    }

    /// Records of all complete blocks, as their heads have it: about how many events there will be.
    pub fn records(&self) -> u64 {
        self.index.streams.iter().fold(0, |sum, stream| stream.records.saturating_add(sum))
    }

    /// The threads that have events, by number. The first call reads the first and last block of each.
    pub fn threads(&self) -> &[ThreadInfo] {
        &self.ends().threads
    }

    /// All events, merged as the format says.
    pub fn events(&self) -> Merged<'_> {
        Merged::new(self)
    }

    /// The events of one thread, in its own order; none if there is no such thread.
    pub fn thread_events(&self, thread: ThreadId) -> ThreadEvents<'_> {
        let stream = self.index.streams.binary_search_by_key(&thread, |stream| stream.thread);
        let blocks = stream.map_or(&[][..], |index| self.blocks(&self.index.streams[index]));
        ThreadEvents::new(Cursor::new(thread, blocks), Reading::new(&self.source))
    }

    /// All call stacks, and what was found damaged on the way, beside [`Trace::damage`]. Reads the whole file; who reads it
    /// anyway asks [`Merged::keep_stacks`].
    pub fn stacks(&self) -> Result<(StackTree, Damage), TraceError> {
        let mut reading = Reading::new(&self.source);
        reading.stacks = Some(StackTree::new());
        for stream in &self.index.streams {
            let mut cursor = Cursor::new(stream.thread, self.blocks(stream));
            while cursor.next_event(&mut reading)?.is_some() {}
        }
        Ok((reading.stacks.unwrap_or_default(), reading.damage))
    }

    /// The files that were mapped, in the order of their loading. Reads the whole file, as far as it can be
    /// read; who reads it anyway collects them with [`Trace::note_module`].
    pub fn modules(&self) -> Vec<Module> {
        let mut reading = Reading::new(&self.source);
        let mut events = Vec::new();
        for stream in &self.index.streams {
            let mut cursor = Cursor::new(stream.thread, self.blocks(stream));
            while let Ok(Some(event)) = cursor.next_event(&mut reading) {
                if matches!(event.what, What::ModuleLoaded { .. } | What::ModuleUnloaded { .. }) {
                    events.push(event);
                }
            }
        }
        events.sort_by_key(|event| event.time);
        let mut modules = Vec::new();
        for event in &events {
            module::note(&mut modules, event);
        }
        modules
    }

    /// Take note of what an event says about modules, if it does.
    pub fn note_module(modules: &mut Vec<Module>, event: &Event) {
        module::note(modules, event);
    }

    /// What tools have put into the trace, text by text: JSON that names its schema, see the format. Of hostile ones, no
    /// more than a share that grows with the file.
    pub fn texts(&self) -> impl Iterator<Item = Vec<u8>> + '_ {
        let mut reading = Reading::new(&self.source);
        let mut room = texts::ROOM.saturating_add(self.source.len().saturating_mul(texts::EACH));
        self.index.texts.iter().filter_map(move |block| {
            let mut text = Vec::new();
            let opened = reading.open(block, 0, &mut text).ok().flatten()?;
            room = room.checked_sub(text.len() as u64)?;
            text.drain(..opened.start);
            (text.len() == opened.total).then_some(text)
        })
    }

    /// Copy the trace, with these texts at its end instead of those that are there.
    pub fn copy_with_texts(&self, to: &mut impl Write, texts: &[Vec<u8>]) -> Result<(), TraceError> {
        let grain = self.head().grain;
        texts::copy(
            &self.source,
            self.index.tail.unwrap_or(self.source.len()),
            grain,
            self.head().process,
            to,
            texts,
        )
    }

    /// Nanoseconds from the beginning of the trace to this time.
    pub fn ticks_to_ns(&self, ticks: u64) -> u64 {
        self.duration_ns(ticks.saturating_sub(self.head().start_ticks))
    }

    /// `ticks` in nanoseconds.
    ///
    /// The rate is taken between the head and the end; from a trace that was cut off, between the head and the
    /// last reading of the clock in it; where there is none, as the head names it.
    pub fn duration_ns(&self, ticks: u64) -> u64 {
        let (ns, of) = self.rate();
        let product = u128::from(ticks) * u128::from(ns) / u128::from(of);
        u64::try_from(product).unwrap_or(u64::MAX)
    }

    /// Nanoseconds, of so many ticks.
    fn rate(&self) -> (u64, u64) {
        const SECOND: u64 = 1_000_000_000;
        let head = self.head();
        let between = |ticks: u64, ns: u64| {
            let ticks = ticks.checked_sub(head.start_ticks).filter(|&ticks| ticks > 0)?;
            let ns = ns.checked_sub(head.start_monotonic_ns).filter(|&ns| ns > 0)?;
            Some((ns, ticks))
        };
        let measured = if head.start_monotonic_ns > 0 {
            let end = self.end().and_then(|end| between(end.end_ticks, end.end_monotonic_ns));
            end.or_else(|| self.ends().clock.and_then(|(ticks, ns)| between(ticks, ns)))
        } else {
            None
        };
        measured.unwrap_or(match head.ticks_per_second {
            0 => (1, 1),
            rate => (SECOND, rate),
        })
    }

    fn ends(&self) -> &Ends {
        self.ends.get_or_init(|| {
            let mut ends = Ends::default();
            for stream in &self.index.streams {
                let info = self.look(stream, &mut ends.clock);
                ends.threads.push(info);
            }
            ends
        })
    }

    /// What cannot be read here shows as an error when it is read for its events.
    fn look(&self, stream: &Stream, clock: &mut Option<(u64, u64)>) -> ThreadInfo {
        let blocks = self.blocks(stream);
        let mut reading = Reading::new(&self.source);
        let mut first = Cursor::new(stream.thread, blocks);
        let first = first.next_event(&mut reading).ok().flatten();
        let mut info = ThreadInfo {
            thread: stream.thread,
            blocks: stream.count as u64,
            events: stream.records,
            times: first.map(|event| (event.time, event.time)),
        };
        for block in blocks.iter().filter(|block| !block.whole) {
            let mut cursor = Cursor::new(stream.thread, std::slice::from_ref(block));
            while let Ok(Some(_)) = cursor.next_event(&mut reading) {}
            info.events += cursor.records;
        }
        // The last block of a thread may define stacks only.
        const BACK: usize = 4;
        for block in blocks.iter().rev().take(BACK) {
            let mut cursor = Cursor::new(stream.thread, std::slice::from_ref(block));
            let mut any = false;
            while let Ok(Some(event)) = cursor.next_event(&mut reading) {
                any = true;
                info.times = info.times.map(|(first, last)| (first, last.max(event.time)));
                if let What::Clock { ns } = event.what
                    && clock.is_none_or(|(time, _)| time < event.time)
                {
                    *clock = Some((event.time, ns));
                }
            }
            if any {
                break;
            }
        }
        info
    }

    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    pub(crate) fn streams(&self) -> &[Stream] {
        &self.index.streams
    }

    pub(crate) fn blocks(&self, stream: &Stream) -> &[BlockRef] {
        &self.index.blocks[stream.first..stream.first + stream.count]
    }
}
