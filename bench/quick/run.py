#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run the quick set: ten workloads under each malloc at hand, in turns, and compare.

  run.py [-n ROUNDS] [--with NAME=PATH]... [--only NAME,...] [--threads N] [--json FILE] [WORKLOAD...]
  run.py --smoke       each workload once, tiny: a test, not a measurement
  run.py --self-test   prove that the sums are right and that faults are found out

  -n ROUNDS         so many runs of each workload under each malloc (default 5)
  --with NAME=PATH  one more library to preload
  --only NAME,...   these mallocs only: sys, quarry, jemalloc, mimalloc, tcmalloc, tbbmalloc, or a --with
  --threads N       instead of each workload's own number
  --seed N          of the workloads and of the order of runs (default 1)
  --json FILE       every sample, and the medians

Each run is a process of its own; a round is every workload under every malloc, in random order. The
work is fixed, so time is what differs. docs/benchmarks.md says how to read the tables.
"""
import argparse
import collections
import json
import math
import os
import pathlib
import random
import statistics
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from measure import BUILD, Fault, libraries, must_serve, one_run, progress, spread  # noqa: E402

# Name, and how many operations are enough for a smoke test.
WORKLOADS = {
    "small_churn": 50_000, "list": 1, "tree": 20_000, "mixed_medium": 20_000, "large": 50, "realloc_growth": 50_000,
    "producer_consumer": 50_000, "handover": 50_000, "mt_churn": 50_000, "phases": 2,
}
MEASURES = {  # title, unit's divisor, digits
    "seconds": ("elapsed seconds", 1, 3), "peak_kib": ("peak RSS, MiB", 1024, 1), "cpu": ("user + system seconds", 1, 3),
    "faults": ("page faults, thousands", 1000, 1),
}


def measure(programs, mallocs, rounds, options, seed, progress):
    """{(workload, malloc): [samples]}. The results of the work must not depend on the malloc."""
    samples, expected = collections.defaultdict(list), {}
    order, shuffle = [(w, m) for w in programs for m in mallocs], random.Random(seed)
    for number in range(rounds):
        shuffle.shuffle(order)
        for done, (workload, malloc) in enumerate(order):
            progress(f"round {number + 1} of {rounds}, run {done + 1} of {len(order)}: {workload} {malloc}")
            sample = one_run(programs[workload], mallocs[malloc], options(workload))
            want = expected.setdefault(workload, sample["check"])
            if sample["check"] != want:
                raise Fault(f"{workload} under {malloc}: the result is {sample['check']}, elsewhere {want}")
            samples[workload, malloc].append(sample)
    progress("")
    return samples


# ---- sums ---------------------------------------------------------------------------------------

def medians(samples, measure):
    return {key: statistics.median(s[measure] for s in runs) for key, runs in samples.items()}


def geometric_mean(values):
    return math.exp(statistics.fmean(math.log(v) for v in values))


def means(table, workloads, mallocs, base):
    """{malloc: geometric mean of its ratio to base}; base None: to the best one of each workload."""
    return {m: geometric_mean([table[w, m] / (table[w, base] if base else min(table[w, o] for o in mallocs))
                               for w in workloads]) for m in mallocs}


# ---- tables -------------------------------------------------------------------------------------

def row(first, cells):
    return f"{first:20}" + "".join(f"{c:>16}" for c in cells)


def print_tables(samples, workloads, mallocs):
    summary = {}
    for name, (title, divisor, digits) in MEASURES.items():
        table = medians(samples, name)
        print("\n" + row(title, mallocs))
        for w in workloads:
            noise = {m: spread([s[name] for s in samples[w, m]]) for m in mallocs}
            print(row(w, [f"{table[w, m] / divisor:.{digits}f} ±{noise[m] * 100:3.0f}%" for m in mallocs]))
        bases = [b for b in ("jemalloc",) if b in mallocs] + [None]
        for base in bases:
            ratio = means(table, workloads, mallocs, base)
            summary.setdefault(name, {})[base or "best"] = ratio
            print(row(f"mean / {base or 'best'}", [f"{ratio[m]:.3f}      " for m in mallocs]))
    base = "jemalloc" if "jemalloc" in mallocs else mallocs[0]
    for name, title in (("seconds", "time"), ("peak_kib", "RSS")):
        table = medians(samples, name)
        print("\n" + row(f"{title} / {base}", mallocs))
        for w in workloads:
            print(row(w, [f"{table[w, m] / table[w, base]:.2f}      " for m in mallocs]))
    return summary


def save(path, samples, summary, mallocs, args):
    runs = [{"workload": w, "malloc": m, "samples": s} for (w, m), s in samples.items()]
    data = {"rounds": args.n, "seed": args.seed, "threads": args.threads, "libraries": mallocs, "runs": runs, "means": summary}
    pathlib.Path(path).write_text(json.dumps(data, indent=1) + "\n")


# ---- self-test ----------------------------------------------------------------------------------

def self_test():
    table = {("a", "x"): 2.0, ("a", "y"): 1.0, ("b", "x"): 1.0, ("b", "y"): 8.0}
    assert abs(means(table, "ab", "xy", "y")["x"] - 0.5) < 1e-9
    best = means(table, "ab", "xy", None)
    assert abs(best["x"] - 2 ** 0.5) < 1e-9 and abs(best["y"] - 8 ** 0.5) < 1e-9
    assert spread([1, 2, 3, 4, 5]) == 1 / 3 and spread([4]) == 0
    with tempfile.TemporaryDirectory() as folder:
        def program(name, script):
            path = pathlib.Path(folder, name)
            path.write_text(f"#!/bin/sh\n{script}\n")
            path.chmod(0o755)
            return str(path)

        def fault(script, rounds=1):
            try:
                measure({"w": program("w", script)}, {"m": None}, rounds, lambda w: [], 1, lambda t: None)
            except Fault as e:
                return str(e)
            return "no fault"

        assert fault('echo "{\\"check\\":\\"1\\"}"') == "no fault"
        assert "status 3" in fault("exit 3")
        assert "status -6" in fault("kill -6 $$")
        assert "no JSON" in fault("echo hello")
        assert "elsewhere" in fault('echo "{\\"check\\":\\"$$\\"}"', rounds=2)
        try:
            must_serve("/bin/true", "/no/such/library.so")
            raise AssertionError("a library that serves nothing was let through")
        except Fault:
            pass
    print("self-test: the sums are right, and faults were found out")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS)
    parser.add_argument("-n", type=int, default=5, help=argparse.SUPPRESS)
    parser.add_argument("--with", dest="extra", action="append", default=[], help=argparse.SUPPRESS)
    for option in ("--only", "--json"):
        parser.add_argument(option, help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=1, help=argparse.SUPPRESS)
    for option in ("--smoke", "--self-test"):
        parser.add_argument(option, action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("workloads", nargs="*", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.n < 1:
        sys.exit("run.py: -n wants 1 or more")
    if unknown := set(args.workloads) - WORKLOADS.keys():
        sys.exit(f"run.py: no workload {', '.join(sorted(unknown))}; there are: {', '.join(WORKLOADS)}")
    return args


def main():
    args = parse()
    if args.self_test:
        return self_test()
    mallocs = libraries(args.extra)
    if args.only:
        names = args.only.split(",")
        if missing := [n for n in names if n not in mallocs]:
            sys.exit(f"run.py: not found: {', '.join(missing)}; found: {', '.join(mallocs)}")
        mallocs = {n: mallocs[n] for n in names}
    workloads = args.workloads or list(WORKLOADS)
    programs = {w: str(BUILD / "lib/quarry/bench/quick" / w) for w in workloads}
    for path in programs.values():
        if not os.path.exists(path):
            sys.exit(f"run.py: {path} is not built")

    def options(workload):
        threads = ["--threads", str(args.threads)] if args.threads else []
        return ["--seed", str(args.seed), *threads, *(["--ops", str(WORKLOADS[workload])] if args.smoke else [])]

    rounds = 1 if args.smoke else args.n
    busy = os.getloadavg()[0]
    try:
        for library in filter(None, mallocs.values()):
            must_serve(programs[workloads[0]], library)
        samples = measure(programs, mallocs, rounds, options, args.seed, progress)
    except Fault as fault:
        print(f"FAILED: {fault}")
        return 1
    if args.smoke:
        return print(f"{len(samples)} runs under {', '.join(mallocs)}: same results")
    print(f"{rounds} rounds, medians ± half the distance of the quartiles; load average {busy:.1f} before, "
          f"{os.getloadavg()[0]:.1f} after, {os.cpu_count()} processors")
    summary = print_tables(samples, workloads, list(mallocs))
    if args.json:
        save(args.json, samples, summary, mallocs, args)


if __name__ == "__main__":
    sys.exit(main())
