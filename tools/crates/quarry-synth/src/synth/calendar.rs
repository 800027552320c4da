// SPDX-License-Identifier: MIT
//! What is due when: a calendar queue over the count of allocations. Constant time for each entry, whatever lies
//! ahead; entries of one date come out in the order they went in.

use std::collections::BTreeMap;

/// log2 of the dates that have a list of their own.
const NEAR: u32 = 12;
const MASK: u64 = (1 << NEAR) - 1;

/// The date of what is never due. It can still be taken early.
pub const NEVER: u64 = u64::MAX;

/// Entries by date.
#[derive(Debug, Clone)]
pub struct Calendar<T> {
    /// Lists of the dates of the current page.
    near: Vec<Vec<T>>,
    /// Entries of later pages.
    far: BTreeMap<u64, Vec<(u64, T)>>,
    /// Every earlier date was taken.
    now: u64,
    /// No date of this page before it has entries.
    first: u64,
}

impl<T> Calendar<T> {
    /// An empty one that begins with this date.
    pub fn new(now: u64) -> Self {
        let mut near = Vec::new();
        near.resize_with(1 << NEAR, Vec::new);
        Self { near, far: BTreeMap::new(), now, first: now }
    }

    /// Note an entry; dates that have passed count as the next one.
    pub fn add(&mut self, date: u64, entry: T) {
        let date = date.max(self.now);
        if date >> NEAR == self.now >> NEAR {
            self.near[(date & MASK) as usize].push(entry);
            self.first = self.first.min(date);
        } else {
            self.far.entry(date >> NEAR).or_default().push((date, entry));
        }
    }

    /// Take what is due at the next date, into an empty list, and step over it. Dates are taken one after the other.
    pub fn take(&mut self, due: &mut Vec<T>) {
        debug_assert!(due.is_empty());
        std::mem::swap(&mut self.near[(self.now & MASK) as usize], due);
        self.now += 1;
        self.first = self.first.max(self.now);
        if self.now & MASK == 0 {
            self.first = self.now;
            for (date, entry) in self.far.remove(&(self.now >> NEAR)).unwrap_or_default() {
                self.near[(date & MASK) as usize].push(entry);
            }
        }
    }

    /// Take one that is due soon: of this page the next one, of later pages one of the next page that has any.
    pub fn take_early(&mut self) -> Option<T> {
        let end = (self.now | MASK) + 1;
        while self.first < end {
            let list = &mut self.near[(self.first & MASK) as usize];
            if !list.is_empty() {
                return Some(list.remove(0));
            }
            self.first += 1;
        }
        let mut page = self.far.first_entry()?;
        let (_, entry) = page.get_mut().pop()?;
        if page.get().is_empty() {
            page.remove();
        }
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quarry_measure::rng::Rng;

    #[test]
    fn all_comes_at_its_date_and_in_order() {
        let mut rng = Rng::new(1);
        let mut calendar = Calendar::new(0);
        let (mut due, mut next, mut left) = (Vec::new(), 0_u64, 0_i64);
        for now in 0..100_000 {
            calendar.take(&mut due);
            let mut last = None;
            for (date, number) in due.drain(..) {
                assert_eq!(date, now);
                assert!(last < Some(number), "in the order they went in");
                last = Some(number);
                left -= 1;
            }
            for _ in 0..rng.below(3) {
                let ahead = [10, 5000, 50_000][rng.below(3)];
                let date = now + 1 + rng.below(ahead) as u64;
                // Entries of one date that come over pages keep their order too.
                calendar.add(date, (date, next));
                next += 1;
                left += 1;
            }
        }
        assert!(left > 0);
        while let Some((date, _)) = calendar.take_early() {
            assert!(date >= 100_000);
            left -= 1;
        }
        assert_eq!(left, 0);
    }

    #[test]
    fn early_ones_are_about_the_next_ones() {
        let mut calendar = Calendar::new(1000);
        for date in [NEVER, 9000, 1500, 1200, 3, 1300, 5000] {
            calendar.add(date, date);
        }
        let early: Vec<u64> = std::iter::from_fn(|| calendar.take_early()).collect();
        assert_eq!(early, [3, 1200, 1300, 1500, 5000, 9000, NEVER]);
        calendar.add(1100, 7);
        assert_eq!(calendar.take_early(), Some(7));
    }
}
