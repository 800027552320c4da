// SPDX-License-Identifier: MIT
//! Our own program, and files that are none.

use super::*;
use crate::{Root, smaps};

static VALUE: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(7);
static ZEROS: [std::sync::atomic::AtomicU8; 1 << 20] =
    [const { std::sync::atomic::AtomicU8::new(0) }; 1 << 20];
static CONSTANT: &str = "a string that is not code";

#[test]
fn variables_lie_where_the_layout_says() {
    let process = Root::live().process(std::process::id()).unwrap();
    let (mappings, _) = process.mappings().unwrap();
    let find = |address: usize| {
        let mapping = mappings.iter().find(|mapping| mapping.contains(address as u64)).unwrap();
        (mapping, mapping.inode)
    };
    let (code, inode) = find(variables_lie_where_the_layout_says as fn() as usize);
    let layout = Layout::read(Path::new(&*code.name), inode, crate::page_size()).unwrap();
    let place = layout.place(code).unwrap();
    assert_eq!(place.part, Part::Text);
    let section_of = |address: usize| {
        let address = address as u64;
        let found = layout.sections(place.moved, address, address + 1).map(|(name, _)| name.to_string());
        found.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(section_of(variables_lie_where_the_layout_says as fn() as usize), ".text");
    assert_eq!(section_of((&raw const VALUE) as usize), ".data");
    assert_eq!(section_of(CONSTANT.as_ptr() as usize), ".rodata");
    assert_eq!(section_of((&raw const ZEROS) as usize), ".bss");
    let (data, _) = find((&raw const VALUE) as usize);
    assert_eq!(layout.place(data).unwrap(), Place { part: Part::Data, moved: place.moved });
    let (constants, _) = find(CONSTANT.as_ptr() as usize);
    assert_eq!(layout.place(constants).unwrap(), Place { part: Part::Rodata, moved: place.moved });
    // The last page of zeros is beyond what the file has.
    let zero = ZEROS[ZEROS.len() - 1].as_ptr() as u64;
    assert!(layout.zeroed(place.moved).any(|(from, to)| (from..to).contains(&zero)));
}

#[test]
fn another_file_or_none_has_no_layout() {
    let sh = Path::new("/bin/sh");
    assert!(Layout::read(sh, 1, 4096).is_none(), "another inode");
    assert!(Layout::read(Path::new("/dev/null"), 1, 4096).is_none());
    assert!(Layout::parse(b"text", 4096).is_none());
    let bytes = std::fs::read(sh).unwrap();
    let (mappings, _) = smaps::read_all(&b"1000-2000 r-xp 0 0:0 5 /bin/sh\n"[..]).unwrap();
    for end in (0..bytes.len()).step_by(1 + bytes.len() / 500) {
        if let Some(layout) = Layout::parse(&bytes[..end], 4096) {
            let _ = layout.place(&mappings[0]);
            assert!(layout.zeroed(0).count() < 64 && layout.sections(0, 0, u64::MAX).count() < MOST);
        }
    }
    // Headers that say anything.
    let mut odd = bytes.clone();
    for at in 0..bytes.len().min(1200) {
        odd[at] ^= 0xff;
        if let Some(layout) = Layout::parse(&odd, 4096) {
            let _ = (layout.place(&mappings[0]), layout.zeroed(u64::MAX).count());
            let _ = layout.sections(u64::MAX, 0, u64::MAX).count();
        }
        odd[at] ^= 0xff;
    }
}
