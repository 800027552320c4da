// SPDX-License-Identifier: MIT
//! Programs under the real libquarry-check.so.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::common::{Bench, Ended, kill, libraries, text, wait_until};

/// A program in a folder of its own, and the real library.
struct Stage {
    bench: Bench,
    libraries: PathBuf,
    program: PathBuf,
}

const TWICE: &str = "#include <stdlib.h>\n\
    int main(int argc, char **argv) {\n\
        char *p = malloc(8);\n\
        for (int i = 0; i < argc; i++)\n\
            free(p);\n\
        return 7;\n\
    }\n";

impl Stage {
    fn new(source: &str) -> Option<Self> {
        let libraries = libraries(&["libquarry-check.so"])?;
        let bench = Bench::new()?;
        let program = bench.compile("prog", source, &["-g", "-O0", "-fno-builtin", "-w"])?;
        Some(Self { bench, libraries, program })
    }

    fn check(&self, options: &[&str], args: &[&str]) -> Ended {
        let words = [&["check"], options, &["--", text(&self.program)], args].concat();
        let mut command = self.bench.quarry(words);
        command.env("QUARRY_LIB_DIR", &self.libraries).current_dir(self.bench.path("."));
        Ended::from(command.output().unwrap())
    }
}

#[test]
fn an_error_is_told_with_its_lines() {
    let Some(stage) = Stage::new(TWICE) else { return };
    stage.check(&["--leaks", "no"], &[]).expect(7);
    let ended = stage.check(&[], &["x"]).expect(23);
    ended
        .says("#1 double-free: free: ")
        .says("main at prog.c:5")
        .says(">     5 | free(p);")
        .says("main at prog.c:3");
    ended.says("errors: 1\n").says("exit 7");
    stage.check(&["--error-exitcode", "0"], &["x"]).expect(7);
    stage.check(&["--abort-on-error"], &["x"]).expect(23).says("SIGABRT");
    // One place, three times.
    stage.check(&[], &["x", "x", "x"]).expect(23).says("errors: 1, found 3 times");
}

/// The 40th block is written to behind its end, before its begin, or after its free: by a place that has no guard then.
/// No byte of a canary is 2.
const LATE: &str = "#include <stdlib.h>\n\
    volatile char *kept[40];\n\
    static void use(char what) {\n\
        if (what == 'o')\n\
            kept[39][24] = 2;\n\
        if (what == 'u')\n\
            kept[39][-1] = 2;\n\
        if (what == 'f') {\n\
            free((void *)kept[39]);\n\
            kept[39][8] = 2;\n\
        }\n\
    }\n\
    int main(int argc, char **argv) {\n\
        for (int i = 0; i < 40; i++)\n\
            kept[i] = malloc(24);\n\
        use(argv[1][0]);\n\
        for (int i = 0; i < 40; i++)\n\
            if (i < 39 || argv[1][0] != 'f') free((void *)kept[i]);\n\
        return 0;\n\
    }\n";

#[test]
fn a_second_run_finds_the_instruction() {
    let Some(stage) = Stage::new(LATE) else { return };
    let later = "and this was found later";
    for (what, line, kind) in
        [("o", 5, "overflow-write"), ("u", 7, "underflow-write"), ("f", 10, "use-after-free-write")]
    {
        let at = format!("use at prog.c:{line}");
        // Whether chance gave the block a guard in the first run, or not.
        let once = stage.check(&["--guards", "off"], &[what]).expect(23).says(later).stderr.clone();
        assert!(!once.contains(&at), "{once}");
        let twice = stage.check(&["--guards", "off", "--pinpoint"], &[what]).expect(23);
        twice.says(later).says(&format!("{kind}: ")).says(&at);
        assert!(!twice.stderr.contains("did not meet"), "{}", twice.stderr);
    }
    stage.check(&["--pinpoint"], &["n"]).expect(0).says("nothing was found, nor by a second run");
}

