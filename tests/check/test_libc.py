#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Each interposed function of libc: faults are reported, right to the byte, and nothing else changes.

  test_libc.py [--keep] [--lib PATH] [--document PATH] [faults|same|table ...]

  faults   each parameter that points to memory, of each function in the tables src/api/check_libc_*.def: a block that
           suffices gives no report. One that ends a byte too early, a pointer before the block, and a freed block give
           one, with kind, function, offset, bytes and block as libc_cases.txt says.
  same     with and without the library: the same results, and the same bytes in all memory that was given
  traps    calls that are right though they look wrong, and overlaps, negative sizes, errno, handlers of signals
  random   memory and strings, at random (QUARRY_SEED=n repeats it): the same results and bytes, and no report
  table    the tables and the document name the same functions
  --document PATH  write the list of functions into that document
  --keep   leave the folder with the program and the reports, and say where it is

A line of libc_cases.txt:   function: parameter=value ... [args=list of values] [+name=role ...] [!statement]
The value is C, or a role of a parameter that points to the heap's memory, in which the function
  R16        reads 16 bytes
  W16        writes 16 bytes
  W4@3:abc~  writes 4 bytes behind the first 3, which are there before; ~ stands for a zero byte
  W8=value   writes 8 bytes; before, what the value points to is copied there
  L5:hello   reads 5 bytes, because of a number; with other contents fewer
  S:hello    reads a string up to its end
