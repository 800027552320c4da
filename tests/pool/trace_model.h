// SPDX-License-Identifier: MIT
// trace_model.h: a recorder for tests of what pools tell: it finds at once what cannot be, and writes down the rest.
//
// It is the table that pools look for. Every block is born once and ends once, every frame begins before it ends,
// nothing is told of a pool that is gone: else the test fails. With `model.script` on, events are written as text, a
// word each:
//
//   created:KIND/NAME/PARENT  destroyed    +SIZE  a block is made    -N  the Nth block ends    N=SIZE  it changes its
//   size in place N>SIZE  it moves, and is the newest now    (  )  a frame begins, ends    ]I  !I  the Ith sealed frame
//   is sealed, released
//
// Blocks and sealed frames are numbered from 1 since the script was begun. What pools hold is checked, and not written.
#ifndef QUARRY_TESTS_POOL_TELL_MODEL_H
#define QUARRY_TESTS_POOL_TELL_MODEL_H

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>

#include "harness.h"
#include "rt/record_pool.h"

#define MODEL_POOLS 4096
#define MODEL_FRAMES 256
#define MODEL_SCRIPT 8192

typedef struct model_block {
    uintptr_t address;  // 0: free place
    uint32_t pool, number;
    uint64_t frame;  // serial number of the frame it is in; 0: none
    size_t size;
} model_block_t;

typedef struct model_sealed {
    uint64_t cookie, frame;
    uint32_t number;
} model_sealed_t;

typedef struct model_pool {
    bool alive, traced;
    uint32_t parent;
    char kind[16], name[40];
    uint64_t open[MODEL_FRAMES];  // stack of open frames, by serial number
    unsigned nopen;
    model_sealed_t *sealed;
    unsigned nsealed, room;
    uint64_t live, live_bytes, held, used, helds;
} model_pool_t;

static struct {
    pthread_mutex_t lock;
    bool refuse, script, lenient;  // refuse: pools are not recorded; lenient: there are blocks from before
    uint32_t pools;
    uint64_t frames, allocs, frees, resizes, ended;
    uint32_t next_block, next_sealed;
    void (*when_created)(void);  // called where a pool is told of
    void (*when_held)(void);     // called where a pool tells what it holds
    model_pool_t pool[MODEL_POOLS];
    model_block_t *block;  // a table by address and pool, open addressing
    size_t blocks, places;
    size_t length;
    char text[MODEL_SCRIPT];
} model = {.lock = PTHREAD_MUTEX_INITIALIZER};

__attribute__((format(printf, 1, 2))) static void model_write(const char *format, ...) {
    if (!model.script) return;
    va_list args;
    va_start(args, format);
    model.length += (size_t)vsnprintf(model.text + model.length, sizeof model.text - model.length, format, args);
    va_end(args);
    CHECK_LT(model.length, sizeof model.text - 100);
}

// ---- blocks --------------------------------------------------------------------------------------------

static size_t model_place(uint32_t pool, uintptr_t address) {
    return (size_t)(((address >> 3) + pool * 7919u) * UINT64_C(0x9E3779B97F4A7C15) >> 20) & (model.places - 1);
}

static model_block_t *model_find(uint32_t pool, const void *p) {
    if (!model.places) return NULL;
    for (size_t i = model_place(pool, (uintptr_t)p); model.block[i].address; i = (i + 1) & (model.places - 1))
        if (model.block[i].address == (uintptr_t)p && model.block[i].pool == pool) return &model.block[i];
    return NULL;
}

static void model_put(model_block_t b) {
    size_t i = model_place(b.pool, b.address);
    while (model.block[i].address) i = (i + 1) & (model.places - 1);
    model.block[i] = b;
}

static void model_grow(void) {
    model_block_t *old = model.block;
    size_t places = model.places;
    model.places = places ? 2 * places : 4096;
    model.block = calloc(model.places, sizeof *old);
    CHECK(model.block);
    for (size_t i = 0; i < places; i++)
        if (old[i].address) model_put(old[i]);
    free(old);
}

