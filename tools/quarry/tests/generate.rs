// SPDX-License-Identifier: MIT
//! quarry gen, as users type it.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use crate::common::{Bench, Ended, text};

#[test]
fn simulation_files_as_the_original_makes_them() {
    let Some(bench) = Bench::new() else { return };
    let file = bench.path("a.ms");
    bench.run(&["gen", "--ms", "-o", text(&file)]).expect(0);
    let made = fs::read_to_string(&file).unwrap();
    let lines: Vec<&str> = made.lines().collect();
    assert!(lines[..lines.len() - 1].iter().all(|line| line.split(' ').count() == 8), "{made}");
    // The defaults of the original: 128 commands, 16 slots, 32 bytes to 16 MiB; all is freed in the end.
    let mut live = [false; 16];
    let mut count = 0;
    for word in made.split_whitespace() {
        count += 1;
        match word.split_once('=') {
            Some((slot, size)) => {
                let size: u64 = size.parse().unwrap();
                assert!((32..=16 << 20).contains(&size));
                live[slot.parse::<usize>().unwrap()] = true;
            }
            None => assert!(std::mem::take(&mut live[word.parse::<usize>().unwrap()])),
        }
    }
    assert_eq!(live, [false; 16]);
    assert!((128..=144).contains(&count));
    let again = bench.run(&["gen", "--ms"]).expect(0);
    assert_eq!(again.stdout, made, "a seed repeats the file, here to standard output");
    again.says("commands to standard output");
    let other =
        bench.run(&["gen", "--ms", "--seed", "2", "-m", "1kb", "-M", "2kb", "-c", "10", "-p", "3"]).expect(0);
    assert!(other.stdout.split_whitespace().filter_map(|word| word.split_once('=')).all(|(slot, size)| {
        slot.parse::<u32>().unwrap() < 3 && (1024..=2048).contains(&size.parse::<u32>().unwrap())
    }));
    bench.run(&["gen", "--ms", "-m", "2kb", "-M", "1kb"]).expect(2).says("above the largest");
    bench.run(&["gen", "--ms", "-p", "5000"]).expect(2).says("--wide");
    bench.run(&["gen", "--ms", "-p", "5000", "--wide", "-c", "10"]).expect(0);
    bench.run(&["gen", "--ms", "--threads", "2"]).expect(2).says("--threads says nothing together with --ms");
    bench.run(&["gen", "-c", "5"]).expect(2).says("--ms");
}

#[test]
fn the_same_options_give_the_same_bytes() {
    let Some(bench) = Bench::new() else { return };
    let paths = ["a.qtr", "b.qtr", "c.qtr", "d.qtr"].map(|name| bench.path(name));
    let options =
        ["gen", "--allocations", "20000", "--threads", "3", "--handover", "0.2", "--realloc", "0.1,2,1.5"];
    let more = ["--max-live", "64k", "--lifo", "0.1", "--fifo", "0.1", "--calloc", "0.1", "--free-all"];
    for (path, seed) in paths.iter().zip(["1", "1", "2", "1"]) {
        let mut args = [&options[..], &more[..], &["--seed", seed, "-o", text(path)]].concat();
        if path.ends_with("d.qtr") {
            args.push("--unpacked");
        }
        let said = bench.run(&args).expect(0).stdout;
        assert!(said.contains("events to") && said.contains("died early"), "{said}");
    }
    let [a, b, c, d] = paths.map(|path| fs::read(path).unwrap());
    assert!(a == b && a != c);
    assert!(d.len() > a.len() && d.starts_with(b"QTRB\x01"));
}

