// SPDX-License-Identifier: MIT
// A program that limits its own address space after its start, as servers and judges of submitted programs do, and then
// works.
#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "field.h"

static size_t limit_mib;
static void limit(int resource, size_t mib) {
    free(opaque(malloc(100000)));
    struct rlimit r = {(rlim_t)mib << 20, RLIM_INFINITY};
    CHECK_EQ(setrlimit(resource, &r), 0);
    limit_mib = mib;
}

static void maps(void) {
    void *p = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) TEST_FAIL("mmap of 1 MiB: errno %d, address space %d MiB", errno, (int)memory_mib(0));
}
static void large(void) {
    for (int i = 0; i < 5; i++) {
        char *p = malloc(4 << 20);
        if (!p) TEST_FAIL("malloc of 4 MiB: errno %d, address space %d MiB", errno, (int)memory_mib(0));
        free(memset(p, 1, 4 << 20));
    }
}
static void loop(void) {
    for (int i = 0; i < 20000; i++) {
        char *p = malloc(4 << 20);
        if (!p) TEST_FAIL("malloc %d of 4 MiB: errno %d", i, errno);
        p[0] = 1;
        free(p);
    }
}
static void keeps(size_t size) {
    size_t want = (limit_mib << 20) / 10 * 6 / size;
    for (size_t i = 0; i < want; i++) {
        char *p = malloc(size);
        if (!p) TEST_FAIL("NULL after %zu of %zu MiB", i * size >> 20, limit_mib);
        memset(p, 1, size);
    }
}
static void keeps_large(void) { keeps(1 << 20); }
static void keeps_small(void) { keeps(1000); }
static void *in_thread(void *unused) {
    (void)unused;
    char *p = malloc(100000);
    if (p) p[0] = 1;
    free(p);
    return p;
}
static void thread(void) {
    pthread_t t;
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 1 << 20);
    for (int i = 0; i < 8; i++) {
        void *result;
        int e = pthread_create(&t, &small, in_thread, NULL);
        if (e) TEST_FAIL("pthread_create: %s", strerror(e));
        pthread_join(t, &result);
        CHECK(result != NULL);
    }
}
static void opens(void) {
    if (!dlopen("libm.so.6", RTLD_NOW)) TEST_FAIL("%s", dlerror());
}
static void forks(void) {
    pid_t pid = fork();
    CHECK_GE(pid, 0);
    if (!pid) _exit(opaque(malloc(3 << 20)) ? 0 : 1);
    int status;
    waitpid(pid, &status, 0);
    CHECK_EQ(status, 0);
}
static void starts_others(void) { CHECK_EQ(system("ls / > /dev/null"), 0); }
// Until it is refused, and afterwards all is as before.
static void filled_and_emptied(void) {
    static char *p[4096];
    for (int round = 0; round < 3; round++) {
        int n = 0;
        while (n < 4096 && (p[n] = malloc(300000))) n++;
        CHECK_GE(n, (int)(limit_mib * 2));
        while (n) free(p[--n]);
        malloc_trim(0);
        maps();
    }
}
// Not until it is refused, and without a trim: the program's own mappings get what was freed.
static void part_is_freed(size_t size) {
    size_t n = (limit_mib << 20) / 10 * 6 / size;
    char **p = malloc(n * sizeof *p);
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < n; i++) {
            CHECK(p[i] = malloc(size));
            memset(p[i], 1, size);
        }
        for (size_t i = 0; i < n; i++) free(p[i]);
        if (size < 100000) malloc_trim(0);
        size_t half = (limit_mib << 20) / 2;
        void *own = mmap(NULL, half, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (own == MAP_FAILED)
            TEST_FAIL("round %d: mmap of %d MiB: address space %d MiB", round, (int)(half >> 20), (int)memory_mib(0));
        CHECK_EQ(munmap(own, half), 0);
    }
    free(p);
}
static void frees_small(void) { part_is_freed(1000); }
static void frees_runs(void) { part_is_freed(300000); }
static void frees_large(void) { part_is_freed((size_t)5 << 20); }
static void stack_grows(void) {
    volatile char big[3 << 20];
    for (size_t i = 0; i < sizeof big; i += 4096) big[i] = 1;
    CHECK_EQ(big[0], 1);
}
static void resized(void) {
    char *p = NULL;
    for (size_t n = 1000; n < (limit_mib << 20) / 5; n = n * 5 / 4) {
        p = realloc(p, n);
        if (!p) TEST_FAIL("realloc to %zu: errno %d", n, errno);
        p[n - 1] = 1;
    }
    free(p);
}

