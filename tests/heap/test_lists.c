// SPDX-License-Identifier: MIT
// The lists of a thread that ended: parked with its heap, found again by the next thread, bounded, and home when
// somebody asks.
#include "heap/lists.h"

#include <pthread.h>

#include "heap_test.h"

#define MOST ((size_t)128 << 10)  // lists.c

static void in_thread(void *(*body)(void *), void *arg) {
    pthread_t t;
    CHECK_EQ(pthread_create(&t, NULL, body, arg), 0);
    CHECK_EQ(pthread_join(t, NULL), 0);
}

// Blocks and bytes parked with h, each of which must be a free block of a slab of h.
static size_t parked(qy_heap_t *h, size_t *ret_bytes) {
    size_t n = 0;
    *ret_bytes = 0;
    qy_heap_lock(h);
    for (unsigned c = 1; c <= QY_CLASS_SMALL; c++)
        for (qy_block_t *b = h->has_parked >> (c - 1) & 1 ? h->parked[c] : NULL; b; b = qy_link_next(b)) {
            qy_slab_t *s = span_of(b);
            uint32_t i;
            CHECK(s && atomic_load(&s->heap) == h);
            CHECK_EQ(s->cls, c);
            CHECK(qy_slab_index(s, b, &i));
            n++;
            *ret_bytes += qy_class_size[c];
        }
    qy_heap_unlock(h);
    return n;
}

// Lists that were emptied begin anew: nothing is known of what they had.
TEST(emptied_lists_begin_anew) {
    quarry_free(quarry_malloc(1));
    qy_thread_t *t = qy_thread_get();
    static void *block[4096];
    unsigned c = t->cache.cls[qy_step(48)];
    for (int i = 0; i < 4096; i++) CHECK(block[i] = quarry_malloc(48));
    for (int i = 0; i < 4096; i++) quarry_free(block[i]);
    CHECK(t->prev[c]);
    t->merged[c] = 1;  // as if a generation had been joined to it
    qy_thread_flush(t);
    CHECK(qy_lists_are_empty(t, c));
    CHECK_EQ(t->merged[c], 0);
    verify_all();
}

typedef struct life {
    qy_heap_t *heap;  // out: whose it was
    size_t refills;   // out: of the heap, before the thread ended
    size_t n, size;
    void *block[512];
} life_t;

static void *gets_and_frees(void *arg) {
    life_t *l = arg;
    for (size_t i = 0; i < l->n; i++) CHECK(l->block[i] = quarry_malloc(l->size));
    for (size_t i = l->n; i-- > 0;) quarry_free(l->block[i]);
    l->heap = qy_thread_get()->heap;
    l->refills = l->heap->refills;
    return NULL;
}

TEST(next_thread_has_them) {
    static life_t first = {.n = 20, .size = 48}, next = {.n = 20, .size = 48};
    size_t bytes;
    in_thread(gets_and_frees, &first);
    CHECK(first.heap->has_parked);
    CHECK_GE(parked(first.heap, &bytes), 20);
    verify_all();
    in_thread(gets_and_frees, &next);
    CHECK_PTR_EQ(next.heap, first.heap);
    CHECK_EQ(next.refills, first.refills);  // not a call
    for (size_t i = 0; i < 20; i++) CHECK_PTR_EQ(next.block[i], first.block[i]);
    CHECK_EQ(parked(first.heap, &bytes), blocks_out(first.heap));
    verify_all();
}

TEST(counted_as_free) {
    static life_t l = {.n = 100, .size = 300};
    quarry_stats_t before = stats_add_up();
    in_thread(gets_and_frees, &l);
    CHECK(l.heap->has_parked);
    quarry_stats_t after = stats_add_up();
    CHECK_EQ(after.live_blocks, before.live_blocks);
    CHECK_EQ(after.live_bytes, before.live_bytes);
    CHECK(!l.heap->has_parked);  // who counts them brings them home
    CHECK_EQ(blocks_out(l.heap), 0);
    verify_all();
}

TEST(trim_brings_them_home) {
    static life_t l = {.n = 50, .size = 700};
    in_thread(gets_and_frees, &l);
    CHECK(l.heap->has_parked);
    quarry_trim(0);
    for (qy_heap_t *h = qy_heap_first(); h; h = h->next) CHECK(!h->has_parked);
    CHECK_EQ(blocks_out(l.heap), 0);
    CHECK_EQ(l.heap->slab_bytes, 0);
    verify_all();
}

