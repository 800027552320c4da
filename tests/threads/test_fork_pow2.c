// SPDX-License-Identifier: MIT
// test_fork_pow2.c: fork where malloc is a pow2 pool (libquarry-pow2) and the program has another one: both have
// records in the same memory, and handlers of fork. --forks=N.
#include <pthread.h>
#include <quarry/pow2.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "harness.h"
#include "malloc_names.h"

#define LARGE ((size_t)8 << 20)

static long forks = 300;

// A hang is a failure that says where it was.
static const char *where = "";
static void on_alarm(int sig) {
    (void)sig;
    if (write(2, "FAILED: hangs ", 14) < 0 || write(2, where, strlen(where)) < 0 || write(2, "\n", 1) < 0) {}
    _exit(1);
}

static void wait_for(pid_t pid) {
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), 0);
}

// ---- between the handlers ----------------------------------------------------------------------------------
// A program's own handlers, registered after those of malloc and before those of its pool, run between them. As long as
// malloc is not frozen, other threads get blocks: who holds a lock of the program there may need one before that lock
// is free.

static struct {
    sem_t wanted, done;
    bool on;  // the handlers ask
} between;

// Large blocks have records, which are made of the pools' own memory.
static void *give_large(void *arg) {
    (void)arg;
    for (int i = 0; i < 2; i++) {
        while (sem_wait(&between.wanted)) {}
        void *p = malloc(LARGE), *q = malloc(LARGE);
        CHECK(p && q && mallinfo2().hblks >= 2);
        free(p);
        free(q);
        sem_post(&between.done);
    }
    return NULL;
}

static void ask(const char *at) {
    if (!between.on) return;
    where = at;
    sem_post(&between.wanted);
    while (sem_wait(&between.done)) {}
}
static void ask_before(void) { ask("before the fork"); }
static void ask_after(void) { ask("after the fork"); }

TEST(malloc_works_between_the_handlers) {
    CHECK(!sem_init(&between.wanted, 0, 0) && !sem_init(&between.done, 0, 0));
    free(malloc(1));
    CHECK(!pthread_atfork(ask_before, ask_after, NULL));
    quarry_pool_t *pool = quarry_pow2_create(NULL);
    CHECK(pool);
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, give_large, NULL));
    alarm(TEST_PATIENCE);
    between.on = true;
    pid_t pid = fork();
    CHECK(pid >= 0);
    between.on = false;
    if (!pid) {
        where = "in the child";
        alarm(TEST_PATIENCE);
        void *p = malloc(LARGE), *q = quarry_pool_alloc(pool, LARGE, 16, 0);
        CHECK(p && q);
        free(p);
        quarry_pool_free(pool, q, QUARRY_SIZE_UNKNOWN);
        quarry_pool_destroy(pool);
        _exit(0);
    }
    wait_for(pid);
    CHECK(!pthread_join(thread, NULL));
    alarm(0);
    quarry_pool_destroy(pool);
}

// ---- at any time ----------------------------------------------------------------------------------------------

static _Atomic int over;
static quarry_pool_t *child;  // on malloc's pool, whose locks are taken under this one's

static void end(unsigned char **p, unsigned i) {
    if (i % 4) free(p[i]);
    else quarry_pool_free(child, p[i], QUARRY_SIZE_UNKNOWN);
    p[i] = NULL;
}

// A record that two threads have got makes two blocks of one.
static void *churn(void *arg) {
    uint64_t rng = test_seed + (uintptr_t)arg;
    unsigned char mine = (unsigned char)(uintptr_t)arg, *p[16] = {0};
    while (!over) {
        unsigned i = test_random(&rng) % 16;
        size_t size = ((size_t)1 << 20) + test_random(&rng) % 16 * 4096;
        if (p[i]) {
            CHECK_EQ(*p[i], mine);
            end(p, i);
        } else {
            p[i] = i % 4 ? malloc(size) : quarry_pool_alloc(child, size, 16, 0);
            CHECK(p[i]);
            *p[i] = mine;
        }
    }
    for (unsigned i = 0; i < 16; i++) end(p, i);
    return NULL;
}

TEST(among_threads) {
    enum { THREADS = 6 };
    pthread_t t[THREADS];
    child = quarry_pow2_create(&(quarry_pow2_options_t){.pool.parent = quarry_pow2_process_pool()});
    CHECK(child);
    for (uintptr_t i = 0; i < THREADS; i++) CHECK(!pthread_create(&t[i], NULL, churn, (void *)(i + 1)));
    where = "among threads";
    for (long i = 0; i < forks; i++) {
        alarm(TEST_PATIENCE);
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (!pid) {
            alarm(TEST_PATIENCE);
            void *p = malloc(LARGE), *q = quarry_pool_alloc(child, LARGE, 16, 0);
            CHECK(p && q);
            free(p);
            quarry_pool_free(child, q, QUARRY_SIZE_UNKNOWN);
            _exit(0);
        }
        wait_for(pid);
    }
    over = 1;
    for (int i = 0; i < THREADS; i++) CHECK(!pthread_join(t[i], NULL));
    alarm(0);
    CHECK_EQ(quarry_pool_check(child), 0);
    quarry_pool_destroy(child);
    CHECK_EQ(mallinfo2().hblks, 0);
    CHECK_EQ(quarry_pool_check(quarry_pow2_process_pool()), 0);
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (!strncmp(argv[i], "--forks=", 8)) forks = atol(argv[i] + 8);
    signal(SIGALRM, on_alarm);
    return test_main(argc, argv);
}
