// SPDX-License-Identifier: MIT
// test_ring_threads.c: one thread makes frames, others release them, in any order.
#include <pthread.h>
#include <quarry/ring.h>
#include <quarry/short.h>
#include <stdatomic.h>

#include "harness.h"
#include "pool/ring.h"
#include "pool_test.h"

enum { THREADS = 3,
    TABLE = 256,
    BLOCKS = 8 };

typedef struct message {
    quarry_ring_frame_t frame;
    unsigned n;
    unsigned char *blocks[BLOCKS];
    size_t sizes[BLOCKS];
} message_t;

static quarry_pool_t *pool;
static _Atomic(message_t *) table[TABLE];
static _Atomic int stop;
static _Atomic uint64_t released;

static message_t *new_message(uint64_t *state) {
    quarry_ring_frame_t frame = quarry_ring_newframe(pool);
    CHECK(frame);
    message_t *m = p_new(pool, message_t, 1);
    m->frame = frame;
    m->n = (unsigned)(test_random(state) % BLOCKS);
    for (unsigned i = 0; i < m->n; i++) {
        uint64_t r = test_random(state);
        m->sizes[i] = r % 300 ? r / 512 % 500 : r / 512 % 100000;
        m->blocks[i] = quarry_pool_alloc(pool, m->sizes[i], 1, 0);
        CHECK(m->blocks[i]);
        memset(m->blocks[i], (int)i + 1, m->sizes[i]);
    }
    CHECK_EQ(quarry_ring_seal(pool), frame);
    return m;
}
// Whoever has it reads it, scribbles on it, and releases it.
static void end_message(message_t *m) {
    for (unsigned i = 0; i < m->n; i++) {
        for (size_t b = 0; b < m->sizes[i]; b++) CHECK_EQ(m->blocks[i][b], i + 1);
        memset(m->blocks[i], 0xDD, m->sizes[i]);
    }
    quarry_ring_release(m->frame);
    atomic_fetch_add(&released, 1);
}

static void *releaser(void *arg) {
    uint64_t state = test_seed + (uint64_t)(uintptr_t)arg;
    while (!atomic_load(&stop)) {
        message_t *m = atomic_exchange(&table[test_random(&state) % TABLE], NULL);
        if (m) end_message(m);
    }
    return NULL;
}

static uint64_t steps_of(uint64_t n) {
    const char *env = getenv("QUARRY_STEPS");
    return env ? strtoull(env, NULL, 10) : n;
}

TEST(one_makes_all_release) {
    CHECK((pool = quarry_ring_create(NULL)));
    uint64_t state = test_seed, steps = steps_of(50000);
    pthread_t t[THREADS];
    for (long i = 0; i < THREADS; i++) CHECK_EQ(pthread_create(&t[i], NULL, releaser, (void *)(i + 1)), 0);
    for (uint64_t i = 0; i < steps; i++) {
        message_t *old = atomic_exchange(&table[test_random(&state) % TABLE], new_message(&state));
        if (old) end_message(old);
        if (i % 2000 == 0) CHECK_EQ(quarry_pool_check(pool), 0);
        if (i % 5000 == 0) quarry_ring_reset(pool);
    }
    atomic_store(&stop, 1);
    for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
    for (int i = 0; i < TABLE; i++) {
        message_t *m = atomic_exchange(&table[i], NULL);
        if (m) end_message(m);
    }
    CHECK_EQ(released, steps);
    printf("  peak %zu KiB for at most %d messages of about 2.5 KiB\n", stats_of(pool).peak_held_bytes / 1024, TABLE);
    CHECK_LE(stats_of(pool).peak_held_bytes, (size_t)32 * 1024 * 1024);
    quarry_ring_reset(pool);
    CHECK_EQ(quarry_pool_check(pool), 0);
    CHECK_LE(stats_of(pool).held_bytes, (size_t)QY_RING_CHUNK_MAX);
    quarry_pool_destroy(pool);
}

// Statistics are read elsewhere meanwhile.
static void *reader(void *arg) {
    while (!atomic_load(&stop)) CHECK_LE(stats_of(arg).used_bytes, (size_t)1 << 40);
    return NULL;
}
TEST(statistics_from_elsewhere) {
    CHECK((pool = quarry_ring_create(NULL)));
    uint64_t state = test_seed;
    pthread_t t;
    atomic_store(&stop, 0);
    CHECK_EQ(pthread_create(&t, NULL, reader, pool), 0);
    for (uint64_t i = 0; i < steps_of(50000) / 4; i++) end_message(new_message(&state));
    atomic_store(&stop, 1);
    pthread_join(t, NULL);
    quarry_pool_destroy(pool);
}

enum { SHARE = 30 };
typedef struct share {
    message_t *messages[SHARE];
    pthread_barrier_t *start;
} share_t;
static void *release_share(void *arg) {
    share_t *s = arg;
    pthread_barrier_wait(s->start);
    for (int i = 0; i < SHARE; i++) end_message(s->messages[i]);
    return NULL;
}

TEST(destruction_while_others_release) {
    uint64_t state = test_seed;
    for (uint64_t round = 0; round < steps_of(50000) / 250; round++) {
        share_t shares[THREADS];
        pthread_t t[THREADS];
        pthread_barrier_t start;
        pthread_barrier_init(&start, NULL, THREADS + 1);
        CHECK((pool = quarry_ring_create(NULL)));
        for (int i = 0; i < SHARE; i++)
            for (int k = 0; k < THREADS; k++) shares[k].messages[i] = new_message(&state), shares[k].start = &start;
        for (int k = 0; k < THREADS; k++) CHECK_EQ(pthread_create(&t[k], NULL, release_share, &shares[k]), 0);
        pthread_barrier_wait(&start);
        for (uint64_t i = 0; i < round % 20; i++) end_message(new_message(&state));
        quarry_pool_destroy(pool);
        for (int k = 0; k < THREADS; k++) pthread_join(t[k], NULL);
        CHECK(!exists(pool));
        pthread_barrier_destroy(&start);
    }
}

// One after the other owns the ring; each releases what the one before it made.
static _Atomic(message_t *) relay[1000];
static void *next_owner(void *arg) {
    uint64_t state = test_seed;
    quarry_ring_adopt(pool);
    for (int i = 0; i < 1000; i++) {
        message_t *old = atomic_exchange(&relay[i], new_message(&state));
        if (old) end_message(old);
    }
    return arg;
}
TEST(ownership_goes_round) {
    CHECK((pool = quarry_ring_create(NULL)));
    for (int i = 0; i < 20; i++) {
        pthread_t t;
        CHECK_EQ(pthread_create(&t, NULL, next_owner, NULL), 0);
        pthread_join(t, NULL);
    }
    quarry_pool_destroy(pool);  // with a thousand frames
    for (int i = 0; i < 1000; i++) end_message(atomic_exchange(&relay[i], NULL));
    CHECK(!exists(pool));
}

TEST_MAIN()
