// SPDX-License-Identifier: MIT
//! quarry top: against procps' top, in a terminal, on processes that vanish, and on very many.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::pty::Session;
use crate::common::{Ended, PATIENCE, kill};
use serde_json::Value;

const QUARRY: &str = env!("CARGO_BIN_EXE_quarry");
const SMALL: (u16, u16) = (80, 24);

/// A process that does nothing until it is dropped.
struct Idle(Child);

impl Idle {
    fn new() -> Self {
        Self(Command::new("sleep").arg("1000").spawn().unwrap())
    }

    fn stopped() -> Self {
        let idle = Self::new();
        let stat = format!("/proc/{}/stat", idle.pid());
        // Its memory is its own once it has become sleep and waits.
        while !fs::read_to_string(&stat).unwrap().contains("(sleep) S") {
            thread::sleep(Duration::from_millis(5));
        }
        kill("STOP", idle.0.id());
        while !fs::read_to_string(&stat).unwrap().contains("(sleep) T") {
            thread::sleep(Duration::from_millis(5));
        }
        idle
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn quarry(args: &[&str]) -> Ended {
    let mut command = Command::new(QUARRY);
    Ended::from(command.arg("top").args(args).env_remove("NO_COLOR").stdin(Stdio::null()).output().unwrap())
}

fn session(args: &[&str], size: (u16, u16)) -> Session {
    let args: Vec<&str> = [&["--default-signal", QUARRY, "top"][..], args].concat();
    Session::new(OsStr::new("env"), args, &[], size)
}

/// The only row.
#[track_caller]
fn row(frame: &Value) -> &Value {
    let rows = frame["processes"].as_array().unwrap();
    assert_eq!(rows.len(), 1, "{frame:#}");
    &rows[0]
}

/// A /proc of so many processes. Those that are shown are the last.
fn many(root: &Path, count: u32) {
    for pid in 1..=count {
        process(root, pid);
        if pid + 300 > count {
            dear_files(root, pid);
        }
    }
    fs::write(root.join("meminfo"), "MemTotal: 16000000 kB\nMemAvailable: 8000000 kB\n").unwrap();
}

fn process(root: &Path, pid: u32) {
    let folder = root.join(pid.to_string());
    fs::create_dir_all(&folder).unwrap();
    let numbers = " 0".repeat(22);
    let stat =
        format!("{pid} (worker) S 1 1 1 0 -1 0 9 0 7 0 5 6 0 0 20 0 1 0 {pid} 4096 {pid} 0 1 1 0{numbers}\n");
    fs::write(folder.join("stat"), stat).unwrap();
    fs::write(folder.join("statm"), format!("{} {pid} 1 2 0 3 0\n", pid * 2)).unwrap();
}

/// What is read of visible rows alone.
fn dear_files(root: &Path, pid: u32) {
    let folder = root.join(pid.to_string());
    fs::write(folder.join("status"), format!("Name:\tworker\nRssAnon:\t{pid} kB\nVmSwap:\t0 kB\n")).unwrap();
    let rollup = format!(
        "0-1000 ---p 00000000 00:00 0  [rollup]\nRss: {pid} kB\nPss: {pid} kB\nPrivate_Clean: 0 kB\nPrivate_Dirty: {pid} kB\n"
    );
    fs::write(folder.join("smaps_rollup"), rollup).unwrap();
}

#[test]
fn columns_are_those_of_procps() {
    if Command::new("top").arg("-v").output().is_err() {
        eprintln!("skipped: needs top (the package procps)");
        return;
    }
    let idle = Idle::stopped();
    let ours = quarry(&["--json", "--filter", &idle.pid(), "--rows", "0"]).expect(0).json();
    let ours = row(&ours);
    // Its third group of fields is about memory; -e k: KiB, to the last digit.
    let home = tempfile::tempdir().unwrap();
    let environment =
        [("HOME", home.path().to_str().unwrap()), ("XDG_CONFIG_HOME", home.path().to_str().unwrap())];
    let mut top =
        Session::new(OsStr::new("top"), ["-e", "k", "-d", "1", "-p", &idle.pid()], &environment, (200, 24));
    top.shows("COMMAND");
    // It throws away what was typed while it began.
    top.settle();
    top.press("g");
    top.shows("1 - 4");
    top.press("3\r");
    top.shows("CODE");
    // What is below the heads may still be of the first group.
    top.settle();
    let pid = idle.pid();
    top.until("shows the process", |screen| screen.lines().any(|line| line.trim_start().starts_with(&pid)));
    let text = top.text();
    let words = |start: &str| -> Vec<String> {
        let line = text.lines().find(|line| line.trim_start().starts_with(start)).unwrap();
        line.split_whitespace().map(str::to_owned).collect()
    };
    let (heads, cells) = (words("PID"), words(&pid));
    let theirs = |name: &str| {
        &cells[heads.iter().position(|head| head == name).unwrap_or_else(|| panic!("{name} in {text}"))]
    };
    for (name, key) in [
        ("VIRT", "virt"),
        ("RES", "res"),
        ("SHR", "shr"),
        ("CODE", "code"),
        ("DATA", "data"),
        ("SWAP", "swap"),
    ] {
        if name == "SWAP" && !heads.iter().any(|head| head == name) {
            // top leaves it out where there is no swap space.
            assert_eq!(ours[key], 0);
            continue;
        }
        let theirs: u64 = theirs(name).parse().unwrap_or_else(|_| panic!("{name} in {text}"));
        assert_eq!(ours[key], theirs * 1024, "{name}: {ours:#}\n{text}");
    }
    let percent: f64 = theirs("%MEM").parse().unwrap();
    assert!((ours["mem_percent"].as_f64().unwrap() - percent).abs() <= 0.0501);
    top.press("q");
    // What procps leaves of the terminal is no concern of ours.
    assert!(ours["pss"].as_u64().unwrap() <= ours["res"].as_u64().unwrap());
}

#[test]
fn a_whole_session() {
    let idle = Idle::new();
    let mut top = session(&["-d", "0.5"], SMALL);
    top.shows("COMMAND");
    top.shows("quarry top");
    assert!(top.parser.screen().alternate_screen() && top.parser.screen().hide_cursor());
    let heads = top.line(2);
    assert!(heads.contains("PSS") && heads.contains("GROW/s") && heads.len() <= 80, "{heads}");
    // Keys that come at once mean the same as one by one: this opens the process that the filter lets through.
    top.press(&format!("/{}\r\r", idle.pid()));
    top.shows(&format!("{} sleep  threads 1", idle.pid()));
    top.press("\x1b");
    top.shows("filter:");
    top.until("shows only it", |screen| {
        let line = |number: usize| screen.lines().nth(number).unwrap_or_default();
        line(3).contains("sleep") && line(4).trim().is_empty()
    });
    // A column that a narrow screen leaves out is there when it is sorted by.
    assert!(!top.line(2).contains("CODE"));
    top.press(">>");
    top.until("sorts by CODE", |screen| screen.lines().nth(2).is_some_and(|line| line.contains("CODE")));
    // Help, and back.
    top.press("h");
    top.shows("What the columns are");
    top.press("\x1b[6~\x1b[6~\x1b[6~\x1b[6~");
    top.shows("quadrant");
    top.press("q");
    top.shows("PID");
    // Into the process; another grouping; out again.
    top.press("\r");
    top.shows("KIND");
    top.shows("rodata");
    assert!(top.text().contains("RES") && top.text().contains("shared memory"));
    top.press("g");
    top.shows("libc");
    top.press("\x1b");
    top.shows("COMMAND");
    // A wide window has all columns, a tiny one none, and it comes back.
    top.resize(150, 40);
    top.until("has all columns", |screen| {
        ["ANON", "FILE", "SHM", "GROWN", "MAJ/s"].iter().all(|name| screen.contains(name))
    });
    top.resize(10, 3);
    top.shows("too small");
    top.resize(80, 24);
    top.shows("PID");
    top.press(" ");
    top.shows("PAUSED");
    // Nothing changes, nothing is written.
    top.settle();
    let before = top.written;
    assert!(!top.read(Duration::from_millis(1200)), "{} bytes in a pause", top.written - before);
    top.press("q");
    assert_eq!(top.ends().code(), Some(0));
}

#[test]
fn a_slow_line_gets_what_is_newest() {
    let folder = tempfile::tempdir().unwrap();
    many(folder.path(), 200);
    let root = folder.path().to_str().unwrap();
    // Frames that are all the same: of ten in a second, what they took may differ.
    let mut top = session(&["--proc", root, "-d", "0.1"], SMALL);
    top.until("has rates", |screen| screen.lines().nth(3).is_some_and(|row| !row.contains(" - ")));
    let before = top.written;
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(1) {
        top.read(Duration::from_millis(50));
    }
    let most = 300.0 * start.elapsed().as_secs_f64();
    assert!(((top.written - before) as f64) < most, "{} bytes, {most}", top.written - before);
    top.press("q");
    assert_eq!(top.ends().code(), Some(0));
    let mut top = session(&["--proc", root, "-d", "60"], SMALL);
    top.shows("worker");
    top.settle();
    let before = top.written;
    top.press("j");
    top.settle();
    let one = top.written - before;
    assert!((1..600).contains(&one), "{one} bytes to move the cursor");
    // Keys that come together are one frame, or a few, and not a hundred.
    let before = top.written;
    top.press(&"j".repeat(100));
    top.settle();
    let many = top.written - before;
    assert!(many < 20_000, "{many} bytes for a hundred keys");
    assert!(top.text().contains("worker"));
    top.press("\x03");
    assert_eq!(top.ends().code(), Some(0));
}

#[test]
fn signals_give_the_terminal_back() {
    for (signal, number) in [
        ("TERM", 15),
        ("INT", 2),
        ("HUP", 1),
        ("QUIT", 3),
        ("ABRT", 6),
        ("USR1", 10),
        ("USR2", 12),
        ("ALRM", 14),
        ("XCPU", 24),
        ("XFSZ", 25),
    ] {
        let mut top = session(&[], SMALL);
        top.shows("COMMAND");
        kill(signal, top.child.id());
        let status = top.ends();
        assert_eq!((status.code(), status.signal()), (Some(128 + number), None), "{signal}");
    }
}

#[test]
fn a_lack_of_memory_gives_the_terminal_back() {
    let mut top = session(&[], SMALL);
    top.shows("COMMAND");
    let pid = top.child.id().to_string();
    let limited = Command::new("prlimit").args(["--as=1048576", "--pid", &pid]).status();
    if !limited.is_ok_and(|status| status.success()) {
        eprintln!("skipped: needs prlimit");
        return;
    }
    // A larger screen needs more.
    top.resize(2000, 1000);
    assert_eq!(top.ends().code(), Some(125));
    assert!(top.text().contains("out of memory"), "{}", top.text());
}

#[test]
fn ctrl_z_gives_the_terminal_to_the_shell() {
    let folder = tempfile::tempdir().unwrap();
    let modes = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap_or_default();
    let folder_name = folder.path().to_str().unwrap();
    let environment = [("PS1", "shell> "), ("D", folder_name), ("Q", QUARRY), ("HOME", folder_name)];
    let mut shell =
        Session::new(OsStr::new("env"), ["--default-signal", "-u", "ENV", "sh", "-i"], &environment, SMALL);
    // What is typed before the shell asks for it might be read by the tool.
    let asks = |times: usize| move |screen: &str| screen.matches("shell> ").count() == times;
    shell.until("asks", asks(1));
    // A frame that is not asked for would be a minute away.
    shell.press("stty -g > $D/before; \"$Q\" top -d 60\r");
    shell.shows("COMMAND");
    shell.press("\x1a");
    shell.until("asks again", asks(2));
    assert!(!shell.parser.screen().alternate_screen() && !shell.parser.screen().hide_cursor());
    shell.press("stty -g > $D/stopped; jobs\r");
    shell.until("has a job", asks(3));
    assert!(shell.text().contains("Stopped"), "{}", shell.text());
    assert_eq!(modes("stopped"), modes("before"));
    shell.press("fg\r");
    shell.until("is drawn anew", |screen| screen.contains("COMMAND") && screen.contains("quarry top"));
    assert!(shell.parser.screen().alternate_screen() && shell.parser.screen().hide_cursor());
    // Keys come at once again.
    shell.press("h");
    shell.shows("What the columns are");
    shell.press("qq");
    shell.until("asks when it has ended", asks(4));
    shell.press("stty -g > $D/after; exit 7\r");
    assert_eq!(shell.ends().code(), Some(7));
    assert_eq!(modes("after"), modes("before"));
}

#[test]
fn whoever_stops_it_it_goes_on_as_before() {
    let mut top = session(&["-d", "60"], SMALL);
    top.shows("COMMAND");
    top.settle();
    // What the screen shows is lost meanwhile, as when a shell has written on it.
    for (stop, seen) in [("STOP", "T"), ("TSTP", "")] {
        kill(stop, top.child.id());
        if !seen.is_empty() {
            let stat = format!("/proc/{}/stat", top.child.id());
            while !fs::read_to_string(&stat).unwrap().contains(") T ") {
                thread::sleep(Duration::from_millis(5));
            }
        }
        top.parser.process(b"\x1bc");
        assert!(top.text().is_empty());
        kill("CONT", top.child.id());
        top.shows("COMMAND");
        top.settle();
        assert!(top.parser.screen().alternate_screen() && top.parser.screen().hide_cursor(), "{stop}");
    }
    top.press("q");
    assert_eq!(top.ends().code(), Some(0));
}

#[test]
fn letters_are_enough() {
    let args = [QUARRY, "top"];
    let mut top = Session::new(OsStr::new("env"), args, &[("NO_COLOR", "1")], SMALL);
    top.shows("COMMAND");
    let screen = top.parser.screen();
    let colored = |row: u16, column: u16| {
        let cell = screen.cell(row, column).unwrap();
        cell.fgcolor() != vt100::Color::Default || cell.bgcolor() != vt100::Color::Default
    };
    assert!((0..24).all(|row| (0..80).all(|column| !colored(row, column))));
    assert!(screen.cell(2, 0).unwrap().inverse(), "the heads are not reversed");
    top.press("q");
    assert_eq!(top.ends().code(), Some(0));
}

#[test]
fn the_open_process_may_end() {
    let idle = Idle::new();
    let pid = idle.pid();
    let mut top = session(&["-p", &pid, "-d", "0.2"], SMALL);
    top.shows("KIND");
    drop(idle);
    top.shows("has ended");
    top.shows("COMMAND");
    top.press("q");
    assert_eq!(top.ends().code(), Some(0));
    let old = tempfile::NamedTempFile::new().unwrap();
    fs::write(&old, "old report").unwrap();
    let file = old.path().to_str().unwrap();
    quarry(&["-p", &pid, "--once", "-o", file]).expect(1).says("there is no process");
    assert_eq!(fs::read_to_string(&old).unwrap(), "old report");
}

#[test]
fn processes_vanish_while_they_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    many(root, 100);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let churn = || {
            while !done.load(Ordering::Relaxed) {
                for pid in 1..=100 {
                    let _ = fs::remove_dir_all(root.join(pid.to_string()));
                    process(root, pid);
                    dear_files(root, pid);
                }
            }
        };
        scope.spawn(churn);
        let ended =
            quarry(&["--proc", root.to_str().unwrap(), "--json", "-n", "5", "-d", "0.1", "--sort", "pss"]);
        done.store(true, Ordering::Relaxed);
        let ended = ended.expect(0);
        assert_eq!(ended.stdout.lines().count(), 5);
        for (line, number) in ended.stdout.lines().zip(1..) {
            let frame: Value = serde_json::from_str(line).unwrap();
            assert_eq!(
                (frame["schema"].as_str(), frame["frame"].as_u64()),
                (Some("quarry-top/1"), Some(number))
            );
            assert!((50..=100).contains(&frame["count"].as_u64().unwrap()), "{frame:#}");
        }
    });
    // The machine's own, with processes that come and go.
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let _ = Command::new("true").status();
            }
        });
        let ended = quarry(&["--once", "-n", "3", "-d", "0.1", "--rows", "0", "--sort", "uss"]);
        done.store(true, Ordering::Relaxed);
        assert_eq!(ended.expect(0).stdout.matches("COMMAND").count(), 3);
    });
}

