#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What memcheck and AddressSanitizer say of message.c: docs/pools/checkers.md shows it, this makes it.

  transcripts.py PLAIN ASAN                 run both programs; exit 1 if a line that matters is missing, here or in the page
  transcripts.py PLAIN ASAN --update        put what they say into the page
  transcripts.py --self-test                prove that a missing line is found out

PLAIN and ASAN are message.c, built as the page says. Process numbers and addresses differ from run to run: they are shown as PID and 0x...
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "pools" / "checkers.md"
LONG = "a_name_that_is_far_too_long_for_the_few_bytes_that_a_message_has_and_for_what_lies_behind"

# Name: the program, its arguments, what runs it, and the lines that matter, as regular expressions in this order.
CASES = {
    "memcheck": ("PLAIN", [], ["valgrind", "--tool=memcheck"], [
        r"Memcheck, a memory error detector",
        r"Invalid read of size 1$", r"at 0x\S+: (__GI_)?strlen ", r"by 0x\S+: fputs ", r"by 0x\S+: main \(message\.c:\d+\)",
        r"Address 0x\S+ is (on thread 1's stack|just below the stack ptr)",
        r"Invalid read of size 1$", r"HEAP SUMMARY:", r"in use at exit: 0 bytes in 0 blocks",
        r"ERROR SUMMARY: [1-9]\d* errors from [1-9]\d* contexts"]),
    "asan-write": ("ASAN", [LONG], [], [
        r"ERROR: AddressSanitizer: stack-buffer-overflow on address 0x", r"WRITE of size \d\d+ at 0x\S+ thread T0",
        r"#0 0x\S+ in (__interceptor_)?(strcat|memcpy)", r"#1 0x\S+ in build_message .*message\.c:\d+", r"#2 0x\S+ in main .*message\.c:\d+",
        r"is located in stack of thread T0 at offset 64 in frame", r"#0 0x\S+ in build_message", r"This frame has 1 object\(s\):",
        r"\[32, 64\) 'message' \(line \d+\) <== Memory access at offset 64 overflows this variable"]),
    "asan-read": ("ASAN", [], [], [
        r"ERROR: AddressSanitizer: stack-use-after-return on address 0x", r"READ of size 14 at 0x\S+ thread T0",
        r"#0 0x\S+ in (__interceptor_)?strlen", r"#1 0x\S+ in my_fputs .*message\.c:\d+", r"#2 0x\S+ in main .*message\.c:\d+",
        r"is located in stack of thread T0 at offset 32 in frame", r"#0 0x\S+ in build_message", r"\[32, 64\) 'message'"]),
}


def missing(patterns, text):
    """The first of the patterns that does not follow the others."""
    at = 0
    for pattern in patterns:
        found = re.compile(pattern, re.M).search(text, at)
        if not found:
            return pattern
        at = found.end()
    return None


def tidy(text):
    """As it can be shown: without what differs from run to run, and without the map of shadow bytes."""
    text = re.split(r"^Shadow bytes around", text, flags=re.M)[0]
    text = re.sub(r"==\d+==", "==PID==", text)
    text = re.sub(r"0x[0-9a-f]{6,}", "0x...", text)
    text = re.sub(r"0x[0-9A-F]{5,}", "0x...", text)
    text = re.sub(r"(Command: )\S+", r"\1./message", text)
    text = re.sub(r" \(BuildId: [0-9a-f]+\)", "", text)
    text = re.sub(r"(\s|\()/\S*/(?=[^/\s]+)", r"\1", text)  # folders of this machine
    text = re.sub(r" \([^()\s]+\+0x[0-9a-f.]+\)", "", text)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def transcript(name, programs):
    which, arguments, runner, _ = CASES[name]
    env = {**os.environ, "LC_ALL": "C", "ASAN_OPTIONS": "detect_stack_use_after_return=1:detect_leaks=0:color=never"}
    done = subprocess.run([*runner, programs[which], *arguments], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, errors="replace", timeout=600)
    return done.stderr


def block(name):
    """Where the page shows it."""
    return re.compile(rf"(<!-- transcript: {name} -->\n```\n)(.*?)(```\n)", re.S)


def main():
    if "--self-test" in sys.argv:
        assert missing(["b", "a"], "a b") == "a" and missing(["a", "b"], "a b") is None
        for name, (_, _, _, patterns) in CASES.items():
            text = block(name).search(PAGE.read_text()).group(2)
            for line in text.splitlines():
                if any(re.search(p, line) and len(re.findall(p, text, re.M)) == 1 for p in patterns):
                    assert missing(patterns, text.replace(line + "\n", "")), (name, line)
        return print("self-test: each line that matters and stands once was missed")
    programs = dict(zip(("PLAIN", "ASAN"), sys.argv[1:3]))
    if len(programs) != 2:
        sys.exit(__doc__)
    page, failed = PAGE.read_text(), 0
    for name, (_, _, runner, patterns) in CASES.items():
        if runner and not shutil.which(runner[0]):
            print(f"left out: {name}: no {runner[0]}")
            continue
        text = transcript(name, programs)
        if lost := missing(patterns, text):
            failed += 1
            print(f"FAILED {name}: no line {lost!r} in\n" + "".join(f"    | {line}\n" for line in text.splitlines()[:60]))
        elif "--update" in sys.argv:
            page = block(name).sub(lambda m: m[1] + tidy(text) + m[3], page)
        shown = block(name).search(page)
        if not shown or missing(patterns, shown.group(2)):
            failed += 1
            print(f"FAILED {name}: {PAGE.relative_to(ROOT)} does not show {missing(patterns, shown.group(2)) if shown else 'it'!r}; --update")
    if "--update" in sys.argv and not failed:
        PAGE.write_text(page)
    print(f"{len(CASES)} transcripts, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
