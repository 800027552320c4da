#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Record programs whose calls are known, and programs that end badly, and read what was recorded.

  test_record.py PROGRAM PROGRAM_CXX MODULE EARLY PLUGIN [GROUP...]    the groups are the functions at the end; all by default
"""
import collections
import itertools
import os
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile

import qtr

LIBRARY = pathlib.Path(os.environ.get("QUARRY_LIB_DIR", "build/lib")).absolute()
RECORDER = LIBRARY / "libquarry-record.so"
FAKE = LIBRARY / "libquarry-record-fake.so"  # a kernel that can be told to fail
PROGRAM, PROGRAM_CXX, MODULE, EARLY, PLUGIN = (os.path.abspath(a) for a in (*sys.argv[1:6], "", "", "", "")[:5])  # others import this
SEED = int(os.environ.get("QUARRY_SEED", random.randrange(1 << 32)))
if os.access("/dev/shm", os.W_OK):
    tempfile.tempdir = "/dev/shm"  # what is tested is not the disk
DEBIAN = pathlib.Path("/usr/lib/x86_64-linux-gnu")


class Run:
    """One recorded program: how it ended, what it said, and its traces by process id."""

    def __init__(self, *command, options="", preload=(), env=None, limits=None, folder=None, name="%p.qtr", recorder=RECORDER, timeout=300, cwd=None):
        self.temporary = None if folder else tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(folder or self.temporary.name)
        preloads = ":".join(str(p) for p in (recorder, *preload) if p)
        self.env = {**os.environ, "LD_PRELOAD": preloads, "QUARRY_RECORD": f"file:{self.folder}/{name}{options and ','}{options}", **(env or {})}
        self.process = subprocess.Popen([str(c) for c in command], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        preexec_fn=limits, cwd=cwd)
        self.timeout = timeout

    def wait(self):
        try:
            out, err = self.process.communicate(timeout=self.timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        self.out, self.err, self.status = out.decode(errors="replace"), err.decode(errors="replace"), self.process.returncode
        return self

    def files(self):
        return sorted(self.folder.glob("*.qtr*"))

    def trace(self, pid=None, image=""):
        return qtr.Trace(self.folder / f"{pid or self.process.pid}.qtr{image}")

    def traces(self):
        return [qtr.Trace(f) for f in self.files()]


def record(*command, status=0, **options):
    run = Run(*command, **options).wait()
    assert run.status == status, (command, run.status, run.out, run.err)
    return run


def sound(trace, ended="exit"):
    """A trace without any fault; `ended`: why, or None if it was cut off."""
    assert not trace.problems, trace.problems[:5]
    assert trace.head["format"] == "quarry-trace/1" and trace.head["process"] == trace.head["process id in the block"], trace.head
    if ended is None:
        assert trace.end is None, trace.end
    else:
        assert trace.end and trace.end["reason"] == ended, trace.end
    if ended == "exit":
        assert trace.end["events"] == len(trace.events), (trace.end, len(trace.events))
        assert trace.end["lost"] == trace.lost() == 0, trace.end
        assert trace.unsealed == 0, trace.unsealed
    return trace


def sizes(trace):
    return collections.Counter(e.fields["size"] for e in trace.events if e.what == "alloc")


def more(with_calls, without):
    """What the one trace has more than the other."""
    counts = with_calls.count()
    counts.subtract(without.count())
    return {k: n for k, n in counts.items() if n and k[0] in ("alloc", "free", "realloc", "failed", "touched")}


# One round of every_call() in program.c, with the C library's malloc.
FAMILY = {
    ("alloc", "malloc"): 4, ("alloc", "calloc"): 1, ("alloc", "realloc"): 2, ("alloc", "memalign"): 5, ("realloc", "realloc"): 3,
    ("failed", "realloc"): 2, ("failed", "memalign"): 1, ("failed", "malloc"): 1, ("failed", "calloc"): 1,
    ("free", "free"): 9, ("free", "sized"): 2, ("free", "null"): 1, ("free", "other"): 1, ("touched", ""): 2,
}
# One round of every_form() in program_cxx.cpp. delete(nullptr) is a free(NULL).
FORMS = {("alloc", "new"): 6, ("alloc", "aligned new"): 6, ("free", "delete"): 8, ("free", "sized"): 4, ("free", "null"): 1,
         ("alloc", "malloc"): 1, ("free", "free"): 1}


def times(counts, n):
    return {k: v * n for k, v in counts.items()}


def calls():
    """Every call of the family is there, once, as what it was."""
    rounds = 300
    for threads in (0, 4):
        base = sound(record(PROGRAM, "family", 0, threads).trace())
        trace = sound(record(PROGRAM, "family", rounds, threads).trace())
        assert more(trace, base) == times(FAMILY, rounds * (threads + 1)), (threads, more(trace, base))
        assert len(trace.threads.keys() - {0}) == threads + 1  # 0: of threads that have ended
        touched = sorted(e.fields["bytes"] for e in trace.events if e.what == "touched")
        assert touched[0] < 40000 and 190000 < touched[-1] <= 401408, touched[:3] + touched[-3:]
        left, impossible = qtr.live(trace)
        assert not impossible, impossible[:3]
    aligned = {e.fields["align"] for e in trace.events if e.what == "alloc" and e.by == "memalign"}
    assert aligned >= {5, 6, 8, 12}, aligned
    base, trace = (sound(record(PROGRAM_CXX, n).trace()) for n in (0, 200))
    assert more(trace, base) == times(FORMS, 200), more(trace, base)
    trace = sound(record(PROGRAM_CXX, 0, "failures").trace())
    failures = {k: n for k, n in more(trace, base).items() if k[0] == "failed"}
    # new(huge), its nothrow form, new[](huge); the try after the handler is malloc's own.
    assert failures == {("failed", "new"): 3, ("failed", "malloc"): 1}, failures
    assert sizes(trace)[1234] == 1
    command = record("/bin/echo", "a\"b\\c", b"\xff\xfe\n".decode("utf8", "surrogateescape"), "ä€𝄞").trace()
    assert command.head["command"] == ["/bin/echo", "a\"b\\c", "\ufffd\ufffd\n", "ä€𝄞"], command.head
    assert command.head["program"] == os.path.realpath("/bin/echo") and command.head["malloc"].endswith("libc.so.6")
    with tempfile.TemporaryDirectory() as folder:  # each character of the path takes six in the head
        deep = pathlib.Path(folder, *["\x01" * 250] * 14)
        deep.mkdir(parents=True)
        program = shutil.copy("/bin/true", deep)
        deep = sound(record(program, "a").trace())
        assert deep.head["program"] == os.path.realpath(program) and deep.head["machine"], deep.head
        assert deep.head["command"] == [] and deep.head["command_cut"], deep.head
        assert program in [e.fields["about"]["path"] for e in deep.events if e.by == "loaded"]
    long = record("/bin/true", "x" * 100000, "y").trace()
    assert long.head["command"] == ["/bin/true"] and long.head["command_cut"], long.head


def threads():
    run = record(PROGRAM, "crowd", 2000)
    trace = sound(run.trace())
    assert len(trace.threads) >= 2001
    assert sizes(trace)[100] == sizes(trace)[50] == 2000
    assert trace.count()[("thread", "begins")] == trace.count()[("thread", "ends")] + 1 == 2001, trace.count()
    assert run.files()[0].stat().st_size < 2001 * 4096 * 1.2
    trace = sound(record(PROGRAM, "series", 3000).trace())
    assert sizes(trace)[44] == 3000 and trace.count()[("thread", "ends")] == 3000
    trace = sound(record(PROGRAM, "vanish", 2500).trace())
    assert sizes(trace)[45] == 2500 and trace.count()[("thread", "begins")] == 2501 and not trace.count()[("thread", "ends")]
    assert trace.count()[("extension", "gone")] == 2500, trace.count()
    trace = sound(record(PROGRAM, "exchange", 20000, 4).trace())
    assert trace.count()[("alloc", "malloc")] >= 80000
    left, impossible = qtr.live(trace)
    assert not impossible, (len(impossible), impossible[:3])
    assert 60 <= len(left) <= 90, len(left)
    run = record(PROGRAM, "late", 1, 50)
    trace = sound(run.trace())
    calls = int(run.out.split()[0])
    assert calls > 150 and sizes(trace)[333] == calls, (calls, sizes(trace)[333])
    left, impossible = qtr.live(trace)
    assert not impossible and 333 not in left.values(), (impossible[:3], left)
    begun = {e.fields["tid"] for e in trace.events if e.by == "begins"}
    assert len(begun) >= 50
    creators()


def creators():
    """Every thread's record says who created it, however many there are at a time."""
    for mode in (("crowd", 2000), ("series", 3000)):
        trace = sound(record(PROGRAM, *mode).trace())
        of = {e.thread: e.fields["creator"] for e in trace.events if e.by == "begins"}
        first = min(of)
        assert of.pop(first) == 0 and set(of.values()) == {first}, (first, collections.Counter(of.values()))
    trace = sound(record(PROGRAM, "creators", 12).trace())
    of = {e.thread: e.fields["creator"] for e in trace.events if e.by == "begins"}
    made = {e.fields["size"]: e.thread for e in trace.events if e.what == "alloc" and 9000 <= e.fields["size"] <= 9012}
    for left in range(12):
        assert of[made[9000 + left]] == made[9001 + left], (left, of, made)
    assert of[made[9012]] == 0 and len(of) == 13, of
    # The child of a fork is nobody's thread, though a thread made it; its own threads are its.
    script = "import os, threading\ndef fork():\n p = os.fork()\n if p == 0:\n  t = threading.Thread(target=list); t.start(); t.join(); os._exit(0)\n os.waitpid(p, 0)\n" \
        "t = threading.Thread(target=fork); t.start(); t.join()"
    run = record(sys.executable, "-c", script, options="follow:on", env={"PYTHONMALLOC": "malloc", "PYTHONWARNINGS": "ignore"})
    assert len(run.files()) == 2, run.files()
    for trace in run.traces():
        begun = [(e.thread, e.fields["creator"]) for e in trace.events if e.by == "begins"]
        assert begun == [(1, 0), (2, 1)], (trace.head["process"], begun)


