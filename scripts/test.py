#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run tests and checks, say for each step how it went, and end with one line that sums them up.

A step is a CMake preset with its tests, a cargo command, or a check. Tests wait as often as they compute,
and so builds, C tests and Rust tests go on side by side, those of one step after those of another. What a step
prints goes to build/test-logs/STEP.log; the end of it is shown when the step fails. Counted are test cases: each
TEST() of a C test, each #[test] of a Rust test, and each script and check as one. A skip whose reason
does not begin with "needs" is a failure: it names what would make it run. Exit status 1 if anything failed; then the last lines name it. The very last is: N passed, N failed, N skipped.

A test must pass on a busy machine, and each time. --repeat and --load try that:
  test.py --repeat 5 --load 4 release
runs the tests of the step release five times, beside four processes that use a processor each. What
only compiles or reads is done once, before these begin. It then lists what failed at least once and how often. The log of a run that failed stays, as
build/test-logs/STEP.run-K.log. The busy processes end with test.py, however it ends.
"""
import argparse
import collections
import concurrent.futures
import contextlib
import io
import json
import os
import pathlib
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[1]
LOGS = ROOT / "build" / "test-logs"
JOBS = str(os.cpu_count() or 2)
# Scripts find this interpreter first, and not a script that looks for one (pyenv's takes longer than Python's start).
os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
CARGO = ["--manifest-path", "tools/Cargo.toml"]
# The profile is what tools/Cargo.toml has for tests.
TESTED = [*CARGO, "--profile", "bench", "--workspace"]

Count = collections.namedtuple("Count", "passed failed skipped")


def add(*counts):
    return Count(*map(sum, zip(Count(0, 0, 0), *counts)))


def run(command, log, **environment):
    """Run with output to the log; its exit status and its output."""
    log.write(f"$ {' '.join(map(str, command))}\n")
    log.flush()
    start = log.tell()
    try:
        status = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                env={**os.environ, **environment}).returncode
    except FileNotFoundError:
        log.write(f"{command[0]}: not found; see scripts/setup.sh\n")
        log.flush()
        status = 127
    with open(log.name, errors="replace") as text:
        text.seek(start)
        return status, text.read()


def one(status):
    return Count(int(status == 0), int(status != 0), 0)


# ---- C ------------------------------------------------------------------------------------------

def of_nothing(name, reasons):
    """What to say of skips that do not name what would make them run."""
    return [f"FAILED {name}: skipped, and the reason does not say \"needs ...\": {reason}" for reason in reasons
            if not re.search(r"(^|: )needs ", reason)]


def count_junit(path):
    """Cases in CTest's report, and what to say about the failures and skips among them."""
    total, notes = Count(0, 0, 0), []
    for case in xml.etree.ElementTree.parse(path).iter("testcase"):
        name, output = case.get("name"), case.findtext("system-out") or ""
        reasons = re.findall(r"^SKIP: *(.*)$", output, re.M)
        unknown = of_nothing(name, reasons)
        total, notes = add(total, Count(0, len(unknown), 0)), notes + unknown
        cases = re.search(r"^ok (\d+)$", output, re.M)
        if case.get("status") == "fail":
            total = add(total, Count(0, 1, 0))
            notes.append(f"FAILED {name}\n" + "\n".join("    | " + line for line in output.splitlines()[-40:]))
        elif case.get("status") != "run":
            total = add(total, Count(0, 0, 1))
            notes.append(f"skipped {name}: {reasons[0] if reasons else 'exit status 77'}")
        elif cases:
            total = add(total, Count(int(cases.group(1)) - len(reasons), 0, len(reasons)))
            notes += [f"skipped in {name}: {reason}" for reason in reasons]
        else:
            total = add(total, Count(1, 0, 0))
    return total, notes


def build(name, log, configured=None):
    """Builds a preset. `configured`: it builds and tests a part of what this one configures."""
    for command in (["cmake", "--preset", configured or name], ["cmake", "--build", "--preset", name, "--", "-j" + JOBS]):
        if run(command, log)[0]:
            return Count(0, 1, 0), [f"FAILED {' '.join(command)}"]
    return Count(0, 0, 0), []


