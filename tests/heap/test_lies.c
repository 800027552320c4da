// SPDX-License-Identifier: MIT
// A kernel (an emulator, a sandbox) that answers "done" and does nothing: no byte is lost, no old byte is taken for a
// zero, and no address is used where nothing is. Each call alone and all together, from the start and later.
#include <sys/wait.h>

#include "bytes.h"
#include "heap/slab.h"
#include "heap_test.h"

void quarry_os_lie(uint64_t first, int persist, uint32_t mask);

// In a child: what was found out about the kernel is found out once.
static void apart(void (*body)(uint32_t), uint32_t mask) {
    fflush(stdout);
    pid_t pid = fork();
    if (!pid) {
        body(mask);
        _exit(0);
    }
    int status;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    if (status) TEST_FAIL("mask 0x%x: status 0x%x", mask, (unsigned)status);
}

static bool all_are(const unsigned char *p, size_t n, int value) {
    return !n || (p[0] == value && memcmp(p, p + 1, n - 1) == 0);
}

static void purge(uint32_t mask) {
    size_t page = qy_os_page_size(), n = 64 * page;
    quarry_os_lie(1, 1, mask);
    unsigned char *p = qy_os_map(n, page, NULL);
    for (int i = 0; i < 3; i++) {
        memset(p, 0x5A, n);
        CHECK(qy_os_purge(p, n));
        CHECK(all_are(p, n, 0));
        memset(p, 0x5A, n);
        CHECK(qy_os_purge(p + page, page));
        CHECK(all_are(p, page, 0x5A) && all_are(p + page, page, 0) && all_are(p + 2 * page, n - 2 * page, 0x5A));
    }
}
TEST(purged_pages_are_zero) { apart(purge, FAULT(PURGE)); }

// The kernel has dropped the first half of the pages when it refuses the rest. Links of free blocks that lay there are
// made again.
static void purge_halfway(uint32_t mask) {
    enum { BLOCKS = 1024,
        SIZE = 1024 };
    char *p[BLOCKS], *live = NULL;
    qy_heap_t *h = qy_first_class_create("halfway", 0);  // what is freed goes home at once
    qy_slab_t *s = NULL;
    for (int i = 0; i < BLOCKS; i++) {
        CHECK((p[i] = qy_first_class_alloc(h, QY_ALIGN_MIN, SIZE, false)));
        memset(p[i], i, SIZE);
        if (!s || span_of(p[i])->nblocks > s->nblocks) s = span_of(live = p[i]);
    }
    for (int i = 0; i < BLOCKS; i++)
        if (p[i] != live) qy_first_class_free(h, p[i]);
    // Each range of pages, then the first.
    for (int persist = 1; persist >= 0; persist--) {
        qy_heap_lock(h);
        uint32_t home = qy_slab_home(s);
        quarry_os_fault(1, persist, mask);
        purge_slab(h, s);
        CHECK_GT(quarry_os_fault_hits(), 0);
        quarry_os_fault(0, 0, 0);
        CHECK_EQ(qy_slab_home(s), home);
        for (uint32_t i = 0; i < s->ncarved; i++)
            if (qy_slab_bit(s->home, i)) CHECK(qy_link_valid(qy_slab_block(s, i)));
        qy_heap_unlock(h);
        verify(h);
    }
    // All can be given out again.
    for (int i = 0; i < BLOCKS; i++)
        if (p[i] != live) CHECK(qy_first_class_alloc(h, QY_ALIGN_MIN, SIZE, false));
    verify(h);
    qy_first_class_destroy(h);
}
TEST(links_are_made_again_where_a_purge_ends_halfway) { apart(purge_halfway, FAULT(PURGE_HALF)); }

// Where pages are not given back, none are moved out either: what is found to lie once may lie there.
static void move_out(uint32_t mask) {
    size_t page = qy_os_page_size(), n = 64 * page;
    unsigned char *p = qy_os_map(n, page, NULL), *to = qy_os_reserve(n, page, NULL);
    memset(p, 0x5A, n);
    quarry_os_lie(1, 1, mask);
    CHECK(!qy_os_may_move_out(p, n));
    CHECK(!qy_os_move_out(p, n, to));
    CHECK(all_are(p, n, 0x5A));
    quarry_os_lie(0, 0, 0);
    CHECK(!qy_os_may_move_out(p, n));
}
TEST(no_pages_move_where_none_are_given_back) { apart(move_out, FAULT(PURGE)); }

