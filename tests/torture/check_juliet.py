#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How many errors of the Juliet suite are found? Each case of its heap is built with its error and without, and run.

  check_juliet.py [--with quarry,memcheck] [--bin FOLDER] [--json FILE] DIR [CWE...]
  check_juliet.py --self-test     prove that a miss and a false report are seen

DIR is Juliet 1.3 for C and C++: it has testcases/ and testcasesupport/. Of each kind of case the plainest is taken (`_01`), but for those that
need input, chance, a network or another system, and those of a stack. An error counts as found if a report has its kind, and its place: the
case's file among the first three places of the access, or of the allocation where the error is found later. A report of the program without
its error is a false one. Exit status 1 if there is one under quarry, 77 if there is no case.
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
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = os.environ.get("QUARRY_TOOL") or ROOT / "build/bin/quarry"
PATIENCE = 120  # seconds, which only end a hang

# What the error of each CWE is called by quarry check, and by memcheck.
KINDS = {
    "122": ("overflow-write", "InvalidWrite"),
    "124": ("underflow-write", "InvalidWrite"),
    "126": ("overflow-read unterminated", "InvalidRead"),
    "127": ("underflow-read", "InvalidRead"),
    "401": ("leak-definite", "Leak_DefinitelyLost"),
    "415": ("double-free", "InvalidFree"),
    "416": ("use-after-free-read use-after-free-write write-after-free double-free", "InvalidRead InvalidWrite InvalidFree"),
    "590": ("invalid-free interior-free", "InvalidFree"),
    "761": ("interior-free", "InvalidFree"),
    "762": ("mismatched-free", "MismatchedFree"),
}
LEFT_OUT = re.compile(r"socket|w32|rand|fscanf|fgets|environment|_file_|console")
ON_STACK = re.compile(r"alloca|declare|static")


def cases(root):
    for path in sorted(root.glob("testcases/CWE*/**/*_01.c*")):
        cwe = re.match(r"CWE(\d+)", path.stem)[1]
        if cwe in KINDS and not LEFT_OUT.search(path.stem) and not (cwe in ("122", "124", "126", "127") and ON_STACK.search(path.stem)):
            yield cwe, path


def built(root, folder, path, omit):
    program = folder / f"{path.stem}.{omit}"
    support = root / "testcasesupport"
    if not program.exists():
        compiler = "g++" if path.suffix == ".cpp" else "gcc"
        options = ["-g", "-O0", "-w", "-fno-builtin", "-DINCLUDEMAIN", f"-DOMIT{omit}", "-I", support]
        io = folder / "io.o"
        if not io.exists():
            subprocess.run(["gcc", *options[:5], "-I", support, "-c", support / "io.c", "-o", io], check=True)
        if subprocess.run([compiler, *options, path, io, "-o", program, "-lpthread"], capture_output=True).returncode:
            return None
    return program


def quiet(command):
    try:
        subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        pass


def of_quarry(program, leaks, out):
    """(kind, the files of its first places) of each report."""
    out.unlink(missing_ok=True)
    quiet([TOOL, "check", "-q", "--leaks", "definite" if leaks else "no", "--format", "json", "-o", out, "--", program])
    report = json.loads(out.read_text())
    for one in (*report["errors"], *report["leaks"]):
        stack = one["stack"]
        if one.get("evidence"):
            stack = ((one.get("block") or {}).get("alloc") or {}).get("stack")
        yield one["kind"], [frame["file"] for frame in (stack or []) if frame["file"] and frame["module"] == str(program)][:3]


def of_memcheck(program, leaks, out):
    out.unlink(missing_ok=True)  # valgrind leaves what a longer file had behind its own
    quiet(["valgrind", "-q", f"--leak-check={'full' if leaks else 'no'}", "--undef-value-errors=no", "--xml=yes", f"--xml-file={out}", program])
    # An error may end valgrind itself, in the middle of its report.
    for text in re.findall(r"<error>.*?</error>", out.read_text(errors="replace"), re.S):
        one = xml.etree.ElementTree.fromstring(text)
        if one.findtext("kind").startswith("Leak_") and not leaks:  # with --xml it looks for leaks anyway
            continue
        frames = one.find("stack").iter("frame")
        yield one.findtext("kind"), [frame.findtext("file") for frame in frames if frame.findtext("obj") == str(program)][:3]