/// Each block has 17 pages, so that the memory of guarded ones is used up before the last one. That one is written to
/// behind its end.
const MANY: &str = "#include <stdlib.h>\n\
    static volatile char *kept[1500];\n\
    int main(void) {\n\
        for (int i = 0; i < 1500; i++)\n\
            kept[i] = malloc(65552);\n\
        kept[1499][65552] = 2;\n\
        for (int i = 0; i < 1500; i++)\n\
            free((void *)kept[i]);\n\
        return 0;\n\
    }\n";

/// Are guards marks in the kernel's tables? Else each takes a mapping.
fn kernel_marks_guards() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(13))
}

#[test]
fn what_gives_guards_more_room_is_told_and_does_so() {
    let Some(stage) = Stage::new(MANY) else { return };
    let short = "not guards for all blocks";
    stage.check(&["--guards", "off", "--pinpoint"], &[]).expect(23).says(short).says("guard_mb:1024");
    let words = ["check", "--guards", "off", "--pinpoint", "--", text(&stage.program)];
    let mut command = stage.bench.quarry(words);
    command.env("QUARRY_LIB_DIR", &stage.libraries).env("QUARRY_CHECK", "guard_mb:1024");
    let said = Ended::from(command.output().unwrap()).expect(23).stderr;
    // A kernel that marks no pages needs more mappings, too.
    let lacks_mappings = !kernel_marks_guards() && said.contains(short);
    assert!(said.contains("main at prog.c:6") || lacks_mappings, "{said}");
}

#[test]
fn a_filter_that_kills_is_named() {
    let source = "#include <signal.h>\nint main(void) { return raise(SIGSYS); }\n";
    let Some(stage) = Stage::new(source) else { return };
    stage.check(&[], &[]).expect(128 + 31).says("SIGSYS").says("a filter of system calls does not allow");
}

