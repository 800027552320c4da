// SPDX-License-Identifier: MIT
//! Writing a trace from beginning to end.

use std::io::{self, Write};

use zstd::bulk::Compressor;

use crate::block::{BlockHead, HEAD, MOST, PACKED, SEALED, kind, sum};
use crate::decode::State;
use crate::encode;
use crate::event::{Event, StackNode, ThreadId, What};
use crate::hash::NumberMap;
use crate::head::{End, FORMAT, Head};
use crate::texts;

/// Most bytes that are kept of a thread.
const LARGE: usize = 63 * 1024;
/// With many threads blocks become smaller, down to this.
const SMALL: usize = 4 * 1024;
/// Most bytes of a record.
const LONG: usize = 1 << 20;
/// What all threads share.
const ROOM: usize = 32 << 20;
/// The compression level: the default of zstd.
const LEVEL: i32 = 3;

/// How to write.
#[derive(Debug, Clone, Copy, Default)]
pub struct WriteOptions {
    /// Compress each block.
    pub packed: bool,
}

/// Writes a trace. What is written last is [`TraceWriter::finish`]; without it the trace looks cut off.
pub struct TraceWriter<W> {
    to: W,
    process: u32,
    packer: Option<Compressor<'static>>,
    threads: NumberMap<Thread>,
    /// Threads that ended: their next block's number, should they write again.
    ended: NumberMap<u32>,
    open: usize,
    /// Numbers of the process's own blocks.
    sequence: u32,
    written: u64,
    packed: Vec<u8>,
}

/// What a thread has not written yet.
struct Thread {
    state: State,
    payload: Vec<u8>,
    records: u32,
    /// What the payload's first differences refer to.
    time: u64,
    address: u64,
    sequence: u32,
    /// A payload was begun.
    begun: bool,
}

fn unfit(why: encode::Unfit) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

impl<W: Write> TraceWriter<W> {
    /// Begin a trace. What the head says about its format and where blocks begin is set here.
    pub fn create(to: W, head: &Head, options: WriteOptions) -> io::Result<Self> {
        let packer = if options.packed { Some(Compressor::new(LEVEL)?) } else { None };
        let mut writer = Self {
            to,
            process: head.process,
            packer,
            threads: NumberMap::default(),
            ended: NumberMap::default(),
            open: 0,
            sequence: 0,
            written: 0,
            packed: Vec::new(),
        };
        let head = Head { format: FORMAT.into(), grain: 0, ..head.clone() };
        let (block, payload) = writer.json(kind::HEAD, &head)?;
        writer.sequence += 1;
        writer.block(block, &payload)?;
        Ok(writer)
    }

    /// Add an event. Events of different threads may come in any order, those of one thread come in theirs: an
    /// event before the last one of its thread is an error (`InvalidInput`), like all that has no record.
    pub fn event(&mut self, event: &Event) -> io::Result<()> {
        self.record(event.thread, event.time, first_address(event), |to, state| {
            encode::event(to, state, event)
        })?;
        if event.what == What::ThreadEnd
            && let Some(mut thread) = self.threads.remove(event.thread.into())
        {
            self.flush(event.thread, &mut thread)?;
            self.ended.insert(event.thread.into(), thread.sequence);
            self.open -= 1;
        }
        Ok(())
    }

    /// Define a stack, in the blocks of the thread that met it first, before the event that names it.
    pub fn stack(&mut self, thread: ThreadId, node: &StackNode) -> io::Result<()> {
        let time = self.threads.get(thread.into()).map_or(0, |thread| thread.state.time);
        self.record(thread, time, 0, |to, state| encode::stack(to, state, node).map(|()| 1))
    }

    /// Add a text of a tool: JSON that names its schema, see the format.
    pub fn text(&mut self, text: &[u8]) -> io::Result<()> {
        let (head, stored) = texts::block(text, self.process, 8)?;
        self.to.write_all(&head.bytes())?;
        self.to.write_all(&stored)?;
        self.to.write_all(&[0; 8][..head.span as usize - HEAD - stored.len()])?;
        self.written += u64::from(head.span);
        Ok(())
    }

    /// Bytes written so far; up to 64 KiB of each thread are not.
    pub fn bytes_written(&self) -> u64 {
        self.written
    }

    /// Write what is left, and the end.
    pub fn finish(mut self, end: &End) -> io::Result<W> {
        let end = self.so_far(end)?;
        self.to.write_all(&end)?;
        self.to.flush()?;
        Ok(self.to)
    }

    /// Write what is left. With what is returned behind it, a copy of what was written is a trace that ends here. More may follow.
    pub fn so_far(&mut self, end: &End) -> io::Result<Vec<u8>> {
        let mut threads: Vec<u64> = self.threads.iter().map(|(thread, _)| thread).collect();
        threads.sort_unstable();
        for number in threads {
            if let Some(mut thread) = self.threads.remove(number) {
                let flushed = self.flush(number as u32, &mut thread);
                self.threads.insert(number, thread);
                flushed?;
            }
        }
        self.to.flush()?;
        let (head, payload) = self.json(kind::END, end)?;
        let head = sealed(head, payload.len(), &payload);
        let mut bytes = head.bytes().to_vec();
        bytes.extend_from_slice(&payload);
        bytes.resize(head.span as usize, 0);
        Ok(bytes)
    }

