# SPDX-License-Identifier: MIT
"""The map of the matrix: which errors are found, by size and offset, as text and as SVG for light and dark pages."""
import collections

import programs

# By the share of a field's cells that were found at the access, found later as evidence, or are out of reach.
GROUPS = [("write", "libc"), ("read", "libc"), ("write", "direct"), ("read", "direct"), ("write", "pool"), ("read", "pool")]
COLUMNS = [*programs.OFFSETS, *programs.PLACES]
TITLES = {("write", "libc"): "Written by a function of libc", ("read", "libc"): "Read by a function of libc",
          ("write", "direct"): "Written by an instruction", ("read", "direct"): "Read by an instruction",
          ("write", "pool"): "Written in a block of a pool", ("read", "pool"): "Read in a block of a pool"}
STYLE = """<style>
text{font:12px sans-serif;fill:#222}.h{font-weight:bold}.at{fill:#2a7f62}.later{fill:#e0a73a}.none{fill:#fff;stroke:#bbb}.miss{fill:#c0392b}.bg{fill:#fff}
@media (prefers-color-scheme:dark){text{fill:#ddd}.at{fill:#3fa882}.later{fill:#c8922e}.none{fill:#16181b;stroke:#555}.miss{fill:#e06a5c}.bg{fill:#16181b}}
</style>"""
WIDTH, HEIGHT, LEFT, TOP = 34, 20, 110, 44


def octave(size):
    return next(index for index, (low, high) in enumerate(programs.OCTAVES) if low <= size <= high)


def rows(group):
    """Their names: octaves of sizes, or kinds of pools."""
    return list(programs.POOLS) if group[1] == "pool" else [f"{low}-{high}" for low, high in programs.OCTAVES]


def fields(results):
    """{(group, row, column): Counter of verdicts}"""
    found = collections.defaultdict(collections.Counter)
    for cell, verdict in results:
        if cell.kind in programs.MISUSES:
            continue
        group = ("write" if cell.write else "read", "pool" if cell.pool else "direct" if cell.way == "direct" else "libc")
        row = list(programs.POOLS).index(cell.pool) if cell.pool else octave(cell.size)
        found[group, row, cell.offset][verdict.word] += 1
    return found


def letter(counter):
    """A: all at the access; e: all, some of them as evidence; '.': none; digit: tenths that were found."""
    total = sum(counter.values())
    good = counter["found"] + counter["evidence"]
    if not total:
        return " "
    if good < total:
        return "." if not good else str(good * 10 // total)
    return "A" if not counter["evidence"] else "e"


def misuse_rows(results):
    """(name, found, of)"""
    rows = collections.defaultdict(lambda: [0, 0])
    for cell, verdict in results:
        if cell.kind in programs.MISUSES:
            rows[cell.kind][0] += verdict.word in ("found", "evidence")
            rows[cell.kind][1] += 1
    return [(name.replace("_", " "), *rows[name]) for name in programs.MISUSES if name in rows]


def text(results):
    found = fields(results)
    out = ["What quarry check finds, by the block's size, or the pool, and where the program touches it. Columns: the first byte, from the block's begin",
           "(negative) or from its end; then the first, middle and last byte of a freed block. A: at the access. e: later, as evidence with",
           "block and offset. A digit: tenths of the cells. A dot: nothing.", ""]
    for group in GROUPS:
        out.append(TITLES[group])
        out.append(" " * 12 + "".join(f"{str(column):>7}" for column in COLUMNS))
        for index, name in enumerate(rows(group)):
            out.append(f"{name:>12}" + "".join(f"{letter(found[group, index, column]):>7}" for column in COLUMNS))
        out.append("")
    out.append("Wrong calls, and leaks")
    out += [f"{name:>20}  {good} of {total}" for name, good, total in misuse_rows(results)]
    return "\n".join(out) + "\n"


def bar(x, y, counter):
    """One field: its parts from below, found at the access, then evidence; what is left stays white."""
    total = sum(counter.values()) or 1
    parts, bottom = [f'<rect class="none" x="{x}" y="{y}" width="{WIDTH - 2}" height="{HEIGHT - 2}"/>'], y + HEIGHT - 2
    for word, style in (("found", "at"), ("evidence", "later")):
        if counter[word]:
            height = round((HEIGHT - 2) * counter[word] / total, 1)
            bottom -= height
            parts.append(f'<rect class="{style}" x="{x}" y="{round(bottom, 1)}" width="{WIDTH - 2}" height="{height}"/>')
    return "".join(parts)


def svg(results):
    found, out = fields(results), []
    tops = [0]
    for group in GROUPS:
        tops.append(tops[-1] + TOP + HEIGHT * len(rows(group)) + 16)
    width = LEFT + WIDTH * len(COLUMNS) + 10
    height = tops[-1] + 50
    out.append(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">\n{STYLE}')
    out.append(f'<rect class="bg" width="{width}" height="{height}"/>')
    for number, group in enumerate(GROUPS):
        y = tops[number]
        out.append(f'<text class="h" x="{LEFT}" y="{y + 18}">{TITLES[group]}</text>')
        for at, column in enumerate(COLUMNS):
            out.append(f'<text x="{LEFT + at * WIDTH + WIDTH // 2 - 1}" y="{y + TOP - 6}" text-anchor="middle" style="font-size:10px">{column}</text>')
        for index, name in enumerate(rows(group)):
            top = y + TOP + index * HEIGHT
            out.append(f'<text x="{LEFT - 8}" y="{top + 13}" text-anchor="end">{name}</text>')
            out += [bar(LEFT + at * WIDTH, top, found[group, index, column]) for at, column in enumerate(COLUMNS)]
    y = tops[-1] + 12
    for x, style, words in ((LEFT, "at", "found at the access"), (LEFT + 170, "later", "found later, as evidence"), (LEFT + 360, "none", "not found")):
        out.append(f'<rect class="{style}" x="{x}" y="{y}" width="14" height="14"/><text x="{x + 20}" y="{y + 12}">{words}</text>')
    out.append(f'<text x="{LEFT}" y="{y + 32}">Rows: bytes of the block, or the pool. Columns: first byte touched, before the begin or after the end; then a freed block.</text>')
    return "\n".join(out) + "\n</svg>\n"


def publish(folder, results, reasons):
    results = list(results)
    (folder / "check-matrix.svg").write_text(svg(results))
    listed = collections.Counter(reason for cell, reason in reasons.items() if reason)
    lines = "".join(f"{count} cells are out of reach: {reason}.\n" for reason, count in listed.items())
    (folder / "check-matrix.txt").write_text(text(results) + "\n" + lines)


def self_test():
    assert letter(collections.Counter(found=4)) == "A" and letter(collections.Counter(found=3, evidence=1)) == "e"
    assert letter(collections.Counter(found=1, missed=3)) == "2" and letter(collections.Counter(missed=4)) == "."
    assert "prefers-color-scheme:dark" in svg([])
