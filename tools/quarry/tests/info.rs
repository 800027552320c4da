// SPDX-License-Identifier: MIT
//! quarry info: from a trace to the report and the exit code.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::common::{Bench, Ended, text};
use quarry_trace::{AllocApi, End, Event, FreeApi, Head, StackNode, TraceWriter, What, WriteOptions};

/// A trace of a thousand blocks, of which every second one is freed at once.
fn bytes() -> Vec<u8> {
    let head = Head {
        program: "/bin/prog".into(),
        clock: "monotonic".into(),
        stacks: "fp".into(),
        ..Head::default()
    };
    let mut writer = TraceWriter::create(Vec::new(), &head, WriteOptions { packed: true }).unwrap();
    writer.stack(1, &StackNode { id: 1, parent: 0, pc: 0x1234, is_return: true }).unwrap();
    for index in 0..1000u64 {
        let (time, address) = (index * 10, 0x7f00_0000_0000 + index * 64);
        let what = What::Alloc { api: AllocApi::New, size: 48, address, align: 0, stack: 1 };
        writer.event(&Event { time, thread: 1, what }).unwrap();
        if index % 2 == 0 {
            let what = What::Free { api: FreeApi::Delete, address, touched: None };
            writer.event(&Event { time: time + 5, thread: 1, what }).unwrap();
        }
    }
    writer.finish(&End { reason: "exit".into(), events: 1500, ..End::default() }).unwrap()
}

fn bench(bytes: &[u8]) -> Option<(Bench, PathBuf)> {
    let bench = Bench::new()?;
    let file = bench.path("prog.qtr");
    fs::write(&file, bytes).unwrap();
    Some((bench, file))
}

#[test]
fn text_and_json() {
    let Some((bench, file)) = bench(&bytes()) else { return };
    let ended = bench.run(&["info", text(&file)]).expect(0);
    assert_eq!(ended.stderr, "");
    for part in ["/bin/prog", "1 500 events", "Lifetimes", "500 blocks still live", "0x1234", "█"] {
        assert!(ended.stdout.contains(part), "no {part} in {}", ended.stdout);
    }
    let json = bench.run(&["info", "--json", text(&file)]).expect(0).json();
    assert_eq!((&json["schema"], &json["events"]), (&"quarry-info/1".into(), &1500.into()));
    assert_eq!((&json["frees"]["temporary"], &json["live"]["end_bytes"]), (&500.into(), &24_000.into()));
    assert_eq!(json["call_sites"][0]["allocations"], 1000);
    let report = bench.path("report");
    let ended = bench.run(&["info", "-o", text(&report), text(&file)]).expect(0);
    assert_eq!(ended.stdout, "");
    assert!(fs::read_to_string(&report).unwrap().contains("1 500 events"));
}

#[test]
fn standard_input_and_pipes_are_copied() {
    let Some((bench, file)) = bench(&bytes()) else { return };
    let mut child =
        bench.quarry(["info", "--json", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&bytes()).unwrap();
    let json = Ended::from(child.wait_with_output().unwrap()).expect(0).json();
    assert_eq!(json["events"], 1500);
    let pipe = bench.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut cat =
        Command::new("sh").args(["-c", "cat \"$0\" > \"$1\""]).arg(&file).arg(&pipe).spawn().unwrap();
    let json = bench.run(&["info", "--json", text(&pipe)]).expect(0).json();
    assert_eq!(json["events"], 1500);
    cat.wait().unwrap();
}

#[test]
fn cut_off_is_a_warning_unless_strict() {
    let whole = bytes();
    let Some((bench, file)) = bench(&whole[..whole.len() - 300]) else { return };
    let ended = bench.run(&["info", text(&file)]).expect(0);
    ended.says("warning:").says("the file ends within a block").says("truncated after");
    let ended = bench.run(&["info", "--strict", "-q", text(&file)]).expect(1);
    assert_eq!(ended.stderr, "");
    fs::write(&file, &whole).unwrap();
    bench.run(&["info", "--strict", text(&file)]).expect(0);
}

#[test]
fn what_is_no_trace() {
    let Some((bench, file)) = bench(b"something else") else { return };
    bench.run(&["info", text(&file)]).expect(1).says("is not a trace").says("quarry record -o FILE");
    fs::write(&file, "").unwrap();
    bench.run(&["info", text(&file)]).expect(1).says("is empty");
    bench.run(&["info", "/no/such/file"]).expect(1).says("/no/such/file: No such file");
    bench.run(&["info", text(&bench.path(""))]).expect(1).says("is a directory");
    bench.run(&["info"]).expect(2);
    bench.run(&["info", "-n", "0", text(&file)]).expect(2);
}
