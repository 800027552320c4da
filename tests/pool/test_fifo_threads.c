// SPDX-License-Identifier: MIT
// test_fifo_threads.c: one thread allocates from a FIFO, all free. Blocks lie in a table of exchanged pointers: the
// owner puts one in and frees what it takes out, others take out and free.
#include <pthread.h>
#include <quarry/fifo.h>
#include <quarry/short.h>
#include <sched.h>
#include <stdatomic.h>

#include "harness.h"
#include "os/os.h"
#include "pool/fifo.h"
#include "pool_test.h"

enum { THREADS = 3,
    TABLE = 512 };

typedef struct block {
    size_t size;
    unsigned char bytes[];
} block_t;

static quarry_pool_t *pool;
static _Atomic(block_t *) table[TABLE];
static _Atomic int stop;

static block_t *new_block(size_t extra) {
    block_t *b = p_new_extra_raw(pool, block_t, extra);
    CHECK(b);
    b->size = extra;
    memset(b->bytes, (int)extra & 0xFF, extra);
    return b;
}
static void end_block(quarry_pool_t *p, block_t *b) {
    for (size_t i = 0; i < b->size; i++) CHECK_EQ(b->bytes[i], b->size & 0xFF);
    memset(b->bytes, 0xDD, b->size);
    quarry_pool_free(p, b, QUARRY_SIZE_UNKNOWN);
}

static void *freer(void *arg) {
    uint64_t state = test_seed + (uint64_t)(uintptr_t)arg;
    while (!atomic_load(&stop)) {
        block_t *b = atomic_exchange(&table[test_random(&state) % TABLE], NULL);
        if (b) end_block(pool, b);
        else sched_yield();
    }
    return NULL;
}

static void run_freers(void (*owner)(uint64_t steps), uint64_t steps) {
    pthread_t t[THREADS];
    atomic_store(&stop, 0);
    for (long i = 0; i < THREADS; i++) CHECK_EQ(pthread_create(&t[i], NULL, freer, (void *)(i + 1)), 0);
    owner(steps);
    atomic_store(&stop, 1);
    for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
}

static void fill_table(uint64_t steps) {
    uint64_t state = test_seed;
    for (uint64_t i = 0; i < steps; i++) {
        size_t extra = i % 1000 == 999 ? 70000 : test_random(&state) % 600;
        block_t *old = atomic_exchange(&table[test_random(&state) % TABLE], new_block(extra));
        if (old) end_block(pool, old);
        if (i % 5000 == 0) CHECK_EQ(quarry_pool_check(pool), 0);
        if (i % 777 == 0) CHECK_LE(stats_of(pool).frees, stats_of(pool).allocs);
    }
}

// Pages whose end was missed are found within a few turns: nothing stays behind.
static void all_pages_come_home(void) {
    for (int i = 0; i < TABLE; i++) {
        block_t *b = atomic_exchange(&table[i], NULL);
        if (b) end_block(pool, b);
    }
    qy_fifo_t *f = (qy_fifo_t *)pool;
    for (int turns = 0; f->npages && turns < 1000; turns++) {
        char *p = quarry_pool_alloc(pool, 30000, 8, 0);
        quarry_pool_free(pool, quarry_pool_alloc(pool, 30000, 8, 0), 0);
        quarry_pool_free(pool, p, 0);
        block_t *pin = quarry_pool_alloc(pool, 8, 8, 0);  // so that the page is left and not begun anew
        quarry_pool_free(pool, quarry_pool_alloc(pool, 30000, 8, 0), 0);
        quarry_pool_free(pool, quarry_pool_alloc(pool, 30000, 8, 0), 0);
        quarry_pool_free(pool, pin, 0);
    }
    CHECK_EQ(f->npages, 0);
    quarry_pool_stats_t s = stats_of(pool);
    CHECK_EQ(s.allocs, s.frees);
    CHECK_EQ(s.used_bytes, 0);
    quarry_fifo_trim(pool);
    CHECK_EQ(stats_of(pool).held_bytes, f->page_bytes);
    CHECK_EQ(quarry_pool_check(pool), 0);
}

static uint64_t steps_of(uint64_t n) {
    const char *env = getenv("QUARRY_STEPS");
    return env ? strtoull(env, NULL, 10) : n;
}

TEST(one_allocates_all_free) {
    CHECK((pool = quarry_fifo_create(NULL)));
    run_freers(fill_table, steps_of(150000));
    all_pages_come_home();
    quarry_pool_destroy(pool);
}

// ---- the last two blocks of a page, freed at the same moment -----------------------------------------------

