// SPDX-License-Identifier: MIT
// The heap hears of forks from the first thread and the first handler of others on, and not before (heap/atfork.h).
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/wait.h>
#ifdef TEST_PRELOADED
#include <threads.h>
#endif

#include "api/family.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool wanted, asked, held, forked, stop;

static void prepare(void) {
    if (!wanted) return;
    asked = true;
    pthread_mutex_lock(&lock);
}
static void after(void) {
    if (wanted) pthread_mutex_unlock(&lock);
}
// Before main, and before the program has a thread.
__attribute__((constructor)) static void register_handlers(void) { pthread_atfork(prepare, after, after); }

static int uses_the_heap(void) {
    for (size_t n = 1; n < 300000; n *= 3) {
        unsigned char *p = m.malloc(n);
        if (!p) return 1;
        memset(p, 1, n);
        m.free(p);
    }
    return 0;
}

static void await_end(pid_t pid) {
    int status = 0;
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    CHECK_EQ(status, 0);
}

static int churn(void *unused) {
    (void)unused;
    do
        if (uses_the_heap()) return 1;
    while (!stop);
    return 0;
}
#ifdef TEST_PRELOADED
typedef thrd_t churner_t;
static bool begin(churner_t *ret) { return thrd_create(ret, churn, NULL) == thrd_success; }
static bool end(churner_t thread) {
    int failed = 1;
    return thrd_join(thread, &failed) == thrd_success && !failed;
}
#else  // ThreadSanitizer does not know the threads of C11
typedef pthread_t churner_t;
static void *churn_posix(void *unused) { return churn(unused) ? &lock : NULL; }
static bool begin(churner_t *ret) { return pthread_create(ret, NULL, churn_posix, NULL) == 0; }
static bool end(churner_t thread) {
    void *failed = NULL;
    return pthread_join(thread, &failed) == 0 && !failed;
}
#endif

// A child's own threads and forks, where its parent had none.
static int child_with_threads(void) {
    churner_t thread;
    alarm(TEST_PATIENCE);
    if (uses_the_heap() || !begin(&thread)) return 1;
    for (int i = 0; i < 20; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            alarm(TEST_PATIENCE);
            _exit(uses_the_heap());
        }
        await_end(pid);
    }
    stop = true;
    return !end(thread);
}

TEST(child_of_a_process_with_one_thread) {
    CHECK_EQ(uses_the_heap(), 0);
    for (int i = 0; i < 3; i++) {
        pid_t pid = fork();
        if (pid == 0) _exit(child_with_threads());
        await_end(pid);
    }
}

// It has the lock that a handler of the program's takes before a fork, and needs the heap to let go of it. It does not
// end before the child does: ThreadSanitizer would tell the child that nobody there joined it.
static void *hold(void *unused) {
    (void)unused;
    pthread_mutex_lock(&lock);
    held = true;
    TEST_AWAIT(asked);
    void *failed = uses_the_heap() ? &lock : NULL;
    pthread_mutex_unlock(&lock);
    TEST_AWAIT(forked);
    return failed;
}

TEST(handlers_of_others_find_the_heap_open) {
    pthread_t thread;
    void *failed = NULL;
    alarm(TEST_PATIENCE);
    CHECK_EQ(pthread_create(&thread, NULL, hold, NULL), 0);
    TEST_AWAIT(held);
    wanted = true;
    pid_t pid = fork();
    if (pid == 0) _exit(uses_the_heap());
    await_end(pid);
    forked = true;
    CHECK_EQ(pthread_join(thread, &failed), 0);
    CHECK(!failed);
}

TEST_MAIN()
