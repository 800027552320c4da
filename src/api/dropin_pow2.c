// SPDX-License-Identifier: MIT
// dropin_pow2.c: the C library's names for a pow2 pool; in libquarry-pow2 only, which has no heap. What C23, POSIX and
// glibc say of each function holds; where they leave a choice:
//   malloc(0) is a block of its own, as in glibc (the first power-of-two allocator returned NULL);
//   realloc(p, 0) frees p and returns NULL, as in glibc and as there.
#include <errno.h>
#include <pthread.h>
#include <stdio.h>

#include "api/dropin.h"
#include "os/streams.h"
#include "pool/observe.h"
#include "pool/pow2.h"
#include "rt/opts.h"

// ---- the pool ------------------------------------------------------------------------------------------------

// Not made like other pools: it is neither in lists nor ever observed, since that calls malloc. Its first call may come
// before any constructor, so nothing is used here that needs one.
static struct {
    qy_lock_t lock;
    _Atomic(quarry_pool_t *) pool;
    bool handlers;  // [lock]
} dropin_process;
static qy_pool_info_t process_info = {.name = "malloc", .flags = QUARRY_POOL_UNTRACKED};

// The records of all pools are seen to here, and not by the handlers of the list, which were registered later: before a
// fork those run first, and freeze pools that may be waiting for a record or, as parent, for this one.
static void dropin_prepare(void) {
    qy_os_streams_hold();
    qy_pow2_fork(process_info.pool, 0);
    qy_pool_meta_fork(0);
}
static void dropin_parent(void) {
    qy_pool_meta_fork(1);
    qy_pow2_fork(process_info.pool, 1);
    qy_os_streams_let_go();
}
static void dropin_child(void) {
    qy_os_streams_in_child();
    qy_pool_meta_fork(2);
    qy_pow2_fork(process_info.pool, 2);
}

static quarry_pool_t *dropin_make(void) {
    if (qy_os_getenv("QUARRY_CONF")) qy_opts_read();
    const quarry_pow2_options_t options = {
        .flags = qy_opts.pow2_size_locks ? QUARRY_POW2_SIZE_LOCKS : 0, .give_back_bytes = qy_opts.pow2_give_back};
    unsigned partitions = (unsigned)qy_opts.pow2_partitions;
    if (!partitions && qy_opts.pow2_size_locks) partitions = qy_pow2_default_partitions(&options);
    if (!partitions) partitions = (unsigned)qy_min(qy_os_cpu_affinity(), QUARRY_POW2_PARTITIONS_MAX);
    pow2_t *w = qy_pool_meta_alloc(pow2_object_bytes(partitions));
    if (!w) return NULL;
    w->pool = (quarry_pool_t){.ops = &qy_pow2_ops, .alive = QY_POOL_ALIVE, .info = &process_info};
    if (!qy_pow2_start(w, &options, partitions)) {
        qy_pool_meta_free(w, pow2_object_bytes(partitions));
        return NULL;
    }
    return process_info.pool = &w->pool;
}

// Registered this early, these fork handlers are the last to run before a fork and the first after it, so those of
// others find malloc working. Registering may allocate: not under the lock.
QY_COLD static quarry_pool_t *dropin_start(void) {
    qy_lock_take(&dropin_process.lock);
    quarry_pool_t *pool = atomic_load_explicit(&dropin_process.pool, memory_order_relaxed);
    if (!pool) pool = dropin_make();
    atomic_store_explicit(&dropin_process.pool, pool, memory_order_release);
    bool first = pool && !dropin_process.handlers;
    if (first) dropin_process.handlers = qy_pool_meta_fork_by_malloc = true;
    qy_lock_drop(&dropin_process.lock);
    if (first) pthread_atfork(dropin_prepare, dropin_parent, dropin_child);
    return pool;
}

