// SPDX-License-Identifier: MIT
//! What a program or library has of itself: where its parts are mapped, and the functions that it exports.

use std::fs::{self, File};
use std::path::Path;

use object::read::elf::{ElfFile, FileHeader, SectionHeader, Sym};
use object::read::{ReadCache, ReadRef, StringTable};
use object::{Object, ObjectKind, ObjectSegment, ObjectSymbol, SegmentFlags, SymbolKind};
use quarry_trace::Segment;

/// A program or library as its file has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapped {
    /// In hex; empty: it has none.
    pub build_id: String,
    /// What is mapped of it, in its own addresses.
    pub segments: Vec<Segment>,
    /// Where in the file each of these begins.
    pub offsets: Vec<u64>,
    /// Is it always loaded where its own addresses say?
    pub fixed: bool,
    /// First address, length, name: by address.
    exported: Vec<(u64, u64, String)>,
}

impl Mapped {
    /// Read a file; `None`: it is no program and no library.
    pub fn of(path: &Path) -> Option<Self> {
        // A pipe would be waited for, and so would some files of /proc, which have no length.
        fs::metadata(path).ok().filter(|about| about.is_file() && about.len() > 0)?;
        let cache = ReadCache::new(File::open(path).ok()?);
        Self::parse(&object::File::parse(&cache).ok()?)
    }

    /// The same without what it exports, from its beginning in memory. `None` also where its headers or its build id lie behind that.
    pub fn of_memory(mut head: Vec<u8>) -> Option<Self> {
        // Sections are not mapped: their table (e_shoff, e_shentsize, e_shnum, e_shstrndx) is one that is not there.
        for part in [0x28..0x30, 0x3A..0x40] {
            head.get_mut(part)?.fill(0);
        }
        Self::parse(&object::File::parse(&*head).ok()?)
    }

    fn parse<'data, R: ReadRef<'data>>(file: &object::File<'data, R>) -> Option<Self> {
        if !matches!(file.kind(), ObjectKind::Executable | ObjectKind::Dynamic) {
            return None;
        }
        let flags = |flags| match flags {
            SegmentFlags::Elf { p_flags, .. } => p_flags.0 & 7,
            _ => 0,
        };
        let segments: Vec<Segment> = file
            .segments()
            .map(|segment| Segment(segment.address(), segment.size(), flags(segment.flags())))
            .collect();
        let offsets = file.segments().map(|segment| segment.file_range().0).collect();
        let mut exported = match file {
            object::File::Elf64(elf) => exported(elf),
            object::File::Elf32(elf) => exported(elf),
            _ => None,
        }
        .unwrap_or_default();
        exported.sort();
        let hex = |id: &[u8]| id.iter().map(|byte| format!("{byte:02x}")).collect();
        Some(Self {
            build_id: file.build_id().ok()?.map_or_else(String::new, hex),
            segments,
            offsets,
            fixed: file.kind() == ObjectKind::Executable,
            exported,
        })
    }

    /// The exported function that has this address, and where it begins: what dladdr finds.
    pub fn exported(&self, address: u64) -> Option<(&str, u64)> {
        let behind = self.exported.partition_point(|(first, ..)| *first <= address);
        let around = |(first, size, _): &&(u64, u64, String)| address - first < (*size).max(1);
        let (first, _, name) = self.exported[..behind].iter().rev().find(around)?;
        Some((name, *first))
    }

    /// Does a part of it lie there?
    pub fn contains(&self, address: u64) -> bool {
        self.segments.iter().any(|Segment(first, size, _)| address.wrapping_sub(*first) < *size)
    }

    /// Its first address.
    pub fn lowest(&self) -> u64 {
        self.segments.iter().map(|Segment(first, ..)| *first).min().unwrap_or(0)
    }
}

/// Address, length and name of what others can call. The names are read at once: name by name, a large library takes a
/// hundred thousand system calls.
fn exported<'data, Elf, R>(file: &ElfFile<'data, Elf, R>) -> Option<Vec<(u64, u64, String)>>
where
    Elf: FileHeader,
    R: ReadRef<'data>,
{
    let (endian, symbols) = (file.endian(), file.elf_dynamic_symbol_table());
    if symbols.is_empty() {
        return None;
    }
    let names = file.elf_section_table().section(symbols.string_section()).ok()?;
    let names = names.data(endian, file.data()).ok()?;
    let names = StringTable::new(names, 0, names.len() as u64);
    let of_code = file.dynamic_symbols().filter(|one| one.is_definition() && one.kind() != SymbolKind::Tls);
    let named = of_code.filter_map(|one| {
        let name = symbols.symbol(one.index()).ok()?.name(endian, names).ok()?;
        Some((one.address(), one.size(), str::from_utf8(name).ok()?.to_owned()))
    });
    Some(named.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_and_what_is_none() {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let libc = maps.lines().filter_map(|line| line.split_ascii_whitespace().nth(5));
        let libc = libc.into_iter().find(|path| path.contains("/libc.so") || path.contains("/libc-"));
        let Some(libc) = libc else { return eprintln!("skipped: needs a program with a libc.so of its own") };
        let mapped = Mapped::of(Path::new(libc)).unwrap();
        let (_, first) = mapped
            .exported
            .iter()
            .find(|(.., name)| name == "malloc")
            .map(|(at, size, _)| (size, *at))
            .unwrap();
        assert!(mapped.contains(first) && !mapped.fixed && mapped.segments.len() > 1);
        // Several names may have one address.
        assert_eq!(mapped.exported(first + 5).unwrap().1, first);
        assert_eq!(mapped.exported(u64::MAX), None);
        // As it is in memory.
        let mut head = fs::read(libc).unwrap();
        head.truncate(16 << 10);
        let of_memory = Mapped::of_memory(head).unwrap();
        assert_eq!((of_memory.build_id, of_memory.segments), (mapped.build_id, mapped.segments));
        assert_eq!(Mapped::of_memory(b"\x7fELF".into()), None);
        assert_eq!(Mapped::of(Path::new("/etc/passwd")), None);
        assert_eq!(Mapped::of(Path::new("/")), None);
    }
}
