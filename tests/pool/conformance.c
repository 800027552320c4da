// SPDX-License-Identifier: MIT
// conformance.c: what every pool promises through pool.h, tried on every kind, on every parent it accepts.
#include <quarry/malloc.h>
#include <quarry/short.h>

#include "bytes.h"
#include "captured.h"
#include "kinds.h"
#include "os/fake.h"
#include "os/os.h"
#include "pool/pool.h"
#include "resident.h"

pool_kind_t *pool_kinds;

#define KIB ((size_t)1024)
#define MIB (KIB * KIB)

// ---- a pool under test ------------------------------------------------------------------------------

static pool_kind_t *kind;
static unsigned mode;  // of the pool opened last

static bool can(quarry_pool_t *pool, unsigned capability) { return quarry_pool_capabilities(pool) & capability; }

static quarry_pool_t *open_pool(const quarry_pool_options_t *options) {
    quarry_pool_t *pool = kind->create(options);
    if (pool) mode = pool->mode;
    if (pool && kind->begin) kind->begin(pool);
    return pool;
}
static void close_pool(quarry_pool_t *pool) {
    if (kind->end) kind->end(pool);
    if (kind->destroy) kind->destroy(pool);
    else quarry_pool_destroy(pool);
}
static quarry_pool_t *fresh(void) {
    quarry_pool_t *pool = open_pool(NULL);
    CHECK(pool);
    return pool;
}

// Each test for each kind, which is named in what a failure prints.
#define POOL_TEST(test_name)                               \
    static void test_name##_of_kind(void);                 \
    TEST(test_name) {                                      \
        for (kind = pool_kinds; kind; kind = kind->next) { \
            printf("  %s\n", kind->name);                  \
            test_name##_of_kind();                         \
        }                                                  \
    }                                                      \
    static void test_name##_of_kind(void)

// The key of a pattern is an address.
static void write_pattern(unsigned char *p, const void *key, size_t n) { bytes_fill(p, n, (uintptr_t)key); }
static void expect_pattern(const unsigned char *p, const void *key, size_t n) {
    size_t i = bytes_differ(p, n, (uintptr_t)key);
    if (i < n)
        TEST_FAIL(
            "%s: byte %zu of %p is %02x, not %02x", kind->name, i, (const void *)p, p[i], bytes_at((uintptr_t)key, i));
}
static void expect_zero(const unsigned char *p, size_t from, size_t to) {
    if (from >= to) return;
    size_t i = from + bytes_nonzero(p + from, to - from);
    if (i < to) TEST_FAIL("%s: byte %zu of %p is %02x, not zero", kind->name, i, (const void *)p, p[i]);
}

// ---- alloc --------------------------------------------------------------------------------------------

POOL_TEST(sizes_and_alignments) {
    static const size_t sizes[] = {0, 1, 3, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100, 127, 129, 500, 1000, 1025, 4095, 4096,
        4097, 10000, 65535, 65536, 65537, 200000, MIB + 5};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    quarry_pool_t *pool = fresh();
    for (size_t align = 1; align <= pool->ops->max_alignment && align <= 64 * KIB; align *= 2) {
        unsigned char *p[SIZES];
        for (int i = 0; i < SIZES; i++) {
            bool zero = i & 1;
            p[i] = quarry_pool_alloc(pool, sizes[i], align, zero ? QUARRY_POOL_ZERO : 0);
            CHECK(p[i]);
            CHECK_EQ((uintptr_t)p[i] & (align - 1), 0);
            if (zero) expect_zero(p[i], 0, sizes[i]);
            write_pattern(p[i], p[i], sizes[i]);
        }
        for (int i = 0; i < SIZES; i++) {
            expect_pattern(p[i], p[i], sizes[i]);  // nobody's block overlaps
            if (can(pool, QUARRY_POOL_SIZES)) CHECK_GE(quarry_pool_usable(pool, p[i]), sizes[i]);
        }
        for (int i = 0; i < SIZES; i++) quarry_pool_free(pool, p[i], sizes[i]);
        CHECK_EQ(quarry_pool_check(pool), 0);
    }
    close_pool(pool);
}

