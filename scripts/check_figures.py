#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Check that measured figures say what they are of: docs/style.md, "Figures".

  check_figures.py [ROOT]       exit 1 and one line for each figure that does not
  check_figures.py --self-test  prove that each rule can fail

A table of figures is one in which three cells begin with a number, or have a decimal or a size, or one has a unit of what is measured.
Each such table of README.md and of every document under docs/ has three things before it: the command that makes it, the day or month,
and the machine. The command is in the table's own section. Date and machine may stand before the first section within a section around it.

A table that looks so and holds no measurement says that, in the line above it: <!-- not measured: KIND -->. NOT_MEASURED lists the kinds.
Such a table has no unit of what is measured, and the line stands above no other. They are counted and shown, so a new one is seen.

In documents that hold measurements (MEASURED), and in every table of figures, a measured figure names its version. A measured figure is a
number with a unit of time, of rate, or of what a processor or the kernel counts. Sizes alone are none: most are constants of a design.

A part that scripts/generate_docs.py fills is as its source says, so it is left out. What is computed is no measured figure, if the
paragraph before its table says so, and neither is a setting in backticks.

A figure is of a version if a commit of this repository is named in its paragraph, list item or table, before it in the same section, or
before the first section within a section around it. A test may stand for the commit, in the same paragraph or in the one before a
table: what a test compares is of the newest version, on each machine. A word that follows "commit" must be one.

A script of this repository that a document gives as a command can be run as it stands there: it is there, and is executable.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
DOCUMENTS = ("README.md", "docs/**/*.md")
MEASURED = ("docs/performance.md", "docs/notes/*.md", "docs/benchmarks.md", "docs/pools/*.md")

FENCES = ("```", "~~~")
UNITS = r"ns|µs|us|ms|M/s|GB/s|cycles|instructions|(?:page )?faults"
FIGURE = re.compile(rf"(?<![\w.,`-])\d[\d,.]*\d?\*{{0,2}} (?:{UNITS})\b|(?<![\w.,`-])\d+\.\d+ s\b")
NUMBER = re.compile(r"[*±~+<>(-]*\d|.*(?<![\w.])\d+\.\d+(?![\w.])|.*\d (?:[KMG]iB|[KMG]?B)\b")
ASIDE = re.compile(r"<!--.*?-->|`[^`]*`|\]\([^)]*\)")
COMMIT = re.compile(r"(?<![\w.#/-])[0-9a-f]{7,40}(?![\w.-]*\w)")
TEST = re.compile(r"\btests? `|\bctest -R |fastpath/expected\.json|`make test`")
COMPUTED = re.compile(r"\btable is computed\b")
GENERATED = re.compile(r"<!-- generated: .*?<!-- end of generated -->", re.S)
CLAIMED = re.compile(r"\bcommits? `?([0-9a-f]{7,40})\b")

# What a table of figures has before it.
COMMAND = re.compile(r"(?:^|[ `$/])(?:quarry|make|ctest|cargo|perf) [\w-]|[\w/.-]+\.(?:py|sh)\b|\bbench/[\w-]+ --|--tool=callgrind|\bbuild/tests/", re.M)
SCRIPT = re.compile(r"(?:^ {4}|`)((?:bench|examples|scripts|tests)/[\w/.-]+\.(?:py|sh))(?=[ `\n])", re.M)
DATE = re.compile(r"\b20\d\d-\d\d-\d\d\b|\b(?:January|February|March|April|May|June|July|August|September|October|November|December) 20\d\d\b")
MACHINE = re.compile(r"\b(?:EPYC|Xeon|Core i\d|each machine|(?:machine|that) of \[)")
MARK = re.compile(r"^ *<!-- not measured: ([^>]*?) -->", re.M)
EVIDENCE = re.compile(r"\]\(|`|\w: \w+_\w|\w/[\w/.*]+\.\w|\b\w+\.[ch]\b|\b[a-z]+(?:_[a-z]+){2,}|\bsame tests?\b")
NOT_MEASURED = {
    "layout": "numbers, offsets and sizes of a format",
    "design": "constants of a design, and what an analysis says",
    "versions": "versions of what is used",
    "evidence": "each row that has a figure has a link, a test or a file that shows it",
}


