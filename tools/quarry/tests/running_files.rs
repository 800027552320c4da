// SPDX-License-Identifier: MIT
//! quarry profile -p: names come from the files that the process has mapped, and from no other.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::common::{Bench, libraries};
use crate::running::{Running, preloaded};

const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/prctl.h>
static void *volatile sink;
__attribute__((noinline, noclone)) void NAME(void) { for (int i = 0; i < 5000; i++) { sink = malloc(100); free(sink); } }
int main(void) {
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    free(sink = malloc(1 << 20));  // enough for a statistics page
    for (int turn = 0; getppid() != 1; turn++) {
        NAME();
        if (turn == 10) { puts("ready"); fflush(stdout); }
        if (turn >= 10) { usleep(1000); }
    }
    return 0;
}
"#;

/// It loads the two plugins that are named, one after the other, and tells when it has had both.
const HOST: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/prctl.h>
int main(int argc, char **argv) {
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    void *volatile large = malloc(1 << 20);  // enough for a statistics page
    free(large);
    for (int turn = 0; getppid() != 1; turn++) {
        void *plugin = dlopen(argv[1 + turn % (argc - 1)], RTLD_NOW);
        void *(*make)(int) = (void *(*)(int))dlsym(plugin, "make");
        for (int i = 0; i < 60; i++) {
            for (int j = 0; j < 300; j++) { free(make(2000)); }
            usleep(5000);
        }
        dlclose(plugin);
        if (turn == 1) { puts("ready"); fflush(stdout); }
    }
}
"#;

const PLUGIN: &str = r#"
#include <stdlib.h>
__attribute__((noinline, noclone)) static void *NAME(int n) { void *volatile p = malloc(n); return p; }
void *make(int n) { void *volatile p = NAME(n); return p; }
"#;

fn library() -> Option<PathBuf> {
    Some(libraries(&["libquarry-malloc.so"])?.join("libquarry-malloc.so"))
}

fn compiled(bench: &Bench, name: &str, flags: &[&str]) -> PathBuf {
    let define = format!("-DNAME={name}");
    let flags = [&["-g", "-O1", "-fno-builtin", &define], flags].concat();
    bench.compile(name, PROGRAM, &flags).expect("a program")
}

fn profile(bench: &Bench, process: &Running, span: &str) -> Value {
    let args = ["profile", "-p", &process.pid(), "--for", span, "--sample", "16k", "--json", "-q"];
    bench.run(&args).expect(0).json()
}

fn sites(profile: &Value) -> Vec<&str> {
    profile["groups"].as_array().unwrap().iter().filter_map(|group| group["name"].as_str()).collect()
}

#[test]
fn a_file_that_was_replaced_gives_no_names() {
    let Some(bench) = Bench::new() else { return };
    let Some(library) = library() else { return };
    for flags in [&[][..], &["-Wl,--build-id=none"]] {
        let (old, new) = (compiled(&bench, "before", flags), compiled(&bench, "behind", flags));
        let program = bench.path("upgraded");
        fs::copy(&old, &program).unwrap();
        let process = preloaded(&program, &library);
        assert!(sites(&profile(&bench, &process, "0.5")).iter().any(|site| site.starts_with("before at")));
        fs::rename(new, &program).unwrap();
        let json = profile(&bench, &process, "0.5");
        let sites = sites(&json);
        assert!(sites.iter().any(|site| site.starts_with("upgraded+0x")), "{sites:?}");
        assert!(!sites.iter().any(|site| site.contains("behind")), "{sites:?}");
        let missing = json["without_symbols"].to_string();
        assert!(missing.contains("upgraded: other file: "), "{missing}");
    }
}

#[test]
fn odd_paths_give_names() {
    let Some(bench) = Bench::new() else { return };
    let Some(library) = library() else { return };
    let program = compiled(&bench, "odd", &[]);
    for name in [&b"o\nd"[..], b"o\\012d", b"o\xffd", b"o\x1bd", b"o d (deleted)"] {
        let odd = Path::new(&bench.path("")).join(OsStr::from_bytes(name));
        fs::copy(&program, &odd).unwrap();
        let json = profile(&bench, &preloaded(&odd, &library), "0.5");
        assert!(sites(&json).iter().any(|site| site.starts_with("odd at odd.c:")), "{name:?}: {json:#}");
    }
}

#[test]
fn two_plugins_at_one_address_have_no_names() {
    let Some(bench) = Bench::new() else { return };
    let Some(library) = library() else { return };
    let host = bench.compile("host", HOST, &["-g", "-O1", "-ldl"]).expect("a program");
    let plugin = |name: &str| {
        let define = format!("-DNAME={name}");
        let flags = ["-g", "-O1", "-fno-builtin", "-fPIC", "-shared", &define];
        bench.compile(name, PLUGIN, &flags).expect("a plugin")
    };
    let (alpha, omega) = (plugin("alpha"), plugin("omega"));
    let host = |plugins: &[&PathBuf]| {
        let mut command = Command::new(&host);
        Running::start(command.args(plugins).env("LD_PRELOAD", &library))
    };
    // One that comes again where it was is the same.
    let json = profile(&bench, &host(&[&alpha, &alpha]), "1.5");
    assert!(sites(&json).iter().any(|site| site.starts_with("alpha at alpha.c:")), "{json:#}");
    let json = profile(&bench, &host(&[&alpha, &omega]), "1.5");
    let sites = sites(&json);
    let named = |name: &str| sites.iter().filter(|site| site.starts_with(name)).count();
    // Files of one size are put at one address. Else each has its own name.
    match named("0x") {
        0 => assert!(named("alpha at") > 0 && named("omega at") > 0, "{sites:?}"),
        _ => assert_eq!(named("alpha at") + named("omega at"), 0, "{sites:?}"),
    }
}
