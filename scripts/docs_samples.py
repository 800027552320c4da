# SPDX-License-Identifier: MIT
"""What the committed samples of the suite say, as tables and as a picture: for generate_docs.py.

The means are those of `quarry bench suite`: the median of the rounds of each run, divided by that of the best peer at this run, and
the geometric mean over the runs. Against one peer it is the ratio within each round, its median over the rounds, and the mean.
"""
import json
import math
import statistics
import subprocess

SAMPLES = "bench/suite/samples"
SUITE = ("suite1", "suite2", "suite3")
PREDICTIONS = "bench/record/samples/predictions.json"
MIB = 1 << 20
OURS = "quarry"
# How each malloc is called in a sentence: the samples have names of columns.
NAMES = {"quarry": "Quarry", "sys": "glibc", "tbbmalloc": "tbbmalloc", "jemalloc-newest": "jemalloc", "mimalloc2": "mimalloc",
         "mimalloc3": "mimalloc", "tcg": "Google's tcmalloc"}


# The same for the allocators that quarry finds by itself.
PEERS = {"system": "glibc 2.36", "quarry": "Quarry", "jemalloc": "jemalloc 5.3.0", "mimalloc": "mimalloc 2.0.9", "tcmalloc": "tcmalloc 2.10",
         "tbbmalloc": "tbbmalloc 2021.8"}


def load(root, name):
    """A file of samples. They are packed by zstd, for which Python has no module."""
    path = root / SAMPLES / f"{name}.json.zst"
    return json.loads(subprocess.run(["zstd", "-dcq", path], stdout=subprocess.PIPE, check=True).stdout)


def suite(root):
    """(mallocs, runs): the version of each malloc, and the rounds of each run, of all files of the suite."""
    documents = [load(root, name) for name in SUITE]
    rounds = {}
    for document in documents:
        for run, measured in document["runs"].items():
            rounds.setdefault(run, []).extend(measured)
    return documents[0]["mallocs"], rounds


def display(malloc, mallocs):
    """Its name with its version: glibc 2.36."""
    version = mallocs[malloc].get("version", "").removeprefix("glibc ").split(",")[0].split("-")[0].split("+")[0].removesuffix(".0")
    name = NAMES.get(malloc, malloc)
    return f"{name} ({version})" if malloc == "tcg" else f"{name} {version}".strip()


def geometric(values):
    return math.exp(statistics.fmean(map(math.log, values)))


def to_best(rounds, key):
    """Malloc -> the mean over the runs of its median, divided by that of the best peer."""
    parts = {}
    for measured in rounds.values():
        medians = {m: statistics.median(r[m][key] for r in measured if m in r) for m in measured[0]}
        best = min(value for malloc, value in medians.items() if malloc != OURS)
        for malloc, value in medians.items():
            parts.setdefault(malloc, []).append(value / best)
    return {malloc: geometric(values) for malloc, values in parts.items()}


def to_peer(rounds, key):
    """Peer -> Quarry divided by this peer."""
    parts = {}
    for measured in rounds.values():
        for peer in measured[0]:
            if peer != OURS:
                parts.setdefault(peer, []).append(statistics.median(r[OURS][key] / r[peer][key] for r in measured))
    return {peer: geometric(values) for peer, values in parts.items()}


def suite_table(root):
    """Ten mallocs, from the one nearest to the best in both."""
    mallocs, rounds = suite(root)
    time, memory = to_best(rounds, "seconds"), to_best(rounds, "peak_kib")
    by_time, by_memory = to_peer(rounds, "seconds"), to_peer(rounds, "peak_kib")
    lines = ["| malloc | time ÷ best peer | peak RSS ÷ best peer | Quarry's time ÷ its | Quarry's peak RSS ÷ its |", "|---|---:|---:|---:|---:|"]
    for malloc in sorted(mallocs, key=lambda m: time[m] * memory[m]):
        ratios = [f"{by[malloc]:.3f}" if malloc in by else "" for by in (by_time, by_memory)]
        bold = "**" if malloc == OURS else ""
        lines.append(f"| {bold}{display(malloc, mallocs)}{bold} | {time[malloc]:.3f} | {memory[malloc]:.3f} | {ratios[0]} | {ratios[1]} |")
    return "\n".join(lines)


def predictions(root):
    """The peak that a replay predicted and the one that was measured, by program and malloc: made by bench/record/predict.py --json."""
    results = json.loads((root / PREDICTIONS).read_text())
    columns = list(next(iter(results.values()))["mallocs"])
    lines = ["| program | " + " | ".join(PEERS.get(name, name) for name in columns) + " |", "|---|" + "---:|" * len(columns)]
    offs, pairs = [], [one for result in results.values() for one in result["mallocs"].values()]
    for program, result in results.items():
        cells = []
        for name in columns:
            one = result["mallocs"][name]
            offs.append(abs(one["off"]))
            cells.append(f"{one['predicted'] / MIB:.1f}, {one['measured'] / MIB:.1f}{'*' if one['reserved'] else ''}")
        lines.append(f"| {program} | " + " | ".join(cells) + " |")
    said = [f"The error is {statistics.median(offs):.1%} in the median of {len(offs)} pairs, {statistics.fmean(offs):.1%} in the mean, and {max(offs):.1%} at most.",
            f"{sum(one['low'] <= one['measured'] <= one['high'] for one in pairs)} lie within the interval that is stated.",
            within(pairs, "end", "The memory at the end has an error of {:.1%} in the median"),
            within(pairs, "cpu", "Processor time is told for {told} pairs") if any("cpu_within" in one for one in pairs) else "",
            f"The rank correlation of the mallocs is at least {min(result['rank'] for result in results.values()):.2f} in each program,",
            f"over {sum(result['pairs'] for result in results.values())} pairs of mallocs that differ by more than noise."]
    return "\n".join([*lines, "", *filter(None, said)])


