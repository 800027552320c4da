// SPDX-License-Identifier: MIT
// A process ends while its threads are in the middle of malloc: at once, and with its exit status.
// --rounds=N of each way to end.
#include <pthread.h>

#include "api/family.h"
#include "threads/rerun.h"

static long rounds = FAMILY_SANITIZED ? 8 : 25;

static _Atomic int done;  // never
static void *churn(void *arg) {
    uint64_t random = (uint64_t)(uintptr_t)arg + 1;
    void *p[50] = {0};
    while (!done) {
        size_t k = test_random(&random) % 50;
        m.free(p[k]);
        p[k] = m.malloc((size_t)1 << test_random(&random) % 22);
        if (p[k]) *(volatile char *)p[k] = 1;
    }
    return NULL;
}

static void *kept;
static void at_exit(void) {
    m.free(kept);
    for (int i = 0; i < 100; i++) m.free(m.malloc((size_t)1 << i % 21));
}
__attribute__((destructor)) static void destructor(void) { at_exit(), kept = NULL; }

static const char *const ways[] = {"return", "exit", "quick_exit", "_exit", "pthread_exit", "thread"};
enum { WAYS = sizeof ways / sizeof *ways };

static void *exit_here(void *arg) { exit((int)(uintptr_t)arg); }

static int end_of_process(const char *way, const char *number) {
    pthread_t thread;
    kept = m.malloc(1000);
    atexit(at_exit);
    int code = 10 + atoi(number) % 50;
    for (long i = 0; i < 3; i++)
        CHECK_EQ(pthread_create(&thread, NULL, churn, (void *)(uintptr_t)(i + atoi(number) * 3)), 0);
    usleep((useconds_t)(atoi(number) * 997 % 5000));
    kept = NULL;
    if (!strcmp(way, "exit")) exit(code);
    if (!strcmp(way, "quick_exit")) quick_exit(code);
    if (!strcmp(way, "_exit")) _exit(code);
    if (!strcmp(way, "pthread_exit") || !strcmp(way, "thread")) {
        CHECK_EQ(pthread_create(&thread, NULL, exit_here, (void *)(uintptr_t)code), 0);
        if (!strcmp(way, "pthread_exit")) pthread_exit(NULL);
        pthread_join(thread, NULL);
    }
    return code;
}

TEST(status_is_kept) {
    for (int w = 0; w < WAYS; w++) {
        for (long i = 0; i < rounds; i++) {
            char number[24];
            snprintf(number, sizeof number, "%ld", i);
            char *argv[] = {NULL, (char *)"end", (char *)(uintptr_t)ways[w], number, NULL};
            rerun_t r = rerun(argv, 0);
            if (!WIFEXITED(r.status) || WEXITSTATUS(r.status) != 10 + i % 50 || r.length)
                TEST_FAIL("%s, round %ld: %s %.200s", ways[w], i, rerun_end(&r), r.text);
        }
    }
}

int main(int argc, char **argv) {
    if (argc == 4 && !strcmp(argv[1], "end")) return end_of_process(argv[2], argv[3]);
    for (int i = 1; i < argc; i++) {
        if (!strncmp(argv[i], "--rounds=", 9)) rounds = atol(argv[i] + 9);
    }
    return test_main(argc, argv);
}
