// SPDX-License-Identifier: MIT
//! How children ended that were recorded, too, and libraries that come while others go. Needs the libraries, as record_real.rs.

use std::fs;
use std::process::Stdio;

use serde_json::Value;

use crate::common::{Ended, kill};
use crate::names::{Stage, plugins};

const ENDS: &str = r#"
    #include <signal.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/syscall.h>
    #include <unistd.h>
    int main(int argc, char **argv) {
        const char *how = argc > 1 ? argv[1] : "";
        for (int i = 0; i < 100; i++) *(char *volatile)malloc(1000 + i) = 1;
        if (!strcmp(how, "kill")) kill(getpid(), SIGKILL);
        if (!strcmp(how, "term")) kill(getpid(), SIGTERM);
        if (!strcmp(how, "null")) *(volatile int *)0 = 1;
        if (!strcmp(how, "abort")) abort();
        if (!strcmp(how, "group")) syscall(SYS_exit_group, 6);
        return 3;
    }"#;

/// Waits for children in each way that there is.
const PARENT: &str = r#"
    #define _GNU_SOURCE
    #include <spawn.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/resource.h>
    #include <sys/wait.h>
    #include <unistd.h>
    #include <signal.h>
    extern char **environ;
    static void on_child(int s) { int status; (void)s; while (waitpid(-1, &status, WNOHANG) > 0) {} }
    int main(int argc, char **argv) {
        for (int i = 1; i + 1 < argc; i += 2) {
            const char *way = argv[i];
            char line[64];
            snprintf(line, sizeof line, "%s./ends %s", strncmp(way, "exec", 4) ? "" : "exec ", argv[i + 1]);
            if (!strcmp(way, "system") || !strcmp(way, "exec-system")) { system(line); continue; }
            if (!strcmp(way, "popen") || !strcmp(way, "exec-popen")) { pclose(popen(line, "r")); continue; }
            char *child[] = {"./ends", argv[i + 1], 0};
            int status;
            struct rusage usage;
            siginfo_t info;
            pid_t pid = 0;
            sigset_t mask, before;
            sigemptyset(&mask);
            sigaddset(&mask, SIGCHLD);
            if (!strcmp(way, "handler")) signal(SIGCHLD, on_child), sigprocmask(SIG_BLOCK, &mask, &before);
            if (!strcmp(way, "spawn")) posix_spawn(&pid, child[0], 0, 0, child, environ);
            else if (!strcmp(way, "vfork")) { if (!(pid = vfork())) { execv(child[0], child); _exit(1); } }
            else if (!(pid = fork())) { sigprocmask(SIG_UNBLOCK, &mask, 0); execv(child[0], child); _exit(1); }
            if (!strcmp(way, "wait")) wait(&status);
            else if (!strcmp(way, "null")) wait(0);
            else if (!strcmp(way, "wait3")) wait3(&status, 0, &usage);
            else if (!strcmp(way, "wait4")) wait4(pid, 0, 0, 0);
            else if (!strcmp(way, "waitid")) waitid(P_PID, (id_t)pid, &info, WEXITED);
            else if (!strcmp(way, "handler")) { sigsuspend(&before); signal(SIGCHLD, SIG_DFL); sigprocmask(SIG_SETMASK, &before, 0); }
            else waitpid(pid, &status, 0);
        }
        return 0;
    }"#;

/// The ends of all traces in the folder, without those of the programs that started others.
fn ends(stage: &Stage) -> Vec<(String, Value, Value)> {
    let mut ends = Vec::new();
    for entry in fs::read_dir(stage.at("t")).unwrap() {
        let path = entry.unwrap().path();
        let head = stage.run(&["info", "-q", "--json", path.to_str().unwrap()]).expect(0).json();
        let program = head["trace"]["head"]["program"].as_str().unwrap().to_owned();
        if !program.ends_with("/ends") {
            continue;
        }
        let command = head["trace"]["head"]["command"].as_array().unwrap();
        let (how, end) = (command.last().unwrap().as_str().unwrap(), &head["trace"]["end"]);
        ends.push((how.to_owned(), end["reason"].clone(), end["signal"].clone()));
    }
    ends.sort_by(|a, b| a.0.cmp(&b.0));
    ends
}

