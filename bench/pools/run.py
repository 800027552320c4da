#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run the pools' scenarios: the same work on a pool and on malloc, under each malloc at hand, in turns.

  run.py [-n ROUNDS] [--with NAME=PATH]... [--only NAME,...] [--counters] [--json FILE] [SCENARIO...]
  run.py --list        the scenarios
  run.py --smoke       each once, tiny: a test, not a measurement

Each run is a process of its own; a round is every scenario on every allocator, in random order. A ratio is
the pool's figure to that of the malloc that is best in this scenario; in parentheses the same without what the work
itself costs (`nothing`: no allocator at all). docs/benchmarks.md says how to read it.
--counters shows what the processor and the kernel count (bench/common/counters.h), per operation.
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
from measure import BUILD, Fault, libraries, progress, run_lines, spread  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent


# What a name in scenarios.txt may hold; a scenario for each value.
SPREADS = {
    "{threads}": [str(1 << p) for p in range(11) if 1 << p <= 2 * (os.cpu_count() or 1)],
    "{page}": [str(1 << p) for p in range(16, 25)],
}


def scenarios():
    """{name: (program, options, options for a smoke test, pools)} from scenarios.txt."""
    found = {}
    for line in (HERE / "scenarios.txt").read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        spread_over = next((word for word in SPREADS if word in line), "")
        for value in SPREADS.get(spread_over, [""]):
            name, pools, program, full, small = (part.strip() for part in (line.replace(spread_over, value) if spread_over else line).split("|"))
            found[name] = (program, full.split(), small.split(), pools.split(","))
    return found


def one_sample(program, library, options):
    """A run as one line: the phases that count, added up."""
    name, _, phases = program.partition(":")
    lines = [line for line in run_lines(str(BUILD / "lib" / "quarry" / "bench" / name), library, options) if line["phase"] in phases.split("+")]
    if len(lines) != len(phases.split("+")):
        raise Fault(f"{program}: not all of these phases are there")
    # Of several rounds the fastest counts.
    ns = sum(line["values"].get("best_ns", line["seconds"] * 1e9 / line["operations"]) for line in lines)
    counters = {}
    for line in lines:
        for key, value in line.get("counters", {}).items():
            known = isinstance(value, int) and not isinstance(value, bool)
            counters[key] = counters.get(key, 0) + value if known else value
    return {**lines[-1], **lines[-1]["values"], "seconds": ns * lines[0]["operations"] * 1e-9, "counters": counters}


def measure(work, mallocs, rounds, options, seed):
    """{(scenario, allocator): [samples]}; an allocator is `pool:KIND` or the name of a malloc."""
    samples = collections.defaultdict(list)
    order = [(s, f"pool:{p}") for s, w in work.items() for p in w[3]] + [(s, m) for s in work for m in mallocs]
    shuffle = random.Random(seed)
    for number in range(rounds):
        shuffle.shuffle(order)
        for done, (scenario, allocator) in enumerate(order):
            progress(f"round {number + 1} of {rounds}, run {done + 1} of {len(order)}: {scenario} {allocator}")
            which = ["--with", allocator.removeprefix("pool:") if allocator.startswith("pool:") else "malloc"]
            samples[scenario, allocator].append(one_sample(work[scenario][0], mallocs.get(allocator), [*which, *options(scenario)]))
    progress("")
    return samples


