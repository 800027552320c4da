// SPDX-License-Identifier: MIT
//! Files of other tools: every verb that reads traces reads them, and the other tools read what is written for them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::common::{Bench, Ended, text};
use crate::replay;

const STORY: &str = "0=100 1=200 0=300\n1 2=50 s 0 2\n";

#[test]
fn every_verb_reads_every_format() {
    let Some(stage) = replay::Stage::new() else { return };
    let start = stage.bench.path("start");
    fs::write(&start, STORY).unwrap();
    for format in ["qtr", "ms", "jsonl", "heaptrack", "mtrace"] {
        // A name that says nothing, and one that says something else.
        for name in [format!("as-{format}"), format!("{format}.ms"), format!("{format}.qtr")] {
            let file = stage.bench.path(&name);
            let run = |args: &[&str]| stage.bench.run(args).expect(0);
            run(&["convert", text(&start), "-o", text(&file), "--format", format]);
            let info = run(&["info", "--json", text(&file)]).json();
            assert_eq!(
                info["allocations"]["peak_live_bytes"].as_u64().or(info["live"]["peak_bytes"].as_u64()),
                Some(500),
                "{name}: {info:#}"
            );
            let fit = run(&["gen", "--fit", text(&file), "--json"]).json();
            assert!(fit["fit"]["real"]["allocations"].as_u64() >= Some(3), "{name}: {fit:#}");
            let played = run(&[
                "replay",
                text(&file),
                "--json",
                "-n",
                "1",
                "--no-warmup",
                "--no-latency",
                "--with",
                "system",
            ])
            .json();
            assert!(played["plan"]["operations"]["malloc"].as_u64() >= Some(3), "{name}: {played:#}");
        }
    }
}

#[test]
fn what_is_left_out_of_a_foreign_file_is_said() {
    let Some(bench) = Bench::new() else { return };
    let file = bench.path("cut");
    fs::write(&file, "= Start\n@ ./a:[0x10] + 0x1000 0x20\n@ ./a:[0x10] + 0x20").unwrap();
    bench.run(&["info", text(&file)]).expect(0).says("cut off in or behind line 3");
    bench.run(&["info", "--strict", text(&file)]).expect(1);
    // Lines that could be whole, but for their end: 0x2 may have been 0x20, and 0 may have been 0a.
    let heaptrack = "v 10300 3\nX ./a\nI 1000 10\na 64 0\na 1000 0\n+ 0\n+ 1";
    for (log, bytes) in
        [("= Start\n@ ./a:[0x10] + 0x1000 0x20\n@ ./a:[0x10] + 0x2000 0x2", 32), (heaptrack, 100)]
    {
        fs::write(&file, log).unwrap();
        let ended = bench.run(&["info", "--json", text(&file)]).expect(0);
        ended.says("cut off in or behind line");
        let info = ended.json();
        assert_eq!(info["trace"]["complete"], false);
        let peak = info["allocations"]["peak_live_bytes"].as_u64().or(info["live"]["peak_bytes"].as_u64());
        assert_eq!(peak, Some(bytes), "{info:#}");
    }
    fs::write(&file, "= Start\n@ ./a:[0x10] + 0x1000 0x20\n= End").unwrap();
    let whole = bench.run(&["info", "--strict", "--json", text(&file)]).expect(0).json();
    assert_eq!(whole["trace"]["complete"], true);
    // What stands in a file moves no cursor.
    fs::write(&file, "%warn \x1b[31mred\nheap profile: 1: 2 [3: 4] @ heapprofile\n 1: 2 [3: 4] @ 0x10\n")
        .unwrap();
    let said = bench.run(&["info", text(&file)]).expect(0);
    assert!(said.stderr.contains("\\u{1b}[31mred") && !said.stderr.contains('\x1b'), "{}", said.stderr);
    fs::write(&file, "= Start\nfoo\n").unwrap();
    bench.run(&["info", text(&file)]).expect(1).says("cut: line 2: 'foo' is no line of mtrace");
}