#[test]
fn children_have_the_reason_of_their_end() {
    let Some(stage) = Stage::new() else { return };
    stage.write("ends.c", ENDS);
    stage.write("parent.c", PARENT);
    stage.cc("-w ends.c -o ends");
    stage.cc("-w parent.c -o parent");
    let expected: Vec<(String, Value, Value)> = [
        ("abort", "crash", 6.into()),
        ("group", "_exit", Value::Null),
        ("kill", "killed", 9.into()),
        ("null", "crash", 11.into()),
        ("return", "exit", Value::Null),
        ("term", "killed", 15.into()),
    ]
    .into_iter()
    .map(|(how, reason, signal): (_, _, Value)| (String::from(how), Value::from(reason), signal))
    .collect();
    let each = |way: &str| -> Vec<String> {
        let words = expected.iter().flat_map(|(how, ..)| [way.to_owned(), how.clone()]);
        ["./parent".to_owned()].into_iter().chain(words).collect()
    };
    let mut lines: Vec<Vec<String>> =
        ["wait", "null", "waitpid", "wait3", "wait4", "waitid", "spawn", "vfork", "handler"]
            .map(each)
            .to_vec();
    lines.extend(["system", "exec-system", "popen", "exec-popen"].map(each));
    let hows = expected.iter().map(|(how, ..)| format!("./ends {how}")).collect::<Vec<_>>().join("; ");
    // A shell, and a shell below a shell.
    let shell = |script: String| vec!["sh".to_owned(), "-c".into(), script];
    lines.push(shell(format!("{hows}; true")));
    lines.push(shell(format!("({hows}; true); true")));
    for line in lines {
        let _ = fs::remove_dir_all(stage.at("t"));
        fs::create_dir(stage.at("t")).unwrap();
        let words: Vec<&str> = line.iter().map(String::as_str).collect();
        stage.run(&[&["record", "-q", "--follow", "-o", "t/%p.qtr", "--"], &words[..]].concat()).expect(0);
        assert_eq!(ends(&stage), expected, "{line:?}");
    }
}

/// Keeps streams to two children. The second child begins while the first call lasts, and the other way round that is not so.
const STREAMS: &str = r#"
    #include <signal.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <unistd.h>
    static FILE *open_one(const char *line) {
        char word[16];
        FILE *stream = popen(line, "r");
        return stream && fgets(word, sizeof word, stream) ? stream : 0;
    }
    int main(int argc, char **argv) {
        (void)argv;
        FILE *first = open_one("echo; exec ./ends kill");
        FILE *second = open_one("echo; exec ./ends term");
        if (!first || !second) return 1;
        pclose(argc > 1 ? second : first);
        pclose(argc > 1 ? first : second);
        /* Neither of these has a child that is told of. */
        system(0);
        return pclose(popen("true", "r")) != 0;
    }"#;

#[test]
fn of_several_children_of_a_call_none_has_its_reason() {
    let Some(stage) = Stage::new() else { return };
    stage.write("ends.c", ENDS);
    stage.write("streams.c", STREAMS);
    stage.cc("-w ends.c -o ends");
    stage.cc("-w streams.c -o streams");
    for words in [&["./streams"][..], &["./streams", "inside"]] {
        let _ = fs::remove_dir_all(stage.at("t"));
        fs::create_dir(stage.at("t")).unwrap();
        stage.run(&[&["record", "-q", "--follow", "-o", "t/%p.qtr", "--"], words].concat()).expect(0);
        let ends = ends(&stage);
        assert_eq!(ends[0], ("kill".into(), Value::Null, Value::Null), "{words:?}");
        assert_eq!(ends[1], ("term".into(), "killed".into(), 15.into()), "{words:?}");
    }
}

