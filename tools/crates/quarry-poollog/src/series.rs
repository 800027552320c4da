// SPDX-License-Identifier: MIT
//! The course of a pool in bounded memory: least and most per group of entries, where a group grows as the
//! log does. A peak of a single entry is still there at the end.

use crate::record::{Entry, Event};

/// Least and most of some values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The least.
    pub min: u64,
    /// The most.
    pub max: u64,
}

impl Range {
    fn of(value: u64) -> Self {
        Self { min: value, max: value }
    }

    fn join(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

/// Entries that follow each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The number of the first one; a pool's entries are counted from 0.
    pub first: u64,
    /// How many.
    pub entries: u64,
    /// Time of the first one.
    pub start_ns: u64,
    /// Time of the last one.
    pub end_ns: u64,
    /// Bytes held.
    pub held: Range,
    /// Bytes used.
    pub used: Range,
    /// Chunks that came.
    pub gets: u32,
    /// Chunks that went.
    pub puts: u32,
    /// Pages cleaned for reuse.
    pub resets: u32,
}

impl Group {
    fn of(first: u64, entry: &Entry) -> Self {
        let when = |event| u32::from(entry.event == event);
        Self {
            first,
            entries: 1,
            start_ns: entry.time_ns,
            end_ns: entry.time_ns,
            held: Range::of(entry.held),
            used: Range::of(entry.used),
            gets: when(Event::ChunkGet),
            puts: when(Event::ChunkPut),
            resets: when(Event::Reset),
        }
    }

    fn join(&mut self, later: &Group) {
        self.entries += later.entries;
        self.end_ns = later.end_ns.max(self.end_ns);
        self.held = self.held.join(later.held);
        self.used = self.used.join(later.used);
        self.gets = self.gets.saturating_add(later.gets);
        self.puts = self.puts.saturating_add(later.puts);
        self.resets = self.resets.saturating_add(later.resets);
    }
}

/// Most groups of a series.
pub const GROUPS: usize = 1024;

/// The course of a pool.
///
/// Invariants: at most [`GROUPS`] groups; each but the last has `width` entries, the last one at most so
/// many; width is a power of two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Series {
    width: u64,
    groups: Vec<Group>,
    entries: u64,
}

impl Default for Series {
    fn default() -> Self {
        Self { width: 1, groups: Vec::new(), entries: 0 }
    }
}

impl Series {
    /// Add the next entry.
    pub fn push(&mut self, entry: &Entry) {
        let group = Group::of(self.entries, entry);
        self.entries += 1;
        if let Some(last) = self.groups.last_mut().filter(|last| last.entries < self.width) {
            last.join(&group);
            return;
        }
        if self.groups.len() == GROUPS {
            self.halve();
        }
        self.groups.push(group);
    }

    /// All groups are full: join them in pairs.
    fn halve(&mut self) {
        for index in 0..GROUPS / 2 {
            let mut pair = self.groups[2 * index].clone();
            pair.join(&self.groups[2 * index + 1]);
            self.groups[index] = pair;
        }
        self.groups.truncate(GROUPS / 2);
        self.width *= 2;
    }

    /// The groups, in order.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// How many entries there were.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// How many entries a group stands for (the last one perhaps for fewer).
    pub fn width(&self) -> u64 {
        self.width
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(n: u64) -> Entry {
        let event = if n.is_multiple_of(10) { Event::Reset } else { Event::Period };
        Entry {
            time_ns: n * 5,
            process: 1,
            pool: 1,
            event,
            chunk_gets: 0,
            held: if n == 777 { 1 << 40 } else { 100 },
            used: n,
            requested: 0,
            operations: n,
            slow_ns: 0,
        }
    }

    #[test]
    fn few_entries_are_kept_as_they_are() {
        let mut series = Series::default();
        (0..GROUPS as u64).for_each(|n| series.push(&entry(n)));
        assert_eq!((series.groups().len(), series.width()), (GROUPS, 1));
        assert_eq!(series.groups()[5].used, Range { min: 5, max: 5 });
    }

    #[test]
    fn many_entries_keep_their_bounds_and_peaks() {
        for total in [1025, 2048, 100_000, 1_000_003] {
            let mut series = Series::default();
            (0..total).for_each(|n| series.push(&entry(n)));
            let groups = series.groups();
            assert!(groups.len() <= GROUPS && groups.len() * 2 >= GROUPS);
            assert_eq!(groups.iter().map(|group| group.entries).sum::<u64>(), total);
            assert_eq!(series.entries(), total);
            assert_eq!(groups.iter().map(|group| group.held.max).max(), Some(1 << 40));
            assert_eq!(groups.iter().map(|group| u64::from(group.resets)).sum::<u64>(), total.div_ceil(10));
            let mut first = 0;
            for group in groups {
                assert_eq!(group.first, first);
                assert_eq!(group.used, Range { min: first, max: first + group.entries - 1 });
                assert_eq!((group.start_ns, group.end_ns), (first * 5, group.used.max * 5));
                first += group.entries;
            }
        }
    }
}
