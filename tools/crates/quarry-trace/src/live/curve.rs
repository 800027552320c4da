// SPDX-License-Identifier: MIT
//! A value over time, in a bounded number of points that keep the highest.

/// A span of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    /// Its beginning, in ticks.
    pub time: u64,
    /// The highest value in it.
    pub most: u64,
    /// The value at its end.
    pub last: u64,
}

/// The course of a value. When there are too many points, neighbours are joined, so that a span of time is twice
/// as long; where nothing changes there is no point.
#[derive(Debug, Clone)]
pub struct Curve {
    points: Vec<(u64, u64, u64)>,
    most: usize,
    start: u64,
    shift: u32,
}

impl Curve {
    /// A curve of at most so many points.
    pub fn new(most: usize) -> Self {
        Self { points: Vec::new(), most: most.max(2), start: 0, shift: 0 }
    }

    /// The value is this from now on. Time that goes back stands still.
    #[inline]
    pub fn add(&mut self, time: u64, value: u64) {
        let slot = time.saturating_sub(self.start) >> self.shift;
        match self.points.last_mut() {
            Some((last_slot, most, last)) if *last_slot >= slot => {
                *most = (*most).max(value);
                *last = value;
            }
            Some(&mut (_, _, last)) if last == value => {}
            _ => self.push(time, value),
        }
    }

    #[cold]
    fn push(&mut self, time: u64, value: u64) {
        if self.points.is_empty() {
            self.start = time;
        }
        let mut slot = (time - self.start) >> self.shift;
        while slot >= self.most as u64 {
            self.shift += 1;
            slot >>= 1;
            self.join();
        }
        match self.points.last_mut() {
            Some((last_slot, most, last)) if *last_slot >= slot => {
                *most = (*most).max(value);
                *last = value;
            }
            _ => self.points.push((slot, value, value)),
        }
    }

    fn join(&mut self) {
        let mut joined: Vec<(u64, u64, u64)> = Vec::with_capacity(self.points.len() / 2 + 1);
        for &(slot, most, last) in &self.points {
            match joined.last_mut() {
                Some(point) if point.0 == slot / 2 => *point = (point.0, point.1.max(most), last),
                _ => joined.push((slot / 2, most, last)),
            }
        }
        self.points = joined;
    }

    /// The points, in the order of time. Between two of them the value is the `last` of the first.
    pub fn points(&self) -> Vec<Point> {
        let point = |&(slot, most, last): &(u64, u64, u64)| Point {
            time: self.start + (slot << self.shift),
            most,
            last,
        };
        self.points.iter().map(point).collect()
    }

    /// The highest value.
    pub fn most(&self) -> u64 {
        self.points.iter().map(|point| point.1).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_value_survives_joining() {
        let mut curve = Curve::new(16);
        for time in 0..10_000u64 {
            curve.add(1000 + time * 7, if time == 5001 { 999 } else { time % 10 });
        }
        let points = curve.points();
        assert!(points.len() <= 16 && points.len() >= 8, "{}", points.len());
        assert_eq!(curve.most(), 999);
        assert_eq!(points[0].time, 1000);
        let at = points.iter().position(|point| point.most == 999).unwrap();
        assert!(points[at].time <= 1000 + 5001 * 7);
        assert!(points.get(at + 1).is_none_or(|next| next.time > 1000 + 5001 * 7));
        assert_eq!(points.last().unwrap().last, 9);
    }

    #[test]
    fn any_times() {
        let mut curve = Curve::new(4);
        for time in [5, 3, u64::MAX, 7, u64::MAX] {
            curve.add(time, time / 2);
        }
        assert_eq!(curve.most(), u64::MAX / 2);
        assert!(curve.points().len() <= 4);
    }
}
