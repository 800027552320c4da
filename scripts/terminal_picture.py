#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draw what `quarry explain` prints of the server of the examples, as docs/explain-light.svg and docs/explain-dark.svg.

  terminal_picture.py TOOL     run the example on the system's malloc, look at it with TOOL, and write both pictures
"""
import html
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
COLOURS = {"light": ("#ffffff", "#d0d7de", "#1f2328", "#b04000"), "dark": ("#0d1117", "#30363d", "#e6edf3", "#ff9e64")}
LINE, LETTER, MARGIN, FONT = 19, 8.0, 16, 13
# The parts, the verdict, and what to try; what lies between is left out.
KEPT = ("in memory", "private, of no file", "heap: glibc", "fragmentation", "live:", "Verdict", "It is not growing", "What to try", "  - ")


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


def picture(lines, scheme):
    back, border, ink, strong = COLOURS[scheme]
    width, height = round(max(map(len, lines)) * LETTER + 2 * MARGIN), len(lines) * LINE + 2 * MARGIN
    rows = []
    for number, line in enumerate(lines):
        is_strong = "fragmentation" in line
        colour = f' fill="{strong}" font-weight="bold"' if is_strong else ""
        # A length for each line, so that columns stand whatever the font is.
        length = f' textLength="{len(line) * LETTER:.0f}" lengthAdjust="spacingAndGlyphs"' if line else ""
        rows.append(f'<text x="{MARGIN}" y="{MARGIN + number * LINE + FONT}"{colour}{length} xml:space="preserve">{html.escape(line)}</text>')
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
        f"<title>{html.escape(lines[0][2:])}</title>", f"<desc>{html.escape(' / '.join(lines[1:]))}</desc>",
        f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8" fill="{back}" stroke="{border}"/>',
        f'<g fill="{ink}" font-family="ui-monospace, DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="{FONT}">', *rows, "</g>", "</svg>", ""])


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    lines = printed(pathlib.Path(sys.argv[1]).resolve())
    for scheme in COLOURS:
        (ROOT / f"docs/explain-{scheme}.svg").write_text(picture(lines, scheme))
        print(f"wrote docs/explain-{scheme}.svg")


if __name__ == "__main__":
    main()
