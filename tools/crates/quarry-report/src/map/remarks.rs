// SPDX-License-Identifier: MIT
//! What the numbers mean, in sentences; and what is missing.

use crate::units;
use quarry_proc::classify::Kind;
use quarry_proc::counters::Field;
use quarry_proc::{Origin, Space, shown};

use super::view::{View, mapping_name};

/// Address space of one mapping from which on it is remarkable that it is not used.
const LARGE: u64 = 32 << 20;
/// How many of those are named.
const NAMED: usize = 3;

fn size(bytes: u64) -> String {
    units::bytes(bytes as f64)
}

/// What is good to know, most important first.
pub fn remarks(view: &View) -> Vec<String> {
    let space = view.space;
    let mut remarks = Vec::new();
    let counters = &view.total.counters;
    match swap(space, counters.get(Field::Swap)) {
        Some((0, _)) => {}
        Some((bytes, source)) => remarks.push(format!(
            "{} are in swap ({source}): the machine or its control group was short of memory",
            size(bytes)
        )),
        None if space.origin != Origin::Core => remarks.push("how much is in swap is not known here".into()),
        None => {}
    }
    if let Some(lazy) = counters.get(Field::LazyFree).filter(|lazy| *lazy > 0) {
        remarks.push(format!(
            "{} of RSS were given back by MADV_FREE: they go when the kernel needs them, there is nothing to fix",
            size(lazy)
        ));
    }
    remarks.extend(dirty(view));
    remarks.extend(unused(view));
    if let Some(hugetlb) = counters.hugetlb().filter(|hugetlb| *hugetlb > 0) {
        remarks.push(format!("{} of huge pages (hugetlbfs) are in no RSS, PSS or USS", size(hugetlb)));
    }
    remarks.extend(data(view));
    remarks.extend(stack(view));
    if let Some(overcommit) = view.overcommit {
        remarks.push(format!("the kernel's overcommit mode is {}", overcommit.describe()));
    }
    remarks.extend(group(space));
    remarks
}

/// Anonymous memory in swap as the kernel counts it for the process, and where it says so. What the mappings say has
/// shared memory in it.
pub fn swap(space: &Space, of_mappings: Option<u64>) -> Option<(u64, &'static str)> {
    let of_process = space.status.as_ref().and_then(|status| status.vm_swap);
    of_process
        .map(|bytes| (bytes, "VmSwap"))
        .or(of_mappings.map(|bytes| (bytes, "smaps, with shared memory")))
}

/// Address space that was reserved and hardly ever touched.
fn unused(view: &View) -> Option<String> {
    let space = view.space;
    let idle = |index: &usize| {
        let mapping = &space.mappings[*index];
        let counters = &mapping.counters;
        // What is in swap is memory, too, and so are huge pages, which are in no RSS.
        let elsewhere = counters.value(Field::Swap).saturating_add(counters.hugetlb().unwrap_or(0));
        let there = counters.get(Field::Rss)?.saturating_add(elsewhere);
        (mapping.size() >= LARGE && there < mapping.size() / 100).then(|| mapping.size())
    };
    let mut found: Vec<(u64, usize)> =
        (0..space.mappings.len()).filter_map(|index| Some((idle(&index)?, index))).collect();
    found.sort_by_key(|&(size, index)| (std::cmp::Reverse(size), index));
    let sum = found.iter().fold(0u64, |sum, (size, _)| sum.saturating_add(*size));
    let name = |&(bytes, index): &(u64, usize)| {
        let mapping = &space.mappings[index];
        format!(
            "{} of {} ({})",
            size(bytes),
            mapping_name(space, mapping, &view.classes[index]),
            mapping.mode()
        )
    };
    let names: Vec<String> = found.iter().take(NAMED).map(name).collect();
    let more = if found.len() > NAMED { ", ..." } else { "" };
    (!found.is_empty()).then(|| {
        format!(
            "{} of VIRT {} of which less than 1 % is resident: reserved address space, no memory: {}{more}",
            size(sum),
            if found.len() == 1 {
                "is 1 large mapping".into()
            } else {
                format!("are {} large mappings", found.len())
            },
            names.join(", ")
        )
    })
}

/// What becomes of dirty pages when memory is short.
fn dirty(view: &View) -> Option<String> {
    let needs_swap = view.total.needs_swap()?;
    let write_back = view.total.write_back;
    (write_back > 0).then(|| {
        format!(
            "of dirty pages {} can be written back to files, and {} can only go to swap",
            size(write_back),
            size(needs_swap)
        )
    })
}

