// SPDX-License-Identifier: MIT
//! quarry convert, as users type it.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, Stdio};

use crate::common::{Bench, Ended, text};

const STORY: &str = "0=100 1=200 0=300\n1 2=50 s 0 2\n";

#[test]
fn formats_are_told_by_content_and_name() {
    let Some(bench) = Bench::new() else { return };
    let path = |name: &str| bench.path(name);
    let start = path("story");
    fs::write(&start, STORY).unwrap();
    // Each is made of the one before, and told by what it holds, as the names say nothing.
    let mut before = start.clone();
    for (to, events) in [("qtr", 10), ("jsonl", 10), ("mtrace", 10), ("ms", 9), ("heaptrack", 9)] {
        let file = path(&format!("as-{to}"));
        let json = bench
            .run(&["convert", text(&before), "-o", text(&file), "--format", to, "--json"])
            .expect(0)
            .json();
        assert_eq!((&json["schema"], &json["to"]), (&"quarry-convert/1".into(), &to.into()));
        assert_eq!(json["events"], events, "{to}: {json}");
        assert_eq!(json["bytes"], fs::metadata(&file).unwrap().len(), "{to}");
        before = file;
    }
    let table = path("t.csv");
    bench.run(&["convert", text(&before), "-o", text(&table)]).expect(0);
    let rows = fs::read_to_string(&table).unwrap();
    // A reallocation is a block of its own to heaptrack.
    assert_eq!(rows.lines().count(), 5, "{rows}");
    bench.run(&["convert", text(&table), "-o", text(&path("x.qtr"))]).expect(125).says("tables are written");
    let events = path("e.csv.gz");
    bench.run(&["convert", text(&start), "-o", text(&events), "--rows", "events"]).expect(0);
    assert!(fs::read(&events).unwrap().starts_with(&[0x1f, 0x8b]));
    bench.run(&["convert", text(&start), "-o", "nothing"]).expect(2).says("say --format");
    let twice = path("x.qtr.zst");
    bench.run(&["convert", text(&start), "-o", text(&twice)]).expect(0);
    assert!(fs::read(&twice).unwrap().starts_with(&[0x28, 0xb5, 0x2f, 0xfd]));
    assert_eq!(bench.run(&["info", "--json", text(&twice)]).expect(0).json()["events"], 10);
    // As scripts have it from before.
    let older = path("older");
    bench.run(&["convert", text(&start), "-o", text(&older), "--to", "jsonl"]).expect(0);
    assert!(fs::read_to_string(&older).unwrap().contains("quarry-trace-lines/1"));
    let table = path("x.parquet.zst");
    bench.run(&["convert", text(&start), "-o", text(&table)]).expect(2).says("packed inside");
}

#[cfg(feature = "parquet")]
#[test]
fn parquet_is_parquet() {
    let Some(bench) = Bench::new() else { return };
    let (start, table) = (bench.path("a.ms"), bench.path("a.parquet"));
    fs::write(&start, STORY).unwrap();
    bench.run(&["convert", text(&start), "-o", text(&table)]).expect(0);
    let bytes = fs::read(&table).unwrap();
    assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
    bench.run(&["convert", text(&table), "-o", "x.qtr"]).expect(125).says("is a table (parquet)");
}

#[test]
fn pipes_will_do() {
    let Some(bench) = Bench::new() else { return };
    let quarry = env!("CARGO_BIN_EXE_quarry");
    let shell = format!(
        "printf '%s' '{STORY}' | {quarry} convert - -o - --format qtr | {quarry} convert - -o - --format jsonl | {quarry} convert - -o - --format ms"
    );
    let run = |shell: &str| {
        Ended::from(Command::new("sh").args(["-c", shell]).stdin(Stdio::null()).output().unwrap())
    };
    let ended = run(&shell).expect(0);
    assert_eq!(ended.stdout, "0=100 1=200 0=300 1 1=50 s 0 1\n");
    ended.says("from standard input (jsonl) to standard output (ms)");
    // A reader that goes away has seen what it wanted.
    let big = bench.path("big.ms");
    bench.run(&["gen", "--ms", "-c", "100000", "-o", text(&big)]).expect(0);
    let shell =
        format!("({quarry} convert {} -o - --format jsonl; echo \"ended $?\" >&2) | head -1", text(&big));
    run(&shell).expect(0).says("ended 0");
}

#[test]
fn what_cannot_be_held_is_said() {
    let Some(bench) = Bench::new() else { return };
    let (trace, file) = (bench.path("a.qtr"), bench.path("a.ms"));
    bench
        .run(&["gen", "--allocations", "1000", "--threads", "2", "--calloc", "0.5", "-o", text(&trace)])
        .expect(0);
    let said = bench.run(&["convert", text(&trace), "-o", text(&file)]).expect(0).stdout;
    assert!(said.contains("not in ms: ") && said.contains("functions other than malloc"), "{said}");
    assert!(said.contains("events of other threads"), "{said}");
    bench.run(&["gen", "--allocations", "5000", "--lifetime", "never", "-o", text(&trace)]).expect(0);
    let before = fs::read(&file).unwrap();
    bench.run(&["convert", text(&trace), "-o", text(&file)]).expect(125).says("a.ms: more than 4096 blocks");
    assert_eq!(fs::read(&file).unwrap(), before, "what failed leaves no trace");
    assert_eq!(
        fs::read_dir(file.parent().unwrap())
            .unwrap()
            .filter(|entry| { entry.as_ref().unwrap().file_name().to_string_lossy().starts_with(".quarry-") })
            .count(),
        0
    );
    bench.run(&["convert", text(&trace), "-o", text(&file), "--wide"]).expect(0);
}

