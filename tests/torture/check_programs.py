#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run programs of other people under libquarry-check.so: none may have a report that is no true finding.

  check_programs.py [--lib PATH] [--keep FOLDER] [NAME...]   the programs of tests/programs; without names those of the list SHORT
  check_programs.py --all                                    every one that is installed, those that take long too
  check_programs.py --self-test                              prove that a report fails a program

Exit status, output and resulting files must be those of the system malloc. Errors of each process are read from what it wrote.
FINDINGS lists the errors that programs do have, each with its evidence: they are counted apart and fail nothing. Leaks are no errors
here, since most programs end without freeing what they hold. Exit status 1 if a program failed, 77 if none ran.
"""
import argparse
import collections
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE.parent / "programs"))
import harness  # noqa: E402
import run  # noqa: E402

# What runs in make test: a few seconds each, and installed for the other tests.
SHORT = ("xz", "openssl", "sqlite", "perl", "lua", "tcl")

# True findings: program, kind, a pattern that the report's text has, and the evidence that it is an error of the program.
Finding = collections.namedtuple("Finding", "program kind where evidence")
FINDINGS = [
    Finding("squid", "wrong-size", r"Ip::Address::(Free|Init)Addr\(",
            "new sockaddr_in6 (28 bytes) is deleted as a sockaddr (16 bytes), which C++ does not allow"),
    *(Finding(name, "overflow-write", r"overflow-write in the program(.|\n)*block of [0-7] bytes, live, calloc",
              "stress-malloc.c asks for calloc(n, len / n), which may be less than a word, even no byte, and writes a word there")
      for name in ("stress_ng", "stress_ng_more")),
    Finding("povray", "wrong-size", r"freed as \d+ bytes, and it has \d+; command \S*povray ",
            "a UnixShelloutProcessing is deleted as a ShelloutProcessing, whose destructor is not virtual (frontend/shelloutprocessing.h)"),
]


class Checked(harness.Box):
    """A box in which a process may say that it could not write reports: some have no right to create files any more."""

    def listen(self, argv, done):
        if self.library and (words := re.findall(r"^quarry(?: check)?: (?!warning: no reports: ).*$", done.errors(), re.M)):
            raise harness.Failure(f"{argv[0]}: {words[0]}")


harness.Box = Checked


class Reports(run.Proof):
    """The proof that the library served: each process that it was loaded into wrote the line of its beginning."""

    def __init__(self, library, folder):
        super().__init__(None, folder, None)
        self.library = library
        self.folder = pathlib.Path(folder) / "checked"
        self.folder.mkdir(mode=0o777, exist_ok=True)
        self.folder.chmod(0o777)  # servers change their user

    def environment(self):
        return {"QUARRY_CHECK": f"out:{self.folder}"}

    def probe(self, executable, library):
        """The lines say it."""

    def take(self):
        """(processes, errors) since the last call. An error is a dict with the process's command and modules."""
        processes, errors = 0, []
        for path in sorted(self.folder.glob("*.check")):
            begun, modules = None, {}
            for text in path.read_text(errors="replace").splitlines():
                line = json.loads(text)
                if "begin" in line:
                    begun = line["begin"]
                elif "module" in line:
                    modules[line["module"]["id"]] = line["module"]
                elif "error" in line:
                    errors.append({**line["error"], "command": begun and begun["command"], "modules": modules})
            processes += begun is not None
            path.unlink()
        return processes, errors


def frames(stack, modules):
    """Names for people, of ten frames: function and line where the module has them."""
    by_module = collections.defaultdict(list)
    for frame in (stack or [])[:10]:
        module = modules.get(frame.get("module"))
        pc = int(frame["pc"], 16)
        address = pc - int(module["bias"], 16) - (not frame.get("exact")) if module else pc
        by_module[module["path"] if module else None].append((pc, address))
    named = {}
    for path, addresses in by_module.items():
        names = []
        if path and os.path.exists(path) and shutil.which("addr2line"):
            done = subprocess.run(["addr2line", "-pfCe", path, *(hex(address) for _, address in addresses)], capture_output=True, text=True)
            names = done.stdout.splitlines()
        names += [""] * (len(addresses) - len(names))
        for (pc, address), name in zip(addresses, names):
            named[pc] = f"{name} ({pathlib.Path(path).name if path else '?'}+{address:#x})"
    return [named[int(frame["pc"], 16)] for frame in (stack or [])[:10]]


