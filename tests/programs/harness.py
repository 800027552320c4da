# SPDX-License-Identifier: MIT
"""What the programs of cases/ are written with: @program, and the Box each of them runs in.

A program is a function that gets a Box and does with it what a user would do: run commands, start
servers, write files. It runs once on the system's malloc and then with the library preloaded. All
that a Box observes (exit status, standard output, files named with result()) must be the same.
"""
import collections
import contextlib
import ctypes
import hashlib
import os
import pathlib
import pwd
import re
import resource
import shutil
import signal
import socket
import subprocess
import threading
import time

PATIENCE = 5  # times as long as a program is given is waited on a machine that is busy: a limit only ends a hang
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SOURCE = pathlib.Path(os.environ.get("QUARRY_SOURCE_DIR") or pathlib.Path(__file__).resolve().parents[2])

Program = collections.namedtuple("Program", "name function needs torture modes reports", defaults=(False, True))
PROGRAMS = {}


class Skip(Exception):
    """This program says nothing here, because ..."""


class Failure(Exception):
    """The library is at fault, or seems to be."""


def program(needs, torture=False, modes=False, reports=True):
    """Register a program. needs: {command or path: the Debian package that has it}. modes: run it in those of modes.py, too.
    reports: false if its processes are killed, if a filter of its own does not let them write a report of their memory as they end, or
    if the program has a malloc of its own besides."""
    def register(function):
        PROGRAMS[function.__name__] = Program(function.__name__, function, needs, torture, modes, reports)
        return function
    return register


def which(command):
    return shutil.which(command, path=PATH)


def text_file(path, lines, seed=1):
    """Write lines of words that compress as prose does; the same for the same arguments."""
    state, words = seed, []
    for _ in range(2000):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        words.append(f"{state >> 40:x}"[:2 + (state >> 33) % 7])
    with open(path, "w") as file:
        for _ in range(lines):
            line = []
            for _ in range(12):
                state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
                line.append(words[((state >> 33) % 45) ** 2 % 2000])
            file.write(" ".join(line) + "\n")
    return path


# ---- processes ----------------------------------------------------------------------------------

def adopt_orphans():
    """Make orphans of our children ours, so that none gets away, and let nobody dump core."""
    pr_set_child_subreaper = 36
    if ctypes.CDLL(None, use_errno=True).prctl(pr_set_child_subreaper, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def process_table():
    """{pid: (parent, session)} of all processes."""
    table = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                fields = pathlib.Path("/proc", entry, "stat").read_text(errors="replace").rpartition(")")[2].split()
                table[int(entry)] = int(fields[1]), int(fields[3])
    return table


def descendants(session=None):
    """Our children and theirs; only those of one session if it is given."""
    table, ours = process_table(), {os.getpid()}
    grew = True
    while grew:
        more = {pid for pid, (parent, _) in table.items() if parent in ours} - ours
        ours |= more
        grew = bool(more)
    return [pid for pid in ours - {os.getpid()} if session in (None, table[pid][1])]


def kill(pids):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def kill_descendants(session=None):
    """Until there are none. Reaps what it kills: the leader of the session must have been waited for."""
    deadline = time.monotonic() + 10 * PATIENCE
    while (left := descendants(session)) and time.monotonic() < deadline:
        kill(left)
        for pid in left:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.01)


def status_word(status):
    code = os.waitstatus_to_exitcode(status)
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"


