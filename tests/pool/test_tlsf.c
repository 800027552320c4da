// SPDX-License-Identifier: MIT
// test_tlsf.c: the tlsf pool as its users see it; runs under every kind of checking.
#include <pthread.h>
#include <stdalign.h>
#include <sys/mman.h>

#include <quarry/tlsf.h>

#include "bytes.h"
#include "captured.h"
#include "pool/pool.h"
#include "pool_test.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

static alignas(4096) char arena[256 * KIB];

static quarry_pool_t *on_arena(size_t bytes, unsigned flags) {
    quarry_pool_t *pool = quarry_tlsf_create(
        &(quarry_tlsf_options_t){.pool.name = "test", .buffer = arena, .buffer_bytes = bytes, .flags = flags});
    CHECK(pool);
    return pool;
}
static bool in_arena(const void *p, size_t bytes) {
    return (const char *)p >= arena && (const char *)p + bytes <= arena + sizeof arena;
}

// ---- what is asked for is what one gets ---------------------------------------------------------------------

TEST(sizes_near_powers_of_two) {
    quarry_pool_t *pool = quarry_tlsf_create(NULL);
    for (size_t power = 1; power <= 4 * MIB; power *= 2) {
        for (int d = -1; d <= 1; d++) {
            size_t size = power + (size_t)d;
            char *p = quarry_pool_alloc(pool, size, 16, 0);
            CHECK(p);
            CHECK_EQ((uintptr_t)p % 16, 0);
            CHECK_GE(quarry_pool_usable(pool, p), size);
            if (plain(pool)) CHECK_LE(quarry_pool_usable(pool, p), size + 24 + 15);
            memset(p, 0xA5, size);
            CHECK_EQ(quarry_pool_check(pool), 0);
            quarry_pool_free(pool, p, size);
        }
    }
    end(pool);
}

TEST(size_zero_is_a_block) {
    quarry_pool_t *pool = on_arena(4 * KIB, QUARRY_TLSF_FIXED);
    void *p = quarry_pool_alloc(pool, 0, 1, 0), *q = quarry_pool_alloc(pool, 0, 1, QUARRY_POOL_ZERO);
    CHECK(p && q && p != q);
    quarry_pool_free(pool, p, 0);
    quarry_pool_free(pool, q, QUARRY_SIZE_UNKNOWN);
    quarry_pool_free(pool, NULL, 0);
    end(pool);
}

TEST(zeroed_also_when_used_before) {
    quarry_pool_t *pool = on_arena(64 * KIB, QUARRY_TLSF_FIXED);
    for (int round = 0; round < 3; round++) {
        unsigned char *p = quarry_pool_alloc(pool, 5000, 16, QUARRY_POOL_ZERO);
        for (int i = 0; i < 5000; i++) CHECK_EQ(p[i], 0);
        memset(p, 0xFF, 5000);
        p = quarry_pool_resize(pool, p, 5000, 100, 16, QUARRY_POOL_ZERO);
        p = quarry_pool_resize(pool, p, 100, 9000, 16, QUARRY_POOL_ZERO);
        for (int i = 0; i < 9000; i++) CHECK_EQ(p[i], i < 100 ? 0xFF : 0);
        memset(p, 0xFF, 9000);
        quarry_pool_free(pool, p, 9000);
    }
    end(pool);
}

TEST(alignments) {
    quarry_pool_t *pool = quarry_tlsf_create(NULL);
    void *kept[3][25];
    for (int n = 0; n < 3; n++) {
        for (unsigned log = 0; log < 22; log++) {
            size_t alignment = (size_t)1 << log;
            kept[n][log] = quarry_pool_alloc(pool, 100 * (size_t)n + 1, alignment, 0);
            CHECK(kept[n][log]);
            CHECK_EQ((uintptr_t)kept[n][log] & (alignment - 1), 0);
            CHECK_EQ(quarry_pool_check(pool), 0);
        }
    }
    for (unsigned log = 0; log < 22; log++)
        for (int n = 0; n < 3; n++) quarry_pool_free(pool, kept[n][log], QUARRY_SIZE_UNKNOWN);
    static const size_t wrong[] = {0, 3, 24, (size_t)1 << 31, (size_t)1 << 63, SIZE_MAX};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        errno = 0;
        CHECK(!quarry_pool_alloc(pool, 8, wrong[i], 0));
        CHECK_EQ(errno, EINVAL);
    }
    end(pool);
}

