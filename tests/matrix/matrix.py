#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run small programs with one memory error each under libquarry-check.so, and hold each report against the error.

  matrix.py [--cells N] [--seed S] [--only TEXT]   N cells of the matrix; without N all of them
  matrix.py --publish     the whole matrix, and its map to docs/check-matrix.svg and docs/check-matrix.txt
  matrix.py --options O   QUARRY_CHECK for the programs, besides where reports go
  matrix.py --self-test   prove that verdicts can fail

A cell is found if a report has its kind and its place. The place is the function that touched the memory, the block's size, the
function that made the block, and the offset. Evidence that is found later knows the block and the offset alone; it counts as found,
and the map tells it apart. Cells that nothing can find here are listed with their reason: see reach(). A cell of theirs that is found is
no failure.

Seed: QUARRY_SEED or --seed, else a new one, which is printed. Exit status 1 if a cell in reach was missed, 77 without a compiler.
"""
import argparse
import collections
import concurrent.futures
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE))
import heat  # noqa: E402
import lines  # noqa: E402
import programs  # noqa: E402

ROOT = pathlib.Path(os.environ.get("QUARRY_SOURCE_DIR") or HERE.parents[1])
PATIENCE = 300  # seconds; it only ends a hang
ALIGN = 16      # of blocks
PER_FILE = 100
WORD = 8        # of a header in a file
PART = 4096     # of a long freed block of a pool: what is looked at in one place

Verdict = collections.namedtuple("Verdict", "word what")  # found, evidence, wrong, missed


def library():
    return pathlib.Path(os.environ.get("QUARRY_LIB_DIR") or ROOT / "build/lib") / "libquarry-check.so"


def reach(cell):
    """Why nothing here finds this cell; None if it has to be found."""
    if cell.kind in programs.MISUSES:
        return None
    if cell.pool:
        return reach_in_pool(cell)
    if cell.write or cell.way != "direct":
        return None
    if cell.kind == "overflow" and cell.size % ALIGN and cell.size % ALIGN + cell.offset < ALIGN:
        return "a load between the block and its guard, which is at the next multiple of 16, leaves no trace"
    if cell.kind == "underflow":
        return "the first block of a call site has its guard behind, and a load before it leaves no trace"
    return None


def reach_in_pool(cell):
    """A pool's block has canaries and a fill, and no guard. Functions of libc are checked on it."""
    begin, _ = programs.touched(cell)
    if cell.pool == "persist" and cell.way == "direct" and cell.write:
        return reach_in_file(cell, begin)
    zone = ALIGN + -cell.size % ALIGN
    if cell.way != "direct":
        if cell.kind == "underflow" and begin < -ALIGN:
            return "before the canaries of a pool's block there is the pool's own memory, or another block"
        return None
    if not cell.write:
        return "a load from a pool's block leaves no trace"
    if cell.kind == "use-after-free" and cell.offset == "middle" and cell.size > 2 * PART:
        return "of a long freed block of a pool both ends are looked at, and one place between"
    if cell.kind == "underflow" and begin < -ALIGN or cell.kind == "overflow" and cell.offset >= zone:
        return "a store beyond the canaries of a pool's block is one to the pool's own memory, or to another block"
    return None


