#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Proof that the runner of tests/field tells a pass from a failure, a hang, a skip, and a malloc that is not there; and that
scripts/setup.sh test installs every package that a case names."""
import pathlib
import re
import shutil
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE))
import field  # noqa: E402
import run  # noqa: E402


def verdict(function, malloc=field.Malloc("glibc", None, None)):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="field-"))
    try:
        return run.attempt(function, malloc, ".", folder)
    finally:
        shutil.rmtree(folder)


def expect(what, want, got):
    if want not in " ".join(got):
        sys.exit(f"FAILED {what}: wanted {want!r}, got {got!r}")


def main():
    expect("a pass", "P", verdict(lambda f: f.good(["true"])))
    expect("an exit status", "F false: exit status 1", verdict(lambda f: f.good(["false"])))
    expect("a signal", "SIGSEGV", verdict(lambda f: f.good(["bash", "-c", "kill -SEGV $$"])))
    expect("a hang", "does not end", verdict(lambda f: f.good(["sleep", "1000"], timeout=0.2)))
    expect("what it says", "F bash -c echo word >&2: exit status 0: word", verdict(lambda f: f.good(["bash", "-c", "echo word >&2"], silent=True)))
    expect("a skip", "- why", verdict(lambda f: f.good(["bash", "-c", "echo why; exit 77"])))
    expect("a missing program", "- needs the package p", verdict(lambda f: f.command("no-such-command", "p")))
    expect("what does not compile", "does not compile", verdict(lambda f: f.compile("x", "no-such-file.c")))
    library = field.Malloc("x", pathlib.Path("/no-such.so"), None)
    expect("another output", "prints something else", verdict(lambda f: f.same(["bash", "-c", "echo $LD_PRELOAD"]), library))
    lists = [HERE / "packages.txt", HERE.parent / "programs" / "packages.txt", HERE.parents[1] / "scripts" / "setup.sh"]
    known = set(re.findall(r"[\w.+-]+", " ".join(path.read_text() for path in lists))) | {"coreutils", "libc-bin", "stdbuf"}
    for path in sorted(HERE.glob("*/cases.py")):
        for command, package, other in re.findall(r'command\("([^"]+)"(?:, "([^"]+)")?\)|needs the package ([\w.+-]+)"', path.read_text()):
            if (package or command or other) not in known:
                sys.exit(f"FAILED {path.parent.name}: {package or command or other} is in no list of packages")
    print("self-test: failures, signals, hangs, skips and other outputs were found out")


if __name__ == "__main__":
    sys.exit(main())
