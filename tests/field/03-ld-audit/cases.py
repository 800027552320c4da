# SPDX-License-Identifier: MIT
"""LD_AUDIT: the linker sizes the thread-local storage before it reads LD_PRELOAD, so even a preload comes late."""
import pathlib

from field import Skip, case

CASES = []


def audited(f, *more):
    return {"LD_AUDIT": ":".join([str(f.build / "auditor.so"), *more])}


@case(CASES)
def own_program(f):
    f.good([f.build / "busy"], audited(f))


@case(CASES)
def own_program_bound_at_once(f):
    f.good([f.build / "busy"], {**audited(f), "LD_BIND_NOW": "1"})


@case(CASES)
def two_auditors(f):
    second = sorted(pathlib.Path("/usr/lib").glob("*/audit/sotruss-lib.so"))
    if not second:
        raise Skip("needs sotruss-lib.so")
    f.good([f.build / "busy", "works"], audited(f, str(second[0])))


@case(CASES)
def true(f):
    f.good(["/bin/true"], audited(f))


@case(CASES)
def list_of_files(f):
    f.same(["ls", "-l", "/usr/lib"], audited(f))


@case(CASES)
def shell_and_pipes(f):
    f.same(["bash", "-c", "x=$(seq 2000); for i in 1 2 3; do echo \"$x\" | sort -n | tail -$i; done"], audited(f))


@case(CASES)
def perl(f):
    f.same(["perl", "-e", 'use POSIX; my @a = map { "x" x $_ } 1 .. 2000; print scalar(@a), floor(2.5), "\n"'], audited(f))


@case(CASES)
def python(f):
    f.same(["/usr/bin/python3", "-c", "import json, ctypes, threading; print(len(json.dumps(list(range(10000)))))"], audited(f))


@case(CASES)
def sotruss(f):
    f.good([f.command("sotruss", "libc-bin"), "-o", f.dir / "out", f.build / "busy", "works"])


@case(CASES)
def statistics_of_the_linker(f):
    f.good([f.build / "busy", "works"], {**audited(f), "LD_DEBUG": "statistics"})


@case(CASES)
def profile_of_libc(f):
    f.good([f.build / "busy", "works"], {"LD_PROFILE": "libc.so.6", "LD_PROFILE_OUTPUT": str(f.dir)})


@case(CASES)
def asked_of_the_linker(f):
    """By the linker's own options, without the environment."""
    loader = sorted(pathlib.Path("/").glob("lib*/ld-linux-*.so.*"))
    preload = ["--preload", f.library] if f.library else []
    f.good([loader[0], *preload, "--audit", f.build / "auditor.so", f.build / "busy", "works"], {"LD_PRELOAD": ""})


@case(CASES)
def with_another_preload(f):
    f.good([f.build / "busy", "works"], {**audited(f), **f.preload("libm.so.6")})
