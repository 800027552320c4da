// SPDX-License-Identifier: MIT
// A filter that kills for any call but those that docs/design.md promises (and one of libc's at the end of a thread),
// put on after the program has been at work.
#include <pthread.h>

#include "field.h"

static void strict(void) {
    static const int allowed[] = {SYS_read, SYS_write, SYS_mmap, SYS_munmap, SYS_mprotect, SYS_mremap, SYS_madvise,
        SYS_brk, SYS_futex, SYS_exit_group, SYS_exit, SYS_rt_sigreturn, SYS_rt_sigprocmask};
    if (!filter(allowed, sizeof allowed / sizeof *allowed, SECCOMP_RET_ALLOW, SECCOMP_RET_KILL_PROCESS)) {
        printf("SKIP: needs seccomp\n");
        exit(0);
    }
}
static void at_work(void) {
    for (int i = 0; i < 3; i++) {
        many(100, 20000);
        many(5000, 500);
        many(100000, 50);
    }
}
static void warm(void) {
    at_work();
    many((size_t)10 << 20, 5);
    many((size_t)40 << 20, 2);
    many(1000, 300000);
    free(calloc(1, (size_t)3 << 20));
}

static void small(void) {
    many(100, 100000);
    many(5000, 5000);
}
static void large(void) {
    many((size_t)1 << 20, 20);
    many((size_t)10 << 20, 5);
}
static void huge(void) { many((size_t)40 << 20, 3); }
static void zeroed(void) {
    for (int i = 0; i < 5; i++) {
        char *p = calloc(1, (size_t)5 << 20);
        CHECK_EQ(p[3 << 20], 0);
        p[3 << 20] = 1;
        free(p);
    }
}
static void growth(void) { many(1000, 300000); }
static void resized(void) {
    char *p = NULL;
    for (size_t n = 1000; n < (size_t)200 << 20; n = n * 3 / 2) {
        p = realloc(p, n);
        p[n - 1] = 1;
    }
    p = realloc(p, 100);
    free(p);
}
static void aligned(void) {
    for (size_t a = 16; a <= (size_t)4 << 20; a *= 4) {
        void *p = aligned_alloc(a, a * 3);
        CHECK_EQ((uintptr_t)p % a, 0);
        free(p);
    }
}
static void trimmed(void) {
    growth();
    malloc_trim(0);
    growth();
}
static void asked(void) {
    void *p = malloc(1000);
    CHECK_GE(malloc_usable_size(p), 1000);
    struct mallinfo2 info = mallinfo2();
    CHECK_GE(info.arena + info.hblkhd + 1, 0);
    free(p);
}
static void over_time(void) {
    double end = now_ms() + 1500;  // the vDSO answers, no call
    while (now_ms() < end) growth();
}

#define CASE(name)      \
    TEST(name) {        \
        at_work();      \
        strict();       \
        name();         \
    }                   \
    TEST(warm_##name) { \
        warm();         \
        strict();       \
        name();         \
    }
CASE(small)
CASE(large)
CASE(huge)
CASE(zeroed)
CASE(growth)
CASE(resized)
CASE(aligned)
CASE(trimmed)
CASE(asked)
CASE(over_time)

// Nothing was allocated before the filter but one block.
TEST(from_the_start) {
    free(opaque(malloc(100)));
    strict();
    small();
    huge();
    resized();
}

static void *in_thread(void *unused) {
    free(opaque(malloc(100)));
    strict();
    small();
    large();
    huge();
    growth();
    return unused;
}
// A filter around one thread, as a worker of a server has it; the others go on.
TEST(one_thread) {
    at_work();
    pthread_t t;
    CHECK_EQ(pthread_create(&t, NULL, in_thread, NULL), 0);
    at_work();
    pthread_join(t, NULL);
    work();
}

// A thread that is there already, and allocates for the first time behind the filter.
static void *first_in_thread(void *unused) {
    strict();
    small();
    large();
    return unused;
}
TEST(first_of_a_thread) {
    at_work();
    pthread_t t[3];
    for (int i = 0; i < 3; i++) CHECK_EQ(pthread_create(&t[i], NULL, first_in_thread, NULL), 0);
    for (int i = 0; i < 3; i++) pthread_join(t[i], NULL);
    work();
}

// In a child, which libraries such as libseccomp's users fork for the work.
static void child(void *unused) {
    (void)unused;
    strict();
    small();
    large();
    huge();
    resized();
}
TEST(forked_child) {
    warm();
    captured_t c = capture(child, NULL);
    if (c.exit_code) TEST_FAIL("exit %d, signal %d: %.300s", c.exit_code, c.exit_signal, c.text);
}

TEST_MAIN()
