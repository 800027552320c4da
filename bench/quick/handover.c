// SPDX-License-Identifier: MIT
// handover: a server that starts a thread for each piece of work. Threads end and leave what they have
// allocated to the thread that comes after them, which frees it little by little: the live set
// outlives every thread that made it, and the heaps of dead threads must be of use to new ones.
#include "bench.h"

enum { OBJECTS = 5000 };
enum { GENERATIONS = 200 };

typedef struct estate {
    block_t blocks[OBJECTS];
} estate_t;

typedef struct shared {
    estate_t *estates;
    unsigned generation;
} shared_t;

static void *live(void *arg) {
    bench_thread_t *t = arg;
    const shared_t *s = t->shared;
    // Each time another one's: the heirs do not sit on the threads' numbers.
    estate_t *e = &s->estates[(t->number + s->generation) % t->bench->threads];
    for (uint64_t i = 0; i < t->ops; i++) {
        const size_t slot = bench_between((uint32_t)bench_random(&t->random), 0, OBJECTS - 1);
        const uint64_t r = bench_random(&t->random);
        block_free(e->blocks[slot]);
        e->blocks[slot] = block_new(r % 200 ? bench_small_size(r) : bench_octaves(r, 1024, 3));
        t->check += e->blocks[slot].size;
    }
    return NULL;
}

int main(int argc, char **argv) {
    const bench_t b = bench_begin(argc, argv, "handover", 2, 12000000);
    shared_t s = {.estates = calloc(b.threads, sizeof *s.estates)};
    uint64_t check = 0;
    if (!s.estates) bench_fail("out of memory");
    for (; s.generation < GENERATIONS; s.generation++)
        check += bench_threads(&b, live, &s, b.ops / GENERATIONS, s.generation);
    for (unsigned i = 0; i < b.threads; i++) {
        for (size_t k = 0; k < OBJECTS; k++) block_free(s.estates[i].blocks[k]);
    }
    free(s.estates);
    return bench_end(&b, check);
}
