// SPDX-License-Identifier: MIT
// random-mt: threads that each free a random block or allocate one of random size, after a test of tcmalloc's and the
// parallel allocator's paper.
//
// The same work for every number of threads, so that the time of one thread divided by that of n is the speed-up. With
// --lock global all calls go through one lock of the program: the worst a parallel allocator can be. --arenas and
// --caches set the malloc's own knobs (knobs.h). With --exchange some blocks are swapped for those that another thread
// left, and freed by it.
#include <stdatomic.h>

#include "knobs.h"
#include "scenario.h"

enum { PLACES = 256,
    MALLOC = 0,
    UNIFORM = 0 };

static uint64_t with, threads = 2, count = 10000000, live = 1000, sizes, touch = TOUCH_FIRST, exchange, lock, arenas,
                      caches, seed = 1;
static const option_t options[] = {
    CHOICE("with", &with, "malloc|nothing", "nothing: what the work costs without an allocator"),
    NUMBER("threads", &threads, 1, SCENARIO_THREADS, "how many share the work"),
    NUMBER("count", &count, 1, (uint64_t)1 << 40, "operations of all threads"),
    NUMBER("live", &live, 1, 1 << 24, "places for blocks of each thread, half of them in use"),
    CHOICE("sizes", &sizes, "uniform|programs",
        "8 to 1024 bytes, or as in programs: half up to 64, one in a hundred up to 16 KiB"),
    OPTION_TOUCH(&touch),
    NUMBER("exchange", &exchange, 0, 100,
        "per cent of the blocks to be freed that are swapped with another thread's; needs --touch"),
    CHOICE("lock", &lock, "none|global", "a lock of the program around every call"),
    NUMBER("arenas", &arenas, 0, 1024, "the malloc's arenas; 0: what it likes"),
    CHOICE("caches", &caches, "default|on|off", "the malloc's thread caches"),
    OPTION_SEED(&seed),
    {0},
};

// A block that is swapped brings its size along, in its first bytes.
typedef struct slot {
    char *p;
    size_t size;
} slot_t;

static slot_t *slots;
static _Atomic(char *) places[PLACES];
static pthread_mutex_t global = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local char buffer[65536];  // all blocks of `nothing`

static char *get(size_t size) {
    if (with != MALLOC) return buffer;
    if (!lock) return must_have(malloc(size));
    pthread_mutex_lock(&global);
    char *const p = malloc(size);
    pthread_mutex_unlock(&global);
    return must_have(p);
}

static void put(char *p) {
    if (with != MALLOC) return;
    if (lock) pthread_mutex_lock(&global);
    free(p);
    if (lock) pthread_mutex_unlock(&global);
}

static size_t random_size(uint64_t r) {
    const size_t size = sizes == UNIFORM  ? bench_between((uint32_t)r, 8, 1024)
                        : (r >> 40) % 100 ? bench_small_size(r)
                                          : bench_octaves(r, 1024, 3);
    return exchange && size < 16 ? 16 : size;  // of a smaller one the last bytes lie over the first
}

// The size is in the first eight bytes, so that any thread knows what it got.
static void fill(slot_t s) {
    touch_write(s.p, s.size, (touch_t)touch, s.size);
}
static void verify(slot_t s) {
    if (with == MALLOC) touch_check(s.p, s.size, (touch_t)touch, s.size);
}

static void swap(slot_t *s, uint64_t place) {
    verify(*s);
    s->p = atomic_exchange_explicit(&places[place], s->p, memory_order_acq_rel);
    uint64_t size;
    memcpy(&size, s->p, 8);
    if (size < 8 || size > 65536) bench_fail("a swapped block has no size");
    s->size = size;
}

static void work(worker_t *w) {
    slot_t *const mine = &slots[w->number * live];
    const uint64_t share = count / w->of + (w->number < count % w->of);
    for (uint64_t i = 0; i < share; i++) {
        const uint64_t r = bench_random(&w->random), q = bench_random(&w->random);
        slot_t *const s = &mine[bench_between((uint32_t)r, 0, live - 1)];
        if (s->p) {
            if (exchange && (q >> 33) % 100 < exchange) swap(s, r >> 56);
            verify(*s);
            put(s->p);
            s->p = NULL;
        } else {
            s->size = random_size(q);
            s->p = get(s->size);
            fill(*s);
            w->check += s->size;
        }
    }
    for (uint64_t i = 0; i < live; i++) {
        if (!mine[i].p) continue;
        verify(mine[i]);
        put(mine[i].p);
    }
}

int main(int argc, char **argv) {
    phase_t all = {.name = ""};
    uint64_t check = 0;
    scenario_begin(argc, argv, "random-mt",
        "Threads free a random block of theirs or allocate one of random size. An operation is one or the other.",
        options);
    if (exchange && (!touch || with)) scenario_not_applicable("--exchange needs blocks that are touched");
    if (with == MALLOC) knobs_set(argv, arenas, caches);
    else if (arenas || caches != CACHES_DEFAULT) scenario_not_applicable("no allocator has no knobs");
    slots = scenario_memory(threads * live * sizeof *slots);
    for (int i = 0; exchange && i < PLACES; i++) {
        const slot_t s = {get(64), 64};
        fill(s);
        atomic_store(&places[i], s.p);
    }
    phase_begin(&all);
    const double seconds = workers_run((unsigned)threads, work, NULL, seed, &check);
    phase_end_timed(&all, seconds, count);
    for (int i = 0; exchange && i < PLACES; i++) put(atomic_load(&places[i]));
    scenario_value("arenas", (double)arenas);
    scenario_print(&all, 0, check);
    return scenario_end();
}
