#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What option guard costs a program: instructions, and memory.

  test_price.py WORKLOAD LIBRARY        exit 1 if it is more than docs/check.md promises
  test_price.py WORKLOAD LIBRARY --print  the table alone

Two runs of one program differ by up to 1 % in instructions, since addresses and secrets differ. So what the option costs is not a
difference of runs: callgrind says which functions each instruction is in, and those of the sampler's draw, of guarded blocks and of
their stacks run for the option alone. The slow paths that take the place of others are counted as a whole.

Memory is a difference: what the program has of its own at its end, as it says itself. So are page faults.
"""
import os
import pathlib
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"
sys.path.insert(0, str(ROOT / "scripts"))
import fastpath  # noqa: E402

FILES = ["heap/draw.c", "heap/samples.c", "heap/guards.c", "heap/guards_choice.c", "heap/guards_report.c", "heap/pace.c", "stacks/innermost.c",
         "stacks/unwind_walk.c", "stacks/unwind_rules.c", "stacks/unwind_cfi.c", "stacks/unwind_expr.c", "stacks/unwind_bounds.c",
         "guard/guard.c", "guard/slots.c", "guard/credit.c", "os/guard.c", "os/faults.c", "os/module.c"]
ALSO = {"alloc_drawn", "push_drawn"}
FUNCTION = re.compile(r"^(?:[A-Za-z_][\w *()]*[ *])?([A-Za-z_]\w*)\([^;]*$", re.M)
ROUNDS, SHARE, KIB = 20, 0.003, 512
CONF = "purge_thread:off"
SKIP = 77


def ours():
    names = set(ALSO)
    for file in FILES:
        names |= set(FUNCTION.findall((SOURCE / file).read_text()))
    return names


def run(command, library, conf, **more):
    environment = {**os.environ, "LD_PRELOAD": str(library), "QUARRY_CONF": conf}
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True, **more).stdout


def instructions(workload, library, conf, names):
    """(of these functions, of all)"""
    with tempfile.TemporaryDirectory() as directory:
        out = pathlib.Path(directory) / "out"
        run(["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={out}", workload, str(ROUNDS)], library, conf)
        found, total = fastpath.costs(out.read_text())
    return sum(own for name, (own, _) in found.items() if name.split(".")[0] in names), total


def memory(workload, library, conf):
    """(KiB at the end, page faults)"""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt
    kib = int(run([workload, str(ROUNDS)], library, conf).split()[1])
    return kib, resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt - before


def main():
    workload, library = sys.argv[1:3]
    if not shutil.which("valgrind"):
        print("SKIP: valgrind is not installed")
        return SKIP
    names, wrong = ours(), []
    assert {"qy_guards_alloc", "qy_walk_cfi", "qy_draw_push"} <= names, "functions were not found in the sources"
    print("| mean bytes between samples | instructions of it | of all | share |\n|---|---:|---:|---:|")
    for mean in ("0", "4m", "512k", "128k"):
        mine, total = instructions(workload, library, f"{CONF},guard:{mean}", names)
        print(f"| {mean} | {mine:,} | {total:,} | {mine / total:.3%} |")
        if mean == "0" and mine > 0.0005 * total:
            wrong.append(f"without the option its code takes {mine} instructions")
        if mean == "512k" and not 0 < mine <= SHARE * total:
            wrong.append(f"{mine} of {total} instructions are of option guard, at most {SHARE:.1%}")
    kib, faults = {}, {}
    for mean in ("0", "512k", "1"):
        runs = [memory(workload, library, f"{CONF},guard:{mean}") for _ in range(5)]
        kib[mean], faults[mean] = (statistics.median(run[i] for run in runs) for i in (0, 1))
        print(f"guard:{mean}: {kib[mean]} KiB of memory at the end, {faults[mean]} page faults")
    wrong += [f"guard:{mean} takes {kib[mean] - kib['0']} KiB, at most {KIB}" for mean in ("512k", "1") if kib[mean] - kib["0"] > KIB]
    if "--print" not in sys.argv:
        print(*wrong, sep="\n")
        return 1 if wrong else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
