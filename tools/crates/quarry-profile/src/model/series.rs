// SPDX-License-Identifier: MIT
//! What a row had over time: one entry for each span of time in which it changed.

/// Spans that the time of a trace is divided into, at most; at least half as many, unless there are too many entries.
pub const SPANS: usize = 512;
/// Entries of all rows together, beside some of each row. When there are more, neighbouring spans are joined, in all rows at once.
pub(super) const MOST: usize = 1 << 18;

/// The change within a span of time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Entry {
    /// Its number, from 0.
    pub span: u32,
    /// Bytes that were allocated in it, to seven digits. Estimated in a sample, as is the next.
    pub born: f32,
    /// Bytes that are live at its end, less those at its beginning. Whole numbers below 2^53 are exact.
    pub bytes: f64,
}

/// The entries of a row, by time.
#[derive(Debug, Clone, Default)]
pub struct Series {
    entries: Vec<Entry>,
}

impl Series {
    /// The entries.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Add what changed. True: there is one entry more.
    #[inline]
    pub(super) fn add(&mut self, change: Entry) -> bool {
        if let Some(last) = self.entries.last_mut()
            && last.span >= change.span
        {
            last.bytes += change.bytes;
            last.born += change.born;
            return false;
        }
        room_for_one(&mut self.entries);
        self.entries.push(change);
        true
    }

    fn join(&mut self) {
        self.entries.iter_mut().for_each(|entry| entry.span /= 2);
        join_equal(&mut self.entries);
        self.entries.shrink_to(self.entries.len() + 1);
    }

    /// Add what changed in each span.
    pub fn add_to(&self, changes: &mut [f64]) {
        for entry in &self.entries {
            if let Some(change) = changes.get_mut(entry.span as usize) {
                *change += entry.bytes;
            }
        }
    }
}

/// Entries of one span are one. They come by time.
pub fn join_equal(entries: &mut Vec<Entry>) {
    entries.dedup_by(|next, first| {
        let same = next.span == first.span;
        if same {
            first.bytes += next.bytes;
            first.born += next.born;
        }
        same
    });
}

/// Room for one more. Most rows have few: room for four at once would be unused by a million of them.
pub(super) fn room_for_one<T>(entries: &mut Vec<T>) {
    if entries.len() == entries.capacity() {
        entries.reserve_exact(entries.len() / 2 + 1);
    }
}

/// From times to spans.
#[derive(Debug, Clone, Copy)]
pub struct Spans {
    first: u64,
    last: u64,
    shift: u32,
}

impl Spans {
    /// Of the time between the first and the last event.
    pub fn new(first: u64, last: u64) -> Self {
        let length = last.saturating_sub(first);
        let mut shift = 0;
        while length >> shift >= SPANS as u64 {
            shift += 1;
        }
        Self { first, last: last.max(first), shift }
    }

    /// The span that a time lies in.
    #[inline]
    pub fn of(&self, time: u64) -> u32 {
        (time.clamp(self.first, self.last).wrapping_sub(self.first) >> self.shift) as u32
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.of(self.last) as usize + 1
    }

    /// The time at which a span begins.
    pub fn begin(&self, span: usize) -> u64 {
        self.first.saturating_add((span as u64) << self.shift)
    }

    /// Join neighbours in all rows; how many entries there are then.
    pub(super) fn join<'a>(&mut self, rows: impl Iterator<Item = &'a mut Series>) -> usize {
        self.shift += 1;
        rows.map(|row| {
            row.join();
            row.entries.len()
        })
        .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(span: u32, bytes: f64) -> Entry {
        Entry { span, bytes, born: bytes.max(0.0) as f32 }
    }

    #[test]
    fn spans_cover_all_times() {
        for (first, last) in
            [(0, 0), (5, 6), (7, 518), (7, 519), (0, u64::MAX), (1 << 40, (1 << 40) + 123_456)]
        {
            let spans = Spans::new(first, last);
            assert!(spans.count() <= SPANS, "{first} {last}: {}", spans.count());
            assert!(spans.count() >= SPANS / 2 || last - first < SPANS as u64);
            assert_eq!((spans.of(first), spans.of(last) as usize), (0, spans.count() - 1));
            assert_eq!((spans.of(0), spans.of(u64::MAX) as usize), (0, spans.count() - 1));
        }
    }

    #[test]
    fn joined_entries_keep_their_sums() {
        let mut series = Series::default();
        for (span, bytes) in [(0, 5.0), (0, 2.0), (3, -4.0), (4, 9.0), (2, 1.0), (9, -1.0)] {
            series.add(entry(span, bytes));
        }
        let mut changes = vec![0.0; 10];
        series.add_to(&mut changes);
        assert_eq!(changes, [7.0, 0.0, 0.0, -4.0, 10.0, 0.0, 0.0, 0.0, 0.0, -1.0]);
        series.join();
        let mut changes = vec![0.0; 5];
        series.add_to(&mut changes);
        assert_eq!(changes, [7.0, -4.0, 10.0, 0.0, -1.0]);
    }
}
