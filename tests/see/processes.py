#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Start real programs, stop each, and compare what `quarry map` and `quarry top` say of it with the kernel and with procps.

  processes.py [--tool PATH] [--lib PATH] [NAME...]
  processes.py --list        names
  processes.py --self-test   prove that differences are found out

  --tool PATH  the tool; default: bin/quarry of QUARRY_BUILD_DIR, or of build
  --lib PATH   the malloc of python_on_quarry; default: libquarry-malloc.so of QUARRY_LIB_DIR, or of build/lib

Every process of a program is looked at while all of them are stopped. The sums over quadrants must be those of smaps_rollup, statm
and status to the byte, each thread's stack must have been found, and the columns of top must be those of procps to the last digit.
With how many others a page is shared may change with programs that are not ours: where it did, they are looked at again. Pages of
libraries are shared with the tool itself while it looks, so of PSS and USS its own comparison counts, with a rollup of that moment.
Prints the table of docs/map.md. Exit status 1 if something differs, 77 without the tool or if nothing could be started.
"""
import argparse
import contextlib
import json
import os
import pathlib
import pty
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from subjects import SUBJECTS, Stage, harness  # noqa: E402

BUILD = pathlib.Path(os.environ.get("QUARRY_BUILD_DIR") or pathlib.Path(__file__).resolve().parents[2] / "build")
PAGE = os.sysconf("SC_PAGE_SIZE")
LOOKS = 30
COLUMNS = ("VIRT", "RES", "SHR", "CODE", "DATA", "SWAP")


# ---- the kernel's side --------------------------------------------------------------------------

def fields_of(pid, name):
    """KiB of a file of /proc as bytes, by the kernel's names."""
    lines = (line.split() for line in pathlib.Path("/proc", str(pid), name).read_text().splitlines())
    return {words[0][:-1]: int(words[1]) * 1024 for words in lines if len(words) == 3 and words[2] == "kB"}


def kernel_of(pid):
    statm = [int(word) * PAGE for word in pathlib.Path("/proc", str(pid), "statm").read_text().split()]
    return {"rollup": fields_of(pid, "smaps_rollup"), "status": fields_of(pid, "status"), "statm": statm,
            "threads": len(os.listdir(f"/proc/{pid}/task")), "maps": pathlib.Path(f"/proc/{pid}/maps").read_text().count("\n")}


def tree(pid):
    """The process and all it has started."""
    table, found = harness.process_table(), {pid}
    while more := {child for child, (parent, _) in table.items() if parent in found} - found:
        found |= more
    return sorted(found)


def state(pid):
    with contextlib.suppress(OSError):
        return pathlib.Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0]
    return "Z"


def threads(pid):
    with contextlib.suppress(OSError):
        return os.listdir(f"/proc/{pid}/task")
    return []


