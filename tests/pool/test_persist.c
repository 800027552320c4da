// SPDX-License-Identifier: MIT
// test_persist.c: persistent pools: operations, transactions, growth, refusals.
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include <quarry/short.h>

#include "captured.h"
#include "persist_test.h"
#include "quarry/pool.h"

static bool only_bytes(const unsigned char *p, int value, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (p[i] != value) return false;
    return true;
}

// ---- operations -----------------------------------------------------------------------------------------

TEST(blocks) {
    quarry_persist_t *s = pt_new(pt_path, 0);
    static const size_t sizes[] = {0, 1, 8, 23, 24, 25, 40, 100, 1000, 4096, 65536, 1 << 20};
    uint64_t at[12];
    for (unsigned i = 0; i < 12; i++) {
        CHECK((at[i] = quarry_persist_alloc(s, sizes[i], QUARRY_POOL_ZERO)));
        CHECK_EQ(at[i] % 16, 0);
        CHECK_GE(quarry_persist_size(s, at[i]), sizes[i]);
        CHECK(only_bytes(quarry_persist_at(s, at[i]), 0, quarry_persist_size(s, at[i])));
        memset(quarry_persist_at(s, at[i]), (int)i + 1, quarry_persist_size(s, at[i]));
        CHECK_EQ(quarry_persist_ptr(s, quarry_persist_at(s, at[i])), at[i]);
    }
    CHECK_EQ(quarry_persist_check(s), 0);
    for (unsigned i = 0; i < 12; i++) CHECK(only_bytes(quarry_persist_at(s, at[i]), (int)i + 1, sizes[i]));
    for (unsigned i = 0; i < 12; i++) CHECK_EQ(quarry_persist_free(s, at[i]), 0);
    CHECK_EQ(quarry_persist_free(s, 0), 0);
    CHECK_EQ(quarry_persist_check(s), 0);
    quarry_pool_stats_t stats;
    quarry_pool_stats(quarry_persist_pool(s), &stats);
    CHECK_EQ(stats.used_bytes, 0);
    CHECK_EQ(stats.allocs, 12);
    CHECK_EQ(stats.frees, 12);
    // All of it is one free block again: nothing was lost on the way.
    CHECK((at[0] = quarry_persist_alloc(s, stats.held_bytes - 3 * QY_PERSIST_UNIT, 0)));
    size_t held = stats.held_bytes;
    quarry_pool_stats(quarry_persist_pool(s), &stats);
    CHECK_EQ(stats.held_bytes, held);
    CHECK_EQ(quarry_persist_close(s), 0);
}

TEST(misuse_is_told) {
    quarry_persist_t *s = pt_new(pt_path, 0);
    uint64_t a = quarry_persist_alloc(s, 100, QUARRY_POOL_ZERO), place, word = 0;
    CHECK_EQ(quarry_persist_free(s, a + 16), -1);
    CHECK_EQ(errno, EINVAL);
    quarry_persist_error(&place);
    CHECK_EQ(place, a + 16);
    CHECK_EQ(quarry_persist_free(s, 3), -1);
    CHECK_EQ(quarry_persist_free(s, UINT64_MAX), -1);
    CHECK_EQ(quarry_persist_free(s, a), 0);
    CHECK_EQ(quarry_persist_free(s, a), -1);  // it is a part of what is free now
    CHECK_EQ(errno, EALREADY);
    CHECK_EQ(quarry_persist_size(s, a), 0);
    CHECK_EQ(quarry_persist_alloc_to(s, &word, 8, 0), 0);  // a link outside of the pool
    CHECK_EQ(errno, EINVAL);
    CHECK_EQ(quarry_persist_free_from(s, &word), -1);
    CHECK_EQ(quarry_persist_set(s, &word, 1), -1);
    CHECK(!quarry_persist_at(s, 0));
    CHECK(!quarry_persist_at(s, 512));
    CHECK(!quarry_persist_at(s, (uint64_t)1 << 40));
    CHECK_EQ(quarry_persist_ptr(s, &word), 0);
    CHECK_EQ(quarry_persist_alloc(s, SIZE_MAX, 0), 0);
    CHECK_EQ(errno, ENOMEM);
    CHECK_EQ(quarry_persist_alloc(s, (size_t)1 << 45, 0), 0);
    CHECK_EQ(quarry_persist_alloc(s, (size_t)1 << 40, 0), 0);
    CHECK_EQ(errno, ENOMEM);
    CHECK_EQ(quarry_persist_check(s), 0);
    CHECK_EQ(quarry_persist_close(s), 0);
    CHECK_EQ(quarry_persist_close(NULL), 0);
}

