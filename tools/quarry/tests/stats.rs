// SPDX-License-Identifier: MIT
//! quarry stats: of processes with pages whose numbers are known, and of those that have none.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::Bench;
use serde_json::Value;

/// A process that has said "ready"; it ends when its input is closed.
struct Process {
    child: Child,
    input: Option<ChildStdin>,
}

impl Process {
    /// `None`: this machine has no shared memory for it.
    fn start(command: &mut Command) -> Option<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let input = child.stdin.take();
        let mut process = Self { child, input };
        if line != "ready\n" {
            assert_eq!(process.end(), Some(77), "it said {line:?}");
            eprintln!("skipped: no System V shared memory here");
            return None;
        }
        Some(process)
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

/// The process with a page.
fn with_page(bench: &Bench, version: &str) -> Option<Process> {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include");
    let program = bench.path("stats_process");
    if !program.exists() {
        let options = ["-I", include.to_str().unwrap()];
        bench
            .compile("stats_process", include_str!("common/stats_process.c"), &options)
            .expect("it compiles");
    }
    Process::start(Command::new(program).arg(version))
}

#[test]
fn every_form_says_what_is_in_the_page() {
    let Some(bench) = Bench::new() else { return };
    let Some(process) = with_page(&bench, "1") else { return };
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

    let metrics = bench.run(&["stats", "-p", &pid, "--openmetrics"]).expect(0).stdout;
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
    let Some(process) = with_page(&bench, "1") else { return };
    drop(process);
    let program = bench.path("a\u{1b}[2Jb");
    std::fs::copy(bench.path("stats_process"), &program).unwrap();
    let Some(process) = Process::start(Command::new(&program).arg("1")) else { return };
    for args in [&["stats"] as &[&str], &["stats", "-p", &process.pid()]] {
        let text = bench.run(args).expect(0).stdout;
        assert!(text.contains("a\\u{1b}[2Jb") && !text.contains('\u{1b}'), "{text:?}");
    }
}

/// The kernel calls the segment /SYSV00000000, as any other one.
#[test]
fn the_page_has_its_name_in_maps_of_the_process() {
    let Some(bench) = Bench::new() else { return };
    let Some(process) = with_page(&bench, "1") else { return };
    let pid = process.pid();
    let map = bench.run(&["map", "-p", &pid, "--json"]).expect(0).json();
    let of_kind = |mapping: &&Value| mapping["kind"] == "sysv";
    let pages: Vec<&Value> = map["mappings"].as_array().unwrap().iter().filter(of_kind).collect();
    assert_eq!(pages.len(), 1, "{pages:#?}");
    assert_eq!(
        (pages[0]["object"].as_str(), pages[0]["name"].as_str(), pages[0]["quadrant"].as_u64()),
        (Some("quarry statistics page"), Some("/SYSV00000000"), Some(2))
    );
    let text = bench.run(&["map", "-p", &pid, "-n", "0"]).expect(0).stdout;
    let line = text.lines().find(|line| line.contains("quarry statistics page")).expect(&text);
    assert!(line.trim_end().ends_with("quarry statistics page") && !text.contains("/SYSV"), "{text}");
    let chain = bench.run(&["explain", "-p", &pid, "--for", "0"]).expect(0).stdout;
    assert!(chain.contains("quarry statistics page"), "{chain}");
    let opened = bench.run(&["top", "-p", &pid, "--json"]).expect(0).json();
    assert!(opened["opened"]["parts"].as_array().unwrap().iter().any(|part| part["kind"] == "sysv"));
    // At the end of a command, too.
    let program = bench.path("stats_process");
    let ended = bench.run(&["map", "-n", "0", "--", program.to_str().unwrap(), "1"]).expect(0);
    ended.says("quarry statistics page");
    // A version that cannot be read is not taken for one.
    let Some(later) = with_page(&bench, "2") else { return };
    let text = bench.run(&["map", "-p", &later.pid(), "-n", "0"]).expect(0).stdout;
    assert!(text.contains("/SYSV00000000") && !text.contains("quarry statistics page"), "{text}");
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
        let process = Process::start(&mut shell).unwrap();
        bench.run(&["stats", "-p", &process.pid()]).expect(1).says(words);
    }

    let Some(process) = with_page(&bench, "2") else { return };
    bench.run(&["stats", "-p", &process.pid()]).expect(1).says("version 2");
}

#[test]
fn watching_ends_with_the_process() {
    let Some(bench) = Bench::new() else { return };
    let Some(mut process) = with_page(&bench, "1") else { return };
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
    let Some(mut process) = with_page(&bench, "1") else { return };
    let file = bench.path("series.jsonl");
    std::fs::write(&file, "what was there before\n").unwrap();
    let args = ["stats", "-p", &process.pid(), "--json", "--watch", "0.05", "-o", file.to_str().unwrap()];
    let mut child = bench.quarry(args).spawn().unwrap();
    let lines = || std::fs::read_to_string(&file).unwrap().lines().map(str::to_owned).collect::<Vec<_>>();
    let end = Instant::now() + Duration::from_secs(20);
    while lines().len() < 3 && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
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
    let Some(mut process) = with_page(&bench, "1") else { return };
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
