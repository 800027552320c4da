// SPDX-License-Identifier: MIT
//! What rows had in the last frames, for what has changed since.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use super::site::Change;
use crate::model::{Key, Sums};

/// Frames that are kept.
pub const KEPT: usize = 16;
/// What is called "last": so long, if frames are kept that long.
const LAST: Duration = Duration::from_secs(10);

/// A row in one frame. Sums are from the beginning on.
#[derive(Debug, Clone, Copy, Default)]
pub struct Point {
    pub live: f64,
    live_variance: f64,
    pub born: f64,
    born_variance: f64,
    pub calls: f64,
}

impl Point {
    fn of(sums: &Sums) -> Self {
        Self {
            live: sums.live_bytes.value() as f64,
            live_variance: sums.live_bytes.variance(),
            born: sums.bytes.value() as f64,
            born_variance: sums.bytes.variance(),
            calls: sums.allocs.value() as f64,
        }
    }

    /// What has changed since `then`. Only blocks that are live at one of both moments alone add to the variance. They are not more than
    /// those of both moments, and not more than what was born or ended between them: what ended is all that was born without what
    /// lives. So the smaller one is taken, which is rather too large.
    fn since(&self, then: &Self) -> Change {
        let born = self.born_variance - then.born_variance;
        let between = 2.0 * born - (self.live_variance - then.live_variance);
        let at_both = self.live_variance + then.live_variance;
        Change { bytes: self.live - then.live, variance: between.min(at_both).max(0.0) }
    }
}

/// The last frames.
#[derive(Debug, Default)]
pub struct Past {
    times: VecDeque<Duration>,
    /// Of each row, the newest last; rows that are younger than the oldest frame have fewer.
    tracks: HashMap<Key, VecDeque<Point>>,
    /// What there was when changes were last counted from then on.
    base: HashMap<Key, Point>,
}

impl Past {
    /// Nothing is there yet, at this time.
    pub fn new(at: Duration) -> Self {
        Self { times: VecDeque::from([at]), ..Self::default() }
    }

    /// One more frame.
    pub fn push(&mut self, at: Duration, rows: impl IntoIterator<Item = (Key, Sums)>) {
        let add = |track: &mut VecDeque<Point>, point| {
            if track.len() == KEPT {
                track.pop_front();
            }
            track.push_back(point);
        };
        for (key, sums) in rows {
            add(self.tracks.entry(key).or_default(), Point::of(&sums));
        }
        if self.times.len() == KEPT {
            self.times.pop_front();
        }
        self.times.push_back(at);
    }

    /// Changes count from the newest frame on.
    pub fn begin(&mut self) {
        let newest = |(key, track): (&Key, &VecDeque<Point>)| Some((*key, *track.back()?));
        self.base = self.tracks.iter().filter_map(newest).collect();
    }

    fn frame(&self, key: Key, ago: usize) -> Point {
        let track = self.tracks.get(&key);
        let point = track.and_then(|track| track.get(track.len().checked_sub(1 + ago)?));
        point.copied().unwrap_or_default()
    }

    /// The last seconds: how many frames, and how long.
    pub fn last(&self) -> (usize, Duration) {
        let newest = self.times.back().copied().unwrap_or_default();
        let age = |ago: usize| newest.saturating_sub(self.times[self.times.len() - 1 - ago]);
        let most = self.times.len() - 1;
        let ago = (1..most).find(|&ago| age(ago) >= LAST).unwrap_or(most);
        (ago, age(ago))
    }

    /// What a row has now, and what has changed: since changes are counted, and in the last seconds.
    pub fn changes(&self, key: Key, ago: usize) -> (Change, Change, Point) {
        let (now, then) = (self.frame(key, 0), self.frame(key, ago));
        let base = self.base.get(&key).copied().unwrap_or_default();
        let born = Point { born: now.born - then.born, calls: now.calls - then.calls, ..Point::default() };
        (now.since(&base), now.since(&then), born)
    }

