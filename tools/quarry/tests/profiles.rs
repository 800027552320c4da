// SPDX-License-Identifier: MIT
//! Profiles of massif, gperftools and jemalloc: those that are written are read by their own tools, and of those that are read
//! is said what is in them, and no more.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::common::{Bench, Ended, text};
use crate::foreign::{is_missing, leaking, recorded};
use crate::names::{Stage, plugins};
use crate::replay;

/// What a tool prints about files.
fn said(tool: &str, args: &[&Path]) -> String {
    let done = Command::new(tool).args(args).stdin(Stdio::null()).output().unwrap();
    assert!(done.status.success(), "{tool} {args:?}: {}", String::from_utf8_lossy(&done.stderr));
    Ended::from(done).stdout
}

#[test]
fn ms_print_reads_what_is_written_for_it() {
    let Some(bench) = Bench::new() else { return };
    if ["ms_print", "objdump"].into_iter().any(is_missing) {
        return;
    }
    let program = leaking(&bench, "shown", &["-pie", "-fPIE"]);
    let trace = recorded(&bench, &program);
    let file = bench.path("shown.massif");
    bench.run(&["convert", text(&trace), "-o", text(&file)]).expect(0);
    let ours = said("ms_print", &[&file]);
    assert!(ours.contains("(3,333B) (heap allocation functions) malloc/new/new[]"), "{ours}");
    for part in ["prog_leak (shown.c:6)", "lib_leak (libleak.so.c:2)", "(1,111B)", "(2,222B)", "(peak)"] {
        assert!(ours.contains(part), "no {part} in {ours}");
    }
    // And what ms_print says of massif's own file of the same program.
    if is_missing("valgrind") {
        return;
    }
    let own = bench.path("massif.out.1");
    let to = format!("--massif-out-file={}", own.display());
    let done = Command::new("valgrind")
        .args(["-q", "--tool=massif", "--detailed-freq=1", &to])
        .arg(&program)
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let theirs = said("ms_print", &[&own]);
    for part in ["prog_leak (shown.c:6)", "lib_leak (libleak.so.c:2)"] {
        assert!(theirs.contains(part), "no {part} in {theirs}");
    }
    // Read here, it has what it has.
    let info = bench.run(&["info", "--json", text(&own)]).expect(0).json();
    let heap =
        |key: &str| info["snapshots"].as_array().unwrap().iter().map(|s| s[key].as_u64().unwrap()).max();
    assert_eq!((heap("heap_bytes"), &info["stacks_of_peak"]), (Some(3333), &Value::Bool(false)), "{info:#}");
    let stacks = info["stacks"].as_array().unwrap();
    let of = |bytes: u64| {
        let stack = stacks.iter().find(|stack| stack["live"]["bytes"] == bytes);
        stack.unwrap_or_else(|| panic!("{info:#}"))["frames"].to_string()
    };
    assert!(
        of(1111).starts_with(r#"["prog_leak at shown.c:6""#) && of(2222).starts_with(r#"["lib_leak at "#)
    );
    let said = bench.run(&["info", text(&own)]).expect(0).stdout;
    assert!(said.contains("a profile (massif)") && said.contains("lib_leak at libleak.so.c:2"), "{said}");
    let folded = bench.path("own.folded");
    bench.run(&["convert", text(&own), "-o", text(&folded), "--by", "live"]).expect(0);
    let lines = fs::read_to_string(&folded).unwrap();
    assert!(lines.contains("main;lib_leak 2222\n") && lines.contains("main;prog_leak 1111\n"), "{lines}");
    let table = bench.run(&["convert", text(&own), "-o", "-", "--format", "csv"]).expect(0).stdout;
    assert!(table.starts_with("snapshot,time_instructions,heap_bytes,"), "{table}");
}

#[test]
fn jeprof_reads_what_is_written_for_it() {
    let Some(bench) = Bench::new() else { return };
    if ["jeprof", "objdump", "addr2line"].into_iter().any(is_missing) {
        return;
    }
    for (name, options) in [("pie", &["-pie", "-fPIE"][..]), ("fixed", &["-no-pie"])] {
        let program = leaking(&bench, name, options);
        let trace = recorded(&bench, &program);
        let (plain, named) = (bench.path("plain.heap"), bench.path("named.heap"));
        bench.run(&["convert", text(&trace), "-o", text(&plain)]).expect(0);
        bench.run(&["convert", text(&trace), "-o", text(&named), "--names", "--by", "peak"]).expect(0);
        let of_program = said("jeprof", &["--text".as_ref(), "--show_bytes".as_ref(), &program, &plain]);
        let without = said("jeprof", &["--text".as_ref(), "--show_bytes".as_ref(), &named]);
        let lines = said("jeprof", &["--text".as_ref(), "--lines".as_ref(), &program, &plain]);
        assert!(lines.contains(&format!("{name}.c:6")), "{lines}");
        for said in [of_program, without] {
            let bytes = |function: &str| {
                let line = said.lines().find(|line| line.ends_with(function));
                line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok())
            };
            assert_eq!((bytes(" prog_leak"), bytes(" lib_leak")), (Some(1111), Some(2222)), "{said}");
        }
        // And it is read here.
        for file in [&plain, &named] {
            let info = bench.run(&["info", "--json", text(file)]).expect(0).json();
            assert_eq!(
                (&info["live"]["bytes"], &info["allocated"]["bytes"], &info["allocated"]["blocks"]),
                (&3333.into(), &3333.into(), &2.into()),
                "{info:#}"
            );
            let leads = info["stacks"][0]["frames"][0].as_str().unwrap();
            assert!(leads.starts_with("lib_leak"), "{info:#}");
        }
    }
}

