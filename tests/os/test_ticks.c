// SPDX-License-Identifier: MIT
// What another thread did before this one saw it, it did at no later time.
#include <pthread.h>
#include <stdatomic.h>

#include "harness.h"
#include "os/ticks.h"

enum { SLOTS = 64,
    ROUNDS = 2000000 };

// Far apart, so that a reading is waited for: meanwhile a processor may go ahead.
static struct {
    _Atomic uint64_t at;
    char apart[120];
} slot[SLOTS];
static uint64_t latest_by[2];
static long back[2];

static void *exchange(void *number) {
    size_t me = (uintptr_t)number;
    uint64_t random = test_seed + me;
    for (int i = 0; i < ROUNDS; i++) {
        _Atomic uint64_t *s = &slot[test_random(&random) % SLOTS].at;
        uint64_t theirs = atomic_exchange(s, qy_os_ticks()), now = qy_os_ticks();
        if (now >= theirs) continue;
        back[me]++;
        if (theirs - now > latest_by[me]) latest_by[me] = theirs - now;
    }
    return NULL;
}

TEST(seen_from_another_thread) {
    qy_os_ticks_init();
    pthread_t thread[2];
    for (size_t i = 0; i < 2; i++) CHECK_EQ(pthread_create(&thread[i], NULL, exchange, (void *)(uintptr_t)i), 0);
    for (size_t i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    printf("%s, %.0f ticks a second\n", qy_os_ticks_name(), (double)qy_ticks.per_second);
    for (size_t i = 0; i < 2; i++)
        if (back[i])
            TEST_FAIL("%ld of %d readings are of before what they follow, one by %lu ticks", back[i], ROUNDS,
                (unsigned long)latest_by[i]);
}

TEST_MAIN()
