#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Check that files stay below 800 lines and C functions below 80.

  check_sizes.py [ROOT]       exit 1 and one line for each that is longer
  check_sizes.py --self-test  prove that both limits can fail

A function is what lies between a line that starts in column 0 and ends with "{" and the next "}" in
column 0, which is exact for formatted code.
"""
import pathlib
import re
import sys
import tempfile

FILE_LINES = 800
FUNCTION_LINES = 80
FOLDERS = ("src", "include", "tests", "bench", "examples", "bindings", "tools", "scripts")
SUFFIXES = {".c", ".h", ".cc", ".cpp", ".hpp", ".rs", ".py", ".sh"}
SKIPPED = {"target", "__pycache__"}  # what cargo and python leave behind

# "path" or "path:function": reason
ALLOWED = {}


def functions(lines):
    """(name, first line, length) of each function."""
    start = None
    for number, line in enumerate(lines, 1):
        if start is None and re.match(r"[A-Za-z_].*\)[^;]*\{$", line) and "=" not in line.split("(")[0]:
            start = (re.search(r"(\w+)\s*\(", re.sub(r"__attribute__\s*\(\(.*?\)\)", "", line)), number)
        elif start and line.startswith("}"):
            yield start[0].group(1) if start[0] else "?", start[1], number - start[1] + 1
            start = None


def check(root):
    problems, used = [], set()
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            file = path.relative_to(root).as_posix()
            if path.suffix not in SUFFIXES or SKIPPED & set(path.parts) or not path.is_file():
                continue
            lines = path.read_text().splitlines()
            if len(lines) > FILE_LINES:
                if file in ALLOWED:
                    used.add(file)
                else:
                    problems.append(f"{file}: {len(lines)} lines, at most {FILE_LINES}: split it by idea")
            if path.suffix in {".rs", ".py", ".sh"}:
                continue
            for name, number, length in functions(lines):
                if length > FUNCTION_LINES:
                    if f"{file}:{name}" in ALLOWED:
                        used.add(f"{file}:{name}")
                    else:
                        problems.append(f"{file}:{number}: {name} has {length} lines, at most {FUNCTION_LINES}")
    problems += [f"scripts/check_sizes.py: {entry} is no longer too long" for entry in ALLOWED.keys() - used]
    return problems


def self_test():
    with tempfile.TemporaryDirectory() as directory:
        root = pathlib.Path(directory)
        (root / "src").mkdir()
        file = root / "src" / "x.c"
        ALLOWED.clear()

        def problems(text):
            file.write_text(text)
            return check(root)

        body = "    x++;\n"
        assert problems("int x;\n" * FILE_LINES) == []
        assert "801 lines" in problems("int x;\n" * (FILE_LINES + 1))[0]
        assert problems("static void f(int x) {\n" + body * (FUNCTION_LINES - 2) + "}\n") == []
        for head in ("static void f(int x) {\n", "__attribute__((cold, noinline)) void f(int x) {\n"):
            found = problems("int a;\n" + head + body * (FUNCTION_LINES - 1) + "}\n")
            assert found == ["src/x.c:2: f has 81 lines, at most 80"], found
        assert problems("int table[] = {\n" + "    1,\n" * 100 + "};\n") == []
    print("self-test: long files and functions were found out")


def main():
    if "--self-test" in sys.argv:
        return self_test()
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1])
    problems = check(root)
    print("\n".join(problems) or "sizes: clean")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
