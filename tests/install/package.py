#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Install the packages in a Debian system that has nothing of Quarry, use them there, and remove them.

  package.py [--keep]    --keep: leave the folder with the packages and the system, and name it
  package.py --self-test prove that a command of the README without a journey, and files left behind, are found out

The packages are made from the build tree. lintian must find no error in the .deb. debootstrap makes the system, which needs root, a
mirror of Debian and a minute or two. There the .deb is installed; every command of the README that calls the tool runs, with
small numbers; programs are built against the libraries; manual pages and completions are found by their names; and the .tar.zst runs
from a folder of its own. When the package is removed, the system has the files that it had before. Then what docs/install.md tells to
type after `make install` is typed, for /usr/local and for a folder of one's own.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(os.environ.get("QUARRY_SOURCE_DIR", pathlib.Path(__file__).parents[2]))
BUILD = pathlib.Path(os.environ.get("QUARRY_BUILD_DIR", SOURCE / "build"))
CONSUMER = SOURCE / "tests/install/consumer"
INCLUDED = "bash-completion,cmake,fish,g++,gcc,libc6-dev,libjemalloc2,make,man-db,pkg-config,python3,zsh"

# A command of the README, and how it is run here: as it stands, or with the numbers of a test.
JOURNEYS = {
    "LD_PRELOAD=$PWD/build/lib/libquarry-malloc.so ./prog": "LD_PRELOAD=libquarry-malloc.so QUARRY_CONF=stats:on ./prog 2>&1 | grep live",
    "quarry run --stats -- ./prog": "",
    "quarry compare -n 10 -- ./prog": "quarry compare -n 2 --warmup 0 -- ./prog",
    "quarry record -o day.qtr -- ./server": "",
    "quarry info day.qtr": "",
    "quarry replay day.qtr --with quarry,jemalloc,system -o day.html": "quarry replay day.qtr -n 1 --with quarry,jemalloc,system -o day.html && test -s day.html",
    "quarry profile -- ./prog input": "quarry profile -- ./prog | grep -w main",
    "quarry map -p PID": "",
    "quarry top": "quarry top --once",
    "quarry profile -p PID": "quarry profile -p PID --for 1",
    "quarry explain -p PID": "",
    "quarry stats -p PID --watch 1": "quarry stats -p PID",
    "quarry check -- ./prog input": "quarry check -- ./prog || [ $? = 23 ]",
    "quarry check --leaks all --children -o r.sarif -- make test":
        "{ quarry check --leaks all --children -o r.sarif -- sh -c './prog; true'; [ $? = 23 ]; } && test -s r.sarif",
    "quarry check --pinpoint -- ./prog": "quarry check --pinpoint -- ./prog || [ $? = 23 ]",
    "quarry run --conf guard:512k -- ./server": "quarry run --conf guard:512k -- ./prog",
    "quarry doctor ./prog": None,
    "quarry tour": "quarry tour reserve",
    "quarry bench --dir report": "quarry bench --smoke -n 1 zero --dir report && test -s report/index.html",
    "quarry bench list 'ring*'": "quarry bench --smoke -n 1 'ring*'",
}

PROGRAM = """
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv) {
    (void)argv;
    for (int i = 0; i < 100000; i++) {
        char *block = malloc(i % 1000 + 1);
        if (!block) return 1;
        *block = 1;
        if (i % 16) free(block);
    }
    if (argc > 1) pause();
    return 0;
}
"""

BASH = r"""
. /usr/share/bash-completion/bash_completion
_completion_loader quarry
complete -p quarry
COMP_WORDS=(quarry re) COMP_CWORD=1
_quarry quarry re quarry
[ "${COMPREPLY[*]}" = "record replay" ]
"""


class Failure(Exception):
    pass


def readme_commands(text):
    """The commands in the README's blocks that call the tool or preload the library."""
    found = []
    for block in re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S):
        for line in block.splitlines():
            line = re.sub(r"\s+#\s.*", "", line).strip()
            if line.startswith(("build/bin/", "LD_PRELOAD=")):
                found.append(line.removeprefix("build/bin/"))
    return found


def journeys(text):
    """What is run, in the README's order."""
    commands = readme_commands(text)
    unknown, gone = set(commands) - set(JOURNEYS), set(JOURNEYS) - set(commands)
    if unknown or gone:
        raise Failure(f"the README and JOURNEYS differ: {sorted(unknown)} have no journey, {sorted(gone)} are gone from the README")
    return [JOURNEYS[command] or command for command in commands]


