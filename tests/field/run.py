#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run the cases of tests/field under a malloc that is preloaded, and say how each went.

  run.py [--malloc NAME] [KIND...]    all cases of these kinds (folders; all if none is named)
  run.py --peers                      every case under every malloc; compare with RESULTS.md
  run.py --write [--malloc NAME] [KIND...]   the same, and write RESULTS.md; only these columns and rows, if any are named
  run.py --list [KIND...]             the names of the cases

A case is a TEST of a program test_*.c, or a function of a folder's cases.py. It passes, fails, or is
skipped with a reason. Exit status 1 if one failed under Quarry, 77 if all were skipped. What others
fail is no error: the table tells which cases nobody passes.
"""
import argparse
import concurrent.futures
import importlib.util
import os
import pathlib
import re
import shutil
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE))
import field  # noqa: E402

TABLE = HERE / "RESULTS.md"
HEAD = """# Who passes which case

Written by `tests/field/run.py --write`. P: passed, F: failed, -: skipped. Mallocs: glibc's own, Quarry, and
{packages}, each preloaded. A case that only others fail says what a drop-in can do; one that glibc fails
as well says that the kind is not expected to work anywhere.

"""


def load_cases(kind):
    path = HERE / kind / "cases.py"
    if not path.exists():
        return None
    spec = importlib.util.spec_from_file_location("cases_" + re.sub(r"\W", "_", kind), path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def programs_of(kind, build):
    """(name of the case, program, TEST) of each TEST of the folder's programs."""
    for source in sorted((HERE / kind).glob("test_*.c*")):
        program = build / kind / source.stem.removeprefix("test_")
        if not program.exists():
            sys.exit(f"run.py: no program {program}: build first")
        listed = field.run([program, "--list"], {}, build, 300)
        if listed.status:
            sys.exit(f"run.py: {program} --list: {listed.ending()}")
        yield from ((f"{program.name}.{name}", program, name) for name in listed.out.split())


def cases_of(kind, build):
    """[(name, function of a Field)] and how many of them may run at once."""
    module = load_cases(kind)
    environment = getattr(module, "ENVIRONMENT", {})
    cases = [(name, lambda f, p=program, t=test: f.test(p, t, environment)) for name, program, test in programs_of(kind, build)]
    if module:
        cases += [(function.__name__, function) for function in module.CASES]
    return cases, getattr(module, "AT_ONCE", 2)


def attempt(function, malloc, kind, build):
    """(P, F or -, reason)"""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="field-"))
    folder.chmod(0o755)
    try:
        function(field.Field(malloc, folder, build / kind, HERE / kind))
        return "P", ""
    except field.Skip as reason:
        return "-", str(reason)
    except field.Failure as reason:
        return "F", str(reason)
    except Exception as fault:  # a case that is wrong itself
        return "F", f"the case: {fault!r}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_kind(kind, malloc, build, say):
    """{case: P, F or -}"""
    cases, at_once = cases_of(kind, build)
    if malloc.library and not malloc.library.exists():
        return {name: "-" for name, _ in cases}
    results = {}
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        for (name, _), (verdict, reason) in zip(cases, pool.map(lambda case: attempt(case[1], malloc, kind, build), cases)):
            results[name] = verdict
            if say:
                word = {"P": "ok", "F": "FAILED", "-": "SKIP:"}[verdict]
                print(f"{word:7} {kind}/{name}" + (f": {reason}" if reason else ""), flush=True)
    return results


def read_table():
    """{malloc: {case: verdict}} of RESULTS.md"""
    if not TABLE.exists():
        return {}
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in TABLE.read_text().splitlines() if line.startswith("|")]
    names = rows[0][1:]
    return {name: {row[0]: row[1 + n] for row in rows[2:]} for n, name in enumerate(names)}


def write_table(found, mallocs):
    cases = [case for case in found["glibc"]]
    lines = ["| case | " + " | ".join(found) + " |", "|---|" + "---|" * len(found)]
    lines += [f"| {case} | " + " | ".join(results.get(case, "-") for results in found.values()) + " |" for case in cases]
    packages = ", ".join(f"{m.name} ({m.package})" for m in mallocs if m.package)
    totals = "; ".join(f"{name} {list(r.values()).count('P')}" for name, r in found.items())
    TABLE.write_text(HEAD.format(packages=packages) + f"Passed of {len(cases)}: {totals}.\n\n" + "\n".join(lines) + "\n")


def peers(kinds, mallocs, build, write, only=None):
    before, found = read_table(), {}
    for malloc in mallocs:
        if only not in (None, malloc.name):
            found[malloc.name] = before.get(malloc.name, {})
            continue
        print(f"== {malloc.name}", flush=True)
        found[malloc.name] = {}
        for kind in kinds:
            results = run_kind(kind, malloc, build, malloc.name in ("glibc", "quarry"))
            found[malloc.name].update({f"{kind}/{name}": verdict for name, verdict in results.items()})
    for name, results in found.items():
        for case, verdict in results.items():
            if before and (was := before.get(name, {}).get(case, "?")) != verdict:
                print(f"{name}: {case} is {verdict}, and {was} in the table")
    if write:
        kept = {name: {c: v for c, v in before.get(name, {}).items() if c.split("/")[0] not in kinds} for name in found}
        write_table({name: dict(sorted({**kept[name], **found[name]}.items())) for name in found}, mallocs)
    whole = {name: {**before.get(name, {}), **results} for name, results in found.items()}  # with the kinds and mallocs that were not asked for
    nobody = [case for case in whole["glibc"] if all(r.get(case) != "P" for r in whole.values())]
    print(f"nobody passes: {', '.join(nobody) or 'none'}")
    return found["quarry"]


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1])
    parser.add_argument("--malloc")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("kinds", nargs="*")
    args = parser.parse_args()
    build = pathlib.Path(os.environ.get("QUARRY_BUILD_DIR") or HERE.parents[1] / "build")
    mallocs = field.mallocs(build / "lib")
    build = build / "tests" / "field"
    every = sorted(f.name for f in HERE.iterdir() if f.is_dir() and f.name[0].isdigit())
    if unknown := set(args.kinds) - set(every):
        sys.exit(f"run.py: no kind {', '.join(unknown)}; there are: {' '.join(every)}")
    kinds = args.kinds or every
    if args.list:
        return print("\n".join(f"{kind}/{name}" for kind in kinds for name, _ in cases_of(kind, build)[0]))
    if args.peers or args.write:
        results = peers(kinds, mallocs, build, args.write, args.malloc)
    else:
        chosen = [m for m in mallocs if m.name == (args.malloc or "quarry")]
        if not chosen:
            sys.exit(f"run.py: no malloc {args.malloc}; there are: {' '.join(m.name for m in mallocs)}")
        results = {}
        for kind in kinds:
            results.update({f"{kind}/{n}": v for n, v in run_kind(kind, chosen[0], build, True).items()})
    verdicts = list(results.values())
    passed, failed, skipped = (verdicts.count(v) for v in "PF-")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    if passed:
        print(f"ok {passed + skipped}")  # the cases, for scripts/test.py
    return 1 if failed else 77 if not passed else 0


if __name__ == "__main__":
    sys.exit(main())