TEST(too_large_is_refused) {
    quarry_pool_t *pool = quarry_tlsf_create(NULL);
    for (size_t size = (size_t)1 << 46; size; size = size == SIZE_MAX ? 0 : size >= (size_t)1 << 63 ? SIZE_MAX
                                                                                                    : size * 2) {
        for (size_t alignment = 1; alignment <= 4096; alignment *= 64) {
            errno = 0;
            CHECK(!quarry_pool_alloc(pool, size, alignment, 0));
            CHECK_EQ(errno, ENOMEM);
        }
    }
    char *p = quarry_pool_alloc(pool, 10, 1, 0);
    memcpy(p, "unchanged", 10);
    errno = 0;
    CHECK(!quarry_pool_resize(pool, p, 10, SIZE_MAX - 100, 1, 0));
    CHECK_EQ(errno, ENOMEM);
    CHECK_STR_EQ(p, "unchanged");
    end(pool);
}

TEST(options_are_looked_at) {
    static const quarry_tlsf_options_t wrong[] = {
        {.flags = 0x100},
        {.buffer = arena, .buffer_bytes = 100},
        {.buffer = arena + 1, .buffer_bytes = 140},  // rounded at both ends
        {.buffer_bytes = 1000},
        {.buffer = arena},
        {.buffer = arena, .buffer_bytes = SIZE_MAX},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        errno = 0;
        CHECK(!quarry_tlsf_create(&wrong[i]));
        CHECK_EQ(errno, EINVAL);
    }
}

// ---- resize -----------------------------------------------------------------------------------------------------

TEST(resize_in_place) {
    quarry_pool_t *pool = on_arena(64 * KIB, QUARRY_TLSF_FIXED);
    if (!plain(pool)) {
        end(pool);
        TEST_SKIP("needs pools:off: a checked pool always moves");
    }
    char *p = quarry_pool_alloc(pool, 1000, 16, 0), *after = quarry_pool_alloc(pool, 5000, 16, 0),
         *last = quarry_pool_alloc(pool, 10, 16, 0);
    memset(p, 'p', 1000);
    CHECK_PTR_EQ(quarry_pool_resize(pool, p, 1000, 500, 16, 0), p);  // shrinks where it is
    char *in_gap = quarry_pool_alloc(pool, 300, 16, 0);
    CHECK(in_gap > p && in_gap < after);  // and what is left over is used
    quarry_pool_free(pool, in_gap, 300);
    CHECK_PTR_EQ(quarry_pool_resize(pool, p, 500, 1000, 16, 0), p);  // grows into it again
    quarry_pool_free(pool, after, 5000);
    CHECK_PTR_EQ(quarry_pool_resize(pool, p, 1000, 6000, 16, 0), p);  // and into the neighbour
    CHECK_EQ(quarry_pool_check(pool), 0);
    for (int i = 0; i < 500; i++) CHECK_EQ(p[i], 'p');
    char *moved = quarry_pool_resize(pool, p, 6000, 8000, 16, 0);
    CHECK(moved && moved != p);
    for (int i = 0; i < 500; i++) CHECK_EQ(moved[i], 'p');
    CHECK_EQ(quarry_pool_usable(pool, last), 24);
    end(pool);
}