def stop(pid):
    """Stop all processes of a tree with all their threads; none is started any more then."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        pids = [child for child in tree(pid) if state(child) not in "ZX"]
        running = [child for child in pids if any(state(f"{child}/task/{thread}") not in "TtZX" for thread in threads(child))]
        if not running:
            return pids
        for child in running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGSTOP)
        time.sleep(0.02)
    raise harness.Failure(f"of {pids} do not stop: {running}")


# ---- comparing ----------------------------------------------------------------------------------

def differences(found, kernel):
    """What the sums over quadrants are, and are not by the kernel's accounts."""
    quadrants, total, statm = found["quadrants"], found["total"], kernel["statm"]
    rollup, status = kernel["rollup"], kernel["status"]
    ours = {key: sum(quadrant[key] or 0 for quadrant in quadrants) for key in
            ("size", "rss", "pages", "pss", "uss", "dirty", "swap", "referenced", "locked", "huge", "hugetlb", "ksm", "lazy_free",
             "rss_file", "rss_shared_memory") if total.get(key, 0) is not None}
    pages = [quadrant["pages"] for quadrant in quadrants]

    def of_rollup(*names):
        return sum(rollup[name] for name in names) if all(name in rollup for name in names) else None

    exact = [
        ("size", ours["size"], "statm size", statm[0]), ("size", ours["size"], "VmSize", status["VmSize"]),
        ("RSS", ours["rss"], "statm resident", statm[1]), ("RSS", ours["rss"], "VmRSS", status["VmRSS"]), ("RSS", ours["rss"], "Rss", rollup["Rss"]),
        ("pages", ours["pages"], "Rss", rollup["Rss"]), ("pages of 1", pages[0], "Anonymous", rollup["Anonymous"]),
        ("pages of 1", pages[0], "RssAnon", status["RssAnon"]), ("pages of 2, 3, 4", sum(pages[1:]), "statm shared", statm[2]),
        ("pages of files", ours["rss_file"], "RssFile", status["RssFile"]),
        ("pages of shared memory", ours["rss_shared_memory"], "RssShmem", status["RssShmem"]),
        ("dirty", ours["dirty"], "*_Dirty", of_rollup("Shared_Dirty", "Private_Dirty")), ("swap", ours["swap"], "Swap", of_rollup("Swap")),
        ("referenced", ours["referenced"], "Referenced", of_rollup("Referenced")), ("KSM", ours.get("ksm"), "KSM", of_rollup("KSM")),
        ("huge", ours["huge"], "*HugePages, *PmdMapped", of_rollup("AnonHugePages", "ShmemPmdMapped", "FilePmdMapped")),
        ("hugetlb", ours["hugetlb"], "*_Hugetlb", of_rollup("Shared_Hugetlb", "Private_Hugetlb")),
        ("lazy free", ours["lazy_free"], "LazyFree", of_rollup("LazyFree")),
        ("mappings", total["count"], "lines of maps", kernel["maps"]), ("threads", len(found["threads"]), "task", kernel["threads"]),
    ]
    exact += [(column.upper(), found["top"][column], "statm", statm[place]) for column, place in
              (("virt", 0), ("res", 1), ("shr", 2), ("code", 3), ("data", 5))]
    for what, mine, where, theirs in exact:
        if theirs is not None and mine != theirs:
            yield f"{what} is {mine}, {where} {theirs}"
    # The kernel rounds down in each mapping. And while the tool looks, pages of libraries that both use are shared with it: no others.
    rounded, used = 1024 * total["count"], ours["rss_file"]
    for what, names, slack in (("pss", ("Pss",), rounded + used), ("locked", ("Locked",), rounded), ("uss", ("Private_Clean", "Private_Dirty"), used)):
        theirs = of_rollup(*names)
        if theirs is not None and not ours[what] <= theirs <= ours[what] + slack:
            yield f"{what} is {ours[what]}, {' + '.join(names)} {theirs}"
    for line in found["checks"]:
        if not line["agrees"]:
            yield f"the tool finds {line['what']} {line['ours']}, {line['source']} {line['kernel']}"


def stacks(found):
    """Threads with a stack of their own, on one that lies in something larger, and those of which neither is known."""
    of_kind, other = set(), set()
    for mapping in found["mappings"]:
        (of_kind if mapping["kind"] in ("stack", "thread-stack") else other if mapping["kind"] != "guard" else set()).update(mapping["threads"])
    every = {thread["tid"] for thread in found["threads"]}
    return len(of_kind), len(other - of_kind), sorted(every - of_kind - other)


def look(tool, pid):
    """What the tool says and what the kernel does, of a moment in which others changed nothing."""
    for _ in range(LOOKS):
        before = kernel_of(pid)
        done = subprocess.run([tool, "map", "-p", str(pid), "--json"], capture_output=True, text=True, timeout=120, check=False)
        if done.returncode:
            raise harness.Failure(f"quarry map -p {pid}: {done.stderr.strip()}")
        found, faults = json.loads(done.stdout), None
        after = kernel_of(pid)
        if before == after:
            faults = list(differences(found, after))
            if not faults or found["steady"]:
                return found, after, faults
        time.sleep(0.05)
    return found, after, list(differences(found, after)) + ["others changed what they share with it, again and again"]


def is_shown_as(size, cell):
    """Is this what top shows for a size: KiB, or where that is too long, a larger unit with a digit behind the point?"""
    unit = {"m": 2**20, "g": 2**30, "t": 2**40, "p": 2**50}.get(cell[-1])
    return abs(float(cell[:-1]) * unit - size) <= 0.0501 * unit if unit else int(cell) * 1024 == size