def table(samples, work, mallocs):
    summary = []
    head = f"{'scenario':24}{'allocator':14}{'ns/operation':>14}{'±':>5}{'peak RSS MiB':>14}{'RSS/payload':>13}{'page faults':>13}{'rate (allocator alone)':>26}"
    print("\n" + head)
    for scenario, (_, _, _, pools) in work.items():
        rows = {}
        for allocator in [f"pool:{p}" for p in pools] + list(mallocs):
            runs = samples[scenario, allocator]
            per_op = [r["seconds"] * 1e9 / r["operations"] for r in runs]
            rss, payload = statistics.median(r["rss_peak_kib"] for r in runs), runs[0]["payload_bytes"]
            rows[allocator] = (statistics.median(per_op), spread(per_op), rss, rss * 1024 / payload if payload else 0, statistics.median(r["faults"] for r in runs))
        best = min(rows[m][0] for m in mallocs)
        work_alone = rows.get("pool:nothing", (0,))[0]

        def own(malloc_ns, pool_ns):  # without what the work itself costs
            return f" ({(malloc_ns - work_alone) / (pool_ns - work_alone):.1f})" if 0 < work_alone < pool_ns else ""
        for allocator, (ns, noise, rss, ratio, faults) in rows.items():
            speed = f"{best / ns:.2f}{own(best, ns)} x the best" if allocator.startswith("pool:") else f"{'best' if ns == best else ''}"
            print(f"{scenario:24}{allocator:14}{ns:14.2f}{noise * 100:4.0f}%{rss / 1024:14.1f}{ratio:13.2f}{faults:13.0f}{speed:>26}")
            summary.append({"scenario": scenario, "allocator": allocator, "ns_per_operation": ns, "spread": noise, "rss_peak_kib": rss, "rss_per_payload": ratio, "page_faults": faults})
    return summary


def scaling_table(samples):
    """What a thread does, and what a processor does, against one thread alone; of scenarios scaling-N."""
    families = {}
    for (scenario, allocator), runs in samples.items():
        if scenario.startswith("scaling-"):
            families.setdefault(allocator, {})[int(scenario.removeprefix("scaling-"))] = runs
    if not any(len(by_threads) > 1 and 1 in by_threads for by_threads in families.values()):
        return
    cpus = os.cpu_count() or 1
    print(f"\nThreads: blocks per thread and second against one thread alone; the same per processor in use (of {cpus}); processor time of a block against one thread alone")
    print(f"{'allocator':14}{'threads':>8}{'per thread':>12}{'per processor':>15}{'processor time':>16}")
    for allocator, by_threads in sorted(families.items()):
        if 1 not in by_threads:
            continue
        rate = {t: 1 / t / statistics.median(r["seconds"] / r["operations"] for r in runs) for t, runs in by_threads.items()}
        cpu = {t: statistics.median(r["cpu_ns_per_operation"] for r in runs) for t, runs in by_threads.items()}
        for t in sorted(by_threads):
            print(f"{allocator:14}{t:8}{rate[t] / rate[1]:12.2f}{rate[t] * t / min(t, cpus) / rate[1]:15.2f}{cpu[t] / cpu[1]:16.2f}")


def counters_table(samples, work, mallocs):
    """Per operation; the medians of all runs."""
    names = ["cycles", "instructions", "cache_misses", "branch_misses", "page_faults", "context_switches"]
    print("\nCounted per operation\n" + f"{'scenario':24}{'allocator':14}" + "".join(f"{n:>18}" for n in names))
    reasons = set()
    for scenario, (_, _, _, pools) in work.items():
        for allocator in [f"pool:{p}" for p in pools] + list(mallocs):
            runs = [r for r in samples[scenario, allocator] if "counters" in r]
            cells = []
            for name in names:
                values = [r["counters"][name] / r["operations"] for r in runs if r["counters"].get(name) is not None]
                cells.append(f"{statistics.median(values):18.4g}" if values else f"{'-':>18}")
            reasons |= {r["counters"]["hardware"] for r in runs if "hardware" in r["counters"]}
            print(f"{scenario:24}{allocator:14}{''.join(cells)}")
    for reason in sorted(reasons):
        print(f"- {reason}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=5)
    parser.add_argument("--with", dest="extra", action="append", default=[])
    parser.add_argument("--only")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json")
    parser.add_argument("--counters", action="store_true")
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
    if args.counters:
        os.environ["QUARRY_BENCH_COUNTERS"] = "1"
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
    scaling_table(samples)
    if args.counters:
        counters_table(samples, work, mallocs)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps({"schema": "quarry-bench-pools/1", "rounds": args.n, "libraries": mallocs, "results": summary, "samples": {f"{s} {a}": r for (s, a), r in samples.items()}}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