TEST(resize_keeps_the_alignment_asked_for) {
    quarry_pool_t *pool = quarry_tlsf_create(NULL);
    uint64_t random = test_seed;
    char *p = NULL;
    size_t size = 0;
    for (int i = 0; i < 3000; i++) {
        size_t alignment = (size_t)1 << test_random(&random) % 14, wanted = test_random(&random) % 20000 + 1,
               old = size;
        p = quarry_pool_resize(pool, p, size, wanted, alignment, 0);
        CHECK(p);
        CHECK_EQ((uintptr_t)p & (alignment - 1), 0);
        for (size_t k = 0; k < old && k < wanted; k += 97) CHECK_EQ(p[k], (char)(k + 1));
        for (size_t k = 0; k < wanted; k++) p[k] = (char)(k + 1);
        size = wanted;
    }
    end(pool);
}

TEST(resize_of_unknown_size) {
    quarry_pool_t *pool = on_arena(64 * KIB, QUARRY_TLSF_FIXED);
    char *p = quarry_pool_resize(pool, NULL, QUARRY_SIZE_UNKNOWN, 30, 16, 0);
    strcpy(p, "no size was said");
    size_t had = quarry_pool_usable(pool, p);
    p = quarry_pool_resize(pool, p, QUARRY_SIZE_UNKNOWN, 3000, 16, QUARRY_POOL_ZERO);
    CHECK_STR_EQ(p, "no size was said");
    for (size_t i = had; i < 3000; i++) CHECK_EQ(p[i], 0);
    end(pool);
}

// ---- regions ------------------------------------------------------------------------------------------------------

TEST(a_fixed_pool_stays_in_its_buffer) {
    quarry_pool_t *pool = on_arena(sizeof arena, QUARRY_TLSF_FIXED);
    if (pool->mode & QY_MODE_PASS) {
        end(pool);
        TEST_SKIP("needs pools:off: blocks of pass-through pools come from malloc");
    }
    static void *all[20000];
    size_t n = 0, was = 0;
    for (int round = 0; round < 3; round++) {
        for (n = 0; (all[n] = quarry_pool_alloc(pool, 24 + 100 * (n % 3), 16, 0)) != NULL; n++)
            CHECK(in_arena(all[n], 24));
        CHECK_EQ(errno, ENOMEM);
        if (round) CHECK_EQ(n, was);  // nothing is lost
        was = n;
        for (size_t i = 0; i < n; i++) quarry_pool_free(pool, all[i * 7919 % n], QUARRY_SIZE_UNKNOWN);
        quarry_pool_stats_t stats;
        quarry_pool_stats(pool, &stats);
        if (plain(pool)) CHECK_EQ(stats.used_bytes, 0);
        if (plain(pool)) CHECK_EQ(stats.held_bytes, sizeof arena);
        if (!plain(pool)) break;  // quarantine
    }
    end(pool);
}

TEST(a_pool_of_one_page) {
    for (size_t bytes = 4096 - 33; bytes <= 4096; bytes++) {
        quarry_pool_t *pool = quarry_tlsf_create(&(quarry_tlsf_options_t){
            .buffer = arena + 4096 - bytes, .buffer_bytes = bytes, .flags = QUARRY_TLSF_FIXED});
        CHECK(pool);
        if (plain(pool)) {
            size_t most = (bytes & ~(size_t)15) - QUARRY_TLSF_REGION_OVERHEAD - QUARRY_TLSF_BLOCK_OVERHEAD;
            CHECK(!quarry_pool_alloc(pool, most + 1, 1, 0));
            char *p = quarry_pool_alloc(pool, most, 1, 0);
            CHECK(p);
            memset(p, 0x5A, most);
            CHECK_EQ(quarry_pool_check(pool), 0);
            CHECK(!quarry_pool_alloc(pool, 0, 1, 0));
            quarry_pool_free(pool, p, most);
        }
        end(pool);
    }
}

