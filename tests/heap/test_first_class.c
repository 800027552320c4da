// SPDX-License-Identifier: MIT
// First-class heaps against a shadow that knows every block.
#include "heap_test.h"

#include <pthread.h>

#define SHADOW 4096

typedef struct shadow {
    char *p;
    size_t n;
    uint64_t id;
    bool seen;
} shadow_t;

static shadow_t shadow[SHADOW];
static size_t nshadow;
static uint64_t rng, next_id;

static size_t below(size_t n) { return test_random(&rng) % n; }
static size_t random_size(void) {
    switch (below(40)) {
    case 0: return 65537 + below(900000);  // a run
    case 1: return below(2) ? (1 << 20) + 1 + below(2 << 20) : below(3);
    case 2:
    case 3:
    case 4:
    case 5: return 1025 + below(64511);
    default: return below(1025);
    }
}

static void add(qy_heap_t *h, char *p, size_t n) {
    CHECK(p);
    CHECK_LT(nshadow, SHADOW);
    CHECK_GE(qy_lookup(p).usable, n);
    (void)h;
    shadow[nshadow++] = (shadow_t){p, n, ++next_id, false};
    fill(p, 0, n, next_id);
}
static void drop(size_t at) { shadow[at] = shadow[--nshadow]; }

typedef struct walk {
    size_t count, bytes, stop_at;
} walk_t;

static int compare_addresses(const void *a, const void *b) {
    const char *p = ((const shadow_t *)a)->p, *q = ((const shadow_t *)b)->p;
    return (p > q) - (p < q);
}
static int visit(void *p, size_t usable, void *arg) {
    walk_t *w = arg;
    if (w->stop_at && ++w->count == w->stop_at) return 42;
    if (w->stop_at) return 0;
    shadow_t key = {.p = p}, *s = bsearch(&key, shadow, nshadow, sizeof *shadow, compare_addresses);
    if (!s) TEST_FAIL("the walk shows %p of %zu bytes, which is not live", p, usable);
    CHECK(!s->seen);
    s->seen = true;
    CHECK_GE(usable, s->n);
    w->count++;
    w->bytes += usable;
    return 0;
}

static int add_usable(void *p, size_t usable, void *arg) {
    (void)p;
    *(size_t *)arg += usable;
    return 0;
}

// The walk shows each live block once and nothing else; the statistics agree.
static void compare(qy_heap_t *h) {
    qsort(shadow, nshadow, sizeof *shadow, compare_addresses);
    for (size_t i = 0; i < nshadow; i++) shadow[i].seen = false;
    walk_t w = {0};
    CHECK_EQ(qy_heap_walk(h, visit, &w), 0);
    CHECK_EQ(w.count, nshadow);
    quarry_heap_stats_t st;
    qy_first_class_stats(h, &st);
    CHECK_EQ(st.live_blocks, nshadow);
    CHECK_EQ(st.live_bytes, w.bytes);
    CHECK_GE(st.held_bytes, st.live_bytes);
    size_t held = 0;
    for (qy_slab_t *s = h->all; s; s = s->all_next) held += s->units * QY_UNIT;
    CHECK_EQ(qy_huge_each(h, add_usable, &held), 0);
    CHECK_EQ(st.held_bytes, held);
    verify(h);
}

static void random_steps(qy_heap_t *h, int steps) {
    for (int step = 0; step < steps; step++) {
        size_t op = below(100), n = random_size();
        if (nshadow < 10 || (op < 45 && nshadow < SHADOW - 1)) {
            size_t align = below(4) ? QY_ALIGN_MIN : (size_t)16 << below(13);
            bool zero = below(3) == 0;
            char *p = qy_first_class_alloc(h, align, n, zero);
            CHECK_EQ((uintptr_t)p % align, 0);
            if (zero) CHECK(is_zero(p, n));
            add(h, p, n);
        } else if (op < 75) {
            size_t at = below(nshadow);
            check_filled(shadow[at].p, 0, shadow[at].n, shadow[at].id);
            if (below(2)) qy_first_class_free(h, shadow[at].p);
            else quarry_free(shadow[at].p);
            drop(at);
        } else if (op < 98) {
            size_t at = below(nshadow);
            if (n == 0) n = 1;
            shadow_t old = shadow[at];
            char *q = qy_first_class_realloc(h, old.p, n);
            CHECK(q);
            check_filled(q, 0, qy_min(n, old.n), old.id);
            drop(at);
            add(h, q, n);
        } else {
            qy_purge_all(0);
        }
        if (step % 50 == 0) compare(h);
    }
    compare(h);
}

static quarry_stats_t settled_stats(void) {
    qy_thread_t *t = qy_thread_get();
    if (t) qy_thread_flush(t);
    qy_purge_all(0);
    return stats_add_up();
}

