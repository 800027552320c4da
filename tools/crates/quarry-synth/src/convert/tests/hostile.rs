// SPDX-License-Identifier: MIT
//! Input that was cut, changed at random, or made to be large.

use super::*;
use quarry_symbols::Folding;

use crate::convert::csv::CsvTable;
use crate::convert::jeprof_write::{JeprofSink, Live};
use crate::convert::massif_write::MassifSink;
use crate::convert::profile::Profile;
use crate::convert::rows::{RowSink, Rows};

/// Read text of a format.
fn source(format: Format, bytes: &[u8]) -> Result<Box<dyn Source>, Error> {
    let input = Input::new(Cursor::new(bytes.to_vec()), bytes.len() as u64).map_err(Error::Read)?;
    Ok(match format {
        Format::Ms => Box::new(MsSource::new(input, Options::default())),
        Format::JsonLines => Box::new(JsonSource::new(input)?),
        Format::Heaptrack => Box::new(HeaptrackSource::new(input)?),
        _ => Box::new(MtraceSource::new(input)),
    })
}

fn texts() -> [(Format, Vec<u8>); 5] {
    let (plain, rich) = (scene(5, 120, Kind::Plain), scene(6, 120, Kind::Rich));
    let raw = b"v 10400 3\nx 6 /bin/a\nX ./a\nI 1000 5f1d9e\nm 1 -\nm 1 x 55d0 0 1000 2000 500\nt 55d1 0\nt 55d9 1\n+ 64 2 7fee10\nc 5\nR 8\n+ 1 0 7fee90\n- 7fee10\n- 7fee90\nm 1 -\n";
    [
        (Format::Ms, to_ms(&plain)),
        (Format::JsonLines, to_json(&rich)),
        (Format::Heaptrack, to_heaptrack(&rich)),
        (Format::Heaptrack, raw.to_vec()),
        (Format::Mtrace, to_mtrace(&plain)),
    ]
}

/// Whatever comes out of a source, every sink takes it or refuses it.
fn digest(items: &[Item]) {
    let head = head();
    let sinks: [Box<dyn Sink>; 9] = [
        Box::new(MassifSink::new(Vec::new(), &head, Folding::default())),
        Box::new(JeprofSink::new(Vec::new(), &head, Live::AtTheEnd, true)),
        Box::new(QtrSink::new(Vec::new(), &head, WriteOptions { packed: false }).unwrap()),
        Box::new(MsSink::new(Vec::new(), Options::default())),
        Box::new(JsonSink::new(Vec::new(), &head).unwrap()),
        Box::new(HeaptrackSink::new(Vec::new(), &head, Names::default()).unwrap()),
        Box::new(MtraceSink::new(Vec::new(), &head).unwrap()),
        Box::new(RowSink::new(CsvTable::new(Vec::new(), Rows::Events).unwrap(), Rows::Events, &head)),
        Box::new(RowSink::new(CsvTable::new(Vec::new(), Rows::Objects).unwrap(), Rows::Objects, &head)),
    ];
    for mut sink in sinks {
        let done =
            items.iter().try_for_each(|item| sink.item(item)).and_then(|()| sink.finish(&End::default()));
        if let Err(error) = done {
            assert!(matches!(error, Error::Write(_) | Error::Slots(_)), "{error}");
        }
    }
}

/// Read bytes to their end; a line that an error names must be there.
fn read(format: Format, bytes: &[u8]) -> bool {
    let lines = bytes.split(|&byte| byte == b'\n').count() as u64;
    let mut items = Vec::new();
    let error = match source(format, bytes) {
        Err(error) => Some(error),
        Ok(mut source) => {
            let mut error = None;
            while let Some(item) = source.next_item() {
                match item {
                    Ok(item) => items.push(item),
                    Err(bad) => {
                        error = Some(bad);
                        assert!(source.next_item().is_none(), "an error is the end");
                        break;
                    }
                }
            }
            let _ = (source.end(), source.remarks(), source.done(), source.damaged());
            error
        }
    };
    digest(&items);
    match &error {
        Some(Error::Line { line, .. }) => assert!((1..=lines).contains(line), "{error:?}"),
        Some(Error::Ms(error)) => assert!((1..=lines).contains(&error.line), "{error:?}"),
        Some(other) => panic!("{other}"),
        None => {}
    }
    error.is_none()
}