def blocks(text):
    """(line, heading level or 0, text) of each heading, paragraph, list item and table. Fenced code is a block that begins with its fence."""
    text = GENERATED.sub(lambda m: "\n" * m.group().count("\n"), text)
    gathered, begin, fence = [], 0, ""
    for number, line in enumerate([*text.splitlines(), ""], 1):
        stripped = line.strip()
        if fence:
            gathered.append(line)
            if stripped == fence or number > text.count("\n") + 1:
                yield begin, 0, "\n".join(gathered)
                gathered, fence = [], ""
            continue
        heading = re.match(r"(#+) ", line)
        item = re.match(r" *(?:[-*]|\d+\.) ", line)
        turns = gathered and stripped.startswith("|") != gathered[-1].strip().startswith("|")
        if gathered and (not stripped or heading or item or turns or stripped.startswith(FENCES)):
            yield begin, 0, "\n".join(gathered)
            gathered = []
        if stripped.startswith(FENCES):
            gathered, begin, fence = [line], number, stripped[:3]
        elif heading:
            yield number, len(heading.group(1)), line
        elif stripped:
            begin = begin if gathered else number
            gathered.append(line)


def is_table(block):
    return block.lstrip().startswith("|")


def is_code(block):
    return block.lstrip().startswith(FENCES)


def has_figure(block):
    if is_code(block):
        return False
    if FIGURE.search(block):
        return True
    if not is_table(block):
        return False
    cells = [cell.strip() for row in block.splitlines()[2:] for cell in ASIDE.sub("", row).strip().strip("|").split("|")]
    return sum(bool(NUMBER.match(cell)) for cell in cells) >= 3


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


def of_table(before, block, near, around):
    """What a table of figures lacks. `near`: the blocks of its section before it; `around`: those whose words hold for it."""
    kind = MARK.search(before)
    if kind:
        if kind.group(1) not in NOT_MEASURED:
            yield f"there is no kind '{kind.group(1)}' of tables that are not measured; there are: {', '.join(NOT_MEASURED)}"
        elif kind.group(1) == "evidence":
            bare = [row for row in block.splitlines()[2:] if re.search(r"\d", ASIDE.sub("", row)) and not EVIDENCE.search(row)]
            if bare:
                yield f"a row has no evidence: {bare[0][:60]}"
        elif FIGURE.search(block):
            yield f"the table is called not measured, and has {FIGURE.search(block).group()}"
        return
    for what, pattern, texts in (("command", COMMAND, near), ("date", DATE, around), ("machine", MACHINE, around)):
        if not any(pattern.search(text) for text in (*texts, block)):
            yield f"no {what} is named for the figures of this table"


def faults(text, has, is_measured=True):
    """(line, what is wrong) of a document. `has` says whether a word is a commit."""
    spoken = {}  # level of a section around this place: what its blocks before its first part say
    level, before = 0, ""
    for line, heading, block in blocks(text):
        if heading:
            spoken = {depth: said for depth, said in spoken.items() if depth < heading}
            level = heading
        for word in CLAIMED.findall(block):
            if not has(word):
                yield line, f"{word} is no commit"
        near = spoken.setdefault(level, [])
        is_figure = not heading and has_figure(block)
        tested = TEST.search(block) or is_table(block) and (TEST.search(before) or COMPUTED.search(before))
        around = [one for said in spoken.values() for one in said]
        if is_figure and is_table(block) and not (tested and not MARK.search(before)):
            for what in of_table(before, block, near, around):
                yield line, what
        elif MARK.search(before):
            yield line, "the line above calls a table not measured, and this is no table of figures"
        if is_figure and not tested and not MARK.search(before) and (is_measured or is_table(block)):
            if not any(has(word) for one in (*around, block) for word in COMMIT.findall(one)):
                first = FIGURE.search(block)
                yield line, f"no commit is named for {first.group() if first else 'the figures of this table'}"
        near.append(block)
        before = block


def unusable(root, text):
    """(line, what is wrong) of the scripts that a document names."""
    for named in SCRIPT.finditer(text):
        path, line = root / named[1], text.count("\n", 0, named.start()) + 1
        if not path.exists():
            yield line, f"there is no {named[1]}"
        elif path.read_text().startswith("#!") and not os.access(path, os.X_OK):
            yield line, f"{named[1]} is not executable"


def check(root):
    """Faults, and how many tables of figures are measured, and are not."""
    history, found, counts = History(root), [], [0, 0]
    measured = {path for pattern in MEASURED for path in root.glob(pattern)}
    for document in sorted({path for pattern in DOCUMENTS for path in root.glob(pattern)}):
        text = document.read_text()
        for line, what in (*faults(text, history.has, document in measured), *unusable(root, text)):
            found.append(f"{document.relative_to(root)}:{line}: {what}")
        tables = sum(is_table(block) and has_figure(block) for _, _, block in blocks(text))
        marked = len(MARK.findall(text))
        counts = [counts[0] + tables - marked, counts[1] + marked]
    return found, counts


