// SPDX-License-Identifier: MIT
// Runs that go through several chunks, against a model: one byte per unit of all addresses seen, counted by hand.
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pages/arena.h"
#include "pages/chunk.h"
#include "pages/chunk_state.h"
#include "heap_test.h"

#define MIB ((size_t)1 << 20)
#define SPANS 200
#define UNITS ((size_t)512 * 1024)  // 8 GiB of addresses around the first

typedef struct span {
    char *base;
    unsigned n;
    bool clean;  // as far as its first unit, which nobody wrote to
} span_t;

static uint64_t rng;
static unsigned below(unsigned n) { return (unsigned)(test_random(&rng) % n); }

static char *origin;             // of the model
static unsigned char of[UNITS];  // 0: not seen, or free; 1: taken
static bool touched[UNITS];      // perhaps not zero
static span_t spans[SPANS];
static unsigned nspans;

static size_t index_of(const char *p) {
    CHECK(p >= origin && (size_t)(p - origin) / QY_UNIT < UNITS);
    return (size_t)(p - origin) / QY_UNIT;
}

// Of each chunk in the map: is what it has free what the model has free?
static void compare(void) {
    size_t free = 0, chunks = 0;
    for (size_t at = 0; at < UNITS; at += QY_CHUNK_UNITS) {
        qy_chunk_t *c = qy_map_chunk(origin + at * QY_UNIT);
        if (!c) {
            for (unsigned i = 0; i < QY_CHUNK_UNITS; i++) CHECK(!of[at + i]);
            continue;
        }
        chunks++;
        for (unsigned i = 0; i < QY_CHUNK_UNITS; i++) {
            CHECK_EQ((unsigned)(c->free >> i & 1), !of[at + i]);
            if (c->dirty >> i & 1) CHECK(touched[at + i]);
            free += !of[at + i];
        }
    }
    CHECK_EQ(chunks * QY_CHUNK, qy_units_mapped_bytes());
    CHECK_EQ(free * QY_UNIT, qy_units_free_bytes());
}

// Are n units free from `at` on, all in the arena of the chunk at `begin`?
static bool are_free(size_t begin, size_t at, unsigned n) {
    const qy_chunk_t *first = qy_map_chunk(origin + begin / QY_CHUNK_UNITS * QY_CHUNK);
    for (size_t i = at; i < at + n; i++) {
        const qy_chunk_t *c = i < UNITS ? qy_map_chunk(origin + i / QY_CHUNK_UNITS * QY_CHUNK) : NULL;
        if (!c || !first || c->arena != first->arena || of[i]) return false;
    }
    return true;
}

// Could n units be had without a new chunk?
static bool fits(unsigned n) {
    for (size_t at = 0; at + n <= UNITS; at += QY_CHUNK_UNITS)
        if (are_free(at, at, n)) return true;
    return false;
}

// Units [from, to) of s are taken now. What is said to be clean is zero.
static void enter(const span_t *s, unsigned from, unsigned to, bool clean) {
    size_t first = index_of(s->base);
    for (unsigned i = from; i < to; i++) {
        CHECK(!of[first + i]);
        of[first + i] = 1;
        if (clean) CHECK(is_zero(s->base + i * QY_UNIT, QY_UNIT));
    }
    for (unsigned i = from; i < to; i += 1 + below(9)) {
        *(volatile char *)(s->base + i * QY_UNIT + below(QY_UNIT)) = 1;
        touched[first + i] = true;
    }
}

// Pages may have been moved: from chunks that are clean now, and zero, to chunks that are apart from then on.
static void see_moves(void) {
    for (size_t at = 0; at < UNITS; at += QY_CHUNK_UNITS) {
        qy_chunk_t *c = qy_map_chunk(origin + at * QY_UNIT);
        for (unsigned i = 0; c && i < QY_CHUNK_UNITS; i++) {
            bool dirty = c->dirty >> i & 1;
            if (of[at + i] || dirty == touched[at + i]) continue;
            if (dirty) CHECK(c->separate);
            else CHECK(is_zero(c->record.base + i * QY_UNIT, QY_UNIT));
            touched[at + i] = dirty;
        }
    }
}

