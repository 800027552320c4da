// SPDX-License-Identifier: MIT
// A thread has a cache from its first block on, whatever the program did before; and where libc does not tell when
// threads end, that costs little to find out again.
#include <pthread.h>

#include "heap_test.h"

enum { CALLS = 5000,
    SOON = 600 };

static void use(int calls) {
    for (int i = 0; i < calls; i++) {
        char *p = quarry_malloc((size_t)(1 + i * 37 % 3000));
        CHECK(p);
        p[0] = 1;
        quarry_free(p);
    }
}
static void *caches(void *unused) {
    use(1);
    CHECK_EQ(qy_thread_state, QY_THREAD_LIVE);
    use(CALLS);
    return unused;
}
static void *has_none_until_it_may(void *unused) {
    quarry_os_fault(1, 1, FAULT(THREAD_EXIT));
    use(CALLS);
    CHECK_EQ(qy_thread_state, QY_THREAD_NONE);
    CHECK_GT(quarry_os_fault_hits(), 2);
    CHECK_LE(quarry_os_fault_hits(), 1 + CALLS / 100);
    quarry_os_fault(0, 0, 0);
    use(SOON);
    CHECK_EQ(qy_thread_state, QY_THREAD_LIVE);
    return unused;
}
static void in_thread(void *(*fn)(void *)) {
    pthread_t t;
    CHECK_EQ(pthread_create(&t, NULL, fn, NULL), 0);
    pthread_join(t, NULL);
}

// Each in a process of its own: the key is made once.
static void all_keys_taken(void *unused) {
    (void)unused;
    pthread_key_t key;
    while (pthread_key_create(&key, NULL) == 0) {}
    size_t threads = qy_heaps_threads();
    for (int i = 0; i < 20; i++) in_thread(caches);
    CHECK_EQ(qy_heaps_threads(), threads);  // each was let go of
    CHECK_LE(qy_heaps_made(), 4);
}
TEST(all_keys_are_taken_before_the_first_thread) { run_apart(all_keys_taken, NULL); }

static void not_told(void *unused) {
    (void)unused;
    in_thread(has_none_until_it_may);
    for (int i = 0; i < 20; i++) in_thread(caches);  // and the next ones at once
}
TEST(ends_are_not_told_for_a_while) { run_apart(not_told, NULL); }

// The first thread of a fork's child is one that told its end, or one whose heap lasts.
static void *forks(void *unused) {
    use(100);
    run_apart(all_keys_taken, NULL);
    return unused;
}
TEST(forked_by_a_thread) {
    if (QY_TSAN)
        TEST_SKIP("needs a build without ThreadSanitizer, which has no threads in the child of a fork beside threads");
    in_thread(forks);
}

TEST_MAIN()
