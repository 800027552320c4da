#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`quarry block` of quarry-gdb.py says what a block of the heap is, of a live process and of its core.

  test_gdb.py HEAP POOLS SCRIPT    HEAP and POOLS: built from gdb_heap.c and tests/pool/gdb_demo.c
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

LIBRARIES = pathlib.Path(os.environ["QUARRY_LIB_DIR"])
GDB = ["gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off", "-iex", "set pagination off", "-ex", "set startup-with-shell off"]
HEX = "0x[0-9a-f]+"
OFFSET = r"offset (\d+)"
BEHIND = r"(\d+) bytes? behind its end"
FREE = "in a thread's cache or on its way home|at home in its slab|its pages given back"


def gdb(commands, *arguments):
    """Run commands; the output of each is between lines `## command`."""
    words = [word for command in commands for word in ("-ex", f"echo ## {command}\\n", "-ex", command)]
    done = subprocess.run([*GDB, *words, *map(str, arguments)], env={**os.environ, "LC_ALL": "C"}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", timeout=600)
    parts = re.split(r"^## (.*)\n", done.stdout, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2])), done.stdout


def stacks(*callers):
    """Of the two stacks: the function of the program that allocated, and the one that freed."""
    return "".join(rf"  {title} at:\n(    {HEX} .*\n)*?    {HEX} {caller} \(.*gdb_heap\.c:\d+\)\n(    {HEX} .*\n)*"
                   for title, caller in zip(("allocated", "freed"), callers))


def plain(state, room, offset, more=""):
    return rf"^{HEX}: heap of libquarry-malloc\.so\S*\n  {state} block at {HEX}, {room}, offset {offset}{more}\n$"


def checked(state, size, where, note, *callers):
    made = "  made by malloc, number [12] of its place, by thread [0-9]+" + (", freed by thread [0-9]+" if state == "freed" else "") + "\n"
    return rf"^{HEX}: heap of libquarry-check\.so\S*, checked\n  {state} block at {HEX}, {size} bytes, {where}{note}\n{made}{stacks(*callers)}$"


def answers(library, guarded):
    """expression: the pattern of what `quarry block` says."""
    if library == "malloc":
        return {"small + 3": plain("live", "class of 48 bytes", 3), "dead": plain("free", "class of 224 bytes", 0, f", ({FREE})"),
                "middle": plain("live", "class of 6144 bytes", 0), "large + 99999": plain("live", r"100000 bytes in \d+", 99999),
                "huge + 2999999": plain("live", r"3000000 bytes in \d+", 2999999), "dead_large": "  free: ", "dead_huge": "  free: ",
                "empty": r"  live address of malloc\(0\), without memory", "&small": f"^{HEX}: of no heap\n$"}
    note, wait = (", guarded: beside a page without access",) * 2 if guarded else (r", \d+ bytes with what lies behind", r", \d+ bytes with what lies behind; it waits in quarantine")
    some = {"small - 3": checked("live", 40, "3 bytes before its start", note, "made")} if guarded else {}
    return {"small + 3": checked("live", 40, "offset 3", note, "made"), "small + 41": checked("live", 40, "1 byte behind its end", note, "made"),
            "middle": checked("live", 5000, "offset 0", note, "made"), "large + 99999": checked("live", 100000, "offset 99999", note, "made"),
            "huge + 2999999": checked("live", 3000000, "offset 2999999", note, "made"), "empty": checked("live", 0, "0 bytes behind its end", note, "main"),
            "dead + 7": checked("freed", 200, "offset 7", wait, "made", "ended"), "dead_large": checked("freed", 100000, "offset 0", wait, "made", "ended"),
            "dead_huge + 4000000": checked("freed", 5000000, "offset 4000000", wait, "made", "ended"), "&small": f"^{HEX}: of no heap\n$", **some}


def compare(title, wanted, said):
    wrong = [(place, said.get(f"quarry block {place}", "")) for place, pattern in wanted.items() if not re.search(pattern, said.get(f"quarry block {place}", ""))]
    for place, text in wrong:
        print(f"FAILED {title}: {place}: no {wanted[place]!r} in\n{text}")
    return len(wrong)


def heap(program, script, work, library, conf):
    """How many answers were wrong; None: gdb may not trace."""
    wanted = answers(library, "guards:off" not in conf)
    questions = [f"quarry block {place}" for place in wanted]
    core = work / f"core.{library}"
    begin = [f"set environment LD_PRELOAD {LIBRARIES}/libquarry-{library}.so", f"set environment QUARRY_CHECK {conf}", "handle SIGSEGV nostop noprint pass",
             f"source {script}", "break finished", "run"]
    said, text = gdb([*begin, *questions, f"generate-core-file {core}", "kill"], program)
    if "ptrace: Operation not permitted" in text or "Couldn't get registers" in text:
        return None
    failed = compare(f"live {library} {conf}", wanted, said)
    said, _ = gdb([f"source {script}", *questions], program, core)
    return failed + compare(f"core {library} {conf}", wanted, said)


def pools(program, script, work):
    """A pool's block has its stacks from the checker."""
    begin = [f"set environment LD_PRELOAD {LIBRARIES}/libquarry-check.so", f"source {script}", "break finished", f"run {work / 'pool'}"]
    said, _ = gdb([*begin, "quarry block fifo.live + 5", "quarry block fifo.dead", "kill"], program)
    at = rf" at:\n(    {HEX} .*\n)*?    {HEX} fill \(.*gdb_demo\.c:\d+\)\n"
    block = rf'^{HEX}: fifo "demo fifo" at .*\n  (live|freed) block at {HEX}, 40 bytes, offset [05], group 0\n  allocated{at}'
    return compare("pools", {"fifo.live + 5": block, "fifo.dead": rf"{block}(    {HEX} .*\n)*  freed{at}"}, said)


def main():
    if not shutil.which("gdb"):
        print("SKIP: needs the package gdb")
        return 77
    program, demo, script = sys.argv[1:4]
    if "python 3" not in gdb(["python print('python', sys.version_info[0])"])[1]:
        print("SKIP: needs a gdb with Python")
        return 77
    failed = 0
    with tempfile.TemporaryDirectory() as directory:
        work = pathlib.Path(directory)
        for library, conf in (("malloc", "x"), ("check", "guards:off"), ("check", "guards:all")):
            wrong = heap(program, script, work, library, conf)
            if wrong is None:
                print("SKIP: needs the right to trace (ptrace)")
                return 77
            failed += wrong
        failed += pools(demo, script, work)
    print(f"{failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
