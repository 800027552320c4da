#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How likely is an error found by option guard? The formula of docs/check.md against runs of a program.

  test_odds.py PROGRAM LIBRARY           some cells, exit 1 if one is too unlikely
  test_odds.py PROGRAM LIBRARY --print   the whole table

Each run is a process of its own that makes the same use after free so many times. It is found if the process ends by SIGSEGV. A block of n
bytes is drawn with p = 1 - exp(-n / mean), and the first drawn block of a site is guarded. So one of k is found with 1 - (1 - p)^k.
"""
import math
import os
import signal
import subprocess
import sys

MEAN = 512 << 10
SOME = [(32, 10_000), (200, 1_000), (2_000, 300)]
ALL = [(n, k) for n in (32, 200, 2_000, 20_000) for k in (10, 100, 1_000, 10_000, 100_000)]
SIGMAS = 5.5  # one in 10^7 for three cells


def found(program, library, n, k):
    environment = {**os.environ, "LD_PRELOAD": library, "QUARRY_CONF": "guard:512k"}
    run = subprocess.run([program, str(n), str(k)], env=environment, capture_output=True, text=True)
    if run.returncode == -signal.SIGSEGV and f"quarry: use-after-free-read: 0x" in run.stderr and f" a freed block of {n} bytes " in run.stderr:
        return True
    assert run.returncode == 0, f"{n} bytes, {k} faults: exit {run.returncode}: {run.stderr}"
    return False


def formula(n, k):
    return -math.expm1(-k * n / MEAN)


def main():
    program, library = sys.argv[1:3]
    whole = "--print" in sys.argv
    runs, wrong = (200 if whole else 100), []
    print("| bytes | faults | found, of runs | by the formula |\n|---:|---:|---:|---:|")
    for n, k in ALL if whole else SOME:
        count, p = sum(found(program, library, n, k) for _ in range(runs)), formula(n, k)
        print(f"| {n:,} | {k:,} | {count} of {runs} | {p:.1%} |", flush=True)
        if abs(count - runs * p) > SIGMAS * math.sqrt(runs * p * (1 - p)) + 1:
            wrong.append(f"{n} bytes, {k} faults: {count} of {runs} were found, expected {runs * p:.0f}")
    print(*wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
