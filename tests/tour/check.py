#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run a chapter of `quarry tour` and look at everything that it says.

  check.py NAME          the chapter NAME, as "04-fork"; exit status 77 and the reason if it is impossible here
  check.py --recorded    the runs that were recorded elsewhere
  check.py --self-test   prove that faults are found out

Checked are the chapter's own claims, the equations that hold between the kernel's figures at every step, and beside the claims
what the kernel's documents and older articles give as figures (EXPECTED). The source has to have what readers are shown.
"""
import json
import os
import pathlib
import re
import resource
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = ROOT / "examples" / "tour"
BUILD = pathlib.Path(os.environ.get("QUARRY_BUILD_DIR") or ROOT / "build")
SECONDS = 10

# chapter: [(from step, to step, figure, by how many KiB or faults it changes)]; pages of 4 KiB where faults are counted.
EXPECTED = {
    "01-reserve": [("at the start", "64 MiB reserved", "VmSize", 65536), ("at the start", "64 MiB reserved", "VmRSS", 0),
                   ("64 MiB reserved", "one byte per page of a half", "VmRSS", 32768), ("64 MiB reserved", "one byte per page of a half", "minor", 8192)],
    "02-zero-page": [("32 MiB reserved", "a byte of each page read", "VmRSS", 0), ("32 MiB reserved", "a byte of each page read", "minor", 8192),
                     ("a byte of each page read", "a byte of each written", "RssAnon", 32768)],
    "04-fork": [("32 MiB, one process", "after fork", "map.Pss", -16384), ("32 MiB, one process", "after fork", "map.Rss", 0),
                ("the child, new", "the child wrote 8 MiB", "map.Private_Dirty", 8192), ("the child, new", "the child wrote 8 MiB", "minor", 2048)],
    "05-quadrants": [("at the start", "1: private, anonymous", "top.SHR", 0), ("1: private, anonymous", "2: shared, anonymous", "top.SHR", 8192)],
    "06-shared-anonymous": [("50 MiB reserved", "every page written", "top.RES", 51200), ("50 MiB reserved", "every page written", "top.SHR", 51200),
                            ("at the start", "50 MiB reserved", "top.VIRT", 51200)],
    "07-private-file": [("a file of 16 MiB mapped", "each page read", "top.SHR", 16384), ("each page read", "each page written", "top.SHR", -16384),
                        ("each page read", "each page written", "RssAnon", 16384)],
    "08-write-back": [("written", "written back (msync)", "map.Private_Dirty", -16388), ("written", "written back (msync)", "map.Rss", 0)],
    "11-columns": [("at the start", "private, may be written", "top.DATA", 16384), ("private, may be written", "private, read-only", "top.DATA", 0)],
    "12-static": [("zeros read", "zeros written", "RssAnon", 16384), ("values written", "zeros read", "RssAnon", 0)],
    "15-aligned": [("at the start", "head and tail unmapped", "VmSize", 262144), ("at the start", "unmapped", "VmSize", 0)],
    "17-calloc": [("freed", "calloc", "RssAnon", 0), ("at the start", "malloc and memset", "RssAnon", 49152), ("a byte per page read", "a byte per page written", "RssAnon", 49152)],
    "19-fragmentation": [("8192 blocks of 4 KiB", "all but the last freed", "RssAnon", 0)],
}


def slack_of(figure, page):
    """As tour_slack (examples/tour/tour.h): pages touched for the first time, and what the kernel's counters hold back."""
    if figure == "minor":
        return 64
    if figure in ("VmSize", "top.VIRT", "top.DATA"):
        return 0
    return 256 + max(64, 2 * os.cpu_count()) * page


def flat(line):
    figures = {}
    for group, members in line.items():
        if isinstance(members, dict):
            figures.update({name if group in ("status", "faults") else f"{group}.{name}": value for name, value in members.items()})
    return figures


