# SPDX-License-Identifier: MIT
"""What the heap is to reach, as one table: each target with our figure, by how much it is missed, and what each peer has there.

Most targets have a program of our own (bench/scenarios, bench/quick); the suite's runs and some of the real programs count as well. A target
is a limit for one figure, which is made of the samples of one run or several: so it can be worked out again for any of the rounds, and what is
beyond the limit in the medians but not in all that resampling gives is said to be within noise.
"""
import dataclasses
import json
import pathlib
import random
from collections.abc import Callable

import sums
from runs import RUNS, Run

EXPECTED = pathlib.Path(__file__).resolve().parents[1] / "fastpath" / "expected.json"
MIB, KIB = 1 << 20, 1 << 10


def load(name, program, *options, **more):
    """One of our own programs, which print the same `check` whatever the malloc."""
    return Run(name, (f"{{loads}}/{program}", *options), result=r'"check": ?"(\w+)"', **more)


def values(**named):
    """Of each measure what the program calls it; if it says so several times (once for each kind of call), the largest counts."""
    return tuple((measure, rf'"{name}": ?([0-9.]+)') for measure, name in named.items())


def latency(name, *options, **more):
    return load(name, "latency", "--largest", "32k", "--count", "4000000", *options, also=values(p9999="p9999_ns", longest="max_ns"), **more)


def random_mt(name, *options):
    return load(name, "random-mt", "--touch", "first", "--sizes", "programs", *options)


def growth(name, *options):
    return load(name, "realloc-growth", "--mode", "steps", "--step", "256k", "--size", "32M", *options, threads=False)


# The figures of the targets that are of our own programs.
TARGET_RUNS = (
    load("producer-consumer", "quick/producer_consumer", "--threads", "{n}", "--ops", "16000000"),
    load("handover", "quick/handover", "--threads", "{n}", "--ops", "24000000"),
    load("churn-20-threads", "quick/mt_churn", "--threads", "20", "--ops", "20000000"),
    random_mt("exchange-20-threads", "--threads", "20", "--exchange", "10", "--count", "40000000"),
    random_mt("live-by-2-threads", "--threads", "2", "--live", "200000", "--count", "6000000"),
    random_mt("live-by-40-threads", "--threads", "40", "--live", "10000", "--count", "6000000"),
    load("idle", "idle-return", "--memory", "1G", "--idle", "5000", threads=False, also=values(most="most_freed_idle_bytes", all="all_freed_idle_bytes")),
    load("base", "startup", "--count", "20", threads=False, also=values(started="started_peak_kib")),
    growth("vector"),
    growth("vector-copied", "--by", "copy"),
    load("large", "quick/large", threads=False),
    latency("latency"),
    latency("latency-threads", "--threads", "{n}"),
)
# Of the real programs: interpreters and a compiler that have one thread.
SMALL = ("python", "perl", "gawk", "lua5.4", "tcl", "compiler")


# ---- figures: {malloc: number} of samples, or {} where there are none -------------------------------------------------------

def best(run, measure):
    """÷ the best peer's."""
    return lambda visits: sums.ratios(sums.medians(of(visits, [run]), measure)).get(run, {})


def amount(run, measure, unit):
    return lambda visits: {malloc: value / unit for malloc, value in sums.medians(of(visits, [run]), measure).get(run, {}).items()}


def above_system(run, measure):
    def figure(visits):
        row = sums.medians(of(visits, [run]), measure).get(run, {})
        return {malloc: value - row["sys"] for malloc, value in row.items()} if "sys" in row else {}
    return figure


def quotient(above, below, measure):
    """A malloc's figure in one run ÷ its own in another."""
    def figure(visits):
        table = sums.medians(of(visits, [above, below]), measure)
        rows = [table.get(run, {}) for run in (above, below)]
        return {malloc: value / rows[1][malloc] for malloc, value in rows[0].items() if malloc in rows[1]}
    return figure


def to_system(runs, measure):
    """The geometric mean of what a malloc is of the system's."""
    def figure(visits):
        gathered = {}
        for row in sums.medians(of(visits, runs), measure).values():
            for malloc, value in row.items():
                if "sys" in row:
                    gathered.setdefault(malloc, []).append(value / row["sys"])
        return {malloc: sums.geometric_mean(ratios) for malloc, ratios in gathered.items()}
    return figure


def suite(visits):
    return of(visits, [run.name for run in RUNS])


def suite_mean(measure):
    return lambda visits: {malloc: mean for malloc, (mean, _) in sums.means(sums.medians(suite(visits), measure)).items()}


def suite_worst(measure):
    def figure(visits):
        gathered = {}
        for row in sums.ratios(sums.medians(suite(visits), measure)).values():
            for malloc, ratio in row.items():
                gathered[malloc] = max(ratio, gathered.get(malloc, 0))
        return gathered
    return figure


def suite_against(measure):
    """We ÷ each peer; of ours stands what is closest to it, or beyond."""
    def figure(visits):
        found = sums.against(suite(visits), measure)
        return {**found, sums.OURS: max(found.values())} if found else {}
    return figure


def instructions(row, which):
    """Counted, not measured: of ours alone, and the same each time."""
    return lambda _visits: {sums.OURS: json.loads(EXPECTED.read_text())["instructions"][row][which]}


def of(visits, runs):
    return {run: visits[run] for run in runs if visits.get(run)}


