// SPDX-License-Identifier: MIT
// Threads with the smallest stack there may be: every slow path must fit. Below the stack lies a page
// that must not be touched; how deep it went is printed.
#include <limits.h>
#include <pthread.h>
#include <sys/mman.h>

#include "api/family.h"

// CHECK needs more stack than there is.
#define MUST(expr)                     \
    do {                               \
        if (!(expr)) __builtin_trap(); \
    } while (0)

static void *use(void *arg) {
    uint64_t random = (uint64_t)(uintptr_t)arg + 1;
    static __thread void *p[60];
    for (int i = 0; i < 4000; i++) {
        size_t k = test_random(&random) % 60, n = (size_t)1 << test_random(&random) % 23;
        switch (test_random(&random) % 6) {
        case 0: p[k] = m.realloc(p[k], n); break;
        case 1:
            m.free(p[k]);
            p[k] = m.calloc(1, n);
            break;
        case 2:
            m.free(p[k]);
            p[k] = m.aligned_alloc((size_t)16 << test_random(&random) % 20, n);
            break;
        case 3:
            m.free(p[k]);
            MUST(!m.malloc(SIZE_MAX - n));
            p[k] = m.malloc(n);
            break;
        default:
            m.free(p[k]);
            p[k] = m.malloc(n);
        }
        MUST(p[k] != NULL);
        *(volatile char *)p[k] = 1;
        if (i % 1000 == 999) m.trim(0);
    }
    for (int k = 0; k < 60; k++) m.free(p[k]);
    return NULL;
}
static void *one_call(void *arg) {
    (void)arg;
    m.free(m.malloc(100));
    return NULL;
}

// What glibc asks for at least. musl takes 2 KiB, in which not even a signal can be handled.
static size_t stack_bytes(void) { return PTHREAD_STACK_MIN > 16384 ? (size_t)PTHREAD_STACK_MIN : 16384; }

static size_t depth(void *(*body)(void *), int count) {
    size_t bytes = stack_bytes(), page = (size_t)sysconf(_SC_PAGESIZE), deepest = 0;
    unsigned char *area = mmap(NULL, bytes + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(area != MAP_FAILED && mprotect(area, page, PROT_NONE) == 0);
    unsigned char *stack = area + page;
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    CHECK_EQ(pthread_attr_setstack(&attr, stack, bytes), 0);
    for (int i = 0; i < count; i++) {
        memset(stack, 0xA5, bytes);
        pthread_t thread;
        CHECK_EQ(pthread_create(&thread, &attr, body, (void *)(uintptr_t)(test_seed + (uint64_t)i)), 0);
        CHECK_EQ(pthread_join(thread, NULL), 0);
        size_t untouched = 0;
        while (untouched < bytes && stack[untouched] == 0xA5) untouched++;
        if (bytes - untouched > deepest) deepest = bytes - untouched;
    }
    munmap(area, bytes + page);
    return deepest;
}

static void *nothing(void *arg) { return arg; }

TEST(smallest_stack) {
    if (FAMILY_SANITIZED) TEST_SKIP("needs a build without sanitizers: they need more stack");
    size_t none = depth(nothing, 3), first = depth(one_call, 3), all = depth(use, 20);
    printf(
        "  of %zu bytes: an empty thread %zu, a first malloc %zu, every path %zu\n", stack_bytes(), none, first, all);
    CHECK_LT(all, stack_bytes() - 2048);
}

TEST_MAIN()
