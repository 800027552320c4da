// SPDX-License-Identifier: MIT
//! What is to be shown: the rows that were asked for, the same for text, page and JSON.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use quarry_proc::check::{self, Line};
use quarry_proc::classify::{self, Class, Files, Kind, Quadrant};
use quarry_proc::counters::Field;
use quarry_proc::mapping::Mapping;
use quarry_proc::shown;
use quarry_proc::sum::{self, By, Group, Sum};
use quarry_proc::{Origin, Overcommit, Space};

/// A number of a row.
#[derive(Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "its help explains each")]
pub enum Column {
    Size,
    Rss,
    Pss,
    Uss,
    Dirty,
    Swap,
    Referenced,
    Locked,
    Huge,
    Hugetlb,
    Ksm,
    LazyFree,
    NoReserve,
    Dumped,
}

impl Column {
    /// In the order they are shown.
    pub const ALL: [Column; 14] = [
        Column::Size,
        Column::Rss,
        Column::Pss,
        Column::Uss,
        Column::Dirty,
        Column::Swap,
        Column::Referenced,
        Column::Locked,
        Column::Huge,
        Column::Hugetlb,
        Column::Ksm,
        Column::LazyFree,
        Column::NoReserve,
        Column::Dumped,
    ];

    /// Its head.
    pub fn name(self) -> &'static str {
        match self {
            Self::Size => "size",
            Self::Rss => "RSS",
            Self::Pss => "PSS",
            Self::Uss => "USS",
            Self::Dirty => "dirty",
            Self::Swap => "swap",
            Self::Referenced => "referenced",
            Self::Locked => "locked",
            Self::Huge => "huge",
            Self::Hugetlb => "hugetlb",
            Self::Ksm => "KSM",
            Self::LazyFree => "lazy free",
            Self::NoReserve => "no reserve",
            Self::Dumped => "dumped",
        }
    }

    /// What of the kernel it is, and what it means: docs/map.md is made of this.
    pub fn help(self) -> (&'static str, &'static str) {
        match self {
            Self::Size => ("Size", "address space. Its sum is VIRT. It costs nothing until it is touched"),
            Self::Rss => ("Rss", "resident pages. A page that several processes have counts in each of them"),
            Self::Pss => (
                "Pss",
                "the same, each page divided by the number of mappings it is in. The sum over all processes is what they use together. \
                 The kernel rounds it down in each mapping. The first lines have the sum of smaps_rollup, which the kernel rounds once",
            ),
            Self::Uss => (
                "Private_Clean + Private_Dirty",
                "pages that no other process has. They would be free if this process ended",
            ),
            Self::Dirty => (
                "Shared_Dirty + Private_Dirty",
                "written pages. In quadrant 4 they are still to be written back to the file. Everywhere else they can only go to swap. \
                 A remark below the tables has both sums, and JSON has them as `dirty_write_back` and `dirty_needs_swap`. If another \
                 process wrote a page of a file, its page in a private mapping is to be written back as well",
            ),
            Self::Swap => ("Swap", "bytes in swap, also of shared memory, which `VmSwap` leaves out"),
            Self::Referenced => {
                ("Referenced", "touched since the marks were last cleared (`/proc/PID/clear_refs`), if ever")
            }
            Self::Locked => ("Locked", "pages that mlock keeps resident, counted as in PSS"),
            Self::Huge => {
                ("AnonHugePages + ShmemPmdMapped + FilePmdMapped", "resident in transparent huge pages")
            }
            Self::Hugetlb => ("Shared_Hugetlb + Private_Hugetlb", "pages of hugetlbfs, which are in no RSS"),
            Self::Ksm => ("KSM", "merged with identical pages elsewhere"),
            Self::LazyFree => {
                ("LazyFree", "given back by `MADV_FREE`. It stays in RSS until the kernel wants it")
            }
            Self::NoReserve => {
                ("VmFlags `nr`", "address space for which no swap space is reserved (`MAP_NORESERVE`)")
            }
            Self::Dumped => ("size in a core file", "bytes of the mapping that the core file has"),
        }
    }

    /// Its key in JSON.
    pub fn key(self) -> &'static str {
        match self {
            Self::Size => "size",
            Self::Rss => "rss",
            Self::Pss => "pss",
            Self::Uss => "uss",
            Self::Dirty => "dirty",
            Self::Swap => "swap",
            Self::Referenced => "referenced",
            Self::Locked => "locked",
            Self::Huge => "huge",
            Self::Hugetlb => "hugetlb",
            Self::Ksm => "ksm",
            Self::LazyFree => "lazy_free",
            Self::NoReserve => "no_reserve",
            Self::Dumped => "dumped",
        }
    }

    /// Its value, if it is known.
    pub fn of(self, sum: &Sum) -> Option<u64> {
        let counters = &sum.counters;
        match self {
            Self::Size => Some(sum.size),
            Self::Rss => counters.get(Field::Rss),
            Self::Pss => counters.get(Field::Pss),
            Self::Uss => counters.uss(),
            Self::Dirty => counters.dirty(),
            Self::Swap => counters.get(Field::Swap),
            Self::Referenced => counters.get(Field::Referenced),
            Self::Locked => counters.get(Field::Locked),
            Self::Huge => counters.huge(),
            Self::Hugetlb => counters.hugetlb(),
            Self::Ksm => counters.get(Field::Ksm),
            Self::LazyFree => counters.get(Field::LazyFree),
            // Without VmFlags nothing is known of it.
            Self::NoReserve => counters.get(Field::Rss).map(|_| sum.no_reserve),
            Self::Dumped => sum.dumped,
        }
    }
}

