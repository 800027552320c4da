#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Functions of the C library on guarded blocks: each fault is one error, by the function's name, and the function goes on.

  test_guarded.py PROGRAM live|freed
"""
import subprocess
import sys

import reports

PROGRAM, STATE = sys.argv[1:]
# What reads up to a number of bytes; the others read up to an end.
COUNTED = {"strnlen", "memchr", "strncmp", "strncasecmp", "strncpy", "wcsnlen", "wcsncmp"}
READS = {"strlen", "strchr", "strrchr", "strstr", "strcmp", "strcasecmp", "strcpy", "snprintf", "open", "wcslen", "wcscmp"} | COUNTED
# The link is shorter than what it may fill, and so is the folder.
SHORT = {"readlink", "getcwd"}

GIVES = {"readlink": "1", "getcwd": "1", "epoll_wait": "2", "accept": "1", "recvfrom": "5",
         **dict.fromkeys(("getrandom", "pread", "read", "readv", "fread", "recv", "recvmsg"), "40")}


def kind(function, found):
    if STATE == "freed":
        return "use-after-free-read" if function in READS else "use-after-free-write"
    if found:
        return None
    return "overflow-write" if function not in READS else "overflow-read" if function in COUNTED else "unterminated"


def main():
    cases = subprocess.run([PROGRAM], capture_output=True, text=True, check=True).stdout.split()
    assert len(cases) > 40, cases
    for case in cases:
        function, found = case.rsplit("_", 1)
        r, = reports.run([PROGRAM, case, STATE], guards="all", guard_side="behind")
        errors = [(e["kind"], e["function"]) for e in r.of("error")]
        if STATE == "live" and function in SHORT and not errors:
            continue
        wanted = kind(function, found)
        assert errors == ([(wanted, function)] if wanted else []), (case, errors)
        if function not in READS:  # the call is made as the program wrote it
            under = reports.environment(None, guards="all", guard_side="behind")
            out = subprocess.run([PROGRAM, case, STATE], env=under, capture_output=True, text=True).stdout
            assert out == GIVES.get(function, "0") + "\n", (case, out)


main()
