#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Check that functions of a library have no loop: every instruction runs at most once in a call.

  loops.py LIBRARY ROOT...   exit 1 if a loop can be reached from the functions ROOT
  loops.py --self-test       prove that a loop is found

The control flow is read from the disassembly: jumps within a function and between it and its cold part are followed, and
so are calls of functions of the library. STOPS end the search: what copies contents, what talks to the kernel, and what
ends the process. What is printed as the most that run in a call is the longest way through, taken or not, without what
these stops do. Jumps through tables are a failure, because nobody can tell where they lead. x86-64 only (else exit 77).
"""
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile

COPIES = {"memcpy", "memset", "memmove"}
LEAVES = {"qy_tlsf_grow", "qy_tlsf_reach", "qy_tlsf_region_emptied", "qy_pool_no_memory", "qy_pool_refuse", "qy_lock_slow", "qy_unlock_slow"}
DEADLY = {"qy_fatal", "qy_tlsf_bad_pointer", "qy_tlsf_damaged", "qy_assert_failed", "abort"}
STOPS = COPIES | LEAVES | DEADLY


def disassemble(library):
    """{address: (mnemonic, operand text, next address)} and {name: address}."""
    text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", library], check=True, capture_output=True, text=True).stdout
    code, names, before = {}, {}, None
    for line in text.splitlines():
        if head := re.match(r"([0-9a-f]+) <(.+)>:", line):
            names[head[2]] = int(head[1], 16)
        elif match := re.match(r"\s*([0-9a-f]+):\s+((?:(?:lock|bnd|notrack|data16|addr32|[cdefgs]s)\s+)*)(\S+)\s*(.*)", line):
            address = int(match[1], 16)
            if before is not None:
                code[before][2] = address
            code[address] = [match[3], match[4], None]
            before = address
    return code, names


def target(operand):
    match = re.match(r"([0-9a-f]+) <([^>+]+)(?:@[\w.]+)?(\+0x[0-9a-f]+)?>", operand) or \
        re.search(r"# ([0-9a-f]+) <([^>+@]+)(?:@[\w.]+)?(\+0x[0-9a-f]+)?>", operand)
    return (int(match[1], 16), match[2].split("@")[0], match[3]) if match else (None, None, None)


def steps(code, address):
    """Addresses that may run after this one, and the called function's, or raise ValueError."""
    mnemonic, operand, following = code[address]
    to, name, offset = target(operand)
    base = re.sub(r"\.(cold|part\.\d+|constprop\.\d+|isra\.\d+).*", "", name) if name else None
    if mnemonic.startswith(("ret", "ud2", "hlt")):
        return [], None
    if mnemonic.startswith("call"):
        if base in DEADLY and not offset:
            return [], None
        if base in STOPS and not offset:
            return [following], None
        if to in code:
            return [following], to
        raise ValueError(f"{address:x}: call of {operand or '?'}")
    if mnemonic.startswith("jmp"):
        if base in STOPS and not offset:
            return [], None
        if to in code:
            return [to], None
        raise ValueError(f"{address:x}: jump to {operand or '?'}")
    if mnemonic.startswith("j") or mnemonic.startswith("loop"):
        return [following, to], None
    if mnemonic.startswith("rep"):
        raise ValueError(f"{address:x}: {mnemonic} {operand}")
    return [following], None


def find_loop(code, root):
    """Complaints, and if there are none the length of the longest way through; with how much was looked at.

    Depth first with a stack of our own. A called function is one more successor: it comes back to one that is closed by
    then, so an instruction that is met while it is open is a loop, or a recursion.
    """
    problems, longest, opened, functions = [], {}, set(), {root}
    stack = [(root, None)]
    while stack:
        address, after = stack.pop()
        if after is None:
            if address in longest:
                continue
            if address in opened:
                problems.append(f"the instruction at {address:x} can run again")
                continue
            opened.add(address)
            try:
                following, called = steps(code, address)
            except ValueError as error:
                problems.append(str(error))
                following, called = [], None
            following = [f for f in following if f is not None]
            if called is not None:
                functions.add(called)
            stack.append((address, (following, called)))
            stack.extend((f, None) for f in ([*following, called] if called is not None else following))
        elif address not in longest:
            following, called = after
            longest[address] = 1 + max((longest.get(f, 0) for f in following), default=0) + longest.get(called, 0)
            opened.discard(address)
    return problems, longest.get(root, 0), len(longest), len(functions)


def check(library, roots):
    code, names = disassemble(library)
    bad = False
    for root in roots:
        if root not in names:
            print(f"{root}: not in {library}")
            bad = True
            continue
        problems, longest, instructions, functions = find_loop(code, names[root])
        for problem in sorted(set(problems)):
            print(f"{root}: {problem}")
        bad |= bool(problems)
        if not problems:
            print(f"{root}: no loop in {instructions} instructions of {functions} functions; at most {longest} run in a call")
    return bad


def self_test():
    with tempfile.TemporaryDirectory() as directory:
        source = pathlib.Path(directory, "x.c")
        source.write_text("int plain(int a) { return a > 3 ? a * 2 : a - 1; }\n"
                          "int loop(const int *p) { int s = 0; while (*p) s += *p++; return s; }\n"
                          "__attribute__((noinline)) int inner(volatile int *p) { while (*p > 3) --*p; return *p; }\n"
                          "int outer(volatile int *p) { return inner(p) + inner(p + 1); }\n"
                          "void qy_fatal(void);\n"
                          "int stops(int a) { if (a) qy_fatal(); return a; }\n")
        library = pathlib.Path(directory, "x.so")
        subprocess.run([os.environ.get("CC", "cc"), "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
        code, names = disassemble(library)
        found = {name: bool(find_loop(code, names[name])[0]) for name in ("plain", "loop", "inner", "outer", "stops")}
        assert found == {"plain": False, "loop": True, "inner": True, "outer": True, "stops": False}, found
        _, longest, instructions, _ = find_loop(code, names["plain"])
        assert 3 <= longest <= instructions, (longest, instructions)


if __name__ == "__main__":
    if platform.machine() not in ("x86_64", "AMD64"):
        print("SKIP: needs x86-64: it reads such code")
        sys.exit(77)
    if sys.argv[1:] == ["--self-test"]:
        self_test()
    elif len(sys.argv) > 2:
        sys.exit(check(sys.argv[1], sys.argv[2:]))
    else:
        sys.exit(__doc__)