/// The order of rows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// The largest first.
    By(Column),
    /// As they lie in memory.
    Address,
    /// By what they are.
    Name,
}

/// Which mappings a view has, and in which rows.
pub struct Wanted<'a> {
    /// What mappings are put together by; `None`: not at all.
    pub by: Option<By>,
    /// The order of rows.
    pub sort: Sort,
    /// Only mappings that have one of these in their name, object, kind or thread.
    pub filter: &'a [String],
    /// Only mappings of these kinds.
    pub kinds: &'a [Kind],
    /// Only mappings of these quadrants, by number.
    pub quadrants: &'a [u8],
}

/// A row of the main table.
pub(super) struct Row {
    pub(super) quadrant: Option<Quadrant>,
    pub(super) kind: Option<Kind>,
    /// What it is, for people.
    pub(super) what: String,
    pub(super) modes: String,
    /// Where it begins; for a mapping of its own.
    pub(super) address: Option<u64>,
    pub(super) sum: Sum,
    /// The first of its mappings.
    pub(super) first: usize,
}

/// What is to be shown.
pub struct View<'a> {
    pub(super) space: &'a Space,
    pub(super) classes: Vec<Class>,
    /// All mappings.
    pub(super) total: Sum,
    /// By quadrant, all four, of the mappings that were asked for.
    pub(super) quadrants: Vec<Sum>,
    /// Those that were asked for.
    pub(super) chosen: Sum,
    pub(super) wanted: Vec<bool>,
    /// Every row, in order.
    pub(super) rows: Vec<Row>,
    pub(super) checks: Vec<Line>,
    /// How much the kernel promises, of a live process.
    pub(super) overcommit: Option<Overcommit>,
}

