// SPDX-License-Identifier: MIT
// test_tlsf_inside.c: classes of sizes, every short sequence of operations on a small pool with a walk after each
// step, and every refusal of the kernel.
#include <stdalign.h>

#include "harness.h"
#include "os/fake.h"
#include "pool/tlsf.h"

// ---- classes --------------------------------------------------------------------------------------------------

static unsigned number(tlsf_class_t c) { return c.row * TLSF_SL + c.column; }

static void check_class(size_t bytes) {
    tlsf_class_t c = tlsf_class(bytes), above = tlsf_class_above(bytes);
    CHECK(c.row < TLSF_FL && c.column < TLSF_SL && above.row < TLSF_FL && above.column < TLSF_SL);
    CHECK_LE(number(c), number(above));
    CHECK_LE(number(above), number(c) + 1);
    CHECK_LE(number(tlsf_class(bytes - TLSF_GRAIN)), number(c));
    // Whatever is in the list above or later is large enough: the block just below that list's sizes is not in it.
    if (number(above) == number(c)) CHECK(number(tlsf_class(bytes - TLSF_GRAIN)) < number(c));
    // A list's sizes are at most 1/32 apart.
    size_t most = bytes < TLSF_LINEAR ? bytes : bytes + bytes / TLSF_SL;
    CHECK_GE(number(tlsf_class(most + TLSF_GRAIN)), number(above));
}

TEST(classes) {
    for (size_t bytes = TLSF_MIN_BLOCK; bytes < 300000; bytes += TLSF_GRAIN) check_class(bytes);
    for (size_t power = 1024; power <= TLSF_MAX / 2; power *= 2) {
        for (size_t part = 0; part < TLSF_SL; part++) {
            size_t bytes = power + power / TLSF_SL * part;
            for (int d = -1; d <= 1; d++)
                if (bytes + (size_t)d * TLSF_GRAIN <= TLSF_MAX / 2) check_class(bytes + (size_t)d * TLSF_GRAIN);
        }
    }
}

TEST(lists_and_bits_agree_about_every_class) {
    for (size_t bytes = TLSF_MIN_BLOCK; bytes < 200000; bytes += 16 + bytes / 100 / 16 * 16) {
        tlsf_class_t above = tlsf_class_above(bytes), c = tlsf_class(bytes);
        for (size_t block = bytes < 200 ? TLSF_MIN_BLOCK : bytes - bytes / 16 / 16 * 16; block < bytes + bytes / 16;
             block += TLSF_GRAIN) {
            unsigned n = number(tlsf_class(block));
            if (n >= number(above)) CHECK_GE(block, bytes);
            if (n < number(c)) CHECK_LT(block, bytes);
        }
    }
}

// ---- every sequence ----------------------------------------------------------------------------------------------

// A pool of five to six small blocks. All its state lies in the buffer and in the first row of lists, which are saved
// and put back so that the tree of all sequences is walked with one operation per node.
#define BUFFER_BYTES 400
#define SAVED_BYTES (offsetof(tlsf_t, lists) + sizeof(tlsf_block_t *) * TLSF_SL)
#define LIVE 8

typedef struct live {
    unsigned char *p;
    size_t size;
    unsigned char tag;
} live_t;

typedef struct state {
    live_t live[LIVE];
    unsigned count;
    unsigned char tag;
} state_t;

static struct {
    alignas(64) unsigned char buffer[BUFFER_BYTES];
    tlsf_t *t;
    uint64_t sequences, refused;
} all;

static void fill(live_t *b) { memset(b->p, b->tag, b->size); }

static void check_all(const state_t *s) {
    const char *wrong = qy_tlsf_check(all.t);
    if (wrong) TEST_FAIL("%s", wrong);
    size_t used = 0;
    for (unsigned i = 0; i < s->count; i++) {
        const live_t *b = &s->live[i];
        CHECK(b->p >= all.buffer && b->p + b->size <= all.buffer + BUFFER_BYTES);
        for (size_t k = 0; k < b->size; k++) CHECK_EQ(b->p[k], b->tag);
        used += tlsf_bytes(tlsf_block_of(b->p));
    }
    CHECK_EQ(used, all.t->used);  // the walker compared it with the blocks it found
}

