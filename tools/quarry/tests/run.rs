// SPDX-License-Identifier: MIT
//! quarry run: what goes in, what comes out, and with which code.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::common::{Bench, Ended, kill, libraries, nothing_ignored, text};
use serde_json::Value;

#[test]
fn the_exit_code_is_the_commands() {
    let Some(bench) = Bench::new() else { return };
    for code in [0, 1, 7, 255] {
        let ended = bench.run(&["run", "--", "sh", "-c", &format!("exit {code}")]).expect(code);
        assert_eq!((ended.stdout, ended.stderr), (String::new(), String::new()));
    }
    bench.run(&["run", "--", "sh", "-c", "kill -SEGV $$"]).expect(139);
    bench.run(&["run", "--stats", "--", "sh", "-c", "kill -TERM $$"]).expect(143).says("SIGTERM");
}

/// A shell has the number of `quarry run` in `$!`.
#[test]
fn the_number_of_the_tool_leads_to_its_command() {
    let Some(bench) = Bench::new() else { return };
    let mut tool = bench.quarry(["run", "--", "sleep", "1000"]).stderr(Stdio::null()).spawn().unwrap();
    let pid = tool.id().to_string();
    let ended = bench.run(&["explain", "-p", &pid, "--for", "0", "--json"]).expect(0);
    let report = ended.json();
    let command = report["pid"].as_u64().unwrap().to_string();
    assert_eq!(report["name"], "sleep", "{report:#}");
    ended.says(&format!("process {pid} is quarry run; its command is process {command}"));
    let map = bench.run(&["map", "-p", &pid, "--json"]).expect(0).json();
    assert_eq!(map["pid"], report["pid"]);
    // These need a heap that tells of itself, and say which process has none.
    for args in [&["profile", "-p", &pid, "--for", "0.1"][..], &["stats", "-p", &pid]] {
        bench.run(args).expect(1).says(&format!("process {command}")).says("quarry run;");
    }
    kill("TERM", tool.id());
    tool.wait().unwrap();
}

#[test]
fn what_cannot_be_run_has_its_own_codes() {
    let Some(bench) = Bench::new() else { return };
    bench.run(&["run", "--", "no-such-command-here"]).expect(127).says("no-such-command-here");
    bench.run(&["run", "--", "/no/such/file"]).expect(127).says("no such file");
    bench.run(&["run", "--", "/"]).expect(126).says("is a directory");
    let script = bench.path("script");
    fs::write(&script, "#!/bin/sh\n").unwrap();
    bench.run(&["run", "--", text(&script)]).expect(126).says("chmod");
    let script = bench.script("script", "#!/no/such/interpreter\n");
    bench.run(&["run", "--", text(&script)]).expect(127).says("/no/such/interpreter");
}

#[test]
fn a_slip_of_the_fingers_ends_with_2() {
    let Some(bench) = Bench::new() else { return };
    for args in [
        &["run"][..],
        &["run", "--no-such-option", "--", "true"],
        &["run", "--conf", "arenas=4", "--", "true"],
        &["run", "--color", "perhaps", "--", "true"],
        &["run", "-q", "-v", "--", "true"],
        &["no-such-verb"],
        &[],
    ] {
        bench.run(args).expect(2);
    }
    bench.run(&["run", "--conf", "arenas=4", "--", "true"]).says("key:value");
}

#[test]
fn where_no_report_can_be_is_said_before_the_run() {
    let Some(bench) = Bench::new() else { return };
    let (mark, none, folder) = (bench.path("mark"), bench.path("none").join("report"), bench.path(""));
    let (mark, none, folder) = (text(&mark), text(&none), text(&folder));
    for args in [
        &["run", "--stats", "-o", none, "--", "touch", mark][..],
        &["run", "--stats", "-o", folder, "--", "touch", mark],
        &["compare", "-n", "1", "--with", "system", "-o", none, "--", "touch", mark],
        &["record", "--summary", none, "-o", "/dev/null", "--", "touch", mark],
    ] {
        bench.run(args).expect(125).says("could not be written");
        assert!(!std::path::Path::new(mark).exists(), "{args:?}");
    }
}

