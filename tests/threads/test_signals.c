// SPDX-License-Identifier: MIT
// Signals that interrupt malloc all the time, and malloc on a signal's own small stack.
#include <pthread.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/time.h>

#include "api/family.h"

// ---- a storm --------------------------------------------------------------------------------------------

enum { WORKERS = 3,
    KEPT = 100 };
static _Atomic long seen;
static _Atomic int done, damaged;

// Uses some stack and changes errno, as a handler may that restores it.
static void count(int number) {
    int saved = errno;
    volatile char used[600];
    for (size_t i = 0; i < sizeof used; i++) used[i] = (char)number;
    errno = EDOM;
    seen++;
    errno = saved;
}

static int is_filled(const unsigned char *p, size_t n, unsigned char with) {
    for (size_t i = 0; i < n; i += i < 64 ? 1 : 509)
        if (p[i] != with) return 0;
    return 1;
}

static void *work(void *arg) {
    uint64_t random = (uint64_t)(uintptr_t)arg + test_seed;
    unsigned char *p[KEPT] = {0};
    size_t n[KEPT] = {0};
    while (!done) {
        uint64_t r = test_random(&random);
        size_t k = r % KEPT, want = 1 + (r >> 8) % ((size_t)1 << (4 + (r >> 32) % 16));
        if (p[k] && !is_filled(p[k], n[k], (unsigned char)k)) damaged++;
        errno = 0;
        if (r >> 40 & 1 && p[k]) {
            unsigned char *moved = m.realloc(p[k], want);
            if (!moved || !is_filled(moved, want < n[k] ? want : n[k], (unsigned char)k)) damaged++;
            if (moved) p[k] = moved;
        } else {
            m.free(p[k]);
            p[k] = m.malloc(want);
        }
        if (errno || !p[k]) damaged++;
        memset(p[k], (int)k, n[k] = want);
    }
    for (int k = 0; k < KEPT; k++) m.free(p[k]);
    return NULL;
}

TEST(a_storm) {
    struct sigaction act = {.sa_handler = count, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 60}, {0, 60}}, prof = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
    pthread_t thread[WORKERS];
    static const int kinds[] = {SIGALRM, SIGPROF, SIGUSR1};
    for (int i = 0; i < 3; i++) CHECK_EQ(sigaction(kinds[i], &act, NULL), 0);
    for (long i = 0; i < WORKERS; i++) CHECK_EQ(pthread_create(&thread[i], NULL, work, (void *)(uintptr_t)(i + 1)), 0);
    CHECK_EQ(setitimer(ITIMER_REAL, &often, NULL), 0);
    CHECK_EQ(setitimer(ITIMER_PROF, &prof, NULL), 0);
    // Where the machine is busy, signals to a thread that waits for a processor become one.
    for (int i = 0; i < 6000 || seen <= 3000; i++) {
        pthread_kill(thread[i % WORKERS], SIGUSR1);
        void *p = m.malloc(1 + (size_t)i * 37 % 100000);  // this one is interrupted, too
        usleep(50);
        m.free(p);
        if (i % 500 == 499) m.trim(0);
    }
    setitimer(ITIMER_REAL, &never, NULL);
    setitimer(ITIMER_PROF, &never, NULL);
    done = 1;
    for (int i = 0; i < WORKERS; i++) pthread_join(thread[i], NULL);
    printf("  %ld signals\n", (long)seen);
    CHECK_EQ((int)damaged, 0);
}

// ---- a stack of its own -----------------------------------------------------------------------------------

static char *stack;
static size_t stack_bytes;
static _Atomic int failures;

// CHECK needs more stack than there is.
static void allocate(int number) {
    uint64_t random = (uint64_t)number + test_seed;
    static void *p[20];
    char here;
    if (&here < stack || &here >= stack + stack_bytes) failures++;
    for (int i = 0; i < 3000; i++) {
        size_t k = test_random(&random) % 20, n = (size_t)1 << test_random(&random) % 23;
        switch (test_random(&random) % 4) {
        case 0: p[k] = m.realloc(p[k], n); break;
        case 1:
            m.free(p[k]);
            p[k] = m.calloc(1, n);
            break;
        case 2:
            m.free(p[k]);
            p[k] = m.aligned_alloc((size_t)16 << test_random(&random) % 16, n);
            break;
        default:
            m.free(p[k]);
            p[k] = m.malloc(n);
        }
        if (!p[k]) failures++;
        else *(volatile char *)p[k] = 1;
        if (i % 1000 == 999) m.trim(0);
    }
    for (int k = 0; k < 20; k++) {
        m.free(p[k]);
        p[k] = NULL;
    }
}

// The frame that the kernel writes, and 8 KiB; below lies a page that must not be touched.
static void *on_its_stack(void *unused) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), frame = 0;
#ifdef AT_MINSIGSTKSZ
    frame = getauxval(AT_MINSIGSTKSZ);
#endif
    stack_bytes = ((frame ? frame : 2048) + 8192 + page - 1) & ~(page - 1);
    char *area = mmap(NULL, page + stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(area != MAP_FAILED && mprotect(area, page, PROT_NONE) == 0);
    stack = area + page;
    stack_t here = {.ss_sp = stack, .ss_size = stack_bytes};
    CHECK_EQ(sigaltstack(&here, NULL), 0);
    struct sigaction act = {.sa_handler = allocate, .sa_flags = SA_ONSTACK};
    CHECK_EQ(sigaction(SIGUSR2, &act, NULL), 0);
    raise(SIGUSR2);
    here = (stack_t){.ss_flags = SS_DISABLE};
    CHECK_EQ(sigaltstack(&here, NULL), 0);
    munmap(area, page + stack_bytes);
    return unused;
}

TEST(on_a_small_stack) {
    if (FAMILY_SANITIZED) TEST_SKIP("needs a build without sanitizers: they need more stack");
    on_its_stack(NULL);
    CHECK_EQ((int)failures, 0);
}

// The thread's first call of malloc.
TEST(on_a_small_stack_at_first) {
    if (FAMILY_SANITIZED) TEST_SKIP("needs a build without sanitizers: they need more stack");
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, on_its_stack, NULL), 0);
    pthread_join(thread, NULL);
    CHECK_EQ((int)failures, 0);
}

int main(int argc, char **argv) { return test_main(argc, argv); }
