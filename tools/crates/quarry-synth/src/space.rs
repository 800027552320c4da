// SPDX-License-Identifier: MIT
//! Addresses for blocks that never were: as a simple allocator would give them, without any memory.
//!
//! Blocks never overlap, are aligned, and a free address is used again, last freed first, by a block of the same
//! class: multiples of 16 up to 1 KiB, then eight classes for each doubling; powers of two where an alignment
//! above 16 is asked for.

/// Where addresses begin: above what a program's own image and the first pages use.
const FIRST: u64 = 1 << 32;

/// Where they end: user space of a 64-bit machine.
const LIMIT: u64 = 1 << 47;

/// log2 of the alignment that every block has.
pub const NATURAL: u8 = 4;

const FINE: u64 = 1024;
const FINE_CLASSES: usize = (FINE / 16) as usize + 1;
/// log2 of the classes for each doubling.
const STEP: u32 = 3;
const CLASSES: usize = FINE_CLASSES + ((47 - 10) << STEP) + 1;

/// An address space without memory.
#[derive(Debug, Clone)]
pub struct Space {
    next: u64,
    plain: Vec<Vec<u64>>,
    aligned: Vec<Vec<u64>>,
}

impl Default for Space {
    fn default() -> Self {
        Self::new()
    }
}

/// What a block takes.
enum Class {
    /// Index in `plain`, bytes.
    Plain(usize, u64),
    /// log2 of bytes and of alignment.
    Aligned(u32),
}

fn class(size: u64, align: u8) -> Option<Class> {
    if size > LIMIT || align > 46 {
        return None;
    }
    if align > NATURAL {
        return Some(Class::Aligned(size.max(1 << align).next_power_of_two().trailing_zeros()));
    }
    if size <= FINE {
        let units = size.div_ceil(16).max(1);
        return Some(Class::Plain(units as usize, units * 16));
    }
    // Eight steps between 2^k and 2^(k+1).
    let k = (size - 1).ilog2();
    let width = 1_u64 << (k - STEP);
    let step = (size - (1 << k)).div_ceil(width);
    let index = FINE_CLASSES + (((k - 10) as usize) << STEP) + step as usize - 1;
    Some(Class::Plain(index, (1 << k) + step * width))
}

impl Space {
    /// An empty one.
    pub fn new() -> Self {
        Self { next: FIRST, plain: vec![Vec::new(); CLASSES], aligned: vec![Vec::new(); 48] }
    }

    /// An address for a block of `size` bytes aligned to 2^`align`; `None` when there is no room for it.
    pub fn take(&mut self, size: u64, align: u8) -> Option<u64> {
        let (free, bytes, align) = match class(size, align)? {
            Class::Plain(index, bytes) => (self.plain.get_mut(index)?, bytes, 16),
            Class::Aligned(log) => (self.aligned.get_mut(log as usize)?, 1 << log, 1 << log),
        };
        if let Some(address) = free.pop() {
            return Some(address);
        }
        let address = self.next.checked_next_multiple_of(align)?;
        let end = address.checked_add(bytes).filter(|&end| end <= LIMIT)?;
        self.next = end;
        Some(address)
    }

    /// Give back what `take` gave for the same size and alignment.
    pub fn give(&mut self, address: u64, size: u64, align: u8) {
        match class(size, align) {
            Some(Class::Plain(index, _)) => self.plain[index].push(address),
            Some(Class::Aligned(log)) => self.aligned[log as usize].push(address),
            None => {}
        }
    }

    /// A block gets another size: it stays where it is if its class does.
    pub fn resize(&mut self, address: u64, old: u64, new: u64, align: u8) -> Option<u64> {
        let same = match (class(old, align)?, class(new, align)?) {
            (Class::Plain(a, _), Class::Plain(b, _)) => a == b,
            (Class::Aligned(a), Class::Aligned(b)) => a == b,
            _ => false,
        };
        if same {
            return Some(address);
        }
        let moved = self.take(new, align)?;
        self.give(address, old, align);
        Some(moved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn classes_have_room() {
        let mut last = 0;
        for size in (0..70_000).chain((0..30).flat_map(|k| {
            let size = 1_u64 << (k + 17);
            [size - 1, size, size + 1]
        })) {
            let Some(Class::Plain(index, bytes)) = class(size, 0) else { panic!("{size}") };
            assert!(bytes >= size && bytes <= (size + size / 8).max(16) + 15, "{size} {bytes}");
            assert!(bytes.is_multiple_of(16) && index < CLASSES && index >= last, "{size}: {index}");
            last = index;
        }
        assert!(class(LIMIT, 0).is_some() && class(LIMIT + 1, 0).is_none() && class(1, 47).is_none());
    }

    #[test]
    fn blocks_never_overlap() {
        let mut space = Space::new();
        let mut rng = quarry_measure::rng::Rng::new(5);
        let mut live: BTreeMap<u64, (u64, u8)> = BTreeMap::new();
        for _ in 0..20_000 {
            if rng.below(100) < 45 && !live.is_empty() {
                let at =
                    *live.range(rng.bits() % (1 << 40)..).next().unwrap_or(live.iter().next().unwrap()).0;
                let (size, align) = live.remove(&at).unwrap();
                if rng.below(2) == 0 {
                    space.give(at, size, align);
                } else {
                    let new = rng.bits() >> (44 + rng.below(20));
                    let moved = space.resize(at, size, new, align).unwrap();
                    assert!(live.insert(moved, (new, align)).is_none());
                }
            } else {
                let size = rng.bits() >> (44 + rng.below(20));
                let align = rng.below(14) as u8;
                let at = space.take(size, align).unwrap();
                assert!(at.is_multiple_of(16.max(1 << align)));
                assert!(live.insert(at, (size, align)).is_none(), "an address twice");
            }
        }
        let ends = live.iter().map(|(&at, &(size, _))| at + size);
        assert!(ends.zip(live.keys().skip(1)).all(|(end, &next)| end <= next));
    }

    #[test]
    fn the_last_freed_address_comes_first() {
        let mut space = Space::new();
        let [a, b] = [space.take(100, 0).unwrap(), space.take(100, 0).unwrap()];
        space.give(a, 100, 0);
        space.give(b, 100, 0);
        assert_eq!([space.take(97, 0), space.take(112, 0)], [Some(b), Some(a)]);
        assert_eq!(space.resize(a, 112, 98, 0), Some(a));
        assert_ne!(space.resize(a, 98, 500, 0), Some(a));
    }

    #[test]
    fn there_is_an_end_to_it() {
        let mut space = Space::new();
        assert_eq!(space.take(u64::MAX, 0), None);
        assert!(space.take(1 << 46, 0).is_some());
        assert_eq!(space.take(1 << 46, 0), None);
        assert!(space.take(1 << 40, 0).is_some());
    }
}