static void take(unsigned n) {
    if (nspans == SPANS) return;
    span_t *s = &spans[nspans++];
    size_t before = qy_units_mapped_bytes();
    bool there = origin && n > QY_CHUNK_UNITS && fits(n), dirty;
    qy_chunk_t *c;
    if (n > QY_CHUNK_UNITS) {
        CHECK(qy_units_take_long(n, &c, &dirty));
        *s = (span_t){.base = c->record.base, .n = n};
    } else {
        qy_units_t u;
        CHECK(qy_units_take(n, 1, &u));
        dirty = u.dirty != 0;
        *s = (span_t){.base = u.chunk->record.base + u.first * QY_UNIT, .n = n};
    }
    if (!origin) origin = (char *)((uintptr_t)s->base & ~(QY_CHUNK - 1)) - UNITS / 2 * QY_UNIT;
    if (there) CHECK_EQ(qy_units_mapped_bytes(), before);
    enter(s, 0, n, !dirty);
    if (n > QY_CHUNK_UNITS) see_moves();
}

static qy_chunk_t *chunk_of(const span_t *s, unsigned unit, unsigned *ret_first) {
    char *p = s->base + unit * QY_UNIT;
    *ret_first = (unsigned)(((uintptr_t)p & (QY_CHUNK - 1)) / QY_UNIT);
    return qy_map_chunk(p);
}

// Units [from, n) go back.
static void give(span_t *s, unsigned from) {
    unsigned first;
    qy_chunk_t *c = chunk_of(s, from, &first);
    qy_units_give_long(c, first, s->n - from, true);
    for (unsigned i = from; i < s->n; i++) {
        of[index_of(s->base) + i] = 0;
        touched[index_of(s->base) + i] = true;
    }
    s->n = from;
    if (!from) *s = spans[--nspans];
}

static void extend(span_t *s, unsigned more) {
    unsigned first;
    qy_chunk_t *c = chunk_of(s, 0, &first);
    bool can = are_free(index_of(s->base), index_of(s->base) + s->n, more);
    CHECK_EQ(qy_units_extend(c, first, s->n, more), can);
    if (!can) return;
    enter(s, s->n, s->n + more, false);
    s->n += more;
}

static void purged(void) {
    for (size_t at = 0; at < UNITS; at++) {
        qy_chunk_t *c = qy_map_chunk(origin + at / QY_CHUNK_UNITS * QY_CHUNK);
        if (c && !of[at] && !(c->dirty >> (at % QY_CHUNK_UNITS) & 1)) {
            CHECK(is_zero(origin + at * QY_UNIT, QY_UNIT));
            touched[at] = false;
        }
    }
}

TEST(random_steps_against_a_model) {
    rng = test_seed;
    for (int step = 0; step < 3000; step++) {
        unsigned op = below(100);
        if (op < 25) take(129 + below(below(4) ? 500 : 1920));
        else if (op < 45) take(1 + below(128));
        else if (op < 75 && nspans) give(&spans[below(nspans)], 0);
        else if (op < 82 && nspans) {
            span_t *s = &spans[below(nspans)];
            give(s, below(s->n));
        } else if (op < 97 && nspans) extend(&spans[below(nspans)], 1 + below(300));
        else if (op == 97) {
            purge_units(0, 0, 0, SIZE_MAX);
            if (origin) purged();
        } else if (op == 98) qy_units_release();
        if (nspans > 60) give(&spans[below(nspans)], 0);  // so that the model's addresses do
        if (origin && step % 10 == 0) compare();
    }
    while (nspans) give(&spans[0], 0);
    compare();
    qy_units_release();
    CHECK_EQ(qy_units_mapped_bytes(), 0);
}

TEST(dirty_places_first) {
    qy_chunk_t *a, *b, *c;
    bool dirty;
    qy_units_purge(0, 0, 0, SIZE_MAX);
    qy_units_release();
    CHECK(qy_units_take_long(300, &a, &dirty));
    CHECK(!dirty);
    CHECK(qy_units_take_long(300, &b, &dirty));
    CHECK(a != b);
    qy_units_give_long(a, 0, 300, false);
    qy_units_give_long(b, 0, 300, true);
    CHECK(qy_units_take_long(290, &c, &dirty));
    CHECK_PTR_EQ(c, b);
    CHECK(dirty);
    qy_units_give_long(c, 0, 290, false);
}

