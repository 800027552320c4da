// SPDX-License-Identifier: MIT
// Huge objects: mappings of their own, cached for a while, resized in place or by moving.
#include "heap_test.h"

#include <sys/resource.h>

#include "base/compiler.h"

#define MIB ((size_t)1 << 20)

static uint64_t rng;
static size_t below(size_t n) { return test_random(&rng) % n; }

// One word at each page's start and end: as telling as all bytes, and fast.
static void write_pages(char *p, size_t n, uint64_t id) {
    for (size_t at = 0; at + 8 <= n; at += 4096) {
        *(uint64_t *)(p + at) = id ^ at;
        if (at + 4096 <= n) *(uint64_t *)(p + at + 4088) = ~(id ^ at);
    }
}
static void check_pages(const char *p, size_t n, uint64_t id) {
    for (size_t at = 0; at + 8 <= n; at += 4096) {
        CHECK_EQ(*(const uint64_t *)(p + at), id ^ at);
        if (at + 4096 <= n) CHECK_EQ(*(const uint64_t *)(p + at + 4088), ~(id ^ at));
    }
}
static bool pages_are_zero(const char *p, size_t n) {
    for (size_t at = 0; at + 8 <= n; at += 4096)
        if (*(const uint64_t *)(p + at) || (at + 4096 <= n && *(const uint64_t *)(p + at + 4088))) return false;
    return true;
}

static qy_large_stats_t stats(void) {
    qy_large_stats_t st;
    qy_large_stats(&st);
    CHECK_EQ(st.huge_cached, qy_huge_cached_bytes());
    return st;
}
static size_t address_space(void) {
    size_t pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    CHECK(f && fscanf(f, "%zu", &pages) == 1);
    fclose(f);
    return pages * qy_os_page_size();
}
static void empty_cache(void) {
    qy_huge_purge(qy_purging_epoch(), 0);
    CHECK_EQ(stats().huge_cached, 0);
}

// Zeros are not asked for, so that the cache may serve.
static char *alloc(size_t n, bool *ret_fresh) {
    *ret_fresh = false;
    char *p = qy_huge_alloc(NULL, QY_ALIGN_MIN, n, ret_fresh);
    CHECK(p);
    CHECK_EQ((uintptr_t)p % QY_CHUNK, 0);
    qy_object_t o = qy_lookup(p);
    CHECK_EQ(o.kind, QY_OBJECT_HUGE);
    CHECK_GE(o.usable, n);
    CHECK_EQ(qy_lookup(p + 1).kind, QY_OBJECT_INTERIOR);
    CHECK_EQ(qy_lookup(p + n - 1).kind, QY_OBJECT_INTERIOR);
    return p;
}
static void give(char *p) { qy_huge_free(huge_of(p)); }

TEST(life) {
    bool fresh = false;
    qy_large_stats_t st0 = stats();
    size_t n = 3 * MIB + 123;
    char *p = alloc(n, &fresh);
    CHECK(fresh);
    CHECK(pages_are_zero(p, n));
    CHECK_EQ(qy_lookup(p).usable, qy_round_up(n, qy_os_page_size()));
    CHECK_EQ(stats().huges, st0.huges + 1);
    CHECK_EQ(stats().huge_live, st0.huge_live + qy_round_up(n, qy_os_page_size()));
    write_pages(p, n, 1);
    give(p);
    CHECK_EQ(stats().huges, st0.huges);
    CHECK_EQ(stats().huge_live, st0.huge_live);
    CHECK_EQ(stats().huge_cached, qy_round_up(n, qy_os_page_size()));
    CHECK_EQ(qy_lookup(p).kind, QY_OBJECT_FREE);
    CHECK(is_mapped(p));
    empty_cache();
    CHECK(!is_mapped(p));
    CHECK(!huge_of(p));
    CHECK(qy_huge_was_freed(p));
    CHECK(!qy_huge_was_freed(p + 1));
    CHECK(!qy_huge_was_freed(NULL));
    CHECK_EQ(qy_lookup(p).kind, QY_OBJECT_FREE);
}

