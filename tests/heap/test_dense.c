// SPDX-License-Identifier: MIT
// Huge pages: what is asked for stays within the bound whatever happens, and follows the system's setting, forks, and
// faults that take long.
#include "pages/dense.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pages/chunk_state.h"
#include "heap_test.h"

#define MIB ((size_t)1 << 20)
#define NOW UINT64_C(1000000000000)
#define SECOND UINT64_C(1000000000)

// ---- the policy -----------------------------------------------------------------------------------------

static uint64_t seed = 1;
static size_t any(size_t below) {
    seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (size_t)(seed >> 33) % below;
}

// A heap that grows, fills its huge pages or not, and asks whenever it may.
TEST(waste_is_bounded) {
    for (int round = 0; round < 200; round++) {
        qy_dense_t d = {0};
        size_t touched = any(4 * QY_DENSE_LEAST), asked = 0;
        for (int step = 0; step < 2000; step++) {
            size_t taken = (1 + any(QY_CHUNK_UNITS)) * QY_UNIT;
            if (qy_dense_may(&d, touched, taken, NOW)) {
                CHECK_LE(QY_DENSE_LEAST, touched);
                d.waste += QY_CHUNK - taken;
                asked++;
                CHECK_LE(d.waste, qy_dense_most(touched));
            }
            touched += taken;
            size_t filled = any(d.waste / QY_UNIT + 1) * QY_UNIT;  // out of the chunks that are there
            if (any(2)) {
                d.waste -= filled;
                touched += filled;
            }
        }
        CHECK(asked);
    }
}

TEST(small_heaps_do_not_ask) {
    qy_dense_t d = {0};
    CHECK(!qy_dense_may(&d, QY_DENSE_LEAST - 1, QY_CHUNK, NOW));
    CHECK(qy_dense_may(&d, QY_DENSE_LEAST, QY_UNIT, NOW));
}

TEST(rests_after_slow_faults) {
    qy_dense_t d = {0};
    uint64_t now = NOW;
    qy_dense_took(&d, QY_DENSE_SLOW, now);
    CHECK(qy_dense_may(&d, QY_DENSE_LEAST, QY_CHUNK, now));  // one may be chance
    qy_dense_took(&d, QY_DENSE_SLOW - 1, now);
    qy_dense_took(&d, QY_DENSE_SLOW, now);
    CHECK(qy_dense_may(&d, QY_DENSE_LEAST, QY_CHUNK, now));  // nor did two follow each other
    for (uint64_t rest = QY_DENSE_REST; rest <= QY_DENSE_REST_MOST; rest *= 2) {
        d.slow = 0;
        qy_dense_took(&d, QY_DENSE_SLOW, now);
        qy_dense_took(&d, QY_DENSE_SLOW, now);
        CHECK(!qy_dense_may(&d, QY_DENSE_LEAST, QY_CHUNK, now + rest - 1));
        CHECK(qy_dense_may(&d, QY_DENSE_LEAST, QY_CHUNK, now + rest));
        now += rest;
    }
    for (int i = 0; i < 2; i++) qy_dense_took(&d, QY_DENSE_SLOW, now);
    CHECK(qy_dense_may(&d, QY_DENSE_LEAST, QY_CHUNK, now + QY_DENSE_REST_MOST));
    for (int i = 0; i < 40; i++) qy_dense_took(&d, 1, now);
    CHECK_EQ(d.rest, 0);
}

// ---- in the page layer ----------------------------------------------------------------------------------

enum { LARGE = 32,
    CHUNKS = 16 };
static qy_units_t filler[64], some[CHUNKS];

// A heap of so many bytes; no time passes.
static void a_heap(unsigned mode) {
    qy_opts.huge_pages = true;
    qy_os_faked_thp = mode;
    if (!qy_os_fake_now) qy_os_fake_now = NOW;
    qy_os_fake_now += 100 * SECOND;  // a fork, and slow faults, are long past
    for (int i = 0; i < LARGE; i++) CHECK(qy_units_take(QY_CHUNK_UNITS, 1, &filler[i]));
}
static void no_heap(void) {
    for (int i = 0; i < LARGE; i++) qy_units_give(filler[i].chunk, 0, QY_CHUNK_UNITS, ~(qy_bits_t)0);
    CHECK(qy_units_release());
    CHECK_EQ(qy_dense_bytes(), 0);
    CHECK_EQ(qy_dense_waste(), 0);
    verify_all();
    qy_os_faked_thp = 0;
}
// n units, as for a slab that is filled.
static void take_filled(qy_units_t *ret, unsigned n) {
    CHECK(qy_units_take_at(n, 1, 1, true, ret));
    char *at = ret->chunk->record.base + ret->first * QY_UNIT;
    for (size_t i = 0; i < n * QY_UNIT; i += 512) CHECK_EQ(at[i], 0);
    memset(at, 1, n * QY_UNIT);
    CHECK(!qy_units_check());
}
static void give(const qy_units_t *u, unsigned n) {
    qy_units_give(u->chunk, u->first, n, qy_bits_run(0, n));
    CHECK(!qy_units_check());
}

