#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Programs with known leaks under libquarry-check: the lines of its report, by the sizes of the blocks.

  cases.py FOLDER GROUP    FOLDER has leak_program and the others of this folder; group pause measures, by hand
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(os.environ["QUARRY_SOURCE_DIR"]) / "tests" / "check"))
import reports

FOLDER = pathlib.Path(sys.argv[1])
PROGRAM, CXX, SANDBOX, CHURN = (
    str(FOLDER / name) for name in ("leak_program", "leak_program_cxx", "leak_sandbox", "leak_churn"))
STOP_SIGNAL = 63  # src/os/stop.h
PATIENCE = 300


def leaks(report, reachable=False):
    """(kind, bytes, blocks, bytes and blocks that they hold), sorted; one for all blocks of a size."""
    sums = {}
    for x in report.of("leak"):
        if x["kind"] == "leak-growing" or (x["kind"] == "leak-reachable" and not reachable):
            continue
        row = sums.setdefault((x["kind"][5:], x["bytes"] // x["blocks"]), [0, 0, 0, 0])
        for i, field in enumerate(("bytes", "blocks", "indirect_bytes", "indirect_blocks")):
            row[i] += x[field]
    return sorted((kind, *row) for (kind, _), row in sums.items())


def same(found, wanted, what):
    assert found == sorted(wanted), f"{what}:\n  found {found}\n  want  {sorted(wanted)}"


def whole(report, what):
    scans = report.of("scan")
    assert scans and scans[-1]["incomplete"] is None, f"{what}: {scans}"
    return scans[-1]


def expect(case, wanted, program=PROGRAM, **options):
    found = reports.run([program, case], leaks="exit", **options)
    assert len(found) == 1, [str(r.path) for r in found]
    same(leaks(found[0]), wanted, case)
    return whole(found[0], case)


def lost(size, held=0, blocks=0):
    return ("definite", size, 1, held, blocks)


def shapes():
    expect("none", [])
    expect("definite", [lost(101), lost(202)])
    expect("chain", [lost(24, 120, 3), ("indirect", 120, 3, 0, 0)])
    expect("circle", [lost(24, 96, 2), ("indirect", 40, 1, 0, 0), ("indirect", 56, 1, 0, 0)])
    expect("tree", [lost(72, 4 * 88 + 16 * 104, 20), ("indirect", 4 * 88, 4, 0, 0), ("indirect", 16 * 104, 16, 0, 0)])
    found = reports.run([PROGRAM, "shared_leaf"], leaks="exit")[0]
    assert sum(row[3] for row in leaks(found)) == 300, leaks(found)  # counted once
    expect("interior", [("possible", 120, 1, 0, 0)])
    expect("tagged", [("possible", 120, 1, 0, 0), ("possible", 136, 1, 0, 0)])
    scan = expect("reachable", [])
    assert scan["reachable"]["blocks"] >= 4 and scan["reachable"]["bytes"] == scan["heap_bytes"], scan
    shown = reports.run([PROGRAM, "reachable"], leaks="exit", show_reachable="on")[0]
    assert ("reachable", 56, 1, 0, 0) in leaks(shown, reachable=True), leaks(shown, reachable=True)
    expect("freed_is_no_root", [lost(80)])
    expect("mapped", [])
    expect("read_only", [])
    expect("sparse", [lost(101)])
    expect("shared_map", [lost(24)])
    expect("shared_map", [], leak_shared="on")
    expect("huge", [lost(7 << 20)])
    expect("realloced", [lost(100), lost(640)])
    names = found.names(found.of("leak")[0]["stack"])
    assert "shared_leaf" in names, names


def threads():
    for case in ("thread_stack", "thread_register", "tls", "tls_dlopen", "tls_in_thread", "specific"):
        expect(case, [])
    expect("blocking", [lost(101)])
    # A thread that keeps the signal out may hold anything.
    found = reports.run([PROGRAM, "deaf"], leaks="exit")[0]
    same(leaks(found), [("possible", 101, 1, 0, 0)], "deaf")
    assert "stopped" in found.of("scan")[0]["incomplete"], found.of("scan")


def ends():
    expect("exit_from_thread", [lost(101)])
    expect("exit_now", [lost(101)])
    expect("vforked", [lost(101)])
    found = reports.run([PROGRAM, "forked"], leaks="exit")
    assert len(found) == 2
    same(sorted(leaks(r) for r in found), [[], [lost(24), lost(101)]], "forked")
    asked = reports.run([PROGRAM, "asked_at_exit"], leaks="exit")[0]
    assert [s["at"] for s in asked.of("scan")] == ["demand", "exit"], asked.of("scan")
    assert not reports.run([PROGRAM, "definite"], leaks="off")[0].of("scan")
    on_demand_only = reports.run([PROGRAM, "definite"], leaks="on")[0]
    assert not on_demand_only.of("scan")


def containers():
    expect("reachable", [], program=CXX)
    found = reports.run([CXX, "lost"], leaks="exit")[0]
    same(leaks(found), [lost(32, 1001, 1), ("indirect", 1001, 1, 0, 0)], "lost")


def variants():
    program = str(FOLDER / "leak_variants")
    lossy = leaks(reports.run([program, "bad"], leaks="exit")[0])
    assert sum(row[2] for row in lossy) == 19 and all(row[0] == "definite" for row in lossy), lossy
    sizes = [row[1] // row[2] for row in lossy]
    assert set(sizes) >= set(range(1000, 1018)), sizes  # the 19th is an object with its counts
    same(leaks(reports.run([program, "good"], leaks="exit")[0]), [], "good")


class Process:
    """A program that goes a step for each line it gets."""

    def __init__(self, folder, *arguments, **options):
        self.folder = pathlib.Path(folder)
        env = reports.environment(folder, **options)
        command = [PROGRAM, "steps", *arguments]
        self.process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def step(self):
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == b"step\n"

    def report(self):
        files = list(self.folder.glob("*.check"))
        return reports.Reports(files[0]) if files else None

    def await_scans(self, count):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            text = next(self.folder.glob("*.check")).read_text() if list(self.folder.glob("*.check")) else ""
            if text.count('{"scan"') >= count and text.endswith("\n"):
                return self.report()
            time.sleep(0.01)
        raise AssertionError(f"no scan {count} within {PATIENCE} s")

    def end(self):
        self.process.stdin.close()
        assert self.process.wait(PATIENCE) == 0
        return self.report()


def demand():
    with tempfile.TemporaryDirectory() as folder:
        p = Process(folder, leaks="on")
        for scan in range(1, 5):
            p.step()
            os.kill(p.process.pid, STOP_SIGNAL)
            report = p.await_scans(scan)
            assert report.of("scan")[-1]["at"] == "demand" and report.of("scan")[-1]["number"] == scan
            grown = [x for x in report.of("leak") if x["kind"] == "leak-growing" and x["scan"] == scan]
            assert len(grown) == (scan >= 3), (scan, grown)
            for x in grown:
                assert x["bytes"] == scan * 512 and x["bytes_before"] == (scan - 2) * 512, x
                assert "steps" in report.names(x["stack"]), report.names(x["stack"])
        assert len(p.end().of("scan")) == 4
    with tempfile.TemporaryDirectory() as folder:
        p = Process(folder, leaks="exit", every=1)
        p.step()
        assert p.await_scans(2).of("scan")[1]["at"] == "interval"
        assert p.end().of("scan")[-1]["at"] == "exit"


def in_sandbox(mode, case, **options):
    """The report, or None where the machine has no such sandbox."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        env = reports.environment(folder, leaks="exit", **options)
        env["SANDBOX_PRELOAD"] = env.pop("LD_PRELOAD")
        done = subprocess.run([SANDBOX, mode, PROGRAM, case], env=env, capture_output=True, text=True, timeout=PATIENCE)
        if done.returncode == 77:
            print(f"skipped: no {mode} here")
            return None
        assert done.returncode == 0, (mode, done)
        files = list(pathlib.Path(folder).glob("*.check"))
        assert len(files) == 1, (mode, case, files)
        return reports.Reports(files[0])


def sandboxes():
    for mode in ("docker", "nofork", "traced"):
        for case, wanted in (("chain", [lost(24, 120, 3), ("indirect", 120, 3, 0, 0)]), ("thread_stack", []),
                             ("thread_register", []), ("blocking", [lost(101)]), ("exit_from_thread", [lost(101)])):
            found = in_sandbox(mode, case)
            if found:
                same(leaks(found), wanted, f"{mode} {case}")
                whole(found, f"{mode} {case}")
    found = in_sandbox("noproc", "definite")
    if found:
        assert found.of("scan")[-1]["incomplete"], found.of("scan")


def busy():
    """Scans at any moment: no leak is invented, and the program ends as ever."""
    with tempfile.TemporaryDirectory() as folder:
        env = reports.environment(folder, leaks="exit")
        p = subprocess.Popen([CHURN, "10"], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        while p.stdout.read(1):
            os.kill(p.pid, STOP_SIGNAL)
        assert p.wait(PATIENCE) == 0, (p.returncode, p.stderr.read())
        report = reports.Reports(pathlib.Path(folder) / f"{p.pid}.1.check")
        same(leaks(report), [], "busy")
        scans = report.of("scan")
        assert len(scans) > 3 and scans[-1]["at"] == "exit", scans
        assert not [s for s in scans if s["incomplete"]], scans
        print(len(scans), "scans")


def pause():
    """By hand: how long a program stands still for a search, and how long the search takes."""
    for mib in (64, 256, 1024):
        with tempfile.TemporaryDirectory() as folder:
            p = Process(folder, str(mib), leaks="on", leak_seconds=300)
            p.step()
            status = pathlib.Path(f"/proc/{p.process.pid}/status").read_text()
            gib = int(status.split("RssAnon:")[1].split()[0]) / 2**20
            for scan in range(1, 6):
                os.kill(p.process.pid, STOP_SIGNAL)
                p.await_scans(scan)
            scans = p.end().of("scan")
            pauses = sorted(s["pause_ns"] / 1e6 for s in scans)
            print(f"{gib:.2f} GiB resident: pause {pauses[2]:.1f} ms ({pauses[0]:.1f} to {pauses[-1]:.1f}), "
                  f"{pauses[2] / gib:.0f} ms for each GiB; search {scans[0]['total_ns'] / 1e9:.1f} s")


GROUPS = {"shapes": shapes, "threads": threads, "ends": ends, "containers": containers, "variants": variants,
          "demand": demand, "sandboxes": sandboxes, "busy": busy, "pause": pause}
GROUPS[sys.argv[2]]()
print("ok", sys.argv[2])
