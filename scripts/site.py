#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Stage the documents for the site: `make site` renders what this writes with MkDocs.

  site.py FOLDER        write FOLDER/mkdocs.yml and FOLDER/docs
  site.py --self-test   prove that links and lists are rewritten

The tree keeps its layout, so that relative links hold. Beside the documents there are a page for each public header, the tour if `make docs` has
run, a page for each folder that a link leads to, and each other file that a link leads to, as text. MkDocs checks all links.
"""
import pathlib
import re
import shutil
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGES = ("*.md", "docs/**/*.md", "src/README.md", "tests/README.md", "bench/**/README.md", "tools/crates/*/README.md")
LINK = re.compile(r"(?<!`)(\]\(|srcset=\"|src=\")([^)\"\s#]+)(#[^)\"\s]*)?([)\"])")
PICTURES = (".svg", ".png")
PICTURE = re.compile(r"<picture>\s*<source media=\"\(prefers-color-scheme: dark\)\" srcset=\"([^\"]+)\">\s*<img src=\"([^\"]+)\"([^>]*)>\s*</picture>")
ALONE = re.compile(r"^(!\[([^\]]*)\]\(([^)\s]+\.svg)\))$", re.M)
PHONE, LEAST = 358, 0.74  # columns for a picture on a phone, and the part of its size at which its words are legible
WORD = re.compile(r"`[^`]*`|(?<![\w/.])(?:quarry|QUARRY|[ptr]|fifo)_\w+(?:\(\))?|<[\w/.]+>")
FUNCTION = re.compile(r"((?:^///[^\n]*\n)*)((?:^QUARRY_API [^;]*;\n)+)", re.M)
MACRO = re.compile(r"((?:^///[^\n]*\n)+)((?:^#define \w+\([^)]*\)[^\n]*\n(?:^ .*\\?\n)*)+)", re.M)


def outside_code(text, change):
    """`change` of each part that is no fenced block."""
    parts = re.split(r"(^(?:```|~~~).*?^(?:```|~~~)[ \t]*$)", text, flags=re.M | re.S)
    return "".join(part if i % 2 else change(part) for i, part in enumerate(parts))


def lists_apart(text):
    """A blank line before a list that follows a line of text, and four blanks before what is inside: this Markdown needs both."""
    text = re.sub(r"^( {2})(?=[-*] )", "    ", text, flags=re.M)
    lines = []
    for line in text.split("\n"):
        before = lines[-1] if lines else ""
        is_item = re.match(r"\s*([-*]|\d+\.) ", line)
        if is_item and before.strip() and not re.match(r"\s*([-*]|\d+\.) |  ", before) and not before.startswith("|"):
            lines.append("")
        if line.startswith("|"):  # in code of a table this Markdown takes a bar for itself, and shows what escapes it
            line = re.sub(r"`[^`]*`", lambda code: code.group().replace("\\|", "|"), line)
        lines.append(line)
    return "\n".join(lines)


def named(text):
    """A sentence of a header as Markdown: names of the interface are code."""
    return WORD.sub(lambda word: word.group() if word.group().startswith("`") else f"`{word.group()}`", text).replace(" <", " &lt;")


def part_of_header(lines):
    """One block of a header's comment as Markdown: its code stays, and all else wraps."""
    if all(line.startswith("  ") for line in lines):
        rows = []
        for line in lines:
            row = re.match(r"  (\w[\w ]*?) {2,}(\S.*)", line)
            if row and "   " not in row[2]:
                rows.append([row[1], row[2]])
            elif rows and re.match(r" {9,}\S", line) and "   " not in line.strip():
                rows[-1][1] += " " + line.strip()
            else:
                return "```c\n" + "\n".join(line.removeprefix("  ") for line in lines) + "\n```\n"
        return "| | |\n|---|---|\n" + "".join(f"| {named(name)} | {named(text)} |\n" for name, text in rows)
    parts = []
    for line in lines:
        is_item = line.startswith(" - ")
        is_named = re.match(r"[A-Z][\w ]{2,40}: ", line) and (not parts or parts[-1].endswith("."))
        if not parts or is_item or is_named:
            parts.append(line.strip())
        else:
            parts[-1] += " " + line.strip()
    return ("\n" if parts[0].startswith("- ") else "\n\n").join(map(named, parts)) + "\n"