def by_sizes(traces, wanted):
    """The one trace in which these sizes, and no other of the program's marked ones, are allocated."""
    marked = (1001, 2002, 3003, 4004, 5005, 6006, 7007)
    found = [t for t in traces if {s for s in marked if sizes(t)[s]} == set(wanted)]
    assert len(found) == 1, (wanted, [{s: sizes(t)[s] for s in marked} for t in traces])
    return found[0]


def children():
    run = record(PROGRAM, "children", 100, options="follow:on")
    traces = run.traces()
    assert len(traces) == 6, run.files()
    parent = sound(by_sizes(traces, (1001, 7007)))
    assert sizes(parent)[1001] == sizes(parent)[7007] == 100 and parent.count()[("process", "fork")] == 1
    child = sound(by_sizes(traces, (2002,)))
    assert [e.fields["child"] for e in parent.events if e.by == "fork"] == [child.head["process"]]
    assert child.head["parent"] == parent.head["process"] and sizes(child)[2002] == 100
    assert child.count()[("module", "loaded")] == parent.count()[("module", "loaded")]
    sound(by_sizes(traces, (3003,)))
    raw = by_sizes(traces, (4004,))
    assert sizes(sound(raw, "_exit"))[4004] == 100
    assert sizes(sound(by_sizes(traces, (5005,))))[5005] == sizes(sound(by_sizes(traces, (6006,))))[6006] == 100
    run = record(PROGRAM, "children", 100)
    assert len(run.files()) == 1, run.files()
    assert sound(run.trace()).count() == parent.count() or sizes(run.trace())[7007] == 100
    for follow in ("on", "off"):
        run = record(PROGRAM, "busy_forks", 60, options=f"follow:{follow}")
        sound(run.trace())
        others = [t for t in run.traces() if t.head["process"] != run.process.pid]
        assert len(others) == (60 if follow == "on" else 0)
        assert all(not t.problems and sizes(t)[88] == 10 and sizes(t)[77] == 0 for t in others)
    for follow in ("on", "off"):
        run = record(PROGRAM, "signal_forks", 2000, options=f"follow:{follow}")
        sound(run.trace())
    run = record("/bin/sh", "-c", f"{PROGRAM} work 30 1001; {PROGRAM} work 30 2002 & wait; exec {PROGRAM} work 30 3003", options="follow:on")
    traces = run.traces()
    assert all(sizes(sound(by_sizes(traces, (s,))))[s] == 30 for s in (1001, 2002, 3003))


