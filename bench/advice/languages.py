#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measure what of a language's memory a preload reaches: RSS after many objects were made and dropped. docs/guides/languages.md shows it.

  bench/advice/languages.py [BUILD]            print the table, with the library in BUILD/lib (build)
  bench/advice/languages.py [BUILD] --update   write bench/advice/languages.json, which scripts/generate_docs.py reads

Each program makes objects, drops them, sleeps for three seconds, and says its VmRSS. A figure is the median of five runs, which hardly depend on the
load of the machine. A language that is not installed ends it with an error: the table has all of them.
"""
import datetime
import json
import os
import pathlib
import platform
import re
import shutil
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIGURES = ROOT / "bench/advice/languages.json"
ROUNDS = 5
PYTHON = """import time
objects = [{"number": i, "text": str(i)} for i in range(200000)]
del objects
time.sleep(3)
print(open("/proc/self/status").read())"""
RUBY = """objects = Array.new(200000) { |i| {number: i, text: i.to_s} }
objects = nil
GC.start
sleep 3
puts File.read("/proc/self/status")"""
NODE = """let buffers = [];
for (let i = 0; i < 20000; i++) buffers.push(Buffer.alloc(4000, 1));
buffers = null;
global.gc();
setTimeout(() => console.log(require("fs").readFileSync("/proc/self/status", "utf8")), 3000);"""
PHP = """$strings = [];
for ($i = 0; $i < 200000; $i++) $strings[] = str_repeat("x", 20 + $i % 50);
$strings = null;
gc_collect_cycles();
sleep(3);
echo file_get_contents("/proc/self/status");"""
# What the row says, the command, what it adds to the environment, and what a preload reaches.
PROGRAMS = (
    ("Python, 200,000 dictionaries", ["/usr/bin/python3", "-c", PYTHON], {}, "blocks above 512 bytes; the rest is obmalloc's"),
    ("the same with `PYTHONMALLOC=malloc`", ["/usr/bin/python3", "-c", PYTHON], {"PYTHONMALLOC": "malloc"}, "everything"),
    ("Ruby, 200,000 hashes", ["ruby", "-e", RUBY], {}, "strings, tables, extensions; slots are the interpreter's"),
    ("Node, 20,000 buffers of 4,000 bytes", ["node", "--expose-gc", "-e", NODE], {}, "buffers and native modules; JavaScript's objects are V8's"),
    ("PHP, 200,000 strings", ["php", "-r", PHP], {}, "extensions; the rest is the Zend heap's"),
    ("the same with `USE_ZEND_ALLOC=0`", ["php", "-r", PHP], {"USE_ZEND_ALLOC": "0"}, "everything"),
)


def resident(command, added, library):
    """KiB."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "LD_", "GLIBC_", "QUARRY_", "PYTHON", "RUBY", "NODE_"))}
    environment = {**kept, **added, **({"LD_PRELOAD": str(library)} if library else {})}
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert not library or "libquarry-malloc" in subprocess.run(["cat", "/proc/self/maps"], env=environment, capture_output=True, text=True).stdout
    return int(re.search(r"VmRSS:\s*(\d+) kB", said).group(1))


def version(command):
    return re.search(r"\d+\.\d+\.\d+", subprocess.run([command, "--version"], capture_output=True, text=True, check=True).stdout).group()


def measured(build):
    library = build / "lib/libquarry-malloc.so"
    rows = []
    for shown, command, added, reaches in PROGRAMS:
        figures = {malloc: [] for malloc in ("glibc", "quarry")}
        for _ in range(ROUNDS):
            for malloc, runs in figures.items():
                runs.append(resident(command, added, library if malloc == "quarry" else None))
        rows.append({"shown": shown, "reaches": reaches, **{malloc: statistics.median(runs) for malloc, runs in figures.items()}})
    git = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short=7", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    cpu = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text()).group(1)
    versions = {name: version(path) for name, path in (("Python", "/usr/bin/python3"), ("Ruby", "ruby"), ("Node", "node"), ("PHP", "php"))}
    return {"about": {"commit": git, "libc": " ".join(platform.libc_ver()), "machine": cpu, "date": datetime.date.today().isoformat(), "versions": versions}, "rows": rows}


def main():
    arguments = [word for word in sys.argv[1:] if word != "--update"]
    lacking = [name for name in ("/usr/bin/python3", "ruby", "node", "php") if not shutil.which(name)]
    if lacking:
        sys.exit(f"languages.py: not installed: {', '.join(lacking)}")
    document = measured(pathlib.Path(arguments[0] if arguments else ROOT / "build").resolve())
    if "--update" in sys.argv:
        FIGURES.write_text(json.dumps(document, indent=1) + "\n")
    for row in document["rows"]:
        print(f"{row['glibc']:9.0f} {row['quarry']:9.0f} KiB  {row['shown']}")


if __name__ == "__main__":
    main()
