#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Build the newest releases of other mallocs, to compare with: jemalloc, mimalloc 2 and 3, snmalloc, rpmalloc.

  peers.py [-o DIR] [NAME...]   fetch, build and check them (all); DIR: build/peers
  peers.py --check [-o DIR]     check those that were built
  peers.py --list               what there is
  peers.py --self-test          prove that the checks can fail

The sources are those that packages of the Rust registry carry; cargo fetches the newest of each, and nothing is built by it. Each malloc is
built by its own build system, with the flags it has for releases, as a library to preload: its malloc is the symbol that programs are bound to,
with nothing in front of it. CC and CXX choose the compilers. DIR/peers.json says what was built, and from what; `quarry bench` and others read it.

A library is listed only if the dynamic linker binds malloc to it and programs with threads do the same work under it as under the
system's malloc. Exit 1 if one could not be built or failed; the others are listed all the same.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench"))
from measure import BUILD, Fault, environment, must_serve  # noqa: E402

JOBS = str(os.cpu_count() or 1)


class Failed(Exception):
    """It could not be built or does not work."""


def run(command, log, cwd=None, env=None):
    with open(log, "a") as out:
        print("+", *command, file=out, flush=True)
        if subprocess.run(command, cwd=cwd, env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL, stdout=out, stderr=out, check=False).returncode:
            raise Failed(f"{command[0]} failed; {log} has its output")


def compilers(prefer_clang):
    """(C, C++): CC and CXX, or what there is."""
    names = [("clang", "clang++"), ("gcc", "g++")]
    for cc, cxx in names if prefer_clang else names[::-1]:
        if shutil.which(cc) and shutil.which(cxx):
            break
    return os.environ.get("CC", cc), os.environ.get("CXX", cxx)


def compiler_version(compiler):
    return subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout.split("\n")[0].strip()


# ---- one function for each: source folder, empty work folder, log -> (library, version, compiler, flags) -------------------

def jemalloc(source, work, log):
    version = re.search(r"\+(\d[\w.-]*)$", source.name).group(1)
    tree = work / "jemalloc"
    shutil.copytree(source / "jemalloc", tree)
    shutil.copy(source / "configure" / "configure", tree / "configure")  # the package has it made, so that autoconf is not needed
    for script in [tree / "configure", *(tree / "build-aux").iterdir()]:
        script.chmod(0o755)
    cc, cxx = compilers(prefer_clang=False)
    flags = ["--disable-stats", "--disable-static", "--disable-doc", f"--with-version={version}"]
    run(["./configure", *flags], log, tree, {"CC": cc, "CXX": cxx})
    run(["make", "-j", JOBS, "build_lib_shared"], log, tree)
    made = re.search(r"^CONFIGURE_CFLAGS\s*:?=\s*(.*)$", (tree / "Makefile").read_text(), re.M)
    return tree / "lib" / "libjemalloc.so.2", version.split("-g")[0].removesuffix("-0"), cc, [*flags, *(flag for flag in (made.group(1).split() if made else []) if not flag.startswith("-W"))]


def with_cmake(source, work, log, target, options, prefer_clang):
    cc, cxx = compilers(prefer_clang)
    flags = ["-DCMAKE_BUILD_TYPE=Release", *options]
    run(["cmake", "-S", str(source), "-B", str(work), f"-DCMAKE_C_COMPILER={cc}", f"-DCMAKE_CXX_COMPILER={cxx}", *flags], log)
    run(["cmake", "--build", str(work), "-j", JOBS, "--target", target], log)
    return cc, cxx, flags


def mimalloc(source, work, log, major):
    tree = work / "tree"
    shutil.copytree(source / "c_src" / "mimalloc" / f"v{major}", tree)
    number = int(re.search(r"define MI_MALLOC_VERSION\s+(\d+)", (tree / "include" / "mimalloc.h").read_text()).group(1))
    first, second, third = number // 10000, number // 100 % 100, number % 100
    # Two files that the package leaves out: the version once more, and paths for a pkg-config file that is not used here.
    (tree / "cmake").mkdir(exist_ok=True)
    for name, text in (("mimalloc-config-version", f"set(mi_version_major {first})\nset(mi_version_minor {second})\nset(mi_version_patch {third})\nset(mi_version {first}.{second})\n"),
                       ("JoinPaths", "function(join_paths joined)\nendfunction()\n")):
        if not (tree / "cmake" / f"{name}.cmake").exists():
            (tree / "cmake" / f"{name}.cmake").write_text(text)
    cc, _, flags = with_cmake(tree, work / "build", log, "mimalloc", ["-DMI_OVERRIDE=ON", "-DMI_BUILD_STATIC=OFF", "-DMI_BUILD_OBJECT=OFF", "-DMI_BUILD_TESTS=OFF"], False)
    return newest((work / "build").glob("libmimalloc*.so")), f"{first}.{second}.{third}", cc, flags


