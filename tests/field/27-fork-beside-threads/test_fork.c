// SPDX-License-Identifier: MIT
// fork, vfork and posix_spawn beside many threads that are all at work in malloc: the child must find a heap that it
// can use, at once and always.
#include <pthread.h>
#include <spawn.h>

#include "field.h"

static _Atomic int stop;
static void *busy(void *seed) {
    uint64_t random = (uint64_t)(uintptr_t)seed + 1;
    void *p[50] = {0};
    while (!stop) {
        unsigned i = (unsigned)(test_random(&random) % 50);
        free(p[i]);
        p[i] = malloc(test_random(&random) % (test_random(&random) % 20 ? 2000 : 300000) + 1);
    }
    for (int i = 0; i < 50; i++) free(p[i]);
    return NULL;
}
static pthread_t thread[40];
static void begin(int count) {
    for (uintptr_t i = 0; i < (uintptr_t)count; i++) CHECK_EQ(pthread_create(&thread[i], NULL, busy, (void *)i), 0);
}
static void end(int count) {
    stop = 1;
    for (int i = 0; i < count; i++) pthread_join(thread[i], NULL);
}
static void *in_child(void *unused) {
    many(300, 300);
    return unused;
}
static void child(int threads) {
    many(100, 2000);
    many(100000, 5);
    free(opaque(malloc((size_t)40 << 20)));
    for (int i = 0; i < threads; i++) {
        pthread_t t;
        if (pthread_create(&t, NULL, in_child, NULL)) _exit(3);
        pthread_join(t, NULL);
    }
    _exit(0);
}
// For a second.
static void forks(int threads, int of_child) {
    begin(threads);
    double end_ms = now_ms() + 1000;
    for (int i = 0; now_ms() < end_ms; i++) {
        pid_t pid = fork();
        CHECK_GE(pid, 0);
        if (!pid) child(of_child);
        int status;
        waitpid(pid, &status, 0);
        if (status) TEST_FAIL("child %d: status %#x", i, (unsigned)status);
    }
    end(threads);
}
TEST(beside_4) { forks(4, 0); }
TEST(beside_40) { forks(40, 0); }
TEST(children_with_threads) { forks(10, 3); }
TEST(grandchildren) {
    begin(8);
    for (int i = 0; i < 10; i++) {
        pid_t pid = fork();
        if (!pid) {
            pid_t grand = fork();
            if (!grand) child(1);
            int status;
            waitpid(grand, &status, 0);
            _exit(status ? 4 : 0);
        }
        int status;
        waitpid(pid, &status, 0);
        CHECK_EQ(status, 0);
    }
    end(8);
}
static void *forker(void *unused) {
    for (int i = 0; i < 8; i++) {
        pid_t pid = fork();
        if (!pid) child(0);
        int status;
        waitpid(pid, &status, 0);
        if (status) TEST_FAIL("status %#x", (unsigned)status);
    }
    return unused;
}
TEST(four_fork_at_once) {
    begin(4);
    pthread_t t[4];
    for (int i = 0; i < 4; i++) pthread_create(&t[i], NULL, forker, NULL);
    for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
    end(4);
}
TEST(spawned) {
    begin(10);
    for (int i = 0; i < 30; i++) {
        pid_t pid;
        char *argv[] = {"true", NULL}, *environment[] = {NULL};
        CHECK_EQ(posix_spawn(&pid, "/bin/true", NULL, NULL, argv, environment), 0);
        int status;
        waitpid(pid, &status, 0);
        CHECK_EQ(status, 0);
    }
    end(10);
}
TEST(vforked) {
    begin(10);
    for (int i = 0; i < 30; i++) {
        pid_t pid = vfork();
        if (!pid) {
            execl("/bin/true", "true", (char *)NULL);
            _exit(9);
        }
        int status;
        waitpid(pid, &status, 0);
        CHECK_EQ(status, 0);
    }
    end(10);
}
static void handler_allocates(void) { free(opaque(malloc(1000))); }
TEST(handlers_allocate) {
    pthread_atfork(handler_allocates, handler_allocates, handler_allocates);
    forks(8, 1);
}
TEST(through_popen) {
    begin(10);
    for (int i = 0; i < 20; i++) {
        FILE *f = popen("echo word", "r");
        char text[20] = "";
        CHECK(f && fgets(text, sizeof text, f));
        CHECK_EQ(pclose(f), 0);
    }
    end(10);
}

TEST_MAIN()
