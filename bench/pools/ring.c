// SPDX-License-Identifier: MIT
// ring: the documents' list under contention. Messages of -r blocks of -z bytes, chained; -n blocks in all.
//   -w 1  uncontended: one thread makes each message and ends the one made -t messages before
//   -w 2  contended: another thread ends them while this one makes more; it waits when -t are under way
// Counted is the time spent in making (allocation, in the one thread) and in ending, not in waiting. With malloc the
// blocks of a message are freed one by one. --with nothing: no allocator, the blocks of a message lie in a buffer: what
// the work itself costs.
#include <quarry/ring.h>
#include <sched.h>
#include <stdatomic.h>

#include "pool_bench.h"

typedef struct item {
    struct item *next;
} item_t;

typedef struct place {
    _Atomic(item_t *) head;
    quarry_ring_frame_t frame;
    char apart[112];  // messages are handed over a cache line each
} place_t;

static pool_bench_t b = {.scenario = "ring", .with = "ring", .n = 40000000, .size = 8, .rounds = 1000, .threads = 32, .which = 1};
static quarry_pool_t *pool;
static place_t *queue;
static int use_malloc, use_nothing;
static double making, ending;

static char *buffer;

static void make(place_t *place) {
    const double start = bench_now();
    item_t *head = NULL;
    const size_t size = b.size;
    if (use_nothing) {
        char *at = buffer;
        for (unsigned i = 0; i < b.rounds; i++, at += size) {
            item_t *item = (item_t *)(void *)at;
            item->next = head;
            head = item;
        }
    } else if (use_malloc) {
        for (unsigned i = 0; i < b.rounds; i++) {
            item_t *item = malloc(size);
            if (__builtin_expect(!item, 0)) bench_fail("out of memory");
            item->next = head;
            head = item;
        }
    } else {
        place->frame = quarry_ring_newframe(pool);
        for (unsigned i = 0; i < b.rounds; i++) {
            item_t *item = quarry_ring_alloc(pool, size, 8, 0);
            if (__builtin_expect(!item, 0)) bench_fail("out of memory");
            item->next = head;
            head = item;
        }
        quarry_ring_seal(pool);
    }
    making += bench_now() - start;
    atomic_store_explicit(&place->head, head, memory_order_release);
}

static void end(place_t *place, item_t *head) {
    const double start = bench_now();
    if (!use_malloc && !use_nothing) quarry_ring_release(place->frame);
    for (item_t *next; use_malloc && head; head = next) {
        next = head->next;
        free(head);
    }
    ending += bench_now() - start;
    atomic_store_explicit(&place->head, NULL, memory_order_release);
}

static void *ender(void *arg) {
    uint64_t messages = *(uint64_t *)arg;
    for (uint64_t i = 0; i < messages; i++) {
        place_t *place = &queue[i % b.threads];
        item_t *head;
        while (!(head = atomic_load_explicit(&place->head, memory_order_acquire))) sched_yield();
        end(place, head);
    }
    return NULL;
}

int main(int argc, char **argv) {
    pool_bench_options(&b, argc, argv);
    use_malloc = !strcmp(b.with, "malloc");
    use_nothing = !strcmp(b.with, "nothing");
    if (b.size < sizeof(item_t) || !b.threads || !b.rounds) bench_fail("-z is below 8, or -t or -r is 0");
    buffer = malloc(b.size * b.rounds);
    if (!buffer) bench_fail("out of memory");
    pool = quarry_ring_create(NULL);
    queue = calloc(b.threads, sizeof *queue);
    if (!pool || !queue) bench_fail("out of memory");
    uint64_t messages = b.n / b.rounds;
    pthread_t other;
    pool_bench_phase(1);
    if (b.which == 2 && pthread_create(&other, NULL, ender, &messages)) bench_fail("no thread");
    for (uint64_t i = 0; i < messages; i++) {
        place_t *place = &queue[i % b.threads];
        item_t *old;
        while ((old = atomic_load_explicit(&place->head, memory_order_acquire)) && b.which == 2) sched_yield();
        if (old) end(place, old);
        make(place);
    }
    if (b.which == 2) pthread_join(other, NULL);
    char more[128];
    snprintf(more, sizeof more, ",\"making_seconds\":%.6f,\"ending_seconds\":%.6f", making, ending);
    pool_bench_line(&b, b.which == 2 ? "contended" : "uncontended", making + ending, messages * b.rounds, (uint64_t)b.threads * b.rounds * b.size, more);
    return 0;
}
