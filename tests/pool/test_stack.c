// SPDX-License-Identifier: MIT
// test_stack.c: frames and blocks of a stack, and misuse of them. Chunks: test_stack_chunks.c. Scopes: test_scope.c.
#include <quarry/stack.h>

#include "captured.h"
#include "pool/stack.h"
#include "pool_test.h"

#define KIB ((size_t)1024)

static quarry_pool_t *make(void) {
    quarry_pool_t *pool = quarry_stack_create(NULL);
    CHECK(pool);
    return pool;
}
static qy_stack_t *inside(quarry_pool_t *pool) { return (qy_stack_t *)pool; }
static bool all(const unsigned char *p, unsigned char byte, size_t n) {
    size_t i = 0;
    while (i < n && p[i] == byte) i++;
    return i == n;
}

// ---- blocks --------------------------------------------------------------------------------------------

TEST(blocks_are_adjacent_and_not_rounded) {
    quarry_pool_t *pool = make();
    char *p = quarry_pool_alloc(pool, 8, 8, 0);
    for (int i = 1; i < 1000; i++) {
        char *q = quarry_stack_alloc(pool, 8, 8, 0);
        CHECK_PTR_EQ(q, p + 8);
        p = q;
    }
    CHECK_PTR_EQ(quarry_pool_alloc(pool, 3, 1, 0), p + 8);
    CHECK_PTR_EQ(quarry_pool_alloc(pool, 5, 1, 0), p + 11);
    CHECK_PTR_EQ(quarry_pool_alloc(pool, 1, 2, 0), p + 16);
    CHECK_PTR_EQ(quarry_pool_alloc(pool, 4, 4, 0), p + 20);
    for (size_t a = 1; a <= 64 * KIB; a *= 2)
        CHECK_EQ((uintptr_t)quarry_pool_alloc(pool, 24, a, QUARRY_POOL_ZERO) & (a - 1), 0);
    CHECK_EQ((uintptr_t)quarry_pool_alloc(pool, 1, QUARRY_STACK_ALIGN_MAX, 0) & (QUARRY_STACK_ALIGN_MAX - 1), 0);
    errno = 0;
    CHECK(!quarry_pool_alloc(pool, 1, 2 * QUARRY_STACK_ALIGN_MAX, 0));
    CHECK_EQ(errno, EINVAL);
    // Blocks of no size are blocks, each at a place of its own.
    p = quarry_pool_alloc(pool, 0, 1, 0);
    CHECK(quarry_pool_alloc(pool, 0, 1, 0) != p);
    quarry_pool_free(pool, p, 0);
    end(pool);
}

TEST(the_end_of_a_chunk_is_used_to_the_last_byte) {
    quarry_pool_t *pool = make();
    qy_stack_t *s = inside(pool);
    size_t rest = (size_t)(s->current->end - s->open.own.pos);
    char *p = quarry_stack_alloc(pool, rest, 1, 0);
    CHECK_PTR_EQ(p + rest, s->current->end);
    CHECK_EQ(stats_of(pool).chunk_gets, 1);
    CHECK(quarry_stack_alloc(pool, 1, 1, 0));
    CHECK_EQ(stats_of(pool).chunk_gets, 2);
    memset(p, 1, rest);
    end(pool);
}

TEST(footprint_is_the_payload) {
    enum { NODES = 4000000 };
    quarry_pool_t *pool = make();
    for (int i = 0; i < NODES; i++) CHECK(quarry_stack_alloc(pool, 8, 8, 0));
    CHECK_LE(stats_of(pool).used_bytes, NODES * 8 * 1.001);
    CHECK_LE(stats_of(pool).held_bytes, NODES * 8 * 1.004);
    CHECK_LE(stats_of(pool).chunk_gets, NODES * 8 / 65000);
    end(pool);
}