// NULL: there is no memory at all.
QY_INLINE quarry_pool_t *the_pool(void) {
    quarry_pool_t *pool = atomic_load_explicit(&dropin_process.pool, memory_order_acquire);
    return QY_LIKELY(pool != NULL) ? pool : dropin_start();
}

EXPORT quarry_pool_t *quarry_pow2_process_pool(void) { return the_pool(); }

// So that it is there before the first pool of a program that has not called malloc yet.
__attribute__((constructor(101))) static void dropin_constructed(void) { the_pool(); }

// ---- the family --------------------------------------------------------------------------------------------------

QY_COLD static void *no_memory(void) {
    errno = ENOMEM;
    return NULL;
}

QY_INLINE void *allocate(size_t n, size_t align, unsigned flags) {
    quarry_pool_t *pool = the_pool();
    if (QY_UNLIKELY(!pool || align > qy_pow2_ops.max_alignment)) return no_memory();
    return qy_pow2_ops.alloc(pool, n, align, flags);
}

QY_INLINE void release(void *p) {
    if (p) qy_pow2_ops.free(the_pool(), p, QUARRY_SIZE_UNKNOWN);
}

QY_INLINE void *reallocate(void *p, size_t n) {
    if (!p) return allocate(n, 16, 0);
    if (n) return qy_pow2_ops.resize(the_pool(), p, QUARRY_SIZE_UNKNOWN, n, 16, 0);
    release(p);
    return NULL;
}

EXPORT void *malloc(size_t n) { return allocate(n, 16, 0); }
EXPORT void free(void *p) { release(p); }
EXPORT void free_sized(void *p, size_t n) {
    (void)n;
    release(p);
}
EXPORT void free_aligned_sized(void *p, size_t align, size_t n) {
    (void)align, (void)n;
    release(p);
}
EXPORT void cfree(void *p) { release(p); }
EXPORT void *calloc(size_t count, size_t size) {
    size_t n;
    return qy_mul_overflows(count, size, &n) ? no_memory() : allocate(n, 16, QUARRY_POOL_ZERO);
}
EXPORT void *realloc(void *p, size_t n) { return reallocate(p, n); }
EXPORT void *reallocarray(void *p, size_t count, size_t size) {
    size_t n;
    return qy_mul_overflows(count, size, &n) ? no_memory() : reallocate(p, n);
}

EXPORT void *aligned_alloc(size_t align, size_t n) {
    if (!qy_is_pow2(align)) {
        errno = EINVAL;
        return NULL;
    }
    return allocate(n, qy_max(align, 16), 0);
}
EXPORT int posix_memalign(void **ret_ptr, size_t align, size_t n) {
    if (!qy_is_pow2(align) || align % sizeof(void *)) return EINVAL;
    int saved = errno;
    void *p = allocate(n, qy_max(align, 16), 0);
    if (!p) return ENOMEM;  // in errno, too, as glibc leaves it
    errno = saved;
    *ret_ptr = p;
    return 0;
}
EXPORT void *memalign(size_t align, size_t n) {
    if (align > SIZE_MAX / 2 + 1) {
        errno = EINVAL;
        return NULL;
    }
    return allocate(n, align <= 16 ? 16 : (size_t)1 << qy_log2_ceil(align), 0);
}
EXPORT void *valloc(size_t n) { return allocate(n, qy_os_page_size(), 0); }
EXPORT void *pvalloc(size_t n) {
    size_t page = qy_os_page_size();
    return n > PTRDIFF_MAX - page ? no_memory() : allocate(n ? qy_round_up(n, page) : page, page, 0);
}
EXPORT size_t malloc_usable_size(void *p) { return p ? qy_pow2_ops.usable(the_pool(), p) : 0; }
EXPORT int malloc_trim(size_t keep) {
    (void)keep;  // what is kept is an option of the pool
    quarry_pool_t *pool = the_pool();
    return pool && quarry_pow2_trim(pool) != 0;
}

