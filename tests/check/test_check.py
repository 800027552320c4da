#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Errors that are known, under libquarry-check: are just these reported, with kind, block and place?

  test_check.py PROGRAM GROUP
  test_check.py PROGRAM_CXX OWN_OPERATORS cxx
"""
import os
import pathlib
import random
import resource
import subprocess
import sys
import tempfile

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
    for fault in "clean", "sized-right", "malloc-most":
        files = reports.run([PROGRAM, fault, "40"], expect=7)
        assert not files[0].of("error"), files[0].of("error")


def canaries():
    """What canaries find: no block is guarded."""
    os.environ["CHECK_OPTIONS"] = "guards:off"
    for large in None, 9, 16, 1024, 70_000:
        for fault in "over-by-one", "over-by-a-zero", "over-found-by-realloc":
            _, e, size = expect(fault, "overflow-write", None, size=large)
            assert e["evidence"] and e["write"] and e["offset"] == size and e["bytes"] == 1, e
            assert e["block"]["state"] == "live" and e["block"]["size"] == size
    _, e, size = expect("over-found-at-exit", "overflow-write", None)
    assert e["offset"] == size + 3
    expect("over-large", "overflow-write", None)
    files = reports.run([PROGRAM, "over-into-free", "8"], expect=-6, says="or by an overflow of the block before")
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


def guards():
    """Any access beyond a guarded block is told, at the instruction, also the first one of its site."""
    for way in "budget", "mprotect", "all":
        for fault, kind, offset in (("guard-over-read", "overflow-read", lambda n: (n + 15) // 16 * 16),
                                    ("guard-over-write", "overflow-write", lambda n: (n + 15) // 16 * 16),
                                    ("guard-under-read", "underflow-read", lambda n: -1),
                                    ("guard-after-read", "use-after-free-read", lambda n: n // 2),
                                    ("guard-after-write", "use-after-free-write", lambda n: n // 2)):
            r, e, size = expect(fault, kind, None, guards=way, size=chance.choice([None, chance.randrange(9, 40)]))
            assert not e["evidence"] and e["offset"] == offset(size) and e["block"]["size"] == size, e
            assert e["stack"][0]["exact"] and e["write"] == kind.endswith("write"), e
            assert r.names(e["stack"])[0] == fault.replace("-", "_"), r.names(e["stack"])
            assert e["block"]["state"] == ("freed" if "after" in fault else "live"), e
        _, e, size = expect("double-free", "double-free", "free", guards=way)
        assert e["block"]["size"] == size and e["block"]["free"]
        expect("interior", "interior-free", "free", guards=way)
        expect("double-free-realloc", "double-free", "realloc", guards=way)
        files = reports.run([PROGRAM, "clean", "40"], expect=7, guards=way)
        assert not files[0].of("error"), files[0].of("error")
    # How many there were, and by which way.
    files = reports.run([PROGRAM, "clean", "40"], expect=7, guards="mprotect")
    end = files[0].of("end")[0]["guards"]
    assert end["made"] > 100 and end["marks"] == 0, end
    assert reports.run([PROGRAM, "clean", "40"], expect=7, guards="off")[0].of("end")[0]["guards"]["made"] == 0
    # To the byte, where alignment does not matter.
    size = chance.randrange(1, 3000)
    _, e, _ = expect("guard-over-exact", "overflow-read", None, guards="budget", exact="on", size=size)
    assert e["offset"] == size
    # A block of pages has one behind it, whichever it is of its site.
    _, e, _ = expect("guard-large-late", "overflow-read", None, guards="budget", size=3 * 4096)
    assert e["offset"] == 3 * 4096 and e["block"]["ordinal"] == 101, e
    # A block that is alone in its place has its guard on the side that is asked for.
    for side, fault, kind in (("before", "guard-under-first", "underflow-read"), ("turns-before", "guard-under-first", "underflow-read"),
                              ("behind", "guard-over-read", "overflow-read"), ("turns", "guard-over-read", "overflow-read"),
                              ("turns-before", "guard-under-read", None), ("behind", "guard-under-first", None),
                              ("turns", "guard-under-first", None), ("before", "guard-over-read", None)):
        found = [e["kind"] for r in reports.run([PROGRAM, fault, "32"], expect=7, guard_side=side) for e in r.of("error")]
        assert found == ([kind] if kind else []), (side, fault, found)
    notes = reports.run([PROGRAM, "clean", "40"], expect=7, guard_side="left")[0].of("note")
    assert any("guard_side" in note["text"] for note in notes), notes
    # They keep to their time, whatever stacks there are, and a new call site has its turn all the same.
    # A block of many pages takes as much of it as many small ones: 5 us, and 3 for each page more, out of 15 ms and a 20th of the time.
    for pages in 1, 16:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        r, e, _ = error("guard-many-stacks", guards="budget", size=48 if pages == 1 else 4096 * pages)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        allowed = (15e-3 + seconds / 20) / (5e-6 + (pages - 1) * 3e-6)
        made = r.of("end")[0]["guards"]["made"]
        assert e["kind"] == "overflow-read" and min(allowed, 3000) / 10 < made < allowed + 10, (pages, seconds, made, allowed)
    # Those of the heap (option guard) give way.
    os.environ["QUARRY_CONF"] = "guard:1"
    expect("guard-after-read", "use-after-free-read", None, guards="budget")
    assert not reports.run([PROGRAM, "clean", "40"], expect=7, guards="off")[0].of("error")
    del os.environ["QUARRY_CONF"]
    # All of them, also those that come late.
    _, e, _ = expect("guard-late", "overflow-read", None, guards="all", size=64)
    assert e["block"]["ordinal"] == 1001, e


def told():
    """What the doer was reported for is reported once: its canary adds nothing, nor does a function that a page stopped."""
    for way in "off", "all":
        # Of the 16 bytes up to the page, at least five are behind the block: the furthest store of these programs stays before the page.
        size = 16 * chance.randrange(1, 200) + chance.randrange(1, 12)
        _, e, _ = expect("told-memset", "overflow-write", "memset", guards=way, size=size)
        assert e["bytes"] == size + 3 and e["offset"] == 0, e
        for function in "fread", "fgets":  # a page stops fgets; fread has room made before
            r, e, _ = error(f"told-{function}", guards=way, size=size)
            stopped = way == "all" and function == "fgets"
            assert e["kind"] == "overflow-write" and e["function"] == (None if stopped else function), e
            # No frame of the library's own, and of the page's fault no number of bytes.
            assert f"told_{function}" in r.names(e["stack"]), r.names(e["stack"])
            assert not any("libquarry-check" in r.modules[f["module"]]["path"] for f in e["stack"] if f["module"]), e
            assert e["bytes"] == (0 if stopped else size + 24), e
        _, e, _ = error("told-loop", guards=way, size=size)
        assert e["kind"] == "overflow-write" and e["evidence"] == (way == "off"), e
        kinds = [e["kind"] for e in reports.run([PROGRAM, "told-and-freed", str(size)], expect=7, guards=way)[0].of("error")]
        assert kinds == ["overflow-write", "write-after-free" if way == "off" else "use-after-free-write"], kinds
        for fault, evidence in ("told-in-part", 1), ("told-before", 2):
            errors = reports.run([PROGRAM, fault, str(size)], expect=7, guards=way)[0].of("error")
            assert [e["function"] for e in errors] == ["memset"] + [None] * evidence, errors
            assert all(e["evidence"] for e in errors[1:]), errors


def quarry():
    """A program that is linked with the drop-in: Quarry's own names are checked, and its heaps are left alone."""
    for way in "off", "budget", "all":
        size = chance.randrange(1, 3000)
        files = reports.run([PROGRAM, "clean", str(size)], expect=7, guards=way)
        assert not files[0].of("error"), files[0].of("error")
        for fault, kind, function in ("over", "overflow-write", "memset"), ("twice", "double-free", "quarry_free"):
            e, = reports.run([PROGRAM, fault, str(size)], expect=7, guards=way)[0].of("error")
            assert (e["kind"], e["function"], e["block"]["size"]) == (kind, function, size), e


