#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the drop-in adds to a program that does nothing: memory, and instructions from its start to its end.

  start.py PROGRAM LIBRARY [--print | --update]   exit 1 and one line for each figure above its limit
  start.py --self-test                            prove that it can fail

PROGRAM is bench/fastpath/start.c. Limits and the last figures stand in bench/fastpath/start.json, of which docs/performance.md has a table.
Resident memory is the kernel's count of pages by /proc/self/smaps, the mean of STARTS starts: the loader puts libc at a random page, and
the kernel maps 16 pages around each that is touched. Which of libc's functions a start calls depends on the processor, too (there is a
strcmp for each kind), so all that is resident has no limit: its parts have, the library's pages and the process's own. They are exact.
Instructions are callgrind's, in an empty environment; without valgrind they are left out. Figures are for processes of 64 bits with pages of 4 KiB; elsewhere exit 77.
"""
import json
import pathlib
import platform
import re
import shutil
import subprocess
import sys

TABLE = pathlib.Path(__file__).resolve().parents[1] / "bench/fastpath/start.json"
STARTS = 48
SKIP = 77
CASES = ("nothing", "block")


def run(command, library):
    env = {"LD_PRELOAD": str(library)} if library else {}
    return subprocess.run([str(c) for c in command], env=env, check=True, capture_output=True, text=True)


def kilobytes(text, field):
    return sum(int(n) for n in re.findall(rf"^{field}:\s+(\d+) kB$", text, re.M))


def of_file(text, name):
    """What smaps says of the mappings of the file."""
    each = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", text, flags=re.M)
    return "".join(mapping for mapping in each if mapping.split("\n")[0].endswith(f"/{name}"))


def memory(program, case, library):
    """(resident, the library's of that, the process's own) in KiB."""
    texts = [run((program, case, "maps"), library).stdout for _ in range(STARTS)]
    mean = lambda numbers: sum(numbers) / STARTS  # noqa: E731
    ours = mean(kilobytes(of_file(text, library.name), "Rss") for text in texts) if library else 0
    return mean(kilobytes(text, "Rss") for text in texts), ours, mean(kilobytes(text, "Anonymous") for text in texts)


def instructions(program, case, library):
    said = run((shutil.which("valgrind"), "--tool=callgrind", "--callgrind-out-file=/dev/null", program, case), library).stderr
    return int(re.search(r"Collected : (\d+)", said)[1])


def measure(program, library):
    figures = {}
    for case in CASES:
        without, ours = memory(program, case, None), memory(program, case, library)
        figures[case] = {kind: round(ours[i] - without[i]) for i, kind in enumerate(("resident KiB", "library KiB", "own KiB"))}
        if shutil.which("valgrind"):
            figures[case]["instructions"] = round(instructions(program, case, library) / instructions(program, case, None), 3)
    return figures


def above(figures, limits):
    return [f"{case}: {kind}: {figure}, at most {limits[case][kind]}: see docs/notes/processes.md for what a start is made of"
            for case, kinds in figures.items() for kind, figure in kinds.items() if figure > limits[case].get(kind, figure)]


def self_test():
    limits = {"nothing": {"library KiB": 100, "own KiB": 20, "instructions": 1.3}}
    good = {"nothing": {"resident KiB": 500, "library KiB": 100, "own KiB": 20, "instructions": 1.3}}
    assert above(good, limits) == []
    for kind, bad in (("library KiB", 101), ("own KiB", 24), ("instructions", 1.31)):
        assert len(above({"nothing": {**good["nothing"], kind: bad}}, limits)) == 1, kind
    assert above({"nothing": {"own KiB": 20}}, limits) == []
    one, other = "1000-2000 r--p 0 0:0 1 /a/libq.so\nRss:  4 kB\n", "2000-3000 r--p 0 0:0 1 /a/xlibq.so\nRss: 8 kB\n"
    assert of_file(other + one + other + one, "libq.so") == one + one
    assert kilobytes("Size: 8 kB\nRss:    4 kB\nRss:   12 kB\nRss_x: 3 kB\n", "Rss") == 16
    print("ok: each limit can be exceeded")


def main():
    arguments = [a for a in sys.argv[1:] if not a.startswith("--")]
    if "--self-test" in sys.argv:
        return self_test()
    if len(arguments) != 2:
        sys.exit(__doc__)
    if platform.machine() != "x86_64":
        print("SKIP: the limits are for x86-64")
        sys.exit(SKIP)
    program, library = (pathlib.Path(a).resolve() for a in arguments)
    table = json.loads(TABLE.read_text())
    figures = measure(program, library)
    if "--print" in sys.argv or "--update" in sys.argv:
        print(json.dumps(figures, indent=2))
    if "--update" in sys.argv:
        table["figures"] = figures
        TABLE.write_text(json.dumps(table, indent=2) + "\n")
    problems = above(figures, table["limits"])
    print("\n".join(problems) or "ok: a start costs no more than the limits")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
