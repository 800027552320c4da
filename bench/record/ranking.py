#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Does an imitation rank allocators as the real thing? Record real programs, fit a synthetic trace to each (quarry gen --fit), replay both
under every malloc that is installed, compare the orders.

  ranking.py [-n ROUNDS] [--json FILE] [PROGRAM...]
  ranking.py --smoke

Two allocators whose figures differ by less than --tie (5 %) in the real trace are of one rank: no order of theirs is wrong.
"""
import argparse
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from measure import Fault, progress  # noqa: E402
from programs import environment, programs, tool  # noqa: E402

FIGURES = {"time": "time_s", "peak RSS": "peak_rss_bytes"}


def run(*command, program=None):
    result = subprocess.run([str(c) for c in command], env=environment(program) if program else None, cwd=program.folder if program else None,
                            capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL)
    # 1: some allocator failed, which the report says.
    if result.returncode not in (0, 1) or result.returncode and "replay" not in command:
        raise Fault(f"{' '.join(map(str, command))}: status {result.returncode}: {result.stderr[-500:]}")
    return result.stdout


def figures(trace, rounds, only):
    """{figure: {allocator: median}}"""
    chosen = ["--with", ",".join(only)] if only else []
    parsed = json.loads(run(tool(), "replay", "-q", "--json", "--no-latency", "-n", rounds, *chosen, trace))
    results = {a["name"]: a["result"] for a in parsed["allocators"] if a["result"]["succeeded"] and not a["result"]["failed"]}
    return {figure: {name: r[key]["median"] for name, r in results.items()} for figure, key in FIGURES.items()}


def order(values):
    return sorted(values, key=values.get)


def agreement(real, other, tie):
    """Pairs that differ in the real trace, and how many of them the other one orders alike."""
    pairs = [(a, b) for a, b in itertools.combinations(order(real), 2) if a in other and b in other and real[b] > real[a] * (1 + tie)]
    return len(pairs), sum(other[a] < other[b] for a, b in pairs)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=5)
    parser.add_argument("--tie", type=float, default=0.05)
    parser.add_argument("--only", help="allocators, as for quarry replay --with")
    parser.add_argument("--json")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("programs", nargs="*")
    args = parser.parse_args()
    only = ["system"] if args.smoke else args.only.split(",") if args.only else []
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        work = programs(folder, 0.05 if args.smoke else 0.5)
        if unknown := set(args.programs) - work.keys():
            sys.exit(f"ranking.py: no program {', '.join(sorted(unknown))}; there are {', '.join(work)}")
        print(f"load average {os.getloadavg()[0]:.2f}")
        try:
            for name, program in work.items():
                if args.programs and name not in args.programs:
                    continue
                real, fitted = folder / "real.qtr", folder / "fitted.qtr"
                progress(f"{name}: recording and fitting")
                run(tool(), "record", "-q", "-o", real, "--", *program.command, program=program)
                run(tool(), "gen", "-q", "--fit", real, "-o", fitted)
                progress(f"{name}: replaying")
                both = figures(real, 1 if args.smoke else args.n, only), figures(fitted, 1 if args.smoke else args.n, only)
                progress("")
                results[name] = {}
                for figure in FIGURES:
                    values = [f[figure] for f in both]
                    pairs, alike = agreement(*values, args.tie)
                    results[name][figure] = {"real": values[0], "fitted": values[1], "pairs": pairs, "alike": alike}
                    print(f"{name:10}{figure:10} {alike} of {pairs} pairs alike; real: {' < '.join(order(values[0]))}; fitted: {' < '.join(order(values[1]))}", flush=True)
        except Fault as fault:
            sys.exit(f"ranking.py: {fault}")
    for figure in FIGURES:
        whole = [name for name, r in results.items() if r[figure]["pairs"] == r[figure]["alike"]]
        print(f"{figure}: the same order for {len(whole)} of {len(results)} programs: {', '.join(whole) or '-'}")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
