// SPDX-License-Identifier: MIT
// Guarded slots: what has access and what has not, whose an address is, and a kernel that refuses.
//
// A process has one space, and finds out once what the kernel can do: each test is a child of its own.
#include <sys/wait.h>

#include "guard/guard.h"
#include "harness.h"
#include "os/fake.h"
#include "os/guard.h"
#include "os/os.h"

#define PAGE qy_os_page_size()
#define ADVISE (1u << QY_OS_ADVISE)

static const qy_guard_limits_t small = {.space = 2 << 20, .slots = 64, .live = 1 << 20};

static void start(qy_guard_limits_t limits) { CHECK(qy_guard_start(&limits)); }
static void start_way(qy_guard_way_t way) {
    qy_guard_limits_t limits = small;
    limits.way = way;
    start(limits);
}

static char *get_side(size_t align, size_t n, qy_guard_side_t side, uint32_t stack) {
    bool zero;
    uint32_t slot;
    char *p = qy_guard_alloc(align, n, side, &(qy_guard_note_t){.stack = stack, .thread = 7}, 99, &zero, &slot);
    if (p) CHECK(zero);
    return p;
}
static char *get(size_t n) { return get_side(1, n, QY_GUARD_BEHIND, 1); }
static qy_guard_answer_t drop(char *p, uint32_t stack) {
    qy_guard_block_t b;
    return qy_guard_free(p, &(qy_guard_note_t){.stack = stack, .thread = 8}, &b);
}
static qy_guard_stats_t stats_now(void) {
    qy_guard_stats_t stats;
    qy_guard_get_stats(&stats);
    return stats;
}

