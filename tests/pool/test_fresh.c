// SPDX-License-Identifier: MIT
// test_fresh.c: tlsf pools and stacks leave zeros that are there untouched, and clear everything else.
#include <quarry/stack.h>
#include <quarry/tlsf.h>
#include <sys/wait.h>

#include "bytes.h"
#include "os/os.h"
#include "pool/stack.h"
#include "pool/tlsf.h"
#include "pool_test.h"
#include "resident.h"

#define KIB ((size_t)1 << 10)
#define DIRT 0xEE

static quarry_pool_t *tlsf(quarry_pool_t *parent, unsigned flags) {
    quarry_pool_t *pool = quarry_tlsf_create(&(quarry_tlsf_options_t){.pool = {.parent = parent}, .flags = flags});
    CHECK(pool && plain(pool));
    return pool;
}
static quarry_pool_t *stack(quarry_pool_t *parent) {
    quarry_pool_t *pool = quarry_stack_create(&(quarry_stack_options_t){.pool = {.parent = parent}});
    CHECK(pool && plain(pool));
    return pool;
}

static unsigned char *zeros(quarry_pool_t *pool, size_t size, size_t alignment) {
    unsigned char *p = quarry_pool_alloc(pool, size, alignment, QUARRY_POOL_ZERO);
    CHECK(p);
    return p;
}
static void must_be_zero(const unsigned char *p, size_t size) { CHECK_EQ(bytes_nonzero(p, size), size); }

// Pages behind a zeroed block, which is zero.
static size_t pages_of_zeros(quarry_pool_t *pool, size_t size, size_t alignment) {
    unsigned char *p = zeros(pool, size, alignment);
    size_t pages = resident_pages(p, size);
    must_be_zero(p, size);
    memset(p, DIRT, size);
    return pages;
}

// ---- tlsf ---------------------------------------------------------------------------------------------------

// A block that comes and goes at the edge dirties what it had, and no more.
static void tlsf_edge(unsigned flags) {
    quarry_pool_t *pool = tlsf(NULL, flags);
    for (size_t size = 20000; size <= 320000; size += 20000) {
        size_t used = size - 20000, page = qy_os_page_size();
        unsigned char *p = zeros(pool, size, 16);
        // The heads and links of the block that was freed here last, and what it had.
        CHECK_LE(resident_pages(p, size), used / page + 4 + TLSF_STEP / page);
        must_be_zero(p, size);
        memset(p, DIRT, size);
        quarry_pool_free(pool, p, size);
        CHECK_EQ(quarry_pool_check(pool), 0);
    }
    end(pool);
}
TEST(tlsf_edge_stays_fresh) { tlsf_edge(0); }
TEST(tlsf_edge_stays_fresh_under_the_lock) { tlsf_edge(QUARRY_TLSF_LOCK); }

// In place at the edge, also over a free block that lies between: the new part is zero, and not there.
TEST(tlsf_blocks_grow_into_fresh_memory) {
    for (int between = 0; between < 2; between++) {
        quarry_pool_t *pool = tlsf(NULL, 0);
        unsigned char *p = quarry_pool_alloc(pool, 40000, 16, 0);
        memset(p, DIRT, 40000);
        if (between) {
            unsigned char *next = quarry_pool_alloc(pool, 20000, 16, 0);
            memset(next, DIRT, 20000);
            quarry_pool_free(pool, next, 20000);
        }
        size_t old = 40000;
        for (size_t size = 100000; size <= 700000; old = size, size += 100000) {
            CHECK_PTR_EQ(quarry_pool_resize(pool, p, old, size, 16, QUARRY_POOL_ZERO), p);
            CHECK_LE(resident_pages(p, size), (old + 60000) / qy_os_page_size() + 8);
            must_be_zero(p + old, size - old);
            CHECK_EQ(p[39999], DIRT);
            CHECK_EQ(quarry_pool_check(pool), 0);
        }
        CHECK_EQ(stats_of(pool).chunk_gets, 1);
        quarry_pool_free(pool, p, old);
        end(pool);
    }
}

