#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Does a sample say of each call site what is true? Record programs whole and as samples, and compare.

  sampled.py [--scale X] [--repeats N] [--blocks N] [--json FILE] [PROGRAM...]
  sampled.py --smoke

Each program is recorded once with all of its blocks, and N times as a sample of about --blocks blocks. `quarry info` names the call
sites of both. A site of a sample is right if the bytes that the program really allocated there lie within the 95 % interval that
the sample states. So are totals: bytes requested, allocations, the peak of live bytes. The script fails if less than 93 of 100
sites are right. A site that the whole trace does not have counts as wrong: programs here do the same in each run.
"""
import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from measure import Fault, progress  # noqa: E402
from programs import Program, environment, programs, tool  # noqa: E402

RIGHT = 0.93

# Small blocks that leak beside large ones, reallocs, aligned blocks, blocks of 0 bytes, and blocks that are freed at once.
MIXED = r"""
#include <stdlib.h>
#include <string.h>
#define N __attribute__((noinline))
#define SITE(name, call) N void *name(size_t n) { char *p = call; if (p && n) *p = 1; __asm__ volatile("" ::: "memory"); return p; }
SITE(small_leak, malloc(1000))
SITE(big_leak, malloc(1 << 20))
SITE(of_size, malloc(n))
SITE(zeroed, calloc(3, n))
SITE(aligned, aligned_alloc(64, (n + 63) / 64 * 64))
SITE(empty, malloc(0))
N void *grow(void *old, size_t n) { void *p = realloc(old, n); __asm__ volatile("" ::: "memory"); return p; }
int main(int argc, char **argv) {
    size_t rounds = argc > 1 ? strtoul(argv[1], 0, 10) : 1000;
    char *list = NULL;
    for (size_t i = 0; i < rounds; i++) {
        small_leak(1);
        if (i % 5000 == 0) big_leak(1);
        free(of_size(i % 700));
        free(zeroed(i % 100));
        free(aligned(i % 300 + 1));
        free(empty(0));
        list = grow(list, i % 4096 ? i % 4096 * 16 : 16);
        if (i % 4096 == 4095) free(list), list = NULL;
    }
    return 0;
}
"""

XSLT = """<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:template match="/"><out><xsl:for-each select="//row"><xsl:sort select="@c" data-type="number"/>
<r><xsl:value-of select="concat(@b, '-', count(preceding-sibling::row[@c = current()/@c]))"/></r></xsl:for-each></out></xsl:template>
</xsl:stylesheet>
"""


def more(folder, scale):
    """Programs beside those of programs.py."""
    many = lambda n: max(2, round(n * scale))  # noqa: E731
    found = {}
    if compiler := shutil.which("cc"):
        (folder / "mixed.c").write_text(MIXED)
        subprocess.run([compiler, "-g", "-O1", "-fno-builtin", "mixed.c", "-o", "mixed"], cwd=folder, check=True)
        found["mixed"] = Program([str(folder / "mixed"), str(many(200000))], {}, 1, folder)
    rows = [{"a": n, "b": f"row {n * 7919 % 65537}", "c": n % 97} for n in range(many(20000))]
    (folder / "rows.json").write_text(json.dumps(rows))
    (folder / "rows.xml").write_text("<t>" + "".join(f'<row a="{r["a"]}" b="{r["b"]}" c="{r["c"]}"/>' for r in rows[:many(1500)]) + "</t>")
    (folder / "sort.xsl").write_text(XSLT)
    (folder / "words.txt").write_text("\n".join(r["b"] for r in rows) + "\n")
    (folder / "tables.lua").write_text(f"local t = {{}} for i = 1, {many(60000)} do t[i % 977] = {{i, tostring(i), {{i}}}} end print(#t)\n")
    for name, command in (
            ("jq", ["jq", "-c", "group_by(.c) | map({c: .[0].c, n: length, b: (map(.b) | join(\",\"))}) | length", "rows.json"]),
            ("xsltproc", ["xsltproc", "sort.xsl", "rows.xml"]),
            ("xmllint", ["xmllint", "--format", "rows.xml"]),
            ("gawk", ["gawk", "{ n[$2] = n[$2] \" \" $1; m[NR] = $0 } END { for (i in n) s += length(n[i]); print s }", "words.txt"]),
            ("lua", ["lua5.4", "tables.lua"])):
        if path := shutil.which(command[0]):
            found[name] = Program([path, *command[1:]], {}, 1, folder)
    return found


def record(program, folder, *options):
    trace = folder / "sampled.qtr"
    trace.unlink(missing_ok=True)
    command = [tool(), "record", "-q", "-g", *options, "-o", str(trace), "--", *program.command]
    done = subprocess.run(command, env=environment(program), cwd=program.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    if done.returncode or not trace.exists():
        raise Fault(f"{program.command[0]}: status {done.returncode}")
    return json.loads(subprocess.run([tool(), "info", "--json", "-n", "10000", str(trace)], check=True, capture_output=True).stdout)


def sites(info):
    """{where: site}, of those with bytes."""
    found = {}
    for site in info["call_sites"]:
        if site["bytes"]:
            found[site["frames"][0]] = site
    return found


def totals(info):
    """(name, object, key)"""
    return (("requested", info["allocations"], "requested_bytes"), ("allocations", info["allocations"], "count"),
            ("peak", info["live"], "peak_bytes"))


def holds(sampled, key, truth):
    low, high = sampled[f"{key}_interval"]
    return low <= truth <= high


def compare(name, program, folder, repeats, blocks):
    progress(f"{name}: all blocks")
    whole = record(program, folder)
    truth = sites(whole)
    rate = max(64, whole["allocations"]["requested_bytes"] // blocks)
    result = {"rate": rate, "allocations": whole["allocations"]["count"], "sites": len(truth), "shown": 0, "right": 0, "unknown": 0,
              "samples": 0, "totals": {}, "wrong": []}
    for repeat in range(repeats):
        progress(f"{name}: sample {repeat + 1} of {repeats}")
        sampled = record(program, folder, "--sample", str(rate))
        if sampled["sample"]["mean_bytes"] != rate:
            raise Fault(f"{name}: its JSON does not say that it is a sample")
        result["samples"] += 1
        for where, site in sites(sampled).items():
            true = truth.get(where, {}).get("bytes")
            result["shown"] += 1
            result["unknown"] += true is None
            if true is not None and holds(site, "bytes", true):
                result["right"] += 1
            else:
                result["wrong"].append([where, true, site["bytes"], site["bytes_interval"]])
        for (total, exact, key), (_, estimate, _) in zip(totals(whole), totals(sampled)):
            result["totals"].setdefault(total, []).append(holds(estimate, key, exact[key]))
    progress("")
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="of the programs' work")
    parser.add_argument("--repeats", type=int, default=5, help="samples of each program")
    parser.add_argument("--blocks", type=int, default=2000, help="of a sample, about")
    parser.add_argument("--json")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("programs", nargs="*")
    args = parser.parse_args()
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        scale = 0.05 if args.smoke else args.scale
        work = more(folder, scale)
        if args.smoke:
            work = {name: work[name] for name in ("mixed",) if name in work}
            args.repeats = 3
        else:
            work |= programs(folder, scale)
        if unknown := set(args.programs) - work.keys():
            sys.exit(f"sampled.py: no program {', '.join(sorted(unknown))}; there are {', '.join(work)}")
        print(f"{'program':10}{'allocations':>12}{'one byte in':>12}{'sites':>8}{'of samples':>12}{'right':>8}{'':>8}{'requested':>11}{'count':>8}{'peak':>8}")
        for name, program in work.items():
            if args.programs and name not in args.programs:
                continue
            try:
                r = results[name] = compare(name, program, folder, args.repeats, args.blocks)
            except Fault as fault:
                sys.exit(f"sampled.py: {fault}")
            of = lambda total: f"{sum(r['totals'][total])}/{r['samples']}"  # noqa: E731
            print(f"{name:10}{r['allocations']:12}{r['rate']:12}{r['sites']:8}{r['shown']:12}{r['right']:8}{r['right'] / max(1, r['shown']):8.1%}"
                  f"{of('requested'):>11}{of('allocations'):>8}{of('peak'):>8}", flush=True)
    shown, right = sum(r["shown"] for r in results.values()), sum(r["right"] for r in results.values())
    print(f"all: {right} of {shown} sites, {right / max(1, shown):.1%}")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(results, indent=1) + "\n")
    # A run of a minute has few sites.
    if not shown or right < RIGHT * shown - (3 if args.smoke else 0):
        for name, r in results.items():
            for wrong in r["wrong"][:20]:
                print(name, *wrong, file=sys.stderr)
        sys.exit(f"sampled.py: less than {RIGHT:.0%} of the sites are within their intervals")


if __name__ == "__main__":
    main()
