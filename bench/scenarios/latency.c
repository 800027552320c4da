// SPDX-License-Identifier: MIT
// latency: how long single calls take, at the median and at the far end. Each call is timed alone, what comes between
// is not.
//
// The pool's memory is a buffer that was touched before, as a program with deadlines has it; malloc is warmed up by the
// same load. Calls in which the kernel gave the processor to another program are left out and counted (`preempted`);
// other interrupts are in it. The clock's own cost is in each figure, and printed (`clock_ns`).
#include <quarry/tlsf.h>

#include <sys/resource.h>

#include "ticks.h"

enum { MALLOC,
    TLSF };
enum { ALLOC,
    FREE,
    RESIZE,
    KINDS,
    THREADS = 64 };
// How often it is asked whether this thread lost its processor: every so many calls, and after each call that took
// long. So a long call is left out without reason only if it lies within so many calls behind a loss outside of calls.
enum { ASK_EVERY = 64,
    LONG_TICKS = 4000 };

static uint64_t with, threads = 1, count = 10000000, largest = 1024, memory = 64 << 20, seed = 1;
static const option_t options[] = {
    CHOICE("with", &with, "malloc|tlsf", "tlsf: a pool in a buffer of --memory bytes, one thread"),
    NUMBER("threads", &threads, 1, THREADS, "each with blocks of its own; the calls of all are counted together"),
    NUMBER("count", &count, 1, (uint64_t)1 << 40, "calls in all"),
    BYTES("largest", &largest, 32, 1 << 20,
        "block, a power of two; sizes are from 16 bytes on, each octave equally likely"),
    BYTES("memory", &memory, 1 << 20, (uint64_t)1 << 36, "of the heap, which is half full on the average"),
    OPTION_SEED(&seed),
    {0},
};

typedef struct slot {
    char *p;
    size_t size;
} slot_t;

typedef struct state {
    histogram_t histograms[KINDS];
    uint64_t preempted, payload;
    long losses_known;
    slot_t *slots;
} state_t;

static const char *const names[KINDS] = {"alloc", "free", "resize"};
static quarry_pool_t *pool;
static uint64_t slots;  // of a thread
static unsigned octaves;

static bool lost_processor(state_t *s) {
    struct rusage u;
    getrusage(RUSAGE_THREAD, &u);
    const bool more = u.ru_nivcsw != s->losses_known;
    s->losses_known = u.ru_nivcsw;
    return more;
}

static void count_call(state_t *s, int kind, uint64_t t) {
    if (t > LONG_TICKS && lost_processor(s)) s->preempted++;
    else histogram_count(&s->histograms[kind], t);
}

static void *timed_call(const slot_t *at, int kind, size_t size, uint64_t *ret_ticks) {
    void *p = at->p;
    const uint64_t start = ticks();
    if (kind == ALLOC) p = pool ? quarry_pool_alloc(pool, size, 16, 0) : malloc(size);
    else if (kind == RESIZE) p = pool ? quarry_pool_resize(pool, p, at->size, size, 16, 0) : realloc(p, size);
    else if (pool) quarry_pool_free(pool, p, at->size);
    else free(p);
    *ret_ticks = ticks() - start;
    return p;
}

static void one_call(worker_t *w, state_t *s, bool counted) {
    slot_t *const at = &s->slots[bench_random(&w->random) % slots];
    const size_t size = bench_octaves(bench_random(&w->random), 16, octaves);
    const int kind = !at->p ? ALLOC : bench_random(&w->random) % 4 ? FREE
                                                                   : RESIZE;
    if (at->p) touch_check(at->p, at->size, TOUCH_FIRST, (uint64_t)(uintptr_t)at->p);
    uint64_t t;
    char *const p = timed_call(at, kind, size, &t);
    if (counted) count_call(s, kind, t);
    if (kind == FREE) {
        *at = (slot_t){NULL, 0};
        return;
    }
    *at = (slot_t){must_have(p), size};
    for (size_t i = 0; i < size; i += 4096) p[i] = 1;
    touch_write(p, size, TOUCH_FIRST, (uint64_t)(uintptr_t)p);
    w->check += counted ? size : 0;
}

