// SPDX-License-Identifier: MIT
// What looks like misuse and is none: blocks that carry what the heap left in them, copied around as
// programs copy uninitialised structures; freed with the words of free blocks still inside.
#include <pthread.h>

#include "api/family.h"

static long rounds = 200000;
static const size_t sizes[] = {1, 16, 24, 48, 64, 100, 256, 1000, 1024, 2000, 5000, 30000, 65536, 100000};
enum { SIZES = sizeof sizes / sizeof *sizes,
    SLOTS = 64 };

TEST(never_touched) {
    static void *p[SLOTS];
    for (long i = 0; i < rounds * 5; i++) {
        m.free(p[i % SLOTS]);
        p[i % SLOTS] = m.malloc(sizes[i % SIZES]);
    }
    for (int i = 0; i < SLOTS; i++) m.free(p[i]), p[i] = NULL;
}

// Stale contents are copied over other live blocks, whole: link, mark and all.
static void *copies(void *arg) {
    uint64_t random = test_seed + (uint64_t)(uintptr_t)arg;
    unsigned char *p[SLOTS] = {0};
    size_t n[SLOTS] = {0};
    for (long i = 0; i < rounds; i++) {
        size_t a = test_random(&random) % SLOTS, b = test_random(&random) % SLOTS;
        m.free(p[a]);
        n[a] = sizes[test_random(&random) % (i % 16 ? 8 : SIZES)];
        p[a] = m.malloc(n[a]);
        CHECK(p[a] != NULL);
        if (p[b]) memmove(p[b], p[a], n[a] < n[b] ? n[a] : n[b]);
        if (i % 4 == 0 && p[b]) memmove(p[a], p[b], n[a] < n[b] ? n[a] : n[b]);
    }
    for (int k = 0; k < SLOTS; k++) m.free(p[k]);
    return NULL;
}
TEST(copied_around) { copies(NULL); }
TEST(copied_around_by_threads) {
    pthread_t thread[3];
    for (int i = 0; i < 3; i++) CHECK_EQ(pthread_create(&thread[i], NULL, copies, (void *)(uintptr_t)(i + 1)), 0);
    for (int i = 0; i < 3; i++) pthread_join(thread[i], NULL);
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (!strncmp(argv[i], "--rounds=", 9)) rounds = atol(argv[i] + 9);
    }
    return test_main(argc, argv);
}
