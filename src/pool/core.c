// SPDX-License-Identifier: MIT
// core.c: the life of a pool, the list of pools, and what all kinds answer alike.
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "base/num.h"
#include "os/os.h"
#include "os/streams.h"
#include "pool/checker.h"
#include "pool/log.h"
#include "pool/observe.h"
#include "pool/pool.h"
#include "pool/stats_page.h"
#include "pool/trace.h"
#include "rt/opts.h"
#include "rt/stats_page.h"

static struct {
    qy_lock_t lock;
    qy_lock_t walk_ends;  // outside of `lock`: a walk of the list does not end amid a fork
    qy_pool_info_t *first;
    bool fork_handlers;
    _Atomic bool unshown;  // in the statistics page, which is new
} pools;

// ---- fork ---------------------------------------------------------------------------------------------

// The child has only the thread that forked: whatever another thread held must not stay held. The list is
// frozen first, so no pool comes or goes; then each kind takes its own locks.
static void fork_all(int phase) {
    for (qy_pool_info_t *i = pools.first; i; i = i->next) {
        qy_pool_trace_fork(i->pool, phase);  // its lock is outside of the pool's
        if (i->pool->ops->fork) i->pool->ops->fork(i->pool, phase);
        qy_observe_fork(i->pool, phase);
        qy_log_fork(i->pool, phase);
    }
}
// A walk calls the program's code, which may wait for anything that this thread has by now: libc's list of streams,
// say, or a pool. A walk that does not end soon is left as it is. It changes nothing, and does not end before the fork.
// Most do end, and then handlers of others may use what is walked.
#define WALK_NS UINT64_C(20000000)
void qy_pool_fork_walked(qy_lock_t *lock, qy_lock_t *walk_ends, int phase) {
    if (phase == 0) {
        qy_lock_freeze_until(lock, qy_os_now_ns() + WALK_NS);
        qy_lock_fork(walk_ends, 0);
        qy_lock_freeze_unless_out(lock);
    } else {
        qy_lock_fork(lock, phase);
        qy_lock_fork(walk_ends, phase);
    }
}
static void pools_fork_prepare(void) {
    qy_os_streams_hold();
    qy_pool_fork_walked(&pools.lock, &pools.walk_ends, 0);
    fork_all(0);
    qy_pool_trace_fork_all(0);
    if (!qy_pool_meta_fork_by_malloc) qy_pool_meta_fork(0);
}
static void pools_fork_parent(void) {
    if (!qy_pool_meta_fork_by_malloc) qy_pool_meta_fork(1);
    qy_pool_trace_fork_all(1);
    fork_all(1);
    qy_pool_fork_walked(&pools.lock, &pools.walk_ends, 1);
    qy_os_streams_let_go();
}
static void pools_fork_child(void) {
    qy_os_streams_in_child();
    if (!qy_pool_meta_fork_by_malloc) qy_pool_meta_fork(2);
    qy_pool_trace_fork_all(2);
    fork_all(2);
    qy_pool_fork_walked(&pools.lock, &pools.walk_ends, 2);
    size_t held = 0;
    for (qy_pool_info_t *i = pools.first; i; i = i->next) held += atomic_load_explicit(&i->held, memory_order_relaxed);
    if (qy_stats_page_in_child(QUARRY_STATS_PAGE_POOLS, held >= QY_STATS_PAGE_CHILD_LARGE)) qy_pools_show();
}

// ---- the statistics page ------------------------------------------------------------------------------

void qy_pools_show(void) {
    if (!qy_lock_try(&pools.lock)) {
        atomic_store_explicit(&pools.unshown, true, memory_order_relaxed);
        return;
    }
    atomic_store_explicit(&pools.unshown, false, memory_order_relaxed);
    uint64_t now = qy_os_now_ns();
    for (qy_pool_info_t *i = pools.first; i; i = i->next)
        if (atomic_load_explicit(&i->held, memory_order_relaxed)) qy_pool_show_held(i->pool, now);
    qy_lock_drop(&pools.lock);
}

bool qy_pools_unshown(void) { return atomic_load_explicit(&pools.unshown, memory_order_relaxed); }

// Later than those of the recorder, which begins when it is told of the first pool: pools are told of under their
// locks, so these are frozen first. Earlier than those of the log.
static void pools_register_fork_handlers(void) {
    qy_lock_take(&pools.lock);
    bool first = !pools.fork_handlers;
    pools.fork_handlers = true;
    qy_lock_drop(&pools.lock);
    if (first) pthread_atfork(pools_fork_prepare, pools_fork_parent, pools_fork_child);
}

