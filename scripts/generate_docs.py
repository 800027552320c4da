#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Fill the parts of documents that repeat what a source says: tables of options, of verbs, of instructions and of samples, and numbers in sentences.

  generate_docs.py [--tool FILE]          write them anew
  generate_docs.py --check [--tool FILE]  exit 1 and one line for each that differs
  generate_docs.py --self-test            prove that a change of a source is seen in every place

A part stands between two comments, <!-- generated: NAME --> and <!-- end of generated -->. Its text is of the maker NAME below.
The parts that the tool prints (TOOL_PARTS) are left as they are without --tool: a test of the tool gives it, `rules` does not.
The pictures of the suite and the pages of verbs are whole files. With --tool the definition that the pages are made of is written anew, too.
"""
import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import docs_advice
import docs_check
import docs_numbers
import docs_reference
import docs_samples
import man_pages

ROOT = pathlib.Path(__file__).resolve().parents[1]
DOCUMENTS = ("*.md", "docs/**/*.md")
PART = re.compile(r"(<!-- generated: ([^>]+) -->\n)(.*?)(<!-- end of generated -->)", re.S)
TOOL_PARTS = ("targets",)

# What is counted, and the names of its rows in bench/fastpath/expected.json.
HEAP = {"malloc 32": "malloc 32", "malloc 1000": "malloc 1000", "malloc 4000": "malloc 4000", "malloc 40000": "malloc 40000",
        "free 32": "free 32", "free 1000": "free 1000", "free 4000": "free 4000", "free 40000": "free 40000",
        "calloc 64": "calloc 64, with memset's", "operator new 32": "operator new 32", "operator delete 32": "operator delete 32",
        "sized delete 32": "operator delete 32, with a size", "realloc in place": "realloc in place",
        "realloc that moves": "realloc that moves 96 and 384 bytes in turns, with the copying", "malloc_usable_size": "malloc_usable_size"}


def options(root):
    rows = ["| option | default | what it does |", "|---|---|---|"]
    for name, kind, default, text in man_pages.OPTION.findall((root / "src/rt/opts.def").read_text()):
        value = {"bool": "on" if default == "1" else "off", "str": ""}.get(kind, default)
        rows.append(f"| `{name}` | {value} | {text} |")
    return "\n".join(rows)


def counted(value):
    return f"{value:.1f}".removesuffix(".0")


def instructions(root):
    """A call that is a jump into the library has no count of its own, only the one with what it calls."""
    document = json.loads((root / "bench/fastpath/expected.json").read_text())
    rows = ["| call | instructions | with slow calls in proportion |", "|---|---:|---:|"]
    for name, (alone, whole) in document["instructions"].items():
        if name in HEAP:
            rows.append(f"| {HEAP[name]} | {round(alone) if alone > 1 else ''} | {counted(whole)} |")
    return "\n".join(rows)


def instructions_of_pools(root):
    document = json.loads((root / "bench/fastpath/expected.json").read_text())
    rows = ["| operation | instructions | with slow calls in proportion |", "|---|---:|---:|"]
    for name, (alone, whole) in document["instructions"].items():
        if name not in HEAP:
            rows.append(f"| {name} | {round(alone) if alone == whole or alone > 10 else ''} | {counted(whole)} |")
    return "\n".join(rows)


def start(root):
    document = json.loads((root / "bench/fastpath/start.json").read_text())
    words = {"nothing": "does nothing", "block": "makes a block of 100 bytes"}
    rows = ["| a program that … | resident, KiB more | pages of the library, KiB | the process's own, KiB more | instructions ÷ without |",
            "|---|---:|---:|---:|---:|"]
    for case, figures in document["figures"].items():
        rows.append(f"| {words[case]} | {figures['resident KiB']} | {figures['library KiB']} | {figures['own KiB']} | {figures['instructions']:.2f} |")
    return "\n".join(rows)


def targets(root, tool):
    """The first table that the tool prints, with the names of the mallocs."""
    samples = [f"--add={root / docs_samples.SAMPLES / name}.json.zst" for name in ("targets", *docs_samples.SUITE)]
    printed = subprocess.run([tool, "bench", "suite", "--targets", "-n", "0", *samples], cwd=root, check=True,
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    table = re.search(r"^\| target .*\n(?:\|.*\n)+", printed, re.M).group().rstrip().splitlines()
    mallocs, _ = docs_samples.suite(root)
    known = {malloc: docs_samples.display(malloc, mallocs) for malloc in mallocs if malloc != docs_samples.OURS}
    table[0] = "|".join(f" {known.get(cell.strip(), cell.strip())} " if cell else cell for cell in table[0].split("|"))
    counts = [sum(f"| {word}" in line for line in table) for word in ("met", "within noise", "missed")]
    return "\n".join([*table, "", "Of {} targets {} are met, {} are within noise, and {} are missed.".format(sum(counts), *counts)])


def part(name, root, tool):
    """The text of a part, or None if the tool is needed and not there."""
    makers = {"options": options, "instructions": instructions, "instructions of pools": instructions_of_pools, "suite": docs_samples.suite_table, "start": start,
              "predictions": docs_samples.predictions, "prices of check": docs_check.prices, "pairs of check": docs_check.pairs,
              "verbs": docs_reference.verbs, "options of every verb": docs_reference.everywhere,
              "formats": docs_reference.formats, "exit codes": docs_reference.exit_codes, "chapters": docs_reference.chapters,
              "memory for a turn": docs_advice.turns, "faults of a block": docs_advice.faults, "toy and mixed": docs_advice.toy, "languages": docs_advice.languages}
    if name in makers:
        return makers[name](root)
    for begin, maker in (("keys of ", docs_reference.keyboard), ("columns of ", docs_reference.columns)):
        if name.startswith(begin) and name in docs_reference.definition(root)["tables"]:
            return maker(root, name)
    if not name.startswith(TOOL_PARTS):
        raise SystemExit(f"generate_docs.py: nothing makes the part '{name}'")
    if tool is None:
        return None
    return targets(root, tool)


def filled(text, root, tool):
    def fill(found):
        made = part(found.group(2), root, tool)
        return found.group() if made is None else f"{found.group(1)}\n{made}\n\n{found.group(4)}"

    if text.count("<!-- generated: ") != len(PART.findall(text)):
        raise SystemExit("generate_docs.py: a part has no end")
    return PART.sub(fill, text)


def stale_pages(root, made):
    """Pages of verbs that are no more."""
    here = {path.relative_to(root).as_posix() for path in (root / docs_reference.FOLDER).glob("quarry-*.md")}
    return sorted(here - set(made))


def made_files(root, tool):
    """Name -> what the file should hold."""
    files = {}
    if tool:
        printed = subprocess.run([tool, "man", "--format", "json"], check=True, stdout=subprocess.PIPE, text=True).stdout
        if (root / docs_reference.DEFINITION).read_text() != printed:
            return {docs_reference.DEFINITION: printed}  # all else is made of it
    for document in sorted({path for pattern in DOCUMENTS for path in root.glob(pattern)}):
        text = document.read_text()
        if "<!-- generated: " in text:
            files[document.relative_to(root).as_posix()] = filled(text, root, tool)
    for name in sorted(docs_numbers.names()):
        files[name] = docs_numbers.filled(name, files.get(name) or (root / name).read_text(), root)
    return {**files, **docs_reference.pages(root), **docs_samples.pictures(root)}


def differing(root, tool):
    files = made_files(root, tool)
    return {name: text for name, text in files.items() if not (root / name).exists() or (root / name).read_text() != text}


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name in ("src/rt/opts.def", "bench/fastpath/expected.json", "bench/fastpath/start.json", docs_reference.DEFINITION, docs_samples.PREDICTIONS,
                     "examples/tour/04-fork.c", docs_advice.COUNTS, docs_advice.LANGUAGES, "bench/advice/measure.py", docs_check.PRICES, docs_check.PAIRS, *(
                f"{docs_samples.SAMPLES}/{name}.json.zst" for name in docs_samples.SUITE)):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, root / name)
        names = ("options", "instructions", "instructions of pools", "suite", "start", "predictions", "verbs", "options of every verb", "memory for a turn",
                 "faults of a block", "toy and mixed", "languages", "prices of check", "pairs of check", "formats", "exit codes", "chapters", *docs_reference.tables(ROOT))
        for name in docs_numbers.names() - {"README.md"}:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, root / name)
        for name, before in (("README.md", "t_scope;  // 0 instructions\n"), ("docs/deep/x.md", "Before.\n")):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(before + "".join(f"<!-- generated: {part} -->\nold\n<!-- end of generated -->\n" for part in names))
        changed = differing(root, None)
        pages = set(docs_reference.pages(root))
        assert set(changed) == {"README.md", "docs/deep/x.md", *pages, *docs_samples.PICTURES}, changed.keys()
        for name, text in changed.items():
            (root / name).write_text(text)
        assert differing(root, None) == {}
        # The text of one option: each place that shows it changes, and the manual page, which the build makes.
        table = root / "src/rt/opts.def"
        table.write_text(table.read_text().replace("give free memory back to the kernel", "give back what is free"))
        again = differing(root, None)
        assert set(again) == {"README.md", "docs/deep/x.md"} and all("give back what is free" in text for text in again.values())
        assert "give back what is free" in man_pages.options(table.read_text())
        # The help of a verb and of its options: its page, and the index where it stands there.
        for name, text in again.items():
            (root / name).write_text(text)
        verbs = root / docs_reference.DEFINITION
        before = verbs.read_text()
        verbs.write_text(before.replace("The process with this number", "Which process"))
        again = differing(root, None)
        assert "docs/reference/quarry-explain.md" in again and not set(again) - pages, again.keys()
        assert all("Which process" in text for text in again.values())
        verbs.write_text(before.replace("Say why a process has as much memory as it has", "Say why"))
        assert set(differing(root, None)) == {"README.md", "docs/deep/x.md", "docs/reference/quarry-explain.md"}
        # An exit code: the page, and the table of all.
        verbs.write_text(before.replace("1 when a process of -p has no statistics", "1 when it has none"))
        again = differing(root, None)
        assert set(again) == {"README.md", "docs/deep/x.md", "docs/reference/quarry-stats.md"}, again.keys()
        assert all("1 when it has none" in text for text in again.values())
        # A column and a key: of each table the last words of a row.
        for name, rows in docs_reference.definition(root)["tables"].items():
            known = json.loads(before)
            known["tables"][name][-1][-1] = f"other words for {name}"
            verbs.write_text(json.dumps(known))
            shown = differing(root, None)
            assert all(f"other words for {name}" in shown[document] for document in ("README.md", "docs/deep/x.md")), name
            assert rows
        # An ending, and a format that a verb makes.
        for old, new in (('"prom"', '"metrics"'), ('"name": "sarif"', '"name": "sarif2"')):
            verbs.write_text(before.replace(old, new))
            assert all(new.split('"')[-2] in differing(root, None)[name] for name in ("README.md", "docs/deep/x.md")), old
        verbs.write_text(before)
        (root / docs_reference.FOLDER / "quarry-none.md").write_text("gone")
        assert stale_pages(root, docs_reference.pages(root)) == ["docs/reference/quarry-none.md"]
        again = differing(root, None)
        # A count.
        for name, text in again.items():
            (root / name).write_text(text)
        counts = root / "bench/fastpath/expected.json"
        counts.write_text(counts.read_text().replace('"malloc 32": [20.0, 20.0]', '"malloc 32": [21.0, 21.0]'))
        again = differing(root, None)
        assert "| malloc 32 | 21 | 21 |" in again["README.md"] and "about 21 instructions" in again["include/quarry/malloc.h"]
        assert "fetch the next one. 21 instructions" in again["docs/design.md"]
        for text in ("<!-- generated: options -->\n", "<!-- generated: nothing -->\n<!-- end of generated -->\n"):
            try:
                filled(text, root, None)
            except SystemExit:
                continue
            raise AssertionError(text)
    print("generate_docs: a changed source is seen in every place")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("--tool", type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.self_test:
        return self_test()
    tool = arguments.tool and arguments.tool.resolve()
    found = differing(ROOT, tool)
    if not arguments.check:
        while found:  # twice, where the definition of the verbs changed
            for name, text in found.items():
                (ROOT / name).write_text(text)
                print(f"wrote {name}")
            found = differing(ROOT, tool)
        for name in stale_pages(ROOT, docs_reference.pages(ROOT)):
            (ROOT / name).unlink()
            print(f"removed {name}")
        return None
    stale = [] if docs_reference.DEFINITION in found else stale_pages(ROOT, docs_reference.pages(ROOT))
    for name in found:
        print(f"{name}: not what its sources say; run scripts/generate_docs.py --tool build/bin/quarry")
    for name in stale:
        print(f"{name}: there is no such verb; remove it")
    if not found and not stale:
        print("generate_docs: all parts are as their sources say")
    sys.exit(bool(found or stale))


if __name__ == "__main__":
    main()
