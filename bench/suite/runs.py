# SPDX-License-Identifier: MIT
"""The runs of the field's usual suite: what is started, what its figure is, and where its parts are looked for.

In commands, {bin} is where the suite's own programs are, {suite} its folder, {here} a fresh folder that the run may
write to, {n} the number of threads, {n2} twice that, {seconds} how long runs last that stop by the clock, {loads} where our own
programs are.
"""
import dataclasses
import glob
import os
import pathlib
import re
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from measure import BUILD  # noqa: E402


@dataclasses.dataclass(frozen=True)
class Run:
    """One program with its arguments."""
    name: str
    command: tuple
    # A real program, not one written to load a malloc.
    program: bool = False
    # More than one thread or process works at a time.
    threads: bool = True
    # Its figure is not elapsed time but the number that this pattern finds in its output. A rate is divided into `work`.
    figure: str = ""
    work: float = 0
    # Further numbers in its output: (measure, pattern) each. Of several that the pattern finds, the largest counts.
    also: tuple = ()
    # What its output must have, else it did not do its work.
    says: str = ""
    # Its output depends on nothing but its work.
    same_output: bool = False
    # Or what this pattern finds in it does.
    result: str = ""
    # Where it runs (default: a fresh folder), and variables of its environment.
    folder: str = ""
    env: tuple = ()
    # Files, in the suite's folder: standard input; others that must be there.
    stdin: str = ""
    files: tuple = ()
    # A folder of which the run gets a copy to work in; and what happens there before each run, unmeasured.
    copy: str = ""
    before: tuple = ()
    # Of a server, `command` is the client: the server is what is measured. `ready` succeeds once it answers.
    server: tuple = ()
    ready: tuple = ()
    stop: tuple = ()


def larson(name):
    return Run(name.replace("larson", "larsonN"), (f"{{bin}}/{name}", "{seconds}", "8", "1000", "5000", "100", "4141", "{n}"),
               figure=r"relative time: ([0-9.]+)s")


def cache(name, threads):
    return Run(f"{name}{'N' if threads == '{n}' else 1}", (f"{{bin}}/{name}", threads, "1000", "1", "2000000", "{n}"), threads=threads == "{n}")


REDIS = "{suite}/extern/redis-*/src/"
PORT = ("-p", "{port}")

RUNS = (
    Run("cfrac", ("{bin}/cfrac", "17545186520507317056371138836327483792789528"), threads=False, same_output=True),
    Run("espresso", ("{bin}/espresso", "{suite}/bench/espresso/largest.espresso"), threads=False, same_output=True,
        files=("bench/espresso/largest.espresso",)),
    Run("barnes", ("{bin}/barnes",), threads=False, stdin="bench/barnes/input"),
    larson("larson"),
    larson("larson-sized"),
    Run("mstressN", ("{bin}/mstress", "{n}", "50", "25")),
    Run("mstressN-x20", ("{bin}/mstress", "{n}", "50", "500")),
    Run("rptestN", ("{bin}/rptest", "{n}", "0", "1", "2", "500", "1000", "100", "8", "16000"),
        figure=r"\.\.\.([0-9]+) memory ops", work=2e6),
    Run("alloc-test1", ("{bin}/alloc-test", "1"), threads=False),
    Run("alloc-testN", ("{bin}/alloc-test", "{n}")),
    Run("sh6benchN", ("{bin}/sh6bench", "{n2}")),
    Run("sh8benchN", ("{bin}/sh8bench", "{n2}")),
    Run("xmalloc-testN", ("{bin}/xmalloc-test", "-w", "{n}", "-t", "{seconds}", "-s", "64"), figure=r"rtime: ([0-9.]+)"),
    cache("cache-scratch", "1"),
    cache("cache-scratch", "{n}"),
    cache("cache-thrash", "1"),
    cache("cache-thrash", "{n}"),
    Run("glibc-simple", ("{bin}/glibc-simple",), threads=False),
    Run("glibc-thread", ("{bin}/glibc-thread", "{n}"), figure=r"([0-9]+) iterations", work=1e9),
    Run("mleak10", ("{bin}/mleak", "5")),
    Run("mleak100", ("{bin}/mleak", "50")),
    Run("malloc-large", ("{bin}/malloc-large",), threads=False),
    Run("gs", ("gs", "-dBATCH", "-dNODISPLAY", "-dNOPAUSE", "{suite}/extern/large.pdf"), program=True, threads=False, files=("extern/large.pdf",)),
    Run("lua", ("make", "-j{n}"), program=True, copy="extern/lua", before=("make", "clean")),
    Run("redis", (REDIS + "redis-benchmark", *PORT, "-r", "1000000", "-n", "100000", "-q", "-P", "16", "lpush", "a", "1", "2", "3", "4", "5",
                  "lrange", "a", "1", "5"), program=True, figure=r".*: ([0-9.]+) requests per second", work=2e6,
        server=(REDIS + "redis-server", "--port", "{port}", "--bind", "127.0.0.1", "--save", "", "--dir", "{here}"),
        ready=(REDIS + "redis-cli", *PORT, "ping"), stop=(REDIS + "redis-cli", *PORT, "shutdown", "nosave")),
    Run("rocksdb", ("{suite}/extern/rocksdb-*/db_bench", "--benchmarks=fillrandom", "--db={here}/db"), program=True, says="fillrandom"),
    Run("z3", ("z3", "-smt2", "{suite}/bench/z3/test1.smt2"), program=True, threads=False, same_output=True, files=("bench/z3/test1.smt2",)),
    Run("rbstress1", ("ruby", "{suite}/bench/rbstress/stress_mem.rb", "1"), program=True, threads=False, says="duration",
        files=("bench/rbstress/stress_mem.rb",)),
    Run("rbstressN", ("ruby", "{suite}/bench/rbstress/stress_mem.rb", "{n}"), program=True, says="duration",
        files=("bench/rbstress/stress_mem.rb",)),
    Run("leanN", ("{suite}/extern/lean/bin/lean", "--make", "-j{n}"), program=True, copy="extern/lean/library"),
)


class Missing(Exception):
    """A part of the suite that is not in its folder."""


@dataclasses.dataclass(frozen=True)
class Place:
    """Where the suite is, and what its commands are told."""
    suite: str
    threads: int
    seconds: float

    def words(self, command, **more):
        """The command with all names replaced and its program found."""
        names = {"bin": f"{self.suite}/out/bench", "suite": self.suite, "loads": f"{BUILD}/lib/quarry/bench", "n": self.threads, "n2": 2 * self.threads,
                 "seconds": f"{self.seconds:g}", **more}
        program, *words = [re.sub(r"\{(\w+)\}", lambda m: str(names[m[1]]), word) for word in command]
        found = sorted(glob.glob(program))[-1:] if "/" in program else [shutil.which(program)]
        if not found or not found[0] or not os.access(found[0], os.X_OK):
            raise Missing(f"no program {program}")
        return [found[0], *words]

    def file(self, name):
        path = f"{self.suite}/{name}"
        if not os.path.exists(path):
            raise Missing(f"no {path}")
        return path

    def check(self, run):
        """Is all there that the run needs?"""
        for name in filter(None, (run.stdin, run.copy, *run.files)):
            self.file(name)
        for command in filter(None, (run.command, run.before, run.server, run.ready, run.stop)):
            self.words(command, here="", port=0)
