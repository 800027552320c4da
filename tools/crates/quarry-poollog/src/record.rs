// SPDX-License-Identifier: MIT
//! One record: 64 bytes, little-endian.

use thiserror::Error;

/// The size of every record.
pub const BYTES: usize = 64;

/// What a log begins with.
pub const MAGIC: [u8; 8] = *b"QYPOOLS1";

/// The version of the format that is read and written here.
pub const VERSION: u16 = 1;

const HEAD: u16 = 0xFFFF;
const NAME: u16 = 0xFFFE;

/// Why an entry was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The state that the child of a fork begins with.
    Birth,
    /// The pool was destroyed.
    Death,
    /// A fixed number of cheap operations has passed.
    Period,
    /// A chunk came from the parent.
    ChunkGet,
    /// A chunk went back to the parent.
    ChunkPut,
    /// A page was cleaned for reuse.
    Reset,
}

/// All events, in the order of their numbers.
pub const EVENTS: [Event; 6] =
    [Event::Birth, Event::Death, Event::Period, Event::ChunkGet, Event::ChunkPut, Event::Reset];

impl Event {
    /// Its word in reports.
    pub fn word(self) -> &'static str {
        match self {
            Event::Birth => "birth",
            Event::Death => "death",
            Event::Period => "period",
            Event::ChunkGet => "chunk_get",
            Event::ChunkPut => "chunk_put",
            Event::Reset => "reset",
        }
    }
}

/// A process begins to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// Its number.
    pub process: u32,
    /// One entry for so many cheap operations.
    pub every: u32,
    /// When, on its monotonic clock.
    pub start_ns: u64,
    /// Its name.
    pub program: String,
}

/// A pool begins to be logged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// When, on the monotonic clock.
    pub time_ns: u64,
    /// The process.
    pub process: u32,
    /// The pool's number in that process.
    pub pool: u32,
    /// The parent's number; 0: the kernel, or a pool that is not logged.
    pub parent: u32,
    /// "fifo", "ring", ...
    pub kind: String,
    /// As the program called it.
    pub name: String,
}

/// The state of a pool. Counters count from the pool's creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// When, on the monotonic clock.
    pub time_ns: u64,
    /// The process.
    pub process: u32,
    /// The pool's number in that process.
    pub pool: u32,
    /// Why it was written.
    pub event: Event,
    /// Chunks taken from the parent so far, modulo 2^32.
    pub chunk_gets: u32,
    /// Bytes of chunks held.
    pub held: u64,
    /// Bytes of them that are given out.
    pub used: u64,
    /// Sum of all requests so far.
    pub requested: u64,
    /// Cheap operations so far.
    pub operations: u64,
    /// Time spent on taking and giving back chunks so far.
    pub slow_ns: u64,
}

/// A record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// A process begins to write.
    Head(Head),
    /// A pool begins to be logged.
    Name(Name),
    /// The state of a pool.
    Entry(Entry),
}

/// Why 64 bytes are not a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Bad {
    /// A head of another version; what follows may have any form.
    #[error("a log of version {0} with records of {1} bytes, where version {VERSION} with {BYTES} is known")]
    Version(u16, u32),
    /// A head without the mark.
    #[error("a head without the mark of a log")]
    Mark,
    /// An event that does not exist.
    #[error("event {0} does not exist")]
    Event(u16),
    /// Bytes that must be zero are not.
    #[error("bytes that must be zero are not")]
    Reserved,
    /// No process and no pool has number zero.
    #[error("number zero of a process or pool")]
    Zero,
}

fn u16_at(bytes: &[u8; BYTES], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8; BYTES], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8; BYTES], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// Text up to the first NUL. Whoever reads a report is not to be fooled by what a program calls its
/// pools: control characters become '?'.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

fn put_text(to: &mut [u8], text: &str) {
    // The last byte stays NUL, as the writer leaves it.
    let n = text.len().min(to.len() - 1);
    to[..n].copy_from_slice(&text.as_bytes()[..n]);
}

impl Record {
    /// Read one.
    pub fn decode(bytes: &[u8; BYTES]) -> Result<Record, Bad> {
        let (process, pool, event) = (u32_at(bytes, 8), u32_at(bytes, 12), u16_at(bytes, 16));
        if event == HEAD {
            if bytes[..8] != MAGIC {
                return Err(Bad::Mark);
            }
            // Where a pool's number stands elsewhere, a head has the size of records.
            let (version, record_bytes) = (u16_at(bytes, 18), pool);
            if version != VERSION || record_bytes as usize != BYTES {
                return Err(Bad::Version(version, record_bytes));
            }
            if process == 0 {
                return Err(Bad::Zero);
            }
            let (every, start_ns) = (u32_at(bytes, 20), u64_at(bytes, 24));
            return Ok(Record::Head(Head { process, every, start_ns, program: text(&bytes[32..]) }));
        }
        if event != NAME && usize::from(event) >= EVENTS.len() {
            return Err(Bad::Event(event));
        }
        if u16_at(bytes, 18) != 0 {
            return Err(Bad::Reserved);
        }
        if process == 0 || pool == 0 {
            return Err(Bad::Zero);
        }
        let time_ns = u64_at(bytes, 0);
        if event == NAME {
            let (kind, name) = (text(&bytes[24..32]), text(&bytes[32..]));
            return Ok(Record::Name(Name { time_ns, process, pool, parent: u32_at(bytes, 20), kind, name }));
        }
        Ok(Record::Entry(Entry {
            time_ns,
            process,
            pool,
            event: EVENTS[usize::from(event)],
            chunk_gets: u32_at(bytes, 20),
            held: u64_at(bytes, 24),
            used: u64_at(bytes, 32),
            requested: u64_at(bytes, 40),
            operations: u64_at(bytes, 48),
            slow_ns: u64_at(bytes, 56),
        }))
    }

