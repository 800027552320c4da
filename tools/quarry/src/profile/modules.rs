// SPDX-License-Identifier: MIT
//! The files that are mapped in a running process, as they come and go.
//!
//! What a file is, its memory says: there are its headers and its build id, whatever lies at its path by now.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

use quarry_proc::mapping::Mapping;
use quarry_stats::{maker, memory};
use quarry_symbols::Mapped;
use quarry_trace::{Module, Segment, What};

/// Linkers put program headers and build id at the beginning of a file.
const HEAD: u64 = 16 << 10;
const NEWLINE: &[u8] = b"\\012";
const GONE: &str = " (deleted)";

/// The beginning of a file that is mapped: its address, device and number. Its name changes when it is deleted.
type First = (u64, (u32, u32), u64);

fn first(mapping: &Mapping) -> Option<First> {
    (mapping.has_file() && mapping.offset == 0).then_some((mapping.start, mapping.device, mapping.inode))
}

/// All of a process.
pub struct Modules {
    pid: i32,
    /// Of a thread that lives.
    folder: PathBuf,
    memory: Option<File>,
    /// What is mapped; with its load address and its addresses where it is a program or library.
    known: BTreeMap<First, Option<(u64, Range<u64>)>>,
    /// Where programs or libraries were before.
    past: Vec<Range<u64>>,
    /// As of the last look, until changes are asked for.
    mappings: Vec<Mapping>,
}

impl Modules {
    /// Nothing is known yet.
    pub fn of(pid: i32) -> Self {
        let folder = maker::shared(pid);
        let memory = File::open(folder.join("mem")).ok();
        Self { pid, folder, memory, known: BTreeMap::new(), past: Vec::new(), mappings: Vec::new() }
    }

    /// See what is mapped now.
    pub fn look(&mut self) {
        self.folder = maker::shared(self.pid);
        self.mappings = memory::mappings(&self.folder).unwrap_or_default();
    }

    /// What the last look has found. Nodes of stacks up to `before` were known before it, and those up to `after` came around it.
    ///
    /// The process keeps a node when another file comes to its address, so an older one may be of either. Both files then claim it,
    /// and it has the name of neither.
    pub fn changes(&mut self, before: u32, after: u32) -> Vec<What> {
        let mappings = std::mem::take(&mut self.mappings);
        if mappings.is_empty() {
            return Vec::new(); // there was no look, or the process has gone
        }
        let there: HashSet<First> = mappings.iter().filter_map(first).collect();
        let (there, gone) =
            std::mem::take(&mut self.known).into_iter().partition(|(it, _)| there.contains(it));
        self.known = there;
        let mut changes = Vec::new();
        let gone: BTreeMap<First, _> = gone;
        for (base, range) in gone.into_values().flatten() {
            changes.push(What::ModuleUnloaded { base, about: format!("{{\"nodes\":{after}}}") });
            if !self.past.contains(&range) {
                self.past.push(range);
            }
        }
        for (at, mapping) in mappings.iter().enumerate() {
            let Some(it) = first(mapping).filter(|it| !self.known.contains_key(it)) else { continue };
            let range = mapping.start..end_of(&mappings[at..]);
            let was_other = self.past.iter().any(|past| past.start < range.end && range.start < past.end);
            let module = self.module(mapping, range.end, if was_other { 0 } else { before });
            self.known.insert(it, module.as_ref().map(|module| (module.base, range)));
            changes.extend(module.map(|it| What::ModuleLoaded { base: it.base, about: it.about() }));
        }
        changes
    }

    /// The program or library that begins with this mapping; `None`: it is none.
    fn module(&self, mapping: &Mapping, end: u64, nodes: u32) -> Option<Module> {
        let name = self.name(mapping);
        let (path, file) = self.file(mapping, name);
        let head = self.head(mapping);
        if head.as_ref().is_some_and(|head| !head.starts_with(b"\x7fELF")) {
            return None;
        }
        let readable = head.is_some();
        let of_file = || Mapped::of(&file.as_ref()?.0);
        let mapped = head.and_then(Mapped::of_memory).or_else(of_file);
        let (build_id, segments) = match mapped {
            Some(mapped) => (mapped.build_id, mapped.segments),
            // An address at least, and a distance from it.
            None if readable => (String::new(), vec![Segment(0, end - mapping.start, 5)]),
            None => return None,
        };
        let Segment(first, ..) = *segments.first()?;
        let (bytes, modified_ns) = match &file {
            Some((_, about)) => (about.len(), modified_ns(about)),
            None if build_id.is_empty() => (Module::NO_FILE, 0),
            None => (0, 0),
        };
        let text = path.to_string_lossy().into_owned();
        let bytes_of_path = path.as_os_str().as_bytes();
        let is_utf8 = text.as_bytes() == bytes_of_path;
        Some(Module {
            base: mapping.start.wrapping_sub(first & !(quarry_proc::page_size() - 1)),
            path: text,
            build_id,
            segments,
            bytes,
            modified_ns,
            path_hex: if is_utf8 { String::new() } else { hex(bytes_of_path) },
            first_node: nodes,
            last_node: u32::MAX,
            function: None,
            loaded: 0,
            unloaded: None,
        })
    }

