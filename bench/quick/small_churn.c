// SPDX-License-Identifier: MIT
// small_churn: small objects replaced one by one. Three of four replacements hit the hot twentieth of
// the table, so that most objects die young and some get old, as in programs.
#include "bench.h"

enum { OBJECTS = 40000 };
enum { HOT = OBJECTS / 20 };

static void *churn(void *arg) {
    bench_thread_t *t = arg;
    block_t *table = calloc(OBJECTS, sizeof *table);
    if (!table) bench_fail("out of memory");
    for (uint64_t i = 0; i < t->ops; i++) {
        const uint64_t r = bench_random(&t->random);
        const size_t slot = (r >> 62) ? bench_between((uint32_t)(r >> 16), 0, HOT - 1)
                                      : bench_between((uint32_t)(r >> 16), HOT, OBJECTS - 1);
        block_free(table[slot]);
        table[slot] = block_new(bench_small_size(bench_random(&t->random)));
        t->check += table[slot].size;
    }
    for (size_t i = 0; i < OBJECTS; i++) block_free(table[i]);
    free(table);
    return NULL;
}

int main(int argc, char **argv) {
    const bench_t b = bench_begin(argc, argv, "small_churn", 1, 14000000);
    return bench_end(&b, bench_threads(&b, churn, NULL, b.ops, 0));
}
