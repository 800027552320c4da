// SPDX-License-Identifier: MIT
// First-class heaps against a model: what a walk finds is what was allocated, a limit holds, a
// destroyed heap takes its blocks along and nobody else's.
#include <pthread.h>
#include <quarry/heap.h>

#include "stress/shadow.h"

enum { HEAPS = 4,
    SLOTS = 150,
    THREADS_MAX = 16 };

// A block begins with its number in the model; the rest is its pattern.
typedef struct slot {
    shadow_t s;
    int heap;
} slot_t;
static slot_t slots[THREADS_MAX][SLOTS];
static quarry_heap_t *heap[HEAPS];

static void label(slot_t *slot) { memcpy(slot->s.p, &slot, sizeof slot); }
static void unlabel(slot_t *slot) {
    for (size_t i = 0; i < sizeof slot; i++) slot->s.p[i] = pattern_at(slot->s.key, i);
}

static void make(slot_t *slot, int which, uint64_t *random) {
    size_t n = shadow_size(random), align = 16;
    if (n < sizeof slot) n = sizeof slot;
    void *p;
    switch (test_random(random) % 4) {
    case 0:
        p = quarry_heap_calloc(heap[which], 1, n);
        for (size_t i = 0; p && i < n; i = pattern_next(i, n)) CHECK_EQ(((unsigned char *)p)[i], 0);
        break;
    case 1:
        align = (size_t)16 << test_random(random) % 10;
        p = quarry_heap_aligned_alloc(heap[which], align, n);
        break;
    default: p = quarry_heap_alloc(heap[which], n);
    }
    slot->heap = which;
    shadow_set(&slot->s, p, n, align);
    label(slot);
}

static void drop(slot_t *slot, uint64_t *random) {
    if (!slot->s.p) return;
    unlabel(slot);
    shadow_check(&slot->s, slot->s.n);
    if (test_random(random) % 2) quarry_heap_free(heap[slot->heap], slot->s.p);
    else m.free(slot->s.p);
    slot->s.p = NULL;
}

static void resize(slot_t *slot, uint64_t *random) {
    unlabel(slot);
    shadow_check(&slot->s, slot->s.n);
    size_t n = shadow_size(random);
    if (n < sizeof slot) n = sizeof slot;
    shadow_t old = slot->s;
    unsigned char *p = quarry_heap_realloc(heap[slot->heap], slot->s.p, n);
    CHECK(p != NULL);
    for (size_t i = 0; i < old.n && i < n; i = pattern_next(i, old.n)) CHECK_EQ(p[i], pattern_at(old.key, i));
    shadow_set(&slot->s, p, n, 16);
    label(slot);
}

static void *work(void *arg) {
    long k = (long)(uintptr_t)arg;
    uint64_t random = test_seed * 100 + (uint64_t)k;
    for (long i = 0; i < stress_ops / 4; i++) {
        slot_t *slot = &slots[k][test_random(&random) % SLOTS];
        switch (test_random(&random) % 8) {
        case 0:
        case 1: drop(slot, &random); break;
        case 2:
            if (slot->s.p) resize(slot, &random);
            break;
        default:
            drop(slot, &random);
            make(slot, (int)(test_random(&random) % HEAPS), &random);
        }
    }
    return NULL;
}

typedef struct seen {
    int heap;
    size_t blocks, bytes;
} seen_t;
static int visit(void *block, size_t usable, void *arg) {
    seen_t *seen = arg;
    slot_t *slot;
    memcpy(&slot, block, sizeof slot);
    CHECK_LT((uintptr_t)slot - (uintptr_t)slots, sizeof slots);
    CHECK(slot->s.p == block && slot->heap == seen->heap && usable >= slot->s.n);
    seen->blocks++;
    seen->bytes += usable;
    return 0;
}

