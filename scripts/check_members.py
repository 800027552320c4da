#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compare the members of JSON that docs/cli.md describes with those that the tool writes, in both directions.

  check_members.py TOOL LIBRARIES   run the verbs on small programs; exit 1 and a line for each member that differs
  check_members.py --self-test      prove that each kind of difference is found

LIBRARIES is the folder of the build's libraries. Each verb's section of docs/cli.md names its schema and, in backticks, every member that a
report has, at whatever depth. What stands in backticks behind the word "schema" is a member that the verb writes, or a value of one.
Of `profile` these are the lines of --live. Reports whose schema is a file under docs/ (check, profile, bench) are held to it by tests of the tool.

OPEN are members whose names are data, or stand in another file: that file is looked at then. SELDOM are those that no run here writes. An entry
of SELDOM that a run does write is a fault, so the list cannot grow old.
"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
DOCUMENT = "docs/cli.md"
PATIENCE = 300  # seconds, which only end a hang
NAME = re.compile(r"[a-z][a-z0-9_]*")

# Members below such a path: None, or the file that names them.
OPEN = {
    "run": {r"heap\.(program|others\.sum)\.\w+": "include/quarry/stats.h"},
    "stats": {r"processes\.pages\.heap\.sums\.\w+": "include/quarry/stats_page.h"},
    "info": {r"trace\.(head|end)\.\w+": "docs/trace-format.md", r"events_by_kind\..*": None},
    "tour": {r"chapters\.run\.steps\.figures\..*": None},  # the kernel's names
    "map": {r"cgroup\.memory\.(stat|events)\..*": None, r"mappings\.counters\..*": None},  # the kernel's names
    "explain": {r"cgroup\.events\..*": None},
    "bench suite": {r"(mallocs|runs|runs\.figures|mallocs\.variant\.variables)\.[-\w]+": None, r"runs\.figures\.[-\w]+\.(least|most)": None},  # names of mallocs, runs and their figures
}
# What the runs of this script do not write, by verb, with the reason.
SELDOM = {
    "compare": {"differs unknown varies": "values of output"},
    "info": {"offset why": "damage", "ended gone running stopped": "values of ends", "text": "a format"},
    "pools": {"offset why": "damage"},
    "replay": {"recorder": "a value of pass", "off_s cause replays recording": "processor time that is not known well enough"},
    "map": {"core smaps": "values of origin"},
    "explain": {"leak_like unknown_grows": "a value of verdict", "used_bytes": "a control group with a limit"},
}
# Words in backticks behind the schema that are neither members nor values of them.
WORDS = {"record": {"run"}, "replay": {"compare"}, "explain": {"malloc_trim"}, "stats": {"quarry_stats_page_sums_t"}}

POOLS = """#include <quarry/fifo.h>
#include <quarry/malloc.h>
#include <quarry/short.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char **argv) {
    (void)argv;
    quarry_pool_t *pool = quarry_fifo_create(&(quarry_fifo_options_t){.pool.name = "replies"});
    long *block = NULL;
    void *other = NULL;
    for (int i = 0; i < 20000; i++) {
        block = p_new(pool, long, 16);
        other = quarry_malloc(4000);
        if (i % 2) p_delete(pool, &block);
        if (i % 3) quarry_free(other);
    }
    for (puts("ready"), fflush(stdout); argc > 1 && getppid() != 1; usleep(1000)) {
        other = quarry_malloc(100000);
        quarry_free(other);
    }
    return 0;
}
"""