def faults_of_step(name, figures, page):
    """Equations that hold at every moment."""
    slack = slack_of("", page)
    sums = [("VmRSS", ("RssAnon", "RssFile", "RssShmem"), slack), ("top.SHR", ("RssFile", "RssShmem"), slack), ("top.DATA", ("VmData", "VmStk"), 0),
            ("top.VIRT", ("VmSize",), 0), ("map.Rss", ("map.Shared_Clean", "map.Shared_Dirty", "map.Private_Clean", "map.Private_Dirty"), 0),
            ("all.Rss", ("all.Shared_Clean", "all.Shared_Dirty", "all.Private_Clean", "all.Private_Dirty"), 0)]
    for whole, parts, allowed in sums:
        if whole in figures and all(part in figures for part in parts):
            rest = figures[whole] - sum(figures[part] for part in parts)
            if abs(rest) > allowed:
                yield f"{name}: {whole} is not {' + '.join(parts)}, but {rest} more"
    for small, large in (("map.Pss", "map.Rss"), ("map.Rss", "map.Size"), ("map.Anonymous", "map.Rss"), ("map.AnonHugePages", "map.Anonymous")):
        if small in figures and large in figures and figures[small] > figures[large]:
            yield f"{name}: {small} {figures[small]} is more than {large} {figures[large]}"


def faults_of(name, text):
    """What is wrong with the lines of a run that was not skipped."""
    try:
        lines = [json.loads(line) for line in text.splitlines()]
    except ValueError as error:
        return [f"no JSON: {error}"]
    if not lines or "show" not in lines[0] or "end" not in lines[-1]:
        return ["the first line or the last is not there"]
    page = lines[0]["page_kib"]
    steps = {line["step"]: flat(line) for line in lines if "step" in line}
    claims = [line for line in lines if "claim" in line]
    faults = [f"does not hold: {line}" for line in claims if line["holds"] is not True]
    if lines[-1]["end"] != {"steps": len(steps), "claims": len(claims), "failed": 0} or len(steps) < 2 or not claims:
        faults.append(f"ends with {lines[-1]['end']} after {len(steps)} steps and {len(claims)} claims")
    for step, figures in steps.items():
        faults += faults_of_step(step, figures, page)
    for figure in lines[0]["show"].split():
        if not any(figure in figures for figures in steps.values()):
            faults.append(f"{figure} is to be shown, and no step has it")
    if all(len({figures.get(figure) for figures in steps.values()}) < 2 for figure in lines[0]["show"].split()):
        faults.append("nothing that is shown changes")
    for before, after, figure, change in EXPECTED.get(name, []):
        if figure == "minor" and page != 4:
            continue
        if before not in steps or after not in steps:
            faults.append(f"no step {before} or {after}")
            continue
        seen = steps[after].get(figure, 0) - steps[before].get(figure, 0)
        if abs(seen - change) > slack_of(figure, page):
            faults.append(f"from {before} to {after} {figure} changed by {seen}, not by {change}")
    return faults


