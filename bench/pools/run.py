#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run the pools' scenarios: the same work on a pool and on malloc, under each malloc at hand, in turns.

  run.py [-n ROUNDS] [--with NAME=PATH]... [--only NAME,...] [--scale F] [--json FILE] [SCENARIO...]
  run.py --list        the scenarios
  run.py --smoke       each once, tiny: a test, not a measurement

Each run is a process of its own; a round is every scenario on every allocator, in random order. A ratio is
the pool's figure to that of the malloc that is best in this scenario. docs/benchmarks.md says how to read it.
"""
import argparse
import collections
import json
import os
import pathlib
import random
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from measure import BUILD, Fault, libraries, one_run, progress, spread  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent


def scenarios():
    """{name: (program, options, options for a smoke test, pools)} from scenarios.txt."""
    found = {}
    for line in (HERE / "scenarios.txt").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            name, pools, program, full, small = (part.strip() for part in line.split("|"))
            found[name] = (program, full.split(), small.split(), pools.split(","))
    return found


def measure(work, mallocs, rounds, options, seed):
    """{(scenario, allocator): [samples]}; an allocator is `pool:KIND` or the name of a malloc."""
    samples = collections.defaultdict(list)
    order = [(s, f"pool:{p}") for s, w in work.items() for p in w[3]] + [(s, m) for s in work for m in mallocs]
    shuffle = random.Random(seed)
    for number in range(rounds):
        shuffle.shuffle(order)
        for done, (scenario, allocator) in enumerate(order):
            progress(f"round {number + 1} of {rounds}, run {done + 1} of {len(order)}: {scenario} {allocator}")
            program = str(BUILD / "bench" / "pools" / work[scenario][0])
            which = ["--with", allocator.removeprefix("pool:") if allocator.startswith("pool:") else "malloc"]
            samples[scenario, allocator].append(one_run(program, mallocs.get(allocator), [*which, *options(scenario)]))
    progress("")
    return samples


def table(samples, work, mallocs):
    summary = []
    head = f"{'scenario':24}{'allocator':14}{'ns/operation':>14}{'±':>5}{'peak RSS MiB':>14}{'RSS/payload':>13}{'page faults':>13}{'rate, pool : malloc':>22}"
    print("\n" + head)
    for scenario, (_, _, _, pools) in work.items():
        rows = {}
        for allocator in [f"pool:{p}" for p in pools] + list(mallocs):
            runs = samples[scenario, allocator]
            per_op = [r["seconds"] * 1e9 / r["operations"] for r in runs]
            rss, payload = statistics.median(r["rss_peak_kib"] for r in runs), runs[0]["payload_bytes"]
            rows[allocator] = (statistics.median(per_op), spread(per_op), rss, rss * 1024 / payload if payload else 0, statistics.median(r["faults"] for r in runs))
        best = min(rows[m][0] for m in mallocs)
        for allocator, (ns, noise, rss, ratio, faults) in rows.items():
            speed = f"{best / ns:.2f} x the best" if allocator.startswith("pool:") else f"{'best' if ns == best else ''}"
            print(f"{scenario:24}{allocator:14}{ns:14.2f}{noise * 100:4.0f}%{rss / 1024:14.1f}{ratio:13.2f}{faults:13.0f}{speed:>22}")
            summary.append({"scenario": scenario, "allocator": allocator, "ns_per_operation": ns, "spread": noise, "rss_peak_kib": rss, "rss_per_payload": ratio, "page_faults": faults})
    return summary


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=5)
    parser.add_argument("--with", dest="extra", action="append", default=[])
    parser.add_argument("--only")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("scenarios", nargs="*")
    args = parser.parse_args()
    work = scenarios()
    if args.list:
        return print("\n".join(f"{n:24}{w[0]} {' '.join(w[1])}" for n, w in work.items()))
    if unknown := set(args.scenarios) - work.keys():
        sys.exit(f"run.py: no scenario {', '.join(sorted(unknown))}; --list shows them")
    if args.scenarios:
        work = {n: work[n] for n in args.scenarios}
    mallocs = libraries(args.extra)
    if args.only:
        mallocs = {n: p for n, p in mallocs.items() if n in args.only.split(",")}
    if args.smoke:
        mallocs = {"sys": None}
    if not mallocs or args.n < 1:
        sys.exit("run.py: no malloc of these names, or -n below 1")
    try:
        samples = measure(work, mallocs, 1 if args.smoke else args.n, lambda s: work[s][2 if args.smoke else 1], args.seed)
    except Fault as fault:
        print(f"FAILED: {fault}")
        return 1
    if args.smoke:
        return print(f"{len(samples)} runs")
    print(f"{args.n} rounds, medians ± half the distance of the quartiles; load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors")
    summary = table(samples, work, mallocs)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps({"schema": "quarry-bench-pools/1", "rounds": args.n, "libraries": mallocs, "results": summary, "samples": {f"{s} {a}": r for (s, a), r in samples.items()}}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
