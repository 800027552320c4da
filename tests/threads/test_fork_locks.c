// SPDX-License-Identifier: MIT
// test_fork_locks.c: what a fork leaves of the heap's locks, in parent and child, when the forking thread
// holds some of them (a signal handler that interrupted the heap does), when other threads do, and when it
// comes in the middle of another fork. White box: src/heap/fork.c.
#include <pthread.h>

#include "heap/heap_test.h"
#include "pages/purging.h"
#include "rt/stats_page.h"

typedef qy_lock_t *getter_t(void);
static getter_t *const locks[] = {
    qy_purging_lock, qy_heaps_lock, qy_units_lock, qy_huge_lock, qy_map_lock, qy_thread_lock, qy_meta_lock};
enum { LOCKS = sizeof locks / sizeof *locks };

static int is_free(qy_lock_t *lock) { return atomic_load(&lock->state) == 0; }

// Free, all but one; no heap is locked.
static void all_free_but(const qy_lock_t *except) {
    for (int i = 0; i < LOCKS; i++) CHECK(locks[i]() == except || is_free(locks[i]()));
    for (qy_heap_t *h = qy_heap_first(); h; h = h->next) CHECK(&h->lock == except || is_free(&h->lock));
}
// Several sizes, by the slow path and the fast one.
static void work(void) {
    // What is held here stands for interrupted code's locks, and is out of order on purpose. The first call is made
    // beside no thread.
    static _Atomic bool unordered;
    if (!atomic_exchange(&unordered, true)) qy_lock_before = NULL;
    for (size_t n = 16; n < 4000000; n *= 3) {
        void *p = quarry_malloc(n), *q = quarry_malloc(n);
        CHECK(p && q);
        quarry_free(p);
        quarry_free(q);
    }
    quarry_trim(0);
}

// A large heap's child has a statistics page at once, if it may ask the heap for what is in it. That depends on an
// option which would also start the thread; so it is on only while a fork is made.
static bool large;
static void *make_large(void) {
    large = true;
    char *p = quarry_malloc(2 * QY_STATS_PAGE_CHILD_LARGE);
    CHECK(p != NULL);
    p[0] = 1;
    return p;
}
static void drop_large(void *p) {
    large = false;
    quarry_free(p);
}
static void fork_with(void (*child)(void *)) {
    qy_opts.purge_thread = large;
    run_apart(child, NULL);
    qy_opts.purge_thread = false;
}
static void begin_child(void) {
    qy_opts.purge_thread = false;
    alarm(TEST_PATIENCE);
}

static qy_lock_t *held;

static void held_child(void *unused) {
    (void)unused;
    begin_child();
    CHECK(qy_lock_is_mine(held));
    all_free_but(held);
    qy_lock_drop(held);  // the interrupted code goes on
    work();
    all_free_but(NULL);
}
static void fork_holding(qy_lock_t *lock) {
    alarm(TEST_PATIENCE);
    held = lock;
    qy_lock_take(lock);
    fork_with(held_child);
    CHECK(qy_lock_is_mine(lock));
    all_free_but(lock);
    qy_lock_drop(lock);
    work();
    alarm(0);
}
static void each_is_mine(void) {
    for (int i = 0; i < LOCKS; i++) fork_holding(locks[i]());
    fork_holding(&qy_thread_get()->heap->lock);
    all_free_but(NULL);
}
TEST(one_is_mine) {
    work();
    each_is_mine();
}

TEST(one_is_mine_of_a_large_heap) {
    void *p = make_large();
    each_is_mine();
    drop_large(p);
}

// ---- others' locks ------------------------------------------------------------------------------------

static _Atomic int step;
static void reach(int n) {
    while (step < n) usleep(1000);
}
static qy_heap_t *others_heap;
static void *at_work(void *unused) {
    (void)unused;
    work();
    others_heap = qy_thread_get()->heap;
    qy_lock_take(&others_heap->lock);
    step = 1;
    reach(2);
    qy_lock_drop(&others_heap->lock);
    return NULL;
}

static void beside_child(void *unused) {
    (void)unused;
    CHECK(others_heap->threads == 1 && !others_heap->idle);  // nobody may take it over
    held_child(NULL);
    CHECK(others_heap->threads == 1 && !others_heap->idle);
}

// Its holder may be waiting for mine: the fork goes on without, after a moment.
TEST(one_is_mine_and_one_of_another) {
    pthread_t thread;
    step = 0;
    CHECK_EQ(pthread_create(&thread, NULL, at_work, NULL), 0);
    reach(1);
    alarm(TEST_PATIENCE);
    held = qy_units_lock();
    qy_lock_take(held);
    run_apart(beside_child, NULL);
    CHECK(qy_lock_is_mine(held) && !is_free(&others_heap->lock) && !qy_lock_is_mine(&others_heap->lock));
    qy_lock_drop(held);
    step = 2;
    pthread_join(thread, NULL);
    all_free_but(NULL);
    alarm(0);
}

