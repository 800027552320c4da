// SPDX-License-Identifier: MIT
//! Names are what was true when the event happened, and how a process ended is what is said of it. Needs the libraries, as record_real.rs.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::{Bench, Ended, kill, libraries, text};
use serde_json::Value;

/// A folder with programs, and the recorder.
pub struct Stage {
    pub bench: Bench,
    pub libraries: PathBuf,
}

const LEAKS: &str = "#include <stdlib.h>
__attribute__((noinline)) static void *leaks(size_t n) { void *p = malloc(n); __asm__(\"\"); return p; }
int main(void) { for (int i = 0; i < 10; i++) leaks(5000); return 0; }
";

impl Stage {
    pub fn new() -> Option<Self> {
        let bench = Bench::new()?;
        let libraries = libraries(&["libquarry-record.so"])?;
        fs::create_dir(bench.path("w")).unwrap();
        Some(Self { bench, libraries: libraries.canonicalize().unwrap() })
    }

    /// A file in the folder.
    pub fn at(&self, name: &str) -> PathBuf {
        self.bench.path("w").join(name)
    }

    pub fn write(&self, name: &str, content: &str) -> PathBuf {
        fs::create_dir_all(self.at(name).parent().unwrap()).unwrap();
        fs::write(self.at(name), content).unwrap();
        self.at(name)
    }

    /// Compile in the folder.
    pub fn cc(&self, line: &str) {
        let words = line.split(' ').filter(|word| !word.is_empty());
        let done = Command::new("cc")
            .args(["-g", "-O1", "-fno-builtin"])
            .args(words)
            .current_dir(self.at(""))
            .output();
        let done = done.unwrap();
        assert!(done.status.success(), "cc {line}: {}", String::from_utf8_lossy(&done.stderr));
    }

    pub fn sh(&self, line: &str) -> String {
        let done = Command::new("sh").args(["-c", line]).current_dir(self.at("")).output().unwrap();
        assert!(done.status.success(), "{line}: {done:?}");
        String::from_utf8(done.stdout).unwrap()
    }

    pub fn quarry_in(&self, folder: &Path, args: &[&str]) -> Command {
        let mut command = self.bench.quarry(args);
        command.env("QUARRY_LIB_DIR", &self.libraries).current_dir(folder);
        command
    }

    pub fn run(&self, args: &[&str]) -> Ended {
        Ended::from(self.quarry_in(&self.at(""), args).output().unwrap())
    }

    pub fn record(&self, file: &str, line: &[&str]) -> Ended {
        self.run(&[&["record", "-q", "-g", "-o", file, "--"], line].concat())
    }

    pub fn info(&self, file: &str) -> Value {
        self.run(&["info", "-q", "--json", file]).expect(0).json()
    }

    /// The frames of the call site that allocated so many bytes in all, as far as wanted.
    pub fn site(info: &Value, bytes: u64, depth: usize) -> String {
        let sites = info["call_sites"].as_array().unwrap();
        let site = sites.iter().find(|site| site["bytes"] == bytes);
        let frames = site.map(|site| site["frames"].as_array().unwrap().iter().take(depth));
        frames.map_or_else(
            || format!("no site of {bytes} bytes in {sites:#?}"),
            |frames| frames.map(|frame| frame.as_str().unwrap()).collect::<Vec<_>>().join(" < "),
        )
    }
}

/// Two plugins, of which the second comes to where the first was, and a host that knows some ways of using them.
pub fn plugins(stage: &Stage) {
    for (name, bytes) in [("alpha", 100_000), ("beta", 50)] {
        let source = format!(
            "#include <stdlib.h>
            __attribute__((noinline)) static void *{name}_internal(size_t n) {{ void *p = malloc(n); __asm__(\"\"); return p; }}
            void *make(void) {{ void *p = {name}_internal({bytes}); __asm__(\"\"); return p; }}\n"
        );
        stage.write(&format!("{name}.c"), &source);
        stage.cc(&format!("-fPIC -shared {name}.c -o lib{name}.so"));
    }
    stage.write(
        "host.c",
        r#"
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <pthread.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <string.h>
        #include <sys/mman.h>
        static void *use(void *name) {
            char path[64];
            snprintf(path, sizeof path, "./lib%s.so", (char *)name);
            void *h = dlopen(path, RTLD_NOW);
            void *(*make)(void) = (void *(*)(void))dlsym(h, "make");
            fprintf(stderr, "%p\n", (void *)make);
            make();
            make();
            dlclose(h);
            return 0;
        }
        static void churn(void) { for (int i = 0; i < 3000; i++) free(malloc(20 + i % 300)); }
        int main(int argc, char **argv) {
            for (int i = 1; i < argc; i++) {
                if (!strcmp(argv[i], "churn")) churn();
                else if (!strncmp(argv[i], "thread-", 7)) {
                    pthread_t t;
                    pthread_create(&t, 0, use, argv[i] + 7);
                    pthread_join(t, 0);
                } else use(argv[i]);
            }
            return 0;
        }"#,
    );
    stage.cc("host.c -o host -ldl -lpthread");
}

#[test]
fn plugins_that_are_closed_keep_their_names() {
    let Some(stage) = Stage::new() else { return };
    plugins(&stage);
    let orders: [(&[&str], u64); 5] = [
        (&["alpha"], 1),
        (&["alpha", "churn", "churn"], 1),
        (&["alpha", "beta", "alpha", "beta", "alpha", "beta"], 3),
        (&["alpha", "churn", "beta", "churn", "alpha", "churn", "beta"], 2),
        (&["thread-alpha", "thread-beta", "alpha", "thread-beta", "thread-alpha"], 3),
    ];
    for (order, alphas) in orders {
        for how in ["cfi", "fp"] {
            let line = [&["record", "-q", "--stacks", how, "-o", "a.qtr", "--", "./host"], order].concat();
            let places = stage.run(&line).expect(0).stderr;
            let info = stage.info("a.qtr");
            let alpha = Stage::site(&info, alphas * 200_000, 1);
            let betas = order.iter().filter(|word| word.ends_with("beta")).count() as u64;
            let at = places.lines().collect::<std::collections::BTreeSet<_>>();
            // By frame pointers the innermost function has none of its own.
            let names = |name: &str| {
                if how == "cfi" { format!("{name}_internal at {name}.c:2") } else { name.to_owned() }
            };
            assert!(alpha.contains(&names("alpha")), "{order:?} {how}: {alpha}, at {at:?}");
            if betas > 0 {
                let beta = Stage::site(&info, betas * 100, 1);
                assert!(beta.contains(&names("beta")), "{order:?} {how}: {beta}, at {at:?}");
            }
        }
    }
}

#[test]
fn a_plugin_that_was_built_anew_while_the_program_ran() {
    let Some(stage) = Stage::new() else { return };
    plugins(&stage);
    // The same path with other contents, as hot reloading has it; by a move, so that what is mapped stays.
    stage.write(
        "reload.c",
        r#"
        #include <dlfcn.h>
        #include <stdlib.h>
        static void use(void) { void *h = dlopen("./plugin.so", RTLD_NOW); ((void *(*)(void))dlsym(h, "make"))(); dlclose(h); }
        int main(void) { use(); if (system("cp -p libbeta.so new.so && mv new.so plugin.so")) return 1; use(); return 0; }"#,
    );
    stage.cc("reload.c -o reload -ldl");
    stage.sh("cp -p libalpha.so plugin.so");
    stage.record("a.qtr", &["./reload"]).expect(0);
    let info = stage.info("a.qtr");
    assert_eq!(Stage::site(&info, 50, 1), "beta_internal at beta.c:2");
    assert!(Stage::site(&info, 100_000, 1).starts_with("plugin.so+0x"), "{}", info["call_sites"]);
    let missing = info["without_symbols"].to_string();
    assert!(missing.contains("plugin.so: other file: build id"), "{missing}");
    // It is somewhere still.
    stage.sh("mkdir -p old && cp -p libalpha.so old/plugin.so");
    let info = stage.run(&["info", "-q", "--json", "--symfs", "old", "a.qtr"]).expect(0).json();
    assert_eq!(Stage::site(&info, 100_000, 1), "alpha_internal at alpha.c:2");
    assert_eq!(Stage::site(&info, 50, 1), "beta_internal at beta.c:2");
}

#[test]
fn libraries_of_relative_paths() {
    let Some(stage) = Stage::new() else { return };
    stage.write(
        "lib/a.c",
        "#include <stdlib.h>\nvoid *make(void) { void *p = malloc(100000); __asm__(\"\"); return p; }\n",
    );
    stage.write("m.c", "void *make(void);\nint main(void) { make(); return 0; }\n");
    stage.write(
        "d.c",
        "#include <dlfcn.h>\n#include <unistd.h>\nint main(void) { if (chdir(\"lib\")) return 1; void *h = dlopen(\"./liba.so\", RTLD_NOW);
        if (chdir(\"/\")) return 1; ((void *(*)(void))dlsym(h, \"make\"))(); return 0; }\n",
    );
    for build_id in ["-Wl,--build-id", "-Wl,--build-id=none"] {
        stage.cc(&format!("-fPIC -shared {build_id} lib/a.c -o lib/liba.so"));
        stage.cc("m.c -o rpath -Llib -la -Wl,-rpath,lib");
        stage.cc("m.c -o plain -Llib -la");
        stage.cc("d.c -o opened -ldl");
        stage.record("1.qtr", &["./rpath"]).expect(0);
        stage.record("2.qtr", &["env", "LD_LIBRARY_PATH=lib", "./plain"]).expect(0);
        stage.record("3.qtr", &["./opened"]).expect(0);
        // Where another file of that name is.
        stage.write(
            "other/lib/b.c",
            "#include <stdlib.h>\nvoid *other(void) { void *p = malloc(7); __asm__(\"\"); return p; }\n",
        );
        stage.cc(&format!("-fPIC -shared {build_id} other/lib/b.c -o other/lib/liba.so"));
        for file in ["1.qtr", "2.qtr.2", "3.qtr"] {
            for folder in ["", "other", "/"] {
                let (folder, trace) = (stage.at(folder), stage.at(file));
                let mut info = stage.quarry_in(&folder, &["info", "-q", "--json", text(&trace)]);
                let info = Ended::from(info.output().unwrap()).expect(0).json();
                assert_eq!(Stage::site(&info, 100_000, 1), "make at a.c:2", "{file} in {}", folder.display());
            }
        }
    }
}

#[test]
fn no_name_comes_from_another_file() {
    let Some(stage) = Stage::new() else { return };
    stage.write("a.c", LEAKS);
    // Another program, one of the same length, one with the same segments, and one of another kind.
    let others = [
        "int pad(int x) { int s = 0; for (int i = 0; i < x; i++) s += i * x; return s; }\n".to_owned()
            + &LEAKS.replace("leaks", "innocent"),
        LEAKS.replace("leaks", "lacks"),
        LEAKS.replace("leaks", "innocent"),
        "int main(void) { return 0; }".to_owned(),
    ];
    for build_id in ["-Wl,--build-id", "-Wl,--build-id=none"] {
        for (number, other) in others.iter().enumerate() {
            stage.cc(&format!("{build_id} a.c -o p"));
            stage.record("p.qtr", &["./p"]).expect(0);
            assert_eq!(Stage::site(&stage.info("p.qtr"), 50_000, 2), "leaks at a.c:2 < main at a.c:3");
            stage.sh("cp -p p kept");
            stage.write("b.c", other);
            stage.cc(&format!("{build_id} b.c -o p"));
            let info = stage.info("p.qtr");
            assert!(
                Stage::site(&info, 50_000, 1).starts_with("p+0x"),
                "{build_id} {number}: {}",
                info["call_sites"]
            );
            let missing = info["without_symbols"].to_string();
            assert!(missing.contains("/p: other file: "), "{build_id} {number}: {missing}");
            let said = stage.run(&["info", "-q", "p.qtr"]).expect(0).stdout;
            assert!(said.contains("Files without names") && said.contains("other file: "), "{said}");
            // The one that it was, under another name in another folder, and back in its place.
            stage.sh("mkdir -p image && cp -p kept image/p && rm p");
            let info = stage.run(&["info", "-q", "--json", "--symfs", "image", "p.qtr"]).expect(0).json();
            assert_eq!(Stage::site(&info, 50_000, 1), "leaks at a.c:2");
            assert!(stage.info("p.qtr")["without_symbols"].to_string().contains("/p: not found"));
            stage.sh("cp -p kept p");
            assert_eq!(Stage::site(&stage.info("p.qtr"), 50_000, 1), "leaks at a.c:2");
        }
    }
    // A link that leads elsewhere by now.
    stage.cc("a.c -o p");
    stage.sh("mkdir -p one two && cp -p p one/q && cp /bin/true two/q");
    symlink("one", stage.at("now")).unwrap();
    stage.record("l.qtr", &["now/q"]).expect(0);
    stage.sh("ln -sfn two now");
    assert_eq!(Stage::site(&stage.info("l.qtr"), 50_000, 1), "leaks at a.c:2");
}

#[test]
fn programs_that_the_dynamic_linker_runs() {
    let Some(stage) = Stage::new() else { return };
    stage.write("a.c", LEAKS);
    stage.cc("a.c -o p");
    let linker = stage.sh("readelf -l p | sed -n 's/.*interpreter: \\(.*\\)]/\\1/p'").trim().to_owned();
    let wrapper = stage.write("wrapper", &format!("#!/bin/sh\nexec {linker} ./p\n"));
    stage.sh("chmod +x wrapper");
    let program = stage.at("p").canonicalize().unwrap();
    let lines: [(&[&str], &str); 4] = [
        (&[&linker, "./p"], "r.qtr"),
        (&[&linker, "--argv0", "x", "--library-path", "/nowhere", "./p"], "r.qtr"),
        (&["env", &linker, "./p"], "r.qtr.2"),
        (&[text(&wrapper)], "r.qtr.2"),
    ];
    for (line, file) in lines {
        let ended = stage.run(&[&["record", "-g", "-o", "r.qtr", "--"], line].concat()).expect(0);
        assert!(!ended.stderr.contains("static"), "{line:?}: {}", ended.stderr);
        let info = stage.info(file);
        assert_eq!(Stage::site(&info, 50_000, 1), "leaks at a.c:2", "{line:?}");
        assert_eq!(
            (&info["trace"]["head"]["program"], &info["without_symbols"]),
            (&text(&program).into(), &Value::Array(vec![]))
        );
    }
    let ended = stage.run(&["run", "--stats", "--", &linker, "./p"]).expect(0);
    assert!(!ended.stderr.contains("static") && !ended.stderr.contains("no statistics"), "{}", ended.stderr);
    // What it is given is looked at as if it ran by itself.
    stage.cc("-static a.c -o fixed");
    stage.run(&["record", "--", &linker, "./fixed"]).expect(125).says("fixed is statically linked");
}

#[test]
fn a_trace_is_read_where_the_program_is_not() {
    let Some(stage) = Stage::new() else { return };
    plugins(&stage);
    stage.record("a.qtr", &["./host", "alpha", "beta", "alpha"]).expect(0);
    stage
        .run(&["record", "-q", "-g", "--symbolize", "-o", "b.qtr", "--", "./host", "beta", "alpha"])
        .expect(0);
    let frames = |info: &Value| -> Vec<(u64, Value)> {
        let sites = info["call_sites"].as_array().unwrap();
        sites.iter().map(|site| (site["bytes"].as_u64().unwrap(), site["frames"].clone())).collect()
    };
    let (before, before_b) = (frames(&stage.info("a.qtr")), frames(&stage.info("b.qtr")));
    stage.run(&["symbolize", "-q", "-o", "named.qtr", "a.qtr"]).expect(0);
    assert_eq!(frames(&stage.info("named.qtr")), before);
    let found = stage.run(&["symbolize", "-q", "--json", "-o", "json.qtr", "a.qtr"]).expect(0).json();
    assert_eq!((&found["schema"], &found["output"]), (&"quarry-symbolize/1".into(), &"json.qtr".into()));
    let (all, named) = (found["frames"].as_u64().unwrap(), found["named"].as_u64().unwrap());
    assert!(named > 3 && named <= all, "{found}");
    assert!(found["used"].as_array().unwrap().iter().any(|file| file.as_str().unwrap().ends_with("/w/host")));
    assert_eq!(fs::read(stage.at("json.qtr")).unwrap(), fs::read(stage.at("named.qtr")).unwrap());
    // Where the trace goes to standard output, the report does not.
    let words = ["symbolize", "-q", "--json", "-o", "-", "a.qtr"];
    let ended = stage.quarry_in(&stage.at(""), &words).output().unwrap();
    let report: Value = serde_json::from_slice(&ended.stderr).unwrap();
    assert!(ended.status.success() && ended.stdout.starts_with(b"QTRB") && report["named"] == found["named"]);
    // In place, and again: nothing is there twice.
    stage.run(&["symbolize", "a.qtr"]).expect(0).says(" frame");
    let bytes = fs::read(stage.at("a.qtr")).unwrap();
    stage.run(&["symbolize", "-q", "a.qtr"]).expect(0);
    assert_eq!(fs::read(stage.at("a.qtr")).unwrap().len(), bytes.len());
    // Through another format of ours.
    stage.run(&["convert", "-q", "a.qtr", "-o", "packed.qtr"]).expect(0);
    // Without the program, its libraries, and all else.
    stage.sh("mkdir gone && mv host lib*.so gone");
    let files = ["a.qtr", "named.qtr", "packed.qtr", "b.qtr"];
    for file in files {
        let expected = if file == "b.qtr" { &before_b } else { &before };
        let info = stage.info(file);
        // Of the C library's own frames nothing is asked here: it is installed.
        assert_eq!(&frames(&info), expected, "{file}");
    }
    chroot(&stage, &files, &before, &before_b);
    // What has a name keeps it, also where there is nothing to look in.
    stage.run(&["symbolize", "-q", "a.qtr"]).expect(0);
    assert_eq!(frames(&stage.info("a.qtr")), before);
    // Damaged names are left out, and no more.
    let at = bytes.windows(5).position(|window| window == b"QTRB\x04").unwrap();
    let mut damaged = bytes.clone();
    damaged[at + 100] ^= 0xff;
    fs::write(stage.at("damaged.qtr"), damaged).unwrap();
    assert_eq!(stage.info("damaged.qtr")["events"], stage.info("a.qtr")["events"]);
}

/// An empty root with the tool and what it needs. Only a user who may does that.
fn chroot(stage: &Stage, files: &[&str], before: &[(u64, Value)], before_b: &[(u64, Value)]) {
    let (root, tool) = (stage.at("root"), env!("CARGO_BIN_EXE_quarry"));
    let needs = stage.sh(&format!("ldd {tool} | grep -o '/[^ ]*'"));
    for file in needs.lines().chain([tool]) {
        let to = root.join(file.trim_start_matches('/'));
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(file, to).unwrap();
    }
    for file in files {
        fs::copy(stage.at(file), root.join(file)).unwrap();
        let done = Command::new("chroot")
            .arg(&root)
            .args([tool, "info", "-q", "--json", &format!("/{file}")])
            .output();
        let Some(done) = done.ok().filter(|done| done.status.success()) else {
            return eprintln!("skipped: needs root, for chroot");
        };
        let info: Value = serde_json::from_slice(&done.stdout).unwrap();
        let sites = info["call_sites"].as_array().unwrap();
        let found: Vec<_> =
            sites.iter().map(|s| (s["bytes"].as_u64().unwrap(), s["frames"].clone())).collect();
        assert_eq!(found, if *file == "b.qtr" { before_b } else { before }, "{file}");
        assert_eq!(info["without_symbols"], Value::Array(vec![]), "{file}");
    }
}

#[test]
fn code_that_is_made_at_run_time() {
    let Some(stage) = Stage::new() else { return };
    if !cfg!(target_arch = "x86_64") {
        return eprintln!("skipped: needs x86-64: the program makes code");
    }
    stage.write(
        "jit.c",
        r#"
        #include <stdio.h>
        #include <stdlib.h>
        #include <string.h>
        #include <sys/mman.h>
        #include <unistd.h>
        int main(int argc, char **argv) {
            /* push rbp; mov rbp, rsp; call rdi -> void *(*)(size_t) with rsi as its argument; pop rbp; ret */
            static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0xff, 0xd0, 0x5d, 0xc3};
            char *at = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            memcpy(at, code, sizeof code);
            memcpy(at + 64, code, sizeof code);
            char path[64];
            snprintf(path, sizeof path, "/tmp/perf-%d.map", (int)getpid());
            FILE *f = fopen(path, "w");
            fprintf(f, "%lx %zx made_first\n%lx %zx made second\n", (long)at, sizeof code, (long)at + 64, sizeof code);
            fclose(f);
            for (int i = 0; i < 2; i++) ((void *(*)(void *(*)(size_t), size_t))(at + 64 * i))(malloc, 70000 + i);
            if (argc > 1) remove(argv[1]);
            return 0;
        }"#,
    );
    stage.cc("-fno-omit-frame-pointer jit.c -o jit");
    stage.run(&["record", "-q", "-g", "-o", "%p.qtr", "--", "./jit"]).expect(0);
    let trace = stage.sh("ls *.qtr").trim().to_owned();
    let map = format!("/tmp/perf-{}.map", trace.trim_end_matches(".qtr"));
    fs::remove_file(map).unwrap();
    let info = stage.info(&trace);
    let begins = |bytes, names: &str| {
        let site = Stage::site(&info, bytes, 2);
        assert!(site.starts_with(names), "{site}");
    };
    begins(70_000, "made_first < main at jit.c:");
    begins(70_001, "made second < main at jit.c:");
}

#[test]
fn each_end_is_told_apart() {
    let Some(stage) = Stage::new() else { return };
    stage.write(
        "ends.c",
        r#"
        #define _GNU_SOURCE
        #include <pthread.h>
        #include <signal.h>
        #include <stdlib.h>
        #include <string.h>
        #include <sys/syscall.h>
        #include <unistd.h>
        static void *goes(void *arg) { free(malloc(11)); syscall(SYS_exit, 0); return arg; }
        static void *ends(void *arg) { free(malloc(12)); return arg; }
        static _Atomic int stayed;
        static void *stays(void *arg) { free(malloc(13)); stayed = 1; for (;;) pause(); return arg; }
        static void handler(int s) { _exit(s); }
        int main(int argc, char **argv) {
            const char *how = argc > 1 ? argv[1] : "";
            pthread_t t;
            for (int i = 0; i < 100; i++) *(char *volatile)malloc(1000 + i) = 1;
            if (!strncmp(how, "threads", 7)) {
                pthread_create(&t, 0, goes, 0), pthread_join(t, 0);
                pthread_create(&t, 0, ends, 0), pthread_join(t, 0);
                pthread_create(&t, 0, stays, 0);
                while (!stayed) usleep(1000);
            }
            if (!strcmp(how, "threads and kill")) kill(getpid(), SIGKILL);
            if (!strcmp(how, "_exit")) _exit(0);
            if (!strcmp(how, "_Exit")) _Exit(7);
            if (!strcmp(how, "quick_exit")) quick_exit(5);
            if (!strcmp(how, "group")) syscall(SYS_exit_group, 6);
            if (!strcmp(how, "abort")) abort();
            if (!strcmp(how, "null")) *(volatile int *)0 = 1;
            if (!strcmp(how, "kill")) kill(getpid(), SIGKILL);
            if (!strcmp(how, "term")) kill(getpid(), SIGTERM);
            if (!strcmp(how, "handled")) signal(SIGSEGV, handler), raise(SIGSEGV);
            if (!strcmp(how, "exec")) execl("/bin/true", "true", (char *)0);
            if (!strcmp(how, "vfork") && !vfork()) _exit(3);
            if (!strcmp(how, "wait")) for (;;) pause();
            return 0;
        }"#,
    );
    stage.cc("-w ends.c -o ends -lpthread");
    let cases: [(&str, i32, &str, Value, Value, &str, i32); 12] = [
        ("return", 0, "exit", Value::Null, 0.into(), "exit, status 0", 0),
        ("_exit", 0, "_exit", Value::Null, 0.into(), "_exit, status 0", 0),
        ("_Exit", 7, "_exit", Value::Null, 7.into(), "_exit, status 7", 0),
        ("quick_exit", 5, "quick_exit", Value::Null, 5.into(), "quick_exit, status 5", 0),
        ("group", 6, "_exit", Value::Null, Value::Null, "_exit, status 6", 0),
        ("handled", 11, "_exit", Value::Null, 11.into(), "_exit, status 11", 0),
        ("abort", 134, "crash", 6.into(), Value::Null, "crash: SIGABRT", 1),
        ("null", 139, "crash", 11.into(), Value::Null, "crash: SIGSEGV", 1),
        ("kill", 137, "killed", 9.into(), Value::Null, "killed: SIGKILL", 1),
        ("term", 143, "killed", 15.into(), Value::Null, "killed: SIGTERM", 1),
        ("exec", 0, "exec", Value::Null, Value::Null, "exec", 0),
        ("vfork", 0, "exit", Value::Null, 0.into(), "exit, status 0", 0),
    ];
    for (how, code, reason, signal, status, said, strict) in cases {
        stage.run(&["record", "-q", "-o", "e.qtr", "--", "./ends", how]).expect(code);
        let info = stage.info("e.qtr");
        let end = &info["trace"]["end"];
        assert_eq!((&end["reason"], &end["signal"]), (&reason.into(), &signal), "{how}: {end}");
        assert_eq!(info["process"]["exit_status"], status, "{how}");
        assert!(info["allocations"]["count"].as_u64().unwrap() >= 100, "{how}");
        let text = stage.run(&["info", "-q", "e.qtr"]).expect(0).stdout;
        let line = text.lines().find(|line| line.trim_start().starts_with("end ")).unwrap();
        assert_eq!(line.trim_start().trim_start_matches("end").trim(), said, "{how}");
        stage.run(&["info", "-q", "--strict", "e.qtr"]).expect(strict);
    }
    let ends = |how: &str, code: i32| -> Vec<Value> {
        stage.run(&["record", "-q", "-o", "t.qtr", "--", "./ends", how]).expect(code);
        let info = stage.info("t.qtr");
        let threads = info["threads"].as_array().unwrap().iter().filter(|thread| thread["allocations"] != 0);
        threads.map(|thread| thread["end"].clone()).collect()
    };
    assert_eq!(ends("threads", 0), ["lives", "gone", "ended", "lives"]);
    // Nobody looked who was there.
    assert_eq!(ends("threads and kill", 137), [Value::Null, Value::Null, "ended".into(), Value::Null]);
    while_it_goes_on(&stage);
}

/// A program that waits, is stopped, and is killed without a recording parent.
fn while_it_goes_on(stage: &Stage) {
    let variable = format!("file:{}", stage.at("w.qtr").display());
    let mut child = Command::new(stage.at("ends"))
        .arg("wait")
        .env("LD_PRELOAD", stage.libraries.join("libquarry-record.so"))
        .env("QUARRY_RECORD", variable)
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let state = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
    };
    let wait_for = |wanted: char| {
        while state() != wanted {
            std::thread::yield_now();
        }
    };
    while !stage.at("w.qtr").exists() {
        std::thread::yield_now();
    }
    wait_for('S');
    assert_eq!(stage.info("w.qtr")["trace"]["process_now"], "running");
    stage.run(&["info", "w.qtr"]).expect(0).says("is still running");
    stage.run(&["symbolize", "w.qtr"]).expect(1).says("is still running");
    kill("STOP", child.id());
    wait_for('T');
    assert_eq!(stage.info("w.qtr")["trace"]["process_now"], "stopped");
    stage.run(&["info", "w.qtr"]).expect(0).says("is stopped by a signal");
    kill("KILL", child.id());
    child.wait().unwrap();
    let info = stage.info("w.qtr");
    assert_eq!((&info["trace"]["process_now"], &info["trace"]["end"]), (&Value::Null, &Value::Null));
    stage.run(&["info", "--strict", "w.qtr"]).expect(1).says("was killed, or is still running elsewhere");
}