TEST(random_steps_and_destroy) {
    rng = test_seed;
    quarry_free(quarry_malloc(1));
    qy_heap_t *h = qy_first_class_create("first", 0);
    CHECK(h);
    CHECK_STR_EQ(h->name, "first");
    quarry_stats_t before = settled_stats();
    random_steps(h, 4000);
    qy_first_class_destroy(h);
    nshadow = 0;
    // Everything has come back: the same numbers, but for address space that stays open, and free.
    quarry_stats_t after = settled_stats();
    CHECK_EQ(after.live_blocks, before.live_blocks);
    CHECK_EQ(after.live_bytes, before.live_bytes);
    CHECK_EQ(after.slabs, before.slabs);
    CHECK_EQ(after.runs, before.runs);
    CHECK_EQ(after.slab_free_bytes, before.slab_free_bytes);
    CHECK_EQ(after.slab_fresh_bytes, before.slab_fresh_bytes);
    CHECK_EQ(after.run_slack_bytes, before.run_slack_bytes);
    CHECK_EQ(after.pages_dirty_bytes, 0);
    CHECK_EQ(after.mapped_bytes - after.pages_clean_bytes, before.mapped_bytes - before.pages_clean_bytes);
    CHECK_EQ(after.heaps, before.heaps - 1);
    CHECK_EQ(h->held_bytes + h->slab_bytes + h->free_bytes + h->purged_bytes + h->nslabs + h->nruns, 0);
    CHECK(!h->all);
    verify_all();
}

TEST(recycled) {
    rng = test_seed + 1;
    qy_heap_t *h = qy_first_class_create("old", 12345);
    uint32_t id = h->id;
    qy_first_class_set_limit(h, 0);
    for (int i = 0; i < 6000; i++) CHECK(qy_first_class_alloc(h, 16, 130, false));
    CHECK_EQ(h->cls[9], 9);  // refined
    qy_first_class_destroy(h);
    size_t metadata = 0;
    for (int i = 0; i < 20; i++) {
        qy_heap_t *again = qy_first_class_create(NULL, 0);
        CHECK_PTR_EQ(again, h);
        CHECK_EQ(again->id, id);
        CHECK_STR_EQ(again->name, "heap");
        CHECK_EQ(again->limit, 0);
        uint8_t coarse[QY_STEP_COUNT];
        qy_class_coarse(coarse);
        CHECK(!memcmp(again->cls, coarse, sizeof coarse));
        verify(again);
        nshadow = 0;
        random_steps(again, 300);
        qy_first_class_destroy(again);
        nshadow = 0;
        if (i == 10) metadata = qy_meta_bytes();
    }
    CHECK_LE(qy_meta_bytes() - metadata, (size_t)256 << 10);
    verify_all();
}

TEST(several_at_once) {
    rng = test_seed + 2;
    qy_heap_t *a = qy_first_class_create("a", 0), *b = qy_first_class_create("b", 0);
    CHECK(a != b);
    CHECK_NE(a->id, b->id);
    void *of_b[200];
    for (int i = 0; i < 200; i++) {
        CHECK(of_b[i] = qy_first_class_alloc(b, 16, (size_t)i * 999, false));
        fill(of_b[i], 0, (size_t)i * 999, (uint64_t)i);
    }
    nshadow = 0;
    random_steps(a, 500);
    qy_first_class_destroy(a);
    nshadow = 0;
    for (int i = 0; i < 200; i++) check_filled(of_b[i], 0, (size_t)i * 999, (uint64_t)i);
    verify(b);
    qy_first_class_destroy(b);
}

TEST(limit) {
    static const size_t sizes[] = {1, 16, 100, 1024, 5000, 60000, 70000, 300000, (1 << 20) + 1};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        size_t limit = (size_t)4 << 20, n = sizes[k], got = 0;
        qy_heap_t *h = qy_first_class_create("limited", limit);
        errno = 0;
        void *last = NULL;
        for (void *p; (p = qy_first_class_alloc(h, 16, n, false)); last = p, got++) CHECK_LE(h->held_bytes, limit);
        CHECK_EQ(errno, ENOMEM);
        CHECK_GE(got * qy_max(n, 16), limit / 2);
        quarry_heap_stats_t st;
        qy_first_class_stats(h, &st);
        CHECK_EQ(st.live_blocks, got);
        CHECK_EQ(st.limit, limit);
        verify(h);
        CHECK(!qy_first_class_alloc(h, 16, limit * 2, false));
        CHECK(!qy_first_class_alloc(h, 16, SIZE_MAX, false));
        CHECK(!qy_first_class_realloc(h, last, limit));
        verify(h);
        // One freed, one given.
        qy_first_class_free(h, last);
        CHECK(qy_first_class_alloc(h, 16, n, false));
        // A lower limit leaves what is there; without one it goes on.
        qy_first_class_set_limit(h, 1);
        CHECK(!qy_first_class_alloc(h, 16, 100000, false));
        qy_first_class_set_limit(h, 0);
        CHECK(qy_first_class_alloc(h, 16, n, false));
        verify(h);
        qy_first_class_destroy(h);
    }
}

