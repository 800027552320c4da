// SPDX-License-Identifier: MIT
//! Why a preloaded library would not reach a program, read from the program's file.

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use object::elf::{FileHeader32, FileHeader64, PT_INTERP, SHN_UNDEF};
use object::read::ReadCache;
use object::read::StringTable;
use object::read::elf::{Dyn, FileHeader, ProgramHeader, SectionHeader, SectionTable, Sym, SymbolTable};
use object::{Endianness, FileKind, ReadRef};
use serde::Serialize;

use crate::sys;

/// What the file of a program or library says about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// Word size in bits and ELF machine number: what must agree for a library to load.
    pub kind: (u8, u16),
    /// It can be loaded at any place, as libraries and most programs of today.
    pub shared: bool,
    /// The dynamic linker it asks for; `None` means statically linked (or a library).
    pub interpreter: Option<PathBuf>,
    /// It has a name of its own that others ask for it by, as libraries and dynamic linkers have.
    pub named: bool,
    /// It exports a `malloc` of its own, which is found before any preloaded one.
    pub exports_malloc: bool,
    /// A prefixed allocator inside, which calls nobody's `malloc`.
    pub inner_allocator: Option<&'static str>,
    /// Written in Go, whose runtime has its own memory.
    pub go: bool,
    /// Built with AddressSanitizer or a kin, which insists on its own malloc.
    pub sanitizer: bool,
    /// The C library it wants, as far as its dynamic linker and the names of what it needs tell.
    pub libc: Option<Libc>,
}

impl Facts {
    /// Is it a dynamic linker, which can be run with a program as its argument?
    pub fn is_linker(&self) -> bool {
        self.shared && self.named && self.interpreter.is_none()
    }
}

/// A C library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Libc {
    /// The GNU C library.
    Glibc,
    /// That of Alpine.
    Musl,
}

impl Libc {
    /// By the name of a dynamic linker, or of a library that is needed.
    fn of(name: &[u8]) -> Option<Self> {
        let base = name.rsplit(|&b| b == b'/').next().unwrap_or_default();
        match base {
            b"libc.so.6" => Some(Libc::Glibc),
            b"libc.so" => Some(Libc::Musl),
            _ if base.starts_with(b"ld-linux") => Some(Libc::Glibc),
            _ if base.starts_with(b"ld-musl") || base.starts_with(b"libc.musl") => Some(Libc::Musl),
            _ => None,
        }
    }
}

/// Why an allocator that is preloaded would not, or not fully, serve the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Obstacle {
    /// Not an ELF file; nothing is known.
    NotElf,
    /// No dynamic linker, so no preloading.
    Static,
    /// Built for another word size or processor than the library.
    OtherMachine,
    /// Made for another C library than the library is.
    OtherLibc,
    /// Set-user-ID or set-group-ID to somebody else: the dynamic linker ignores LD_PRELOAD.
    SetId,
    /// File capabilities: the same.
    Capabilities,
    /// The executable exports its own malloc.
    OwnMalloc,
    /// A prefixed allocator is linked in.
    InnerAllocator(&'static str),
    /// A sanitizer's run-time library.
    Sanitizer,
    /// A Go program.
    Go,
}

impl Obstacle {
    /// Does it keep the library away altogether, rather than from a part of the program?
    pub fn is_total(self) -> bool {
        matches!(
            self,
            Self::Static
                | Self::OtherMachine
                | Self::OtherLibc
                | Self::SetId
                | Self::Capabilities
                | Self::OwnMalloc
        )
    }
}

impl std::fmt::Display for Obstacle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NotElf => {
                "is neither an ELF file nor a script: cannot tell whether the library will be loaded"
            }
            Self::Static => {
                "is statically linked: nothing can be preloaded (link it with libquarry-malloc.a instead)"
            }
            Self::OtherMachine => {
                "is built for another processor or word size than the library: it will not be loaded"
            }
            Self::OtherLibc => "is made for another C library than the library: it will not be loaded",
            Self::SetId => "runs as another user or group (set-ID): the dynamic linker ignores LD_PRELOAD",
            Self::Capabilities => "has file capabilities: the dynamic linker ignores LD_PRELOAD",
            Self::OwnMalloc => "exports its own malloc, which is used before a preloaded one",
            Self::InnerAllocator(name) => {
                return write!(f, "has {name} linked in under other names: those allocations stay there");
            }
            Self::Sanitizer => {
                "is built with a sanitizer, which needs its own malloc: expect it to refuse or to crash"
            }
            Self::Go => "is a Go program: only its C parts use malloc",
        })
    }
}