def ends():
    for how, status in (("return", 3), ("exit", 3), ("quick_exit", 3), ("running", 3), ("_exit", 3), ("_Exit", 3)):
        run = record(PROGRAM, "end", 5000, how, status=status)
        reason = {"quick_exit": how, "_exit": "_exit", "_Exit": "_exit"}.get(how, "exit")
        trace = sound(run.trace(), reason) if how != "running" else run.trace()
        assert not trace.problems and trace.end["reason"] == reason, (trace.problems, trace.end)
        got = sizes(trace)
        assert got[1001] == 5000 and got[503] == 1, how
        assert [e.fields["status"] for e in trace.events if e.by == "exit"] == [3], how
        if reason == "exit":
            assert got[501] == 1 and got[502] == 1, (how, got[501], got[502])
    for how, status in (("exit_group", 3), ("abort", -signal.SIGABRT), ("segv", -signal.SIGSEGV), ("kill", -signal.SIGKILL)):
        trace = record(PROGRAM, "end", 5000, how, status=status).trace()
        assert not trace.problems and trace.end is None and sizes(trace)[1001] == 5000, (how, trace.problems)
        assert trace.count()[("free", "free")] >= 5000
    run = record(PROGRAM, "end", 5000, "exec")
    first, second = run.trace(), run.trace(image=".2")
    # What had ended there goes on if the other program cannot be run.
    sound(first, "exec")
    assert sizes(first)[1001] == sizes(first)[4004] == 5000 and first.end["events"] == len(first.events), first.end
    assert [e.fields["program"] for e in first.events if e.by == "exec"] == \
        ["/nonexistent", "/", "", os.path.realpath(PROGRAM), "/usr/nowhere/x", PROGRAM]
    assert run.files()[0].stat().st_size == first.end["bytes"]
    assert sizes(sound(second))[2002] == 50


def kill():
    """Whenever it is killed, every record that was finished can be read."""
    rng = random.Random(SEED)
    total = 0
    for i in itertools.count():
        # Where the machine is busy many are killed before they got a processor.
        if i >= int(os.environ.get("QUARRY_KILLS", 40)) and total > 10000:
            break
        trace = record(PROGRAM, "killed", rng.randrange(4000), 0 if i % 2 else 3, status=-signal.SIGKILL).trace()
        assert not trace.problems, (i, trace.problems[:5])
        assert trace.unsealed <= 5 and trace.end is None
        total += len(trace.events)
        if i % 10 == 0:
            left, impossible = qtr.live(trace)
            assert not impossible, (i, impossible[:3])
    print(f"{i} kills, {total} events")