#[test]
fn two_runs_are_one_report() {
    let source = "#include <stdlib.h>\n\
        static void *volatile lost;\n\
        static void over(int n) { char *p = malloc(n); for (volatile int i = 0; i < n + 8; i++)\n\
            p[i] = 1;\n\
            free(p); }\n\
        static void late(void) { char *volatile p = malloc(40); free(p);\n\
            p[3] = 1; }\n\
        int main(void) { over(48); late(); for (int i = 0; i < 9; i++) lost = malloc(70); lost = 0; return 0; }\n";
    let Some(stage) = Stage::new(source) else { return };
    let (json, sarif) = (stage.bench.path("x.json"), stage.bench.path("x.sarif"));
    let raw = stage.bench.path("raw");
    let files = ["--keep", text(&raw), "-o", text(&json), "-o", text(&sarif), "-o", "-"];
    let options = [&["--guards", "off", "--pinpoint"][..], &files].concat();
    let ended = stage.check(&options, &[]).expect(23);
    let said = &ended.stdout;
    assert!(said.contains("  errors: 2\n") && said.contains("second run: "), "{said}");
    assert!(said.contains("The second run found #1 at its instruction:\n#1 overflow-write"), "{said}");
    assert!(
        said.contains("#1 overflow-write: write of 1 byte at ")
            || said.contains("#1 overflow-write: write at "),
        "{said}"
    );
    let report: serde_json::Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    let lines: Vec<(&str, u64)> = report["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| (it["kind"].as_str().unwrap(), it["stack"][0]["line"].as_u64().unwrap()))
        .collect();
    assert!(
        lines.contains(&("overflow-write", 4)) && lines.contains(&("use-after-free-write", 7)),
        "{lines:?}"
    );
    assert_eq!((lines.len(), report["leaks"].as_array().unwrap().len()), (2, 1), "{report}");
    assert_eq!(report["leaks"][0]["blocks"].as_u64().unwrap() / 8, 1, "{report}");
    let second: Vec<_> = report["processes"].as_array().unwrap().iter().map(|it| &it["second_run"]).collect();
    assert_eq!(second, [false, true]);
    let log: serde_json::Value = serde_json::from_str(&fs::read_to_string(sarif).unwrap()).unwrap();
    let results = log["runs"][0]["results"].as_array().unwrap();
    assert_eq!(results.len(), 3, "{log}");
    for result in results {
        let place = &result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"];
        assert!(place.as_str().unwrap().ends_with("prog.c"), "{result}");
    }
    // What was kept says the same.
    let again = stage.bench.run(&["check", "--json", text(&raw)]).expect(23).json();
    assert_eq!(again["errors"].as_array().unwrap().len(), 2, "{again}");
}

#[test]
fn an_error_that_was_found_later_names_the_second_run() {
    let source = "#include <stdlib.h>\n\
        int main(void) { char *p = malloc(48); for (volatile int i = 0; i < 56; i++) p[i] = 1; free(p); return 0; }\n";
    let Some(stage) = Stage::new(source) else { return };
    let json = stage.bench.path("x.json");
    let hint = "quarry check --pinpoint finds the instruction.";
    stage.check(&["--guards", "off"], &[]).expect(23).says("this was found later").says(hint);
    stage.check(&["--guards", "off", "-o", text(&json)], &[]).expect(23);
    let report: serde_json::Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    assert!(report["errors"][0]["advice"].as_str().unwrap().ends_with(hint), "{report}");
    // Of an error whose instruction is known, and in the second run itself, it would be nonsense.
    let ended = stage.check(&["--guards", "all"], &[]).expect(23);
    assert!(!ended.stderr.contains(hint), "{}", ended.stderr);
    let ended = stage.check(&["--guards", "off", "--pinpoint"], &[]).expect(23);
    assert!(!ended.stderr.contains(hint), "{}", ended.stderr);
}

#[test]
fn a_second_run_has_guards_on_the_other_side() {
    let source = "#include <stdlib.h>\n\
        int main(void) {\n\
            volatile char *only = malloc(48);\n\
            char before = only[-1];\n\
            free((void *)only);\n\
            return before & 0;\n\
        }\n";
    let Some(stage) = Stage::new(source) else { return };
    stage.check(&[], &[]).expect(0).says("errors: none");
    let twice = stage.check(&["--pinpoint"], &[]).expect(23);
    twice.says("underflow-read: ").says("main at prog.c:4").says("errors: 1\n");
}

#[test]
fn what_was_kept_is_read_again() {
    let Some(stage) = Stage::new(TWICE) else { return };
    let (raw, json) = (stage.bench.path("raw"), stage.bench.path("x.json"));
    stage
        .check(&["--keep", text(&raw), "-o", text(&json)], &["x"])
        .expect(23)
        .says("1 error is in the report");
    let again = stage.bench.run(&["check", "--json", text(&raw)]).expect(23).json();
    let first: serde_json::Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!((&again["errors"], &again["processes"]), (&first["errors"], &first["processes"]));
    assert_eq!(first["errors"][0]["stack"][0]["line"], 5);
    stage.check(&["--keep", text(&raw)], &["x"]).expect(2).says("has reports already");
}

#[test]
fn signals_reach_the_program_and_its_end_is_told() {
    let source = "#include <stdio.h>\n#include <unistd.h>\n#include <stdlib.h>\n\
                  int main(void) { free(malloc(1)); puts(\"up\"); fflush(stdout); for (;;) pause(); }";
    let Some(stage) = Stage::new(source) else { return };
    let out = stage.bench.path("out");
    let mut command = stage.bench.quarry(["check", "--", text(&stage.program)]);
    command.env("QUARRY_LIB_DIR", &stage.libraries).stdout(fs::File::create(&out).unwrap());
    let child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    wait_until("the program runs", || fs::read_to_string(&out).is_ok_and(|text| text.contains("up")));
    kill("TERM", child.id());
    Ended::from(child.wait_with_output().unwrap()).expect(128 + 15).says("SIGTERM").says("errors: none");
}

#[test]
fn reports_come_while_the_program_runs() {
    let source = "#include <stdlib.h>\n#include <unistd.h>\n\
                  int main(void) { char *p = malloc(8); free(p); free(p); char c; return read(0, &c, 1) == 1 ? 0 : 3; }";
    let Some(stage) = Stage::new(source) else { return };
    let said = stage.bench.path("said");
    let mut command = stage.bench.quarry(["check", "-o", text(&said), "--", text(&stage.program)]);
    command.env("QUARRY_LIB_DIR", &stage.libraries).stdin(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    // It waits for us, and we for its report.
    wait_until("a report", || fs::read_to_string(&said).is_ok_and(|text| text.contains("double-free")));
    std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"x").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(23));
}

