// SPDX-License-Identifier: MIT
//! Core files: the mappings of a process that crashed, with its threads and files, but not what was resident.

use std::fs::File;
use std::sync::Arc;

use object::elf::{
    EM_AARCH64, EM_X86_64, ET_CORE, FileHeader64, NT_AUXV, NT_FILE, NT_PRPSINFO, NT_PRSTATUS, PF_R, PF_W,
    PF_X, PT_LOAD, PT_NOTE,
};
use object::read::elf::{FileHeader, ProgramHeader};
use object::read::{ReadCache, ReadRef};
use object::{Endianness, FileKind};

use crate::counters::{Counters, Field};
use crate::mapping::{Flags, Mapping, Perms};
use crate::task::{Task, Tasks};
use crate::text;

/// More parts and files are not read of one core file.
const MOST: usize = 1 << 22;

/// What a core file says of the memory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CoreFile {
    /// The process.
    pub pid: Option<u32>,
    /// Its name.
    pub name: Option<String>,
    /// How it was called, up to 79 bytes.
    pub command: Option<String>,
    /// Its mappings by address. What they share with others is not known.
    pub mappings: Vec<Mapping>,
    /// Its threads; the first is the one that crashed.
    pub tasks: Tasks,
    /// An address in the main stack.
    pub main_stack: Option<u64>,
    /// Where the vdso begins.
    pub vdso: Option<u64>,
    /// The page size.
    pub page: Option<u64>,
    /// The file ends before all that it should have of the memory.
    pub cut: bool,
    /// Its notes cannot be read to their end: threads and names of files may be missing.
    pub notes_cut: bool,
}

/// Why a file is no core file that can be read.
#[derive(Debug, thiserror::Error)]
pub enum CoreError {
    /// Not readable at all.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A program, a library or an object file.
    #[error("is an ELF file, but no core file")]
    NoCore,
    /// Of a 32-bit process, or of another byte order.
    #[error("is a core file of a 32-bit or foreign process; only 64-bit ones are read")]
    Foreign,
    /// Nothing says where its memory is.
    #[error("is a core file without a segment of memory: its table of segments is empty, or lost")]
    Empty,
    /// Its headers are not whole.
    #[error("is damaged: {0}")]
    Damaged(#[from] object::read::Error),
}

/// Read one.
pub fn read(file: File) -> Result<CoreFile, CoreError> {
    parse(&ReadCache::new(file))
}

/// Read one from memory or through a cache.
pub fn parse<'data>(data: impl ReadRef<'data>) -> Result<CoreFile, CoreError> {
    if FileKind::parse(data)? != FileKind::Elf64 {
        return Err(CoreError::Foreign);
    }
    let header = FileHeader64::<Endianness>::parse(data)?;
    let endian = header.endian()?;
    if endian != Endianness::default() {
        return Err(CoreError::Foreign);
    }
    if header.e_type(endian) != ET_CORE {
        return Err(CoreError::NoCore);
    }
    let stack_register = match header.e_machine(endian) {
        EM_X86_64 => Some(19),
        EM_AARCH64 => Some(31),
        _ => None,
    };
    let length = data.len().unwrap_or(u64::MAX);
    let mut notes_left = length;
    let mut core = CoreFile::default();
    let mut files = Vec::new();
    for program in header.program_headers(endian, data)?.iter().take(MOST) {
        if program.p_type(endian) == PT_LOAD {
            let dumped = length.saturating_sub(program.p_offset(endian)).min(program.p_filesz(endian));
            core.cut |= dumped < program.p_filesz(endian);
            core.mappings.push(mapping(program, endian, dumped));
            continue;
        }
        if program.p_type(endian) != PT_NOTE {
            continue;
        }
        // Segments do not overlap: all notes together are no longer than the file.
        let Some(left) = notes_left.checked_sub(program.p_filesz(endian)) else {
            core.notes_cut = true;
            continue;
        };
        notes_left = left;
        // A note that cannot be read ends the notes of its segment, not the report. It is said.
        let Ok(Some(mut notes)) = program.notes(endian, data) else {
            core.notes_cut = true;
            continue;
        };
        loop {
            let note = match notes.next() {
                Ok(Some(note)) => note,
                Ok(None) => break,
                Err(_) => {
                    core.notes_cut = true;
                    break;
                }
            };
            let kind = note.n_type(endian);
            match kind {
                NT_PRSTATUS => core.tasks.list.extend(thread(note.desc(), stack_register)),
                NT_PRPSINFO => info(note.desc(), &mut core),
                NT_AUXV => auxiliary(note.desc(), &mut core),
                NT_FILE => files = mapped_files(note.desc()),
                _ => {}
            }
        }
    }
    core.mappings.sort_by_key(|mapping| mapping.start);
    let missing: Vec<Mapping> = files.iter().filter_map(|file| left_out(&core.mappings, file)).collect();
    core.mappings.extend(missing);
    core.mappings.sort_by_key(|mapping| mapping.start);
    for (start, end, offset, name) in files {
        give_name(&mut core.mappings, (start, end), offset, &name);
    }
    if core.mappings.is_empty() {
        return Err(CoreError::Empty);
    }
    for task in &mut core.tasks.list {
        task.name = core.name.clone().unwrap_or_default();
    }
    Ok(core)
}

