// SPDX-License-Identifier: MIT
// A program that takes all of the process's 1,024 keys for thread-local data, at its start or later, and whose
// destructors allocate.
#include <limits.h>
#include <pthread.h>

#include "field.h"

static pthread_key_t keys[PTHREAD_KEYS_MAX];
static int taken;
static void destructor(void *p) {
    free(p);
    free(opaque(malloc(500)));
    free(opaque(malloc(200000)));
}
static void take_all(void) {
    while (taken < PTHREAD_KEYS_MAX && pthread_key_create(&keys[taken], destructor) == 0) taken++;
    CHECK_GT(taken, 900);
}
static void *thread(void *unused) {
    for (int i = 0; i < taken; i += 7) pthread_setspecific(keys[i], malloc((size_t)i + 1));
    for (int i = 0; i < 1000; i++) free(opaque(malloc((size_t)(i * 37 % 60000))));
    return unused;
}
static void threads(int rounds) {
    for (int r = 0; r < rounds; r++) {
        pthread_t t[8];
        for (int i = 0; i < 8; i++) CHECK_EQ(pthread_create(&t[i], NULL, thread, NULL), 0);
        for (int i = 0; i < 8; i++) pthread_join(t[i], NULL);
    }
}
TEST(before_the_first_thread) {
    take_all();
    threads(10);
}
TEST(after_threads) {
    threads(5);
    take_all();
    threads(10);
}
__attribute__((constructor(101))) static void early(void) {
    if (getenv("FIELD_EARLY")) take_all();
}
TEST(before_any_allocation) {
    if (!getenv("FIELD_EARLY")) {
        setenv("FIELD_EARLY", "1", 1);
        execl("/proc/self/exe", "keys_used_up", "before_any_allocation", (char *)NULL);
    }
    threads(10);
}
// Memory of threads that ended is used again, keys or not.
TEST(no_growth) {
    take_all();
    threads(10);
    double before = memory_mib(1);
    threads(30);
    CHECK_LE((int)(memory_mib(1) - before), 20);
}
TEST(forked_children) {
    take_all();
    for (int i = 0; i < 10; i++) {
        pid_t pid = fork();
        if (!pid) {
            threads(2);
            _exit(0);
        }
        int status;
        waitpid(pid, &status, 0);
        CHECK_EQ(status, 0);
    }
}

TEST_MAIN()
