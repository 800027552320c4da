// SPDX-License-Identifier: MIT
//! The layout of a program's or library's file: which part of it becomes which mapping.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use object::elf::{
    FileHeader32, FileHeader64, PF_W, PF_X, PT_GNU_RELRO, PT_LOAD, SHF_ALLOC, SHF_TLS, SHT_NOBITS,
};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use object::read::{ReadCache, ReadRef};
use object::{Endianness, FileKind};

use crate::mapping::Mapping;

/// More sections are not looked at.
const MOST: usize = 4096;

/// A part of the file that is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Segment {
    offset: u64,
    address: u64,
    in_file: u64,
    in_memory: u64,
    write: bool,
    exec: bool,
}

/// A section that is in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// Its name.
    pub name: Arc<str>,
    /// Its address in the file's own counting.
    pub address: u64,
    /// Its length.
    pub size: u64,
}

/// The layout of a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Layout {
    segments: Vec<Segment>,
    /// What is made read-only when the dynamic linker has filled it in.
    relro: Option<(u64, u64)>,
    sections: Vec<Section>,
    page: u64,
}

/// What a mapping is to its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Code.
    Text,
    /// Constants, and what the dynamic linker reads.
    Rodata,
    /// Filled in by the dynamic linker, then made read-only.
    Relro,
    /// Variables with a value.
    Data,
}

/// A mapping found in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// What it is.
    pub part: Part,
    /// How far the file was moved: addresses in memory less those in the file.
    pub moved: u64,
}

impl Layout {
    /// Read it from a file, if that is the one that is mapped and an ELF file.
    pub fn read(path: &Path, inode: u64, page: u64) -> Option<Self> {
        let about = fs::metadata(path).ok()?;
        if !about.is_file() || about.ino() != inode {
            return None;
        }
        let cache = ReadCache::new(File::open(path).ok()?);
        match FileKind::parse(&cache).ok()? {
            FileKind::Elf64 => parse::<FileHeader64<Endianness>, _>(&cache, page),
            FileKind::Elf32 => parse::<FileHeader32<Endianness>, _>(&cache, page),
            _ => None,
        }
    }

    /// Read it from bytes.
    pub fn parse(bytes: &[u8], page: u64) -> Option<Self> {
        match FileKind::parse(bytes).ok()? {
            FileKind::Elf64 => parse::<FileHeader64<Endianness>, _>(bytes, page),
            FileKind::Elf32 => parse::<FileHeader32<Endianness>, _>(bytes, page),
            _ => None,
        }
    }

    /// Where in the file a mapping is from. A page at the border of two segments is mapped twice: then it is of the one
    /// that begins there, and access decides. What was made read-only belongs to a segment that may be written.
    pub fn place(&self, mapping: &Mapping) -> Option<Place> {
        let mask = !(self.page - 1);
        let found = |segment: &&Segment| {
            let first = segment.offset & mask;
            let end = segment.offset.saturating_add(segment.in_file);
            (first..end).contains(&mapping.offset)
        };
        let begins = |segment: &&Segment| segment.offset & mask == mapping.offset;
        let fits =
            |segment: &&Segment| segment.exec == mapping.perms.exec && segment.write == mapping.perms.write;
        let candidates = || self.segments.iter().filter(found);
        let segment = candidates()
            .find(|segment| begins(segment) && fits(segment))
            .or_else(|| candidates().find(|segment| begins(segment) && segment.write))
            .or_else(|| candidates().find(fits))
            .or_else(|| candidates().find(|segment| segment.write))
            .or_else(|| candidates().next())?;
        let address =
            (segment.address & mask).wrapping_add(mapping.offset.wrapping_sub(segment.offset & mask));
        let in_relro = self
            .relro
            .is_some_and(|(start, size)| (start & mask..start.saturating_add(size)).contains(&address));
        let part = match () {
            () if mapping.perms.exec => Part::Text,
            () if mapping.perms.write => Part::Data,
            () if in_relro && segment.write => Part::Relro,
            () => Part::Rodata,
        };
        Some(Place { part, moved: mapping.start.wrapping_sub(address) })
    }

    /// The memory behind the file's parts that begins as zeros (.bss), from the page on that is no page of the file.
    pub fn zeroed(&self, moved: u64) -> impl Iterator<Item = (u64, u64)> {
        let up = |address: u64| address.wrapping_add(self.page - 1) & !(self.page - 1);
        self.segments.iter().filter(|segment| segment.in_memory > segment.in_file).filter_map(
            move |segment| {
                let start = segment.address.wrapping_add(moved);
                // A segment without anything in the file has no page in it either.
                let from = if segment.in_file == 0 {
                    start & !(self.page - 1)
                } else {
                    up(start.wrapping_add(segment.in_file))
                };
                let to = up(start.wrapping_add(segment.in_memory));
                (from < to).then_some((from, to))
            },
        )
    }

    /// The sections in a range of memory, with the bytes of each that are in it.
    pub fn sections(&self, moved: u64, start: u64, end: u64) -> impl Iterator<Item = (Arc<str>, u64)> {
        self.sections.iter().filter_map(move |section| {
            let from = section.address.wrapping_add(moved);
            let to = from.checked_add(section.size)?;
            let bytes = to.min(end).saturating_sub(from.max(start));
            (bytes > 0).then(|| (section.name.clone(), bytes))
        })
    }
}

fn parse<'data, Elf, R>(data: R, page: u64) -> Option<Layout>
where
    Elf: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let header = Elf::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let mut layout = Layout { page: page.max(1).next_power_of_two(), ..Layout::default() };
    for program in header.program_headers(endian, data).ok()?.iter().take(MOST) {
        let kind = program.p_type(endian);
        let (address, in_memory) = (program.p_vaddr(endian).into(), program.p_memsz(endian).into());
        if kind == PT_LOAD {
            let flags = program.p_flags(endian).0;
            layout.segments.push(Segment {
                offset: program.p_offset(endian).into(),
                address,
                in_file: program.p_filesz(endian).into(),
                in_memory,
                write: flags & PF_W.0 != 0,
                exec: flags & PF_X.0 != 0,
            });
        } else if kind == PT_GNU_RELRO {
            layout.relro = Some((address, in_memory));
        }
    }
    // A stripped file may have no sections; its segments still say what is what.
    let Ok(sections) = header.sections(endian, data) else { return Some(layout) };
    for section in sections.iter().take(MOST) {
        let flags = section.sh_flags(endian).0;
        let alloc = flags & SHF_ALLOC.0 != 0;
        // .tbss is only a size: each thread has its own.
        let of_threads = flags & SHF_TLS.0 != 0 && section.sh_type(endian) == SHT_NOBITS;
        if !alloc || of_threads {
            continue;
        }
        if let Ok(name) = sections.section_name(endian, section) {
            let name = String::from_utf8_lossy(name).into();
            let (address, size) = (section.sh_addr(endian).into(), section.sh_size(endian).into());
            layout.sections.push(Section { name, address, size });
        }
    }
    layout.sections.sort_by_key(|section| section.address);
    Some(layout)
}

#[cfg(test)]
#[path = "elf_tests.rs"]
mod tests;