#[test]
fn a_log_of_two_processes_is_told() {
    let Some(bench) = Bench::new() else { return };
    let (file, out) = (bench.path("two"), bench.path("two.qtr"));
    // What a process had not yet written when it forked, its child writes, too.
    let log = "= Start\n@ ./a:[0x10] + 0x1000 0x20\n@ ./a:[0x10] - 0x1000\n";
    fs::write(&file, log.repeat(2)).unwrap();
    let ended = bench.run(&["info", "--strict", "--json", text(&file)]).expect(1);
    ended.says("another file begins in line 4; only what stands before was used (tail -n +4 has the rest)");
    assert_eq!(
        ended.json()["operations"]["malloc"].as_u64().or(ended.json()["allocations"]["count"].as_u64()),
        Some(1)
    );
    bench.run(&["convert", text(&file), "-o", text(&out)]).expect(1).says("another file begins in line 4");
}

#[test]
fn a_log_of_more_files_than_there_is_room_for() {
    let Some(bench) = Bench::new() else { return };
    let (file, out) = (bench.path("many"), bench.path("many.qtr"));
    let line = |n: u32| format!("@ /no/{n}:[0x10] + {:#x} 0x20\n", 4096 + n * 64);
    fs::write(&file, (0..65_540).map(line).collect::<String>()).unwrap();
    bench
        .run(&["convert", text(&file), "-o", text(&out)])
        .expect(0)
        .says("5 callers behind the first 65535 pairs of file and function: they are numbers alone");
}

fn call_sites(bench: &Bench, file: &Path) -> Vec<Value> {
    bench.run(&["info", "--json", text(file)]).expect(0).json()["call_sites"].as_array().unwrap().clone()
}

#[test]
fn callers_of_different_files_are_different_call_sites() {
    let Some(bench) = Bench::new() else { return };
    let (log, trace, back) = (bench.path("log"), bench.path("log.qtr"), bench.path("back.mtrace"));
    let lines = "= Start\n@ ./prog:[0x1182] + 0x5000 0x64\n\
                 @ /usr/lib/libnone.so.1:(foo_new+0x12)[0x1182] + 0x6000 0x1000\n\
                 @ /usr/lib/libnone.so.2:(_ZN3bar4makeEv+22)[0x1182] + 0x8000 0x2000\n\
                 @ /usr/lib/libnone.so.2:(_ZN3bar5otherEv-4)[0x1182] + 0xb000 0x3000\n\
                 @ [0x1182] + 0xf000 0x10\n= End\n";
    fs::write(&log, lines).unwrap();
    bench.run(&["convert", text(&log), "-o", text(&trace)]).expect(0);
    for file in [&log, &trace] {
        let sites = call_sites(&bench, file);
        let mut places: Vec<String> =
            sites.iter().map(|site| site["frames"][0].as_str().unwrap().to_owned()).collect();
        places.sort();
        let expected = [
            "0x1182",
            "bar::make() in libnone.so.2",
            "bar::other() in libnone.so.2",
            "foo_new in libnone.so.1",
            "prog+0x1182",
        ];
        assert_eq!(places, expected, "{sites:#?}");
    }
    bench.run(&["convert", text(&trace), "-o", text(&back)]).expect(0);
    assert_eq!(fs::read_to_string(&back).unwrap(), lines);
}

const LIBRARY: &str =
    "#include <stdlib.h>\nvoid *lib_leak(size_t n) { void *p = malloc(n); __asm__(\"\"); return p; }\n";
const PROGRAM: &str = "#include <stdlib.h>\n#ifdef LOG\n#include <mcheck.h>\n#endif\nvoid *lib_leak(size_t);\n\
    static __attribute__((noinline)) void *prog_leak(size_t n) { void *p = malloc(n); __asm__(\"\"); return p; }\n\
    int main(void) {\n#ifdef LOG\nmtrace();\n#endif\nprog_leak(1111); lib_leak(2222); return 0; }\n";

/// A program and its library, with lines; where both are.
pub fn leaking(bench: &Bench, name: &str, options: &[&str]) -> PathBuf {
    let folder = bench.path("");
    let rpath = format!("-Wl,-rpath,{}", folder.display());
    bench.compile("libleak.so", LIBRARY, &["-g", "-O1", "-fPIC", "-shared", "-Wl,--build-id"]).unwrap();
    let library = bench.path("libleak.so");
    let options = [&["-g", "-O1", "-Wl,--build-id", text(&library), &rpath], options].concat();
    bench.compile(name, PROGRAM, &options).unwrap()
}

pub fn is_missing(tool: &str) -> bool {
    let missing =
        Command::new(tool).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err();
    if missing {
        eprintln!("skipped: needs {tool} (scripts/setup.sh test)");
    }
    missing
}

