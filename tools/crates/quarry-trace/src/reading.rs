// SPDX-License-Identifier: MIT
//! Payloads of blocks, checked and unpacked, in pieces where they are large.

use std::io::Read;

use zstd::bulk::Decompressor;

use crate::block::{BlockHead, HEAD, MOST, Sum, sum};
use crate::damage::{Damage, Why};
use crate::error::TraceError;
use crate::scan::BlockRef;
use crate::source::Source;
use crate::stacks::StackTree;

/// Room for payloads, beside as much as the file is long.
const ROOM: u64 = 32 << 20;
/// ... up to this.
const MOST_ROOM: u64 = 256 << 20;
/// The least that is kept of a payload.
const LEAST: usize = 512;
/// The part of its share that a thread has in any case.
const LATE: usize = 16;
/// Large payloads are summed up in pieces of this size.
const PIECE: usize = 64 * 1024;

/// How many bytes may be unpacked again, because there was no room to keep them,
const AGAIN: u64 = 4 << 30;
/// and as many for each byte of the file. Threads whose payloads are packed by the MiB and told in turns would take hours.
const AGAIN_EACH: u64 = 1024;

/// A payload that was opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opened {
    pub head: BlockHead,
    /// Where the payload begins in the buffer.
    pub start: usize,
    /// Its length, unpacked.
    pub total: usize,
}

/// What is needed to read payloads, whosever they are; and what was found wrong on the way.
#[derive(Debug)]
pub(crate) struct Reading<'a> {
    source: &'a Source,
    pub damage: Damage,
    /// Bytes of blocks that were opened.
    pub bytes: u64,
    /// How many cursors are open.
    pub open: usize,
    /// Bytes of payloads that they hold.
    held: usize,
    stored: Vec<u8>,
    /// The last large payload that was unpacked, and the offset of its block.
    large: Vec<u8>,
    large_of: u64,
    /// Bytes that were unpacked again.
    again: u64,
    unpacker: Option<Unpacker>,
    /// The stacks that records define, where somebody wants them.
    pub stacks: Option<StackTree>,
}

struct Unpacker(Decompressor<'static>);

impl std::fmt::Debug for Unpacker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Unpacker")
    }
}

impl<'a> Reading<'a> {
    pub(crate) fn new(source: &'a Source) -> Self {
        Self {
            source,
            damage: Damage::default(),
            bytes: 0,
            open: 1,
            held: 0,
            stored: Vec::new(),
            large: Vec::new(),
            large_of: u64::MAX,
            again: 0,
            unpacker: None,
            stacks: None,
        }
    }

    /// Most bytes of a payload that may be taken up at once: a fair share, or half of what nobody holds. Who comes late, when others hold
    /// all, has a small part of the share beyond that.
    fn window(&self) -> usize {
        let room = (ROOM + self.source.len()).min(MOST_ROOM) as usize;
        let free = room.saturating_sub(self.held);
        let fair = room / self.open.max(1);
        fair.max(free / 2).min(free.max(fair / LATE)).clamp(LEAST, MOST as usize)
    }

    /// A cursor's buffer has another size.
    pub(crate) fn resized(&mut self, before: usize, after: usize) {
        self.held = self.held.saturating_sub(before).saturating_add(after);
    }

    /// Check a block and put its payload, or the beginning of it, into the buffer. `None`: it is damaged,
    /// which is noted.
    pub(crate) fn open(
        &mut self,
        block: &BlockRef,
        thread: u32,
        into: &mut Vec<u8>,
    ) -> Result<Option<Opened>, TraceError> {
        let used = block.used as usize;
        let window = self.window();
        self.bytes += (HEAD + used) as u64;
        into.resize(HEAD + used.min(window), 0);
        let n = self.source.read_at(into, block.offset)?;
        into.truncate(n);
        // The file may have changed since it was scanned.
        let head = into.first_chunk::<HEAD>().and_then(|bytes| BlockHead::parse(bytes).ok());
        let Some(head) = head.filter(|head| head.thread == thread) else {
            self.damage.add(block.offset, (HEAD + used) as u64, Why::NotABlock);
            return Ok(None);
        };
        let why = if head.is_packed() {
            match self.open_packed(block, &head, into)? {
                Ok(total) => return Ok(Some(Opened { head, start: 0, total })),
                Err(why) => why,
            }
        } else if block.whole && self.sum_of(block, into)? != head.sum {
            Why::Sum
        } else {
            return Ok(Some(Opened { head, start: HEAD, total: used }));
        };
        self.damage.add(block.offset, (HEAD + used) as u64, why);
        Ok(None)
    }