// At its limit a heap fails; it does not make the whole process give its free memory back each time.
// What is kept empty of other sizes is not in the way.
TEST(limit_of_what_is_live) {
    quarry_heap_t *h = quarry_heap_create(&(quarry_heap_options_t){.limit = (size_t)4 << 20});
    for (size_t n = 1024; n <= 65536; n += 1024) {
        void *p = quarry_heap_alloc(h, n);
        CHECK(p);
        quarry_heap_free(h, p);
    }
    char *live = quarry_heap_alloc(h, 100), *run = quarry_heap_alloc(h, (size_t)7 << 19);
    CHECK(live && run);
    CHECK_EQ(quarry_heap_check(h), 0);
    quarry_heap_free(h, live);
    quarry_heap_free(h, run);
    quarry_heap_destroy(h);
}

TEST(limit_costs_others_nothing) {
    qy_heap_t *h = qy_first_class_create("small", 200000);
    while (qy_first_class_alloc(h, 16, 512, false)) {}
    bool fresh = false;
    void *run = qy_run_alloc(NULL, 16, 500000, &fresh);
    memset(run, 1, 500000);
    qy_run_free(qy_map_chunk(run), span_of(run));
    size_t dirty = qy_units_dirty_bytes();
    CHECK_GT(dirty, 0);
    for (int i = 0; i < 100; i++) CHECK(!qy_first_class_alloc(h, 16, 512, false));
    CHECK_EQ(qy_units_dirty_bytes(), dirty);
    qy_first_class_destroy(h);
}

// Nor does an empty heap whose limit is too low for a slab, or for the object.
TEST(low_limit_costs_others_nothing) {
    static const struct {
        size_t limit, n;
    } low[] = {{8192, 100}, {20000, 19000}, {100000, 99000}};
    bool fresh = false, purge = qy_opts.purge;
    void *run = qy_run_alloc(NULL, 16, 500000, &fresh);
    CHECK(run);
    memset(run, 1, 500000);
    qy_opts.purge = false;
    qy_run_free(qy_map_chunk(run), span_of(run));
    size_t dirty = qy_units_dirty_bytes();
    CHECK_GT(dirty, 400000);
    for (size_t k = 0; k < sizeof low / sizeof *low; k++) {
        qy_heap_t *h = qy_first_class_create("low", low[k].limit);
        errno = 0;
        CHECK(h && !qy_first_class_alloc(h, 16, low[k].n, false));
        CHECK_EQ(errno, ENOMEM);
        CHECK_EQ(qy_units_dirty_bytes(), dirty);
        qy_first_class_destroy(h);
    }
    qy_opts.purge = purge;
}

TEST(walk_stops) {
    qy_heap_t *h = qy_first_class_create("walk", 0);
    for (int i = 0; i < 500; i++) CHECK(qy_first_class_alloc(h, 16, 40, false));
    for (int i = 0; i < 5; i++) CHECK(qy_first_class_alloc(h, 16, 100000, false));
    for (int i = 0; i < 5; i++) CHECK(qy_first_class_alloc(h, 16, 2000000, false));
    for (size_t at = 1; at <= 510; at++) {
        walk_t w = {.stop_at = at};
        CHECK_EQ(qy_heap_walk(h, visit, &w), 42);
        CHECK_EQ(w.count, at);
    }
    walk_t w = {.stop_at = 511};
    CHECK_EQ(qy_heap_walk(h, visit, &w), 0);
    CHECK_EQ(w.count, 510);
    qy_first_class_destroy(h);
}

typedef struct pair {
    qy_heap_t *h;
    void *p;
} pair_t;
static void free_in(void *arg) { qy_first_class_free(((pair_t *)arg)->h, ((pair_t *)arg)->p); }
static void realloc_in(void *arg) { qy_first_class_realloc(((pair_t *)arg)->h, ((pair_t *)arg)->p, 50); }
static void free_twice(void *arg) {
    free_in(arg);
    free_in(arg);
}
TEST(misuse_is_named) {
    qy_heap_t *a = qy_first_class_create("mine", 0), *b = qy_first_class_create("yours", 0);
    static const size_t sizes[] = {10, 2000, 100000, 3000000};
    for (int k = 0; k < 4; k++) {
        pair_t wrong = {b, qy_first_class_alloc(a, 16, sizes[k], false)}, right = {a, wrong.p},
               general = {a, quarry_malloc(sizes[k])};
        must_die(free_in, &wrong, "block of another heap");
        must_die(realloc_in, &wrong, "yours");
        must_die(free_in, &general, "block of another heap");
        must_die(free_twice, &right, "double free");
        quarry_free(general.p);
    }
    qy_first_class_destroy(a);
    qy_first_class_destroy(b);
}

