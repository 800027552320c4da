#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Variables of scopes that do not overlap may share a place, and AddressSanitizer finds a pointer that outlives its scope.

  test_shared_place.py COMPILER SOURCE
"""
import pathlib
import subprocess
import sys
import tempfile


def main():
    compiler, source = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as folder:
        plain, checked = pathlib.Path(folder, "plain"), pathlib.Path(folder, "checked")
        subprocess.run([compiler, "-w", "-g", "-O0", source, "-o", plain], check=True)
        done = subprocess.run([plain], capture_output=True, text=True, check=True)
        print(done.stdout, end="")  # which of the two it is, is the compiler's choice
        assert done.stdout.count("'s place: ") == 2, done.stdout
        built = subprocess.run([compiler, "-w", "-g", "-O0", "-fsanitize=address", source, "-o", checked], check=False)
        if built.returncode:
            print("SKIP: this compiler has no AddressSanitizer; libasan has it")
            return 77
        done = subprocess.run([checked], capture_output=True, text=True, check=False)
        assert done.returncode, "AddressSanitizer let it pass"
        assert "stack-use-after-scope" in done.stderr and "'a' (line" in done.stderr, done.stderr
    return 0


if __name__ == "__main__":
    sys.exit(main())