#[test]
fn a_missing_library_is_our_failure() {
    let Some(bench) = Bench::new() else { return };
    let none = bench.path("none");
    let ended =
        Ended::from(bench.quarry(["run", "--", "true"]).env("QUARRY_LIB_DIR", &none).output().unwrap());
    ended.expect(125).says("QUARRY_LIB_DIR").says(text(&none.join("libquarry-malloc.so")));
    bench.run(&["run", "--lib", "/no/lib.so", "--", "true"]).expect(125).says("--lib").says("/no/lib.so");
}

/// The dynamic linker would pass over it, and the command run without.
#[test]
fn what_is_no_library_is_refused() {
    let Some(bench) = Bench::new() else { return };
    let none = bench.path("none.so");
    fs::write(&none, "no library").unwrap();
    bench.run(&["run", "--lib", text(&none), "--", "true"]).expect(125).says("is no shared library");
}

#[test]
fn a_path_that_cannot_be_preloaded_is_refused() {
    let Some(bench) = Bench::new() else { return };
    let odd = bench.path("a b.so");
    fs::copy(bench.path("libquarry-malloc.so"), &odd).unwrap();
    bench.run(&["run", "--lib", text(&odd), "--", "true"]).expect(125).says("LD_PRELOAD");
}

#[test]
fn the_library_comes_before_what_is_preloaded() {
    let Some(bench) = Bench::new() else { return };
    let other = bench.library("libother", "int other;");
    let ours = bench.path("libquarry-malloc.so");
    let mut command = bench.quarry(["run", "--", "sh", "-c", "echo $LD_PRELOAD"]);
    let ended = Ended::from(command.env("LD_PRELOAD", &other).output().unwrap()).expect(0);
    assert_eq!(ended.stdout, format!("{}:{}\n", ours.display(), other.display()));
    let ended = bench.run(&["run", "--", "grep", "-c", "libquarry-malloc", "/proc/self/maps"]).expect(0);
    assert_ne!(ended.stdout.trim(), "0");
}

#[test]
fn heap_options_are_merged() {
    let Some(bench) = Bench::new() else { return };
    let args = [
        "run",
        "--conf",
        "purge:on",
        "--conf",
        "verbose:on",
        "--",
        "sh",
        "-c",
        "echo \"${QUARRY_CONF-unset}\"",
    ];
    let mut command = bench.quarry(args);
    let ended = Ended::from(command.env("QUARRY_CONF", "arenas:2,purge:off").output().unwrap()).expect(0);
    assert_eq!(ended.stdout, "arenas:2,purge:on,verbose:on\n");
    let ended = bench.run(&["run", "--", "sh", "-c", "echo ${QUARRY_CONF-unset}"]).expect(0);
    assert_eq!(ended.stdout, "unset\n");
}

#[test]
fn statistics_keep_off_standard_output() {
    let Some(bench) = Bench::new() else { return };
    let ended = bench.run(&["run", "--stats", "--", "echo", "hello"]).expect(0);
    assert_eq!(ended.stdout, "hello\n");
    ended.says("echo hello: exit 0").says("peak RSS").says("wall").says("mapped").says("1 B");
    assert!(!ended.stderr.contains("note:"), "{}", ended.stderr);
    assert!(!ended.stderr.contains('\x1b'), "{}", ended.stderr);
    let coloured = bench.run(&["run", "--color", "always", "--stats", "--", "echo", "hello"]).expect(0);
    assert!(coloured.stderr.contains('\x1b'));
}

#[test]
fn the_json_report_has_its_schema() {
    let Some(bench) = Bench::new() else { return };
    // Three processes; no shell, since some leave by _exit, and then there are no statistics.
    let source = "#include <sys/wait.h>\n#include <unistd.h>\n\
        int main(void) { if (fork() && fork()) { while (wait(0) > 0) {} return 3; } return 0; }";
    let forks = bench.compile("forks", source, &[]).unwrap();
    let ended = bench.run(&["run", "--json", "-o", "-", "--", text(&forks)]).expect(3);
    let json = ended.json();
    assert_eq!(json["schema"], "quarry-run/1");
    assert_eq!(json["exit_code"], 3);
    assert_eq!(json["signal"], Value::Null);
    assert_eq!(json["command"], serde_json::json!([text(&forks)]));
    assert_eq!(json["heap"]["program"]["program"], "forks");
    assert_eq!(json["heap"]["program"]["mapped_bytes"], 1);
    assert_eq!(json["heap"]["others"]["processes"], 2);
    assert_eq!(json["heap"]["others"]["sum"]["purges"], 2);
    for key in ["wall_s", "user_s", "system_s"] {
        assert!(json["usage"][key].as_f64().is_some_and(|s| (0.0..60.0).contains(&s)), "{key}");
    }
    for key in ["minor_faults", "major_faults", "voluntary_switches", "involuntary_switches"] {
        assert!(json["usage"][key].is_u64(), "{key}");
    }
    let peak = json["usage"]["peak_rss_bytes"].as_u64().unwrap();
    assert!((100 << 10..100 << 20).contains(&peak), "{peak}");
}

