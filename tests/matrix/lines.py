# SPDX-License-Identifier: MIT
"""What a process wrote of its errors under libquarry-check.so: docs/check.md has the lines. A reader of its own for the tests."""
import bisect
import json
import pathlib
import subprocess


class Symbols:
    """The functions of one program, by nm: a name for an address of the file."""

    def __init__(self, program):
        text = subprocess.run(["nm", "-n", "--defined-only", program], check=True, capture_output=True, text=True).stdout
        pairs = [(int(fields[0], 16), fields[2]) for fields in map(str.split, text.splitlines()) if len(fields) == 3 and fields[1] in "tTwW"]
        self.starts, self.names = [start for start, _ in pairs], [name for _, name in pairs]

    def __call__(self, address):
        at = bisect.bisect_right(self.starts, address) - 1
        return self.names[at] if at >= 0 else "?"


def read(folder):
    """All lines of all processes, in order, and the modules by process and number."""
    lines, modules = [], {}
    for path in sorted(pathlib.Path(folder).glob("*.check")):
        for text in path.read_text().splitlines():
            line = json.loads(text)
            if "module" in line:
                modules[path.name, line["module"]["id"]] = line["module"]
            lines.append((path.name, line))
    return lines, modules


def functions(process, stack, modules, program, symbols):
    """Names of those frames that lie in the program itself."""
    found = []
    for frame in stack or []:
        module = modules.get((process, frame.get("module")))
        if module and pathlib.Path(module["path"]).name == pathlib.Path(program).name:
            pc = int(frame["pc"], 16) - int(module["bias"], 16)
            found.append(symbols(pc if frame.get("exact") else pc - 1))
    return found


def findings(folder, program, symbols):
    """Errors and leaks: dicts with kind, offset, size, evidence, and the names of functions that were there, allocated, and freed."""
    lines, modules = read(folder)
    found = []
    for process, line in lines:
        names = lambda stack: functions(process, stack, modules, program, symbols)  # noqa: E731
        if error := line.get("error"):
            block = error.get("block") or {}
            found.append({"kind": error["kind"], "offset": error.get("offset"), "size": block.get("size"), "evidence": error.get("evidence", False),
                          "stack": names(error.get("stack")), "alloc": names((block.get("alloc") or {}).get("stack")),
                          "free": names((block.get("free") or {}).get("stack"))})
        elif leak := line.get("leak"):
            found.append({"kind": leak["kind"], "offset": None, "size": None, "evidence": False, "stack": names(leak["stack"]),
                          "alloc": names(leak["stack"]), "free": []})
    return found