def digest(path):
    """Short files as they are, others by their hash. Never all in memory: the peak that the kernel
    reports of a child starts with the memory of the process that started it, which is this one."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        if size < 300:
            return file.read().decode(errors="replace")
        return f"{size} bytes, sha256 {hashlib.file_digest(file, 'sha256').hexdigest()[:16]}"


class Done:
    """What a command said, in two files."""

    def __init__(self, out, err):
        self.out, self.err = pathlib.Path(out.name), pathlib.Path(err.name)

    def text(self, start=None):
        return self.out.read_text(errors="replace")[start:]

    def errors(self, start=None):
        return self.err.read_text(errors="replace")[start:]


class Box:
    """An empty folder, a clean environment, the malloc to run with (None: the system's), and how (None: as it is; see modes.py)."""

    def __init__(self, folder, library, proof, mode=None):
        self.dir = pathlib.Path(folder)
        self.library, self.proof, self.mode = library, proof, mode
        self.observed = []   # (of what, value)
        self.peak_kib = 0
        self.serial = 0
        self.environment = {
            "PATH": PATH, "HOME": str(self.dir), "TMPDIR": str(self.dir), "LANG": "C.UTF-8", "TZ": "UTC"}
        if preload := [*(mode.preload if mode else []), *([library] if library else [])]:
            self.environment["LD_PRELOAD"] = ":".join(preload)
        if library:
            self.environment.update(proof.environment())
        if mode:
            self.environment.update(mode.environment())

    # -- what is compared

    def record(self, what, value):
        self.observed.append((what, value))

    def result(self, *names):
        """The contents of these files must be the same, and there must be some."""
        for name in names:
            path = self.dir / name
            if not path.exists() or not path.stat().st_size:
                raise Failure(f"{name} is empty, or not there")
            self.record(f"file {name}", digest(path))

    # -- commands

    def start(self, argv, stdin, env, user, out, err):
        path = which(argv[0])
        if not path:
            raise Skip(f"needs {argv[0]}")
        if self.library:
            self.proof.probe(path, self.library)
        identity = {}
        if user:
            entry = pwd.getpwnam(user)
            identity = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
        command = [path, *argv[1:]]
        if self.mode:
            command = self.mode.argv(self.serial, path, argv[1:])
        return subprocess.Popen([str(word) for word in command], cwd=self.dir, stdin=stdin, stdout=out, stderr=err,
                                env={**self.environment, **env}, start_new_session=True, **identity)

    def streams(self):
        self.serial += 1
        return [open(self.dir / f".{kind}{self.serial}", "w+b") for kind in ("out", "err")]

    def run(self, *argv, stdin=None, env=None, user=None, timeout=60, stdout=True, may_fail=False, ours=False):
        """Run to the end. stdout: compare it: as it is (True), not at all (False), or what a function
        of the text returns. may_fail: the exit status is compared, but need not be 0. ours: what it
        works on is Quarry's own, so it must go well on the system's malloc too."""
        name = pathlib.Path(argv[0]).name
        source = open(stdin, "rb") if stdin else subprocess.DEVNULL
        out, err = self.streams()
        with out, err, source if stdin else contextlib.nullcontext():
            process = self.start(argv, source, env or {}, user, out, err)
            late = threading.Event()

            def stop():
                late.set()
                kill(descendants(process.pid))

            timer = threading.Timer(timeout * PATIENCE, stop)
            timer.daemon = True  # an end by a signal does not wait for it
            timer.start()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            timer.cancel()
            timer.join()
            if self.mode:
                self.mode.ended()
            kill_descendants(process.pid)
            done = Done(out, err)
        self.peak_kib = max(self.peak_kib, usage.ru_maxrss)
        if late.is_set():
            self.wrong(argv, f"not done after {timeout * PATIENCE:.0f} s", done, ours)
        self.listen(argv, done)
        if status and not may_fail:
            self.wrong(argv, status_word(status), done, ours)
        self.record(f"{name}: ends with", status_word(status))
        if callable(stdout):
            self.record(f"{name}: prints", stdout(done.text()))
        elif stdout:
            self.record(f"{name}: prints", digest(done.out))
        return done

    def wrong(self, argv, what, done, ours=False):
        """A command went wrong. On the system's malloc, that is no news of the library, unless what
        went wrong is ours."""
        command = " ".join(map(str, argv))
        tail = "".join(f"\n    | {line}" for line in (done.text(-1500) + done.errors(-3000)).splitlines()[-25:])
        text = f"{command[:200]}: {what}{tail}"
        if self.library:
            raise Failure(text)
        text = "needs a program that goes right on the system malloc: " + text
        raise Failure(text) if ours else Skip(text)

    def listen(self, argv, done):
        """A word from the library is a fault it found, or a warning: both are wrong here."""
        if self.library and (lines := re.findall(r"^quarry: .*$", done.errors(), re.M)):
            raise Failure(f"{argv[0]}: {lines[0]}")

    # -- servers

    def port(self):
        """A free odd port of the loopback interface."""
        for _ in range(200):
            with socket.socket() as s:
                s.bind(("127.0.0.1", 0))
                if s.getsockname()[1] % 2:
                    return s.getsockname()[1]
        raise Skip("needs a free odd port")

    @contextlib.contextmanager
    def server(self, *argv, port, env=None, user=None, timeout=30, stop=signal.SIGTERM, statuses=(0,)):
        """A server that stays in the foreground: wait until it listens, see that the library is mapped,
        and after the block ask it to end, which it must do with one of these statuses."""
        out, err = self.streams()
        with out, err:
            process = self.start(argv, subprocess.DEVNULL, env or {}, user, out, err)

            done = Done(out, err)
            try:
                self.await_port(process, port, timeout, argv, done)
                if self.library:
                    self.proof.mapped(process.pid, self.library)
                yield process
                if process.poll() is not None:
                    self.wrong(argv, "ended before it was asked to", done)
                with open(f"/proc/{process.pid}/status") as file:
                    high_water = re.search(r"VmHWM:\s*(\d+)", file.read())
                self.peak_kib = max(self.peak_kib, int(high_water.group(1)))
                if self.mode:
                    self.mode.ended([process.pid, *descendants(process.pid)])
                process.send_signal(stop)
                try:
                    status = process.wait(timeout * PATIENCE)
                except subprocess.TimeoutExpired:
                    self.wrong(argv, f"does not end within {timeout * PATIENCE} s", done)
                if self.mode:
                    self.mode.ended()
                self.listen(argv, done)
                if status not in statuses:
                    self.wrong(argv, f"status {status} at its end", done)
                self.record(f"{argv[0]}: ends with", status)
            finally:
                process.poll() is None and process.kill()
                process.wait()
                kill_descendants(process.pid)

    def await_port(self, process, port, timeout, argv, done):
        deadline = time.monotonic() + timeout * PATIENCE
        while time.monotonic() < deadline:
            if process.poll() is not None:
                self.wrong(argv, f"ends at once, status {process.returncode}", done)
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), PATIENCE).close()
                return
            time.sleep(0.02)
        self.wrong(argv, f"does not listen after {timeout * PATIENCE} s", done)
