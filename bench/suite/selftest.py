# SPDX-License-Identifier: MIT
"""The proof that the suite's runner adds up rightly and believes no run that went wrong; its suite is a folder of scripts."""
import hashlib
import json
import math
import os
import pathlib
import random
import sys
import tempfile

import sums
import targets
from launch import Launcher, Malloc, gnu_time, pin_library
from measure import Fault
from real import Table, compilers, readers_of_sources
from runs import RUNS, Missing, Place, Run


def near(a, b):
    return math.isclose(a, b, rel_tol=1e-9)


def test_sums():
    def visit(**figures):
        return {name: {"seconds": value, "peak_kib": value, "cpu": value, "faults": value} for name, value in figures.items()}

    visits = {"a": [visit(quarry=2.0, x=1.0, y=4.0)] * 3, "b": [visit(quarry=1.0, x=8.0, y=2.0)] * 3, "c": [visit(x=5.0)] * 3}
    mean = sums.means(sums.medians(visits, "seconds"))
    assert near(mean["quarry"][0], 1.0) and mean["quarry"][1] == 2, mean  # 2 × 0.5: better than the best peer is below 1
    assert near(mean["x"][0], 4 ** (1 / 3)) and mean["x"][1] == 3 and near(mean["y"][0], 2.0)
    assert sums.beyond(visits, "seconds") == [("a", 2.0, "x")]
    assert all(near(end, 2.0) for end in sums.intervals(visits, "seconds")["y"]) and not sums.intervals({"a": visits["a"][:2]}, "seconds")
    mixed = {"a": [visit(quarry=v, x=1.0) for v in (1.0, 9.0, 2.0)]}
    assert sums.medians(mixed, "seconds")["a"]["quarry"] == 2.0
    low, high = sums.intervals(mixed, "seconds")["quarry"]
    assert near(low, 1.0) and near(high, 9.0)
    assert sums.medians({"a": [visit(x=1.0), visit(x=3.0, quarry=2.0)]}, "seconds")["a"] == {"x": 2.0, "quarry": 2.0}
    # Who is no peer is no measure of others.
    assert near(sums.means(sums.medians({"a": [visit(quarry=2.0, quarry2=0.5, x=1.0)]}, "seconds"))["quarry"][0], 2.0)
    table = sums.runs_table(visits, ["quarry", "x", "y"], "seconds")
    assert "| a | 2.00 ! | 2.000 ±0% | **1.000** ±0% | 4.000 ±0% |" in table and "| c | – | – | **5.000** ±0% | – |" in table, table
    assert "| time, all (3) | **1.000** (2) | 1.587 | 2.000 (2) |" in sums.means_table(visits, ["quarry", "x", "y"], set())


def test_against():
    def visit(speed, **figures):
        return {name: dict.fromkeys(sums.MEASURES, value * speed) for name, value in figures.items()}

    # The machine is ten times slower in one round, and one round of x has bad luck.
    visits = {"a": [visit(1, quarry=2.0, x=1.0), visit(10, quarry=2.0, x=1.0), visit(1, quarry=2.0, x=9.0, y=4.0)],
              "b": [visit(1, quarry=1.0, x=8.0), visit(1, x=8.0), visit(3, quarry=1.0, x=8.0)]}
    mean = sums.against(visits, "seconds")
    assert near(mean["x"], 0.5) and near(mean["y"], 0.5) and "quarry" not in mean, mean
    low, high = sums.against_intervals(visits, "seconds")["x"]
    assert near(low, (2 / 9 / 8) ** 0.5) and near(high, 0.5), (low, high)
    table = sums.against_table(visits, ["quarry", "x", "y"])
    assert table.startswith("| quarry ÷ this peer | x | y |") and "| time | 0.500 (0.167–0.500) | 0.500 (" in table, table
    assert sums.against_table({"a": [visit(1, x=1.0)]}, ["x"]) == ""


