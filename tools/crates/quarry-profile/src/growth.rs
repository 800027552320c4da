// SPDX-License-Identifier: MIT
//! Growth that lasts. The window has sixteen parts, and the least that is live in one is its floor. The growth is the lowest floor of the
//! last quarter, less the highest one of the first. It is found from the changes of some rows alone: time in which nothing changes costs
//! nothing, as there may be a million sites to ask about.

use crate::model::{Entry, Profile, join_equal};

/// Parts of a window.
const PARTS: usize = 16;

/// Asks about rows of a profile.
pub(crate) struct Growth<'a> {
    profile: &'a Profile,
    /// The first span of the window, and how many there are.
    first: usize,
    count: usize,
    /// Changes of several rows.
    entries: Vec<Entry>,
    /// The same, where there are many: by span.
    changes: Vec<f64>,
}

impl<'a> Growth<'a> {
    /// Between two times.
    pub fn new(profile: &'a Profile, (from, to): (u64, u64)) -> Self {
        let (first, last) = (profile.spans.of(from) as usize, profile.spans.of(to) as usize);
        Self { profile, first, count: last + 1 - first, entries: Vec::new(), changes: Vec::new() }
    }

    /// That of some rows. It is `ends`, the difference between the ends, where the window has too few spans of time.
    pub fn sure(&mut self, rows: &[u32], ends: i64) -> i64 {
        if self.count < PARTS {
            return ends;
        }
        let Self { profile, first, count, entries, changes } = self;
        let series = |row: u32| &profile.rows[row as usize].series;
        let step = |entry: &Entry| (entry.span as usize, entry.bytes);
        if let &[row] = rows {
            return growth(series(row).entries().iter().map(step), *first, *count);
        }
        let spans = profile.spans.count();
        if rows.iter().map(|&row| series(row).entries().len()).sum::<usize>() > spans {
            changes.clear();
            changes.resize(spans, 0.0);
            rows.iter().for_each(|&row| series(row).add_to(changes));
            return growth(changes.iter().copied().enumerate(), *first, *count);
        }
        entries.clear();
        rows.iter().for_each(|&row| entries.extend_from_slice(series(row).entries()));
        entries.sort_by_key(|entry| entry.span);
        join_equal(entries);
        growth(entries.iter().map(step), *first, *count)
    }
}

/// Of changes, at most one in each span.
fn growth(changes: impl Iterator<Item = (usize, f64)>, first: usize, count: usize) -> i64 {
    let mut changes = changes.peekable();
    let mut live = 0.0;
    let mut floors = [0.0; PARTS];
    for (part, floor) in floors.iter_mut().enumerate() {
        let [begin, end] = [part, part + 1].map(|part| first + part * count / PARTS);
        while let Some((_, bytes)) = changes.next_if(|change| change.0 <= begin) {
            live += bytes;
        }
        *floor = live;
        while let Some((_, bytes)) = changes.next_if(|change| change.0 < end) {
            live += bytes;
            *floor = floor.min(live);
        }
    }
    let before = floors[..PARTS / 4].iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let after = floors[PARTS - PARTS / 4..].iter().copied().fold(f64::INFINITY, f64::min);
    (after - before) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same from live bytes at the end of each span.
    fn slow(changes: &[f64], first: usize, count: usize) -> i64 {
        let mut now = 0.0;
        let live: Vec<f64> = changes
            .iter()
            .map(|change| {
                now += change;
                now
            })
            .collect();
        let floor = |part: usize| {
            let range = first + part * count / PARTS..first + (part + 1) * count / PARTS;
            live[range].iter().copied().fold(f64::INFINITY, f64::min)
        };
        let before = (0..PARTS / 4).map(floor).fold(f64::NEG_INFINITY, f64::max);
        let after = (PARTS - PARTS / 4..PARTS).map(floor).fold(f64::INFINITY, f64::min);
        (after - before) as i64
    }

    #[test]
    fn few_changes_say_the_same_as_all_spans() {
        let mut state = 88172645463325252u64;
        let mut random = |n: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % n
        };
        for _ in 0..2000 {
            let spans = 16 + random(500) as usize;
            let first = random(spans as u64 - 15) as usize;
            let count = 16 + random((spans - first - 15) as u64) as usize;
            let mut changes = vec![0.0; spans];
            for _ in 0..random(60) {
                changes[random(spans as u64) as usize] += random(2001) as f64 - 900.0;
            }
            let few = changes.iter().copied().enumerate().filter(|change| change.1 != 0.0);
            assert_eq!(growth(few, first, count), slow(&changes, first, count));
            assert_eq!(
                growth(changes.iter().copied().enumerate(), first, count),
                slow(&changes, first, count)
            );
        }
    }
}
