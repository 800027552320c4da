#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""quarry-gdb.py tells what is so, of a live process and of its core; and the sessions of examples/debug/ go as they say.

  test_gdb.py DEMO MESSAGE SCRIPT SESSIONS    DEMO and MESSAGE: built from gdb_demo.c and examples/debug/message.c
"""
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile

GDB = ["gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off", "-iex", "set pagination off"]
HEX = r"0x[0-9a-f]+"
KINDS = {"fifo": "current", "ring": "current", "tlsf": "from the parent", "pow2": r"region of partition \d",
         "pages": r"region, \d+ of \d+ pages used", "stack": "current", "persist": "the file"}
NAMES = {"persist": "persist", **{kind: f"demo {kind}" for kind in KINDS if kind != "persist"}}
FREES = ("fifo", "tlsf", "pow2", "pages", "persist")  # kinds whose blocks end one by one
SIZES = {"tlsf": r"40 bytes", "pow2": r"64 bytes", "pages": r"40960 bytes", "persist": r"40 bytes"}  # what kinds know of a block of 40 (40000)


def gdb(script, *arguments, conf="off", timeout=600):
    """Run commands; the output of each is between lines `## command`."""
    # By -ex, since a script ends with the first error.
    commands = [word for command in script for word in ("-ex", f"echo ## {command}\\n", "-ex", command)]
    done = subprocess.run([*GDB, *commands, *arguments], env={**os.environ, "QUARRY_CONF": f"pools:{conf}", "LC_ALL": "C"},
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=timeout)
    parts = re.split(r"^## (.*)\n", done.stdout, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2])), done.stdout


class Checks:
    def __init__(self):
        self.total = self.failed = 0

    def expect(self, title, text, *patterns, never=()):
        self.total += 1
        wrong, at = [], 0
        for pattern in patterns:  # in this order
            match = re.compile(pattern, re.M).search(text, at)
            if match:
                at = match.end()
            else:
                wrong.append(f"no {pattern!r}")
        wrong += [f"there is {pattern!r}" for pattern in never if re.search(pattern, text, re.M)]
        if wrong:
            self.failed += 1
            print(f"FAILED {title}: {wrong}\n" + "".join(f"    | {line}\n" for line in text.splitlines()[-40:]))


def questions():
    commands = ["quarry pools"]
    for kind in KINDS:
        commands += [f"quarry pool {kind}.pool", f"quarry block {kind}.live + 5"]
        if kind in FREES:
            commands.append(f"quarry block {kind}.dead")
    commands += [f"quarry block {place}" for place in ("pow2_mapped.live + 3000000", "scope.live + 5", "message.live + 5", "stack.live + 5000", "fifo.live - 3", "&fifo")]
    return commands + ["quarry pool 16", "quarry pool", "quarry block", "quarry block no_such_thing", "quarry watch fifo.live 3"]


def block_lines(kind, guarded, freed):
    """What `quarry block` says of a block behind the line with the chunk."""
    if guarded and kind != "persist":  # which is never checked: its file must not depend on it
        size = 40000 if kind == "pages" else 40
        lines = [rf"^  {'freed' if freed else 'live'} block at {HEX}, {size} bytes, offset {0 if freed else 5}, group \d+$",
                 rf"^  allocated at:\n(    {HEX} .*\n)*    {HEX} fill \(.*gdb_demo\.c:\d+\)$"]
        return lines + [rf"^  freed at:\n(    {HEX} .*\n)*    {HEX} fill \(.*gdb_demo\.c:\d+\)$"] if freed else lines
    if kind in SIZES:
        return [rf"^  {'free' if freed else 'used'} block at {HEX}, {SIZES[kind]}, offset {0 if freed else 5}"]
    if kind == "stack":
        return [rf"^  in the frame of {HEX}, which began at ({HEX}|the bottom)$"]
    return [r"^  offset \d+ in the chunk; the kind keeps no record of single blocks"]


def answers(checks, title, out, guarded):
    mode = "guard" if guarded else "-"
    rows = {name: rf"^{HEX} +{kind} +{name} +[1-9]\d* +[1-9]\d* +\d+ {'-' if kind == 'persist' else mode}$" for kind, name in NAMES.items()}
    for name, row in {**rows, "t_stack": rf"^{HEX} +stack +t_stack .*", "r_pool": rf"^{HEX} +ring +r_pool .*"}.items():
        checks.expect(f"{title} pools: {name}", out.get("quarry pools", ""), row, rf"^{len(NAMES) + 2} pools, [1-9]\d* bytes held$", never=["damaged"])
    for kind, chunk in KINDS.items():
        guarded_here = guarded and kind != "persist"
        blocks = [r"^  \d+ live blocks?, \d+ bytes; the newest:\n", rf"^    {HEX} +\d+ bytes, group \d+"] if guarded_here else []
        frames = [rf"^  frame {HEX} begins at {HEX}\n"] * 2 if kind == "stack" else []
        checks.expect(f"{title} pool {kind}", out.get(f"quarry pool {kind}.pool", ""), rf'^{kind} "{NAMES[kind]}" at {HEX}, alive, mode', "^  parent: the kernel",
                      r"^  held +[1-9]\d*$", rf"^  chunk {HEX}-{HEX} +\d+ bytes, {chunk}$", *frames, *blocks, never=["damaged"])
        place = rf'^{HEX}: {kind} "{NAMES[kind]}" at {HEX}, chunk {HEX}-{HEX} \({chunk}\)$'
        checks.expect(f"{title} block {kind}", out.get(f"quarry block {kind}.live + 5", ""), place, *block_lines(kind, guarded, False), never=["damaged"])
        if kind in FREES:
            checks.expect(f"{title} freed block {kind}", out.get(f"quarry block {kind}.dead", ""), place, *block_lines(kind, guarded, True), never=["damaged"])
    checks.expect(f"{title} block mapped", out.get("quarry block pow2_mapped.live + 3000000", ""), r"mapped block\)", "(mapped|live) block at .*, 3145728 bytes, offset 3000000")
    checks.expect(f"{title} block t_stack", out.get("quarry block scope.live + 5", ""), 'stack "t_stack"', *block_lines("stack", guarded, False))
    checks.expect(f"{title} block r_pool", out.get("quarry block message.live + 5", ""), 'ring "r_pool"', *block_lines("ring", guarded, False))
    checks.expect(f"{title} block behind the frames", out.get("quarry block stack.live + 5000", ""), 'stack "demo stack"', "^  not in use$")
    checks.expect(f"{title} block before", out.get("quarry block fifo.live - 3", ""), "fifo", "live block at .* before its start" if guarded else "offset")
    checks.expect(f"{title} block elsewhere", out.get("quarry block &fifo", ""), rf"^{HEX}: of no pool$")


def demo(checks, program, script, conf, work):
    guarded = conf == "guard"
    core = work / f"core.{conf}"
    begin = [f"source {script}", "break finished", f"run {work / (conf + '.pool')}"]
    errors = ("no tracked pool", "which pool\\?", "which address\\?", 'No symbol "no_such_thing"', "The processor watches 1, 2, 4 or 8")
    out, text = gdb([*begin, *questions(), "quarry watch fifo.live 1", f"generate-core-file {core}", "continue", "kill"], program, conf=conf)
    if "ptrace: Operation not permitted" in text or "Couldn't get registers" in text:
        return False
    answers(checks, f"live {conf}", out, guarded)
    for error in errors:
        checks.expect(f"live {conf} error", text, error)
    checks.expect(f"live {conf} watch", out.get("continue", ""), r"^Hardware watchpoint 2: \*\(char \*\)", "^Old value = 100 'd'", "^New value = 68 'D'")
    out, text = gdb([f"source {script}", *questions()], program, str(core), conf=conf)
    answers(checks, f"core {conf}", out, guarded)
    core.unlink()
    return True


def damaged(checks, program, script, work):
    """A list whose end is lost: said, and the rest is there."""
    lose = "set var *(void **)&(('pool/core.c'::pools).first->next->next) = (void *)16"
    out, _ = gdb([f"source {script}", "break finished", f"run {work / 'damaged.pool'}", lose, "quarry pools", "kill"], program)
    checks.expect("damaged list", out.get("quarry pools", ""), "t_stack", "demo stack",
                  r"list of pools: Cannot access memory at address 0x.*damaged", r"^2 pools")


def sessions(checks, program, folder):
    long_name = "a_name_that_is_far_too_long_for_the_few_bytes_that_a_message_has_and_for_what_lies_behind"
    arguments = {"overwritten.gdb": [], "overflow.gdb": [long_name]}
    found = sorted(folder.glob("*.gdb"))
    assert {p.name for p in found} == set(arguments), found
    if platform.machine() != "x86_64":
        print("the sessions are for the stack frames of x86-64: left out")
        return
    for path in found:
        text = subprocess.run([*GDB, "-x", str(path), "--args", program, *arguments[path.name]], env={**os.environ, "LC_ALL": "C"}, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=600).stdout
        patterns = re.findall(r"^# => (.*)$", path.read_text(), re.M)
        assert len(patterns) >= 4, path
        checks.expect(f"session {path.name}", text, *patterns)


def main():
    if not shutil.which("gdb"):
        print("SKIP: needs the package gdb")
        return 77
    program, message, script, folder = sys.argv[1:5]
    _, version = gdb(["python print('python', sys.version_info[0])"])
    if "python 3" not in version:
        print("SKIP: needs a gdb with Python")
        return 77
    checks = Checks()
    with tempfile.TemporaryDirectory() as directory:
        work = pathlib.Path(directory)
        for conf in ("off", "guard"):
            if not demo(checks, program, script, conf, work):
                print("SKIP: needs the right to trace (ptrace)")
                return 77
        damaged(checks, program, script, work)
    sessions(checks, message, pathlib.Path(folder))
    print(f"{checks.total} checks, {checks.failed} failed")
    return checks.failed > 0


if __name__ == "__main__":
    sys.exit(main())
