#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tests that need a machine of their own: a control group with a limit on memory, and each mode of overcommit.

  machine.py [--keep]

Both are settings of a whole system, which a test must not change under others. So a small virtual
machine is made of a Linux kernel and the tests, linked statically, which are all it runs. The kernel
is that of QUARRY_TEST_KERNEL, or the newest of /boot, or comes from the distribution's package, which
is unpacked into the build folder and not installed. The processor is emulated: nothing is timed.
"""
import gzip
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile

BUILD = pathlib.Path(os.environ.get("QUARRY_BUILD_DIR") or pathlib.Path(__file__).resolve().parents[2] / "build")
PACKAGE = "linux-image-cloud-amd64"  # names the current kernel's package
TESTS = ("cgroup", "charge")
RUNS = (*TESTS, "heuristic", "always")  # as machine_init.c calls them
SECONDS = 800


def skip(reason):
    print(f"SKIP: {reason}")
    sys.exit(77)


def unpacked_kernel():
    """Of the distribution's package, downloaded once."""
    folder = BUILD / "machine"
    if not list(folder.glob("boot/vmlinuz-*")):
        if not shutil.which("apt-cache"):
            skip("no kernel: set QUARRY_TEST_KERNEL")
        depends = subprocess.run(["apt-cache", "depends", PACKAGE], capture_output=True, text=True).stdout
        name = re.search(r"Depends: (linux-image-\S+)", depends)
        folder.mkdir(parents=True, exist_ok=True)
        if not name or subprocess.run(["apt-get", "-q", "download", name[1]], cwd=folder).returncode:
            skip("no kernel: it could not be downloaded; set QUARRY_TEST_KERNEL")
        archive = next(folder.glob("linux-image-*.deb"))
        subprocess.run(["dpkg", "-x", archive, folder], check=True)
        archive.unlink()
        shutil.rmtree(folder / "lib", ignore_errors=True)
    return next(folder.glob("boot/vmlinuz-*"))


def kernel():
    named = os.environ.get("QUARRY_TEST_KERNEL")
    if named:
        return pathlib.Path(named)
    installed = sorted((p for p in pathlib.Path("/boot").glob("vmlinuz-*") if os.access(p, os.R_OK)), key=lambda p: p.stat().st_mtime)
    return installed[-1] if installed else unpacked_kernel()


def entry(name, mode, data=b"", device=(0, 0)):
    """One member of a cpio archive of the format that the kernel reads ("newc")."""
    fields = [entry.inode, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(name) + 1, 0]
    entry.inode += 1
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
    return head + b"\0" * (-len(head) % 4) + data + b"\0" * (-len(data) % 4)


entry.inode = 1


def root():
    """The archive with all that the machine has."""
    files = {"init": BUILD / "tests/torture/machine_init"}
    files.update((f"fault_{test}", BUILD / f"tests/fault/fault_{test}_machine") for test in TESTS)
    missing = [str(path) for path in files.values() if not path.exists()]
    if missing:
        skip(f"not built: {' '.join(missing)}")
    members = [entry("dev", 0o040755), entry("dev/console", 0o020600, device=(5, 1))]
    members += [entry(name, 0o100755, path.read_bytes()) for name, path in files.items()]
    return gzip.compress(b"".join(members) + entry("TRAILER!!!", 0), 1)


def main():
    if platform.machine() != "x86_64":
        skip("only for x86-64 so far")
    if not shutil.which("qemu-system-x86_64"):
        skip("needs the package qemu-system-x86")
    image = kernel()
    with tempfile.NamedTemporaryFile(prefix="machine-", suffix=".gz") as archive:
        archive.write(root())
        archive.flush()
        command = ["qemu-system-x86_64", "-accel", "tcg", "-m", "1024", "-smp", "2", "-nodefaults", "-no-reboot",
                   "-display", "none", "-serial", "stdio", "-kernel", str(image), "-initrd", archive.name,
                   "-append", "console=ttyS0 loglevel=4 panic=-1"]
        try:
            output = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                    timeout=SECONDS).stdout.decode(errors="replace")
        except subprocess.TimeoutExpired as late:
            print((late.stdout or b"").decode(errors="replace"))
            sys.exit(f"FAILED: the machine has not ended after {SECONDS} seconds")
    print(output.replace("\r", ""))
    failed = [test for test in RUNS if f"machine: {test} ended with 0x0" not in output]
    # What this machine is for must not have been skipped.
    failed += re.findall(r"SKIP: .*", output)
    for test in failed:
        print(f"FAILED {test}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
