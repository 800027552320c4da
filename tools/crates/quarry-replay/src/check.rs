// SPDX-License-Identifier: MIT
//! From events to the replayer and back: what it plays is what was recorded. The replayer is compiled here, so
//! that these tests need nothing but a C compiler.

use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::Duration;

use quarry_measure::preload::Conf;
use quarry_measure::rng::Rng;
use quarry_measure::spawn;
use quarry_trace::live::Tracker;
use quarry_trace::{AllocApi, End, Event, FreeApi, Trace, TraceWriter, What, WriteOptions};

use crate::builder::{Builder, Cut, How, Order};
use crate::compile::{Compiled, Compiler};
use crate::plan::{self, Head};
use crate::result::Report;
use crate::session::{Contestant, Pass, Session, Settings, Touch, WRONG};

/// The replayer, compiled once.
fn replayer() -> &'static Path {
    static BUILT: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = BUILT.get_or_init(|| {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../replay");
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("quarry-replayer");
        let files = fs::read_dir(sources).unwrap().map(|entry| entry.unwrap().path());
        let files = files.filter(|file| file.extension().is_some_and(|e| e == "c"));
        let status = Command::new("cc")
            .args(["-std=gnu17", "-O1", "-pthread", "-D_GNU_SOURCE", "-fno-builtin", "-o"])
            .arg(&path)
            .args(files)
            .status()
            .unwrap();
        assert!(status.success());
        (dir, path)
    });
    path
}

/// Play a plan; the report, if it was played.
fn play(plan: &[u8], options: &[&str]) -> (Output, Option<Report>) {
    let dir = tempfile::tempdir().unwrap();
    let (file, report) = (dir.path().join("plan"), dir.path().join("report"));
    fs::write(&file, plan).unwrap();
    let mut command = Command::new("timeout");
    command.arg("60").arg(replayer()).args(options).arg("--report").arg(&report).arg(&file);
    let output = command.output().unwrap();
    let report =
        output.status.success().then(|| Report::parse(&fs::read_to_string(&report).unwrap()).unwrap());
    (output, report)
}

fn played(plan: &[u8], options: &[&str]) -> Report {
    let (output, report) = play(plan, options);
    report.unwrap_or_else(|| panic!("{} {}", output.status, String::from_utf8_lossy(&output.stderr)))
}

/// A program that never was: threads that allocate, resize and free each other's blocks.
struct Program {
    rng: Rng,
    events: Vec<Event>,
    live: Vec<(u64, u64)>,
    /// Addresses to use again, the last first, as allocators do.
    freed: Vec<u64>,
    next: u64,
    time: u64,
}

impl Program {
    fn new(seed: u64) -> Self {
        let rng = Rng::new(seed);
        Self { rng, events: Vec::new(), live: Vec::new(), freed: Vec::new(), next: 0x10000, time: 0 }
    }

    fn event(&mut self, thread: u32, what: What) {
        self.time += self.rng.below(200) as u64;
        self.events.push(Event { time: self.time, thread, what });
    }

    fn address(&mut self) -> u64 {
        if self.rng.below(3) > 0
            && let Some(address) = self.freed.pop()
        {
            return address;
        }
        self.next += 1 << 20;
        self.next
    }

    fn size(&mut self) -> u64 {
        let bits = self.rng.below(14);
        self.rng.below(2 << bits) as u64
    }

    fn alloc(&mut self, thread: u32) {
        let (size, address) = (self.size(), self.address());
        let (api, align) = match self.rng.below(8) {
            0 => (AllocApi::Calloc, 0),
            1 => (AllocApi::Memalign, 3 + self.rng.below(10) as u8),
            2 => (AllocApi::New, 0),
            3 => (AllocApi::Realloc, 0),
            _ => (AllocApi::Malloc, 0),
        };
        self.live.push((address, size));
        self.event(thread, What::Alloc { api, size, address, align, stack: 0 });
    }

    fn free(&mut self, thread: u32) {
        if self.live.is_empty() {
            return self.event(thread, What::Free { api: FreeApi::Null, address: 0, touched: None });
        }
        let at = self.rng.below(self.live.len());
        let (address, _) = self.live.swap_remove(at);
        self.freed.push(address);
        self.event(thread, What::Free { api: FreeApi::Free, address, touched: None });
    }

