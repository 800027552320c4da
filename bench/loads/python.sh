#!/bin/bash
# SPDX-License-Identifier: MIT
# An object-heavy interpreter that leaves every object to malloc: trees built, walked and dropped,
# and JSON written and read.
#   python.sh [--rounds N]
export PYTHONMALLOC=malloc PYTHONHASHSEED=0
[ "${1-}" = --rounds ] && shift
exec python3 -c '
import json
import sys

def tree(depth):
    return {"left": tree(depth - 1), "right": tree(depth - 1), "name": "node %d" % depth} if depth else []

def size(node):
    return 1 + size(node["left"]) + size(node["right"]) if node else 0

total = 0
for round in range(int(sys.argv[1])):
    text = json.dumps(tree(14))
    total += len(text) + size(json.loads(text))
print(total)
' "${1-4}"