def within(pairs, what, text):
    """How many of those that are told lie within their interval."""
    told = [one for one in pairs if f"{what}_within" in one]
    off = statistics.median(abs(one.get(f"{what}_off", 0)) for one in told)
    return f"{text.format(off, told=len(told))}; {sum(one[f'{what}_within'] for one in told)} of {len(told)} lie within the interval."


# ---- the picture -----------------------------------------------------------------------------------------

WIDTH, HEIGHT, FONT = 480, 400, 15
LEFT, TOP, RIGHT, BOTTOM = 62, 24, 466, 330
LIGHT = {"back": "#ffffff", "text": "#1f2328", "faint": "#d1d9e0", "peer": "#57606a", "ours": "#b3400a"}
DARK = {"back": "#0d1117", "text": "#e6edf3", "faint": "#30363d", "peer": "#9da7b3", "ours": "#ff9f5a"}


def label_places(points, size):
    """For each (x, y, text) where its label begins: the first of eight sides where it hits no point, no label and no border."""
    taken = [(x - 7, y - 7, x + 7, y + 7) for x, y, _ in points]
    places = []
    for x, y, text in points:
        width = len(text) * size * 0.54
        sides = [(x + 11, y + 5), (x - 11 - width, y + 5), (x - width / 2, y - 12), (x - width / 2, y + 24),
                 (x + 9, y - 8), (x + 9, y + 20), (x - 9 - width, y - 8), (x - 9 - width, y + 20)]

        def box(place, width=width):
            return place[0], place[1] - size + 2, place[0] + width, place[1] + 4

        def hits(place):
            left, top, right, bottom = box(place)
            return (left < LEFT + 2 or right > WIDTH - 2 or top < TOP or bottom > BOTTOM - 1) * 100 + sum(
                left < r and l < right and top < b and t < bottom for l, t, r, b in taken)

        chosen = min(sides, key=hits)
        taken.append(box(chosen))
        places.append(chosen)
    return places


def ticks(low, high, step):
    return [low + step * i for i in range(round((high - low) / step) + 1)]


def picture(root, colours):
    """Time against peak memory of every malloc of the suite, as SVG. Lower left is better."""
    mallocs, rounds = suite(root)
    time, memory = to_best(rounds, "seconds"), to_best(rounds, "peak_kib")
    x_low, x_high = 1.0, math.ceil(max(time.values()) * 10) / 10
    y_low, y_high = 1.0, math.ceil(max(memory.values()) * 5 + 0.2) / 5

    def across(value):
        return LEFT + (value - x_low) / (x_high - x_low) * (RIGHT - LEFT)

    def up(value):
        return BOTTOM - (value - y_low) / (y_high - y_low) * (BOTTOM - TOP)

    order = sorted(mallocs, key=lambda m: (m != OURS, time[m]))
    points = [(across(time[m]), up(memory[m]), display(m, mallocs) if m != "tcg" else NAMES[m]) for m in order]
    said = ", ".join(f"{text} {time[m]:.2f} and {memory[m]:.2f}" for m, (_, _, text) in zip(order, points))
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="system-ui, sans-serif" font-size="{FONT}" role="img">',
           "<title>Time and peak memory of ten mallocs</title>",
           f"<desc>Means over the suite, time and then peak memory, each divided by the best peer's: {said}.</desc>",
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{colours["back"]}"/>']
    for value in ticks(x_low, x_high, 0.1):
        x = across(value)
        out.append(f'<path d="M{x:.1f} {TOP}V{BOTTOM}" stroke="{colours["faint"]}"/>')
        out.append(f'<text x="{x:.1f}" y="{BOTTOM + 20}" text-anchor="middle" fill="{colours["text"]}">{value:.1f}</text>')
    for value in ticks(y_low, y_high, 0.2):
        y = up(value)
        out.append(f'<path d="M{LEFT} {y:.1f}H{RIGHT}" stroke="{colours["faint"]}"/>')
        out.append(f'<text x="{LEFT - 8}" y="{y + 5:.1f}" text-anchor="end" fill="{colours["text"]}">{value:.1f}</text>')
    middle = (LEFT + RIGHT) / 2
    out.append(f'<text x="{middle}" y="{BOTTOM + 43}" text-anchor="middle" fill="{colours["text"]}">time ÷ best peer (left is faster)</text>')
    out.append(f'<text transform="translate(18 {(TOP + BOTTOM) / 2}) rotate(-90)" text-anchor="middle" fill="{colours["text"]}">'
               "peak RSS ÷ best peer (down is leaner)</text>")
    out.append(f'<text x="{middle}" y="{BOTTOM + 64}" text-anchor="middle" font-size="13" fill="{colours["text"]}">'
               f"{len(rounds)} runs, {len(next(iter(rounds.values())))} rounds, geometric means</text>")
    for (x, y, text), (at, base), malloc in zip(points, label_places(points, FONT), order):
        ours = malloc == OURS
        colour = colours["ours" if ours else "peer"]
        out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{7 if ours else 5}" fill="{colour}"/>')
        weight = ' font-weight="bold"' if ours else ""
        out.append(f'<text x="{at:.1f}" y="{base:.1f}"{weight} fill="{colours["ours" if ours else "text"]}">{text}</text>')
    return "\n".join([*out, "</svg>", ""])


PICTURES = {"docs/suite-light.svg": LIGHT, "docs/suite-dark.svg": DARK}


def pictures(root):
    return {name: picture(root, colours) for name, colours in PICTURES.items()}