def ctest(name, log):
    """A preset's tests."""
    report = LOGS / f"{name}.xml"
    report.unlink(missing_ok=True)
    # Two more at a time than processors: many tests sleep. Some kernels place mappings more randomly than ThreadSanitizer can take.
    fixed = ["setarch", "-R"] if name == "tsan" and run(["setarch", "-R", "true"], log)[0] == 0 else []
    status, _ = run([*fixed, "ctest", "--preset", name, "-j" + str(int(JOBS) + 2), "--output-junit", report,
                     "--test-output-size-passed", "1000000", "--test-output-size-failed", "1000000"], log)
    if not report.exists():
        return Count(0, 1, 0), [f"FAILED ctest --preset {name}: no report"]
    total, notes = count_junit(report)
    if status and not total.failed:
        total, notes = add(total, Count(0, 1, 0)), notes + [f"FAILED ctest --preset {name}: exit status {status}"]
    return total, notes


def preset(name, configured=None, needs=None):
    """The step of a preset. `needs`: the compiler, if it may be missing."""
    def missing():
        return needs and not shutil.which(needs)

    def built(log):
        if missing():
            return Count(0, 0, 1), [f"skipped {name}: needs the command {needs} (scripts/setup.sh test)"]
        return build(name, log, configured)

    return [("build", built), ("C tests", lambda log: (Count(0, 0, 0), []) if missing() else ctest(name, log))]


def c_files():
    """Every C and C++ file of ours."""
    folders = ("include", "src", "tests", "bench", "examples", "bindings", "tools")
    files = []
    for folder in folders:
        files += [f for f in (ROOT / folder).rglob("*") if f.suffix in (".c", ".h", ".cc", ".cpp", ".hpp")
                  and "target" not in f.parts]
    return sorted(str(f.relative_to(ROOT)) for f in files)


def clang_format(log):
    return one(run(["clang-format", "--dry-run", "-Werror", *c_files()], log)[0]), []


def clang_tidy(log, nodes=50000):
    """Each source file of src/ once, with the flags of the clang preset. `nodes`: how far the analyzer follows a
    function; its own limit of 225,000 takes five times as long."""
    if run(["cmake", "--preset", "clang"], log)[0]:
        return Count(0, 1, 0), ["FAILED cmake --preset clang"]
    entries = json.loads((ROOT / "build-clang" / "compile_commands.json").read_text())
    # Each file is compiled for several libraries, and clang-tidy would look at it as often: one is enough, the
    # one for the tests, which has all assertions.
    chosen = {}
    for entry in entries:
        if pathlib.Path(entry["file"]).is_relative_to(ROOT / "src"):
            if entry["file"] not in chosen or "quarry_test_objects" in entry["command"]:
                chosen[entry["file"]] = entry
    files = sorted(chosen)
    database = ROOT / "build-clang" / "tidy"
    database.mkdir(exist_ok=True)
    (database / "compile_commands.json").write_text(json.dumps(list(chosen.values())))

    def tidy(file):
        limit = [f"--extra-arg={arg}" for arg in ("-Xclang", "-analyzer-config", "-Xclang", f"max-nodes={nodes}")]
        done = subprocess.run(["clang-tidy", "-p", database, "--quiet", *limit, file], cwd=ROOT,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True)
        return file, done.returncode, done.stdout

    with concurrent.futures.ThreadPoolExecutor(int(JOBS)) as pool:
        results = list(pool.map(tidy, files))
    notes = []
    for file, status, output in results:
        log.write(f"$ clang-tidy {file}\n{output}")
        if status:
            notes.append(f"FAILED {file}\n{output}")
    return Count(len(files) - len(notes), len(notes), 0), notes


def rules(log):
    names = ("layers", "sizes", "docs", "scopes", "prose", "macros", "names", "figures")
    checks = [*([f"scripts/check_{n}.py"] for n in names), ["scripts/generate_docs.py", "--check"]]
    return add(*(one(run(["python3", *check], log)[0]) for check in checks)), []


# ---- Rust ---------------------------------------------------------------------------------------

