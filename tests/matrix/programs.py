# SPDX-License-Identifier: MIT
"""Small C programs with one memory error each, made of random sizes, names and orders.

A cell of the matrix is a kind of error, a size, an offset, a way to touch the byte (an instruction, or a function of libc), a
thread, and the pool that the block is of, None for the heap. Many cells share one source file, to compile it once, but each runs in a process of its own: the program's argument
is the number of the cell. All functions have random names, so a verdict that names the right function was not keyed to the suite.
"""
import collections
import itertools

Cell = collections.namedtuple("Cell", "kind size offset write way thread pool", defaults=[None])
# What a source file has of a cell: the functions that make the block, touch it, and free it.
Names = collections.namedtuple("Names", "make touch drop")

# The octaves of sizes; the size itself is random in its octave.
OCTAVES = [(1, 8), (9, 16), (17, 32), (33, 64), (65, 128), (129, 256), (257, 512), (513, 1024), (1025, 2048), (2049, 4096),
           (4097, 16384), (16385, 65536)]
# Of the first byte that the program touches: from the block's begin if negative, and from its end if not.
OFFSETS = [-32, -17, -16, -8, -1, 0, 1, 7, 8, 15, 16, 31, 63]
PLACES = ["first", "middle", "last"]  # in a freed block

# Quarry's pools: how a frame begins, and how it or a block ends.
POOLS = {"stack": ("quarry_stack_push(pool, &frame);", "(void)p; quarry_stack_pop(pool, &frame);"),
         "ring": ("mark = quarry_ring_newframe(pool);", "(void)p; quarry_ring_seal(pool); quarry_ring_release(mark);"),
         **{kind: ("", "quarry_pool_free(pool, p, QUARRY_SIZE_UNKNOWN);") for kind in ("fifo", "tlsf", "pow2", "pages", "persist")}}

READERS = ("memcpy", "memmove", "memcmp", "memchr", "write", "fwrite", "strnlen", "strncmp")
WRITERS = ("memset", "memcpy", "memmove", "strcpy", "strncpy", "sprintf", "snprintf", "read", "fread", "strcat")

# API errors need no offset: what the program does, and the kind that its report has.
MISUSES = {
    "double_free": "double-free", "free_twice_later": "double-free", "realloc_freed": "double-free",
    "free_inside": "interior-free", "free_stack": "invalid-free", "free_global": "invalid-free", "free_number": "invalid-free",
    "realloc_stack": "invalid-free", "negative": "bad-argument", "calloc_overflow": "bad-argument", "alignment": "bad-argument",
    "overlap": "overlap", "unterminated": "unterminated", "new_free": "mismatched-free", "malloc_delete": "mismatched-free",
    "new_array_delete": "mismatched-free", "leak_lost": "leak-definite", "leak_chain": "leak-indirect",
}

PRELUDE = """// Made by tests/matrix.
#define _GNU_SOURCE
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
extern void *_Znwm(size_t), *_Znam(size_t);
extern void _ZdlPv(void *), _ZdaPv(void *);
#define OWN __attribute__((noinline, noclone, optimize("no-tree-dse"))) static
static volatile unsigned char sink;
static char other[1 << 18];
static char global_block[64];
// Whatever the thread left of pointers in registers and on its stack goes away.
OWN void forget(void) { volatile char big[4096]; for (size_t i = 0; i < sizeof big; i++) big[i] = 0; }
struct job { void (*run)(char *); char *block; };
static void *in_thread(void *arg) { struct job *job = arg; job->run(job->block); return NULL; }
static void elsewhere(void (*run)(char *), char *block) {
    struct job job = { run, block };
    pthread_t thread;
    if (pthread_create(&thread, NULL, in_thread, &job)) exit(3);
    pthread_join(thread, NULL);
}
static void here(void (*run)(char *), char *block) { run(block); }
static int file(const char *path, int mode) { int fd = open(path, mode); if (fd < 0) exit(3); return fd; }
static FILE *stream(const char *path, const char *mode) { FILE *f = fopen(path, mode); if (!f) exit(3); setvbuf(f, NULL, _IONBF, 0); return f; }
"""

POOL_PRELUDE = """
#include <quarry/fifo.h>
#include <quarry/pages.h>
#include <quarry/persist.h>
#include <quarry/pow2.h>
#include <quarry/ring.h>
#include <quarry/stack.h>
#include <quarry/tlsf.h>
static quarry_pool_t *pool;
static quarry_stack_frame_t frame;
static quarry_ring_frame_t mark;
static quarry_pool_t *quarry_persist_create(void *unused) {
    char path[] = "/tmp/quarry-matrix-XXXXXX";
    int fd = mkstemp(path);
    (void)unused;
    if (fd < 0 || close(fd)) exit(3);
    quarry_persist_t *store = quarry_persist_open(path, &(quarry_persist_options_t){.flags = QUARRY_PERSIST_CREATE});
    unlink(path);
    return store ? quarry_persist_pool(store) : NULL;
}
"""

