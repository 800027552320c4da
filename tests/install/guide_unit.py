#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The drop-in files of units in the documents are what systemd takes, and what they set reaches a program.

Each block `ini` is put beside a unit of its own, and `systemd-analyze verify` says nothing of it. Of the same with a wrong key it does.
What the blocks set is given to a program as systemd gives it, with the library of the build, which then has it. A recorder leaves
its trace under the name that the block means.

  guide_unit.py LIBRARY
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
INSTALLED = ("/usr/lib/libquarry-malloc.so", "/usr/lib/libquarry-record.so")
TRACES = "/var/tmp"  # of the blocks


def as_systemd(value):
    """What a program gets of a value: %% is a percent sign, and %p the unit's name. No block has other words of systemd."""
    return re.sub(r"%[%p]", lambda word: {"%%": "%", "%p": "guide"}[word[0]], value)


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
    blocks = [block for guide in sorted(DOCS.rglob("*.md")) for block in re.findall(r"^```ini\n(.*?)^```", guide.read_text(), re.M | re.S)]
    assert len(blocks) >= 2, "containers.md or record.md has no block ini any more"
    for block in blocks:
        assert complaints(block) == "", complaints(block)
        assert "Unknown" in complaints(block.replace("Environment=", "Enviroment=")), "a wrong key is not seen"
        set_here = dict(one.split("=", 1) for one in re.findall(r"^Environment=(.*)", block, re.M))
        assert set_here.get("LD_PRELOAD") in INSTALLED, set_here
        library = pathlib.Path(sys.argv[1]).with_name(pathlib.Path(set_here["LD_PRELOAD"]).name)
        with tempfile.TemporaryDirectory() as folder:
            given = {key: as_systemd(value).replace(TRACES, folder) for key, value in set_here.items()}
            with subprocess.Popen(["cat", "/proc/self/maps"], env={**os.environ, **given, "LD_PRELOAD": str(library)},
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
                maps, said = process.communicate()
            assert process.returncode == 0 and library.stem in maps and not said, said
            traces = [path.name for path in pathlib.Path(folder).iterdir()]
            assert traces == [f"cat.{process.pid}.qtr"] * ("QUARRY_RECORD" in set_here), traces
    print(f"{len(blocks)} drop-in files of units are as systemd takes them, and set what the library takes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