impl<'a> View<'a> {
    /// Of a process. `overcommit`: how much the kernel promises, of a live one.
    pub fn new(space: &'a Space, options: &Wanted, overcommit: Option<Overcommit>) -> Self {
        let classes = classify::classify(space, &mut Files::default());
        let total = sum::total(&space.mappings, &classes);
        let checks = check::check(space, &classes, &total);
        let wanted: Vec<bool> = space
            .mappings
            .iter()
            .zip(&classes)
            .map(|(mapping, class)| wants(options, space, mapping, class))
            .collect();
        let mut quadrants = vec![total.nothing(); Quadrant::ALL.len()];
        let mut chosen = total.nothing();
        for (index, (mapping, class)) in space.mappings.iter().zip(&classes).enumerate() {
            if wanted[index] {
                quadrants[class.quadrant as usize].add(mapping, class);
                chosen.add(mapping, class);
            }
        }
        let mut rows = match options.by {
            Some(by) => grouped(space, &classes, by, &wanted),
            None => single(space, &classes, &wanted),
        };
        order(&mut rows, options.sort, space);
        Self { space, classes, total, quadrants, chosen, wanted, rows, checks, overcommit }
    }

    /// Is nothing what was asked for?
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Is a part left out?
    pub fn is_filtered(&self) -> bool {
        self.wanted.iter().any(|wanted| !wanted)
    }

    /// Comparisons with the kernel that failed.
    pub fn differences(&self) -> impl Iterator<Item = &Line> {
        self.checks.iter().filter(|line| !line.agrees())
    }

    /// "1234 prog".
    pub fn title(&self) -> String {
        let pid = self.space.pid.map(|pid| pid.to_string());
        let name = self.space.name.as_deref().map(shown);
        let words: Vec<String> = pid.into_iter().chain(name).collect();
        if words.is_empty() { String::from("a saved process") } else { words.join(" ") }
    }

    /// Where it is from.
    pub fn origin(&self) -> &'static str {
        match self.space.origin {
            Origin::Live => "as it was now",
            Origin::Folder => "from a saved folder of /proc",
            Origin::Text => "from a saved smaps or maps",
            Origin::Core => "from a core file",
        }
    }

    /// What a thread is called.
    pub fn thread(&self, number: u32) -> String {
        let Some(task) = self.space.tasks.list.get(number as usize) else { return String::new() };
        let name = if task.name.is_empty() { String::new() } else { format!(" {}", shown(&task.name)) };
        let ended = if task.ended { " (ended)" } else { "" };
        format!("{}{name}{ended}", task.tid)
    }
}

/// Was this mapping asked for?
fn wants(options: &Wanted, space: &Space, mapping: &Mapping, class: &Class) -> bool {
    let quadrant = class.quadrant.number() as u8;
    let thread = |text: &str| {
        let tasks = &space.tasks.list;
        class
            .threads
            .iter()
            .filter_map(|&number| tasks.get(number as usize))
            .any(|task| task.name.contains(text))
    };
    let named = |text: &String| {
        mapping.name.contains(text.as_str())
            || class.object.contains(text.as_str())
            || class.kind.name().contains(text.as_str())
            || thread(text)
    };
    (options.quadrants.is_empty() || options.quadrants.contains(&quadrant))
        && (options.kinds.is_empty() || options.kinds.contains(&class.kind))
        && (options.filter.is_empty() || options.filter.iter().any(named))
}

/// A row for each group.
fn grouped(space: &Space, classes: &[Class], by: By, wanted: &[bool]) -> Vec<Row> {
    let groups = sum::groups(&space.mappings, classes, by, |index| wanted[index]);
    let row = |group: Group| {
        let modes: BTreeSet<String> =
            group.members.iter().map(|&index| space.mappings[index].mode()).collect();
        Row {
            quadrant: group.quadrant,
            kind: group.kind,
            what: what(&group, &space.mappings),
            modes: modes.into_iter().collect::<Vec<_>>().join(" "),
            address: None,
            sum: group.sum,
            first: group.members[0],
        }
    };
    groups.into_iter().map(row).collect()
}