fn seed() -> u64 {
    let seed = std::env::var("QUARRY_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    println!("QUARRY_SEED={seed}");
    seed
}

#[test]
fn changed_text_does_no_harm() {
    let mut rng = Rng::new(seed());
    for (format, text) in texts() {
        assert!(read(format, &text), "{format:?}");
        let mut refused = 0;
        for _ in 0..600 {
            let mut bytes = text.clone();
            for _ in 0..1 + rng.below(4) {
                let at = rng.below(bytes.len());
                match rng.below(7) {
                    0 => bytes[at] ^= 1 << rng.below(8),
                    1 => drop(bytes.remove(at)),
                    2 => bytes.insert(at, rng.bits() as u8),
                    3 => bytes[at] = b"0123456789abcdefx=+-<>!@\"{}[],: \n"[rng.below(33)],
                    4 => bytes.truncate(at.max(1)),
                    5 => {
                        // A line twice, somewhere else.
                        let lines: Vec<&[u8]> = text.split_inclusive(|&byte| byte == b'\n').collect();
                        let line = lines[rng.below(lines.len())];
                        bytes.splice(at..at, line.iter().copied());
                    }
                    _ => {
                        // A number that is too large for most.
                        let digits = [&b"99999999999999999999"[..], b"ffffffffffffffff", b"4294967296", b"0"];
                        bytes.splice(at..at, digits[rng.below(4)].iter().copied());
                    }
                }
                if bytes.is_empty() {
                    bytes.push(b'\n');
                }
            }
            refused += u32::from(!read(format, &bytes));
        }
        assert!(refused > 20, "{format:?}: only {refused} were refused");
    }
}

/// Behind the last time there is, time stands still.
#[test]
fn time_does_not_begin_anew() {
    for (format, text) in [
        (Format::Heaptrack, &b"v 10300 3\nX a\nc ffffffffffffffff\na 10 0\n+ 0\n+ 0\n"[..]),
        (Format::JsonLines, b"{\"t\":18446744073709551615,\"op\":\"thread_end\"}\n{\"op\":\"thread_end\"}\n"),
    ] {
        let items = all(&mut *source(format, text).unwrap()).unwrap();
        let times: Vec<u64> = items
            .iter()
            .filter_map(|item| match item {
                Item::Event(event, _) => Some(event.time),
                Item::Stack(..) => None,
            })
            .collect();
        assert!(times.is_sorted() && times.ends_with(&[u64::MAX; 2]), "{format:?}: {times:?}");
        digest(&items);
    }
}

#[test]
fn random_bytes_do_no_harm() {
    let mut rng = Rng::new(seed());
    for (format, _) in texts() {
        for _ in 0..500 {
            let bytes: Vec<u8> = (0..1 + rng.below(300)).map(|_| rng.bits() as u8).collect();
            // What looks packed and is not is an error of reading, as it should be.
            if !bytes.starts_with(&[0x1f, 0x8b]) && !bytes.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
                read(format, &bytes);
            }
        }
    }
}

/// A file that is cut anywhere is read up to there, and the last line is not taken for something else.
#[test]
fn cut_text_is_read_as_far_as_it_goes() {
    for (format, text) in texts() {
        if format == Format::Ms {
            // A number that is cut is a number; only "3=" is noticed.
            continue;
        }
        let whole = all(&mut *source(format, &text).unwrap()).unwrap();
        let mut cuts = 0;
        for length in 1..text.len() {
            let Ok(mut cut) = source(format, &text[..length]) else {
                assert!(!text[..length].contains(&b'\n'), "{format:?}: cut at {length}");
                continue;
            };
            let items = all(&mut *cut).unwrap_or_else(|error| panic!("{format:?}: cut at {length}: {error}"));
            // But for the end of the thread, and a number that lost digits in the last line.
            let events: Vec<&Item> = items.iter().filter(|item| !is_end(item)).collect();
            let sure = events.len().saturating_sub(2);
            assert!(
                events.iter().zip(&whole).take(sure).all(|(a, b)| *a == b),
                "{format:?}: cut at {length}"
            );
            cuts += usize::from(cut.damaged());
        }
        assert!(cuts > text.len() / 10, "{format:?}: {cuts} of {}", text.len());
    }
}

fn is_end(item: &&Item) -> bool {
    matches!(item, Item::Event(Event { what: What::ThreadEnd, .. }, _))
}

#[test]
fn cut_packed_simulation_files_lose_their_last_word() {
    use crate::convert::output::{Output, Packing};
    use std::io::Write;
    let mut rng = Rng::new(3);
    let text: String = (0..30_000).map(|_| format!("{}={} ", rng.below(4000), rng.below(1 << 30))).collect();
    let whole = all(&mut *source(Format::Ms, text.as_bytes()).unwrap()).unwrap();
    for packing in [Packing::Gzip, Packing::Zstd] {
        let mut output = Output::new(Vec::new(), packing).unwrap();
        output.write_all(text.as_bytes()).unwrap();
        let (packed, _) = output.finish().unwrap();
        for part in 0..16 {
            let length = packed.len() / 2 + part * 1009;
            let mut cut = source(Format::Ms, &packed[..length]).unwrap();
            let items = all(&mut *cut).unwrap();
            let read = items.len() - 1;
            assert!(read > 1000 && items[..read] == whole[..read], "{packing:?}: {length}");
            assert!(cut.damaged() && cut.remarks()[0].contains("cut off in or behind line 1"), "{length}");
        }
        let mut cut = source(Format::Ms, &packed).unwrap();
        assert!(all(&mut *cut).unwrap() == whole && !cut.damaged() && cut.remarks().is_empty());
    }
}