POOL_TEST(refusals) {
    quarry_pool_t *pool = fresh();
    static const size_t bad_alignments[] = {0, 3, 24, (size_t)PTRDIFF_MAX + 2, SIZE_MAX};
    for (unsigned i = 0; i < sizeof bad_alignments / sizeof *bad_alignments; i++) {
        errno = 77;
        CHECK(!quarry_pool_alloc(pool, 10, bad_alignments[i], 0));
        CHECK_EQ(errno, EINVAL);
    }
    if (pool->ops->max_alignment <= SIZE_MAX / 2) {
        errno = 77;
        CHECK(!quarry_pool_alloc(pool, 10, pool->ops->max_alignment * 2, 0));
        CHECK_EQ(errno, EINVAL);
    }
    unsigned char *p = quarry_pool_alloc(pool, 100, 1, 0);
    CHECK(p);
    write_pattern(p, p, 100);
    for (size_t k = 0; k < 65600; k += k < 300 ? 1 : 997) {
        errno = 77;
        CHECK(!quarry_pool_alloc(pool, SIZE_MAX - k, 16, QUARRY_POOL_ZERO));
        CHECK_EQ(errno, ENOMEM);
        errno = 77;
        CHECK(!quarry_pool_alloc(pool, (size_t)PTRDIFF_MAX + 1 - k, 8, 0));
        CHECK_EQ(errno, ENOMEM);
        errno = 77;
        CHECK(!quarry_pool_resize(pool, p, 100, SIZE_MAX - k, 1, 0));
        CHECK_EQ(errno, ENOMEM);
        errno = 77;
        CHECK(!quarry_pool_resize(pool, p, 100, (size_t)PTRDIFF_MAX + 1 - k, 1, 0));
        CHECK_EQ(errno, ENOMEM);
    }
    expect_pattern(p, p, 100);
    CHECK_EQ(quarry_pool_check(pool), 0);
    close_pool(pool);
}

typedef struct tail {
    long head;
    short count;
    int items[];
} tail_t;

POOL_TEST(macros) {
    quarry_pool_t *pool = fresh();
    volatile size_t n = 10;  // a constant that is too large would not compile
    long *a = p_new(pool, long, n);
    CHECK(a);
    expect_zero((unsigned char *)a, 0, n * sizeof *a);
    for (size_t i = 0; i < n; i++) a[i] = (long)i;
    char *raw = p_new_raw(pool, char, 33);
    CHECK(raw);
    memset(raw, 'r', 33);
    long *copy = p_dup(pool, a, n);
    CHECK(copy && copy[9] == 9);
    long double *wide = p_new(pool, long double, 2), *wide_copy = p_dup(pool, wide, 2);
    CHECK_EQ((uintptr_t)wide_copy % _Alignof(long double), 0);
    CHECK(p_renew(pool, &a, 10, 2000) == a);
    CHECK(a[9] == 9 && a[10] == 0 && a[1999] == 0);
    CHECK(p_renew_raw(pool, &a, 2000, 5) == a && a[4] == 4);
    long *before = a;
    n = SIZE_MAX / sizeof(long) + 2;  // the product wraps to one element
    errno = 77;
    CHECK(!p_new(pool, long, n));
    CHECK_EQ(errno, ENOMEM);
    CHECK(!p_new_raw(pool, long, n));
    CHECK(!p_renew(pool, &a, 5, n));
    CHECK_PTR_EQ(a, before);
    CHECK(!p_new_extra(pool, long, n * sizeof(long) - 12));
    CHECK(!p_new_extra_raw(pool, long, n * sizeof(long) - 12));
    CHECK(!p_new_extra_field(pool, tail_t, items, n));
    CHECK(!p_new_extra_field_raw(pool, tail_t, items, n));
    CHECK(!p_dup(pool, a, n));
    tail_t *t = p_new_extra_field(pool, tail_t, items, 3);
    CHECK(t && t->items[2] == 0);
    t = p_new_extra_field_raw(pool, tail_t, items, 0);  // never less than the structure
    CHECK(t);
    memset(t, 1, sizeof *t);
    tail_t *x = p_new_extra(pool, tail_t, 100);
    CHECK(x);
    expect_zero((unsigned char *)x, 0, sizeof *x + 100);
    x = p_new_extra_raw(pool, tail_t, 100);
    CHECK(x);
    memset(x, 1, sizeof *x + 100);
    char *s = p_strdup(pool, "hello"), *z = p_dupz(pool, "hello", 2), *f = quarry_pool_printf(pool, "%d-%s", 42, "x");
    CHECK_STR_EQ(s, "hello");
    CHECK_STR_EQ(z, "he");
    CHECK_STR_EQ(f, "42-x");
    char *long_text = quarry_pool_printf(pool, "%*d", 3000, 7);
    CHECK(long_text && strlen(long_text) == 3000 && long_text[2999] == '7');
    if (can(pool, QUARRY_POOL_SIZES) || can(pool, QUARRY_POOL_FRAMES)) {
        p_delete(pool, &s);
        CHECK(!s);
        p_delete(pool, &s);  // may be repeated
    }
    close_pool(pool);
}

