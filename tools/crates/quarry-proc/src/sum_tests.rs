// SPDX-License-Identifier: MIT
//! Sums by what pages are, and beside the kernel's.

use super::*;
use crate::check;
use crate::classify::{Files, classify};
use crate::{Root, Space};

fn space(text: &str) -> Space {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("smaps");
    std::fs::write(&file, text).unwrap();
    Space::of_file(&file).unwrap()
}

const TEXT: &str = "\
1000-9000 rw-p 0 fe:00 7 /f
Rss: 32 kB
Anonymous: 12 kB
Private_Clean: 0 kB
Private_Dirty: 12 kB
20000-30000 rw-s 0 00:01 8 /dev/zero (deleted)
Rss: 64 kB
Anonymous: 0 kB
Private_Clean: 0 kB
Private_Dirty: 64 kB
40000-50000 rw-p 0 00:00 0 [heap]
Rss: 8 kB
Anonymous: 8 kB
Private_Clean: 0 kB
Private_Dirty: 8 kB
60000-61000 r--s 0 fe:00 7 /f
Rss: 4 kB
Anonymous: 0 kB
Private_Clean: 4 kB
Private_Dirty: 0 kB
ffffffffff600000-ffffffffff601000 --xp 0 00:00 0 [vsyscall]
Rss: 0 kB
Anonymous: 0 kB
Private_Clean: 0 kB
Private_Dirty: 0 kB
";

#[test]
fn written_pages_of_files_are_anonymous() {
    let space = space(TEXT);
    let classes = classify(&space, &mut Files::default());
    let sum = total(&space.mappings, &classes);
    assert_eq!(sum.pages, [20 << 10, 64 << 10, 20 << 10, 4 << 10]);
    assert_eq!((sum.anonymous(), sum.file(), sum.shmem), (20 << 10, 24 << 10, 64 << 10));
    assert_eq!(sum.resident(), Some(108 << 10));
    assert_eq!(sum.size, 0x8000 + 0x10000 + 0x10000 + 0x1000, "vsyscall is not in VIRT");
    assert_eq!((sum.count, sum.counters.uss()), (5, Some(88 << 10)));
}

#[test]
fn groups() {
    let space = space(TEXT);
    let classes = classify(&space, &mut Files::default());
    let by = |by: By| {
        let groups = super::groups(&space.mappings, &classes, by, |_| true);
        let all: u64 = groups.iter().map(|group| group.sum.resident().unwrap()).sum();
        assert_eq!(all, 108 << 10);
        groups
    };
    assert_eq!(by(By::Quadrant).len(), 4);
    assert_eq!(by(By::Kind).len(), 5);
    assert_eq!(by(By::Object).len(), 5);
    let files = by(By::File);
    assert_eq!(files.len(), 4);
    assert_eq!((files[0].object.as_deref(), files[0].members.as_slice()), (Some("/f"), &[0, 3][..]));
    assert_eq!((files[0].quadrant, files[0].kind), (None, None));
    let some = super::groups(&space.mappings, &classes, By::Kind, |index| index == 2);
    assert_eq!((some.len(), some[0].sum.resident()), (1, Some(8 << 10)));
}

/// Sums of a process that stands still are the kernel's, to the byte.
#[test]
fn the_kernel_gets_the_same() {
    let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    let process = Root::live().process(child.id()).unwrap();
    // Until it sleeps.
    while process.stat().unwrap().state != 'S' || process.comm().unwrap() != "sleep" {
        std::thread::yield_now();
    }
    // With how many others pages are shared changes with these.
    let mut space = Space::of_process(&process).unwrap();
    for _ in 0..20 {
        if space.steady == Some(true) {
            break;
        }
        space = Space::of_process(&process).unwrap();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let classes = classify(&space, &mut Files::default());
    let lines = check::check(&space, &classes, &total(&space.mappings, &classes));
    assert!(lines.len() > 20, "{lines:?}");
    let wrong: Vec<_> = lines.iter().filter(|line| !line.agrees()).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    let sources: Vec<_> = lines.iter().map(|line| line.source).collect();
    for source in ["statm resident", "status RssShmem", "smaps_rollup", "statm data"] {
        assert!(sources.contains(&source), "{source}");
    }
}

#[test]
fn a_difference_is_one() {
    let line = |ours, kernel, slack| check::Line { what: "x", ours, source: "y", kernel, slack };
    assert!(line(4, 4, 0).agrees() && line(4, 6, 2).agrees());
    assert!(!line(4, 7, 2).agrees() && !line(4, 3, 2).agrees() && !line(4, 5, 0).agrees());
    assert!(line(u64::MAX, u64::MAX, 1).agrees());
}

#[test]
fn of_no_mapping_as_much_is_known_as_of_the_others() {
    let space = space(concat!(
        "1000-2000 rw-p 00000000 00:00 0\nRss: 4 kB\nPrivate_Clean: 0 kB\nPrivate_Dirty: 4 kB\nKernelPageSize: 4 kB\n",
        "3000-4000 rw-p 00000000 00:00 0\nRss: 0 kB\nPrivate_Clean: 0 kB\nPrivate_Dirty: 0 kB\nKernelPageSize: 4 kB\n",
    ));
    let classes = classify(&space, &mut Files::default());
    let nothing = total(&space.mappings, &classes).nothing();
    assert_eq!((nothing.resident(), nothing.counters.uss(), nothing.count), (Some(0), Some(0), 0));
    assert_eq!(
        (nothing.counters.get(Field::Swap), nothing.counters.get(Field::KernelPageSize)),
        (None, None)
    );
    assert_eq!(Sum::default().nothing(), Sum::default());
}

/// Dirty pages of files can be written to them; all others need swap, also those that a process wrote in a private mapping.
#[test]
fn dirty_pages_have_a_file_or_need_swap() {
    let line = |range: &str, name: &str, anonymous: u64, dirty: u64| {
        format!(
            "{range} {name}\nRss: 64 kB\nAnonymous: {anonymous} kB\nShared_Dirty: 4 kB\nPrivate_Dirty: {dirty} kB\n"
        )
    };
    let cases = [
        ("a shared file", line("10000-20000 rw-s 0 fe:00", "7 /f", 0, 16), 20, 0),
        ("a private file", line("20000-30000 rw-p 0 fe:00", "7 /f", 20, 16), 0, 20),
        ("a private file that others wrote", line("30000-40000 rw-p 0 fe:00", "7 /f", 8, 16), 12, 8),
        ("the heap", line("40000-50000 rw-p 0 00:00", "0 [heap]", 20, 16), 0, 20),
        ("shared anonymous", line("50000-60000 rw-s 0 00:01", "8 /dev/zero (deleted)", 0, 16), 0, 20),
        ("memfd", line("60000-70000 rw-s 0 00:01", "9 /memfd:x (deleted)", 0, 16), 0, 20),
        ("a private memfd", line("60000-70000 rw-p 0 00:01", "9 /memfd:x (deleted)", 4, 16), 0, 20),
        ("a device", line("70000-80000 rw-s 0 00:06", "3 /dev/dri/card0", 0, 16), 0, 20),
    ];
    for (what, text, write_back, needs_swap) in cases {
        let space = space(&text);
        let sum = total(&space.mappings, &classify(&space, &mut Files::default()));
        assert_eq!((sum.write_back, sum.needs_swap()), (write_back << 10, Some(needs_swap << 10)), "{what}");
    }
    let none = space("10000-20000 rw-s 0 fe:00 7 /f\n");
    assert_eq!(total(&none.mappings, &classify(&none, &mut Files::default())).needs_swap(), None);
}
