// SPDX-License-Identifier: MIT
// test_fifo.c: where a FIFO's blocks lie, which pages it keeps, and what it promises about their bytes.
#include <pthread.h>
#include <quarry/fifo.h>
#include <quarry/short.h>

#include "captured.h"
#include "common/queue.h"
#include "os/fake.h"
#include "os/os.h"
#include "pool/fifo.h"
#include "pool_test.h"

#define KIB ((size_t)1024)
#define PAGE (64 * KIB)

static quarry_pool_t *make(quarry_fifo_options_t options) {
    quarry_pool_t *pool = quarry_fifo_create(&options);
    CHECK(pool);
    return pool;
}
static qy_fifo_t *inside(quarry_pool_t *pool) { return (qy_fifo_t *)pool; }

// Fill the current page with blocks of `size`, up to `most`, until the next would not fit.
static size_t fill(quarry_pool_t *pool, char **blocks, size_t most, size_t size) {
    size_t n = 0;
    while (n < most && (size_t)(inside(pool)->end - qy_fifo_pos(inside(pool))) >= size)
        CHECK((blocks[n++] = quarry_pool_alloc(pool, size, 8, 0)));
    return n;
}

// ---- where blocks lie ----------------------------------------------------------------------------------

TEST(blocks_are_adjacent) {
    quarry_pool_t *pool = make((quarry_fifo_options_t){0});
    CHECK_EQ(stats_of(pool).chunk_gets, 1);  // one page from the start
    char *first = quarry_pool_alloc(pool, 24, 8, 0), *p = first;
    for (size_t i = 1; i < 1000; i++) {
        char *q = quarry_pool_alloc(pool, 24, 1, 0);
        CHECK_PTR_EQ(q, p + 24);  // no header between them
        p = q;
    }
    p = quarry_pool_alloc(pool, 13, 1, 0);
    CHECK_PTR_EQ(quarry_pool_alloc(pool, 1, 1, 0), p + 16);  // sizes are rounded up to 8
    p = quarry_pool_alloc(pool, 0, 1, 0);
    CHECK_PTR_EQ(quarry_pool_alloc(pool, 8, 8, 0), p + 8);
    CHECK_EQ(stats_of(pool).slow_calls, 1);  // the block of no bytes
    end(pool);
}

TEST(alignments) {
    quarry_pool_t *pool = make((quarry_fifo_options_t){0});
    for (size_t i = 0; i < 3000; i++) {
        size_t alignment = (size_t)1 << i % 13, size = i % 777;
        char *p = quarry_pool_alloc(pool, size, alignment, QUARRY_POOL_ZERO);
        CHECK_EQ((uintptr_t)p & (alignment - 1), 0);
        CHECK_EQ((uintptr_t)p & 7, 0);
        memset(p, 1, size);
    }
    errno = 0;
    CHECK(!quarry_pool_alloc(pool, 1, 8192, 0));
    CHECK_EQ(errno, EINVAL);
    end(pool);
}

TEST(the_inline_calls_are_the_others) {
    quarry_pool_t *pool = make((quarry_fifo_options_t){0});
    long *a = fifo_new(pool, long, 4), *b = fifo_new_raw(pool, long, 4);
    CHECK(a && b && a[3] == 0);
    CHECK_PTR_EQ(b, a + 4);
    fifo_delete(pool, &a);
    fifo_delete(pool, &a);
    CHECK(!a);
    p_delete(pool, &b);
    CHECK_EQ(stats_of(pool).allocs, 2);
    CHECK_EQ(stats_of(pool).frees, 2);
    errno = 0;
    volatile size_t many = SIZE_MAX - 20;
    CHECK(!fifo_new(pool, char, many));
    CHECK_EQ(errno, ENOMEM);
    end(pool);
}

// ---- pages ---------------------------------------------------------------------------------------------