    fn realloc(&mut self, thread: u32) {
        if self.live.is_empty() {
            return;
        }
        let at = self.rng.below(self.live.len());
        // realloc to 0 bytes frees the block with some, and makes an empty one with others.
        let (old, size) = (self.live[at].0, 1 + self.size());
        let new = if self.rng.below(2) == 0 { old } else { self.address() };
        if new != old {
            self.freed.push(old);
        }
        self.live[at] = (new, size);
        self.event(thread, What::Realloc { took: 0, old, size, new, stack: 0 });
    }

    /// Something, by this thread; about `most` blocks are live.
    fn anything(&mut self, thread: u32, most: usize) {
        match self.rng.below(2 * most + 1) {
            _ if self.rng.below(5) == 0 => self.realloc(thread),
            n if n >= self.live.len() => self.alloc(thread),
            _ => self.free(thread),
        }
    }

    fn compile(&self, cut: Cut) -> (Vec<u8>, Compiled) {
        let mut plan = Cursor::new(Vec::new());
        let mut compiler = Compiler::new(Builder::new(&mut plan, cut).unwrap());
        for event in &self.events {
            compiler.event(event, event.time).unwrap();
        }
        let compiled = compiler.finish().unwrap();
        (plan.into_inner(), compiled)
    }

    /// Live bytes after each call, as the tracker of the trace's crate has them.
    fn curve(&self) -> Vec<u64> {
        let mut tracker = Tracker::new();
        let calls = |event: &&Event| {
            matches!(event.what, What::Alloc { .. } | What::Free { .. } | What::Realloc { .. })
        };
        self.events
            .iter()
            .filter(calls)
            .map(|event| {
                tracker.feed(event);
                tracker.live_bytes()
            })
            .collect()
    }
}

/// Small epochs, so that there are many.
fn cut(order: Order) -> Cut {
    Cut { order, operations: 64, bytes: 1 << 20, window: 2 }
}

fn crowd(seed: u64, threads: usize, calls: usize) -> Program {
    let mut program = Program::new(seed);
    for thread in 1..=threads as u32 {
        program.event(thread, What::ThreadBegin { tid: thread, creator: thread.saturating_sub(1) });
    }
    for _ in 0..calls {
        let thread = 1 + program.rng.below(threads) as u32;
        program.anything(thread, 300);
    }
    program
}

#[test]
fn a_strict_plan_has_the_recorded_live_bytes_at_every_operation() {
    for seed in 0..5 {
        let program = crowd(seed, 1 + 3 * seed as usize, 6000);
        let (plan, compiled) = program.compile(cut(Order::Strict));
        let expected = program.curve();
        let report = played(&plan, &["--curve", "1", "--verify"]);
        let curve = report.curve.unwrap();
        assert_eq!(curve.live, expected, "seed {seed}");
        assert_eq!(curve.peak, *expected.iter().max().unwrap());
        assert_eq!(compiled.head.peak_live, curve.peak);
        assert_eq!(compiled.head.end_live, *expected.last().unwrap());
        assert_eq!(report.left.bytes, compiled.head.end_live);
        assert_eq!(report.verify.unwrap().wrong, 0);
        // Every seventh only.
        let every = played(&plan, &["--curve", "7"]).curve.unwrap().live;
        let expected: Vec<u64> = expected.chunks_exact(7).map(|chunk| chunk[6]).collect();
        assert_eq!(every, expected);
    }
}

#[test]
fn blocks_that_change_hands_are_whole_and_counted() {
    for seed in 10..16 {
        let program = crowd(seed, 1 + seed as usize % 7, 20_000);
        let (plan, compiled) = program.compile(cut(Order::Deps));
        let report = played(&plan, &["--verify", "--repeats", "3", "--instances", "2"]);
        let verify = report.verify.unwrap();
        assert!(verify.checked > 0 && verify.wrong == 0 && verify.misaligned == 0, "{verify:?}");
        assert_eq!(report.played, 6 * compiled.head.operations[0]);
        assert_eq!(report.left.bytes, 6 * compiled.head.end_live);
        assert_eq!(report.left.blocks, 6 * program.live.len() as u64);
        for (name, kind) in [("malloc", plan::MALLOC), ("free", plan::FREE), ("memalign", plan::MEMALIGN)] {
            assert_eq!(report.operations[name].count, 6 * compiled.head.operations[kind as usize]);
            assert_eq!(report.operations[name].failed, 0);
        }
        let apis = |wanted: &[AllocApi]| {
            let is = |e: &&Event| matches!(e.what, What::Alloc { api, .. } if wanted.contains(&api));
            program.events.iter().filter(is).count() as u64
        };
        assert_eq!(compiled.head.operations[plan::CALLOC as usize], apis(&[AllocApi::Calloc]));
        assert_eq!(compiled.head.operations[plan::MALLOC as usize], apis(&[AllocApi::Malloc, AllocApi::New]));
        assert_eq!(compiled.counts.news, apis(&[AllocApi::New]));
    }
}

