// SPDX-License-Identifier: MIT
//! Every kind of mapping, as kernels show them, and live ones of our own.

use super::*;
use crate::smaps;
use crate::task::Task;
use crate::{Process, Root};

/// A space from lines of maps, with flags behind a semicolon.
fn space(lines: &[&str]) -> Space {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("smaps");
    let mut text = String::new();
    for line in lines {
        let (line, flags) = line.split_once(';').unwrap_or((line, "rd"));
        text += &format!("{line}\nRss: 4 kB\nVmFlags: {flags}\n");
    }
    std::fs::write(&file, text).unwrap();
    Space::of_file(&file).unwrap()
}

fn kinds(lines: &[&str]) -> Vec<(usize, &'static str)> {
    let space = space(lines);
    classify(&space, &mut Files::default())
        .iter()
        .map(|class| (class.quadrant.number(), class.kind.name()))
        .collect()
}

fn task(tid: u32, stack_pointer: u64) -> Task {
    Task { tid, name: format!("t{tid}"), stack_pointer: Some(stack_pointer), ended: false }
}

#[test]
fn names_of_the_kernel() {
    let lines = [
        "10000-11000 rw-p 0 00:00 0 [heap]",
        "20000-21000 rw-p 0 00:00 0 ",
        "30000-31000 rw-s 0 00:01 9 /dev/zero (deleted)",
        "40000-41000 rw-p 0 00:05 9 /dev/zero",
        "50000-51000 rw-s 0 00:01 8 /memfd:buffers (deleted)",
        "60000-61000 rw-s 0 00:01 7 /SYSV00000000 (deleted)",
        "70000-71000 rw-s 0 00:18 7 /dev/shm/queue",
        "80000-81000 rw-s 0 fe:00 7 /var/data",
        "90000-91000 r--p 0 fe:00 7 /var/data (deleted)",
        "a0000-a1000 rw-s 0 00:0f 7 /anon_hugepage (deleted);ht",
        "b0000-b1000 rw-p 0 00:0f 8 /anon_hugepage (deleted);ht",
        "c0000-c1000 rw-s 0 00:10 8 /mnt/huge/file;ht",
        "d0000-d1000 rw-p 0 00:00 0 [anon:quarry heap]",
        "e0000-e1000 rw-p 0 00:00 0 [anon:libc malloc]",
        "f0000-f1000 rw-s 0 00:01 0 [anon_shmem:ring]",
        "100000-101000 rw-s 0 00:0e 3 anon_inode:[io_uring]",
        "110000-111000 rw-s 0 00:06 3 /dev/dri/card0",
        "120000-121000 r--p 0 00:00 0 [vvar]",
        "130000-131000 r-xp 0 00:00 0 [vdso]",
        "140000-141000 rw-p 0 00:00 0 [stack:17]",
        "150000-151000 rw-p 0 00:00 0 [stack]",
        "ffffffffff600000-ffffffffff601000 --xp 0 00:00 0 [vsyscall]",
    ];
    let expected = [
        (1, "heap"),
        (1, "anonymous"),
        (2, "shared"),
        (1, "anonymous"),
        (2, "memfd"),
        (2, "sysv"),
        (2, "posix-shm"),
        (4, "file"),
        (3, "file"),
        (2, "hugetlb"),
        (1, "hugetlb"),
        (4, "hugetlb-file"),
        (1, "quarry"),
        (1, "named"),
        (2, "named"),
        (4, "device"),
        (4, "device"),
        (3, "vvar"),
        (3, "vdso"),
        (1, "thread-stack"),
        (1, "stack"),
        (3, "vsyscall"),
    ];
    assert_eq!(kinds(&lines), expected);
}

#[test]
fn parts_of_a_program_that_is_not_there_are_concluded() {
    let lines = [
        "10000-11000 r--p 00000 fe:00 7 /no/such/lib.so",
        "11000-12000 r-xp 01000 fe:00 7 /no/such/lib.so",
        "12000-13000 r--p 02000 fe:00 7 /no/such/lib.so",
        "13000-14000 ---p 03000 fe:00 7 /no/such/lib.so",
        "14000-15000 r--p 03000 fe:00 7 /no/such/lib.so",
        "15000-16000 rw-p 04000 fe:00 7 /no/such/lib.so",
        "16000-19000 rw-p 00000 00:00 0 ",
        "30000-31000 rw-p 00000 00:00 0 ",
        "40000-41000 r--p 00000 fe:00 8 /no/such/data",
    ];
    let kinds: Vec<&str> = kinds(&lines).into_iter().map(|(_, kind)| kind).collect();
    let expected = ["rodata", "text", "rodata", "reserved", "relro", "data", "bss", "anonymous", "file"];
    assert_eq!(kinds, expected);
    let space = space(&lines);
    let classes = classify(&space, &mut Files::default());
    assert!(classes[..7].iter().all(|class| !class.certain && &*class.object == "/no/such/lib.so"));
    assert!(classes[7].certain);
}