TEST(resizing) {
    quarry_persist_t *s = pt_new(pt_path, 0);
    uint64_t *slots = pt_slots(s, 4);
    CHECK(quarry_persist_resize_at(s, &slots[0], 100, QUARRY_POOL_ZERO));  // a link of 0: as alloc
    uint64_t first = slots[0];
    size_t usable = quarry_persist_size(s, first);
    memset(quarry_persist_at(s, first), 7, usable);
    CHECK_EQ(quarry_persist_resize_at(s, &slots[0], 5000, QUARRY_POOL_ZERO), first);  // into the free rest behind
    CHECK(only_bytes(quarry_persist_at(s, first), 7, usable));
    CHECK(only_bytes((unsigned char *)quarry_persist_at(s, first) + usable, 0, quarry_persist_size(s, first) - usable));
    CHECK(quarry_persist_alloc_to(s, &slots[1], 50, 0));
    CHECK_NE(quarry_persist_resize_at(s, &slots[0], 20000, QUARRY_POOL_ZERO), first);  // somebody is there: it moves
    CHECK(only_bytes(quarry_persist_at(s, slots[0]), 7, usable));
    CHECK(only_bytes((unsigned char *)quarry_persist_at(s, slots[0]) + usable, 0, 20000 - usable));
    first = slots[0];
    CHECK_EQ(quarry_persist_resize_at(s, &slots[0], 60, 0), first);
    CHECK_LT(quarry_persist_size(s, first), 100);
    CHECK(only_bytes(quarry_persist_at(s, first), 7, 60));
    CHECK(!quarry_persist_resize_at(s, &slots[0], (size_t)1 << 42, 0));
    CHECK_EQ(slots[0], first);
    CHECK_EQ(quarry_persist_check(s), 0);
    CHECK_EQ(quarry_persist_close(s), 0);
}

TEST(it_outlives_the_mapping) {
    quarry_persist_t *s = pt_new(pt_path, 0), *reader;
    uint64_t *slots = pt_slots(s, 64);
    for (unsigned i = 0; i < 64; i++) {
        CHECK(quarry_persist_alloc_to(s, &slots[i], 100 + i * 50, 0));
        pt_fill(s, slots[i], i, i * 50);
    }
    // A chain by relative pointers: in the second mapping it goes through the second mapping.
    quarry_rel_t *a = quarry_persist_at(s, quarry_persist_alloc_to(s, &slots[0], 64, QUARRY_POOL_ZERO));
    quarry_rel_t *b = quarry_persist_at(s, slots[1]);
    CHECK(!quarry_rel_get(a));
    *a = quarry_rel_to(a, b);
    CHECK_PTR_EQ(quarry_rel_get(a), b);
    reader = pt_open(pt_path, QUARRY_PERSIST_READ_ONLY);
    CHECK_NE((uintptr_t)quarry_persist_at(reader, slots[1]), (uintptr_t)b);
    CHECK_PTR_EQ(quarry_rel_get(quarry_persist_at(reader, slots[0])), quarry_persist_at(reader, slots[1]));
    CHECK_EQ(quarry_persist_close(s), 0);
    s = pt_open(pt_path, 0);
    CHECK_NE((uintptr_t)quarry_persist_at(s, 140000), (uintptr_t)quarry_persist_at(reader, 140000));
    slots = pt_slots(s, 64);
    for (unsigned i = 1; i < 64; i++) CHECK(!pt_block_wrong(s, slots[i]));
    CHECK_EQ(quarry_persist_close(reader), 0);
    CHECK_EQ(quarry_persist_close(s), 0);
}

// ---- transactions ---------------------------------------------------------------------------------------

