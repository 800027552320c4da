// SPDX-License-Identifier: MIT
//! The pages of a process, or why there are none.

use std::fs;
use std::io;

use quarry_proc::mallocs;

use crate::maker::{self, Maker, proc, shared};
use crate::memory::{self, Live, Target};
use crate::page::{MAGIC, Page, PageError};
use crate::{refusal, sys};

/// Why a process has no page that can be read. Each says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoPage {
    /// There is no such process.
    #[error("there is no process {0}")]
    NoProcess(i32),
    /// It has ended, and its parent has not asked for its end yet; or it is none of a program.
    #[error("process {0} has no memory of its own: it has ended (a zombie), or it is a kernel thread")]
    NoMemory(i32),
    /// It runs on something else.
    #[error(
        "process {0} does not run on Quarry: no Quarry library is loaded in it; start it with `quarry run -- CMD`, or link the library"
    )]
    NotOnQuarry(i32),
    /// It does, but that was switched off.
    #[error(
        "process {0} runs on Quarry with stats_page:off in QUARRY_CONF; start it without, and its statistics can be read"
    )]
    Off(i32),
    /// It does, and has no page.
    #[error(
        "process {0} runs on Quarry, but has no statistics page: there is none before 256 KiB have gone through the slow paths of its \
         heap or its pools (after a fork: since then, unless they have 16 MiB; after a raw clone: ever), or its library is older than that"
    )]
    None(i32),
    /// Another malloc is loaded, too.
    #[error(
        "process {0} has Quarry loaded and no statistics page; {1} is loaded, too, and may serve in its place: `quarry doctor -p {0}` says \
         which one does"
    )]
    Other(i32, &'static str),
    /// The kernel does not let us look.
    #[error("the memory of process {pid}, which runs on Quarry, may not be read: {advice}")]
    Refused {
        /// The process.
        pid: i32,
        /// What to do.
        advice: String,
    },
    /// Not even at what is loaded in it.
    #[error("process {pid} may not be looked at: {advice}")]
    Hidden {
        /// The process.
        pid: i32,
        /// What to do.
        advice: String,
    },
    /// There is one, of another kind.
    #[error("process {pid} has a statistics page, but {error}")]
    Page {
        /// The process.
        pid: i32,
        /// What is wrong with it.
        error: PageError,
    },
}

/// A process, and what it says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The process, as seen from here.
    pub pid: i32,
    /// Its name, as the kernel has it; empty if it has gone.
    pub program: String,
    /// One page for each copy of the library in it, at least one.
    pub pages: Vec<Page>,
    /// When they were read, in the time of the pages.
    pub read_ns: u64,
}

/// All processes with pages that this user may read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct All {
    /// By number.
    pub found: Vec<Found>,
    /// Why those of his that run on Quarry, too, cannot be read.
    pub refused: Vec<NoPage>,
}

fn name_of(pid: i32) -> String {
    fs::read(proc(pid, "comm"))
        .map(|name| String::from_utf8_lossy(&name).trim_end().to_owned())
        .unwrap_or_default()
}

/// The pages of a process.
fn pages_of(pid: i32) -> Result<Vec<Page>, NoPage> {
    Ok(look(pid)?.1.into_iter().map(|(_, page)| page).collect())
}