#[test]
fn stacks_by_their_pointers_and_guards_below_them() {
    let mut space = space(&[
        "10000-11000 ---p 0 00:00 0 ",
        "11000-21000 rw-p 0 00:00 0 ",
        "21000-22000 ---p 0 00:00 0 ",
        "22000-32000 rw-p 0 00:00 0 ",
        "40000-80000 rw-p 0 00:00 0 ",
        "90000-98000 ---p 0 00:00 0 ",
        "98000-99000 rw-s 0 00:01 3 /memfd:x (deleted)",
        "a0000-a1000000 ---p 0 00:00 0 ",
        "b0000000-b0010000 rw-p 0 00:00 0 ;rd wr nh",
    ]);
    space.tasks.list =
        vec![task(1, 0x20ff0), task(2, 0x31000), task(3, 0x50000), task(4, 0x31008), task(5, 0xb0000100)];
    let classes = classify(&space, &mut Files::default());
    let kinds: Vec<&str> = classes.iter().map(|class| class.kind.name()).collect();
    let expected = [
        "guard",
        "thread-stack",
        "guard",
        "thread-stack",
        "anonymous",
        "guard",
        "memfd",
        "reserved",
        "thread-stack",
    ];
    assert_eq!(kinds, expected);
    // A stack in the middle of something else does not make it one, but is said.
    assert_eq!((classes[4].threads.as_slice(), classes[3].threads.as_slice()), (&[2][..], &[1, 3][..]));
    assert_eq!(classes[0].threads, [0], "the guard of the first");
    assert!(classes[1].certain && !classes[5].certain);
}

#[test]
fn stacks_without_pointers_are_told_by_their_looks() {
    let lines = ["10000-11000 ---p 0 00:00 0 ", "11000-21000 rw-p 0 00:00 0 ", "40000-80000 rw-p 0 00:00 0 "];
    assert_eq!(kinds(&lines)[1].1, "anonymous", "nobody misses a stack");
    let mut lost = space(&lines);
    lost.tasks.list = vec![Task { stack_pointer: None, ..task(2, 0) }];
    let classes = classify(&lost, &mut Files::default());
    assert_eq!(
        (classes[1].kind, classes[1].certain, classes[2].kind),
        (Kind::ThreadStack, false, Kind::Anonymous)
    );
    let marked = ["10000-11000 ---p 0 00:00 0 ", "11000-21000 rw-p 0 00:00 0 ;rd wr nh"];
    assert_eq!(kinds(&marked)[1].1, "thread-stack", "kept by the C library");
    // One that ended leaves its stack to the next, and takes none that is none.
    let mut ended = space(&lines);
    ended.tasks.list = vec![
        task(2, 0x20000),
        Task { ended: true, ..task(3, 0x20000) },
        Task { ended: true, ..task(4, 0x50000) },
    ];
    let classes = classify(&ended, &mut Files::default());
    assert_eq!((classes[1].threads.as_slice(), classes[2].kind), (&[0][..], Kind::Anonymous));
}

static ZEROS: [std::sync::atomic::AtomicU8; 3 << 20] =
    [const { std::sync::atomic::AtomicU8::new(0) }; 3 << 20];

#[test]
fn our_own_program_and_threads() {
    let process = Root::live().process(std::process::id()).unwrap();
    let (send, receive) = std::sync::mpsc::channel::<()>();
    let thread =
        std::thread::Builder::new().name("sleeper".into()).spawn(move || receive.recv().is_ok()).unwrap();
    // Until it sleeps its stack pointer is not known.
    let number = loop {
        let tasks = process.tasks().unwrap();
        let found = tasks.list.iter().find(|task| task.name == "sleeper").cloned();
        if let Some(task) = found
            && task.stack_pointer.is_some()
        {
            break task.tid;
        }
        if tasks.denied {
            return; // no right to trace: nothing to test
        }
        std::thread::yield_now();
    };
    let space = Space::of_process(&process).unwrap();
    let classes = classify(&space, &mut Files::default());
    let index = space.tasks.list.iter().position(|task| task.tid == number).unwrap() as u32;
    let stack =
        classes.iter().find(|class| class.kind == Kind::ThreadStack && class.threads.contains(&index));
    assert!(stack.is_some_and(|class| class.certain), "{:?}", space.tasks);
    let of = |address: u64| {
        let at = space.mappings.iter().position(|mapping| mapping.contains(address)).unwrap();
        &classes[at]
    };
    let zeros = of(ZEROS[ZEROS.len() - 1].as_ptr() as u64);
    assert_eq!((zeros.kind, zeros.quadrant), (Kind::Bss, Quadrant::PrivateAnonymous));
    assert!(zeros.sections.iter().any(|(name, bytes)| &**name == ".bss" && *bytes >= 2 << 20));
    let code = of(our_own_program_and_threads as fn() as usize as u64);
    assert_eq!((code.kind, code.certain), (Kind::Text, true));
    assert!(code.sections.iter().any(|(name, _)| &**name == ".text"));
    assert!(classes.iter().any(|class| class.kind == Kind::MainStack));
    drop(send);
    thread.join().unwrap();
}

