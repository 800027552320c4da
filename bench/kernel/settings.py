#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the kernel's settings do to each malloc: huge pages, a memory limit, strict overcommit.

  settings.py huge [-n ROUNDS] [--only NAME,...]   transparent huge pages always, madvise, never: time, peak, what an idle program keeps
  settings.py limit [--only NAME,...]              the smallest limit of a control group under which a workload comes to its end
  settings.py overcommit [--only NAME,...]         what is charged where the kernel promises no more than it has, and whether that goes well
  settings.py touch [-n ROUNDS]                    what the first touch of 64 MiB costs by each way the kernel offers
  settings.py --self-test                          prove that charges are read rightly

All change settings of the whole machine, and put them back at the end: as root, on a machine that nobody else uses.
Tables for docs/notes/kernel-settings.md and docs/notes/huge-pages.md go to standard output.
"""
import argparse
import contextlib
import math
import mmap
import os
import pathlib
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from measure import BUILD, Fault, environment, libraries, progress, run_lines  # noqa: E402

PROGRAMS = BUILD / "lib/quarry/bench"
# Programs of bench/scenarios and bench/quick, with what they are told.
WORKLOADS = {
    "list": "list --lists 8 --size 16 --sizes mixed --count 160000 --rounds 30", "tree": "quick/tree", "mixed_medium": "quick/mixed_medium", "large": "quick/large",
    "realloc_growth": "realloc-growth --mode mixed --size 1500M --rounds 1", "phases": "quick/phases",
}
HUGE = pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled")
OVERCOMMIT = pathlib.Path("/proc/sys/vm/overcommit_memory")
MIB = 1 << 20


@contextlib.contextmanager
def setting(path, value):
    """The file has this value meanwhile, and its own afterwards."""
    text = path.read_text().strip()
    before = next(iter(re.findall(r"\[(.+?)\]", text)), text)
    try:
        path.write_text(value)
        yield
    except OSError as error:
        sys.exit(f"settings.py: {path}: {error.strerror}; this needs root")
    finally:
        with contextlib.suppress(OSError):
            path.write_text(before)


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    print("\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]), flush=True)


def command(workload):
    name, *options = WORKLOADS[workload].split()
    return [str(PROGRAMS / name), *options]


def cost(workload, library):
    """(seconds of all phases, peak in KiB)"""
    program, *options = command(workload)
    lines = run_lines(program, library, options)
    return sum(line["seconds"] for line in lines), max(line.get("peak_kib") or line["rss_peak_kib"] for line in lines)


# ---- huge pages -----------------------------------------------------------------------------------

def idle_kept(library):
    """(bytes kept when 90 % are freed, when all are): after two seconds of sleep each."""
    lines = run_lines(str(PROGRAMS / "idle-return"), library, ["--memory", "256M", "--idle", "2000"])
    values = {key: value for line in lines for key, value in line.get("values", {}).items()}
    return values["most_freed_idle_bytes"], values["all_freed_idle_bytes"]


def huge(mallocs, rounds):
    modes = ("never", "madvise", "always")
    samples, order, shuffle = {}, [(mode, w, m) for mode in modes for w in (*WORKLOADS, None) for m in mallocs], random.Random(1)
    for number in range(rounds):
        shuffle.shuffle(order)
        for done, (mode, workload, malloc) in enumerate(order):
            progress(f"round {number + 1} of {rounds}, {done + 1} of {len(order)}: {mode} {workload or 'idle'} {malloc}")
            with setting(HUGE, mode):
                sample = cost(workload, mallocs[malloc]) if workload else idle_kept(mallocs[malloc])
            samples.setdefault((mode, workload, malloc), []).append(sample)
    progress("")

    def median(mode, workload, malloc, which):
        return statistics.median(sample[which] for sample in samples[mode, workload, malloc])

    def mean(mode, malloc, which):
        ratios = [math.log(median(mode, w, malloc, which) / median("never", w, malloc, which)) for w in WORKLOADS]
        return f"{math.exp(statistics.fmean(ratios)):.2f}"

    head = ["", *[f"{what}: {mode}" for what in ("time ÷ never", "peak RSS ÷ never") for mode in modes[1:]],
            *[f"idle, {what} freed, MiB: {mode}" for what in ("90 %", "all") for mode in modes]]
    table(head, [[malloc, *[mean(mode, malloc, which) for which in (0, 1) for mode in modes[1:]],
                  *[f"{median(mode, None, malloc, which) / MIB:.0f}" for which in (0, 1) for mode in modes]] for malloc in mallocs])


# ---- a first touch --------------------------------------------------------------------------------

# What is shown, the way of touch.c, and the setting of 64 KiB pages meanwhile.
TOUCHES = (("small pages", "small", "never"), ("`MADV_HUGEPAGE` before the first touch", "huge", "never"),
           ("64 KiB pages (`hugepages-64kB/enabled` at `madvise`, that of 2 MiB at `never`)", "huge", "madvise"),
           ("`MADV_POPULATE_WRITE`, 64 KiB at a time", "parts", "never"), ("`MADV_POPULATE_WRITE`, all at once", "populate", "never"),
           ("`MADV_COLLAPSE` after the touches", "collapse", "never"))
SOME = HUGE.parent / "hugepages-64kB/enabled"


def build_touch(program):
    subprocess.run(["cc", "-O2", "-o", program, pathlib.Path(__file__).with_name("touch.c")], check=True)


def touched(program, way, mib):
    """(page faults, ms of processor time) of the first touch of so much memory."""
    done = subprocess.run([program, way, str(mib)], capture_output=True, text=True)
    if done.returncode:
        raise Fault(f"touch {way}: {done.stderr.strip()}")
    faults, ms = done.stdout.split()
    return int(faults), float(ms)


def touch(rounds):
    shown = [row for row in TOUCHES if row[2] == "never" or SOME.exists()]
    with tempfile.TemporaryDirectory() as folder:
        program, samples, shuffle = f"{folder}/touch", {row: [] for row in shown}, random.Random(1)
        build_touch(program)
        for number in range(rounds):
            for row in shuffle.sample(shown, len(shown)):
                what, way, some = row
                progress(f"round {number + 1} of {rounds}: {what}")
                with setting(HUGE, "never" if some == "madvise" else "madvise"), setting(SOME, some) if SOME.exists() else contextlib.nullcontext():
                    samples[row].append(touched(program, way, 64))
    progress("")

    def spread(values):
        return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"
    table(["way", "page faults", "ms"], [[row[0], f"{statistics.median(f for f, _ in samples[row]):,.0f}", spread([ms for _, ms in samples[row]])]
                                         for row in shown])


# ---- a limit --------------------------------------------------------------------------------------

class Group:
    """A control group with a limit; of the kernel's first or second kind."""

    def __init__(self):
        for root, limit, swap in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.swappiness"), ("/sys/fs/cgroup", "memory.max", "memory.swap.max")):
            self.folder = pathlib.Path(root, f"quarry-{os.getpid()}")
            with contextlib.suppress(OSError):
                self.folder.mkdir()
                if (self.folder / limit).exists():
                    self.limit = self.folder / limit
                    with contextlib.suppress(OSError):  # there may be no swap at all
                        (self.folder / swap).write_text("0")
                    return
                self.folder.rmdir()
        sys.exit("settings.py: no control group for memory can be made here; this needs root")

    def run(self, command, library, limit, seconds):
        """Seconds that it took, or None: it was killed, failed or took too long."""
        self.limit.write_text(str(limit))
        inside = f"echo $$ > {self.folder}/cgroup.procs && exec \"$0\" \"$@\""
        started = time.monotonic()
        with contextlib.suppress(subprocess.TimeoutExpired):
            done = subprocess.run(["sh", "-c", inside, *command], env=environment(library), capture_output=True, timeout=seconds)
            return None if done.returncode else time.monotonic() - started
        return None

    def close(self):
        for _ in range(50):
            with contextlib.suppress(OSError):
                return self.folder.rmdir()
            time.sleep(0.1)


