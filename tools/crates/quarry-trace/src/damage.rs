// SPDX-License-Identifier: MIT
//! What of a trace could not be read, and why.

use std::fmt;

/// Most places that are kept one by one.
const SHOWN: usize = 20;

/// Why something was left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// The file ends within a block: it is still being written, or the writer was killed, or the disk was full.
    Cut,
    /// The file had more bytes: so many in all, as its end says, which need not be behind all else.
    Short(u64),
    /// These bytes are not a block.
    NotABlock,
    /// The payload is not what was written.
    Sum,
    /// The payload cannot be unpacked.
    Unpack,
    /// What follows in the payload would have to be unpacked once more, as there was no room to keep it, and all of
    /// that has taken too long already.
    Again,
    /// A record cannot be decoded; what follows it in its block is left out.
    Record(&'static str),
    /// A block of a version that is not known.
    Version(u16),
    /// The JSON of a head or an end makes no sense; the rest of the file is read without.
    Json(String),
    /// The number of blocks of a thread that are missing before this one.
    Missing {
        /// whose
        thread: u32,
        /// how many, as far as their numbers say
        blocks: u64,
    },
    /// The numbers of a thread's blocks do not increase.
    Order {
        /// whose
        thread: u32,
    },
    /// Another trace begins; only the first one is read.
    Another,
    /// The time of a thread went back; it is held at its highest.
    Backwards {
        /// whose
        thread: u32,
    },
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Cut => {
                f.write_str("the file ends within a block (killed, disk full, or still being written)")
            }
            Why::Short(1) => f.write_str("the file ends here, and had 1 byte"),
            Why::Short(bytes) => write!(f, "the file ends here, and had {bytes} bytes"),
            Why::NotABlock => f.write_str("not a block of a trace"),
            Why::Sum => f.write_str("the checksum is wrong"),
            Why::Unpack => f.write_str("cannot be unpacked"),
            Why::Again => f.write_str("the rest of a payload that was unpacked too often, for want of room"),
            Why::Record(what) => write!(f, "a record cannot be decoded: {what}"),
            Why::Version(version) => write!(f, "a block of version {version}"),
            Why::Json(error) => write!(f, "its JSON makes no sense: {error}"),
            Why::Missing { thread, blocks: 1 } => {
                write!(f, "before it 1 block of thread {thread} is missing")
            }
            Why::Missing { thread, blocks } => {
                write!(f, "before it {blocks} blocks of thread {thread} are missing")
            }
            Why::Order { thread } => write!(f, "blocks of thread {thread} are out of order"),
            Why::Another => f.write_str("another trace begins here; only the first one is read"),
            Why::Backwards { thread } => write!(f, "the time of thread {thread} goes back"),
        }
    }
}

/// A place of damage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Where it begins in the file.
    pub offset: u64,
    /// Bytes that were left out there; 0 where something is missing or wrong but nothing was left out.
    pub bytes: u64,
    /// Why.
    pub why: Why,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bytes {
            0 => write!(f, "byte {}: {}", self.offset, self.why),
            1 => write!(f, "byte {}: 1 byte left out: {}", self.offset, self.why),
            n => write!(f, "byte {}: {n} bytes left out: {}", self.offset, self.why),
        }
    }
}

/// What of a trace could not be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Damage {
    /// The first places, in the order they were found.
    pub places: Vec<Place>,
    /// How many places there are.
    pub count: u64,
    /// Bytes left out in all.
    pub bytes: u64,
    /// Blocks that are missing, as far as numbers tell.
    pub missing: u64,
}

impl Damage {
    /// Could all be read?
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Add a place; one that continues the last one with the same reason becomes a part of it.
    pub(crate) fn add(&mut self, offset: u64, bytes: u64, why: Why) {
        self.bytes = self.bytes.saturating_add(bytes);
        if let Why::Missing { blocks, .. } = why {
            self.missing = self.missing.saturating_add(blocks);
        }
        if self.count == self.places.len() as u64
            && let Some(last) = self.places.last_mut()
            && last.why == why
            && last.bytes > 0
            && last.offset.saturating_add(last.bytes) == offset
        {
            last.bytes = last.bytes.saturating_add(bytes);
            return;
        }
        self.count += 1;
        if self.places.len() < SHOWN {
            self.places.push(Place { offset, bytes, why });
        }
    }

    /// Add what was found elsewhere.
    pub fn merge(&mut self, other: &Damage) {
        self.count += other.count;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.missing = self.missing.saturating_add(other.missing);
        let room = SHOWN.saturating_sub(self.places.len());
        self.places.extend(other.places.iter().take(room).cloned());
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, place) in self.places.iter().enumerate() {
            write!(f, "{}{place}", if index == 0 { "" } else { "; " })?;
        }
        match self.count - self.places.len() as u64 {
            0 => Ok(()),
            1 => write!(f, "; and 1 more place, {} bytes left out in all", self.bytes),
            more => write!(f, "; and {more} more places, {} bytes left out in all", self.bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_become_one_place() {
        let mut damage = Damage::default();
        damage.add(4096, 4096, Why::NotABlock);
        damage.add(8192, 4096, Why::NotABlock);
        damage.add(20480, 8, Why::NotABlock);
        assert_eq!((damage.count, damage.bytes), (2, 8200));
        assert_eq!(damage.places[0], Place { offset: 4096, bytes: 8192, why: Why::NotABlock });
        assert_eq!(
            damage.to_string(),
            "byte 4096: 8192 bytes left out: not a block of a trace; byte 20480: 8 bytes left out: not a block of a trace"
        );
    }

    #[test]
    fn one_is_no_plural() {
        let mut damage = Damage::default();
        damage.add(7, 1, Why::Short(1));
        damage.add(90, 0, Why::Missing { thread: 3, blocks: 1 });
        assert_eq!(
            damage.to_string(),
            "byte 7: 1 byte left out: the file ends here, and had 1 byte; byte 90: before it 1 block of thread 3 is missing"
        );
        for index in 0..SHOWN as u64 - 1 {
            damage.add(1000 + index * 100, 1, Why::Sum);
        }
        assert!(damage.to_string().ends_with("; and 1 more place, 20 bytes left out in all"), "{damage}");
    }

    #[test]
    fn what_is_kept_is_bounded_and_what_is_counted_is_not() {
        let mut damage = Damage::default();
        for index in 0..1000 {
            damage.add(index * 100, 1, Why::Sum);
        }
        damage.add(7, 0, Why::Missing { thread: 3, blocks: 5 });
        assert_eq!((damage.places.len(), damage.count, damage.bytes, damage.missing), (SHOWN, 1001, 1000, 5));
        assert!(damage.to_string().ends_with("; and 981 more places, 1000 bytes left out in all"));
        let mut sum = Damage::default();
        sum.merge(&damage);
        assert_eq!(sum, damage);
    }
}
