#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The figures of docs/pools: each is measured (or computed) anew on this machine and drawn.

  figures.py filters       docs/pools/filters.svg      how means of sizes answer to outliers (bench/scenarios/average.c)
  figures.py page_source   docs/pools/page_source.svg  a FIFO's time against the size of its pages, from mmap and from malloc
  figures.py locality      docs/pools/locality.svg     time of an access against the size of what is accessed
  options: -n ROUNDS (5), -o FILE, --json FILE (what was measured), --from FILE (draw that again), --small (a test, not a figure)

Of what is measured, rounds follow each other and medians are shown.
"""
import argparse
import json
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from chart import Axis, bytes_text, chart, number_text  # noqa: E402
from measure import BUILD, ROOT, libraries, progress, run_lines  # noqa: E402

PAGES = [1 << p for p in range(16, 25)]
COLOURS = ["#8c1eaa", "#000000", "#008278", "#e67800", "#888888 5 3", "#3060c0", "#a03030"]


def run(program, *options, library=None):
    """The first line of a program of bench/scenarios."""
    return run_lines(str(BUILD / "lib" / "quarry" / "bench" / program), library, list(map(str, options)))[0]


# ---- filters: computed, the same everywhere -------------------------------------------------------------------

def filters_measure(args):
    series = run("average", *(["--count", 200000] if args.small else []))["series"]
    return {name: [[row[0], row[at]] for row in series["rows"]] for at, name in enumerate(series["columns"]) if at}


def filters_draw(data):
    names = {"uncut": "in use: quartered, not cut", "cut": "quartered, cut at 128 MiB", "exponential": "exponential, 1/27279", "plain": "plain mean"}
    colours = {"uncut": COLOURS[0], "cut": COLOURS[2], "exponential": COLOURS[3], "plain": COLOURS[4]}
    lines = [(names[n], colours[n], [p for p in data[n] if p[0] > 4096]) for n in ("exponential", "plain", "uncut", "cut")]
    return chart(lines, Axis("request", number_text, low=0), Axis("mean of sizes", lambda v: f"{v / 1024:g} KiB", low=0, ticks=[16384 * i for i in range(5)]),
                 "4 M requests of 16 KiB ± 3 KiB, five bunches of 2,000 of 256 KiB, one of 1 GiB")


# ---- page_source ------------------------------------------------------------------------------------------------

def page_source_measure(args):
    sources = {"mmap": ("mmap", None), **{name: ("malloc", path) for name, path in libraries([]).items() if not args.small or not path}}
    pages = PAGES[:2] if args.small else PAGES
    samples = {}
    for number in range(args.n):
        for page in pages:
            for name, (kind, library) in sources.items():
                progress(f"round {number + 1} of {args.n}: {bytes_text(page)}, {name}")
                line = run("page-source", "--with", kind, "--page", page, "--rounds", 1, *(["--count", 2000, "--live", 100] if args.small else []), library=library)
                samples.setdefault(name, {}).setdefault(page, []).append(line["seconds"] * 1e9 / line["operations"])
    progress("")
    return {name: [[page, statistics.median(values)] for page, values in by_page.items()] for name, by_page in samples.items()}


def page_source_draw(data):
    lines = [(name, COLOURS[at % len(COLOURS)], points) for at, (name, points) in enumerate(data.items())]
    return chart(lines, Axis("size of a page", bytes_text, log=2), Axis("ns per block, three loops", low=0), "A FIFO that takes its pages from the kernel (mmap), and from mallocs")


# ---- locality ---------------------------------------------------------------------------------------------------

def locality_measure(args):
    rounds, values = [], {}
    for number in range(args.n):
        progress(f"round {number + 1} of {args.n}")
        line = run("cache", "--rounds", 1, "--to", "64k" if args.small else "512M")
        values, series = line["values"], line["series"]
        rounds.append([dict(zip(series["columns"], row)) for row in series["rows"]])
    progress("")
    middle = lambda row, key: statistics.median(r[row][key] for r in rounds)  # noqa: E731
    return {"rows": [{"bytes": first["bytes"], "level": level_of(first["bytes"], values), **{key: middle(at, key) for key in first if key != "bytes"}} for at, first in enumerate(rounds[0])]}


def level_of(size, values):
    """The smallest cache that the set fits in, as the system says."""
    return next((name for name, key in (("L1d", "l1d_bytes"), ("L2", "l2_bytes"), ("L3", "l3_bytes")) if size <= values.get(key, 0)), "memory")


def locality_table(data):
    print("| working set | level | in order | random |\n|---|---|---|---|")
    for row in data["rows"]:
        cells = [f"{row[k + '_ns']:.2f} ns, {row[k + '_cycles']:.1f}" for k in ("in_order", "random")]
        print(f"| {bytes_text(row['bytes'])} | {row['level']} | {cells[0]} | {cells[1]} |")


def locality_draw(data):
    lines = [(name, colour, [[row["bytes"], row[key]] for row in data["rows"]]) for name, colour, key in
             (("random order", COLOURS[0], "random_ns"), ("in order", COLOURS[2], "in_order_ns"))]
    return chart(lines, Axis("working set", bytes_text, log=2), Axis("ns per access", log=10), "A chain of pointers, one to a cache line")


FIGURES = {"filters": (filters_measure, filters_draw), "page_source": (page_source_measure, page_source_draw), "locality": (locality_measure, locality_draw)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figure", choices=FIGURES)
    parser.add_argument("-n", type=int, default=5)
    parser.add_argument("-o")
    parser.add_argument("--json")
    parser.add_argument("--from", dest="source")
    parser.add_argument("--small", action="store_true")
    args = parser.parse_args()
    measure, draw = FIGURES[args.figure]
    data = json.loads(pathlib.Path(args.source).read_text()) if args.source else measure(args)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(data, indent=1) + "\n")
    if args.figure == "locality":
        locality_table(data)
    path = pathlib.Path(args.o or ROOT / "docs" / "pools" / f"{args.figure}.svg")
    path.write_text(draw(data))
    print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