static void alloc(state_t *s, size_t size, size_t alignment) {
    unsigned char *p = quarry_pool_alloc(&all.t->pool, size, alignment, 0);
    if (!p) {
        all.refused++;
        return;
    }
    CHECK_EQ((uintptr_t)p & (alignment - 1), 0);
    CHECK_LT(s->count, LIVE);
    s->live[s->count] = (live_t){p, size, ++s->tag};
    fill(&s->live[s->count++]);
}

static void release(state_t *s, unsigned n) {
    quarry_pool_free(&all.t->pool, s->live[n].p, s->live[n].size);
    s->live[n] = s->live[--s->count];
}

static void resize(state_t *s, unsigned n, size_t size) {
    live_t *b = &s->live[n];
    unsigned char *p = quarry_pool_resize(&all.t->pool, b->p, b->size, size, 16, 0);
    if (!p) {
        all.refused++;
        return;
    }
    for (size_t k = 0; k < size && k < b->size; k++) CHECK_EQ(p[k], b->tag);
    *b = (live_t){p, size, ++s->tag};
    fill(b);
}

// False: the operation makes no sense here.
static bool operate(state_t *s, unsigned op) {
    switch (op) {
    case 0: alloc(s, 24, 16); return true;
    case 1: alloc(s, 56, 16); return true;
    case 2: alloc(s, 150, 1); return true;
    case 3: alloc(s, 40, 64); return true;
    case 4:
    case 5:
    case 6:
        if (s->count <= op - 4) return false;
        release(s, op - 4);
        return true;
    case 7:
        if (!s->count) return false;
        resize(s, 0, s->live[0].size < 50 ? 88 : 20);
        return true;
    default:
        if (s->count < 2) return false;
        resize(s, 1, s->live[1].size < 50 ? 120 : 30);
        return true;
    }
}
#define OPERATIONS 9

static void walk_tree(const state_t *s, unsigned depth) {
    unsigned char control[SAVED_BYTES], buffer[BUFFER_BYTES];
    memcpy(control, all.t, SAVED_BYTES);
    memcpy(buffer, all.buffer, BUFFER_BYTES);
    for (unsigned op = 0; op < OPERATIONS; op++) {
        state_t next = *s;
        if (!operate(&next, op)) continue;
        check_all(&next);
        all.sequences++;
        if (depth > 1) walk_tree(&next, depth - 1);
        memcpy(all.t, control, SAVED_BYTES);
        memcpy(all.buffer, buffer, BUFFER_BYTES);
    }
}

TEST(every_short_sequence) {
    const char *depth = getenv("QUARRY_TEST_DEPTH");
    all.t = (tlsf_t *)quarry_tlsf_create(
        &(quarry_tlsf_options_t){.buffer = all.buffer, .buffer_bytes = BUFFER_BYTES, .flags = QUARRY_TLSF_FIXED});
    CHECK(all.t);
    if (all.t->pool.mode) TEST_SKIP("needs pools:off: a checked pool has state elsewhere");
    state_t s = {.count = 0};
    unsigned steps = depth ? (unsigned)atoi(depth) : QY_ASAN || QY_TSAN ? 5
                                                                        : 7;
    walk_tree(&s, steps);
    printf("%llu sequences of up to %u operations, %llu refused\n", (unsigned long long)all.sequences, steps,
        (unsigned long long)all.refused);
    CHECK_GT(all.sequences, 10000);
    CHECK_GT(all.refused, 100);  // the pool is so small that exhaustion is among them
    CHECK_EQ(all.t->used, 0);
    quarry_pool_destroy(&all.t->pool);
}

// ---- the walker can fail -------------------------------------------------------------------------------------------

