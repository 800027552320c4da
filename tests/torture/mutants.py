#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Plant one fault at a time in the heap and the pools. The tests must find each of them.

  mutants.py [NAME...]   all of them, or those whose file or test has NAME in it; exit 1 if one lives
  mutants.py --list      what is planted, and which test is to find it
  mutants.py --self-test every line that is to be changed is there, and a test that hangs is ended with its children

A copy of the tree is built once, in QUARRY_BUILD_DIR/mutants. Each fault is a line that is changed or dropped there. The named test
of `make test` is built with it and run. A fault lives if that test passes, and also if it does not compile.
"""
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(os.environ.get("QUARRY_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
BUILD = pathlib.Path(os.environ.get("QUARRY_BUILD_DIR", ROOT / "build"))
COPIED = ("CMakeLists.txt", "LICENSE", "README.md", "CMakePresets.json", "cmake", "src", "include", "tests", "scripts", "tools/replay", "bench", "examples", "bindings")
# A fault may also be a test that does not end: it has so long, and several times what it takes without the fault.
SECONDS = 120
TIMES = 4

# (file below src/, the line as it is, the line with the fault, the test that finds it)
MUTANTS = (
    # the page layer
    ("pages/chunk.h", "if (k == 7) return 128;", "if (k == 7) return 127;", "heap_chunk"),
    ("pages/chunk.c", "if (longest == c->longest) return;", "if (longest <= c->longest) return;", "heap_chunk"),
    ("pages/chunk.c", "c->dirty |= dirty;", "", "heap_chunk"),
    ("pages/chunk.c", "touched > best->touched", "touched < best->touched", "heap_chunk"),
    ("pages/chunk.c", "c->dirty |= kept;", "", "heap_chunk"),
    ("pages/chunk.c", "if (by_age) c->gone.old |= run & ~kept;", "", "heap_age"),
    ("pages/chunk_long.c", "return c && c->arena == a && (c->free & run) == run;", "return c && c->arena == a && (c->free & run) != 0;", "heap_long"),
    ("pages/arena.c", "c->arena->present++;", "", "heap_chunk"),
    ("pages/map.c", "return first && first->tagged;", "return first != NULL;", "heap_map"),
    ("pages/map.c", "if (!c->alias) map.used--;", "", "heap_map"),
    ("pages/map.c", "atomic_fetch_add(&map.version, 1);\n    __atomic_thread_fence", "__atomic_thread_fence", "heap_map_grow"),
    ("pages/meta.c", "bytes = qy_round_up(bytes, QY_CACHE_LINE);", "", "heap_meta"),
    ("pages/purging.c", ">= QY_AGE_RESTS)", "> QY_AGE_RESTS)", "heap_age"),
    ("pages/purging.c", "return until < now;", "return until > now;", "heap_growth"),
    ("pages/purging.c", "budget_spend(rules[event].budget, bytes - bytes / rules[event].trust);", "", "heap_run_give"),
    ("pages/chunk.c", "if (touched <= qy_units.most_touched) return;", "if (touched >= qy_units.most_touched) return;", "heap_growth"),
    # the heap
    ("heap/slab_home.c", "s->low = (uint8_t)qy_min(s->low, i / 64);", "", "heap_slab"),
    ("heap/slab_home.c", "s->nchain += count;", "", "heap_slab"),
    ("heap/slab_take.c", "s->nchain2 = 0;\n    return chain;", "return chain;", "heap_slab"),
    ("heap/slab_purge.c", "s->npurged += n;", "", "heap_slab"),
    ("heap/slab_purge.c", "if (denied) link_again(s, w);", "", "heap_lies"),
    ("heap/slab.c", "if (h->purge_at == s) h->purge_at = s->all_next;", "", "heap_slab"),
    ("heap/depot.c", "h->depot_blocks -= qy_class_limit[c];", "", "heap_depot"),
    ("heap/remote.c", "if (owner != h) {", "if (owner == NULL) {", "heap_remote"),
    ("heap/lists.c", "t->merged[c] = 0;", "", "heap_lists"),
    ("heap/huge.c", "huge.nlive--;", "", "heap_huge"),
    ("heap/huge.c", "huge.stuck_bytes += c->mapped;", "", "heap_huge"),
    ("heap/run.c", "if (gone) qy_units_gone(chunk, first, n, event == QY_PURGING_RUN_OLD);", "", "heap_run_give"),
    ("heap/slab_take.c", "if (now < h->reclaim_at) {", "if (now > h->reclaim_at) {", "heap_reclaim"),
    ("heap/locks.c", "[QY_RANK_UNITS] = qy_units_lock,\n    [QY_RANK_HUGE] = qy_huge_lock,", "[QY_RANK_UNITS] = qy_huge_lock,\n    [QY_RANK_HUGE] = qy_units_lock,", "heap_locks"),
    ("heap/fork.c", "if (!qy_lock_is_mine(lock)) qy_lock_reset(lock);", "", "threads_fork_locks"),
    ("heap/moved.h", "t->period += bytes;", "", "heap_budget"),
    ("heap/cache.c", "divide_by(atomic_fetch_sub_explicit(&threads, 1, memory_order_relaxed) - 1);", "divide_by(1000);", "heap_budget"),
    # the pools
    ("pool/fifo/fifo.c", "if (f->dirty < p + old) f->dirty = p + old;", "", "pool_fifo"),
    ("pool/fifo/fifo_page.c", "f->npages--;", "", "pool_fifo"),
    ("pool/tlsf/tlsf.c", "next->prev = b;\n    next->head |= FLAG_PREV_FREE;\n    qy_tlsf_enlist(t, b);\n    if", "next->prev = b;\n    qy_tlsf_enlist(t, b);\n    if", "pool_tlsf_inside"),
    ("pool/tlsf/tlsf.c", "if (gap && gap < TLSF_MIN_BLOCK) gap += alignment;", "", "pool_tlsf_inside"),
    ("pool/pow2/pow2_buddy.c", "index = qy_min(index, buddy);", "", "pool_pow2_inside"),
    ("pool/pages/pages_run.c", "n += before;", "", "pool_pages"),
    ("pool/stack/stack.c", "if (newest) *ret_clean = qy_stack_reach(s, p + size);", "", "pool_stack"),
    ("pool/ring/ring_frame.c", "last->next = frames.free;", "", "pool_ring"),
    ("pool/stack/stack_chunk.c", "s->idle += qy_stack_bytes(c);", "", "pool_stack_chunks"),
    ("pool/stack/stack_chunk.c", "stack_chunk_add_used(s, -(size_t)(c->pos - pos));\n    c->pos = pos;", "c->pos = pos;", "pool_stack"),
    ("pool/stack/stack_chunk.c", "if (c->next) c->next->prev = c->prev;", "", "pool_stack_chunks"),
    ("pool/fifo/fifo_page.c", "f->nspares--;", "", "pool_fifo"),
    ("pool/fifo/fifo_page.c", "__atomic_store_n(&page->hot.remote, QY_FIFO_ENDED, __ATOMIC_RELAXED);", "", "pool_fifo"),
    ("pool/ring/ring_chunk.c", "if (c->first) return false;\n    c->last = &c->first;", "if (c->first) return false;", "pool_ring"),
    ("pool/ring/ring_chunk.c", "if (c->dirty < pos) c->dirty = pos;", "", "pool_ring"),
    ("pool/tlsf/tlsf.c", "    if (next) next->prev_free = prev;", "", "pool_tlsf"),
    ("pool/tlsf/tlsf_region.c", "if (r->next) r->next->prev = r->prev;", "", "pool_tlsf_inside"),
    ("pool/pow2/pow2_buddy.c", "r->map[index] = 0;\n    for (; order", "for (; order", "pool_pow2"),
    ("pool/pow2/pow2_kept.c", "        kept_count(w, -bytes);", "", "pool_pow2_inside"),
    ("pool/pow2/pow2_mapped.c", "*at = m->next;", "", "pool_pow2"),
    ("pool/pages/pages_run.c", "p->dirty_pages -= stop - at;", "", "pool_pages"),
    ("pool/pages/pages_region.c", "p->held_pages -= r->pages;", "", "pool_pages"),
    ("pool/persist/persist_blocks.c", "if (next) qy_persist_store(s, prev_of(s, next), prev);", "", "pool_persist"),
    ("pool/persist/persist_blocks.c", "else set_bin(s, bin, next);", "", "pool_persist"),
    ("pool/node.h", "    o->waiting -= qy_node_ended_bytes(n);", "", "pool_observe"),
    ("pool/chunk.c", "    discharge(info, bytes);\n    atomic_fetch_add", "    atomic_fetch_add", "pool_conformance"),
)


def run(*command, seconds=None, **more):
    """Its exit status; its output goes to the log. After so many seconds it is ended, with all that it started."""
    with open(BUILD / "mutants" / "log", "a") as log:
        print("+", *command, file=log, flush=True)
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, **more) as process:
            try:
                return process.wait(seconds)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                print(f"ended after {seconds:.0f} s", file=log, flush=True)
                return process.wait()


def prepare(tree):
    """A copy that is configured, with every test that is needed."""
    if tree.exists():
        shutil.rmtree(tree)
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tree / name, symlinks=True)
        elif (ROOT / name).exists():
            tree.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
    flags = ("-G", "Ninja", "-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DQUARRY_TESTS=ON", "-DQUARRY_BENCH=OFF", "-DQUARRY_EXAMPLES=OFF")
    if run("cmake", "-S", tree, "-B", tree / "build", *flags) or run("cmake", "--build", tree / "build", "--target", *sorted({m[3] for m in MUTANTS})):
        sys.exit(f"mutants: the tree without a fault does not build; {BUILD}/mutants/log says why")


def tested(tree, test, seconds=None):
    """The exit status of a test, with the environment that it has in `make test`. Tests have a limit of their own there, which
    --timeout of ctest does not change."""
    command = ("ctest", "--test-dir", tree / "build", "-R", f"^{test}$", "--no-tests=error")
    return run(*command, seconds=seconds, env={**os.environ, "QUARRY_SEED": "1"})


def fate(tree, file, old, new, test, seconds):
    """How the fault ended: 'dies' or why it lives."""
    path = tree / "src" / file
    text = path.read_text()
    if text.count(old) < 1:
        return "LIVES: its line is not there any more"
    path.write_text(text.replace(old, new, 1))
    try:
        if run("cmake", "--build", tree / "build", "--target", test):
            return "LIVES: it does not compile"
        return f"dies: {test} fails" if tested(tree, test, seconds) else f"LIVES: {test} passes"
    finally:
        path.write_text(text)


def self_test():
    """Exit status."""
    faults = [f"{file}: no line {' '.join(old.split())}" for file, old, _, _ in MUTANTS if old not in (ROOT / "src" / file).read_text()]
    begin = time.monotonic()
    # The child keeps the pipe open for as long as it lives.
    read, write = os.pipe()
    status = run("sh", "-c", "sleep 300 & wait", seconds=0.2, pass_fds=(write,))
    os.close(write)
    if status == 0:
        faults.append("a command that was ended has status 0")
    if os.read(read, 1) or time.monotonic() - begin > 200:
        faults.append("a command's child lives on")
    os.close(read)
    print("\n".join(faults) or "ok")
    return 1 if faults else 0


def main():
    """Exit status."""
    (BUILD / "mutants").mkdir(parents=True, exist_ok=True)
    if "--self-test" in sys.argv:
        return self_test()
    names = [a for a in sys.argv[1:] if not a.startswith("-")]
    chosen = [m for m in MUTANTS if not names or any(n in m[0] or n in m[3] for n in names)]
    if "--list" in sys.argv:
        for file, old, new, test in chosen:
            print(f"{file}: {' '.join(old.split())}  ->  {' '.join(new.split()) or '(dropped)'}  [{test}]")
        return 0
    (BUILD / "mutants" / "log").write_text("")
    tree = BUILD / "mutants" / "tree"
    prepare(tree)
    seconds = {}
    for test in sorted({m[3] for m in chosen}):
        begin = time.monotonic()
        if tested(tree, test):
            sys.exit(f"mutants: {test} does not pass without a fault")
        seconds[test] = max(SECONDS, TIMES * (time.monotonic() - begin))
    lives = 0
    for i, mutant in enumerate(chosen, 1):
        begin = time.monotonic()
        end = fate(tree, *mutant, seconds[mutant[3]])
        lives += end.startswith("LIVES")
        print(f"{i}/{len(chosen)} {mutant[0]}: {' '.join(mutant[1].split())[:70]}: {end} ({time.monotonic() - begin:.0f} s)", flush=True)
    print(f"{len(chosen) - lives} of {len(chosen)} die")
    return 1 if lives else 0


if __name__ == "__main__":
    sys.exit(main())
