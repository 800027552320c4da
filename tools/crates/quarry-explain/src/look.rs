// SPDX-License-Identifier: MIT
//! One look at a process: its chain, from what the kernel counts down.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use quarry_measure::units;
use quarry_proc::classify::{self, Class, Files, Kind, Quadrant};
use quarry_proc::counters::Field;
use quarry_proc::sum::{self, Sum};
use quarry_proc::{Held, ProcError, Process, Space};
use quarry_stats::{Found, NoPage, find};

use crate::chain::{Cause, Part};
use crate::heaps::{self, Heap};
use crate::peek;

/// Files that are named, of each kind.
const NAMED: usize = 5;
/// The key of the part that has the rest of them.
pub const OTHERS: &str = "others";

/// What one look found.
pub struct Look {
    /// When.
    pub at: Instant,
    /// The process, as it was read.
    pub space: Space,
    /// The chain.
    pub chain: Part,
    /// The heaps in it, the largest first.
    pub heaps: Vec<Heap>,
    /// What could not be seen, and which right is missing.
    pub gaps: Vec<String>,
    /// How long it was stopped for this.
    pub stopped: Option<Duration>,
}

/// A mapping, what it is, and how much of its anonymous memory has been explained.
pub struct Area<'a> {
    /// The mapping.
    pub mapping: &'a quarry_proc::mapping::Mapping,
    /// What it is.
    pub class: &'a Class,
    /// Resident anonymous bytes of which nobody has said what they are for.
    pub left: u64,
    /// Bytes of these that were given back by MADV_FREE.
    pub lazy: u64,
}

impl Area<'_> {
    /// Of what is left, the bytes that were not given back.
    fn kept(&self) -> u64 {
        self.left.saturating_sub(self.lazy)
    }
}

/// Part of a heap that may stay unread without a word.
const UNREAD: f64 = 0.02;

/// Look at a process; `stop`: while it stands still.
pub fn look(process: &Process, stop: bool) -> Result<Look, ProcError> {
    let at = Instant::now();
    let held = process.pid().filter(|_| stop).map(Held::new).transpose()?;
    let space = Space::of_process(process)?;
    let classes = classify::classify(&space, &mut Files::default());
    let total = sum::total(&space.mappings, &classes);
    let mut areas: Vec<Area> = space
        .mappings
        .iter()
        .zip(&classes)
        .map(|(mapping, class)| {
            let value = |field| mapping.counters.value(field);
            let left = value(Field::Anonymous).min(value(Field::Rss));
            Area { mapping, class, left, lazy: value(Field::LazyFree).min(left) }
        })
        .collect();
    let resident = total.resident().ok_or_else(|| ProcError::Missing(process.folder().join("smaps")))?;
    let mut gaps = Vec::new();
    let pages = pages(&space, &mut gaps);
    let target = peek::Process::open(process.folder(), space.page);
    // What runs on Quarry says itself what its heap has.
    gaps.extend(target.memory_refusal().filter(|_| pages.is_none()));
    let heaps = heaps::find(&mut areas, pages.as_ref(), &target, held.is_some());
    let stopped = held.as_ref().map(Held::time);
    drop(held);
    gaps.extend(target.pagemap_refusal());
    gaps.extend(heaps.iter().filter(|_| stopped.is_none()).filter_map(unread));
    let chain = chain(&areas, &heaps, &total, resident);
    if space.steady == Some(false) {
        gaps.push(String::from("it changed while it was read: sums may differ a little from the kernel's"));
    }
    Ok(Look { at, chain, heaps, gaps, stopped, space })
}

/// That a heap changed too fast, or is in swap.
fn unread(heap: &Heap) -> Option<String> {
    (heap.unread as f64 > UNREAD * heap.part.bytes as f64).then(|| {
        format!(
            "{} of {}'s heap could not be read: it changed meanwhile, or is in swap in part; look again, or with --stop, \
             which holds the process for the look",
            units::bytes(heap.unread as f64),
            heap.allocator.name()
        )
    })
}

/// What the process says of itself, if it runs on Quarry.
fn pages(space: &Space, gaps: &mut Vec<String>) -> Option<Found> {
    match find::of_process(i32::try_from(space.pid?).ok()?) {
        Ok(found) => Some(found),
        Err(NoPage::NotOnQuarry(_) | NoPage::NoProcess(_) | NoPage::NoMemory(_) | NoPage::Hidden { .. }) => {
            None
        }
        Err(error) => {
            gaps.push(error.to_string());
            None
        }
    }
}