TEST(transactions) {
    quarry_persist_t *s = pt_new(pt_path, 0);
    uint64_t *slots = pt_slots(s, 8);
    CHECK(quarry_persist_alloc_to(s, &slots[0], 200, 0));
    pt_fill(s, slots[0], 1, 100);
    uint64_t before[8];
    memcpy(before, slots, sizeof before);

    CHECK_EQ(quarry_persist_commit(s), -1);
    CHECK_EQ(quarry_persist_save(s, slots, 8), -1);
    CHECK_EQ(quarry_persist_begin(s), 0);
    CHECK_EQ(quarry_persist_begin(s), -1);
    CHECK_EQ(errno, EBUSY);
    CHECK_EQ(quarry_persist_sync(s), -1);
    CHECK_EQ(errno, EBUSY);
    CHECK_EQ(quarry_persist_free_from(s, &slots[0]), 0);
    CHECK_EQ(slots[0], 0);
    CHECK_EQ(quarry_persist_free(s, before[0]), -1);  // once is enough
    CHECK_EQ(errno, EALREADY);
    for (unsigned i = 1; i < 8; i++) {
        CHECK(quarry_persist_alloc_to(s, &slots[i], 150 + i, 0));
        CHECK_NE(slots[i], before[0]);  // freed, but not before commit
        memset(quarry_persist_at(s, slots[i]), 0xEE, 150);
    }
    CHECK_EQ(quarry_persist_abort(s), 0);
    CHECK_EQ(memcmp(before, slots, sizeof before), 0);
    CHECK(!pt_audit(s, 8));

    CHECK_EQ(quarry_persist_begin(s), 0);
    pt_block_t *b = quarry_persist_at(s, slots[0]);
    CHECK_EQ(quarry_persist_save(s, (char *)b + 3, 90), 0);
    memset((char *)b + 3, 0xDD, 90);
    CHECK(quarry_persist_resize_at(s, &slots[0], 5000, QUARRY_POOL_ZERO));
    CHECK(quarry_persist_resize_at(s, &slots[0], 50, 0));
    CHECK_EQ(quarry_persist_abort(s), 0);
    CHECK(!pt_block_wrong(s, slots[0]));

    CHECK_EQ(quarry_persist_begin(s), 0);
    CHECK_EQ(quarry_persist_free_from(s, &slots[0]), 0);
    CHECK(quarry_persist_alloc_to(s, &slots[5], 300, QUARRY_POOL_ZERO));
    CHECK_EQ(quarry_persist_set(s, &slots[6], 0), 0);
    CHECK_EQ(quarry_persist_commit(s), 0);
    CHECK(!slots[0] && slots[5]);
    CHECK(!pt_audit(s, 8));
    CHECK_EQ(quarry_persist_close(s), 0);
}

// More than the log holds: that operation is refused, the transaction goes on.
TEST(large_transactions) {
    unlink(pt_path);
    quarry_persist_t *s =
        quarry_persist_open(pt_path, &(quarry_persist_options_t){.flags = QUARRY_PERSIST_CREATE, .log_words = 256});
    CHECK(s);
    uint64_t *slots = pt_slots(s, 64), made = 0;
    CHECK_EQ(quarry_persist_begin(s), 0);
    while (made < 64 && quarry_persist_alloc_to(s, &slots[made], 40, QUARRY_POOL_ZERO)) made++;
    CHECK_EQ(errno, E2BIG);
    CHECK_GT(made, 3);
    CHECK_EQ(slots[made], 0);
    CHECK_EQ(quarry_persist_commit(s), 0);
    CHECK(!pt_audit(s, 64));
    CHECK_EQ(quarry_persist_begin(s), 0);
    unsigned freed = 0;
    while (freed < made && !quarry_persist_free_from(s, &slots[freed])) freed++;
    CHECK_EQ(quarry_persist_commit(s), 0);
    CHECK_GT(freed, 2);
    CHECK(!pt_audit(s, 64));
    CHECK_EQ(quarry_persist_begin(s), 0);
    CHECK_EQ(quarry_persist_save(s, slots, 64 * 8), 0);
    CHECK_EQ(quarry_persist_save(s, quarry_persist_at(s, quarry_persist_root(s)), SIZE_MAX / 4), -1);
    CHECK_EQ(quarry_persist_abort(s), 0);
    CHECK_EQ(quarry_persist_close(s), 0);
}

// ---- a model --------------------------------------------------------------------------------------------

