// SPDX-License-Identifier: MIT
//! The head of a block, and the checksum of its payload.

/// Bytes of a block's head.
pub(crate) const HEAD: usize = 64;
/// Most bytes of a block, and of a payload before packing.
pub(crate) const MOST: u32 = 16 << 20;
/// What a block begins with.
pub(crate) const MAGIC: [u8; 4] = *b"QTRB";
/// The version that is read and written here.
pub(crate) const VERSION: u16 = 1;

pub(crate) const SEALED: u8 = 1;
pub(crate) const PACKED: u8 = 2;

/// What a block holds.
pub(crate) mod kind {
    pub(crate) const HEAD: u8 = 1;
    pub(crate) const EVENTS: u8 = 2;
    pub(crate) const END: u8 = 3;
    pub(crate) const TEXT: u8 = 4;
}

/// A head, whose numbers keep the limits of the format; whether the bytes are there is another question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockHead {
    pub kind: u8,
    pub flags: u8,
    pub span: u32,
    pub used: u32,
    pub raw: u32,
    pub thread: u32,
    pub sequence: u32,
    pub events: u32,
    pub time: u64,
    pub address: u64,
    pub sum: u64,
    pub process: u32,
}

/// Why bytes are not a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoHead {
    /// Something else stands here.
    Foreign,
    /// A head of another version.
    Version(u16),
}

fn u32_at(bytes: &[u8; HEAD], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8; HEAD], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// Has a recorder not begun a block here? Its place may be taken: the magic number is stored after what is known at the beginning
/// (kind, version, span, thread, sequence, time, address, process), and what a block counts and its seal after that. A recorder
/// may be killed in between.
pub(crate) fn is_not_begun(bytes: &[u8; HEAD]) -> bool {
    let (flags, counted, sum) = (bytes[5], [12, 16, 28].map(|at| u32_at(bytes, at)), u64_at(bytes, 48));
    bytes[..4] == [0; 4] && flags == 0 && counted == [0; 3] && sum == 0
}

impl BlockHead {
    pub(crate) fn parse(bytes: &[u8; HEAD]) -> Result<Self, NoHead> {
        if bytes[..4] != MAGIC {
            return Err(NoHead::Foreign);
        }
        let version = u16::from_le_bytes([bytes[6], bytes[7]]);
        if version != VERSION {
            return Err(NoHead::Version(version));
        }
        let head = Self {
            kind: bytes[4],
            flags: bytes[5],
            span: u32_at(bytes, 8),
            used: u32_at(bytes, 12),
            raw: u32_at(bytes, 16),
            thread: u32_at(bytes, 20),
            sequence: u32_at(bytes, 24),
            events: u32_at(bytes, 28),
            time: u64_at(bytes, 32),
            address: u64_at(bytes, 40),
            sum: u64_at(bytes, 48),
            process: u32_at(bytes, 56),
        };
        let fits = (HEAD as u32..=MOST).contains(&head.span)
            && head.span.is_multiple_of(8)
            && head.used <= head.span - HEAD as u32
            && head.raw <= MOST
            && (kind::HEAD..=kind::TEXT).contains(&head.kind)
            && head.flags & !(SEALED | PACKED) == 0
            && head.address.is_multiple_of(16);
        if fits { Ok(head) } else { Err(NoHead::Foreign) }
    }

    pub(crate) fn bytes(&self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = self.kind;
        bytes[5] = self.flags;
        bytes[6..8].copy_from_slice(&VERSION.to_le_bytes());
        let words = [self.span, self.used, self.raw, self.thread, self.sequence, self.events];
        for (index, word) in words.into_iter().enumerate() {
            bytes[8 + 4 * index..][..4].copy_from_slice(&word.to_le_bytes());
        }
        for (index, word) in [self.time, self.address, self.sum].into_iter().enumerate() {
            bytes[32 + 8 * index..][..8].copy_from_slice(&word.to_le_bytes());
        }
        bytes[56..60].copy_from_slice(&self.process.to_le_bytes());
        bytes
    }