def test_luck():
    def visit(speed, **figures):
        return {name: dict.fromkeys(sums.MEASURES, value * speed) for name, value in figures.items()}

    # Each peer has luck once, in a round in which the others do not take it for the best; the machine is slow in one round.
    rounds = [visit(1, quarry=1.0, x=0.5, y=1.0, z=1.0), visit(7, quarry=1.0, x=1.0, y=0.5, z=1.0), visit(1, quarry=1.0, x=1.0, y=1.0, z=0.5)]
    assert near(sums.means_without_luck({"a": rounds}, "seconds")["quarry"], 1.0)
    # Who is really best is so in all rounds, and is 1; nobody names a peer where there is one round, or no peer.
    clear = [visit(speed, quarry=3.0, quarry2=0.1, x=2.0, y=4.0) for speed in (1, 5, 2)]
    fair = sums.means_without_luck({"a": clear, "b": [visit(1, quarry=9.0, x=1.0)], "c": [visit(1, quarry=1.0)] * 3}, "seconds")
    assert near(fair["quarry"], 1.5) and near(fair["x"], 1.0) and near(fair["y"], 2.0), fair
    assert "| time, all, the other rounds naming the best peer | 1.500 | 1.000 |" in sums.means_table({"a": clear}, ["quarry", "x"], set())
    assert "naming" not in sums.means_table({"a": clear[:1]}, ["quarry", "x"], set())
    # Of equal mallocs the best of nine is lucky, and one named by the others is not.
    draw = random.Random(1)
    noisy = {str(run): [visit(1, quarry=draw.gauss(1, 0.1), **{f"p{n}": draw.gauss(1, 0.1) for n in range(9)}) for _ in range(5)] for run in range(40)}
    assert sums.means(sums.medians(noisy, "seconds"))["quarry"][0] > 1.05
    assert abs(sums.means_without_luck(noisy, "seconds")["quarry"] - 1) < 0.03


def test_ahead():
    assert near(sums.chance([1.0] * 8), 1 / 256) and near(sums.chance([1.0, -1.0]), 0.75) and sums.chance([-1.0] * 8) == 1
    assert sums.chance([1.0] * 20) < 0.01 and sums.chance([1.0, -1.0] * 10) > 0.2

    def visits(count):  # x is always 1 % ahead, y mostly 50 %, z never
        return {"a": [{name: dict.fromkeys(sums.MEASURES, value) for name, value in
                       (("quarry", 1.01 + i), ("x", 1.0 + i * 0.99), ("y", (1.01 + i) * (0.5 if i else 4)), ("z", 9.0 + i))} for i in range(count)]}

    found = sums.ahead(visits(8)["a"], "seconds")
    assert [name for name, _ in found] == ["x"] and 1.009 < found[0][1] < 1.011, found
    assert sums.ahead(visits(5)["a"], "seconds") is None and sums.ahead_table(visits(5)) == ""
    both = {"b": [{"quarry": dict.fromkeys(sums.MEASURES, 1.0), "x": dict.fromkeys(sums.MEASURES, 1.0)}] * 8, **visits(8)}
    table = sums.ahead_table(both)
    assert "| b | nobody | nobody |" in table and "| a | x 1.010 | x 1.010 |" in table and "| nobody at | 1 of 2 | 1 of 2 |" in table, table
    assert table.endswith("in both: 1 of 2")


def test_apart():
    def visits(figure):
        return {"a": [{"quarry": dict.fromkeys(sums.MEASURES, figure + i / 100), "x": dict.fromkeys(sums.MEASURES, 1.0)} for i in range(3)]}

    apart = {"one": visits(1.0), "two": visits(1.01), "three": visits(2.0)}
    table = sums.apart_table({"one": apart["one"]}, ["quarry", "x", "y"])
    assert "| time, one: 3 rounds | 1.010 (1.000–1.020) | 1.000 (1.000–1.000) | – |" in table, table
    assert f"| time, one, {sums.NAMED} | 1.010 (1.000–1.020) | 1.000 (1.000–1.000) | – |" in table, table
    assert [line.split(":")[0] for line in sums.disagreements({name: apart[name] for name in ("one", "two")})] == ["the files agree", f"the files agree, {sums.NAMED}"]
    lines = sums.disagreements(apart)
    assert len(lines) == 4 and lines[0].startswith("the files differ: quarry: time: 1.000–1.020, ") and not any("differ: x" in line for line in lines), lines
    assert lines[2].startswith(f"the files differ: quarry: time, {sums.NAMED}: 1.000–1.020, "), lines
    test_apart_by_noise()


