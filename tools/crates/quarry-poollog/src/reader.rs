// SPDX-License-Identifier: MIT
//! A log as a stream of records, none of which is trusted.
//!
//! A log may end anywhere (the program was killed, the disk was full), and since processes append to the
//! same file, a record that was cut short may stand in its middle and put all that follows out of step. The
//! reader finds the next record that can be told from garbage, and says which bytes it left out.

use std::collections::HashSet;
use std::io::{self, Read};

use thiserror::Error;

use crate::record::{BYTES, Bad, MAGIC, Record};

/// Why a log cannot be read, or not any further.
#[derive(Debug, Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("at byte {0}: {1}")]
    Io(u64, #[source] io::Error),
    /// There is nothing in it.
    #[error("is empty: no pool was made, or the program could not write")]
    Empty,
    /// It is something else.
    #[error("is not a log of pools: it does not begin with QYPOOLS1")]
    Foreign,
    /// It has another format.
    #[error("at byte {0}: {1}")]
    Version(u64, Bad),
}

/// Why bytes were left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Why {
    /// The file ends within a record.
    #[error("the file ends within a record")]
    Ends,
    /// A record was cut short, and another process wrote on.
    #[error("a record was cut short, and another one follows")]
    Torn,
    /// They are not a record.
    #[error("not a record: {0}")]
    Bad(#[from] Bad),
}

/// Bytes that were left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost {
    /// Where they begin.
    pub offset: u64,
    /// How many.
    pub bytes: u64,
    /// Why.
    pub why: Why,
}

/// What the reader found next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A record.
    Record(Record),
    /// Damage.
    Lost(Lost),
}

const BUFFER: usize = 256 * 1024;

/// Reads a log from beginning to end, in bounded memory.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    buffer: Vec<u8>,
    /// What is not yet used of the buffer: `at..end`.
    at: usize,
    end: usize,
    /// Of `at`, in the file.
    offset: u64,
    ended: bool,
    /// Processes whose heads were seen.
    processes: HashSet<u32>,
}

impl<R: Read> Reader<R> {
    /// Begin to read; an error when this is no log at all.
    pub fn new(input: R) -> Result<Self, Error> {
        let mut reader = Self {
            input,
            buffer: vec![0; BUFFER],
            at: 0,
            end: 0,
            offset: 0,
            ended: false,
            processes: HashSet::new(),
        };
        let mark = reader.fill(MAGIC.len())?.min(MAGIC.len());
        match &reader.buffer[..mark] {
            [] => Err(Error::Empty),
            begin if *begin != MAGIC[..mark] => Err(Error::Foreign),
            _ => Ok(reader),
        }
    }

    /// What is read.
    pub fn input(&self) -> &R {
        &self.input
    }

    /// Bytes read so far.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The next record or damage; `None` at the end.
    pub fn next_item(&mut self) -> Result<Option<Item>, Error> {
        // Two records are looked at, to see whether the first one is whole.
        let have = self.fill(2 * BYTES)?;
        if have == 0 {
            return Ok(None);
        }
        if have < BYTES {
            return Ok(Some(self.lose(have, Why::Ends)));
        }
        match self.decode(0) {
            Ok(record) => {
                if let Some(distance) = self.torn(have) {
                    return Ok(Some(self.lose(distance, Why::Torn)));
                }
                if let Record::Head(head) = &record {
                    self.processes.insert(head.process);
                }
                self.skip(BYTES);
                Ok(Some(Item::Record(record)))
            }
            // A head that was cut in its version has the begin of the next record there.
            Err(bad @ Bad::Version(..)) => match self.torn(have) {
                Some(distance) => Ok(Some(self.lose(distance, Why::Torn))),
                None => Err(Error::Version(self.offset, bad)),
            },
            Err(bad) => self.search(bad).map(Some),
        }
    }

    /// Have at least `bytes` in the buffer, if the file has them; how many there are.
    fn fill(&mut self, bytes: usize) -> Result<usize, Error> {
        if self.end - self.at < bytes && !self.ended {
            self.buffer.copy_within(self.at..self.end, 0);
            self.end -= self.at;
            self.at = 0;
            while self.end < bytes && !self.ended {
                match self.input.read(&mut self.buffer[self.end..]) {
                    Ok(0) => self.ended = true,
                    Ok(n) => self.end += n,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(Error::Io(self.offset + self.end as u64, error)),
                }
            }
        }
        Ok(self.end - self.at)
    }

    fn skip(&mut self, bytes: usize) {
        self.at += bytes;
        self.offset += bytes as u64;
    }

    fn lose(&mut self, bytes: usize, why: Why) -> Item {
        let offset = self.offset;
        self.skip(bytes);
        Item::Lost(Lost { offset, bytes: bytes as u64, why })
    }

    /// The record `distance` bytes ahead, which must be in the buffer.
    fn decode(&self, distance: usize) -> Result<Record, Bad> {
        let mut bytes = [0; BYTES];
        bytes.copy_from_slice(&self.buffer[self.at + distance..][..BYTES]);
        Record::decode(&bytes)
    }

    /// Is there a record that is hardly chance? A head, or one of a process whose head was seen.
    fn is_anchor(&self, distance: usize) -> bool {
        match self.decode(distance) {
            Ok(Record::Head(_)) => true,
            Ok(record) => self.processes.contains(&record.process()),
            Err(_) => false,
        }
    }

    /// The first record looks good, but its end may be the beginning of another one: then what follows
    /// is out of step, and that other one is found in its middle, so many bytes ahead. Records of a process
    /// whose head is lost are in step when nothing better is found.
    fn torn(&self, have: usize) -> Option<usize> {
        let in_step = have == BYTES || have >= 2 * BYTES && self.is_anchor(0) && self.is_anchor(BYTES);
        if in_step {
            return None;
        }
        let last = (have - BYTES).min(BYTES - 1);
        (1..=last).find(|&distance| self.is_anchor(distance))
    }

    /// Leave out bytes up to the next record that cannot be chance.
    fn search(&mut self, bad: Bad) -> Result<Item, Error> {
        let offset = self.offset;
        loop {
            self.skip(1);
            let have = self.fill(BYTES)?;
            if have < BYTES {
                self.skip(have);
                break;
            }
            if self.is_anchor(0) {
                break;
            }
        }
        Ok(Item::Lost(Lost { offset, bytes: self.offset - offset, why: bad.into() }))
    }
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
