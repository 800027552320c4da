// SPDX-License-Identifier: MIT
//! smaps as kernels write it, and as nobody should.

use super::*;
use crate::Space;
use crate::check::check;
use crate::classify::{Files, classify};
use crate::sum::{By, groups, total};

const TEXT: &str = "\
55d0c0a00000-55d0c0a02000 r-xp 00001000 fe:00 247741                     /usr/bin/my prog
Size:                  8 kB
KernelPageSize:        4 kB
MMUPageSize:           4 kB
Rss:                   8 kB
Pss:                   4 kB
Shared_Clean:          8 kB
Private_Clean:         0 kB
Anonymous:             0 kB
THPeligible:           0
Newcomer:             12 kB
VmFlags: rd ex mr mw me 
7f0000000000-7f0003200000 rw-s 00000000 00:01 1033                       /dev/zero (deleted)
Size:              51200 kB
KernelPageSize:        4 kB
MMUPageSize:           4 kB
Rss:               51200 kB
Pss:               51200 kB
Shared_Clean:          0 kB
Private_Clean:         0 kB
Anonymous:             0 kB
THPeligible:           0
VmFlags: rd wr sh mr mw me ms nr 
";

fn all(text: &[u8]) -> (Vec<Mapping>, Damage) {
    read_all(text).unwrap()
}

#[test]
fn as_the_kernel_writes_it() {
    let (mappings, damage) = all(TEXT.as_bytes());
    assert_eq!((mappings.len(), damage.sentence()), (2, None));
    let [text, zero] = &mappings[..] else { panic!() };
    assert_eq!((text.start, text.end, text.offset), (0x55d0_c0a0_0000, 0x55d0_c0a0_2000, 0x1000));
    assert_eq!((text.device, text.inode, &*text.name), ((0xfe, 0), 247_741, "/usr/bin/my prog"));
    assert_eq!(text.counters.get(Field::Pss), Some(4096));
    assert_eq!(text.counters.get(Field::Swap), None);
    assert!(text.perms.exec && !text.perms.shared && !text.deleted && text.flags.has(b"ex"));
    assert_eq!((&*zero.name, zero.deleted, zero.size()), ("/dev/zero", true, 50 << 20));
    assert_eq!((zero.mode().as_str(), zero.counters.get(Field::Rss)), ("rw-sR", Some(50 << 20)));
}

/// What this kernel counts is known by its name; what a later one adds is kept as it is written.
#[test]
fn every_counter_is_kept() {
    let text = "1000-2000 rw-p 00000000 00:00 0\nRss: 4 kB\nTHPeligible:    1\nProtectionKey:         3\n\
                Newcomer:   12 kB\nNodes_2:  7\nPolicy:  bind 0-1\nNewcomer:  16 kB\nVmFlags: rd\n\
                2000-3000 rw-p 00000000 00:00 0\nRss: 4 kB\nTHPeligible:    0\nProtectionKey:  0\nNewcomer: 8 kB\n";
    let (mappings, damage) = all(text.as_bytes());
    assert_eq!((mappings.len(), damage.sentence()), (2, None));
    let counters = &mappings[0].counters;
    assert_eq!((counters.get(Field::ThpEligible), counters.get(Field::ProtectionKey)), (Some(1), Some(3)));
    let told = |mapping: &Mapping| {
        mapping.others.iter().map(|other| (other.name.to_string(), other.value.clone())).collect::<Vec<_>>()
    };
    assert_eq!(
        told(&mappings[0]),
        [
            ("Nodes_2".into(), OtherValue::Number(7)),
            ("Policy".into(), OtherValue::Text("bind 0-1".into())),
            ("Newcomer".into(), OtherValue::Bytes(16 << 10)),
        ]
    );
    assert_eq!(told(&mappings[1]), [("Newcomer".into(), OtherValue::Bytes(8 << 10))]);
    assert!(Arc::ptr_eq(&mappings[0].others[2].name, &mappings[1].others[0].name));
    // Numbers without a unit are no sizes: they are not added up.
    let mut sum = Counters::default();
    mappings.iter().for_each(|mapping| sum.add(&mapping.counters));
    assert_eq!((sum.get(Field::Rss), sum.get(Field::ThpEligible)), (Some(8192), None));
    assert_eq!(all(b"1-2 rw-p 0 0:0 0\nTHPeligible: 4 kB\nProtectionKey: x\n").1.lines, 2);
}

/// A file may have any number of names.
#[test]
fn so_many_unknown_counters_are_kept_and_no_more() {
    let mut text = String::from("1000-2000 rw-p 00000000 00:00 0\nRss: 4 kB\n");
    for number in 0..1000 {
        text += &format!("Name{number}: 4 kB\n");
    }
    let (mappings, damage) = all(text.as_bytes());
    assert_eq!((mappings[0].others.len(), damage.sentence()), (OTHERS, None));
}

