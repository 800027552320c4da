// SPDX-License-Identifier: MIT
//! One process, opened: what the columns of top are of it today, and its mappings by quadrant and kind.

use quarry_proc::Space;
use quarry_proc::counters::Field;
use quarry_proc::sum::Sum;

use crate::units;
use crate::view::{known, size};

/// A column of top, its value, and what that is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// As top calls it.
    pub name: &'static str,
    /// Its value.
    pub bytes: Option<u64>,
    /// What that is made of.
    pub what: String,
}

/// Mappings of one quadrant, of one kind, or of one object.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// 1 to 4.
    pub quadrant: usize,
    /// Their kind; `None`: several.
    pub kind: Option<&'static str>,
    /// What they are, in words.
    pub what: String,
    /// What they have together.
    pub sum: Sum,
    /// Change of RSS per second.
    pub growth: Option<f64>,
}

/// One process as it was at one moment.
#[derive(Debug, Clone)]
pub struct Opened {
    /// Its number.
    pub pid: u32,
    /// Its short name.
    pub name: String,
    /// Its command line.
    pub command: String,
    /// How many it has.
    pub threads: usize,
    /// The columns of top, and what they are made of.
    pub facts: Vec<Fact>,
    /// Its mappings, the largest part first.
    pub parts: Vec<Part>,
    /// All of them.
    pub total: Sum,
    /// What cannot be trusted, in words.
    pub remark: Option<String>,
}

/// What RES is made of.
pub fn res_of(anon: Option<u64>, file: Option<u64>, shm: Option<u64>) -> String {
    format!("anonymous {} + files {} + shared memory {}", known(anon), known(file), known(shm))
}

/// What SHR is made of.
pub fn shr_of(file: Option<u64>, shm: Option<u64>) -> String {
    format!("files {} + shared memory {}; all of it resident", known(file), known(shm))
}

/// The columns of top, and what they are made of.
pub fn facts(space: &Space, total: &Sum, quadrant_1: u64) -> Vec<Fact> {
    let pages = |pages: u64| pages.saturating_mul(space.page);
    let (statm, status) = (space.statm, space.status.clone().unwrap_or_default());
    let (anon, file, shm) = (status.rss_anon, status.rss_file, status.rss_shmem);
    let swap_all = total.counters.get(Field::Swap);
    let pss = space.rollup.as_ref().and_then(|all| all.get(Field::Pss));
    let fact = |name, bytes, what| Fact { name, bytes, what };
    vec![
        fact(
            "VIRT",
            statm.map(|m| pages(m.size)),
            format!("address space of {}; costs nothing until touched", units::of(total.count, "mapping")),
        ),
        fact("RES", statm.map(|m| pages(m.resident)), res_of(anon, file, shm)),
        fact("SHR", statm.map(|m| pages(m.shared)), shr_of(file, shm)),
        fact(
            "DATA",
            statm.map(|m| pages(m.data)),
            format!(
                "mapped: private writable {} + stack {}; quadrant 1 has {}",
                known(status.vm_data),
                known(status.vm_stk),
                size(quadrant_1)
            ),
        ),
        fact(
            "CODE",
            statm.map(|m| pages(m.text)),
            format!("the program's own; its libraries have {}", known(status.vm_lib)),
        ),
        fact(
            "SWAP",
            status.vm_swap,
            format!("anonymous memory in swap; with shared memory {}", known(swap_all)),
        ),
        fact("PSS", pss, String::from("each page divided by those who map it; may be added up")),
        fact("USS", total.counters.uss(), String::from("nobody else's: free if this process ended")),
    ]
}