def run(command, **options):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                          check=False, **options)
    if done.returncode:
        raise Failure(f"{command if isinstance(command, str) else ' '.join(map(str, command))}: exit status {done.returncode}\n{done.stdout[-4000:]}")
    return done.stdout


class System:
    """A Debian system in a folder."""

    def __init__(self, root):
        self.root = root

    def run(self, script, shell="/bin/bash"):
        command = ["unshare", "--mount", "--pid", "--fork", f"--mount-proc={self.root}/proc", "chroot", self.root, shell, "-c", script]
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8", "MANWIDTH": "100"}
        return run(command, env=environment, timeout=900)

    def files(self):
        """All paths, without those in which the system keeps its own account of packages, pages and libraries."""
        return {path for path in self.run("find / -xdev ! -path '/proc/*' ! -path '/tmp/*'").splitlines() if not OWN.match(path)}


OWN = re.compile(r"/var/(lib/dpkg|cache/(man|ldconfig|debconf)|log)(/|$)|/etc/ld\.so\.cache|/root(/|$)")


def left_behind(before, after):
    problems = [f"left behind: {path}" for path in sorted(after - before)] + [f"taken away: {path}" for path in sorted(before - after)]
    if problems:
        raise Failure("\n".join(problems))


def skip(reason):
    print(f"SKIP: {reason}")
    sys.exit(77)


def make_packages(work):
    """The .deb and the archive."""
    packages = work / "packages"
    run(["cpack", "--config", BUILD / "CPackConfig.cmake", "-B", packages], env={k: v for k, v in os.environ.items() if k != "DESTDIR"})
    shutil.rmtree(packages / "_CPack_Packages")
    debs = [deb for deb in packages.glob("*.deb") if "dbgsym" not in deb.name]
    archives = list(packages.glob("*.tar.zst"))
    if len(debs) != 1 or len(archives) != 1:
        raise Failure(f"one .deb and one .tar.zst should be there: {sorted(packages.iterdir())}")
    if shutil.which("lintian"):
        print(run(["lintian", "--allow-root", "--fail-on", "error", debs[0]]), end="")
    else:
        print("note: there is no lintian")
    return debs[0], archives[0]


def make_system(work):
    sites = subprocess.run(["apt-get", "indextargets", "--format", "$(SITE) $(CODENAME)"], capture_output=True, text=True, check=False)
    release = pathlib.Path("/etc/os-release").read_text()
    codename = re.search(r"^VERSION_CODENAME=(\S+)", release, re.M)
    site = next((line.split()[0] for line in sites.stdout.splitlines() if codename and line.split()[1:] == [codename.group(1)]), None)
    if not site:
        skip("apt knows no mirror of this release")
    root = work / "root"
    made = subprocess.run(["debootstrap", "--variant=minbase", f"--include={INCLUDED}", codename.group(1), root, site], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, check=False)
    if made.returncode:
        skip(f"debootstrap cannot make a system: {' '.join((made.stdout + made.stderr).splitlines()[-2:])}")
    return System(root)


def use_tool(system):
    """The journeys of the README; PID is a process on the heap that waits."""
    (system.root / "tmp/prog.c").write_text(PROGRAM)
    system.run("cd /tmp && cc -O1 -fno-builtin -o prog prog.c && cp prog server")
    for journey in journeys((SOURCE / "README.md").read_text()):
        script = "cd /tmp; LD_PRELOAD=libquarry-malloc.so ./prog wait & sleep 1; PID=$!; ( " + re.sub(r"\bPID\b", "$PID", journey) + " )"
        # pause() ends with the namespace. A list of && ends the shell by `set -e` only as a subshell.
        print(f"$ {journey}", flush=True)
        system.run(f"set -e -o pipefail; {script}; kill -9 $PID")


def use_libraries(system):
    shutil.copytree(CONSUMER, system.root / "tmp/consumer")
    system.run("cd /tmp && cmake -S consumer -B consumer/build && cmake --build consumer/build")
    for program in ("c_quarry", "c_static", "cxx_malloc", "cxx_malloc_static"):
        system.run(f"/tmp/consumer/build/{program}")
    system.run("cd /tmp/consumer && cc -o c consumer.c $(pkg-config --cflags --libs quarry) && ./c")
    system.run("cd /tmp/consumer && c++ -o cxx consumer.cpp $(pkg-config --cflags --libs quarry-malloc) && ./cxx")
    system.run("cd /tmp/consumer && cc -o plain consumer.c -lquarry-malloc && ./plain")
    system.run("python3 /usr/share/quarry/check_scopes.py /usr/share/doc/quarry/examples")
    system.run("test -s /usr/share/quarry/quarry-gdb.py && test -s /usr/share/quarry/quarry_heap.py && grep -q '^zstd-sys ' /usr/share/doc/quarry/third-party.txt")


