// SPDX-License-Identifier: MIT
// What threads' caches keep: the classes of the last period, less where there are many threads; and what is counted of
// those that sleep.
#include "heap/cache.h"

#include <pthread.h>
#include <sys/wait.h>
#include <time.h>

#include "base/compiler.h"
#include "heap/lists.h"
#include "heap/stats_cache.h"
#include "heap_test.h"

static unsigned class_of(size_t n) { return qy_thread_get()->cache.cls[qy_step(n)]; }

static void get_and_free(size_t n, size_t count) {
    static _Thread_local void *block[4096];
    CHECK_LE(count, 4096);
    for (size_t i = 0; i < count; i++) CHECK((block[i] = quarry_malloc(n)));
    for (size_t i = 0; i < count; i++) quarry_free(block[i]);
}

TEST(classes_of_the_last_period_stay) {
    qy_thread_t *t = qy_thread_get();
    // At first there are new slabs, before which lists go home (slab_take.c).
    for (int i = 0; qy_lists_are_empty(t, class_of(64)) || qy_lists_are_empty(t, class_of(4000)); i++) {
        CHECK_LT(i, 20);
        get_and_free(2000, 100);
        get_and_free(4000, 40);
        get_and_free(64, 300);
    }
    // Two periods of others: in the first one this was busy, too. Not all of what moves does so on the slow paths.
    unsigned c = class_of(64);
    for (size_t moved = 0; !qy_lists_are_empty(t, c); moved += 2 * 100 * 2000) {
        CHECK_LT(moved, 10 * (size_t)qy_budget_period());
        get_and_free(2000, 100);
        get_and_free(4000, 40);
        CHECK(!qy_lists_are_empty(t, class_of(4000)));
    }
    verify_all();
}

// What large objects move never was on a list.
TEST(large_objects_end_no_period) {
    qy_thread_t *t = qy_thread_get();
    // A period that is due already may end at any look.
    for (int i = 0; qy_lists_are_empty(t, class_of(64)) || t->period >= qy_budget_period(); i++) {
        CHECK_LT(i, 200);
        get_and_free(64, 300);
    }
    size_t period = t->period;
    for (size_t moved = 0; moved < 20 * (size_t)QY_BUDGET_PERIOD_MOST; moved += 2 * (size_t)200000)
        quarry_free(quarry_malloc(200000));
    CHECK_EQ(t->period, period);
    CHECK(!qy_lists_are_empty(t, class_of(64)));
    verify_all();
}

TEST(as_usual_with_few_threads) {
    CHECK(!qy_budget_is_short());
    CHECK_EQ(qy_budget_period(), QY_BUDGET_PERIOD_MOST);
    for (unsigned c = 1; c < QY_CLASS_COUNT; c++) CHECK_EQ(qy_budget_limit(c), qy_class_limit[c]);
}

// ---- many threads -----------------------------------------------------------------------------------------

#define MANY 300
static pthread_t many[MANY];
static pthread_barrier_t there, enough;
static size_t cached[MANY];

static void *nothing(size_t i) {
    (void)i;
    return NULL;
}
static void *(*work)(size_t i);
static void *one_of_many(void *arg) {
    void *p = quarry_malloc(1);
    pthread_barrier_wait(&there);
    work((size_t)(uintptr_t)arg);
    size_t blocks;
    cached[(uintptr_t)arg] = qy_cache_bytes(&blocks);
    pthread_barrier_wait(&there);
    pthread_barrier_wait(&enough);
    quarry_free(p);
    return NULL;
}
static void begin(void *(*fn)(size_t i)) {
    work = fn;
    pthread_barrier_init(&there, NULL, MANY + 1);
    pthread_barrier_init(&enough, NULL, MANY + 1);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 256 << 10);
    for (size_t i = 0; i < MANY; i++) CHECK_EQ(pthread_create(&many[i], &small, one_of_many, (void *)(uintptr_t)i), 0);
    for (int i = 0; i < 2; i++) pthread_barrier_wait(&there);
}
static void end(void) {
    pthread_barrier_wait(&enough);
    for (size_t i = 0; i < MANY; i++) pthread_join(many[i], NULL);
}

TEST(shorter_with_many_threads) {
    get_and_free(1, 1);
    begin(nothing);
    CHECK(qy_budget_is_short());
    CHECK_EQ(qy_budget_period(), QY_BUDGET_PERIOD_LEAST);
    qy_thread_t *t = qy_thread_get();
    unsigned large = class_of(20000), small = class_of(100);
    CHECK_EQ(qy_budget_limit(large), 0);
    CHECK_LT(qy_budget_limit(small), qy_class_limit[small]);
    // A block of more than a generation is not kept, once what its list had room for is passed.
    for (int i = 0; i < 2; i++) get_and_free(20000, 10);
    CHECK(qy_lists_are_empty(t, large));
    // Of others one generation and what was begun, each of them shorter.
    get_and_free(100, 2000);
    size_t n = 0;
    for (qy_block_t *b = qy_cache_list(&t->cache, small); b; b = qy_link_next(b)) n++;
    for (qy_block_t *b = t->prev[small]; b; b = qy_link_next(b)) n++;
    CHECK_GT(n, 0);
    CHECK_LE(n, 3 * qy_budget_limit(small));
    verify_all();
    end();
    CHECK(!qy_budget_is_short());
    CHECK_EQ(qy_budget_period(), QY_BUDGET_PERIOD_MOST);
}

