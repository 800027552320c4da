#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Check that what programs call of the drop-in lies within the 64 KiB that the kernel maps at once (cmake/rare.ld).

  check_text.py LIBRARY      exit 1 and one line for each thing that is not so
  check_text.py --self-test  prove that it can fail

Each function that rare.ld names is defined in the file that it names, and is named once. The code that is always there, with all that the loader reads, must end below 64 KiB from the beginning; what each program calls must be in
it, and what small programs with threads call before those 64 KiB end; and a program that does little, and one with threads, must have no more
than that of the library's code. Exit 77, with the reason: it cannot be said here.
"""
import fnmatch
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
RARE = ROOT / "cmake" / "rare.ld"
NOISE = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
FUNCTION = re.compile(r"\b(?!(?:if|for|while|switch)\b)([A-Za-z_]\w*)\s*\([^;{}()]*(?:\([^;{}()]*\)[^;{}()]*)*\)\s*\\?\s*\{")
MANGLED = re.compile(r'"(_Z\w+)"')
OBJECT = re.compile(r"\*(src/\S+\.c)\.o\(([^)]*)\)")

WINDOW = 64 << 10  # what Linux maps around a page by default
CALLED = ("malloc", "free", "calloc", "realloc", "aligned_alloc", "malloc_usable_size", "_Znwm", "_ZdlPv",
          "qy_alloc_slow", "qy_free_full", "qy_free_other", "qy_heap_start", "qy_thread_get", "qy_moved_much", "qy_lock_slow", "qy_unlock_slow")
SOON = ("qy_os_cpus_together", "qy_moved_without", "pthread_create", "qy_lists_leave", "qy_stack_thread_release")  # with threads, after a second
THREADS = """#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
static void *work(void *arg) {
    void *p[20];
    for (int i = 0; i < 20; i++) p[i] = malloc(10 * i + 1);
    for (int i = 0; i < 20; i++) free(p[i]);
    return arg;
}
int main(void) {
    pthread_t thread[4];
    for (int i = 0; i < 4; i++)
        if (pthread_create(&thread[i], NULL, work, NULL)) return 1;
    for (int i = 0; i < 4; i++) pthread_join(thread[i], NULL);
    FILE *maps = fopen("/proc/self/smaps", "r");
    if (!maps) return 2;
    for (int c; (c = getc(maps)) != EOF;) putchar(c);
}
"""


def included(path, src, seen):
    """The file, and the headers of the project that it includes, at any depth."""
    if path not in seen and path.exists():
        seen[path] = path.read_text()
        for name in re.findall(r'^#include "([^"]+)"', seen[path], re.M):
            included(src / name, src, seen)
    return seen


def functions(path, src):
    """The functions that a file may define, also by macros of the headers that it includes."""
    names = set()
    for part in included(path, src, {}).values():
        part = NOISE.sub(" ", part)
        names |= set(FUNCTION.findall(part)) | set(MANGLED.findall(part))
    return names


def check_script(script, root):
    """What the linker script names and the sources do not have. A compiler may leave out a function; the sources have it."""
    problems, seen = [], {}
    for file, patterns in OBJECT.findall(NOISE.sub(" ", script.read_text())):
        path = root / file
        if not path.exists():
            problems.append(f"{script.name}: there is no {file}")
            continue
        names = functions(path, root / "src")
        for pattern in patterns.split():
            if (file, pattern) in seen:
                problems.append(f"{script.name}: {file} has {pattern} twice")
            seen[file, pattern] = True
            wanted = pattern.removeprefix(".text.")
            if pattern.startswith(".text.") and wanted != "*" and not wanted.startswith("unlikely") and not fnmatch.filter(names, wanted):
                problems.append(f"{script.name}: {file} defines no function {wanted}: where is it now?")
    return problems


def output(*command, **more):
    return subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True, **more).stdout


def sections(library):
    """{name: (address, size)}"""
    rows = re.findall(r"^\s*\[\s*\d+\]\s+(\S+)\s+\S+\s+([0-9a-f]+)\s+[0-9a-f]+\s+([0-9a-f]+)", output("readelf", "-SW", library), re.M)
    return {name: (int(address, 16), int(size, 16)) for name, address, size in rows}


def check_layout(library, called, soon=()):
    found = sections(library)
    if ".text.rare" not in found:
        return [f"{library.name}: has no section .text.rare: the linker did not take cmake/rare.ld"]
    rare = found[".text.rare"][0]
    problems = []
    if rare > WINDOW:
        problems.append(f"{library.name}: {rare} bytes lie before what is rare, at most {WINDOW}: add to cmake/rare.ld what programs seldom call")
    places = {line.split()[2]: int(line.split()[0], 16) for line in output("nm", "--defined-only", library).splitlines()}
    problems += [f"{library.name}: no function {name}: is it called otherwise now?" for name in called if name not in places]
    problems += [f"{library.name}: {name} lies among what is rare" for name in called if places.get(name, 0) >= rare]
    problems += [f"{library.name}: {name} does not begin in the first {WINDOW} bytes" for name in soon if places.get(name, WINDOW) >= WINDOW]
    aligned = re.findall(r"^\s*LOAD.*0x([0-9a-f]+)$", output("readelf", "-lW", library), re.M)
    if not aligned or int(aligned[0], 16) < WINDOW:
        problems.append(f"{library.name}: does not begin at a multiple of {WINDOW}")
    return problems


def resident_code(library, *command):
    """(address, resident bytes) of its code in a program that prints its map; None where there is none."""
    text = output(*command, env={**os.environ, "LD_PRELOAD": str(library.resolve())})
    match = re.search(r"^([0-9a-f]+)-[0-9a-f]+ r-xp .*" + re.escape(library.resolve().name) + r"\n(?:\w.*\n)*?Rss:\s+(\d+) kB", text, re.M)
    return (int(match[1], 16), int(match[2]) << 10) if match else None


def check_resident(library, what, *command):
    """What is wrong with it, and why that cannot be said."""
    # It is what each run has that counts. One of many, on a busy machine, had more.
    there = resident_code(library, *command)
    for _ in range(20):
        if not there or there[1] <= WINDOW:
            break
        there = min(there, resident_code(library, *command), key=lambda found: found[1])
    if not there:
        return [f"{library.name}: its code is not in {what} that preloads it"], ""
    if there[0] % WINDOW:
        return [], "the loader does not begin libraries where they ask for"
    return ([f"{library.name}: {there[1]} bytes of its code are in {what}: what it calls is in cmake/rare.ld"] if there[1] > WINDOW else []), ""


def check(library):
    problems = check_script(RARE, ROOT) + check_layout(library, CALLED, SOON)
    if problems:
        return problems, ""
    with tempfile.TemporaryDirectory() as directory:
        source, program = pathlib.Path(directory, "threads.c"), pathlib.Path(directory, "threads")
        source.write_text(THREADS)
        output(*os.environ.get("CC", "cc").split(), "-O1", "-pthread", "-o", program, source)
        for what, command in (("a program that does little", ("cat", "/proc/self/smaps")), ("a program with threads", (program,))):
            problems, unknown = check_resident(library, what, *command)
            if problems or unknown:
                return problems, unknown
    return [], ""


def self_test():
    with tempfile.TemporaryDirectory() as directory:
        root = pathlib.Path(directory)
        def problems(source, *options, soon=()):
            (root / "x.c").write_text(source)
            output(os.environ.get("CC", "cc"), "-O1", "-ffunction-sections", "-shared", "-fPIC", "-nostartfiles", "-Wl,-z,noseparate-code", *options,
                   "-o", root / "x.so", root / "x.c")
            return check_layout(root / "x.so", ("called",), soon)

        apart = ("-Wl,-T," + str(RARE), "-Wl,-z,max-page-size=65536")
        ok = "int called(void) { return 1; }\n__attribute__((section(\".text.unlikely\"))) int other(void) { return 2; }\n"
        assert problems(ok, *apart) == []
        assert "no section .text.rare" in problems(ok)[0]
        assert "begin at a multiple" in problems(ok, apart[0], "-Wl,-z,max-page-size=4096")[0]
        assert "called lies among" in problems(ok.replace("int called", "__attribute__((section(\".text.unlikely\"))) int called"), *apart)[0]
        assert problems(ok, *apart, soon=("other",)) == []
        assert "other does not begin in" in problems(ok + f"__asm__(\".section .text.unlikely\\n.skip {WINDOW}\");\n", *apart, soon=("other",))[0]
        assert "no function called" in problems(ok.replace("int called", "int also"), *apart)[0]

        (root / "src").mkdir()
        (root / "src" / "m.h").write_text("#define MORE \\\n    int by_macro(int a) { \\\n return a; }\n")
        (root / "src" / "a.c").write_text('#include "m.h"\n/* gone(void) { */ static int here(int (*f)(int), int b) {\n    if (moved(b)) {\n    }\n}\n'
                                          'int op(void) __asm__("_ZnwmRK");\n')

        def script(patterns, file="src/a.c"):
            (root / "x.ld").write_text(f"SECTIONS {{ .text.rare : {{ /* *src/z.c.o(.text.z*) */ *(.text.unlikely*) *{file}.o({patterns}) }} }}\n")
            return check_script(root / "x.ld", root)

        for patterns in (".text .text.*", ".text.unlikely* .rodata.str*", ".text.here* .text.by_[!a]* .text._Znwm*"):
            assert script(patterns) == [], patterns
        for name in ("gone", "moved", "if", "f", "z"):
            assert f"defines no function {name}*" in script(f".text.{name}* .text.here*")[0], name
        assert "there is no src/b.c" in script(".text", "src/b.c")[0]
        assert "has .text.here* twice" in script(".text.here* .text.here*")[0]
        assert "bytes lie before" in problems(ok + "const char large[70000] = {1};\n", *apart)[0]
    print("ok: each rule can fail")


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    problems, unknown = check(pathlib.Path(sys.argv[1]))
    print("\n".join(problems) or f"SKIP: needs a file that it can read: {unknown}" if problems or unknown else "ok: what programs call lies together")
    sys.exit(1 if problems else 77 if unknown else 0)


if __name__ == "__main__":
    main()
