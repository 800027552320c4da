#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Check the models of the lock-free protocols, of pools and heap, with spin: exhaustively, and each broken variant must be caught.

  run.py [--verbose]

A model that could not be searched to its end (memory, depth) fails as well. Skipped (77) without spin.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

FOLDER = pathlib.Path(__file__).resolve().parent
HEAP = "../../heap/models/"
SKIP = 77

# model, definitions, is it sound?
RUNS = [
    ("fifo_page.pml", [], True),
    ("fifo_page.pml", ["-DFREEZE"], True),
    ("fifo_page.pml", ["-DOWN=3", "-DB1=2", "-DB2=0"], True),
    ("fifo_page.pml", ["-DOWN=1", "-DB1=2", "-DB2=1", "-DFREEZE"], True),
    ("fifo_page.pml", ["-DBROKEN_READ_AFTER"], False),
    ("fifo_page.pml", ["-DBROKEN_OWNER_AFTER"], False),
    ("fifo_page.pml", ["-DFREEZE", "-DBROKEN_NO_BIAS"], False),
    ("fifo_page.pml", ["-DBROKEN_NO_CLAIM"], False),
    ("fifo_page.pml", ["-DBROKEN_NO_LOOK"], False),
    ("ring_release.pml", [], True),
    ("ring_release.pml", ["-DROGUE", "-DFRAMES=3"], True),
    ("ring_release.pml", ["-DBROKEN_COUNT_LATE"], False),
    ("ring_release.pml", ["-DROGUE", "-DBROKEN_STORE"], False),
    ("ring_release.pml", ["-DROGUE", "-DBROKEN_NO_GENERATION"], False),
    ("ring_release.pml", ["-DBROKEN_NO_OWN_COUNT"], False),
    (HEAP + "remote.pml", [], True),
    (HEAP + "remote.pml", ["-DSLABS=2", "-DGIVEN=2", "-DCALM"], True),
    (HEAP + "remote.pml", ["-DBROKEN_ALWAYS_PUSH"], False),
    (HEAP + "remote.pml", ["-DSLABS=2", "-DBROKEN_NEXT_LATE"], False),
    (HEAP + "remote.pml", ["-DBROKEN_NO_FORWARD"], False),
    (HEAP + "remote.pml", ["-DBROKEN_TWO_STEPS"], False),
    (HEAP + "remote.pml", ["-DBROKEN_LAST"], False),
    (HEAP + "remote.pml", ["-DSLABS=2", "-DGIVEN=3", "-DCALM", "-DBROKEN_LINK_EARLY"], False),
    (HEAP + "remote.pml", ["-DBROKEN_EMPTY"], False),
]


def check(model, definitions, sound):
    """(errors, states, was the search complete, text)"""
    with tempfile.TemporaryDirectory() as folder:
        def run(*command):
            return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=850)
        made = run("spin", "-a", *definitions, str(FOLDER / model))
        if made.returncode or not pathlib.Path(folder, "pan.c").exists():
            sys.exit(f"{model} {definitions}: spin failed:\n{made.stdout}{made.stderr}")
        built = run("cc", "-O1" if sound else "-O0", "-w", "-DSAFETY", "-DCOLLAPSE", "-DVECTORSZ=2048", "-o", "pan", "pan.c")
        if built.returncode:
            sys.exit(f"{model} {definitions}: cc failed:\n{built.stderr}")
        text = run("./pan", "-m100000").stdout
    errors = int(re.search(r"errors: (\d+)", text).group(1))
    states = int(float(re.search(r"([\d.e+]+) states, stored", text).group(1)))
    complete = "max search depth too small" not in text and "out of memory" not in text and "Search not completed" not in text
    return errors, states, complete, text


def main():
    if not shutil.which("spin"):
        print("SKIP: needs the package spin")
        return SKIP
    failed = 0
    for model, definitions, sound in RUNS:
        errors, states, complete, text = check(model, definitions, sound)
        good = (errors == 0 and complete) if sound else errors > 0
        failed += not good
        verdict = "sound" if errors == 0 else "caught"
        print(f"{'ok    ' if good else 'FAILED'} {pathlib.Path(model).name} {' '.join(definitions)}: {verdict}, {states} states", flush=True)
        if not good or "--verbose" in sys.argv:
            print(text)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