#[test]
fn what_cannot_be_checked_is_refused() {
    let Some(stage) = Stage::new(TWICE) else { return };
    let libraries = text(&stage.libraries);
    let run = |program: &str| {
        let mut command = stage.bench.quarry(["check", "--", program]);
        command.env("QUARRY_LIB_DIR", libraries);
        Ended::from(command.output().unwrap())
    };
    let source = "#include <stdio.h>\nint main(void) { puts(\"ran\"); return 0; }";
    if let Some(fixed) = stage.bench.compile("fixed", source, &["-static"]) {
        let ended = run(text(&fixed)).expect(125);
        ended.says("is statically linked").says("it was not run");
        assert_eq!(ended.stdout, "");
    }
    // The dynamic linker is asked, and this is no library of this machine.
    let broken = stage.bench.path("libquarry-check.so");
    fs::write(&broken, "no library").unwrap();
    let ended = stage.bench.run(&["check", "--lib", text(&broken), "--", text(&stage.program)]).expect(125);
    ended.says("it was not run");
    run("/no/such/program").expect(127);
}

/// The library is loaded, and no report comes.
#[test]
fn a_report_of_nothing_says_so() {
    let Some(stage) = Stage::new(TWICE) else { return };
    let silent = stage.bench.library("libquarry-check", "int nothing;");
    let (json, sarif) = (stage.bench.path("r.json"), stage.bench.path("r.sarif"));
    let options = ["check", "--lib", text(&silent), "-o", text(&json), "-o", text(&sarif), "--", "true"];
    stage.bench.run(&options).expect(125).says("nothing was checked").says("The command ended with");
    let read = |path: &Path| -> Value { serde_json::from_slice(&fs::read(path).unwrap()).unwrap() };
    let (json, sarif) = (read(&json), read(&sarif));
    assert_eq!(json["exit_code"], 125, "{json:#}");
    assert!(json["notes"][0]["text"].as_str().unwrap().starts_with("nothing was checked"), "{json:#}");
    let run = &sarif["runs"][0]["invocations"][0];
    assert_eq!((&run["executionSuccessful"], &run["exitCode"]), (&Value::Bool(false), &125.into()));
    assert!(run["toolExecutionNotifications"].to_string().contains("nothing was checked"), "{run:#}");
}

#[test]
fn children_are_shown_if_wanted() {
    let source = "#include <stdlib.h>\n#include <unistd.h>\n#include <sys/wait.h>\n\
        int main(int argc, char **argv) {\n\
            if (argc > 2) { char *p = malloc(8); free(p); free(p); return 0; }\n\
            if (fork() == 0) execl(argv[0], argv[0], \"a\", \"b\", (char *)0);\n\
            wait(0); return 5; }";
    let Some(stage) = Stage::new(source) else { return };
    stage.check(&[], &[]).expect(5);
    stage.check(&["--children"], &[]).expect(23).says("double-free");
}

/// The one in between has nothing to say, and so no file; or it becomes another program before its copy says something.
#[test]
fn a_copy_of_a_copy_is_shown() {
    let source = "#include <signal.h>\n#include <stdlib.h>\n#include <unistd.h>\n#include <sys/wait.h>\n\
        static void twice(void) { char *p = malloc(8); free(p); free(p); }\n\
        int main(int argc, char **argv) {\n\
            int go[2], done[2]; char c;\n\
            if (pipe(go) || pipe(done)) return 9;\n\
            int child = fork();\n\
            if (child == 0) {\n\
                close(go[1]);\n\
                if (argc > 1) twice();\n\
                if (fork() == 0) {\n\
                    read(go[0], &c, 1);\n\
                    twice();\n\
                    _exit(0);\n\
                }\n\
                if (argc > 1) execl(\"/bin/true\", \"true\", (char *)0);\n\
                kill(getpid(), SIGKILL);\n\
            }\n\
            waitpid(child, 0, 0);\n\
            close(go[1]); close(done[1]);\n\
            read(done[0], &c, 1);\n\
            return 5; }";
    let Some(stage) = Stage::new(source) else { return };
    let finds = |words: &[&str], errors: &str| {
        let ended = stage.check(&[], words).expect(23);
        ended.says("double-free").says(errors);
        assert!(!ended.stderr.contains("are left out"), "{}", ended.stderr);
    };
    finds(&[], "errors: 1\n");
    finds(&["x"], "errors: 2\n");
}

