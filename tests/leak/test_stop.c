// SPDX-License-Identifier: MIT
// test_stop.c: all other threads stand still, with their registers known; those that can't be stopped are counted.
#include "os/stop.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>

#include "../harness.h"
#include "os/tasks.h"

static _Atomic unsigned requests, timers;
static void on_request(bool timer, const qy_os_standing_t *here) {
    CHECK(here->sp != 0);
    atomic_fetch_add(timer ? &timers : &requests, 1);
}

enum { THREADS = 20 };
static _Atomic uint64_t counters[THREADS];
static _Atomic bool over;

static void *count(void *arg) {
    while (!atomic_load(&over)) atomic_fetch_add((_Atomic uint64_t *)arg, 1);
    return NULL;
}
static void start(pthread_t *threads) {
    atomic_store(&over, false);
    for (unsigned i = 0; i < THREADS; i++) {
        atomic_store(&counters[i], 0);
        CHECK_EQ(pthread_create(&threads[i], NULL, count, &counters[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) TEST_AWAIT(atomic_load(&counters[i]) > 0);
}
static void finish(pthread_t *threads) {
    atomic_store(&over, true);
    for (unsigned i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

// A thread has the address of its counter in a register or on its stack.
static unsigned seen;
static void look(const qy_os_standing_t *s, void *arg) {
    (void)arg;
    bool found = false;
    for (const uint64_t *w = (const uint64_t *)s->registers[0]; w < (const uint64_t *)s->registers[1]; w++)
        for (unsigned i = 0; i < THREADS; i++) found |= *w == (uintptr_t)&counters[i];
    CHECK(s->thread != getpid());
    CHECK(s->sp % 8 == 0);
    seen += found;
}

TEST(threads_stand_and_go_on) {
    pthread_t threads[THREADS];
    qy_os_stopped_t stopped;
    CHECK(qy_os_stop_install(on_request));
    CHECK(qy_os_stop_keeps(QY_STOP_SIGNAL));
    CHECK(!qy_os_stop_keeps(SIGTERM));
    start(threads);
    for (unsigned round = 0; round < 20; round++) {
        uint64_t before[THREADS];
        CHECK(qy_os_stop_all(UINT64_C(60000000000), &stopped));
        CHECK_EQ(stopped.asked, THREADS);
        CHECK_EQ(stopped.lost, 0);
        CHECK(!stopped.unknown);
        for (unsigned i = 0; i < THREADS; i++) before[i] = atomic_load(&counters[i]);
        for (unsigned i = 0; i < 100; i++) sched_yield();
        for (unsigned i = 0; i < THREADS; i++) CHECK_EQ(atomic_load(&counters[i]), before[i]);
        seen = 0;
        qy_os_stop_each(look, NULL);
        CHECK_EQ(seen, THREADS);
        qy_os_stop_end();
        for (unsigned i = 0; i < THREADS; i++) TEST_AWAIT(atomic_load(&counters[i]) > before[i]);
    }
    finish(threads);
}

// ---- a thread that does not listen --------------------------------------------------------------------

static _Atomic bool deaf;
static _Atomic uint32_t sleeps;
static void *be_deaf(void *arg) {
    (void)arg;
    uint64_t all = ~UINT64_C(0);
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, NULL, sizeof all);  // not through libc
    atomic_store(&deaf, true);
    while (!atomic_load(&over)) qy_os_wait(&sleeps, 0, 0);
    return NULL;
}

TEST(a_thread_that_keeps_the_signal_out_is_lost_before_the_patience_ends) {
    pthread_t thread;
    qy_os_stopped_t stopped;
    CHECK(qy_os_stop_install(on_request));
    atomic_store(&over, false);
    CHECK_EQ(pthread_create(&thread, NULL, be_deaf, NULL), 0);
    TEST_AWAIT(atomic_load(&deaf));
    uint64_t before = qy_os_now_ns();
    CHECK(qy_os_stop_all(UINT64_C(3600000000000), &stopped));
    CHECK_EQ(stopped.asked, 1);
    CHECK_EQ(stopped.lost, 1);
    CHECK(!qy_os_stop_all(1, &stopped));  // one at a time
    qy_os_stop_end();
    CHECK_LT(qy_os_now_ns() - before, UINT64_C(3600000000000));
    atomic_store(&over, true);
    atomic_store(&sleeps, 1);
    qy_os_wake(&sleeps, 1);
    pthread_join(thread, NULL);
}

// ---- threads that come and go ---------------------------------------------------------------------------

static void *nothing(void *arg) { return arg; }
static void *make_threads(void *arg) {
    while (!atomic_load(&over)) {
        pthread_t t;
        if (pthread_create(&t, NULL, nothing, NULL) == 0) pthread_join(t, NULL);
        atomic_fetch_add((_Atomic uint64_t *)arg, 1);
    }
    return NULL;
}

TEST(threads_that_come_and_go_meanwhile) {
    pthread_t makers[4];
    qy_os_stopped_t stopped;
    CHECK(qy_os_stop_install(on_request));
    atomic_store(&over, false);
    for (unsigned i = 0; i < 4; i++) CHECK_EQ(pthread_create(&makers[i], NULL, make_threads, &counters[i]), 0);
    for (unsigned round = 0; round < 50; round++) {
        CHECK(qy_os_stop_all(UINT64_C(60000000000), &stopped));
        CHECK_EQ(stopped.lost, 0);
        uint64_t sum = 0;
        for (unsigned i = 0; i < 4; i++) sum += atomic_load(&counters[i]);
        for (unsigned i = 0; i < 50; i++) sched_yield();
        for (unsigned i = 0; i < 4; i++) sum -= atomic_load(&counters[i]);
        CHECK_EQ(sum, 0);
        qy_os_stop_end();
        sched_yield();
    }
    atomic_store(&over, true);
    for (unsigned i = 0; i < 4; i++) pthread_join(makers[i], NULL);
}

// ---- requests and copies --------------------------------------------------------------------------------

TEST(a_signal_from_elsewhere_is_a_request) {
    CHECK(qy_os_stop_install(on_request));
    unsigned before = atomic_load(&requests);
    union sigval none = {0};
    CHECK_EQ(sigqueue(getpid(), QY_STOP_SIGNAL, none), 0);
    TEST_AWAIT(atomic_load(&requests) == before + 1);
}

TEST(a_timer_asks_again_and_again) {
    CHECK(qy_os_stop_install(on_request));
    CHECK(qy_os_stop_timer(1));
    TEST_AWAIT(atomic_load(&timers) >= 2);
    CHECK(qy_os_stop_timer(0));
}

TEST(a_copy_has_the_memory_of_its_moment_and_tells_nobody) {
    volatile int *word = malloc(sizeof *word);
    *word = 1;
    long copy = qy_os_copy();
    CHECK(copy >= 0);
    if (copy == 0) {
        qy_os_copy_keep_only(-1);
        qy_os_copy_end(*word == 1 && write(2, "x", 1) < 0 ? 0 : 1);
    }
    *word = 2;
    bool ok = false;
    CHECK(qy_os_copy_ended((int)copy, true, &ok));
    CHECK(ok);
    free((void *)word);
}

static volatile uintptr_t nowhere = 8;
static void note(int number) {
    (void)number;
    TEST_FAIL("a copy's end was told");
}
TEST(a_copy_that_crashes_says_so) {
    signal(SIGCHLD, note);
    long copy = qy_os_copy();
    if (copy == 0) {
        qy_os_copy_keep_only(2);
        *(volatile int *)nowhere = 1;
    }
    bool ok = true;
    CHECK(qy_os_copy_ended((int)copy, true, &ok));
    CHECK(!ok);
    signal(SIGCHLD, SIG_DFL);
}

static bool count_task(int thread, void *arg) {
    CHECK(thread > 0);
    ++*(unsigned *)arg;
    return true;
}
TEST(threads_are_listed) {
    pthread_t threads[THREADS];
    unsigned n = 0;
    start(threads);
    CHECK(qy_os_each_task(count_task, &n, 0));
    CHECK_EQ(n, THREADS + 1);
    uint64_t switches;
    CHECK_EQ(qy_os_task_state(getpid(), QY_STOP_SIGNAL, &switches), QY_TASK_LISTENS);
    finish(threads);
}

TEST_MAIN()