TEST(zero_always) {
    quarry_pool_t *pool = make();
    uint64_t state = test_seed;
    quarry_stack_frame_t f;
    for (int i = 0; i < 20000; i++) {
        quarry_stack_push(pool, &f);
        for (int k = 0; k < 4; k++) {
            size_t n = test_random(&state) % (i % 100 ? 700 : 90000);
            unsigned char *p = test_random(&state) % 2 ? quarry_pool_alloc(pool, n, 1, QUARRY_POOL_ZERO)
                                                       : quarry_stack_alloc(pool, n = 40, 8, QUARRY_POOL_ZERO);
            CHECK(all(p, 0, n));
            memset(p, 0xEE, n);
            size_t m = n / 3, g = n + n / 2 + 1;
            if (k != 1) continue;
            CHECK_PTR_EQ(quarry_pool_resize(pool, p, n, m, 1, 0), p);
            CHECK((p = quarry_pool_resize(pool, p, m, g, 1, QUARRY_POOL_ZERO)));
            CHECK(all(p, 0xEE, m) && all(p + m, 0, g - m));
            memset(p, 0xEE, g);
        }
        quarry_stack_pop(pool, &f);
    }
    end(pool);
}

TEST(resize) {
    quarry_pool_t *pool = make();
    char *p = quarry_pool_alloc(pool, 100, 1, 0);
    memset(p, 'p', 100);
    CHECK_PTR_EQ(quarry_pool_resize(pool, p, 100, 1000, 1, 0), p);
    CHECK_PTR_EQ(quarry_pool_resize(pool, p, 1000, 50, 1, 0), p);
    char *q = quarry_pool_alloc(pool, 10, 1, 0);
    CHECK_PTR_EQ(q, p + 50);
    CHECK_PTR_EQ(quarry_pool_resize(pool, p, 50, 40, 1, 0), p);
    char *r = quarry_pool_resize(pool, p, 40, 60, 1, QUARRY_POOL_ZERO);
    CHECK_PTR_EQ(r, q + 10);
    CHECK(r[39] == 'p' && r[40] == 0 && r[59] == 0);
    errno = 0;
    CHECK(!quarry_pool_resize(pool, r, QUARRY_SIZE_UNKNOWN, 100, 1, 0));
    CHECK_EQ(errno, EINVAL);
    size_t n = 60;
    for (int i = 0; i < 12; i++, n *= 2) {
        if (i % 2) CHECK(quarry_pool_alloc(pool, 10, 1, 0));
        r = quarry_pool_resize(pool, r, n, 2 * n, 1, QUARRY_POOL_ZERO);
        CHECK(r[39] == 'p' && r[n] == 0 && r[2 * n - 1] == 0);
        CHECK_EQ(quarry_pool_check(pool), 0);
    }
    // To a stricter alignment.
    q = quarry_pool_alloc(pool, 3, 1, 0);
    r = quarry_pool_alloc(pool, 5, 1, 0);
    memcpy(r, "abcd", 5);
    r = quarry_pool_resize(pool, r, 5, 8, 256, 0);
    CHECK_EQ((uintptr_t)r % 256, 0);
    CHECK_STR_EQ(r, "abcd");
    end(pool);
}

// A growing array leaves nothing behind in the chunks it goes through.
TEST(the_newest_block_moves_without_a_hole) {
    quarry_pool_t *pool = make();
    size_t n = 100;
    char *p = quarry_pool_alloc(pool, n, 1, 0);
    for (; n < 10000000; n *= 2) CHECK((p = quarry_pool_resize(pool, p, n, 2 * n, 1, 0)));
    CHECK_LE(stats_of(pool).used_bytes, n + 64);
    end(pool);
}

// ---- frames --------------------------------------------------------------------------------------------

