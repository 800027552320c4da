# SPDX-License-Identifier: MIT
"""What the cases of tests/field are made with: @case, and the Field that each of them gets.

A case does what a program in the field does, under the malloc that is tried. It returns if all is
well, and else raises Failure, or Skip where it says nothing.
"""
import collections
import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sysconfig

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
Malloc = collections.namedtuple("Malloc", "name library package")
PEERS = (("jemalloc", "libjemalloc.so.2", "libjemalloc2"), ("mimalloc", "libmimalloc.so.2.0", "libmimalloc2.0"),
         ("tcmalloc", "libtcmalloc_minimal.so.4", "libtcmalloc-minimal4"), ("tbbmalloc", "libtbbmalloc_proxy.so.2", "libtbbmalloc2"))


def mallocs(quarry):
    """glibc's own, which is what runs without a preload, Quarry, and the distribution's."""
    system = pathlib.Path("/usr/lib") / (sysconfig.get_config_var("MULTIARCH") or "x86_64-linux-gnu")
    folder = pathlib.Path(os.environ.get("QUARRY_LIB_DIR") or quarry)
    return [Malloc("glibc", None, None), Malloc("quarry", folder / "libquarry-malloc.so", None),
            *(Malloc(name, system / file, package) for name, file, package in PEERS)]


class Skip(Exception):
    """The case says nothing here, because ..."""


class Failure(Exception):
    """It goes wrong."""


def case(cases):
    """A decorator that adds to the list CASES of a cases.py."""
    def register(function):
        cases.append(function)
        return function
    return register


class Done(collections.namedtuple("Done", "status out err")):
    """What a command did; status is None if it took too long, negative if a signal ended it."""

    def ending(self):
        if self.status is None:
            return "does not end"
        how = f"signal {signal.Signals(-self.status).name}" if self.status < 0 else f"exit status {self.status}"
        said = [line for line in (self.err + self.out).splitlines() if line.strip() and not line.startswith(("seed", "run ", "SKIP"))]
        return how + (f": {said[0][:300]}" if said else "")


def run(argv, environment, cwd, timeout, stdin=None):
    """Run to the end in a session of its own, all of which is killed when the time is over."""
    clean = {"PATH": PATH, "HOME": str(cwd), "LANG": "C.UTF-8", **environment}
    process = subprocess.Popen([str(a) for a in argv], cwd=cwd, env=clean, stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, text=True, errors="replace")
    try:
        out, err = process.communicate(stdin, timeout)
        return Done(process.returncode, out, err)
    except subprocess.TimeoutExpired:
        return Done(None, "", "")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdout, process.stderr):
            pipe.close()


class Field:
    """The malloc that is tried, an empty folder, and where the programs of this kind are."""

    def __init__(self, malloc, folder, build, source):
        self.malloc, self.dir, self.build, self.source = malloc, folder, build, source
        self.library = str(malloc.library) if malloc.library else ""
        # A limit only ends a hang. Peers hang in some cases, which is known: those are not waited for so long.
        self.patience = 15 if malloc.name == "quarry" else 1

    def preload(self, *more):
        """The environment with this malloc, behind which others may be preloaded."""
        names = [name for name in (self.library, *map(str, more)) if name]
        return {"LD_PRELOAD": ":".join(names)} if names else {}

    def command(self, name, package=None):
        path = shutil.which(name, path=PATH)
        if not path:
            raise Skip(f"needs the package {package or name}")
        return path

    def tried(self, argv, environment=None, timeout=20, stdin=None):
        """Run with the malloc preloaded; the Done."""
        return self.run(argv, {**self.preload(), **(environment or {})}, timeout, stdin)

    def run(self, argv, environment=None, timeout=20, stdin=None):
        """Run without the malloc; the Done."""
        return run(argv, {"FIELD_PATIENCE": str(self.patience), **(environment or {})}, self.dir, timeout * self.patience, stdin)

    def good(self, argv, environment=None, timeout=20, stdin=None, silent=False):
        """The same; it must end with 0, and may be asked to say nothing to stderr. What it printed."""
        done = self.tried(argv, environment, timeout, stdin)
        if done.status == 77:
            raise Skip(done.out.strip() or done.err.strip() or "exit status 77")
        if done.status != 0 or silent and done.err:
            raise Failure(f"{' '.join(map(str, argv))[:120]}: {done.ending()}")
        return done.out

    def same(self, argv, environment=None, timeout=20, stdin=None):
        """The same, and what it prints is what it prints without a preload."""
        plain = self.run(argv, environment, timeout, stdin)
        if plain.status != 0:
            raise Skip(f"needs a program that goes right without a preload: {plain.ending()}")
        if self.good(argv, environment, timeout, stdin) != plain.out:
            raise Failure(f"{' '.join(map(str, argv))[:120]}: prints something else than without a preload")

    def test(self, program, name, environment):
        """A TEST of a program that is written with tests/harness.h."""
        done = self.tried([program, name], environment)
        skipped = [line for line in done.out.splitlines() if line.startswith("SKIP: ")]
        if done.status == 0 and not skipped:
            return
        if done.status in (0, 77):
            raise Skip(skipped[0][6:] if skipped else "exit status 77")
        raise Failure(done.ending())

    def compile(self, output, *arguments, compiler="gcc"):
        """Compile into the folder; the path of what came out."""
        done = self.run([self.command(compiler), "-O1", "-o", self.dir / output, *arguments])
        if done.status != 0:
            raise Failure(f"does not compile: {done.ending()}")
        return self.dir / output
