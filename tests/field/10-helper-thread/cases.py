# SPDX-License-Identifier: MIT
"""Interpreters that look at how many threads there are."""
import pathlib
import subprocess

from field import Failure, Skip, case

CASES = []
FORK = """
import os
x = [bytes(1000) for i in range(60000)]; y = bytearray(50 << 20); del x, y
pid = os.fork()
if pid == 0: os._exit(0)
os.waitpid(pid, 0)
"""


@case(CASES)
def python_fork(f):
    """Python 3.12 and later warn of a fork beside a second thread."""
    found = [p for p in [*pathlib.Path("/usr/bin").glob("python3.1?"), *pathlib.Path.home().glob(".pyenv/versions/3.1[2-9]*/bin/python3")]
             if subprocess.run([p, "-c", "import sys; sys.exit(sys.version_info < (3, 12))"], check=False).returncode == 0]
    if not found:
        raise Skip("needs Python 3.12 or later")
    for python in found:
        f.good([python, "-c", FORK], silent=True)


@case(CASES)
def python_fork_threads_counted(f):
    # What is free for half a second is a reason for a thread: not where the machine is slow.
    f.good(["/usr/bin/python3", "-W", "error", "-c", FORK + "assert len(os.listdir('/proc/self/task')) == 1"],
           {"QUARRY_CONF": "purge_delay:600000"}, silent=True)


@case(CASES)
def unshare_in_perl(f):
    """unshare(CLONE_NEWUSER | CLONE_NEWNET) by its number, after work."""
    done = f.tried(["perl", "-e", 'my @a = map { "x" x 1000 } 1 .. 50000; undef @a; my $b = "y" x 50000000; undef $b; syscall(272, 0x50000000) == 0 or die "unshare: $!"'])
    if done.status:
        raise Failure(done.ending())