#[test]
fn each_call_is_timed() {
    let (plan, compiled) = crowd(3, 3, 5000).compile(cut(Order::Deps));
    let report = played(&plan, &["--timed", "--touch", "none"]);
    let malloc = &report.operations["malloc"];
    let buckets: u64 = malloc.buckets.iter().map(|bucket| bucket.1).sum();
    assert_eq!(buckets, compiled.head.operations[plan::MALLOC as usize]);
    let [p50, p99, p999, max] =
        [malloc.p50_ns, malloc.p99_ns, malloc.p999_ns, malloc.max_ns].map(|ns| ns.unwrap());
    assert!(p50 <= p99 && p99 <= p999 && p999 <= max && max > 0.0, "{malloc:?}");
    assert!(malloc.sum_ns.unwrap() >= max);
}

#[test]
fn what_is_done_between_repeats_counts_nowhere() {
    const BLOCKS: u64 = 20_000;
    const BYTES: u64 = 4096;
    let mut program = Program::new(5);
    for block in 0..BLOCKS {
        let what = What::Alloc {
            api: AllocApi::Malloc,
            align: 0,
            size: BYTES,
            address: (block + 1) << 16,
            stack: 0,
        };
        program.event(1, what);
    }
    let (plan, _) = program.compile(cut(Order::Deps));
    // With --verify freeing takes long.
    let report = played(&plan, &["--repeats", "5", "--verify"]);
    assert_eq!(report.left.blocks, 5 * BLOCKS);
    let freeing = |&&(_, _, live, operations): &&(u64, u64, i64, u64)| {
        operations > 0 && operations % BLOCKS == 0 && ![0, (BLOCKS * BYTES) as i64].contains(&live)
    };
    // A sample may have begun before the freeing did.
    let seen = report.samples.rows.iter().filter(freeing).count();
    assert!(seen <= 4, "{:?}", report.samples.rows);
    // One thread cannot use more time than there is.
    let cpu = report.user_ns + report.system_ns;
    assert!(
        cpu < report.wall_ns + report.left.free_ns / 2,
        "{cpu} {} {}",
        report.wall_ns,
        report.left.free_ns
    );
}

/// A thread after the other, each for a few calls, as a server does it with a thread for each request.
fn churn(threads: u32, together: u32) -> Program {
    let mut program = Program::new(77);
    program.event(1, What::ThreadBegin { tid: 1, creator: 0 });
    for thread in 2..threads + 2 {
        program.event(thread, What::ThreadBegin { tid: thread, creator: 1 });
        for _ in 0..6 {
            program.anything(thread, 50);
        }
        program.anything(1, 50);
        if thread > together {
            program.event(thread + 1 - together, What::ThreadEnd);
        }
    }
    program
}

#[test]
fn many_short_threads_are_not_alive_at_once() {
    for (together, order) in [(1, Order::Deps), (4, Order::Deps), (4, Order::Strict)] {
        let program = churn(2000, together);
        let (plan, compiled) = program.compile(Cut::new(order));
        assert_eq!(compiled.head.threads, 2001);
        assert_eq!(compiled.head.alive, 1 + together);
        let report = played(&plan, &["--verify", "--repeats", "2"]);
        assert_eq!(report.verify.unwrap().wrong, 0);
        assert_eq!(report.played, 2 * compiled.head.operations[0]);
    }
}

#[test]
fn the_table_of_slots_stays_small() {
    // One allocates, the other frees: slots must find their way back.
    let mut program = Program::new(5);
    for i in 0..200_000u32 {
        if i % 2000 < 1000 { program.alloc(1) } else { program.free(2) }
    }
    let (plan, compiled) = program.compile(Cut::new(Order::Deps));
    let most = compiled.head.peak_blocks + 2 * 4096 + 2 * 256 + 64;
    assert!(u64::from(compiled.head.slots) <= most, "{:?}", compiled.head);
    assert_eq!(played(&plan, &["--verify"]).left.blocks, 0);
}