def test_apart_by_noise():
    """The same ten mallocs on a quiet machine and on a noisy one: the best of nine has more luck on the noisy one, and the named one has none."""
    def visits(noise, draw):
        return {str(run): [{name: dict.fromkeys(sums.MEASURES, math.exp(draw.gauss(0, noise))) for name in ("quarry", *(f"p{n}" for n in range(9)))}
                           for _ in range(5)] for run in range(30)}

    draw = random.Random(1)
    quiet_and_noisy = {"quiet": visits(0.01, draw), "noisy": visits(0.15, draw)}
    lines = sums.disagreements(quiet_and_noisy)
    assert any(line.startswith("the files differ: quarry: time: ") for line in lines) and lines[-1].startswith(f"the files agree, {sums.NAMED}: "), lines


def test_runs(folder, Session, measure):
    programs = folder / "out/bench"
    programs.mkdir(parents=True)

    def run(name, script, **more):
        path = programs / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return Run(name, (f"{{bin}}/{name}", "{n}"), **more)

    (folder / "word").write_text("hello\n")
    good = [run("plain", "echo $1 > file; pwd"), run("rate", 'echo "$1 iterations"', figure="([0-9]+) iter", work=10),
            run("figure", 'echo "time: 0.25s"', figure="time: ([0-9.]+)"), run("input", "read a; echo $a", stdin="word", says="hello", threads=False),
            run("same", "echo $X", same_output=True), run("more", 'echo "p: 2 p: 0.5 sum: $$"; echo check: 7', also=(("p", "p: ([0-9.]+)"),), result="check: ([0-9]+)"), run("there", "cat word; echo $Y", folder=str(folder), env=(("Y", "variable"),), says="hello\nvariable")]
    bad = {"crash": (run("crash", "kill -9 $$"), "status"), "exit": (run("exit", "exit 3"), "status 3"), "slow": (run("slow", "sleep 30"), "not done"),
           "mute": (run("mute", "echo no", figure="([0-9]+) iter"), "printed"), "zero": (run("zero", "echo 0 iter", figure="([0-9]+) iter"), "printed"),
           "wrong": (run("wrong", "echo no", says="yes"), "printed"), "no more": (run("no more", "echo p: x", also=(("p", "p: ([0-9.]+)"),)), "printed"),
           "no result": (run("no result", "echo no", result="check: ([0-9]+)"), "printed"), "other result": (run("other result", "echo check: $$", result="check: ([0-9]+)"), "something else"),
           "differs": (run("differs", "echo $$", same_output=True), "something else")}
    place = Place(str(folder), 4, 1)
    launcher = Launcher(place, 1)
    runs = good + [entry[0] for entry in bad.values()]
    about = {"threads": 4, "seconds": 1, "load_before": 0.5, "schema": "quarry-suite/1", "mallocs": {"quarry": {"sha256": "1"}, "sys": {}}}
    session = Session(about, [r.name for r in runs], str(folder / "result.json"))
    mallocs = {"sys": Malloc(None), "quarry": Malloc(None)}
    measure(session, runs, mallocs, launcher, 2, 0, 1, lambda text: None)
    for r in good:
        assert [len(samples) for samples in session.visits[r.name]] == [2, 2], (r.name, session.faults)
    for name, (_, why) in bad.items():
        found = [text for (r, _), text in session.faults.items() if r == name]
        assert found and all(why in text for text in found), (name, session.faults)
    cost = session.visits["plain"][0]["sys"]
    assert 0 < cost["elapsed"] < 1 and 100 < cost["peak_kib"] < 100_000 and cost["faults"] > 10 and cost["seconds"] == cost["elapsed"], cost
    assert session.visits["rate"][0]["sys"]["seconds"] == 2.5 and session.visits["figure"][0]["sys"]["seconds"] == 0.25
    assert session.visits["more"][0]["sys"]["p"] == 2
    test_add(folder, session, about, Session)
    variables = Malloc(None, {"X": "else"})
    test_pin(folder, place)
    same = good[[run.name for run in good].index("same")]
    assert launcher.measure(same, variables)["output"] != launcher.measure(same, Malloc(None))["output"]


