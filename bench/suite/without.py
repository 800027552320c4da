#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What is each heuristic of the heap worth? Programs run without it, beside the same programs with all of them.

  without.py [-n ROUNDS] [--scale X] [--json FILE] [PROGRAM...]
  without.py --smoke

src/rt/heuristics.h has the names. The library is that of `cmake --build build --target quarry_malloc_without`. In each round a program runs once
with all, and once without each, in random order. A ratio is of the run without to the run with all, in the same round. The mean is geometric,
over the programs. Beside it stand the programs of which all rounds are on the same side of 1, and the median is off by 3 % or more.
"""
import argparse
import json
import math
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "bench/record")]
from measure import BUILD, Fault, progress  # noqa: E402
from predict import more  # noqa: E402
from programs import Program, environment, programs  # noqa: E402

REAL = ("compiler", "perl", "sqlite", "node", "ruby", "xsltproc", "cppcheck", "jq")
SEEN = 0.03
WHAT = {"cpu": "processor time", "peak": "peak", "faults": "page faults"}


def names():
    text = (ROOT / "src/rt/heuristics.h").read_text()
    return re.findall(r"^ +X\((\w+), \"", text, re.M)


def run(program, library, without):
    env = {**environment(program), "LD_PRELOAD": library, "QUARRY_WITHOUT": without}
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(program.command, env=env, cwd=program.folder, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        text = out.read().decode(errors="replace")
    if process.returncode:
        raise Fault(f"{' '.join(map(str, program.command))[:200]} without '{without}': status {process.returncode}: {text[-300:]}")
    # The kernel's peak of a process counts that of its parent before exec. The programs of quick/ read their own.
    own = re.search(r'"rss_peak_kib":(\d+)', text)
    return {"cpu": usage.ru_utime + usage.ru_stime, "peak": int(own[1]) if own else usage.ru_maxrss, "faults": usage.ru_minflt + usage.ru_majflt}


def quick(folder, scale):
    found = {}
    for path in sorted((BUILD / "lib/quarry/bench/quick").iterdir()):
        found[path.name] = Program([str(path)], {}, 1, folder)
    return found if scale >= 0.2 else dict(list(found.items())[:1])


def measure(work, rounds, library):
    """{program: {name: [{cpu, peak, faults} as ratios, of each round]}}"""
    ratios = {program: {name: [] for name in names()} for program in work}
    for turn in range(rounds):
        for label, program in work.items():
            order = ["", *names()]
            random.Random(f"{turn} {label}").shuffle(order)
            progress(f"round {turn + 1}: {label}")
            now = {without: run(program, library, without) for without in order}
            for name in names():
                ratios[label][name].append({what: now[name][what] / now[""][what] for what in WHAT})
    progress("")
    return ratios


def told(ratios, name, what):
    """The mean over the programs, and those that all rounds show to differ."""
    medians, seen = [], []
    for program, by_name in ratios.items():
        values = sorted(one[what] for one in by_name[name])
        medians.append(statistics.median(values))
        if abs(medians[-1] - 1) >= SEEN and (values[0] > 1 or values[-1] < 1):
            seen.append((abs(math.log(medians[-1])), f"{program} {medians[-1]:.2f} ({values[0]:.2f} to {values[-1]:.2f})"))
    mean = math.exp(statistics.fmean(map(math.log, medians)))
    return f"{mean:.3f}" + "".join(f", {text}" for _, text in sorted(seen, reverse=True)[:3])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="of the real programs' work")
    parser.add_argument("--json", help="the ratios of each round")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("programs", nargs="*")
    args = parser.parse_args()
    rounds, scale = (1, 0.05) if args.smoke else (args.n, args.scale)
    library = BUILD / "lib/libquarry-malloc-without.so"
    if not library.exists():
        print(f"no {library}: cmake --build build --target quarry_malloc_without", file=sys.stderr)
        sys.exit(77 if args.smoke else 1)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        real = {**programs(folder, scale), **more(folder, scale)}
        work = {**quick(folder, scale), **{name: real[name] for name in REAL[:2 if args.smoke else None] if name in real}}
        if unknown := set(args.programs) - work.keys():
            sys.exit(f"without.py: no program {', '.join(sorted(unknown))}; there are {', '.join(work)}")
        work = {name: program for name, program in work.items() if not args.programs or name in args.programs}
        load = os.getloadavg()[0]
        try:
            ratios = measure(work, rounds, str(library))
        except Fault as fault:
            sys.exit(f"without.py: {fault}")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(ratios, indent=1) + "\n")
    print(f"{len(work)} programs: {', '.join(work)}; {rounds} rounds; load average {load:.0f} at the begin, {os.getloadavg()[0]:.0f} at the end\n")
    print("| without | " + " | ".join(WHAT.values()) + " |\n|---|" + "---|" * len(WHAT))
    for name in names():
        print(f"| `{name}` | " + " | ".join(told(ratios, name, what) for what in WHAT) + " |")


if __name__ == "__main__":
    main()
