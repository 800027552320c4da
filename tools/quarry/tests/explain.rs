// SPDX-License-Identifier: MIT
//! quarry explain on processes whose memory is what it is for a known reason. On the C library's malloc always; on Quarry where
//! its library is built (build/lib of the checkout, or where QUARRY_TEST_LIB_DIR says).

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use crate::common::{Bench, Ended, PATIENCE, kill, quarry_library, state, text};
use serde_json::Value;

const MIB: u64 = 1 << 20;

/// One for all tests that run at the same time, with the program that they look at; `None` without a C compiler.
fn bench() -> Option<Arc<Bench>> {
    static SHARED: Mutex<Weak<Bench>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap();
    if let Some(bench) = shared.upgrade() {
        return Some(bench);
    }
    let bench = Arc::new(Bench::new()?);
    bench.compile("explained", include_str!("explained.c"), &["-O1", "-pthread"]).expect("it compiles");
    *shared = Arc::downgrade(&bench);
    Some(bench)
}

/// An allocator to run on.
struct Entrant {
    name: &'static str,
    library: Option<PathBuf>,
}

const GLIBC: Entrant = Entrant { name: "glibc", library: None };

/// As a package of the distribution has it.
fn installed(name: &'static str, file: &str) -> Option<Entrant> {
    let library = PathBuf::from(format!("/usr/lib/{}-linux-gnu/{file}", std::env::consts::ARCH));
    if library.exists() {
        return Some(Entrant { name, library: Some(library) });
    }
    eprintln!("not on {name}: no {}", library.display());
    None
}

/// Those whose inside can be seen.
fn entrants() -> Vec<Entrant> {
    let mut entrants = vec![GLIBC];
    entrants.extend(installed("tcmalloc", "libtcmalloc_minimal.so.4"));
    entrants.extend(quarry_library().map(|library| Entrant { name: "Quarry", library: Some(library) }));
    entrants
}

/// Those of which only the size can be seen.
fn opaque() -> Vec<Entrant> {
    let opaque = [("jemalloc", "libjemalloc.so.2"), ("mimalloc", "libmimalloc.so.2")];
    opaque.into_iter().filter_map(|(name, file)| installed(name, file)).collect()
}

/// The process, and what ends it.
struct Subject {
    name: &'static str,
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    /// When it was what it is.
    ready: Instant,
}

impl Subject {
    fn start(bench: &Bench, on: &Entrant, args: &[&str]) -> Self {
        let mut command = Command::new(bench.path("explained"));
        // The C library's own caches are small unless one asks for more. Long lists that change while they are followed are not known whole.
        command.args(args).env_remove("GLIBC_TUNABLES");
        if args[0] != "busy" {
            command.env("GLIBC_TUNABLES", "glibc.malloc.tcache_count=1000");
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).env_remove("QUARRY_CONF");
        match &on.library {
            Some(library) => command.env("LD_PRELOAD", library),
            None => command.env_remove("LD_PRELOAD"),
        };
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let input = child.stdin.take();
        let mut subject = Self { name: on.name, input, output, child, ready: Instant::now() };
        let line = subject.line();
        assert_eq!(line, "ready\n", "{args:?} on {}", on.name);
        subject.ready = Instant::now();
        subject
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line
    }

