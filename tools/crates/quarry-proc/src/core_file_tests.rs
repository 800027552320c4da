// SPDX-License-Identifier: MIT
//! A core file made here: two mappings, two threads, a file.

use super::*;

fn words(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

fn note(kind: u32, contents: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in [5, contents.len() as u32, kind] {
        bytes.extend(word.to_ne_bytes());
    }
    bytes.extend(b"CORE\0\0\0\0");
    bytes.extend(contents);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn status(tid: u32, stack_pointer: u64) -> Vec<u8> {
    let mut bytes = vec![0; 336];
    bytes[32..36].copy_from_slice(&tid.to_ne_bytes());
    bytes[264..272].copy_from_slice(&stack_pointer.to_ne_bytes());
    bytes
}

fn program(kind: u32, flags: u32, values: [u64; 6]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(words(&values));
    bytes
}

pub(super) fn core() -> Vec<u8> {
    let mut files = words(&[2, 4096, 0x40_0000, 0x40_2000, 3, 0x50_0000, 0x50_3000, 0]);
    files.extend(b"/bin/prog (deleted)\0/lib/left-out.so\0");
    with(&files, 1)
}

/// One that has this note of files, and whose notes are in so many segments again and again.
fn with(files: &[u8], segments: u16) -> Vec<u8> {
    let mut information = vec![0; 136];
    information[24..28].copy_from_slice(&77u32.to_ne_bytes());
    information[40..44].copy_from_slice(b"prog");
    information[56..65].copy_from_slice(b"./prog -x");
    let notes = [
        note(1, &status(77, 0x7ffe_0000_1000)),
        note(3, &information),
        note(6, &words(&[6, 4096, 25, 0x7ffe_0000_1800, 33, 0x7fff_0000, 0, 0])),
        note(0x4649_4c45, files),
        note(1, &status(78, 0x7f00_0000_0100)),
    ]
    .concat();
    let at = 64 + (3 + u64::from(segments)) * 56;
    let mut bytes = vec![0x7f, b'E', b'L', b'F', 2, if cfg!(target_endian = "little") { 1 } else { 2 }, 1];
    bytes.resize(16, 0);
    bytes.extend(4u16.to_ne_bytes());
    bytes.extend(62u16.to_ne_bytes());
    bytes.extend(1u32.to_ne_bytes());
    bytes.extend(words(&[0, 64, 0]));
    bytes.extend(0u32.to_ne_bytes());
    for half in [64u16, 56, 3 + segments, 64, 0, 0] {
        bytes.extend(half.to_ne_bytes());
    }
    for _ in 0..segments {
        bytes.extend(program(4, 0, [at, 0, 0, notes.len() as u64, 0, 4]));
    }
    bytes.extend(program(1, 6, [0, 0x7ffe_0000_0000, 0, 0x2000, 0x2000, 4096]));
    bytes.extend(program(1, 5, [0, 0x40_0000, 0, 0, 0x2000, 4096]));
    bytes.extend(program(1, 6, [0, 0x7f00_0000_0000, 0, 0x1000, 0x4000, 4096]));
    bytes.extend(notes);
    bytes.resize(bytes.len().max(0x2000), 0);
    bytes
}

#[test]
fn all_is_found() {
    let core = parse(&core()[..]).unwrap();
    assert_eq!(
        (core.pid, core.name.as_deref(), core.command.as_deref()),
        (Some(77), Some("prog"), Some("./prog -x"))
    );
    let starts: Vec<u64> = core.mappings.iter().map(|mapping| mapping.start).collect();
    assert_eq!(starts, [0x40_0000, 0x50_0000, 0x7f00_0000_0000, 0x7ffe_0000_0000]);
    let code = &core.mappings[1];
    assert_eq!((&*code.name, code.size(), code.dumped), ("/lib/left-out.so", 0x3000, Some(0)));
    let text = &core.mappings[0];
    assert_eq!((&*text.name, text.deleted, text.offset, text.dumped), ("/bin/prog", true, 3 * 4096, Some(0)));
    assert_eq!((text.perms.to_string().as_str(), core.mappings[2].dumped), ("r-xp", Some(4096)));
    let tasks: Vec<_> = core.tasks.list.iter().map(|task| (task.tid, task.stack_pointer)).collect();
    assert_eq!(tasks, [(77, Some(0x7ffe_0000_1000)), (78, Some(0x7f00_0000_0100))]);
    assert_eq!(
        (core.page, core.main_stack, core.vdso),
        (Some(4096), Some(0x7ffe_0000_1800), Some(0x7fff_0000))
    );
}

#[test]
fn what_was_cut_off_is_not_there() {
    let bytes = core();
    let dumped =
        |core: &CoreFile| core.mappings.iter().map(|mapping| mapping.dumped.unwrap()).collect::<Vec<_>>();
    let whole = parse(&bytes[..]).unwrap();
    assert_eq!((whole.cut, dumped(&whole)), (false, vec![0, 0, 0x1000, 0x2000]));
    let cut = parse(&bytes[..0x1800]).unwrap();
    assert_eq!((cut.cut, dumped(&cut)), (true, vec![0, 0, 0x1000, 0x1800]));
    assert!(!whole.notes_cut && !cut.notes_cut);
    // Within the notes: the file says how long they are.
    let head = 64 + 4 * 56;
    for length in [head, head + 1, head + 100, head + 700] {
        let cut = parse(&bytes[..length]).unwrap();
        assert!(cut.cut && cut.notes_cut && cut.mappings.len() < 4, "{length}");
    }
    // A note whose own length leads behind them.
    let mut odd = bytes.clone();
    odd[head + 4..head + 8].copy_from_slice(&0x1000_0000_u32.to_ne_bytes());
    assert!(parse(&odd[..]).unwrap().notes_cut);
}

/// As they would cost more time than the file has bytes.
#[test]
fn what_overlaps_is_read_once() {
    let mut files = words(&[4, 4096]);
    for (start, end) in
        [(0x40_0000, 0x40_2000), (0x10_0000, 1 << 47), (0x40_1000, 1 << 47), (0x50_0000, 0x50_1000)]
    {
        files.extend(words(&[start, end, 0]));
    }
    files.extend(b"/first\0/below\0/within\0/next\0");
    let bytes = with(&files, 1000);
    let core = parse(&bytes[..]).unwrap();
    let names: Vec<&str> = core.mappings.iter().map(|mapping| &*mapping.name).collect();
    assert_eq!(names, ["/first", "/next", "", ""]);
    // A note of a thread has more than 300 bytes.
    assert!(core.tasks.list.len() * 300 < bytes.len(), "{} threads", core.tasks.list.len());
}

#[test]
fn damage_is_no_end_of_ours() {
    let bytes = core();
    for end in 0..bytes.len() {
        let _ = parse(&bytes[..end]);
    }
    let mut odd = bytes.clone();
    for at in 0..bytes.len() {
        for value in [0, 0x7f, 0xff] {
            odd[at] = value;
            if let Ok(core) = parse(&odd[..]) {
                assert!(core.mappings.len() <= 32 && core.tasks.list.len() <= 5);
            }
        }
        odd[at] = bytes[at];
    }
    let mut none = bytes.clone();
    none[56..58].copy_from_slice(&0u16.to_ne_bytes());
    assert!(matches!(parse(&none[..]), Err(CoreError::Empty)));
    assert!(matches!(parse(&b"\x7fELF"[..]), Err(CoreError::Damaged(_) | CoreError::Foreign)));
    let program = std::fs::read("/bin/sh").unwrap();
    assert!(matches!(parse(&program[..]), Err(CoreError::NoCore)));
}