static void free_any(void *p) { quarry_free(p); }
TEST(block_of_a_destroyed_heap_is_named) {
    qy_heap_t *h = qy_first_class_create("gone", 0);
    void *run = qy_first_class_alloc(h, 16, 100000, false), *huge = qy_first_class_alloc(h, 16, 3000000, false);
    void *block = qy_first_class_alloc(h, 16, 100, false);
    qy_first_class_destroy(h);
    must_die(free_any, run, "double free");
    must_die(free_any, huge, "double free");
    must_die(free_any, block, "invalid free");
}

static void *churn(void *arg) {
    pair_t *x = arg;
    uint64_t r = test_seed + (uint64_t)(uintptr_t)x;
    void *mine[64] = {0};
    for (int i = 0; i < 4000; i++) {
        size_t k = test_random(&r) % 64, n = test_random(&r) % 3000;
        if (mine[k]) {
            CHECK_EQ(*(size_t *)mine[k], k);
            if (i % 2) qy_first_class_free(x->h, mine[k]);
            else quarry_free(mine[k]);
        }
        CHECK(mine[k] = qy_first_class_alloc(x->h, 16, n + 8, false));
        *(size_t *)mine[k] = k;
    }
    for (int k = 0; k < 64; k++) quarry_free(mine[k]);
    return NULL;
}
TEST(threads) {
    qy_heap_t *h = qy_first_class_create("shared", 0);
    pair_t x[3];
    pthread_t t[3];
    for (int i = 0; i < 3; i++) {
        x[i] = (pair_t){h, NULL};
        CHECK_EQ(pthread_create(&t[i], NULL, churn, &x[i]), 0);
    }
    for (int i = 0; i < 50; i++) verify(h);
    for (int i = 0; i < 3; i++) pthread_join(t[i], NULL);
    quarry_heap_stats_t st;
    qy_first_class_stats(h, &st);
    CHECK_EQ(st.live_blocks, 0);
    CHECK(!atomic_load(&h->mailbox));
    verify(h);
    qy_first_class_destroy(h);
}

// A heap refines its classes as it grows, but not on the try that its limit refuses: what was freed
// must be found again.
TEST(limit_serves_what_was_freed) {
    quarry_heap_t *h = quarry_heap_create(&(quarry_heap_options_t){.limit = 4 << 20});
    CHECK(h != NULL);
    void *p, *last = NULL;
    while ((p = quarry_heap_alloc(h, 1000))) last = p;
    CHECK(last != NULL);
    for (int i = 0; i < 3; i++) {
        quarry_heap_free(h, last);
        last = quarry_heap_alloc(h, 1000);
        CHECK(last != NULL);
    }
    quarry_heap_destroy(h);
}

// What no address space holds is refused at once, by size and by alignment, as in the process's heap: nothing is given
// back for it.
TEST(hopeless_requests) {
    quarry_heap_t *h = quarry_heap_create(NULL),
                  *limited = quarry_heap_create(&(quarry_heap_options_t){.limit = 1 << 20});
    CHECK(h && limited);
    uint32_t epoch = qy_purging_epoch();
    for (unsigned shift = 47; shift < 64; shift++) {
        size_t much = (size_t)1 << shift;
        for (int k = 0; k < 6; k++) {
            errno = 0;
            void *p = k == 0   ? quarry_heap_alloc(h, much)
                      : k == 1 ? quarry_heap_aligned_alloc(h, much, 1)
                      : k == 2 ? quarry_heap_aligned_alloc(limited, much, 1)
                      : k == 3 ? quarry_heap_aligned_alloc(h, much, much - 1)
                      : k == 4 ? quarry_aligned_alloc(much, 1)
                               : quarry_malloc(much);
            CHECK(!p);
            CHECK_EQ(errno, ENOMEM);
        }
        errno = 0;
        CHECK(!quarry_heap_aligned_alloc(h, much + 16, 1));
        CHECK_EQ(errno, EINVAL);
    }
    CHECK_EQ(qy_purging_epoch(), epoch);
    // The largest alignments that there are may be had, and are refused cleanly if not.
    for (size_t align = (size_t)1 << 40; align < (size_t)1 << 47; align *= 2) {
        errno = 0;
        void *p = quarry_heap_aligned_alloc(h, align, 1);
        CHECK_EQ((uintptr_t)p % align, 0);
        CHECK(p || errno == ENOMEM);
        quarry_heap_free(h, p);
    }
    quarry_heap_destroy(limited);
    quarry_heap_destroy(h);
}

TEST_MAIN()