    fn record(
        &mut self,
        number: ThreadId,
        time: u64,
        address: u64,
        encode: impl Fn(&mut Vec<u8>, &mut State) -> Result<u32, encode::Unfit>,
    ) -> io::Result<()> {
        let most = (ROOM / self.open.max(1)).clamp(SMALL, LARGE);
        let (ended, open) = (&self.ended, &mut self.open);
        let thread = self.threads.get_or(number.into(), || {
            *open += 1;
            let sequence = ended.get(number.into()).copied().unwrap_or(0);
            let state = State::new(number, 0, 0);
            Thread { state, payload: Vec::new(), records: 0, time: 0, address: 0, sequence, begun: false }
        });
        if !thread.begun {
            // A block whose first record is a stack begins with the time before it.
            thread.begin(number, time, address);
        }
        let (before, last) = (thread.payload.len(), thread.state.time);
        let done = match encode(&mut thread.payload, &mut thread.state) {
            Ok(_) if thread.payload.len() - before > LONG => Err("a text of more than a MiB"),
            other => other,
        };
        match done {
            Ok(records) => thread.records += records,
            Err(_) => {
                // What later differences would refer to is lost: a new block has new ones.
                thread.payload.truncate(before);
                thread.state.time = last;
            }
        }
        if done.is_err() || thread.payload.len() > most {
            let Some(mut thread) = self.threads.remove(number.into()) else { return Ok(()) };
            let flushed = self.flush(number, &mut thread);
            self.threads.insert(number.into(), thread);
            flushed?;
        }
        done.map(|_| ()).map_err(unfit)
    }

    /// Write a thread's block.
    fn flush(&mut self, number: ThreadId, thread: &mut Thread) -> io::Result<()> {
        if !thread.payload.is_empty() {
            // The process's own blocks are of other kinds as well.
            let sequence = if number == 0 { &mut self.sequence } else { &mut thread.sequence };
            let head = BlockHead {
                kind: kind::EVENTS,
                flags: SEALED,
                span: 0,
                used: 0,
                raw: 0,
                thread: number,
                sequence: *sequence,
                events: thread.records,
                time: thread.time,
                address: thread.address,
                sum: 0,
                process: self.process,
            };
            *sequence += 1;
            self.block(head, &thread.payload)?;
        }
        thread.payload.clear();
        thread.records = 0;
        thread.begun = false;
        Ok(())
    }

    fn json(&self, kind: u8, value: &impl serde::Serialize) -> io::Result<(BlockHead, Vec<u8>)> {
        let mut payload = serde_json::to_vec(value)?;
        payload.push(b'\n');
        let head = BlockHead {
            kind,
            flags: SEALED,
            span: 0,
            used: 0,
            raw: 0,
            thread: 0,
            sequence: self.sequence,
            events: 0,
            time: 0,
            address: 0,
            sum: 0,
            process: self.process,
        };
        Ok((head, payload))
    }

    fn block(&mut self, mut head: BlockHead, payload: &[u8]) -> io::Result<()> {
        if payload.len() > MOST as usize - HEAD {
            return Err(unfit("a text that no block has room for"));
        }
        let mut stored = payload;
        if head.kind == kind::EVENTS
            && let Some(packer) = &mut self.packer
        {
            self.packed.resize(zstd::zstd_safe::compress_bound(payload.len()), 0);
            let n = packer.compress_to_buffer(payload, self.packed.as_mut_slice())?;
            if n < payload.len() {
                head.flags |= PACKED;
                stored = &self.packed[..n];
            }
        }
        let head = sealed(head, payload.len(), stored);
        let padding = [0; 8];
        self.to.write_all(&head.bytes())?;
        self.to.write_all(stored)?;
        self.to.write_all(&padding[..head.span as usize - HEAD - stored.len()])?;
        self.written += u64::from(head.span);
        Ok(())
    }
}

/// The head of a block with so many bytes, which are stored as these.
fn sealed(head: BlockHead, raw: usize, stored: &[u8]) -> BlockHead {
    let span = (HEAD + stored.len()).next_multiple_of(8) as u32;
    BlockHead { raw: raw as u32, used: stored.len() as u32, span, sum: sum(stored), ..head }
}

impl Thread {
    /// Begin a payload.
    fn begin(&mut self, number: ThreadId, time: u64, address: u64) {
        (self.time, self.address, self.begun) = (time.max(self.state.time), address & !15, true);
        self.state = State::new(number, self.time, self.address);
    }
}

/// An address to begin with: any is right, a near one makes the first differences short.
fn first_address(event: &Event) -> u64 {
    match event.what {
        What::Alloc { address, .. } | What::Free { address, .. } => address,
        What::Realloc { old, .. } => old,
        _ => 0,
    }
}
