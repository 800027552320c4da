// SPDX-License-Identifier: MIT
// The map grows: readers with old words still find what they look for, and threads that work meanwhile lose nothing.
#include <pthread.h>
#include <sys/wait.h>

#include "heap_test.h"

// Each test in a process of its own, whose map begins small.
static void run_small(void (*body)(void)) {
    pid_t child = fork();
    if (!child) {
        qy_map_fake_first = 64 << 10;
        body();
        fflush(NULL);
        _exit(0);
    }
    int status = 0;
    CHECK_EQ(waitpid(child, &status, 0), child);
    if (status) TEST_FAIL("the process ended with status 0x%x", (unsigned)status);
}

static uint64_t rng;
static size_t below(size_t n) { return test_random(&rng) % n; }

// A larger map, by a chunk of units that collides with another one; it does not stay. False: it is as large as it gets.
static bool grow(void) {
    static qy_map_record_t one, two;
    // Where this process has a chunk of its own is luck.
    for (size_t k = 3; !one.base; k++) (void)qy_map_add(&one, (char *)(k << QY_CHUNK_SHIFT), true);
    size_t before = __atomic_load_n(&qy_map_mask, __ATOMIC_RELAXED);
    if (qy_map_add(&two, one.base + (before + 1) * QY_TAG_PAGE, true) == QY_MAP_ADDED) qy_map_remove(&two);
    return __atomic_load_n(&qy_map_mask, __ATOMIC_RELAXED) > before;
}
#define MOST ((size_t)1 << 28)  // entries, while few are used

// ---- readers that have loaded one word, or both, before -----------------------------------------

enum { WORDS = 12,
    CHUNKS = 600 };
static struct {
    qy_tag_t *tags;
    size_t mask;
} words[WORDS];
static unsigned nwords;

static void remember_words(void) {
    if (nwords && words[nwords - 1].tags == qy_map_tags) return;
    CHECK_LT(nwords, WORDS);
    words[nwords].tags = qy_map_tags;
    words[nwords++].mask = qy_map_mask;
}

// The last words from before the chunk was entered are the oldest that a reader of it can have.
static struct {
    qy_map_record_t record;
    unsigned since;
    qy_tag_t tag;
    bool in, units;
} chunk[CHUNKS];

// All pairs of words that a reader can load, the pointer not before the mask: what he finds is right or nothing, never
// another's.
static void check_pairs(int k) {
    char *p = chunk[k].record.base + below(QY_CHUNK);
    qy_tag_t page = (uintptr_t)p >> QY_TAG_SHIFT;
    for (unsigned mask = chunk[k].since; mask < nwords; mask++)
        for (unsigned tags = mask; tags < nwords; tags++) {
            size_t i = page & words[mask].mask;
            qy_tag_t tag = words[tags].tags[i] ^ page;
            if ((tag & QY_TAG_SLAB) && !(tag & QY_TAG_OTHERS)) CHECK_EQ(tag, chunk[k].tag);
            const qy_map_record_t *c = atomic_load(qy_map_slot(words[tags].tags, i));
            if (c && qy_map_record_holds(c, p)) CHECK_PTR_EQ(c, &chunk[k].record);
        }
    CHECK_EQ(qy_map_tag(p), chunk[k].tag);
    CHECK_PTR_EQ(qy_map_record(p), &chunk[k].record);
}

