// SPDX-License-Identifier: MIT
// test_pow2_inside.c: every short sequence of operations on a small pow2 pool with a check after each, and that the
// check sees damage.
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>

#include "harness.h"
#include "os/fake.h"
#include "pool/pow2.h"

// ---- every sequence ---------------------------------------------------------------------------------------------

// A pool of one region of 4 KiB. Freeing all brings it back to where it began, whatever was done: sequences are simply
// run one after the other. A sequence is checked after its last step; its beginnings are sequences of their own.
#define LIVE 10
typedef struct live {
    unsigned char *p;
    size_t size;
    unsigned char tag;
} live_t;

static struct {
    pow2_t *w;
    live_t live[LIVE];
    unsigned count;
    unsigned char tag;
    uint64_t sequences, refused;
} all;

static void check_all(void) {
    const char *wrong = qy_pow2_check(&all.w->pool);
    if (wrong) TEST_FAIL("%s", wrong);
    size_t used = 0;
    for (unsigned i = 0; i < all.count; i++) {
        const live_t *b = &all.live[i];
        for (size_t k = 0; k < b->size; k++) CHECK_EQ(b->p[k], b->tag);
        used += quarry_pool_usable(&all.w->pool, b->p);
    }
    quarry_pow2_stats_t s;
    quarry_pow2_stats(&all.w->pool, &s);
    CHECK_EQ(used + s.free_bytes, s.region_bytes);
}

static void alloc(size_t size) {
    unsigned char *p = quarry_pool_alloc(&all.w->pool, size, 16, 0);
    if (!p) {
        all.refused++;
        return;
    }
    all.live[all.count] = (live_t){p, size, ++all.tag};
    memset(p, all.tag, size);
    all.count++;
}
static void release(unsigned n) {
    quarry_pool_free(&all.w->pool, all.live[n].p, all.live[n].size);
    for (all.count--; n < all.count; n++) all.live[n] = all.live[n + 1];
}
static void resize(unsigned n, size_t size) {
    live_t *b = &all.live[n];
    unsigned char *p = quarry_pool_resize(&all.w->pool, b->p, b->size, size, 16, 0);
    if (!p) {
        all.refused++;
        return;
    }
    for (size_t k = 0; k < size && k < b->size; k++) CHECK_EQ(p[k], b->tag);
    *b = (live_t){p, size, ++all.tag};
    memset(p, all.tag, size);
}

static bool operate(unsigned op) {
    switch (op) {
    case 0: alloc(32); return true;
    case 1: alloc(500); return true;
    case 2: alloc(1024); return true;
    case 3: alloc(2048); return true;
    case 4:
        if (!all.count) return false;
        release(0);
        return true;
    case 5:
        if (all.count < 2) return false;
        release(all.count - 1);
        return true;
    case 6:
        if (!all.count) return false;
        resize(0, all.live[0].size < 1024 ? all.live[0].size * 4 : 20);
        return true;
    default:
        if (all.count < 2) return false;
        resize(1, all.live[1].size < 2048 ? all.live[1].size * 2 : 60);
        return true;
    }
}
#define OPERATIONS 8

static void run_sequence(uint64_t code, unsigned length) {
    bool made_sense = true;
    for (unsigned i = 0; i < length && made_sense; i++, code /= OPERATIONS) made_sense = operate(code % OPERATIONS);
    if (made_sense) {
        check_all();
        all.sequences++;
    }
    while (all.count) release(all.count - 1);
}