/// Loses a block, and goes on until its input ends.
const LOSES: &str = "#include <stdlib.h>\n#include <unistd.h>\n#include <stdio.h>\n\
    static void lose(void) { volatile char *p = malloc(48); p[0] = 1; p = 0; }\n\
    int main(void) { lose(); puts(\"up\"); fflush(stdout); char c; while (read(0, &c, 1) < 0) {} return 0; }";

#[test]
fn a_running_process_says_what_it_has_lost() {
    let Some(stage) = Stage::new(LOSES) else { return };
    let (out, raw) = (stage.bench.path("out"), stage.bench.path("raw"));
    let mut command = stage.bench.quarry(["check", "--keep", text(&raw), "--", text(&stage.program)]);
    command.env("QUARRY_LIB_DIR", &stage.libraries).stdin(std::process::Stdio::piped());
    let mut child = command.stdout(fs::File::create(&out).unwrap()).spawn().unwrap();
    wait_until("the program runs", || fs::read_to_string(&out).is_ok_and(|text| text.contains("up")));
    let file = fs::read_dir(&raw).unwrap().next().unwrap().unwrap().file_name();
    let pid = file.to_str().unwrap().split('.').next().unwrap().to_owned();
    let asked = stage.bench.run(&["check", "-p", &pid, "--leaks"]).expect(23).stdout;
    assert!(asked.contains("leak-definite: 48 bytes in 1 block") && asked.contains("(demand)"), "{asked}");
    // Who is not checked would be ended by the signal.
    let own = std::process::id().to_string();
    stage.bench.run(&["check", "-p", &own]).expect(1).says("is not checked");
    stage.bench.run(&["check", "-p", "2147483647"]).expect(1).says("there is no process 2147483647");
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(23));
}

/// The file of its reports has the number that it has for itself, which is 1.
#[test]
fn a_process_of_another_namespace_says_what_it_has_lost() {
    let Some(stage) = Stage::new(LOSES) else { return };
    let alone = ["unshare", "--pid", "--fork"];
    let tried = Command::new(alone[0]).args(&alone[1..]).arg("true").stderr(Stdio::null()).status();
    if !tried.is_ok_and(|status| status.success()) {
        eprintln!("skipped: needs unshare, and root");
        return;
    }
    let (out, raw) = (stage.bench.path("out"), stage.bench.path("raw"));
    let words = [&["check", "--children", "--keep", text(&raw), "--"][..], &alone, &[text(&stage.program)]];
    let mut command = stage.bench.quarry(words.concat());
    command.env("QUARRY_LIB_DIR", &stage.libraries).stdin(Stdio::piped());
    let mut child = command.stdout(fs::File::create(&out).unwrap()).spawn().unwrap();
    wait_until("the program runs", || fs::read_to_string(&out).is_ok_and(|text| text.contains("up")));
    let child_of = |pid: &str| {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        children.trim().to_owned()
    };
    let pid = child_of(&child_of(&child.id().to_string()));
    let asked = stage.bench.run(&["check", "-p", &pid, "--leaks"]).expect(23).stdout;
    assert!(asked.contains("leak-definite: 48 bytes in 1 block"), "{asked}");
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(23));
}

/// A copy lives on, frees twice when it may, and goes on until it is told to end. Its parent leaves without a word.
const DAEMON: &str = "#include <fcntl.h>\n\
    #include <stdlib.h>\n\
    #include <sys/syscall.h>\n\
    #include <unistd.h>\n\
    static void until(const char *file) { for (int i = 0; i < 6000 && access(file, F_OK); i++) usleep(10000); }\n\
    int main(int argc, char **argv) {\n\
        if (fork()) syscall(SYS_exit_group, 0);\n\
        setsid();\n\
        for (int fd = 0; fd < 3; fd++) dup2(open(\"/dev/null\", O_RDWR), fd);\n\
        until(argv[1]);\n\
        void *p = malloc(10);\n\
        free(p);\n\
        free(p);\n\
        close(open(argv[2], O_CREAT, 0600));\n\
        until(argv[3]);\n\
        return 0;\n\
    }\n";

