// SPDX-License-Identifier: MIT
// What the heap says of its locks is checked while it runs: their order, and which functions need which. Each check is
// made to fail.
#include "heap/locks.h"

#include "heap/guards.h"
#include "heap/guards_report.h"
#include "heap_test.h"
#include "heap/samples.h"
#include "pages/arena.h"
#include "pages/chunk.h"
#include "pages/chunk_state.h"

static qy_heap_t *mine(void) {
    quarry_free(quarry_malloc(100));
    return qy_thread_get()->heap;
}

// Each lock behind each that comes later.
static void out_of_order(void *pair) {
    qy_lock_t **locks = pair;
    qy_lock_take(locks[1]);
    qy_lock_take(locks[0]);
}
static void in_order(void *pair) {
    qy_lock_t **locks = pair;
    qy_lock_take(locks[0]);
    qy_lock_take(locks[1]);
}

static qy_lock_t *lock_of(qy_lock_rank_t rank) {
    qy_lock_t *(*const of[])(void) = {
        qy_purging_lock, qy_heaps_lock, NULL, qy_units_lock, qy_huge_lock, qy_map_lock, qy_thread_lock, qy_samples_lock,
        qy_guards_lock, qy_guards_report_lock, qy_guard_lock, qy_meta_lock};
    _Static_assert(sizeof of / sizeof *of == QY_RANKS, "all of them");
    return rank == QY_RANK_HEAP ? &mine()->lock : of[rank]();
}

TEST(order) {
    for (qy_lock_rank_t a = 0; a < QY_RANKS; a++) {
        for (qy_lock_rank_t b = a + 1; b < QY_RANKS; b++) {
            qy_lock_t *pair[] = {lock_of(a), lock_of(b)};
            must_die(out_of_order, pair, "assertion failed: !qy_lock_is_mine(lock)");
            captured_t c = capture(in_order, pair);
            CHECK_EQ(c.exit_signal, 0);
        }
    }
}

TEST(two_heaps) {
    qy_heap_t *other = qy_heap_new(QY_HEAP_FIRST_CLASS);
    CHECK(other);
    qy_lock_t *pair[] = {&mine()->lock, &other->lock};
    must_die(in_order, pair, "assertion failed: !qy_lock_is_mine(lock)");
    qy_heap_recycle(other);
}

static unsigned seen;
static void see(qy_lock_t *lock, uint64_t arg) {
    (void)arg;
    CHECK(lock);
    seen++;
}
TEST(each_once) {
    unsigned heaps = 0;
    for (qy_heap_t *h = qy_heap_first(); h; h = h->next) heaps++;
    qy_locks_each(0, see, 0);
    CHECK_EQ(seen, QY_RANKS - 1 + heaps);
    CHECK(!qy_locks_any(qy_lock_is_mine));
    for (qy_lock_rank_t rank = 0; rank < QY_RANKS; rank++) {
        qy_lock_take(lock_of(rank));
        CHECK(qy_locks_any(qy_lock_is_mine));
        qy_lock_drop(lock_of(rank));
    }
}

// Without the lock that they need.
static void take_without(void *unused) {
    (void)unused;
    uint32_t count;
    bool fresh;
    qy_slab_take(mine(), 1, &count, &fresh);
}
static void reserve_without(void *unused) {
    (void)unused;
    mine();
    qy_arena_reserve(1);
}
static void home_without(void *unused) {
    (void)unused;
    qy_depot_home(mine());
}
TEST(needed_locks) {
    must_die(take_without, NULL, "assertion failed: qy_lock_is_mine(&h->lock)");
    must_die(reserve_without, NULL, "assertion failed: qy_lock_is_mine(&qy_units.lock)");
    must_die(home_without, NULL, "assertion failed: qy_lock_is_mine(&h->lock)");
}

// A frozen lock is as good as a taken one: fork's handlers use the heap.
TEST(frozen_is_held) {
    qy_heap_t *h = mine();
    qy_lock_freeze(&h->lock);
    qy_depot_home(h);
    qy_lock_thaw(&h->lock);
    verify_all();
}

TEST_MAIN()