/// The two meanings of DATA.
fn data(view: &View) -> Option<String> {
    let statm = view.space.statm?;
    let kernel = statm.data.saturating_mul(view.space.page);
    let quadrant = view
        .space
        .mappings
        .iter()
        .zip(&view.classes)
        .filter(|(_, class)| class.quadrant.number() == 1)
        .fold(0u64, |sum, (mapping, _)| sum.saturating_add(mapping.size()));
    Some(format!(
        "DATA is {} as the kernel counts it (private writable mappings and stacks); all private anonymous mappings \
         are {}; neither says what is resident",
        size(kernel),
        size(quadrant)
    ))
}

/// How much of its limit the main stack has.
fn stack(view: &View) -> Option<String> {
    let limit = view.space.limits.as_ref()?.get("Max stack size")?;
    let index = view.classes.iter().position(|class| class.kind == Kind::MainStack)?;
    let now = size(view.space.mappings[index].size());
    Some(match limit.soft {
        Some(soft) => format!("the main stack is {now} and may grow to {} (RLIMIT_STACK)", size(soft)),
        None => format!("the main stack is {now} and may grow without limit (RLIMIT_STACK)"),
    })
}

/// The limit of the control group.
fn group(space: &Space) -> Option<String> {
    let memory = space.cgroup.as_ref()?.memory.as_ref()?;
    let limit = memory.tightest.as_ref()?;
    let used = limit.used.map_or_else(String::new, |used| format!(", of which {} are used", size(used)));
    let folder = shown(&limit.folder.display().to_string());
    Some(format!("its control group may have {}{used} ({folder})", size(limit.bytes)))
}

/// What is not known, and why.
pub fn gaps(space: &Space, view: &View) -> Vec<String> {
    let mut gaps = Vec::new();
    if space.origin == Origin::Core {
        gaps.push(String::from(
            "a core file says what was mapped and what of it was saved, not what was resident, nor which mappings of \
             files were shared",
        ));
    } else if view.total.resident().is_none() {
        gaps.push(String::from(match space.origin {
            Origin::Live => {
                "this kernel has no smaps, and maps has no counters: what is resident is not known"
            }
            _ => "this is a copy of maps, which has no counters; save smaps instead",
        }));
    }
    if space.tasks.denied {
        gaps.push(String::from(
            "stack pointers of threads are not shown to us, so their stacks are told by their looks; it needs the right \
             to trace the process (kernel.yama.ptrace_scope 0, or root)",
        ));
    }
    let living = space.tasks.list.iter().filter(|task| !task.ended);
    let unknown = living.clone().filter(|task| task.stack_pointer.is_none()).count();
    if unknown > 0 && !space.tasks.denied {
        let why = match space.origin {
            Origin::Live => "as they ran whenever they were looked at",
            _ => "in this copy",
        };
        let all = units::of(living.count() as u64, "thread");
        gaps.push(format!(
            "not known are the stack pointers of {unknown} of {all}, {why}; such stacks are told by their looks"
        ));
    }
    if space.steady == Some(false) {
        gaps.push(String::from("the process, or another that shares memory with it, changed while it was read: sums may differ a little"));
    }
    gaps
}

#[cfg(test)]
mod tests {
    use quarry_proc::smaps;

    use super::super::view::{Sort, Wanted};
    use super::*;

    /// A kernel may be built without smaps. Then maps is read of a live process, too.
    #[test]
    fn mappings_without_counters_are_no_copy_if_the_process_lives() {
        let maps = b"10000-20000 rw-p 00000000 00:00 0 [heap]\n";
        let (mappings, damage) = smaps::read_all(&maps[..]).unwrap();
        let mut space = Space::of_mappings(mappings, damage);
        let wanted = Wanted { by: None, sort: Sort::Address, filter: &[], kinds: &[], quadrants: &[] };
        for (origin, words) in
            [(Origin::Text, "this is a copy of maps"), (Origin::Live, "this kernel has no smaps")]
        {
            space.origin = origin;
            let gaps = gaps(&space, &View::new(&space, &wanted, None));
            assert!(gaps[0].starts_with(words), "{gaps:?}");
        }
    }

    #[test]
    fn huge_pages_and_what_is_in_swap_are_memory() {
        let wanted = Wanted { by: None, sort: Sort::Address, filter: &[], kinds: &[], quadrants: &[] };
        let reserved = |swap: u32, huge: u32| {
            let text = format!(
                "10000000-14000000 rw-p 00000000 00:00 0 \nSize:              65536 kB\n\
                 Rss:                   0 kB\nShared_Hugetlb:        0 kB\nPrivate_Hugetlb: {huge} kB\n\
                 Swap: {swap} kB\n"
            );
            let (mappings, damage) = smaps::read_all(text.as_bytes()).unwrap();
            let space = Space::of_mappings(mappings, damage);
            remarks(&View::new(&space, &wanted, None)).iter().any(|it| it.contains("reserved address space"))
        };
        assert!(reserved(0, 0) && reserved(100, 100));
        assert!(!reserved(65_536, 0) && !reserved(0, 65_536) && !reserved(500, 500));
    }
}
