// SPDX-License-Identifier: MIT
//! A column of a group: its values, and its pages.

use std::borrow::Cow;
use std::ops::Range;

use super::super::rows::{Kind, Value};
use super::encode::{differences, runs, width_of};
use crate::hash::Map;

/// Columns whose numbers are rarely twice the same, but close to each other: written as differences.
const SPREAD: [&str; 10] = [
    "object",
    "birth",
    "birth_ns",
    "death",
    "death_ns",
    "lifetime",
    "lifetime_ns",
    "time_ns",
    "address",
    "old_address",
];

/// Rows of a page.
const PAGE: usize = if cfg!(test) { 300 } else { 1 << 16 };
/// A page ends before that when its texts have as many bytes.
const PAGE_TEXTS: usize = if cfg!(test) { 1000 } else { 1 << 20 };
/// Bytes of a dictionary. A column of a group that would need more has none.
const DICTIONARY: usize = if cfg!(test) { 1000 } else { 1 << 20 };

const PLAIN: i32 = 0;
const DELTA_BINARY_PACKED: i32 = 5;
const RLE_DICTIONARY: i32 = 8;

/// A page as it is before it is compressed.
pub(super) struct Page {
    /// Whether it is the dictionary of those behind it.
    pub(super) is_dictionary: bool,
    /// How the values are packed.
    pub(super) encoding: i32,
    /// Its values, with those that are missing.
    pub(super) values: usize,
    /// All that is in it.
    pub(super) bytes: Vec<u8>,
}

/// Those that are there.
enum Values {
    Numbers(Vec<i64>),
    /// Each as a number of one of the texts.
    Texts {
        values: Vec<u32>,
        texts: Vec<Cow<'static, str>>,
        numbers: Map<Cow<'static, str>, u32>,
        /// Of all texts, with their lengths.
        bytes: usize,
    },
}

/// The rows of a group in one column.
pub(super) struct Column {
    spread: bool,
    values: Values,
    /// 1 for each row that has a value and 0 for each that has none, if some may have none.
    levels: Option<Vec<u32>>,
}

impl Column {
    pub(super) fn new(name: &str, kind: Kind) -> Self {
        let values = match kind {
            Kind::Number | Kind::Maybe => Values::Numbers(Vec::new()),
            Kind::Text => {
                Values::Texts { values: Vec::new(), texts: Vec::new(), numbers: Map::default(), bytes: 0 }
            }
        };
        let levels = (kind != Kind::Number).then(Vec::new);
        Self { spread: SPREAD.contains(&name), values, levels }
    }

    /// One more row. Returns the bytes of a text that the group did not have.
    pub(super) fn push(&mut self, value: &Value) -> usize {
        let before = if let Values::Texts { bytes, .. } = &self.values { *bytes } else { 0 };
        let there = match (&mut self.values, value) {
            (Values::Numbers(values), Value::Number(number)) => {
                // Query engines calculate with signs; what has 64 bits is no size of a block.
                values.push(i64::try_from(*number).unwrap_or(i64::MAX));
                true
            }
            (Values::Texts { .. }, Value::Word(word)) => self.text(Cow::Borrowed(word)),
            (Values::Texts { .. }, Value::Text(text)) => self.text(Cow::Owned(text.clone())),
            (Values::Numbers(values), _) if self.levels.is_none() => {
                values.push(0);
                true
            }
            _ => false,
        };
        if let Some(levels) = &mut self.levels {
            levels.push(there.into());
        }
        if let Values::Texts { bytes, .. } = &self.values { *bytes - before } else { 0 }
    }

    fn text(&mut self, text: Cow<'static, str>) -> bool {
        let Values::Texts { values, texts, numbers, bytes } = &mut self.values else { return false };
        // Most rows of a table have the word of the row before.
        let number = match values.last() {
            Some(&last) if texts[last as usize] == text => last,
            _ => *numbers.entry(text).or_insert_with_key(|text| {
                *bytes += 4 + text.len();
                texts.push(text.clone());
                u32::try_from(texts.len() - 1).unwrap_or(u32::MAX)
            }),
        };
        values.push(number);
        true
    }

    /// Rows without a value.
    pub(super) fn nulls(&self) -> usize {
        self.levels.as_ref().map_or(0, |levels| levels.iter().filter(|&&level| level == 0).count())
    }

    /// The least and the largest of its numbers.
    pub(super) fn range(&self) -> Option<(i64, i64)> {
        let Values::Numbers(values) = &self.values else { return None };
        Some((*values.iter().min()?, *values.iter().max()?))
    }