def snmalloc(source, work, log):
    options = ["-DSNMALLOC_BUILD_TESTING=OFF", "-DSNMALLOC_STATIC_LIBRARY=OFF"]
    _, cxx, flags = with_cmake(source / "upstream", work, log, "snmallocshim", options, True)
    return newest(work.glob("libsnmallocshim.so")), source.name.rpartition("-")[2], cxx, flags


def rpmalloc(source, work, log):
    folder = source / "rpmalloc" / "rpmalloc"
    cc, _ = compilers(prefer_clang=True)
    # Those of its own build of releases, for the library it calls rpmallocwrap.
    flags = ["-std=c11", "-O3", "-funroll-loops", "-fstrict-aliasing", "-fomit-frame-pointer", "-fno-stack-protector", "-fvisibility=hidden",
             "-ffast-math", "-D_GNU_SOURCE=1", "-DBUILD_RELEASE=1", "-DENABLE_PRELOAD=1", "-DENABLE_OVERRIDE=1"]
    run([cc, *flags, "-fPIC", "-shared", "-o", str(work / "librpmallocwrap.so"), str(folder / "rpmalloc.c"), "-pthread", "-ldl"], log)
    release = (source / "rpmalloc" / "CHANGELOG").read_text().split("\n")[0].strip()
    return work / "librpmallocwrap.so", f"{release}, commit {source.name.rpartition('+')[2]}", cc, flags


def newest(files):
    """The real file behind the links that a build makes."""
    real = {path.resolve() for path in files}
    if len(real) != 1:
        raise Failed(f"{len(real)} libraries were made")
    return real.pop()


# name: (package, how it is built)
PEERS = {
    "jemalloc-newest": ("tikv-jemalloc-sys", jemalloc),
    "mimalloc2": ("libmimalloc-sys", lambda *args: mimalloc(*args, 2)),
    "mimalloc3": ("libmimalloc-sys", lambda *args: mimalloc(*args, 3)),
    "snmalloc": ("snmalloc-sys", snmalloc),
    "rpmalloc": ("rpmalloc-sys", rpmalloc),
}


def fetch(names, folder):
    """{package: folder of its source}"""
    packages = sorted({PEERS[name][0] for name in names})
    project, vendor, log = folder / "source", folder / "source" / "vendor", folder / "fetch.log"
    shutil.rmtree(project, ignore_errors=True)
    (project / "src").mkdir(parents=True)
    (project / "src" / "lib.rs").write_text("")
    (project / "Cargo.toml").write_text('[package]\nname = "peers"\nversion = "0.0.0"\nedition = "2021"\npublish = false\n\n[workspace]\n\n[dependencies]\n' + "".join(f'{p} = "*"\n' for p in packages))
    log.unlink(missing_ok=True)
    run(["cargo", "vendor", "--versioned-dirs", str(vendor)], log, project)
    return {package: next(path for path in vendor.iterdir() if re.match(re.escape(package) + r"-\d", path.name)) for package in packages}


def build(name, source, folder):
    log, work = folder / f"{name}.log", folder / "work" / name
    log.unlink(missing_ok=True)
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    library, version, compiler, flags = PEERS[name][1](source, work, log)
    installed = folder / f"lib{name}.so"
    shutil.copy(library, installed)
    shutil.rmtree(work)
    return {"name": name, "version": version, "package": source.name, "compiler": compiler_version(compiler), "flags": flags, "path": installed.name}


# ---- checks -------------------------------------------------------------------------------------------------------------

PROGRAMS = {
    "random-mt": ["--threads", "4", "--count", "400000", "--exchange", "20", "--touch", "all", "--sizes", "programs"],
    "producer-consumer": ["--threads", "4", "--count", "100000"],
    "thread-churn": ["--threads", "4", "--count", "400"],
    "realloc-growth": ["--size", "4M", "--rounds", "2"],
}