TEST(a_page_ends_with_its_last_block) {
    static char *a[1000], *b[1000], *c[1000];
    uint64_t state = test_seed;
    for (int round = 0; round < 20; round++) {
        quarry_pool_t *pool = make((quarry_fifo_options_t){.spare_pages = 1});
        size_t na = fill(pool, a, 1000, 500), nb, nc;
        b[0] = quarry_pool_alloc(pool, 500, 8, 0);
        nb = 1 + fill(pool, b + 1, 999, 500);
        c[0] = quarry_pool_alloc(pool, 500, 8, 0);
        nc = 1 + fill(pool, c + 1, 500, 100);
        CHECK_EQ(held(pool), 3 * PAGE);
        // In any order: nothing happens before the last.
        for (size_t left = na; left > 1; left--) {
            size_t i = test_random(&state) % left;
            quarry_pool_free(pool, a[i], 500);
            a[i] = a[left - 1];
            CHECK_EQ(inside(pool)->nspares, 0);
        }
        quarry_pool_free(pool, a[0], 500);
        CHECK_EQ(inside(pool)->nspares, 1);  // kept, as the spare page
        for (size_t i = nb; i-- > 0;) {
            CHECK_EQ(held(pool), 3 * PAGE);
            quarry_pool_free(pool, b[i], 500);
        }
        CHECK_EQ(held(pool), 2 * PAGE);  // there was a spare page
        for (size_t i = 0; i < nc; i++) quarry_pool_free(pool, c[i], 100);
        CHECK_EQ(held(pool), 2 * PAGE);  // the current page stays
        CHECK_EQ(stats_of(pool).used_bytes, 0);
        quarry_fifo_trim(pool);
        CHECK_EQ(held(pool), PAGE);
        end(pool);
    }
}

// One block at a time: the position runs through the page, which starts again in alloc's slow path.
TEST(one_at_a_time_uses_one_page) {
    quarry_pool_t *pool = make((quarry_fifo_options_t){0});
    char *last = NULL;
    for (int i = 0; i < 100000; i++) {
        char *p = quarry_pool_alloc(pool, 64, 8, QUARRY_POOL_ZERO);
        for (int k = 0; k < 64; k++) CHECK(!p[k]);
        memset(p, 0xEE, 64);
        if (last && i % 1000) CHECK(p == last + 64 || p < last);
        quarry_pool_free(pool, p, 64);
        last = p;
    }
    quarry_pool_stats_t s = stats_of(pool);
    CHECK_EQ(s.chunk_gets, 1);
    CHECK_LE(s.slow_calls, 100000 / 1000 + 1);
    CHECK_EQ(s.allocs, 100000);
    CHECK_EQ(s.frees, 100000);
    end(pool);
}

// A page empties when one spare is there and less than an eighth of the current page is left: it is used at once.
TEST(an_emptied_page_replaces_a_nearly_full_one) {
    for (int nearly = 0; nearly < 2; nearly++) {
        static char *a[200], *b[200], *c[200];
        quarry_pool_t *pool = make((quarry_fifo_options_t){.spare_pages = 1});
        size_t na = fill(pool, a, 200, 1000);
        b[0] = quarry_pool_alloc(pool, 1000, 8, 0);
        size_t nb = 1 + fill(pool, b + 1, 199, 1000);
        c[0] = quarry_pool_alloc(pool, 1000, 8, 0);
        size_t nc = 1 + fill(pool, c + 1, nearly ? 58 : 50, 1000);  // of 63
        for (size_t i = 0; i < na; i++) quarry_pool_free(pool, a[i], 1000);
        CHECK_EQ(inside(pool)->nspares, 1);
        qy_fifo_page_t *before = inside(pool)->current;
        uint64_t gets = stats_of(pool).chunk_gets, puts = stats_of(pool).chunk_puts;
        for (size_t i = 0; i < nb; i++) quarry_pool_free(pool, b[i], 1000);
        CHECK_EQ(inside(pool)->current != before, nearly);
        CHECK_EQ(stats_of(pool).chunk_puts, puts + !nearly);
        if (nearly) CHECK_PTR_EQ(inside(pool)->current, quarry_fifo_page_of(inside(pool)->hot.mask, b[0]));
        fill(pool, a, 200, 1000);
        CHECK_EQ(stats_of(pool).chunk_gets, gets);
        for (size_t i = 0; i < nc; i++) quarry_pool_free(pool, c[i], 1000);
        end(pool);
    }
}

