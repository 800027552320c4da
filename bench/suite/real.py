#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Real programs as they are installed, with work that is made here. `quarry bench suite --real` runs them; none is in the usual suite.

  real.py FOLDER       makes what they work on in FOLDER, and prints their table as JSON (tools/crates/quarry-bench/suite.toml explains it)
  real.py --self-test  proves that what is made does not depend on the folder, and that a coin chose who is held out

Some are the programs that the recorder is measured with (bench/record/programs.py); those of wider.py came last.
"""
import hashlib
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import inputs
import wider

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "record"))
from programs import Program, programs, quiet  # noqa: E402

SUITE = pathlib.Path(__file__).resolve().parents[2] / "tools/crates/quarry-bench/suite.toml"

# Which deltas two threads find depends on which of them is faster; a server writes its log beside what it answers; others say how long they took.
VARY = ("git", "mariadbd", "povray", "soffice")


def script(path, text):
    path.write_text(text)
    return path.name


class Table:
    """{name: Program}, as programs() of bench/record; what is not installed is not there."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.found = {}

    def add(self, name, command, make=None, env=None, threads=1):
        if program := shutil.which(command[0]):
            if make:
                make()
            self.found[name] = Program([program, *command[1:]], env or {}, threads, self.folder)

    def script(self, name, command, file, text, **more):
        self.add(name, [*command, file], lambda: script(self.folder / file, text), **more)


def compilers(table):
    (table.folder / "words.cpp").write_text(inputs.CXX)
    for name, compiler in (("compiler", "g++"), ("clang", "clang++")):
        if shutil.which(compiler):
            source = table.folder / f"words-{name}.ii"
            quiet(compiler, "-E", "-P", table.folder / "words.cpp", "-o", source)
            program = quiet("g++", "-print-prog-name=cc1plus") if name == "compiler" else compiler
            table.add(name, [program, *(("-quiet",) if name == "compiler" else ("-c",)), "-O2", source.name, "-o", "/dev/null"])


def interpreters(table):
    table.script("gawk", ["gawk", "-f"], "words.awk", inputs.GAWK)
    table.script("lua5.4", ["lua5.4"], "words.lua", inputs.LUA)
    table.script("tcl", ["tclsh"], "words.tcl", inputs.TCL)
    table.script("node", ["node"], "words.js", inputs.NODE, threads=2)
    table.script("emacs", ["emacs", "-Q", "--batch", "-l"], "words.el", inputs.EMACS, env={"HOME": str(table.folder)})
    table.script("cmake", ["cmake", "-P"], "words.cmake", inputs.CMAKE)


def readers_of_sources(table):
    """Programs in C++ that read C++: classes, and the debug information of words.cpp."""
    folder = table.folder
    parts = folder / "parts.h"
    table.add("cppcheck", ["cppcheck", "--quiet", "--enable=all", "--language=c++", "--template=gcc", parts.name], lambda: inputs.classes(parts, 250))
    settings = folder / "Doxyfile"
    text = "INPUT = parts-all.h\nOUTPUT_DIRECTORY = doc\nGENERATE_HTML = NO\nGENERATE_LATEX = NO\nGENERATE_XML = YES\nNUM_PROC_THREADS = 2\nQUIET = YES\nWARNINGS = NO\nEXTRACT_ALL = YES\n"
    table.add("doxygen", ["doxygen", settings.name], lambda: (inputs.classes(folder / "parts-all.h", 900), script(settings, text)), threads=2)
    if shutil.which("gdb") and shutil.which("g++"):
        # What gdb prints has the sources' names: without the folder, which is another each time, it is the same in all sessions.
        quiet("g++", "-g3", "-O0", "-fno-eliminate-unused-debug-types", "-fno-eliminate-unused-debug-symbols", f"-ffile-prefix-map={folder}=.", folder / "words.cpp", "-o", folder / "words-debug")
        table.add("gdb", ["gdb", "-nx", "-batch", "-readnow", "-ex", "info functions .", "-ex", "info types .", "-ex", "info variables .", "-ex", "info scope main", "words-debug"],
                  env={"HOME": str(folder), "DEBUGINFOD_URLS": ""}, threads=2)


def documents(table):
    folder = table.folder
    table.add("jq", ["jq", inputs.JQ, "records.json"], lambda: inputs.records(folder / "records.json", 60000))
    table.add("xsltproc", ["xsltproc", "groups.xsl", "items.xml"], lambda: (script(folder / "groups.xsl", inputs.XSL), inputs.items(folder / "items.xml", 60000)))
    table.add("rsvg", ["rsvg-convert", "drawing.svg"], lambda: inputs.drawing(folder / "drawing.svg", 4000))
    table.add("zstd", ["zstd", "-q", "-T2", "-12", "-c", "words.log"], lambda: inputs.words(folder / "words.log", 300000), threads=2)
    if is_image_magick("convert"):
        table.add("convert", ["convert", "-seed", "1", "-size", "700x700", "plasma:red-blue", "-resize", "150%", "-paint", "2", "-quantize", "Lab", "-colors", "64", "ppm:-"], threads=2)


def is_image_magick(program):
    """Others have that name, too."""
    return shutil.which(program) and "ImageMagick" in subprocess.run([program, "-version"], capture_output=True, text=True).stdout


def servers(table):
    """A database server that reads its work from a file, and ends."""
    data = table.folder / "database"
    data.mkdir()
    script(table.folder / "words.sql", inputs.MARIADB)
    table.add("mariadbd", ["mariadbd", "--no-defaults", "--user=root", f"--datadir={data}", "--innodb=OFF", "--default-storage-engine=Aria", "--max-heap-table-size=256M",
                           "--tmp-table-size=256M", "--bootstrap"], threads=2)


STDIN = {"mariadbd": "words.sql"}


def real_runs(folder):
    """Their inputs are made in `folder`. Most take a second or more: shorter ones say little on a noisy machine."""
    table = Table(folder)
    for part in (compilers, interpreters, readers_of_sources, documents, servers):
        part(table)
    wider.wider(table, quiet)
    return [run(name, program) for name, program in {**programs(folder, 6), **table.found}.items()]


def run(name, program):
    entry = {"name": name, "set": "real", "command": [str(word) for word in program.command], "program": True, "threads": program.threads > 1,
             "same_output": name not in VARY, "folder": str(program.folder), "env": program.env}
    return {**entry, "stdin": STDIN[name]} if name in STDIN else entry


def by_coin(name):
    return hashlib.sha256(name.encode()).digest()[0] & 1


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        table = Table(folder)
        compilers(table)
        readers_of_sources(table)
        debugged = table.folder / "words-debug"
        assert not debugged.exists() or folder.encode() not in debugged.read_bytes(), "what gdb prints depends on the folder"
        for name, program in table.found.items():
            entry = run(name, program)
            assert json.loads(json.dumps(entry)) == entry, entry
    held_out = json.loads(re.search(r"^held_out = (\[.*\])$", SUITE.read_text(), re.M).group(1))
    assert held_out == [name for name in wider.NAMES if by_coin(name)], "others are held out than the coin says"
    print("self-test: what is made does not depend on the folder, and a coin chose who is held out")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if sys.argv[1] == "--self-test":
        return self_test()
    print(json.dumps({"run": real_runs(sys.argv[1])}, indent=1))


if __name__ == "__main__":
    main()