def test_pin(folder, place):
    """Each thread of a program has one processor, and they share what there is evenly; without --pin a thread has all of them."""
    program = """import os, threading
found, barrier = [], threading.Barrier(6)
def work():
    found.append(tuple(sorted(os.sched_getaffinity(0))))
    barrier.wait()
threads = [threading.Thread(target=work) for _ in range(6)]
for t in threads: t.start()
for t in threads: t.join()
print(sorted(found))"""
    (folder / "threads.py").write_text(program)
    run = Run("threads", (sys.executable, str(folder / "threads.py")), same_output=True)
    allowed = sorted(os.sched_getaffinity(0))

    def printed(processors):
        return hashlib.sha256(f"{sorted(processors)}\n".encode()).hexdigest()[:16]

    one_each = printed((allowed[i % len(allowed)],) for i in range(6))
    assert Launcher(place, 20, pin_library()).measure(run, Malloc(None))["output"] == one_each
    assert Launcher(place, 20).measure(run, Malloc(None))["output"] == printed([tuple(allowed)] * 6)


def test_add(folder, session, about, Session):
    again = Session(about, ["plain"], None)
    again.add(folder / "result.json")
    assert again.visits["plain"] == session.visits["plain"] and not again.faults
    again.output = str(folder / "result.json.xz")
    again.save()
    packed = Session(about, ["plain"], None)
    packed.add(again.output)
    assert packed.visits["plain"] == session.visits["plain"]
    test_built_again(folder, about, Session)
    other = Session({**about, "mallocs": {"quarry": {"sha256": "2"}}}, ["plain"], None)
    others = [other, *(Session({**about, **change}, ["plain"], None) for change in ({"threads": 2}, {"pin": True}))]
    for wrong, change in (*((made, {}) for made in others), (again, {"schema": "x"})):
        (folder / "other.json").write_text(json.dumps({**json.loads((folder / "result.json").read_text()), **change}))
        try:
            wrong.add(folder / "other.json")
            raise AssertionError("samples of something else were added")
        except Fault:
            pass


def test_built_again(folder, about, Session):
    """Another file of the same version is the same peer; of ours the file must be the same."""
    for name, version, good in (("x", "1", True), ("x", "2", False), ("quarry", "1", False)):
        def session(sha, version):
            return Session({**about, "mallocs": {name: {"sha256": sha, "version": version}}}, ["plain"], str(folder / "again.json"))
        session("1", "1").save()
        try:
            session("2", version).add(folder / "again.json")
            assert good, (name, version)
        except Fault:
            assert not good, (name, version)