def paths(value, above=()):
    """The path of each member, through objects and arrays."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield (*above, name)
            yield from paths(inner, (*above, name))
    elif isinstance(value, list):
        for inner in value:
            yield from paths(inner, above)


def values(value):
    """Each text and each part of one that a member or an array has."""
    if isinstance(value, dict):
        for inner in value.values():
            yield from values(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from values(inner)
    elif isinstance(value, str):
        yield value


def section(text, verb):
    return re.search(rf"^## quarry {verb}\n(.*?)(?=^## |\Z)", text, re.M | re.S)[1]


def named(text):
    """The words that stand in backticks."""
    return {word for code in re.findall(r"`([^`\n]*)`", text) for word in NAME.findall(code)}


def claimed(text, schemas):
    """The members that a section promises: words that stand alone in backticks, or as a path, behind its schema."""
    behind = text[min([text.find(f"`{schema}`") for schema in schemas if f"`{schema}`" in text], default=len(text)):]
    codes = re.findall(r"`([a-z][a-z0-9_.\[\]]*)`", behind)
    return {word for code in codes for word in re.split(r"[.\[\]]+", code) if NAME.fullmatch(word)}


def is_known(path, known, opened, root):
    """Is the member in the section, or open and in the file that has it?"""
    name, whole = path[-1], ".".join(path)
    if known & {name, name.removesuffix("_interval"), name.removesuffix("_interval").removesuffix("_bytes")}:
        return True
    for pattern, file in opened.items():
        if re.fullmatch(pattern, whole):
            return file is None or re.search(rf"\b{re.escape(name)}\b", (root / file).read_text()) is not None
    return False


def differences(text, verb, reports, root):
    """One line for each member that is written and not named, or named and not written."""
    part, found = section(text, verb), []
    known, opened = named(part) | {"schema"}, OPEN.get(verb, {})
    written = {path for report in reports for path in paths(report)}
    names = {path[-1] for path in written}
    said = {word for report in reports for value in values(report) for word in NAME.findall(value)}
    schemas = {report["schema"] for report in reports if "schema" in report}
    found += [f"{verb}: the schema {schema} is not named" for schema in sorted(schemas) if f"`{schema}`" not in part]
    found += [f"{verb}: {'.'.join(path)} is written and not named" for path in sorted(written) if not is_known(path, known, opened, root)]
    seldom = {word for words in SELDOM.get(verb, {}) for word in words.split()}
    promised = claimed(part, schemas) - WORDS.get(verb, set())
    found += [f"{verb}: {name} is named and not written" for name in sorted(promised - names - said - seldom)]
    found += [f"{verb}: SELDOM has {name}, which is written" for name in sorted(seldom & names)]
    return found


class Runs:
    def __init__(self, tool, libraries, folder):
        self.tool, self.folder, self.reports = tool, folder, {}
        self.library = libraries / "libquarry-malloc.so"
        self.environment = {**os.environ, "QUARRY_LIB_DIR": str(libraries)}
        for name in ("QUARRY_CONF", "LD_PRELOAD"):
            self.environment.pop(name, None)
        (folder / "pools.c").write_text(POOLS)
        compiler = os.environ.get("CC", "cc")
        subprocess.run([compiler, "-g", "-O1", "-o", "server", ROOT / "examples/profile/server.c"], cwd=folder, check=True)
        subprocess.run([compiler, "-g", "-O1", f"-I{ROOT / 'include'}", "-o", "pools", "pools.c", f"-L{libraries}", "-lquarry", f"-Wl,-rpath,{libraries}"], cwd=folder, check=True)

    def keep(self, verb, text):
        reports = [json.loads(text)] if not text.lstrip().startswith("{") or "\n{" not in text else [json.loads(line) for line in text.splitlines()]
        self.reports.setdefault(verb, []).extend(reports)

    def run(self, verb, *words, into=None, **environment):
        """A verb whose report goes to standard output, or to the file that follows the option `into`."""
        file = self.folder / "report.json"
        command = [self.tool, *verb.split(), "-q", *([into, file] if into else ["--json"]), *words]
        done = subprocess.run(list(map(str, command)), cwd=self.folder, env={**self.environment, **environment}, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode in (0, 1), f"{command}: {done.stderr}"
        self.keep(verb, file.read_text() if into else done.stdout)

    def of_programs(self):
        self.run("run", "--", "./server", into="-o")
        self.run("run", "--", "sh", "-c", "./server; ./server", into="-o")
        self.run("record", "-g", "-o", "server.qtr", "--", "./server", into="--summary")
        self.run("record", "--measure", "-o", "measured.qtr", "--", "./server", into="--summary")
        self.run("record", "-o", "pools.qtr", "--", "./pools", into="--summary")
        self.run("record", "--sample", "64k", "-o", "sample.qtr", "--", "./server", into="--summary")
        self.run("compare", "-n", "5", "--with", "quarry", "--", "./server", into="-o")
        subprocess.run(["./pools"], cwd=self.folder, env={**self.environment, "QUARRY_CONF": "pool_log:log"}, check=True, stdout=subprocess.DEVNULL)
        self.run("pools", "--series", "log")
        for trace in ("server.qtr", "pools.qtr", "sample.qtr"):
            self.run("info", "--stacks", trace)
        self.run("symbolize", "-o", "named.qtr", "server.qtr")
        self.run("gen", "--fit", "server.qtr", "-o", "like.qtr")
        self.run("gen", "--ms", "-o", "some.ms")
        self.run("convert", "server.qtr", "-o", "some.jsonl")
        self.run("replay", "-n", "5", "--with", "quarry", "server.qtr")
        self.run("replay", "-n", "1", "--with", "quarry", "sample.qtr")
        self.run("replay", "-n", "1", "--with", "quarry", "--validate", "--idle", "0.1", "--verify", "server.qtr", "--", "./server")
        self.run("tour", "reserve", "static")
        self.of_a_suite()

    def of_a_suite(self):
        """Runs of shell scripts: with figures and output, and one that fails."""
        for name, script in (("figures", "echo 7 8"), ("fails", "exit 3")):
            path = self.folder / "suite/out/bench" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"#!/bin/sh\n{script}\n")
            path.chmod(0o755)
        (self.folder / "suite.toml").write_text("[[run]]\nname = 'figures'\ncommand = ['{bin}/figures']\nsame_output = true\n"
                                                "also = { least = '(.) ', most = ' (.)' }\n[[run]]\nname = 'fails'\ncommand = ['{bin}/fails']\n")
        self.run("bench suite", "--catalog", "suite.toml", "suite", "-n", "1", "--pin", "--with", f"variant={self.library},A=1", "figures", "fails")

    def of_a_process(self):
        process = subprocess.Popen(["./pools", "wait"], cwd=self.folder, env=self.environment, stdout=subprocess.PIPE)
        try:
            process.stdout.readline()
            pid = str(process.pid)
            self.run("map", "-p", pid)
            self.run("top", "--once", "-p", pid)
            self.run("top", "--once", "--rows", "3")
            self.run("explain", "--for", "1", "-p", pid)
            self.run("doctor", "-p", pid)
            end = time.monotonic() + PATIENCE
            while subprocess.run([self.tool, "stats", "-q", "-p", pid], env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
                assert time.monotonic() < end, "no statistics page"
                time.sleep(0.2)
            self.run("stats", "-p", pid)
            live = subprocess.Popen([self.tool, "profile", "-q", "-p", pid, "--live", "--json"], env=self.environment, stdout=subprocess.PIPE, text=True)
            self.keep("profile", "".join(live.stdout.readline() for _ in range(2)))
            live.send_signal(signal.SIGTERM)
            live.communicate()
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
            process.stdout.close()


def self_test():
    text = "## quarry run\n\nSchema `quarry-run/1`: `a`, and `inner.b`; `c` is `yes`.\n\n## quarry gen\n\nThe schema is `quarry-gen/1`: `d`.\n"
    good = [{"schema": "quarry-run/1", "a": None, "inner": [{"b": 1}], "c": "yes"}]
    assert differences(text, "run", good, ROOT) == []
    assert differences(text, "run", [{**good[0], "e": 1}], ROOT) == ["run: e is written and not named"]
    assert differences(text, "run", [{**good[0], "inner": [{"b": {"f": 1}}]}], ROOT) == ["run: inner.b.f is written and not named"]
    assert differences(text, "run", [{**good[0], "inner": []}], ROOT) == ["run: b is named and not written"]
    assert differences(text, "run", [{**good[0], "schema": "quarry-run/2"}], ROOT)[0] == "run: the schema quarry-run/2 is not named"
    assert differences(text, "gen", [{"schema": "quarry-gen/1", "a": 1}], ROOT) == ["gen: a is written and not named", "gen: d is named and not written"]
    heap = {"heap": {"program": {"live_bytes": 1}}}
    assert differences(text.replace("`a`", "`a`, `heap.program`"), "run", [{**good[0], **heap}], ROOT) == []
    heap["heap"]["program"]["no_such_member"] = 1
    assert differences(text.replace("`a`", "`a`, `heap.program`"), "run", [{**good[0], **heap}], ROOT) == ["run: heap.program.no_such_member is written and not named"]
    SELDOM["run"] = {"c": "a test"}
    assert differences(text, "run", good, ROOT) == ["run: SELDOM has c, which is written"]
    print("check_members: a member that is written or named alone is found")


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    tool, libraries = map(lambda name: pathlib.Path(name).resolve(), sys.argv[1:])
    for what, is_there in ((f"the tool {tool} (make tool)", tool.exists()), ("a C compiler", shutil.which(os.environ.get("CC", "cc")))):
        if not is_there:
            print(f"SKIP: needs {what}")
            sys.exit(77)
    text = (ROOT / DOCUMENT).read_text()
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(tool, libraries, pathlib.Path(folder))
        runs.of_programs()
        runs.of_a_process()
    found = [line for verb, reports in runs.reports.items() for line in differences(text, verb, reports, ROOT)]
    print("\n".join(found) or f"check_members: {len(runs.reports)} reports have the members that {DOCUMENT} names")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
