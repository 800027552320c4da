// SPDX-License-Identifier: MIT
//! quarry stats: of processes with pages whose numbers are known, and of those that have none.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::common::{Bench, wait_until};
use serde_json::Value;

/// A process that has said "ready"; it ends when its input is closed.
struct Process {
    child: Child,
    input: Option<ChildStdin>,
}

impl Process {
    fn start(command: &mut Command) -> Self {
        Self::start_saying(command).0
    }

    /// And what it said before that word.
    fn start_saying(command: &mut Command) -> (Self, String) {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let input = child.stdin.take();
        let said =
            line.strip_suffix("ready\n").unwrap_or_else(|| panic!("it said {line:?}")).trim().to_owned();
        (Self { child, input }, said)
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    fn end(&mut self) -> Option<i32> {
        self.input = None;
        self.child.wait().unwrap().code()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// The program that has a page.
fn program(bench: &Bench, options: &[&str]) -> PathBuf {
    let name = format!("stats_process{}", options.concat());
    let program = bench.path(&name);
    if !program.exists() {
        let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include");
        let all: Vec<&str> =
            ["-I", include.to_str().unwrap()].into_iter().chain(options.iter().copied()).collect();
        bench.compile(&name, include_str!("common/stats_process.c"), &all).expect("it compiles");
    }
    program
}

/// The process with a page.
fn with_page(bench: &Bench, version: &str) -> Process {
    Process::start(Command::new(program(bench, &[])).arg(version))
}

#[test]
fn every_form_says_what_is_in_the_page() {
    let Some(bench) = Bench::new() else { return };
    let process = with_page(&bench, "2");
    let pid = process.pid();

    let text = bench.run(&["stats", "-p", &pid]).expect(0).stdout;
    for words in ["(stats_process), libquarry 9.8.7", "10.0 MiB", "4.25 MiB", "30 000", "packets", "64.0 KiB"]
    {
        assert!(text.contains(words), "{words} is not in\n{text}");
    }

    let json: Value =
        serde_json::from_str(&bench.run(&["stats", "-p", &pid, "--json"]).expect(0).stdout).unwrap();
    assert_eq!(json["schema"], "quarry-stats/1");
    let one = &json["processes"][0];
    assert_eq!(one["pid"].to_string(), pid);
    assert_eq!(one["estimate"]["live_bytes"], (4 << 20) - (1 << 20) - (1 << 19) - (1 << 18) + (2 << 20));
    let heap = &one["pages"][0]["heap"];
    assert_eq!(heap["sums"]["refills"], 12345);
    assert_eq!(heap["classes"][0]["out_blocks"], 30000);
    assert_eq!(heap["ranges"][0]["base"], "0x7f0000000000");
    assert_eq!(one["pages"][0]["pools"]["pools"][0]["used_bytes"], 1000);

    let metrics = bench.run(&["stats", "-p", &pid, "--format", "openmetrics"]).expect(0).stdout;
    let sample = format!(
        "quarry_pool_held_bytes{{pid=\"{pid}\",program=\"stats_process\",library=\"libquarry\",kind=\"ring\",pool=\"packets\"}} 65536\n"
    );
    assert!(metrics.contains(&sample) && metrics.ends_with("# EOF\n"), "{metrics}");

    // Others of this user may have pages, too; this one is among them.
    let list = bench.run(&["stats"]).expect(0).stdout;
    assert!(list.lines().any(|line| line.split_whitespace().next() == Some(&pid)), "{list}");
}

/// What would move the cursor of a terminal is written out.
#[test]
fn a_name_cannot_write_on_the_screen() {
    let Some(bench) = Bench::new() else { return };
    let process = with_page(&bench, "2");
    drop(process);
    let program = bench.path("a\u{1b}[2Jb");
    std::fs::copy(bench.path("stats_process"), &program).unwrap();
    let process = Process::start(Command::new(&program).arg("2"));
    for args in [&["stats"] as &[&str], &["stats", "-p", &process.pid()]] {
        let text = bench.run(args).expect(0).stdout;
        assert!(text.contains("a\\u{1b}[2Jb") && !text.contains('\u{1b}'), "{text:?}");
    }
}

/// However the program is linked, and without names of symbols or sections.
#[test]
fn the_page_is_found_in_programs_of_all_kinds() {
    let Some(bench) = Bench::new() else { return };
    for options in [
        &["-static", "-s"] as &[&str],
        &["-static-pie", "-s"],
        &["-no-pie"],
        &["-pie", "-s", "-Wl,-z,nosectionheader"],
    ] {
        // Not every linker knows the last one.
        if options.len() == 3 && bench.compile("probe", "int main(void) { return 0; }", options).is_none() {
            continue;
        }
        let process = Process::start(Command::new(program(&bench, options)).arg("2"));
        assert!(bench.run(&["stats", "-p", &process.pid()]).expect(0).stdout.contains("packets"));
    }
    // Where the brk heap lies right behind the program's data, the kernel calls both one mapping.
    let mut fixed = Command::new("setarch");
    fixed.args(["-R"]).arg(program(&bench, &["-static", "-s"])).arg("2");
    let process = Process::start(&mut fixed);
    assert!(bench.run(&["stats", "-p", &process.pid()]).expect(0).stdout.contains("packets"));
}

/// A child has its parent's memory, and does not show what is in it.
#[test]
fn a_copy_of_another_process_s_page_is_none() {
    let Some(bench) = Bench::new() else { return };
    let (process, child) = Process::start_saying(Command::new(program(&bench, &[])).args(["2", "fork"]));
    assert!(bench.run(&["stats", "-p", &process.pid()]).expect(0).stdout.contains("packets"));
    bench.run(&["stats", "-p", &child]).expect(1).says("does not run on Quarry");
    let list = bench.run(&["stats"]).expect(0).stdout;
    assert!(!list.lines().any(|line| line.split_whitespace().next() == Some(&child)), "{list}");
}

/// To whom the kernel shows nothing it is said what to do.
#[test]
fn a_process_that_may_not_be_read_says_what_to_do() {
    let Some(bench) = Bench::new() else { return };
    let process = Process::start(Command::new(program(&bench, &[])).args(["2", "undumpable"]));
    // To root it shows everything.
    match std::fs::File::open(format!("/proc/{}/mem", process.pid())) {
        Ok(_) => assert!(bench.run(&["stats", "-p", &process.pid()]).expect(0).stdout.contains("packets")),
        Err(_) => drop(bench.run(&["stats", "-p", &process.pid()]).expect(1).says("PR_SET_DUMPABLE")),
    }
}

#[test]
fn it_says_why_there_is_nothing() {
    let Some(bench) = Bench::new() else { return };
    bench.run(&["stats", "-p", "2147483647"]).expect(1).says("there is no process");
    let ours = std::process::id().to_string();
    bench.run(&["stats", "-p", &ours]).expect(1).says("does not run on Quarry");
    bench.run(&["stats", "-p", "0"]).expect(2);

    // On something that is called like the heap, and has no page.
    for (conf, words) in
        [("stats_page:off", "stats_page:off"), ("", "no statistics page: there is none before 256 KiB")]
    {
        let library = bench.path("libquarry-malloc.so");
        let mut shell = Command::new("sh");
        // The shell itself waits: in the moment of an exec nothing is loaded.
        shell.args(["-c", "echo ready; read -r line"]).env("LD_PRELOAD", library).env("QUARRY_CONF", conf);
        let process = Process::start(&mut shell);
        bench.run(&["stats", "-p", &process.pid()]).expect(1).says(words);
    }

    let process = with_page(&bench, "3");
    bench.run(&["stats", "-p", &process.pid()]).expect(1).says("version 3");
}

#[test]
fn watching_ends_with_the_process() {
    let Some(bench) = Bench::new() else { return };
    let mut process = with_page(&bench, "2");
    let args = ["stats", "-p", &process.pid(), "--json", "--watch", "0.05"];
    let mut child = bench.quarry(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for _ in 0..3 {
        let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(line["schema"], "quarry-stats/1");
    }
    // That its parent has not waited for it yet makes no difference.
    process.input = None;
    for line in lines {
        line.unwrap();
    }
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(ended.status.success() && said.contains("it has ended"), "{said}");
}

/// All of them, also in a file.
#[test]
fn each_time_has_its_line_in_a_file() {
    let Some(bench) = Bench::new() else { return };
    let mut process = with_page(&bench, "2");
    let file = bench.path("series.jsonl");
    std::fs::write(&file, "what was there before\n").unwrap();
    let args = ["stats", "-p", &process.pid(), "--json", "--watch", "0.05", "-o", file.to_str().unwrap()];
    let mut child = bench.quarry(args).spawn().unwrap();
    let lines = || std::fs::read_to_string(&file).unwrap().lines().map(str::to_owned).collect::<Vec<_>>();
    wait_until("three lines", || lines().len() >= 3);
    process.end();
    assert!(child.wait().unwrap().success());
    let lines = lines();
    assert!(lines.len() >= 3, "{lines:?}");
    for line in lines {
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["schema"], "quarry-stats/1");
    }
}

/// Serves until it is dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn get(address: &str, request: &str) -> String {
    let mut client = TcpStream::connect(address).unwrap();
    client.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn scrapers_are_answered() {
    let Some(bench) = Bench::new() else { return };
    let mut process = with_page(&bench, "2");
    let args = ["stats", "-p", &process.pid(), "--serve", "0"];
    let mut server = Server(bench.quarry(args).stderr(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(server.0.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let address =
        line.trim().strip_prefix("quarry: answering at http://").and_then(|a| a.strip_suffix("/metrics"));
    let address = address.unwrap_or_else(|| panic!("it said {line:?}"));
    assert!(address.starts_with("127.0.0.1:"));

    let answer =
        get(address, "GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: application/openmetrics-text\r\n\r\n");
    assert!(
        answer.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text; version=1.0.0"),
        "{answer}"
    );
    assert!(answer.contains("state=\"pages_dirty\"} 3145728\n") && answer.ends_with("# EOF\n"), "{answer}");
    // Somebody who says nothing, or nonsense, keeps nobody from being answered: the silent ones' time is not over yet.
    let mut silent: Vec<_> = (0..5).map(|_| TcpStream::connect(address).unwrap()).collect();
    assert!(get(address, "nonsense\r\n\r\n").starts_with("HTTP/1.1 405"));
    for client in &mut silent {
        client.set_nonblocking(true).unwrap();
        assert_eq!(client.read(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    }
    drop(silent);
    process.end();
    let answer = get(address, "GET /metrics HTTP/1.1\r\n\r\n");
    assert!(answer.contains("version=0.0.4") && !answer.contains("quarry_heap_bytes{"), "{answer}");
}

/// One that may have statistics later is served, and one that is not there is not.
#[test]
fn a_process_without_statistics_is_named_before_it_is_served() {
    let Some(bench) = Bench::new() else { return };
    bench.run(&["stats", "-p", "2147483647", "--serve", "0"]).expect(1).says("there is no process");
    let own = std::process::id().to_string();
    let args = ["stats", "-p", &own, "--serve", "0"];
    let mut server = Server(bench.quarry(args).stderr(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(server.0.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("does not run on Quarry"), "{line}");
}

/// In a namespace of its own, where numbers can be chosen.
#[test]
fn a_number_that_is_given_again_is_left_out() {
    let Some(bench) = Bench::new() else { return };
    let alone = ["--pid", "--fork", "--mount-proc"];
    let tried = Command::new("unshare").args(alone).arg("true").stderr(Stdio::null()).status();
    if !tried.is_ok_and(|status| status.success()) {
        eprintln!("skipped: needs unshare, and root");
        return;
    }
    let program = program(&bench, &[]);
    let mut shell = Command::new("unshare");
    shell.args(alone).arg("sh").current_dir(bench.path(".")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut shell = shell.spawn().unwrap();
    let (mut input, mut output) = (shell.stdin.take().unwrap(), BufReader::new(shell.stdout.take().unwrap()));
    let mut tell = |command: &str| {
        writeln!(input, "{command}").unwrap();
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        line.trim().to_owned()
    };
    let said = |file: &str| std::fs::read_to_string(bench.path(file)).unwrap_or_default();
    // Its input has no end.
    let run = format!("'{}' 2 <&3", program.display());
    let pid = tell(&format!("mkfifo hold; exec 3<>hold; {run} >first & echo $!"));
    wait_until("it has a page", || said("first").contains("ready"));
    let quarry = env!("CARGO_BIN_EXE_quarry");
    tell(&format!("'{quarry}' stats -p {pid} --serve 0 2>served & echo"));
    wait_until("it is served", || said("served").contains("/metrics"));
    let served = said("served");
    let address =
        served.trim().strip_prefix("quarry: answering at http://").and_then(|a| a.strip_suffix("/metrics"));
    let address = address.unwrap_or_else(|| panic!("it said {served:?}"));
    let is_told =
        || get(address, "GET /metrics HTTP/1.1\r\n\r\n").contains(&format!("{{pid=\"{pid}\",program="));
    assert!(is_told());
    // The kernel tells in ticks of 10 ms when a process was started.
    std::thread::sleep(std::time::Duration::from_millis(20));
    let next = format!("echo $(({pid} - 1)) >/proc/sys/kernel/ns_last_pid; {run} >second & echo $!");
    if tell(&format!("kill {pid}; wait {pid}; {next}")) == pid {
        wait_until("the other one has a page", || said("second").contains("ready"));
        tell(&format!("'{quarry}' stats -p {pid} >seen; echo"));
        assert!(said("seen").contains("packets") && !is_told(), "{}", said("seen"));
    } else {
        eprintln!("skipped: needs a kernel.ns_last_pid that can be written to");
    }
    drop(input);
    shell.wait().unwrap();
}