static void words_of_all_ages(void) {
    uint32_t id = 0;
    for (int step = 0; step < 6000; step++) {
        int k = (int)below(CHUNKS);
        if (chunk[k].in) {
            if (chunk[k].units) qy_map_set_tags(chunk[k].record.base, QY_CHUNK, 0);
            qy_map_remove(&chunk[k].record);
            chunk[k].in = false;
        } else {
            chunk[k].units = below(3) > 0;
            // Mostly near each other, as arenas are, some anywhere.
            char *base = (char *)(((below(4) ? 1000 + below(700) : below((size_t)1 << 26)) << QY_CHUNK_SHIFT));
            bool there = false;
            for (int i = 0; i < CHUNKS; i++) there |= chunk[i].in && chunk[i].record.base == base;
            if (there) continue;
            size_t before = qy_map_mask;
            qy_map_answer_t answer = qy_map_add(&chunk[k].record, base, chunk[k].units);
            remember_words();
            if (answer == QY_MAP_TAKEN) {
                CHECK(chunk[k].units && (qy_map_mask > before || before + 1 == MOST));
                continue;
            }
            CHECK_EQ(answer, QY_MAP_ADDED);
            chunk[k].in = true;
            chunk[k].since = nwords - 1;
            chunk[k].tag = chunk[k].units ? qy_tag_owner(++id) | 1 : 0;
            if (chunk[k].units) qy_map_set_tags(base, QY_CHUNK, chunk[k].tag);
        }
        if (step % 50 == 0)
            for (int i = 0; i < CHUNKS; i++)
                if (chunk[i].in) check_pairs(i);
    }
    CHECK_GE(nwords, 5);
    for (unsigned i = 1; i < nwords; i++) CHECK_GT(words[i].mask, words[i - 1].mask);
}
TEST(words_of_all_ages) {
    rng = test_seed;
    run_small(words_of_all_ages);
}

// ---- refusals -----------------------------------------------------------------------------------

static void refused(void) {
    static qy_map_record_t a, b;
    const qy_tag_t tag = qy_tag_owner(7) | 7;
    char *base = (char *)((size_t)5 << QY_CHUNK_SHIFT), *other = base + ((size_t)1 << 25);
    CHECK_EQ(qy_map_add(&a, base, true), QY_MAP_ADDED);
    CHECK_EQ(qy_map_mask + 1, 1 << 13);
    qy_map_set_tags(base, QY_CHUNK, tag);
    size_t bytes = qy_map_bytes();
    qy_tag_t *tags = qy_map_tags;
    // Too little is left, no address space, no memory for the chunks, none for the tags: whatever size is tried.
    static const uint32_t call[] = {FAULT(RESERVE), FAULT(RESERVE_READABLE), FAULT(COMMIT), FAULT(COMMIT)};
    for (int what = 0; what < 4; what++) {
        quarry_os_fault(1 + (what == 3), 1, call[what]);
        CHECK_EQ(qy_map_add(&b, other, true), QY_MAP_TAKEN);
        quarry_os_fault(0, 0, 0);
        CHECK_PTR_EQ(qy_map_tags, tags);
        CHECK_EQ(qy_map_bytes(), bytes);
        CHECK_EQ(qy_map_tag(base), tag);
        CHECK_PTR_EQ(qy_map_record(base), &a);
    }
    // Half as much, where that can be had.
    quarry_os_fault(1, 0, FAULT(RESERVE));
    CHECK_EQ(qy_map_add(&b, other, true), QY_MAP_ADDED);
    quarry_os_fault(0, 0, 0);
    CHECK_EQ(qy_map_mask + 1, 1 << 14);
    CHECK_EQ(qy_map_tag(base), tag);
    CHECK_EQ(qy_map_tag(other), 0);
    CHECK_PTR_EQ(qy_map_record(base), &a);
    CHECK_PTR_EQ(qy_map_record(other), &b);
    // the old one has given its memory back
    CHECK_EQ(resident((char *)tags - qy_os_page_size(), qy_os_page_size()), 0);
    while (grow()) {}
    CHECK_EQ(qy_map_mask + 1, MOST);
    CHECK_EQ(qy_map_tag(base + QY_CHUNK - 1), tag);
}
TEST(refused) { run_small(refused); }

// ---- writes -------------------------------------------------------------------------------------

enum { FILLERS = 4000,
    WRITERS = 3 };
static _Atomic bool written;

// Who looks at the very moment when a table is replaced may find nothing, and is sent to the slow path. But never an
// older tag.
static bool has_tag(const char *p, qy_tag_t tag) {
    qy_tag_t found = 0;
    for (int tries = 0; !found && tries < 1000; tries++) found = qy_map_tag(p);
    return found == tag;
}

