// SPDX-License-Identifier: MIT
//! Stacks of threads, which have had no name since Linux 4.5, and guards.

use super::{Class, Kind};
use crate::mapping::Mapping;
use crate::space::{Origin, Space};

/// Guards are a page, or a few; what is longer keeps address space.
const LONGEST_GUARD: u64 = 1 << 20;
/// glibc's arenas begin at multiples of this, right behind the reserve of another.
const ARENA: u64 = 64 << 20;

/// Attribute stacks to threads by their stack pointers; where these are unknown, by their looks.
pub(super) fn find(space: &Space, classes: &mut [Class]) {
    let mappings = &space.mappings;
    let mut lost = 0;
    for (number, task) in space.tasks.list.iter().enumerate() {
        let found = task.stack_pointer.and_then(|pointer| containing(mappings, pointer));
        let Some(index) = found else {
            lost += usize::from(!task.ended);
            continue;
        };
        // The stack of a thread that ended may serve another one, or be no stack any more.
        let is_stack = classes[index].kind == Kind::ThreadStack;
        if task.ended && (is_stack || !looks_like_stack(mappings, index)) {
            continue;
        }
        let plain = matches!(classes[index].kind, Kind::Anonymous | Kind::Named);
        if plain && (looks_like_stack(mappings, index) || space.origin == Origin::Core) {
            classes[index].kind = Kind::ThreadStack;
        }
        if let Ok(number) = u32::try_from(number) {
            classes[index].threads.push(number);
        }
    }
    for index in 0..mappings.len() {
        let fits = classes[index].kind == Kind::Anonymous && has_guard(mappings, index);
        // The C library keeps stacks of threads that ended; since Linux 6.7 a flag tells stacks from other memory.
        let marked = mappings[index].flags.has(b"nh");
        if fits && (marked || (lost > 0 && !mappings[index].start.is_multiple_of(ARENA))) {
            classes[index].kind = Kind::ThreadStack;
            classes[index].certain = false;
        }
    }
}

/// The mapping with this address. They are in order, unless the copy is damaged; then it may not be found.
fn containing(mappings: &[Mapping], address: u64) -> Option<usize> {
    let index = mappings.partition_point(|mapping| mapping.start <= address).checked_sub(1)?;
    mappings[index].contains(address).then_some(index)
}

/// Programs also run on stacks that they cut out of something larger; that is no stack, but has one in it.
fn looks_like_stack(mappings: &[Mapping], index: usize) -> bool {
    let flags = mappings[index].flags;
    has_guard(mappings, index) || flags.has(b"gd") || flags.has(b"nh")
}

/// Writable memory right above a guard.
fn has_guard(mappings: &[Mapping], index: usize) -> bool {
    let Some(below) = index.checked_sub(1).map(|below| &mappings[below]) else { return false };
    mappings[index].perms.write
        && is_empty(below)
        && below.end == mappings[index].start
        && below.size() <= LONGEST_GUARD
}

/// Private and anonymous, without access.
fn is_empty(mapping: &Mapping) -> bool {
    mapping.perms.is_none() && !mapping.perms.shared && !mapping.has_file()
}

/// Guards are told from reserves by what lies beside them.
pub(super) fn find_guards(mappings: &[Mapping], classes: &mut [Class]) {
    for index in (0..mappings.len()).rev() {
        let mapping = &mappings[index];
        if !is_empty(mapping) || !matches!(classes[index].kind, Kind::Anonymous | Kind::Named) {
            continue;
        }
        let above = mappings.get(index + 1).filter(|above| above.start == mapping.end).map(|_| index + 1);
        let below = index.checked_sub(1).filter(|&below| mappings[below].end == mapping.start);
        let of_stack =
            above.filter(|&above| matches!(classes[above].kind, Kind::ThreadStack | Kind::MainStack));
        let beside = [above, below].into_iter().flatten().any(|at| mappings[at].perms.write);
        let small = mapping.size() <= LONGEST_GUARD;
        if let Some(stack) = of_stack.filter(|_| small) {
            classes[index].kind = Kind::Guard;
            classes[index].threads = classes[stack].threads.clone();
        } else if small && beside {
            classes[index].kind = Kind::Guard;
            classes[index].certain = false;
        } else {
            classes[index].kind = Kind::Reserved;
        }
    }
}