TEST(alignment) {
    bool fresh = false;
    for (size_t align = 16; align <= 64 * MIB; align *= 2) {
        char *p = qy_huge_alloc(NULL, align, 2 * MIB, &fresh);
        CHECK(p);
        CHECK_EQ((uintptr_t)p % qy_max(align, QY_CHUNK), 0);
        write_pages(p, 2 * MIB, align);
        give(p);
        empty_cache();
    }
    CHECK(!qy_huge_alloc(NULL, 16, (size_t)PTRDIFF_MAX, &fresh));
    CHECK(!qy_huge_alloc(NULL, 16, SIZE_MAX - 5, &fresh));
    CHECK(!qy_huge_alloc(NULL, (size_t)1 << 63, 2 * MIB, &fresh));
}

// The cache may hold a quarter of what is live, so most tests of it need something live.
static char *ballast(size_t n) {
    bool fresh;
    return alloc(n, &fresh);
}

TEST(cache_reuse) {
    bool fresh;
    empty_cache();
    char *live = ballast(200 * MIB), *p = alloc(8 * MIB, &fresh), *q = alloc(9 * MIB, &fresh), *r;
    write_pages(q, 9 * MIB, 5);
    give(p);
    give(q);
    // The best fit, and not fresh.
    r = alloc(8 * MIB - 5, &fresh);
    CHECK_PTR_EQ(r, p);
    CHECK(!fresh);
    give(r);
    r = alloc(8 * MIB + 1, &fresh);
    CHECK_PTR_EQ(r, q);
    CHECK_EQ(qy_lookup(r).usable, 9 * MIB);  // a little too large is no matter
    give(r);
    // Much too large: the end goes.
    r = alloc(6 * MIB, &fresh);
    CHECK_PTR_EQ(r, p);
    CHECK(!fresh);
    CHECK_EQ(qy_lookup(r).usable, 6 * MIB);
    CHECK(!is_mapped(p + 6 * MIB));
    give(r);
    CHECK_EQ(stats().huge_cached, 15 * MIB);
    // None is large enough: the largest is made longer and keeps its pages.
    r = alloc(20 * MIB, &fresh);
    CHECK(!fresh);
    CHECK_EQ(qy_lookup(r).usable, 20 * MIB);
    CHECK_EQ(stats().huge_cached, 6 * MIB);
    check_pages(r, 9 * MIB, 5);
    CHECK(pages_are_zero(r + 9 * MIB, 11 * MIB));
    give(r);
    // Not from less than a quarter, not with an alignment it may not have, not where zeros are wanted.
    qy_huge_purge(qy_purging_epoch(), 0);
    r = alloc(2 * MIB, &fresh);
    give(r);
    char *s = alloc(9 * MIB, &fresh);
    CHECK(fresh);
    give(s);
    s = qy_huge_alloc(NULL, 16 * MIB, 8 * MIB, &fresh);
    CHECK(s && fresh);
    give(s);
    size_t cached = stats().huge_cached;
    fresh = true;
    s = qy_huge_alloc(NULL, QY_ALIGN_MIN, 8 * MIB, &fresh);
    CHECK(s && fresh);
    CHECK(pages_are_zero(s, 8 * MIB));
    CHECK_EQ(stats().huge_cached, cached);
    give(s);
    give(live);
    empty_cache();
}

