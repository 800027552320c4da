#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Record reallocs whose old place is another's before they return, by threads in every state: the order of events must come out.

  test_moves.py MOVES    the program moves.c
"""
import os
import sys

import qtr
from test_record import record, sound

MOVES = os.path.abspath(sys.argv[1])
MOVED, SMALL, HUGE = 60000, 4321, (1 << 63) + 5
# Enough for several blocks of the trace, which end in the middle of a realloc if its room was not there before.
MANY = 3000


def moves(who, what, size, rounds, options="", told=True):
    """The trace; the events of the place; its bytes. Nothing in the trace is impossible, and nothing is left. Not `told`: most of the
    blocks are not in the trace, and so it may begin with the end of one."""
    run = record(MOVES, who, what, size, rounds, options=options)
    place, bytes_ = (int(word, 0) for word in run.out.split())
    trace = sound(run.trace())
    left, impossible = qtr.live(trace)
    if not told:
        return trace, [], bytes_
    about = (who, what, size, options)
    assert not impossible, (about, len(impossible), impossible[:3])
    assert place not in left and not {SMALL, MOVED} & set(left.values()), (about, left)
    of_place = [e for e in trace.in_order() if place in (e.fields.get("address"), e.fields.get("old"))]
    assert len(of_place) >= rounds, (about, len(of_place))
    return trace, of_place, bytes_


def blocks_of_mover(trace, place_events):
    """So many blocks of the trace the thread has that moved the place's block."""
    mover = next(e.thread for e in place_events if e.what == "realloc")
    return len(trace.threads[mover])


def threads():
    """Of a new thread, one that has a writer, and one that hides something for good."""
    for size in (MOVED, 0):
        trace, events, _ = moves("first", "realloc", size, 50)
        assert len({e.thread for e in events if e.what == "realloc" or e.by == "other"}) == 50
        moves("same", "realloc", size, MANY)
        moves("stale", "realloc", size, MANY)
        if size:
            assert blocks_of_mover(*moves("stale", "realloc", size, MANY)[:2]) > 2


def samples():
    """When samples are recorded, a realloc may have a record of three kinds."""
    for size in (MOVED, 0, 1):
        for who, rounds in (("first", 50), ("same", MANY), ("stale", MANY)):
            trace, events, _ = moves(who, "realloc", size, rounds, "sample:1")
            if who != "first" and size == MOVED:
                assert blocks_of_mover(trace, events) > 2
    # Of blocks of 1 byte some are drawn, and some are not.
    kinds = {(e.what, e.by) for e in events if e.thread != 1}
    assert kinds == {("realloc", "realloc"), ("free", "other")}, kinds
    # A realloc whose old block was not drawn is none the less a realloc, and no allocation. Each stands for 1 / (1 - exp(-size / mean)).
    mean = 200000
    trace, _, _ = moves("same", "realloc", MOVED, MANY, f"sample:{mean},stacks:cfi", told=False)
    resized = [e for e in trace.events if e.what == "realloc" and e.fields["size"] == MOVED]
    assert not [e for e in trace.events if e.what == "alloc" and e.by == "realloc"], trace.events[:5]
    weighed = len(resized) / (1 - 2.718281828 ** (-MOVED / mean))
    assert abs(weighed / MANY - 1) < 0.2, (weighed, MANY)
    # The stack is that of the realloc, whether or not the block before it was drawn.
    assert len({e.fields["stack"] for e in resized}) == 1 and resized[0].fields["stack"], resized[:3]


def ended():
    """A realloc of a thread that has ended is a free and an allocation."""
    for options in ("", "sample:1"):
        for size in (MOVED, 0):
            trace, events, _ = moves("late", "realloc", size, 200, options)
            freed = [e for e in events if e.thread == 0]
            assert len(freed) == 200 and {(e.what, e.by) for e in freed} == {("free", "other")}, freed[:3]
            born = [e for e in trace.events if e.thread == 0 and e.by == "realloc"]
            assert len(born) == (0 if options or not size else 200) and all(e.fields["size"] == size for e in born), born[:3]
        # One that fails leaves the block as it is.
        trace, events, _ = moves("late", "realloc", HUGE, 20, options)
        late = [(e.what, e.by, e.fields.get("size")) for e in trace.events if e.thread == 0 and (e in events or e.what == "failed")]
        # The size is known of a block that was drawn, or that was watched.
        expected = [("free", "other", None), ("failed", "realloc", HUGE), ("alloc", "realloc", SMALL)] * 20
        assert late == expected or not options and [one[:2] for one in late] == [one[:2] for one in expected] and {one[2] for one in late[2::3]} == {0, SMALL}, late[:6]


def large():
    """What was touched of a large block is not said of the next one at its place, whoever freed it."""
    for who, touched in (("same", 3), ("late", 0)):
        trace, _, bytes_ = moves(who, "free", 0, 3)
        told = [e.fields["bytes"] for e in trace.events if e.what == "touched"]
        assert len(told) == touched and all(0 < n <= bytes_ + 8192 for n in told), (who, told)


GROUPS = (threads, samples, ended, large)

if __name__ == "__main__":
    for group in GROUPS:
        if not sys.argv[2:] or group.__name__ in sys.argv[2:]:
            print(f"run {group.__name__}", flush=True)
            group()
