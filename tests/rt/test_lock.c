// SPDX-License-Identifier: MIT
#include "rt/lock.h"

#include <pthread.h>
#include <sched.h>

#include "base/compiler.h"
#include "captured.h"
#include "os/fake.h"
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
    CHECK_EQ(sizeof(qy_lock_t), 8);
}

static void *count(void *rounds) {
    for (long i = 0; i < (long)rounds; i++) {
        if (i % 3 || !qy_lock_try(&lock)) qy_lock_take(&lock);
        counter++;
        if (i % 1000 == 0) sched_yield();  // while it is held: others have to sleep
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
    while ((lock.state & QY_LOCK_KIND) != QY_LOCK_WAITED) sched_yield();
    usleep(20000);
    CHECK_EQ(inside, 0);
    drop(&lock);
    alarm(TEST_PATIENCE);
    for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
    alarm(0);
    CHECK_EQ(inside, THREADS);
    CHECK_EQ(lock.state, 0);
}
// Woken one by one.
TEST(sleepers) { sleep_until(qy_lock_drop); }

// Who drops the lock may be interrupted before it wakes the sleepers, and its signal handler may wait for them, in
// fork.
static void drop_and_wake_nobody(qy_lock_t *l) { atomic_store(&l->state, 0); }
TEST(dropped_and_nobody_woken) { sleep_until(drop_and_wake_nobody); }

static void *await_once(void *unused) {
    qy_lock_await(&lock);
    inside++;
    return unused;
}
// A thread that awaits it leaves it free, and passes through what it has frozen.
TEST(awaited) {
    pthread_t t[THREADS];
    inside = 0;
    qy_lock_take(&lock);
    for (int i = 0; i < THREADS; i++) CHECK_EQ(pthread_create(&t[i], NULL, await_once, NULL), 0);
    while ((lock.state & QY_LOCK_KIND) != QY_LOCK_WAITED) sched_yield();
    usleep(20000);
    CHECK_EQ(inside, 0);
    qy_lock_drop(&lock);
    for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
    CHECK_EQ(inside, THREADS);
    CHECK_EQ(lock.state, 0);
    qy_lock_freeze(&lock);
    qy_lock_await(&lock);
    CHECK(qy_lock_is_frozen(&lock));
    qy_lock_thaw(&lock);
}

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
    alarm(TEST_PATIENCE);
    qy_lock_take(&lock);
    qy_lock_drop(&lock);
    CHECK(qy_lock_is_frozen(&lock) && !qy_lock_is_mine(&lock));
    qy_lock_reset(&lock);
    qy_lock_take(&lock);
    CHECK(qy_lock_is_mine(&lock));
}
// Another thread's lock is not mine, held or frozen; and it cannot be frozen while it is that.
static void *not_mine(void *unused) {
    (void)unused;
    CHECK(!qy_lock_is_mine(&lock) && !qy_lock_is_frozen(&lock) && !qy_lock_freeze_until(&lock, qy_os_now_ns()));
    return NULL;
}
TEST(whose) {
    pthread_t t;
    for (int frozen = 0; frozen < 2; frozen++) {
        if (frozen) qy_lock_freeze(&lock);
        else qy_lock_take(&lock);
        if (!frozen) CHECK(!qy_lock_freeze_until(&lock, qy_os_now_ns() + 1000000000));
        CHECK_EQ(pthread_create(&t, NULL, not_mine, NULL), 0);
        pthread_join(t, NULL);
        if (frozen) qy_lock_thaw(&lock);
        else qy_lock_drop(&lock);
        CHECK_EQ(lock.state, 0);
    }
}

// ---- waiting ----------------------------------------------------------------------------------------

static uint64_t used_ns(void) {
    struct timespec t;
    CHECK_EQ(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t), 0);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
// Whoever waits sleeps: the holder may need this very processor, and be of lower priority.
static void *wait_in_all_ways(void *unused) {
    uint64_t before = used_ns(), begun = qy_os_now_ns();
    CHECK(!qy_lock_freeze_until(&lock, begun + 200000000));
    CHECK_GE(qy_os_now_ns(), begun + 200000000);
    inside = 1;
    qy_lock_take(&lock);
    qy_lock_drop(&lock);
    qy_lock_freeze(&lock);
    qy_lock_thaw(&lock);
    CHECK_LE(used_ns() - before, UINT64_C(40000000));
    return unused;
}
TEST(waiting_is_sleeping) {
    pthread_t t;
    inside = 0;
    qy_lock_take(&lock);
    CHECK_EQ(pthread_create(&t, NULL, wait_in_all_ways, NULL), 0);
    while (!inside) usleep(1000);
    usleep(200000);
    qy_lock_drop(&lock);
    pthread_join(t, NULL);
    CHECK_EQ(lock.state, 0);
}