    /// The sum of a payload whose head and beginning were read.
    fn sum_of(&mut self, block: &BlockRef, read: &[u8]) -> Result<u64, TraceError> {
        let used = block.used as usize;
        if read.len() >= HEAD + used {
            return Ok(sum(&read[HEAD..HEAD + used]));
        }
        let mut sum = Sum::new();
        let mut done = 0;
        while done < used {
            self.stored.resize((used - done).min(PIECE), 0);
            let n = self.source.read_at(&mut self.stored, block.offset + (HEAD + done) as u64)?;
            if n < self.stored.len() {
                break;
            }
            sum.add(&self.stored);
            done += n;
        }
        Ok(sum.value())
    }

    /// The stored bytes of a packed payload, of which the buffer may hold all.
    fn fetch(&mut self, block: &BlockRef, read: &[u8]) -> Result<(), TraceError> {
        let used = block.used as usize;
        self.stored.clear();
        match read.get(HEAD..HEAD + used) {
            Some(all) => self.stored.extend_from_slice(all),
            None => {
                self.stored.resize(used, 0);
                let n = self.source.read_at(&mut self.stored, block.offset + HEAD as u64)?;
                self.stored.truncate(n);
            }
        }
        Ok(())
    }

    fn open_packed(
        &mut self,
        block: &BlockRef,
        head: &BlockHead,
        into: &mut Vec<u8>,
    ) -> Result<Result<usize, Why>, TraceError> {
        self.fetch(block, into)?;
        if block.whole && sum(&self.stored) != head.sum {
            return Ok(Err(Why::Sum));
        }
        let raw = head.raw as usize;
        let window = self.window();
        into.clear();
        let large = raw > window;
        let unpacked = if large {
            // No other payload may be taken for this one if unpacking fails.
            self.large_of = u64::MAX;
            let mut large = std::mem::take(&mut self.large);
            let done = self.unpack(raw, block.cut, &mut large);
            self.large = large;
            done
        } else {
            self.unpack(raw, block.cut, into)
        };
        if !unpacked {
            into.clear();
            return Ok(Err(Why::Unpack));
        }
        if !large {
            return Ok(Ok(into.len()));
        }
        self.large_of = block.offset;
        into.extend_from_slice(&self.large[..window.min(self.large.len())]);
        Ok(Ok(self.large.len()))
    }

    /// Unpack what was fetched: exactly `raw` bytes, or as far as it goes when the end is cut off.
    fn unpack(&mut self, raw: usize, cut: bool, into: &mut Vec<u8>) -> bool {
        into.clear();
        if cut {
            return unpack_beginning(&self.stored, raw, into);
        }
        if self.unpacker.is_none() {
            self.unpacker = Decompressor::new().ok().map(Unpacker);
        }
        let Some(Unpacker(unpacker)) = &mut self.unpacker else { return false };
        // A slice, because a vector may have more room than was asked for.
        into.resize(raw, 0);
        unpacker.decompress_to_buffer(&self.stored, into.as_mut_slice()).is_ok_and(|n| n == raw)
    }

    /// More of a payload that was opened: from `from` on, as much as is kept at once. Nothing, and why, if that would take too long.
    pub(crate) fn more(
        &mut self,
        block: &BlockRef,
        opened: &Opened,
        from: usize,
        least: usize,
        into: &mut Vec<u8>,
    ) -> Result<Result<(), Why>, TraceError> {
        let n = (opened.total - from).min(self.window().max(least));
        if opened.head.is_packed() {
            if self.large_of != block.offset {
                self.again += u64::from(opened.head.raw);
                if self.again > AGAIN.saturating_add(AGAIN_EACH.saturating_mul(self.source.len())) {
                    into.clear();
                    return Ok(Err(Why::Again));
                }
                self.fetch(block, &[])?;
                self.large_of = u64::MAX;
                let mut large = std::mem::take(&mut self.large);
                let done = self.unpack(opened.head.raw as usize, block.cut, &mut large);
                self.large = large;
                if done {
                    self.large_of = block.offset;
                } else {
                    self.large.clear();
                }
            }
            into.clear();
            into.extend_from_slice(self.large.get(from..from + n).unwrap_or_default());
        } else {
            into.resize(n, 0);
            let got = self.source.read_at(into, block.offset + (HEAD + from) as u64)?;
            into.truncate(got);
        }
        Ok(Ok(()))
    }
}

/// Unpack a frame whose end is missing, as far as possible.
fn unpack_beginning(stored: &[u8], raw: usize, into: &mut Vec<u8>) -> bool {
    /// Frames of ours have windows of at most a block.
    const WINDOW_LOG: u32 = 24;
    let Ok(mut unpacker) = zstd::stream::read::Decoder::with_buffer(stored) else { return false };
    if unpacker.window_log_max(WINDOW_LOG).is_err() {
        return false;
    }
    // Where the bytes end there is an error, and what came before it counts.
    let mut piece = [0; 4096];
    while into.len() < raw {
        let room = piece.len().min(raw - into.len());
        match unpacker.read(&mut piece[..room]) {
            Ok(0) | Err(_) => break,
            Ok(n) => into.extend_from_slice(&piece[..n]),
        }
    }
    true
}
