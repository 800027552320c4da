#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Check that public headers define no macro in their users' namespace.

  check_macros.py [ROOT]       exit 1 and one line for each macro that has no prefix
  check_macros.py --self-test  prove that the rule can fail

Each header of include/quarry is preprocessed alone, as C11, C17 and C++17 (.hpp: C++17), by $CC and $CXX (gcc, g++).
Every macro that it then has from a public header begins with QUARRY_ or quarry_. Two headers give short names to a
program that asks for them: scope.h and short.h. Macros of system headers do not count.

The rule is checked with -dD, which is -dM with the place of each definition.
"""
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

SHORT = {"scope.h", "short.h"}
C, CXX = ("-x", "c"), ("-x", "c++")
STANDARDS = {".h": [(C, "c11"), (C, "c17"), (CXX, "c++17")], ".hpp": [(CXX, "c++17")]}
MARK = re.compile(r'# \d+ "([^"]*)"')
DEFINE = re.compile(r"#define (\w+)")


def preprocessed(root, header, language, standard):
    compiler = os.environ.get("CC", "gcc") if language == C else os.environ.get("CXX", "g++")
    command = [*shlex.split(compiler), *language, f"-std={standard}", "-I", str(root / "include"), "-dD", "-E", "-"]
    done = subprocess.run(command, input=f"#include <quarry/{header.name}>\n", capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{header.name}: {done.stderr.strip()}")
    return done.stdout


def foreign(text, folder):
    """(header, macro) of each definition in `folder` that has no prefix."""
    file = None
    for line in text.splitlines():
        mark = MARK.match(line)
        if mark:
            file = pathlib.Path(mark.group(1))
        define = DEFINE.match(line)
        if define and file and file.parent == folder and not define.group(1).startswith(("QUARRY_", "quarry_")):
            yield file.name, define.group(1)


def check(root):
    folder, problems = root / "include" / "quarry", []
    headers = sorted(h for h in folder.iterdir() if h.suffix in STANDARDS)
    for header in headers:
        if header.name in SHORT:
            continue
        found = {pair for language, standard in STANDARDS[header.suffix] for pair in foreign(preprocessed(root, header, language, standard), folder)}
        problems += [f"include/quarry/{header.name}: gives a program the macro {macro}, which {where} defines" for where, macro in sorted(found)]
    return problems, len(headers)


def self_test():
    with tempfile.TemporaryDirectory() as directory:
        root = pathlib.Path(directory)
        (root / "include/quarry").mkdir(parents=True)

        def write(name, text):
            (root / "include/quarry" / name).write_text(text)

        write("scope.h", "#define t_new 1\n")
        write("a.h", "#include <stddef.h>\n#ifndef QUARRY_A_H\n#define QUARRY_A_H\n#define quarry_b(x) x\n#endif\n")
        assert check(root) == ([], 2), check(root)
        for name, text, macro in (("b.h", "#ifndef B_H\n#define B_H\n#endif\n", "B_H"), ("b.h", "#include <quarry/scope.h>\n", "t_new"),
                                  ("b.h", "#if __STDC_VERSION__ == 201710L\n#define LATE\n#endif\n", "LATE"),
                                  ("b.hpp", "#ifdef __cplusplus\n#define fresh new\n#endif\n", "fresh"), ("b.h", "#define p_new(a) a\n", "p_new")):
            write(name, text)
            problems, _ = check(root)
            assert len(problems) == 1 and f"macro {macro}," in problems[0], (text, problems)
            (root / "include/quarry" / name).unlink()
    print("self-test: macros without a prefix were found out")


def main():
    if "--self-test" in sys.argv:
        return self_test()
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1]).resolve()
    problems, headers = check(root)
    print("\n".join(problems) or f"macros: {headers} headers, clean")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
