// SPDX-License-Identifier: MIT
// test_pool_blocks.c: what is known of pools' blocks, against a plain list of them: blocks begin, end and go in any
// order, within each other, across the pieces of the table, and in the place of blocks that nobody said had gone.
#include <pthread.h>
#include <stdatomic.h>

#include "check/pool_blocks.h"
#include "harness.h"

enum { BLOCKS = 400,
    STEPS = 40000,
    ZONE = 16 };

#define ROOM ((uintptr_t)6 << 20)                              // addresses, in which nothing is mapped
#define BASE (((uintptr_t)0x5100 << 32) - ((3 << 20) + 4096))  // across two leaves of the table

typedef struct model {
    uintptr_t memory;
    size_t bytes, size;
    bool is_there, ended;
    int outer;  // -1: none
    unsigned inner;
} model_t;
static model_t model[BLOCKS];

static bool apart(const model_t *m, uintptr_t memory, size_t bytes) {
    return memory + bytes <= m->memory || m->memory + m->bytes <= memory;
}

// The innermost that has the address; NULL: none.
static const model_t *model_at(uintptr_t address) {
    const model_t *best = NULL;
    for (unsigned i = 0; i < BLOCKS; i++) {
        const model_t *m = &model[i];
        if (m->is_there && address - m->memory < m->bytes && (!best || m->bytes < best->bytes)) best = m;
    }
    return best;
}

static void must_agree(uintptr_t address) {
    qy_check_block_t b;
    const model_t *m = model_at(address);
    CHECK_EQ(qy_check_pool_find(address, &b), m != NULL);
    if (!m) return;
    CHECK(b.address == m->memory + ZONE && b.size == m->size && b.freed == m->ended);
    bool known, inside = !m->ended && address >= b.address && address - b.address <= m->size;
    CHECK_EQ(qy_check_pool_is_live(address, 0, &known), inside);
    CHECK_EQ(qy_check_pool_is_live(address, m->size + ZONE + 1, &known), false);
    CHECK(known);
}

static size_t some_bytes(uint64_t chance) {
    size_t most = chance % 16 == 0 ? (size_t)1 << 20 : chance % 16 < 3 ? 100000
                                                                       : 600;
    return (2 * ZONE + chance / 16 % most) & ~(size_t)15;
}

// A place where it overlaps no block, or lies whole within one that lives and has nothing there.
static bool find_place(model_t *new, uint64_t *state) {
    new->memory = BASE + test_random(state) % (ROOM - new->bytes) / 16 * 16;
    const model_t *around = model_at(new->memory);
    if (around && (around->ended || new->memory < around->memory + ZONE ||
                      new->memory + new->bytes > around->memory + ZONE + around->size))
        return false;
    for (unsigned i = 0; i < BLOCKS; i++) {
        const model_t *m = &model[i];
        bool holds = m->is_there && m->memory <= new->memory &&new->memory + new->bytes <= m->memory + m->bytes;
        if (m->is_there && !holds && !apart(m, new->memory, new->bytes)) return false;
    }
    new->outer = around ? (int)(around - model) : -1;
    return true;
}

static void begin(unsigned i, uint32_t pool, uint64_t *state) {
    uint64_t chance = test_random(state);
    model_t m = {.bytes = some_bytes(chance), .is_there = true};
    m.size = m.bytes - 2 * ZONE - chance % ZONE % (m.bytes - 2 * ZONE + 1);
    if (!find_place(&m, state)) return;
    model[i] = m;
    if (m.outer >= 0) model[m.outer].inner++;
    qy_check_pool_began(&(quarry_check_pool_block_t){
        .pool = pool, .block = m.memory + ZONE, .size = m.size, .memory = m.memory, .bytes = m.bytes});
}

static void go(unsigned i) {
    if (model[i].outer >= 0) model[model[i].outer].inner--;
    model[i].is_there = false;
    qy_check_pool_gone(model[i].memory);
}

static uintptr_t last_seen;
static unsigned seen;
static void must_ascend(const qy_check_block_t *b, uintptr_t memory, size_t bytes, void *arg) {
    (void)arg;
    CHECK(memory > last_seen && b->address == memory + ZONE && bytes >= 2 * ZONE);
    last_seen = memory;
    seen++;
}

