# SPDX-License-Identifier: MIT
"""A program that is linked with the static library: in each way that a build may link it, and in C++."""
import pathlib

from field import Failure, Skip, case

CASES = []
C = """
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
static void *th(void *a) {
    for (int i = 0; i < 20000; i++) { char *p = malloc(i % 5000 + 1); p[0] = 1; free(realloc(p, i % 9000 + 1)); }
    return strdup("x");
}
int main(void) {
    pthread_t t[3]; void *p;
    for (int i = 0; i < 3; i++) pthread_create(&t[i], 0, th, 0);
    for (int i = 0; i < 3; i++) { pthread_join(t[i], &p); free(p); }
    pid_t pid = fork(); int s;
    if (!pid) { free(th(0)); _exit(0); }
    waitpid(pid, &s, 0);
    if (s) return 2;
    void *q = memset(malloc(50 << 20), 1, 50 << 20); free(q);
    if (posix_memalign(&q, 256, 1000) || malloc_usable_size(q) < 1000) return 3;
    free(q); char *line = 0; size_t n = 0; FILE *f = fopen("/etc/passwd", "r");
    while (getline(&line, &n, f) > 0) {} free(line); fclose(f);
    printf("ok\\n"); return 0;
}
"""
CXX = """
#include <iostream>
#include <map>
#include <string>
#include <thread>
#include <vector>
int main() {
    std::vector<std::thread> t; std::vector<std::map<int, std::string>> m(4);
    for (int k = 0; k < 4; k++) t.emplace_back([&m, k] { for (int i = 0; i < 20000; i++) m[k][i * 7919 % 5003] += "x" + std::to_string(i); });
    for (auto &x : t) x.join();
    try { std::string s(size_t(-1) / 4, 'x'); } catch (const std::exception &) { std::cout << "refused\\n"; }
    size_t n = 0; for (auto &a : m) for (auto &[k, v] : a) n += v.size();
    std::cout << n << "\\n";
}
"""


def archive(f):
    """Its own archive; glibc's malloc needs none, and others are in packages for developers."""
    if not f.library:
        return []
    names = {"quarry": "libquarry-malloc.a", "jemalloc": "libjemalloc.a", "tcmalloc": "libtcmalloc_minimal.a"}
    path = pathlib.Path(f.library).parent / names.get(f.malloc.name, "none")
    if not path.exists():
        raise Skip(f"needs a static library of {f.malloc.name}")
    return [path]


def links(f, text, *options, whole=False, compiler="gcc"):
    source = f.dir / ("x.cc" if compiler == "g++" else "x.c")
    source.write_text(text)
    files = archive(f)
    if whole and files:
        files = ["-Wl,--whole-archive", *files, "-Wl,--no-whole-archive"]
    more = ["-lstdc++", "-lm"] if f.malloc.name in ("jemalloc", "tcmalloc") and compiler == "gcc" else []
    program = f.compile("x", "-w", source, *options, *files, "-lpthread", "-ldl", *more, compiler=compiler)
    out = f.good([program], {"LD_PRELOAD": ""})
    if not out.startswith(("ok", "refused")):
        raise Failure(f"says {out!r}")


def add(name, text, *options, **more):
    def function(f):
        links(f, text, *options, **more)
    function.__name__ = name
    CASES.append(function)


add("c", C)
add("c_static", C, "-static")
add("c_static_pie", C, "-static-pie", "-fPIE")
add("c_no_pie", C, "-no-pie")
add("c_optimised_at_link", C, "-flto", "-O2")
add("c_sections", C, "-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections")
add("c_static_sections", C, "-static", "-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections")
add("c_whole_archive", C, whole=True)
add("c_static_whole_archive", C, "-static", whole=True)
add("c_gold", C, "-fuse-ld=gold")
add("c_bound_at_once", C, "-Wl,-z,now,-z,relro")
add("c_as_needed", C, "-Wl,--as-needed")
add("c_hidden", C, "-fvisibility=hidden", "-Wl,-Bsymbolic")
add("cxx", CXX, compiler="g++")
add("cxx_static", CXX, "-static", compiler="g++")
add("cxx_static_pie", CXX, "-static-pie", "-fPIE", compiler="g++")
add("cxx_static_runtime", CXX, "-static-libstdc++", "-static-libgcc", compiler="g++")
add("cxx_optimised_at_link", CXX, "-flto", "-O2", compiler="g++")


@case(CASES)
def c_lld(f):
    f.command("ld.lld", "lld")
    links(f, C, "-fuse-ld=lld")


@case(CASES)
def c_static_lld(f):
    f.command("ld.lld", "lld")
    links(f, C, "-static", "-fuse-ld=lld")


@case(CASES)
def static_under_a_preload(f):
    """A dynamic program linked with the archive, and the shared one preloaded: the program's own is malloc for all."""
    source = f.dir / "x.c"
    source.write_text(C)
    f.good([f.compile("x", "-w", source, *archive(f), "-lpthread", *(["-lstdc++", "-lm"] if f.malloc.name in ("jemalloc", "tcmalloc") else []))])
