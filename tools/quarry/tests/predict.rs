// SPDX-License-Identifier: MIT
//! A replay as a prediction, with the real recorder and replayer: a program of which is known what it holds in its heap and beside it.
//! Needs the libraries, in build/lib of the checkout or where QUARRY_TEST_LIB_DIR says; without them it is skipped.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::common::{Bench, Ended, kill, libraries, state, text, wait_until};

const MIB: f64 = (1 << 20) as f64;

/// 24 MiB in blocks of 1000 bytes, a block of 16 MiB of which a fourth is written, and 20 MiB beside the heap. The blocks are freed.
/// It exits with 3 under a malloc that says so.
const PROGRAM: &str = "#include <stdlib.h>\n#include <string.h>\n#include <sys/mman.h>\n\
    static char *blocks[25000];\n\
    int main(void) {\n\
    char *beside = mmap(0, 20 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);\n\
    memset(beside, 1, 20 << 20);\n\
    char *large = malloc(16 << 20); memset(large, 1, 4 << 20);\n\
    for (int i = 0; i < 25000; i++) memset(blocks[i] = malloc(1000), 1, 1000);\n\
    for (int i = 0; i < 25000; i++) free(blocks[i]);\n\
    free(large); return getenv(\"FAILS\") ? 3 : beside[5] - 1; }";

/// Each of the small blocks takes twice its size.
const WASTES: &str = "#include <stddef.h>\nvoid *__libc_malloc(size_t);\n\
    void *malloc(size_t n) { return __libc_malloc(n == 1000 ? 2000 : n); }";
/// The program ends otherwise under it.
const FAILS: &str = "#include <stdlib.h>\n__attribute__((constructor)) static void fails(void) { setenv(\"FAILS\", \"1\", 1); }";

/// Has 8 MiB in blocks, and ends as its arguments say: exit N, raise SIGNAL, or args, which must be these.
const ENDS: &str = "#include <signal.h>\n#include <stdlib.h>\n#include <string.h>\n\
    int main(int argc, char **argv) {\n\
    for (int i = 0; i < 8000; i++) memset(malloc(1000), 1, 1000);\n\
    if (argc > 2 && !strcmp(argv[1], \"exit\")) return atoi(argv[2]);\n\
    if (argc > 2 && !strcmp(argv[1], \"raise\")) raise(atoi(argv[2]));\n\
    return argc == 6 && !strcmp(argv[2], \"--with\") && !strcmp(argv[3], \"--\") && !strcmp(argv[4], \"a b\") && !*argv[5] ? 0 : 9; }";

/// One thread makes 24 MiB of blocks, another one frees all but 100 of them, and the program ends when both have. With one
/// argument nothing is freed, with two it ends without destructors.
const TWO: &str = "#include <pthread.h>\n#include <stdlib.h>\n#include <string.h>\n#include <unistd.h>\n\
    enum { MANY = 24000 };\n\
    static char *blocks[MANY];\n\
    static void *makes(void *arg) {\n\
    for (int i = 0; i < MANY; i++) memset(blocks[i] = malloc(1000), 1, 1000);\n\
    return arg; }\n\
    static void *frees(void *arg) {\n\
    for (int i = 100; i < MANY; i++) free(blocks[i]);\n\
    return arg; }\n\
    static void run(void *(*fn)(void *)) { pthread_t t; if (pthread_create(&t, 0, fn, 0) || pthread_join(t, 0)) abort(); }\n\
    int main(int argc, char **argv) { (void)argv; run(makes); if (argc != 2) run(frees); if (argc > 2) _exit(0); return 0; }";
