#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Of blocks of 4 to 128 KiB the trace says what the program wrote, also in pages that were there before.

  test_written.py PROGRAM
"""
import sys

import test_record

KIB = 1024
PAGE = 4096
# size: the least and the most that may be said. Written is counted in pages, and a block begins within one.
EXPECTED = {
    40 * KIB: (1, 2 * PAGE),  # fresh, its first byte
    64 * KIB: (10000, 10000 + PAGE),
    60 * KIB: (0, 0),
    56 * KIB: (56 * KIB, 56 * KIB),
    52 * KIB: (1, PAGE),  # of calloc
    48 * KIB: (20 * KIB, 20 * KIB + PAGE),  # what it had before it grew
    44 * KIB: (21000, 21000 + PAGE),  # grown from a block that was too small to be watched
    36 * KIB: (36 * KIB, 36 * KIB),  # with zeros
    32 * KIB: (3 * PAGE, 7 * PAGE),  # live at the end: three pages that are not neighbours
}


def main():
    run = test_record.Run(sys.argv[1]).wait()
    if run.status == 2:
        print("SKIP: the C library's malloc did not use the freed block again; needs glibc")
        return 77
    assert run.status == 0, (run.status, run.err)
    sizes, said = {}, {}
    for event in test_record.sound(run.trace()).events:
        if event.what == "alloc":
            sizes[event.fields["address"]] = event.fields["size"]
        elif event.what == "realloc":
            sizes[event.fields["new"]] = event.fields["size"]
        elif event.what == "extension" and event.by == "written":
            said.setdefault(sizes[event.fields["address"]], []).append(event.fields["bytes"])
    for size, (least, most) in EXPECTED.items():
        assert len(said.get(size, ())) == 1 and least <= said[size][0] <= most, (size, said.get(size), least, most)
    print("written: " + ", ".join(f"{said[size][0]} of {size}" for size in EXPECTED))
    return 0


if __name__ == "__main__":
    sys.exit(main())
