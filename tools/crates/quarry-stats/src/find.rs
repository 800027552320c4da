// SPDX-License-Identifier: MIT
//! The pages of a process, or why there are none.

use std::fs;
use std::io;

use crate::maker::{Maker, proc};
use crate::page::{Page, PageError};
use crate::segment::{self, Segment};

/// Why a process has no page that can be read. Each says what to do.
#[derive(Debug, thiserror::Error)]
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
         heap or its pools (after a fork: since then, unless they have 16 MiB), or System V shared memory was denied or used up, or its \
         library is older than that"
    )]
    None(i32),
    /// The page is another user's.
    #[error(
        "process {pid} has a statistics page that only user {uid} may read; run quarry as that user, or as root"
    )]
    OtherUser {
        /// The process.
        pid: i32,
        /// Who may.
        uid: u32,
    },
    /// Nothing is known of the process, because of its user.
    #[error(
        "process {0} has no statistics page here, and what it runs on may only be seen by its own user or root"
    )]
    Hidden(i32),
    /// It is in a container, of which this process may not see the shared memory.
    #[error(
        "process {pid} is in another IPC namespace, which takes the right to enter it (CAP_SYS_ADMIN; run as root): {error}"
    )]
    Namespace {
        /// The process.
        pid: i32,
        /// What the kernel said.
        error: io::Error,
    },
    /// There is one, of another kind.
    #[error("process {pid} has a statistics page, but {error}")]
    Page {
        /// The process.
        pid: i32,
        /// What is wrong with it.
        error: PageError,
    },
    /// The kernel's list of segments.
    #[error("the kernel's list of shared memory, /proc/sysvipc/shm, cannot be read: {0}")]
    List(io::Error),
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

/// A line of the kernel's list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Listed {
    id: i32,
    creator: i32,
    uid: u32,
}

/// Marked for removal (SHM_DEST), as pages always are.
const REMOVED: u32 = 0o1000;

/// Lines that may be pages. Columns are found by their names.
fn parse_list(text: &str) -> Vec<Listed> {
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().unwrap_or_default().split_whitespace().collect();
    let column = |name| names.iter().position(|&n| n == name);
    let (Some(id), Some(perms), Some(cpid), Some(nattch), Some(uid)) =
        (column("shmid"), column("perms"), column("cpid"), column("nattch"), column("uid"))
    else {
        return Vec::new();
    };
    let one = |line: &str| {
        let values: Vec<&str> = line.split_whitespace().collect();
        let removed = u32::from_str_radix(values.get(perms)?, 8).ok()? & REMOVED != 0;
        let attached = values.get(nattch)?.parse::<u64>().ok()? > 0;
        let listed = Listed {
            id: values.get(id)?.parse().ok()?,
            creator: values.get(cpid)?.parse().ok()?,
            uid: values.get(uid)?.parse().ok()?,
        };
        (removed && attached).then_some(listed)
    };
    lines.filter_map(one).collect()
}

fn list() -> Result<Vec<Listed>, NoPage> {
    fs::read_to_string("/proc/sysvipc/shm").map(|text| parse_list(&text)).map_err(NoPage::List)
}

fn name_of(pid: i32) -> String {
    fs::read(proc(pid, "comm"))
        .map(|name| String::from_utf8_lossy(&name).trim_end().to_owned())
        .unwrap_or_default()
}

/// The pages of a process in the segments that are in view, each with the segment's number.
fn pages_in_view(pid: i32) -> Result<Vec<(i32, Page)>, NoPage> {
    let maker = Maker::of(pid);
    let mut pages = Vec::new();
    let mut reason = None;
    let may_be = |listed: &Listed| listed.creator == pid && maker.may_be(listed.uid);
    for listed in list()?.into_iter().filter(may_be) {
        match Segment::attach(listed.id) {
            Ok(segment) => match Page::read(&segment) {
                // The number may have been another process's before, or is since it was listed.
                Ok(page) if maker.may_have_made(&page) => pages.push((listed.id, page)),
                Ok(_) | Err(PageError::NotOne) => {}
                Err(error) => reason = Some(NoPage::Page { pid, error }),
            },
            Err(error) if error.raw_os_error() == Some(libc::EACCES) => {
                reason = Some(NoPage::OtherUser { pid, uid: listed.uid });
            }
            // It went away meanwhile.
            Err(_) => {}
        }
    }
    match reason {
        Some(reason) if pages.is_empty() => Err(reason),
        _ => Ok(pages),
    }
}