/// It maps each of the blocks, and so gives each back when it is freed.
const MAPS: &str = "#include <stddef.h>\n#include <string.h>\n#include <sys/mman.h>\n\
    void *__libc_malloc(size_t); void __libc_free(void *);\n\
    static char *from; static size_t next;\n\
    __attribute__((constructor)) static void begin(void) {\n\
    from = mmap(0, 1 << 30, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0); }\n\
    static int is_own(void *p) { return (char *)p >= from && (char *)p < from + (1 << 30); }\n\
    void *malloc(size_t n) { return n == 1000 ? from + __atomic_fetch_add(&next, 4096, 0) : __libc_malloc(n); }\n\
    size_t malloc_usable_size(void *p) { return is_own(p) ? 4096 : 0; }\n\
    void free(void *p) { if (is_own(p)) GIVE(p); else __libc_free(p); }";
/// How it does so: at once, or all of it when the program has ended.
const AT_ONCE: &str = "#define GIVE(p) madvise(p, 4096, MADV_DONTNEED)\n";
const AT_THE_END: &str = "#define GIVE(p) free_pages[((char *)(p) - from) >> 12] = 1\n\
    #include <sys/mman.h>\n\
    static char free_pages[1 << 18];\n\
    static char *from;\n\
    __attribute__((destructor)) static void end(void) {\n\
    for (long i = 0; i < 1 << 18; i++) if (free_pages[i]) madvise(from + (i << 12), 4096, MADV_DONTNEED); }\n";

/// One thread makes 40000 blocks and another one frees them: so many at a time as the first argument says. The schedule is part of the
/// program, and what the argument changes is what another malloc may change in a program without it.
const HANDS: &str = "#include <pthread.h>\n#include <stdlib.h>\n#include <string.h>\n\
    enum { MANY = 40000 };\n\
    static char *blocks[MANY];\n\
    static int depth;\n\
    static pthread_barrier_t turn;\n\
    static int end(int from) { return from + depth < MANY ? from + depth : MANY; }\n\
    static void *frees(void *arg) {\n\
    for (int from = 0; from < MANY; from += depth) {\n\
    pthread_barrier_wait(&turn);\n\
    for (int i = from; i < end(from); i++) free(blocks[i]);\n\
    pthread_barrier_wait(&turn); }\n\
    return arg; }\n\
    int main(int argc, char **argv) {\n\
    pthread_t t; depth = argc > 1 ? atoi(argv[1]) : MANY;\n\
    if (pthread_barrier_init(&turn, 0, 2) || pthread_create(&t, 0, frees, 0)) return 9;\n\
    for (int from = 0; from < MANY; from += depth) {\n\
    for (int i = from; i < end(from); i++) memset(blocks[i] = malloc(1000), 1, 1000);\n\
    pthread_barrier_wait(&turn);\n\
    pthread_barrier_wait(&turn); }\n\
    return pthread_join(t, 0); }";

struct Stage {
    bench: Bench,
    libraries: PathBuf,
    program: PathBuf,
}

impl Stage {
    /// `None`, and a word about it, where something is missing.
    fn new() -> Option<Self> {
        let bench = Bench::new()?;
        let libraries = libraries(&["libquarry-record.so", "quarry/quarry-replayer"])?;
        let program = bench.compile("program", PROGRAM, &["-O1", "-fno-builtin"]).unwrap();
        Some(Self { bench, libraries, program })
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command: Command = self.bench.quarry(args);
        command.env("QUARRY_LIB_DIR", &self.libraries).current_dir(self.bench.path(""));
        command
    }

    fn quarry(&self, args: &[&str]) -> Ended {
        Ended::from(self.command(args).output().unwrap())
    }

    fn record(&self, file: &str, options: &[&str]) {
        self.quarry(&[&["record", "-q", "-o", file], options, &["--", text(&self.program)]].concat())
            .expect(0);
    }

    /// A short replay on the system's malloc and on `with`, as JSON.
    fn replay(&self, file: &str, with: &str, more: &[&str]) -> Value {
        let line = ["replay", "-q", "-n", "1", "--no-latency", "--json", "--with", with, file];
        self.quarry(&[&line, more].concat()).expect(0).json()
    }

