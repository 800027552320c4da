// SPDX-License-Identifier: MIT
//! What quarry profile writes for other tools: read by these tools where they are installed, by decoders of this file, and compared with
//! the JSON.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::process::Command;

use quarry_input::Input;
use quarry_trace::{AllocApi, End, Event, FreeApi, Head, StackNode, Trace, TraceWriter, What, WriteOptions};
use serde_json::{Value, json};

use crate::common::{Bench, text};

/// A trace of main, which calls left and right; left calls leaks and churns.
pub fn trace(bench: &Bench, name: &str, leak: u64) -> String {
    let head =
        Head { process: 7, program: "/bin/demo".into(), command: vec!["demo".into()], ..Head::default() };
    let head =
        Head { clock: "synthetic".into(), ticks_per_second: 1_000_000_000, stacks: "fp".into(), ..head };
    let mut writer = TraceWriter::create(Vec::new(), &head, WriteOptions::default()).unwrap();
    for (id, parent) in [(1, 0), (2, 1), (3, 1), (4, 2), (5, 2)] {
        writer.stack(1, &StackNode { id, parent, pc: u64::from(id) * 0x100, is_return: false }).unwrap();
    }
    let mut event = |time: u64, what: What| writer.event(&Event { time, thread: 1, what }).unwrap();
    let alloc = |size: u64, address: u64, stack: u32| What::Alloc {
        api: AllocApi::Malloc,
        size,
        address,
        align: 0,
        stack,
    };
    let free = |address: u64| What::Free { api: FreeApi::Free, address, touched: None };
    event(0, alloc(100_000, 0x10_0000, 3));
    for n in 1..=1000u64 {
        event(n * 1_000_000, alloc(leak, 0x100_0000 + n * 4096, 4));
        event(n * 1_000_000 + 5, alloc(300, 0x5000, 5));
        event(n * 1_000_000 + 9, free(0x5000));
    }
    event(1_001_000_000, free(0x10_0000));
    let end = End { reason: "exit".into(), end_ticks: 1_001_000_000, ..End::default() };
    let bare = Trace::of_bytes(writer.finish(&end).unwrap()).unwrap();
    let names = json!({
        "text": "quarry-names/1", "strings": ["main", "left", "right", "leaks", "churns", "/src/demo.c"],
        "frames": [[1, 6, 1], [2, 6, 2], [3, 6, 3], [4, 6, 4], [5, 6, 5]],
        "nodes": [[1, 1], [2, 2], [3, 3], [4, 4], [5, 5]],
    });
    let path = bench.path(name);
    let mut file = fs::File::create(&path).unwrap();
    bare.copy_with_texts(&mut file, &[names.to_string().into_bytes()]).unwrap();
    text(&path).to_owned()
}

/// Write it as something; the path.
pub fn export(bench: &Bench, trace: &str, name: &str, options: &[&str]) -> String {
    let path = text(&bench.path(name)).to_owned();
    bench.run(&[&["profile", "-q", "-o", &path], options, &[trace]].concat()).expect(0);
    path
}

pub fn parsed(path: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn has(program: &str, argument: &str) -> bool {
    let found = Command::new(program).arg(argument).output().is_ok();
    if !found {
        eprintln!("skipped: needs {program}");
    }
    found
}

/// By function: bytes live at the peak, and at the end.
const PEAK: [(&str, u64, u64); 3] =
    [("leaks", 2_000_000, 2_000_000), ("churns", 300, 0), ("right", 100_000, 0)];

#[test]
fn folded_stacks() {
    let Some(bench) = Bench::new() else { return };
    let trace = trace(&bench, "t.qtr", 2000);
    let lines = fs::read_to_string(export(&bench, &trace, "t.folded", &[])).unwrap();
    assert_eq!(lines, "main;left;churns 300\nmain;left;leaks 2000000\nmain;right 100000\n");
    let at_end = fs::read_to_string(export(&bench, &trace, "t.folded", &["--at", "end"])).unwrap();
    assert_eq!(at_end, "main;left;leaks 2000000\n");
}

/// Fields of a message of protocol buffers: number, and a varint or bytes.
fn fields(mut bytes: &[u8]) -> Vec<(u64, u64, Vec<u8>)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return value;
            }
        }
    }
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        match tag & 7 {
            0 => fields.push((tag >> 3, varint(&mut bytes), Vec::new())),
            2 => {
                let n = varint(&mut bytes) as usize;
                fields.push((tag >> 3, 0, bytes[..n].to_vec()));
                bytes = &bytes[n..];
            }
            wire => panic!("wire type {wire}"),
        }
    }
    fields
}

fn numbers(mut packed: &[u8]) -> Vec<u64> {
    let mut all = Vec::new();
    while !packed.is_empty() {
        let n = packed.iter().position(|byte| *byte < 0x80).unwrap() + 1;
        all.push(packed[..n].iter().rev().fold(0, |sum, byte| sum << 7 | u64::from(byte & 0x7f)));
        packed = &packed[n..];
    }
    all
}

