#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What must not compile: allocations whose constant size no object can have. And what must: the headers for C++ in programs
without exceptions or without run-time types.

  test_compile.py COMPILER INCLUDE_FOLDER COMPILER_OF_CPP
"""
import subprocess
import sys

PROGRAM = """
#include <quarry/pool.h>
void *f(quarry_pool_t *pool);
void *f(quarry_pool_t *pool) {{ return {expression}; }}
"""
CPP = """
#include <quarry/scope.hpp>
#include <vector>
int f(quarry_pool_t *pool);
int f(quarry_pool_t *pool) {
    quarry::scope scope;
    quarry::memory_resource resource{scope.pool()};
    std::pmr::vector<int> v{&resource};
    std::vector<int, quarry::allocator<int>> w{pool};
    v.push_back(*quarry::make_unique<int>(pool, 1));
    w.push_back(2);
    return v[0] + w[0];
}
"""
GOOD = ["QUARRY_NEW(pool, int, 10)", "QUARRY_NEW_RAW(pool, char, 1ul << 40)", "QUARRY_NEW_EXTRA(pool, long, 100)"]
BAD = ["QUARRY_NEW(pool, int, 1ul << 62)", "QUARRY_NEW_RAW(pool, char, ~0ul)", "QUARRY_NEW_EXTRA(pool, long, ~0ul - 3)", "QUARRY_NEW(pool, long, -1)"]


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
for flags in [], ["-fno-exceptions"], ["-fno-rtti"], ["-fno-exceptions", "-fno-rtti"]:
    command = [sys.argv[3], "-O2", "-Wall", "-Wextra", "-Werror", "-x", "c++", "-std=gnu++17", f"-I{sys.argv[2]}", "-c", "-o", "/dev/null", "-"]
    done = subprocess.run(command + flags, input=CPP, capture_output=True, text=True)
    if done.returncode:
        failed += 1
        print(f"FAILED {' '.join(flags)}: {done.stderr}")
print(f"{len(GOOD + BAD)} expressions and a program of C++, {failed} wrong")
sys.exit(failed > 0)