// Pages taken by a queue of `live` blocks of 1000 bytes, each of which ends less than `within` places off its turn.
static uint64_t queued(unsigned spare_pages, size_t live, unsigned within, size_t *ret_most) {
    static char *blocks[8000];
    quarry_pool_t *pool = make((quarry_fifo_options_t){.spare_pages = spare_pages});
    queue_t queue = {.within = within, .random = test_seed};
    size_t all = live + within;
    CHECK_LE(all, sizeof blocks / sizeof *blocks);
    for (size_t i = 0; i < 100000; i++) {
        if (i >= live) p_delete(pool, &blocks[queue_next(&queue) % all]);
        CHECK((blocks[i % all] = quarry_pool_alloc(pool, 1000, 8, 0)));
    }
    quarry_pool_stats_t s = stats_of(pool);
    for (size_t i = 0; i < all; i++) p_delete(pool, &blocks[i]);
    CHECK_EQ(stats_of(pool).used_bytes, 0);
    end(pool);
    *ret_most = s.peak_held_bytes;
    return s.chunk_gets;
}

// The articles' load: requests and replies, where a page ends just before one is needed. A queue takes the pages that
// hold it and no others, though it is overtaken. Where each page that ends is given back once there is a spare one,
// the queue of 700 blocks that are up to 40 places off their turn takes 170.
TEST(pages_are_not_thrown_away_before_they_are_needed) {
    for (unsigned within = 1; within <= 61; within += 20) {
        for (unsigned spares = 0; spares < 2; spares++) {
            size_t pages = 2 + 700 / 63, most;
            uint64_t gets = queued(spares, 700, within, &most);
            printf("  %u places, pages taken: %llu\n", within - 1, (unsigned long long)gets);
            CHECK_LE(gets, 3 * pages);
            CHECK_LE(most, (pages + 2) * PAGE);
        }
    }
}

// With many pages the ends of pages and the turns to new ones get out of step: one spare page is too few.
TEST(many_pages_need_more_than_one_spare) {
    size_t pages = 2 + 7000 / 63, most;
    uint64_t one = queued(1, 7000, 61, &most), more = queued(0, 7000, 61, &most);
    printf("  pages taken: %llu with one spare, %llu with a sixteenth\n", (unsigned long long)one,
        (unsigned long long)more);
    CHECK_LE(more, pages + pages / 8);
    CHECK_GT(one, more + pages / 2);  // 211 to 284 against 112, by the seed
    CHECK_LE(most, (pages + 2) * PAGE);
}

TEST(spares_grow_with_the_pool) {
    enum { PAGES = 100,
        PER = 63 };
    static char *a[PAGES * PER];
    quarry_pool_t *pool = make((quarry_fifo_options_t){0});
    for (int i = 0; i < PAGES * PER; i++) CHECK((a[i] = quarry_pool_alloc(pool, 1000, 8, 0)));
    for (int i = 0; i < PAGES / 2 * PER; i++) quarry_pool_free(pool, a[i], 1000);
    size_t spares = inside(pool)->nspares;
    CHECK_GE(spares, 2);
    CHECK_LE(spares, 1 + PAGES / 16);
    for (int i = PAGES / 2 * PER; i < PAGES * PER; i++) quarry_pool_free(pool, a[i], 1000);
    CHECK_LE(held(pool), (2 + PAGES / 16) * PAGE);
    quarry_fifo_trim(pool);
    CHECK_EQ(held(pool), PAGE);
    end(pool);
}

TEST(page_sizes) {
    static const size_t asked[] = {0, 1, 64 * 1024, 65537, 1 << 20, 5 << 20};
    for (unsigned i = 0; i < sizeof asked / sizeof *asked; i++) {
        quarry_pool_t *pool = make((quarry_fifo_options_t){.page_bytes = asked[i]});
        CHECK_GE(inside(pool)->page_bytes, asked[i] > PAGE ? asked[i] : PAGE);
        CHECK_LT(inside(pool)->page_bytes, 2 * (asked[i] > PAGE ? asked[i] : PAGE));
        char *a[5];
        for (int k = 0; k < 5; k++) {
            a[k] = quarry_pool_alloc(pool, inside(pool)->page_bytes / 3, 8, 0);
            memset(a[k], k, inside(pool)->page_bytes / 3);
        }
        for (int k = 0; k < 5; k++) quarry_pool_free(pool, a[k], 1);
        CHECK_EQ(stats_of(pool).frees, 5);
        end(pool);
    }
}