// Walk, statistics and model say the same.
static void compare(int which) {
    size_t blocks = 0, bytes = 0;
    for (int k = 0; k < THREADS_MAX; k++) {
        for (int i = 0; i < SLOTS; i++) {
            if (!slots[k][i].s.p || slots[k][i].heap != which) continue;
            blocks++;
            bytes += m.usable_size(slots[k][i].s.p);
        }
    }
    seen_t seen = {which, 0, 0};
    CHECK_EQ(quarry_heap_walk(heap[which], visit, &seen), 0);
    CHECK_EQ(seen.blocks, blocks);
    CHECK_EQ(seen.bytes, bytes);
    quarry_heap_stats_t stats;
    quarry_heap_stats(heap[which], &stats);
    CHECK_EQ(stats.live_blocks, blocks);
    CHECK_EQ(stats.live_bytes, bytes);
    CHECK_GE(stats.held_bytes, bytes);
    CHECK_EQ(quarry_heap_check(heap[which]), 0);
}

static void forget(int which) {
    for (int k = 0; k < THREADS_MAX; k++) {
        for (int i = 0; i < SLOTS; i++) {
            if (slots[k][i].heap == which) slots[k][i].s.p = NULL;
        }
    }
}

TEST(model) {
    long threads = stress_threads > THREADS_MAX ? THREADS_MAX : stress_threads;
    pthread_t thread[THREADS_MAX];
    uint64_t random = test_seed;
    for (int round = 0; round < 3; round++) {
        for (int h = 0; h < HEAPS; h++) {
            char name[64];
            snprintf(name, sizeof name, "heap %d with a name longer than what is kept", h);
            heap[h] = quarry_heap_create(h ? &(quarry_heap_options_t){.name = name} : NULL);
            CHECK(heap[h] != NULL);
            compare(h);
        }
        for (long k = 0; k < threads; k++) CHECK_EQ(pthread_create(&thread[k], NULL, work, (void *)(uintptr_t)k), 0);
        for (long k = 0; k < threads; k++) pthread_join(thread[k], NULL);
        for (int h = 0; h < HEAPS; h++) compare(h);
        // One goes with all its blocks; those of the others stay as they are.
        for (int h = 0; h < HEAPS; h++) {
            if (h % 2) {
                for (int k = 0; k < THREADS_MAX; k++) {
                    for (int i = 0; i < SLOTS; i++) {
                        if (slots[k][i].heap == h) drop(&slots[k][i], &random);
                    }
                }
                compare(h);
            }
            quarry_heap_destroy(heap[h]);
            forget(h);
            for (int other = h + 1; other < HEAPS; other++) compare(other);
        }
    }
}

static int stop_at_third(void *block, size_t usable, void *arg) {
    (void)block, (void)usable;
    return ++*(int *)arg == 3 ? 42 : 0;
}

TEST(walk_stops) {
    quarry_heap_t *h = quarry_heap_create(NULL);
    for (int i = 0; i < 10; i++) CHECK(quarry_heap_alloc(h, 100) != NULL);
    int count = 0;
    CHECK_EQ(quarry_heap_walk(h, stop_at_third, &count), 42);
    CHECK_EQ(count, 3);
    quarry_heap_destroy(h);
    quarry_heap_destroy(NULL);
}

TEST(limit_holds) {
    static const size_t sizes[] = {16, 1000, 20000, 100000, 1 << 20, (1 << 20) + 1, 3 << 20};
    static void *p[(1 << 19) + 1];
    const size_t limit = 8 << 20;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        quarry_heap_t *h = quarry_heap_create(&(quarry_heap_options_t){.limit = limit});
        size_t counts[2];
        for (int round = 0; round < 2; round++) {
            size_t count = 0;
            errno = 77;
            while ((p[count] = quarry_heap_alloc(h, sizes[i]))) {
                memset(p[count], 1, 8);
                CHECK_LE(++count, 1 << 19);
                CHECK_EQ(errno, 77);
            }
            CHECK_EQ(errno, ENOMEM);
            quarry_heap_stats_t stats;
            quarry_heap_stats(h, &stats);
            CHECK_LE(stats.held_bytes, limit);
            CHECK_EQ(stats.limit, limit);
            CHECK_EQ(stats.live_blocks, count);
            if (count * sizes[i] < limit / 2) TEST_FAIL("size %zu: only %zu blocks in 8 MiB", sizes[i], count);
            void *bigger = quarry_heap_realloc(h, p[0], limit + 1);
            CHECK(!bigger && errno == ENOMEM);
            counts[round] = count;
            while (count) quarry_heap_free(h, p[--count]);
        }
        CHECK_GE(counts[1], counts[0] - counts[0] / 16);  // nothing was lost
        // Below what it holds: nothing more is given, nothing is lost; without a limit it goes on.
        void *one = quarry_heap_alloc(h, sizes[i]);
        CHECK(one != NULL);
        quarry_heap_set_limit(h, 1);
        CHECK(!quarry_heap_alloc(h, 4 << 20));
        quarry_heap_set_limit(h, 0);
        void *two = quarry_heap_alloc(h, 2 * limit);
        CHECK(two != NULL);
        memset(two, 1, 2 * limit);
        CHECK_EQ(quarry_heap_check(h), 0);
        quarry_heap_destroy(h);
    }
}

