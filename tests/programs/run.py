#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run programs of other people on the system malloc and with a library preloaded, and compare.

  run.py [--lib PATH] [--times N] [--torture] [--modes] [--keep] [NAME...]
  run.py --list [--torture]      names; with --torture those of the programs that take long

  --lib PATH   the library; default: libquarry-malloc.so of QUARRY_LIB_DIR, or of build/lib
  --times N    so many runs with the library (one on the system malloc)
  --torture    the programs that take long, too
  --modes      also in the modes of modes.py: under a filter, and with a limit, if the program is one of those
  --keep       leave the folders of failed programs, and say where they are

Exit status, output and resulting files must be those of the system malloc. A program that is not
installed is skipped, and so is one that turns out not to use the library at all, or that goes wrong
on the system malloc too, unless what it works on is Quarry's own. QUARRY_CONF is passed on. Exit status 1 if a program failed, 77 if all were skipped.
"""
import argparse
import importlib
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE))
import harness  # noqa: E402
import modes  # noqa: E402
from proof import Proof  # noqa: E402


def load():
    for file in sorted((HERE / "cases").glob("*.py")):
        importlib.import_module(f"cases.{file.stem}")
    return harness.PROGRAMS


def default_library():
    folder = os.environ.get("QUARRY_LIB_DIR") or HERE.parents[1] / "build" / "lib"
    return pathlib.Path(folder) / "libquarry-malloc.so"


def for_everyone(library, folder):
    """The library where programs that run as another user find it, too: a checkout may lie in a closed folder."""
    if all(parent.stat().st_mode & 0o001 for parent in library.parents):
        return library
    folder.chmod(0o755)
    copy = folder / library.name
    shutil.copyfile(library, copy)
    copy.chmod(0o755)
    return copy


def once(program, folder, library, proof, mode=None):
    """Run in FOLDER/work, so that paths are the same each time; the box and its seconds."""
    work = folder / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(mode=0o755)
    box, start = harness.Box(work, library, proof, mode), time.monotonic()
    try:
        program.function(box)
    except (OSError, EOFError, ValueError, IndexError, TypeError, KeyError) as fault:  # what a client in the case makes of a server that is gone
        where = fault.__traceback__.tb_next or fault.__traceback__
        raise (harness.Failure if library else harness.Skip)(f"line {where.tb_lineno} of {program.name}: {fault!r}") from fault
    finally:
        harness.kill_descendants()
    return box, time.monotonic() - start


def compare(expected, observed):
    """All that differs: an exit status says that something failed, what was printed says what."""
    if differences := [f"{want[0]}\n    | system malloc: {want[1]}\n    | library:       {got[1]}"
                       for want, got in zip(expected, observed) if want != got]:
        raise harness.Failure("\n    ".join(differences))
    if len(expected) != len(observed):
        raise harness.Failure(f"{len(expected)} observations on the system malloc, {len(observed)} with the library")


def check(program, folder, library, times, in_modes=False):
    """One line about the runs; raises Skip or Failure."""
    for command, package in program.needs.items():
        if not (pathlib.Path(command).exists() if "/" in command else harness.which(command)):
            raise harness.Skip(f"needs the package {package}")
    proof = Proof(library, folder, os.environ.get("QUARRY_CONF"), program.reports)
    system, system_seconds = once(program, folder, None, proof)
    for number in range(times):
        box, seconds = once(program, folder, library, proof)
        compare(system.observed, box.observed)
        processes = proof.processes()
    line = (f"{seconds:7.2f} s ({system_seconds:.2f})  {box.peak_kib / 1024:6.0f} MiB ({system.peak_kib / 1024:.0f})"
            f"  {len(box.observed)} results")
    line += f", {processes} processes" if processes else ""
    if in_modes and program.modes:
        def observe(mode, preload):
            observed = once(program, folder, library if preload else None, proof, mode)[0].observed
            if preload:
                proof.processes()
            return observed
        good, silent = modes.check(folder, system.observed, observe, compare)
        line += "".join(f"; {name}" for name in good) + "".join(f"\n        says nothing in a mode: {reason}" for reason in silent)
    return line


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1], add_help=True)
    parser.add_argument("--lib", type=pathlib.Path, default=default_library())
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--torture", action="store_true")
    parser.add_argument("--modes", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    programs = load()
    if args.list:
        return print("\n".join(p.name for p in programs.values() if p.torture == args.torture))
    for name in args.names:
        if name not in programs:
            sys.exit(f"run.py: no program {name}; there are: {' '.join(programs)}")
    if not args.lib.exists():
        sys.exit(f"run.py: no library {args.lib}")
    if args.times < 1:
        sys.exit("run.py: --times wants 1 or more")
    copies = tempfile.TemporaryDirectory(prefix="programs-lib-")
    library = str(for_everyone(args.lib.resolve(), pathlib.Path(copies.name)))
    harness.adopt_orphans()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # clean up, as after ^C
    chosen = [p for p in programs.values() if p.name in args.names or not args.names and (args.torture or not p.torture)]
    passed = failed = skipped = 0
    print(f"{args.lib.name}; in parentheses: the system malloc", flush=True)
    for program in chosen:
        folder = pathlib.Path(tempfile.mkdtemp(prefix="programs-"))
        folder.chmod(0o755)
        keep = args.keep
        try:
            line = check(program, folder, library, args.times, args.modes)
            print(f"ok      {program.name:16} {line}", flush=True)
            passed += 1
            keep = False
        except harness.Skip as reason:
            print(f"SKIP: {program.name}: {reason}", flush=True)
            skipped += 1
            keep = False
        except harness.Failure as reason:
            print(f"FAILED  {program.name}: {reason}", flush=True)
            failed += 1
        finally:
            if keep:
                print(f"    in {folder}", flush=True)
            else:
                shutil.rmtree(folder, ignore_errors=True)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 77 if not passed else 0


if __name__ == "__main__":
    sys.exit(main())
