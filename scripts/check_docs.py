#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Check that the documents speak of what exists.

  check_docs.py [ROOT]       exit 1 and one line for each dead path
  check_docs.py --self-test  prove that each rule can fail

Rules: paths in backticks and relative links, in README.md and its neighbours, docs/, src/README.md, tests/README.md and those of
the crates, exist, and so do the headings that a link leads to; src/README.md names every source file of src/; the names of tests and functions in
the tables of docs/behaviours.md occur in the sources, and its paths without backticks exist; a name in backticks that begins with
quarry_ occurs there, too, but for CHANGELOG.md, which has what is gone; the version in the Rust workspace is the one in
CMakeLists.txt; each command of the tool names a verb and options that it has.
"""
import pathlib
import re
import sys
import tempfile

import docs_commands

DOCUMENTS = ("*.md", "src/README.md", "tests/README.md", "bench/**/README.md", "docs/**/*.md", "tools/crates/*/README.md")
SUFFIXES = (".md", ".c", ".h", ".def", ".cc", ".cpp", ".hpp", ".py", ".sh", ".txt", ".json", ".cmake", ".rs", ".toml", ".sql")
# Made by a build or by the reader, so not in the tree.
GENERATED = re.compile(r"build[-\w]*/.*|build[-\w]*|target/.*")
BEHAVIOURS = "docs/behaviours.md"
# Where its names are looked for.
SOURCES = ("src", "include", "tests", "bench", "tools", "examples", "scripts", "cmake")
# Where a path may start from, besides the document's own folder.
BASES = ("", "src", "include", "include/quarry", "tests", "docs", "tools")


def is_path(word, root):
    """Is this backticked word meant as a path of the tree?"""
    if not re.fullmatch(r"[\w.+-]+(/[\w.+-]*)*", word) or word.startswith(("-", ".")) and "/" not in word:
        return False
    if GENERATED.fullmatch(word):
        return False
    first = word.split("/")[0]
    return word.endswith(SUFFIXES) or ("/" in word and (root / first).is_dir())


def exists(word, document, root, names):
    if "/" not in word and word in names:
        return True  # a file of that name, in the folder the text speaks of
    return any((base / word).exists() for base in [document.parent, *(root / b for b in BASES)])


def anchors(text):
    """The names of a document's headings, as hosts of repositories make them: small, without punctuation, with hyphens for spaces."""
    names = {}
    for heading in re.findall(r"^#+ +(.*?) *#*$", without_code(text), re.M):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        names[name] = names.get(name, 0) + 1
    return {name if i == 0 else f"{name}-{i}" for name, count in names.items() for i in range(count)}


def without_code(text):
    """The text with fenced blocks emptied: they hold commands and output, not references."""
    return re.sub(r"^(```|~~~).*?^\1", lambda m: "\n" * m.group().count("\n"), text, flags=re.M | re.S)


def tree_names(root):
    skipped = {".git", "target", "build"}
    return {p.name for p in root.rglob("*") if not skipped & set(p.relative_to(root).parts)}


def check_version(root):
    cargo, cmake = root / "tools/Cargo.toml", root / "CMakeLists.txt"
    if not (cargo.exists() and cmake.exists()):
        return []
    ours = re.search(r"project\(quarry VERSION ([\d.]+)", cmake.read_text()).group(1)
    theirs = re.search(r'^version = "([^"]+)"', cargo.read_text(), re.M)
    if theirs and theirs.group(1) != ours:
        return [f"tools/Cargo.toml: version {theirs.group(1)}, but CMakeLists.txt says {ours}"]
    return []


def words_of_sources(root):
    """All words of the sources, and the names of tests, which CMake makes of the file's name: tests/pool/test_x.c is pool_x."""
    words = set()
    for folder in SOURCES:
        for path in (root / folder).rglob("*"):
            if path.suffix not in SUFFIXES or {"target", "build", "__pycache__"} & set(path.relative_to(root).parts):
                continue
            words |= set(re.findall(r"\w+", path.read_text(errors="replace"))) | {path.stem}
            if folder == "tests" and path.stem.startswith("test_"):
                words.add(f"{path.parent.name}_{path.stem[5:]}")
    return words


def check_behaviours(root, words):
    document = root / BEHAVIOURS
    if not document.exists():
        return []
    problems = []
    for number, line in enumerate(document.read_text().splitlines(), 1):
        line = re.sub(r"<!--.*?-->", "", line)
        if not line.startswith("|"):
            continue
        for name in re.findall(r"(?<![\w./-])[a-z]\w*_\w+(?![\w./*…-])", line):
            if name not in words:
                problems.append(f"{BEHAVIOURS}:{number}: {name} is in no source")
        for path in re.findall(r"(?<![\w./`-])(?:src|include|tests|bench|tools|docs|scripts|examples)/[\w./+-]*\.[a-z]+\b", line):
            if not (root / path).exists():
                problems.append(f"{BEHAVIOURS}:{number}: {path} does not exist")
    return problems


