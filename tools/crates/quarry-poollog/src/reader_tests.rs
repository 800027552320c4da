// SPDX-License-Identifier: MIT
//! Logs that are cut, torn, foreign, or noise.

use super::*;
use crate::record::{Entry, Event, Head, Name};

fn head(process: u32) -> Vec<u8> {
    let program = format!("prog{process}");
    Record::Head(Head { process, every: 300, start_ns: 7, program }).encode().to_vec()
}

fn name(process: u32, pool: u32) -> Vec<u8> {
    let (kind, name) = (String::from("fifo"), format!("pool{pool}"));
    Record::Name(Name { time_ns: 1, process, pool, parent: 0, kind, name }).encode().to_vec()
}

fn entry(process: u32, pool: u32, n: u64) -> Vec<u8> {
    let event = if n.is_multiple_of(3) { Event::ChunkGet } else { Event::Period };
    Record::Entry(Entry {
        time_ns: 1000 * n,
        process,
        pool,
        event,
        chunk_gets: n as u32,
        held: n * 65536,
        used: n * 300,
        requested: n * 1000,
        operations: n * 300,
        slow_ns: n,
    })
    .encode()
    .to_vec()
}

fn small_log() -> Vec<u8> {
    let mut log = [head(10), name(10, 1), name(10, 2)].concat();
    for n in 1..6 {
        log.extend([entry(10, 1, n), entry(10, 2, n)].concat());
    }
    log
}

/// Everything the reader finds; that the bytes add up is checked here.
fn read(log: &[u8]) -> Result<(Vec<Record>, Vec<Lost>), Error> {
    let mut reader = Reader::new(log)?;
    let (mut records, mut losses) = (Vec::new(), Vec::new());
    let mut at = 0;
    while let Some(item) = reader.next_item()? {
        match item {
            Item::Record(record) => {
                records.push(record);
                at += BYTES as u64;
            }
            Item::Lost(lost) => {
                assert_eq!(lost.offset, at);
                assert!(lost.bytes > 0);
                losses.push(lost);
                at += lost.bytes;
            }
        }
        assert_eq!(reader.offset(), at);
    }
    assert_eq!(at, log.len() as u64);
    Ok((records, losses))
}

fn records_of(log: &[u8]) -> Vec<Record> {
    log.chunks_exact(BYTES).map(|bytes| Record::decode(bytes.try_into().unwrap()).unwrap()).collect()
}

#[test]
fn a_sound_log_is_read_whole() {
    let log = small_log();
    let (records, losses) = read(&log).unwrap();
    assert_eq!(records, records_of(&log));
    assert_eq!(losses, []);
}

#[test]
fn a_log_cut_at_any_byte_loses_the_last_record_alone() {
    let log = small_log();
    assert!(matches!(read(&[]), Err(Error::Empty)));
    for cut in 1..log.len() {
        let (records, losses) = read(&log[..cut]).unwrap();
        assert_eq!(records, records_of(&log[..cut]), "cut at {cut}");
        let rest = cut % BYTES;
        let expected = Lost { offset: (cut - rest) as u64, bytes: rest as u64, why: Why::Ends };
        assert_eq!(losses, if rest == 0 { vec![] } else { vec![expected] }, "cut at {cut}");
    }
}

/// A process is killed while it writes, and the next one appends: out of step.
#[test]
fn a_log_that_goes_on_after_any_cut_loses_one_record() {
    let first = small_log();
    let second = [head(11), name(11, 1), entry(11, 1, 1)].concat();
    for cut in BYTES..first.len() {
        let log = [&first[..cut], &second].concat();
        let (records, losses) = read(&log).unwrap();
        let expected = [records_of(&first[..cut]), records_of(&second)].concat();
        assert_eq!(records, expected, "cut at {cut}");
        let rest = (cut % BYTES) as u64;
        assert_eq!(losses.iter().map(|lost| lost.bytes).sum::<u64>(), rest, "cut at {cut}");
        assert!(losses.iter().all(|lost| lost.offset == cut as u64 - rest), "cut at {cut}");
    }
}

/// The disk was full for a while; the same process writes on.
#[test]
fn a_gap_at_any_byte_loses_two_records_at_most() {
    let log = small_log();
    for cut in BYTES..log.len() - 2 * BYTES {
        for gap in [1, 63, 64, 65, 100] {
            let damaged = [&log[..cut], &log[cut + gap.min(log.len() - cut)..]].concat();
            let (records, _) = read(&damaged).unwrap();
            let missing = records_of(&log).len() - records.len();
            assert!(missing <= 1 + gap.div_ceil(BYTES), "cut at {cut}, gap {gap}: {missing} missing");
        }
    }
}