// The same of a heap that no thread has: purging, say, is at work in it.
static void *end_at_once(void *unused) {
    work();
    others_heap = qy_thread_get()->heap;
    return unused;
}
static void *purge_it(void *unused) {
    (void)unused;
    qy_lock_take(&others_heap->lock);
    step = 1;
    reach(2);
    qy_lock_drop(&others_heap->lock);
    return NULL;
}
static void idle_child(void *unused) {
    CHECK(others_heap->threads == 0 && !others_heap->idle);
    held_child(unused);
    qy_heap_t *h = qy_heap_attach();
    CHECK(h && h != others_heap);
    qy_heap_detach(h);
}
TEST(one_is_mine_and_one_of_nobody) {
    pthread_t thread;
    step = 0;
    CHECK_EQ(pthread_create(&thread, NULL, end_at_once, NULL), 0);
    pthread_join(thread, NULL);
    CHECK(others_heap->threads == 0 && others_heap->idle);
    CHECK_EQ(pthread_create(&thread, NULL, purge_it, NULL), 0);
    reach(1);
    alarm(TEST_PATIENCE);
    held = qy_units_lock();
    qy_lock_take(held);
    run_apart(idle_child, NULL);
    qy_lock_drop(held);
    step = 2;
    pthread_join(thread, NULL);
    CHECK(others_heap->idle);
    alarm(0);
}

// An arena has a slot, by which the next thread would have it.
static void arena_child(void *unused) {
    held_child(unused);
    qy_heap_t *h = qy_heap_attach();
    CHECK(h && h != others_heap);
}
TEST(one_is_mine_and_one_is_an_arena) {
    pthread_t thread;
    step = 0;
    qy_opts.arenas = 1;
    CHECK_EQ(pthread_create(&thread, NULL, at_work, NULL), 0);
    reach(1);
    alarm(TEST_PATIENCE);
    held = qy_units_lock();
    qy_lock_take(held);
    run_apart(arena_child, NULL);
    qy_lock_drop(held);
    step = 2;
    pthread_join(thread, NULL);
    qy_opts.arenas = 0;
    all_free_but(NULL);
    alarm(0);
}

// Without locks of its own a fork waits for others', as long as it takes.
static void *let_go_later(void *unused) {
    (void)unused;
    work();
    others_heap = qy_thread_get()->heap;
    qy_lock_take(&others_heap->lock);
    step = 1;
    usleep(200000);
    step = 2;
    qy_lock_drop(&others_heap->lock);
    reach(3);
    return NULL;
}
static void later_child(void *unused) {
    (void)unused;
    alarm(TEST_PATIENCE);
    CHECK_EQ(step, 2);
    all_free_but(NULL);
    CHECK(others_heap->threads == 0 && others_heap->idle);
    work();
}
TEST(others_are_waited_for) {
    pthread_t thread;
    step = 0;
    CHECK_EQ(pthread_create(&thread, NULL, let_go_later, NULL), 0);
    reach(1);
    run_apart(later_child, NULL);
    all_free_but(NULL);
    step = 3;
    pthread_join(thread, NULL);
}

// A signal handler may have interrupted this thread when it had dropped a lock and woken nobody yet. Who sleeps there
// has its heap's lock.
static void *in_need_of_units(void *unused) {
    (void)unused;
    work();
    others_heap = qy_thread_get()->heap;
    step = 1;
    reach(2);
    for (int i = 0; i < 64; i++) CHECK(quarry_malloc(60000) != NULL);
    return NULL;
}
static void free_child(void *unused) {
    (void)unused;
    begin_child();
    all_free_but(NULL);
}
TEST(sleepers_at_a_free_lock) {
    pthread_t thread;
    step = 0;
    CHECK_EQ(pthread_create(&thread, NULL, in_need_of_units, NULL), 0);
    reach(1);
    qy_lock_t *units = qy_units_lock();
    qy_lock_take(units);
    step = 2;
    while ((units->state & QY_LOCK_KIND) != QY_LOCK_WAITED) usleep(1000);
    usleep(20000);
    CHECK(!is_free(&others_heap->lock));
    atomic_store(&units->state, 0);
    alarm(TEST_PATIENCE);
    run_apart(free_child, NULL);
    alarm(0);
    pthread_join(thread, NULL);
    all_free_but(NULL);
    work();
}

// ---- walks ------------------------------------------------------------------------------------------------

