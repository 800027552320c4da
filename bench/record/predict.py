#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Is a replay a prediction? Record real programs once, replay them under several mallocs, run them under each, compare.

  predict.py [-n ROUNDS] [--scale X] [--only NAME,...] [--json FILE] [PROGRAM...]
  predict.py --smoke

Memory: the predicted peak of resident memory against the program's own, as the kernel has it when the program ends; the error of each pair of
program and malloc, and per program the rank correlation (Kendall's, over the pairs of mallocs whose medians differ by more than the noise: 1 % and
512 KiB, and the spread of the program's runs under any one malloc). Processor time (user + system): is the program's median within the stated interval?

A program that asks malloc how large its blocks are may do something else where the answers differ. Such pairs of program and malloc are marked, as in
the report of the replay.
"""
import argparse
import itertools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from measure import Fault, progress  # noqa: E402
from programs import Program, environment, programs, tool  # noqa: E402

MIB = 1 << 20
NOISE = 0.01, MIB // 2
ANSWERS = 0.0005  # what differs by less is the same

LUA = """local rows = {}
for i = 1, %d do rows[i] = {id = i, name = "row " .. i * 7919 %% 65537, list = {i, i + 1, i + 2}} end
table.sort(rows, function(a, b) return a.name < b.name end)
local words = {}
for i = 1, #rows, 2 do words[#words + 1] = rows[i].name .. rows[i].id; rows[i] = nil end
local text = table.concat(words, " ")
local count = {}
for word in text:gmatch("%%w+") do count[word] = (count[word] or 0) + 1 end
print(#text)
"""
PHP = """<?php
$rows = [];
for ($i = 0; $i < %d; $i++) $rows[] = ["id" => $i, "name" => "row " . $i * 7919 %% 65537, "list" => [$i, $i + 1]];
usort($rows, fn($a, $b) => $a["name"] <=> $b["name"]);
$text = json_encode($rows);
$again = json_decode($text);
echo count($again), "\\n";
"""
RUBY = """rows = (0...%d).map { |i| { id: i, name: "row #{i * 7919 %% 65537}", list: [i, i + 1, i + 2] } }
rows.sort_by! { |row| row[:name] }
words = rows.each_slice(2).map { |a, b| a[:name] + a[:id].to_s * 3 }
rows = rows.select { |row| row[:id].odd? }
text = words.join(" ")
puts text.split.tally.size
"""
STYLE = """<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform"><xsl:template match="/list">
<out><xsl:for-each select="row"><xsl:sort select="name"/><r n="{name}"><xsl:value-of select="concat(id, '-', text)"/></r></xsl:for-each></out>
</xsl:template></xsl:stylesheet>"""
POSTSCRIPT = """%%!PS
/Times-Roman findfont 9 scalefont setfont
%d { 40 1 750 { dup 36 exch moveto 12 mul cvi 997 mod 20 string cvs show ( the quick brown fox jumps over the lazy dog) show } for
gsave 300 400 translate 0 5 355 { rotate 0 0 moveto 200 0 lineto 3 setlinewidth stroke } for grestore showpage } repeat
"""
BROWSER = """const rows = [];
for (let i = 0; i < %d; i++) rows.push({id: i, name: `row ${i * 7919 %% 65537}`, data: Buffer.alloc(200 + i %% 800, i)});
rows.sort((a, b) => a.name < b.name ? -1 : 1);
const zlib = require("zlib");
let sum = 0;
for (let i = 0; i < rows.length; i += 50) sum += zlib.deflateSync(Buffer.concat(rows.slice(i, i + 50).map((r) => r.data))).length;
console.log(sum);
"""


def lines(count):
    return "".join(f"line {i} {i * 7919 % 65537} {'abcdefghij' * (i % 5)} {i * i % 1009}\n" for i in range(count))


def more(folder, scale):
    """Programs beside those of programs.py, which have inputs of their own."""
    found = {}
    many = lambda n: max(10, round(n * scale))  # noqa: E731
    for name, text, count, command in [
            ("lua", LUA, 60000, ["lua", "rows.lua"]), ("php", PHP, 100000, ["php", "-n", "-d", "memory_limit=-1", "rows.php"]),
            ("ruby", RUBY, 100000, ["ruby", "--disable-gems", "rows.rb"]), ("node", BROWSER, 40000, ["node", "--single-threaded", "rows.js"]),
            ("ghostscript", POSTSCRIPT, 6, ["gs", "-q", "-dBATCH", "-dNOPAUSE", "-sDEVICE=png16m", "-r150", "-sOutputFile=/dev/null", "pages.ps"])]:
        if not shutil.which(command[0]):
            continue
        (folder / command[-1]).write_text(text % many(count))
        found[name] = Program([os.path.realpath(shutil.which(command[0])), *command[1:]], {}, 1, folder)
    if shutil.which("xsltproc"):
        rows_ = "".join(f"<row><id>{i}</id><name>n{i * 7919 % 65537}</name><text>{'x' * (i % 60)}</text></row>" for i in range(many(40000)))
        (folder / "rows.xml").write_text(f"<list>{rows_}</list>")
        (folder / "rows.xsl").write_text(STYLE)
        found["xsltproc"] = Program([shutil.which("xsltproc"), "-o", "/dev/null", "rows.xsl", "rows.xml"], {}, 1, folder)
    (folder / "lines.txt").write_text(lines(many(300000)))
    if shutil.which("jq"):
        (folder / "rows.json").write_text(json.dumps([{"id": i, "name": f"row {i * 7919 % 65537}", "list": [i, i + 1]} for i in range(many(60000))]))
        found["jq"] = Program([shutil.which("jq"), "-c", "group_by(.id % 100) | map({n: length, s: (map(.list[0]) | add)}) | length", "rows.json"], {}, 1, folder)
    if shutil.which("gawk"):
        found["awk"] = Program([shutil.which("gawk"), '{ n[$2]++; t[$3] = t[$3] $1 } END { for (k in n) s += n[k]; print s }', "lines.txt"], {}, 1, folder)
    if shutil.which("zstd"):
        found["zstd"] = Program([shutil.which("zstd"), "-q", "-12", "-T2", "-f", "-o", "/dev/null", "lines.txt"], {}, 2, folder)
    if shutil.which("cppcheck"):
        source = folder / "check.c"
        source.write_text("".join(f"int f{i}(int a, int *p) {{ int b = a * {i}; if (a > {i}) {{ p[a] = b; return p[{i % 7}]; }} for (int k = 0; k < a; k++) b += k; return b; }}\n"
                                  for i in range(many(400))))
        found["cppcheck"] = Program([shutil.which("cppcheck"), "-q", "check.c"], {}, 1, folder)
    return found


def run(*command, program):
    result = subprocess.run([str(c) for c in command], env=environment(program), cwd=program.folder, capture_output=True, text=True,
                            errors="replace", stdin=subprocess.DEVNULL)
    if result.returncode not in (0, 1) or result.returncode and "replay" not in command:
        raise Fault(f"{' '.join(map(str, command))[:300]}: status {result.returncode}: {result.stderr[-500:]}")
    return result.stdout


def rank(predicted, measured, noise):
    """Kendall's rank correlation over the pairs that differ by more than the noise in what was measured. None: no such pair."""
    pairs = [(a, b) for a, b in itertools.combinations(sorted(measured), 2) if abs(measured[a] - measured[b]) > noise(measured[a], measured[b])]
    agree = sum(1 if (predicted[a] - predicted[b]) * (measured[a] - measured[b]) > 0 else -1 for a, b in pairs)
    return agree / len(pairs) if pairs else None, len(pairs)


def judge(parsed):
    """What a replay with --validate says, in numbers."""
    result = {"unknown": [parsed["prediction"]["memory_unknown"], parsed["prediction"]["cpu_unknown"]], "looks": parsed["prediction"]["looks"],
              "handed": parsed["prediction"]["handed"], "mallocs": {}}
    for allocator in parsed["allocators"]:
        predicted, measured = allocator["prediction"], allocator["program"]
        if not predicted or not measured or not measured["runs"] or not predicted["memory"]:
            result["mallocs"][allocator["name"]] = {"failed": measured["failures"] if measured else "no run"}
            continue
        peak, true = predicted["memory"]["peak_rss_bytes"], measured["peak_rss_bytes"]
        one = {"predicted": peak["value"], "low": peak["low"], "high": peak["high"], "measured": true["median"], "least": true["min"], "most": true["max"],
               "off": peak["value"] / true["median"] - 1, "reserved": abs(predicted.get("answers") or 0) >= ANSWERS}
        end, true = predicted["memory"]["end_rss_bytes"], measured["end_rss_bytes"]
        if end and true:
            one.update(end_predicted=end["value"], end_measured=true["median"], end_off=end["value"] / true["median"] - 1,
                       end_within=end["low"] <= true["median"] <= end["high"])
        cpu, true = predicted["cpu_s"], measured["cpu_s"]
        if cpu and true:
            one.update(cpu_predicted=cpu["value"], cpu_low=cpu["low"], cpu_high=cpu["high"], cpu_measured=true["median"],
                       cpu_least=true["min"], cpu_most=true["max"], cpu_within=cpu["low"] <= true["median"] <= cpu["high"])
        result["mallocs"][allocator["name"]] = one
    good = {name: m for name, m in result["mallocs"].items() if "failed" not in m}
    result["spread"] = max((m["most"] - m["least"] for m in good.values()), default=0)
    noise = lambda a, b: max(NOISE[0] * max(a, b) + NOISE[1], result["spread"])  # noqa: E731
    result["rank"], result["pairs"] = rank({n: m["predicted"] for n, m in good.items()}, {n: m["measured"] for n, m in good.items()}, noise)
    return result


def show(name, result):
    for malloc, m in result["mallocs"].items():
        if "failed" in m:
            print(f"| {name} | {malloc} | failed: {m['failed']} |||||||")
            continue
        end = f"{m['end_predicted'] / MIB:.1f} | {m['end_measured'] / MIB:.1f}" if "end_off" in m else " | "
        cpu = f"{m['cpu_predicted']:.2f} ({m['cpu_low']:.2f} to {m['cpu_high']:.2f}) | {m['cpu_measured']:.2f}{'' if m['cpu_within'] else ' **out**'}" if "cpu_within" in m else " | "
        inside = "" if m["low"] <= m["measured"] <= m["high"] else " **out**"
        inside += " asks" if m["reserved"] else ""
        print(f"| {name} | {malloc} | {m['predicted'] / MIB:.1f} | {m['measured'] / MIB:.1f} | {m['off']:+.1%}{inside} | {end} | {cpu} |", flush=True)


def summary(results):
    every = [m for r in results.values() for m in r["mallocs"].values() if "failed" not in m]
    if not every:
        return
    ends = [abs(m["end_off"]) for m in every if "end_off" in m]
    cpus = [m["cpu_within"] for m in every if "cpu_within" in m]
    ranks = {name: r["rank"] for name, r in results.items() if r["rank"] is not None}
    print()
    for what, some in (("peak RSS", every), ("of these without those marked \"asks\"", [m for m in every if not m["reserved"]])):
        offs = sorted(abs(m["off"]) for m in some)
        if offs:
            print(f"{what}: {len(offs)} pairs, mean error {sum(offs) / len(offs):.2%}, median {offs[len(offs) // 2]:.2%}, largest {offs[-1]:.2%}; "
                  f"within the interval: {sum(m['low'] <= m['measured'] <= m['high'] for m in some)}")
    if ends:
        inside = sum(m.get("end_within", False) for m in every)
        print(f"RSS at the end: {len(ends)} pairs, mean error {sum(ends) / len(ends):.2%}, largest {max(ends):.2%}; within the interval: {inside}")
    if len(cpus) < len(every):
        print(f"processor time: not predicted for {len(every) - len(cpus)} of {len(every)} pairs")
    if cpus:
        offs = sorted(abs(m["cpu_predicted"] / m["cpu_measured"] - 1) for m in every if "cpu_within" in m and m["cpu_measured"])
        print(f"processor time: {sum(cpus)} of {len(cpus)} within the interval; mean error {sum(offs) / len(offs):.1%}, median {offs[len(offs) // 2]:.1%}, largest {offs[-1]:.1%}")
    if ranks:
        print(f"rank correlation: least {min(ranks.values()):.2f}; " + ", ".join(
            f"{name} {value:.2f} of {results[name]['pairs']} (runs of one malloc differ by {results[name]['spread'] / MIB:.1f} MiB)" for name, value in ranks.items()))
    for name, result in results.items():
        if result["rank"] is None:
            print(f"{name}: no two mallocs differ by more than the noise; its runs under one malloc differ by {result['spread'] / MIB:.1f} MiB at most")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="of the programs' work")
    parser.add_argument("--only", help="allocators, as for quarry replay --with; the system's takes part anyway")
    parser.add_argument("--json")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("programs", nargs="*")
    args = parser.parse_args()
    scale, rounds, only = (0.05, 1, "system") if args.smoke else (args.scale, args.n, args.only)
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        work = {**programs(folder, scale), **more(folder, scale)}
        if unknown := set(args.programs) - work.keys():
            sys.exit(f"predict.py: no program {', '.join(sorted(unknown))}; there are {', '.join(work)}")
        print("| program | malloc | peak predicted, MiB | measured | error | end predicted, MiB | measured | CPU predicted, s | measured |\n|---|---|---|---|---|---|---|---|---|")
        for name, program in work.items():
            if args.programs and name not in args.programs:
                continue
            trace = folder / f"{name}.qtr"
            try:
                progress(f"{name}: recording")
                run(tool(), "record", "-q", "-o", trace, "--", *program.command, program=program)
                progress(f"{name}: replaying and running")
                text = run(tool(), "replay", "-q", "--json", "--no-latency", "-n", rounds, *(["--with", only] if only else []), trace, "--validate", "--",
                           *program.command, program=program)
            except Fault as fault:
                progress("")
                sys.exit(f"predict.py: {fault}")
            progress("")
            trace.unlink()
            results[name] = judge(json.loads(text))
            show(name, results[name])
            if args.json:
                pathlib.Path(args.json).write_text(json.dumps(results, indent=1) + "\n")
    summary(results)


if __name__ == "__main__":
    main()