#[test]
fn models_are_saved_and_used() {
    let Some(bench) = Bench::new() else { return };
    let (model, one, two) = (bench.path("m.json"), bench.path("one.qtr"), bench.path("two.qtr"));
    let phases = [
        "--phase",
        "allocations=5k size=constant:100 lifetime=never",
        "--phase",
        "allocations=1k threads=4 rates=1,2,3,4",
    ];
    let json = bench
        .run(&[&["gen", "--json", "--save-model", text(&model), "-o", text(&one)], &phases[..]].concat())
        .expect(0)
        .json();
    assert_eq!((&json["schema"], &json["allocations"]), (&"quarry-gen/1".into(), &6144.into()));
    bench.run(&["gen", "--model", text(&model), "-o", text(&two)]).expect(0);
    let [one, two] = [one, two].map(|path| fs::read(path).unwrap());
    assert!(one == two);
    fs::write(&model, "{}").unwrap();
    bench.run(&["gen", "--model", text(&model), "-o", "/dev/null"]).expect(125).says("m.json: is no model");
    bench
        .run(&["gen", "--model", text(&model), "--size", "constant:1"])
        .expect(2)
        .says("--size says nothing");
    bench.run(&["gen", "--phase", "colour=red"]).expect(2).says("no 'colour'");
    bench.run(&["gen", "--lifo", "2"]).expect(2).says("lifo");
    bench.run(&["gen", "--size", "gauss:1"]).expect(2).says("no distribution");
    let sizes = bench.path("sizes");
    fs::write(&sizes, "16 1\n32 x\n").unwrap();
    bench.run(&["gen", "--size", &format!("histogram:{}", text(&sizes))]).expect(2).says("line 2");
}

#[test]
fn a_trace_is_imitated_and_the_likeness_told() {
    let Some(bench) = Bench::new() else { return };
    let (real, copy, model) = (bench.path("real.qtr"), bench.path("copy.qtr"), bench.path("m.json"));
    let options =
        ["--allocations", "50000", "--threads", "2", "--handover", "0.5", "--size", "uniform:1..1000"];
    bench.run(&[&["gen", "-o", text(&real)], &options[..]].concat()).expect(0);
    let args = ["gen", "--fit", text(&real), "-o", text(&copy), "--save-model", text(&model), "--json"];
    let fit = bench.run(&args).expect(0).json();
    let fit = &fit["fit"];
    assert_eq!(fit["phases"], 100);
    assert_eq!(fit["real"]["allocations"], 50_000);
    assert_eq!(fit["real"]["handed_over"], fit["imitation"]["handed_over"]);
    for key in ["sizes_ks", "lifetimes_ks", "live_mean", "live_peak"] {
        let distance = fit["distance"][key].as_f64().unwrap();
        assert!(distance.abs() < 0.05, "{key}: {distance}");
    }
    let again = bench.path("again.qtr");
    bench.run(&["gen", "--model", text(&model), "-o", text(&again)]).expect(0);
    assert!(fs::read(&copy).unwrap() == fs::read(&again).unwrap());
    let table = bench.run(&["gen", "--fit", text(&real), "--phases", "10"]).expect(0).stdout;
    assert!(table.contains("distance: sizes 0.0") && table.contains("model: 10 phases"), "{table}");
    // Other formats are imitated too.
    let lines = bench.path("real.jsonl.zst");
    bench.run(&["convert", text(&real), "-o", text(&lines)]).expect(0);
    let other = bench.run(&["gen", "--fit", text(&lines), "--json"]).expect(0).json();
    assert_eq!(other["fit"]["distance"], fit["distance"]);
    bench.run(&["gen", "--fit", "/no/such"]).expect(125).says("/no/such: No such file");
    // Of a trace that was cut the model is not all that it should be.
    let (lines, cut) = (bench.path("real.jsonl"), bench.path("cut.jsonl"));
    bench.run(&["convert", text(&real), "-o", text(&lines)]).expect(0);
    let whole = fs::read(&lines).unwrap();
    // Within a line.
    let end = whole[..whole.len() / 2].iter().rposition(|byte| *byte == b'\n').unwrap() + 5;
    fs::write(&cut, &whole[..end]).unwrap();
    let half = bench.run(&["gen", "--fit", text(&cut), "--json"]).expect(1).json();
    assert!(half["fit"]["real"]["allocations"].as_u64() < Some(50_000), "{half:#}");
}

#[test]
fn what_can_be_read_once_is_copied() {
    let Some(bench) = Bench::new() else { return };
    let mut child = bench
        .quarry(["gen", "--fit", "-", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"0=100 1=200 0 1\n").unwrap();
    let json = Ended::from(child.wait_with_output().unwrap()).expect(0).json();
    assert_eq!(json["fit"]["real"]["allocations"], 2, "{json:#}");
    bench.run(&["gen", "--fit", "/dev/null"]).expect(125).says("/dev/null: is a device");
}
