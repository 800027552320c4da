// SPDX-License-Identifier: MIT
// A resolver that allocates: it runs while the program is relocated, before thread-local variables have their first
// values. What it got is whole later, and can be freed, resized and counted.
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>

#include "harness.h"

enum { KEPT = 200 };
static unsigned char *kept[KEPT];
static size_t size_of(int i) { return i % 50 == 49 ? 300000 : i % 10 == 9 ? 20000
                                                                          : (size_t)(i * 37 % 2000 + 1); }

static int twice_really(int n) { return 2 * n; }

__attribute__((used)) static int (*resolve(void))(int) {
    for (int i = 0; i < KEPT; i++) {
        kept[i] = i % 3 == 0 ? calloc(1, size_of(i)) : malloc(size_of(i));
        for (size_t k = 0; kept[i] && k < size_of(i); k++) kept[i][k] = (unsigned char)i;
        free(malloc(size_of(i)));
    }
    for (int i = 0; i < KEPT; i += 7) {
        free(kept[i]);
        kept[i] = NULL;
    }
    return twice_really;
}
int twice(int n) __attribute__((ifunc("resolve")));

static void whole_and_freed(void) {
    for (int i = 0; i < KEPT; i++) {
        if (i % 7 == 0) continue;
        CHECK(kept[i]);
        CHECK_GE(malloc_usable_size(kept[i]), size_of(i));
        for (size_t k = 0; k < size_of(i); k++) CHECK_EQ(kept[i][k], (unsigned char)i);
        if (i % 2) kept[i] = realloc(kept[i], 2 * size_of(i));
        CHECK_EQ(kept[i][0], (unsigned char)i);
        free(kept[i]);
        kept[i] = NULL;
    }
}

static void *work(void *unused) {
    for (int i = 0; i < 1000; i++) free(malloc(size_of(i % KEPT)));
    return unused;
}

TEST(it_was_asked) { CHECK_EQ(twice(21), 42); }

TEST(what_it_got_is_whole) {
    pthread_t t;
    work(NULL);
    whole_and_freed();
    CHECK_EQ(pthread_create(&t, NULL, work, NULL), 0);
    pthread_join(t, NULL);
    work(NULL);
}

TEST_MAIN()