def reach_in_file(cell, begin):
    """A block of a file has no canary before it: there is its header, a word. Behind it is what its size is rounded up by, then the next header."""
    block = max(-(-(cell.size + WORD) // ALIGN) * ALIGN, 2 * ALIGN)
    if cell.kind == "use-after-free" and begin and not ALIGN <= begin < block - ALIGN:
        return "of a store to the links or the size of a free block of a file the word is told, not the byte"
    if cell.kind == "use-after-free" and cell.offset == "middle" and block > 3 * PART:
        return "of a long freed block of a pool both ends are looked at, and one place between"
    if cell.kind == "underflow" and begin < -WORD or cell.kind == "overflow" and begin >= block:
        return "a store beyond the headers around a block of a file is one to free memory, or to another block"
    return None


AFTER = {"stack": "use-after-pop", "ring": "use-after-release"}


def kinds(cell):
    """The words that are right for this cell."""
    if cell.kind in programs.MISUSES:
        return {programs.MISUSES[cell.kind]} | ({"leak-possible"} if cell.kind == "leak_lost" else set())
    access = "write" if cell.write else "read"
    if cell.pool and cell.kind != "use-after-free":
        return {"pool-overflow"} if cell.write else {f"{cell.kind}-read"}
    if cell.pool in AFTER:
        return {AFTER[cell.pool]}
    if cell.kind == "use-after-free":
        return {f"use-after-free-{access}"} | ({"write-after-free"} if cell.write else set()) | \
            ({"use-after-free-read"} if cell.write and cell.way == "direct" else set())
    words = {f"{cell.kind}-{access}"}
    # An instruction that changes a byte reads it first.
    return words | ({f"{cell.kind}-read"} if cell.write and cell.way == "direct" else set())


def right_place(cell, names, found):
    """Is the report about this cell's block, offset and function?"""
    if cell.kind in programs.MISUSES:
        return names.touch in found["stack"] or names.make in found["alloc"]
    begin, count = programs.touched(cell)
    if found["size"] != cell.size or names.make not in found["alloc"]:
        return False
    if found["evidence"]:  # the first byte that is seen to have changed
        return begin <= found["offset"] < begin + count
    first_bad = begin if cell.kind != "overflow" else max(begin, cell.size)
    # A function of libc may begin anywhere in its bytes.
    offsets = (begin, first_bad) if cell.way == "direct" else range(begin, begin + count)
    return found["offset"] in offsets and names.touch in found["stack"]


def judge(cell, names, found, status):
    same_kind = [f for f in found if f["kind"] in kinds(cell)]
    right = [f for f in same_kind if right_place(cell, names, f)]
    if any(not f["evidence"] for f in right):
        return Verdict("found", "")
    if right:
        return Verdict("evidence", "")
    if found:
        return Verdict("wrong", "; ".join(f"{f['kind']} at {f['offset']} of {f['size']}, in {f['stack'][:2]}, block of {f['alloc'][:2]}" for f in found[:3]))
    return Verdict("missed", f"no report, exit status {status}")


class Programs:
    """The sources of cells, compiled into a folder."""

    def __init__(self, cells, rng, folder):
        self.of = {}
        batches = []
        # Programs with pools are linked with libquarry, the others are not.
        parts = [[(number, cell) for number, cell in enumerate(cells) if bool(cell.pool) == pooled] for pooled in (False, True)]
        for numbered in (dict(part[start:start + PER_FILE]) for part in parts for start in range(0, len(part), PER_FILE)):
            text, names = programs.source(numbered, rng)
            path = folder / f"{programs.name(rng, set())}.c"
            path.write_text(text)
            batches.append((path, numbered, names, any(cell.pool for cell in numbered.values())))
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(lambda batch: compile_one(batch[0], batch[3]), batches))
        for path, numbered, names, _ in batches:
            symbols = lines.Symbols(path.with_suffix(""))
            for number, cell in numbered.items():
                self.of[number] = (cell, path.with_suffix(""), names[number], symbols)


def compile_one(path, pooled):
    libraries = ["-lstdc++", *([f"-I{ROOT}/include", f"-L{library().parent}", f"-Wl,-rpath,{library().parent}", "-lquarry"] if pooled else [])]
    done = subprocess.run(["gcc", "-w", "-g", "-O1", "-fno-builtin", "-fno-ipa-ra", "-fno-optimize-sibling-calls", "-pthread", path, "-o", path.with_suffix(""),
                           *libraries], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{path.name} does not compile:\n{done.stderr[:2000]}")


def run_one(program, number, options, folder):
    out = folder / f"out{number}"
    out.mkdir()
    env = {**os.environ, "LD_PRELOAD": str(library()), "QUARRY_CHECK": ",".join([f"out:{out}", "leaks:exit", *options])}
    done = subprocess.run([program, str(number)], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=PATIENCE)
    return out, done.returncode


def run_cells(cells, rng, options, keep=None):
    """{number: (cell, Verdict)}."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        made = Programs(cells, rng, folder)

        def one(number):
            cell, program, names, symbols = made.of[number]
            out, status = run_one(program, number, options, folder)
            verdict = judge(cell, names, lines.findings(out, program, symbols), status)
            shutil.rmtree(out)
            return number, cell, verdict
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            results = {number: (cell, verdict) for number, cell, verdict in pool.map(one, made.of)}
        if keep:
            shutil.copytree(folder, keep, dirs_exist_ok=True)
    return results


def describe(cell):
    size = f"{cell.size} bytes" if cell.offset is None else f"{cell.size} bytes, at {cell.offset}"
    access = "" if cell.kind in programs.MISUSES else f", {'write' if cell.write else 'read'} by {cell.way}"
    return f"{cell.kind}: {size}{access}{', in a thread' if cell.thread else ''}{f', in a pool {cell.pool}' if cell.pool else ''}"


def say(results, seed):
    """Print what was missed; how many cells in reach were."""
    counts, missed, reasons = collections.Counter(), 0, collections.Counter()
    for number, (cell, verdict) in sorted(results.items()):
        reason = reach(cell)
        counts[verdict.word] += 1
        if verdict.word in ("found", "evidence"):
            continue
        if reason:
            reasons[reason] += 1
            continue
        missed += 1
        print(f"{verdict.word}: cell {number}, {describe(cell)}: {verdict.what}")
    print(f"{len(results)} cells with seed {seed}: " + ", ".join(f"{count} {word}" for word, count in sorted(counts.items())))
    for reason, count in reasons.items():
        print(f"{count} out of reach: {reason}")
    return missed


def self_test():
    rng = random.Random(1)
    cell = programs.Cell("overflow", 24, 0, True, "memset", False)
    names = programs.Names("makes", "touches", "drops")
    good = {"kind": "overflow-write", "offset": 24, "size": 24, "evidence": False, "stack": ["touches"], "alloc": ["makes"], "free": []}
    assert judge(cell, names, [good], 0).word == "found"
    assert judge(cell, names, [{**good, "evidence": True, "stack": []}], 0).word == "evidence"
    for wrong in ({"kind": "underflow-write"}, {"offset": 30}, {"size": 32}, {"stack": ["drops"]}, {"alloc": ["drops"]}):
        assert judge(cell, names, [{**good, **wrong}], 0).word == "wrong", wrong
    assert judge(cell, names, [], 0).word == "missed"
    all_cells = programs.cells(rng)
    octave = lambda size: next(i for i, (low, high) in enumerate(programs.OCTAVES) if low <= size <= high)  # noqa: E731
    wanted = 2 * 2 * (2 * len(programs.OCTAVES) + len(programs.POOLS)) * (len(programs.OFFSETS) + len(programs.PLACES))
    pooled = cell._replace(way="direct", pool="stack")
    assert judge(pooled, names, [{**good, "kind": "pool-overflow", "evidence": True, "stack": []}], 0).word == "evidence"
    assert judge(pooled, names, [good], 0).word == "wrong" and reach(pooled) is None and reach(pooled._replace(write=False))
    assert len([c for c in all_cells if c.kind not in programs.MISUSES]) == wanted
    assert {octave(c.size) for c in all_cells} == set(range(len(programs.OCTAVES)))
    assert programs.cells(random.Random(2)) != programs.cells(random.Random(3))
    heat.self_test()
    print("matrix: verdicts can fail")


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1])
    parser.add_argument("--cells", type=int)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("QUARRY_SEED") or random.SystemRandom().randrange(1 << 32)))
    parser.add_argument("--only", default="")
    parser.add_argument("--options", default="")
    parser.add_argument("--keep", help="a folder for the sources and programs")
    parser.add_argument("--publish", action="store_true")
    parser.add_argument("--self-test", action="store_true")
    args = parser.parse_args()
    if args.self_test:
        return self_test()
    if not shutil.which("gcc"):
        print("needs gcc")
        return 77
    if not library().exists():
        print(f"{library()} is not there: build it first, with make")
        return 1
    rng = random.Random(args.seed)
    cells = [cell for cell in programs.cells(rng) if args.only in describe(cell)][:args.cells]
    results = run_cells(cells, rng, [option for option in args.options.split(",") if option], args.keep)
    missed = say(results, args.seed)
    if args.publish:
        heat.publish(ROOT / "docs", results.values(), {cell: reach(cell) for cell in cells})
    return missed > 0


if __name__ == "__main__":
    sys.exit(main())