def test_targets():
    def visit(**figures):
        return {name: {"seconds": value, "peak_kib": value} for name, value in figures.items()}

    def said(limit, figure, visits, **more):
        return targets.verdict(targets.Target("x", limit, figure, **more), visits)

    visits = {"a": [visit(quarry=v, sys=4.0, x=1.0) for v in (0.9, 1.1, 1.1)], "b": [visit(quarry=8.0, sys=2.0)] * 3, "c": [visit(sys=1.0)] * 3}
    figures, text = said(1.0, targets.best("a", "seconds"), visits)
    assert near(figures["quarry"], 1.1) and near(figures["sys"], 4.0) and text == "within noise (0.90–1.10)", (figures, text)
    assert said(1.1, targets.best("a", "seconds"), visits)[1] == "met" and said(0.8, targets.best("a", "seconds"), visits)[1] == "missed"
    assert said(1.0, targets.best("a", "seconds"), {"a": visits["a"][:2]})[1] == "met"  # the median of 0.9 and 1.1
    assert said(0.9, targets.best("a", "seconds"), {"a": visits["a"][:2]})[1] == "missed"  # too few rounds for noise
    for run in ("c", "not there"):
        assert said(1.0, targets.best(run, "seconds"), visits)[1] == "not measured"
    assert near(said(1, targets.quotient("b", "a", "seconds"), visits)[0]["quarry"], 8 / 1.1)
    assert said(7, targets.quotient("b", "a", "seconds"), visits, at_least=True)[1] == "met" and said(9, targets.quotient("b", "a", "seconds"), visits, at_least=True)[1] == "missed"
    assert near(said(1, targets.to_system(("a", "b", "c"), "peak_kib"), visits)[0]["quarry"], (1.1 / 4 * 4) ** 0.5)
    assert said(6, targets.above_system("b", "peak_kib"), visits) == ({"quarry": 6.0, "sys": 0.0}, "met")
    cfrac = {"cfrac": [visit(quarry=2.0, sys=4.0, x=1.0)] * 3, "espresso": [visit(quarry=1.0, sys=2.0, x=8.0)] * 3, **visits}
    assert near(targets.suite_mean("seconds")(cfrac)["quarry"], 1.0) and near(targets.suite_worst("seconds")(cfrac)["quarry"], 2.0)
    assert near(targets.suite_against("seconds")(cfrac)["quarry"], 0.5)
    rows = targets.table(cfrac, ["quarry", "sys", "x"]).splitlines()
    assert len(rows) == 2 + len(targets.TARGETS) and all(row.count("|") == rows[0].count("|") for row in rows), rows
    # What a target looks for is what some run has.
    known = {run.name for run in (*RUNS, *targets.TARGET_RUNS)} | set(targets.SMALL)
    for target in targets.TARGETS:
        asked = targets.Asked({})
        target.figure(asked)
        assert asked.runs <= known, (target.text, asked.runs - known)


def test_names(folder):
    named = [*RUNS, *targets.TARGET_RUNS]
    assert len({run.name for run in named}) == len(named)
    place = Place(str(folder), 4, 1)
    assert place.words(("sh", "{n}", "{n2}", "{seconds}")) [1:] == ["4", "8", "1"]
    try:
        place.check(Run("x", ("{bin}/not-there",)))
        raise AssertionError("a program that is not there was found")
    except Missing:
        pass


def test_versions(said_versions):
    mallocs = {"quarry": Malloc("/q.so"), "x": Malloc("/x.so")}
    assert said_versions(["x=1.2=a"], mallocs) == {"x": "1.2=a"} and said_versions([], mallocs) == {}
    for wrong in ("y=1", "x=", "x", "quarry=1"):
        try:
            said_versions([wrong], mallocs)
            raise AssertionError(f"--version {wrong} was taken")
        except Fault:
            pass


def test_real(folder):
    table = Table(folder)
    compilers(table)
    readers_of_sources(table)
    debugged = folder / "words-debug"
    assert not debugged.exists() or str(folder).encode() not in debugged.read_bytes(), "what gdb prints depends on the folder"


def main(Session, measure, said_versions):
    test_sums()
    test_against()
    test_luck()
    test_ahead()
    test_apart()
    test_targets()
    test_versions(said_versions)
    if not gnu_time():
        print("SKIP: GNU time (package `time`) is not installed")
        return 77
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        test_names(folder)
        test_runs(folder, Session, measure)
        test_real(folder)
    print("self-test: the sums are right, and faults were found out")
    return 0