#[test]
fn profiles_of_gperftools_and_jemalloc() {
    let Some(bench) = Bench::new() else { return };
    let program = leaking(&bench, "profiled", &["-pie", "-fPIE"]);
    let run = |library: &str, name: &str, value: &str| {
        let mut command = Command::new(&program);
        command.current_dir(bench.path("")).env("LD_PRELOAD", library).env(name, value);
        command.stderr(Stdio::null()).status().unwrap();
        let files = fs::read_dir(bench.path("")).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| path.extension().is_some_and(|end| end == "heap")).max()
    };
    let mut found = 0;
    for (library, name, value) in [
        ("libtcmalloc.so.4", "HEAPPROFILE", "own"),
        ("libjemalloc.so.2", "MALLOC_CONF", "prof:true,prof_final:true,lg_prof_sample:0"),
    ] {
        let Some(file) = run(library, name, value) else {
            eprintln!("skipped: needs {library} that can write heap profiles");
            continue;
        };
        found += 1;
        let info = bench.run(&["info", "--json", "-n", "50", text(&file)]).expect(0).json();
        let stacks = info["stacks"].as_array().unwrap();
        let has = |function: &str, bytes: u64| {
            stacks.iter().any(|stack| {
                let is_its = |frame: &Value| frame.as_str().unwrap().starts_with(function);
                stack["live"]["bytes"].as_u64() >= Some(bytes)
                    && stack["frames"].as_array().unwrap().iter().any(is_its)
            })
        };
        assert!(
            has("prog_leak at profiled.c:6", 1111) && has("lib_leak at libleak.so.c:2", 2222),
            "{info:#}"
        );
        // The program is another one now, and so is the file of its name.
        fs::copy("/bin/true", bench.path("other")).unwrap();
        fs::rename(bench.path("profiled"), bench.path("kept")).unwrap();
        fs::rename(bench.path("other"), bench.path("profiled")).unwrap();
        let ended = bench.run(&["info", "--json", text(&file)]).expect(0);
        ended.says("nothing is looked up in it");
        assert!(
            !ended.stdout.contains("prog_leak") && ended.stdout.contains("profiled+0x"),
            "{}",
            ended.stdout
        );
        fs::rename(bench.path("kept"), bench.path("profiled")).unwrap();
        fs::remove_file(file).unwrap();
    }
    let _ = found;
}

const MASSIF: &str = "desc: --time-unit=B\r\ncmd: ./a b\r\ntime_unit: B\r\n#-----------\r\nsnapshot=0\r\n#-----------\r\ntime=0\r\n\
    mem_heap_B=0\r\nmem_heap_extra_B=0\r\nmem_stacks_B=0\r\nheap_tree=empty\r\n# a comment\r\n\r\nsnapshot=1\r\ntime=10\r\nmem_heap_B=300\r\n\
    mem_heap_extra_B=8\r\nmem_stacks_B=0\r\nheap_tree=detailed\r\nn2: 300 (heap allocation functions) malloc/new/new[], --alloc-fns, etc.\r\n \
    n1: 200 0x1091B1: leaks (a.c:2)\r\n  n0: 200 0x1091CD: main (a.c:3)\r\n n0: 100 in 2 places, all below massif's threshold (1.00%)\r\n";

const HEAP: &str = "%warn a word\r\nheap_v2/524288\r\n  t*: 3: 3000 [3: 3000]\r\n  t0: 3: 3000 [3: 3000]\r\n@ 0x10 0x21 0x31\r\n  \
    t*: 2: 2000 [0: 0]\r\n  t0: 2: 2000 [0: 0]\r\n@ 0x50\r\n  t*: 1: 1000 [3: 3000]\r\n\r\nMAPPED_LIBRARIES:\r\n\
    00000000-00001000 r-xp 00000000 00:00 0 /no/such/prog\r\n";

