// SPDX-License-Identifier: MIT
//! Verbs that write traces, ended from outside or by a lack of memory: the file is whole or not there, and nothing else is left.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use crate::common::{Bench, Ended, PATIENCE, kill, nothing_ignored, text};

const LINE: &[u8] = b"{\"op\":\"alloc\",\"size\":5,\"address\":16}\n";

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// It has begun to write: there is a file of another name.
fn wait_for_beside(directory: &Path) {
    let start = Instant::now();
    while !names(directory).iter().any(|name| name.starts_with(".quarry-")) {
        assert!(start.elapsed() < PATIENCE, "nothing is written");
        std::thread::yield_now();
    }
}

/// A conversion that waits for the rest of its input.
fn waiting(bench: &Bench, directory: &Path, before: &str) -> Child {
    let shell = format!("{before} exec \"$0\" convert - --from jsonl -o \"$1\"");
    let mut command = Command::new("sh");
    command.args(["-c", &shell, env!("CARGO_BIN_EXE_quarry")]).arg(directory.join("out.qtr"));
    command.env("QUARRY_LIB_DIR", bench.path(""));
    let mut command = nothing_ignored(&command);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(LINE).unwrap();
    child.stdin.as_mut().unwrap().write_all(&b"\n".repeat(1 << 16)).unwrap();
    wait_for_beside(directory);
    child
}

#[test]
fn a_signal_leaves_nothing_behind() {
    let Some(bench) = Bench::new() else { return };
    let directory = bench.path("out");
    fs::create_dir(&directory).unwrap();
    let named = [("INT", 2), ("TERM", 15), ("HUP", 1), ("QUIT", 3), ("ABRT", 6), ("XFSZ", 25)];
    // Timers, descriptors, the power, and the first and the last one without a meaning.
    let others = [("16", 16), ("26", 26), ("27", 27), ("29", 29), ("30", 30), ("34", 34), ("64", 64)];
    for (signal, number) in named.into_iter().chain(others) {
        let child = waiting(&bench, &directory, "ulimit -c 0;");
        kill(signal, child.id());
        let output = child.wait_with_output().unwrap();
        // Ended by it, as a shell wants to know.
        assert_eq!(output.status.signal(), Some(number), "{signal}: {output:?}");
        assert_eq!(names(&directory), [""; 0], "{signal}");
    }
    // Several times: the moment after the file is made is the one to hit.
    for (signal, number) in [("INT", 2), ("TERM", 15)].repeat(10) {
        let out = directory.join("big.qtr");
        let gen_big = bench.quarry(["gen", "--allocations", "2000000000", "-o", text(&out)]);
        let mut child = nothing_ignored(&gen_big).stdout(Stdio::null()).spawn().unwrap();
        wait_for_beside(&directory);
        kill(signal, child.id());
        assert_eq!(child.wait().unwrap().signal(), Some(number), "{signal}");
        assert_eq!(names(&directory), [""; 0], "{signal}");
    }
}

#[test]
fn what_was_there_stays() {
    let Some(bench) = Bench::new() else { return };
    let directory = bench.path("out");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("out.qtr"), "precious").unwrap();
    let child = waiting(&bench, &directory, "");
    kill("TERM", child.id());
    child.wait_with_output().unwrap();
    assert_eq!(fs::read_to_string(directory.join("out.qtr")).unwrap(), "precious");
    assert_eq!(names(&directory), ["out.qtr"]);
}

#[test]
fn a_report_is_written_where_that_is_allowed() {
    let Some(bench) = Bench::new() else { return };
    let directory = bench.path("out");
    fs::create_dir(&directory).unwrap();
    let (closed, open) = (directory.join("closed"), directory.join("open"));
    let allow = |path: &Path, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    for file in [&closed, &open] {
        fs::write(file, "before").unwrap();
    }
    allow(&closed, 0o400);
    if fs::File::options().append(true).open(&closed).is_ok() {
        return eprintln!("skipped: needs a user who may not write everywhere");
    }
    // Into the folder another file could be put.
    bench.run(&["map", "-o", text(&closed), "--", "true"]).says("cannot write");
    allow(&directory, 0o500);
    bench.run(&["map", "-o", text(&open), "--", "true"]);
    allow(&directory, 0o700);
    assert_eq!(fs::read_to_string(&closed).unwrap(), "before");
    assert!(fs::read_to_string(&open).unwrap().contains("mappings"));
    assert_eq!(names(&directory).len(), 2);
}

