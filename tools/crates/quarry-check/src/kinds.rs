// SPDX-License-Identifier: MIT
//! The kinds of errors: a word for each, which does not change, and what other tools call it.

/// What a kind is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum About {
    /// An access to memory.
    Access,
    /// A call that was given a wrong block or size.
    Call,
    /// Memory that is not freed.
    Leak,
}

/// One kind.
#[derive(Debug)]
pub struct Kind {
    /// Its word.
    pub word: &'static str,
    /// What it is about.
    pub about: About,
    /// What it means, in a sentence.
    pub means: &'static str,
    /// What to do about it, in a sentence.
    pub advice: &'static str,
    /// Its number in the Common Weakness Enumeration.
    pub cwe: u32,
    /// What memcheck calls it in XML; empty: that depends on the access.
    pub memcheck: &'static str,
    /// What memcheck calls it in suppressions; empty: it has no word for it. Addr: followed by the size of the access.
    pub suppression: &'static str,
}

const fn kind(
    word: &'static str,
    about: About,
    cwe: u32,
    other: [&'static str; 2],
    means: &'static str,
    advice: &'static str,
) -> Kind {
    Kind { word, about, means, advice, cwe, memcheck: other[0], suppression: other[1] }
}

use About::{Access, Call, Leak};

const FREE: [&str; 2] = ["InvalidFree", "Free"];
const MISMATCH: [&str; 2] = ["MismatchedFree", "Free"];
const VALUE: [&str; 2] = ["FishyValue", "FishyValue"];
const WRITE: [&str; 2] = ["InvalidWrite", "Addr"];
const READ: [&str; 2] = ["InvalidRead", "Addr"];
const POOL: [&str; 2] = ["InvalidMemPool", ""];

/// All kinds, as docs/check.md has them.
pub const ALL: &[Kind] = &[
    kind(
        "double-free",
        Call,
        415,
        FREE,
        "a block is freed that was freed before",
        "Free it once: set the pointer to NULL, or let one place own the block.",
    ),
    kind(
        "invalid-free",
        Call,
        590,
        FREE,
        "an address is freed that no allocation returned",
        "Free only what malloc and its family returned.",
    ),
    kind(
        "interior-free",
        Call,
        761,
        FREE,
        "an address inside a block is freed",
        "Free the address that the allocation returned, and keep it when the pointer moves.",
    ),
    kind(
        "mismatched-free",
        Call,
        762,
        MISMATCH,
        "a block is freed by a function of another family",
        "Free malloc's blocks by free, those of new by delete, and those of new[] by delete[].",
    ),
    kind(
        "wrong-size",
        Call,
        131,
        MISMATCH,
        "a block is freed with a size that is not its own",
        "Pass the size that was asked for, and delete an object by its own type or a virtual destructor.",
    ),
    kind(
        "wrong-alignment",
        Call,
        762,
        MISMATCH,
        "a block is freed with an alignment that is not its own",
        "Pass the alignment that was asked for.",
    ),
    kind(
        "bad-argument",
        Call,
        687,
        VALUE,
        "a size or an alignment makes no sense",
        "Check the computation of the argument: it was negative, overflowed, or is no power of two.",
    ),
    kind(
        "overflow-write",
        Access,
        787,
        WRITE,
        "memory behind a block is written",
        "Compare the length that is written with the size of the block.",
    ),
    kind(
        "underflow-write",
        Access,
        124,
        WRITE,
        "memory before a block is written",
        "Check the index or the pointer: it went below the block's begin.",
    ),
    kind(
        "overflow-read",
        Access,
        125,
        READ,
        "memory behind a block is read",
        "Compare the length that is read with the size of the block.",
    ),
    kind(
        "underflow-read",
        Access,
        127,
        READ,
        "memory before a block is read",
        "Check the index or the pointer: it went below the block's begin.",
    ),
    kind(
        "use-after-free-read",
        Access,
        416,
        READ,
        "a freed block is read",
        "Free the block after its last use.",
    ),
    kind(
        "use-after-free-write",
        Access,
        416,
        WRITE,
        "a freed block is written",
        "Free the block after its last use.",
    ),
    kind(
        "write-after-free",
        Access,
        416,
        WRITE,
        "a freed block was written before its memory was used again",
        "Free the block after its last use.",
    ),
    kind(
        "overlap",
        Call,
        475,
        ["Overlap", "Overlap"],
        "source and destination of a copy overlap",
        "Use memmove.",
    ),
    kind(
        "unterminated",
        Access,
        170,
        READ,
        "a string has no end within its block",
        "Leave room for the zero byte, and write it.",
    ),
    kind(
        "leak-definite",
        Leak,
        401,
        ["Leak_DefinitelyLost", "Leak"],
        "nothing points to the block any more",
        "Free it before its last pointer is lost.",
    ),
    kind(
        "leak-indirect",
        Leak,
        401,
        ["Leak_IndirectlyLost", "Leak"],
        "only lost blocks point to the block",
        "Free what leads to it, and this with it.",
    ),
    kind(
        "leak-possible",
        Leak,
        401,
        ["Leak_PossiblyLost", "Leak"],
        "only pointers into the block are left",
        "Check whether a pointer into the middle is kept on purpose.",
    ),
    kind(
        "leak-reachable",
        Leak,
        401,
        ["Leak_StillReachable", "Leak"],
        "the block is not freed, and something points to it",
        "It is no error at the end of a program. It is one where such blocks become ever more.",
    ),
    kind(
        "leak-growing",
        Leak,
        401,
        ["Leak_StillReachable", "Leak"],
        "blocks of one place became more from scan to scan",
        "Look which container they stay in, and when it lets them go.",
    ),
    kind(
        "use-after-pop",
        Access,
        416,
        WRITE,
        "a block is used whose frame was popped",
        "Copy what is to live on, or pop the frame later.",
    ),
    kind(
        "use-after-release",
        Access,
        416,
        WRITE,
        "a block of a pool is used that was released",
        "Release it after its last use.",
    ),
    kind(
        "pool-overflow",
        Access,
        787,
        WRITE,
        "memory behind a block of a pool is used",
        "Compare the length with the size of the block.",
    ),
    kind(
        "pool-wrong-frame",
        Call,
        664,
        POOL,
        "frames of a pool are used out of order, or a block outside of its own frame",
        "End frames in the reverse order of their begin, and grow a block in its own frame.",
    ),
    kind(
        "pool-double-release",
        Call,
        415,
        POOL,
        "a frame of a pool is released that was released before",
        "Release it once: let one place own the frame.",
    ),
    kind(
        "pool-destroyed",
        Call,
        416,
        POOL,
        "a pool is used that was destroyed, or destroyed while others use it",
        "Destroy it after its last use, and after the pools that take their memory from it.",
    ),
    kind(
        "unknown",
        Call,
        119,
        VALUE,
        "an error of a kind that this version does not know",
        "Use the tool of the same version as the library.",
    ),
];

/// The kind of a word; unknown words have a kind of their own.
pub fn of(word: &str) -> &'static Kind {
    ALL.iter().find(|kind| kind.word == word).unwrap_or(&ALL[ALL.len() - 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_is_of_one_kind() {
        for (index, kind) in ALL.iter().enumerate() {
            assert_eq!(ALL.iter().position(|other| other.word == kind.word), Some(index));
            assert!(kind.advice.ends_with('.') && !kind.means.ends_with('.'), "{}", kind.word);
        }
        assert_eq!((of("overlap").word, of("x").word), ("overlap", "unknown"));
    }
}
