# SPDX-License-Identifier: MIT
"""Proof that the preloaded library was the one that served: without it a run proves nothing.

Three witnesses: the dynamic linker says what `malloc` is bound to (each executable, once; of files opened while it runs it may say
that they found it in the C library: see api/dropin_dlopen.c, and tests/api/test_deepbind.c for whose it is then), a server's
map of memory holds the library, and Quarry itself writes a line at the end of each process.
"""
import json
import pathlib
import re
import subprocess
import tempfile

from harness import PATH, Failure, Skip


def opened_later(text):
    """The names of the files that the program opened while it ran, and of what those needed."""
    name = lambda path: path.rsplit("/", 1)[-1]  # noqa: E731
    opened = {name(file) for file in re.findall(r"file=(\S+) \[0\];  dynamically loaded by", text)}
    for file, by in re.findall(r"file=(\S+) \[0\];  needed by (\S+) \[0\]", text):
        if name(by) in opened:
            opened.add(name(file))
    return opened


def interpreter(executable):
    """The program that runs a script, which is what the linker speaks of; any other program is its own."""
    with open(executable, "rb") as file:
        first = file.readline(200)
    words = first[2:].split() if first.startswith(b"#!") else []
    return words[0].decode() if words else executable


class Proof:
    def __init__(self, library, folder, conf, wanted=True):
        self.library = library
        self.seen = set()
        self.reports = None
        self.conf = conf
        self.wanted = wanted  # else: no reports, and the program may have a malloc of its own beside ours
        self.rebinds = library and re.search(rb"\0dlmopen\0", pathlib.Path(library).read_bytes()) is not None  # it has a dlopen of its own
        if library and wanted and b"QUARRY_CONF" in pathlib.Path(library).read_bytes():
            self.reports = pathlib.Path(folder) / "reports"
            self.reports.write_text("")
            self.reports.chmod(0o666)  # servers change their user

    def environment(self):
        if not self.reports:
            return {"QUARRY_CONF": self.conf} if self.conf else {}
        return {"QUARRY_CONF": ",".join(filter(None, [self.conf, f"stats_file:{self.reports}"]))}

    def probe(self, executable, library):
        """Ask the dynamic linker. That the program dislikes --version does not matter."""
        if executable in self.seen:
            return
        with tempfile.TemporaryDirectory() as folder:
            environment = {"PATH": PATH, "LD_PRELOAD": library, "LD_BIND_NOW": "1", "LD_DEBUG": "bindings,files",
                           "LD_DEBUG_OUTPUT": f"{folder}/log"}
            process = subprocess.Popen([executable, "--version"], env=environment, cwd=folder, start_new_session=True,
                                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            # Scripts and wrappers start others; the first process is the one that was asked for.
            log = pathlib.Path(folder, f"log.{process.pid}")
            text = log.read_text(errors="replace") if log.exists() else ""
        bound = set(re.findall(r"binding file (.*) \[0\] to (.*) \[0\]: normal symbol `malloc'", text))
        # The linker names the program as it was called. One that takes the address of malloc may lend
        # its own entry, which jumps to the library, to everybody: that is no malloc of its own.
        if self.rebinds:
            opened = opened_later(text)
            bound = {(file, to) for file, to in bound if not (re.search(r"/libc\.so", to) and file.rsplit("/", 1)[-1] in opened)}
        givers = {to for _, to in bound}
        if ((main := interpreter(executable)), library) in bound:
            givers.discard(main)
        if library not in givers:
            raise Skip(f"needs a program that the library serves: {executable} is not: "
                       + (f"malloc is in {givers.pop()}" if givers else "a static program?"))
        if givers != {library} and self.wanted:
            raise Skip(f"needs one malloc: {executable} uses two: {', '.join(sorted(givers))}")
        self.seen.add(executable)

    def mapped(self, pid, library):
        if library not in pathlib.Path(f"/proc/{pid}/maps").read_text():
            raise Skip(f"needs a process that maps the library: {pid} does not")

    def processes(self):
        """How many processes Quarry reported on since the last call; None if the library is another."""
        if not self.reports:
            return None
        lines = self.reports.read_text().splitlines()
        self.reports.write_text("")
        for line in lines:
            if "live_blocks" not in json.loads(line):
                raise Failure(f"this is no report: {line[:200]}")
        if not lines:
            raise Skip("needs a process that ends with a report: was the library bypassed?")
        return len(lines)