/// The calls of one frame of this /proc to the kernel.
fn calls(root: &Path, count: u32) -> Option<u64> {
    let counts = root.join("counts");
    // The standard library looks at a file by fcntl before it closes it, if it is built for debugging.
    let mut command = Command::new("strace");
    command.args(["-f", "-c", "-e", "trace=!fcntl", "-o"]).arg(&counts).arg(QUARRY);
    let output = command.args(["top", "--json", "--rows", "20", "--proc"]).arg(root).output().ok()?;
    let counts = fs::read_to_string(&counts).ok()?;
    let frame = Ended::from(output).expect(0).json();
    assert_eq!(
        (frame["count"].as_u64(), frame["processes"].as_array().map(Vec::len)),
        (Some(count.into()), Some(20))
    );
    assert_eq!(frame["files_of_visible_rows"], 40);
    counts.lines().rfind(|line| line.ends_with("total"))?.split_whitespace().nth(3)?.parse().ok()
}

#[test]
fn a_process_costs_six_calls() {
    let folder = tempfile::tempdir().unwrap();
    let of = |count: u32| {
        let root = folder.path().join(count.to_string());
        many(&root, count);
        calls(&root, count)
    };
    let (Some(few), Some(many)) = (of(300), of(1300)) else {
        eprintln!("skipped: needs strace and the right to trace");
        return;
    };
    // Besides, the list of a thousand more names is longer.
    let more = many - few;
    assert!((6000..6030).contains(&more), "{few} calls for 300 processes, {many} for 1300");
    assert!(few < 1800 + 1000, "{few} calls for 300 processes");
}