TEST(regions_come_and_go) {
    quarry_pool_t *pool = on_arena(64 * KIB, QUARRY_TLSF_FIXED);
    if (pool->mode & QY_MODE_PASS) {
        end(pool);
        TEST_SKIP("needs pools:off: blocks of pass-through pools come from malloc");
    }
    CHECK(!quarry_pool_alloc(pool, 100 * KIB, 16, 0));
    CHECK_EQ(quarry_tlsf_add_region(pool, arena + 64 * KIB, 128 * KIB), 0);
    static const struct {
        size_t from, bytes;
    } taken[] = {{0, 4 * KIB}, {63 * KIB, 4 * KIB}, {64 * KIB, 128 * KIB}, {100 * KIB, 256}, {190 * KIB, 8 * KIB}};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        errno = 0;
        CHECK_EQ(quarry_tlsf_add_region(pool, arena + taken[i].from, taken[i].bytes), -1);
        CHECK_EQ(errno, EINVAL);
    }
    CHECK_EQ(quarry_tlsf_add_region(pool, arena + 192 * KIB, 127), -1);
    CHECK_EQ(quarry_tlsf_add_region(pool, NULL, 128), -1);
    if (plain(pool)) {
        char *p = quarry_pool_alloc(pool, 100 * KIB, 16, 0);
        CHECK(p >= arena + 64 * KIB);
        memset(p, 1, 100 * KIB);
        CHECK_EQ(quarry_tlsf_remove_region(pool, arena + 64 * KIB), -1);
        CHECK_EQ(errno, EBUSY);
        quarry_pool_free(pool, p, 100 * KIB);
    }
    CHECK_EQ(quarry_tlsf_remove_region(pool, arena + 64 * KIB), 0);
    CHECK_EQ(quarry_tlsf_remove_region(pool, arena + 64 * KIB), -1);
    CHECK_EQ(errno, EINVAL);
    if (plain(pool)) CHECK(!quarry_pool_alloc(pool, 100 * KIB, 16, 0));
    CHECK_EQ(quarry_tlsf_add_region(pool, arena + 64 * KIB, 128 * KIB), 0);
    CHECK_EQ(quarry_tlsf_remove_region(pool, arena), 0);  // the first too
    CHECK_EQ(quarry_pool_check(pool), 0);
    CHECK_EQ(quarry_tlsf_remove_region(pool, arena + 64 * KIB), 0);
    CHECK(!quarry_pool_alloc(pool, 1, 1, 0));  // and the last
    end(pool);
}

TEST(grows_and_gives_back) {
    quarry_pool_t *pool = quarry_tlsf_create(&(quarry_tlsf_options_t){.chunk_bytes = 256 * KIB});
    if (!plain(pool)) {
        end(pool);
        TEST_SKIP("needs pools:off: a checked pool keeps blocks in quarantine");
    }
    quarry_pool_stats_t stats;
    void *p[64];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 64; i++) CHECK((p[i] = quarry_pool_alloc(pool, 100 * KIB, 16, 0)) != NULL);
        quarry_pool_stats(pool, &stats);
        CHECK_GE(stats.held_bytes, 6400 * KIB);
        CHECK_LE(stats.chunk_gets - stats.chunk_puts, 20);  // they become larger
        for (int i = 0; i < 64; i++) quarry_pool_free(pool, p[i], QUARRY_SIZE_UNKNOWN);
        quarry_pool_stats(pool, &stats);
        CHECK_EQ(stats.chunk_gets - stats.chunk_puts, 1);  // one empty region is kept
        CHECK_LE(stats.held_bytes, 2 * MIB);
        CHECK_EQ(stats.used_bytes, 0);
    }
    // At the edge nothing is asked for again and again.
    uint64_t before = stats.chunk_gets;
    for (int i = 0; i < 100; i++) {
        void *q = quarry_pool_alloc(pool, 200 * KIB, 16, 0);
        quarry_pool_free(pool, q, 200 * KIB);
    }
    quarry_pool_stats(pool, &stats);
    CHECK_EQ(stats.chunk_gets, before);
    end(pool);
}