/// Does its environment at the start have stats_page:off?
fn is_off(pid: i32) -> bool {
    let environment = fs::read(proc(pid, "environ")).unwrap_or_default();
    let conf = environment.split(|&byte| byte == 0).find_map(|entry| entry.strip_prefix(b"QUARRY_CONF="));
    let conf = String::from_utf8_lossy(conf.unwrap_or_default()).into_owned();
    let last =
        conf.split(',').rev().find_map(|pair| pair.trim().strip_prefix("stats_page:").map(str::to_owned));
    last.is_some_and(|value| matches!(value.as_str(), "off" | "0" | "false" | "no"))
}

/// Why a process has no page.
fn reason(pid: i32) -> NoPage {
    if !proc(pid, "").exists() {
        return NoPage::NoProcess(pid);
    }
    match fs::read(proc(pid, "maps")) {
        Err(_) => NoPage::Hidden(pid),
        Ok(maps) if maps.is_empty() => NoPage::NoMemory(pid),
        Ok(maps) => {
            let maps = String::from_utf8_lossy(&maps);
            let library = maps.contains("/libquarry.so")
                || maps.contains("/libquarry-malloc.so")
                || maps.contains("/libquarry-pow2.so");
            // A program that is linked statically shows in the names of its mappings, where the kernel has those.
            match library || maps.contains("[anon:quarry") {
                true if is_off(pid) => NoPage::Off(pid),
                true => NoPage::None(pid),
                false => NoPage::NotOnQuarry(pid),
            }
        }
    }
}

/// The pages of a process, wherever its segments are.
fn pages_of(pid: i32) -> Result<Vec<(i32, Page)>, NoPage> {
    let namespace = proc(pid, "ns/ipc");
    let same = match (fs::read_link(&namespace), fs::read_link("/proc/self/ns/ipc")) {
        (Ok(its), Ok(ours)) => its == ours,
        // What cannot be seen is taken for the usual.
        _ => true,
    };
    if same {
        return pages_in_view(pid);
    }
    segment::in_namespace(&namespace, || pages_in_view(pid))
        .map_err(|error| NoPage::Namespace { pid, error })?
}

/// What a process says of itself.
pub fn of_process(pid: i32) -> Result<Found, NoPage> {
    let pages: Vec<Page> = pages_of(pid)?.into_iter().map(|(_, page)| page).collect();
    if pages.is_empty() {
        return Err(reason(pid));
    }
    Ok(Found { pid, program: name_of(pid), pages, read_ns: segment::now_ns() })
}

/// The numbers of the segments with a process's pages, which are the inodes of their mappings; none where none can be read.
pub fn segments_of(pid: i32) -> Vec<i32> {
    pages_of(pid).unwrap_or_default().into_iter().map(|(id, _)| id).collect()
}

/// All processes whose pages this user may read, by number; those in other IPC namespaces are not in view.
pub fn all() -> Result<Vec<Found>, NoPage> {
    let ours = segment::user();
    let mut pids: Vec<i32> = list()?
        .iter()
        .filter(|listed| listed.creator > 0 && (ours == 0 || listed.uid == ours))
        .map(|listed| listed.creator)
        .collect();
    pids.sort_unstable();
    pids.dedup();
    // Who has gone meanwhile, or has something else in a segment, is none of them.
    let read = |pid| {
        let pages = pages_in_view(pid).ok().filter(|pages| !pages.is_empty())?;
        let pages = pages.into_iter().map(|(_, page)| page).collect();
        Some(Found { pid, program: name_of(pid), pages, read_ns: segment::now_ns() })
    };
    Ok(pids.into_iter().filter_map(read).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_list() {
        let text = "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid\n\
                    11390         53   600                    56 27305 27325      2   103   105   103   105\n\
                    0      32801  1600                 32000  4711  4711      1  1000  1000  1000  1000\n\
                    0      32802  1600                 32000  4712  4711      0  1000  1000  1000  1000\n\
                    0      nonsense\n";
        assert_eq!(parse_list(text), [Listed { id: 32801, creator: 4711, uid: 1000 }]);
        assert_eq!(parse_list(""), []);
        assert_eq!(parse_list("a b c\n1 2 3\n"), []);
    }

    #[test]
    fn a_process_that_has_ended_and_was_not_waited_for() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let end = std::time::Instant::now() + std::time::Duration::from_secs(5);
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