def smallest(group, workload, library):
    """(peak RSS without a limit, smallest limit, time under it, time without). The limit is right to 2 %."""
    free, peak = cost(workload, library)
    high = peak * 1024 * 5 // 4
    patience = 20 * free + 2
    took = group.run(command(workload), library, high, patience)
    if took is None:
        raise Fault(f"{workload}: not even {high} bytes are enough")
    low = high // 8
    while high - low > high // 50:
        middle = (low + high) // 2
        seconds = group.run(command(workload), library, middle, patience)
        low, high, took = (middle, high, took) if seconds is None else (low, middle, seconds)
    return peak / 1024, high / MIB, took, free


def limit(mallocs):
    group = Group()
    try:
        rows = []
        for workload in ("tree", "mixed_medium", "phases"):
            for malloc, library in mallocs.items():
                progress(f"{workload} {malloc}")
                peak, least, took, free = smallest(group, workload, library)
                rows.append([workload, malloc, f"{peak:.1f}", f"{least:.1f}", f"{took / free:.1f}"])
        progress("")
        table(["", "malloc", "peak RSS, MiB", "smallest limit, MiB", "time ÷ without"], rows)
    finally:
        group.close()


# ---- overcommit -----------------------------------------------------------------------------------

def charged(pid):
    """Bytes of the process that count against the kernel's limit in strict mode."""
    total = size = 0
    for line in pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if line.startswith("Size:"):
            size = int(line.split()[1]) * 1024
        elif line.startswith("VmFlags:") and "ac" in line.split():
            total += size
    return total


