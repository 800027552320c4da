#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Count the instructions of a scope and of allocations in it, and hold them to their limits.

  test_stack_path.py PROGRAM

PROGRAM is stack_path.c, optimised, with the shared library as users have it. Callgrind counts the whole run, twice: with N
calls and with 2N. Half of the difference is the loop; the same of a case that does nothing is subtracted. Counts
are exact, and the same each time. The limits are the project's targets; the figures are in docs/pools/stack.md.
"""
import os
import re
import shutil
import subprocess
import sys

CALLS = 25600
# case: (what is subtracted, most instructions)
LIMITS = {"scope": ("base", 12), "frame": ("frame_base", 12), "new_8": ("keep_base", 12), "new_48": ("keep_base", 12),
          "raw_8": ("keep_base", 12), "pool_8": ("keep_base", 12)}


def count(program, case, calls):
    env = {**os.environ, "QUARRY_CONF": "pools:off"}
    run = subprocess.run(["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", program, case, str(calls)],
                         capture_output=True, text=True, env=env)
    found = re.search(r"Collected : (\d+)", run.stderr)
    if run.returncode or not found:
        sys.exit(f"callgrind failed on {case}:\n{run.stderr}")
    return int(found[1])


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if not shutil.which("valgrind"):
        print("SKIP: needs the package valgrind")
        return 77
    program = sys.argv[1]
    per_call = {case: (count(program, case, 2 * CALLS) - count(program, case, CALLS)) / CALLS
                for case in [*LIMITS, *{base for base, _ in LIMITS.values()}]}
    bad = 0
    for case, (base, limit) in LIMITS.items():
        net = per_call[case] - per_call[base]
        # Without a stack at work there would be next to nothing left.
        wrong = net > limit or net < 3
        bad += wrong
        print(f"  {case:8} {net:6.2f} instructions, at most {limit}{'   <-- WRONG' if wrong else ''}")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