TEST(large_blocks_have_pages_of_their_own) {
    quarry_pool_t *pool = make((quarry_fifo_options_t){0});
    char *small = quarry_pool_alloc(pool, 40000, 8, 0);
    char *big[10];
    for (int i = 0; i < 10; i++) {
        size_t size = (size_t)50000 << i;
        CHECK((big[i] = quarry_pool_alloc(pool, size, (size_t)1 << (3 + i % 10), QUARRY_POOL_ZERO)));
        for (size_t k = 0; k < size; k += 512) CHECK(!big[i][k]);
        memset(big[i], 0xAA, size);
    }
    CHECK_PTR_EQ(quarry_pool_alloc(pool, 100, 8, 0), small + 40000);  // the current page was not given up for them
    for (int i = 0; i < 10; i++) quarry_pool_free(pool, big[i], QUARRY_SIZE_UNKNOWN);
    // The largest up to 1 MiB is kept for the next, and clean when it is asked for so.
    CHECK_LE(held(pool), PAGE + QY_FIFO_BIG_KEPT);
    CHECK_GE(held(pool), PAGE + 800000);
    uint64_t gets = stats_of(pool).chunk_gets;
    char *again = quarry_pool_alloc(pool, 700000, 8, QUARRY_POOL_ZERO);
    CHECK_EQ(stats_of(pool).chunk_gets, gets);
    for (size_t k = 0; k < 700000; k++) CHECK(!again[k]);
    quarry_pool_free(pool, again, 700000);
    quarry_pool_free(pool, small, 40000);
    end(pool);
}

// ---- bytes ---------------------------------------------------------------------------------------------

TEST(zero_after_shrink_and_growth) {
    quarry_pool_t *pool = make((quarry_fifo_options_t){0});
    char *p = quarry_pool_alloc(pool, 100, 8, QUARRY_POOL_ZERO);
    memset(p, 0xEE, 100);
    CHECK_PTR_EQ(quarry_pool_resize(pool, p, 100, 10, 8, 0), p);
    CHECK_PTR_EQ(quarry_pool_resize(pool, p, 10, 200, 8, QUARRY_POOL_ZERO), p);  // in place
    for (int i = 0; i < 10; i++) CHECK_EQ((unsigned char)p[i], 0xEE);
    for (int i = 10; i < 200; i++) CHECK_EQ(p[i], 0);
    // What a shrunk block gave up goes to the next, clean.
    memset(p, 0xEE, 200);
    CHECK_PTR_EQ(quarry_pool_resize(pool, p, 200, 13, 8, 0), p);
    char *q = quarry_pool_alloc(pool, 150, 8, QUARRY_POOL_ZERO);
    CHECK_PTR_EQ(q, p + 16);
    for (int i = 0; i < 150; i++) CHECK_EQ(q[i], 0);
    // Not the newest: it moves; the place it leaves is not part of it.
    memset(p, 0xEE, 13);
    char *r = quarry_pool_resize(pool, p, 13, 50, 8, QUARRY_POOL_ZERO);
    CHECK(r != p);
    for (int i = 13; i < 50; i++) CHECK_EQ(r[i], 0);
    end(pool);
}

TEST(a_page_is_cleaned_when_zero_is_asked_for_and_not_before) {
    quarry_pool_t *pool = make((quarry_fifo_options_t){0});
    char *p = NULL, *first = NULL;
    for (int i = 0; i < 63; i++) {
        p = quarry_pool_alloc(pool, 1000, 8, 0);
        if (!first) first = p;
        memset(p, 0xEE, 1000);
        quarry_pool_free(pool, p, 1000);
    }
    while (p != first) quarry_pool_free(pool, p = quarry_pool_alloc(pool, 1000, 8, 0), 1000);
    // The page began anew; a raw user finds (and pays for) nothing but what was there.
    CHECK_EQ((unsigned char)p[500], 0xEE);
    char *q = quarry_pool_alloc(pool, 100, 8, QUARRY_POOL_ZERO);
    for (int i = 0; i < 100; i++) CHECK_EQ(q[i], 0);
    // Cleaned a little ahead, not the whole page.
    CHECK_EQ((unsigned char)q[100 + QY_FIFO_CLEAN_AHEAD + 64], 0xEE);
    end(pool);
}

