#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run every program of bench/scenarios once, tiny, in all of its ways: a test, not a measurement.

  smoke.py               under the system's malloc and under Quarry; exit 1 and one line for each fault
  smoke.py --self-test   prove that faults are found out

Checked: status, the members of each line, the same checksum under both mallocs and with every `--with`, usage errors, curves where they belong,
and the figures that are exact.
"""
import json
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from measure import BUILD, environment  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
FOLDER = BUILD / "lib" / "quarry" / "bench"
NOT_APPLICABLE = 77

# program: (options of all runs, [what is done in different ways], [--with ...], phases)
PROGRAMS = {
    "align": ("--count 20000 --rounds 2", [""], ["full", "log"], [""]),
    "average": ("--count 100000", [""], [], [""]),
    "cache": ("--to 64k --rounds 1", [""], [], ["in-order", "random"]),
    "fifo": ("--count 20000 --live 100", ["--mode one", "--mode in-order", "--mode random", "--mode overtaken"], ["malloc", "fifo", "fifo-call", "nothing"], [""]),
    "fragmentation": ("--count 1500", [""], ["malloc", "scope"], [""]),
    "fifo-policy": ("--count 20000 --live 1000", ["--mode one", "--mode in-order", "--mode overtaken", "--mode random"], ["old", "one-spare", "fifo"], [""]),
    "frames": ("--count 20000", ["--mode empty", "--mode nested", "--mode blocks", "--mode kept", "--mode new"], ["stack", "scope", "malloc"], [""]),
    "idle-return": ("--memory 4M --idle 50 --every 10", ["", "--per-cent 50"], ["malloc"], ["fill", "free-most", "free-rest"]),
    "latency": ("--count 20000 --memory 2M", ["", "--largest 64k --memory 16M", "--threads 2"], ["malloc", "tlsf"], ["alloc", "free", "resize"]),
    "list": ("--count 20000 --rounds 2", ["--size 8", "--size 64", "--lists 8 --size 16 --sizes mixed"], ["malloc", "fifo", "fifo-keep", "ring", "stack"], ["alloc", "walk", "free"]),
    "list-mt": ("--count 5000 --rounds 6", ["--pending 1", "--pending 4"], ["malloc"], ["alloc", "free"]),
    "locality": ("--count 20000 --rounds 2", ["", "--heap fresh", "--size 16"], ["malloc", "fifo", "ring", "stack"], ["alloc", "in-order", "random"]),
    "page-source": ("--count 5000 --live 100 --rounds 1", ["--page 64k", "--page 1M --mode in-order"], ["mmap", "malloc"], [""]),
    "pages": ("--count 200", ["--size 64k", "--size 4k --mode growing"], ["pages", "malloc", "mmap"], [""]),
    "persist": ("--count 2000", ["--mode turnover", "--mode sync --count 3"], ["persist", "journal", "malloc"], [""]),
    "pop": ("--most 10000 --rounds 2", ["", "--size 64"], ["stack", "malloc"], [""]),
    "producer-consumer": ("--count 20000", ["--threads 2", "--threads 4 --pending 2"], ["malloc"], [""]),
    "queue-holes": ("--count 20000 --live 2000", ["", "--every 3 --size 200"], ["malloc", "fifo"], [""]),
    "random-mt": ("--count 40000", ["--threads 1", "--threads 3 --exchange 10 --touch all", "--touch none --sizes programs", "--lock global", "--arenas 1 --caches off", "--caches on"], ["malloc", "nothing"], [""]),
    "realloc-growth": ("--size 256k --rounds 2", ["--mode half", "--mode steps", "--mode strings --count 8", "--mode mixed --count 8", "--mode steps --by copy"], ["malloc", "stack", "pow2"], [""]),
    "ring": ("--count 20000 --message 100", ["--threads 1", "--threads 2", "--pending 1"], ["ring", "malloc", "nothing"], ["alloc", "free"]),
    "scaling": ("--count 4000 --rounds 2", ["--threads 1", "--threads 3"], ["malloc", "scope"], [""]),
    "size-locks": ("--count 20000", ["--threads 1", "--threads 3"], ["malloc", "one-lock", "by-thread", "by-size"], [""]),
    "slots": ("--count 2000 --rounds 2", ["", "--threads 3 --stride 0", "--range large --count 100"], ["malloc", "pow2-1", "pow2-8"], [""]),
    "stack": ("--count 4000 --rounds 2", ["--mode calls", "--mode recursion", "--mode growth", "--mode edge"], ["malloc", "stack", "scope", "nothing"], [""]),
    "startup": ("--count 3", ["", "--blocks 100"], ["malloc"], [""]),
    "thread-churn": ("--count 40 --threads 3", ["", "--per-cent 0"], ["malloc"], [""]),
    "worst-case": ("--depth 20 --rounds 1", ["--mode listed", "--mode nested"], ["stack", "greedy", "malloc"], [""]),
    "zero": ("--count 3 --size 1M", [f"--mode {m}" for m in ("m", "M", "c", "C", "V", "reuse-m", "reuse-c")], ["malloc"], ["alloc", "free"]),
}
SERIES = {"average", "cache", "idle-return", "latency", "pop", "worst-case"}
# Combinations that have no meaning; a malloc without a knob may be one more, and so says it.
MEANINGLESS = {
    ("frames", "malloc"): ["--mode empty", "--mode nested", "--mode kept", "--mode new"], ("frames", "scope"): ["--mode kept", "--mode new"],
    ("latency", "tlsf"): ["--threads 2"], ("realloc-growth", "stack"): ["--mode strings --count 8", "--mode mixed --count 8", "--mode steps --by copy"], ("realloc-growth", "pow2"): ["--mode steps --by copy"], ("stack", "nothing"): ["--mode growth"],
    **{("list", pool): ["--lists 8 --size 16 --sizes mixed"] for pool in ("fifo", "fifo-keep", "ring", "stack")}, ("persist", "malloc"): ["--mode sync --count 3"],
    ("random-mt", "nothing"): ["--threads 3 --exchange 10 --touch all", "--arenas 1 --caches off", "--caches on"],
}
# Phases so short that their processor time cannot be told from that of the others: null, and no zero.
NOT_APART = {"latency", "ring"}
MEMBERS = {"scenario": str, "phase": str, "allocator": str, "threads": int, "rounds": int, "seconds": float, "cpu_seconds": float, "user_seconds": float, "system_seconds": float,
           "operations": int, "rss_peak_kib": int, "payload_bytes": int, "check": str, "values": dict}


def run(program, options, library=None):
    try:
        done = subprocess.run([str(FOLDER / program), *options.split()], env=environment(library), capture_output=True, text=True, timeout=600, check=False)
    except subprocess.TimeoutExpired:
        return 124, "", "it did not end within ten minutes"
    return done.returncode, done.stdout, done.stderr


def faults_of_lines(program, with_, phases, text):
    """What is wrong with the lines of one run."""
    faults = []
    try:
        lines = [json.loads(line, parse_constant=lambda word: faults.append(f"{word} is not JSON")) for line in text.splitlines()]
    except ValueError as error:
        return [f"no JSON: {error}: {text[:200]!r}"]
    if [line.get("phase") for line in lines] != phases:
        return [f"phases {[line.get('phase') for line in lines]}, not {phases}"]
    for line in lines:
        for member, kind in MEMBERS.items():
            unknown = program in NOT_APART and member in ("cpu_seconds", "user_seconds", "system_seconds")
            if not isinstance(line.get(member), type(None) if unknown else kind):
                faults.append(f"{member} is {line.get(member)!r}")
        if ("counters" in line) == (program in NOT_APART):
            faults.append("counters are there, and processor time is not, or the other way round")
        if faults:
            return faults
        if line["scenario"] != program or line["allocator"] != (with_ or "malloc"):
            faults.append(f"is {line['scenario']} with {line['allocator']}")
        if line["seconds"] <= 0 or line["operations"] <= 0 or line["rss_peak_kib"] <= 0 or len(line["check"]) != 16:
            faults.append(f"nothing was measured: {line}")
        series = line.get("series")
        if series and (len(series["columns"]) < 2 or len(series["rows"]) < 2 or any(len(row) != len(series["columns"]) for row in series["rows"])):
            faults.append("a series without rows, or of rows of other lengths")
    if program in SERIES and "series" not in lines[0]:
        faults.append("no series")
    return faults


def exact_figures(program, with_, way, lines):
    """What does not depend on the machine."""
    values, first = lines[0]["values"], lines[0]
    # Where all of each block is written, what is resident cannot be less than what was asked for.
    if program in ("fifo", "list", "list-mt", "ring") and first["payload_bytes"] > first["rss_peak_kib"] * 1024:
        yield f"{first['payload_bytes']} bytes in {first['rss_peak_kib']} KiB"
    # The operating system counts processor time in clock ticks in some places: two of 10 ms are not much.
    if program in ("list-mt", "list") and any(line["cpu_seconds"] > line["seconds"] + 0.02 for line in lines):
        yield f"one thread takes more processor time than there is: {lines}"
    if program == "worst-case" and with_ != "malloc":
        if not values["taken_bytes"] >= values["peak_held_bytes"] > 0:
            yield "less was taken than held"
        taken = {("--mode listed", "stack"): 2.2, ("--mode listed", "greedy"): 3.8, ("--mode nested", "stack"): 9.8, ("--mode nested", "greedy"): 41.9}[way, with_]
        if os.sysconf("SC_PAGE_SIZE") == 4096 and abs(values["taken_bytes"] / 2**20 / taken - 1) > 0.03:
            yield f"{values['taken_bytes']} bytes were taken, docs/pools/stack.md says {taken} MiB"
    if program == "average" and not 10_000 < values["peak_raises_mean_bytes"] < 66_000:
        yield f"the peak raises the mean by {values['peak_raises_mean_bytes']}"
    if program == "startup" and values["started_peak_kib"] < 500:
        yield "a program of less than 500 KiB"
    if program == "zero" and way in ("--mode m", "--mode M", "--mode V") and values["resident_bytes"] < 3 << 20:
        yield "memory that was written is not resident"
    if program == "zero" and way in ("--mode c", "--mode C") and values["resident_bytes"] > 1 << 20:
        yield "memory that nobody wrote to is resident"
    if program == "locality" and with_ in ("fifo", "ring", "stack") and values["adjacent"] < 0.99:
        yield f"of a pool's blocks {values['adjacent']} are adjacent"
    if program == "fifo-policy" and way == "--mode one" and (values["slow_share"] > 1.9) != (with_ == "old"):
        yield f"{values['slow_share']} of the calls took the slow path"
    if program == "queue-holes" and with_ == "fifo" and values["drained_bytes"] > values["full_bytes"] / 2:
        yield f"{values['drained_bytes']} of {values['full_bytes']} bytes stay when the queue is empty"
    if program == "size-locks" and with_ != "malloc" and not values["locks_taken"] >= first["operations"]:
        yield "a call without a lock"
    if program == "idle-return" and values["peak_bytes"] < first["payload_bytes"]:
        yield "the peak is below the payload"


def smoke():
    """(faults, runs)"""
    faults, runs = [], 0
    libraries = {"sys": None, "quarry": str((pathlib.Path(os.environ.get("QUARRY_LIB_DIR") or BUILD / "lib") / "libquarry-malloc.so").resolve())}
    for program, (common, ways, withs, phases) in PROGRAMS.items():
        for way in ways:
            checks = {}
            for with_ in withs or [None]:
                for name, library in libraries.items():
                    options = f"{common} {way}" + (f" --with {with_}" if with_ else "")
                    where = f"{program} {options} under {name}"
                    status, text, errors = run(program, options, library)
                    runs += 1
                    if status == NOT_APPLICABLE and way in MEANINGLESS.get((program, with_), []):
                        if "not applicable: " not in errors:
                            faults.append(f"{where}: no reason")
                        continue
                    if status:
                        faults.append(f"{where}: status {status}: {errors.strip()[-300:]}")
                        continue
                    expected = [""] if program == "zero" and "reuse" in way else phases
                    found = faults_of_lines(program, with_, expected, text)
                    lines = [] if found else [json.loads(line) for line in text.splitlines()]
                    found += exact_figures(program, with_, way, lines) if lines else []
                    faults += [f"{where}: {fault}" for fault in found]
                    checks.update({(with_, name): [line["check"] for line in lines]} if lines else {})
            if len({tuple(c) for c in checks.values()}) > 1:
                faults.append(f"{program} {way}: different results: {checks}")
    for program in PROGRAMS:
        faults += usage_faults(program)
    built = {path.name for path in FOLDER.iterdir() if path.is_file()}
    faults += [f"{name} is not in smoke.py" for name in sorted(built - PROGRAMS.keys())]
    return faults, runs


def usage_faults(program):
    for options, word in (("--nonsense 1", "no option --nonsense"), ("--seed" if program not in NO_SEED else NO_SEED[program], "needs a value"), ("stray", "no option stray")):
        status, text, errors = run(program, options)
        if status != 2 or word not in errors or text:
            yield f"{program} {options}: status {status}: {errors.strip()}"
    status, text, _ = run(program, "--help")
    if status or "--" not in text or "usage: " not in text:
        yield f"{program} --help: status {status}: {text[:100]}"


# An option of those that have no seed.
NO_SEED = {"frames": "--count", "list-mt": "--count", "pages": "--count", "pop": "--most", "ring": "--count", "scaling": "--count", "startup": "--count", "worst-case": "--depth", "zero": "--count"}


def self_test():
    good = json.dumps({m: {str: "0" * 16, int: 1, float: 0.5, dict: {}}[k] for m, k in MEMBERS.items()} | {"counters": {}, "scenario": "p", "phase": "", "allocator": "malloc"})
    cases = [(good.replace('"cpu_seconds": 0.5', '"cpu_seconds": null'), 1), (good.replace(', "counters": {}', ""), 1), (good, 0), (good + "\n" + good, 1), ("", 1), ("{", 1), (good.replace("0.5", "0.0"), 1), (good.replace("0.5", "NaN"), 1), (good.replace('"operations": 1', '"operations": 0'), 1),
             (good.replace('"p"', '"q"'), 1), (good[:-1] + ', "series": {"columns": ["a", "b"], "rows": [[1, 2], [3]]}}', 1),
             (good[:-1] + ', "series": {"columns": ["a", "b"], "rows": [[1, 2], [3, 4]]}}', 0)]
    wrong = [text for text, bad in cases if bool(faults_of_lines("p", "malloc", [""], text)) != bool(bad)]
    print(f"self-test: {len(cases)} cases" if not wrong else f"FAILED: {wrong}")
    return bool(wrong)


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if sys.argv[1:]:
        sys.exit(__doc__)
    faults, runs = smoke()
    print("\n".join(f"FAILED: {fault}" for fault in faults) or f"{runs} runs, all right")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