// A cached one that cannot be made longer is given up, and the object comes from the kernel.
TEST(cache_that_does_not_fit) {
    bool fresh;
    empty_cache();
    give(alloc(6 * MIB, &fresh));
    quarry_os_fault(1, 1, FAULT(RESIZE) | FAULT(MOVE));
    char *p = alloc(10 * MIB, &fresh);
    CHECK_GT(quarry_os_fault_hits(), 1);
    quarry_os_fault(0, 0, 0);
    CHECK(fresh);
    CHECK(pages_are_zero(p, 10 * MIB));
    CHECK_EQ(stats().huge_cached, 0);
    give(p);
    // Its end cannot be cut off: it serves as it is.
    quarry_os_fault(1, 1, FAULT(UNMAP));
    char *q = alloc(5 * MIB, &fresh);
    quarry_os_fault(0, 0, 0);
    CHECK_PTR_EQ(q, p);
    CHECK_EQ(qy_lookup(q).usable, 10 * MIB);
    give(q);
    empty_cache();
}

TEST(cache_is_bounded) {
    bool fresh;
    char *p = alloc(33 * MIB, &fresh);
    give(p);
    CHECK_EQ(stats().huge_cached, 0);  // too large to keep
    CHECK(!is_mapped(p));
    char *live = NULL, *many[30];
    for (int round = 0; round < 3; round++) {
        if (round) live = ballast(round == 1 ? 60 * MIB : 400 * MIB);
        for (int i = 0; i < 30; i++) many[i] = alloc(3 * MIB, &fresh);
        size_t most_seen = 0;
        for (int i = 0; i < 30; i++) {
            size_t most = stats().huge_live / 4;
            if (most < 8 * MIB) most = 8 * MIB;
            if (most > 64 * MIB) most = 64 * MIB;
            size_t before = stats().huge_cached;
            give(many[i]);
            CHECK_EQ(stats().huge_cached, before + 3 * MIB <= most ? before + 3 * MIB : before);
            most_seen = qy_max(most_seen, stats().huge_cached);
        }
        CHECK_GE(most_seen, round == 2 ? 60 * MIB : 6 * MIB);
        empty_cache();
        if (round) give(live);
        empty_cache();
    }
    qy_opts.purge = false;  // who gives nothing back keeps nothing either
    p = alloc(4 * MIB, &fresh);
    give(p);
    qy_opts.purge = true;
    CHECK_EQ(stats().huge_cached, 0);
    CHECK(!is_mapped(p));
}

TEST(age_decides) {
    bool fresh = false;
    char *p = alloc(4 * MIB, &fresh);
    give(p);
    uint32_t now = qy_purging_epoch();
    CHECK_EQ(qy_huge_purge(now, 2), 0);
    CHECK_EQ(qy_huge_purge(now + 1, 2), 0);
    CHECK(is_mapped(p));
    CHECK_EQ(qy_huge_purge(now + 2, 2), 4 * MIB);
    CHECK(!is_mapped(p));
    CHECK_EQ(stats().huge_cached, 0);
}

TEST(resize_in_place) {
    bool fresh = false;
    size_t n = 20 * MIB;
    char *p = alloc(n, &fresh);
    write_pages(p, n, 7);
    qy_huge_t *c = huge_of(p);
    // Shrinking never moves, and gives the end back; a little is not worth a call.
    CHECK_PTR_EQ(qy_huge_resize(c, n - 1000), p);
    CHECK_EQ(c->mapped, n);
    CHECK_EQ(c->size, n - 1000);
    CHECK_PTR_EQ(qy_huge_resize(c, 5 * MIB), p);
    CHECK_EQ(c->mapped, 5 * MIB);
    CHECK(!is_mapped(p + 5 * MIB));
    check_pages(p, 5 * MIB, 7);
    // There is room behind it again: growing stays in place, and new pages are zero.
    size_t live = stats().huge_live;
    char *q = qy_huge_resize(c, 10 * MIB);
    CHECK(q);
    CHECK_EQ(stats().huge_live, live + c->mapped - 5 * MIB);
    check_pages(q, 5 * MIB, 7);
    CHECK(pages_are_zero(q + 5 * MIB, 5 * MIB));
    CHECK_EQ(qy_lookup(q + c->mapped - 1).kind, QY_OBJECT_INTERIOR);
    // The end cannot be unmapped: it stays, as does the size.
    size_t mapped = c->mapped;
    quarry_os_fault(1, 1, FAULT(UNMAP));
    CHECK_PTR_EQ(qy_huge_resize(c, 2 * MIB), q);
    quarry_os_fault(0, 0, 0);
    CHECK_EQ(c->mapped, mapped);
    CHECK_EQ(c->size, 2 * MIB);
    CHECK(is_mapped(q + mapped - 4096));
    give(q);
    empty_cache();
}