def start():
    """Killed at each of its system calls, from its beginning on: there is no file yet, or one that can be read."""
    with tempfile.TemporaryDirectory() as folder:
        variables = (f"LD_PRELOAD={RECORDER}", f"QUARRY_RECORD=file:{folder}/a.qtr")
        without = heads = 0
        for n in range(1, 5000):
            run = subprocess.run([PROGRAM, "cut", str(n), *variables, PROGRAM, "work", "3", "1001"], capture_output=True, text=True)
            if run.returncode == 77:
                print("SKIP: needs the right to trace (ptrace)")
                return
            assert run.returncode in (0, 9), run
            files = os.listdir(folder)
            assert files in ([], ["a.qtr"]), files
            without += not files
            if files:
                trace = qtr.Trace(f"{folder}/a.qtr")
                assert not trace.problems and trace.head["format"] == "quarry-trace/1", (n, trace.problems)
                heads += not trace.events
                os.remove(f"{folder}/a.qtr")
            if run.returncode == 0:
                break
        assert run.returncode == 0 and sizes(trace)[1001] == 3 and trace.end["reason"] == "exit", (run, n)
        assert without > 50 and heads >= 2, (without, heads)
        print(f"{n} system calls, {without} before there is a file, {heads} before there is an event")


def early():
    """The first allocation of a process is made by the C library with one of its locks taken: nothing waits for that lock."""
    for first in ("nothing", "newlocale", "dlopen", "atexit", "on_exit", "at_quick_exit", "pthread_atfork"):
        trace = sound(record(PROGRAM, "work", 10, 1001, preload=[EARLY], env={"QUARRY_TEST_EARLY": first}).trace())
        assert sizes(trace)[2323] == sizes(trace)[2424] == 1 and sizes(trace)[1001] == 10, (first, sizes(trace))
        # Recorded to the end: handlers that were registered before any allocation are within.
        assert sizes(trace)[3434] == 100 * (first in ("atexit", "on_exit")), (first, sizes(trace))
    # The clock is chosen within the first event, which has its time of it, too. Here a second has 65536 times fewer ticks than that of before.
    trace = sound(record(PROGRAM, "work", 10, 1001, preload=[EARLY], env={"QUARRY_TEST_EARLY": "nothing"}, recorder=FAKE).trace())
    first, last = min(e.time for e in trace.events), max(e.time for e in trace.events)
    assert trace.head["start_ticks"] <= first and last <= trace.end["end_ticks"], (trace.head, first, last, trace.end)


def disk():
    baseline = record(PROGRAM, "churn", 50000).trace()
    one_line = "recording stopped: limit on file size"
    for kib in range(4, 260, 4):
        for mode in (("churn", 35000), ("churn_threads", 12000, 3))[kib % 8 == 0:][:1]:
            run = record(PROGRAM, *mode, limits=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (kib * 1024, kib * 1024)))
            assert run.out == "done\n", run.out
            assert len(run.err.splitlines()) == 1, run.err
            if not run.files():
                assert kib < 12 and "nothing is recorded" in run.err, (kib, run.err)
                continue
            assert one_line in run.err, run.err
            trace = sound(run.trace(), "limit on file size")
            assert trace.end["lost"] > 0 and run.files()[0].stat().st_size <= kib * 1024, (kib, trace.end, run.files()[0].stat())
            assert (0 < len(trace.events) or kib < 12) and len(trace.events) == trace.end["events"] < len(baseline.events), (len(trace.events), trace.end)
    with tempfile.TemporaryDirectory() as folder:  # what is descriptor 2 by then need not be who was to be told
        for follow in ("off", "on"):
            run = record(PROGRAM, "swapped", 50000, f"{folder}/a", options=f"follow:{follow}")
            sound(run.trace(), "limit on file size")
            assert run.out == "done\n" and not run.err and pathlib.Path(f"{folder}/a").read_text() == "", (follow, run.err)
            assert len(run.files()) == 1, run.files()
    with tempfile.TemporaryDirectory() as folder:
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True, text=True)
        if mounted.returncode:
            print(f"SKIP: needs a small disk, mounted by root: {mounted.stderr.strip()}")
            return
        try:
            run = record(PROGRAM, "churn_threads", 200000, 3, folder=folder)
            assert run.out == "done\n" and "disk full" in run.err and len(run.err.splitlines()) == 1, run.err
            trace = sound(run.trace(), "disk full")
            assert len(trace.events) == trace.end["events"] > 50000
        finally:
            subprocess.run(["umount", folder], check=True)


def descriptors():
    for number in (0, 1):
        run = record(PROGRAM, "closed", 40000, number)
        trace = sound(run.trace())
        assert trace.count()[("alloc", "malloc")] >= 79000, trace.count()
        # By a relative name it cannot be found again.
        with tempfile.TemporaryDirectory() as folder:
            relative = record(PROGRAM, "closed", 40000, number, env={"QUARRY_RECORD": "file:a.qtr"}, cwd=folder)
            assert "its file was closed" in relative.err and relative.out == "done\n", relative.err
            sound(qtr.Trace(pathlib.Path(folder) / "a.qtr"), "its file was closed")
    if os.geteuid() == 0:
        with tempfile.TemporaryDirectory() as jail:
            run = record(PROGRAM, "jail", 60000, jail)
            assert sound(run.trace()).count()[("alloc", "malloc")] >= 60000 and not run.err, run.err
    else:
        print("SKIP: needs root, for chroot")