#[test]
fn pprof_reads_its_format() {
    let Some(bench) = Bench::new() else { return };
    let file = export(&bench, &trace(&bench, "t.qtr", 2000), "t.pb.gz", &[]);
    assert_eq!(fs::read(&file).unwrap()[..2], [0x1f, 0x8b]);
    let mut bytes = Vec::new();
    Input::open(file.as_ref()).unwrap().read_to_end(&mut bytes).unwrap();
    let message = fields(&bytes);
    let of = |number: u64| message.iter().filter(move |field| field.0 == number).map(|field| &field.2);
    let strings: Vec<String> = of(6).map(|text| String::from_utf8(text.clone()).unwrap()).collect();
    assert_eq!(strings[0], "");
    let types: Vec<&str> = of(1)
        .map(|one| strings[fields(one).iter().find(|field| field.0 == 1).unwrap().1 as usize].as_str())
        .collect();
    assert_eq!(types, ["alloc_objects", "alloc_space", "inuse_objects", "inuse_space"]);
    let value = |message: &[u8], number: u64| {
        fields(message).iter().find(|field| field.0 == number).map_or(0, |field| field.1)
    };
    let functions: BTreeMap<u64, String> =
        of(5).map(|one| (value(one, 1), strings[value(one, 2) as usize].clone())).collect();
    let locations: BTreeMap<u64, String> = of(4)
        .map(|one| {
            let line = fields(one).into_iter().find(|field| field.0 == 4).unwrap().2;
            (value(one, 1), functions[&value(&line, 1)].clone())
        })
        .collect();
    let samples: BTreeMap<String, Vec<u64>> = of(2)
        .map(|one| {
            let parts = fields(one);
            let path: Vec<&str> = numbers(&parts[0].2).iter().map(|id| locations[id].as_str()).collect();
            (path.join("<"), numbers(&parts[1].2))
        })
        .collect();
    let expected = [
        ("churns<left<main", vec![1000, 300_000, 1, 300]),
        ("leaks<left<main", vec![1000, 2_000_000, 1000, 2_000_000]),
        ("right<main", vec![1, 100_000, 1, 100_000]),
    ];
    assert_eq!(samples, expected.map(|(path, values)| (path.to_owned(), values)).into());
    if !has("go", "version") {
        return;
    }
    let top = Command::new("go")
        .args(["tool", "pprof", "-top", "-unit=B", "-nodefraction=0", "-sample_index=inuse_space", &file])
        .output()
        .unwrap();
    let top = String::from_utf8_lossy(&top.stdout).into_owned();
    if !top.contains("flat%") {
        eprintln!("skipped: needs go tool pprof");
        return;
    }
    for (name, bytes, _) in PEAK {
        let line =
            top.lines().find(|line| line.ends_with(&format!(" {name}"))).unwrap_or_else(|| panic!("{top}"));
        assert!(line.trim_start().starts_with(&format!("{bytes}B ")), "{top}");
    }
}

#[test]
fn dhat_reads_its_format() {
    let Some(bench) = Bench::new() else { return };
    let file = export(&bench, &trace(&bench, "t.qtr", 2000), "t.dhat.json", &[]);
    let dhat = parsed(&file);
    let point = |name: &str| {
        let points = dhat["pps"].as_array().unwrap().iter();
        let frame = |point: &Value| {
            dhat["ftbl"][point["fs"][0].as_u64().unwrap() as usize].as_str().unwrap().to_owned()
        };
        points.filter(|point| frame(point).contains(name)).collect::<Vec<_>>()[0].clone()
    };
    for (name, peak, end) in PEAK {
        assert_eq!((&point(name)["gb"], &point(name)["eb"]), (&json!(peak), &json!(end)), "{name}");
    }
    assert_eq!((&point("churns")["tb"], &point("churns")["tbk"]), (&json!(300_000), &json!(1000)));
    let viewer = "/usr/libexec/valgrind/dh_view.js";
    if !fs::exists(viewer).unwrap() || !has("node", "--version") {
        eprintln!("skipped: needs valgrind's dh_view.js and node");
        return;
    }
    // Its own code builds its tree; what of the page it touches on the way is put in place here.
    let script = format!(
        "const vm = require('vm'), fs = require('fs'); const box = vm.createContext({{ document: {{}}, window: {{}}, console }});
         vm.runInContext(fs.readFileSync('{viewer}', 'utf8'), box); box.text = fs.readFileSync('{file}', 'utf8');
         console.log(vm.runInContext(`gData = JSON.parse(text); gSelect = {{ childNodes: gSelectData.map(() => ({{}})), selectedIndex: 0 }}; buildTree();
         JSON.stringify({{ total: gRoot._totalBytes, peak: gRoot._atTGmaxBytes, end: gRoot._atTEndBytes, kids: gRoot._kids.length }})`, box));"
    );
    let ran = Command::new("node").args(["-e", &script]).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let said: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(said, json!({ "total": 2_400_000, "peak": 2_100_300, "end": 2_000_000, "kids": 3 }));
}