TEST(keeps_what_it_is_told_to) {
    quarry_pool_t *pool =
        quarry_tlsf_create(&(quarry_tlsf_options_t){.chunk_bytes = 64 * KIB, .flags = QUARRY_TLSF_KEEP});
    void *p[32];
    quarry_pool_stats_t stats;
    for (int i = 0; i < 32; i++) p[i] = quarry_pool_alloc(pool, 60 * KIB, 16, 0);
    for (int i = 0; i < 32; i++) quarry_pool_free(pool, p[i], 60 * KIB);
    quarry_pool_stats(pool, &stats);
    CHECK_EQ(stats.chunk_puts, 0);
    end(pool);
}

TEST(limit) {
    quarry_pool_t *pool = quarry_tlsf_create(&(quarry_tlsf_options_t){.pool.limit = 2 * MIB});
    if (pool->mode & QY_MODE_PASS) {
        end(pool);
        TEST_SKIP("needs pools:off: blocks of pass-through pools come from malloc");
    }
    size_t got = 0;
    while (quarry_pool_alloc(pool, 10 * KIB, 16, 0)) got += 10 * KIB;
    CHECK_EQ(errno, ENOMEM);
    CHECK_LE(got, 2 * MIB);
    CHECK_GE(got, 1700 * KIB);
    quarry_pool_set_limit(pool, 0);
    CHECK(quarry_pool_alloc(pool, 10 * KIB, 16, 0));
    end(pool);
}

TEST(a_buffer_becomes_a_parent) {
    quarry_pool_t *buffer = on_arena(sizeof arena, QUARRY_TLSF_FIXED);
    quarry_pool_t *child = quarry_tlsf_create(&(quarry_tlsf_options_t){.pool.parent = buffer, .chunk_bytes = 16 * KIB});
    void *p[50];
    for (int i = 0; i < 50; i++) {
        p[i] = quarry_pool_alloc(child, 1000, 16, 0);
        CHECK(p[i]);
        if (plain(buffer)) CHECK(in_arena(p[i], 1000));
    }
    for (int i = 0; i < 50; i++) quarry_pool_free(child, p[i], 1000);
    while (!(child->mode & QY_MODE_PASS) && quarry_pool_alloc(child, 1000, 16, 0)) {}
    end(child);
    quarry_pool_stats_t stats;
    quarry_pool_stats(buffer, &stats);
    if (plain(buffer)) CHECK_EQ(stats.used_bytes, 0);
    end(buffer);
}

static int sum_blocks(void *block, size_t bytes, int used, void *arg) {
    size_t *sums = arg;
    CHECK(block);
    sums[used] += bytes + QUARRY_TLSF_BLOCK_OVERHEAD;
    return 0;
}
static int third(void *block, size_t bytes, int used, void *arg) {
    (void)block, (void)bytes, (void)used;
    return ++*(int *)arg == 3 ? 33 : 0;
}
TEST(walk_and_counts) {
    quarry_pool_t *pool = on_arena(64 * KIB, QUARRY_TLSF_FIXED);
    void *p[10];
    for (size_t i = 0; i < 10; i++) p[i] = quarry_pool_alloc(pool, 100 * i, 16, 0);
    for (size_t i = 0; i < 10; i += 2) quarry_pool_free(pool, p[i], 100 * i);
    p[1] = quarry_pool_resize(pool, p[1], 100, 150, 16, 0);
    quarry_pool_stats_t stats;
    quarry_pool_stats(pool, &stats);
    CHECK_EQ(stats.allocs, 10);
    CHECK_EQ(stats.frees, 5);
    CHECK_EQ(stats.resizes, 1);
    CHECK_EQ(stats.requested_bytes, 4500 + 150);
    if (plain(pool)) {
        size_t sums[2] = {0, 0};
        CHECK_EQ(quarry_tlsf_walk(pool, sum_blocks, sums), 0);
        CHECK_EQ(sums[1], stats.used_bytes);
        CHECK_EQ(sums[0] + sums[1], 64 * KIB - QUARRY_TLSF_REGION_OVERHEAD);
        int seen = 0;
        CHECK_EQ(quarry_tlsf_walk(pool, third, &seen), 33);
    }
    CHECK_STR_EQ(quarry_pool_kind(pool), "tlsf");
    CHECK_EQ(quarry_pool_capabilities(pool), QUARRY_POOL_FREES | QUARRY_POOL_SIZES);
    end(pool);
}

