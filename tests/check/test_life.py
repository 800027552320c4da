#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Processes that fork, run other programs, load modules, have odd stacks and end in odd ways, under libquarry-check.

  test_life.py PROGRAM MODULE OWN_MALLOC GROUP
"""
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile

import reports

PROGRAM, MODULE, OWN_MALLOC, GROUP = sys.argv[1:]


def run(life, *arguments, expect=7, **options):
    return reports.run([PROGRAM, life, *arguments], expect=expect, **options)


def faults(r):
    """The errors of a file: all are double frees by twice(), of a block from fault() or elsewhere."""
    errors = r.of("error")
    for e in errors:
        assert e["kind"] == "double-free" and r.names(e["stack"])[0] == "twice", (e, r.names(e["stack"]))
    return errors


def one(life, *arguments, depth="fault", **options):
    files = run(life, *arguments, **options)
    assert len(files) == 1, files
    errors = faults(files[0])
    assert len(errors) == 1, errors
    assert files[0].names(errors[0]["block"]["alloc"]["stack"])[0] == depth
    return files[0], errors[0]


def end(r):
    ends = r.of("end")
    assert len(ends) == 1 and ends[0]["errors"] == len(r.of("error")), ends
    return ends[0]["how"], ends[0]["status"]


def threads():
    r, e = one("thread")
    assert e["thread"]["tid"] == e["block"]["alloc"]["tid"] == e["block"]["free"]["tid"] != r.of("begin")[0]["pid"]
    assert "in_thread" in r.names(e["stack"])
    (r,) = run("threads")
    assert not r.of("error") and end(r) == ("exit", 7)
    (r,) = run("threads", quarantine="64k")
    assert not r.of("error") and r.of("end")[0]["quarantine"]["passed"] > 10000, r.of("end")


def threads_end():
    for life in "threads-free-only", "threads-free-late":
        (r,) = run(life)
        assert not r.of("error") and end(r) == ("exit", 7), r.lines


def children():
    files = run("forks")
    assert len(files) == 2, files
    pid = {r.of("begin")[0]["forked_from"]: r for r in files}
    parent = pid.pop(None)
    (number, child), = pid.items()
    assert number == parent.of("begin")[0]["pid"] != child.of("begin")[0]["pid"]
    assert len(faults(parent)) == len(faults(child)) == 1
    assert "forks" in parent.names(parent.of("error")[0]["stack"]) and end(parent) == ("exit", 7)
    assert child.of("error")[0]["block"]["size"] == 40 and end(child) == ("exit", 5)
    assert len(run("forks-clean")) == 1
    begins = {b["forked_from"]: b for r in run("forks-twice") for b in r.of("begin")}
    first = begins.pop(None)
    (number, copy), = begins.items()
    assert first["origin"] is None and copy["origin"] == first["pid"] != number, (first, copy)
    for options in {}, {"leaks": "exit"}:
        files = run("forks-busy", guards="all", **options)
        assert not [e for r in files for e in r.of("error")], [r.of("error") for r in files if r.of("error")][0]
        assert len(files) == (31 if options else 1) and all(end(r)[0] == "exit" for r in files), files
    run("forks-draining", guards="off", quarantine="64k")
    files = run("forks-at-end", guards="off", leaks="exit")
    ends_of = [(r.of("begin")[0]["forked_from"] is not None, *end(r)) for r in files]
    assert set(ends_of) == {(False, "exit", 7), (True, "exit", 5)}, ends_of
    (r,) = run("forks-in-streams", guards="off")
    assert not r.of("error") and end(r) == ("exit", 7), r.lines
    if os.geteuid() == 0 and subprocess.run(["unshare", "--pid", "--fork", "true"], capture_output=True).returncode == 0:
        files = run("forks-apart")
        apart = {r.of("begin")[0]["pid"]: r.of("begin")[0]["forked_from"] for r in files}
        assert len(files) == 2 and apart[1] in apart, apart
    files = run("vforks")  # and /bin/true, which has a file of its own
    errors = [e for r in files for e in faults(r)]
    assert len(files) == 2 and len(errors) == 1, files
    files = run("execs", "x")
    assert [r.path.name.split(".")[1] for r in files] == ["1", "2"], files
    assert [len(faults(r)) for r in files] == [2, 1]
    assert files[0].of("end")[-1]["how"] == "exec" and end(files[1]) == ("exit", 7)
    files = run("execs-overwritten", "x")
    errors = [(e["kind"], e["block"]["size"]) for e in files[0].of("error")]
    assert errors == [("overflow-write", 20), ("overflow-write", 21)] and len(faults(files[1])) == 1, errors


def ends():
    for life in "exits", "handler", "exits-quickly":
        r, _ = one(life)
        assert end(r) == ("exit", 7), (life, end(r))
    (r,) = run("exits-now")
    assert [e["kind"] for e in r.of("error")] == ["overflow-write"] and end(r) == ("exit", 7)
    for options in 10 * [{}, {"guards": "all"}, {"guards": "off", "quarantine": "64k"}]:
        (r,) = run("exits-in-handler", **options)
        assert not r.of("error") and end(r) == ("exit", 7), r.lines
    (r,) = run("closes")
    assert len(faults(r)) == 2 and end(r) == ("exit", 7)


def modules():
    r, e = one("unloads", MODULE, depth="module_allocate")
    module = r.modules[e["block"]["alloc"]["stack"][0]["module"]]
    assert module["path"] == MODULE and module["gone"], module


def across():
    (r,) = run("across", MODULE)
    assert not r.of("error") and len(r.of("note")) == 1 and "strict" in r.of("note")[0]["text"], r.lines
    (r,) = run("across", MODULE, strict="on")
    assert [e["kind"] for e in r.of("error")] == ["mismatched-free"] * 2, r.lines


def stacks():
    (r,) = run("many-stacks", guards="off")
    assert [note["text"][:29] for note in r.of("note")] == ["no room for more call stacks:"], r.of("note")
    assert not r.of("error") and end(r) == ("exit", 7), r.lines
    for life in "jumps", "contexts", "signals":
        r, e = one(life)
        assert r.names(e["stack"])[1] == "fault", r.names(e["stack"])


def masks():
    files = run("blocks-signals", guards="all")
    kinds = [e["kind"] for r in files for e in r.of("error")]
    assert len(files) == 2 and kinds == ["use-after-free-read"] * 5, (files, kinds)


def limits():
    (r,) = run("writes-no-files", says="double-free")
    assert not r.of("error"), r.lines
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([PROGRAM, "writes-less"], env=reports.environment(folder), capture_output=True, text=True)
        assert done.returncode == 7 and "double-free" in done.stderr, done
        (file,) = pathlib.Path(folder).glob("*.check")
        *_, cut, last = file.read_text().splitlines()
        assert not cut.endswith("}") and json.loads(last)["end"]["errors"] == 1, (cut, last)
    one("limited")
    one("sandboxed")
    one("blocks-nothing")
    for way in "prctl", "syscall":
        r, e = one("strict", way)
        assert r.names(e["stack"])[:3] == ["twice", "fault", "on_other_stack"], r.names(e["stack"])
    (r,) = run("strict", "prctl", leaks="exit", every=1)  # a search would be the end of it
    assert len(faults(r)) == 1 and "no search for leaks" in r.of("note")[0]["text"], r.lines
    (r,) = run("strict-forks", says="double-free")  # of the child, as text
    assert len(faults(r)) == 1, r.lines
    privileged = ("changes-root", "drops-rights") if os.geteuid() == 0 else ()
    for life in "opens-nothing", "has-no-number", *privileged:  # some can look up no module
        (r,) = run(life)
        assert [e["kind"] for e in r.of("error")] == ["double-free"] and end(r) == ("exit", 7), (life, r.lines)


def descriptors():
    (r,) = run("lists")
    assert not r.of("error") and end(r) == ("exit", 7)
    one("forks-and-lists")
    few, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, most))
    r, _ = one("opens-all")
    assert end(r) == ("exit", 7), r.lines
    files = run("opens-all-and-forks")
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, most))
    parent, child = sorted(files, key=lambda r: r.of("begin")[0]["forked_from"] or 0)
    assert not parent.of("error") and end(parent) == ("exit", 7), parent.lines
    assert len(faults(child)) == 1 and end(child) == ("exit", 5), child.lines


def own_malloc():
    (r,) = reports.run([OWN_MALLOC], expect=7)
    assert not r.of("error"), r.of("error")


globals()[GROUP]()
