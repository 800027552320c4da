#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Of large blocks of calloc the trace says which were fresh, which were cleared, and what was touched later.

  test_zeroed.py PROGRAM
"""
import sys

import test_record

MIB = 1 << 20
SLACK = 64 * 1024  # pages at both ends, and of long ranges only a sample is looked at


def main():
    run = test_record.Run(sys.argv[1]).wait()
    if run.status == 2:
        print("SKIP: the C library's malloc did not use the freed block again; needs glibc")
        return 77
    assert run.status == 0, (run.status, run.err)
    trace = run.trace()
    births = [e.fields for e in trace.events if e.what == "zeroed"]
    callocs = [e.fields for e in trace.events if e.what == "alloc" and e.by == "calloc"]
    assert [b["size"] for b in births] == [64 * MIB, 4 * MIB], births
    assert [b["address"] for b in births] == [c["address"] for c in callocs if c["size"] >= 4 * MIB], (births, callocs)
    fresh, cleared = (b["bytes"] for b in births)
    assert fresh <= SLACK and 4 * MIB - SLACK <= cleared <= 4 * MIB + SLACK, (fresh, cleared)
    # At their ends: the fresh one has the quarter that was written, the other one what it had.
    touched = [e.fields["bytes"] for e in trace.events if e.what == "touched"]
    assert abs(touched[0] - 16 * MIB) <= 2 * MIB and touched[-1] >= cleared - SLACK, touched
    print(f"fresh: {fresh} of {64 * MIB} bytes resident, cleared: {cleared} of {4 * MIB}, touched later: {touched[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
