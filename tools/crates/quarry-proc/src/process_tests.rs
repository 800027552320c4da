// SPDX-License-Identifier: MIT
//! Processes that are there, that are not, and copies.

use super::*;
use crate::counters::Field;

#[test]
fn our_own_process_can_be_read() {
    let root = Root::live();
    let process = root.process(std::process::id()).unwrap();
    assert_eq!(process.stat().unwrap().pid, std::process::id());
    assert!(!process.comm().unwrap().is_empty() && !process.cmdline().unwrap().is_empty());
    assert!(process.status().unwrap().vm_rss > Some(0));
    assert!(process.limits().unwrap().get("Max stack size").is_some());
    let (mappings, damage) = process.mappings().unwrap();
    assert_eq!(damage.sentence(), None);
    assert!(mappings.iter().any(|mapping| &*mapping.name == "[stack]"));
    assert!(process.rollup().unwrap().get(Field::Rss) > Some(0));
    assert!(!process.mounts().unwrap().is_empty());
    // This test runs in a thread of its own, so there are two.
    assert!(process.tasks().unwrap().list.len() >= 2);
    assert!(process.cgroup().is_ok());
    assert_eq!(process.pid(), Some(std::process::id()));
}

#[test]
fn a_process_that_ended_is_gone_whatever_is_asked() {
    let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    let process = Root::live().process(child.id()).unwrap();
    assert!(process.stat().is_ok());
    child.kill().unwrap();
    // Not waited for, it is a zombie: it is there and has no memory. The kernel takes that away a little later.
    while process.stat().unwrap().state != 'Z' {
        std::thread::yield_now();
    }
    assert!(matches!(process.mappings(), Err(ProcError::NoMemory(_))));
    child.wait().unwrap();
    assert!(process.stat().unwrap_err().is_gone());
    assert!(process.mappings().unwrap_err().is_gone());
    assert!(process.rollup().unwrap_err().is_gone());
    assert!(process.tasks().unwrap_err().is_gone());
    assert!(crate::Space::of_process(&process).unwrap_err().is_gone());
}

#[test]
fn a_kernel_thread_has_no_memory() {
    let Ok(process) = Root::live().process(2) else { return };
    if process.comm().is_ok_and(|name| name == "kthreadd") {
        let error = process.mappings().unwrap_err();
        assert!(matches!(error, ProcError::NoMemory(2)) || error.is_denied(), "{error}");
    }
}

#[test]
fn a_copy_has_what_was_copied() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    let saved = || Process::saved(folder.path());
    assert!(matches!(saved().mappings(), Err(ProcError::Missing(_))));
    write("maps", "00400000-00401000 r--p 00000000 00:00 0 \n");
    assert!(saved().mappings().unwrap().0[0].counters.is_empty());
    write("smaps", "00400000-00401000 r--p 00000000 00:00 0 \nRss: 4 kB\n");
    assert_eq!(saved().mappings().unwrap().0[0].counters.get(Field::Rss), Some(4096));
    write("smaps", "");
    assert!(matches!(saved().mappings(), Err(ProcError::Damaged { .. })));
    write("stat", "77 (x) S 1 1");
    assert!(matches!(saved().stat(), Err(ProcError::Damaged { .. })));
    assert_eq!(saved().pid(), None);
    assert!(!saved().is_live());
    // A pipe would never end.
    fs::remove_file(folder.path().join("maps")).unwrap();
    fs::remove_file(folder.path().join("smaps")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", folder.path().join("smaps")).unwrap();
    assert!(matches!(saved().mappings(), Err(ProcError::Io { .. })));
}