// ---- resize and free --------------------------------------------------------------------------------------

POOL_TEST(resize_keeps_and_zeroes) {
    quarry_pool_t *pool = fresh();
    static const size_t steps[] = {
        100, 101, 300, 299, 30, 31, 5000, 4000, 70000, 69999, 12, 900000, 1, 2 * MIB, 5, 200};
    unsigned char *p = NULL;
    size_t n = 0;
    for (unsigned i = 0; i < sizeof steps / sizeof *steps; i++) {
        // A neighbour now and then, so that some cannot grow in place.
        if (i % 3 == 0) CHECK(quarry_pool_alloc(pool, 24, 8, 0));
        p = quarry_pool_resize(pool, p, n, steps[i], 8, QUARRY_POOL_ZERO);
        CHECK(p);
        size_t kept = n < steps[i] ? n : steps[i];
        expect_pattern(p, &steps, kept);
        expect_zero(p, kept, steps[i]);  // also what was there before it shrank
        n = steps[i];
        write_pattern(p, &steps, n);
    }
    // Raw: no promise about the new bytes, all of it about the old ones.
    p = quarry_pool_resize(pool, p, n, 3 * n, 8, 0);
    CHECK(p);
    expect_pattern(p, &steps, n);
    memset(p, 1, 3 * n);
    quarry_pool_free(pool, p, 3 * n);
    close_pool(pool);
}

// A pool as a program has it that has run for a while: blocks came and went.
static quarry_pool_t *used_before(void) {
    if (strstr(kind->name, "heap")) quarry_trim(0);  // pages that other tests have left to all heaps
    quarry_pool_t *pool = fresh();
    for (int i = 0; i < 12; i++) {
        size_t size = (size_t)40 << i % 6;
        void *p = quarry_pool_alloc(pool, size, 8, 0);
        CHECK(p);
        memset(p, 0xDD, size);
        quarry_pool_free(pool, p, size);
    }
    return pool;
}

// A block that grows by zeros: those that nobody had used are not there, but for `most` pages.
static void grows_untouched(size_t from, size_t to, size_t most) {
    quarry_pool_t *pool = used_before();
    unsigned char *p = quarry_pool_alloc(pool, from, 8, QUARRY_POOL_ZERO);
    CHECK(p);
    write_pattern(p, &grows_untouched, from);
    p = quarry_pool_resize(pool, p, from, to, 8, QUARRY_POOL_ZERO);
    CHECK(p);
    size_t pages = resident_pages(p, to);
    if (pages > most + from / qy_os_page_size())
        TEST_FAIL("%s: %zu pages are resident of %zu bytes that were %zu", kind->name, pages, to, from);
    expect_pattern(p, &grows_untouched, from);
    expect_zero(p, from, to);
    quarry_pool_free(pool, p, to);
    CHECK_EQ(quarry_pool_check(pool), 0);
    close_pool(pool);
}