def describe(error):
    command = " ".join(map(str, error["command"] or []))[:150]
    out = [f"{error['kind']} in {error['function'] or 'the program'}, {error['bytes']} bytes at offset {error['offset']}"
           f"{', evidence' if error['evidence'] else ''}{': ' + error['detail'] if error['detail'] else ''}; command {command}"]
    out += [f"    {name}" for name in frames(error["stack"], error["modules"])]
    if block := error.get("block"):
        out.append(f"  block of {block['size']} bytes, {block['state']}, {block['family']}, allocated at")
        out += [f"    {name}" for name in frames((block.get("alloc") or {}).get("stack"), error["modules"])]
        if block.get("free"):
            out.append("  freed at")
            out += [f"    {name}" for name in frames(block["free"].get("stack"), error["modules"])]
    return out


def is_finding(program, error):
    text = "\n".join(describe(error))
    return any(f.program == program and f.kind == error["kind"] and re.search(f.where, text) for f in FINDINGS)


def check(program, folder, library):
    """One line about the run; raises Skip or Failure."""
    for command, package in program.needs.items():
        if not (pathlib.Path(command).exists() if "/" in command else harness.which(command)):
            raise harness.Skip(f"needs the package {package}")
    proof = Reports(library, folder)
    system, _ = run.once(program, folder, None, proof)
    try:
        box, seconds = run.once(program, folder, library, proof)
    except harness.Failure as failure:
        words = [line for error in proof.take()[1] for line in describe(error)]
        raise harness.Failure("\n    ".join([str(failure), *words[:60]])) from failure
    processes, errors = proof.take()
    false = [error for error in errors if not is_finding(program.name, error)]
    if false:
        raise harness.Failure(f"{len(false)} reports\n    " + "\n    ".join(line for error in false[:5] for line in describe(error)))
    run.compare(system.observed, box.observed)
    if not processes:
        raise harness.Skip("needs a process that the library serves: none wrote a line")
    true = f", {len(errors)} true findings" if errors else ""
    return f"{seconds:7.2f} s  {box.peak_kib / 1024:6.0f} MiB ({system.peak_kib / 1024:.0f})  {processes} processes{true}"


def self_test():
    with tempfile.TemporaryDirectory() as name:
        proof = Reports("/x", name)
        error = {"kind": "double-free", "function": "free", "bytes": 0, "offset": 0, "evidence": False, "detail": None, "stack": [], "block": None}
        lines = map(json.dumps, ({"begin": {"command": ["x", "y"]}}, {"error": error}))
        (proof.folder / "7.0.check").write_text("\n".join(lines) + "\n")
        processes, errors = proof.take()
        assert processes == 1 and len(errors) == 1 and not is_finding("x", errors[0])
        assert "double-free in free" in describe(errors[0])[0]
        assert proof.take() == (0, [])
        FINDINGS.append(Finding("x", "double-free", "command x y", "made up"))
        assert is_finding("x", errors[0]) and not is_finding("y", errors[0])
    print("check_programs: a report fails a program")


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1])
    parser.add_argument("--lib", type=pathlib.Path, default=run.default_library().with_name("libquarry-check.so"))
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--keep", type=pathlib.Path, help="a folder for what failed programs leave")
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    if args.self_test:
        return self_test()
    if not args.lib.exists():
        print(f"{args.lib} is not there: build it first, with make")
        return 1
    programs = run.load()
    chosen = programs if args.all else args.names or SHORT
    if unknown := [name for name in chosen if name not in programs]:
        sys.exit(f"check_programs.py: no program {unknown[0]}; there are: {' '.join(programs)}")
    copies = tempfile.TemporaryDirectory(prefix="check-programs-lib-")
    library = str(run.for_everyone(args.lib.resolve(), pathlib.Path(copies.name)))
    harness.adopt_orphans()
    passed = failed = skipped = 0
    for name in chosen:
        folder = pathlib.Path(tempfile.mkdtemp(prefix="check-programs-"))
        folder.chmod(0o755)
        try:
            print(f"ok      {name:16} {check(programs[name], folder, library)}", flush=True)
            passed += 1
        except harness.Skip as reason:
            print(f"SKIP: {name}: {reason}", flush=True)
            skipped += 1
        except harness.Failure as reason:
            print(f"FAILED  {name}: {reason}", flush=True)
            failed += 1
            if args.keep:
                shutil.copytree(folder, args.keep / name, dirs_exist_ok=True, symlinks=True)
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 77 if not passed else 0


if __name__ == "__main__":
    sys.exit(main())
