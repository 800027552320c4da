// SPDX-License-Identifier: MIT
// trace.c: see trace.h.
//
// The recorder's table is there from the start or never, as the recorder is preloaded. A program that has libquarry.so
// finds it by a weak reference; in one that is linked with libquarry.a that was bound at link time, and the dynamic
// linker is asked.
//
// fork. If children are recorded, each has a trace of its own, which knows no pools yet. So a child tells again of each
// pool, when it uses it first; blocks and frames from before the fork are not in its trace, as those of malloc are not.
#include "pool/trace.h"

#include "os/loaded.h"
#include "rt/record_pool.h"

extern const quarry_record_pool_t quarry_record_pool_v1 __attribute__((weak));

static const quarry_record_pool_t nobody;
static _Atomic(const quarry_record_pool_t *) table;  // NULL: not looked for yet; &nobody: there is none

static qy_lock_t again_lock;    // pools are told of again; inside of all locks of pools
static _Atomic uint32_t forks;  // since the first process; in the high half of info->traced

static const quarry_record_pool_t *trace_find(void) {
    const quarry_record_pool_t *t = &quarry_record_pool_v1;
    if (!t) t = qy_os_symbol_of("libquarry-record", QUARRY_RECORD_POOL_TABLE);
    return t && t->bytes >= sizeof *t ? t : &nobody;
}

static const quarry_record_pool_t *recorder(void) { return atomic_load_explicit(&table, memory_order_acquire); }

// ---- numbers ---------------------------------------------------------------------------------------------

static bool trace_is_recorded(const quarry_pool_t *pool) { return pool->mode & QY_MODE_RECORDED; }
static uint64_t told_of(const quarry_pool_t *pool) {
    return atomic_load_explicit(&pool->info->traced, memory_order_relaxed);
}
static bool is_told(const quarry_pool_t *pool) {
    return told_of(pool) >> 32 == atomic_load_explicit(&forks, memory_order_relaxed);
}

// Its parent, if recorded, has been told of.
static uint32_t announce(quarry_pool_t *pool) {
    const qy_pool_info_t *info = pool->info;
    uint32_t parent = info->parent && trace_is_recorded(info->parent) ? (uint32_t)told_of(info->parent) : 0;
    uint32_t number = recorder()->created(parent, pool->ops->kind, info->name);
    uint64_t traced = (uint64_t)atomic_load_explicit(&forks, memory_order_relaxed) << 32 | number;
    atomic_store_explicit(&pool->info->traced, traced, memory_order_relaxed);
    return number;
}

// The outermost one that its recording does not know yet, of the pool and those it takes memory from.
static quarry_pool_t *first_untold(quarry_pool_t *pool) {
    quarry_pool_t *found = NULL;
    for (quarry_pool_t *p = pool; p && trace_is_recorded(p) && !is_told(p); p = p->info->parent) found = p;
    return found;
}

static QY_COLD void tell_again(quarry_pool_t *pool) {
    qy_lock_take(&again_lock);
    for (quarry_pool_t *p; (p = first_untold(pool)) != NULL;) announce(p);
    qy_lock_drop(&again_lock);
}

// 0: not recorded, or in a child that is not.
static uint32_t number_of(quarry_pool_t *pool) {
    if (!trace_is_recorded(pool)) return 0;
    if (QY_UNLIKELY(!is_told(pool))) tell_again(pool);
    return (uint32_t)told_of(pool);
}

// ---- life --------------------------------------------------------------------------------------------------

void qy_pool_trace_open(quarry_pool_t *pool) {
    if (QY_UNLIKELY(!recorder())) atomic_store_explicit(&table, trace_find(), memory_order_release);
    if (QY_LIKELY(!recorder()->created)) return;
    if (pool->info->parent) number_of(pool->info->parent);
    if (announce(pool)) pool->mode |= QY_MODE_RECORDED | QY_MODE_COUNTED;
}

void qy_pool_trace_close(quarry_pool_t *pool) {
    uint32_t number = number_of(pool);
    if (number) recorder()->destroyed(number);
    if (trace_is_recorded(pool))
        atomic_store_explicit(&pool->info->traced, told_of(pool) >> 32 << 32, memory_order_relaxed);
}

