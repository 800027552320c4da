// SPDX-License-Identifier: MIT
// A program that counts: its malloc calls the next one, which dlsym finds. It has no wrapper for the newer functions.
#include <dlfcn.h>
#include <pthread.h>

#include "field.h"

static void *(*real_malloc)(size_t), *(*real_calloc)(size_t, size_t), *(*real_realloc)(void *, size_t);
static void (*real_free)(void *);
static _Atomic long made, freed;
static char early[4096];  // dlsym may allocate
static size_t early_used;

static void find(void) {
    static int busy;
    if (real_free || busy) return;
    busy = 1;
    real_malloc = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
    real_calloc = (void *(*)(size_t, size_t))dlsym(RTLD_NEXT, "calloc");
    real_realloc = (void *(*)(void *, size_t))dlsym(RTLD_NEXT, "realloc");
    real_free = (void (*)(void *))dlsym(RTLD_NEXT, "free");
}
static void *early_block(size_t n) {
    void *p = early + early_used;
    early_used += (n + 15) & ~(size_t)15;
    return early_used <= sizeof early ? p : NULL;
}
void *malloc(size_t n) {
    find();
    made++;
    return real_malloc ? real_malloc(n) : early_block(n);
}
void *calloc(size_t a, size_t b) {
    find();
    made++;
    return real_calloc ? real_calloc(a, b) : early_block(a * b);
}
void *realloc(void *p, size_t n) {
    find();
    if (!p) made++;
    return real_realloc(p, n);
}
void free(void *p) {
    find();
    if (!p || ((char *)p >= early && (char *)p < early + sizeof early)) return;
    freed++;
    real_free(p);
}

TEST(counts_both_ways) {
    long made_before = made, freed_before = freed;
    for (int i = 0; i < 1000; i++) free(opaque(malloc((size_t)i * 50)));
    CHECK_EQ(made - made_before, 1000);
    CHECK_EQ(freed - freed_before, 1000);
}
TEST(reallocarray_of_ours) {
    void *p = malloc(10);
    for (size_t n = 10; n < 100000; n *= 2) p = reallocarray(p, n, 8);
    free(p);
}
TEST(aligned_ones_pass_it_by) {
    void *p = NULL;
    CHECK_EQ(posix_memalign(&p, 4096, 5000), 0);
    free(p);
    free(aligned_alloc(64, 640));
    p = malloc(100);
    CHECK_GE(malloc_usable_size(p), 100);
    free(p);
}
static void *in_thread(void *unused) {
    (void)unused;
    for (int i = 0; i < 20000; i++) free(opaque(malloc((size_t)(i % 3000))));
    return strdup("x");
}
TEST(threads_and_forks) {
    pthread_t t[3];
    for (int i = 0; i < 3; i++) CHECK_EQ(pthread_create(&t[i], NULL, in_thread, NULL), 0);
    for (int i = 0; i < 10; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            in_thread(NULL);
            _exit(0);
        }
        int status;
        waitpid(pid, &status, 0);
        CHECK_EQ(status, 0);
    }
    for (int i = 0; i < 3; i++) {
        void *p;
        pthread_join(t[i], &p);
        free(p);
    }
}
TEST(opened_libraries) {
    for (int i = 0; i < 5; i++) {
        void *handle = dlopen("libm.so.6", RTLD_NOW);
        CHECK(handle != NULL);
        dlclose(handle);
    }
}

TEST_MAIN()