// Who has to wait for the other looks again for a moment, so that both are at work when it comes; and then sleeps until
// it is woken. By yielding it would wait for everything else that the machine does.
static block_t *_Atomic one;
static _Atomic uint32_t handed, taken;
static void await_number(_Atomic uint32_t *number, uint32_t wanted) {
    for (int spin = 0; spin < 2000; spin++)
        if (atomic_load(number) == wanted) return;
    for (uint32_t now; (now = atomic_load(number)) != wanted;) qy_os_wait(number, now, 0);
}
static void *free_one(void *arg) {
    (void)arg;
    for (uint32_t turn = 1;; turn++) {
        await_number(&handed, turn);
        block_t *b = atomic_load(&one);
        if (!b) return NULL;
        quarry_pool_free(pool, b, 0);
        atomic_store(&taken, turn);
        qy_os_wake(&taken, 1);
    }
}
TEST(the_last_two_at_once) {
    CHECK((pool = quarry_fifo_create(NULL)));
    pthread_t t;
    handed = taken = 0;
    uint32_t turn = 0;
    CHECK_EQ(pthread_create(&t, NULL, free_one, NULL), 0);
    uint64_t state = test_seed;
    static void *stays[256];
    for (uint64_t i = 0; i < steps_of(5120) / 256 * 256; i++) {
        block_t *theirs = quarry_pool_alloc(pool, 30000, 8, 0), *ours = quarry_pool_alloc(pool, 30000, 8, 0);
        stays[i % 256] = quarry_pool_alloc(pool, 30000, 8, 0);  // leaves their page
        quarry_pool_free(pool, quarry_pool_alloc(pool, 30000, 8, 0), 0);
        atomic_store(&one, theirs);
        atomic_store(&handed, ++turn);
        for (uint64_t spin = test_random(&state) % 64; spin; spin--) __asm__ volatile("");
        quarry_pool_free(pool, ours, 0);
        qy_os_wake(&handed, 1);  // only now: it takes longer than the other's free
        await_number(&taken, turn);
        if (i % 256 == 255) {
            CHECK_EQ(quarry_pool_check(pool), 0);
            // a block stays in one of two pages
            CHECK_LE(stats_of(pool).held_bytes, (256 + 40) * ((qy_fifo_t *)pool)->page_bytes);
            for (int k = 0; k < 256; k++) quarry_pool_free(pool, stays[k], 0);
        }
    }
    atomic_store(&one, NULL);
    atomic_store(&handed, ++turn);
    qy_os_wake(&handed, 1);
    pthread_join(t, NULL);
    all_pages_come_home();
    quarry_pool_destroy(pool);
}

// ---- destruction while others free ------------------------------------------------------------------------------

enum { SHARE = 40 };
typedef struct share {
    quarry_pool_t *pool;
    block_t *blocks[SHARE];
    pthread_barrier_t *start;
} share_t;

static void *free_share(void *arg) {
    share_t *s = arg;
    pthread_barrier_wait(s->start);
    for (int i = 0; i < SHARE; i++) end_block(s->pool, s->blocks[i]);
    return NULL;
}

TEST(destruction_while_others_free) {
    for (uint64_t round = 0; round < steps_of(5000) / 25; round++) {
        share_t shares[THREADS];
        pthread_t t[THREADS];
        pthread_barrier_t start;
        pthread_barrier_init(&start, NULL, THREADS + 1);
        CHECK((pool = quarry_fifo_create(&(quarry_fifo_options_t){.pool.name = "ending"})));
        for (int k = 0; k < THREADS; k++) shares[k].pool = pool, shares[k].start = &start;
        for (int i = 0; i < SHARE; i++)
            for (int k = 0; k < THREADS; k++) shares[k].blocks[i] = new_block(i % 7 ? 2500 : 40000);
        block_t *ours[10];
        for (int i = 0; i < 10; i++) ours[i] = new_block(100);
        for (int k = 0; k < THREADS; k++) CHECK_EQ(pthread_create(&t[k], NULL, free_share, &shares[k]), 0);
        pthread_barrier_wait(&start);
        for (int i = 0; i < 10 && round % 3 == 0; i++) end_block(pool, ours[i]);
        quarry_pool_destroy(pool);
        for (int i = 0; i < 10 && round % 3; i++) end_block(pool, ours[i]);
        for (int k = 0; k < THREADS; k++) pthread_join(t[k], NULL);
        CHECK(!exists(pool));  // gone with the last block, whoever had it
        pthread_barrier_destroy(&start);
    }
}

TEST_MAIN()