// A thread that walks a heap may allocate meanwhile, from heaps that a fork has frozen. So no fork waits for it.
static quarry_heap_t *walked;
static void fork_begins(void) {
    if (step == 1) step = 2;
}
static int allocate(void *block, size_t usable, void *unused) {
    (void)block, (void)usable, (void)unused;
    step = 1;
    reach(2);
    usleep(50000);  // the fork is under way by now; if it is not yet, that is no fault either
    work();
    return 1;
}
static void *walk(void *unused) {
    (void)unused;
    work();  // its heap is newer than the one it walks, so it is frozen earlier
    CHECK_EQ(quarry_heap_walk(walked, allocate, NULL), 1);
    return NULL;
}
static void *stay(void *unused) {
    work();
    step = 1;
    reach(3);
    return unused;
}
static void walk_child(void *unused) {
    alarm(TEST_PATIENCE);
    all_free_but(NULL);
    for (qy_heap_t *h = qy_heap_first(); h; h = h->next) CHECK(!qy_lock_is_out(&h->lock));
    (void)unused;
    work();
}
TEST(during_a_walk) {
    pthread_t thread;
    alarm(TEST_PATIENCE);
    CHECK_EQ(pthread_atfork(fork_begins, NULL, NULL), 0);
    CHECK((walked = quarry_heap_create(NULL)) && quarry_heap_alloc(walked, 100));
    // Idle heaps would be older.
    pthread_t staying[8];
    int stay_count = 0;
    for (size_t idle; qy_heaps_count(&idle), idle && stay_count < 8;) {
        step = 0;
        CHECK_EQ(pthread_create(&staying[stay_count++], NULL, stay, NULL), 0);
        reach(1);
    }
    step = 0;
    CHECK_EQ(pthread_create(&thread, NULL, walk, NULL), 0);
    reach(1);
    run_apart(walk_child, NULL);
    pthread_join(thread, NULL);
    step = 3;
    while (stay_count) pthread_join(staying[--stay_count], NULL);
    quarry_heap_destroy(walked);
    all_free_but(NULL);
    alarm(0);
}

// It does not end while the fork is made.
static int until_told(void *block, size_t usable, void *unused) {
    (void)block, (void)usable, (void)unused;
    step = 1;
    reach(2);
    return 1;
}
static void *short_walk(void *unused) {
    CHECK_EQ(quarry_heap_walk(walked, until_told, NULL), 1);
    step = 3;
    return unused;
}
TEST(the_end_of_a_walk_waits) {
    pthread_t thread;
    alarm(TEST_PATIENCE);
    CHECK((walked = quarry_heap_create(NULL)) && quarry_heap_alloc(walked, 100));
    const qy_heap_t *h = (const qy_heap_t *)(const void *)walked;
    step = 0;
    CHECK_EQ(pthread_create(&thread, NULL, short_walk, NULL), 0);
    reach(1);
    qy_lock_freeze(qy_heaps_lock());
    step = 2;
    usleep(50000);
    CHECK(step == 2 && qy_lock_is_out(&h->lock));
    qy_lock_thaw(qy_heaps_lock());
    pthread_join(thread, NULL);
    CHECK_EQ(step, 3);
    quarry_heap_destroy(walked);
    all_free_but(NULL);
    alarm(0);
}

// A trim that waits for a heap gives up when a walk of it begins: who walks may trim.
static void *trim(void *unused) {
    step = 1;
    quarry_trim(0);
    return unused;
}
TEST(trim_during_a_walk) {
    pthread_t thread;
    alarm(TEST_PATIENCE);
    work();
    qy_heap_t *h = qy_thread_get()->heap;
    step = 0;
    qy_lock_take(&h->lock);
    CHECK_EQ(pthread_create(&thread, NULL, trim, NULL), 0);
    reach(1);
    usleep(50000);
    qy_lock_go_out(&h->lock);
    qy_lock_take(qy_purging_lock());
    qy_lock_drop(qy_purging_lock());
    qy_lock_come_back(&h->lock);
    qy_lock_drop(&h->lock);
    pthread_join(thread, NULL);
    all_free_but(NULL);
    alarm(0);
}

// ---- a fork in a fork -----------------------------------------------------------------------------------

// Interrupted when it has frozen `count` locks, and has just taken one more.
static int frozen, taken;
static void as_left(void) {
    for (int i = 0; i < LOCKS; i++) {
        if (i < frozen) CHECK(qy_lock_is_frozen(locks[i]()));
        else if (i == frozen && taken) CHECK(qy_lock_is_mine(locks[i]()));
        else CHECK(is_free(locks[i]()));
    }
}
static void nested_child(void *unused) {
    (void)unused;
    begin_child();
    as_left();
}
static void each_in_a_fork(void) {
    for (frozen = 1; frozen <= LOCKS; frozen++) {
        for (taken = 0; taken < (frozen < LOCKS ? 2 : 1); taken++) {
            alarm(TEST_PATIENCE);
            for (int i = 0; i < frozen; i++) qy_lock_freeze(locks[i]());
            if (taken) qy_lock_take(locks[frozen]());
            fork_with(nested_child);
            as_left();
            if (taken) qy_lock_drop(locks[frozen]());
            for (int i = frozen; i-- > 0;) qy_lock_thaw(locks[i]());
            work();
            all_free_but(NULL);
        }
    }
    alarm(0);
}
TEST(in_a_fork) {
    work();
    each_in_a_fork();
}
TEST(in_a_fork_of_a_large_heap) {
    void *p = make_large();
    each_in_a_fork();
    drop_large(p);
}

TEST_MAIN()