# ---- targets ----------------------------------------------------------------------------------------------------------------

@dataclasses.dataclass(frozen=True)
class Target:
    """`figure` is to be no more than `limit`, or no less."""
    text: str
    limit: float
    figure: Callable
    unit: str = ""
    digits: int = 2
    at_least: bool = False

    def is_met(self, value):
        return value >= self.limit if self.at_least else value <= self.limit


def first(text, run, *measures):
    """At or ahead of the best peer."""
    names = {"seconds": "time", "peak_kib": "peak RSS", "p9999": "99.99 % of the calls", "longest": "the longest call"}
    return tuple(Target(f"{text}: {names[m]}", 1.0, best(run, m), "÷ best peer") for m in measures)


TARGETS = (
    Target("the suite, mean of all runs: time", 1.03, suite_mean("seconds"), "÷ best peer of each run", 3),
    Target("the suite, mean of all runs: peak RSS", 1.08, suite_mean("peak_kib"), "÷ best peer of each run", 3),
    Target("the suite, ahead of every single peer: time", 1.0, suite_against("seconds"), "quarry ÷ this peer", 3),
    Target("the suite, ahead of every single peer: peak RSS", 1.0, suite_against("peak_kib"), "quarry ÷ this peer", 3),
    Target("the suite, the worst run: time", 1.15, suite_worst("seconds"), "÷ best peer"),
    Target("the suite, the worst run: peak RSS", 1.30, suite_worst("peak_kib"), "÷ best peer"),
    Target("malloc of a small size", 12, instructions("malloc 32", 0), "instructions", 0),
    Target("free of one's own small block", 16, instructions("free 32", 0), "instructions", 0),
    Target("malloc up to 64 KiB", 25, instructions("malloc 40000", 0), "instructions", 0),
    *first("producer and consumer", "producer-consumer", "seconds", "peak_kib"),
    *first("live sets handed over", "handover", "seconds", "peak_kib"),
    *first("20 threads, some blocks passed on", "churn-20-threads", "seconds", "peak_kib"),
    *first("20 threads, a tenth exchanged", "exchange-20-threads", "seconds", "peak_kib"),
    Target("the same live blocks by 40 threads: peak RSS", 1.25, quotient("live-by-40-threads", "live-by-2-threads", "peak_kib"), "÷ by 2 threads"),
    Target("1 GiB of 16 to 4096 bytes, 90 % freed, idle", 400, amount("idle", "most", MIB), "MiB", 0),
    Target("then all freed, idle", 32, amount("idle", "all", MIB), "MiB", 0),
    Target("a program that does nothing: peak RSS", 100, above_system("base", "started"), "KiB above the system's", 0),
    Target("five interpreters and a compiler: peak RSS", 1.0, to_system(SMALL, "peak_kib"), "÷ the system's", 3),
    Target("a vector that grows to 32 MiB", 10, quotient("vector-copied", "vector", "seconds"), "time if copied ÷ by realloc", 1, at_least=True),
    Target("alternating large sizes: time", 1.15, best("large", "seconds"), "÷ best peer"),
    Target("alternating large sizes: peak RSS", 1.30, best("large", "peak_kib"), "÷ best peer"),
    *first("latency, one thread", "latency", "p9999", "longest"),
    *first("latency, all processors", "latency-threads", "p9999", "longest"),
)


def resampled(target, visits, seed=1, times=300):
    """Our figure, if the rounds had come in other numbers: its 95 %; None with too few rounds."""
    if min((len(rounds) for rounds in visits.values()), default=0) < 3:
        return None
    draw, drawn = random.Random(seed), []
    for _ in range(times):
        again = {run: draw.choices(rounds, k=len(rounds)) for run, rounds in visits.items()}
        drawn.append(target.figure(again).get(sums.OURS))
    return sums.ends([value for value in drawn if value is not None])


class Asked(dict):
    """Which runs a figure is made of: those it asks for."""

    def __init__(self, visits):
        super().__init__(visits)
        self.runs = set()

    def get(self, run, default=None):
        self.runs.add(run)
        return super().get(run, default)


def verdict(target, visits):
    """(figures, what is said of ours)."""
    asked = Asked(visits)
    figures = target.figure(asked)
    if sums.OURS not in figures:
        return figures, "not measured"
    if target.is_met(figures[sums.OURS]):
        return figures, "met"
    # Only what the figure is made of, and where we have a sample: else nothing could be worked out of what is drawn.
    used = {run: [samples for samples in visits[run] if sums.OURS in samples] for run in visits if run in asked.runs}
    between = resampled(target, used) if used else None
    if between and any(map(target.is_met, between)):
        return figures, f"within noise ({between[0]:.{target.digits}f}–{between[1]:.{target.digits}f})"
    return figures, "missed"


def table(visits, mallocs):
    rows = []
    for target in TARGETS:
        figures, said = verdict(target, visits)
        sign = "≥" if target.at_least else "≤"
        cells = [f"{figures[m]:.{target.digits}f}" if m in figures else "–" for m in mallocs if m != sums.OURS]
        ours = f"**{figures[sums.OURS]:.{target.digits}f}**" if sums.OURS in figures else "–"
        rows.append([target.text, f"{target.unit} {sign} {target.limit:g}", ours, said, *cells])
    return sums.markdown(["target", "limit", sums.OURS, "", *[m for m in mallocs if m != sums.OURS]], rows)