def use_made(system, own):
    """After `make install` to /usr/local, and in the folder `own` of the system."""
    run(["cmake", "--install", BUILD, "--prefix", "/usr/local"], env={**os.environ, "DESTDIR": str(system.root)})
    system.run("cd /tmp/consumer && cc -o made consumer.c $(pkg-config --cflags --libs quarry) && ! ./made && ldconfig && ./made")
    used = "QUARRY_CONF=stats:on ./prog 2>&1 | grep live"
    system.run(f"cd /tmp && LD_PRELOAD=libquarry-malloc.so {used}")
    system.run(f"export PKG_CONFIG_PATH={own}/lib/pkgconfig; cd /tmp/consumer && "
               f"cc -o own consumer.c $(pkg-config --cflags --libs quarry) -Wl,-rpath,{own}/lib && ldd own | grep -F {own}/lib/ && ./own")
    system.run(f"cd /tmp && LD_PRELOAD={own}/lib/libquarry-malloc.so {used}")


def use_shell(system):
    for page in ("quarry-record", "quarry", "7 quarry", "libquarry"):
        if "Quarry" not in system.run(f"man -P cat {page}"):
            raise Failure(f"man {page} shows something else")
    system.run("apropos -s 1 quarry-record; whatis quarry-record")
    system.run(BASH)
    completed = system.run("autoload -Uz compinit; compinit -u -D; print $_comps[quarry]", "/usr/bin/zsh").strip()
    if completed != "_quarry":
        raise Failure(f"zsh completes quarry by '{completed}'")
    if "record" not in system.run("complete -C 'quarry re'", "/usr/bin/fish"):
        raise Failure("fish does not complete a verb")


def test(work):
    for program in ("debootstrap", "dpkg-shlibdeps", "unshare", "apt-get"):
        if not shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin"):
            skip(f"there is no {program}")
    if os.geteuid() != 0:
        skip("debootstrap needs root")
    if not (BUILD / "bin/quarry").exists() or not (BUILD / "share/third-party.txt").exists():
        skip("the tool or the list of licences is not built (make package)")
    deb, archive = make_packages(work)
    system = make_system(work)
    shutil.copy(deb, system.root / "tmp")
    before = system.files()
    print(system.run(f"dpkg -i /tmp/{deb.name}"), end="")
    use_tool(system)
    use_libraries(system)
    use_shell(system)
    system.run("dpkg --purge quarry")
    left_behind(before, system.files())
    run(["cmake", "-E", "tar", "xf", archive], cwd=system.root / "tmp")
    own = f"/tmp/{archive.name.removesuffix('.tar.zst')}"
    print(system.run(f"cd /tmp && {own}/bin/quarry run --stats -- ./prog"), end="")
    use_made(system, own)
    print("the package was installed, used and removed")


def self_test():
    text = "```sh\n" + "\n".join(f"build/bin/{c}  # a comment" if c.startswith("quarry") else c for c in JOURNEYS) + "\nmake\n```\n"
    assert len(journeys(text)) == len(JOURNEYS) and "quarry top --once" in journeys(text)
    for other in (text.replace("quarry explain", "quarry explan"), text + "```sh\nbuild/bin/quarry new\n```\n"):
        try:
            journeys(other)
        except Failure:
            continue
        raise AssertionError("a command without a journey was not found out")
    left_behind({"/a"}, {"/a"})
    for after in ({"/a", "/b"}, set()):
        try:
            left_behind({"/a"}, after)
        except Failure:
            continue
        raise AssertionError("a file that was left or taken was not found out")
    journeys((SOURCE / "README.md").read_text())
    print("self-test: journeys that are not made and files left behind were found out")


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    work = pathlib.Path(tempfile.mkdtemp(prefix="quarry-package-"))
    try:
        test(work)
    except Failure as failure:
        print(f"FAILED: {failure}", file=sys.stderr)
        return 1
    finally:
        if "--keep" in sys.argv[1:]:
            print(work)
        else:
            shutil.rmtree(work, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
