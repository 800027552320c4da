// SPDX-License-Identifier: MIT
// test_many_keys.c: a program with more keys than libc has room for in a thread's own record. The table for the values
// of later ones is allocated within pthread_setspecific, which may be a thread's first call of the heap. What the heap
// has for a thread comes back all the same.
#include <pthread.h>

#include "api/family.h"
#include "fault/rss.h"

enum { KEYS = 40,
    THREADS = 1500 };
static pthread_key_t key;
static int ends;

static void free_value(void *block) {
    m.free(block);
    ends++;
}
static void *set_value(void *block) {
    CHECK_EQ(pthread_setspecific(key, block), 0);
    return NULL;
}
static void some_threads(int count) {
    for (int i = 0; i < count; i++) {
        pthread_t t;
        CHECK_EQ(pthread_create(&t, NULL, set_value, m.malloc(100)), 0);
        CHECK_EQ(pthread_join(t, NULL), 0);
    }
}

TEST(first_call_within_setspecific) {
    for (int i = 0; i < KEYS; i++) CHECK_EQ(pthread_key_create(&key, free_value), 0);
    some_threads(THREADS / 5);
    double before = statm_mib(1);
    some_threads(THREADS);
    double after = statm_mib(1);
    CHECK_EQ(ends, THREADS + THREADS / 5);
    printf("from %.1f to %.1f MiB\n", before, after);
    if (!FAMILY_SANITIZED) CHECK_LE(after - before, 8);  // a heap for each thread would be 25
}

TEST_MAIN()