def modules():
    run = record(PROGRAM, "module", 5, MODULE)
    trace = sound(run.trace())
    loaded = [e for e in trace.events if e.by == "loaded"]
    paths = [e.fields["about"]["path"] for e in loaded]
    assert PROGRAM in paths and any("libc.so" in p for p in paths) and str(RECORDER.resolve()) in [os.path.realpath(p) for p in paths]
    assert all(e.fields["about"]["segments"] for e in loaded)
    libc = next(e for e in loaded if "libc.so" in e.fields["about"]["path"])
    real = subprocess.run(["readelf", "-n", libc.fields["about"]["path"]], capture_output=True, text=True).stdout
    assert libc.fields["about"]["build_id"] in real and len(libc.fields["about"]["build_id"]) == 40, libc
    assert sizes(trace)[6006] == 5
    # Each of its lives is told, by what it is: it comes and goes between two blocks of the trace.
    for mode in ("none", "fp", "cfi"):
        trace = sound(record(PROGRAM, "module", 5, MODULE, options=f"stacks:{mode}").trace())
        lives, stays = lives_of(trace, MODULE)
        about = os.stat(MODULE)
        assert len(lives) == 5 and all(end is not None for _, _, end, _ in lives) and stays, (mode, lives)
        assert {(a["bytes"], a["modified_ns"]) for _, _, _, a in lives} == {(about.st_size, about.st_mtime_ns)}
        # Its nodes are of one life each, and so have as many ids as it has lives.
        nodes = [e.fields["id"] for e in trace.events if e.what == "stack" and in_module(e.fields, lives[0])]
        found = [[begin for _, begin, end, _ in lives if begin < i <= end] for i in nodes]
        assert all(len(f) == 1 for f in found), (mode, nodes, lives)
        assert mode == "none" or len({f[0] for f in found}) == 5, (mode, nodes, lives)
    paths_as_mapped()
    # What the recorder looks for in a thread for which a constructor waits, it finds without the dynamic linker's lock.
    trace = sound(record(PROGRAM, "plugin", 1, PLUGIN).trace())
    by = {e.fields["size"]: e.by for e in trace.events if e.what == "alloc" and e.fields["size"] in (7321, 7322)}
    assert by == {7321: "new", 7322: "new"} and trace.count()[("process", "fork")] == trace.count()[("failed", "new")] == 1, (by, trace.count())


def lives_of(trace, path):
    """(base, nodes before, nodes up to its end, about) of each time that a file was mapped; and whether another one stays."""
    lives, stays = [], False
    for e in trace.events:
        if e.by == "loaded" and os.path.basename(e.fields["about"]["path"]) == os.path.basename(path):
            lives.append([e.fields["base"], e.fields["about"]["nodes"], None, e.fields["about"]])
        elif e.by == "loaded":
            stays = True
        elif e.by == "unloaded":
            assert lives[-1][2] is None and lives[-1][0] == e.fields["base"], (e, lives)
            lives[-1][2] = e.fields["about"]["nodes"]
    return [tuple(life) for life in lives], stays


def in_module(node, life):
    at = node["pc"] - life[0]
    return any(a <= at < a + n for a, n, _ in life[3]["segments"])


def paths_as_mapped():
    """Absolute, whatever the dynamic linker was asked for, and whatever the folder is by then."""
    def path_in(trace):
        found = {e.fields["about"]["path"] for e in trace.events if e.by == "loaded"}
        assert all(p.startswith("/") for p in found if "vdso" not in p), found
        return [p for p in found if os.path.basename(p).startswith("mod")]

    with tempfile.TemporaryDirectory() as folder:
        real = pathlib.Path(os.path.realpath(folder))
        (real / "lib").mkdir()
        for name in ("mod.so", "mod (deleted)", "mod\nnew.so"):
            shutil.copy(MODULE, real / "lib" / name)
            assert path_in(record(PROGRAM, "module", 2, f"lib/{name}", cwd=folder).trace()) == [str(real / "lib" / name)], name
            # Opened from a folder that the program leaves at once.
            assert path_in(record(PROGRAM, "module_from", 2, f"./{name}", real / "lib").trace()) == [str(real / "lib" / name)], name
        # Through a link, which may lead elsewhere by the time that it is read.
        (real / "now").symlink_to("lib")
        assert path_in(record(PROGRAM, "module", 1, real / "now/mod.so").trace()) == [str(real / "lib/mod.so")]
        odd = os.fsencode(real / "lib") + b"/mod\xff.so"
        shutil.copy(MODULE, odd)
        trace = record(PROGRAM, "module", 1, os.fsdecode(odd)).trace()
        assert odd.hex() in [e.fields["about"].get("path_hex") for e in trace.events if e.by == "loaded"]
        # A file that is gone is no file that could be looked at later, whatever has its name then.
        trace = record(PROGRAM, "module_gone", 1, shutil.copy(MODULE, real / "mod_gone.so")).trace()
        about = [e.fields["about"] for e in trace.events if e.by == "loaded" and "mod_gone" in e.fields["about"]["path"]]
        assert [(a["path"], a.get("bytes")) for a in about] == [(str(real / "mod_gone.so"), None)], about
        # The program itself, also where the dynamic linker runs it.
        program = shutil.copy(PROGRAM, real)
        linker = subprocess.run(["readelf", "-l", PROGRAM], capture_output=True, text=True, check=True).stdout.split("interpreter: ")[1].split("]")[0]
        for command in ([program], [linker, f"./{os.path.basename(program)}"], [linker, "--argv0", "x", program]):
            trace = record(*command, "work", 3, 1001, cwd=folder).trace()
            assert trace.head["program"] == program, (command, trace.head["program"])
            assert program in {e.fields["about"]["path"] for e in trace.events if e.by == "loaded"}, command


