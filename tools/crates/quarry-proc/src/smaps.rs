// SPDX-License-Identifier: MIT
//! Reading maps, smaps and smaps_rollup, mapping by mapping.

use std::collections::HashMap;
use std::io::{self, BufRead};
use std::sync::Arc;

use crate::counters::{Counters, Field, Other, OtherValue};
use crate::mapping::{Flags, Mapping, Perms};
use crate::text::{self, Lines};

/// Four times what a kernel's default allows (vm.max_map_count) is read of one process, and sixteen times that again.
const MOST: u64 = 1 << 22;
/// What smaps_rollup calls all mappings.
const ROLLUP: &str = "[rollup]";
/// How many counters that are not known here are kept. Kernels add one in a year.
const OTHERS: usize = 32;

/// What could not be read, and where.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Damage {
    /// Lines that are none of smaps.
    pub lines: u64,
    /// The number of the first of them, from 1.
    pub first: u64,
    /// Mappings that lie before or over the one before them.
    pub unordered: u64,
    /// The text ends within a mapping.
    pub cut: bool,
    /// Mappings that lack a counter which others have.
    pub incomplete: u64,
    /// There are more mappings than are read.
    pub too_many: bool,
    /// The notes of a core file cannot be read to their end.
    pub notes: bool,
}

