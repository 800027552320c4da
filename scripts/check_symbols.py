#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Check what the shared libraries need and what they export.

  check_symbols.py LIB_DIR           compare with tests/layers/symbols-*.txt; exit 1 on a difference
  check_symbols.py LIB_DIR --update  write the lists anew (then read the diff: it is the ABI)
  check_symbols.py --self-test       prove that each rule can fail

Rules: a library needs nothing but libc; it exports the names of its committed list, no more, no
less. A name that goes missing breaks programs; a name too many can capture a program's own.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

LISTS = pathlib.Path(__file__).parents[1] / "tests" / "layers"
LIBRARIES = ("libquarry", "libquarry-malloc", "libquarry-pow2", "libquarry-record", "libquarry-check")
NEEDED = re.compile(r"libc\.so\.6|libc\.so|ld-linux[-\w]*\.so\.\d")


def needed(library):
    text = subprocess.run(["readelf", "-dW", library], check=True, capture_output=True, text=True).stdout
    return re.findall(r"\(NEEDED\).*\[(.*)\]", text)


def exported(library):
    text = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    return sorted({line.split()[-1].split("@")[0] for line in text.splitlines()})


def check(library, listed_in):
    name = library.name
    problems = [f"{name}: needs {n}; only libc is allowed" for n in needed(library) if not NEEDED.fullmatch(n)]
    if not listed_in.exists():
        hint = "scripts/check_symbols.py build/lib --update"
        return problems + [f"{name}: no list {listed_in.name} of its exported names; make it with {hint}"]
    listed, found = set(listed_in.read_text().split()), set(exported(library))
    problems += [f"{name}: exports {s}, which is not in {listed_in.name}" for s in sorted(found - listed)]
    problems += [f"{name}: no longer exports {s}" for s in sorted(listed - found)]
    return problems


def self_test():
    with tempfile.TemporaryDirectory() as directory:
        root = pathlib.Path(directory)
        (root / "x.c").write_text("double sin(double);\nint a(void) { return 1; }\n"
                                  "double b(double x) { return sin(x); }\n")
        build = ["-shared", "-fPIC", "-nostartfiles", "-o", root / "x.so", root / "x.c", "-Wl,--no-as-needed", "-lm"]
        subprocess.run([os.environ.get("CC", "cc"), *build], check=True)
        names = root / "names.txt"
        found = check(root / "x.so", names)
        assert len(found) == 2 and "needs libm" in found[0] and "--update" in found[1], found
        names.write_text("a\nb\n")
        assert len(check(root / "x.so", names)) == 1
        names.write_text("a\nc\n")
        found = check(root / "x.so", names)
        assert "exports b" in found[1] and "no longer exports c" in found[2], found
    print("self-test: a library, a name too many and a lost name were found out")


def main():
    if "--self-test" in sys.argv:
        return self_test()
    paths = [a for a in sys.argv[1:] if not a.startswith("-")]
    if len(paths) != 1:
        sys.exit(__doc__)
    problems = []
    for stem in LIBRARIES:
        library = pathlib.Path(paths[0]) / f"{stem}.so"
        listed_in = LISTS / f"symbols-{stem.removeprefix('lib')}.txt"
        if "--update" in sys.argv:
            listed_in.write_text("\n".join(exported(library)) + "\n")
        problems += check(library, listed_in)
    print("\n".join(problems) or "symbols: as listed")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
