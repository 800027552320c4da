// SPDX-License-Identifier: MIT
//! Tests of the reader and writer of simulation files.

use super::*;
use Command::{Alloc, End, Free, Stats};

/// Gives so many bytes at a time.
struct Dribble<'a>(&'a [u8], usize);

impl Read for Dribble<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.1.min(self.0.len()).min(buffer.len());
        buffer[..n].copy_from_slice(&self.0[..n]);
        self.0 = &self.0[n..];
        Ok(n)
    }
}

fn alloc(slot: u32, size: u64) -> Command {
    Alloc { slot, size }
}

fn free(slot: u32) -> Command {
    Free { slot }
}

fn read(text: &str) -> Vec<Command> {
    parse(text.as_bytes()).unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

fn refused(text: &str) -> String {
    parse(text.as_bytes()).expect_err(text).to_string()
}

#[test]
fn the_example_of_the_original() {
    let text = "0=123 0 1=31 1 s\n1=123 2=31 2 1 s e\n";
    let expected = [
        alloc(0, 123),
        free(0),
        alloc(1, 31),
        free(1),
        Stats,
        alloc(1, 123),
        alloc(2, 31),
        free(2),
        free(1),
        Stats,
        End,
    ];
    assert_eq!(read(text), expected);
}

#[test]
fn what_follows_from_the_original_s_way_of_reading() {
    assert_eq!(read("3 =5\n"), [free(3), free(5)]);
    assert_eq!(read("3= 5\n"), [alloc(3, 5)]);
    assert_eq!(read("3=s 5\n"), [Stats, alloc(3, 5)]);
    assert_eq!(read("3=5=7\n"), [alloc(5, 7)]);
    assert_eq!(read("3==5\n"), [alloc(3, 5)]);
    assert_eq!(read("s=5\n"), [Stats, free(5)]);
    assert_eq!(read("=\n = 5"), [free(5)]);
    assert_eq!(read("3=\n\n 5\n"), [alloc(3, 5)]);
    assert_eq!(read("stats s2 s\n"), [Stats; 3]);
    assert_eq!(read("007=010\n"), [alloc(7, 10)]);
}

#[test]
fn an_e_ends_it_anywhere() {
    assert_eq!(read("1 e 2"), [free(1), End]);
    assert_eq!(read("1 2e3 4"), [free(1), End]);
    assert_eq!(read("e"), [End]);
    assert_eq!(read("3=e"), [End]);
    assert_eq!(read("1 size 5"), [free(1), End], "a word with an e in it");
    // What follows is not read, so it may be anything.
    assert_eq!(read("1 e !! 99999999999"), [free(1), End]);
}

#[test]
fn the_end_of_the_file() {
    assert_eq!(read(""), []);
    assert_eq!(read(" \n\n"), []);
    assert_eq!(read("3=5 3"), [alloc(3, 5), free(3)], "no newline at the end");
    assert_eq!(read("3=5"), [alloc(3, 5)]);
    assert_eq!(read("s"), [Stats]);
    assert_eq!(
        refused("1\n3="),
        "line 2, column 1: the file ends before the size of slot 3: was it cut off?"
    );
    assert_eq!(refused("3=s"), "line 1, column 1: the file ends before the size of slot 3: was it cut off?");
}

#[test]
fn zero_bytes_and_white_space() {
    assert_eq!(read("1\x002\0\x003=4\0"), [free(1), free(2), alloc(3, 4)]);
    assert_eq!(read("1\t2\r\n\r\n3=4\r\n"), [free(1), free(2), alloc(3, 4)]);
    let after = format!("0=1 0\0{}7\n", " ".repeat(300));
    assert_eq!(read(&after), [alloc(0, 1), free(0), free(7)], "nothing is skipped behind a zero byte");
}

#[test]
fn what_is_no_command_is_refused_where_it_stands() {
    for (text, message) in [
        ("1 2\n3 x=1", "line 2, column 3: 'x' is no command"),
        ("1=5k", "line 1, column 3: '5k' is no command"),
        ("-1=5", "line 1, column 1: '-1' is no command"),
        ("+1", "line 1, column 1: '+1' is no command"),
        ("1.5", "'1.5' is no command"),
        ("\u{fc}", r"'\xc3\xbc' is no command"),
        ("0=1\n\n\n  4096", "line 4, column 3: slot 4096 is above 4095: renumber the slots, or say --wide"),
        ("67108864=1", "slot 67108864 is above 67108863"),
        ("99999999999999999999=1", "slot 99999999999999999999 is above 67108863"),
        ("0=18446744073709551616", "line 1, column 3: the size 18446744073709551616 has more than 64 bits"),
    ] {
        let said = refused(text);
        assert!(said.contains(message), "{text:?}: {said}");
    }
    let long = "9".repeat(1000);
    assert!(refused(&long).len() < 200);
    assert!(refused(&format!("0={long}")).contains("has more than 64 bits"));
    assert_eq!(read(&format!("0={}7", "0".repeat(1000))), [alloc(0, 7)]);
}

#[test]
fn after_an_error_nothing_follows() {
    let mut reader = Reader::new(&b"1 x 2"[..], Options::default());
    assert_eq!(reader.next().unwrap().unwrap(), free(1));
    assert!(reader.next().unwrap().is_err());
    assert!(reader.next().is_none());
    assert_eq!(reader.offset(), 4);
}

#[test]
fn slots_and_sizes_at_their_limits() {
    assert_eq!(read("4095=18446744073709551615 4095"), [alloc(4095, u64::MAX), free(4095)]);
    let wide = Options { wide: true };
    assert_eq!(parse_with(&b"4096=1 67108863"[..], wide).unwrap(), [alloc(4096, 1), free(67_108_863)]);
    assert!(parse_with(&b"67108864"[..], wide).is_err());
}

#[test]
fn an_unreadable_file_says_so() {
    struct Broken(bool);
    impl Read for Broken {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if std::mem::replace(&mut self.0, true) {
                return Err(io::Error::other("the disk is on fire"));
            }
            buffer[..2].copy_from_slice(b"1\n");
            Ok(2)
        }
    }
    let said = parse(Broken(false)).unwrap_err().to_string();
    assert_eq!(said, "line 2, column 1: cannot read any further: the disk is on fire");
}