// Heaps come and go: their memory is used again.
TEST(many_heaps) {
    long pages[2] = {0, 0};
    for (int round = 0; round < 3000; round++) {
        quarry_heap_t *h = quarry_heap_create(&(quarry_heap_options_t){.name = "short-lived"});
        CHECK(h != NULL);
        for (int i = 0; i < 40; i++) {
            char *q = quarry_heap_alloc(h, (size_t)1 << i % 17);
            CHECK(q != NULL);
            *q = 1;
        }
        if (round % 10 == 0) memset(quarry_heap_alloc(h, 3 << 20), 1, 3 << 20);
        quarry_heap_destroy(h);
        if (round == 300 || round == 2999) {
            FILE *f = fopen("/proc/self/statm", "r");
            CHECK(f && fscanf(f, "%*d %ld", &pages[round > 300]) == 1);
            fclose(f);
        }
    }
    if (!FAMILY_SANITIZED) CHECK_LT(pages[1], pages[0] + 2048);
}

TEST(bad_requests) {
    quarry_heap_t *h = quarry_heap_create(NULL);
    void *p = quarry_heap_alloc(h, 100);
    memset(p, 7, 100);
    static const size_t bad[] = {PTRDIFF_MAX, (size_t)PTRDIFF_MAX + 1, SIZE_MAX, SIZE_MAX - 4096};
    for (int i = 0; i < 4; i++) {
        volatile size_t n = bad[i];
        errno = 0;
        CHECK(!opaque(quarry_heap_alloc(h, n)) && errno == ENOMEM);
        errno = 0;
        CHECK(!opaque(quarry_heap_calloc(h, 1, n)) && errno == ENOMEM);
        errno = 0;
        CHECK(!opaque(quarry_heap_aligned_alloc(h, 64, n)) && errno == ENOMEM);
        errno = 0;
        CHECK(!opaque(quarry_heap_realloc(h, p, n)) && errno == ENOMEM);
    }
    volatile size_t big = SIZE_MAX / 2, no_power = 48;
    errno = 0;
    CHECK(!opaque(quarry_heap_calloc(h, big, 3)) && errno == ENOMEM);
    errno = 0;
    CHECK(!opaque(quarry_heap_aligned_alloc(h, no_power, 10)) && errno == EINVAL);
    for (int i = 0; i < 100; i++) CHECK_EQ(((char *)p)[i], 7);
    void *zero = quarry_heap_alloc(h, 0), *other = quarry_heap_alloc(h, 0);
    CHECK(zero && other && zero != other);
    errno = 78;
    quarry_heap_free(h, NULL);
    quarry_heap_free(h, zero);
    quarry_heap_free(h, p);
    CHECK_EQ(errno, 78);
    CHECK(!quarry_heap_realloc(h, other, 0));
    quarry_heap_stats_t stats;
    quarry_heap_stats(h, &stats);
    CHECK_EQ(stats.live_blocks, 0);
    quarry_heap_destroy(h);
}

int main(int argc, char **argv) { return stress_main(argc, argv); }
