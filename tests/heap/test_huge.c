// SPDX-License-Identifier: MIT
// Huge objects: mappings of their own, unmapped when they are freed, resized in place or by moving.
#include "heap_test.h"

#include <limits.h>
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
    CHECK_EQ(st.huge_stuck, qy_huge_stuck_bytes());
    return st;
}
static size_t address_space(void) {
    size_t pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    CHECK(f && fscanf(f, "%zu", &pages) == 1);
    fclose(f);
    return pages * qy_os_page_size();
}
// What could not be unmapped, because a fault was planted.
static void unmap_stuck(void) {
    qy_huge_purge();
    CHECK_EQ(stats().huge_stuck, 0);
}

static char *alloc(size_t n) {
    char *p = qy_huge_alloc(NULL, QY_ALIGN_MIN, n, false);
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

// ---- sizes that come again ------------------------------------------------------------------------

static bool is_run(const void *p) {
    const qy_slab_t *s = span_of(p);
    return s && s->kind == QY_SPAN_RUN;
}

static long faults(void) {
    struct rusage usage;
    CHECK_EQ(getrusage(RUSAGE_SELF, &usage), 0);
    return usage.ru_minflt;
}

// Its pages need not be had anew: of some rounds at least one, whatever else the machine does meanwhile.
static void come_again(void *unused) {
    (void)unused;
    const size_t bytes = 60 * MIB;  // more than 64 may not stay where no helper can be had
    char *p = quarry_malloc(bytes), *q = quarry_malloc(bytes);
    CHECK(p && q && !is_run(p) && !is_run(q));  // none was freed before, by other tests neither
    write_pages(p, bytes, 1);
    quarry_free(p);
    long least = LONG_MAX;
    for (int round = 0; round < 12; round++) {
        long before = faults();
        CHECK(p = quarry_malloc(bytes));
        CHECK(is_run(p) && quarry_usable_size(p) >= bytes);
        write_pages(p, bytes, 2);
        check_pages(p, bytes, 2);
        least = qy_min(least, faults() - before);
        quarry_free(p);
    }
    CHECK_LT(least, (long)(bytes / qy_os_page_size() / 8));
    // Not what is to be zero, nor what is larger.
    CHECK(p = quarry_calloc(1, bytes));
    CHECK(!is_run(p) && pages_are_zero(p, bytes));
    quarry_free(p);
    CHECK(p = quarry_malloc(QY_LONG_MAX + 1));
    CHECK(!is_run(p));
    quarry_free(p);
    // It grows as any other.
    CHECK(p = quarry_malloc(bytes));
    write_pages(p, bytes, 3);
    CHECK(p = quarry_realloc(p, 2 * QY_LONG_MAX));
    CHECK(!is_run(p));
    check_pages(p, bytes, 3);
    quarry_free(p);
    quarry_free(q);
    verify_all();
}
TEST(what_comes_again_keeps_its_pages) { run_apart(come_again, NULL); }

// The descriptors of chunks are for what is touched: not for all that a program reserves.
static void most_are_mappings(void *unused) {
    (void)unused;
    enum { MANY = 80 };
    static char *p[MANY];
    quarry_free(quarry_malloc(QY_LONG_MAX));
    size_t runs = 0;
    for (int i = 0; i < MANY; i++) {
        CHECK(p[i] = quarry_malloc(QY_LONG_MAX));
        runs += is_run(p[i]);
    }
    CHECK_GT(runs, 0);
    CHECK_LE(runs * QY_LONG_MAX, (size_t)4 << 30);
    for (int i = 0; i < MANY; i++) quarry_free(p[i]);
    verify_all();
}
TEST(of_many_most_are_mappings) { run_apart(most_are_mappings, NULL); }

// ---- by itself -----------------------------------------------------------------------------------

TEST(life) {
    qy_large_stats_t st0 = stats();
    size_t n = 3 * MIB + 123;
    char *p = alloc(n);
    CHECK(pages_are_zero(p, n));
    CHECK_EQ(qy_lookup(p).usable, qy_round_up(n, qy_os_page_size()));
    CHECK_EQ(stats().huges, st0.huges + 1);
    CHECK_EQ(stats().huge_live, st0.huge_live + qy_round_up(n, qy_os_page_size()));
    write_pages(p, n, 1);
    give(p);
    CHECK_EQ(stats().huges, st0.huges);
    CHECK_EQ(stats().huge_live, st0.huge_live);
    CHECK_EQ(stats().huge_stuck, 0);
    CHECK(!is_mapped(p));
    CHECK(!huge_of(p));
    CHECK(qy_huge_was_freed(p));
    CHECK(!qy_huge_was_freed(p + 1));
    CHECK(!qy_huge_was_freed(NULL));
    CHECK_EQ(qy_lookup(p).kind, QY_OBJECT_FREE);
}

TEST(alignment) {
    for (size_t align = 16; align <= 64 * MIB; align *= 2) {
        char *p = qy_huge_alloc(NULL, align, 2 * MIB, false);
        CHECK(p);
        CHECK_EQ((uintptr_t)p % qy_max(align, QY_CHUNK), 0);
        write_pages(p, 2 * MIB, align);
        give(p);
    }
    CHECK(!qy_huge_alloc(NULL, 16, (size_t)PTRDIFF_MAX, false));
    CHECK(!qy_huge_alloc(NULL, 16, SIZE_MAX - 5, false));
    CHECK(!qy_huge_alloc(NULL, (size_t)1 << 63, 2 * MIB, false));
}

// An array that grows by small steps calls the kernel once an eighth, to grow in place and perhaps to move.
TEST(grows_by_an_eighth) {
    enum { STEP = 64 << 10 };
    char *p = alloc(2 * MIB);
    quarry_os_fault(0, 0, FAULT(RESIZE) | FAULT(MOVE));
    for (size_t n = 2 * MIB; n <= 64 * MIB; n += STEP) CHECK(p = qy_huge_resize(huge_of(p), n));
    CHECK_LE(quarry_os_fault_calls(), 60);  // 29 eighths; 992 steps
    quarry_os_fault(0, 0, 0);
    give(p);
}

// What begins on a chunk boundary need not be a mapping: a run does, too, and its pages stay for the next one.
TEST(aligned_to_a_chunk_is_a_run) {
    qy_opts.purge = false;
    for (size_t n = 1; n <= QY_LONG_USUAL; n = n * 7 + 5) {
        char *p = quarry_aligned_alloc(QY_CHUNK, n);
        CHECK(p);
        CHECK_EQ((uintptr_t)p % QY_CHUNK, 0);
        CHECK_EQ(qy_lookup(p).kind, QY_OBJECT_RUN);
        write_pages(p, n, n);
        quarry_free(p);
        char *q = quarry_aligned_alloc(2 * QY_CHUNK, n);
        CHECK(q);
        CHECK_EQ((uintptr_t)q % (2 * QY_CHUNK), 0);
        CHECK_EQ(qy_lookup(q).kind, QY_OBJECT_HUGE);
        quarry_free(q);
    }
    char *p = quarry_aligned_alloc(QY_CHUNK, QY_LONG_USUAL), *q;
    CHECK(p);
    memset(p, 1, QY_LONG_USUAL);
    size_t dirty = qy_units_dirty_bytes();
    quarry_free(p);
    CHECK_EQ(qy_units_dirty_bytes(), dirty + QY_LONG_USUAL);
    CHECK_PTR_EQ(q = quarry_aligned_alloc(QY_CHUNK, QY_LONG_USUAL), p);
    CHECK_EQ(qy_units_dirty_bytes(), dirty);
    quarry_free(q);
    qy_opts.purge = true;
    quarry_trim(0);
    verify_all();
}

TEST(resize_in_place) {
    size_t n = 20 * MIB;
    char *p = alloc(n);
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
    unmap_stuck();
}

TEST(resize_by_moving) {
    size_t n = 6 * MIB + 4096;
    char *p = alloc(n);
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
    unmap_stuck();
}

// Objects that come and go for long do not wander through all addresses: what they share entries of the map with would
// be in the way.
TEST(places_do_not_wander) {
    static void *around[600];
    // entries in a row, as a program's live heap has
    for (size_t i = 0; i < 600; i++) CHECK(around[i] = quarry_malloc(MIB));
    char *least = NULL, *most = NULL;
    size_t all = (size_t)1 << 40;
    for (size_t i = 0; i < all / (64 * MIB) + 1000; i++) {
        char *p = alloc(64 * MIB);
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
    unmap_stuck();
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
    qy_large_stats_t st0 = stats();
    char *p = alloc(40 * MIB);
    write_pages(p, 40 * MIB, 3);
    quarry_os_fault(1, 1, FAULT(UNMAP));
    give(p);
    CHECK_GT(quarry_os_fault_hits(), 0);
    // It stays, known as free, but without memory.
    CHECK_EQ(stats().huge_stuck, st0.huge_stuck + 40 * MIB);
    CHECK_EQ(stats().huges, st0.huges);
    CHECK_EQ(resident(p, 40 * MIB), 0);
    CHECK_EQ(qy_lookup(p).kind, QY_OBJECT_FREE);
    qy_huge_purge();  // denied again
    CHECK_EQ(stats().huge_stuck, st0.huge_stuck + 40 * MIB);
    CHECK(is_mapped(p));
    quarry_os_fault(0, 0, 0);
    CHECK_EQ(qy_huge_purge(), 40 * MIB);
    CHECK(!is_mapped(p));
    CHECK_EQ(stats().huge_stuck, st0.huge_stuck);
}

TEST(no_memory) {
    unmap_stuck();
    qy_large_stats_t st0 = stats();
    size_t metadata = 0;
    for (int i = 0; i < 50; i++) {
        quarry_os_fault(1, 1, FAULT(MAP));
        CHECK(!qy_huge_alloc(NULL, 16, 2 * MIB, false));
        quarry_os_fault(0, 0, 0);
        if (i == 0) metadata = qy_meta_bytes();
    }
    CHECK_EQ(qy_meta_bytes(), metadata);  // the record of a failed try is used again
    CHECK_EQ(stats().huges, st0.huges);
    CHECK_EQ(stats().huge_live, st0.huge_live);
    quarry_os_fault(1, 1, FAULT(MAP));
    errno = 0;
    CHECK(!quarry_malloc(QY_LONG_MAX + 1));
    CHECK_EQ(errno, ENOMEM);
    quarry_os_fault(0, 0, 0);
    give(alloc(2 * MIB));
    unmap_stuck();
}

TEST(records_are_recycled) {
    for (int i = 0; i < 10; i++) {
        give(alloc(40 * MIB));
    }
    size_t metadata = qy_meta_bytes();
    for (int i = 0; i < 50; i++) give(alloc(40 * MIB));
    CHECK_EQ(qy_meta_bytes(), metadata);
}

static void free_it(void *p) { quarry_free(p); }
static void free_twice(void *p) {
    quarry_free(p);
    quarry_free(p);
}
static void free_twice_later(void *p) {
    quarry_free(p);
    qy_huge_purge();
    quarry_free(p);
}
TEST(misuse_is_named) {
    char *p = quarry_malloc(3 * MIB), *large = quarry_malloc(40 * MIB);
    must_die(free_twice, p, "double free");
    must_die(free_twice_later, p, "double free");
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
    qy_heap_t *h = qy_heap_new(QY_HEAP_FIRST_CLASS);
    h->limit = 20 * MIB;
    qy_heap_lock(h);
    char *p = qy_huge_alloc(h, 16, 8 * MIB, false), *q = qy_huge_alloc(h, 16, 8 * MIB, false);
    CHECK(p && q);
    CHECK_EQ(h->held_bytes, 16 * MIB);
    CHECK(!qy_huge_alloc(h, 16, 5 * MIB, false));
    char *r = qy_huge_alloc(h, 16, 4 * MIB, false);
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
    unmap_stuck();
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
            o[i].p = alloc(n);
            o[i].n = n;
            CHECK(pages_are_zero(o[i].p, n));
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
            qy_huge_purge();
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
    unmap_stuck();
    CHECK_EQ(stats().huge_live, st0.huge_live);
    stats_add_up();
}

// Slabs leave marks of free blocks behind. What malloc hands out there, written to or not, must not carry one: realloc
// would carry it on, and a live block at the old place would look free.
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