// ---- birth and death ------------------------------------------------------------------------------------

static void pools_list_insert(qy_pool_info_t *info) {
    qy_lock_take(&pools.lock);
    info->next = pools.first;
    info->prev_next = &pools.first;
    if (info->next) info->next->prev_next = &info->next;
    pools.first = info;
    qy_lock_drop(&pools.lock);
}

static void pools_list_remove(qy_pool_info_t *info) {
    qy_lock_take(&pools.lock);
    *info->prev_next = info->next;
    if (info->next) info->next->prev_next = info->prev_next;
    qy_lock_drop(&pools.lock);
}

static void copy_name(qy_pool_info_t *info, const char *name) {
    size_t n = 0;
    while (n < QY_POOL_NAME_BYTES - 1 && name[n]) info->name[n] = name[n], n++;
}

void *qy_pool_new(const quarry_pool_ops_t *ops, size_t bytes, const quarry_pool_options_t *options) {
    static const quarry_pool_options_t none;
    if (!options) options = &none;
    (void)qy_checker();  // before there are records, of which it is told
    quarry_pool_t *pool = qy_pool_meta_alloc(bytes);
    qy_pool_info_t *info = pool ? qy_pool_meta_alloc(sizeof *info) : NULL;
    if (!info) {
        if (pool) qy_pool_meta_free(pool, bytes);
        errno = ENOMEM;
        return NULL;
    }
    copy_name(info, options->name ? options->name : ops->kind);
    info->parent = options->parent;
    info->pool = pool;
    info->flags = options->flags;
    info->object_bytes = (uint32_t)bytes;
    info->owner = qy_os_thread_token();
    atomic_init(&info->limit, options->limit);
    *pool = (quarry_pool_t){.ops = ops, .alive = QY_POOL_ALIVE, .info = info};
    if (info->parent) qy_pool_must_live(info->parent);
    qy_pool_trace_open(pool);
    pools_register_fork_handlers();
    if (!qy_observe_open(pool) || !qy_log_open(pool)) {
        qy_pool_trace_close(pool);
        qy_observe_drop(pool);
        qy_pool_meta_free(info, sizeof *info);
        qy_pool_meta_free(pool, bytes);
        errno = ENOMEM;
        return NULL;
    }
    if (info->parent) atomic_fetch_add_explicit(&info->parent->info->children, 1, memory_order_relaxed);
    pools_list_insert(info);
    return pool;
}

void qy_pool_ready(quarry_pool_t *pool) { atomic_store_explicit(&pool->info->ready, true, memory_order_release); }

void qy_pool_retire(quarry_pool_t *pool) {
    qy_lock_take(&pools.lock);
    atomic_store_explicit(&pool->info->ready, false, memory_order_relaxed);
    qy_lock_drop(&pools.lock);
}

void qy_pool_drop(quarry_pool_t *pool) {
    qy_pool_info_t *info = pool->info;
    qy_assert(!atomic_load_explicit(&info->held, memory_order_relaxed) &&
              !atomic_load_explicit(&info->children, memory_order_relaxed));
    pools_list_remove(info);
    qy_pool_hide(pool);
    qy_pool_trace_close(pool);
    qy_log_close(pool);
    qy_observe_drop(pool);
    if (info->parent) atomic_fetch_sub_explicit(&info->parent->info->children, 1, memory_order_relaxed);
    pool->alive = QY_POOL_DEAD;
    pool->ops = &qy_destroyed_ops;
    size_t bytes = info->object_bytes;
    qy_pool_meta_free(info, sizeof *info);
    qy_pool_meta_free(pool, bytes);
}

void quarry_pool_destroy(quarry_pool_t *pool) {
    if (!pool) return;
    qy_pool_must_live(pool);
    size_t children = atomic_load_explicit(&pool->info->children, memory_order_relaxed);
    // malloc was not made by qy_pool_new, and does not end: what is on it goes on.
    if (children && pool->info->object_bytes)
        qy_fatal(QY_FAULT_POOL_IN_USE, pool, "%s \"%s\" is the parent of %z other pool%S", pool->ops->kind,
            pool->info->name, children);
    pool->ops->destroy(pool);
}

// ---- assertions -----------------------------------------------------------------------------------------