TEST(resize_by_moving) {
    bool fresh = false;
    size_t n = 6 * MIB + 4096;
    char *p = alloc(n, &fresh);
    write_pages(p, n, 9);
    qy_huge_t *c = huge_of(p);
    size_t huges = stats().huges;
    quarry_os_fault(1, 1, FAULT(RESIZE));
    char *q = qy_huge_resize(c, 30 * MIB);
    quarry_os_fault(0, 0, 0);
    CHECK(q && q != p);
    CHECK_EQ((uintptr_t)q % QY_CHUNK, 0);
    CHECK_PTR_EQ(huge_of(q), c);
    CHECK(huge_of(p) != c);
    CHECK(!is_mapped(p));
    CHECK_EQ(stats().huges, huges);
    check_pages(q, n, 9);
    CHECK(pages_are_zero(q + n, 30 * MIB - n));
    write_pages(q, 30 * MIB, 10);
    CHECK_EQ(qy_lookup(q).kind, QY_OBJECT_HUGE);

    // Neither in place nor elsewhere: nothing has changed.
    static const uint32_t faults[] = {FAULT(RESIZE) | FAULT(MOVE), FAULT(RESIZE) | FAULT(RESERVE)};
    for (int i = 0; i < 2; i++) {
        size_t live = stats().huge_live, mapped = c->mapped, size = c->size;
        quarry_os_fault(1, 1, faults[i]);
        CHECK(!qy_huge_resize(c, 80 * MIB));
        CHECK_GE(quarry_os_fault_hits(), 2);
        quarry_os_fault(0, 0, 0);
        CHECK_PTR_EQ(c->record.base, q);
        CHECK_PTR_EQ(huge_of(q), c);
        CHECK_EQ(c->mapped, mapped);
        CHECK_EQ(c->size, size);
        CHECK_EQ(stats().huge_live, live);
        check_pages(q, 30 * MIB, 10);
    }
    CHECK(!qy_huge_resize(c, PTRDIFF_MAX));
    CHECK(!qy_huge_resize(c, SIZE_MAX));
    give(q);
    empty_cache();
}

// Objects that come and go for long do not wander through all addresses: what they share entries of the map with would be in the way.
TEST(places_do_not_wander) {
    static void *around[600];
    for (size_t i = 0; i < 600; i++) CHECK(around[i] = quarry_malloc(MIB));  // entries in a row, as a program's live heap has
    char *least = NULL, *most = NULL;
    size_t all = (size_t)1 << 40;
    for (size_t i = 0; i < all / (64 * MIB) + 1000; i++) {
        bool fresh = true;
        char *p = alloc(64 * MIB, &fresh);
        CHECK(p);
        if (!least || p < least) least = p;
        if (!most || p > most) most = p;
        give(p);
    }
    CHECK_LE((size_t)(most - least), all / 2);
    for (size_t i = 0; i < 600; i++) quarry_free(around[i]);
}