// A region takes over when another is full. All of both is used, whichever has more left.
TEST(tlsf_uses_all_of_each_region) {
    quarry_pool_t *pool = tlsf(NULL, 0);
    size_t page = qy_os_page_size(), pages = 0, sum = 0;
    static const size_t sizes[] = {700 * KIB, 900 * KIB, 200 * KIB, 3000 * KIB, 100 * KIB, 90 * KIB, 800 * KIB};
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        pages += pages_of_zeros(pool, sizes[i], i % 2 ? 4096 : 16);
        sum += sizes[i];
        CHECK_EQ(quarry_pool_check(pool), 0);
    }
    printf("  %zu of %zu pages\n", pages, sum / page);
    CHECK_LE(pages, sum / page / 10);
    // What the regions have left is enough for small blocks.
    uint64_t chunks = stats_of(pool).chunk_gets;
    size_t left = stats_of(pool).held_bytes - stats_of(pool).used_bytes;
    for (size_t used = 0; used + 64 * KIB < left / 2; used += 1008) must_be_zero(zeros(pool, 1000, 16), 1000);
    CHECK_EQ(stats_of(pool).chunk_gets, chunks);
    end(pool);
}

typedef struct walked {
    size_t used, free;
} walked_t;
static int add_up(void *block, size_t bytes, int used, void *arg) {
    (void)block;
    *(used ? &((walked_t *)arg)->used : &((walked_t *)arg)->free) += bytes + QUARRY_TLSF_BLOCK_OVERHEAD;
    return 0;
}

// A walk shows fresh memory as the free memory it is.
TEST(tlsf_walk_shows_all) {
    quarry_pool_t *pool = tlsf(NULL, 0);
    zeros(pool, 100, 16);
    walked_t w = {0, 0};
    quarry_tlsf_walk(pool, add_up, &w);
    CHECK_EQ(w.used, stats_of(pool).used_bytes);
    CHECK_GE(w.used + w.free, stats_of(pool).held_bytes - 2 * QUARRY_TLSF_REGION_OVERHEAD);
    end(pool);
}

// ---- stack --------------------------------------------------------------------------------------------------

// What ended frames had is dirty, however they were filled. What nobody had is not.
TEST(stack_frames_dirty_what_they_had) {
    quarry_pool_t *pool = stack(NULL);
    quarry_stack_frame_t f;
    size_t page = qy_os_page_size();
    for (size_t size = 10000; size <= 1000000; size += 90000) {
        quarry_stack_push(pool, &f);
        size_t pages = pages_of_zeros(pool, size, 16);
        quarry_stack_pop(pool, &f);
        // The chunk was used up to the last size, and a small block ahead.
        CHECK_LE(pages, (size - 9000) / page + 4 + QY_STACK_STEP / page);
        quarry_stack_push(pool, &f);
        for (size_t n = 0; n < size / 2; n += 100) {
            unsigned char *p = quarry_stack_alloc(pool, 100, 4, n % 200 ? QUARRY_POOL_ZERO : 0);
            if (n % 200) must_be_zero(p, 100);
            memset(p, DIRT, 100);
        }
        quarry_stack_pop(pool, &f);
        CHECK_EQ(quarry_pool_check(pool), 0);
    }
    end(pool);
}

TEST(stack_blocks_grow_into_fresh_memory) {
    quarry_pool_t *pool = quarry_stack_create(&(quarry_stack_options_t){.chunk_bytes = 1024 * KIB});
    unsigned char *p = quarry_pool_alloc(pool, 1000, 16, 0);
    memset(p, DIRT, 1000);
    for (size_t old = 1000, size = 100000; size <= 900000; old = size, size += 100000) {
        CHECK_PTR_EQ(quarry_pool_resize(pool, p, old, size, 16, QUARRY_POOL_ZERO), p);
        CHECK_LE(resident_pages(p, size), old / qy_os_page_size() + 4 + QY_STACK_STEP / qy_os_page_size());
        must_be_zero(p + old, size - old);
        memset(p, DIRT, size);
    }
    // It shrinks, and what it had is dirty for the next.
    CHECK_PTR_EQ(quarry_pool_resize(pool, p, 900000, 1000, 16, 0), p);
    must_be_zero(zeros(pool, 800000, 16), 800000);
    end(pool);
}

// ---- memory that is not fresh --------------------------------------------------------------------------------

static void all_sizes_are_zero(quarry_pool_t *pool) {
    for (size_t size = 1; size < 300 * KIB; size = size * 3 + 1) must_be_zero(zeros(pool, size, 64), size);
    CHECK_EQ(quarry_pool_check(pool), 0);
}

static unsigned char buffer[1024 * 1024];

TEST(a_buffer_is_not_fresh) {
    for (int kind = 0; kind < 2; kind++) {
        memset(buffer, DIRT, sizeof buffer);
        quarry_pool_t *pool = kind ? quarry_stack_create(
                                         &(quarry_stack_options_t){.buffer = buffer, .buffer_bytes = sizeof buffer})
                                   : quarry_tlsf_create(
                                         &(quarry_tlsf_options_t){.buffer = buffer, .buffer_bytes = sizeof buffer});
        all_sizes_are_zero(pool);
        end(pool);
    }
}