#[test]
fn a_report_goes_where_it_is_sent() {
    let Some(bench) = Bench::new() else { return };
    let file = bench.path("report.json");
    let ended = bench.run(&["run", "--json", "-o", text(&file), "--", "echo", "hello"]).expect(0);
    assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("hello\n", ""));
    let json: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(json["exit_code"], 0);
    // The command has run, so its code stands, although the report is lost.
    bench.run(&["run", "--json", "-o", "/dev/full", "--", "sh", "-c", "exit 4"]).expect(4).says("/dev/full");
}

#[test]
fn a_statistics_file_of_the_users_is_kept() {
    let Some(bench) = Bench::new() else { return };
    let file = bench.path("mine");
    let conf = format!("stats_file:{}", file.display());
    for lines in 1..=2 {
        let ended = bench.run(&["run", "--json", "-o", "-", "--conf", &conf, "--", "true"]).expect(0);
        // Only this run's line counts.
        assert_eq!(ended.json()["heap"]["others"], Value::Null);
        assert_eq!(ended.json()["heap"]["program"]["program"], "true");
        assert_eq!(fs::read_to_string(&file).unwrap().lines().count(), lines);
    }
}

/// libquarry has a heap of its own, which serves nobody there.
#[test]
fn a_program_with_libquarry_is_one_process() {
    let Some(bench) = Bench::new() else { return };
    let Some(folder) = libraries(&["libquarry.so", "libquarry-malloc.so"]) else { return };
    let source = "void *quarry_malloc(unsigned long);\nvoid quarry_free(void *);\n\
        int main(void) { quarry_free(quarry_malloc(100)); return 0; }";
    let (search, run) = (format!("-L{}", folder.display()), format!("-Wl,-rpath,{}", folder.display()));
    let program = bench.compile("linked", source, &["-O1", &search, "-lquarry", &run]).unwrap();
    let mut command = bench.quarry(["run", "--json", "-o", "-", "--", text(&program)]);
    let ended = Ended::from(command.env("QUARRY_LIB_DIR", &folder).output().unwrap()).expect(0);
    assert_eq!(ended.json()["heap"]["program"]["program"], "linked");
    assert_eq!(ended.json()["heap"]["others"], Value::Null);
}

#[test]
fn a_statistics_file_is_found_wherever_the_program_goes() {
    let Some(bench) = Bench::new() else { return };
    let source = "#include <unistd.h>\nint main(void) { return chdir(\"sub\"); }";
    bench.compile("wander", source, &[]).unwrap();
    for folder in ["here", "with,comma"] {
        let here = bench.path(folder);
        fs::create_dir_all(here.join("sub")).unwrap();
        let args = ["run", "--json", "-o", "-", "--conf", "stats_file:mine", "--"];
        let run = |program: &str| {
            Ended::from(bench.quarry(args.iter().chain([&program])).current_dir(&here).output().unwrap())
        };
        if folder == "here" {
            let json = run("../wander").expect(0).json();
            assert_eq!(json["heap"]["program"]["program"], "wander");
        }
        // The option cannot have the comma, and need not where the program stays.
        assert_eq!(run("true").expect(0).json()["heap"]["program"]["program"], "true");
        assert!(here.join("mine").exists() && !here.join("sub/mine").exists());
    }
}