TEST(kernel_denies_memory) {
    purge_units(0, 0, 0, SIZE_MAX);
    qy_units_release();
    size_t metadata = 0;
    for (int i = 0; i < 100; i++) {
        qy_chunk_t *c;
        bool dirty;
        qy_units_release();
        quarry_os_fault(1 + (unsigned)i % 3, 1, i % 2 ? FAULT(RESERVE) : FAULT(COMMIT));
        bool ok = qy_units_take_long(900, &c, &dirty);
        quarry_os_fault(0, 0, 0);
        if (ok) qy_units_give_long(c, 0, 900, false);
        CHECK_EQ(qy_units_free_bytes(), qy_units_mapped_bytes());
        // Nothing is writable that is not open.
        if (qy_units.arenas) CHECK_EQ(qy_units.arenas->writable, qy_units.arenas->opened);
        if (i == 49) metadata = qy_meta_bytes();
    }
    CHECK_EQ(qy_meta_bytes(), metadata);
    qy_units.scarce = false;  // which it said
}

// Also where it is refused, since less may be had, and where an address is another's.
TEST(one_call_makes_all_chunks_writable) {
    const unsigned chunks = 50, n = chunks * QY_CHUNK_UNITS;
    for (unsigned refused = 0; refused < 3; refused++) {
        purge_units(0, 0, 0, SIZE_MAX);
        qy_units_release();
        CHECK_EQ(qy_units_mapped_bytes(), 0);
        static qy_map_record_t other;
        qy_lock_take(&qy_units.lock);
        CHECK(qy_arena_reserve(chunks + 3));
        qy_lock_drop(&qy_units.lock);
        const qy_arena_t *a = qy_units.arenas;
        uint32_t opened = a->opened;
        char *taken = qy_arena_at(a, a->opened + 2) + (qy_map_mask + 1) * QY_TAG_PAGE;
        if (refused == 2) CHECK_EQ(qy_map_add(&other, taken, true), QY_MAP_ADDED);
        // (A map that can grow has room for both.)
        quarry_os_fault(refused > 0, refused == 2, refused == 2 ? FAULT(RESERVE_READABLE) : FAULT(COMMIT));
        qy_chunk_t *first;
        bool dirty;
        CHECK(qy_units_take_long(n, &first, &dirty));
        uint64_t calls = quarry_os_fault_calls();  // some are the map's
        CHECK_EQ(quarry_os_fault_hits() > 0, refused > 0);
        quarry_os_fault(0, 0, 0);
        if (refused == 1) CHECK_GT(calls, chunks);
        else CHECK_LE(calls, 10);
        CHECK_EQ(a->opened, opened + chunks + (refused == 2 ? 3 : 0));
        CHECK(!dirty);
        for (unsigned i = 0; i < n; i += 7) *(volatile char *)(first->record.base + i * QY_UNIT) = 1;
        if (qy_units.arenas) CHECK_EQ(qy_units.arenas->writable, qy_units.arenas->opened);
        qy_units_give_long(first, 0, n, true);
        if (refused == 2) qy_map_remove(&other);
    }
    purge_units(0, 0, 0, SIZE_MAX);
    qy_units_release();
}

// ---- objects -----------------------------------------------------------------------------------

static void write_pages(char *p, size_t n, char v) {
    for (size_t at = 0; at < n; at += 4096) p[at] = (char)(v + (char)(at >> 12));
    p[n - 1] = v;
}
static void check_pages(const char *p, size_t n, char v) {
    for (size_t at = 0; at < n; at += 4096)
        if (at != n - 1) CHECK_EQ(p[at], (char)(v + (char)(at >> 12)));
    CHECK_EQ(p[n - 1], v);
}

TEST(lookup_in_every_chunk) {
    size_t n = 9 * MIB + 5;
    char *p = quarry_malloc(n);
    CHECK(p);
    CHECK_EQ(qy_lookup(p).kind, QY_OBJECT_RUN);
    CHECK_GE(qy_lookup(p).usable, n);
    for (size_t at = 1; at < n; at += 300 * 1024) CHECK_EQ(qy_lookup(p + at).kind, QY_OBJECT_INTERIOR);
    for (size_t at = QY_CHUNK; at < n; at += QY_CHUNK) CHECK_EQ(qy_lookup(p + at).kind, QY_OBJECT_INTERIOR);
    quarry_free(p);
    CHECK_EQ(qy_lookup(p).kind, QY_OBJECT_FREE);
}

