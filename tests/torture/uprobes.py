#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Uprobes on libc's munmap, madvise and mremap see all memory that goes back: each such call that the kernel got came by libc's function.

The kernel writes both to one trace: its own entry of each system call, and that of the probe before it. Counted is what lies where the
program had blocks: libc and the loader unmap files and stacks of their own. The removal of a mapping, or of a part of it, that the same
thread has just made takes nothing from the program. Exit 77 where there are no uprobes, or no right to set them.
"""
import os
import pathlib
import re
import subprocess
import sys

TRACING = pathlib.Path("/sys/kernel/tracing")
GROUP = f"quarry_{os.getpid()}"
CALLS = ("munmap", "madvise", "mremap")
PROGRAM = "uprobe_case"
GOES = (4, 8)  # MADV_DONTNEED, MADV_FREE: other advice takes no page away
MREMAP_FIXED = 2
PIECE = 2 << 20
FREED = 8 * 200 << 20  # by the program, of huge objects alone


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def libc_and_offsets(program):
    """The libc that the program loads, and where its functions begin in the file."""
    listing = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    libc = os.path.realpath(re.search(r"libc\.so\.6 => (\S+)", listing)[1])
    symbols = subprocess.run(["nm", "-D", libc], capture_output=True, text=True, check=True).stdout
    return libc, {call: int(re.search(rf"^([0-9a-f]+) \w {call}@", symbols, re.M)[1], 16) for call in CALLS}


def command(line):
    """Append a line to the list of all uprobes. (Python's own way to append seeks first, which this file refuses.)"""
    file = os.open(TRACING / "uprobe_events", os.O_WRONLY | os.O_APPEND)
    try:
        os.write(file, line.encode() + b"\n")
    finally:
        os.close(file)


class Probes:
    """Probes of our own group in an instance of our own, which others that trace do not see."""

    def __init__(self, libc, offsets):
        self.instance = TRACING / "instances" / GROUP
        self.libc, self.offsets = libc, offsets

    def __enter__(self):
        try:
            self.instance.mkdir()
            for call, offset in self.offsets.items():
                command(f"p:{GROUP}/{call} {self.libc}:{offset:#x} a=%di n=%si third=%dx fourth=%cx")
            (self.instance / "buffer_size_kb").write_text("16384")
            (self.instance / "options/event-fork").write_text("1")
            for call in CALLS:
                (self.instance / "events" / GROUP / call / "enable").write_text("1")
            for event in [f"enter_{call}" for call in CALLS] + ["enter_mmap", "exit_mmap"]:
                (self.instance / "events/syscalls" / f"sys_{event}" / "enable").write_text("1")
        except OSError as error:
            self.__exit__()
            skip(f"uprobes cannot be set here ({error})")
        return self

    def __exit__(self, *_):
        for event in self.instance.glob("events/*/*/enable"):
            if event.read_text().strip() != "0":
                event.write_text("0")
        try:
            self.instance.rmdir()
            for call in CALLS:
                command(f"-:{GROUP}/{call}")
        except OSError:
            pass

    def run(self, program, env):
        """Its output, with events of it and its threads alone: each line of the trace has a number, names are forgotten."""
        def watch():
            (self.instance / "set_event_pid").write_text(str(os.getpid()))
        return subprocess.run([program], capture_output=True, text=True, env=env, preexec_fn=watch, check=True).stdout

    def lines(self):
        return [line for line in (self.instance / "trace").read_text().splitlines() if not line.startswith("#")]


def parse(lines):
    """(thread, kind, call, numbers) in the order in which they were written. Kind: probe, enter or exit."""
    for line in lines:
        thread = line.split("[")[0].strip().rsplit("-")[-1]
        if found := re.search(r": sys_(\w+) -> (0x[0-9a-f]+)", line):
            yield thread, "exit", found[1], [int(found[2], 16)]
        elif found := re.search(r": sys_(\w+)\((.*)\)", line):
            yield thread, "enter", found[1], [int(number, 16) for number in re.findall(r": (0x[0-9a-f]+|[0-9a-f]+)", found[2])]
        elif found := re.search(r": (\w+): \(0x\w+\) (.*)", line):
            yield thread, "probe", found[1], [int(number, 16) for number in re.findall(r"=(0x[0-9a-f]+)", found[2])]


def takes_away(call, numbers, made, pieces):
    """Does this call take pages from the program's blocks? `made`: begin and length of what the thread mapped last."""
    if pieces.isdisjoint(range(numbers[0] // PIECE, (numbers[0] + numbers[1] - 1) // PIECE + 1)):
        return False
    if call == "madvise":
        return numbers[2] in GOES
    if call == "mremap":
        return bool(numbers[3] & MREMAP_FIXED)
    return not made[0] <= numbers[0] <= numbers[0] + numbers[1] <= made[0] + made[1]


def look(events, pieces):
    """Bytes that were taken away, and the calls that no probe saw."""
    probed, length, made, unseen, gone = {}, {}, {}, [], 0
    for thread, kind, call, numbers in events:
        if kind == "probe":
            probed[thread] = (call, numbers[:2])
        elif call == "mmap" and kind == "enter":
            length[thread] = numbers[1]
        elif call == "mmap":
            made[thread] = (numbers[0], length.get(thread, 0))
        elif takes_away(call, numbers, made.get(thread, (0, 0)), pieces):
            gone += numbers[1]
            if probed.get(thread) != (call, numbers[:2]):
                unseen.append(f"thread {thread}: {call}({', '.join(map(hex, numbers))})")
    return gone, unseen


def main():
    if os.uname().machine != "x86_64":
        skip("the arguments' registers are those of x86-64")
    if not (TRACING / "uprobe_events").exists():
        subprocess.run(["mount", "-t", "tracefs", "nodev", TRACING], capture_output=True, check=False)
    if not (TRACING / "uprobe_events").exists():
        skip("this kernel has no uprobes, or they may not be used here")
    build = pathlib.Path(os.environ["QUARRY_BUILD_DIR"])
    program = build / "tests/torture" / PROGRAM
    with Probes(*libc_and_offsets(program)) as probes:
        pieces = probes.run(program, os.environ | {"LD_PRELOAD": str(build / "lib/libquarry-malloc.so")})
        events = list(parse(probes.lines()))
    gone, unseen = look(events, {int(line, 16) for line in pieces.split()})
    print(f"{len(events)} events; {gone >> 20} MiB were taken away, {len(unseen)} times unseen by a probe")
    if gone < FREED:
        sys.exit("less went back than the program freed: the trace is not whole")
    if unseen:
        sys.exit("\n".join(unseen[:10]))


if __name__ == "__main__":
    main()