#[test]
fn what_is_read_is_not_written_over() {
    let Some(bench) = Bench::new() else { return };
    let dir = bench.path("before");
    fs::create_dir(&dir).unwrap();
    // In the folder of a report, and under the name that quarry bench has for it.
    let (file, dir) = (dir.join("result.json"), text(&dir));
    fs::write(&file, "read me").unwrap();
    let file = text(&file);
    for args in [
        &["pools", file, "-o", file][..],
        &["pools", "--format", "svg", file, "-o", file],
        &["info", file, "-o", file],
        &["replay", file, "-o", file],
        &["gen", "--fit", file, "--format", "qtr", "-o", file],
        &["gen", "--fit", file, "--save-model", file],
        &["map", file, "-o", file],
        &["map", file, "-o", "another.html", "-o", file],
        &["compare", "--input", file, "-o", file, "--", "true"],
        &["bench", "--baseline", file, "--dir", dir, "list"],
        &["bench", "--baseline", file, "-o", file, "list"],
        &["bench", "--from", file, "--dir", dir],
        &["bench", "--from", file, "-o", file],
        &["check", file, "-o", file],
        &["check", "--suppressions", file, "-o", file, "--", "true"],
    ] {
        bench.run(args).expect(2).says("name another file");
        assert_eq!(fs::read_to_string(file).unwrap(), "read me", "{args:?}");
    }
    let mut from_shell = bench.quarry(["pools", "-", "-o", file]);
    let ended = from_shell.stdin(fs::File::open(file).unwrap()).output().unwrap();
    Ended::from(ended).expect(2).says("name another file");
}

#[test]
fn a_signal_that_is_ignored_stays_so() {
    let Some(bench) = Bench::new() else { return };
    let directory = bench.path("out");
    fs::create_dir(&directory).unwrap();
    let mut child = waiting(&bench, &directory, "trap '' HUP INT;");
    kill("HUP", child.id());
    kill("INT", child.id());
    child.stdin.take().unwrap().write_all(LINE).unwrap();
    Ended::from(child.wait_with_output().unwrap()).expect(0);
    assert_eq!(names(&directory), ["out.qtr"]);
    let json = bench.run(&["info", "--json", text(&directory.join("out.qtr"))]).expect(0).json();
    assert_eq!(json["allocations"]["total"].as_u64().or(json["events"].as_u64()), Some(2), "{json:#}");
}

/// The verbs with so many KiB of address space.
fn limited(bench: &Bench, kib: u64, args: &[&str]) -> Ended {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -v \"$0\" && exec \"$@\"", &kib.to_string(), env!("CARGO_BIN_EXE_quarry")]);
    Ended::from(command.args(args).env("QUARRY_LIB_DIR", bench.path("")).output().unwrap())
}

#[test]
fn a_lack_of_memory_is_said_and_leaves_nothing_behind() {
    let Some(bench) = Bench::new() else { return };
    let directory = bench.path("out");
    fs::create_dir(&directory).unwrap();
    // Nothing dies, so that a reader has to remember all.
    let trace = bench.path("many.qtr");
    let make = [
        "gen",
        "--allocations",
        "1000000",
        "--lifetime",
        "never",
        "--size",
        "constant:16",
        "-o",
        text(&trace),
    ];
    bench.run(&make).expect(0);
    const LITTLE: u64 = 64 << 10;
    limited(&bench, LITTLE, &["--version"]).expect(0);
    let said = "quarry: error: out of memory: the system refused ";
    let ended = limited(&bench, LITTLE, &["info", text(&trace)]).expect(125);
    assert!(ended.stderr.starts_with(said) && ended.stderr.lines().count() == 1, "{}", ended.stderr);
    assert_eq!(ended.stdout, "");
    for (to, wide) in [("rows.csv", &[][..]), ("out.ms", &["--wide"])] {
        let out = directory.join(to);
        fs::write(&out, "precious").unwrap();
        let convert = [&["convert", text(&trace), "-o", text(&out)], wide].concat();
        limited(&bench, LITTLE, &convert).expect(125).says(said);
        assert_eq!(fs::read_to_string(&out).unwrap(), "precious", "{to}");
        assert_eq!(names(&directory), [to]);
        fs::remove_file(&out).unwrap();
    }
    // With enough of it all is well.
    limited(&bench, 2 << 20, &["info", text(&trace)]).expect(0);
}