    pub(crate) fn is_sealed(&self) -> bool {
        self.flags & SEALED != 0
    }

    pub(crate) fn is_packed(&self) -> bool {
        self.flags & PACKED != 0
    }
}

/// The sum of a payload that comes in pieces, each but the last a multiple of 8 bytes long.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sum(u64);

impl Sum {
    pub(crate) fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    pub(crate) fn add(&mut self, piece: &[u8]) {
        let (words, rest) = piece.as_chunks::<8>();
        for word in words {
            self.word(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            self.word(u64::from_le_bytes(last));
        }
    }

    #[inline]
    fn word(&mut self, word: u64) {
        let h = (self.0 ^ word).wrapping_mul(0x0100_0000_01b3);
        self.0 = h ^ (h >> 32);
    }

    pub(crate) fn value(self) -> u64 {
        self.0
    }
}

/// The sum of a whole payload.
pub(crate) fn sum(payload: &[u8]) -> u64 {
    let mut sum = Sum::new();
    sum.add(payload);
    sum.value()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> BlockHead {
        BlockHead {
            kind: kind::EVENTS,
            flags: SEALED,
            span: 4096,
            used: 0x123,
            raw: 0x123,
            thread: 7,
            sequence: 9,
            events: 11,
            time: 0x0102_0304_0506_0708,
            address: 0x7f00_0000_1230,
            sum: u64::MAX,
            process: 4711,
        }
    }

    #[test]
    fn fields_stand_where_the_format_says() {
        let bytes = head().bytes();
        assert_eq!(bytes[..8], *b"QTRB\x02\x01\x01\x00");
        assert_eq!(bytes[8..16], [0, 16, 0, 0, 0x23, 1, 0, 0]);
        assert_eq!((bytes[20], bytes[24], bytes[28]), (7, 9, 11));
        assert_eq!(bytes[32..40], 0x0102_0304_0506_0708u64.to_le_bytes());
        assert_eq!(bytes[40..48], 0x7f00_0000_1230u64.to_le_bytes());
        assert_eq!(bytes[56..64], [0x67, 0x12, 0, 0, 0, 0, 0, 0]);
        assert_eq!(BlockHead::parse(&bytes), Ok(head()));
    }

    #[test]
    fn limits_hold() {
        let refused = |change: fn(&mut BlockHead)| {
            let mut head = head();
            change(&mut head);
            BlockHead::parse(&head.bytes()) == Err(NoHead::Foreign)
        };
        assert!(refused(|head| head.span = 56));
        assert!(refused(|head| head.span = 4097));
        assert!(refused(|head| head.span = MOST + 8));
        assert!(refused(|head| head.used = 4096 - 63));
        assert!(refused(|head| head.raw = MOST + 1));
        assert!(refused(|head| head.kind = 0));
        assert!(refused(|head| head.kind = 5));
        assert!(refused(|head| head.flags = 4));
        assert!(refused(|head| head.address = 8));
        assert!(!refused(|head| head.span = MOST));
        let mut later = head().bytes();
        later[6] = 2;
        assert_eq!(BlockHead::parse(&later), Err(NoHead::Version(2)));
    }

    /// Reckoned by hand from the formula of docs/trace-format.md.
    #[test]
    fn sums() {
        assert_eq!(sum(&[]), 0xcbf2_9ce4_8422_2325);
        let h = (0xcbf2_9ce4_8422_2325u64 ^ 0x61).wrapping_mul(0x100_0000_01b3);
        assert_eq!(sum(b"a"), h ^ (h >> 32));
        assert_eq!(sum(b"a\0\0\0\0\0\0\0"), sum(b"a"));
        let mut pieces = Sum::new();
        pieces.add(b"12345678");
        pieces.add(b"9");
        assert_eq!(pieces.value(), sum(b"123456789"));
    }
}
