// SPDX-License-Identifier: MIT
//! What the tool says about itself.

use std::fs;

use crate::common::{Bench, text};

#[test]
fn help_and_version_succeed() {
    let Some(bench) = Bench::new() else { return };
    let version = bench.run(&["--version"]).expect(0).stdout;
    assert_eq!(version, format!("quarry {}\n", env!("CARGO_PKG_VERSION")));
    for args in [&["--help"][..], &["-h"], &["run", "--help"], &["compare", "-h"], &["pools", "-h"]] {
        let help = bench.run(args).expect(0).stdout;
        assert!(help.contains("Examples:"), "{help}");
    }
}

#[test]
fn a_default_that_has_a_bound_says_it() {
    let Some(bench) = Bench::new() else { return };
    let help = bench.run(&["check", "--help"]).expect(0).stdout;
    let words: Vec<&str> = help.split_whitespace().collect();
    assert!(words.join(" ").contains("a quarter of what is live, 256 MiB at most]"), "{help}");
}

#[test]
fn completions_and_manual_pages_know_the_verbs() {
    let Some(bench) = Bench::new() else { return };
    for shell in ["bash", "zsh", "fish"] {
        assert!(bench.run(&["completions", shell]).expect(0).stdout.contains("compare"), "{shell}");
    }
    assert!(bench.run(&["man"]).expect(0).stdout.contains(".TH quarry 1"));
    let pages = bench.path("man");
    fs::create_dir(&pages).unwrap();
    bench.run(&["man", text(&pages)]).expect(0);
    for page in ["quarry.1", "quarry-run.1", "quarry-compare.1", "quarry-pools.1"] {
        assert!(pages.join(page).is_file(), "{page}");
    }
}

#[test]
fn every_option_is_documented() {
    let Some(bench) = Bench::new() else { return };
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference");
    for (verb, one) in [
        ("run", "--conf"),
        ("bench", "--floor"),
        ("bench suite", "--pin"),
        ("check", "--pinpoint"),
        ("compare", "--conf"),
        ("convert", "--rows"),
        ("doctor", "--lib"),
        ("explain", "--for"),
        ("gen", "--ms"),
        ("map", "--quadrant"),
        ("pools", "--series"),
        ("profile", "--waste"),
        ("stats", "--serve"),
        ("symbolize", "--symfs"),
        ("record", "--symbolize"),
        ("info", "--debug-dir"),
        ("top", "--frames"),
        ("tour", "--system"),
    ] {
        let words: Vec<&str> = verb.split(' ').chain(["--help"]).collect();
        let help = bench.run(&words).expect(0).stdout;
        // An option's own line: "  -n, --rounds <N>  ...".
        let lines = help.lines().map(str::trim).filter(|line| line.starts_with('-'));
        let options: Vec<&str> = lines
            .flat_map(|line| line.split([' ', ',', '[']).take(3))
            .filter(|word| word.starts_with("--"))
            .collect();
        assert!(options.contains(&one) && options.contains(&"--output"), "{options:?}");
        let name = format!("quarry-{}.md", verb.replace(' ', "-"));
        let pages =
            [&name[..], "README.md"].map(|name| fs::read_to_string(format!("{folder}/{name}")).unwrap());
        for option in options.into_iter().filter(|option| !["--help", "--version"].contains(option)) {
            assert!(
                pages.iter().any(|page| page.contains(option)),
                "docs/reference/{name} does not mention {option}"
            );
        }
    }
}
