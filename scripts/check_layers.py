#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Check who includes whom in src/.

  check_layers.py [ROOT]       check a source tree; exit 1 and one line for each violation
  check_layers.py --self-test  prove on a bad tree that each rule can fail

Rules: a folder includes only what src/LAYERS allows it; an include in quotes is written relative to
src/; only src/os includes the headers through which one reaches the kernel or libc's threads. Nobody
yields: a thread of lower priority that is waited for gets no processor by that. Who spins has a bound.
No module includes itself through others; a module is a header and the source of the same name.
"""
import pathlib
import re
import sys
import tempfile

# Headers that are a way to the kernel, or to services of libc that call it.
KERNEL_HEADERS = re.compile(
    r"(sys|linux|asm|asm-generic)/.*"
    r"|(unistd|pthread|threads|fcntl|sched|signal|dlfcn|stdio|stdlib|time|poll|link|spawn|semaphore)\.h")

# file: {header: reason}. Everything else goes through src/os/os.h.
ALLOWED = {
    "api/dropin.h": {
        "stdlib.h": "declares the functions that are defined by who includes it",
        "stdio.h": "malloc_info(int, FILE *) is part of the malloc family",
    },
    "api/dropin_malloc.c": {"stdio.h": "malloc_info(int, FILE *) is part of the malloc family"},
    "api/dropin_dlopen.c": {"dlfcn.h": "declares the functions that are defined there"},
    "api/dropin_late.c": {
        header: "declares the functions that are defined there"
        for header in ("dlfcn.h", "link.h", "pthread.h", "sched.h", "stdio.h", "sys/auxv.h")},
    "api/dropin_fork.c": {header: "declares the functions that are defined there" for header in ("pthread.h", "threads.h")},
    "api/dropin_new.c": {
        "dlfcn.h": "finds the C++ library's new_handler and bad_alloc if the program has one",
        "stdlib.h": "malloc and free, which the operators are made of",
    },
    "api/dropin_pow2.c": {
        "stdio.h": "malloc_info(int, FILE *) is part of the malloc family",
        "pthread.h": "pthread_atfork",
    },
    "api/check_malloc.c": {"stdio.h": "malloc_info(int, FILE *) is part of the malloc family"},
    "api/check_new.c": {
        "dlfcn.h": "RTLD_NEXT: the runtime's nothrow operators, which catch",
        "stdlib.h": "malloc and free, which a program may have replaced",
    },
    "api/check_signal.c": {"signal.h": "declares the functions that are defined there"},
    "api/check_stop.c": {header: "declares the functions that are defined there"
                         for header in ("poll.h", "pthread.h", "signal.h", "sys/epoll.h", "sys/select.h", "sys/signalfd.h")},
    "api/check_process.c": {"stdlib.h": "on_exit and at_quick_exit: libc's own registers of handlers"},
    "api/dropin_runtime.c": {"dlfcn.h": "finds the C++ runtime of the program"},
    "check/life.c": {"pthread.h": "pthread_atfork: libc's own register of fork handlers"},
    "api/exec.h": {"sys/types.h": "for the declarations of the exec functions"},
    "api/check_libc.c": {"dlfcn.h": "finds the functions that the program would have called"},
    "api/check_libc_io.c": {header: "types of the functions that are defined there" for header in (
        "stdio.h", "stdlib.h", "sys/types.h", "sys/uio.h", "unistd.h")},
    "api/check_libc_string.c": {header: "declares the functions that are defined there" for header in (
        "stdlib.h", "unistd.h")},
    "api/check_libc_system.c": {header: "types of the functions that are defined there" for header in (
        "poll.h", "sys/epoll.h", "sys/resource.h", "sys/select.h", "sys/stat.h", "sys/statfs.h", "sys/statvfs.h",
        "sys/time.h", "sys/types.h", "sys/utsname.h", "time.h")},
    "api/check_libc_wide.c": {"stdlib.h": "declares the functions that are defined there"},
    "api/record_malloc.c": {"stdlib.h": "declares the functions that are defined there"},
    "api/record_new.c": {"stdlib.h": "malloc and free, which stand in for a C++ runtime"},
    "api/record_wait.c": {
        "signal.h": "siginfo_t, for the definition of waitid",
        "stdio.h": "FILE, for the definitions of popen and pclose",
        "stdlib.h": "declares system, which is defined there",
        "sys/wait.h": "declares the functions that are defined there",
    },
    "api/record_process.c": {"sys/types.h": "pid_t, for the declaration of fork"},
    "api/record_real.c": {"dlfcn.h": "finds the functions that the program would have called"},
    "api/record_thread.c": {
        "pthread.h": "declares the functions that are defined there",
        "threads.h": "declares the functions that are defined there",
    },
    "heap/atfork.c": {
        "pthread.h": "pthread_atfork: libc's own register of fork handlers; makes no system call",
    },
    "pool/core.c": {"pthread.h": "pthread_atfork"},
    "pool/libc.c": {"stdlib.h": "malloc itself is what this pool is"},
    "pool/log.c": {"pthread.h": "pthread_atfork, pthread_once"},
    "pool/observe.c": {"stdlib.h": "pass-through: each block is a malloc"},
    "pool/origin.c": {"pthread.h": "pthread_once, and a key whose destructor gives back what a thread's stacks took"},
    "pool/ring/ring_frame.c": {"pthread.h": "pthread_atfork, pthread_once"},
    "pool/ring/ring_thread.c": {"pthread.h": "a key whose destructor ends the thread's ring"},
    "pool/stack/stack_thread.c": {"pthread.h": "a key whose destructor ends the thread's stack"},
    "pool/text.c": {"stdio.h": "vsnprintf: the whole of printf's formats"},
    "trace/record.c": {"pthread.h": "pthread_atfork", "stdlib.h": "on_exit, at_quick_exit"},
}

# Whoever waits for another thread sleeps (rt/lock.h).
YIELD = re.compile(r"\b\w*(sched|thrd|pthread|os)_yield\b")
# A pause of the processor stands in a loop with a constant bound, at most so many lines above.
PAUSE, BOUNDED, LOOP_LINES = re.compile(r"\bqy_pause\(\)"), re.compile(r"for \(int \w+ = 0; \w+ < [A-Z_]+; \w+\+\+\)"), 8
# A loop that does nothing but look.
SPIN = re.compile(r"^\s*while \(.*(atomic_load|atomic_flag|_try).*\)\s*(;|\{\s*\}|qy_pause\(\);)\s*$")

INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)')


def read_layers(path):
    """{folder: set of folders it may include, itself among them}"""
    layers = {}
    for line in path.read_text().splitlines():
        line = line.split("#")[0].strip()
        if line:
            folder, below = line.split(":")
            layers[folder] = {folder, *below.split()}
    return layers


def check(root):
    src = root / "src"
    layers = read_layers(src / "LAYERS")
    problems = []
    # The siblings are a rule of their own, so that an edit of LAYERS cannot lift it unseen.
    siblings = {"heap", "pool", "trace"}
    for name in siblings:
        for other in (siblings - {name}) & layers.get(name, set()):
            problems.append(f"src/LAYERS: {name} may include {other}, but they are siblings")
    for path in sorted(p for p in src.rglob("*") if p.suffix in (".c", ".h", ".def", ".cc", ".cpp")):
        file = path.relative_to(src).as_posix()
        folder = file.split("/")[0]
        if folder not in layers:
            problems.append(f"src/{file}: folder {folder} is not in src/LAYERS")
            continue
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines, 1):
            where = f"src/{file}:{number}"
            code = line.split("//")[0]
            if YIELD.search(code):
                problems.append(f"{where}: yields, where it should sleep (see rt/lock.h)")
            elif SPIN.match(code) and "compare_exchange" not in code:
                problems.append(f"{where}: spins without a bound")
            elif PAUSE.search(code) and not any(BOUNDED.search(l) for l in lines[max(0, number - 1 - LOOP_LINES):number]):
                problems.append(f"{where}: spins without a constant bound")
            match = INCLUDE.match(line)
            if not match:
                continue
            quoted, system = match.groups()
            if quoted:
                target = quoted.split("/")[0]
                if "/" not in quoted or target not in layers:
                    problems.append(f'{where}: "{quoted}" is not written relative to src/')
                elif target not in layers[folder]:
                    problems.append(f'{where}: {folder} may not include "{quoted}"')
                elif not (src / quoted).exists():
                    problems.append(f'{where}: "{quoted}" does not exist')
            elif folder != "os" and KERNEL_HEADERS.fullmatch(system):
                if system not in ALLOWED.get(file, {}):
                    problems.append(f"{where}: <{system}> leads around src/os (see os/os.h)")
    problems += [f"src: an include cycle: {', '.join(cycle)}" for cycle in cycles(src)]
    for file, headers in ALLOWED.items():
        for header in headers if (src / file).exists() else ():
            if f"<{header}>" not in (src / file).read_text():
                problems.append(f"scripts/check_layers.py: {file} no longer includes <{header}>")
    return problems


def cycles(src):
    """Each set of modules that include each other, as a sorted list of their names."""
    below = {}
    for path in sorted(p for p in src.rglob("*") if p.suffix in (".c", ".h", ".def")):
        name = path.relative_to(src).with_suffix("").as_posix()
        for match in filter(None, map(INCLUDE.match, path.read_text().splitlines())):
            if match.group(1):
                below.setdefault(name, set()).add(str(pathlib.PurePosixPath(match.group(1)).with_suffix("")))

    def reached(start):
        seen, ahead = set(), [start]
        while ahead:
            for module in below.get(ahead.pop(), ()):
                if module not in seen:
                    seen.add(module)
                    ahead.append(module)
        return seen

    for module, included in below.items():
        included.discard(module)  # a source includes its own header
    reach = {module: reached(module) for module in below}
    return sorted({tuple(sorted(m for m in reach[module] if module in reach.get(m, ()))) for module in below if module in reach[module]})


def self_test():
    files = {
        "src/LAYERS": "base:\nos: base\nrt: base os\nheap: base os rt\npool: base os rt\n",
        "src/base/ok.h": "#include <stdint.h>\n",
        "src/os/ok.c": '#include "base/ok.h"\n#include <sys/mman.h>\n',
        "src/heap/ok.c": '#include "base/ok.h"\n#include <quarry/malloc.h>\n',
        "src/pool/ok.h": "\n",
        "src/rt/ok.c": "    // no sched_yield here\n    for (int i = 0; i < SPINS; i++) {\n        qy_pause();\n    }\n",
    }
    bad = {
        "base/up.c": ('#include "os/ok.h"\n', "base may not include"),
        "heap/sibling.c": ('#include "pool/ok.h"\n', "heap may not include"),
        "rt/kernel.c": ("  #  include <sys/mman.h>\n", "leads around src/os"),
        "heap/posix.h": ("#include <unistd.h>\n", "leads around src/os"),
        "pool/local.c": ('#include "ok.h"\n', "not written relative"),
        "pool/gone.c": ('#include "base/gone.h"\n', "does not exist"),
        "stray/x.c": ("\n", "not in src/LAYERS"),
        "heap/yield.c": ("    while (!qy_lock_try(l)) sched_yield();\n", "yields"),
        "os/yield.c": ("    qy_syscall(SYS_sched_yield);\n", "yields"),
        "pool/look.c": ("    while (atomic_load(&word)) {}\n", "without a bound"),
        "pool/try.c": ("    while (!qy_lock_try(&lock));\n", "without a bound"),
        "rt/pause.c": ("    for (;;) {\n        qy_pause();\n    }\n", "without a constant bound"),
    }
    with tempfile.TemporaryDirectory() as directory:
        root = pathlib.Path(directory)

        def write(name, text):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)

        for name, text in files.items():
            write(name, text)
        assert check(root) == [], check(root)
        for name, (text, message) in bad.items():
            write("src/" + name, text)
            found = check(root)
            assert len(found) == 1 and name in found[0] and message in found[0], (name, found)
            (root / "src" / name).unlink()
        write("src/heap/one.h", '#include "heap/two.h"\n')
        write("src/heap/two.c", '#include "heap/two.h"\n#include "heap/three.h"\n')
        write("src/heap/two.h", "")
        write("src/heap/three.h", "")
        assert check(root) == [], check(root)
        write("src/heap/three.h", '#include "heap/one.h"\n')
        assert check(root) == ["src: an include cycle: heap/one, heap/three, heap/two"], check(root)
        write("src/heap/three.h", "")
        write("src/LAYERS", files["src/LAYERS"].replace("pool: base", "pool: heap base"))
        assert "siblings" in check(root)[0]
    print(f"self-test: {len(bad) + 2} bad trees were found out")


def main():
    if "--self-test" in sys.argv:
        return self_test()
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1])
    problems = check(root)
    print("\n".join(problems) or "layers: clean")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