// Zeroed memory that is fresh from the kernel is not cleared again, also if the pool was used before.
POOL_TEST(fresh_memory_stays_untouched) {
    enum { BLOCKS = 60,
        SIZE = 200000 };
    if (kind->clears) return;
    quarry_pool_t *pool = used_before();
    size_t pages = 0;
    unsigned char *p[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        CHECK((p[i] = quarry_pool_alloc(pool, SIZE, i % 2 ? 64 : 8, QUARRY_POOL_ZERO)));
        pages += resident_pages(p[i], SIZE);
    }
    for (int i = 0; i < BLOCKS; i++) expect_zero(p[i], 0, SIZE);
    for (int i = 0; i < BLOCKS; i++) quarry_pool_free(pool, p[i], SIZE);
    CHECK_EQ(quarry_pool_check(pool), 0);
    close_pool(pool);
    if (mode & QY_MODE_OBSERVED) return;  // guard zones are written, and the bytes that show that a block is raw
    printf("    %zu pages for %d blocks\n", pages, BLOCKS);
    if (pages > 4 * BLOCKS) TEST_FAIL("%s: %zu pages", kind->name, pages);
    grows_untouched(100, 300000, 10);
    grows_untouched(100, 8 * MIB, 10);
    grows_untouched(SIZE, 9 * MIB, 10);
    grows_untouched(2 * MIB, 12 * MIB, 10);
}

POOL_TEST(free_is_quiet) {
    quarry_pool_t *pool = fresh();
    void *p = quarry_pool_alloc(pool, 100, 8, 0), *big = quarry_pool_alloc(pool, 3 * MIB, 8, 0);
    errno = 77;
    quarry_pool_free(pool, NULL, 10);
    quarry_pool_free(pool, big, 3 * MIB);
    quarry_pool_free(pool, p, 100);
    CHECK_EQ(errno, 77);
    close_pool(pool);
}

// Random operations against a shadow.
enum { SLOTS = 200 };
typedef struct shadow {
    unsigned char *p;
    size_t n;
    char key;  // its address is the pattern's key
} shadow_t;

static size_t random_size(uint64_t *state) {
    uint64_t r = test_random(state);
    unsigned bits = r % 100 < 90 ? 3 + r / 128 % 8 : 11 + r / 128 % 7;
    return (size_t)(test_random(state) & (((uint64_t)1 << bits) - 1));
}

static void random_step(quarry_pool_t *pool, shadow_t *s, uint64_t *state) {
    uint64_t r = test_random(state);
    size_t n = random_size(state), align = (size_t)1 << r / 16 % 7;
    if (align > pool->ops->max_alignment) align = pool->ops->max_alignment;
    unsigned flags = r & 8 ? QUARRY_POOL_ZERO : 0;
    if (s->p) expect_pattern(s->p, &s->key, s->n);
    if (s->p && r % 3 == 0) {
        unsigned char *p = quarry_pool_resize(pool, s->p, s->n, n, 1, flags);
        if (!p) return;
        size_t kept = s->n < n ? s->n : n;
        expect_pattern(p, &s->key, kept);
        if (flags) expect_zero(p, kept, n);
        s->p = p;
    } else {
        if (s->p) quarry_pool_free(pool, s->p, s->n);
        s->p = quarry_pool_alloc(pool, n, align, flags);
        if (!s->p) return;
        CHECK_EQ((uintptr_t)s->p & (align - 1), 0);
        if (flags) expect_zero(s->p, 0, n);
    }
    s->n = n;
    write_pattern(s->p, &s->key, n);
}

