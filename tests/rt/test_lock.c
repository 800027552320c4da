// SPDX-License-Identifier: MIT
#include "rt/lock.h"

#include <pthread.h>

#include "captured.h"
#include "os/os.h"

#define THREADS 4

static qy_lock_t lock;
static long counter;  // plain on purpose: the lock is all that protects it

TEST(alone) {
    qy_lock_t l = {0};
    CHECK(qy_lock_try(&l));
    CHECK(!qy_lock_try(&l));
    CHECK_EQ(l.state, qy_lock_holder() | QY_LOCK_HELD);
    CHECK(qy_lock_is_mine(&l) && !qy_lock_is_frozen(&l));
    qy_lock_drop(&l);
    CHECK_EQ(l.state, 0);
    qy_lock_take(&l);
    CHECK(qy_lock_is_mine(&l));
    qy_lock_reset(&l);
    CHECK(qy_lock_try(&l));
    CHECK_EQ(sizeof(qy_lock_t), 4);
}

static void *count(void *rounds) {
    for (long i = 0; i < (long)rounds; i++) {
        if (i % 3 || !qy_lock_try(&lock)) qy_lock_take(&lock);
        counter++;
        if (i % 1000 == 0) qy_os_yield();  // while it is held: others have to sleep
        qy_lock_drop(&lock);
    }
    return NULL;
}

TEST(contention) {
    const long rounds = 100000;
    pthread_t t[THREADS];
    counter = 0;
    for (int i = 0; i < THREADS; i++) CHECK_EQ(pthread_create(&t[i], NULL, count, (void *)rounds), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
    CHECK_EQ(counter, THREADS * rounds);
    CHECK_EQ(lock.state, 0);
}

static _Atomic int inside;
static void *take_once(void *unused) {
    (void)unused;
    qy_lock_take(&lock);
    inside++;
    qy_lock_drop(&lock);
    return NULL;
}

// Sleepers get in when `drop` makes the lock free, none is forgotten; while it is held none gets in.
static void sleep_until(void (*drop)(qy_lock_t *)) {
    pthread_t t[THREADS];
    inside = 0;
    qy_lock_take(&lock);
    for (int i = 0; i < THREADS; i++) CHECK_EQ(pthread_create(&t[i], NULL, take_once, NULL), 0);
    while ((lock.state & QY_LOCK_KIND) != QY_LOCK_WAITED) qy_os_yield();
    usleep(20000);
    CHECK_EQ(inside, 0);
    drop(&lock);
    alarm(20);
    for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
    alarm(0);
    CHECK_EQ(inside, THREADS);
    CHECK_EQ(lock.state, 0);
}
// Woken one by one.
TEST(sleepers) { sleep_until(qy_lock_drop); }

// Who drops the lock may be interrupted before it wakes the sleepers, and its signal handler may wait for them, in fork.
static void drop_and_wake_nobody(qy_lock_t *l) { atomic_store(&l->state, 0); }
TEST(dropped_and_nobody_woken) { sleep_until(drop_and_wake_nobody); }

// ---- frozen for a fork ----------------------------------------------------------------------------

// The thread that froze it passes through, as often as it likes; others wait until it is thawed.
TEST(frozen) {
    pthread_t t[THREADS];
    inside = 0;
    qy_lock_freeze(&lock);
    for (int i = 0; i < THREADS; i++) CHECK_EQ(pthread_create(&t[i], NULL, take_once, NULL), 0);
    for (int i = 0; i < 100; i++) {
        qy_lock_take(&lock);
        qy_lock_drop(&lock);
        CHECK(qy_lock_is_frozen(&lock) && !qy_lock_is_mine(&lock));
        usleep(200);
    }
    CHECK_EQ(inside, 0);
    qy_lock_thaw(&lock);
    for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
    CHECK_EQ(inside, THREADS);
    CHECK_EQ(lock.state, 0);
}

// Freezing waits for the holder, and holders that slept are not forgotten.
TEST(frozen_under_contention) {
    const long rounds = 20000;
    pthread_t t[THREADS];
    counter = 0;
    for (int i = 0; i < THREADS; i++) CHECK_EQ(pthread_create(&t[i], NULL, count, (void *)rounds), 0);
    for (int i = 0; i < 200; i++) {
        qy_lock_freeze(&lock);
        long before = counter;
        usleep(50);
        CHECK_EQ(counter, before);
        qy_lock_thaw(&lock);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
    CHECK_EQ(counter, THREADS * rounds);
    CHECK_EQ(lock.state, 0);
}

// In the child, before it is reset: another library's fork handler that comes first may allocate.
static void pass_and_reset(void *unused) {
    (void)unused;
    alarm(10);
    qy_lock_take(&lock);
    qy_lock_drop(&lock);
    CHECK(qy_lock_is_frozen(&lock) && !qy_lock_is_mine(&lock));
    qy_lock_reset(&lock);
    qy_lock_take(&lock);
    CHECK(qy_lock_is_mine(&lock));
}
// Another thread's lock is not mine, held or frozen; and it cannot be frozen without waiting.
static void *not_mine(void *unused) {
    (void)unused;
    CHECK(!qy_lock_is_mine(&lock) && !qy_lock_is_frozen(&lock) && !qy_lock_try_freeze(&lock));
    return NULL;
}
TEST(whose) {
    pthread_t t;
    for (int frozen = 0; frozen < 2; frozen++) {
        if (frozen) CHECK(qy_lock_try_freeze(&lock));
        else qy_lock_take(&lock);
        CHECK(!qy_lock_try_freeze(&lock));
        CHECK_EQ(pthread_create(&t, NULL, not_mine, NULL), 0);
        pthread_join(t, NULL);
        if (frozen) qy_lock_thaw(&lock);
        else qy_lock_drop(&lock);
        CHECK_EQ(lock.state, 0);
    }
}

static void *freeze_and_fork(void *unused) {
    qy_lock_freeze(&lock);
    run_apart(pass_and_reset, unused);
    qy_lock_thaw(&lock);
    return NULL;
}
TEST(frozen_in_the_child) {
    freeze_and_fork(NULL);
    pthread_t t;
    CHECK_EQ(pthread_create(&t, NULL, freeze_and_fork, NULL), 0);
    pthread_join(t, NULL);
}

TEST_MAIN()
