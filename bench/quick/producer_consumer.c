// SPDX-License-Identifier: MIT
// producer_consumer: one half of the threads allocates messages, the other reads and frees them, so
// that every block is freed by a thread that did not allocate it, and producers never free anything.
#include <sched.h>
#include <stdatomic.h>

#include "bench.h"

enum { RING = 512 };
enum { BATCH = 32 };

// From one producer to one consumer, a batch at a time.
typedef struct ring {
    _Alignas(64) _Atomic(uint64_t) written;
    _Alignas(64) _Atomic(uint64_t) read;
    _Alignas(64) block_t messages[RING][BATCH];
} ring_t;

static void produce(bench_thread_t *t, ring_t *ring, uint64_t batches) {
    for (uint64_t n = 0; n < batches; n++) {
        while (n - atomic_load_explicit(&ring->read, memory_order_acquire) == RING) sched_yield();
        for (int i = 0; i < BATCH; i++) {
            const uint64_t r = bench_random(&t->random);
            // One in 64 messages is a buffer.
            ring->messages[n % RING][i] = block_new(r % 64 ? bench_small_size(r) : bench_octaves(r, 1024, 4));
            t->check += ring->messages[n % RING][i].size;
        }
        atomic_store_explicit(&ring->written, n + 1, memory_order_release);
    }
}

static void consume(bench_thread_t *t, ring_t *ring, uint64_t batches) {
    for (uint64_t n = 0; n < batches; n++) {
        while (atomic_load_explicit(&ring->written, memory_order_acquire) == n) sched_yield();
        for (int i = 0; i < BATCH; i++) {
            t->check += ring->messages[n % RING][i].size;
            block_free(ring->messages[n % RING][i]);
        }
        atomic_store_explicit(&ring->read, n + 1, memory_order_release);
    }
}

static void *body(void *arg) {
    bench_thread_t *t = arg;
    ring_t *ring = (ring_t *)t->shared + t->number / 2;
    const uint64_t batches = t->ops * 2 / BATCH;  // of a pair of threads
    t->number % 2 ? consume(t, ring, batches) : produce(t, ring, batches);
    return NULL;
}

int main(int argc, char **argv) {
    bench_t b = bench_begin(argc, argv, "producer_consumer", 2, 8000000);
    b.threads += b.threads % 2;
    ring_t *rings = aligned_alloc(64, b.threads / 2 * sizeof *rings);
    if (!rings) bench_fail("out of memory");
    memset(rings, 0, b.threads / 2 * sizeof *rings);
    const uint64_t check = bench_threads(&b, body, rings, b.ops, 0);
    free(rings);
    return bench_end(&b, check);
}