#[test]
fn rights_that_are_missing_are_told_in_the_row() {
    let idle = Idle::stopped();
    let id = Command::new("id").arg("-u").output().unwrap();
    if id.stdout != b"0\n" {
        // The first process is not ours.
        let frame = quarry(&["--json", "--filter", "1", "--rows", "0"]).expect(0).json();
        let rows = frame["processes"].as_array().unwrap();
        let first = rows.iter().find(|row| row["pid"] == 1).unwrap();
        assert!(first["missing"].is_string() && first["pss"].is_null(), "{first:#}");
        return;
    }
    // As somebody else, who can read the copy of the program.
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("quarry");
    // Not by ourselves: what is still open for writing in a program that another thread starts cannot be executed.
    assert!(Command::new("cp").arg(QUARRY).arg(&program).status().unwrap().success());
    for path in [folder.path(), &program] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--clear-groups"]).arg(&program).args([
        "top",
        "--json",
        "--filter",
        &idle.pid(),
    ]);
    let ended = Ended::from(command.output().unwrap()).expect(0).json();
    let row = row(&ended);
    assert!(row["missing"].as_str().unwrap().contains("not yours"), "{row:#}");
    assert!(row["res"].as_u64().unwrap() > 0 && row["swap"].is_u64() && row["pss"].is_null(), "{row:#}");
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--clear-groups"]).arg(&program).args([
        "top",
        "--once",
        "-p",
        &idle.pid(),
    ]);
    let text = Ended::from(command.output().unwrap()).expect(0).stdout;
    for part in ["VIRT", "sleep (not yours)", "not permitted", "CAP_SYS_PTRACE"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

#[test]
fn one_process_has_no_order() {
    let own = std::process::id().to_string();
    for option in [&["--filter", "a"][..], &["--reverse"]] {
        quarry(&[&["--once", "-p", &own], option].concat()).expect(2).says(option[0]);
    }
}

#[test]
fn terminals_that_cannot() {
    let mut top = Session::new(OsStr::new(QUARRY), ["top"], &[("TERM", "dumb")], SMALL);
    top.shows("--once");
    assert_eq!(top.ends().code(), Some(2));
    // Some serial lines do not know their size.
    let mut top = session(&[], (0, 0));
    assert_eq!(top.ends().code(), Some(125));
}

#[test]
fn a_reader_that_does_not_read_is_no_reason_to_stay() {
    let (reader, mut writer) = std::io::pipe().unwrap();
    // A pipe that is full, so that the first frame waits.
    writer.write_all(&[0; 64 << 10]).unwrap();
    let mut command = Command::new("env");
    command.args(["--default-signal", QUARRY, "top", "--json"]).stdin(Stdio::null()).stdout(writer);
    let mut child = command.spawn().unwrap();
    let stat = format!("/proc/{}/stat", child.id());
    while !fs::read_to_string(&stat).unwrap().contains("(quarry) S") {
        thread::sleep(Duration::from_millis(50));
    }
    kill("TERM", child.id());
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() && start.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(15));
    drop(reader);
}