static void against_model(unsigned flags, unsigned ops) {
    enum { N = 300 };
    static struct {
        size_t bytes;
        unsigned char value;
    } model[N];
    uint64_t seed = test_seed;
    memset(model, 0, sizeof model);
    quarry_persist_t *s = pt_new(pt_path, flags);
    uint64_t *slots = pt_slots(s, N);
    for (unsigned i = 0; i < ops; i++) {
        uint64_t r = test_random(&seed);
        unsigned k = (unsigned)(r % N);
        size_t bytes = (r >> 32) % (1u << (4 + (r >> 20) % 12));
        bool zero = r >> 63;
        if (!slots[k] || (r >> 40) % 4 == 0) {
            size_t old = model[k].bytes;
            bool fresh = !slots[k];
            CHECK(fresh ? quarry_persist_alloc_to(s, &slots[k], bytes, zero ? QUARRY_POOL_ZERO : 0)
                        : quarry_persist_resize_at(s, &slots[k], bytes, 0));
            unsigned char *p = quarry_persist_at(s, slots[k]);
            CHECK_GE(quarry_persist_size(s, slots[k]), bytes);
            if (fresh && zero) CHECK(only_bytes(p, 0, bytes));
            if (!fresh) CHECK(only_bytes(p, model[k].value, old < bytes ? old : bytes));
            model[k].bytes = bytes;
            memset(p, model[k].value = (unsigned char)r, bytes);
        } else {
            CHECK(only_bytes(quarry_persist_at(s, slots[k]), model[k].value, model[k].bytes));
            CHECK_EQ(quarry_persist_free_from(s, &slots[k]), 0);
            model[k].bytes = 0;
        }
        if (i % 997 == 0) CHECK_EQ(quarry_persist_check(s), 0);
        if (i % 3001 == 0) {
            CHECK_EQ(quarry_persist_close(s), 0);
            s = pt_open(pt_path, flags);
            slots = pt_slots(s, N);
        }
    }
    for (unsigned k = 0; k < N; k++)
        if (slots[k]) CHECK(only_bytes(quarry_persist_at(s, slots[k]), model[k].value, model[k].bytes));
    CHECK_EQ(quarry_persist_check(s), 0);
    CHECK_EQ(quarry_persist_close(s), 0);
}

TEST(random_shared) { against_model(0, 60000); }
TEST(random_journal) { against_model(QUARRY_PERSIST_JOURNAL, 20000); }

static quarry_persist_t *shared_store;
static void *churn(void *arg) {
    uint64_t seed = test_seed + (uintptr_t)arg, *slots = pt_slots(shared_store, 400) + (uintptr_t)arg * 100;
    for (unsigned i = 0; i < 3000; i++) {
        uint64_t r = test_random(&seed), k = r % 100;
        if (r >> 60 == 0) {
            CHECK_EQ(quarry_persist_begin(shared_store), 0);
            uint64_t a = slots[k], b = slots[(k + 1) % 100];
            CHECK_EQ(quarry_persist_set(shared_store, &slots[k], b), 0);
            CHECK_EQ(quarry_persist_set(shared_store, &slots[(k + 1) % 100], a), 0);
            CHECK_EQ(r >> 59 & 1 ? quarry_persist_commit(shared_store) : quarry_persist_abort(shared_store), 0);
        } else if (slots[k]) {
            const char *wrong = pt_block_wrong(shared_store, slots[k]);
            if (wrong) TEST_FAIL("%s", wrong);
            CHECK_EQ(quarry_persist_free_from(shared_store, &slots[k]), 0);
        } else {
            // so large that the file grows beside the others
            CHECK(quarry_persist_alloc_to(shared_store, &slots[k], sizeof(pt_block_t) + r % 5000, 0));
            pt_fill(shared_store, slots[k], r >> 30, r % 5000);
        }
    }
    return NULL;
}

TEST(threads) {
    pthread_t id[4];
    shared_store = pt_new(pt_path, 0);
    pt_slots(shared_store, 400);
    for (uintptr_t i = 0; i < 4; i++) CHECK_EQ(pthread_create(&id[i], NULL, churn, (void *)i), 0);
    for (unsigned i = 0; i < 4; i++) pthread_join(id[i], NULL);
    CHECK(!pt_audit(shared_store, 400));
    CHECK_EQ(quarry_persist_close(shared_store), 0);
}

// Two threads want room in a block that there is not yet. The second comes while the first makes it.
static pthread_t second;
static void *resize_root(void *arg) {
    CHECK(quarry_persist_resize_at(shared_store, quarry_persist_root_link(shared_store), 100, 0));
    return arg;
}
static void start_second(void *where) {
    (void)where;
    qy_persist_hook = NULL;
    CHECK_EQ(pthread_create(&second, NULL, resize_root, NULL), 0);
    usleep(20000);
}
TEST(threads_that_make_one_block) {
    shared_store = pt_new(pt_path, 0);
    qy_persist_hook = start_second;
    resize_root(NULL);
    CHECK(!qy_persist_hook);
    CHECK_EQ(pthread_join(second, NULL), 0);
    CHECK_EQ(shared_store->words->count, 1);
    CHECK_EQ(quarry_persist_close(shared_store), 0);
}

