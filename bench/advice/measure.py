#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Count what ways to get memory cost: instructions by callgrind, and page faults by the kernel. docs/guides/memory.md shows it.

  bench/advice/measure.py [BUILD]              print both tables, of the libraries in BUILD/lib (build)
  bench/advice/measure.py [BUILD] --update     write bench/advice/counts.json, which scripts/generate_docs.py reads

Each case of bench/advice/advice.c runs with N turns and with 2 N. The difference, divided by N, is the cost of a turn without the start. Counts do
not depend on the load of the machine. They depend on the compiler and on the C library, which the sample names. memset is kept from using
string instructions, of which callgrind counts each byte.
"""
import datetime
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
COUNTS = ROOT / "bench/advice/counts.json"
TURNS = 2000
MIXED_TURNS = 60000  # three times its live blocks, so that the table of them is full in most
PLAIN = "glibc.cpu.x86_rep_stosb_threshold=100000000"
WAYS = {"local": "a local array", "local_zero": "a local array, cleared", "scope": "`t_scope` and `t_new_raw`",
        "scope_zero": "`t_scope` and `t_new`, cleared", "fifo": "a pool (fifo)", "malloc": "`malloc`", "memset": "`malloc` and `memset`",
        "calloc": "`calloc`"}
SIZES = {"SMALL": 48, "LARGE": 4096}
BLOCKS = {"malloc": "`malloc`, never touched", "calloc": "`calloc`, never touched", "malloc_sixteenth": "`malloc`, one page in 16 written",
          "calloc_sixteenth": "`calloc`, one page in 16 written", "malloc_memset_sixteenth": "`malloc` and `memset`, one page in 16 written",
          "calloc_all": "`calloc`, each page written"}


def is_of_malloc(way):
    return way in ("malloc", "memset", "calloc", "toy", "mixed")


def build(folder, build_folder):
    program = folder / "advice"
    subprocess.run(["cc", "-O2", "-g", f"-I{ROOT}/include", ROOT / "bench/advice/advice.c", build_folder / "lib/libquarry.a", "-o", program,
                    "-lpthread"], check=True)
    return program


def environment(library):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "LD_", "GLIBC_", "QUARRY_"))}
    return {**kept, "GLIBC_TUNABLES": PLAIN, "QUARRY_CONF": "pools:off", **({"LD_PRELOAD": str(library)} if library else {})}


def instructions(program, library, case, turns):
    def collected(count):
        run = subprocess.run(["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", f"--toggle-collect=turns_{case}", program,
                              "turns", case, str(count)], env=environment(library), capture_output=True, text=True)
        if run.returncode:
            sys.exit(f"{case}: {run.stderr}")
        return int(re.search(r"Collected : (\d+)", run.stderr).group(1))
    return round((collected(2 * turns) - collected(turns)) / turns)


def measured(program, library):
    mallocs = {"glibc": None, "quarry": library}
    result = {"instructions": {}, "faults": {}}
    for way in WAYS:
        for size in SIZES:
            for name, preload in mallocs.items():
                if name == "quarry" or is_of_malloc(way):
                    result["instructions"].setdefault(f"{way} {SIZES[size]}", {})[name] = instructions(program, preload, f"{way}_{size}", TURNS)
    for way in ("toy", "mixed"):
        result["instructions"][way] = {name: instructions(program, preload, way, MIXED_TURNS) for name, preload in mallocs.items()}
    for block in BLOCKS:
        result["faults"][block] = {name: int(subprocess.run([program, "faults", block], env=environment(preload), check=True,
                                                            capture_output=True, text=True).stdout) for name, preload in mallocs.items()}
    return result


def about():
    compiler = subprocess.run(["cc", "-dumpfullversion"], capture_output=True, text=True, check=True).stdout.strip()
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short=7", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    cpu = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return {"commit": commit, "compiler": f"GCC {compiler}", "libc": " ".join(platform.libc_ver()), "kernel": platform.release().split("-")[0],
            "machine": cpu.group(1) if cpu else platform.machine(), "date": datetime.date.today().strftime("%B %Y")}


def main():
    given = [argument for argument in sys.argv[1:] if argument != "--update"]
    folder = pathlib.Path(given[0] if given else ROOT / "build").resolve()
    with tempfile.TemporaryDirectory() as scratch:
        document = {"about": about(), **measured(build(pathlib.Path(scratch), folder), folder / "lib/libquarry-malloc.so")}
    text = json.dumps(document, indent=2) + "\n"
    print(text, end="")
    if "--update" in sys.argv:
        COUNTS.write_text(text)


if __name__ == "__main__":
    main()