TEST(pop_restores_what_push_saved) {
    quarry_pool_t *pool = make();
    quarry_stack_hot_t *h = &inside(pool)->open.own;
    quarry_stack_frame_t f[50];
    quarry_stack_hot_t before[50];
    // A block in fresh memory takes the slow path, and so does the end of its frame.
    quarry_stack_push(pool, &f[0]);
    CHECK(quarry_stack_alloc(pool, 20, 4, 0));
    quarry_stack_pop(pool, &f[0]);
    CHECK_EQ(stats_of(pool).slow_calls, 2);
    for (int round = 0; round < 100; round++) {
        for (int i = 0; i < 50; i++) {
            before[i] = *h;
            quarry_stack_push(pool, &f[i]);
            CHECK_PTR_EQ((char *)h->pos, before[i].pos);  // nothing of the frame is in the pool
            CHECK(quarry_stack_alloc(pool, 20, 4, 0));
        }
        for (int i = 50; i--;) {
            quarry_stack_pop(pool, &f[i]);
            CHECK_EQ(h->top, before[i].top);
            CHECK_PTR_EQ(h->pos, before[i].pos);
        }
    }
    CHECK_EQ(stats_of(pool).used_bytes, 0);
    CHECK_EQ(stats_of(pool).slow_calls, 2);
    end(pool);
}

TEST(errno_stays) {
    quarry_pool_t *pool = make();
    quarry_stack_frame_t f;
    quarry_stack_push(pool, &f);
    for (int i = 0; i < 100; i++) CHECK(quarry_stack_alloc(pool, 30000, 1, 0));
    errno = 77;
    quarry_stack_pop(pool, &f);
    CHECK_EQ(errno, 77);
    end(pool);
}

TEST(frames_may_be_anywhere) {
    quarry_pool_t *pool = make();
    quarry_stack_frame_t *high = malloc(sizeof *high), low;
    quarry_stack_push(pool, high);
    char *p = quarry_stack_alloc(pool, 10, 1, 0);
    quarry_stack_push(pool, &low);
    CHECK(quarry_stack_alloc(pool, 100000, 1, 0));
    quarry_stack_pop(pool, &low);
    CHECK_PTR_EQ(quarry_pool_resize(pool, p, 10, 20, 1, 0), p);
    quarry_stack_pop(pool, high);
    free(high);
    end(pool);
}

TEST(sealing) {
    quarry_pool_t *pool = make();
    quarry_stack_frame_t f, g;
    quarry_stack_seal(pool);  // its base
    quarry_stack_push(pool, &f);
    CHECK(quarry_stack_alloc(pool, 10, 1, 0));
    quarry_stack_seal(pool);
    for (int i = 0; i < 3; i++) {
        quarry_stack_push(pool, &g);
        for (int k = 0; k < 30; k++) CHECK(quarry_stack_alloc(pool, i * 5000 + 10, 1, 0));
        quarry_stack_pop(pool, &g);
        CHECK(!inside(pool)->open.own.limit);
        quarry_stack_push(pool, &g);
        quarry_stack_pop(pool, &g);
        CHECK(!inside(pool)->open.own.limit);
    }
    quarry_stack_unseal(pool);
    CHECK(quarry_stack_alloc(pool, 10, 1, 0));
    quarry_stack_pop(pool, &f);
    CHECK(!inside(pool)->open.own.limit);
    quarry_stack_unseal(pool);
    CHECK(quarry_stack_alloc(pool, 10, 1, 0));
    end(pool);
}

// Random frames, blocks, resizes, seals and ends, against what was written.
enum { DEPTH = 60,
    BLOCKS = 12 };
static struct level {
    quarry_stack_frame_t frame;
    int n;
    bool sealed;
    unsigned char *p[BLOCKS], byte[BLOCKS];
    size_t size[BLOCKS];
} level[DEPTH];

static void check_level(const struct level *l) {
    for (int b = 0; b < l->n; b++)
        for (size_t at = 0; at < l->size[b]; at += 1 + l->size[b] / 40) CHECK_EQ(l->p[b][at], l->byte[b]);
}