// QUARRY_STEPS: no more than so many at a time.
static void random_steps(quarry_pool_t *pool, int steps, uint64_t seed) {
    const char *most = getenv("QUARRY_STEPS");
    if (most) steps = atoi(most) < steps ? atoi(most) : steps;
    static shadow_t slots[SLOTS];
    memset(slots, 0, sizeof slots);
    uint64_t state = seed;
    for (int i = 0; i < steps; i++) {
        random_step(pool, &slots[test_random(&state) % SLOTS], &state);
        if (i % 2000 == 1999) CHECK_EQ(quarry_pool_check(pool), 0);
        if (i % 500 == 499 && kind->end) {  // frames end with all that is in them
            for (int k = 0; k < SLOTS; k++)
                if (slots[k].p) expect_pattern(slots[k].p, &slots[k].key, slots[k].n);
            kind->end(pool);
            kind->begin(pool);
            memset(slots, 0, sizeof slots);
        }
    }
    for (int k = 0; k < SLOTS; k++)
        if (slots[k].p) {
            expect_pattern(slots[k].p, &slots[k].key, slots[k].n);
            quarry_pool_free(pool, slots[k].p, slots[k].n);
        }
    CHECK_EQ(quarry_pool_check(pool), 0);
}

POOL_TEST(random_model) {
    quarry_pool_t *pool = fresh();
    random_steps(pool, 20000, test_seed);
    close_pool(pool);
}

// ---- parents, limits, statistics ------------------------------------------------------------------------------

POOL_TEST(on_every_parent) {
    for (pool_kind_t *k = pool_kinds; k; k = k->next) {
        quarry_pool_t *parent = k->create(NULL);
        CHECK(parent);
        if ((parent->ops->capabilities & QUARRY_POOL_FREES)) {
            quarry_pool_t *pool = open_pool(&(quarry_pool_options_t){.name = "child", .parent = parent});
            // A kind that needs alignments its parent does not give says so at once.
            if (pool) {
                random_steps(pool, 3000, test_seed);
                close_pool(pool);
            } else {
                CHECK(errno == EINVAL || errno == ENOMEM);
                printf("    not on %s\n", k->name);
            }
            CHECK_EQ(quarry_pool_check(parent), 0);
        }
        if (k->destroy) k->destroy(parent);
        else quarry_pool_destroy(parent);
    }
}

// A parent that counts what it has given out.
static size_t outstanding_blocks, outstanding_bytes;
static bool passing;  // a child is being made or destroyed: nobody sees it
static unsigned passing_calls, passing_seen;
static int count_children(quarry_pool_t *pool, void *parent) {
    // One that waits for its last blocks is whole, and can be seen.
    passing_seen += quarry_pool_parent(pool) == parent && pool->alive == QY_POOL_ALIVE;
    return 0;
}
static void look_around(quarry_pool_t *parent) {
    if (!passing) return;
    passing_calls++;
    quarry_pools_walk(count_children, parent);
}
static void *counting_alloc(quarry_pool_t *pool, size_t size, size_t alignment, unsigned flags) {
    look_around(pool);
    void *p = quarry_pool_alloc(quarry_libc_pool(), size, alignment, flags);
    if (p) outstanding_blocks++, outstanding_bytes += size, memset(p, flags & QUARRY_POOL_ZERO ? 0 : 0xA5, size);
    return p;
}
static void *counting_resize(
    quarry_pool_t *pool, void *ptr, size_t old_size, size_t size, size_t alignment, unsigned flags) {
    (void)pool;
    void *p = quarry_pool_resize(quarry_libc_pool(), ptr, old_size, size, alignment, flags);
    if (p) outstanding_bytes += size - old_size;
    return p;
}
static void counting_free(quarry_pool_t *pool, void *ptr, size_t size) {
    look_around(pool);
    outstanding_blocks--;
    outstanding_bytes -= size;
    quarry_pool_free(quarry_libc_pool(), ptr, size);
}
static const quarry_pool_ops_t counting_ops = {.kind = "counting",
    .capabilities = QUARRY_POOL_FREES,
    .max_alignment = MIB,
    .alloc = counting_alloc,
    .resize = counting_resize,
    .free = counting_free,
    .destroy = qy_pool_drop};

