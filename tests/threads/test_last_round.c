// SPDX-License-Identifier: MIT
// test_last_round.c: threads whose first call of the heap is made in the last round of destructors.
// Nothing comes after that round but the end of the thread's storage: what the heap gives the thread
// there must come back in the same round, or be shared. Each operation in turn; by a key older than
// the heap's own key, and by keys younger than it, whose destructors come after the heap's.
#include <limits.h>
#include <pthread.h>

#include "api/family.h"
#include "fault/rss.h"

// A sanitizer takes part in the rounds by keys of its own and is gone in the very last one.
#ifdef __GLIBC__
#define LAST_ROUND (PTHREAD_DESTRUCTOR_ITERATIONS - FAMILY_SANITIZED)
#else  // musl allocates nothing for a thread, and the heap's key comes first in a round: it needs one more
#define LAST_ROUND (PTHREAD_DESTRUCTOR_ITERATIONS - 1)
#endif
static int round_wanted;

// ---- the operations -----------------------------------------------------------------------------------

// Made by the main thread, for a thread to free or resize as the first thing it does.
enum { TOGETHER = 60 };
static unsigned char *given[TOGETHER];
static const size_t given_size[] = {100, 5000, 200000};

static void use(unsigned char *p, size_t n) {
    CHECK(p && m.usable_size(p) >= n);
    pattern_fill(p, 0, n, n);
    CHECK_EQ(pattern_differs(p, 0, n, n), n);
    m.free(p);
}
static void op_malloc(int i) { use(m.malloc(given_size[i % 3]), given_size[i % 3]); }
static void op_calloc(int i) {
    size_t n = given_size[i % 3];
    unsigned char *p = m.calloc(n, 1);
    for (size_t k = 0; k < n; k++) CHECK_EQ(p[k], 0);
    use(p, n);
}
static void op_free(int i) { m.free(given[i]), given[i] = NULL; }
static void op_realloc(int i) {
    size_t n = given_size[i % 3];
    unsigned char *p = m.realloc(given[i], 3 * n);
    CHECK(p != NULL);
    CHECK_EQ(pattern_differs(p, 0, n, (uint64_t)i), n);
    given[i] = NULL;
    use(p, 3 * n);
}
static void op_realloc_null(int i) { use(m.realloc(NULL, given_size[i % 3]), given_size[i % 3]); }
static void op_aligned_alloc(int i) {
    unsigned char *p = m.aligned_alloc((size_t)64 << i % 8, given_size[i % 3]);
    CHECK_EQ((uintptr_t)p % ((size_t)64 << i % 8), 0);
    use(p, given_size[i % 3]);
}
// What is kept is freed by the main thread, when the one that got it is gone.
static void op_keep(int i) {
    given[i] = m.malloc(given_size[i % 3]);
    CHECK(given[i] != NULL);
    pattern_fill(given[i], 0, given_size[i % 3], (uint64_t)i);
}

typedef struct op {
    const char *name;
    void (*run)(int i);
    int needs_block;
} op_t;
static const op_t ops[] = {
    {"malloc", op_malloc, 0},
    {"calloc", op_calloc, 0},
    {"free", op_free, 1},
    {"realloc", op_realloc, 1},
    {"realloc of NULL", op_realloc_null, 0},
    {"aligned_alloc", op_aligned_alloc, 0},
    {"malloc, freed later", op_keep, 0},
};

// ---- the threads --------------------------------------------------------------------------------------

typedef struct late {
    int index, round;
} late_t;
static late_t late[TOGETHER];
static pthread_key_t key;
static const op_t *op;
static _Atomic long uses;

static void destructor(void *value) {
    late_t *l = value;
    if (++l->round < round_wanted) {
        CHECK_EQ(pthread_setspecific(key, l), 0);
        return;
    }
    op->run(l->index);
    // Once more, as others may: whatever the first call left behind must serve the next ones.
    if (l->index % 2) use(m.malloc(300), 300);
    uses++;
}
static void *body(void *arg) {
    pthread_setspecific(key, arg);
    return NULL;
}

static void some_threads(long count) {
    pthread_t thread[TOGETHER];
    for (long done = 0; done < count; done += TOGETHER) {
        for (int i = 0; i < TOGETHER; i++) {
            size_t n = given_size[i % 3];
            if (op->needs_block) {
                CHECK((given[i] = m.malloc(n)) != NULL);
                pattern_fill(given[i], 0, n, (uint64_t)i);
            }
            late[i] = (late_t){i, 0};
            CHECK_EQ(pthread_create(&thread[i], NULL, body, &late[i]), 0);
        }
        for (int i = 0; i < TOGETHER; i++) {
            CHECK_EQ(pthread_join(thread[i], NULL), 0);
            if (!given[i]) continue;
            CHECK_EQ(pattern_differs(given[i], 0, given_size[i % 3], (uint64_t)i), given_size[i % 3]);
            m.free(given[i]);
            given[i] = NULL;
        }
    }
}

static void all_operations(const char *which, int round) {
    round_wanted = round;
    const long count = FAMILY_SANITIZED ? 120 : 900;
    for (size_t o = 0; o < sizeof ops / sizeof *ops; o++) {
        op = &ops[o];
        uses = 0;
        some_threads(count / 3);
        double before = statm_mib(1);
        some_threads(count);
        double after = statm_mib(1);
        CHECK_GE(uses, count + count / 3);
        printf("  %s, %s: from %.1f to %.1f MiB\n", which, op->name, before, after);
        // A heap lost by each thread would be 15 MiB; how many of them are alive at once, and so need memory, is up to
        // the machine.
        if (!FAMILY_SANITIZED && after > before + 8)
            TEST_FAIL("%s first, %s: from %.1f to %.1f MiB", op->name, which, before, after);
    }
}

// ---- the keys -------------------------------------------------------------------------------------------

TEST(older_key) {
    CHECK_EQ(pthread_key_create(&key, destructor), 0);
    all_operations("older key", LAST_ROUND);
    pthread_key_delete(key);
}

// The heap's key has a high index; with more keys than that in use, others' destructors come after it.
// The drop-in has served the thread before then: libc allocates its table of values for such a key. The
// quarry_* names have not, and the round after is the last in which the heap hears of the thread's end.
#define YOUNGER_ROUND (FAMILY_QUARRY ? PTHREAD_DESTRUCTOR_ITERATIONS - 1 : LAST_ROUND)
TEST(younger_key) {
    if (FAMILY_SANITIZED) TEST_SKIP("needs a build without sanitizers: their own end comes before");
    const int far = PTHREAD_KEYS_MAX > 200 ? 200 : PTHREAD_KEYS_MAX - 10;
    static pthread_key_t others[PTHREAD_KEYS_MAX];
    m.free(m.malloc(1));
    for (int most = 32; most <= far; most += far - 32) {  // the first behind ours, and one far behind
        int count = 0;
        while (count < most && pthread_key_create(&others[count], NULL) == 0) count++;
        CHECK_EQ(pthread_key_create(&key, destructor), 0);
#ifdef __GLIBC__  // musl goes on from the index that it gave out last, and begins again at 0
        CHECK_GE(key, most);
#endif
        all_operations("younger key", YOUNGER_ROUND);
        pthread_key_delete(key);
        while (count) pthread_key_delete(others[--count]);
    }
}

TEST_MAIN()