DROPIN_ALIASES;

// ---- figures -------------------------------------------------------------------------------------------------------

QY_HIDDEN struct mallinfo2 qy_dropin_mallinfo(void) {
    struct mallinfo2 m = {0};
    quarry_pool_t *pool = the_pool();
    if (!pool) return m;
    quarry_pow2_stats_t s;
    quarry_pow2_stats(pool, &s);
    m.arena = s.region_bytes;
    m.ordblks = s.regions;
    m.hblks = s.mapped_blocks;
    m.hblkhd = s.mapped_bytes;
    m.uordblks = s.region_bytes - s.free_bytes;
    m.fordblks = s.free_bytes;
    m.keepcost = s.dirty_bytes;
    return m;
}

EXPORT void malloc_stats(void) {
    quarry_pool_t *pool = the_pool();
    if (pool) quarry_pow2_print_free(pool, 2);
    dropin_stats_as_glibc(2);
}

int malloc_info(int options, FILE *out);  // NOLINT(readability-redundant-declaration): not in musl's headers
EXPORT int malloc_info(int options, FILE *out) {
    if (options != 0) {
        errno = EINVAL;
        return -1;
    }
    quarry_pool_stats_t c = {0};
    quarry_pool_t *pool = the_pool();
    if (pool) quarry_pool_stats(pool, &c);
    return dropin_info_as_glibc(out, qy_dropin_mallinfo().ordblks, c.allocs - c.frees);
}

// ---- at the end of the process (options stats and stats_file) ------------------------------------------------------

static bool dropin_write_json(int fd, quarry_pool_t *pool) {
    quarry_pool_stats_t c;
    quarry_pow2_stats_t s;
    quarry_pool_stats(pool, &c);
    quarry_pow2_stats(pool, &s);
    char program[128], line[1024];
    qy_os_program_name(program, sizeof program);
    for (char *p = program; *p; p++)
        if (*p == '"' || *p == '\\' || (unsigned char)*p < 0x20) *p = '?';
    // One write, so that lines of several processes in one file do not mix.
    size_t n = qy_format(line, sizeof line,
        "{\"pid\":%d,\"program\":\"%s\",\"live_blocks\":%l,\"live_bytes\":%z,\"held_bytes\":%z,\"peak_held_bytes\":%z,"
        "\"partitions\":%u,\"regions\":%z,"
        "\"region_bytes\":%z,\"free_bytes\":%z,\"mapped_blocks\":%z,\"mapped_bytes\":%z,\"kept_bytes\":%z,\"allocs\":%"
        "l,\"frees\":%l,\"resizes\":%l,"
        "\"requested_bytes\":%l,\"rounded_bytes\":%l,\"steals\":%l,\"purged_bytes\":%l}\n",
        qy_os_process_id(), program, c.allocs - c.frees, c.used_bytes, c.held_bytes, c.peak_held_bytes, s.partitions,
        s.regions, s.region_bytes, s.free_bytes, s.mapped_blocks, s.mapped_bytes, s.kept_bytes, c.allocs, c.frees,
        c.resizes, s.requested_bytes, s.rounded_bytes, s.steals, s.purged_bytes);
    return qy_os_write(fd, line, n);
}

__attribute__((destructor(101))) static void dropin_destructed(void) {
    char path[4096];  // as long as the options (rt/opts.c)
    quarry_pool_t *pool = atomic_load_explicit(&dropin_process.pool, memory_order_acquire);
    if (!pool) return;
    if (qy_opts_str(qy_opts.stats_file, path, sizeof path)) {
        int fd = qy_os_open_append(path);
        if (fd < 0) {
            qy_warn("cannot write the statistics to %s: check that the folder exists and may be written", path);
            return;
        }
        dropin_write_json(fd, pool);
        qy_os_close(fd);
    } else if (qy_opts.stats) {
        quarry_pow2_print_free(pool, 2);
    }
}
