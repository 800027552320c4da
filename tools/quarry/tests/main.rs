// SPDX-License-Identifier: MIT
//! The tool as users type it: one program, so that the tool's dependencies are linked once and one test's waiting is
//! another's time. Its tests are threads of one process: what a process has once (directory, signals, environment) is
//! for their children to change.

mod bench;
mod check;
mod check_formats;
mod check_guide;
mod check_real;
mod children;
mod ci_examples;
mod common;
mod compare;
mod convert;
mod doctor;
mod ends;
mod explain;
mod first_thread;
mod foreign;
mod formats;
mod generate;
mod guide;
mod help;
mod info;
mod inputs;
mod live;
mod map;
mod massif;
mod names;
mod pools;
mod predict;
mod profile;
mod profile_exports;
mod profile_foreign;
mod profile_page;
mod profiles;
mod record;
mod record_real;
mod replay;
mod rounding;
mod run;
mod running;
mod running_files;
mod sites;
mod stats;
mod suite;
mod top;

/// Cargo looks at this file only: one that is not named above would never be compiled.
#[test]
fn every_file_here_is_a_module() {
    let this = include_str!("main.rs");
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let rust = path.extension().is_some_and(|extension| extension == "rs");
        assert!(
            !rust || name == "main" || this.contains(&format!("\nmod {name};\n")),
            "mod {name}; is missing"
        );
    }
}

/// A crate that has no line there would be tested as users get it, where numbers wrap in silence.
#[test]
fn every_crate_is_tested_with_its_assertions() {
    let workspace = include_str!("../../Cargo.toml");
    let members = workspace.lines().find(|line| line.starts_with("members = ")).unwrap();
    let paths: Vec<&str> = members.split('"').skip(1).step_by(2).collect();
    let (_, profile) = workspace.split_once("\n[profile.bench.package]\n").unwrap();
    for name in paths.iter().map(|path| path.rsplit('/').next().unwrap()) {
        let line = profile.lines().find(|line| line.starts_with(&format!("{name} = "))).expect(name);
        assert!(line.contains("debug-assertions = true, overflow-checks = true"), "{line}");
    }
    assert!(paths.len() > 10 && cfg!(debug_assertions));
}