#[test]
fn what_cannot_be_is_counted_and_left_out() {
    let mut program = Program::new(1);
    let alloc = |address, size| What::Alloc { api: AllocApi::Malloc, size, address, align: 0, stack: 0 };
    let free = |address| What::Free { api: FreeApi::Free, address, touched: None };
    program.event(1, free(0x9000));
    program.event(1, alloc(0x1000, 10));
    program.event(1, alloc(0x1000, 20)); // the free is lost
    program.event(1, What::Realloc { took: 5, old: 0x7000, size: 30, new: 0x2000, stack: 0 });
    program.event(1, What::Failed { api: AllocApi::Malloc, size: 1 << 60 });
    program.event(1, What::Alloc { api: AllocApi::Pool, size: 5, address: 0x1000, align: 0, stack: 0 });
    program.event(1, What::Free { api: FreeApi::Other, address: 0x1000, touched: None });
    program.event(1, What::realloc(5, 0x2000, 0, 0, 0));
    program.event(1, What::Lost { count: 7, reason: 1 });
    program.event(1, What::ThreadEnd);
    program.event(1, alloc(0x3000, 40)); // after its end
    let (plan, Compiled { head, counts, .. }) = program.compile(Cut::new(Order::Deps));
    assert_eq!((counts.unknown_frees, counts.implied_frees, counts.unknown_reallocs), (1, 1, 1));
    assert_eq!((counts.failed, counts.pool_blocks, counts.lost, counts.events), (1, 1, 7, 11));
    assert_eq!(head.operations, [6, 3, 0, 0, 1, 2, 0, 0]);
    assert_eq!((head.end_live, head.threads), (60, 1));
    let report = played(&plan, &["--verify"]);
    assert_eq!((report.left.blocks, report.left.bytes), (2, 60));
}

/// The end knows of events that no event tells of.
#[test]
fn what_was_lost_is_at_least_what_the_end_says() {
    let lost = |noted: &[u64], at_the_end: u64| {
        let mut writer =
            TraceWriter::create(Vec::new(), &Default::default(), WriteOptions::default()).unwrap();
        for &count in noted {
            let what = What::Lost { count, reason: 1 };
            writer.event(&Event { time: 1, thread: 1, what }).unwrap();
        }
        let end = End { lost: at_the_end, ..End::default() };
        let trace = Trace::of_bytes(writer.finish(&end).unwrap()).unwrap();
        let mut plan = Cursor::new(Vec::new());
        let compiled = crate::compile::compile(&trace, &mut plan, Cut::new(Order::Deps), &mut |_| true);
        compiled.unwrap().counts.lost
    };
    assert_eq!((lost(&[2], 3), lost(&[2, 2], 3), lost(&[], 3)), (3, 4, 3));
    assert_eq!(lost(&[u64::MAX, 1], 0), u64::MAX);
}

#[test]
fn sizes_and_alignments_of_any_kind() {
    let mut plan = Cursor::new(Vec::new());
    let mut builder = Builder::new(&mut plan, Cut::new(Order::Deps)).unwrap();
    let huge = builder.alloc(0, How::Malloc, 1 << 60).unwrap();
    builder.realloc(0, huge, (1 << 60) + 5).unwrap();
    let aligned = builder.alloc(0, How::Aligned(16), (1 << 33) + 1).unwrap();
    builder.free(0, aligned).unwrap();
    let empty = builder.alloc(0, How::Malloc, 0).unwrap();
    builder.realloc(0, empty, 0).unwrap();
    builder.free(0, huge).unwrap();
    let head = builder.finish().unwrap();
    assert_eq!(head.peak_live, (1 << 60) + 5 + (1 << 33) + 1);
    let report = played(plan.get_ref(), &["--touch", "none"]);
    assert_eq!(report.operations["malloc"].failed, 1);
    assert_eq!(report.operations["realloc"].failed, 1);
    assert_eq!(report.operations["free"].count, 2);
}

#[test]
fn recorded_times_are_kept() {
    let mut program = Program::new(1);
    for thread in [1, 2, 1, 2] {
        program.alloc(thread);
        program.time += 40_000_000;
    }
    let (plan, compiled) = program.compile(Cut::new(Order::Deps));
    assert!(compiled.head.duration_ns >= 120_000_000, "{:?}", compiled.head);
    assert!(played(&plan, &["--real"]).wall_ns >= compiled.head.duration_ns);
    assert!(played(&plan, &[]).wall_ns < compiled.head.duration_ns);
}