// Who must not wait for a holder that calls the program does not: not if it begins to wait then, nor if it waits
// already, however long that goes on. Others wait for the end.
static void *not_for_who_is_out(void *unused) {
    inside++;
    CHECK(!qy_lock_freeze_unless_out(&lock));
    CHECK(!qy_lock_take_unless_out(&lock));
    inside++;
    qy_lock_freeze(&lock);
    inside++;
    qy_lock_thaw(&lock);
    return unused;
}
TEST(out) {
    pthread_t t[THREADS];
    alarm(TEST_PATIENCE);
    for (int already = 0; already < 2; already++) {
        inside = 0;
        qy_lock_take(&lock);
        if (!already) qy_lock_go_out(&lock);
        for (int i = 0; i < THREADS; i++) CHECK_EQ(pthread_create(&t[i], NULL, not_for_who_is_out, NULL), 0);
        while (inside < THREADS) usleep(1000);
        usleep(20000);
        if (already) {
            CHECK_EQ(inside, THREADS);
            qy_lock_go_out(&lock);
        }
        while (inside < 2 * THREADS) usleep(1000);
        usleep(20000);
        CHECK(qy_lock_is_mine(&lock) && qy_lock_is_out(&lock) && inside == 2 * THREADS);
        CHECK(!qy_lock_take_unless_out(&lock));
        qy_lock_come_back(&lock);
        CHECK(qy_lock_is_mine(&lock) && !qy_lock_is_out(&lock));
        qy_lock_drop(&lock);
        for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
        CHECK_EQ(lock.state, 0);
    }
    // A thread that forks passes through, and goes nowhere.
    qy_lock_freeze(&lock);
    qy_lock_go_out(&lock);
    CHECK(qy_lock_is_frozen(&lock) && !qy_lock_is_out(&lock) && qy_lock_take_unless_out(&lock));
    qy_lock_come_back(&lock);
    qy_lock_thaw(&lock);
    CHECK_EQ(lock.state, 0);
    alarm(0);
}

// A fork leaves alone what the forking thread holds.
TEST(mine_in_a_fork) {
    qy_lock_take(&lock);
    CHECK(!qy_lock_freeze_unless_out(&lock) && qy_lock_is_mine(&lock));
    for (int phase = 0; phase < 3; phase++) {
        qy_lock_fork(&lock, phase);
        CHECK(qy_lock_is_mine(&lock));
    }
    qy_lock_drop(&lock);
    qy_lock_fork(&lock, 0);
    CHECK(qy_lock_is_frozen(&lock));
    qy_lock_fork(&lock, 1);
    CHECK_EQ(lock.state, 0);
}

// Taken by its own holder: one line instead of a wait without end.
static void take_twice(void *way) {
    alarm(TEST_PATIENCE);
    qy_lock_take(&lock);
    if ((intptr_t)way == 1) qy_lock_freeze(&lock);
    if ((intptr_t)way == 2) qy_lock_go_out(&lock);
    qy_lock_take(&lock);
}
TEST(by_its_own_holder) {
    for (intptr_t way = 0; way < 3; way++) {
        captured_t c = capture(take_twice, (void *)way);
        CHECK_EQ(c.exit_signal, SIGABRT);
        CHECK(strstr(c.text,
            way == 2 ? "quarry: call within a call: 0x" : "malloc called by a signal handler that interrupted it"));
        if (way == 2) CHECK(strstr(c.text, "of what is being walked, by the function that the walk calls"));
    }
}

// Not so a thread that clone() made without a thread pointer of its own: its locks look like mine.
static int hold_for_a_while(void *unused) {
    (void)unused;
    qy_lock_take(&lock);
    inside = 1;
    usleep(30000);
    qy_lock_drop(&lock);
    return 0;
}
TEST(by_a_thread_with_the_same_token) {
    static _Alignas(16) char stack[65536];
    if (QY_TSAN || QY_ASAN) TEST_SKIP("needs a build without sanitizers: they know threads by their thread pointers");
    inside = 0;
    qy_os_fake_now = qy_os_now_ns();  // its holder may get no processor for long
    int pid = clone(hold_for_a_while, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL);
    CHECK_GE(pid, 0);
    while (!inside) usleep(1000);
    CHECK(qy_lock_is_mine(&lock));
    qy_lock_take(&lock);
    qy_lock_drop(&lock);
    qy_os_fake_now = 0;
    CHECK_EQ(waitpid(pid, NULL, 0), pid);
    CHECK_EQ(lock.state, 0);
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
