#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What docs/guides/containers.md puts into an image brings Quarry into its programs, and its questions can be asked from outside.

A daemon of containers is no part of a test. The lines of the block `dockerfile` are done by hand: a copy on top of this system in a mount
namespace, a root in it, a process namespace, and the variables. The commands of the guide are asked of the process from outside.

  guide_container.py LIBRARY
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("QUARRY_BUILD_DIR", ROOT / "build"))
TOOL = BUILD / "bin/quarry"
GUIDE = (ROOT / "docs/guides/containers.md").read_text()
PATIENCE = 60  # seconds, which only end a hang
UNSHARE = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
# $1 is the folder, then come the variables; the program says that it is there, and waits.
INSIDE = """set -e
mount -t tmpfs none "$1"
mkdir "$1/upper" "$1/work" "$1/image"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/image" || exit 77
mkdir -p "$1/image$(dirname "$3")"
cp "$2" "$1/image$3"
mount --rbind /proc "$1/image/proc"
image=$1/image; shift 3
exec chroot "$image" env -i PATH=/usr/bin:/bin "$@" sh -c 'cat /proc/self/maps; echo ready; exec cat'
"""


def lines():
    """(source below build/, destination, variables) of the block."""
    block = re.search(r"^```dockerfile\n(.*?)^```", GUIDE, re.M | re.S)[1]
    parts = [re.fullmatch(r"COPY --from=build (\S+) (\S+)|ENV (\w+=\S+)", line) for line in block.splitlines()]
    assert all(parts), f"no COPY or ENV: {block}"
    source, to = next(part.groups()[:2] for part in parts if part[1])
    assert source.startswith("/quarry/build/"), source
    return source.removeprefix("/quarry/build/"), to, [part[3] for part in parts if part[3]]


def main():
    if not TOOL.exists():
        print("SKIP: needs the tool (make tool)")
        return 77
    if subprocess.run([*UNSHARE, "true"], stderr=subprocess.DEVNULL).returncode:
        print("SKIP: needs the right to make namespaces")
        return 77
    source, to, variables = lines()
    # The name in the guide is one that the build makes; the library is that of this build folder.
    library = pathlib.Path(sys.argv[1])
    assert (library.parent / pathlib.Path(source).name).resolve() == library.resolve(), source
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen([*UNSHARE, "sh", "-c", INSIDE, "sh", folder, library, to, *variables], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        maps = ""
        while (line := process.stdout.readline()) not in ("ready\n", ""):
            maps += line
        if not line:
            assert process.wait(PATIENCE) == 77, process.stderr.read()
            print(f"SKIP: needs a kernel that mounts an overlay here: {process.stderr.read().strip()}")
            return 77
        try:
            assert to in maps, maps
            pid = wait_for_cat(process.pid)
            asked = re.search(r"Did it get in\?.*\n\n((?:    .*\n)+)", GUIDE)[1].split("\n")[:-1]
            environment = {**os.environ, "PATH": f"{TOOL.parent}:{os.environ['PATH']}", "QUARRY_LIB_DIR": str(library.parent)}

            def ask(command):
                return subprocess.run(["sh", "-c", command.strip().replace("PID", str(pid))], env=environment, capture_output=True, text=True, timeout=PATIENCE)

            doctor, maps, stats = map(ask, asked)
            assert re.search(r"ok +malloc +Quarry\n", doctor.stdout) and variables[0].replace("=", " ").split()[1] in doctor.stdout, doctor.stdout
            assert int(maps.stdout) > 0, maps
            # It has hardly used its heap, so it has no page, and the tool says why.
            assert stats.returncode == 1 and "runs on Quarry, but has no statistics page" in stats.stderr, stats
            explained = ask("quarry explain -p PID --for 0")
            assert explained.returncode == 0 and re.search(r"100 % .* in memory", explained.stdout), explained
            assert re.search(r"control group|cgroup", explained.stdout), explained.stdout
        finally:
            process.stdin.close()
            process.wait(PATIENCE)
    print("the lines of the image bring the library in, and a process in it can be asked from outside")
    return 0


def wait_for_cat(unshare):
    """The number here of the process in the namespace: the child of `unshare`, once it is `cat`."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        for child in pathlib.Path(f"/proc/{unshare}/task/{unshare}/children").read_text().split():
            if pathlib.Path(f"/proc/{child}/comm").read_text() == "cat\n":
                return int(child)
        time.sleep(0.05)
    raise AssertionError("no program in the namespace")


if __name__ == "__main__":
    sys.exit(main())
