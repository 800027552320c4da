// SPDX-License-Identifier: MIT
//! Finding the blocks of a trace by their heads. Payloads are not looked at, but for the JSON of the first and
//! the last block. What is kept of a block are 24 bytes.

use crate::block::{BlockHead, HEAD, MAGIC, NoHead, is_not_begun, kind};
use crate::damage::{Damage, Why};
use crate::error::TraceError;
use crate::head::{End, Head};
use crate::reading::Reading;
use crate::source::Source;

/// Where blocks begin in a recorder's file, and what zeros stand for there.
const GRAIN: u64 = 4096;
/// A file that does not begin with a block is a trace if one begins this early.
const FAR: u64 = 1 << 20;
/// Texts and heads of more bytes are not read.
pub(crate) const LONG: u32 = 1 << 20;

/// Where a block of events is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockRef {
    pub offset: u64,
    /// No record of it is older.
    pub time: u64,
    /// Bytes of its payload, as stored, that are there.
    pub used: u32,
    /// Its payload is complete and has a sum.
    pub whole: bool,
    /// The file ends before its payload does.
    pub cut: bool,
}

/// The blocks of a thread: a range of the index.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stream {
    pub thread: u32,
    pub first: usize,
    pub count: usize,
    /// Records of the complete blocks.
    pub records: u64,
}

/// What a file holds.
#[derive(Debug, Default)]
pub(crate) struct Index {
    pub head: Head,
    pub end: Option<End>,
    /// By thread, and in the order of the file.
    pub blocks: Vec<BlockRef>,
    /// By thread.
    pub streams: Vec<Stream>,
    /// Texts, in the order of the file.
    pub texts: Vec<BlockRef>,
    /// Where those begin behind which there is nothing else.
    pub tail: Option<u64>,
    pub damage: Damage,
}

/// Reads heads; several at once where they are close.
struct Heads<'a> {
    source: &'a Source,
    piece: Vec<u8>,
    at: u64,
}

impl<'a> Heads<'a> {
    const PIECE: usize = 4096;
    /// While something is looked for, more is read at once.
    const SEARCH: usize = 256 * 1024;

    /// Up to `bytes` bytes from `offset`, at least as many as there are up to a head.
    fn at(&mut self, offset: u64, piece: usize) -> Result<&[u8], TraceError> {
        let have = offset
            .checked_sub(self.at)
            .and_then(|skip| usize::try_from(skip).ok())
            .filter(|&skip| skip + HEAD <= self.piece.len());
        let skip = match have {
            Some(skip) => skip,
            None => {
                self.piece.resize(piece, 0);
                let n = self.source.read_at(&mut self.piece, offset)?;
                self.piece.truncate(n);
                self.at = offset;
                0
            }
        };
        Ok(&self.piece[skip..])
    }

    fn head(&mut self, offset: u64) -> Result<Option<[u8; HEAD]>, TraceError> {
        Ok(self.at(offset, Self::PIECE)?.first_chunk::<HEAD>().copied())
    }
}

struct Scan<'a> {
    source: &'a Source,
    heads: Heads<'a>,
    index: Index,
    /// With its thread, in the order of the file.
    found: Vec<(u32, BlockRef)>,
    threads: crate::hash::NumberMap<Thread>,
    recorder: bool,
    has_head: bool,
}

#[derive(Default)]
struct Thread {
    next: u64,
    records: u64,
}

/// Find all blocks.
pub(crate) fn scan(source: &Source) -> Result<Index, TraceError> {
    if source.len() == 0 {
        return Err(TraceError::Empty);
    }
    let mut scan = Scan {
        source,
        heads: Heads { source, piece: Vec::new(), at: 0 },
        index: Index::default(),
        found: Vec::new(),
        threads: Default::default(),
        recorder: false,
        has_head: false,
    };
    scan.all()?;
    scan.is_all_there();
    Ok(scan.finish())
}

