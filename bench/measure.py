# SPDX-License-Identifier: MIT
"""What scripts of benchmarks share: the mallocs at hand, and one run of a program under one of them."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = pathlib.Path(os.environ.get("QUARRY_BUILD_DIR") or ROOT / "build")

LIBRARIES = {
    "jemalloc": "libjemalloc.so.2", "mimalloc": "libmimalloc.so.2", "tcmalloc": "libtcmalloc_minimal.so.4",
    "tbbmalloc": "libtbbmalloc_proxy.so.2",
}


class Fault(Exception):
    """A run that went wrong, or measured something else."""


def libraries(extra):
    """{name: path to preload, or None for the system's malloc}."""
    found = {"sys": None}
    quarry = pathlib.Path(os.environ.get("QUARRY_LIB_DIR") or BUILD / "lib") / "libquarry-malloc.so"
    if quarry.exists():
        found["quarry"] = str(quarry.resolve())
    cache = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True).stdout
    for name, file in LIBRARIES.items():
        paths = [line.split(" => ")[1] for line in cache.splitlines() if line.split()[:1] == [file]]
        if paths:
            found[name] = os.path.realpath(paths[0])
    for entry in extra:
        name, _, path = entry.rpartition("=")
        if not os.path.exists(path):
            sys.exit(f"no library {path}")
        found[name or pathlib.Path(path).name] = os.path.realpath(path)
    return found


def environment(library):
    env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    return {**env, "LD_PRELOAD": library} if library else env


def must_serve(program, library):
    """The dynamic linker must find malloc in the library, or in one that it brings along."""
    with tempfile.TemporaryDirectory() as folder:
        env = {**environment(library), "LD_BIND_NOW": "1", "LD_DEBUG": "bindings", "LD_DEBUG_OUTPUT": f"{folder}/log"}
        subprocess.run([program, "--help"], env=env, capture_output=True)
        log = "".join(p.read_text(errors="replace") for p in pathlib.Path(folder).iterdir())
    if f"to {library} [0]: normal symbol `malloc'" not in log:
        raise Fault(f"{library} does not serve malloc")


def run_lines(program, library, options):
    """A fresh process; its lines of JSON, each with what the kernel says of the whole process added."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen([program, *options], env=environment(library), stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        text, errors = out.read().decode(), err.read().decode()
    where = f"{program} under {library or 'the system malloc'}"
    if process.returncode:
        raise Fault(f"{where}: status {process.returncode}: {errors.strip()[-500:]}")
    try:
        samples = [json.loads(line) for line in text.splitlines()]
    except ValueError:
        raise Fault(f"{where}: no JSON: {text[:200]!r}") from None
    if not samples:
        raise Fault(f"{where}: no JSON: nothing was printed")
    for sample in samples:
        sample["cpu"] = usage.ru_utime + usage.ru_stime
        sample["faults"] = usage.ru_minflt + usage.ru_majflt
    return samples


def progress(text):
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