w behind the letter: wide characters. `args` stands for the dots, and for a va_list. +x: one more pointer, for values.
What a line gives beside the function's own parameters is left out: one line is of all functions with that shown name.
"""
import argparse
import collections
import json
import os
import pathlib
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import textwrap

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TABLES = sorted((ROOT / "src" / "api").glob("check_libc_*.def"))
DOCUMENT = ROOT / "docs" / "check-libc.md"
DEFAULTS = {"room": "-1", "flag": "0", "how": "0"}
Function = collections.namedtuple("Function", "name shown parameters result table")
Role = collections.namedtuple("Role", "letter unit bytes at content source")


def compiler():
    return os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")


# ---- the tables -------------------------------------------------------------------------------------------------

MARKS = """
#define FUNCTION(result, name, shown, parameters, arguments, before, after) @@|result|name|shown|parameters
#define PROCEDURE(name, shown, parameters, arguments, before, after) @@|void|name|shown|parameters
#define VARIADIC(result, name, shown, other, parameters, last, arguments, before, after) @@|result|name|shown|parameters
"""


def functions():
    found = []
    for table in TABLES:
        text = subprocess.run([compiler(), "-E", "-P", "-x", "c", "-"], input=MARKS + table.read_text(), text=True,
                              stdout=subprocess.PIPE, check=True).stdout
        for part in text.split("@@|")[1:]:
            result, name, shown, parameters = (field.strip() for field in part.split("|"))
            inside = re.sub(r"\s+", " ", parameters)[1:-1]
            found.append(Function(name, shown.strip('"'), split(inside), result, table.stem))
    return found


def split(text, at=","):
    """At commas that are in no parentheses and no quotes."""
    parts, depth, quote = [""], 0, ""
    for i, c in enumerate(text):
        if c in "\"'" and quote in ("", c) and text[i - 1] != "\\":
            quote = "" if quote else c
        depth += 0 if quote else (c in "([{") - (c in ")]}")
        if c == at and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += c
    return [part.strip() for part in parts if part.strip() and part.strip() != "void"]


def name_of(parameter):
    inner = re.match(r".*\(\*(\w+)\)", parameter)
    return "..." if parameter == "..." else inner.group(1) if inner else re.search(r"(\w+)(\[\w*\])?$", parameter).group(1)


def is_memory(parameter):
    """Does it point to memory that the function reads or writes, as far as a table can say?"""
    return ("*" in parameter or "[" in parameter) and not re.search(r"FILE \*\w+$|\(\*|DIR \*", parameter)


# ---- the cases --------------------------------------------------------------------------------------------------

ROLE = re.compile(r"([RWLS])(w?)(\d+|\(.*?\)(?=[@:=]|$))?(?:@(\d+))?(?::(.*)|=(.*))?$")


def role_of(value):
    match = ROLE.match(value)
    if not match or (match.group(1) != "S" and match.group(3) is None):
        return None
    letter, wide, number, at, content, source = match.groups()
    unit = 4 if wide else 1
    if letter == "S":
        if content is None:
            return None
        content += "~"
        number = str(len(content))
    return Role(letter, unit, f"({number} * {unit})", int(at or 0) * unit, content, source)


def tokens(text):
    return split(text, " ")


def cases():
    found = collections.defaultdict(list)
    for line in (HERE / "libc_cases.txt").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        shown, rest = line.split(":", 1)
        values, extra, first = {}, {}, ""
        for token in tokens(rest):
            if token[0] == "!":
                first = token[1:]
                continue
            name, value = token.lstrip("+").split("=", 1)
            (extra if token[0] == "+" else values)[name] = value
        found[shown].append((values, extra, first))
    return found


# ---- the program ------------------------------------------------------------------------------------------------

def literal(content, unit):
    """C: the bytes as a string; its own zero byte comes behind."""
    escaped = re.sub(r"[^\x20-\x7e]|[\"\\?]", lambda m: f"\\{ord(m.group()):03o}", content.replace("~", "\0"))
    return f'{"L" if unit == 4 else ""}"{escaped}"'


def fill(role):
    """C: fills `image`, which has at + bytes bytes."""
    if role.source:
        return f"memcpy(image, (const void *)({role.source}), n);"
    if role.content is None:
        return "memset(image, 'x', n);" if role.unit == 1 else "wmemset((void *)image, L'x', n / 4);"
    return f"memset(image, 0, n); memcpy(image, {literal(role.content, role.unit)}, {len(role.content) * role.unit});"


class Program:
    def __init__(self):
        self.functions, self.calls, self.labels = [], [], []

    def add(self, function, values, extra, first, tested):
        """The function with this parameter under test; NULL is where the value is that the program chooses."""
        number = len(self.labels)
        arguments, lines = [], []
        roles = {name: role for name, value in [*values.items(), *extra.items()] if (role := role_of(value))}

        def value_of(name, value):
            if name == tested:
                return "(void *)p"
            role = roles.get(name)
            if not role:
                return value
            lines.append(f"char *{name}_ = other({role.at} + {role.bytes});"
                         f" {{ char *image = {name}_; size_t n = {role.at} + {role.bytes}; (void)n; {fill(role)} }}")
            return f"(void *){name}_"

        for name, value in extra.items():
            lines.append(f"void *{name} = {value_of(name, value)};")
        for parameter in function.parameters:
            name = name_of(parameter)
            if name == "ap":
                arguments.append("ap")
            elif name == "...":
                arguments += split(values.get("args", ""))
            elif name in values:
                arguments.append(value_of(name, values[name]))
            elif name in DEFAULTS:
                arguments.append(DEFAULTS[name])
            else:
                raise SystemExit(f"libc_cases.txt: no value for {name} of {function.name}")
        result = "void *" if "*" in function.result else function.result
        if not re.fullmatch(r"void \*|void|int|(unsigned )?long( long)?|float|double|long double|s?size_t", result):
            result = "long"
        is_pointer = ["*" in p or "[" in p for p in function.parameters]
        types = ["void *" if pointer else {"ap": "va_list", "...": "..."}.get(name_of(p), "long")
                 for p, pointer in zip(function.parameters, is_pointer)]
        arguments = [f"(void *)({a})" if pointer else a
                     for a, pointer in zip(arguments, is_pointer + [False] * len(arguments))]
        self.functions.append(f'extern {result} f{number}({", ".join(types) or "void"}) __asm__("{function.name}");')
        call = f"f{number}({', '.join(arguments)})"
        if "va_list" in types:
            passed = ", ".join("ap" if t == "va_list" else f"({t})k[{i}]" for i, t in enumerate(types))
            self.functions.append(f"static {result} list{number}(void **k, ...) {{ va_list ap; va_start(ap, k);"
                                  f" {result} r = f{number}({passed}); va_end(ap); return r; }}")
            kept = ", ".join("0" if a == "ap" else f"(void *)(long)({a})" for a in arguments)
            lines.append(f"void *k[] = {{{kept}}};")
            call = f"list{number}({', '.join(['k', *split(values.get('args', ''))])})"
        show = {"void": "", "void *": "show_pointer"}.get(result, "show_number")
        say = f"{'show_real' if re.search('float|double', result) else show}({call});"
        body = "\n    ".join([f"{first};" if first else "", *lines, say])
        self.functions.append(f"static void case{number}(char *p) {{ (void)p;\n    {body}\n}}")
        role = roles[tested]
        self.functions.append(f"static size_t fill{number}(char *image) {{ size_t n = {role.at} + {role.bytes};"
                              f" if (image) {{ {fill(role)} }} return n; }}")
        self.calls.append(f'{{"{function.name}", "{tested}", \'{role.letter}\', {role.unit}, {role.at}, '
                          f"case{number}, fill{number}}},")
        self.labels.append((function, tested, role))

    def text(self):
        return "\n".join(['#include "libc_prelude.h"', '#include "libc_run.h"', *self.functions,
                          "static const struct test_case cases[] = {", *self.calls, "};",
                          "int main(int argc, char **argv) { return run(argc, argv, cases, sizeof cases / sizeof *cases); }", ""])


def written(selected=None):
    """The program, and what is wrong with the list of cases."""
    program, errors, given = Program(), [], cases()
    used = set()
    for function in functions():
        key = function.name if function.name in given else function.shown
        used.add(key)
        lines = given.get(key, [])
        tested = set()
        for values, extra, first in lines:
            own = [name_of(p) for p in function.parameters]
            if any(role_of(v) for n, v in values.items() if n in own) or extra:
                names = [n for n, v in values.items() if n in own and role_of(v)] + [n for n in extra if role_of(extra[n])]
                for name in names:
                    tested.add(name)
                    program.add(function, values, extra, first, name)
            tested |= {n for n in values if n in own and not role_of(values[n])}
        missing = [p for p in function.parameters if is_memory(p) and name_of(p) not in tested]
        if missing or not tested:
            errors.append(f"libc_cases.txt: {function.name}: no line for {', '.join(missing) or 'it'}")
    errors += [f"libc_cases.txt: {name} is in no table" for name in given if name not in used]
    return program, errors


# ---- running it --------------------------------------------------------------------------------------------------

def build(folder, program):
    source = folder / "libc_cases.c"
    source.write_text(program.text())
    built = subprocess.run([compiler(), "-std=gnu17", "-D_GNU_SOURCE", "-O0", "-w", "-fno-builtin", "-U_FORTIFY_SOURCE",
                            f"-I{HERE}", source, "-o", folder / "libc_cases"], stderr=subprocess.PIPE, text=True)
    if built.returncode:  # else the linker may have said that a function is dangerous
        raise SystemExit(built.stderr)
    return folder / "libc_cases"


def execute(folder, name, library, *arguments):
    """The lines of answers, and the reports."""
    reports = folder / f"{name}.reports"
    reports.mkdir()
    environment = {**os.environ, "TZ": "UTC", "QUARRY_CHECK": f"out:{reports},leaks:off,guards:off"}
    if library:
        environment["LD_PRELOAD"] = str(library)
    answers = folder / f"{name}.answers"
    with open(folder / f"{name}.out", "w") as out:
        status = subprocess.run([folder / "libc_cases", answers, *arguments], env=environment, stdout=out, stderr=out,
                                stdin=subprocess.DEVNULL, timeout=300).returncode
    if status:
        raise SystemExit(f"the program of the cases ended with {status}: {(folder / f'{name}.out').read_text()[-2000:]}")
    errors = []
    for file in sorted(reports.iterdir(), key=lambda f: f.stat().st_mtime):
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        errors += [line["error"] for line in lines if "error" in line]
    return answers.read_text().splitlines(), errors


# Searches for a byte: they access the bytes up to it.
STOP = {"memchr", "memccpy"}


def wanted(role, how):
    """Kinds of which one must be reported, the offset, and whether the bytes are known."""
    access = "write" if role.letter == "W" else "read"
    moved = bool(role.at)  # where the access begins is told by what is there
    if how == "freed":
        return [f"use-after-free-{access}", "use-after-free-read"], role.at, role.letter in "RW" and not moved
    if how == "under":
        return [f"underflow-{access}", "underflow-read"], -role.unit, role.letter in "RW" and not moved
    return ["unterminated" if role.letter == "S" else f"overflow-{access}"], role.at, True


def expect(function, how, role, block, size, errors, at_address):
    """What is wrong with the reports of one call, or None."""
    # What begins before the block, and need not reach it, may be said to be behind the block before.
    may_end = role.letter in "SL" or role.at or size - role.at <= role.unit
    before = f"0x{int(block, 16) - role.unit:x}"
    if how == "under" and may_end and any(e["function"] == function.shown for e in at_address.get(before, [])):
        return None
    mine = [e for e in errors if e["block"] and e["block"]["address"] == block and not e["evidence"]]
    if how == "good":
        return f"is reported: {mine}" if mine else None
    kinds, offset, is_exact = wanted(role, how)
    bytes_ = size - role.at + (1 if how == "over" else 0)
    # The byte that ends a search may be the first one: what lies before a block, and in a freed one, is chance.
    least = 1 if how in ("under", "freed") and function.shown in STOP else bytes_
    for e in mine:
        if e["function"] != function.shown or e["block"]["size"] != size:
            return f"another function or size: {e}"
    for e in mine:
        if e["kind"] in kinds and (role.at or e["offset"] == offset) and (not is_exact or least <= e["bytes"] <= bytes_):
            return None
    said = [(e["kind"], e["offset"], e["bytes"]) for e in mine]
    return f"wanted {kinds[0]} at {offset} of {bytes_ if is_exact else 'any'} bytes, got {said or 'nothing'}"


def faults(folder, program, library):
    answers, errors = execute(folder, "faults", library)
    failed = []
    by_block, by_address = collections.defaultdict(list), collections.defaultdict(list)
    for e in errors:
        by_address[e["address"]].append(e)
        by_block[e["block"]["address"] if e["block"] else None].append(e)
    calls = [line.split() for line in answers if not line.startswith(" ")]
    if len(calls) != 4 * len(program.labels):
        failed.append(f"{len(calls)} calls of {4 * len(program.labels)}")
    for i, (name, parameter, how, block, size) in enumerate(calls):
        function, tested, role = program.labels[i // 4]
        wrong = expect(function, how, role, block, int(size), by_block[block], by_address)
        if wrong:
            failed.append(f"{name}, {parameter}, {how}: {wrong}")
    blocks = {block for _, _, _, block, _ in calls}
    before = {f"0x{int(block, 16) - unit:x}" for _, _, how, block, _ in calls if how == "under" for unit in (1, 4)}
    failed += [f"not of any case: {e['kind']} {e['function']} {e['address']} {e['bytes']} {e['block']}" for e in errors
               if not e["evidence"] and (not e["block"] or e["block"]["address"] not in blocks)
               and e["address"] not in before]
    print(f"{len(calls)} calls, {len(errors)} reports")
    return failed


CHANGES = {"getrandom", "getentropy", "clock_gettime", "gettimeofday", "time", "getrusage", "getloadavg", "statfs", "statvfs",
           "mkstemp", "mkdtemp", "mktime", "timegm", "regcomp", "regexec", "popen", "getsockname", "getpeername",
           "recvfrom", "accept", "accept4", "fopen", "freopen"}


def same(folder, program, library):
    """With the library and without it. Addresses are not shown, nor is what time and chance have made."""
    texts = []
    for name, preloaded in (("without", None), ("with", library)):
        answers, errors = execute(folder, name, preloaded, "show")
        shown, by = [], None
        for line in answers:
            if not line.startswith(" "):
                by, parameter = line.split()[:2]
                line = f"{by} {parameter}"
            if by.lstrip("_").split("64")[0].removesuffix("_chk") not in CHANGES or not line.startswith(" "):
                shown.append(re.sub(r"(?:[0-9a-f]{2}){5}(7[ef]|5[56])0000", "(a pointer)", line))
        texts.append(shown)
    failed = [f"without: {a}; with: {b}" for a, b in zip(*texts) if a != b]
    print(f"{len(texts[0])} lines of results and memory")
    return failed + ([] if len(texts[0]) == len(texts[1]) else ["another number of lines"])


# ---- programs of their own ---------------------------------------------------------------------------------------

def compiled(folder, name):
    subprocess.run([compiler(), "-std=gnu17", "-D_GNU_SOURCE", "-O1", "-w", "-fno-builtin", "-U_FORTIFY_SOURCE",
                    HERE / f"{name}.c", "-o", folder / name], check=True)
    return folder / name


def run_checked(folder, name, library, *arguments):
    """Status, output, messages, and the errors reported."""
    reports = folder / f"{name}.{len(list(folder.iterdir()))}"
    reports.mkdir()
    environment = {**os.environ, "QUARRY_CHECK": f"out:{reports},leaks:off,guards:off"}
    if library:
        environment["LD_PRELOAD"] = str(library)
    ran = subprocess.run([folder / name, *arguments], env=environment, capture_output=True, text=True, timeout=300,
                         stdin=subprocess.DEVNULL)
    lines = [json.loads(line) for file in reports.iterdir() for line in file.read_text().splitlines()]
    return ran.returncode, ran.stdout, ran.stderr, [line["error"] for line in lines if "error" in line]


def traps(folder, _, library):
    compiled(folder, "libc_traps")
    status, printed, wanted_lines, errors = run_checked(folder, "libc_traps", library)
    if "elsewhere" not in printed:
        print("the kernel did not get a huge block's memory back: that case was left out")
    if "chunks went" not in printed:
        print("the kernel did not get a chunk back: that case was left out")
    said = [f"{e['kind']} {e['function']}" for e in errors if not e["evidence"]]
    wanted = [line for line in wanted_lines.splitlines() if not line.startswith("quarry: ")]
    print(f"{len(said)} reports")
    return [] if status == 0 and said == wanted else [f"traps: status {status}, {said}, wanted {wanted}"]


def at_random(folder, _, library):
    """Random arguments: the same results and bytes."""
    compiled(folder, "libc_random")
    seed, failed = os.environ.get("QUARRY_SEED") or str(secrets.randbelow(1 << 32)), []
    plain, checked = (run_checked(folder, "libc_random", which, seed) for which in (None, library))
    if plain[:2] != checked[:2] or checked[3]:
        failed.append(f"random: QUARRY_SEED={seed}: status {checked[0]}, {checked[3][:1]}; first difference: " + next(
            (f"{a} with: {b}" for a, b in zip(plain[1].splitlines(), checked[1].splitlines()) if a != b), "none"))
    print(f"{len(plain[1].splitlines())} calls with random arguments")
    return failed


# ---- the document ------------------------------------------------------------------------------------------------

TITLES = {"string": "Memory and strings", "wide": "Wide characters", "io": "Descriptors, sockets and streams",
          "system": "Paths, the system, time, sorting, conversions", "format": "printf and scanf"}
BEGIN, END = "<!-- functions: test_libc.py -->", "<!-- end -->"


def listed():
    lines = [BEGIN, ""]
    for table, title in TITLES.items():
        names = sorted(f.name for f in functions() if f.table == f"check_libc_{table}")
        lines += [f"{title}: {len(names)}", "", "```text", *textwrap.wrap(" ".join(names), 100), "```", ""]
    return "\n".join([*lines, END])


def table(document):
    text = document.read_text() if document.exists() else ""
    if listed() in text:
        return []
    return [f"{document.name} does not have the functions of the tables: tests/check/test_libc.py --document {document}"]


def document_write(document):
    text = document.read_text()
    begin, end = text.index(BEGIN), text.index(END) + len(END)
    document.write_text(text[:begin] + listed() + text[end:])


def left_behind():
    """What calls with a path of no end would make in the system's folders, if they could."""
    return {(top, name) for top in (b"/", b"/usr") for name in os.listdir(top) if (b"usr" in name and name != b"usr") or not name.isascii()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--lib", type=pathlib.Path,
                        default=pathlib.Path(os.environ.get("QUARRY_LIB_DIR", ROOT / "build" / "lib")) / "libquarry-check.so")
    parser.add_argument("--document", type=pathlib.Path)
    parser.add_argument("steps", nargs="*")
    options = parser.parse_args()
    if options.document:
        document_write(options.document)
        return 0
    steps = options.steps or ["table", "faults", "same", "traps", "random"]
    program, failed = written()
    before = left_behind()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="quarry-libc-"))
    if {"faults", "same"} & set(steps) and not failed:
        build(folder, program)
    if "table" in steps:
        failed += table(DOCUMENT)
    if "faults" in steps and not failed:
        failed += faults(folder, program, options.lib)
    for step, run in {"same": same, "traps": traps, "random": at_random}.items():
        if step in steps and not failed:
            failed += run(folder, program, options.lib)
    failed += [f"{name} was made in {top}" for top, name in sorted(left_behind() - before)]
    for line in failed:
        print(f"FAILED {line}")
    if options.keep:
        print(folder)
    else:
        shutil.rmtree(folder)
    print(f"{len(program.labels)} parameters of {len(functions())} functions, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
