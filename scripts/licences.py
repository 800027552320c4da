#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Collect the licences of all crates that are in the tool, and refuse one that may not be.

  licences.py FILE         write names, authors and licence texts to FILE
  licences.py --self-test  prove that a licence that is not allowed, and a crate without a text, are found out

The crates are those of tools/Cargo.lock that a build for this machine takes, whether they are compiled into the tool or
into what compiles it. Cargo has unpacked them before: nothing is fetched.
"""
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
ALLOWED = {"MIT", "Apache-2.0", "BSD-1-Clause", "BSD-2-Clause", "BSD-3-Clause", "0BSD", "BSL-1.0", "CC0-1.0", "ISC", "Unicode-3.0",
           "Unlicense", "Zlib"}
FILE = re.compile(r"(licen[cs]e|copying|copyright|notice|unlicense)", re.I)


def allowed(expression):
    """Does this expression let us choose licences that are allowed?"""
    text = re.sub(r"\s+WITH\s+[\w.-]+", "", expression.replace("/", " OR "))
    words = re.findall(r"[()]|[\w.+-]+", text)
    names = [word if word in "()" else {"OR": "or", "AND": "and"}.get(word, str(word in ALLOWED)) for word in words]
    return bool(words) and bool(eval(" ".join(names), {"__builtins__": {}}))  # of True, False, and, or, brackets


def texts(folder):
    """The licence files of a crate, also of sources of others that it contains."""
    found = {}
    for path in sorted([*folder.glob("*"), *folder.glob("*/*")]):
        if path.is_file() and FILE.match(path.name) and path.suffix.lower() in ("", ".txt", ".md", ".mit", ".apache", ".apache2"):
            found[path.relative_to(folder).as_posix()] = path.read_text(errors="replace").strip()
    return found


def crates(metadata):
    """What the tool is made of, without our own crates and those of tests."""
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    left = [package["id"] for package in metadata["packages"] if package["name"] == "quarry" and not package["source"]]
    seen = set(left)
    while left:
        for dependency in nodes[left.pop()]["deps"]:
            if any(kind["kind"] != "dev" for kind in dependency["dep_kinds"]) and dependency["pkg"] not in seen:
                seen.add(dependency["pkg"])
                left.append(dependency["pkg"])
    return sorted((packages[i] for i in seen if packages[i]["source"]), key=lambda p: (p["name"], p["version"]))


def collect(packages):
    """The whole file, and what is wrong."""
    parts, problems, by_text = [], [], collections.defaultdict(list)
    for package in packages:
        name, licence = f'{package["name"]} {package["version"]}', package["license"] or ""
        if not allowed(licence):
            problems.append(f"{name}: the licence '{licence}' is not among those that are allowed")
        found = texts(pathlib.Path(package["manifest_path"]).parent)
        if not found:
            problems.append(f"{name}: there is no text of the licence '{licence}' in its package")
        for file, text in found.items():
            by_text[text].append(f"{name}: {file}")
        parts.append("\n".join([name, f"  licence: {licence}", *(f"  author: {author}" for author in package["authors"]),
                                *([f'  {package["repository"]}'] if package["repository"] else [])]))
    for text, files in by_text.items():
        parts.append("\n".join(["-" * 78, *files, "", text]))
    return "\n\n".join(parts) + "\n", problems


def metadata():
    host = re.search(r"^host: (.*)$", subprocess.run(["rustc", "-vV"], capture_output=True, text=True, check=True).stdout, re.M).group(1)
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--offline", "--filter-platform", host]
    return json.loads(subprocess.run(command, cwd=ROOT / "tools", capture_output=True, text=True, check=True).stdout)


def write(file):
    packages = crates(metadata())
    text, problems = collect(packages)
    if problems:
        sys.exit("\n".join(f"licences: {problem}" for problem in problems))
    head = (f"The command line tool of Quarry contains these {len(packages)} crates, or was compiled with them, and the standard library of\n"
            "Rust (licence: MIT OR Apache-2.0, copyright: the Rust Project contributors). The texts of all licences follow.\n\n")
    pathlib.Path(file).parent.mkdir(parents=True, exist_ok=True)
    temporary = f"{file}.{os.getpid()}"
    pathlib.Path(temporary).write_text(head + text)
    os.replace(temporary, file)


def self_test():
    for expression, good in (("MIT", True), ("MIT OR GPL-3.0", True), ("MIT/Apache-2.0", True), ("GPL-3.0", False), ("MIT AND GPL-3.0", False),
                             ("(MIT OR Apache-2.0) AND Unicode-3.0", True), ("Apache-2.0 WITH LLVM-exception OR X", True), ("", False)):
        assert allowed(expression) == good, expression
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "a/sub").mkdir(parents=True)
        (folder / "b").mkdir()
        (folder / "a/LICENSE-MIT").write_text("the text\n")
        (folder / "a/sub/COPYING").write_text("another\n")
        (folder / "a/license.rs").write_text("code")

        def package(name, licence):
            return {"id": name, "name": name, "version": "1", "license": licence, "source": "registry", "authors": ["N. N."],
                    "repository": None, "manifest_path": str(folder / name / "Cargo.toml")}

        text, problems = collect([package("a", "ISC")])
        assert not problems and all(word in text for word in ("a 1: sub/COPYING", "the text", "another", "N. N.")), text
        assert "license.rs" not in text
        assert len(collect([package("b", "Zlib")])[1]) == 1 and len(collect([package("a", "GPL-2.0")])[1]) == 1
        data = {"packages": [{**package("quarry", "MIT"), "source": None}, *(package(n, "MIT") for n in "abc")],
                "resolve": {"nodes": [{"id": "quarry", "deps": [{"pkg": "a", "dep_kinds": [{"kind": None}]}, {"pkg": "c", "dep_kinds": [{"kind": "dev"}]}]},
                                      {"id": "a", "deps": [{"pkg": "b", "dep_kinds": [{"kind": "build"}]}]}, {"id": "b", "deps": []}]}}
        assert [found["name"] for found in crates(data)] == ["a", "b"]
    print("self-test: licences that are not allowed and missing texts were found out")


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    return write(sys.argv[1])


if __name__ == "__main__":
    sys.exit(main())