#[test]
fn what_a_profile_does_not_have_is_not_made_up() {
    let Some(replay::Stage { bench, .. }) = replay::Stage::new() else { return };
    let (massif, heap, out) = (bench.path("massif.out.7"), bench.path("x"), bench.path("out.qtr"));
    fs::write(&massif, MASSIF).unwrap();
    fs::write(&heap, HEAP).unwrap();
    for (file, what) in [(&massif, "massif"), (&heap, "jeprof")] {
        let refused = |args: &[&str], code: i32| {
            let ended = bench.run(args).expect(code);
            ended
                .says(&format!("{}: line 1: is a profile ({what})", file.display()))
                .says("no allocation or free");
        };
        refused(&["convert", text(file), "-o", text(&out)], 125);
        refused(&["convert", text(file), "-o", "-", "--format", "jsonl"], 125);
        refused(&["convert", text(file), "-o", "-", "--format", "heaptrack"], 125);
        refused(&["gen", "--fit", text(file), "--json"], 125);
        refused(&["replay", text(file)], 125);
        refused(&["symbolize", text(file), "-o", text(&out)], 1);
        assert!(!out.exists());
    }
    let info = bench.run(&["info", "--json", text(&massif)]).expect(0).json();
    assert_eq!((&info["command"], &info["time_unit"]), (&"./a b".into(), &"B".into()));
    assert_eq!(info["stacks"][0]["frames"], serde_json::json!(["leaks at a.c:2", "main at a.c:3"]));
    assert_eq!(info["stacks"][1]["live"]["bytes"], 100);
    bench.run(&["info", "--hide", "^leaks$", text(&massif)]).expect(2).says("--hide is about traces");
    bench
        .run(&["convert", text(&massif), "-o", "-", "--format", "collapsed", "--by", "peak"])
        .expect(2)
        .says("--by live");
    bench
        .run(&["convert", text(&massif), "-o", "-", "--format", "collapsed", "--by", "bytes"])
        .expect(2)
        .says("--by live");
    let folded = bench.run(&["convert", text(&massif), "-o", "-", "--format", "collapsed"]).expect(0).stdout;
    assert_eq!(folded, "(in 2 places, all below massif's threshold (1.00%)) 100\nmain;leaks 200\n");
    // One byte in 512 KiB: a block of 1000 bytes stands for 525 of them.
    let info = bench.run(&["info", "--json", text(&heap)]).expect(0).json();
    assert_eq!((&info["sample_bytes"], &info["live"]["blocks"]), (&524_288.into(), &1575.into()), "{info:#}");
    assert_eq!(info["stacks"][0]["frames"], serde_json::json!(["prog+0x10", "prog+0x20", "prog+0x30"]));
    assert_eq!((&info["stacks"][0]["allocated"], &info["remarks"][0]), (&Value::Null, &"a word".into()));
    // Wrong lines have a number; where the file ends in one, it was cut off.
    for (from, to, line) in [
        ("mem_heap_B=300", "mem_heap_B=x", "line 16: mem_heap_B is no number"),
        ("  n0: 200 0x1091CD", "  x0: 200", "line 22: a node of a tree"),
        ("heap_tree=detailed", "heap_tree=none", "line 19: 'empty', 'detailed' or 'peak' is expected"),
    ] {
        fs::write(&massif, MASSIF.replace(from, to)).unwrap();
        bench.run(&["info", text(&massif)]).expect(1).says(line);
    }
    for length in (0..MASSIF.len()).step_by(7).skip(1) {
        fs::write(&massif, &MASSIF[..length]).unwrap();
        let ended = bench.run(&["info", text(&massif), "--strict"]);
        assert!(
            ended.code == Some(1) || ended.code == Some(0) && MASSIF[..length].ends_with(['\n', '\r']),
            "{length}: {}",
            ended.stderr
        );
    }
    fs::write(&heap, HEAP.replace("@ 0x50", "@ 0x5z")).unwrap();
    bench.run(&["info", text(&heap)]).expect(1).says("line 8: '@ 0x5z' is no line of a heap profile");
    fs::write(&heap, HEAP.replace("524288", "")).unwrap();
    bench.run(&["info", text(&heap)]).expect(1).says("line 2: 'heap_v2/' names no rate");
}

#[test]
fn exports_have_the_names_that_are_in_the_trace() {
    let Some(stage) = Stage::new() else { return };
    plugins(&stage);
    stage
        .run(&["record", "-q", "-g", "--symbolize", "-o", "a.qtr", "--", "./host", "alpha", "beta", "alpha"])
        .expect(0);
    stage.sh("mkdir gone && mv host lib*.so gone");
    // Through lines of JSON, which lose nothing.
    stage.run(&["convert", "-q", "a.qtr", "-o", "a.jsonl"]).expect(0);
    for file in ["a.qtr", "a.jsonl"] {
        for (format, options) in
            [("collapsed", &[][..]), ("massif", &[]), ("jeprof", &["--names"]), ("heaptrack", &[])]
        {
            let line = [&["convert", "-q", file, "-o", "out", "--format", format], options].concat();
            stage.run(&line).expect(0);
            let written = fs::read_to_string(stage.at("out")).unwrap();
            // What is little has no line in a file of massif.
            for name in ["alpha_internal", "beta_internal", "use", "main"] {
                let is_little = format == "massif" && name.starts_with("beta");
                assert!(written.contains(name) || is_little, "no {name} in {format} of {file}: {written}");
            }
            if format == "collapsed" {
                let of = |name: &str| written.lines().find(|line| line.contains(name)).unwrap().to_owned();
                assert!(of("alpha_internal").ends_with("main;use;make;alpha_internal 400000"), "{written}");
                assert!(of("beta_internal").ends_with("main;use;make;beta_internal 100"), "{written}");
            }
        }
    }
}