def about_header(comment):
    """A comment of a header as Markdown."""
    lines = [line.lstrip("/").removeprefix(" ") for line in comment.splitlines()]
    lines[0] = re.sub(r"^[\w.]+\.h(?:pp)?: ", "", lines[0])
    if not re.match(r"\w*_", lines[0]):
        lines[0] = lines[0][:1].upper() + lines[0][1:]
    blocks = re.split(r"\n\s*\n", "\n".join(lines).strip("\n"))
    return "\n".join(part_of_header(block.split("\n")) for block in blocks)


class Stage:
    def __init__(self, root, folder):
        self.root, self.out = root, folder / "docs"
        self.pages = {path.relative_to(root) for pattern in PAGES for path in root.glob(pattern)}
        self.made = set()

    def write(self, name, text):
        (self.out / name).parent.mkdir(parents=True, exist_ok=True)
        (self.out / name).write_text(text)

    def target(self, page, link):
        """The staged name of what a link of a page leads to."""
        path = (self.root / page.parent / link).resolve()
        if not path.is_relative_to(self.root) or not path.exists():
            sys.exit(f"{page}: the link {link} leads nowhere")
        name = path.relative_to(self.root)
        if name in self.pages:
            return name
        if path.is_dir():
            if name / "README.md" in self.pages:
                return name / "README.md"
            listing = name / "index.md"
            if listing not in self.made:
                self.made.add(listing)
                files = sorted(one.name + ("/" if one.is_dir() else "") for one in path.iterdir() if not one.name.startswith("."))
                self.write(listing, f"# {name}\n\nThe folder `{name}` of the sources holds:\n\n" + "".join(f"- `{file}`\n" for file in files))
            return listing
        staged = name if path.suffix in PICTURES else name.with_name(name.name + ".txt")
        if staged not in self.made:
            self.made.add(staged)
            (self.out / staged).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, self.out / staged)
        return staged

    def page(self, page):
        def link(found):
            begin, to, anchor, end = found.groups()
            if re.match(r"\w+:", to):
                return found.group()
            name = self.target(page, to)
            up = pathlib.Path(*[".."] * (len(page.parents) - 1)) if len(page.parents) > 1 else pathlib.Path()
            return f"{begin}{up / name}{anchor or ''}{end}"
        text = outside_code((self.root / page).read_text(), lambda part: lists_apart(LINK.sub(link, self.pictures(page, part))))
        self.write(page, text)

    def pictures(self, page, text):
        """A picture follows the colours that the reader chose, not those of the system. One that a phone cannot show legibly is scrolled."""
        text = PICTURE.sub(r'<img src="\2#only-light"\3> <img src="\1#only-dark"\3>', text)

        def scrolled(found):
            size = re.search(r"<svg[^>]* width=\"(\d+)", (self.root / page.parent / found[3]).read_text())
            least = round(int(size[1]) * LEAST) if size else 0
            return f'{found[1]}{{: style="min-width: {least}px" }}\n{{: .scrolls tabindex="0" }}' if least > PHONE else found[1]
        return ALONE.sub(scrolled, text)

    def header(self, path):
        text = path.read_text()
        about = re.match(r"// SPDX[^\n]*\n((?://[^\n]*\n)+)", text)
        parts = [f"# &lt;quarry/{path.name}&gt;\n"]
        if about:
            parts.append(about_header(about.group(1)))
        declared = [*FUNCTION.findall(text), *MACRO.findall(text)]
        for comment, declaration in declared:
            names = re.findall(r"(\w+)\(", re.sub(r"QUARRY_(?!API)[A-Z_0-9]+\([^)]*\)", "", declaration) if "QUARRY_API" in declaration else declaration)
            said = about_header(comment) if comment else ""
            parts.append(f"## {names[0] if names else declaration.split()[1]}\n\n```c\n{declaration.strip()}\n```\n\n{said}\n")
        parts.append("## The whole header\n\n```c\n" + text.rstrip() + "\n```\n")
        self.write(f"api/{path.stem}{path.suffix.replace('.', '-')}.md", "\n".join(parts))

    def all(self):
        for page in sorted(self.pages):
            self.page(page)
        headers = sorted((self.root / "include/quarry").glob("*.h*"))
        for header in headers:
            self.header(header)
        rows = "".join(f"- [&lt;quarry/{one.name}&gt;]({one.stem}{one.suffix.replace('.', '-')}.md)\n" for one in headers)
        self.write("api/index.md", f"# API\n\nThe public headers, with what each function does. Their whole text stands at the end of each page.\n\n{rows}")
        tour = self.root / "build/docs/tour.html"
        if tour.exists():
            shutil.copy(tour, self.out / "tour.html")