def watch(command, library):
    """(highest charge seen, status) of a run; it is looked at every 2 ms, and at the end of its work."""
    process = subprocess.Popen(command, env=environment(library), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    most = 0
    while process.poll() is None:
        with contextlib.suppress(OSError):
            most = max(most, charged(process.pid))
        time.sleep(0.002)
    return most, process.returncode


def overcommit(mallocs):
    rows = []
    with setting(OVERCOMMIT, "2"):
        for malloc, library in mallocs.items():
            progress(malloc)
            cells = []
            for words in (["sleep", "0.2"], command("tree"), command("phases"), command("large")):
                most, status = watch(words, library)
                cells.append(f"{most / MIB:.1f}" if status == 0 else "fails")
            peaks = [f"{cost(w, library)[1] / 1024:.1f}" for w in ("tree", "phases", "large")]
            rows.append([malloc, cells[0], *[f"{cell} ({peak})" for cell, peak in zip(cells[1:], peaks)]])
    progress("")
    table(["charged, MiB (peak RSS)", "sleep", "tree", "phases", "large"], rows)


# ---- the command ----------------------------------------------------------------------------------

def self_test():
    # The reader is the process that is read: what it holds for the reading itself comes and goes between two looks.
    slack = 4 * MIB
    before = charged("self")
    with mmap.mmap(-1, 64 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS):
        more = charged("self") - before
        assert abs(more - 64 * MIB) < slack, more
    with mmap.mmap(-1, 64 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ):
        more = charged("self") - before
        assert abs(more) < slack, more
    most, status = watch([sys.executable, "-c", "import time; a = bytearray(100 << 20); time.sleep(3)"], None)
    assert status == 0 and most > 100 * MIB, (most, status)
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/touch"
        build_touch(program)
        faults, ms = touched(program, "small", 8)
        assert 0 < faults <= 8 * 256 + 64 and ms > 0, (faults, ms)
        try:
            touched(program, "never", 8)
        except Fault as fault:
            assert "usage" in str(fault), fault
        else:
            raise AssertionError("a way that there is not was taken")
    print("self-test: charges and touches are read rightly")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS)
    parser.add_argument("what", nargs="?", choices=("huge", "limit", "overcommit", "touch"), help=argparse.SUPPRESS)
    parser.add_argument("-n", type=int, default=3, help=argparse.SUPPRESS)
    parser.add_argument("--only", help=argparse.SUPPRESS)
    parser.add_argument("--self-test", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.self_test:
        return self_test()
    if not args.what or args.n < 1:
        sys.exit("settings.py: huge, limit, overcommit or touch; --help tells more")
    signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGINT))  # put everything back then too
    mallocs = libraries([])
    if args.only:
        names = args.only.split(",")
        if missing := [name for name in names if name not in mallocs]:
            sys.exit(f"settings.py: not found: {', '.join(missing)}; found: {', '.join(mallocs)}")
        mallocs = {name: mallocs[name] for name in names}
    try:
        {"huge": lambda: huge(mallocs, args.n), "limit": lambda: limit(mallocs), "overcommit": lambda: overcommit(mallocs), "touch": lambda: touch(args.n)}[args.what]()
    except Fault as fault:
        print(f"FAILED: {fault}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