TEST(long_lives_bring_home) {
    static life_t l = {.n = 512, .size = 1024};
    quarry_trim(0);
    in_thread(gets_and_frees, &l);  // 512 KiB in and out
    CHECK(!l.heap->has_parked);
    CHECK_EQ(blocks_out(l.heap), 0);
    verify_all();
}

// What a thread frees after a trim, into slabs that the trim itself brought blocks home to, goes at the next one.
static void *of_one_life[512];
static pthread_barrier_t turn;
static void *gets_and_waits(void *arg) {
    (void)arg;
    for (int i = 0; i < 512; i++) CHECK(of_one_life[i] = quarry_malloc(1024));
    pthread_barrier_wait(&turn);
    pthread_barrier_wait(&turn);
    for (int i = 10; i < 512; i++) quarry_free(of_one_life[i]);
    return qy_thread_get()->heap;
}
TEST(a_trim_is_not_blind_for_what_comes_next) {
    pthread_t t;
    void *h;
    quarry_trim(0);
    pthread_barrier_init(&turn, NULL, 2);
    CHECK_EQ(pthread_create(&t, NULL, gets_and_waits, NULL), 0);
    pthread_barrier_wait(&turn);
    for (int i = 0; i < 10; i++) quarry_free(of_one_life[i]);  // into its mailbox
    quarry_trim(0);
    pthread_barrier_wait(&turn);
    CHECK_EQ(pthread_join(t, &h), 0);
    quarry_trim(0);
    CHECK_EQ(((qy_heap_t *)h)->slab_bytes, 0);
    verify_all();
}

// The owner of a slab that is taken over must find none of its blocks on a parked list.
TEST(home_before_taken_over) {
    static life_t l = {.n = 50, .size = 1024};
    quarry_trim(0);
    in_thread(gets_and_frees, &l);
    unsigned c = qy_class_fine(1024);
    qy_heap_t *mine = qy_thread_get()->heap;
    size_t steals = mine->steals, bytes, slabs = l.heap->bins[c].nslabs;
    CHECK(l.heap->has_parked);
    CHECK_GT(slabs, 0);
    static void *p[200];
    for (size_t i = 0; i < 200; i++) CHECK(p[i] = quarry_malloc(1024));
    CHECK_GT(mine->steals, steals);
    CHECK_EQ(l.heap->bins[c].nslabs, 0);
    parked(l.heap, &bytes);
    CHECK_EQ(bytes, 0);
    verify_all();
    static life_t next = {.n = 50, .size = 1024};
    in_thread(gets_and_frees, &next);
    CHECK_PTR_EQ(next.heap, l.heap);
    for (size_t i = 0; i < 50; i++)
        for (size_t k = 0; k < 200; k++) CHECK(next.block[i] != p[k]);
    for (size_t i = 0; i < 200; i++) quarry_free(p[i]);
    quarry_trim(0);
    verify_all();
}

static void free_again(void *p) { quarry_free(p); }
TEST(second_free_is_seen) {
    static life_t l = {.n = 10, .size = 64};
    in_thread(gets_and_frees, &l);
    CHECK(l.heap->has_parked);
    must_die(free_again, l.block[3], "double free");
}

static void written_to_after_free(void *arg) {
    life_t *l = arg;
    memset(l->block[3], 7, 8);
    quarry_trim(0);
}
TEST(damage_is_seen) {
    static life_t l = {.n = 10, .size = 80};
    in_thread(gets_and_frees, &l);
    CHECK(l.heap->has_parked);
    must_die(written_to_after_free, &l, "written to");
}

// ---- one after the other -------------------------------------------------------------------------

enum { LEFT = 3000 };
static struct {
    void *p;
    uint64_t id;
} left[LEFT];
static uint64_t rng;
static qy_heap_t *heap;