def result(program, library):
    """What the program found out; the same under each malloc."""
    path = BUILD / "lib" / "quarry" / "bench" / program
    try:
        done = subprocess.run([str(path), *PROGRAMS[program]], env=environment(library), capture_output=True, text=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        raise Failed(f"{program} did not end") from None
    if done.returncode:
        raise Failed(f"{program}: status {done.returncode}: {done.stderr.strip()[-200:]}")
    return [json.loads(line)["check"] for line in done.stdout.splitlines()]


def check(library):
    library = str(pathlib.Path(library).resolve())
    try:
        must_serve(str(BUILD / "lib" / "quarry" / "bench" / "random-mt"), library)
    except Fault as fault:
        raise Failed(str(fault)) from None
    for program in PROGRAMS:
        if result(program, library) != result(program, None):
            raise Failed(f"{program} did something else than under the system's malloc")


# A malloc that is no malloc: nothing; the same block for all; one that dies.
BROKEN = {
    "serves nothing": ("int unrelated;", "does not serve malloc"),
    "gives everybody the same block": ("#include <stddef.h>\nstatic char b[1 << 24]; void *malloc(size_t n) { (void)n; return b; } void *calloc(size_t n, size_t m) { (void)n; (void)m; return b; }"
                                       " void *realloc(void *p, size_t n) { (void)p; (void)n; return b; } void free(void *p) { (void)p; }", ""),
    "dies": ("#include <stdlib.h>\nvoid *malloc(size_t n) { (void)n; __builtin_trap(); }", ""),
}


def self_test():
    cc = compilers(prefer_clang=False)[0]
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, (text, expected)) in enumerate(BROKEN.items()):
            source, library = pathlib.Path(folder, f"{number}.c"), pathlib.Path(folder, f"{number}.so")
            source.write_text(text)
            subprocess.run([cc, "-O1", "-fPIC", "-shared", "-fno-builtin", "-o", library, source], check=True)
            try:
                check(library)
                wrong.append(f"a malloc that {name} passed")
            except Failed as failed:
                if expected not in str(failed):
                    wrong.append(f"a malloc that {name}: {failed}")
    quarry = pathlib.Path(os.environ.get("QUARRY_LIB_DIR") or BUILD / "lib") / "libquarry-malloc.so"
    if quarry.exists():
        check(quarry)
    print("\n".join(f"FAILED: {line}" for line in wrong) or f"self-test: {len(BROKEN)} broken mallocs were found out")
    return bool(wrong)


def check_listed(folder):
    peers = json.loads((folder / "peers.json").read_text())["peers"] if (folder / "peers.json").exists() else sys.exit(f"{folder} has no peers.json; `make peers` makes it")
    failures = 0
    for peer in peers:
        try:
            check(folder / peer["path"])
            print(f"{peer['name']:18}{peer['version']:28}serves malloc, and four programs are right")
        except Failed as failed:
            failures += 1
            print(f"{peer['name']:18}FAILED: {failed}")
    return bool(failures)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", type=pathlib.Path, default=BUILD / "peers")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("names", nargs="*", choices=[[], *PEERS], metavar="NAME")
    args = parser.parse_args()
    if args.list:
        return print("\n".join(f"{name:18}from the package {package}" for name, (package, _) in PEERS.items()))
    if args.self_test:
        return self_test()
    if args.check:
        return check_listed(args.o)
    args.o.mkdir(parents=True, exist_ok=True)
    names = args.names or list(PEERS)
    listed, failures = {}, 0
    if args.names and (args.o / "peers.json").exists():
        listed = {peer["name"]: peer for peer in json.loads((args.o / "peers.json").read_text())["peers"]}
    try:
        sources = fetch(names, args.o)
    except Failed as failed:
        sys.exit(f"peers.py: {failed}")
    for name in names:
        listed.pop(name, None)
        try:
            peer = build(name, sources[PEERS[name][0]], args.o)
            check(args.o / peer["path"])
            listed[name] = peer
            print(f"{name:18}{peer['version']:28}{peer['path']}", flush=True)
        except Failed as failed:
            failures += 1
            print(f"{name:18}FAILED: {failed}", flush=True)
    order = {name: at for at, name in enumerate(PEERS)}
    (args.o / "peers.json").write_text(json.dumps({"schema": "quarry-peers/1", "peers": sorted(listed.values(), key=lambda p: order[p["name"]])}, indent=1) + "\n")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
