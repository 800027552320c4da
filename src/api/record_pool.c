// SPDX-License-Identifier: MIT
// record_pool.c: the table through which Quarry's pools are recorded (rt/record_pool.h); in libquarry-record only.
//
// A sampled recording has no pools: what is freed by a frame cannot be left out block by block.
#include "rt/record_pool.h"

#include "api/record.h"
#include "base/num.h"

extern const quarry_record_pool_t quarry_record_pool_v1;

// A writer between begin and end: the calling thread's, or that of all threads that have ended, with its lock. What the
// thread hides (a malloc that is made of pools) is hidden again at the end.
typedef struct pool_entry {
    qy_writer_t *writer;  // NULL: not recorded
    uint32_t attention;
    bool late;
} pool_entry_t;

static void pool_end(pool_entry_t e) {
    qy_writer_end(e.writer);
    if (e.attention == QY_ATTENTION_HIDING)
        atomic_store_explicit(&e.writer->attention, e.attention, memory_order_relaxed);
    if (e.late) qy_record_late_drop();
}

// Times are read after it, as the process's first event chooses the clock here.
static pool_entry_t pool_begin(void) {
    pool_entry_t e = {.writer = qy_record_mine};
    if (!qy_record_ready(e.writer) || !atomic_load_explicit(e.writer->live, memory_order_relaxed))
        e.writer = qy_record_writer();
    e.late = !e.writer && qy_record_mine == &qy_writer_late;
    if (e.late) e.writer = qy_record_late_take();
    if (!e.writer) return e;
    e.attention = atomic_load_explicit(&e.writer->attention, memory_order_relaxed);
    if (qy_writer_begin(e.writer) && !e.writer->samples) return e;
    pool_end(e);
    return (pool_entry_t){NULL, 0, false};
}

// The stack is that of who called the pool: these functions are in another library, so their callers' frames stay in
// it.
static uint32_t pool_capture(pool_entry_t e) {
    return e.writer->stacks ? qy_stack_capture(qy_record_emit, e.writer) : 0;
}

// The beginning of a record of v at the time `now`; NULL: there is no room for it.
static uint8_t *put_head(qy_writer_t *w, unsigned v, uint64_t now, uint32_t pool) {
    uint8_t *at = qy_writer_room(w);
    if (!at) return NULL;
    at = qy_put_tag(at, QY_OP_POOL, v);
    at = qy_put_time(at, w, now);
    return qy_put(at, pool);
}

static void pool_trace(unsigned v, uint32_t pool, unsigned count, uint64_t first, uint64_t second) {
    pool_entry_t e = pool_begin();
    if (!e.writer) return;
    uint8_t *at = put_head(e.writer, v, qy_os_ticks(), pool);
    if (at && count > 0) at = qy_put(at, first);
    if (at && count > 1) at = qy_put(at, second);
    if (at) qy_writer_commit(e.writer, at);
    pool_end(e);
}

static uint8_t *pool_put_text(uint8_t *at, const char *text, size_t bytes) {
    at = qy_put(at, bytes);
    memcpy(at, text, bytes);
    return at + bytes;
}

static uint32_t created(uint32_t parent, const char *kind, const char *name) {
    static _Atomic uint32_t pools;
    pool_entry_t e = pool_begin();
    qy_writer_t *w = e.writer;
    if (!w) return 0;
    uint32_t number = atomic_fetch_add(&pools, 1) + 1;
    size_t kind_bytes = strnlen(kind, 64), name_bytes = strnlen(name, 256);
    bool room = w->at + kind_bytes + name_bytes <= w->limit || qy_writer_turn(w, kind_bytes + name_bytes);
    uint8_t *at = room ? put_head(w, QY_POOL_CREATED, qy_os_ticks(), number) : NULL;
    if (at) {
        at = qy_put(at, parent);
        at = pool_put_text(at, kind, kind_bytes);
        qy_writer_commit(w, pool_put_text(at, name, name_bytes));
    }
    pool_end(e);
    return number;
}

static void pool_destroyed(uint32_t pool) { pool_trace(QY_POOL_DESTROYED, pool, 0, 0, 0); }
static void pool_pushed(uint32_t pool) { pool_trace(QY_POOL_PUSHED, pool, 0, 0, 0); }
static void popped(uint32_t pool) { pool_trace(QY_POOL_POPPED, pool, 0, 0, 0); }
static void sealed(uint32_t pool, uint64_t cookie) { pool_trace(QY_POOL_SEALED, pool, 1, cookie, 0); }
static void released(uint32_t pool, uint64_t cookie) { pool_trace(QY_POOL_RELEASED, pool, 1, cookie, 0); }
static void emptied(uint32_t pool) { pool_trace(QY_POOL_EMPTIED, pool, 0, 0, 0); }
static void held(uint32_t pool, uint64_t held_bytes, uint64_t used) {
    pool_trace(QY_POOL_HELD, pool, 2, held_bytes, used);
}

static void allocated(uint32_t pool, size_t size, const void *block, size_t alignment) {
    pool_entry_t e = pool_begin();
    if (!e.writer) return;
    uint64_t now = qy_os_ticks();
    uint32_t stack = pool_capture(e);
    uint8_t *at = put_head(e.writer, QY_POOL_ALLOC, now, pool);
    if (at) {
        at = qy_put(at, size);
        at = qy_put_address(at, &e.writer->previous[QY_KIND_POOL_ALLOC], (uintptr_t)block);
        at = qy_put(at, alignment ? qy_log2_floor(alignment) : 0);
        qy_writer_commit(e.writer, qy_put(at, stack));
    }
    pool_end(e);
}

static void freed(uint32_t pool, const void *block) {
    pool_entry_t e = pool_begin();
    if (!e.writer) return;
    uint64_t now = qy_os_ticks();
    uint8_t *at = put_head(e.writer, QY_POOL_FREE, now, pool);
    if (at) qy_writer_commit(e.writer, qy_put_address(at, &e.writer->previous[QY_KIND_POOL_FREE], (uintptr_t)block));
    pool_end(e);
}

static void pool_resized(uint32_t pool, const void *old, size_t size, const void *block) {
    pool_entry_t e = pool_begin();
    if (!e.writer) return;
    uint64_t now = qy_os_ticks();
    uint32_t stack = pool_capture(e);
    uint8_t *at = put_head(e.writer, QY_POOL_RESIZED, now, pool);
    if (at) {
        at = qy_put_address(at, &e.writer->previous[QY_KIND_POOL_FREE], (uintptr_t)old);
        at = qy_put(at, size);
        at = qy_put_address(at, &e.writer->previous[QY_KIND_POOL_ALLOC], (uintptr_t)block);
        qy_writer_commit(e.writer, qy_put(at, stack));
    }
    pool_end(e);
}

QY_EXPORT const quarry_record_pool_t quarry_record_pool_v1 = {
    .bytes = sizeof(quarry_record_pool_t),
    .created = created,
    .destroyed = pool_destroyed,
    .pushed = pool_pushed,
    .popped = popped,
    .sealed = sealed,
    .released = released,
    .alloc = allocated,
    .free = freed,
    .resized = pool_resized,
    .emptied = emptied,
    .held = held,
};
