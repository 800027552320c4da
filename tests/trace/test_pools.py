#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Record programs that use Quarry's pools, and compare what the recorder was told with what the programs say.

  test_pools.py SHARED STATIC EXAMPLES [GROUP...]

SHARED, STATIC: pool_program.c with libquarry.so and with libquarry.a; EXAMPLES: the folder of the examples' programs, or "none".
"""
import collections
import os
import pathlib
import subprocess
import sys
import tempfile

import qtr
from test_record import record, sound

SHARED, STATIC, EXAMPLES = sys.argv[1:4]
NO_FIELDS = ("destroyed", "pushed", "popped", "emptied")


def said(text):
    """What a program says that it did, by pool; of its children apart."""
    part, parts = collections.defaultdict(list), []
    parts.append(part)
    for line in text.splitlines():
        if line == "CHILD":
            part = collections.defaultdict(list)
            parts.append(part)
        elif line == "PARENT":
            part = parts[0]
        else:
            words = line.split()
            at = next(i for i in range(1, len(words)) if words[i] in ("created", "alloc", "free", "resized", "sealed", "released", *NO_FIELDS))
            part[" ".join(words[:at])].append(tuple([words[at]] + [int(w, 0) if w[0].isdigit() else w for w in words[at + 1:]]))
    return parts


def told(trace):
    """The same, of a trace."""
    names, pools = {0: "-"}, collections.defaultdict(list)
    for e in trace.in_order():
        f = e.fields
        if e.what != "pool" or e.by == "held":
            continue
        if e.by == "created":
            names[f["pool"]] = f["name"]
            fields = (f["kind"], names[f["parent"]])
        elif e.by in ("sealed", "released"):
            fields = (f["cookie"],)
        else:
            fields = {"alloc": ("size", "address"), "free": ("address",), "resized": ("old", "size", "address")}.get(e.by, ())
            fields = tuple(f[k] for k in fields)
        pools[names[f["pool"]]].append((e.by, *fields))
    return pools


def expect(trace, pools, name):
    got = told(trace)
    missing = set(pools) - set(got)
    assert not missing, (name, missing)
    for pool, events in pools.items():
        for i, (mine, theirs) in enumerate(zip(got[pool], events)):
            assert mine == theirs, (name, pool, i, mine, theirs)
        assert len(got[pool]) == len(events), (name, pool, len(got[pool]), len(events), got[pool][len(events):][:5], events[len(got[pool]):][:5])


def script():
    """Every event of every pool, with its fields, is what the program says."""
    with tempfile.TemporaryDirectory() as folder:
        runs = [(program, conf, stacks) for program in (SHARED, STATIC) for conf in ("pools:off", "pools:guard", "pools:pass") for stacks in ("none",)]
        runs += [(SHARED, "pools:off", "cfi"), (SHARED, f"pools:off,pool_log:{folder}/log,pool_log_every:100", "none"),
                 (SHARED, f"pools:guard,pool_log:{folder}/log", "none")]
        for program, conf, stacks in runs:
            name = (program, conf, stacks)
            run = record(program, f"{folder}/pool", "plain" if "off" in conf else "checked", options=f"follow:on,stacks:{stacks}", env={"QUARRY_CONF": conf})
            assert not run.err, (name, run.err)
            mine, child = said(run.out)
            assert len(run.files()) == 2, (name, run.files())
            for trace in run.traces():
                sound(trace)
                parent = trace.head["process"] == run.process.pid
                expect(trace, mine if parent else child, name)
                pools, impossible = qtr.pools(trace)
                assert len(impossible) == parent, (name, impossible[:3])  # the block of "file again"
                check_sums(trace, pools, name, parent)
                if stacks != "none":
                    made = [e for e in trace.events if e.what == "pool" and e.by == "alloc"]
                    assert made and all(e.fields["stack"] for e in made), name
            print(f"{os.path.basename(program)} {conf} {stacks}: {sum(map(len, mine.values()))} events")


def check_sums(trace, pools, name, parent):
    """What a reader makes of it."""
    of = {p["name"]: p for p in pools.values()}
    if not parent:
        assert of["late"]["live"] == {} and of["late"]["allocs"] == 1, (name, of["late"])
        return
    assert of["a fifo"]["live"] and not of["a fifo"]["destroyed"], name
    assert {p["name"] for p in pools.values() if not p["destroyed"]} == {"a fifo", "t_stack"}, name
    assert of["t_stack"]["pushed"] == of["t_stack"]["popped"] and of["a stack"]["pushed"] == of["a stack"]["popped"] == 3, name
    ring = of["a ring"]
    assert ring["pushed"] == 11 and ring["sealed"] == ring["released"] == 10 and ring["popped"] == 1 and not ring["live"], (name, ring)
    number = {p["name"]: n for n, p in pools.items()}
    assert of["child"]["parent"] == number["parent"] and of["parent"]["allocs"] == of["parent"]["frees"] == 1, name
    # What it held from its parent: the chunk, which is the parent's block.
    held = [e.fields["held"] for e in trace.events if e.by == "held" and e.fields["pool"] == number["child"]]
    assert held and max(held) >= 65536, (name, held)


def sampled():
    """A sample has no pools, and the program runs as if unrecorded."""
    with tempfile.TemporaryDirectory() as folder:
        run = record(SHARED, f"{folder}/pool", options="sample:100000")
        assert not [e for e in run.trace().events if e.what == "pool"]


def examples():
    """Programs that users may copy: nothing is lost, nothing impossible."""
    if EXAMPLES == "none":
        print("SKIP: needs a build with examples")
        return
    total = collections.Counter()
    for program in sorted(pathlib.Path(EXAMPLES).glob("example_*")):
        if not os.access(program, os.X_OK) or program.is_dir():
            continue
        plain = subprocess.run([program], capture_output=True, text=True, check=True)
        run = record(program, options="follow:on")
        assert run.out == plain.stdout, (program, run.out)
        for trace in run.traces():
            # A child may end otherwise.
            child = trace.head["process"] != run.process.pid
            sound(trace, trace.end["reason"] if trace.end else None if child else "exit")
            pools, impossible = qtr.pools(trace)
            before = [i for i in impossible if pools[i.fields["pool"]]["kind"] == "persist"]
            assert len(before) == len(impossible), (program, impossible[:5])
            events = sum(e.what == "pool" for e in trace.events)
            total[program.name] += events
            print(f"{program.name}: {len(pools)} pools, {events} events")
    assert total["example_fifo"] and total["example_ring"] and total["example_stack"] and total["example_scope"] and total["example_pages"], total


GROUPS = (script, sampled, examples)


def main():
    names = sys.argv[4:]
    for group in GROUPS:
        if not names or group.__name__ in names:
            print(f"run {group.__name__}", flush=True)
            group()


if __name__ == "__main__":
    main()
