// SPDX-License-Identifier: MIT
//! quarry doctor: what it finds on real programs, processes and variables. What it makes of settings is tested beside its code.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::common::{Bench, Ended, libraries, text, wait_until};

const MAIN: &str = "int main(void) { return 0; }";

/// The tool, in an environment without settings of any malloc.
fn doctor(bench: &Bench, variables: &[(&str, &str)], args: &[&str]) -> Ended {
    let mut command = bench.quarry([&["doctor"], args].concat());
    for name in std::env::vars_os().map(|(name, _)| name) {
        let shown = name.to_string_lossy();
        if shown.contains("MALLOC") || shown == "GLIBC_TUNABLES" {
            command.env_remove(&name);
        }
    }
    Ended::from(command.envs(variables.iter().copied()).output().unwrap())
}

/// The findings of this name.
fn found<'v>(report: &'v Value, name: &str) -> Vec<&'v Value> {
    let groups = report["groups"].as_array().unwrap();
    let all = groups.iter().flat_map(|group| group["findings"].as_array().unwrap());
    all.filter(|finding| finding["name"] == name).collect()
}

fn level(report: &Value, name: &str) -> String {
    let levels: Vec<&str> =
        found(report, name).iter().map(|finding| finding["level"].as_str().unwrap()).collect();
    levels.join(" ")
}