impl Scan<'_> {
    fn all(&mut self) -> Result<(), TraceError> {
        let len = self.source.len();
        let mut offset = self.begin()?;
        while offset < len {
            let Some(bytes) = self.heads.head(offset)? else {
                self.tail(offset, len - offset)?;
                break;
            };
            match BlockHead::parse(&bytes) {
                Ok(head) if head.kind == kind::HEAD && self.has_head => {
                    self.index.damage.add(offset, len - offset, Why::Another);
                    break;
                }
                Ok(head) => {
                    self.block(offset, &head)?;
                    offset = offset.saturating_add(head.span.into());
                }
                Err(no) => offset = self.search(offset, no)?,
            }
        }
        Ok(())
    }

    /// A recorder's end has its place before the file's last blocks, so that it is there says nothing.
    fn is_all_there(&mut self) {
        let (had, has) = (self.index.end.as_ref().map_or(0, |end| end.bytes), self.source.len());
        if had > has {
            self.index.damage.add(has, 0, Why::Short(had));
        }
    }

    /// The first block; is there any at all?
    fn begin(&mut self) -> Result<u64, TraceError> {
        match self.heads.head(0)?.map(|bytes| BlockHead::parse(&bytes)) {
            Some(Ok(_)) => return Ok(0),
            Some(Err(NoHead::Version(version))) => return Err(TraceError::Version(version)),
            Some(Err(NoHead::Foreign)) => {}
            None => {
                let mut begin = [0; 4];
                let n = self.source.read_at(&mut begin, 0)?;
                // A trace of which hardly anything is left is still one.
                return if begin[..n] == MAGIC[..n] { Ok(0) } else { Err(TraceError::Foreign) };
            }
        }
        let first = self.search(0, NoHead::Foreign)?;
        if first < self.source.len().min(FAR) { Ok(first) } else { Err(TraceError::Foreign) }
    }

    /// What is too short for a head, at the end.
    fn tail(&mut self, offset: u64, bytes: u64) -> Result<(), TraceError> {
        let mut last = [0; HEAD];
        let n = self.source.read_at(&mut last, offset)?;
        if !self.recorder || last[..n].iter().any(|&byte| byte != 0) {
            self.index.damage.add(offset, bytes, Why::Cut);
        }
        Ok(())
    }

    /// From a place where no block is, where the next one begins.
    fn search(&mut self, from: u64, no: NoHead) -> Result<u64, TraceError> {
        let why = match no {
            NoHead::Version(version) => Why::Version(version),
            NoHead::Foreign => Why::NotABlock,
        };
        let len = self.source.len();
        let step = if self.recorder { GRAIN } else { 8 };
        // Until a block was seen there is no hurry to read gigabytes of something else.
        let limit = if self.has_head || !self.found.is_empty() { len } else { len.min(FAR) };
        let mut offset = from.next_multiple_of(step);
        let mut left_out = from;
        while offset < limit {
            let bytes = self.heads.at(offset, Heads::SEARCH)?;
            let mut next = offset;
            let mut found = false;
            for candidate in (0..bytes.len()).step_by(step as usize) {
                let Some(head) = bytes[candidate..].first_chunk::<HEAD>() else { break };
                next = offset + candidate as u64;
                let unused = self.recorder && is_not_begun(head);
                if unused || next > from && head[..4] == MAGIC && BlockHead::parse(head).is_ok() {
                    found = true;
                    if next > left_out {
                        self.index.damage.add(left_out, next - left_out, why.clone());
                    }
                    if !unused {
                        return Ok(next);
                    }
                    // A grain that was never used, or not yet.
                    left_out = next + GRAIN;
                    break;
                }
            }
            offset = if found || bytes.len() >= HEAD { next + step } else { limit };
        }
        let end = limit.max(left_out);
        if end > left_out && left_out < len {
            self.index.damage.add(left_out, end - left_out, why);
        }
        Ok(end)
    }

    fn block(&mut self, offset: u64, head: &BlockHead) -> Result<(), TraceError> {
        let room = self.source.len() - offset - HEAD as u64;
        let used = u64::from(head.used).min(room) as u32;
        let cut = used < head.used;
        let whole = head.is_sealed() && !cut;
        if cut {
            self.index.damage.add(offset, (head.used - used).into(), Why::Cut);
        }
        let block = BlockRef { offset, time: head.time, used, whole, cut };
        self.index.tail = match head.kind {
            kind::TEXT => self.index.tail.or(Some(offset)),
            _ => None,
        };
        match head.kind {
            kind::HEAD => {
                self.has_head = true;
                if let Some(read) = self.json::<Head>(&block, head)? {
                    self.recorder = read.grain >= GRAIN && read.grain.is_multiple_of(GRAIN);
                    self.index.head = read;
                }
            }
            // One without text was only begun when its writer was killed.
            kind::END if head.used > 0 || head.is_sealed() => {
                if let Some(end) = self.json(&block, head)? {
                    self.index.end = Some(end);
                }
            }
            kind::EVENTS => self.events(block, head),
            kind::TEXT if whole && head.thread == 0 && head.raw <= LONG => self.index.texts.push(block),
            _ => {}
        }
        Ok(())
    }

    fn events(&mut self, block: BlockRef, head: &BlockHead) {
        let thread = self.threads.get_or(head.thread.into(), Thread::default);
        let sequence = u64::from(head.sequence);
        // The process's own blocks are of other kinds as well.
        if head.thread != 0 && sequence != thread.next {
            let why = match sequence.checked_sub(thread.next) {
                Some(blocks) => Why::Missing { thread: head.thread, blocks },
                None => Why::Order { thread: head.thread },
            };
            self.index.damage.add(block.offset, 0, why);
        }
        thread.next = sequence + 1;
        if block.whole {
            thread.records = thread.records.saturating_add(head.events.into());
        }
        if block.used > 0 {
            self.found.push((head.thread, block));
        }
    }

    fn json<T: serde::de::DeserializeOwned>(
        &mut self,
        block: &BlockRef,
        head: &BlockHead,
    ) -> Result<Option<T>, TraceError> {
        let long = head.used > LONG || head.raw > LONG;
        let mut reading = Reading::new(self.source);
        let mut bytes = Vec::new();
        let opened = if long { None } else { reading.open(block, head.thread, &mut bytes)? };
        let parsed = match opened {
            Some(opened) => serde_json::from_slice(&bytes[opened.start..]).map_err(|error| error.to_string()),
            None if long => Err("it is too long".to_owned()),
            None => {
                self.index.damage.merge(&reading.damage);
                return Ok(None);
            }
        };
        // A block that was cut off is damage already.
        parsed.map_or_else(
            |error| {
                if !block.cut {
                    self.index.damage.add(block.offset, head.used.into(), Why::Json(error));
                }
                Ok(None)
            },
            |read| Ok(Some(read)),
        )
    }

    fn finish(mut self) -> Index {
        self.found.sort_by_key(|&(thread, _)| thread);
        let mut index = self.index;
        index.blocks.reserve_exact(self.found.len());
        for (thread, block) in self.found {
            match index.streams.last_mut() {
                Some(stream) if stream.thread == thread => stream.count += 1,
                _ => {
                    let records = self.threads.get(thread.into()).map_or(0, |thread| thread.records);
                    index.streams.push(Stream { thread, first: index.blocks.len(), count: 1, records });
                }
            }
            index.blocks.push(block);
        }
        index
    }
}