// What cannot be moved is copied, but not what nobody wrote: also within a heap of its own.
TEST(sparse_objects_stay_sparse) {
    const size_t n = (size_t)1 << 30;
    quarry_heap_t *heap = quarry_heap_create(NULL);
    CHECK(heap);
    for (int own = 0; own < 2; own++) {
        char *p = own ? quarry_heap_alloc(heap, n) : quarry_malloc(n);
        CHECK(p);
        static const size_t at[] = {0, 5 * MIB + 17, ((size_t)1 << 30) - 1};
        for (int i = 0; i < 3; i++) p[at[i]] = (char)(i + 1);
        quarry_os_fault(1, 1, FAULT(RESIZE) | FAULT(MOVE));
        char *q = own ? quarry_heap_realloc(heap, p, n + n / 4) : quarry_realloc(p, n + n / 4);
        quarry_os_fault(0, 0, 0);
        CHECK(q && q != p);
        for (int i = 0; i < 3; i++) CHECK_EQ(q[at[i]], i + 1);
        for (int i = 0; i < 3; i++) CHECK_EQ(q[at[i] ^ 1], 0);
        CHECK_LE(resident(q, n), 3);
        quarry_free(q);
    }
    quarry_heap_destroy(heap);
}

// Where the kernel has no mapping for it, there may be room among others.
TEST(zeroed_without_a_mapping) {
    void *p = quarry_malloc(3 * MIB);
    CHECK(p);
    write_pages(p, 3 * MIB, 1);
    quarry_free(p);
    empty_cache();
    quarry_os_fault(1, 1, FAULT(MAP));
    char *q = quarry_calloc(2, MIB);
    quarry_os_fault(0, 0, 0);
    CHECK(q);
    CHECK_EQ(qy_lookup(q).kind, QY_OBJECT_RUN);
    CHECK(pages_are_zero(q, 2 * MIB));
    quarry_free(q);
}

// A limit that leaves room for a copy but not for the kernel's way to move: it is copied, and no address space is lost.
static void little_space(void *unused) {
    (void)unused;
    struct rlimit old, r;
    char *p = quarry_malloc(100 * MIB);
    CHECK(p);
    write_pages(p, 100 * MIB, 3);
    CHECK(qy_os_map(4096, 4096, p + 100 * MIB));  // there, if nothing else is: it cannot grow where it is
    qy_units_release();
    size_t had = address_space();
    CHECK_EQ(getrlimit(RLIMIT_AS, &old), 0);
    r = (struct rlimit){had + 115 * MIB, old.rlim_max};
    CHECK_EQ(setrlimit(RLIMIT_AS, &r), 0);
    char *q = quarry_realloc(p, 110 * MIB);
    CHECK(q);
    check_pages(q, 100 * MIB, 3);
    quarry_free(q);
    CHECK_LE(address_space(), had);
}
TEST(growing_within_a_limit) {
    if (QY_ASAN || QY_TSAN) TEST_SKIP("needs a build without sanitizers: they have more address space than any limit");
    run_apart(little_space, NULL);
}

TEST(unmap_denied) {
    bool fresh = false;
    qy_large_stats_t st0 = stats();
    char *p = alloc(40 * MIB, &fresh);  // too large for the cache
    write_pages(p, 40 * MIB, 3);
    quarry_os_fault(1, 1, FAULT(UNMAP));
    give(p);
    CHECK_GT(quarry_os_fault_hits(), 0);
    // It stays, known as free, but without memory.
    CHECK_EQ(stats().huge_cached, st0.huge_cached + 40 * MIB);
    CHECK_EQ(stats().huges, st0.huges);
    CHECK_EQ(resident(p, 40 * MIB), 0);
    CHECK_EQ(qy_lookup(p).kind, QY_OBJECT_FREE);
    qy_huge_purge(qy_purging_epoch(), 0);  // denied again
    CHECK_EQ(stats().huge_cached, st0.huge_cached + 40 * MIB);
    CHECK(is_mapped(p));
    // Meanwhile it serves: it is not taken for fresh.
    fresh = false;
    char *q = alloc(40 * MIB, &fresh);
    CHECK_PTR_EQ(q, p);
    CHECK(!fresh);
    give(q);
    quarry_os_fault(0, 0, 0);
    CHECK_EQ(qy_huge_purge(qy_purging_epoch(), 0), 40 * MIB);
    CHECK(!is_mapped(p));
    CHECK_EQ(stats().huge_cached, st0.huge_cached);
}