// ---- against a model ---------------------------------------------------------------------------------------------

typedef struct model_block {
    unsigned char *p;
    size_t size, alignment;
    uint64_t key;
} model_block_t;

static void model_check(const model_block_t *b) {
    size_t changed = bytes_differ(b->p, b->size, b->key);
    if (changed < b->size) TEST_FAIL("block %p of %zu bytes changed at %zu", (void *)b->p, b->size, changed);
}
static void model_fill(model_block_t *b, uint64_t random) {
    b->key = random;
    bytes_fill(b->p, b->size, b->key);
}
static size_t model_size(uint64_t *random) { return test_random(random) % ((size_t)16 << test_random(random) % 11); }

static void model_step(quarry_pool_t *pool, model_block_t *b, uint64_t *random) {
    size_t size = model_size(random), alignment = (size_t)1 << test_random(random) % (test_random(random) % 4 ? 5 : 11);
    unsigned flags = test_random(random) % 2 ? QUARRY_POOL_ZERO : 0;
    if (!b->p) {
        b->p = quarry_pool_alloc(pool, size, alignment, flags);
        if (!b->p) return;
        if (flags) CHECK_EQ(bytes_nonzero(b->p, size), size);
    } else if (test_random(random) % 3) {
        model_check(b);
        quarry_pool_free(pool, b->p, test_random(random) % 2 ? b->size : QUARRY_SIZE_UNKNOWN);
        b->p = NULL;
        return;
    } else {
        unsigned char *p = quarry_pool_resize(pool, b->p, b->size, size, alignment, flags);
        if (p) {
            size_t kept = b->size < size ? b->size : size;
            CHECK_EQ(bytes_differ(p, kept, b->key), kept);
            if (flags && size > kept) CHECK_EQ(bytes_nonzero(p + kept, size - kept), size - kept);
            b->p = p;
        } else {
            model_check(b);
            return;
        }
    }
    CHECK_EQ((uintptr_t)b->p & (alignment - 1), 0);
    b->size = size;
    model_fill(b, test_random(random));
}

static void model_run(quarry_pool_t *pool, int steps, int check_every) {
    static model_block_t blocks[300];
    uint64_t random = test_seed;
    memset(blocks, 0, sizeof blocks);
    for (int i = 0; i < steps; i++) {
        model_step(pool, &blocks[test_random(&random) % 300], &random);
        if (i % check_every == 0) CHECK_EQ(quarry_pool_check(pool), 0);
    }
    for (int i = 0; i < 300; i++) {
        if (!blocks[i].p) continue;
        model_check(&blocks[i]);
        quarry_pool_free(pool, blocks[i].p, blocks[i].size);
    }
}

TEST(random_in_a_tight_buffer) {
    quarry_pool_t *pool = on_arena(sizeof arena, QUARRY_TLSF_FIXED);
    model_run(pool, QY_TSAN || QY_ASAN ? 15000 : 60000, 1);
    end(pool);
}
TEST(random_growing) {
    quarry_pool_t *pool = quarry_tlsf_create(&(quarry_tlsf_options_t){.chunk_bytes = 64 * KIB});
    model_run(pool, QY_TSAN || QY_ASAN ? 15000 : 60000, 5);
    end(pool);
}
TEST(random_in_many_regions) {
    quarry_pool_t *pool = on_arena(8 * KIB, QUARRY_TLSF_FIXED);
    for (size_t at = 8 * KIB; at + 10000 < sizeof arena; at += 10001)
        CHECK_EQ(quarry_tlsf_add_region(pool, arena + at, 10001), 0);
    model_run(pool, QY_TSAN || QY_ASAN ? 15000 : 60000, 5);
    end(pool);
}