/// Read the facts of an ELF file; `None` when it is none.
pub fn read(path: &Path) -> io::Result<Option<Facts>> {
    let file = File::open(path)?;
    if !file.metadata()?.is_file() {
        return Ok(None);
    }
    let cache = ReadCache::new(file);
    // A damaged file is no ELF file: the kernel will say so better than we could.
    Ok(match FileKind::parse(&cache) {
        Ok(FileKind::Elf64) => parse::<FileHeader64<Endianness>, _>(&cache).ok(),
        Ok(FileKind::Elf32) => parse::<FileHeader32<Endianness>, _>(&cache).ok(),
        _ => None,
    })
}

fn parse<'data, Elf, R>(data: R) -> object::read::Result<Facts>
where
    Elf: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let header = Elf::parse(data)?;
    let endian = header.endian()?;
    let mut facts = Facts {
        kind: (if header.is_class_64() { 64 } else { 32 }, header.e_machine(endian).0),
        shared: header.e_type(endian) == object::elf::ET_DYN,
        ..Facts::default()
    };
    for segment in header.program_headers(endian, data)? {
        if segment.p_type(endian) == PT_INTERP
            && let Ok(bytes) = segment.data(endian, data)
        {
            let path = bytes.split(|&b| b == 0).next().unwrap_or_default();
            facts.libc = Libc::of(path);
            facts.interpreter = Some(std::ffi::OsString::from_vec(path.to_vec()).into());
        }
    }
    let sections = header.sections(endian, data)?;
    let section_names = || sections.iter().filter_map(|s| sections.section_name(endian, s).ok());
    facts.go = section_names().any(|name| name == b".go.buildinfo" || name == b".note.go.buildid");

    let dynamic = sections.symbols(endian, data, object::elf::SHT_DYNSYM)?;
    let names = strings(&sections, endian, data, &dynamic)?;
    let names = StringTable::new(names, 0, names.len() as u64);
    for symbol in dynamic.iter().filter(|s| s.st_shndx(endian) != SHN_UNDEF) {
        match symbol.name(endian, names) {
            Ok(b"malloc") => facts.exports_malloc = true,
            Ok(b"__asan_init" | b"__tsan_init" | b"__msan_init" | b"__hwasan_init" | b"__lsan_init") => {
                facts.sanitizer = true;
            }
            _ => {}
        }
    }
    facts.inner_allocator = inner_allocator(&sections, endian, data)?;
    if let Some((entries, strings)) = sections.dynamic(endian, data)? {
        facts.named = entries.iter().any(|e| e.d_tag(endian) == object::elf::DT_SONAME);
        let strings = sections.strings(endian, data, strings).unwrap_or_default();
        let needed = entries
            .iter()
            .filter(|e| e.d_tag(endian) == object::elf::DT_NEEDED)
            .filter_map(|e| strings.get(e.d_val(endian).into() as u32).ok());
        for name in needed {
            let sanitizers = [&b"libasan"[..], b"libtsan", b"libhwasan", b"liblsan", b"libclang_rt."];
            facts.sanitizer |= sanitizers.iter().any(|l| name.starts_with(l));
            facts.libc = facts.libc.or(Libc::of(name));
        }
    }
    Ok(facts)
}

/// All names of a table of symbols, with a zero behind each. They are read at once: name by name, a large program takes
/// half a million system calls.
fn strings<'data, Elf, R>(
    sections: &SectionTable<'data, Elf, R>,
    endian: Endianness,
    data: R,
    symbols: &SymbolTable<'data, Elf, R>,
) -> object::read::Result<&'data [u8]>
where
    Elf: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    match symbols.is_empty() {
        true => Ok(&[]),
        false => sections.section(symbols.string_section())?.data(endian, data),
    }
}

/// A prefixed allocator that the program defines. Few programs have one of these names, so the symbols of the others are
/// not read.
fn inner_allocator<'data, Elf, R>(
    sections: &SectionTable<'data, Elf, R>,
    endian: Endianness,
    data: R,
) -> object::read::Result<Option<&'static str>>
where
    Elf: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    const NAMES: [(&[u8], &str); 7] = [
        (b"_rjem_malloc", "jemalloc"),
        (b"je_malloc", "jemalloc"),
        (b"mi_malloc", "mimalloc"),
        (b"tc_malloc", "tcmalloc"),
        (b"sn_malloc", "snmalloc"),
        (b"sn_alloc", "snmalloc"),
        (b"quarry_malloc", "quarry"),
    ];
    let all = sections.symbols(endian, data, object::elf::SHT_SYMTAB)?;
    let names = strings(sections, endian, data, &all)?;
    // A name may be the end of another.
    let has_one = |name: &[u8]| NAMES.iter().any(|(one, _)| name.ends_with(one));
    if !names.split(|&byte| byte == 0).any(has_one) {
        return Ok(None);
    }
    let names = StringTable::new(names, 0, names.len() as u64);
    let defined = all.iter().filter(|symbol| symbol.st_shndx(endian) != SHN_UNDEF);
    let mut found = defined.filter_map(|symbol| {
        let name = symbol.name(endian, names).ok()?;
        NAMES.iter().find(|(one, _)| *one == name).map(|(_, allocator)| *allocator)
    });
    Ok(found.next())
}

