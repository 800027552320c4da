#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Check that each shared library has little static thread-local storage.

  check_tls.py LIB_DIR       exit 1 if a library needs more than MOST bytes
  check_tls.py --self-test   prove that the rule can fail

A library that is opened late gets its share of a reserve, which in glibc is 1,664 bytes for all of them together. Under LD_AUDIT even
a preloaded one is late. What does not fit is not loaded: "cannot allocate memory in static TLS block".
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

MOST = 128
LIBRARIES = ("libquarry", "libquarry-malloc", "libquarry-pow2", "libquarry-record")


def static_tls(library):
    """Bytes of the library's TLS segment, with what its alignment may cost; 0 if it has none."""
    text = subprocess.run(["readelf", "-lW", library], check=True, capture_output=True, text=True).stdout
    for line in text.splitlines():
        found = re.match(r"\s*TLS(?:\s+0x[0-9a-f]+){4}\s+(0x[0-9a-f]+)\s+\w+\s+(0x[0-9a-f]+)", line)
        if found:
            size, alignment = (int(n, 16) for n in found.groups())
            return -size // alignment * -alignment
    return 0


def check(library):
    size = static_tls(library)
    return [f"{library.name}: {size} bytes of static thread-local storage; at most {MOST} are allowed"] if size > MOST else []


def self_test():
    with tempfile.TemporaryDirectory() as directory:
        root = pathlib.Path(directory)
        for size, problems in ((0, 0), (MOST, 0), (MOST + 1, 1), (3000, 1)):
            source, library = root / "x.c", root / f"x{size}.so"
            variable = f"__thread char x[{size}] = {{1}};\nchar *address(void) {{ return x; }}\n" if size else "int x;\n"
            source.write_text(variable)
            subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-nostdlib", "-o", library, source], check=True)
            found = check(library)
            assert len(found) == problems, (size, found)
            assert bool(static_tls(library)) == bool(size), size
    print("self-test: a library with too much thread-local storage was found out")


def main():
    if "--self-test" in sys.argv:
        return self_test()
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    problems = []
    for name in LIBRARIES:
        problems += check(pathlib.Path(sys.argv[1]) / f"{name}.so")
    for line in problems:
        print(line)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