// While its file is made, which may take long, there is nothing yet that could be asked.
static unsigned looks, visits;
static int visit(quarry_pool_t *pool, void *arg) {
    (void)arg;
    visits += !strcmp(quarry_pool_kind(pool), "persist");
    return 0;
}
static void look_around(void *where) {
    (void)where;
    looks++;
    quarry_pools_walk(visit, NULL);
}
TEST(not_seen_until_it_is_made) {
    looks = visits = 0;
    qy_persist_hook = look_around;
    quarry_persist_t *s = pt_new(pt_path, 0);
    qy_persist_hook = NULL;
    CHECK_GT(looks, 0);
    CHECK_EQ(visits, 0);
    look_around(NULL);
    CHECK_EQ(visits, 1);
    CHECK_EQ(quarry_persist_close(s), 0);
    look_around(NULL);
    CHECK_EQ(visits, 1);
}

// ---- as a pool ------------------------------------------------------------------------------------------

TEST(behind_the_interface) {
    quarry_persist_t *s = pt_new(pt_path, 0);
    quarry_pool_t *pool = quarry_persist_pool(s);
    CHECK(quarry_pool_capabilities(pool) & QUARRY_POOL_PERSISTENT);
    CHECK_STR_EQ(quarry_pool_kind(pool), "persist");
    void *aligned[22];
    for (unsigned i = 0; i < 22; i++) {
        CHECK((aligned[i] = quarry_pool_alloc(pool, 100, (size_t)1 << i, QUARRY_POOL_ZERO)));
        CHECK_EQ((uintptr_t)aligned[i] % ((size_t)1 << i), 0);
        CHECK(only_bytes(aligned[i], 0, 100));
        memset(aligned[i], 0x77, 100);
    }
    CHECK(!quarry_pool_alloc(pool, 8, (size_t)1 << 22, 0));
    CHECK_EQ(errno, EINVAL);
    CHECK(!quarry_pool_alloc(pool, 8, 24, 0));
    CHECK(!quarry_pool_alloc(pool, SIZE_MAX / 2 + 1, 8, 0));
    CHECK_EQ(errno, ENOMEM);
    for (unsigned i = 0; i < 22; i++) CHECK(only_bytes(aligned[i], 0x77, 100));
    unsigned *p = p_new(pool, unsigned, 10);
    for (unsigned i = 0; i < 10; i++) p[i] = i;
    CHECK(p_renew(pool, &p, 10, 5000));
    for (unsigned i = 0; i < 5000; i++) CHECK_EQ(p[i], i < 10 ? i : 0);
    CHECK(p_renew(pool, &p, 5000, 3));
    CHECK_EQ(p[2], 2);
    CHECK_GE(quarry_pool_usable(pool, p), 12);
    p_delete(pool, &p);
    errno = 7;
    for (unsigned i = 0; i < 22; i++) quarry_pool_free(pool, aligned[i], 100);
    CHECK_EQ(errno, 7);
    CHECK_EQ(quarry_pool_check(pool), 0);
    quarry_pool_destroy(pool);
}

static void double_free(void *arg) {
    quarry_pool_t *pool = quarry_persist_pool(pt_new(pt_path, 0));
    char *p = quarry_pool_alloc(pool, 100, 16, 0), *q = quarry_pool_alloc(pool, 100, 16, 0);
    (void)arg;
    quarry_pool_free(pool, q, 100);
    quarry_pool_free(pool, p, 100);
    quarry_pool_free(pool, p, 100);
}
static void foreign_free(void *arg) {
    quarry_pool_t *pool = quarry_persist_pool(pt_new(pt_path, 0));
    quarry_pool_free(pool, arg, 4);
}
static void overflow(void *arg) {
    quarry_pool_t *pool = quarry_persist_pool(pt_new(pt_path, 0));
    char *p = quarry_pool_alloc(pool, 24, 16, 0), *q = quarry_pool_alloc(pool, 24, 16, 0);
    (void)arg;
    memset(p, 1, 32);
    quarry_pool_free(pool, q, 24);
}
static void abort_pool(void *arg) {
    unlink(pt_path);
    quarry_persist_t *s = quarry_persist_open(
        pt_path, &(quarry_persist_options_t){
                     .pool.flags = QUARRY_POOL_ABORT, .pool.limit = 1 << 20, .flags = QUARRY_PERSIST_CREATE});
    (void)arg;
    quarry_pool_alloc(quarry_persist_pool(s), 2 << 20, 16, 0);
}

TEST(misuse_of_the_pool_ends_the_process) {
    int local = 0;
    captured_t c = capture(double_free, NULL);
    CHECK_EQ(c.exit_signal, SIGABRT);
    CHECK(strstr(c.text, "double free"));
    c = capture(foreign_free, &local);
    CHECK_EQ(c.exit_signal, SIGABRT);
    CHECK(strstr(c.text, "invalid free"));
    c = capture(overflow, NULL);
    CHECK_EQ(c.exit_signal, SIGABRT);
    CHECK(strstr(c.text, "damaged pool"));
    c = capture(abort_pool, NULL);
    CHECK_EQ(c.exit_signal, SIGABRT);
    CHECK(strstr(c.text, "out of memory"));
}

