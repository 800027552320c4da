// SPDX-License-Identifier: MIT
// thread-churn: threads that start, allocate a little and end, so many at a time. Some of what a thread makes is freed
// by the thread that comes after it in its place, as a server's requests leave sessions and cache entries behind.
#include "scenario.h"

enum { PLACES = 256,
    LEFT = 64 };

static uint64_t with, threads = 4, count = 20000, blocks = 100, per_cent = 20, seed = 1;
static const option_t options[] = {
    CHOICE("with", &with, "malloc", "the allocator"),
    NUMBER("threads", &threads, 1, PLACES, "alive at the same time"),
    NUMBER("count", &count, 1, 1 << 30, "threads in all"),
    NUMBER("blocks", &blocks, 1, 1 << 20, "that each allocates, of sizes as in programs"),
    NUMBER("per-cent", &per_cent, 0, 100, "of the blocks are left to the next thread, 64 at the most"),
    OPTION_SEED(&seed),
    {0},
};

typedef struct place {
    pthread_t id;
    uint64_t random, check;
    block_t left[LEFT];
    size_t count;
} place_t;

static place_t places[PLACES];

static void drop_left(place_t *p) {
    for (size_t i = 0; i < p->count; i++) block_free(p->left[i]);
    p->count = 0;
}

static void *live(void *arg) {
    place_t *const p = arg;
    block_t held[16] = {{NULL, 0}};
    drop_left(p);
    for (uint64_t i = 0; i < blocks; i++) {
        const uint64_t r = bench_random(&p->random);
        const block_t b = block_new(bench_small_size(r));
        p->check += b.size;
        if (p->count < LEFT && (r >> 40) % 100 < per_cent) {
            p->left[p->count++] = b;
            continue;
        }
        block_free(held[i % 16]);
        held[i % 16] = b;
    }
    for (int i = 0; i < 16; i++) block_free(held[i]);
    return NULL;
}

int main(int argc, char **argv) {
    phase_t all = {.name = ""};
    uint64_t check = 0;
    scenario_begin(argc, argv, "thread-churn",
        "Threads start, allocate, free what others left, and end. An operation is a thread.", options);
    phase_begin(&all);
    for (uint64_t i = 0; i < count + threads; i++) {
        place_t *const p = &places[i % threads];
        if (i >= threads && pthread_join(p->id, NULL)) bench_fail("a thread cannot be joined");
        if (i >= count) continue;
        p->random = seed * 1000003 + i;
        if (pthread_create(&p->id, NULL, live, p)) bench_fail("no thread");
    }
    phase_end(&all, count);
    for (uint64_t i = 0; i < threads; i++) drop_left(&places[i]), check += places[i].check;
    scenario_value("blocks_per_second", (double)(count * blocks) / all.seconds);
    scenario_print(&all, 0, check);
    return scenario_end();
}
