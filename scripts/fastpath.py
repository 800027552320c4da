#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Count the instructions of the fast paths and compare them with bench/fastpath/expected.json.

  fastpath.py PROGRAM LIBRARY [--compiler=NAME] [--update]

PROGRAM is bench/fastpath/fastpath.c linked with LIBRARY, the drop-in as users get it.

How. Callgrind counts instructions only while one function is active (--toggle-collect): from its
first instruction to its return, with all it calls, and without the caller's loop. Each case runs
with N and with 2N calls; the difference, divided by N, is the cost of one call after warm-up:
start-up, first refill and exit are in both runs and cancel out. The count is exact and the same on
every run, so any change of it is a change of the code or of the compiler. Expected values hold for
one compiler (by major version) and processor; with another the test is skipped.

Two numbers each: "own" is the function itself, which is the fast path; "all" has the slow functions in
it that even hits call now and then, in proportion.
"""
import json
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

# What is printed: (case of the program, counted function)
ROWS = {
    "malloc 32": ("32", "malloc"),
    "free 32": ("32", "free"),
    "malloc 1000": ("1000", "malloc"),
    "free 1000": ("1000", "free"),
    "malloc 4000": ("4000", "malloc"),
    "free 4000": ("4000", "free"),
    "malloc 40000": ("40000", "malloc"),
    "free 40000": ("40000", "free"),
    "calloc 64": ("calloc", "calloc"),
    "realloc in place": ("realloc", "realloc"),
}


def aliases(library, function):
    """All names of the function's address: callgrind may know it by any of them."""
    text = subprocess.run(["nm", library], check=True, capture_output=True, text=True).stdout
    symbols = [line.split() for line in text.splitlines() if len(line.split()) == 3]
    address = next(a for a, kind, name in symbols if name == function and kind in "TWti")
    return [name for a, kind, name in symbols if a == address and kind in "TWt"]


def costs(profile, names):
    """Instructions of the functions themselves, and with all they call, from callgrind's file."""
    own, everything, inside, known, skip = 0, 0, False, {}, False
    for line in profile.splitlines():
        function = re.match(r"fn=\((\d+)\)(?: (.*))?", line)
        if function:
            number, name = function.groups()
            known.setdefault(number, name or "")
            inside = known[number].split("'")[0] in names
        elif line.startswith("calls="):
            skip = True  # the next line is the cost of the callee
        elif re.fullmatch(r"(\d+|\+\d+|-\d+|\*) \d+", line):  # position, cost
            cost = int(line.split()[-1])
            if skip:
                skip = False
            else:
                everything += cost
                own += cost * inside
        elif match := re.match(r"cfn=\((\d+)\) (.*)", line):
            known.setdefault(*match.groups())
    return own, everything


def count(program, case, calls, names):
    toggles = [f"--toggle-collect={name}" for name in names]
    with tempfile.NamedTemporaryFile() as profile:
        run = subprocess.run(["valgrind", "--tool=callgrind", f"--callgrind-out-file={profile.name}", *toggles,
                              program, case, str(calls)], capture_output=True, text=True)
        if run.returncode:
            sys.exit(f"callgrind failed on case {case}:\n{run.stderr}")
        own, everything = costs(pathlib.Path(profile.name).read_text(), names)
    total = int(re.search(r"Collected : (\d+)", run.stderr).group(1))
    if everything != total:
        sys.exit(f"case {case}: callgrind says {total} instructions, its file adds up to {everything}")
    return own, everything


def measure(program, library):
    result = {}
    for row, (case, function) in ROWS.items():
        names = aliases(library, function)
        once, twice = (count(program, case, n, names) for n in (CALLS, 2 * CALLS))
        result[row] = [round((b - a) / CALLS, 2) for a, b in zip(once, twice)]
        if result[row][0] < 1:
            sys.exit(f"{row}: nothing was counted; is {program} linked with {library}?")
    return result


def table(compiler, measured):
    """JSON with one row a line, for diffs."""
    rows = ",\n".join(f"    {json.dumps(row)}: {json.dumps(count)}" for row, count in measured.items())
    return f'{{\n  "compiler": {json.dumps(compiler)},\n  "instructions": {{\n{rows}\n  }}\n}}\n'


def main():
    paths = [a for a in sys.argv[1:] if not a.startswith("--")]
    compiler = next((a.split("=", 1)[1] for a in sys.argv if a.startswith("--compiler=")), "unknown")
    if len(paths) != 2:
        sys.exit(__doc__)
    if not shutil.which("valgrind"):
        print("SKIP: valgrind is not installed")
        return SKIP
    expected = json.loads(EXPECTED.read_text()) if EXPECTED.exists() else None
    measured = measure(*paths)
    comparable = expected is not None and expected["compiler"] == compiler
    wrong = 0
    print(f"instructions per call ({compiler})\n  {'':18} {'own':>8} {'all':>8}")
    for row, count in measured.items():
        note = ""
        if comparable:
            target = expected["instructions"].get(row)
            if target is None or any(abs(a - b) > TOLERANCE for a, b in zip(count, target)):
                note, wrong = f"   expected {target}", wrong + 1
        print(f"  {row:18} {count[0]:8.2f} {count[1]:8.2f}{note}")
    if "--update" in sys.argv:
        EXPECTED.write_text(table(compiler, measured))
        print(f"wrote {EXPECTED.name}")
        return 0
    if not comparable:
        known = f"the table is of {expected['compiler']}" if expected else f"{EXPECTED.name} is missing (see --update)"
        print(f"SKIP: nothing to compare with: {known}")
        return SKIP
    if wrong:
        print(f"{wrong} differ. If that is meant, run again with --update and say why in the commit.")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
