# SPDX-License-Identifier: MIT
"""Debuggers and tracers: they stop threads inside of malloc, call it, and read memory from files."""
import subprocess

from field import PATH, Failure, Skip, case

CASES = []
DEBUGGED = {"FIELD_DEBUGGED": "1"}


def attached(f, *commands):
    """gdb on a running program: what it prints. The program goes on afterwards."""
    gdb = f.command("gdb")
    program = subprocess.Popen([f.build / "busy", "runs_until_killed"], env={"PATH": PATH, **DEBUGGED, **f.preload()}, cwd=f.dir,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    try:
        while not program.stdout.readline().startswith("ready"):
            if program.poll() is not None:
                raise Failure(f"the program ended with {program.returncode}")
        argv = [gdb, "-nx", "-batch", "-p", str(program.pid)]
        for command in commands:
            argv += ["-ex", command]
        done = f.run(argv, timeout=60)
        if "extended state status" in done.err:
            raise Skip("needs a kernel that lets gdb write registers")
        if done.status != 0:
            raise Failure(f"gdb: {done.ending()}")
        if program.poll() is not None:
            raise Failure(f"the program did not go on: {program.returncode}")
        return done.out
    finally:
        program.kill()
        program.wait()
        program.stdout.close()


def expect(out, word):
    if word not in out:
        raise Failure(f"gdb does not say {word!r}: {out[-300:]!r}")


@case(CASES)
def gdb_attaches(f):
    expect(attached(f, "thread apply all bt 3", "print field_text"), "what a core file must hold")


@case(CASES)
def gdb_calls(f):
    """The thread that is asked sleeps, so malloc may be called in it."""
    out = attached(f, "thread 1", "call field_call(10)", "call (void) free(field_call(100000))")
    expect(out, '"ccccccccc"')


@case(CASES)
def gdb_saves_a_core(f):
    attached(f, f"gcore {f.dir}/core")
    expect(f.good(["gdb", "-nx", "-batch", "-ex", "print field_text", f.build / "busy", f"{f.dir}/core"], {"LD_PRELOAD": ""}, timeout=60),
           "what a core file must hold")


@case(CASES)
def gdb_starts_and_stops(f):
    """A breakpoint in malloc, taken some times."""
    environment = ["-ex", f"set environment LD_PRELOAD {f.library}"] if f.library else []
    out = f.good([f.command("gdb"), "-nx", "-batch", *environment, "-ex", "set breakpoint pending on", "-ex", "break field_call", "-ex", "run --list",
                  "-ex", "print 40 + 2", f.build / "busy"], {"LD_PRELOAD": ""}, timeout=60)
    expect(out, "= 42")


@case(CASES)
def strace_follows(f):
    argv = [f.command("strace"), "-f", "-o", f.dir / "log"]
    f.good([*argv, "bash", "-c", "seq 1000 | sort -rn | head -3 && ls / | wc -l"], timeout=40)


@case(CASES)
def ltrace_like(f):
    """Single steps through the first thousand instructions of main, by gdb."""
    f.good([f.command("gdb"), "-nx", "-batch", *(["-ex", f"set environment LD_PRELOAD {f.library}"] if f.library else []), "-ex", "break main", "-ex", "run --list",
            "-ex", "stepi 1000", f.build / "busy"], {"LD_PRELOAD": ""}, timeout=60)


@case(CASES)
def valgrind_runs(f):
    """valgrind puts its own malloc in the place of any other; a preloaded one must stand that."""
    f.good([f.command("valgrind"), "-q", "--error-exitcode=9", "/bin/ls", "/"], timeout=60)


@case(CASES)
def valgrind_counts(f):
    """A tool of valgrind that leaves malloc alone."""
    f.good([f.command("valgrind"), "-q", "--tool=none", "/bin/ls", "/"], timeout=60)
