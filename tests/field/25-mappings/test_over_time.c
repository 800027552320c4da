// SPDX-License-Identifier: MIT
// Mappings, address space and memory of programs that run long: they must not grow with time, and never reach the
// kernel's limit of 65,530 mappings.
#include <pthread.h>
#include <sys/resource.h>

#include "field.h"

static int mappings(void) {
    FILE *f = fopen("/proc/self/maps", "r");
    int n = 0, c;
    while ((c = getc(f)) != EOF) n += c == '\n';
    fclose(f);
    return n;
}
enum { SLOTS = 4000 };
static char *slot[SLOTS];
static uint64_t seed;

static void step(size_t most) {
    unsigned i = (unsigned)(test_random(&seed) % SLOTS);
    free(slot[i]);
    size_t n = (size_t)1 << test_random(&seed) % 20;
    n += test_random(&seed) % n;
    if (n > most) n = most;
    slot[i] = malloc(n);
    slot[i][0] = slot[i][n - 1] = 1;
}
static void empty(void) {
    for (int i = 0; i < SLOTS; i++) {
        free(slot[i]);
        slot[i] = NULL;
    }
}
static void steady(size_t most, int steps) {
    seed = test_seed;
    for (int i = 0; i < steps; i++) step(most);
    int maps_before = mappings();
    double space_before = memory_mib(0), memory_before = memory_mib(1);
    for (int i = 0; i < steps * 3; i++) step(most);
    CHECK_LE(mappings(), maps_before * 2 + 200);
    CHECK_LE((int)(memory_mib(1) - memory_before), (int)memory_before + 40);
    CHECK_LE((int)(memory_mib(0) - space_before), (int)(space_before) + 200);
    empty();
}
TEST(steady_small) { steady(2000, 300000); }
TEST(steady_medium) { steady(60000, 100000); }
TEST(steady_large) { steady(1000000, 40000); }
TEST(one_block_grows_bytewise) {
    char *p = NULL;
    for (size_t n = 1; n < 300000; n++) {
        p = realloc(p, n);
        p[n - 1] = (char)n;
    }
    for (size_t n = 1; n < 300000; n += 997) CHECK_EQ(p[n - 1], (char)n);
    free(p);
    CHECK_LE(mappings(), 500);
}
TEST(many_blocks_grow_in_turn) {
    enum { K = 200 };
    static char *p[K];
    for (size_t n = 100; n < 400000; n = n * 9 / 8 + 1) {
        for (int i = 0; i < K; i++) {
            p[i] = realloc(p[i], n);
            p[i][n - 1] = (char)i;
        }
    }
    for (int i = 0; i < K; i++) free(p[i]);
    CHECK_LE(mappings(), 4500);
}
TEST(huge_come_and_go) {
    for (int i = 0; i < 300; i++) free(opaque(malloc(((size_t)33 << 20) + (size_t)i * 4096)));
    CHECK_LE(mappings(), 300);
}
TEST(ten_thousand_huge) {
    static char *p[10000];
    for (int i = 0; i < 10000; i++) {
        p[i] = malloc((size_t)2 << 20);
        if (!p[i]) TEST_FAIL("block %d: errno %d", i, errno);
        p[i][0] = 1;
    }
    for (int i = 0; i < 10000; i += 2) free(p[i]);
    for (int i = 0; i < 10000; i += 2) {
        p[i] = malloc((size_t)3 << 20);
        if (!p[i]) TEST_FAIL("block %d again: errno %d, %d mappings", i, errno, mappings());
    }
    CHECK_LE(mappings(), 25000);
    for (int i = 0; i < 10000; i++) free(p[i]);
}
static void *short_life(void *unused) {
    many(500, 500);
    return unused;
}
TEST(thousand_threads_one_after_another) {
    for (int i = 0; i < 50; i++) {
        pthread_t t;
        CHECK_EQ(pthread_create(&t, NULL, short_life, NULL), 0);
        pthread_join(t, NULL);
    }
    int maps_before = mappings();
    double memory_before = memory_mib(1);
    for (int i = 0; i < 1000; i++) {
        pthread_t t;
        CHECK_EQ(pthread_create(&t, NULL, short_life, NULL), 0);
        pthread_join(t, NULL);
    }
    CHECK_LE(mappings(), maps_before + 50);
    CHECK_LE((int)(memory_mib(1) - memory_before), 20);
}
// Stacks without a limit put mappings at the bottom of the address space, upwards: the legacy layout.
static void again_without_a_limit(const char *test) {
    struct rlimit r = {RLIM_INFINITY, RLIM_INFINITY};
    if (setrlimit(RLIMIT_STACK, &r)) TEST_SKIP("needs CAP_SYS_RESOURCE, to raise the limit");
    fflush(stdout);
    execl("/proc/self/exe", "over_time", test, (char *)NULL);
}
TEST(legacy_layout_small) { again_without_a_limit("steady_small"); }
TEST(legacy_layout_large) { again_without_a_limit("steady_large"); }
TEST(legacy_layout_huge) { again_without_a_limit("ten_thousand_huge"); }

TEST_MAIN()