static void random_block(quarry_pool_t *pool, struct level *l, uint64_t r) {
    size_t n = r % 300 == 0 ? r / 512 % 400000 : r / 512 % 600, align = (size_t)1 << r / 16 % 13;
    unsigned flags = r & 4 ? QUARRY_POOL_ZERO : 0;
    int b = l->n;
    if (b == BLOCKS || (b && r % 3 == 0)) {
        b = r % 2 ? b - 1 : (int)(r / 64 % (unsigned)b);
        unsigned char *p = quarry_pool_resize(pool, l->p[b], l->size[b], n, 1, flags);
        CHECK(p);
        size_t kept = n < l->size[b] ? n : l->size[b];
        CHECK(all(p, l->byte[b], kept));
        if (flags) CHECK(all(p + kept, 0, n - kept));
        l->p[b] = p;
    } else {
        l->n++;
        l->p[b] = r & 8 ? quarry_pool_alloc(pool, n, align, flags) : quarry_stack_alloc(pool, n, align, flags);
        CHECK_EQ((uintptr_t)l->p[b] & (align - 1), 0);
        if (flags) CHECK(all(l->p[b], 0, n));
    }
    l->size[b] = n;
    memset(l->p[b], l->byte[b] = (unsigned char)r | 1, n);
}

static void model(quarry_stack_options_t options, int steps) {
    quarry_pool_t *pool = quarry_stack_create(&options);
    uint64_t state = test_seed;
    int depth = 0;
    memset(level, 0, sizeof level);
    for (int i = 0; i < steps; i++) {
        uint64_t r = test_random(&state);
        struct level *l = &level[depth];
        bool down = i / 300 % 2;  // long ways up and down
        switch (r >> 32 & 15) {
        case 0:
        case 1: down = !down; /* fall through */
        case 2:
        case 3:
        case 4:
            if (!down && depth < DEPTH - 1) {
                l = &level[++depth];
                l->n = 0;
                l->sealed = false;
                quarry_stack_push(pool, &l->frame);
            } else if (down && depth) {
                check_level(l);
                check_level(l - 1);
                quarry_stack_pop(pool, &l->frame);
                depth--;
            }
            break;
        case 5:
            if (l->sealed) quarry_stack_unseal(pool);
            else quarry_stack_seal(pool);
            l->sealed = !l->sealed;
            break;
        case 6:
            if (r % 50 == 0) quarry_stack_reset(pool);
            break;
        default:
            if (!l->sealed && (depth || l->n < BLOCKS)) random_block(pool, l, r);
        }
        if (i % 64 == 0) CHECK_EQ(quarry_pool_check(pool), 0);
    }
    for (int k = 0; k <= depth; k++) check_level(&level[k]);
    while (depth) quarry_stack_pop(pool, &level[depth--].frame);
    end(pool);
}

TEST(random_model) { model((quarry_stack_options_t){0}, 200000); }
TEST(random_model_with_larger_chunks) { model((quarry_stack_options_t){.chunk_bytes = 100000}, 50000); }
TEST(random_model_guarded) { model((quarry_stack_options_t){.pool.flags = QUARRY_POOL_GUARD}, 20000); }

// ---- misuse --------------------------------------------------------------------------------------------

static void must_die(void (*body)(void *), unsigned flags, const char *word) {
    captured_t c = capture(body, &flags);
    if (c.exit_signal != SIGABRT || !strstr(c.text, word))
        TEST_FAIL("signal %d, \"%.300s\", wanted \"%s\"", c.exit_signal, c.text, word);
}
static quarry_pool_t *flagged(void *flags) {
    return quarry_stack_create(&(quarry_stack_options_t){.pool.flags = *(unsigned *)flags});
}

