// SPDX-License-Identifier: MIT
// mt_churn: threads that each replace objects of their own, and in one of ten steps lay one into a
// shared place and take away what another thread left there. Some of all frees are thus of another
// thread's blocks, in no order, and nobody knows which.
#include <stdatomic.h>

#include "bench.h"

enum { OBJECTS = 10000 };
enum { PLACES = 256 };

// A block travels as one pointer: its size stands in its first bytes.
typedef struct parcel {
    size_t size;
} parcel_t;

static parcel_t *parcel_new(size_t size) {
    parcel_t *p = malloc(size);
    if (!p) bench_fail("out of memory");
    for (size_t i = 64; i < size; i += 64) ((char *)p)[i] = (char)size;
    p->size = size;
    return p;
}

static void parcel_free(parcel_t *p) {
    if (!p) return;
    if (p->size < sizeof *p || p->size > 1 << 20) bench_fail("a parcel has changed");
    const size_t last = (p->size - 1) / 64 * 64;
    if (last && ((char *)p)[last] != (char)p->size) bench_fail("a parcel's end has changed");
    free(p);
}

static void *churn(void *arg) {
    bench_thread_t *t = arg;
    _Atomic(parcel_t *) *places = t->shared;
    parcel_t **table = calloc(OBJECTS, sizeof *table);
    if (!table) bench_fail("out of memory");
    for (uint64_t i = 0; i < t->ops; i++) {
        const uint64_t r = bench_random(&t->random), s = bench_random(&t->random);
        const size_t slot = bench_between((uint32_t)r, 0, OBJECTS - 1);
        const size_t size = (s >> 40) % 100 ? bench_small_size(s) : bench_octaves(s, 1024, 3);
        if ((r >> 32) % 10 == 0)
            table[slot] = atomic_exchange_explicit(&places[r >> 56], table[slot], memory_order_acq_rel);
        parcel_free(table[slot]);
        table[slot] = parcel_new(size);
        t->check += size;
    }
    for (size_t i = 0; i < OBJECTS; i++) parcel_free(table[i]);
    free(table);
    return NULL;
}

int main(int argc, char **argv) {
    const bench_t b = bench_begin(argc, argv, "mt_churn", 2, 14000000);
    static _Atomic(parcel_t *) places[PLACES];
    const uint64_t check = bench_threads(&b, churn, places, b.ops, 0);
    for (size_t i = 0; i < PLACES; i++) parcel_free(atomic_load(&places[i]));
    return bench_end(&b, check);
}
