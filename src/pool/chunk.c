// SPDX-License-Identifier: MIT
// chunk.c: memory for pools, from their parents.
#include "base/num.h"
#include "os/os.h"
#include "pool/checker.h"
#include "pool/log.h"
#include "pool/pool.h"
#include "pool/stats_page.h"
#include "pool/trace.h"

// Reserve `bytes` of the limit. The sum is never above the limit, also with several threads.
static bool charge(qy_pool_info_t *info, size_t bytes) {
    size_t limit = atomic_load_explicit(&info->limit, memory_order_relaxed);
    size_t held = atomic_load_explicit(&info->held, memory_order_relaxed), after;
    do {
        if (__builtin_add_overflow(held, bytes, &after) || (limit && after > limit)) return false;
    } while (
        !atomic_compare_exchange_weak_explicit(&info->held, &held, after, memory_order_relaxed, memory_order_relaxed));
    size_t peak = atomic_load_explicit(&info->peak_held, memory_order_relaxed);
    while (peak < after && !atomic_compare_exchange_weak_explicit(
                               &info->peak_held, &peak, after, memory_order_relaxed, memory_order_relaxed)) {}
    return true;
}

static void discharge(qy_pool_info_t *info, size_t bytes) {
    size_t held = atomic_fetch_sub_explicit(&info->held, bytes, memory_order_relaxed);
    qy_assert(held >= bytes);
    (void)held;
}

bool qy_pool_charge(quarry_pool_t *pool, size_t bytes) { return charge(pool->info, bytes); }
void qy_pool_discharge(quarry_pool_t *pool, size_t bytes) { discharge(pool->info, bytes); }

static QY_COLD void pool_chunk_changed(quarry_pool_t *pool, qy_log_event_t event) {
    qy_log_event(pool, event);
    qy_pool_trace_held(pool);
}

void qy_pool_grown(quarry_pool_t *pool, size_t bytes) {
    qy_pool_show(pool, bytes, qy_os_now_ns());
    if (QY_UNLIKELY(pool->mode & QY_MODE_COUNTED)) pool_chunk_changed(pool, QY_LOG_CHUNK_GET);
}

static bool pool_chunk_get(quarry_pool_t *pool, size_t bytes, size_t alignment, qy_pool_chunk_t *ret_chunk) {
    qy_pool_info_t *info = pool->info;
    if (!charge(info, bytes)) return false;
    quarry_pool_t *parent = info->parent;
    void *base = parent ? parent->ops->alloc(parent, bytes, alignment, 0) : qy_os_map(bytes, alignment, NULL);
    if (!base) {
        discharge(info, bytes);
        return false;
    }
    if (parent && QY_UNLIKELY(parent->info->checked)) qy_checker_held(parent, base);
    *ret_chunk = (qy_pool_chunk_t){base, bytes, parent == NULL};
    return true;
}

bool qy_chunk_get(quarry_pool_t *pool, size_t need, size_t want, size_t alignment, qy_pool_chunk_t *ret_chunk) {
    qy_pool_info_t *info = pool->info;
    size_t unit = info->parent ? 16 : qy_os_page_size();
    if (need > QUARRY_POOL_MAX - unit) return false;
    need = qy_round_up(qy_max(need, 1), unit);
    want = want > QUARRY_POOL_MAX - unit ? need : qy_max(qy_round_up(want, unit), need);
    alignment = qy_max(alignment, info->parent ? 16 : unit);

    uint64_t start = qy_os_now_ns();
    bool got = pool_chunk_get(pool, want, alignment, ret_chunk);
    // Near a limit a smaller chunk is better than none.
    while (!got && want > need) {
        want = qy_max(qy_round_up(want / 2, unit), need);
        got = pool_chunk_get(pool, want, alignment, ret_chunk);
    }
    if (got) atomic_fetch_add_explicit(&info->chunk_gets, 1, memory_order_relaxed);
    qy_assert(!got || (ret_chunk->bytes >= need && ((uintptr_t)ret_chunk->base & (alignment - 1)) == 0));
    uint64_t end = qy_os_now_ns();
    atomic_fetch_add_explicit(&info->slow_ns, end - start, memory_order_relaxed);
    if (got) qy_pool_show(pool, ret_chunk->bytes, end);
    if (QY_UNLIKELY(pool->mode & QY_MODE_COUNTED) && got) pool_chunk_changed(pool, QY_LOG_CHUNK_GET);
    return got;
}

// Pages change their place by the kernel's tables; no byte is copied.
static void *resize_pages(const qy_pool_chunk_t *chunk, size_t bytes, size_t alignment) {
    if (((uintptr_t)chunk->base & (alignment - 1)) == 0 && qy_os_resize_in_place(chunk->base, chunk->bytes, bytes))
        return chunk->base;
    void *to = qy_os_reserve(bytes, alignment, NULL);
    return to && qy_os_move(chunk->base, chunk->bytes, to, bytes) ? to : NULL;
}

bool qy_chunk_resize(quarry_pool_t *pool, qy_pool_chunk_t *chunk, size_t bytes, size_t alignment) {
    qy_pool_info_t *info = pool->info;
    size_t unit = info->parent ? 16 : qy_os_page_size(), old = chunk->bytes;
    bytes = qy_round_up(qy_max(bytes, 1), unit);
    alignment = qy_max(alignment, unit);
    if (bytes == old && ((uintptr_t)chunk->base & (alignment - 1)) == 0) return true;
    if (bytes > old && !charge(info, bytes - old)) return false;
    void *to = info->parent ? info->parent->ops->resize(info->parent, chunk->base, old, bytes, alignment, 0)
                            : resize_pages(chunk, bytes, alignment);
    if (to && bytes < old) discharge(info, old - bytes);
    if (!to && bytes > old) discharge(info, bytes - old);
    if (to && info->parent && QY_UNLIKELY(info->parent->info->checked)) qy_checker_held(info->parent, to);
    if (to) *chunk = (qy_pool_chunk_t){to, bytes, false};
    if (to) qy_pool_show(pool, bytes > old ? bytes - old : old - bytes, qy_os_now_ns());
    if (QY_UNLIKELY(pool->mode & QY_MODE_RECORDED) && to) qy_pool_trace_held(pool);
    return to != NULL;
}

void qy_chunk_put(quarry_pool_t *pool, void *base, size_t bytes) {
    qy_pool_info_t *info = pool->info;
    quarry_pool_t *parent = info->parent;
    uint64_t start = qy_os_now_ns();
    // Where the kernel refuses (its table of mappings is full), the memory at least goes back; the
    // address space is lost, which is bounded by what the table holds.
    if (parent) parent->ops->free(parent, base, bytes);
    else if (!qy_os_unmap(base, bytes)) qy_os_purge(base, bytes);
    discharge(info, bytes);
    atomic_fetch_add_explicit(&info->chunk_puts, 1, memory_order_relaxed);
    uint64_t end = qy_os_now_ns();
    atomic_fetch_add_explicit(&info->slow_ns, end - start, memory_order_relaxed);
    qy_pool_show(pool, bytes, end);
    if (QY_UNLIKELY(pool->mode & QY_MODE_COUNTED)) pool_chunk_changed(pool, QY_LOG_CHUNK_PUT);
}