#[test]
fn ms_print_reads_massif() {
    let Some(bench) = Bench::new() else { return };
    let file = export(&bench, &trace(&bench, "t.qtr", 2000), "t.massif", &[]);
    let text = fs::read_to_string(&file).unwrap();
    let numbers = |key: &str| -> Vec<u64> {
        text.lines().filter_map(|line| line.strip_prefix(key)?.parse().ok()).collect()
    };
    assert_eq!(numbers("mem_heap_B=").iter().max(), Some(&2_100_300));
    if !has("ms_print", "--version") {
        return;
    }
    let ran = Command::new("ms_print").arg(&file).output().unwrap();
    let shown = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    for part in ["(peak)", "leaks (demo.c:4)", "2,100,300", "95.2"] {
        assert!(shown.contains(part), "no '{part}' in {shown}");
    }
}

#[test]
fn speedscope_chrome_and_firefox() {
    let Some(bench) = Bench::new() else { return };
    let trace = trace(&bench, "t.qtr", 2000);
    let scope = parsed(&export(&bench, &trace, "t.speedscope.json", &[]));
    let profile = &scope["profiles"][0];
    let name =
        |index: &Value| scope["shared"]["frames"][index.as_u64().unwrap() as usize]["name"].as_str().unwrap();
    let mut found: BTreeMap<String, u64> = BTreeMap::new();
    for (stack, weight) in
        profile["samples"].as_array().unwrap().iter().zip(profile["weights"].as_array().unwrap())
    {
        let names: Vec<&str> = stack.as_array().unwrap().iter().map(name).collect();
        found.insert(names.join(";"), weight.as_u64().unwrap());
    }
    let expected = [("main;left;churns", 300), ("main;left;leaks", 2_000_000), ("main;right", 100_000)];
    assert_eq!(found, expected.map(|(names, bytes)| (names.to_owned(), bytes)).into());
    assert_eq!(profile["endValue"], 2_100_300);

    let chrome = parsed(&export(&bench, &trace, "t.perfetto", &[]));
    let events = chrome["traceEvents"].as_array().unwrap();
    let counter = |name: &str| -> Vec<u64> {
        let of = events
            .iter()
            .filter(|event| event["ph"] == "C" && event["name"].as_str().unwrap().starts_with(name));
        of.map(|event| event["args"]["bytes"].as_u64().unwrap()).collect()
    };
    assert_eq!(counter("live bytes").iter().max(), Some(&2_100_300));
    assert_eq!((counter("live bytes").last(), counter("leaks").last()), (Some(&2_000_000), Some(&2_000_000)));
    assert_eq!(counter("right").last(), Some(&0));

    let firefox = parsed(&export(&bench, &trace, "t.firefox.json", &[]));
    let thread = &firefox["threads"][0];
    let column = |table: &str, name: &str| thread[table][name].as_array().unwrap().clone();
    for table in ["samples", "nativeAllocations", "stackTable", "frameTable", "funcTable"] {
        let length = thread[table]["length"].as_u64().unwrap() as usize;
        for (name, values) in thread[table].as_object().unwrap() {
            assert!(values.as_array().is_none_or(|values| values.len() == length), "{table}.{name}");
        }
    }
    let mut found: BTreeMap<String, u64> = BTreeMap::new();
    for (stack, weight) in
        column("nativeAllocations", "stack").iter().zip(column("nativeAllocations", "weight"))
    {
        let (mut at, mut names) = (stack.clone(), Vec::new());
        while let Some(number) = at.as_u64() {
            let frame = column("stackTable", "frame")[number as usize].as_u64().unwrap();
            let function = column("frameTable", "func")[frame as usize].as_u64().unwrap();
            let string = column("funcTable", "name")[function as usize].as_u64().unwrap();
            names.insert(0, thread["stringArray"][string as usize].as_str().unwrap().to_owned());
            at = column("stackTable", "prefix")[number as usize].clone();
        }
        found.insert(names.join(";"), weight.as_u64().unwrap());
    }
    assert_eq!(found, expected.map(|(names, bytes)| (names.to_owned(), bytes)).into());
    let counts = firefox["counters"][0]["samples"]["count"].as_array().unwrap();
    assert_eq!(counts.iter().map(|count| count.as_i64().unwrap()).sum::<i64>(), 2_000_000);
}

#[test]
fn both_sides_folded() {
    let Some(bench) = Bench::new() else { return };
    let (before, after) = (trace(&bench, "a.qtr", 2000), trace(&bench, "b.qtr", 2500));
    let folded = text(&bench.path("d.folded")).to_owned();
    bench.run(&["profile", "-q", "-o", &folded, &before, &after]).expect(0);
    let lines = fs::read_to_string(folded).unwrap();
    assert_eq!(
        lines,
        "main;left;churns 300 300\nmain;left;leaks 2000000 2500000\nmain;right 100000 100000\n"
    );
    bench.run(&["profile", "-q", "-o", "d.pb.gz", &before, &after]).expect(2).says("not as pprof");
}
