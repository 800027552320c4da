#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What checking costs: real programs alone, under libquarry-check.so with and without its layers, under memcheck, and built with ASan.

  prices.py [-n ROUNDS] [--without memcheck] [--json FILE] [PROGRAM...]
  prices.py --instructions   instructions of one small program, by callgrind: an exact count, whatever else the machine does
  prices.py --smoke          each way once, small: a test, not a measurement

A round runs every program in every way, in random order. Time is processor time, user and system: on a machine that others use it says
more than elapsed time. Memory is the kernel's high-water mark of resident pages. The load average stands beside the table. A program
must print the same as alone. AddressSanitizer needs a build of its own, so it has a column for the programs of ours alone.
"""
import argparse
import collections
import hashlib
import json
import math
import os
import pathlib
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "record")]
from measure import BUILD, Fault, progress  # noqa: E402
from predict import more  # noqa: E402
from programs import ROOT, Program, environment, programs, quiet  # noqa: E402

# The ways in the order of the table: {name: QUARRY_CHECK, besides where reports go}.
LAYERS = {"check": "", "no guards": "guards:off", "no leak scan": "leaks:off"}
TEN = ("compiler", "python", "channels", "perl", "sqlite", "git", "ffmpeg", "lua", "jq", "ruby")
OURS = ("tree.cpp", "mixed_medium.c")  # a table of their own, since they allocate more than programs do


def library():
    return pathlib.Path(os.environ.get("QUARRY_LIB_DIR") or BUILD / "lib") / "libquarry-check.so"


def known_options():
    """The keys that the library takes: a layer that it does not have is left out of the table."""
    table = ROOT / "src/check/check.def"
    return set(re.findall(r"^X\((\w+)", table.read_text(), re.M)) if table.exists() else set()


def ours(folder):
    """Programs of our own, plain and with AddressSanitizer. {name: (Program, Program with ASan)}"""
    found = {}
    for source in OURS:
        name = source.partition(".")[0]
        compiler = "g++" if source.endswith("cpp") else "gcc"
        built = []
        for suffix, flags in (("", []), (".asan", ["-fsanitize=address"])):
            program = folder / f"{name}{suffix}"
            quiet(compiler, "-O2", "-g", "-D_GNU_SOURCE", f"-I{ROOT}/bench", *flags, ROOT / "bench/quick" / source, "-x", "c", ROOT / "bench/common/counters.c",
                  "-o", program, "-pthread", "-lm")
            built.append(Program([str(program)], {"ASAN_OPTIONS": "detect_leaks=0"}, 1, folder))
        found[name] = tuple(built)
    return found


def ways(reports, without):
    """{name: (words before the command, environment)}"""
    keys = known_options()
    found = {"alone": ([], {})}
    if not library().exists():
        raise Fault(f"{library()} is not there: build it first, with make")
    for name, options in LAYERS.items():
        if not options or options.partition(":")[0] in keys:
            found[name] = ([], {"LD_PRELOAD": str(library()), "QUARRY_CHECK": ",".join(filter(None, [f"out:{reports}", options]))})
    if valgrind := shutil.which("valgrind"):
        found["memcheck"] = ([valgrind, "-q", "--leak-check=full", f"--log-file={reports}/memcheck"], {})
    found["ASan build"] = ([], {})
    return {name: way for name, way in found.items() if name not in without}


def once(program, way, folder):
    """(processor seconds, peak KiB, what it printed). A small process starts the program: the kernel's peak begins with that of the starter."""
    before, extra = way
    launch = BUILD / "lib/quarry/suite/launch"
    if not launch.exists():
        raise Fault(f"{launch} is not there: build it first, with make")
    command = [launch, folder / "peak", *(f"{name}={value}" for name, value in extra.items()), "--", *before, *program.command]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as faults:
        process = subprocess.Popen(command, env=environment(program), cwd=program.folder, stdin=subprocess.DEVNULL, stdout=out, stderr=faults)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        faults.seek(0)
        if process.returncode:
            raise Fault(f"{' '.join(map(str, command))}: status {process.returncode}: {faults.read()[-500:].decode(errors='replace')}")
        peak = int((folder / "peak").read_text().split()[0])
        return usage.ru_utime + usage.ru_stime, peak, hashlib.sha256(out.read()).hexdigest()


def errors(reports):
    """Errors that the checked programs had: a price of work that went wrong would be none."""
    return sum(text.count('{"error"') for text in (p.read_text(errors="replace") for p in pathlib.Path(reports).glob("*.check")))