TEST(random_model) {
    enum { SLOTS = 300 };
    for (int variant = 0; variant < 2; variant++) {
        quarry_fifo_options_t options[] = {{.spare_pages = 0}, {.spare_pages = 2, .page_bytes = 128 * KIB}};
        quarry_pool_t *pool = make(options[variant]);
        static struct {
            unsigned char *p, byte;
            size_t n;
        } s[SLOTS];
        memset(s, 0, sizeof s);
        uint64_t state = test_seed + (unsigned)variant, live = 0;
        for (int i = 0; i < 100000; i++) {
            size_t k = (size_t)i % 4 ? (size_t)i / 4 % SLOTS : test_random(&state) % SLOTS;
            uint64_t r = test_random(&state);
            size_t n = r % 50 == 0 ? r / 64 % 150000 : r / 64 % 400, align = (size_t)1 << r % 9;
            for (size_t b = 0; b < s[k].n; b += 1 + s[k].n / 64) CHECK_EQ(s[k].p[b], s[k].byte);
            if (s[k].p && r % 4 == 0) {
                unsigned char *p = quarry_pool_resize(pool, s[k].p, s[k].n, n, 1, QUARRY_POOL_ZERO);
                CHECK(p);
                for (size_t b = s[k].n; b < n; b++) CHECK(!p[b]);
                for (size_t b = 0; b < n && b < s[k].n; b++) CHECK_EQ(p[b], s[k].byte);
                s[k].p = p;
            } else {
                live += !s[k].p;
                if (s[k].p) quarry_pool_free(pool, s[k].p, s[k].n);
                s[k].p = quarry_pool_alloc(pool, n, align, r & 1024 ? QUARRY_POOL_ZERO : 0);
                CHECK(s[k].p);
                for (size_t b = 0; b < n && (r & 1024); b++) CHECK(!s[k].p[b]);
            }
            s[k].n = n;
            memset(s[k].p, s[k].byte = (unsigned char)r | 1, n);
            if (i % 1000 == 0) {
                CHECK_EQ(quarry_pool_check(pool), 0);
                quarry_pool_stats_t st = stats_of(pool);
                CHECK_EQ(st.allocs - st.frees, live);
            }
        }
        for (int k = 0; k < SLOTS; k++) quarry_pool_free(pool, s[k].p, s[k].n);
        quarry_fifo_trim(pool);
        CHECK_EQ(stats_of(pool).used_bytes, 0);
        CHECK_LE(held(pool), inside(pool)->page_bytes);
        end(pool);
    }
}

// More than 4 GiB given out at once, on paper: a parent that hands out the same address space again would be
// no test, so the pool holds untouched memory.
TEST(more_than_4_gib) {
    quarry_pool_t *pool = make((quarry_fifo_options_t){.page_bytes = (size_t)1 << 28});
    static char *p[44];
    for (int i = 0; i < 44; i++) {
        p[i] = quarry_pool_alloc(pool, (size_t)100 << 20, 8, 0);
        if (!p[i]) TEST_SKIP("needs more address space (ulimit -v)");
    }
    quarry_pool_stats_t s = stats_of(pool);
    CHECK_EQ(s.used_bytes, 44 * ((size_t)100 << 20));
    CHECK_EQ(s.requested_bytes, 44 * ((size_t)100 << 20));
    CHECK_GT(s.held_bytes, (size_t)4 << 30);
    for (int i = 0; i < 44; i++) quarry_pool_free(pool, p[i], QUARRY_SIZE_UNKNOWN);
    CHECK_EQ(stats_of(pool).used_bytes, 0);
    end(pool);
}

TEST(resize_needs_the_size) {
    quarry_pool_t *pool = make((quarry_fifo_options_t){0});
    char *p = quarry_pool_alloc(pool, 10, 8, 0);
    errno = 0;
    CHECK(!quarry_pool_resize(pool, p, QUARRY_SIZE_UNKNOWN, 20, 8, 0));
    CHECK_EQ(errno, EINVAL);
    CHECK_EQ(quarry_pool_usable(pool, p), 0);
    end(pool);
}