// Frozen, since fork handlers of others may use the pool, and whoever is moving a block may be waiting for locks that
// are frozen next. A fork in a signal handler finds it taken by the code that was interrupted: it is left alone then.
void qy_pool_trace_fork(quarry_pool_t *pool, int phase) {
    qy_lock_t *moving = &pool->info->moving;
    if (trace_is_recorded(pool)) qy_lock_fork(moving, phase);
}

void qy_pool_trace_fork_all(int phase) {
    qy_lock_fork(&again_lock, phase);
    if (phase == 2) atomic_fetch_add_explicit(&forks, 1, memory_order_relaxed);
}

// ---- blocks ------------------------------------------------------------------------------------------------

// A block is at a place that another may have left, and not told yet: see qy_pool_trace_moving.
static void wait_for_moves(quarry_pool_t *pool) {
    qy_lock_t *moving = &pool->info->moving;
    if (QY_LIKELY(!atomic_load_explicit(&moving->state, memory_order_relaxed))) return;
    qy_lock_take(moving);
    qy_lock_drop(moving);
}

void *qy_pool_trace_alloc(quarry_pool_t *pool, size_t size, size_t alignment, void *p) {
    uint32_t number = p ? number_of(pool) : 0;
    if (!number) return p;
    wait_for_moves(pool);
    recorder()->alloc(number, size, p, alignment);
    return p;
}

void qy_pool_trace_free(quarry_pool_t *pool, const void *p) {
    uint32_t number = p ? number_of(pool) : 0;
    if (number) recorder()->free(number, p);
}

static void trace_resized(quarry_pool_t *pool, const void *old, size_t size, void *p) {
    uint32_t number = p ? number_of(pool) : 0;
    if (number) recorder()->resized(number, old, size, p);
}

void *qy_pool_trace_resized(quarry_pool_t *pool, const void *old, size_t size, void *p) {
    if (p != old && trace_is_recorded(pool)) wait_for_moves(pool);
    trace_resized(pool, old, size, p);
    return p;
}

void qy_pool_trace_moving(quarry_pool_t *pool) {
    if (trace_is_recorded(pool)) qy_lock_take(&pool->info->moving);
}

void *qy_pool_trace_moved(quarry_pool_t *pool, const void *old, size_t size, void *p) {
    if (!trace_is_recorded(pool)) return p;
    trace_resized(pool, old, size, p);
    qy_lock_drop(&pool->info->moving);
    return p;
}

// ---- frames and chunks ---------------------------------------------------------------------------------------

void qy_pool_trace_pushed(quarry_pool_t *pool) {
    uint32_t number = number_of(pool);
    if (number) recorder()->pushed(number);
}

void qy_pool_trace_popped(quarry_pool_t *pool) {
    uint32_t number = number_of(pool);
    if (number) recorder()->popped(number);
}

void qy_pool_trace_sealed(quarry_pool_t *pool, uint64_t frame) {
    uint32_t number = number_of(pool);
    if (number) recorder()->sealed(number, frame);
}

void qy_pool_trace_released(quarry_pool_t *pool, uint64_t frame) {
    uint32_t number = number_of(pool);
    if (number) recorder()->released(number, frame);
}

// As it is after all that the calling thread did to it, and told of it.
static quarry_pool_stats_t trace_look(quarry_pool_t *pool) {
    quarry_pool_stats_t s;
    atomic_thread_fence(memory_order_seq_cst);
    quarry_pool_stats(pool, &s);
    return s;
}

// Several threads may be here, and who has looked first may tell last. No lock: those of kinds and observers would be
// taken under it. Instead everyone looks again after telling, so whoever tells last has told what is held: of a change
// that was not seen then, its own thread tells later.
void qy_pool_trace_held(quarry_pool_t *pool) {
    uint32_t number = number_of(pool);
    if (!number) return;
    quarry_pool_stats_t s = trace_look(pool);
    size_t traced;
    do {
        traced = s.held_bytes;
        recorder()->held(number, traced, s.used_bytes);
        s = trace_look(pool);
    } while (s.held_bytes != traced);
}
