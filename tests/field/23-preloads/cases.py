# SPDX-License-Identifier: MIT
"""Other libraries that are preloaded beside the malloc, before and behind it, and glibc's tunables."""
import pathlib

from field import Skip, case

CASES = []
WORK = ["perl", "-e", 'my %h; $h{$_ * 7919 % 5003} .= "x$_" for 1 .. 60000; my $s = join ",", map { "$_=$h{$_}" } sort { $a <=> $b } keys %h; print length $s, unpack("%32C*", $s), "\\n"']
THREADS = ["/usr/bin/python3", "-c", "import threading, time\nt = [threading.Thread(target=lambda: [bytes(i) for i in range(3000)]) for i in range(6)]\n[x.start() for x in t]; [x.join() for x in t]; print(time.time() > 0)"]


def both_orders(f, name, package, environment=None, works=None):
    found = sorted(pathlib.Path("/usr/lib").glob(f"**/{name}"))
    if not found:
        raise Skip(f"needs the package {package}")
    for order in (f.preload(found[0]), {"LD_PRELOAD": ":".join(filter(None, [str(found[0]), f.library]))}):
        for work in works or (WORK, THREADS):
            f.good(work, {**order, **(environment or {})}, timeout=40)


@case(CASES)
def faketime(f):
    both_orders(f, "libfaketime.so.1", "libfaketime", {"FAKETIME": "-2d"})


@case(CASES)
def faketime_of_threads(f):
    both_orders(f, "libfaketimeMT.so.1", "libfaketime", {"FAKETIME": "@2030-01-01 00:00:00"})


@case(CASES)
def eatmydata(f):
    both_orders(f, "libeatmydata.so", "libeatmydata1")


@case(CASES)
def fakeroot(f):
    f.good([f.command("fakeroot"), "bash", "-c", 'touch x && chown 0:0 x && [ "$(stat -c %u x)" = 0 ]'], timeout=40)


@case(CASES)
def stdbuf(f):
    f.same([f.command("stdbuf"), "-o0", "-i0", "sort", "-rn", "/etc/passwd"])


@case(CASES)
def memusage_of_glibc(f):
    """Its wrapper counts: all calls pass through it to the next malloc. It does not stand threads."""
    both_orders(f, "libmemusage.so", "libc6", {"MEMUSAGE_OUTPUT": "/dev/null"}, [WORK])


@case(CASES)
def pcprofile_of_glibc(f):
    both_orders(f, "libpcprofile.so", "libc6")


@case(CASES)
def debug_of_glibc(f):
    """libc_malloc_debug has a malloc of its own; whoever comes first serves."""
    both_orders(f, "libc_malloc_debug.so.0", "libc6")


@case(CASES)
def wrapper_of_two_functions(f):
    (f.dir / "w.c").write_text("""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
static void *(*real)(size_t); static void (*realfree)(void *); static __thread int deep;
void *malloc(size_t n) { if (!real) real = dlsym(RTLD_NEXT, "malloc"); deep++; void *p = real(n + 0); deep--; return p; }
void free(void *p) { if (!realfree) realfree = dlsym(RTLD_NEXT, "free"); realfree(p); }
""")
    wrapper = f.compile("w.so", "-w", "-shared", "-fPIC", f.dir / "w.c", "-ldl")
    f.good(WORK, {"LD_PRELOAD": ":".join(filter(None, [str(wrapper), f.library]))}, timeout=40)


@case(CASES)
def two_mallocs(f):
    """Another malloc behind ours: all names must be ours, or its."""
    found = sorted(pathlib.Path("/usr/lib").glob("*/libjemalloc.so.2"))
    if not found:
        raise Skip("needs the package libjemalloc2")
    f.good(WORK, f.preload(found[0]), timeout=40)
    f.good(THREADS, f.preload(found[0]), timeout=40)


@case(CASES)
def twice(f):
    f.good(WORK, f.preload(f.library or "libm.so.6"), timeout=40)


@case(CASES)
def tunables(f):
    f.good(WORK, {"GLIBC_TUNABLES": "glibc.malloc.check=3:glibc.malloc.perturb=85:glibc.malloc.arena_max=1:glibc.malloc.tcache_count=0:glibc.rtld.optional_static_tls=100"})
    f.good(THREADS, {"MALLOC_CHECK_": "3", "MALLOC_PERTURB_": "85", "MALLOC_ARENA_MAX": "1", "MALLOC_TRIM_THRESHOLD_": "0", "MALLOC_MMAP_THRESHOLD_": "1"})


@case(CASES)
def by_the_linkers_option(f):
    """The linker's option is what a file of the system would be, for one program."""
    loader = sorted(pathlib.Path("/").glob("lib*/ld-linux-*.so.*"))[0]
    f.good([loader, *(["--preload", f.library] if f.library else []), "/usr/bin/perl", "-e", "my @a = map { 'x' x $_ } 1 .. 2000"], {"LD_PRELOAD": ""})