#[test]
fn a_hundred_thousand_mappings_are_read_and_classified_quickly() {
    let mut text = String::new();
    for at in 0..100_000u64 {
        let start = 0x7000_0000_0000 + at * 0x3000;
        text += &format!("{start:x}-{:x} rw-p 00000000 00:00 0 \n", start + 0x2000);
        text +=
            "Size: 8 kB\nKernelPageSize: 4 kB\nMMUPageSize: 4 kB\nRss: 8 kB\nPss: 8 kB\nPss_Dirty: 8 kB\n";
        text += "Shared_Clean: 0 kB\nShared_Dirty: 0 kB\nPrivate_Clean: 0 kB\nPrivate_Dirty: 8 kB\nReferenced: 8 kB\n";
        text += "Anonymous: 8 kB\nKSM: 0 kB\nLazyFree: 0 kB\nAnonHugePages: 0 kB\nSwap: 0 kB\nSwapPss: 0 kB\nLocked: 0 kB\n";
        text += "THPeligible: 0\nVmFlags: rd wr mr mw me ac \n";
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("smaps");
    std::fs::write(&file, text).unwrap();
    let mut space = Space::of_file(&file).unwrap();
    space.tasks.list = (0..10_000).map(|tid| task(tid, 0x7000_0000_0000 + u64::from(tid) * 0x3000)).collect();
    let classes = classify(&space, &mut Files::default());
    assert_eq!(classes.len(), 100_000);
    assert_eq!(crate::sum::total(&space.mappings, &classes).anonymous(), 100_000 * 8192);
    let (mappings, damage) = smaps::read_all(&b""[..]).unwrap();
    assert!(mappings.is_empty() && damage.sentence().is_none());
    // A folder that has only these.
    assert_eq!(Process::saved(folder.path()).mappings().unwrap().0.len(), 100_000);
}

/// Where the kernel shows no names a heap says itself where it is.
#[test]
fn a_heap_may_say_where_it_is() {
    let mut space = space(&[
        "10000-11000 rw-p 0 00:00 0 [heap]",
        "200000-300000 rw-p 0 00:00 0 ",
        "300000-900000 ---p 0 00:00 0 ",
        "a00000-a10000 rw-p 0 00:00 0 ",
        "b00000-b10000 rw-p 0 00:00 0 ",
        "c00000-c10000 rw-s 0 00:01 9 /dev/zero (deleted)",
        "d00000-d10000 rw-p 0 00:00 0 ",
    ]);
    let known = |from, to, name| Known { from, to, name };
    space.known = vec![
        known(0xd0_0000, 0xd0_5000, "quarry huge"),
        known(0xd0_5000, 0xd1_0000, "quarry huge"),
        known(0x20_0000, 0x90_0000, "quarry heap"),
        known(0xa0_0000, 0xa0_8000, "quarry huge"),
        known(0xb0_0000, 0xb0_9000, "quarry metadata"),
        known(0xc0_0000, 0xc1_0000, "quarry heap"),
    ];
    let told: Vec<(&str, String, bool)> = classify(&space, &mut Files::default())
        .iter()
        .map(|class| (class.kind.name(), class.object.to_string(), class.certain))
        .collect();
    let told: Vec<(&str, &str, bool)> =
        told.iter().map(|(kind, object, certain)| (*kind, &**object, *certain)).collect();
    assert_eq!(told[0].0, "heap");
    assert_eq!(told[1], ("quarry", "quarry heap", true));
    assert_eq!(told[2], ("quarry", "quarry heap", true), "also what is kept for later");
    assert_eq!(told[3].0, "anonymous", "half of it is not more than half");
    assert_eq!(told[4], ("quarry", "quarry metadata", false));
    assert_eq!(told[5].0, "shared");
    assert_eq!(told[6], ("quarry", "quarry huge", true), "two make one mapping");
}