/// A trace with the stacks of a program, as the recorder would write it: where its files were mapped, and who called malloc.
pub fn recorded(bench: &Bench, program: &Path) -> PathBuf {
    use quarry_symbols::Mapped;
    use quarry_trace::{AllocApi, End, Event, Head, StackNode, TraceWriter, What, WriteOptions};
    let head = Head {
        program: text(program).into(),
        clock: "monotonic".into(),
        stacks: "cfi".into(),
        ..Head::default()
    };
    let mut writer = TraceWriter::create(Vec::new(), &head, WriteOptions { packed: true }).unwrap();
    let library = bench.path("libleak.so");
    for (index, (file, size)) in [(program, 1111), (&library, 2222)].into_iter().enumerate() {
        let mapped = Mapped::of(file).unwrap();
        let base = if mapped.fixed { 0 } else { 0x7f00_0000_0000 + ((index as u64) << 32) };
        let about =
            serde_json::json!({"path": file, "build_id": mapped.build_id, "segments": mapped.segments});
        let (id, time) = (index as u32 + 1, index as u64 * 10);
        writer
            .event(&Event { time, thread: 1, what: What::ModuleLoaded { base, about: about.to_string() } })
            .unwrap();
        let pc = base + behind_malloc(file);
        writer.stack(1, &StackNode { id, parent: 0, pc, is_return: true }).unwrap();
        let what = What::Alloc {
            api: AllocApi::Malloc,
            size,
            address: 0x10_0000 * (index as u64 + 1),
            align: 0,
            stack: id,
        };
        writer.event(&Event { time: time + 5, thread: 1, what }).unwrap();
    }
    let bytes = writer.finish(&End { reason: "exit".into(), events: 4, ..End::default() }).unwrap();
    let trace = program.with_extension("qtr");
    fs::write(&trace, bytes).unwrap();
    trace
}

/// The address behind the first call of malloc in a function whose name ends in _leak.
fn behind_malloc(file: &Path) -> u64 {
    let listing = Command::new("objdump").args(["-d", "--no-show-raw-insn"]).arg(file).output().unwrap();
    let listing = String::from_utf8(listing.stdout).unwrap();
    let inside = listing.lines().skip_while(|line| !line.ends_with("_leak>:"));
    let mut behind = inside.skip_while(|line| !line.contains("malloc@plt>") || !line.contains("call"));
    behind.next();
    let line = behind.next().unwrap_or_else(|| panic!("{listing}"));
    u64::from_str_radix(line.trim().split(':').next().unwrap(), 16).unwrap()
}

#[test]
fn mtrace_finds_lines_in_what_is_written_for_it() {
    let Some(bench) = Bench::new() else { return };
    if ["mtrace", "objdump", "addr2line"].into_iter().any(is_missing) {
        return;
    }
    for (name, options) in
        [("pie", &["-pie", "-fPIE"][..]), ("fixed", &["-no-pie"]), ("named", &["-pie", "-fPIE", "-rdynamic"])]
    {
        let program = leaking(&bench, name, options);
        let trace = recorded(&bench, &program);
        let log = bench.path(&format!("{name}.mtrace"));
        bench.run(&["convert", text(&trace), "-o", text(&log)]).expect(0);
        let lines = fs::read_to_string(&log).unwrap();
        assert!(lines.contains(&format!("@ {}:(lib_leak+", bench.path("libleak.so").display())), "{lines}");
        let said = Command::new("mtrace").args([&program, &log]).output().unwrap();
        let said = String::from_utf8(said.stdout).unwrap();
        let line = |size: &str| {
            said.lines().find(|line| line.contains(size)).unwrap_or_else(|| panic!("{said}")).to_owned()
        };
        assert!(line(" 0x457 ").contains(&format!("{name}.c:6")), "{said}\n{lines}");
        assert!(line(" 0x8ae ").contains("libleak.so.c:2"), "{said}\n{lines}");
    }
}

