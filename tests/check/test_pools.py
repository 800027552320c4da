#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Faults in pools, under libquarry-check: is each reported once, with kind, pool, block, place and both stacks?

  test_pools.py PROGRAM
"""
import os
import random
import sys

import reports

PROGRAM = sys.argv[1]
SEED = int(os.environ.get("QUARRY_SEED", random.randrange(1 << 32)))
print(f"seed {SEED}")
chance = random.Random(SEED)

# fault: kind of the report, its function, the offset of a block of n bytes, the function that was called, or None: evidence
BLOCKS = {
    "overflow": ("pool-overflow", None, lambda n: n, None),
    "underflow": ("pool-overflow", None, lambda n: -1, None),
    "double": ("double-free", "free", lambda n: 0, "wrong"),
    "interior": ("interior-free", "free", lambda n: n // 2, "wrong"),
    "invalid": ("invalid-free", "free", None, "wrong"),
    "write-after": ("write-after-free", None, lambda n: n // 2, None),
    # Functions of libc are told at once, and what they changed is not told again.
    "copy-over": ("pool-overflow", "memcpy", lambda n: 0, "copied_in"),
    "copy-under": ("pool-overflow", "memcpy", lambda n: -1, "copied_in"),
    "copy-out-over": ("overflow-read", "memcpy", lambda n: 0, "copied_out"),
    "copy-after": ("use-after-free-write", "memcpy", lambda n: n // 2, "copied_in"),
    "copy-out-after": ("use-after-free-read", "memcpy", lambda n: n // 2, "copied_out"),
    "none": None,
}
FRAMES = {fault: BLOCKS[fault] for fault in ("overflow", "underflow", "copy-over", "copy-under", "copy-out-over", "none")}


def frames(kind, **more):
    return {**FRAMES, "write-after": (kind, None, lambda n: n // 2, None), "resize-after": (kind, "resize", lambda n: 0, "resized"),
            "copy-after": (kind, "memcpy", lambda n: n // 2, "copied_in"), "copy-out-after": (kind, "memcpy", lambda n: n // 2, "copied_out"), **more}


CASES = {
    "stack": frames("use-after-pop", **{"wrong-frame": ("pool-wrong-frame", "resize", lambda n: 0, "resized")}),
    "ring": frames("use-after-release"),
    "fifo": BLOCKS, "tlsf": BLOCKS, "pow2": BLOCKS, "pages": BLOCKS, "persist": BLOCKS,
}
# Misuse of the pool itself: the kind, a part of its detail, and the function that did it.
ENDING = {
    "stack": {"out-of-order": ("pool-wrong-frame", "is popped while", "popped"), "sealed": ("pool-wrong-frame", "in a sealed frame", "made"),
              "destroyed": ("pool-destroyed", "", "made")},
    "ring": {"released-twice": ("pool-double-release", "of a frame", "released")},
    "fifo": {"destroyed": ("pool-destroyed", "", "made")},
}
WAITING = ("ring", "fifo")
# Sizes whose header, with one byte overwritten, has fewer bits different from a header with other flags.
NEARER = (220, 452, 804, 1028)
ENDS = {"stack": "popped", "ring": "released"}


def case(kind, fault, wanted, size=None):
    size = size or chance.randrange(16, 3000)
    size += kind == "persist" and size % 256 == 232  # the header behind has the byte already that is written there
    files = reports.run([PROGRAM, kind, fault, str(size)], expect=7)
    errors = [e for r in files for e in r.of("error")]
    if not wanted:
        assert not errors, (kind, fault, size, errors)
        return
    assert len(errors) == 1, (kind, fault, size, errors)
    r, e = files[0], errors[0]
    word, function, offset, caller = wanted
    assert (e["kind"], e["function"], e["evidence"]) == (word, function, not caller), (kind, fault, size, e)
    if caller:
        assert caller in r.names(e["stack"])[:3], (kind, fault, r.names(e["stack"]))
    block = e["block"]
    if not offset:
        assert block is None, e
        return
    assert e["offset"] == offset(size) and block["size"] == size, (kind, fault, size, e)
    assert (block["pool"], block["pool_kind"], block["family"]) == ("checked", kind, "pool"), block
    assert "made" in r.names(block["alloc"]["stack"])[:3], r.names(block["alloc"]["stack"])
    ended = word.startswith("use-after") or word in ("double-free", "write-after-free")
    assert block["state"] == ("freed" if ended else "live"), block
    if ended:
        assert ENDS.get(kind, "freed") in r.names(block["free"]["stack"])[:3], r.names(block["free"]["stack"])


def ending(kind, fault, wanted):
    """The report comes before the process ends with its one line."""
    files = reports.run([PROGRAM, kind, fault, str(chance.randrange(16, 3000))], expect=-6, says="quarry: ")
    errors = [e for r in files for e in r.of("error")]
    assert len(errors) == 1, (kind, fault, errors)
    r, e = files[0], errors[0]
    word, detail, caller = wanted
    assert e["kind"] == word and detail in (e["detail"] or ""), (kind, fault, e)
    assert caller in r.names(e["stack"]), (kind, fault, r.names(e["stack"]))
    assert [end["how"] for end in r.of("end")] == ["signal"], r.of("end")


def leaks_of(kind, fault, nested):
    """What is lost, and what is not: (kind, of a pool?, bytes, bytes with it)."""
    size = chance.randrange(16, 3000)
    files = reports.run([PROGRAM, kind, fault, str(size), *(["nested"] if nested else [])], leaks="exit", show_reachable="on", expect=7)
    found = []
    for r in files:
        for leak in r.of("leak"):
            if leak["pool"]:
                assert leak["family"] == "pool", leak
            if leak["pool"] == "checked":
                assert leak["pool_kind"] == kind and "made" in r.names(leak["stack"])[:3], (leak, r.names(leak["stack"]))
                assert leak["bytes"] == size and leak["blocks"] == 1, leak
            # Not what libquarry and the C library have for themselves.
            if leak["pool"] == "checked" or leak["bytes"] in (77, 88):
                found.append((leak["kind"].removeprefix("leak-"), "pool" if leak["pool"] else leak["bytes"], leak["indirect_blocks"]))
            else:
                assert leak["kind"] == "leak-reachable", leak
    return sorted(found, key=str)


def held(kind, nested):
    """Blocks of pools are lost or not as those of malloc, but for those that their frame ends. Those that ended hold no pointer any more."""
    framed = kind in ENDS
    alive = [("reachable", "pool", 0), ("reachable", 77, 0)]
    wanted = {
        "holds": alive,
        "holds-within": alive if framed else [("possible", "pool", 0), ("possible", 77, 0)],
        "holds-lost": [("definite", 88, 0), *alive] if framed else [("definite", 88, 2), ("indirect", "pool", 0), ("indirect", 77, 0)],
        "loses": alive if framed else [("definite", "pool", 1), ("indirect", 77, 0)],
        "drops": [("definite", 77, 0)],
        # A pool that is destroyed waits for its last blocks in some kinds.
        "ends": [("definite", 77, 0)] if kind not in WAITING else alive if framed else [("definite", "pool", 1), ("indirect", 77, 0)],
    }
    for fault, leaks in wanted.items():
        found = leaks_of(kind, fault, nested)
        assert found == sorted(leaks, key=str), (kind, fault, nested, found)


LEAKING = [kind for kind in CASES if kind != "persist"]  # blocks of a file outlive the process
for kind in LEAKING:
    held(kind, nested=False)
NESTED = chance.sample(LEAKING, 2)
for kind in NESTED:
    held(kind, nested=True)
for kind, faults in ENDING.items():
    for fault, wanted in faults.items():
        ending(kind, fault, wanted)
for kind, faults in CASES.items():
    for fault, wanted in faults.items():
        case(kind, fault, wanted)
for size in NEARER:
    case("persist", "underflow", BLOCKS["underflow"], size)
# The byte behind these is the header of free memory.
for size in (24, 776):
    case("persist", "overflow", BLOCKS["overflow"], size)
# Their middle is in a link of the list of free blocks.
for size in range(16, 34):
    case("persist", "write-after", BLOCKS["write-after"], size)
print(f"{sum(map(len, [*CASES.values(), *ENDING.values()])) + 6 * (len(LEAKING) + len(NESTED))} cases")