/// Could the dynamic linker preload it? It passes over what it cannot, and the program runs without.
pub fn is_library(path: &Path) -> bool {
    matches!(read(path), Ok(Some(facts)) if facts.shared)
}

/// What stands between the program in file `binary` and `library` when that is preloaded.
pub fn obstacles(binary: &Path, library: Option<&Path>) -> io::Result<Vec<Obstacle>> {
    let metadata = fs::metadata(binary)?;
    let Some(facts) = read(binary)? else { return Ok(vec![Obstacle::NotElf]) };
    let library = library.map(read).transpose()?.flatten();
    let other_machine = library.as_ref().is_some_and(|l| l.kind != facts.kind);
    let other_libc = match (facts.libc, library.and_then(|l| l.libc)) {
        (Some(of_program), Some(of_library)) => of_program != of_library && !other_machine,
        _ => false,
    };
    let (user, group) = sys::real_ids();
    let checks = [
        // A dynamic linker that is run loads what is to be preloaded, and then the program that it is given.
        (facts.interpreter.is_none() && !facts.is_linker(), Obstacle::Static),
        (other_machine, Obstacle::OtherMachine),
        (other_libc, Obstacle::OtherLibc),
        (changes_id(metadata.mode(), (metadata.uid(), metadata.gid()), (user, group)), Obstacle::SetId),
        // Root has them all anyway, so they make no difference.
        (user != 0 && sys::has_file_capabilities(binary), Obstacle::Capabilities),
        (facts.sanitizer, Obstacle::Sanitizer),
        (facts.exports_malloc && !facts.sanitizer, Obstacle::OwnMalloc),
        (facts.go, Obstacle::Go),
    ];
    let inner = facts.inner_allocator.filter(|_| !facts.exports_malloc).map(Obstacle::InnerAllocator);
    Ok(checks.into_iter().filter(|(holds, _)| *holds).map(|(_, o)| o).chain(inner).collect())
}

