#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Check that files stay below 800 lines, C functions below 80, and lines of C within 120 columns.

  check_sizes.py [ROOT]       exit 1 and one line for each that is longer
  check_sizes.py --self-test  prove that both limits can fail

A function is what lies between a line that starts in column 0 and ends with "{" and the next "}" in
column 0, which is exact for formatted code. A line of C has at most one function.
"""
import pathlib
import re
import sys
import tempfile

FILE_LINES = 800
FUNCTION_LINES = 80
COLUMNS = 120
FOLDERS = ("src", "include", "tests", "bench", "examples", "bindings", "tools", "scripts")
SUFFIXES = {".c", ".h", ".cc", ".cpp", ".hpp", ".rs", ".py", ".sh"}
SKIPPED = {"target", "__pycache__"}  # what cargo and python leave behind

# "path" or "path:function": reason
ALLOWED = {}
# Files with lines that cannot be broken, and how many: reason
WIDE = {}
# The end of a function, and another one behind it.
TWO_FUNCTIONS = re.compile(r"^[A-Za-z_].*\)\s*\{.*\}\s*[A-Za-z_][\w\s*]*\w\s*\([^;]*\)\s*\{")


def functions(lines):
    """(name, first line, length) of each function."""
    start = None
    for number, line in enumerate(lines, 1):
        if start is None and re.match(r"[A-Za-z_].*\)[^;]*\{$", line) and "=" not in line.split("(")[0]:
            start = (re.search(r"(\w+)\s*\(", re.sub(r"__attribute__\s*\(\(.*?\)\)", "", line)), number)
        elif start and line.startswith("}"):
            yield start[0].group(1) if start[0] else "?", start[1], number - start[1] + 1
            start = None


def wide(file, lines):
    """Lines that are too wide, unless there are as many as is allowed."""
    found = [f"{file}:{number}: {len(line)} columns, at most {COLUMNS}" for number, line in enumerate(lines, 1) if len(line) > COLUMNS]
    allowed = WIDE.get(file, (0, ""))[0]
    if len(found) < allowed:
        return [f"scripts/check_sizes.py: {file} has {len(found)} wide lines, not {allowed}"]
    return found if len(found) > allowed else []


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
            problems += wide(file, lines)
            problems += [f"{file}:{n}: two functions on one line" for n, line in enumerate(lines, 1) if TWO_FUNCTIONS.match(line)]
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
        WIDE.clear()

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
        line = "int " + "x" * (COLUMNS - 5) + ";"
        assert problems(line + "\n") == []
        assert problems("\n" + line + " \n") == ["src/x.c:2: 121 columns, at most 120"]
        WIDE["src/x.c"] = (1, "for the test")
        assert problems(line + " \n") == []
        assert len(problems(line + " \n" + line + " \n")) == 2
        assert "not 1" in problems("int x;\n")[0]
        WIDE.clear()
        assert problems("int f(void) { return 1; }\nint g(int a) { return a; }\nstruct s { int (*f)(void); } h(void) { }\n") == []
        assert problems("int f(void) { return 1; } static int *g(int a) { return &a; }\n") == ["src/x.c:1: two functions on one line"]
    print("self-test: long files, functions and lines were found out")


def main():
    if "--self-test" in sys.argv:
        return self_test()
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1])
    problems = check(root)
    print("\n".join(problems) or "sizes: clean")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
