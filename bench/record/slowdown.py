#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What recording costs: real programs alone, under quarry record without and with call stacks, and under heaptrack.

  slowdown.py [-n ROUNDS] [--json FILE] [PROGRAM...]
  slowdown.py --profile   what profiling costs: the sampler in the drop-in, an exact record, massif, heaptrack; more programs
  slowdown.py --sampler   the same without massif and heaptrack, which take long
  slowdown.py --smoke     each once, small: a test, not a measurement

A round runs the programs in random order, and each in all ways one after the other, in random order, too. What is timed is the whole command, as a user waits for it: with the start of
the tool and the end of its files. docs/benchmarks.md says how to read it.
"""
import argparse
import collections
import json
import math
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from measure import Fault, progress  # noqa: E402
from predict import more  # noqa: E402
from programs import ROOT, environment, programs, tool  # noqa: E402

SAMPLED = "sampler on"  # its ratio is to the program on Quarry: what the sampler costs, not what another malloc does


def heaptrack_way(folder):
    heaptrack = shutil.which("heaptrack")
    if not heaptrack:
        return {}
    known = subprocess.run([heaptrack, "--help"], capture_output=True, text=True).stdout
    raw = "--record-only" if "--record-only" in known else "--raw"  # it was renamed
    return {"heaptrack": [heaptrack, raw, "-o", f"{folder}/heaptrack"]}


def profile_ways(folder, foreign):
    """The same for profiles."""
    preload = f"LD_PRELOAD={ROOT}/build/lib/libquarry-malloc.so"
    exact = [tool(), "record", "-q", "-g", "-o", f"{folder}/trace.qtr", "--"]
    found = {"alone": [], "on Quarry": ["env", preload], SAMPLED: ["env", preload, "QUARRY_CONF=sample:512k"], "exact": exact}
    if foreign:
        found.update(heaptrack_way(folder))
        if valgrind := shutil.which("valgrind"):
            found["massif"] = [valgrind, "-q", "--tool=massif", f"--massif-out-file={folder}/trace.qtr.massif"]
    return found


def ways(folder):
    """{name: words before the command}"""
    record = [tool(), "record", "-q", "-o", f"{folder}/trace.qtr"]
    found = {"alone": [], "record": [*record, "--"], "record -g fp": [*record, "-gfp", "--"], "record -g": [*record, "-g", "--"]}
    return {**found, **heaptrack_way(folder)}


def once(program, before, folder):
    """Seconds elapsed, seconds of processor time, and bytes of what was recorded."""
    for old in [*folder.glob("trace.qtr*"), *folder.glob("heaptrack*")]:
        old.unlink()
    start = time.monotonic()
    process = subprocess.Popen([*before, *program.command], env=environment(program), cwd=program.folder, stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    errors = process.stderr.read().decode(errors="replace")
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.monotonic() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise Fault(f"{' '.join([*before, *program.command])}: status {process.returncode}: {errors[-500:]}")
    size = sum(f.stat().st_size for f in [*folder.glob("trace.qtr*"), *folder.glob("heaptrack*")])
    if before and before[0] != "env" and not size:
        raise Fault(f"{before[0]}: recorded nothing of {program.command[0]}: {errors[-500:]}")
    return wall, usage.ru_utime + usage.ru_stime, size


def contents(program, options, folder):
    """Events and bytes, of a recording of its own."""
    command = [tool(), "record", "--json", "--summary", f"{folder}/summary", "-o", f"{folder}/trace.qtr", *options, "--", *program.command]
    subprocess.run(command, env=environment(program), cwd=program.folder, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    return json.loads((folder / "summary").read_text())


def measure(work, how, rounds, seed, folder):
    samples, failed = collections.defaultdict(list), {}
    shuffle = random.Random(seed)
    for number in range(rounds):
        order = [(p, w) for p in shuffle.sample(list(work), len(work)) for w in shuffle.sample(list(how), len(how))]
        for done, (name, way) in enumerate(order):
            progress(f"round {number + 1} of {rounds}, run {done + 1} of {len(order)}: {name} {way}")
            try:
                samples[name, way].append(once(work[name], how[way], folder))
            except Fault as fault:
                if way not in ("heaptrack", "massif"):
                    raise
                failed[name, way] = str(fault)  # somebody else's business, but it has to be said
    progress("")
    for (name, way), fault in failed.items():
        samples.pop((name, way), None)
        print(f"without {way}: {name}: {fault}")
    return samples


def table(title, samples, work, how, column):
    """Ratios to the program alone. The means are of the programs that have all ways."""
    whole = [name for name in work if all((name, way) in samples for way in how)]
    print(f"\n{title}")
    print(f"{'program':12}{'alone':>10}{'±':>6}" + "".join(f"{w:>15}" for w in how if w != "alone"))
    ratios = collections.defaultdict(list)
    for name in work:
        base = [s[column] for s in samples[name, "alone"]]
        middle = statistics.median(base)
        low, _, high = statistics.quantiles(base, n=4, method="inclusive") if len(base) > 2 else (middle, middle, middle)
        row = f"{name:12}{middle:9.3f}s{(high - low) / 2 / middle * 100:5.0f}%"
        for way in how:
            if way == "alone":
                continue
            if (name, way) not in samples:
                row += f"{'-':>15}"
                continue
            to = statistics.median(s[column] for s in samples[name, "on Quarry"]) if way == SAMPLED else middle
            ratio = statistics.median(s[column] for s in samples[name, way]) / max(to, 1e-9)
            if name in whole:
                ratios[way].append(max(ratio, 1e-9))
            row += f"{ratio:14.3f}x"
        print(row)
    means = {way: math.exp(statistics.fmean(math.log(r) for r in ratios[way])) for way in ratios}
    print(f"{f'geometric mean of {len(whole)}':26}" + "".join(f"{m:14.3f}x" for m in means.values()))
    return means


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=7)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--sampler", action="store_true")
    parser.add_argument("programs", nargs="*")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        scale = 0.05 if args.smoke else 1.0
        work = programs(folder, scale)
        if args.profile or args.sampler:
            work.update(more(folder, scale))
        if unknown := set(args.programs) - work.keys():
            sys.exit(f"slowdown.py: no program {', '.join(sorted(unknown))}; there are {', '.join(work)}")
        work = {n: p for n, p in work.items() if not args.programs or n in args.programs}
        how = profile_ways(folder, args.profile) if args.profile or args.sampler else ways(folder)
        if args.smoke:
            how.pop("heaptrack", None)
        print(f"load average {os.getloadavg()[0]:.2f}, {os.cpu_count()} processors; seed {args.seed}")
        try:
            samples = measure(work, how, 1 if args.smoke else args.n, args.seed, folder)
            means = {"elapsed": table("Elapsed time, ratio to the program alone", samples, work, how, 0),
                     "processor": table("Processor time of the program and the tool, ratio to the program alone", samples, work, how, 1)}
            print(f"\n{'program':12}{'threads':>9}{'events':>12}{'lost':>6}{'MiB':>8}{'bytes/event':>13}{'with stacks':>13}{'events/ms':>11}")
            sizes = {}
            for name, program in work.items():
                plain, stacks = (contents(program, options, folder) for options in ([], ["-g"]))
                alone = statistics.median(s[0] for s in samples[name, "alone"])
                sizes[name] = {"plain": plain["traces"], "stacks": stacks["traces"]}
                print(f"{name:12}{plain['threads']:9}{plain['events']:12}{plain['lost']:6}{plain['bytes'] / 2**20:8.1f}{plain['bytes_per_event']:13.2f}"
                      f"{stacks['bytes_per_event']:13.2f}{plain['events'] / alone / 1000:11.0f}")
        except Fault as fault:
            sys.exit(f"slowdown.py: {fault}")
        print(f"load average {os.getloadavg()[0]:.2f}")
        if args.json:
            raw = {f"{n}/{w}": s for (n, w), s in samples.items()}
            pathlib.Path(args.json).write_text(json.dumps({"means": means, "samples": raw, "sizes": sizes}, indent=1) + "\n")


if __name__ == "__main__":
    main()
