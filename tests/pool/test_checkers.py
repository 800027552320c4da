#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""AddressSanitizer and memcheck must find misuse of blocks in pools, and name the block.

  test_checkers.py PROGRAM ASAN_PROGRAM     built from misused.c, without and with AddressSanitizer
"""
import os
import re
import shutil
import subprocess
import sys

MEMCHECK = ["valgrind", "--tool=memcheck", "--leak-check=full", "--num-callers=20", "--error-exitcode=99", "-q"]

# Case: what the report says, as regular expressions. "leak" is for kinds that free block by block, and is the last: memcheck
# looks for lost blocks at the end.
VALGRIND = {
    "overflow": [r"Invalid write of size 1", r"0 bytes after a block of size 40"],
    "underflow": [r"Invalid write of size 1", r"bytes? before a block of size 72"],
    "after_end": [r"Invalid read of size 1", r"8 bytes inside a block of size 40 (free'd|client-defined)"],
    "uninitialised": [r"depends on uninitialised value"],
    "leak": [r"56 bytes in 1 blocks are definitely lost", r"make_message"],
}
ASAN_PASS = {
    "overflow": [r"heap-buffer-overflow", r"0 bytes (to the right of|after) 40-byte region"],
    "underflow": [r"heap-buffer-overflow", r"1 bytes (to the left of|before) 72-byte region"],
    "after_end": [r"heap-use-after-free", r"freed by thread T0 here:", r"previously allocated by thread T0 here:", r"in make_message", r"in end_message", r"in use_message"],
}
ASAN_POISON = {
    "overflow": [r"use-after-poison", r"f7"],
    "underflow": [r"use-after-poison"],
    "after_end": [r"use-after-poison", r"in use_message"],
}


# LeakSanitizer: the blocks of pools are malloc's then, and what the pools themselves know of a block does not hide that it is lost.
LSAN = {
    "leak": [r"ERROR: LeakSanitizer: detected memory leaks", r"Direct leak of 56 byte\(s\) in 1 object\(s\)", r"in make_message", r"in lose"],
    "none": [],
}
# It stops the other threads as a debugger does, which a debugger or a sandbox keeps it from.
LSAN_CANNOT = "LeakSanitizer has encountered a fatal error"


def run(command, conf, leaks=0):
    env = {**os.environ, "QUARRY_CONF": f"pools:{conf}", "ASAN_OPTIONS": f"detect_leaks={leaks}"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, errors="replace", timeout=600)
    return done.returncode, done.stdout + done.stderr


def main():
    program, asan_program = sys.argv[1:3]
    failed = total = 0

    def expect(title, command, cases, conf, leaks=0):
        """Run these cases (their patterns by name) in one process: each has its report, or where no patterns are, there is none."""
        nonlocal failed, total
        status, text = run([*command, *cases], conf, leaks)
        reports = dict(re.findall(r"^case (\w+)\n((?:(?!case ).*\n?)*)", text, re.M))
        for case, patterns in cases.items():
            total += 1
            wrong = [p for p in patterns if not re.search(p, reports.get(case, ""))]
            if case not in reports or bool(patterns) != bool(status):
                wrong.append(f"exit status {status}")
            if wrong:
                failed += 1
                print(f"FAILED {title} {case}: missing {wrong}\n" + "\n".join("    | " + line for line in text.splitlines()[:60]))

    kinds = [line.split() for line in subprocess.run([program, "--list"], capture_output=True, text=True, check=True).stdout.splitlines()]
    for kind, how in kinds:
        if shutil.which("valgrind"):
            found = {case: patterns for case, patterns in VALGRIND.items() if case != "leak" or how == "frees"}
            expect(f"valgrind {kind}", [*MEMCHECK, program, kind], found, "auto")
            expect(f"valgrind {kind}", [*MEMCHECK, "--leak-check=no", program, kind], {"none": [], "zeroed": []}, "auto")
            # What is no mode is auto, as the warning says.
            expect(f"valgrind, no such mode, {kind}", [*MEMCHECK, program, kind], {"overflow": VALGRIND["overflow"]}, "gaurd")
        else:
            print("SKIP: needs the package valgrind")
        for conf, cases in (("auto", ASAN_PASS), ("poison", ASAN_POISON)):
            for case, patterns in {**cases, "none": []}.items():
                expect(f"asan {conf} {kind}", [asan_program, kind], {case: patterns}, conf)
        if LSAN_CANNOT in run([asan_program, kind, "none"], "auto", leaks=1)[1]:
            print("SKIP: needs ptrace for LeakSanitizer: it cannot run under a debugger, nor in a container that refuses it")
            continue
        for case, patterns in LSAN.items():
            expect(f"lsan {kind}", [asan_program, kind], {case: patterns}, "auto", leaks=1)
    print(f"{total} reports of {len(kinds)} kinds, {failed} wrong")
    return failed > 0 or not kinds


if __name__ == "__main__":
    sys.exit(main())