static void work(worker_t *w) {
    state_t *const s = &((state_t *)w->shared)[w->number];
    for (uint64_t i = 0; i < slots * 8; i++) one_call(w, s, false);
    for (uint64_t i = 0; i < count / w->of; i++) {
        if (i % ASK_EVERY == 0) lost_processor(s);
        one_call(w, s, true);
    }
    for (uint64_t i = 0; i < slots; i++) s->payload += s->slots[i].size;
}

static void print(
    int kind, const histogram_t *h, double ns, uint64_t payload, uint64_t preempted, double clock_ns, uint64_t check) {
    static const struct {
        const char *name;
        double part;
    } parts[] = {{"p50_ns", 0.5}, {"p90_ns", 0.9}, {"p99_ns", 0.99}, {"p999_ns", 0.999}, {"p9999_ns", 0.9999}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        scenario_value(parts[i].name, (double)histogram_percentile(h, parts[i].part) * ns);
    scenario_value("max_ns", (double)h->longest * ns);
    scenario_value("preempted", (double)preempted);
    scenario_value("clock_ns", clock_ns);
    // Eight points to each octave are enough for a picture.
    enum { POINT = BUCKETS_PER_OCTAVE / 8 };
    scenario_columns("ns", "calls", NULL);
    for (unsigned b = 0; b < BUCKETS; b += POINT) {
        uint64_t calls = 0;
        for (unsigned i = 0; i < POINT; i++) calls += h->counts[b + i];
        if (calls) scenario_row((double)bucket_begin(b) * ns, (double)calls);
    }
    const phase_t phase = {.name = names[kind],
        .seconds = (double)h->sum * ns * 1e-9,
        .operations = h->calls};
    scenario_print(&phase, payload, check);
}

// Two readings with nothing between them: the median.
static double clock_cost(double ns) {
    static histogram_t empty;
    for (int i = 0; i < 100000; i++) {
        const uint64_t start = ticks();
        histogram_count(&empty, ticks() - start);
    }
    return (double)histogram_percentile(&empty, 0.5) * ns;
}

int main(int argc, char **argv) {
    scenario_begin(argc, argv, "latency",
        "The time of single calls: percentiles, the longest, and a histogram. An operation is a call; seconds are the "
        "sum of the\ncalls' times.",
        options);
    if (with == TLSF && threads > 1) scenario_not_applicable("the pool has one owner");
    while ((size_t)64 << octaves <= largest) octaves++;
    // The mean size of an octave from 16 on is 24 for the first; half the heap full, and four slots in seven in use.
    double mean = 0;
    for (unsigned k = 0; k <= octaves; k++) mean += 24.0 * (double)((uint64_t)1 << k) / (octaves + 1);
    slots = (uint64_t)((double)memory / 2 / mean * 7 / 4 / (double)threads);
    if (with == TLSF)
        pool = must_have(quarry_tlsf_create(&(quarry_tlsf_options_t){
            .buffer = scenario_memory(memory), .buffer_bytes = memory, .flags = QUARRY_TLSF_FIXED}));
    state_t *const states = scenario_memory(threads * sizeof *states);
    slot_t *const all_slots = scenario_memory(threads * slots * sizeof *all_slots);
    for (uint64_t i = 0; i < threads; i++) states[i].slots = all_slots + i * slots;
    const double ns = ns_per_tick(), clock_ns = clock_cost(ns);
    uint64_t check = 0, payload = 0, preempted = 0;
    workers_run((unsigned)threads, work, states, seed, &check);
    for (uint64_t i = 0; i < threads; i++) payload += states[i].payload, preempted += states[i].preempted;
    for (int kind = 0; kind < KINDS; kind++) {
        for (uint64_t i = 1; i < threads; i++) histogram_add(&states[0].histograms[kind], &states[i].histograms[kind]);
        print(kind, &states[0].histograms[kind], ns, payload, preempted, clock_ns, check);
    }
    return scenario_end();
}
