// SPDX-License-Identifier: MIT
//! What a verb reads may be packed, and may come from standard input, a pipe or a socket. A pipe that nobody writes to is
//! waited for until a signal ends that.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Bench, Ended, kill, nothing_ignored, text};
use crate::{pools, replay};

const STORY: &[u8] = b"0=100 1=200 0=300\n1 2=50 s 0 2\n";
const SMAPS: &[u8] =
    b"7ffc0000-7ffc2000 rw-p 00000000 00:00 0                [stack]\nSize: 8 kB\nRss: 8 kB\n";

/// A verb that reads a file, with a file for it, what stands around the file, and a part of what it says then.
struct Subject {
    verb: &'static str,
    file: PathBuf,
    before: &'static [&'static str],
    after: &'static [&'static str],
    says: &'static str,
}

/// A stage with a file for each verb; `None` without a C compiler.
fn subjects() -> Option<(replay::Stage, Vec<Subject>)> {
    let stage = replay::Stage::new()?;
    let (_logged, log, _) = pools::logged()?;
    let write = |name: &str, bytes: &[u8]| {
        let path = stage.bench.path(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let trace = stage.trace("a.qtr", &["--allocations", "300"]);
    let (story, smaps) = (write("a.ms", STORY), write("smaps", SMAPS));
    let log = write("log", &fs::read(log).unwrap());
    let json = ["--json"].as_slice();
    let played = ["--json", "-n", "1", "--no-warmup", "--no-latency", "--with", "system"].as_slice();
    let subject =
        |verb, file: &Path, before, after, says| Subject { verb, file: file.to_owned(), before, after, says };
    let subjects = vec![
        subject("info", &trace, &[], json, "\"events\""),
        subject("info", &story, &[], json, "\"events\""),
        subject("convert", &trace, &[], &["--format", "csv", "-o", "-"], "lifetime"),
        subject("convert", &story, &[], &["--format", "jsonl", "-o", "-"], "\"op\""),
        subject("replay", &trace, &[], played, "\"operations\""),
        subject("replay", &story, &[], played, "\"operations\""),
        subject("gen", &trace, &["--fit"], json, "\"distance\""),
        subject("pools", &log, &[], json, "\"replies\""),
        subject("map", &smaps, &[], json, "\"stack\""),
    ];
    Some((stage, subjects))
}

impl Subject {
    fn command(&self, stage: &replay::Stage, file: &str) -> Command {
        let args: Vec<&str> = [self.verb]
            .into_iter()
            .chain(self.before.iter().copied())
            .chain([file])
            .chain(self.after.iter().copied())
            .collect();
        let mut command = stage.bench.quarry(args);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    #[track_caller]
    fn read(&self, mut command: Command, how: &str) {
        let ended = Ended::from(command.output().unwrap());
        let named = format!("{} {} {how}: {}{}", self.verb, self.file.display(), ended.stdout, ended.stderr);
        assert!(ended.code == Some(0) && ended.stdout.contains(self.says), "{named}");
    }
}

/// How files are packed, and what they end in. What is not installed is left out, and said.
fn packers() -> Vec<(&'static [&'static str], &'static str)> {
    let all: [(&[&str], &str); 4] =
        [(&["gzip", "-c"], "gz"), (&["zstd", "-qc"], "zst"), (&["xz", "-c"], "xz"), (&["lz4", "-qc"], "lz4")];
    let is_there = |(tool, _): &(&[&str], &str)| {
        let found = Command::new(tool[0])
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok();
        if !found {
            eprintln!("skipped: needs {} to pack files with (scripts/setup.sh test)", tool[0]);
        }
        found
    };
    all.into_iter().filter(is_there).collect()
}

#[test]
fn packed_files_are_read_by_every_verb() {
    let Some((stage, subjects)) = subjects() else { return };
    let packers = packers();
    for subject in &subjects {
        subject.read(subject.command(&stage, text(&subject.file)), "plain");
        for (packer, ending) in &packers {
            // Whatever it is called.
            for name in
                [format!("{}.{ending}", subject.file.display()), stage.bench.path("x").display().to_string()]
            {
                let status = Command::new(packer[0])
                    .args(&packer[1..])
                    .arg(&subject.file)
                    .stdout(File::create(&name).unwrap())
                    .status();
                assert!(status.unwrap().success());
                subject.read(subject.command(&stage, &name), ending);
            }
        }
    }
}

#[test]
fn pipes_and_sockets_are_read_by_every_verb() {
    let Some((stage, subjects)) = subjects() else { return };
    let pipe = stage.bench.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for subject in &subjects {
        let bytes = fs::read(&subject.file).unwrap();
        let cat = || Command::new("cat").arg(&subject.file).stdout(Stdio::piped()).spawn().unwrap();
        for name in ["-", "/dev/stdin", "/proc/self/fd/0"] {
            let mut from = cat();
            let mut command = subject.command(&stage, name);
            command.stdin(from.stdout.take().unwrap());
            subject.read(command, name);
            from.wait().unwrap();
            let (near, mut far) = UnixStream::pair().unwrap();
            let mut command = subject.command(&stage, name);
            command.stdin(OwnedFd::from(near));
            let bytes = bytes.clone();
            let writer = std::thread::spawn(move || far.write_all(&bytes).unwrap());
            subject.read(command, &format!("{name}, a socket"));
            writer.join().unwrap();
        }
        let mut from = Command::new("sh")
            .args(["-c", "cat \"$0\" > \"$1\""])
            .arg(&subject.file)
            .arg(&pipe)
            .spawn()
            .unwrap();
        subject.read(subject.command(&stage, text(&pipe)), "a pipe");
        from.wait().unwrap();
    }
}

#[test]
fn a_pipe_that_nobody_writes_to_can_be_left() {
    let Some((stage, subjects)) = subjects() else { return };
    let pipe = stage.bench.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for subject in &subjects {
        let mut child = nothing_ignored(&subject.command(&stage, text(&pipe)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let start = Instant::now();
        // It may not have come to the pipe yet: whenever the signal comes, it ends.
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            assert!(start.elapsed() < Duration::from_secs(60), "{} waits on", subject.verb);
            kill("INT", child.id());
            std::thread::sleep(Duration::from_millis(100));
        };
        assert!(status.signal() == Some(2) || status.code() == Some(130), "{}: {status}", subject.verb);
    }
}

#[test]
fn copies_that_went_through_windows_are_read_alike() {
    let Some(bench) = Bench::new() else { return };
    let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
    let windows = smaps.replace('\n', "\r\n");
    let utf16 = |text: &str| {
        [0xFEFF].into_iter().chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect::<Vec<u8>>()
    };
    let map = |bytes: &[u8], code: i32| {
        let file = bench.path("copy");
        fs::write(&file, bytes).unwrap();
        bench.run(&["map", "--json", text(&file)]).expect(code)
    };
    let whole = map(smaps.as_bytes(), 0).json();
    assert!(whole["mappings"].as_array().unwrap().len() > 5 && whole["damage"].is_null(), "{whole:#}");
    let marked = [b"\xEF\xBB\xBF", smaps.as_bytes()].concat();
    for copy in [windows.clone().into_bytes(), utf16(&windows), utf16(&smaps), marked] {
        assert_eq!(map(&copy, 0).json(), whole);
    }
    // What is lost on the way is said: a line, the end, the end of a packed one.
    let (at, _) = smaps.match_indices("\nRss:").nth(2).unwrap();
    let end = smaps[at + 1..].find('\n').unwrap();
    let lost = [&smaps[..at], &smaps[at + 1 + end..]].concat();
    map(lost.as_bytes(), 1).says("1 mapping lacks a counter that others have");
    map(&smaps.as_bytes()[..smaps.len() - 40], 1).says("ends within a mapping");
    map(b"00400000-00401000 r--p 0 0:0 0\nnonsense\n", 1).says("line 2 cannot be read");
    map(b"MZ\x90\x00", 1).says("is neither smaps or maps nor a core file: line 1 is");
}

/// One scheme: 1 of verbs that show what is in a file, 125 of those that make or run something of it.
#[test]
fn a_file_that_cannot_be_read_ends_every_verb_with_its_code() {
    let Some((stage, subjects)) = subjects() else { return };
    let (empty, none, odd) = (stage.bench.path("empty"), stage.bench.path("none"), stage.bench.path("odd"));
    fs::write(&empty, "").unwrap();
    fs::write(&odd, "#!/bin/sh\necho hello\n").unwrap();
    for subject in &subjects {
        let code = if matches!(subject.verb, "info" | "pools" | "map") { 1 } else { 125 };
        let is_trace = matches!(subject.verb, "info" | "replay" | "profile");
        for (file, words) in [
            (text(&empty), if is_trace { "is empty; make a trace with quarry record" } else { "is empty" }),
            (
                text(&none),
                if is_trace { "; make a trace with quarry record -o FILE" } else { "No such file" },
            ),
            ("/", "directory"),
            ("/dev/zero", "is a device"),
            (text(&odd), "odd: is n"),
        ] {
            // A folder is a saved process to map.
            if (subject.verb, file) == ("map", "/") {
                continue;
            }
            let ended = Ended::from(subject.command(&stage, file).output().unwrap());
            assert_eq!(ended.code, Some(code), "{} {file}: {}", subject.verb, ended.stderr);
            ended.says(words);
        }
    }
}

/// What is given to a verb that does not read it is refused with the verb that does.
#[test]
fn each_verb_says_who_reads_a_file() {
    let Some((stage, subjects)) = subjects() else { return };
    let path = |name: &str| stage.bench.path(name);
    let (core, massif, heap, table) = (path("core"), path("m"), path("h"), path("t.csv"));
    fs::write(&core, b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x04\0").unwrap();
    fs::write(&massif, "desc: (none)\ncmd: ./a\ntime_unit: i\n").unwrap();
    fs::write(&heap, "heap_v2/524288\n").unwrap();
    let rollup = path("rollup");
    fs::write(&rollup, "00400000-7fff00000000 ---p 00000000 00:00 0  [rollup]\nRss: 4 kB\n").unwrap();
    let file = |verb: &str| subjects.iter().find(|subject| subject.verb == verb).unwrap().file.clone();
    stage.bench.run(&["convert", "-q", text(&file("info")), "-o", text(&table)]).expect(0);
    let report = path("report");
    let said = stage.bench.run(&["info", "--json", text(&file("info"))]).expect(0).stdout;
    fs::write(&report, said).unwrap();
    let files = [
        (file("info"), "trace", "quarry info"),
        (file("pools"), "log", "quarry pools shows it"),
        (file("map"), "smaps", "quarry map shows it"),
        (core, "core", "quarry map shows it"),
        (massif, "profile", "quarry info"),
        (heap, "profile", "quarry info"),
        (table, "table", "what the table was made from"),
        (report, "report", "what it was made from"),
        (rollup, "sums", "copy /proc/PID/smaps"),
        (PathBuf::from(env!("CARGO_BIN_EXE_quarry")), "program", "quarry record"),
    ];
    let read: [(&str, &[&str], i32); 6] = [
        ("info", &["trace", "profile"], 1),
        ("convert", &["trace", "profile"], 125),
        ("symbolize", &["trace"], 1),
        ("replay", &["trace"], 125),
        ("pools", &["log"], 1),
        ("map", &["smaps", "core"], 1),
    ];
    for (verb, reads, code) in read {
        for (file, kind, advice) in files.iter().filter(|(_, kind, _)| !reads.contains(kind)) {
            let mut words = vec![verb, text(file)];
            let out = path("out.qtr");
            if verb == "convert" || verb == "symbolize" {
                words.extend(["-o", text(&out)]);
            }
            let ended = stage.bench.run(&words);
            assert!(
                ended.code == Some(code) && ended.stderr.contains(advice),
                "{verb} of a {kind}: {}",
                ended.stderr
            );
        }
    }
}

/// Of the last word of a packed simulation that was cut nobody knows how it goes on.
#[test]
fn a_packed_simulation_that_was_cut_plays_what_is_whole() {
    let Some(stage) = replay::Stage::new() else { return };
    let whole: Vec<String> =
        (0..4000).map(|number| format!("{}={}", number % 50, 1_000_000 + number)).collect();
    let plain = stage.bench.path("plain.ms");
    fs::write(&plain, whole.join(" ")).unwrap();
    let packed = Command::new("gzip").arg("-c").arg(&plain).output();
    let Ok(packed) = packed else { return eprintln!("skipped: needs gzip to pack files with") };
    let cut = stage.bench.path("cut.ms.gz");
    let played = ["--json", "-n", "1", "--no-warmup", "--no-latency", "--with", "system"];
    for length in [packed.stdout.len() / 2, packed.stdout.len() / 2 + 1, packed.stdout.len() / 2 + 2] {
        fs::write(&cut, &packed.stdout[..length]).unwrap();
        let ended = stage.bench.run(&[&["replay", text(&cut)][..], &played].concat()).expect(0);
        let json = ended.json();
        assert!(json["damage"].as_str().is_some_and(|damage| damage.contains("cut off")), "{json:#}");
        // No size of the whole one is smaller.
        let info = stage.bench.run(&["info", "--json", text(&cut)]).expect(0).json();
        let count = |key: &str| json["plan"]["operations"][key].as_u64().unwrap();
        let (births, moves) = (&info["allocations"]["count"], &info["reallocs"]["count"]);
        assert_eq!((count("malloc"), count("realloc")), (births.as_u64().unwrap(), moves.as_u64().unwrap()));
    }
}

/// An ending that stands for a packing which is read alone is refused before anything is made.
#[test]
fn what_is_not_packed_is_not_named_so() {
    let Some((stage, subjects)) = subjects() else { return };
    let trace = text(&subjects[0].file);
    for ending in ["xz", "lz4", "XZ"] {
        let out = stage.bench.path(&format!("out.csv.{ending}"));
        stage.bench.run(&["convert", trace, "-o", text(&out)]).expect(2).says("is read and not written");
        let out = stage.bench.path(&format!("out.qtr.{ending}"));
        stage.bench.run(&["symbolize", trace, "-o", text(&out)]).expect(2).says("is read and not written");
        stage
            .bench
            .run(&["gen", "--allocations", "10", "-o", text(&out)])
            .expect(2)
            .says("is read and not written");
        assert!(!out.exists());
    }
    let out = stage.bench.path("out.CSV.GZ");
    stage.bench.run(&["convert", "-q", trace, "-o", text(&out)]).expect(0);
    assert_eq!(fs::read(&out).unwrap()[..2], [0x1F, 0x8B]);
}

/// Names are put into what is left of a trace, and the rest is told.
#[test]
fn a_damaged_trace_is_told_when_it_gets_names() {
    let Some((stage, subjects)) = subjects() else { return };
    let (bad, out) = (stage.bench.path("bad.qtr"), stage.bench.path("out.qtr"));
    let mut bytes = fs::read(&subjects[0].file).unwrap();
    bytes.extend([0x5A; 3000]);
    fs::write(&bad, bytes).unwrap();
    stage.bench.run(&["info", "--strict", text(&bad)]).expect(1);
    let ended = stage.bench.run(&["symbolize", text(&bad), "-o", text(&out)]).expect(1);
    ended.says("bad.qtr: ").says("3000 bytes left out");
}

/// What is damaged within a block shows when it is read.
#[test]
fn damage_within_a_block_is_told() {
    let Some(stage) = replay::Stage::new() else { return };
    let good = stage.trace("good.qtr", &["--allocations", "30000"]);
    let (bad, out) = (stage.bench.path("bad.qtr"), stage.bench.path("out.qtr"));
    let mut bytes = fs::read(good).unwrap();
    let block = bytes.windows(5).rposition(|part| part == b"QTRB\x02").unwrap();
    bytes[block + 64 + 1] ^= 0x55;
    fs::write(&bad, bytes).unwrap();
    stage.bench.run(&["symbolize", text(&bad), "-o", text(&out)]).expect(1).says("checksum");
    let args = ["replay", text(&bad), "--json", "-n", "1", "--no-warmup", "--no-latency", "--with", "system"];
    let json = stage.bench.run(&args).expect(0).json();
    assert!(json.to_string().contains("checksum"), "{json:#}");
}