/// One process stays. With "inside" it is number 1 of a PID namespace, and number 2 stays as well; else its child has been killed, and
/// nobody waits for that.
const LEFT: &str = r#"
    #define _GNU_SOURCE
    #include <sched.h>
    #include <signal.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <unistd.h>
    static int ready[2];
    static void allocate(void) { for (int i = 0; i < 100; i++) *(char *volatile)malloc(1000 + i) = 1; }
    static void stay(void) {
        allocate();
        alarm(300);
        close(1), close(2);
        if (write(ready[1], "x", 1) != 1) abort();
        for (;;) pause();
    }
    int main(int argc, char **argv) {
        int inside = argc > 1 && !strcmp(argv[1], "inside"), got;
        char word[1];
        sigset_t ended;
        if (pipe(ready)) return 1;
        if (inside && unshare(CLONE_NEWPID) && unshare(CLONE_NEWUSER | CLONE_NEWPID)) return 77;
        allocate();
        sigemptyset(&ended), sigaddset(&ended, SIGCHLD), sigprocmask(SIG_BLOCK, &ended, 0);
        pid_t stays = fork();
        if (!stays) {
            if (!fork()) {
                if (inside) stay();
                allocate();
                kill(getpid(), SIGKILL);
            }
            if (!inside) sigwait(&ended, &got);
            stay();
        }
        for (int i = 0; i <= inside; i++) if (read(ready[0], word, 1) != 1) return 1;
        printf("%d\n", stays);
        return 0;
    }"#;

#[test]
fn what_has_ended_does_not_run_and_what_runs_in_a_namespace_does() {
    let Some(stage) = Stage::new() else { return };
    stage.write("left.c", LEFT);
    stage.cc("-w left.c -o left");
    // Also: those that still run, by the numbers that they know themselves by.
    let record = |how: &str| {
        let _ = fs::remove_dir_all(stage.at("t"));
        fs::create_dir(stage.at("t")).unwrap();
        let summary =
            ["record", "-q", "--follow", "--summary", "s.json", "-o", "t/%p.qtr", "--", "./left", how];
        let ended = stage.run(&summary);
        let stays = ended.stdout.trim().parse::<u32>().ok();
        if let Some(pid) = stays {
            kill("KILL", pid);
        }
        let summary = fs::read_to_string(stage.at("s.json")).unwrap();
        let traces = serde_json::from_str::<Value>(&summary).unwrap()["traces"].as_array().unwrap().clone();
        let running = traces.iter().filter(|trace| trace["running"] == true);
        let mut running: Vec<u64> = running.map(|trace| trace["process"].as_u64().unwrap()).collect();
        running.sort_unstable();
        (ended.code, stays, traces.len(), running)
    };
    let (code, stays, traces, running) = record("zombie");
    assert_eq!((code, traces, running), (Some(0), 3, vec![stays.unwrap().into()]));
    match record("inside") {
        (Some(77), ..) => eprintln!("skipped: no PID namespaces here"),
        (code, _, traces, running) => assert_eq!((code, traces, running), (Some(0), 3, vec![1, 2])),
    }
}

/// The library that lets another thread in before dlclose has returned.
const SHIM: &str = r#"
    #define _GNU_SOURCE
    #include <dlfcn.h>
    int dlclose(void *handle) {
        int (*real)(void *) = (int (*)(void *))dlsym(RTLD_NEXT, "dlclose");
        void (*after)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "after_dlclose");
        int r = real(handle);
        if (after) after();
        return r;
    }"#;