#[test]
fn a_copy_that_outlives_the_command_is_told() {
    let Some(stage) = Stage::new(DAEMON) else { return };
    for keeps in [false, true] {
        let files = ["go", "done", "end"].map(|name| stage.bench.path(&format!("{name}-{keeps}")));
        let kept = stage.bench.path("kept");
        let temporary = stage.bench.path("tmp");
        fs::create_dir_all(&temporary).unwrap();
        let keep = ["--keep", text(&kept)];
        let options = if keeps { &keep[..] } else { &[] };
        let words =
            [&["check"], options, &["--", text(&stage.program)], &files.each_ref().map(|f| text(f))].concat();
        let mut command = stage.bench.quarry(words);
        command.env("QUARRY_LIB_DIR", &stage.libraries).env("TMPDIR", &temporary);
        let ended = Ended::from(command.output().unwrap()).expect(0);
        ended
            .says(": exit 0; errors that are found at the end are not there")
            .says(" still runs, and what is found");
        let (_, rest) = ended.stderr.split_once("It goes to ").unwrap();
        let folder = rest.split([',', ':']).next().unwrap().to_owned();
        assert_eq!(ended.stderr.contains("--keep DIR"), !keeps, "{}", ended.stderr);
        assert_eq!(folder == text(&kept), keeps, "{folder}");
        fs::write(&files[0], "").unwrap();
        wait_until("it has freed twice", || files[1].exists());
        let later = Ended::from(stage.bench.quarry(["check", &folder]).output().unwrap()).expect(23);
        assert!(later.stdout.contains("double-free"), "{}", later.stdout);
        fs::write(&files[2], "").unwrap();
    }
    // Without one nothing stays.
    let temporary = stage.bench.path("empty");
    fs::create_dir(&temporary).unwrap();
    let mut command = stage.bench.quarry(["check", "--", "true"]);
    command.env("QUARRY_LIB_DIR", &stage.libraries).env("TMPDIR", &temporary);
    Ended::from(command.output().unwrap()).expect(0);
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0);
}

#[test]
fn a_program_without_the_library_behind_an_exec_is_told() {
    let Some(stage) = Stage::new(TWICE) else { return };
    let program = text(&stage.program);
    let check = |options: &[&str], command: &[&str]| {
        let words = [&["check"], options, &["--"], command].concat();
        let mut command = stage.bench.quarry(words);
        Ended::from(command.env("QUARRY_LIB_DIR", &stage.libraries).output().unwrap())
    };
    let said = "became a program by exec that was not checked";
    for options in [&[][..], &["--children"]] {
        check(options, &["env", "-i", program, "x"]).expect(125).says(said);
    }
    // The last one is checked. One that is not has a child that is.
    check(&[], &["env", program, "x"]).expect(23);
    let script = format!("{program}; exec env -i true");
    let ended = check(&["--children"], &["sh", "-c", &script]).expect(0);
    assert!(!ended.stderr.contains(said), "{}", ended.stderr);
}

#[test]
fn a_path_need_not_be_text() {
    use std::os::unix::ffi::OsStrExt;
    let Some(stage) = Stage::new(TWICE) else { return };
    for name in [&b"prog\xff"[..], b"prog\nx"] {
        let path = stage.bench.path(".").join(std::ffi::OsStr::from_bytes(name));
        let copied = std::process::Command::new("cp").arg(&stage.program).arg(&path).status();
        assert!(copied.unwrap().success());
        let mut command = stage.bench.quarry(["check", "--"]);
        command.arg(&path).arg("x").env("QUARRY_LIB_DIR", &stage.libraries);
        let ended = Ended::from(command.output().unwrap()).expect(23).says("main at prog.c:5").stderr.clone();
        assert!(!ended.contains("no names"), "{ended}");
    }
    for (name, why) in
        [(&b"k\xff"[..], "that is not UTF-8"), (b"k\n", "with a line break"), (b"k,", "with a comma")]
    {
        let mut command = stage.bench.quarry(["check", "--keep"]);
        command.arg(stage.bench.path(".").join(std::ffi::OsStr::from_bytes(name))).args(["--", "true"]);
        let ended = Ended::from(command.env("QUARRY_LIB_DIR", &stage.libraries).output().unwrap());
        ended.expect(125).says(&format!("a path {why} cannot stand in QUARRY_CHECK"));
    }
}