TEST(grows_and_shrinks_in_place) {
    char *p = quarry_malloc(5 * MIB);
    write_pages(p, 5 * MIB, 3);
    char *q = quarry_realloc(p, 3 * MIB);
    CHECK_PTR_EQ(q, p);
    CHECK_EQ(qy_lookup(p).usable, 3 * MIB);
    q = quarry_realloc(p, 5 * MIB);  // what was behind it is free again
    CHECK_PTR_EQ(q, p);
    for (size_t at = 0; at < 3 * MIB; at += 4096) CHECK_EQ(p[at], (char)(3 + (char)(at >> 12)));
    quarry_free(p);
}

// A run may shrink below what runs are made for; a block of a slab takes over only where a unit would be more than it
// needs.
TEST(shrinks_to_the_size_of_a_block) {
    size_t held;
    char *p = quarry_malloc(90000);
    memset(p, 7, 90000);
    for (size_t n = 80000; n > QY_UNIT; n -= 1111) {
        CHECK_PTR_EQ(quarry_realloc(p, n), p);
        qy_object_t o = qy_lookup(p);
        CHECK_EQ(o.kind, QY_OBJECT_RUN);
        CHECK_GE(o.usable, n);
        CHECK_LT(o.usable, n + 4096);
        held = (size_t)o.slab->units << QY_UNIT_SHIFT;
        CHECK_LT(held, (size_t)(p - o.slab->base) + n + QY_UNIT);
    }
    CHECK_PTR_EQ(quarry_realloc(p, 60000), p);
    CHECK_EQ(qy_lookup(p).usable, 61440);
    char *q = quarry_realloc(p, 5000);
    CHECK(q != p);
    CHECK_EQ(qy_lookup(q).kind, QY_OBJECT_BLOCK);
    CHECK_EQ(qy_lookup(p).kind, QY_OBJECT_FREE);
    for (int i = 0; i < 5000; i++) CHECK_EQ(q[i], 7);
    quarry_free(q);
}

// Two objects of n bytes, the second in the chunk behind the first; not with pages of other chunks.
static void neighbours(size_t n, char **ret_p, char **ret_wall) {
    char *all[9];
    purge_units(0, 0, 0, SIZE_MAX);
    qy_units_release();
    for (int i = 0; i < 9; i++) CHECK((all[i] = quarry_malloc(n)) != NULL);
    *ret_p = NULL;
    for (int i = 0; i < 9 && !*ret_p; i++)
        for (int k = 0; k < 9; k++)
            if (all[k] == all[i] + qy_round_up(n, QY_CHUNK)) *ret_p = all[i], *ret_wall = all[k];
    CHECK(*ret_p);
    for (int i = 0; i < 9; i++)
        if (all[i] != *ret_p && all[i] != *ret_wall) quarry_free(all[i]);
}

// Where it cannot grow its pages move, and the place they leave is clean.
TEST(growing_moves_pages) {
    char *p, *wall;
    neighbours(6 * MIB, &p, &wall);
    write_pages(p, 6 * MIB, 7);
    char *q = quarry_realloc(p, 9 * MIB);
    CHECK(q && q != p);
    check_pages(q, 6 * MIB, 7);
    for (size_t at = 6 * MIB; at < 9 * MIB; at += 4096) q[at] = 1;
    if (qy_lookup(q).kind == QY_OBJECT_HUGE) {  // else this kernel cannot
        CHECK_EQ(qy_lookup(p).kind, QY_OBJECT_FREE);
        CHECK(is_mapped(p));
        CHECK(is_zero(p, 6 * MIB));
    }
    q = quarry_realloc(q, 40 * MIB);
    check_pages(q, 6 * MIB, 7);
    quarry_free(q);
    quarry_free(wall);
}

// Also behind its end, where a larger size was written before.
TEST(growing_leaves_no_old_bytes) {
    char *p, *wall;
    neighbours(6 * MIB, &p, &wall);
    memset(p, 0xAA, 6 * MIB);
    CHECK_PTR_EQ(quarry_realloc(p, 6 * MIB - 15 * 1024), p);  // as many units
    char *q = quarry_realloc(p, 9 * MIB);
    CHECK(q && q != p);
    if (qy_lookup(q).kind == QY_OBJECT_HUGE) CHECK(is_zero(p, 6 * MIB));
    quarry_free(q);
    quarry_free(wall);
}