CONFIG = """site_name: Quarry
site_description: A malloc for Linux, pools, and a tool that shows where memory is
docs_dir: docs
use_directory_urls: false
theme:
  name: material
  font: false
  features: [navigation.indexes, navigation.top, search.highlight, content.code.copy]
  palette:  # the first follows the system also after the first visit, whose choice the theme keeps
    - {{media: "(prefers-color-scheme)", primary: indigo, accent: indigo, toggle: {{icon: material/brightness-auto, name: Light}}}}
    - {{media: "(prefers-color-scheme: light)", scheme: default, primary: indigo, accent: indigo, toggle: {{icon: material/weather-sunny, name: Dark}}}}
    - {{media: "(prefers-color-scheme: dark)", scheme: slate, primary: indigo, accent: indigo, toggle: {{icon: material/weather-night, name: As the system}}}}
extra_css: [site.css]
extra_javascript: [site.js]
plugins: [search, offline]
markdown_extensions:
  - tables
  - attr_list
  - toc: {{permalink: true, slugify: !!python/object/apply:pymdownx.slugs.slugify {{kwds: {{case: lower}}}}}}
  - pymdownx.superfences
  - pymdownx.highlight: {{use_pygments: true}}
validation:
  omitted_files: ignore
  nav: {{omitted_files: ignore, not_found: warn}}
  links: {{not_found: warn, anchors: warn, absolute_links: warn, unrecognized_links: warn}}
nav:
  - Overview: README.md
  - Quickstart: docs/quickstart.md
  - All pages: docs/README.md
  - Guides:
{guides}
  - Reference:
      - Verbs: docs/reference/README.md
      - Reports and formats: docs/cli.md
      - Options: docs/options.md
      - Errors: docs/errors.md
      - API: api/index.md
  - Pools: docs/pools.md
  - Design: docs/design.md
  - Performance: docs/performance.md
  - Changes: CHANGELOG.md
{tour}"""

# Links in text are told from it without colour, and all colours have the contrast that WCAG asks for.
STYLE = """.md-typeset a:not(.headerlink) { text-decoration: underline; }
[data-md-color-scheme="slate"] .md-typeset a code { color: #a9c5fa; }
.md-typeset table:not([class]) { font-size: .7rem; }
.md-typeset table:not([class]) code { overflow-wrap: normal; word-break: normal; }
.md-typeset .scrolls { overflow-x: auto; }
.md-typeset .scrolls img { max-width: none; }
@media (max-width: 44.9375em) { .md-typeset table:not([class]) :is(th, td) { min-width: 4.5rem; padding: .5em .6em; } }
.md-grid { max-width: 76rem; }
[data-md-color-scheme="default"] { --md-default-fg-color--light: #5c5c5c; --md-footer-fg-color--lighter: #b0b0b0; }
[data-md-color-scheme="slate"] { --md-default-fg-color--light: #b4b8c4; --md-footer-fg-color--lighter: #b0b0b0;
  --md-typeset-a-color: #7aa5f5; --md-code-hl-number-color: #f29b8f; --md-code-hl-special-color: #f29b8f; --md-code-hl-function-color: #d09be0; --md-code-hl-constant-color: #b0a4f0;
  --md-code-hl-keyword-color: #8fb0f5; --md-code-hl-string-color: #4cc38a; }
"""

# Code and tables that do not fit can be scrolled by keys, the search has a name, and a corner of a table is no heading. The theme puts
# tables into what scrolls after it was loaded.
SCRIPT = """new MutationObserver(() => {
  document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])").forEach(wrap => { wrap.tabIndex = 0; });
}).observe(document.documentElement, {childList: true, subtree: true});
document.addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll("pre > code").forEach(code => { code.tabIndex = 0; });
  document.querySelectorAll("th:empty").forEach(head => head.replaceWith(document.createElement("td")));
  document.querySelectorAll(".md-search").forEach(search => { search.ariaLabel = "Search"; });
});
"""