#[test]
fn lines_are_found_in_what_glibc_writes() {
    let Some(bench) = Bench::new() else { return };
    let pie = &["-pie", "-fPIE", "-DLOG"][..];
    for (name, options) in [("pie", pie), ("fixed", &["-no-pie", "-DLOG"]), ("linked_high", pie)] {
        let program = leaking(&bench, name, options);
        // A library with addresses of its own.
        let high = ["-g", "-O1", "-fPIC", "-shared", "-Wl,--build-id", "-Wl,-Ttext-segment=0x400000000"];
        if name == "linked_high" && bench.compile("libleak.so", LIBRARY, &high).is_none() {
            return eprintln!("skipped: needs a linker with -Ttext-segment");
        }
        let log = bench.path(&format!("{name}.log"));
        // Since glibc 2.34 it is in a library of its own, before that in libc.
        let _ = fs::remove_file(&log);
        Command::new(&program)
            .env("LD_PRELOAD", "libc_malloc_debug.so.0")
            .env("MALLOC_TRACE", &log)
            .stderr(Stdio::null())
            .status()
            .unwrap();
        if !log.exists() {
            return eprintln!("skipped: needs a C library with mtrace");
        }
        let sites = call_sites(&bench, &log);
        let of = |bytes: u64| {
            let site =
                sites.iter().find(|site| site["bytes"] == bytes).unwrap_or_else(|| panic!("{sites:#?}"));
            site["frames"][0].as_str().unwrap().to_owned()
        };
        assert_eq!(
            (of(1111).as_str(), of(2222).as_str()),
            (format!("prog_leak at {name}.c:6").as_str(), "lib_leak at libleak.so.c:2")
        );
        // And written again, it is what mtrace(1) finds lines in.
        if is_missing("mtrace") || is_missing("addr2line") {
            continue;
        }
        let again = bench.path(&format!("{name}.again"));
        bench.run(&["convert", text(&log), "-o", text(&again), "--format", "mtrace"]).expect(0);
        let said = Command::new("mtrace").args([&program, &again]).output().unwrap();
        let said = String::from_utf8(said.stdout).unwrap();
        assert!(said.contains(&format!("{name}.c:6")) && said.contains("libleak.so.c:2"), "{said}");
    }
}

#[test]
fn a_file_that_is_newer_than_its_log_is_not_looked_into() {
    let Some(bench) = Bench::new() else { return };
    let program = leaking(&bench, "newer", &["-pie", "-fPIE"]);
    let log = bench.path("old.mtrace");
    fs::write(&log, format!("= Start\n@ {}:[0x1182] + 0x5000 0x64\n= End\n", program.display())).unwrap();
    let hour_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    fs::File::options().append(true).open(&log).unwrap().set_modified(hour_ago).unwrap();
    let ended = bench.run(&["info", "--json", text(&log)]).expect(0);
    ended.says("was changed after the log was written");
    assert_eq!(ended.json()["call_sites"][0]["frames"][0], "newer+0x1182");
}

#[test]
fn heaptrack_print_names_what_is_written_for_it() {
    let Some(bench) = Bench::new() else { return };
    if ["heaptrack_print", "objdump"].into_iter().any(is_missing) {
        return;
    }
    let program = leaking(&bench, "shown", &["-pie", "-fPIE"]);
    let trace = recorded(&bench, &program);
    let file = bench.path("heaptrack.shown.1.zst");
    bench.run(&["convert", text(&trace), "-o", text(&file)]).expect(0);
    let said = Command::new("heaptrack_print").args(["-l", "1"]).arg(&file).output().unwrap();
    let said = Ended::from(said).stdout;
    for part in ["prog_leak", "shown.c:6", "lib_leak", "libleak.so.c:2", "libleak.so"] {
        assert!(said.contains(part), "no {part} in {said}");
    }
}

/// What heaptrack_print says of a file: the stacks of functions with what leaked there.
fn leaked(bench: &Bench, file: &Path) -> Vec<String> {
    let folded = bench.path("leaked");
    let done = Command::new("heaptrack_print")
        .arg(file)
        .args(["--flamegraph-cost-type", "leaked", "-F"])
        .arg(&folded)
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let mut lines: Vec<String> = fs::read_to_string(&folded)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .filter(|line| !line.ends_with(" 0"))
        .collect();
    lines.sort();
    lines
}

