# SPDX-License-Identifier: MIT
"""Interpreters and shells whose scripts set a limit."""
from field import case

CASES = []


@case(CASES)
def python_256(f):
    f.good(["/usr/bin/python3", "-c", """
import resource; resource.setrlimit(resource.RLIMIT_AS, (256 << 20, 256 << 20))
import json, ssl, sqlite3, ctypes, threading, subprocess
x = [bytes(1000) for i in range(20000)]
t = threading.Thread(target=lambda: None); t.start(); t.join(); subprocess.run(["true"], check=True)"""])


@case(CASES)
def python_finds_the_end(f):
    """MemoryError comes, is caught, and the interpreter lives on."""
    f.good(["/usr/bin/python3", "-c", """
import resource; resource.setrlimit(resource.RLIMIT_AS, (128 << 20, 128 << 20))
for i in range(20):
    x = []
    try:
        while True: x.append(bytearray(1 << 20))
    except MemoryError: n = len(x); del x
    assert n > 40, n
import json; json.dumps(list(range(100000)))"""])


def shell(f, kib):
    f.same(["bash", "-c", f'ulimit -v {kib}; x=$(seq 300000); y="$x$x$x"; echo ${{#y}}; for i in $(seq 50); do /bin/true || echo no; done'], timeout=40)


@case(CASES)
def shell_100(f):
    shell(f, 100000)


@case(CASES)
def shell_200(f):
    shell(f, 200000)


@case(CASES)
def shell_300(f):
    shell(f, 300000)


@case(CASES)
def pipeline_under_a_limit(f):
    f.same(["bash", "-c", "ulimit -v 60000; seq 100000 | sort -rn | awk '{s += $1} END {print s, NR}' | tr 0-9 a-j"], timeout=40)


@case(CASES)
def perl_200(f):
    """setrlimit by its number; the stack must be able to grow afterwards."""
    f.good(["perl", "-e", """my $r = pack("QQ", 200 << 20, 200 << 20); syscall(302, 0, 9, $r, 0) == 0 or die;
        my @a = map { "x" x 1000 } 1 .. 50000; require POSIX; require Socket;
        sub deep { my $n = shift; $n ? 1 + deep($n - 1) : 0 } no warnings; deep(20000) == 20000 or die;
        my $s = "ab" x 30000; $s =~ /^(?:(?:ab)*)*$/ or die;"""])


@case(CASES)
def compiler_150(f):
    (f.dir / "x.c").write_text("#include <stdio.h>\n#include <stdlib.h>\n" + "".join(f"int f{i}(int a) {{ return a * {i}; }}\n" for i in range(2000)))
    f.good(["bash", "-c", "ulimit -v 150000; gcc -O1 -c x.c -o x.o"])