TEST(growing_when_the_kernel_denies) {
    for (unsigned from = 1; from < 6; from++) {
        char *p, *wall;
        neighbours(6 * MIB, &p, &wall);
        write_pages(p, 6 * MIB, (char)from);
        quarry_os_fault(from, 1000, FAULT(MOVE) | FAULT(RESERVE) | FAULT(RESIZE) | FAULT(COMMIT));
        char *q = quarry_realloc(p, 30 * MIB);
        quarry_os_fault(0, 0, 0);
        check_pages(q ? q : p, 6 * MIB, (char)from);
        quarry_free(q ? q : p);
        quarry_free(wall);
    }
    qy_units.moves_denied = false;  // perhaps it was: the tests that follow need them
}

// Chunks with holes of four chunks between them, which are dirty and stay so. Returns how many bytes are.
static bool purge_before;
static size_t holes(char *walls[], unsigned count) {
    char *between[100];
    purge_before = qy_opts.purge;
    qy_opts.purge = false;
    atomic_store(&qy_units.grows, false);  // other tests have grown runs
    CHECK_LE(count, 100);
    purge_units(0, 0, 0, SIZE_MAX);
    qy_units_release();
    for (unsigned i = 0; i < count; i++) {
        CHECK((between[i] = quarry_malloc(4 * QY_CHUNK)) != NULL);
        CHECK((walls[i] = quarry_malloc(QY_CHUNK)) != NULL);
        memset(between[i], 0x55, 4 * QY_CHUNK);
        memset(walls[i], (int)i, QY_CHUNK);
    }
    for (unsigned i = 0; i < count; i++) quarry_free(between[i]);
    return qy_units_dirty_bytes();
}
static void free_walls(char *walls[], unsigned count) {
    qy_opts.purge = purge_before;
    for (unsigned i = 0; i < count; i++) {
        for (size_t at = 0; at < QY_CHUNK; at += 4000) CHECK_EQ((unsigned char)walls[i][at], i);
        quarry_free(walls[i]);
    }
}
// What does not fit where free pages are gets them all the same, the end of it in half a chunk too.
TEST(pages_come_to_a_long_run) {
    char *walls[20];
    size_t dirty = holes(walls, 20), n = 12 * QY_CHUNK + QY_CHUNK * 3 / 4;
    CHECK_GE(dirty, 20 * 4 * QY_CHUNK);
    char *p = quarry_malloc(n);
    CHECK_EQ(qy_lookup(p).kind, QY_OBJECT_RUN);
    if (qy_os_thp_always() || qy_units.moves_denied)
        TEST_SKIP("needs a kernel that moves pages, and huge pages that are not always on");
    CHECK_EQ(resident(p, n) * qy_os_page_size(), n);
    CHECK_LE(qy_units_dirty_bytes(), dirty - n);
    // Their places are clean, also where someone looks.
    for (qy_chunk_t *c = qy_units.all; c; c = c->all_next)
        if (c->free == ~(qy_bits_t)0 && !c->dirty) CHECK(is_zero(c->record.base, QY_CHUNK));
    memset(p, 1, n);
    char *q = quarry_calloc(1, n);
    CHECK(is_zero(q, n));
    quarry_free(q);
    quarry_free(p);
    free_walls(walls, 20);
    // A mapping of its own no longer, once it is gone.
    CHECK_GT(qy_units.separate, 0);
    purge_units(0, 0, 0, SIZE_MAX);
    qy_units_release();
    CHECK_EQ(qy_units.separate, 0);
}