#[test]
fn files_of_another_machine_give_names() {
    let Some(stage) = Stage::new(TWICE) else { return };
    let (raw, image) = (stage.bench.path("raw"), stage.bench.path("image"));
    stage.check(&["--keep", text(&raw)], &["x"]).expect(23);
    fs::create_dir(&image).unwrap();
    fs::rename(&stage.program, image.join("prog")).unwrap();
    let without = stage.bench.run(&["check", text(&raw)]).expect(23).stdout;
    assert!(without.contains("/prog: not found") && !without.contains("prog.c:"), "{without}");
    let with = stage.bench.run(&["check", "--symfs", text(&image), text(&raw)]).expect(23).stdout;
    assert!(with.contains("main at prog.c:5") && with.contains("main at prog.c:3"), "{with}");
    // Another program of that name is none of the run's.
    let other = stage.bench.compile("prog", "int main(void) { return 0; }", &["-g"]).unwrap();
    fs::rename(other, image.join("prog")).unwrap();
    let with = stage.bench.run(&["check", "--symfs", text(&image), text(&raw)]).expect(23).stdout;
    assert!(with.contains("/prog: other file: ") && !with.contains("prog.c:"), "{with}");
}

#[test]
fn gdb_stops_at_the_first_error() {
    let Some(stage) = Stage::new(TWICE) else { return };
    if std::process::Command::new("gdb").args(["-nx", "-batch"]).status().is_err() {
        eprintln!("skipped: needs gdb");
        return;
    }
    let ended = stage.check(&["--gdb"], &["x", "x"]);
    if ended.stderr.contains("ptrace: Operation not permitted") {
        eprintln!("skipped: gdb may not trace here");
        return;
    }
    // It has no more commands to read, and ends.
    let said = &ended.stdout;
    for part in [
        "quarry check: double-free",
        "main (argc=3",
        "heap of libquarry-check.so",
        "  freed block at 0x",
        ", 8 bytes, offset 0",
        "  made by malloc, number 1 of its place",
        "  allocated at:\n",
        "prog.c:3)",
        "  freed at:\n",
        "prog.c:5)",
    ] {
        assert!(said.contains(part), "no {part:?} in {said}\n{}", ended.stderr);
    }
    assert_eq!(said.matches("quarry check: ").count(), 1, "{said}");
}

#[test]
fn the_side_of_guards_is_chosen() {
    // One block, alone in its place, is read before its begin: its guard lies behind it.
    let source = "#include <stdlib.h>\nstatic volatile char *p;\n\
        int main(int argc, char **argv) {\n\
            p = malloc(24);\n\
            int n = argc > 1 ? p[24 + 8] : p[-1];\n\
            free((void *)p);\n\
            return n == 77;\n\
        }\n";
    let Some(stage) = Stage::new(source) else { return };
    stage.check(&["--leaks", "no"], &[]).expect(0).says("errors: none");
    let ended = stage.check(&["--leaks", "no", "--pinpoint"], &[]).expect(23);
    ended.says("#1 underflow-read: ").says(">     5 | int n").says("errors: 1\n");
    stage.check(&["--leaks", "no", "--guard-side", "before"], &[]).expect(23).says("underflow-read");
    stage.check(&["--leaks", "no", "--guard-side", "behind"], &[]).expect(0);
    // Behind the block it is the other way round.
    stage.check(&["--leaks", "no"], &["x"]).expect(23).says("overflow-read");
    stage.check(&["--leaks", "no", "--guard-side", "before"], &["x"]).expect(0);
    let options = ["--leaks", "no", "--guard-side", "before", "--pinpoint"];
    stage.check(&options, &["x"]).expect(23).says("overflow-read");
}