impl Damage {
    /// As a sentence; nothing where nothing is damaged.
    pub fn sentence(&self) -> Option<String> {
        let mut parts = Vec::new();
        if self.lines > 0 {
            parts.push(match self.lines {
                1 => format!("line {} cannot be read", self.first),
                lines => format!("{lines} lines cannot be read (the first is line {})", self.first),
            });
        }
        if self.unordered > 0 {
            parts.push(match self.unordered {
                1 => String::from("1 mapping lies out of order or over others"),
                count => format!("{count} mappings lie out of order or over others"),
            });
        }
        if self.incomplete > 0 {
            let lack = match self.incomplete {
                1 => String::from("1 mapping lacks"),
                count => format!("{count} mappings lack"),
            };
            parts.push(format!("{lack} a counter that others have, so sums are too small"));
        }
        if self.cut {
            parts.push(String::from("it ends within a mapping"));
        }
        if self.notes {
            parts.push(String::from("its notes end early, so threads and names of files may be missing"));
        }
        if self.too_many {
            parts.push(format!("only the first {MOST} mappings are read"));
        }
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

/// Reads one mapping after the other. Lines that are none of smaps are left out and counted.
pub struct Reader<R> {
    lines: Lines<R>,
    /// It is a copy, of which nobody knows what it went through.
    saved: bool,
    /// Its header was read, its counters not yet.
    begun: Option<Mapping>,
    names: HashMap<Box<[u8]>, Arc<str>>,
    /// Names of counters that are not known here.
    others: Vec<Arc<str>>,
    damage: Damage,
    count: u64,
    /// How many mappings have which fields. All have the same, as one kernel writes them.
    fields: HashMap<u32, u64>,
    at_end: bool,
}

impl<R: BufRead> Reader<R> {
    /// Begin with the first mapping.
    pub fn new(reader: R) -> Self {
        Self {
            lines: Lines::new(reader),
            saved: false,
            begun: None,
            names: HashMap::new(),
            others: Vec::new(),
            damage: Damage::default(),
            count: 0,
            fields: HashMap::new(),
            at_end: false,
        }
    }

    /// What could not be read so far.
    pub fn damage(&self) -> &Damage {
        &self.damage
    }

    /// The next mapping, whole; `None` at the end.
    pub fn next_mapping(&mut self) -> io::Result<Option<Mapping>> {
        if self.at_end {
            return Ok(None);
        }
        while let Some(line) = self.lines.next_line()? {
            // Lines that end with a carriage return alone are one for us.
            if self.saved && line.contains(&b'\r') {
                self.complain();
                continue;
            }
            // What editors, terminals and mail put around lines. The kernel puts nothing there.
            let line = if self.saved { line.trim_ascii() } else { line };
            if self.saved && line.is_empty() {
                continue;
            }
            // Headers begin with a digit of an address, fields with a capital letter.
            if !line.first().is_some_and(u8::is_ascii_uppercase) {
                match header(line, &mut self.names) {
                    Some(mapping) => {
                        if let Some(done) = self.begun.replace(mapping) {
                            return Ok(self.finish(done));
                        }
                    }
                    None => self.complain(),
                }
                continue;
            }
            let read = match &mut self.begun {
                Some(mapping) => field(line, mapping, &mut self.others),
                None => false,
            };
            if !read {
                self.complain();
            }
        }
        self.at_end = true;
        let Some(last) = self.begun.take() else { return Ok(None) };
        let own = last.counters.set_of_fields();
        let all = self.fields.keys().fold(own, |all, fields| all | fields);
        let lacks = |fields: u32| fields & all != all;
        self.damage.incomplete = self.fields.iter().filter(|(set, _)| lacks(**set)).map(|(_, n)| n).sum();
        self.damage.cut = !self.lines.is_whole() || lacks(own);
        Ok(self.finish(last))
    }

    fn finish(&mut self, mapping: Mapping) -> Option<Mapping> {
        if self.count == MOST {
            self.damage.too_many = true;
            self.at_end = true;
            return None;
        }
        *self.fields.entry(mapping.counters.set_of_fields()).or_default() += 1;
        self.count += 1;
        Some(mapping)
    }

    fn complain(&mut self) {
        if self.damage.lines == 0 {
            self.damage.first = self.lines.number();
        }
        self.damage.lines += 1;
    }
}

/// All mappings of a text, as the kernel writes it.
pub fn read_all(reader: impl BufRead) -> io::Result<(Vec<Mapping>, Damage)> {
    all_of(Reader::new(reader))
}

/// The same of a copy, whose lines may end as Windows and terminals have them.
pub fn read_saved(reader: impl BufRead) -> io::Result<(Vec<Mapping>, Damage)> {
    let mut reader = Reader::new(reader);
    reader.lines.take_returns();
    reader.saved = true;
    all_of(reader)
}

/// Does a text begin like smaps or maps? What stands before the first mapping may be none of it.
pub fn is_one(begin: &[u8]) -> bool {
    first(begin).is_some_and(|mapping| &*mapping.name != ROLLUP)
}

/// Does it begin like smaps_rollup? That looks like one mapping from the first address to the last.
pub fn is_rollup(begin: &[u8]) -> bool {
    first(begin).is_some_and(|mapping| &*mapping.name == ROLLUP)
}

fn first(begin: &[u8]) -> Option<Mapping> {
    text::lines(&text::without_returns(begin.to_vec()))
        .filter(|line| !line.contains(&b'\r'))
        .find_map(|line| header(line.trim_ascii(), &mut HashMap::new()))
}

fn all_of(mut reader: Reader<impl BufRead>) -> io::Result<(Vec<Mapping>, Damage)> {
    let mut mappings: Vec<Mapping> = Vec::new();
    while let Some(mapping) = reader.next_mapping()? {
        // The kernel goes on where the mapping before ended. If that one has grown by then, it comes again, with what was read of it.
        mappings.pop_if(|before| before.start == mapping.start && before.end <= mapping.end);
        let end = mappings.last().map_or(0, |before| before.end);
        reader.damage.unordered += u64::from(mapping.start < end);
        mappings.push(mapping);
    }
    Ok((mappings, reader.damage))
}

/// The counters of smaps_rollup, which looks like one mapping.
pub fn rollup(text: &[u8]) -> Option<Counters> {
    let mut reader = Reader::new(text);
    let mapping = reader.next_mapping().ok()??;
    (&*mapping.name == ROLLUP && !mapping.counters.is_empty()).then_some(mapping.counters)
}

/// "START-END PERMS OFFSET MAJOR:MINOR INODE   NAME".
fn header(line: &[u8], names: &mut HashMap<Box<[u8]>, Arc<str>>) -> Option<Mapping> {
    let mut rest = line;
    let mut word = || {
        let end = rest.iter().position(|&byte| matches!(byte, b' ' | b'\t')).unwrap_or(rest.len());
        let (word, behind) = rest.split_at(end);
        rest = behind.get(1..).unwrap_or_default();
        word
    };
    let (range, perms, offset, device, inode) = (word(), word(), word(), word(), word());
    let dash = range.iter().position(|&byte| byte == b'-')?;
    let (start, end) = (text::hex(&range[..dash])?, text::hex(&range[dash + 1..])?);
    let colon = device.iter().position(|&byte| byte == b':')?;
    let (major, minor) = (text::hex(&device[..colon])?, text::hex(&device[colon + 1..])?);
    let name = rest.trim_ascii_start();
    let (name, deleted) = match name.strip_suffix(b" (deleted)") {
        Some(name) => (name, true),
        None => (name, false),
    };
    if end < start {
        return None;
    }
    Some(Mapping {
        start,
        end,
        perms: Perms::parse(perms)?,
        offset: text::hex(offset)?,
        device: (u32::try_from(major).ok()?, u32::try_from(minor).ok()?),
        inode: text::decimal(inode)?,
        name: shared(name, names),
        deleted,
        counters: Counters::default(),
        others: Vec::new(),
        flags: Flags::default(),
        dumped: None,
    })
}

/// One string for all mappings of a file.
fn shared(name: &[u8], names: &mut HashMap<Box<[u8]>, Arc<str>>) -> Arc<str> {
    if let Some(known) = names.get(name) {
        return known.clone();
    }
    let new: Arc<str> = String::from_utf8_lossy(name).into();
    names.insert(name.into(), new.clone());
    new
}

/// "Rss:      12 kB". False where the line is no field at all; one of a later kernel is.
fn field(line: &[u8], mapping: &mut Mapping, others: &mut Vec<Arc<str>>) -> bool {
    let Some(colon) = line.iter().position(|&byte| byte == b':') else { return false };
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    if let Some(field) = Field::of(name) {
        let number = if field.is_size() { text::kilobytes(value) } else { text::decimal(value.trim_ascii()) };
        let Some(number) = number else { return false };
        mapping.counters.set(field, number);
        return true;
    }
    // Before they had a name in the header, Android's kernels wrote that of anonymous memory here.
    if name == b"Name" {
        let value = value.trim_ascii();
        if mapping.name.is_empty() && !value.is_empty() {
            mapping.name = text::lossy(value).into();
        }
        return true;
    }
    if name == b"VmFlags" {
        mapping.flags = Flags::parse(value);
        return true;
    }
    if name.is_empty() || !name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_') {
        return false;
    }
    other(name, value.trim_ascii(), mapping, others);
    true
}

/// A field that is not known here is kept under its name, the last one if there are several of a name.
fn other(name: &[u8], value: &[u8], mapping: &mut Mapping, names: &mut Vec<Arc<str>>) {
    let known = names.iter().find(|known| known.as_bytes() == name).cloned();
    let name = match known {
        Some(known) => known,
        None if names.len() == OTHERS => return,
        None => {
            names.push(text::lossy(name).into());
            names[names.len() - 1].clone()
        }
    };
    let value = match (text::kilobytes(value), text::decimal(value)) {
        (Some(bytes), _) => OtherValue::Bytes(bytes),
        (None, Some(number)) => OtherValue::Number(number),
        (None, None) => OtherValue::Text(text::lossy(value).into()),
    };
    mapping.others.retain(|other| other.name != name);
    mapping.others.push(Other { name, value });
}

#[cfg(test)]
#[path = "smaps_tests.rs"]
mod tests;