// To grow it is copied, once: it is several mappings, which some kernels would begin to move and leave in the middle.
static void grows(void *unused) {
    (void)unused;
    char *walls[20];
    holes(walls, 20);
    size_t n = 12 * QY_CHUNK;
    char *p = quarry_malloc(n);
    if (!qy_units.separate) exit(0);
    write_pages(p, n, 5);
    // All of a limit but some: a move of several mappings would fail after the first.
    struct rlimit data, all = {RLIM_INFINITY, RLIM_INFINITY};
    char text[128];
    int fd = open("/proc/self/statm", O_RDONLY);
    CHECK_GT(read(fd, text, sizeof text), 0);
    close(fd);
    size_t total, rest[4], pages;
    CHECK_EQ(sscanf(text, "%zu %zu %zu %zu %zu %zu", &total, &rest[0], &rest[1], &rest[2], &rest[3], &pages), 6);
    data = all;
    data.rlim_cur = pages * qy_os_page_size() + 5 * QY_CHUNK;
    CHECK_EQ(setrlimit(RLIMIT_DATA, &data), 0);
    char *q = quarry_realloc(p, 40 * MIB);
    CHECK_EQ(setrlimit(RLIMIT_DATA, &all), 0);
    check_pages(q ? q : p, n, 5);
    q = quarry_realloc(q ? q : p, 44 * MIB);
    CHECK_EQ(qy_lookup(q).kind, QY_OBJECT_HUGE);
    check_pages(q, n, 5);
    quarry_free(q);
    // Nothing is moved any more.
    CHECK(atomic_load(&qy_units.grows));
    purge_units(0, 0, 0, SIZE_MAX);
    qy_units_release();
    free_walls(walls, 20);
    holes(walls, 20);
    qy_units_grow();
    CHECK_EQ(qy_units.separate, 0);
    CHECK((p = quarry_malloc(n)) != NULL);
    CHECK_EQ(qy_units.separate, 0);
    quarry_free(p);
    free_walls(walls, 20);
}
TEST(a_run_with_such_pages_grows) { run_apart(grows, NULL); }

// Denied, a chunk's address space is lost, and nothing else; it is not tried again.
static void denied(void *arg) {
    unsigned from = *(unsigned *)arg;
    char *walls[20];
    size_t n = 12 * QY_CHUNK, used = qy_units_mapped_bytes() - qy_units_free_bytes();
    holes(walls, 20);
    size_t mapped = qy_units_mapped_bytes();
    quarry_os_fault(from, 1, FAULT(MOVE));
    char *p = quarry_malloc(n);
    CHECK(p);
    if (qy_os_thp_always() || !quarry_os_fault_hits()) exit(0);
    quarry_os_fault(0, 0, 0);
    CHECK(qy_units.moves_denied);
    CHECK_LE(qy_units_mapped_bytes(), mapped + 2 * n);  // what is lost may lie in the middle
    memset(p, 1, n);
    char *q = quarry_malloc(n);
    memset(q, 2, n);
    for (size_t at = 0; at < n; at += 512) CHECK(p[at] == 1 && q[at] == 2);
    quarry_free(p);
    quarry_free(q);
    free_walls(walls, 20);
    size_t chunks = 0;
    for (qy_chunk_t *c = qy_units.all; c; c = c->all_next, chunks++) CHECK_PTR_EQ(qy_map_chunk(c->record.base), c);
    CHECK_EQ(chunks * QY_CHUNK, qy_units_mapped_bytes());
    CHECK_EQ(qy_units_mapped_bytes() - qy_units_free_bytes(), used);
    purge_units(0, 0, 0, SIZE_MAX);
    CHECK_EQ(qy_units_dirty_bytes(), 0);
}
TEST(pages_do_not_come_when_the_kernel_denies) {
    for (unsigned from = 1; from < 12; from += 5) run_apart(denied, &from);
}

// A child may lack what a thread was about to get when it forked, but not the chunks from which pages were on their way
// to it.
static _Atomic bool stop_moving;
static void *keep_moving(void *unused) {
    char *p[8] = {0};
    uint64_t random = test_seed;
    for (unsigned i = 0; !stop_moving; i = (i + 1) % 8) {
        size_t n = 2 * QY_CHUNK + test_random(&random) % (5 * QY_CHUNK);
        quarry_free(p[i]);
        CHECK((p[i] = quarry_malloc(n)) != NULL);
        memset(p[i], 1, n);
    }
    for (unsigned i = 0; i < 8; i++) quarry_free(p[i]);
    return unused;
}
TEST(forks_while_pages_move) {
    if (QY_TSAN || QY_ASAN)
        TEST_SKIP("needs a build without sanitizers: they do not survive the fork of a busy process");
    pthread_t thread;
    stop_moving = false;
    CHECK_EQ(pthread_create(&thread, NULL, keep_moving, NULL), 0);
    for (int i = 0; i < 300; i++) {
        pid_t child = fork();
        CHECK_GE(child, 0);
        if (!child) {
            size_t nobodys = 0;
            for (qy_chunk_t *c = qy_units.all; c; c = c->all_next)
                for (unsigned k = 0; k < QY_CHUNK_UNITS; k++) nobodys += !(c->free >> k & 1) && !c->span[k];
            char *p = quarry_malloc(9 * MIB);
            memset(p, 1, 9 * MIB);
            _exit(nobodys > 7 * QY_CHUNK_UNITS);
        }
        int status;
        CHECK_EQ(waitpid(child, &status, 0), child);
        CHECK_EQ(status, 0);
    }
    stop_moving = true;
    CHECK_EQ(pthread_join(thread, NULL), 0);
}