def self_test():
    def of(text, is_measured=True):
        return [what for _, what in faults(text, lambda word: word in ("abc1234", "1234567"), is_measured)]

    table = "| a | b | c |\n|---|---|---|\n| 1 | 2.5 | 3 |\n"
    made = "By `make bench` at abc1234 on 2026-11-29, on a Xeon"
    for good in ("A page is 64 KiB.", "It took 5 ns at abc1234.", f"{made}:\n\n" + table, "# A\nAt abc1234.\n\n## B\n5 ns\n", "5 ns (test `x`)",
                 "Compared by `ctest -R x`:\n\n" + table, "```\n5 ns\n```", "| a |\n|---|\n| 1 |", "- at abc1234\n- 5 ns", "x-5 ns, v1.5 ns",
                 "At 1234567 it took 1.5 s.", "Below `20 µs`.", "The table is computed.\n\n" + table, "<!-- generated: x -->\n\n" + table + "\n<!-- end of generated -->\n",
                 f"# A\n{made}.\n## B\nBy `x.py`:\n\n" + table, "At abc1234 in May 2026, on the machine of [the notes](x.md):\n\n    quarry bench\n\n" + table,
                 f"<!-- not measured: layout -->\n\n{table}", "<!-- not measured: evidence -->\n\n| a | b |\n|---|---|\n| 5 ns | [x](y) |\n| 7 ns | `t` |\n", "| `1` | `2` | `3` |\n|---|---|---|\n| `1` | `2` | [x](3) |\n"):
        assert not of(good), (good, of(good))
    for bad in ("It took 5 ns.", "It took 1,200 instructions.", "At fce3f55 it took 5 ns.", "# A\n## B\nAt abc1234.\n## C\n5 ns\n",
                "5 ns, then abc1234x", "See test `x`.\n\nIt took 5 ns.", "5 **faults** and 6 page faults", "1.5 s", "5 ns\n\nAt abc1234.",
                "With commit fce3f55 of abc1234.", f"{made}:\n\n".replace("make bench", "x") + table, made.replace("2026-11-29", "a day") + ":\n\n" + table,
                made.replace("Xeon", "thing") + ":\n\n" + table, made.replace("abc1234", "") + ":\n\n" + table, f"# A\n{made}.\n## B\nHere:\n\n" + table,
                f"<!-- not measured: toy -->\n\n{table}", "<!-- not measured: layout -->\n\n" + table.replace("2.5", "2.5 ns"),
                f"<!-- not measured: evidence -->\n\n{table}", "<!-- not measured: layout -->\n\nText.", "<!-- not measured: layout -->\n\n| a |\n|---|\n| 1 |\n"):
        assert len(of(bad)) == 1, (bad, of(bad))
    for cells in ("| 1.05 of x | cmake 1.02 | y 1.5 |", "| a 5 MiB | b 6 KiB | 7 GiB |", "| 34: 27 heap | 2 of 3 | **8** |"):
        assert len(of(f"| a | b | c |\n|---|---|---|\n{cells}\n", False)) == 4, cells
    assert not of("It took 5 ns.", False)
    with tempfile.TemporaryDirectory() as folder:
        # No repository: nothing can be asked. A table that is planted in a document of any folder is found.
        root = pathlib.Path(folder)
        assert History(root).has("abc1234")
        for name in ("README.md", "docs/a.md", "docs/deep/b.md"):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(f"# A\n{made}.\n\n" + table)
        assert check(root) == ([], [3, 0]), check(root)
        script = root / "bench/x.py"
        script.parent.mkdir()
        script.write_text("#!/bin/true\n")
        (root / "docs/a.md").write_text("By `bench/x.py -n 3`:\n\n    bench/x.py\n\nNot `bench/*.py`.\n")
        assert [one.split(": ")[0] for one in check(root)[0]] == ["docs/a.md:1", "docs/a.md:3"], check(root)
        script.chmod(0o755)
        assert check(root)[0] == [], check(root)
        script.unlink()
        assert check(root)[0][0] == "docs/a.md:1: there is no bench/x.py", check(root)
        (root / "docs/a.md").write_text(f"# A\n{made}. The command was not kept.\n\n".replace("make bench", "x") + table)
        assert len(check(root)[0]) == 1, check(root)
        for name in ("README.md", "docs/a.md", "docs/deep/b.md"):
            (root / name).write_text(f"# A\n{made}.\n\n{table}\n## B\n\nA planted one:\n\n{table}")
        assert [line.split(": ")[0] for line in check(root)[0]] == ["README.md:12", "docs/a.md:12", "docs/deep/b.md:12"], check(root)
    print("check_figures: each rule can fail")


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    found, (measured, not_measured) = check(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
    print("\n".join(found) or f"check_figures: {measured} tables of figures have command, date and machine, {not_measured} say that they are not measured")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