def faults_of_source(name, text):
    head = "".join(re.findall(r"\A(?://.*\n)+", text))
    for part in (f"// {name}.c: ", "// Idea: ", "// Then and now: "):
        if part not in head:
            yield f"{name}.c: no \"{part}\" in its first comment"
    marks = re.findall(r"^ *// tour: (\w+)$", text, re.M)
    if not marks or marks != ["show", "hide"] * (len(marks) // 2):
        yield f"{name}.c: marks {marks}"


def run(name):
    environment = {key: value for key, value in os.environ.items() if key not in ("LD_PRELOAD", "GLIBC_TUNABLES") and not key.startswith("MALLOC_")}
    done = subprocess.run([BUILD / "lib" / "quarry" / "tour" / name], env=environment, capture_output=True, text=True, timeout=600, stdin=subprocess.DEVNULL, check=False)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = used.ru_utime + used.ru_stime  # of a processor: by the clock it depends on what else the machine does
    if done.returncode == 77:
        print(f"SKIP: {json.loads(done.stdout.splitlines()[-1])['skip']}")
        return 77
    faults = list(faults_of_source(name, (SOURCES / f"{name}.c").read_text())) + faults_of(name, done.stdout)
    if done.returncode:
        faults.append(f"exit status {done.returncode}: {done.stderr.strip()[-300:]}")
    if seconds > SECONDS:
        faults.append(f"it used {seconds:.1f} seconds of a processor, which are more than {SECONDS}")
    if faults:
        print(done.stdout)
    print("\n".join(f"FAILED: {fault}" for fault in faults) or f"{name}: {done.stdout.count(chr(10))} lines, all right, {seconds:.1f} s")
    return bool(faults)


def recorded():
    faults, count = [], 0
    for path in sorted(SOURCES.glob("*.jsonl")):
        faults += [f"{path.name}: {fault}" for fault in faults_of(path.stem, path.read_text())]
        faults += [] if path.with_suffix(".c").exists() else [f"{path.name}: of no chapter"]
        count += 1
    print("\n".join(f"FAILED: {fault}" for fault in faults) or f"{count} recorded runs, all right")
    return bool(faults or not count)


def self_test():
    begin = '{"show":"VmSize map.Rss","page_kib":4}'
    first = '{"step":"a","process":"","status":{"VmSize":100,"VmRSS":9,"RssAnon":4,"RssFile":5,"RssShmem":0},"top":{"VIRT":100},"map":{"Size":8,"Rss":4,"Pss":4,"Private_Dirty":4,"Private_Clean":0,"Shared_Clean":0,"Shared_Dirty":0}}'
    second = first.replace('"step":"a"', '"step":"b"').replace("100", "200")
    claim = '{"claim":"c","holds":true}'
    end = '{"end":{"steps":2,"claims":1,"failed":0}}'
    good = "\n".join((begin, first, second, claim, end))
    bad = [
        "", "{", good.replace(end, ""), good.replace("true", "false"), good.replace('"steps":2', '"steps":3'), good.replace(claim + "\n", "").replace('"claims":1', '"claims":0'),
        good.replace("VmSize map.Rss", "VmSize VmLck"), good.replace(second + "\n", "").replace('"steps":2', '"steps":1'), good.replace("200", "100"),
        good.replace('"VIRT":200', '"VIRT":204'), good.replace('"RssAnon":4', '"RssAnon":4096'), good.replace('"Private_Dirty":4', '"Private_Dirty":8'),
        good.replace('"Pss":4', '"Pss":5'), good.replace('"Size":8', '"Size":0'),
    ]
    wrong = [text for text in bad if not faults_of("x", text)] + faults_of("x", good)
    EXPECTED["x"] = [("a", "b", "VmSize", 100)]
    wrong += faults_of("x", good)
    for expected in (("a", "b", "VmSize", 99), ("a", "c", "VmSize", 100), ("a", "b", "RssAnon", 100000)):
        EXPECTED["x"] = [expected]
        wrong += [] if faults_of("x", good) else [str(expected)]
    source = "// SPDX-License-Identifier: MIT\n// 01-x.c: y\n//\n// Idea: i\n//\n// Then and now: n\n\n    // tour: show\n// tour: hide\n"
    wrong += list(faults_of_source("01-x", source))
    for part in ("01-x", "Idea:", "Then and now:", "// tour: hide\n", "    // tour: show\n"):
        wrong += [] if list(faults_of_source("01-x", source.replace(part, ""))) else [part]
    for name in EXPECTED.keys() - {"x"}:
        names = set(re.findall(r'"([^"]+)"', (SOURCES / f"{name}.c").read_text()))
        wrong += [f"{name}: {step}" for e in EXPECTED[name] for step in e[:2] if step not in names]
    print(f"FAILED: {wrong}" if wrong else f"self-test: {len(bad) + 8} faults were found out")
    return bool(wrong)


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if sys.argv[1:] == ["--recorded"]:
        return recorded()
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    return run(sys.argv[1])


if __name__ == "__main__":
    sys.exit(main())