bool qy_pool_walk_is_due(quarry_pool_t *pool, size_t steps) {
    _Atomic size_t *paid = &pool->info->walk_paid;
    if (atomic_fetch_add_explicit(paid, QY_WALK_PAID, memory_order_relaxed) + QY_WALK_PAID < steps) return false;
    atomic_store_explicit(paid, 0, memory_order_relaxed);
    return true;
}

// ---- refusals -------------------------------------------------------------------------------------------

void *qy_pool_no_memory(quarry_pool_t *pool, size_t size) {
    if (pool->info->flags & QUARRY_POOL_ABORT)
        qy_fatal(QY_FAULT_NO_MEMORY, pool, "%s \"%s\" was refused %z byte%S", pool->ops->kind, pool->info->name, size);
    errno = ENOMEM;
    return NULL;
}

void *qy_pool_bad_alignment(void) {
    errno = EINVAL;
    return NULL;
}

void *qy_pool_refuse(quarry_pool_t *pool, size_t size, size_t alignment) {
    if (!qy_is_pow2(alignment) || alignment > pool->ops->max_alignment) return qy_pool_bad_alignment();
    return qy_pool_no_memory(pool, size);
}

// ---- what callers may ask -----------------------------------------------------------------------------------

const char *quarry_pool_name(const quarry_pool_t *pool) { return pool->info->name; }
quarry_pool_t *quarry_pool_parent(const quarry_pool_t *pool) { return pool->info->parent; }
void quarry_pool_set_limit(quarry_pool_t *pool, size_t limit) {
    atomic_store_explicit(&pool->info->limit, limit, memory_order_relaxed);
}

void quarry_pool_stats(quarry_pool_t *pool, quarry_pool_stats_t *ret_stats) {
    qy_pool_info_t *i = pool->info;
#define LOAD(field) atomic_load_explicit(&i->field, memory_order_relaxed)
    *ret_stats = (quarry_pool_stats_t){
        .kind = pool->ops->kind,
        .name = i->name,
        .held_bytes = LOAD(held),
        .peak_held_bytes = LOAD(peak_held),
        .limit = LOAD(limit),
        .requested_bytes = LOAD(requested),
        .allocs = LOAD(allocs),
        .frees = LOAD(frees),
        .resizes = LOAD(resizes),
        .slow_calls = LOAD(slow_calls),
        .chunk_gets = LOAD(chunk_gets),
        .chunk_puts = LOAD(chunk_puts),
        .slow_ns = LOAD(slow_ns),
    };
#undef LOAD
    if (pool->ops->stats) pool->ops->stats(pool, ret_stats);
    if (pool->mode & QY_MODE_OBSERVED) qy_observe_stats(pool, ret_stats);
}

int quarry_pool_check(quarry_pool_t *pool) {
    qy_pool_must_live(pool);
    const char *wrong = pool->ops->check ? pool->ops->check(pool) : NULL;
    if (!wrong && (pool->mode & QY_MODE_OBSERVED)) wrong = qy_observe_check(pool);
    if (wrong) qy_warn("%s \"%s\" at %p: %s", pool->ops->kind, pool->info->name, (void *)pool, wrong);
    return wrong ? -1 : 0;
}

int quarry_pools_walk(int (*visit)(quarry_pool_t *pool, void *arg), void *arg) {
    int result = 0;
    qy_lock_take(&pools.lock);
    qy_lock_go_out(&pools.lock);
    for (qy_pool_info_t *i = pools.first; i && !result; i = i->next)
        if (!(i->flags & QUARRY_POOL_UNTRACKED) && atomic_load_explicit(&i->ready, memory_order_acquire))
            result = visit(i->pool, arg);
    qy_lock_take(&pools.walk_ends);
    qy_lock_come_back(&pools.lock);
    qy_lock_drop(&pools.lock);
    qy_lock_drop(&pools.walk_ends);
    return result;
}

// Programs that link only pools get the options from here; reading twice is harmless (opts.c).
__attribute__((constructor(101))) static void pools_constructed(void) {
    qy_opts_read();
    qy_stats_page_start(QUARRY_STATS_PAGE_POOLS, qy_pools_show);
}

// Here, and not beside the report: a linker leaves a file out of a program to which nothing in it is wanted.
__attribute__((destructor(102))) static void pools_ended(void) {
    if (qy_opts.pool_report) qy_pools_report_left();
}
