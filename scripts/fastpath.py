#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Count the instructions of the fast paths and compare them with bench/fastpath/expected.json.

  fastpath.py PROGRAM LIBRARY POOLS [--compiler=NAME] [--update | --print]

PROGRAM is bench/fastpath/fastpath.c linked with LIBRARY, the drop-in as users get it; POOLS is
bench/fastpath/pools.c linked with the library of pools.

How. Callgrind counts instructions only while one function is active (--toggle-collect): from its
first instruction to its return, with all it calls, and without the caller's loop. Each case runs
with N and with 2N calls; the difference, divided by N, is the cost of one call after warm-up:
start-up, first refill and exit are in both runs and cancel out. The count is exact and the same on
every run, so any change of it is a change of the code or of the compiler. Expected values hold for
one compiler (by major version) and processor; with another the test is skipped, and --print is content.

Two numbers each: "own" is the function itself, which is the fast path; "all" has the slow functions in
it that even hits call now and then, in proportion. Of a pool the function is one of POOLS, into which
the fast path of the header was compiled; what its library does is in "all".

The fast paths have the same instructions while the sampler is on: "own" of some rows is counted once more so.
"""
import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

EXPECTED = pathlib.Path(__file__).parents[1] / "bench/fastpath/expected.json"
TOLERANCE = 0.5
CALLS = 4096  # a multiple of the cache sizes: turns of a generation are in it in proportion
SKIP = 77

# What is printed: (case of PROGRAM, counted function)
HEAP = {
    "malloc 32": ("32", "malloc"),
    "free 32": ("32", "free"),
    "malloc 1000": ("1000", "malloc"),
    "free 1000": ("1000", "free"),
    "malloc 4000": ("4000", "malloc"),
    "free 4000": ("4000", "free"),
    "malloc 40000": ("40000", "malloc"),
    "free 40000": ("40000", "free"),
    "calloc 64": ("calloc", "calloc"),
    "operator new 32": ("new", "_Znwm"),
    "operator delete 32": ("new", "_ZdlPv"),
    "sized delete 32": ("new_sized", "_ZdlPvm"),
    "realloc in place": ("realloc", "realloc"),
    "realloc that moves": ("realloc_moves", "realloc"),
    "malloc_usable_size": ("usable_size", "malloc_usable_size"),
}


# Rows that are counted with the sampler on, too: its samples are so far apart that none is taken.
SAMPLED = ("malloc 32", "free 32", "malloc 4000", "free 4000", "operator new 32")
PLAIN_CONF = "pools:off"  # under valgrind pools would be checked ones, which take the slow path in each call
SAMPLED_CONF = "pools:off,sample:1024g"

# Counted functions of POOLS.
POOLS = {
    "t_new 48": "t_count_new",
    "t_new_raw 48": "t_count_new_raw",
    "t_scope": "count_scope",
    "stack push": "count_push",
    "stack pop": "count_pop",
    "stack alloc 48": "count_stack_alloc",
    "fifo alloc 48": "count_fifo_alloc",
    "fifo free 48": "count_fifo_free",
    "ring newframe": "count_ring_newframe",
    "ring alloc 48": "count_ring_alloc",
    "ring seal": "count_ring_seal",
    "ring release": "count_ring_release",
    "tlsf alloc": "count_tlsf_alloc",
    "tlsf resize": "count_tlsf_resize",
    "tlsf free": "count_tlsf_free",
}


def aliases(library, function):
    """All names of the function's address: callgrind may know it by any of them."""
    text = subprocess.run(["nm", library], check=True, capture_output=True, text=True).stdout
    symbols = [line.split() for line in text.splitlines() if len(line.split()) == 3]
    address = next(a for a, kind, name in symbols if name == function and kind in "TWti")
    return [name for a, kind, name in symbols if a == address and kind in "TWt"]


def costs(profile):
    """{function: [its own instructions, with those of what it calls]} and the sum of all, from callgrind's file."""
    found, total, known, of, called = {}, 0, {}, None, False
    for line in profile.splitlines():
        function = re.match(r"(c?fn)=\((\d+)\)(?: (.*))?", line)
        if function:
            kind, number, name = function.groups()
            if name:
                known[number] = name.split("'")[0]
            if kind == "fn":
                of = found.setdefault(known[number], [0, 0])
        elif line.startswith("calls="):
            called = True  # the next line is the cost of the callee
        elif re.fullmatch(r"(\d+|\+\d+|-\d+|\*) \d+", line):  # position, cost
            cost = int(line.split()[-1])
            of[1] += cost
            if not called:
                of[0] += cost
                total += cost
            called = False
    return found, total