// ---- destruction -----------------------------------------------------------------------------------------

TEST(destruction_waits_for_the_last_block) {
    static char *p[300];
    for (int round = 0; round < 3; round++) {
        // The pool's address is kept in a variable that is used for something else meanwhile.
        quarry_pool_t *pool = make((quarry_fifo_options_t){0}), *gone = pool;
        for (int i = 0; i < 300; i++) {
            p[i] = quarry_pool_alloc(pool, round == 2 && i == 7 ? 300000 : 500, 8, 0);
            memset(p[i], i, 500);
        }
        quarry_pool_destroy(pool);
        pool = NULL;
        for (int i = 0; i < 300; i++) {
            int k = round ? 299 - i : i;
            CHECK(exists(gone));
            for (int b = 0; b < 500; b++) CHECK_EQ(p[k][b], (char)k);
            quarry_pool_free(gone, p[k], 500);
        }
        CHECK(!exists(gone));
        CHECK(!pool);
    }
    quarry_pool_t *empty = make((quarry_fifo_options_t){0});
    quarry_pool_free(empty, quarry_pool_alloc(empty, 5, 8, 0), 5);
    quarry_pool_destroy(empty);
    CHECK(!exists(empty));
}

// Another thread may ask meanwhile, since it walks all pools: here as the destruction leaves them for a moment.
TEST(figures_amid_the_destruction) {
    quarry_pool_t *pool = make((quarry_fifo_options_t){0});
    if (!plain(pool)) TEST_SKIP("needs pools:off: a checked pool has figures of its own");
    qy_fifo_t *f = inside(pool);
    void *p = quarry_pool_alloc(pool, 1000, 8, 0);
    CHECK(p);
    f->pos = f->hot.pos;
    f->hot.pos = NULL;
    quarry_pool_stats_t s = stats_of(pool);
    f->hot.pos = f->pos;
    CHECK_EQ(s.used_bytes, 1000);
    CHECK_EQ(s.requested_bytes, 1000);
    quarry_pool_free(pool, p, 1000);
    end(pool);
}

// ---- misuse ----------------------------------------------------------------------------------------------

static void dies(void (*body)(void *), void *arg, const char *words) {
    captured_t c = capture(body, arg);
    if (c.exit_signal != SIGABRT || !strstr(c.text, words))
        TEST_FAIL("signal %d, exit %d, \"%.300s\", wanted \"%s\"", c.exit_signal, c.exit_code, c.text, words);
}

static void alloc_dying(void *pool) {
    quarry_pool_alloc(pool, 10, 8, 0);
    quarry_pool_destroy(pool);
    quarry_pool_alloc(pool, 10, 8, 0);
}
static void destroy_dying(void *pool) {
    quarry_pool_alloc(pool, 10, 8, 0);
    quarry_pool_destroy(pool);
    quarry_pool_destroy(pool);
}
// In a page that was left: one block too many.
static void free_twice_left(void *pool) {
    static char *a[1000];
    size_t n = fill(pool, a, 1000, 100);
    quarry_pool_alloc(pool, 1000, 8, 0);
    quarry_pool_alloc(pool, 40000, 8, 0);
    for (size_t i = 0; i < n; i++) quarry_pool_free(pool, a[i], 100);
    quarry_pool_free(pool, a[0], 100);
}
// In the current page: seen when it is left.
static void free_twice_current(void *pool) {
    char *p = quarry_pool_alloc(pool, 100, 8, 0);
    quarry_pool_free(pool, p, 100);
    quarry_pool_free(pool, p, 100);
    for (int i = 0; i < 2000; i++) quarry_pool_free(pool, quarry_pool_alloc(pool, 100, 8, 0), 100);
}
static void *free_it(void *arg) {
    void **both = arg;
    quarry_pool_free(both[0], both[1], 100);
    return NULL;
}
static void elsewhere(void *(*body)(void *), void *arg) {
    pthread_t t;
    CHECK_EQ(pthread_create(&t, NULL, body, arg), 0);
    pthread_join(t, NULL);
}
static void free_twice_remote(void *pool) {
    static char *a[1000];
    size_t n = fill(pool, a, 1000, 100);
    quarry_pool_alloc(pool, 1000, 8, 0);
    quarry_pool_alloc(pool, 40000, 8, 0);
    for (size_t i = 0; i < n; i++) elsewhere(free_it, (void *[]){pool, a[i]});
    elsewhere(free_it, (void *[]){pool, a[0]});
}
static void free_to_another(void *pool) {
    quarry_pool_t *other = make((quarry_fifo_options_t){0});
    quarry_pool_free(other, quarry_pool_alloc(pool, 100, 8, 0), 100);
}
static void *alloc_page(void *pool) {
    for (int i = 0; i < 3000; i++) quarry_pool_alloc(pool, 100, 8, 0);
    return NULL;
}
static void alloc_elsewhere(void *pool) { elsewhere(alloc_page, pool); }

