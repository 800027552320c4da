# SPDX-License-Identifier: MIT
"""Programs under libquarry-check, and what their files of reports say."""
import json
import os
import pathlib
import subprocess
import tempfile

LIBRARY = pathlib.Path(os.environ["QUARRY_LIB_DIR"]) / "libquarry-check.so"


def symbols(path):
    """The functions of a file: (begin, end, name)."""
    text = subprocess.run(["nm", "-S", path], capture_output=True, text=True).stdout
    rows = [line.split() for line in text.splitlines()]
    return [(int(r[0], 16), int(r[0], 16) + int(r[1], 16), r[3]) for r in rows if len(r) == 4 and r[2] in "tTwW"]


class Reports:
    """One file: its lines by their kind, and frames named by the symbols of the program's files."""

    def __init__(self, path):
        self.path = path
        self.lines = [json.loads(line) for line in path.read_text().splitlines()]
        self.modules = {line["module"]["id"]: line["module"] for line in self.lines if "module" in line}
        self.symbols = {}

    def of(self, what):
        return [line[what] for line in self.lines if what in line]

    def names(self, stack):
        """The functions of a stack, innermost first."""
        return [self.name(frame) for frame in stack]

    def name(self, frame):
        module = self.modules.get(frame["module"])
        if not module:
            return None
        path = module["path"]
        if path not in self.symbols:
            self.symbols[path] = symbols(path)
        at = int(frame["pc"], 16) - int(module["bias"], 16) - (not frame["exact"])
        return next((name for begin, end, name in self.symbols[path] if begin <= at < end), None)


def environment(folder, **options):
    env = dict(os.environ, LD_PRELOAD=str(LIBRARY))
    if folder:
        options = {"out": folder, **options}
    given = [os.environ["CHECK_OPTIONS"]] if "CHECK_OPTIONS" in os.environ else []
    env["QUARRY_CHECK"] = ",".join(given + [f"{key}:{value}" for key, value in options.items()])
    return env


def run(command, expect=0, says=None, **options):
    """Run it; its files of reports, one for each process that had something to say. says: what the library has on stderr."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(command, env=environment(folder, **options), capture_output=True, text=True, timeout=300)
        assert done.returncode == expect, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
        assert says in done.stderr if says else "quarry" not in done.stderr, done.stderr
        return [Reports(path) for path in sorted(pathlib.Path(folder).glob("*.check"))]
