// SPDX-License-Identifier: MIT
// What went back and is needed again within a second is counted, once, of whatever kind it is.
#include <pthread.h>
#include <quarry/malloc.h>
#include <quarry/stats.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include "heap_test.h"
#include "pages/chunk.h"
#include "pages/purging.h"

#define MIB ((size_t)1 << 20)
#define NOW UINT64_C(1000000000000)

static size_t regret(void) {
    quarry_stats_t st;
    quarry_stats_read(&st);
    CHECK_EQ(st.regret_bytes, qy_purging_regretted());
    CHECK_LE(st.regret_bytes, st.purged_bytes);
    return st.regret_bytes;
}

static void begin(void) {
    quarry_trim(0);
    qy_purging_of_runs.spent_until = UINT64_MAX / 2;  // no run gives its pages back by itself
    qy_run_largest_first = SIZE_MAX / 2;
    qy_os_fake_now = NOW;  // no time passes but what a test says
}

static void *filled(size_t size) {
    void *p = quarry_malloc(size);
    CHECK(p);
    memset(p, 1, size);
    return p;
}

// A run that ended has gone back, and such a run comes again after so long.
static size_t regret_of_run(size_t size, uint64_t ns) {
    begin();
    quarry_free(filled(size));
    size_t before = regret();
    purge_units(qy_purging_epoch(), 0, 0, SIZE_MAX);
    CHECK_EQ(qy_units_dirty_bytes(), 0);
    qy_os_fake_now += ns;
    void *p = filled(size);
    size_t once = regret() - before;
    quarry_free(p);
    CHECK_PTR_EQ(p = filled(size), p);
    CHECK_EQ(regret() - before, once);  // what stayed is no regret
    quarry_free(p);
    return once;
}

TEST(units) {
    CHECK_EQ(regret_of_run(MIB, 0), MIB);
    CHECK_EQ(regret_of_run(MIB, QY_PURGING_REGRET_NS - 1), MIB);
    CHECK_EQ(regret_of_run(MIB, QY_PURGING_REGRET_NS), 0);
    CHECK_EQ(regret_of_run(5 * MIB, 0), 5 * MIB);  // through several chunks
    CHECK_EQ(regret_of_run(5 * MIB, QY_PURGING_REGRET_NS), 0);
    verify_all();
}

TEST(a_run_that_gives_at_once) {
    begin();
    qy_purging_of_runs.spent_until = 0;
    char *p = filled(MIB);
    qy_os_fake_now += 2 * QY_PURGING_REGRET_NS;  // it lived long, so its pages go at its end
    size_t before = regret(), purged, after;
    qy_purging_counted(&purged);
    quarry_free(p);
    qy_purging_counted(&after);
    CHECK_EQ(after - purged, MIB);
    quarry_free(filled(MIB));
    CHECK_EQ(regret() - before, MIB);
    // The first of its size goes, too, and from no budget.
    qy_purging_of_runs.spent_until = UINT64_MAX / 2;
    qy_run_largest_first = 0;
    p = filled(MIB);
    before = regret();
    quarry_free(p);
    quarry_free(filled(MIB));
    CHECK_EQ(regret() - before, MIB);
    verify_all();
}

// Blocks of 64 bytes, of which one in each 64 KiB stays.
static size_t regret_of_blocks(uint64_t ns) {
    enum { SIZE = 64,
        MANY = 4 * 1024 * 1024 / SIZE,
        STAY = 1024 };
    static void *block[MANY];
    begin();
    for (int i = 0; i < MANY; i++) block[i] = filled(SIZE);
    for (int i = 0; i < MANY; i++)
        if (i % STAY) quarry_free(block[i]);
    size_t before = regret();
    quarry_trim(0);
    quarry_stats_t st;
    quarry_stats_read(&st);
    CHECK_GT(st.slab_purged_bytes, 2 * MIB);
    qy_os_fake_now += ns;
    for (int i = 0; i < MANY; i++)
        if (i % STAY) block[i] = filled(SIZE);
    size_t again = regret() - before;
    for (int i = 0; i < MANY; i++) quarry_free(block[i]);
    return again;
}

TEST(pages_in_slabs) {
    CHECK_GT(regret_of_blocks(0), 2 * MIB);
    CHECK_EQ(regret_of_blocks(QY_PURGING_REGRET_NS), 0);
    verify_all();
}

// Aligned as no run is.
static void *mapping(size_t size) {
    void *p = quarry_aligned_alloc(2 * QY_CHUNK, size);
    CHECK(p);
    return memset(p, 1, size);
}

TEST(mappings) {
    begin();
    quarry_free(mapping(64 * MIB));
    size_t before = regret();
    void *p = mapping(40 * MIB), *q = mapping(40 * MIB);
    CHECK_EQ(regret() - before, 64 * MIB);  // no more than went
    quarry_free(p);
    qy_os_fake_now += QY_PURGING_REGRET_NS;
    p = mapping(40 * MIB);
    CHECK_EQ(regret() - before, 64 * MIB);
    quarry_free(q);  // what went before that second is forgotten
    quarry_free(mapping(80 * MIB));
    CHECK_EQ(regret() - before, 104 * MIB);
    quarry_free(p);
    verify_all();
}

// Two threads come to the same place at once in one of some 50,000 rounds. On a busy machine a round takes
// milliseconds, so time ends them, too.
enum { ROUNDS = 100000,
    SECONDS = 5,
    STOP = ROUNDS + 1 };
static _Atomic int turn, at_end;

static void *maps_in_each_round(void *unused) {
    (void)unused;
    for (int i = 1; i <= ROUNDS; i++) {
        for (int spins = 1; atomic_load(&turn) < i; spins++)
            if (spins % 1000 == 0) sched_yield();
        if (atomic_load(&turn) == STOP) break;
        qy_purging_mapped(MIB);
        atomic_fetch_add(&at_end, 1);
    }
    return NULL;
}

// What went once is not regretted twice, when two threads map at the same time.
TEST(mappings_of_threads) {
    begin();
    qy_os_fake_now += 2 * QY_PURGING_REGRET_NS;  // nothing is left of other tests
    size_t before = qy_purging_regretted();
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, maps_in_each_round, NULL), 0);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const time_t end = now.tv_sec + SECONDS;
    for (int i = 1; i <= ROUNDS && now.tv_sec < end; i++, clock_gettime(CLOCK_MONOTONIC, &now)) {
        qy_purging_unmapped(MIB);
        atomic_store(&turn, i);
        qy_purging_mapped(MIB);
        while (atomic_load(&at_end) < i) sched_yield();
        CHECK_EQ((qy_purging_regretted() - before) / MIB, i);
    }
    atomic_store(&turn, STOP);
    CHECK_EQ(pthread_join(thread, NULL), 0);
}

TEST_MAIN()