    /// The bytes of one, as a pool would write it. Names are cut to their fields.
    pub fn encode(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        match self {
            Record::Head(head) => {
                bytes[..8].copy_from_slice(&MAGIC);
                put32(&mut bytes, 8, head.process);
                put32(&mut bytes, 12, BYTES as u32);
                put32(&mut bytes, 16, u32::from(HEAD) | u32::from(VERSION) << 16);
                put32(&mut bytes, 20, head.every);
                put64(&mut bytes, 24, head.start_ns);
                put_text(&mut bytes[32..], &head.program);
            }
            Record::Name(name) => {
                put64(&mut bytes, 0, name.time_ns);
                put32(&mut bytes, 8, name.process);
                put32(&mut bytes, 12, name.pool);
                put32(&mut bytes, 16, u32::from(NAME));
                put32(&mut bytes, 20, name.parent);
                put_text(&mut bytes[24..32], &name.kind);
                put_text(&mut bytes[32..], &name.name);
            }
            Record::Entry(entry) => {
                put64(&mut bytes, 0, entry.time_ns);
                put32(&mut bytes, 8, entry.process);
                put32(&mut bytes, 12, entry.pool);
                put32(&mut bytes, 16, entry.event as u32);
                put32(&mut bytes, 20, entry.chunk_gets);
                let words = [entry.held, entry.used, entry.requested, entry.operations, entry.slow_ns];
                for (index, word) in words.into_iter().enumerate() {
                    put64(&mut bytes, 24 + 8 * index, word);
                }
            }
        }
        bytes
    }

    /// The process that wrote it.
    pub fn process(&self) -> u32 {
        match self {
            Record::Head(head) => head.process,
            Record::Name(name) => name.process,
            Record::Entry(entry) => entry.process,
        }
    }
}

fn put32(bytes: &mut [u8; BYTES], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn put64(bytes: &mut [u8; BYTES], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        Entry {
            time_ns: 0x0102_0304_0506_0708,
            process: 4711,
            pool: 3,
            event: Event::ChunkPut,
            chunk_gets: 0x1122_3344,
            held: 5 << 40,
            used: 6,
            requested: 7,
            operations: 8,
            slow_ns: u64::MAX,
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let head = Head { process: 1, every: 300, start_ns: 99, program: "prog".into() };
        let name =
            Name { time_ns: 5, process: 1, pool: 2, parent: 1, kind: "fifo".into(), name: "replies".into() };
        let mut records = vec![Record::Head(head), Record::Name(name)];
        records.extend(EVENTS.map(|event| Record::Entry(Entry { event, ..entry() })));
        for record in records {
            assert_eq!(Record::decode(&record.encode()), Ok(record));
        }
    }

    /// The offsets, as docs/pool-log.md gives them.
    #[test]
    fn fields_stand_where_the_format_says() {
        let bytes = Record::Entry(entry()).encode();
        assert_eq!(bytes[..8], 0x0102_0304_0506_0708u64.to_le_bytes());
        assert_eq!(bytes[8..12], 4711u32.to_le_bytes());
        assert_eq!(bytes[12..16], [3, 0, 0, 0]);
        assert_eq!(bytes[16..20], [4, 0, 0, 0]);
        assert_eq!(bytes[20..24], [0x44, 0x33, 0x22, 0x11]);
        assert_eq!(bytes[24..32], (5u64 << 40).to_le_bytes());
        assert_eq!((bytes[32], bytes[40], bytes[48], bytes[56]), (6, 7, 8, 255));
    }

    #[test]
    fn what_is_no_record_is_refused() {
        let good = Record::Entry(entry()).encode();
        let with = |at: usize, value: u8| {
            let mut bytes = good;
            bytes[at] = value;
            Record::decode(&bytes)
        };
        assert_eq!(with(16, 6), Err(Bad::Event(6)));
        assert_eq!(with(18, 1), Err(Bad::Reserved));
        assert_eq!(with(12, 0), Err(Bad::Zero));
        assert_eq!(Record::decode(&[0; BYTES]), Err(Bad::Zero));
        assert_eq!(Record::decode(&[0xFF; BYTES]), Err(Bad::Mark));
        let head = Head { process: 1, every: 1, start_ns: 0, program: String::new() };
        let mut head = Record::Head(head).encode();
        head[18] = 2;
        assert_eq!(Record::decode(&head), Err(Bad::Version(2, 64)));
        head[12] = 72;
        assert_eq!(Record::decode(&head), Err(Bad::Version(2, 72)));
    }

    #[test]
    fn names_are_made_harmless() {
        assert_eq!(text(b"a\x1b[31mb\0rest"), "a?[31mb");
        assert_eq!(text(b"\xFFx"), "\u{FFFD}x");
        assert_eq!(text(b"12345678"), "12345678");
    }
}
