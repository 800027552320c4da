#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run the field's usual benchmark suite (mimalloc-bench) under each malloc at hand, in turns, and compare with the best of each run.

  run.py DIR [-n ROUNDS] [--minutes M] [--only NAME,...] [--with NAME=PATH[,VARIABLE=VALUE]...]... [-o FILE] [--add FILE]... [RUN...]
  run.py --real [...]  the same with real programs that are installed, none of them of the suite: no DIR is needed
  run.py --targets [DIR]  what the heap is to reach, as one table: our own programs, six of the real ones, and the suite's if DIR is
                       given or --add has them
  run.py --list DIR    the runs, and what is missing for them
  run.py --self-test   prove that the sums are right and that faults are found out

  DIR               the suite's folder, built as its own instructions say: out/bench/, bench/, extern/
  RUN               these runs only; patterns as of the shell
  -n ROUNDS         so many runs of each program under each malloc (default 5; 0: only show what --add has)
  --minutes M       begin nothing more after so long; what was left out comes first with --add next time
  --only NAME,...   these mallocs only: sys, quarry, those of the distribution, of `make peers`, of --with
  --with NAME=PATH  one more library to preload, with variables of its environment; a NAME that begins with quarry is no peer
  --version NAME=V  what a library of --with is: samples of the same version add up, wherever it was built
  --peers DIR       where `make peers` put its libraries (default build/peers)
  --threads N       what the suite calls N (default: processors)
  --pin             each thread stays on one processor, in turns: where the kernel puts threads is left out of the comparison
  --seconds S       how long larson and xmalloc-test run (default 3; the suite's own scripts say 5)
  --limit S         who takes longer than this has failed (default 120)
  --seed N          of the order of runs (default 1)
  -o FILE           every sample as JSON, written anew after each run; packed if FILE ends in .xz
  --add FILE        samples of an earlier -o, of the same libraries, count as well; with -n 0 and several of them there
                    is one more table, of each file alone: do they agree?

A round takes all runs in random order, and each run under all mallocs in random order, one right after the other. Who fails at a run
is shown without a figure there. docs/performance.md has the results, docs/benchmarks.md how to read such tables.
"""
import argparse
import collections
import fnmatch
import hashlib
import json
import lzma
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import selftest  # noqa: E402
import sums  # noqa: E402
from launch import Launcher, Malloc, pin_library  # noqa: E402
from measure import BUILD, Fault, libraries, must_serve, progress  # noqa: E402
from real import real_runs  # noqa: E402
import targets  # noqa: E402
from runs import RUNS, Missing, Place  # noqa: E402

SCHEMA = "quarry-suite/1"


def mallocs_at_hand(extra, peers, only):
    """{name: Malloc}, ours first."""
    found = {name: Malloc(path) for name, path in libraries([]).items()}
    listed = pathlib.Path(peers) / "peers.json"
    if listed.exists():
        for peer in json.loads(listed.read_text())["peers"]:
            found[peer["name"]] = Malloc(str((listed.parent / peer["path"]).resolve()))
    for entry in extra:
        name, _, rest = entry.partition("=")
        path, *settings = rest.split(",")
        if not os.path.exists(path):
            sys.exit(f"run.py: no library {path}")
        found[name] = Malloc(os.path.realpath(path), dict(setting.split("=", 1) for setting in settings))
    if only:
        names = only.split(",")
        if missing := [n for n in names if n not in found]:
            sys.exit(f"run.py: not found: {', '.join(missing)}; found: {', '.join(found)}")
        found = {n: found[n] for n in names}
    return dict(sorted(found.items(), key=lambda entry: not entry[0].startswith(sums.OURS)))


def said_versions(entries, mallocs):
    """{name: version} of --version NAME=VERSION. Ours have none: of a version there are many builds, and what differs is what is measured."""
    versions = {}
    for name, _, version in (entry.partition("=") for entry in entries):
        if name not in mallocs or not sums.is_peer(name) or not version:
            raise Fault(f"--version {name}={version}: not NAME=VERSION of a peer that is here: {', '.join(filter(sums.is_peer, mallocs))}")
        versions[name] = version
    return versions


def describe(mallocs, peers, said):
    """{name: what it is}: file, hash, and a version where someone knows it."""
    listed = pathlib.Path(peers) / "peers.json"
    known = {p["name"]: p["version"] for p in json.loads(listed.read_text())["peers"]} if listed.exists() else {}
    known.update(said_versions(said, mallocs))
    described = {}
    for name, malloc in mallocs.items():
        if not malloc.path:
            described[name] = {"version": " ".join(os.confstr("CS_GNU_LIBC_VERSION").split())}
            continue
        text = {"file": pathlib.Path(malloc.path).name, "sha256": hashlib.sha256(pathlib.Path(malloc.path).read_bytes()).hexdigest()}
        version = known.get(name) or packaged(malloc.path)
        described[name] = {**text, **({"version": version} if version else {}), **({"variables": malloc.variables} if malloc.variables else {})}
    return described


def packaged(path):
    """The version of the distribution's package that the file is from, if any."""
    try:
        owner = subprocess.run(["dpkg", "-S", path], capture_output=True, text=True).stdout.split(": ")[0]
        return owner and subprocess.run(["dpkg-query", "-W", "-f", "${Version}", owner], capture_output=True, text=True).stdout
    except FileNotFoundError:
        return None


def load(path):
    packed = pathlib.Path(path).read_bytes()
    try:
        data = json.loads(lzma.decompress(packed) if str(path).endswith(".xz") else packed)
    except (lzma.LZMAError, ValueError) as fault:
        raise Fault(f"{path}: cannot be read: {fault}") from fault
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise Fault(f"{path}: not a result of this command")
    return data


def is_same(name, mine, other):
    """The same file, or the same version of a peer built again."""
    if mine.get("sha256") == other.get("sha256"):
        return True
    return sums.is_peer(name) and mine.get("version") == other.get("version") is not None


class Session:
    """The samples so far, and what else is known of them."""

    def __init__(self, about, names, output):
        self.about, self.output = about, output
        self.visits = {name: [] for name in names}
        self.faults = {}
        self.printed = {}

    def add(self, path):
        """Takes over the samples of another session with the same libraries."""
        other = load(path)
        for name, library in other["mallocs"].items():
            mine = self.about["mallocs"].get(name)
            if mine and not is_same(name, mine, library):
                raise Fault(f"{path}: {name} is not the same library")
        for key in ("threads", "seconds"):
            if other[key] != self.about[key]:
                raise Fault(f"{path}: made with --{key} {other[key]}")
        if other.get("pin", False) != self.about.get("pin", False):
            raise Fault(f"{path}: made {'with' if other.get('pin') else 'without'} --pin")
        self.about["load_before"] = max(self.about["load_before"], other["load_before"])
        for run, rounds in other["runs"].items():
            if run in self.visits:
                known = [{m: s for m, s in samples.items() if m in self.about["mallocs"]} for samples in rounds]
                self.visits[run] += [samples for samples in known if samples]
                for sample in (sample for samples in known for sample in samples.values()):
                    self.printed.setdefault(run, sample.get("output"))
        for run, malloc, text in other["faults"]:
            if run in self.visits and malloc in self.about["mallocs"]:
                self.faults[run, malloc] = text

    def save(self):
        if self.output:
            data = {**self.about, "faults": [[*key, text] for key, text in self.faults.items()], "runs": self.visits}
            new = pathlib.Path(f"{self.output}.new")
            text = json.dumps(data, indent=1) + "\n"
            new.write_bytes(lzma.compress(text.encode()) if str(self.output).endswith(".xz") else text.encode())
            new.replace(self.output)

    def visit(self, run, mallocs, launcher, shuffle, tell):
        """The run under each malloc once; a fault ends that malloc's part in this run."""
        samples, order = {}, list(mallocs)
        shuffle.shuffle(order)
        for name in order:
            if (run.name, name) in self.faults:
                continue
            tell(f"{run.name} {name}")
            try:
                samples[name] = launcher.measure(run, mallocs[name])
            except (Fault, subprocess.SubprocessError) as fault:
                self.faults[run.name, name] = str(fault)
        self.compare_output(run, samples)
        if samples:
            self.visits[run.name].append(samples)
        self.save()

    def compare_output(self, run, samples):
        """Who printed something else than most, the first time, or than before is out."""
        for output, _ in collections.Counter(sample.get("output") for sample in samples.values()).most_common(1):
            want = self.printed.setdefault(run.name, output)
            for name in [name for name, sample in samples.items() if sample.get("output") != want]:
                self.faults[run.name, name] = f"{run.name}: printed something else than under others"
                del samples[name]


def measure(session, runs, mallocs, launcher, rounds, minutes, seed, tell):
    """Rounds, until there are enough or the time is over. Runs with the fewest visits so far come first."""
    shuffle, end = random.Random(seed), time.monotonic() + 60 * minutes if minutes else None
    for number in range(rounds):
        order = list(runs)
        shuffle.shuffle(order)
        order.sort(key=lambda run: len(session.visits[run.name]))
        for done, run in enumerate(order):
            if end and time.monotonic() > end:
                return
            session.visit(run, mallocs, launcher, shuffle, lambda text: tell(f"round {number + 1} of {rounds}, {done + 1} of {len(order)}: {text}"))


def show(session, mallocs, with_targets):
    visits = {run: rounds for run, rounds in session.visits.items() if rounds}
    if not visits:
        return print("no samples")
    about, counts = session.about, sorted({len(rounds) for rounds in visits.values()})
    print(f"{'–'.join(map(str, dict.fromkeys([counts[0], counts[-1]])))} rounds, medians ± half the distance of the quartiles; N = {about['threads']}; "
          f"load average {about['load_before']:.1f} before; {len(about['processors'])} processors{', threads pinned' if about.get('pin') else ''}\n")
    for name, what in about["mallocs"].items():
        print(f"- {name}: {what.get('version') or what['file']}")
    written = {run.name for run in RUNS if not run.program}
    if with_targets:
        return print("\n" + targets.table(visits, mallocs) + "\n\n" + tables_of_runs(session, visits, mallocs))
    print("\n" + sums.means_table(visits, mallocs, set(visits) - written))
    single = sums.against_table(visits, mallocs)
    if single:
        print("\n" + single)
    ahead = sums.ahead_table(visits)
    if ahead:
        print("\n" + ahead)
    print("\n" + tables_of_runs(session, visits, mallocs))


def tables_of_runs(session, visits, mallocs):
    lines = ["\n\n".join(sums.runs_table(visits, mallocs, name) for name in sums.MEASURES)]
    for name in ("seconds", "peak_kib"):
        for run, ratio, best in sums.beyond(visits, name) if sums.OURS in mallocs else []:
            lines.append(f"{sums.MEASURES[name][0].split(',')[0]}: {run} {ratio:.2f} times {best}")
    return "\n".join([*lines, *(f"FAILED under {malloc}: {text}" for (_, malloc), text in session.faults.items())])


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS)
    for option in ("--list", "--real", "--targets", "--pin", "--self-test"):
        parser.add_argument(option, action="store_true", help=argparse.SUPPRESS)
    for option, default in (("-n", 5), ("--threads", len(os.sched_getaffinity(0))), ("--seed", 1)):
        parser.add_argument(option, type=int, default=default, help=argparse.SUPPRESS)
    for option, default in (("--minutes", 0), ("--seconds", 3), ("--limit", 120)):
        parser.add_argument(option, type=float, default=default, help=argparse.SUPPRESS)
    for option, default in (("--only", None), ("-o", None), ("--peers", BUILD / "peers")):
        parser.add_argument(option, default=default, help=argparse.SUPPRESS)
    parser.add_argument("--with", dest="extra", action="append", default=[], help=argparse.SUPPRESS)
    for option in ("--add", "--version"):
        parser.add_argument(option, action="append", default=[], help=argparse.SUPPRESS)
    parser.add_argument("suite", nargs="?", help=argparse.SUPPRESS)
    parser.add_argument("runs", nargs="*", help=argparse.SUPPRESS)
    args = parser.parse_intermixed_args()  # runs may stand behind options
    if args.n < 0 or (not args.n and not args.add) or args.threads < 1 or min(args.minutes, args.seconds, args.limit) < 0:
        sys.exit("run.py: numbers must be positive, and without rounds (-n 0) something must be added (--add)")
    if args.suite and (args.real or args.targets and not os.path.isdir(args.suite)):  # all words are runs
        args.runs.insert(0, args.suite)
        args.suite = None
    elif not args.self_test and not args.real and not args.targets and not (args.suite and os.path.isdir(args.suite)):
        sys.exit("run.py: needs the folder of the suite; --help tells more")
    return args


