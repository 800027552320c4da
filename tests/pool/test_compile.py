#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What must not compile: allocations whose constant size no object can have.

  test_compile.py COMPILER INCLUDE_FOLDER
"""
import subprocess
import sys

PROGRAM = """
#include <quarry/pool.h>
void *f(quarry_pool_t *pool);
void *f(quarry_pool_t *pool) {{ return {expression}; }}
"""
GOOD = ["p_new(pool, int, 10)", "p_new_raw(pool, char, 1ul << 40)", "p_new_extra(pool, long, 100)"]
BAD = ["p_new(pool, int, 1ul << 62)", "p_new_raw(pool, char, ~0ul)", "p_new_extra(pool, long, ~0ul - 3)", "p_new(pool, long, -1)"]


def compiles(expression):
    command = [sys.argv[1], "-O2", "-x", "c", "-std=gnu17", f"-I{sys.argv[2]}", "-c", "-o", "/dev/null", "-"]
    done = subprocess.run(command, input=PROGRAM.format(expression=expression), capture_output=True, text=True)
    return done.returncode == 0, done.stderr


failed = 0
for expression in GOOD + BAD:
    good, errors = compiles(expression)
    if good != (expression in GOOD) or (not good and "larger than any object" not in errors):
        failed += 1
        print(f"FAILED {expression}: compiles: {good}\n{errors}")
print(f"{len(GOOD + BAD)} expressions, {failed} wrong")
sys.exit(failed > 0)
