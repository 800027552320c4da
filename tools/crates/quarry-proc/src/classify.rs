// SPDX-License-Identifier: MIT
//! What each mapping is: its quadrant, its kind, and what it belongs to.
//!
//! The kernel names some mappings, files name others. The rest is found out: zeroed variables by the layout of the file
//! before them, stacks of threads by the stack pointers, guards by what they guard.

mod kind;
mod stacks;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

pub use kind::{Kind, Quadrant};

use crate::elf::{Layout, Part, Place};
use crate::mapping::Mapping;
use crate::space::{Known, Origin, Space};

/// What a mapping is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Class {
    /// Private or shared, anonymous or of a file.
    pub quadrant: Quadrant,
    /// What it is.
    pub kind: Kind,
    /// What it belongs to: a file's path, the name of a heap; empty where there is nothing to say.
    pub object: Arc<str>,
    /// Threads whose stack pointers are in it, as indices of [`Space::tasks`].
    pub threads: Vec<u32>,
    /// Sections of the file in it, with their bytes.
    pub sections: Vec<(Arc<str>, u64)>,
    /// Its pages that are not anonymous are shared memory rather than pages of a file.
    pub in_memory: bool,
    /// Known, rather than concluded from its looks.
    pub certain: bool,
}

/// The layouts of files, each read once.
#[derive(Debug, Default)]
pub struct Files {
    known: HashMap<(u32, u32, u64), Option<Arc<Layout>>>,
}

impl Files {
    /// The layout of the file behind a mapping, if it is still there. A file from another machine has another inode.
    fn layout(&mut self, space: &Space, mapping: &Mapping) -> Option<Arc<Layout>> {
        if mapping.inode == 0
            || mapping.deleted
            || !mapping.name.starts_with('/')
            || space.origin == Origin::Core
        {
            return None;
        }
        let (major, minor) = mapping.device;
        let read = || {
            let path = match &space.process {
                Some(process) => process.file_seen(&mapping.name),
                None => PathBuf::from(&*mapping.name),
            };
            Layout::read(&path, mapping.inode, space.page).map(Arc::new)
        };
        self.known.entry((major, minor, mapping.inode)).or_insert_with(read).clone()
    }
}

/// A file's identity in one address space.
type FileId<'a> = (u32, u32, u64, &'a str);

fn file_id(mapping: &Mapping) -> FileId<'_> {
    (mapping.device.0, mapping.device.1, mapping.inode, &mapping.name)
}

/// What every mapping of an address space is.
pub fn classify(space: &Space, files: &mut Files) -> Vec<Class> {
    let mappings = &space.mappings;
    // A file of which a part may be executed is a program or a library, readable or not.
    let programs: HashSet<FileId> =
        mappings.iter().filter(|mapping| mapping.has_file() && mapping.perms.exec).map(file_id).collect();
    let mut zeroed = Zeroed::default();
    let mut classes: Vec<Class> = Vec::with_capacity(mappings.len());
    for (index, mapping) in mappings.iter().enumerate() {
        let mut class = by_name(space, mapping);
        if class.kind == Kind::File && programs.contains(&file_id(mapping)) {
            of_program(space, files, index, &mut class, &mut zeroed);
        }
        classes.push(class);
    }
    zeroed.ranges.sort_by_key(|range| range.0);
    for index in 0..mappings.len() {
        if matches!(classes[index].kind, Kind::Anonymous | Kind::Heap) {
            zeroed.apply(mappings, &mut classes, index);
        }
    }
    named_by_others(space, &mut classes);
    stacks::find(space, &mut classes);
    stacks::find_guards(mappings, &mut classes);
    classes
}

/// Memory without a name that a heap says is its own: where the kernel shows no names, this is how it gets one. A mapping
/// belongs to what has more than half of it, as the kernel joins neighbours.
fn named_by_others(space: &Space, classes: &mut [Class]) {
    let mut known = space.known.clone();
    known.sort_unstable_by_key(|known| known.from);
    let mut next = 0;
    for (mapping, class) in space.mappings.iter().zip(classes) {
        while known.get(next).is_some_and(|known| known.to <= mapping.start) {
            next += 1;
        }
        if class.kind != Kind::Anonymous || mapping.perms.shared {
            continue;
        }
        let common = |known: &Known| known.to.min(mapping.end).saturating_sub(known.from.max(mapping.start));
        let here = known[next..].iter().take_while(|known| known.from < mapping.end);
        let sum = here.clone().fold(0u64, |sum, known| sum.saturating_add(common(known)));
        if sum <= mapping.size() / 2 {
            continue;
        }
        if let Some(largest) = here.max_by_key(|known| common(known)) {
            class.kind = Kind::Quarry;
            class.object = largest.name.into();
            class.certain = sum >= mapping.size();
        }
    }
}

/// What the name, the device and the access tell.
fn by_name(space: &Space, mapping: &Mapping) -> Class {
    let name = &*mapping.name;
    let on_memory_device = mapping.inode != 0 && space.memory_devices.contains(&mapping.device);
    let (kind, object) = kind_of(space, mapping, on_memory_device);
    let in_memory =
        on_memory_device || matches!(kind, Kind::SharedAnonymous | Kind::Memfd | Kind::SysV | Kind::PosixShm);
    // A private mapping of /dev/zero has a file that no page comes from.
    let file =
        mapping.has_file() && !matches!(kind, Kind::Anonymous | Kind::HugeAnonymous) || kind.is_kernels();
    let quadrant = match (mapping.perms.shared, file) {
        (false, false) => Quadrant::PrivateAnonymous,
        (false, true) => Quadrant::PrivateFile,
        (true, _) if in_memory || kind == Kind::HugeAnonymous || name.starts_with("[anon_shmem:") => {
            Quadrant::SharedAnonymous
        }
        (true, true) => Quadrant::SharedFile,
        (true, false) => Quadrant::SharedAnonymous,
    };
    Class { quadrant, kind, object, threads: Vec::new(), sections: Vec::new(), in_memory, certain: true }
}