def is_of_the_set(name, args):
    """A file may have several sets. Without --targets and a folder it is not said which: all but what is for the targets alone."""
    if args.targets:
        return True
    return name in {run.name for run in RUNS} if args.suite else name not in {run.name for run in targets.TARGET_RUNS}


def is_wanted(name, patterns):
    return not patterns or any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


def wanted_runs(runs, patterns):
    wanted = [run for run in runs if is_wanted(run.name, patterns)]
    return wanted or sys.exit(f"run.py: no such run; there are: {', '.join(run.name for run in runs)}")


def what_is_there(place, wanted):
    """(the runs that can be made, {name of another: what it lacks})."""
    lacking = {}
    for run in wanted:
        try:
            place.check(run)
        except Missing as missing:
            lacking[run.name] = str(missing)
    return [run for run in wanted if run.name not in lacking], lacking


def show_earlier(args):
    """The tables of --add alone: nothing is measured, and the libraries need not be there any more."""
    about = {key: value for key, value in load(args.add[0]).items() if key not in ("runs", "faults")}
    there = [run for run in dict.fromkeys(run for path in args.add for run in load(path)["runs"]) if is_wanted(run, args.runs) and is_of_the_set(run, args)]
    names = args.only.split(",") if args.only else list(about["mallocs"])
    if missing := [name for name in names if name not in about["mallocs"]]:
        raise Fault(f"{args.add[0]} has no {', '.join(missing)}; it has {', '.join(about['mallocs'])}")
    about["mallocs"] = {name: about["mallocs"][name] for name in names}
    together, apart = Session(about, there, None), {}
    for path in args.add:
        together.add(path)
        alone = Session(dict(about), there, None)
        alone.add(path)
        apart[pathlib.Path(path).name] = {run: rounds for run, rounds in alone.visits.items() if rounds}
    show(together, names, args.targets)
    if len(apart) > 1 and not args.targets:
        print("\n" + sums.apart_table(apart, names))
        for line in sums.disagreements(apart):
            print(line)
    return 0