TEST(misuse_is_named) {
    static const struct {
        void (*body)(void *);
        const char *words;
    } cases[] = {
        {alloc_dying, "use of a destroyed pool"},
        {destroy_dying, "use of a destroyed pool"},
        {free_twice_left, "double free"},
        {free_twice_current, "double free"},
        {free_twice_remote, "double free"},
        {free_to_another, "block of another pool"},
        {alloc_elsewhere, "wrong thread"},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        quarry_pool_t *pool = make((quarry_fifo_options_t){0});
        dies(cases[i].body, pool, cases[i].words);
        quarry_pool_destroy(pool);
    }
}

TEST(check_sees_damage) {
    quarry_pool_t *pool = make((quarry_fifo_options_t){0});
    qy_fifo_t *f = inside(pool);
    for (int i = 0; i < 3000; i++) CHECK(quarry_pool_alloc(pool, 100, 8, 0));
    CHECK_EQ(quarry_pool_check(pool), 0);
    qy_fifo_page_t *page = QY_LIST_ITEM(f->pages.next, qy_fifo_page_t, link);
    uint64_t *words[] = {&page->hot.local, &page->hot.remote, (uint64_t *)(void *)&page->pool,
        (uint64_t *)(void *)&page->dirty, &f->current->hot.remote, (uint64_t *)(void *)&f->hot.clean};
    for (unsigned i = 0; i < sizeof words / sizeof *words; i++) {
        uint64_t saved = *words[i];
        *words[i] += (uint64_t)1 << 33;
        CHECK_EQ(quarry_pool_check(pool), -1);
        *words[i] = saved;
    }
    qy_fifo_pos(f)[100] = 1;  // somebody wrote behind the last block
    CHECK_EQ(quarry_pool_check(pool), -1);
    qy_fifo_pos(f)[100] = 0;
    CHECK_EQ(quarry_pool_check(pool), 0);
    quarry_pool_destroy(pool);
}

// ---- threads ---------------------------------------------------------------------------------------------

static void *adopt_and_use(void *arg) {
    quarry_pool_t *pool = arg;
    quarry_fifo_adopt(pool);
    for (int i = 0; i < 3000; i++) quarry_pool_free(pool, quarry_pool_alloc(pool, 100, 8, 0), 100);
    return NULL;
}
TEST(adoption) {
    quarry_pool_t *pool = make((quarry_fifo_options_t){0});
    static char *p[2000];
    for (int i = 0; i < 2000; i++) p[i] = quarry_pool_alloc(pool, 100, 8, 0);
    elsewhere(adopt_and_use, pool);
    for (int i = 0; i < 1000; i++) quarry_pool_free(pool, p[i], 100);  // like anybody
    quarry_fifo_adopt(pool);
    for (int i = 1000; i < 2000; i++) quarry_pool_free(pool, p[i], 100);
    quarry_pool_stats_t s = stats_of(pool);
    CHECK_EQ(s.allocs, s.frees);
    end(pool);
}

// In a checked pool blocks lie elsewhere: what is left to test is its end.
int main(int argc, char **argv) {
    quarry_pool_t *pool = quarry_fifo_create(NULL);
    bool checked = pool && pool->mode;
    quarry_pool_destroy(pool);
    char *names[] = {argv[0], (char[]){"destruction_waits_for_the_last_block"}, NULL};
    return checked ? test_main(2, names) : test_main(argc, argv);
}
