# SPDX-License-Identifier: MIT
"""One run of the suite under one malloc: a fresh process in a fresh folder, and what it cost.

GNU time starts the program, since what the kernel calls the peak of a process begins with the memory of the one that started it,
and this interpreter is larger than many of the programs. What is measured so begins at the 1.5 MiB or so of `time` and `env`.
"""
import collections
import contextlib
import hashlib
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from measure import BUILD, Fault, environment  # noqa: E402

Malloc = collections.namedtuple("Malloc", "path variables", defaults=({},))


def gnu_time():
    """Its path, or None."""
    found = shutil.which("time")
    return found if found and b"GNU" in subprocess.run([found, "--version"], capture_output=True).stdout else None


def pin_library():
    """What --pin preloads (pin.c)."""
    path = BUILD / "lib" / "quarry" / "suite" / "pin.so"
    if not path.exists():
        raise Fault(f"--pin needs {path}: make bench-suite builds it")
    return str(path)


class Launcher:
    """Starts runs; keeps the copies that some of them work in. `also` is preloaded after the malloc."""

    def __init__(self, place, limit, also=None):
        self.place, self.limit, self.also = place, limit, also
        self.time = gnu_time()
        self.processors = sorted(os.sched_getaffinity(0))
        self.copies = tempfile.TemporaryDirectory(prefix="quarry-suite-")
        if not self.time:
            raise Fault("needs GNU time (package `time`)")

    def measure(self, run, malloc):
        """{seconds, elapsed, cpu, peak_kib, faults, output} of one run."""
        with tempfile.TemporaryDirectory(prefix="quarry-suite-") as here:
            more = {"here": here, "port": free_port() if run.server else 0}
            folder = self.copy(run.copy) if run.copy else run.folder or here
            if run.before:
                subprocess.run(self.place.words(run.before), cwd=folder, capture_output=True, timeout=self.limit, check=True)
            command = self.place.words(run.command, **more)
            if run.server:
                return self.measure_server(run, malloc, command, here, more)
            started = time.monotonic()
            process, cost = self.start(run, command, malloc, folder, here)
            usage = self.end(process, run.name)
            elapsed = time.monotonic() - started
            return sample(run, elapsed, usage, cost, pathlib.Path(here, "out").read_text(errors="replace"))

    def measure_server(self, run, malloc, client, here, more):
        process, cost = self.start(run, self.place.words(run.server, **more), malloc, here, here)
        ready, stop = self.place.words(run.ready, **more), self.place.words(run.stop, **more)
        try:
            deadline = time.monotonic() + 10
            while self.client(ready, check=False).returncode:
                if time.monotonic() > deadline or process.poll() is not None:
                    raise Fault("the server does not answer")
                time.sleep(0.02)
            started = time.monotonic()
            output = self.client(client, check=True).stdout
            elapsed = time.monotonic() - started
            self.client(stop, check=False)
        except (subprocess.SubprocessError, Fault) as error:
            kill_group(process)
            process.wait()
            raise Fault(f"{run.name}: {error}") from None
        return sample(run, elapsed, self.end(process, run.name), cost, output)

    def client(self, command, check):
        return subprocess.run(command, env=environment(None), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=self.limit, check=check)

    def start(self, run, command, malloc, folder, here):
        """The program under GNU time, in a group of its own. With one thread it gets one processor, the last."""
        cost, alone = pathlib.Path(here, "cost"), not run.threads
        stdin = self.place.file(run.stdin) if run.stdin else os.devnull
        preload = ":".join(path for path in (malloc.path, self.also) if path)
        settings = [f"{name}={value}" for name, value in (*run.env, *malloc.variables.items())] + ([f"LD_PRELOAD={preload}"] if preload else [])
        words = [self.time, "-f", "%M %F %R", "-o", str(cost), "env", *settings, *command]
        with open(pathlib.Path(here, "out"), "wb") as out, open(stdin, "rb") as source, self.on(self.processors[-1:] if alone else self.processors):
            return subprocess.Popen(words, cwd=folder, env=environment(None), stdin=source, stdout=out, stderr=subprocess.STDOUT, start_new_session=True), cost

    @contextlib.contextmanager
    def on(self, processors):
        # Handed down to what is started; set here, since a preexec_fn would make a copy of this interpreter first.
        os.sched_setaffinity(0, processors)
        try:
            yield
        finally:
            os.sched_setaffinity(0, self.processors)

    def end(self, process, name):
        """The kernel's account of the process and its children."""
        def too_long(_number, _frame):
            kill_group(process)

        previous = signal.signal(signal.SIGALRM, too_long)
        signal.setitimer(signal.ITIMER_REAL, self.limit)
        started = time.monotonic()
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            kill_group(process)
            process.wait()
            raise
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, previous)
        process.returncode = os.waitstatus_to_exitcode(status)
        if time.monotonic() - started >= self.limit:
            raise Fault(f"{name}: not done after {self.limit:g} s")
        if process.returncode:
            raise Fault(f"{name}: status {process.returncode}")
        return usage

    def copy(self, name):
        """The suite's folder stays as it is: what is worked on is a copy."""
        target = pathlib.Path(self.copies.name, name.replace("/", "_"))
        if not target.exists():
            shutil.copytree(self.place.file(name), target, symlinks=True)
        return target


def sample(run, elapsed, usage, cost, output):
    if run.result and not re.search(run.result, output):
        raise Fault(f"{run.name}: no '{run.result}' in what it printed: {output[-200:]!r}")
    if run.says and not re.search(run.says, output):
        raise Fault(f"{run.name}: no '{run.says}' in what it printed: {output[-200:]!r}")
    figure, also = elapsed, {}
    if run.figure:
        found = re.search(run.figure, output)
        if not found or float(found[1]) <= 0:
            raise Fault(f"{run.name}: no '{run.figure}' in what it printed: {output[-200:]!r}")
        figure = run.work / float(found[1]) if run.work else float(found[1])
    for measure, pattern in run.also:
        found = [float(text) for text in re.findall(pattern, output)]
        if not found or max(found) <= 0:
            raise Fault(f"{run.name}: no '{pattern}' in what it printed: {output[-200:]!r}")
        also[measure] = max(found)
    # The last line: one before it tells of a status other than 0.
    peak, major, minor = map(int, cost.read_text().splitlines()[-1].split())
    result = {"seconds": figure, "elapsed": elapsed, "cpu": usage.ru_utime + usage.ru_stime, "system": usage.ru_stime,
              "peak_kib": peak, "faults": major + minor, **also}
    same = output if run.same_output else " ".join(re.findall(run.result, output)) if run.result else ""
    return {**result, "output": hashlib.sha256(same.encode()).hexdigest()[:16]} if same or run.same_output else result


def kill_group(process):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