#[test]
fn without_a_terminal() {
    quarry(&[]).expect(2).says("--once");
    let idle = Idle::stopped();
    let text = quarry(&["--once", "-p", &idle.pid()]).expect(0).stdout;
    for word in ["sleep", "VIRT", "DATA", "KIND", "rodata", "stack"] {
        assert!(text.contains(word), "{text}");
    }
    let frame = quarry(&["--json", "-p", &idle.pid(), "--rows", "0"]).expect(0).json();
    let (opened, row) = (&frame["opened"], row(&frame));
    // Some kernels count statm in parts, which may lack a few pages of each processor.
    let (rss, res) = (opened["total"]["rss"].as_u64().unwrap(), row["res"].as_u64().unwrap());
    assert!(rss.abs_diff(res) <= 512 << 10, "{rss} and {res}");
    assert_eq!(opened["total"]["size"], row["virt"]);
    let parts = opened["parts"].as_array().unwrap();
    let sum: u64 = parts.iter().map(|part| part["rss"].as_u64().unwrap()).sum();
    assert_eq!(rss, sum);
    // Rates need two frames.
    assert!(row["faults_per_s"].is_null());
    let ended = quarry(&["--json", "-n", "2", "-d", "0.2", "--filter", &idle.pid()]).expect(0);
    let second: Value = serde_json::from_str(ended.stdout.lines().nth(1).unwrap()).unwrap();
    let row = self::row(&second);
    assert_eq!((row["faults_per_s"].as_f64(), row["growth_per_s"].as_f64()), (Some(0.0), Some(0.0)));
    let table = quarry(&["--once", "--rows", "3", "--sort", "pid"]).expect(0).stdout;
    assert!(table.lines().count() >= 5 && table.contains(" more\n"), "{table}");
    quarry(&["--sort", "nonsense"]).expect(2).says("pid, state, virt");
}