TEST(the_table_against_a_list) {
    uint64_t state = test_seed;
    const char *name = "a pool whose name is longer than there is room for";
    uint32_t pool = qy_check_pool_opened("tlsf", name, QUARRY_CHECK_POOL_EACH);
    CHECK(pool);
    for (unsigned step = 0; step < STEPS; step++) {
        unsigned i = (unsigned)(test_random(&state) % BLOCKS);
        if (!model[i].is_there) begin(i, pool, &state);
        else if (!model[i].inner && !model[i].ended && test_random(&state) % 2) {
            model[i].ended = true;
            qy_check_pool_ended(model[i].memory, 0);
        } else if (!model[i].inner) go(i);
        uintptr_t at = model[i].memory, end = at + model[i].bytes;
        uintptr_t any = BASE + test_random(&state) % ROOM;
        uintptr_t looked[] = {at, at - 1, end - 1, end, at + (end - at) / 2, at + ZONE, any};
        for (unsigned k = 0; at && k < sizeof looked / sizeof looked[0]; k++) must_agree(looked[k]);
    }
    unsigned there = 0;
    last_seen = seen = 0;
    for (unsigned i = 0; i < BLOCKS; i++) there += model[i].is_there;
    qy_check_pool_each(must_ascend, NULL);
    CHECK_EQ(seen, there);
    CHECK_GT(there, BLOCKS / 4);
    // One that has all of their memory: they are not there any more.
    qy_check_pool_began(&(quarry_check_pool_block_t){
        .pool = pool, .block = BASE - 4096, .size = ROOM + 8192, .memory = BASE - 4096, .bytes = ROOM + 8192});
    for (unsigned i = 0; i < 1000; i++) {
        qy_check_block_t b;
        CHECK(qy_check_pool_find(BASE + test_random(&state) % ROOM, &b) && b.size == ROOM + 8192);
    }
    qy_check_pool_gone(BASE - 4096);
    last_seen = seen = 0;
    qy_check_pool_each(must_ascend, NULL);
    CHECK_EQ(seen, 0);
    qy_check_pool_closed(pool);
    CHECK_EQ(qy_check_pool_opened("ring", "next", QUARRY_CHECK_POOL_FRAMES), pool);
    qy_check_pool_closed(pool);
}

static _Atomic bool stop;
static void *look(void *arg) {
    uintptr_t memory = (uintptr_t)arg;
    for (uint64_t state = test_seed; !atomic_load(&stop);) {
        qy_check_block_t b;
        uintptr_t at = memory + test_random(&state) % 4096;
        if (qy_check_pool_find(at, &b)) CHECK(b.size % 2 == 1 && at - (b.address - ZONE) < b.size + 2 * ZONE + 16);
    }
    return NULL;
}

// Others look while blocks come and go: each answer is of a block that was there.
TEST(looks_while_blocks_change) {
    const uintptr_t memory = (uintptr_t)0x5200 << 32;
    uint32_t pool = qy_check_pool_opened("stack", "s", QUARRY_CHECK_POOL_FRAMES);
    pthread_t thread[2];
    for (unsigned i = 0; i < 2; i++) CHECK(!pthread_create(&thread[i], NULL, look, (void *)memory));
    uint64_t state = test_seed;
    for (unsigned step = 0; step < STEPS; step++) {
        size_t bytes = 2 * ZONE + 16 + test_random(&state) % 64 * 16;
        uintptr_t at = memory + test_random(&state) % 200 * 16;
        qy_check_pool_began(&(quarry_check_pool_block_t){
            .pool = pool, .block = at + ZONE, .size = bytes - 2 * ZONE - 1, .memory = at, .bytes = bytes});
        if (step % 3 == 0) qy_check_pool_ended(at, 0);
        if (step % 3) qy_check_pool_gone(at);
    }
    atomic_store(&stop, true);
    for (unsigned i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    qy_check_pool_closed(pool);
}

TEST_MAIN()