def count(command, names, conf=PLAIN_CONF):
    """The same of a program, while one of these functions is active."""
    toggles = [f"--toggle-collect={name}" for name in names]
    with tempfile.NamedTemporaryFile() as profile:
        run = subprocess.run(["valgrind", "--tool=callgrind", "--demangle=no", f"--callgrind-out-file={profile.name}", *toggles, *command],
                             env={**os.environ, "QUARRY_CONF": conf}, capture_output=True, text=True)
        if run.returncode:
            sys.exit(f"callgrind failed on {' '.join(command)}:\n{run.stderr}")
        found, total = costs(pathlib.Path(profile.name).read_text())
    collected = int(re.search(r"Collected : (\d+)", run.stderr).group(1))
    if total != collected:
        sys.exit(f"{' '.join(command)}: callgrind says {collected} instructions, its file adds up to {total}")
    return found, total


def per_call(row, once, twice):
    result = [round((b - a) / CALLS, 2) for a, b in zip(once, twice)]
    if result[0] < 1:
        sys.exit(f"{row}: nothing was counted; are the programs linked with these libraries?")
    return result


def measure_heap(row, program, library, conf=PLAIN_CONF):
    case, function = HEAP[row]
    names = aliases(library, function)

    def of(calls):
        found, total = count([program, case, str(calls)], names, conf)
        return sum(found.get(name, [0])[0] for name in names), total
    return per_call(row, of(CALLS), of(2 * CALLS))


def measure(program, library, pools):
    result = {row: measure_heap(row, program, library) for row in HEAP}
    # None of these calls another one, so that they can be counted in the same run.
    once, twice = (count([pools, str(calls)], POOLS.values())[0] for calls in (CALLS, 2 * CALLS))
    for row, function in POOLS.items():
        result[row] = per_call(row, *(found.get(function, [0, 0]) for found in (once, twice)))
    return result


def table(compiler, measured):
    """JSON with one row a line, for diffs."""
    rows = ",\n".join(f"    {json.dumps(row)}: {json.dumps(count)}" for row, count in measured.items())
    return f'{{\n  "compiler": {json.dumps(compiler)},\n  "instructions": {{\n{rows}\n  }}\n}}\n'


def main():
    paths = [a for a in sys.argv[1:] if not a.startswith("--")]
    compiler = next((a.split("=", 1)[1] for a in sys.argv if a.startswith("--compiler=")), "unknown")
    if len(paths) != 3:
        sys.exit(__doc__)
    if not shutil.which("valgrind"):
        print("SKIP: needs the package valgrind")
        return SKIP
    expected = json.loads(EXPECTED.read_text()) if EXPECTED.exists() else None
    measured = measure(*paths)
    comparable = expected is not None and expected["compiler"] == compiler
    wrong = 0
    print(f"instructions per call ({compiler})\n  {'':18} {'own':>8} {'all':>8}{'   expected: own      all' if comparable else ''}")
    for row, count in measured.items():
        note = ""
        if comparable:
            target = expected["instructions"].get(row, [math.nan, math.nan])
            differs = not all(abs(a - b) <= TOLERANCE for a, b in zip(count, target))
            wrong += differs
            note = f"       {target[0]:8.2f} {target[1]:8.2f}{'  differs' if differs else ''}"
        print(f"  {row:18} {count[0]:8.2f} {count[1]:8.2f}{note}")
    for row in SAMPLED:
        own = measure_heap(row, *paths[:2], SAMPLED_CONF)[0]
        if own != measured[row][0]:
            print(f"  {row}: {own:.2f} of its own while the sampler is on")
            wrong += 1
    if "--update" in sys.argv:
        EXPECTED.write_text(table(compiler, measured))
        print(f"wrote {EXPECTED.name}")
        return 0
    if not comparable:
        known = f"the table is of {expected['compiler']}" if expected else f"{EXPECTED.name} is missing (see --update)"
        print(f"SKIP: needs something to compare with: {known}")
        return 0 if "--print" in sys.argv else SKIP
    if wrong:
        print(f"{wrong} differ. If that is meant, run again with --update and say why in the commit.")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