def names():
    """Threads have the names that they have at last, however they and the process end."""
    def names_of(trace):
        last = {}
        for e in trace.events:
            if e.what == "thread" and e.by == "name":
                last[e.thread] = e.fields["name"]
        return sorted(last.values())

    pool = ["busy-0", "busy-1", "ends", "idle", "is-named"]
    for how in ("return", "exit", "quick_exit", "_exit"):
        assert names_of(Run(PROGRAM, "names", 1, how).wait().trace()) == pool, how
    # Killed, those are known that told their name, or went on for a block.
    for how in ("kill", "segv", "abort", "exit_group"):
        run = Run(PROGRAM, "names", 1, how).wait()
        assert run.status != 0 or how == "exit_group", (how, run.status)
        assert set(names_of(run.trace())) >= {"busy-0", "busy-1", "ends", "idle"}, (how, names_of(run.trace()))
    trace = sound(record(PROGRAM, "names", 1, "rename").trace())
    assert [e.fields["name"] for e in trace.events if e.what == "thread" and e.by == "name"] == ["first", "second", "main-at-last"], trace.count()


def allocators():
    """Behind ours, another malloc."""
    found = 0
    for library in (DEBIAN / "libjemalloc.so.2", DEBIAN / "libmimalloc.so.2", DEBIAN / "libtcmalloc_minimal.so.4", LIBRARY / "libquarry-malloc.so"):
        if not library.exists():
            print(f"SKIP: needs {library} (scripts/setup.sh test)")
            continue
        found += 1
        run = record(PROGRAM, "exchange", 20000, 3, preload=[library])
        trace = sound(run.trace())
        assert os.path.realpath(trace.head["malloc"]) == os.path.realpath(library), trace.head["malloc"]
        left, impossible = qtr.live(trace)
        assert not impossible, (library, impossible[:3])
        base, trace = (sound(record(PROGRAM, "common", n, 0, preload=[library]).trace()) for n in (0, 100))
        got = more(trace, base)
        for key, n in {**FAMILY, ("alloc", "memalign"): 3, ("free", "free"): 8, ("free", "other"): 0, ("failed", "memalign"): 0}.items():
            assert key[0] == "touched" or got.get(key, 0) == 100 * n, (library, key, got)
        base, trace = (sound(record(PROGRAM_CXX, n, preload=[library]).trace()) for n in (0, 100))
        assert more(trace, base) == times(FORMS, 100), (library, more(trace, base))
    assert found


def stacks():
    counts = {}
    for mode in ("none", "fp", "cfi"):
        run = record(PROGRAM, "family", 50, 2, options=f"stacks:{mode}")
        trace = sound(run.trace())
        nodes = {e.fields["id"]: e.fields["parent"] for e in trace.events if e.what == "stack"}
        assert all(parent == 0 or parent in nodes for parent in nodes.values())
        used = [e.fields.get("stack", 0) for e in trace.events if e.what in ("alloc", "realloc")]
        assert all(s == 0 or s in nodes for s in used)
        counts[mode] = sum(s != 0 for s in used) / len(used)
        assert trace.head["stacks"] == mode, trace.head
        if mode == "cfi":
            base = next(e.fields["base"] for e in trace.events if e.by == "loaded" and e.fields["about"]["path"] == PROGRAM)
            program = [e for e in trace.events if e.what == "stack" and 0 <= e.fields["pc"] - base < 1 << 20]
            assert len(program) > 20, len(program)
            # The innermost frame of a marked allocation is in the program, not in the recorder.
            pcs = {e.fields["id"]: e.fields["pc"] for e in trace.events if e.what == "stack"}
            large = [e for e in trace.events if e.what == "alloc" and e.fields["size"] == 400000]
            assert large and all(0 <= pcs[e.fields["stack"]] - base < 1 << 20 for e in large[1:])
    assert counts["none"] == 0 and counts["cfi"] > 0.9 and counts["fp"] > 0.9, counts


def pools():
    """The table by which pools are recorded: the program calls every function of it."""
    run = record(PROGRAM, "pools", 3)
    trace = sound(run.trace())
    got = [(e.by, e.fields) for e in trace.events if e.what == "pool"]
    for i in range(3):
        mine = [(by, {k: v for k, v in f.items() if k != "pool"}) for by, f in got if f["pool"] == i + 1]
        assert mine == [
            ("created", {"parent": i, "kind": "stack", "name": "näme"}), ("pushed", {}),
            ("alloc", {"size": 100, "address": 0x10000, "align": 4, "stack": 0}), ("alloc", {"size": 5, "address": 0x10073, "align": 0, "stack": 0}),
            ("resized", {"old": 0x10000, "size": 300, "address": 0x20000, "stack": 0}), ("free", {"address": 0x10073}),
            ("sealed", {"cookie": 77}), ("released", {"cookie": 77}), ("held", {"held": 65536, "used": 305}), ("popped", {}), ("emptied", {}),
            ("destroyed", {})], mine
    assert not [e for e in record(PROGRAM, "pools", 3, options="sample:1000").trace().events if e.what == "pool"]


