#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Check the pages of `make site` in Chromium: axe-core's rules, contrast in light and dark, and whether each fits a phone.

  check_site.py [--pictures FOLDER] [PAGE ...]   of build/site/html; exit 1 and a line for each fault. Without PAGE: all pages
  check_site.py --self-test                      prove that each kind of fault is found

It needs chromium, and npm to fetch axe-core once; without one of them, or without the site, the exit status is 77. Two browsers, one light
and one dark, load page after page into a frame. All rules are asked in light, and contrast once more in dark. In a frame of 390 columns
no page may be wider than the frame, and no text, table, code or picture may reach beyond it, unless a part around it can be scrolled. No picture
is drawn too small to read there, and no word of code in a cell is cut. Each page has one title and some text, and none of it is raw Markdown. Of a
picture for light and dark, the one shown is that of the colours chosen.
With --pictures each page is also drawn: light and dark, 1400 and 390 columns wide.
"""
import argparse
import concurrent.futures
import contextlib
import http.server
import json
import os
import pathlib
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import threading

ROOT = pathlib.Path(__file__).resolve().parents[1]
SITE = ROOT / "build/site/html"
AXE = ROOT / "build/site/axe"
VERSION = "4.10.3"
SCHEMES = {"light": 1, "dark": 0}
PATIENCE = 900  # seconds without an answer
CHROMIUM = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
# What a browser does with the pages that its address names: "?scheme#page page ...".
DRIVER = """<!doctype html><title>checks</title><body><script>
const dark = location.search === "?dark";
const tags = ["wcag2a", "wcag2aa", "best-practice"];
const asked = {runOnly: dark ? ["color-contrast"] : tags, resultTypes: ["violations"], elementRef: false, preload: false};
function opened(page, width) {
  return new Promise(done => {
    const frame = document.createElement("iframe");
    frame.width = width; frame.height = 1500; frame.src = page;
    frame.onload = () => done(frame);
    document.body.append(frame);
  });
}
function beyond(frame) {
  const view = frame.contentWindow, root = frame.contentDocument.documentElement, found = [];
  if (root.scrollWidth > 390) found.push(["wider than a phone", 1, root.scrollWidth + " columns"]);
  const scrolls = one => {
    for (; one && one !== root; one = one.parentElement)
      if (/auto|scroll|hidden|clip/.test(view.getComputedStyle(one).overflowX)) return true;
    return false;
  };
  for (const one of frame.contentDocument.querySelectorAll("article p, article li, article h1, article h2, article h3, article table, article pre, article img, article svg")) {
    const box = one.getBoundingClientRect();
    if (box.width && box.right > 391 && !scrolls(one.parentElement)) found.push(["beyond the edge of a phone", 1, one.outerHTML.slice(0, 120)]);
    if (one.localName === "img" && box.width && box.width < 0.7 * one.naturalWidth)
      found.push(["too small to read on a phone", 1, `${one.getAttribute("src")}: ${Math.round(box.width)} of ${one.naturalWidth} columns`]);
  }
  for (const code of frame.contentDocument.querySelectorAll("article td code"))
    for (const [word, rects] of words(code, view))
      if (rects > 1) found.push(["a word is cut", 1, word]);
  return found;
}
// Each word of the code in a cell, and over how many lines it goes.
function* words(code, view) {
  const walk = view.document.createTreeWalker(code, NodeFilter.SHOW_TEXT), range = view.document.createRange();
  for (let text = walk.nextNode(); text; text = walk.nextNode())
    for (const word of text.data.matchAll(/\w+/g)) {
      range.setStart(text, word.index);
      range.setEnd(text, word.index + word[0].length);
      yield [word[0], new Set([...range.getClientRects()].map(box => Math.round(box.top))).size];
    }
}
// What Markdown left as it was, and titles: one for a page, above all of its text.
function unmade(frame) {
  const page = frame.contentDocument, found = [], titles = page.querySelectorAll("article h1");
  if (titles.length !== 1) found.push(["not one title", titles.length, [...titles].map(one => one.textContent).join(" / ")]);
  const walk = page.createTreeWalker(page.querySelector("article") || page.body, NodeFilter.SHOW_TEXT);
  let text = 0;
  for (let one = walk.nextNode(); one; one = walk.nextNode()) {
    text += one.data.trim().length;
    if (!one.parentElement.closest("code, pre, script, style") && /\]\(|```|\*\*|^\|[ -]|^#+ |<\/?\w+[ >]|&\w+;/m.test(one.data))
      found.push(["raw text of Markdown", 1, one.data.trim().slice(0, 120)]);
  }
  if (text < 100) found.push(["an empty page", 1, text + " letters"]);
  return found;
}
// The theme's colours are chosen on the page: pictures must be those of the choice, whatever the system has.
function pictures(frame) {
  const found = [], body = frame.contentDocument.body, before = body.dataset.mdColorScheme;
  for (const [scheme, other] of [["default", "dark"], ["slate", "light"]]) {
    body.dataset.mdColorScheme = scheme;
    for (const one of frame.contentDocument.querySelectorAll("article img"))
      if (one.getBoundingClientRect().width && (one.currentSrc || one.src).split("#")[0].endsWith(`-${other}.svg`))
        found.push(["a picture of the other colours", 1, `${one.currentSrc} in ${scheme}`]);
  }
  if (before === undefined) delete body.dataset.mdColorScheme; else body.dataset.mdColorScheme = before;
  return found;
}
async function faults(page) {
  const frame = await opened(page, dark ? 1400 : 390), found = [...pictures(frame), ...(dark ? [] : [...beyond(frame), ...unmade(frame)])];
  if (!dark) frame.width = 1400;
  const script = frame.contentDocument.createElement("script");
  script.src = "/axe.js";
  await new Promise(done => { script.onload = done; frame.contentDocument.head.append(script); });
  const result = await frame.contentWindow.axe.run(frame.contentDocument, asked);
  for (const one of result.violations) found.push([one.id, one.nodes.length, one.nodes[0].html.slice(0, 120)]);
  frame.remove();
  return found;
}
(async () => {
  for (const page of decodeURIComponent(location.hash.slice(1)).split(" ")) {
    let said;
    try { said = await faults(page); } catch (error) { said = [["no answer", 1, String(error)]]; }
    await fetch("/said", {method: "POST", body: JSON.stringify([page, dark ? "dark" : "light", said])});
  }
})();
</script></body>"""


def missing():
    """What the check needs and is not there, or None."""
    if not shutil.which("chromium"):
        return "the package chromium"
    if not (AXE / "package/axe.min.js").exists() and not shutil.which("npm"):
        return "npm, which fetches axe-core"
    return None


def axe():
    file = AXE / "package/axe.min.js"
    if not file.exists():
        AXE.mkdir(parents=True, exist_ok=True)
        fetched = subprocess.run(["npm", "pack", "--silent", f"axe-core@{VERSION}"], cwd=AXE, capture_output=True, text=True)
        if fetched.returncode:
            print(f"SKIP: needs axe-core {VERSION}, which npm did not fetch")
            sys.exit(77)
        subprocess.run(["tar", "xzf", f"axe-core-{VERSION}.tgz", "package/axe.min.js"], cwd=AXE, check=True)
    return file


@contextlib.contextmanager
def served(folder, script):
    """The address of a server of the folder, and a queue of what the browsers say."""
    said = queue.Queue()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self):
            own = {"/driver": DRIVER.encode(), "/axe.js": script.read_bytes()}.get(self.path.split("?")[0])
            if own is None:
                return super().do_GET()
            self.send_response(200)
            self.send_header("Content-Type", "text/html" if self.path.startswith("/driver") else "text/javascript")
            self.send_header("Content-Length", str(len(own)))
            self.send_header("Cache-Control", "max-age=600")
            self.end_headers()
            self.wfile.write(own)
            return None

        def do_POST(self):
            said.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), lambda *given: Handler(*given, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", said
        server.shutdown()


@contextlib.contextmanager
def browser(scheme, width, *options):
    with tempfile.TemporaryDirectory() as profile:
        command = [*CHROMIUM, f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}", f"--window-size={width},1500", f"--user-data-dir={profile}", *options]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)  # the browser's own processes, which it started
            process.wait()


def faults(folder, pages):
    """(page, scheme, rule, how often, example) of all pages, which are names in the folder."""
    found, expected = [], {(page, scheme) for page in pages for scheme in SCHEMES}
    with served(folder, axe()) as (address, said), contextlib.ExitStack() as stack:
        for scheme in SCHEMES:
            stack.enter_context(browser(scheme, 1400, "--remote-debugging-port=0", f"{address}/driver?{scheme}#{'%20'.join(pages)}"))
        while expected:
            try:
                page, scheme, told = said.get(timeout=PATIENCE)
            except queue.Empty:
                return found + [(page, scheme, "no answer", 1, "") for page, scheme in sorted(expected)]
            expected.discard((page, scheme))
            found += [(page, scheme, *one) for one in told]
    return sorted(found)


def draw(folder, pages, into):
    """Pictures of the pages. Windows are 500 columns wide at least, frames are not."""
    into.mkdir(parents=True, exist_ok=True)

    def one(page, scheme):
        name = page.replace("/", "-").removesuffix(".html")
        with tempfile.TemporaryDirectory() as scratch:
            frame = pathlib.Path(scratch) / "frame.html"
            frame.write_text(f'<body style="margin:0"><iframe style="border:0" width=390 height=1500 src="{(folder / page).as_uri()}"></iframe>')
            for kind, width, address in (("wide", 1400, (folder / page).as_uri()), ("phone", 500, frame.as_uri())):
                with browser(scheme, width, f"--screenshot={into}/{name}-{kind}-{scheme}.png", "--allow-file-access-from-files", "--virtual-time-budget=20000",
                             address) as process:
                    process.wait(PATIENCE)

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda both: one(*both), [(page, scheme) for page in pages for scheme in SCHEMES]))


def self_test():
    page = """<!doctype html><html lang=en><head><title>t</title><meta name=viewport content="width=device-width"><style>
    body {{ background: #fff; color: #000 }} .dim {{ color: #000 }} @media (prefers-color-scheme: dark) {{ .dim {{ color: #eee }} }}
    </style></head><body><main><article><h1>t</h1>{}<p>""" + "Text of a page that says something. " * 4 + """</p></article></main></body></html>"""
    wide = "<table><tr><td style='min-width:900px'>x</td></tr></table>"
    kinds = {"good": ("<p>Text.</p>", []), "scrolls": (f"<div style='overflow-x:auto' tabindex=0>{wide}</div>", []),
             "small": ("<img alt='x' width=300 src=wide.svg>", [("light", "too small to read on a phone")]),
             "cut": ("<table><tr><td style='max-width:20px'><code style='word-break:break-all'>abcdefghij</code></td></tr></table>", [("light", "a word is cut")]),
             "raw": ("<p>See [this](x.md).</p>", [("light", "raw text of Markdown")]), "titles": ("<h1>u</h1>", [("light", "not one title")]),
             "system": ("<picture><source media='(prefers-color-scheme: dark)' srcset=x-dark.svg><img alt='x' src=x-light.svg></picture>",
                        [("light", "a picture of the other colours"), ("dark", "a picture of the other colours")]),
             "pale": ("<p style='color:#ddd'>Text.</p>", [("light", "color-contrast"), ("dark", "color-contrast")]),
             "dim": ("<p class=dim>Text.</p>", [("dark", "color-contrast")]), "picture": ("<img src=x.png>", [("light", "image-alt")]),
             "order": ("<h4>x</h4>", [("light", "heading-order")]), "wide": (wide, [("light", "beyond the edge of a phone"), ("light", "wider than a phone")])}
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, (text, _) in kinds.items():
            (root / f"{name}.html").write_text(page.format(text))
        for name, width in (("wide", 800), ("x-light", 100), ("x-dark", 100)):
            (root / f"{name}.svg").write_text(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="50"/>')
        (root / "empty.html").write_text(re.sub(r"<p>.*</p>", "", page.format("")))
        told = faults(root, [f"{name}.html" for name in (*kinds, "empty")])
    for name, (_, expected) in {**kinds, "empty": ("", [("light", "an empty page")])}.items():
        seen = [(scheme, rule) for page, scheme, rule, *_ in told if page == f"{name}.html"]
        assert sorted(seen) == sorted(expected), (name, seen, expected)
    print("check_site: each kind of fault is found, in the scheme that has it")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=pathlib.Path)
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("pages", nargs="*")
    given = parser.parse_args()
    lacks = missing() or (None if given.self_test or SITE.exists() else "the site: make site")
    if lacks:
        print(f"SKIP: needs {lacks}")
        sys.exit(77)
    if given.self_test:
        return self_test()
    # The tour is a page of the tool, whose own tests look at it.
    all_pages = {path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html")} - {"404.html", "tour.html"}
    pages = given.pages or sorted(all_pages)
    found = faults(SITE, pages)
    for page, scheme, rule, count, example in found:
        print(f"{page}, {scheme}: {rule}, {count} times, as {example}")
    if given.pictures:
        draw(SITE, pages, given.pictures.resolve())
    print(f"site: {len(pages)} pages, {len(found)} faults")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