/// Of the kernel that runs here nothing is unknown.
#[test]
fn this_kernel_has_no_counter_that_is_not_known() {
    let Ok(text) = std::fs::read("/proc/self/smaps") else { return };
    let (mappings, _) = all(&text);
    let unknown: Vec<&str> = mappings[0].others.iter().map(|other| &*other.name).collect();
    assert!(unknown.is_empty(), "{unknown:?}: add it to counters.rs with its meaning, and to docs/map.md");
}

#[test]
fn maps_has_no_counters() {
    let maps = "00400000-00401000 r--p 00000000 00:00 0 \n00401000-00402000 ---p 00000000 00:00 0\n\
                ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n";
    let (mappings, damage) = all(maps.as_bytes());
    assert_eq!((mappings.len(), damage.sentence()), (3, None));
    assert!(mappings.iter().all(|mapping| mapping.counters.is_empty() && !mapping.flags.is_known()));
    assert_eq!((&*mappings[0].name, &*mappings[2].name), ("", "[vsyscall]"));
}

#[test]
fn what_is_none_of_it_is_counted() {
    let text = format!("Rss: 4 kB\nnonsense\n{TEXT}Rss: many kB\n1-2 rw-p\n9-8 rw-p 0 0:0 0\n");
    let (mappings, damage) = all(text.as_bytes());
    assert_eq!(mappings.len(), 2);
    assert_eq!((damage.lines, damage.first), (5, 1));
    let text = format!("{TEXT}{TEXT}");
    assert_eq!(all(text.as_bytes()).1.unordered, 1);
}

/// While the text was read, the heap grew, and the kernel looked for what lies behind where it had ended.
#[test]
fn a_mapping_that_grew_meanwhile_counts_once() {
    let piece = |range: &str, rss: u64| format!("{range} rw-p 00000000 00:00 0\nRss: {rss} kB\n");
    let read = |pieces: &[String]| {
        let (mappings, damage) = all(pieces.concat().as_bytes());
        let rss = mappings.iter().map(|mapping| mapping.counters.get(Field::Rss).unwrap()).sum::<u64>() >> 10;
        (mappings.len(), rss, damage.unordered)
    };
    let (before, behind) = (piece("1000-3000", 8), piece("9000-a000", 4));
    let (small, grown) = (piece("4000-6000", 8), piece("4000-8000", 16));
    assert_eq!(read(&[before.clone(), small.clone(), grown.clone(), behind.clone()]), (3, 28, 0));
    assert_eq!(
        read(&[before.clone(), small.clone(), grown.clone(), piece("4000-9000", 20), behind.clone()]),
        (3, 32, 0)
    );
    assert_eq!(read(&[small.clone(), grown.clone()]), (1, 16, 0));
    // What lies over another one in another way is told as before, and stays.
    assert_eq!(read(&[small.clone(), piece("5000-8000", 12)]), (2, 20, 1));
    assert_eq!(read(&[grown.clone(), small.clone()]), (2, 24, 1));
    assert_eq!(read(&[before, small, piece("1000-8000", 28)]), (3, 44, 1));
    assert_eq!(read(&[grown, behind, piece("4000-8000", 16)]), (3, 36, 1));
}

/// What copies go through: Windows, terminals, editors that cut off blanks, and kernels of telephones.
#[test]
fn copies_are_read_as_what_they_were() {
    let windows = TEXT.replace('\n', "\r\n");
    let cut = TEXT.lines().map(str::trim_end).collect::<Vec<_>>().join("\n") + "\n";
    let terminal = TEXT.replace('\n', "\r\r\n");
    // Filled up to the width of a terminal, indented as in mail, with an empty line behind each, and with tabs.
    let filled = TEXT.lines().map(|line| format!("{line:<90}\n")).collect::<String>();
    let indented = TEXT.lines().map(|line| format!("    {line}\n")).collect::<String>();
    let spaced = TEXT.replace('\n', "\r\n\r\n");
    let tabs = TEXT.replace("        ", "\t").replace(" 00:01 1033", "\t00:01\t1033");
    for text in [&windows, &terminal, &cut, &filled, &indented, &spaced, &tabs] {
        assert!(is_one(text.as_bytes()));
        assert_eq!(read_saved(text.as_bytes()).unwrap(), all(TEXT.as_bytes()), "{text:?}");
    }
    let heap = "1000-2000 rw-p 0 0:0 0 [heap]  \n2000-3000 rw-p 0 0:0 0 /a (deleted)\t\n";
    let (mappings, _) = read_saved(heap.as_bytes()).unwrap();
    assert_eq!((&*mappings[0].name, &*mappings[1].name, mappings[1].deleted), ("[heap]", "/a", true));
    // The kernel itself writes no carriage return that is not a part of a name.
    let odd = "1000-2000 r-xp 0 0:0 5 /bin/odd\r\n";
    assert_eq!(&*all(odd.as_bytes()).0[0].name, "/bin/odd\r");
    assert_eq!(&*read_saved(odd.as_bytes()).unwrap().0[0].name, "/bin/odd");
    let returns = TEXT.replace('\n', "\r");
    assert!(!is_one(returns.as_bytes()) && read_saved(returns.as_bytes()).unwrap().0.is_empty());
    let mixed = TEXT.replacen("my prog\n", "my prog\r", 1);
    assert!(read_saved(mixed.as_bytes()).unwrap().1.lines > 0);
    let android =
        "7000-9000 rw-p 00000000 00:00 0\nName:           [anon:libc_malloc]\nSize: 8 kB\nRss: 4 kB\n";
    assert_eq!(&*all(android.as_bytes()).0[0].name, "[anon:libc_malloc]");
    let old = "1000-2000 rw-p 00000000 00:00 0          [heap]\nSize: 4 kB\nRss: 4 kB\nReferenced: 4 kB\n";
    assert_eq!(all(old.as_bytes()).1.sentence(), None);
}

