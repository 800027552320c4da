# SPDX-License-Identifier: MIT
# A load for an interpreter: text taken apart by regular expressions, trees built and dropped, JSON written and read. How
# many rounds: the argument.
import json
import re
import sys

WORD = re.compile(r"([a-z]+)-([0-9]+)")


def text(count):
    return " ".join(f"word-{n * 7919 % 10007}" for n in range(count))


def tree(depth):
    return {"left": tree(depth - 1), "right": tree(depth - 1), "name": f"node {depth}"} if depth else []


total = 0
for _ in range(int(sys.argv[1])):
    words = {}
    for match in WORD.finditer(text(20000)):
        words.setdefault(match.group(2), []).append(match.group(1))
    written = json.dumps([tree(11), words])
    total += len(written) + len(json.loads(written))
print(total)
