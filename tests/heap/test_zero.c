// SPDX-License-Identifier: MIT
// What malloc(0) returns: an address of its own with no memory behind it. Whoever uses it faults.
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "heap_test.h"
#include "heap/zero.h"

static int is_zero_address(const void *p) { return qy_zero_is_near(p) && qy_zero_is_used(p); }

typedef enum access { READ,
    WRITE } access_t;
static int faults(char *p, access_t access) {
    pid_t pid = fork();
    CHECK_GE(pid, 0);
    if (!pid) {
        signal(SIGSEGV, SIG_DFL);
        volatile char *v = p;
        if (access == READ) (void)*v;
        else *v = 1;
        _exit(0);
    }
    int status;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    return (WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV) ||
           (QY_ASAN && !WIFSIGNALED(status) && WEXITSTATUS(status));
}

TEST(nothing_is_reserved_before) { CHECK(!atomic_load(&qy_zero_base)); }

TEST(a_use_faults) {
    char *p[6] = {quarry_malloc(0), quarry_calloc(0, 8), quarry_realloc(NULL, 0), quarry_aligned_alloc(64, 0),
        quarry_aligned_alloc(4096, 0), NULL};
    CHECK_EQ(quarry_posix_memalign((void **)&p[5], 65536, 0), 0);
    for (int i = 0; i < 6; i++) {
        CHECK(is_zero_address(p[i]));
        CHECK_EQ(quarry_usable_size(p[i]), 0);
        CHECK(faults(p[i], READ));
        CHECK(faults(p[i], WRITE));
        for (int k = 0; k < i; k++) CHECK(p[i] != p[k]);
    }
    CHECK_EQ((uintptr_t)p[3] % 64 + (uintptr_t)p[4] % 4096 + (uintptr_t)p[5] % 65536, 0);
    for (int i = 0; i < 6; i++) quarry_free(p[i]);
    CHECK(!is_zero_address(p[0]));
}

TEST(resized) {
    char *p = quarry_malloc(0);
    char *q = quarry_realloc(p, 100);
    CHECK(q && !qy_zero_is_near(q) && !is_zero_address(p));
    memset(q, 1, 100);
    CHECK(!quarry_realloc(q, 0));
    p = quarry_malloc(0);
    CHECK(!quarry_realloc(p, 0));
    CHECK(!is_zero_address(p));
    p = quarry_malloc(0);
    CHECK(!quarry_realloc(p, SIZE_MAX / 2 + 1));  // refused: it stays
    CHECK(is_zero_address(p));
    quarry_free_sized(p, 0);
}

static void free_it(void *p) { quarry_free(p); }
static void resize_it(void *p) { (void)!quarry_realloc(p, 10); }
static void ask_it(void *p) { (void)!quarry_usable_size(p); }
TEST(misuse_is_told) {
    char *p = quarry_malloc(0);
    must_die(free_it, p + 8, "free of an interior pointer");
    must_die(free_it, p + 1600, "double free");
    must_die(ask_it, p + 1, "free of an interior pointer");
    quarry_free(p);
    must_die(free_it, p, "double free");
    must_die(resize_it, p, "double free");
    must_die(ask_it, p, "double free");
}

// One that was freed comes last; when none is left, blocks of some bytes do, and all are freed the same way.
TEST(many) {
    enum { MANY = QY_ZERO_BYTES / 16 + 1000 };
    static char *p[MANY];
    char *first = quarry_malloc(0);
    quarry_free(first);
    CHECK(quarry_malloc(0) != first);
    size_t real = 0;
    for (int i = 0; i < MANY; i++) {
        CHECK((p[i] = quarry_malloc(0)) && (uintptr_t)p[i] % 16 == 0);
        real += !qy_zero_is_near(p[i]);
    }
    CHECK_GT(real, 1000);
    CHECK_LT(real, 1010);
    char *aligned = quarry_aligned_alloc(1 << 16, 0);
    CHECK(aligned && (uintptr_t)aligned % (1 << 16) == 0 && !qy_zero_is_near(aligned));
    quarry_free(aligned);
    for (int i = 0; i < MANY; i++) quarry_free(p[i]);
    for (int i = 0; i < MANY - 2000; i++) CHECK(is_zero_address(p[i] = quarry_malloc(0)));
    for (int i = 0; i < MANY - 2000; i++) quarry_free(p[i]);
}

// Each address is one thread's at a time, also while processes are made.
enum { THREADS = 4 };
static _Atomic(void *) owner[QY_ZERO_BYTES / 16];
static void *churn(void *id) {
    uint64_t random = (uintptr_t)id;
    char *mine[32] = {0};
    for (int i = 0; i < 100000; i++) {
        int k = (int)(test_random(&random) % 32);
        if (mine[k]) {
            CHECK(atomic_exchange(&owner[(size_t)(mine[k] - atomic_load(&qy_zero_base)) / 16], NULL) == id);
            quarry_free(mine[k]);
            mine[k] = NULL;
        } else {
            CHECK(is_zero_address(mine[k] = quarry_malloc(0)));
            CHECK(!atomic_exchange(&owner[(size_t)(mine[k] - atomic_load(&qy_zero_base)) / 16], id));
        }
    }
    for (int k = 0; k < 32; k++) {
        if (mine[k]) atomic_store(&owner[(size_t)(mine[k] - atomic_load(&qy_zero_base)) / 16], NULL);
        quarry_free(mine[k]);
    }
    return NULL;
}
TEST(threads_and_forks) {
    pthread_t thread[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) CHECK(!pthread_create(&thread[i], NULL, churn, (void *)(i + 1)));
    for (int i = 0; i < (QY_TSAN ? 0 : 20); i++) {
        pid_t pid = fork();
        CHECK_GE(pid, 0);
        if (!pid) {
            for (int k = 0; k < 1000; k++) quarry_free(quarry_malloc(0));
            _exit(0);
        }
        int status;
        CHECK_EQ(waitpid(pid, &status, 0), pid);
        CHECK_EQ(status, 0);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
}

TEST_MAIN()