def number(r, stack):
    """The number of a call site, as src/check/pinpoint.h says."""
    h = 0xCBF29CE484222325
    for frame in stack[:16]:
        m = r.modules.get(frame["module"])
        name = b"" if not m else bytes.fromhex(m["build_id"]) if m["build_id"] else m["path"].encode()
        at = int(frame["pc"], 16) - int(m["bias"], 16) if m else 0
        for byte in name + at.to_bytes(8, "little"):
            h = (h ^ byte) * 0x100000001B3 & (1 << 64) - 1
    return h


def size_with_neighbour():
    """A size whose 501st block lies behind another: before the first block of a slab is no canary."""
    for _ in range(100):
        size = chance.randrange(1, 2000)
        done = subprocess.run([PROGRAM, "late-alone", str(size)], env=reports.environment(None, guards="off"), timeout=300)
        if done.returncode == 7:
            return size
        assert done.returncode == 8, done
    raise AssertionError("no block lies behind another")


def pinpoint():
    """What a run has evidence of, the next one sees at the instruction, though it comes late."""
    for fault, side, evidence, kind in (("late-over", "behind", "overflow-write", "overflow-write"),
                                        ("late-under", "before", "underflow-write", "underflow-write"),
                                        ("late-after", "behind", "write-after-free", "use-after-free-write")):
        size = size_with_neighbour() if fault == "late-under" else chance.randrange(1, 2000)
        r, e, size = error(fault, size=size, guards="off")
        assert e["evidence"] and e["kind"] == evidence, e
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "sites"
            site = number(r, e["block"]["alloc"]["stack"])
            path.write_text(f"# evidence\n{site:016x} {e['block']['ordinal']} {e['offset']} {side}\n")
            r, again, _ = error(fault, size=size, sites=path)
            assert not again["evidence"] and again["kind"] == kind and again["offset"] == e["offset"], again
            assert again["stack"][0]["exact"] and r.names(again["stack"])[0] == fault.replace("-", "_"), again
            assert again["block"]["ordinal"] == e["block"]["ordinal"] == 501
            assert r.of("end")[0]["guards"]["made"] < 1100, r.of("end")
            # No other site is guarded, and a file that is no such file is said to be none.
            path.write_text(f"{site ^ 1:016x} 1 {e['offset']} {side}\nnonsense\n")
            r, again, _ = error(fault, size=size, sites=path)
            assert again["evidence"] and r.of("end")[0]["guards"]["made"] == 0
            assert any("sites" in note["text"] for note in r.of("note")), r.of("note")
    # The block after 60,000 live ones of its site has a guard, though there is memory for a quarter of them.
    r, e, size = error("latest-over", size=chance.randrange(1, 200), guards="off")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "sites"
        path.write_text(f"{number(r, e['block']['alloc']['stack']):016x} {e['block']['ordinal']} {e['offset']} behind\n")
        r, again, _ = error("latest-over", size=size, sites=path)
        assert not again["evidence"] and again["block"]["ordinal"] == e["block"]["ordinal"] == 60001, again
        assert 10000 < r.of("end")[0]["guards"]["made"] < 11000, r.of("end")


def handlers():
    """A program with a handler of its own for faults gets its own ones, and not ours."""
    for fault in "handler-first", "handler-late", "handler-signal":
        _, e, _ = error(fault, size=48)
        assert e["kind"] == "overflow-read" and e["offset"] == 48, e


{"frees": frees, "guards": guards, "handlers": handlers, "pinpoint": pinpoint, "arguments": arguments, "canaries": canaries,
 "reports": reports_, "told": told, "quarry": quarry, "cxx": cxx}[GROUP]()