def count_cargo(output, status):
    total = Count(0, 0, 0)
    for match in re.finditer(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored", output, re.M):
        total = add(total, Count(*map(int, match.groups())))
    # A compile error, or a crash of the test program, is a failure nobody counted.
    return add(total, Count(0, 1, 0)) if status and not total.failed else total


# Clippy looks at our crates as they are compiled for the tests: it needs no dependency a second time. It is a compiler, too, but
# one that optimises less. The second word is how `cargo clippy` hands over "-D warnings"; self_test_lints sees if that changes.
LINTED = {"RUSTC_WORKSPACE_WRAPPER": "clippy-driver", "CLIPPY_ARGS": "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__"}


def cargo(log, *command, **environment):
    return run(["cargo", *command], log, CARGO_TARGET_DIR=str(ROOT / "build/cargo"), QUARRY_LIB_DIR=str(ROOT / "build/lib"),
               QUARRY_BUILD_DIR=str(ROOT / "build"), QUARRY_SOURCE_DIR=str(ROOT), **environment)


def cargo_build(log):
    failed = cargo(log, "test", *TESTED, "--no-run", **LINTED)[0]
    return Count(0, int(failed != 0), 0), ["FAILED cargo test --no-run, with clippy"] if failed else []


def cargo_test(log):
    status, output = cargo(log, "test", *TESTED, "--no-fail-fast", **LINTED)
    return count_cargo(output, status), re.findall(r"^test .* FAILED$|^error.*", output, re.M)


def clippy(log):
    return one(cargo(log, "clippy", *TESTED, "--all-targets", "--", "-D", "warnings")[0]), []


def rustfmt(log):
    return one(cargo(log, "fmt", *CARGO, "--all", "--", "--check")[0]), []


# ---- the runner ---------------------------------------------------------------------------------

def check(function):
    """The step of a check, which compiles or reads."""
    return [("build", function)]


# The phases of each step: in which lane, and what. Lanes go on side by side, and the phases of one lane follow each other.
# Each folder of builds belongs to the lane "build" alone, and the tests in it to one lane.
STEPS = {
    "release": preset("release"),
    "rust": [("build", cargo_build), ("Rust tests", cargo_test)],  # some run programs of the release step
    "tsan": preset("tsan"),
    "asan-ubsan": preset("asan-ubsan"),
    "clang": preset("clang"),
    "level-2": preset("level-2", configured="clang"),
    "musl": preset("musl", needs="musl-gcc"),
    "tidy": check(clang_tidy),
    "clippy": check(clippy),
    "format": check(clang_format),
    "rustfmt": check(rustfmt),
    "tidy-deep": check(lambda log: clang_tidy(log, nodes=225000)),
    "rules": check(rules),
}
# rules: tests of the release step; tidy-deep: make torture; clippy: the step rust, which fails by the same lints.
DEFAULT = [step for step in STEPS if step not in ("rules", "tidy-deep", "clippy")]


def in_short(note):
    """The first line of a note and its last few ones: what whoever sees only the end of a long log needs."""
    first, *rest = note.splitlines()
    return "\n".join([first, *(line[:160] for line in rest[-8:])])


def failures(step, count, notes):
    """A few lines for each thing that failed, or one for the step."""
    short = [in_short(note) for note in notes if not note.startswith("skipped")]
    return [f"{step}: {lines}" for lines in short or ["FAILED"]] if count.failed else []


class Lanes:
    """Runs the phases of steps, each in its lane."""

    def __init__(self, steps):
        self.steps = steps
        self.lanes = {lane: concurrent.futures.ThreadPoolExecutor(1) for phases in steps.values() for lane, _ in phases}
        self.finished = queue.SimpleQueue()

    def begin(self, step, log, phase=0, count=Count(0, 0, 0), notes=(), took=0):
        self.lanes[self.steps[step][phase][0]].submit(self.run, step, log, phase, count, notes, took)

    def run(self, step, log, phase, count, notes, took):
        """One phase, and then the next one if there is one and nothing failed."""
        start = time.monotonic()
        try:
            more, said = self.steps[step][phase][1](log)
            count, notes, took = add(count, more), [*notes, *said], took + time.monotonic() - start
            if phase + 1 < len(self.steps[step]) and not more.failed:
                self.begin(step, log, phase + 1, count, notes, took)
            else:
                self.finished.put((step, count, notes, took))
        except BaseException as error:  # of main, which waits
            self.finished.put(error)

    def __iter__(self):
        """Each step as it ends: its name, count, notes and seconds."""
        while True:
            result = self.finished.get()
            if isinstance(result, BaseException):
                raise result
            yield result

    def end(self):
        """Begins nothing more, and waits for what goes on."""
        for wait in (False, True):
            for lane in self.lanes.values():
                lane.shutdown(wait, cancel_futures=True)


def show(name, path, count, notes, took):
    print(f"{name:12} {count.passed:5} passed {count.failed:4} failed {count.skipped:4} skipped {took:7.0f} s", flush=True)
    for note in notes:
        print("  " + note.replace("\n", "\n  "))
    if count.failed and not any("\n" in note for note in notes):  # else the notes hold the output
        print(f"  the end of {os.path.relpath(path, ROOT)}:")
        for line in path.read_text(errors="replace").splitlines()[-30:]:
            print("    | " + line)
    sys.stdout.flush()


def run_steps(steps, run=None):
    """The sum, and what failed, in the order of the steps: the phases by name. `run`: which of several, whose logs stay if they failed."""
    LOGS.mkdir(parents=True, exist_ok=True)
    results, failed = [], {}
    with contextlib.ExitStack() as open_files:
        logs = {name: open_files.enter_context(open(LOGS / f"{name}.log", "w+")) for name in steps}
        lanes = Lanes(steps)
        open_files.callback(lanes.end)
        for name, log in logs.items():
            lanes.begin(name, log)
        for _, (name, count, notes, took) in zip(logs, lanes):
            logs[name].flush()
            path = LOGS / f"{name}.log"
            if run and count.failed:
                path = shutil.copy(path, path.with_suffix(f".run-{run}.log"))
            show(name, path, count, notes, took)
            results.append(count)
            failed[name] = failures(name, count, notes)
    return add(*results), [line for name in logs for line in failed[name]]


# It looks whether its parent is still there, so that it ends with it in any case. In a session of its own the kernel would give
# it as much of a processor as all tests together (sched_autogroup_enabled), so it has only a group of processes.
BUSY = """
import os, sys
os.setpgid(0, 0)
while os.getppid() == int(sys.argv[1]):
    for _ in range(1000000): pass
"""


@contextlib.contextmanager
def busy(count):
    """Meanwhile, `count` processes use a processor each. Ctrl-C does not reach them: they are ended here."""
    processes = []
    try:
        for _ in range(count):
            processes.append(subprocess.Popen([sys.executable, "-c", BUSY, str(os.getpid())], stdin=subprocess.DEVNULL))
        yield processes
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


def run_repeatedly(names, times, load):
    """The sum of all runs, and what failed in how many of them. What is built or read is the same each time, and does not depend on what runs beside."""
    for old in LOGS.glob("*.run-*.log"):
        old.unlink()
    builds, tests = ({name: phases for name in names if (phases := [phase for phase in STEPS[name] if (phase[0] == "build") == is_build])}
                     for is_build in (True, False))
    if builds:
        print("builds and checks, once", flush=True)
        total, lines = run_steps(builds)
        if lines:
            return total, lines
    total, failed = total if builds else Count(0, 0, 0), collections.Counter()
    with busy(load):
        for run in range(1, times + 1 if tests else 1):
            print(f"run {run} of {times} beside {load} busy processes", flush=True)
            count, names_failed = run_steps(tests, run)
            total = add(total, count)
            failed.update({lines.splitlines()[0] for lines in names_failed})
    return total, [f"{name}: {often} of {times} runs" for name, often in failed.most_common()]


def self_test():
    report = """<testsuite>
      <testcase name="a" status="run"><system-out>seed 1\nrun x\nSKIP: needs y\nrun z\nok 2\n</system-out></testcase>
      <testcase name="b" status="run"><system-out>a script\n</system-out></testcase>
      <testcase name="c" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/><system-out>SKIP: a/b: needs z</system-out></testcase>
      <testcase name="d" status="fail"><failure message="Failed"/><system-out>FAILED x.c:1\nok 3</system-out></testcase>
    </testsuite>"""
    with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:
        file.write(report)
        file.flush()
        total, notes = count_junit(file.name)
    assert total == Count(2, 1, 2), total
    assert notes[0] == "skipped in a: needs y" and notes[1] == "skipped c: a/b: needs z" and "x.c:1" in notes[2], notes
    assert [note[:15] for note in of_nothing("a", ["needs a", "b: needs a", "no b", "b needs"])] == ["FAILED a: skipp"] * 2
    text = "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured\ntest result: FAILED. 2 passed; 1 failed; 0 ignored;\n"
    assert count_cargo(text, 101) == Count(5, 1, 1)
    assert count_cargo("error: could not compile\n", 101) == Count(0, 1, 0)
    assert one(1) == Count(0, 1, 0)
    assert failures("tsan", total, notes) == ["tsan: FAILED d\n    | FAILED x.c:1\n    | ok 3"] and failures("format", one(1), []) == ["format: FAILED"]
    assert not failures("tsan", Count(1, 0, 1), notes[:1])
    assert in_short("a\n" + "\n".join(f"{i}" * 200 for i in range(9))) == "a\n" + "\n".join(f"{i}" * 160 for i in range(1, 9))
    self_test_repeat()
    self_test_lanes()
    self_test_busy()
    self_test_lints()
    print("self-test: failures and skips are counted, also over several runs; lanes keep the order; busy processes end with the run; lints fail")


def self_test_repeat():
    """A step that fails in the second of three runs fails, and one that never does is not listed."""
    global LOGS
    results = iter([one(0), one(1), one(0)])

    def seldom(log):
        count = next(results)
        log.write("what it said\n")
        return count, ["FAILED x\n    | why"] if count.failed else []

    logs, LOGS = LOGS, pathlib.Path(tempfile.mkdtemp())
    built = []
    STEPS.update(seldom=[("build", lambda log: (built.append(log), (Count(0, 0, 0), []))[1]), ("C tests", seldom)],
                 always=[("C tests", lambda log: (one(0), []))], read=check(lambda log: (one(0), [])), broken=check(lambda log: (one(1), ["FAILED"])))
    with contextlib.redirect_stdout(io.StringIO()):
        total, failed = run_repeatedly(["seldom", "always", "read"], 3, 0)
        assert run_repeatedly(["always", "broken"], 3, 0) == (Count(0, 1, 0), ["broken: FAILED"])
        assert run_repeatedly(["read"], 3, 0) == (one(0), [])
    assert total == Count(6, 1, 0) and failed == ["seldom: FAILED x: 1 of 3 runs"] and len(built) == 1, (total, failed, built)
    for step in ("seldom", "always", "read", "broken"):
        del STEPS[step]
    shutil.rmtree(LOGS)
    LOGS = logs


def self_test_lanes():
    """A phase waits for the one before it in its step and in its lane, and not for other lanes. After a failure none follows."""
    global LOGS
    said, waits = [], threading.Event()

    def phase(word, count=Count(0, 0, 0), wait=False, free=False):
        def phase_of(log):
            if wait:
                assert waits.wait(300)
            if free:
                waits.set()
            said.append(word)
            return count, []
        return phase_of

    logs, LOGS = LOGS, pathlib.Path(tempfile.mkdtemp())
    STEPS.update(first=[("a", phase("first builds")), ("b", phase("first tests", one(0), wait=True))],
                 second=[("a", phase("second fails", one(1), free=True)), ("b", phase("never"))],
                 third=[("a", phase("third builds")), ("b", phase("third tests", one(0)))])
    with contextlib.redirect_stdout(io.StringIO()):
        total, failed = run_steps({name: STEPS[name] for name in ("first", "second", "third")})
    assert total == Count(2, 1, 0) and failed == ["second: FAILED"], (total, failed)
    assert [word for word in said if "tests" not in word] == ["first builds", "second fails", "third builds"], said
    assert [word for word in said if "tests" in word] == ["first tests", "third tests"], said
    assert said.index("second fails") < said.index("first tests"), said
    STEPS.update(first=[("a", lambda log: 1 // 0)])
    with contextlib.suppress(ZeroDivisionError):
        run_steps({"first": STEPS["first"]})
        raise AssertionError("an error of the runner is lost")
    for step in ("first", "second", "third"):
        del STEPS[step]
    shutil.rmtree(LOGS)
    LOGS = logs


def self_test_busy():
    """They run; they are gone after an interruption, and when test.py was killed."""
    with contextlib.suppress(KeyboardInterrupt), busy(2) as processes:
        assert len(processes) == 2 and not any(process.poll() for process in processes)
        raise KeyboardInterrupt
    assert all(process.returncode for process in processes), processes
    killed = "import os, sys; sys.path.insert(0, sys.argv[1]); import test\nwith test.busy(1): os.kill(os.getpid(), 9)"
    with subprocess.Popen([sys.executable, "-B", "-c", killed, str(ROOT / "scripts")], stdout=subprocess.PIPE) as gone:
        gone.stdout.read()  # ends when nobody has the pipe: the busy process inherited it


def self_test_lints():
    """The step rust fails when clippy has something to say, in a library, a program, a test or an example."""
    if not shutil.which("clippy-driver"):
        return print("self-test: whether lints of Rust fail needs clippy-driver, and was not tried")
    files = {"src/lib.rs": "", "src/main.rs": "fn main() {}", "tests/a.rs": "", "examples/b.rs": "fn main() {}"}
    lint = "\npub fn nothing(a: &str) -> bool { a.len() == 0 }\n"
    with tempfile.TemporaryDirectory() as folder, open(os.path.join(folder, "log"), "w+") as log:
        (pathlib.Path(folder) / "Cargo.toml").write_text('[package]\nname = "linted"\nversion = "0.1.0"\nedition = "2024"\n[workspace]\n')
        for planted in (None, *files):
            for name, text in files.items():
                path = pathlib.Path(folder, name)
                path.parent.mkdir(exist_ok=True)
                path.write_text(text + lint * (name == planted))
            command = ["cargo", "test", "--no-run", "--offline", "--manifest-path", f"{folder}/Cargo.toml"]
            status, output = run(command, log, CARGO_TARGET_DIR=f"{folder}/target", **LINTED)
            assert (status != 0) == (planted is not None) and ("len_zero" in output) == (planted is not None), output


def positive(text):
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def arguments():
    parser = argparse.ArgumentParser(prog="test.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("steps", nargs="*", metavar="STEP", help="all steps of the default set, or the named ones")
    parser.add_argument("--repeat", type=positive, metavar="N", help="run the steps N times and list what failed at least once")
    parser.add_argument("--load", type=positive, metavar="M", help="run beside M processes that use a processor each")
    parser.add_argument("--list", action="store_true", help="print the steps")
    parser.add_argument("--files", action="store_true", help="print the C and C++ files that are formatted")
    parser.add_argument("--self-test", action="store_true", help="prove that failures and skips are counted")
    given = parser.parse_args()
    unknown = [n for n in given.steps if n not in STEPS]
    if unknown:
        parser.error(f"no step {unknown[0]}; there are: {', '.join(STEPS)}")
    return given


def main():
    given = arguments()
    if given.self_test:
        return self_test()
    if given.list:
        return print("\n".join(STEPS))
    if given.files:
        return print("\n".join(c_files()))
    names = given.steps or DEFAULT
    if given.repeat or given.load:
        total, failed = run_repeatedly(names, given.repeat or 1, given.load or 0)
    else:
        total, failed = run_steps({name: STEPS[name] for name in names})
    print("".join(line + "\n" for line in failed), end="")
    print(f"{total.passed} passed, {total.failed} failed, {total.skipped} skipped", flush=True)
    return bool(total.failed)


if __name__ == "__main__":
    sys.exit(main())