const RACE: &str = r#"
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <pthread.h>
    #include <semaphore.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    static sem_t closed, done;
    static int waits, used;
    static _Atomic int begun;
    /* Called when a library is gone, and dlclose has not returned. */
    void after_dlclose(void) { if (waits) { waits = 0; sem_post(&closed); sem_wait(&done); } }
    static void *use(void *name) {
        char path[64];
        snprintf(path, sizeof path, "./lib%s.so", (char *)name);
        if (used++) sem_wait(&closed);
        void *h = dlopen(path, RTLD_NOW);
        void *(*make)(void) = (void *(*)(void))dlsym(h, "make");
        fprintf(stderr, "%p\n", (void *)make);
        make();
        make();
        if (used == 1) { waits = begun = 1; dlclose(h); } else sem_post(&done);
        return 0;
    }
    int main(void) {
        sem_init(&closed, 0, 0), sem_init(&done, 0, 0);
        pthread_t one, other;
        pthread_create(&one, 0, use, "alpha");
        while (!begun) sched_yield();
        pthread_create(&other, 0, use, "beta");
        pthread_join(other, 0), pthread_join(one, 0);
        return 0;
    }"#;

/// A library that allocates while it is loaded, so before dlopen has returned.
const EAGER: &str = r#"
    #include <stdlib.h>
    __attribute__((noinline)) static void *beta_internal(size_t n) { void *p = malloc(n); __asm__(""); return p; }
    void *make(void) { void *p = beta_internal(50); __asm__(""); return p; }
    __attribute__((constructor)) static void eager(void) { make(); }
"#;

#[test]
fn a_library_that_comes_while_another_goes() {
    let Some(stage) = Stage::new() else { return };
    plugins(&stage);
    stage.write("shim.c", SHIM);
    stage.write("race.c", RACE);
    stage.cc("-fPIC -shared shim.c -o shim.so -ldl");
    stage.cc("-w -rdynamic race.c -o race -ldl -lpthread");
    for (how, eager) in [("cfi", false), ("fp", false), ("cfi", true)] {
        if eager {
            stage.write("beta.c", EAGER);
            stage.cc("-fPIC -shared beta.c -o libbeta.so");
        }
        let line = ["record", "-q", "--stacks", how, "-o", "a.qtr", "--", "./race"];
        let mut command = stage.quarry_in(&stage.at(""), &line);
        command.env("LD_PRELOAD", stage.at("shim.so")).stdin(Stdio::null());
        let places = Ended::from(command.output().unwrap()).expect(0).stderr;
        let places: Vec<&str> = places.lines().collect();
        let info = stage.info("a.qtr");
        let begins =
            |name: &str| if how == "cfi" { format!("{name}_internal at {name}.c:") } else { name.to_owned() };
        let (alpha, beta) =
            (Stage::site(&info, 200_000, 1), Stage::site(&info, if eager { 150 } else { 100 }, 1));
        assert!(
            alpha.starts_with(&begins("alpha")) || how == "fp" && alpha.contains("alpha"),
            "{how} {alpha} {places:?}"
        );
        assert!(
            beta.starts_with(&begins("beta")) || how == "fp" && beta.contains("beta"),
            "{how} {beta} {places:?}"
        );
    }
}

#[test]
fn a_thread_that_never_allocates_is_not_gone_without_a_word() {
    let Some(stage) = Stage::new() else { return };
    stage.write(
        "idle.c",
        r#"
        #include <pthread.h>
        #include <stdlib.h>
        static void *nothing(void *arg) { return arg; }
        static void *frees(void *block) { free(block); return 0; }
        static void *null(void *arg) { free(0); return arg; }
        int main(void) {
            void *(*all[])(void *) = {nothing, frees, null, nothing};
            for (int i = 0; i < 4; i++) {
                pthread_t t;
                pthread_create(&t, 0, all[i], i == 1 ? malloc(77) : 0);
                pthread_join(t, 0);
            }
            return 0;
        }"#,
    );
    stage.cc("idle.c -o idle -lpthread");
    stage.record("idle.qtr", &["./idle"]).expect(0);
    let info = stage.info("idle.qtr");
    let ends: Vec<&str> =
        info["threads"].as_array().unwrap().iter().filter_map(|t| t["end"].as_str()).collect();
    // The main thread, and the one that freed what it was given.
    assert_eq!(ends, ["lives", "ended"], "{:#}", info["threads"]);
}