class Procps:
    """top of procps with its columns of memory, if there is one."""

    def __init__(self, folder):
        self.environment = {**os.environ, "HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "TERM": "xterm-256color", "COLUMNS": "300", "LINES": "60"}
        self.is_there = harness.which("top") is not None and self.configure(folder)

    def configure(self, folder):
        """Let it write down that its third group of fields, which is about memory, is to be shown."""
        master, slave = pty.openpty()
        process = subprocess.Popen(["top", "-d", "1"], stdin=slave, stdout=slave, stderr=slave, env=self.environment, start_new_session=True)
        os.close(slave)
        os.set_blocking(master, False)
        deadline, keys = time.monotonic() + 30, ["g", "3\r", "W"]
        while process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                while os.read(master, 65536):
                    pass
            if keys:
                os.write(master, keys.pop(0).encode())
            elif any(path.is_file() for path in folder.rglob("*toprc")):
                os.write(master, b"q")
            else:
                os.write(master, b"\r")
                keys = ["g", "3\r", "W"]
            time.sleep(0.5)
        process.kill()
        process.wait()
        os.close(master)
        return any(path.is_file() for path in folder.rglob("*toprc"))

    def differences(self, tool, pid):
        """Columns in which `quarry top` and top differ for a stopped process."""
        theirs = subprocess.run(["top", "-b", "-n", "1", "-e", "k", "-w", "300", "-p", str(pid)], capture_output=True, text=True, env=self.environment,
                                timeout=60, check=True).stdout.splitlines()
        heads = next(line.split() for line in theirs if line.split()[:1] == ["PID"])
        cells = next(line.split() for line in theirs if line.split()[:1] == [str(pid)])
        if "DATA" not in heads:
            raise harness.Failure(f"top of procps shows {heads}")
        frame = json.loads(subprocess.run([tool, "top", "--json", "--rows", "0", "--filter", str(pid)], capture_output=True, text=True, timeout=60,
                                          check=True).stdout)
        row = next(row for row in frame["processes"] if row["pid"] == pid)
        for column in COLUMNS:
            if column not in heads:  # SWAP, where there is no swap space
                if row[column.lower()]:
                    yield f"top has no column {column}, and ours is {row[column.lower()]}"
            elif not is_shown_as(row[column.lower()], cells[heads.index(column)]):
                yield f"{column} of top is {cells[heads.index(column)]} KiB, ours {row[column.lower()]} bytes"
        if abs(float(cells[heads.index("%MEM")]) - row["mem_percent"]) > 0.0501:
            yield f"%MEM of top is {cells[heads.index('%MEM')]}, ours {row['mem_percent']}"


# ---- one program --------------------------------------------------------------------------------

class Row:
    """Of the largest process of a program; the faults of all."""

    def __init__(self):
        self.faults, self.processes, self.denied = [], 0, 0
        self.name, self.threads, self.mappings, self.rss, self.own, self.inside = "", 0, 0, 0, 0, 0

    def add(self, tool, pid, procps):
        try:
            found, kernel, faults = look(tool, pid)
        except PermissionError as denied:
            # The tool must say so, too.
            done = subprocess.run([tool, "map", "-p", str(pid)], capture_output=True, text=True, timeout=60, check=False)
            if done.returncode != 1 or "needs" not in done.stderr:
                self.faults.append(f"{pid}: {denied}, and the tool says {done.stderr!r}")
            self.denied += 1
            return
        own, inside, unknown = stacks(found)
        if unknown and not any("stack pointers" in gap for gap in found["gaps"]):
            faults.append(f"threads {unknown} have no stack, and nothing is said of that")
        if procps.is_there:
            faults += procps.differences(tool, pid)
        self.faults += [f"{pid} {found['name']}: {fault}" for fault in faults]
        self.processes += 1
        if kernel["statm"][1] >= self.rss:
            self.name, self.threads, self.mappings, self.rss = found["name"], kernel["threads"], kernel["maps"], kernel["statm"][1]
            self.own, self.inside = own, inside

    def text(self, name):
        said = "yes" if not self.faults else f"NO, {len(self.faults)}"
        said += f", {self.denied} may not be read" if self.denied else ""
        stacks_of = f"{self.own}" + (f", {self.inside} inside" if self.inside else "")
        return f"| {name} | {self.processes} | {self.threads} | {stacks_of} | {self.mappings:,} | {self.rss / 2**20:.1f} | {said} |"


def check(name, tool, library, procps):
    needs, start = SUBJECTS[name]
    for command in needs:
        if not harness.which(command):
            raise harness.Skip(f"needs {command}")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="see-"))
    folder.chmod(0o755)
    row = Row()
    try:
        for pid in stop(start(Stage(folder, tool, library))):
            row.add(tool, pid, procps)
    finally:
        harness.kill_descendants()
        shutil.rmtree(folder, ignore_errors=True)
    return row


