// SPDX-License-Identifier: MIT
// Random operations against a model, alone and by several threads that hand blocks to each other.
#include <pthread.h>

#include "stress/shadow.h"

enum { SLOTS = 400,
    THREADS_MAX = 64 };

typedef struct worker {
    pthread_t thread;
    uint64_t random;
    int trims;  // call trim now and then?
    shadow_t slot[SLOTS];
} worker_t;
static worker_t worker[THREADS_MAX];

// Where a thread leaves a block that another will take: to check it, resize it or free it.
static struct {
    pthread_mutex_t lock;
    shadow_t slot[256];
} exchange = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void swap_with_others(shadow_t *s, uint64_t *random) {
    pthread_mutex_lock(&exchange.lock);
    shadow_t *other = &exchange.slot[test_random(random) % 256], taken = *other;
    *other = *s;
    *s = taken;
    pthread_mutex_unlock(&exchange.lock);
}

static void *work(void *arg) {
    worker_t *w = arg;
    for (long i = 0; i < stress_ops; i++) {
        uint64_t r = test_random(&w->random) >> 8;
        shadow_t *s = &w->slot[r / 1000 % SLOTS];
        unsigned op = r % 1000;
        if (op < 550) {
            shadow_free(s, &w->random);
            shadow_make(s, &w->random);
        } else if (op < 700) {
            shadow_free(s, &w->random);
        } else if (op < 800) {
            if (s->p) shadow_resize(s, &w->random);
        } else if (op < 999) {
            swap_with_others(s, &w->random);
        } else if (w->trims && op == 999) {
            m.trim(0);
        }
    }
    return NULL;
}

static void clear(void) {
    uint64_t random = 1;
    for (int k = 0; k < THREADS_MAX; k++) {
        for (int i = 0; i < SLOTS; i++) shadow_free(&worker[k].slot[i], &random);
    }
    for (int i = 0; i < 256; i++) shadow_free(&exchange.slot[i], &random);
}

static void run_threads(long threads, int trims) {
    for (long k = 0; k < threads; k++) {
        worker[k].random = test_seed * 64 + (uint64_t)k;
        worker[k].trims = trims;
        CHECK_EQ(pthread_create(&worker[k].thread, NULL, work, &worker[k]), 0);
    }
    for (long k = 0; k < threads; k++) CHECK_EQ(pthread_join(worker[k].thread, NULL), 0);
}

TEST(alone) {
    worker[0].random = test_seed;
    work(&worker[0]);
    clear();
}

TEST(threads) {
    run_threads(stress_threads, 0);
    clear();
}

// Again, so that new threads meet what the last ones left.
TEST(threads_after_threads) {
    long ops = stress_ops;
    stress_ops /= 10;
    for (int round = 0; round < 10; round++) run_threads(stress_threads, round % 2);
    stress_ops = ops;
    clear();
}

TEST(trim_during_work) {
    run_threads(stress_threads, 1);
    clear();
    m.trim(0);
}

// All is freed by a thread that allocated nothing, then all again.
static void *clear_there(void *unused) {
    (void)unused;
    clear();
    return NULL;
}
TEST(freed_by_a_stranger) {
    long ops = stress_ops;
    stress_ops /= 10;
    for (int round = 0; round < 5; round++) {
        run_threads(stress_threads, 0);
        pthread_t thread;
        CHECK_EQ(pthread_create(&thread, NULL, clear_there, NULL), 0);
        pthread_join(thread, NULL);
    }
    stress_ops = ops;
}

int main(int argc, char **argv) { return stress_main(argc, argv); }