TEST(no_memory) {
    bool fresh = false;
    empty_cache();
    qy_large_stats_t st0 = stats();
    size_t metadata = 0;
    for (int i = 0; i < 50; i++) {
        quarry_os_fault(1, 1, FAULT(MAP));
        CHECK(!qy_huge_alloc(NULL, 16, 2 * MIB, &fresh));
        quarry_os_fault(0, 0, 0);
        if (i == 0) metadata = qy_meta_bytes();
    }
    CHECK_EQ(qy_meta_bytes(), metadata);  // the record of a failed try is used again
    CHECK_EQ(stats().huges, st0.huges);
    CHECK_EQ(stats().huge_live, st0.huge_live);
    quarry_os_fault(1, 1, FAULT(MAP));
    errno = 0;
    CHECK(!quarry_malloc(50 * MIB));
    CHECK_EQ(errno, ENOMEM);
    quarry_os_fault(0, 0, 0);
    give(alloc(2 * MIB, &fresh));
    empty_cache();
}

TEST(records_are_recycled) {
    bool fresh = false;
    for (int i = 0; i < 10; i++) {
        give(alloc(40 * MIB, &fresh));
    }
    size_t metadata = qy_meta_bytes();
    for (int i = 0; i < 50; i++) give(alloc(40 * MIB, &fresh));
    CHECK_EQ(qy_meta_bytes(), metadata);
}

static void free_it(void *p) { quarry_free(p); }
static void free_twice(void *p) {
    quarry_free(p);
    quarry_free(p);
}
static void free_twice_uncached(void *p) {
    quarry_free(p);
    qy_huge_purge(qy_purging_epoch(), 0);
    quarry_free(p);
}
TEST(misuse_is_named) {
    char *p = quarry_malloc(3 * MIB), *large = quarry_malloc(40 * MIB);
    must_die(free_twice, p, "double free");
    must_die(free_twice_uncached, p, "double free");
    must_die(free_twice, large, "double free");
    must_die(free_it, p + 16, "free of an interior pointer");
    must_die(free_it, p + QY_CHUNK, "free of an interior pointer");
    must_die(free_it, p + 3 * MIB - 16, "free of an interior pointer");
    must_die(free_it, p + 3 * MIB + 64 * MIB * 1024, "invalid free");
    quarry_free(p);
    quarry_free(large);
}

typedef struct seen {
    size_t count, bytes;
} seen_t;
static int see(void *p, size_t usable, void *arg) {
    seen_t *s = arg;
    CHECK_EQ(qy_lookup(p).kind == QY_OBJECT_HUGE || !p, true);
    s->count++;
    s->bytes += usable;
    return 0;
}

TEST(of_a_heap) {
    bool fresh = false;
    qy_heap_t *h = qy_heap_new(QY_HEAP_FIRST_CLASS);
    h->limit = 20 * MIB;
    qy_heap_lock(h);
    char *p = qy_huge_alloc(h, 16, 8 * MIB, &fresh), *q = qy_huge_alloc(h, 16, 8 * MIB, &fresh);
    CHECK(p && q);
    CHECK_EQ(h->held_bytes, 16 * MIB);
    CHECK(!qy_huge_alloc(h, 16, 5 * MIB, &fresh));
    char *r = qy_huge_alloc(h, 16, 4 * MIB, &fresh);
    CHECK(r);
    CHECK_EQ(h->held_bytes, 20 * MIB);
    qy_heap_unlock(h);
    CHECK(!qy_huge_resize(huge_of(r), 5 * MIB));
    give(q);
    CHECK_EQ(h->held_bytes, 12 * MIB);
    quarry_os_fault(1, 1, FAULT(RESIZE));
    char *moved = qy_huge_resize(huge_of(r), 12 * MIB);
    quarry_os_fault(0, 0, 0);
    CHECK(moved);
    CHECK_EQ(h->held_bytes, 20 * MIB);
    seen_t s = {0};
    CHECK_EQ(qy_huge_each(h, see, &s), 0);
    CHECK_EQ(s.count, 2);
    CHECK_EQ(s.bytes, 20 * MIB);
    size_t huges = stats().huges;
    qy_heap_lock(h);
    qy_huge_release_all(h);
    qy_heap_unlock(h);
    CHECK_EQ(h->held_bytes, 0);
    CHECK_EQ(stats().huges, huges - 2);
    CHECK(!is_mapped(p));
    CHECK(!is_mapped(moved));
    empty_cache();
}

