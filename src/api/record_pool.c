// SPDX-License-Identifier: MIT
// record_pool.c: the table through which Quarry's pools are recorded (rt/record_pool.h); in libquarry-record only.
//
// A sampled recording has no pools: what is freed by a frame cannot be left out block by block.
#include "rt/record_pool.h"

#include "api/record.h"
#include "base/num.h"

extern const quarry_record_pool_t quarry_record_pool_v1;

// The calling thread's writer, between begin and end; NULL: not recorded. Threads that have ended tell nothing.
static qy_writer_t *begin(void) {
    qy_writer_t *w = qy_record_mine;
    if (!qy_record_ready(w) || !atomic_load_explicit(w->live, memory_order_relaxed)) w = qy_record_writer();
    if (!w || w->samples) return NULL;
    if (qy_writer_begin(w)) return w;
    qy_writer_end(w);
    return NULL;
}

// The beginning of a record of v; NULL: there is no room for it.
static uint8_t *put_head(qy_writer_t *w, unsigned v, uint32_t pool) {
    uint64_t now = qy_os_ticks_after();
    uint8_t *at = qy_writer_room(w);
    if (!at) return NULL;
    at = qy_put_tag(at, QY_OP_POOL, v);
    at = qy_put_time(at, w, now);
    return qy_put(at, pool);
}

static void tell(unsigned v, uint32_t pool, unsigned count, uint64_t first, uint64_t second) {
    qy_writer_t *w = begin();
    if (!w) return;
    uint8_t *at = put_head(w, v, pool);
    if (at && count > 0) at = qy_put(at, first);
    if (at && count > 1) at = qy_put(at, second);
    if (at) qy_writer_commit(w, at);
    qy_writer_end(w);
}

static uint8_t *put_text(uint8_t *at, const char *text, size_t bytes) {
    at = qy_put(at, bytes);
    memcpy(at, text, bytes);
    return at + bytes;
}

static uint32_t created(uint32_t parent, const char *kind, const char *name) {
    static _Atomic uint32_t pools;
    qy_writer_t *w = begin();
    if (!w) return 0;
    uint32_t number = atomic_fetch_add(&pools, 1) + 1;
    size_t kind_bytes = strnlen(kind, 64), name_bytes = strnlen(name, 256);
    bool room = w->at + kind_bytes + name_bytes <= w->limit || qy_writer_turn(w, kind_bytes + name_bytes);
    uint8_t *at = room ? put_head(w, QY_POOL_CREATED, number) : NULL;
    if (at) {
        at = qy_put(at, parent);
        at = put_text(at, kind, kind_bytes);
        qy_writer_commit(w, put_text(at, name, name_bytes));
    }
    qy_writer_end(w);
    return number;
}

static void destroyed(uint32_t pool) { tell(QY_POOL_DESTROYED, pool, 0, 0, 0); }
static void pushed(uint32_t pool) { tell(QY_POOL_PUSHED, pool, 0, 0, 0); }
static void popped(uint32_t pool) { tell(QY_POOL_POPPED, pool, 0, 0, 0); }
static void sealed(uint32_t pool, uint64_t cookie) { tell(QY_POOL_SEALED, pool, 1, cookie, 0); }
static void released(uint32_t pool, uint64_t cookie) { tell(QY_POOL_RELEASED, pool, 1, cookie, 0); }
static void emptied(uint32_t pool) { tell(QY_POOL_EMPTIED, pool, 0, 0, 0); }
static void held(uint32_t pool, uint64_t held_bytes, uint64_t used) { tell(QY_POOL_HELD, pool, 2, held_bytes, used); }

// The stack is that of who called the pool: these functions are in another library, so their callers' frames stay in it.
static void allocated(uint32_t pool, size_t size, const void *block, size_t alignment) {
    qy_writer_t *w = begin();
    if (!w) return;
    uint32_t stack = w->stacks ? qy_stack_capture(qy_record_emit, w) : 0;
    uint8_t *at = put_head(w, QY_POOL_ALLOC, pool);
    if (at) {
        at = qy_put(at, size);
        at = qy_put_address(at, &w->previous[QY_KIND_POOL_ALLOC], (uintptr_t)block);
        at = qy_put(at, alignment ? qy_log2_floor(alignment) : 0);
        qy_writer_commit(w, qy_put(at, stack));
    }
    qy_writer_end(w);
}

static void freed(uint32_t pool, const void *block) {
    qy_writer_t *w = begin();
    if (!w) return;
    uint8_t *at = put_head(w, QY_POOL_FREE, pool);
    if (at) qy_writer_commit(w, qy_put_address(at, &w->previous[QY_KIND_POOL_FREE], (uintptr_t)block));
    qy_writer_end(w);
}

static void resized(uint32_t pool, const void *old, size_t size, const void *block) {
    qy_writer_t *w = begin();
    if (!w) return;
    uint32_t stack = w->stacks ? qy_stack_capture(qy_record_emit, w) : 0;
    uint8_t *at = put_head(w, QY_POOL_RESIZED, pool);
    if (at) {
        at = qy_put_address(at, &w->previous[QY_KIND_POOL_FREE], (uintptr_t)old);
        at = qy_put(at, size);
        at = qy_put_address(at, &w->previous[QY_KIND_POOL_ALLOC], (uintptr_t)block);
        qy_writer_commit(w, qy_put(at, stack));
    }
    qy_writer_end(w);
}

QY_EXPORT const quarry_record_pool_t quarry_record_pool_v1 = {
    .bytes = sizeof(quarry_record_pool_t),
    .created = created,
    .destroyed = destroyed,
    .pushed = pushed,
    .popped = popped,
    .sealed = sealed,
    .released = released,
    .alloc = allocated,
    .free = freed,
    .resized = resized,
    .emptied = emptied,
    .held = held,
};
