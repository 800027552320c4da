# SPDX-License-Identifier: MIT
"""Numbers within sentences that a measurement of the tree has: instruction counts of bench/fastpath/expected.json.

A place is a file, the words around the number, and the calls whose counts, with slow calls in proportion, are added. The words must occur once.
"""
import json
import re

COUNTS = "bench/fastpath/expected.json"
PLACES = (
    ("README.md", r"(t_scope; +// )(\d+)( instructions)", ("t_scope",)),
    ("docs/design.md", r"(fetch the next one\. )(\d+)( instructions\.)", ("malloc 32",)),
    ("docs/design.md", r"(Then push\. )(\d+)( instructions: )", ("free 32",)),
    ("include/quarry/malloc.h", r"(Cost: about )(\d+)( instructions for sizes up to 1 KiB)", ("malloc 32",)),
    ("include/quarry/fifo.h", r"(Cost: about )(\d+)( instructions for an allocation)", ("fifo alloc 48",)),
    ("include/quarry/fifo.h", r"(for an allocation, )(\d+)( for a free by the owner)", ("fifo free 48",)),
    ("include/quarry/ring.h", r"(Cost: about )(\d+)( instructions for an allocation)", ("ring alloc 48",)),
    ("include/quarry/ring.h", r"(for an allocation, )(\d+)( for newframe, seal and release)", ("ring newframe", "ring seal", "ring release")),
)


def names():
    return {name for name, *_ in PLACES}


def filled(name, text, root):
    """The text of a file with its numbers as they are now."""
    counts = json.loads((root / COUNTS).read_text())["instructions"]
    for _, words, calls in (place for place in PLACES if place[0] == name):
        value = round(sum(counts[call][1] for call in calls))
        text, found = re.subn(words, lambda match: f"{match.group(1)}{value}{match.group(3)}", text)
        if found != 1:
            raise SystemExit(f"generate_docs.py: {name}: {words} occurs {found} times")
    return text
