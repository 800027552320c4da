// SPDX-License-Identifier: MIT
//! The mappings as people who know pmap expect them: -x and -X. KiB.

use std::io::{self, Write};

use quarry_proc::classify::Kind;
use quarry_proc::counters::{Counters, Field};
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

/// Everything the kernel counts, and VmFlags.
pub fn all_fields(view: &View, to: &mut dyn Write) -> io::Result<()> {
    writeln!(to, "{}", title(view))?;
    let fields: Vec<Field> =
        Field::ALL.into_iter().filter(|&field| view.chosen.counters.get(field).is_some()).collect();
    let width = |field: Field| field.name().len().max(kib(view.chosen.counters.get(field)).len());
    let numbers = |counters: &Counters| {
        let cells = fields.iter().map(|&field| format!("{:>1$}", kib(counters.get(field)), width(field)));
        cells.collect::<Vec<_>>().join(" ")
    };
    let heads: Vec<String> =
        fields.iter().map(|&field| format!("{:>1$}", field.name(), width(field))).collect();
    writeln!(
        to,
        "{:<16} {:<5} {:>10} {:>7} {:>12} {} {:<12} VmFlags / Mapping",
        "Address",
        "Mode",
        "Offset",
        "Device",
        "Inode",
        heads.join(" "),
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
            numbers(&mapping.counters),
            class.kind.name(),
            mapping_name(view.space, mapping, class)
        )?;
    }
    // What is no part of VIRT is no part of the sum.
    let mut sum = Counters::default();
    for index in wanted(view).filter(|&index| view.classes[index].kind != Kind::Vsyscall) {
        sum.add(&view.space.mappings[index].counters);
    }
    let left = 16 + 1 + 5 + 1 + 10 + 1 + 7 + 1 + 12;
    writeln!(to, "{:<left$} {}", "total kB", numbers(&sum))
}