// ---- threads --------------------------------------------------------------------------------------------------------

#define THREADS 4
static struct {
    quarry_pool_t *pool;
    _Atomic(unsigned char *) slots[256];
    _Atomic bool forked;  // until then the threads go on: none has ended when a child is made
} shared;

static void *thread_body(void *arg) {
    uint64_t random = test_seed + (uintptr_t)arg * 7919;
    int rounds = QY_TSAN || QY_ASAN ? 3000 : plain(shared.pool) ? 30000
                                                                : 6000;
    for (int i = 0; i < rounds || !shared.forked; i++) {
        size_t size = 16 + model_size(&random) % 2000, slot = test_random(&random) % 256;
        unsigned char *p = quarry_pool_alloc(shared.pool, size, 16, QUARRY_POOL_ZERO);
        CHECK(p);
        for (size_t k = 8; k < size; k += 31) CHECK_EQ(p[k], 0);
        memset(p, (int)slot, size);
        memcpy(p, &size, sizeof size);
        if (test_random(&random) % 4 == 0) {
            size_t larger = size * 2;
            p = quarry_pool_resize(shared.pool, p, size, larger, 16, 0);
            CHECK(p);
            CHECK_EQ(p[size - 1], (unsigned char)slot);
            memset(p, (int)slot, larger);
            memcpy(p, &larger, sizeof larger);
        }
        p = atomic_exchange(&shared.slots[slot], p);  // somebody else's, most of the time
        if (!p) continue;
        memcpy(&size, p, sizeof size);
        CHECK_EQ(p[8], (unsigned char)slot);
        CHECK_EQ(p[size - 1], (unsigned char)slot);
        quarry_pool_free(shared.pool, p, size);
        if (i % 5000 == 0) CHECK_EQ(quarry_pool_check(shared.pool), 0);
    }
    return NULL;
}

static void child_uses_it(void *arg) {
    (void)arg;
    for (int i = 0; i < 100; i++) {
        void *p = quarry_pool_alloc(shared.pool, 100, 16, 0);
        CHECK(p);
        quarry_pool_free(shared.pool, p, 100);
    }
    CHECK_EQ(quarry_pool_check(shared.pool), 0);
}

TEST(shared_by_threads_and_forked) {
    shared.pool = quarry_tlsf_create(
        &(quarry_tlsf_options_t){.pool.name = "shared", .flags = QUARRY_TLSF_LOCK, .chunk_bytes = 64 * KIB});
    CHECK(quarry_pool_capabilities(shared.pool) & QUARRY_POOL_SHARED);
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) CHECK_EQ(pthread_create(&threads[i], NULL, thread_body, (void *)i), 0);
    // AddressSanitizer's own malloc, which pass-through calls, does not survive a fork with threads.
    bool may_fork = !(QY_ASAN && (shared.pool->mode & QY_MODE_PASS));
    for (int i = 0; may_fork && i < (QY_TSAN || QY_ASAN ? 5 : 40); i++) run_apart(child_uses_it, NULL);
    shared.forked = true;
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 256; i++)
        quarry_pool_free(shared.pool, atomic_exchange(&shared.slots[i], NULL), QUARRY_SIZE_UNKNOWN);
    quarry_pool_stats_t stats;
    quarry_pool_stats(shared.pool, &stats);
    if (plain(shared.pool)) CHECK_EQ(stats.used_bytes, 0);
    CHECK_EQ(stats.allocs, stats.frees);
    end(shared.pool);
}

TEST_MAIN()