TEST(every_short_sequence) {
    const char *depth = getenv("QUARRY_TEST_DEPTH");
    unsigned longest = depth ? (unsigned)atoi(depth) : QY_ASAN || QY_TSAN ? 5
                                                                          : 6;
    all.w = (pow2_t *)quarry_pow2_create(
        &(quarry_pow2_options_t){.pool.limit = 65536, .partitions = 1, .region_bytes = 4096, .map_bytes = 4096});
    CHECK(all.w);
    if (all.w->pool.mode) TEST_SKIP("needs pools:off: a checked pool has state elsewhere");
    quarry_pool_free(&all.w->pool, quarry_pool_alloc(&all.w->pool, 1, 1, 0), 1);
    quarry_pool_set_limit(&all.w->pool, 4096);  // this region and no other
    uint64_t codes = 1;
    for (unsigned length = 1; length <= longest; length++) {
        codes *= OPERATIONS;
        for (uint64_t code = 0; code < codes; code++) run_sequence(code, length);
    }
    check_all();
    printf("%llu sequences of up to %u operations, %llu refused\n", (unsigned long long)all.sequences, longest,
        (unsigned long long)all.refused);
    CHECK_GT(all.sequences, 10000);
    CHECK_GT(all.refused, 1000);
    CHECK_EQ(all.w->partitions[0].regions->map[0], MAP_FREE | 12);
    quarry_pool_destroy(&all.w->pool);
}

TEST(down_to_the_smallest_block_and_back) {
    pow2_t *w = (pow2_t *)quarry_pow2_create(
        &(quarry_pow2_options_t){.partitions = 1, .region_bytes = 65536, .pool.limit = 65536});
    if (w->pool.mode) TEST_SKIP("needs pools:off: a checked pool has state elsewhere");
    void *p[2048];
    for (unsigned stride = 1; stride < 2048; stride = stride * 2 + 1) {
        for (int i = 0; i < 2048; i++) CHECK((p[i] = quarry_pool_alloc(&w->pool, 32, 1, 0)) != NULL);
        CHECK(!quarry_pool_alloc(&w->pool, 1, 1, 0));
        for (unsigned i = 0; i < 2048; i += 2) quarry_pool_free(&w->pool, p[i * stride % 2048], 32);
        CHECK(!qy_pow2_check(&w->pool));
        for (unsigned i = 1; i < 2048; i += 2) quarry_pool_free(&w->pool, p[i * stride % 2048], 32);
        CHECK(!qy_pow2_check(&w->pool));
        CHECK_EQ(w->partitions[0].regions->map[0], MAP_FREE | 16);
    }
    quarry_pool_destroy(&w->pool);
}

// ---- the check can fail --------------------------------------------------------------------------------------------

TEST(the_check_sees_damage) {
    pow2_t *w = (pow2_t *)quarry_pow2_create(&(quarry_pow2_options_t){.partitions = 1, .region_bytes = 4096});
    if (w->pool.mode) TEST_SKIP("needs pools:off: a checked pool has state elsewhere");
    void *p[8];
    for (int i = 0; i < 8; i++) p[i] = quarry_pool_alloc(&w->pool, 100, 16, 0);
    for (int i = 0; i < 8; i += 2) quarry_pool_free(&w->pool, p[i], 100);
    CHECK(!qy_pow2_check(&w->pool));
    pow2_region_t *r = w->partitions[0].regions;
    for (size_t i = 0; i < 4096 / 32; i++) {
        if (i && r->map[i - 1] & MAP_FREE) continue;  // how dirty it is: of no consequence for structure
        for (unsigned bit = 0; bit < 8; bit++) {
            r->map[i] ^= (uint8_t)(1u << bit);
            CHECK(qy_pow2_check(&w->pool));
            r->map[i] ^= (uint8_t)(1u << bit);
        }
    }
    for (int i = 0; i < 8; i += 2) {
        pow2_links_t saved, *links = p[i];
        saved = *links;
        links->prev = (pow2_links_t *)p[7];
        CHECK(qy_pow2_check(&w->pool));
        *links = saved;
        links->next = (pow2_links_t *)p[i];
        CHECK(qy_pow2_check(&w->pool));
        *links = saved;
    }
    w->partitions[0].orders ^= 1u << 20;
    CHECK(qy_pow2_check(&w->pool));
    w->partitions[0].orders ^= 1u << 20;
    w->partitions[0].used_bytes += 32;
    CHECK(qy_pow2_check(&w->pool));
    w->partitions[0].used_bytes -= 32;
    CHECK(!qy_pow2_check(&w->pool));
    quarry_pool_free(&w->pool, quarry_pool_alloc(&w->pool, 1 << 21, 16, 0), 1 << 21);
    CHECK(!qy_pow2_check(&w->pool));
    w->kept[0].bytes -= 4096;
    CHECK(qy_pow2_check(&w->pool));
    w->kept[0].bytes += 4096;
    CHECK(!qy_pow2_check(&w->pool));
    quarry_pool_destroy(&w->pool);
}

