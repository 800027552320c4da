# SPDX-License-Identifier: MIT
"""Ways of running a program that are harder than a plain preload: under a filter that knows only what glibc
needs, and within an address space that the program limits itself.

  filter   What calls each command makes on the system's malloc is recorded with strace. Those are allowed, and what
           docs/design.md promises of the heap; every other call is answered ENOSYS, and in a second run EPERM.
  limit    What address space the commands have on the system's malloc is measured. They get that and 64 MiB, by a
           limit that a constructor sets after the program's start.

A run in a mode must show what a plain run on the system's malloc shows. If it does not, the system's malloc is
tried in the mode: where that fails as well, the program says nothing in this mode.
"""
import contextlib
import errno
import os
import pathlib
import platform
import re
import struct
import time

from harness import PATIENCE, Failure, Skip, descendants, which

BUILD = pathlib.Path(os.environ.get("QUARRY_BUILD_DIR") or pathlib.Path(__file__).resolve().parents[2] / "build") / "tests/programs"
ROOM_MIB = 64

# x86-64 numbers. What is promised of the heap, what starts and ends a program, and what the kernel makes of other calls by chance.
PROMISED = {"read": 0, "write": 1, "mmap": 9, "munmap": 11, "mprotect": 10, "mremap": 25, "madvise": 28, "futex": 202}
ALWAYS = {"execve": 59, "exit": 60, "exit_group": 231, "rt_sigreturn": 15, "restart_syscall": 219, "brk": 12}
BY_CHANCE = {"sched_yield": 24, "nanosleep": 35, "clock_nanosleep": 230, "poll": 7, "rt_sigprocmask": 14, "rt_sigaction": 13,
             "wait4": 61, "kill": 62, "tgkill": 234, "close": 3, "sigaltstack": 131}

ALLOW, ERRNO = 0x7FFF0000, 0x00050000  # SECCOMP_RET_*


def program_of(calls, answer):
    """A filter: these calls are allowed, all others get the answer."""
    load, equal, result = 0x20, 0x15, 0x06  # BPF_LD|W|ABS, BPF_JMP|JEQ|K, BPF_RET|K
    code = [(load, 0, 0, 0)]
    for number in sorted(calls):
        code += [(equal, 0, 1, number), (result, 0, 0, ALLOW)]
    return b"".join(struct.pack("HBBI", *step) for step in [*code, (result, 0, 0, ERRNO | answer)])


class Mode:
    """What Box asks for each command that it starts. This one changes nothing."""
    name = "plain"
    preload = ()

    def environment(self):
        return {}

    def argv(self, serial, path, arguments):
        return [path, *arguments]

    def ended(self, pids=()):
        """A command has ended, or a server with these processes is about to."""


class Record(Mode):
    """Which calls does each command make?"""
    name = "recorded"

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir(exist_ok=True)
        folder.chmod(0o777)  # servers change their user
        if platform.machine() != "x86_64" or not which("strace"):
            raise Skip("needs strace on x86-64")

    def argv(self, serial, path, arguments):
        # -D: the program is our child, not strace's.
        return [which("strace"), "-D", "-f", "-n", "-qq", "-s0", "-esignal=none", "-eraw=all", "-o", self.folder / str(serial), path, *arguments]

    def ended(self, pids=()):
        """strace writes its file after the program's end."""
        deadline = time.monotonic() + (10 * PATIENCE if not pids else 0)
        while time.monotonic() < deadline and any(runs_strace(pid) for pid in descendants()):
            time.sleep(0.01)

    def calls(self):
        """{serial: numbers}"""
        return {int(file.name): {int(n) for n in re.findall(rb"^(?:\d+ +)?\[ *(\d+)\]", file.read_bytes(), re.M)}
                for file in self.folder.iterdir() if file.name.isdigit()}


def runs_strace(pid):
    """It is an orphan, and so is left to us when it has ended."""
    try:
        name, state = re.search(r"\((.*)\) (.)", pathlib.Path(f"/proc/{pid}/stat").read_text()).groups()
    except OSError:
        return False
    if name == "strace" and state == "Z":
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        return False
    return name == "strace"


class Filter(Mode):
    def __init__(self, folder, calls, answer):
        self.name = f"filter, {errno.errorcode[answer]}"
        self.folder, self.calls, self.answer = folder, calls, answer
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)
        if not (BUILD / "under").exists():
            raise Skip("needs build/tests/programs/under")

    def argv(self, serial, path, arguments):
        # Whichever number a command has, it has it in each run. One that came later for lack of time gets what all had.
        known = self.calls.get(serial) or set().union(*self.calls.values())
        file = self.folder / str(serial)
        file.write_bytes(program_of(known | set({**PROMISED, **ALWAYS, **BY_CHANCE}.values()), self.answer))
        return [BUILD / "under", file, path, *arguments]


class Measure(Mode):
    """How much address space do the commands have?"""
    name = "measured"

    def __init__(self, file):
        self.file, self.most_kib = file, 0
        file.write_text("")
        file.chmod(0o666)
        self.preload = preloaded()

    def environment(self):
        return {"FIELD_NEED": str(self.file)}

    def ended(self, pids=()):
        for pid in pids:
            try:
                self.note(pathlib.Path(f"/proc/{pid}/status").read_text())
            except OSError:
                continue

    def note(self, text):
        self.most_kib = max([self.most_kib, *(int(n) for n in re.findall(r"VmPeak:\s*(\d+)", text))])

    def need_mib(self):
        self.note(self.file.read_text())
        if not self.most_kib:
            raise Skip("needs a process that tells its address space")
        return self.most_kib // 1024 + 1


class Limit(Mode):
    def __init__(self, mib):
        self.name, self.bytes = f"limit of {mib} MiB", mib << 20
        self.preload = preloaded()

    def environment(self):
        return {"FIELD_LIMIT": str(self.bytes)}


def preloaded():
    if not (BUILD / "limited.so").exists():
        raise Skip("needs build/tests/programs/limited.so")
    return (str(BUILD / "limited.so"),)


def modes(folder, once):
    """Each mode, from what once(mode) shows on the system's malloc."""
    recorded = Record(folder / "calls")
    once(recorded)
    calls = recorded.calls()
    if not calls:
        raise Skip("needs a strace that records")
    for answer in (errno.ENOSYS, errno.EPERM):
        yield Filter(folder / "filters", calls, answer)
    measured = Measure(folder / "need")
    once(measured)
    yield Limit(measured.need_mib() + ROOM_MIB)


def check(folder, expected, once, compare):
    """Run in every mode, with once(mode, preload?) as the run; the names of those that say something, and why others do not."""
    good, silent = [], []
    try:
        for mode in modes(folder, lambda mode: once(mode, False)):
            try:
                compare(expected, once(mode, True))
                good.append(mode.name)
            except (Failure, Skip) as fault:
                try:
                    compare(expected, once(mode, False))
                except (Failure, Skip) as also:
                    silent.append(f"{mode.name}: on the system malloc too: {str(also).splitlines()[0][:150]}")
                    continue
                raise Failure(f"{mode.name}: {fault}") from fault
    except Skip as reason:
        silent.append(str(reason))
    return good, silent