static void pop_outer_first(void *arg) {
    quarry_pool_t *pool = flagged(arg);
    quarry_stack_frame_t f, g;
    quarry_stack_push(pool, &f);
    quarry_stack_push(pool, &g);
    quarry_stack_pop(pool, &f);
}
static void pop_twice(void *arg) {
    quarry_pool_t *pool = flagged(arg);
    quarry_stack_frame_t f, g;
    quarry_stack_push(pool, &f);
    quarry_stack_push(pool, &g);
    quarry_pool_alloc(pool, 100000, 1, 0);
    quarry_stack_pop(pool, &g);
    quarry_stack_pop(pool, &g);
}
static void pop_elsewhere(void *arg) {
    quarry_pool_t *pool = flagged(arg), *other = flagged(arg);
    quarry_stack_frame_t f;
    quarry_stack_push(pool, &f);
    quarry_stack_pop(other, &f);
}
static void resize_outer(void *arg) {
    quarry_pool_t *pool = flagged(arg);
    quarry_stack_frame_t f;
    void *p = quarry_pool_alloc(pool, 100, 1, 0);
    quarry_stack_push(pool, &f);
    quarry_pool_resize(pool, p, 100, 50, 1, 0);
}
static void resize_outer_empty(void *arg) {
    quarry_pool_t *pool = flagged(arg);
    quarry_stack_frame_t f;
    void *p = quarry_pool_alloc(pool, 0, 1, 0);
    quarry_stack_push(pool, &f);
    quarry_pool_resize(pool, p, 0, 50, 1, 0);
}
static void resize_outer_of_other_chunk(void *arg) {
    quarry_pool_t *pool = flagged(arg);
    quarry_stack_frame_t f;
    void *p = quarry_pool_alloc(pool, 100, 1, 0);
    quarry_pool_alloc(pool, 100000, 1, 0);
    quarry_stack_push(pool, &f);
    for (int i = 0; i < 20; i++) quarry_pool_alloc(pool, 50000, 1, 0);
    quarry_pool_resize(pool, p, 100, 200, 1, 0);
}
static void resize_popped(void *arg) {
    quarry_pool_t *pool = flagged(arg);
    quarry_stack_frame_t f;
    quarry_stack_push(pool, &f);
    void *p = quarry_pool_alloc(pool, 100, 1, 0);
    quarry_stack_pop(pool, &f);
    quarry_pool_resize(pool, p, 100, 200, 1, 0);
}
static void resize_with_wrong_size(void *arg) {
    quarry_pool_t *pool = flagged(arg);
    quarry_pool_resize(pool, quarry_pool_alloc(pool, 100, 1, 0), 3000, 200, 1, 0);
}
static void alloc_sealed(void *arg) {
    quarry_pool_t *pool = flagged(arg);
    quarry_stack_frame_t f, g;
    quarry_stack_push(pool, &f);
    quarry_stack_seal(pool);
    quarry_stack_push(pool, &g);
    quarry_pool_alloc(pool, 100, 1, 0);
    quarry_stack_pop(pool, &g);
    quarry_stack_alloc(pool, 8, 8, 0);
}
static void resize_sealed(void *arg) {
    quarry_pool_t *pool = flagged(arg);
    void *p = quarry_pool_alloc(pool, 100, 1, 0);
    quarry_stack_seal(pool);
    quarry_pool_resize(pool, p, 100, 200, 1, 0);
}
static void seal_twice(void *arg) {
    quarry_pool_t *pool = flagged(arg);
    quarry_stack_seal(pool);
    quarry_stack_seal(pool);
}
static void unseal_open(void *arg) { quarry_stack_unseal(flagged(arg)); }
static void alloc_sealed_after_reset(void *arg) {
    quarry_pool_t *pool = flagged(arg);
    quarry_stack_frame_t f, g;
    quarry_stack_push(pool, &f);
    quarry_stack_seal(pool);
    quarry_stack_push(pool, &g);
    quarry_stack_reset(pool);
    quarry_stack_pop(pool, &g);
    quarry_stack_alloc(pool, 8, 8, 0);
}
static void alloc_dead(void *arg) {
    quarry_pool_t *pool = flagged(arg);
    quarry_pool_destroy(pool);
    quarry_stack_alloc(pool, 8, 8, 0);
}
static void pop_dead(void *arg) {
    quarry_pool_t *pool = flagged(arg);
    quarry_stack_frame_t f;
    quarry_stack_push(pool, &f);
    quarry_pool_destroy(pool);
    quarry_stack_pop(pool, &f);
}
static void foreign_frame(void *arg) {
    quarry_pool_t *pool = flagged(arg);
    quarry_stack_frame_t f;
    quarry_stack_push(pool, &f);
    quarry_pool_alloc(pool, 100000, 1, 0);
    f.pos += (ptrdiff_t)1 << 40;  // written over
    quarry_stack_pop(pool, &f);
}