def title(path):
    return re.search(r"^# (.*)", path.read_text(), re.M).group(1)


def stage(root, folder):
    shutil.rmtree(folder, ignore_errors=True)
    stage = Stage(root, folder)
    stage.all()
    (stage.out / "site.css").write_text(STYLE)
    (stage.out / "site.js").write_text(SCRIPT)
    guides = "\n".join(f"      - \"{title(path)}\": {path.relative_to(root)}" for path in sorted((root / "docs/guides").glob("*.md")))
    tour = "  - Tour: tour.html\n" if (stage.out / "tour.html").exists() else ""
    (folder / "mkdocs.yml").write_text(CONFIG.format(guides=guides, tour=tour))


def self_test():
    assert lists_apart("a\n- b\n  - c\n- d\n\ne") == "a\n\n- b\n    - c\n- d\n\ne"
    assert lists_apart("| `a\\|b` | c\\|d |") == "| `a|b` | c\\|d |"
    assert about_header("// x.h: t_a: all of QUARRY_A.\n// See <quarry/x.h>\n//\n//  - A: a\n//    b\n//  - C\n//\n//   int a = f_b();   // c\n") == (
        "`t_a`: all of `QUARRY_A`. See `<quarry/x.h>`\n\n- A: a b\n- C\n\n```c\nint a = f_b();   // c\n```\n")
    assert about_header("// x.h: about.\n//\n//   Owner     the thread\n//             that has it\n//   Lifetime  long\n") == (
        "About.\n\n| | |\n|---|---|\n| Owner | the thread that has it |\n| Lifetime | long |\n")
    assert outside_code("a\n```\na\n```\na", lambda part: part.replace("a", "b")) == "b\n```\na\n```\nb"
    with tempfile.TemporaryDirectory() as scratch:
        root = pathlib.Path(scratch) / "tree"
        for name, text in {"README.md": "[d](docs/x.md#y) [c](src/a.c) [f](src) [w](https://e.org/a)\n", "docs/x.md": "[up](../README.md)",
                           "src/a.c": "int a;", "include/quarry/q.h": "// SPDX\n// q.h: about.\n\n/// Does it.\nQUARRY_API void f(int a);\n",
                           "docs/guides/g.md": "# G\n\n![t](t.svg)\n\n![u](u.svg)\n",
                           "docs/guides/t.svg": '<svg width="860">', "docs/guides/u.svg": '<svg width="480">',
                           "docs/two.md": '<picture>\n<source media="(prefers-color-scheme: dark)" srcset="guides/t.svg">\n<img src="guides/u.svg" alt="a">\n</picture>\n',
                           }.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        out = pathlib.Path(scratch) / "out"
        stage(root, out)
        assert (out / "docs/README.md").read_text() == "[d](docs/x.md#y) [c](src/a.c.txt) [f](src/index.md) [w](https://e.org/a)\n"
        assert (out / "docs/docs/two.md").read_text() == (
            '<img src="../docs/guides/u.svg#only-light" alt="a"> <img src="../docs/guides/t.svg#only-dark" alt="a">\n')
        assert (out / "docs/docs/guides/g.md").read_text() == (
            '# G\n\n![t](../../docs/guides/t.svg){: style="min-width: 636px" }\n{: .scrolls tabindex="0" }\n\n![u](../../docs/guides/u.svg)\n')
        assert (out / "docs/docs/x.md").read_text() == "[up](../README.md)" and (out / "docs/src/a.c.txt").exists()
        assert "## f\n" in (out / "docs/api/q-h.md").read_text() and "`a.c`" in (out / "docs/src/index.md").read_text()
        (root / "README.md").write_text("[d](none.md)")
        try:
            stage(root, out)
        except SystemExit as error:
            assert "none.md" in str(error)
        else:
            raise AssertionError("a link to nothing")
    print("site: links and lists are rewritten, and a dead link is found")


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    stage(ROOT, pathlib.Path(sys.argv[1]))


if __name__ == "__main__":
    main()