    /// What is mapped of its beginning.
    fn head(&self, mapping: &Mapping) -> Option<Vec<u8>> {
        let mut head = vec![0; mapping.size().min(HEAD) as usize];
        self.memory.as_ref()?.read_exact_at(&mut head, mapping.start).ok()?;
        Some(head)
    }

    /// Its path as the kernel writes it, without what it puts behind those of deleted files. Mappings have it as text.
    fn name(&self, mapping: &Mapping) -> Vec<u8> {
        let text = mapping.name.as_bytes().to_vec();
        if !mapping.name.contains(char::REPLACEMENT_CHARACTER) {
            return text;
        }
        let maps = fs::read(self.folder.join("maps")).unwrap_or_default();
        let begin = format!("{:08x}-{:08x} ", mapping.start, mapping.end);
        let mut lines = maps.split(|&byte| byte == b'\n');
        let Some(line) = lines.find(|line| line.starts_with(begin.as_bytes())) else { return text };
        let Some(at) = line.iter().position(|&byte| byte == b'/') else { return text };
        let path =
            line[at..].strip_suffix(GONE.as_bytes()).filter(|_| mapping.deleted).unwrap_or(&line[at..]);
        path.to_vec()
    }

    /// The path of the file, and where the very file that is mapped can be read, if it can. A name may have what the kernel puts behind
    /// one, and what it writes for a newline.
    fn file(&self, mapping: &Mapping, name: Vec<u8>) -> (PathBuf, Option<(PathBuf, Metadata)>) {
        let is_it = |about: &Metadata| {
            let device = (rustix::fs::major(about.dev()), rustix::fs::minor(about.dev()));
            about.is_file() && (device, about.ino()) == (mapping.device, mapping.inode)
        };
        let at = |path: PathBuf| fs::metadata(&path).ok().filter(is_it).map(|about| (path, about));
        let as_read = with_newlines(&name);
        let suffix = if mapping.deleted { GONE } else { "" };
        for name in [&as_read, &name] {
            let name = path_of([name, suffix.as_bytes()].concat());
            let Ok(inner) = name.strip_prefix("/") else { continue };
            // Of a process in another root the kernel says the path as we see it, or as it does.
            let found = at(self.folder.join("root").join(inner)).or_else(|| at(name.clone()));
            if found.is_some() {
                return (name, found);
            }
        }
        let map_file = format!("map_files/{:x}-{:x}", mapping.start, mapping.end);
        let map_file = maker::proc(self.pid, &map_file);
        // This is the file itself, for those who may look: its device may be another one to the kernel.
        let mapped = fs::metadata(&map_file).ok().map(|about| (map_file, about));
        (path_of(as_read), mapped.or_else(|| at(self.folder.join("exe"))))
    }
}

/// Behind the last mapping of the file with which these begin.
fn end_of(mappings: &[Mapping]) -> u64 {
    let first = &mappings[0];
    let same = |mapping: &&Mapping| {
        (mapping.device, mapping.inode) == (first.device, first.inode)
            && (mapping.offset > 0 || mapping.start == first.start)
    };
    mappings.iter().take_while(same).last().map_or(first.end, |last| last.end)
}

fn with_newlines(name: &[u8]) -> Vec<u8> {
    let (mut rest, mut path) = (name, Vec::new());
    while let Some((&byte, behind)) = rest.split_first() {
        let newline = rest.strip_prefix(NEWLINE);
        path.push(if newline.is_some() { b'\n' } else { byte });
        rest = newline.unwrap_or(behind);
    }
    path
}

fn path_of(bytes: Vec<u8>) -> PathBuf {
    OsString::from_vec(bytes).into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn modified_ns(about: &Metadata) -> u64 {
    let seconds = u64::try_from(about.mtime()).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(about.mtime_nsec()).unwrap_or(0))
}
