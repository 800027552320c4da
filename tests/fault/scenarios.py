#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Fault scenarios: what a malloc must bear in the life of a process. Each is a case of a test program, in a process of its own.

  scenarios.py [--rounds N] [--malloc NAME|PATH]... [--peers] [--write] [--jobs N] [--short | NAME...]
  scenarios.py --self-test [--short | NAME...]   each scenario fails under a malloc with a fault that it looks for
  scenarios.py --list

  --malloc   glibc, quarry, the name of a peer (tests/field/field.py), or a library; default: quarry
  --peers    all of these, as far as they are installed
  --short    the first scenario of each group
  --rounds   so many times each; the table says how often a scenario held
  --write    write the table to SCENARIOS.md

Exit status 1 if Quarry failed one, or glibc did: what glibc does not bear is no scenario. 77 if all were skipped.
"""
import argparse
import collections
import concurrent.futures
import os
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE.parent / "field"))
import field  # noqa: E402

TABLE = HERE / "SCENARIOS.md"
# What is tried, the program (of build/tests) with its arguments, and a fault of planted.c that must make it fail.
Scenario = collections.namedtuple("Scenario", "group name fault program arguments")
SCENARIOS = []


def scenarios(group, program, *cases, arguments=()):
    """cases: "TEST fault", or "TEST fault, name of the scenario" """
    for case in cases:
        test, fault, *name = case.replace(",", "").split(maxsplit=2)
        SCENARIOS.append(Scenario(group, name[0] if name else test.replace("_", " "), fault, program, (test, *arguments)))


scenarios("memory runs out", "fault/fault_limits",
          "address_space_256_mib reserve, address space of 256 MiB at the start",
          "address_space_lowered_later abort", "data_lowered_later abort", "data_limited_to_128_mib abort", "no_mapping_left split, no mapping left (vm.max_map_count)",
          "memory_locked ahead, all memory locked")
scenarios("memory runs out", "fault/fault_own_limit", "locked_within_8_mib reserve, a limit of locked memory")
scenarios("memory runs out", "fault/fault_odd_lives", "a_fork_at_the_limit process", "threads_at_the_limit silent", "growth_to_the_limit lost",
          "mappings_are_refused abort, mmap, mprotect and mremap refused")
scenarios("memory runs out", "api/api_new_preload", "failure_throws abort, operator new throws", "handler_is_called_until_it_gives_up abort, the handler of operator new")

scenarios("what is asked for cannot be", "api/api_limits_preload",
          "too_large lax, sizes beyond PTRDIFF_MAX", "products lax, products that overflow", "a_failed_realloc_keeps_the_block lost",
          "every_alignment_to_1_gib lax", "posix_memalign_refuses lax, posix_memalign with a bad alignment")
scenarios("what is asked for cannot be", "api/api_basics_preload", "zero_sizes lax, size 0", "success_leaves_errno errno", "free_leaves_errno errno",
          "usable_size_is_usable usable")
scenarios("what is asked for cannot be", "api/api_realloc_preload", "across_boundaries lost, realloc between any two sizes", "random_walk lost, realloc at random")
scenarios("what is asked for cannot be", "api/api_zero_preload", "after_reuse dirty, calloc of memory that was used")

scenarios("the system denies", "fault/fault_sandbox", "without_helpers call, calls refused with four errors each")
scenarios("the system denies", "fault/fault_cgroup", "no_proc_and_no_sys descriptor", "proc_and_sys_read_only comm")
scenarios("the system denies", "fault/fault_limits", "no_descriptors log, no descriptor is open or may be", "one_processor processors")
scenarios("the system denies", "fault/fault_odd_lives", "no_file_may_grow_from_the_start files", "no_file_may_grow_from_now_on files", "full_disks files",
          "read_only_disks files", "all_descriptors_are_closed_again_and_again log", "no_thread_can_be_made helper", "an_empty_root_and_no_rights descriptor",
          "no_environment environment", "mappings_from_below below", "a_small_stack_of_the_program recursion", "faults_are_the_programs handler, SIGSEGV is the program's")

scenarios("a fork", "threads/threads_fork_preload", "from_a_busy_process lock", "from_two_threads lock", "handlers_allocate atfork, handlers of others allocate",
          "spawn children, vfork, posix_spawn, popen and system", arguments=["--forks=60"])
scenarios("a fork", "threads/threads_fork_kinds_preload", "a_tree process, a tree of forks beside threads", "no_handlers process, _Fork", "a_daemon process")
scenarios("a fork", "threads/threads_fork_streams_preload", "of_a_thread_that_flushes process", "a_stream_whose_function_allocates atfork",
          "one_reads_one_flushes_one_forks atfork")
scenarios("a fork", "threads/threads_fork_signal_preload", "child_goes_on process, a handler forks and the child goes on", "fork_in_a_fork process",
          arguments=["--forks=100"])

scenarios("signals and stacks", "threads/threads_fork_signal_preload", "handler_only_interrupts interrupted", arguments=["--forks=100"])
scenarios("signals and stacks", "threads/threads_fork_signal_preload", "exit_in_a_handler lock", arguments=["--forks=30"])
scenarios("signals and stacks", "threads/threads_signals_preload", "a_storm interrupted, a storm of signals", "on_a_small_stack stack, a handler on 8 KiB of stack",
          "on_a_small_stack_at_first stack")
scenarios("signals and stacks", "threads/threads_small_stack_preload", "smallest_stack stack, the smallest stack of a thread")

scenarios("threads", "threads/threads_churn_preload", "short_lives threads", "many_at_once threads", "key_destructors_allocate threads",
          "first_use_in_a_destructor threads", "cancelled_exited_detached refuse, cancelled, exited and detached", arguments=["--threads=2000"])
scenarios("threads", "threads/threads_thread_local", "destructors_allocate threads, C++ destructors allocate", "std_threads refuse")
scenarios("threads", "fault/fault_odd_lives", "threads_end_by_the_call_alone census")

scenarios("beginning and end", "threads/threads_first_operation_preload", "matrix first, each function first, in each place")
scenarios("beginning and end", "threads/threads_exit_race_preload", "status_is_kept teardown, the end beside busy threads", arguments=["--rounds=5"])
scenarios("beginning and end", "threads/threads_dlopen", "module_comes_and_goes refuse, libraries that come and go")
scenarios("beginning and end", "fault/fault_left_behind", "starts_and_kills_under_any_filter_leave_nothing segment, killed under any filter it leaves nothing",
          arguments=["--runs=150"])


# ---- a run ---------------------------------------------------------------------------------------

def try_once(scenario, malloc, build, patience):
    """(P, F or -, why)"""
    environment = {"QUARRY_TEST_LIBRARY": str(malloc.library or ""), "QUARRY_LIB_DIR": str(build.parent / "lib"), "QUARRY_CONF": "purge_delay:10"}
    if malloc.name != "quarry":
        environment["QUARRY_TEST_OTHER_MALLOC"] = malloc.name
    if malloc.library and scenario.program != "fault/fault_left_behind":  # which preloads it into programs of its own
        environment["LD_PRELOAD"] = str(malloc.library)
    with tempfile.TemporaryDirectory(prefix="scenario-", dir=build) as folder:
        done = field.run([build / scenario.program, *scenario.arguments], environment, pathlib.Path(folder), patience)
    if "cannot be preloaded" in done.err:
        return "F", done.err.splitlines()[0]
    skipped = [line for line in done.out.splitlines() if line.startswith("SKIP: ")]
    if done.status in (0, 77) and skipped:
        return "-", skipped[0][6:]
    if done.status == 0 and "\nok 1\n" in done.out:
        return "P", ""
    failed = [line for line in done.err.splitlines() if "FAILED" in line]
    return "F", failed[0][:200] if failed else done.ending()


def run_all(chosen, malloc, build, rounds, patience, jobs):
    """{scenario: verdicts}; prints what fails, once a scenario."""
    results, told = {scenario: "" for scenario in chosen}, set()
    runs = [scenario for _ in range(rounds) for scenario in chosen]
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for scenario, (verdict, why) in zip(runs, pool.map(lambda s: try_once(s, malloc, build, patience), runs)):
            results[scenario] += verdict
            if verdict != "P" and (scenario, verdict) not in told:
                told.add((scenario, verdict))
                print(f"{'SKIP:' if verdict == '-' else 'FAILED'} {malloc.name}: {scenario.name}: {why}", flush=True)
    return results


def cell(verdicts):
    """How often it held; where it was skipped, a dash."""
    return "-" if set(verdicts) == {"-"} else f"{verdicts.count('P')}/{len(verdicts)}"


def table_of(found):
    lines = ["| group | scenario | " + " | ".join(found) + " |", "|---|---|" + "---|" * len(found)]
    every = next(iter(found.values()))
    lines += [f"| {s.group} | {s.name} | " + " | ".join(cell(results[s]) for results in found.values()) + " |" for s in every]
    held = [f"{name} {sum(set(v) == {'P'} for v in results.values())}" for name, results in found.items()]
    return "\n".join(lines), f"Held in every round, of {len(every)}: {'; '.join(held)}."


def self_test(chosen, build):
    """Each scenario holds under planted-none.so, and fails under its own fault."""
    module, wrong = build / "fault" / "planted.so", []
    with tempfile.TemporaryDirectory(prefix="planted-", dir=build) as folder:
        os.chmod(folder, 0o755)

        def planted(fault):
            link = pathlib.Path(folder, f"planted-{fault}.so")
            if not link.exists():
                link.symlink_to(module)
            return field.Malloc(f"planted {fault}", link, None)
        for fault in ["none", *sorted({s.fault for s in chosen})]:
            planted(fault)

        def judged(scenario):
            verdict, why = try_once(scenario, planted(scenario.fault), build, 300)
            if verdict == "F":
                good, reason = try_once(scenario, planted("none"), build, 300)
                return ("ok", why) if good == "P" else ("FAILED", f"fails without a fault, too: {reason}")
            return ("SKIP:", why) if verdict == "-" else ("FAILED", f"does not see the fault {scenario.fault!r}")
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for scenario, (word, why) in zip(chosen, pool.map(judged, chosen)):
                print(f"{word:6} {scenario.name}, {scenario.fault}: {why}", flush=True)
                wrong += [scenario] if word == "FAILED" else []
    print(f"self-test: {len(chosen) - len(wrong)} of {len(chosen)} scenarios can fail")
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--malloc", action="append", default=[])
    parser.add_argument("--jobs", type=int, default=2)
    for flag in ("--peers", "--write", "--self-test", "--list", "--short"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    build = pathlib.Path(os.environ.get("QUARRY_BUILD_DIR") or HERE.parents[1] / "build")
    chosen = [s for s in SCENARIOS if s.name in args.names or not args.names]
    if args.short:
        chosen = list({s.group: s for s in reversed(chosen)}.values())[::-1]
    if unknown := set(args.names) - {s.name for s in SCENARIOS}:
        sys.exit(f"scenarios.py: no scenario {', '.join(unknown)}; see --list")
    if args.list:
        return print("\n".join(s.name for s in chosen))
    mallocs = {m.name: m for m in field.mallocs(build / "lib")}
    build = build / "tests"
    if missing := {s.program for s in chosen if not (build / s.program).exists()}:
        sys.exit(f"scenarios.py: build first: {', '.join(sorted(missing))}")
    if args.self_test:
        return self_test(chosen, build)
    wanted = list(mallocs) if args.peers or args.write else args.malloc or ["quarry"]
    found = {}
    for name in wanted:
        malloc = mallocs.get(name) or field.Malloc(pathlib.Path(name).stem, pathlib.Path(name), None)
        if malloc.library and not malloc.library.exists():
            print(f"SKIP: needs the package {malloc.package}" if malloc.package else f"FAILED {malloc.library}: not there")
            continue
        # What others cannot bear is not waited for so long: it only ends a hang.
        found[malloc.name] = run_all(chosen, malloc, build, args.rounds, 1800 if name in ("glibc", "quarry") else 120, args.jobs)
    table, sums = table_of(found)
    print(f"{table}\n{sums}")
    if args.write:
        TABLE.write_text(f"# Which fault scenarios a malloc bears\n\nWritten by `tests/fault/scenarios.py --write`: in how many rounds each held. -: skipped.\n"
                         f"Mallocs are those of [the field suite](../field/RESULTS.md). The bar is what glibc does. So errno counts, and the\n"
                         f"alignment of empty blocks, also where standards ask for less.\n\n{sums}\n\n{table}\n")
    judged = [v for name in ("glibc", "quarry") if name in found for v in found[name].values()]
    if judged and not any("F" in v for v in judged):
        print(f"ok {len(judged)}")
    return 1 if any("F" in v for v in judged) else 77 if all(set(v) == {"-"} for v in judged) else 0


if __name__ == "__main__":
    sys.exit(main())