#[test]
fn heaptracks_own_file_keeps_its_functions() {
    let Some(bench) = Bench::new() else { return };
    if ["heaptrack", "heaptrack_print"].into_iter().any(is_missing) {
        return;
    }
    let program = leaking(&bench, "tracked", &["-pie", "-fPIE"]);
    let done = Command::new("heaptrack").arg("-o").arg(bench.path("own")).arg(&program).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    let mut own = fs::read_dir(bench.path("")).unwrap().map(|entry| entry.unwrap().path());
    let own = own.find(|path| text(path).contains("/own.")).unwrap();
    let theirs = leaked(&bench, &own);
    assert!(theirs.iter().any(|line| line.contains("prog_leak")), "{theirs:?}");
    // Where neither program nor library is.
    fs::remove_file(&program).unwrap();
    fs::remove_file(bench.path("libleak.so")).unwrap();
    let (trace, lines, back) =
        (bench.path("t.qtr"), bench.path("t.jsonl"), bench.path("heaptrack.back.1.zst"));
    let convert =
        |from: &Path, to: &Path| bench.run(&["convert", "-q", text(from), "-o", text(to)]).expect(0);
    convert(&own, &trace);
    convert(&own, &lines);
    for from in [&own, &trace, &lines] {
        convert(from, &back);
        assert_eq!(leaked(&bench, &back), theirs, "from {}", from.display());
        let sites = call_sites(&bench, from);
        let of = |bytes: u64| {
            let site = sites.iter().find(|site| site["bytes"] == bytes);
            site.unwrap_or_else(|| panic!("{sites:#?}"))["frames"][0].clone()
        };
        assert_eq!(
            (of(1111), of(2222)),
            ("prog_leak at tracked.c:6".into(), "lib_leak at libleak.so.c:2".into())
        );
    }
    // What has no name keeps its file.
    fs::write(&own, "v 10300 3\nX ./a\nI 1000 10\ns 9 /lib/x.so\ni 7f12 1\nt 1 0\na 64 1\n+ 0\n").unwrap();
    let plain = bench.path("plain");
    fs::copy(&own, &plain).unwrap();
    assert_eq!(call_sites(&bench, &plain)[0]["frames"][0], "0x7f12 in x.so");
    convert(&plain, &bench.path("back.heaptrack"));
    assert!(
        fs::read_to_string(bench.path("back.heaptrack")).unwrap().contains("\ns 9 /lib/x.so\ni 7f12 1\n")
    );
}

#[test]
fn a_raw_file_of_heaptrack_is_named_by_files_that_are_the_same() {
    let Some(bench) = Bench::new() else { return };
    if is_missing("heaptrack") {
        return;
    }
    let program = leaking(&bench, "tracked", &["-pie", "-fPIE"]);
    let done = Command::new("heaptrack")
        .arg("--raw")
        .arg("-o")
        .arg(bench.path("own"))
        .arg(&program)
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
    let mut raw = fs::read_dir(bench.path("")).unwrap().map(|entry| entry.unwrap().path());
    let raw = raw.find(|path| text(path).contains("/own.")).unwrap();
    let of = |bytes: u64| {
        let sites = call_sites(&bench, &raw);
        let site = sites.iter().find(|site| site["bytes"] == bytes);
        site.unwrap_or_else(|| panic!("{sites:#?}"))["frames"][0].as_str().unwrap().to_owned()
    };
    assert_eq!(
        (of(1111).as_str(), of(2222).as_str()),
        ("prog_leak at tracked.c:6", "lib_leak at libleak.so.c:2")
    );
    // A program that was built again, and a library that was brought there again.
    leaking(&bench, "tracked", &["-pie", "-fPIE", "-O0"]);
    bench.run(&["info", text(&raw)]).expect(0).says("was changed after the log was written");
    assert!(
        of(1111).starts_with("tracked+0x") && of(2222).starts_with("libleak.so+0x"),
        "{} {}",
        of(1111),
        of(2222)
    );
}