    /// Why there is no prediction of memory and of processor time.
    fn unknown(&self, file: &str, more: &[&str]) -> [String; 2] {
        let json = self.replay(file, "system", more);
        ["memory_unknown", "cpu_unknown"]
            .map(|key| json["prediction"][key].as_str().unwrap_or_default().to_owned())
    }
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn what_the_program_holds_is_predicted_and_true() {
    let Some(stage) = Stage::new() else { return };
    let wastes = stage.bench.library("libwastes", WASTES);
    stage.record("a.qtr", &[]);
    let with = format!("wastes={}", wastes.display());
    let json = stage.replay("a.qtr", &with, &["--validate", "--", text(&stage.program)]);
    let about = &json["prediction"];
    assert_eq!((&about["recorded_on"], &about["ended"]), (&0.into(), &true.into()), "{about}");
    assert!(about["memory_unknown"].is_null() && about["cpu_unknown"].is_null(), "{about}");
    assert_eq!(about["command"][0], text(&stage.program));
    let peak = |who: usize| {
        let allocator = &json["allocators"][who];
        let (said, run) = (&allocator["prediction"], &allocator["program"]);
        let figure = &said["memory"]["peak_rss_bytes"];
        let measured = number(&run["peak_rss_bytes"]["median"]);
        assert!(number(&figure["low"]) <= measured && measured <= number(&figure["high"]), "{said} {run}");
        assert!(number(&said["memory"]["end_rss_bytes"]["value"]) <= number(&figure["value"]));
        // A figure, or why there is none.
        assert!(said["cpu_s"].is_null() == said["cpu_unsure"].is_object(), "{said}");
        assert!(number(&run["cpu_s"]["median"]) > 0.0);
        assert_eq!((run["runs"].as_u64(), run["failures"].as_object().unwrap().len()), (Some(1), 0));
        number(&figure["value"]) / MIB
    };
    // 24 + 4 + 20, and what a process has; the block that was not written to is not in it.
    let (system, wasteful) = (peak(0), peak(1));
    assert!((48.0..54.0).contains(&system), "{system}");
    assert!((22.0..26.0).contains(&(wasteful - system)), "{system} {wasteful}");
    let text =
        stage.quarry(&["replay", "-q", "-n", "1", "--no-latency", "--with", &with, "a.qtr"]).expect(0).stdout;
    assert!(
        text.contains("the program itself, predicted\n") && !text.contains("The program's memory"),
        "{text}"
    );
}

/// Its time may be over then. Here it waits until the tool is stopped.
#[test]
fn a_run_of_the_program_in_which_the_tool_was_stopped_is_done_again() {
    let Some(stage) = Stage::new() else { return };
    stage.record("a.qtr", &[]);
    let (starts, go) = (stage.bench.path("starts"), stage.bench.path("go"));
    let wait = format!("while [ ! -e {} ]; do sleep 0.01; done", go.display());
    let program = stage.bench.script("waits", &format!("#!/bin/sh\necho >> {}; {wait}\n", starts.display()));
    let line = ["replay", "-q", "-n", "1", "--no-latency", "--with", "system", "a.qtr", "--validate", "--"];
    let mut command = stage.command(&[&line[..], &[text(&program)]].concat());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("the program runs", || starts.exists());
    kill("STOP", child.id());
    wait_until("the tool is stopped", || state(child.id()) == Some('T'));
    fs::write(&go, "").unwrap();
    kill("CONT", child.id());
    Ended::from(child.wait_with_output().unwrap()).expect(0);
    assert_eq!(fs::read_to_string(&starts).unwrap().lines().count(), 2);
}

/// What it would take is not known, and not nothing.
#[test]
fn a_recorder_that_is_not_loaded_tells_no_processor_time() {
    let Some(stage) = Stage::new() else { return };
    stage.record("a.qtr", &[]);
    let others = stage.bench.path("others");
    fs::create_dir_all(others.join("quarry")).unwrap();
    let replayer = stage.libraries.canonicalize().unwrap().join("quarry/quarry-replayer");
    std::os::unix::fs::symlink(replayer, others.join("quarry/quarry-replayer")).unwrap();
    stage.bench.library("others/libquarry-record", "int nothing;");
    let stage = Stage { libraries: others, ..stage };
    let [memory, cpu] = stage.unknown("a.qtr", &[]);
    assert!(memory.is_empty() && cpu.contains("the recorder left no trace"), "{memory} {cpu}");
}

/// Whatever the options, the end is after the last free of all threads: for a malloc that gives back and for one that does not.
#[test]
fn the_end_is_after_the_last_free_of_other_threads() {
    let Some(stage) = Stage::new() else { return };
    let maps = stage.bench.library("libmaps", &format!("{AT_ONCE}{MAPS}"));
    let two = stage.bench.compile("two", TWO, &["-O1", "-fno-builtin", "-pthread"]).unwrap();
    let late = stage.bench.library("liblate", &format!("{AT_THE_END}{MAPS}"));
    let with = format!("maps={},late={}", maps.display(), late.display());
    let record = |file: &str, words: &[&str]| {
        stage.quarry(&[&["record", "-q", "-o", file, "--", text(&two)], words].concat()).expect(0);
    };
    record("a.qtr", &[]);
    record("k.qtr", &["keeps"]);
    let end = |file: &str, who: usize, more: &[&str]| {
        let json = stage.replay(file, &with, more);
        let said = &json["allocators"][who]["prediction"]["memory"]["end_rss_bytes"];
        let run = &json["allocators"][who]["program"];
        if !run.is_null() {
            let measured = number(&run["end_rss_bytes"]["median"]);
            assert!(
                number(&said["low"]) <= measured && measured <= number(&said["high"]),
                "{who} {said} {run}"
            );
        }
        number(&said["value"]) / MIB
    };
    let validate = ["--validate", "--", text(&two)];
    let all: [&[&str]; 5] = [&[], &["--no-warmup"], &["--verify"], &["--timing", "real"], &validate];
    for more in all {
        // What is left are 100 blocks and what each process has.
        let (maps, late) = (end("a.qtr", 1, more), end("a.qtr", 2, more));
        assert!((0.5..8.0).contains(&maps), "{more:?} {maps}");
        assert!(!cfg!(target_env = "gnu") || (0.5..8.0).contains(&late), "{more:?} {late}");
    }
    let validate = ["--validate", "--", text(&two), "keeps"];
    for more in [&[], validate.as_slice()] {
        let [system, maps, late] = [0, 1, 2].map(|who| end("k.qtr", who, more));
        assert!((23.0..31.0).contains(&system) && (92.0..102.0).contains(&maps), "{more:?} {system} {maps}");
        assert!((92.0..102.0).contains(&late), "{more:?} {late}");
    }
    record("x.qtr", &["ends", "at once"]);
    let validate = ["--validate", "--", text(&two), "ends", "at once"];
    for more in [&[], validate.as_slice()] {
        let (maps, late) = (end("x.qtr", 1, more), end("x.qtr", 2, more));
        assert!((0.5..8.0).contains(&maps) && (92.0..102.0).contains(&late), "{more:?} {maps} {late}");
    }
}

/// Of blocks that one thread hands to another, fewer or more may wait than in the recording.
#[test]
fn what_waits_between_threads_is_in_the_interval_and_said() {
    let Some(stage) = Stage::new() else { return };
    let hands = stage.bench.compile("hands", HANDS, &["-O1", "-fno-builtin", "-pthread"]).unwrap();
    stage.quarry(&["record", "-q", "-o", "h.qtr", "--", text(&hands), "8000"]).expect(0);
    // Fewer wait, as many, and nearly twice as many.
    for depth in ["400", "8000", "14000"] {
        let json = stage.replay("h.qtr", "system", &["--validate", "--", text(&hands), depth]);
        let handed = &json["prediction"]["handed"];
        let mib = |key: &str| number(&handed[key]) / MIB;
        assert!(
            (7.0..8.0).contains(&mib("most_bytes")) && (7.0..8.0).contains(&mib("at_peak_bytes")),
            "{handed}"
        );
        assert!((38.0..39.0).contains(&mib("bytes")), "{handed}");
        let (said, run) = (&json["allocators"][0]["prediction"], &json["allocators"][0]["program"]);
        for figure in ["peak_rss_bytes", "end_rss_bytes"] {
            let (said, measured) = (&said["memory"][figure], number(&run[figure]["median"]));
            assert!(
                number(&said["low"]) <= measured && measured <= number(&said["high"]),
                "{depth} {figure} {said} {run}"
            );
        }
        let peak = &said["memory"]["peak_rss_bytes"];
        // That is not because anything would be within.
        assert!(number(&peak["high"]) - number(&peak["low"]) < 24.0 * MIB, "{said}");
    }
    let said = |file: &str| {
        stage.quarry(&["replay", "-q", "-n", "1", "--no-latency", "--with", "system", file]).expect(0).stdout
    };
    let wide = said("h.qtr");
    assert!(
        wide.contains("blocks that one thread hands to another") && wide.contains("depends on the schedule"),
        "{wide}"
    );
    // One thread alone, and one that clears up what another has built: there is one schedule.
    stage.record("a.qtr", &[]);
    stage.quarry(&["record", "-q", "-o", "b.qtr", "--", text(&hands)]).expect(0);
    for file in ["a.qtr", "b.qtr"] {
        let handed = &stage.replay(file, "system", &[])["prediction"]["handed"];
        assert_eq!((&handed["bytes"], &handed["higher_bytes"]), (&0.into(), &0.into()), "{handed}");
        let narrow = said(file);
        assert!(!narrow.contains("hands to another"), "{narrow}");
    }
}

#[test]
fn runs_that_end_otherwise_do_not_count() {
    let Some(stage) = Stage::new() else { return };
    let fails = stage.bench.library("libfails", FAILS);
    stage.record("a.qtr", &[]);
    let with = format!("fails={}", fails.display());
    let json = stage.replay("a.qtr", &with, &["--validate", "--", text(&stage.program)]);
    let run = &json["allocators"][1]["program"];
    assert_eq!((&run["runs"], &run["failures"]["exit 3"]), (&0.into(), &1.into()), "{run}");
    assert!(run["peak_rss_bytes"].is_null());
    let missing =
        ["replay", "-q", "-n", "1", "--with", "system", "a.qtr", "--validate", "--", "/nonexistent/program"];
    stage.quarry(&missing).expect(127);
}

/// A program that was recorded with `recorded` and is run with `run`: the report as JSON and as text.
fn validated(stage: &Stage, recorded: &[&str], run: &[&str], code: i32) -> (Value, String) {
    let ends = stage.bench.compile("ends", ENDS, &["-O1", "-fno-builtin"]).unwrap();
    stage.quarry(&[&["record", "-q", "-o", "e.qtr", "--", text(&ends)], recorded].concat()).expect(code);
    let line = ["replay", "-q", "-n", "1", "--no-latency", "--with", "system", "e.qtr"];
    let command = [&["--validate", "--", text(&ends)], run].concat();
    let json = stage.quarry(&[&line, ["--json"].as_slice(), &command].concat()).expect(0).json();
    let said = stage.quarry(&[line.as_slice(), &command].concat()).expect(0).stdout;
    fs::remove_file(stage.bench.path("e.qtr")).unwrap();
    (json, said)
}

#[test]
fn the_program_gets_its_arguments_as_they_are() {
    let Some(stage) = Stage::new() else { return };
    let words = ["args", "--with", "--", "a b", ""];
    let (json, said) = validated(&stage, &words, &words, 0);
    let about = &json["prediction"];
    assert_eq!(about["command"].as_array().unwrap()[1..], words, "{about}");
    assert_eq!((&about["recorded_end"], &about["command_end"]), (&"exit 0".into(), &"exit 0".into()));
    assert_eq!(json["allocators"][0]["program"]["runs"], 1);
    assert!(!said.contains("ended with"), "{said}");
}

#[test]
fn a_program_that_fails_or_is_killed_is_compared_with_its_recording() {
    let Some(stage) = Stage::new() else { return };
    // How it ends, what `record` ends with, what is said of it, and whether the recording has its end.
    let cases: [(&[&str], i32, &str, bool); 4] = [
        (&["exit", "3"], 3, "exit 3", true),
        (&["raise", "9"], 137, "SIGKILL", false),
        (&["raise", "15"], 143, "SIGTERM", false),
        (&["raise", "6"], 134, "SIGABRT", false),
    ];
    for (words, code, end, has_end) in cases {
        let (json, said) = validated(&stage, words, words, code);
        let (about, allocator) = (&json["prediction"], &json["allocators"][0]);
        assert_eq!((&about["recorded_end"], &about["command_end"]), (&end.into(), &end.into()), "{about}");
        assert_eq!(about["ended"], has_end, "{about}");
        let (said_of, run) = (&allocator["prediction"], &allocator["program"]);
        assert_eq!((&run["runs"], run["failures"].as_object().unwrap().len()), (&1.into(), 0), "{run}");
        let measured = number(&run["peak_rss_bytes"]["median"]);
        assert!(measured > 8.0 * MIB, "{run}");
        assert_eq!(said_of["memory"]["end_rss_bytes"].is_null(), !has_end, "{said_of}");
        assert_eq!(said_of["cpu_s"].is_null() && said_of["cpu_unsure"].is_null(), !has_end, "{said_of}");
        assert_eq!(about["cpu_unknown"].is_null(), has_end, "{about}");
        assert!(said.contains(&format!("The runs ended with {end}, as the recorded program did")), "{said}");
        assert_eq!(said.contains("does not have the end of the process"), !has_end, "{said}");
    }
}

#[test]
fn runs_that_are_not_of_the_recorded_program_are_told_as_that() {
    let Some(stage) = Stage::new() else { return };
    for (recorded, run, said_of) in [
        (["exit", "0"], ["exit", "3"], "ended with exit 3 here, and with exit 0 when it was recorded"),
        (["exit", "0"], ["raise", "9"], "ended with SIGKILL here, and with exit 0 when it was recorded"),
    ] {
        let (json, said) = validated(&stage, &recorded, &run, 0);
        assert!(said.contains(said_of), "{said}");
        assert_ne!(json["prediction"]["recorded_end"], json["prediction"]["command_end"]);
    }
}

#[test]
fn of_a_sample_the_runs_are_shown_and_the_rest_is_said() {
    let Some(stage) = Stage::new() else { return };
    stage.record("s.qtr", &["--sample", "10k"]);
    let line = ["replay", "-q", "-n", "1", "--no-latency", "--with", "system", "s.qtr"];
    let command = ["--validate", "--", text(&stage.program)];
    let json = stage.quarry(&[&line, ["--json"].as_slice(), &command].concat()).expect(0).json();
    assert!(json["allocators"][0]["prediction"].is_null());
    assert!(number(&json["allocators"][0]["program"]["peak_rss_bytes"]["median"]) > 40.0 * MIB);
    assert_eq!(json["prediction"]["recorded_end"], "exit 0");
    let said = stage.quarry(&[line.as_slice(), &command].concat()).expect(0).stdout;
    assert!(said.contains("memory and processor time are not predicted: a sample"), "{said}");
    assert!(said.contains("the program itself, run\n"), "{said}");
}

/// Takes 12 MiB more if it is called before its constructor.
const HEEDS: &str = "#include <stddef.h>\n#include <string.h>\nvoid *__libc_malloc(size_t);\nstatic int ready, begun;\n\
    __attribute__((constructor)) static void prepare(void) { ready = 1; }\n\
    void *malloc(size_t n) {\n\
    if (!begun++ && !ready) memset(__libc_malloc(12 << 20), 1, 12 << 20);\n\
    return __libc_malloc(n); }";
/// Allocates before the constructors of what is preloaded, as the C++ library does.
const EARLY: &str = "#include <stdlib.h>\nvoid *early_block;\n\
    __attribute__((constructor)) static void begin(void) { early_block = malloc(100); }";
/// Asks for the size of a block if it has an argument, and has no huge pages if it has two.
const TRAITS: &str = "#include <malloc.h>\n#include <stdlib.h>\n#include <string.h>\n#include <sys/prctl.h>\n\
    extern void *early_block __attribute__((weak));\n\
    int main(int argc, char **argv) {\n\
    (void)argv;\n\
    if (argc > 2) prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);\n\
    for (int i = 0; i < 8000; i++) memset(malloc(1000), 1, 1000);\n\
    return argc > 1 ? malloc_usable_size(malloc(100)) < 100 : &early_block == (void **)1; }";

#[test]
fn what_a_program_does_besides_is_done_by_the_replay() {
    let Some(stage) = Stage::new() else { return };
    let library = stage.bench.library("libheeds", HEEDS);
    let early = stage.bench.library("libearly", EARLY);
    let plain = stage.bench.compile("plain", TRAITS, &["-O1", "-fno-builtin"]).unwrap();
    let linked = ["-O1", "-fno-builtin", "-Wl,--no-as-needed", text(&early)];
    let begins = stage.bench.compile("begins", TRAITS, &linked).unwrap();
    let with = format!("heeds={}", library.display());
    // Program and arguments; does it ask, has it no huge pages, is it early?
    let cases: [(_, &[&str], [bool; 3]); 4] = [
        (&plain, &[], [false, false, false]),
        (&plain, &["1"], [true, false, false]),
        (&plain, &["1", "2"], [true, true, false]),
        (&begins, &[], [false, false, true]),
    ];
    for (program, words, [asks, no_huge_pages, is_early]) in cases {
        stage.quarry(&[&["record", "-q", "-o", "t.qtr", "--", text(program)], words].concat()).expect(0);
        let json = stage.replay("t.qtr", &with, &[&["--validate", "--", text(program)], words].concat());
        fs::remove_file(stage.bench.path("t.qtr")).unwrap();
        let settings = &json["settings"];
        assert_eq!(settings["no_huge_pages"], no_huge_pages, "{words:?} {settings}");
        assert_eq!(settings["early"], is_early, "{words:?} {settings}");
        let figures = |who: usize| {
            let allocator = &json["allocators"][who];
            let said = &allocator["prediction"];
            assert_eq!(said["answers"].is_number(), asks, "{said}");
            [&said["memory"]["peak_rss_bytes"]["value"], &allocator["program"]["peak_rss_bytes"]["median"]]
                .map(|figure| number(figure) / MIB)
        };
        let (system, heeds) = (figures(0), figures(1));
        for (what, more) in ["predicted", "run"].iter().zip([heeds[0] - system[0], heeds[1] - system[1]]) {
            assert_eq!((11.0..14.0).contains(&more), is_early, "{what}: {more} of {system:?} {heeds:?}");
            assert_eq!(more < 1.0, !is_early, "{what}: {more}");
        }
    }
}

#[test]
fn what_cannot_be_predicted_is_said_with_the_reason() {
    let Some(stage) = Stage::new() else { return };
    stage.record("a.qtr", &[]);
    assert_eq!(stage.unknown("a.qtr", &[]), ["", ""]);
    for repeated in ["-t", "-r"] {
        let reasons = stage.unknown("a.qtr", &[repeated, "2"]);
        assert!(reasons.iter().all(|reason| reason.contains("without repeats")), "{reasons:?}");
    }
    for touch in ["all", "first", "none"] {
        let reasons = stage.unknown("a.qtr", &["--touch", touch]);
        assert!(reasons.iter().all(|reason| reason.contains("leave out --touch")), "{reasons:?}");
    }
    assert_eq!(stage.unknown("a.qtr", &["--touch", "recorded"]), ["", ""]);
    let [memory, cpu] = stage.unknown("a.qtr", &["--order", "strict"]);
    assert!(memory.is_empty() && cpu.contains("--order strict"), "{cpu}");
    // With contents compared there is a warm-up, and memory is looked at in a run of its own.
    assert_eq!(stage.unknown("a.qtr", &["--verify"]), ["", ""]);
    assert_eq!(stage.unknown("a.qtr", &["--no-warmup"]), ["", ""]);

    stage.record("g.qtr", &["-g", "fp"]);
    let [memory, cpu] = stage.unknown("g.qtr", &[]);
    assert!(memory.is_empty() && cpu.contains("without -g"), "{cpu}");

    stage.record("s.qtr", &["--sample", "10k"]);
    let reasons = stage.unknown("s.qtr", &[]);
    assert!(reasons.iter().all(|reason| reason.contains("--sample")), "{reasons:?}");

    // As earlier versions have recorded.
    stage.quarry(&["convert", "-q", "a.qtr", "-o", "a.jsonl"]).expect(0);
    let lines = fs::read_to_string(stage.bench.path("a.jsonl")).unwrap();
    assert!(lines.contains("\"usage\"") && lines.contains("\"memory\""));
    let kept =
        lines.lines().filter(|line| !line.contains("\"op\":\"usage\"")).map(|line| format!("{line}\n"));
    fs::write(stage.bench.path("b.jsonl"), kept.collect::<String>()).unwrap();
    stage.quarry(&["convert", "-q", "b.jsonl", "-o", "b.qtr"]).expect(0);
    let reasons = stage.unknown("b.qtr", &[]);
    assert!(reasons.iter().all(|reason| reason.contains("earlier version")), "{reasons:?}");
    let text = stage.quarry(&["replay", "-q", "-n", "1", "--with", "system", "b.qtr"]).expect(0).stdout;
    assert!(text.contains("memory and processor time are not predicted: the trace does not say"), "{text}");
    // One that was converted and is complete says the same as before.
    stage.quarry(&["convert", "-q", "a.jsonl", "-o", "c.qtr"]).expect(0);
    assert_eq!(stage.unknown("c.qtr", &[]), ["", ""]);
}

#[test]
fn the_malloc_of_the_recording_must_take_part() {
    let Some(stage) = Stage::new() else { return };
    let wastes = stage.bench.library("libwastes", WASTES);
    stage.record("a.qtr", &["--with", text(&wastes)]);
    let reasons = stage.unknown("a.qtr", &[]);
    assert!(
        reasons.iter().all(|reason| reason.contains("--with") && reason.contains("libwastes")),
        "{reasons:?}"
    );
    let json = stage.replay("a.qtr", text(&wastes), &[]);
    assert_eq!(json["prediction"]["recorded_on"], 1);
    let peak = |who: usize| {
        number(&json["allocators"][who]["prediction"]["memory"]["peak_rss_bytes"]["value"]) / MIB
    };
    assert!((22.0..26.0).contains(&(peak(1) - peak(0))), "{} {}", peak(0), peak(1));
}

#[test]
fn validation_needs_a_program() {
    let Some(stage) = Stage::new() else { return };
    fs::write(stage.bench.path("a.ms"), "0=100 0 s e").unwrap();
    stage.quarry(&["gen", "-q", "-o", "g.qtr", "--allocations", "1000"]).expect(0);
    stage.quarry(&["replay", "g.qtr", "--validate"]).expect(2);
    stage.quarry(&["replay", "g.qtr", "--", "true"]).expect(2);
    stage
        .quarry(&["replay", "a.ms", "--with", "system", "--validate", "--", "true"])
        .expect(2)
        .says("a .ms file is of none");
    // Of what was made up nothing is said, unless it is asked for.
    let made_up = stage.replay("g.qtr", "system", &[]);
    assert!(made_up["prediction"].is_null());
    let asked = stage.replay("g.qtr", "system", &["--validate", "--", "true"]);
    assert!(asked["prediction"]["memory_unknown"].as_str().unwrap().contains("another tool"));
    assert!(asked["allocators"][0]["prediction"].is_null());
    assert!(number(&asked["allocators"][0]["program"]["peak_rss_bytes"]["median"]) > 0.0);
}
