// SPDX-License-Identifier: MIT
//! Logs made here, as they are reported.

use quarry_poollog::record::{Bad, Event, Head, Name, Record};

use super::*;

const SECOND: u64 = 1_000_000_000;

/// A program with a pool of two thousand entries, its child pool, and a process whose head is lost.
pub(super) fn log() -> Log {
    let mut summary = Summary::default();
    let head = Head { process: 40, every: 300, start_ns: 0, program: String::from("p<b>") };
    summary.add(Record::Head(head));
    for (pool, parent, name) in [(1, 0, "a&b"), (2, 1, "inner")] {
        let name = name.to_owned();
        let kind = String::from("fifo");
        summary.add(Record::Name(Name { time_ns: SECOND, process: 40, pool, parent, kind, name }));
    }
    let entry = |process, pool, event, n: u64| Entry {
        time_ns: SECOND + n * 1_000_000,
        process,
        pool,
        event,
        chunk_gets: (n / 500) as u32,
        held: 1 << 20,
        used: (n % 100) << 10,
        requested: n * 3000,
        operations: n * 300,
        slow_ns: n * 1000,
    };
    for n in 1..=2000 {
        let event = if n % 500 == 0 { Event::ChunkGet } else { Event::Period };
        summary.add(Record::Entry(entry(40, 1, event, n)));
    }
    summary.add(Record::Entry(entry(40, 1, Event::Death, 2001)));
    summary.add(Record::Entry(entry(41, 7, Event::Reset, 5)));
    Log { file: String::from("some.log"), bytes: 64 * 2005, summary, damage: Damage::default() }
}

#[test]
fn one_is_no_plural() {
    let mut one = log();
    one.summary.processes[0].head.as_mut().unwrap().every = 1;
    one.damage.count = 1;
    one.damage.bytes = 1;
    assert_eq!(one.complaints(), ["some.log: and 1 more place; 1 byte left out in all"]);
    let shown = text(&[one], &Filter::All, Style::default());
    assert_eq!(shown.lines().next(), Some("p<b> (40), an entry for every operation"));
}

#[test]
fn the_table_has_a_part_for_each_process() {
    let shown = text(&[log()], &Filter::All, Style::default());
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines[0], "p<b> (40), an entry for every 300 operations");
    let pool: Vec<&str> = lines[2].split_whitespace().collect();
    // Number, kind, name, parent, 600 300 operations in 2.001 s.
    assert_eq!(pool[..9], ["1", "fifo", "a&b", "-", "600", "300", "300", "000", "18"], "{shown}");
    assert!(lines[2].contains("1.00 MiB") && lines[2].contains("99.0 KiB"), "{shown}");
    assert!(lines[3].contains("inner") && lines[3].contains("not destroyed"), "{shown}");
    assert!(shown.contains("process 41 (its first record is lost)"), "{shown}");
    // 128 320 bytes for 600 300 operations.
    assert!(
        shown
            .ends_with("125 KiB of log, 2 002 entries, 600 300 operations; 209 KiB per million operations\n")
    );
}

#[test]
fn only_what_is_asked_for_is_shown() {
    let log = log();
    for (wish, expected) in [("inner", vec![1]), ("7", vec![2]), ("1", vec![0]), ("none", vec![])] {
        assert_eq!(log.chosen(&Filter::Named(wish.to_owned())), expected, "{wish}");
    }
    let shown = text(&[log], &Filter::Named("inner".to_owned()), Style::default());
    assert!(shown.contains("inner") && !shown.contains("a&b") && !shown.contains("41"), "{shown}");
}

#[test]
fn json_says_the_same() {
    let json = json(&[log()], &Filter::All);
    assert_eq!(json["schema"], SCHEMA);
    let log = &json["logs"][0];
    assert_eq!((&log["entries"], &log["operations"]), (&2002.into(), &600_300.into()));
    assert_eq!(log["processes"][0]["program"], "p<b>");
    assert_eq!(log["processes"][1]["program"], Value::Null);
    let pool = &log["pools"][0];
    assert_eq!((&pool["name"], &pool["parent"]), (&"a&b".into(), &Value::Null));
    assert_eq!(log["pools"][1]["parent"], 1);
    assert_eq!(pool["events"]["chunk_get"], 4);
    assert_eq!(pool["destroyed"], true);
    assert_eq!(pool["chunk_gets"], 4);
    assert_eq!(pool["life_s"], 2.001);
    assert_eq!(pool["operations_per_s"], 300_000.0);
    assert_eq!(pool["peak_used"]["used_bytes"], 99 << 10);
    assert_eq!(pool["peak_used"]["after_ns"], 99_000_000);
    assert_eq!(pool["requested_bytes"], 2001 * 3000);
}

#[test]
fn a_series_is_json_too() {
    let log = log();
    let entry = Entry {
        time_ns: 5,
        process: 40,
        pool: 1,
        event: Event::ChunkPut,
        chunk_gets: 1,
        held: 2,
        used: 3,
        requested: 4,
        operations: 6,
        slow_ns: u64::MAX,
    };
    for entries in 0..3 {
        let mut bytes = Vec::new();
        let mut writer = SeriesWriter::new(&mut bytes).unwrap();
        for _ in 0..entries {
            writer.add(0, 1, &entry).unwrap();
        }
        writer.finish(std::slice::from_ref(&log), &Filter::All).unwrap();
        let json: Value = serde_json::from_slice(&bytes).unwrap();
        let series = json["series"].as_array().unwrap();
        assert_eq!(series.len(), entries);
        for row in series {
            assert_eq!(*row, json!([0, 1, 5, "chunk_put", 2, 3, 4, 6, 1, u64::MAX]));
            assert_eq!(row.as_array().unwrap().len(), json["series_columns"].as_array().unwrap().len());
        }
        assert_eq!(json["logs"][0]["pools"].as_array().unwrap().len(), 3);
    }
}

#[test]
fn damage_is_said_by_place() {
    let mut log = log();
    assert!(log.complaints().is_empty());
    log.damage.add(Lost { offset: 640, bytes: 12, why: Why::Torn });
    log.damage.add(Lost { offset: 900, bytes: 3, why: Why::Ends });
    let said = log.complaints();
    assert_eq!(
        said[0],
        "some.log: byte 640: 12 bytes left out: a record was cut short, and another one follows"
    );
    assert!(said[1].starts_with("some.log: byte 900: 3 bytes left out: the file ends within a record"));
    for offset in 0..100 {
        log.damage.add(Lost { offset, bytes: 1, why: Why::Bad(Bad::Zero) });
    }
    let said = log.complaints();
    assert_eq!(said.len(), DAMAGE_SHOWN + 1);
    assert_eq!(said[DAMAGE_SHOWN], "some.log: and 82 more places; 115 bytes left out in all");
    assert_eq!(json(&[log], &Filter::All)["logs"][0]["lost"]["places"], 102);
}