#[test]
fn names_go_into_a_trace_of_any_format() {
    let Some(bench) = Bench::new() else { return };
    if is_missing("objdump") {
        return;
    }
    let program = leaking(&bench, "there", &["-pie", "-fPIE"]);
    let trace = recorded(&bench, &program);
    let names = |file: &Path| -> Vec<Value> {
        call_sites(&bench, file).into_iter().map(|site| site["frames"][0].clone()).collect()
    };
    let expected = names(&trace);
    assert!(expected.contains(&"prog_leak at there.c:6".into()), "{expected:?}");
    let mut named = Vec::new();
    // Packed ones stay packed.
    for ending in ["zst", "gz"] {
        let packed = bench.path(&format!("packed.qtr.{ending}"));
        bench.run(&["convert", "-q", text(&trace), "-o", text(&packed)]).expect(0);
        bench.run(&["symbolize", text(&packed)]).expect(0).says("names of 2 of 2 frames");
        let begin: &[u8] = if ending == "gz" { &[0x1f, 0x8b] } else { &[0x28, 0xb5, 0x2f, 0xfd] };
        assert!(fs::read(&packed).unwrap().starts_with(begin), "{ending}");
        named.push(packed);
    }
    // Others are not written over.
    for format in ["jsonl", "heaptrack", "mtrace", "ms"] {
        let (file, out) = (bench.path(&format!("of.{format}")), bench.path(&format!("{format}.qtr.zst")));
        bench.run(&["convert", "-q", text(&trace), "-o", text(&file)]).expect(0);
        let before = fs::read(&file).unwrap();
        bench
            .run(&["symbolize", text(&file)])
            .expect(2)
            .says(&format!("another format ({format})"))
            .says("-o FILE.qtr");
        assert_eq!(fs::read(&file).unwrap(), before);
        bench.run(&["symbolize", "-q", text(&file), "-o", text(&out)]).expect(0);
        if format != "ms" {
            named.push(out);
        }
    }
    let mut piped = bench.quarry(["symbolize", "-", "-q", "-o", text(&bench.path("piped.qtr"))]);
    piped.stdin(fs::File::open(&trace).unwrap());
    Ended::from(piped.output().unwrap()).expect(0);
    named.push(bench.path("piped.qtr"));
    let mut piped = bench.quarry(["symbolize", "-"]);
    piped.stdin(fs::File::open(&trace).unwrap());
    Ended::from(piped.output().unwrap()).expect(2).says("standard input");
    let xz = bench.path("x.qtr.xz");
    if Command::new("xz").args(["-kc"]).arg(&trace).stdout(fs::File::create(&xz).unwrap()).status().is_ok() {
        bench.run(&["symbolize", text(&xz)]).expect(2).says("packed with xz").says("-o FILE.qtr");
    }
    fs::remove_file(&program).unwrap();
    fs::remove_file(bench.path("libleak.so")).unwrap();
    for file in named {
        assert_eq!(names(&file), expected, "{}", file.display());
    }
}

#[test]
fn a_log_from_a_pipe_proves_no_file() {
    let Some(bench) = Bench::new() else { return };
    let program = leaking(&bench, "piped", &["-pie", "-fPIE"]);
    let log = bench.path("a.mtrace");
    fs::write(&log, format!("= Start\n@ {}:[0x1182] + 0x5000 0x64\n= End\n", program.display())).unwrap();
    let info = |stdin: Stdio| {
        let mut command = bench.quarry(["info", "--json", "-"]);
        Ended::from(command.stdin(stdin).output().unwrap()).expect(0)
    };
    let file = info(fs::File::open(&log).unwrap().into());
    assert!(!file.stderr.contains("nothing is looked up"), "{}", file.stderr);
    let mut cat = Command::new("cat").arg(&log).stdout(Stdio::piped()).spawn().unwrap();
    let piped = info(cat.stdout.take().unwrap().into());
    cat.wait().unwrap();
    piped.says("it is not known when the log was written, so nothing is looked up");
    assert_eq!(piped.json()["call_sites"][0]["frames"][0], "piped+0x1182");
    // Older than the log, and brought there later, as a package has it.
    let hour_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    let minute_ago = hour_ago + std::time::Duration::from_secs(3540);
    fs::File::options().append(true).open(&log).unwrap().set_modified(minute_ago).unwrap();
    fs::File::options().append(true).open(&program).unwrap().set_modified(hour_ago).unwrap();
    bench.run(&["info", "--json", text(&log)]).expect(0).says("was changed after the log was written");
}

/// A file of heaptrack has no names for what it could not name, and addresses that are others in each run.
#[test]
fn what_has_no_name_is_the_same_in_two_runs() {
    let Some(bench) = Bench::new() else { return };
    let write = |name: &str, base: u64| {
        let file = bench.path(name);
        let text = format!(
            "v 10300 3\nX ./a\nI 1000 10\ns a /l/libz.so\ni {:x} 1\nt 1 0\ni {:x} 1\nt 2 0\na 64 1\na 32 2\n+ 0\n+ 1\nc 1\n",
            base + 0x7b9,
            base + 0x9abc
        );
        fs::write(&file, text).unwrap();
        file
    };
    let (first, second) = (write("first", 0x7f02_d2ca_5000), write("second", 0x7f3e_b9aa_5000));
    let said = bench.run(&["profile", text(&first), text(&second)]).expect(0).stdout;
    assert!(said.contains("nothing has changed"), "{said}");
    let alone = bench.run(&["profile", text(&first)]).expect(0).stdout;
    assert!(alone.contains("0x7f02d2ca57b9 in libz.so"), "{alone}");
}
