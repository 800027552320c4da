#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The drop-in files of units in docs/guides are what systemd takes, and what they set reaches a program.

Each block `ini` is put beside a unit of its own, and `systemd-analyze verify` says nothing of it. Of the same with a wrong key it does.
What the blocks set is given to a program, with the library of the build, which then has it.

  guide_unit.py LIBRARY
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

GUIDES = pathlib.Path(__file__).resolve().parents[2] / "docs/guides"
INSTALLED = "/usr/lib/libquarry-malloc.so"


def complaints(text):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "guide.service.d").mkdir()
        (root / "guide.service").write_text("[Service]\nExecStart=/bin/true\n")
        (root / "guide.service.d/quarry.conf").write_text(text)
        told = subprocess.run(["systemd-analyze", "verify", root / "guide.service"], capture_output=True, text=True)
        return told.stdout + told.stderr + (f"exit status {told.returncode}" if told.returncode else "")


def main():
    if not shutil.which("systemd-analyze"):
        print("SKIP: needs systemd-analyze, of the package systemd")
        return 77
    if complaints("[Service]\nEnvironment=A=b\n"):
        print(f"SKIP: needs a systemd-analyze that takes a plain unit; it says: {complaints('[Service]')}")
        return 77
    blocks = [block for guide in sorted(GUIDES.glob("*.md")) for block in re.findall(r"^```ini\n(.*?)^```", guide.read_text(), re.M | re.S)]
    assert blocks, "no guide has a block ini any more"
    for block in blocks:
        assert complaints(block) == "", complaints(block)
        assert "Unknown" in complaints(block.replace("Environment=", "Enviroment=")), "a wrong key is not seen"
        set_here = dict(one.split("=", 1) for one in re.findall(r"^Environment=(.*)", block, re.M))
        assert set_here.get("LD_PRELOAD") == INSTALLED, set_here
        environment = {**os.environ, **set_here, "LD_PRELOAD": sys.argv[1]}
        maps = subprocess.run(["cat", "/proc/self/maps"], env=environment, capture_output=True, text=True, check=True)
        assert "libquarry-malloc" in maps.stdout and not maps.stderr, maps.stderr
    print(f"{len(blocks)} drop-in files of units are as systemd takes them, and set what the library takes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