#[test]
fn errors_name_file_and_line() {
    let Some(bench) = Bench::new() else { return };
    let (file, out) = (bench.path("in"), bench.path("out.qtr"));
    let convert = ["convert", text(&file), "-o", text(&out)];
    for (contents, words) in [
        ("0=1\n2 x\n", "line 2, column 3: 'x' is no command"),
        ("0=1 9999=5\n", "say --wide"),
        ("{\"op\":\"free\"}\n{}\n", "line 1: has no \"address\""),
        ("= Start\nfoo\n", "line 2: 'foo' is no line of mtrace"),
        ("v 10400 3\nX a\n+ 5\n", "line 3: "),
        ("v 10400 9\n", "version 9"),
        ("", "is empty"),
        ("#!/bin/sh\n", "no trace of a known format; those are qtr, ms (0=100 1=200 0), jsonl"),
        ("=====\nReport of the day\n", "no trace of a known format"),
        ("==7== Memcheck, a memory error detector\n", "is a log of valgrind"),
        ("1 = one\n", "no trace of a known format"),
        ("=\0 \0S\0t\0a\0r\0t\0\n\0", "is text in UTF-16LE without a mark; iconv -f UTF-16LE"),
        ("= Start\r@ [0x10] + 0x10 0x20\r", "line 1: its lines end with a carriage return alone"),
    ] {
        fs::write(&file, contents).unwrap();
        bench.run(&convert).expect(125).says(&format!("{}: ", text(&file))).says(words);
        assert!(!out.exists(), "{contents}");
    }
    // Cut off in a line: all but that line.
    fs::write(&file, "{\"op\":\"alloc\",\"size\":5,\"address\":16}\n{\"op\":\"fr").unwrap();
    let ended = bench.run(&[&convert[..], &["--json"]].concat()).expect(1);
    ended.says("cut off in or behind line 2");
    assert_eq!(ended.json()["events"], 1);
    fs::write(&file, "QTRB is how a trace begins, and this one was cut").unwrap();
    bench.run(&convert).expect(1).says("left out");
    // Onto itself.
    fs::write(&file, STORY).unwrap();
    bench.run(&["convert", text(&file), "-o", text(&file), "--format", "jsonl"]).expect(0);
    assert!(
        fs::read_to_string(&file).unwrap().starts_with("{\"head\"")
            || fs::read_to_string(&file).unwrap().starts_with("{\"schema\"")
    );
    bench.run(&["convert", "/", "-o", text(&out)]).expect(125).says("is a directory");
    bench.run(&["convert", "/no/such", "-o", text(&out)]).expect(125).says("/no/such: No such file");
    fs::write(&file, STORY).unwrap();
    bench
        .run(&["convert", text(&file), "-o", "/no/such/dir.qtr"])
        .expect(125)
        .says("cannot write /no/such/dir.qtr");
    bench
        .run(&["convert", text(&file), "-o", "/dev/full", "--format", "jsonl"])
        .expect(125)
        .says("/dev/full: cannot be written");
}

#[test]
fn an_output_keeps_its_permissions_and_links() {
    let Some(bench) = Bench::new() else { return };
    let (start, out, link) = (bench.path("a.ms"), bench.path("out"), bench.path("link"));
    fs::write(&start, STORY).unwrap();
    symlink("out", &link).unwrap();
    let convert = ["convert", text(&start), "-o", text(&link), "--format", "jsonl"];
    bench.run(&convert).expect(0);
    assert!(
        fs::symlink_metadata(&link).unwrap().is_symlink() && out.is_file(),
        "a link to nothing is followed"
    );
    fs::set_permissions(&out, fs::Permissions::from_mode(0o600)).unwrap();
    bench.run(&convert).expect(0);
    assert_eq!(fs::metadata(&out).unwrap().permissions().mode() & 0o7777, 0o600);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
}

#[test]
fn options_that_would_do_nothing_are_refused() {
    let Some(bench) = Bench::new() else { return };
    let (start, out) = (bench.path("a.ms"), bench.path("b.jsonl"));
    fs::write(&start, STORY).unwrap();
    let convert = |more: &[&str]| bench.run(&[&["convert", text(&start), "-o", text(&out)], more].concat());
    convert(&["--rows", "objects"]).expect(2).says("--rows is about tables");
    convert(&["--unpacked"]).expect(2).says("--unpacked is about qtr");
    convert(&["--format", "csv", "--unpacked"]).expect(2).says("says nothing of csv");
    assert!(!out.exists());
    convert(&["--wide"]).expect(0);
    let again = bench.path("c.csv");
    bench
        .run(&["convert", text(&out), "--wide", "-o", text(&again)])
        .expect(2)
        .says("says nothing of jsonl and csv");
    assert!(!again.exists());
    convert(&["--format", "csv", "--rows", "objects"]).expect(0);
    convert(&["--format", "qtr", "--unpacked"]).expect(0);
}

#[test]
fn a_full_disk_is_said_once() {
    let Some(bench) = Bench::new() else { return };
    let start = bench.path("a.ms");
    fs::write(&start, STORY).unwrap();
    let ended = bench.run(&["convert", text(&start), "-o", "/dev/full", "--format", "jsonl"]).expect(125);
    assert_eq!(ended.stderr.matches("No space left").count(), 1, "{}", ended.stderr);
}