/// Would a file with this mode and owner run under other ids than ours?
fn changes_id(mode: u32, owner: (u32, u32), ours: (u32, u32)) -> bool {
    let set_user = mode & libc::S_ISUID != 0 && owner.0 != ours.0;
    // Without group execution the bit asks for mandatory locking, a relic.
    let set_group = mode & libc::S_ISGID != 0 && mode & libc::S_IXGRP != 0 && owner.1 != ours.1;
    set_user || set_group
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Compile a program; `None` without a C compiler.
    fn compile(dir: &Path, name: &str, source: &str, options: &[&str]) -> Option<PathBuf> {
        let (file, out) = (dir.join(format!("{name}.c")), dir.join(name));
        fs::write(&file, source).unwrap();
        let status = Command::new("cc").arg(&file).arg("-o").arg(&out).args(options).status().ok()?;
        status.success().then_some(out)
    }

    #[test]
    fn a_plain_program_has_no_obstacle() {
        let facts = read(Path::new("/bin/sh")).unwrap().unwrap();
        assert!(facts.interpreter.is_some());
        assert_eq!(obstacles(Path::new("/bin/sh"), None).unwrap(), []);
        assert_eq!(obstacles(Path::new("/bin/sh"), Some(Path::new("/bin/sh"))).unwrap(), []);
    }

    /// A file, and how often it was asked.
    struct Asked<'a>(File, &'a std::cell::Cell<usize>);

    impl std::io::Read for Asked<'_> {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            self.1.set(self.1.get() + 1);
            self.0.read(to)
        }
    }

    impl std::io::Seek for Asked<'_> {
        fn seek(&mut self, to: std::io::SeekFrom) -> io::Result<u64> {
            self.1.set(self.1.get() + 1);
            self.0.seek(to)
        }
    }

    #[test]
    fn a_program_with_many_symbols_is_read_in_few_pieces() {
        let dir = tempfile::tempdir().unwrap();
        let functions: String =
            (0..5000).map(|i| format!("int function_{i}(void) {{ return {i}; }}\n")).collect();
        let source = functions + "void *mi_malloc(void) { return 0; } int main(void) { return 0; }";
        let Some(many) = compile(dir.path(), "many", &source, &["-rdynamic"]) else { return };
        let asked = std::cell::Cell::new(0);
        let cache = ReadCache::new(Asked(File::open(many).unwrap(), &asked));
        let facts = parse::<FileHeader64<Endianness>, _>(&cache).unwrap();
        assert_eq!(facts.inner_allocator, Some("mimalloc"));
        // Headers, segments, the names of some 40 sections, and six tables; seek and read.
        assert!(asked.get() < 200, "{}", asked.get());
    }

    #[test]
    fn other_files_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let text = dir.path().join("text");
        fs::write(&text, "hello").unwrap();
        assert_eq!(obstacles(&text, None).unwrap(), [Obstacle::NotElf]);
        assert!(obstacles(&dir.path().join("none"), None).is_err());
        // An ELF file cut short must not be trusted, nor crash us.
        let sh = fs::read("/bin/sh").unwrap();
        for length in [4, 16, 64, 200, sh.len() / 2] {
            fs::write(&text, &sh[..length]).unwrap();
            assert_eq!(obstacles(&text, None).unwrap(), [Obstacle::NotElf], "{length}");
        }
        // The same program for another machine (e_machine is at byte 18).
        let mut other = sh.clone();
        other[18] ^= 0xff;
        fs::write(&text, &other).unwrap();
        assert_eq!(obstacles(&text, Some(Path::new("/bin/sh"))).unwrap(), [Obstacle::OtherMachine]);
    }

    #[test]
    fn compiled_programs_show_what_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let main = "int main(void) { return 0; }";
        let Some(plain) = compile(dir.path(), "plain", main, &[]) else { return };
        assert_eq!(obstacles(&plain, None).unwrap(), []);
        // What runs programs is no obstacle, and what it runs is looked at by itself.
        let linker = read(&plain).unwrap().unwrap().interpreter.unwrap();
        assert!(read(&linker).unwrap().unwrap().is_linker() && !read(&plain).unwrap().unwrap().is_linker());
        let found = obstacles(&linker, Some(&plain)).unwrap();
        assert!(!found.iter().any(|obstacle| obstacle.is_total()), "{found:?}");
        if let Some(pie) = compile(dir.path(), "pie", main, &["-static-pie"]) {
            assert!(obstacles(&pie, None).unwrap().contains(&Obstacle::Static));
        }
        if let Some(fixed) = compile(dir.path(), "static", main, &["-static"]) {
            let found = obstacles(&fixed, None).unwrap();
            assert!(found.contains(&Obstacle::Static), "{found:?}");
        }
        let own = "#include <stddef.h>\nvoid *malloc(size_t n) { (void)n; return NULL; } int main(void) { return 0; }";
        let own = compile(dir.path(), "own", own, &["-rdynamic", "-fno-builtin"]).unwrap();
        assert_eq!(obstacles(&own, None).unwrap(), [Obstacle::OwnMalloc]);
        // Using malloc, even by address, is not defining it.
        let user = "#include <stdlib.h>\nvoid *(*p)(size_t) = malloc; int main(void) { return !p; }";
        let user = compile(dir.path(), "user", user, &["-no-pie"]).unwrap();
        assert_eq!(obstacles(&user, None).unwrap(), []);
        let other = ["-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1"];
        let other = compile(dir.path(), "other", main, &other).unwrap();
        assert_eq!(obstacles(&other, Some(&plain)).unwrap(), [Obstacle::OtherLibc]);
        assert_eq!(obstacles(&other, None).unwrap(), []);
        let inner = "void *mi_malloc(void) { return 0; } int main(void) { return mi_malloc() != 0; }";
        let inner = compile(dir.path(), "inner", inner, &[]).unwrap();
        assert_eq!(obstacles(&inner, None).unwrap(), [Obstacle::InnerAllocator("mimalloc")]);
    }

    #[test]
    fn set_id_counts_when_it_changes_something() {
        assert!(changes_id(0o104_755, (0, 0), (1000, 1000)));
        assert!(!changes_id(0o104_755, (0, 0), (0, 0)));
        assert!(changes_id(0o102_755, (0, 5), (1000, 1000)));
        assert!(!changes_id(0o102_745, (0, 5), (1000, 1000)));
        assert!(!changes_id(0o100_755, (0, 0), (1000, 1000)));
    }
}