#define WITHIN(mib, name)      \
    TEST(as_##mib##_##name) {  \
        limit(RLIMIT_AS, mib); \
        name();                \
    }
#define ALL(mib)                    \
    WITHIN(mib, maps)               \
    WITHIN(mib, large)              \
    WITHIN(mib, loop)               \
    WITHIN(mib, keeps_large)        \
    WITHIN(mib, keeps_small)        \
    WITHIN(mib, thread)             \
    WITHIN(mib, opens)              \
    WITHIN(mib, forks)              \
    WITHIN(mib, starts_others)      \
    WITHIN(mib, filled_and_emptied) \
    WITHIN(mib, frees_small)        \
    WITHIN(mib, frees_runs)         \
    WITHIN(mib, frees_large)        \
    WITHIN(mib, stack_grows)        \
    WITHIN(mib, resized)
ALL(32)
ALL(64)
ALL(100)
ALL(200)
ALL(400)

TEST(data_64_keeps_small) {
    limit(RLIMIT_DATA, 64);
    keeps_small();
}
TEST(data_64_thread) {
    limit(RLIMIT_DATA, 64);
    thread();
}
// What a process has that only starts: 16 MiB for the allocator, above what the program's files take.
TEST(reserves_little) {
    free(opaque(malloc(100)));
    CHECK_LE((int)memory_mib(0), 3 + 16);
}
TEST(lowered_and_raised) {
    limit(RLIMIT_AS, 64);
    keeps(100000);
    limit(RLIMIT_AS, 1024);
    char *p[50];
    for (int i = 0; i < 50; i++) {
        p[i] = malloc((size_t)10 << 20);
        CHECK(p[i] != NULL);
    }
    for (int i = 0; i < 50; i++) free(p[i]);
    many(1000, 200000);
}
// Set below what the program has, after all of it was freed.
TEST(limited_after_the_work) {
    many(1000, 200000);
    many(300000, 500);
    many((size_t)5 << 20, 20);
    limit(RLIMIT_AS, 64);
    malloc_trim(0);
    maps();
    many(1000, 20000);
    thread();
}
// Set to what the program has now, as some do to be sure that they grow no more: only what is free can be had, and that
// again and again.
TEST(limit_of_now) {
    many(1000, 2000);
    struct rlimit r = {(rlim_t)(memory_mib(0) + 1) << 20, RLIM_INFINITY};
    CHECK_EQ(setrlimit(RLIMIT_AS, &r), 0);
    for (int i = 0; i < 100; i++) free(opaque(malloc(1000)));
    CHECK(malloc((size_t)1 << 30) == NULL);
    CHECK_EQ(errno, ENOMEM);
}
// Each of many children sets its own, after a parent that has worked.
TEST(children_limit_themselves) {
    work();
    for (int mib = 150; mib < 400; mib += 50) {
        pid_t pid = fork();
        if (!pid) {
            limit(RLIMIT_AS, (size_t)mib);
            maps();
            thread();
            _exit(0);
        }
        int status;
        waitpid(pid, &status, 0);
        if (status) TEST_FAIL("%d MiB: status %#x", mib, (unsigned)status);
    }
}

TEST_MAIN()