static void in_child(void (*run)(qy_guard_way_t way), qy_guard_way_t way) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        run(way);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
// A kernel without marks takes the other way in both.
#define BOTH(name)                              \
    static void run_##name(qy_guard_way_t way); \
    TEST(name) {                                \
        in_child(run_##name, QY_GUARD_BEST);    \
        in_child(run_##name, QY_GUARD_PROTECT); \
    }                                           \
    static void run_##name(qy_guard_way_t way)
#define ONE(name)                                       \
    static void run_##name(qy_guard_way_t way);         \
    TEST(name) { in_child(run_##name, QY_GUARD_BEST); } \
    static void run_##name(qy_guard_way_t way)

BOTH(what_lies_around_a_block_has_no_access) {
    start_way(way);
    static const size_t sizes[] = {1, 24, 4095, 4096, 4097, 12288};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char *p = get(sizes[i]), *q = get_side(16, sizes[i], QY_GUARD_BEFORE, 1);
        CHECK(p && q);
        memset(p, 1, sizes[i]);
        memset(q, 1, sizes[i]);
        CHECK_EQ((uintptr_t)(p + sizes[i]) % PAGE, 0);
        CHECK(!qy_os_readable(p + sizes[i]));
        CHECK_EQ((uintptr_t)q % PAGE, 0);
        CHECK(!qy_os_readable(q - 8));
        CHECK_EQ(drop(p, 2), QY_GUARD_DONE);
        CHECK(!qy_os_readable(p));
        CHECK_EQ(drop(p, 2), QY_GUARD_FREED);
        CHECK_EQ(drop(q + 1, 2), QY_GUARD_INTERIOR);
        CHECK_EQ(drop(q, 2), QY_GUARD_DONE);
    }
}

ONE(sides_take_turns) {
    start_way(way);
    for (int i = 0; i < 6; i++) {
        char *p = get_side(16, 20, QY_GUARD_TURNS, 1);
        CHECK_EQ((uintptr_t)p % PAGE, i % 2 ? 0 : PAGE - 32);
    }
    CHECK_EQ((uintptr_t)get_side(1, 20, QY_GUARD_BEHIND, 1) % PAGE, PAGE - 20);
    CHECK_EQ((uintptr_t)get_side(64, 20, QY_GUARD_BEHIND, 1) % 64, 0);
    CHECK(!get_side(2 * PAGE, 20, QY_GUARD_BEHIND, 1));
}

ONE(a_range_lies_within_a_block_or_not) {
    start_way(way);
    char *p = get_side(1, 100, QY_GUARD_BEHIND, 1), *q = get_side(1, 5000, QY_GUARD_BEFORE, 1);
    uintptr_t at = (uintptr_t)p, next = (uintptr_t)q;
    CHECK(qy_guard_has(at, 100) && qy_guard_has(at + 99, 1));
    CHECK(qy_guard_has(next, 5000) && qy_guard_has(next + 4999, 1));
    CHECK(!qy_guard_has(at, 101) && !qy_guard_has(at - 1, 2) && !qy_guard_has(at + 100, 1));
    CHECK(!qy_guard_has(next - 1, 1) && !qy_guard_has(next + 1, 5000) && !qy_guard_has(next + 1, SIZE_MAX));
    CHECK(!qy_guard_has((uintptr_t)&at, 1));
    CHECK_EQ(drop(p, 2), QY_GUARD_DONE);
    CHECK(!qy_guard_has(at, 1));
}

ONE(both_stacks_are_known) {
    start_way(way);
    char *p = get_side(1, 100, QY_GUARD_BEHIND, 41), *q = get_side(1, 50, QY_GUARD_BEFORE, 42);
    qy_guard_block_t b;
    CHECK(qy_guard_find((uintptr_t)p + 99, &b) && b.address == (uintptr_t)p && b.size == 100 && !b.freed);
    CHECK_EQ(b.born.stack, 41);
    CHECK_EQ(b.born.thread, 7);
    CHECK_EQ(b.tag, 99);
    // Between the two it is the nearer one's.
    CHECK(qy_guard_find((uintptr_t)p + 101, &b) && b.address == (uintptr_t)p);
    CHECK(qy_guard_find((uintptr_t)q - 1, &b) && b.address == (uintptr_t)q);
    CHECK_EQ(drop(p, 43), QY_GUARD_DONE);
    CHECK(qy_guard_find((uintptr_t)p + 3, &b) && b.freed && b.born.stack == 41 && b.died.stack == 43);
    CHECK_EQ(b.died.thread, 8);
    CHECK(!qy_guard_find((uintptr_t)&b, &b));
    CHECK(qy_guard_is_near(p) && !qy_guard_is_near(&b));
}

BOTH(addresses_are_used_again_after_all_others) {
    qy_guard_limits_t limits = small;
    limits.way = way;
    limits.slots = 4096;
    start(limits);
    size_t slots = (limits.space / PAGE - limits.space / 4 / PAGE) / 2;
    char *kept = get(10), *first = get(10), *last = first;
    memset(kept, 5, 10);
    CHECK_EQ(drop(first, 1), QY_GUARD_DONE);
    for (size_t i = 2; i < slots; i++) {
        char *p = get(10);
        CHECK(p > last);
        memset(p, 3, 10);
        CHECK_EQ(drop(last = p, 1), QY_GUARD_DONE);
    }
    CHECK_EQ(stats_now().turns, 0);
    char *again = get(2 * PAGE);
    CHECK(again && again > kept && again < last);
    CHECK_EQ(stats_now().turns, 1);
    for (size_t i = 0; i < 2 * PAGE; i++) CHECK_EQ(again[i], 0);
    CHECK(!qy_os_readable(again + 2 * PAGE));
    CHECK_EQ(kept[9], 5);
    qy_guard_block_t b;
    CHECK(qy_guard_find((uintptr_t)again, &b) && b.address == (uintptr_t)again);
}

static bool count_three(const qy_guard_block_t *block, void *arg) {
    CHECK_EQ(block->size, 10);
    return ++*(unsigned *)arg < 3;
}

ONE(live_memory_and_slots_are_limited) {
    qy_guard_limits_t limits = small;
    limits.way = way;
    limits.live = 4 * PAGE;
    limits.slots = 8;
    start(limits);
    char *p[4];
    for (int i = 0; i < 4; i++) CHECK((p[i] = get(10)) != NULL);
    CHECK(!get(10));
    // More blocks than slots: those that were freed first are forgotten, live ones never.
    for (int i = 0; i < 20; i++) {
        CHECK_EQ(drop(p[3], 1), QY_GUARD_DONE);
        CHECK((p[3] = get(10)) != NULL);
    }
    qy_guard_block_t b;
    for (int i = 0; i < 4; i++) CHECK(qy_guard_find((uintptr_t)p[i], &b) && b.address == (uintptr_t)p[i] && !b.freed);
    unsigned count = 0;
    qy_guard_each_live(count_three, &count);
    CHECK_EQ(count, 3);
}

BOTH(a_page_that_was_opened_is_closed_again) {
    qy_guard_limits_t limits = small;
    limits.way = way;
    limits.space = 1 << 20;
    limits.slots = 4096;
    start(limits);
    char *p = get(64);
    CHECK(qy_guard_open((uintptr_t)p + 64));
    p[64] = 1;
    CHECK_EQ(drop(p, 1), QY_GUARD_DONE);
    CHECK(!qy_os_readable(p) && !qy_os_readable(p + 64));
    CHECK(qy_guard_open((uintptr_t)p));
    p[0] = p[63] = 1;  // a use after free, which was told
    for (int i = 0; i < 3000; i++) {
        char *q = get(PAGE);
        CHECK(q);
        for (size_t at = 0; at < PAGE; at++)
            if (q[at]) TEST_FAIL("byte %zu of block %d is not zero", at, i);
        CHECK(!qy_os_readable(q + PAGE));
        CHECK_EQ(drop(q, 1), QY_GUARD_DONE);
    }
}

BOTH(a_stray_access_is_the_nearest_blocks) {
    start_way(way);
    char *p = get(8);
    qy_guard_block_t b;
    CHECK(qy_guard_find((uintptr_t)p + 8 + (1 << 20) - 4096, &b) && b.address == (uintptr_t)p);
    CHECK(qy_guard_find((uintptr_t)p - 400000, &b) && b.address == (uintptr_t)p);
    CHECK(!qy_os_readable(p - 400000) && !qy_os_readable(p + 100000));
    CHECK(qy_guard_open((uintptr_t)p + 20000));
    for (size_t at = 19000; at < 21000; at++)
        if (qy_os_readable(p + at)) p[at] = 1;
    // It is zero and closed again for whoever gets that place.
    for (int i = 0; i < 20; i++) {
        char *q = get(PAGE);
        CHECK(q && !qy_os_readable(q + PAGE));
        for (size_t at = 0; at < PAGE; at++) CHECK(!q[at]);
    }
}

ONE(a_block_may_be_larger_than_a_word_of_32_bits_counts) {
    const size_t n = ((size_t)4 << 30) + PAGE;
    start((qy_guard_limits_t){.space = (size_t)16 << 30, .slots = 64, .live = (size_t)8 << 30, .way = way});
    if (!qy_guard_is_by_marks() || qy_guard_bytes < 2 * n) TEST_SKIP("no marks, or too little address space");
    char *before = get(10), *p = get(n), *behind = get(10);
    if (!p) TEST_SKIP("no memory for its pages");
    CHECK(before && behind && before + 10 < p && p + n < behind);
    p[0] = p[n - 1] = 1;
    CHECK(!qy_os_readable(p - 8) && !qy_os_readable(p + n));
    CHECK_EQ(stats_now().live_bytes, n + 2 * PAGE);
    CHECK_EQ(drop(p, 1), QY_GUARD_DONE);
    CHECK_EQ(stats_now().live_bytes, 2 * PAGE);
}

// ---- kernels that refuse --------------------------------------------------------------------------------------------

ONE(marks_that_are_denied_are_done_without) {
    quarry_os_fault(1, 1, ADVISE);
    CHECK(!qy_os_guards_work());
    start_way(way);
    CHECK(!qy_guard_is_by_marks());
    char *p = get(100);
    CHECK(p && !qy_os_readable(p + 100));
    CHECK_EQ(drop(p, 1), QY_GUARD_DONE);
    CHECK(!qy_os_readable(p));
}

ONE(marks_that_are_lies_are_done_without) {
    quarry_os_lie(1, 1, ADVISE);
    CHECK(!qy_os_guards_work());
    start_way(way);
    CHECK(!qy_guard_is_by_marks());
}

// Told later that a page has access again: the caller is not given it.
ONE(access_that_is_a_lie_is_no_block) {
    start_way(way);
    if (!qy_guard_is_by_marks()) TEST_SKIP("this kernel has no marks");
    CHECK(get(100));
    quarry_os_lie(1, 1, ADVISE);
    CHECK(!get(100));
    quarry_os_lie(0, 0, 0);
    char *p = get(100);
    CHECK(p);
    memset(p, 1, 100);
}

ONE(without_space_there_are_none) {
    quarry_os_fault(1, 1, 1u << QY_OS_RESERVE);
    qy_guard_limits_t limits = small;
    limits.way = way;
    CHECK(!qy_guard_start(&limits));
    quarry_os_fault(0, 0, 0);
    CHECK(!get(10));
    CHECK(!qy_guard_is_near(&limits));
}

ONE(less_space_is_enough) {
    quarry_os_fault(1, 0, 1u << QY_OS_RESERVE);
    start_way(way);
    CHECK_EQ(qy_guard_bytes, small.space / 2);
    CHECK(get(10));
}

BOTH(a_refused_guard_loses_a_slot) {
    qy_guard_limits_t limits = small;
    limits.way = way;
    limits.space = 1 << 20;
    start(limits);
    char *p = get(10);
    quarry_os_fault(1, 1, ADVISE | 1u << QY_OS_DECOMMIT);
    CHECK_EQ(drop(p, 1), QY_GUARD_DONE);
    CHECK_EQ(drop(p, 1), QY_GUARD_FREED);
    quarry_os_fault(0, 0, 0);
    CHECK_EQ(stats_now().stuck, 1);
    for (int i = 0; i < 1000; i++) {
        char *q = get(10);
        CHECK(q && q != p);
        CHECK_EQ(drop(q, 1), QY_GUARD_DONE);
    }
}

// The caller does without, and the kernel is not asked for ever.
BOTH(no_access_is_no_block) {
    start_way(way);
    quarry_os_fault(1, 1, ADVISE | 1u << QY_OS_COMMIT);
    for (int i = 0; i < 1000; i++) CHECK(!get(10));
    CHECK_LT(quarry_os_fault_calls(), 400);
}

static void run_mappings(qy_guard_way_t way) {
    start((qy_guard_limits_t){.space = (size_t)1 << 32, .slots = 1 << 18, .live = (size_t)1 << 30, .way = way});
    size_t most = qy_os_mappings_most(), count = 0;
    while (get(8)) count++;
    CHECK(count > 1000 && count <= most / 4);
    CHECK(qy_os_map(PAGE, PAGE, NULL));
}
TEST(half_of_the_mappings_are_the_programs) {
    if (qy_os_mappings_most() > 300000) TEST_SKIP("this machine allows %zu mappings", qy_os_mappings_most());
    in_child(run_mappings, QY_GUARD_PROTECT);
}

TEST_MAIN()