// What it has written it must read, whatever becomes of the table meanwhile.
static void *write_tags(void *arg) {
    static qy_map_record_t record[WRITERS];
    size_t k = (uintptr_t)arg;
    char *base = (char *)((4 + k) << QY_CHUNK_SHIFT);
    CHECK_EQ(qy_map_add(&record[k], base, true), QY_MAP_ADDED);
    for (uint32_t i = 1; !atomic_load_explicit(&written, memory_order_relaxed); i++) {
        char *from = base + QY_TAG_PAGE * (i % 400);
        qy_map_set_tags(from, 20 * QY_TAG_PAGE, qy_tag_owner(i % 100000 + 1));
        for (unsigned u = 0; u < 20; u++) CHECK(has_tag(from + QY_TAG_PAGE * u, qy_tag_owner(i % 100000 + 1)));
    }
    return NULL;
}

static void writes_meet_copies(void) {
    static qy_map_record_t filler[FILLERS];
    qy_map_fake_first = 32 << 20;
    for (size_t i = 0; i < FILLERS; i++) {
        char *base = (char *)((10 + 2 * i) << QY_CHUNK_SHIFT);
        CHECK_EQ(qy_map_add(&filler[i], base, true), QY_MAP_ADDED);
        qy_map_set_tags(base, QY_CHUNK, qy_tag_owner(99));
    }
    pthread_t t[WRITERS];
    for (int i = 0; i < WRITERS; i++) CHECK_EQ(pthread_create(&t[i], NULL, write_tags, (void *)(uintptr_t)i), 0);
    for (bool more = true; more;) {
        usleep(5000);
        more = grow();
    }
    atomic_store(&written, true);
    for (int i = 0; i < WRITERS; i++) CHECK_EQ(pthread_join(t[i], NULL), 0);
}
TEST(writes_meet_copies) {
    for (int round = 0; round < 10; round++) run_small(writes_meet_copies);
}

// ---- threads ------------------------------------------------------------------------------------

enum { THREADS = 4,
    SLOTS = 300,
    SHARED = 64 };
static _Atomic(char *) shared[SHARED];  // blocks on their way from a thread to another
static _Atomic bool stop;

static size_t a_size(uint64_t *random) {
    uint64_t r = test_random(random);
    switch (r % 64) {
    case 0: return 100000 + r / 64 % 3000000;
    case 1: return 33 * 1048576 + r / 64 % 1000000;
    case 2:
    case 3: return 16 + r / 64 % 60000;
    default: return 16 + r / 64 % 2000;
    }
}
static void mark(char *p, size_t n) {
    memcpy(p, &n, sizeof n);
    p[n - 1] = (char)n;
}
static void check_and_free(char *p) {
    size_t n;
    memcpy(&n, p, sizeof n);
    CHECK(p[n - 1] == (char)n);
    CHECK_GE(quarry_usable_size(p), n);
    quarry_free(p);
}

static void *work(void *arg) {
    uint64_t random = test_seed + (uintptr_t)arg;
    char *mine[SLOTS] = {0};
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        uint64_t r = test_random(&random);
        char **slot = &mine[r % SLOTS];
        if (*slot && r >> 20 & 1) *slot = atomic_exchange(&shared[r >> 30 & (SHARED - 1)], *slot);
        if (*slot) {
            check_and_free(*slot);
            *slot = NULL;
        } else {
            size_t n = a_size(&random);
            *slot = quarry_malloc(n);
            CHECK(*slot);
            mark(*slot, n);
        }
        if (r >> 40 == 0 || (r >> 40) % 5000 == 0) quarry_trim(0);
    }
    for (int i = 0; i < SLOTS; i++)
        if (mine[i]) check_and_free(mine[i]);
    return NULL;
}

static void under_threads(void) {
    pthread_t t[THREADS];
    for (int i = 0; i < THREADS; i++) CHECK_EQ(pthread_create(&t[i], NULL, work, (void *)(uintptr_t)(i + 1)), 0);
    for (bool more = true; more;) {
        usleep(15000);
        more = grow();
    }
    usleep(20000);
    atomic_store(&stop, true);
    for (int i = 0; i < THREADS; i++) CHECK_EQ(pthread_join(t[i], NULL), 0);
    for (int i = 0; i < SHARED; i++)
        if (shared[i]) check_and_free(shared[i]);
    verify_all();
    CHECK_GE(qy_map_mask + 1, MOST);
}
TEST(under_threads) {
    for (int round = 0; round < 12; round++) {
        test_seed += 1000;
        run_small(under_threads);
    }
}

TEST_MAIN()