fn kind_of(space: &Space, mapping: &Mapping, on_memory_device: bool) -> (Kind, Arc<str>) {
    let name = &*mapping.name;
    let none: Arc<str> = "".into();
    if let Some(given) = given_name(name) {
        let kind = if given.starts_with("quarry ") { Kind::Quarry } else { Kind::Named };
        return (kind, given.into());
    }
    let kind = match name {
        "" if space.vdso == Some(mapping.start) => Kind::Vdso,
        "" if space.main_stack.is_some_and(|address| mapping.contains(address)) => Kind::MainStack,
        "" => Kind::Anonymous,
        "[heap]" => Kind::Heap,
        "[stack]" => Kind::MainStack,
        "[vdso]" => Kind::Vdso,
        "[vsyscall]" => Kind::Vsyscall,
        _ if name.starts_with("[vvar") => Kind::Vvar,
        // Linux before 4.5.
        _ if name.starts_with("[stack:") => Kind::ThreadStack,
        _ if name.starts_with('[') => Kind::Kernels,
        "/dev/zero" if mapping.perms.shared => Kind::SharedAnonymous,
        "/dev/zero" => Kind::Anonymous,
        "/anon_hugepage" => Kind::HugeAnonymous,
        _ => {
            return (kind_of_file(mapping, on_memory_device), mapping.name.clone());
        }
    };
    (kind, none)
}

fn kind_of_file(mapping: &Mapping, on_memory_device: bool) -> Kind {
    let name = &*mapping.name;
    match () {
        () if name.starts_with("/SYSV") && name.len() >= 13 => Kind::SysV,
        () if name.starts_with("/memfd:") => Kind::Memfd,
        () if name.starts_with("/dev/shm/") => Kind::PosixShm,
        () if mapping.flags.has(b"ht") => Kind::HugeFile,
        () if on_memory_device => Kind::MemoryFile,
        () if name.starts_with("/dev/") || !name.starts_with('/') || mapping.flags.has(b"io") => Kind::Device,
        () => Kind::File,
    }
}

/// The name that a program gave to anonymous memory by prctl.
fn given_name(name: &str) -> Option<&str> {
    let given = name.strip_prefix("[anon:").or_else(|| name.strip_prefix("[anon_shmem:"))?;
    given.strip_suffix(']')
}

/// Memory that begins as zeros, behind the parts of files: (from, to, index of a mapping of the file, known).
#[derive(Default)]
struct Zeroed {
    ranges: Vec<(u64, u64, usize, bool)>,
    /// By file and how far it was moved, so that each is noted once.
    seen: HashSet<(usize, u64)>,
}

/// Which part of a program or library a mapping is.
fn of_program(space: &Space, files: &mut Files, index: usize, class: &mut Class, zeroed: &mut Zeroed) {
    let mapping = &space.mappings[index];
    let layout = files.layout(space, mapping);
    if let Some(layout) = &layout
        && let Some(Place { part, moved }) = layout.place(mapping)
    {
        class.kind = if mapping.perms.is_none() { Kind::Reserved } else { kind_of_part(part) };
        if !mapping.perms.is_none() {
            class.sections = layout.sections(moved, mapping.start, mapping.end).collect();
        }
        if zeroed.seen.insert((Arc::as_ptr(layout) as usize, moved)) {
            zeroed.ranges.extend(layout.zeroed(moved).map(|(from, to)| (from, to, index, true)));
        }
        return;
    }
    class.certain = false;
    let next = space.mappings.get(index + 1).filter(|next| next.start == mapping.end);
    // Read-only, right before the variables of the same file, and later in it than code: filled in, then protected.
    let before_data = || {
        next.is_some_and(|next| {
            next.perms.write && next.name == mapping.name && next.offset == mapping.offset + mapping.size()
        })
    };
    class.kind = match () {
        () if mapping.perms.is_none() => Kind::Reserved,
        () if mapping.perms.exec => Kind::Text,
        () if mapping.perms.write => Kind::Data,
        () if mapping.offset > 0 && before_data() => Kind::Relro,
        () => Kind::Rodata,
    };
    if class.kind == Kind::Data
        && let Some(next) = next
    {
        zeroed.ranges.push((next.start, next.end, index, false));
    }
}

fn kind_of_part(part: Part) -> Kind {
    match part {
        Part::Text => Kind::Text,
        Part::Rodata => Kind::Rodata,
        Part::Relro => Kind::Relro,
        Part::Data => Kind::Data,
    }
}

impl Zeroed {
    /// An anonymous mapping that begins in such a range is .bss, or has some in it if the kernel joined it with others.
    fn apply(&self, mappings: &[Mapping], classes: &mut [Class], index: usize) {
        let mapping = &mappings[index];
        let behind = self.ranges.partition_point(|range| range.0 <= mapping.start);
        let Some(&(_, to, owner, known)) = behind.checked_sub(1).and_then(|at| self.ranges.get(at)) else {
            return;
        };
        if to <= mapping.start || mapping.perms.shared || mapping.perms.is_none() {
            return;
        }
        let part = to.min(mapping.end) - mapping.start;
        let object = classes[owner].object.clone();
        let class = &mut classes[index];
        class.sections.push((".bss".into(), part));
        // What is called by more than half of it.
        if class.kind == Kind::Anonymous && part > mapping.size() / 2 {
            class.kind = Kind::Bss;
            class.object = object;
            class.certain = known;
        }
    }
}

#[cfg(test)]
#[path = "classify_tests.rs"]
mod tests;