POOL_TEST(all_goes_back_to_the_parent) {
    quarry_pool_t *parent = qy_pool_new(&counting_ops, sizeof *parent, NULL);
    CHECK(parent);
    outstanding_blocks = outstanding_bytes = 0;
    for (int live = 0; live < 2; live++) {
        quarry_pool_t *pool = open_pool(&(quarry_pool_options_t){.parent = parent});
        CHECK(pool);
        random_steps(pool, 5000, test_seed);
        // With blocks still there, or without.
        for (int i = 0; live && !kind->begin && i < 100; i++) CHECK(quarry_pool_alloc(pool, (size_t)i * 300, 8, 0));
        if (live && can(pool, QUARRY_POOL_FREES) && !strcmp(kind->name, "fifo")) {
            close_pool(pool);  // deferred: tested by the kind itself
            break;
        }
        close_pool(pool);
        CHECK_EQ(outstanding_blocks, 0);
        CHECK_EQ(outstanding_bytes, 0);
    }
    if (!outstanding_blocks) quarry_pool_destroy(parent);
}

// Who looks at all pools meets none that is half made or half destroyed: what it asks of them may not be there.
POOL_TEST(half_made_pools_are_not_seen) {
    quarry_pool_t *parent = qy_pool_new(&counting_ops, sizeof *parent, NULL);
    CHECK(parent);
    outstanding_blocks = outstanding_bytes = passing_calls = passing_seen = 0;
    passing = true;
    quarry_pool_t *pool = kind->create(&(quarry_pool_options_t){.parent = parent});
    passing = false;
    CHECK(pool);
    if (quarry_pool_parent(pool) == parent) {
        quarry_pools_walk(count_children, parent);
        CHECK_EQ(passing_seen, 1);
        passing_seen = 0;
    }
    if (kind->begin) kind->begin(pool);
    void *p = quarry_pool_alloc(pool, 100, 8, 0);
    CHECK(p);
    quarry_pool_free(pool, p, 100);
    if (kind->end) kind->end(pool);
    passing = true;
    if (kind->destroy) kind->destroy(pool);
    else quarry_pool_destroy(pool);
    passing = false;
    printf("    %u calls\n", passing_calls);
    CHECK_EQ(passing_seen, 0);
    quarry_pool_destroy(parent);
}

POOL_TEST(limits) {
    const size_t limit = 4 * MIB;
    quarry_pool_t *pool = open_pool(
        &(quarry_pool_options_t){.name = "a name that is much longer than what is kept of it", .limit = limit});
    CHECK(pool);
    if (!strcmp(kind->name, "libc") || !strcmp(kind->name, "general_heap")) {  // have none
        close_pool(pool);
        return;
    }
    quarry_pool_stats_t s;
    size_t got = 0;
    quarry_pool_stats(pool, &s);
    uint64_t allocs = s.allocs;
    for (void *p; (p = quarry_pool_alloc(pool, 10000, 8, 0)); got++) memset(p, 1, 10000);
    CHECK_EQ(errno, ENOMEM);
    quarry_pool_stats(pool, &s);
    CHECK_LE(s.held_bytes, limit);
    CHECK_GE(s.held_bytes, limit / 4);
    // What was refused is no allocation.
    if (mode) CHECK_EQ(s.allocs, allocs + got);
    CHECK_EQ(s.limit, limit);
    CHECK_LE(got * 10000, limit);
    CHECK_GE(got * 10000, limit / 4);
    CHECK_EQ(strlen(s.name), 31);
    CHECK(!quarry_pool_alloc(pool, 2 * limit, 8, 0));
    if (!kind->destroy) {
        quarry_pool_set_limit(pool, 0);
        CHECK(quarry_pool_alloc(pool, 2 * limit, 8, 0));
    }
    CHECK_EQ(quarry_pool_check(pool), 0);
    close_pool(pool);
}

