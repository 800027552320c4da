// SPDX-License-Identifier: MIT
//! quarry doctor: what it finds on real programs, processes and variables. What it makes of settings is tested beside its code.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::common::{Bench, Ended, text};

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