def sampling():
    mean, n = 4096, 20000
    for threads in (1, 4):
        trace = sound(record(PROGRAM, "churn_threads", n, threads, options=f"sample:{mean}").trace())
        assert trace.head["sample"] == mean
        allocated = [e for e in trace.events if e.what == "alloc"]
        size = collections.Counter()
        for e in allocated:
            size[e.fields["size"]] += 1
        # Sizes are uniform in 0..1023: a block of s bytes is drawn with 1 - exp(-s / mean), in all 11.7 %.
        expected = threads * n * sum(1 - 2.718281828 ** (-s / mean) for s in range(1024)) / 1024
        assert abs(len(allocated) - expected) < 6 * expected ** 0.5 + 20, (len(allocated), expected)
        bytes_ = sum(s / (1 - 2.718281828 ** (-s / mean)) * c for s, c in size.items())
        assert abs(bytes_ / (threads * n * 511.5) - 1) < 0.1, bytes_
        left, impossible = qtr.live(trace)
        assert not impossible and len(left) < threads * 64, (len(left), impossible[:3])
    record(PROGRAM, "family", 200, 2, options="sample:100")


HOLDS = """import ctypes, mmap, sys
c = ctypes.CDLL(None)
c.malloc.restype = c.memset.restype = ctypes.c_void_p
c.malloc.argtypes, c.memset.argtypes = [ctypes.c_size_t], [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
whole = c.memset(c.malloc(30 << 20), 1, 30 << 20)
part = c.memset(c.malloc(31 << 20), 1, 5 << 20)
none = c.malloc(32 << 20)
shared = mmap.mmap(-1, 40 << 20)
for at in range(0, 40 << 20, 4096): shared[at] = 1
[[n] for n in range(20000)]
print([line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")][0], whole, part, none)
"""


def usage():
    """What the process holds is as the kernel says, and without the recorder's it is what the process holds alone."""
    mib = 1 << 20
    command = sys.executable, "-S", "-c", HOLDS
    env = {"PYTHONMALLOC": "malloc"}
    alone = int(subprocess.run(command, capture_output=True, check=True, env={**os.environ, **env}).stdout.split()[0]) * 1024
    for options in ("", "stacks:cfi"):
        run = record(*command, options=options, env=env)
        trace = sound(run.trace())
        peak, *addresses = (int(word) for word in run.out.split())
        said = [e.fields for e in trace.events if e.what == "extension" and e.by == "usage"]
        memory = [e for e in trace.events if e.what == "memory"]
        assert len(said) == len(memory) > 1, (len(said), len(memory))
        for one, e in zip(said, memory):
            assert one["anonymous"] == e.fields["anonymous"] and one["file"] + one["shared"] == e.fields["file"], (one, e)
        assert said == sorted(said, key=lambda one: one["cpu_ns"]) and said[0]["cpu_ns"] > 0
        last, most = said[-1], max(one["peak"] for one in said)
        assert most - last["peak"] < mib, (most, last)  # the kernel's figure is exact within some pages for each processor
        total = last["anonymous"] + last["file"] + last["shared"]
        # When it ends, it has unmapped what it shared.
        assert last["anonymous"] >= 35 * mib and most >= 75 * mib and most > total, last
        own = last["own_anonymous"] + last["own_file"]
        assert own > 64 << 10 and last["own_anonymous"] > 0 and last["own_file"] > 0, last
        assert peak * 1024 - most < mib and abs(most - own - alone) < 2 * mib, (most, last, alone)
        resident = {e.fields["address"]: e.fields["bytes"] for e in trace.events if e.what == "extension" and e.by == "resident"}
        whole, part, none = (resident[address] / mib for address in addresses)
        # Of long blocks a part of the pages is looked at.
        assert 29.9 < whole <= 30 and 4 < part < 7 and none < 0.1, (whole, part, none)
    # What it does besides: asking for the size of a block, and having no huge pages (PR_SET_THP_DISABLE).
    for call, traits in (("getpid()", 0), ("malloc_usable_size(None)", 1), ("prctl(41, 1, 0, 0, 0)", 2)):
        run = record(sys.executable, "-S", "-c", f"import ctypes\nctypes.CDLL(None).{call}")
        said = [e.fields["traits"] for e in sound(run.trace()).events if e.what == "extension" and e.by == "usage"]
        assert said[0] & 3 == 0 and said[-1] & 3 == traits, (call, said)
    # A child has what it does itself: its time begins anew, and so do its looks.
    fork = "import os\np = os.fork()\n[[n] for n in range(20000)]\nif p: os.waitpid(p, 0)\n"
    for trace in record(sys.executable, "-S", "-c", fork, options="follow:on").traces():
        said = [e for e in sound(trace).events if e.what == "extension" and e.by == "usage"]
        assert said and said[-1].fields["peak"] >= said[-1].fields["anonymous"] > mib, said