TEST(follows_the_system) {
    for (unsigned mode = QY_OS_THP_NONE; mode <= QY_OS_THP_ALWAYS; mode++) {
        a_heap(mode);
        take_filled(&some[0], 16);
        CHECK_EQ(qy_dense_bytes(), mode == QY_OS_THP_ASKED ? QY_CHUNK : 0);
        CHECK_EQ(qy_dense_waste(), mode == QY_OS_THP_ASKED ? QY_CHUNK - 16 * QY_UNIT : 0);
        give(&some[0], 16);
        no_heap();
    }
    a_heap(QY_OS_THP_ASKED);
    qy_opts.huge_pages = false;
    take_filled(&some[0], 16);
    CHECK_EQ(qy_dense_bytes(), 0);
    give(&some[0], 16);
    no_heap();
}

TEST(small_heap) {
    qy_opts.huge_pages = true;
    qy_os_faked_thp = QY_OS_THP_ASKED;
    take_filled(&some[0], 16);
    CHECK_EQ(qy_dense_bytes(), 0);
    give(&some[0], 16);
    qy_os_faked_thp = 0;
}

// What may stay untouched gets its units elsewhere, until those of the huge page were touched.
TEST(large_objects_are_elsewhere) {
    a_heap(QY_OS_THP_ASKED);
    take_filled(&some[0], 16);
    CHECK(qy_units_take(16, 1, &some[1]));
    CHECK(some[1].chunk != some[0].chunk && !qy_dense_has(some[1].chunk));
    give(&some[0], 16);
    CHECK(qy_units_take(16, 1, &some[2]));
    CHECK(some[2].chunk == some[0].chunk && some[2].first == some[0].first);
    give(&some[1], 16);
    give(&some[2], 16);
    no_heap();
}

TEST(filled_one_after_the_other) {
    a_heap(QY_OS_THP_ASKED);
    for (int i = 0; i < CHUNKS; i++) {
        take_filled(&some[i], 64);
        CHECK_LE(qy_dense_waste(), qy_dense_most(qy_units_touched_bytes()));
    }
    CHECK_EQ(qy_dense_bytes(), CHUNKS / 2 * QY_CHUNK);
    CHECK_EQ(qy_dense_waste(), 0);
    for (int i = 0; i < CHUNKS; i++) give(&some[i], 64);
    no_heap();
}

// Whole ones go first; the part of one only where all that is old goes.
TEST(given_back) {
    a_heap(QY_OS_THP_ASKED);
    for (int i = 0; i < 4; i++) take_filled(&some[i], 64);
    give(&some[0], 64);
    give(&some[2], 64);
    give(&some[3], 64);
    CHECK_EQ(qy_dense_bytes(), 2 * QY_CHUNK);
    qy_lock_take(qy_purging_lock());
    CHECK_EQ(qy_units_purge(0, 0, 0, QY_CHUNK), QY_CHUNK);
    CHECK(qy_dense_has(some[0].chunk) && !qy_dense_has(some[2].chunk));
    CHECK_EQ(qy_units_purge(0, 0, 0, SIZE_MAX), 64 * QY_UNIT);
    qy_lock_drop(qy_purging_lock());
    CHECK_EQ(qy_dense_bytes(), 0);
    CHECK_EQ(qy_dense_waste(), 0);
    CHECK(!qy_units_check());
    take_filled(&some[2], 64);  // what is whole and clean may have one again
    give(&some[1], 64);
    give(&some[2], 64);
    no_heap();
}

TEST(not_after_a_fork) {
    a_heap(QY_OS_THP_ASKED);
    pid_t child = fork();
    CHECK(child >= 0);
    take_filled(&some[0], 64);
    CHECK_EQ(qy_dense_bytes(), 0);
    if (!child) _exit(0);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    qy_os_fake_now += QY_DENSE_FORK;
    take_filled(&some[1], QY_CHUNK_UNITS);
    CHECK_EQ(qy_dense_bytes(), QY_CHUNK);
    give(&some[0], 64);
    give(&some[1], QY_CHUNK_UNITS);
    no_heap();
}

TEST_MAIN()