static void *given[MANY][50];
static void *give(size_t i) {
    for (size_t k = 0; k < 50; k++) CHECK((given[i][k] = quarry_malloc(200)));
    return NULL;
}
TEST(gathers_less_with_many_threads) {
    get_and_free(1, 1);
    const qy_thread_t *t = qy_thread_get();
    CHECK_EQ(qy_budget_pend(), QY_PEND_BYTES);
    begin(give);
    if (MANY > QY_BUDGET_CROWD * qy_lock_cpus()) CHECK_EQ(qy_budget_pend(), QY_BUDGET_PEND_LEAST);
    size_t most = 0;
    for (size_t k = 0; k < 50; k++) {
        for (size_t i = 0; i < MANY; i++) {
            quarry_free(given[i][k]);
            most = qy_max(most, t->pend_bytes);
        }
    }
    CHECK_GT(most, 0);
    CHECK_LE(most, qy_budget_pend());
    verify_all();
    end();
    CHECK_EQ(qy_budget_pend(), QY_PEND_BYTES);
}

// In turn, at random, and all at the same time. How much they keep is for builds without a
// sanitizer: under one, every sixth thread works, and under ThreadSanitizer with fewer sizes.
static void *all_sizes(size_t i) {
    if ((QY_TSAN || QY_ASAN) && i % 6) return NULL;
    uint64_t random = test_seed + i;
    for (size_t n = 16; n < 60000; n += n / (QY_TSAN ? 1 : 8) + 16) get_and_free(n, qy_min(200000 / n + 1, 1500));
    for (int k = 0; k < (QY_TSAN ? 30 : 300); k++) get_and_free(16 + test_random(&random) % 60000, 3);
    return NULL;
}
TEST(many_threads_keep_little) {
    begin(all_sizes);
    size_t sum = 0;
    for (size_t i = 0; i < MANY; i++) sum += cached[i];
    CHECK_LE(sum, (size_t)48 << 20);
    verify_all();
    end();
}

TEST(children_have_one_thread) {
    begin(nothing);
    pid_t pid = fork();
    if (pid == 0) _exit(qy_budget_is_short());
    int status;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
    end();
}

// ---- counted while they sleep -----------------------------------------------------------------------------

// The first look sees that nothing changes, the second counts. It passes by a thread while the helper gives pages back.
static bool all_are_counted(void) {
    for (const qy_thread_t *t = qy_thread_first(); t; t = t->all_next)
        if (t->heap && !t->counted) return false;
    return true;
}
static void count_twice(void) {
    qy_stats_count_sleepers();
    for (int i = 0; i == 0 || (i < 10000 && !all_are_counted()); i++) {
        if (i) usleep(100);
        qy_stats_count_sleepers();
    }
    CHECK(all_are_counted());
}

TEST(sleepers_are_counted_by_others) {
    size_t blocks, before = qy_stats_cached(&blocks), mine;
    count_twice();
    begin(all_sizes);
    size_t sum = 0;
    for (size_t i = 0; i < MANY; i++) sum += cached[i];
    mine = qy_cache_bytes(&blocks);
    count_twice();
    CHECK_EQ(qy_stats_cached(&blocks), sum + mine);
    CHECK_GT(blocks, sum / 60000);
    // Once only: nobody looks at lists that stay as they are.
    count_twice();
    CHECK_EQ(qy_stats_cached(&blocks), sum + mine);
    end();
    count_twice();
    CHECK_EQ(qy_stats_cached(&blocks), qy_cache_bytes(&blocks));
    CHECK_LE(qy_stats_cached(&blocks), before + mine);
}

static _Atomic bool stop;
static void *works_now_and_then(void *arg) {
    uint64_t random = test_seed + (uintptr_t)arg;
    while (!stop) {
        for (int i = 0; i < 50; i++) get_and_free(16 + test_random(&random) % 4000, 20);
        if (test_random(&random) % 4 == 0) qy_thread_flush(qy_thread_get());
        nanosleep(&(struct timespec){.tv_nsec = (long)(test_random(&random) % 200000)}, NULL);
    }
    return NULL;
}
TEST(who_wakes_may_change_what_is_counted) {
    pthread_t thread[4];
    stop = false;
    for (size_t i = 0; i < 4; i++)
        CHECK_EQ(pthread_create(&thread[i], NULL, works_now_and_then, (void *)(uintptr_t)i), 0);
    for (int i = 0; i < 20000; i++) qy_stats_count_sleepers();
    stop = true;
    for (size_t i = 0; i < 4; i++) pthread_join(thread[i], NULL);
    verify_all();
}

TEST_MAIN()