TEST(misuse_ends_it) {
    for (unsigned flags = 0; flags <= QUARRY_POOL_GUARD; flags += QUARRY_POOL_GUARD) {
        must_die(pop_outer_first, flags, "unbalanced frames");
        must_die(pop_twice, flags, "unbalanced frames");
        must_die(pop_elsewhere, flags, "unbalanced frames");
        must_die(resize_outer, flags, "block of another frame");
        must_die(resize_outer_empty, flags, "block of another frame");
        must_die(resize_outer_of_other_chunk, flags, "block of another frame");
        must_die(resize_popped, flags, flags ? "double free" : "block of another frame");
        if (!flags) must_die(resize_with_wrong_size, flags, "block of another frame");
        must_die(alloc_sealed, flags, "sealed frame");
        must_die(resize_sealed, flags, "sealed frame");
        must_die(alloc_sealed_after_reset, flags, "sealed frame");
        must_die(seal_twice, flags, "sealed frame");
        must_die(unseal_open, flags, "sealed frame");
        must_die(alloc_dead, flags, "use of a destroyed pool");
        must_die(pop_dead, flags, "use of a destroyed pool");
        must_die(foreign_frame, flags, "damaged pool");
    }
}

TEST(bad_options) {
    char buffer[2048];
    errno = 0;
    CHECK(!quarry_stack_create(&(quarry_stack_options_t){.buffer = buffer, .buffer_bytes = 100}));
    CHECK_EQ(errno, EINVAL);
}

TEST(on_a_buffer) {
    static char buffer[10000];
    for (size_t shift = 0; shift < 64; shift += 7) {
        quarry_pool_t *pool = quarry_stack_create(
            &(quarry_stack_options_t){.buffer = buffer + shift, .buffer_bytes = sizeof buffer - shift});
        CHECK(pool);
        quarry_stack_frame_t f;
        for (int i = 0; i < 3; i++) {
            size_t got = 0;
            quarry_stack_push(pool, &f);
            for (char *p; (p = quarry_pool_alloc(pool, 100, 1, QUARRY_POOL_ZERO)); got++) {
                CHECK(p >= buffer + shift && p + 100 <= buffer + sizeof buffer);
                memset(p, 1, 100);
            }
            CHECK_EQ(errno, ENOMEM);
            CHECK_GE(got, 97);
            quarry_stack_pop(pool, &f);
        }
        CHECK_EQ(stats_of(pool).held_bytes, sizeof buffer - shift);
        CHECK_EQ(stats_of(pool).chunk_gets, 0);
        end(pool);
    }
}

static void *bad_alignment(quarry_pool_t *pool, size_t alignment) { return quarry_stack_alloc(pool, 8, alignment, 0); }
TEST(constant_alignments_are_looked_at) {
    quarry_pool_t *pool = make();
    errno = 0;
    char *p = quarry_stack_alloc(pool, 8, 1, 0);
    void *bad[] = {quarry_stack_alloc(pool, 8, 0, 0), quarry_stack_alloc(pool, 8, 24, 0),
        quarry_stack_alloc(pool, 8, 2 * QUARRY_STACK_ALIGN_MAX, 0), bad_alignment(pool, 0), bad_alignment(pool, 24)};
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) CHECK(!bad[i]);
    CHECK_EQ(errno, EINVAL);
    CHECK_PTR_EQ(quarry_stack_alloc(pool, 8, 1, 0), p + 8);
    end(pool);
}

TEST_MAIN()
