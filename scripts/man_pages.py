#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Make the manual pages of the libraries from docs/man/, the options' table and the public headers.

  man_pages.py DIR VERSION   write man3/libquarry.3 and man7/quarry.7 into DIR
  man_pages.py --self-test   prove that options and functions are found, and that none is missed

The pages of the tool come from the tool itself: `quarry man DIR`.
"""
import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[1]
OPTION = re.compile(r'^X\((\w+), (\w+), (\w+), \w+, \w+, "([^"]*)"\)$', re.M)
# A declaration stands on one line, and its comment on the lines above.
FUNCTION = re.compile(r"((?:^///[^\n]*\n)*)((?:^QUARRY_API [^;]*;\n)+)", re.M)


def roff(text):
    """Running text, safe for roff."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return re.sub(r"^\.", r"\\&.", text, flags=re.M)


def options(table):
    parts = []
    for name, kind, default, text in OPTION.findall(table):
        value = {"bool": " (default: on)" if default == "1" else " (default: off)", "str": ""}.get(kind, f" (default: {default})")
        parts.append(f".TP\n\\fB{name}\\fR{value}\n{roff(text)}")
    if len(parts) != len(re.findall(r"^X\(", table, re.M)):
        raise SystemExit("man_pages.py: an option of opts.def is written in a way that this script does not know")
    return "\n".join(parts)


def prototype(declaration):
    text = re.sub(r"\s+", " ", declaration.removeprefix("QUARRY_API "))
    return re.sub(r" QUARRY_\w+(\([^)]*\))?", "", text)


def functions(header):
    """Each function with its comment; those under one comment together."""
    parts = []
    found = 0
    for comment, declarations in FUNCTION.findall(header):
        prototypes = [prototype(line) for line in re.findall(r"QUARRY_API [^;]*;", declarations)]
        found += len(prototypes)
        text = roff(" ".join(line.removeprefix("///").strip() for line in comment.splitlines()))
        text = re.sub(r"`([^`]+)`", r"\\fI\1\\fR", text)
        tags = "\n.TQ\n".join(f"\\fB{roff(each)}\\fR" for each in prototypes)
        parts.append(f".TP\n{tags}\n" + "\n".join(textwrap.wrap(text, 100, break_on_hyphens=False)))
    if found != len(re.findall(r"^QUARRY_API ", header, re.M)):
        raise SystemExit("man_pages.py: a header declares a function in a way that this script does not know")
    return "\n".join(parts)


def page(template, values):
    for key, value in values.items():
        template = template.replace(f"@{key}@", value)
    left = re.search(r"@[\w.]+@", template)
    if left:
        raise SystemExit(f"man_pages.py: {left.group()} is not known")
    return template


def write(folder, version):
    values = {"VERSION": version, "OPTIONS": options((ROOT / "src/rt/opts.def").read_text())}
    for header in ("malloc.h", "heap.h", "stats.h"):
        values[header] = functions((ROOT / "include/quarry" / header).read_text())
    for template in sorted((ROOT / "docs/man").glob("*.in")):
        name = template.stem
        target = folder / f"man{name.rsplit('.', 1)[1]}" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(page(template.read_text(), values))


def refused(function, *args):
    try:
        function(*args)
    except SystemExit:
        return True
    return False


def self_test():
    table = 'X(first, bool, 1, 0, 1, "one; two")\nX(second, u64, 300, 1, 9, "it\'s - so")\nX(third, str, 0, 0, 0, "")\n'
    text = options(table)
    assert "\\fBfirst\\fR (default: on)\none; two" in text and "(default: 300)\nit\\(aqs \\- so" in text and "\\fBthird\\fR\n" in text, text
    assert refused(options, table + "X(fourth, u64, 1 + 1, 0, 1, \"x\")\n")
    header = ("/// Give `size` bytes,\n/// or NULL.\nQUARRY_API void *f(size_t size) QUARRY_NOEXCEPT QUARRY_SIZE2(1, 2);\n"
              "QUARRY_API int g(int (*visit)(void *block),\n    void *arg) QUARRY_NOEXCEPT;\n\nint other;\n")
    text = functions(header)
    assert text == (".TP\n\\fBvoid *f(size_t size);\\fR\n.TQ\n\\fBint g(int (*visit)(void *block), void *arg);\\fR\n"
                    "Give \\fIsize\\fR bytes, or NULL."), text
    assert refused(functions, header + "QUARRY_API int h(void) {\n")
    assert page("a @X@", {"X": "b"}) == "a b" and refused(page, "@Y@", {"X": ""})
    # What libquarry(3) says of all functions is in no comment that it takes from a header.
    for name in ("docs/man/libquarry.3.in", "include/quarry/malloc.h"):
        assert "one of up to 8 bytes to 8" in (ROOT / name).read_text(), name
    print("self-test: options, functions and what cannot be read were found out")


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    write(pathlib.Path(sys.argv[1]), sys.argv[2])


if __name__ == "__main__":
    main()