#[test]
fn the_machine_alone_is_no_problem() {
    let Some(bench) = Bench::new() else { return };
    let report = doctor(&bench, &[], &["--json"]).expect(0).json();
    assert_eq!((report["schema"].as_str(), report["problems"].as_u64()), (Some("quarry-doctor/1"), Some(0)));
    let names: Vec<&str> =
        report["groups"].as_array().unwrap().iter().map(|group| group["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["versions", "kernel", "environment"]);
    for name in [
        "tool",
        "library",
        "kernel",
        "C library",
        "transparent huge pages",
        "vm.max_map_count",
        "control group",
    ] {
        assert!(!level(&report, name).is_empty(), "{name} in {report:#}");
    }
    let printed = doctor(&bench, &[], &[]).expect(0).stdout;
    assert!(printed.contains(env!("CARGO_PKG_VERSION")) && printed.contains("\n0 problems, "), "{printed}");
}

#[test]
fn variables_that_conflict_are_named() {
    let Some(bench) = Bench::new() else { return };
    let variables = [("MALLOC_ARENA_MAX", "1"), ("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0")];
    let report = doctor(&bench, &variables, &["--json"]).expect(0).json();
    assert_eq!(
        (level(&report, "MALLOC_ARENA_MAX"), level(&report, "GLIBC_TUNABLES")),
        ("note".into(), "note".into())
    );
    // Those of a process are its own.
    let started = Command::new("sleep").arg("600").env("MALLOC_PERTURB_", "7").stdin(Stdio::null()).spawn();
    let mut sleeper = started.unwrap();
    let report = bench.run(&["doctor", "--json", "-p", &sleeper.id().to_string()]);
    sleeper.kill().and_then(|()| sleeper.wait()).unwrap();
    let report = report.expect(0).json();
    assert_eq!((level(&report, "MALLOC_PERTURB_"), level(&report, "malloc")), ("note".into(), "note".into()));
    let unknown = doctor(&bench, &[("QUARRY_CONF", "purge_dealy:1")], &[]).expect(1);
    assert!(unknown.stdout.contains("There is no option purge_dealy"), "{}", unknown.stdout);
}

/// The words of a process are its own, and may be an attack on the terminal of the user who looks at it.
#[test]
fn words_of_a_process_move_no_cursor_and_make_no_lines() {
    let Some(bench) = Bench::new() else { return };
    // It reads its input, and never comes to the second file.
    let mut cat = Command::new("cat");
    cat.args(["-", "a\x1b[2Jb\n0 problems, 0 notes."]).env("MALLOC_\x1b[2JX", "\x1b[31m");
    let mut cat = cat.stdin(Stdio::piped()).spawn().unwrap();
    let ended = bench.run(&["doctor", "-p", &cat.id().to_string()]);
    cat.kill().and_then(|()| cat.wait()).unwrap();
    let said = ended.expect(0).stdout;
    assert!(!said.contains('\x1b') && !said.contains("\n0 problems, 0 notes."), "{said:?}");
    assert!(said.contains("cat - a\\u{1b}[2Jb\\n0 problems, 0 notes.\n"), "{said:?}");
    assert!(said.contains("  MALLOC_\\u{1b}[2JX ") && said.contains(" \\u{1b}[31m\n"), "{said:?}");
}

/// Which malloc a process has is not known to every user, nor by the order of its addresses.
#[test]
fn the_malloc_of_a_process_is_said_if_it_is_known() {
    let Some(bench) = Bench::new() else { return };
    let Some(ours) = libraries(&["libquarry-malloc.so"]) else { return };
    let ours = ours.join("libquarry-malloc.so").display().to_string();
    let sleeper =
        |preload: &str| Command::new("sleep").arg("600").env("LD_PRELOAD", preload).spawn().unwrap();
    let done = |mut sleeper: std::process::Child| sleeper.kill().and_then(|()| sleeper.wait()).unwrap();
    let loaded = |process: &std::process::Child| {
        let maps = format!("/proc/{}/maps", process.id());
        wait_until("its libraries are mapped", || {
            fs::read_to_string(&maps).unwrap().contains("libquarry-malloc")
        });
        process.id().to_string()
    };
    // By its name alone: it has what the stand-in has.
    let other = bench.library("libjemalloc", include_str!("common/fake_heap.c"));
    let process = sleeper(&format!("{}:{ours}", other.display()));
    let pid = loaded(&process);
    let (report, stats) = (bench.run(&["doctor", "--json", "-p", &pid]), bench.run(&["stats", "-p", &pid]));
    done(process);
    let report = report.json();
    assert_eq!(found(&report, "malloc")[0]["value"], "jemalloc", "{report:#}");
    stats.expect(1).says("jemalloc is loaded, too, and may serve in its place");
    // A path that leads there from where the process was started, and not from here.
    let mut command = Command::new("sleep");
    command.arg("600").env("LD_PRELOAD", "./libquarry-malloc.so");
    let process = command.current_dir(Path::new(&ours).parent().unwrap()).spawn().unwrap();
    let report = bench.run(&["doctor", "--json", "-p", &loaded(&process)]);
    done(process);
    assert_eq!(level(&report.json(), "LD_PRELOAD"), "ok");
    let process = sleeper(&ours);
    let tool = bench.quarry(["doctor", "--json", "-p", &loaded(&process)]);
    let mut as_nobody = Command::new("setpriv");
    as_nobody
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(tool.get_program())
        .args(tool.get_args());
    let ended = as_nobody.output();
    done(process);
    let Ok(ended) = ended.map(Ended::from) else { return eprintln!("skipped: needs setpriv") };
    if ended.stderr.contains("setpriv:") {
        return eprintln!("skipped: needs root");
    }
    let report = ended.json();
    let malloc = found(&report, "malloc")[0];
    assert!(malloc["value"].as_str().unwrap().starts_with("not known: "), "{malloc}");
    assert!(malloc["next"].as_str().unwrap().contains("run quarry as that user"), "{malloc}");
}

#[test]
fn programs_that_cannot_be_served() {
    let Some(bench) = Bench::new() else { return };
    let plain = bench.compile("plain", MAIN, &[]).unwrap();
    let report = doctor(&bench, &[], &["--json", text(&plain)]).expect(0).json();
    assert_eq!(level(&report, "preload"), "ok");
    let own = format!("#include <stddef.h>\nvoid *malloc(size_t n) {{ (void)n; return NULL; }}\n{MAIN}");
    let own = bench.compile("own", &own, &["-rdynamic", "-fno-builtin"]).unwrap();
    let ended = doctor(&bench, &[], &[text(&own)]).expect(1);
    assert!(
        ended.stdout.contains("problem") && ended.stdout.contains("exports its own malloc"),
        "{}",
        ended.stdout
    );
    if let Some(fixed) = bench.compile("fixed", MAIN, &["-static"]) {
        let report = doctor(&bench, &[], &["--json", text(&fixed)]).expect(1).json();
        let finding = found(&report, "preload")[0];
        assert!(finding["next"].as_str().unwrap().contains("libquarry-malloc.a"), "{finding}");
    }
    let other = bench.compile("other", MAIN, &["-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1"]).unwrap();
    let report = doctor(&bench, &[], &["--json", text(&other)]).expect(1).json();
    assert!(report.to_string().contains("another C library"), "{report:#}");
    // The bit alone changes nothing for the owner. Of a file of another owner it does, and only root can make one here.
    fs::set_permissions(&plain, fs::Permissions::from_mode(0o4755)).unwrap();
    let mine = doctor(&bench, &[], &["--json", text(&plain)]).expect(0).json();
    assert_eq!(level(&mine, "preload"), "ok");
    if std::os::unix::fs::chown(&plain, Some(65_534), None).is_ok() {
        fs::set_permissions(&plain, fs::Permissions::from_mode(0o4755)).unwrap();
        let report = doctor(&bench, &[], &["--json", text(&plain)]).expect(1).json();
        assert!(report.to_string().contains("set-ID"), "{report:#}");
    }
}

#[test]
fn what_is_not_there_has_its_own_codes() {
    let Some(bench) = Bench::new() else { return };
    bench.run(&["doctor", "no-such-command-here"]).expect(127).says("no such command");
    bench.run(&["doctor", "-p", "999999999"]).expect(1).says("999999999");
    bench.run(&["doctor", "-p", "1", "true"]).expect(2);
    let none = bench.path("none");
    let mut command = bench.quarry(["doctor", "--json"]);
    let report = Ended::from(command.env("QUARRY_LIB_DIR", &none).output().unwrap()).expect(1).json();
    assert_eq!(level(&report, "library"), "problem");
}
