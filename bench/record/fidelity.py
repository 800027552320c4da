#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Does a replay do what the program did? Record real programs, replay them under the same malloc, compare.

  fidelity.py [--scale X] [--curve-points N] [--json FILE] [PROGRAM...]
  fidelity.py --smoke

Live bytes: after every Nth operation, as the replayer counts them while it plays in strict order, against what this script adds up from
the trace's lines of JSON. They must be equal.

Resident memory: the program's heap against the replay's. The heap of the program, under the C library's malloc, is what is resident in
[heap] and in arenas (anonymous mappings from a multiple of 64 MiB on in which the trace has a block), and of other anonymous
mappings as much as the trace has in large blocks there at the time: the kernel joins neighbours, and what lies beside such a block is
not malloc's. The mappings are looked at every few milliseconds while the program runs (/proc/PID/smaps), the recorder in it. Not in
it: stacks, data of libraries, memory that the program maps itself, the recorder's own.
The replay is one run with the same threads; the kernel's high-water mark counts. --touch all writes to every block, --touch none to
none: what a program leaves untouched of its blocks lies between the two.
"""
import argparse
import bisect
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from measure import Fault, progress  # noqa: E402
from programs import environment, programs, tool  # noqa: E402

TRIES = 50  # to look at a short program where the machine is busy
ARENA = 64 << 20
LARGE = 128 << 10  # from this size on a block may have a mapping of its own
MAPPING = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ (\d+) *(.*)$")


def anonymous(pid):
    """{(from, to, name): resident anonymous bytes} of mappings that malloc may have made."""
    found, key = {}, None
    try:
        text = pathlib.Path(f"/proc/{pid}/smaps").read_bytes()
    except OSError:
        return None
    for line in text.splitlines():
        if match := MAPPING.match(line):
            low, high, _, inode, name = match.groups()
            key = (int(low, 16), int(high, 16), name.decode()) if inode == b"0" and name in (b"", b"[heap]") else None
        elif key and line.startswith(b"Anonymous:"):
            found[key] = int(line.split()[1]) * 1024
    return found


def record(program, folder, period):
    """Run it under the recorder; the looks at its memory, and its trace."""
    trace = folder / "fidelity.qtr"
    trace.unlink(missing_ok=True)
    library = pathlib.Path(os.environ.get("QUARRY_LIB_DIR") or pathlib.Path(tool()).parents[1] / "lib") / "libquarry-record.so"
    env = {**environment(program), "LD_PRELOAD": str(library), "QUARRY_RECORD": f"file:{trace}"}
    looks = []
    with subprocess.Popen(program.command, env=env, cwd=program.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            now = time.monotonic_ns()
            if look := anonymous(process.pid):
                looks.append((now, look))
            time.sleep(period)
    if process.returncode or not trace.exists():
        raise Fault(f"{program.command[0]}: status {process.returncode}")
    return looks, trace


class Walk:
    """What its lines of JSON say: live bytes after each operation, pages in which blocks lie, the lives of large ones, what is odd."""

    def __init__(self, trace, folder):
        lines = folder / "fidelity.jsonl"
        subprocess.run([tool(), "convert", "-q", str(trace), "-o", str(lines)], check=True)
        self.live, self.total, self.curve, self.odd = {}, 0, [], 0
        pages, self.large = set(), []
        with open(lines) as text:
            for line in text:
                event = json.loads(line)
                op = event.get("op")
                if op == "free" and event["api"] != "null":
                    if not self.ends(event["address"], event["t"]):
                        continue  # a block from before the recording, which the replay has not either
                elif op == "realloc":
                    self.ends(event["old"], event["t"])
                elif "head" in event:
                    self.head = event["head"]
                elif "end" in event:
                    self.end = event["end"]
                if op in ("alloc", "realloc"):
                    address, size = event["address"], event["size"]
                    self.live[address] = size
                    self.total += size
                    pages.add(int(address, 16) >> 12)
                    if size >= LARGE:
                        self.large.append((event["t"], address, size))
                if op in ("alloc", "free", "realloc"):
                    self.curve.append(self.total)
        lines.unlink()
        self.pages = sorted(pages)

    def ends(self, address, ticks):
        size = self.live.pop(address, None)
        if size is None:
            self.odd += 1
            return False
        self.total -= size
        if size >= LARGE:
            self.large.append((ticks, address, -size))
        return True

    def ns(self, ticks):
        first = self.head["start_ticks"], self.head["start_monotonic_ns"]
        rate = (self.end["end_monotonic_ns"] - first[1]) / (self.end["end_ticks"] - first[0])
        return first[1] + (ticks - first[0]) * rate

    def peak(self, looks):
        """Most bytes of the heap that were resident when somebody looked."""
        changes, next_, now, most = sorted((self.ns(t), a, s) for t, a, s in self.large), 0, {}, 0
        for when, look in looks:
            while next_ < len(changes) and changes[next_][0] <= when:
                _, address, size = changes[next_]
                if size > 0:
                    now[int(address, 16)] = size
                else:
                    now.pop(int(address, 16), None)
                next_ += 1
            most = max(most, sum(self.part(mapping, resident, now) for mapping, resident in look.items()))
        return most

    def part(self, mapping, resident, large):
        low, high, name = mapping
        if name == "[heap]":
            return resident
        at = bisect.bisect_left(self.pages, low >> 12)
        if at == len(self.pages) or self.pages[at] >= high >> 12:
            return 0
        if low % ARENA == 0:
            return resident
        # The head of its chunk and the rest of the last page belong to it.
        return min(resident, sum((size + 16 + 4095) // 4096 * 4096 for address, size in large.items() if low <= address < high))


def replay(trace, *options):
    command = [tool(), "replay", "-q", "--with", "system", "--no-latency", "-n", "1", "--json", *options, str(trace)]
    result = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if result.returncode:
        raise Fault(f"{' '.join(command)}: status {result.returncode}: {result.stderr[-500:]}")
    parsed = json.loads(result.stdout)
    runs = [run["report"] for run in parsed["runs"] if run["pass"] == "totals"]
    return parsed, runs[0]


def compare(name, program, folder, points):
    for _ in range(TRIES):
        progress(f"{name}: recording")
        looks, trace = record(program, folder, 0.003)
        progress(f"{name}: adding up")
        walk = Walk(trace, folder)
        if looks and walk.peak(looks):
            break
    else:
        raise Fault(f"{program.command[0]}: it ends before anybody looks at its memory")
    curve = walk.curve
    step = max(1, len(curve) // points)
    progress(f"{name}: replaying")
    strict, run = replay(trace, "--order", "strict", "--touch", "none", "--curve", str(step))
    theirs = run["curve"]["live"]
    ours = curve[step - 1::step]
    peak = walk.peak(looks)
    result = {
        "threads": strict["plan"]["threads"], "operations": len(curve), "odd": walk.odd, "points": len(ours), "peak_live": max(curve),
        "curve_equal": ours == theirs[:len(ours)] and max(curve) == run["curve"]["peak"] and curve[-1] == run["curve"]["end"], "program_rss": peak,
    }
    for touch in ("all", "none"):
        result[f"replay_{touch}"] = replay(trace, "--touch", touch)[1]["rss"]["peak"]
    progress("")
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--curve-points", type=int, default=1_000_000)
    parser.add_argument("--scale", type=float, default=1.0, help="of the programs' work")
    parser.add_argument("--json")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("programs", nargs="*")
    args = parser.parse_args()
    results, wrong = {}, []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        work = programs(folder, 0.05 if args.smoke else args.scale)
        if unknown := set(args.programs) - work.keys():
            sys.exit(f"fidelity.py: no program {', '.join(sorted(unknown))}; there are {', '.join(work)}")
        print(f"{'program':10}{'threads':>8}{'operations':>12}{'live curve':>12}{'peak live':>12}{'program':>12}{'replay all':>12}{'ratio':>8}{'none':>12}{'ratio':>8}")
        for name, program in work.items():
            if args.programs and name not in args.programs:
                continue
            try:
                r = results[name] = compare(name, program, folder, args.curve_points)
            except Fault as fault:
                sys.exit(f"fidelity.py: {fault}")
            mib = lambda n: f"{n / 2**20:8.2f} MiB"  # noqa: E731
            print(f"{name:10}{r['threads']:8}{r['operations']:12}{'equal' if r['curve_equal'] else 'DIFFERS':>12}{mib(r['peak_live'])}{mib(r['program_rss'])}"
                  f"{mib(r['replay_all'])}{r['replay_all'] / r['program_rss']:8.3f}{mib(r['replay_none'])}{r['replay_none'] / r['program_rss']:8.3f}", flush=True)
            if not r["curve_equal"]:
                wrong.append(name)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(results, indent=1) + "\n")
    if wrong:
        sys.exit(f"fidelity.py: the live bytes of {', '.join(wrong)} differ")


if __name__ == "__main__":
    main()
