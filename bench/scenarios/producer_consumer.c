// SPDX-License-Identifier: MIT
// producer-consumer: pairs of threads; one allocates messages, the other one reads and frees them. So every block is
// freed by a thread that did not allocate it, and a producer frees nothing.
#include <sched.h>
#include <stdatomic.h>

#include "scenario.h"

enum { RING = 512,
    BATCH = 32,
    PAIRS = 64 };

// From one producer to one consumer, a batch at a time.
typedef struct ring {
    _Alignas(64) _Atomic(uint64_t) written;
    _Alignas(64) _Atomic(uint64_t) read;
    _Alignas(64) block_t messages[RING][BATCH];
} ring_t;

static uint64_t with, threads = 2, count = 8000000, pending = RING, seed = 1;
static const option_t options[] = {
    CHOICE("with", &with, "malloc", "the allocator"),
    NUMBER("threads", &threads, 2, 2 * PAIRS, "an even number: half of them produce"),
    NUMBER("count", &count, BATCH, (uint64_t)1 << 40, "messages in all"),
    NUMBER("pending", &pending, 1, RING, "most batches of 32 messages that a consumer may be behind"),
    OPTION_SEED(&seed),
    {0},
};

static uint64_t batches;  // of a pair

// One in 64 messages is a buffer.
static void produce(worker_t *w, ring_t *ring) {
    for (uint64_t n = 0; n < batches; n++) {
        while (n - atomic_load_explicit(&ring->read, memory_order_acquire) >= pending) sched_yield();
        for (int i = 0; i < BATCH; i++) {
            const uint64_t r = bench_random(&w->random);
            const block_t b = block_new(r % 64 ? bench_small_size(r) : bench_octaves(r, 1024, 4));
            ring->messages[n % RING][i] = b;
            w->check += b.size;
        }
        atomic_store_explicit(&ring->written, n + 1, memory_order_release);
    }
}

static void consume(worker_t *w, ring_t *ring) {
    for (uint64_t n = 0; n < batches; n++) {
        while (atomic_load_explicit(&ring->written, memory_order_acquire) == n) sched_yield();
        for (int i = 0; i < BATCH; i++) {
            w->check -= ring->messages[n % RING][i].size;
            block_free(ring->messages[n % RING][i]);
        }
        atomic_store_explicit(&ring->read, n + 1, memory_order_release);
    }
}

static void body(worker_t *w) {
    ring_t *const ring = (ring_t *)w->shared + w->number / 2;
    w->number % 2 ? consume(w, ring) : produce(w, ring);
}

int main(int argc, char **argv) {
    phase_t all = {.name = ""};
    uint64_t difference = 0;
    scenario_begin(argc, argv, "producer-consumer",
        "Half of the threads allocate messages, the others free them. An operation is a message.", options);
    if (threads % 2) scenario_not_applicable("an odd number of threads makes no pairs");
    batches = (count / (threads / 2) + BATCH - 1) / BATCH;
    ring_t *const rings = scenario_memory(threads / 2 * sizeof *rings);
    phase_begin(&all);
    const double seconds = workers_run((unsigned)threads, body, rings, seed, &difference);
    phase_end_timed(&all, seconds, batches * BATCH * (threads / 2));
    if (difference) bench_fail("what was consumed is not what was produced");
    scenario_print(&all, 0, all.operations);
    return scenario_end();
}