def faults():
    """Each call to the kernel fails in turn: the program does not notice, and the trace can be read."""
    stopped = 0
    for persist in "op":
        for n in list(range(1, 16)) + list(range(16, 120, 13)):
            run = record(PROGRAM, "fault", 4000, n, persist, recorder=FAKE)
            assert run.out == "done\n", (n, run.out, run.err)
            trace = run.trace()
            assert not trace.problems, (n, persist, trace.problems[:5], run.err)
            assert trace.end, n
            stopped += trace.end["reason"] != "exit"
            # Where nothing is answered any more, it cannot be known whether descriptor 2 is still the one to be told.
            assert len(run.err.splitlines()) == (trace.end["reason"] != "exit") or (persist == "p" and not run.err), run.err
    assert stopped > 10, stopped


def mistakes():
    """A wrong variable or place: one line, and the program runs."""
    with tempfile.TemporaryDirectory() as folder:
        fifo = pathlib.Path(folder) / "fifo"
        os.mkfifo(fifo)
        for value, said in (("file:/nonexistent/x.qtr", "no such folder"), ("stacks:none", "no file:PATH"), ("file:x,what:1", "what is what:1?"),
                            ("file:x,follow:on", "needs %p"), (f"file:{folder}", "not a regular file"), (f"file:{fifo}", "not a regular file"),
                            ("file:/dev/full", "not a regular file"), ("file:x,sample:9z", "what is sample:9z?"), (f"file:{'x' * 5000}", "what is")):
            run = record(PROGRAM, "work", 10, 10, env={"QUARRY_RECORD": value}, cwd=folder)
            assert run.out == "done\n" and said in run.err and len(run.err.splitlines()) == 1, (value, run.err)
        run = record(PROGRAM, "work", 10, 10, env={"QUARRY_RECORD": ""}, cwd=folder)
        quiet = dict(os.environ, LD_PRELOAD=str(RECORDER))
        done = subprocess.run([PROGRAM, "family", "10", "2"], env=quiet, capture_output=True, text=True, cwd=folder)
        assert done.stdout == "done\n" and not done.stderr and sorted(os.listdir(folder)) == ["fifo"], (done, os.listdir(folder))
        run = record(PROGRAM, "work", 10, 1001, env={"QUARRY_RECORD": f"file:{folder}/a%cb%%%e.qtr"})
        assert sizes(sound(qtr.Trace(f"{folder}/a,b%trace_program.qtr")))[1001] == 10
        run = record("/bin/sh", "-c", "true; /bin/true; exec /bin/true", options="pid:1")
        assert not run.files() and not run.err


def programs():
    """Programs of other people do what they do unrecorded."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        source = pathlib.Path(__file__).parent / "program.c"
        commands = {
            "python3": [["python3", "-c", "import json; print(len(json.dumps([{str(i): i} for i in range(20000)])))"], {"PYTHONMALLOC": "malloc"}],
            "perl": [["perl", "-e", 'my %h; for (1..50000) { $h{$_ % 5000} .= "x" . $_ if length($h{$_ % 5000} // "") < 200 } print scalar keys %h'], {}],
            "sqlite3": [["sqlite3", ":memory:", "with recursive c(x) as (select 1 union all select x+1 from c where x<20000) "
                         "select count(distinct hex(x*7919%65537)||x) from c"], {}],
            "gcc": [["gcc", "-O1", "-S", str(source), "-o", "-", "-I", str(source.parents[2] / "src")], {}],
        }
        for name, (command, env) in commands.items():
            if not shutil.which(name):
                print(f"SKIP: needs {name} (scripts/setup.sh test)")
                continue
            plain = subprocess.run(command, env={**os.environ, **env}, capture_output=True, cwd=folder)
            run = record(*command, options="follow:on", env=env, cwd=folder)
            assert plain.returncode == 0 and run.out == plain.stdout.decode(errors="replace"), (name, run.out, plain.stdout)
            traces = [t for t in run.traces()]
            assert traces and all(not t.problems for t in traces), (name, [t.problems[:3] for t in traces])
            events = sum(len(t.events) for t in traces)
            bytes_ = sum(b.used for t in traces for b in t.blocks if b.kind == qtr.EVENTS)
            for t in traces:
                left, impossible = qtr.live(t)
                unknown = [m for m in impossible if m[3] == "-"]
                # Blocks from before a fork, or of the dynamic linker before the recorder was asked.
                assert len(unknown) == len(impossible), (name, t.head["program"], impossible[:3])
            print(f"{name}: {len(traces)} processes, {events} records, {bytes_ / max(events, 1):.2f} bytes each")


GROUPS = (calls, threads, children, ends, kill, start, early, disk, descriptors, modules, names, allocators, stacks, pools, sampling, usage, faults, mistakes,
          programs)


def main():
    wanted = sys.argv[6:]
    if unknown := set(wanted) - {group.__name__ for group in GROUPS}:
        sys.exit(f"no group {', '.join(unknown)}")
    print(f"seed {SEED}")
    for group in GROUPS:
        if not wanted or group.__name__ in wanted:
            print(f"run {group.__name__}", flush=True)
            group()


if __name__ == "__main__":
    main()
