#!/bin/bash
# SPDX-License-Identifier: MIT
# An object-heavy interpreter that leaves every object to malloc: trees built, walked and dropped,
# and JSON written and read.
export PYTHONMALLOC=malloc PYTHONHASHSEED=0
exec python3 -c '
import json

def tree(depth):
    return {"left": tree(depth - 1), "right": tree(depth - 1), "name": "node %d" % depth} if depth else []

def size(node):
    return 1 + size(node["left"]) + size(node["right"]) if node else 0

total = 0
for round in range(4):
    text = json.dumps(tree(14))
    total += len(text) + size(json.loads(text))
print(total)
'
