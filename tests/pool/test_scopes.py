#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""scripts/check_scopes.py reports exactly the marked lines of scopes/, and nothing in other folders.

  test_scopes.py CHECKER CASES [FOLDER...]
"""
import json
import pathlib
import re
import subprocess
import sys


def reported(checker, *names):
    done = subprocess.run([sys.executable, checker, "--json", *map(str, names)], capture_output=True, text=True)
    findings = json.loads(done.stdout)
    assert done.returncode == bool(findings), done
    return {(pathlib.Path(f["file"]).name, f["line"], f["rule"]): f for f in findings}


def marked(path):
    return {(path.name, number, match.group(1)) for number, line in enumerate(path.read_text().splitlines(), 1)
            for match in re.finditer(r"// BAD: ([\w-]+)", line)}


def main():
    checker, cases, folders = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:]
    failed = total = 0
    for path in sorted(cases.iterdir()):
        wanted, found = marked(path), reported(checker, path)
        if bool(wanted) != path.name.startswith("bad"):
            print(f"FAILED {path.name}: marks")
            failed += 1
        for file, line, rule in sorted(wanted - set(found)):
            print(f"FAILED {file}:{line}: {rule} was not reported")
        for key in sorted(set(found) - wanted):
            print(f"FAILED {key[0]}:{key[1]}: reported without reason: {found[key]['rule']}: {found[key]['message']}")
        failed += len(wanted ^ set(found))
        total += len(wanted)
    assert total
    for arguments, status in ((["--wrong"], 2), ([str(cases / "gone.c")], 2), ([str(cases / "good.c")], 0), ([str(cases / "bad.c")], 1)):
        done = subprocess.run([sys.executable, checker, *arguments], capture_output=True, text=True)
        if done.returncode != status:
            print(f"FAILED {arguments}: status {done.returncode}, not {status}")
            failed += 1
    # The line that people read, and compilers' readers parse.
    line = subprocess.run([sys.executable, checker, str(cases / "bad.c")], capture_output=True, text=True).stdout.splitlines()[0]
    if not re.fullmatch(r".*bad\.c:\d+: \w+: no-scope: .*t_scope;.*", line):
        print(f"FAILED: {line}")
        failed += 1
    for folder in folders:
        for finding in reported(checker, folder).values():
            print(f"FAILED {finding['file']}:{finding['line']}: {finding['rule']}: {finding['message']}")
            failed += 1
    print(f"{total} marked lines, {failed} wrong")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