static void model_birth(uint32_t pool, const void *p, size_t size, uint32_t number) {
    model_pool_t *m = &model.pool[pool];
    if (model_find(pool, p)) TEST_FAIL("%s \"%s\": a block is made at %p, where one is", m->kind, m->name, p);
    if (2 * ++model.blocks > model.places) model_grow();
    model_put((model_block_t){(uintptr_t)p, pool, number, m->nopen ? m->open[m->nopen - 1] : 0, size});
    m->live++;
    m->live_bytes += size;
}

// Whoever comes behind it in the table moves up.
static void model_death(model_block_t *b) {
    model_pool_t *m = &model.pool[b->pool];
    m->live--;
    m->live_bytes -= b->size;
    model.blocks--;
    size_t i = (size_t)(b - model.block);
    model.block[i].address = 0;
    for (size_t j = (i + 1) & (model.places - 1); model.block[j].address; j = (j + 1) & (model.places - 1)) {
        model_block_t moved = model.block[j];
        model.block[j].address = 0;
        model_put(moved);
    }
}

static void model_end_frame(uint32_t pool, uint64_t frame, bool all) {
    model_pool_t *m = &model.pool[pool];
    for (size_t i = 0; m->live && i < model.places;) {
        model_block_t *b = &model.block[i];
        if (!b->address || b->pool != pool || (!all && b->frame != frame)) i++;
        else model_death(b), model.ended++;  // another may be here now
    }
}

// ---- the table -------------------------------------------------------------------------------------------

static model_pool_t *model_enter(uint32_t pool) {
    pthread_mutex_lock(&model.lock);
    if (!pool || pool > model.pools || !model.pool[pool].alive) TEST_FAIL("an event of pool %u, which is none", pool);
    return &model.pool[pool];
}
static void model_leave(void) { pthread_mutex_unlock(&model.lock); }

static uint32_t model_created(uint32_t parent, const char *kind, const char *name) {
    if (model.when_created) model.when_created();
    if (model.refuse) return 0;
    pthread_mutex_lock(&model.lock);
    uint32_t number = ++model.pools;
    CHECK_LT(number, MODEL_POOLS);
    if (parent && !model.pool[parent].alive) TEST_FAIL("pool %u is the parent of \"%s\", and none", parent, name);
    model_pool_t *m = &model.pool[number];
    *m = (model_pool_t){.alive = true, .parent = parent};
    snprintf(m->kind, sizeof m->kind, "%s", kind);
    snprintf(m->name, sizeof m->name, "%s", name);
    model_write("created:%s/%s/%u ", kind, name, parent);
    model_leave();
    return number;
}

static void model_destroyed(uint32_t pool) {
    model_pool_t *m = model_enter(pool);
    model_end_frame(pool, 0, true);
    m->alive = false;
    free(m->sealed);
    m->sealed = NULL;
    model_write("destroyed ");
    model_leave();
}

static void model_pushed(uint32_t pool) {
    model_pool_t *m = model_enter(pool);
    CHECK_LT(m->nopen, MODEL_FRAMES);
    m->open[m->nopen++] = ++model.frames;
    model_write("( ");
    model_leave();
}

static void model_popped(uint32_t pool) {
    model_pool_t *m = model_enter(pool);
    if (!m->nopen) TEST_FAIL("%s \"%s\": a frame ends, and none is open", m->kind, m->name);
    model_end_frame(pool, m->open[--m->nopen], false);
    model_write(") ");
    model_leave();
}

static void model_was_sealed(uint32_t pool, uint64_t cookie) {
    model_pool_t *m = model_enter(pool);
    if (m->nopen != 1) TEST_FAIL("%s \"%s\": a frame is sealed, and %u are open", m->kind, m->name, m->nopen);
    if (m->nsealed == m->room) {
        m->room = m->room ? 2 * m->room : 16;
        m->sealed = realloc(m->sealed, m->room * sizeof *m->sealed);
        CHECK(m->sealed);
    }
    m->sealed[m->nsealed++] = (model_sealed_t){cookie, m->open[--m->nopen], ++model.next_sealed};
    model_write("]%u ", model.next_sealed);
    model_leave();
}