    /// Add what a row had live in each frame, the oldest first.
    pub fn add_trend(&self, key: Key, trend: &mut [f64]) {
        let frames = trend.len();
        trend.iter_mut().enumerate().for_each(|(at, sum)| *sum += self.frame(key, frames - 1 - at).live);
    }

    /// Frames that there are.
    pub fn frames(&self) -> usize {
        self.times.len()
    }
}

#[cfg(test)]
mod tests {
    use quarry_trace::sample::Sampling;

    use super::*;

    fn key(stack: u32) -> Key {
        Key { stack, ..Key::default() }
    }

    fn row(stack: u32, born: u64, gone: u64) -> (Key, Sums) {
        let mut sums = Sums::default();
        let weight = Sampling::one_in(1 << 16).weight(100);
        (0..born).for_each(|_| sums.bytes.add(100, weight));
        (0..born).for_each(|_| sums.allocs.count(weight));
        (0..born - gone).for_each(|_| sums.live_bytes.add(100, weight));
        (key(stack), sums)
    }

    #[test]
    fn a_change_is_told_from_noise() {
        let mut past = Past::new(Duration::ZERO);
        let key = key(1);
        past.push(Duration::from_secs(1), [row(1, 3, 0)]);
        let (all, last, born) = past.changes(key, 1);
        assert_eq!((all.bytes, last.bytes), (born.born, born.born));
        assert!(!all.is_sure(), "three blocks are none or many: {all:?}");
        past.push(Duration::from_secs(2), [row(1, 103, 0)]);
        let (_, last, _) = past.changes(key, 1);
        assert!(last.is_sure() && last.bytes > 0.0, "{last:?}");
        // As many come as go.
        past.push(Duration::from_secs(3), [row(1, 603, 500)]);
        let (_, last, born) = past.changes(key, 1);
        assert!(last.bytes == 0.0 && !last.is_sure() && born.born > 0.0, "{last:?}");
        // Nothing happens: then it is known that there is no change.
        past.push(Duration::from_secs(4), [row(1, 603, 500)]);
        let (_, last, _) = past.changes(key, 1);
        assert!(last.bytes == 0.0 && last.variance == 0.0, "{last:?}");
    }

    #[test]
    fn frames_are_as_old_as_they_are() {
        let mut past = Past::new(Duration::ZERO);
        for second in 1..40 {
            let mut rows = vec![row(1, second, 0)];
            // One that comes late had nothing before.
            if second > 30 {
                rows.push(row(2, 1, 0));
            }
            past.push(Duration::from_secs(second), rows);
        }
        assert_eq!((past.last(), past.frames()), ((10, Duration::from_secs(10)), KEPT));
        let mut trend = [0.0; KEPT];
        past.add_trend(key(2), &mut trend);
        assert_eq!(trend.iter().filter(|live| **live > 0.0).count(), 9);
        assert!(trend[..7].iter().all(|live| *live == 0.0));
        // Rare frames: the last one at least.
        past.push(Duration::from_secs(1000), []);
        assert_eq!(past.last(), (1, Duration::from_secs(961)));
        let mut young = Past::new(Duration::from_secs(5));
        young.push(Duration::from_secs(6), []);
        assert_eq!(young.last(), (1, Duration::from_secs(1)));
    }

    #[test]
    fn changes_begin_when_somebody_says_so() {
        let mut past = Past::new(Duration::ZERO);
        let key = key(1);
        past.push(Duration::from_secs(1), [row(1, 200, 0)]);
        past.begin();
        assert_eq!(past.changes(key, 1).0, Change::default());
        past.push(Duration::from_secs(2), [row(1, 200, 100)]);
        let (since, last, _) = past.changes(key, 1);
        assert!(since.bytes < 0.0 && since.is_sure() && since == last, "{since:?}");
    }
}