def is_found(reports, kinds, path):
    return any(kind in kinds.split() and any(pathlib.Path(file or "").name == path.name for file in files) for kind, files in reports)


def run(root, folder, checkers, only):
    """{checker: {cwe: Counter of cases, found, false}}"""
    sums = {checker: collections.defaultdict(collections.Counter) for checker in checkers}
    missed = collections.defaultdict(list)
    look = {"quarry": of_quarry, "memcheck": of_memcheck}
    with tempfile.TemporaryDirectory() as out:
        for cwe, path in cases(root):
            bad, good = (built(root, folder, path, omit) for omit in ("GOOD", "BAD")) if not only or cwe in only else (None, None)
            if not bad or not good:
                continue
            for checker in checkers:
                report = pathlib.Path(out) / "report"
                found = is_found(look[checker](bad, cwe == "401", report), KINDS[cwe][checker == "memcheck"], path)
                false = any(True for _ in look[checker](good, cwe == "401", report))
                sums[checker][cwe].update(cases=1, found=found, false=false)
                if not found:
                    missed[checker].append(path.stem)
    return sums, missed


def self_test():
    path = pathlib.Path("/x/a_01.c")
    assert is_found([("double-free", ["/y/a_01.c"])], "double-free x", path)
    assert not is_found([("double-free", ["/y/b_01.c"])], "double-free", path) and not is_found([("y", ["a_01.c"])], "double-free", path)
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "testcases/CWE415").mkdir(parents=True)
        (root / "testcasesupport").mkdir()
        (root / "testcasesupport/io.c").write_text("int unused;\n")
        for name, bad, good in (("hit", "free(p); free(p);", "free(p);"), ("miss", "free(p);", "free(p);"), ("false", "free(p); free(p);", "free(p); free(p);")):
            (root / f"testcases/CWE415/CWE415__{name}_01.c").write_text(
                f"#include <stdlib.h>\nint main(void) {{\n    char *volatile p = malloc(8);\n#ifndef OMITBAD\n    {bad}\n#else\n    {good}\n#endif\n    return 0;\n}}\n")
        sums, missed = run(root, root, ["quarry"], [])
        assert sums["quarry"]["415"] == {"cases": 3, "found": 2, "false": 1} and missed["quarry"] == ["CWE415__miss_01"], (sums, missed)
    print("check_juliet: a miss and a false report are seen")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--with", dest="checkers", default="quarry")
    parser.add_argument("--bin", help="keep the programs here")
    parser.add_argument("--json")
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("dir", nargs="?")
    parser.add_argument("cwe", nargs="*")
    args = parser.parse_args()
    if not pathlib.Path(TOOL).exists() or not shutil.which("gcc"):
        sys.exit(77)
    if args.self_test:
        return self_test()
    checkers = args.checkers.split(",")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(args.bin or folder).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        sums, missed = run(pathlib.Path(args.dir or ".").resolve(), folder, checkers, args.cwe)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps({"sums": sums, "missed": missed}, indent=1) + "\n")
    if not any(sums.values()):
        print("check_juliet.py: no case is there", file=sys.stderr)
        sys.exit(77)
    print("| CWE | cases | " + " | ".join(f"{checker}: found | false" for checker in checkers) + " |\n|---|---:|" + "---:|---:|" * len(checkers))
    for cwe in sorted(sums[checkers[0]]):
        cells = " | ".join(f"{sums[checker][cwe]['found']} | {sums[checker][cwe]['false']}" for checker in checkers)
        print(f"| {cwe} | {sums[checkers[0]][cwe]['cases']} | {cells} |")
    sys.exit(any(one["false"] for one in sums.get("quarry", {}).values()))


if __name__ == "__main__":
    main()