    /// The pages of the group, which has `rows`: first that of the dictionary, if it has one.
    pub(super) fn pages(&self, rows: usize) -> Vec<Page> {
        let dictionary = self.dictionary();
        let mut pages = Vec::new();
        let encoding = match (&dictionary, &self.values) {
            (Some(_), _) => RLE_DICTIONARY,
            (None, Values::Numbers(_)) => DELTA_BINARY_PACKED,
            (None, Values::Texts { .. }) => PLAIN,
        };
        let numbers = dictionary.map(|(page, numbers)| {
            let width = width_of(page.values);
            pages.push(page);
            (numbers, width)
        });
        let mut values = 0;
        let mut at = 0;
        while at < rows {
            let page_rows = self.rows_of_page(at, values, rows);
            let mut bytes = Vec::new();
            let mut here = page_rows.len();
            if let Some(levels) = &self.levels {
                let levels = &levels[page_rows.clone()];
                here = levels.iter().filter(|&&level| level == 1).count();
                let mut packed = Vec::new();
                runs(levels, 1, &mut packed);
                length(packed.len(), &mut bytes);
                bytes.append(&mut packed);
            }
            let these = values..values + here;
            match (&numbers, &self.values) {
                (Some((numbers, width)), _) => {
                    bytes.push(width.to_le_bytes()[0]);
                    runs(&numbers[these], *width, &mut bytes);
                }
                (None, Values::Numbers(all)) => differences(&all[these], &mut bytes),
                (None, Values::Texts { values, texts, .. }) => {
                    values[these].iter().for_each(|&number| plain(&texts[number as usize], &mut bytes));
                }
            }
            pages.push(Page { is_dictionary: false, encoding, values: page_rows.len(), bytes });
            values += here;
            at = page_rows.end;
        }
        pages
    }

    /// The rows of the page that begins with the row `at`, whose first value is the one of this number.
    fn rows_of_page(&self, at: usize, value: usize, rows: usize) -> Range<usize> {
        let end = rows.min(at + PAGE);
        if let (Values::Texts { values, texts, .. }, Some(levels)) = (&self.values, &self.levels) {
            let mut bytes = 0;
            let mut values = values[value..].iter();
            for (row, &level) in levels[at..end].iter().enumerate() {
                if level == 1 {
                    bytes += values.next().map_or(0, |&number| texts[number as usize].len());
                }
                if bytes >= PAGE_TEXTS {
                    return at..at + row + 1;
                }
            }
        }
        at..end
    }

    /// The page of different values, and which of them each value is, unless that would be too much.
    fn dictionary(&self) -> Option<(Page, Cow<'_, [u32]>)> {
        let mut bytes = Vec::new();
        let (count, numbers) = match &self.values {
            Values::Texts { bytes: all, texts, values, .. } => {
                if *all > DICTIONARY || texts.is_empty() {
                    return None;
                }
                texts.iter().for_each(|text| plain(text, &mut bytes));
                (texts.len(), Cow::Borrowed(&values[..]))
            }
            Values::Numbers(values) => {
                if self.spread || values.is_empty() {
                    return None;
                }
                let mut known: Map<u64, u32> = Map::default();
                let mut numbers = Vec::with_capacity(values.len());
                for value in values {
                    let next = u32::try_from(known.len()).ok()?;
                    numbers.push(*known.entry(value.cast_unsigned()).or_insert_with(|| {
                        bytes.extend(value.to_le_bytes());
                        next
                    }));
                    if bytes.len() > DICTIONARY {
                        return None;
                    }
                }
                (known.len(), Cow::Owned(numbers))
            }
        };
        Some((Page { is_dictionary: true, encoding: PLAIN, values: count, bytes }, numbers))
    }

    /// Begin the next group.
    pub(super) fn clear(&mut self) {
        match &mut self.values {
            Values::Numbers(values) => values.clear(),
            Values::Texts { values, texts, numbers, bytes } => {
                values.clear();
                texts.clear();
                numbers.clear();
                *bytes = 0;
            }
        }
        self.levels.iter_mut().for_each(Vec::clear);
    }
}

fn length(bytes: usize, to: &mut Vec<u8>) {
    to.extend(u32::try_from(bytes).unwrap_or(u32::MAX).to_le_bytes());
}

fn plain(text: &str, to: &mut Vec<u8>) {
    length(text.len(), to);
    to.extend(text.as_bytes());
}