# {n}: bytes; {a}: where they begin.
CALLS = {
    (False, "memcpy"): "memcpy(other, {a}, {n});", (False, "memmove"): "memmove(other, {a}, {n});",
    (False, "memcmp"): "memcpy(other, p + 0, 0); sink = memcmp({a}, other, {n}) > 0;",
    (False, "memchr"): "sink = memchr({a}, 1, {n}) != NULL;",
    (False, "write"): 'if (write(file("/dev/null", O_WRONLY), {a}, {n}) < 0) sink = 1;',
    (False, "fwrite"): 'fwrite({a}, 1, {n}, stream("/dev/null", "w"));',
    (False, "strnlen"): "sink = strnlen({a}, {n}) > 1;", (False, "strncmp"): "sink = strncmp({a}, other, {n}) > 1;",
    (True, "memset"): "memset({a}, 7, {n});", (True, "memcpy"): "memcpy({a}, other, {n});",
    (True, "memmove"): "memmove({a}, other, {n});",
    (True, "strcpy"): "memset(other, 'x', {n} - 1); other[{n} - 1] = 0; strcpy({a}, other);",
    (True, "strncpy"): "strncpy({a}, other, {n});",
    (True, "sprintf"): "memset(other, 'x', {n} - 1); other[{n} - 1] = 0; sprintf({a}, \"%s\", other);",
    (True, "snprintf"): "memset(other, 'x', {n} - 1); other[{n} - 1] = 0; snprintf({a}, {n}, \"%s\", other);",
    (True, "read"): 'if (read(file("/proc/self/exe", O_RDONLY), {a}, {n}) < 0) sink = 1;',
    (True, "fread"): 'if (!fread({a}, 1, {n}, stream("/proc/self/exe", "r"))) sink = 1;',
    (True, "strcat"): "{a}[0] = 0; memset(other, 'x', {n} - 1); other[{n} - 1] = 0; strcat({a}, other);",
}
# These read until they find something: only bytes that differ from what they look for keep them going.
NEED_FILLED = {"memchr", "strnlen", "strncmp", "memcmp"}


def cells(rng):
    """All cells, in a random order. A size is drawn for each."""
    made = []
    for low, high in OCTAVES:
        for offset, write, way, thread in itertools.product(OFFSETS, (False, True), ("direct", "libc"), (False, True)):
            made.append(Cell("underflow" if offset < 0 else "overflow", rng.randint(low, high), offset, write, way, thread))
        for place, write, way, thread in itertools.product(PLACES, (False, True), ("direct", "libc"), (False, True)):
            made.append(Cell("use-after-free", rng.randint(low, high), place, write, way, thread))
    for pool, offset, write, way in itertools.product(POOLS, [*OFFSETS, *PLACES], (False, True), ("direct", "libc")):
        kind = "use-after-free" if offset in PLACES else "underflow" if offset < 0 else "overflow"
        made.append(Cell(kind, rng.randint(*rng.choice(OCTAVES)), offset, write, way, False, pool))
    for name, thread in itertools.product(MISUSES, (False, True)):
        made.append(Cell(name, rng.randint(*rng.choice(OCTAVES)), None, False, "call", thread))
    rng.shuffle(made)
    return [cell._replace(way=rng.choice(WRITERS if cell.write else READERS)) if cell.way == "libc" else cell for cell in made]


def name(rng, used):
    while True:
        word = "".join(rng.choice("bdfgklmnprstvz") + rng.choice("aeiou") for _ in range(4))
        if word not in used:
            used.add(word)
            return word


