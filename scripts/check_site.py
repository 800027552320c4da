#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Check the pages of `make site` with axe-core in Chromium, light and dark: contrast, alternative texts, order of headings and the rest of WCAG 2 AA.

  check_site.py [--pictures FOLDER] [PAGE ...]   of build/site/html; exit 1 and a line for each fault. Without PAGE: all pages

It needs chromium, and npm to fetch axe-core once. With --pictures each page is also drawn: light and dark, 1400 and 390 columns wide.
"""
import argparse
import base64
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
SITE = ROOT / "build/site/html"
AXE = ROOT / "build/site/axe"
VERSION = "4.10.3"
SCHEMES = {"light": 1, "dark": 0}
CHROMIUM = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
            "--allow-file-access-from-files", "--virtual-time-budget=20000"]
ASK = """<script src="file://{axe}"></script><script>addEventListener("load", () => setTimeout(() =>
axe.run(document, {{runOnly: ["wcag2a", "wcag2aa", "best-practice"]}}).then(result => {{
  const faults = result.violations.map(one => [one.id, one.nodes.length, one.nodes[0].html.slice(0, 120)]);
  document.documentElement.innerHTML = "<pre id=R>" + btoa(unescape(encodeURIComponent(JSON.stringify(faults)))) + "</pre>";
}}), 300))</script></body>"""


def axe():
    file = AXE / "package/axe.min.js"
    if not file.exists():
        AXE.mkdir(parents=True, exist_ok=True)
        subprocess.run(["npm", "pack", "--silent", f"axe-core@{VERSION}"], cwd=AXE, check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["tar", "xzf", f"axe-core-{VERSION}.tgz", "package/axe.min.js"], cwd=AXE, check=True)
    return file


def chromium(scheme, width, *options):
    return subprocess.run([*CHROMIUM, f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}", f"--window-size={width},1500", *options],
                          capture_output=True, text=True, timeout=300).stdout


def beside(page, text):
    """The same page with other text, for a moment, where its relative links hold."""
    copy = page.with_name("checked-" + page.name)
    copy.write_text(text)
    return copy


def faults(page, scheme):
    copy = beside(page, page.read_text().replace("</body>", ASK.format(axe=axe())))
    printed = chromium(scheme, 1400, "--dump-dom", copy.as_uri())
    copy.unlink()
    found = re.search(r'id="?R"?>([^<]*)<', printed)
    return json.loads(base64.b64decode(found.group(1))) if found else [["no answer", 1, ""]]


def draw(page, scheme, folder):
    name = page.relative_to(SITE).as_posix().replace("/", "-").removesuffix(".html")
    chromium(scheme, 1400, f"--screenshot={folder}/{name}-wide-{scheme}.png", page.as_uri())
    # Windows are 500 columns wide at least, frames are not.
    frame = beside(page, f'<body style="margin:0"><iframe style="border:0" width=390 height=1500 src="{page.name}"></iframe>')
    chromium(scheme, 500, f"--screenshot={folder}/{name}-phone-{scheme}.png", frame.as_uri())
    frame.unlink()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=pathlib.Path)
    parser.add_argument("pages", nargs="*")
    given = parser.parse_args()
    # The tour is a page of the tool, whose own tests look at it.
    pages = [SITE / name for name in given.pages] or sorted(set(SITE.rglob("*.html")) - {SITE / "404.html", SITE / "tour.html"})
    if given.pictures:
        given.pictures.mkdir(parents=True, exist_ok=True)
    wrong = 0
    for page in pages:
        for scheme in SCHEMES:
            for rule, count, example in faults(page, scheme):
                wrong += 1
                print(f"{page.relative_to(SITE)}, {scheme}: {rule}, {count} times, as {example}", flush=True)
            if given.pictures:
                draw(page, scheme, given.pictures.resolve())
    print(f"site: {len(pages)} pages, {wrong} faults")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