#[test]
fn other_files_are_refused() {
    for file in [&b"\x7fELF............"[..], b"QYPOOLS2", b"{}", &[0; 640]] {
        let foreign = read(file).unwrap_err();
        assert!(matches!(foreign, Error::Foreign), "{foreign}");
    }
}

#[test]
fn another_version_ends_the_reading() {
    let mut log = [head(10), name(10, 1), head(12)].concat();
    log[2 * BYTES + 18] = 9;
    let error = read(&log).unwrap_err();
    assert!(matches!(error, Error::Version(128, Bad::Version(9, 64))), "{error}");
    assert!(error.to_string().starts_with("at byte 128: a log of version 9"), "{error}");
}

#[test]
fn a_head_that_was_cut_at_any_byte_is_left_out() {
    for cut in 1..BYTES {
        let log = [small_log(), head(20)[..cut].to_vec(), head(30), entry(30, 1, 1)].concat();
        let (records, losses) = read(&log).unwrap();
        let expected = [records_of(&small_log()), records_of(&[head(30), entry(30, 1, 1)].concat())].concat();
        assert_eq!(records, expected, "cut at {cut}");
        assert_eq!(losses.iter().map(|lost| lost.bytes).sum::<u64>(), cut as u64, "cut at {cut}");
    }
}

#[test]
fn garbage_between_records_is_left_out() {
    let log = [head(10), name(10, 1), vec![0xA5; 1000], entry(10, 1, 1), vec![0; 77]].concat();
    let (records, losses) = read(&log).unwrap();
    assert_eq!(records.len(), 3);
    assert_eq!((losses[0].offset, losses[0].bytes), (128, 1000));
    assert_eq!((losses[1].offset, losses[1].bytes), (1192, 77));
}

/// A file that is larger than the buffer, from a reader that gives little at a time.
#[test]
fn records_lie_across_the_ends_of_the_buffer() {
    struct Trickle<'a>(&'a [u8]);
    impl Read for Trickle<'_> {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            let n = to.len().min(self.0.len()).min(4099);
            to[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }
    let mut log = [head(10), name(10, 1), vec![1; 13]].concat();
    let entries = 3 * BUFFER / BYTES;
    (1..=entries as u64).for_each(|n| log.extend(entry(10, 1, n)));
    let mut reader = Reader::new(Trickle(&log)).unwrap();
    let (mut found, mut lost) = (0, 0);
    while let Some(item) = reader.next_item().unwrap() {
        match item {
            Item::Record(_) => found += 1,
            Item::Lost(bytes) => lost += bytes.bytes,
        }
    }
    assert_eq!((found, lost), (entries + 2, 13));
}

#[test]
fn noise_does_no_harm() {
    // A linear congruence: any noise will do, and the same each time.
    let mut state = 1u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize
    };
    for _ in 0..2000 {
        let mut log = small_log();
        match random() % 3 {
            // All noise behind the mark.
            0 => (8..log.len()).for_each(|at| log[at] = random() as u8),
            // Some bytes changed.
            1 => (0..random() % 40).for_each(|_| {
                let at = 8 + random() % (log.len() - 8);
                log[at] = random() as u8;
            }),
            // Pieces of the log in any order.
            _ => {
                let pieces: Vec<Vec<u8>> = (0..8)
                    .map(|_| {
                        let from = random() % log.len();
                        log[from..log.len().min(from + random() % 200)].to_vec()
                    })
                    .collect();
                log = [MAGIC.to_vec(), pieces.concat()].concat();
            }
        }
        match read(&log) {
            Ok(_) | Err(Error::Version(..)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn an_error_of_the_file_names_the_byte() {
    struct Breaks(Vec<u8>);
    impl Read for Breaks {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() {
                return Err(io::Error::other("broken"));
            }
            let n = self.0.len();
            to[..n].copy_from_slice(&self.0);
            self.0.clear();
            Ok(n)
        }
    }
    let mut reader = Reader::new(Breaks(small_log()[..100].to_vec())).unwrap();
    let error = reader.next_item().unwrap_err();
    assert_eq!(error.to_string(), "at byte 100: broken");
}