#[test]
fn a_simulation_keeps_its_slots() {
    let text = b"1=10 2=20 1=30 1 s 3 70000=5 2=15 e 9=9";
    for wide in [false, true] {
        let mut plan = Cursor::new(Vec::new());
        let head =
            crate::simulation::compile(&text[..], &mut plan, Cut::new(Order::Deps), wide, &mut |_| true);
        if !wide {
            assert!(head.unwrap_err().to_string().contains("slot 70000"));
            continue;
        }
        let head = head.unwrap();
        assert_eq!(head.operations, [8, 3, 0, 0, 2, 1, 1, 1]);
        assert_eq!((head.slots, head.end_live), (65537, 20));
        let report = played(plan.get_ref(), &["--curve", "1", "--verify"]);
        assert_eq!(report.curve.unwrap().live, [10, 30, 50, 20, 20, 20, 25, 20]);
        assert_eq!(report.left.blocks, 2);
    }
}

#[test]
fn the_lines_of_the_simulator() {
    let mut plan = Cursor::new(Vec::new());
    let text = b"1=10 2=20 1=30 1 s 3\n";
    crate::simulation::compile(&text[..], &mut plan, Cut::new(Order::Deps), false, &mut |_| true).unwrap();
    let lines = |options: &[&str]| {
        let (output, _) = play(plan.get_ref(), options);
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    let classic = lines(&["--classic", "--instances", "2", "--repeats", "3"]);
    assert!(classic.starts_with("starting 2 threads\n"), "{classic}");
    for (line, times) in [
        (": malloc 2 calls took ", 6),
        (": realloc 1 calls took ", 6),
        (": free 2 calls took ", 6),
        (": stats 1 calls took ", 6),
        (": -------- 20 bytes live in 1 blocks, ", 6),
        ("\nmemory simulation took ", 1),
    ] {
        assert_eq!(classic.matches(line).count(), times, "{line}\n{classic}");
    }
    let silent = lines(&["--classic", "--silent"]);
    assert!(silent.starts_with("memory simulation took ") && silent.lines().count() == 1, "{silent}");
    let talk = lines(&["--talk", "--silent"]);
    assert_eq!(talk.lines().filter(|line| line.contains(" 0x") && line.ends_with("ms")).count(), 4, "{talk}");
    assert!(talk.contains("1=30 realloc 0x") && talk.contains("free(NULL) "), "{talk}");
}

/// Damage of all kinds: the replayer says what is wrong, or plays what is left of it.
#[test]
fn no_plan_makes_the_replayer_crash() {
    let good = [
        crowd(21, 5, 400).compile(cut(Order::Deps)).0,
        crowd(22, 3, 400).compile(cut(Order::Strict)).0,
        churn(20, 2).compile(cut(Order::Deps)).0,
    ];
    let mut rng = Rng::new(99);
    let mut refused = 0;
    for round in 0..250 {
        let mut plan = good[round % good.len()].clone();
        match rng.below(6) {
            0 => plan.truncate(rng.below(plan.len())),
            1 => {
                let at = rng.below(plan::HEAD_BYTES);
                plan[at] = rng.bits() as u8;
            }
            2 => plan = (0..rng.below(2000)).map(|_| rng.bits() as u8).collect(),
            _ => {
                for _ in 0..1 + rng.below(4) {
                    let at = plan::HEAD_BYTES + rng.below(plan.len() - plan::HEAD_BYTES);
                    plan[at] =
                        if rng.below(2) == 0 { plan[at] ^ 1 << rng.below(8) } else { rng.bits() as u8 };
                }
            }
        }
        let (output, report) = play(&plan, &["--touch", "none", "--no-samples"]);
        let said = String::from_utf8_lossy(&output.stderr);
        match output.status.code() {
            Some(0) => assert!(report.is_some()),
            Some(3) => refused += 1,
            other => panic!("round {round}: {other:?} {said}"),
        }
        assert!(output.status.success() || said.starts_with("quarry-replayer: "), "{said}");
    }
    assert!(refused > 60, "{refused}");
}

/// Allocators that break: the others go on, and it is said how each of them ended.
#[test]
fn who_breaks_is_out_and_the_others_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let library = |name: &str, body: &str| {
        let (source, path) = (dir.path().join(format!("{name}.c")), dir.path().join(format!("{name}.so")));
        let code = format!(
            "#include <stdlib.h>\n#include <unistd.h>\nvoid *__libc_malloc(size_t);\nvoid __libc_free(void *);\n\
             static char block[1 << 20] __attribute__((aligned(64)));\nstatic int calls;\n\
             void free(void *p) {{ if (p != (void *)block) __libc_free(p); }}\n\
             void *malloc(size_t n) {{ if (++calls > 500) {{ {body} }} return __libc_malloc(n); }}\n"
        );
        fs::write(&source, code).unwrap();
        let status = Command::new("cc")
            .args(["-shared", "-fPIC", "-fno-builtin", "-o"])
            .arg(&path)
            .arg(&source)
            .status();
        assert!(status.unwrap().success());
        path
    };
    let breaking = [
        ("crash", "abort();"),
        ("hang", "for (;;) pause();"),
        ("overlap", "if (calls % 10 == 0 && n < sizeof block) return block;"),
        ("exhausted", "if (calls % 10 == 0) return 0;"),
    ];
    let mut contestants =
        vec![Contestant { name: "system".into(), library: None, preload: None, conf: Conf::default() }];
    for (name, body) in breaking {
        let path = library(name, body);
        let preload = Some(path.clone().into_os_string());
        contestants.push(Contestant {
            name: name.into(),
            library: Some(path),
            preload,
            conf: Conf::default(),
        });
    }
    // malloc and free alone: the libraries above have nothing else.
    let mut program = Program::new(31);
    for _ in 0..5000 {
        if program.rng.below(400) >= program.live.len() {
            program.alloc(1)
        } else {
            program.free(1)
        }
        if let Some(Event { what: What::Alloc { api, .. }, .. }) = program.events.last_mut() {
            *api = AllocApi::Malloc;
        }
    }
    let plan = dir.path().join("plan");
    fs::write(&plan, program.compile(Cut::new(Order::Deps)).0).unwrap();
    let settings = Settings {
        instances: 1,
        repeats: 1,
        touch: Touch::All,
        real_time: false,
        verify: true,
        idle_s: 0.0,
        latency: true,
        curve: None,
        early: false,
        no_huge_pages: false,
    };
    let mut session = Session::new(replayer().to_owned(), plan, settings, contestants, 1).unwrap();
    session.timeout = Some(Duration::from_secs(10));
    for round in 0..3 {
        assert!(session.round(round, &mut |_, _| true).unwrap());
    }
    let ends: Vec<_> = (0..5)
        .map(|who| {
            session.runs.iter().filter(|run| run.contestant == who).map(|run| run.end).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(ends[0], [spawn::End::Exit(0); 5]);
    assert_eq!(ends[1], [spawn::End::Signal(6)]);
    assert_eq!(ends[2], [spawn::End::Timeout]);
    assert_eq!(ends[3], [spawn::End::Exit(WRONG)]);
    assert_eq!(ends[4], [spawn::End::Exit(0); 5]);
    assert!(session.runs[3].report.as_ref().unwrap().verify.as_ref().unwrap().wrong > 0);
    let (_, exhausted) = session.good(4, Pass::Totals).next().unwrap();
    assert!(exhausted.failed() > 100, "{}", exhausted.failed());
    assert_eq!(session.good(0, Pass::Totals).count(), 2);
    assert_eq!(session.good(0, Pass::Latency).count(), 2);
}

#[test]
fn live_bytes_come_back_from_more_than_there_can_be() {
    let mut program = Program::new(1);
    for address in [0x1000, 0x2000] {
        let what = What::Alloc { api: AllocApi::Malloc, size: u64::MAX, address, align: 0, stack: 0 };
        program.event(1, what);
    }
    for address in [0x1000, 0x2000] {
        program.event(1, What::Free { api: FreeApi::Free, address, touched: None });
    }
    let (_, compiled) = program.compile(cut(Order::Deps));
    assert_eq!((compiled.head.peak_live, compiled.head.end_live), (u64::MAX, 0));
}

/// Of large blocks no more is written than the program wrote, wherever they are resized, and all of the others.
#[test]
fn large_blocks_are_written_as_far_as_the_program_did() {
    const MIB: u64 = 1 << 20;
    let written = |touched: Option<u64>, options: &[&str]| {
        let mut writer =
            TraceWriter::create(Vec::new(), &Default::default(), WriteOptions::default()).unwrap();
        let alloc = |size, address| What::Alloc { api: AllocApi::Malloc, size, address, align: 0, stack: 0 };
        let events = [
            What::ThreadBegin { tid: 1, creator: 0 },
            // Resized, and small at first; freed; live at the end.
            alloc(1000, 0x10_0000),
            What::Realloc { took: 0, old: 0x10_0000, size: 16 * MIB, new: 0x20_0000, stack: 0 },
            What::Realloc { took: 0, old: 0x20_0000, size: 32 * MIB, new: 0x20_0000, stack: 0 },
            alloc(16 * MIB, 0x1000_0000),
            alloc(16 * MIB, 0x2000_0000),
            What::Usage(Box::default()),
            What::Free { api: FreeApi::Free, address: 0x1000_0000, touched },
            What::Free { api: FreeApi::Free, address: 0x20_0000, touched },
            What::Usage(Box::default()),
            What::Resident { address: 0x2000_0000, bytes: touched.unwrap_or(u64::MAX) },
        ];
        for (time, what) in events.into_iter().enumerate() {
            writer.event(&Event { time: time as u64, thread: 1, what }).unwrap();
        }
        let trace = Trace::of_bytes(writer.finish(&End::default()).unwrap()).unwrap();
        let mut plan = Cursor::new(Vec::new());
        let compiled =
            crate::compile::compile(&trace, &mut plan, Cut::new(Order::Deps), &mut |_| true).unwrap();
        assert_eq!((compiled.usage.len(), compiled.status), (2, None));
        let report = played(plan.get_ref(), &[&["--looks"], options].concat());
        let looks = report.looks.unwrap().rows;
        assert_eq!(looks.len(), 2);
        assert!(looks[1].0 < looks[0].0 && looks[0].1 <= report.rss.peak);
        looks[0].0 as f64 / MIB as f64
    };
    for touch in ["recorded", "all"] {
        assert!((63.0..67.0).contains(&written(None, &["--touch", touch])), "{touch}");
    }
    assert!((2.5..6.0).contains(&written(Some(MIB), &["--touch", "recorded"])));
    assert!(written(Some(0), &["--touch", "recorded"]) < 3.0);
    assert!(written(Some(MIB), &["--touch", "all"]) > 63.0);
}

/// Of blocks of some pages each is written as far as the recorder saw, and else as the next one of its kind that it saw.
#[test]
fn blocks_of_some_pages_are_written_as_the_program_did() {
    const SIZE: u64 = 100 << 10;
    const COUNT: u64 = 400;
    let written = |bytes: Option<u64>, api: AllocApi, resized: bool| {
        let mut writer =
            TraceWriter::create(Vec::new(), &Default::default(), WriteOptions::default()).unwrap();
        let address = |block: u64| (block + 1) << 20;
        let mut events = vec![What::ThreadBegin { tid: 1, creator: 0 }];
        for block in 0..COUNT {
            let api = if block < 100 { AllocApi::Malloc } else { api };
            events.push(What::Alloc { api, size: SIZE, address: address(block), align: 0, stack: 0 });
        }
        if resized {
            // To a size of which nothing is known.
            events.extend((100..COUNT).map(|block| {
                let old = address(block);
                What::Realloc { took: 0, old, size: 2 * SIZE, new: old, stack: 0 }
            }));
        }
        events.push(What::Usage(Box::default()));
        // One ends, another one is live at the end.
        if let Some(bytes) = bytes {
            events.push(What::Written { address: address(10), bytes });
        }
        events.push(What::Free { api: FreeApi::Free, address: address(10), touched: None });
        events.push(What::Usage(Box::default()));
        events.extend(bytes.map(|bytes| What::Written { address: address(50), bytes }));
        for (time, what) in events.into_iter().enumerate() {
            writer.event(&Event { time: time as u64, thread: 1, what }).unwrap();
        }
        let trace = Trace::of_bytes(writer.finish(&End::default()).unwrap()).unwrap();
        let mut plan = Cursor::new(Vec::new());
        crate::compile::compile(&trace, &mut plan, Cut::new(Order::Deps), &mut |_| true).unwrap();
        let looks = played(plan.get_ref(), &["--looks", "--touch", "recorded"]).looks.unwrap().rows;
        looks[0].0 as f64 / SIZE as f64
    };
    let (malloc, calloc) = (AllocApi::Malloc, AllocApi::Calloc);
    let cases = [
        (None, malloc, false, 395.0..450.0),
        (Some(SIZE), malloc, false, 395.0..450.0),
        // A quarter, in whole pages, and the page in which the head of the next block is.
        (Some(SIZE / 4), malloc, false, 100.0..170.0),
        (Some(0), malloc, false, 0.0..60.0),
        // Blocks of calloc are others, and so are those with another size.
        (Some(0), calloc, false, 300.0..420.0),
        (Some(0), malloc, true, 300.0..700.0),
    ];
    for (bytes, api, resized, expected) in cases {
        let blocks = written(bytes, api, resized);
        assert!(expected.contains(&blocks), "{bytes:?} {api:?} {resized}: {blocks} of {expected:?}");
    }
}

/// A look sees what all threads have done before it and nothing of what they do afterwards, however long that takes.
#[test]
fn a_look_is_where_it_was_among_all_threads() {
    const MIB: u64 = 1 << 20;
    let mut events = vec![
        (1, What::ThreadBegin { tid: 1, creator: 0 }),
        (2, What::ThreadBegin { tid: 2, creator: 1 }),
        (1, What::Usage(Box::default())),
    ];
    let address = |block: u64| (block + 1) << 24;
    for block in 0..48 {
        let what =
            What::Alloc { api: AllocApi::Malloc, size: MIB, address: address(block), align: 0, stack: 0 };
        events.push((2, what));
    }
    events.push((1, What::Usage(Box::default())));
    let free = |block| What::Free { api: FreeApi::Free, address: address(block), touched: None };
    events.extend((0..48).map(|block| (2, free(block))));
    events.push((2, What::ThreadEnd));
    events.push((1, What::Usage(Box::default())));
    let mut writer = TraceWriter::create(Vec::new(), &Default::default(), WriteOptions::default()).unwrap();
    for (time, (thread, what)) in events.into_iter().enumerate() {
        writer.event(&Event { time: time as u64, thread, what }).unwrap();
    }
    let trace = Trace::of_bytes(writer.finish(&End::default()).unwrap()).unwrap();
    for order in [Order::Deps, Order::Strict] {
        let mut plan = Cursor::new(Vec::new());
        crate::compile::compile(&trace, &mut plan, Cut::new(order), &mut |_| true).unwrap();
        let looks = played(plan.get_ref(), &["--looks"]).looks.unwrap().rows;
        let seen = [looks[0].0, looks[1].0, looks[2].0].map(|bytes| bytes / MIB);
        assert!(seen[0] < 2 && (48..52).contains(&seen[1]) && seen[2] < 2, "{order:?} {seen:?}");
    }
}

/// A thread that was looked at before it began is made by the first thread, as one whose creator is known, and not by one that stands
/// for threads that have ended. What that allocates for it lies in the heap of glibc's that is free, on top of all blocks.
#[test]
fn what_is_not_known_of_a_thread_makes_no_other_one_its_creator() {
    const BLOCKS: u64 = 24_000;
    let address = |block: u64| (block + 1) << 12;
    let mut events =
        vec![(1, What::ThreadBegin { tid: 1, creator: 0 }), (2, What::ThreadBegin { tid: 2, creator: 1 })];
    events.extend((0..BLOCKS).map(|block| {
        let address = address(block);
        (2, What::Alloc { api: AllocApi::Malloc, size: 1000, address, align: 0, stack: 0 })
    }));
    events.push((2, What::ThreadEnd));
    events.push((0, What::Free { api: FreeApi::Null, address: 0, touched: None }));
    events.push((3, What::Usage(Box::default())));
    events.push((3, What::ThreadBegin { tid: 3, creator: 1 }));
    let free = |block| What::Free { api: FreeApi::Free, address: address(block), touched: None };
    events.extend((100..BLOCKS).map(|block| (3, free(block))));
    events.push((3, What::ThreadEnd));
    events.push((1, What::Usage(Box::default())));
    let mut writer = TraceWriter::create(Vec::new(), &Default::default(), WriteOptions::default()).unwrap();
    for (time, (thread, what)) in events.into_iter().enumerate() {
        writer.event(&Event { time: time as u64, thread, what }).unwrap();
    }
    let trace = Trace::of_bytes(writer.finish(&End::default()).unwrap()).unwrap();
    let mut plan = Cursor::new(Vec::new());
    crate::compile::compile(&trace, &mut plan, Cut::new(Order::Deps), &mut |_| true).unwrap();
    let looks = played(plan.get_ref(), &["--looks"]).looks.unwrap().rows;
    assert!(looks[0].0 > 23 << 20 && (looks[1].0 < 2 << 20 || !cfg!(target_env = "gnu")), "{looks:?}");
}

#[test]
fn an_empty_trace_is_a_plan() {
    let (plan, compiled) = Program::new(1).compile(Cut::new(Order::Deps));
    assert_eq!(
        compiled.head,
        Head { threads: 1, alive: 1, epochs: 1, window: 2, bytes: 144, ..Head::default() }
    );
    assert_eq!(played(&plan, &["--repeats", "2"]).played, 0);
    // The replayer's own memory does not grow with the repeats.
    let many = played(&plan, &["--repeats", "4000000", "--memory", "25165824"]);
    assert_eq!(many.repeats_ns.len(), 1000);
}