// ---- growth and its refusals -----------------------------------------------------------------------------

TEST(growth) {
    quarry_persist_t *s = pt_new(pt_path, 0);
    uint64_t *slots = pt_slots(s, 100);
    char *base = quarry_persist_at(s, 140000);
    for (unsigned i = 0; i < 100; i++) {
        CHECK(quarry_persist_alloc_to(s, &slots[i], 300000, 0));
        pt_fill(s, slots[i], i, 299000);
    }
    CHECK_PTR_EQ(quarry_persist_at(s, 140000), base);
    CHECK(!pt_audit(s, 100));
    struct stat st;
    CHECK_EQ(stat(pt_path, &st), 0);
    CHECK_GE(st.st_blocks * 512, st.st_size);  // no holes: a store cannot meet a full disk
    quarry_pool_stats_t stats;
    quarry_pool_stats(quarry_persist_pool(s), &stats);
    CHECK_EQ(stats.held_bytes, st.st_size);
    CHECK_LT(stats.held_bytes, 30000000 * 3 / 2);
    CHECK_EQ(quarry_persist_close(s), 0);
}

// A new file is no longer than its limit.
TEST(limit_of_a_new_file) {
    unlink(pt_path);
    quarry_persist_options_t o = {.pool.limit = 200000, .flags = QUARRY_PERSIST_CREATE, .max_bytes = 1 << 20};
    quarry_persist_t *s = quarry_persist_open(pt_path, &o);
    CHECK(s);
    quarry_pool_stats_t stats;
    quarry_pool_stats(quarry_persist_pool(s), &stats);
    CHECK_LE(stats.held_bytes, 200000);
    CHECK(quarry_persist_alloc(s, 1000, 0));
    CHECK_EQ(quarry_persist_close(s), 0);
    unlink(pt_path);
    o.pool.limit = o.initial_bytes = 1000000;  // no multiple of a unit
    CHECK(s = quarry_persist_open(pt_path, &o));
    quarry_pool_stats(quarry_persist_pool(s), &stats);
    CHECK_LE(stats.held_bytes, 1000000);
    CHECK_GT(stats.held_bytes, 1000000 - 65536);
    CHECK_EQ(quarry_persist_close(s), 0);
    for (int i = 0; i < 2; i++) {
        unlink(pt_path);
        o.pool.limit = i ? 200000 : 100000;
        o.initial_bytes = i ? 1 << 20 : 0;
        CHECK(!quarry_persist_open(pt_path, &o));
        CHECK_EQ(errno, EINVAL);
        CHECK_EQ(access(pt_path, F_OK), -1);
    }
}

TEST(limits) {
    unlink(pt_path);
    quarry_persist_t *s =
        quarry_persist_open(pt_path, &(quarry_persist_options_t){.flags = QUARRY_PERSIST_CREATE, .max_bytes = 1 << 20});
    CHECK(s);
    CHECK(!quarry_persist_alloc(s, 2 << 20, 0));
    CHECK_EQ(errno, ENOMEM);
    CHECK(quarry_persist_alloc(s, 600000, 0));
    quarry_pool_set_limit(quarry_persist_pool(s), 700000);
    CHECK(!quarry_persist_alloc(s, 300000, 0));
    CHECK_EQ(quarry_persist_check(s), 0);
    CHECK_EQ(quarry_persist_close(s), 0);
    // It may be larger than max_bytes by then.
    s = quarry_persist_open(pt_path, &(quarry_persist_options_t){.max_bytes = 1});
    CHECK(s);
    CHECK_EQ(quarry_persist_close(s), 0);
    static const quarry_persist_options_t bad[] = {
        {.flags = 1u << 20},
        {.flags = QUARRY_PERSIST_READ_ONLY | QUARRY_PERSIST_CREATE},
        {.flags = QUARRY_PERSIST_READ_ONLY | QUARRY_PERSIST_JOURNAL},
        {.log_words = 5},
        {.log_words = 1 << 20},
        {.max_bytes = SIZE_MAX},
        {.initial_bytes = SIZE_MAX},
    };
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK(!quarry_persist_open(pt_path, &bad[i]));
        CHECK_EQ(errno, EINVAL);
    }
    CHECK(!quarry_persist_open(NULL, NULL));
    CHECK(!quarry_persist_open(pt_path, &(quarry_persist_options_t){.pool.parent = quarry_libc_pool()}));
    CHECK_EQ(errno, EINVAL);
}

