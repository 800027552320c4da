// SPDX-License-Identifier: MIT
// large: buffers of 64 KiB to 16 MiB, each octave equally often, one write in each page. What it costs
// to get pages from the kernel and to give them back too eagerly, and what is held for keeping them.
#include "bench.h"

enum { BUFFERS = 32 };

static void *churn(void *arg) {
    bench_thread_t *t = arg;
    block_t table[BUFFERS] = {{NULL, 0}};
    for (uint64_t i = 0; i < t->ops; i++) {
        const size_t slot = bench_between((uint32_t)bench_random(&t->random), 0, BUFFERS - 1);
        block_free(table[slot]);
        table[slot] = block_new(bench_octaves(bench_random(&t->random), 65536, 7));
        t->check += table[slot].size;
    }
    for (size_t i = 0; i < BUFFERS; i++) block_free(table[i]);
    return NULL;
}

int main(int argc, char **argv) {
    const bench_t b = bench_begin(argc, argv, "large", 1, 3000);
    return bench_end(&b, bench_threads(&b, churn, NULL, b.ops, 0));
}
