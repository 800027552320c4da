// SPDX-License-Identifier: MIT
//! Many processes, made here: what reading them costs, and what is wrong with some.

use std::fs;
use std::path::Path;

use super::*;

/// A process of a copy of /proc.
fn process(root: &Path, pid: u32, pages: u64) {
    let folder = root.join(pid.to_string());
    fs::create_dir(&folder).unwrap();
    let stat = format!(
        "{pid} (worker {pid}) S 1 1 1 0 -1 4194304 {pid} 0 7 0 5 6 0 0 20 0 1 0 {pid} 4096 {pages} \
         18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
    );
    fs::write(folder.join("stat"), stat).unwrap();
    fs::write(folder.join("statm"), format!("{} {pages} 1 2 0 3 0\n", pages * 2)).unwrap();
}

/// Calls of read() by this thread, as the kernel counts them.
fn reads() -> Option<u64> {
    let text = fs::read_to_string("/proc/thread-self/io").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("syscr: "))?;
    line.trim().parse().ok()
}

#[test]
fn each_costs_two_reads() {
    const COUNT: u32 = 1000;
    let folder = tempfile::tempdir().unwrap();
    for pid in 1..=COUNT {
        process(folder.path(), pid, u64::from(pid));
    }
    let mut scanner = Scanner::new(Root::copy(folder.path()));
    let before = reads();
    let briefs = scanner.scan(|_| true).unwrap();
    let after = reads();
    assert_eq!(briefs.len(), COUNT as usize);
    for brief in &briefs {
        let (stat, statm) = brief.facts.as_ref().unwrap();
        assert_eq!((stat.pid, statm.resident), (brief.pid, u64::from(brief.pid)));
    }
    // The counting itself reads a few times.
    if let (Some(before), Some(after)) = (before, after) {
        assert!((after - before) <= 2 * u64::from(COUNT) + 16, "{} reads", after - before);
        assert!((after - before) >= 2 * u64::from(COUNT), "the counter does not count");
    } else {
        eprintln!("not checked: this kernel does not count reads");
    }
    assert_eq!(scanner.scan(|pid| pid % 100 == 0).unwrap().len(), 10);
}

#[test]
fn what_is_wrong_with_one_is_no_matter_for_others() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    for pid in 1..=6 {
        process(root, pid, 10);
    }
    fs::remove_file(root.join("2/statm")).unwrap();
    fs::write(root.join("3/stat"), "3 (cut").unwrap();
    fs::write(root.join("4/statm"), vec![b'9'; 1 << 20]).unwrap();
    // Another process's file.
    fs::copy(root.join("1/stat"), root.join("5/stat")).unwrap();
    fs::remove_dir_all(root.join("6")).unwrap();
    fs::write(root.join("6"), "a file").unwrap();
    fs::create_dir(root.join("7")).unwrap();
    let briefs = Scanner::new(Root::copy(root)).scan(|_| true).unwrap();
    let facts: Vec<_> = briefs.iter().map(|brief| (brief.pid, brief.facts.as_ref().err().copied())).collect();
    let damaged = Some(Unread::Damaged);
    assert_eq!(facts, [(1, None), (3, damaged), (4, damaged), (5, damaged)]);
}

#[test]
fn ourselves() {
    let mut scanner = Scanner::new(Root::live());
    let brief = scanner.one(std::process::id()).unwrap();
    assert!(brief.facts.unwrap().1.resident > 0);
    assert_eq!(scanner.one(0), None);
    assert!(scanner.scan(|_| true).unwrap().iter().any(|brief| brief.pid == std::process::id()));
}