def work(args):
    if not args.n:
        return show_earlier(args)
    with tempfile.TemporaryDirectory(prefix="quarry-real-") as folder:
        place = Place(os.path.realpath(args.suite or folder), args.threads, args.seconds)
        return work_on(args, place, runs_of(args, folder))


def runs_of(args, folder):
    if args.targets:
        return (*targets.TARGET_RUNS, *(run for run in real_runs(folder) if run.name in targets.SMALL), *(RUNS if args.suite else ()))
    return real_runs(folder) if args.real else RUNS


def work_on(args, place, there):
    runs, lacking = what_is_there(place, wanted_runs(there, args.runs))
    if args.list:
        print("\n".join([run.name for run in runs] + [f"{name}: {why}" for name, why in lacking.items()]))
        return 0
    mallocs = mallocs_at_hand(args.extra, args.peers, args.only)
    about = {"schema": SCHEMA, "threads": args.threads, "seconds": args.seconds, "seed": args.seed, "load_before": os.getloadavg()[0],
             "processors": sorted(os.sched_getaffinity(0)), "kernel": os.uname().release,
             "mallocs": describe(mallocs, args.peers, args.version), **({"pin": True} if args.pin else {})}
    more = [run.name for run in RUNS] if args.targets else []  # of --add, for the table
    session = Session(about, list(dict.fromkeys([run.name for run in runs] + more)), args.o)
    launcher = Launcher(place, args.limit, pin_library() if args.pin else None)
    for malloc in mallocs.values():
        if malloc.path:
            must_serve(sys.executable, malloc.path)
    for path in args.add:
        session.add(path)
    try:
        measure(session, runs, mallocs, launcher, args.n, args.minutes, args.seed, progress)
    except KeyboardInterrupt:
        print("stopped: this is what there is")
    progress("")
    show(session, list(mallocs), args.targets)
    for name, why in lacking.items():
        print(f"left out: {name}: {why}")
    return 0


def main():
    args = parse()
    try:
        return selftest.main(Session, measure, said_versions) if args.self_test else work(args)
    except Fault as fault:
        print(f"FAILED: {fault}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