static void model_was_released(uint32_t pool, uint64_t cookie) {
    model_pool_t *m = model_enter(pool);
    unsigned i = 0;
    while (i < m->nsealed && m->sealed[i].cookie != cookie) i++;
    if (i == m->nsealed) TEST_FAIL("%s \"%s\": a frame is released that is not sealed", m->kind, m->name);
    model_end_frame(pool, m->sealed[i].frame, false);
    model_write("!%u ", m->sealed[i].number);
    m->sealed[i] = m->sealed[--m->nsealed];
    model_leave();
}

static void model_alloc(uint32_t pool, size_t size, const void *p, size_t alignment) {
    model_enter(pool);
    CHECK(alignment && !(alignment & (alignment - 1)) && ((uintptr_t)p & (alignment - 1)) == 0);
    model.allocs++;
    model_birth(pool, p, size, ++model.next_block);
    model_write("+%zu ", size);
    model_leave();
}

static void model_free(uint32_t pool, const void *p) {
    model_pool_t *m = model_enter(pool);
    model_block_t *b = model_find(pool, p);
    if (!b && !model.lenient) TEST_FAIL("%s \"%s\": %p is freed, and no block", m->kind, m->name, p);
    model.frees++;
    if (b) {
        model_write("-%u ", b->number);
        model_death(b);
    }
    model_leave();
}

static void model_resized(uint32_t pool, const void *old, size_t size, const void *p) {
    model_pool_t *m = model_enter(pool);
    model_block_t *b = model_find(pool, old);
    if (!b) TEST_FAIL("%s \"%s\": %p is resized, and no block", m->kind, m->name, old);
    model.resizes++;
    uint32_t number = b->number;
    model_death(b);
    model_write("%u%c%zu ", number, old == p ? '=' : '>', size);
    model_birth(pool, p, size, old == p ? number : ++model.next_block);
    model_leave();
}

static void model_emptied(uint32_t pool) {
    model_enter(pool);
    model_end_frame(pool, 0, true);
    model_leave();
}

static void model_held(uint32_t pool, uint64_t held, uint64_t used) {
    model_pool_t *m = model_enter(pool);
    m->held = held;
    m->used = used;
    m->helds++;
    model_leave();
    if (model.when_held) model.when_held();
}

const quarry_record_pool_t quarry_record_pool_v1 = {
    .bytes = sizeof(quarry_record_pool_t),
    .created = model_created,
    .destroyed = model_destroyed,
    .pushed = model_pushed,
    .popped = model_popped,
    .sealed = model_was_sealed,
    .released = model_was_released,
    .alloc = model_alloc,
    .free = model_free,
    .resized = model_resized,
    .emptied = model_emptied,
    .held = model_held,
};

// ---- for tests ---------------------------------------------------------------------------------------------

__attribute__((unused)) static void script_begin(void) {
    pthread_mutex_lock(&model.lock);
    model.script = true;
    model.length = 0;
    model.text[0] = '\0';
    model.next_block = model.next_sealed = 0;
    model_leave();
}

// What was told since script_begin, or since this was called last, is `words`.
__attribute__((unused)) static void told_(const char *file, int line, const char *words) {
    pthread_mutex_lock(&model.lock);
    while (model.length && model.text[model.length - 1] == ' ') model.text[--model.length] = '\0';
    if (strcmp(model.text, words)) {
        fprintf(stderr, "%s:%d: told: %s\n  not: %s\n", file, line, model.text, words);
        _exit(1);
    }
    model.length = 0;
    model.text[0] = '\0';
    model_leave();
}
#define TOLD(words) told_(__FILE__, __LINE__, (words))

// The pool of this name that was created last.
__attribute__((unused)) static const model_pool_t *model_of(const char *name) {
    for (uint32_t i = model.pools; i; i--)
        if (!strcmp(model.pool[i].name, name)) return &model.pool[i];
    TEST_FAIL("no pool \"%s\" was told of", name);
}

#endif
