#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Count what checking pools costs, and compare with how much it may.

  guarded.py PROGRAM [CASE...]   exit 1 if a kind has more times the instructions with pools:guard than MOST says
  guarded.py --self-test         prove that the rule can fail

PROGRAM is bench/fastpath/guarded.c. Each of its cases runs with N and with 2N operations under callgrind, with pools:off and
with pools:guard. The difference between N and 2N is what N operations cost after the start, so start and exit cancel out.
Counts are exact, so a machine under load gives the same table.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

# What gcc 12 and clang 14 make of it, whichever is more (13.0, 19.8, 18.9, 9.2, 4.2, 3.0), and a tenth: so far apart are two compilers.
# No more than 20, which is what is promised.
MOST = {"scope": 14.3, "stack": 20, "fifo": 20, "ring": 10.1, "tlsf": 4.6, "pow2": 3.3}
CALLS = 2000
SKIP = 77


def instructions(program, case, calls, mode):
    with tempfile.NamedTemporaryFile() as profile:
        run = subprocess.run(["valgrind", "--tool=callgrind", f"--callgrind-out-file={profile.name}", program, case, str(calls)],
                             env={**os.environ, "QUARRY_CONF": f"pools:{mode}"}, capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"{program} {case} {calls} with pools:{mode} failed:\n{run.stderr}")
    return int(re.search(r"Collected : (\d+)", run.stderr).group(1))


def cost(program, case, mode):
    return (instructions(program, case, 2 * CALLS, mode) - instructions(program, case, CALLS, mode)) / CALLS


def verdict(case, off, guard):
    """The line of the table, and whether it may be so."""
    times = guard / off
    return f"{case:8} {off:10.1f} {guard:10.1f} {times:8.1f}", off > 1 and 1 < times <= MOST[case]


def self_test():
    most = MOST["tlsf"]
    for off, guard, good in ((50, 50 * most, True), (50, 50 * most + 1, False), (0.5, 5, False), (50, 50, False)):
        if verdict("tlsf", off, guard)[1] != good:
            sys.exit(f"verdict({off}, {guard}) is not {good}")


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if not shutil.which("valgrind"):
        print("skipped: valgrind is not installed")
        sys.exit(SKIP)
    program, *cases = sys.argv[1:]
    print(f"{'kind':8} {'off':>10} {'guard':>10} {'times':>8}   instructions per operation")
    bad = []
    for case in cases or MOST:
        line, good = verdict(case, cost(program, case, "off"), cost(program, case, "guard"))
        print(line if good else line + f"   above {MOST[case]}")
        if not good:
            bad.append(case)
    if bad:
        sys.exit(f"{', '.join(bad)}: checked pools cost more than they may; see with "
                 f"QUARRY_CONF=pools:guard valgrind --tool=callgrind {program} {bad[0]} {CALLS}")


main()
