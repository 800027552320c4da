// SPDX-License-Identifier: MIT
//! The mappings as people who know pmap expect them: -x and -X. KiB.

use std::io::{self, Write};

use quarry_proc::classify::Kind;
use quarry_proc::counters::{Counters, Field, OtherValue};
use quarry_proc::mapping::Mapping;
use quarry_proc::shown;

use super::view::{View, mapping_name};

fn kib(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| String::from("-"), |bytes| (bytes / 1024).to_string())
}

fn title(view: &View) -> String {
    let command = shown(&view.space.command.join(" "));
    let name = view.space.name.as_deref().map(shown).unwrap_or_default();
    let pid = view.space.pid.map_or_else(String::new, |pid| format!("{pid}: "));
    format!("{pid}  {}", if command.is_empty() { name } else { command }).trim().to_owned()
}

/// The mappings that were asked for, by address.
fn wanted(view: &View) -> impl Iterator<Item = usize> {
    (0..view.space.mappings.len()).filter(|&index| view.wanted[index])
}

/// Address, size, resident, dirty, mode, name; and the sums. The mode has p and s for private and shared, and an R where
/// no swap space is reserved.
pub fn extended(view: &View, to: &mut dyn Write) -> io::Result<()> {
    writeln!(to, "{}", title(view))?;
    writeln!(to, "{:<16} {:>11} {:>9} {:>9} {:<5} Mapping", "Address", "Kbytes", "RSS", "Dirty", "Mode")?;
    for index in wanted(view) {
        let (mapping, class) = (&view.space.mappings[index], &view.classes[index]);
        writeln!(
            to,
            "{:016x} {:>11} {:>9} {:>9} {:<5} {}",
            mapping.start,
            mapping.size() / 1024,
            kib(mapping.counters.get(Field::Rss)),
            kib(mapping.counters.dirty()),
            mapping.mode(),
            mapping_name(view.space, mapping, class)
        )?;
    }
    let sum = &view.chosen;
    writeln!(to, "{:-<16} {:->11} {:->9} {:->9}", "", "", "", "")?;
    writeln!(
        to,
        "{:<16} {:>11} {:>9} {:>9}",
        "total kB",
        sum.size / 1024,
        kib(sum.resident()),
        kib(sum.counters.dirty())
    )
}

/// A column of [`all_fields`].
enum Head<'a> {
    Known(Field),
    Other(&'a str),
}

impl Head<'_> {
    fn name(&self) -> &str {
        match self {
            Self::Known(field) => field.name(),
            Self::Other(name) => name,
        }
    }

    fn known(&self, counters: &Counters) -> Option<String> {
        let Self::Known(field) = self else { return None };
        let value = counters.get(*field)?;
        Some(if field.is_size() { value / 1024 } else { value }.to_string())
    }

    /// "-" where the kernel says nothing of it.
    fn of(&self, mapping: &Mapping) -> String {
        let told = match self {
            Self::Known(_) => self.known(&mapping.counters),
            Self::Other(name) => {
                mapping.others.iter().find(|other| &*other.name == *name).map(|other| match &other.value {
                    OtherValue::Bytes(bytes) => (bytes / 1024).to_string(),
                    OtherValue::Number(number) => number.to_string(),
                    OtherValue::Text(text) => shown(text).replace(' ', "_"),
                })
            }
        };
        told.unwrap_or_else(|| String::from("-"))
    }
}

/// All that the kernel counts of these mappings, known or not, in its order.
fn heads<'a>(mappings: &[&'a Mapping]) -> Vec<Head<'a>> {
    let told = |field: &Field| mappings.iter().any(|mapping| mapping.counters.get(*field).is_some());
    let mut heads: Vec<Head> = Field::ALL.into_iter().filter(told).map(Head::Known).collect();
    let mut seen: Vec<&str> = Vec::new();
    for other in mappings.iter().flat_map(|mapping| &mapping.others) {
        if !seen.contains(&&*other.name) {
            seen.push(&other.name);
        }
    }
    heads.extend(seen.into_iter().map(Head::Other));
    heads
}

/// Everything the kernel counts, and VmFlags. Sizes are in KiB, other numbers as they are.
pub fn all_fields(view: &View, to: &mut dyn Write) -> io::Result<()> {
    writeln!(to, "{}", title(view))?;
    // What is no part of VIRT is no part of the sum.
    let mut sum = Counters::default();
    for index in wanted(view).filter(|&index| view.classes[index].kind != Kind::Vsyscall) {
        sum.add(&view.space.mappings[index].counters);
    }
    let mappings: Vec<&Mapping> = wanted(view).map(|index| &view.space.mappings[index]).collect();
    let heads = heads(&mappings);
    let sums: Vec<String> = heads.iter().map(|head| head.known(&sum).unwrap_or_default()).collect();
    // No size of a mapping is wider than the sum of all.
    let width = |(head, sum): (&Head, &String)| {
        let cells = || mappings.iter().map(|mapping| head.of(mapping).chars().count()).max().unwrap_or(0);
        head.name().len().max(if sum.is_empty() { cells() } else { sum.len() })
    };
    let widths: Vec<usize> = heads.iter().zip(&sums).map(width).collect();
    let line = |cells: Vec<String>| {
        let cells = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}"));
        cells.collect::<Vec<_>>().join(" ")
    };
    writeln!(
        to,
        "{:<16} {:<5} {:>10} {:>7} {:>12} {} {:<12} VmFlags / Mapping",
        "Address",
        "Mode",
        "Offset",
        "Device",
        "Inode",
        line(heads.iter().map(|head| head.name().to_owned()).collect()),
        "Kind"
    )?;
    for index in wanted(view) {
        let (mapping, class) = (&view.space.mappings[index], &view.classes[index]);
        let (major, minor) = mapping.device;
        let flags = mapping.flags.text();
        writeln!(
            to,
            "{:016x} {:<5} {:>10x} {:>7} {:>12} {} {:<12} [{flags}] {}",
            mapping.start,
            mapping.mode(),
            mapping.offset,
            format!("{major:02x}:{minor:02x}"),
            mapping.inode,
            line(heads.iter().map(|head| head.of(mapping)).collect()),
            class.kind.name(),
            mapping_name(view.space, mapping, class)
        )?;
    }
    let left = 16 + 1 + 5 + 1 + 10 + 1 + 7 + 1 + 12;
    writeln!(to, "{:<left$} {}", "total kB", line(sums).trim_end())
}