def check(root):
    problems, known = check_version(root), docs_commands.verbs(root)
    names, words = tree_names(root), words_of_sources(root)
    for document in sorted({d for pattern in DOCUMENTS for d in root.glob(pattern)}):
        name = document.relative_to(root).as_posix()
        problems += [f"{name}:{number}: {fault}" for number, fault in docs_commands.faults(document.read_text(), known)]
        for number, line in enumerate(without_code(document.read_text()).splitlines(), 1):
            for word in re.findall(r"`([^`]+)`", line):
                word = re.sub(r":\d+$", "", word)
                if is_path(word, root) and not exists(word, document, root, names):
                    problems.append(f"{name}:{number}: `{word}` does not exist")
            for word in re.findall(r"`(quarry_\w+)`", line) if name != "CHANGELOG.md" else ():
                # Counters of OpenMetrics end so.
                if word.removesuffix("_total") not in words:
                    problems.append(f"{name}:{number}: {word} is in no source")
            for link in re.findall(r"\]\(([^)\s]+)\)", line):
                target = link.split("#")[0]
                if target and "://" not in target and not (document.parent / target).exists():
                    problems.append(f"{name}:{number}: link to {link} leads nowhere")
                elif "#" in link and "://" not in link and (path := document.parent / target if target else document).suffix == ".md":
                    if link.split("#")[1] not in anchors(path.read_text()):
                        problems.append(f"{name}:{number}: link to {link}: no such heading")
    problems += check_behaviours(root, words)
    readme = root / "src/README.md"
    if readme.exists():
        named = set(re.findall(r"[\w.]+/?", readme.read_text()))
        for path in sorted((root / "src").rglob("*")):
            if path.suffix in (".c", ".h", ".def", ".S") and path.name not in named:
                problems.append(f"src/README.md: {path.relative_to(root).as_posix()} has no line")
    return problems


def self_test():
    with tempfile.TemporaryDirectory() as directory:
        root = pathlib.Path(directory)

        def write(name, text):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)

        write("src/base/num.h", "int quarry_there;\n")
        write("src/README.md", "# One, two: `it`\nnum.h\n")
        write("tools/Cargo.toml", 'version = "1.2.3"\n')
        write("CMakeLists.txt", "project(quarry VERSION 1.2.3 X)\n")
        good = "`src/base/num.h` `base/num.h` `num.h` `malloc/free` `build/lib` `-o x.c` `quarry_there_total` [a](src/README.md#one-two-it) [b](https://x/y#z) [c](#own)\n"
        write("README.md", "# Own\n" + good + "```\n`src/gone.c`\n```\n")
        assert check(root) == [], check(root)
        for text in ("`src/gone.c`", "`gone.h`", "`src/heap/`", "`base/gone.h:12`", "`quarry_gone`", "[a](gone.md)", "[a](#gone)", "[a](../README.md#gone)"):
            write("docs/x.md", "\n" + text + "\n")
            found = check(root)
            assert len(found) == 1 and found[0].startswith("docs/x.md:2: "), (text, found)
        write("docs/x.md", "")
        write("src/base/new.h", "")
        assert check(root) == ["src/README.md: src/base/new.h has no line"], check(root)
        (root / "src/base/new.h").unlink()
        write("tests/pool/test_x.c", "TEST(grows_and_shrinks) {}")
        write(BEHAVIOURS, "| a | pool_x: grows_and_shrinks, tests/pool/test_x.c <!-- no_name --> |\n")
        assert check(root) == [], check(root)
        for text in ("pool_y", "pool_x: grows_only", "tests/pool/test_y.c --with x"):
            write(BEHAVIOURS, f"\n| a | {text} |\n")
            found = check(root)
            assert len(found) == 1 and found[0].startswith(f"{BEHAVIOURS}:2: "), (text, found)
        write(BEHAVIOURS, "")
        write("CMakeLists.txt", "project(quarry VERSION 1.2.4 X)\n")
        assert "version" in check(root)[0]
    docs_commands.self_test(pathlib.Path(__file__).parents[1])
    print("self-test: dead paths and names, unnamed files, a second version and unknown options were found out")


def main():
    if "--self-test" in sys.argv:
        return self_test()
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1])
    problems = check(root)
    print("\n".join(problems) or "documents: clean")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