// As much as fits, then ENOSPC or EFBIG and a pool that goes on.
static void fill_up(quarry_persist_t *s, int error) {
    uint64_t last = 0, at;
    unsigned n = 0;
    while ((at = quarry_persist_alloc(s, 50000, 0)) && n++ < 10000) memset(quarry_persist_at(s, last = at), 1, 50000);
    CHECK_EQ(errno, error);
    CHECK_GT(n, 1);
    CHECK_EQ(quarry_persist_check(s), 0);
    CHECK_EQ(quarry_persist_free(s, last), 0);
    CHECK(quarry_persist_alloc(s, 50000, 0));
    CHECK_EQ(quarry_persist_check(s), 0);
}

static void beyond_the_file_limit(void *arg) {
    (void)arg;
    struct rlimit limit = {3 << 20, 3 << 20};
    quarry_persist_t *s = pt_new(pt_path, 0);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);  // SIGXFSZ stays at its default: death
    fill_up(s, EFBIG);
    CHECK_EQ(quarry_persist_close(s), 0);
    limit.rlim_cur = 70000;  // too little for a new one
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    CHECK(!pt_try(pt_other, QUARRY_PERSIST_CREATE));
    CHECK_EQ(errno, EFBIG);
    CHECK_NE(access(pt_other, F_OK), 0);  // nothing is left of it
}
TEST(file_size_limit) { run_apart(beyond_the_file_limit, NULL); }

static void on_a_full_disk(void *arg) {
    (void)arg;
    char path[300];
    if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("none", pt_folder, "tmpfs", 0, "size=2M")) {
        printf("SKIP: needs a small disk, mounted by root: %s\n", strerror(errno));
        return;
    }
    snprintf(path, sizeof path, "%s/full.pool", pt_folder);
    quarry_persist_t *s = pt_new(path, 0);
    fill_up(s, ENOSPC);
    CHECK_EQ(quarry_persist_close(s), 0);
    // Journal: the sync needs room beside the pool. It fails, changes nothing, and works when there is room.
    unlink(path);
    s = quarry_persist_open(path,
        &(quarry_persist_options_t){.flags = QUARRY_PERSIST_CREATE | QUARRY_PERSIST_JOURNAL, .initial_bytes = 1500000});
    CHECK(s);
    uint64_t root = quarry_persist_alloc_to(s, quarry_persist_root_link(s), 1000000, 0);
    CHECK(root);
    memset(quarry_persist_at(s, root), 5, 1000000);
    CHECK_EQ(quarry_persist_sync(s), -1);
    CHECK_EQ(errno, ENOSPC);
    CHECK_EQ(mount("none", pt_folder, "tmpfs", MS_REMOUNT, "size=9M"), 0);
    CHECK_EQ(quarry_persist_sync(s), 0);
    qy_persist_abandon(s);
    s = pt_open(path, 0);
    CHECK_EQ(quarry_persist_root(s), root);
    CHECK(only_bytes(quarry_persist_at(s, root), 5, 1000000));
    CHECK_EQ(quarry_persist_close(s), 0);
    umount2(pt_folder, MNT_DETACH);
}
TEST(full_disk) { run_apart(on_a_full_disk, NULL); }

// A file with holes, as a copying program may make it: they are filled at open.
TEST(holes_are_filled) {
    quarry_persist_t *s = pt_new(pt_path, 0);
    CHECK(quarry_persist_alloc(s, 900000, QUARRY_POOL_ZERO));
    CHECK_EQ(quarry_persist_close(s), 0);
    int fd = open(pt_path, O_RDWR);
    if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 300000, 500000))
        TEST_SKIP("needs a file system that makes holes");
    s = pt_open(pt_path, 0);
    struct stat st;
    CHECK_EQ(fstat(fd, &st), 0);
    CHECK_GE(st.st_blocks * 512, st.st_size);
    CHECK_EQ(quarry_persist_close(s), 0);
    close(fd);
}

// ---- a kernel that refuses -----------------------------------------------------------------------------------