// ---- freed mappings -------------------------------------------------------------------------------------------------

#define MIB ((size_t)1 << 20)

TEST(kept_for_a_second) {
    pow2_t *w = (pow2_t *)quarry_pow2_create(&(quarry_pow2_options_t){.partitions = 1});
    if (w->pool.mode) TEST_SKIP("needs pools:off: a checked pool keeps blocks in quarantine");
    char *p[3];
    for (int i = 0; i < 3; i++) p[i] = quarry_pool_alloc(&w->pool, 2 * MIB, 16, 0);
    quarry_pool_free(&w->pool, p[0], 2 * MIB);
    quarry_pool_free(&w->pool, p[1], 2 * MIB);
    CHECK_EQ(w->kept_bytes, 4 * MIB);
    w->kept[0].since_ns -= POW2_KEPT_NS + 1;  // the first has been there for long
    quarry_pool_free(&w->pool, p[2], 2 * MIB);
    CHECK_EQ(w->kept_count, 2);
    CHECK_PTR_EQ(w->kept[0].base, p[1]);
    w->kept[0].since_ns -= POW2_KEPT_NS + 1;
    w->kept[1].since_ns -= POW2_KEPT_NS + 1;
    char *q = quarry_pool_alloc(&w->pool, 2 * MIB, 16, 0);
    CHECK_EQ(w->kept_bytes, 0);
    for (size_t i = 0; i < 2 * MIB; i += 4096) CHECK_EQ(q[i], 0);  // so it is a new one
    CHECK(!qy_pow2_check(&w->pool));
    quarry_pool_destroy(&w->pool);
}

// The smallest that is large enough, else the largest, at an address that will do.
TEST(which_is_taken) {
    pow2_t *w = (pow2_t *)quarry_pow2_create(&(quarry_pow2_options_t){.partitions = 1});
    if (w->pool.mode) TEST_SKIP("needs pools:off: a checked pool keeps blocks in quarantine");
    static const size_t sizes[] = {3, 2, 5, 4};
    char *p[4], *between[4];
    for (int i = 0; i < 4; i++) {
        p[i] = quarry_pool_alloc(&w->pool, sizes[i] * MIB, 16, 0);
        between[i] = quarry_pool_alloc(&w->pool, MIB, 16, 0);
    }
    for (int i = 0; i < 4; i++) quarry_pool_free(&w->pool, p[i], sizes[i] * MIB);
    CHECK_PTR_EQ(quarry_pool_alloc(&w->pool, 3 * MIB + 1, 16, 0), p[3]);
    CHECK_PTR_EQ(quarry_pool_alloc(&w->pool, 3 * MIB, 16, 0), p[0]);
    CHECK_PTR_EQ(quarry_pool_alloc(&w->pool, MIB, 16, 0), p[1]);  // what is left of p[3] is smaller by a page
    CHECK_EQ(w->kept_bytes, 7 * MIB - qy_os_page_size());
    CHECK(quarry_pool_alloc(&w->pool, 6 * MIB, 16, 0));  // p[2], grown
    CHECK_EQ(w->kept_bytes, 2 * MIB - qy_os_page_size());
    size_t bytes = w->kept_bytes;
    char *far = quarry_pool_alloc(&w->pool, MIB, (size_t)1 << 30, 0);
    CHECK_EQ((uintptr_t)far & (((size_t)1 << 30) - 1), 0);
    CHECK_EQ(w->kept_bytes, bytes);  // none lies so
    CHECK(!qy_pow2_check(&w->pool));
    for (int i = 0; i < 4; i++) quarry_pool_free(&w->pool, between[i], MIB);
    quarry_pool_destroy(&w->pool);
}