// A region that is added to a pool with fresh memory of its own.
TEST(an_added_region_is_not_fresh) {
    quarry_pool_t *pool = tlsf(NULL, 0);
    zeros(pool, 100, 16);
    memset(buffer, DIRT, sizeof buffer);
    CHECK_EQ(quarry_tlsf_add_region(pool, buffer, sizeof buffer), 0);
    for (int i = 0; i < 30; i++) must_be_zero(zeros(pool, 60000, 16), 60000);
    CHECK_EQ(quarry_pool_check(pool), 0);
    end(pool);
}

// A parent hands out what others have had.
TEST(a_parent_s_memory_is_not_fresh) {
    for (int kind = 0; kind < 2; kind++) {
        quarry_pool_t *parent = tlsf(NULL, 0);
        void *used = quarry_pool_alloc(parent, 8000 * KIB, 16, 0);
        memset(used, DIRT, 8000 * KIB);
        quarry_pool_free(parent, used, 8000 * KIB);
        quarry_pool_t *pool = kind ? stack(parent) : tlsf(parent, 0);
        all_sizes_are_zero(pool);
        end(pool);
        end(parent);
    }
}

// Chunks that went back and came again are fresh again; those that were kept are not.
TEST(after_everything_was_given_back) {
    quarry_pool_t *pool = stack(NULL);
    quarry_stack_frame_t f;
    for (int round = 0; round < 3; round++) {
        quarry_stack_push(pool, &f);
        for (int i = 0; i < 20; i++) pages_of_zeros(pool, 200000, 16);
        quarry_stack_pop(pool, &f);
        if (round == 1) quarry_stack_reset(pool);
    }
    end(pool);
    pool = tlsf(NULL, 0);
    for (int round = 0; round < 3; round++) {
        unsigned char *p[20];
        for (int i = 0; i < 20; i++) {
            must_be_zero(p[i] = zeros(pool, 200000, 16), 200000);
            memset(p[i], DIRT, 200000);
        }
        for (int i = 0; i < 20; i++) quarry_pool_free(pool, p[i], 200000);
        CHECK_EQ(quarry_pool_check(pool), 0);
    }
    end(pool);
}

// A child knows what its parent has used.
TEST(a_child_of_a_fork) {
    quarry_pool_t *pools[] = {tlsf(NULL, 0), tlsf(NULL, QUARRY_TLSF_LOCK), stack(NULL)};
    for (int i = 0; i < 3; i++) memset(quarry_pool_alloc(pools[i], 100000, 16, 0), DIRT, 100000);
    pid_t child = fork();
    for (int i = 0; i < 3; i++) {
        pages_of_zeros(pools[i], 300000, 16);
        pages_of_zeros(pools[i], 30000, 16);
    }
    if (child == 0) _exit(0);
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    for (int i = 0; i < 3; i++) end(pools[i]);
}

// ---- anything -----------------------------------------------------------------------------------------------

// Blocks of all sizes are dirtied, freed, resized in random order; what is asked for as zero is zero.
TEST(random_zeros) {
    enum { SLOTS = 100 };
    static struct {
        unsigned char *p;
        size_t n;
    } slots[SLOTS];
    uint64_t random = test_seed;
    for (int round = 0; round < 6; round++) {
        quarry_pool_t *pool = round % 2 ? stack(NULL) : tlsf(NULL, round == 2 ? QUARRY_TLSF_LOCK : 0);
        memset(slots, 0, sizeof slots);
        for (int i = 0; i < 4000; i++) {
            unsigned k = test_random(&random) % SLOTS;
            size_t n = 1 + test_random(&random) % ((size_t)1 << (4 + test_random(&random) % 15));
            unsigned flags = test_random(&random) % 2 ? QUARRY_POOL_ZERO : 0;
            size_t old = slots[k].n;
            if (slots[k].p && test_random(&random) % 2) {
                quarry_pool_free(pool, slots[k].p, old);
                slots[k].p = NULL;
                old = 0;
            }
            CHECK((slots[k].p = quarry_pool_resize(pool, slots[k].p, old, n, 16, flags)));
            if (flags && n > old) must_be_zero(slots[k].p + old, n - old);
            memset(slots[k].p, DIRT, n);
            slots[k].n = n;
        }
        CHECK_EQ(quarry_pool_check(pool), 0);
        end(pool);
    }
}

TEST_MAIN()
