#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Prove that run.py finds out a library that crashes, alters output, complains, hangs or is bypassed, makes calls or takes
address space that the program has no room for, that it leaves no process behind, and that packages.txt has every package the programs name."""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
import harness
import run
from harness import Failure, Program, Skip

# A malloc of its own, or none, and one thing that is wrong with it.
MALLOC = "extern void *__libc_malloc(size_t); void *malloc(size_t n) { %s return __libc_malloc(n); }"
LIBRARIES = {
    "good": MALLOC % "",
    "crash": "static int calls; " + MALLOC % "if (calls++ == 3) __builtin_trap();",
    "talk": MALLOC % "" + '__attribute__((constructor)) static void c(void) { dprintf(2, "quarry: a word\\n"); }',
    "alter": MALLOC % "" + '__attribute__((constructor)) static void c(void) { dprintf(1, "x"); }',
    "hang": MALLOC % "" + "__attribute__((constructor)) static void c(void) { if (!getenv(\"LD_DEBUG\")) pause(); }",
    "none": "int nothing;",
    "calls": MALLOC % "" + "__attribute__((constructor)) static void c(void) { struct timespec t; if (sched_rr_get_interval(0, &t)) __builtin_trap(); }",
    "takes": MALLOC % "" + "__attribute__((constructor)) static void c(void) { mmap(0, 1 << 30, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0); }",
}


def build(folder, name):
    source = folder / f"{name}.c"
    source.write_text("#include <sched.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <sys/mman.h>\n#include <unistd.h>\n" + LIBRARIES[name] + "\n")
    library = folder / f"{name}.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    return str(library)


def outcome(folder, program, library, times=1, modes=False):
    place = pathlib.Path(tempfile.mkdtemp(dir=folder))
    try:
        line = run.check(program._replace(modes=modes), place, library, times, modes)
        return f"ok{line}" if modes else "ok"
    except Failure as failure:
        return f"failure: {failure}"
    except Skip as skip:
        return f"skip: {skip}"


def sorts(box):
    (box.dir / "in").write_text("b\na\n" * 1000)
    box.run("sort", "-o", "out", "in")
    box.run("sha256sum", "out")
    box.result("out")


def leaves_orphans(box):
    box.run("bash", "-c", "setsid sleep 1000 & setsid -f sleep 1000; echo")


def changes(box):
    box.run("bash", "-c", "echo $RANDOM$RANDOM")


def fails(box):
    box.run("bash", "-c", "exit 3")


def fails_on_ours(box):
    box.run("bash", "-c", "exit 3", ours=True)


def fails_and_says(box):
    box.run("bash", "-c", 'echo "${LD_PRELOAD:+test_x failed}"; test -z "$LD_PRELOAD"', may_fail=True)


def program_of(function, needs=None):
    return Program(function.__name__, function, needs or {}, False)


def expect(what, want, got):
    if want not in got:
        sys.exit(f"FAILED {what}: wanted {want!r}, got {got!r}")


def packages_in(path):
    return {line.partition("=")[2] or line for line in path.read_text().splitlines() if not line.startswith("#")}


def main():
    harness.adopt_orphans()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="programs-"))
    folder.chmod(0o755)
    library = {name: build(folder, name) for name in LIBRARIES}
    program = program_of(sorts)
    expect("a good library", "ok", outcome(folder, program, library["good"], times=2))
    expect("a crash", "signal SIG", outcome(folder, program, library["crash"]))
    expect("a word of the library", "quarry: a word", outcome(folder, program, library["talk"]))
    expect("other output", "failure: sort: prints", outcome(folder, program, library["alter"]))
    patience, harness.PATIENCE = harness.PATIENCE, 1 / 30
    expect("a hang", "not done after 2 s", outcome(folder, program, library["hang"]))
    harness.PATIENCE = patience
    expect("a library without malloc", "skip: ", outcome(folder, program, library["none"]))
    expect("a missing program", "skip: needs the package p", outcome(folder, program_of(sorts, {"no-such": "p"}), library["good"]))
    expect("random output", "failure: bash: prints", outcome(folder, program_of(changes), library["good"]))
    expect("a program that fails by itself", "skip: needs a program that goes right on the system malloc", outcome(folder, program_of(fails), library["good"]))
    expect("our own work, failing by itself", "failure: needs a program that goes right on the system malloc", outcome(folder, program_of(fails_on_ours), library["good"]))
    expect("a status, and what was said beside it", "library:       test_x failed", outcome(folder, program_of(fails_and_says), library["good"]))
    expect("the modes", "filter, ENOSYS; filter, EPERM; limit of", outcome(folder, program, library["good"], modes=True))
    expect("a call that only the library makes", "failure: filter, ENOSYS: ", outcome(folder, program, library["calls"], modes=True))
    expect("address space that only the library takes", "failure: limit of ", outcome(folder, program, library["takes"], modes=True))
    start = time.monotonic()
    expect("orphans", "ok", outcome(folder, program_of(leaves_orphans), library["good"]))
    if harness.descendants() or time.monotonic() - start > 500:
        sys.exit("FAILED: processes were left behind")
    shutil.rmtree(folder)

    builtin = {"bash", "python3", "gcc", "g++", "binutils", "cmake", "ninja-build"}  # the build needs them already
    short = packages_in(run.HERE / "packages.txt") | builtin
    long = packages_in(run.HERE.parent / "torture" / "packages.txt") | packages_in(run.HERE.parent / "field" / "packages.txt") | short
    for entry in run.load().values():
        if missing := set(entry.needs.values()) - (long if entry.torture else short):
            sys.exit(f"FAILED: packages.txt lacks {', '.join(missing)} of {entry.name}")
    print("self-test: crashes, hangs, changes, words, bypasses, orphans, calls and reservations were found out")


if __name__ == "__main__":
    sys.exit(main())
