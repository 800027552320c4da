// SPDX-License-Identifier: MIT
//! The kinds of events.

use crate::event::What;

/// The kinds of events, as they are counted.
pub const KINDS: [&str; 33] = [
    "malloc",
    "calloc",
    "memalign",
    "new",
    "aligned new",
    "realloc(NULL)",
    "pool alloc",
    "other alloc",
    "free",
    "delete",
    "sized free",
    "free(NULL)",
    "other end",
    "realloc",
    "failed",
    "thread begin",
    "thread end",
    "thread name",
    "fork",
    "exec",
    "exit",
    "memory",
    "clock",
    "module loaded",
    "module unloaded",
    "event of a Quarry pool",
    "lost",
    "mark",
    "thread gone",
    "look at calloc",
    "usage",
    "resident",
    "child ended",
];

pub(super) fn kind(what: &What) -> usize {
    match what {
        What::Alloc { api, .. } => *api as usize,
        What::Free { api, .. } => 8 + *api as usize,
        What::Realloc { .. } => 13,
        What::Failed { .. } => 14,
        What::ThreadBegin { .. } => 15,
        What::ThreadEnd => 16,
        What::ThreadName(_) => 17,
        What::Fork { .. } => 18,
        What::Exec(_) => 19,
        What::Exit { .. } => 20,
        What::Memory { .. } => 21,
        What::Clock { .. } => 22,
        What::ModuleLoaded { .. } => 23,
        What::ModuleUnloaded { .. } => 24,
        What::Pool { .. } => 25,
        What::Lost { .. } => 26,
        What::Mark(_) => 27,
        What::ThreadGone => 28,
        What::Zeroed { .. } => 29,
        What::Usage(_) => 30,
        What::Resident { .. } => 31,
        What::ChildEnded { .. } => 32,
    }
}
