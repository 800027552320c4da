# SPDX-License-Identifier: MIT
"""What the committed samples of bench/check/prices.py say, as tables: for generate_docs.py."""
import json
import math
import statistics

PRICES, PAIRS = (f"bench/check/samples/{name}.json" for name in ("prices", "pairs"))


def ratios(kept, names, way, column):
    """Each program's ratio to itself alone: of processor time the least counts, of memory the median."""
    middle = statistics.median if column else min
    of = lambda name, way: middle(sample[column] for sample in kept["samples"][f"{name}/{way}"])  # noqa: E731
    return [of(name, way) / of(name, "alone") if f"{name}/{way}" in kept["samples"] else None for name in names]


def mean(values):
    known = [value for value in values if value is not None]
    return math.exp(statistics.fmean(map(math.log, known))) if known else None


def cell(value):
    return "-" if value is None else f"{value:.2f}" if value < 100 else f"{value:.0f}"


def prices(root):
    kept = json.loads((root / PRICES).read_text())
    ways, lines = kept["ways"], []
    for title, column in (("processor time", 0), ("peak of memory", 1)):
        lines += [f"| {title} | {' | '.join(ways)} |", "|---|" + "---:|" * len(ways)]
        for name in kept["programs"] + kept["ours"]:
            lines.append(f"| {name} | " + " | ".join(cell(ratios(kept, [name], way, column)[0]) for way in ways) + " |")
        means = [mean(ratios(kept, kept["programs"], way, column)) for way in ways]
        lines += [f"| **mean of {len(kept['programs'])}** | " + " | ".join(f"**{cell(value)}**" if value else "-" for value in means) + " |", ""]
    lines.append(f"By `bench/check/prices.py -n {kept['rounds']} --scale {kept['scale']}` on {kept['date']}, with commit {kept['commit']}, on Linux {kept['kernel']} with "
                 f"{kept['processors']} processors. The load average was {kept['load'][0]} before, and {kept['load'][1]} after{': other work ran beside' if kept['load'][0] >= 1 else ''}.")
    return "\n".join(lines)


def pairs(root):
    kept = json.loads((root / PAIRS).read_text())
    sizes = kept["instructions"]
    lines = ["| spent on | " + " | ".join(f"{int(size):,} bytes" for size in sizes) + " |", "|---|" + "---:|" * len(sizes)]
    for layer in next(iter(sizes.values())):
        lines.append(f"| {layer} | " + " | ".join(f"{sizes[size][layer]:,.0f}" for size in sizes) + " |")
    return "\n".join([*lines, "| **all** | " + " | ".join(f"**{sum(sizes[size].values()):,.0f}**" for size in sizes) + " |", "",
                      f"By `bench/check/prices.py --instructions` on {kept['date']}, with commit {kept['commit']}."])