def touched(cell):
    """(first byte that is touched, as an offset from the block; how many bytes)."""
    if cell.kind == "use-after-free":
        begin = {"first": 0, "middle": cell.size // 2, "last": cell.size - 1}[cell.offset]
        return begin, 1 if cell.way == "direct" else cell.size - begin
    if cell.way == "direct":
        return (cell.offset if cell.offset < 0 else cell.size + cell.offset), 1
    if cell.offset < 0:
        return cell.offset, -cell.offset + min(cell.size, 2)
    return 0, cell.size + cell.offset + 1


def touch(cell):
    begin, count = touched(cell)
    if cell.way == "direct":
        return f"((volatile unsigned char *)p)[{begin}] ^= 0x55;" if cell.write else f"sink = ((volatile unsigned char *)p)[{begin}];"
    return CALLS[cell.write, cell.way].format(a=f"(p + {begin})" if begin else "p", n=count)


def misuse(cell, names):
    """(body of the function that does it, body of the one that makes the block)."""
    n = cell.size
    made = {"new_free": f"return _Znwm({n});", "new_array_delete": f"return _Znam({n});"}.get(cell.kind, f"return memset(malloc({n} + 32), 'x', {n} + 32);")
    body = {
        "double_free": "free(p); free(p);", "free_twice_later": f"free(p); for (int i = 0; i < 50; i++) free(malloc({n})); free(p);",
        "realloc_freed": f"free(p); sink = realloc(p, {n} + 9) != NULL;", "free_inside": f"free(p + {min(n, 24) // 8 * 8 + 8});",
        "free_stack": "char here[64]; (void)p; free(here + 16);", "free_global": "(void)p; free(global_block + 16);",
        "free_number": "(void)p; free((void *)4660);", "realloc_stack": "char here[64]; (void)p; sink = realloc(here + 16, 99) != NULL;",
        "negative": f"(void)p; sink = malloc((size_t)-{n}) != NULL;", "calloc_overflow": "(void)p; sink = calloc((size_t)1 << 33, (size_t)1 << 33) != NULL;",
        "alignment": "(void)p; sink = aligned_alloc(24, 96) != NULL;", "overlap": "memcpy(p + 1, p, 16);",
        "unterminated": "sink = strlen(p) & 1;", "new_free": "free(p);", "malloc_delete": "_ZdlPv(p);", "new_array_delete": "_ZdlPv(p);",
        "leak_lost": "(void)p;", "leak_chain": "(void)p;",
    }[cell.kind]
    if cell.kind == "leak_chain":
        made = f"char **p = malloc({n} + sizeof(char *)); *p = malloc({n}); return (char *)p;"
    return body, made


def of_pool(cell):
    """Statements: make the block; end it; what comes first; before each block; last."""
    begin, end = POOLS[cell.pool]
    align = 4096 if cell.pool == "pages" else 8
    return (f"char *p = quarry_pool_alloc(pool, {cell.size}, {align}, 0); if (!p) exit(3);", end,
            f"pool = quarry_{cell.pool}_create(NULL); if (!pool) exit(3);", begin, "quarry_pool_destroy(pool);")


def source(numbered, rng):
    """C source of cells, and the names of their functions. `numbered`: {number: cell}."""
    pools = POOL_PRELUDE if any(cell.pool for cell in numbered.values()) else ""
    used, parts, table, names = set(), [PRELUDE + pools], [], {}
    for number, cell in numbered.items():
        mine = names[number] = Names(*(name(rng, used) for _ in Names._fields))
        run = "elsewhere" if cell.thread else "here"
        if cell.kind in MISUSES:
            body, made = misuse(cell, mine)
            keeps = "" if cell.kind.startswith("leak") else "(void)block;"
            functions = [f"OWN char *{mine.make}(void) {{ {made} }}", f"OWN void {mine.touch}(char *p) {{ {body} }}"]
            block = f"    char *block = {mine.make}(); {run}({mine.touch}, block); {keeps} block = NULL; forget();"
        else:
            filled = f"memset(p, 'y', {cell.size});" if cell.way in NEED_FILLED else ""
            equal = "memset(other, 'y', sizeof other);" if cell.way in NEED_FILLED else ""
            made, ended, first, begun, last = of_pool(cell) if cell.pool else (f"char *p = malloc({cell.size});", "free(p);", "", "", "")
            functions = [f"OWN char *{mine.make}(void) {{ {made} {filled} return p; }}",
                         f"OWN void {mine.touch}(char *p) {{ {touch(cell)} }}", f"OWN void {mine.drop}(char *p) {{ {ended} }}"]
            order = [f"{mine.drop}(block);", f"{run}({mine.touch}, block);"]
            if cell.kind != "use-after-free":
                order.reverse()
            # The error comes at each block of the site; others of the site live before and behind it.
            block = (f"    {first} {equal} char *kept[{rng.randint(2, 4)}]; for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {{ {begun} char *block = kept[i] = {mine.make}(); "
                     + " ".join(order) + f" }} {last}")
        rng.shuffle(functions)
        parts += [f"OWN char *{mine.make}(void);", f"OWN void {mine.touch}(char *p);", f"OWN void {mine.drop}(char *p);" if cell.kind not in MISUSES else "",
                  *functions]
        entry = name(rng, used)
        parts.append(f"OWN void {entry}(void) {{\n{block}\n}}")
        table.append(f"    case {number}: {entry}(); break;")
    rng.shuffle(table)
    parts.append("int main(int argc, char **argv) {\n    memset(other, 7, sizeof other);\n    (void)argc; (void)elsewhere; (void)here; (void)global_block;\n    (void)file; (void)stream; (void)forget;\n    switch (atoi(argv[1])) {\n"
                 + "\n".join(table) + "\n    }\n    return 0;\n}")
    return "\n".join(parts) + "\n", names