#[test]
fn nothing_temporary_is_left_behind() {
    let Some(bench) = Bench::new() else { return };
    let temporary = bench.path("tmp");
    fs::create_dir(&temporary).unwrap();
    let ended = bench.quarry(["run", "--stats", "--", "true"]).env("TMPDIR", &temporary).output().unwrap();
    Ended::from(ended).expect(0).says("mapped");
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0);
    let odd = bench.path("with,comma");
    fs::create_dir(&odd).unwrap();
    let ended = bench.quarry(["run", "--stats", "--", "true"]).env("TMPDIR", &odd).output().unwrap();
    Ended::from(ended).expect(125).says("comma").says("TMPDIR");
}

#[test]
fn a_silent_heap_is_explained() {
    let Some(bench) = Bench::new() else { return };
    let abrupt = bench.compile("abrupt", "#include <unistd.h>\nint main(void) { _exit(0); }", &[]).unwrap();
    bench.run(&["run", "--stats", "--", text(&abrupt)]).expect(0).says("left no statistics");
    let Some(fixed) = bench.compile("fixed", "int main(void) { return 0; }", &["-static"]) else { return };
    let ended = bench.run(&["run", "--", text(&fixed)]).expect(0);
    ended.says("warning").says("statically linked");
    let quiet = bench.run(&["run", "-q", "--", text(&fixed)]).expect(0);
    assert_eq!(quiet.stderr, "");
}

#[test]
fn signals_are_the_commands_to_handle() {
    let Some(bench) = Bench::new() else { return };
    for (signal, trap) in [("TERM", "TERM"), ("INT", "INT"), ("HUP", "HUP"), ("USR1", "USR1")] {
        let script = format!("trap 'exit 9' {trap}; echo ready; while :; do sleep 0.05; done");
        let mut command = nothing_ignored(&bench.quarry(["run", "--stats", "--", "sh", "-c", &script]));
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        kill(signal, child.id());
        // The tool lives on to report.
        Ended::from(child.wait_with_output().unwrap()).expect(9).says("exit 9");
    }
}

#[test]
fn what_is_ignored_stays_ignored() {
    let Some(bench) = Bench::new() else { return };
    let tool = bench.quarry(["run", "--", "sh", "-c", "kill -HUP $$; echo alive"]);
    let words: Vec<_> = std::iter::once(tool.get_program()).chain(tool.get_args()).collect();
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "trap '' HUP; exec \"$@\"", "sh"]).args(words);
    let ended = shell.env("QUARRY_LIB_DIR", bench.path("")).output().unwrap();
    assert_eq!(Ended::from(ended).expect(0).stdout, "alive\n");
}

/// The folder of the tour with chapters that are scripts.
pub fn tour(chapters: &[(&str, &str)]) -> Option<Bench> {
    let bench = Bench::new()?;
    let folder = bench.path("quarry/tour");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("tour.h"), "").unwrap();
    for (stem, script) in chapters {
        let title = stem.split_once('-').unwrap().1;
        let source = format!(
            "// SPDX\n// {stem}.c: about {title}\n//\n// Idea: An idea.\n//\n// Then and now: Other times.\n//\n\
             int main(void) {{\n    // tour: show\n    experiment();\n    // tour: hide\n}}\n"
        );
        fs::write(folder.join(format!("{stem}.c")), source).unwrap();
        bench.script(&format!("quarry/tour/{stem}"), &format!("#!/bin/sh\n{script}"));
    }
    Some(bench)
}

const BEGIN: &str =
    r#"echo '{"show":"VmSize minor","kernel":"6.1-here","machine":"m","page_kib":4,"memory_kib":1024}'"#;

/// Two steps, a claim that holds or not, and what it is called with.
pub fn experiment(holds: bool) -> String {
    let (status, failed) = if holds { (0, 0) } else { (1, 1) };
    format!(
        r#"{BEGIN}
echo '{{"step":"before","process":"","status":{{"VmSize":1024}},"faults":{{"minor":5}}}}'
echo '{{"step":"after","process":"","status":{{"VmSize":3072}},"faults":{{"minor":7}}}}'
echo '{{"claim":"It grew.","holds":{holds},"measured":2048,"expected":2048,"slack":0}}'
echo '{{"note":"system '$QUARRY_TOUR_SYSTEM', preload '$LD_PRELOAD$MALLOC_ARENA_MAX'."}}'
echo '{{"end":{{"steps":2,"claims":1,"failed":{failed}}}}}'
exit {status}
"#
    )
}

