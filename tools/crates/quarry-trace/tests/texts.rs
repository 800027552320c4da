// SPDX-License-Identifier: MIT
//! What tools put into a trace that is there: texts, and an end.

use std::fs::{self, File};

use quarry_trace::{AllocApi, End, Event, Head, Trace, TraceWriter, What, WriteOptions, end_cut_off};

fn text(n: usize) -> Vec<u8> {
    format!(r#"{{"text":"test/{n}","more":"{}"}}"#, "x".repeat(n)).into_bytes()
}

fn event(time: u64) -> Event {
    let what = What::Alloc { api: AllocApi::Malloc, size: 9, address: time * 16, align: 0, stack: 0 };
    Event { time, thread: 1, what }
}

fn texts(trace: &Trace) -> Vec<Vec<u8>> {
    trace.texts().collect()
}

fn copy(trace: &Trace, texts: &[Vec<u8>]) -> Trace {
    let mut bytes = Vec::new();
    trace.copy_with_texts(&mut bytes, texts).unwrap();
    let copy = Trace::of_bytes(bytes).unwrap();
    assert!(copy.damage().is_empty(), "{}", copy.damage());
    assert_eq!((copy.head(), copy.end()), (trace.head(), trace.end()));
    let events = |trace: &Trace| trace.events().map(Result::unwrap).collect::<Vec<_>>();
    assert_eq!(events(&copy), events(trace));
    copy
}

#[test]
fn texts_stand_anywhere_and_are_replaced_at_the_end() {
    let mut writer = TraceWriter::create(Vec::new(), &Head::default(), WriteOptions::default()).unwrap();
    writer.text(&text(1)).unwrap();
    (1..100).for_each(|time| writer.event(&event(time)).unwrap());
    writer.text(&text(2)).unwrap();
    let bytes = writer.finish(&End { reason: "exit".into(), ..End::default() }).unwrap();
    let trace = Trace::of_bytes(bytes).unwrap();
    assert_eq!(texts(&trace), [text(1), text(2)]);
    // One that is packed, one that gains nothing by it, and none.
    let with = copy(&trace, &[text(100_000), text(3)]);
    assert_eq!(texts(&with), [text(1), text(2), text(100_000), text(3)]);
    let other = copy(&with, &[text(4)]);
    assert_eq!(texts(&other), [text(1), text(2), text(4)]);
    assert_eq!(texts(&copy(&other, &[])), [text(1), text(2)]);
    // More than a reader takes is left out, and nothing else.
    assert_eq!(texts(&copy(&trace, &[text(2 << 20), text(5)])), [text(1), text(2), text(5)]);
}

#[test]
fn a_file_cut_within_its_texts() {
    let writer = TraceWriter::create(Vec::new(), &Head::default(), WriteOptions::default()).unwrap();
    let trace = Trace::of_bytes(writer.finish(&End::default()).unwrap()).unwrap();
    let mut bytes = Vec::new();
    trace.copy_with_texts(&mut bytes, &[text(10), text(3000)]).unwrap();
    for length in trace.bytes() as usize..bytes.len() {
        let cut = Trace::of_bytes(bytes[..length].to_vec()).unwrap();
        assert_eq!(cut.end(), trace.end());
        assert!(texts(&cut).iter().all(|found| found == &text(10)), "{length}");
    }
}

/// A block as a recorder begins it: without a sum.
fn block(kind: u8, payload: &[u8], span: usize) -> Vec<u8> {
    let mut bytes = vec![0; span];
    bytes[..8].copy_from_slice(&[b'Q', b'T', b'R', b'B', kind, 0, 1, 0]);
    bytes[8..12].copy_from_slice(&(span as u32).to_le_bytes());
    bytes[12..16].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    bytes[64..64 + payload.len()].copy_from_slice(payload);
    bytes
}

#[test]
fn an_end_comes_into_the_place_that_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.qtr");
    let head = br#"{"format":"quarry-trace/1","process":7,"grain":4096,"page":4096}"#;
    let end = End { reason: "crash".into(), signal: Some(11), events: 4, ..End::default() };
    let put = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let put = end_cut_off(&file, &end).unwrap();
        let trace = Trace::open(&path).unwrap();
        (put, trace.end().cloned(), trace.damage().count)
    };
    let first = block(1, head, 4096);
    // Not begun, begun, and written already.
    assert_eq!(put(&[&first[..], &[0; 8192]].concat()), (true, Some(end.clone()), 0));
    assert_eq!(put(&[&first[..], &block(3, b"", 4096), &[0; 4096]].concat()), (true, Some(end.clone()), 0));
    let exit = block(3, br#"{"reason":"exit"}"#, 4096);
    let (put_it, found, _) = put(&[&first[..], &exit].concat());
    assert_eq!((put_it, found.unwrap().reason), (false, "exit".into()));
    // Another block is in the place, or nothing says that one is kept.
    assert!(!put(&[&first[..], &block(2, b"", 4096)].concat()).0);
    let other = block(1, br#"{"format":"quarry-trace/1"}"#, 4096);
    assert!(!put(&[&other[..], &[0; 4096]].concat()).0);
}
