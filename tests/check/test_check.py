#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Errors that are known, under libquarry-check: are just these reported, with kind, block and place?

  test_check.py PROGRAM GROUP
  test_check.py PROGRAM_CXX OWN_OPERATORS cxx
"""
import os
import random
import subprocess
import sys

import reports

PROGRAM, *OTHER, GROUP = sys.argv[1:]
SEED = int(os.environ.get("QUARRY_SEED", random.randrange(1 << 32)))
print(f"seed {SEED}")
chance = random.Random(SEED)


def error(fault, size=None, **options):
    """The one error of this fault, with the file it is in; a size that chance chooses."""
    size = size or chance.randrange(2, 5000)
    files = reports.run([PROGRAM, fault, str(size)], expect=7, **options)
    assert len(files) == 1, files
    end = files[0].of("end")
    assert len(end) == 1 and end[0]["how"] == "exit" and end[0]["status"] == 7, end
    errors = files[0].of("error")
    assert end[0]["errors"] == len(errors) == 1, (fault, size, errors)
    return files[0], errors[0], size


def expect(fault, kind, function, block=True, **options):
    r, e, size = error(fault, **options)
    assert e["kind"] == kind and e["function"] == function, (fault, size, e)
    name = fault.replace("-", "_").replace("double_free_realloc", "double_free_by_realloc")
    names = r.names(e["stack"])
    assert any(n and name in n for n in names[:2]) or e["evidence"], (fault, size, names)
    assert bool(e["block"]) == block, e
    if block:
        assert r.names(e["block"]["alloc"]["stack"])[0] in ("made", name), r.names(e["block"]["alloc"]["stack"])
    return r, e, size


def frees():
    for large in None, 100_000, 3_000_000:
        r, e, size = expect("double-free", "double-free", "free", size=large)
        assert e["block"]["size"] == size and e["block"]["state"] == "freed" and e["offset"] == 0
        assert r.names(e["block"]["free"]["stack"])[0] == "freed"
        expect("double-free-realloc", "double-free", "realloc", size=large)
    _, e, size = expect("interior", "interior-free", "free")
    assert e["offset"] == size // 2 and e["block"]["state"] == "live" and e["block"]["free"] is None
    expect("invalid-stack", "invalid-free", "free", block=False)
    expect("invalid-null-page", "invalid-free", "free", block=False)
    expect("usable-freed", "double-free", "malloc_usable_size")
    _, e, size = expect("sized-wrong", "wrong-size", "free_sized")
    assert e["bytes"] == size + 1
    expect("aligned-wrong", "wrong-alignment", "free_aligned_sized")


def arguments():
    for fault, function in (("malloc-negative", "malloc"), ("calloc-overflow", "calloc"), ("align-odd", "aligned_alloc")):
        expect(fault, "bad-argument", function, block=False)
    for fault in "clean", "sized-right":
        files = reports.run([PROGRAM, fault, "40"], expect=7)
        assert not files[0].of("error"), files[0].of("error")


def canaries():
    for large in None, 9, 16, 1024, 70_000:
        for fault in "over-by-one", "over-by-a-zero", "over-found-by-realloc":
            _, e, size = expect(fault, "overflow-write", None, size=large)
            assert e["evidence"] and e["write"] and e["offset"] == size and e["bytes"] == 1, e
            assert e["block"]["state"] == "live" and e["block"]["size"] == size
    _, e, size = expect("over-found-at-exit", "overflow-write", None)
    assert e["offset"] == size + 3
    expect("over-large", "overflow-write", None)
    files = reports.run([PROGRAM, "over-into-free", "8"], expect=-6, says="corrupted free block")
    e, end = files[0].of("error")[0], files[0].of("end")[0]
    assert e["kind"] == "overflow-write" and e["block"]["size"] == 8 and 8 < e["offset"] <= 39, e
    assert end["how"] == "signal" and end["status"] == 6 and end["errors"] == len(files[0].of("error")), end
    _, e, size = expect("under-by-one", "underflow-write", None, size=chance.randrange(1, 1000))
    assert e["offset"] == -1
    for large in None, 2, 16384:
        r, e, size = expect("write-after-free", "write-after-free", None, size=large)
        assert e["block"]["state"] == "freed" and r.names(e["block"]["free"]["stack"])[0] == "freed"
        assert e["offset"] == size // 2
    expect("write-after-free-evicted", "write-after-free", None, size=1000, quarantine="64k")


def cxx():
    for fault, kind, function in (("malloc-delete", "mismatched-free", "operator delete"),
                                  ("new-free", "mismatched-free", "free"),
                                  ("strdup-delete", "mismatched-free", "operator delete"),
                                  ("new-delete-array", "mismatched-free", "operator delete[]"),
                                  ("array-delete", "mismatched-free", "operator delete"),
                                  ("new-realloc", "mismatched-free", "realloc"),
                                  ("sized-delete", "wrong-size", "operator delete"),
                                  ("aligned-delete", "wrong-alignment", "operator delete"),
                                  ("other-align", "wrong-alignment", "operator delete"),
                                  ("double-delete", "double-free", "operator delete")):
        _, e, size = error(fault)
        assert e["kind"] == kind and e["function"] == function and e["block"]["size"] == size, e
    for program, fault in ((PROGRAM, "clean"), (OTHER[0], "clean"), (OTHER[0], "malloc-delete"), (OTHER[0], "new-free")):
        files = reports.run([program, fault, "40"], expect=7)
        assert not files[0].of("error"), files[0].of("error")


def reports_():
    files = reports.run([PROGRAM, "clean", "40"], expect=7)
    begin = files[0].of("begin")[0]
    assert begin["version"] == 1 and begin["command"] == [PROGRAM, "clean", "40"] and begin["forked_from"] is None
    assert os.path.samefile(begin["exe"], PROGRAM)
    # As text, without a folder.
    done = subprocess.run([PROGRAM, "double-free", "24"], env=reports.environment(None), capture_output=True, text=True)
    assert done.returncode == 7
    assert "quarry check: double-free in free" in done.stderr and "block of 24 bytes" in done.stderr, done.stderr
    assert "allocated at" in done.stderr and "freed at" in done.stderr
    # At the first error the program ends.
    done = subprocess.run([PROGRAM, "double-free", "24"], env=reports.environment(None, abort="on"), capture_output=True)
    assert done.returncode == -6, done.returncode
    done = subprocess.run([PROGRAM, "clean", "24"], env=reports.environment(None, abrt="on"), capture_output=True, text=True)
    assert "QUARRY_CHECK: unknown option 'abrt', did you mean 'abort'?" in done.stderr, done.stderr


{"frees": frees, "arguments": arguments, "canaries": canaries, "reports": reports_, "cxx": cxx}[GROUP]()