/// Everything, by what its pages are.
fn chain(areas: &[Area], heaps: &[Heap], total: &Sum, resident: u64) -> Part {
    let pages = |quadrant: Quadrant| total.pages[quadrant as usize];
    let quadrant = |quadrant: Quadrant, key: &str, name: &str, cause: Cause| {
        Part::leaf(key, name, pages(quadrant), cause, "smaps")
    };
    let private =
        quadrant(Quadrant::PrivateAnonymous, "private_anonymous", "private, of no file", Cause::Unknown);
    let shared = quadrant(Quadrant::SharedAnonymous, "shared_anonymous", "shared, of no file", Cause::Shared);
    let files = quadrant(Quadrant::PrivateFile, "private_file", "private, of files", Cause::Files);
    let written = quadrant(Quadrant::SharedFile, "shared_file", "shared, of files", Cause::Files);
    let parts = vec![
        private.with(anonymous(areas, heaps), "other private memory: whose is not known"),
        shared.with(of_files(areas, Quadrant::SharedAnonymous), "other shared memory"),
        files.with(of_files(areas, Quadrant::PrivateFile), "other files"),
        written.with(of_files(areas, Quadrant::SharedFile), "other files"),
    ];
    Part::leaf("resident", "in memory", resident, Cause::Unknown, "smaps, Rss").with(parts, "unknown")
}

/// Private anonymous memory.
fn anonymous(areas: &[Area], heaps: &[Heap]) -> Vec<Part> {
    let mut parts: Vec<Part> = heaps.iter().map(|heap| heap.part.clone()).collect();
    let of = |wanted: fn(Kind) -> bool| {
        areas.iter().filter(|area| wanted(area.class.kind)).map(Area::kept).sum::<u64>()
    };
    let is_stack = |kind| matches!(kind, Kind::MainStack | Kind::ThreadStack);
    let stacks = areas.iter().filter(|area| is_stack(area.class.kind)).count();
    let name = if stacks == 1 { String::from("stack") } else { format!("{stacks} stacks") };
    parts.push(Part::leaf("stacks", name, of(is_stack), Cause::Stacks, "smaps"));
    let variables = "variables of programs and libraries";
    parts.push(Part::leaf("variables", variables, of(Kind::is_program), Cause::Variables, "smaps"));
    let written = "written pages of private mappings of files";
    let is_file = |kind| matches!(kind, Kind::File | Kind::MemoryFile | Kind::Memfd | Kind::PosixShm);
    // No file has these any more, so that they go to swap alone.
    parts.push(Part::leaf("written", written, of(is_file), Cause::Unknown, "smaps"));
    let mut named: BTreeMap<&str, u64> = BTreeMap::new();
    for area in areas.iter().filter(|area| matches!(area.class.kind, Kind::Named | Kind::Quarry)) {
        *named.entry(&area.class.object).or_default() += area.kept();
    }
    parts.extend(largest(
        named,
        |name| format!("named '{}' by the program", quarry_proc::shown(name)),
        Cause::Unknown,
    ));
    let lazy = areas.iter().map(|area| area.lazy.min(area.left)).sum();
    let name = "lazily freed, of no heap that is known";
    parts.push(Part::leaf("lazily_freed", name, lazy, Cause::Lazy, "smaps, LazyFree"));
    parts
}

/// The largest of many, the others together.
fn largest(many: BTreeMap<&str, u64>, name: impl Fn(&str) -> String, cause: Cause) -> Vec<Part> {
    let mut many: Vec<(&str, u64)> = many.into_iter().filter(|one| one.1 > 0).collect();
    many.sort_by_key(|one| std::cmp::Reverse(one.1));
    let rest: u64 = many.iter().skip(NAMED).map(|one| one.1).sum();
    let count = many.len().saturating_sub(NAMED);
    let named = many.iter().take(NAMED);
    let mut parts: Vec<Part> =
        named.map(|(key, bytes)| Part::leaf(key, name(key), *bytes, cause, "smaps")).collect();
    parts.push(Part::leaf(OTHERS, format!("{count} others"), rest, cause, "smaps"));
    parts
}

/// Pages that are not anonymous, of mappings of one quadrant.
fn of_files(areas: &[Area], quadrant: Quadrant) -> Vec<Part> {
    let mut programs = 0u64;
    let mut files: BTreeMap<&str, u64> = BTreeMap::new();
    for area in areas.iter().filter(|area| area.class.quadrant == quadrant) {
        let counters = &area.mapping.counters;
        let resident = counters.value(Field::Rss).saturating_sub(counters.value(Field::Anonymous));
        let kind = area.class.kind;
        if kind.is_program() || kind.is_kernels() {
            programs += resident;
            continue;
        }
        let name = if area.class.object.is_empty() { kind.name() } else { &*area.class.object };
        *files.entry(name).or_default() += resident;
    }
    let cause = if quadrant == Quadrant::SharedAnonymous { Cause::Shared } else { Cause::Files };
    let mut parts = largest(files, name_of, cause);
    let name = "programs and libraries, as their files have them";
    parts.push(Part::leaf("programs", name, programs, Cause::Programs, "smaps"));
    parts
}

fn name_of(name: &str) -> String {
    match name {
        "shared" => String::from("mmap(SHARED | ANONYMOUS), in maps /dev/zero (deleted)"),
        name => quarry_proc::shown(name),
    }
}