/// What a group of these mappings is, in words.
pub fn what(group: &Group, mappings: &[Mapping]) -> String {
    let deleted = group.members.iter().any(|&index| mappings[index].deleted);
    let object = group.object.as_deref().unwrap_or_default();
    let is_shared_memory = group.kind == Some(Kind::SharedAnonymous);
    if is_shared_memory {
        return String::from("mmap, which the kernel shows as /dev/zero (deleted)");
    }
    let gone = if deleted && object.starts_with('/') { " (deleted)" } else { "" };
    match (object, group.quadrant, group.kind) {
        ("", Some(quadrant), None) => quadrant.name().to_owned(),
        ("", _, Some(kind)) => describe(kind).to_owned(),
        _ => format!("{}{gone}", shown(object)),
    }
}

/// What kinds without a name of their own are.
pub fn describe(kind: Kind) -> &'static str {
    match kind {
        Kind::Heap => "[heap], which brk grows",
        Kind::MainStack => "[stack] of the first thread",
        Kind::ThreadStack => "stacks of threads",
        Kind::Guard => "no access, beside stacks or buffers",
        Kind::Reserved => "no access, kept for later",
        Kind::Anonymous => "no name",
        Kind::HugeAnonymous => "huge pages",
        Kind::Vdso | Kind::Vvar => "code and data of the kernel",
        Kind::Vsyscall => "the same in every process, and not in VIRT",
        other => other.name(),
    }
}

/// A row for each mapping.
fn single(space: &Space, classes: &[Class], wanted: &[bool]) -> Vec<Row> {
    let row = |index: usize| {
        let (mapping, class) = (&space.mappings[index], &classes[index]);
        let mut sum = Sum::default();
        sum.add(mapping, class);
        Row {
            quadrant: Some(class.quadrant),
            kind: Some(class.kind),
            what: mapping_name(space, mapping, class),
            modes: mapping.mode(),
            address: Some(mapping.start),
            sum,
            first: index,
        }
    };
    (0..space.mappings.len()).filter(|&index| wanted[index]).map(row).collect()
}

/// What a mapping is, in words: its object, then sections or threads.
pub fn mapping_name(space: &Space, mapping: &Mapping, class: &Class) -> String {
    let mut text = match class.kind {
        Kind::SharedAnonymous => String::from("/dev/zero (deleted)"),
        Kind::ThreadStack if class.object.is_empty() && class.threads.is_empty() => {
            String::from("stack of no thread now, by its looks")
        }
        Kind::ThreadStack if class.object.is_empty() => String::from("stack"),
        Kind::Guard if !class.threads.is_empty() => String::from("guard below the stack"),
        kind if class.object.is_empty() && mapping.name.is_empty() => describe(kind).to_owned(),
        _ if class.object.is_empty() => shown(&mapping.name),
        _ => shown(&class.object),
    };
    // Where somebody knows what it is, the kernel's word for that says nothing.
    if mapping.deleted
        && class.kind != Kind::SharedAnonymous
        && (class.object.is_empty() || class.object.starts_with('/'))
    {
        text += " (deleted)";
    }
    if !class.sections.is_empty() {
        let names: Vec<String> = class.sections.iter().map(|(name, _)| shown(name)).collect();
        text += &format!(": {}", names.join(" "));
    }
    let name = |&number: &u32| {
        let task = space.tasks.list.get(number as usize)?;
        let ended = if task.ended { ", ended" } else { "" };
        Some(format!("{} {}{ended}", task.tid, shown(&task.name)).trim_end().to_owned())
    };
    let threads: Vec<String> = class.threads.iter().filter_map(name).take(4).collect();
    if !threads.is_empty() {
        let more = if class.threads.len() > threads.len() { ", ..." } else { "" };
        text += &format!(" of thread {}{more}", threads.join(", "));
    }
    text
}

fn order(rows: &mut [Row], sort: Sort, space: &Space) {
    let column = match sort {
        Sort::By(column) => column,
        Sort::Address => return rows.sort_by_key(|row| space.mappings[row.first].start),
        Sort::Name => return rows.sort_by(|one, other| one.what.cmp(&other.what)),
    };
    // Where it is not known, and among equals, by size.
    rows.sort_by_key(|row| Reverse((column.of(&row.sum), row.sum.size)));
}
