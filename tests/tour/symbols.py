#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Where the compiler puts variables: what nm says of the chapter 12-static, and of a program made here.

  symbols.py BINARY COMPILER
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile

# Name, definition, and the letters of nm that it may have: d .data, r .rodata, b .bss.
CASES = [
    ("no_value", "int no_value;", "b"),
    ("zero", "int zero = 0;", "b"),
    ("file_static", "static int file_static;", "b"),
    ("value", "int value = 7;", "d"),
    ("pointer", "const char *pointer = \"text\";", "d"),
    ("constant", "extern const int constant; const int constant = 7;", "r"),
    # Zero constants are constants to some compilers, and zeros to others.
    ("zero_constant", "extern const char zero_constant[8192]; const char zero_constant[8192] = {0};", "rb"),
]


def letters(binary):
    """Name -> letter, small."""
    text = subprocess.run(["nm", binary], check=True, capture_output=True, text=True).stdout
    return {words[2]: words[1].lower() for words in map(str.split, text.splitlines()) if len(words) == 3}


def main():
    if not shutil.which("nm"):
        print("SKIP: there is no nm; binutils has it")
        return 77
    chapter = letters(sys.argv[1])
    expected = {"constants": "r", "values": "d", "zeros": "b"}
    found = {name: chapter.get(name) for name in expected}
    assert found == expected, found
    with tempfile.TemporaryDirectory() as folder:
        source, binary = pathlib.Path(folder, "variables.c"), pathlib.Path(folder, "variables")
        uses = "".join(f"    sum += (unsigned long)&{name};\n" for name, _, _ in CASES)
        lines = "\n".join(definition for _, definition, _ in CASES)
        source.write_text(f"{lines}\nint main(void) {{\n    volatile unsigned long sum = 0;\n{uses}    return sum == 0;\n}}\n")
        # A pointer that need not be filled in when the program is loaded is what it is: a variable with a value.
        subprocess.run([sys.argv[2], "-O0", "-no-pie", source, "-o", binary], check=True)
        there = letters(binary)
        for name, definition, allowed in CASES:
            assert there.get(name, "?") in allowed, f"{definition}: {there.get(name)} is none of {allowed}"
            print(f"{there[name]} {definition}")
        size = binary.stat().st_size
        source.write_text("char zeros[16 << 20];\nint main(void) { return zeros[5]; }\n")
        subprocess.run([sys.argv[2], "-O0", source, "-o", binary], check=True)
        assert binary.stat().st_size < size + (1 << 20), "zeros have room in the file"
    return 0


if __name__ == "__main__":
    sys.exit(main())