#[test]
fn words_straddle_reads() {
    let mut text = String::new();
    let mut expected = Vec::new();
    for n in 0..4096 {
        text += &format!("{n}={} ", n * 1_000_003);
        expected.push(alloc(n, u64::from(n) * 1_000_003));
        if n % 7 == 0 {
            text += "s\n";
            expected.push(Stats);
        }
    }
    for step in [1, 2, 3, 255, 256, 257, 65_535] {
        let read: Vec<_> = parse(Dribble(text.as_bytes(), step)).unwrap();
        assert_eq!(read, expected, "reads of {step} bytes");
    }
    // A word over each of the boundaries of a reader that takes 256 bytes at a time.
    for shift in 0..512 {
        let text = format!("{}1234=567890 s 1234\n", " ".repeat(shift));
        let read = parse(Dribble(text.as_bytes(), 256)).unwrap();
        assert_eq!(read, [alloc(1234, 567_890), Stats, free(1234)], "shift {shift}");
    }
    // The same over the boundary of our own buffer.
    let text = format!("{}1234=567890 1234", "\n".repeat(BUFFER - 5));
    assert_eq!(read(&text), [alloc(1234, 567_890), free(1234)]);
}

#[test]
fn the_writer_is_read_back() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |n: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    };
    for length in (0..40).chain([1000, 100_000]) {
        let mut commands: Vec<Command> = (0..length)
            .map(|_| match next(10) {
                0 => Stats,
                1..4 => free(next(4096) as u32),
                _ => alloc(next(4096) as u32, next(1 << 31) << next(30)),
            })
            .collect();
        if length % 3 == 0 {
            commands.push(End);
        }
        let mut writer = Writer::new(Vec::new());
        commands.iter().for_each(|&command| writer.command(command).unwrap());
        let text = writer.finish().unwrap();
        assert_eq!(parse(&text[..]).unwrap(), commands);
        assert!(text.is_empty() || text.ends_with(b"\n"));
        let lines: Vec<_> = text.split(|&byte| byte == b'\n').collect();
        assert_eq!(lines.len(), commands.len().div_ceil(8) + 1);
        assert!(lines.iter().all(|line| line.split(|&byte| byte == b' ').count() <= 8));
    }
}

/// Any bytes give commands or an error that names a place in them, and the same in pieces of any size.
#[test]
fn anything_may_be_read() {
    let seed = std::env::var("QUARRY_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1_u64);
    println!("QUARRY_SEED={seed}");
    let mut state = seed;
    let mut next = |n: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % n
    };
    const LIKELY: &[u8] = b"0123456789 \n==s";
    for _ in 0..20_000 {
        let mut bytes: Vec<u8> = (0..next(60)).map(|_| LIKELY[next(LIKELY.len())]).collect();
        for _ in 0..next(3) {
            let at = next(bytes.len() + 1);
            bytes.insert(at, next(256) as u8);
        }
        let whole = parse(&bytes[..]);
        let pieces = parse(Dribble(&bytes, 1 + next(5)));
        match (whole, pieces) {
            (Ok(whole), Ok(pieces)) => assert_eq!(whole, pieces),
            (Err(whole), Err(pieces)) => {
                assert_eq!(whole.to_string(), pieces.to_string());
                let lines: Vec<_> = bytes.split(|&byte| byte == b'\n').collect();
                let line = lines[usize::try_from(whole.line).unwrap() - 1];
                assert!(whole.column as usize <= line.len(), "{bytes:?}: {whole}");
            }
            (whole, pieces) => panic!("{bytes:?}: {whole:?} but {pieces:?}"),
        }
    }
}