// A free that waits for the lock meanwhile is not older than one that had it.
static qy_pool_chunk_t waiting;
static void *keep_it(void *w) {
    qy_pow2_keep(w, waiting.base, waiting.bytes);
    return NULL;
}
TEST(kept_in_the_order_of_time) {
    pow2_t *w = (pow2_t *)quarry_pow2_create(&(quarry_pow2_options_t){.partitions = 1});
    qy_pool_chunk_t chunk;
    pthread_t thread;
    CHECK(
        qy_chunk_get(&w->pool, 2 * MIB, 2 * MIB, 16, &waiting) && qy_chunk_get(&w->pool, 2 * MIB, 2 * MIB, 16, &chunk));
    qy_lock_take(&w->mapped_lock);
    CHECK_EQ(pthread_create(&thread, NULL, keep_it, w), 0);
    usleep(50000);
    w->kept[w->kept_count++] = (pow2_kept_t){chunk.base, chunk.bytes, qy_os_now_coarse_ns()};
    w->kept_bytes += chunk.bytes;
    qy_lock_drop(&w->mapped_lock);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(w->kept_count, 2);
    CHECK(!qy_pow2_check(&w->pool));
    quarry_pool_destroy(&w->pool);
}

// ---- regions
// -----------------------------------------------------------------------------------------------------------

// A region smaller than a page of the kernel has all of it.
TEST(regions_below_a_page) {
    quarry_os_fake_page_size(65536);
    quarry_pool_stats_t s;
    quarry_pool_t *pool = quarry_pow2_create(&(quarry_pow2_options_t){.partitions = 1, .region_bytes = 4096});
    char *p = quarry_pool_alloc(pool, 100, 16, 0);
    CHECK(p);
    quarry_pool_stats(pool, &s);
    CHECK_EQ(s.held_bytes, 65536);
    quarry_pool_free(pool, p, 100);
    quarry_pow2_trim(pool);
    quarry_pool_stats(pool, &s);
    CHECK_EQ(s.held_bytes, 0);
    quarry_pool_destroy(pool);
    quarry_os_fake_page_size(0);
}

// An entry of the table whose region has gone is used again for another while a reader looks at it, who looks for a
// smaller region at that place: between any two of its instructions, by a signal. Never the other is found.
// The signal comes from a timer for one time, after up to 8 us of looks. A second thread that sends it would make the
// reader wait for a processor.
#define ROUNDS 4000
static struct {
    pow2_entry_t *entry;
    uintptr_t key;  // of the other region
    _Atomic bool armed;
} again;
static pow2_region_t other;

static void use_again(int signal) {
    (void)signal;
    // As insert does it.
    atomic_store_explicit(&again.entry->key, again.key, memory_order_release);
    atomic_store_explicit(&again.entry->region, &other, memory_order_release);
    atomic_store(&again.armed, false);
}

TEST(an_entry_that_is_used_again) {
    pow2_t *w = (pow2_t *)quarry_pow2_create(&(quarry_pow2_options_t){.partitions = 1});
    pow2_table_t *t = atomic_load(&w->table);
    uintptr_t place = pow2_bytes((unsigned)w->region_order);
    uint64_t random = test_seed;
    t->mask = 0;  // every place has this entry
    again.entry = &t->entries[0];
    again.key = 2 * place | w->region_order;
    signal(SIGALRM, use_again);
    unsigned found = 0;
    for (unsigned i = 0; i < ROUNDS; i++) {
        atomic_store(&again.entry->region, NULL);
        atomic_store(&again.entry->key, place | w->region_order);
        atomic_store(&again.armed, true);
        struct itimerval once = {.it_value.tv_usec = 1 + (long)(test_random(&random) % 8)};
        CHECK_EQ(setitimer(ITIMER_REAL, &once, NULL), 0);
        while (atomic_load(&again.armed)) found += pow2_region_of(w, (void *)place) != NULL;
    }
    signal(SIGALRM, SIG_DFL);
    CHECK_EQ(found, 0);
    atomic_store(&again.entry->region, NULL);
    quarry_pool_destroy(&w->pool);
}

TEST_MAIN()