def self_test():
    """A made-up process that agrees, and one difference after the other."""
    def process():
        quadrants = [{key: 0 for key in ("size", "rss", "pages", "pss", "uss", "dirty", "swap", "referenced", "locked", "huge", "hugetlb", "ksm",
                                         "lazy_free", "rss_file", "rss_shared_memory")} for _ in range(4)]
        quadrants[0].update(size=8 * PAGE, rss=PAGE, pages=PAGE, pss=PAGE, uss=PAGE, dirty=PAGE, referenced=PAGE)
        names = ("Pss", "Swap", "KSM", "Locked", "AnonHugePages", "ShmemPmdMapped", "FilePmdMapped", "Shared_Hugetlb", "Private_Hugetlb", "LazyFree",
                 "Private_Clean", "Shared_Dirty")
        rollup = {**dict.fromkeys(names, 0), "Rss": PAGE, "Anonymous": PAGE, "Private_Dirty": PAGE, "Referenced": PAGE, "Pss": PAGE}
        status = {"VmSize": 8 * PAGE, "VmRSS": PAGE, "RssAnon": PAGE, "RssFile": 0, "RssShmem": 0}
        statm = [8 * PAGE, PAGE, 0, 2 * PAGE, 0, 6 * PAGE, 0]
        found = {"quadrants": quadrants, "total": {"count": 1}, "threads": [{"tid": 7}], "checks": [],
                 "top": {"virt": 8 * PAGE, "res": PAGE, "shr": 0, "code": 2 * PAGE, "data": 6 * PAGE}}
        return found, {"rollup": rollup, "status": status, "statm": statm, "threads": 1, "maps": 1}

    wrong = list(differences(*process()))
    changed = 0
    for part in ("rollup", "status"):
        for name in process()[1][part]:
            found, kernel = process()
            kernel[part][name] += PAGE
            wrong += [] if list(differences(found, kernel)) else [f"{part} {name}"]
            changed += 1
    for place in (0, 1, 2, 3, 5):
        found, kernel = process()
        kernel["statm"][place] += PAGE
        wrong += [] if list(differences(found, kernel)) else [f"statm {place}"]
        changed += 1
    for name in ("threads", "maps"):
        found, kernel = process()
        kernel[name] += 1
        wrong += [] if list(differences(found, kernel)) else [name]
        changed += 1
    for size, cell, holds in ((12 << 10, "12", True), (13 << 10, "12", False), (8193 << 30, "8193.0g", True), (8193 << 30, "8193.1g", False)):
        wrong += [] if is_shown_as(size, cell) == holds else [f"{size} as {cell}"]
    mappings = [{"kind": "stack", "threads": [1]}, {"kind": "guard", "threads": [2]}, {"kind": "anonymous", "threads": [3]}]
    if stacks({"mappings": mappings, "threads": [{"tid": tid} for tid in (1, 2, 3)]}) != (1, 1, [2]):
        wrong.append("stacks")
    print(f"FAILED: {wrong}" if wrong else f"self-test: {changed} differences were found out")
    return bool(wrong)


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1])
    parser.add_argument("--tool", type=pathlib.Path, default=BUILD / "bin/quarry")
    parser.add_argument("--lib", type=pathlib.Path, default=pathlib.Path(os.environ.get("QUARRY_LIB_DIR") or BUILD / "lib") / "libquarry-malloc.so")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    if args.list:
        return print("\n".join(SUBJECTS))
    if args.self_test:
        return self_test()
    for name in args.names:
        if name not in SUBJECTS:
            sys.exit(f"processes.py: no program {name}; there are: {' '.join(SUBJECTS)}")
    if not args.tool.exists():
        print(f"SKIP: needs {args.tool} (make tool)")
        return 77
    harness.adopt_orphans()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # clean up, as after ^C
    with tempfile.TemporaryDirectory(prefix="see-top-") as home:
        procps = Procps(pathlib.Path(home))
        return every(args.names or SUBJECTS, args.tool.resolve(), args.lib.resolve(), procps)


def every(names, tool, library, procps):
    print("" if procps.is_there else "SKIP: needs the package procps\n", end="")
    print("| program | processes | threads | stacks | mappings | RSS, MiB | equal |\n|---|---|---|---|---|---|---|", flush=True)
    failed, skipped, seen, processes = [], [], 0, 0
    for name in names:
        try:
            row = check(name, tool, library, procps)
            print(row.text(name), flush=True)
            failed += [f"{name}: {fault}" for fault in row.faults]
            seen, processes = seen + 1, processes + row.processes
        except harness.Skip as reason:
            skipped.append(f"SKIP: {name}: {reason}")
        except harness.Failure as reason:
            failed.append(f"{name}: {reason}")
    print("\n".join(skipped + [f"FAILED: {fault}" for fault in failed]))
    print(f"{seen} programs, {processes} processes, {len(failed)} differences, {len(skipped)} programs are not here")
    return 1 if failed else 77 if not seen else 0


if __name__ == "__main__":
    sys.exit(main())