// Each call fails in turn, once or from then on. Whatever happens, the pool can be opened afterwards and has
// what was there before.
static void refuse(unsigned flags, int persist) {
    quarry_persist_t *s = pt_new(pt_path, flags);
    uint64_t *slots = pt_slots(s, 8);
    CHECK(quarry_persist_alloc_to(s, &slots[0], 1000, 0));
    pt_fill(s, slots[0], 5, 900);
    CHECK_EQ(quarry_persist_close(s), 0);
    for (uint64_t n = 1;; n++) {
        quarry_os_fault(n, persist, UINT32_MAX);
        errno = 0;
        s = pt_try(pt_path, flags);
        CHECK(s || errno);
        bool all = s;
        if (s) {
            slots = pt_slots(s, 8);
            all &= quarry_persist_resize_at(s, &slots[1], 300000 + n * 3000, 0) != 0;
            if (slots[1]) memset(quarry_persist_at(s, slots[1]), 0, 32);
            all &= quarry_persist_sync(s) == 0;
            if (slots[1]) all &= quarry_persist_free_from(s, &slots[1]) == 0;
            all &= quarry_persist_check(s) == 0;
            all &= quarry_persist_close(s) == 0;
        }
        bool hit = quarry_os_fault_hits() != 0;
        quarry_os_fault(0, 0, 0);
        s = pt_open(pt_path, flags);
        slots = pt_slots(s, 8);
        CHECK(!pt_audit(s, 8));
        CHECK(!pt_block_wrong(s, slots[0]));
        CHECK_EQ(((pt_block_t *)quarry_persist_at(s, slots[0]))->serial, 5);
        if (slots[1]) CHECK_EQ(quarry_persist_free_from(s, &slots[1]), 0);
        CHECK_EQ(quarry_persist_close(s), 0);
        if (!hit) {
            CHECK(all);
            printf("%llu calls\n", (unsigned long long)n - 1);
            break;
        }
        CHECK_LT(n, 500);
    }
}
TEST(every_refusal_shared) {
    refuse(0, 0);
    refuse(0, 1);
}
TEST(every_refusal_journal) {
    refuse(QUARRY_PERSIST_JOURNAL, 0);
    refuse(QUARRY_PERSIST_JOURNAL, 1);
}

TEST(every_refusal_when_made) {
    for (uint64_t n = 1;; n++) {
        unlink(pt_path);
        quarry_os_fault(n, 0, UINT32_MAX);
        quarry_persist_t *s = pt_try(pt_path, QUARRY_PERSIST_CREATE);
        bool hit = quarry_os_fault_hits() != 0;
        quarry_os_fault(0, 0, 0);
        if (!s) s = pt_open(pt_path, QUARRY_PERSIST_CREATE);
        CHECK_EQ(quarry_persist_check(s), 0);
        CHECK_EQ(quarry_persist_close(s), 0);
        if (!hit) break;
        CHECK_LT(n, 200);
    }
}

// A disk that failed once is not believed again.
TEST(failed_sync_is_final) {
    quarry_persist_t *s = pt_new(pt_path, 0);
    quarry_os_fault(1, 0, 1u << QY_OS_FILE_SYNC);
    CHECK_EQ(quarry_persist_sync(s), -1);
    CHECK_EQ(errno, EIO);
    quarry_os_fault(0, 0, 0);
    CHECK_EQ(quarry_persist_sync(s), -1);
    CHECK_EQ(errno, EIO);
    CHECK(quarry_persist_alloc(s, 10, 0));  // work goes on
    CHECK_EQ(quarry_persist_close(s), -1);
    s = pt_open(pt_path, 0);
    CHECK_EQ(quarry_persist_sync(s), 0);
    CHECK_EQ(quarry_persist_close(s), 0);
}

// Without /proc/self/pagemap the pages are compared.
TEST(journal_without_pagemap) {
    quarry_persist_t *s = pt_new(pt_path, QUARRY_PERSIST_JOURNAL);
    bool told = s->own_pages;
    printf("the kernel tells which pages changed: %d\n", told);
    for (int i = 0; i < 2; i++) {
        s->own_pages = told && i == 0;
        uint64_t *slots = pt_slots(s, 8);
        CHECK(quarry_persist_alloc_to(s, &slots[i], 70000, QUARRY_POOL_ZERO));
        pt_fill(s, slots[i], 9, 60000);
        CHECK_EQ(quarry_persist_sync(s), 0);
        pt_fill(s, slots[i], 10, 60000);  // gone
        qy_persist_abandon(s);
        s = pt_open(pt_path, QUARRY_PERSIST_JOURNAL);
        CHECK(!pt_audit(s, 8));
        CHECK_EQ(((pt_block_t *)quarry_persist_at(s, pt_slots(s, 8)[i]))->serial, 9);
    }
    CHECK_EQ(quarry_persist_close(s), 0);
}

TEST_MAIN()