#[test]
fn a_counter_that_is_missing_anywhere_is_noticed() {
    for (lost, incomplete, cut) in
        [("Rss:                   8 kB\n", 1, false), ("Rss:               51200 kB\n", 0, true)]
    {
        let (mappings, damage) = all(TEXT.replace(lost, "").as_bytes());
        assert_eq!((mappings.len(), damage.incomplete, damage.cut), (2, incomplete, cut), "{lost}");
        assert!(damage.sentence().is_some());
    }
    // In the middle of three; and a mapping of maps among those of smaps.
    let third = TEXT.replace("55d0c0a", "7fd0c0a");
    let maps = "7f1000000000-7f1000001000 rw-p 0 0:0 0\n";
    let text = format!("{TEXT}{maps}{third}");
    assert!(all(text.as_bytes()).1.incomplete == 1, "{:?}", all(text.as_bytes()).1);
}

#[test]
fn what_begins_like_a_map_is_told() {
    for text in [TEXT, "1-2 ---p 0 0:0 0", "\n\nScript started\n1-2 rw-p 0 0:0 0 [heap]\r\n"] {
        assert!(is_one(text.as_bytes()), "{text}");
    }
    for text in ["", "Rss: 4 kB\n", "QTRB\x01", "#!/bin/sh\n", "1-2 rw-p\n"] {
        assert!(!is_one(text.as_bytes()), "{text}");
    }
}

#[test]
fn an_end_within_a_mapping_is_noticed() {
    let lines: Vec<usize> = TEXT.match_indices('\n').map(|(at, _)| at + 1).collect();
    // Without its flags nothing is missing that could be known; without a counter something is.
    assert!(all(&TEXT.as_bytes()[..lines[lines.len() - 4]]).1.cut);
    assert!(all(&TEXT.as_bytes()[..TEXT.len() - 1]).1.cut);
    assert!(!all(TEXT.as_bytes()).1.cut);
}

#[test]
fn a_rollup_is_one_mapping() {
    let text = b"56457f17d000-7ffc108be000 ---p 00000000 00:00 0                          [rollup]\nRss: 1620 kB\nPss: 276 kB\n";
    assert_eq!(rollup(text).unwrap().get(Field::Rss), Some(1620 << 10));
    assert!(rollup(TEXT.as_bytes()).is_none() && rollup(b"").is_none());
    assert!(rollup(b"1-2 ---p 0 0:0 0 [rollup]\n").is_none());
    assert!(is_rollup(text) && !is_one(text), "a map of it would have a mapping of 42 TiB");
    assert!(is_one(TEXT.as_bytes()) && !is_rollup(TEXT.as_bytes()) && !is_rollup(b""));
}

#[test]
fn names_are_kept_once() {
    let (mappings, _) = all(format!("{TEXT}{TEXT}").as_bytes());
    assert!(Arc::ptr_eq(&mappings[0].name, &mappings[2].name));
}

/// Small numbers from a seed, the same everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

#[test]
fn no_prefix_and_no_flipped_bytes_make_it_fail() {
    for end in 0..=TEXT.len() {
        let (mappings, _) = all(&TEXT.as_bytes()[..end]);
        assert!(mappings.len() <= 2);
    }
    let seed = std::env::var("QUARRY_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_261_122);
    println!("QUARRY_SEED={seed}");
    let mut random = Random(seed | 1);
    for _ in 0..10_000 {
        let mut bytes = TEXT.as_bytes().to_vec();
        for _ in 0..=random.below(8) {
            let at = random.below(bytes.len());
            match random.below(3) {
                0 => bytes[at] = random.below(256) as u8,
                1 => drop(bytes.drain(at..(at + random.below(40)).min(bytes.len()))),
                _ => bytes.insert(at, b" -:/\n0f[]("[random.below(10)]),
            }
            if bytes.is_empty() {
                break;
            }
        }
        let (mappings, damage) = all(&bytes);
        let _ = (rollup(&bytes), damage.sentence());
        assert!(mappings.iter().all(|mapping| mapping.start <= mapping.end));
        let space = Space::of_mappings(mappings, damage);
        let classes = classify(&space, &mut Files::default());
        let sum = total(&space.mappings, &classes);
        let _ = check(&space, &classes, &sum);
        let members: usize =
            groups(&space.mappings, &classes, By::Object, |_| true).iter().map(|g| g.members.len()).sum();
        assert_eq!((members, sum.count), (classes.len(), classes.len() as u64));
    }
}