fn mapping(
    program: &impl ProgramHeader<Endian = Endianness, Word = u64>,
    endian: Endianness,
    dumped: u64,
) -> Mapping {
    let flags = program.p_flags(endian).0;
    let (start, size) = (program.p_vaddr(endian), program.p_memsz(endian));
    let mut counters = Counters::default();
    counters.set(Field::Size, size);
    Mapping {
        start,
        end: start.saturating_add(size),
        perms: Perms {
            read: flags & PF_R.0 != 0,
            write: flags & PF_W.0 != 0,
            exec: flags & PF_X.0 != 0,
            shared: false,
        },
        offset: 0,
        device: (0, 0),
        inode: 0,
        name: "".into(),
        deleted: false,
        counters,
        others: Vec::new(),
        flags: Flags::default(),
        dumped: Some(dumped),
    }
}

/// A word of a note.
fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// struct elf_prstatus: the number at 32, the registers from 112 on.
fn thread(note: &[u8], stack_register: Option<usize>) -> Option<Task> {
    let stack_pointer = stack_register.and_then(|register| word(note, 112 + 8 * register));
    Some(Task { tid: half(note, 32)?, name: String::new(), stack_pointer, ended: false })
}

/// struct elf_prpsinfo: the number at 24, the name at 40, the command at 56.
fn info(note: &[u8], core: &mut CoreFile) {
    let string = |from: usize, to: usize| {
        let bytes = note.get(from..to)?.split(|&byte| byte == 0).next()?;
        Some(text::lossy(bytes.trim_ascii()))
    };
    core.pid = half(note, 24);
    core.name = string(40, 56);
    core.command = string(56, 136);
}

/// Pairs of a kind and a value.
fn auxiliary(note: &[u8], core: &mut CoreFile) {
    for pair in note.chunks_exact(16) {
        let (Some(kind), Some(value)) = (word(pair, 0), word(pair, 8)) else { return };
        match kind {
            libc::AT_PAGESZ => core.page = Some(value).filter(|page| page.is_power_of_two()),
            libc::AT_RANDOM => core.main_stack = Some(value),
            libc::AT_SYSINFO_EHDR => core.vdso = Some(value),
            _ => {}
        }
    }
}

/// A count, the unit of offsets, that many (start, end, offset), then that many names. They go up, as the kernel and gdb write
/// them: others are left out, or a mapping could be named by each of them.
fn mapped_files(note: &[u8]) -> Vec<(u64, u64, u64, String)> {
    let (Some(count), Some(unit)) = (word(note, 0), word(note, 8)) else { return Vec::new() };
    let count = usize::try_from(count).unwrap_or(usize::MAX).min(note.len() / 24);
    let names = note.get(16 + count * 24..).unwrap_or_default().split(|&byte| byte == 0);
    let file = |(index, name): (usize, &[u8])| {
        let at = 16 + index * 24;
        let offset = word(note, at + 16)?.wrapping_mul(unit);
        Some((word(note, at)?, word(note, at + 8)?, offset, text::lossy(name)))
    };
    let mut behind = 0;
    let goes_up = |(start, end, _, _): &(u64, u64, u64, String)| {
        let fits = behind <= *start && start < end;
        behind = if fits { *end } else { behind };
        fits
    };
    (0..count).zip(names).filter_map(file).filter(goes_up).collect()
}

/// A mapping that is named but has no part of its own: gdb leaves out code, which the file has as well.
fn left_out(mappings: &[Mapping], &(start, end, _, _): &(u64, u64, u64, String)) -> Option<Mapping> {
    let behind = mappings.partition_point(|mapping| mapping.start < end);
    let covered = behind.checked_sub(1).is_some_and(|last| mappings[last].end > start);
    let mut counters = Counters::default();
    counters.set(Field::Size, end - start);
    (!covered).then(|| Mapping {
        start,
        end,
        perms: Perms { read: true, exec: true, ..Perms::default() },
        offset: 0,
        device: (0, 0),
        inode: 0,
        name: "".into(),
        deleted: false,
        counters,
        others: Vec::new(),
        flags: Flags::default(),
        dumped: Some(0),
    })
}

/// Say of all mappings in this range which file they are from.
fn give_name(mappings: &mut [Mapping], (start, end): (u64, u64), offset: u64, name: &str) {
    let (name, deleted) = match name.strip_suffix(" (deleted)") {
        Some(name) => (name, true),
        None => (name, false),
    };
    let name: Arc<str> = name.into();
    // What these names stand for is always shared.
    let shared = ["/dev/zero", "/SYSV", "/memfd:", "/dev/shm/"].iter().any(|begin| name.starts_with(begin));
    let first = mappings.partition_point(|mapping| mapping.start < start);
    for mapping in mappings[first..].iter_mut().take_while(|mapping| mapping.start < end) {
        mapping.offset = offset.wrapping_add(mapping.start - start);
        mapping.name = name.clone();
        mapping.deleted = deleted;
        mapping.perms.shared = shared;
    }
}

#[cfg(test)]
#[path = "core_file_tests.rs"]
mod tests;
