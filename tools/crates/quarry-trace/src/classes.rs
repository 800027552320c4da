// SPDX-License-Identifier: MIT
//! Size classes: how large the block is that a malloc hands out for what was asked of it.
//!
//! A trace has what was asked for, and names the library whose malloc answered. For these libraries the size of the block follows from
//! the size that was asked for. `tests/rounding.rs` of the tool compares this with what the libraries themselves say.

/// What is larger has no class: it is whole pages.
pub const LARGEST: u64 = 64 << 10;

/// A rule by which sizes are rounded up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// As a heap of Quarry begins. It refines classes of which it has many blocks, and adds less then.
    Quarry,
    /// Chunks of 16 bytes each, with a head of eight bytes.
    Glibc,
    /// Four classes per doubling: jemalloc and mimalloc.
    Quarters,
}

/// The size classes of a malloc.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Classes {
    rule: Rule,
    name: &'static str,
    is_own: bool,
}

impl Classes {
    /// Of the malloc in this library, the `malloc` of a trace's head. Of one that is not known they are those of Quarry.
    pub fn of(library: &str) -> Self {
        let file = library.rsplit('/').next().unwrap_or_default();
        let known = [
            ("libquarry-malloc", Rule::Quarry, "Quarry"),
            ("libquarry.", Rule::Quarry, "Quarry"),
            ("libc.so.6", Rule::Glibc, "glibc"),
            ("libjemalloc", Rule::Quarters, "jemalloc"),
            ("libmimalloc", Rule::Quarters, "mimalloc"),
        ];
        // A running process that is sampled names no file.
        let sampled = known.first().filter(|_| library == "quarry");
        match known.iter().find(|(begin, ..)| file.starts_with(begin)).or(sampled) {
            Some(&(_, rule, name)) => Self { rule, name, is_own: true },
            None => Self { rule: Rule::Quarry, name: "Quarry", is_own: false },
        }
    }

    /// Whose they are.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Are they those of the malloc that was called? If not, they say what Quarry would add.
    pub fn is_own(&self) -> bool {
        self.is_own
    }

    /// Bytes of the block that is handed out for so many; above [`LARGEST`] just these.
    #[inline]
    pub fn block(&self, size: u64) -> u64 {
        if size > LARGEST {
            return size;
        }
        match self.rule {
            Rule::Glibc => (size + 8).next_multiple_of(16).max(32),
            Rule::Quarters if size <= 8 => 8,
            Rule::Quarters => part_of_doubling(size, 4),
            Rule::Quarry => quarry(size),
        }
    }

    /// What the class adds to what was asked for.
    #[inline]
    pub fn rounding(&self, size: u64) -> u64 {
        self.block(size) - size
    }
}

/// The next of so many sizes per doubling, all of them multiples of 16.
fn part_of_doubling(size: u64, parts: u64) -> u64 {
    let doubling = size.max(2).next_power_of_two() / 2;
    size.next_multiple_of((doubling / parts).max(16))
}

/// As `src/heap/sizeclass.h` has it: classes above 8 KiB that are no power of two are two cache lines longer than what they are for.
fn quarry(size: u64) -> u64 {
    match size {
        0..=128 => size.next_multiple_of(16),
        129..=1024 => part_of_doubling(size, 4),
        _ => match part_of_doubling(size, 2) {
            block if block > 8 << 10 && !block.is_power_of_two() => block + 128,
            block => block,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_known_by_their_files() {
        let name = |library: &str| {
            let classes = Classes::of(library);
            (classes.name(), classes.is_own())
        };
        assert_eq!(name("/usr/lib/x86_64-linux-gnu/libc.so.6"), ("glibc", true));
        assert_eq!(name("/opt/lib/libquarry-malloc.so.0.1.0"), ("Quarry", true));
        assert_eq!(name("libmimalloc.so.2.0"), ("mimalloc", true));
        assert_eq!((name("quarry"), name("/usr/bin/quarry")), (("Quarry", true), ("Quarry", false)));
        assert_eq!(name("/opt/jemalloc/libjemalloc.so.2"), ("jemalloc", true));
        for other in ["", "/", "/lib/ld-musl-x86_64.so.1", "/libc.so.6/libtcmalloc.so.4", "libquarry-pow2.so"]
        {
            assert_eq!(name(other), ("Quarry", false), "{other}");
        }
    }

    #[test]
    fn a_block_holds_what_was_asked_for() {
        for library in ["libc.so.6", "libjemalloc.so.2", "libquarry.so"] {
            let classes = Classes::of(library);
            let mut last = 0;
            for size in 0..=LARGEST {
                let block = classes.block(size);
                assert!(
                    block >= size && block >= last && block <= 2 * size.max(16),
                    "{library}: {size} {block}"
                );
                last = block;
            }
            assert_eq!((classes.rounding(LARGEST + 1), classes.block(u64::MAX)), (0, u64::MAX));
        }
    }
}