def measure(work, asan, how, rounds, seed, folder):
    samples, order = collections.defaultdict(list), [(p, w) for p in work for w in how if w != "ASan build" or p in asan]
    shuffle, printed = random.Random(seed), {}
    for number in range(rounds):
        shuffle.shuffle(order)
        for done, (name, way) in enumerate(order):
            progress(f"round {number + 1} of {rounds}, run {done + 1} of {len(order)}: {name} {way}")
            seconds, peak, text = once(asan[name] if way == "ASan build" else work[name], how[way], folder)
            if name not in asan and printed.setdefault(name, text) != text:  # ours print times
                raise Fault(f"{name}: prints something else under {way}")
            samples[name, way].append((seconds, peak))
    progress("")
    return samples


def table(title, samples, work, how, column, unit):
    """Ratios to the program alone, of medians; and their geometric mean."""
    print(f"\n{title}")
    print(f"{'program':14}{'alone':>12}" + "".join(f"{w:>15}" for w in how if w != "alone"))
    ratios = collections.defaultdict(list)
    for name in work:
        alone = statistics.median(s[column] for s in samples[name, "alone"])
        row = f"{name:14}{unit(alone):>12}"
        for way in how:
            if way != "alone":
                if (name, way) in samples:
                    ratio = statistics.median(s[column] for s in samples[name, way]) / max(alone, 1e-9)
                    ratios[way].append(max(ratio, 1e-9))
                    row += f"{ratio:14.2f}x"
                else:
                    row += f"{'-':>15}"
        print(row)
    means = {way: math.exp(statistics.fmean(map(math.log, ratios[way]))) for way in ratios}
    print(f"{'geometric mean':26}" + "".join(f"{means[w]:14.2f}x" if w in means else f"{'-':>15}" for w in how if w != "alone"))
    return means


def instructions(folder, how):
    """Of the tree program: exact, so small differences of layers are seen."""
    program = ours(folder)["tree"][0]
    print(f"{'way':14}{'instructions':>16}")
    for way, (before, extra) in how.items():
        if before or way == "ASan build":
            continue
        out = folder / "callgrind.out"
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", *program.command]
        subprocess.run(command, env={**environment(program), **extra}, cwd=folder, check=True, capture_output=True)
        total = re.search(r"^(?:summary|totals): (\d+)", out.read_text(), re.M)
        print(f"{way:14}{int(total.group(1)):16,}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json")
    parser.add_argument("--without", action="append", default=[])
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--instructions", action="store_true")
    parser.add_argument("programs", nargs="*")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        reports = folder / "reports"
        reports.mkdir()
        scale = 0.05 if args.smoke else 1.0
        try:
            how = ways(reports, args.without + (["memcheck", "ASan build"] if args.smoke else []))
            if args.instructions:
                return instructions(folder, how)
            work = {**programs(folder, scale), **more(folder, scale)}
            if unknown := set(args.programs) - work.keys():
                sys.exit(f"prices.py: no program {', '.join(sorted(unknown))}; there are {', '.join(work)}")
            work = {name: work[name] for name in args.programs or TEN if name in work}
            built = {} if args.smoke or args.programs else ours(folder)
            before = os.getloadavg()[0]
            samples = measure({**work, **{name: plain for name, (plain, _) in built.items()}}, {name: both[1] for name, both in built.items()},
                              how, 1 if args.smoke else args.n, args.seed, folder)
            seconds, mebibytes = (lambda s: f"{s:.3f} s"), (lambda k: f"{k / 1024:.1f} MiB")
            means = {}
            for names, whose in ((list(work), "real programs"), (list(built), "programs of ours")):
                if names:
                    means[whose] = {"seconds": table(f"Processor time of {whose}, ratio to the program alone", samples, names, how, 0, seconds),
                                    "peak": table(f"Peak of resident memory of {whose}, ratio to the program alone", samples, names, how, 1, mebibytes)}
        except Fault as fault:
            sys.exit(f"prices.py: {fault}")
        print(f"load average {before:.2f} before and {os.getloadavg()[0]:.2f} after, {os.cpu_count()} processors; {errors(reports)} errors reported")
        if args.json:
            raw = {f"{name}/{way}": values for (name, way), values in samples.items()}
            pathlib.Path(args.json).write_text(json.dumps({"means": means, "samples": raw}, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
