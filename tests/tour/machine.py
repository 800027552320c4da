#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The chapters of the tour that need settings of a whole system, in a virtual machine that has them: merging of pages, and swap.

  machine.py            run them and look at everything that they say
  machine.py --record   besides, keep what they said as the runs that `quarry tour` shows elsewhere

The machine is a Linux kernel (see tests/torture/machine.py for where it is from), the chapters, linked statically, and a
disk for swap, and nothing else.
"""
import gzip
import importlib.util
import pathlib
import platform
import re
import shutil
import struct
import subprocess
import sys
import tempfile

import check

HERE = pathlib.Path(__file__).resolve().parent
SPEC = importlib.util.spec_from_file_location("torture_machine", HERE.parent / "torture" / "machine.py")
machine = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(machine)

CHAPTERS = ("21-ksm", "22-swap")
SWAP_PAGES = 16384  # of 4 KiB
SECONDS = 300


def root():
    """The archive with all that the machine has."""
    files = {"init": check.BUILD / "tests/tour/tour_machine_init"}
    files.update((name, check.BUILD / f"tests/tour/tour_machine_{name}") for name in CHAPTERS)
    missing = [str(path) for path in files.values() if not path.exists()]
    if missing:
        machine.skip(f"not built: {' '.join(missing)}")
    members = [machine.entry("dev", 0o040755), machine.entry("dev/console", 0o020600, device=(5, 1))]
    members += [machine.entry(name, 0o100755, path.read_bytes()) for name, path in files.items()]
    return gzip.compress(b"".join(members) + machine.entry("TRAILER!!!", 0), 1)


def swap_header():
    """The first page of swap space: version 1, its last page, no bad ones, and the mark at the end."""
    return struct.pack("<1024xIII", 1, SWAP_PAGES - 1, 0).ljust(4096 - 10, b"\0") + b"SWAPSPACE2"


def output_of_machine():
    image = machine.kernel()
    with tempfile.TemporaryDirectory(prefix="tour-machine-") as folder:
        archive, disk = pathlib.Path(folder, "root.gz"), pathlib.Path(folder, "swap")
        archive.write_bytes(root())
        with disk.open("wb") as file:
            file.write(swap_header())
            file.truncate(SWAP_PAGES * 4096)
        command = ["qemu-system-x86_64", "-accel", "tcg", "-m", "512", "-smp", "2", "-nodefaults", "-no-reboot", "-display", "none", "-serial", "stdio",
                   "-drive", f"file={disk},format=raw,if=none,id=swap", "-device", "nvme,drive=swap,serial=swap", "-kernel", str(image), "-initrd", str(archive),
                   "-append", "console=ttyS0 quiet loglevel=0 panic=-1"]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired as late:
            print((late.stdout or b"").decode(errors="replace"))
            sys.exit(f"FAILED: the machine has not ended after {SECONDS} seconds")
    return done.stdout.decode(errors="replace").replace("\r", "")


def main():
    if sys.argv[1:] not in ([], ["--record"]):
        sys.exit(__doc__)
    if platform.machine() != "x86_64":
        machine.skip("only for x86-64 so far")
    if not shutil.which("qemu-system-x86_64"):
        machine.skip("needs the package qemu-system-x86")
    output = output_of_machine()
    print(output)
    faults = []
    for name in CHAPTERS:
        part = re.search(rf"^machine: begin {name}\n(.*?)^machine: {name} ended with 0x0$", output, re.M | re.S)
        text = "".join(line + "\n" for line in part[1].splitlines() if line.startswith("{")) if part else ""
        found = check.faults_of(name, text) if part else ["did not end well"]
        # What this machine is for must not have been skipped.
        faults += [f"{name}: {fault}" for fault in found]
        if "--record" in sys.argv and not found:
            (check.SOURCES / f"{name}.jsonl").write_text(text)
            print(f"recorded {name}")
    waits = re.findall(r'"step":"read again".*"major":(\d+)', output)
    if [int(count) > 0 for count in waits] != [True]:
        faults.append(f"memory was short, and nothing was read from the disk: {waits}")
    if "machine: merging is 0\n" not in output:
        faults.append("the chapter has not switched merging off again")
    print("\n".join(f"FAILED: {fault}" for fault in faults) or "all right")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
