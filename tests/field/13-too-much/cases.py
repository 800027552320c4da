# SPDX-License-Identifier: MIT
"""Interpreters that tell their scripts so."""
import os
import pathlib

from field import Failure, Skip, case

CASES = []


def most():
    if pathlib.Path("/proc/sys/vm/overcommit_memory").read_text().strip() != "0":
        raise Skip("needs vm.overcommit_memory=0")
    return 4 * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


# What is asked for must not be touched: where it is given, that would be the end of the machine.
@case(CASES)
def numpy(f):
    """An array of zeros comes from calloc. MemoryError, and the script goes on."""
    if f.tried(["/usr/bin/python3", "-c", "import numpy"], {"LD_PRELOAD": ""}).status:
        raise Skip("needs the package python3-numpy")
    f.good(["/usr/bin/python3", "-c", f"""
import numpy
for i in range(3):
    try: numpy.zeros({most()} // 8); raise SystemExit('given out')
    except MemoryError: pass
print(len(numpy.zeros(1000)))"""])


@case(CASES)
def dd(f):
    """A buffer that is larger than the machine, for an input that is empty."""
    done = f.tried(["dd", "if=/dev/null", "of=/dev/null", f"bs={most()}", "count=1"])
    if done.status != 1 or "memory" not in done.err:
        raise Failure(done.ending())


@case(CASES)
def sort_buffer(f):
    """The limit of what a sort may use as its buffer, which sort asks for less and less of until it is given some."""
    f.same(["bash", "-c", f"seq 1000 | sort -S {most()}b -rn | tail -1"])
