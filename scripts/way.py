#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Count the modules that one malloc and one free go through, and compare them with what docs/design.md says.

  way.py PROGRAM [--print]
  way.py --self-test

PROGRAM is bench/fastpath/way.c, linked with the library of the release build. The malloc opens a chunk: it goes all the way from a size
to address space. The free is of a large object, and gives its pages back to the kernel. Callgrind says in which source files the
instructions of that one call are, inlined ones too. A module is a source file with its header.

The test fails if a way has become longer than the table of docs/design.md has it. --print lists the modules with their instructions.
"""
import collections
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

DESIGN = pathlib.Path(__file__).parents[1] / "docs/design.md"
SKIP = 77
# Nothing of another thread, and no statistics that fall due in that call.
QUIET = {**os.environ, "QUARRY_CONF": "purge_thread:off,stats_page:off"}


def modules(profile):
    """Instructions by module in a profile of callgrind's."""
    names, file, called, cost = {}, None, False, collections.Counter()
    for line in profile.splitlines():
        named = re.match(r"(fl|fi|fe|cfi|cfl)=\((\d+)\)(?: (.*))?$", line)
        if named:
            kind, number, name = named.groups()
            if name:
                names[number] = name
            if not kind.startswith("c"):
                file = names[number]
        elif line.startswith("calls="):
            called = True  # the next line has the cost of the callee
        elif re.match(r"[+*\-\d]\S* \d+$", line):
            module = re.search(r"/src/(\w+/.+)\.[ch]$", file or "")
            if module and not called:
                cost[module.group(1)] += int(line.split()[1])
            called = False
    return cost


def way(program, which):
    call = subprocess.run([program, which], check=True, capture_output=True, text=True, env=QUIET).stdout.strip()
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "profile"
        subprocess.run(["valgrind", "--tool=callgrind", "--collect-atstart=no", f"--toggle-collect=one_{which}", f"--callgrind-out-file={out}", program, which, call],
                       check=True, capture_output=True, env=QUIET)
        return modules(out.read_text())


def written(design, which):
    """What the document says: `| malloc ... | before | now |`."""
    row = re.search(rf"^\| {which}[^|]*\|[^|]*\| *(\d+)[^|]*\|$", design, re.M)
    if not row:
        sys.exit(f"way: {DESIGN.name} has no row for {which}")
    return int(row.group(1))


def self_test():
    profile = "fl=(1) /x/src/heap/a.c\nfn=(1) f\n10 5\nfi=(2) /x/src/heap/a.h\n+1 2\ncfi=(3) /x/src/os/b.c\ncalls=1 1\n* 900\nfl=(3)\n7 900\nfl=(4) /x/y.c\n1 1\n"
    assert modules(profile) == {"heap/a": 7, "os/b": 900}, modules(profile)
    assert written("| malloc of a chunk | 9 | 12: 3 |\n", "malloc") == 12
    print("self-test: modules are counted once, and a callee's instructions are its own")


def main():
    if "--self-test" in sys.argv:
        return self_test()
    if not shutil.which("valgrind"):
        print("SKIP: needs the package valgrind")
        return SKIP
    design, bad = DESIGN.read_text(), False
    for which in ("malloc", "free"):
        found, most = way(sys.argv[1], which), written(design, which)
        print(f"{which}: {len(found)} modules, {most} in {DESIGN.name}")
        if "--print" in sys.argv or len(found) > most:
            print("\n".join(f"  {name} {cost}" for name, cost in sorted(found.items())))
        bad |= len(found) > most or not found
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
