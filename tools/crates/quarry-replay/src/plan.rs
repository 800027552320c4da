// SPDX-License-Identifier: MIT
//! The plan: `tools/replay/plan.h` in Rust. That file says what everything means.

use thiserror::Error;

/// The first eight bytes.
pub const MAGIC: [u8; 8] = *b"QRYPLAN\0";
/// The version of the format.
pub const VERSION: u32 = 3;

/// Flag: the segments' order is the order of all operations.
pub const STRICT: u32 = 1;

/// A word's bits that hold its kind.
pub const KIND_MASK: u64 = 15;
/// A word's bit: somebody waits for the stamp that it makes.
pub const SIGNAL: u64 = 16;
/// Where the slot or thread begins.
pub const INDEX_SHIFT: u32 = 5;
/// How many bits it has.
pub const INDEX_BITS: u32 = 27;
/// Where the value begins.
pub const VALUE_SHIFT: u32 = 32;

/// slot, size
pub const MALLOC: u64 = 1;
/// slot, size
pub const CALLOC: u64 = 2;
/// slot, size, behind an [`ALIGN`]
pub const MEMALIGN: u64 = 3;
/// slot, size; of NULL if the slot is empty
pub const REALLOC: u64 = 4;
/// slot
pub const FREE: u64 = 5;
/// free(NULL)
pub const FREE_NULL: u64 = 6;
/// the statistics function
pub const STATS: u64 = 7;
/// kinds below it are counted
pub const KINDS: usize = 8;
/// slot, stamp
pub const WAIT: u64 = 8;
/// nanoseconds since the start
pub const TIME: u64 = 9;
/// thread, number
pub const SPAWN: u64 = 10;
/// thread
pub const JOIN: u64 = 11;
/// the upper half of the next word's size
pub const WIDE: u64 = 12;
/// the next word's alignment, as log2
pub const ALIGN: u64 = 13;
/// lines of 64 bytes that the program wrote of the next word's block
pub const TOUCH: u64 = 14;
/// number of the look
pub const LOOK: u64 = 15;

/// A plan has no more slots than this.
pub const SLOTS_MAX: u32 = 1 << INDEX_BITS;
/// The largest window, in epochs.
pub const WINDOW_MAX: u32 = 64;
/// The largest alignment, as log2.
pub const ALIGN_MAX: u8 = 30;

/// Bytes of a plan's head.
pub const HEAD_BYTES: usize = 144;
/// Bytes of a segment's head.
pub const SEGMENT_BYTES: usize = 16;

/// Why a trace cannot become a plan.
#[derive(Debug, Error)]
pub enum PlanError {
    /// More blocks are live at once than a plan has slots.
    #[error("more than {SLOTS_MAX} blocks are live at once; a plan has no room for more")]
    Slots,
    /// More threads, epochs or segments than their numbers allow.
    #[error("the trace has more {0} than a plan can number")]
    TooMany(&'static str),
    /// The plan cannot be written.
    #[error("cannot write the plan: {0}")]
    Write(#[from] std::io::Error),
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] quarry_trace::TraceError),
    /// The `.ms` file cannot be read.
    #[error(transparent)]
    Ms(#[from] quarry_synth::ms::MsError),
}

/// Make a word.
pub fn word(kind: u64, index: u32, value: u32) -> u64 {
    kind | u64::from(index) << INDEX_SHIFT | u64::from(value) << VALUE_SHIFT
}

/// A word's kind.
pub fn kind(word: u64) -> u64 {
    word & KIND_MASK
}

/// A word's slot or thread.
pub fn index(word: u64) -> u32 {
    (word as u32) >> INDEX_SHIFT
}

/// A word's value.
pub fn value(word: u64) -> u32 {
    (word >> VALUE_SHIFT) as u32
}

/// The first bytes of a plan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Head {
    /// [`STRICT`] or not
    pub flags: u32,
    /// threads, with thread 0
    pub threads: u32,
    /// most of them at once
    pub alive: u32,
    /// slots of the table
    pub slots: u32,
    /// how many epochs a thread may be ahead of the slowest
    pub window: u32,
    /// epochs
    pub epochs: u32,
    /// segments
    pub segments: u32,
    /// length of the file
    pub bytes: u64,
    /// operations by kind; at 0 their sum
    pub operations: [u64; KINDS],
    /// most requested bytes that were live at once
    pub peak_live: u64,
    /// requested bytes that are live at the end
    pub end_live: u64,
    /// most blocks that were live at once
    pub peak_blocks: u64,
    /// from the first event to the last
    pub duration_ns: u64,
}