    /// What a busy one says it holds, in bytes.
    fn held(&mut self) -> u64 {
        self.input.as_mut().unwrap().write_all(b"\n").unwrap();
        self.line().trim().parse().unwrap()
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    fn explain(&self, bench: &Bench, seconds: &str) -> Value {
        bench.run(&["explain", "-p", &self.pid(), "--for", seconds, "--json"]).expect(0).json()
    }
}

impl Subject {
    /// Quarry spends a small part of the time on its numbers. On a machine that is busy with something else they may be older than
    /// what the process did last.
    fn explain_by_new_numbers(&self, bench: &Bench, seconds: &str) -> Value {
        loop {
            let ready = self.ready.elapsed();
            let report = self.explain(bench, seconds);
            if report["heaps"][0]["age_s"].as_f64().unwrap_or(0.0) <= ready.as_secs_f64() {
                return report;
            }
            assert!(ready < PATIENCE, "old numbers: {report:#}");
        }
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The same on each of them, side by side.
fn each(bench: &Bench, on: &[Entrant], args: &[&str], check: impl Fn(&Subject) + Sync) {
    std::thread::scope(|scope| {
        for on in on {
            let check = &check;
            scope.spawn(move || check(&Subject::start(bench, on, args)));
        }
    });
}

/// The parts of each whole add up to it.
fn adds_up(part: &Value) {
    let parts = part["parts"].as_array().unwrap();
    if !parts.is_empty() {
        let sum: u64 = parts.iter().map(|part| part["bytes"].as_u64().unwrap()).sum();
        assert_eq!(Some(sum), part["bytes"].as_u64(), "{part:#}");
        parts.iter().for_each(adds_up);
    }
}

/// The chain adds up, and is the kernel's figure.
#[track_caller]
fn is_the_kernels(report: &Value, what: &str) {
    adds_up(&report["chain"]);
    let resident = report["resident_bytes"].as_u64().unwrap();
    let kernel = report["kernel"]["vm_rss_bytes"].as_u64().unwrap();
    assert_eq!(report["chain"]["bytes"].as_u64(), Some(resident));
    assert!(resident.abs_diff(kernel) <= kernel / 100, "{what}: {resident} and {kernel}");
}

fn cause(report: &Value, name: &str) -> u64 {
    report["causes"][name].as_u64().unwrap_or_else(|| panic!("{name} in {report:#}"))
}

#[track_caller]
fn main_is(report: &Value, wanted: &str, what: &str) {
    is_the_kernels(report, what);
    verdict_is(report, wanted, what);
}

#[track_caller]
fn verdict_is(report: &Value, wanted: &str, what: &str) {
    assert_eq!(report["verdict"]["main"], wanted, "{what}: {report:#}");
    assert!(!report["verdict"]["sentences"].as_array().unwrap().is_empty());
}

#[test]
fn a_leak_grows() {
    let Some(bench) = bench() else { return };
    // Even where the inside of the heap is not known.
    let all: Vec<Entrant> = entrants().into_iter().chain(opaque()).collect();
    each(&bench, &all, &["leak"], |subject| {
        let report = subject.explain(&bench, "0.5");
        // The kernel's figure is read at another time, when a process that grows has another one.
        adds_up(&report["chain"]);
        verdict_is(&report, "leak_like", subject.name);
        assert_eq!(report["growth"]["growing"], true);
        assert!(report["verdict"]["try"][0]["what"].as_str().unwrap().contains("quarry record"));
        assert_eq!(report["verdict"].to_string().matches("quarry record").count(), 1, "{report:#}");
    });
}

#[test]
fn memory_of_no_heap_that_grows_is_not_said_to_be_held() {
    let Some(bench) = bench() else { return };
    let subject = Subject::start(&bench, &GLIBC, &["mapped"]);
    let report = subject.explain(&bench, "0.5");
    verdict_is(&report, "unknown_grows", subject.name);
    let verdict = &report["verdict"];
    assert!(verdict["sentences"][0].as_str().unwrap().contains("no heap known here has"), "{verdict:#}");
    // What is to be typed next names this process.
    let map = format!("quarry map -p {} --quadrant 1,3", subject.pid());
    assert!(verdict["try"][0]["what"].as_str().unwrap().contains(&map), "{verdict:#}");
    assert!(!verdict.to_string().contains("-p PID"), "{verdict:#}");
}

#[test]
fn objects_of_python_are_to_be_put_on_malloc() {
    const GROWS: &str = "import time; l = []\nprint('ready', flush=True)\n\
        while True: l.append([{} for _ in range(9)] + ['%d' % i for i in range(900)]); time.sleep(.002)";
    let Some(bench) = bench() else { return };
    let mut command = Command::new("python3");
    command.args(["-c", GROWS]).env_remove("PYTHONMALLOC").env_remove("LD_PRELOAD");
    let Ok(mut child) = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() else {
        eprintln!("not on Python: no python3");
        return;
    };
    let output = BufReader::new(child.stdout.take().unwrap());
    let input = child.stdin.take();
    let mut subject = Subject { name: "Python", input, output, child, ready: Instant::now() };
    assert_eq!(subject.line(), "ready\n");
    let report = subject.explain(&bench, "1");
    verdict_is(&report, "unknown_grows", subject.name);
    let what = report["verdict"]["try"][0]["what"].as_str().unwrap();
    assert!(what.contains("PYTHONMALLOC=malloc quarry record -g -- CMD"), "{report:#}");
    assert_eq!(report["verdict"].to_string().matches("quarry record").count(), 1, "{report:#}");
    // At the end Python has freed all.
    assert!(!report["verdict"].to_string().contains("--at end"), "{report:#}");
}

#[test]
fn fragmentation_is_told_from_what_is_live() {
    let Some(bench) = bench() else { return };
    each(&bench, &entrants(), &["fragmentation"], |subject| {
        let report = subject.explain_by_new_numbers(&bench, "0.2");
        main_is(&report, "fragmentation", subject.name);
        // Of 20,000 blocks of 1000 bytes 2,000 are left.
        let live = cause(&report, "live");
        assert!((MIB..4 * MIB).contains(&live), "{}: {live}", subject.name);
        assert_eq!(report["growth"]["growing"], false, "{report:#}");
        let heap = &report["heaps"][0];
        assert_eq!(heap["allocator"], subject.name);
        if subject.name == "glibc" {
            assert!(heap["trimmable_bytes"].as_u64() > Some(5 * MIB), "{heap}");
            let pages = report["verdict"]["sentences"][1].as_str().unwrap();
            assert!(pages.contains("whole free pages, which malloc_trim(0) gives back"), "{report:#}");
            assert!(pages.contains("on pages with live blocks"), "{report:#}");
            assert!(report["verdict"]["try"][0]["what"].as_str().unwrap().contains("malloc_trim"));
        }
    });
}

#[test]
fn caches_of_threads_are_seen() {
    let Some(bench) = bench() else { return };
    let check = |subject: &Subject| {
        let report = subject.explain_by_new_numbers(&bench, "0.2");
        main_is(&report, "thread_caches", subject.name);
        let cached = cause(&report, "thread_caches");
        assert!(cached > 6 * MIB, "{}: {cached}", subject.name);
        // Nothing is live but what threads need; the central cache of tcmalloc cannot be told from what is live.
        let most = if subject.name == "tcmalloc" { cached } else { 4 * MIB };
        assert!(cause(&report, "live") < most, "{}: {report:#}", subject.name);
    };
    // Quarry's caches have one budget, so what sleeps keeps little: none of it may count as live.
    let (ours, others): (Vec<_>, Vec<_>) = entrants().into_iter().partition(|on| on.name == "Quarry");
    each(&bench, &ours, &["caches", "48", "128"], |subject| {
        let report = subject.explain_by_new_numbers(&bench, "0.2");
        assert!(cause(&report, "live") < 4 * MIB, "{}: {report:#}", subject.name);
    });
    each(&bench, &others, &["caches", "16", "16"], check);
}

#[test]
fn what_cannot_be_told_from_outside_is_unknown() {
    let Some(bench) = bench() else { return };
    each(&bench, &opaque(), &["fragmentation"], |subject| {
        let report = subject.explain(&bench, "0");
        main_is(&report, "opaque_heap", subject.name);
        assert_eq!(report["heaps"][0]["allocator"], subject.name);
        assert!(report["verdict"]["sentences"][0].as_str().unwrap().contains("unknown"), "{report:#}");
        for known in ["live", "thread_caches", "fragmentation"] {
            assert_eq!(cause(&report, known), 0, "{known}");
        }
    });
}

#[test]
fn files_are_files() {
    let Some(bench) = bench() else { return };
    let file = bench.path("large");
    each(&bench, &entrants(), &["file", text(&file)], |subject| {
        let report = subject.explain(&bench, "0");
        // The folder for temporary files may be in memory.
        let main = report["verdict"]["main"].as_str().unwrap();
        assert!(matches!(main, "files" | "shared"), "{main}");
        is_the_kernels(&report, subject.name);
        assert!(cause(&report, main) >= 40 * MIB);
        assert!(report.to_string().contains("/large"));
    });
}

/// They are the program's own: no file has them, and MADV_DONTNEED would lose what was written.
#[test]
fn written_pages_of_a_private_mapping_are_no_pages_of_files() {
    let Some(bench) = bench() else { return };
    let file = bench.path("copied");
    let report = Subject::start(&bench, &GLIBC, &["written", text(&file)]).explain(&bench, "0");
    main_is(&report, "unknown", "40 MiB");
    assert!(cause(&report, "files") < 10 * MIB, "{report:#}");
    assert!(!report["verdict"].to_string().contains("MADV_DONTNEED"), "{report:#}");
}

/// The articles' program: SHR has memory in it that nobody shares and no file has.
#[test]
fn shared_anonymous_memory_is_no_file() {
    let Some(bench) = bench() else { return };
    let subject = Subject::start(&bench, &GLIBC, &["shared"]);
    let report = subject.explain(&bench, "0");
    main_is(&report, "shared", "50 MiB");
    assert_eq!(cause(&report, "shared"), 50 * MIB);
    assert!(report.to_string().contains("in maps /dev/zero (deleted)"));
    let shown = bench.run(&["explain", "-p", &subject.pid(), "--for", "0"]).expect(0).stdout;
    let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains("(50.0 MiB of it is no file's: the kernel keeps shared memory like a file"),
        "{shown}"
    );
}

#[test]
fn what_the_kernel_may_take_is_lazily_freed_in_no_heap_too() {
    let Some(bench) = bench() else { return };
    each(&bench, &entrants(), &["lazy"], |subject| {
        let report = subject.explain(&bench, "0");
        let smaps = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", subject.pid())).unwrap();
        let line = smaps.lines().find_map(|line| line.strip_prefix("LazyFree:")).unwrap();
        let kernels = line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10;
        // A heap whose pages lie in the same mapping is taken to have its share of it.
        let lazy = cause(&report, "lazily_freed");
        assert!(lazy.abs_diff(kernels) <= kernels / 50, "{}: {lazy} of {kernels}", subject.name);
        is_the_kernels(&report, subject.name);
    });
}

#[test]
fn what_is_live_is_counted_to_the_page() {
    let Some(bench) = bench() else { return };
    // 20,000 blocks of 1000 bytes and 10 of 2 MiB.
    let wanted = 20_000 * 1000 + 20 * MIB;
    each(&bench, &entrants(), &["live"], |subject| {
        kill("STOP", subject.child.id());
        let report = subject.explain(&bench, "0");
        main_is(&report, "live", subject.name);
        let live = cause(&report, "live");
        assert!(live.abs_diff(wanted) < wanted / 25, "{}: {live} of {wanted}", subject.name);
        assert!(report["growth"].is_null());
    });
}

/// What there is of glibc's heap: bytes of its live part, those that could not be read, and all.
fn of_glibc(report: &Value) -> [u64; 3] {
    let heap = &report["heaps"][0];
    assert_eq!(heap["allocator"], "glibc", "{report:#}");
    let bytes = |key: &str| heap[key].as_u64().unwrap();
    [cause(report, "live"), bytes("unread_bytes"), bytes("resident_bytes")]
}

/// The program says what it holds before and after each look. Between two words of its heap it may go on as far as it likes.
fn is_read_while_it_works(subject: &mut Subject, bench: &Bench) {
    for _ in 0..10 {
        let before = subject.held();
        let report = bench.run(&["explain", "-p", &subject.pid(), "--for", "0", "--json"]).expect(0).json();
        let after = subject.held();
        adds_up(&report["chain"]);
        let [live, unread, all] = of_glibc(&report);
        assert!(unread < all / 20 && cause(&report, "opaque_heap") < all / 20, "{report:#}");
        // Each thread may be within a batch of 200 blocks, and hold it or not.
        let batch = 3 * 200 * 1500;
        let least = before - before / 20 - batch;
        let most = after + after / 20 + batch;
        assert!((least..=most).contains(&live), "{live}, held {before} and then {after}: {report:#}");
    }
}

#[test]
fn a_heap_that_changes_is_read() {
    let Some(bench) = bench() else { return };
    // As a server does, and as fast as it can.
    for pause in ["500", "0"] {
        is_read_while_it_works(&mut Subject::start(&bench, &GLIBC, &["busy", "3", pause]), &bench);
    }
}

/// Its memory is that of one moment, and all of its threads go on.
#[test]
fn a_process_may_be_stopped_for_the_look() {
    let Some(bench) = bench() else { return };
    let mut subject = Subject::start(&bench, &GLIBC, &["busy", "3", "0"]);
    let ended = bench.run(&["explain", "-p", &subject.pid(), "--for", "0.1", "--stop", "--json"]);
    if ended.stderr.contains("not permitted") {
        eprintln!("skipped: needs the right to trace");
        return;
    }
    let report = ended.expect(0).json();
    // A thread that is stopped within malloc or free leaves the chunk that it works on half changed. That stays so, however often
    // it is read. Nothing else changes.
    let [_, unread, all] = of_glibc(&report);
    assert!(unread < all / 100, "{report:#}");
    assert!(unread > 0 || report["heaps"][0]["read_again_bytes"] == 0, "{report:#}");
    assert!(report["stopped_s"].as_f64() > Some(0.0), "{report:#}");
    // It grows only if its threads work.
    let held = subject.held();
    let start = Instant::now();
    while subject.held() == held {
        assert!(start.elapsed() < PATIENCE, "it does not go on");
    }
    let shown = bench.run(&["explain", "-p", &subject.pid(), "--for", "0", "--stop"]).expect(0).stdout;
    assert!(shown.contains("the process was stopped for "), "{shown}");
}

/// Small and large blocks are both what the program holds, and have one sum.
#[test]
fn what_is_live_has_one_sum() {
    let Some(bench) = bench() else { return };
    let subject = Subject::start(&bench, &GLIBC, &["live"]);
    kill("STOP", subject.child.id());
    let shown = bench.run(&["explain", "-p", &subject.pid(), "--for", "0", "--bytes"]).expect(0).stdout;
    let bytes = |name: &str| -> u64 {
        let line =
            shown.lines().find(|line| line.ends_with(name)).unwrap_or_else(|| panic!("{name}: {shown}"));
        line.split_whitespace().next().unwrap().parse().unwrap()
    };
    let parts = bytes(" blocks") + bytes("10 large blocks with mappings of their own");
    assert_eq!(bytes("live: held by the program"), parts, "{shown}");
}

/// One that runs on Quarry is asked; another one starts anew.
#[test]
fn what_to_try_fits_the_malloc() {
    let Some(bench) = bench() else { return };
    each(&bench, &entrants(), &["leak"], |subject| {
        let report = subject.explain(&bench, "0.5");
        let first = report["verdict"]["try"][0]["what"].as_str().unwrap().to_owned();
        let asked = format!("quarry profile -p {}", subject.pid());
        assert_eq!(first.contains(&asked), subject.name == "Quarry", "{first}");
        assert!(first.contains("quarry profile -p") && first.contains("start"), "{first}");
    });
}

#[test]
fn the_text_and_the_page_say_the_same() {
    let Some(bench) = bench() else { return };
    let subject = Subject::start(&bench, &GLIBC, &["fragmentation"]);
    let page = bench.path("page.html");
    let args = ["explain", "-p", &subject.pid(), "--for", "0.1", "-o", text(&page), "-o", "-"];
    let ended = bench.run(&args).expect(0);
    for words in [
        "Verdict: ",
        "fragmentation",
        "What to try",
        "malloc_trim(0)",
        "expected: ",
        "heap: glibc, 1 arena",
        "VmRSS",
    ] {
        assert!(ended.stdout.contains(words), "no '{words}' in\n{}", ended.stdout);
    }
    let page = fs::read_to_string(page).unwrap();
    assert!(
        page.contains("malloc_trim(0)")
            && page.contains("prefers-color-scheme:dark")
            && !page.contains("://")
    );
}

#[test]
fn who_is_not_there_or_not_for_us() {
    let Some(bench) = bench() else { return };
    bench.run(&["explain", "-p", "2147483647"]).expect(1).says("there is no process");
    bench.run(&["explain"]).expect(2);
    bench.run(&["explain", "-p", "1", "--for", "-1"]).expect(2);
    // A process that ends between two looks is reported as it was. Where the machine is busy the time between them may be too short
    // to meet it.
    assert!(["1.2", "5", "20", "60"].iter().any(|time| ends_between_two_looks(&bench, time)));
}

/// False if it was seen twice.
fn ends_between_two_looks(bench: &Bench, seconds: &str) -> bool {
    let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
    let pid = child.id().to_string();
    let mut explain = bench.quarry(["explain", "-p", &pid, "--for", seconds, "--json"]);
    let running = explain.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // It has looked, and waits to look again: for a while it sleeps, and uses no processor.
    let used = || fs::read_to_string(format!("/proc/{}/schedstat", running.id())).unwrap_or_default();
    let (mut before, mut asleep) = (used(), 0);
    while asleep < 10 {
        std::thread::sleep(Duration::from_millis(20));
        let now = used();
        let sleeps = matches!(state(running.id()), Some('S' | 'Z')) && now == before;
        (before, asleep) = (now, if sleeps { asleep + 1 } else { 0 });
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let ended = Ended::from(running.wait_with_output().unwrap()).expect(0);
    let growth = ended.json()["growth"].clone();
    if growth.is_null() {
        ended.says("nothing is known of its growth");
    }
    growth.is_null()
}

/// Root gives its rights up to see what others see of its processes.
#[test]
fn the_right_that_is_missing_is_named() {
    let Some(bench) = bench() else { return };
    let tool = bench.quarry(["explain", "-p", &std::process::id().to_string(), "--for", "0"]);
    let mut as_nobody = Command::new("setpriv");
    as_nobody
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(tool.get_program())
        .args(tool.get_args());
    let Ok(output) = as_nobody.output() else {
        eprintln!("skipped: needs setpriv");
        return;
    };
    let ended = Ended::from(output);
    if ended.stderr.contains("setpriv:") {
        eprintln!("skipped: needs another right: {}", ended.stderr);
        return;
    }
    ended.expect(1).says("not permitted").says("your own user").says("root (CAP_SYS_PTRACE)");
}
