// SPDX-License-Identifier: MIT
// mixed_medium: buffers of 1 to 64 KiB, each octave equally often, replaced in random order.
#include "bench.h"

enum { BUFFERS = 1500 };

static void *churn(void *arg) {
    bench_thread_t *t = arg;
    block_t table[BUFFERS] = {{NULL, 0}};
    for (uint64_t i = 0; i < t->ops; i++) {
        const size_t slot = bench_between((uint32_t)bench_random(&t->random), 0, BUFFERS - 1);
        block_free(table[slot]);
        table[slot] = block_new(bench_octaves(bench_random(&t->random), 1024, 5));
        t->check += table[slot].size;
    }
    for (size_t i = 0; i < BUFFERS; i++) block_free(table[i]);
    return NULL;
}

int main(int argc, char **argv) {
    const bench_t b = bench_begin(argc, argv, "mixed_medium", 1, 2000000);
    return bench_end(&b, bench_threads(&b, churn, NULL, b.ops, 0));
}
