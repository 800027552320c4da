#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draw what `quarry explain` prints of the server of the examples, as docs/explain-light.svg and docs/explain-dark.svg.

  terminal_picture.py TOOL          run the example on the system's malloc, look at it with TOOL, and write both pictures
  terminal_picture.py --check TOOL  exit 1 if TOOL prints other words today; numbers and bars may differ
  terminal_picture.py --self-test   prove that other words are seen, and other numbers are not

The lines are those that TOOL prints, wrapped to the columns that a phone shows legibly. What stands behind a bar goes below it if it does not fit.
"""
import html
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
COLOURS = {"light": ("#ffffff", "#d0d7de", "#1f2328", "#b04000"), "dark": ("#0d1117", "#30363d", "#e6edf3", "#ff9e64")}
LINE, LETTER, MARGIN, FONT = 19, 8.0, 16, 13
COLUMNS = 54  # 464 of picture, of which a phone shows 358: letters of 10
# The parts, the verdict, and what to try; what lies between is left out.
KEPT = ("in memory", "private, of no file", "heap: glibc", "fragmentation", "live:", "Verdict", "It is not growing", "What to try", "  - ", "MiB less")
BAR = re.compile(r" {0,3}( *\S+ \S+ +\S+ %  [\u2581-\u258f]+)( +)(.*)")


def printed(tool):
    with tempfile.TemporaryDirectory() as folder:
        server = pathlib.Path(folder) / "server"
        subprocess.run(["cc", "-g", "-O1", "-o", server, ROOT / "examples/profile/server.c"], check=True)
        process = subprocess.Popen([server, "forever"], stdout=subprocess.DEVNULL)
        try:
            before = -1
            while (now := pathlib.Path(f"/proc/{process.pid}/statm").read_text()) != before:  # until it rests
                before = now
                time.sleep(1)
            text = subprocess.run([tool, "explain", "-p", str(process.pid)], check=True, stdout=subprocess.PIPE, text=True).stdout
        finally:
            process.kill()
            process.wait()
    lines = [line for line in text.splitlines() if any(part in line for part in KEPT)]
    at = next(number for number, line in enumerate(lines) if line.startswith("Verdict"))
    return ["$ quarry explain -p $(pgrep server)", *lines[:at], "", *lines[at:]]


def wrapped(line):
    """The line in as many as the columns ask for; what follows is indented as what it continues."""
    row = BAR.fullmatch(line)
    if row:
        line = "".join(row.groups())
        if len(line) <= COLUMNS:
            return [line]
        level = row.end(2) - len("   41.6 MiB  100 %  ") - 20
        return [row[1], " " * (4 + level) + row[3]]
    indent = len(re.match(r"[ -]*", line)[0])
    lines, words = [], re.split(r" (?!(?:[KMG]iB|B|%|ms|s)\b)", line)
    for word in words:
        if lines and (len(lines[-1]) + 1 + len(word) <= COLUMNS or not lines[-1].strip(" -")):
            lines[-1] += " " + word
        else:
            lines.append(" " * indent + word if lines else word)
    return lines


def words(lines):
    """What is said, without numbers, bars and where lines end: sizes have another unit or length at other times."""
    text = re.sub(r"\d[\d.,]*( [KMG]iB| B| ms| s)?", "N", " ".join(lines))
    return re.sub(r"[\u2581-\u258f\s]+", " ", text).strip()


def shown(svg):
    return [html.unescape(line) for line in re.findall(r'<text [^>]*>([^<]*)</text>', svg)]


def picture(printed_lines, scheme):
    parts = [(part, "fragmentation" in line) for line in printed_lines for part in wrapped(line)]
    lines = [part for part, _ in parts]
    back, border, ink, strong = COLOURS[scheme]
    width, height = round(max(map(len, lines)) * LETTER + 2 * MARGIN), len(lines) * LINE + 2 * MARGIN
    said = html.escape(" / ".join(line.strip() for line in lines[1:] if line))
    rows = []
    for number, (line, is_strong) in enumerate(parts):
        colour = f' fill="{strong}" font-weight="bold"' if is_strong else ""
        # A length for each line, so that columns stand whatever the font is.
        length = f' textLength="{len(line) * LETTER:.0f}" lengthAdjust="spacingAndGlyphs"' if line else ""
        rows.append(f'<text x="{MARGIN}" y="{MARGIN + number * LINE + FONT}"{colour}{length} xml:space="preserve">{html.escape(line)}</text>')
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
        f"<title>{html.escape(lines[0][2:])}</title>", f"<desc>{said}</desc>",
        f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8" fill="{back}" stroke="{border}"/>',
        f'<g fill="{ink}" font-family="ui-monospace, DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="{FONT}">', *rows, "</g>", "</svg>", ""])


def self_test():
    assert wrapped("   41.6 MiB  100 %  \u2588\u2588  in memory") == ["41.6 MiB  100 %  \u2588\u2588  in memory"]
    bar = "\u2588" * 17 + "\u258a"
    assert wrapped(f"   36.9 MiB   89 %  {bar}          free between live blocks: fragmentation")[0] == f"36.9 MiB   89 %  {bar}"
    long = "  - find out who holds it: quarry record -g -- CMD, then quarry profile FILE"
    assert all(len(line) <= COLUMNS for line in wrapped(long)) and words(wrapped(long)) == words([long])
    assert wrapped(long)[1].startswith("    ") and wrapped("") == [""]
    drawn = picture(["$ a", "b 1 & 2 MiB", "", "c"], "dark")
    assert words(shown(drawn)) == words(["$ a", "b 14.5 & 3 KiB", "c"]) != words(["$ a", "b 1 & 2 MiB d", "c"])
    print("terminal_picture: lines are wrapped, and other words are seen")


def main():
    given = sys.argv[1:]
    if given == ["--self-test"]:
        return self_test()
    check = given[:1] == ["--check"]
    if len(given) != 1 + check:
        sys.exit(__doc__)
    lines = printed(pathlib.Path(given[-1]).absolute())
    for scheme in COLOURS:
        path = ROOT / f"docs/explain-{scheme}.svg"
        if not check:
            path.write_text(picture(lines, scheme))
            print(f"wrote docs/explain-{scheme}.svg")
        elif words(shown(path.read_text())) != words(lines):
            sys.exit(f"docs/explain-{scheme}.svg shows\n{words(shown(path.read_text()))}\nand the tool prints\n{words(lines)}\n"
                     "run scripts/terminal_picture.py build/bin/quarry")


if __name__ == "__main__":
    main()
