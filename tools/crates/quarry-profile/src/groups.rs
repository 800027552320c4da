// SPDX-License-Identifier: MIT
//! Rows that are one, in as many numbers as there are rows.

use std::collections::HashMap;

/// No group.
const NONE: u32 = u32::MAX;

/// Which rows are together.
#[derive(Debug, Clone)]
pub(crate) struct Groups {
    /// Rows, those of a group side by side and in their order.
    rows: Vec<u32>,
    /// Where the rows of each group begin, and where those of the last one end.
    begins: Vec<u32>,
    /// All rows in their order.
    all: Vec<u32>,
}

impl Groups {
    /// The chosen rows by a number that each has. Groups come in the order of their first rows.
    pub fn of(chosen: &[bool], number: impl Fn(usize) -> u32) -> Self {
        let all: Vec<u32> = (0..chosen.len() as u32).filter(|&row| chosen[row as usize]).collect();
        let mut known: HashMap<u32, u32> = HashMap::new();
        let mut counts: Vec<u32> = Vec::new();
        let mut groups = vec![NONE; chosen.len()];
        for &row in &all {
            let group = *known.entry(number(row as usize)).or_insert_with(|| {
                counts.push(0);
                counts.len() as u32 - 1
            });
            counts[group as usize] += 1;
            groups[row as usize] = group;
        }
        let mut begins = Vec::with_capacity(counts.len() + 1);
        let mut begin = 0;
        for count in &counts {
            begins.push(begin);
            begin += count;
        }
        begins.push(begin);
        let (mut rows, mut next) = (vec![0; all.len()], begins.clone());
        for &row in &all {
            let at = &mut next[groups[row as usize] as usize];
            rows[*at as usize] = row;
            *at += 1;
        }
        Self { rows, begins, all }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.begins.len() - 1
    }

    /// The rows of a group; there is at least one.
    pub fn rows(&self, group: usize) -> &[u32] {
        &self.rows[self.begins[group] as usize..self.begins[group + 1] as usize]
    }

    /// All rows.
    pub fn all(&self) -> &[u32] {
        &self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_by_group() {
        let chosen = [true, true, false, true, true, true];
        let groups = Groups::of(&chosen, |row| [7, 3, 7, 7, 9, 3][row]);
        let rows: Vec<&[u32]> = (0..groups.len()).map(|group| groups.rows(group)).collect();
        assert_eq!(rows, [&[0, 3][..], &[1, 5], &[4]]);
        assert_eq!(groups.all(), [0, 1, 3, 4, 5]);
        assert_eq!(Groups::of(&[false], |_| 0).len(), 0);
    }
}