TEST(the_walker_sees_each_kind_of_damage) {
    static alignas(16) unsigned char buffer[4096], saved[4096];
    tlsf_t *t = (tlsf_t *)quarry_tlsf_create(
        &(quarry_tlsf_options_t){.buffer = buffer, .buffer_bytes = sizeof buffer, .flags = QUARRY_TLSF_FIXED});
    if (t->pool.mode) TEST_SKIP("needs pools:off: a checked pool has state elsewhere");
    void *p[8];
    for (int i = 0; i < 8; i++) p[i] = quarry_pool_alloc(&t->pool, 100, 16, 0);
    for (int i = 0; i < 8; i += 2) quarry_pool_free(&t->pool, p[i], 100);
    CHECK(!qy_tlsf_check(t));
    memcpy(saved, buffer, sizeof buffer);
    // Every byte of every head, of every back pointer to a free block, and of every link.
    size_t seen = 0, heads = 0;
    for (tlsf_block_t *b = tlsf_region_first(t->regions);; b = tlsf_next(b)) {
        bool free = b->head & FLAG_FREE, before = b->head & FLAG_PREV_FREE, end = b->head & FLAG_END;
        size_t from = before ? 0 : offsetof(tlsf_block_t, head), to = free ? sizeof *b : TLSF_PAYLOAD;
        for (size_t i = from; i < to; i++) {
            for (unsigned bit = 0; bit < 8; bit++) {
                ((unsigned char *)b)[i] ^= (unsigned char)(1u << bit);
                seen += qy_tlsf_check(t) != NULL;
                heads++;
                memcpy(buffer, saved, sizeof buffer);
            }
        }
        if (end) break;
    }
    CHECK(!qy_tlsf_check(t));
    CHECK_EQ(seen, heads);
    // And the control structure.
    t->rows ^= (uint64_t)1 << 20;
    CHECK(qy_tlsf_check(t));
    t->rows ^= (uint64_t)1 << 20;
    t->columns[0] ^= 1u << 9;
    CHECK(qy_tlsf_check(t));
    t->columns[0] ^= 1u << 9;
    t->used += 16;
    CHECK(qy_tlsf_check(t));
    t->used -= 16;
    CHECK_EQ(quarry_pool_check(&t->pool), 0);
    quarry_pool_destroy(&t->pool);
}

// ---- refusals -------------------------------------------------------------------------------------------------------

static bool workload(void) {
    quarry_pool_t *pool = quarry_tlsf_create(&(quarry_tlsf_options_t){.chunk_bytes = 64 * 1024});
    if (!pool) {
        CHECK_EQ(errno, ENOMEM);
        return false;
    }
    char *p[40];
    size_t size[40];
    bool whole = true;
    for (size_t i = 0; i < 40; i++) {
        size[i] = i * i * 50;
        p[i] = quarry_pool_alloc(pool, size[i], 16, 0);
        if (!p[i]) CHECK_EQ(errno, ENOMEM);
        whole &= p[i] != NULL;
        if (p[i]) memset(p[i], (int)i, size[i]);
    }
    for (size_t i = 0; i < 40; i += 3) {
        char *q = p[i] ? quarry_pool_resize(pool, p[i], size[i], size[i] + 30000, 16, 0) : NULL;
        whole &= q != NULL;
        for (size_t k = 0; p[i] && k < size[i]; k++) CHECK_EQ((q ? q : p[i])[k], (char)i);
        if (q) p[i] = q, size[i] += 30000;
    }
    CHECK_EQ(quarry_pool_check(pool), 0);
    for (size_t i = 0; i < 40; i++) quarry_pool_free(pool, p[i], size[i]);
    CHECK_EQ(quarry_pool_check(pool), 0);
    quarry_pool_destroy(pool);
    return whole;
}

TEST(each_refusal_in_turn) {
    static const uint32_t masks[] = {1u << QY_OS_MAP, 1u << QY_OS_UNMAP | 1u << QY_OS_PURGE, 1u << QY_OS_RANDOM, ~0u};
    CHECK(workload());
    for (size_t m = 0; m < sizeof masks / sizeof *masks; m++) {
        for (int persist = 0; persist < 2; persist++) {
            for (uint64_t n = 1;; n++) {
                quarry_os_fault(n, persist, masks[m]);
                bool whole = workload();
                bool hit = quarry_os_fault_hits() != 0;
                quarry_os_fault(0, 0, 0);
                CHECK(whole || hit);
                if (!hit) break;
                CHECK_LT(n, 1000);
            }
        }
    }
    CHECK(workload());
}

TEST_MAIN()
