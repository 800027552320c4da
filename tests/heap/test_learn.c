// SPDX-License-Identifier: MIT
// Classes of just the size that a program asks for: when they come, what then lies in them, and what they leave as it
// is.

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "heap_test.h"

#include "heap/sizeclass.h"

enum { MANY = 4000 };
static void *block[MANY];

static qy_heap_t *mine(void) { return qy_thread_get()->heap; }
static unsigned class_for(size_t n) { return mine()->cls[qy_step(n)]; }
static unsigned learned(void) { return (unsigned)__builtin_popcount(mine()->learned); }

static void get(size_t from, size_t to, size_t size) {
    for (size_t i = from; i < to; i++) {
        CHECK(block[i] = quarry_malloc(size));
        fill(block[i], 0, size, i);
    }
}
static void give(size_t from, size_t to, size_t size) {
    for (size_t i = from; i < to; i++) {
        check_filled(block[i], 0, size, i);
        quarry_free(block[i]);
    }
}

// What most requests are for gets a class of its own; what is a little larger keeps the old one.
TEST(one_size_is_learned) {
    unsigned before = learned(), old = qy_class_fine(1032);
    get(0, MANY, 1032);
    CHECK_EQ(learned(), before + 1);
    unsigned own = class_for(1032);
    CHECK(qy_class_is_learned(own));
    CHECK_EQ(qy_class_size[own], 1040);
    CHECK_EQ(class_for(1025), own);
    CHECK_EQ(class_for(1041), old);
    CHECK_EQ(class_for(1152), old);
    CHECK_EQ(class_for(1024), qy_class_fine(1024));
    CHECK_EQ(quarry_usable_size(block[MANY - 1]), 1040);
    // Most of what came after the first 256 KiB lies in it.
    CHECK_GT(mine()->bins[own].nslabs, (MANY - 700) / (65536 / 1040));
    verify_all();
    // Aligned requests find the least class that will do, and zeroed ones are.
    for (size_t align = 16; align <= 4096; align *= 2) {
        void *p = quarry_aligned_alloc(align, 1030);
        CHECK(p && (uintptr_t)p % align == 0);
        if (align == 16) CHECK_EQ(quarry_usable_size(p), 1040);
        quarry_free(p);
    }
    give(0, MANY, 1032);
    for (int i = 0; i < 100; i++) {
        char *p = quarry_calloc(1, 1032);
        for (int k = 0; k < 1032; k++) CHECK_EQ(p[k], 0);
        memset(p, 0xff, 1032);
        CHECK_EQ(quarry_usable_size(p), 1040);
        quarry_free(p);
    }
    verify_all();
    quarry_trim(0);
    verify_all();
}

// Sizes of which none has the most of the requests, or whose class fits them, are not.
TEST(others_are_not) {
    unsigned before = learned();
    for (size_t i = 0; i < MANY; i++) CHECK(block[i] = quarry_malloc(1300 + i % 100));
    CHECK_EQ(learned(), before);
    for (size_t i = 0; i < MANY; i++) quarry_free(block[i]);
    get(0, MANY, 2040);  // of 2,048
    CHECK_EQ(learned(), before);
    give(0, MANY, 2040);
    get(0, 40, 4200);  // too few
    CHECK_EQ(class_for(4200), class_for(4608));
    give(0, 40, 4200);
    verify_all();
}

// A database's page with its head. A step is fine enough that 14 of them take no more than 15 pages, and a size between
// two multiples of 16 is learned as the one above.
TEST(pages_are_learned_closely) {
    get(0, MANY, 4368);
    unsigned own = class_for(4368);
    CHECK(qy_class_is_learned(own));
    CHECK_LE(14 * qy_class_size[own], 15 * 4096);
    give(0, MANY, 4368);
    get(0, MANY, 1171);
    CHECK_EQ(quarry_usable_size(block[MANY - 1]), 1184);
    CHECK_EQ(class_for(1169), class_for(1184));
    CHECK_NE(class_for(1169), class_for(1185));
    give(0, MANY, 1171);
    verify_all();
}

static void *another_thread(void *arg) {
    (void)arg;
    static void *own[2000];
    for (int i = 0; i < 2000; i++) CHECK(own[i] = quarry_malloc(1032));
    // A heap of its own, which has learned for itself; the size is the same, and so is its number.
    unsigned c = class_for(1032);
    CHECK(qy_class_is_learned(c));
    CHECK_EQ(qy_class_size[c], 1040);
    for (int i = 0; i < 2000; i++) quarry_free(own[i]);
    for (size_t i = 0; i < MANY / 2; i++) quarry_free(block[i]);  // of the other one's
    return NULL;
}

TEST(threads_share_the_number) {
    get(0, MANY, 1032);
    unsigned own = class_for(1032);
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, another_thread, NULL), 0);
    pthread_join(thread, NULL);
    size_t named = 0;
    for (unsigned c = QY_CLASS_LEARNED; c < QY_CLASS_TINY; c++) named += qy_class_size[c] == 1040;
    CHECK_EQ(named, 1);
    CHECK_EQ(class_for(1032), own);
    give(MANY / 2, MANY, 1032);
    verify_all();
}

static void *begins(void *arg) {
    quarry_free(quarry_malloc(16));
    return arg;
}

static void *begin_and_end(void *stop) {
    while (!atomic_load((_Atomic bool *)stop)) {
        pthread_t thread;
        CHECK_EQ(pthread_create(&thread, NULL, begins, NULL), 0);
        CHECK_EQ(pthread_join(thread, NULL), 0);
    }
    return NULL;
}

// A number gets its size while other threads begin, which take over the sizes there are (for ThreadSanitizer to see).
TEST(while_threads_begin) {
    _Atomic bool stop = false;
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, begin_and_end, &stop), 0);
    unsigned before = learned();
    for (size_t size = 1300; size <= 1900; size += 100) {
        get(0, MANY / 2, size);
        give(0, MANY / 2, size);
    }
    CHECK_GT(learned(), before);
    atomic_store(&stop, true);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    verify_all();
}

// Does a free of these end the process?
static bool ends(void *once, void *then) {
    pid_t child = fork();
    CHECK_GE(child, 0);
    if (!child) {
        quarry_free(once);
        quarry_free(then);
        _exit(0);
    }
    int status;
    CHECK_EQ(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status);
}

// A second free in such a class is seen, and a pointer into it; also by a child, for which the classes are those of its
// parent.
TEST(checked_like_others) {
    get(0, MANY, 1032);
    CHECK(qy_class_is_learned(class_for(1032)));
    char *p = block[MANY - 1];
    CHECK(qy_class_is_start(class_for(1032), (uintptr_t)p & 0xFFFF));
    CHECK(!qy_class_is_start(class_for(1032), ((uintptr_t)p + 16) & 0xFFFF));
    CHECK(!ends(p, NULL));
    CHECK(ends(p, p));
    CHECK(ends(NULL, p + 16));
    give(0, MANY, 1032);
}

// There are no more than 14; who comes later keeps the classes there are. (Last: they stay.)
TEST(numbers_end) {
    for (size_t size = 1040; size < 8192; size += size / 9) {
        for (int i = 0; i < 2000; i++) CHECK(block[i] = quarry_malloc(size));
        for (int i = 0; i < 2000; i++) quarry_free(block[i]);
    }
    size_t known = 0;
    for (unsigned c = QY_CLASS_LEARNED; c < QY_CLASS_TINY; c++) known += qy_class_size[c] != QY_SLAB_64K_MAX;
    CHECK_GT(known, 8);
    verify_all();
}

TEST_MAIN()
