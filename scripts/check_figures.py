#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Check that each measured figure says which version it is of: docs/style.md, "Figures".

  check_figures.py [ROOT]       exit 1 and one line for each figure that does not
  check_figures.py --self-test  prove that each rule can fail

Read are the documents that hold measurements (DOCUMENTS). A measured figure is a number with a unit of time, of rate, or of what a
processor or the kernel counts; so is a table of which three cells are numbers. Sizes alone are none: most are constants of a design.

A part that scripts/generate_docs.py fills is as its source says, so it is left out. What is computed is no measured figure, if the
paragraph before its table says so, and neither is a setting in backticks.

A figure is of a version if a commit of this repository is named in its paragraph, list item or table, before it in the same section, or
before the first section within a section around it. A test may stand for the commit, in the same paragraph or in the one before a
table: what a test compares is of the newest version. A word that follows "commit" must be one.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
DOCUMENTS = ("docs/performance.md", "docs/notes/*.md", "docs/benchmarks.md", "docs/pools/*.md")

UNITS = r"ns|µs|us|ms|M/s|GB/s|cycles|instructions|(?:page )?faults"
FIGURE = re.compile(rf"(?<![\w.,`-])\d[\d,.]*\d?\*{{0,2}} (?:{UNITS})\b|(?<![\w.,-])\d+\.\d+ s\b")
NUMBER = re.compile(r"[*±~+-]*\d[\d,. ]*(?:%|[KMG]iB|[a-zµ]{1,2}|\([^|]*\))?[*]*(?: ?[±(–,/;].*)?")
COMMIT = re.compile(r"(?<![\w.#/-])[0-9a-f]{7,40}(?![\w.-]*\w)")
TEST = re.compile(r"\btests? `|\bctest -R |fastpath/expected\.json|`make test`")
COMPUTED = re.compile(r"\btable is computed\b")
GENERATED = re.compile(r"<!-- generated: .*?<!-- end of generated -->", re.S)
CLAIMED = re.compile(r"\bcommits? `?([0-9a-f]{7,40})\b")


def blocks(text):
    """(line, heading level or 0, text) of each heading, paragraph, list item and table; code is left out."""
    text = re.sub(r"^( *)(```|~~~).*?^\1\2", lambda m: "\n" * m.group().count("\n"), text, flags=re.M | re.S)
    text = GENERATED.sub(lambda m: "\n" * m.group().count("\n"), text)
    gathered, begin = [], 0
    for number, line in enumerate([*text.splitlines(), ""], 1):
        stripped = line.strip()
        heading = re.match(r"(#+) ", line)
        item = re.match(r" *(?:[-*]|\d+\.) ", line)
        turns = gathered and stripped.startswith("|") != gathered[-1].strip().startswith("|")
        if gathered and (not stripped or heading or item or turns):
            yield begin, 0, "\n".join(gathered)
            gathered = []
        if heading:
            yield number, len(heading.group(1)), line
        elif stripped:
            begin = begin if gathered else number
            gathered.append(line)


def is_table(block):
    return block.lstrip().startswith("|")


def has_figure(block):
    if FIGURE.search(block):
        return True
    if not is_table(block):
        return False
    rows = [line for line in block.splitlines()[2:]]
    cells = [cell.strip() for row in rows for cell in row.strip().strip("|").split("|")]
    return sum(bool(NUMBER.fullmatch(cell)) for cell in cells) >= 3


class History:
    """The commits of a repository. Where it cannot be asked, or has a part of them only, each word that looks like one is one."""

    def __init__(self, root):
        self.root, self.known = root, {}
        shallow = self.git("rev-parse", "--is-shallow-repository")
        self.is_whole = shallow.returncode == 0 and shallow.stdout.strip() == "false"

    def git(self, *args):
        return subprocess.run(["git", "-C", self.root, *args], capture_output=True, text=True)

    def has(self, word):
        if word not in self.known:
            asks = ["merge-base", "--is-ancestor", word, "HEAD"]
            self.known[word] = not self.is_whole or self.git(*asks).returncode == 0
        return self.known[word]


def faults(text, has):
    """(line, what is wrong) of a document. `has` says whether a word is a commit."""
    named = {}  # level of a section around this place: is a commit named in it, before its first part?
    level, before = 0, ""
    for line, heading, block in blocks(text):
        if heading:
            named = {depth: is_named for depth, is_named in named.items() if depth < heading}
            level = heading
        for word in CLAIMED.findall(block):
            if not has(word):
                yield line, f"{word} is no commit"
        named[level] = named.get(level, False) or any(has(word) for word in COMMIT.findall(block))
        tested = TEST.search(block) or is_table(block) and (TEST.search(before) or COMPUTED.search(before))
        if not heading and has_figure(block) and not any(named.values()) and not tested:
            first = FIGURE.search(block)
            yield line, f"no commit is named for {first.group() if first else 'the figures of this table'}"
        before = block


def check(root):
    history = History(root)
    found = []
    for document in sorted(path for pattern in DOCUMENTS for path in root.glob(pattern)):
        for line, what in faults(document.read_text(), history.has):
            found.append(f"{document.relative_to(root)}:{line}: {what}")
    return found


def self_test():
    def of(text):
        return [what for _, what in faults(text, lambda word: word in ("abc1234", "1234567"))]

    table = "| a | b | c |\n|---|---|---|\n| 1 | 2.5 | 3 |\n"
    for good in ("A page is 64 KiB.", "It took 5 ns at abc1234.", "At abc1234:\n\n" + table, "# A\nAt abc1234.\n\n## B\n5 ns\n", "5 ns (test `x`)",
                 "Compared by `ctest -R x`:\n\n" + table, "```\n5 ns\n```", "| a |\n|---|\n| 1 |", "- at abc1234\n- 5 ns", "x-5 ns, v1.5 ns",
                 "At 1234567 it took 1.5 s.", "Below `20 µs`.", "The table is computed.\n\n" + table, "<!-- generated: x -->\n\n" + table + "\n<!-- end of generated -->\n"):
        assert not of(good), (good, of(good))
    for bad in ("It took 5 ns.", "It took 1,200 instructions.", table, "At fce3f55 it took 5 ns.", "# A\n## B\nAt abc1234.\n## C\n5 ns\n",
                "5 ns, then abc1234x", "See test `x`.\n\nIt took 5 ns.", "5 **faults** and 6 page faults", "1.5 s", "5 ns\n\nAt abc1234.",
                "With commit fce3f55 of abc1234."):
        assert len(of(bad)) == 1, (bad, of(bad))
    with tempfile.TemporaryDirectory() as folder:
        # No repository: nothing can be asked.
        assert History(folder).has("abc1234")
    print("check_figures: each rule can fail")


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    found = check(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
    print("\n".join(found) or "check_figures: each figure is of a version")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