impl Head {
    /// As it stands in the file.
    pub fn to_bytes(&self) -> [u8; HEAD_BYTES] {
        let words = [
            VERSION,
            self.flags,
            self.threads,
            self.alive,
            self.slots,
            self.window,
            self.epochs,
            self.segments,
        ];
        let long = [self.peak_live, self.end_live, self.peak_blocks, self.duration_ns];
        let mut bytes = Vec::with_capacity(HEAD_BYTES);
        bytes.extend(MAGIC);
        bytes.extend(words.into_iter().flat_map(u32::to_le_bytes));
        let numbers = std::iter::once(self.bytes).chain(self.operations).chain(long);
        bytes.extend(numbers.flat_map(u64::to_le_bytes));
        let mut head = [0; HEAD_BYTES];
        head.copy_from_slice(&bytes);
        head
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = include_str!("../../../replay/plan.h");

    /// The value of `#define QY_PLAN_name` in the header.
    fn defined(name: &str) -> String {
        let prefix = format!("#define QY_PLAN_{name} ");
        let line = HEADER.lines().find_map(|line| line.strip_prefix(&prefix));
        let text = line.unwrap_or_else(|| panic!("plan.h has no {name}"));
        text.split("//").next().unwrap().trim().to_owned()
    }

    #[test]
    fn the_two_languages_agree() {
        let numbers = [
            ("VERSION", u64::from(VERSION)),
            ("STRICT", u64::from(STRICT)),
            ("KIND_MASK", KIND_MASK),
            ("SIGNAL", SIGNAL),
            ("INDEX_SHIFT", u64::from(INDEX_SHIFT)),
            ("INDEX_BITS", u64::from(INDEX_BITS)),
            ("VALUE_SHIFT", u64::from(VALUE_SHIFT)),
            ("MALLOC", MALLOC),
            ("CALLOC", CALLOC),
            ("MEMALIGN", MEMALIGN),
            ("REALLOC", REALLOC),
            ("FREE", FREE),
            ("FREE_NULL", FREE_NULL),
            ("STATS", STATS),
            ("KINDS", KINDS as u64),
            ("WAIT", WAIT),
            ("TIME", TIME),
            ("SPAWN", SPAWN),
            ("JOIN", JOIN),
            ("WIDE", WIDE),
            ("ALIGN", ALIGN),
            ("TOUCH", TOUCH),
            ("LOOK", LOOK),
            ("WINDOW_MAX", u64::from(WINDOW_MAX)),
            ("ALIGN_MAX", u64::from(ALIGN_MAX)),
        ];
        for (name, ours) in numbers {
            assert_eq!(defined(name).parse(), Ok(ours), "{name}");
        }
        assert_eq!(defined("MAGIC").as_bytes(), b"\"QRYPLAN\"");
        assert_eq!(defined("SLOTS_MAX"), "(UINT32_C(1) << QY_PLAN_INDEX_BITS)");
        // Nothing is defined there that is not compared here.
        let all = HEADER.lines().filter(|line| line.starts_with("#define QY_PLAN_")).count();
        assert_eq!(all, numbers.len() + 2);
    }

    #[test]
    fn words_come_apart_again() {
        let w = word(REALLOC, SLOTS_MAX - 1, u32::MAX);
        assert_eq!((kind(w), index(w), value(w)), (REALLOC, SLOTS_MAX - 1, u32::MAX));
        assert_eq!(w & SIGNAL, 0);
        let w = w | SIGNAL;
        assert_eq!((kind(w), index(w), value(w)), (REALLOC, SLOTS_MAX - 1, u32::MAX));
    }

    #[test]
    fn the_head_has_its_members_where_c_has_them() {
        let head = Head {
            flags: STRICT,
            threads: 2,
            alive: 3,
            slots: 4,
            window: 5,
            epochs: 6,
            segments: 7,
            bytes: 8,
            operations: [9, 10, 11, 12, 13, 14, 15, 16],
            peak_live: 17,
            end_live: 18,
            peak_blocks: 19,
            duration_ns: 20,
        };
        let bytes = head.to_bytes();
        let at = |offset: usize| u32::from_le_bytes(bytes[offset..offset + 4].try_into().unwrap());
        // The order of the members of struct qy_plan_head.
        let members: Vec<&str> = HEADER
            .split("typedef struct qy_plan_head {")
            .nth(1)
            .unwrap()
            .split('}')
            .next()
            .unwrap()
            .lines()
            .filter_map(|line| line.trim().split(';').next()?.split_whitespace().nth(1))
            .collect();
        let expected = [
            "magic[8]",
            "version",
            "flags",
            "threads",
            "alive",
            "slots",
            "window",
            "epochs",
            "segments",
            "bytes",
            "operations[QY_PLAN_KINDS]",
            "peak_live",
            "end_live",
            "peak_blocks",
            "duration_ns",
        ];
        assert_eq!(members, expected);
        assert_eq!([at(8), at(12), at(16), at(36), at(40)], [VERSION, STRICT, 2, 7, 8]);
        assert_eq!([at(48), at(104), at(112), at(136)], [9, 16, 17, 20]);
    }
}