POOL_TEST(statistics) {
    quarry_pool_t *pool = open_pool(&(quarry_pool_options_t){.name = "counted"});
    CHECK(pool);
    if (!strcmp(kind->name, "libc") || !strcmp(kind->name, "general_heap")) {
        close_pool(pool);
        return;
    }
    quarry_pool_stats_t before, during;
    quarry_pool_stats(pool, &before);
    CHECK_STR_EQ(before.kind, quarry_pool_kind(pool));
    CHECK_STR_EQ(before.name, "counted");
    CHECK_STR_EQ(quarry_pool_name(pool), "counted");
    void *p[100];
    for (int i = 0; i < 100; i++) CHECK((p[i] = quarry_pool_alloc(pool, 5000, 8, 0)));
    quarry_pool_stats(pool, &during);
    CHECK_GE(during.used_bytes, before.used_bytes + 500000);
    CHECK_LE(during.used_bytes, before.used_bytes + 1000000);
    CHECK(pool->mode & QY_MODE_PASS || during.held_bytes >= during.used_bytes);
    CHECK_GE(during.peak_held_bytes, before.peak_held_bytes);
    bool observed = pool->info->observer != NULL;
    if (observed) {
        CHECK_EQ(during.allocs, before.allocs + 100);
        CHECK_EQ(during.requested_bytes, before.requested_bytes + 500000);
        // And for the log, if there is one.
        if (mode & QY_MODE_COUNTED) CHECK_EQ(atomic_load(&pool->info->allocs), during.allocs);
    }
    for (int i = 0; i < 100; i++) quarry_pool_free(pool, p[i], 5000);
    if (can(pool, QUARRY_POOL_FREES)) {
        quarry_pool_stats_t after;
        quarry_pool_stats(pool, &after);
        CHECK_LE(after.used_bytes, before.used_bytes + 8192);
        if (observed) CHECK_EQ(after.frees, before.frees + 100);
    }
    close_pool(pool);
}

static int count_named(quarry_pool_t *pool, void *arg) {
    if (!strcmp(quarry_pool_name(pool), "listed")) ++*(int *)arg;
    return 0;
}

POOL_TEST(lists) {
    if (!strcmp(kind->name, "libc")) return;
    quarry_pool_t *a = open_pool(&(quarry_pool_options_t){.name = "listed"});
    quarry_pool_t *b = kind->create(&(quarry_pool_options_t){.name = "listed", .flags = QUARRY_POOL_UNTRACKED});
    int found = 0;
    CHECK_EQ(quarry_pools_walk(count_named, &found), 0);
    CHECK_EQ(found, 1);
    captured_t c = {.length = 0};
    int fds[2];
    CHECK_EQ(pipe(fds), 0);
    CHECK_EQ(quarry_pools_write(fds[1], 1), 0);
    ssize_t n = read(fds[0], c.text, sizeof c.text - 1);
    CHECK_GT(n, 0);
    CHECK(strstr(c.text, "\"name\":\"listed\""));
    CHECK_EQ(quarry_pools_write(fds[1], 0), 0);
    n = read(fds[0], c.text, sizeof c.text - 1);
    c.text[n] = '\0';
    CHECK(strstr(c.text, "listed") && strstr(c.text, "total"));
    close(fds[0]);
    close(fds[1]);
    close_pool(a);
    if (kind->destroy) kind->destroy(b);
    else quarry_pool_destroy(b);
    found = 0;
    quarry_pools_walk(count_named, &found);
    CHECK_EQ(found, 0);
}

// ---- the kernel says no ---------------------------------------------------------------------------------------

// The n-th call to the kernel fails, once or from then on: NULL and ENOMEM at worst, all blocks as they were, and
// all is well afterwards.
static void refused_from(uint64_t n, int persist, bool *ret_met) {
    quarry_os_fault(n, persist, ~(1u << QY_OS_WRITE));
    quarry_pool_t *pool = open_pool(NULL);
    if (pool) {
        uint64_t state = 5;
        static shadow_t slots[40];
        memset(slots, 0, sizeof slots);
        for (int i = 0; i < 400; i++) random_step(pool, &slots[test_random(&state) % 40], &state);
        *ret_met = quarry_os_fault_hits() > 0;
        quarry_os_fault(0, 0, 0);
        CHECK_EQ(quarry_pool_check(pool), 0);
        for (int i = 0; i < 400; i++) {
            shadow_t *s = &slots[test_random(&state) % 40];
            random_step(pool, s, &state);
            CHECK(s->p);
        }
        close_pool(pool);
    } else {
        CHECK(errno == ENOMEM || errno == EINVAL);
        *ret_met = quarry_os_fault_hits() > 0;
        quarry_os_fault(0, 0, 0);
    }
}