#[test]
fn a_tour_is_told_drawn_and_counted() {
    let good = experiment(true);
    let Some(bench) = tour(&[("02-second", &good), ("01-first", &good)]) else { return };
    let list = bench.run(&["tour", "--list"]).expect(0).stdout;
    assert_eq!(list, " 1  first   about first\n 2  second  about second\n");
    let ended = Ended::from(bench.quarry(["tour"]).env("MALLOC_ARENA_MAX", "1").output().unwrap()).expect(0);
    let places =
        ["1. first: about first", "An idea.", "    experiment();", "3.00 MiB", "+2.00 MiB", "✓ It grew."];
    let mut rest = ended.stdout.as_str();
    for place in places.iter().chain(&["· system , preload .", "Other times.", "2. second"]) {
        rest = rest.split_once(place).unwrap_or_else(|| panic!("no {place} in {rest}")).1;
    }
    // By number and by name; settings of the system only for those who say so.
    let json = bench.run(&["tour", "--json", "--system", "2"]).expect(0).json();
    assert_eq!(json["schema"], "quarry-tour/2");
    assert_eq!(json["chapters"].as_array().unwrap().len(), 1);
    let run = &json["chapters"][0]["run"];
    assert_eq!(run["steps"][1]["figures"]["VmSize"], 3072);
    assert_eq!(run["claims"][0]["holds"], true);
    assert_eq!(run["notes"][0], "system 1, preload .");
    let page = bench.path("tour.html");
    bench.run(&["tour", "first", "-o", text(&page)]).expect(0);
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.matches("<svg").count() == 2 && html.contains("experiment();") && html.contains("6.1-here"));
    bench.run(&["tour", "--list", "-o", "other.html"]).expect(2);
    let file = bench.path("tour.txt");
    bench.run(&["tour", "first", "-o", text(&file)]).expect(0);
    let told = fs::read_to_string(&file).unwrap();
    assert!(told.contains("✓ It grew."));
    // Beside a page, too.
    fs::remove_file(&file).unwrap();
    let both = ["tour", "first", "-o", text(&page), "-o", text(&file)];
    assert_eq!(bench.run(&both).expect(0).stdout, "");
    assert_eq!(fs::read_to_string(&file).unwrap(), told);
    assert_eq!(bench.run(&["tour", "first", "-o", text(&page), "-o", "-"]).expect(0).stdout, told);
}

#[test]
fn what_goes_wrong_on_a_tour_is_said() {
    let (bad, good) = (experiment(false), experiment(true));
    let skipped = format!("{BEGIN}\necho '{{\"skip\":\"there is no swap\"}}'\nexit 77\n");
    let crashed = format!("{BEGIN}\necho 'tour: mmap: no memory' >&2\nexit 2\n");
    let cut = format!("{BEGIN}\n");
    let chapters = [
        ("01-bad", &*bad),
        ("02-none", &*skipped),
        ("03-record", &*skipped),
        ("04-crash", &*crashed),
        ("05-cut", &*cut),
    ];
    let Some(bench) = tour(&chapters) else { return };
    let record = Command::new("sh").args(["-c", &good.replace("6.1-here", "5.4-there")]).output().unwrap();
    fs::write(bench.path("quarry/tour/03-record.jsonl"), record.stdout).unwrap();
    let ended = bench.run(&["tour", "bad"]).expect(1);
    ended.says("bad: one thing was not as expected");
    assert!(ended.stdout.contains("✗ NOT SO HERE: It grew. (measured 2048, expected 2048, give or take 0)"));
    assert!(bench.run(&["tour", "none"]).expect(0).stdout.contains("Not run here: there is no swap."));
    let recorded = bench.run(&["tour", "record"]).expect(0).stdout.replace('\n', " ");
    let words = "Not run here: there is no swap. What follows was recorded on Linux 5.4-there.";
    assert!(recorded.contains(words) && recorded.contains("✓ It grew."), "{recorded}");
    bench.run(&["tour", "crash"]).expect(1).says("it ended with code 2: tour: mmap: no memory");
    bench.run(&["tour", "cut"]).expect(1).says("it stopped in the middle");
    bench.run(&["tour", "nowhere"]).expect(2).says("there is no chapter nowhere; there are: bad, none");
    fs::remove_file(bench.path("quarry/tour/tour.h")).unwrap();
    bench.run(&["tour"]).expect(125).says("tour.h was not found");
}
