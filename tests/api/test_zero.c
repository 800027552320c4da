// SPDX-License-Identifier: MIT
// calloc gives zeros: also in memory that was used, trimmed, purged while idle, or moved.
#include <pthread.h>

#include "api/family.h"
#include "bytes.h"

#define MIB ((size_t)1 << 20)

static void *zeros(size_t count, size_t size) {
    errno = 77;
    unsigned char *p = m.calloc(count, size);
    CHECK(p && errno == 77);
    const size_t n = count * size;
    const size_t i = bytes_nonzero(p, n);
    if (i < n) TEST_FAIL("calloc(%zu, %zu): byte %zu is 0x%x", count, size, i, p[i]);
    return p;
}

static void *dirty(size_t n) {
    void *p = m.malloc(n);
    CHECK(p != NULL);
    memset(p, 0xDD, m.usable_size(p));
    return p;
}

// Many blocks of one size: dirty, free, calloc. `between` is what happens before the calloc.
static void rounds(size_t n, int count, void (*between)(void)) {
    static void *p[512];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < count; i++) p[i] = round % 2 ? zeros(1, n) : dirty(n);
        for (int i = 0; i < count; i++) memset(p[i], 0xDD, m.usable_size(p[i]));
        // All but some, so that both empty and half-empty pages are met.
        for (int i = 0; i < count; i++) {
            if (i % 7) m.free(p[i]);
        }
        if (between) between();
        for (int i = 0; i < count; i++) {
            if (i % 7) p[i] = i % 2 ? zeros(1, n) : zeros(n, 1);
        }
        for (int i = 0; i < count; i++) {
            memset(p[i], 0xDD, m.usable_size(p[i]));
            m.free(p[i]);
        }
        if (between) between();
        p[0] = zeros(1, n);
        m.free(p[0]);
    }
}

static void every_size(void (*between)(void), size_t factor) {
    for (size_t n = 1; n <= 65536; n += 1 + n / factor) {
        size_t count = 300000 / n;
        rounds(n, count < 8 ? 8 : count > 500 ? 500
                                              : (int)count,
            between);
    }
    static const size_t large[] = {65537, 81920, 100000, 262144, 500000, MIB - 4096, MIB, MIB + 1, 2 * MIB - 1, 2 * MIB,
        2 * MIB + 1, 3 * MIB, 5 * MIB + 5, 33 * MIB};
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) rounds(large[i], large[i] > 4 * MIB ? 3 : 8, between);
}

static void trim(void) { m.trim(0); }
static void idle(void) { usleep(60000); }

// Under ThreadSanitizer these take a minute, and have one thread.
#define NOT_UNDER_TSAN() \
    if (FAMILY_TSAN) TEST_SKIP("needs a build without ThreadSanitizer: it is slow, and there is one thread")

TEST(after_reuse) {
    NOT_UNDER_TSAN();
    every_size(NULL, FAMILY_SANITIZED ? 12 : 40);
}
TEST(after_trim) {
    NOT_UNDER_TSAN();
    every_size(trim, 5);
}

// QUARRY_CONF=purge_delay:10 in the run of this test: what is free is given back before it is asked for again.
TEST(after_idling) {
    static const size_t sizes[] = {16, 48, 1000, 5000, 30000, 65536, 100000, MIB, 3 * MIB};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) rounds(sizes[i], 300000 / sizes[i] < 8 ? 8 : 300, idle);
}

TEST(after_other_uses) {
    // The memory of one size serves another: shrink, grow, aligned, then zeros.
    uint64_t random = test_seed;
    enum { BLOCKS = 64 };
    static void *p[BLOCKS];
    for (int i = 0; i < (FAMILY_SANITIZED ? 2000 : 20000); i++) {
        size_t k = test_random(&random) % BLOCKS,
               n = 1 + test_random(&random) % ((size_t)1 << (4 + test_random(&random) % 18));
        switch (test_random(&random) % 5) {
        case 0:
            m.free(p[k]);
            p[k] = dirty(n);
            break;
        case 1:
            m.free(p[k]);
            p[k] = m.aligned_alloc((size_t)16 << test_random(&random) % 12, n);
            break;
        case 2: p[k] = m.realloc(p[k], n); break;
        case 3:
            m.free(p[k]);
            p[k] = NULL;
            break;
        default:
            m.free(p[k]);
            p[k] = zeros(1, n);
        }
        if (p[k]) memset(p[k], 0xEE, m.usable_size(p[k]));
    }
    for (int k = 0; k < BLOCKS; k++) m.free(p[k]);
}

static void *dirty_and_leave(void *unused) {
    (void)unused;
    static void *p[4][200];
    for (int s = 0; s < 4; s++) {
        for (int i = 0; i < 200; i++) p[s][i] = dirty((size_t)100 << (2 * s));
    }
    for (int s = 0; s < 4; s++) {
        for (int i = 0; i < 200; i++) m.free(p[s][i]);
    }
    return NULL;
}
static void *zeros_there(void *unused) {
    (void)unused;
    static void *p[4][400];
    for (int s = 0; s < 4; s++) {
        for (int i = 0; i < 400; i++) p[s][i] = zeros(1, (size_t)100 << (2 * s));
    }
    for (int s = 0; s < 4; s++) {
        for (int i = 0; i < 400; i++) m.free(p[s][i]);
    }
    return NULL;
}

TEST(after_another_thread) {
    for (int round = 0; round < (FAMILY_SANITIZED ? 5 : 20); round++) {
        pthread_t thread;
        CHECK_EQ(pthread_create(&thread, NULL, dirty_and_leave, NULL), 0);
        pthread_join(thread, NULL);
        CHECK_EQ(pthread_create(&thread, NULL, zeros_there, NULL), 0);
        pthread_join(thread, NULL);
        zeros_there(NULL);
    }
}

TEST_MAIN()
