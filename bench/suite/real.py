# SPDX-License-Identifier: MIT
"""Real programs as they are installed, with work that is made here: the second set of runs, for which no suite is needed.

None of them is in the usual suite. Half are the programs that the recorder is measured with (bench/record/programs.py).
"""
import json
import pathlib
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "record"))
from programs import Program, programs, quiet  # noqa: E402
from runs import Run  # noqa: E402

GAWK = """BEGIN {
    seed = 1
    for (round = 0; round < 6; round++) {
        delete seen
        for (i = 0; i < 200000; i++) {
            seed = (seed * 16807) % 2147483647
            key = "key " seed % 40000
            seen[key] = substr(seen[key] " " seed, 1, 60)
        }
        for (key in seen) { n = split(seen[key], words); sum += n + length(words[1]) }
    }
    print sum
}
"""

LUA = """local seed, sum = 1, 0
local function tree(depth)
    if depth == 0 then return {} end
    return {left = tree(depth - 1), right = tree(depth - 1), name = "node " .. depth}
end
for round = 1, 12 do
    local words = {}
    for i = 1, 60000 do
        seed = seed * 16807 % 2147483647
        local key = "word " .. seed % 20000
        local list = words[key] or {}
        list[#list + 1] = ("x"):rep(seed % 200)
        words[key] = list
    end
    for _, list in pairs(words) do sum = sum + #table.concat(list, ",") end
    local t = tree(15)
    sum = sum + #t.name
end
print(sum)
"""

TCL = """set seed 1
set sum 0
for {set round 0} {$round < 4} {incr round} {
    set words [dict create]
    for {set i 0} {$i < 60000} {incr i} {
        set seed [expr {$seed * 16807 % 2147483647}]
        dict lappend words "word [expr {$seed % 20000}]" [string repeat x [expr {$seed % 200}]]
    }
    foreach key [lsort [dict keys $words]] {incr sum [string length [join [dict get $words $key] ,]]}
}
puts $sum
"""

# Half of what a compiler works at is the library's.
CXX = """#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <regex>
#include <string>
#include <unordered_map>
#include <vector>
struct Word { std::string text; std::vector<std::shared_ptr<Word>> next; };
int main() {
    std::regex words("([a-z]+)[^a-z]+([a-z]*)", std::regex::icase | std::regex::optimize);
    std::map<std::string, std::unordered_map<std::string, std::shared_ptr<Word>>> known;
    std::vector<std::function<bool(const Word &)>> tests;
    for (std::string line; std::getline(std::cin, line);) {
        for (std::sregex_iterator at(line.begin(), line.end(), words), end; at != end; ++at) {
            auto &word = known[at->str(1)][at->str(2)];
            if (!word) word = std::make_shared<Word>(Word{at->str(), {}});
            tests.emplace_back([word](const Word &other) { return word->text < other.text; });
        }
    }
    std::stable_sort(tests.begin(), tests.end(), [&](auto &a, auto &b) { return a(Word{"m", {}}) < b(Word{"n", {}}); });
    std::cout << std::regex_replace(std::to_string(known.size()), words, "$2 $1") << tests.size();
}
"""

JQ = '[group_by(.kind)[] | {kind: .[0].kind, n: length, names: ([.[].name] | sort | join(",") | length), tags: ([.[].tags[]] | unique | length)}] | tojson | length'


def records(path, count):
    path.write_text(json.dumps([{"id": n, "kind": f"kind {n * 7919 % 97}", "name": f"record {n * 104729 % 1000003}",
                                 "tags": [f"tag {n * k % 211}" for k in range(1, 6)], "at": {"x": n / 7, "y": [n, n + 1]}} for n in range(count)]))


def script(path, text):
    path.write_text(text)
    return path.name


def more_programs(folder):
    """{name: Program}, as programs() of bench/record."""
    found = {}

    def add(name, command, make=lambda: None, **more):
        if program := shutil.which(command[0]):
            make()
            found[name] = Program([program, *command[1:]], more.get("env", {}), more.get("threads", 1), folder)

    (folder / "words.cpp").write_text(CXX)
    for name, compiler in (("compiler", "g++"), ("clang", "clang++")):
        if shutil.which(compiler):
            source = folder / f"words-{name}.ii"
            quiet(compiler, "-E", "-P", folder / "words.cpp", "-o", source)
            program = quiet("g++", "-print-prog-name=cc1plus") if name == "compiler" else compiler
            add(name, [program, *(("-quiet",) if name == "compiler" else ("-c",)), "-O2", source.name, "-o", "/dev/null"])
    add("gawk", ["gawk", "-f", script(folder / "words.awk", GAWK)])
    add("lua5.4", ["lua5.4", script(folder / "words.lua", LUA)])
    add("tcl", ["tclsh", script(folder / "words.tcl", TCL)])
    add("jq", ["jq", JQ, "records.json"], lambda: records(folder / "records.json", 60000))
    if is_image_magick("convert"):
        add("convert", ["convert", "-seed", "1", "-size", "700x700", "plasma:red-blue", "-resize", "150%", "-paint", "2", "-quantize", "Lab", "-colors", "64", "ppm:-"], threads=2)
    return found


def is_image_magick(program):
    """Others have that name, too."""
    return shutil.which(program) and "ImageMagick" in subprocess.run([program, "-version"], capture_output=True, text=True).stdout


# Which deltas two threads find depends on which of them is faster.
VARY = ("git",)


def real_runs(folder):
    """Their inputs are made in `folder`. Most take a second or more: shorter ones say little on a noisy machine."""
    found = {**programs(folder, 6), **more_programs(pathlib.Path(folder))}
    return tuple(Run(name, tuple(map(str, p.command)), program=True, threads=p.threads > 1, same_output=name not in VARY, folder=str(p.folder), env=tuple(p.env.items()))
                 for name, p in found.items())