// Pages of four units: what shares a page with something else neither goes back nor moves.
static void larger_than_a_unit(void *unused) {
    (void)unused;
    enum { COUNT = 1200 };
    static char *all[COUNT];
    const size_t odd = 33 * QY_UNIT;
    quarry_os_fake_page_size(4 * QY_UNIT);
    qy_opts.purge_thread = true;  // it sleeps for minutes, and what is too much is given back by who frees it
    for (int i = 0; i < COUNT; i++) {
        CHECK(all[i] = quarry_malloc(odd));
        all[i][0] = all[i][odd - 1] = (char)(i % 100 + 1);
    }
    for (int i = 0; i < COUNT; i++)
        if (i % 3) quarry_free(all[i]);
    for (int i = 0; i < COUNT; i += 3) CHECK(all[i][0] == i % 100 + 1 && all[i][odd - 1] == i % 100 + 1);
    for (size_t n = 6 * MIB; n < 6 * MIB + 8 * QY_UNIT; n += QY_UNIT) {
        char *p, *wall;
        neighbours(n, &p, &wall);
        write_pages(p, n, 7);
        wall[0] = 9;
        char *q = quarry_realloc(p, 9 * MIB);
        CHECK(q && q != p);
        check_pages(q, n, 7);
        CHECK_EQ(wall[0], 9);
        quarry_free(q);
        quarry_free(wall);
    }
    qy_purge_everything();
}
TEST(pages_larger_than_a_unit) { run_apart(larger_than_a_unit, NULL); }

// Where one thread has no memory, chunks are given back that another one is just freeing to.
static _Atomic int freeing;
static void *free_long_runs(void *unused) {
    for (int i = 0; i < (QY_TSAN ? 4000 : 20000); i++) {
        char *p = quarry_malloc(30 * MIB);
        CHECK(p);
        p[0] = 1;
        quarry_free(p);
    }
    freeing--;
    return unused;
}
static void *run_out(void *unused) {
    while (freeing) {
        CHECK(!quarry_malloc(((size_t)1 << 47) - ((size_t)1 << 30)));
        char *p = quarry_malloc(600000);
        CHECK(p);
        p[0] = 1;
        quarry_free(p);
    }
    return unused;
}
TEST(freed_while_memory_runs_out) {
    pthread_t threads[4];
    freeing = 2;
    for (int i = 0; i < 4; i++) CHECK_EQ(pthread_create(&threads[i], NULL, i % 2 ? run_out : free_long_runs, NULL), 0);
    for (int i = 0; i < 4; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
    CHECK(!qy_heap_verify(qy_thread_get()->heap));
}

TEST(of_a_heap) {
    quarry_heap_t *h = quarry_heap_create(&(quarry_heap_options_t){.name = "long", .limit = 64 * MIB});
    char *p = quarry_heap_alloc(h, 20 * MIB), *q = quarry_heap_alloc(h, 30 * MIB);
    CHECK(p && q);
    CHECK(!quarry_heap_alloc(h, 20 * MIB));  // over its limit
    write_pages(p, 20 * MIB, 5);
    char *r = quarry_heap_realloc(h, p, 25 * MIB);
    if (r) check_pages(r, 20 * MIB, 5);
    quarry_heap_destroy(h);
}

TEST(double_free_is_named) {
    char *p = quarry_malloc(5 * MIB);
    quarry_free(p);
    CHECK_EQ(qy_lookup(p).kind, QY_OBJECT_FREE);
}

TEST_MAIN()