#define OBJECTS 24
TEST(random_steps) {
    rng = test_seed;
    struct {
        char *p;
        size_t n;
        uint64_t id;
    } o[OBJECTS] = {0};
    uint64_t id = 0;
    qy_large_stats_t st0 = stats();
    for (int step = 0; step < 1000; step++) {
        size_t i = below(OBJECTS), op = below(100);
        size_t n = QY_RUN_MAX + 1 + below(below(9) ? 4 * MIB : 36 * MIB);
        if (below(20) == 0) quarry_os_fault(1 + below(3), (int)below(2), FAULT(RESIZE) | FAULT(MOVE) | FAULT(UNMAP));
        if (!o[i].p) {
            bool fresh = false;
            o[i].p = alloc(n, &fresh);
            o[i].n = n;
            if (fresh) CHECK(pages_are_zero(o[i].p, n));
            write_pages(o[i].p, n, o[i].id = ++id);
        } else if (op < 40) {
            check_pages(o[i].p, o[i].n, o[i].id);
            give(o[i].p);
            o[i].p = NULL;
        } else if (op < 90) {
            qy_huge_t *c = huge_of(o[i].p);
            char *q = qy_huge_resize(c, n);
            if (q) {
                check_pages(q, qy_min(n, o[i].n), o[i].id);
                o[i].p = q;
                o[i].n = n;
                write_pages(q, n, o[i].id = ++id);
            } else {
                CHECK_GT(n, o[i].n);
                check_pages(o[i].p, o[i].n, o[i].id);
            }
            CHECK_PTR_EQ(huge_of(o[i].p), c);
        } else {
            qy_huge_purge(qy_purging_epoch(), 0);
        }
        quarry_os_fault(0, 0, 0);
        size_t live = 0, count = 0;
        for (int k = 0; k < OBJECTS; k++)
            if (o[k].p) {
                live += qy_lookup(o[k].p).usable;
                CHECK_GE(qy_lookup(o[k].p).usable, o[k].n);
                count++;
            }
        CHECK_EQ(stats().huges, st0.huges + count);
        CHECK_EQ(stats().huge_live, st0.huge_live + live);
        if (step % 100 == 0) stats_add_up();
    }
    for (int k = 0; k < OBJECTS; k++)
        if (o[k].p) {
            check_pages(o[k].p, o[k].n, o[k].id);
            give(o[k].p);
        }
    empty_cache();
    CHECK_EQ(stats().huge_live, st0.huge_live);
    stats_add_up();
}

// Slabs leave marks of free blocks behind. What malloc hands out there, written to or not, must not carry one: realloc would carry it
// on, and a live block at the old place would look free.
static void carries_no_mark(size_t n) {
    bool fresh = false;
    qy_block_t *p = qy_large_alloc(NULL, QY_ALIGN_MIN, n, &fresh);
    CHECK(p);
    qy_link_set(p, NULL);
    quarry_free(p);
    fresh = false;
    qy_block_t *q = qy_large_alloc(NULL, QY_ALIGN_MIN, n, &fresh);
    CHECK(q == p && !fresh);  // or nothing is shown
    CHECK(!qy_link_valid(q));
    quarry_free(q);
}
TEST(large_objects_carry_no_mark) {
    qy_run_largest_first = SIZE_MAX / 2;  // none is the first of its size
    carries_no_mark(100 << 10);
    carries_no_mark(3 * MIB);
}

TEST_MAIN()
