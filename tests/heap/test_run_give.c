// SPDX-License-Identifier: MIT
// The pages of a run that ends: those of one that lived for long go back at once, some of them a second, and so do
// those of the first of its size; others wait.
#include <quarry/malloc.h>
#include <string.h>

#include "heap_test.h"
#include "pages/chunk.h"
#include "pages/chunk_state.h"

#define LONG UINT64_C(100000000)
#define RATE ((uint64_t)6 << 20)
#define AT_ONCE ((size_t)2 << 20)
#define RUN ((size_t)1 << 20)
#define TRUST 8
#define NOW UINT64_C(1000000000000)

static char *new_run(void) {
    char *p = quarry_malloc(RUN);
    CHECK(p != NULL);
    memset(p, 1, RUN);
    return p;
}
static size_t purged(void) {
    size_t bytes;
    qy_purging_counted(&bytes);
    return bytes;
}

static void begin(void) {
    if (qy_os_thp_always())
        TEST_SKIP("needs huge pages that are not always on (/sys/kernel/mm/transparent_hugepage/enabled)");
    quarry_trim(0);
    qy_purging_of_runs.spent_until = 0;
    qy_os_fake_now = NOW;        // no time passes but what a test says
    qy_run_largest_first = RUN;  // there was one
}

TEST(old_goes_at_once) {
    begin();
    char *p = new_run();
    span_of(p)->made -= LONG;
    size_t dirty = qy_units_dirty_bytes(), before = purged();
    quarry_free(p);
    CHECK_EQ(purged() - before, RUN);
    CHECK_EQ(qy_units_dirty_bytes(), dirty);
    // What is had there next is clean, and known to be.
    char *q = quarry_calloc(1, RUN);
    for (size_t i = 0; i < RUN; i++) CHECK_EQ(q[i], 0);
    quarry_free(q);
    verify_all();
}

TEST(young_waits) {
    begin();
    char *p = new_run();
    size_t dirty = qy_units_dirty_bytes(), before = purged();
    qy_os_fake_now += LONG - 1;
    quarry_free(p);
    CHECK_EQ(purged(), before);
    CHECK_EQ(qy_units_dirty_bytes(), dirty + RUN);
    p = new_run();
    qy_os_fake_now += LONG;
    quarry_free(p);
    CHECK_EQ(purged() - before, RUN);
}

TEST(the_end_of_one_that_shrinks) {
    begin();
    char *p = new_run();
    span_of(p)->made -= LONG;
    size_t before = purged();
    CHECK(quarry_realloc(p, RUN / 2) == p);
    CHECK_EQ(purged() - before, RUN / 2);
    for (size_t i = 0; i < RUN / 2; i++) CHECK_EQ(p[i], 1);
    quarry_free(p);
    verify_all();
}

TEST(so_much_a_second) {
    enum { RUNS = 64 };
    begin();
    char *p[RUNS];
    for (int i = 0; i < RUNS; i++) {
        p[i] = new_run();
        span_of(p[i])->made -= LONG;
    }
    size_t before = purged();
    for (int i = 0; i < RUNS; i++) quarry_free(p[i]);
    CHECK_GE(purged() - before, TRUST * AT_ONCE);
    CHECK_LE(purged() - before, TRUST * AT_ONCE + RUN);
    // Later there is some more.
    char *q = new_run();
    span_of(q)->made -= LONG;
    qy_purging_of_runs.spent_until = qy_os_now_coarse_ns() - 1;
    before = purged();
    quarry_free(q);
    CHECK_EQ(purged() - before, RUN);
    verify_all();
}

// An eighth is paid for when it goes, the rest when somebody has it again.
TEST(paid_for_when_had_again) {
    begin();
    char *p[2] = {new_run(), new_run()};
    for (int i = 0; i < 2; i++) span_of(p[i])->made -= LONG;
    uint64_t second = 1000000000, cost = RUN * second / RATE, spent = qy_os_now_coarse_ns() - 1;
    qy_purging_of_runs.spent_until = spent;
    size_t before = purged();
    for (int i = 0; i < 2; i++) {
        quarry_free(p[i]);
        CHECK_EQ(purged() - before, RUN);
    }
    CHECK_GE(qy_purging_of_runs.spent_until - spent, cost / TRUST - 1000);
    CHECK_LE(qy_purging_of_runs.spent_until - spent, cost / TRUST + 1000);
    // Had again: the rest. What was free without having gone costs nothing, nor does it a second time.
    spent = qy_purging_of_runs.spent_until;
    for (int i = 0; i < 2; i++) p[i] = new_run();
    CHECK_GE(qy_purging_of_runs.spent_until - spent, cost - cost / TRUST - 1000);
    CHECK_LE(qy_purging_of_runs.spent_until - spent, cost - cost / TRUST + 1000);
    spent = qy_purging_of_runs.spent_until;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 2; i++) quarry_free(p[i]);
        for (int i = 0; i < 2; i++) p[i] = new_run();
    }
    CHECK_EQ(qy_purging_of_runs.spent_until, spent);
    for (int i = 0; i < 2; i++) quarry_free(p[i]);
    verify_all();
}

// However young, once; and then one of twice the size. Not what is large beside all runs.
TEST(first_of_its_size) {
    static const struct {
        size_t bytes;
        bool goes;
    } runs[] = {{RUN / 2, true}, {RUN / 2, false}, {RUN / 4, false}, {RUN * 3 / 4, false}, {RUN, true}, {RUN, false},
        {4 * RUN, false}, {2 * RUN, true}, {2 * RUN, false}};
    begin();
    qy_run_largest_first = 0;
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        char *p = quarry_malloc(runs[i].bytes);
        CHECK(p);
        memset(p, 1, runs[i].bytes);
        size_t before = purged();
        quarry_free(p);
        CHECK_EQ(purged() - before, runs[i].goes ? runs[i].bytes : 0);
    }
    verify_all();
}

// A fork waits for the purge lock: in its child, a run that is with the kernel just then would be nobody's.
TEST(waits_where_a_fork_could_not_know) {
    begin();
    char *p = new_run();
    span_of(p)->made -= LONG;
    size_t dirty = qy_units_dirty_bytes(), before = purged();
    qy_lock_take(qy_purging_lock());
    quarry_free(p);
    qy_lock_drop(qy_purging_lock());
    CHECK_EQ(purged(), before);
    CHECK_EQ(qy_units_dirty_bytes(), dirty + RUN);
    verify_all();
}

TEST(what_came_last_is_young) {
    begin();
    char *p = new_run();
    span_of(p)->made -= LONG;
    size_t before = purged();
    char *q = quarry_realloc(p, 2 * RUN);
    CHECK_PTR_EQ(q, p);
    fill(q, RUN, 2 * RUN, 1);
    CHECK_PTR_EQ(p = quarry_realloc(q, RUN), q);
    CHECK_EQ(purged() - before, 0);
    quarry_free(p);
    verify_all();
}

TEST(what_cannot_go_stays_dirty) {
    begin();
    char *p = new_run();
    span_of(p)->made -= LONG;
    size_t dirty = qy_units_dirty_bytes(), before = purged();
    quarry_os_fault(1, 1, FAULT(PURGE));
    quarry_free(p);
    quarry_os_fault(0, 0, 0);
    CHECK_EQ(purged(), before);
    CHECK_EQ(qy_units_dirty_bytes(), dirty + RUN);
    verify_all();
}

TEST_MAIN()
