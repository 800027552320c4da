// SPDX-License-Identifier: MIT
//! Pictures made of characters: bars, and a curve in one line.

use quarry_trace::live::Point;

/// A bar of this part of `width` characters, in eighths of a character.
pub fn bar(part: f64, width: usize) -> String {
    const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let eighths = (part.clamp(0.0, 1.0) * (width * 8) as f64).round() as usize;
    let mut text = "█".repeat(eighths / 8);
    match eighths % 8 {
        // What is there at all is to be seen.
        0 if eighths == 0 && part > 0.0 => text.push('▏'),
        0 => {}
        rest => text.push(EIGHTHS[rest]),
    }
    text
}

/// The highest values of so many equal spans of time between `first` and `last`.
pub fn columns(points: &[Point], first: u64, last: u64, width: usize) -> Vec<u64> {
    let span = last.saturating_sub(first).max(1);
    let column = |time: u64| {
        let at = u128::from(time.saturating_sub(first)) * width as u128 / (u128::from(span) + 1);
        (at as usize).min(width - 1)
    };
    let mut columns = vec![0; width];
    let (mut at, mut value) = (0, 0);
    for point in points {
        let here = column(point.time);
        // Between two points nothing changes.
        while at < here {
            columns[at] = columns[at].max(value);
            at += 1;
        }
        columns[here] = columns[here].max(value).max(point.most);
        value = point.last;
    }
    for column in &mut columns[at..] {
        *column = (*column).max(value);
    }
    columns
}

/// A curve of one character in height.
pub fn spark(values: &[u64], most: u64) -> String {
    const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let level = |&value: &u64| match value {
        0 => ' ',
        value => {
            let level = (value as f64 / most.max(1) as f64 * 8.0).ceil() as usize;
            LEVELS[level.clamp(1, 8) - 1]
        }
    };
    values.iter().map(level).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars() {
        assert_eq!(bar(0.0, 10), "");
        assert_eq!(bar(1.0, 3), "███");
        assert_eq!(bar(0.5, 3), "█▌");
        assert_eq!(bar(1e-9, 3), "▏");
        assert_eq!(bar(7.0, 2), "██");
    }

    #[test]
    fn curves() {
        let point = |time, most, last| Point { time, most, last };
        let points = [point(0, 8, 4), point(50, 1, 1), point(99, 2, 2)];
        assert_eq!(columns(&points, 0, 99, 4), [8, 4, 4, 2]);
        assert_eq!(spark(&[8, 4, 1, 0], 8), "█▄▁ ");
        assert_eq!(columns(&[], 5, 5, 2), [0, 0]);
        assert_eq!(columns(&[point(u64::MAX, 3, 3)], 0, u64::MAX, 2), [0, 3]);
    }
}