// Replaces some of what other threads left, in all sizes: many pushes for which no slow call is made.
static void *replaces(void *arg) {
    size_t ops = 1 + test_random(&rng) % 300, most = test_random(&rng) % 4 ? 1024 : 20000;
    (void)arg;
    for (size_t i = 0; i < ops; i++) {
        size_t k = test_random(&rng) % LEFT;
        if (left[k].p) {
            check_filled(left[k].p, 0, 16, left[k].id);
            quarry_free(left[k].p);
            left[k].p = NULL;
        } else {
            CHECK(left[k].p = quarry_malloc(16 + test_random(&rng) % most));
            fill(left[k].p, 0, 16, left[k].id = test_random(&rng));
        }
    }
    if (test_random(&rng) % 64 == 0) quarry_trim(0);
    heap = qy_thread_get()->heap;
    return NULL;
}

static void *frees_all(void *arg) {
    (void)arg;
    for (size_t k = 0; k < LEFT; k++) {
        quarry_free(left[k].p);
        left[k].p = NULL;
    }
    return NULL;
}

TEST(bounded) {
    rng = test_seed;
    quarry_trim(0);
    size_t with = 0, without = 0, bytes, most = 0;
    in_thread(replaces, NULL);
    qy_heap_t *first = heap;
    for (int i = 0; i < 1500; i++) {
        in_thread(replaces, NULL);
        CHECK_PTR_EQ(heap, first);
        size_t n = parked(heap, &bytes), live = 0;
        for (size_t k = 0; k < LEFT; k++) live += left[k].p && atomic_load(&span_of(left[k].p)->heap) == heap;
        CHECK_EQ(blocks_out(heap), n + live);
        CHECK_LE(bytes, MOST);
        most = qy_max(most, bytes);
        if (heap->has_parked) with++;
        else without++;
        if (i % 50 == 0) verify_all();
    }
    CHECK_GT(with, 100);
    CHECK_GT(without, 10);
    CHECK_GT(most, 10000);
    in_thread(frees_all, NULL);
    quarry_trim(0);
    CHECK_EQ(blocks_out(heap), 0);
    verify_all();
}

// Two generations of each class are freed by a thread that ends then: one goes home as always, and all the others would
// be too much.
static void *of_all_classes[1 << 16];
static size_t of_all_count;

static void *gets_two_generations(void *arg) {
    (void)arg;
    heap = qy_thread_get()->heap;
    for (unsigned c = 1; c <= QY_CLASS_SMALL; c++)
        for (unsigned i = heap->cls[qy_step(qy_class_size[c])] == c ? 2u * qy_class_limit[c] : 0; i; i--)
            CHECK(of_all_classes[of_all_count++] = quarry_malloc(qy_class_size[c]));
    return NULL;
}
static void *frees_two_generations(void *arg) {
    (void)arg;
    CHECK_PTR_EQ(qy_thread_get()->heap, heap);
    for (size_t i = 0; i < of_all_count; i++) quarry_free(of_all_classes[i]);
    return NULL;
}

TEST(generations_go_home) {
    quarry_trim(0);
    in_thread(gets_two_generations, NULL);
    CHECK_GT(of_all_count, 1000);
    in_thread(frees_two_generations, NULL);
    size_t bytes;
    CHECK_EQ(parked(heap, &bytes), blocks_out(heap));
    CHECK_LE(bytes, MOST);
    quarry_trim(0);
    verify_all();
}

// ---- shared heaps --------------------------------------------------------------------------------

static void with_arenas(void *unused) {
    (void)unused;
    static life_t l = {.n = 20, .size = 48};
    qy_opts.arenas = 1;
    in_thread(gets_and_frees, &l);
    CHECK(!l.heap->has_parked);
    CHECK_EQ(blocks_out(l.heap), 0);
    verify_all();
}
TEST(shared_heaps_park_nothing) { run_apart(with_arenas, NULL); }

// Three quarters of a generation come and go: nothing gathers. Frees are counted and mallocs are not, so the list is
// looked at, but only after each second generation.
TEST(a_balanced_list_stays) {
    enum { SIZE = 1000,
        ROUNDS = 60 };
    quarry_free(quarry_malloc(SIZE));
    qy_thread_t *t = qy_thread_get();
    unsigned c = t->cache.cls[qy_step(SIZE)], n = qy_class_limit[c] * 3u / 4;
    void *p[128];
    CHECK_LE(n, 128);
    for (int round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < n; i++) CHECK(p[i] = quarry_malloc(SIZE));
        for (unsigned i = 0; i < n; i++) quarry_free(p[i]);
    }
    CHECK(t->balanced[c]);
    CHECK(!t->prev[c]);
    verify_all();
}

TEST_MAIN()