#[test]
fn cut_packed_text_is_read_as_far_as_it_goes() {
    use crate::convert::output::{Output, Packing};
    use std::io::Write;
    let items = scene(8, 6000, Kind::Rich);
    for packing in [Packing::Gzip, Packing::Zstd] {
        let mut output = Output::new(Vec::new(), packing).unwrap();
        output.write_all(&to_json(&items)).unwrap();
        let (packed, _) = output.finish().unwrap();
        let mut cut = source(Format::JsonLines, &packed[..packed.len() * 9 / 10]).unwrap();
        let read = all(&mut *cut).unwrap();
        assert!(
            read.len() > items.len() / 2 && read[..] == items[..read.len()],
            "{packing:?}: {}",
            read.len()
        );
        assert!(cut.damaged() && cut.remarks()[0].contains("cut off"), "{:?}", cut.remarks());
        // Damaged rather than cut.
        let mut bad = packed.clone();
        let middle = bad.len() / 2;
        bad[middle..middle + 20].fill(0xa5);
        let read = source(Format::JsonLines, &bad).and_then(|mut source| all(&mut *source));
        assert!(matches!(read, Err(Error::Read(_) | Error::Line { .. })), "{packing:?}");
    }
}

#[test]
fn a_line_without_end_takes_bounded_memory() {
    struct Endless(u64);
    impl std::io::Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            self.0 += buffer.len() as u64;
            assert!(self.0 < 100 << 20, "it reads on and on");
            buffer.fill(b'{');
            Ok(buffer.len())
        }
    }
    let Err(error) = JsonSource::new(Input::new(Endless(0), 0).unwrap()) else { panic!("it is no JSON") };
    assert!(error.to_string().contains("line 1: longer than"), "{error}");
}

#[test]
fn bombs_are_read_in_bounded_memory() {
    use crate::convert::output::{Output, Packing};
    use std::io::Write;
    // 32 MiB of white space in a few KiB.
    let mut output = Output::new(Vec::new(), Packing::Zstd).unwrap();
    let mut block = vec![b' '; 1 << 20];
    block[..1000].fill(b'\n');
    (0..32).for_each(|_| output.write_all(&block).unwrap());
    let (packed, _) = output.finish().unwrap();
    assert!(packed.len() < 100_000);
    assert!(all(&mut *source(Format::JsonLines, &packed).unwrap()).unwrap().is_empty());
}

/// Profiles as their tools write them, and as they are written here.
fn profiles() -> Vec<(Format, Vec<u8>)> {
    let rich = scene(7, 80, Kind::Rich);
    let (mut massif, mut plain, mut named) = (Vec::new(), Vec::new(), Vec::new());
    give(&mut MassifSink::new(&mut massif, &head(), Folding::default()), &rich);
    give(&mut JeprofSink::new(&mut plain, &head(), Live::AtTheEnd, false), &rich);
    give(&mut JeprofSink::new(&mut named, &head(), Live::AtThePeak, true), &rich);
    let seed = |name: &str| {
        let path = format!("{}/../../fuzz/corpus/profile/{name}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read(path).unwrap()
    };
    vec![
        (Format::Massif, massif),
        (Format::Jeprof, plain),
        (Format::Jeprof, named),
        (Format::Massif, seed("massif")),
        (Format::Jeprof, seed("jemalloc")),
        (Format::Jeprof, seed("gperftools")),
    ]
}

fn read_profile(format: Format, bytes: &[u8]) -> Result<Profile, Error> {
    let lines = bytes.split(|&byte| byte == b'\n').count() as u64;
    let read = Profile::read(format, input(bytes), |symbols| symbols);
    if let Err(error) = &read {
        assert!(matches!(error, Error::Line { line, .. } if (1..=lines).contains(line)), "{error}");
    }
    read
}

#[test]
fn profiles_that_were_cut_or_changed() {
    let mut rng = Rng::new(seed());
    for (format, bytes) in profiles() {
        let whole = read_profile(format, &bytes).unwrap();
        assert!(!whole.damaged && !whole.stacks.is_empty(), "{}", String::from_utf8_lossy(&bytes));
        for length in (0..bytes.len()).step_by(bytes.len() / 500 + 1) {
            let _ = read_profile(format, &bytes[..length]);
        }
        for _ in 0..500 {
            let mut changed = bytes.clone();
            for _ in 0..1 + rng.below(3) {
                let at = rng.below(changed.len());
                changed[at] = rng.bits() as u8;
            }
            let _ = read_profile(format, &changed);
        }
    }
    let deep: String =
        (0..100_000).map(|depth| format!("{:depth$}n1: 5 0x1: f\n", "", depth = depth.min(9))).collect();
    let head = "cmd: a\ntime_unit: i\nsnapshot=0\ntime=0\nmem_heap_B=5\nmem_heap_extra_B=0\nmem_stacks_B=0\nheap_tree=peak\n";
    let error = read_profile(Format::Massif, (head.to_owned() + &deep).as_bytes()).unwrap_err();
    assert!(error.to_string().contains("so deep or wide"), "{error}");
}