// For one call, and for all.
static void move(uint32_t mask) {
    size_t page = qy_os_page_size(), n = 64 * page;
    for (int persist = 0; persist < 2; persist++) {
        unsigned char *p = qy_os_map(n, page, NULL), *to = qy_os_reserve(2 * n, page, NULL);
        memset(p, 0x5A, n);
        quarry_os_lie(1, persist, mask);
        CHECK(!qy_os_move(p, n, to, 2 * n));
        CHECK(all_are(p, n, 0x5A));
        to = qy_os_reserve(n, page, NULL);
        if (persist) CHECK(!qy_os_move_out(p, n, to));
        CHECK(all_are(p, n, 0x5A));
        quarry_os_lie(0, 0, 0);
        to = qy_os_reserve(2 * n, page, NULL);
        CHECK(qy_os_move(p, n, to, 2 * n));
        CHECK(all_are(to, n, 0x5A));
        CHECK(qy_os_unmap(to, 2 * n));
    }
}
TEST(what_was_not_moved_is_where_it_was) { apart(move, FAULT(MOVE)); }

static void resize(uint32_t mask) {
    size_t page = qy_os_page_size();
    unsigned char *room = qy_os_reserve(16 * page, page, NULL);
    CHECK(qy_os_unmap(room, 16 * page));
    unsigned char *p = qy_os_map(4 * page, page, room);
    quarry_os_lie(1, 1, mask);
    CHECK(!qy_os_resize_in_place(p, 4 * page, 8 * page));
    quarry_os_lie(0, 0, 0);
    if (qy_os_resize_in_place(p, 4 * page, 8 * page)) memset(p, 1, 8 * page);
}
TEST(what_did_not_grow_did_not) { apart(resize, FAULT(RESIZE)); }

// A program that uses all of it.
enum { SLOTS = 400,
    STEPS = QY_TSAN || QY_ASAN ? 300 : 1500 };
static struct {
    unsigned char *p;
    size_t n;
    int value;
} slot[SLOTS];
static size_t some_size(uint64_t *r) {
    switch (test_random(r) % 20) {
    case 0: return test_random(r) % 40 ? test_random(r) % (3 << 20) : test_random(r) % (40 << 20);
    case 1: return test_random(r) % (3 << 20);
    case 2:
    case 3: return test_random(r) % 200000;
    default: return test_random(r) % 3000;
    }
}
static bool sampled(const unsigned char *p, size_t n, int value) {
    for (size_t i = 0; i < n; i += i < 64 || i + 64 > n ? 1 : 509)
        if (p[i] != value) return false;
    return true;
}
static void work(uint64_t seed, int steps) {
    uint64_t r = seed;
    for (int i = 0; i < steps; i++) {
        unsigned k = (unsigned)(test_random(&r) % SLOTS);
        size_t n = some_size(&r) + 1;
        if (slot[k].p) CHECK(sampled(slot[k].p, slot[k].n, slot[k].value));
        if (slot[k].p && test_random(&r) % 2) {
            unsigned char *p = quarry_realloc(slot[k].p, n);
            CHECK(p && sampled(p, qy_min(n, slot[k].n), slot[k].value));
            slot[k].p = p;
        } else {
            quarry_free(slot[k].p);
            CHECK((slot[k].p = test_random(&r) % 2 ? quarry_calloc(1, n) : memset(quarry_malloc(n), 0, n)));
            CHECK(all_are(slot[k].p, n, 0));
        }
        slot[k].n = n;
        memset(slot[k].p, slot[k].value = 1 + i % 200, n);
        if (i % 500 == 499) quarry_trim(0);
    }
}
static void lied_to_from_the_start(uint32_t mask) {
    quarry_os_lie(1, 1, mask);
    work(test_seed, STEPS);
}
// What is tried once has been tried by then; the rest is verified each time.
static void lied_to_later(uint32_t mask) {
    work(test_seed, STEPS / 2);
    quarry_os_lie(1 + test_seed % 50, 1, mask & ~FAULT(PURGE));
    work(test_seed + 1, STEPS / 2);
    quarry_os_lie(0, 0, 0);
    work(test_seed + 2, STEPS / 3);
}
TEST(a_program_goes_on) {
    static const uint32_t masks[] = {FAULT(PURGE), FAULT(MOVE), FAULT(RESIZE), FAULT(POPULATE), FAULT(NAME),
        FAULT(PURGE) | FAULT(MOVE) | FAULT(RESIZE) | FAULT(POPULATE) | FAULT(NAME)};
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        apart(lied_to_from_the_start, masks[i]);
        apart(lied_to_later, masks[i]);
    }
}

TEST_MAIN()
