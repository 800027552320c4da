// SPDX-License-Identifier: MIT
//! Things that are kept once, and go by their numbers.

use std::hash::{BuildHasher, Hash, RandomState};

use hashbrown::HashTable;

/// Finds the numbers of things. They lie elsewhere, in the order of their numbers.
#[derive(Debug, Clone, Default)]
pub struct Numbers {
    table: HashTable<u32>,
    hash: RandomState,
}

impl Numbers {
    /// The number of a thing, which is `new` if it is none of those that are known; `of` has these by number.
    pub fn of<'t, T: Hash + Eq + ?Sized + 't>(
        &mut self,
        thing: &T,
        new: usize,
        of: impl Fn(u32) -> &'t T,
    ) -> u32 {
        let hash = &self.hash;
        let same = |&number: &u32| of(number) == thing;
        let entry = self.table.entry(hash.hash_one(thing), same, |&number| hash.hash_one(of(number)));
        *entry.or_insert(new as u32).get()
    }
}

/// Texts, one behind the other.
#[derive(Debug, Clone, Default)]
pub struct Texts {
    all: String,
    ends: Vec<usize>,
    numbers: Numbers,
}

fn piece<'t>(all: &'t str, ends: &[usize], number: u32) -> &'t str {
    let at = number as usize;
    let begin = if at == 0 { 0 } else { ends[at - 1] };
    &all[begin..ends[at]]
}

impl Texts {
    /// The number of a text.
    pub fn number(&mut self, text: &str) -> u32 {
        let (all, ends) = (&mut self.all, &mut self.ends);
        let number = self.numbers.of(text, ends.len(), |number| piece(all, ends, number));
        if number as usize == ends.len() {
            all.push_str(text);
            ends.push(all.len());
        }
        number
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// All of them, by number.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.ends.len() as u32).map(|number| self.get(number))
    }

    /// The text of a number.
    pub fn get(&self, number: u32) -> &str {
        piece(&self.all, &self.ends, number)
    }

    /// No text is added any more.
    pub fn close(&mut self) {
        self.numbers = Numbers::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_are_one() {
        let mut texts = Texts::default();
        let numbers: Vec<u32> =
            ["", "a", "", "bc", "a", "x?y"].iter().map(|text| texts.number(text)).collect();
        assert_eq!(numbers, [0, 1, 0, 2, 1, 3]);
        for n in 0..10_000 {
            texts.number(&format!("text {n}"));
        }
        assert_eq!(texts.number("text 5000"), 5004);
        texts.close();
        assert_eq!((texts.len(), texts.iter().nth(2)), (10_004, Some("bc")));
        assert_eq!(
            (texts.get(0), texts.get(2), texts.get(3), texts.get(5004)),
            ("", "bc", "x?y", "text 5000")
        );
    }
}