/// Its memory, and where its pages are.
pub(crate) fn look(pid: i32) -> Result<(Target, Vec<(u64, Page)>), NoPage> {
    let maker = Maker::of(pid);
    let folder = shared(pid);
    let mappings = memory::mappings(&folder).map_err(|error| unreadable(pid, &error))?;
    if mappings.is_empty() {
        return Err(NoPage::NoMemory(pid));
    }
    let loaded = ["/libquarry.so", "/libquarry-malloc.so", "/libquarry-pow2.so"];
    let of_library = |name: &str| loaded.iter().any(|library| name.contains(library));
    // A program that is linked statically shows in the names of its mappings, where the kernel has those.
    let on_quarry = mappings
        .iter()
        .map(|mapping| &*mapping.name)
        .any(|name| of_library(name) || name.starts_with("[anon:quarry"));
    let served = mallocs::of_files(mappings.iter().map(|mapping| &*mapping.name));
    let other = served.into_iter().find(|name| !mallocs::is_ours(name));
    let target = match Target::open(&folder, mappings) {
        Ok(target) => target,
        Err(_) if !folder.exists() => return Err(NoPage::NoProcess(pid)),
        Err(_) if on_quarry && is_off(pid) => return Err(NoPage::Off(pid)),
        Err(_) if on_quarry => return Err(NoPage::Refused { pid, advice: refusal::advice(pid) }),
        Err(_) => return Err(NoPage::NotOnQuarry(pid)),
    };
    let mut pages = Vec::new();
    let mut damaged = None;
    for at in target.find(MAGIC) {
        let live = Live::new(&target, at);
        match Page::read(&live) {
            Ok(page) if maker.may_have_made(&page) && !live.is_gone() => pages.push((at, page)),
            Ok(_) | Err(PageError::NotOne) => {}
            Err(error) => damaged = Some(NoPage::Page { pid, error }),
        }
    }
    match damaged {
        _ if !pages.is_empty() => Ok((target, pages)),
        Some(damaged) => Err(damaged),
        None if !folder.exists() => Err(NoPage::NoProcess(pid)),
        None if !on_quarry => Err(NoPage::NotOnQuarry(pid)),
        None if is_off(pid) => Err(NoPage::Off(pid)),
        None => Err(other.map_or(NoPage::None(pid), |other| NoPage::Other(pid, other))),
    }
}

/// Its list of mappings could not be read.
fn unreadable(pid: i32, error: &io::Error) -> NoPage {
    let refused = matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM));
    match proc(pid, "").exists() {
        true if refused => NoPage::Hidden { pid, advice: refusal::advice(pid) },
        true => NoPage::NoMemory(pid),
        false => NoPage::NoProcess(pid),
    }
}

/// Does its environment at the start have stats_page:off?
fn is_off(pid: i32) -> bool {
    let environment = fs::read(shared(pid).join("environ")).unwrap_or_default();
    let conf = environment.split(|&byte| byte == 0).find_map(|entry| entry.strip_prefix(b"QUARRY_CONF="));
    let conf = String::from_utf8_lossy(conf.unwrap_or_default()).into_owned();
    let last =
        conf.split(',').rev().find_map(|pair| pair.trim().strip_prefix("stats_page:").map(str::to_owned));
    last.is_some_and(|value| matches!(value.as_str(), "off" | "0" | "false" | "no"))
}

fn found(pid: i32, pages: Vec<Page>) -> Found {
    let read_ns = sys::now_ns().saturating_add_signed(maker::ahead_ns(pid));
    Found { pid, program: name_of(pid), pages, read_ns }
}

/// What a process says of itself.
pub fn of_process(pid: i32) -> Result<Found, NoPage> {
    Ok(found(pid, pages_of(pid)?))
}

/// All processes whose pages this user may read.
pub fn all() -> All {
    let folders = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids: Vec<i32> = folders.filter_map(|folder| folder.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    let mut all = All::default();
    for pid in pids {
        match pages_of(pid) {
            Ok(pages) => all.found.push(found(pid, pages)),
            Err(refused @ NoPage::Refused { .. }) => all.refused.push(refused),
            // Others run on something else, have gone meanwhile, or have nothing to say yet.
            Err(_) => {}
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_has_ended_and_was_not_waited_for() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let end = std::time::Instant::now() + std::time::Duration::from_secs(300);
        while !matches!(of_process(pid), Err(NoPage::NoMemory(_))) {
            assert!(std::time::Instant::now() < end, "{:?}", of_process(pid));
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        child.wait().unwrap();
        assert!(matches!(of_process(pid), Err(NoPage::NoProcess(_))));
    }

    #[test]
    fn a_process_that_is_not_there_or_runs_on_something_else() {
        assert!(matches!(of_process(i32::MAX), Err(NoPage::NoProcess(_))));
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(matches!(of_process(own), Err(NoPage::NotOnQuarry(_))));
    }
}
