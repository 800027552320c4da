#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What checking costs: real programs alone, under libquarry-check.so with and without its layers, under memcheck, and built with ASan.

  prices.py [-n ROUNDS] [--scale X] [--without memcheck] [--json FILE] [PROGRAM...]
  prices.py --instructions [--json FILE]   of a malloc and its free, by layers, by callgrind: an exact count, whatever else the machine does
  prices.py --smoke                        each way once, small: a test, not a measurement

A round runs every program in every way, in random order; memcheck runs in the first one alone. Time is processor time, user and system, and
the least of the rounds counts: on a machine that others use it says more than elapsed time and than a median. Memory is the kernel's
high-water mark of resident pages, of the median run. The load average stands beside the table. A program must print the same as alone.
AddressSanitizer needs a build of its own, so it has a column for the programs of ours alone. docs/check.md has the tables of samples/.
"""
import argparse
import collections
import datetime
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
# Each takes one layer more away.
LAYERS = {"check": "", "no guards": "guards:off", "nor leak scan": "guards:off,leaks:off", "nor quarantine": "guards:off,leaks:off,quarantine:65536"}
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
            if number and way == "memcheck":
                continue
            progress(f"round {number + 1} of {rounds}, run {done + 1} of {len(order)}: {name} {way}")
            seconds, peak, text = once(asan[name] if way == "ASan build" else work[name], how[way], folder)
            # Ours print times, and the two threads of git divide the work by chance.
            if name not in asan and name != "git" and printed.setdefault(name, text) != text:
                raise Fault(f"{name}: prints something else under {way}")
            samples[name, way].append((seconds, peak))
    progress("")
    return samples


def table(title, samples, work, how, column, unit):
    """Ratios to the program alone, and their geometric mean."""
    middle = statistics.median if column else min
    print(f"\n{title}")
    print(f"{'program':14}{'alone':>12}" + "".join(f"{w:>15}" for w in how if w != "alone"))
    ratios = collections.defaultdict(list)
    for name in work:
        alone = middle(s[column] for s in samples[name, "alone"])
        row = f"{name:14}{unit(alone):>12}"
        for way in how:
            if way != "alone":
                if (name, way) in samples:
                    ratio = middle(s[column] for s in samples[name, way]) / max(alone, 1e-9)
                    ratios[way].append(max(ratio, 1e-9))
                    row += f"{ratio:14.2f}x"
                else:
                    row += f"{'-':>15}"
        print(row)
    means = {way: math.exp(statistics.fmean(map(math.log, ratios[way]))) for way in ratios}
    print(f"{'geometric mean':26}" + "".join(f"{means[w]:14.2f}x" if w in means else f"{'-':>15}" for w in how if w != "alone"))


PAIRS = """#include <stdlib.h>
static volatile int count;
static size_t n;
__attribute__((noinline)) static void pair(void) { void *volatile p = malloc(n); free(p); count++; }
__attribute__((noinline)) static void caller(void) { pair(); count++; }
__attribute__((noinline)) static void outer(void) { caller(); count++; }
int main(int argc, char **argv) { n = atoi(argv[1]); for (int i = argc > 2 ? atoi(argv[2]) : 0; i; i--) outer(); return 0; }
"""
# The layer of an instruction, by the file and the function that it is of: the first that fits.
LAYERS_OF_CODE = [
    ("fill of the freed block, and its verification", r"zone\.c:(look_at|qy_check_fill|fill_|line_is)|mem(set|cpy)"),
    ("canary: written, and verified at the free and at the end of the wait", r"/zone\.[ch]:|/evidence\.c:"),
    ("call stacks of the two calls, five frames each", r"/stacks/|/frames\.c:qy_check_stack|:(qy_walk|qy_stack|qy_bounds|qy_rules|stacks_|walk_|step_|intern|leave_own|recall)"),
    ("quarantine: the block enters, and another leaves", r"/quarantine\.[ch]:|quarantine_leaves|qy_check_quarantine|quarantine_drain"),
    ("records: from the address to what is known of the block", r"/records\.[ch]:|record_make"),
    ("exact checks of the call, and the choice of a block", r"/check/|/api/check_"),
    ("the heap, and locks", r"/(heap|pages|rt|os|base)/"),
    ("the program's loop and the rest", r""),
]


def counted_pairs(program, size, pairs, folder, env):
    """Instructions by the file and function that they are of."""
    out = folder / "callgrind.out"
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", program, str(size), str(pairs)]
    subprocess.run(command, env={**os.environ, **env}, cwd=folder, check=True, capture_output=True)
    text = subprocess.run(["callgrind_annotate", "--threshold=100", "--show-percs=no", out], check=True, capture_output=True, text=True).stdout
    found = collections.Counter()
    for line in text.splitlines():
        if row := re.match(r"\s*([\d,]+)\s+(\S+:\S+)", line):
            found[row.group(2)] += int(row.group(1).replace(",", ""))
    return found


def instructions(folder, env):
    """{size: {layer: instructions of a pair}}, and what they add up to. Of a difference: what the start costs is not in it."""
    source, program, few = folder / "pairs.c", folder / "pairs", 20000
    source.write_text(PAIRS)
    quiet("gcc", "-O2", "-g", source, "-o", program)
    sums = {}
    for size in (24, 200, 4000):
        less, more_ = (counted_pairs(program, size, pairs, folder, env) for pairs in (few, 2 * few))
        layers = dict.fromkeys((layer for layer, _ in LAYERS_OF_CODE), 0.0)
        for where in more_:
            layer = next(layer for layer, pattern in LAYERS_OF_CODE if re.search(pattern, where))
            layers[layer] += (more_[where] - less[where]) / few
        sums[size] = layers
    print(f"{'instructions of a malloc and its free':75}" + "".join(f"{size:>8} B" for size in sums))
    for layer, _ in LAYERS_OF_CODE:
        print(f"{layer:75}" + "".join(f"{sums[size][layer]:10.0f}" for size in sums))
    print(f"{'all':75}" + "".join(f"{sum(sums[size].values()):10.0f}" for size in sums))
    return sums


def stamp():
    """Of what a sample is: the day, the commit, the machine."""
    version = quiet("git", "-C", ROOT, "log", "-1", "--format=%h")
    return {"date": datetime.date.today().isoformat(), "commit": version, "processors": os.cpu_count(), "kernel": os.uname().release.split("-")[0]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scale", type=float, default=1.0, help="of the programs' work")
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
        scale = 0.05 if args.smoke else args.scale
        try:
            how = ways(reports, args.without + (["memcheck", "ASan build"] if args.smoke else []))
            if args.instructions:
                counted = instructions(folder, how["nor quarantine"][1])
                if args.json:
                    pathlib.Path(args.json).write_text(json.dumps({**stamp(), "instructions": counted}, indent=1) + "\n")
                return None
            work = {**programs(folder, scale), **more(folder, scale)}
            if unknown := set(args.programs) - work.keys():
                sys.exit(f"prices.py: no program {', '.join(sorted(unknown))}; there are {', '.join(work)}")
            work = {name: work[name] for name in args.programs or TEN if name in work}
            built = {} if args.smoke or args.programs else ours(folder)
            before = os.getloadavg()[0]
            samples = measure({**work, **{name: plain for name, (plain, _) in built.items()}}, {name: both[1] for name, both in built.items()},
                              how, 1 if args.smoke else args.n, args.seed, folder)
            seconds, mebibytes = (lambda s: f"{s:.3f} s"), (lambda k: f"{k / 1024:.1f} MiB")
            for names, whose in ((list(work), "real programs"), (list(built), "programs of ours")):
                if names:
                    table(f"Processor time of {whose}, ratio to the program alone", samples, names, how, 0, seconds)
                    table(f"Peak of resident memory of {whose}, ratio to the program alone", samples, names, how, 1, mebibytes)
        except Fault as fault:
            sys.exit(f"prices.py: {fault}")
        load = [round(before, 1), round(os.getloadavg()[0], 1)]
        print(f"load average {before:.2f} before and {os.getloadavg()[0]:.2f} after, {os.cpu_count()} processors; {errors(reports)} errors reported")
        if args.json:
            raw = {f"{name}/{way}": [(round(seconds, 3), peak) for seconds, peak, *_ in values] for (name, way), values in samples.items()}
            kept = {**stamp(), "load": load, "rounds": args.n, "scale": args.scale, "ways": [way for way in how if way != "alone"],
                    "programs": list(work), "ours": list(built), "samples": raw}
            text = json.dumps(kept, indent=1)
            pathlib.Path(args.json).write_text(re.sub(r"\[\s+([\d.]+),\s+(\d+)\s+\]", r"[\1, \2]", text) + "\n")


if __name__ == "__main__":
    sys.exit(main())