POOL_TEST(kernel_refuses) {
    // tests/fault
    if (!strcmp(kind->name, "libc") || !strcmp(kind->name, "heap") || !strcmp(kind->name, "general_heap")) return;
    for (int persist = 0; persist < 2; persist++) {
        bool met = true;
        uint64_t n = 1;
        for (; met && n < 3000; n++) refused_from(n, persist, &met);
        CHECK(!met);
        CHECK(n > 2 || mode & QY_MODE_PASS);  // there was something to refuse
    }
}

// ---- misuse -----------------------------------------------------------------------------------------------------

static void destroy_twice(void *arg) {
    (void)arg;
    quarry_pool_t *pool = kind->create(NULL);
    quarry_pool_destroy(pool);
    quarry_pool_destroy(pool);
}
static void destroy_parent(void *arg) {
    (void)arg;
    quarry_pool_t *parent = kind->create(NULL);
    quarry_heap_pool(NULL, &(quarry_pool_options_t){.parent = parent});
    quarry_pool_destroy(parent);
}
static void no_memory(void *arg) {
    (void)arg;
    quarry_pool_t *pool = open_pool(&(quarry_pool_options_t){.flags = QUARRY_POOL_ABORT});
    quarry_pool_alloc(pool, (size_t)PTRDIFF_MAX - 100000, 1, 0);
}
static void dies(void (*body)(void *), const char *word) {
    captured_t c = capture(body, NULL);
    if (c.exit_signal != SIGABRT || !strstr(c.text, word))
        TEST_FAIL("%s: signal %d, \"%.300s\", wanted \"%s\"", kind->name, c.exit_signal, c.text, word);
}

POOL_TEST(misuse_ends_it) {
    if (!strcmp(kind->name, "libc")) return;
    if (!kind->destroy) {
        dies(destroy_twice, "use of a destroyed pool");
        dies(destroy_parent, "destroyed pool is a parent");
    }
    dies(no_memory, "out of memory");
}

// ---- fork -----------------------------------------------------------------------------------------------------------

static void use_in_child(void *arg) {
    quarry_pool_t *pool = arg;
    uint64_t state = 9;
    shadow_t s = {0};
    for (int i = 0; i < 200; i++) random_step(pool, &s, &state);
    CHECK_EQ(quarry_pool_check(pool), 0);
}
POOL_TEST(forks) {
    quarry_pool_t *pool = fresh();
    unsigned char *p = quarry_pool_alloc(pool, 5000, 8, 0);
    write_pattern(p, p, 5000);
    if (!can(pool, QUARRY_POOL_PERSISTENT)) run_apart(use_in_child, pool);
    expect_pattern(p, p, 5000);
    close_pool(pool);
}

// Is the name one of the list, which has commas between names?
static bool listed(const char *list, const char *name) {
    size_t n = strlen(name);
    for (const char *at = list; (at = strstr(at, name)) != NULL; at += n)
        if ((at == list || at[-1] == ',') && (at[n] == ',' || !at[n])) return true;
    return false;
}

// The argument --kind=NAME,... leaves the other kinds out.
int main(int argc, char **argv) {
    const char *only = NULL;
    for (int i = 1; i < argc; i++)
        if (!strncmp(argv[i], "--kind=", 7)) only = argv[i] + 7;
    for (pool_kind_t **k = &pool_kinds; only && *k;)
        if (!listed(only, (*k)->name)) *k = (*k)->next;
        else k = &(*k)->next;
    return pool_kinds ? test_main(argc, argv) : 2;
}
